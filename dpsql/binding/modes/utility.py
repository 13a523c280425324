"""The statistic of a selection mechanism: a tree over exact aggregates, with public factors per candidate.

Supported are sums, differences, public multiples, ABS, GREATEST and LEAST of counts and bounded sums. The tree and the
candidates' public values determine its sensitivity to one privacy unit, and whether it is monotone
(:mod:`dpsql.mechanisms.selection.utilities`). Other forms have no known sensitivity and are refused.

Every node counts in integer steps. Below a public factor a unit has fewer steps, by the steps of the factor, so that
all parts of a sum, and all compared values, have equal steps.

Factors are integers: whole steps, or decimals with their digits; doubles get a power of two steps to a unit, about 2^20
of them. The sensitivity follows from the range of the factors, which is read from the candidates during binding. Every
factor is clamped to that range in use: candidates that differ later (random, or from a clock) change the statistic,
never its sensitivity. A missing factor (NULL, NaN, infinite) is 0.

Two aggregates have no common rows if no row, for any candidate, satisfies both of their conditions. Recognised are
``x < c.v`` and ``x >= c.v`` (one public side), ``x < 3`` and ``x > 5`` (integers that are exact in any numeric type),
``g = 'a'`` and ``g = 'b'`` (texts, compared unchanged), and a condition and its negation. Other conditions are assumed
to have common rows.

A statistic has terms, each a public factor of the candidate times an exact aggregate. All candidates share one scan if
an aggregate's condition or argument names the candidate's columns in one of these shapes:

    equality      x = c.k                              group by x, look the candidate's key up
    one-sided     x >= c.v   (or >, <, <=)             bins between thresholds; running sums
    two-sided     x BETWEEN c.lo AND c.hi              the difference of two running sums
    clipped sum   SUM(LEAST(x, c.b))                   the sum below b, plus b times the count above
    several       x <= c.a AND y > c.b                 group by x and y, look candidates up among these

each combined with any condition independent of the candidate. An independent aggregate is one number. Other shapes are a
batched nested loop.

It stands apart from :mod:`dpsql.binding.modes.scored_statistic`, which makes queries and sweeps of these forms: together they
would be longer than a module may be.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from fractions import Fraction
from itertools import combinations

from sqlglot import exp

from dpsql.binding.relations.fan_out import split_conjuncts
from dpsql.binding.relations.relation import Names, Relation, column
from dpsql.binding.values import fixed_point as grids
from dpsql.binding.values import total_expressions
from dpsql.binding.values.sql_types import BIGINT, Bounds, Type, Typed
from dpsql.catalogue.aggregate_names import AGGREGATE_OF_NAME
from dpsql.errors import PrivacyError, Span
from dpsql.exact.candidate_statistics import (
    CANDIDATE,
    ROWS,
    Bare,
    CandidateStatistic,
    Range,
    Term,
    TermShape,
    Weight,
)
from dpsql.language.dialect import bind_error, privacy_error, span_of, to_sql
from dpsql.language.options import Call, call_of, read_pair
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.selection.utilities import (
    Absolute,
    Extreme,
    FormNode,
    Linear,
    Movement,
    Multiple,
    Total,
    UtilityForm,
    compute_movement,
    parts_of,
)


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
    ends = typed.ends
    if ends is None or max(-ends[0], ends[1]) * grid.steps >= 2**50:
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
            raise bind_error(clip, f"LEAST combines {typed.type.sql} with {limit.type.sql}.")
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


_SCORES = {"count": _count, "sum": _sum, "condition": _count_if}
"""The aggregates of a utility, by the catalogue's form."""


def _find_score(call: Call | None) -> Callable[[Call, RowNames], ScorePart] | None:
    row = None if call is None else AGGREGATE_OF_NAME.get(call.name)
    return None if row is None else _SCORES.get(row.form)


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
    def range(self) -> tuple[int, int]:
        """The least and the greatest value, in steps, for the sensitivity."""
        return self.low, self.high

    @property
    def top(self) -> int:
        """The greatest absolute value, in steps."""
        low, high = self.range
        return max(-low, high)

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
    ends = typed.ends
    if ends is None:
        what = "a factor of this statistic has no bound that could be read from the candidates."
        raise PrivacyError(what, span=span, hint="clamp it to a range: LEAST(GREATEST(p, 0), 100).")
    scale = _scale(typed)
    low, high = math.floor(ends[0] * scale), math.ceil(ends[1] * scale)
    found = Factor(typed, scale, min(0, low), max(0, high))
    if found.top > FARTHEST:
        what = "a factor of this statistic is too large for exact integers."
        hint = "write it in larger units, or clamp it to a range: LEAST(p, 1000)."
        raise PrivacyError(what, span=span, hint=hint)
    return found


def constant_of(typed: Typed, side: int) -> Factor:
    """Return an additive public number; a missing one is 0, or with a ``side`` the least (-1) or the greatest (1) number."""
    return Factor(typed, _scale(typed), -FARTHEST, FARTHEST, side * FARTHEST)


def _digits(typed: Typed) -> Fraction:
    return Fraction(10) ** typed.type.digits[1]


def _scale(typed: Typed) -> Fraction:
    if typed.type.kind in ("INTEGER", "NULL"):
        return Fraction(1)
    ends = typed.ends
    if ends is None:
        return _digits(typed) if typed.type.kind == "DECIMAL" else Fraction(1 << FINE)
    top = max(*map(abs, ends), Fraction(1, 1 << FINE))
    if typed.type.kind == "DECIMAL" and top * _digits(typed) <= _EXACT:
        return _digits(typed)
    size = top.numerator.bit_length() - top.denominator.bit_length()
    return Fraction(2) ** max(0, FINE - size - (top > Fraction(2) ** size))


# -- aggregates without common rows ---------------------------------------------------------------------------------

_EXACT_INTEGERS = 1 << 24
"""Integers below this are exact in every numeric type."""
_SIDES = {"<": {-1}, "<=": {-1, 0}, "=": {0}, ">=": {0, 1}, ">": {1}, "<>": {-1, 1}}
"""The possible positions of x, by operator: below the other side (-1), at it (0) or above it (1)."""
_Comparison = tuple[str, str, str, int | None, bool]
"""The SQL of x, the operator, the SQL of the other side, its integer value if any, and whether it is a text."""


def find_apart(conditions: Sequence[exp.Expr | None], names: RowNames) -> tuple[tuple[int, int], ...]:
    """Return the pairs of conditions, by index, that no row satisfies both of."""
    parts = [list(flatten_conditions(split_conjuncts(condition))) for condition in conditions]
    found = [list(_facts(mine, names)) for mine in parts]
    negated = [{to_sql(part.this.unnest()) for part in mine if isinstance(part, exp.Not)} for mine in parts]
    plain = [set(map(to_sql, mine)) for mine in parts]
    return tuple(
        (i, j)
        for i, j in combinations(range(len(conditions)), 2)
        if negated[i] & plain[j]
        or plain[i] & negated[j]
        or any(_exclude(one, other) for one in found[i] for other in found[j])
    )


def _facts(parts: Iterable[exp.Expr], names: RowNames) -> Iterable[_Comparison]:
    for x, op, bound in filter(None, map(compare_sides, parts)):
        literal, column = bound if isinstance(bound, exp.Literal) else None, x.unnest()
        number = int(literal.name) if literal is not None and literal.is_int else _EXACT_INTEGERS
        own = isinstance(column, exp.Column) and column.table == ROWS
        kind = names.types.get(column.name) if own else None
        text = literal is not None and literal.is_string and kind is not None and kind.sql == "VARCHAR"
        yield to_sql(x), op, to_sql(bound), number if number < _EXACT_INTEGERS else None, text


def _exclude(one: _Comparison, other: _Comparison) -> bool:
    """Return whether no x satisfies both comparisons."""
    (x, op, bound, number, text), (y, op2, bound2, number2, text2) = one, other
    if x != y:
        return False
    if bound == bound2:
        return not _SIDES[op] & _SIDES[op2]
    if text and text2:
        return op == op2 == "="
    if number is None or number2 is None:
        return False
    if number > number2:
        op, op2 = op2, op
    # x is not above the lesser number, and not below the greater one
    return op in ("<", "<=", "=") and op2 in (">", ">=", "=")


_MOST = 1 << 80
"""The most steps that one row may move a statistic by: sums over any table then fit 38 digits."""
_MOST_PUBLIC = 1 << 120
"""The greatest total of a tree's public numbers, in steps."""
_KNOWN = "write counts and bounded sums: added, times a candidate's column, in ABS, GREATEST or LEAST."
_ABOVE_MEAN = (
    "a mean is above a number if the sum minus that many times the count is above 0: ask about that."
)


def bind_statistic(node: exp.Expr, names: RowNames, dialect: str) -> CandidateStatistic:
    """Bind the first argument of a mechanism; aggregates without common rows are recognised in DuckDB's ``dialect`` only.

    Raises:
        PrivacyError: its sensitivity can't be derived.
        BindError: names or types that don't fit.
    """
    found = _Tree(names)
    root = found.read(node, 1, None, _Above())
    if not found.parts:
        what = "the statistic does not read private rows."
        raise privacy_error(node, what, "write an aggregate, such as COUNT(*) FILTER (WHERE disease = name).")
    factors = [factor_of(part.factor, span_of(node)) for part, _ in found.parts]
    placed = list(zip(found.parts, factors, strict=True))
    steps = [above.scale * part.steps * f.scale for (part, above), f in placed]
    scales = [above.scale * f.scale for f, _, above in found.bases]
    common = Fraction(math.lcm(*(s.numerator for s in [*steps, *scales])))
    extra = [int(common / mine) * part.sign for (part, _), mine in zip(found.parts, steps, strict=True)]
    numbers = zip(found.bases, scales, strict=True)
    bases = tuple(f.sql(int(common / mine) * sign) for (f, sign, _), mine in numbers)
    multiples = tuple(f.weight(sign, 1) for f, sign in found.multiples)
    moves = found.moves(root)
    weighted = [_times(_ends(f, by), moved) for f, by, moved in zip(factors, extra, moves, strict=True)]
    ranges = [_ends(f, sign) for f, sign in found.multiples]
    rows = [max(-low, high) for low, high in moves]
    moved = zip(placed, extra, rows, strict=True)
    summed = sum(f.top * abs(by) * row * above.top for ((_, above), f), by, row in moved)
    _check_size(node, root, found, summed, common, scales)
    low, high = compute_movement(root, weighted, ranges)
    apart = find_apart([part.condition for part, _ in found.parts], names) if dialect == "duckdb" else ()
    nearer = compute_movement(root, weighted, ranges, apart) if apart else (low, high)
    if nearer == (low, high):
        apart = ()
    low, high = nearer
    sensitivity = max(1, -low, high)
    clipped = any(part.clip is not None for part, _ in found.parts)
    # The public numbers of one sum are one column, which is added to it.
    shape = Linear(root.terms) if isinstance(root, Linear) else root
    form = UtilityForm(shape, moves, apart, sensitivity, clipped=clipped)
    alone = moves == tuple((part.low, part.high) for part, _ in found.parts)
    plain = form.linear and alone and sensitivity == max(1, summed)
    weights = [f.weight(by, row) for f, by, row in zip(factors, extra, rows, strict=True)]
    terms = tuple(
        shape_of(weight, p.amount, p.clip, p.bare, p.condition, not _lengths(p.condition, names))
        for weight, (p, _) in zip(weights, found.parts, strict=True)
    )
    shapes = {term.shape for term in terms}
    varies = any(names_candidate(typed.node) for typed in found.factors())
    own = f"GREATEST({_own(root, weights, multiples)}, 1)"
    own = own if plain else f"LEAST({own}, {sensitivity})"
    return CandidateStatistic(
        terms,
        " + ".join(bases) or "0" if form.linear else "0",
        common,
        sensitivity,
        f"CAST({own} AS HUGEINT)" if varies else None,
        low == 0 or high == 0,
        "nested loop" if "nested loop" in shapes else ", ".join(sorted(shapes)),
        None if plain else form,
        () if form.linear else bases,
        multiples,
    )


def _check_size(
    node: exp.Expr, root: FormNode, found: _Tree, summed: int, common: Fraction, scales: Sequence[Fraction]
) -> None:
    numbers = zip(found.bases, scales, strict=True)
    far = sum(int(common / mine) * FARTHEST * above.top for (_, _, above), mine in numbers)
    too_far = far > _MOST_PUBLIC and not isinstance(root, Linear)
    if summed > _MOST or (found.bases and common > _MOST) or too_far:
        what = "the steps of this statistic are too many for exact integers."
        raise privacy_error(node, what, "round its factors, or write it in larger units.")


def _times(a: Movement, b: Movement) -> Movement:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _ends(factor: Factor, by: int) -> Movement:
    return _times(factor.range, (by, by))


def _own(form: FormNode, weights: Sequence[Weight], multiples: Sequence[Weight]) -> str:
    """Return the SQL of each candidate's sensitivity to one row, by its own factors."""
    match form:
        case Linear(terms):
            return " + ".join(f"ABS({weights[i].text}) * {weights[i].row}" for i in terms) or "0"
        case Absolute(part):
            return _own(part, weights, multiples)
        case Total(parts):
            return " + ".join(_own(part, weights, multiples) for part in parts)
        case Extreme(parts):
            return f"GREATEST({', '.join(_own(part, weights, multiples) for part in parts)})"
        case Multiple(factor, part):
            return f"ABS({multiples[factor].text}) * ({_own(part, weights, multiples)})"


_LENGTHS = re.compile(r"\b(INTERVAL|AGE|TO_[A-Z]+|MAKE_INTERVAL)\b", re.IGNORECASE)
_MOMENTS = ("DATE", "TIME", "TIMESTAMP")


def _lengths(condition: exp.Expr | None, names: RowNames) -> bool:
    """Return whether a condition may compare intervals: DuckDB's search for their bins fails once there is a row."""
    if condition is None:
        return False
    kinds = {(ROWS, name): kind for name, kind in names.types.items()}
    if names.candidate is not None:
        kinds |= {(CANDIDATE, f.typed.node.name): f.typed.type for f in names.candidate.fields}

    def has(node: exp.Expr, *wanted: str) -> bool:
        found = (kinds.get((c.table, c.name)) for c in node.find_all(exp.Column))
        return any(kind is None or kind.kind in wanted for kind in found)

    differences = any(has(node, *_MOMENTS) for node in condition.find_all(exp.Sub))
    return differences or has(condition, "INTERVAL") or _LENGTHS.search(to_sql(condition)) is not None


def _differences(parts: Sequence[ScorePart]) -> dict[int, tuple[int, int]]:
    """Return one row's addition to ``SUM(LEAST(x, b)) - SUM(LEAST(x, b + w))``: the first part's is from -w to 0."""
    found: dict[int, tuple[int, int]] = {}
    for (j, other), (i, one) in combinations(enumerate(parts), 2):
        a, b = one.limit, other.limit
        if a is None or b is None or a.base != b.base or {i, j} & set(found):
            continue
        same = (one.bare, one.condition, one.steps) == (other.bare, other.condition, other.steps)
        if not same or one.sign != -other.sign or one.factor.node != other.factor.node:
            continue
        apart = (b.offset - a.offset) * one.steps
        # Rounding keeps integer distances, and may otherwise add a step: -1/2 and 1/2 become -1 and 1.
        exact = a.whole and all(number.denominator == 1 for number in (a.offset, b.offset, one.steps))
        width = math.ceil(abs(apart)) + (0 if exact else 1)
        low, high = -width if apart <= 0 else 0, width if apart >= 0 else 0
        # The clamping bounds of the clips must not be farther apart than the clips, nor in the other order.
        if all(low <= theirs - mine <= high for mine, theirs in zip(a.ends, b.ends, strict=True)):
            found[j], found[i] = (low, high), (0, 0)
    return found


# -- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Above:
    """The public factors above a node: their steps, and the greatest product."""

    scale: Fraction = Fraction(1)
    top: int = 1


@dataclass
class _Tree:
    """Decomposes a statistic: aggregates and public numbers, with the factors above them, and a form over their indices."""

    names: RowNames
    parts: list[tuple[ScorePart, _Above]] = field(default_factory=list)
    bases: list[tuple[Factor, int, _Above]] = field(default_factory=list)
    multiples: list[tuple[Factor, int]] = field(default_factory=list)

    def factors(self) -> list[Typed]:
        """Return all public factors."""
        return [*(part.factor for part, _ in self.parts), *(f.typed for f, _ in self.multiples)]

    def moves(self, root: FormNode) -> tuple[Movement, ...]:
        """Return the move of each statistic by one row; clips of one base are one in a common sum."""
        found = [(part.low, part.high) for part, _ in self.parts]
        waiting = [root]
        while waiting:
            form = waiting.pop()
            waiting += parts_of(form)
            if isinstance(form, Linear):
                for place, moved in _differences([self.parts[i][0] for i in form.terms]).items():
                    found[form.terms[place]] = moved
        return tuple(found)

    def read(
        self, node: exp.Expr, sign: int, factor: exp.Expr | None, above: _Above, side: int = 0
    ) -> FormNode:
        """Return the form of an expression times a factor; ``side``: a missing number is the least (-1) or greatest (1)."""
        found: list[FormNode] = []
        self._add(node, sign, factor, above, found, side)
        return found[0] if len(found) == 1 else Total(tuple(found))

    def _add(
        self,
        node: exp.Expr,
        sign: int,
        factor: exp.Expr | None,
        above: _Above,
        into: list[FormNode],
        side: int = 0,
    ) -> None:
        """Add an expression to a sum, whose adjacent linear parts are one form."""
        node = node.unnest()
        call = call_of(node)
        if call is not None and (score := _find_score(call)) is not None:
            public = NO_FACTOR if factor is None else _public(factor, self.names)
            part = score(call, self.names)
            self.parts.append((replace(part, factor=public, sign=sign), above))
            _extend(into, Linear((len(self.parts) - 1,)))
        elif isinstance(node, exp.Neg):
            self._add(node.this, -sign, factor, above, into, -side)
        elif not _is_private(node):
            whole = node if factor is None else exp.Mul(this=factor.copy(), expression=exp.paren(node.copy()))
            added = _public(whole, self.names)
            if not added.type.numeric:
                raise bind_error(node, f"this adds {added.type.sql}, not a number.")
            self.bases.append((constant_of(added, side), sign, above))
            _extend(into, Linear((), (len(self.bases) - 1,)))
        elif isinstance(node, exp.Add | exp.Sub):
            self._add(node.this, sign, factor, above, into)
            self._add(node.expression, -sign if isinstance(node, exp.Sub) else sign, factor, above, into)
        elif isinstance(node, exp.Coalesce) and _is_zero(node.expressions):
            self._add(node.this, sign, factor, above, into)  # a sum of no rows is 0 here
        elif isinstance(node, exp.Abs | exp.Greatest | exp.Least):
            into.append(self._bent(node, sign, factor, above))
        else:
            private, new = self._multiplied(node)
            if factor is not None:
                new = exp.Mul(this=exp.paren(factor.copy()), expression=exp.paren(new))
            self._add(private, sign, new, above, into)

    def _bent(self, node: exp.Expr, sign: int, factor: exp.Expr | None, above: _Above) -> FormNode:
        """Return ABS, GREATEST or LEAST as a node of the statistic, multiplied by its public factor."""
        place = None
        if factor is not None or sign < 0:
            typed = NO_FACTOR if factor is None else _public(factor, self.names)
            public = factor_of(typed, span_of(node))
            above = _Above(above.scale * public.scale, above.top * max(1, public.top))
            self.multiples.append((public, sign))
            place = len(self.multiples) - 1
        made: FormNode
        if isinstance(node, exp.Abs):
            made = Absolute(self.read(node.this, 1, None, above))
        else:
            greatest = isinstance(node, exp.Greatest)
            items = [node.this, *node.expressions]
            side = -1 if greatest else 1
            made = Extreme(tuple(self.read(item, 1, None, above, side) for item in items), greatest)
        return made if place is None else Multiple(place, made)

    def _multiplied(self, node: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
        """Return the private side of a product or a quotient, and its public factor."""
        if isinstance(node, exp.Mul | exp.Div):
            left, right = node.this, node.expression
            if isinstance(node, exp.Mul) and _is_private(right) and not _is_private(left):
                left, right = right, left
            if _is_private(left) and not _is_private(right):
                if isinstance(node, exp.Mul):
                    return left, right.copy()
                return left, exp.Div(this=exp.Literal.number(1), expression=exp.paren(right.copy()))
        what, hint = _refusal(node)
        raise privacy_error(node, what, hint)


def _refusal(node: exp.Expr) -> tuple[str, str]:
    """Return why the sensitivity of an expression is unknown, and a hint."""
    inner = [node.this, node.args.get("expression")]
    if isinstance(node, exp.Mul) or (isinstance(node, exp.Pow) and _is_private(node.this)):
        what = "the sensitivity of a product of private numbers can't be derived: one row may move it by any amount."
        return what, "take the lesser of the two, their sum or their distance, times a public number."
    if isinstance(node, exp.Div) and isinstance(inner[1], exp.Expr) and _is_private(inner[1]):
        what = "the sensitivity of a quotient of private numbers can't be derived: one row may move it by any amount."
        hint = "compare it with a public number instead: the distance of one from that many times the other."
        return what, hint
    return "the sensitivity of this statistic can't be derived.", _KNOWN


def _refuse_aggregate(node: exp.Expr) -> None:
    for part in node.walk(prune=lambda inner: isinstance(inner, exp.Query)):
        inner = part.this if isinstance(part, exp.Filter) else part
        if isinstance(inner, exp.AggFunc) and (call := call_of(part)) is not None:
            hint = _ABOVE_MEAN if call.name == "AVG" else _KNOWN
            raise privacy_error(part, f"how far one row moves {call.name} can't be derived.", hint)


def _extend(into: list[FormNode], more: Linear) -> None:
    last = into[-1] if into else None
    if isinstance(last, Linear):
        into[-1] = Linear((*last.terms, *more.terms), (*last.bases, *more.bases))
    else:
        into.append(more)


def _is_zero(nodes: Sequence[exp.Expr]) -> bool:
    return len(nodes) == 1 and isinstance(nodes[0], exp.Literal) and nodes[0].name == "0"


def _is_private(node: exp.Expr) -> bool:
    return any(_find_score(call_of(n)) is not None for n in node.walk())


def _public(node: exp.Expr, names: RowNames) -> Typed:
    """Return a number without private rows; PrivacyError for a private column outside a count or sum."""
    _refuse_aggregate(node)
    typed = total_expressions.make_total(node, names)
    if any(found.table == ROWS for found in typed.node.find_all(exp.Column)):
        hint = "write a sum or a count of rows, times a number or a candidate's column."
        raise privacy_error(node, "a column of private rows must be inside an aggregate.", hint)
    return typed


# -- the shapes of terms ------------------------------------------------------------------------------------------------

_OPS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GTE: ">=",
    exp.GT: ">",
    exp.LTE: "<=",
    exp.LT: "<",
}
_FLIPPED = {"=": "=", "<>": "<>", ">=": "<=", ">": "<", "<=": ">=", "<": ">"}


def names_candidate(node: exp.Expr) -> bool:
    """Return whether an expression names a column of the candidate."""
    return any(column.table == CANDIDATE for column in node.find_all(exp.Column))


def only_candidate(node: exp.Expr) -> bool:
    """Return whether an expression names only the candidate's columns."""
    return all(column.table == CANDIDATE for column in node.find_all(exp.Column))


def compare_sides(part: exp.Expr) -> tuple[exp.Expr, str, exp.Expr] | None:
    """Return the private side of a comparison, its operator and the public side: the candidate's, or a literal."""
    op = _OPS.get(type(part))
    if op is None:
        return None
    left, right = part.this, part.expression
    if not names_candidate(left) and only_candidate(right):
        return left, op, right
    return (right, _FLIPPED[op], left) if not names_candidate(right) and only_candidate(left) else None


def flatten_conditions(conditions: Iterable[exp.Expr]) -> Iterable[exp.Expr]:
    """Yield conditions without parentheses, and BETWEEN as two comparisons."""
    for condition in conditions:
        inner = condition.unnest()
        if isinstance(inner, exp.Between):
            yield exp.GTE(this=inner.this.copy(), expression=inner.args["low"].copy())
            yield exp.LTE(this=inner.this.copy(), expression=inner.args["high"].copy())
        else:
            yield inner


def shape_of(
    weight: Weight,
    amount: exp.Expr | None,
    clip: exp.Expr | None,
    bare: Bare | None,
    condition: exp.Expr | None,
    comparable: bool,
) -> Term:
    """Return the cheapest way to compute a term for all candidates.

    Args:
        amount: the grid integer that is added, without its clip; None counts rows.
        comparable: whether thresholds may be looked up in the condition.
    """
    parts = split_conjuncts(condition)
    flat = list(flatten_conditions(filter(names_candidate, parts)))
    found = [compare_sides(part) if names_candidate(part) else None for part in flat]
    ranges = tuple(Range(*sides) for sides in found if sides is not None and sides[1] != "<>")
    ops = [r.op for r in ranges]
    faces = len({r.value for r in ranges}) == 1 and {op[0] for op in ops} == {"<", ">"}
    shape: TermShape = "nested loop"
    if not (amount is not None and names_candidate(amount)) and len(ranges) == len(flat):
        if not ranges:
            shape = "constant" if clip is None else "clipped sum"
        elif clip is None and ops == ["="]:
            shape = "equality"
        elif clip is None and comparable and "=" not in ops and len(ranges) == 1:
            shape = "one-sided"
        elif clip is None and comparable and len(ranges) == 2 and faces:
            shape = "two-sided"
        elif clip is None and comparable:
            shape = "several ranges"
    if shape in ("constant", "clipped sum", "nested loop"):
        ranges = ()
    nested = text = to_sql(amount) if amount is not None else "1"
    if clip is not None:  # LEAST skips a NULL, and would return the clip
        nested = f"CASE WHEN ({text}) IS NOT NULL THEN LEAST({text}, {to_sql(clip)}) END"
    free = tuple(to_sql(part) for part in parts if not names_candidate(part))
    whole = to_sql(condition) if condition is not None else None
    return Term(weight, text, free, ranges, clip, bare, whole, nested, shape)
