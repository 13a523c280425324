"""The cost of a plan that was declared as a whole: its privacy loss distribution.

For a list of mechanisms fixed before the first answer, the distribution of the summed privacy loss is the tightest account.
(It is *no* filter: as a stopping rule it fails, see :mod:`dpsql.privacy.filters`.) Each mechanism is replaced by its
dominating pair of distributions, whose losses are put on a grid *pessimistically*: the mass p between two grid points goes to
these two, so that its mass under both distributions is kept. This is a mean-preserving spread of the likelihood ratio
(connect-the-dots on the privacy profile), so the result dominates.

Floats are used, with a bound on their error: all numbers are positive and convolutions are summed directly, without a Fourier
transform, so every mass is right up to a relative ``slack`` that is carried along and charged at the end. Mass cut off at the
ends is moved to a larger loss.

>>> from dpsql.privacy.events import DiscreteLaplace
>>> hundred = [DiscreteLaplace(Fraction("0.1"), 1000)] * 100
>>> find_cost(hundred, Fraction(1, 10**6)) < Fraction("4.6927")
True
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.numerics.exact_numbers import Floats, round_significant, write_number
from dpsql.privacy import conversions
from dpsql.privacy.events import (
    BoundedRange,
    Composed,
    DiscreteLaplace,
    Event,
    EventList,
    GaussianSparseVector,
    GaussianTest,
    GroupSelection,
    JointGaussian,
    PureDP,
    RenyiSelection,
    RoundedGaussian,
    StableTest,
    compose_events,
    require,
)

POINTS = 12_000
"""The number of grid points that the distribution of a whole plan gets."""

FINE_POINTS = 24_000
"""The points if the number is charged; fewer for many different mechanisms, to stay below a second."""

_UNIT = 2.0**-52
_PIECE = 8192
_CUT = 1e-22  # mass that may be moved to infinity at each composition


@dataclass(frozen=True)
class Loss:
    """A distribution that dominates a privacy loss: masses at multiples of ``step``, and one at infinity.

    ``masses[i]`` is the probability of loss ``(low + i) * step``; all are right up to a factor ``1 + slack``.
    """

    step: float
    low: int
    masses: Floats
    infinite: float
    slack: float

    def delta(self, epsilon: float) -> float:
        """Bound the hockey-stick divergence at ``e**epsilon`` from above."""
        losses = (self.low + np.arange(len(self.masses))) * self.step
        above = losses > epsilon
        inner = float(np.sum(self.masses[above] * -np.expm1(epsilon - losses[above])))
        return min(1.0, (inner + self.infinite) * (1 + self.slack + 1e-12) + 1e-300)

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 with ``self.delta(epsilon) <= delta``, from above; perhaps infinite."""
        if self.delta(0.0) <= delta:
            return 0.0
        low, high = 0.0, (self.low + len(self.masses)) * self.step
        if self.delta(high) > delta:
            return math.inf
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high

    def with_(self, other: Loss) -> Loss:
        """Compose with another loss, one after the other or at once."""
        if self.step != other.step:
            raise ValueError("losses on different grids")
        slack = self.slack + other.slack + _UNIT * (min(len(self.masses), len(other.masses)) + 64)
        joint = _convolved(self.masses, other.masses)
        infinite = self.infinite + other.infinite + 1e-300 * len(joint)
        return _trimmed(Loss(self.step, self.low + other.low, joint, infinite, slack))

    def times(self, count: int) -> Loss:
        """Compose ``count`` independent ones, by squaring."""
        result, power = None, self
        while True:
            if count & 1:
                result = power if result is None else result.with_(power)
            count >>= 1
            if not count:
                return power if result is None else result
            power = power.with_(power)


def make_loss(profile: Callable[[Floats], Floats], low: float, high: float, step: float) -> Loss:
    """Return the loss whose profile connects the dots ``(e^x, profile(x))`` at multiples of ``step``.

    The profile must be an upper bound of the hockey-stick divergence that is convex in ``e^x``. Losses above ``high`` count as
    infinite; below ``low`` the profile is the chord to ``(0, 1)``.
    """
    first, last = math.floor(low / step), math.ceil(high / step)
    h = np.asarray(profile(np.asarray(np.arange(first, last + 1) * step)), dtype=np.float64)
    up = np.append(np.diff(h), 0.0) / np.expm1(step)
    down = np.append(h[0] - 1, np.diff(h) / -np.expm1(-step))  # the first chord starts at (0, 1)
    masses = np.maximum(0.0, up - down)
    return _trimmed(Loss(step, first, masses, float(h[-1]), 1e-9))


def compute_loss(events: Iterable[Event], step: float | None = None, points: int = POINTS) -> Loss:
    """Compute the loss of mechanisms fixed in advance, Gaussian parts joined exactly; ``step`` None: about ``points`` points."""
    plain: Counter[tuple[str, Fraction, int]] = Counter()
    mu_squared = infinite = shift = Fraction(0)
    parts = Counter(part for event in events for part in event.parts)
    for part, count in parts.items():
        match part:
            case DiscreteLaplace(epsilon, sensitivity, coordinates):
                plain["laplace", epsilon / coordinates, sensitivity] += count * coordinates
            case BoundedRange(epsilon, peels):
                plain["range", epsilon / peels, 0] += count * peels
            case PureDP(epsilon) | StableTest(epsilon):
                plain["laplace", epsilon, 1] += count
            case GroupSelection(epsilon, _, groups):
                plain["laplace", epsilon / groups, 1] += count * groups
            case RenyiSelection() if part.held:
                mu_squared += count * part.mu_squared
            case RenyiSelection(epsilon):
                plain["laplace", epsilon, 1] += count
            case RoundedGaussian(sigma, squared):
                mu_squared += count * squared / (sigma * sigma)
            case JointGaussian():
                mu_squared += count * part.mu_squared
            case GaussianTest(sigma):
                mu_squared += count / (sigma * sigma)
            case GaussianSparseVector(sigma):
                mu_squared += count * part.rounds / (sigma * sigma)
                shift += count * part.rounds * part.share
            case _:
                raise ValueError(f"no privacy loss distribution is known for a {part.kind} event")
        infinite += count * part.delta  # f_{0, delta} with the near pair dominates both kinds of pair
    step = step or _step(plain, float(mu_squared), points / max(1, len(plain)) ** 0.25)
    total = Loss(step, 0, np.ones(1), float(infinite) * (1 + 1e-15), 0.0)
    for (name, epsilon, fine), count in sorted(plain.items()):
        one = _laplace(float(epsilon), fine, step) if name == "laplace" else _range(float(epsilon), step)
        total = total.with_(one.times(count))
    if mu_squared:
        total = total.with_(gaussian_loss(math.sqrt(mu_squared) * (1 + 1e-15), step))
    # A loss that is larger by a constant: the rest of the second distribution's mass is outside the first's support.
    return replace(total, low=total.low + math.ceil(shift / Fraction(step)))


def find_cost(events: Iterable[Event], delta: Fraction) -> Fraction:
    """Return the smallest epsilon, rounded up to nine digits, proved at ``delta`` for a declared plan.

    The best of its privacy loss distribution, of zCDP, and of the plain sum if all is pure: each is a bound for the
    fixed list, so the smallest counts.

    Raises:
        ValueError: delta is not more than the mechanisms' own deltas, and some mechanism is not pure.
    """
    return _cost(tuple(events), delta)


@lru_cache(maxsize=64)
def _cost(events: tuple[Event, ...], delta: Fraction) -> Fraction:
    found: list[Fraction] = []
    whole = [event.pure for event in events]
    if None not in whole:
        found.append(sum((epsilon for epsilon in whole if epsilon is not None), Fraction(0)))
    own = sum((event.delta for event in events), Fraction(0))
    if own < delta < 1:
        rho = sum((event.rho for event in events), Fraction(0))
        found.append(round_significant(conversions.find_smallest_epsilon(rho, delta - own), 9, up=True))
        below = math.nextafter(float(delta), 0.0)
        epsilon = compute_loss(events, points=FINE_POINTS).epsilon(below)
        if math.isfinite(epsilon):
            found.append(round_significant(Fraction(epsilon) * (1 + Fraction(1, 10**9)), 9, up=True))
    if not found:
        raise ValueError("delta must be above the sum of the mechanisms' own deltas")
    return min(found)


def is_proved(events: tuple[Event, ...], epsilon: Fraction, delta: Fraction) -> bool:
    """Return whether :func:`find_cost` proves (epsilon, delta) for the plan."""
    try:
        return find_cost(events, delta) <= epsilon
    except ValueError:
        return False


@dataclass(frozen=True)
class DeclaredPlan(EventList):
    """Statements declared together before the first one ran, none chosen from another's answer; made by :func:`declare`.

    ``basic`` is the declared pair, which the construction checks against the privacy loss distribution of all parts: that bound
    holds for a list fixed in advance, and not if the next part depends on earlier answers.

    Raises:
        ValueError: the plan costs more than the declared pair.
    """

    kind: ClassVar[str] = "declared_plan"
    declared_epsilon: Fraction
    declared_delta: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            is_proved(self.events, self.declared_epsilon, self.declared_delta),
            f"the plan costs more than ε={write_number(self.declared_epsilon)}, δ={write_number(self.declared_delta)}",
        )

    @property
    def basic(self) -> tuple[Fraction, Fraction]:
        return self.declared_epsilon, self.declared_delta


def declare(events: Iterable[Event], delta: Fraction) -> DeclaredPlan:
    """Return one event for statements that were all priced before the first ran, none chosen from another's answer.

    Args:
        events: one for each statement.
        delta: charged by basic composition; the epsilon is :func:`find_cost` there. With 0 the plan must be pure, and costs the
            sum.

    Raises:
        ValueError: there is no event, or delta does not cover the mechanisms' own deltas.
    """
    listed = tuple(events)
    if not listed:
        raise ValueError("a plan has at least one event")
    return DeclaredPlan(listed, find_cost(listed, delta), delta)


def declare_if_cheaper(events: Sequence[Event], delta: Fraction) -> Event:
    """Return the cheaper event of statements that were priced together: their sum, or a declared plan with this delta."""
    whole = compose_events(events)
    if len(events) == 1 or not whole.delta < delta:
        return whole
    together = declare(whole.events if isinstance(whole, Composed) else [whole], delta)
    return together if together.basic[0] < whole.basic[0] else whole


def _step(plain: Counter[tuple[str, Fraction, int]], mu_squared: float, points: float) -> float:
    """Return a grid step that is fine enough for the whole and divides the smallest epsilon, which has most of the mass.

    For discrete Laplace noise it also hits the losses between, if that takes at most three times the points.
    """
    sizes = [(float(epsilon), count) for (_, epsilon, _), count in plain.items()]
    deviation = math.sqrt(sum(count * e * e for e, count in sizes) + mu_squared)
    most = 2 * sum(count * e for e, count in sizes) + 20 * math.sqrt(mu_squared)
    step = max(1e-9, min(most, 24 * deviation + deviation * deviation) / points)
    smallest, fine = min(((float(epsilon), fine) for _, epsilon, fine in plain), default=(0.0, 0))
    if smallest <= step:
        return step
    cells = math.ceil(smallest / step)
    atoms = fine // 2 if fine % 2 == 0 else fine
    if 0 < atoms <= 3 * cells:
        cells = atoms * max(1, round(cells / atoms))
    return smallest / cells


def _laplace(epsilon: float, sensitivity: int, step: float) -> Loss:
    """Return the loss of discrete Laplace noise: ``sensitivity + 1`` losses with geometric masses."""
    slope = epsilon / sensitivity
    ratio = math.exp(-slope)
    ends = np.array([epsilon, -epsilon])
    weights = np.array([1.0, math.exp(-epsilon)]) / (1 + ratio)
    if sensitivity < 4 * POINTS:
        k = np.arange(1, sensitivity)
        ends = np.append(ends, slope * (sensitivity - 2.0 * k))
        weights = np.append(weights, np.exp(-slope * k) * -math.expm1(-slope) / (1 + ratio))
        return _on_grid(ends, weights, step)
    cells = np.arange(math.floor(-epsilon / step), math.ceil(epsilon / step))
    edges = np.append(cells, cells[-1] + 1) * step
    # the first atom at or below each edge
    k = np.clip(np.ceil((sensitivity - edges / slope) / 2), 1, sensitivity)
    first, count = k[1:], k[:-1] - k[1:]
    share = -np.expm1(-slope * count) / (1 + ratio)
    p, q = np.exp(-slope * first) * share, np.exp(-slope * (sensitivity + 1 - k[:-1])) * share
    full = count > 0
    inner = _cells(cells[full], p[full], q[full], step, 1e-12)
    return _sum(_on_grid(ends, weights, step), inner)


def _range(epsilon: float, step: float) -> Loss:
    """Return losses in a range of length epsilon: density ``e^((s - epsilon) / 2)`` up to a constant."""
    cells = np.arange(math.floor(-epsilon / step), math.ceil(epsilon / step))
    a, b = np.maximum(cells * step, -epsilon), np.minimum((cells + 1) * step, epsilon)
    full = b > a
    cells, a, b = cells[full], a[full], b[full]
    width = np.expm1((b - a) / 2) / -math.expm1(-epsilon)
    return _cells(cells, np.exp((a - epsilon) / 2) * width, np.exp(-(b + epsilon) / 2) * width, step, 1e-12)


def gaussian_loss(mu: float, step: float) -> Loss:
    """Return the loss of a mu-GDP mechanism: N(mu^2 / 2, mu^2), and N(-mu^2 / 2, mu^2) on the other side."""
    middle, reach = mu * mu / 2, 10.5 * mu
    cells = np.arange(math.floor((middle - reach) / step), math.ceil((middle + reach) / step))
    edges = np.append(cells, cells[-1] + 1) * step
    p, p_error = _normal_masses((edges - middle) / mu)
    q, q_error = _normal_masses((edges + middle) / mu)
    doubt = np.minimum(1.0, (p_error / p + q_error / q) / -math.expm1(-step))
    inner = _cells(cells, p, q, step, doubt)
    below, above = _tail(-(edges[0] - middle) / mu), _tail((edges[-1] - middle) / mu)
    masses = inner.masses.copy()
    masses[0] += below * (1 + 1e-12)  # losses below the grid are counted at its end: larger than they are
    slack = float(np.max(p_error / p))
    return Loss(step, inner.low, masses, inner.infinite + above * (1 + 1e-12), slack)


def _normal_masses(edges: Floats) -> tuple[Floats, Floats]:
    """Compute the normal masses between edges, from the side where tails are small, and their errors."""
    tails = np.array([_tail(abs(edge)) for edge in edges])
    near, far = np.minimum(tails[:-1], tails[1:]), np.maximum(tails[:-1], tails[1:])
    across = (edges[:-1] < 0) & (edges[1:] > 0)
    masses = np.where(across, 1 - near - far, far - near)
    return np.maximum(masses, 1e-300), 16 * _UNIT * np.where(across, 1.0, far) * (1 + np.square(edges[1:]))


def _tail(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2


def _cells(cells: NDArray[np.int64], p: Floats, q: Floats, step: float, doubt: Floats | float) -> Loss:
    """Move the masses of cells ``[i, i + 1] * step``, under both distributions, to the ends of the cells."""
    inside = q * np.exp(cells * step) / p  # the mean of exp(-(loss - left end)) in the cell
    upper = np.clip((1 - inside) / -math.expm1(-step) + doubt, 0.0, 1.0) * p
    low = int(cells.min())
    masses = np.zeros(int(cells.max()) - low + 2)
    np.add.at(masses, cells - low, p - upper)
    np.add.at(masses, cells - low + 1, upper)
    return Loss(step, low, masses, 0.0, 1e-12)


def _on_grid(losses: Floats, weights: Floats, step: float) -> Loss:
    """Move each atom to the two grid points around it."""
    cells = np.floor(losses / step).astype(np.int64)
    return _cells(cells, weights, weights * np.exp(-losses), step, 1e-11)


def _sum(a: Loss, b: Loss) -> Loss:
    low, high = min(a.low, b.low), max(a.low + len(a.masses), b.low + len(b.masses))
    masses = np.zeros(high - low)
    for part in (a, b):
        masses[part.low - low : part.low - low + len(part.masses)] += part.masses
    return Loss(a.step, low, masses, a.infinite + b.infinite, max(a.slack, b.slack) + _UNIT)


def _convolved(a: Floats, b: Floats) -> Floats:
    """Convolve in pieces so short that the linear algebra library starts no threads; waiting for those may take seconds."""
    short, long = (a, b) if len(a) <= len(b) else (b, a)
    joint = np.zeros(len(a) + len(b) - 1)
    for first in range(0, len(short), _PIECE):
        part = np.convolve(short[first : first + _PIECE], long)
        joint[first : first + len(part)] += part
    return joint


def _trimmed(loss: Loss) -> Loss:
    """Cut off negligible masses: the upper end becomes infinite, the lower end is moved up."""
    above = np.cumsum(loss.masses[::-1])[::-1]
    below = np.cumsum(loss.masses)
    keep = max(1, int(np.searchsorted(-above, -_CUT)))
    first = min(int(np.searchsorted(below, _CUT)), keep - 1)
    masses = loss.masses[first:keep].copy()
    masses[0] += below[first - 1] if first else 0.0
    infinite = loss.infinite + (float(above[keep]) * (1 + 1e-9) if keep < len(above) else 0.0)
    return Loss(loss.step, loss.low + first, masses, infinite, loss.slack + 1e-12)
