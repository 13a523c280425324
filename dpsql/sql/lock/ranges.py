"""Ranges of integer expressions, and how far one row moves a sum: interval arithmetic over what is written.

Only what the exact queries clamp with is understood; anything else has no bounds, and a sum over it can't be proved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from dpsql.sql.lock.facts import Number, Symbol, Value, add, times
from dpsql.sql.lock.tree import Call, Expr, Literal

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
WHOLE = frozenset({*_BITS, *(f"U{name}" for name in _BITS)})
NARROW = WHOLE - {"HUGEINT", "UHUGEINT"}
_EVEN: frozenset[object] = frozenset()
_ODD: frozenset[object] = frozenset({"one"})
_SURE = frozenset(
    {"is null", "is not null", "is distinct from", "is not distinct from", "count", "count_star"}
)


def lower(items: Iterable[Number]) -> Number:
    """Return the least, where all are known."""
    known = [*items]
    return None if None in known else min((i for i in known if i is not None), default=None)


def upper(items: Iterable[Number]) -> Number:
    """Return the greatest, where all are known."""
    known = [*items]
    return None if None in known else max((i for i in known if i is not None), default=None)


def find_ends(kind: str) -> tuple[Number, Number]:
    """Return the least and the greatest integer of a type, where it is one of integers."""
    if kind not in WHOLE:
        return None, None
    bits = _BITS[kind.removeprefix("U")]
    return (0, 2**bits - 1) if kind[0] == "U" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def any_of(values: Sequence[Value], symbol: Symbol) -> Value:
    """Return what is known of a value that is one of these."""
    return Value(
        symbol, lower(v.low for v in values), upper(v.high for v in values), any(v.nullable for v in values),
        all(v.whole for v in values),
    )  # fmt: skip


def constant(value: Value) -> Number:
    """Return the integer that a value always is."""
    return value.low if value.low is not None and value.low == value.high and not value.nullable else None


def cast(value: Value, symbol: Symbol, kind: str, attempt: bool) -> Value:
    """Return what is known of a cast; one to an integer keeps the bounds, which are integers."""
    if kind not in WHOLE or not value.whole:
        keeps = kind in ("DOUBLE", "DECIMAL", "FLOAT") or kind in WHOLE
        low, high = (value.low, value.high) if keeps else (None, None)
        return Value(symbol, low, high, value.nullable or attempt, kind in WHOLE)
    fails = attempt and not _holds(kind, value)
    there = None if fails else value.there
    return replace(value, symbol=symbol, nullable=value.nullable or fails, there=there)


def _holds(kind: str, value: Value) -> bool:
    """Return whether every value between the bounds has a place in a type of integers."""
    low, high = find_ends(kind)
    if low is None or high is None or value.low is None or value.high is None:
        return False
    return low <= value.low <= value.high <= high


def literal(node: Literal, symbol: Symbol) -> Value:
    """Return what is known of a constant."""
    given = node.value
    if isinstance(given, Fraction) or (isinstance(given, float) and math.isfinite(given)):
        return Value(symbol, math.floor(given), math.ceil(given), False)
    if node.integer is None:
        return Value(symbol, nullable=given is None)
    odd = _ODD if node.integer % 2 else _EVEN
    return Value(symbol, node.integer, node.integer, False, True, odd=odd, weight=0, total=0)


def distance(node: Expr) -> tuple[Expr, int, int] | None:
    """Return y, a and b of ``ABS(y - a) - ABS(y - b)``."""
    match node:
        case Call("-", (
            Call("abs", (Call("-", (y, Literal(integer=int(a)))),)),
            Call("abs", (Call("-", (other, Literal(integer=int(b)))),)),
        )) if y == other:  # fmt: skip
            return y, a, b
    return None


def between(made: Value, a: int, b: int, y: Value) -> Value:
    """Return what is known of ``ABS(y - a) - ABS(y - b)``, whatever y is."""
    if not y.whole:  # NaN and the infinities: their distance is none
        return made
    apart = abs(b - a)
    return replace(made, low=-apart, high=apart, odd=_ODD if apart % 2 else _EVEN, whole=True)


def combine(name: str, args: Sequence[Value], exprs: Sequence[Expr], symbol: Symbol) -> Value:
    """Return what is known of a function of such values."""
    nullable = name not in _SURE and any(a.nullable for a in args)
    made = Value(
        symbol, nullable=nullable or name in ("try", "nullif"), whole=bool(args) and all(a.whole for a in args)
    )  # fmt: skip
    if name == "case":
        return _case(args, exprs, made)
    rule = _RULES.get(name)
    return rule(args, made) if rule and args else Value(symbol, nullable=name not in _SURE)


def _plus(args: Sequence[Value], made: Value) -> Value:
    if len(args) == 1:
        return replace(args[0], symbol=made.symbol)
    a, b = args
    both = _halves(a, b)
    if both is not None:
        return replace(made, weight=both[0], total=both[1])
    moved = not (a.halved or b.halved)
    count = None
    if a.times is not None and b.times is not None and a.times[0] == b.times[0]:
        count = a.times[0], add(a.times[1], b.times[1]), add(a.times[2], b.times[2])
    return replace(
        made, low=add(a.low, b.low), high=add(a.high, b.high), times=count,
        odd=None if a.odd is None or b.odd is None else a.odd ^ b.odd,
        weight=add(a.weight, b.weight) if moved else None, total=add(a.total, b.total) if moved else None,
    )  # fmt: skip


def _halves(a: Value, b: Value) -> tuple[int, Number] | None:
    """Return how far one unit moves a total whose two columns are put together again: in one cell, and in all."""
    if a.half is None or b.half is None or a.half[0] != b.half[0]:
        return None
    (_, here, steps, most, total), (_, there, none, _, _) = a.half, b.half
    return (most, total) if steps and not none and there == 1 and here == steps else None


def _minus(args: Sequence[Value], made: Value) -> Value:
    return _plus((*args[:-1], _negative(args[-1])), made)


def _negative(value: Value) -> Value:
    """Return what is known of the number with the other sign."""
    low, high = _scaled(value.low, value.high, -1)
    count, other = (
        None if known is None else (known[0], *_scaled(*known[1:], -1))
        for known in (value.times, value.besides)
    )
    return replace(
        value, low=low, high=high, times=count, besides=other, share=None, half=None, budget=None, step=None
    )


def _scaled(low: Number, high: Number, by: int) -> tuple[Number, Number]:
    """Return bounds of so many times a value."""
    ends = times(low, by), times(high, by)
    return ends if by >= 0 else ends[::-1]


def _product(args: Sequence[Value], made: Value) -> Value:
    a, b = args
    for one, other in ((a, b), (b, a)):
        shared = _shared(one, other)
        if shared is not None and made.whole:
            return replace(made, low=shared[0], high=shared[1])
        by = constant(one)
        if by is not None:
            return _multiple(other, by, made)
    ends = [times(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    even = made.whole and _EVEN in (a.odd, b.odd)
    return replace(made, low=lower(ends), high=upper(ends), odd=_EVEN if even else None)


def _multiple(value: Value, by: int, made: Value) -> Value:
    low, high = _scaled(value.low, value.high, by)
    made = replace(made, low=low, high=high)
    if not made.whole:
        return made
    made.odd = value.odd if by % 2 else _EVEN
    if not value.halved:
        made.weight, made.total = times(value.weight, abs(by)), times(value.total, abs(by))
    if value.times is not None:
        made.times = (value.times[0], *_scaled(*value.times[1:], by))
    if value.half is not None:
        made.half = (value.half[0], value.half[1] * by, *value.half[2:])
    return made


def _shared(one: Value, other: Value) -> tuple[int, int] | None:
    """Bound so many times a column, times the share of a constant by that column."""
    if one.times is None or other.share is None or one.times[0] != other.share[0]:
        return None
    (_, low, high), most = one.times, other.share[1]
    return None if low is None or high is None else (min(low, 0) * most, max(high, 0) * most)


def _quotient(args: Sequence[Value], made: Value) -> Value:
    a, over = args
    whole, by = constant(a), constant(over)
    if whole is not None and whole >= 0 and over.low is not None and over.low >= 1 and made.whole:
        counted = over.times is not None and over.times[1] is not None and over.times[1] >= 1
        share = (over.times[0], whole) if over.times is not None and counted else None
        return replace(made, low=0, high=whole, nullable=over.nullable, share=share)
    if by is None or by <= 0 or not a.whole:
        return Value(made.symbol, whole=made.whole)
    made.low, made.high = (None if end is None else _cut(end, by) for end in (a.low, a.high))
    if by == 2 and (a.weight is not None or a.total is not None) and not a.halved:
        made.halved, made.weight, made.total, made.odd = True, a.weight, a.total, a.odd
    return made


def _cut(value: int, by: int) -> int:
    """Divide integers as SQL does, towards zero."""
    return value // by if value >= 0 else -(-value // by)


def _right(args: Sequence[Value], made: Value) -> Value:
    a, by = args[0], constant(args[1])
    if by is None or not 0 <= by < 64 or a.low is None or a.low < 0:
        return Value(made.symbol)
    return replace(made, low=a.low >> by, high=None if a.high is None else a.high >> by)


def _absolute(args: Sequence[Value], made: Value) -> Value:
    a = args[0]
    low = 0 if a.low is None or a.high is None or a.low <= 0 <= a.high else min(abs(a.low), abs(a.high))
    return replace(made, low=low, high=a.most)


def _greatest(args: Sequence[Value], made: Value) -> Value:
    """Bound by integers, and by so many times a column: of several, the last that bounds both ends."""
    low, high = _most([(a.low, a.high, a.nullable) for a in args])
    known = [pair for a in reversed(args) for pair in (a.times, a.besides) if pair is not None]
    found = [
        (symbol, *_most([_counted(a, symbol) for a in args]))
        for symbol in dict.fromkeys(s for s, *_ in known)
    ]
    count = next((bounds for bounds in found if None not in bounds), found[0] if found else None)
    return replace(
        made, low=low, high=high, times=count, besides=next((b for b in found if b is not count), None),
        nullable=all(a.nullable for a in args), odd=_evens(args),
    )  # fmt: skip


def _most(bounds: Sequence[tuple[Number, Number, bool]]) -> tuple[Number, Number]:
    """Bound the greatest, which passes over what is missing: what is surely there lifts it, and any may be it."""
    sure = [low for low, _, nullable in bounds if low is not None and not nullable]
    return max(sure) if sure else lower(low for low, _, _ in bounds), upper(high for _, high, _ in bounds)


def _counted(value: Value, symbol: Symbol) -> tuple[Number, Number, bool]:
    """Return bounds by so many times a column, which is not negative."""
    known = next(
        (pair for pair in (value.times, value.besides) if pair is not None and pair[0] == symbol), None
    )
    low, high = (None, None) if known is None else known[1:]
    low = 0 if low is None and value.low is not None and value.low >= 0 else low
    high = 0 if high is None and value.high is not None and value.high <= 0 else high
    return low, high, value.nullable


def _least(args: Sequence[Value], made: Value) -> Value:
    return _negative(_greatest([_negative(a) for a in args], made))


def _evens(args: Sequence[Value]) -> frozenset[object] | None:
    return _EVEN if all(a.odd == _EVEN for a in args) else None


def _coalesce(args: Sequence[Value], made: Value) -> Value:
    first = args[0]
    found = any_of(args, made.symbol)
    made = replace(found, nullable=all(a.nullable for a in args), odd=_evens(args))
    if len(args) == 2 and constant(args[1]) == 0:  # a sum of nothing
        made.weight, made.total, made.halved, made.step = first.weight, first.total, first.halved, first.step
        made.odd, made.times = first.odd, first.times
    return made


def _case(args: Sequence[Value], exprs: Sequence[Expr], made: Value) -> Value:
    results, nodes = [*args[1:-1:2], args[-1]], [*exprs[1:-1:2], exprs[-1]]
    given = [a for a, node in zip(results, nodes, strict=True) if node != Literal(None)]
    found = any_of(given, made.symbol)
    return replace(found, nullable=len(given) < len(results) or found.nullable)


def _divided(args: Sequence[Value], made: Value) -> Value:
    """Bound only the sign."""
    a, b = args
    positive = a.low is not None and b.low is not None and a.low >= 0 and b.low >= 0
    return Value(made.symbol, low=0 if positive else None)


def _power(args: Sequence[Value], made: Value) -> Value:
    base = args[0].low
    return Value(made.symbol, low=0 if base is not None and base > 0 else None)


def _rounded(args: Sequence[Value], made: Value) -> Value:
    """Keep bounds where a number is rounded to a whole one, as they are."""
    a = args[0]
    return Value(made.symbol, a.low, a.high, a.nullable) if len(args) == 1 else Value(made.symbol)


def _same(args: Sequence[Value], made: Value) -> Value:
    return replace(made, low=args[0].low, high=args[0].high, whole=args[0].whole, nullable=True)


_RULES = {
    "+": _plus,
    "add": _plus,
    "-": _minus,
    "subtract": _minus,
    "*": _product,
    "//": _quotient,
    ">>": _right,
    "abs": _absolute,
    "greatest": _greatest,
    "least": _least,
    "coalesce": _coalesce,
    "try": _same,
    "/": _divided,
    "power": _power,
    "pow": _power,
    **dict.fromkeys(("round", "round_even", "ceil", "floor"), _rounded),
}
