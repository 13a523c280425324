"""The accountant of several Renyi orders: its limits, what it admits, and the rule without dealt deltas that fails."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import pytest

from dpsql.late_dataclass import dataclass
from dpsql.privacy.events import Event, PureDP, RoundedGaussian
from dpsql.privacy.filters import RENYI_ORDERS, Rdp, open_filter
from tests.support.accountant_contract import ONE, TINY, AccountantContract
from tests.support.vectors import exact, vectors

CENT = PureDP(Fraction("0.01"))


class TestRdp(AccountantContract):
    name = "rdp"


@dataclass(frozen=True)
class Finite(Event):
    """A mechanism given by its privacy losses (probability, loss)."""

    kind: ClassVar[str] = ""
    delta = Fraction(0)
    outcomes: tuple[tuple[float, float], ...]

    @property
    def epsilon(self) -> Fraction:
        return Fraction(max(abs(loss) for _, loss in self.outcomes))

    def renyi(self, order: Fraction) -> Fraction:
        a = float(order)
        top = float(self.epsilon)
        mean = math.fsum(p * math.exp((a - 1) * (x - top)) for p, x in self.outcomes)
        return Fraction(top + math.log(mean) / (a - 1))


@pytest.mark.parametrize("epsilon", ["0.1", "1", "8"])
@pytest.mark.parametrize("share", ["0", "0.5"])
def test_limits_in_closed_form(epsilon: str, share: str) -> None:
    held = open_filter("rdp", exact(epsilon), TINY, exact(share))
    assert isinstance(held, Rdp)
    assert held.curve
    rest = TINY - held.aside
    deltas = held.deal(held.epsilon, rest)
    assert sum(deltas.values()) == rest
    assert tuple(deltas) == RENYI_ORDERS
    for order, own in deltas.items():
        a = float(order)
        limit = float(epsilon) - math.log1p(-1 / a) + math.log(float(own) * a) / (a - 1)
        if limit > 0:
            assert float(dict(held.curve)[order]) == pytest.approx(limit, rel=1e-12)
        else:
            assert order not in dict(held.curve)


def test_gaussian_noise_uses_the_order_that_suits_it() -> None:
    held = open_filter("rdp", ONE, TINY)
    assert isinstance(held, Rdp)
    noise = RoundedGaussian(Fraction(50), 1, ONE, Fraction(1, 10))
    counts = [int(limit / (order / 2 / 50**2)) for order, limit in held.curve]
    assert held.more(held.start, noise) == max(counts) > 0


def test_many_small_statements_fit_after_a_large_one() -> None:
    held, other = open_filter("rdp", ONE, TINY), open_filter("zcdp", ONE, TINY)
    large = PureDP(Fraction(1, 2))
    assert held.more(held.fold([large]), CENT) > 2 * other.more(other.fold([large]), CENT)
    assert held.more(held.start, CENT) > 0.9 * other.more(other.start, CENT)


def test_sums_of_other_orders_are_not_taken() -> None:
    spent = open_filter("zcdp", ONE, TINY).fold([CENT])
    with pytest.raises(ValueError, match="another filter"):
        open_filter("rdp", ONE, TINY).admits(spent, CENT)


def reach(held: Rdp, row: dict[str, Any]) -> float:
    """Find the delta of an analyst who asks for what still fits after each answer of a randomised response."""
    first = float(row["first"])
    spent, total = held.add(held.start, PureDP(exact(row["first"]))), 0.0
    for sign, then in zip((1, -1), row["then"], strict=True):
        p, loss, small = (float(then[key]) for key in ("probability", "loss", "small_loss"))
        q = p * -math.expm1(-loss) / math.expm1(-small)
        second = Finite(((p, loss), (q, small), (1 - p - q, 0.0)))
        outcomes = second.outcomes if held.admits(spent, second) else ((1.0, 0.0),)
        assert not spent.plus(second).near <= held.epsilon  # type: ignore[operator]  # the plain sum admits none
        value = math.fsum(w * max(0.0, -math.expm1(held.epsilon - sign * first - x)) for w, x in outcomes)
        total += value / (1 + math.exp(-sign * first))
    return total


@pytest.mark.parametrize(
    "row", vectors("filter_with_delta")["any_order"], ids=lambda r: f"epsilon={r['epsilon']}"
)
def test_all_of_delta_for_every_order_is_beaten(row: dict[str, Any]) -> None:
    epsilon, delta = exact(row["epsilon"]), exact(row["delta"])
    slack = 1 + Fraction(1, 10**8)  # the mechanisms of the vectors meet the limits to nine digits
    orders, limits = map(exact, row["orders"]), [slack * exact(limit) for limit in row["limits"]]
    lax = Rdp(epsilon, delta, curve=tuple(zip(orders, limits, strict=True)))
    assert reach(lax, row) == pytest.approx(float(row["worst_found"]), rel=1e-6)
    assert reach(lax, row) > 1.1 * delta
    assert reach(Rdp.open(epsilon, delta, Fraction(0)), row) <= delta
