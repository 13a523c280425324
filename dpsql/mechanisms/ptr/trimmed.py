"""``AVG(x)``, ``VAR_POP(x)`` and related functions under PTR: of the middle values, with noise for a tested scale.

Of n values, the floor(trim n) smallest and largest are left out, so no declared bounds are needed: the values determine how
far one unit can move the rest. Either the analyst proposes a bound (``local_sensitivity => b``), or its order of magnitude is
tested. Sums, widths and bounds are exact integers and fractions, on a public grid of values.

Let m values be kept, and let w be the distance between the last value left out below them and the first one above (infinite if
none is left out). Then one change moves

    the mean of those kept by at most       w / (m - 1),
    their sample variance by at most        w^2 / (m - 1)          (m >= 3),

whether a row is added, removed, or replaced. Proof for the mean, of kept values W with ends lo <= hi and an added row y: if the
number left out is unchanged, W gains the middle one of y and the two values next to W, which is at most w from the mean, and
the mean moves by at most w / (m + 1). If one more is left out at each end, W loses one end, or gains y between lo and hi and
loses both; the sum of the moves is ((y - lo) + (mean - hi)) / (m - 1), of absolute value at most (hi - lo) / (m - 1). Removal is
the inverse of addition, and the smaller table's window is within w. A replaced row keeps n, and moves one value of W by at most
w: w / m. For the variance, the sum of squares S about the mean replaces the sum: it grows by at most w^2 if a value within w is
added, shrinks by at most w^2 if both ends are removed for one between them, and S <= m w^2 / 4 bounds the effect of the divisor.
Tests compare both bounds with every small table.

So U = w^p / (m - 1) bounds the local sensitivity. U is put into *bins* between powers of two, 2^(bits j) to 2^(bits (j + 1)); a
second row of bins is shifted by half a bin. The distance to a table in another bin is measured exactly; if it is above 1, every
neighbour has the same bin, and noise for the bin's upper end may be added, whatever that is. A value in the middle of a bin of
one row is at an edge of the other row, so both rows are tested in turn, and the first that passes gives the scale.

Sources: Dwork and Lei (2009) for the Scale test, applied here to a sensitivity instead of a range; Dwork and Roth (2014) section
7.2; Bun and Steinke (2019) for trimmed means. Their smooth sensitivity needs a bounded range (an unbounded value may be added as
often as values are left out, which no e^-k compensates); a test does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from dpsql.catalogue.aggregate_names import AGGREGATES
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Group, list_groups
from dpsql.mechanisms.base import Read, add_salt
from dpsql.mechanisms.order_statistics import Ordered, quote_names
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise
from dpsql.mechanisms.ptr.ptr_statistics import Radii, RankedItem, select_present, write_partition
from dpsql.mechanisms.ptr.stability_test import (
    Answer,
    Decision,
    Measured,
    StabilityTest,
    convert_to_units,
)
from dpsql.mechanisms.queries import As, Select, Subquery
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import floor_log2, hold_to_doubles
from dpsql.privacy.events import Event, compose_events

Number: TypeAlias = int | Fraction | float
"""An exact number, or an infinity."""
SCALE_STEPS = 1024
"""The grid steps in the largest move that the scale allows: the sensitivity of the noise."""
LEAST_EXPONENT = -1200
"""Smaller powers of two are in the bottom bin."""


@dataclass(frozen=True)
class ScaleBins:
    """Bins of the bound U on a local sensitivity, each ``2**bits`` times the one before.

    Args:
        bits: even, so that half a bin is a whole power of two.
        power: 1 for a mean, 2 for a variance.
    """

    bits: int
    power: int = 1

    def __post_init__(self) -> None:
        if self.bits < 2 or self.bits % 2 or self.power not in (1, 2):
            raise ValueError("bins: an even number of bits, and a power of 1 or 2")

    @property
    def fewest(self) -> int:
        """The fewest kept values for which U is a bound."""
        return 2 if self.power == 1 else 3

    def find_ends(self, width: Number, kept: int, row: int) -> tuple[int | None, int] | None:
        """Find the powers of two around U in a row of bins; None if U is infinite, and for the bottom bin's lower one."""
        if kept < self.fewest or math.isinf(width):
            return None
        bound = Fraction(width) ** self.power / (kept - 1)
        exponent = LEAST_EXPONENT if bound == 0 else max(floor_log2(bound), LEAST_EXPONENT)
        offset = row * self.bits // 2
        start = (exponent - offset) // self.bits * self.bits + offset
        return (start if start > LEAST_EXPONENT else None), start + self.bits

    def reaches(self, width: Number, kept: int, limit: Fraction) -> bool:
        """Return whether U is at least ``limit``."""
        if kept < self.fewest or math.isinf(width):
            return True
        if isinstance(width, int):
            return bool(width**self.power * limit.denominator >= limit.numerator * (kept - 1))
        return Fraction(width) ** self.power >= limit * (kept - 1)


def count_trimmed(n: int, trim: Fraction) -> int:
    """Return the number of values left out at each end of n.

    >>> count_trimmed(39, Fraction(1, 20))
    1
    """
    return trim.numerator * n // trim.denominator


class Ranked:
    """Ascending values of ranks 1..n, some of them known, with infinities below and above."""

    def __init__(self, n: int, windows: Sequence[tuple[int, Sequence[Number]]]) -> None:
        self.n = n
        self._windows = windows

    def at(self, rank: int) -> Number:
        """Return the value of a rank; LookupError if it was not read."""
        if rank < 1 or rank > self.n:
            return -math.inf if rank < 1 else math.inf
        for first, values in self._windows:
            if first <= rank < first + len(values):
                return values[rank - first]
        raise LookupError("this rank was not read")


def _outwards(
    data: Ranked, low: int, high: int, bins: ScaleBins, kept: int, limit: Fraction, most: int, way: int = 1
) -> int:
    """Count the least a + c such that the values of ranks low - a and high + c make U reach a limit; most + 1 if above.

    With a ``way`` of -1, those of ranks low + a and high - c that keep it below.
    """
    best = c = most + 1
    for a in range((most if way > 0 else min(most, high - low)) + 1):
        start = low - way * a
        while c > 0:
            width = _distance(data.at(max(high + way * (c - 1), start)), data.at(start))
            if bins.reaches(width, kept, limit) != (way > 0):
                break
            c -= 1
        best = min(best, a + c)
        if c == 0:
            break
    return best


_inwards = partial(_outwards, way=-1)


def _distance(upper: Number, lower: Number) -> Number:
    """Return a difference; infinite if either is, for no bounded window has an infinite end."""
    if any(isinstance(end, float) and math.isinf(end) for end in (upper, lower)):
        return math.inf
    return upper - lower


def measure_substitution_radius(
    data: Ranked, trim: Fraction, bins: ScaleBins, row: int, cap: int
) -> tuple[int, int]:
    """Measure the replacements that certainly leave U in its bin, clamped at ``cap``, and the power of its upper end.

    With k replacements the windows that can replace ranks low and high are exactly those of low - a and high + c (a
    small and c large values are added, for values between) and of low + a and high - c, a + c <= k.
    """
    low, high, kept = _window(data.n, trim)
    width = _distance(data.at(high), data.at(low))
    ends = bins.find_ends(width, kept, row)
    if ends is None:
        return 0, 0
    distance = _outwards(data, low, high, bins, kept, Fraction(2) ** ends[1], cap)
    if ends[0] is not None:
        distance = min(distance, _inwards(data, low, high, bins, kept, Fraction(2) ** ends[0], cap))
    return min(distance - 1, cap), ends[1]


def measure_addition_radius(
    data: Ranked, trim: Fraction, bins: ScaleBins, row: int, cap: int
) -> tuple[int, int]:
    """Measure the added or removed rows that certainly leave U in its bin, up to ``cap``, and the power of its upper end."""
    low, high, kept = _window(data.n, trim)
    ends = bins.find_ends(_distance(data.at(high), data.at(low)), kept, row)
    if ends is None:
        return 0, 0
    below = Fraction(2) ** ends[0] if ends[0] is not None else None
    return max(_count_edits(data, trim, bins, below, Fraction(2) ** ends[1], cap + 1) - 1, 0), ends[1]


def measure_proposal_radius(
    data: Ranked, trim: Fraction, bins: ScaleBins, proposed: Fraction, cap: int
) -> int:
    """Measure the added or removed rows before U reaches the proposed value, up to ``cap``."""
    return _count_edits(data, trim, bins, None, proposed, cap)


def _count_edits(
    data: Ranked, trim: Fraction, bins: ScaleBins, below: Fraction | None, limit: Fraction, most: int
) -> int:
    """Count the added or removed rows until U is at least ``limit``, or less than ``below``, up to ``most``.

    For each change ``net`` of n, let low' and high' be the ranks of n + net rows, high' less ``net`` since rows are counted from
    below. An outer window that lacks e ranks takes at least e rows added at its ends, and the removal of e - net of those
    between: max(|net|, 2e - net) edits. An inner one with s ranks too many takes max(|net|, 2s + net), likewise. A table with too
    few kept rows has no bound, and takes ``|net|``.
    """
    best = most
    change = 0
    while change < best:
        for net in {change, -change} if change <= data.n else {change}:
            low, high, kept = _window(data.n + net, trim)
            if kept < bins.fewest:
                best = min(best, change)
                continue
            gap = _outwards(data, low, high - net, bins, kept, limit, max((best + net) // 2, 0))
            best = min(best, max(change, 2 * gap - net))
            if below is not None:
                gap = _inwards(data, low, high - net, bins, kept, below, max((best - net) // 2, 0))
                best = min(best, max(change, 2 * gap + net))
        change += 1
    return best


def _window(n: int, trim: Fraction) -> tuple[int, int, int]:
    """Return the ranks of the last value left out below and of the first above, and the number kept between."""
    left = count_trimmed(n, trim)
    return left, n - left + 1, n - 2 * left


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

    Without a proposal two rows of bins are tested in turn, and the first stable one gives the scale. If a pair of neighbours has
    one bin in a row, only the decision and the noise distinguish it; if it has two, the row passes with probability at most the
    test's delta on both. Loss: two tests and the noise; with a proposal one test. A unit with up to ``rows`` rows moves the
    answer by at most ``rows`` times the bin's end.

    Args:
        values: the values query; v is a whole number of grid steps, small enough for exact sums of its powers.
        power: 1 for a mean, 2 for a variance.
        trim: the fraction left out at either end, public.
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
        by, kept = quote_names(keys), select_present(self.values, keys, floating=False)
        part = write_partition(keys).rstrip()
        place, n = As(f"ROW_NUMBER() OVER ({part} ORDER BY v)", "place"), As(f"COUNT(*) OVER ({part})", "n")
        placed = Subquery(Select((*by, "v", place, n), Subquery(kept, "found")), "placed")
        left = f"{self.trim.numerator} * n // {self.trim.denominator}"
        squares = "SUM(CAST(v AS HUGEINT) * v)" if self.power == 2 else "0"
        sums = As("COUNT(*)", "many"), As("SUM(v)", "total"), As(squares, "squares")
        return Select((*by, *sums), placed, (f"place > {left}", f"place <= n - {left}"), by).sql

    def queries(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        return (*super().queries(keys), self._sums(keys))

    def measure(self, read: Read, entropy: Entropy, keys: tuple[str, ...]) -> Radii:
        reader = add_salt(read, (self.values,), entropy)
        found = self._read_ranks(reader, keys)
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

    def decide(self, measured: Sequence[Measured], entropy: Entropy) -> list[tuple[Answer, Decision]]:
        if self.proposed is not None:
            decided = self.test.decide([m.radius for m in measured], entropy)
            return [
                (m.exact[0][1] if d.passed and m.exact else None, d)
                for m, d in zip(measured, decided, strict=True)
            ]
        chosen: list[tuple[Answer, Decision]] = [(None, Decision(False))] * len(measured)
        for row in (0, 1):
            radii = [m.exact[row][0] if m.exact else 0 for m in measured]
            for i, decision in enumerate(self.test.decide(radii, entropy)):
                if not chosen[i][1].passed:
                    exact = measured[i].exact
                    chosen[i] = exact[row][1] if decision.passed and exact else None, decision
        return chosen

    def _to_steps(self, exact: Answer) -> int:
        return 0  # the noise is added to the place on the scale's grid, which may be any whole number

    def _from_steps(self, exact: Answer, step: int) -> float:
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
            held = f" Values are clamped to {low:.6g} to {high:.6g}."
        if self.proposed is not None:
            bound = hold_to_doubles(self.proposed / self.steps**self.power)
            return (
                f"{self.name}: the proposal is that one unit moves {middle} of the values by at most {bound:.6g}; "
                f"{self.test.describe_proposal()}.",
                f"{self.name}: then it is released with noise, within ±{bound * width:.4g} at {confidence:.0%}{root}.{held}",
            )
        return (
            f"{self.name}: {middle} of the values. Two tests, with bins half a bin apart, check whether the "
            "order of magnitude of one unit's effect on it is stable; if neither passes, it is NULL; "
            f"{self.test.sentence()}. That takes about {needed:,} rows or more.",
            f"{self.name}: then it is released with noise, within ±{width:.3g} to ±{4 * width:.3g} times the most that one "
            f"unit can move it, at {confidence:.0%}{root}.{held}",
        )


FORMS: Mapping[str, Mapping[str, Any]] = {
    row.name: {"power": 1}
    if row.form == "mean"
    else {"power": 2, "sample": row.kind.endswith("samp"), "root": row.kind.startswith("stddev")}
    for row in AGGREGATES
    if "PTR" in row.modes and row.form in ("mean", "spread")
}
"""The functions, with the arguments that distinguish them."""
