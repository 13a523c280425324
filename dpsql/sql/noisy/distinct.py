"""COUNT(DISTINCT x) of a column that is not the privacy unit."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.errors import BindError
from dpsql.mechanisms.additive import LaplaceNoise
from dpsql.mechanisms.distinct import DistinctCount
from dpsql.sql.dialect import span_of, to_sql
from dpsql.sql.noisy.aggregates import Aggregate, rows_bounded
from dpsql.sql.options import Call

if TYPE_CHECKING:
    from dpsql.sql.noisy.block import Block


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
