"""Trade-off functions: the source's numbers, its traps, and the laws that every curve obeys."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.privacy import conversions, tradeoff
from dpsql.privacy.events import BoundedRange, DiscreteLaplace, PureDP, StableTest
from dpsql.privacy.tradeoff import (
    PiecewiseLinear,
    TradeOff,
    approx_clt_mu,
    between,
    compose,
    from_epsilon_delta,
    from_profile,
    gaussian,
    holds,
    is_tradeoff_function,
    laplace,
)
from tests.support.vectors import exact, vectors

GDP = vectors("gdp")
ALPHAS = [0.0, 1e-6, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0]


def repeated(curve: TradeOff, n: int) -> TradeOff:
    return compose([curve] * n)


@pytest.mark.parametrize("row", GDP["mu_to_delta"], ids=lambda r: f"{r['mu']}-{r['eps']}")
def test_delta_of_gaussian_dp(row: dict[str, str]) -> None:
    curve = gaussian(exact(row["mu"]))
    truth = Fraction(row["delta"])
    digits = conversions.gaussian_delta_digits(exact(row["mu"]), exact(row["eps"]))
    assert abs(Fraction(digits) / truth - 1) < Fraction(1, 10**9)
    assert curve.delta(row["eps"]) == pytest.approx(float(truth), rel=1e-10)
    assert conversions.gaussian_delta(exact(row["mu"]), exact(row["eps"])) >= Fraction(digits)


@pytest.mark.parametrize("row", GDP["mu_to_eps"], ids=lambda r: f"{r['mu']}-{r['delta']}")
def test_epsilon_of_gaussian_dp(row: dict[str, str]) -> None:
    epsilon = conversions.gaussian_epsilon(exact(row["mu"]), exact(row["delta"]))
    assert float(epsilon) == pytest.approx(float(row["eps"]), rel=1e-13)
    assert conversions.gaussian_delta(exact(row["mu"]), epsilon) <= exact(row["delta"])


@pytest.mark.parametrize("row", GDP["eps_delta_to_mu_and_sigma"], ids=lambda r: f"{r['eps']}-{r['delta']}")
def test_calibration(row: dict[str, float]) -> None:
    epsilon, delta = exact(row["eps"]), exact(row["delta"])
    mu, sigma = conversions.gaussian_mu(epsilon, delta), conversions.gaussian_sigma(epsilon, delta)
    assert float(mu) == pytest.approx(float(row["mu"]), rel=1e-13)
    assert float(sigma) == pytest.approx(row["sigma_analytic"], rel=1e-13)
    assert conversions.gaussian_delta(1 / sigma, epsilon) <= delta
    assert conversions.gaussian_delta(1 / (sigma * (1 - Fraction(1, 10**9))), epsilon) > delta
    classical = math.sqrt(2 * math.log(1.25 / row["delta"])) / row["eps"]
    assert classical == pytest.approx(row["sigma_classical"])
    assert gaussian(1 / classical).delta(row["eps"]) == pytest.approx(
        float(row["delta_of_classical"]), rel=1e-4
    )
    assert conversions.gaussian_sigma(epsilon, delta, 9) == pytest.approx(3 * sigma, rel=1e-12)


@pytest.mark.parametrize("row", GDP["classical_gaussian_first_violation"], ids=lambda r: f"{r['delta']}")
def test_the_textbook_sigma_fails_for_a_large_epsilon(row: dict[str, float]) -> None:
    for epsilon, fails in ((row["first_bad_eps"], True), (row["first_bad_eps"] - 0.05, False)):
        classical = math.sqrt(2 * math.log(1.25 / row["delta"])) / epsilon
        assert (gaussian(1 / classical).delta(epsilon) > row["delta"]) == fails


@pytest.mark.parametrize("row", GDP["functionals"], ids=lambda r: f"{r['family']}-{r['eps']}")
def test_functionals(row: dict[str, float]) -> None:
    make = {"f_eps0": lambda e: from_epsilon_delta(e, 0), "Laplace": laplace, "Gaussian": gaussian}[
        row["family"]
    ]
    curve = make(row["eps"])
    for name in ("kl", "kappa2", "kappa3bar"):
        if name in row:
            assert getattr(curve, name) == pytest.approx(row[name], rel=1e-8), name
    closed = row["eps"] * math.tanh(row["eps"] / 2)
    if row["family"] == "f_eps0":
        assert curve.kl == pytest.approx(closed)
        assert row["two_sinh"] == pytest.approx(2 * math.sinh(row["eps"] / 2))
    assert approx_clt_mu([curve]).approximate_mu == pytest.approx(row["mu_n1"], rel=1e-8)
    if "kl_closed_value" in row:
        assert curve.kl == pytest.approx(row["kl_closed_value"], rel=1e-10)


@pytest.mark.parametrize("row", GDP["clt_vs_exact_rr"], ids=lambda r: f"{r['n']}-{r['eps0']}-{r['delta']}")
def test_the_limit_against_randomised_response(row: dict[str, float]) -> None:
    one = from_epsilon_delta(row["eps0"], 0)
    true = repeated(one, row["n"])
    assert true.epsilon(row["delta"]) == pytest.approx(row["eps_exact"], rel=1e-8)
    theorem = approx_clt_mu([one] * row["n"])
    assert theorem.approximate_mu == pytest.approx(row["mu_BE"], rel=1e-9)
    assert theorem.curve.epsilon(row["delta"]) == pytest.approx(row["eps_clt_BE_mu"], rel=1e-9)
    for alpha in np.linspace(0.01, 0.99, 50):
        bounds = theorem.sandwich(float(alpha))
        if bounds is not None:
            assert bounds[0] <= true(float(alpha)) <= bounds[1]


@pytest.mark.parametrize("row", GDP["clt_rare_event"], ids=lambda r: f"{r['n']}-{r['a']}-{r['eps']}")
def test_the_limit_under_reports_rare_events(row: dict[str, float]) -> None:
    a, w = row["a"], row["w"]
    up = w / (1 + math.exp(-a))
    one = PiecewiseLinear(np.array([a, 0.0, -a]), np.array([up, 1 - w, w - up]), 0.0)
    estimate = approx_clt_mu([one] * row["n"])
    assert estimate.approximate_mu == pytest.approx(row["mu_clt"], rel=1e-9)
    assert estimate.gamma == pytest.approx(row["gamma_berry_esseen"], rel=1e-9)
    true = repeated(one, row["n"]).delta(row["eps"])
    assert true == pytest.approx(float(row["delta_exact"]), rel=1e-5)
    assert estimate.curve.delta(row["eps"]) == pytest.approx(float(row["delta_clt"]), rel=1e-4)
    assert true > 1.5 * estimate.curve.delta(row["eps"])
    assert row["gamma_berry_esseen"] < 0.5 or estimate.sandwich(0.5) is None


@pytest.mark.parametrize("row", GDP["laplace_clt_vs_pld"], ids=lambda r: f"{r['n']}-{r['eps0']}-{r['delta']}")
def test_laplace_compositions(row: dict[str, float]) -> None:
    from dpsql.privacy.pld import FINE_POINTS, compute_loss

    events = [DiscreteLaplace(exact(row["eps0"]), 10**9)] * row["n"]
    epsilon = compute_loss(events, points=FINE_POINTS).epsilon(row["delta"])
    assert row["eps_pld_optimistic"] <= epsilon <= row["eps_pld_pessimistic"] * (1 + 1e-6)
    estimate = approx_clt_mu([laplace(row["eps0"])] * row["n"])
    assert estimate.curve.epsilon(row["delta"]) == pytest.approx(row["eps_clt"], rel=1e-8)


@pytest.mark.parametrize("row", GDP["group_privacy_laplace_limit"], ids=lambda r: f"{r['mu']}-{r['k']}")
def test_the_laplace_limit_of_groups_is_no_guarantee(row: dict[str, float]) -> None:
    """The limit lies above every true curve: it promises more than there is."""
    true = from_epsilon_delta(row["mu"] / row["k"], 0).group(row["k"])
    limit = laplace(row["mu"])
    gaps = [limit(a) - true(a) for a in np.linspace(0, 1, 1001)]
    assert max(gaps) == pytest.approx(row["max_T_lap_minus_true"], rel=1e-6, abs=1e-12)
    assert min(gaps) >= -1e-9
    simple = from_epsilon_delta(row["mu"], 0)
    assert all(simple(a) <= true(a) + 1e-12 for a in ALPHAS)


def test_groups_and_deltas() -> None:
    row = GDP["gdp_group"][0]
    assert gaussian(row["mu"]).group(row["k"]).delta(1) == pytest.approx(float(row["delta_eps1"]), rel=1e-12)
    slow = TradeOff.group(gaussian(row["mu"]), row["k"])
    assert all(slow(a) == pytest.approx(gaussian(row["mu"] * row["k"])(a), abs=1e-9) for a in ALPHAS)
    deltas = GDP["f0delta"]
    composed = compose([from_epsilon_delta(0, d) for d in deltas["deltas"]])
    assert composed.delta(0) == pytest.approx(deltas["composed"], rel=1e-12)
    assert composed.delta(0) < sum(deltas["deltas"]) == pytest.approx(deltas["sum"])


CURVES = {
    "gaussian": gaussian(1),
    "laplace": laplace(0.7),
    "pair": from_epsilon_delta(0.5, 0.01),
    "profile": from_profile(lambda x: max(0.0, -math.expm1((x - 1) / 2))),
    "tensor": from_epsilon_delta(0.5, 0.01).tensor(from_epsilon_delta(1, 0)),
    "grid": gaussian(0.5).tensor(laplace(0.5)),
    "group": from_epsilon_delta(0.3, 0).group(3),
    "symmetrised": PiecewiseLinear(np.array([1.0, -0.3]), np.array([0.4, 0.6]), 0.0).symmetrised(),
    "of": tradeoff.of([BoundedRange(Fraction(1)), StableTest(Fraction(1, 2), Fraction(1, 1000))]),
}


@pytest.mark.parametrize("name", CURVES)
def test_every_curve_is_a_trade_off_function(name: str) -> None:
    curve = CURVES[name]
    grid = np.linspace(0, 1, 501)
    values = np.array([curve(float(a)) for a in grid])
    assert np.all(values <= 1 - grid + 1e-9)
    assert np.all(values >= -1e-12)
    assert np.all(np.diff(values) <= 1e-12)
    assert np.all(np.diff(values, 2) >= -1e-9)


@pytest.mark.parametrize("name", CURVES)
def test_duality_both_ways(name: str) -> None:
    curve = CURVES[name]
    for epsilon in (0.0, 0.2, 1.0, 2.5):
        delta = curve.delta(epsilon)
        assert TradeOff.delta(curve, epsilon) == pytest.approx(delta, abs=3e-5)
        for alpha in ALPHAS:
            assert curve(alpha) >= from_epsilon_delta(epsilon, delta)(alpha) - 1e-6 or name == "symmetrised"
    if name == "symmetrised":  # asked often enough above: it is slow
        return
    delta = curve.delta(0.1)
    assert curve.epsilon(delta) == pytest.approx(0.1, abs=1e-6) or delta == curve.delta(0.0)


def test_a_pair_splits_into_epsilon_and_delta() -> None:
    whole, parts = (
        from_epsilon_delta(0.8, 0.03),
        from_epsilon_delta(0.8, 0).tensor(from_epsilon_delta(0, 0.03)),
    )
    assert all(whole(a) == pytest.approx(parts(a), abs=1e-12) for a in ALPHAS)
    assert whole.kl == math.inf
    with pytest.raises(ValueError, match="finite"):
        approx_clt_mu([whole])


def test_symmetrising_gives_the_larger_of_both_directions() -> None:
    lopsided = PiecewiseLinear(
        np.array([2.0, math.log(0.9 / (1 - 0.1 * math.exp(-2.0)))]), np.array([0.1, 0.9]), 0.0
    )
    both = lopsided.symmetrised()
    assert all(both(a) >= lopsided(a) - 1e-12 for a in ALPHAS)
    assert any(both(a) > lopsided(a) + 1e-3 for a in ALPHAS)
    assert all(both.inverse()(a) == both(a) for a in ALPHAS)
    again = lopsided.inverse()
    assert all(again(lopsided(a)) <= a + 1e-9 for a in ALPHAS)
    assert gaussian(1).symmetrised()(0.3) == gaussian(1)(0.3)


def test_composition_on_the_grid_is_below_the_truth() -> None:
    exact_curve, gridded = gaussian(1), TradeOff.tensor(gaussian(0.6), gaussian(0.8))
    gaps = [exact_curve(a) - gridded(a) for a in np.linspace(0, 1, 200)]
    assert min(gaps) >= -1e-12
    assert max(gaps) < 1e-4
    assert repr(gaussian(0.3).tensor(gaussian(0.4))) == "gaussian(mu=0.5)"


def test_the_curve_of_events_is_below_the_curve_of_their_noise() -> None:
    events = [DiscreteLaplace(Fraction(1, 2), 10**6)] * 2
    drawn, truth = tradeoff.of(events), laplace(0.5).tensor(laplace(0.5))
    for a in ALPHAS:
        assert drawn(a) == pytest.approx(truth(a), abs=1e-3)
    assert tradeoff.of(PureDP(Fraction(1)))(0.1) == pytest.approx(from_epsilon_delta(1, 0)(0.1), abs=1e-9)


def test_limits_say_what_they_are() -> None:
    estimate = approx_clt_mu([from_epsilon_delta(0.01, 0)] * 1000)
    assert "not a guarantee" in estimate.sentence()
    assert not isinstance(estimate, TradeOff)
    assert not hasattr(estimate, "delta")


def test_the_discrete_gaussian_is_not_gaussian_dp() -> None:
    for row in vectors("pld")["discrete_gaussian_vs_gdp"]:
        sigma = math.sqrt(row["sigma2"])
        limit = gaussian(1 / sigma).delta(row["x"])
        assert limit == pytest.approx(row["delta_gdp"], rel=1e-9)
        k = np.arange(-200, 202, dtype=float)
        p, q = np.exp(-(k**2) / 2 / row["sigma2"]), np.exp(-((k - 1) ** 2) / 2 / row["sigma2"])
        discrete = float(np.sum(np.maximum(0, p / p.sum() - math.exp(row["x"]) * q / q.sum())))
        assert discrete == pytest.approx(row["delta_discrete"], rel=1e-6)
        assert (discrete > limit) == row["exceeds"]


@pytest.mark.parametrize("make", [gaussian, laplace, lambda e: from_epsilon_delta(e, 0)])
def test_less_than_no_loss_is_refused(make: object) -> None:
    with pytest.raises(ValueError, match=r"negative|epsilon >= 0"):
        make(-0.1)  # type: ignore[operator]
    with pytest.raises(ValueError, match="at least one member"):
        gaussian(1).group(0)


@settings(max_examples=25)
@given(st.lists(st.floats(0.05, 1.5), min_size=1, max_size=4), st.floats(0, 0.2))
def test_composition_loses_and_order_does_not_matter(epsilons: list[float], delta: float) -> None:
    parts = [from_epsilon_delta(e, delta) for e in epsilons]
    forth, back = compose(parts), compose(reversed(parts))
    for a, b in pairwise([0.0, 0.05, 0.3, 0.6, 1.0]):
        assert forth(a) == pytest.approx(back(a), abs=1e-9)
        assert forth(a) <= min(part(a) for part in parts) + 1e-9
        assert forth(a) >= forth(b)


# --- pairs, verdicts, comparisons


def test_the_curve_of_a_pair_equals_the_best_tests() -> None:
    """Every deterministic test of four outputs, and the convex hull of their errors."""
    p, q = (
        [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4), Fraction(0)],
        [Fraction(1, 8), Fraction(3, 8), Fraction(1, 4), Fraction(1, 4)],
    )
    curve = between(p, q)
    errors = [
        (
            float(sum(x for x, accused in zip(p, chosen, strict=True) if accused)),
            float(sum(x for x, accused in zip(q, chosen, strict=True) if not accused)),
        )
        for chosen in itertools.product([False, True], repeat=4)
    ]
    for alpha in np.linspace(0, 1, 41):
        mixed = [
            b0 + (b1 - b0) * (alpha - a0) / (a1 - a0) if a1 > a0 else min(b0, b1)
            for (a0, b0), (a1, b1) in itertools.product(errors, repeat=2)
            if a0 <= alpha <= a1
        ]
        assert curve(float(alpha)) == pytest.approx(min(mixed), abs=1e-12)
    assert curve.total_variation == pytest.approx(
        float(sum(max(b - a, Fraction(0)) for a, b in zip(p, q, strict=True)))
    )
    assert between({"no": 1}, {"yes": 1})(0.0) == 0
    assert between({"a": 0.5, "b": 0.5}, {"b": 0.5, "a": 0.5}).total_variation == 0
    for wrong in (([1], [0.5, 0.5]), ([0.5, 0.4], [1, 0]), ([2, -1], [1, 0]), ([], [])):
        with pytest.raises(ValueError, match=r"probabilities|outputs"):
            between(*wrong)


def test_randomised_response_is_epsilon_dp_and_less_is_not_true_of_it() -> None:
    truth = math.e / (1 + math.e)
    curve = between([truth, 1 - truth], [1 - truth, truth])
    assert holds(curve, from_epsilon_delta(1, 0))
    verdict = holds(curve, from_epsilon_delta(0.9, 0))
    assert not verdict
    assert verdict.alpha is not None
    assert curve(verdict.alpha) < from_epsilon_delta(0.9, 0)(verdict.alpha)
    assert holds(curve, gaussian(-2 * NormalDist().inv_cdf(1 - truth)))
    assert not holds(curve, gaussian(1))


@pytest.mark.parametrize(
    ("f", "reason"),
    [
        (lambda a: 1 - a, None),
        (gaussian(1), None),
        (from_epsilon_delta(1, 0.1), None),
        (lambda a: max(0.0, 0.5 - a), None),
        (lambda a: 1 - a * a, "blind guess"),
        (lambda a: (1 - a) * (0.6 + 0.39 * math.cos(9 * a)), "rises"),
        (lambda a: min(1 - a, 0.55 - 0.5 * a), "convex"),
        (lambda a: -0.1, "no probability"),
        (lambda a: math.nan, "no probability"),
    ],
)
def test_which_curves_are_trade_off_functions(f: Callable[[float], float], reason: str | None) -> None:
    verdict = is_tradeoff_function(f)
    assert verdict.holds == (reason is None)
    assert reason is None or reason in verdict.reason


@pytest.mark.parametrize("nothing", [gaussian(0), laplace(0), from_epsilon_delta(0, 0)])
@pytest.mark.parametrize("curve", [gaussian(1), laplace(1), from_epsilon_delta(1, 0.1), gaussian(0)])
def test_perfect_privacy_is_the_identity_of_composition(nothing: TradeOff, curve: TradeOff) -> None:
    for made in (nothing.tensor(curve), curve.tensor(nothing)):
        assert holds(made, curve)
        assert holds(curve, made)


def test_total_variation_by_name() -> None:
    assert gaussian(1).total_variation == pytest.approx(2 * NormalDist().cdf(0.5) - 1)
    assert laplace(1).total_variation == pytest.approx(1 - math.exp(-0.5))
    assert from_epsilon_delta(1, 0.1).total_variation == pytest.approx(0.1 + 0.9 * math.tanh(0.5))
