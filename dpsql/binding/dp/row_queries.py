"""The aggregates that read rows with a query of their own: quantiles, histograms, modes, different values, found bounds.

Quantiles are chosen among the points of a public grid. Those of one column share a histogram. Several of them are released one
by one, each with its share of epsilon, or all from one noisy tree: :mod:`dpsql.binding.dp.block_strategies`.

``HISTOGRAM(x)`` over declared values, ``HISTOGRAM(x, [bins])`` and ``HISTOGRAM_EXACT(x, [values])`` are DuckDB's maps, noisy.
As in DuckDB, the bins of ``HISTOGRAM(x, [b1, b2])`` are closed above, (.., b1] and (b1, b2], and values in none of them are
counted under the greatest value of the type ('' for text). Unlike DuckDB, that key always exists, and counts may be
negative. ``MODE(x)`` chooses among public values. ``contribution_bounds_per_row => AUTO`` finds clipping bounds in one pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from itertools import pairwise

from sqlglot import exp

from dpsql.binding.dp.aggregates import (
    Aggregate,
    AggregateCall,
    BindingsByName,
    QuantileRequest,
    advise_bounds,
    choose_sum_type,
)
from dpsql.binding.values import fixed_point as grids
from dpsql.binding.values.sql_types import BOOLEAN, DOUBLE, Bounds, Type, Typed, make_cast
from dpsql.errors import BindError, did_you_mean
from dpsql.exact.exact_query import Exact
from dpsql.language.dialect import bind_error, privacy_error, span_of, to_sql
from dpsql.language.options import Call, call_of, read_whole
from dpsql.language.parameters import make_literal
from dpsql.mechanisms.auto_bounds import PLACES, SHARED, AutoBounded, find_exponent
from dpsql.mechanisms.histograms import (
    BIN,
    BIN_ROWS,
    GRID_STEP,
    STEP_ROWS,
    DistinctCount,
    DistinctSum,
    Histogram,
    bound_distinct_sum,
)
from dpsql.mechanisms.order_statistics import GeometricGrid, GradedGrid, WantedRank
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.quantiles import Quantiles
from dpsql.mechanisms.queries import ROW_COUNT, As, Select, Subquery

_FRACTIONS = (-30, 64)
"""Rungs for numbers with fractions: bounds from about a billionth to 2^64."""
_FINE = 15
"""About 2^15 grid points between the bounds of a fractional column: the answer is no finer than that."""
_COARSE = 20
"""About 2^20 grid points for whole numbers and decimals that would have more than 2^24."""
_MAX_POINTS = 1 << 24
_ENDS = {Fraction(0): WantedRank.least(), Fraction(1): WantedRank.greatest()}
"""The quantiles of 0 and 1 are the ends: at such a rank, every point outside the data would be as good."""
OWN_QUERIES = BindingsByName()


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


@OWN_QUERIES.of_form("quantile")
def _quantile(asked: AggregateCall) -> Aggregate:
    call = asked.call
    call.require(asked.row.arguments[1])
    asked.refuse_distinct()
    asked.refuse_group_bounds()
    if "local_sensitivity" in call.named:
        what = "local_sensitivity is for PTR."
        raise bind_error(call.node, what, "leave local_sensitivity out, or ask under the mode PTR.")
    ranks = _read_ranks(asked)
    asked.require_rows()
    typed = asked.block.expression(call.args[0])
    if asked.options.get("contribution_bounds_per_row") == "AUTO":
        return _unbounded_quantile(asked, typed, ranks)
    between = call.name in ("MEDIAN", "QUANTILE_CONT")
    kinds = {"QUANTILE_CONT": grids.MOMENT_KINDS, "APPROX_QUANTILES": ()}.get(
        call.name, (*grids.MOMENT_KINDS, "BOOLEAN")
    )
    low, high, origin = asked.bounds(typed, kinds=kinds)
    place = grids.place_on_line(typed, low, high)
    grid = choose_points(place.typed.type, place.low, place.high)
    graded = refine_points(typed.type, grid)
    steps = [to_sql(grids.write_steps(place.typed, grid, narrow)) for narrow in (False, True)]
    if (
        graded is not None
    ):  # a number that has no even step is missing: the route that counts in memory leaves it out
        number = f"CAST({to_sql(typed.node)} AS DOUBLE)"
        steps = [f"CASE WHEN {steps[1]} IS NOT NULL THEN {number} END", number]
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


def _read_ranks(asked: AggregateCall) -> tuple[WantedRank, ...]:
    """Return the ranks of a call: for ``APPROX_QUANTILES(x, n)``, those that divide the rows into n equal parts."""
    call = asked.call
    if call.name != "APPROX_QUANTILES":
        rank = asked.row.rank
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


# -- histograms, modes ------------------------------------------------------------------------------------------

_MAX_BINS = 10_000

_NUMBERS = ("INTEGER", "DECIMAL", "DOUBLE")


@OWN_QUERIES.of_form("histogram")
def _histogram(asked: AggregateCall) -> Aggregate:
    call, block = asked.call, asked.block
    if len(call.args) not in (1, 2) or call.distinct:
        hint = f"write HISTOGRAM({to_sql(call.args[0])}, [0, 10, 20])." if call.args else None
        raise bind_error(call.node, f"{call.name} takes a column, and a list of bins.", hint)
    asked.refuse_options()
    asked.require_rows()
    typed = block.expression(call.args[0])
    others = None
    if len(call.args) == 2:
        kind, bins = _given_bins(asked, typed)
        others = _key_of_others(kind)
    else:
        kind, bins = typed.type, _declared_bins(asked, typed)
    if len(bins) > _MAX_BINS:
        raise bind_error(call.args[-1], f"a histogram has at most {_MAX_BINS} bins.")
    sql = to_sql(typed.node)
    value = f"CAST({sql} AS {kind.sql})" if kind != typed.type else f"({sql})"
    meets = "<=" if others is not None and call.name == "HISTOGRAM" else "="
    cases = " ".join(f"WHEN v {meets} {_write_bin(end, kind)} THEN {i}" for i, end in enumerate(bins))
    rest = f" ELSE {len(bins)}" if others is not None else ""
    place = f"CASE WHEN v IS NULL THEN NULL {cases}{rest} END"
    shown = bins if others is None else [*bins, others]
    _refuse_other_bins(call.node, shown)

    def part(epsilon: Fraction) -> Histogram:
        noise, exact = LaplaceNoise(epsilon, asked.exact.rows_per_unit, asked.groups), asked.exact
        query = _write_bins(asked, value, place)
        return Histogram(query, exact.names, asked.name, len(shown), noise, exact.budgeted)

    origin = "true and false" if kind == BOOLEAN else "declared by the policy"
    origin = "given" if others is not None else origin
    said = f"count the rows with {asked.source()} in {len(shown)} bins ({origin}); all of them are shown"
    return asked.make("BIGINT[]", said, part=part, intervals=False, shown=partial(_write_map, shown))


def _refuse_other_bins(node: exp.Expr, bins: list[exp.Expr]) -> None:
    """Raise BindError for a literal in brackets that is none of the bins: its count would be NULL, and charged."""
    place = node.parent
    while isinstance(place, exp.Paren):
        node, place = place, place.parent
    key = place.expressions[0] if isinstance(place, exp.Bracket) and len(place.expressions) == 1 else None
    names = [_name_bin(bin_) for bin_ in bins]
    if key is None or not isinstance(key, exp.Literal) or None in names:
        return
    wanted = (
        key.name if key.is_string or not key.is_int else str(int(key.name) + 1)
    )  # parsed as an index from 0
    known = [name for name in names if name is not None]
    number = _read_number(wanted)
    if wanted in known or (number is not None and number in map(_read_number, known)):
        return
    what = f"the histogram has no bin {wanted if number is not None else repr(wanted)}."
    raise bind_error(key, what, did_you_mean(wanted, known), around=place)


def _name_bin(node: exp.Expr) -> str | None:
    """Return the text of a bin that is a literal, or a cast of one."""
    while isinstance(node, exp.Cast | exp.Paren):
        node = node.this
    return node.name if isinstance(node, exp.Literal) else None


def _read_number(text: str) -> Fraction | None:
    with suppress(ValueError, ZeroDivisionError):
        return Fraction(text)
    return None


def _write_map(bins: list[exp.Expr], counts: exp.Expr) -> exp.Map:
    """Return the map of bins to their counts, of unknown type.

    A key in brackets after the call was parsed as an index from 0. sqlglot writes it from 1 again only for an unknown type;
    otherwise a bin of whole numbers would become the one before.
    """
    made = exp.Map(keys=exp.Array(expressions=bins).copy(), values=counts)
    made.type = exp.DataType(this=exp.DataType.Type.UNKNOWN)
    return made


def _write_bins(asked: AggregateCall, value: str, place: str) -> str:
    """Return the query of the number of rows in each bin: ``place`` is the bin of ``v``, NULL if it is in none."""
    keys = asked.exact.names
    rows = asked.exact.held(asked.block.filtered(asked.call, value), asked.groups)
    placed = Subquery(Select((*keys, As(place, BIN)), Subquery(rows, "held")), "placed")
    by = (*keys, BIN)
    return Select((*by, As("COUNT(*)", BIN_ROWS)), placed, where=f"{BIN} IS NOT NULL", group=by).sql


@OWN_QUERIES.of_form("mode")
def _mode(asked: AggregateCall) -> Aggregate:
    """Bind ``MODE(x)`` over declared values, booleans, or integers between bounds."""
    asked.call.require(1)
    asked.refuse_distinct()
    asked.refuse_options()
    asked.require_rows()
    typed = asked.block.expression(asked.call.args[0])
    value = f"({to_sql(typed.node)})"
    ends = typed.ends if typed.type.kind == "INTEGER" and typed.values is None else None
    low, high, bins = 0, 0, list[exp.Expr]()
    if ends is not None and ends[1] - ends[0] < _MAX_BINS:
        low, high = math.floor(ends[0]), math.ceil(ends[1])
        place = f"CASE WHEN v IS NOT NULL THEN LEAST(GREATEST(v, {low}), {high}) - {low} END"
        many = high - low + 1
    else:
        bins = _declared_bins(asked, typed)
        cases = " ".join(f"WHEN v = {_write_bin(end, typed.type)} THEN {i}" for i, end in enumerate(bins))
        place, many = f"CASE WHEN v IS NULL THEN NULL {cases} END", len(bins)

    def shown(column: exp.Expr) -> exp.Expr:
        if not bins:
            return make_cast(exp.Add(this=column, expression=make_literal(low)), typed.type)
        index = exp.Add(this=column, expression=exp.Literal.number(1))
        return exp.Anonymous(this="list_extract", expressions=[exp.Array(expressions=bins).copy(), index])

    from dpsql.mechanisms.selection.exponential import MostFrequent  # for MODE alone

    def part(epsilon: Fraction) -> MostFrequent:
        query, exact = _write_bins(asked, value, place), asked.exact
        return MostFrequent(
            query, exact.names, asked.name, many, epsilon, exact.rows_per_unit, asked.groups, exact.budgeted
        )

    said = f"choose among the {many} public values of {asked.source()} by how many rows have each"
    return asked.make("BIGINT", said, part=part, intervals=False, shown=shown)


def _write_bin(bin_: exp.Expr, kind: Type) -> str:
    return f"CAST({to_sql(bin_.this)} AS {kind.sql})" if isinstance(bin_, exp.Cast) else to_sql(bin_)


def _declared_bins(asked: AggregateCall, typed: Typed) -> list[exp.Expr]:
    if typed.values is not None and isinstance(typed.node, exp.Column):
        return [make_cast(make_literal(value), typed.type) for value in typed.values]
    if typed.type.kind == "BOOLEAN":
        return [exp.false(), exp.true()]
    asked.refuse_moment(typed)
    name, source, kind = asked.call.name, asked.source(), typed.type.kind
    what = f"{name}({source}) needs public values of {source}; the policy declares none."
    examples = {"DATE": "[DATE '2024-06-30', DATE '2024-12-31']", "TEXT": "['a', 'b']"}
    call = f"HISTOGRAM{'_EXACT' * (kind == 'TEXT')}({source}, {examples.get(kind, '[10, 20, 30]')})"
    hint = f"write the bins, {call}, or ask the data owner for values."
    if name == "MODE":
        counts = Select((source, ROW_COUNT), group=source, order="n DESC", limit=1)
        counted = asked.block.write_select(counts)
        hint = f"write SELECT WITH PTR MODE({source}){f', or {counted}' if counted else ''}."
    raise privacy_error(asked.call.node, what, hint)


def _given_bins(asked: AggregateCall, typed: Typed) -> tuple[Type, list[exp.Expr]]:
    """Return the type of the comparison, and the bins in ascending order."""
    call, place, kind = asked.call, asked.call.args[1], typed.type
    if not isinstance(place, exp.Array) or not place.expressions:
        span = span_of(place) or span_of(call.node)
        raise BindError("the bins must be a list of literals.", span=span, hint="write [0, 10, 20].")
    bins = [asked.block.expression(node) for node in place.expressions]
    exactly = call.name != "HISTOGRAM"
    allowed = (*_NUMBERS, "DATE", "TIMESTAMP", *(("TEXT", "UUID", "BOOLEAN") if exactly else ()))
    if kind.kind not in allowed:
        what = f"{call.name} with bins needs a number or a date, and this is {kind.sql}."
        counted = f"HISTOGRAM_EXACT({to_sql(call.args[0])}, {to_sql(place)})"
        hint = None if exactly else f"write {counted}: it counts values."
        raise bind_error(call.args[0], what, hint)
    comparable = {kind.kind, *(_NUMBERS if kind.kind in _NUMBERS else ())}
    comparable |= {"DATE"} if kind.kind == "TIMESTAMP" else set()
    for node, bin_ in zip(place.expressions, bins, strict=True):
        if not (bin_.constant and bin_.type.kind in comparable):
            raise bind_error(node, f"a bin of {asked.source()} must be a literal of its type.")
    if kind.kind in _NUMBERS:
        whole = kind.kind == "INTEGER" and all(_has_room(kind, bin_) for bin_ in bins)
        kind = kind if whole else DOUBLE
        numbers = [b.bounds.low for b in bins if b.bounds is not None and b.bounds.low is not None]
        if any(a >= b for a, b in pairwise(numbers)):
            named = dict(zip(numbers, map(to_sql, place.expressions), strict=False))
            hint = f"write [{', '.join(named[number] for number in sorted(named))}]."
            raise bind_error(place, "bins must be in ascending order.", hint if len(named) > 1 else None)
    return kind, [make_cast(bin_.node, kind) for bin_ in bins]


def _has_room(kind: Type, bin_: Typed) -> bool:
    """Return whether an integer type contains a bin, and a number above it."""
    low = bin_.bounds.low if bin_.bounds is not None else None
    if bin_.type.kind != "INTEGER" or low is None or kind.reach is None:
        return False
    return kind.reach.holds(Bounds(low, low + 1))


def _key_of_others(kind: Type) -> exp.Expr:
    """Return the key of values in no bin: as in DuckDB, the greatest value of the type."""
    if kind.kind == "TEXT":
        return exp.Literal.string("")
    if kind.kind in ("UUID", "BOOLEAN"):
        return make_cast(exp.null(), kind)
    greatest = "infinity"
    if kind.kind == "INTEGER" and kind.reach is not None and kind.reach.high is not None:
        greatest = str(int(kind.reach.high))
    elif kind.kind in ("DATE", "TIMESTAMP"):
        greatest = "9999-12-31"  # Python has no infinite date; DuckDB's client shows this
    return make_cast(exp.Literal.string(greatest), kind)


# -- bounds that are found --------------------------------------------------------------------------------------


def bind_auto_bounds(asked: AggregateCall, typed: Typed, kind: str) -> Aggregate:
    """Bind a sum, mean or variance whose clipping bounds are found privately."""
    asked.refuse_bounds_twice()
    asked.require_rows()
    asked.require_number(typed)
    if asked.options.get("report_format"):
        raise bind_error(asked.call.node, "AUTO bounds have no JSON report.")
    what = {"sum": "add", "avg": "average"}.get(kind, f"{asked.call.name} of")
    said = f"{what} {asked.source()}, clamped to bounds found privately"
    return asked.make("DOUBLE", said, part=lambda epsilon: _auto_bounded(asked, typed, kind, epsilon))


def _auto_bounded(asked: AggregateCall, typed: Typed, kind: str, epsilon: Fraction) -> AutoBounded:
    block, exact = asked.block, asked.exact
    keys = exact.names
    low, high = find_ladder(typed.type)
    least, most = _declared_bounds(typed)
    if least is not None and most is not None:  # powers of two outside of declared bounds are not needed
        high = max(low, min(high, find_exponent(max(abs(least), abs(most), Fraction(2) ** low))))
    value = f"CAST({block.filtered(asked.call, to_sql(typed.node))} AS DOUBLE)"
    power = f"CASE WHEN v = 0 THEN {low} ELSE CAST(LEAST(GREATEST(CEIL(TRY(LOG2(ABS(v)))), {low}), {high}) AS INTEGER) END"

    def place(given: Select) -> Subquery:
        rows = Select("*", Subquery(given, "given"), where="ABS(v) < CAST('Infinity' AS DOUBLE)")
        if least is not None or most is not None:  # without NULL, which LEAST would turn into a bound
            inside = "v"
            for end, pick in ((most, "LEAST"), (least, "GREATEST")):
                inside = inside if end is None else f"{pick}({inside}, CAST('{float(end)!r}' AS DOUBLE))"
            rows = Select((*keys, As(inside, "v")), Subquery(rows, "present"))
        sign = As("CASE WHEN v > 0 THEN 1 WHEN v < 0 THEN -1 ELSE 0 END", "sign")
        return Subquery(Select(("*", sign, As(power, "rung")), Subquery(rows, "held")), "placed")

    steps = f"CAST(LEAST(ROUND(ABS(v) / POW(2.0, rung - {PLACES})), {1 << PLACES}) AS BIGINT)"
    by, count, total = (*keys, "sign", "rung"), ROW_COUNT, As(f"SUM({steps})", "total")
    squares = () if kind in ("sum", "avg") else (As(f"SUM({steps} * {steps})", "squares"),)
    query = Select((*by, count, total, *squares), place(exact.held(value, asked.groups)), group=by).sql
    sample = ""
    if exact.rows_per_unit * asked.groups > 1:
        of_bins = ("sign", "rung")
        sample = Select((*of_bins, count), place(exact.one_row(value)), group=of_bins).sql
    if block.autos is None:
        block.autos = _count_auto(asked)
    return AutoBounded(
        query, keys, asked.name, kind, epsilon, low, high, exact.rows_per_unit, asked.groups, block.confidence,
        least, most, block.autos, exact.budgeted, sample,
    )  # fmt: skip


def _declared_bounds(typed: Typed) -> tuple[Fraction | None, Fraction | None]:
    """Return the declared bounds of an expression, rounded outwards to doubles, for clamping its values."""
    bounds = typed.bounds or Bounds()
    return _round_outwards(bounds.low, -math.inf), _round_outwards(bounds.high, math.inf)


def _round_outwards(end: Fraction | None, away: float) -> Fraction | None:
    """Round to the nearest double that is not inside the bounds; None if no double is."""
    if end is None:
        return None
    try:
        near = float(end)
    except OverflowError:
        return None
    if (Fraction(near) < end) if away > 0 else (Fraction(near) > end):
        near = math.nextafter(near, away)
    return Fraction(near) if math.isfinite(near) else None


def _count_auto(asked: AggregateCall) -> int:
    """Return the number of aggregates with AUTO in the whole statement, bound or not."""
    binder, root = asked.block.binder, asked.block.select.root()
    waiting = sum(node.name.upper() == "AUTO" for node in root.find_all(exp.Column, exp.Var))
    parts = (part for block in binder.blocks for part in block.own_queries)
    return max(SHARED, waiting + sum(isinstance(part, AutoBounded) for part in parts))


# -- different values -------------------------------------------------------------------------------------------


def count_values(asked: AggregateCall) -> Aggregate:
    """Bind ``COUNT(DISTINCT x)``."""
    asked.refuse_options()
    asked.require_rows()
    value = asked.block.filtered(asked.call, to_sql(asked.block.expression(asked.call.args[0]).node))

    def part(epsilon: Fraction) -> DistinctCount:
        exact, keys, groups = asked.exact, asked.exact.names, asked.groups
        different = As("COUNT(DISTINCT v)", "n")
        query, parts = (
            Select((*keys, different), Subquery(exact.held(value, groups, in_parts), "held"), group=keys).sql
            for in_parts in (False, True)
        )
        probe = Select(As("APPROX_COUNT_DISTINCT(rows.v)", "n"), Subquery(exact.plain(value), "rows")).sql
        noise = LaplaceNoise(epsilon, exact.rows_per_unit, groups)
        confidence, in_all = asked.block.confidence, exact.budgeted
        return DistinctCount(query, keys, asked.name, noise, confidence, in_all, parts, probe)

    said = f"count the different values of {asked.source()}"
    return asked.make("BIGINT", said, part=part, noise_step=Fraction(1))


def sum_distinct(asked: AggregateCall) -> Aggregate:
    """Bind ``SUM(DISTINCT x)``, the sum of the values that occur in a histogram."""
    asked.refuse_group_bounds()
    asked.call.require(1)
    if asked.options.get("contribution_bounds_per_row") == "AUTO":
        what = "AUTO bounds are for SUM(x), not for SUM(DISTINCT x)."
        typed = asked.block.expression(asked.call.args[0])
        raise privacy_error(asked.call.node, what, advise_bounds(typed))
    asked.require_rows()
    typed = asked.block.expression(asked.call.args[0])
    low, high, origin = asked.bounds(typed)
    grid = grids.choose_grid(typed.type, low, high)
    values = None
    if typed.values is not None and isinstance(typed.node, exp.Column):
        scaled = (round(Fraction(str(value)) * grid.steps) for value in typed.values)
        values = tuple(sorted({min(max(v, grid.low), grid.high) for v in scaled}))
        origin = "the declared values"
    y = asked.block.filtered(asked.call, to_sql(grids.write_steps(typed, grid)))
    exact, steps = asked.exact, Fraction(grid.steps)

    def bound_change() -> int:
        return max(1, bound_distinct_sum(exact.rows_per_unit, grid.low, grid.high, values, exact.budgeted))

    def part(epsilon: Fraction) -> DistinctSum:
        noise = LaplaceNoise(epsilon, bound_change(), asked.groups)
        query = write_histogram(exact, exact.names, y, grids.write_clamped("v", grid), asked.groups)
        return DistinctSum(
            query, exact.names, asked.name, grid.low, grid.high, exact.rows_per_unit, noise, steps, values,
            asked.block.confidence, exact.budgeted,
        )  # fmt: skip

    said = (
        f"add the different values of {asked.source()}, clamped to [{float(low):g}, {float(high):g}] ({origin}); "
        f"one privacy unit moves this by at most {float(bound_change() / steps):g}"
    )
    kind = choose_sum_type(typed.type, typed.type, grid)
    return asked.make(kind, said, part=part, noise_step=1 / steps)
