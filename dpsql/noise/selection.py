"""Exact private choices among many candidates, vectorised: the randomness of the selection mechanisms.

Scores are integers (int64, or Python integers in an object array when they may not fit). A *rate* is the exact
``Fraction`` by which one step of score changes a log-weight. Floats decide comparisons only
with a proved error band. A draw inside the band continues with further random bits, against integers of
sufficient precision. So the laws are exact, and no candidate's probability is rounded to zero (Ilvento 2020;
Haney et al. 2022).

Candidates far below the best are only counted, and examined one by one when a draw selects them. The number of near ones
depends on the scores; the winner changes the work only then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import draw_discrete_laplace, draw_geometric
from dpsql.numerics.exact_numbers import SAFE, Integers, add_integers, to_integers
from dpsql.numerics.interval_arithmetic import libmp

_LANES = 4  # 16-bit lanes in a random word: enough to decide all but about three in 65,536 comparisons
_BLOCK = 1 << 15  # candidates per pass, within the cache of one core
_BLOCKS_EACH = 1 << 8  # blocks of scores for each of the best: two of them are seldom in one


def measure_gaps(scores: Integers) -> Integers:
    """Compute the gap of each score below the best: non-negative integers of a sufficient type."""
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
    argument = libmp().from_rational(-numerator, denominator, precision, "n")
    value = libmp().mpf_exp(argument, precision, "n")
    fixed = int(libmp().to_fixed(value, bits))
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
    their gaps below the best. All others are more than ``reach`` below it; ``gap_of`` returns the gap of an index. ``gone``
    are the indices of candidates that were already chosen, ascending: they take no part.
    """

    size: int
    gaps: Integers
    near: NDArray[np.intp] | None = None
    reach: int = 0
    gap_of: Callable[[int], int] | None = None
    gone: tuple[int, ...] = ()

    @classmethod
    def of(cls, scores: Integers, rate: Fraction, top: int = 1) -> CandidateGaps:
        """Measure scores: candidates are near unless their probability is below :data:`FAR_BITS` bits.

        They stay so when ``top - 1`` candidates, whichever, are chosen and taken away (:meth:`without`).
        """
        reach = compute_reach(rate)
        if len(scores) < FEW_CANDIDATES or scores.dtype != np.int64 or reach >= SAFE:
            return cls(len(scores), measure_gaps(scores))
        best, low = int(scores.max()), int(scores.min())
        level = best if top == 1 else _bound_nth_best(scores, top)
        if best >= SAFE or low <= -SAFE or level - reach <= low:
            return cls(len(scores), measure_gaps(scores))
        near = np.flatnonzero(scores >= level - reach)
        reach += best - level
        return cls(len(scores), best - scores[near], near, reach, lambda i: best - int(scores[i]))

    def without(self, i: int) -> CandidateGaps:
        """Return the gaps of the other candidates below the best of them, which must be a near one."""
        near, gaps = np.arange(self.size) if self.near is None else self.near, self.gaps
        at = int(np.searchsorted(near, i))
        if at < len(near) and int(near[at]) == i:
            near, gaps = np.delete(near, at), np.delete(gaps, at)
        less = int(gaps.min())
        known = self.gap_of
        gap_of = None if known is None else lambda i: known(i) - less
        gone = tuple(sorted((*self.gone, i)))
        return CandidateGaps(self.size, gaps - less, near, self.reach - less, gap_of, gone)

    @property
    def far(self) -> int:
        """The number of candidates that are not near."""
        return self.size - len(self.gaps) - len(self.gone)

    def index(self, i: int) -> int:
        """Return the candidate that is the i-th of the near ones."""
        return i if self.near is None else int(self.near[i])

    def beyond(self, j: int) -> tuple[int, int]:
        """Return the j-th of the others, and its gap."""
        assert self.near is not None and self.gap_of is not None
        others = np.union1d(self.near, np.array(self.gone, dtype=np.intp)) if self.gone else self.near
        before = others - np.arange(len(others))  # how many far ones come before each of these
        i = j + int(np.searchsorted(before, j, side="right"))
        return i, self.gap_of(i)

    def list_far(self) -> list[tuple[int, int]]:
        """Return all that are not near, each with its gap."""
        assert self.near is not None and self.gap_of is not None
        far = np.ones(self.size, dtype=bool)
        far[self.near] = far[list(self.gone)] = False
        return [(int(i), self.gap_of(int(i))) for i in np.flatnonzero(far)]

    @classmethod
    def below_level(cls, short: Integers, rate: Fraction) -> CandidateGaps:
        """Return the gaps for candidates that are ``short`` of a level by these amounts; at most 0 if they reach it."""
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
    """Compute the gap above which a weight is below ``2**-FAR_BITS`` of the best one's (ln 2 < 7/10)."""
    return math.ceil(Fraction(7 * FAR_BITS, 10) / rate)


def _bound_nth_best(scores: Integers, n: int) -> int:
    """Return a score that at least ``n`` candidates have or surpass: the n-th greatest, or hardly less."""
    blocks = np.maximum.reduceat(scores, np.arange(0, len(scores), max(1, len(scores) // (n * _BLOCKS_EACH))))
    n = min(n, len(scores))
    return int(np.partition(blocks, len(blocks) - n)[len(blocks) - n])


def _none_of(coins: int, bits: int) -> Callable[[int], tuple[int, int]]:
    """Enclose the probability that none of these independent coins of chance ``2**-bits`` shows heads.

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
    """Return which of independent coins, each of probability ``2**-bits``, show heads: exactly, without tossing each.

    Whether any does is one coin. The first that does is the j-th with a probability proportional to ``(1 - 2**-bits)**j``: drawn
    evenly, and kept with that probability. Later coins are independent of earlier ones.
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

    A far candidate's coin is a rare one of chance ``2**-FAR_BITS`` (:func:`toss_rare_coins`), and then one of the remaining
    chance: together ``exp(-rate * gap)``.
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

    Exact rejection: an index is proposed from integer weights that are proved to be no smaller than the true ones, and kept with
    the exact ratio of the two. The integers are so close that the first proposal is kept all but about once in
    2**(41 - 2 log2 n) times, for all scores. ``sizes`` (positive integers below 2**100; default 1) is the number of equal
    candidates in an entry. All far candidates are proposed with one weight, mostly the integer 1, which is above their own.
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


def choose_noisy_max(scores: Integers | CandidateGaps, scale: Fraction, entropy: Entropy) -> int:
    """Choose the largest score after exact discrete Laplace noise of ``scale`` steps; ties are broken evenly.

    A far candidate's noise is drawn only if it is at least half the reach, which is rare (:func:`_draw_great`). Otherwise the
    candidate stays below the best one, unless the best one's noise is very negative. In that case the noise of all others is
    drawn too, conditioned on being below half the reach.
    """
    rate = 1 / scale
    field = scores if isinstance(scores, CandidateGaps) else CandidateGaps.of(scores, rate)
    noisy = add_integers(draw_discrete_laplace(scale, len(field.gaps), entropy), -field.gaps)
    best = int(noisy.max())
    winners = np.flatnonzero(noisy == best)
    if not field.far:
        return field.index(int(winners[int(entropy.below(len(winners), 1)[0])]))
    half = (field.reach + 1) // 2
    others = [(field.beyond(j), noise) for j, noise in _draw_great(field.far, half, rate, entropy).items()]
    level = max((noise - gap for (_, gap), noise in others), default=best)
    if max(best, level) < half - 1 - field.reach:
        drawn = {i for (i, _), _ in others}
        rest = [one for one in field.list_far() if one[0] not in drawn]
        others += zip(rest, _draw_small(half, scale, len(rest), entropy), strict=True)
        level = max(noise - gap for (_, gap), noise in others)
    tied = [i for (i, gap), noise in others if noise - gap == level >= best]
    if level > best:
        winners = winners[:0]
    pick = int(entropy.below(len(winners) + len(tied), 1)[0])
    return field.index(int(winners[pick])) if pick < len(winners) else tied[pick - len(winners)]


def _draw_great(n: int, least: int, rate: Fraction, entropy: Entropy) -> dict[int, int]:
    """Draw which of ``n`` discrete Laplace variables are at least ``least`` (1 or more), and their values.

    The chance is ``exp(-rate * least) / (1 + exp(-rate))``: a rare coin (:func:`toss_rare_coins`), and then a coin of the
    remaining chance. The excess over ``least`` is geometric, since a geometric variable has no memory.
    """
    exponent = rate * least
    bits = min(FAR_BITS, math.floor(exponent * Fraction(10, 7)))  # 2**-bits is no smaller, as ln 2 < 7/10

    def left(b: int) -> tuple[int, int]:
        digits = b + bits + 8
        low, high = _exp_interval(exponent, digits)
        least_other, most_other = _exp_interval(rate, digits)
        whole = 1 << digits
        return (low << b + bits) // (whole + most_other), -((-high << b + bits) // (whole + least_other))

    found = [j for j in toss_rare_coins(n, bits, entropy) if _decide(left, 0, 0, entropy)]
    return dict(zip(found, (least + int(k) for k in draw_geometric(rate, len(found), entropy)), strict=True))


def _draw_small(bound: int, scale: Fraction, n: int, entropy: Entropy) -> list[int]:
    """Draw ``n`` discrete Laplace variables conditioned on being below ``bound``, which is 1 or more."""
    noise = draw_discrete_laplace(scale, n, entropy)
    great = np.flatnonzero(noise >= bound)
    while len(great):  # fewer than half are drawn again
        again = draw_discrete_laplace(scale, len(great), entropy)
        noise = noise.astype(object) if again.dtype == object else noise
        noise[great] = again
        great = great[again >= bound]
    return [int(k) for k in noise]
