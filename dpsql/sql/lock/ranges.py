"""Between which integers an expression lies, and what one row moves a sum by: interval arithmetic over what is written.

Only what the exact queries clamp with is understood; anything else has no bounds, and a sum over it can't be proved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from dpsql.sql.lock.facts import Number, Symbol, Value
from dpsql.sql.lock.tree import Call, Expr, Literal

WHOLE = frozenset(
    [
        "TINYINT",
        "SMALLINT",
        "INTEGER",
        "BIGINT",
        "HUGEINT",
        "UTINYINT",
        "USMALLINT",
        "UINTEGER",
        "UBIGINT",
        "UHUGEINT",
    ]
)
_EVEN: frozenset[object] = frozenset()
_ONE = "one"
_SURE = frozenset(
    {"is null", "is not null", "is distinct from", "is not distinct from", "count", "count_star"}
)


def add(a: Number, b: Number) -> Number:
    """The sum, where both are known."""
    return None if a is None or b is None else a + b


def lower(items: Sequence[Number]) -> Number:
    """The least, where all are known."""
    return None if any(i is None for i in items) else min(i for i in items if i is not None)


def upper(items: Sequence[Number]) -> Number:
    """The greatest, where all are known."""
    return None if any(i is None for i in items) else max(i for i in items if i is not None)


def constant(value: Value) -> Number:
    """The integer that a value always is."""
    return value.low if value.low is not None and value.low == value.high and not value.nullable else None


def cast(value: Value, symbol: Symbol, kind: str, attempt: bool) -> Value:
    """A cast: to an integer it keeps the bounds, which are integers."""
    if kind not in WHOLE or not value.whole:
        keeps = kind in ("DOUBLE", "DECIMAL", "FLOAT") or kind in WHOLE
        low, high = (value.low, value.high) if keeps else (None, None)
        return Value(symbol, low, high, value.nullable or attempt, kind in WHOLE)
    fails = attempt and not _holds(kind, value)
    return replace(
        value, symbol=symbol, nullable=value.nullable or fails, there=None if fails else value.there
    )


def _holds(kind: str, value: Value) -> bool:
    """Whether every value between the bounds has a place in a type of integers."""
    bits = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}[kind.removeprefix("U")]
    low, high = (0, 2**bits - 1) if kind[0] == "U" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return value.low is not None and value.high is not None and low <= value.low <= value.high <= high


def literal(node: Literal, symbol: Symbol) -> Value:
    """A constant."""
    given = node.value
    if isinstance(given, Fraction) or (isinstance(given, float) and math.isfinite(given)):
        return Value(symbol, math.floor(given), math.ceil(given), False)
    if isinstance(given, bool) or not isinstance(given, int):
        return Value(symbol, nullable=given is None)
    odd = frozenset({_ONE}) if given % 2 else _EVEN
    return Value(symbol, given, given, False, True, odd=odd, weight=0, total=0)


def combine(name: str, args: Sequence[Value], exprs: Sequence[Expr], symbol: Symbol) -> Value:
    """What a function of such values lies in."""
    nullable = name not in _SURE and any(a.nullable for a in args)
    made = Value(
        symbol,
        nullable=nullable or name in ("try", "nullif"),
        whole=bool(args) and all(a.whole for a in args),
    )
    rule = _RULES.get(name)
    if rule is None:
        return Value(symbol, nullable=name not in _SURE)
    return rule(args, exprs, made)


def _plus(args: Sequence[Value], exprs: Sequence[Expr], made: Value) -> Value:
    if len(args) == 1:
        return replace(args[0], symbol=made.symbol)
    a, b = args
    both = _halves(a, b)
    if both is not None:
        return replace(made, weight=both)
    odd = None if a.odd is None or b.odd is None else a.odd ^ b.odd
    return replace(
        made, low=add(a.low, b.low), high=add(a.high, b.high), odd=odd, weight=_weights(a, b), total=_totals(a, b),
        times=_added(a, b)
    )  # fmt: skip


def _added(a: Value, b: Value) -> tuple[Symbol, Number, Number] | None:
    """The sum of so many times a column and so many times the same."""
    if a.times is None or b.times is None or a.times[0] != b.times[0]:
        return None
    return a.times[0], add(a.times[1], b.times[1]), add(a.times[2], b.times[2])


def _halves(a: Value, b: Value) -> Number:
    """What one unit moves a total in two columns by, where they are put together as they were taken apart."""
    if a.half is None or b.half is None or a.half[0] != b.half[0]:
        return None
    (_, here, steps, most), (_, there, none, _) = a.half, b.half
    return most if steps and not none and there == 1 and here == steps else None


def _weights(a: Value, b: Value) -> Number:
    return None if a.halved or b.halved else add(a.weight, b.weight)


def _totals(a: Value, b: Value) -> Number:
    return None if a.halved or b.halved else add(a.total, b.total)


def _minus(args: Sequence[Value], exprs: Sequence[Expr], made: Value) -> Value:
    if len(args) == 1:
        a = args[0]
        low, high = (None if end is None else -end for end in (a.high, a.low))
        return replace(a, symbol=made.symbol, low=low, high=high, times=None)
    a, b = args
    odd = None if a.odd is None or b.odd is None else a.odd ^ b.odd
    low, high = (
        add(a.low, None if b.high is None else -b.high),
        add(a.high, None if b.low is None else -b.low),
    )
    return replace(made, low=low, high=high, odd=odd, weight=_weights(a, b), total=_totals(a, b))


def distance(exprs: Sequence[Expr]) -> tuple[Expr, int, int] | None:
    """``ABS(y - a) - ABS(y - b)``: y, a and b."""
    found = []
    for node in exprs:
        inner = (
            node.args[0] if isinstance(node, Call) and node.name == "abs" and len(node.args) == 1 else None
        )
        if not (isinstance(inner, Call) and inner.name == "-" and len(inner.args) == 2):
            return None
        end = inner.args[1]
        if not isinstance(end, Literal) or isinstance(end.value, bool) or not isinstance(end.value, int):
            return None
        found.append((inner.args[0], end.value))
    if len(found) != 2 or found[0][0] != found[1][0]:
        return None
    return found[0][0], found[0][1], found[1][1]


def between(made: Value, a: int, b: int, y: Value) -> Value:
    """What ``ABS(y - a) - ABS(y - b)`` lies in, whatever y is."""
    if not y.whole:  # NaN and the infinities: their distance is none
        return made
    apart = abs(b - a)
    odd = _EVEN if apart % 2 == 0 else frozenset({_ONE})
    return replace(made, low=-apart, high=apart, odd=odd, whole=True)


def _product(args: Sequence[Value], exprs: Sequence[Expr], made: Value) -> Value:
    a, b = args
    for one, other in ((a, b), (b, a)):
        shared = _shared(one, other)
        if shared is not None and made.whole:
            return replace(made, low=shared[0], high=shared[1])
        times = constant(one)
        if times is None:
            continue
        ends = [None if end is None else end * times for end in (other.low, other.high)]
        odd = _EVEN if times % 2 == 0 else other.odd
        weight, total = (None if w is None else w * abs(times) for w in (other.weight, other.total))
        half = None
        if other.half is not None and made.whole:
            half = (other.half[0], other.half[1] * times, *other.half[2:])
        of = _scaled(other.times, times)
        low, high = (ends[0], ends[1]) if times >= 0 else (ends[1], ends[0])
        return replace(
            made, low=low, high=high, odd=odd if made.whole else None,
            weight=None if other.halved or not made.whole else weight,
            total=None if other.halved or not made.whole else total, times=of if made.whole else None, half=half,
        )  # fmt: skip
    ends = [None if x is None or y is None else x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    even = made.whole and _EVEN in (a.odd, b.odd)
    return replace(made, low=lower(ends), high=upper(ends), odd=_EVEN if even else None)


def _shared(one: Value, other: Value) -> tuple[int, int] | None:
    """Of what is so many times a column, times a share of a constant by that column."""
    if one.times is None or other.share is None or one.times[0] != other.share[0]:
        return None
    low, high = one.times[1:]
    return (
        None if low is None or high is None else (min(low, 0) * other.share[1], max(high, 0) * other.share[1])
    )


def _scaled(of: tuple[Symbol, Number, Number] | None, times: int) -> tuple[Symbol, Number, Number] | None:
    if of is None:
        return None
    ends = [None if end is None else end * times for end in of[1:]]
    return (of[0], ends[0], ends[1]) if times >= 0 else (of[0], ends[1], ends[0])


def _quotient(args: Sequence[Value], exprs: Sequence[Expr], made: Value) -> Value:
    a, by = args[0], constant(args[1])
    whole, over = constant(a), args[1]
    if whole is not None and whole >= 0 and over.low is not None and over.low >= 1 and made.whole:
        least = over.times[1] if over.times is not None else None
        share = (
            (over.times[0], whole) if over.times is not None and least is not None and least >= 1 else None
        )
        return replace(made, low=0, high=whole, nullable=over.nullable, share=share)
    if by is None or by <= 0 or not a.whole:
        return Value(made.symbol, whole=made.whole)
    low, high = (None if end is None else _cut(end, by) for end in (a.low, a.high))
    halves = by == 2 and (a.weight is not None or a.total is not None) and not a.halved
    return replace(
        made, low=low, high=high, weight=a.weight if halves else None, total=a.total if halves else None,
        halved=halves, odd=a.odd if halves else None,
    )  # fmt: skip


def _cut(value: int, by: int) -> int:
    """Integer division as SQL has it: towards zero."""
    return value // by if value >= 0 else -(-value // by)


def _right(args: Sequence[Value], exprs: Sequence[Expr], made: Value) -> Value:
    a, by = args[0], constant(args[1])
    if by is None or not 0 <= by < 64 or a.low is None or a.low < 0:
        return Value(made.symbol)
    return replace(made, low=a.low >> by, high=None if a.high is None else a.high >> by)


def _absolute(args: Sequence[Value], exprs: Sequence[Expr], made: Value) -> Value:
    a = args[0]
    low = 0 if a.low is None or a.high is None or a.low <= 0 <= a.high else min(abs(a.low), abs(a.high))
    return replace(made, low=low, high=a.most)


def _greatest(args: Sequence[Value], exprs: Sequence[Expr], made: Value) -> Value:
    """Passes over what is missing: so what is surely there lifts it, and any of them may be it."""
    sure = [a.low for a in args if not a.nullable and a.low is not None]
    low = max(sure) if sure else lower([a.low for a in args])
    return replace(
        made, low=low, high=upper([a.high for a in args]), nullable=all(a.nullable for a in args), times=_times(args, True),
        odd=_evens(args),
    )  # fmt: skip


def _least(args: Sequence[Value], exprs: Sequence[Expr], made: Value) -> Value:
    sure = [a.high for a in args if not a.nullable and a.high is not None]
    high = min(sure) if sure else upper([a.high for a in args])
    return replace(
        made, low=lower([a.low for a in args]), high=high, nullable=all(a.nullable for a in args),
        times=_times(args, False), odd=_evens(args),
    )  # fmt: skip


def _evens(args: Sequence[Value]) -> frozenset[object] | None:
    return _EVEN if all(a.odd == _EVEN for a in args) else None


def _times(args: Sequence[Value], greatest: bool) -> tuple[Symbol, Number, Number] | None:
    """Bounds that are so many times another column, which is not negative: of several, those by the last one."""
    symbols = dict.fromkeys(a.times[0] for a in reversed(args) if a.times is not None)
    found = [(symbol, *_times_of(symbol, args, greatest)) for symbol in symbols]
    whole = [bounds for bounds in found if None not in bounds]
    return next(iter([*whole, *found]), None)


def _times_of(symbol: Symbol, args: Sequence[Value], greatest: bool) -> tuple[Number, Number]:
    """Bounds that are so many times one column."""
    ends: list[tuple[Number, Number, bool]] = []
    for a in args:
        low, high = (a.times[1], a.times[2]) if a.times is not None and a.times[0] == symbol else (None, None)
        low = 0 if low is None and a.low is not None and a.low >= 0 else low
        high = 0 if high is None and a.high is not None and a.high <= 0 else high
        ends.append((low, high, not a.nullable))
    sure = [e[0 if greatest else 1] for e in ends if e[2] and e[0 if greatest else 1] is not None]
    lows, highs = [e[0] for e in ends], [e[1] for e in ends]
    if greatest:
        return max(s for s in sure if s is not None) if sure else lower(lows), upper(highs)
    return lower(lows), min(s for s in sure if s is not None) if sure else upper(highs)


def _coalesce(args: Sequence[Value], exprs: Sequence[Expr], made: Value) -> Value:
    first, zero = args[0], len(args) == 2 and constant(args[1]) == 0
    made = replace(
        made, low=lower([a.low for a in args]), high=upper([a.high for a in args]),
        nullable=all(a.nullable for a in args), odd=_evens(args),
    )  # fmt: skip
    if zero:  # a sum of nothing
        made = replace(
            made, weight=first.weight, total=first.total, halved=first.halved, odd=first.odd, times=first.times
        )  # fmt: skip
    return made


def _case(args: Sequence[Value], exprs: Sequence[Expr], made: Value) -> Value:
    results = [*args[1:-1:2], args[-1]]
    given = [
        a for a, e in zip(results, [*exprs[1:-1:2], exprs[-1]], strict=True)
        if not (isinstance(e, Literal) and e.value is None)
    ]  # fmt: skip
    return replace(
        made, low=lower([a.low for a in given]), high=upper([a.high for a in given]),
        nullable=len(given) < len(results) or any(a.nullable for a in given), whole=all(a.whole for a in given),
    )  # fmt: skip


def _divided(args: Sequence[Value], exprs: Sequence[Expr], made: Value) -> Value:
    """Only its sign."""
    a, b = args
    positive = a.low is not None and b.low is not None and a.low >= 0 and b.low >= 0
    return Value(made.symbol, low=0 if positive else None)


def _power(args: Sequence[Value], exprs: Sequence[Expr], made: Value) -> Value:
    base = args[0].low
    return Value(made.symbol, low=0 if base is not None and base > 0 else None)


def _rounded(args: Sequence[Value], exprs: Sequence[Expr], made: Value) -> Value:
    """To a whole number: the bounds are whole."""
    return (
        Value(made.symbol, args[0].low, args[0].high, args[0].nullable)
        if len(args) == 1
        else Value(made.symbol)
    )


def _same(args: Sequence[Value], exprs: Sequence[Expr], made: Value) -> Value:
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
    "case": _case,
    "try": _same,
    "/": _divided,
    "power": _power,
    "pow": _power,
    "round": _rounded,
    "round_even": _rounded,
    "ceil": _rounded,
    "floor": _rounded,
}
