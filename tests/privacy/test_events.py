"""Events cost what was proved, never less, and survive being stored."""

from __future__ import annotations

import decimal
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.numerics.exact_numbers import DIGITS, compute_root, round_down, round_up, shorten, write_number
from dpsql.privacy import conversions
from dpsql.privacy.events import (
    BoundedRange,
    Composed,
    DiscreteLaplace,
    Event,
    GaussianSparseVector,
    GaussianTest,
    GroupSelection,
    JointGaussian,
    NoiseReduction,
    PureDP,
    RenyiSelection,
    RoundedGaussian,
    SparseVector,
    StableQuestions,
    StableTest,
    compose_events,
)
from dpsql.privacy.pld import declare
from tests.support.vectors import exact, vectors

ONE = Fraction(1)
TINY = Fraction(1, 10**7)
ALL: list[Event] = [
    DiscreteLaplace(Fraction(1, 10), 3, 2),
    RoundedGaussian(Fraction(5), 1, ONE, Fraction(1, 10**6)),
    BoundedRange(Fraction(1, 2), 3),
    PureDP(ONE),
    SparseVector(Fraction(1, 3), Fraction(2, 3), 5),
    SparseVector(Fraction(1, 3), Fraction(2, 3), 5, 2),
    SparseVector(Fraction(1, 3), Fraction(2, 3), 5, 2, True),
    StableQuestions(Fraction(1, 3), Fraction(2, 3), 5, None, False, TINY),
    StableQuestions(Fraction(1, 3), Fraction(2, 3), 5, 2, True, TINY),
    GaussianSparseVector(Fraction(20), Fraction(1, 2), 3, Fraction(1, 3), TINY),
    GaussianSparseVector(Fraction(20), Fraction(1, 2), 3, Fraction(1, 3), TINY, 1, True),
    GroupSelection(ONE, TINY, 3),
    StableTest(ONE, TINY),
    GaussianTest(Fraction(7), TINY, ONE),
    NoiseReduction(ONE, Fraction(1, 9)),
    compose_events([PureDP(ONE), StableTest(ONE, TINY)]),
    declare([PureDP(Fraction(1, 10))] * 20, Fraction(1, 10**6)),
    JointGaussian((Fraction(6), Fraction(12)), (1, 4), ONE, Fraction(1, 10**6)),
    RenyiSelection(ONE, TINY, 3, Fraction(20), Fraction(1, 4), TINY / 2, True),
    RenyiSelection(ONE, TINY, 3, Fraction(20), Fraction(1, 4), TINY / 2, False, (Fraction(7, 2),)),
]


@pytest.mark.parametrize("event", ALL, ids=lambda e: e.kind)
def test_an_event_survives_being_stored(event: Event) -> None:
    body = json.loads(json.dumps(event.to_json()))
    assert Event.from_json(body) == event
    assert hash(Event.from_json(body)) == hash(event)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"kind": "free"},
        {"kind": "pure"},
        {"kind": "pure", "epsilon": "1", "note": "x"},
        {"kind": "pure", "epsilon": 1.0},
        {"kind": "pure", "epsilon": "-1"},
        {"kind": "pure", "epsilon": "0"},
        {"kind": "pure", "epsilon": "nan"},
        {"kind": "pure", "epsilon": "1/0"},
        {"kind": "discrete_laplace", "epsilon": "1", "sensitivity": True, "count": 1},
        {
            "kind": "sparse_vector",
            "epsilon1": "1",
            "epsilon2": "1",
            "max_hits": 2,
            "hits": 3,
            "refresh": False,
        },
        {"kind": "composed", "events": []},
        {
            "kind": "rounded_gaussian",
            "sigma": "1",
            "sensitivity_squared": 1,
            "declared_epsilon": "1/10",
            "declared_delta": "1/1000000",
        },
        {
            "kind": "declared_plan",
            "events": [{"kind": "pure", "epsilon": "1"}],
            "declared_epsilon": "1/2",
            "declared_delta": "1/1000000",
        },
    ],
    ids=lambda b: json.dumps(b)[:60],
)
def test_a_spoilt_event_is_refused(spoilt: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Event.from_json(spoilt)


def test_the_kinds_and_fields_are_a_contract() -> None:
    assert [sorted(e.to_json()) for e in ALL[:4]] == [
        ["count", "epsilon", "kind", "sensitivity"],
        ["declared_delta", "declared_epsilon", "kind", "sensitivity_squared", "sigma"],
        ["count", "epsilon", "kind"],
        ["epsilon", "kind"],
    ]
    assert [e.kind for e in ALL] == [
        "discrete_laplace",
        "rounded_gaussian",
        "bounded_range",
        "pure",
        *["sparse_vector"] * 3,
        *["stable_questions"] * 2,
        *["gaussian_sparse_vector"] * 2,
        "group_selection",
        "stable_test",
        "gaussian_test",
        "noise_reduction",
        "composed",
        "declared_plan",
        "joint_gaussian",
        *["renyi_selection"] * 2,
    ]


@pytest.mark.parametrize("row", vectors("em")["zcdp_constants"], ids=lambda r: f"eps={r['eps']}")
def test_zcdp_constants(row: dict[str, float]) -> None:
    epsilon = exact(row["eps"])
    fine = DiscreteLaplace(epsilon, 10**9)
    for event, closed, numeric in (
        (PureDP(epsilon), row["eps_tanh"], row["pureDP_numeric"]),
        (fine, row["laplace_closed"], row["laplace_numeric"]),
        (BoundedRange(epsilon), row["br_KL_closed"], row["bounded_range_numeric"]),
    ):
        assert float(event.rho) == pytest.approx(closed, rel=1e-13 if event is not fine else 1e-9)
        assert float(event.rho) >= numeric
    assert float(BoundedRange(epsilon).rho) <= row["eps2_over_8"]


def test_discrete_laplace_is_charged_with_its_own_constant() -> None:
    table = vectors("pld")
    for row in table["discrete_laplace_rho"]:
        rho = float(DiscreteLaplace(exact(row["eps"]), 1).rho)
        assert rho == pytest.approx(row["KL"], rel=1e-13)
        assert row["rho_numeric"] <= rho <= row["rho_numeric"] * (1 + 5e-5)
    for row in table["discrete_laplace_rho_on_fine_grid"]:
        rho = float(DiscreteLaplace(exact(row["eps"]), row["sensitivity_in_grid_steps"]).rho)
        assert row["rho"] <= rho <= row["rho"] * (1 + 1e-4)


@pytest.mark.parametrize("row", vectors("filters")["gdp_parameter"], ids=lambda r: f"eps={r['eps']}")
def test_gaussian_parameters(row: dict[str, float]) -> None:
    epsilon = exact(row["eps"])
    assert float(PureDP(epsilon).mu) == pytest.approx(row["mu_pure_closed"], rel=1e-13)
    assert float(PureDP(epsilon).mu) == pytest.approx(row["mu_pure_numeric"], rel=1e-11)
    assert float(DiscreteLaplace(epsilon, 10**9).mu) == pytest.approx(row["mu_laplace"], rel=1e-6)
    assert float(BoundedRange(epsilon).mu) == pytest.approx(row["mu_bounded_range"], rel=1e-10)
    for event, name in (
        (PureDP(epsilon), "mu_eq_zcdp_pure"),
        (DiscreteLaplace(epsilon, 10**9), "mu_eq_zcdp_laplace"),
        (BoundedRange(epsilon), "mu_eq_zcdp_br"),
    ):
        assert math.sqrt(2 * event.rho) == pytest.approx(row[name], rel=1e-8)


def _laplace_pmfs(epsilon: float, sensitivity: int) -> tuple[np.ndarray, np.ndarray]:
    k = np.arange(-60 * sensitivity, 61 * sensitivity + 1, dtype=float)
    p = np.exp(-np.abs(k) * epsilon / sensitivity)
    q = np.exp(-np.abs(k - sensitivity) * epsilon / sensitivity)
    return p / p.sum(), q / q.sum()


@pytest.mark.parametrize("sensitivity", [1, 2, 3, 7])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_rho_and_mu_of_discrete_laplace_hold_at_every_order_and_corner(
    epsilon: float, sensitivity: int
) -> None:
    event = DiscreteLaplace(exact(epsilon), sensitivity)
    p, q = _laplace_pmfs(epsilon, sensitivity)
    for alpha in np.concatenate([1 + np.logspace(-5, 2, 60)]):
        divergence = np.log(np.sum(p * np.exp((alpha - 1) * np.log(p / q)))) / (alpha - 1)
        assert divergence <= alpha * float(event.rho) * (1 + 1e-9)
        assert divergence > alpha * float(event.rho) * 0.98 or alpha > 1.01  # control: reached at order one
    order = np.argsort(q / p)[::-1]
    alphas, betas = np.cumsum(p[order]), 1 - np.cumsum(q[order])
    from scipy.stats import norm

    limit = norm.cdf(norm.ppf(1 - np.minimum(alphas, 1)) - float(event.mu))
    assert np.all(betas >= limit - 1e-9)
    smaller = norm.cdf(norm.ppf(1 - np.minimum(alphas, 1)) - 0.97 * float(event.mu))
    assert np.any(betas < smaller - 1e-9) or sensitivity % 2 == 0


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_bounded_range_constants_hold_for_every_two_point_pair(epsilon: float) -> None:
    event = BoundedRange(exact(epsilon))
    worst = 0.0
    for t in np.linspace(epsilon / 2000, epsilon * (1 - 1 / 2000), 999):  # losses t and t - epsilon
        p = -math.expm1(t - epsilon) / -math.expm1(-epsilon)
        losses, masses = np.array([t, t - epsilon]), np.array([p, 1 - p])
        for alpha in (1.0001, 1.01, 1.2, 2.0, 5.0, 30.0):
            divergence = math.log(np.sum(masses * np.exp((alpha - 1) * losses))) / (alpha - 1)
            worst = max(worst, divergence / alpha / float(event.rho))
    assert 0.999 < worst <= 1 + 1e-9
    for x in np.linspace(0, epsilon, 200):  # the profile below that of the Gaussian
        profile = math.expm1((x - epsilon) / 2) ** 2 / -math.expm1(-epsilon)
        assert profile <= float(conversions.gaussian_delta(event.mu, Fraction(float(x)))) * (1 + 1e-12)


def test_a_sparse_vector_is_settled_by_its_path_in_basic_and_by_rounds_where_it_refreshes() -> None:
    whole = SparseVector(Fraction(1, 4), Fraction(3, 4), 3)
    found = SparseVector(Fraction(1, 4), Fraction(3, 4), 3, 1)
    assert (whole.basic[0], found.basic[0]) == (1, Fraction(1, 2))
    assert found.rho == whole.rho == PureDP(ONE).rho
    assert found.mu == whole.mu
    fresh = SparseVector(Fraction(1, 4), Fraction(3, 4), 10, 3, True)
    assert fresh.basic[0] == fresh.pure == Fraction(4, 10)
    assert fresh.rho == 4 * PureDP(Fraction(1, 10)).rho
    assert SparseVector(Fraction(1, 4), Fraction(3, 4), 10, 10, True).basic[0] == 1


def test_a_gaussian_event_checks_the_pair_that_it_declares() -> None:
    epsilon, delta = ONE, Fraction(1, 10**6)
    sigma = conversions.gaussian_sigma(epsilon, delta, 4)
    event = RoundedGaussian(sigma, 4, epsilon, delta)
    assert event.basic == (epsilon, delta)
    assert event.pure is None
    assert float(event.mu) == pytest.approx(2 / float(sigma), rel=1e-15)
    with pytest.raises(ValueError, match="sigma is too small"):
        RoundedGaussian(sigma * Fraction(999_999, 1_000_000), 4, epsilon, delta)


def test_composition_adds_and_opens_nested_ones() -> None:
    inner = compose_events([PureDP(Fraction(1, 10)), BoundedRange(Fraction(1, 5))])
    event = compose_events([inner, StableTest(Fraction(1, 2), TINY)])
    assert isinstance(event, Composed)
    assert len(event.events) == 3
    assert event.basic == (Fraction(4, 5), TINY)
    assert event.pure is None
    assert inner.pure == Fraction(3, 10)
    assert event.rho == sum(e.rho for e in event.events)
    assert abs(event.mu**2 - sum(e.mu**2 for e in event.events)) < Fraction(1, 10**25)
    assert compose_events([PureDP(ONE)]) == PureDP(ONE)
    with pytest.raises(ValueError, match="no event"):
        compose_events([])


def test_sentences_round_up() -> None:
    assert PureDP(Fraction(1, 3)).sentence() == "ε=0.3334"
    assert StableTest(Fraction(1, 10), TINY).sentence() == "ε=0.1, δ=1e-07"


@given(st.fractions(min_value=Fraction(1, 10**6), max_value=30), st.integers(1, 10**6))
def test_constants_are_rounded_up_and_ordered(epsilon: Fraction, sensitivity: int) -> None:
    event = DiscreteLaplace(epsilon, sensitivity)
    e = float(epsilon)
    assert e - 1 + math.exp(-e) - 1e-12 <= float(event.rho)
    assert event.rho <= PureDP(epsilon).rho <= epsilon * epsilon / 2
    assert BoundedRange(epsilon).rho <= epsilon * epsilon / 8 + Fraction(1, 10**29)
    assert event.mu <= PureDP(epsilon).mu + Fraction(1, 10**29)
    assert event.rho.denominator <= 10**30


@given(st.fractions(min_value=0, max_value=100))
def test_rounding_goes_the_safe_way(value: Fraction) -> None:
    assert round_down(value) <= value <= round_up(value) <= value + Fraction(1, 10**30)
    assert compute_root(value) ** 2 >= value
    assert shorten(value) >= value
    assert Fraction(write_number(value)) >= value >= Fraction(write_number(value, up=False))


def test_normal_tails_against_another_implementation() -> None:
    import mpmath

    near, far = (
        ("-11.99", "-3", "0", "0.001", "0.5", "3", "8", "11.99"),
        ("-40", "-12.01", "12", "15.01", "40", "1e6"),
    )
    with mpmath.workdps(150):
        for x in (*near, *far):
            ours = mpmath.mpf(str(conversions.normal_tail(decimal.Decimal(x))))
            theirs = mpmath.erfc(mpmath.mpf(x) / mpmath.sqrt(2)) / 2
            assert abs(ours / theirs - 1) < mpmath.mpf(10) ** (1 - DIGITS)


@pytest.mark.parametrize("digits", [3, 28])
def test_constants_do_not_depend_on_the_decimal_context_of_the_caller(digits: int) -> None:
    """A negation of a Decimal outside the exact context rounds to the digits of the caller's own."""

    def constants() -> list[object]:
        epsilon, order = Fraction(1, 3), Fraction(117, 7)
        return [
            conversions.laplace_rho.__wrapped__(epsilon, 7),
            conversions.bounded_range_rho.__wrapped__(epsilon),
            conversions.pure_renyi.__wrapped__(epsilon, order),
            conversions.laplace_mu.__wrapped__(epsilon, 7),
            conversions.normal_tail.__wrapped__(decimal.Decimal("-1.2345678901234567890123456789012345")),
        ]

    with decimal.localcontext(prec=200):
        expected = constants()
    with decimal.localcontext(prec=digits):
        assert constants() == expected
