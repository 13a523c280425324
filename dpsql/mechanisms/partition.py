"""Which private groups may be shown: the keys of a GROUP BY whose values nobody declared public."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsql.noise import enclosure
from dpsql.noise.discrete import bernoulli, discrete_laplace
from dpsql.noise.entropy import Entropy
from dpsql.noise.integers import Integers, integers
from dpsql.privacy import events

STRATEGIES = ("optimal", "laplace_threshold")

LONGEST = 1 << 17
"""Rows that a table of keep probabilities may have; a loss too small for that takes the threshold."""

STEEPEST = 64
"""Loss per key above which nothing is gained: exp(-64) is the chance to lose a group of two units."""

CHUNK = 1 << 20
"""Groups decided at once."""


@dataclass(frozen=True)
class GroupSelection:
    """Keeps each group at random by the number of distinct privacy units in it.

    Relation: ADD_REMOVE; one unit moves the count of at most ``groups`` groups, each by one. Guarantee: the
    set of keys is (epsilon, delta)-DP. Each key has ``epsilon / groups`` and
    ``1 - (1 - delta)**(1 / groups)``, rounded down: a key seen by one unit alone is kept with at most that
    probability, and between counts of one and more the odds of keeping and of dropping move by at most
    ``exp(epsilon / groups)``, or by the same delta.

    ``'optimal'`` keeps with the greatest probability that allows (Desfontaines, Voss, Gipson, Mandayam
    2022). ``'laplace_threshold'`` adds discrete Laplace noise to the count and keeps from a threshold on
    (Korolova et al. 2009; Wilson et al. 2020). ``minimum``: a group of fewer units is never kept; the count
    above ``minimum - 1`` is what is decided on, which moves by one unit as the count does.

    The caller must ensure that ``column`` holds exact counts of distinct units, after bounding each unit to
    ``groups`` groups, and that groups without units have no say in anything else that is released.
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
        """Epsilon and delta of one key's decision."""
        return self.epsilon / self.groups, delta_per_key(self.delta, self.groups)

    def keep(self, units: Integers, entropy: Entropy) -> NDArray[np.bool_]:
        """Decides every group; ``units`` are exact counts, shape ``(groups,)``."""
        counts = integers(units)
        table = self._table()
        out = np.zeros(len(counts), dtype=np.bool_)
        for start in range(0, len(counts), CHUNK):
            part = counts[start : start + CHUNK] - (self.minimum - 1)
            if table is None:
                noise = discrete_laplace(1 / self.per_key[0], len(part), entropy)
                out[start : start + CHUNK] = (part > 0) & (part + noise >= self.threshold)
            else:
                ranks = np.clip(part, 0, len(table) - 1).astype(np.int64)
                distinct, index = np.unique(ranks, return_inverse=True)
                chances = [Fraction(table[int(n)], table[-1]) for n in distinct]
                out[start : start + CHUNK] = bernoulli(chances, entropy, index)
        return out

    def probability(self, units: int) -> float:
        """With what probability a group of so many units is kept; for EXPLAIN."""
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
        """The least noisy count that is kept under ``'laplace_threshold'``, counted above ``minimum - 1``."""
        return laplace_threshold(*self.per_key)

    def sentence(self) -> str:
        half, sure = (self._least(p) for p in (0.5, 0.999))
        delta = float(self.per_key[1])
        return (
            f"groups are selected by their number of units ({self.strategy.replace('_', ' ')}, "
            f"ε={float(self.epsilon):g}, δ={float(self.delta):g}): a group appears with probability "
            f"{delta:.2g} from {self.minimum} unit{'s' * (self.minimum > 1)}, above one half from {half}, "
            f"above 0.999 from {sure}; smaller groups are left out"
        )

    def _least(self, p: float) -> int:
        """The least number of units that is kept with probability at least ``p``."""
        high = 1
        while self.probability(high) < p:
            high *= 2
        low = high // 2
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.probability(middle) >= p else (middle, high)
        return high

    def _table(self) -> tuple[int, ...] | None:
        return keep_probabilities(*self.per_key) if self.strategy == "optimal" else None


@lru_cache(maxsize=64)
def delta_per_key(delta: Fraction, groups: int) -> Fraction:
    """``1 - (1 - delta)**(1 / groups)``, rounded down: independent keys then have delta together."""
    if groups == 1:
        return delta
    bits = 128 + 2 * delta.denominator.bit_length() + groups.bit_length()
    exponent = enclosure.log(enclosure.rational(1 - delta, bits), bits)
    root = enclosure.exp(enclosure.divide(exponent, enclosure.rational(Fraction(groups), bits), bits), bits)
    down = 1 - enclosure.fraction(root[1])
    unit = 1 << (
        64 + delta.denominator.bit_length() + groups.bit_length()
    )  # short to print and to compute with
    return Fraction(math.floor(down * unit), unit)


@lru_cache(maxsize=16)
def keep_probabilities(epsilon: Fraction, delta: Fraction) -> tuple[int, ...] | None:
    """The keep probability of 0, 1, 2, ... units, up to the first that is 1; None where there are too many.

    Probabilities are numerators over the last one, a power of two.

    The optimal recurrence ``p[n+1] = min(e**eps * p[n] + delta, 1 - e**-eps * (1 - p[n] - delta), 1)``, in
    fixed point with every step rounded down from the value before. So the computed numbers themselves
    satisfy both inequalities of (epsilon, delta)-DP between neighbouring counts, not just to within an
    error.
    """
    epsilon = min(epsilon, Fraction(STEEPEST))
    if 2 * (math.log(delta.denominator) - math.log(delta.numerator)) > LONGEST * float(epsilon):
        return None
    places = 192 + (delta.denominator // delta.numerator).bit_length() + math.ceil(1 / epsilon).bit_length()
    one, bits = 1 << places, places + 160
    grown = math.floor(enclosure.fraction(enclosure.exp(enclosure.rational(epsilon, bits), bits)[0]) * one)
    shrunk = math.ceil(enclosure.fraction(enclosure.exp(enclosure.rational(-epsilon, bits), bits)[1]) * one)
    step = math.floor(delta * one)
    p, out = 0, [0]
    while p < one:
        rest = max(0, one - p - step)
        p = min((grown * p >> places) + step, one - -(-shrunk * rest >> places), one)
        out.append(p)
    return tuple(out)


@lru_cache(maxsize=64)
def laplace_threshold(epsilon: Fraction, delta: Fraction) -> int:
    """The least T with ``Pr[1 + DLap(1 / epsilon) >= T] <= delta``, rounded up."""
    bits = 192 + delta.denominator.bit_length() + math.ceil(1 / epsilon).bit_length()
    # Pr[DLap >= k] = exp(-k * epsilon) / (1 + exp(-epsilon)) for k >= 1
    one = enclosure.rational(Fraction(1), bits)
    both = enclosure.add(one, enclosure.exp(enclosure.rational(-epsilon, bits), bits), bits)
    doubt = enclosure.log(enclosure.multiply(both, enclosure.rational(delta, bits), bits), bits)
    reach = enclosure.divide(doubt, enclosure.rational(-epsilon, bits), bits)
    return 1 + max(1, enclosure.floor(reach[1]) + 1)
