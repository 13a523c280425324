"""The noisy aggregates, each bound by one function: formulas of moments, and aggregates with a query of their own.

Counts, sums, averages, variances, covariances and regressions are formulas of noisy moments: exact partials of one query, which
:class:`AggregateCall` bounds and a mechanism makes noisy. The catalogue has their names.

Histograms, modes, and sums within bounds that are found read rows instead.
``HISTOGRAM(x)`` over declared values, ``HISTOGRAM(x, [bins])`` and ``HISTOGRAM_EXACT(x, [values])`` are DuckDB's maps, noisy.
As in DuckDB, the bins of ``HISTOGRAM(x, [b1, b2])`` are closed above, (.., b1] and (b1, b2], and values in none of them are
counted under the greatest value of the type ('' for text). Unlike DuckDB, that key always exists, and counts may be
negative. ``MODE(x)`` chooses among public values. ``contribution_bounds_per_row => AUTO`` finds clipping bounds in one pass.
"""

from __future__ import annotations

import contextlib
import decimal
import math
import re
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import pairwise

from sqlglot import exp

from dpsql.binding.dp.aggregates import (
    Aggregate,
    AggregateCall,
    BindingsByName,
    Bounded,
    Formula,
    advise_bounds,
)
from dpsql.binding.dp.private_block import AggregatingBlock
from dpsql.binding.dp.quantile_calls import QUANTILES, find_ladder, write_histogram
from dpsql.binding.values import fixed_point as grids
from dpsql.binding.values.coercion import refuse_moment
from dpsql.binding.values.fixed_point import MOMENT_KINDS, Line
from dpsql.binding.values.sql_types import BOOLEAN, DOUBLE, Bounds, Type, Typed, make_cast
from dpsql.binding.values.total_expressions import PRESENCE
from dpsql.catalogue.aggregate_names import AGGREGATE_OF_NAME
from dpsql.errors import BindError, did_you_mean
from dpsql.exact.exact_query import Partial, Weighing
from dpsql.language.dialect import NAMED, bind_error, privacy_error, span_of, to_sql
from dpsql.language.options import Call, call_of, read_epsilon
from dpsql.language.parameters import make_literal
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Together
from dpsql.mechanisms.auto_bounds import PLACES, SHARED, AutoBounded, find_exponent
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.contribution_caps import CapSearch
from dpsql.mechanisms.histograms import (
    BIN,
    BIN_ROWS,
    DistinctCount,
    DistinctSum,
    Histogram,
    bound_distinct_sum,
)
from dpsql.mechanisms.moments import Axis, Count, Mean, Output, Pair, Sum, Variance
from dpsql.mechanisms.per_group import LaplaceNoise, Statistic
from dpsql.mechanisms.queries import ROW_COUNT, As, Select, Subquery

OWN_QUERIES = BindingsByName(QUANTILES)

# -- histograms, modes -------------------------------------------------------------------------------------------

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
    ends = (typed.bounds if typed.type.kind == "INTEGER" and typed.values is None else None) or Bounds()
    low, high, bins = 0, 0, list[exp.Expr]()
    if ends.low is not None and ends.high is not None and ends.high - ends.low < _MAX_BINS:
        low, high = math.floor(ends.low), math.ceil(ends.high)
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
    """Return the column's public values."""
    if typed.values is not None and isinstance(typed.node, exp.Column):
        return [make_cast(make_literal(value), typed.type) for value in typed.values]
    if typed.type.kind == "BOOLEAN":
        return [exp.false(), exp.true()]
    refuse_moment(replace(typed, place=asked.call.args[0]))
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
    said = f"{what} {asked.source()}, held to bounds found privately"
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
    operators = (_find_innermost(bound.operator) for bound in binder.blocks)
    parts = (part for operator in operators if isinstance(operator, Together) for part in operator.parts)
    return max(SHARED, waiting + sum(isinstance(part, AutoBounded) for part in parts))


def _find_innermost(operator: Operator) -> Operator:
    """Return the operator for the lowest caps, if these are found privately."""
    return _find_innermost(operator.least) if isinstance(operator, CapSearch) else operator


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
        inner = _write_count(asked, _write_present(typed) if summed else to_sql(typed.node))
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


def _write_present(typed: Typed) -> str:
    """Write a value that is missing where sums and averages of it lack it, so that all of them describe equal rows.

    NaN and the infinities are in none of them, nor is a value too far from its column's bounds for exact sums.
    """
    low, high = (None, None) if typed.bounds is None else (typed.bounds.low, typed.bounds.high)
    if typed.type.numeric and low is not None and high is not None:
        with contextlib.suppress(BindError):  # bounds too wide for a sum
            return to_sql(grids.write_steps(typed, grids.choose_grid(typed.type, low, high)))
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
        return _count_values(asked)
    found = asked.block.names.known(call.args[0])
    inner = _write_count(asked, to_sql(found.typed.node) if found is not None and found.optional else None)
    return _counted(asked, "count the privacy units", Partial(inner, 0, 1, fixed=True))


def _count_values(asked: AggregateCall) -> Aggregate:
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
        total, added = grids.write_doubled_sum(item.y, item.grid, centre), (item.y, low, high, centre)
        least, most = min(0, low - centre), max(0, high - centre)
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
        return _distinct_sum(asked)
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
    kind = _find_sum_type(item.typed.type, typed.type, item.grid)
    return asked.make(kind, said, formula, shown=item.shown, noise_step=1 / steps, rounded=whole > 1)


def _distinct_sum(asked: AggregateCall) -> Aggregate:
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
        f"add the different values of {asked.source()}, held to [{float(low):g}, {float(high):g}] ({origin}); "
        f"one privacy unit moves this by at most {float(bound_change() / steps):g}"
    )
    kind = _find_sum_type(typed.type, typed.type, grid)
    return asked.make(kind, said, part=part, noise_step=1 / steps)


def _find_sum_type(placed: Type, own: Type, grid: grids.Grid) -> str:
    """Return the SQL type of a noisy sum: of numbers ``placed`` on a grid, whose column has its ``own`` type."""
    if placed.kind == "INTEGER" and grid.steps == 1 and own.sql != "UHUGEINT":
        return "HUGEINT"
    return own.find_sum_type(max(abs(grid.low), abs(grid.high)) / Fraction(grid.steps))


@MOMENTS.of_form("mean")
def _avg(asked: AggregateCall) -> Aggregate:
    typed = asked.argument()
    if asked.options.get("contribution_bounds_per_row") == "AUTO":
        return bind_auto_bounds(asked, typed, "avg")
    return _mean(asked, asked.bounded(typed, kinds=MOMENT_KINDS))


def _mean(asked: AggregateCall, item: Bounded, what: str = "average") -> Aggregate:
    moments, centre, finer = _Moments(asked), item.centre, 1
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


def _place_logarithm(asked: AggregateCall, typed: Typed, low: Fraction, high: Fraction) -> Line:
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
    return Line(logarithm, *ends, lambda node: exp.Exp(this=node), shown=shown, unit="logarithms")


@MOMENTS.of_form("spread")
def _spread(asked: AggregateCall) -> Aggregate:
    typed = asked.argument()
    asked.refuse_group_bounds()
    if asked.options.get("contribution_bounds_per_row") == "AUTO":
        return bind_auto_bounds(asked, typed, AGGREGATE_OF_NAME[asked.call.name].kind)
    asked.require_rows()
    item = asked.bounded(typed, multiplied=True)
    moments = _Moments(asked, asked.weigh(item.y, item.most**2))
    total = moments.total(item, item.centre)
    formula = Formula(
        [moments.product(item, item), total, moments.count(item)],
        lambda squares, total, count: Variance(
            asked.name,
            squares,
            total,
            count,
            Fraction(item.grid.steps),
            item.units(item.centre),
            item.ends,
            AGGREGATE_OF_NAME[asked.call.name].kind,
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
    totals = [moments.total(item, item.centre) for item in both]

    def build(count: Statistic, product: Statistic, *noisy: Statistic) -> Output:
        left = iter(noisy[2:])
        first, second = (
            Axis(item.grid.steps, item.units(item.centre), item.ends, total, next(left) if used else None)
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
    """Return whether both calls have equal arguments and FILTERs."""
    parts = ((call.args[0], *filter(None, [call.where])) for call in (total, count))
    try:
        of_total, of_count = ([block.spelling(node) for node in nodes] for nodes in parts)
        return of_total == of_count
    except BindError:  # an unknown column, which binding the calls refuses with its place
        return False


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
