"""No analyst, however clever, gets more out of a filter than its budget; the natural filter is beaten."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.privacy import conversions
from dpsql.privacy.accountants import Spent
from dpsql.privacy.events import (
    BoundedRange,
    DiscreteLaplace,
    PureDP,
    SparseVector,
    StableTest,
    compose_events,
)
from dpsql.privacy.filters import ACCOUNTANTS, Zcdp, open_filter
from dpsql.privacy.pld import declare
from dpsql.privacy.tradeoff import approx_clt_mu, from_epsilon_delta, gaussian
from tests.support.accountant_contract import AccountantContract, beat, count_admitted
from tests.support.adaptive_analyst import response
from tests.support.vectors import delta_of, exact, vectors

ONE, TINY = Fraction(1), Fraction(1, 10**6)


class TestBasic(AccountantContract):
    name = "basic"


class TestZcdp(AccountantContract):
    name = "zcdp"


class TestGdp(AccountantContract):
    name = "gdp"


def test_every_accountant_passes_the_contract() -> None:
    texts = (path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    tested = [
        name for text in texts for name in re.findall(r'\(AccountantContract\):\n    name = "(\w+)"', text)
    ]
    assert sorted(tested) == sorted(ACCOUNTANTS)


# -- budgets --------------------------------------------------------------------------------------------------------


def test_the_default_filter_admits_what_was_promised() -> None:
    held = open_filter("zcdp", ONE, TINY)
    assert (
        count_admitted(held, PureDP(Fraction("0.01")))
        == held.more(held.start, PureDP(Fraction("0.01")))
        == 462
    )
    assert count_admitted(held, DiscreteLaplace(Fraction("0.01"), 1000)) >= 460


def test_admitted_queries_with_all_of_delta_in_the_conversion() -> None:
    table = vectors("filters")["queries_admitted_for_total_1_1e-6"]
    rho = conversions.find_largest_rho(ONE, TINY)
    assert float(rho) == pytest.approx(table["rho_budget"], rel=1e-12)
    assert float(rho) <= table["rho_budget"]
    held = Zcdp(ONE, TINY, rho, Fraction(0))
    basic = open_filter("basic", ONE, TINY)
    for row in table["rows"]:
        epsilon = exact(row["eps0"])
        assert count_admitted(basic, PureDP(epsilon)) == row["basic"]
        for name, event in (
            ("zcdp_pure", PureDP(epsilon)),
            ("zcdp_laplace", DiscreteLaplace(epsilon, 10**9)),
            ("zcdp_bounded_range", BoundedRange(epsilon)),
        ):
            assert rho // event.rho == row[name]
            assert held.more(held.start, event) == max(row[name], row["basic"])
        n = row["whitehouse_advanced"]  # that rule is not offered: ours is never worse
        e, log = row["eps0"], math.log(1e6)
        assert [math.sqrt(2 * log * k) * e + k * e * e / 2 <= 1 for k in (n, n + 1)] == [True, False]
        assert n <= held.more(held.start, PureDP(epsilon))


@pytest.mark.parametrize("row", vectors("filters")["zcdp_to_eps"], ids=lambda r: f"{r['rho']}-{r['delta']}")
def test_conversion_of_zcdp(row: dict[str, float]) -> None:
    rho, delta = exact(row["rho"]), exact(row["delta"])
    epsilon = conversions.find_smallest_epsilon(rho, delta)
    assert float(epsilon) == pytest.approx(row["cks"], rel=1e-11)
    assert float(epsilon) <= row["simple"]
    assert row["simple"] == pytest.approx(row["rho"] + 2 * math.sqrt(row["rho"] * math.log(1 / row["delta"])))
    assert float(epsilon) >= row["gaussian_exact"]
    assert gaussian(math.sqrt(2 * row["rho"])).epsilon(row["delta"]) == pytest.approx(
        row["gaussian_exact"], rel=1e-10
    )
    back = conversions.find_largest_rho(epsilon, delta)
    assert back <= rho or back - rho < Fraction(1, 10**12)
    assert back == pytest.approx(rho, rel=1e-9)
    assert delta <= delta_of(rho, epsilon) * (1 + TINY)


def test_sums_stay_short() -> None:
    odd = [
        PureDP(Fraction(1, p))
        for p in (3, 7, 11, 13, 17, 19, 23, 10**9 + 7, 10**12 + 39, 2**89 - 1, 2**107 - 1)
    ]
    spent = open_filter("zcdp", ONE, TINY).fold(odd * 3)
    assert spent.epsilon >= 3 * sum(e.epsilon for e in odd)
    assert all(n.denominator.bit_length() <= 256 for n in (spent.epsilon, spent.rho, spent.mu_squared))


def test_an_approximation_is_never_charged() -> None:
    estimate = approx_clt_mu([from_epsilon_delta(0.1, 0)] * 10)
    held = open_filter("gdp", ONE, TINY)
    with pytest.raises(TypeError, match="only events"):
        held.admits(held.start, estimate)  # type: ignore[arg-type]
    with pytest.raises((TypeError, AttributeError)):
        compose_events([estimate, PureDP(ONE)]).rho  # type: ignore[list-item]  # noqa: B018
    assert "not a guarantee" in estimate.sentence()


@pytest.mark.parametrize(
    "bad", [("pld", ONE, TINY), ("zcdp", Fraction(0), TINY), ("zcdp", ONE, ONE), ("basic", ONE, -TINY)]
)
def test_a_budget_that_makes_no_sense_is_refused(bad: tuple[str, Fraction, Fraction]) -> None:
    with pytest.raises(ValueError, match=r"no accountant|a budget needs"):
        open_filter(*bad)


# -- the cleverest analyst ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row", vectors("hybrid_filter")["hybrid"], ids=lambda r: f"E={r['E']}-rho={r['rho']}"
)
def test_pure_or_zcdp_gives_nothing_away(row: dict[str, object]) -> None:
    epsilon, rho, sizes = row["E"], exact(row["rho"]), row["sizes"]
    events = [PureDP(exact(size)) for size in sizes]
    games = [response(size) for size in sizes]
    target = delta_of(rho, exact(epsilon))
    assert float(target) == pytest.approx(row["delta_target_cks"], rel=1e-9)
    held = Zcdp(exact(epsilon), target, rho, Fraction(0))
    hybrid = beat(held, events, games, epsilon)
    assert hybrid == pytest.approx(row["worst_hybrid"], rel=1e-9, abs=1e-15)
    assert hybrid <= float(target)
    alone = Zcdp(Fraction(1, 10**9), target, rho, Fraction(0))  # the plain sum never helps
    assert beat(alone, events, games, epsilon) == pytest.approx(row["worst_zcdp"], rel=1e-9, abs=1e-15)
    basic = open_filter("basic", exact(epsilon), Fraction(0))
    assert beat(basic, events, games, epsilon) == pytest.approx(row["worst_pure"], abs=1e-15)


# -- the natural filter, as it must not be done -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "row", vectors("filters")["natural_pld_filter_counterexample"], ids=lambda r: f"{r['e1']}"
)
def test_the_natural_filter_fails_by_half(row: dict[str, float]) -> None:
    e1, e2, epsilon, target = row["e1"], row["e2"], row["target_eps"], row["target_delta"]
    first, second = from_epsilon_delta(e1, 0), from_epsilon_delta(e2, 0)
    betray = from_epsilon_delta(0, row["d_second"])
    assert first.tensor(second).delta(epsilon) == pytest.approx(row["path_plus_alone"], rel=1e-9)
    assert first.tensor(betray).delta(epsilon) == pytest.approx(row["path_minus_alone"], rel=1e-9)
    up = 1 / (1 + math.exp(-e1))
    adaptive = up * second.delta(epsilon - e1) + (1 - up) * betray.delta(epsilon + e1)
    assert adaptive == pytest.approx(row["adaptive_delta_actual"], rel=1e-9)
    assert adaptive / target == pytest.approx(row["violation_factor"], rel=1e-9)
    assert adaptive > 1.2 * target
    for accountant in ACCOUNTANTS:  # ours refuse one of the two paths
        held = open_filter(accountant, Fraction(epsilon), Fraction(target))
        spent = held.add(held.start, PureDP(exact(e1)))
        plus = held.admits(spent, PureDP(exact(e2)))
        assert not (plus and held.admits(spent, StableTest(Fraction(1, 10**9), Fraction(row["d_second"]))))


def test_a_declared_plan_may_be_the_whole_session_but_only_from_the_start() -> None:
    plan = declare([DiscreteLaplace(Fraction("0.1"), 1000)] * 100, TINY)
    assert plan.basic[0] < Fraction("4.693")
    budget = (Fraction("4.7"), TINY)
    held = open_filter("zcdp", *budget)
    assert held.admits(held.start, plan)
    assert not held.admits(held.start, compose_events(plan.events))
    assert not held.admits(held.add(held.start, PureDP(Fraction(1, 10**6))), plan)
    spent = held.add(held.start, plan)
    assert held.fits(spent) == 0
    assert not held.admits(spent, PureDP(Fraction(1, 10**6)))
    assert open_filter("basic", *budget).admits(Spent(), plan)
    shrinking = declare([SparseVector(Fraction("0.05"), Fraction("0.05"), 2)] * 100, TINY)
    assert not open_filter("zcdp", Fraction("4.8"), TINY).admits(Spent(), shrinking)
    assert open_filter("basic", Fraction("4.8"), TINY).admits(Spent(), shrinking)
