"""The search for the largest epsilon that a rule admits, and events added in one batch: with the results of one by one."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from dpsql.privacy.accountants import (
    LARGEST_EPSILON,
    Batch,
    Spent,
    find_most,
    guess_mu_squared,
    guess_renyi,
    guess_rho,
)
from dpsql.privacy.events import DiscreteLaplace, GroupSelection, JointGaussian, PureDP, RoundedGaussian
from dpsql.privacy.filters import ACCOUNTANTS, RENYI_ORDERS, Gdp, Rdp, Zcdp, open_filter

RULES = sorted(set(ACCOUNTANTS) - {"basic"})


def search_together(filter_: Rdp | Zcdp | Gdp, left: list[Fraction]) -> float:
    low, high = 0.0, float(LARGEST_EPSILON)
    for _ in range(60):
        middle = (low + high) / 2
        within = any(
            cost(middle) <= float(most) for cost, most in zip(filter_.guess_costs(), left, strict=True)
        )
        low, high = (middle, high) if within else (low, middle)
    return low


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("epsilon", ["1/10", "1", "8", "1000"])
@pytest.mark.parametrize("many", [0, 1, 30, 400])
def test_one_search_for_each_cost_finds_what_one_for_all_does(rule: str, epsilon: str, many: int) -> None:
    held = open_filter(rule, Fraction(epsilon), Fraction(1, 10**6))
    assert isinstance(held, Rdp | Zcdp | Gdp)
    spent = held.add(held.start, DiscreteLaplace(Fraction(epsilon) / 100, 1, 1), many) if many else held.start
    left = [limit - total for limit, total in zip(held.limits, held.rule_sums(spent), strict=True)]
    if max(left) <= 0:
        return
    alone = find_most(held.guess_costs(), left, Fraction(0))
    assert alone == pytest.approx(search_together(held, left), rel=1e-12)
    # a bound from below leaves out only what is below it
    for part in ("1/2", "999999/1000000", "1000002/1000000", "2"):
        above = Fraction(alone) * Fraction(part)
        found = find_most(held.guess_costs(), left, above)
        assert found == alone if above < alone else found in (0.0, alone)


@pytest.mark.parametrize("rule", RULES)
def test_the_room_is_the_larger_of_both(rule: str) -> None:
    held = open_filter(rule, Fraction(3), Fraction(1, 10**6))
    spent: Spent = held.start
    by_rule = 0
    for step in range(60):
        room = held.room(spent)
        by_sum = max(Fraction(0), held.left_by_sum(spent))
        alone = held.left_by_rule(spent)
        assert room.epsilon_left == max(by_sum, alone) == held.fits(spent)
        by_rule += alone > by_sum
        event = DiscreteLaplace(Fraction(1, 20), 1, 1)
        spent = held.add(
            spent,
            event if step % 3 else RoundedGaussian(Fraction(400), 1, Fraction(1, 20), Fraction(1, 10**9)),
        )
    assert by_rule  # else the rule was never looked at


def test_the_estimates_are_the_exact_costs() -> None:
    for epsilon in ("1/1000", "1/7", "1", "20"):
        event, value = DiscreteLaplace(Fraction(epsilon), 1, 1), float(Fraction(epsilon))
        assert guess_rho(value) == pytest.approx(float(event.rho), rel=1e-9)
        assert guess_mu_squared(value) == pytest.approx(float(event.mu**2), rel=1e-9)
        for order in RENYI_ORDERS:
            assert guess_renyi(float(order), value) == pytest.approx(float(event.renyi(order)), rel=1e-8)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_a_batch_is_added_as_its_events_are_one_by_one(accountant: str) -> None:
    held, rng = open_filter(accountant, Fraction(1), Fraction(1, 10**6)), random.Random(5)
    rounded = 0
    for _ in range(40):
        parts = [10**6, 3] if rng.random() < 0.5 else [(1 << 89) - 1, (1 << 127) - 1]
        events = [
            PureDP(Fraction(rng.randrange(1, 100), rng.choice(parts))) for _ in range(rng.randrange(1, 6))
        ]
        events += [GroupSelection(Fraction(1, 7), Fraction(1, 10**8))] * rng.randrange(2)
        events += [
            JointGaussian((Fraction(200),), (2,), Fraction(1, 10), Fraction(1, 10**8))
        ] * rng.randrange(2)
        before = held.fold([PureDP(Fraction(1, (1 << 107) - 1))] * rng.randrange(3))
        after = before
        for event in events:
            after = held.add(after, event)
        assert Batch(held, events).add_to(before) == after
        rounded += after.epsilon != sum((event.basic[0] for event in events), before.epsilon)
    assert rounded or accountant != "basic"
