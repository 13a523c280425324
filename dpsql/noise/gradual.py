"""Discrete Laplace noise that is removed step by step, so that only the last step costs.

Noise of a coarse scale is noise of a finer scale plus something independent. Draw the finest noise first and add further
noise; then show the coarsest answer, and remove the added noise step by step. Each shown answer is the next one plus
independent noise, so all together reveal no more than the last (after Koufogiannis, Han and Pappas 2015; here on integers).

With ``p = exp(-1 / fine)`` and ``q = exp(-1 / coarse)`` the generating functions of the two noises are
``(1 - p)^2 / ((1 - p z)(1 - p / z))`` and this expression in q. Their quotient is
``s + (1 - s) (1 - q)^2 / ((1 - q z)(1 - q / z))`` with ``s = (p / q) ((1 - q) / (1 - p))^2``: the added noise is 0 with
probability s, else noise of the coarse scale.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsql.noise.entropy import Entropy, Uniform
from dpsql.noise.samplers import draw_discrete_laplace
from dpsql.numerics import interval_arithmetic as ia
from dpsql.numerics.exact_numbers import Integers, add_integers

_ONE = ia.rational(Fraction(1), 64)


def enclose_stay(fine: Fraction, coarse: Fraction, bits: int) -> ia.Interval:
    """Enclose the probability that nothing is added between two scales, ``fine < coarse``."""
    small, large = (_exp(-1 / fine, bits), _exp(-1 / coarse, bits))
    ratio = ia.divide(ia.subtract(_ONE, large, bits), ia.subtract(_ONE, small, bits), bits)
    return ia.multiply(_exp(1 / coarse - 1 / fine, bits), ia.multiply(ratio, ratio, bits), bits)


def _exp(x: Fraction, bits: int) -> ia.Interval:
    return ia.exp(ia.rational(x, bits), bits)


class Added(NamedTuple):
    """Integers that are added to some of the noises, and their places."""

    places: NDArray[np.intp]
    values: Integers


def draw_added(fine: Fraction, coarse: Fraction, n: int, entropy: Entropy) -> Added:
    """Draw ``n`` times what makes discrete Laplace noise of scale ``fine`` into noise of scale ``coarse``, exactly.

    A uniform real is compared with the probability to stay: 64 bits of it settle all but a draw in 10^15 or so, and
    further bits are drawn for those.
    """
    if not 0 < fine <= coarse:
        raise ValueError("noise is made coarser: the scales must be in order")
    if fine == coarse:
        return Added(np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.int64))
    low, high = _find_thresholds(fine, coarse)
    words = entropy.words(n)
    stays = words < np.uint64(min(low, (1 << 64) - 1))
    for i in np.flatnonzero(~stays & (words <= np.uint64(min(high, (1 << 64) - 1)))):
        stays[i] = _is_below(Uniform(int(words[i]), 64, entropy), fine, coarse)
    places = np.flatnonzero(~stays)
    return Added(places, draw_discrete_laplace(coarse, len(places), entropy))


@lru_cache(maxsize=4096)
def _find_thresholds(fine: Fraction, coarse: Fraction) -> tuple[int, int]:
    """Return the integers below and above which 64 bits of a uniform real decide."""
    low, high = enclose_stay(fine, coarse, _count_bits(coarse) + 64)
    return ia.floor(ia.shift(low, 64)), ia.floor(ia.shift(high, 64))


def _count_bits(coarse: Fraction) -> int:
    """Return the working precision in bits: 1 - exp(-1 / scale) loses as many leading ones as the scale has."""
    return 96 + 4 * max(0, int(coarse).bit_length())


def _is_below(u: Uniform, fine: Fraction, coarse: Fraction) -> bool:
    while True:
        low, high = u.interval()
        stay = enclose_stay(fine, coarse, _count_bits(coarse) + u.bits)
        if ia.is_at_most(high, stay[0]):
            return True
        if ia.is_at_most(stay[1], low):
            return False
        u.draw()


class NoiseChain:
    """Noises of ``n`` numbers at falling ``scales``, each the next plus something independent; ``noise`` is the current one."""

    def __init__(self, scales: Sequence[Fraction], n: int, entropy: Entropy) -> None:
        if not scales or any(a <= b for a, b in itertools.pairwise(scales)):
            raise ValueError("a chain of noise has falling scales")
        self.noise: Integers = draw_discrete_laplace(scales[-1], n, entropy)
        self._added = [draw_added(b, a, n, entropy) for a, b in itertools.pairwise(scales)]
        for added in reversed(self._added):
            self._add(added, 1)

    def step(self) -> None:
        """Go on to the next scale: remove what was added last."""
        self._add(self._added.pop(0), -1)

    def _add(self, added: Added, sign: int) -> None:
        whole = np.zeros(len(self.noise), dtype=added.values.dtype)
        whole[added.places] = added.values
        self.noise = np.asarray(add_integers(self.noise, whole if sign > 0 else -whole))
