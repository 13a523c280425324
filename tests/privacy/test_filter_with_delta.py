"""The plain sum goes on after a delta was used: what fits then, and that no analyst gains by it; five rules that fail."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from dpsql.mechanisms.per_group import RenyiGroupSelector
from dpsql.numerics.exact_numbers import compute_root
from dpsql.privacy import conversions
from dpsql.privacy.accountants import RuleAccountant, Spent, suggest_delta
from dpsql.privacy.amounts import format_percent
from dpsql.privacy.events import (
    BoundedRange,
    DiscreteLaplace,
    Event,
    GroupSelection,
    PureDP,
    RoundedGaussian,
    SparseVector,
    StableTest,
    compose_events,
)
from dpsql.privacy.filters import ACCOUNTANTS, Zcdp, open_filter
from tests.support.games import Counts, Play, Rule, answered, worst
from tests.support.vectors import exact, vectors

VECTORS = vectors("filter_with_delta")
ONE, TINY, CENT = Fraction(1), Fraction(1, 10**6), PureDP(Fraction("0.01"))


# -- what fits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "least"), [("0.5", 455), ("0.1", 480)])
def test_queries_of_a_hundredth(share: str, least: int) -> None:
    held = open_filter("zcdp", ONE, TINY, Fraction(share))
    spent, count = held.start, 0
    while held.admits(spent, CENT):
        spent, count = held.add(spent, CENT), count + 1
    assert count == held.more(held.start, CENT) >= least


@pytest.mark.parametrize("accountant", ["zcdp", "gdp", "basic"])
@pytest.mark.parametrize("share", ["0.1", "0.5"])
def test_nine_tenths_after_ten_private_groupings(accountant: str, share: str) -> None:
    held = open_filter(accountant, ONE, TINY, Fraction(share))
    grouping, tenth = GroupSelection(Fraction("0.01"), Fraction(1, 10**8)), PureDP(Fraction("0.1"))
    spent = held.start
    for event in [grouping] * 10 + [tenth] * 9:
        assert held.admits(spent, event)
        spent = held.add(spent, event)
    assert spent.epsilon == ONE
    assert spent.near == ONE or accountant == "basic"
    assert not held.admits(spent, tenth)
    assert not held.admits(spent, PureDP(Fraction(1, 10**9)))
    assert held.fits(spent) == 0


def test_one_large_query_after_a_delta() -> None:
    used = StableTest(Fraction("0.5"), Fraction(1, 10**8))
    held = open_filter("zcdp", Fraction(3), TINY, Fraction("0.1"))
    spent = held.add(held.start, used)
    assert held.fits(spent) == Fraction("2.5")
    assert held.admits(spent, PureDP(Fraction("2.5")))
    assert not held.admits(spent, PureDP(Fraction("2.5001")))
    assert held.more(spent, CENT) >= 2600
    assert open_filter("zcdp", Fraction(3), TINY).fits(spent_of(Fraction(3), used)) == Fraction("2.5")


def spent_of(epsilon: Fraction, event: Event) -> Spent:
    held = open_filter("zcdp", epsilon, TINY)
    return held.add(held.start, event)


@pytest.mark.parametrize("row", VECTORS["gains"], ids=lambda r: "-".join(map(str, [*r.values()][:7])))
def test_gains(row: dict[str, Any]) -> None:
    """The vectors' numbers of mechanisms fit after some with a delta: with the ongoing sum, and with one order."""
    epsilon, delta, share = exact(row["epsilon"]), exact(row["delta"]), exact(row["share"])
    held = open_filter(row["accountant"], epsilon, delta, share)
    assert isinstance(held, RuleAccountant)
    assert float(held.limit) == pytest.approx(float(row["limit"]), rel=1e-11)
    plain = type(held)(epsilon, delta, held.limit, held.aside)
    if isinstance(held, Zcdp):
        assert float(held.orders[0]) == pytest.approx(float(row["order"]), rel=1e-4)
    for rule, told in ((plain, row["F"]), (held, row.get("F_order", row["F"]))):
        used = StableTest(exact(row["each"]), delta * share / 100)
        spent = rule.fold([used] * row["used"])
        assert float(significant_down(rule.fits(spent))) == pytest.approx(float(told["largest"]), abs=1e-4)
        for each in ("0.1", "0.01"):
            assert rule.more(spent, PureDP(Fraction(each))) == told[each]
    assert held.more(held.start, CENT) >= plain.more(plain.start, CENT)


def significant_down(value: Fraction) -> Fraction:
    return Fraction(math.floor(value * 10**4), 10**4)


def test_one_order_admits_all_that_the_sum_of_rho_admits() -> None:
    dice = random.Random(5)
    held = open_filter("zcdp", Fraction(2), TINY)
    assert isinstance(held, Zcdp)
    assert held.order is not None
    for _ in range(300):
        event = dice.choice(EVENTS)(Fraction(dice.randint(1, 900), 1000))
        assert event.renyi(held.order) <= held.order * event.rho
        assert held.more(held.start, event) >= held.limit // event.rho


EVENTS: list[Callable[[Fraction], Event]] = [
    PureDP,
    BoundedRange,
    lambda e: DiscreteLaplace(e, 7, 3),
    lambda e: GroupSelection(e, Fraction(1, 10**18), 4),
    lambda e: SparseVector(e / 2, e / 2, 5, refresh=True),
    lambda e: compose_events([PureDP(e), BoundedRange(e)]),
]


@pytest.mark.parametrize("epsilon", ["0.01", "1", "3", "40", "1000000"])
def test_the_order_does_not_depend_on_the_floats_of_a_machine(
    epsilon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = conversions.find_best_order(Fraction(epsilon), TINY)
    look = conversions._maximum
    for off in (-3e-6, 1e-7, 2e-5):  # another machine's logarithms, much worse than any
        monkeypatch.setattr(conversions, "_maximum", lambda f, off=off: look(f) + off)
        assert conversions.find_best_order.__wrapped__(Fraction(epsilon), TINY) == found


@pytest.mark.parametrize("order", ["1.5", "5.8575", "22"])
def test_the_divergence_of_randomised_response(order: str) -> None:
    a = float(order)
    for epsilon in ("0.001", "0.1", "1", "7"):
        e = float(epsilon)
        up, down = 1 / (1 + math.exp(-e)), 1 / (1 + math.exp(e))
        whole = math.log(up**a * down ** (1 - a) + down**a * up ** (1 - a)) / (a - 1)
        assert float(conversions.pure_renyi(Fraction(epsilon), Fraction(order))) == pytest.approx(
            whole, rel=1e-8
        )
    for case in VECTORS["cases"]:
        for mechanism in case["mechanisms"] if "order" in case else ():
            if mechanism["epsilon"] is not None:
                renyi = PureDP(exact(mechanism["epsilon"])).renyi(exact(case["order"]))
                assert float(renyi) == pytest.approx(float(mechanism["order_charge"]), abs=1e-14)
    big = conversions.pure_renyi(Fraction(10**6), Fraction(order))
    assert Fraction(10**6) - 1 < big <= 10**6


@pytest.mark.parametrize("order", ["1.5", "9.36"])
def test_a_mechanism_never_exceeds_the_divergence_that_it_is_charged(order: str) -> None:
    a, e = float(order), 0.8
    for share in (0.1, 0.3, 0.5, 0.7, 0.9):  # bounded range: losses t and t - epsilon
        t = share * e
        up = -math.expm1(t - e) / -math.expm1(-e)
        true = math.log(up * math.exp((a - 1) * t) + (1 - up) * math.exp((a - 1) * (t - e))) / (a - 1)
        assert true <= float(BoundedRange(Fraction("0.8")).renyi(Fraction(order)))
    total = sum(math.exp(-e * abs(k) / 7) for k in range(-400, 401))  # discrete Laplace, moved by seven steps
    moved = sum(math.exp(-e * (a * abs(k) + (1 - a) * abs(k + 7)) / 7) for k in range(-400, 401))
    true = math.log(moved / total) / (a - 1)
    assert true <= float(DiscreteLaplace(Fraction("0.8"), 7).renyi(Fraction(order)))


def test_gaussian_noise_ends_the_plain_sum() -> None:
    sigma = conversions.gaussian_sigma(Fraction(1, 10), TINY)
    noise = RoundedGaussian(sigma, 1, Fraction(1, 10), TINY)
    for accountant in ("zcdp", "gdp"):
        held = open_filter(accountant, ONE, TINY)
        assert held.admits(held.start, PureDP(Fraction("0.9")))
        spent = held.add(held.start, noise)
        assert spent.near is None
        assert not held.admits(spent, PureDP(Fraction("0.9")))
        assert 0 < held.fits(spent) < Fraction("0.6")


def test_what_is_left_is_said_by_the_arm_that_admits() -> None:
    held = open_filter("zcdp", ONE, TINY)
    few, many = held.fold([CENT] * 20), held.fold([CENT] * 300)
    assert held.room(few).rule is None
    assert held.room(few).sentence == "ε=0.8 of ε=1 left"
    room = held.room(many)
    assert room.rule is not None
    assert room.rule == held.used(many) == 300 * held.used_by(CENT)
    assert (
        room.sentence
        == f"ε={float(room.epsilon_left):.4g} of ε=1 left for one more, {format_percent(room.rule)} of the rule used"
    )
    assert "65% of the rule" in held.sentence(many)
    basic = open_filter("basic", ONE, TINY)
    assert basic.used_by(CENT) is basic.used(basic.start) is basic.room(basic.start).rule is None


def test_sums_of_another_filter_are_not_taken() -> None:
    one, other = open_filter("zcdp", ONE, TINY), open_filter("zcdp", Fraction(3), TINY)
    spent = one.fold([CENT] * 100)
    for used in (other.admits, other.more, other.add):
        with pytest.raises(ValueError, match="another filter"):
            used(spent, CENT)


def test_a_delta_for_one_statement() -> None:
    assert suggest_delta(Fraction(5, 10**7)) == Fraction(1, 10**8)
    assert suggest_delta(Fraction(17, 10**8)) == Fraction(3, 10**9)
    assert suggest_delta(-TINY) == 0


# -- the cleverest analyst ------------------------------------------------------------------------------------------


class Case:
    """A row of the vectors: its mechanisms as plays and as events."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.row, mechanisms = row, row["mechanisms"]
        self.epsilon, self.limit = exact(row["epsilon"]), exact(row["limit"])
        self.delta_m, self.total = exact(row["delta_m"]), exact(row["delta_total"])
        self.charges = [exact(m["charge"]) for m in mechanisms]
        self.deltas = [exact(m["delta"]) for m in mechanisms]
        self.losses = [None if m["epsilon"] is None else exact(m["epsilon"]) for m in mechanisms]
        self.plays = [
            answered(loss, delta)
            if loss is not None
            else Play(tuple((float(p), exact(x)) for p, x in m["outcomes"]))
            for m, loss, delta in zip(mechanisms, self.losses, self.deltas, strict=True)
        ]
        self.events = [self._event(i) for i in range(len(mechanisms))]

    def _event(self, i: int) -> Event:
        loss, delta = self.losses[i], self.deltas[i]
        if loss is not None:
            return StableTest(loss, delta) if delta else PureDP(loss)
        squared = self.charges[i] * (1 if self.row["accountant"] == "gdp" else 2)
        return RoundedGaussian(compute_root(1 / squared), 1, Fraction(8), Fraction(1, 2))

    def filter(self, order: bool) -> RuleAccountant:
        alpha = exact(self.row["order"]) if order else None
        limit = self.limit if alpha is None else exact(self.row["limit_order"]) / alpha
        kind = ACCOUNTANTS[self.row["accountant"]]
        assert issubclass(kind, RuleAccountant)
        held = kind(self.epsilon, self.total, limit, self.delta_m)
        return replace(held, order=alpha) if alpha is not None else held

    def worst(self, rule: Rule) -> float:
        return worst(self.plays, rule, self.epsilon)


def ours(held: RuleAccountant, events: list[Event]) -> Rule:
    """The filter as the ledger uses it: sums, event by event."""

    @cache
    def spent(counts: Counts) -> Spent:
        for i, n in enumerate(counts):
            if n:
                before = tuple(m - (j == i) for j, m in enumerate(counts))
                return held.add(spent(before), events[i])
        return held.start

    def admits(before: Counts, after: Counts) -> bool:
        played = next(i for i, (m, n) in enumerate(zip(before, after, strict=True)) if m != n)
        return held.admits(spent(before), events[played])

    return admits


CASES = [Case(row) for row in VECTORS["cases"]]


def named(case: Case) -> str:
    return f"{case.row['accountant']}-{case.epsilon}-{case.delta_m}-{case.total}"


@pytest.mark.parametrize("case", CASES, ids=named)
def test_no_analyst_exceeds_the_sharp_bound(case: Case) -> None:
    row = case.row
    reached = case.worst(ours(case.filter(order=False), case.events))
    assert reached == pytest.approx(float(row["worst"]["F"]), rel=1e-12)
    assert reached <= float(row["sharp_bound"]) * (1 + 1e-12)
    assert float(row["sharp_bound"]) <= case.total
    good = float(row["worst"]["good_parts"])
    assert 1 - (1 - float(case.delta_m)) * (1 - good) == pytest.approx(float(row["sharp_bound"]), rel=1e-12)
    assert reached >= float(row["worst"]["today"]) * (1 - 1e-12)
    if "order" in row:
        with_order = case.worst(ours(case.filter(order=True), case.events))
        assert with_order <= float(row["sharp_bound_order"]) * (1 + 1e-12)
        assert float(row["sharp_bound_order"]) <= case.total
        assert with_order == pytest.approx(float(row["worst"]["F_order"]), rel=1e-12)


MECHANISMS: list[tuple[Event, Play]] = [
    *((PureDP(Fraction(k, 10)), answered(Fraction(k, 10))) for k in (1, 2, 3, 5)),
    *(
        (StableTest(Fraction(k, 10), Fraction(d, 1000)), answered(Fraction(k, 10), Fraction(d, 1000)))
        for k, d in ((1, 5), (1, 10), (2, 4), (4, 15))
    ),
]


def good_parts(chosen: list[tuple[Event, Play]]) -> list[PureDP]:
    """The mechanisms without their deltas, each once."""
    return [PureDP(epsilon) for epsilon in dict.fromkeys(event.epsilon for event, _ in chosen) if epsilon]


def states(held: RuleAccountant, events: list[PureDP]) -> float:
    """About how many states a game has."""
    return math.prod(1 + held.more(held.start, event) for event in events) / math.factorial(len(events))


@pytest.mark.parametrize("seed", range(24))
def test_random_games(seed: int) -> None:
    """Budgets, shares and mechanisms by chance: the filter as it is opened, against every analyst."""
    dice = random.Random(seed)
    epsilon = Fraction(dice.randint(4, 14), 10)
    delta, share = Fraction(dice.randint(20, 80), 1000), Fraction(dice.choice([1, 2, 5, 8]), 10)
    for accountant in ("zcdp", "gdp"):
        held = open_filter(accountant, epsilon, delta, share)
        assert isinstance(held, RuleAccountant)
        chosen = dice.sample(MECHANISMS, 4)
        while states(held, good_parts(chosen)) > 400:
            chosen = chosen[1:]
        reached = worst([play for _, play in chosen], ours(held, [event for event, _ in chosen]), epsilon)
        without = good_parts(chosen)
        alone = replace(held, epsilon=Fraction(1, 10**9))
        good = worst([answered(event.epsilon) for event in without], ours(alone, list(without)), epsilon)
        sharp = 1 - (1 - float(held.aside)) * (1 - good)
        assert reached <= sharp * (1 + 1e-12)
        assert sharp <= float(delta) * (1 + 1e-12)


def test_a_filter_that_forgets_the_deltas_of_the_plain_sum_is_beaten() -> None:
    held = open_filter("zcdp", ONE, Fraction("0.04"))
    assert isinstance(held, RuleAccountant)
    chosen = MECHANISMS[:2] + MECHANISMS[5:6]
    events = [event for event, _ in chosen]
    lax = ours(held, [PureDP(e.epsilon) for e in events if e.epsilon])  # charged as if there were no delta
    assert worst([play for _, play in chosen], ours(held, events), ONE) <= 0.04
    assert worst([play for _, play in chosen], lax, ONE) > 0.08


def choose_counts(table: list[float], groups: int, epsilon: Fraction) -> list[tuple[int, ...]]:
    """Find the counts of a unit's groups without it whose neighbours are told apart most, at several epsilons."""
    rows = list(itertools.combinations_with_replacement(range(len(table) - 1), groups))
    found = {max(rows, key=lambda counts: apart(table, counts, float(epsilon) * x)) for x in (0.3, 0.9)}
    return sorted(found)


def sets(table: list[float], counts: tuple[int, ...]) -> list[float]:
    """The chance of each set of kept groups."""
    return [
        math.prod(table[n] if k else 1 - table[n] for n, k in zip(counts, kept, strict=True))
        for kept in itertools.product((0, 1), repeat=len(counts))
    ]


def apart(table: list[float], counts: tuple[int, ...], epsilon: float) -> float:
    pair = sets(table, tuple(n + 1 for n in counts)), sets(table, counts)
    return sum(max(0.0, p - math.exp(epsilon) * q) for p, q in zip(*pair, strict=True))


def play_of(p: list[float], q: list[float], grid: int) -> Play:
    """Return the chances p by their loss against q: rounded up to a grid, so never less than it is."""
    seen: dict[Fraction, float] = {}
    for x, y in zip(p, q, strict=True):
        if x > 0 and y > 0:
            loss = Fraction(math.ceil(math.log(x / y) * grid - 1e-9), grid)
            seen[loss] = seen.get(loss, 0.0) + x
    betrays = sum(x for x, y in zip(p, q, strict=True) if y == 0)
    return Play(tuple((x, loss) for loss, x in seen.items()), betrays)


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
def test_groups_chosen_by_one_table_are_no_way_around_the_filter(accountant: str) -> None:
    """The mechanism's epsilon counts in the plain sum, its delta beside it: checked by every analyst over its true losses."""
    total, epsilon = Fraction("0.06"), Fraction("0.4")
    held = open_filter(accountant, ONE, total)
    assert isinstance(held, RuleAccountant)
    selector = RenyiGroupSelector(
        "u", epsilon, Fraction("0.012"), 3, held=not held.orders, orders=held.orders
    )
    rows = selector._table()
    table = [row / rows[-1] for row in rows]
    plays = [answered(Fraction(1, 5))]
    events: list[Event] = [PureDP(Fraction(1, 5))]
    for counts in choose_counts(table, 3, epsilon):
        pair = sets(table, tuple(n + 1 for n in counts)), sets(table, counts)
        plays += [play_of(*pair, 50), play_of(*pair[::-1], 50)]
        events += [selector.event] * 2
    reached = worst(plays, ours(held, events), ONE)
    assert 0.1 * float(total) < reached <= float(total)
    few = [PureDP(Fraction(1, 2)), *[PureDP(epsilon / 3)] * 2]
    alone = [answered(Fraction(1, 2)), *plays[1:3]]
    assert worst(alone, ours(held, few), ONE) > float(total), (
        "charged as one decision, without its delta: the control"
    )
