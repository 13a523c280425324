"""Groups chosen by one table for all groups of a unit: exact losses over neighbouring counts, and the law of the choice."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from dpsql.mechanisms.per_group import (
    GroupSelector,
    RenyiGroupSelector,
    SelectionTerms,
    compute_renyi_table,
    make_group_selector,
)
from dpsql.privacy import conversions
from dpsql.privacy.events import Event, GroupSelection, RenyiSelection, StableTest
from dpsql.privacy.pld import compute_loss
from tests.support.goodness import fixed

ONE = Fraction(1)
SMALL = [
    (Fraction(3), Fraction(1, 50), 3),
    (Fraction(2), Fraction(1, 20), 4),
    (Fraction(4), Fraction(1, 30), 5),
]
"""Losses for which a table has so few rows that all neighbours can be looked at."""
MODES: dict[str, dict[str, Any]] = {
    "free": {"held": False},
    "by order": {"held": False, "orders": (Fraction(7, 2),)},
    "held": {"held": True},
}
"""The conditions that bound the steps, besides the pair."""
LARGE = [
    (ONE, Fraction(1, 10**6), 5),
    (Fraction(1, 5), Fraction(1, 10**7), 3),
    (Fraction(3), Fraction(1, 10**9), 20),
]


def chances(selector: RenyiGroupSelector | SelectionTerms) -> list[Fraction]:
    terms = selector if isinstance(selector, SelectionTerms) else selector.terms
    table = compute_renyi_table(terms)
    return [Fraction(p, table[-1]) for p in table]


def masses(p: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The chance of each set of kept groups (columns), for groups of these counts (rows)."""
    chance = p[counts]
    found = np.ones((len(counts), 1))
    for column in chance.T:
        found = np.concatenate([found * (1 - column[:, None]), found * column[:, None]], axis=1)
    return found


def worst_delta(exact: Sequence[Fraction], epsilon: Fraction, most: int) -> tuple[float, int]:
    """The largest hockey-stick divergence of all neighbours, by all sets of kept groups: a unit in 1 to ``most`` groups."""
    p, grow = np.array([float(x) for x in exact]), np.exp(float(epsilon))
    worst, pairs = 0.0, 0
    for touched in range(1, most + 1):
        counts = np.array(list(itertools.combinations_with_replacement(range(len(p)), touched)))
        without, there = masses(p, counts), masses(p, np.minimum(counts + 1, len(p) - 1))
        for one, other in ((without, there), (there, without)):
            worst = max(worst, float(np.maximum(0, one - grow * other).sum(axis=1).max()))
        pairs += len(counts)
    return worst * (1 + 1e-12), pairs


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("epsilon", "delta", "groups"), SMALL)
def test_no_neighbours_are_told_apart(epsilon: Fraction, delta: Fraction, groups: int, mode: str) -> None:
    selector = RenyiGroupSelector("u", epsilon, delta, groups, **MODES[mode])
    p = chances(selector)
    found, pairs = worst_delta(p, epsilon, groups)
    assert pairs > 200
    assert 0 < found <= delta
    wide = SelectionTerms(((selector.order, selector.divergence),), selector.terms.step)
    not_shared, _ = worst_delta(chances(wide), epsilon, groups)
    assert not_shared > delta, "a divergence that is not divided by the groups of a unit: the control"
    each = replace(selector.terms, step=selector.delta)
    assert worst_delta(chances(each), epsilon, groups)[0] > delta, (
        "a delta for each of a unit's groups: the control"
    )
    steep = [*p[: len(p) // 2 : 2], *p[len(p) // 2 :]]
    assert worst_delta(steep, epsilon, groups)[0] > found, "a table of which rows are left out"


def logs(x: Fraction) -> tuple[mpmath.mpf, mpmath.mpf]:
    return tuple(mpmath.log(mpmath.mpf(y.numerator) / y.denominator) for y in (x, 1 - x))  # type: ignore[return-value]


def divergence(p: Fraction, q: Fraction, order: mpmath.mpf) -> mpmath.mpf:
    """The Rényi divergence of two coins."""
    terms = (mpmath.exp(order * a + (1 - order) * b) for a, b in zip(logs(p), logs(q), strict=True))
    return mpmath.log(sum(terms)) / (order - 1)


def steps(selector: RenyiGroupSelector) -> Iterator[tuple[Fraction, Fraction]]:
    """The two chances of every step, without the delta that is set aside."""
    p, rest = chances(selector), 1 - selector.terms.step
    for a, b in itertools.pairwise(p):
        x, y = a / rest, (b - selector.terms.step) / rest
        if x < 1 and y > 0:
            yield x, y


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("epsilon", "delta", "groups"), [*SMALL, *LARGE])
def test_every_step_is_within_what_is_charged(
    epsilon: Fraction, delta: Fraction, groups: int, mode: str
) -> None:
    selector = RenyiGroupSelector("u", epsilon, delta, groups, **MODES[mode])
    one = GroupSelection(epsilon / groups, Fraction(1, 10**9))
    event, tight, seen = selector.event, 0, 0
    assert isinstance(event, RenyiSelection)
    assert (1 - selector.terms.step) ** groups >= 1 - event.aside
    with mpmath.workdps(40):
        room, order = _float(selector.divergence / groups), _float(selector.order)
        for p, q in steps(selector):
            assert p <= q
            if p == q:
                continue
            both = [divergence(p, q, order), divergence(q, p, order)]
            assert max(both) <= room
            seen += 1
            tight += max(both) > room * (1 - mpmath.mpf(10) ** -5)
            for a in selector.orders:
                most = min(_float(one.rho) * _float(a), _float(conversions.pure_renyi(epsilon / groups, a)))
                found = max(divergence(p, q, _float(a)), divergence(q, p, _float(a)))
                assert found <= most * (1 + 1e-12)
                tight += found > most * (1 - mpmath.mpf(10) ** -5)
            if not selector.held:
                continue
            for a in (mpmath.mpf("1.0001"), mpmath.mpf("1.5"), mpmath.mpf(3), order, 10 * order):
                assert max(divergence(p, q, a), divergence(q, p, a)) <= a * float(one.rho) * (1 + 1e-12)
            wide = mpmath.sqrt(2) * (mpmath.erfinv(2 * _float(q) - 1) - mpmath.erfinv(2 * _float(p) - 1))
            assert wide <= float(one.mu) * (1 + 1e-12)
    assert tight, "no step goes as far as it may"
    assert mode != "free" or tight >= seen - 3, "all steps but those around the middle do"


def _float(x: Fraction) -> mpmath.mpf:
    return mpmath.mpf(x.numerator) / x.denominator


@pytest.mark.parametrize(("epsilon", "delta", "groups"), SMALL[:1])
def test_epsilon_is_a_pure_part_beside_delta(epsilon: Fraction, delta: Fraction, groups: int) -> None:
    """The decomposition of which the event speaks, made: the same part is left, and nothing in it is larger than before."""
    selector = RenyiGroupSelector("u", epsilon, delta, groups)
    cut = 0
    with mpmath.workdps(30):
        d, most = _float(delta), _float(epsilon)
        for pair in itertools.combinations_with_replacement(
            list(itertools.pairwise(chances(selector))), groups
        ):
            kept = list(itertools.product((0, 1), repeat=groups))
            mass = [
                [
                    mpmath.fprod(_float(c[side] if k else 1 - c[side]) for c, k in zip(pair, ks, strict=True))
                    for ks in kept
                ]
                for side in (0, 1)
            ]
            if sum(abs(a - b) for a, b in zip(*mass, strict=True)) / 2 <= d:
                continue
            cut += 1
            one, other = (cut_off(*m, d, most) for m in (mass, mass[::-1]))
            for left, whole in ((one, mass[0]), (other, mass[1])):
                assert abs(sum(left) - (1 - d)) < mpmath.mpf(10) ** -9
                assert all(a <= b * (1 + mpmath.mpf(10) ** -12) for a, b in zip(left, whole, strict=True))
            for a, b in zip(one, other, strict=True):
                if max(a, b) > 0:
                    assert min(a, b) > 0
                    assert abs(mpmath.log(a / b)) <= most + mpmath.mpf(10) ** -10
            for order in (mpmath.mpf("1.2"), mpmath.mpf(3), mpmath.mpf(9)):
                assert renyi(one, other, order) <= float(selector.event.renyi(_exact(order))) + 1e-9
    assert cut > 50


def cut_off(
    p: Sequence[mpmath.mpf], q: Sequence[mpmath.mpf], d: mpmath.mpf, most: mpmath.mpf
) -> list[mpmath.mpf]:
    """P where it is at most e^t Q, else that, for the t at which d is cut off."""

    def over(t: mpmath.mpf) -> mpmath.mpf:
        return sum(max(mpmath.mpf(0), a - mpmath.exp(t) * b) for a, b in zip(p, q, strict=True))

    assert over(most) <= d
    low, high = mpmath.mpf(0), most
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if over(middle) > d else (low, middle)
    return [min(a, mpmath.exp(high) * b) for a, b in zip(p, q, strict=True)]


def renyi(p: Sequence[mpmath.mpf], q: Sequence[mpmath.mpf], order: mpmath.mpf) -> mpmath.mpf:
    total = sum(p)
    return mpmath.log(
        sum(a**order * b ** (1 - order) for a, b in zip(p, q, strict=True) if a > 0) / total
    ) / (order - 1)


def _exact(x: mpmath.mpf) -> Fraction:
    return Fraction(str(x)).limit_denominator(1000)


# -- what it brings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("groups", [3, 5, 10, 20])
@pytest.mark.parametrize(
    ("epsilon", "delta"), [("1", "1e-6"), ("0.3", "1e-8"), ("2.5", "1e-6"), ("1", "0.05")]
)
def test_more_groups_are_kept_than_by_even_shares(epsilon: str, delta: str, groups: int, mode: str) -> None:
    even = GroupSelector("u", Fraction(epsilon), Fraction(delta), groups)
    better = make_group_selector(even, **MODES[mode])
    assert isinstance(better, RenyiGroupSelector)
    for p in (0.1, 0.5, 0.9, 0.999):
        assert better._least(p) <= even._least(p)
    assert better._least(0.5) < even._least(0.5)


def test_the_figures_that_are_told() -> None:
    for groups, even, *others in ((5, 67, 41, 41, 41), (20, 263, 67, 67, 94), (50, 657, 90, 106, 231)):
        shared = GroupSelector("u", ONE, Fraction(1, 10**6), groups)
        found = [make_group_selector(shared, **mode)._least(0.5) for mode in MODES.values()]
        assert [shared._least(0.5), *found] == [even, *others]


@pytest.mark.parametrize(
    "even",
    [
        GroupSelector("u", ONE, Fraction(1, 10**6)),
        GroupSelector("u", ONE, Fraction(1, 10**6), 2),
        GroupSelector("u", ONE, Fraction(1, 10**6), 5, "laplace_threshold"),
        GroupSelector("u", Fraction(30), Fraction(1, 10**6), 5),
        GroupSelector("u", ONE, Fraction(1, 2), 5),
        GroupSelector("u", Fraction(1, 10**9), Fraction(1, 10**6), 5),
    ],
    ids=["one group", "two", "another strategy", "a large share", "half of all", "too many rows"],
)
def test_where_even_shares_are_as_good_they_are_taken(even: GroupSelector) -> None:
    assert make_group_selector(even, True) is even


def chi_square(observed: Sequence[float], expected: Sequence[float], free: int) -> float:
    """The chance of counts that are so far from what is expected, or further."""
    far = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    return float(mpmath.gammainc(free / 2, far / 2, mpmath.inf, regularized=True))


def test_groups_are_kept_as_often_as_said() -> None:
    selector = RenyiGroupSelector("u", Fraction(3), Fraction(1, 50), 3, minimum=4)
    p = [0.0] * 3 + [float(x) for x in chances(selector)]
    assert [selector.probability(n) for n in range(len(p))] == p
    drawn, counts = 4000, np.repeat(np.arange(len(p)), 4000)
    kept = selector.keep(counts, fixed("kept")).reshape(len(p), drawn).sum(axis=1)
    assert not kept[:4].sum() - kept[3]
    assert kept[-1] == drawn
    inner = [i for i, x in enumerate(p) if 0.003 < x < 0.997]
    observed = [n for i in inner for n in (kept[i], drawn - kept[i])]
    expected = [drawn * x for i in inner for x in (p[i], 1 - p[i])]
    shifted = [drawn * x for i in inner for x in (p[i - 1], 1 - p[i - 1])]
    assert chi_square(observed, expected, len(inner)) > 1e-6
    assert chi_square(observed, [max(x, 10.0) for x in shifted], len(inner)) < 1e-6, "the control must fail"


# -- the event ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta", "groups"), [*SMALL, *LARGE])
def test_it_costs_no_more_than_even_shares(epsilon: Fraction, delta: Fraction, groups: int) -> None:
    event, even = (
        RenyiGroupSelector("u", epsilon, delta, groups).event,
        GroupSelection(epsilon, delta, groups),
    )
    assert event.basic == even.basic
    assert (event.epsilon, event.delta, event.pure) == (even.epsilon, even.delta, None)
    assert (event.rho, event.mu) == (even.rho, even.mu)
    orders = (Fraction(7, 2), Fraction(20))
    by_order = RenyiGroupSelector("u", epsilon, delta, groups, held=False, orders=orders).event
    assert all(by_order.renyi(a) <= even.renyi(a) for a in orders)
    assert by_order.renyi(Fraction(2)) <= even.renyi(orders[0])
    free = RenyiGroupSelector("u", epsilon, delta, groups, held=False).event
    one = StableTest(epsilon, delta)
    assert (free.rho, free.mu, free.basic) == (one.rho, one.mu, one.basic)
    assert all(free.renyi(a) <= one.renyi(a) for a in (Fraction(3, 2), Fraction(5), Fraction(50)))
    assert isinstance(event, RenyiSelection)
    assert event.renyi(event.order) <= event.divergence


def test_its_loss_distribution_covers_it() -> None:
    epsilon, delta, groups = SMALL[0]
    selector = RenyiGroupSelector("u", epsilon, delta, groups)
    for mode in MODES.values():
        loss = compute_loss((replace(selector, **mode).event,))
        p = chances(replace(selector, **mode))
        for x in (0.0, 0.5, 1.0, 2.0):
            assert worst_delta(p, Fraction(x), groups)[0] <= loss.delta(x)


BAD: list[Callable[[RenyiSelection], Event]] = [
    lambda e: replace(e, epsilon=e.epsilon * Fraction(9, 10)),
    lambda e: replace(e, delta=e.delta * Fraction(6, 10)),
    lambda e: replace(e, divergence=e.divergence * Fraction(101, 100)),
    lambda e: replace(e, aside=e.delta),
    lambda e: replace(e, order=ONE),
    lambda e: replace(e, orders=(ONE,)),
    lambda e: replace(e, groups=0),
]


@pytest.mark.parametrize("spoil", BAD)
def test_an_event_is_checked(spoil: Callable[[RenyiSelection], Event]) -> None:
    event = RenyiGroupSelector("u", ONE, Fraction(1, 10**6), 5).event
    assert isinstance(event, RenyiSelection)
    with pytest.raises(ValueError):
        spoil(event)


def test_explain_says_which_it_is() -> None:
    said = RenyiGroupSelector("u", ONE, Fraction(1, 10**6), 5).sentence()
    assert said == (
        "groups are selected by their number of units (optimal at Rényi order 21.3 for 5 groups of a unit together, ε=1, "
        "δ=1e-06): a group appears with probability 1e-07 from 1 unit, above one half from 41, above 0.999 from 67; smaller "
        "groups are left out"
    )
