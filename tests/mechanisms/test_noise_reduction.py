"""Noise that is reduced until intervals are narrow: what is charged, what is shown, and how often an interval misses."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms import aggregation
from dpsql.mechanisms.aggregation import RUNGS, NoiseReducedAggregation, measure_widths, rescale_statistics
from dpsql.mechanisms.base import Release
from dpsql.mechanisms.moments import Count, Mean, Variance
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise, Statistic
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import NoiseChain
from dpsql.privacy.events import Composed, DiscreteLaplace, Event, NoiseReduction, PureDP, compose_events
from dpsql.privacy.filters import open_filter
from dpsql.privacy.pld import declare
from tests.support.goodness import fixed
from tests.support.operator_contract import OperatorContract

HALF = Fraction(1, 2)
STEPS = 16
MEAN = Mean(
    "a", Statistic("t", LaplaceNoise(HALF, 50 * STEPS)), Statistic("n", LaplaceNoise(HALF, 1)), Fraction(STEPS),
    Fraction(50), (Fraction(0), Fraction(100)),
)  # fmt: skip


def plan(
    error: str, *more: Count, keys: tuple[str, ...] = (), confidence: float = 0.95
) -> NoiseReducedAggregation:
    outputs = (MEAN, *more)
    return NoiseReducedAggregation(
        "Q", keys, outputs, confidence=confidence, error=Fraction(error), reduced=("a",)
    )


def rows(n: int, mean: float) -> pa.Table:
    return pa.table({"t": [round((mean - 50) * STEPS * n)], "n": [n]})


def ask(operator: NoiseReducedAggregation, table: pa.Table, entropy: Entropy) -> Release:
    return operator.release(lambda sql, lent=None: table, entropy)


def width_at(factor: Fraction, n: int, mean: float) -> float:
    """The width that noise of this part of the epsilon gives around the true moments."""
    output = rescale_statistics(MEAN, factor)
    values = {output.total: np.array([round((mean - 50) * STEPS * n)]), output.count: np.array([n])}
    return float(measure_widths(output.show(values, 0.95))[0])


def best_fixed(error: float, n: int, mean: float) -> float:
    """The least epsilon, fixed beforehand by somebody who knows the data, that gives the error."""
    low, high = Fraction(1, 10**6), Fraction(1)
    assert width_at(high, n, mean) <= error < width_at(low, n, mean)
    while high / low > Fraction(1001, 1000):
        middle = Fraction((float(low) * float(high)) ** 0.5)
        low, high = (low, middle) if width_at(middle, n, mean) <= error else (middle, high)
    return float(high)


class TestNoiseReducedAggregation(OperatorContract):
    operator = plan("5", Count("c", Statistic("n", LaplaceNoise(Fraction(1, 10), 1))), keys=("k",))

    def exact(self, text: str) -> pa.Table:
        return pa.table({"k": ["x", "y"], "t": [2000 * STEPS, -900 * STEPS], "n": [400, 300]})


@pytest.mark.parametrize(("n", "error", "mean"), [(2000, "5", 60), (10_000, "0.5", 90), (100_000, "0.1", 30)])
def test_it_costs_little_more_than_the_best_fixed_epsilon(n: int, error: str, mean: float) -> None:
    best, entropy = best_fixed(float(error), n, mean), fixed(f"{n} {error}")
    charged = [float(ask(plan(error), rows(n, mean), entropy).event.basic[0]) for _ in range(5)]
    assert np.mean(charged) <= 1.2 * best
    assert min(charged) >= 0.5 * best
    assert best < 0.5  # to pay the whole, as a fixed epsilon would, is far more


def test_it_says_what_it_took() -> None:
    found = ask(plan("1"), rows(10_000, 60), fixed("said"))
    (row,) = found.table.to_pylist()
    assert max(row["a"] - row["a__low"], row["a__high"] - row["a"]) <= 1
    assert abs(row["a"] - 60) <= 2
    (note,) = found.notes
    assert note.startswith("every interval ends within 1: that took ε=0.0")
    assert isinstance(found.event, NoiseReduction)
    assert found.event.epsilon in RUNGS
    assert found.event.most == 1


def test_what_it_can_not_reach_is_released_with_all_of_it() -> None:
    found = ask(plan("0.01"), rows(1000, 60), fixed("too little"))
    (row,) = found.table.to_pylist()
    assert row["a__high"] - row["a__low"] > 0.02
    assert found.event == plan("0.01").event
    assert "not every interval ends within 0.01" in found.notes[0]


def test_the_narrowest_group_does_not_stop_it() -> None:
    table = pa.table({"k": ["x", "y"], "t": [0, 0], "n": [100_000, 1000]})
    together, alone = (plan("1", keys=("k",)), rows(100_000, 50))
    slow = ask(together, table, fixed("two groups"))
    quick = ask(plan("1"), alone, fixed("one group"))
    assert slow.event.basic[0] > 20 * quick.event.basic[0]


def test_an_empty_group_has_no_narrow_interval() -> None:
    found = ask(plan("1"), rows(0, 50), fixed("nobody"))
    assert found.event == plan("1").event


def test_other_noise_is_not_reduced() -> None:
    noise = GaussianNoise.calibrate(HALF, Fraction(1, 10**6), 1, 1)
    broken = replace(plan("1"), outputs=(replace(MEAN, count=Statistic("n", noise)),))
    with pytest.raises(ValueError, match="only Laplace noise"):
        ask(broken, rows(10, 50), Entropy())


def test_moments_of_every_kind_are_rescaled() -> None:
    parts = [Statistic(name, LaplaceNoise(HALF, 3)) for name in ("s", "t", "n")]
    spread = Variance("v", *parts, Fraction(1), Fraction(0), (Fraction(0), Fraction(1)))
    for found in rescale_statistics(spread, Fraction(1, 4)).statistics:
        assert found.noise == LaplaceNoise(Fraction(1, 8), 3)


def misses(error: float, n: int, mean: float, share: float, runs: int = 20_000) -> float:
    """Return how often an interval does not hold the truth: many runs beside each other, each of which stops by itself."""
    entropy, exact = fixed(f"{error} {n} {mean}"), {"t": round((mean - 50) * STEPS * n), "n": n}
    chains = {
        s: NoiseChain([s.noise.rescale(f).scale for f in RUNGS], runs, entropy) for s in MEAN.statistics
    }  # type: ignore[attr-defined]
    going, missed = np.ones(runs, dtype=np.bool_), 0
    for factor in RUNGS:
        seen = {rescale_statistics(s, factor): exact[s.column] + chain.noise for s, chain in chains.items()}
        shown = rescale_statistics(MEAN, factor).show(seen, 1 - share * 0.05)
        stops = going & ((measure_widths(shown) <= error) | (factor == 1))
        low, high = (end.to_numpy() for end in (shown.low, shown.high))
        missed += int(np.sum(stops & ~((low - 1e-9 <= mean) & (mean <= high + 1e-9))))
        going &= ~stops
        if not going.any():
            break
        for chain in chains.values():
            chain.step()
    return missed / runs


@pytest.mark.parametrize(("error", "mean"), [(25, 50), (25, 65), (5, 50), (1, 95), (10, 100)])
def test_an_interval_holds_although_its_width_said_when_to_stop(error: float, mean: float) -> None:
    assert misses(error, 3000, mean, aggregation.LOOK_SHARE) < 0.05


def test_without_what_is_set_aside_an_interval_would_miss_more_often() -> None:
    assert misses(25, 3000, 50, 1.0) > 0.052


# -- the charge -------------------------------------------------------------------------------------------------------


RESERVED = NoiseReduction(Fraction(1), Fraction(1))


@pytest.mark.parametrize("used", ["1/1000", "1/7", "1"])
def test_what_was_used_is_within_what_was_reserved(used: str) -> None:
    event = replace(RESERVED, epsilon=Fraction(used))
    assert event.is_within(RESERVED)
    assert Composed((PureDP(HALF), event)).is_within(Composed((PureDP(HALF), RESERVED)))
    assert Event.from_json(event.to_json()) == event
    assert (event.basic, event.pure) == ((Fraction(used), Fraction(0)), Fraction(used))
    assert event.rho <= RESERVED.rho
    assert event.mu <= RESERVED.mu
    assert event.renyi(Fraction(2)) <= RESERVED.renyi(Fraction(2))
    assert PureDP(event.epsilon).rho < event.rho <= 14 * PureDP(max(event.epsilon, Fraction(1, 4000))).rho


def test_stages_reach_what_was_used() -> None:
    event = replace(RESERVED, epsilon=Fraction(3, 10))
    assert event.tops[-1] == Fraction(5, 8) ** 2  # 0.39, and the one before is 0.24
    assert event.stages[-1] == PureDP(Fraction(5, 8) ** 2 + Fraction(5, 8) ** 3)
    assert event.stages[0].pure == event.tops[0] < Fraction(1, 2500)
    assert RESERVED.tops[-1] == 1


def test_no_more_is_charged_than_was_reserved() -> None:
    with pytest.raises(ValueError, match="at most what was reserved"):
        NoiseReduction(Fraction(1), Fraction(2))
    assert not RESERVED.is_within(NoiseReduction(Fraction(2), Fraction(2)))
    assert not NoiseReduction(Fraction(2), Fraction(1)).is_within(RESERVED)
    assert not RESERVED.is_within(DiscreteLaplace(Fraction(1), 1))


@pytest.mark.parametrize("accountant", ["basic", "zcdp", "gdp", "rdp"])
def test_sums_charge_what_was_used_and_rules_the_stages(accountant: str) -> None:
    opened = open_filter(accountant, Fraction(1), Fraction(1, 10**6))
    used = replace(RESERVED, epsilon=Fraction(1, 100))
    spent = opened.fold([used] * 50)
    assert opened.admits(spent, PureDP(HALF))
    assert not opened.admits(spent, PureDP(Fraction(51, 100)))
    assert spent.rho < PureDP(Fraction(1, 2)).rho  # fifty that had used all would have seventy times as much
    assert opened.holds(spent)
    assert not opened.holds(opened.fold([RESERVED, used]))


def test_a_plan_is_not_admitted_by_a_loss_that_would_shrink() -> None:
    parts = [compose_events([PureDP(Fraction(1, 10))]) for _ in range(20)]
    opened = open_filter("zcdp", Fraction(3), Fraction(1, 10**6))
    for last in (PureDP(Fraction(1, 10)), NoiseReduction(Fraction(1, 10), Fraction(1, 10))):
        whole = declare([*parts, last], Fraction(1, 10**6))
        assert opened._admits_whole_plan(opened.start, whole) == isinstance(last, PureDP)
