"""Amounts asked in mu or rho are charged as asked: never more, and hardly less."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest

from dpsql.mechanisms.per_group import GaussianNoiseByMu
from dpsql.privacy import conversions
from dpsql.privacy.accountants import Spent
from dpsql.privacy.amounts import Amount, GaussianByMu
from dpsql.privacy.events import (
    BoundedRange,
    DiscreteLaplace,
    Event,
    GroupSelection,
    PureDP,
    SparseVector,
    compose_events,
)
from dpsql.privacy.filters import Gdp, open_filter, open_own_filter
from dpsql.privacy.tradeoff import BesideDelta, from_epsilon_delta, gaussian

TINY = Fraction(1, 10**6)
PRICES: dict[str, Callable[[Fraction], Event]] = {
    "pure": PureDP,
    "Laplace": lambda e: DiscreteLaplace(e, 1000, 3),
    "exponential": lambda e: BoundedRange(e, 5),
    "threshold": lambda e: SparseVector(e / 3, 2 * e / 3, 4),
    "groups": lambda e: GroupSelection(e, TINY, 3),
    "several": lambda e: compose_events([PureDP(e / 2), BoundedRange(e / 2)]),
}


@pytest.mark.parametrize("price", PRICES.values(), ids=PRICES)
@pytest.mark.parametrize("amount", ["1e-9", "0.01", "0.5", "3", "40"])
@pytest.mark.parametrize("currency", ["mu", "rho"])
def test_a_pure_mechanism_gets_the_largest_epsilon_that_fits(
    price: Callable[[Fraction], Event], amount: str, currency: str
) -> None:
    number = Fraction(amount)
    asked = Amount.of_mu(number) if currency == "mu" else Amount("rho", number)
    epsilon = asked.find_epsilon(price)
    event = price(epsilon)
    assert (event.mu if currency == "mu" else event.rho) <= number
    assert asked.covers(event)
    assert not asked.covers(price(epsilon * (1 + Fraction(1, 10**7))))  # no larger one does


@pytest.mark.parametrize(
    "mu", [Fraction(1, 2), Fraction(1), Fraction("0.37"), Fraction(9, 4), Fraction(1, 10**9)]
)
@pytest.mark.parametrize(("sensitivity", "groups"), [(1, 1), (10, 3), (10**7, 2)])
def test_gaussian_noise_has_exactly_the_mu(mu: Fraction, sensitivity: int, groups: int) -> None:
    noise = GaussianNoiseByMu.of_mu(mu * mu, TINY, sensitivity, groups)
    assert noise.event.mu <= mu
    assert float(noise.event.mu / mu) == pytest.approx(1, abs=2**-29)
    assert float(noise.sigma) == pytest.approx(math.sqrt(groups) * sensitivity / float(mu), rel=2**-29)
    # so is the pair that it declares
    assert conversions.gaussian_delta(noise.event.mu, noise.epsilon) <= TINY
    event = noise.event
    assert Event.from_json(event.to_json()) == event
    assert isinstance(event, GaussianByMu)


def test_parts_add_up_to_what_was_asked() -> None:
    asked = Amount.of_mu(Fraction(1, 2))
    for parts in (1, 2, 3, 7):
        events = [
            GaussianNoiseByMu.of_mu((asked / parts).total, TINY, 10, 3).event
            for _ in range(parts - parts // 2)
        ]
        events += [PureDP((asked / parts).find_epsilon(PureDP)) for _ in range(parts // 2)]
        whole = compose_events(events)
        assert Fraction(1, 2) * (1 - Fraction(1, 10**8)) < whole.mu <= Fraction(1, 2)
    rho = Amount("rho", Fraction(1, 100))
    noise = [GaussianNoiseByMu.of_mu((rho / 3).mu_squared or Fraction(0), TINY, 4, 1).event for _ in range(3)]
    assert Fraction(1, 100) * (1 - Fraction(1, 10**8)) < compose_events(noise).rho <= Fraction(1, 100)


@pytest.mark.parametrize("mu", ["0.1", "0.5", "1", "3"])
def test_the_epsilon_that_counts_against_the_limit_bounds_all_that_costs_as_much(mu: str) -> None:
    """Whatever has this mu has at most this epsilon: of pure mechanisms too."""
    asked = Amount.of_mu(Fraction(mu))
    epsilon = float(asked.bound_epsilon(TINY))
    assert (
        gaussian(Fraction(mu)).delta(epsilon) <= 1.000001e-6 < gaussian(Fraction(mu)).delta(epsilon * 0.9999)
    )
    for price in (PureDP, BoundedRange):
        pure = float(asked.find_epsilon(price))
        assert from_epsilon_delta(pure, 0).delta(epsilon) <= 1.000001e-6


# -- a budget in its own currency -----------------------------------------------------------------------------------


def test_a_budget_of_mu_is_used_up_exactly() -> None:
    held = open_own_filter("mu", Fraction(1), Fraction(5), Fraction(0))
    spent = held.start
    for _ in range(4):
        half = GaussianNoiseByMu.of_mu(Fraction(1, 4), TINY, 1, 1).event
        assert held.admits(spent, half)
        spent = held.add(spent, half)
    assert spent.mu_squared == 1
    assert not held.admits(spent, PureDP(Fraction(1, 10**9)))
    room = held.room(spent)
    assert (room.sentence, room.epsilon_left) == ("μ=0 of μ=1 left", 0)


def test_the_plain_sum_does_not_admit_what_is_below_the_promised_curve() -> None:
    """f_{epsilon, 0} of the epsilon that mu = 1 comes to lies far below G_1: a pure loss of that size is not admitted."""
    epsilon = conversions.gaussian_epsilon(Fraction(1), TINY)
    own = open_own_filter("mu", Fraction(1), epsilon, Fraction(0))
    assert from_epsilon_delta(epsilon, 0)(0.06) < 0.01 < 0.7 < gaussian(1)(0.06)
    assert not own.admits(own.start, PureDP(epsilon))
    largest = own.fits(own.start)
    assert own.admits(own.start, PureDP(largest))
    assert from_epsilon_delta(largest, 0)(0.06) >= gaussian(1)(0.06)
    with_plain_sum = Gdp(epsilon, TINY, Fraction(1), Fraction(0))  # the control
    assert with_plain_sum.admits(with_plain_sum.start, PureDP(epsilon))


def test_an_adaptive_analyst_stays_within_mu() -> None:
    """The best choice of the next epsilon after each answer, by dynamic programming, at many epsilons of the curve."""
    held = open_own_filter("mu", Fraction(1, 2), Fraction(2), Fraction(0))
    losses = [Fraction(1, 10), Fraction(1, 5), Fraction(3, 10), Fraction(39, 100)]

    def worst(at: float) -> float:
        def best(spent: Spent, p: float, q: float, rounds: int) -> float:
            found = max(0.0, p - math.exp(at) * q)
            for loss in losses if rounds else ():
                event = PureDP(loss)
                if held.admits(spent, event):
                    more = held.add(spent, event)
                    up = 1 / (1 + math.exp(-float(loss)))
                    total = best(more, p * up, q * (1 - up), rounds - 1)
                    total += best(more, p * (1 - up), q * up, rounds - 1)
                    found = max(found, total)
            return found

        return best(held.start, 1.0, 1.0, 4)

    for at in (0.0, 0.2, 0.5, 1.0):
        assert worst(at) <= gaussian(Fraction(1, 2)).delta(at) + 1e-12
    assert worst(0.0) > 0.5 * gaussian(Fraction(1, 2)).delta(0.0)  # the analyst does get something


def test_rho_is_summed_as_such() -> None:
    held = open_own_filter("rho", Fraction(1, 100), Fraction(1), TINY)
    event = GaussianNoiseByMu.of_mu(Fraction(1, 100), TINY, 1, 1).event
    assert held.more(held.start, event) == 2
    assert held.write_charge(event) == "ρ=0.005"
    assert held.room(held.fold([event])).sentence == "ρ=0.005 of ρ=0.01 left"
    assert open_filter("zcdp", Fraction(1), TINY).write_charge(event) == "ρ=0.005"
    assert open_filter("zcdp", Fraction(1), TINY).write_charge(PureDP(Fraction(1, 10))) == "ε=0.1"


@pytest.mark.parametrize("arguments", [("epsilon", 1), ("", 1), ("mu", 0), ("rho", -1)])
def test_no_other_budget_is_opened(arguments: tuple[str, int]) -> None:
    with pytest.raises(ValueError, match=r"counts in|needs an amount"):
        open_own_filter(arguments[0], Fraction(arguments[1]), Fraction(1), Fraction(0))


def test_a_curve_beside_a_delta_is_the_composition() -> None:
    mixed = gaussian(1).tensor(from_epsilon_delta(0, 0.01))
    closed = BesideDelta(gaussian(1), 0.01)
    for alpha in (0.0, 0.01, 0.1, 0.5, 0.98, 0.995, 1.0):
        assert mixed(alpha) <= closed(alpha) + 1e-9
        assert closed(alpha) == pytest.approx(mixed(alpha), abs=2e-3)
    assert closed.delta(1) == pytest.approx(0.01 + 0.99 * gaussian(1).delta(1), abs=1e-15)
