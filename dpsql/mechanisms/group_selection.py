"""Selection of groups: of the groups of one unit that count, and of the private groups that may be shown.

A unit with more groups than it may have keeps a uniform sample of them, chosen by random numbers that belong to the unit
alone. So no other unit takes part in the choice: one unit more or less in the data moves its own groups, and never the
choice of another.

:class:`GroupSelection` decides which keys of a GROUP BY may be shown whose values nobody declared public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsql.noise.discrete import draw_bernoulli, draw_discrete_laplace
from dpsql.noise.entropy import Entropy
from dpsql.numerics import interval_arithmetic as ia
from dpsql.numerics.exact_numbers import Integers, to_integers
from dpsql.privacy import events

IntegerArray = NDArray[np.int64]

_BITS = 63
_FEW = 8
"""The most groups that are drawn one by one; beyond, a unit's groups are shuffled."""
_WORD = 1 << 32
_BLOCK = 1 << 16


def find_runs(ordered: IntegerArray, shift: int = 0) -> IntegerArray:
    """Find where each run of integers begins that are equal but for their ``shift`` lowest bits."""
    if not len(ordered):
        return np.empty(0, dtype=np.int64)
    change = np.empty(len(ordered), dtype=bool)
    change[0] = True
    for start in range(0, len(ordered) - 1, _BLOCK):  # what fits the processor's cache is shifted at no cost
        part = ordered[start : start + _BLOCK + 1]
        part = part >> shift if shift else part
        np.not_equal(part[1:], part[:-1], out=change[start + 1 : start + len(part)])
    return np.flatnonzero(change)


def choose_groups(units: IntegerArray, groups: int, entropy: Entropy) -> NDArray[np.bool_] | None:
    """Choose at most ``groups`` groups of each unit, uniformly and independently of other units; None keeps all.

    ``units`` is sorted: one entry per unit and group.
    """
    starts = find_runs(units)
    sizes = np.diff(starts, append=len(units))
    many = sizes > groups
    if not many.any():
        return None
    kept = np.repeat(~many, sizes)
    first, counts = starts[many], sizes[many]
    if groups <= _FEW and int(counts.max()) < _WORD:
        for pick in _draw_sets(counts, groups, entropy):
            kept[first + pick] = True
        return kept
    places = np.flatnonzero(~kept)
    owner = np.repeat(np.arange(len(counts)), counts)
    order = places[_shuffle(owner, entropy)]
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept[order[rank < groups]] = True
    return kept


def _draw_sets(counts: IntegerArray, groups: int, entropy: Entropy) -> list[IntegerArray]:
    """Draw ``groups`` different numbers below each count, every set with equal probability (Floyd's algorithm).

    Each array holds one number per count. The last of ``i + 1`` candidates stands in for a number that is taken already.
    """
    picks: list[IntegerArray] = []
    for i in range(groups):
        last = counts - (groups - i)
        pick = draw_below_each(last + 1, entropy)
        taken = np.zeros(len(counts), dtype=bool)
        for earlier in picks:
            taken |= pick == earlier
        picks.append(np.where(taken, last, pick))
    return picks


def draw_below_each(bounds: IntegerArray, entropy: Entropy) -> IntegerArray:
    """Draw a uniform integer below each bound (1 to 2**32), without modulo bias.

    It is the high half of a 32-bit word times the bound; the few words whose low half would favour a number are redrawn.

    >>> draw_below_each(np.array([1, 1]), Entropy()).tolist()
    [0, 0]
    """
    out, low = _scaled(bounds, entropy)
    doubtful = np.flatnonzero(low < bounds.astype(np.uint64))
    while len(doubtful):
        few = bounds[doubtful]
        again = doubtful[low[doubtful] < (_WORD % few).astype(np.uint64)]
        out[again], low[again] = _scaled(bounds[again], entropy)
        doubtful = again
    return out


def _scaled(bounds: IntegerArray, entropy: Entropy) -> tuple[IntegerArray, NDArray[np.uint64]]:
    n = len(bounds)
    product = entropy.words((n + 1) // 2).view(np.uint32)[:n] * bounds.astype(np.uint64)
    return (product >> np.uint64(32)).astype(np.int64), product & np.uint64(_WORD - 1)


def _shuffle(owner: IntegerArray, entropy: Entropy) -> IntegerArray:
    """Return positions in the order of their (ascending) owners, at random within each.

    The number of bits of a ticket depends on the number of entries, so equal tickets must be told apart by further bits:
    if their places decided, one unit more could take a bit from every ticket, and so move the choice of others.
    """
    n = len(owner)
    place, who = (n - 1).bit_length(), int(owner[-1]).bit_length()
    chance = min(32, _BITS - place - who)
    words = entropy.words((n + 1) // 2).view(np.uint32)[:n].astype(np.int64)
    if chance < 16:  # too many for one word each: slower, and the same
        return np.lexsort((entropy.words(n), words, owner)).astype(np.int64)
    tickets = (owner << (chance + place)) | ((words >> (32 - chance)) << place) | np.arange(n)
    tickets.sort()
    order = tickets & ((1 << place) - 1)
    tickets >>= place
    same = np.concatenate([[False], tickets[1:] == tickets[:-1], [False]])
    tied = np.flatnonzero(same[1:] | same[:-1])
    if len(tied):
        few = order[tied]
        order[tied] = few[np.lexsort((entropy.words(len(few)), words[few], tickets[tied]))]
    return order


STRATEGIES = ("optimal", "laplace_threshold")

LONGEST = 1 << 17
"""The most rows of a table of keep probabilities; a loss too small for that takes the threshold."""

STEEPEST = 64
"""The loss per key above which nothing is gained: exp(-64) is the chance to lose a group of two units."""

GROUPS_AT_ONCE = 1 << 20
"""The number of groups decided at once."""


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
        """The epsilon and delta of one key's decision."""
        return self.epsilon / self.groups, split_delta(self.delta, self.groups)

    def keep(self, units: Integers, entropy: Entropy) -> NDArray[np.bool_]:
        """Decide for every group; ``units`` are exact counts, shape ``(groups,)``."""
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
        """Return the probability that a group of so many units is kept; for EXPLAIN."""
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
        return compute_laplace_threshold(*self.per_key)

    def sentence(self) -> str:
        """Describe it for EXPLAIN."""
        half, sure = (self._least(p) for p in (0.5, 0.999))
        delta = float(self.per_key[1])
        return (
            f"groups are selected by their number of units ({self.strategy.replace('_', ' ')}, "
            f"ε={float(self.epsilon):g}, δ={float(self.delta):g}): a group appears with probability "
            f"{delta:.2g} from {self.minimum} unit{'s' * (self.minimum > 1)}, above one half from {half}, "
            f"above 0.999 from {sure}; smaller groups are left out"
        )

    def _least(self, p: float) -> int:
        """Return the least number of units that is kept with probability at least ``p``."""
        high = 1
        while self.probability(high) < p:
            high *= 2
        low = high // 2
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.probability(middle) >= p else (middle, high)
        return high

    def _table(self) -> tuple[int, ...] | None:
        return compute_keep_probabilities(*self.per_key) if self.strategy == "optimal" else None


@lru_cache(maxsize=64)
def split_delta(delta: Fraction, groups: int) -> Fraction:
    """Compute ``1 - (1 - delta)**(1 / groups)``, rounded down: independent keys then have delta together."""
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
    """Compute the keep probability of 0, 1, 2, ... units, up to the first that is 1; None where there are too many.

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
