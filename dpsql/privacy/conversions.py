"""Costs of one mechanism in each currency, rounded up, and conversions of zCDP to (epsilon, delta) and back.

Why the divergence at order one (the KL divergence) is the zCDP constant of a symmetric mechanism on a lattice: write K(t)
for the log of the moment generating function of the loss. Symmetry makes ``h(s) = K(s - 1/2)`` even with ``h(1/2) = 0``. If
all zeros of ``exp(h)`` are imaginary, ``exp(h(s))`` is a product of ``1 + s^2/b^2``, so h is concave in ``s^2``, stays below
its tangent at ``s = 1/2``, and ``D_alpha <= alpha * KL`` follows. For the discrete Laplace noise the zeros are those of
``z^n (A z - B) = A - B z`` with ``A > B > 0``: the quotient of both sides is a finite Blaschke product, which has modulus one
on the unit circle only. Sums of independent losses multiply the products, so for them the constants *add up exactly*: no
joint bound of this kind is better.

Why a mu is read off one point: a piecewise linear trade-off function is above the convex G_mu if its corners are. The
corners of the discrete Laplace noise satisfy ``alpha * beta = c^2``, and ``log Phi`` is concave, so ``alpha * G_mu(alpha) <=
Phi(-mu/2)^2`` everywhere: ``Phi(-mu/2) = c`` is enough (and needed when the sensitivity is one step, as for randomised
response).

The conversion of zCDP is that of Canonne, Kamath and Steinke (2020): rho-zCDP implies, at every alpha > 1,

    epsilon = rho * alpha + ln(1 - 1/alpha) - ln(delta * alpha) / (alpha - 1).

*Every* alpha gives a true statement. So floats search for a good alpha, and the result at that alpha is computed as an exact
fraction, with far more digits than are kept, and rounded to the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache, lru_cache, wraps
from statistics import NormalDist
from typing import ParamSpec, TypeVar

from dpsql.numerics.exact_numbers import DIGITS, EXACT, GRID, compute_root, round_down, round_up, to_decimal

_P = ParamSpec("_P")
_R = TypeVar("_R")

_PI = Decimal(
    "3.141592653589793238462643383279502884197169399375105820974944592307816406286208998628034825342117"
    "06798214808651328230664709384460955058223172535940812848111745028410270193852110555964462294895493"
    "03819644288109756659334461284756482337867831652712"
)
_FAR = 12
"""From here on a continued fraction gives a tail, below it a series."""


def _exactly(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Evaluate a function with :data:`DIGITS` digits, whatever the caller's decimal context is."""

    @wraps(function)
    def evaluate(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with localcontext(EXACT):
            return function(*args, **kwargs)

    return evaluate


@lru_cache(maxsize=4096)
@_exactly
def laplace_rho(epsilon: Fraction, sensitivity: int = 1) -> Fraction:
    """Return the zCDP constant of discrete Laplace noise of scale ``sensitivity / epsilon`` grid steps.

    Between ``epsilon + exp(-epsilon) - 1`` (a fine grid) and ``epsilon * tanh(epsilon / 2)`` (one step). The latter is the
    smallest rho that every epsilon-DP mechanism has.

    >>> float(laplace_rho(Fraction(1, 10)))
    0.004995837495787997
    """
    if epsilon == 0:
        return Fraction(0)
    e, step = to_decimal(epsilon), to_decimal(epsilon / sensitivity)
    lost = step * (1 - (-e).exp()) / ((step.exp() - (-step).exp()) / 2)
    return round_up(e - lost)


@lru_cache(maxsize=4096)
@_exactly
def bounded_range_rho(epsilon: Fraction) -> Fraction:
    """Return the zCDP constant of an epsilon-bounded-range mechanism: below ``epsilon**2 / 8`` (Dong, Durfee, Rogers 2020)."""
    if epsilon == 0:
        return Fraction(0)
    e = to_decimal(epsilon)
    ratio = e / (e.exp() - 1)
    return min(round_up(ratio - 1 - ratio.ln()), round_up(epsilon * epsilon / 8))


@lru_cache(maxsize=4096)
@_exactly
def pure_renyi(epsilon: Fraction, order: Fraction) -> Fraction:
    """Return the largest Renyi divergence of one order (above 1) that an epsilon-DP mechanism can have.

    That of randomised response: ``ln((e^(a e) + e^((1 - a) e)) / (1 + e^e)) / (a - 1)``.

    Written as epsilon less a positive term, so that nothing overflows and little cancels.

    >>> round(float(pure_renyi(Fraction(1, 10), Fraction("5.8575"))), 12)
    0.027973794914
    """
    if epsilon == 0:
        return Fraction(0)
    near = (1 + (-to_decimal(epsilon)).exp()).ln()
    far = (1 + (-to_decimal((2 * order - 1) * epsilon)).exp()).ln()
    return min(epsilon, round_up(to_decimal(epsilon) - (near - far) / to_decimal(order - 1)))


@lru_cache(maxsize=4096)
@_exactly
def laplace_mu(epsilon: Fraction, sensitivity: int = 1) -> Fraction:
    """Return a mu for discrete Laplace noise, from its corners' constant product: see the head of this module.

    With one step it is the smallest mu that every epsilon-DP mechanism has: ``-2 Phi^-1(1 / (1 + e^epsilon))``.

    >>> round(float(laplace_mu(Fraction(1, 10))), 12)
    0.125309012212
    """
    if epsilon == 0:
        return Fraction(0)
    step = to_decimal(epsilon / sensitivity)
    shift = to_decimal(epsilon * (sensitivity + 1) / sensitivity / 2)
    return _mu_from_corner((-shift).exp() / (1 + (-step).exp()))


@_exactly
def _mu_from_corner(corner: Decimal) -> Fraction:
    """Return ``-2 Phi^-1(corner)``, rounded up; the result is checked."""
    if corner < Decimal("1e-200"):  # Phi(-x) <= exp(-x^2/2) / 2, so this x is enough
        return round_up(2 * (-2 * (2 * corner).ln()).sqrt())
    half = Decimal(-NormalDist().inv_cdf(float(corner)))
    for _ in range(4):  # Newton's method on log Phi, quadratic from sixteen digits
        tail = normal_tail(half)
        half += (tail / corner).ln() / (_density(half) / tail)
    mu = round_up(2 * half)
    while normal_tail(to_decimal(mu / 2)) > corner:  # pragma: no cover - a last doubt
        mu += Fraction(1, GRID)
    return mu


@_exactly
def _density(x: Decimal) -> Decimal:
    return (x * x / -2).exp() / (2 * _PI).sqrt()


@lru_cache(maxsize=4096)
def normal_tail(x: Decimal) -> Decimal:
    """Return ``Phi(-x)`` to :data:`DIGITS` significant digits; 0 above a billion, where no exponent is small enough.

    Near 0 it is ``1/2 - phi(x) (x + x^3/3 + x^5/(3 * 5) + ...)``, whose terms are positive, so that only the last difference
    cancels; far from 0 ``phi(x) / (x + 1/(x + 2/(x + 3/ ...)))`` (Abramowitz and Stegun, 26.2.11 and 26.2.14). mpmath has
    it, too, but its import takes a twentieth of the time to a session's first answer.
    """
    if x > 10**9:
        return Decimal(0)
    with localcontext(EXACT, prec=2 * DIGITS + 20) as context:
        z, square, exponent = abs(x), x * x, x * x / -2  # exactly, so that the exponential has all digits
        near = z < _FAR
        context.prec = DIGITS + 15 + (int(square / 4) if near else 0)  # the last difference cancels some
        density = exponent.exp() / (2 * _PI).sqrt()
        if near:
            bits = 10 * context.prec // 3
            factor, term, odd = int(square * 2**bits), int(z * 2**bits), 1
            total = term
            while term:
                odd += 2
                term = (term * factor >> bits) // odd
                total += term
            tail = Decimal("0.5") - density * total / 2**bits
        else:
            below = z
            for level in range(60 + int(50_000 / square), 0, -1):
                below = z + level / below
            tail = density / below
        tail = tail if x >= 0 else 1 - tail
    return EXACT.plus(tail)


@lru_cache(maxsize=4096)
def gaussian_delta(mu: Fraction, epsilon: Fraction) -> Fraction:
    """Return the delta of a mu-GDP mechanism at ``epsilon``, rounded up (Balle-Wang 2018; Dong-Roth-Su 2022).

    >>> float(gaussian_delta(Fraction(1), Fraction(1)))
    0.12693673750664394
    """
    return round_up(gaussian_delta_digits(mu, epsilon))


@_exactly
def gaussian_delta_digits(mu: Fraction, epsilon: Fraction) -> Decimal:
    """Return this delta with many digits and without rounding up, for display."""
    if mu == 0:
        return Decimal(0) if epsilon >= 0 else 1 - to_decimal(epsilon).exp()
    near = normal_tail(to_decimal(epsilon / mu - mu / 2))
    return near - to_decimal(epsilon).exp() * normal_tail(to_decimal(epsilon / mu + mu / 2))


@lru_cache(maxsize=512)
def gaussian_mu(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest mu, rounded down, with which mu-GDP gives (epsilon, delta)-DP: analytic calibration.

    >>> round(float(gaussian_mu(Fraction(1), Fraction(1, 10**6))), 12)
    0.236704380663

    Raises:
        ValueError: epsilon is negative, or delta is not strictly between 0 and 1.
    """
    if not 0 < delta < 1 or epsilon < 0:
        raise ValueError("a Gaussian calibration needs epsilon >= 0 and 0 < delta < 1")
    return round_down(_close_in(lambda mu: gaussian_delta(mu, epsilon) <= delta, 22)[0])


def gaussian_sigma(epsilon: Fraction, delta: Fraction, sensitivity_squared: int | Fraction = 1) -> Fraction:
    """Return the smallest sigma, rounded up, that is (epsilon, delta)-DP for this squared L2 sensitivity."""
    return round_up(compute_root(Fraction(sensitivity_squared)) / gaussian_mu(epsilon, delta))


@lru_cache(maxsize=512)
def gaussian_epsilon(mu: Fraction, delta: Fraction) -> Fraction:
    """Return the epsilon of a mu-GDP mechanism at ``delta``, rounded up."""
    if gaussian_delta(mu, Fraction(0)) <= delta:
        return Fraction(0)
    return _close_in(lambda epsilon: gaussian_delta(mu, epsilon) > delta, 18)[1]


def _close_in(holds: Callable[[Fraction], bool], digits: int) -> tuple[Fraction, Fraction]:
    """Return two close numbers: the monotone condition holds for the first and fails for the second."""
    low, high = Fraction(0), Fraction(1)
    while holds(high):
        low, high = high, 2 * high
    while (high - low) * 10**digits > high:
        middle = Fraction(round((low + high) / 2 * GRID), GRID)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


@lru_cache(maxsize=256)
def find_best_order(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the order alpha that allows the most rho, to eight digits of alpha - 1.

    Any order is safe, but a ledger must be folded at one order on every machine. So floats only propose, and exact values decide
    which of the numbers with eight digits is the best.

    >>> round(float(find_best_order(Fraction(1), Fraction(9, 10**7))), 2)
    22.18

    Raises:
        ValueError: delta is not strictly between 0 and 1, or epsilon is not above 0.
    """
    _check(delta)
    if epsilon <= 0:
        raise ValueError("epsilon must be above 0")
    e, log_delta = float(epsilon), float(to_decimal(delta).ln(EXACT))

    def reached(order: float) -> float:
        alpha = 1 + math.exp(order)
        return (e - math.log1p(-1 / alpha) + (log_delta + math.log(alpha)) / (alpha - 1)) / alpha

    guess, exponent = f"{math.exp(_maximum(reached)):.7e}".split("e")
    unit = Fraction(10) ** (int(exponent) - 7)

    @cache
    def exactly(digits: int) -> Decimal:
        return _rho_at(1 + digits * unit, epsilon, delta) if digits > 0 else Decimal("-Infinity")

    best = int(guess.replace(".", ""))
    for step in (1 << k for k in range(20, -1, -1)):
        while exactly(best + step) > exactly(best):
            best += step
        while exactly(best - step) > exactly(best):
            best -= step
    return 1 + best * unit


@lru_cache(maxsize=256)
def find_largest_rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest rho, rounded down, with which rho-zCDP certainly implies (epsilon, delta)-DP.

    A mechanism whose Renyi divergence of order ``find_best_order(epsilon, delta)`` is at most that order times this rho is
    (epsilon, delta)-DP too: the conversion uses one order only.

    >>> round(float(find_largest_rho(Fraction(1), Fraction(1, 10**6))), 8)
    0.02435597

    Raises:
        ValueError: delta is not strictly between 0 and 1, or epsilon is not above 0.
    """
    return max(Fraction(0), round_down(_rho_at(find_best_order(epsilon, delta), epsilon, delta)))


@lru_cache(maxsize=4096)
def find_smallest_epsilon(rho: Fraction, delta: Fraction) -> Fraction:
    """Return the epsilon, rounded up, that rho-zCDP implies at ``delta``.

    >>> float(find_smallest_epsilon(Fraction(1, 20), Fraction(1, 10**6)))
    1.471594750532416

    Raises:
        ValueError: delta is not strictly between 0 and 1, or rho is negative.
    """
    _check(delta)
    if rho < 0:
        raise ValueError("rho can't be negative")
    if rho == 0:
        return Fraction(0)
    r, log_delta = float(rho), float(to_decimal(delta).ln(EXACT))

    def reached(order: float) -> float:
        alpha = 1 + math.exp(order)
        return -(r * alpha + math.log1p(-1 / alpha) - (log_delta + math.log(alpha)) / (alpha - 1))

    alpha = _order(_maximum(reached))
    return max(Fraction(0), round_up(EXACT.add(to_decimal(rho * alpha), _overhead(alpha, delta))))


def _check(delta: Fraction) -> None:
    if not 0 < delta < 1:
        raise ValueError("the conversion needs a delta strictly between 0 and 1")


@_exactly
def _overhead(alpha: Fraction, delta: Fraction) -> Decimal:
    return to_decimal((alpha - 1) / alpha).ln() - to_decimal(delta * alpha).ln() / to_decimal(alpha - 1)


@_exactly
def _rho_at(alpha: Fraction, epsilon: Fraction, delta: Fraction) -> Decimal:
    """Return the rho that the conversion to (epsilon, delta) allows at one order, with all digits, perhaps below 0."""
    return (to_decimal(epsilon) - _overhead(alpha, delta)) / to_decimal(alpha)


@lru_cache(maxsize=4096)
@_exactly
def find_renyi_limit(order: Fraction, epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest Renyi divergence of one order, rounded down, that implies (epsilon, delta)-DP.

    Canonne, Kamath and Steinke 2020, Proposition 12. Below 0 if this order implies nothing for this delta.
    """
    _check(delta)
    return round_down(to_decimal(epsilon) - _overhead(order, delta))


def _order(log_excess: float) -> Fraction:
    return 1 + Fraction(math.exp(log_excess)).limit_denominator(10**12)


def _maximum(f: Callable[[float], float], low: float = -16.0, high: float = 30.0) -> float:
    """Return the maximiser of a unimodal function of log(alpha - 1): a grid, then golden sections."""
    points = [low + (high - low) * i / 184 for i in range(185)]
    best = max(points, key=f)
    a, b = best - 0.25, best + 0.25
    ratio = (math.sqrt(5) - 1) / 2
    c, d = b - ratio * (b - a), a + ratio * (b - a)
    while b - a > 1e-9:
        if f(c) > f(d):
            b, d = d, c
            c = b - ratio * (b - a)
        else:
            a, c = c, d
            d = a + ratio * (b - a)
    return (a + b) / 2
