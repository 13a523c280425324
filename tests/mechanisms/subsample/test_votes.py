"""Votes: exact laws of the modes over neighbouring vote tables, features, and the textbook's sampling."""

from __future__ import annotations

import datetime
import itertools
import math
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.base import SALT
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.ptr.stability_test import (
    NOT_STABLE,
    OptimalTest,
    make_stability_test,
    measure_votes_radius,
)
from dpsql.mechanisms.subsample.blocks import (
    BlockResults,
    FeatureVotes,
    LiftedBlocks,
    NoisyMode,
    Participation,
    PythonBlocks,
    StableMode,
    count_votes,
    read_vote,
)
from dpsql.mechanisms.subsample.subsample import BlockMedian, ResultRange, SubsampleAggregate
from dpsql.noise.entropy import Entropy
from tests.support.goodness import fixed

ONE = Fraction(1)
SMALL = Fraction(1, 50)
TINY = Fraction(1, 10**6)
Law = dict[Any, float]


def divergence(p: Law, q: Law, epsilon: float) -> float:
    return sum(max(0.0, a - math.exp(epsilon) * q.get(key, 0.0)) for key, a in p.items())


def votes_and_neighbours(blocks: int, options: str) -> list[tuple[str, str]]:
    pairs = []
    for votes in itertools.combinations_with_replacement(options, blocks):
        for i in range(blocks):
            pairs.extend(("".join(votes), "".join((*votes[:i], v, *votes[i + 1 :]))) for v in options)
    return pairs


# --- labels


def test_equal_results_share_a_label_and_others_do_not() -> None:
    day = datetime.date(2026, 1, 5)
    values: list[Any] = [
        1,
        1.0,
        True,
        "1",
        b"1",
        Decimal("1"),
        day,
        (1,),
        ("1",),
        (1, 1),
        uuid.UUID(int=1),
        {"a": 1},
    ]
    assert len({read_vote(v)[0] for v in values}) == len(values)  # type: ignore[index]
    assert read_vote(np.float64(2.0)) == read_vote(2.0)
    assert read_vote(np.str_("a")) == read_vote("a")
    assert read_vote({"b", "a"}) == read_vote({"a", "b"})
    assert read_vote([1, 2]) == read_vote((1, 2)) == read_vote(np.array([1, 2]))
    assert read_vote(-0.0) == read_vote(0.0)


@pytest.mark.parametrize("value", [None, math.nan, object(), [1, None], [math.nan], len])
def test_what_is_no_vote(value: Any) -> None:
    assert read_vote(value) is None
    assert count_votes([value, "a"]) == {"str 'a'": (1, "a")}


# --- stable mode


@pytest.mark.parametrize("blocks", [1, 2, 7, 12])
def test_stable_mode_loses_no_more_than_its_test(blocks: int) -> None:
    test = OptimalTest(Fraction(3), SMALL)

    def law(votes: str, rounds: int = 1) -> Law:
        ranked = [*sorted(Counter(votes).items(), key=lambda item: (-item[1], item[0])), ("", 0)]
        p = test.probability(measure_votes_radius(ranked[0][1], ranked[1][1], rounds))
        return {None: 1 - p, ranked[0][0]: p}

    worst = max(divergence(law(x), law(y), 3.0) for x, y in votes_and_neighbours(blocks, "abc"))
    assert worst <= float(SMALL) + 1e-9
    if blocks == 12:
        assert law("a" * 12)["a"] > 0.9
        assert max(divergence(law(x), law(y), 2.0) for x, y in votes_and_neighbours(blocks, "ab")) > float(
            SMALL
        )
        assert law("a" * 12, rounds=6)["a"] == pytest.approx(float(SMALL))


def test_stable_mode_releases_the_exact_vote() -> None:
    mode = StableMode("m", OptimalTest(ONE, TINY))
    assert mode.combine(["x"] * 60 + [None] * 9, pa.string(), Entropy(), 0.95)[0]["m"].to_pylist() == ["x"]
    columns, notes = mode.combine(["x", "y"] * 30, pa.string(), Entropy(), 0.95)
    assert columns["m"].to_pylist() == [None]
    assert notes == (f"m: {NOT_STABLE}",)
    assert mode.combine([], pa.string(), Entropy(), 0.95)[0]["m"].to_pylist() == [None]
    assert mode.combine([["a", "b"]] * 60, None, Entropy(), 0.95)[0]["m"].to_pylist() == [["a", "b"]]


# --- noisy mode


def permute_and_flip_law(scores: Sequence[int], rate: float) -> list[float]:
    top = max(scores)
    weights = [math.exp(rate * (s - top)) for s in scores]
    law = []
    for i, w in enumerate(weights):
        rest = weights[:i] + weights[i + 1 :]
        total = 0.0
        for size in range(len(rest) + 1):
            for chosen in itertools.combinations(rest, size):
                total += (-1) ** size / (size + 1) * math.prod(chosen)
        law.append(w * total)
    return law


def among(votes: str, options: str, epsilon: float) -> Law:
    counts = [votes.count(option) for option in options]
    return dict(zip(options, permute_and_flip_law(counts, epsilon / 2), strict=True))


def test_noisy_mode_among_public_candidates() -> None:
    epsilon = 1.5
    pairs = votes_and_neighbours(5, "abc")
    losses = [
        abs(math.log(p / q))
        for x, y in pairs
        for p, q in zip(among(x, "abc", epsilon).values(), among(y, "abc", epsilon).values(), strict=True)
    ]
    assert 0.8 * epsilon < max(losses) <= epsilon + 1e-9
    sharper = [  # without the factor 2, as for counts that all move in one direction: twice the loss
        abs(math.log(p / q))
        for x, y in pairs
        for p, q in zip(
            among(x, "abc", 2 * epsilon).values(), among(y, "abc", 2 * epsilon).values(), strict=True
        )
    ]
    assert max(sharper) > 1.5 * epsilon


@pytest.mark.parametrize("exponential", [False, True])
def test_noisy_mode_follows_its_law(exponential: bool) -> None:
    mode = NoisyMode("m", Fraction(2), candidates=("a", "b", "c"), exponential=exponential)
    votes = list("aaabbc") + ["elsewhere"] * 9
    n = 4000
    entropy = fixed(f"noisy mode {exponential}")
    seen = Counter(mode.combine(votes, pa.string(), entropy, 0.95)[0]["m"][0].as_py() for _ in range(n))
    weights = {k: math.exp(v) for k, v in zip("abc", (3, 2, 1), strict=True)}
    laws = {
        True: {k: w / sum(weights.values()) for k, w in weights.items()},
        False: among("aaabbc", "abc", 2.0),
    }
    distance = {
        kind: sum((seen[k] - n * p) ** 2 / (n * p) for k, p in law.items()) for kind, law in laws.items()
    }
    assert distance[exponential] < 30 < distance[not exponential]


def unknown_law(votes: str, selection: OptimalTest, epsilon: float) -> Law:
    """Kept or not, independently; then permute-and-flip among those kept."""
    counts = Counter(votes)
    chances = {key: selection.probability(count - 1) for key, count in counts.items()}
    law: Law = {None: 0.0}
    for size in range(len(counts) + 1):
        for kept in itertools.combinations(sorted(counts), size):
            p = math.prod(chances[k] if k in kept else 1 - chances[k] for k in counts)
            if not kept:
                law[None] += p
                continue
            winners = permute_and_flip_law([counts[k] for k in kept], epsilon / 2)
            for key, w in zip(kept, winners, strict=True):
                law[(kept, key)] = p * w  # even the names that were kept may be known
    return law


def test_noisy_mode_without_candidates_loses_no_more_than_it_says() -> None:
    selection = OptimalTest(Fraction(4), SMALL, groups=2)
    total, half = 4 + 1.5, OptimalTest(Fraction(4), SMALL, groups=1)
    worst = careless = 0.0
    for x, y in votes_and_neighbours(6, "abc"):
        worst = max(worst, divergence(unknown_law(x, selection, 1.5), unknown_law(y, selection, 1.5), total))
        careless = max(careless, divergence(unknown_law(x, half, 1.5), unknown_law(y, half, 1.5), total))
    assert 0.4 * float(SMALL) < worst <= float(SMALL) + 1e-9
    # a selection for one group would be a false claim: a vote touches two
    assert careless > float(SMALL) + 1e-9
    with pytest.raises(ValueError, match="two groups"):
        NoisyMode("m", ONE, selection=half)
    with pytest.raises(ValueError, match="public, or"):
        NoisyMode("m", ONE)


def test_noisy_mode_without_candidates() -> None:
    mode = NoisyMode("m", Fraction(8), selection=OptimalTest(Fraction(8), TINY, groups=2))
    assert mode.combine(["x"] * 40 + ["y"] * 3, pa.string(), Entropy(), 0.95)[0]["m"].to_pylist() == ["x"]
    columns, notes = mode.combine(list("abcdef"), pa.string(), fixed("one vote each"), 0.95)
    assert columns["m"].to_pylist() == [None]
    assert notes
    assert mode.combine([], pa.string(), Entropy(), 0.95)[0]["m"].to_pylist() == [None]


# --- features


def features(function: Callable[..., Any], **how: Any) -> FeatureVotes:
    source = PythonBlocks(
        "SELECT unit % 40 AS block, unit AS v FROM range(400) AS t(unit)", ("v",), 40, "f", "f", function
    )
    return FeatureVotes(source, "f", "feature", ("a", "b", "c"), 2, **how)


def run(sql: str) -> pa.Table:
    return duckdb.sql(sql).to_arrow_table()


def test_one_block_moves_few_counts_by_one() -> None:
    voting = features(len, noise=LaplaceNoise(ONE, 1, 4))
    results: list[Any] = [
        None, 3, "ab", [], ["a"], ["b", "c"], ["c", "b", "a"], ["a", "a", "x", "b"],
        [None, "a"], np.array(["c"]),
    ]  # fmt: skip
    worst_l1 = 0
    for x, y in itertools.permutations(results, 2):
        before, after = voting.counts([x, ["a"]]), voting.counts([y, ["a"]])
        change = [abs(p - q) for p, q in zip(before, after, strict=True)]
        assert max(change) <= 1
        worst_l1 = max(worst_l1, sum(change))
    assert worst_l1 == 3  # with three features; 2 * most in general
    assert voting.counts([["c", "b", "a"]]) == [0, 1, 1]  # the first two named
    assert voting.counts([["a", "a", "x", "b"]]) == [1, 1, 0]


def test_feature_votes() -> None:
    operator = features(lambda v: ["a", "c"], noise=LaplaceNoise(Fraction(8), 1, 4))
    rows = operator.release(run, Entropy()).table.to_pylist()
    assert [row["feature"] for row in rows] == ["a", "b", "c"]
    assert rows[0]["votes"] == pytest.approx(40, abs=15)
    assert rows[1]["votes"] == pytest.approx(0, abs=15)
    assert all(row["votes__low"] < row["votes"] < row["votes__high"] for row in rows)
    best = features(lambda v: ["a", "c"], top=2, epsilon=Fraction(8)).release(run, Entropy())
    assert sorted(best.table.column("feature").to_pylist()) == ["a", "c"]
    assert best.event == features(len, top=2, epsilon=Fraction(8)).event
    with pytest.raises(ValueError, match="two counts"):
        # C(d, s) features are not independent tests, but 2 s counts move
        features(len, noise=LaplaceNoise(ONE, 1, 2))
    with pytest.raises(ValueError, match="winners"):
        features(len, top=4, epsilon=ONE)


# --- the textbook's independent subsamples


def bernoulli_operator(runs: int, q: Fraction, cap_off: int = 0) -> SubsampleAggregate:
    units = "(SELECT i AS unit, i % 7 < 6 AS b FROM range(60) AS t(i)) AS t"
    threshold = int(q * 2**64)
    joined = (
        f"SELECT run AS block, unit, b FROM {units} CROSS JOIN range({runs}) AS r(run) "
        f"WHERE hash(xor(hash(unit), hash(xor(hash(run), {SALT})))) < {threshold}"
    )
    check = f"SELECT MAX(c) AS most FROM (SELECT unit, COUNT(*) AS c FROM ({joined}) AS j GROUP BY unit) AS p"
    sampling = Participation(check, q, runs)
    test = make_stability_test("PURE", Fraction(40), Fraction(1, 100), slack=sampling.failure)
    source = LiftedBlocks(f"SELECT block, MODE(b) AS m FROM ({joined}) AS j GROUP BY block", ("m",), runs)
    return SubsampleAggregate(
        source, (StableMode("m", test, sampling.cap + cap_off),), participation=sampling
    )


def test_textbook_sampling_runs_and_checks_the_same_subsamples() -> None:
    operator = bernoulli_operator(600, Fraction(1, 8))
    seen: list[str] = []

    def spy(sql: str) -> pa.Table:
        seen.append(sql)
        return run(sql)

    made = operator.release(spy, Entropy())
    assert len(seen) == 2
    salts = [sql.split("hash(xor(hash(run), ")[1].split(")")[0] for sql in seen]
    assert salts[0] == salts[1] != SALT
    assert made.table.column("m").to_pylist() in ([True], [None])
    assert "600 runs" in " ".join(operator.sentences(0.95))

    def crowded(sql: str) -> pa.Table:
        return pa.table({"most": [10**6]}) if "AS most" in sql else run(sql)

    assert operator.release(crowded, Entropy()).table.column("m").to_pylist() == [None]


def test_textbook_sampling_is_priced_whole() -> None:
    operator = bernoulli_operator(600, Fraction(1, 8))
    assert operator.event.basic == (40, Fraction(1, 100))
    with pytest.raises(ValueError, match="cap"):
        bernoulli_operator(600, Fraction(1, 8), cap_off=-1)
    with pytest.raises(ValueError, match="set aside"):
        SubsampleAggregate(
            operator.source,
            (StableMode("m", OptimalTest(ONE, TINY), operator.participation.cap),),
            participation=operator.participation,
        )
    with pytest.raises(ValueError, match="stable mode"):
        SubsampleAggregate(
            operator.source,
            (BlockMedian("m", ResultRange(Fraction(0), ONE, 2), ONE),),
            participation=operator.participation,
        )


def test_chance_of_too_many_subsamples_is_bounded_above() -> None:
    for runs, q in ((20, Fraction(1, 4)), (100, Fraction(1, 10)), (400, Fraction(1, 16))):
        sampling = Participation("", q, runs)
        p = float(q)
        exact = sum(
            math.comb(runs, k) * p**k * (1 - p) ** (runs - k) for k in range(sampling.cap + 1, runs + 1)
        )
        assert exact <= float(sampling.failure) < 1


def test_what_a_label_stands_for_does_not_depend_on_the_block() -> None:
    """Equal results that blocks wrote in different ways: what is released is the label's, not one block's."""
    alike = [
        ({"a": 1, "b": [-0.0]}, {"b": [0.0], "a": 1}),
        ([{"x": 1, "y": 2}], ({"y": 2, "x": 1},)),
        ({2, 1}, {1, 2}),
        (np.array([1, 2]), [1, 2]),
        (np.float64(-0.0), 0.0),
    ]
    for one, other in alike:
        first, second = read_vote(one), read_vote(other)
        assert first is not None
        assert repr(first) == repr(second)
        assert repr(count_votes([one, other])) == repr(count_votes([other, one]))
    assert read_vote({"a": 1}) != read_vote({"a": 2}) != read_vote({"b": 2})  # the control


def test_no_result_of_one_block_stops_the_count() -> None:
    class Foul(datetime.datetime):
        def __repr__(self) -> str:
            raise RuntimeError("CANARY")

    endless: list[object] = []
    endless.append(endless)
    foul: list[object] = [{1: "a", "b": 2}, Foul(2020, 1, 1), endless, object(), {frozenset({1}): 1}]
    counted = count_votes([*foul, "x", "x"])
    assert counted["str 'x'"] == (2, "x")
    assert not count_votes(foul[1:4])


def test_intervals_are_votes() -> None:
    month = pa.scalar((1, 0, 0), pa.month_day_nano_interval()).as_py()
    found = read_vote(month)
    assert found[1] == month
    assert type(found[1]) is type(month)


def test_no_result_of_one_block_stops_the_others() -> None:
    class Foul:
        def as_integer_ratio(self) -> tuple[int, int]:
            raise RuntimeError("CANARY")

    grid = ResultRange(Fraction(0), Fraction(10), 10)
    foul = ("1/0", "3", "1e999999999", Foul(), None, math.nan, -math.inf, [])
    assert [grid.place(v) for v in foul] == [5] * 8
    # the control
    assert [grid.place(v) for v in (3, 3.2, Fraction(7, 2), 10**400, -(10**400))] == [3, 3, 4, 10, 0]


class Counted:
    """Blocks of which ``ahead`` more vote for a than for b; nothing is read."""

    queries: tuple[str, ...] = ()

    def __init__(self, ahead: int) -> None:
        self.blocks = ahead
        self._votes = [["a"]] * ahead

    def results(self, read: Any, entropy: Entropy) -> BlockResults:
        return BlockResults({"f": self._votes}, {})

    def sentence(self) -> str:
        return ""


@pytest.mark.parametrize("top", [1, 2])
def test_the_best_features_are_drawn_by_half_the_loss_of_each(top: int) -> None:
    """A block may take a vote from one and give it to another: weights exp(epsilon votes / 2), for each of the winners."""
    voting = FeatureVotes(Counted(3), "f", "feature", ("a", "b"), 1, top=top, epsilon=Fraction(top))
    entropy, runs = fixed(f"best {top}"), 4000
    first = sum(voting.release(run, entropy).table.column("feature")[0].as_py() == "a" for _ in range(runs))
    expected = 1 / (1 + math.exp(-1.5))
    assert abs(first / runs - expected) < 0.05  # seven standard deviations; without the half it would be 0.95


def test_a_result_of_one_block_is_named_with_at_most_half_of_delta() -> None:
    """One changed vote may bring a result and take another away: each has half, whatever the choice that follows."""
    delta, runs, entropy = Fraction(1, 5), 3000, fixed("named")
    mode = NoisyMode("m", ONE, selection=OptimalTest(Fraction(1, 10), delta, groups=2))
    named = sum(
        mode.combine(["x", None, None], pa.string(), entropy, 0.95)[0]["m"][0].as_py() == "x"
        for _ in range(runs)
    )
    assert 0.05 < named / runs < 0.14  # 0.1 at most, and 0.2 for two votes
