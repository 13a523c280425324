"""Every published number about the exponential mechanism and its kin, worked out again; the accounts are in tests/privacy."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpsql.mechanisms.selection.utilities import (
    SCORE_GRID,
    SCORE_SENSITIVITY,
    compute_generalised_scores,
)
from dpsql.privacy.events import BoundedRange, PureDP
from dpsql.privacy.pld import compute_loss
from tests.support.selection_laws import choice, em, laplace, pf

VECTORS = json.loads((Path(__file__).parents[1] / "published" / "vectors" / "vectors_em.json").read_text())
ACCOUNTS = {"zcdp_constants", "bounded_range_dominating_pair", "composition_eps_at_1e-6"}
"""Used in tests/privacy."""
Law = Callable[[Sequence[float]], list[float]]


def law(name: str, u: Sequence[float], rate: float) -> list[float]:
    """Return the law over the utilities, in doubles: the fractions' code with floats in their place."""
    w = [math.exp(rate * (v - max(u))) for v in u]
    return [float(p) for p in (em if name == "em" else pf)(w)]  # type: ignore[arg-type]


def test_every_published_key_is_used() -> None:
    tests = Path(__file__).parents[1]
    here = (
        Path(__file__).read_text() + (tests / "mechanisms" / "selection" / "test_exponential.py").read_text()
    )
    accounts = "".join(p.read_text() for p in (tests / "privacy").glob("*.py"))
    for key in VECTORS:
        assert f'VECTORS["{key}"]' in here or (key in ACCOUNTS and f'vectors("em")["{key}"]' in accounts), key


@pytest.mark.parametrize("case", VECTORS["em_pf_vectors"], ids=lambda c: f"{c['u']} {c['eps']}")
def test_how_far_the_two_are_apart_and_from_the_best(case: dict) -> None:
    u, rate = case["u"], case["eps"] / 2 / case["sensitivity"]
    one, other = law("em", u, rate), law("pf", u, rate)
    assert sum(abs(p - q) for p, q in zip(one, other, strict=True)) / 2 == pytest.approx(case["tv_em_pf"])
    behind = [sum(p * (max(u) - v) for p, v in zip(chosen, u, strict=True)) for chosen in (one, other)]
    assert behind == pytest.approx([case["exp_err_em"], case["exp_err_pf"]])
    assert behind[1] <= behind[0]


@pytest.mark.parametrize("case", VECTORS["example_3_6"], ids=lambda c: f"{c['c']} {c['eps']}")
def test_corollary_3_12_of_two_candidates(case: dict) -> None:
    """The worse of two that are c apart is chosen with probability at most 2 exp(-epsilon c / 2)."""
    assert 2 * math.exp(-case["eps"] * case["c"] / 2) == pytest.approx(case["corollary_3_12_bound"])
    assert case["em_exact"] <= case["corollary_3_12_bound"]
    # What EXPLAIN says for this confidence is that bound: the winner is within c.
    op = choice("exponential", Fraction(case["eps"]).limit_denominator(100), candidates=2)
    if case["corollary_3_12_bound"] < 1:
        assert op.behind(1 - case["corollary_3_12_bound"]) == pytest.approx(case["c"])


def test_the_pumpkins() -> None:
    """The monograph says that 3.00 is earned at 1.00; the one who bids 3.01 buys there too."""
    bids = [Fraction(1)] * 3 + [Fraction("3.01")]
    for price, revenue in VECTORS["pumpkin"].items():
        p = Fraction(price)
        assert float(p * sum(bid >= p for bid in bids)) == pytest.approx(revenue)
    assert max(VECTORS["pumpkin"], key=VECTORS["pumpkin"].get) == "1.00"


# -- the largest losses ----------------------------------------------------------------------------------------------


def worst(name: str, size: int, rate: float, moves: Sequence[int]) -> float:
    """The largest absolute log ratio over all utilities from 0 to 8 and all moves of them."""
    most = 0.0
    for u in itertools.product(range(9), repeat=size):
        if list(u) != sorted(u):
            continue
        p = law(name, u, rate)
        for move in itertools.product(moves, repeat=size):
            q = law(name, [a + b for a, b in zip(u, move, strict=True)], rate)
            most = max(most, *(abs(math.log(a / b)) for a, b in zip(p, q, strict=True)))
    return most


@pytest.mark.parametrize("case", VECTORS["tight_loss_search"], ids=lambda c: f"{c['n']}")
def test_published_largest_losses(case: dict) -> None:
    n, full = case["n"], case["eps"]
    general, monotone = (-1, 1), (0, 1)
    assert worst("em", n, full / 2, general) == pytest.approx(case["em_general"], rel=1e-6)
    assert worst("em", n, full / 2, monotone) == pytest.approx(case["em_general_used_on_monotone"], rel=1e-6)
    assert worst("em", n, full, monotone) == pytest.approx(case["em_monotone_param"], rel=1e-6)
    assert worst("pf", n, full / 2, general) == pytest.approx(case["pf_general"])
    assert worst("pf", n, full, monotone) == pytest.approx(case["pf_monotone_param"])
    # The control: the sharper rate on utilities that move both ways, as if the sensitivity were half of what it is.
    twice = worst("em", n, full, general)
    assert twice == pytest.approx(case["em_monotone_param_on_NONmonotone"], rel=1e-6)
    assert twice > 1.9 * full
    assert worst("pf", n, full, general) > 1.9 * full


def test_published_losses_of_many_candidates() -> None:
    """One utility up, all others down: the loss comes as near to epsilon as one likes, and never beyond."""
    for size, published in VECTORS["em_loss_large_n"].items():
        n = int(size)
        up, down = math.exp(0.5), math.exp(-0.5)
        assert math.log(n * up / (up + (n - 1) * down)) == pytest.approx(published)
        assert published < 1


def test_the_compared_maximum_may_not_be_released() -> None:
    """The log density of (winner, its noisy score v), k candidates one step down: k epsilon, far below all of them."""

    def log_below(t: float) -> float:
        return t + math.log(0.5)  # of a Laplace variable's distribution function, at t < 0

    for size, published in VECTORS["noisy_max_value_release_loss_eps1"].items():
        k, v = int(size), -30.0
        losses = [-abs(v - q) + (k - 1) * log_below(v - q) for q in (0.0, 1.0)]
        assert losses[0] - losses[1] == pytest.approx(published) == k
    # The index alone: within epsilon.
    rate, most = 1.0, 0.0
    for u in itertools.product(range(3), repeat=3):
        p = laplace(u, 2 / rate)
        for move in itertools.product((-1, 1), repeat=3):
            q = laplace([a + b for a, b in zip(u, move, strict=True)], 2 / rate)
            most = max(most, *(abs(math.log(a / b)) for a, b in zip(p, q, strict=True)))
    assert most <= rate


def test_published_losses_of_laplace_noisy_max() -> None:
    """Two candidates d apart: the far one wins with probability exp(-d / b) (1 + d / 2b) / 2, for noise of scale b."""

    def lost(scale: float, shift: int, far: int = 4000) -> float:
        def log_tail(d: float) -> float:
            return -d / scale + math.log1p(d / 2 / scale)

        return max(log_tail(d) - log_tail(d + shift) for d in range(far))

    published = VECTORS["rnm_laplace_loss_eps1"]
    for name, scale, shift, allowed in (
        ("monotone_scale1", 1, 1, 1), ("general_scale2", 2, 2, 1), ("general_scale1", 1, 2, 2),
    ):  # fmt: skip
        assert published[name] <= lost(scale, shift) <= allowed
        assert lost(scale, shift) > 0.999 * allowed
    assert published["general_scale1"] > 1.9  # the control: the scale of monotone utilities for any


# -- accounts that only one of the two may have ----------------------------------------------------------------------


def pairs(
    size: int, name: str, rate: float, above: Sequence[float] = range(7)
) -> Iterator[tuple[list[float], list[float]]]:
    for rest in itertools.combinations_with_replacement(above, size - 1):
        u = (0, *rest)
        p = law(name, u, rate)
        for move in itertools.product((-1, 0, 1), repeat=size):
            yield p, law(name, [a + b for a, b in zip(u, move, strict=True)], rate)


@pytest.mark.parametrize("case", VECTORS["pf_zcdp"], ids=lambda c: f"{c['eps']} {c['n']}")
def test_permute_and_flip_costs_more_zcdp(case: dict) -> None:
    """Permute-and-flip's Renyi divergences reach the published rho, two to three times epsilon^2 / 8, within a pure loss's."""
    rho = 0.0
    step = 0.1 if case["n"] == 2 else 0.5 / case["eps"]
    for p, q in pairs(case["n"], "pf", case["eps"] / 2, np.arange(0, 100 if case["n"] == 2 else 14) * step):
        a, b = np.array(p), np.array(q)
        rho = max(rho, float((a * np.log(a / b)).sum()))
        for order in (1.01, 1.5, 2.0, 4.0, 8.0):
            divergence = math.log(float((a**order * b ** (1 - order)).sum())) / (order - 1)
            rho = max(rho, divergence / order)
    epsilon = Fraction(case["eps"])
    assert 0.98 * case["rho"] < rho < 1.05 * case["rho"]  # the published search was on a coarser grid
    assert rho <= float(PureDP(epsilon).rho or 0)
    assert case["ratio_to_em"] == pytest.approx(case["rho"] / (case["eps"] ** 2 / 8))
    assert rho > 1.8 * float(
        BoundedRange(epsilon).rho or 0
    )  # charged as the exponential mechanism is, it would be wrong


def test_the_exponential_mechanism_stays_below_its_profile() -> None:
    violations, beyond = VECTORS["em_vs_dominating_pair_violations"], 0
    for epsilon in (0.5, 1.0, 3.0):
        event = BoundedRange(Fraction(epsilon))
        xs = [x * epsilon for x in (-0.8, -0.3, 0.0, 0.3, 0.9)]
        profile = [compute_loss((event,)).delta(x) for x in xs]
        for size in (2, 3):
            for p, q in pairs(size, "em", epsilon / 2):
                for x, most in zip(xs, profile, strict=True):
                    apart = sum(max(a - math.exp(x) * b, 0.0) for a, b in zip(p, q, strict=True))
                    violations += apart > most + 1e-9
            for p, q in pairs(size, "pf", epsilon / 2):
                beyond += sum(max(a - b, 0.0) for a, b in zip(p, q, strict=True)) > profile[2] + 1e-9
    assert violations == 0
    assert beyond > 0  # the control: permute-and-flip does not


def test_theorem_3_11_and_corollary_3_12() -> None:
    """Exact probabilities on random utilities: never further behind than is said, and half as far would be too little."""
    violations, dice = VECTORS["theorem_3_11_3_12_violations"], np.random.default_rng(4)
    halved = 0
    for _ in range(400):
        n, rate = int(dice.integers(1, 8)), float(dice.choice([0.1, 0.5, 1.5]))
        u = dice.integers(0, int(dice.choice([3, 12])), n).tolist()
        for name in ("em", "pf"):
            p = law(name, u, rate)
            for t in (0.1, 1.0, 3.0):
                for among in (
                    u.count(max(u)),
                    1,
                ):  # the theorem, and the corollary that forgets how many are best
                    behind = (math.log(n / among) + t) / rate
                    missed = sum(a for a, v in zip(p, u, strict=True) if v <= max(u) - behind - 1e-9)
                    violations += missed > math.exp(-t) + 1e-12
                    less = sum(a for a, v in zip(p, u, strict=True) if v <= max(u) - behind / 2)
                    halved += less > math.exp(-t)
    assert violations == 0 < halved


# -- candidates that differ ------------------------------------------------------------------------------------------


def test_published_scores_of_candidates_that_differ() -> None:
    case = VECTORS["gem_vector"]
    u = case["utility"]
    assert law("em", u, case["eps"] / 2 / max(case["sens"])) == pytest.approx(case["naive_em_with_Delta_50"])
    assert case["t"] == pytest.approx(2 / case["eps"] * math.log(len(u) / case["beta"]))
    assert case["prices"] == case["sens"]
    best = case["em_on_scores"][0]
    assert best > 3 * case["naive_em_with_Delta_50"][0]


def test_scores_of_candidates_that_differ_move_by_one() -> None:
    """The published search found 1, up to rounding; without the candidate's own sensitivity below it would be more."""
    assert VECTORS["gem_score_sensitivity_max_observed"] == pytest.approx(1)
    dice, most = np.random.default_rng(3), 0
    for _ in range(300):
        n = int(dice.integers(2, 6))
        d = dice.integers(1, 9, n) * 100
        u = dice.integers(0, 3000, n)
        moved = u + dice.choice([-1, 1], n) * d
        most = max(
            most,
            int(np.abs(compute_generalised_scores(u, d, 9) - compute_generalised_scores(moved, d, 9)).max()),
        )
    assert SCORE_GRID * 0.99 < most <= SCORE_SENSITIVITY


def test_published_pairs_are_the_peeling_law() -> None:
    """Each winner from those that are left, at half of epsilon: published for monotone utilities."""
    case = VECTORS["topk_peeling_vector"]
    u, rate = case["u"], case["eps_per_peel"]
    for pair, published in case["probs"].items():
        first, second = (int(v) for v in pair.strip("()").split(","))
        left = [i for i in range(len(u)) if i != first]
        then = law("em", [u[i] for i in left], rate)[left.index(second)]
        assert law("em", u, rate)[first] * then == pytest.approx(published)


@pytest.mark.parametrize("name", ["em", "pf"])
def test_loss_of_the_best_two_one_by_one(name: str) -> None:
    """Both peels' losses add up: twice that of one, over all neighbours; with one peel's epsilon for both it is too much."""

    def two(u: Sequence[float], rate: float) -> dict[tuple[int, int], float]:
        out = {}
        for first, p in enumerate(law(name, u, rate)):
            left = [i for i in range(len(u)) if i != first]
            for i, q in zip(left, law(name, [u[i] for i in left], rate), strict=True):
                out[first, i] = p * q
        return out

    most = 0.0
    for u in itertools.product(range(0, 7, 2), repeat=3):
        p = two(u, 0.5)
        for move in itertools.product((-1, 1), repeat=3):
            q = two([a + b for a, b in zip(u, move, strict=True)], 0.5)
            most = max(most, *(abs(math.log(p[k] / q[k])) for k in p))
    assert 1.2 < most <= 2 + 1e-9  # one choice at this rate loses 1
