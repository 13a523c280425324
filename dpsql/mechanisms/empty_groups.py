"""The groups of a range that differ significantly from an empty group, decided from released numbers alone.

Bounds make every whole number or day between them a public group, and most of these may have no rows. All are computed
and stored; an answer shows those that differ significantly from an empty group.

Every exact integer of an empty group is 0, so its released integers are noise of a known law. The probability
:data:`FALSE_GROUPS` is divided equally among a statement's blocks with such groups, the groups of a block, and the integers of
a group. An integer is significant if noise is that far from 0 with no more than its part; so an answer shows a group without
rows with probability at most :data:`FALSE_GROUPS`. Counts are never negative, so for them only noise above 0 is significant.

Laplace and Gaussian noise on each group have exact tails. Noise in the order of a key, and cells of marginals, are fixed
sums of independent noise. A sum of Gaussian noise is Gaussian. For a sum S of Laplace noise with variance ``2 b^2``,

    Pr[|S| > T b] <= exp(-T) + 0.93 / T^2 * exp(-T^2 / 6).

Proof: Laplace noise is Gaussian noise whose variance is ``2 E`` times the squared scale, with E exponential. Given the
E's, the sum is Gaussian with variance ``2 b^2 W``, and W is a mean of exponentials, which the convex order places below a
single one. The tail ``erfc(T / (2 sqrt(w)))`` is convex in w up to ``T^2 / 6``, and below its tangent there from then on.
The expectation of that convex majorant is largest for a single exponential: the Laplace tail, plus the tangent's part,
its slope times ``exp(-T^2 / 6)``. Discrete Laplace noise plus an independent fraction is Laplace noise; one further step
allows for that and for rounding.

Relation and guarantee: none. This is post-processing without randomness.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pyarrow as pa

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import Booleans, Operator, Release
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise, Noise
from dpsql.numerics.exact_numbers import Integers

FALSE_GROUPS = Fraction(1, 20)
"""The probability that an answer shows any group without rows, at most."""
_MARGIN = 1e-9


def find_noise_reach(noise: Noise, doubt: float) -> float:
    """Return the steps that noise exceeds, on either side of 0, with probability at most ``doubt``."""
    if isinstance(noise, LaplaceNoise | GaussianNoise):
        return noise.half_width(1 - doubt)
    deviation = math.sqrt(noise.largest_variance)
    if noise.is_gaussian:
        reach = -NormalDist().inv_cdf(doubt / 2)
    else:
        reach = _find_laplace_reach(doubt) / math.sqrt(2)
    return float(math.ceil(reach * deviation * (1 + _MARGIN))) + (deviation > 0)


def _find_laplace_reach(doubt: float) -> float:
    """Return the least T, rounded up, for which the bound on a sum of Laplace noise is at most ``doubt``."""
    low, high = 0.0, 1.0 - 2 * math.log(doubt)
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        tail = math.exp(-middle) + 0.93 / max(middle, 1e-9) ** 2 * math.exp(-(middle**2) / 6)
        low, high = (low, middle) if tail <= doubt else (middle, high)
    return high


def find_significant(
    noisy: Iterable[tuple[Noise, Integers]], counts: Iterable[bool], groups: int, doubt: float
) -> Booleans:
    """Return which groups have an integer that noise alone is unlikely to give.

    Args:
        noisy: the noise of each statistic, and its released integers.
        counts: for each statistic, whether its exact integer is never negative.
        groups: the number of groups that share ``doubt``.
        doubt: the probability, at most, that any group is found while all are empty.
    """
    columns = list(zip(noisy, counts, strict=True))
    found = np.zeros(len(columns[0][0][1]), dtype=np.bool_)
    part = doubt / (max(groups, 1) * len(columns))
    for (noise, values), counting in columns:
        reach = find_noise_reach(noise, min(2 * part, 0.5) if counting else part)
        sized = values if counting else np.abs(values)
        found |= np.asarray(sized > reach, dtype=np.bool_)
    return found


@dataclass(frozen=True)
class RangedGroups:
    """A block with groups made by ranges of the columns ``keys``; insignificant groups are not shown."""

    relation: str
    keys: tuple[str, ...]

    def choose(self, operator: Operator, release: Release, blocks: int) -> tuple[pa.Table, str]:
        """Return the shown groups, and a sentence on the others (empty if all are shown).

        Args:
            operator: the operator that answered the block.
            release: its whole answer.
            blocks: the number of the statement's blocks with such groups.
        """
        found = operator.find_filled(release, self.keys, float(FALSE_GROUPS) / blocks)
        total = release.table.num_rows
        if found is None:
            return release.table, ALL_SHOWN.format(total) if total else ""
        hidden = total - int(found.sum())
        if not hidden:
            return release.table, ""
        return release.table.filter(pa.array(found)), NOT_SHOWN.format(hidden, total)


SHOW_ALL = "OPTIONS (group_selection_strategy = PUBLIC_GROUPS)"
NOT_SHOWN = (
    "{:,} of {:,} groups of the range are not shown: their noisy numbers could be those of groups without rows; "
    f"{SHOW_ALL} shows all of them, at no further charge"
)
ALL_SHOWN = (
    "all {:,} groups of the range are shown, with rows or without, since no count or sum here tells them apart: add COUNT(*), "
    "which leaves out groups without rows"
)


def choose_shown_groups(
    ranged: Iterable[RangedGroups], answered: Mapping[str, tuple[Operator, Release]]
) -> dict[str, tuple[pa.Table, str]]:
    """Return the shown groups of each answered block with ranged groups, and sentences on the others."""
    listed = list(ranged)
    return {
        item.relation: item.choose(*answered[item.relation], len(listed))
        for item in listed
        if item.relation in answered
    }
