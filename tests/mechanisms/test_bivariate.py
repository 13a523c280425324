"""Covariance, correlation and regression from moments: numpy's values, and intervals that hold them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms.moments import PAIR_KINDS, Axis, Pair
from dpsql.mechanisms.per_group import LaplaceNoise, Statistic
from tests.support.goodness import fixed

NAMES = ("n", "y", "x", "yx", "yy", "xx")
STEPS, CENTRE_Y, CENTRE_X = Fraction(64), 5, 2


def pair(kind: str, epsilon: Fraction, whole: int = 1) -> Pair:
    reach = {name: whole * (320**2 if len(name) == 2 else 320) for name in NAMES}
    s = {name: Statistic(name, LaplaceNoise(epsilon, reach[name])) for name in NAMES}
    both = kind in ("corr", "regr_r2")
    y = Axis(STEPS, Fraction(CENTRE_Y), (Fraction(0), Fraction(10)), s["y"], s["yy"] if both else None)
    x = Axis(
        STEPS, Fraction(CENTRE_X), (Fraction(-3), Fraction(7)), s["x"],
        None if kind.startswith("covar") else s["xx"],
    )  # fmt: skip
    return Pair("r", kind, s["n"], y, x, s["yx"], whole)


def sample(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.integers(-3 * 64, 7 * 64 + 1, n)
    y = np.clip(300 + x // 2 + random.integers(-100, 100, n), 0, 640)
    return y / 64, x / 64


def moments(y: np.ndarray, x: np.ndarray) -> dict[str, int]:
    dy, dx = ((v - c) * 64 for v, c in ((y, CENTRE_Y), (x, CENTRE_X)))
    sums = (len(y), dy.sum(), dx.sum(), (dy * dx).sum(), (dy * dy).sum(), (dx * dx).sum())
    return dict(zip(NAMES, (int(v) for v in sums), strict=True))


def truth(kind: str, y: np.ndarray, x: np.ndarray) -> float:
    cov = np.cov(y, x, bias=True)
    slope = cov[0, 1] / cov[1, 1]
    r = cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1])
    return float(
        {
            "covar_pop": cov[0, 1], "covar_samp": np.cov(y, x)[0, 1], "corr": r, "regr_r2": r**2,
            "regr_slope": slope, "regr_intercept": y.mean() - slope * x.mean(),
        }[kind]
    )  # fmt: skip


@pytest.mark.parametrize("kind", PAIR_KINDS)
def test_without_noise_they_are_numpys(kind: str) -> None:
    item = pair(kind, Fraction(10**9))
    y, x = sample(400, 1)
    exact = moments(y, x)
    shown = item.show({s: np.array([exact[s.column]]) for s in item.statistics}, 0.95)
    assert shown.value[0].as_py() == pytest.approx(truth(kind, y, x), rel=1e-9)
    assert shown.low[0].as_py() <= truth(kind, y, x) <= shown.high[0].as_py()


@pytest.mark.parametrize("kind", PAIR_KINDS)
@pytest.mark.parametrize(
    ("n", "epsilon", "whole"),
    [(60, Fraction(1), 1), (5000, Fraction(1), 1), (5000, Fraction(20), 1), (5000, Fraction(20), 1 << 20)],
)
def test_intervals_hold_the_exact_value(kind: str, n: int, epsilon: Fraction, whole: int) -> None:
    item = pair(kind, epsilon, whole)
    y, x = sample(n, 2)
    exact, wanted, runs = moments(y, x), truth(kind, y, x), 3000
    entropy = fixed(f"intervals {kind} {n} {epsilon} {whole}")
    noisy = {s: s.noise.add([exact[s.column] * whole] * runs, entropy) for s in item.statistics}
    shown = item.show(noisy, 0.95)
    held = known = 0
    for value, low, high in zip(*(column.to_pylist() for column in shown), strict=True):
        if low is None:
            continue
        known += 1
        assert low <= value <= high
        held += low <= wanted <= high
    if n > 60 or kind not in ("covar_pop", "covar_samp"):  # of 60 rows, noise makes none now and then
        assert known == runs or kind in ("regr_slope", "regr_intercept", "corr", "regr_r2")
    # Where there is no interval nothing was promised: the doubt is over all runs, not over those that show one.
    assert runs - (known - held) >= 0.925 * runs, "fewer than were promised"
    if n == 5000 and epsilon == 20:
        assert known > 0.9 * runs
        narrow = np.array([h - w for h, w in zip(shown.high.to_pylist(), shown.low.to_pylist(), strict=True)])
        assert np.median(narrow) < 0.5 * abs(wanted) + 0.2, "an interval that says nothing"


def test_intervals_of_a_tenth_of_the_noise_are_too_narrow() -> None:
    """The control: the same check fails where the intervals are those of ten times the epsilon."""
    item, boast = pair("covar_pop", Fraction(1)), pair("covar_pop", Fraction(40))
    y, x = sample(5000, 2)
    exact, wanted = moments(y, x), truth("covar_pop", y, x)
    entropy = fixed("too narrow")
    noisy = {
        b: s.noise.add([exact[s.column]] * 300, entropy)
        for s, b in zip(item.statistics, boast.statistics, strict=True)
    }
    shown = boast.show(noisy, 0.95)
    held = sum(
        low <= wanted <= high for low, high in zip(shown.low.to_pylist(), shown.high.to_pylist(), strict=True)
    )
    assert held < 0.8 * 300


def test_a_spread_that_may_be_nothing_is_not_known() -> None:
    item = pair("corr", Fraction(1))
    nothing = {s: np.zeros(1, dtype=np.int64) for s in item.statistics}
    assert item.show(nothing, 0.95).value.to_pylist() == [None]
    slope = pair("regr_slope", Fraction(1))
    exact = moments(*sample(10, 3))
    shown = slope.show({s: np.array([exact[s.column]]) for s in slope.statistics}, 0.95)
    assert shown.value[0].as_py() is not None
    assert shown.low.to_pylist() == [None] == shown.high.to_pylist()


def test_kinds_are_known() -> None:
    with pytest.raises(ValueError, match="kind"):
        pair("spearman", Fraction(1))
