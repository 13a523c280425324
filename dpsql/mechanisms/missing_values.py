"""Reasons why a released value is NULL, from public parameters and released values alone."""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.mechanisms.aggregation import Aggregation, Together
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.contribution_caps import CapSearch
from dpsql.mechanisms.moments import Mean, Output, Pair, Variance

_SPREADS = ("corr", "regr_slope", "regr_intercept", "regr_r2")


def find_null_reasons(operator: Operator) -> Mapping[str, str]:
    """Return why values are NULL, by column, except for mechanisms that release their own note with a NULL."""
    if isinstance(operator, CapSearch):
        return find_null_reasons(operator.least)
    aggregation = operator.aggregation if isinstance(operator, Together) else operator
    if not isinstance(aggregation, Aggregation):
        return {}
    reasons = {output.name: _find_reason(output) for output in aggregation.outputs}
    return {name: reason for name, reason in reasons.items() if reason}


def _find_reason(output: Output) -> str:
    """Return why an output is NULL; empty if it never is."""
    if isinstance(output, Mean):
        return _say_few(1)
    if isinstance(output, Variance):
        return _say_few(2 if output.kind.endswith("samp") else 1)
    if isinstance(output, Pair):
        few = _say_few(1 if output.kind == "covar_pop" else 2)
        return f"{few}, or no spread beyond the noise to divide by" if output.kind in _SPREADS else few
    return ""


def _say_few(needed: int) -> str:
    """Return that the noisy count is too low; counts of weighted rows are rounded."""
    return f"too few rows for this ε (their noisy count is below {needed})"
