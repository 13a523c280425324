"""Public upper bounds on the lengths of one row's texts and lists, and on the work of functions over them.

Without bounds, a statement could need gigabytes or hours if one person's row is present, and its failure would reveal
that. So each text and list has a bound that follows from the policy alone. A column's bound is its ``max_length``; longer
values become NULL. The exact query checks this only if a function needs the bound: columns that are compared, grouped by
or matched with LIKE are read unchanged. Texts above :data:`MAX_TEXT` and work above :data:`MAX_STEPS` are refused,
whatever the data.

Lengths count code points of texts and elements of lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from sqlglot import exp

from dpsql.binding.values.sql_types import Type, Typed
from dpsql.catalogue.row_names import ROW_NAMES
from dpsql.errors import PrivacyError
from dpsql.language.dialect import privacy_error, span_of
from dpsql.policy.tables import Column

DEFAULT_MAX_LENGTH = 65_536
"""Characters of a text, or elements of a list, without a ``max_length`` in the policy."""
MAX_TEXT = 2**20
"""Characters of one text that a function makes of one row."""
MAX_WRITTEN = 2**24
"""Characters of all texts that the functions of one statement make of one row."""
MAX_STEPS = 2**26
"""Steps, of about a nanosecond, of one function for one row."""

_MARK = "dpsql_max_length"
"""The key in a node's ``meta`` of the length above which values become NULL, if the engine may have longer ones."""
_WIDTHS = {
    "NULL": 0,
    "BOOLEAN": 5,
    "INTEGER": 40,
    "DECIMAL": 41,
    "DOUBLE": 32,
    "DATE": 24,
    "TIME": 24,
    "TIMESTAMP": 48,
    "INTERVAL": 96,
    "UUID": 36,
}
"""Characters of a value written as text."""
_SIZED = ("TEXT", "LIST")
_CHOOSING = frozenset(row.name for row in ROW_NAMES if row.chooses)
_written: ContextVar[dict[object, int] | None] = ContextVar("written", default=None)
_repeats: ContextVar[int] = ContextVar("repeats", default=1)


def column_length(declared: Column | None) -> int:
    """Return the ``max_length`` that a policy's column declares, or the default."""
    given = None if declared is None else declared.max_length
    return DEFAULT_MAX_LENGTH if given is None else given


def length_of(typed: Typed) -> int:
    """Return the public bound of a value's length; for other types than texts and lists, as written."""
    if typed.length is not None:
        return typed.length
    if isinstance(typed.node, exp.Literal) and typed.type.kind == "TEXT":
        return len(typed.node.name)
    return _WIDTHS.get(typed.type.kind, DEFAULT_MAX_LENGTH)


def mark_length(typed: Typed) -> Typed:
    """Return a value read from a relation, with the bound that :func:`hold` enforces; marks the value's node."""
    if typed.type.kind not in _SIZED or typed.constant or (typed.length is not None and not typed.unchecked):
        return typed
    length = length_of(typed)
    typed.node.meta[_MARK] = length
    return replace(typed, length=length, unchecked=True)


def hold(typed: Typed, most: int | None = None) -> Typed:
    """Return the value with NULL for lengths above its public bound and ``most``.

    The columns that the value is chosen from are checked, so nothing is computed twice.
    """
    if typed.type.kind not in _SIZED or typed.type.sql == "ENUM":
        return typed
    length = length_of(typed)
    if most is not None and most < length:
        node = _checked(typed.node, typed.type, most)
        return replace(typed, node=node, length=most, unchecked=False, nullable=True)
    if not typed.unchecked and (typed.length is not None or typed.constant):
        return typed
    found: list[exp.Expr] = []
    node = _held(typed.node.copy(), typed.type, found) if typed.unchecked else typed.node
    if not found:
        node = _checked(node, typed.type, length)
    return replace(typed, node=node, length=length, unchecked=False, nullable=True)


def check_length(typed: Typed) -> exp.Expr:
    """Return a column's value, with NULL for lengths above its public bound."""
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
    elif isinstance(node, exp.Anonymous) and str(node.this) in _CHOOSING:
        places = list(node.expressions)
    for place in places:
        place.replace(_held(place.copy(), kind, found))
    return node


def _checked(node: exp.Expr, kind: Type, length: int) -> exp.Expr:
    """Return ``CASE WHEN x is short THEN x END``; bytes are compared first, since the engine stores their number."""

    def most(name: str) -> exp.Expr:
        counted = exp.Anonymous(this=name, expressions=[node.copy()])
        return exp.LTE(this=counted, expression=exp.Literal.number(length))

    fits = most("len") if kind.kind == "LIST" else exp.Or(this=most("strlen"), expression=most("length"))
    return exp.Case(ifs=[exp.If(this=fits, true=node.copy())])


# -- limits -----------------------------------------------------------------------------------------------------


@contextmanager
def one_statement() -> Iterator[None]:
    """Count the characters written per row together, for the outermost such block."""
    if _written.get() is not None:
        yield
        return
    token = _written.set({})
    try:
        yield
    finally:
        _written.reset(token)


@contextmanager
def repeated(times: int) -> Iterator[None]:
    """Count texts and steps once for each of a list's elements."""
    token = _repeats.set(_repeats.get() * max(1, times))
    try:
        yield
    finally:
        _repeats.reset(token)


def count_written(name: str, length: int, node: exp.Expr, weight: int = 1) -> int:
    """Count the text that a function makes, and return its length's bound.

    Args:
        name: the function's name in messages.
        node: the analyst's call. A call that is bound twice is counted once.
        weight: characters in memory for each character of the text.

    Raises:
        PrivacyError: the text, or all texts of the statement together, could be too long.
    """
    if length > MAX_TEXT:
        what = f"{name} could make {length:,} characters of one row, and {MAX_TEXT:,} is the most."
        raise privacy_error(node, what, LENGTH_HINT)
    count_kept(name, length * weight, node)
    return length


LENGTH_HINT = "shorten the text by LEFT first, or ask the owner for a max_length of the column in the policy."


def count_kept(name: str, length: int, node: exp.Expr) -> None:
    """Count characters that a function needs in memory for one row; PrivacyError for too many in the statement."""
    counted = _written.get()
    if counted is None:
        return
    length *= _repeats.get()
    span = span_of(node)
    key: object = (name, span) if span is not None else (name, id(node), len(counted))
    counted[key] = max(counted.get(key, 0), length)
    if sum(counted.values()) > MAX_WRITTEN:
        what = f"with {name}, this statement could make more than {MAX_WRITTEN:,} characters of one row."
        raise PrivacyError(what, span=span, hint=LENGTH_HINT)


def limit_steps(name: str, steps: int, node: exp.Expr, hint: str = LENGTH_HINT) -> None:
    """Raise PrivacyError if a function could take more than :data:`MAX_STEPS` for one row."""
    steps *= _repeats.get()
    if steps > MAX_STEPS:
        what = (
            f"{name} could take about {_short(steps)} steps for one row, and {_short(MAX_STEPS)} is the most."
        )
        raise privacy_error(node, what, hint)


def _short(steps: int) -> str:
    digits = len(str(steps)) - 1
    return f"{steps:,}" if digits < 6 else f"{steps // 10**6:,} million" if digits < 12 else f"10^{digits}"
