"""The time that it takes to price the next statement after many, and to read a long log."""

from __future__ import annotations

import random
import time
from fractions import Fraction

import pytest

from dpsql.privacy.events import DiscreteLaplace, Event, PureDP
from dpsql.privacy.filters import ACCOUNTANTS, open_filter
from dpsql.privacy.pld import declare
from tests.support.benchmarks import Benchmarks, Figure

pytestmark = pytest.mark.benchmark


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_the_next_statement_after_ten_thousand(accountant: str, benchmarks: Benchmarks) -> None:
    dice = random.Random(1)
    held = open_filter(accountant, Fraction(1000), Fraction(1, 10**6))
    spent = held.start
    events: list[Event] = [
        DiscreteLaplace(Fraction(dice.randint(1, 50), 1000), dice.randint(1, 9)) for _ in range(10_000)
    ]
    begin = time.perf_counter()
    for event in events:
        spent = held.add(spent, event)
    folded = time.perf_counter() - begin
    begin = time.perf_counter()
    for i in range(1, 101):  # each epsilon is new: nothing is remembered
        event = PureDP(Fraction(7919 * i, 10**7))
        held.admits(spent, event)
        held.room(spent)
        held.more(spent, event)
    each = (time.perf_counter() - begin) / 100
    print(f"{accountant}: fold of 10,000 {folded:.2f} s")
    benchmarks.note(Figure(f"W10 price of the next of a filter, {accountant}", each * 1000, 5, unit="ms"))
    assert each < 0.005


def test_a_declared_plan_of_a_hundred() -> None:
    begin = time.perf_counter()
    declare([DiscreteLaplace(Fraction("0.1"), 1000)] * 100, Fraction(1, 10**6))
    print(f"declared plan of 100: {time.perf_counter() - begin:.2f} s")
