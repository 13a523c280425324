"""Comparisons of a column with a constant that none of its declared values is like.

The policy's ``values`` are public. A condition that none of them meets has an answer of noise alone, and a spelling of the
analyst's is nearly always the cause: it is refused before anything is paid. The data are never asked. Rows with other values
than the declared ones can still be counted, by ``NOT IN`` over the declared ones.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from fractions import Fraction

from sqlglot import exp

from dpsql.binding.values.sql_types import Bounds, Typed
from dpsql.errors import BindError, clip
from dpsql.language.dialect import bind_error, span_of, to_sql

KnownValues = tuple[object, ...]
_LISTED = 12
"""Declared values that a hint lists."""
_standing_in: ContextVar[bool] = ContextVar("standing_in", default=False)
EQUALITIES = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)


@contextmanager
def stand_in_values() -> Iterator[None]:
    """Accept all constants while a statement is described: parameters have values of their types there, not their own."""
    token = _standing_in.set(True)
    try:
        yield
    finally:
        _standing_in.reset(token)


def check_comparison(left: Typed, right: Typed, values_of: Callable[[Typed], KnownValues | None]) -> None:
    """Refuse an equality or inequality of a column and a constant that is not among its declared values.

    Raises:
        BindError: with the nearest value, or with the declared ones.
    """
    for side, other in ((left, right), (right, left)):
        if other.constant and not side.constant and (values := values_of(side)) is not None:
            _refuse_first(side, [other], values)


def check_list(
    value: Typed, items: Sequence[Typed], values_of: Callable[[Typed], KnownValues | None]
) -> None:
    """Refuse IN over a list with a constant that is not among the declared values of the column.

    Raises:
        BindError: with the nearest value, or with the declared ones.
    """
    if not value.constant:
        if (values := values_of(value)) is not None:
            _refuse_first(value, [item for item in items if item.constant], values)
        return
    sides = [values_of(item) for item in items]
    if sides and all(found is not None and _is_missing(found, value) for found in sides):
        _refuse_first(items[0], [value], sides[0] or ())


def list_values(typed: Typed) -> KnownValues | None:
    """Return the declared values of a column that constants are compared with; None where there are none, and of truths."""
    known = typed.values
    return None if known is None or any(isinstance(value, bool) for value in known) else known


def change_case(node: exp.Expr, values: KnownValues | None) -> KnownValues | None:
    """Return declared values as UPPER or LOWER gives them; None where a letter is not one of ASCII."""
    texts = [value for value in values or () if isinstance(value, str) and value.isascii()]
    if values is None or len(texts) != len(values):
        return None
    return tuple(dict.fromkeys(map(str.upper if isinstance(node, exp.Upper) else str.lower, texts)))


Declared = tuple[str, KnownValues]
"""A column as the analyst writes it, and its declared values."""


_noted: ContextVar[tuple[list[str], list[str]] | None] = ContextVar("noted", default=None)


@contextmanager
def note_in(notes: list[str], limits: list[str]) -> Iterator[None]:
    """Add the notes on conditions that nothing within the bounds meets to a list, and to the sentences of EXPLAIN."""
    token = _noted.set((notes, limits))
    try:
        yield
    finally:
        _noted.reset(token)


def note_impossible(node: exp.Expr, *pairs: tuple[type[exp.Expr], Typed, Typed]) -> None:
    """Note a condition that no value within the public bounds of its column meets: its answer is noise alone.

    It is no refusal: bounds limit what a row adds, and a row outside of them is compared by its own value.

    Args:
        node: the condition as the analyst wrote it.
        pairs: the comparisons that must all hold, each with its two sides.
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
    """Return whether a comparison holds for no values within two intervals."""
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
    """Refuse such comparisons in SQL above the private part, or inside a block, whose expressions are not bound here.

    Args:
        tree: expressions, whose inner queries are left out.
        find: returns what is declared of a column.

    Raises:
        BindError: with the nearest value, or with the declared ones.
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
                read = _read(constant, None)
                if declared is not None and read is not None and _is_unlike(declared[1], read):
                    raise _refuse(declared[0], declared[1], read, constant)


def _refuse_first(side: Typed, constants: Iterable[Typed], values: KnownValues) -> None:
    for item in constants:
        read = _read(item.node, item)
        if read is not None and _is_unlike(values, read):
            place = side.place.unnest() if side.place is not None else None
            while isinstance(place, exp.Cast | exp.TryCast | exp.Paren):
                place = place.this
            raise _refuse("this column" if place is None else to_sql(place), values, read, item.place)


def _refuse(column: str, values: KnownValues, constant: str | Fraction, place: exp.Expr | None) -> BindError:
    shown = f"'{clip(constant)}'" if isinstance(constant, str) else _write_number(constant)
    what = f"the policy declares no value {shown} for {clip(column)}."
    refused = bind_error(place, what, _advise(column, values, constant))
    refused.decided = True
    return refused


def _is_missing(values: KnownValues, constant: Typed) -> bool:
    read = _read(constant.node, constant)
    return read is not None and _is_unlike(values, read)


def _is_unlike(values: KnownValues, constant: str | Fraction) -> bool:
    """Return whether no declared value is like a constant, unless constants stand in for values to come."""
    return not _standing_in.get() and not any(_alike(value, constant) for value in values)


def _read(node: exp.Expr | None, typed: Typed | None) -> str | Fraction | None:
    """Return the text or the number that a constant is; None for anything else."""
    if typed is not None and typed.type.numeric:
        point = typed.bounds
        return point.low if point is not None and point.low is not None and point.low == point.high else None
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
    """Return the value that is probably meant, and how rows outside of the declared ones are asked for."""
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
