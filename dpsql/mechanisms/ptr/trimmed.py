"""``AVG(x)``, ``VAR_POP(x)`` and related functions under PTR: of the middle values, with noise for a tested scale.

The floor(trim n) smallest and largest values are left out, so no declared bounds are needed: the values at hand
determine how far one unit can move the rest. Either the analyst proposes a bound (``local_sensitivity => b``), or its
order of magnitude is tested: see :mod:`~dpsql.mechanisms.ptr.stable_scale`, with the proofs. Sums, widths and bounds
are exact integers and fractions, on a public grid of values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow as pa

from dpsql.mechanisms.aggregation import Group, list_groups
from dpsql.mechanisms.base import ClaimedText, Read, RowsClaim, add_salt
from dpsql.mechanisms.order_statistics import list_identifiers, quote_name, read_order_statistics
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise
from dpsql.mechanisms.ptr.ptr_statistics import Radii, RankedItem, select_present
from dpsql.mechanisms.ptr.stability_radius import Ordered, convert_to_units
from dpsql.mechanisms.ptr.stability_test import Decision, Measured, StabilityTest
from dpsql.mechanisms.ptr.stable_scale import (
    SCALE_STEPS,
    Ranked,
    ScaleBins,
    measure_addition_radius,
    measure_proposal_radius,
)
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import hold_to_doubles
from dpsql.privacy.events import Event, compose_events

TRIM = Fraction(1, 20)
"""The default fraction of the values left out at either end."""
_BITS = 2


class _Scaled(NamedTuple):
    """An exact answer with the greatest move by one unit, both in grid steps (squared, for a variance)."""

    answer: Fraction
    scale: Fraction


@dataclass(frozen=True)
class Trimmed(RankedItem):
    """The mean or the variance of the middle values, plus noise for the tested scale.

    Without a proposal two rows of bins are tested in turn, and the first stable one gives the scale. If a pair of
    neighbours has one bin in a row, only the decision and the noise distinguish it; if it has two, the row passes with
    probability at most the test's delta on both. Loss: two tests and the noise; with a proposal one test. A unit with
    up to ``rows`` rows moves the answer by at most ``rows`` times the bin's end.

    Args:
        values: the values query; v is a whole number of grid steps, small enough for exact sums of its powers.
        power: 1 for a mean, 2 for a variance.
        trim: the fraction left out at either end, public.
        test: of each row of bins, or of the proposal.
        noise: of the answer on a grid of 1/1024 of the scale.
        proposed: the bound on one unit's move of the answer, in grid steps (squared, for a variance).
        sample: whether the variance divides by one less than the number of values.
    """

    name: str
    values: str
    steps: Fraction
    power: int
    trim: Fraction
    test: StabilityTest
    noise: LaplaceNoise | GaussianNoise
    rows: int = 1
    proposed: Fraction | None = None
    sample: bool = False
    root: bool = False
    ends: tuple[int, int] | None = None
    """The clamping bounds of the values, in grid steps."""

    def __post_init__(self) -> None:
        if not 0 < self.trim < Fraction(1, 2):
            raise ValueError("trim must lie between 0 and one half")
        if self.noise.sensitivity != SCALE_STEPS:
            raise ValueError("the noise must be made for the steps of the scale")

    @property
    def event(self) -> Event:
        tests = [self.test.event] * (1 if self.proposed is not None else 2)
        return compose_events([*tests, self.noise.event])

    # -- what is read -------------------------------------------------------------------------------------------

    def _sums(self, keys: Sequence[str]) -> str:
        """Select the sums of the middle values, and of their squares."""
        listed, kept = list_identifiers(keys), select_present(self.values, keys, floating=False)
        part = f"PARTITION BY {', '.join(map(quote_name, keys))}" if keys else ""
        placed = (
            f"SELECT {listed}v, ROW_NUMBER() OVER ({part} ORDER BY v) AS place, COUNT(*) OVER ({part}) AS n "
            f"FROM ({kept}) AS found"
        )
        left = f"{self.trim.numerator} * n // {self.trim.denominator}"
        squares = "SUM(CAST(v AS HUGEINT) * v)" if self.power == 2 else "0"
        return (
            f"SELECT {listed}COUNT(*) AS many, SUM(v) AS total, {squares} AS squares FROM ({placed}) AS placed "
            f"WHERE place > {left} AND place <= n - {left}" + (f" GROUP BY {listed[:-2]}" if keys else "")
        )

    def queries(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        return (*super().queries(keys), self._sums(keys))

    def claims(self, keys: tuple[str, ...]) -> Iterator[ClaimedText]:
        yield from super().claims(keys)
        yield ClaimedText(self._sums(keys), RowsClaim(self.rows, self.test.groups, keys, any_function=True))

    def measure(self, read: Read, entropy: Entropy, keys: tuple[str, ...]) -> Radii:
        reader = add_salt(read, (self.values,), entropy)
        centres, reach = self._window(self.largest_radius)
        found = read_order_statistics(reader, self.values, keys, centres, reach)
        table = reader(self._sums(keys))
        columns = (table.column(name).to_pylist() for name in ("many", "total", "squares"))
        answers: dict[Group, Fraction] = {}
        for key, many, total, squares in zip(list_groups(table, keys), *columns, strict=True):
            if many > (1 if self.sample else 0):
                answers[key] = self._compute(int(many), int(total), int(squares or 0))
        measured = {key: self._measure_one(data, answers.get(key)) for key, data in found.items()}
        return pa.float64(), measured

    def _window(self, cap: int) -> tuple[tuple[Fraction, ...], int]:
        return (self.trim, 1 - self.trim), cap + 6

    def _measure(self, groups: Sequence[Ordered], cap: int, entropy: Entropy) -> list[tuple[int, Any]]:
        return [self._measure_one(data, None) for data in groups]

    def _compute(self, many: int, total: int, squares: int) -> Fraction:
        if self.power == 1:
            return Fraction(total, many)
        about_mean = squares - Fraction(total * total, many)
        return about_mean / (many - 1 if self.sample else many)

    def _measure_one(self, data: Ordered, answer: Fraction | None) -> Measured:
        """Measure the radius, in units, of each way to a scale, with the answer on that scale."""
        windows = [(first, [int(v) for v in values.tolist()]) for first, values in data.windows]
        ranked, cap, bins = Ranked(data.n, windows), self.largest_radius, ScaleBins(_BITS, self.power)
        if answer is None:
            return Measured(0, None)
        if self.proposed is not None:
            bound = self.proposed / self.rows
            radius = measure_proposal_radius(ranked, self.trim, bins, bound, cap)
            return Measured(convert_to_units(radius, self.rows), ((0, _Scaled(answer, self.proposed)),))
        found = []
        for row in (0, 1):
            radius, exponent = measure_addition_radius(ranked, self.trim, bins, row, cap)
            scale = Fraction(2) ** exponent * self.rows
            found.append((convert_to_units(radius, self.rows), _Scaled(answer, scale)))
        return Measured(max(radius for radius, _ in found), tuple(found))

    # -- what is released ---------------------------------------------------------------------------------------

    def decide(self, measured: Sequence[Measured], entropy: Entropy) -> list[tuple[Any, Decision]]:
        if self.proposed is not None:
            decided = self.test.decide([m.radius for m in measured], entropy)
            return [
                (m.exact[0][1] if d.passed and m.exact else None, d)
                for m, d in zip(measured, decided, strict=True)
            ]
        chosen: list[tuple[Any, Decision]] = [(None, Decision(False))] * len(measured)
        for row in (0, 1):
            radii = [m.exact[row][0] if m.exact else 0 for m in measured]
            for i, decision in enumerate(self.test.decide(radii, entropy)):
                if not chosen[i][1].passed:
                    exact = measured[i].exact
                    chosen[i] = exact[row][1] if decision.passed and exact else None, decision
        return chosen

    def _to_steps(self, exact: Any) -> int:
        return 0  # the noise is added to the place on the scale's grid, which may be any whole number

    def _from_steps(self, exact: Any, step: int) -> float:
        grid = exact.scale / SCALE_STEPS
        value = grid * (math.floor(exact.answer / grid) + step) / self.steps**self.power
        if self.power == 1:
            return hold_to_doubles(value)
        shown = hold_to_doubles(max(value, Fraction(0)))
        return math.sqrt(shown) if self.root else shown

    def sentences(self, confidence: float) -> tuple[str, ...]:
        what = "mean" if self.power == 1 else "variance"
        middle = f"the {what} of the middle {100 * float(1 - 2 * self.trim):.4g}%"
        needed = math.ceil(self.test.needed(0.99) * self.rows / self.trim)
        width = self.noise.half_width(confidence) / SCALE_STEPS
        root = ", and its square root shown" if self.root else ""
        held = ""
        if self.ends is not None:
            low, high = (float(end / self.steps) for end in self.ends)
            held = f" Values are held to {low:.6g} to {high:.6g}."
        if self.proposed is not None:
            bound = hold_to_doubles(self.proposed / self.steps**self.power)
            return (
                f"{self.name}: proposed is that one unit moves {middle} of the values by at most {bound:.6g}; "
                f"{self.test.describe_proposal()}.",
                f"{self.name}: then it is released with noise, within ±{bound * width:.4g} at {confidence:.0%}{root}.{held}",
            )
        return (
            f"{self.name}: {middle} of the values. Twice it is tested whether the order of magnitude of how "
            "far one unit can move it is stable, in bins that lie half a bin apart, and NULL is given where neither is; "
            f"{self.test.sentence()}. That takes some {needed:,} rows, or more.",
            f"{self.name}: then it is released with noise, within ±{width:.3g} to ±{4 * width:.3g} times the farthest that one "
            f"unit can move it, at {confidence:.0%}{root}.{held}",
        )


FORMS: Mapping[str, Mapping[str, Any]] = {
    "AVG": {"power": 1},
    "VARIANCE": {"power": 2, "sample": True},
    "VAR_POP": {"power": 2},
    "STDDEV": {"power": 2, "sample": True, "root": True},
    "STDDEV_SAMP": {"power": 2, "sample": True, "root": True},
    "STDDEV_POP": {"power": 2, "root": True},
}
"""The functions, with the arguments that distinguish them."""
