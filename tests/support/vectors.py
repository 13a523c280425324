"""Numbers that were worked out independently of this code."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath

from dpsql.privacy import conversions


def vectors(name: str) -> Any:
    return json.loads(
        (Path(__file__).parents[1] / "published" / "vectors" / f"vectors_{name}.json").read_text()
    )


def exact(value: float | str) -> Fraction:
    """The decimal that was written, not the float nearest to it."""
    return Fraction(str(value))


def delta_of(rho: Fraction, epsilon: Fraction) -> Fraction:
    """Solve the zCDP conversion for delta, rounded up."""
    r, e = float(rho), float(epsilon)
    if rho == 0:
        return Fraction(0)

    def log_delta(alpha: float) -> float:
        return (alpha - 1) * (alpha * r - e + math.log1p(-1 / alpha)) - math.log(alpha)

    alpha = conversions._order(conversions._maximum(lambda order: -log_delta(1 + math.exp(order))))
    with mpmath.workdps(60):
        a, excess = (mpmath.mpf(x.numerator) / x.denominator for x in (alpha, rho * alpha - epsilon))
        exact = mpmath.exp((a - 1) * (excess + mpmath.log1p(-1 / a))) / a
        return min(Fraction(1), Fraction(str(exact * (1 + mpmath.mpf(10) ** -40))))
