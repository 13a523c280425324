"""Subsample and aggregate: sensitivities by search, exact laws, sources, and blocks that are not private."""

from __future__ import annotations

import datetime
import itertools
import json
import math
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from dpsql.errors import EngineError, Interrupted
from dpsql.mechanisms.base import SALT, OutOfMemory, watch_progress
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.ptr.stability_test import OptimalTest
from dpsql.mechanisms.subsample.blocks import BlockQueries, BlockRows, LiftedBlocks, NoisyMode, PythonBlocks
from dpsql.mechanisms.subsample.subsample import (
    BlockMean,
    BlockMedian,
    ResultRange,
    SubsampleAggregate,
    WinsorizedMean,
    choose_grid_quantile,
)
from dpsql.noise.entropy import Entropy
from tests.support.goodness import fixed

VECTORS = Path(__file__).parents[2] / "published" / "vectors"
ONE = Fraction(1)
UNIT = ResultRange(Fraction(0), ONE, 4)


def trimmed(places: Sequence[int], trim: int) -> Fraction:
    kept = sorted(places)[trim : len(places) - trim]
    return Fraction(sum(kept), len(kept))


def winsorized(places: Sequence[int], trim: int) -> Fraction:
    """With limits from the values themselves: what the module does *not* do."""
    ranked = sorted(places)
    low, high = ranked[trim], ranked[len(ranked) - trim - 1]
    return Fraction(sum(min(max(v, low), high) for v in places), len(places))


def sensitivity(f: Callable[[Sequence[int]], Fraction], k: int, points: int) -> Fraction:
    """Largest change, in ranges, when one of k values on the grid is replaced by another."""
    worst = Fraction(0)
    for rest in itertools.combinations_with_replacement(range(points + 1), k - 1):
        values = [f((*rest, v)) for v in range(points + 1)]
        worst = max(worst, max(values) - min(values))
    return worst / points


@pytest.mark.parametrize("case", json.loads((VECTORS / "vectors_aggregators.json").read_text()))
def test_published_sensitivities(case: dict) -> None:
    k, trim = case["k"], case["trimmed_each_side"]
    assert (
        sensitivity(lambda z: trimmed(z, trim), k, 2)
        == Fraction(case["trimmed"])
        == Fraction(1, k - 2 * trim)
    )
    naive = sensitivity(lambda z: winsorized(z, trim), k, 2)
    assert naive == Fraction(case["winsorised"])
    if trim:
        assert naive > Fraction(1, k)  # range / k, the naive sensitivity of a winsorised mean, is a bug
    median = sensitivity(lambda z: Fraction(sorted(z)[(k - 1) // 2]), k, 2)
    assert median == Fraction(case["median"]) == 1


@pytest.mark.parametrize("trim", [0, 1, 2])
def test_what_noise_is_added_to_moves_by_at_most_the_range(trim: int) -> None:
    """The very sum that BlockMean perturbs, through the combiner."""

    class Silent:
        sensitivity, groups, event = 4, 1, None

        def add(self, values: list[int], entropy: Entropy) -> list[int]:
            return values

        def half_width(self, confidence: float) -> float:
            return 0.0

    combiner = BlockMean("a", UNIT, Silent(), trim)  # type: ignore[arg-type]

    def mean(z: Sequence[int]) -> Fraction:
        columns, _ = combiner.combine([v / 4 for v in z], None, Entropy(), 0.95)
        return Fraction(columns["a"][0].as_py()).limit_denominator(1000) * 4

    assert sensitivity(mean, 5, 4) == Fraction(1, 5 - 2 * trim)


def test_noise_must_fit_the_range() -> None:
    with pytest.raises(ValueError, match="whole range"):
        BlockMean("a", UNIT, LaplaceNoise(ONE, 3))


# --- the quantile


def quantile_law(places: Sequence[int], p: Fraction, points: int, epsilon: float) -> np.ndarray:
    """Return the probability of every point of the grid, by brute force."""
    k = len(places)
    weights = []
    for v in range(points + 1):
        below = sum(x < v for x in places)
        upto = sum(x <= v for x in places)
        weights.append(math.exp(-epsilon / 2 * max(0, float(below - p * k), float(p * k - upto))))
    return np.array(weights) / sum(weights)


def chi_square(seen: np.ndarray, law: np.ndarray) -> tuple[float, int]:
    expected = law * seen.sum()
    return float(((seen - expected) ** 2 / expected).sum()), len(law) - 1


@pytest.mark.parametrize("p", [Fraction(1, 4), Fraction(1, 2), ONE])
def test_quantile_law(p: Fraction) -> None:
    places, points, epsilon = [2, 2, 3, 7, 7, 7, 9], 12, Fraction(3, 2)
    entropy = fixed(f"quantile {p}")
    draws = [choose_grid_quantile(places, p, points, epsilon, entropy) for _ in range(6000)]
    seen = np.bincount(draws, minlength=points + 1)
    statistic, freedom = chi_square(seen, quantile_law(places, p, points, float(epsilon)))
    limit = freedom + 8 * math.sqrt(2 * freedom) + 16  # beyond the one-in-a-million quantile
    assert statistic < limit
    wrong, _ = chi_square(seen, quantile_law(places, p, points, 2 * float(epsilon)))
    assert wrong > limit  # the factor 2 of utilities that are not monotone shows


def test_quantile_loses_no_more_than_epsilon() -> None:
    epsilon, points, k = 1.2, 5, 4
    worst = 0.0
    for p in (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)):
        laws = {
            z: quantile_law(z, p, points, epsilon)
            for z in itertools.combinations_with_replacement(range(points + 1), k)
        }
        for z, law in laws.items():
            for v in range(points + 1):
                other = laws[tuple(sorted((*z[1:], v)))]
                worst = max(worst, float(np.abs(np.log(law / other)).max()))
    assert 0.5 * epsilon < worst <= epsilon + 1e-9


def test_winsorized_limits_come_from_private_quantiles() -> None:
    rng = random.Random(1)
    values = [50 + rng.gauss(0, 1) for _ in range(398)] + [1000.0, -1000.0]
    combiner = WinsorizedMean("a", ResultRange(Fraction(-1000), Fraction(1000), 1 << 14), Fraction(4))
    entropy = fixed("winsorized")
    columns, notes = combiner.combine(values, None, entropy, 0.95)
    row = {name: array[0].as_py() for name, array in columns.items()}
    assert row["a"] == pytest.approx(50, abs=2)
    assert not notes
    assert row["a__high"] - row["a__low"] < 5  # far less than the noise for the whole range would need
    sure = WinsorizedMean("a", combiner.bounds, Fraction(40))  # at 4, one constant in 25 is missed by more
    constant, _ = sure.combine([7.0] * 100, None, entropy, 0.95)
    assert constant["a"][0].as_py() == pytest.approx(7, abs=1)
    at_the_end, _ = sure.combine([1000.0] * 100, None, entropy, 0.95)
    assert at_the_end["a"][0].as_py() == pytest.approx(1000, abs=5)


@pytest.mark.parametrize("trim", [Fraction(1, 10), Fraction(3, 10)])
def test_a_winsorized_mean_holds_what_is_beyond_the_quantiles_that_were_asked_for(trim: Fraction) -> None:
    places = [0, 3, 5, 6, 7, 8, 9, 10, 60, 100]
    combiner = WinsorizedMean("a", ResultRange(Fraction(0), Fraction(100), 100), Fraction(10**6), trim=trim)
    least, most = places[int(trim * 10) - 1], places[9 - int(trim * 10)]
    found = {combiner.combine(places, None, Entropy(), 0.95)[0]["a"][0].as_py() for _ in range(20)}
    # a quantile may be anywhere between two neighbours of the same rank
    nearest = {
        sum(min(max(v, low), high) for v in places) / 10
        for low in range(least, places[int(trim * 10)] + 1)
        for high in range(most, places[10 - int(trim * 10)] + 1)
    }
    assert found <= nearest
    assert combiner.event == WinsorizedMean("a", combiner.bounds, combiner.epsilon).event
    assert "0.1 and 0.9" in combiner.sentences(0.95, 10)[0] or trim != Fraction(1, 10)


# --- bounds


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (0.5, 2), (-3, 0), (9e300, 4), (None, 2), (math.nan, 2), (math.inf, 2), ("x", 2), (True, 4),
        (0.13, 1),
        ([1], 2), (np.float64(0.74), 3),
    ],
)  # fmt: skip
def test_results_are_held_to_public_bounds(value: Any, place: int) -> None:
    assert UNIT.place(value) == place


def test_doubles_have_the_places_of_their_fractions() -> None:
    """In integers, whatever the ends: halves go to the even place."""
    source = random.Random(3)
    for low, high, points in (
        (Fraction(-1, 3), Fraction(7, 11), 5),
        (Fraction(0), Fraction(1000), 65536),
        (Fraction(-8), Fraction(8), 4),
    ):
        grid = ResultRange(low, high, points)
        halves = [float(low + grid.step * (k + Fraction(1, 2))) for k in range(-2, points + 2)][:50]
        values = [source.uniform(float(low) - 1, float(high) + 1) for _ in range(500)]
        for value in (*halves, *values, 0.0, -0.0, 5e-324, 1.7e308, -1.7e308):
            exact = min(max(round((Fraction(value) - low) / grid.step), 0), points)
            assert grid.place(value) == grid.place(Fraction(value)) == exact
    with pytest.raises(ValueError, match="order"):
        ResultRange(ONE, ONE, 4)


# --- sources


@pytest.fixture
def read() -> Callable[[str], pa.Table]:
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT i AS unit, CAST(i % 10 AS DOUBLE) AS v, i % 3 = 0 AS b "
        "FROM range(1000) r(i)"
    )

    def run(sql: str, lent: Mapping[str, pa.Table] | None = None) -> pa.Table:
        for name, table in (lent or {}).items():
            connection.register(name, table)
        try:
            return connection.sql(sql).to_arrow_table()
        except duckdb.Error:
            raise EngineError("the engine failed") from None

    return run


def rows(blocks: int) -> tuple[BlockRows, ...]:
    text = f"SELECT unit % {blocks} AS block, unit AS c0, v AS c1 FROM t"
    return (BlockRows("own", text, (("unit", "BIGINT"), ("v", "DOUBLE"))),)


HASHED = f"CAST(hash(xor(hash(unit), {SALT})) % 20 AS INTEGER)"


def test_lifted_and_block_by_block_agree(read: Callable[[str], pa.Table]) -> None:
    lifted = LiftedBlocks(
        "SELECT unit % 20 AS block, AVG(v) AS a, COUNT(*) AS n FROM t GROUP BY 1", ("a", "n"), 22
    )
    single = BlockQueries(rows(20), "SELECT AVG(v) AS a, COUNT(*) AS n FROM own", ("a", "n"), 22)
    first, second = lifted.results(read, Entropy()), single.results(read, Entropy())
    assert first.columns["a"] == second.columns["a"]
    assert first.columns["n"][:20] == second.columns["n"][:20] == [50] * 20
    assert first.columns["n"][20:] == [None, None]  # an empty block has no row in the lifted form
    assert first.types == second.types


def test_a_failing_block_has_no_result(read: Callable[[str], pa.Table]) -> None:
    query = "SELECT AVG(v) AS a FROM own WHERE CASE WHEN unit % 4 = 2 THEN error('secret') ELSE TRUE END"
    source = BlockQueries(rows(4), query, ("a",), 4)
    found = source.results(read, Entropy()).columns["a"]
    assert found[2] is None
    assert sum(v is None for v in found) == 1
    made = SubsampleAggregate(source, (BlockMedian("a", ResultRange(Fraction(0), Fraction(9), 90), ONE),))
    assert made.release(read, Entropy()).table.num_rows == 1


def test_blocks_that_are_too_much_at_once_are_read_in_turn(read: Callable[[str], pa.Table]) -> None:
    """The same results, of ever fewer blocks at a time; those that memory can't hold one by one fail."""
    query = f"SELECT {HASHED.replace(SALT, '1')} AS dpsql_block, MEDIAN(v) AS a FROM t GROUP BY 1"
    source = LiftedBlocks(query, ("a",), 20)
    asked: list[int] = []

    def small(most: int) -> Callable[[str], pa.Table]:
        def found(sql: str) -> pa.Table:
            table = read(sql)
            asked.append(table.num_rows)
            if table.num_rows > most:
                raise OutOfMemory("no more than a few blocks")
            return table

        return found

    whole = source.results(read, Entropy())
    for most, parts in ((20, 1), (5, 5), (2, 14)):
        asked.clear()
        assert source.results(small(most), Entropy()) == whole
        assert len(asked) <= parts
        assert max(asked[1:], default=0) <= 5
    with pytest.raises(OutOfMemory):
        source.results(small(0), Entropy())


def test_several_rows_for_a_block_and_numbers_out_of_range_do_not_count(
    read: Callable[[str], pa.Table],
) -> None:
    rows = (
        "SELECT * FROM (VALUES (0, 1.0), (0, 2.0), (1, 3.0), (7, 4.0), (NULL, 5.0), (-1, 6.0)) AS r(block, a)"
    )
    assert LiftedBlocks(rows, ("a",), 3).results(read, Entropy()).columns == {"a": [None, 3, None]}
    dates = "SELECT * FROM (VALUES (0, DATE 'infinity'), (1, DATE '2026-01-05')) AS r(block, a)"
    found = LiftedBlocks(dates, ("a",), 2).results(read, Entropy()).columns["a"]
    assert found == [None, datetime.date(2026, 1, 5)]  # no exception that would speak of block 0


def test_python_blocks(read: Callable[[str], pa.Table], capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[int] = []

    def f(v: np.ndarray, b: np.ndarray) -> float:
        calls.append(len(v))
        print("private", v)
        warnings.warn("private", stacklevel=1)
        assert list(v) == sorted(v)  # the order of a block says nothing of other blocks
        v[:] = -1
        if len(calls) == 3:
            raise RuntimeError("private")
        return float(len(v))

    done: list[int] = []
    source = PythonBlocks(
        "SELECT unit % 5 AS block, v, b FROM t WHERE unit % 5 < 4", ("v", "b"), 5, "f", "a", f
    )
    operator = SubsampleAggregate(
        source, (BlockMedian("a", ResultRange(Fraction(0), Fraction(400), 400), ONE),)
    )
    with watch_progress(lambda n, m: done.append(n)):
        found = operator.source.results(read, Entropy()).columns["a"]
    assert found == [200.0, 200.0, None, 200.0, None]  # an exception, and a block without rows
    assert calls == [200] * 4
    assert done == [0, 1, 2, 3, 4, 5]
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_what_a_python_function_is_given_is_of_its_block_alone() -> None:
    """A missing integer, and a time that Python has not, are one block's: no other's arguments change, nothing fails."""

    def run(text: str) -> pa.Table:
        return duckdb.sql(text).to_arrow_table()

    def kinds(*columns: np.ndarray) -> str:
        return " ".join(str(column.dtype) for column in columns)

    plain = "SELECT i % 3 AS block, i AS n, i > 1 AS b, TIME '10:00:00' AS t FROM range(30) AS r(i)"
    bad = f"{plain} UNION ALL SELECT 1, NULL, NULL, TIME '24:00:00'"
    found = []
    for query in (plain, bad):
        source = PythonBlocks(query, ("n", "b", "t"), 3, "kinds", "a", kinds)
        found.append(source.results(run, Entropy()).columns["a"])
    assert found[0] == ["int64 bool object"] * 3
    assert found[1] == ["int64 bool object", None, "int64 bool object"]


def test_one_block_that_succeeds_is_not_seen_in_the_types() -> None:
    """The released column's type comes from the query, not from whichever block first had a result."""

    def run(text: str, lent: Mapping[str, pa.Table] | None = None) -> pa.Table:
        with duckdb.connect() as con:
            for name, table in (lent or {}).items():
                con.register(name, table)
            try:
                return con.sql(text).to_arrow_table()
            except duckdb.Error:
                raise EngineError("the engine failed") from None

    mode = NoisyMode("a", ONE, selection=OptimalTest(ONE, Fraction(1, 10**12), groups=2))
    types = []
    for last in (8, 9):  # unit 8 is the only one whose block does not fail
        text = f"SELECT unit AS block, unit AS c0 FROM range({last}) AS t(unit)"
        only = "SELECT CASE WHEN MAX(unit) = 8 THEN 1 ELSE error('secret')::INTEGER END AS a FROM own"
        source = BlockQueries((BlockRows("own", text, (("unit", "BIGINT"),)),), only, ("a",), 9)
        found = source.results(run, Entropy())
        assert sum(value is not None for value in found.columns["a"]) == last - 8
        types.append(SubsampleAggregate(source, (mode,)).release(run, Entropy()).table.schema)
    assert types[0] == types[1] == pa.schema([("a", pa.int32())])


def test_interruption_ends_the_blocks(read: Callable[[str], pa.Table]) -> None:
    def stop(done: int, of: int) -> None:
        if done == 2:
            raise Interrupted("stopped")

    source = BlockQueries(rows(9), "SELECT AVG(v) AS a FROM own", ("a",), 9)
    operator = SubsampleAggregate(source, (BlockMedian("a", UNIT, ONE),))
    with pytest.raises(Interrupted), watch_progress(stop):
        operator.release(read, Entropy())


# --- blocks must not depend on other units


def assignment(read: Callable[[str], pa.Table], expression: str, table: str) -> dict[int, int]:
    rows = read(f"SELECT unit, {expression} AS block FROM {table}").to_pylist()
    return {row["unit"]: row["block"] for row in rows}


def test_one_unit_changes_one_block_when_blocks_are_hashed_and_most_when_they_are_numbered(
    read: Callable[[str], pa.Table],
) -> None:
    everyone, others = "t", "(SELECT * FROM t WHERE unit > 0) AS t"
    hashed = HASHED.replace(SALT, "12345")
    for expression, private in ((hashed, True), ("NTILE(20) OVER (ORDER BY unit)", False)):
        before, after = (assignment(read, expression, table) for table in (everyone, others))
        moved = {unit for unit in after if before[unit] != after[unit]}
        blocks = {before[u] for u in moved} | {after[u] for u in moved}
        assert (len(blocks) == 0) is private
    numbered = "(row_number() OVER (ORDER BY unit)) % 20"
    before, after = (assignment(read, numbered, table) for table in (everyone, others))
    assert all(before[u] != after[u] for u in after)


def test_fresh_salt_every_release(read: Callable[[str], pa.Table]) -> None:
    seen: list[str] = []

    def spy(sql: str) -> pa.Table:
        seen.append(sql)
        return read(sql)

    operator = SubsampleAggregate(
        LiftedBlocks(f"SELECT {HASHED} AS block, AVG(v) AS a FROM t GROUP BY 1", ("a",), 20),
        (BlockMedian("a", ResultRange(Fraction(0), Fraction(9), 90), ONE),),
    )
    for _ in range(2):
        row = operator.release(spy, Entropy()).table.to_pylist()[0]
        assert 0 <= row["a"] <= 9
    assert seen[0] != seen[1]
    assert SALT not in "".join(seen)
    assert operator.queries[0].count(SALT) == 1
