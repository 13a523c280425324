"""The parts of a selection mechanism's statistic: exact aggregates, public factors per candidate, public numbers.

:mod:`dpsql.binding.selection.utility` combines them.

Factors are integers: whole steps, or decimals with their digits; doubles get a power of two steps to a unit, about 2^20
of them. The sensitivity follows from the range of the factors, which is read from the candidates during binding. Every
factor is clamped to that range in use: candidates that differ later (random, or from a clock) change the statistic,
never its sensitivity. A missing factor (NULL, NaN, infinite) is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from dpsql.binding.relations.relation import Field, Names, Relation, column
from dpsql.binding.selection.candidates import ROWS, Bare, Weight
from dpsql.binding.values import fixed_point as grids
from dpsql.binding.values import total_expressions
from dpsql.binding.values.sql_types import BIGINT, Bounds, Type, Typed
from dpsql.errors import PrivacyError, Span
from dpsql.language.dialect import bind_error, privacy_error, to_sql
from dpsql.language.options import Call, read_pair
from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_THRESHOLD


@dataclass
class RowNames(Names):
    """The columns in a statistic's scope: private ones become columns of the bounded rows, as needed."""

    candidate: Relation | None = None
    values: dict[str, str] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)

    def column(self, node: exp.Column) -> Typed:
        found = self.find(node)
        if self.candidate is not None and any(found is f for f in self.candidate.fields):
            return found.typed
        sql = to_sql(found.typed.node)
        name = next((n for n, text in self.values.items() if text == sql), None)
        if name is None:
            name = f"x{len(self.values)}"
            self.values[name] = sql
            self.types[name] = found.typed.type
        return replace(found.typed, node=column(name, ROWS))


@dataclass(frozen=True)
class Limit:
    """A clip as ``base + offset``, clamped to ``ends`` in steps: for two with one base the distance is known."""

    base: str
    offset: Fraction
    whole: bool
    ends: tuple[int, int]


NO_FACTOR = Typed(exp.Literal.number(1), BIGINT, Bounds.point(1), True, None, Bounds.point(1))


@dataclass(frozen=True)
class ScorePart:
    """One part: an aggregate's term, its move by one row (in its steps), and a public factor."""

    amount: exp.Expr | None
    condition: exp.Expr | None
    steps: Fraction = Fraction(1)
    low: int = 0
    high: int = 1
    clip: exp.Expr | None = None
    bare: Bare | None = None
    limit: Limit | None = None
    factor: Typed = NO_FACTOR
    sign: int = 1


def _limit(node: exp.Expr, typed: Typed, grid: grids.Grid) -> Limit | None:
    """Separate constants from a clip: ``b + 1`` is b, and 1 more; None if doubles might not be exact."""
    bounds = typed.bounds or Bounds()
    if bounds.low is None or bounds.high is None or max(-bounds.low, bounds.high) * grid.steps >= 2**50:
        return None
    offset = Fraction(0)
    while isinstance(node, exp.Paren | exp.Add | exp.Sub):
        if not isinstance(node, exp.Paren):
            by = node.expression
            if not isinstance(by, exp.Literal) or by.is_string:
                break
            offset += Fraction(by.name) * (1 if isinstance(node, exp.Add) else -1)
        node = node.this
    return Limit(to_sql(node), offset, typed.type.kind == "INTEGER", (grid.low, grid.high))


def _filter(call: Call, names: RowNames, *more: exp.Expr) -> exp.Expr | None:
    made = [] if call.where is None else [total_expressions.make_condition(call.where, names).node]
    return exp.and_(*made, *more, copy=False) if made or more else None


def _count(call: Call, names: RowNames) -> ScorePart:
    call.read({})
    if call.args:
        call.require(1)
    if call.distinct:
        hint = "write COUNT(*): a unit's rows are bounded."
        raise privacy_error(call.node, "COUNT(DISTINCT ...) is not known per candidate.", hint)
    if not call.args or call.args[0].is_star or isinstance(call.args[0], exp.Literal):
        return ScorePart(None, _filter(call, names))
    typed = total_expressions.make_total(call.args[0], names)
    present = exp.Not(this=exp.paren(exp.Is(this=typed.node, expression=exp.Null())))
    return ScorePart(None, _filter(call, names, present))


def _count_if(call: Call, names: RowNames) -> ScorePart:
    call.read({})
    call.require(1)
    return ScorePart(None, _filter(call, names, total_expressions.make_condition(call.args[0], names).node))


def _sum(call: Call, names: RowNames) -> ScorePart:
    call.require(1)
    if call.distinct:
        raise bind_error(call.node, "SUM takes no DISTINCT per candidate.")
    given = call.read({"contribution_bounds_per_row": read_pair}).get("contribution_bounds_per_row")
    inner, clip = _unclipped(call.args[0], names)
    typed = total_expressions.make_total(inner, names)
    limit = None if clip is None else total_expressions.make_total(clip, names)
    bounds = (typed.bounds or Bounds()) if given is None else Bounds(*given)
    low, high = bounds.low, bounds.high
    if limit is not None:
        if not limit.type.numeric:
            raise bind_error(clip, f"LEAST meets {typed.type.sql} with {limit.type.sql}.")
        ends = limit.bounds or Bounds()
        low = low if low is None or ends.low is None else min(low, ends.low)
        high = ends.high if high is None else high if ends.high is None else min(high, ends.high)
    if not typed.type.numeric or bounds.low is None or low is None or high is None:
        hint = "clip it by LEAST and GREATEST at numbers or at a candidate, or ask the data owner for bounds."
        raise privacy_error(call.node, f"{to_sql(call.node)} needs bounds.", hint)
    grid = grids.choose_grid(typed.type, low, max(high, low))
    y, least = grids.write_steps(typed, grid), math.floor(bounds.low * grid.steps)
    # A clipped value needs no upper bound: the clip is clamped to the bounds itself.
    clamped = _clamp(y, least, grid.high if limit is None else None)
    present = exp.Not(this=exp.Is(this=exp.paren(y), expression=exp.Null()))
    amount = exp.Case(ifs=[exp.If(this=present, true=clamped)])
    part = ScorePart(amount, _filter(call, names), Fraction(grid.steps), min(0, grid.low), max(0, grid.high))
    if limit is None or clip is None:
        return part
    # Clamped to the bounds before scaling: a clip far outside them has no effect, nor has a missing one.
    first, last = (float(end / grid.steps) for end in (grid.low, grid.high))
    value = _function("COALESCE", _cast(limit.node.copy(), "DOUBLE"), exp.Literal.number(last))
    scaled = exp.Mul(this=_clamp(value, first, last), expression=exp.Literal.number(float(grid.steps)))
    step = _clamp(_cast(_function("ROUND", scaled), "BIGINT"), grid.low, grid.high)
    bare = Bare(y, least, _plain_decimal(typed, grid))
    return replace(part, clip=step, bare=bare, limit=_limit(clip, limit, grid))


def _plain_decimal(typed: Typed, grid: grids.Grid) -> tuple[exp.Expr, int] | None:
    """Return a column of decimals whose integers without their point are its grid steps, without missing values."""
    node = typed.node.unnest()
    if typed.type.kind != "DECIMAL" or not isinstance(node, exp.Column) or grid.steps != _digits(typed):
        return None
    digits = typed.type.digits
    if sum(digits) > (grids.WIDE_DIGITS if grid.wide else grids.NARROW_DIGITS):
        return None
    kind = f"DECIMAL({sum(digits)}, {digits[1]})"  # its own type: no conversion
    return exp.TryCast(this=node.copy(), to=exp.DataType.build(kind, dialect="duckdb")), digits[1]


def _function(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.func(name, *arguments, copy=False, dialect="duckdb")


def _cast(node: exp.Expr, kind: str) -> exp.Expr:
    return exp.Cast(this=node, to=exp.DataType.build(kind, dialect="duckdb"))


def _clamp(node: exp.Expr, low: float, high: float | None) -> exp.Expr:
    clamped = _function("GREATEST", node.copy(), exp.Literal.number(low))
    return clamped if high is None else _function("LEAST", clamped, exp.Literal.number(high))


def _unclipped(node: exp.Expr, names: RowNames) -> tuple[exp.Expr, exp.Expr | None]:
    """Return ``LEAST(x, c.b)`` as x and its clip."""
    items = [node.this, *node.expressions] if isinstance(node, exp.Least) else []
    if len(items) == 2 and names.candidate is not None:
        for mine, theirs in (items, items[::-1]):
            public = _reads_candidate(theirs, names)
            if not any(_reads_candidate(mine, names)) and public and all(public):
                return mine, theirs
    return node, None


def _reads_candidate(node: exp.Expr, names: RowNames) -> list[bool]:
    """Return for each column of an expression whether it is the candidate's."""
    fields = names.candidate.fields if names.candidate is not None else ()
    return [any(names.find(c) is f for f in fields) for c in node.find_all(exp.Column)]


SCORE_AGGREGATES = {"COUNT": _count, "SUM": _sum, "COUNT_IF": _count_if}

FINE = 20
FARTHEST = 1 << 62
"""The greatest absolute value of a factor, in steps."""
_EXACT = 1 << 50
"""Decimals above this many steps are rounded, like doubles."""


@dataclass(frozen=True)
class Factor:
    """A public number per candidate, in ``[low, high]`` (with 0), ``scale`` steps to a unit; ``missing`` replaces NULL."""

    typed: Typed
    scale: Fraction
    low: int
    high: int
    missing: int = 0

    @property
    def top(self) -> int:
        """The greatest absolute value, in steps."""
        return max(-self.low, self.high)

    @property
    def whole(self) -> bool:
        """Whether it is a literal integer."""
        return isinstance(self.typed.node, exp.Literal) and self.typed.type.kind == "INTEGER"

    @property
    def steps(self) -> str:
        """The unclamped factor in steps: a BIGINT, NULL if missing."""
        text, kind = to_sql(self.typed.node), self.typed.type.kind
        if kind == "INTEGER":
            return f"TRY_CAST({text} AS BIGINT)"
        if kind == "DECIMAL" and self.scale == _digits(self.typed):
            return f"TRY_CAST(TRY(({text}) * {self.scale.numerator}) AS BIGINT)"
        return f"TRY_CAST(ROUND(CAST({text} AS DOUBLE) * {self.scale.numerator}) AS BIGINT)"

    def sql(self, extra: int) -> str:
        """Return the factor in steps, times ``extra``: a HUGEINT, never NULL."""
        if self.whole:
            return f"(CAST({to_sql(self.typed.node)} AS HUGEINT) * {extra})"
        # COALESCE comes first: GREATEST and LEAST skip a NULL.
        clamped = f"LEAST(GREATEST(COALESCE({self.steps}, {self.missing}), {self.low}), {self.high})"
        return f"(CAST({clamped} AS HUGEINT) * {extra})"

    def weight(self, extra: int, row: int) -> Weight:
        """Return the factor times ``extra``, for an aggregate that one row moves by ``row``."""
        node, text = self.typed.node, self.sql(extra)
        if self.whole:
            return Weight(int(to_sql(node)) * extra, None, node, 0, 0, row, text)
        return Weight(extra, self.steps, node, self.low, self.high, row, text)


def factor_of(typed: Typed, span: Span | None) -> Factor:
    """Return a factor with its expression's range; PrivacyError if that is unknown, or too wide for exact integers."""
    bounds = typed.bounds or Bounds()
    if bounds.low is None or bounds.high is None:
        what = "a factor of this statistic has no bound that could be read from the candidates."
        raise PrivacyError(what, span=span, hint="clamp it to a range: LEAST(GREATEST(p, 0), 100).")
    scale = _scale(typed)
    low, high = math.floor(bounds.low * scale), math.ceil(bounds.high * scale)
    found = Factor(typed, scale, min(0, low), max(0, high))
    if found.top > FARTHEST:
        what = "a factor of this statistic is too large for exact integers."
        hint = "write it in larger units, or clamp it to a range: LEAST(p, 1000)."
        raise PrivacyError(what, span=span, hint=hint)
    return found


def constant_of(typed: Typed, side: int = 0) -> Factor:
    """Return an additive public number, which moves nothing.

    A missing one is 0; with a ``side`` it is the least number (-1) or the greatest (1), which LEAST and GREATEST may skip.
    """
    return Factor(typed, _scale(typed), -FARTHEST, FARTHEST, side * FARTHEST)


def _digits(typed: Typed) -> Fraction:
    return Fraction(10) ** typed.type.digits[1]


def _scale(typed: Typed) -> Fraction:
    if typed.type.kind in ("INTEGER", "NULL"):
        return Fraction(1)
    bounds = typed.bounds or Bounds()
    if bounds.low is None or bounds.high is None:
        return _digits(typed) if typed.type.kind == "DECIMAL" else Fraction(1 << FINE)
    top = max(abs(bounds.low), abs(bounds.high), Fraction(1, 1 << FINE))
    if typed.type.kind == "DECIMAL" and top * _digits(typed) <= _EXACT:
        return _digits(typed)
    size = top.numerator.bit_length() - top.denominator.bit_length()
    return Fraction(2) ** max(0, FINE - size - (top > Fraction(2) ** size))


def bounded(f: Field, values: pa.Table | None) -> Field:
    """Return a field with the range of its public values."""
    if values is None or not f.typed.type.numeric:
        return f
    column = values.column(f.typed.node.name)
    if pa.types.is_floating(column.type):
        column = column.filter(pc.is_finite(column))
    ends = pc.min_max(column).as_py()
    bounds = Bounds.point(0) if ends["min"] is None else Bounds(Fraction(ends["min"]), Fraction(ends["max"]))
    return replace(f, typed=replace(f.typed, bounds=bounds))


def level_of(threshold: Typed, steps: Fraction) -> tuple[int | None, dict[str, str]]:
    """Return the threshold in grid steps: a number, or a column of each candidate."""
    bounds = threshold.bounds
    if threshold.constant and bounds is not None and bounds.low is not None:
        return math.ceil(bounds.low * steps), {}
    # A count reaches 2.5 at 3; on a finer grid one step is negligible, and doubles may be off by it.
    whole = "CEIL" if steps == 1 else "ROUND"
    # Minus infinity is always reached; a missing one never is (GREATEST skips a NULL, NaN is above all numbers).
    far = repr(float(FARTHEST))
    scaled = f"COALESCE({whole}(CAST({to_sql(threshold.node)} AS DOUBLE) * {float(steps)!r}), {far})"
    return None, {CANDIDATE_THRESHOLD: f"CAST(LEAST(GREATEST({scaled}, -{far}), {far}) AS BIGINT)"}
