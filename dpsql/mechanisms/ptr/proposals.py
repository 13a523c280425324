"""Numbers that ``SELECT WITH PTR`` releases with noise for a sensitivity that the analyst proposes.

| item              | answer                     | radius: edits to a table with                                      |
|-------------------|----------------------------|--------------------------------------------------------------------|
| MEDIAN            | lower median               | a gap next to its rank wider than b                                |
| QUANTILE_DISC     | value of rank ceil(p n)    | a gap next to its rank wider than b                                |
| IQR               | distance of the quartiles  | a gap next to either quartile wider than b                         |
| MODE              | most frequent value        | two values farther apart than b within one row of leading          |

All are ``local_sensitivity => b``: if no table nearby has a neighbour whose answer is farther away than b, the answer
is released with noise for b. Values are rounded to a public grid of steps (monotonically, so ranks are unchanged), and
the radius compares integers. A unit with up to ``rows`` rows moves the answer by at most ``rows`` times the move of one
row: the proposal for one row is ``bound // rows``. Loss: test + noise.

Source: Dwork and Lei (2009); Dwork and Roth (2014) section 7.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import pyarrow as pa

from dpsql.mechanisms.aggregation import Group, list_groups
from dpsql.mechanisms.base import Read, add_salt
from dpsql.mechanisms.order_statistics import choose_spacing, list_identifiers
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise
from dpsql.mechanisms.ptr import stability_test
from dpsql.mechanisms.ptr.ptr_statistics import NoisyItem, Radii, RankedItem, select_present
from dpsql.mechanisms.ptr.stability_test import Answer, StabilityTest
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import hold_to_doubles

_FARTHEST = 1 << 60
_MIDDLE = Fraction(1, 2)


def choose_proposal_grid(sensitivity: Fraction, epsilon: Fraction) -> tuple[Fraction, int]:
    """Choose grid step and bound in steps for a proposed sensitivity: fine compared to the noise, the bound rounded up.

    >>> choose_proposal_grid(Fraction(2), Fraction(1))
    (Fraction(1, 512), 1024)
    """
    step = choose_spacing(min(sensitivity, sensitivity / epsilon))
    return step, math.ceil(sensitivity / step)


def _to_place(value: float, step: Fraction) -> int:
    """Round to the grid, clamped to 2**60 steps (monotone too), so that noisy values fit 64 bits."""
    return min(max(round(Fraction(float(value)) / step), -_FARTHEST), _FARTHEST)


@dataclass(frozen=True)
class _Proposed(NoisyItem):
    """A number on a grid of steps, with a proposed bound on its move by one unit.

    Args:
        step: the grid, a power of two; see :func:`choose_proposal_grid`.
        bound: the proposal for one unit, in steps; ``noise`` must have this sensitivity.
    """

    name: str
    values: str
    step: Fraction
    bound: int
    test: StabilityTest
    noise: LaplaceNoise | GaussianNoise
    rows: int = 1

    @property
    def _of_a_row(self) -> int:
        """The proposal for one row, in steps."""
        return self.bound // self.rows

    def _to_steps(self, exact: Answer) -> int:
        return int(exact)

    def _from_steps(self, exact: Answer, step: int) -> float:
        return hold_to_doubles(step * self.step)

    @property
    def _answer(self) -> str:
        raise NotImplementedError

    def sentences(self, confidence: float) -> tuple[str, ...]:
        bound = hold_to_doubles(self.bound * self.step)
        width = hold_to_doubles(self.step) * self.noise.half_width(confidence)
        return (
            f"{self.name}: proposed is that one unit moves {self._answer} by at most {bound:.6g}; "
            f"{self.test.describe_proposal()}.",
            f"{self.name}: then {self._answer} is released with noise, within ±{width:.4g} at {confidence:.0%}.",
        )


class _ProposedRanks(_Proposed, RankedItem):
    """A number computed from values at ranks, whose gaps are tested."""

    @property
    def _probabilities(self) -> tuple[Fraction, ...]:
        raise NotImplementedError

    def _combine(self, places: Sequence[int]) -> int:
        """Return the answer in steps, given the values of the quantiles."""
        return places[0]

    def _window(self, cap: int) -> tuple[tuple[Fraction, ...], int]:
        return self._probabilities, cap + 3

    def _measure(
        self, groups: Sequence[stability_test.Ordered], cap: int, entropy: Entropy
    ) -> list[tuple[int, Answer]]:
        return [self._measure_one(data, cap) for data in groups]

    def _measure_one(self, data: stability_test.Ordered, cap: int) -> tuple[int, int]:
        n, radius, answers = data.n, cap, []
        for probability in self._probabilities:
            rank = stability_test.find_rank(n, probability)
            first, last = max(1, rank - cap - 2), min(n, rank + cap + 3)
            near = [_to_place(v, self.step) for v in data.slice(first, last)]
            gap = stability_test.measure_gap_radius(n, first, near, self._of_a_row, cap, probability)
            radius = min(radius, gap)
            answers.append(near[rank - first])
        return radius, self._combine(answers)


class ProposedMedian(_ProposedRanks):
    """``MEDIAN(x, local_sensitivity => b)``: the lower median plus noise for sensitivity b, if no table nearby is worse."""

    _probabilities = (_MIDDLE,)
    _answer = "the median"


@dataclass(frozen=True)
class ProposedQuantile(_ProposedRanks):
    """``QUANTILE_DISC(x, p, local_sensitivity => b)``: the value of rank max(1, ceil(p n)) plus noise for sensitivity b."""

    probability: Fraction = _MIDDLE

    @property
    def _probabilities(self) -> tuple[Fraction, ...]:
        return (self.probability,)

    @property
    def _answer(self) -> str:
        return f"the {float(self.probability):.4g} quantile"


class ProposedIqr(_ProposedRanks):
    """``IQR(x, local_sensitivity => b)``: the interquartile range plus noise for sensitivity b, if no table nearby is worse.

    If a row is added or removed, the range moves by no more than one of its quartiles does. Adding a row, with l and u
    the ranks of the quartiles: if both ranks stay, both quartiles decrease or stay, and if both grow, both increase or
    stay, so the range moves by at most the larger of the two moves; if u alone grows, a low row moves only the lower
    quartile and a high row only the upper. (l grows only if u does.) Removal is the inverse. So a table without a gap
    wider than b that a quartile can cross is not bad, and the smaller of the two distances is 1-Lipschitz and 0 at
    every bad table.
    """

    _probabilities = (Fraction(1, 4), Fraction(3, 4))
    _answer = "the interquartile range"

    def _combine(self, places: Sequence[int]) -> int:
        return places[1] - places[0]

    def _from_steps(self, exact: Answer, step: int) -> float:
        return hold_to_doubles(max(step, 0) * self.step)


class ProposedMode(_Proposed):
    """``MODE(x, local_sensitivity => b)``: the most frequent number plus noise for b, if it can't jump farther than b.

    Equally frequent numbers may be close together: then no exact mode is stable, but a noisy one is. The smallest wins
    ties. See :func:`~dpsql.mechanisms.ptr.stability_test.measure_jump_radius`.
    """

    _answer = "the most frequent value"

    def _text(self, keys: Sequence[str]) -> str:
        """Select, for each count that occurs, the number of values with it, the smallest and the largest."""
        listed = list_identifiers(keys)
        kept = select_present(self.values, keys, floating=True)
        counted = f"SELECT {listed}v, COUNT(*) AS c FROM ({kept}) AS found GROUP BY {listed}v"
        return (
            f"SELECT {listed}c, COUNT(*) AS many, MIN(v) AS low, MAX(v) AS high FROM ({counted}) AS counted "
            f"GROUP BY {listed}c"
        )

    def queries(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        return (self._text(keys),)

    def measure(self, read: Read, entropy: Entropy, keys: tuple[str, ...]) -> Radii:
        table = add_salt(read, (self.values,), entropy)(self._text(keys))
        columns = (table.column(name).to_pylist() for name in ("c", "many", "low", "high"))
        levels: dict[Group, list[stability_test.CountLevel]] = {}
        for key, c, many, low, high in zip(list_groups(table, keys), *columns, strict=True):
            ends = (_to_place(end, self.step) for end in (low, high))
            levels.setdefault(key, []).append(stability_test.CountLevel(int(c), int(many), *ends))
        found = {}
        for key, counted in levels.items():
            radius = stability_test.measure_jump_radius(counted, self._of_a_row, self.largest_radius)
            found[key] = self._convert(radius, max(counted).low)
        return pa.float64(), found
