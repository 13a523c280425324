"""Every noisy aggregate by name: to add one is to add a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dpsql.sql.dp import aggregates, bivariate, histograms, quantiles
from dpsql.sql.dp.aggregates import Aggregate
from dpsql.sql.parse.options import Call, refuse_equals

if TYPE_CHECKING:
    from dpsql.sql.dp.block import Block

TABLE: dict[str, Callable[[Any, Call, str, dict[str, Any]], Aggregate]] = {
    **aggregates.TABLE,
    **bivariate.TABLE,
    **histograms.TABLE,
    **dict.fromkeys(quantiles.NAMES, quantiles.bind_quantile),
}


def bind_aggregate(block: Block, call: Call, name: str) -> Aggregate:
    """Binds one call.

    Raises:
        BindError: wrong number or type of arguments.
        PrivacyError: no bounds, or no bound on the rows of a unit.
    """
    refuse_equals(call, aggregates.ARGUMENTS)
    return TABLE[call.name](block, call, name, call.read(aggregates.ARGUMENTS))
