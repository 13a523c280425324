"""Trade-off functions: what an attacker can do at best, as objects (f-DP; Dong, Roth, Su 2022).

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

from dpsql.privacy import constants
from dpsql.privacy.events import Event
from dpsql.privacy.pld import loss_of
from dpsql.privacy.tradeoff_functions import (
    EpsilonDelta,
    Gaussian,
    Laplace,
    PiecewiseLinear,
    Profile,
    Real,
    TradeOff,
    atoms_of,
)


def gaussian(mu: Real) -> TradeOff:
    """``G_mu``: telling N(0, 1) from N(mu, 1). A mu-GDP mechanism is G_mu-DP."""
    return Gaussian(mu)


def laplace(epsilon: Real) -> TradeOff:
    """Telling Laplace noise of scale 1 at 0 from the same at epsilon."""
    return Laplace(epsilon)


def from_epsilon_delta(epsilon: Real, delta: Real) -> TradeOff:
    """``max(0, 1 - delta - e^epsilon alpha, e^-epsilon (1 - delta - alpha))``: (epsilon, delta)-DP."""
    return EpsilonDelta(epsilon, delta)


def from_profile(profile: Callable[[float], float], epsilons: Iterable[float] | None = None) -> TradeOff:
    """The curve of a mechanism that is ``(x, profile(x))``-DP for every ``x >= 0``, in both orders of
    neighbours.

    Args:
        profile: epsilon to delta, non-increasing.
        epsilons: where it is asked; any choice gives a guarantee, a finer one a better curve.
    """
    grid = [*(i / 100 for i in range(400)), *(4 + i / 4 for i in range(80))]
    return Profile(profile, grid if epsilons is None else epsilons)


def of(events: Event | Iterable[Event]) -> TradeOff:
    """The curve of mechanisms fixed in advance, from their privacy loss distribution: a lower bound."""
    return PiecewiseLinear(*atoms_of(loss_of((events,) if isinstance(events, Event) else events)))


def compose(curves: Iterable[TradeOff]) -> TradeOff:
    """The tensor product of all; perfect privacy for none."""
    total: TradeOff = gaussian(0)
    for i, curve in enumerate(curves):
        total = curve if i == 0 else total.tensor(curve)
    return total


def mu_for(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest mu, rounded down, whose mu-GDP gives (epsilon, delta)-DP; ValueError without a delta."""
    return constants.gaussian_mu(epsilon, delta)


def sigma_for(epsilon: Fraction, delta: Fraction, sensitivity_squared: Fraction | int = 1) -> Fraction:
    """The least noise, rounded up, for (epsilon, delta)-DP: the standard deviation of a Gaussian mechanism.

    Unlike ``sqrt(2 ln(1.25 / delta)) / epsilon`` it holds for every epsilon, and is 20 to 30 % smaller below
    1.

    Args:
        epsilon, delta: of the mechanism.
        sensitivity_squared: of the query, in the Euclidean norm.
    """
    return constants.gaussian_sigma(epsilon, delta, sensitivity_squared)


@dataclass(frozen=True)
class Approximation:
    """A curve that many mechanisms come near to.

    ``approximate_mu`` belongs to the Gaussian part, ``approximate_delta`` to what was set aside; ``gamma`` is
                       the
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
        return (
            limit.tensor(from_epsilon_delta(0, self.approximate_delta)) if self.approximate_delta else limit
        )

    def sandwich(self, alpha: float) -> tuple[float, float] | None:
        """Bounds of the true curve at ``alpha`` in [gamma, 1 - gamma]; None elsewhere, or where gamma is too
        large.

        The lower one is a guarantee, with a slack of gamma: useless unless gamma is far below the delta one
        cares for.
        """
        gamma = self.gamma
        if gamma is None or gamma >= 0.5 or not gamma <= alpha <= 1 - gamma:
            return None
        limit = gaussian(self.approximate_mu)
        return max(0.0, limit(alpha + gamma) - gamma), min(1 - alpha, limit(alpha - gamma) + gamma)

    def sentence(self) -> str:
        """Says that it is an approximation, and how far off it may be."""
        error = "of unknown error" if self.gamma is None else f"within {self.gamma:.3g} (Berry-Esseen)"
        return (
            f"approximately Gaussian with μ≈{self.approximate_mu:.4g}, {error}: an estimate, not a guarantee"
        )


def approx_clt_mu(curves: Iterable[TradeOff]) -> Approximation:
    """The Gaussian that the composition of symmetric curves comes near to, with its Berry-Esseen error.

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
    """The limit of many (epsilon_i, delta_i): ``G_mu`` with ``mu^2 = sum of epsilon_i^2``, composed with
    ``f_{0, d}``,

    ``d = 1 - exp(-sum of delta_i)``. Holds as the largest epsilon and delta go to 0 while the sums stay.
    """
    listed = [(float(e), float(d)) for e, d in pairs]
    return Approximation(math.sqrt(sum(e * e for e, _ in listed)), -math.expm1(-sum(d for _, d in listed)))
