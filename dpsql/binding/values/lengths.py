"""Public upper bounds on the lengths of texts and lists that one row can have, and on the work that they make.

A text is as long as its row says, and so is what a function makes of it: a statement could be chosen that needs gigabytes
or hours if one person is there, and whose failure tells so. Each text and list therefore has a bound that follows from
the policy alone. A column's is its ``max_length``; a longer value is NULL, which the exact query checks only where a
function needs the bound, so columns that are compared, grouped by or matched with LIKE are read as they are. What would
be longer than :data:`MAX_TEXT`, or take more than :data:`MAX_STEPS`, is refused, whatever the data.

Lengths count code points of texts and elements of lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from sqlglot import exp

from dpsql.binding.values.sql_types import Type, Typed
from dpsql.errors import PrivacyError
from dpsql.language.dialect import privacy_error, span_of

DEFAULT_MAX_LENGTH = 65_536
"""Characters of a text, or elements of a list, where the policy does not say."""
MAX_TEXT = 2**20
"""Characters of one text that a function makes of one row."""
MAX_WRITTEN = 2**24
"""Characters of all texts that the functions of one statement make of one row."""
MAX_STEPS = 2**26
"""Steps (of about a nanosecond) that one function takes for one row, where it takes more than a few for a character."""

_MARK = "dpsql_max_length"
"""Key of a node's ``meta``: the longest value that counts, where the engine may hold a longer one."""
_WIDTHS = {
    "NULL": 0, "BOOLEAN": 5, "INTEGER": 40, "DECIMAL": 41, "DOUBLE": 32, "DATE": 24, "TIME": 24, "TIMESTAMP": 48,
    "INTERVAL": 96, "UUID": 36,
}  # fmt: skip
"""Characters of a value that is written as text."""
_SIZED = ("TEXT", "LIST")
_CHOOSERS = ("coalesce", "greatest", "least")
_written: ContextVar[dict[object, int] | None] = ContextVar("written", default=None)


def column_length(declared: object) -> int:
    """Return the ``max_length`` that a policy's column declares, or the default."""
    given: int | None = getattr(declared, "max_length", None)
    return DEFAULT_MAX_LENGTH if given is None else given


def length_of(typed: Typed) -> int:
    """Return the public bound of a value's length; of what is no text or list, as it would be written."""
    if typed.length is not None:
        return typed.length
    if isinstance(typed.node, exp.Literal) and typed.type.kind == "TEXT":
        return len(typed.node.name)
    return _WIDTHS.get(typed.type.kind, DEFAULT_MAX_LENGTH)


def mark_length(typed: Typed) -> Typed:
    """Return a value that is read from a relation, with the bound that :func:`hold` will enforce.

    The value's node must be the caller's own: it is marked.
    """
    if typed.type.kind not in _SIZED or typed.constant or (typed.length is not None and not typed.unchecked):
        return typed
    length = length_of(typed)
    typed.node.meta[_MARK] = length
    return replace(typed, length=length, unchecked=True)


def hold(typed: Typed, most: int | None = None) -> Typed:
    """Return the value, or NULL where it is longer than its public bound, and than ``most``.

    The check stands at the columns that the value is chosen from, so that nothing is computed twice.
    """
    if typed.type.kind not in _SIZED or typed.type.sql == "ENUM":
        return typed
    length = length_of(typed)
    if most is not None and most < length:
        return replace(
            typed, node=_checked(typed.node, typed.type, most), length=most, unchecked=False, nullable=True
        )
    if not typed.unchecked and (typed.length is not None or typed.constant):
        return typed
    found: list[exp.Expr] = []
    node = _held(typed.node.copy(), typed.type, found) if typed.unchecked else typed.node
    if not found:
        node = _checked(node, typed.type, length)
    return replace(typed, node=node, length=length, unchecked=False, nullable=True)


def check_length(typed: Typed) -> exp.Expr:
    """Return a column's value, or NULL where it is longer than its public bound."""
    return _checked(typed.node.copy(), typed.type, length_of(typed)) if typed.unchecked else typed.node.copy()


def _held(node: exp.Expr, kind: Type, found: list[exp.Expr]) -> exp.Expr:
    length = node.meta.pop(_MARK, None)
    if length is not None:
        found.append(node)
        return _checked(node, kind, length)
    places: list[exp.Expr] = []
    if isinstance(node, exp.Case):
        places = [branch.args["true"] for branch in node.args["ifs"]]
        places += [node.args["default"]] if node.args.get("default") is not None else []
    elif isinstance(node, exp.Paren):
        places = [node.this]
    elif isinstance(node, exp.Anonymous) and str(node.this) in _CHOOSERS:
        places = list(node.expressions)
    for place in places:
        place.replace(_held(place.copy(), kind, found))
    return node


def _checked(node: exp.Expr, kind: Type, length: int) -> exp.Expr:
    """``CASE WHEN x is no longer THEN x END``. Bytes are counted first: that takes no look at the text."""

    def most(name: str) -> exp.Expr:
        counted = exp.Anonymous(this=name, expressions=[node.copy()])
        return exp.LTE(this=counted, expression=exp.Literal.number(length))

    fits = most("len") if kind.kind == "LIST" else exp.Or(this=most("strlen"), expression=most("length"))
    return exp.Case(ifs=[exp.If(this=fits, true=node.copy())])


# -- limits -----------------------------------------------------------------------------------------------------


@contextmanager
def one_statement() -> Iterator[None]:
    """Count what is written for one row from here on as one statement's; inside another, as that one's."""
    if _written.get() is not None:
        yield
        return
    token = _written.set({})
    try:
        yield
    finally:
        _written.reset(token)


def count_written(name: str, length: int, node: exp.Expr, weight: int = 1) -> int:
    """Return the bound of a text that a function makes, after counting it.

    Args:
        name: the function, as the analyst knows it.
        length: the bound.
        node: the analyst's call, for the caret. A call that is bound twice is counted once.
        weight: characters in memory for each that is given.

    Raises:
        PrivacyError: the text, or all texts of the statement together, could be too long.
    """
    if length > MAX_TEXT:
        raise privacy_error(
            node,
            f"{name} could make {length:,} characters of one row, and {MAX_TEXT:,} is the most.",
            LENGTH_HINT,
        )
    count_kept(name, length * weight, node)
    return length


LENGTH_HINT = "shorten the text by LEFT first, or ask the owner for a max_length of the column in the policy."


def count_kept(name: str, length: int, node: exp.Expr) -> None:
    """Count characters that a function keeps in memory for one row.

    Raises:
        PrivacyError: those of the statement could be too many.
    """
    counted = _written.get()
    if counted is None:
        return
    span = span_of(node)
    key: object = (name, span) if span is not None else (name, id(node), len(counted))
    counted[key] = max(counted.get(key, 0), length)
    if sum(counted.values()) > MAX_WRITTEN:
        raise PrivacyError(
            f"with {name}, this statement could make more than {MAX_WRITTEN:,} characters of one row.",
            span=span,
            hint=LENGTH_HINT,
        )


def limit_steps(name: str, steps: int, node: exp.Expr, hint: str = LENGTH_HINT) -> None:
    """Refuse a function that could take too long for one row.

    Raises:
        PrivacyError: it is more than :data:`MAX_STEPS`.
    """
    if steps > MAX_STEPS:
        raise privacy_error(
            node,
            f"{name} could take about {_short(steps)} steps for one row, and {_short(MAX_STEPS)} is the most.",
            hint,
        )


def _short(steps: int) -> str:
    digits = len(str(steps)) - 1
    return f"{steps:,}" if digits < 6 else f"{steps // 10**6:,} million" if digits < 12 else f"10^{digits}"
