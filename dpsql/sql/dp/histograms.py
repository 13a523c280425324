"""COUNT(DISTINCT x) of a column that is not the privacy unit.

HISTOGRAM(x) over declared values, HISTOGRAM(x, [bins]) and HISTOGRAM_EXACT(x, [values]): DuckDB's maps, noisy.

As in DuckDB, the bins of HISTOGRAM(x, [b1, b2]) are closed above, (.., b1] and (b1, b2], and what is in none of them is
counted under the greatest value of the type ('' for text). Here that key is always there, and counts may be negative.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from dpsql.errors import BindError, PrivacyError
from dpsql.mechanisms.additive_noise import LaplaceNoise
from dpsql.mechanisms.histograms import BIN, COUNT, DistinctCount, Histogram
from dpsql.sql.dp.aggregates import Aggregate, rows_bounded
from dpsql.sql.expressions.types import BOOLEAN, DOUBLE, Type, Typed
from dpsql.sql.parse.dialect import span_of, to_sql
from dpsql.sql.parse.options import Call
from dpsql.sql.parse.statements import make_literal

if TYPE_CHECKING:
    from dpsql.sql.dp.block import Block


def bind_distinct(block: Block, call: Call, name: str, options: dict[str, Any]) -> Aggregate:
    """Binds one call.

    Raises:
        PrivacyError: nothing bounds the rows of a unit. BindError: options that don't fit.
    """
    if options.get("contribution_bounds_per_group") is not None or options.get("report_format"):
        raise BindError("COUNT(DISTINCT ...) takes epsilon only.", span=span_of(call.node))
    rows_bounded(block, call)
    value = block.filtered(call, to_sql(block.expression(call.args[0]).node))
    label = block.label(call)

    def build(epsilon: Fraction) -> DistinctCount:
        exact = block.exact
        keys = tuple(key.name for key in exact.keys)
        groups = block.per_unit_groups if keys else 1
        by = "".join(f"{key}, " for key in keys)
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        query = f"SELECT {by}COUNT(DISTINCT v) AS n FROM ({exact.held(value, groups)}) AS held{group}"
        return DistinctCount(
            query, keys, name, LaplaceNoise(epsilon, exact.rows_per_unit, groups), block.confidence
        )

    said = f"count the different values of {block.source(call.args[0])}"
    return Aggregate(name, call, options.get("epsilon"), None, "BIGINT", label, said, None, None, build)


MOST = 10_000
"""Bins of one histogram."""
_NUMBERS = ("INTEGER", "DECIMAL", "DOUBLE")


def _histogram(block: Block, call: Call, name: str, options: dict[str, Any]) -> Aggregate:
    """Binds one call.

    Raises:
        BindError: wrong arguments. PrivacyError: no public bins, or nothing bounds the rows of a unit.
    """
    if len(call.args) not in (1, 2) or call.distinct:
        raise BindError(
            f"{call.name} takes a column, and a list of bins.",
            span=span_of(call.node),
            hint="write HISTOGRAM(x, [0, 10, 20]).",
        )
    if any(options.get(key) is not None for key in options if key != "epsilon"):
        raise BindError(f"{call.name} takes epsilon only.", span=span_of(call.node))
    rows_bounded(block, call)
    typed = block.expression(call.args[0])
    if len(call.args) == 2:
        kind, keys, others = _given(block, call, typed)
        ranged = call.name == "HISTOGRAM"
    else:
        kind, keys, others, ranged = typed.type, _declared(block, call, typed), None, False
    if len(keys) > MOST:
        raise BindError(f"a histogram has at most {MOST} bins.", span=span_of(call.args[-1]))
    value = f"CAST({to_sql(typed.node)} AS {kind.sql})" if kind != typed.type else f"({to_sql(typed.node)})"
    cases = " ".join(f"WHEN v {'<=' if ranged else '='} {key} THEN {i}" for i, key in enumerate(keys))
    rest = f" ELSE {len(keys)}" if others is not None else ""
    place = f"CASE WHEN v IS NULL THEN NULL {cases}{rest} END"
    shown = [*keys, *([others] if others is not None else [])]

    def build(epsilon: Fraction) -> Histogram:
        exact = block.exact
        by = tuple(key.name for key in exact.keys)
        groups = block.per_unit_groups if by else 1
        held = exact.held(block.filtered(call, value), groups)
        grouped = ", ".join([*by, BIN])
        placed = f"SELECT {', '.join([*by, place])} AS {BIN} FROM ({held}) AS held"
        query = f"SELECT {grouped}, COUNT(*) AS {COUNT} FROM ({placed}) AS placed WHERE {BIN} IS NOT NULL GROUP BY {grouped}"
        return Histogram(query, by, name, len(shown), LaplaceNoise(epsilon, exact.rows_per_unit, groups))

    bins = (
        "given" if others is not None else "declared by the policy" if kind != BOOLEAN else "true and false"
    )
    return Aggregate(
        name, call, options.get("epsilon"), None, "BIGINT[]", block.label(call),
        f"count the rows with {block.source(call.args[0])} in {len(shown)} bins ({bins}); all of them are shown",
        auto=build, shown=lambda column: f"MAP([{', '.join(shown)}], {column})", bars=False,
    )  # fmt: skip


def _declared(block: Block, call: Call, typed: Typed) -> list[str]:
    """The column's public values, in SQL."""
    if typed.values is not None and isinstance(typed.node, exp.Column):
        return [f"CAST({to_sql(make_literal(value))} AS {typed.type.sql})" for value in typed.values]
    if typed.type.kind == "BOOLEAN":
        return ["FALSE", "TRUE"]
    source = block.source(call.args[0])
    raise PrivacyError(
        f"HISTOGRAM({source}) needs public values of {source}; the policy declares none.",
        span=span_of(call.node),
        hint=f"write the bins, HISTOGRAM({source}, [10, 20, 30]), or ask the data owner for values.",
    )


def _given(block: Block, call: Call, typed: Typed) -> tuple[Type, list[str], str]:
    """The type in which values and bins are compared, the bins in ascending order, and the key of the others."""
    place = call.args[1]
    if not isinstance(place, exp.Array) or not place.expressions:
        raise BindError(
            "the bins must be a list of literals.", span=span_of(place) or span_of(call.node),
            hint="write [0, 10, 20].",
        )  # fmt: skip
    bins = [block.expression(node) for node in place.expressions]
    kind = typed.type
    exactly = call.name != "HISTOGRAM"
    allowed = (*_NUMBERS, "DATE", "TIMESTAMP", *(("TEXT", "UUID", "BOOLEAN") if exactly else ()))
    if kind.kind not in allowed:
        raise BindError(
            f"{call.name} with bins needs a number or a date, and this is {kind.sql}.",
            span=span_of(call.args[0]),
            hint="HISTOGRAM_EXACT(x, ['a', 'b']) counts values." if not exactly else None,
        )
    for node, bin_ in zip(place.expressions, bins, strict=True):
        fits = bin_.constant and (
            bin_.type.kind == kind.kind or (kind.kind in _NUMBERS and bin_.type.kind in _NUMBERS)
            or (bin_.type.kind == "DATE" and kind.kind == "TIMESTAMP")
        )  # fmt: skip
        if not fits:
            raise BindError(
                f"a bin of {block.source(call.args[0])} must be a literal of its type.", span=span_of(node)
            )
    if kind.kind in _NUMBERS:
        whole = kind.kind == "INTEGER" and all(_held(kind, bin_) for bin_ in bins)
        kind = kind if whole else DOUBLE
        numbers = [
            bin_.bounds.low for bin_ in bins if bin_.bounds is not None and bin_.bounds.low is not None
        ]
        if any(a >= b for a, b in pairwise(numbers)):
            raise BindError("bins go up.", span=span_of(place), hint="write [0, 10, 20].")
    keys = [f"CAST({to_sql(bin_.node)} AS {kind.sql})" for bin_ in bins]
    return kind, keys, _others(kind)


def _held(kind: Type, bin_: Typed) -> bool:
    low = bin_.bounds.low if bin_.bounds is not None else None
    reach = kind.reach
    return (
        bin_.type.kind == "INTEGER" and low is not None and reach is not None
        and reach.low is not None and reach.high is not None and reach.low <= low < reach.high
    )  # fmt: skip


def _others(kind: Type) -> str:
    """The key under which values in no bin are counted: as DuckDB has it, the greatest of the type."""
    if kind.kind == "INTEGER" and kind.reach is not None and kind.reach.high is not None:
        return f"CAST('{int(kind.reach.high)}' AS {kind.sql})"
    if kind.kind == "TEXT":
        return "''"
    if kind.kind in ("UUID", "BOOLEAN"):
        return f"CAST(NULL AS {kind.sql})"
    if kind.kind in ("DATE", "TIMESTAMP"):  # infinity is no date to Python; DuckDB's client shows this for it
        return f"CAST('9999-12-31' AS {kind.sql})"
    return f"CAST('infinity' AS {kind.sql})"


TABLE: dict[str, Callable[[Any, Call, str, dict[str, Any]], Aggregate]] = {
    "HISTOGRAM": _histogram,
    "HISTOGRAM_EXACT": _histogram,
}
