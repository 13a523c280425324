"""Exact vectorised samplers over the integers, by inversion of a uniform real.

Every function draws from exactly the distribution in its docstring. Parameters are rationals, and floats are trusted only
outside a certified error band; the few draws inside it are decided with intervals that shrink until the answer is certain
(interval refining, after Haney et al. 2022). Results are int64 arrays, or object arrays of Python ints if a value may not fit.
Running time depends on the parameters and on the noise.

For an integer A, ``A + round(N) = round(A + N)``: releasing it is post-processing of the continuous Gaussian mechanism, with
that mechanism's whole guarantee. (The discrete Gaussian, with ``Pr[k]`` proportional to ``exp(-k**2 / 2 sigma**2)``, lacks it:
its trade-off curve crosses the Gaussian one.)

A unit with too many groups keeps a uniform sample of them (:func:`choose_groups`), chosen by random numbers of its own. So a
unit that is added or removed never changes the choice of another unit.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsql.noise.entropy import Entropy, Uniform
from dpsql.numerics import interval_arithmetic as ia
from dpsql.numerics.exact_numbers import Floats, Integers, add_integers
from dpsql.numerics.interval_arithmetic import Interval

DRAWS_AT_ONCE = 1 << 15
"""The draws made at once: few enough to stay in the processor's cache."""

RELATIVE = 2.0**-46
"""The relative error granted to a float computation: some 64 units in the last place, where numpy's log, exp and sqrt are
documented to stay within 4."""

ABSOLUTE = 2.0**-50
"""The error granted to a probability, and to the logarithm of one near 1. It covers the 2**-53 by which the
middle of a cell of uniforms differs from its ends."""

TINY = 2.0**-35
"""Uniforms below this are always decided exactly: a float has too few of their leading bits."""

INT64 = 1 << 62
"""Results at or above this leave int64, so that a later sum can't overflow."""


def draw_floor(
    n: int,
    entropy: Entropy,
    estimate: Callable[[Floats], tuple[Floats, Floats]],
    exact: Callable[[Interval, int], tuple[int, int]],
) -> tuple[Integers, NDArray[np.bool_]]:
    """Draw ``n`` values of ``floor(x(U))``, U uniform in (0, 1), ``x >= 0``, and a fair bit with each.

    Args:
        estimate: gives ``x(u)`` and a bound of its error over all U within 2**-53 of ``u``, for u >= TINY.
        exact: given an interval of U and a precision in bits, the least and greatest value of the floor.

    Returns:
        An int64 array (object where a value does not fit) and a boolean array.
    """
    out: Integers = np.empty(n, dtype=np.int64)
    bits = np.empty(n, dtype=np.bool_)
    for part, words, cells, u in _draw_uniforms(n, entropy):
        bits[part] = words & np.uint64(1)
        x, band = estimate(u)
        np.maximum(x, 0.5, out=x)  # x(U) is never negative: 0 has no lower edge to be near to
        whole = np.floor(x)
        x -= whole
        x -= 0.5
        np.abs(x, out=x)
        x += band
        out[part] = whole
        for i in np.flatnonzero((x >= 0.5) | (u < TINY)):
            value = _refined(Uniform(int(cells[i]), 52, entropy), exact)
            if value >= INT64 and out.dtype != object:
                out = out.astype(object)
            out[part.start + int(i)] = value
    return out, bits


def _draw_uniforms(
    n: int, entropy: Entropy
) -> Iterator[tuple[slice, NDArray[np.uint64], NDArray[np.uint64], Floats]]:
    """Yield the places of some of ``n`` draws, their words, the words' first 52 bits, and the middles of these cells."""
    for start in range(0, n, DRAWS_AT_ONCE):
        words = entropy.words(min(DRAWS_AT_ONCE, n - start))
        cells = words >> np.uint64(12)
        u = cells.astype(np.float64)
        u += 0.5
        u *= 2.0**-52
        yield slice(start, start + len(words)), words, cells, u


def _refined(u: Uniform, exact: Callable[[Interval, int], tuple[int, int]]) -> int:
    while True:
        if u.known:
            least, greatest = exact(u.interval(), u.bits + 64)
            if least == greatest:
                return least
        u.draw()


def draw_accepted(
    p: Floats, band: Floats, n: int, entropy: Entropy, exact: Callable[[int, Uniform], bool]
) -> NDArray[np.bool_]:
    """Draw ``n`` booleans, TRUE with a probability within ``band`` of ``p``; ``exact`` settles close calls."""
    out = np.empty(n, dtype=np.bool_)
    for part, _, cells, u in _draw_uniforms(n, entropy):
        u -= p[part]
        out[part] = u < 0
        for i in np.flatnonzero(np.abs(u) <= band[part]):
            place = part.start + int(i)
            out[place] = exact(place, Uniform(int(cells[i]), 52, entropy))
    return out


WIDEST = 1 << 22
"""Draws with a larger deviation are composed of two digits: a float would leave too many of them undecided."""

QUANTILE = 2.0**-44
"""The relative error granted to the quantile; the tests find the true one below a sixteenth of it."""


def _parse_floats(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split()))


# Wichura 1988, algorithm AS 241 (PPND16): numerators and denominators, highest power first.
_CENTRE = (
    _parse_floats(
        "2.5090809287301226727e3 3.3430575583588128105e4 6.7265770927008700853e4 4.5921953931549871457e4 "
        "1.3731693765509461125e4 1.9715909503065514427e3 1.3314166789178437745e2 3.3871328727963666080e0"
    ),
    _parse_floats(
        "5.2264952788528545610e3 2.8729085735721942674e4 3.9307895800092710610e4 2.1213794301586595867e4 "
        "5.3941960214247511077e3 6.8718700749205790830e2 4.2313330701600911252e1 1.0"
    ),
)
_FLANK = (
    _parse_floats(
        "7.74545014278341407640e-4 2.27238449892691845833e-2 2.41780725177450611770e-1 1.27045825245236838258e0 "
        "3.64784832476320460504e0 5.76949722146069140550e0 4.63033784615654529590e0 1.42343711074968357734e0"
    ),
    _parse_floats(
        "1.05075007164441684324e-9 5.47593808499534494600e-4 1.51986665636164571966e-2 1.48103976427480074590e-1 "
        "6.89767334985100004550e-1 1.67638483018380384940e0 2.05319162663775882187e0 1.0"
    ),
)


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], r: Floats) -> Floats:
    above, under = (np.full_like(r, row[0]) for row in coefficients)
    for a, b in zip(coefficients[0][1:], coefficients[1][1:], strict=True):
        above *= r
        above += a
        under *= r
        under += b
    above /= under
    return above


def compute_half_normal_quantile(u: Floats) -> Floats:
    """Compute the z with ``Pr[abs(N(0, 1)) > z] = u``, for u between TINY and 1, to within QUANTILE relative."""
    q = 0.5 - 0.5 * u
    z = _ratio(_CENTRE, 0.180625 - q * q)
    z *= q
    far = np.flatnonzero(q > 0.425)
    # below TINY, z may be anything
    z[far] = _ratio(_FLANK, np.sqrt(-np.log(np.maximum(0.5 * u[far], TINY / 4))) - 1.6)
    return z


def draw_rounded_gaussian(sigma: Fraction, n: int, entropy: Entropy) -> Integers:
    """Draw ``n`` times from ``round(N(0, sigma**2))``, for any positive ``sigma``.

    >>> draw_rounded_gaussian(Fraction(1, 10**6), 3, Entropy()).tolist()
    [0, 0, 0]
    """
    if sigma <= 0:
        raise ValueError("sigma must be positive")
    if sigma < WIDEST:
        size, sign = _half_normal_floor(sigma, Fraction(1, 2), n, entropy)
        np.negative(size, out=size, where=sign)
        return size
    return _draw_wide_gaussian(sigma, n, entropy)


def _half_normal_floor(
    sigma: Fraction, shift: Fraction, n: int, entropy: Entropy
) -> tuple[Integers, NDArray[np.bool_]]:
    """Draw ``floor(sigma * abs(Z) + shift)`` with Z standard normal, and fair signs; ``0 <= shift < 1``."""
    scale, offset = float(sigma), float(shift)

    def estimate(u: Floats) -> tuple[Floats, Floats]:
        x = compute_half_normal_quantile(u)
        x *= scale
        # dz = du / (2 phi(z)) <= du / u, for phi(z) >= Pr[N > z] where z >= 0.4, and phi(z) > 1/3 below
        band = (2 * ABSOLUTE * scale) / u
        band += x * QUANTILE
        x += offset
        band += RELATIVE
        return x, band

    def exact(u: Interval, bits: int) -> tuple[int, int]:
        reach = math.isqrt(2 * bits) + 1  # Pr[|Z| > z] <= exp(-z**2 / 2), and u is at least 2**-bits
        most = math.ceil(sigma * reach) + 1
        bits += 4 * reach.bit_length() + 64

        def count(reached: Callable[[Interval], bool]) -> int:
            """Count the j >= 1 with ``U < Pr[sigma * |Z| + shift >= j]``: true up to some j, then false."""

            def passed(j: int) -> bool:
                return not reached(ia.tail(ia.rational((j - shift) / sigma, bits), bits))

            return bisect_left(range(1, most + 1), True, key=passed)

        half = ia.shift(u[0], -1), ia.shift(u[1], -1)
        return count(lambda t: ia.is_at_most(half[1], t[0])), count(lambda t: ia.is_at_most(half[0], t[1]))

    return draw_floor(n, entropy, estimate, exact)


def _draw_low_digits(
    bound: int,
    n: int,
    entropy: Entropy,
    accept: Callable[[Integers, NDArray[np.intp]], NDArray[np.bool_]],
) -> Integers:
    """Draw uniform integers below ``bound`` until all are accepted; ``accept`` gets some of them, and their places."""
    out = entropy.below(bound, n)
    pending = np.flatnonzero(~accept(out, np.arange(n)))
    while len(pending):
        out[pending] = entropy.below(bound, len(pending))
        pending = pending[~accept(out[pending], pending)]
    return out


def _draw_wide_gaussian(sigma: Fraction, n: int, entropy: Entropy) -> Integers:
    """Draw a wide Gaussian as ``(cell + t) * 2**shift``: the cell by inversion, t by rejection from a uniform.

    Within its cell the density falls as ``exp(-t * (t + 2 * cell) / (2 * s**2))``, and ``s = sigma / 2**shift`` is at least
    2**20: nearly every t is accepted. A rejected t is drawn again in the same cell.
    """
    shift = math.floor(sigma).bit_length() - 21
    s = sigma / (1 << shift)
    width = max(63, shift + 1)  # bits of t drawn at once; further ones only settle a close decision
    cell, sign = _half_normal_floor(s, Fraction(0), n, entropy)
    t = _draw_low_digits(1 << width, n, entropy, lambda t, i: _accepted(cell[i], t, width, s, entropy))
    inner = ((t >> (width - shift - 1)) + 1) >> 1  # round(t * 2**shift)
    if inner.dtype == object or cell.dtype == object or int(cell.max(initial=0)) + 1 >= INT64 >> shift:
        size: Integers = cell.astype(object) * (1 << shift) + inner.astype(object)
    else:
        size = (cell << shift) + inner
    return np.where(sign, -size, size)


def _accepted(cell: Integers, t: Integers, width: int, s: Fraction, entropy: Entropy) -> NDArray[np.bool_]:
    """Draw TRUE with probability ``exp(-t * (t + 2 * cell) / (2 * s**2))``; ``width`` bits of the real t are known."""
    short, known = (t, width) if width < 1000 else (t >> (width - 63), 63)
    fraction = short.astype(np.float64) * 2.0**-known
    gamma = fraction * (fraction + 2 * cell.astype(np.float64)) / (2 * float(s) ** 2)
    p = np.exp(-gamma)

    def exact(i: int, u: Uniform) -> bool:
        position, first = Uniform(int(t[i]), width, entropy), u.bits

        def enclose(bits: int) -> Interval:
            if bits > first:
                position.draw()
            bits = max(bits, position.bits) + 64 + int(cell[i]).bit_length()
            at, twice = position.interval(), ia.rational(Fraction(2 * int(cell[i])), bits)
            square = ia.rational(-2 * s * s, bits)
            gamma = ia.divide(ia.multiply(at, ia.add(at, twice, bits), bits), square, bits)
            return ia.exp(gamma, bits)

        return u.is_below(enclose)

    return draw_accepted(p, p * RELATIVE + ABSOLUTE, len(t), entropy, exact)


SLOWEST = Fraction(1, 1 << 26)
"""Least rate that is inverted directly: below it a float would leave too many draws undecided."""

FASTEST = 1 << 60
"""Rates above this look like this one to a float: any value but 0 is then left to exact arithmetic."""


def draw_bernoulli(
    p: Sequence[Fraction], entropy: Entropy, index: NDArray[np.intp] | None = None
) -> NDArray[np.bool_]:
    """Draw independent booleans, TRUE with probability ``p[i]``, or ``p[index[i]]`` with an index.

    >>> draw_bernoulli([Fraction(0), Fraction(1)], Entropy()).tolist()
    [False, True]
    """
    if any(not 0 <= x <= 1 for x in p):
        raise ValueError("a probability must lie between 0 and 1")
    n = len(p) if index is None else len(index)
    scaled = [(x.numerator << 64) // x.denominator for x in p]
    thresholds = np.array([min(x, (1 << 64) - 1) for x in scaled], dtype=np.uint64)
    certain = np.array([x == 1 for x in p], dtype=np.bool_)
    if index is not None:
        thresholds, certain = thresholds[index], certain[index]
    words = entropy.words(n)
    out = (words < thresholds) | certain
    for i in np.flatnonzero((words == thresholds) & ~certain):
        k = int(i) if index is None else int(index[i])
        out[i] = _tied(p[k] * (1 << 64) - scaled[k], entropy)
    return out


def _tied(rest: Fraction, entropy: Entropy) -> bool:
    """Decide whether a uniform real is below ``rest``, 64 bits at a time."""
    while rest:
        rest *= 1 << 64
        whole, word = math.floor(rest), int(entropy.words(1)[0])
        if word != whole:
            return word < whole
        rest -= whole
    return False


def draw_bernoulli_exp(values: Integers, rate: Fraction, entropy: Entropy) -> NDArray[np.bool_]:
    """Draw independent booleans, TRUE with probability ``exp(-value * rate)``, for non-negative integers and a positive rate.

    >>> draw_bernoulli_exp(np.array([0, 0]), Fraction(1, 7), Entropy()).tolist()
    [True, True]
    """
    if rate <= 0 or (len(values) and values.min() < 0):
        raise ValueError("an exponent must not be negative, and its rate must be positive")

    def exact(i: int, u: Uniform) -> bool:
        gamma = int(values[i]) * rate
        return not gamma or u.is_below(lambda bits: ia.exp(ia.rational(-gamma, bits + 64), bits + 64))

    gamma = _floats(values, rate)
    p = np.exp(-gamma)
    # a relative error e of gamma moves exp(-gamma) by gamma * e of itself; for large gamma p is 0 already
    band = p * (RELATIVE + np.minimum(gamma, 1e3) * RELATIVE) + ABSOLUTE
    return draw_accepted(p, band, len(values), entropy, exact)


def _floats(values: Integers, rate: Fraction) -> Floats:
    """Compute ``values * rate`` in floats, within 4 units in the last place (or at least 1e300, if it is more)."""
    if values.dtype == object:
        n, d = rate.numerator, rate.denominator
        cap = 10**300 * d // n + 1
        return np.array([min(int(v), cap) * n / d for v in values], dtype=np.float64)
    return values.astype(np.float64) * float(min(rate, Fraction(10**280)))


def draw_geometric(rate: Fraction, n: int, entropy: Entropy) -> Integers:
    """Draw ``n`` times from the geometric distribution: ``Pr[k]`` proportional to ``exp(-k * rate)`` for ``k >= 0``.

    >>> draw_geometric(Fraction(10**6), 3, Entropy()).tolist()
    [0, 0, 0]
    """
    if rate <= 0:
        raise ValueError("rate must be positive")
    if rate < SLOWEST:
        return _draw_slow_geometric(rate, n, entropy)
    # Pr[K >= k] = exp(-k * rate), so K = floor(-ln(U) / rate)
    return _inverted_exponential(rate, False, n, entropy)[0]


def draw_discrete_laplace(scale: Fraction, n: int, entropy: Entropy) -> Integers:
    """Draw ``n`` times from the discrete Laplace distribution: ``Pr[k]`` proportional to ``exp(-abs(k) / scale)``.

    >>> draw_discrete_laplace(Fraction(1, 10**6), 3, Entropy()).tolist()
    [0, 0, 0]
    """
    if scale <= 0:
        raise ValueError("scale must be positive")
    rate = 1 / scale
    if rate >= SLOWEST:
        # Pr[|K| >= k] = 2 exp(-k * rate) / (1 + exp(-rate)) for k >= 1: one inversion, and a fair sign
        size, sign = _inverted_exponential(rate, True, n, entropy)
        np.negative(size, out=size, where=sign)
        return size
    out = _draw_slow_geometric(rate, n, entropy)
    sign = (entropy.words(n) & np.uint64(1)).astype(np.bool_)
    again = np.flatnonzero(sign & (out == 0))  # else zero would have both signs, and twice its probability
    np.negative(out, out=out, where=sign)
    if len(again):
        fresh = draw_discrete_laplace(scale, len(again), entropy)
        out = out.astype(object) if fresh.dtype == object else out
        out[again] = fresh
    return out


def _inverted_exponential(
    rate: Fraction, two_sided: bool, n: int, entropy: Entropy
) -> tuple[Integers, NDArray[np.bool_]]:
    """Draw ``floor((c - ln U) / rate)``: c is 0, or ln(2 / (1 + exp(-rate))) for a two-sided variable's size."""
    scale = float(1 / min(rate, Fraction(FASTEST)))
    offset = math.log(2 / (1 + math.exp(-1 / scale))) if two_sided else 0.0

    def estimate(u: Floats) -> tuple[Floats, Floats]:
        x = np.log(u)
        np.subtract(offset, x, out=x)
        x *= scale
        band = (ABSOLUTE * scale) / u
        band += x * RELATIVE
        return x, band

    def exact(u: Interval, bits: int) -> tuple[int, int]:
        bits += max(0, math.ceil(1 / rate).bit_length()) + 16
        x = ia.subtract((ia.dyadic(0, 0),) * 2, ia.log(u, bits), bits)
        if two_sided:
            one, two = (ia.dyadic(1, 0),) * 2, (ia.dyadic(2, 0),) * 2
            decay = ia.exp(ia.rational(-min(rate, Fraction(FASTEST)), bits), bits)
            if rate > FASTEST:
                decay = ia.dyadic(0, 0), decay[1]
            x = ia.add(x, ia.log(ia.divide(two, ia.add(one, decay, bits), bits), bits), bits)
        x = ia.divide(x, ia.rational(rate, bits), bits)
        return max(0, ia.floor(x[0])), max(0, ia.floor(x[1]))

    return draw_floor(n, entropy, estimate, exact)


def _draw_slow_geometric(rate: Fraction, n: int, entropy: Entropy) -> Integers:
    """Draw a slow geometric variable as ``high * 2**shift + low``: two independent digits.

    The high digit is geometric with a rate near 2**-10; the low one is uniform, accepted with a probability
    of exp(-low * rate), which is nearly 1.
    """
    shift = max(0, math.ceil(1 / rate).bit_length() - 10)
    high = draw_geometric(rate * (1 << shift), n, entropy)
    low = _draw_low_digits(1 << shift, n, entropy, lambda low, _: draw_bernoulli_exp(low, rate, entropy))
    fits = low.dtype == high.dtype == np.int64 and int(high.max(initial=0)) + 1 < INT64 >> shift
    out: Integers = high << shift if fits else high.astype(object) * (1 << shift)
    out = out + low
    return out


# -- discrete Laplace noise that is removed step by step


def enclose_stay(fine: Fraction, coarse: Fraction, bits: int) -> ia.Interval:
    """Enclose the probability that nothing is added between two scales, ``fine < coarse``."""
    one, small, large = ia.rational(Fraction(1), 64), _exp(-1 / fine, bits), _exp(-1 / coarse, bits)
    ratio = ia.divide(ia.subtract(one, large, bits), ia.subtract(one, small, bits), bits)
    return ia.multiply(_exp(1 / coarse - 1 / fine, bits), ia.multiply(ratio, ratio, bits), bits)


def _exp(x: Fraction, bits: int) -> ia.Interval:
    return ia.exp(ia.rational(x, bits), bits)


class Added(NamedTuple):
    """Integers that are added to some of the noises, and their places."""

    places: NDArray[np.intp]
    values: Integers


def draw_added(fine: Fraction, coarse: Fraction, n: int, entropy: Entropy) -> Added:
    """Draw ``n`` increments that turn discrete Laplace noise of scale ``fine`` into noise of scale ``coarse``, exactly.

    A uniform real is compared with the probability to stay: 64 bits decide all but about one draw in 10^15; the others get
    more bits.
    """
    if not 0 < fine <= coarse:
        raise ValueError("noise is made coarser: the scales must be in order")
    if fine == coarse:
        return Added(np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.int64))
    low, high = _find_stay_thresholds(fine, coarse)
    words = entropy.words(n)
    stays = words < np.uint64(min(low, (1 << 64) - 1))
    for i in np.flatnonzero(~stays & (words <= np.uint64(min(high, (1 << 64) - 1)))):
        enclose = partial(_enclose_stay, fine, coarse)
        stays[i] = Uniform(int(words[i]), 64, entropy).is_below(enclose)
    places = np.flatnonzero(~stays)
    return Added(places, draw_discrete_laplace(coarse, len(places), entropy))


@lru_cache(maxsize=4096)
def _find_stay_thresholds(fine: Fraction, coarse: Fraction) -> tuple[int, int]:
    """Return the integers below and above which 64 bits of a uniform real decide."""
    low, high = _enclose_stay(fine, coarse, 64)
    return ia.floor(ia.shift(low, 64)), ia.floor(ia.shift(high, 64))


def _enclose_stay(fine: Fraction, coarse: Fraction, bits: int) -> ia.Interval:
    # 1 - exp(-1 / scale) loses as many leading bits as the scale has
    return enclose_stay(fine, coarse, 96 + 4 * max(0, int(coarse).bit_length()) + bits)


class NoiseChain:
    """Discrete Laplace noise of ``n`` numbers that is removed step by step, so that only the last step costs.

    The noises have falling ``scales``, each is the next plus something independent, and ``noise`` is the current one: the
    finest is drawn first, and further noise added. Each shown answer is the next one plus independent noise, so all together
    reveal no more than the last (after Koufogiannis, Han and Pappas 2015; here on integers).

    With ``p = exp(-1 / fine)`` and ``q = exp(-1 / coarse)`` the generating functions of the two noises are
    ``(1 - p)^2 / ((1 - p z)(1 - p / z))`` and this expression in q. Their quotient is
    ``s + (1 - s) (1 - q)^2 / ((1 - q z)(1 - q / z))`` with ``s = (p / q) ((1 - q) / (1 - p))^2``: the added noise is 0 with
    probability s, else noise of the coarse scale.
    """

    def __init__(self, scales: Sequence[Fraction], n: int, entropy: Entropy) -> None:
        if not scales or any(a <= b for a, b in itertools.pairwise(scales)):
            raise ValueError("a chain of noise has falling scales")
        self.noise: Integers = draw_discrete_laplace(scales[-1], n, entropy)
        self._added = [draw_added(b, a, n, entropy) for a, b in itertools.pairwise(scales)]
        for added in reversed(self._added):
            self._add(added, 1)

    def step(self) -> None:
        """Go on to the next scale: remove the noise that was added last."""
        self._add(self._added.pop(0), -1)

    def _add(self, added: Added, sign: int) -> None:
        whole = np.zeros(len(self.noise), dtype=added.values.dtype)
        whole[added.places] = added.values
        self.noise = np.asarray(add_integers(self.noise, whole if sign > 0 else -whole))


IntegerArray = NDArray[np.int64]

_TICKET_BITS = 63
_FEW_GROUPS = 8
"""Greatest number of groups that are drawn one by one; for more, a unit's groups are shuffled."""
_WORD = 1 << 32
_RUN_BLOCK = 1 << 16


def find_runs(ordered: IntegerArray, shift: int = 0) -> IntegerArray:
    """Return the start of each run of integers that are equal except for their ``shift`` lowest bits."""
    if not len(ordered):
        return np.empty(0, dtype=np.int64)
    change = np.empty(len(ordered), dtype=bool)
    change[0] = True
    for start in range(
        0, len(ordered) - 1, _RUN_BLOCK
    ):  # blocks within a core's cache are shifted at no cost
        part = ordered[start : start + _RUN_BLOCK + 1]
        part = part >> shift if shift else part
        np.not_equal(part[1:], part[:-1], out=change[start + 1 : start + len(part)])
    return np.flatnonzero(change)


def choose_groups(units: IntegerArray, groups: int, entropy: Entropy) -> NDArray[np.bool_] | None:
    """Choose at most ``groups`` groups of each unit (``units`` is sorted), uniformly and independently; None keeps all."""
    starts = find_runs(units)
    sizes = np.diff(starts, append=len(units))
    many = np.flatnonzero(sizes > groups)
    if not len(many):
        return None
    kept = np.repeat(sizes <= groups, sizes)
    first, counts = starts.take(many), sizes.take(many)
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
    """Return the number of rows of each unit and group that count, at most ``budget`` of a unit; None if all do.

    A unit's groups are filled one after another, in an order that is uniform and independent of other units. ``units`` is
    sorted, one entry per unit and group; ``rows`` and ``budget`` are at least 1.
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

    Each array has one number per count. The last of ``i + 1`` candidates replaces a number that is already taken.
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

    The number of bits of a ticket depends on the number of entries, so further bits must decide between equal tickets: if
    their places did, one more unit could shorten every ticket and so change the choice of other units.
    """
    n = len(owner)
    place, who = (n - 1).bit_length(), int(owner[-1]).bit_length()
    chance = min(32, _TICKET_BITS - place - who)
    words = entropy.words((n + 1) // 2).view(np.uint32)[:n].astype(np.int64)
    if chance < 16:  # too many for one word each: slower, with an equal distribution
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
