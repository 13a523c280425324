"""The interval of a median of blocks, what combiners are compared by, and the shares of a vector's coordinates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import dpsql
from dpsql.mechanisms.subsample import subsample
from dpsql.mechanisms.subsample.subsample import (
    BlockMedian,
    Coordinates,
    MedianReach,
    ResultRange,
    split_by_rho,
)
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import BoundedRange
from dpsql.privacy.pld import DeclaredPlan
from tests.support.fixtures import open_session
from tests.support.goodness import fixed

POINTS = 6
RANGE = ResultRange(Fraction(-3), Fraction(3), 1 << 16)


def law(
    reach: MedianReach, places: tuple[int, ...], middle: int, monkeypatch: pytest.MonkeyPatch
) -> dict[int, float]:
    """The probabilities of half widths, from the scores that the choice is made of."""
    seen: list[np.ndarray] = []

    def choose(scores: np.ndarray, rate: Fraction, entropy: Entropy) -> int:
        assert rate == reach.epsilon / 2
        seen.append(scores)
        return 0

    monkeypatch.setattr(subsample, "choose_exponential", choose)
    reach.choose(places, middle, POINTS, Entropy())
    weights = np.exp(seen[0] * float(reach.epsilon) / 2)
    return dict(zip(subsample._list_reaches(POINTS), weights / weights.sum(), strict=True))


def medians(places: tuple[int, ...]) -> tuple[int, int]:
    ordered, k = sorted(places), len(places)
    return ordered[(k - 1) // 2], ordered[k // 2]


def missed(found: dict[int, float], places: tuple[int, ...], middle: int) -> float:
    low, high = medians(places)
    return sum(p for half, p in found.items() if not middle - half <= low <= high <= middle + half)


def test_scores_are_those_of_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores by the results beyond a half width on one side, one by one: at most the level, and more within the one before."""
    dice = np.random.default_rng(5)
    for seed in range(300):
        places = tuple(dice.integers(0, POINTS + 1, 1 + seed % 9).tolist())
        middle, level = int(dice.integers(0, POINTS + 1)), int(dice.integers(0, len(places)))
        reach, beyond = MedianReach(Fraction(2), level, 1), len(places) + level + 1
        found, scores = law(reach, places, middle, monkeypatch), []
        for half in found:
            before = beyond
            beyond = max(sum(p < middle - half for p in places), sum(p > middle + half for p in places))
            scores.append(-max(0, beyond - level, level + 1 - before))
        weights = np.exp(np.array(scores))
        assert list(found.values()) == pytest.approx((weights / weights.sum()).tolist(), rel=1e-12)


@pytest.mark.parametrize("blocks", [3, 4])
def test_one_block_moves_the_choice_by_no_more_than_is_charged(
    blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach = MedianReach(Fraction(3, 2), 0, 1)
    worst = 0.0
    for places in itertools.combinations_with_replacement(range(0, POINTS + 1, 2), blocks):
        for middle in (0, 3, 5):
            one = law(reach, places, middle, monkeypatch)
            for other in range(POINTS + 1):
                two = law(reach, (other, *places[1:]), middle, monkeypatch)
                losses = [math.log(one[half] / two[half]) for half in one]
                assert max(losses) - min(losses) <= 1.5 + 1e-9  # of bounded range
                worst = max(worst, *map(abs, losses))
    assert 0.75 < worst <= 1.5


def test_the_interval_misses_as_seldom_as_it_says_whatever_the_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks, doubt = 9, 0.1
    epsilon = next(
        e for e in (Fraction(n, 4) for n in range(1, 100)) if MedianReach.plan(e, blocks, POINTS, 1 - doubt)
    )
    reach = MedianReach.plan(epsilon, blocks, POINTS, 1 - doubt)
    assert reach is not None
    hasty = replace(reach, level=(blocks - 1) // 2, margin=0)  # as if the choice were exact
    worst = {"planned": 0.0, "hasty": 0.0}
    for shape in itertools.combinations_with_replacement((0, 1, 4, 6), blocks):
        for middle in (0, 3, 6):
            for name, one in (("planned", reach), ("hasty", hasty)):
                worst[name] = max(worst[name], missed(law(one, shape, middle, monkeypatch), shape, middle))
    assert worst["planned"] <= doubt
    assert worst["hasty"] > doubt


@pytest.mark.parametrize(
    ("epsilon", "blocks", "there"),
    [("1", 128, True), ("1/4", 128, False), ("1", 60, False), ("1/4", 1000, True)],
)
def test_an_interval_needs_blocks(epsilon: str, blocks: int, there: bool) -> None:
    made = BlockMedian.with_interval("m", RANGE, Fraction(epsilon), blocks, 0.95)
    assert (made.reach is not None) == there
    assert made.event.basic == (Fraction(epsilon), 0)
    assert made.epsilon == Fraction(epsilon) * (Fraction(3, 4) if there else 1)


def test_an_interval_narrows_with_the_results() -> None:
    made, entropy = BlockMedian.with_interval("m", RANGE, Fraction(2), 256, 0.95), fixed("narrow")
    widths, held = {}, 0
    for spread in (0.01, 0.5):
        results = np.random.default_rng(5).normal(0, spread, 256)
        for _ in range(12):
            columns, _ = made.combine(list(results), None, entropy, 0.95)
            (value,), (low,), (high,) = (columns[name].to_pylist() for name in ("m", "m__low", "m__high"))
            assert low <= value <= high
            held += low - 1e-4 <= np.median(results) <= high + 1e-4
            widths.setdefault(spread, []).append(high - low)
    assert held >= 21
    assert np.mean(widths[0.01]) * 20 < np.mean(widths[0.5])


# -- vectors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "gain"), [(3, 1), (10, 1.35), (50, 3)])
def test_coordinates_with_a_delta_have_more_than_equal_parts(length: int, gain: float) -> None:
    epsilon, delta = Fraction(1), Fraction(1, 10**6)
    share = split_by_rho(epsilon, delta, length)
    assert share >= epsilon / length * Fraction(gain)
    if gain > 1:
        made = Coordinates("v", (BlockMedian("v", RANGE, share),) * length, (epsilon, delta))
        assert isinstance(made.event, DeclaredPlan)
        assert made.event.basic == (epsilon, delta)
        with pytest.raises(ValueError, match="costs more"):
            DeclaredPlan((BoundedRange(share * Fraction(6, 5)),) * length, epsilon, delta)


@pytest.fixture
def session() -> Iterator[dpsql.Session]:
    policy = """
        budget = { epsilon = 100, delta = 1e-4, accountant = "basic" }
        [tables]
        t = { privacy_unit = "u", max_rows = 1 }
    """
    with open_session(
        policy, "CREATE TABLE t AS SELECT i AS u, (i * 7919 % 1000)::DOUBLE AS x FROM range(8000) r(i)"
    ) as opened:
        yield opened


def test_a_statement_shows_the_interval(session: dpsql.Session) -> None:
    found = session.sql("SELECT WITH SUBSAMPLE OPTIONS (epsilon = 2, bounds = (0, 1000)) AVG(x) AS a FROM t")
    ((low, high),), (value,) = found.intervals["a"], found.fetchone()
    assert 0 <= low <= value <= high <= 1000
    assert 400 < value < 600
    without = session.sql(
        "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 0.2, bounds = (0, 1000)) AVG(x) AS a FROM t"
    )
    assert "a" not in without.intervals


@pytest.mark.parametrize(("given", "loss"), [("", "ε=4"), (", delta = 1e-6", "ε=4, δ=1e-06")])
def test_a_vector_of_medians_is_paid_as_asked(session: dpsql.Session, given: str, loss: str) -> None:
    session.register(
        "moments",
        lambda x: [float(np.mean(x**i)) ** (1 / i) for i in range(1, 21)],
        returns="DOUBLE[]",
        length=20,
    )
    text = f"SELECT WITH SUBSAMPLE OPTIONS (epsilon = 4, blocks = 256, bounds = (0, 1000){given}) moments(x) AS m FROM t"
    found = session.sql(text)
    assert found.loss == loss
    (vector,) = found.fetchone()
    assert len(vector) == 20
    each = "ε=0.3" if given else "equal share"
    assert each in str(session.explain(text + " WHERE x < 2000"))
    if given:
        errors = np.abs(np.array(vector) - [np.mean(np.arange(1000.0) ** i) ** (1 / i) for i in range(1, 21)])
        assert np.median(errors) < 40


def test_values_are_arrow_columns() -> None:
    made = BlockMedian.with_interval("m", RANGE, Fraction(4), 200, 0.9)
    columns, _ = made.combine([None] * 200, None, fixed("none"), 0.9)
    assert {name: column.type for name, column in columns.items()} == dict.fromkeys(
        ("m", "m__low", "m__high"), pa.float64()
    )
