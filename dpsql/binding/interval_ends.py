"""The ends of an interval through an expression over released numbers: interval arithmetic, written in SQL.

Over one number the level is unchanged. Over several, each interval is first widened so that all hold together at the
level: each of k numbers must miss with at most a k-th of the miss probability. The factor follows from the shape of the
noise. If ``P(|X| > w) <= a`` for integer noise X, symmetric, with a log-concave distribution (as discrete Laplace and
Gaussian distributions and their sums), then ``P(|X| > r(w + 1)) <= a^r`` for r >= 1: the tail is log-concave too, and
is 1 at -1. So r = ln(k/a) / ln(1/a).

One bin of a histogram, ``h['a']``, is a number with an interval. A bin missing from the map is NULL, and so are its
interval's ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from fractions import Fraction

from sqlglot import exp

from dpsql.late_dataclass import dataclass

ShownEnds = Mapping[str, tuple[str, str]]
"""Columns of a relation with intervals, each with the columns of its lower and upper ends."""

_INTEGERS = frozenset(
    exp.DataType.Type[f"{sign}{name}"]
    for name in ("TINYINT", "SMALLINT", "INT", "BIGINT", "INT128")
    for sign in ("", "U")
)
_GRIDS = _INTEGERS | {exp.DataType.Type.DECIMAL}
"""Types of numbers on a grid."""
_FLOATS = frozenset({exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT})


@dataclass(frozen=True)
class ColumnEnds:
    """The known facts about the interval of a released column.

    Args:
        low, high: the columns of its ends.
        step: the noise's step, if the number is an exact one with symmetric, log-concave noise.
        whole: whether the column's type is integer.
    """

    low: exp.Expr
    high: exp.Expr
    step: Fraction | None = None
    whole: bool = False


EndPair = tuple[exp.Expr, exp.Expr]
Leaf = exp.Column | exp.Bracket | exp.Window
"""A released number: a column, one bin of a histogram, or a window sum over neighbouring groups."""
Known = Callable[[Leaf], ColumnEnds | None]
Certain = Callable[[Leaf], ColumnEnds]


def widen_factor(level: float, count: int) -> float:
    """Return the factor by which to widen ``count`` intervals so that all hold together at a level.

    >>> widen_factor(0.95, 1), round(widen_factor(0.95, 2), 3)
    (1.0, 1.231)
    """
    doubt = 1 - level
    return math.log(count / doubt) / math.log(1 / doubt)


MAX_FORKS = 2
"""The most operations that repeat the ends of their arguments: the text of the ends grows exponentially in them."""

_FORKS = (exp.Mul, exp.Div, exp.Abs, exp.Sqrt, exp.Ln, exp.Greatest, exp.Least)


def _count_forks(node: exp.Expr) -> int:
    """Return the number of operations that repeat the ends of their arguments."""
    forks = node.find_all(*_FORKS)
    return sum(
        not isinstance(fork, exp.Mul | exp.Div)
        or all(side.find(exp.Column) for side in (fork.this, fork.expression))
        for fork in forks
    )


def find_ends(node: exp.Expr, known: Known, level: float) -> EndPair | None:
    """Return the ends of an expression's interval, as doubles or moments of its type; None if it has none.

    ``known``: returns the facts about a column's interval; ``level``: of the columns' intervals and of the result's.
    """
    if node.meta.get(TIME_END):
        return _find_moments(node, known)
    leaves = {_identify(leaf): known(leaf) for leaf in list_leaves(node)}
    found = {key: ends for key, ends in leaves.items() if ends is not None}
    windows = any(isinstance(leaf, exp.Window) for leaf in list_leaves(node))
    if not found or len(found) < len(leaves) or _count_forks(node) > (0 if windows else MAX_FORKS):
        return None
    if len(found) > 1:
        if not 0 < level < 1:
            return None
        factor = widen_factor(level, len(found))
        for key, ends in found.items():
            if ends.step is None:
                return None
            found[key] = _widen(ends, factor, ends.step)
    pair = _read(node, lambda leaf: found[_identify(leaf)])
    return None if pair is None else (as_double(pair[0]), as_double(pair[1]))


TIME_END = "dpsql_moment"
"""The mark of an expression that makes a date, a time or an interval of one released number, and ascends with it."""


def is_moment_end(node: exp.Expr) -> bool:
    """Return whether an end of an interval is a moment, which only the outermost statement has."""
    return bool(node.meta.get(TIME_END))


def _find_moments(node: exp.Expr, known: Known) -> EndPair | None:
    released = next(node.find_all(exp.Column), None)
    ends = None if released is None else known(released)
    if ends is None:
        return None
    low, high = (
        node.transform(lambda part, end=end: end.copy() if isinstance(part, exp.Column) else part)
        for end in (ends.low, ends.high)
    )
    return low, high


def list_leaves(node: exp.Expr) -> list[Leaf]:
    """Return the columns of an expression; a subscript replaces its columns as a separate number."""
    if isinstance(node, exp.Column | exp.Window):
        return [node]
    if isinstance(node, exp.Bracket) and node.find(exp.Column) is not None:
        return [node]
    return [leaf for child in node.iter_expressions() for leaf in list_leaves(child)]


def _identify(leaf: Leaf) -> Hashable:
    return (leaf.table, leaf.name) if isinstance(leaf, exp.Column) else leaf


def is_exact(node: exp.Expr, step: Fraction) -> bool:
    """Return whether an expression is a column of numbers with such a step, or a cast that leaves each unchanged."""
    if isinstance(node, exp.Paren):
        return is_exact(node.this, step)
    if isinstance(node, exp.Cast):
        kind = node.to
        fits = kind.this in _FLOATS or (
            kind.this in _GRIDS and (step * 10 ** _read_places(kind)).denominator == 1
        )
        return fits and is_exact(node.this, step)
    return isinstance(node, exp.Column | exp.Bracket)


def _read_places(kind: exp.DataType) -> int:
    """Return the decimal places of an integer type or DECIMAL(p, s); DuckDB's default is 3, and 0 if only p is given."""
    if kind.this in _INTEGERS:
        return 0
    places = [int(part.name) for part in kind.expressions]
    return places[1] if len(places) == 2 else 0 if places else 3


def _widen(ends: ColumnEnds, factor: float, step: Fraction) -> ColumnEnds:
    """Return ends ``factor`` times as far from the middle, plus that many steps of the noise."""
    share = exp.Literal.number(repr((factor - 1) / 2))
    more: exp.Expr = exp.Mul(
        this=share, expression=_paren(exp.Sub(this=ends.high.copy(), expression=ends.low.copy()))
    )
    more = exp.Add(this=more, expression=exp.Literal.number(repr(factor * float(step))))
    low = _paren(exp.Sub(this=ends.low.copy(), expression=_paren(more.copy())))
    return ColumnEnds(low, _paren(exp.Add(this=ends.high.copy(), expression=_paren(more))), step, ends.whole)


def _read(node: exp.Expr, known: Certain) -> EndPair | None:
    """Return the ends of a node; both are the node itself if it is constant."""
    if not isinstance(node, exp.Column | exp.Window) and node.find(exp.Column) is None:
        return (node.copy(), node.copy()) if read_literal(node) is not None else None
    if isinstance(node, exp.Column | exp.Bracket | exp.Window):
        ends = known(node)
        return ends.low.copy(), ends.high.copy()
    if isinstance(node, exp.Greatest | exp.Least):
        return _hold(node, known)
    sides = [node.this, node.expression] if isinstance(node, _TWO_SIDED) else [node.this]
    pairs = [_read(side, known) for side in sides] if type(node) in _READERS else []
    if not pairs or None in pairs:
        return None
    return _READERS[type(node)](node, known, *pairs)


def read_literal(node: exp.Expr) -> float | None:
    """Return the value of a literal number, in casts that keep it too; None for other nodes."""
    node = node.unnest() if isinstance(node, exp.Paren) else node
    if isinstance(node, exp.Neg):
        inner = read_literal(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Cast) and node.to.this in _FLOATS | _GRIDS:
        inner = read_literal(node.this)
        if inner is None or node.to.this in _FLOATS:
            return inner
        return inner if round(inner, _read_places(node.to)) == inner else None
    if isinstance(node, exp.Literal) and not node.is_string:
        try:
            return float(node.this)
        except ValueError:
            return None
    return None


def _within(node: exp.Expr, known: Certain, pair: EndPair) -> EndPair:
    return pair


def _null_at_zero(node: exp.Expr, known: Certain, pair: EndPair) -> EndPair | None:
    """Return the ends of x for NULLIF(x, 0): NULL has no interval, and neither has a quotient around 0."""
    return pair if read_literal(node.expression) == 0 else None


def _cast(node: exp.Expr, known: Certain, pair: EndPair) -> EndPair | None:
    kind = node.args["to"]
    if kind.this in _FLOATS or _is_kept(node, known):
        return pair
    if kind.this not in _GRIDS:
        return None
    # whether half is rounded up or to even depends on the type: the ends allow for both
    half, steps = exp.Literal.number("0.5"), exp.Literal.number(f"1e{_read_places(kind)}")
    low, high = (_operate(exp.Mul, end, steps.copy()) for end in pair)
    low = exp.Ceil(this=_operate(exp.Sub, low, half.copy()))
    high = exp.Floor(this=_operate(exp.Add, high, half))
    return _operate(exp.Div, low, steps.copy()), _operate(exp.Div, high, steps)


def _is_kept(node: exp.Expr, known: Certain) -> bool:
    """Return whether a cast leaves integers unchanged, so that their ends need no room for rounding."""
    leaves = list_leaves(node)
    return bool(leaves) and known(leaves[0]).whole and is_exact(node, Fraction(1))


def _negate(node: exp.Expr, known: Certain, pair: EndPair) -> EndPair:
    return _minus(pair[1]), _minus(pair[0])


def _minus(node: exp.Expr) -> exp.Expr:
    return _paren(exp.Neg(this=_paren(node)))


def _add(node: exp.Expr, known: Certain, left: EndPair, right: EndPair) -> EndPair:
    (a, b), (c, d) = left, right
    if isinstance(node, exp.Sub):
        c, d = d, c
    return _operate(type(node), a, c), _operate(type(node), b, d)


def _multiply(node: exp.Expr, known: Certain, left: EndPair, right: EndPair) -> EndPair | None:
    kind, factor = type(node), read_literal(node.expression)
    if factor is None and kind is exp.Mul:
        factor = read_literal(node.this)
        left, right = (left, right) if factor is None else (right, left)
    (a, b), (c, d) = left, right
    if factor is not None:
        low, high = _operate(kind, a, c.copy()), _operate(kind, b, c)
        return None if factor == 0 and kind is exp.Div else (high, low) if factor < 0 else (low, high)
    corners = [_operate(kind, x.copy(), y.copy()) for x in (a, b) for y in (c, d)]
    low, high = (
        extreme(this=corners[0].copy(), expressions=[corner.copy() for corner in corners[1:]])
        for extreme in (exp.Least, exp.Greatest)
    )
    if kind is exp.Mul:
        return low, high
    zero = exp.Literal.number(0)  # a divisor that may be 0 has no bound
    sure = exp.Or(
        this=exp.GT(this=c.copy(), expression=zero), expression=exp.LT(this=d.copy(), expression=zero.copy())
    )
    return _where(sure, low), _where(sure, high)


def _hold(node: exp.Expr, known: Certain) -> EndPair | None:
    """Return the ends of GREATEST and LEAST, which are monotone; they skip NULLs, which have no ends."""
    if any(held.find_ancestor(exp.Div) is None for held in node.find_all(exp.Nullif)):
        return None
    pairs = [pair for part in (node.this, *node.expressions) if (pair := _read(part, known)) is not None]
    if len(pairs) <= len(node.expressions):
        return None
    ends = [[pair[place] for pair in pairs] for place in (0, 1)]
    sure = exp.and_(*(_is_known(end) for end in ends[0]), copy=False)
    low, high = (_where(sure, type(node)(this=end[0], expressions=end[1:])) for end in ends)
    return low, high


def _round(node: exp.Expr, known: Certain, pair: EndPair) -> EndPair | None:
    places = node.args.get("decimals")
    if places is not None and read_literal(places) is None:
        return None
    low, high = (exp.Round(this=end, decimals=places.copy() if places is not None else None) for end in pair)
    return low, high


def _go_up(node: exp.Expr, known: Certain, pair: EndPair) -> EndPair:
    """Return the ends under EXP, SQRT or LN, which are monotone; those of the last two begin with the function's domain."""
    low, high = pair
    kind = type(node)
    if kind is exp.Exp:
        return _call(kind, low), _call(kind, high)
    zero = exp.Literal.number(0)
    if kind is exp.Sqrt:
        held = (exp.Greatest(this=end.copy(), expressions=[zero.copy()]) for end in (low, high))
        some = exp.And(this=_is_known(low), expression=exp.GTE(this=high.copy(), expression=zero.copy()))
        least, most = (_where(some, _call(kind, end)) for end in held)
        return least, most
    above = exp.GT(this=low.copy(), expression=zero)
    return _where(above, _call(kind, low)), _where(above, _call(kind, high))


def _absolute(node: exp.Expr, known: Certain, pair: EndPair) -> EndPair:
    low, high = pair
    nearest = exp.Greatest(this=low.copy(), expressions=[_minus(high.copy()), exp.Literal.number(0)])
    farthest = exp.Greatest(this=_call(exp.Abs, low), expressions=[_call(exp.Abs, high)])
    return _where(_is_known(low), nearest), farthest


def _call(kind: type[exp.Expr], node: exp.Expr) -> exp.Expr:
    return kind(this=node.copy())


def _operate(kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Return an operation over two fresh expressions, without the copies that a long sum would make at each step."""
    made = kind(this=as_double(left), expression=as_double(right))
    if kind is exp.Div:
        made.set("typed", False)
        made.set("safe", True)
    return _paren(made)


def _where(condition: exp.Expr, node: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=node)])


def _is_known(end: exp.Expr) -> exp.Expr:
    return exp.Not(this=exp.Is(this=_paren(end.copy()), expression=exp.Null()))


def _paren(node: exp.Expr) -> exp.Expr:
    return exp.Paren(this=node)


def as_double(node: exp.Expr) -> exp.Expr:
    """Return a number as a double."""
    return exp.Cast(this=node, to=exp.DataType(this=exp.DataType.Type.DOUBLE, nested=False))


_TWO_SIDED = (exp.Add, exp.Sub, exp.Mul, exp.Div)
_READERS: dict[type[exp.Expr], Callable[..., EndPair | None]] = {
    **dict.fromkeys((exp.Add, exp.Sub), _add),
    **dict.fromkeys((exp.Mul, exp.Div), _multiply),
    **dict.fromkeys((exp.Exp, exp.Sqrt, exp.Ln), _go_up),
    **{exp.Paren: _within, exp.Nullif: _null_at_zero, exp.Cast: _cast, exp.Neg: _negate},
    **{exp.Round: _round, exp.Abs: _absolute},
}
"""The functions that propagate intervals, by node class; they take the ends of one operand, or of two."""


_STEP = Fraction(1)
"""The step of count noise."""
_END = "dpsql_end"
"""Marks a bin in an end of its own interval; such a bin has no interval."""


def find_bin_ends(node: exp.Bracket, width: float) -> ColumnEnds | None:
    """Return the interval ends of one bin of a histogram, whose counts have a half width; None for other nodes."""
    key = node.expressions[0] if len(node.expressions) == 1 else None
    if key is None or key.find(exp.Column, exp.Slice) is not None or _END in node.meta:
        return None
    away, held = exp.Literal.number(repr(width)), node.copy()
    held.meta[_END] = True
    low, high = (
        exp.Paren(this=kind(this=held.copy(), expression=away.copy())) for kind in (exp.Sub, exp.Add)
    )
    return ColumnEnds(low, high, _STEP, whole=True)


def write_json_report(name: str, confidence: float) -> exp.Expr:
    """Return GoogleSQL's JSON report of a value and its interval."""
    value, low, high = (exp.column(f"{name}{end}", quoted=True) for end in ("", "__low", "__high"))
    level = exp.Literal.number(confidence)
    interval = _struct(lower_bound=low, upper_bound=high, confidence_level=level)
    result = _struct(value=value, noise_confidence_interval=interval)
    return exp.Anonymous(this="to_json", expressions=[_struct(result=result)])


def _struct(**fields: exp.Expr) -> exp.Expr:
    pairs = (exp.PropertyEQ(this=exp.to_identifier(key), expression=value) for key, value in fields.items())
    return exp.Struct(expressions=list(pairs))
