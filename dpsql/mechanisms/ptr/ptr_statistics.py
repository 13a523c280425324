"""The statistics that ``SELECT WITH PTR`` can release, as items of one protocol.

| item          | answer                            | radius                         | released             |
|---------------|-----------------------------------|--------------------------------|----------------------|
| IQR           | interquartile range               | edits until its log bin moves  | times base ** noise  |
| QUANTILE_DISC | value of rank max(1, ceil(p n))   | edits until its rank leaves it | exact                |
| MODE          | most frequent value               | its lead over the runner-up    | exact                |
| ARG_MAX       | group with the largest sum        | its lead over the runner-up    | exact                |

Each item takes a *values query*, SQL that returns the column ``v`` (and the grouping columns) with one row per row that
counts, and builds its exact queries around it. That text bounds the privacy unit's rows (one value per unit, or at most
``rows``, which divide the radius: :func:`~dpsql.mechanisms.ptr.stability_test.convert_to_units`). NULLs are missing; for
``floating`` values NaN and the infinities too, and -0.0 is 0.0.

``local_sensitivity => b``: numbers are also released with noise for a sensitivity that the analyst proposes, if no table
nearby has a neighbour whose answer is farther away than b:

| item              | answer                     | radius: edits to a table with                                      |
|-------------------|----------------------------|--------------------------------------------------------------------|
| MEDIAN            | lower median               | a gap next to its rank wider than b                                |
| QUANTILE_DISC     | value of rank ceil(p n)    | a gap next to its rank wider than b                                |
| IQR               | distance of the quartiles  | a gap next to either quartile wider than b                         |
| MODE              | most frequent value        | two values farther apart than b within one row of leading          |

Values are rounded to a public grid of steps (monotonically, so ranks are unchanged), and the radius compares integers. A unit
with up to ``rows`` rows moves the answer by at most ``rows`` times the move of one row: the proposal for one row is
``bound // rows``. Loss: test + noise.

Source: Dwork and Lei (2009); Dwork and Roth (2014) section 7.2.

The Scale algorithm: the stability of the interquartile range's order of magnitude.

``IQR(x) = x(u) - x(l)`` with ranks l = ceil(n/4), u = ceil(3n/4), in one floating subtraction (which is monotone in
both operands, so the window arguments hold for doubles); with fewer than two rows it is 0. Its *bin* is the interval of
logarithms to a public base that contains it: [k - s, k + 1 - s) in the discretisation with shift s, and a separate bin
for 0. The statistic A0 is the number of edits after which the bin changes. The texts take the larger of two
discretisations, s = 0 and s = 1/2; more of them put a range closer to the middle of some bin, at no cost in privacy.

Bins are intervals between doubles, those nearest to the powers of the base; a range's bin is found by comparing
doubles. Differences that overflow count as infinity, which has a separate bin, and so have all ranges below the least
normal double.

Source: Dwork and Lei (2009), algorithm 12 of Dwork and Roth (2014), with the threshold repaired (the printed one, 1 +
ln(1/delta), lacks a division by epsilon: at epsilon = 0.1 a far pair passes 235,000 times too often); the text asks for
a base near 1 + 1 / ln n.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Group, list_groups
from dpsql.mechanisms.base import ClaimedText, Read, RowsClaim, add_salt
from dpsql.mechanisms.order_statistics import (
    Ordered,
    choose_spacing,
    find_rank,
    quote_names,
    read_order_statistics,
    write_order_queries,
)
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise
from dpsql.mechanisms.ptr import stability_test
from dpsql.mechanisms.ptr.stability_test import (
    Answer,
    Measured,
    StabilityTest,
    StableItem,
)
from dpsql.mechanisms.queries import ROW_COUNT, As, Join, Select, Subquery, write_filter
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import hold_to_doubles, make_values
from dpsql.privacy.events import Event, compose_events

LOG_GRID = 1024
"""Steps per unit of the logarithm in the released range."""

NEVER = 10**9
"""More edits than any table has rows: the bin can't change."""

SHIFTS = 8
"""The number of discretisations, the best of which is tested."""

BASES = (1 + Fraction(1, 1 << 16), Fraction(2))
"""The smallest and the largest base."""

_COUNT_SHARE = Fraction(1, 20)
"""The share of an IQR's epsilon that counts the rows if no base is given."""

_EDITS_TO_RANGE = 10
"""The fraction of the base's logarithm moved by one edit of n rows, times n: see :func:`choose_base`."""

_LEAST = 2.0**-1021
_EXACT = Context(prec=50, Emax=MAX_EMAX, Emin=MIN_EMIN)


def find_quartile_ranks(n: int) -> tuple[int, int]:
    """Return the ranks of the lower and the upper quartile among n >= 1 values.

    >>> find_quartile_ranks(40)
    (10, 30)
    """
    return (n + 3) // 4, (3 * n + 3) // 4


def compute_iqr(data: Ordered) -> float:
    """Compute x(u) - x(l), 0 for fewer than two values, infinity if the difference overflows."""
    if data.n < 2:
        return 0.0
    low, high = find_quartile_ranks(data.n)
    with np.errstate(over="ignore"):
        return data.at(high) - data.at(low)


@dataclass(frozen=True)
class LogScale:
    """Logarithms of ranges to a public base: in bins for the test, in steps of 1/1024 for the release.

    Two ranges in one bin are at most ``LOG_GRID + 1`` steps apart: the edges of a bin differ by a factor of the base up to the
    rounding of doubles, and steps are rounded by a monotone function that commutes with whole units. One more step covers both
    roundings and the error of the floating logarithm, which are below a thousandth of a step.
    """

    base: Fraction = Fraction(2)
    shifts: int = 2

    def __post_init__(self) -> None:
        if not BASES[0] <= self.base <= BASES[1] or self.shifts < 1:
            raise ValueError("base: out of range")

    @cached_property
    def _exact(self) -> Decimal:
        return _EXACT.divide(Decimal(self.base.numerator), Decimal(self.base.denominator))

    @cached_property
    def _bits(self) -> float:
        return math.log2(self.base)

    def find_edge(self, k: int, discretisation: int) -> float:
        """Return the lower edge of a bin: the double nearest to base ** (k - s)."""
        back = _EXACT.divide(Decimal(discretisation - 1), Decimal(self.shifts))
        return float(_EXACT.power(self._exact, _EXACT.subtract(Decimal(k), back)))

    def find_bin(self, spread: float, discretisation: int) -> tuple[float, float] | None:
        """Find the bin [low, high) of a range; high is NaN if no range leaves it upwards. None: the bin of 0."""
        if spread == 0:
            return None
        if math.isinf(spread):
            return math.inf, math.nan
        if spread < _LEAST:
            return math.ulp(0.0), _LEAST
        k = math.floor(math.log2(spread) / self._bits + (discretisation - 1) / self.shifts)
        while self.find_edge(k, discretisation) > spread:
            k -= 1
        while self.find_edge(k + 1, discretisation) <= spread:
            k += 1
        return max(self.find_edge(k, discretisation), _LEAST), self.find_edge(k + 1, discretisation)

    def order(self, spread: float) -> list[int]:
        """Return the discretisations, those with the range nearest to the middle of its bin first."""
        if spread == 0 or math.isinf(spread):
            return list(range(1, self.shifts + 1))
        place = math.log2(spread) / self._bits
        return sorted(
            range(1, self.shifts + 1), key=lambda d: abs((place + (d - 1) / self.shifts) % 1 - 1 / 2)
        )

    def to_steps(self, spread: float) -> int:
        """Convert a range to its logarithm in steps, clamped to the normal doubles."""
        if math.isinf(spread):
            return self._to_steps(1024)
        return min(max(self._to_steps(math.log2(spread)), self._to_steps(-1021)), self._to_steps(1024))

    def from_steps(self, steps: int) -> float:
        """Convert a (noisy) number of steps to a range, clamped to the doubles."""
        held = min(max(steps, self._to_steps(-1021)), self._to_steps(1024) - 1)
        whole, part = divmod(held * self._bits / LOG_GRID, 1)
        return math.ldexp(2.0**part, int(whole))

    def _to_steps(self, bits: float) -> int:
        return round(bits / self._bits * LOG_GRID)


def choose_base(rows: int, edits: int) -> Fraction:
    """Choose a base for which smooth data of ``rows`` rows are ``edits`` edits from another bin.

    One edit moves a range by about 1 / (n f r) of itself, with f the density at a quartile in units of the range r; the best of
    the discretisations has its nearest edge 7/16 of a bin away. The tests show that the constant covers usual laws.

    >>> float(choose_base(32_561, 36)) < 1.012
    True
    """
    base = 1 + Fraction(math.ceil(_EDITS_TO_RANGE * edits * (1 << 16) / max(rows, 1)), 1 << 16)
    return min(max(base, BASES[0]), BASES[1])


def count_rows_needed(base: Fraction, edits: int) -> int:
    """Return the number of rows from which smooth data are ``edits`` edits from another bin.

    >>> count_rows_needed(Fraction(102, 100), 36)
    18000
    """
    return math.ceil(_EDITS_TO_RANGE * edits / (base - 1))


BASE_TWO = LogScale()
"""Powers of two, as in the texts."""


@dataclass(frozen=True)
class _Reach:
    """The rank of the upper end that meets a condition, for each rank first, first + 1, ... of the lower end."""

    first: int
    partner: NDArray[np.int64]

    def outwards(self, low: int, high: int) -> int:
        """Minimise a + c over a, c >= 0 such that rank high + c suffices for rank low - a."""
        take = self.partner[: max(0, low - self.first + 1)][::-1]
        if not len(take):
            return NEVER
        skipped = max(0, low - (self.first + len(self.partner) - 1))
        return int(np.min(np.arange(len(take)) + np.maximum(take - high, 0))) + skipped

    def inwards(self, low: int, high: int) -> int:
        """Minimise a + c over a, c >= 0 such that rank high - c is small enough for rank low + a."""
        take = self.partner[max(0, low - self.first) :]
        if not len(take):
            return NEVER
        skipped = max(0, self.first - low)
        return int(np.min(np.arange(len(take)) + np.maximum(high - take, 0))) + skipped


def _find_first(lower: NDArray[np.float64], upper: NDArray[np.float64], edge: float) -> NDArray[np.int64]:
    """Return for each lower value the place of the first upper one at least ``edge`` above it (above it, for edge 0)."""
    ends, places, j = upper.tolist(), [], 0
    for x in lower.tolist():
        # the difference of two equal infinities is NaN, which is not above anything
        while j < len(ends) and not (ends[j] - x >= edge and ends[j] - x > 0):
            j += 1
        places.append(j)
    return np.array(places, dtype=np.int64)


def measure_bin_distance(data: Ordered, discretisation: int, cap: int, scale: LogScale = BASE_TWO) -> int:
    """Measure A0, the edits until the bin of the IQR changes: exact up to ``cap``, else ``cap``.

    Reads only ranks within :func:`bound_reach` of the two quartiles.

    Let ``net`` be the change of n, l' the new lower rank and U = u(n + net) - net. Reaching an outer window that
    lacks e ranks takes e additions outside the ends and e - net removals from between, hence max(net, 2e - net) edits; reaching
    an inner one takes max(-net, 2s + net). With fewer than two rows left the range is 0. With fewer than two rows the answer is
    1: at most two additions leave the bin, and calling the empty table unstable keeps the statistic 1-Lipschitz.
    """
    n = data.n
    if n <= 1:
        return 1
    low, high = find_quartile_ranks(n)
    span = bound_reach(cap)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = compute_iqr(data)
        bounds = scale.find_bin(spread, discretisation)
        first, start = max(low - span, 0), max(high - span, 0)
        lower = data.slice(first, min(low + span, n))
        upper = data.slice(start, min(high + span, n + 1))
        beyond = _find_first(lower, upper, bounds[1] if bounds else 0.0)
        out = _Reach(first, np.where(beyond < len(upper), start + beyond, NEVER))
        into = None
        if bounds:
            within = _find_first(lower, upper, bounds[0]) - 1
            into = _Reach(first, np.where(within >= 0, start + within, -NEVER))
    best = cap
    change = 0
    while change < best:
        for net in {change, -change}:
            size = n + net
            if size < 2:
                if bounds:
                    best = min(best, n if size == 0 else abs(net))
                continue
            new_low, new_high = find_quartile_ranks(size)
            new_high -= net
            gap = out.outwards(new_low, new_high)
            best = min(best, max(net, 2 * gap - net))
            if into:
                gap = into.inwards(new_low, new_high)
                best = min(best, max(-net, 2 * gap + net))
        change += 1
    return max(best, 1)


def bound_reach(cap: int) -> int:
    """Return how many ranks from the quartiles :func:`measure_bin_distance` reads for distances up to ``cap``."""
    return 2 * cap + 4


def measure_scale_radius(data: Ordered, cap: int, scale: LogScale = BASE_TWO) -> int:
    """Measure the edits that certainly keep the IQR within a factor of the base: max A0 - 1 over both bins, at most ``cap``.

    1-Lipschitz as a maximum of 1-Lipschitz statistics. Above 0 some discretisation has A0 >= 2, so every neighbour is
    in the same bin and its logarithm differs by at most 1 (and a range of 0 stays 0).
    """
    if data.n <= 1:
        return 0
    best = 0
    for which in scale.order(compute_iqr(data)):
        best = max(best, measure_bin_distance(data, which, cap + 1, scale))
        if best > cap:
            break
    return best - 1


Radii = tuple[pa.DataType, Mapping[Group, Measured]]


def select_present(query: str, keys: Sequence[str], floating: bool) -> Select:
    """Return the query of the values that are not missing, in their own type."""
    keep = "ABS(v) < CAST('Infinity' AS DOUBLE)" if floating else "v IS NOT NULL"
    value = As("v + 0.0", "v") if floating else "v"
    return Select((*quote_names(keys), value), Subquery(query, "given"), where=keep)


def write_partition(keys: Sequence[str]) -> str:
    """Return the PARTITION BY of a window over groups; empty without groups."""
    return f"PARTITION BY {', '.join(quote_names(keys))} " if keys else ""


def _count_values(query: str, keys: Sequence[str], floating: bool) -> Subquery:
    """Return the query of the rows ``c`` of each value in each group."""
    by, found = (*quote_names(keys), "v"), Subquery(select_present(query, keys, floating), "found")
    return Subquery(Select((*by, As("COUNT(*)", "c")), found, group=by), "counted")


class NoisyItem(StableItem):
    """A number that is released on a grid of steps with noise."""

    noise: LaplaceNoise | GaussianNoise

    @property
    def event(self) -> Event:
        return compose_events([self.test.event, self.noise.event])

    @abstractmethod
    def _to_steps(self, exact: Answer) -> int: ...

    @abstractmethod
    def _from_steps(self, exact: Answer, step: int) -> float:
        """Return the displayed number for a noisy number of steps."""

    def publish(
        self, exact: Sequence[Answer], type: pa.DataType, entropy: Entropy, confidence: float
    ) -> Mapping[str, pa.Array]:
        width = math.ceil(self.noise.half_width(confidence))
        noisy = self.noise.add([self._to_steps(v) if v else 0 for v in exact], entropy)
        columns: dict[str, pa.Array] = {}
        for name, shift in ((self.name, 0), (f"{self.name}__low", -width), (f"{self.name}__high", width)):
            pairs = zip(exact, noisy, strict=True)
            shown = [None if v is None else self._from_steps(v, int(step) + shift) for v, step in pairs]
            columns[name] = make_values(shown, pa.float64())
        return columns


class RankedItem(NoisyItem):
    """A number from a few order statistics, released with noise."""

    def queries(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        return write_order_queries(self.values, keys, *self._window(self.largest_radius))

    def claims(self, keys: tuple[str, ...]) -> Iterator[ClaimedText]:
        claim = RowsClaim(self.rows, self.test.groups, keys, any_function=True)
        return (ClaimedText(text, claim) for text in self.queries(keys))

    def measure(self, read: Read, entropy: Entropy, keys: tuple[str, ...]) -> Radii:
        found = self._read_ranks(add_salt(read, (self.values,), entropy), keys)
        measured = self._measure(list(found.values()), self.largest_radius, entropy)
        converted = (self._convert(radius, exact) for radius, exact in measured)
        return pa.float64(), dict(zip(found, converted, strict=True))

    def _read_ranks(self, read: Read, keys: tuple[str, ...]) -> dict[Group, Ordered]:
        centres, reach = self._window(self.largest_radius)
        return read_order_statistics(read, self.values, keys, centres, reach)

    @abstractmethod
    def _window(self, cap: int) -> tuple[tuple[Fraction, ...], int]:
        """Return the quantiles around which order statistics are read, and the number of ranks."""

    def _measure(self, groups: Sequence[Ordered], cap: int, entropy: Entropy) -> list[tuple[int, Answer]]:
        """Return the radius in rows, and the exact answer, of each group."""
        raise NotImplementedError


class _Spread(NamedTuple):
    """An exact range, and the scale of its logarithm."""

    value: float
    scale: LogScale


@dataclass(frozen=True)
class Iqr(RankedItem):
    """``IQR(x)``: the interquartile range times a base to the power of noise, if its magnitude is stable.

    Proposal: no neighbour's range is more than a factor of the base away, tested by
    :func:`measure_scale_radius`. Released on a grid of 1/1024 of the logarithm, on which near
    pairs differ by at most 1025 steps, the sensitivity that ``noise`` must have (:func:`iqr_sensitivity`), whatever the base. A
    stable range of 0 is released as 0. Without a public ``base`` (a smaller one means less noise and more rows), a noisy
    ``count`` of the group's rows selects it: that is released first, and the rest is a mechanism for that base. Loss: count +
    test + noise. ``ends`` are the declared bounds, to which values and the answer are clamped.
    """

    name: str
    values: str
    test: StabilityTest
    noise: LaplaceNoise | GaussianNoise
    rows: int = 1
    ends: tuple[Fraction, Fraction] | None = None
    base: Fraction | None = Fraction(2)
    count: LaplaceNoise | None = None

    def __post_init__(self) -> None:
        if (self.base is None) == (self.count is None):
            raise ValueError("either a base or a noisy count that chooses it")

    @property
    def event(self) -> Event:
        counted = [self.count.event] if self.count is not None else []
        return compose_events([*counted, self.test.event, self.noise.event])

    def _window(self, cap: int) -> tuple[tuple[Fraction, ...], int]:
        return (Fraction(1, 4), Fraction(3, 4)), bound_reach(cap + 1)

    def _measure(self, groups: Sequence[Ordered], cap: int, entropy: Entropy) -> list[tuple[int, Answer]]:
        found = []
        for data, scale in zip(groups, self._scales([data.n for data in groups], entropy), strict=True):
            held = data.within(float(self.ends[0]), float(self.ends[1])) if self.ends is not None else data
            spread = _Spread(compute_iqr(held), scale)
            found.append((measure_scale_radius(held, cap, scale=scale), spread))
        return found

    def _scales(self, sizes: Sequence[int], entropy: Entropy) -> list[LogScale]:
        """Return each group's scale: the given one, or the one selected by a noisy count of its rows."""
        if self.base is not None:
            return [LogScale(self.base, SHIFTS)] * len(sizes)
        if self.count is None:
            raise AssertionError("checked when it was made")
        noisy = self.count.add(sizes, entropy)
        return [LogScale(self._choose_base(int(n)), SHIFTS) for n in noisy]

    def _choose_base(self, rows: int) -> Fraction:
        return choose_base(rows, self._edits)

    @property
    def _edits(self) -> int:
        """The distance to another bin from which the test passes in 99 of 100 runs, in edits."""
        return (self.test.needed(0.99) + 1) * self.rows

    def _to_steps(self, exact: Answer) -> int:
        return exact.scale.to_steps(exact.value) if exact.value else 0

    def _from_steps(self, exact: Answer, step: int) -> float:
        if exact.value == 0:
            return 0.0
        spread: float = exact.scale.from_steps(step)
        return spread if self.ends is None else min(spread, float(self.ends[1] - self.ends[0]))

    def sentences(self, confidence: float) -> tuple[str, ...]:
        held = "No bounds are declared, so nothing else limits it."
        if self.ends is not None:
            held = (
                f"Values and answer are clamped to the declared bounds, {float(self.ends[0]):g} to "
                f"{float(self.ends[1]):g}."
            )
        reach = self.noise.half_width(confidence) / LOG_GRID
        if self.base is not None:
            factor = _power(self.base, reach)
            needed = count_rows_needed(self.base, self._edits)
            how = f"{float(self.base):.6g}; smooth data pass from about {needed:,} rows"
            within = f"within a factor of {factor:.4g} at {confidence:.0%}"
        else:
            sizes = (1_000, 10_000, 100_000, 1_000_000)
            factors = ", ".join(f"{_power(self._choose_base(n), reach):.4g} at {n:,}" for n in sizes)
            how = "a base, which a noisy count of the rows chooses so that smooth data pass in 99 of 100 runs"
            within = f"within a factor that depends on the rows: {factors} ({confidence:.0%})"
        return (
            f"{self.name}: the proposal is that one unit changes the interquartile range by less than a factor "
            f"of {how}; {self.test.sentence()}.",
            f"{self.name}: then the range is released times the base to the power of noise, {within}. "
            f"A range of 0 is released as 0. {held}",
        )


def _power(base: Fraction, exponent: float) -> float:
    """Return a power as a float; infinity if it is too large."""
    return math.exp(min(exponent * math.log(base), 709.0))


def make_row_count(epsilon: Fraction, rows: int, groups: int) -> LaplaceNoise:
    """Return the noise of the count that selects a base, for its share of an item's epsilon."""
    return LaplaceNoise(epsilon * _COUNT_SHARE, rows, groups)


def iqr_sensitivity() -> int:
    """Return the distance of near pairs' logarithms in grid steps: the sensitivity of :class:`Iqr`'s noise."""
    return LOG_GRID + 1


@dataclass(frozen=True)
class Quantile(StableItem):
    """``QUANTILE_DISC(x, p)`` and ``MEDIAN(x)``: the value of rank max(1, ceil(p n)), exact, if it is stable.

    Any ordered type. Loss: the test's. An unstable value is released with probability at most delta.
    """

    name: str
    values: str
    probability: Fraction
    test: StabilityTest
    rows: int = 1
    floating: bool = False

    def _text(self, keys: Sequence[str]) -> str:
        """Select n per group, and the rank range of each value that may be the quantile."""
        p, by, part = self.probability, (*quote_names(keys), "v"), write_partition(keys).rstrip()
        counted = _count_values(self.values, keys, self.floating)
        ranks = As(f"SUM(c) OVER ({part})", "n"), "c", As(f"SUM(c) OVER ({part} ORDER BY v)", "upto")
        # the first value whose last rank reaches p n, in integers (for p n = 0 that is the first value)
        wanted = f"{p.numerator} * n"
        reached = f"{p.denominator} * upto >= {wanted} AND {p.denominator} * (upto - c) < {wanted}"
        if p == 0:
            reached = "upto = c"
        named = (("n", "n"), ("upto - c", "below"), ("upto", "upto"))
        shown = (As(f"CAST({sql} AS BIGINT)", name) for sql, name in named)
        return Select((*by, *shown), Subquery(Select((*by, *ranks), counted), "ranked"), reached).sql

    @property
    def _counted(self) -> str:
        return Select(ROW_COUNT, Subquery(select_present(self.values, (), self.floating), "found")).sql

    def _placed(self, at: float, place: int | None = None) -> str:
        """Select the value of a rank by the engine's own selection: ``at`` is (rank - 1/2) / n.

        The engine keeps all values in memory for it; if they are too many, a sort, which may spill, skips ``place`` of them.
        """
        kept = Subquery(select_present(self.values, (), self.floating), "found")
        chosen = Select(As(f"PERCENTILE_DISC({at!r}) WITHIN GROUP (ORDER BY v)", "q"), kept)
        if place is not None:
            chosen = Select(As("v", "q"), kept, order="v", limit=1, offset=place)
        counts = (
            As(f"COUNT(*){write_filter(f'v {sign} q')}", n) for sign, n in (("<", "below"), ("<=", "upto"))
        )
        return Select((As("q", "v"), *counts), Join(kept, Subquery(chosen, "chosen")), group="q").sql

    def queries(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        return (self._text(keys),) if keys else (self._counted, self._placed(float(self.probability)))

    def measure(self, read: Read, entropy: Entropy, keys: tuple[str, ...]) -> Radii:
        reader = add_salt(read, (self.values,), entropy)
        if keys:
            table = reader(self._text(keys))
        else:
            n = int(reader(self._counted).column("n")[0].as_py())
            wanted = find_rank(n, self.probability)
            # half a rank below the wanted one, so that the engine's rounding can't reach another rank
            at = (wanted - 0.5) / n if n else 0.5
            many = 0 < 2 * reader.room < n
            table = reader(self._placed(at, wanted - 1 if many else None))
            table = table.append_column("n", make_values([n] * table.num_rows, pa.int64()))
        columns = (table.column(name).to_pylist() for name in ("n", "below", "upto"))
        found = {}
        for key, v, n, below, upto in zip(list_groups(table, keys), table.column("v"), *columns, strict=True):
            counts, cap = (int(n), int(below), int(upto)), self.largest_radius
            radius = stability_test.measure_quantile_radius(*counts, self.probability, cap=cap)
            found[key] = self._convert(radius, v)
        return table.schema.field("v").type, found

    def sentences(self, confidence: float) -> tuple[str, ...]:
        return self._sentences(
            f"the exact {float(self.probability):.4g} quantile, released if no table nearby has another"
        )


class _LeadingItem(StableItem):
    """The value that leads all others by a count or a sum, exactly."""

    _numbers: tuple[str, ...]
    """Further columns of the query: the leading number, then others."""

    @abstractmethod
    def _text(self, keys: Sequence[str]) -> str:
        """Select the two leading values of each group, with their place 1 or 2."""

    @abstractmethod
    def _radius(self, first: tuple[int, ...], second: tuple[int, ...] | None) -> int:
        """Return the radius in rows, given the numbers of the leading value and of the runner-up."""

    def queries(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        return (self._text(keys),)

    def measure(self, read: Read, entropy: Entropy, keys: tuple[str, ...]) -> Radii:
        table = add_salt(read, (self.values,), entropy)(self._text(keys))
        columns = (table.column(name).to_pylist() for name in ("place", *self._numbers))
        leading: dict[Group, dict[int, tuple[Answer, tuple[int, ...]]]] = {}
        groups = list_groups(table, keys)
        for key, v, place, *numbers in zip(groups, table.column("v"), *columns, strict=True):
            leading.setdefault(key, {})[int(place)] = (v, tuple(map(int, numbers)))
        found = {}
        for key, places in leading.items():
            radius = self._radius(places[1][1], places[2][1] if 2 in places else None)
            found[key] = self._convert(radius, places[1][0])
        return table.schema.field("v").type, found


@dataclass(frozen=True)
class Mode(_LeadingItem):
    """``MODE(x)``: the most frequent value, exact, if it is stable; the smallest wins ties. Any type, no domain."""

    name: str
    values: str
    test: StabilityTest
    rows: int = 1
    floating: bool = False

    _numbers = ("c", "size")

    def _text(self, keys: Sequence[str]) -> str:
        counted, part = _count_values(self.values, keys, self.floating), write_partition(keys)
        columns = (*quote_names(keys), "v", "c")
        place = As(f"ROW_NUMBER() OVER ({part}ORDER BY c DESC, v)", "place")
        if not keys:
            leading = Select(columns, counted, order="c DESC, v", limit=2)
        else:
            placed = Subquery(Select((*columns, place), counted), "placed")
            leading = Select(columns, placed, "place <= 2")
        size = As(f"ROW_NUMBER() OVER ({part}ORDER BY v)", "size")
        return Select((*columns, place, size), Subquery(leading, "ahead")).sql

    def _radius(self, first: tuple[int, ...], second: tuple[int, ...] | None) -> int:
        count, larger = (0, False) if second is None else (second[0], first[1] == 1)
        return stability_test.measure_mode_radius(first[0], count, larger)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        return self._sentences("the most frequent value, exact, released if it leads by enough")


@dataclass(frozen=True)
class ArgMax(_LeadingItem):
    """The group with the largest sum, exact, if it is stable; the smallest key wins ties.

    ``values`` returns ``v``, the group, and ``amount``, an integer (grid steps) clamped to ``bound`` in absolute value;
    NULL groups and amounts are missing. COUNT is the sum of ones.
    """

    name: str
    values: str
    bound: int
    test: StabilityTest
    rows: int = 1

    _numbers = ("total",)

    def _text(self, keys: Sequence[str]) -> str:
        by, there = (*quote_names(keys), "v"), ("v IS NOT NULL", "amount IS NOT NULL")
        total = As("SUM(CAST(amount AS BIGINT))", "total")
        summed = Subquery(Select((*by, total), Subquery(self.values, "given"), there, by), "summed")
        place = As(f"ROW_NUMBER() OVER ({write_partition(keys)}ORDER BY total DESC, v)", "place")
        placed = Subquery(Select((*by, "total", place), summed), "placed")
        return Select((*by, "total", "place"), placed, "place <= 2").sql

    def claims(self, keys: tuple[str, ...]) -> Iterator[ClaimedText]:
        yield from super().claims(keys)
        within = (("amount", self.bound),)
        yield ClaimedText(self.values, RowsClaim(self.rows, self.test.groups, keys, within=within))

    def _radius(self, first: tuple[int, ...], second: tuple[int, ...] | None) -> int:
        return stability_test.measure_argmax_radius(first[0], second[0] if second else 0, self.bound)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        return self._sentences("the group with the largest sum, exact, released if it leads by enough")


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
            f"{self.name}: the proposal is that one unit moves {self._answer} by at most {bound:.6g}; "
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

    def _measure(self, groups: Sequence[Ordered], cap: int, entropy: Entropy) -> list[tuple[int, Answer]]:
        return [self._measure_one(data, cap) for data in groups]

    def _measure_one(self, data: Ordered, cap: int) -> tuple[int, int]:
        n, radius, answers = data.n, cap, []
        for probability in self._probabilities:
            rank = find_rank(n, probability)
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

    If a row is added, the range moves by no more than one of its quartiles does: if both ranks stay, both quartiles decrease or
    stay, and if both grow, both increase or stay; if the upper rank alone grows, a low row moves only the lower quartile and a
    high row only the upper. (The lower grows only if the upper does.) Removal is the inverse. So a table without a gap wider than
    b that a quartile can cross is not bad, and the smaller of the two distances is 1-Lipschitz and 0 at every bad table.
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
        by, counted = (*quote_names(keys), "c"), _count_values(self.values, keys, floating=True)
        shown = As("COUNT(*)", "many"), As("MIN(v)", "low"), As("MAX(v)", "high")
        return Select((*by, *shown), counted, group=by).sql

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
