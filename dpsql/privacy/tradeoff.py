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
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

import numpy as np

from dpsql.privacy.curves import (
    EpsilonDelta,
    Gaussian,
    Laplace,
    PiecewiseLinear,
    Profile,
    Real,
    TradeOff,
    atoms_of,
)
from dpsql.privacy.events import Event
from dpsql.privacy.pld import compute_loss

_NEAR = 1e-9
"""The rounding that is forgiven where curves are compared."""


def gaussian(mu: Real) -> TradeOff:
    """Return ``G_mu``: N(0, 1) against N(mu, 1). A mu-GDP mechanism is G_mu-DP."""
    return Gaussian(mu)


def laplace(epsilon: Real) -> TradeOff:
    """Return the curve of Laplace noise of scale 1 at 0 against that at epsilon."""
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


def between(p: Sequence[Real] | Mapping[object, Real], q: Sequence[Real] | Mapping[object, Real]) -> TradeOff:
    """Return T(p, q): how well the outputs of two distributions can be told apart, exactly.

    ``T(p, q)(alpha)`` is the least probability under q of missing, for tests that accuse with probability alpha under p
    (Neyman and Pearson 1933: they accuse the outputs with the largest q / p first). A mechanism is f-DP where
    :func:`holds` says so of T and f for every pair of neighbours, in both orders.

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
    """An answer about a curve, with its reason. It is true or false as the answer is."""

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


class Order(Enum):
    """The order of two curves; the higher one is the stronger guarantee."""

    EQUAL = "equal"
    HIGHER = "higher"
    LOWER = "lower"
    CROSSING = "crossing"


def compare_curves(f: TradeOff, g: TradeOff) -> Order:
    """Compare two curves.

    >>> compare_curves(gaussian(0.5), gaussian(1)), compare_curves(gaussian(1), from_epsilon_delta(1, 0.01))
    (<Order.HIGHER: 'higher'>, <Order.CROSSING: 'crossing'>)
    """
    above, below = bool(holds(f, g)), bool(holds(g, f))
    if above:
        return Order.EQUAL if below else Order.HIGHER
    return Order.LOWER if below else Order.CROSSING


@dataclass(frozen=True)
class Approximation:
    """The limit curve of many mechanisms.

    ``approximate_mu`` belongs to the Gaussian part, ``approximate_delta`` to the deltas; ``gamma`` is the
    Berry-Esseen error, None if the theorem gives none.
    """

    approximate_mu: float
    approximate_delta: float = 0.0
    gamma: float | None = None

    def __call__(self, alpha: float) -> float:
        """The limit curve at ``alpha``: an estimate."""
        return self.curve(alpha)

    @property
    def curve(self) -> TradeOff:
        """The limit ``G_mu`` composed with ``f_{0, delta}``, to be drawn with the true one."""
        limit = gaussian(self.approximate_mu)
        delta = self.approximate_delta
        return limit.tensor(from_epsilon_delta(0, delta)) if delta else limit

    def sandwich(self, alpha: float) -> tuple[float, float] | None:
        """Bound the true curve at ``alpha`` in [gamma, 1 - gamma]; None elsewhere, or for a large gamma.

        The lower one is a guarantee, with a slack of gamma: useless unless gamma is far below the delta of
        interest.
        """
        gamma = self.gamma
        if gamma is None or gamma >= 0.5 or not gamma <= alpha <= 1 - gamma:
            return None
        limit = gaussian(self.approximate_mu)
        return max(0.0, limit(alpha + gamma) - gamma), min(1 - alpha, limit(alpha - gamma) + gamma)

    def sentence(self) -> str:
        """Return the sentence that it is an approximation, and how far off it may be."""
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
