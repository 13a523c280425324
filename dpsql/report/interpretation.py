"""What a budget means, in numbers for people: curves for the report's pictures. Nothing here decides
anything.

Floats on purpose: these are figures to look at. A charge is decided by the filters, in exact fractions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from statistics import NormalDist

from dpsql.privacy.events import Event

Profile = Callable[[float], float]
"""Delta as a function of epsilon: smaller is more private."""

_NORMAL = NormalDist()
_ORDERS = tuple(1 + 10 ** (k / 16 - 3) for k in range(112))


def approximate(epsilon: float, delta: float) -> Profile:
    """The profile that (epsilon, delta) alone promises: randomised response, and with probability delta
    everything.
    """

    def profile(x: float) -> float:
        inside = max(0.0, -math.expm1(min(0.0, x - epsilon))) / (1 + math.exp(-epsilon))
        return min(1.0, delta + (1 - delta) * inside)

    return profile


def concentrated(rho: float, delta: float = 0.0) -> Profile:
    """The profile of rho-zCDP (Canonne, Kamath and Steinke 2020, Prop. 12), plus a delta."""

    def profile(x: float) -> float:
        if rho == 0:
            return delta
        least = min(
            (a - 1) * (a * rho - x) + a * math.log1p(-1 / a) - math.log(a - 1)
            for a in (*_ORDERS, max(1.0001, (x + rho) / (2 * rho)))
        )
        return min(1.0, delta + math.exp(min(0.0, least)))

    return profile


def gaussian(mu: float) -> Profile:
    """The profile of mu-GDP (Dong, Roth and Su 2022, Cor. 1)."""

    def profile(x: float) -> float:
        if mu == 0:
            return 0.0
        second = _NORMAL.cdf(-x / mu - mu / 2)
        return max(
            0.0, _NORMAL.cdf(-x / mu + mu / 2) - (math.exp(x + math.log(second)) if second > 0 else 0.0)
        )

    return profile


def spent_profile(events: Iterable[Event]) -> Profile:
    """The best of the sums over what was charged: pure, zCDP, Gaussian, each where all events have it."""
    charged = list(events)
    epsilon = float(sum((e.basic[0] for e in charged), Fraction(0)))
    both = float(sum((e.basic[1] for e in charged), Fraction(0)))
    profiles = [approximate(epsilon, min(1.0, both))]
    rhos = [e.rho for e in charged]
    if all(rho is not None for rho in rhos):
        delta = float(sum((e.delta for e in charged), Fraction(0)))
        profiles.append(concentrated(float(sum(filter(None, rhos), Fraction(0))), min(1.0, delta)))
    mus = [e.mu for e in charged]
    if all(mu is not None for mu in mus) and not any(e.delta for e in charged):
        profiles.append(gaussian(math.sqrt(float(sum((m * m for m in mus if m), Fraction(0))))))
    return lambda x: min(profile(x) for profile in profiles)


def tradeoff(profile: Profile, epsilon: float, points: int = 101) -> list[tuple[float, float]]:
    """Type I error against the least type II error, from a profile: the upper hull of its supporting
    lines.
    """
    span = min(max(4 * epsilon, 4.0), 60.0)
    lines = [(x, profile(x)) for x in (span * (i / 120) ** 2 for i in range(121))]
    curve = []
    for i in range(points):
        alpha = i / (points - 1)
        beta = max(max(1 - d - math.exp(x) * alpha, math.exp(-x) * (1 - d - alpha)) for x, d in lines)
        curve.append((alpha, min(1.0, max(0.0, beta))))
    return curve


def certainty(epsilon: float) -> float:
    """The highest certainty about one bit of one unit, for someone who gave it even odds before: e^ε / (1 +
    e^ε).

    >>> f"{certainty(0):.0%} {certainty(1):.0%}"
    '50% 73%'
    """
    return 1 / (1 + math.exp(-epsilon))


def percent(share: float) -> str:
    """A certainty as people write it; never rounded up to 100%.

    >>> percent(0.731), percent(0.9526), percent(0.99999)
    ('73%', '95.3%', 'over 99.9%')
    """
    if share > 0.999:
        return "over 99.9%"
    return f"{share:.1%}" if share > 0.95 else f"{share:.0%}"


def group(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """The (epsilon, delta) that holds for ``size`` units together: k·ε and δ·(e^{kε} - 1)/(e^ε - 1), at most
    1.

    >>> group(1.0, 0.0, 3)
    (3.0, 0.0)
    """
    if delta == 0 or size == 1:
        return size * epsilon, delta
    if epsilon == 0:
        return 0.0, min(1.0, size * delta)
    ratio = math.log(-math.expm1(-size * epsilon)) - math.log(-math.expm1(-epsilon))
    return size * epsilon, math.exp(min(0.0, math.log(delta) + (size - 1) * epsilon + ratio))
