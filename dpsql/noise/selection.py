"""Exact private choices among many candidates, vectorised: the randomness of the selection mechanisms.

Scores are integers (int64, or Python integers in an object array when they may not fit). A *rate* is the exact
``Fraction`` by which one step of score changes a log-weight. Floats only ever decide what they can decide for
certain: each comparison carries a proved error band, and a draw that falls inside the band is continued with
further random bits against integers computed to as many digits as it takes. So the laws are exact, not
approximate, and there is no candidate whose probability is rounded to nought (Ilvento 2020; Haney et al. 2022).

The work does not depend on who wins: every candidate is looked at once.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
from mpmath import libmp
from numpy.typing import NDArray

from dpsql.noise.discrete import discrete_laplace
from dpsql.noise.entropy import Entropy
from dpsql.noise.integers import SAFE, Integers, integers

_LANES = 4  # 16-bit lanes in a random word: enough to decide all but about three in 65,536 comparisons
_BLOCK = 1 << 15  # candidates per pass: what stays in the cache of one core


def below_top(scores: Integers) -> Integers:
    """How far each score lies below the best: non-negative integers of a type that holds them."""
    scores = integers(scores)
    top, low = int(scores.max()), int(scores.min())
    if scores.dtype != object and top - low >= 2 * SAFE:
        scores = scores.astype(object)
    return np.asarray(top - scores)


def _exp_interval(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Integers ``low <= 2**bits * exp(-exponent) <= high`` with ``high - low <= 3`` (exponent >= 0)."""
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
    """Is a uniform real, whose first ``bits`` bits are ``word``, below p? Exact.

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


def flips(gaps: Integers, rate: Fraction, entropy: Entropy) -> NDArray[np.bool_]:
    """Independent exact coins: heads with probability ``exp(-rate * gap)``, and surely where ``gap <= 0``.

    About 10 ns a coin. ``gaps`` is int64 or object; ``rate`` a positive Fraction.

    >>> bool(flips(np.zeros(5, dtype=np.int64), Fraction(1, 3), Entropy()).all())
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


def permute_and_flip(scores: Integers, rate: Fraction, entropy: Entropy) -> int:
    """Index chosen by permute-and-flip: walk in random order, stop at the first coin ``exp(-rate * gap)``.

    The order of a random walk restricted to the candidates whose coin is heads is uniform, so all coins are
    flipped at once and one of the heads is returned (McKenna-Sheldon 2020). The same law as the index of the
    largest score plus one-sided exponential noise (Ding et al. 2021) - which is *not* the exponential mechanism.
    """
    heads = np.flatnonzero(flips(below_top(scores), rate, entropy))
    return int(heads[int(entropy.below(len(heads), 1)[0])])


def exponential(scores: Integers, rate: Fraction, entropy: Entropy, sizes: Integers | None = None) -> int:
    """Index ``i`` with probability proportional to ``sizes[i] * exp(rate * scores[i])``, exactly.

    Exact rejection: an index is proposed from integer weights that are proved to be no smaller than the true
    ones, and kept with the exact ratio of the two. The integers are so close that the first proposal is kept
    all but about once in 2**(41 - 2 log2 n) times, whatever the scores. ``sizes`` (positive integers below
    2**100; default 1) is the number of equal candidates that an entry stands for.
    """
    gaps = below_top(scores)
    log_weight = gaps.astype(np.float64) * -float(rate)
    if sizes is not None:
        sizes = integers(sizes)
        log_weight += np.array([_log(int(s)) for s in sizes]) if sizes.dtype == object else np.log(sizes)
    bits = 61 - len(gaps).bit_length()
    shift = int(np.ceil(log_weight.max() / np.log(2.0))) + 1  # 2**shift is above the largest weight
    upper = np.exp(log_weight + (bits - shift) * np.log(2.0)) * (1.0 + 2.0**-30)
    ladder = np.cumsum(upper.astype(np.int64) + 1)
    total = int(ladder[-1])
    while True:
        draw = int(entropy.below(total, 1)[0])
        i = int(np.searchsorted(ladder, draw, side="right"))
        size = 1 if sizes is None else int(sizes[i])
        proposed = int(ladder[i]) - (int(ladder[i - 1]) if i else 0)
        exponent = rate * int(gaps[i])

        def ratio(
            b: int, size: int = size, proposed: int = proposed, x: Fraction = exponent
        ) -> tuple[int, int]:
            more = max(0, bits - shift) + size.bit_length() + 8
            low, high = _exp_interval(x, b + more)
            up, down = max(0, bits - shift - more), max(0, more + shift - bits)
            divisor = proposed << down
            return (low * size << up) // divisor, -((-high * size << up) // divisor)

        if _decide(ratio, 0, 0, entropy):
            return i


def _log(value: int) -> float:
    """Natural logarithm of a positive integer of any length, to double precision."""
    extra = max(0, value.bit_length() - 1000)
    return float(np.log(float(value >> extra))) + extra * float(np.log(2.0))


def noisy_max(scores: Integers, scale: Fraction, entropy: Entropy) -> int:
    """Index of the largest score after exact discrete Laplace noise of ``scale`` steps; ties are broken evenly."""
    scores = integers(scores)
    noise = discrete_laplace(scale, len(scores), entropy)
    if scores.dtype == object or noise.dtype == object:
        noisy = scores.astype(object) + noise.astype(object)
    else:
        noisy = (
            scores + noise
            if int(np.abs(noise).max()) < SAFE
            else scores.astype(object) + noise.astype(object)
        )
    best = np.flatnonzero(noisy == noisy.max())
    return int(best[int(entropy.below(len(best), 1)[0])])
