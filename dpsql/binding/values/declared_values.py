"""Public facts about values: those that a policy declares, and bounds on lengths and on the work of functions.

The policy's ``values`` are public. If no declared value meets a condition, its answer is noise alone, and the constant is
nearly always misspelt. So the statement is refused before payment, and no row is read. ``NOT IN`` over the declared
values counts the rows with other values. A value that stands in for a parameter is never refused.

Without bounds on the lengths of texts and lists, a statement could need gigabytes or hours if one person's row is
present, and its failure would reveal that. So each text and list has a bound that follows from the policy alone. A
column's bound is its ``max_length``; longer values become NULL. The exact query checks this only if a function needs
the bound: columns that are compared, grouped by or matched with LIKE are read unchanged. Texts above :data:`MAX_TEXT`
and work above :data:`MAX_STEPS` are refused, whatever the data.

Lengths count code points of texts and elements of lists.
"""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

from sqlglot import exp

from dpsql.binding.values.sql_types import BLOB, OTHER, TIMESTAMP, UNKNOWN, Bounds, Type, Typed
from dpsql.catalogue.row_names import ROW_NAMES
from dpsql.errors import BindError, PolicyError, PrivacyError, clip
from dpsql.language.dialect import bind_error, privacy_error, span_of, to_sql
from dpsql.language.parameters import STAND_IN
from dpsql.policy.tables import Column
from dpsql.policy.validate import DateBound, Value, write_bound

KnownValues = tuple[object, ...]
ValuesOf = Callable[[Typed], KnownValues | None]
"""Returns the declared values of one side of a comparison."""
_LISTED = 12
"""The most declared values in a hint."""
EQUALITIES = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)


def check_comparison(left: Typed, right: Typed, values_of: ValuesOf) -> None:
    """Raise BindError for an equality or inequality of a column and a constant that is not a declared value."""
    for side, other in ((left, right), (right, left)):
        if other.constant and not side.constant and (values := values_of(side)) is not None:
            _refuse_first(side, [other], values)


def check_list(value: Typed, items: Sequence[Typed], values_of: ValuesOf) -> None:
    """Raise BindError for IN over a list with a constant that is not a declared value of the column."""
    if not value.constant:
        if (values := values_of(value)) is not None:
            _refuse_first(value, [item for item in items if item.constant], values)
        return
    sides = [values_of(item) for item in items]
    if sides and all(found is not None and _find_unlike(found, value.node, value) for found in sides):
        _refuse_first(items[0], [value], sides[0] or ())


def list_values(typed: Typed) -> KnownValues | None:
    """Return the declared values of a column, which constants are compared with; None for booleans."""
    known = typed.values
    return None if known is None or any(isinstance(value, bool) for value in known) else known


def change_case(node: exp.Expr, values: KnownValues | None) -> KnownValues | None:
    """Return declared values in the case of UPPER or LOWER; None unless all are ASCII texts."""
    texts = [value for value in values or () if isinstance(value, str) and value.isascii()]
    if values is None or len(texts) != len(values):
        return None
    return tuple(dict.fromkeys(map(str.upper if isinstance(node, exp.Upper) else str.lower, texts)))


Declared = tuple[str, KnownValues]
"""A column as the analyst writes it, and its declared values."""


_noted: ContextVar[tuple[list[str], list[str]] | None] = ContextVar("noted", default=None)
_Value = TypeVar("_Value")


@contextmanager
def _setting(variable: ContextVar[_Value], value: _Value) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def note_in(notes: list[str], limits: list[str]) -> AbstractContextManager[None]:
    """Collect the notes on conditions that no value within the bounds meets, and EXPLAIN's sentences about them."""
    return _setting(_noted, (notes, limits))


def note_impossible(node: exp.Expr, *pairs: tuple[type[exp.Expr], Typed, Typed]) -> None:
    """Add a note on a condition that no value within its column's public bounds meets: its answer is noise alone.

    It isn't refused: bounds clamp the numbers that a row adds, and a condition reads the row's own value.

    Args:
        node: the condition as the analyst wrote it.
        pairs: the comparisons that must all be true, each with its two sides.
    """
    lists = _noted.get()
    if lists is None or span_of(node) is None:
        return
    for kind, left, right in pairs:
        bounds = (left.bounds, right.bounds)
        if left.constant != right.constant and None not in bounds and _never(kind, *bounds):
            note = f"no value within the public bounds meets {clip(to_sql(node))}"
            for listed, said in zip(lists, (note, f"N{note[1:]}."), strict=True):
                if said not in listed:
                    listed.append(said)


def _never(kind: type[exp.Expr], left: Bounds | None, right: Bounds | None) -> bool:
    if left is None or right is None:
        return False
    if kind in (exp.EQ, exp.NullSafeEQ):
        return _is_less(left.high, right.low) or _is_less(right.high, left.low)
    if kind in (exp.GT, exp.GTE):
        left, right = right, left
    if kind in (exp.GT, exp.LT) and right.high is not None and right.high == left.low:
        return True
    return kind in (exp.LT, exp.LTE, exp.GT, exp.GTE) and _is_less(right.high, left.low)


def _is_less(low: Fraction | None, high: Fraction | None) -> bool:
    return low is not None and high is not None and low < high


def check_released(tree: exp.Expr, find: Callable[[exp.Column], Declared | None]) -> None:
    """Raise BindError for such a comparison in SQL that isn't bound here: above the private part, or inside a block.

    Args:
        tree: expressions, without their inner queries.
        find: returns a column's declared values.
    """
    for node in tree.walk(prune=lambda inner: isinstance(inner, exp.Query) and inner is not tree):
        if isinstance(node, EQUALITIES):
            pairs = [(node.this, [node.expression]), (node.expression, [node.this])]
        elif isinstance(node, exp.In):
            pairs = [(node.this, node.expressions)]
        elif isinstance(node, exp.Case) and node.this is not None:
            pairs = [(node.this, [branch.this for branch in node.args["ifs"]])]
        else:
            continue
        for side, constants in pairs:
            side = side.unnest()
            declared = find(side) if isinstance(side, exp.Column) else None
            for constant in constants if declared is not None else ():
                if declared is not None and (unlike := _find_unlike(declared[1], constant)):
                    raise _refuse(*declared, unlike[0], constant)


def _refuse_first(side: Typed, constants: Iterable[Typed], values: KnownValues) -> None:
    for item in constants:
        if unlike := _find_unlike(values, item.node, item):
            place = side.place
            while isinstance(place, exp.Cast | exp.TryCast | exp.Paren):
                place = place.this
            column = "this column" if place is None else to_sql(place)
            raise _refuse(column, values, unlike[0], item.place or item.node)


def _refuse(column: str, values: KnownValues, constant: str | Fraction, place: exp.Expr) -> BindError:
    shown = f"'{clip(constant)}'" if isinstance(constant, str) else _write_number(constant)
    what = f"the policy declares no value {shown} for {clip(column)}."
    refused = bind_error(place, what, _advise(column, values, constant))
    refused.decided = True
    return refused


def _find_unlike(
    values: KnownValues, node: exp.Expr, typed: Typed | None = None
) -> tuple[str | Fraction] | None:
    """Return a constant's value, in a tuple, if it is unlike all declared values; None for a parameter's stand-in."""
    constant = _read(node, typed)
    if constant is None or any(_alike(value, constant) for value in values):
        return None
    written = node if typed is None or typed.place is None else typed.place
    return None if any(STAND_IN in part.meta for part in written.walk()) else (constant,)


def _read(node: exp.Expr | None, typed: Typed | None) -> str | Fraction | None:
    if typed is not None and typed.type.numeric:
        return (typed.bounds or UNKNOWN).only
    if typed is not None and typed.type.kind != "TEXT":
        return None
    sign = 1
    while isinstance(node, exp.Paren | exp.Cast | exp.TryCast | exp.Neg):
        sign = -sign if isinstance(node, exp.Neg) else sign
        node = node.this
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return str(node.name)
    try:
        return sign * Fraction(node.name)
    except ValueError:
        return None


def _alike(value: object, constant: str | Fraction) -> bool:
    if isinstance(constant, str):
        return not isinstance(value, str) or value == constant
    if isinstance(value, int | float | Decimal):
        return Fraction(str(value)) == constant or float(value) == float(constant)
    return True


def _advise(column: str, values: KnownValues, constant: str | Fraction) -> str:
    """Return the value that is probably meant, or how to ask for rows with undeclared values."""
    if isinstance(constant, str):
        near = _find_nearest(constant, [value for value in values if isinstance(value, str)])
        if near is not None:
            return f"did you mean {_quote(near)}?"
    written = [_quote(value) if isinstance(value, str) else str(value) for value in values]
    if len(written) > _LISTED:
        shown = ", ".join(written[:_LISTED])
        return f"there is {shown}, ...; SHOW POLICY lists all declared values."
    return f"for the rows outside of the declared values, write {column} NOT IN ({', '.join(written)})."


def _find_nearest(text: str, values: Sequence[str]) -> str | None:
    folded = {value.strip().casefold(): value for value in values}
    wanted = text.strip().casefold()
    close = difflib.get_close_matches(wanted, folded, n=1, cutoff=0.6)
    return folded.get(wanted) or (folded[close[0]] if close else None)


def _quote(text: str) -> str:
    return to_sql(exp.Literal.string(text))


def _write_number(number: Fraction) -> str:
    return str(number.numerator) if number.denominator == 1 else str(float(number))


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


FindUnread = Callable[[Sequence[str], str], Sequence[str]]
"""Returns the texts that DuckDB can't cast to a type, given its name."""


def declare_column(
    item: Column, node: exp.Expr, sql_type: str, where: str, lossless: bool, find_unread: FindUnread
) -> Typed:
    """Return a column with the bounds, values and length that the policy declares.

    Args:
        node: the column in the exact query.
        sql_type: its type in the data.
        where: its table and name, for errors.
        lossless: whether the engine has DuckDB's rules of time zones and texts of bytes.
        find_unread: finds values that are written as texts and are none of the type.

    Raises:
        PolicyError: the declaration doesn't fit the type.
    """
    kind, values = _read_zone(Type.parse(sql_type), item, where, lossless), item.values
    bounds = _read_bounds(kind.kind, item.bounds, where)
    _check_values(kind, values or (), where, find_unread)
    known = [v for v in values or () if isinstance(v, int | float) and not isinstance(v, bool)]
    if bounds is None and values and len(known) == len(values):
        bounds = Bounds(Fraction(min(known)), Fraction(max(known)))
    length = column_length(item) if kind.kind in ("TEXT", "LIST") else None
    return Typed(node, kind, bounds, False, values, length=length, unchecked=True)


def _read_zone(kind: Type, item: Column, where: str, lossless: bool) -> Type:
    """Return a column's type: TIMESTAMP for moments that the policy reads as local times in a zone.

    Raises:
        PolicyError: the column has no moments, or has bounds without a zone.
    """
    if kind.kind != "MOMENT":
        if item.time_zone is None:
            return kind if kind != BLOB or lossless else OTHER  # bytes have another text elsewhere
        hint = f"remove time_zone from {where}."
        raise PolicyError(f"{where} has a time_zone, and its type is {kind.sql}.", hint=hint)
    if not lossless:  # no other engine is proved to have DuckDB's rules of time zones
        return Type("OTHER", kind.sql)
    if item.time_zone is not None:
        return replace(TIMESTAMP, zone=item.time_zone)
    if item.bounds is not None or item.values is not None:
        given = item.bounds if item.bounds and isinstance(item.bounds[0], DateBound) else None
        ends = ", ".join(map(write_bound, given)) if given else "2020-01-01, 2020-12-31"
        raise PolicyError(
            f"{where} is a {kind.sql}, so its bounds and values need a time_zone: they are local times.",
            hint=f'{where.rpartition(".")[2]} = {{ time_zone = "UTC", bounds = [{ends}] }}, or with another zone, '
            'such as "Europe/Berlin".',
        )
    return kind


def _read_bounds(kind: str, bounds: tuple[Fraction, Fraction] | None, where: str) -> Bounds | None:
    """Return the bounds that a policy declares for a column of this kind; PolicyError for dates of numbers and so on."""
    if bounds is None:
        return None
    given = {end.kind if isinstance(end, DateBound) else "number" for end in bounds}
    wanted = {"DATE": "date", "TIMESTAMP": "date", "TIME": "time"}.get(kind, "number")
    if given != {wanted}:
        example = {"date": "[2020-01-01, 2020-12-31]", "time": "[08:00:00, 18:00:00]", "number": "[0, 100]"}
        raise PolicyError(
            f"the bounds of {where} are {' and '.join(sorted(g + 's' for g in given))}, and the column is {kind}.",
            hint=f"bounds = {example[wanted]}",
        )
    return Bounds(Fraction(bounds[0]), Fraction(bounds[1]))


_EXAMPLES = {
    **dict.fromkeys(("INTEGER", "DECIMAL", "DOUBLE"), "[1, 2, 3]"),
    **dict.fromkeys(("DATE", "TIMESTAMP"), "[2024-01-01, 2024-01-02]"),
    "TIME": '["08:00:00", "12:00:00"]',
    "BOOLEAN": "[true, false]",
    "UUID": '["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]',
}


def _check_values(kind: Type, values: Sequence[Value], where: str, find_unread: FindUnread) -> None:
    """Raise PolicyError for a declared value that is none of the column's type, on which a paid query would fail."""
    if kind.kind not in _EXAMPLES:
        return
    texts = [value for value in values if isinstance(value, str)]
    wrong: list[object] = [
        value for value in values if not isinstance(value, str) and not _is_of(kind, value)
    ]
    wrong += texts if kind.kind == "BOOLEAN" else find_unread(texts, kind.sql) if texts else ()
    if wrong:
        what = f"{clip(str(wrong[0]))!r}, of the values of {where}, is not a valid {kind.sql}."
        raise PolicyError(what, hint=f"values = {_EXAMPLES[kind.kind]}")


def _is_of(kind: Type, value: Value) -> bool:
    """Return whether a number, a truth or a date of the policy is of a column's type."""
    if kind.kind == "BOOLEAN":
        return isinstance(value, bool)
    if isinstance(value, datetime.date) or kind.kind in ("DATE", "TIMESTAMP", "TIME", "UUID"):
        return isinstance(value, datetime.date) and kind.kind in ("DATE", "TIMESTAMP")
    number = Fraction(value)
    if kind.kind == "DECIMAL" and kind.digits[0]:
        return bool(abs(number) < 10 ** kind.digits[0])
    return kind.reach is None or kind.reach.holds(Bounds(number, number))


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
    """Return the value, NULL above ``most`` or its public length; the columns it is chosen from are checked, not the whole."""
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


def one_statement() -> AbstractContextManager[None]:
    """Count the characters written per row together, for the outermost such block."""
    return _setting(_written, {}) if _written.get() is None else nullcontext()


def repeated(times: int) -> AbstractContextManager[None]:
    """Count texts and steps once for each of a list's elements."""
    return _setting(_repeats, _repeats.get() * max(1, times))


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
        what = f"{name} could make {length:,} characters of one row; the limit is {MAX_TEXT:,}."
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
        what = f"{name} could take about {_short(steps)} steps for one row; the limit is {_short(MAX_STEPS)}."
        raise privacy_error(node, what, hint)


def _short(steps: int) -> str:
    digits = len(str(steps)) - 1
    return f"{steps:,}" if digits < 6 else f"{steps // 10**6:,} million" if digits < 12 else f"10^{digits}"
