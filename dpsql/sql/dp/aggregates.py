"""The noisy aggregates: one row of a table each, from a call to exact partials and the output made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from sqlglot import exp

from dpsql.errors import BindError, PrivacyError
from dpsql.mechanisms import additive
from dpsql.mechanisms.auto_bounds import AutoBounded
from dpsql.mechanisms.composite import Part
from dpsql.sql.dp.auto_bounds import auto_bounded, require_number
from dpsql.sql.exact.exact_query import Partial, Weighing
from dpsql.sql.expressions import fixed_point as grids
from dpsql.sql.expressions.fixed_point import MOMENT_KINDS, Line, moment_of, place_on_line
from dpsql.sql.expressions.types import Typed
from dpsql.sql.parse.dialect import span_of, to_sql
from dpsql.sql.parse.options import Call, Readers, read_bounds, read_epsilon, read_one_of, read_pair

if TYPE_CHECKING:
    from dpsql.sql.dp.block import Block
    from dpsql.sql.dp.quantiles import Wanted

_OWN_STEPS = 1 << 20
"""About so many steps between the bounds of a unit's own mean."""

NoiseOf = Callable[[Partial, int], additive.Statistic]
"""Makes a partial noisy with one of ``n`` equal parts of the aggregate's share."""

ARGUMENTS: Readers = {
    "epsilon": read_epsilon,
    "contribution_bounds_per_row": read_bounds,
    "contribution_bounds_per_group": read_pair,
    "report_format": read_one_of("JSON"),
}


@dataclass(frozen=True)
class Aggregate:
    """A bound aggregate, waiting for its share of the budget."""

    name: str
    call: Call
    share: Fraction | None
    build: Callable[[NoiseOf], additive.Output] | None
    type: str
    label: str
    said: str
    """For EXPLAIN: what is computed and what one unit moves."""
    report: str | None = None
    quantile: Wanted | None = None
    """Set instead of ``build`` where a histogram is needed."""
    auto: Callable[[Fraction], Part] | None = None
    """Set instead of ``build`` where the aggregate has an exact query of its own."""
    shown: Callable[[str], str] | None = None
    """What the finished statement makes of the released column, where that is more than a cast to ``type``."""
    bars: bool = True

    @property
    def intervals(self) -> bool:
        """Whether its released column has error bars beside it."""
        return self.bars and (self.build is not None or self.auto is not None)


@dataclass(frozen=True)
class Bounded:
    """A numeric argument on its grid: clamped to ``[low, high]`` steps, per row, or per unit and group."""

    typed: Typed
    y: str
    grid: grids.Grid
    per_group: bool
    origin: str
    line: Line | None = None
    """Where the argument is a date, a time or an interval: the numbers that it stands on."""

    @property
    def centre(self) -> int:
        """The middle of the bounds, in grid steps: about it, sums have half the sensitivity."""
        return (self.grid.low + self.grid.high) // 2


def _require(call: Call, count: int) -> None:
    if len(call.args) != count:
        what = "one argument" if count == 1 else f"{count} arguments"
        raise BindError(f"{call.name} takes {what}.", span=span_of(call.node))


def rows_bounded(block: Block, call: Call) -> None:
    """Rows of one unit must be bounded before rows are counted or added."""
    if block.exact.bound.row_level or block.exact.row_budget is not None or block.exact.max_rows is not None:
        return
    raise PrivacyError(
        f"nothing bounds how many rows of {block.bound.subject} one privacy unit has.",
        span=span_of(call.node),
        hint="ask the owner for max_rows, or write OPTIONS (max_rows_contributed = 10).",
    )


def _one_argument(block: Block, call: Call) -> Typed:
    _require(call, 1)
    if call.distinct:
        raise PrivacyError(
            f"{call.name}(DISTINCT ...) has no bounded sensitivity here.",
            span=span_of(call.node),
            hint=f"write {call.name} without DISTINCT, or COUNT(DISTINCT ...).",
        )
    return block.expression(call.args[0])


def _count(block: Block, call: Call, name: str, options: dict[str, Any]) -> Aggregate:
    _no_row_bounds(call, options)
    if call.distinct:
        return _count_distinct(block, call, name, options)
    if len(call.args) > 1:
        raise BindError("COUNT takes one argument.", span=span_of(call.node))
    star = not call.args or call.args[0].is_star or block.is_constant(call.args[0])
    if star:
        inner = (
            "COUNT(*)" if call.where is None else f"COUNT({block.exact.value(block.filtered(call, 'TRUE'))})"
        )
        what = "the rows"
    else:
        typed = block.expression(call.args[0])
        inner = f"COUNT({block.exact.value(block.filtered(call, to_sql(typed.node)))})"
        what = f"the rows with {block.source(call.args[0])}"
    bounds = options.get("contribution_bounds_per_group")
    if bounds is None:
        rows_bounded(block, call)
        partial = block.exact.partial(inner, 0, 1)
    else:
        low, high = math.floor(bounds[0]), math.ceil(bounds[1])
        if block.exact.bound.row_level:  # each row is one, and one held to the bounds is the same for all
            one = min(max(1, low), high)
            partial = block.exact.partial(inner if one == 1 else f"{one} * {inner}", min(0, one), max(0, one))
        else:
            partial = block.exact.partial(inner, low, high, fixed=True)
    return _counted(block, call, name, options, partial, f"count {what}")


def _counted(
    block: Block, call: Call, name: str, options: dict[str, Any], partial: Partial, what: str
) -> Aggregate:
    def build(noise: NoiseOf) -> additive.Output:
        return additive.Count(name, noise(partial, 1))

    said = f"{what}; {block.moves(block.exact.sensitivity(partial))}"
    return Aggregate(
        name,
        call,
        options.get("epsilon"),
        build,
        "BIGINT",
        block.label(call),
        said,
        options.get("report_format"),
    )


def _count_if(block: Block, call: Call, name: str, options: dict[str, Any]) -> Aggregate:
    _require(call, 1)
    _no_row_bounds(call, options)
    rows_bounded(block, call)
    condition = to_sql(block.condition(call.args[0]).node)
    inner = f"COUNT({block.exact.value(block.filtered(call, f'CASE WHEN {condition} THEN TRUE END'))})"
    return _counted(block, call, name, options, block.exact.partial(inner, 0, 1), "count the rows that hold")


def _count_distinct(block: Block, call: Call, name: str, options: dict[str, Any]) -> Aggregate:
    _require(call, 1)
    if not block.is_unit(call.args[0]):
        from dpsql.sql.dp.histograms import bind_distinct

        return bind_distinct(block, call, name, options)
    found = block.names.known(call.args[0])
    shown = to_sql(found.typed.node) if found is not None and found.optional else "TRUE"
    inner = "COUNT(*)"
    if call.where is not None or shown != "TRUE":
        inner = f"COUNT({block.exact.value(block.filtered(call, shown))})"
    partial = block.exact.partial(inner, 0, 1, fixed=True)
    return _counted(block, call, name, options, partial, "count the privacy units")


def _no_row_bounds(call: Call, options: dict[str, Any]) -> None:
    if options.get("contribution_bounds_per_row") is not None:
        raise BindError(
            f"{call.name} has no values to bound.", span=span_of(call.named["contribution_bounds_per_row"][1])
        )


def bounds_of(
    block: Block, call: Call, options: dict[str, Any], typed: Typed, place: exp.Expr | None = None,
    kinds: Sequence[str] = (),
) -> tuple[Fraction, Fraction, str]:  # fmt: skip
    """The bounds of an argument (the first, or that in ``place``) and where they come from: named first, then derived
    from the policy. ``kinds`` may stand where else numbers must.

    Raises:
        PrivacyError: there are none. BindError: not a number, or bounds of both kinds, or of another kind.
    """
    place = call.args[0] if place is None else place
    per_group = options.get("contribution_bounds_per_group")
    per_row = options.get("contribution_bounds_per_row")
    if per_group is not None and per_row is not None:
        raise BindError(
            "bounds are given per row and per group.", span=span_of(call.node), hint="give one of the two."
        )
    if per_group is not None and block.exact.bound.row_level:
        per_row, per_group = per_group, None  # a unit is one row here: its aggregate is its value
    if not typed.type.numeric and typed.type.kind not in kinds:
        raise BindError(
            f"{call.name} needs a number, and {block.source(place)} is {typed.type.sql}.",
            span=span_of(place),
        )
    if per_row == "AUTO":
        raise PrivacyError(
            f"AUTO bounds are for SUM and AVG, not for {call.name}.",
            span=span_of(call.node),
            hint="write contribution_bounds_per_row => (0, 100).",
        )
    for key in ("contribution_bounds_per_row", "contribution_bounds_per_group"):
        if options.get(key) is not None:
            _of_one_kind(typed, call.named[key][0])
    if typed.type.kind == "BOOLEAN" and per_row is None and per_group is None:
        return Fraction(0), Fraction(1), "FALSE and TRUE"
    source, asked = block.source(place), ", ".join(block.source(arg) for arg in call.args)
    if per_group is not None:
        return *per_group, "given per group"
    if per_row is not None:
        return *per_row, "given per row"
    if typed.bounds is not None and typed.bounds.low is not None and typed.bounds.high is not None:
        return typed.bounds.low, typed.bounds.high, "from the policy"
    raise PrivacyError(
        f"{call.name}({asked}) needs bounds for {source}; the policy declares none.",
        span=span_of(call.node),
        hint=f"write {call.name}({asked}, contribution_bounds_per_row => (0, 100)), clip it with "
        f"LEAST(GREATEST({source}, 0), 100), or ask the data owner for bounds.",
    )


_BOUND_KINDS = {"DATE": ("DATE", "TIMESTAMP"), "TIMESTAMP": ("DATE", "TIMESTAMP"), "TIME": ("TIME",),
                "INTERVAL": ("INTERVAL", "number")}  # fmt: skip


def _of_one_kind(typed: Typed, node: exp.Expr) -> None:
    """Refuses named bounds that are dates where the argument is a number, or the other way round."""
    for item in node.expressions:
        moment = moment_of(item)
        kind = "number" if moment is None else moment[0]
        if kind not in _BOUND_KINDS.get(typed.type.kind, ("number",)):
            raise BindError(
                f"the bounds of a {typed.type.sql} can't be a {kind}.",
                span=span_of(item) or span_of(node),
                hint="write bounds of its type: (DATE '2020-01-01', DATE '2020-12-31'), or (0, 100) for numbers.",
            )


def bounded(
    block: Block, call: Call, options: dict[str, Any], typed: Typed, multiplied: bool = False,
    kinds: Sequence[str] = (),
) -> Bounded:  # fmt: skip
    """The argument on a grid chosen from its bounds: named first, then derived from the policy.

    ``multiplied`` says that products of two such values are added, which a coarser grid leaves room for.

    Raises:
        PrivacyError: there are no bounds.
        BindError: not a number.
    """
    per_group = options.get("contribution_bounds_per_group") is not None and not block.exact.bound.row_level
    low, high, origin = bounds_of(block, call, options, typed, kinds=kinds)
    place = place_on_line(typed, low, high)
    if place.between is not None and options.get("report_format"):
        raise BindError(f"{typed.type.sql} has no JSON report.", span=span_of(call.node))
    grid = grids.choose_grid(place.typed.type, place.low, place.high)
    if multiplied:
        grid = grids.coarsen_for_products(grid, place.low, place.high)
    y = block.exact.value(block.filtered(call, to_sql(grids.write_steps(place.typed, grid))))
    return Bounded(place.typed, y, grid, per_group, origin, place)


def total_about(
    block: Block, item: Bounded, centre: int = 0, weighing: Weighing | None = None
) -> Partial:  # fmt: skip
    """The sum about a centre, in grid steps, as a partial whose clamp or weighing gives its sensitivity."""
    low, high = item.grid.low, item.grid.high
    if item.per_group:
        return block.exact.partial(f"CAST(SUM({item.y}) AS HUGEINT)", low, high, fixed=True, nullable=True)
    inner = grids.write_doubled_sum(item.y, item.grid, centre)
    adds = (item.y, low, high, centre)
    return block.exact.partial(
        inner, min(0, low - centre), max(0, high - centre), doubled=True, adds=adds, weighing=weighing
    )


def parts_of_a_row(weighing: Weighing | None) -> int:
    """Return how many parts of a row weighed moments are counted in."""
    return 1 if weighing is None else weighing.scale


def say_weighing(block: Block, weighing: Weighing | None) -> str:
    """Say in a note and for EXPLAIN that a cap may cut; whether it does depends on private rows, and is not said."""
    if weighing is None:
        return ""
    rows = block.exact.rows_per_unit
    where = "in one group" if block.keys and block.exact.row_budget is None else "in all"
    many = f"{rows} row{'s' if rows != 1 else ''} {where}"
    note = f"a privacy unit with more than {many} counts as {rows} in averages and other moments: its rows weigh less"
    if note not in block.binder.notes:
        block.binder.notes.append(note)
    return f"; the rows of a privacy unit with more than {many} weigh less, and count as {rows} together"


def deviation(item: Bounded, centre: int) -> str:
    """The clamped value less a centre, in SQL; products of two of them fit its type."""
    value = grids.write_clamped(item.y, item.grid)
    return f"({f'CAST({value} AS HUGEINT)' if item.grid.wide else value} - {centre})"


def sum_of_products(a: str, b: str) -> str:
    return f"COALESCE(SUM({a} * {b}), 0)"


def _auto(
    block: Block, call: Call, name: str, options: dict[str, Any], typed: Typed, kind: Literal["sum", "avg"]
) -> Aggregate:
    rows_bounded(block, call)
    require_number(call, typed)
    if options.get("report_format"):
        raise BindError("AUTO bounds have no JSON report.", span=span_of(call.node))

    def build(epsilon: Fraction) -> AutoBounded:
        return auto_bounded(block, call, name, kind, typed, epsilon)

    said = f"{'add' if kind == 'sum' else 'average'} {block.source(call.args[0])}, held to bounds found privately"
    share = options.get("epsilon")
    return Aggregate(name, call, share, None, "DOUBLE", block.label(call), said, None, None, build)


def _sum(block: Block, call: Call, name: str, options: dict[str, Any]) -> Aggregate:
    typed = _one_argument(block, call)
    if options.get("contribution_bounds_per_row") == "AUTO":
        return _auto(block, call, name, options, typed, "sum")
    item = bounded(block, call, options, typed, kinds=("INTERVAL", "BOOLEAN"))
    if not item.per_group:
        rows_bounded(block, call)
    partial = total_about(block, item)
    integers = item.typed.type.kind == "INTEGER" and item.grid.steps == 1 and typed.type.sql != "UHUGEINT"

    def build(noise: NoiseOf) -> additive.Output:
        return additive.Sum(name, noise(partial, 1), Fraction(item.grid.steps))

    said = (
        f"add {block.source(call.args[0])}, held to {range_text(item)} ({item.origin}); "
        f"{block.moves(block.exact.sensitivity(partial), item.grid.steps)}"
    )
    kind = "HUGEINT" if integers else typed.type.sum_type
    return Aggregate(
        name, call, options.get("epsilon"), build, kind, block.label(call), said, options.get("report_format"),
        shown=_back(item),
    )  # fmt: skip


def _back(item: Bounded) -> Callable[[str], str] | None:
    return None if item.line is None else item.line.between


def range_text(item: Bounded) -> str:
    if item.line is not None and item.line.between is not None:
        return f"[{item.line.shown[0]}, {item.line.shown[1]}]"
    low, high = (Fraction(b) / Fraction(item.grid.steps) for b in (item.grid.low, item.grid.high))
    return f"[{float(low):g}, {float(high):g}]"


def _avg(block: Block, call: Call, name: str, options: dict[str, Any]) -> Aggregate:
    typed = _one_argument(block, call)
    if options.get("contribution_bounds_per_row") == "AUTO":
        return _auto(block, call, name, options, typed, "avg")
    item = bounded(block, call, options, typed, kinds=MOMENT_KINDS)
    low, high, steps = item.grid.low, item.grid.high, Fraction(item.grid.steps)
    centre, weighing = (low + high) // 2, None
    if item.per_group:  # the mean of the units' own means, which are no whole steps: so they get finer ones
        finer = max(1, _OWN_STEPS // max(1, high - low))
        low, high, centre, steps = low * finer, high * finer, centre * finer, steps * finer
        times = f" * {finer}" if finer > 1 else ""
        value = f"(COALESCE(SUM({item.y}), 0){times} // GREATEST(COUNT({item.y}), 1))"
        own = f"CASE WHEN COUNT({item.y}) > 0 THEN LEAST(GREATEST({value}, {low}), {high}) - {centre} ELSE 0 END"
        total = block.exact.partial(own, low - centre, high - centre, fixed=True)
        count = block.exact.partial(f"COUNT({item.y})", 0, 1, fixed=True)
    else:
        rows_bounded(block, call)
        weighing = block.exact.weighing(item.y, max(high - centre, centre - low))
        total = total_about(block, item, centre, weighing)
        count = block.exact.partial(f"COUNT({item.y})", 0, 1, weighing=weighing)

    def build(noise: NoiseOf) -> additive.Output:
        return additive.Mean(
            name, noise(total, 2), noise(count, 2), steps, Fraction(centre) / steps,
            (Fraction(low) / steps, Fraction(high) / steps), parts_of_a_row(weighing),
        )  # fmt: skip

    unit = "" if item.line is None or item.line.between is None else f", in {item.line.unit}"
    said = (
        f"average {block.source(call.args[0])}, held to {range_text(item)} ({item.origin}), "
        f"as a noisy sum over a noisy count{unit}{say_weighing(block, weighing)}"
    )
    return Aggregate(
        name, call, options.get("epsilon"), build, "DOUBLE", block.label(call), said, options.get("report_format"),
        shown=_back(item),
    )  # fmt: skip


def _spread(kind: str) -> Callable[[Block, Call, str, dict[str, Any]], Aggregate]:
    def bind(block: Block, call: Call, name: str, options: dict[str, Any]) -> Aggregate:
        typed = _one_argument(block, call)
        if options.get("contribution_bounds_per_group") is not None:
            raise BindError(f"{call.name} takes bounds per row only.", span=span_of(call.node))
        rows_bounded(block, call)
        item = bounded(block, call, options, typed, multiplied=True)
        low, high, steps = item.grid.low, item.grid.high, Fraction(item.grid.steps)
        centre = (low + high) // 2
        away = deviation(item, centre)
        most = max(high - centre, centre - low) ** 2
        weighing = block.exact.weighing(item.y, most)
        total = total_about(block, item, centre, weighing)
        squares = block.exact.partial(sum_of_products(away, away), 0, most, weighing=weighing)
        count = block.exact.partial(f"COUNT({item.y})", 0, 1, weighing=weighing)

        def build(noise: NoiseOf) -> additive.Output:
            return additive.Variance(
                name, noise(squares, 3), noise(total, 3), noise(count, 3), steps, Fraction(centre) / steps,
                (Fraction(low) / steps, Fraction(high) / steps), kind, whole=parts_of_a_row(weighing),
            )  # fmt: skip

        said = (
            f"{call.name} of {block.source(call.args[0])}, held to {range_text(item)} ({item.origin}), from noisy moments"
            f"{say_weighing(block, weighing)}"
        )
        return Aggregate(
            name, call, options.get("epsilon"), build, "DOUBLE", block.label(call), said, options.get("report_format"),
        )  # fmt: skip

    return bind


TABLE: dict[str, Callable[[Any, Call, str, dict[str, Any]], Aggregate]] = {
    "COUNT": _count,
    "COUNT_IF": _count_if,
    "SUM": _sum,
    "AVG": _avg,
    "VARIANCE": _spread("var_samp"),
    "VAR_POP": _spread("var_pop"),
    "STDDEV": _spread("stddev_samp"),
    "STDDEV_SAMP": _spread("stddev_samp"),
    "STDDEV_POP": _spread("stddev_pop"),
}
