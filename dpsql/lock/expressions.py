"""Expressions over rows, groups and windows: their symbols, integer bounds, and sensitivities.

Bounds come from interval arithmetic over the functions that exact queries clamp with. Other functions have no bounds, so a sum
over them is never proved.

The module also reads the few patterns that cap a unit's rows or groups by a secret order. In that order the rows of a unit are
adjacent, and each pattern only asks whether the row n places before belongs to the unit. So no other unit's rows decide
which rows are kept.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from fractions import Fraction

from dpsql.late_dataclass import dataclass
from dpsql.lock import tree
from dpsql.lock.facts import Kind, Number, Relation, Set, Symbol, Symbols, Value, add, least, times
from dpsql.lock.tree import AGGREGATES, RANGES, Call, Cast, Expr, Literal, Ref, Window, integer, refuse

MOST_ROWS = 1 << 34
"""The most rows of a relation: more than the engine reads within its limit of time."""
WHOLE = frozenset(RANGES)
NARROW = WHOLE - {"HUGEINT", "UHUGEINT"}
_EVEN: frozenset[object] = frozenset()
_ODD: frozenset[object] = frozenset({"one"})
_SURE = frozenset(
    {"is null", "is not null", "is distinct from", "is not distinct from", "count", "count_star"}
)


def upper(items: Iterable[Number]) -> Number:
    """Return the greatest number; None if one is unknown."""
    known = [*items]
    return None if None in known else max(known, default=None)  # type: ignore[type-var]


def lower(items: Iterable[Number]) -> Number:
    """Return the least number; None if one is unknown."""
    known = [*items]
    return None if None in known else min(known, default=None)  # type: ignore[type-var]


def any_of(values: Sequence[Value], symbol: Symbol) -> Value:
    """Return a value that is one of these."""
    low, high = lower([v.low for v in values]), upper([v.high for v in values])
    return Value(
        symbol, low, high, True in [v.nullable for v in values], False not in [v.whole for v in values]
    )


def constant(value: Value) -> Number:
    """Return a value's only integer; None if it may be another or NULL."""
    return value.low if value.low is not None and value.low == value.high and not value.nullable else None


def cast(value: Value, symbol: Symbol, kind: str, attempt: bool) -> Value:
    """Return a cast value; a cast to an integer type keeps integer bounds."""
    if kind not in WHOLE or not value.whole:
        keeps = kind in ("DOUBLE", "DECIMAL", "FLOAT") or kind in WHOLE
        low, high = (value.low, value.high) if keeps else (None, None)
        return Value(symbol, low, high, value.nullable or attempt, kind in WHOLE)
    fails = attempt and not _holds(kind, value)
    there = None if fails else value.there
    return replace(value, symbol=symbol, nullable=value.nullable or fails, there=there)


def _holds(kind: str, value: Value) -> bool:
    low, high = RANGES[kind]
    return value.low is not None and value.high is not None and low <= value.low <= value.high <= high


def literal(node: Literal, symbol: Symbol) -> Value:
    """Return a constant's value."""
    given = node.value
    if isinstance(given, Fraction) or (isinstance(given, float) and math.isfinite(given)):
        return Value(symbol, math.floor(given), math.ceil(given), False)
    whole = node.integer
    if whole is None:
        return Value(symbol, nullable=given is None)
    odd = _ODD if whole % 2 else _EVEN
    return Value(symbol, whole, whole, False, True, odd=odd, weight=0, total=0)


def distance(node: Expr) -> tuple[Expr, int, int] | None:
    """Return y, a and b of ``ABS(y - a) - ABS(y - b)``."""
    match node.args if isinstance(node, Call) and node.name == "-" else ():
        case Call("abs", (Call("-", (y, Literal(integer=int(a)))),)), Call("abs", (Call("-", (other, b)),)):
            if y == other and isinstance(b, Literal) and b.integer is not None:
                return y, a, b.integer
    return None


def between(made: Value, a: int, b: int, y: Value) -> Value:
    """Return the value of ``ABS(y - a) - ABS(y - b)``, bounded for every integer y."""
    if not y.whole:  # NaN and the infinities have no such distance
        return made
    apart = abs(b - a)
    return replace(made, low=-apart, high=apart, odd=_ODD if apart % 2 else _EVEN, whole=True)


_HALF = Fraction(1, 2)
_INFINITE = Fraction(2**1024)
Ends = tuple[Fraction, Fraction]


def finite_ends(node: Expr) -> Ends | None:
    """Return ends of the finite values of a DOUBLE that is made of such and of literals by arithmetic; None for others.

    A finite result has finite operands, so the ends of an operand's finite values suffice. Infinities and NaN become no
    integer. Each operation rounds to the nearest double, by at most 2^-53 of the result, or 2^-1074 if that is more.
    """
    match node:
        case Literal(bool()):
            return None
        case Literal(int() | Fraction() as value) | Cast(Literal(int() | Fraction() as value), "DOUBLE"):
            exact = Fraction(value)
            return _widened(exact, exact, abs(exact))
        case Literal(float(value)) if math.isfinite(value):
            return Fraction(value), Fraction(value)
        case Cast(_, "DOUBLE"):
            return -_INFINITE, _INFINITE
        case Call("abs", (part,)):
            ends = finite_ends(part)
            return None if ends is None else (Fraction(0), max(map(abs, ends)))
        case Call("-", (Call("abs", (one,)), Call("abs", (other,)))) if _less(one)[0] == _less(other)[0]:
            (y, a), (_, b) = _less(one), _less(other)
            ends, low, high = finite_ends(y), finite_ends(a), finite_ends(b)
            if ends is None or low is None or high is None:
                return None
            apart = max(abs(p - q) for p in low for q in high)
            return _widened(-apart, apart, 4 * max(map(abs, (*ends, *low, *high))))
        case Call("+" | "-" | "*" as name, (one, other)):
            left, right = finite_ends(one), finite_ends(other)
            if left is None or right is None:
                return None
            found = [_ARITHMETIC[name](p, q) for p in left for q in right]
            return _widened(min(found), max(found), max(map(abs, found)))
    return None


def _less(node: Expr) -> tuple[Expr, Expr]:
    """Return y and the literal a of ``y - a``; of another expression, itself and 0."""
    match node:
        case Call("-", (y, Literal() as a)):
            return y, a
    return node, Literal(0)


def _widened(low: Fraction, high: Fraction, size: Fraction | int) -> Ends:
    """Return ends with room for the rounding of a number of this size; finite doubles are below 2^1024."""
    room = Fraction(size) / 2**52 + Fraction(1, 2**1074)
    return max(low - room, -_INFINITE), min(high + room, _INFINITE)


_ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def combine(name: str, args: Sequence[Value], exprs: Sequence[Expr], symbol: Symbol) -> Value:
    """Return the value of a function."""
    nullable = name in ("try", "nullif") or (name not in _SURE and True in [a.nullable for a in args])
    made = Value(symbol, nullable=nullable, whole=bool(args) and False not in [a.whole for a in args])
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
        made.weight, made.total = both
        return made
    if a.times is not None and b.times is not None and a.times[0] == b.times[0]:
        made.times = a.times[0], add(a.times[1], b.times[1]), add(a.times[2], b.times[2])
    made.low, made.high = add(a.low, b.low), add(a.high, b.high)
    made.odd = None if a.odd is None or b.odd is None else a.odd ^ b.odd
    if not (a.halved or b.halved):
        made.weight, made.total = add(a.weight, b.weight), add(a.total, b.total)
    return made


def _halves(a: Value, b: Value) -> tuple[int, Number] | None:
    """Return how far one unit moves a total that is put together from its two columns: in one cell, and in all."""
    if a.half is None or b.half is None or a.half[0] != b.half[0]:
        return None
    (_, here, steps, most, total), (_, there, none, _, _) = a.half, b.half
    return (most, total) if steps and not none and there == 1 and here == steps else None


def _minus(args: Sequence[Value], made: Value) -> Value:
    return _plus((*args[:-1], _negative(args[-1])), made)


def _negative(value: Value) -> Value:
    low, high = _scaled(value.low, value.high, -1)
    both = (value.times, value.besides)
    first, second = (None if one is None else (one[0], *_scaled(*one[1:], -1)) for one in both)
    made = replace(value, low=low, high=high, times=first, besides=second)
    made.share = made.half = made.budget = made.step = None
    return made


def _scaled(low: Number, high: Number, by: int) -> tuple[Number, Number]:
    ends = times(low, by), times(high, by)
    return ends if by >= 0 else ends[::-1]


def _product(args: Sequence[Value], made: Value) -> Value:
    a, b = args
    for one, other in ((a, b), (b, a)):
        shared = _shared(one, other)
        if shared is not None and made.whole:
            made.low, made.high = shared
            return made
        by = constant(one)
        if by is not None:
            return _multiple(other, by, made)
    ends = [times(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    even = made.whole and _EVEN in (a.odd, b.odd)
    made.low, made.high, made.odd = lower(ends), upper(ends), _EVEN if even else None
    return made


def _multiple(value: Value, by: int, made: Value) -> Value:
    made.low, made.high = _scaled(value.low, value.high, by)
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
    """Return the bounds of a multiple of a column times a constant's share by that column."""
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
    """Divide integers, rounding towards zero as SQL does."""
    return value // by if value >= 0 else -(-value // by)


def _right(args: Sequence[Value], made: Value) -> Value:
    a, by = args[0], constant(args[1])
    if by is None or not 0 <= by < 64 or a.low is None or a.low < 0:
        return Value(made.symbol)
    return replace(made, low=a.low >> by, high=None if a.high is None else a.high >> by)


def _absolute(args: Sequence[Value], made: Value) -> Value:
    a = args[0]
    low = 0 if a.low is None or a.high is None or a.low <= 0 <= a.high else min(abs(a.low), abs(a.high))
    made.low, made.high = low, a.most
    return made


def _greatest(args: Sequence[Value], made: Value) -> Value:
    """Bound the greatest by integers and by multiples of a column (the last column that bounds both ends)."""
    low, high = _most([(a.low, a.high, a.nullable) for a in args])
    known = [pair for a in reversed(args) for pair in (a.times, a.besides) if pair is not None]
    found = [
        (symbol, *_most([_counted(a, symbol) for a in args]))
        for symbol in dict.fromkeys(s for s, *_ in known)
    ]
    count = next((bounds for bounds in found if None not in bounds), found[0] if found else None)
    made.low, made.high, made.times, made.odd = low, high, count, _evens(args)
    made.nullable = False not in [a.nullable for a in args]
    made.besides = next((bounds for bounds in found if bounds is not count), None)
    return made


def _most(bounds: Sequence[tuple[Number, Number, bool]]) -> tuple[Number, Number]:
    """Return the bounds of GREATEST, which ignores NULLs: non-NULL values raise the lower one."""
    sure = [low for low, _, nullable in bounds if low is not None and not nullable]
    return max(sure) if sure else lower(low for low, _, _ in bounds), upper(high for _, high, _ in bounds)


def _counted(value: Value, symbol: Symbol) -> tuple[Number, Number, bool]:
    """Return bounds by multiples of a nonnegative column, and whether the value may be NULL."""
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
    if len(args) == 2 and constant(args[1]) == 0:  # the sum of no rows
        made.weight, made.total, made.halved, made.step = first.weight, first.total, first.halved, first.step
        made.odd, made.times = first.odd, first.times
    return made


def _case(args: Sequence[Value], exprs: Sequence[Expr], made: Value) -> Value:
    results, nodes = [*args[1:-1:2], args[-1]], [*exprs[1:-1:2], exprs[-1]]
    given = [a for a, node in zip(results, nodes, strict=True) if node != Literal(None)]
    found = any_of(given, made.symbol)
    return replace(found, nullable=len(given) < len(results) or found.nullable)


def _divided(args: Sequence[Value], made: Value) -> Value:
    """Bound only a quotient's sign."""
    a, b = args
    positive = a.low is not None and b.low is not None and a.low >= 0 and b.low >= 0
    return Value(made.symbol, low=0 if positive else None)


def _power(args: Sequence[Value], made: Value) -> Value:
    base = args[0].low
    return Value(made.symbol, low=0 if base is not None and base > 0 else None)


def _rounded(args: Sequence[Value], made: Value) -> Value:
    """Keep the bounds of a number that is rounded to an integer."""
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


Evaluate = Callable[[Expr], Value]


@dataclass(slots=True)
class Cap:
    """A cap of ``most`` rows per unit and value of ``columns``, or (``groups``) of ``most`` such values per unit.

    ``decides``: the columns by which the order chooses among rows; None if no two rows are equal in them.
    """

    columns: Set
    most: int
    groups: bool
    decides: Set | None


def cap_of(node: Expr, relation: Relation, symbols: Symbols, value: Evaluate) -> Cap | None:
    """Return the cap that a condition of QUALIFY sets; None if it matches no pattern."""
    if relation.orphans:
        return None
    choices = node.args if isinstance(node, Call) and node.name == "or" else (node,)
    found = [back for choice in choices if (back := _looks_back(choice)) is not None]
    if len(found) < len(choices):
        return _numbered(node, relation, symbols, value)
    windows = [window for window, _ in found]
    if len({(window.name, repr(window.order)) for window in windows}) != 1:
        return None
    order = [value(item.by).symbol for item in windows[0].order]
    columns = [value(same).symbol for _, same in found]
    if [value(window.args[0]).symbol for window in windows] != columns:
        return None
    units = frozenset(relation.facts.units)
    if not order or order[0] not in units or units.isdisjoint(columns):
        return None
    if symbols.secret.isdisjoint(order):
        refuse("a predictable order")
    match windows:
        case [
            Window(
                "first_value",
                (_,),
                start="EXPR_PRECEDING_GROUPS",
                end="EXPR_PRECEDING_GROUPS",
                ends=(Literal(integer=int(most)), Literal(integer=int(last))),
            )
        ] if most == last >= 1:
            return Cap(_determined_by(order, symbols) - units, most, True, None)
    counts = {_distance(window) for window in windows if window.name == "lag"}
    if len(counts) != 1 or any(window.name != "lag" for window in windows):
        return None
    rows = counts.pop()
    keys = frozenset(columns) - units
    if not _together(order, keys, units, symbols):
        return None
    return Cap(keys, rows, False, _decides(order, relation, symbols))


def _looks_back(node: Expr) -> tuple[Window, Expr] | None:
    """Read ``lag(c, n) OVER (ORDER BY ...) IS DISTINCT FROM c``, or with ``first_value``."""
    match node:
        case Call(
            "is distinct from",
            (Window("lag" | "first_value", (_, *_), (), where=None, plain=True) as window, same),
        ):
            return window, same
    return None


def _distance(window: Window) -> int:
    """Return how many rows a window looks back; Unproved unless positive and constant: at 0 or less it sees others' rows."""
    rows = integer(window.args[1]) if len(window.args) == 2 else None
    if rows is None or rows < 1:
        refuse("a cap that looks back by no constant number of rows")
    return rows


def _determined_by(order: Sequence[Symbol], symbols: Symbols) -> Set:
    return frozenset().union(*map(symbols.determined_by, order))


def _together(order: Sequence[Symbol], keys: Set, units: Set, symbols: Symbols) -> bool:
    """Return whether a unit's rows with equal keys are adjacent in an order."""
    known = units | keys
    seen: set[Symbol] = set()
    for symbol in order:
        if keys <= seen:
            return True
        if not (symbols.decided(symbol, known) or symbols.determined_by(symbol) - {symbol} <= known):
            return False
        if symbol not in known and not symbols.covers.get(symbol):
            return False
        seen |= symbols.determined_by(symbol) if symbol in keys else {symbol}
    return keys <= seen


def _decides(order: Sequence[Symbol], relation: Relation, symbols: Symbols) -> Set | None:
    determined = _determined_by(order, symbols) | relation.facts.units.keys()
    constant = {s for unique in relation.unique for s in unique if symbols.made.get(s) == frozenset()}
    return None if any(unique <= determined | constant for unique in relation.unique) else determined


def _numbered(node: Expr, relation: Relation, symbols: Symbols, value: Evaluate) -> Cap | None:
    """Read ``row_number() OVER (PARTITION BY unit, ... ORDER BY ...) <= n``, or ``dense_rank()`` of groups."""
    match node:
        case Call(
            "<=" | "<" | "=" as comparison,
            (Window("row_number" | "dense_rank", where=None) as window, Literal(integer=int(most))),
        ):
            places = max(most - 1 if comparison == "<" else 1 if comparison == "=" else most, 0)
        case _:
            return None
    by = [value(part).symbol for part in window.partition]
    order = [value(item.by).symbol for item in window.order]
    units = frozenset(relation.facts.units)
    keys = frozenset(by) - units
    if len(keys) == len(set(by)):
        return None
    if window.name == "row_number":
        return Cap(keys, places, False, _decides([*by, *order], relation, symbols))
    if keys or comparison == "=" or not order:
        return None
    if symbols.secret.isdisjoint(order):
        refuse("a predictable order")
    return Cap(_determined_by(order, symbols) - units, places, True, None)


def budget_of(
    node: Call, args: Sequence[Value], relation: Relation, symbols: Symbols, value: Evaluate
) -> int | None:
    """Return b of ``LEAST(n, GREATEST(b - COALESCE(SUM(n) OVER (rows before), 0), 0))``, the most it adds up to per unit."""
    match node.args:
        case (
            _,
            Call("greatest", (
                Call("-", (
                    Literal(integer=int(budget)),
                    Call("coalesce", (
                        Window("sum", (before,), partition, ordered, "UNBOUNDED_PRECEDING", "EXPR_PRECEDING_ROWS",
                               (_, Literal(integer=1)), None, True),
                        Literal(integer=0),
                    )),
                )),
                Literal(integer=0),
            )),
        ) if budget >= 0:  # fmt: skip
            pass
        case _:
            return None
    counted = args[0]
    if not (counted.whole and not counted.nullable and counted.low is not None and counted.low >= 0):
        return None
    if not relation.private or relation.orphans or value(before).symbol != counted.symbol:
        return None
    by = {value(part).symbol for part in partition}
    order = [value(item.by).symbol for item in ordered]
    if not by or not by <= relation.facts.units.keys() or symbols.secret.isdisjoint(order):
        return None
    return budget if _decides(order, relation, symbols) is None else None


@dataclass(slots=True)
class Env:
    """The scope of one SELECT: its rows, and the scopes of the SELECTs around it."""

    relation: Relation
    outer: Env | None = None
    groups: dict[Symbol, Value] | None = None
    """The keys of an aggregation."""
    kept: Set | None = None
    """After a choice of rows by a secret order: the columns that don't depend on which of equal rows were kept."""
    parted: list[Set] = field(default_factory=list)
    """Partitions of windows over more than one unit's rows."""
    reads: list[Relation] = field(default_factory=list)
    """Private relations, or relations derived from them, that subqueries read whole."""
    counts: dict[Symbol, Symbol] = field(default_factory=dict)
    """For each value, the number of an aggregation's rows in which it is not NULL."""

    def get(self, node: Expr) -> Value | None:
        """Return the column; None if the expression is no column in scope."""
        env: Env | None = self if isinstance(node, Ref) else None
        while env is not None:
            if (found := env.relation.columns.get(node)) is not None:  # type: ignore[arg-type]
                return found
            env = env.outer
        return None

    def find(self, node: Ref) -> Value:
        """Return the column, or refuse it if it is not in scope."""
        return self.get(node) or refuse("a column that is not there")

    def uncast(self, node: Expr) -> Value | None:
        """Return the column, also from inside a cast to integers, which maps different integers to different ones."""
        if not isinstance(node, tree.Cast) or node.type not in WHOLE:
            return self.get(node)
        value = self.get(node.child)
        return value if value is not None and value.whole else None


_JSON = ("->", "->>", "json_extract", "json_extract_string", "json_extract_path", "json_extract_path_text")
_PATH = re.compile(r"""\$(?:\.(?:[A-Za-z_][A-Za-z0-9_]*|"[^"\\*\x00-\x1f]+")|\[[0-9]{1,6}\])*""")


def _is_json_path(args: Sequence[Expr]) -> bool:
    """Return whether arguments are a text tried as JSON and a literal path, for which taking a part never fails."""
    match args:
        case (tree.Cast(tree.Cast(_, "VARCHAR"), "JSON", True), tree.Literal(str(path))):
            return _PATH.fullmatch(path) is not None
    return False


_COUNTS = ("count", "count_star", "count_if", "countif")
_AMONG = ("min", "max", "median", "mode", "any_value", "quantile_disc", "first", "last", "avg")
"""Aggregates whose result is between the least and the greatest value."""
_NUMBERING = ("row_number", "rank", "dense_rank", "count")
_LOOKING = ("lag", "lead", "first_value", "last_value", "nth_value", "min", "max")


@dataclass(slots=True)
class Expressions:
    """Evaluates the expressions of one text."""

    symbols: Symbols
    query: Callable[[tree.Query, Env], Relation]
    salt: frozenset[str]
    macros: frozenset[str]
    steps: list[tuple[int, int] | None] = field(default_factory=list)
    """The lowest and the highest change that one more row causes in each sum over private rows."""

    def row(self, node: Expr, env: Env) -> Value:
        """Derive an expression over the rows of a FROM."""
        if isinstance(node, Ref):
            value = env.find(node)
            inside = env.kept is not None and node in env.relation.columns
            if inside and not self.symbols.decided(value.symbol, env.kept or frozenset()):
                refuse("a column that the secret order does not decide")
            return value
        if isinstance(node, tree.Window):
            return self._window(node, env)
        if isinstance(node, Call) and node.name in AGGREGATES:
            refuse("an aggregate among rows")
        return self._made(node, env, self.row)

    def above(self, node: Expr, env: Env) -> Value:
        """Derive an expression over groups: of keys, and of aggregates of their rows."""
        assert env.groups is not None
        if isinstance(node, Call) and node.name in AGGREGATES:
            return self._aggregate(node, env, env.groups)
        if isinstance(node, tree.Window):
            refuse("a window with an aggregate")
        if not tree.reads_rows(node):
            value = self.row(node, env)
            if value.symbol in env.groups:
                return env.groups[value.symbol]
        if isinstance(node, Ref):
            return refuse("a column that is not a group") if node in env.relation.columns else env.find(node)
        return self._made(node, env, self.above)

    def _made(self, node: Expr, env: Env, inner: Callable[[Expr, Env], Value]) -> Value:
        match node:
            case tree.Subquery():
                return self._subquery(node, env, inner)
            case tree.Literal(value):
                return literal(node, self.symbols.constant(("literal", type(value).__name__, value)))
            case tree.Parameter(name):
                return Value(self.symbols.constant(("parameter", name), name in self.salt))
            case tree.Bound(name):  # the list is an argument of each function that has a lambda
                return Value(self.symbols.constant(("bound", name)))
            case tree.Cast(part, kind, attempt, detail):
                child = inner(part, env)
                if kind in WHOLE and not child.whole and (ends := finite_ends(part)) is not None:
                    low, high = math.ceil(ends[0] - _HALF), math.floor(ends[1] + _HALF)
                    child = replace(child, low=low, high=high)
                word = "try cast" if attempt else "cast"
                symbol = self.symbols.call(word, (child.symbol,), (kind, detail))
                return cast(child, symbol, kind, attempt)
            case Call():
                return self._call(node, env, lambda part: inner(part, env))
        refuse("an expression of another kind")

    def _call(self, node: Call, env: Env, inner: Callable[[Expr], Value]) -> Value:
        if node.name not in tree.SCALARS or node.name in self.macros:
            refuse(f"the function {node.name}")
        if node.distinct or node.where is not None or node.order:
            refuse("a function with the clauses of an aggregate")
        match node:
            case Call("date_trunc", (tree.Literal(str(part)), moment)):  # the part is case-insensitive
                node = replace(node, args=(tree.Literal(part.lower()), moment))
            case Call("timezone", given) if len(given) != 2 or not isinstance(given[0], tree.Literal):
                refuse("a time zone that is no constant")
            case Call(name, given) if name in _JSON and not _is_json_path(given):
                refuse("a part of a text that may be no JSON, or at a path that may be none")
        if any(isinstance(arg, tree.Lambda) for arg in node.args):
            return self._call_with_lambda(node, inner)
        args = [inner(arg) for arg in node.args]
        names = node.names if any(node.names) else None
        symbol = self.symbols.call(node.name, [a.symbol for a in args], names)
        if (found := distance(node)) is not None:
            return between(Value(symbol), found[1], found[2], inner(found[0]))
        made = combine(node.name, args, node.args, symbol)
        match node:
            case Call("case", (condition, _, tree.Literal(None))):
                there = [part for part in map(tree.present, tree.conjuncts(condition)) if part is not None]
                if any(inner(part).symbol == args[1].symbol for part in there):
                    made = replace(made, there=args[0].symbol)
            case Call("least"):
                budget = budget_of(node, args, env.relation, self.symbols, inner)
                if budget:
                    most = least(budget, args[0].high)
                    made = replace(made, low=0, high=most, nullable=False, whole=True, budget=budget)
                    made.times = (symbol, 1, 1)
        return made

    def _call_with_lambda(self, node: Call, inner: Callable[[Expr], Value]) -> Value:
        """Derive a function of a list and a lambda: a function of the list and of the columns in the lambda's body."""
        match node:
            case Call("list_filter" | "list_transform", (given, tree.Lambda(names, body))) if not (
                tree.reads_rows(body)
            ):
                symbols = [inner(given).symbol, inner(body).symbol]
                return Value(self.symbols.call(node.name, symbols, names))
        refuse("a lambda of another function, or that looks at other rows")

    # -- aggregates ----------------------------------------------------------------------------------------------

    def _aggregate(self, node: Call, env: Env, groups: dict[Symbol, Value]) -> Value:
        if node.name in self.macros:
            refuse("a function of the owner's own")
        if tree.has(node, tree.Window):
            refuse("a window inside an aggregate")
        values = [self.row(part, env) for part in tree.parts(node)]
        name, relation = node.name, env.relation
        made = Value(self.symbols.fresh())
        first = values[0] if node.args else None
        if node.most is not None and (first is None or (first.most or node.most) > node.most // MOST_ROWS):
            refuse("a sum that may have no place in its type")
        if name in _COUNTS:
            made.nullable, made.whole, made.low = False, True, 0
            made.weight = 1 if relation.private else None
            made.step = (0, 1) if relation.private else None
            if name == "count" and first is not None and not node.distinct and node.where is None:
                made.odd = frozenset({("there", first.symbol)})
                made.symbol = self._count(first, env)
                made.times = (made.symbol, 1, 1)
        elif name in _AMONG and first is not None:
            made.low, made.high, made.whole = first.low, first.high, first.whole and name in ("min", "max")
        elif name == "sum" and first is not None and not node.distinct:
            self._sum(made, node, first, env)
        if relation.private and groups.keys() & relation.facts.units.keys():
            rows = relation.facts.rows_of(groups, self.symbols.made)
            if name in _COUNTS:
                made.high = rows
            elif name == "sum" and first is not None and rows is not None and first.whole:
                made.low = None if first.low is None else min(0, first.low * rows)
                made.high = None if first.high is None else max(0, first.high * rows)
        return made

    def _sum(self, made: Value, node: Call, first: Value, env: Env) -> None:
        relation, inner = env.relation, node.args[0]
        made.whole, made.odd = first.whole, first.odd
        small = isinstance(inner, tree.Cast) and inner.type in NARROW
        made.narrow = small or (first.whole and first.most is not None and first.most <= 2**92)
        if first.odd:
            found = distance(inner)
            single = found is not None and first.odd == frozenset({"one"}) and node.where is None
            made.odd = frozenset({("there", self.row(found[0], env).symbol)}) if found and single else None
        if first.whole:
            if relation.private:
                made.weight = first.most
                if first.low is not None and first.high is not None:
                    made.step = min(first.low, 0), max(first.high, 0)
            elif (
                relation.single
                and not first.halved
                and relation.kind == Kind.CELLS
                and self._keyed(node, env)
            ):
                made.weight, made.total, made.step = first.weight, first.total, first.step
            if node.where is None and first.low is not None and first.high is not None:
                strict = all(map(_strict, tree.subexpressions(inner)))
                column = (
                    next(iter(tree.refs(inner)), None) if strict else None
                )  # NULL exactly if the sum's number is
                count = self._count(first if column is None else self.row(column, env), env)
                made.times = (count, min(first.low, 0), max(first.high, 0))
        if relation.private:
            self.steps.append(made.step)
            if first.times is not None and first.whole:
                symbol, low, high = first.times
                if low is not None and high is not None:
                    made.total = times(relation.facts.budgets.get(symbol), max(abs(low), abs(high)))

    def _keyed(self, node: Call, env: Env) -> bool:
        parts = [] if node.where is None else tree.refs(node.where)
        return all(env.find(ref).symbol in env.relation.key for ref in parts)

    def _count(self, value: Value, env: Env) -> Symbol:
        """Return the symbol of the number of a group's rows in which a value is not NULL."""
        return env.counts.setdefault(value.there or value.symbol, self.symbols.fresh())

    # -- windows and subqueries ------------------------------------------------------------------------------------

    def _window(self, node: tree.Window, env: Env) -> Value:
        if env.groups is not None:
            refuse("a window with an aggregate")
        if node.name not in tree.WINDOWS and node.name not in AGGREGATES:
            refuse(f"the window function {node.name}")
        values = [self.row(part, env) for part in tree.parts(node)]
        args, others = values[: len(node.args)], values[len(node.args) :]
        by = frozenset(value.symbol for value in others[: len(node.partition)])
        relation = env.relation
        made = Value(self.symbols.fresh())
        if node.name in _NUMBERING:
            made.low, made.whole, made.nullable = 0, True, False
        elif node.name in _LOOKING and 0 < len(args) < 3:
            made.low, made.high, made.whole = args[0].low, args[0].high, args[0].whole
        elif node.name == "sum" and args:
            made.whole = args[0].whole
        if not relation.foreseen and not (relation.private and by & relation.facts.units.keys()):
            env.parted.append(by)
        return made

    def _subquery(self, node: tree.Subquery, env: Env, inner: Callable[[Expr, Env], Value]) -> Value:
        if node.child is not None:
            inner(node.child, env)
        found = self.query(node.query, env)
        made = Value(self.symbols.fresh())
        if node.kind == "SCALAR":
            first = next(iter(found.columns.values()))
            made.low, made.high, made.whole = first.low, first.high, first.whole
            if found.count is None or found.count > 1:
                refuse("a scalar subquery that may have several rows")
        if not found.foreseen:
            if env.relation.kind in (Kind.PRIVATE, Kind.OWN) or found.private:
                refuse("a subquery looks at other units' rows")
            env.reads.append(found)
        return made


def _strict(node: Expr) -> bool:
    """Return whether an expression is NULL if one of its parts is."""
    arithmetic = isinstance(node, Call) and node.name in ("+", "-", "*", "//", "abs")
    return arithmetic or isinstance(node, Ref | tree.Literal | tree.Cast)
