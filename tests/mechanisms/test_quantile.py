"""Quantiles by the exponential mechanism: published laws, sensitivity over all tiny tables, losses, and groups."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms import order_statistics
from dpsql.mechanisms.aggregation import Aggregation, Together, list_groups
from dpsql.mechanisms.moments import Count
from dpsql.mechanisms.order_statistics import WantedRank, choose_step, cut_segments
from dpsql.mechanisms.per_group import GroupSelector, LaplaceNoise, Statistic
from dpsql.mechanisms.quantiles import Quantiles
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import BoundedRange, compose_events
from tests.support.goodness import REFUSED, fixed, p_value
from tests.support.operator_contract import OperatorContract

VECTORS = json.loads(
    (Path(__file__).parents[1] / "published" / "vectors" / "vectors_partition_quantile.json").read_text()
)
RANKS = [
    WantedRank(Fraction(1, 2)),
    WantedRank(Fraction(1, 4)),
    WantedRank(Fraction(9, 10)),
    WantedRank(Fraction(0)),
    WantedRank.least(),
    WantedRank.greatest(),
]


def histogram(values: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    v, c = np.unique(np.array(values, dtype=np.int64), return_counts=True)
    return v, c


def utilities(values: Sequence[int], low: int, high: int, rank: WantedRank, inward: int = 2) -> list[int]:
    """Return the utility of every grid point, spelled out from the segments."""
    starts, sizes, u = cut_segments(*histogram(values), low, high, rank, inward)
    spelled = [int(x) for x, size in zip(u, sizes, strict=True) for _ in range(size)]
    assert starts[0] == low
    assert sum(sizes) == high - low + 1 == len(spelled)
    return spelled


@pytest.mark.parametrize("case", VECTORS["quantile_em_vectors"], ids=lambda c: c["p"])
def test_published_segments(case: dict) -> None:
    rank = WantedRank(Fraction(case["p"]))
    starts, sizes, u = cut_segments(*histogram(case["x"]), case["lo"], case["hi"], rank)
    assert starts.tolist() == [s["lo"] for s in case["segments"]]
    assert (starts + sizes - 1).tolist() == [s["hi"] for s in case["segments"]]
    assert [x / rank.scale for x in u.tolist()] == [s["utility"] for s in case["segments"]]
    w = sizes * np.exp(case["eps"] / (2 * case["Delta"]) * u / rank.scale)
    assert (w / w.sum()).tolist() == pytest.approx([s["prob"] for s in case["segments"]], rel=1e-12)


@pytest.mark.parametrize("rank", RANKS, ids=str)
@pytest.mark.parametrize("rows", [1, 2])
def test_sensitivity_over_all_tiny_tables(rank: WantedRank, rows: int) -> None:
    """Adding a unit with up to ``rows`` rows moves no utility by more than is declared, and some by as much."""
    most = 0
    for n in range(5):
        for values in itertools.combinations_with_replacement(range(4), n):
            here = utilities(values, 0, 3, rank)
            for more in itertools.combinations_with_replacement(range(4), rows):
                there = utilities((*values, *more), 0, 3, rank)
                most = max(most, *(abs(a - b) for a, b in zip(here, there, strict=True)))
    assert most == rank.sensitivity * rows


def test_published_sensitivities() -> None:
    for case in VECTORS["quantile_em_sensitivity"]:
        rank = WantedRank(Fraction(case["p"]))
        assert rank.sensitivity / rank.scale == case["add_remove"]


@pytest.mark.parametrize("rank", RANKS, ids=str)
def test_loss_over_all_tiny_tables(rank: WantedRank) -> None:
    """In rational numbers: exp(-rate) is x, so exp(epsilon) is x ** (-2 sensitivity)."""
    x, most = Fraction(4, 5), Fraction(0)

    def law(values: Sequence[int]) -> list[Fraction]:
        w = [x**-u for u in utilities(values, 0, 3, rank)]
        return [v / sum(w) for v in w]

    for n in range(5):
        for values in itertools.combinations_with_replacement(range(4), n):
            for one in range(4):
                for p, q in zip(law(values), law((*values, one)), strict=True):
                    most = max(most, p / q, q / p)
    allowed = x ** (-2 * rank.sensitivity)
    assert 1 < most <= allowed
    if rank.end or rank.p > 0:  # half the sensitivity would not do; at rank 0 the utility, -L, is monotone
        assert most > x**-rank.sensitivity


@pytest.mark.parametrize("rank", [WantedRank(Fraction(1, 2)), WantedRank(Fraction(1, 4))], ids=str)
def test_loss_of_rows_in_all_over_tiny_tables(rank: WantedRank) -> None:
    """Three groups, and a unit of up to two rows in all, wherever they are: their losses add up to the declared one."""
    part = Quantiles("q", ("g",), ("m",), (rank,), 0, 2, Fraction(1), rows=2, in_all=True)
    tables = [t for n in range(4) for t in itertools.combinations_with_replacement(range(3), n)]
    laws = {
        more: np.array(utilities(more, 0, 2, rank), dtype=float)
        for n in range(6)
        for more in itertools.combinations_with_replacement(range(3), n)
    }

    def loss(here: tuple[int, ...], more: tuple[int, ...], rate: float) -> float:
        """The greatest of one group, whose rows are ``here``, with ``more`` of the unit and without."""
        with_it = tuple(sorted((*here, *more)))
        logs = [rate * laws[t] - np.log(np.exp(rate * laws[t]).sum()) for t in (here, with_it)]
        return float(np.abs(logs[0] - logs[1]).max())

    def most(rate: float, rows: Sequence[int]) -> float:
        """Groups are independent: of rows dealt to them like this, the greatest loss of each."""
        return sum(
            max(
                loss(here, more, rate)
                for here in tables
                for more in itertools.combinations_with_replacement(range(3), n)
            )
            for n in rows
        )

    rate = float(part.rate(rank))
    for dealt in ((2, 0, 0), (1, 1, 0), (1, 0, 0)):
        assert most(rate, dealt) <= float(part.event.basic[0]) * (1 + 1e-9)
    assert most(rate, (1, 1, 0)) > 0.6 * float(part.event.basic[0])
    assert most(rate, (2, 2, 2)) > float(part.event.basic[0]), "the control: so many rows in each group"


def test_rate_shares_epsilon_among_quantiles_and_groups() -> None:
    ranks = (WantedRank(Fraction(1, 4)), WantedRank.least())
    part = Quantiles("q", (), ("a", "b"), ranks, 0, 9, Fraction(1), rows=3, groups=5)
    assert part.part_of(0) == part.part_of(1) == Fraction(1, 10)
    assert part.rate(part.ranks[0]) == Fraction(1, 10) / (2 * 3 * 3)
    assert part.rate(part.ranks[1]) == Fraction(1, 10) / (2 * 2 * 3)
    assert part.event == BoundedRange(Fraction(1), 10)


def test_values_that_occur_often_keep_their_weight() -> None:
    """A hundred fives: the mechanism over the intervals between values never answers 5."""
    entropy, values, counts = fixed("atoms"), np.array([5]), np.array([100])
    seen = Counter(choose_step(values, counts, 0, 100, RANKS[0], Fraction(1, 2), entropy) for _ in range(400))
    assert seen[5] > 390
    assert VECTORS["smith_intervals_on_constant_data"] == [[0, 5, 0.05], [5, 100, 0.95]]


@pytest.mark.parametrize("n", [3_000, pytest.param(100_000, marks=pytest.mark.stochastic)])
def test_choices_follow_the_exact_law(n: int) -> None:
    entropy, values = fixed("quantile"), (3, 3, 3, 7, 10)
    rate = Fraction(1, 4)
    sample = np.array([choose_step(*histogram(values), 0, 12, RANKS[0], rate, entropy) for _ in range(n)])
    raw = np.exp(np.array(utilities(values, 0, 12, RANKS[0])) / 4)
    law = (raw / raw.sum()).tolist()
    assert p_value(sample, lambda v: law[v] if v < 13 else 0.0, signed=False) > REFUSED
    assert p_value(sample, lambda v: law[12 - v] if v < 13 else 0.0, signed=False) < REFUSED


@pytest.mark.parametrize("reach", [-1000, 1, 2])
@pytest.mark.parametrize(
    "rank", [WantedRank(Fraction(1, 2)), WantedRank(Fraction(1, 4)), WantedRank.greatest()]
)
def test_far_points_have_their_share(monkeypatch: pytest.MonkeyPatch, reach: int, rank: WantedRank) -> None:
    """However near points begin to count as far: without rejection they would have too much."""
    monkeypatch.setattr(order_statistics, "_NEVER", reach - math.log(13))
    entropy, values = fixed("far"), (3, 3, 3, 5, 7, 10)
    rate = Fraction(1, 3)
    sample = np.array([choose_step(*histogram(values), 0, 12, rank, rate, entropy, 2) for _ in range(2000)])
    raw = np.exp(np.array(utilities(values, 0, 12, rank, 2)) / 3)
    law = (raw / raw.sum()).tolist()
    assert p_value(sample, lambda v: law[v] if v < 13 else 0.0, signed=False) > REFUSED
    least = max(0, math.ceil(reach * 3))
    flat = np.exp(np.maximum(np.array(utilities(values, 0, 12, rank, 2)), -least) / 3)
    if least < 6:
        wrong = (flat / flat.sum()).tolist()
        assert p_value(sample, lambda v: wrong[v] if v < 13 else 0.0, signed=False) < REFUSED


def test_no_values_and_rates_that_reach_everywhere() -> None:
    entropy, none = fixed("nothing"), np.zeros(0, dtype=np.int64)
    assert {choose_step(none, none, 0, 3, RANKS[0], Fraction(1), entropy) for _ in range(200)} == {0, 1, 2, 3}
    tiny = Fraction(1, 10**30)
    seen = {choose_step(np.array([1]), np.array([9]), 0, 3, RANKS[0], tiny, entropy) for _ in range(200)}
    assert seen == {0, 1, 2, 3}


def test_the_ends_stay_within_the_data() -> None:
    """10,000 values around 500 of a grid of a million: at rank 0 the minimum would be anywhere below them."""
    rng = np.random.default_rng(5)
    values, counts = np.unique(rng.integers(400, 600, 10_000), return_counts=True)
    table = pa.table({"value": values, "count": counts})
    part = Quantiles(
        "q", (), ("low", "high"), (WantedRank.least(), WantedRank.greatest()), -500_000, 500_000, Fraction(1)
    )
    entropy = fixed("ends of the data")
    for _ in range(40):
        release = part.alone().release(lambda sql: table, entropy).table
        assert 400 <= release.column("low")[0].as_py() <= 410
        assert 590 <= release.column("high")[0].as_py() <= 600
    naive = [
        choose_step(values, counts, -500_000, 500_000, WantedRank(Fraction(0)), Fraction(1, 4), entropy)
        for _ in range(20)
    ]
    assert max(naive) < 400
    assert min(naive) < -1000


def test_stated_rank_error_holds() -> None:
    part = Quantiles("q", (), ("m",), (WantedRank(Fraction(1, 2)),), 0, 999, Fraction(1, 4))
    values, counts = np.arange(1000), np.full(1000, 2)
    off = (math.log(1000) - math.log(0.1)) / float(part.rate(part.ranks[0])) / 2
    assert f"within {off:.4g} rows" in part.sentences(0.9)[1]
    entropy = fixed("error")
    missed = sum(abs(2 * choose_step(values, counts, 0, 999, part.ranks[0], part.rate(part.ranks[0]), entropy) - 1000) > off + 2
                 for _ in range(300))  # fmt: skip
    assert missed <= 55


# -- groups, and other statistics beside them ----------------------------------------------------------------------


def grouped(**more: object) -> Quantiles:
    return Quantiles(
        "q", ("g",), ("m",), (WantedRank(Fraction(1, 2)),), 0, 100, Fraction(10**6), steps=Fraction(4), **more
    )  # type: ignore[arg-type]


HISTOGRAM = pa.table(
    {
        "g": pa.array(["b", "a", None, "a", "b", "rare"]),
        "value": pa.array([40, 8, 20, 12, 40, 99], pa.int32()),
        "count": pa.array([3, 1, 2, 9, 4, 1]),
    }
)
GROUPS = pa.table(
    {
        "g": pa.array(["a", "empty", None, "b", "rare"]),
        "n": [10, 0, 2, 7, 1],
        "units": [300, 300, 300, 300, 0],
    }
)


def read(sql: str) -> pa.Table:
    return HISTOGRAM if sql == "q" else GROUPS


def counts(selection: GroupSelector | None = None) -> Aggregation:
    noise = LaplaceNoise(Fraction(10**6), 1)
    return Aggregation("groups", ("g",), (Count("n", Statistic("n", noise)),), selection)


def test_groups_are_those_of_the_aggregation() -> None:
    """Public groups without rows get an answer too; private ones that were not selected get none."""
    both = Together(counts(), (grouped(),))
    release = both.release(read, Entropy())
    rows = {row["g"]: (row["n"], row["m"]) for row in release.table.to_pylist()}
    assert rows["a"] == (10, 3.0)
    assert rows["b"] == (7, 10.0)
    assert rows[None] == (2, 5.0)
    assert 0 <= rows["empty"][1] <= 25
    assert release.event == both.event == compose_events([counts().event, grouped().event])
    few = Together(counts(GroupSelector("units", Fraction(1), Fraction(1, 10**9))), (grouped(),))
    assert "rare" not in few.release(read, Entropy()).table.column("g").to_pylist()


def test_quantiles_of_a_column_are_in_order() -> None:
    p = [Fraction(9, 10), Fraction(1, 10), Fraction(1, 2)]
    part = Quantiles(
        "q", (), ("x", "y", "z"), tuple(map(WantedRank, p)), 0, 1000, Fraction(1, 100), whole=True
    )
    table = pa.table({"value": [1, 500], "count": [1, 1]})
    for _ in range(30):
        row = part.alone().release(lambda sql: table, Entropy()).table.to_pylist()[0]
        assert row["y"] <= row["z"] <= row["x"]
        assert isinstance(row["x"], int)


def test_odd_histograms() -> None:
    """Nothing, missing values, unsorted and repeated rows, values beyond the grid."""
    nothing = pa.table({"value": pa.array([], pa.int64()), "count": pa.array([], pa.int64())})
    missing = pa.table({"value": pa.array([None], pa.int64()), "count": pa.array([0])})
    part = Quantiles("q", (), ("m",), (WantedRank(Fraction(1, 2)),), 7, 9, Fraction(10**6), whole=True)
    for table in (nothing, missing):
        answer = part.alone().release(lambda sql, t=table: t, Entropy()).table
        assert answer.column("m")[0].as_py() in (7, 8, 9)
    messy = pa.table({"value": [100, -5, 8, 8, 100], "count": [1, 2, 4, 3, 1]})
    assert part.alone().release(lambda sql: messy, Entropy()).table.to_pydict() == {"m": [8]}


def test_one_read_for_parts_of_one_query() -> None:
    seen: list[str] = []
    one = Quantiles("q", (), ("a",), (RANKS[0],), 0, 9, Fraction(1))
    two = Quantiles("q", (), ("b",), (RANKS[1],), 0, 9, Fraction(1))
    table = pa.table({"value": [3], "count": [5]})
    both = Together(None, (one, two))
    release = both.release(lambda sql: seen.append(sql) or table, Entropy())  # type: ignore[func-returns-value]
    assert seen == ["q"] == list(both.queries)
    assert release.table.column_names == ["a", "b"]


def test_nan_keys_are_one_group() -> None:
    table = pa.table({"g": pa.array([float("nan"), float("nan"), None])})
    first, second, third = list_groups(table, ("g",))
    assert first == second != third


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        WantedRank(Fraction(3, 2))
    with pytest.raises(ValueError, match="needs a grid"):
        Quantiles("q", (), ("m",), (RANKS[0],), 5, 4, Fraction(1))
    with pytest.raises(ValueError, match="a name for each"):
        Quantiles("q", (), ("m", "n"), (RANKS[0],), 0, 4, Fraction(1))


@pytest.mark.parametrize("values", [(3,), (3, 9), (0, 3, 3, 9, 12), (5, 5), tuple(range(13)), (2, 7, 12)])
def test_ends_are_exact_for_a_large_epsilon(values: tuple[int, ...]) -> None:
    """Whatever lies between the least value and the next is no answer: the wanted rank is not a whole one."""
    part = Quantiles(
        "q", (), ("low", "high"), (WantedRank.least(), WantedRank.greatest()), 0, 12, Fraction(10**6)
    )
    v, c = histogram(values)
    table = pa.table({"value": v, "count": c})
    for i in range(5):
        release = part.alone().release(lambda sql: table, fixed(f"ends {values} {i}")).table
        assert release.to_pylist() == [{"low": min(values), "high": max(values)}]
    assert part.inward == 1


@pytest.mark.parametrize(
    "rank",
    [WantedRank(Fraction(1, 2)), WantedRank(Fraction(9, 10)), WantedRank.least(), WantedRank.greatest()],
)
def test_as_many_rows_as_said_hold_the_answer(rank: WantedRank) -> None:
    """The chance of a point outside the data, added up over the grid: all rows are at one point in its middle."""
    part = Quantiles("q", (), ("m",), (rank,), 0, 10**6, Fraction(1))
    promised = 1e-3 if rank.end else 1e-9

    def outside(n: int) -> float:
        starts, sizes, utility = cut_segments(*histogram([500_000] * n), 0, 10**6, rank, part.inward)
        weight = sizes * np.exp(float(part.rate(rank)) * utility.astype(float))
        return float(weight[starts != 500_000].sum() / weight.sum())

    rows = part.count_needed(rank)
    assert rows is not None
    assert outside(rows) <= promised < outside(rows // 2)
    assert f"from {rows} rows on" in " ".join(part.sentences(0.95))


def test_no_number_of_rows_holds_the_ends() -> None:
    part = Quantiles("q", (), ("m",), (WantedRank(Fraction(1)),), 0, 1000, Fraction(1))
    assert part.count_needed(part.ranks[0]) is None
    assert "anywhere between the bounds" in part.sentences(0.95)[-1]


class TestQuantiles(OperatorContract):
    operator = Quantiles(
        "SELECT value", (), ("m",), (WantedRank(Fraction(1, 2)),), 0, 100, Fraction(1, 2)
    ).alone()

    def exact(self, text: str) -> pa.Table:
        return pa.table({"value": [1, 7, 50], "count": [4, 9, 2]})
