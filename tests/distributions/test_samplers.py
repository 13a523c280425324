"""Every sampler against its exact pmf, and each time a scale that is a tenth off, which must be found out."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import (
    draw_accepted,
    draw_bernoulli,
    draw_bernoulli_exp,
    draw_discrete_laplace,
    draw_geometric,
    draw_rounded_gaussian,
)
from tests.support.goodness import REFUSED, fixed, gaussian_pmf, geometric_pmf, laplace_pmf, p_value

VECTORS = json.loads(
    (Path(__file__).parents[1] / "published" / "vectors" / "vectors_samplers.json").read_text()
)
N = 200_000

Case = tuple[Callable[..., Any], Callable[[Fraction], Callable[[int], float]], Fraction, bool]
CASES: list[Case] = [
    (draw_discrete_laplace, laplace_pmf, Fraction(7, 2), True),
    (draw_discrete_laplace, laplace_pmf, Fraction(1, 2), True),
    (draw_discrete_laplace, laplace_pmf, Fraction(61, 3), True),
    (draw_geometric, geometric_pmf, Fraction(1, 3), False),
    (draw_geometric, geometric_pmf, Fraction(2), False),
    (draw_rounded_gaussian, gaussian_pmf, Fraction(3, 2), True),
    (draw_rounded_gaussian, gaussian_pmf, Fraction(2, 5), True),
    (draw_rounded_gaussian, gaussian_pmf, Fraction(123, 10), True),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0].__name__}-{c[2]}")
def test_fit(case: Case) -> None:
    draw, pmf, scale, signed = case
    name = f"{draw.__name__} {scale}"
    assert p_value(draw(scale, N, fixed(name)), pmf(scale), signed) > REFUSED
    for wrong in (Fraction(9, 10), Fraction(11, 10)):
        assert p_value(draw(scale * wrong, N, fixed(name)), pmf(scale), signed) < REFUSED, (
            "the control must fail"
        )


@pytest.mark.stochastic
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0].__name__}-{c[2]}")
def test_fit_of_ten_million(case: Case) -> None:
    """Draws of entropy that is new in each run, so held to a thousandth of the level."""
    draw, pmf, scale, signed = case
    assert p_value(draw(scale, 10**7, Entropy()), pmf(scale), signed) > REFUSED / 1000
    wrong = scale * Fraction(101, 100)
    assert p_value(draw(wrong, 10**7, Entropy()), pmf(scale), signed) < REFUSED, "the control must fail"


def _coarse(scale: Fraction, draw: Callable[..., Any], label: str) -> Any:
    """A wide sampler seen through cells of a third of its scale: as good a test as the narrow one."""
    cell = int(scale / 3)
    drawn = draw(scale, N, fixed(label))
    return np.array([(int(v) + cell // 2) // cell for v in drawn], dtype=np.int64)


@pytest.mark.parametrize("scale", [Fraction(3 * 10**9), Fraction(3 << 60)], ids=["int64", "python"])
@pytest.mark.parametrize("draw", [draw_discrete_laplace, draw_rounded_gaussian])
def test_wide_scales_drawn_in_two_digits_fit(draw: Callable[..., Any], scale: Fraction) -> None:
    """Cells of a third of the scale hold what the continuous distribution puts there, to within 1e-9."""

    def pmf(k: int) -> float:
        if draw is draw_rounded_gaussian:
            return gaussian_pmf(Fraction(3))(k)
        q = np.exp(-1 / 3)
        return float(1 - q**0.5) if k == 0 else float((q ** (abs(k) - 0.5) - q ** (abs(k) + 0.5)) / 2)

    label = f"wide {draw.__name__} {scale}"
    assert p_value(_coarse(scale, draw, label), pmf) > REFUSED
    for wrong in (9, 11):
        drawn = draw(scale * wrong / 10, N, fixed(label))
        cell = int(scale / 3)
        coarse = np.array([(int(v) + cell // 2) // cell for v in drawn], dtype=np.int64)
        assert p_value(coarse, pmf) < REFUSED, "the control must fail"


@pytest.mark.parametrize("draw", [draw_discrete_laplace, draw_rounded_gaussian])
def test_low_digits_of_wide_scales_are_uniform(draw: Callable[..., Any]) -> None:
    drawn = draw(Fraction(10**9), N, fixed(f"digits {draw.__name__}"))
    assert p_value(drawn % 16, lambda k: 1 / 16 if 0 <= k < 16 else 0.0, signed=False) > REFUSED
    lost = drawn - drawn % 2  # as if the last bit had been rounded off
    assert p_value(lost % 16, lambda k: 1 / 16 if 0 <= k < 16 else 0.0, signed=False) < REFUSED


@pytest.mark.parametrize(
    ("table", "pmf"),
    [
        (VECTORS["exact_pmfs"]["dlap_7_2"], laplace_pmf(Fraction(7, 2))),
        (VECTORS["rounded_gaussian_pmf_3_2"], gaussian_pmf(Fraction(3, 2))),
    ],
)
def test_our_pmfs_are_the_published_ones(table: dict[str, float], pmf: Callable[[int], float]) -> None:
    for k, p in table.items():
        assert pmf(int(k)) == pytest.approx(p, rel=1e-12)


def test_published_pmfs_fit_and_the_discrete_gaussian_does_not() -> None:
    published = VECTORS["rounded_gaussian_pmf_3_2"]
    discrete = VECTORS["exact_pmfs"]["dgauss_9_4"]
    drawn = draw_rounded_gaussian(Fraction(3, 2), N, fixed("published"))
    assert p_value(drawn, lambda k: published.get(str(abs(k)), 0.0)) > REFUSED
    assert p_value(drawn, lambda k: discrete.get(str(abs(k)), 0.0)) < REFUSED, "another distribution"


def _proportion(hits: int, n: int, p: float) -> float:
    return abs(hits - n * p) / np.sqrt(n * p * (1 - p))


def test_bernoullis() -> None:
    hits = int(draw_bernoulli_exp(np.full(N, 5), Fraction(1, 4), fixed("bernoulli_exp")).sum())
    assert _proportion(hits, N, np.exp(-1.25)) < 5
    assert _proportion(hits, N, np.exp(-1.20)) > 5, "the control must fail"
    mixed = (
        draw_bernoulli_exp(np.tile([0, 1, 50], N), Fraction(1, 10), fixed("mixed")).reshape(-1, 3).sum(axis=0)
    )
    assert mixed[0] == N
    assert _proportion(int(mixed[1]), N, np.exp(-0.1)) < 5
    assert _proportion(int(mixed[2]), N, np.exp(-5)) < 5
    hits = int(draw_bernoulli([Fraction(1, 3)] * N, fixed("bernoulli")).sum())
    assert _proportion(hits, N, 1 / 3) < 5
    assert _proportion(hits, N, 0.35) > 5, "the control must fail"


def test_an_acceptance_whose_band_is_everything_is_left_to_exact_decisions() -> None:
    asked: list[int] = []

    def exact(i: int, _: object) -> bool:
        asked.append(i)
        return i % 2 == 0

    out = draw_accepted(np.full(10, 0.5), np.full(10, 1.0), 10, fixed("band"), exact)
    assert asked == list(range(10))
    assert out.tolist() == [True, False] * 5


def test_signs_are_fair_and_independent_of_size() -> None:
    drawn = draw_discrete_laplace(Fraction(7, 2), N, fixed("signs"))
    for size in (1, 2, 5):
        plus, minus = int((drawn == size).sum()), int((drawn == -size).sum())
        assert _proportion(plus, plus + minus, 0.5) < 5


def test_draws_are_independent() -> None:
    """Correlation of neighbours in the stream, and of streams with themselves shifted by a chunk."""
    drawn = draw_rounded_gaussian(Fraction(20), N, fixed("independent")).astype(float)
    for lag in (1, 2, 1 << 15):
        assert abs(np.corrcoef(drawn[:-lag], drawn[lag:])[0, 1]) * np.sqrt(N - lag) < 5
    assert abs(np.corrcoef(drawn[:-1], drawn[1:] + drawn[:-1] / 20)[0, 1]) * np.sqrt(N) > 5, (
        "the control must fail"
    )
