"""The loss of a declared plan: against other software, against closed forms, and never below the truth."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from dpsql.privacy import conversions, pld
from dpsql.privacy.conversions import gaussian_sigma
from dpsql.privacy.events import (
    BoundedRange,
    DiscreteLaplace,
    Event,
    GaussianTest,
    GroupSelection,
    JointGaussian,
    PureDP,
    RoundedGaussian,
    SparseVector,
    StableTest,
    compose_events,
)
from dpsql.privacy.pld import FINE_POINTS, POINTS, DeclaredPlan, compute_loss, declare, find_cost, make_loss
from dpsql.privacy.tradeoff import compose as curves
from dpsql.privacy.tradeoff import from_epsilon_delta, gaussian
from tests.support.vectors import exact, vectors

TINY = Fraction(1, 10**6)
PLD = vectors("pld")


def at(events: list[Event], delta: float) -> float:
    return compute_loss(events, points=FINE_POINTS).epsilon(delta)


@pytest.mark.parametrize("row", PLD["profile_vs_library"], ids=lambda r: f"{r['eps']}x{r['k']}")
def test_compositions_agree_with_the_numbers_of_other_software(row: dict[str, float]) -> None:
    epsilon, k = exact(row["eps"]), row["k"]
    delta = 1e-5
    assert at([PureDP(epsilon)] * k, delta) == pytest.approx(row["pure_lib"], rel=1e-8)
    assert at([PureDP(epsilon)] * k, delta) == pytest.approx(row["pure_profile"], rel=1e-8)
    assert at([DiscreteLaplace(epsilon, 10**9)] * k, delta) == pytest.approx(row["laplace_lib"], rel=1e-6)
    assert at([DiscreteLaplace(epsilon, 10**9)] * k, delta) == pytest.approx(row["laplace_profile"], rel=1e-6)
    em = at([BoundedRange(epsilon)] * k, delta)
    assert em == pytest.approx(row["em_profile"], rel=1e-6)
    assert em <= row["em_cdf"]


@pytest.mark.parametrize(
    "row", vectors("em")["composition_eps_at_1e-6"], ids=lambda r: f"{r['eps']}x{r['k']}"
)
def test_the_best_account_of_exponential_mechanisms(row: dict[str, float]) -> None:
    epsilon, k, delta = exact(row["eps"]), row["k"], exact(row["delta"])
    ours = at([BoundedRange(epsilon)] * k, float(delta))
    assert ours == pytest.approx(row["pld_bounded_range"], rel=4e-3)
    assert ours <= row["pld_bounded_range"]
    assert at([PureDP(epsilon)] * k, float(delta)) == pytest.approx(row["pld_generic_pure"], rel=1e-6)
    rho = k * epsilon * epsilon / 8
    assert float(conversions.find_smallest_epsilon(rho, delta)) == pytest.approx(
        row["zcdp_eps2_over_8"], rel=2e-5
    )
    best = min(row["pld_bounded_range"], row["zcdp_eps2_over_8"], row["basic"])
    assert float(find_cost([BoundedRange(epsilon)] * k, delta)) <= best


@pytest.mark.parametrize(
    "row", vectors("em")["bounded_range_dominating_pair"], ids=lambda r: f"{r['eps']}-{r['x']:.2f}"
)
def test_profiles_of_one_mechanism(row: dict[str, float]) -> None:
    em, pure = BoundedRange(exact(row["eps"])), PureDP(exact(row["eps"]))
    for event, truth in (
        (em, row["delta_closed"]),
        (em, row["delta_numeric_sup"]),
        (pure, row["pureDP_delta"]),
    ):
        assert compute_loss((event,)).delta(row["x"]) == pytest.approx(truth, rel=1e-6, abs=1e-9)
        assert compute_loss((event,)).delta(row["x"]) >= truth - 1e-12


def hull(y: np.ndarray, h: np.ndarray) -> np.ndarray:
    """The largest convex function below the points."""
    kept: list[int] = []
    for i in range(len(y)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (h[b] - h[a]) * (y[i] - y[a]) <= (h[i] - h[a]) * (y[b] - y[a]):
                break
            kept.pop()
        kept.append(i)
    return np.interp(y, y[kept], h[kept])


@pytest.mark.parametrize("row", PLD["svt_accounting"], ids=lambda r: f"{r['eps1']}-{r['k']}")
def test_sparse_vectors(row: dict[str, float]) -> None:
    e1, e2, k = row["eps1"], row["eps2"], row["k"]
    whole = e1 + e2

    def profile(x: np.ndarray) -> np.ndarray:
        """The convex hull of what the two proofs give: pure, and the threshold's noise moved by the hits' share."""
        threshold = np.where(x >= e2 - e1, -np.expm1((x - whole) / 2), -np.expm1(x - e2))
        both = np.minimum((math.exp(whole) - np.exp(x)) / (1 + math.exp(whole)), threshold)
        flipped = (
            1
            - np.exp(x)
            + np.exp(x)
            * np.minimum(
                (math.exp(whole) - np.exp(-x)) / (1 + math.exp(whole)),
                np.where(-x >= e2 - e1, -np.expm1((-x - whole) / 2), -np.expm1(-x - e2)),
            )
        )
        return hull(np.exp(x), np.maximum(0, np.where(x < 0, flipped, both)))

    ours = make_loss(profile, -whole, whole, whole / 100).times(k).epsilon(1e-6)
    assert ours == pytest.approx(row["pld_svt"], rel=5e-4)
    pure = at([SparseVector(exact(e1), exact(e2), 3)] * k, 1e-6)
    assert pure == pytest.approx(row["pld_pure"], rel=6e-4)
    assert pure <= row["pld_pure"] * (1 + 1e-8)
    assert row["basic"] == pytest.approx(k * whole)

    def renyi(alpha: float) -> float:
        laplace = math.log(
            alpha / (2 * alpha - 1) * math.exp((alpha - 1) * e1)
            + (alpha - 1) / (2 * alpha - 1) * math.exp(-alpha * e1)
        ) / (alpha - 1)
        response = alpha * whole * math.tanh(whole / 2)
        return min(laplace + e2, response)

    found = min(
        k * renyi(a) + math.log1p(-1 / a) - math.log(1e-6 * a) / (a - 1)
        for a in 1 + np.logspace(-2, 2.5, 4000)
    )
    assert min(found, k * whole) == pytest.approx(row["rdp_svt"], rel=1e-3)
    assert ours <= found


@pytest.mark.parametrize("row", PLD["adist_accounting"], ids=lambda r: f"{r['eps']}-{r['k']}")
def test_stable_answers(row: dict[str, float]) -> None:
    e, d, k = row["eps"], row["delta_each"], row["k"]

    def profile(x: np.ndarray) -> np.ndarray:
        near = np.maximum(0, -np.expm1((np.abs(x) - e) / 2))
        return np.maximum(d, np.where(x < 0, 1 - np.exp(x) + np.exp(x) * near, near))

    assert make_loss(profile, -e, e, e / 1000).times(k).epsilon(1e-6) == pytest.approx(
        row["eps_profile"], rel=1e-5
    )
    generic = at([StableTest(exact(e), exact(d))] * k, 1e-6)
    assert generic == pytest.approx(row["eps_generic_eps_delta"], rel=1e-6)
    assert row["basic"] == [pytest.approx(k * e), pytest.approx(k * d)]


def test_a_plan_of_a_hundred_laplace_statements_costs_no_more_than_elsewhere() -> None:
    """The bound of ours includes all rounding, the other's does not: one part in a million is allowed for that."""
    accounting = pytest.importorskip("dp_accounting")
    for epsilon, sensitivity in (("0.1", 1), ("0.1", 2), ("0.1", 1000), ("0.25", 8)):
        plan = [DiscreteLaplace(Fraction(epsilon), sensitivity)] * 100
        rho = sum((event.rho for event in plan), Fraction(0))
        others = [float(conversions.find_smallest_epsilon(rho, TINY))]
        noise = float(epsilon) / sensitivity
        elsewhere = accounting.pld.PLDAccountant()
        elsewhere.compose(accounting.dp_event.DiscreteLaplaceDpEvent(noise, sensitivity), 100)
        others.append(elsewhere.get_epsilon(1e-6))
        assert float(find_cost(plan, TINY)) <= min(others) * (1 + 1e-6)
        # the control: it is not wishful either
        assert float(find_cost(plan, TINY)) >= min(others) * (1 - 1e-4)


def _true_delta(makers: list[tuple[Callable[[], list[tuple[float, float]]], int]], epsilon: float) -> float:
    atoms = {0.0: 1.0}
    for maker, count in makers:
        for _ in range(count):
            joint: dict[float, float] = {}
            for x, p in atoms.items():
                for y, q in maker():
                    joint[round(x + y, 9)] = joint.get(round(x + y, 9), 0.0) + p * q
            atoms = joint
    return math.fsum(p * -math.expm1(epsilon - x) for x, p in atoms.items() if x > epsilon)


def _laplace_atoms(epsilon: float, sensitivity: int) -> list[tuple[float, float]]:
    r = math.exp(-epsilon / sensitivity)
    inner = [
        (epsilon * (sensitivity - 2 * k) / sensitivity, (1 - r) / (1 + r) * r**k)
        for k in range(1, sensitivity)
    ]
    return [(epsilon, 1 / (1 + r)), *inner, (-epsilon, math.exp(-epsilon) / (1 + r))]


@pytest.mark.parametrize("step", [0.013, 0.1, 0.0031])
def test_the_bound_is_never_below_the_truth_and_near_it(step: float) -> None:
    events = [DiscreteLaplace(Fraction("0.3"), 3)] * 4 + [DiscreteLaplace(Fraction("0.5"), 1)] * 2
    makers = [(lambda: _laplace_atoms(0.3, 3), 4), (lambda: _laplace_atoms(0.5, 1), 2)]
    loss = compute_loss(events, step=step)
    for epsilon in (-1.0, -0.2, 0.0, 0.17, 0.9, 1.7, 2.15):
        truth = (
            _true_delta(makers, epsilon)
            if epsilon >= 0
            else 1 - math.exp(epsilon) + math.exp(epsilon) * _true_delta(makers, -epsilon)
        )
        assert truth <= loss.delta(epsilon) <= truth + 30 * step * step + 1e-9
    assert loss.delta(2.21 + step * 6) == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    ("epsilon", "sensitivity", "step"),
    [
        (0.3, 4 * POINTS, 0.013),
        (2.0, 4 * POINTS + 1, 0.1),
        (0.25 + 1e-9, 4 * POINTS + 7, 0.25 / 64),
        (0.3, 4 * POINTS, 3e-5 / 8),  # of the cells, some have one atom and some have none
    ],
)
def test_losses_too_many_for_an_atom_each_are_added_up_by_cells(
    monkeypatch: pytest.MonkeyPatch, epsilon: float, sensitivity: int, step: float
) -> None:
    """The masses are those of the atoms themselves, which sum to one under both distributions."""
    by_cells = pld._laplace(epsilon, sensitivity, step)
    monkeypatch.setattr(pld, "POINTS", sensitivity)
    by_atoms = pld._laplace(epsilon, sensitivity, step)
    assert (by_cells.low, by_cells.infinite, by_cells.step) == (by_atoms.low, 0.0, step)
    np.testing.assert_allclose(by_cells.masses, by_atoms.masses, rtol=1e-8, atol=1e-12)
    losses = (by_cells.low + np.arange(len(by_cells.masses))) * step
    assert by_cells.masses.sum() == pytest.approx(1, abs=1e-11)
    assert (by_cells.masses * np.exp(-losses)).sum() == pytest.approx(1, abs=1e-10)
    assert by_cells.slack < 1e-11


def test_gaussians_are_joined_exactly_and_deltas_are_added() -> None:
    delta = Fraction(1, 10**5)
    sigma = gaussian_sigma(Fraction(1, 2), delta)
    noise = RoundedGaussian(sigma, 1, Fraction(1, 2), delta)
    mu = math.sqrt(10) * float(noise.mu)
    for x in (0.0, 0.5, 2.0, 3.0, 4.0):
        truth = gaussian(mu).delta(x)
        assert truth <= compute_loss([noise] * 10, points=FINE_POINTS).delta(x) <= truth * (1 + 1e-3)
    test = GaussianTest(sigma, delta, Fraction(1, 2))
    joint = JointGaussian((sigma,) * 10, (1,) * 10, Fraction(4), delta)
    assert compute_loss([joint]).delta(1.0) == pytest.approx(compute_loss([noise] * 10).delta(1.0), rel=1e-9)
    both = compute_loss([noise] * 9 + [test], points=FINE_POINTS)
    assert both.delta(1.0) == pytest.approx(gaussian(mu).delta(1.0) + float(delta), rel=1e-4)


def test_group_selection_composes_per_key() -> None:
    event = GroupSelection(Fraction(1), Fraction(1, 10**6), 4)
    truth = curves([from_epsilon_delta(0.25, 0)] * 4)
    for x in (0.0, 0.3, 0.8):
        assert compute_loss((event,)).delta(x) == pytest.approx(truth.delta(x) + 1e-6, rel=1e-6)


def test_many_different_mechanisms_are_priced_and_below_the_sum() -> None:
    dice = random.Random(5)
    events = [
        DiscreteLaplace(Fraction(dice.randint(1, 100), 1000), dice.choice([1, 2, 5, 10**9]))
        for _ in range(60)
    ]
    loss = compute_loss(events, points=FINE_POINTS)
    total = float(sum(event.epsilon for event in events))
    rho = sum((event.rho for event in events), Fraction(0))
    assert loss.epsilon(1e-6) < min(total, float(conversions.find_smallest_epsilon(rho, TINY)))
    assert abs(float(loss.masses.sum()) + loss.infinite - 1) < 1e-9


def test_a_declaration_is_checked_and_rounded_up() -> None:
    events = [PureDP(Fraction("0.1"))] * 20
    plan = declare(events, TINY)
    assert isinstance(plan, DeclaredPlan)
    assert plan.basic[0] < 2
    assert plan.rho == compose_events(events).rho
    assert plan.sentence().endswith("δ=1e-06")
    smaller = plan.basic[0] * Fraction(999, 1000)
    with pytest.raises(ValueError, match="costs more"):
        DeclaredPlan(tuple(events), smaller, TINY)
    assert compute_loss(events).delta(float(plan.basic[0])) <= 1e-6
    assert declare(events, Fraction(0)).basic == (Fraction(2), 0)
    with pytest.raises(ValueError):
        declare([StableTest(Fraction(1), TINY)], Fraction(0))
    with pytest.raises(ValueError, match="at least one"):
        declare([], TINY)


def test_losses_on_different_grids_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="grids"):
        compute_loss([PureDP(Fraction(1))], step=0.1).with_(compute_loss([PureDP(Fraction(1))], step=0.2))
