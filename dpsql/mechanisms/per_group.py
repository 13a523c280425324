"""Noise on each group's integers, and the private choice of the groups that may be shown.

Noise is independent for every group. Sensitivities are in the statistic's own integers (grid steps, or 2^-20 of one if
rows are weighted), under ADD_REMOVE: how far one privacy unit moves the statistic of any one group, in at most ``groups``
groups. :class:`GroupSelector` decides which undeclared key values may be shown.

Group selection for units in several groups: one table of probabilities, accounted for all groups together.

A group of n units is kept with probability p(n), independently of all others, as in :class:`GroupSelector`. One more unit
raises the counts of at most m groups by one, so a neighbour's answer has m decisions with p(n + 1) in place of p(n). An even
split of (epsilon, delta) allows each a loss of epsilon / m, however improbable the loss. But keeping a group of few units is
improbable, so a larger loss there costs little: the pair follows from the divergence of one Rényi order, which adds up
exactly over independent decisions. For m = 5, 20 and 50 a group is kept more often than not from 41, 67 and 90 units on
instead of 67, 263 and 657 (epsilon = 1, delta = 1e-6; from 41, 67 and 106 if the session sums divergences of order 3.5, from
41, 94 and 231 if it sums rho or mu).

Relation: ADD_REMOVE. Guarantee: (epsilon, delta)-DP. With d the delta of one decision, ``1 - (1 - d)^m <= aside``, the
table has

    p(n) = (1 - d) p0,   p(n + 1) = (1 - d) q0 + d,   D_a(p0 | q0) <= R / m   and   D_a(q0 | p0) <= R / m

for the Bernoulli distributions of p0 and q0 and one order a: a part of probability d shows nothing on one side and the
group on the other, and the rest has a divergence of at most R over all m decisions. R is the bound of Canonne, Kamath
and Steinke 2020 (Proposition 12) for (epsilon, rest), with ``1 - (1 - aside) (1 - rest) = delta``. Every step is as
large as that allows, which is optimal for this order (Harrison, Manurangsi 2026, arXiv 2603.09167; Desfontaines, Voss,
Gipson, Mandayam 2022 have the optimum for one decision and (epsilon, delta)). No optimum for several groups under
(epsilon, delta) is known; the order, and the part of delta reserved as ``aside``, are a choice.

So that no session is charged more than for even shares, whatever it counts, a step may have further bounds: at each of
``orders``, which the session sums, at most the divergence of a decision of epsilon / m; and if the table is ``held``,
at most its rho and mu. The rho of a step is bounded by ``max(KL, w^2 (1 - 2x) / (4 ln((1 - x) / x)))`` over both
directions, with w the range of the loss and x the probability to keep: a coin of probability x has a centred moment
generating function below ``exp(t^2 (1 - 2x) / (4 ln((1 - x) / x)))`` (Kearns, Saul 1998), so ``D_a <= KL + (a - 1)
times that``. Its mu is ``z(q0) - z(p0)``, with z the normal quantile.

Floats only propose a step. Interval arithmetic on the table's exact numbers checks it, or makes it smaller.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import draw_bernoulli, draw_discrete_laplace, draw_rounded_gaussian
from dpsql.numerics import interval_arithmetic as ia
from dpsql.numerics.exact_numbers import (
    Integers,
    add_integers,
    compute_root,
    round_significant,
    shorten,
    to_integers,
)
from dpsql.numerics.interval_arithmetic import calibrate_gaussian
from dpsql.privacy import conversions, events
from dpsql.privacy.amounts import GaussianByMu
from dpsql.privacy.conversions import gaussian_epsilon
from dpsql.privacy.events import Event, GroupSelection, JointGaussian, RenyiSelection, find_rest

_SMOOTH = 4
"""The deviation from which on a series gives the mean distance of rounded Gaussian noise from 0."""
_MARGIN = 1e-9
"""Relative widening of an interval's width, far above the rounding of the floats that it is computed in."""


class Noise(ABC):
    """Independent noise of one distribution on every group's integer, calibrated to a sensitivity."""

    sensitivity: int
    groups: int
    epsilon: Fraction

    def _validate(self, positive: Fraction, name: str) -> None:
        if self.sensitivity < 1 or self.groups < 1:
            raise ValueError("sensitivity and groups must be at least 1")
        if positive <= 0:
            raise ValueError(f"{name} must be positive")

    @property
    @abstractmethod
    def event(self) -> events.Event: ...

    @property
    @abstractmethod
    def variance(self) -> float:
        """The variance of one draw, in squared grid steps."""

    @property
    def largest_variance(self) -> float:
        """The largest variance of a draw, if groups have draws of several variances."""
        return self.variance

    @property
    def independent(self) -> Noise:
        """The independent noise that it is made of."""
        return self

    @property
    def is_gaussian(self) -> bool:
        """Whether it is Gaussian noise or a fixed sum of such; otherwise it is made of Laplace noise."""
        return isinstance(self, GaussianNoise)

    @property
    @abstractmethod
    def mean_error(self) -> float:
        """The expected distance of one draw from 0, in grid steps."""

    @abstractmethod
    def half_width(self, confidence: float) -> float:
        """Return the whole number of grid steps that the noise stays within, with at least this probability."""

    @abstractmethod
    def rescale(self, factor: Fraction) -> Noise:
        """Return the noise for ``factor`` times its epsilon."""

    @abstractmethod
    def _draw(self, n: int, entropy: Entropy) -> Integers: ...

    @abstractmethod
    def _describe(self, steps: float, shared: str) -> str: ...

    def add(self, values: Sequence[int] | Integers, entropy: Entropy) -> Integers:
        """Return the values, each with fresh noise: int64 if all fit, else Python integers."""
        exact = to_integers(values)
        return np.asarray(add_integers(exact, self._draw(len(exact), entropy)))

    def sentence(self, confidence: float, steps: Fraction = Fraction(1)) -> str:
        """Describe the distribution and its reach, in units of ``1 / steps``."""
        shared = f", over {self.groups} groups" if self.groups > 1 else ""
        reach = f"within ±{self.half_width(confidence) / float(steps):.6g} with {confidence:.4g} probability"
        return f"{self._describe(float(steps), shared)}; {reach}"


@dataclass(frozen=True)
class LaplaceNoise(Noise):
    """Discrete Laplace noise of scale ``groups * sensitivity / epsilon`` on every group's integer.

    Relation: ADD_REMOVE. Sensitivity: at most ``sensitivity`` steps in each of at most ``groups`` groups, so their product in
    L1. Guarantee: epsilon-DP (Ghosh, Roughgarden, Sundararajan 2009), for ``Pr[k] / Pr[k + d] <= exp(d / scale)``. The caller
    must ensure both bounds, that the statistics are exact integers, and that no noisy value is drawn twice from one event.
    """

    epsilon: Fraction
    sensitivity: int
    groups: int = 1

    def __post_init__(self) -> None:
        self._validate(self.epsilon, "epsilon")

    @cached_property
    def scale(self) -> Fraction:
        """The scale of the distribution, in grid steps."""
        return self.groups * self.sensitivity / self.epsilon

    @property
    def event(self) -> events.Event:
        return events.DiscreteLaplace(self.epsilon, self.sensitivity, self.groups)

    @property
    def variance(self) -> float:
        rate = float(1 / self.scale)
        return max(2 * float(np.exp(-rate)) / float(np.expm1(-rate)) ** 2, 1e-300)

    @property
    def mean_error(self) -> float:
        rate = float(1 / self.scale)
        return max(2 * math.exp(-rate) / -math.expm1(-2 * rate), 1e-300)

    def rescale(self, factor: Fraction) -> LaplaceNoise:
        return replace(self, epsilon=self.epsilon * factor)

    def _draw(self, n: int, entropy: Entropy) -> Integers:
        return draw_discrete_laplace(self.scale, n, entropy)

    def half_width(self, confidence: float) -> float:
        rate = float(1 / self.scale)
        # Pr[|noise| > w] = 2 exp(-(w + 1) * rate) / (1 + exp(-rate))
        reach = math.log(2 / ((1 + math.exp(-rate)) * (1 - confidence) * (1 - _MARGIN))) / rate
        return float(max(0, math.ceil(reach * (1 + _MARGIN)) - 1))

    def _describe(self, steps: float, shared: str) -> str:
        scale = f"discrete Laplace noise of scale {float(self.scale) / steps:.6g}"
        return f"{scale} (ε={float(self.epsilon):g}{shared})"


@dataclass(frozen=True)
class GaussianNoise(Noise):
    """Gaussian noise of deviation ``sigma``, rounded to an integer, on every group's integer.

    Relation: ADD_REMOVE. Sensitivity: at most ``sensitivity`` steps in each of at most ``groups`` groups, so ``sensitivity *
    sqrt(groups)`` in L2. Guarantee: that ratio to sigma is mu, and the release is mu-GDP (Dong, Roth, Su 2022), as
    post-processing of the continuous mechanism; it is (epsilon, delta)-DP for the declared pair, which :meth:`calibrate`
    proves by the analytic formula (Balle, Wang 2018). The caller's duties are those of :class:`LaplaceNoise`.
    """

    sigma: Fraction
    sensitivity: int
    groups: int
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        self._validate(self.sigma, "sigma")

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction, sensitivity: int, groups: int) -> GaussianNoise:
        """Return the least (epsilon, delta)-DP noise, its sigma rounded up by less than one part in 2**30; else ValueError."""
        return cls(_calibrate(epsilon, delta, sensitivity, groups), sensitivity, groups, epsilon, delta)

    @property
    def event(self) -> events.Event:
        return events.RoundedGaussian(self.sigma, self.groups * self.sensitivity**2, self.epsilon, self.delta)

    @property
    def variance(self) -> float:
        return float(self.sigma) ** 2 + 1 / 12

    @property
    def mean_error(self) -> float:
        sigma = float(self.sigma)
        if sigma > _SMOOTH:  # Euler and Maclaurin: the rest is below a part in 10,000
            return sigma * math.sqrt(2 / math.pi) - 1 / (12 * sigma * math.sqrt(2 * math.pi))
        tails = (math.erfc((j + 0.5) / (sigma * math.sqrt(2))) for j in range(40 * _SMOOTH))
        return max(math.fsum(tails), 1e-300)

    def rescale(self, factor: Fraction) -> GaussianNoise:
        return self.calibrate(self.epsilon * factor, self.delta, self.sensitivity, self.groups)

    def _draw(self, n: int, entropy: Entropy) -> Integers:
        return draw_rounded_gaussian(self.sigma, n, entropy)

    def half_width(self, confidence: float) -> float:
        z = -NormalDist().inv_cdf((1 - confidence) * (1 - _MARGIN) / 2)
        return float(max(0, math.ceil(float(self.sigma) * z * (1 + _MARGIN) - 0.5)))

    def _describe(self, steps: float, shared: str) -> str:
        return f"rounded Gaussian noise of deviation {float(self.sigma) / steps:.6g} ({self._loss}{shared})"

    @property
    def _loss(self) -> str:
        return f"ε={float(self.epsilon):g}, δ={float(self.delta):g}"


@dataclass(frozen=True)
class GaussianNoiseByMu(GaussianNoise):
    """Gaussian noise for a mu or rho: sigma is the L2 sensitivity over mu. Basic composition adds the equivalent pair."""

    @classmethod
    def of_mu(cls, mu_squared: Fraction, delta: Fraction, sensitivity: int, groups: int) -> GaussianNoiseByMu:
        """Return the least noise of this squared mu, its sigma rounded up by less than one part in 2**30."""
        if sensitivity < 1 or groups < 1 or mu_squared <= 0:
            raise ValueError("sensitivity and groups must be at least 1, mu above 0")
        norm = groups * sensitivity**2
        sigma = _round_up(compute_root(norm / mu_squared))
        mu = compute_root(norm / (sigma * sigma))
        while mu * mu > mu_squared:  # the root itself was rounded up
            sigma = _round_up(sigma * (1 + Fraction(1, 1 << 38)))
            mu = compute_root(norm / (sigma * sigma))
        return cls(sigma, sensitivity, groups, gaussian_epsilon(shorten(mu), delta), delta)

    @property
    def mu_squared(self) -> Fraction:
        """The square of its mu: of the L2 sensitivity over sigma."""
        return self.groups * self.sensitivity**2 / (self.sigma * self.sigma)

    @property
    def event(self) -> events.Event:
        squared = self.groups * self.sensitivity**2
        return GaussianByMu(self.sigma, squared, self.epsilon, self.delta)

    def rescale(self, factor: Fraction) -> GaussianNoise:
        """Return the noise for ``factor`` times its mu."""
        return self.of_mu(self.mu_squared * factor * factor, self.delta, self.sensitivity, self.groups)

    @property
    def _loss(self) -> str:
        return f"μ={float(self.event.mu):.6g}"


@dataclass(frozen=True)
class JointGaussianNoise(GaussianNoise):
    """Gaussian noise on one of several statistics with one calibration: the pair covers all of them together.

    Relation and sensitivity: as :class:`GaussianNoise`. Guarantee: with ``share`` of the joint squared mu, the release of
    statistics whose shares add up to at most 1 is mu-GDP for the pair's mu (Dong, Roth, Su 2022, corollary 2.1: squared mus of
    independent Gaussian noise on jointly fixed numbers add up), hence (epsilon, delta)-DP by the analytic formula (Balle,
    Wang 2018). So sigma is the L2 sensitivity over ``sqrt(share)`` times that of a single number. The caller must ensure the
    shares' sum; the composed event checks it again (:class:`~dpsql.privacy.events.JointGaussian`).
    """

    share: Fraction = Fraction(1)

    @classmethod
    def calibrate_share(
        cls, epsilon: Fraction, delta: Fraction, sensitivity: int, groups: int, share: Fraction
    ) -> JointGaussianNoise:
        """Return the noise of a share of the joint squared mu, its sigma rounded up by less than one part in 2**30.

        Raises:
            ValueError: unless ``epsilon > 0``, ``0 < delta < 1`` and ``0 < share <= 1``.
        """
        if not 0 < share <= 1:
            raise ValueError("a share is above 0 and at most 1")
        sigma = _calibrate(epsilon, delta, sensitivity, groups, share)
        return cls(sigma, sensitivity, groups, epsilon, delta, share)

    @property
    def event(self) -> events.Event:
        """The charge for this noise alone; composed with the others of its calibration, the pair is charged once."""
        squared = self.groups * self.sensitivity**2
        return JointGaussian((self.sigma,), (squared,), self.epsilon, self.delta)

    def rescale(self, factor: Fraction) -> JointGaussianNoise:
        return self.calibrate_share(
            self.epsilon * factor, self.delta, self.sensitivity, self.groups, self.share
        )

    @property
    def _loss(self) -> str:
        return f"jointly {super()._loss}"


def _calibrate(
    epsilon: Fraction, delta: Fraction, sensitivity: int, groups: int, share: Fraction = Fraction(1)
) -> Fraction:
    """Return the least sigma, rounded up, for the L2 sensitivity of ``groups`` groups and a share of the squared mu."""
    if sensitivity < 1 or groups < 1:
        raise ValueError("sensitivity and groups must be at least 1")
    norm = groups * sensitivity**2 / share
    root = Fraction(math.isqrt((norm.numerator << 80) // norm.denominator), 1 << 40)
    if root * root != norm:
        root += Fraction(1, 1 << 40)
    return _round_up(calibrate_gaussian(epsilon, delta) * root)


@dataclass(frozen=True)
class Statistic:
    """A column of exact integers, one per group, and the noise for its release."""

    column: str
    noise: Noise


_Made = TypeVar("_Made")


def change_noise(item: _Made, change: Callable[[Noise], Noise]) -> _Made:
    """Return a statistic, or a dataclass made of several, with other noise."""
    return change_statistics(item, lambda statistic: replace(statistic, noise=change(statistic.noise)))


def change_statistics(item: _Made, change: Callable[[Statistic], Statistic]) -> _Made:
    """Return a dataclass made of several statistics with others."""
    if isinstance(item, Statistic):
        return change(item)  # type: ignore[return-value]
    held = {f.name: getattr(item, f.name) for f in fields(item)}  # type: ignore[arg-type]
    changed = {name: change_statistics(value, change) for name, value in held.items() if is_dataclass(value)}
    return replace(item, **changed)  # type: ignore[type-var]


def _round_up(x: Fraction) -> Fraction:
    """Return the next number with 40 significant bits, which is short to print."""
    places = 40 - (math.floor(x) or 1).bit_length()
    if x < 1:
        places += math.floor(1 / x).bit_length()
    unit = Fraction(2) ** -places
    return math.ceil(x / unit) * unit


STRATEGIES = ("optimal", "laplace_threshold")

LONGEST = 1 << 17
"""The most rows of a table of keep probabilities; smaller losses use the Laplace threshold."""

STEEPEST = 64
"""The loss per key above which nothing is gained: exp(-64) is the chance to lose a group of two units."""

GROUPS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class GroupSelector:
    """Keeps each group at random by the number of distinct privacy units in it.

    Relation: ADD_REMOVE; one unit moves the count of at most ``groups`` groups, each by one. Guarantee: the set of keys is
    (epsilon, delta)-DP. Each key has ``epsilon / groups`` and ``1 - (1 - delta)**(1 / groups)``, rounded down: a key of one
    unit is kept with at most that probability. Between counts of one and more, the odds of keeping and of dropping differ by
    at most ``exp(epsilon / groups)``, or the probabilities by that delta.

    ``'optimal'`` keeps with the greatest probability that allows (Desfontaines, Voss, Gipson, Mandayam 2022).
    ``'laplace_threshold'`` adds discrete Laplace noise to the count and keeps from a threshold on (Korolova et al. 2009;
    Wilson et al. 2020). A group of fewer than ``minimum`` units is never kept; the decision uses the count above
    ``minimum - 1``, whose sensitivity is also one unit.

    The caller must ensure that ``column`` has exact counts of distinct units, after bounding each unit to ``groups`` groups,
    and that groups without units affect nothing else that is released.
    """

    column: str
    epsilon: Fraction
    delta: Fraction
    groups: int = 1
    strategy: str = "optimal"
    minimum: int = 1

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}")
        if self.epsilon <= 0 or not 0 < self.delta < 1:
            raise ValueError("epsilon must be positive, and delta between 0 and 1")
        if self.groups < 1 or self.minimum < 1:
            raise ValueError("groups and minimum must be at least 1")

    @property
    def event(self) -> events.Event:
        return events.GroupSelection(self.epsilon, self.delta, self.groups)

    @property
    def per_key(self) -> tuple[Fraction, Fraction]:
        return self.epsilon / self.groups, split_delta(self.delta, self.groups)

    def keep(self, units: Integers, entropy: Entropy) -> NDArray[np.bool_]:
        """Decide for every group, given its exact count of units."""
        counts = to_integers(units)
        table = self._table()
        out = np.zeros(len(counts), dtype=np.bool_)
        for start in range(0, len(counts), GROUPS_AT_ONCE):
            part = counts[start : start + GROUPS_AT_ONCE] - (self.minimum - 1)
            if table is None:
                noise = draw_discrete_laplace(1 / self.per_key[0], len(part), entropy)
                out[start : start + GROUPS_AT_ONCE] = (part > 0) & (part + noise >= self.threshold)
            else:
                ranks = np.clip(part, 0, len(table) - 1).astype(np.int64)
                distinct, index = np.unique(ranks, return_inverse=True)
                chances = [Fraction(table[int(n)], table[-1]) for n in distinct]
                out[start : start + GROUPS_AT_ONCE] = draw_bernoulli(chances, entropy, index)
        return out

    def probability(self, units: int) -> float:
        """Return the probability to keep a group of this many units, for EXPLAIN."""
        n = units - self.minimum + 1
        if n <= 0:
            return 0.0
        table = self._table()
        if table is not None:
            return table[min(n, len(table) - 1)] / table[-1]
        rate, above = float(self.per_key[0]), self.threshold - n
        tail = math.exp(-abs(above if above > 0 else 1 - above) * rate) / (1 + math.exp(-rate))
        return tail if above > 0 else 1 - tail

    @property
    def threshold(self) -> int:
        """The least kept noisy count under ``'laplace_threshold'``, above ``minimum - 1``."""
        return compute_laplace_threshold(*self.per_key)

    def sentence(self) -> str:
        half, sure = (self._least(p) for p in (0.5, 0.999))
        delta = float(self.per_key[1])
        return (
            f"groups are selected by their number of units ({self.strategy.replace('_', ' ')}, "
            f"ε={float(self.epsilon):g}, δ={float(self.delta):g}): a group appears with probability "
            f"{delta:.2g} from {self.minimum} unit{'s' * (self.minimum > 1)}, above one half from {half}, "
            f"above 0.999 from {sure}; smaller groups are left out"
        )

    def note_none(self) -> str:
        """Return a note, from public parameters alone, on how many units a group needs."""
        return (
            f"no group was kept: groups below about {self._least(0.5):,} privacy units are left out; "
            "a larger epsilon or delta keeps smaller ones"
        )

    def _least(self, p: float) -> int:
        """Return the least number of units kept with probability at least ``p``."""
        high = 1
        while self.probability(high) < p:
            high *= 2
        return bisect_left(range(high), True, high // 2 + 1, key=lambda n: self.probability(n) >= p)

    def _table(self) -> tuple[int, ...] | None:
        return compute_keep_probabilities(*self.per_key) if self.strategy == "optimal" else None


@lru_cache(maxsize=64)
def split_delta(delta: Fraction, groups: int) -> Fraction:
    """Return ``1 - (1 - delta)**(1 / groups)``, rounded down: independent keys then have delta together."""
    if groups == 1:
        return delta
    bits = 128 + 2 * delta.denominator.bit_length() + groups.bit_length()
    exponent = ia.log(ia.rational(1 - delta, bits), bits)
    root = ia.exp(ia.divide(exponent, ia.rational(Fraction(groups), bits), bits), bits)
    down = 1 - ia.fraction(root[1])
    unit = 1 << (64 + delta.denominator.bit_length() + groups.bit_length())  # short to print
    return Fraction(math.floor(down * unit), unit)


@lru_cache(maxsize=16)
def compute_keep_probabilities(epsilon: Fraction, delta: Fraction) -> tuple[int, ...] | None:
    """Return the keep probability of 0, 1, 2, ... units, up to the first that is 1; None if there are too many.

    Probabilities are numerators over the last one, a power of two.

    The optimal recurrence ``p[n+1] = min(e**eps * p[n] + delta, 1 - e**-eps * (1 - p[n] - delta), 1)``, in fixed point, with
    every step rounded down. So the computed numbers themselves satisfy both inequalities of (epsilon, delta)-DP between
    neighbouring counts.
    """
    epsilon = min(epsilon, Fraction(STEEPEST))
    if 2 * (math.log(delta.denominator) - math.log(delta.numerator)) > LONGEST * float(epsilon):
        return None
    places = 192 + (delta.denominator // delta.numerator).bit_length() + math.ceil(1 / epsilon).bit_length()
    one, bits = 1 << places, places + 160
    grown = math.floor(ia.fraction(ia.exp(ia.rational(epsilon, bits), bits)[0]) * one)
    shrunk = math.ceil(ia.fraction(ia.exp(ia.rational(-epsilon, bits), bits)[1]) * one)
    step = math.floor(delta * one)
    p, out = 0, [0]
    while p < one:
        rest = max(0, one - p - step)
        p = min((grown * p >> places) + step, one - -(-shrunk * rest >> places), one)
        out.append(p)
    return tuple(out)


@lru_cache(maxsize=64)
def compute_laplace_threshold(epsilon: Fraction, delta: Fraction) -> int:
    """Compute the least T with ``Pr[1 + DLap(1 / epsilon) >= T] <= delta``, rounded up."""
    bits = 192 + delta.denominator.bit_length() + math.ceil(1 / epsilon).bit_length()
    # Pr[DLap >= k] = exp(-k * epsilon) / (1 + exp(-epsilon)) for k >= 1
    one = ia.rational(Fraction(1), bits)
    both = ia.add(one, ia.exp(ia.rational(-epsilon, bits), bits), bits)
    doubt = ia.log(ia.multiply(both, ia.rational(delta, bits), bits), bits)
    reach = ia.divide(doubt, ia.rational(-epsilon, bits), bits)
    return 1 + max(1, ia.floor(reach[1]) + 1)


FEWEST_GROUPS = 3
"""The least groups per unit for which the table is used: for two it is within one unit of even shares."""
LARGEST_SHARE = Fraction(1, 3)
"""The greatest epsilon per group for which the table is used: above it, even shares need few units anyway."""
LONGEST_TABLE = 3000
"""About the most rows of a table, which takes two seconds; if more are needed, even shares are used."""

_BITS = 144
_SHRUNK = 1 - 2.0**-24
_NEAR = 0.02
"""The usual relative difference of consecutive steps."""
_TRIES = 30
_NORMAL = NormalDist()


@dataclass(frozen=True)
class SelectionTerms:
    """Bounds on the loss of one decision of a table: its divergence by Rényi order (``limits``), rho and mu."""

    limits: tuple[tuple[Fraction, Fraction], ...]
    step: Fraction
    rho: Fraction | None = None
    mu: Fraction | None = None


@dataclass(frozen=True)
class RenyiGroupSelector(GroupSelector):
    """Keeps each group at random by a table that is accounted for all groups of a unit together.

    Relation, guarantee and the caller's duties: as for :class:`GroupSelector`, by the proof
    in the module's docstring.

    Args:
        held: whether it may cost no more rho and mu than even shares of epsilon.
        orders: Rényi orders at which it may not diverge more than even shares.
    """

    held: bool = True
    orders: tuple[Fraction, ...] = ()

    @property
    def aside(self) -> Fraction:
        """The part of delta for the groups of one unit; the rest is for the conversion."""
        return self.delta / 2

    @property
    def order(self) -> Fraction:
        """The Rényi order: of the valid ones, one near which most groups are kept."""
        rest = find_rest(self.delta, self.aside)
        logarithm = math.log(rest.denominator) - math.log(rest.numerator)
        return 1 + Fraction(f"{1.4 * logarithm / float(self.epsilon):.3g}")

    @property
    def divergence(self) -> Fraction:
        """The greatest divergence, at that order, of all decisions on one unit's groups together."""
        limit = conversions.find_renyi_limit(self.order, self.epsilon, find_rest(self.delta, self.aside))
        return round_significant(limit, 12)

    @property
    def terms(self) -> SelectionTerms:
        rho = conversions.laplace_rho(self.epsilon / self.groups) if self.held else None
        mu = conversions.laplace_mu(self.epsilon / self.groups) if self.held else None
        even = GroupSelection(self.epsilon, self.delta, self.groups)
        limits = [(self.order, self.divergence), *((order, even.renyi(order)) for order in self.orders)]
        each = tuple((order, divergence / self.groups) for order, divergence in limits)
        return SelectionTerms(each, split_delta(self.aside, self.groups), rho, mu)

    @property
    def event(self) -> Event:
        pair, spent = (self.epsilon, self.delta), (self.order, self.divergence, self.aside)
        return RenyiSelection(*pair, self.groups, *spent, self.held, self.orders)

    @property
    def per_key(self) -> tuple[Fraction, Fraction]:
        return self.epsilon, self.terms.step

    def sentence(self) -> str:
        how = f"Rényi order {float(self.order):.3g} for {self.groups} groups of a unit together"
        return super().sentence().replace("(optimal,", f"(optimal at {how},", 1)

    def _table(self) -> tuple[int, ...]:
        return compute_renyi_table(self.terms)


def make_group_selector(
    selector: GroupSelector, held: bool, orders: tuple[Fraction, ...] = ()
) -> GroupSelector:
    """Return the selector that keeps more groups at equal epsilon and delta: ``selector``, or one by a table for all groups.

    ``held``: whether it may cost no more rho and mu, for sessions that count in these; ``orders``: Rényi orders at
    which it may not diverge more, for sessions that sum these.
    """
    if selector.strategy != "optimal" or selector.groups < FEWEST_GROUPS:
        return selector
    if selector.epsilon > LARGEST_SHARE * selector.groups**2 or selector.delta >= Fraction(1, 10):
        return selector
    doubt = math.log(selector.delta.denominator) - math.log(selector.delta.numerator)
    growth = selector.groups / 1.5 if held else 2.2 * math.log(selector.groups)
    if (3 + growth) * doubt > LONGEST_TABLE * float(selector.epsilon):
        return selector
    other = RenyiGroupSelector(**vars(selector), held=held, orders=orders)
    return other if other.divergence > 0 else selector


# -- the table --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def compute_renyi_table(terms: SelectionTerms) -> tuple[int, ...]:
    """Compute the keep probability of 0, 1, 2, ... units, up to the first that is 1: numerators over the last one.

    The conditions are equal for a step from p to q and one from 1 - q to 1 - p, so the upper half mirrors the lower one.
    """
    return _Stepper(terms).climb()


class _Stepper:
    """Computes the rows of a table, each from the previous one, as integers over ``one``."""

    def __init__(self, terms: SelectionTerms) -> None:
        self.one = 1 << (128 + (terms.step.denominator // terms.step.numerator).bit_length())
        self.step = math.floor(terms.step * self.one)
        self.checks = _Checks(terms)
        self.taken = 1.0

    def climb(self) -> tuple[int, ...]:
        one, found = self.one, [0]
        while 2 * found[-1] < one:
            found.append(self.advance(found[-1]))
        *below, beyond = found
        for last in range(len(below)):
            target = one - below[last]
            if target <= beyond and self._leads(below[-1], target):
                return (*below, *(one - x for x in reversed(below[: last + 1])))
        if self._leads(beyond, one - below[-1]):
            return (*found, *(one - x for x in reversed(below)))
        while found[-1] < one:  # the halves do not meet
            found.append(self.advance(found[-1]))
        return tuple(found)

    def advance(self, p: int) -> int:
        """Return, up to a negligible amount, the largest probability that a step from ``p`` may certainly reach."""
        rest = self.one - self.step
        if p >= rest:
            return self.one
        if p == 0:
            return self.step
        logit = math.log(p) - math.log(rest - p)
        self.taken = self.checks.propose(logit, self.taken)
        for tried in range(_TRIES):
            q = min(rest - 1, _at(logit + self.taken * _SHRUNK / 2**tried, rest)) + self.step
            if self._leads(p, q):
                return q
        return p + self.step * (rest - p) // rest  # only the step of delta

    def _leads(self, p: int, q: int) -> bool:
        """Return whether one more unit may certainly raise one probability to another."""
        rest = self.one - self.step
        if p >= q - self.step or q >= self.one:
            return p == q or q == self.one <= p + self.step
        return self.checks.holds(Fraction(p, rest), Fraction(q - self.step, rest))


def _at(logit: float, one: int) -> int:
    """Return the number whose odds against ``one`` have this logit."""
    small = math.exp(-abs(logit)) / (1 + math.exp(-abs(logit)))
    scaled = int(math.ldexp(small, 1000)) * one >> 1000
    return scaled if logit < 0 else one - scaled - 1


@dataclass(frozen=True)
class _Chance:
    """A probability, in floats that are exact to 15 digits at both ends."""

    logit: float

    @classmethod
    def of(cls, p: int, one: int) -> _Chance:
        return cls(math.log(p) - math.log(one - p))

    @property
    def low(self) -> float:
        return -math.log1p(math.exp(-self.logit)) if self.logit > -700 else self.logit

    @property
    def high(self) -> float:
        return -math.log1p(math.exp(self.logit)) if self.logit < 700 else -self.logit

    @property
    def quantile(self) -> float:
        if self.logit <= 0:
            return _NORMAL.inv_cdf(max(math.exp(self.low), 1e-300))
        return -_NORMAL.inv_cdf(max(math.exp(self.high), 1e-300))

    @property
    def variance(self) -> float:
        """The variance proxy of Kearns and Saul."""
        return math.tanh(self.logit / 2) / (4 * self.logit) if abs(self.logit) > 1e-4 else 0.125


class _Checks:
    """The conditions on one step of a table: proposed in floats, decided in intervals."""

    def __init__(self, terms: SelectionTerms) -> None:
        self.terms = terms
        self.limits = [
            (
                ia.rational(order, _BITS),
                ia.rational(1 - order, _BITS),
                ia.exp(ia.rational((order - 1) * divergence, _BITS), _BITS)[0],
            )
            for order, divergence in terms.limits
        ]
        self.rho = None if terms.rho is None else ia.rational(terms.rho, _BITS)[0]

    # -- floats -----------------------------------------------------------------------------------------------------

    def propose(self, logit: float, near: float) -> float:
        """Return about the largest step in the logit that all conditions allow, starting the search near another."""
        p = _Chance(logit)
        allowed = self._allowed(p)
        low, high = near * (1 - _NEAR), near * (1 + _NEAR)
        while allowed(high):
            low, high = high, 2 * high
        while low > 1e-15 and not allowed(low):
            low, high = low / 2, low
        while high - low > 1e-8 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if allowed(middle) else (low, middle)
        return low

    def _allowed(self, p: _Chance) -> Callable[[float], bool]:
        limits = [(float(a), float((a - 1) * divergence)) for a, divergence in self.terms.limits]
        rho = math.inf if self.terms.rho is None else float(self.terms.rho)
        mu = math.inf if self.terms.mu is None else float(self.terms.mu)
        p_low, p_high, least = p.low, p.high, p.variance
        start = p.quantile if mu < math.inf else 0.0

        def moment(a: float, x: float, y: float, u: float, v: float) -> float:
            """Return the logarithm of the sum of x**a u**(1-a) and y**a v**(1-a), given logarithms."""
            first, second = a * x + (1 - a) * u, a * y + (1 - a) * v
            top = max(first, second)
            return top + math.log1p(math.exp(min(first, second) - top))

        def allowed(step: float) -> bool:
            q = _Chance(p.logit + step)
            low, high = q.low, q.high
            for a, room in limits:
                if max(moment(a, low, high, p_low, p_high), moment(a, p_low, p_high, low, high)) > room:
                    return False
            if mu < math.inf and q.quantile - start > mu:
                return False
            if rho == math.inf:
                return True
            ahead = math.exp(low) * (low - p_low) + math.exp(high) * (high - p_high)
            back = math.exp(p_low) * (p_low - low) + math.exp(p_high) * (p_high - high)
            return max(ahead, back, step * step * max(least, q.variance)) <= rho

        return allowed

    # -- intervals --------------------------------------------------------------------------------------------------

    def holds(self, p: Fraction, q: Fraction) -> bool:
        """Return whether a step between two probabilities certainly meets all conditions."""
        chances = [ia.rational(x, _BITS) for x in (p, 1 - p, q, 1 - q)]
        logs = [ia.log(x, _BITS) for x in chances]
        p_low, p_high, q_low, q_high = logs
        for order, other, most in self.limits:
            for x, y, u, v in ((q_low, q_high, p_low, p_high), (p_low, p_high, q_low, q_high)):
                kept, dropped = (_enclose_moment(order, other, *ends) for ends in ((x, u), (y, v)))
                if not ia.is_at_most(ia.add(kept, dropped, _BITS)[1], most):
                    return False
        return self._within_rho(p, q, chances, logs) and self._within_mu(p, q)

    def _within_rho(
        self, p: Fraction, q: Fraction, chances: list[ia.Interval], logs: list[ia.Interval]
    ) -> bool:
        if self.rho is None:
            return True
        kept = ia.subtract(logs[2], logs[0], _BITS)  # the loss if the group is kept, and if it is not
        dropped = ia.subtract(logs[3], logs[1], _BITS)
        ahead = ia.add(ia.multiply(chances[2], kept, _BITS), ia.multiply(chances[3], dropped, _BITS), _BITS)
        behind = ia.add(ia.multiply(chances[0], kept, _BITS), ia.multiply(chances[1], dropped, _BITS), _BITS)
        wide = ia.subtract(kept, dropped, _BITS)
        square = ia.multiply(wide, wide, _BITS)
        proxies = [
            ia.multiply(square, _enclose_proxy(x, logs[i], logs[i + 1]), _BITS) for i, x in ((0, p), (2, q))
        ]
        zero = ia.rational(Fraction(0), _BITS)
        costs = [ahead, ia.subtract(zero, behind, _BITS), *proxies]
        return all(ia.is_at_most(cost[1], self.rho) for cost in costs)

    def _within_mu(self, p: Fraction, q: Fraction) -> bool:
        """Return whether Phi(z + mu) is at least q for some z with Phi(z) at most p."""
        if self.terms.mu is None:
            return True
        near = _Chance.of(p.numerator, p.denominator).quantile
        z = Fraction(near - 1e-9 * (1 + abs(near)))
        if not ia.is_at_most(_phi(z)[1], ia.rational(p, _BITS)[0]):
            return False
        return ia.is_at_most(ia.rational(q, _BITS)[1], _phi(z + self.terms.mu)[0])


def _enclose_moment(order: ia.Interval, other: ia.Interval, x: ia.Interval, u: ia.Interval) -> ia.Interval:
    """Enclose ``x**a u**(1 - a)``, given logarithms."""
    return ia.exp(ia.add(ia.multiply(order, x, _BITS), ia.multiply(other, u, _BITS), _BITS), _BITS)


def _enclose_proxy(x: Fraction, log_x: ia.Interval, log_rest: ia.Interval) -> ia.Interval:
    """Enclose ``(1 - 2x) / (4 ln((1 - x) / x))``, which is 1/8 at most."""
    eighth = ia.rational(Fraction(1, 8), _BITS)
    if abs(1 - 2 * x) < Fraction(1, 1 << 20):
        return eighth
    odds = ia.multiply(ia.rational(Fraction(4), _BITS), ia.subtract(log_rest, log_x, _BITS), _BITS)
    return ia.divide(ia.rational(1 - 2 * x, _BITS), odds, _BITS)


def _phi(z: Fraction) -> ia.Interval:
    """Enclose the normal distribution function."""
    return ia.tail(ia.rational(-z, _BITS), _BITS)
