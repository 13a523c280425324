"""Exact private choices among many candidates, vectorised: the randomness of the selection mechanisms.

Scores are integers (int64, or Python integers in an object array when they may not fit). A *rate* is the exact
``Fraction`` by which one step of score changes a log-weight. Floats only ever decide what they can decide for
certain: each comparison carries a proved error band, and a draw that falls inside the band is continued with
further random bits against integers computed to as many digits as it takes. So the laws are exact, not
approximate, and there is no candidate whose probability is rounded to nought (Ilvento 2020; Haney et al. 2022).

Candidates far below the best are only counted, and examined one by one when a draw falls on them. The number of near ones
depends on the scores; the winner changes the work only then.

A unit with more groups than it may have keeps a uniform sample of them, chosen by random numbers that belong to the unit
alone. So no other unit takes part in the choice: one unit more or less in the data moves its own groups, and never the
choice of another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from mpmath import libmp
from numpy.typing import NDArray

from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import draw_discrete_laplace
from dpsql.numerics.exact_numbers import SAFE, Integers, add_integers, to_integers

IntegerArray = NDArray[np.int64]

_LANES = 4  # 16-bit lanes in a random word: enough to decide all but about three in 65,536 comparisons
_BLOCK = 1 << 15  # candidates per pass: what stays in the cache of one core


def measure_gaps(scores: Integers) -> Integers:
    """Compute how far each score lies below the best: non-negative integers of a type that holds them."""
    scores = to_integers(scores)
    top, low = int(scores.max()), int(scores.min())
    if scores.dtype != object and top - low >= 2 * SAFE:
        scores = scores.astype(object)
    return np.asarray(top - scores)


def _exp_interval(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Return integers ``low <= 2**bits * exp(-exponent) <= high`` with ``high - low <= 3`` (exponent >= 0)."""
    numerator, denominator = exponent.numerator, exponent.denominator
    if numerator == 0:
        return 1 << bits, 1 << bits
    if numerator > denominator * (bits + 1):  # exp(-x) < 2**-x
        return 0, 1
    precision = bits + 40 + (numerator // denominator).bit_length()
    argument = libmp.from_rational(-numerator, denominator, precision, "n")
    value = libmp.mpf_exp(argument, precision, "n")
    fixed = int(libmp.to_fixed(value, bits))
    return max(0, fixed - 1), fixed + 2


def _decide(interval: Callable[[int], tuple[int, int]], word: int, bits: int, entropy: Entropy) -> bool:
    """Decide exactly whether a uniform real, whose first ``bits`` bits are ``word``, is below p.

    ``interval(b)`` gives integers around ``2**b * p``. More bits are drawn until the answer is certain.
    """
    while True:
        low, high = interval(bits)
        if word + 1 <= low:
            return True
        if word >= high:
            return False
        word = (word << 64) | int(entropy.words(1)[0])
        bits += 64


def flip_coins(gaps: Integers, rate: Fraction, entropy: Entropy) -> NDArray[np.bool_]:
    """Flip independent exact coins: heads with probability ``exp(-rate * gap)``, and surely where ``gap <= 0``.

    About 10 ns a coin. ``gaps`` is int64 or object; ``rate`` a positive Fraction.

    >>> bool(flip_coins(np.zeros(5, dtype=np.int64), Fraction(1, 3), Entropy()).all())
    True
    """
    out = np.empty(len(gaps), dtype=np.bool_)
    step = -float(rate)
    words = entropy.words(-(-len(gaps) // _LANES)).view(np.uint16)
    for start in range(0, len(gaps), _BLOCK):
        part = gaps[start : start + _BLOCK]
        lanes = words[start : start + len(part)]
        chance = part.astype(np.float64)
        np.maximum(chance, 0.0, out=chance)
        # Relative error of the product < 2**-51; of exp() < 2**-40 wherever it is not 0, so times 65,536 the
        # integer part is off by at most one: a lane more than one away from it is decided for certain.
        np.multiply(chance, step, out=chance)
        np.exp(chance, out=chance)
        np.multiply(chance, 65536.0, out=chance)
        distance = lanes - chance.astype(np.int32)
        out[start : start + len(part)] = distance < 0
        for i in np.flatnonzero(np.abs(distance) <= 1):
            gap = int(part[i])
            chance_of = partial(_exp_interval, rate * gap)
            out[start + i] = gap <= 0 or _decide(chance_of, int(lanes[i]), 16, entropy)
    return out


@dataclass(frozen=True)
class CandidateGaps:
    """The gaps of candidates below the best; those far below are only counted.

    ``near`` are the indices of some candidates, ascending, the best among them (None: all of the ``size``), and ``gaps``
    how far below the best each is. All others are more than ``reach`` below it; how far says ``gap_of``, of an index.
    """

    size: int
    gaps: Integers
    near: NDArray[np.intp] | None = None
    reach: int = 0
    gap_of: Callable[[int], int] | None = None

    @classmethod
    def of(cls, scores: Integers, rate: Fraction) -> CandidateGaps:
        """Measure scores: candidates are near unless they are improbable beyond :data:`FAR_BITS` bits."""
        reach = compute_reach(rate)
        if len(scores) < FEW_CANDIDATES or scores.dtype != np.int64 or reach >= SAFE:
            return cls(len(scores), measure_gaps(scores))
        top, low = int(scores.max()), int(scores.min())
        if top >= SAFE or low <= -SAFE or top - reach <= low:
            return cls(len(scores), measure_gaps(scores))
        near = np.flatnonzero(scores >= top - reach)
        return cls(len(scores), top - scores[near], near, reach, lambda i: top - int(scores[i]))

    @property
    def far(self) -> int:
        """The number of candidates that are not near."""
        return self.size - len(self.gaps)

    def index(self, i: int) -> int:
        """Return the candidate that is the i-th of the near ones."""
        return i if self.near is None else int(self.near[i])

    def beyond(self, j: int) -> tuple[int, int]:
        """Return the j-th of the others, and its gap."""
        assert self.near is not None and self.gap_of is not None
        before = self.near - np.arange(len(self.near))  # how many others come before each near one
        i = j + int(np.searchsorted(before, j, side="right"))
        return i, self.gap_of(i)

    @classmethod
    def below_level(cls, short: Integers, rate: Fraction) -> CandidateGaps:
        """Tell candidates apart by how far each is ``short`` of a level, at most 0 where it is reached."""
        reach = compute_reach(rate)
        if len(short) < FEW_CANDIDATES or short.dtype != np.int64 or reach >= SAFE:
            return cls(len(short), short)
        near = np.flatnonzero(short <= reach)
        return cls(len(short), short[near], near, reach, lambda i: int(short[i]))


FAR_BITS = 60
"""The bits of a probability below which candidates are far."""
FEW_CANDIDATES = 1 << 12
"""The number of candidates below which all are near."""


def compute_reach(rate: Fraction) -> int:
    """Compute the gap beyond which a weight is below ``2**-FAR_BITS`` of the best one's (ln 2 < 7/10)."""
    return math.ceil(Fraction(7 * FAR_BITS, 10) / rate)


def _none_of(coins: int, bits: int) -> Callable[[int], tuple[int, int]]:
    """Enclose the probability that none of so many independent coins of chance ``2**-bits`` shows heads.

    By inclusion and exclusion: the partial sums of ``(-1)**k C(coins, k) 2**(-bits k)`` lie above and below it in turn.
    """

    def interval(b: int) -> tuple[int, int]:
        total, chosen, k = 1, 1, 0  # in units of 2**(-bits k)
        while True:
            k += 1
            chosen = chosen * (coins - k + 1) // k
            after = (total << bits) + (-chosen if k % 2 else chosen)
            low, high = sorted((total << bits, after))
            total, scale = after, bits * k
            if chosen == 0 or (high - low) << b <= 1 << scale:
                return max(0, low << b >> scale), min(1 << b, -(-(high << b) >> scale))

    return interval


def toss_rare_coins(coins: int, bits: int, entropy: Entropy) -> list[int]:
    """Return which of independent coins, each of chance ``2**-bits``, show heads: exactly, and without tossing each.

    Whether any does is one coin. The first that does is the j-th with a chance proportional to ``(1 - 2**-bits)**j``:
    drawn evenly, and kept with that probability. What comes after it is independent of what came before.
    """
    found: list[int] = []
    start = 0
    while start < coins and not _decide(_none_of(coins - start, bits), 0, 0, entropy):
        while True:
            j = int(entropy.below(coins - start, 1)[0])
            if j == 0 or _decide(_none_of(j, bits), 0, 0, entropy):
                break
        found.append(start + j)
        start += j + 1
    return found


def find_heads(field: CandidateGaps, rate: Fraction, entropy: Entropy) -> NDArray[np.intp]:
    """Flip one coin ``exp(-rate * gap)`` for each candidate, and return those that show heads.

    A far candidate's coin is one of chance ``2**-FAR``, which hardly ever shows heads (:func:`toss_rare_coins`), and then one
    of what is left of its own chance: together ``exp(-rate * gap)``, as it must be.
    """
    heads = np.flatnonzero(flip_coins(field.gaps, rate, entropy))
    heads, others = heads if field.near is None else field.near[heads], list[int]()
    for j in toss_rare_coins(field.far, FAR_BITS, entropy) if field.far else ():
        i, gap = field.beyond(j)
        exponent = rate * gap

        def left(b: int, exponent: Fraction = exponent) -> tuple[int, int]:
            return _exp_interval(exponent, b + FAR_BITS)

        if _decide(left, 0, 0, entropy):
            others.append(i)
    return np.sort(np.append(heads, np.array(others, dtype=np.intp))) if others else heads


def permute_and_flip(scores: Integers | CandidateGaps, rate: Fraction, entropy: Entropy) -> int:
    """Choose by permute-and-flip: walk in random order, stop at the first coin ``exp(-rate * gap)``.

    The order of a random walk restricted to the candidates whose coin is heads is uniform, so all coins are
    flipped at once and one of the heads is returned (McKenna-Sheldon 2020). The same law as the index of the
    largest score plus one-sided exponential noise (Ding et al. 2021) - which is *not* the exponential mechanism.
    """
    field = scores if isinstance(scores, CandidateGaps) else CandidateGaps.of(scores, rate)
    heads = find_heads(field, rate, entropy)
    return int(heads[int(entropy.below(len(heads), 1)[0])])


def choose_exponential(
    scores: Integers | CandidateGaps, rate: Fraction, entropy: Entropy, sizes: Integers | None = None
) -> int:
    """Choose index ``i`` with probability proportional to ``sizes[i] * exp(rate * scores[i])``, exactly.

    Exact rejection: an index is proposed from integer weights that are proved to be no smaller than the true
    ones, and kept with the exact ratio of the two. The integers are so close that the first proposal is kept
    all but about once in 2**(41 - 2 log2 n) times, whatever the scores. ``sizes`` (positive integers below
    2**100; default 1) is the number of equal candidates that an entry stands for.

    All far candidates are proposed with one weight, mostly the integer 1, which is above their own.
    """
    if sizes is not None:
        assert not isinstance(scores, CandidateGaps)
        field = CandidateGaps(len(scores), measure_gaps(scores))
    else:
        field = scores if isinstance(scores, CandidateGaps) else CandidateGaps.of(scores, rate)
    gaps = field.gaps
    log_weight = gaps.astype(np.float64) * -float(rate)
    if sizes is not None:
        sizes = to_integers(sizes)
        log_weight += np.array([_log(int(s)) for s in sizes]) if sizes.dtype == object else np.log(sizes)
    bits = 61 - field.size.bit_length()
    shift = int(np.ceil(log_weight.max() / np.log(2.0))) + 1  # 2**shift is above the largest weight
    upper = np.exp(log_weight + (bits - shift) * np.log(2.0)) * (1.0 + 2.0**-30)
    ladder = np.cumsum(upper.astype(np.int64) + 1)
    known = int(ladder[-1])
    each = 1 << max(0, bits - shift - FAR_BITS)  # above a far one's own, 2**(bits - shift - FAR)
    while True:
        draw = int(entropy.below(known + field.far * each, 1)[0])
        if draw < known:
            i = int(np.searchsorted(ladder, draw, side="right"))
            index, gap = field.index(i), int(gaps[i])
            proposed = int(ladder[i]) - (int(ladder[i - 1]) if i else 0)
            size = 1 if sizes is None else int(sizes[i])
        else:
            index, gap = field.beyond((draw - known) // each)
            proposed, size = each, 1
        exponent = rate * gap

        def ratio(
            b: int, size: int = size, proposed: int = proposed, x: Fraction = exponent
        ) -> tuple[int, int]:
            more = max(0, bits - shift) + size.bit_length() + 8
            low, high = _exp_interval(x, b + more)
            up, down = max(0, bits - shift - more), max(0, more + shift - bits)
            divisor = proposed << down
            return (low * size << up) // divisor, -((-high * size << up) // divisor)

        if _decide(ratio, 0, 0, entropy):
            return index


def _log(value: int) -> float:
    """Compute the natural logarithm of a positive integer of any length, to double precision."""
    extra = max(0, value.bit_length() - 1000)
    return float(np.log(float(value >> extra))) + extra * float(np.log(2.0))


def choose_noisy_max(scores: Integers, scale: Fraction, entropy: Entropy) -> int:
    """Choose the largest score after exact discrete Laplace noise of ``scale`` steps; ties are broken evenly."""
    scores = to_integers(scores)
    noise = draw_discrete_laplace(scale, len(scores), entropy)
    noisy = add_integers(scores, noise)
    best = np.flatnonzero(noisy == noisy.max())
    return int(best[int(entropy.below(len(best), 1)[0])])


# -- the groups of each unit -------------------------------------------------------------------------------------------

_TICKET_BITS = 63
_FEW_GROUPS = 8
"""The most groups that are drawn one by one; beyond, a unit's groups are shuffled."""
_WORD = 1 << 32
_RUN_BLOCK = 1 << 16


def find_runs(ordered: IntegerArray, shift: int = 0) -> IntegerArray:
    """Find where each run of integers begins that are equal but for their ``shift`` lowest bits."""
    if not len(ordered):
        return np.empty(0, dtype=np.int64)
    change = np.empty(len(ordered), dtype=bool)
    change[0] = True
    for start in range(0, len(ordered) - 1, _RUN_BLOCK):  # what fits a core's cache is shifted at no cost
        part = ordered[start : start + _RUN_BLOCK + 1]
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
    if groups <= _FEW_GROUPS and int(counts.max()) < _WORD:
        for pick in _draw_sets(counts, groups, entropy):
            kept[first + pick] = True
        return kept
    places = np.flatnonzero(~kept)
    owner = np.repeat(np.arange(len(counts)), counts)
    order = places[_shuffle(owner, entropy)]
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept[order[rank < groups]] = True
    return kept


def share_rows(units: IntegerArray, rows: IntegerArray, budget: int, entropy: Entropy) -> IntegerArray | None:
    """Return how many rows of each unit and group count, at most ``budget`` of a unit; None where all do.

    A unit's groups are filled one after another, in an order that is uniform and independent of other units.

    Args:
        units: sorted, one entry per unit and group.
        rows: of each, at least 1.
        budget: at least 1.
        entropy: a source of random bits.
    """
    starts = find_runs(units)
    sizes = np.diff(starts, append=len(units))
    many = np.add.reduceat(rows, starts) > budget if len(units) else np.zeros(0, dtype=bool)
    if not many.any():
        return None
    counted, counts = rows.copy(), sizes[many]
    places = np.flatnonzero(np.repeat(many, sizes))
    order = places[_shuffle(np.repeat(np.arange(len(counts)), counts), entropy)]
    held = rows[order]
    before = np.cumsum(held) - held
    before -= np.repeat(before[np.cumsum(counts) - counts], counts)
    counted[order] = np.clip(budget - before, 0, held)
    return counted


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
    chance = min(32, _TICKET_BITS - place - who)
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
