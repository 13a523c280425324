"""Comparisons of a column with a constant that is none of its declared values.

The policy's ``values`` are public. If no declared value meets a condition, its answer is noise alone, and the constant is
nearly always misspelt. So the statement is refused before payment, and no row is read. ``NOT IN`` over the declared
values counts the rows with other values. A value that stands in for a parameter is never refused.
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
from dpsql.language.parameters import STAND_IN

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


@contextmanager
def note_in(notes: list[str], limits: list[str]) -> Iterator[None]:
    """Collect the notes on conditions that no value within the bounds meets, and EXPLAIN's sentences about them."""
    token = _noted.set((notes, limits))
    try:
        yield
    finally:
        _noted.reset(token)


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
