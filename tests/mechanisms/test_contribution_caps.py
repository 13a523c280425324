"""Caps that are found: a unit moves each question by at most 1, the loss is the declared one, and the search ends well."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.base import Reader
from dpsql.mechanisms.contribution_caps import RUNAWAY, CapLadder, CapSearch, find_dearest, list_caps
from dpsql.mechanisms.moments import Count
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise, Statistic
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import DiscreteLaplace, GroupSelection, PureDP, SparseVector, compose_events
from tests.support.goodness import REFUSED, fixed, laplace_pmf, p_value
from tests.support.operator_contract import OperatorContract

ONE = Fraction(1)


def histogram(units: Sequence[int], top: int) -> tuple[list[int], list[int]]:
    """Return the histogram of units that have so many rows or groups, as the exact query gives it."""
    sizes, many = np.unique(np.minimum(np.array([n for n in units if n], dtype=int), top), return_counts=True)
    return sizes.tolist(), many.tolist()


def law(ladder: CapLadder, units: Sequence[int], counted: Sequence[int] | None = None) -> list[float]:
    """The chances of the caps, added up over the threshold's noise; ``counted``: what the questions see instead."""
    statistics = ladder.measure(*histogram(counted if counted is not None else units, ladder.caps[-1]))
    first, second = (float(rate / ladder.grid) for rate in ladder.rates)
    most = max((abs(q) for q in statistics), default=0) + max((t for *_, t in ladder.questions), default=0)
    z = np.arange(most + math.ceil(60 / first))
    chance = -np.expm1(-first) * np.exp(-first * z)
    found = [0.0] * len(ladder.caps)
    for place, beyond, tolerance in ladder.questions:
        hit = np.exp(-second * np.maximum(0, z - tolerance + statistics[beyond]))
        found[place] += float((chance * hit).sum())
        chance = chance * (1 - hit)
    found[-1] += float(chance.sum())
    return found


def loss(one: Sequence[float], other: Sequence[float]) -> float:
    return max(abs(math.log(a / b)) for a, b in zip(one, other, strict=True) if a > 1e-12 and b > 1e-12)


def test_the_questions_are_what_they_are_said_to_be() -> None:
    units = [1, 1, 2, 3, 5, 8, 13, 40, 0]
    for top in (1, 4, 16, 20, 23):
        ladder = CapLadder(list_caps(top), ONE, ONE)
        got = ladder.measure(*histogram(units, top))
        want = [sum(Fraction(min(n, b) - min(n, a), b - a) for n in units) for a, b in pairwise(ladder.caps)]
        assert [Fraction(q, ladder.grid) for q in got] == want
        half = replace(ladder, halfway=True)
        assert [Fraction(q, half.grid) for q in half.measure(*histogram(units, top))] == [q - 4 for q in want]


@pytest.mark.parametrize("halfway", [False, True])
def test_one_unit_moves_every_question_by_at_most_one(halfway: bool) -> None:
    """All the same way; with a half of each unit subtracted, by a half either way."""
    ladder = CapLadder(list_caps(40), ONE, ONE, halfway)
    without = ladder.measure(*histogram([3, 9, 17], 40))
    ends = (-ladder.grid // 2, ladder.grid // 2) if halfway else (0, ladder.grid)
    moved = set()
    for n in range(1, 60):
        pairs = zip(ladder.measure(*histogram([3, 9, 17, n], 40)), without, strict=True)
        moved |= {a - b for a, b in pairs}
    assert min(moved) == ends[0]
    assert max(moved) == ends[1]


@pytest.mark.parametrize("halfway", [False, True])
@pytest.mark.parametrize("epsilon", [Fraction(1, 4), ONE, Fraction(3)])
def test_loss_on_all_small_neighbours(epsilon: Fraction, halfway: bool) -> None:
    """Every table of up to three units, with and without one of them; the bound is met to within a tenth."""
    ladder = CapLadder((1, 2, 4, 5), epsilon, Fraction(1, 2), halfway)
    laws = {
        units: law(ladder, units)
        for size in range(4)
        for units in itertools.combinations_with_replacement(range(1, 7), size)
    }
    losses = [
        loss(laws[units], laws[units[:i] + units[i + 1 :]]) for units in laws for i in range(len(units))
    ]
    assert max(losses) <= float(epsilon) * (1 + 1e-9)
    assert max(losses) > 0.6 * float(epsilon)


def test_controls_that_lose_more() -> None:
    """A count of each unit and group, and noise for a question that moves by a half where it moves by a half either way."""
    ladder = CapLadder((1, 2, 4, 8), ONE, ONE)
    groups = (8, 8, 8)  # the rows of one unit in three groups, each counted as if it were a unit
    assert loss(law(ladder, (), ()), law(ladder, (), groups)) > 1.4
    half = CapLadder((1, 2, 4, 8), ONE, Fraction(0), halfway=True)

    class Quieter(CapLadder):
        @property
        def rates(self) -> tuple[Fraction, Fraction]:
            return 2 * half.rates[0], 2 * half.rates[1]

    quieter = Quieter(half.caps, half.epsilon, half.tolerance, True)
    tables = [(1,) * a + (2,) * b + (8,) * c for a in range(3) for b in range(3) for c in range(3)]
    pairs = [(t, t[:i] + t[i + 1 :]) for t in tables for i in range(len(t))]
    assert max(loss(law(half, a), law(half, b)) for a, b in pairs) <= 1 + 1e-9
    assert max(loss(law(quieter, a), law(quieter, b)) for a, b in pairs) > 1.2


@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1, 4), Fraction(5)])
def test_it_does_not_run_away(epsilon: Fraction) -> None:
    """A cap beyond 8 times what any unit has: a chance of at most one in 10^9, whatever the data."""
    ladder = CapLadder(list_caps(64), epsilon, Fraction(1, 100))
    for units in ((), (1,) * 5, (4,) * 3, (4,) * 1000):
        first = (max(units, default=1) - 1).bit_length() + 4
        assert sum(law(ladder, units)[first:]) <= float(RUNAWAY) * 1.001
    only_near = CapLadder(list_caps(64), epsilon, Fraction(1, 100))
    asked = tuple(q for q in only_near.questions if q[0] == q[1])
    object.__setattr__(only_near, "__class__", type("Near", (CapLadder,), {"questions": asked}))
    assert sum(law(only_near, ())[4:]) > 1e-3


def test_it_stops_where_noise_and_loss_are_equal() -> None:
    """The search ends, with a large epsilon, at the first cap whose question is within the tolerance."""
    rng = np.random.default_rng(1)
    units = rng.geometric(0.05, 2000).tolist()
    for tolerance in (1, 20, 300):
        ladder = CapLadder(list_caps(1 << 12), Fraction(10**4), Fraction(tolerance))
        questions = ladder.measure(*histogram(units, 1 << 12))
        want = next(i for i, q in enumerate(questions) if q <= tolerance * ladder.grid)
        assert ladder.climb(questions, Entropy()) == want
    half = CapLadder(list_caps(1 << 12), Fraction(10**4), Fraction(0), halfway=True)
    place = half.climb(half.measure(*histogram(units, 1 << 12)), Entropy())
    assert half.caps[place] == 16  # the median is 14


@pytest.mark.parametrize("halfway", [False, True])
def test_the_draws_follow_the_law(halfway: bool) -> None:
    ladder, units = CapLadder((1, 2, 4, 7), ONE, ONE, halfway), [1, 2, 2, 5, 9]
    statistics, entropy = ladder.measure(*histogram(units, 7)), fixed(f"caps {halfway}")
    drawn = np.array([ladder.climb(statistics, entropy) for _ in range(4000)])

    def compare(to: Sequence[int]) -> float:
        chances = law(ladder, to)
        return p_value(drawn, lambda place: chances[place] if place < 4 else 0.0, signed=False)

    assert compare(units) > REFUSED
    assert compare([*units, 9, 9]) < REFUSED


@pytest.mark.parametrize("caps", [(), (2, 1), (0, 1), (1, 1)])
def test_caps_ascend(caps: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        CapLadder(caps, ONE, ONE)


# -- the operator ------------------------------------------------------------------------------------------------


def counted(cap: int) -> Aggregation:
    noise = LaplaceNoise(Fraction(1, 2), cap)
    return Aggregation(f"SELECT a{cap}", (), (Count("n", Statistic("p0", noise)),))


def search(top: int = 8, **more: object) -> CapSearch:
    caps = list_caps(top)
    least, *between, most = map(counted, caps)
    given = {
        "option": "max_rows_contributed",
        "cost": Fraction(2),
        "groups": 1,
        "epsilon": Fraction(1, 2),
        **more,
    }
    return CapSearch(query="SELECT units", caps=caps, least=least, most=most, between=tuple(between), **given)


class TestCapSearch(OperatorContract):
    operator = search()

    def exact(self, text: str) -> pa.Table:
        if text == "SELECT units":
            return pa.table({"n": pa.array([1, 2], pa.int64()), "units": pa.array([30, 2], pa.int64())})
        return pa.table({"p0": pa.array([100 + int(text[8:])], pa.int64())})

    def test_it_reads_what_it_claims(self) -> None:
        """The choice between the ends is claimed where it is taken: the reader is held to it."""
        held: list[object] = []
        reader = Reader(
            lambda text, lent: self.exact(text), hold=lambda chosen: held.append(chosen) or (None, None)
        )
        self.operator.release(reader, Entropy())
        assert len(held) == 1
        assert held[0] in self.operator.choices


def test_the_cap_that_is_found_is_the_one_of_the_answer() -> None:
    read: list[str] = []

    def execute(text: str, lent: object) -> pa.Table:
        read.append(text)
        if text == "SELECT units":
            return pa.table({"n": pa.array([4], pa.int64()), "units": pa.array([10**6], pa.int64())})
        return pa.table({"p0": pa.array([10**7], pa.int64())})

    sure = search(epsilon=Fraction(100))
    release = sure.release(Reader(execute), Entropy())
    assert read == ["SELECT units", "SELECT a4"]
    assert release.notes[0].startswith("max_rows_contributed = 4 was found privately")
    assert sure.show_again(release.table, release.noisy).equals(release.table)
    counts = search(groups="SELECT groups", cost=Fraction(10**7))

    def with_groups(text: str, lent: object) -> pa.Table:
        return pa.table({"n": pa.array([2], pa.int64())}) if text == "SELECT groups" else execute(text, lent)

    release = counts.release(Reader(with_groups), Entropy())
    assert "no larger cap was found to be worth its noise" in release.notes[0]


def test_loss_of_the_search_and_the_answer_together() -> None:
    """Compare tables of up to three units with and without one of them: the cap that is found, and the count under it."""
    ladder, epsilon = CapLadder((1, 2, 4), Fraction(1, 2), Fraction(1, 2)), Fraction(1, 2)
    tables = [t for size in range(4) for t in itertools.combinations_with_replacement(range(1, 6), size)]
    laws = {units: law(ladder, units) for units in tables}
    reach = range(-30, 60)

    def whole(units: tuple[int, ...], caps_of_noise: Sequence[int]) -> list[float]:
        """The chances of each cap with each noisy count."""
        found = []
        for place, (cap, noise) in enumerate(zip(ladder.caps, caps_of_noise, strict=True)):
            pmf, truth = laplace_pmf(LaplaceNoise(epsilon, noise).scale), sum(min(n, cap) for n in units)
            found += [laws[units][place] * pmf(out - truth) for out in reach]
        return found

    def most(caps_of_noise: Sequence[int]) -> float:
        chances = {units: np.log(whole(units, caps_of_noise)) for units in tables}
        pairs = ((units, units[:i] + units[i + 1 :]) for units in tables for i in range(len(units)))
        return max(float(np.abs(chances[a] - chances[b]).max()) for a, b in pairs)

    declared = float(compose_events([ladder.event, LaplaceNoise(epsilon, 1).event]).basic[0])
    assert 0.8 * declared < most(ladder.caps) <= declared * (1 + 1e-9)
    assert most((1, 1, 1)) > 1.5 * declared, "the control: noise of the lowest cap, whichever is found"


def test_searches_stand_in_searches() -> None:
    inner = search()
    outer = replace(
        inner,
        option="max_groups_contributed",
        query="SELECT groups",
        caps=(1, 2),
        least=inner,
        most=inner,
        between=(),
    )

    def execute(text: str, lent: object) -> pa.Table:
        if text in ("SELECT units", "SELECT groups"):
            return pa.table({"n": pa.array([8], pa.int64()), "units": pa.array([10**6], pa.int64())})
        return pa.table({"p0": pa.array([5], pa.int64())})

    release = outer.release(Reader(execute), Entropy())
    assert [note.split(" was")[0] for note in release.notes] == [
        "max_groups_contributed = 2", "max_rows_contributed = 8",
    ]  # fmt: skip
    assert outer.show_again(release.table, release.noisy).equals(release.table)
    assert outer.event.basic[0] == Fraction(3, 2)


def test_what_is_reserved_is_the_dearest_choice() -> None:
    """Laplace noise of one step costs the most rho; which choice is taken changes nothing in the plain sum."""
    event = search().event
    first, second = Fraction(1, 4), Fraction(1, 4)
    assert event == compose_events([SparseVector(first, second, 1), DiscreteLaplace(Fraction(1, 2), 1)])
    for choice in search().choices:
        whole = compose_events([SparseVector(first, second, 1), choice.event])
        assert (whole.rho, whole.mu) <= (event.rho, event.mu)
        assert whole.basic == event.basic
    gaussian = [GaussianNoise.calibrate(ONE, Fraction(1, 10**6), cap, 1).event for cap in (1, 2, 4, 1 << 20)]
    dearest = find_dearest(gaussian)
    assert dearest in gaussian
    assert all(event.mu <= dearest.mu for event in gaussian)
    huge = [GroupSelection(Fraction(10**6), Fraction(1, 10**6), 1 << i) for i in range(11)]
    assert find_dearest(huge) == huge[0]
    mixed = [PureDP(Fraction(1, 2)), DiscreteLaplace(Fraction(51, 100), 1 << 20)]
    assert find_dearest(mixed) == PureDP(Fraction(51, 100))
    with pytest.raises(ValueError, match="dearest"):
        find_dearest([GroupSelection(ONE, Fraction(1, 10**6)), PureDP(Fraction(2))])
    with pytest.raises(ValueError, match="zip"):
        find_dearest([PureDP(ONE), compose_events([PureDP(ONE), PureDP(ONE)])])
