"""Quantiles, medians, and the least and the greatest value: chosen among the points of a public grid.

Quantiles of one column share a histogram. Several of them are released one by one, each with its share of epsilon, or all
from one noisy tree: :mod:`dpsql.binding.dp.block_strategies`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from sqlglot import exp

from dpsql.binding.dp.aggregates import Aggregate, AggregateCall, BindingsByName, QuantileRequest
from dpsql.binding.values import fixed_point as grids
from dpsql.binding.values.fixed_point import MOMENT_KINDS, place_on_line
from dpsql.binding.values.sql_types import DOUBLE, Bounds, Type, Typed
from dpsql.catalogue.aggregate_names import AGGREGATE_OF_NAME
from dpsql.errors import BindError
from dpsql.exact.exact_query import Exact
from dpsql.language.dialect import bind_error, span_of, to_sql
from dpsql.language.options import Call, call_of, read_whole
from dpsql.mechanisms.histograms import GRID_STEP, STEP_ROWS
from dpsql.mechanisms.order_statistics import GeometricGrid, GradedGrid, WantedRank
from dpsql.mechanisms.quantiles import Quantiles
from dpsql.mechanisms.queries import As, Select, Subquery

_FRACTIONS = (-30, 64)
"""Rungs for numbers with fractions: bounds from about a billionth to 2^64."""
_FINE = 15
"""About 2^15 grid points between the bounds of a fractional column: the answer is no finer than that."""
_COARSE = 20
"""About 2^20 grid points for whole numbers and decimals that would have more than 2^24."""
_MAX_POINTS = 1 << 24
_ENDS = {Fraction(0): WantedRank.least(), Fraction(1): WantedRank.greatest()}
"""The quantiles of 0 and 1 are the ends: at such a rank, every point outside the data would be as good."""
QUANTILES = BindingsByName()


def write_histogram(exact: Exact, keys: Sequence[str], y: str, clamped: str, groups: int) -> str:
    """Return the query of the number of rows at each grid step: ``clamped`` is the step of ``v``."""
    held, step = Subquery(exact.held(y, groups), "held"), As(clamped, GRID_STEP)
    by, count = (*keys, GRID_STEP), As("COUNT(*)", STEP_ROWS)
    return Select((*keys, step, count), held, where="v IS NOT NULL", group=by).sql


def write_points(
    exact: Exact, y: str, narrow: str, grid: grids.Grid, groups: int, graded: GradedGrid | None = None
) -> tuple[str, str | None]:
    """Return the histogram of a column on its grid, and a query of ``narrow`` itself if there are no groups.

    Args:
        y: the even step of a row, or its number if the grid is ``graded``; NULL if it is missing.
        narrow: ``y`` in fewer bits.
    """
    keys = exact.names
    # LEAST keeps DuckDB's statistics of a column's range, which save a hash table; it would turn NULL into a bound, so
    # missing values are dropped first. A scaled float has no such statistics, and arithmetic is the quickest.
    clamped = grids.write_clamped("v", grid)
    if graded is not None:
        clamped = f"LEAST(GREATEST({graded.write_step('v')}, {graded.first}), {graded.last})"
    elif grid.steps == 1:
        clamped = f"LEAST(GREATEST(v, {grid.low}), {grid.high})"
    query = write_histogram(exact, keys, y, clamped, groups)
    if keys:
        return query, None
    return query, Select(As("v", "value"), Subquery(exact.held(narrow, groups), "held")).sql


def choose_points(kind: Type, low: Fraction, high: Fraction) -> grids.Grid:
    """Return the public grid of the possible answers."""
    grid = grids.choose_grid(kind, low, high, fine=_FINE)
    if grid.high - grid.low > _MAX_POINTS:  # whole numbers and decimals far apart: as fine as that allows
        grid = grids.choose_grid(DOUBLE, low, high, fine=_COARSE)
    return grid


def refine_points(kind: Type, grid: grids.Grid) -> GradedGrid | None:
    """Return the grid with more points near 0, if it is too coarse there for values much smaller than the bounds."""
    if grid.wide or not kind.numeric:
        return None
    finest = Fraction(0)
    if kind.kind in ("INTEGER", "DECIMAL"):
        finest = Fraction(1, 10 ** (kind.digits[1] if kind.kind == "DECIMAL" else 0))
    return GradedGrid.refine(Fraction(grid.steps), grid.low, grid.high, finest)


def _write_finite(typed: Typed) -> str:
    """Return a number's SQL as a DOUBLE, NULL if it is not finite."""
    number = f"CAST({to_sql(typed.node)} AS DOUBLE)"
    return f"CASE WHEN ABS({number}) < CAST('Infinity' AS DOUBLE) THEN {number} END"


@QUANTILES.of_form("quantile")
def _quantile(asked: AggregateCall) -> Aggregate:
    call = asked.call
    call.require(AGGREGATE_OF_NAME[call.name].arguments[1])
    asked.refuse_distinct()
    asked.refuse_group_bounds()
    if "local_sensitivity" in call.named:
        what = "local_sensitivity is for PTR."
        raise bind_error(call.node, what, "leave local_sensitivity out, or ask under the mode PTR.")
    ranks = _read_ranks(call)
    asked.require_rows()
    typed = asked.block.expression(call.args[0])
    if asked.options.get("contribution_bounds_per_row") == "AUTO":
        return _unbounded_quantile(asked, typed, ranks)
    between = call.name in ("MEDIAN", "QUANTILE_CONT")
    kinds = {"QUANTILE_CONT": MOMENT_KINDS, "APPROX_QUANTILES": ()}.get(call.name, (*MOMENT_KINDS, "BOOLEAN"))
    low, high, origin = asked.bounds(typed, kinds=kinds)
    place = place_on_line(typed, low, high)
    grid = choose_points(place.typed.type, place.low, place.high)
    graded = refine_points(typed.type, grid)
    steps = [to_sql(grids.write_steps(place.typed, grid, narrow)) for narrow in (False, True)]
    if graded is not None:  # a number that has no even step is missing
        steps = [f"CASE WHEN {steps[1]} IS NOT NULL THEN CAST({to_sql(typed.node)} AS DOUBLE) END"] * 2
    y, narrow = (asked.block.filtered(call, sql) for sql in steps)
    whole = place.typed.type.kind == "INTEGER" and grid.steps == 1 and not between
    back = place.between if between else place.own
    kind = "BIGINT" if whole else "DOUBLE"
    if back is None:
        kind = _quantile_type(typed, low, high, between)
    many = f"{len(ranks)} quantiles " if len(ranks) > 1 else ""
    points = grid.high - grid.low + 1 if graded is None else graded.last - graded.first + 1
    said = f"{many}among {points} grid points, bounds {origin}"
    request = QuantileRequest(y, narrow, grid, ranks, whole, graded)
    plain = back is None or not (typed.type.kind == "BOOLEAN" or asked.options.get("report_format"))
    bars = len(ranks) == 1 and plain and not call.node.meta.get(IN_LIST)
    return asked.make(kind + "[]" * (len(ranks) > 1), said, quantile=request, shown=back, intervals=bars)


def _unbounded_quantile(asked: AggregateCall, typed: Typed, ranks: tuple[WantedRank, ...]) -> Aggregate:
    """Bind a quantile of numbers without bounds: the exponential mechanism over a geometric grid of both signs.

    Durfee 2023 asks the sparse vector technique about each point of such a grid. The exponential mechanism's error is fewer
    rows at equal epsilon: the tests compare them.
    """
    asked.require_number(typed)
    if asked.options.get("report_format"):
        raise bind_error(asked.call.node, "AUTO bounds have no JSON report.")
    low, high = find_ladder(typed.type)
    grid = GeometricGrid(low, max(high, low + 1))
    y = asked.block.filtered(asked.call, _write_finite(typed))
    whole = typed.type.kind == "INTEGER" and high <= 63 and asked.call.name not in ("MEDIAN", "QUANTILE_CONT")

    bars = len(ranks) == 1 and not asked.call.node.meta.get(IN_LIST)

    def part(epsilon: Fraction) -> Quantiles:
        names, exact = (asked.name,) * len(ranks), asked.exact
        query = write_histogram(exact, exact.names, y, grid.write_step("v"), asked.groups)
        return Quantiles(
            query, exact.names, names, ranks, -grid.last, grid.last, epsilon, exact.rows_per_unit, asked.groups,
            whole=whole, geometric=grid, in_all=exact.budgeted,
            confidence=asked.block.options.confidence if bars else None,
        )  # fmt: skip

    kind = ("BIGINT" if whole else "DOUBLE") + "[]" * (len(ranks) > 1)
    said = f"{asked.source()} among the {2 * grid.last + 1} points of a geometric grid"
    return asked.make(kind, said, part=part, intervals=bars)


IN_LIST = "dpsql_in_list"
"""The mark of calls whose values are in a list, which has no intervals."""
_MAX_QUANTILES = 1000
"""The most equal parts of one call."""


def _read_ranks(call: Call) -> tuple[WantedRank, ...]:
    """Return the ranks of a call: for ``APPROX_QUANTILES(x, n)``, those that divide the rows into n equal parts."""
    if call.name != "APPROX_QUANTILES":
        rank = AGGREGATE_OF_NAME[call.name].rank
        p = call.read_probability() if rank is None else rank
        return (_ENDS.get(p, WantedRank(p)),)
    parts = read_whole(call.args[1], "the number of quantiles")
    if parts > _MAX_QUANTILES:
        what = f"APPROX_QUANTILES divides rows into at most {_MAX_QUANTILES} parts."
        hint = "each of its values gets an equal part of epsilon: ask for fewer."
        raise bind_error(call.args[1], what, hint)
    between = (WantedRank(Fraction(i, parts)) for i in range(1, parts))
    return (WantedRank.least(), *between, WantedRank.greatest())


def split_quantiles(node: exp.Expr, call: Call) -> list[exp.Expr]:
    """Return ``QUANTILE_CONT(x, [0.25, 0.5])`` as one call for each of the list; nothing for other calls.

    Raises:
        BindError: the call has its own epsilon, which would be for the whole list.
    """
    if not call.name.startswith("QUANTILE") or len(call.args) != 2 or not isinstance(call.args[1], exp.Array):
        return []
    if any(isinstance(p, exp.Array) for p in call.args[1].expressions):
        raise bind_error(call.node, "the quantiles must be a list of numbers.")
    if "epsilon" in call.named:
        span = span_of(call.named["epsilon"][1])
        hint = "write a call for each, with its own share."
        raise BindError("epsilon => is for one quantile.", span=span, hint=hint)
    out = []
    for p in call.args[1].expressions:
        one = node.copy()
        inner = call_of(one)
        assert inner is not None
        inner.args[1].replace(p.copy())
        inner.node.meta[IN_LIST] = True
        out.append(one)
    return out


def _quantile_type(typed: Typed, low: Fraction, high: Fraction, between: bool) -> str:
    """Return DuckDB's type of a quantile: its argument's; DOUBLE between integers, or if that type lacks the bounds."""
    ends, most = Bounds(low, high), max(abs(low), abs(high))
    for kind in (typed.shown, typed.type):
        if kind.kind == "INTEGER" and (between or (kind.reach is not None and kind.reach.holds(ends))):
            return "DOUBLE" if between else kind.sql
        if kind.kind == "DECIMAL" and most < Fraction(10) ** kind.digits[0]:
            return kind.sql
        if kind.sql == "FLOAT" and most < 10**38:
            return "FLOAT"
    return "DOUBLE"


_Points = tuple[str, str, grids.Grid, bool, GradedGrid | None]


def quantile_parts(
    exact: Exact,
    keys: tuple[str, ...],
    asked: Sequence[tuple[Aggregate, Fraction]],
    groups: int,
    confidence: float,
) -> tuple[Quantiles, ...]:
    """Return one part for each column asked about: its quantiles share the histogram and the sum of their shares."""
    by_column: dict[_Points, list[tuple[str, WantedRank, Fraction]]] = {}
    for item, share in asked:
        if (q := item.quantile) is not None:
            wanted = [(item.name, rank, share / len(q.ranks)) for rank in q.ranks]
            by_column.setdefault((q.y, q.narrow, q.grid, q.whole, q.graded), []).extend(wanted)
    parts, groups = [], 1 if exact.budgeted else groups
    for (y, narrow, grid, whole, graded), items in by_column.items():
        query, values = write_points(exact, y, narrow, grid, groups, graded)
        low, high, each = grid.low, grid.high, Fraction(grid.steps)
        if graded is not None:
            low, high, each = graded.first, graded.last, Fraction(1)
        names, ranks, shares = zip(*items, strict=True)
        with_bars = {item.name for item, _ in asked if item.intervals}
        bars = tuple(name in with_bars for name in names)
        parts.append(
            Quantiles(
                query, keys, names, ranks, low, high, sum(shares, Fraction(0)), exact.rows_per_unit, groups,
                each, whole, values, graded, exact.budgeted, confidence if any(bars) else None, bars if any(bars) else (),
            )
        )  # fmt: skip
    return tuple(parts)


def find_ladder(kind: Type) -> tuple[int, int]:
    """Return the lowest and highest power of two that a type can need."""
    if kind.kind == "INTEGER" and kind.reach is not None and kind.reach.high is not None:
        return 0, int(kind.reach.high).bit_length()
    if kind.kind == "DECIMAL":
        before, after = kind.digits
        return -(-after * -10 // 3), before * 10 // 3 + 1
    return _FRACTIONS
