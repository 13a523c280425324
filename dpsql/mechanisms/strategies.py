"""The strategies for numbers that are requested together, and their expected errors: public arithmetic, for EXPLAIN.

EVEN answers each number, or each grouping set, alone with an equal share of the budget. The others measure other
combinations of the rows, as one mechanism at the same price, and compute the numbers from those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dpsql.late_dataclass import dataclass

EVEN, MARGINALS, TREE, SQUARE_ROOT = "EVEN", "MARGINALS", "TREE", "SQUARE_ROOT"
STRATEGY_NAMES = (EVEN, MARGINALS, TREE, SQUARE_ROOT)
"""The names in OPTIONS (strategy = ...), without AUTO."""
CLEARLY = 1 - 1e-9
"""Another strategy than EVEN must have an error smaller than this fraction, to exclude rounding."""

_LISTED = 8
"""The most columns for which EXPLAIN lists each error."""

ColumnErrors = Mapping[str, float]
"""The root mean squared errors of a strategy's numbers by output column, in the column's own units."""


@dataclass(frozen=True)
class StrategyChoice:
    """The strategy of a block, and the expected errors of each applicable one, including EVEN, by name.

    ``forced``: whether the statement named it; otherwise it has the smallest expected total squared error.
    """

    chosen: str
    forced: bool
    errors: tuple[tuple[str, tuple[tuple[str, float], ...]], ...]

    @property
    def gain(self) -> float:
        """The least ratio, over all columns, of EVEN's error to the chosen strategy's."""
        known = {name: dict(errors) for name, errors in self.errors}
        return min(plain / known[self.chosen][column] for column, plain in known[EVEN].items())

    def by_name(self) -> dict[str, dict[str, float]]:
        return {name: dict(errors) for name, errors in self.errors}

    def sentence(self) -> str:
        why = "as OPTIONS say" if self.forced else "which has the smallest expected total squared error"
        told = "; ".join(f"{name} {_list_errors(errors)}" for name, errors in self.errors)
        return f"Strategy: {self.chosen}, {why}. Root mean squared error of one number: {told}."


def _list_errors(errors: tuple[tuple[str, float], ...]) -> str:
    if len(errors) > _LISTED:
        sizes = [error for _, error in errors]
        return f"±{min(sizes):.4g} to ±{max(sizes):.4g}"
    return ", ".join(f"{column} ±{error:.4g}" for column, error in errors)


def choose_strategy(errors: Mapping[str, ColumnErrors], forced: str | None) -> StrategyChoice:
    """Choose the forced strategy, or by public errors the most accurate one (``errors`` includes EVEN's).

    The latter has the least squared error, in the geometric mean over columns, among those that are no worse than EVEN in any
    column.
    """
    chosen = forced or min(_list_better(errors), default=(1.0, EVEN))[1]
    listed = tuple((name, tuple(errors[name].items())) for name in STRATEGY_NAMES if name in errors)
    return StrategyChoice(chosen, forced is not None, listed)


def _list_better(errors: Mapping[str, ColumnErrors]) -> Iterator[tuple[float, str]]:
    """Yield the strategies better than EVEN, with the product of their errors relative to its."""
    plain = errors[EVEN]
    for name, own in errors.items():
        ratio = 1.0
        for column, error in own.items():
            ratio *= error / plain[column]
        if name != EVEN and ratio < CLEARLY and all(own[c] <= plain[c] for c in plain):
            yield ratio, name
