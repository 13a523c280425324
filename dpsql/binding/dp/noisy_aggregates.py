"""The noisy aggregates that are formulas of noisy moments, each bound by one function; and the binder of every aggregate.

Counts, sums, averages, variances, covariances and regressions are formulas of noisy moments: exact partials of one query, which
:class:`AggregateCall` bounds and a mechanism makes noisy. The catalogue has their names.
"""

from __future__ import annotations

import contextlib
import decimal
import math
import re
from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from dpsql.binding.dp.aggregates import (
    Aggregate,
    AggregateCall,
    BindingsByName,
    Bounded,
    Formula,
    choose_sum_type,
)
from dpsql.binding.dp.private_block import AggregatingBlock
from dpsql.binding.dp.row_queries import (
    OWN_QUERIES,
    bind_auto_bounds,
    count_values,
    sum_distinct,
)
from dpsql.binding.values import fixed_point as grids
from dpsql.binding.values.sql_types import DOUBLE, Typed, make_cast
from dpsql.binding.values.total_expressions import PRESENCE
from dpsql.errors import BindError
from dpsql.exact.exact_query import Partial, Weighing
from dpsql.language.dialect import NAMED, bind_error, privacy_error, to_sql
from dpsql.language.options import Call, call_of, read_epsilon
from dpsql.language.parameters import make_literal
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.moments import Axis, Count, Mean, Output, Pair, Sum, Variance
from dpsql.mechanisms.per_group import Statistic

MOMENTS = BindingsByName()
_OWN_STEPS = 1 << 20
"""The approximate number of steps between the bounds of a unit's own mean."""


# -- counts -----------------------------------------------------------------------------------------------------


@MOMENTS.of_form("count")
def _count(asked: AggregateCall) -> Aggregate:
    call = asked.call
    if call.distinct:
        return _count_distinct(asked)
    _refuse_row_bounds(asked)
    if call.args:
        call.require(1)
    if not call.args or call.args[0].is_star or isinstance(call.args[0], exp.Literal):
        inner, what = _write_count(asked, None), "count the rows"
    else:
        call.args[0].unnest().meta[PRESENCE] = True
        typed, what = asked.block.expression(call.args[0]), f"count the rows with {asked.source()}"
        summed = asked.block.spelling(call.args[0]) in asked.block.summed
        if summed and typed.type.kind == "DOUBLE":
            what += (
                ", without NaN, infinities and values too far from the bounds, which its sums leave out too"
            )
        inner = _write_count(asked, _write_present(asked, typed) if summed else to_sql(typed.node))
    bounds = asked.options.get("contribution_bounds_per_group")
    if bounds is None:
        asked.require_rows()
        return _counted(asked, what, Partial(inner, 0, 1))
    low, high = math.floor(bounds[0]), math.ceil(bounds[1])
    if not asked.exact.bound.row_level:
        return _counted(asked, what, Partial(inner, low, high, fixed=True))
    one = min(max(1, low), high)  # each row counts 1, clamped to the bounds
    inner = inner if one == 1 else f"{one} * {inner}"
    return _counted(asked, what, Partial(inner, min(0, one), max(0, one)))


def _write_present(asked: AggregateCall, typed: Typed) -> str:
    """Write a value that is missing where sums and averages of it lack it, so that all of them describe equal rows.

    NaN and the infinities are in none of them, nor is a value too far from its column's bounds for exact sums.
    """
    if typed.type.numeric and (ends := typed.ends) is not None:
        with contextlib.suppress(BindError):  # bounds too wide for a sum
            return asked.write_steps(typed, grids.choose_grid(typed.type, *ends))[0]
    value = to_sql(typed.node)
    return f"CASE WHEN ISFINITE({value}) THEN {value} END" if typed.type.kind == "DOUBLE" else value


def _write_count(asked: AggregateCall, value: str | None) -> str:
    """Return the count of the rows whose FILTER is true and whose value, if any, is not NULL."""
    if value is None and asked.call.where is None:
        return "COUNT(*)"
    return f"COUNT({asked.value(value or 'TRUE')})"


def _counted(asked: AggregateCall, what: str, partial: Partial) -> Aggregate:
    counted = re.fullmatch(r"COUNT\((\w+)\)", partial.inner)
    if counted is not None and not partial.fixed and asked.together and asked.block.weighs_all:
        partial = replace(partial, weighing=asked.weigh(counted[1], 1))
    made = asked.exact.add(partial)
    if made.weighing is not None:
        whole = made.weighing.scale
        said = f"{what}; {asked.say_sensitivity(made, whole)}{asked.say_weighing(made.weighing)}"
        formula = Formula(
            [made], lambda count: Sum(asked.name, count, Fraction(whole), whole=whole, counting=True)
        )
        return asked.make("BIGINT", said, formula, noise_step=Fraction(1), rounded=True)
    said = f"{what}; {asked.say_sensitivity(made)}"
    return asked.make(
        "BIGINT", said, Formula([made], lambda count: Count(asked.name, count)), noise_step=Fraction(1)
    )


@MOMENTS.of_form("condition")
def _count_if(asked: AggregateCall) -> Aggregate:
    asked.call.require(1)
    _refuse_row_bounds(asked)
    asked.require_rows()
    condition = to_sql(asked.block.condition(asked.call.args[0]).node)
    inner = _write_count(asked, f"CASE WHEN {condition} THEN TRUE END")
    return _counted(asked, "count the rows that hold", Partial(inner, 0, 1))


def _count_distinct(asked: AggregateCall) -> Aggregate:
    _refuse_row_bounds(asked)
    call = asked.call
    call.require(1)
    if not asked.block.is_unit(call.args[0]):
        return count_values(asked)
    found = asked.block.names.known(call.args[0])
    inner = _write_count(asked, to_sql(found.typed.node) if found is not None and found.optional else None)
    return _counted(asked, "count the privacy units", Partial(inner, 0, 1, fixed=True))


def _refuse_row_bounds(asked: AggregateCall) -> None:
    if asked.options.get("contribution_bounds_per_row") is not None:
        place = asked.call.named["contribution_bounds_per_row"][1]
        raise bind_error(place, f"{asked.call.name} has no values to bound.")


# -- moments ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Moments:
    """The moments of one aggregate: counts and sums over equal rows, with equal weights."""

    asked: AggregateCall
    weighing: Weighing | None = None

    @property
    def whole(self) -> int:
        """The weight of a whole row."""
        return 1 if self.weighing is None else self.weighing.scale

    def count(self, item: Bounded) -> Partial:
        """Return the number of rows with a value; of units with a value if bounds are per group."""
        fixed, weighing = item.per_group, self.weighing
        return self.asked.exact.add(Partial(f"COUNT({item.y})", 0, 1, fixed=fixed, weighing=weighing))

    def total(self, item: Bounded, centre: int) -> Partial:
        """Return the sum about a centre, in grid steps, as a partial whose clamp or weighing gives its sensitivity."""
        low, high = item.grid.low, item.grid.high
        least, most = min(0, low - centre), max(0, high - centre)
        if item.centred:
            total = grids.write_shifted_sum(item.y, item.grid.centre - centre)
            return self.asked.exact.add(Partial(total, least, most))
        total, added = grids.write_doubled_sum(item.y, item.grid, centre), (item.y, low, high, centre)
        return self.asked.exact.add(
            Partial(total, least, most, doubled=True, adds=added, weighing=self.weighing)
        )

    def product(self, a: Bounded, b: Bounded) -> Partial:
        """Return the sum of the products of the deviations of two values, or of the squares of one."""
        inner = f"COALESCE(SUM({a.deviation} * {b.deviation}), 0)"
        ends = [p * q for p in a.deviations for q in b.deviations] if a is not b else [a.most**2]
        return self.asked.exact.add(Partial(inner, min(0, *ends), max(0, *ends), weighing=self.weighing))


@MOMENTS.of_form("sum")
def _sum(asked: AggregateCall) -> Aggregate:
    if asked.call.distinct:
        return sum_distinct(asked)
    typed = asked.argument()
    if asked.options.get("contribution_bounds_per_row") == "AUTO":
        return bind_auto_bounds(asked, typed, "sum")
    item = asked.bounded(typed, kinds=("INTERVAL", "BOOLEAN"))
    if item.per_group:
        inner = f"CAST(SUM({item.y}) AS HUGEINT)"
        own = Partial(inner, item.grid.low, item.grid.high, fixed=True, nullable=True)
        partial = asked.exact.add(own)
    else:
        asked.require_rows()
        weighing = (
            asked.weigh(item.y, max(abs(item.grid.low), abs(item.grid.high))) if asked.together else None
        )
        partial = _Moments(asked, weighing).total(item, 0)
    whole = 1 if partial.weighing is None else partial.weighing.scale
    steps = Fraction(item.grid.steps)
    said = f"add {asked.source()}, {item.said}; {asked.say_sensitivity(partial, steps * whole)}{asked.propose_auto(item)}"
    said += asked.say_weighing(partial.weighing)
    formula = Formula([partial], lambda total: Sum(asked.name, total, steps * whole, whole=whole))
    kind = choose_sum_type(item.typed.type, typed.type, item.grid)
    return asked.make(kind, said, formula, shown=item.shown, noise_step=1 / steps, rounded=whole > 1)


@MOMENTS.of_form("mean")
def _avg(asked: AggregateCall) -> Aggregate:
    typed = asked.argument()
    if asked.options.get("contribution_bounds_per_row") == "AUTO":
        return bind_auto_bounds(asked, typed, "avg")
    return _mean(asked, asked.bounded(typed, kinds=grids.MOMENT_KINDS))


def _mean(asked: AggregateCall, item: Bounded, what: str = "average") -> Aggregate:
    moments, centre, finer = _Moments(asked), item.grid.centre, 1
    if item.per_group:  # the mean of the units' own means, which lie between steps: so they get finer ones
        finer = max(1, _OWN_STEPS // max(1, item.grid.high - item.grid.low))
        low, high, centre = item.grid.low * finer, item.grid.high * finer, centre * finer
        times = f" * {finer}" if finer > 1 else ""
        value = f"(COALESCE(SUM({item.y}), 0){times} // GREATEST(COUNT({item.y}), 1))"
        own = f"CASE WHEN COUNT({item.y}) > 0 THEN LEAST(GREATEST({value}, {low}), {high}) - {centre} ELSE 0 END"
        total = asked.exact.add(Partial(own, low - centre, high - centre, fixed=True))
    else:
        asked.require_rows()
        moments = _Moments(asked, asked.weigh(item.y, item.most))
        total = moments.total(item, centre)
    steps, whole = Fraction(item.grid.steps) * finer, moments.whole
    formula = Formula(
        [total, moments.count(item)],
        lambda total, count: Mean(asked.name, total, count, steps, centre / steps, item.ends, whole),
    )
    unit = f", in {item.line.unit}" if item.line is not None and item.line.unit else ""
    said = f"{what} {asked.source()}, {item.said}, as a noisy sum over a noisy count{unit}"
    said += asked.propose_auto(item)
    return asked.make("DOUBLE", said + asked.say_weighing(moments.weighing), formula, shown=item.shown)


_GEOMEAN_BOUNDS = (Fraction(1, 10**300), Fraction(10**300))


@MOMENTS.of_form("geometric mean")
def _geometric_mean(asked: AggregateCall) -> Aggregate:
    """Bind ``GEOMEAN(x)``: EXP of the noisy mean of logarithms, and of its interval's ends.

    A value is clamped to its bounds, which are above 0, before its logarithm is taken: 0 and negative values count as the
    lower bound. NULL is left out, as in every mean. The bounds' logarithms limit a unit's move of the sum of logarithms.
    """
    asked.refuse_group_bounds()
    if asked.options.get("report_format"):
        raise bind_error(asked.call.node, "GEOMEAN has no JSON report.")
    item = asked.bounded(asked.argument(), on=lambda *at: _place_logarithm(asked, *at))
    return _mean(asked, item, "geometric mean of")


def _place_logarithm(asked: AggregateCall, typed: Typed, low: Fraction, high: Fraction) -> grids.Line:
    least, most = _GEOMEAN_BOUNDS
    if not least <= low <= high <= most:
        what = f"GEOMEAN needs bounds above 0, and those of {asked.source()} are {float(low):g} and {float(high):g}."
        hint = f"write GEOMEAN({asked.source()}, contribution_bounds_per_row => (1, 100)): lower values count as 1."
        raise privacy_error(asked.call.node, what, hint)
    value, end = asked.call.args[0], make_literal(float(low))
    below = exp.If(this=exp.LT(this=exp.paren(value.copy()), expression=end), true=end.copy())
    clamped = exp.Case(ifs=[below], default=make_cast(value.copy(), DOUBLE))  # NULL stays NULL
    ends = (Fraction(math.log(low)), Fraction(math.log(high)))
    shown = (f"{float(low):g}", f"{float(high):g}")
    logarithm = asked.block.expression(exp.Ln(this=clamped))
    return grids.Line(logarithm, *ends, lambda node: exp.Exp(this=node), shown=shown, unit="logarithms")


@MOMENTS.of_form("spread")
def _spread(asked: AggregateCall) -> Aggregate:
    typed = asked.argument()
    asked.refuse_group_bounds()
    if asked.options.get("contribution_bounds_per_row") == "AUTO":
        return bind_auto_bounds(asked, typed, asked.row.kind)
    asked.require_rows()
    item = asked.bounded(typed, multiplied=True)
    moments = _Moments(asked, asked.weigh(item.y, item.most**2))
    total = moments.total(item, item.grid.centre)
    formula = Formula(
        [moments.product(item, item), total, moments.count(item)],
        lambda squares, total, count: Variance(
            asked.name,
            squares,
            total,
            count,
            Fraction(item.grid.steps),
            item.units(item.grid.centre),
            item.ends,
            asked.row.kind,
            whole=moments.whole,
        ),
    )
    said = f"{asked.call.name} of {asked.source()}, {item.said}, from noisy moments{asked.propose_auto(item)}"
    return asked.make("DOUBLE", said + asked.say_weighing(moments.weighing), formula)


# -- two columns ------------------------------------------------------------------------------------------------

_SQUARES = {
    **dict.fromkeys(("CORR", "REGR_R2"), (True, True)),
    **dict.fromkeys(("REGR_SLOPE", "REGR_INTERCEPT"), (False, True)),
}
"""The ones of y and x that need a sum of squares."""


@MOMENTS.of_form("pair")
def _pair(asked: AggregateCall) -> Aggregate:
    y, x = both = _columns(asked)
    # y is NULL exactly if x is: both have equal weights
    moments = _Moments(asked, asked.weigh(y.y, max(y.most, x.most) ** 2))
    shared = [moments.count(y), moments.product(y, x)]
    wanted = _SQUARES.get(asked.call.name, (False, False))
    squares = [moments.product(item, item) for item, used in zip(both, wanted, strict=True) if used]
    totals = [moments.total(item, item.grid.centre) for item in both]

    def build(count: Statistic, product: Statistic, *noisy: Statistic) -> Output:
        left = iter(noisy[2:])
        first, second = (
            Axis(
                item.grid.steps, item.units(item.grid.centre), item.ends, total, next(left) if used else None
            )
            for item, total, used in zip(both, noisy[:2], wanted, strict=True)
        )
        return Pair(asked.name, asked.call.name.lower(), count, first, second, product, moments.whole)

    formula = Formula([*shared, *totals, *squares], build)
    said = " and ".join(f"{asked.source(place)} {item.said}" for place, item in enumerate(both))
    said = f"{asked.call.name} from {len(formula.partials)} noisy moments, {said}"
    return asked.make("DOUBLE", said + asked.say_weighing(moments.weighing), formula)


def _columns(asked: AggregateCall) -> tuple[Bounded, Bounded]:
    """Return both columns on their grids, NULL if either is."""
    asked.call.require(2)
    asked.refuse_distinct()
    asked.refuse_group_bounds()
    asked.require_rows()
    items = []
    for place in asked.call.args:
        typed = asked.block.expression(place)
        low, high, origin = asked.bounds(typed, place)
        grid = grids.coarsen_for_products(grids.choose_grid(typed.type, low, high), low, high)
        items.append(Bounded(typed, to_sql(grids.write_steps(typed, grid)), grid, False, origin))
    both = " AND ".join(f"({item.y}) IS NOT NULL" for item in items)
    if asked.call.where is not None:
        both = f"({to_sql(asked.block.condition(asked.call.where).node)}) AND {both}"
    y, x = (replace(item, y=asked.exact.value(f"CASE WHEN {both} THEN {item.y} END")) for item in items)
    for which, item in enumerate((y, x)):
        asked.note_clip(item, asked.source(which))
    return y, x


NOISY_AGGREGATES = MOMENTS | OWN_QUERIES
"""The binder of every noisy aggregate, by name."""


# -- quotients that are means ---------------------------------------------------------------------------------------


def read_as_mean(block: AggregatingBlock, node: exp.Expr) -> exp.Expr | None:
    """Return the call of AVG that equals a quotient; None unless it is a quotient of a sum and a count of equal rows.

    The count may be in ``NULLIF(..., 0)``, and the sum may be cast to DOUBLE first. Bounds per group are excluded: with
    them AVG is the mean of the units' own means. The mean gets the shares of epsilon if both calls have one; otherwise it
    gets an equal part, like any aggregate.
    """
    if not isinstance(node, exp.Div):
        return None
    total, count = call_of(_find_sum(node.this)), call_of(_find_count(node.expression))
    if total is None or count is None or (total.name, count.name) != ("SUM", "COUNT"):
        return None
    if total.named.keys() - {"contribution_bounds_per_row", "epsilon"} or count.named.keys() - {"epsilon"}:
        return None
    if any(call.distinct or call.over or len(call.args) != 1 for call in (total, count)):
        return None
    if count.args[0].is_star or not _have_same_rows(block, total, count):
        return None
    named = [argument.copy() for name, (_, argument) in total.named.items() if name != "epsilon"]
    if "epsilon" in total.named and "epsilon" in count.named:
        named.append(_add_shares(total, count))
    argument = total.args[0].copy()
    kind = block.expression(argument.copy()).type
    if not kind.numeric and kind.kind not in ("BOOLEAN", "INTERVAL"):
        return None  # dates have a mean but no sum, as the refusal says
    if kind.kind == "BOOLEAN":
        argument = exp.cast(argument, "INTEGER")
    made: exp.Expr = exp.Avg(this=argument)
    if named:
        made = exp.Anonymous(this=f"{NAMED}avg", expressions=[argument, *named])
    if total.where is not None:
        made = exp.Filter(this=made, expression=exp.Where(this=total.where.copy()))
    return made


def _find_sum(node: exp.Expr) -> exp.Expr:
    """Return a call without a cast to DOUBLE, or a product with 1, before the division."""
    node = node.unnest()
    if isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DOUBLE:
        node = node.this
    elif isinstance(node, exp.Mul):
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            if isinstance(other, exp.Literal) and not other.is_string and float(other.name) == 1:
                node = one
    return node.unnest()


def _find_count(node: exp.Expr) -> exp.Expr:
    node = node.unnest()
    zero = exp.Literal.number(0)
    return (node.this if isinstance(node, exp.Nullif) and node.expression == zero else node).unnest()


def _have_same_rows(block: AggregatingBlock, total: Call, count: Call) -> bool:
    parts = ((call.args[0], *filter(None, [call.where])) for call in (total, count))
    of_total, of_count = ([block.find_spelling(node) for node in nodes] for nodes in parts)
    return None not in of_total and of_total == of_count


def _add_shares(total: Call, count: Call) -> exp.Expr:
    """Return the argument ``epsilon`` of the mean: the sum of both calls' shares."""
    shares = [read_epsilon(call.named["epsilon"][0]) for call in (total, count)]
    argument = total.named["epsilon"][1].copy()
    with decimal.localcontext(prec=100):  # two literals: their sum has finitely many digits
        both = sum((decimal.Decimal(s.numerator) / s.denominator for s in shares), decimal.Decimal(0))
    value = exp.Literal.number(f"{both.normalize():f}")
    value.meta.update(argument.expression.meta)
    argument.set("expression", value)
    return argument
