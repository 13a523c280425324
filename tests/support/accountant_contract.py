"""Tests that every accountant passes: a test class of an accountant subclasses :class:`AccountantContract`."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.privacy import conversions
from dpsql.privacy.accountants import MANY, Accountant
from dpsql.privacy.events import (
    BoundedRange,
    DiscreteLaplace,
    Event,
    GaussianTest,
    PureDP,
    RoundedGaussian,
    SparseVector,
    StableTest,
    compose_events,
)
from dpsql.privacy.filters import ACCOUNTANTS, open_filter
from tests.support.adaptive_analyst import Game, peeling, response, worst_delta

ONE, TINY = Fraction(1), Fraction(1, 10**6)

MIXED: list[tuple[Event, Game]] = [
    (PureDP(Fraction("0.3")), response(0.3)),
    (PureDP(Fraction("0.7")), response(0.7)),
    (StableTest(Fraction("0.2"), Fraction("0.002")), response(0.2, 0.002)),
    (BoundedRange(Fraction("0.8")), peeling(0.8, 0.5)),
]


def count_admitted(held: Accountant, event: Event) -> int:
    """Count how often an event is admitted, one after another."""
    spent, count = held.start, 0
    while held.admits(spent, event):
        spent, count = held.add(spent, event), count + 1
    return count


def beat(held: Accountant, events: Sequence[Event], games: Sequence[Game], epsilon: float) -> float:
    """Find the largest delta that an adaptive analyst reaches against an accountant."""

    def admits(counts: tuple[int, ...], i: int) -> bool:
        played = [event for event, n in zip(events, counts, strict=True) for _ in range(n)]
        return held.admits(held.fold(played), events[i])

    return worst_delta(games, admits, epsilon)


class AccountantContract:
    """The contract of an accountant. Subclasses say which one."""

    name: ClassVar[str]

    def open(self, epsilon: Fraction = ONE, delta: Fraction = TINY, share: str = "0.5") -> Accountant:
        """Open the accountant for a budget."""
        return open_filter(self.name, epsilon, delta, Fraction(share))

    def test_the_catalogue_knows_it(self) -> None:
        kind = ACCOUNTANTS[self.name]
        assert kind.name == self.name
        assert kind.summary
        assert isinstance(self.open(), kind)

    def test_ten_tenths_are_one_exactly(self) -> None:
        assert count_admitted(self.open(), PureDP(Fraction("0.1"))) == 10
        assert count_admitted(self.open(delta=Fraction(0)), DiscreteLaplace(Fraction("0.1"), 20)) == 10

    def test_without_delta_only_pure_mechanisms_are_admitted(self) -> None:
        held = self.open(delta=Fraction(0))
        assert held.admits(held.start, PureDP(ONE))
        assert not held.admits(held.start, StableTest(Fraction(1, 1000), Fraction(1, 10**12)))
        sigma = conversions.gaussian_sigma(Fraction(1, 100), TINY)
        assert not held.admits(held.start, RoundedGaussian(sigma, 1, Fraction(1, 100), TINY))

    @pytest.mark.parametrize(("share", "times"), [("0.1", 5), ("0.5", 25), ("0", 0)])
    def test_deltas_of_mechanisms_have_a_limit(self, share: str, times: int) -> None:
        held = self.open(share=share)
        times = times if held.has_rule else 50
        assert count_admitted(held, StableTest(Fraction(1, 1000), TINY / 50)) == times
        assert held.mechanism_delta == held.split(TINY, Fraction(share))
        if held.has_rule:
            assert count_admitted(held, GaussianTest(Fraction(1000), TINY / 50, Fraction(1, 1000))) == times

    def test_room_says_what_still_fits_and_more_how_often(self) -> None:
        held, cent = self.open(), PureDP(Fraction("0.01"))
        spent = held.fold([cent] * 7 + [SparseVector(Fraction("0.05"), Fraction("0.05"), 2, 1)])
        for state in (held.start, spent, held.fold([cent] * 300)):
            left = held.fits(state)
            assert left == 0 or held.admits(state, PureDP(left))
            assert not held.admits(state, PureDP(left + Fraction("0.001")))
            event = BoundedRange(Fraction("0.02"))
            many, more = held.more(state, event), state
            for _ in range(many):
                assert held.admits(more, event)
                more = held.add(more, event)
            assert not held.admits(more, event)
        room = held.room(held.fold([PureDP(Fraction("0.2"))]))
        assert "ε=0.8 of ε=1" in room.sentence
        assert room.epsilon_left == Fraction("0.8")
        assert held.more(held.start, DiscreteLaplace(Fraction(1, 10**15), 10)) in (10**15 // 1, MANY)

    def test_what_is_left_never_grows(self) -> None:
        held = self.open()

        @settings(deadline=None)
        @given(sizes=st.lists(st.sampled_from([1, 2, 5, 10, 30]), max_size=40))
        def never_grows(sizes: list[int]) -> None:
            spent, left = held.start, held.fits(held.start)
            for size in sizes:
                event = PureDP(Fraction(size, 100))
                if held.admits(spent, event):
                    spent = held.add(spent, event)
                    assert held.fits(spent) <= left
                    left = held.fits(spent)

        never_grows()

    def test_the_rule_is_a_part_of_its_limit(self) -> None:
        held, cent = self.open(), PureDP(Fraction("0.01"))
        assert (held.used_by(cent) is not None) == (held.used(held.start) is not None) == held.has_rule
        if held.has_rule:
            used = [held.used(held.fold([cent] * n)) for n in (0, 1, 100)]
            assert used[0] == 0
            assert used[0] < used[1] < used[2] <= 1
            assert "of the rule" in held.sentence(held.fold([cent]))

    def test_hits_that_were_not_found_are_free_only_without_a_rule(self) -> None:
        found = SparseVector(ONE, ONE, 10, hits=3)
        for event in (found, compose_events([found, PureDP(ONE)])):
            assert (self.open().charge(event) == event) == (not self.open().has_rule)

    @pytest.mark.parametrize("budget", [("1", "0.05"), ("0.9", "0.02"), ("1.5", "0.1")])
    def test_no_analyst_exceeds_the_budget(self, budget: tuple[str, str]) -> None:
        epsilon, delta = Fraction(budget[0]), Fraction(budget[1])
        worst = beat(self.open(epsilon, delta), *zip(*MIXED, strict=True), float(epsilon))  # type: ignore[arg-type]
        assert 0 < worst <= float(delta)

    def test_a_filter_that_admits_too_much_is_caught(self) -> None:
        lax = self.open(Fraction(3, 2), Fraction("0.05"))
        assert beat(lax, *zip(*MIXED, strict=True), 1.0) > 0.05  # type: ignore[arg-type]
