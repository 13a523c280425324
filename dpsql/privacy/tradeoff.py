"""Trade-off functions as objects (f-DP; Dong, Roth, Su 2022): the best that an attacker can do.

``f(alpha)`` is the smallest rate of misses of a test that raises false alarms at rate ``alpha``, when it
tries to tell two neighbouring data sets apart from a mechanism's output; ``1 - alpha`` is perfect privacy. A
function is one exactly when it is convex, continuous, non-increasing and at most ``1 - alpha``. A mechanism
is f-DP for every ordered pair of neighbours of the session's relation, hence also ``f.symmetrised()``-DP.

Where a curve can't be had in closed form it is bounded from *below*, so that it stays a guarantee. Curves are
for looking at and for calibration: what is charged is decided from events, by filters, in exact arithmetic.

>>> gaussian(1).delta(1)
0.12693673750664394
>>> gaussian(0.6).tensor(gaussian(0.8)), gaussian(0.5).group(3)
(gaussian(mu=1), gaussian(mu=1.5))
>>> round(from_epsilon_delta(1, 0).tensor(from_epsilon_delta(1, 0)).delta(1), 6)
0.337835

Limits are not guarantees. The central limit theorem for f-DP says that many small mechanisms look like one
Gaussian; for any finite number of them that may be wrong in either direction: twenty rare events can have
1900 times the delta that the limit shows. An :class:`Approximation` therefore is neither an event nor a
trade-off function: it draws a curve, says what it is, and bounds its own error where a bound is known.
Nothing can be charged by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import ClassVar

import numpy as np

from dpsql.numerics.exact_numbers import Floats, compute_root
from dpsql.privacy import conversions
from dpsql.privacy.events import Event
from dpsql.privacy.pld import Loss, compute_loss, gaussian_loss, make_loss

Real = Fraction | float | int

_POINTS = 8192  # of the grid on which two curves without atoms are composed
_ATOMS = 2_000_000  # pairs of atoms that are still composed one by one


class TradeOff:
    """A trade-off function. Subclasses give ``__call__``; all else has a numerical default."""

    symmetric: ClassVar[bool] = False
    """True where exchanging the two data sets gives the same curve."""

    def __call__(self, alpha: float) -> float:
        """Return the smallest type II error at type I error ``alpha``, both in [0, 1]."""
        raise NotImplementedError

    def delta(self, epsilon: float) -> float:
        """Return the delta of (epsilon, delta)-DP by duality: ``1 + f*(-e^epsilon)``, any real epsilon."""
        slope = math.exp(epsilon)
        return max(0.0, _highest(lambda alpha: 1 - self(alpha) - slope * alpha))

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 whose delta is at most ``delta``; infinite when there is none."""
        high = 1.0
        while self.delta(high) > delta:
            high *= 2
            if high > 700:
                return math.inf
        low = 0.0 if self.delta(0.0) > delta else high
        if low == high:
            return 0.0
        while high - low > 1e-13 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high

    def inverse(self) -> TradeOff:
        """Exchange the roles of the two data sets: ``inf {t : f(t) <= alpha}``."""
        return self if self.symmetric else _Inverse(self)

    def symmetrised(self) -> TradeOff:
        """Return ``max(f, f^-1)``, which also holds because neighbouring is symmetric."""
        return self if self.symmetric else _Symmetrised(self)

    def group(self, k: int) -> TradeOff:
        """Return the curve for k privacy units at once: ``1 - (1 - f)`` applied k times."""
        if k < 1:
            raise ValueError("a group has at least one member")
        return self if k == 1 else _Group(self, k)

    def tensor(self, other: TradeOff) -> TradeOff:
        """Compose: both mechanisms on the same data, their parameters fixed in advance.

        Exact for Gaussians and for piecewise linear curves with few corners; else a lower bound from the grid
        of :mod:`dpsql.privacy.pld`. As a stopping rule for parameters chosen on the way it is *not*
        valid.
        """
        mine, others = self._atoms(), other._atoms()
        if mine is not None and others is not None and len(mine[0]) * len(others[0]) <= _ATOMS:
            return _merged(mine, others)
        reach = self._reach() + other._reach()
        step = 2 * reach / _POINTS
        return PiecewiseLinear(*atoms_of(self._loss(step).with_(other._loss(step))))

    @property
    def kl(self) -> float:
        """``-integral of log |f'|``: the relative entropy; infinite where f is flat."""
        return -self._moment(lambda x: x)

    @property
    def kappa2(self) -> float:
        """``integral of log^2 |f'|``."""
        return self._moment(np.square)

    @property
    def kappa3(self) -> float:
        """``integral of |log |f'||^3``."""
        return self._moment(lambda x: np.abs(x) ** 3)

    @property
    def kappa3bar(self) -> float:
        """``integral of |log |f'| + kl|^3``: the third absolute central moment."""
        kl = self.kl
        return self._moment(lambda x: np.abs(x + kl) ** 3) if math.isfinite(kl) else math.inf

    def _atoms(self) -> tuple[Floats, Floats, float] | None:
        """Return losses, masses, and the mass at infinity; None for a curve that is not piecewise linear."""
        return None

    def _reach(self) -> float:
        """Return a loss beyond which nothing matters."""
        return max(self.epsilon(1e-15), 1e-6) if self.delta(700.0) == 0 else 40.0

    def _loss(self, step: float) -> Loss:
        reach = self._reach()
        return make_loss(lambda x: np.array([self.delta(float(v)) for v in x]), -reach, reach, step)

    def _moment(self, power: Callable[[Floats], Floats]) -> float:
        """Compute the mean of ``power(log |f'|)`` over alpha."""
        atoms = self._atoms() or atoms_of(self._loss(2 * self._reach() / _POINTS))
        losses, masses, _ = atoms
        weights = masses * np.exp(-losses)
        if 1 - float(weights.sum()) > 1e-9:
            return math.inf if power(np.array([-1.0]))[0] > 0 else -math.inf
        return float(np.sum(weights * power(losses)))


class Gaussian(TradeOff):
    """``G_mu``, in closed form."""

    symmetric = True

    def __init__(self, mu: Real) -> None:
        if mu < 0:
            raise ValueError("mu can't be negative")
        self.mu = Fraction(mu)

    def __repr__(self) -> str:
        return f"gaussian(mu={float(self.mu):.12g})"

    def __call__(self, alpha: float) -> float:
        if alpha <= 0 or alpha >= 1:
            return 1.0 if alpha <= 0 else 0.0
        return NormalDist().cdf(-NormalDist().inv_cdf(alpha) - float(self.mu))

    def delta(self, epsilon: float) -> float:
        return float(conversions.gaussian_delta_digits(self.mu, Fraction(epsilon)))

    def epsilon(self, delta: float) -> float:
        return float(conversions.gaussian_epsilon(self.mu, Fraction(delta))) if delta > 0 else math.inf

    def group(self, k: int) -> TradeOff:
        return super().group(k) if k < 1 else Gaussian(k * self.mu)

    def tensor(self, other: TradeOff) -> TradeOff:
        if isinstance(other, Gaussian):
            return Gaussian(compute_root(self.mu**2 + other.mu**2))
        return super().tensor(other)

    def _reach(self) -> float:
        mu = float(self.mu)
        return mu * mu / 2 + 9 * mu

    def _loss(self, step: float) -> Loss:
        return gaussian_loss(float(self.mu) * (1 + 1e-15), step)

    @property
    def kl(self) -> float:
        return float(self.mu) ** 2 / 2

    @property
    def kappa2(self) -> float:
        return float(self.mu) ** 2 + float(self.mu) ** 4 / 4

    @property
    def kappa3(self) -> float:
        s, m = float(self.mu), float(self.mu) ** 2 / 2
        normal = NormalDist()
        centre = (m**3 + 3 * m * s * s) * (1 - 2 * normal.cdf(-m / s)) if s else 0.0
        return centre + (2 * s * normal.pdf(m / s) * (m * m + 2 * s * s) if s else 0.0)

    @property
    def kappa3bar(self) -> float:
        return float(self.mu) ** 3 * 2 * math.sqrt(2 / math.pi)


class Laplace(TradeOff):
    """The curve of continuous Laplace noise, in closed form."""

    symmetric = True

    def __init__(self, epsilon: Real) -> None:
        if epsilon < 0:
            raise ValueError("epsilon can't be negative")
        self.parameter = float(epsilon)

    def __repr__(self) -> str:
        return f"laplace(epsilon={self.parameter:.12g})"

    def __call__(self, alpha: float) -> float:
        e = self.parameter
        if alpha >= 0.5:
            return math.exp(-e) * (1 - alpha)
        return 1 - math.exp(e) * alpha if alpha < math.exp(-e) / 2 else math.exp(-e) / (4 * alpha)

    def delta(self, epsilon: float) -> float:
        if epsilon < 0:
            return 1 - math.exp(epsilon) + math.exp(epsilon) * self.delta(-epsilon)
        return max(0.0, -math.expm1((epsilon - self.parameter) / 2))

    def _reach(self) -> float:
        return self.parameter

    def _moment(self, power: Callable[[Floats], Floats]) -> float:
        e = self.parameter
        ends = float(power(np.array([-e]))[0]) / 2 + float(power(np.array([e]))[0]) * math.exp(-e) / 2
        nodes, weights = np.polynomial.legendre.leggauss(40)
        total, pieces = 0.0, 64  # the integrand has kinks: many short pieces
        for i in range(pieces):
            a, b = e * i / pieces, e * (i + 1) / pieces
            x = (b - a) / 2 * nodes + (a + b) / 2
            total += float(np.sum(weights * np.exp(-x) * power(2 * x - e))) * (b - a) / 4
        return ends + total


class PiecewiseLinear(TradeOff):
    """The curve of a pair with finitely many privacy losses: ``masses`` at ``losses``, the rest at infinity.

    Args:
        losses: log likelihood ratios.
        masses: their probabilities where the ratio's numerator holds.
        infinite: the probability of an output that betrays the data set.
    """

    def __init__(self, losses: Floats, masses: Floats, infinite: float) -> None:
        order = np.argsort(-np.asarray(losses, dtype=np.float64))
        self.losses = np.asarray(losses, dtype=np.float64)[order]
        self.masses = np.asarray(masses, dtype=np.float64)[order]
        self.infinite = float(infinite)
        self._alphas = np.append(0.0, np.cumsum(self.masses * np.exp(-self.losses)))
        self._betas = np.maximum(0.0, np.append(0.0, -np.cumsum(self.masses)) + 1 - self.infinite)
        self._betas[-1] = 0.0

    def __repr__(self) -> str:
        return f"<piecewise linear trade-off curve with {len(self.losses)} pieces>"

    def __call__(self, alpha: float) -> float:
        return float(np.interp(alpha, self._alphas, self._betas))

    def delta(self, epsilon: float) -> float:
        above = self.losses > epsilon
        inner = np.sum(self.masses[above] * -np.expm1(epsilon - self.losses[above]))
        return min(1.0, float(inner) + self.infinite)

    def _atoms(self) -> tuple[Floats, Floats, float]:
        return self.losses, self.masses, self.infinite


class EpsilonDelta(PiecewiseLinear):
    """``f_{epsilon, delta}``: two losses, and the rest at infinity."""

    symmetric = True

    def __init__(self, epsilon: Real, delta: Real) -> None:
        if epsilon < 0 or not 0 <= delta <= 1:
            raise ValueError("epsilon >= 0 and 0 <= delta <= 1")
        self.pair = e, d = float(epsilon), float(delta)
        top = (1 - d) / (1 + math.exp(-e))
        super().__init__(np.array([e, -e]), np.array([top, 1 - d - top]), d)

    def __repr__(self) -> str:
        return f"from_epsilon_delta({self.pair[0]:.12g}, {self.pair[1]:.12g})"

    def __call__(self, alpha: float) -> float:
        e, d = self.pair
        return max(0.0, 1 - d - math.exp(e) * alpha, math.exp(-e) * (1 - d - alpha))


class Profile(TradeOff):
    """The largest lower bound that finitely many points of a symmetric privacy profile give."""

    def __init__(self, profile: Callable[[float], float], epsilons: Iterable[float]) -> None:
        self._profile = profile
        epsilon = np.array(sorted(set(epsilons) | {0.0}))
        delta = np.array([profile(float(x)) for x in epsilon])
        self._offsets = np.concatenate([1 - delta, np.exp(-epsilon) * (1 - delta)])
        self._slopes = np.concatenate([np.exp(epsilon), np.exp(-epsilon)])

    def __call__(self, alpha: float) -> float:
        return max(0.0, float(np.max(self._offsets - self._slopes * alpha)))

    def delta(self, epsilon: float) -> float:
        if epsilon < 0:
            return 1 - math.exp(epsilon) + math.exp(epsilon) * self._profile(-epsilon)
        return self._profile(epsilon)


class _Inverse(TradeOff):
    def __init__(self, curve: TradeOff) -> None:
        self._curve = curve

    def __call__(self, alpha: float) -> float:
        low, high = 0.0, 1.0
        if self._curve(0.0) <= alpha:
            return 0.0
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (low, middle) if self._curve(middle) <= alpha else (middle, high)
        return high

    def inverse(self) -> TradeOff:
        return self._curve


class _Symmetrised(TradeOff):
    symmetric = True

    def __init__(self, curve: TradeOff) -> None:
        self._curve, self._other = curve, curve.inverse()

    def __call__(self, alpha: float) -> float:
        return max(self._curve(alpha), self._other(alpha))


class _Group(TradeOff):
    def __init__(self, curve: TradeOff, k: int) -> None:
        self._curve, self._k = curve, k

    def __call__(self, alpha: float) -> float:
        for _ in range(self._k):
            alpha = 1 - self._curve(alpha)
        return 1 - alpha


def atoms_of(loss: Loss) -> tuple[Floats, Floats, float]:
    """Return losses, masses, and the mass at infinity: the sum is one."""
    losses = (loss.low + np.arange(len(loss.masses), dtype=np.float64)) * loss.step
    infinite = min(1.0, max(loss.infinite, 1 - float(loss.masses.sum())))
    return np.asarray(losses, dtype=np.float64), loss.masses, infinite


def _merged(a: tuple[Floats, Floats, float], b: tuple[Floats, Floats, float]) -> PiecewiseLinear:
    """Add all pairs of losses; equal ones (to twelve digits) are one."""
    losses = np.round(np.add.outer(a[0], b[0]).ravel(), 12)
    values, where = np.unique(losses, return_inverse=True)
    masses = np.bincount(where, weights=np.multiply.outer(a[1], b[1]).ravel())
    return PiecewiseLinear(values.astype(np.float64), masses.astype(np.float64), a[2] + b[2] - a[2] * b[2])


def _highest(f: Callable[[float], float]) -> float:
    """Find the maximum of a concave function on [0, 1] whose top may lie very near 0."""
    points = [0.0, *(10.0 ** (-i / 8) for i in range(8 * 16, -1, -1)), *(i / 64 for i in range(1, 64))]
    points.sort()
    best = max(range(len(points)), key=lambda i: f(points[i]))
    a, b = points[max(0, best - 1)], points[min(len(points) - 1, best + 1)]
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        c, d = b - ratio * (b - a), a + ratio * (b - a)
        a, b = (a, d) if f(c) >= f(d) else (c, b)
    return f((a + b) / 2)


def gaussian(mu: Real) -> TradeOff:
    """Return ``G_mu``: telling N(0, 1) from N(mu, 1). A mu-GDP mechanism is G_mu-DP."""
    return Gaussian(mu)


def laplace(epsilon: Real) -> TradeOff:
    """Return the curve of telling Laplace noise of scale 1 at 0 from the same at epsilon."""
    return Laplace(epsilon)


def from_epsilon_delta(epsilon: Real, delta: Real) -> TradeOff:
    """Return the curve of (epsilon, delta)-DP.

    It is ``max(0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha))``.
    """
    return EpsilonDelta(epsilon, delta)


def from_profile(profile: Callable[[float], float], epsilons: Iterable[float] | None = None) -> TradeOff:
    """Return the curve of a mechanism that is ``(x, profile(x))``-DP for every ``x >= 0``.

    The profile must hold for both orders of neighbours.

    Args:
        profile: epsilon to delta, non-increasing.
        epsilons: where it is asked; any choice gives a guarantee, a finer one a better curve.
    """
    grid = [*(i / 100 for i in range(400)), *(4 + i / 4 for i in range(80))]
    return Profile(profile, grid if epsilons is None else epsilons)


def of(events: Event | Iterable[Event]) -> TradeOff:
    """Return the curve of mechanisms fixed in advance, from their privacy loss distribution: a lower bound."""
    return PiecewiseLinear(*atoms_of(compute_loss((events,) if isinstance(events, Event) else events)))


def compose(curves: Iterable[TradeOff]) -> TradeOff:
    """Return the tensor product of all; perfect privacy for none."""
    total: TradeOff = gaussian(0)
    for i, curve in enumerate(curves):
        total = curve if i == 0 else total.tensor(curve)
    return total


@dataclass(frozen=True)
class Approximation:
    """A curve that many mechanisms come near to.

    ``approximate_mu`` belongs to the Gaussian part, ``approximate_delta`` to what was set aside; ``gamma`` is the
    Berry-Esseen error, None where the theorem gives none.
    """

    approximate_mu: float
    approximate_delta: float = 0.0
    gamma: float | None = None

    def __call__(self, alpha: float) -> float:
        """The limit curve at ``alpha``: an estimate."""
        return self.curve(alpha)

    @property
    def curve(self) -> TradeOff:
        """The limit ``G_mu`` composed with ``f_{0, delta}``, to be drawn beside the true one."""
        limit = gaussian(self.approximate_mu)
        delta = self.approximate_delta
        return limit.tensor(from_epsilon_delta(0, delta)) if delta else limit

    def sandwich(self, alpha: float) -> tuple[float, float] | None:
        """Bound the true curve at ``alpha`` in [gamma, 1 - gamma]; None elsewhere, or for a large gamma.

        The lower one is a guarantee, with a slack of gamma: useless unless gamma is far below the delta one
        cares for.
        """
        gamma = self.gamma
        if gamma is None or gamma >= 0.5 or not gamma <= alpha <= 1 - gamma:
            return None
        limit = gaussian(self.approximate_mu)
        return max(0.0, limit(alpha + gamma) - gamma), min(1 - alpha, limit(alpha - gamma) + gamma)

    def sentence(self) -> str:
        """Say that it is an approximation, and how far off it may be."""
        error = "of unknown error" if self.gamma is None else f"within {self.gamma:.3g} (Berry-Esseen)"
        about = f"approximately Gaussian with μ≈{self.approximate_mu:.4g}"
        return f"{about}, {error}: an estimate, not a guarantee"


def approx_clt_mu(curves: Iterable[TradeOff]) -> Approximation:
    """Return the Gaussian that a composition of symmetric curves comes near to, with its Berry-Esseen error.

    ``mu = 2 |kl|_1 / sqrt(|kappa2|_1 - |kl|_2^2)``, ``gamma = 0.56 |kappa3bar|_1 / (...)^(3/2)`` (Dong, Roth,
    Su 2022).

    Raises:
        ValueError: a curve has a flat part (delta above 0): take that apart first, see :func:`limit_law`.
    """
    moments = [(f.kl, f.kappa2, f.kappa3bar) for f in curves]
    kl = sum(m[0] for m in moments)
    spread = sum(m[1] for m in moments) - sum(m[0] ** 2 for m in moments)
    if not math.isfinite(kl) or spread <= 0:
        raise ValueError("the central limit theorem needs finite, positive moments")
    return Approximation(2 * kl / math.sqrt(spread), 0.0, 0.56 * sum(m[2] for m in moments) / spread**1.5)


def limit_law(pairs: Iterable[tuple[Real, Real]]) -> Approximation:
    """Return the limit of many (epsilon_i, delta_i).

    It is ``G_mu`` with ``mu^2 = sum of epsilon_i^2``, composed with ``f_{0, d}``,
    ``d = 1 - exp(-sum of delta_i)``. Holds as the largest epsilon and delta go to 0 while the sums stay.
    """
    listed = [(float(e), float(d)) for e, d in pairs]
    return Approximation(math.sqrt(sum(e * e for e, _ in listed)), -math.expm1(-sum(d for _, d in listed)))
