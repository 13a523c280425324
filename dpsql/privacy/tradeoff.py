"""Trade-off functions as objects (f-DP; Dong, Roth, Su 2022): the best that an attacker can do.

``f(alpha)`` is the smallest rate of misses of a test that raises false alarms at rate ``alpha``, when it distinguishes two
neighbouring data sets by a mechanism's output; ``1 - alpha`` is perfect privacy. Trade-off functions are those that are convex,
continuous, non-increasing and at most ``1 - alpha``. A mechanism is f-DP for every ordered pair of neighbours of the session's
relation, hence also ``f.symmetrised()``-DP.

A curve without a closed form is bounded from *below*, so that it stays a guarantee. Curves are for display and calibration:
filters decide the charge from events, in exact arithmetic.

>>> gaussian(1).delta(1)
0.12693673750664394
>>> gaussian(0.6).tensor(gaussian(0.8)), gaussian(0.5).group(3)
(gaussian(mu=1), gaussian(mu=1.5))
>>> round(from_epsilon_delta(1, 0).tensor(from_epsilon_delta(1, 0)).delta(1), 6)
0.337835

Limits are not guarantees. The central limit theorem for f-DP says that many small mechanisms look like one Gaussian; for any
finite number of them that may be wrong in either direction: twenty rare events can have 1900 times the delta of the limit. An
:class:`Approximation` therefore is neither an event nor a trade-off function: it draws a curve, names it, and bounds its own
error if a bound is known. Nothing can be charged by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from statistics import NormalDist
from typing import ClassVar

import numpy as np

from dpsql.late_dataclass import dataclass
from dpsql.numerics.exact_numbers import Floats, compute_root
from dpsql.privacy import conversions
from dpsql.privacy.events import Event
from dpsql.privacy.pld import Loss, compute_loss, gaussian_loss, make_loss

_NEAR = 1e-9
"""The rounding error that is tolerated when curves are compared."""


Real = Fraction | float | int

_POINTS = 8192  # of the grid on which two curves without atoms are composed
_ATOMS = 2_000_000  # pairs of atoms that are still composed one by one


class TradeOff:
    """A trade-off function. Subclasses define ``__call__``; all else has a numerical default."""

    symmetric: ClassVar[bool] = False
    """Whether exchanging the two data sets leaves the curve unchanged."""

    def __call__(self, alpha: float) -> float:
        """Return the smallest type II error at type I error ``alpha``, both in [0, 1]."""
        raise NotImplementedError

    def delta(self, epsilon: float) -> float:
        """Return the delta of (epsilon, delta)-DP by duality: ``1 + f*(-e^epsilon)``, any real epsilon."""
        slope = math.exp(epsilon)
        return max(0.0, _highest(lambda alpha: 1 - self(alpha) - slope * alpha))

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 whose delta is at most ``delta``; infinite if there is none."""
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
        """Return the composition: both mechanisms on equal data, their parameters fixed in advance.

        Exact for Gaussians and for piecewise linear curves with few corners; else a lower bound from the grid of
        :mod:`dpsql.privacy.pld`. As a stopping rule for adaptively chosen parameters it is *not* valid.
        """
        if self.total_variation == 0 or other.total_variation == 0:
            return other if self.total_variation == 0 else self
        mine, others = self._atoms(), other._atoms()
        if mine is not None and others is not None and len(mine[0]) * len(others[0]) <= _ATOMS:
            return _merged(mine, others)
        reach = self._reach() + other._reach()
        step = 2 * reach / _POINTS
        return PiecewiseLinear(*atoms_of(self._loss(step).with_(other._loss(step))))

    @property
    def total_variation(self) -> float:
        """The largest advantage of any test, ``max of 1 - alpha - f(alpha)``: the delta at epsilon 0."""
        return self.delta(0.0)

    @property
    def kl(self) -> float:
        """``-integral of log |f'|``: the relative entropy; infinite where f is flat."""
        return -self._moment(lambda x: x)

    @property
    def kappa2(self) -> float:
        """``integral of log^2 |f'|``."""
        return self._moment(np.square)

    @property
    def kappa3bar(self) -> float:
        """``integral of |log |f'| + kl|^3``: the third absolute central moment."""
        kl = self.kl
        return self._moment(lambda x: np.abs(x + kl) ** 3) if math.isfinite(kl) else math.inf

    def _atoms(self) -> tuple[Floats, Floats, float] | None:
        """Return losses, masses, and the mass at infinity; None for a curve that is not piecewise linear."""
        return None

    def _reach(self) -> float:
        """Return a loss above which nothing matters."""
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
        masses: their probabilities under the ratio's numerator.
        infinite: the probability of an output that reveals the data set.
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
    """The largest lower bound from finitely many points of a symmetric privacy profile."""

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


class BesideDelta(TradeOff):
    """``f`` composed with ``f_{0, delta}``: with probability delta the output reveals the data set, else f holds.

    In closed form (Dong, Roth, Su 2022): ``(1 - delta) f(alpha / (1 - delta))``, and 0 above ``1 - delta``.
    """

    def __init__(self, curve: TradeOff, delta: Real) -> None:
        if not 0 <= delta < 1:
            raise ValueError("0 <= delta < 1")
        self._curve, self._held = curve, 1 - float(delta)
        self._outside = float(delta)

    def __call__(self, alpha: float) -> float:
        return self._held * self._curve(alpha / self._held) if alpha < self._held else 0.0

    def delta(self, epsilon: float) -> float:
        return self._outside + self._held * self._curve.delta(epsilon)

    @property
    def total_variation(self) -> float:
        return self.delta(0.0)


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
    """Return the maximum of a concave function on [0, 1] whose maximiser may be very near 0."""
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
    """Return ``G_mu``: N(0, 1) against N(mu, 1). A mu-GDP mechanism is G_mu-DP."""
    return Gaussian(mu)


def laplace(epsilon: Real) -> TradeOff:
    """Return the curve of Laplace noise of scale 1 at 0 against that at epsilon."""
    return Laplace(epsilon)


def from_epsilon_delta(epsilon: Real, delta: Real) -> TradeOff:
    """Return the (epsilon, delta) curve: ``max(0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha))``."""
    return EpsilonDelta(epsilon, delta)


def from_profile(profile: Callable[[float], float], epsilons: Iterable[float] | None = None) -> TradeOff:
    """Return the curve of a mechanism that is ``(x, profile(x))``-DP for every ``x >= 0``.

    The profile must hold for both orders of neighbours.

    Args:
        profile: epsilon to delta, non-increasing.
        epsilons: the points to evaluate; any choice gives a guarantee, a finer one a better curve.
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


def between(p: Sequence[Real] | Mapping[object, Real], q: Sequence[Real] | Mapping[object, Real]) -> TradeOff:
    """Return T(p, q): how well the outputs of two distributions can be told apart, exactly.

    ``T(p, q)(alpha)`` is the least probability under q of missing, for tests that accuse with probability alpha under p
    (Neyman and Pearson 1933: they accuse the outputs with the largest q / p first). A mechanism is f-DP if :func:`holds`
    confirms it of T and f for every pair of neighbours, in both orders.

    Args:
        p: probabilities of the outputs on one data set: a sequence, or a mapping from outputs.
        q: those on the other, of the same outputs. Each sums to 1.

    >>> between([0.75, 0.25], [0.25, 0.75])(0.25)
    0.25

    Raises:
        ValueError: negative probabilities, sums that are not 1, or outputs that don't match.
    """
    if isinstance(p, Mapping) and isinstance(q, Mapping):
        outputs = list(dict.fromkeys([*p, *q]))
        p, q = [p.get(o, 0) for o in outputs], [q.get(o, 0) for o in outputs]
    if isinstance(p, Mapping) or isinstance(q, Mapping) or len(p) != len(q):
        raise ValueError("both distributions are over the same outputs")
    a, b = ([Fraction(x) for x in side] for side in (p, q))
    if any(x < 0 for x in (*a, *b)) or any(abs(float(sum(side)) - 1) > _NEAR for side in (a, b)):
        raise ValueError("probabilities are at least 0, and add up to 1")
    shared = [(x, y) for x, y in zip(a, b, strict=True) if x > 0 and y > 0]
    ratios = np.array([math.log(y / x) for x, y in shared])
    masses = np.array([float(y) for _, y in shared])
    certain = sum(float(y) for x, y in zip(a, b, strict=True) if x == 0)
    return PiecewiseLinear(ratios, masses, certain)


@dataclass(frozen=True)
class Verdict:
    """An answer about a curve, with its reason. Its truth value is the answer."""

    holds: bool
    reason: str
    alpha: float | None = None
    """The place that the reason is about."""

    def __bool__(self) -> bool:
        return self.holds


def is_tradeoff_function(f: Callable[[float], float], points: int = 1024) -> Verdict:
    """Return whether a function is the trade-off function of some pair, and if not, where it fails.

    It is one exactly when it maps [0, 1] to [0, 1], is at most ``1 - alpha``, does not increase, and is convex (Dong,
    Roth, Su 2022, proposition 1); convexity implies continuity except at 0.

    Args:
        f: any function.
        points: where it is evaluated in [0, 1]. A failure between two of them is not noticed.

    >>> is_tradeoff_function(lambda alpha: 1 - alpha**2).reason
    'at alpha = 0.5 it is 0.75, above 1 - alpha = 0.5: worse than a blind guess'
    """
    alphas = np.linspace(0, 1, points + 1)
    values = np.array([f(float(a)) for a in alphas])
    over = values - (1 - alphas)

    def fails(shown: np.ndarray, text: Callable[[float, float], str]) -> Verdict | None:
        worst = int(np.argmax(shown))
        if shown[worst] <= _NEAR:
            return None
        alpha = float(alphas[worst])
        return Verdict(False, text(alpha, float(values[worst])), alpha)

    bent = np.zeros_like(values)
    bent[1:-1] = 2 * values[1:-1] - values[:-2] - values[2:]
    rising = np.append(np.diff(values), 0)
    found = (
        fails(
            np.where(np.isfinite(values), -values, 1.0),
            lambda a, v: f"at alpha = {a:.4g} it is {v:.4g}, no probability",
        ),
        fails(
            over,
            lambda a, v: (
                f"at alpha = {a:.4g} it is {v:.4g}, above 1 - alpha = {1 - a:.4g}: worse than a blind guess"
            ),
        ),
        fails(
            rising,
            lambda a, v: f"it rises after alpha = {a:.4g}, but more false alarms never mean more misses",
        ),
        fails(
            bent,
            lambda a, v: (
                f"it is not convex near alpha = {a:.4g}: tossing a coin between two tests would be better"
            ),
        ),
    )
    sound = Verdict(True, "it is convex, does not increase, and is at most 1 - alpha")
    return next((verdict for verdict in found if verdict is not None), sound)


def holds(curve: TradeOff, guarantee: TradeOff, points: int = 1024) -> Verdict:
    """Return whether a mechanism with this curve is f-DP, and if not, where its curve is farthest below f.

    Args:
        curve: of the mechanism, as from :func:`between` or :func:`of`.
        guarantee: f.
        points: where both are evaluated in [0, 1], and equally many near 0.

    >>> holds(gaussian(1), from_epsilon_delta(1, 0)).holds
    False
    """
    alphas = [i / points for i in range(points + 1)]
    alphas += [10.0 ** (-i / 32) for i in range(32 * 12)]
    gaps = [guarantee(alpha) - curve(alpha) for alpha in alphas]
    worst = max(range(len(gaps)), key=lambda i: gaps[i])
    if gaps[worst] <= _NEAR:
        return Verdict(True, "the curve is nowhere below the guarantee")
    alpha = alphas[worst]
    shown = f"a test with {alpha:.4g} false alarms misses {curve(alpha):.4g}, and {guarantee(alpha):.4g} is promised"
    return Verdict(False, shown, alpha)


@dataclass(frozen=True)
class Approximation:
    """The Gaussian limit curve of many mechanisms, with its Berry-Esseen error ``gamma``."""

    approximate_mu: float
    gamma: float

    def __call__(self, alpha: float) -> float:
        """The limit curve at ``alpha``: an estimate."""
        return self.curve(alpha)

    @property
    def curve(self) -> TradeOff:
        """The limit ``G_mu``, to be drawn with the true one."""
        return gaussian(self.approximate_mu)

    def sandwich(self, alpha: float) -> tuple[float, float] | None:
        """Bound the true curve at ``alpha`` in [gamma, 1 - gamma]; None elsewhere, or for a large gamma.

        The lower one is a guarantee, with a slack of gamma: useless unless gamma is far below the delta of
        interest.
        """
        gamma = self.gamma
        if gamma >= 0.5 or not gamma <= alpha <= 1 - gamma:
            return None
        return max(0.0, self(alpha + gamma) - gamma), min(1 - alpha, self(alpha - gamma) + gamma)

    def sentence(self) -> str:
        """Return the sentence that it is an approximation, and how far off it may be."""
        about = f"approximately Gaussian with μ≈{self.approximate_mu:.4g}"
        return f"{about}, within {self.gamma:.3g} (Berry-Esseen): an estimate, not a guarantee"


def approx_clt_mu(curves: Iterable[TradeOff]) -> Approximation:
    """Return the Gaussian that a composition of symmetric curves comes near to, with its Berry-Esseen error.

    ``mu = 2 |kl|_1 / sqrt(|kappa2|_1 - |kl|_2^2)``, ``gamma = 0.56 |kappa3bar|_1 / (...)^(3/2)`` (Dong, Roth, Su 2022).

    Raises:
        ValueError: a curve has a flat part (delta above 0).
    """
    moments = [(f.kl, f.kappa2, f.kappa3bar) for f in curves]
    kl = sum(m[0] for m in moments)
    spread = sum(m[1] for m in moments) - sum(m[0] ** 2 for m in moments)
    if not math.isfinite(kl) or spread <= 0:
        raise ValueError("the central limit theorem needs finite, positive moments")
    return Approximation(2 * kl / math.sqrt(spread), 0.56 * sum(m[2] for m in moments) / spread**1.5)
