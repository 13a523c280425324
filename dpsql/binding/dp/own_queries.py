"""Aggregates that read rows rather than sums: histograms, modes, sums within bounds that are found.

``HISTOGRAM(x)`` over declared values, ``HISTOGRAM(x, [bins])`` and ``HISTOGRAM_EXACT(x, [values])`` are DuckDB's maps, noisy.
As in DuckDB, the bins of ``HISTOGRAM(x, [b1, b2])`` are closed above, (.., b1] and (b1, b2], and values in none of them are
counted under the greatest value of the type ('' for text). Unlike DuckDB, that key always exists, and counts may be
negative. ``MODE(x)`` chooses among public values. ``contribution_bounds_per_row => AUTO`` finds clipping bounds in one pass.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import pairwise

from sqlglot import exp

from dpsql.binding.dp.aggregates import Aggregate, AggregateCall, BindingsByName
from dpsql.binding.dp.quantile_calls import QUANTILES, find_ladder
from dpsql.binding.values.coercion import refuse_moment
from dpsql.binding.values.sql_types import BOOLEAN, DOUBLE, Bounds, Type, Typed, make_cast
from dpsql.errors import BindError, did_you_mean
from dpsql.language.dialect import bind_error, privacy_error, span_of, to_sql
from dpsql.language.parameters import make_literal
from dpsql.mechanisms.aggregation import Together
from dpsql.mechanisms.auto_bounds import PLACES, SHARED, AutoBounded, find_exponent
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.contribution_caps import CapSearch
from dpsql.mechanisms.histograms import BIN, BIN_ROWS, Histogram
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.queries import ROW_COUNT, As, Select, Subquery
from dpsql.mechanisms.selection.exponential import MostFrequent

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
        place, many = (
            f"CASE WHEN v IS NOT NULL THEN LEAST(GREATEST(v, {low}), {high}) - {low} END",
            high - low + 1,
        )
    else:
        bins = _declared_bins(asked, typed)
        cases = " ".join(f"WHEN v = {_write_bin(end, typed.type)} THEN {i}" for i, end in enumerate(bins))
        place, many = f"CASE WHEN v IS NULL THEN NULL {cases} END", len(bins)

    def shown(column: exp.Expr) -> exp.Expr:
        if not bins:
            return make_cast(exp.Add(this=column, expression=make_literal(low)), typed.type)
        index = exp.Add(this=column, expression=exp.Literal.number(1))
        return exp.Anonymous(this="list_extract", expressions=[exp.Array(expressions=bins).copy(), index])

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
    power = f"CASE WHEN v = 0 THEN {low} ELSE CAST(LEAST(GREATEST(CEIL(LOG2(ABS(v))), {low}), {high}) AS INTEGER) END"

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
