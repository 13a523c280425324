"""Totals from packed rows: the same as the plan's own query where nothing is chosen, and bounded alike where it is."""

from __future__ import annotations

import dataclasses
import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dpsql
from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.base import SALT, Reader
from dpsql.mechanisms.fast import packed_aggregation as packing
from dpsql.mechanisms.fast.packed_aggregation import (
    PACKED_TOTALS,
    Layout,
    PackedAggregation,
    PackedRoute,
    PackedValue,
    UnitTotal,
    sort_pairs,
)
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import choose_groups, draw_below_each
from tests.support import inside
from tests.support.fixtures import open_both, open_session
from tests.support.moves import make_reader

POLICY = """
[budget]
epsilon = 1e9
delta = 0.5
accountant = "basic"
default_epsilon = 1e6
default_delta = 1e-6
[tables.t]
privacy_unit = "u"
max_rows_per_group = 3
max_groups = 2
[tables.t.columns]
ward = { values = ["A", "B", "it's"] }
k = { values = [0, 1, 2, 3] }
z = { values = [0, 2, 9] }
x = { bounds = [-3, 10] }
y = { bounds = [0, 1] }
"""

SHAPES = [
    "SELECT ward, COUNT(*), SUM(x), AVG(y) FROM t GROUP BY ward",
    "SELECT k, COUNT(x), SUM(y), COUNT(DISTINCT u) FROM t GROUP BY k",
    "SELECT g, COUNT(*), SUM(x) FROM t GROUP BY g",
    "SELECT g, h, SUM(x), AVG(x) FROM t WHERE x > -5 GROUP BY g, h",
    "SELECT k, ward, COUNT(*) FILTER (WHERE y > 0.5), SUM(x) FILTER (WHERE ward = 'A') FROM t GROUP BY ALL",
    "SELECT k, SUM(x), SUM(x, contribution_bounds_per_row => (0, 4)), AVG(x) FROM t GROUP BY k",
    "SELECT ward, COUNT(*) FROM t GROUP BY ward",
    "SELECT z, k, COUNT(*), SUM(x) FROM t GROUP BY z, k",
    "SELECT h, k, SUM(y) FROM t GROUP BY h, k",
]
ALL = [
    "SELECT COUNT(*), COUNT(x), SUM(x), AVG(y) FROM t",
    "SELECT COUNT(*, contribution_bounds_per_group => (2, 3)), SUM(x, contribution_bounds_per_row => (1, 4)) FROM t",
    "SELECT COUNT(DISTINCT u), SUM(y) FILTER (WHERE x > 0), AVG(x) FROM t WHERE k < 3",
    "SELECT COUNT(*) FROM t",
]
"""Without groups."""


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    dice = random.Random(5)

    def row() -> str:
        pick = dice.choice
        g = pick(["NULL", "-4", "0", "7", "9000000000"])
        x = pick(["NULL", "-90", "-3", "0", "4", "10", "2000000"])
        y = pick(["NULL", "'nan'", "'inf'", "-1.0", "0.25", "0.75", "1e30"])
        ward = pick(["NULL", "'A'", "'B'", "'it''s'", "'Z'"])
        u, k = pick(["NULL", "-7", *map(str, range(12))]), pick(["NULL", "0", "1", "2", "3", "9"])
        z = pick(["NULL", "0", "2", "5", "9"])
        return f"({u}, {k}, {z}, {g}, {pick('0123')}, {x}, {y}, {ward})"

    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t (u BIGINT, k INTEGER, z SMALLINT, g BIGINT, h TINYINT, x INTEGER, y DOUBLE, ward VARCHAR)"
        )
        con.execute("INSERT INTO t VALUES " + ", ".join(row() for _ in range(400)))
        yield con


def operator(con: duckdb.DuckDBPyConnection, text: str) -> Aggregation:
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
        plan = inside.bind(session, text)
        found = plan.blocks[0].operator
        assert isinstance(found, Aggregation)
        return found


def rows(table: pa.Table | None, keys: tuple[str, ...]) -> dict[tuple[Any, ...], dict[str, int]]:
    assert table is not None, "the data fit, and were not packed"
    return {
        tuple(row[k] for k in keys): {c: int(v or 0) for c, v in row.items() if c not in keys}
        for row in table.to_pylist()
    }


@pytest.mark.parametrize("text", SHAPES)
def test_the_same_totals_as_the_query_where_nothing_is_chosen(
    con: duckdb.DuckDBPyConnection, text: str
) -> None:
    con.execute("UPDATE t SET g = 8 WHERE g > 100")  # few enough bits
    text = text.replace("SELECT", "SELECT WITH DP OPTIONS (max_groups_contributed = 40)", 1)
    found = operator(con, text)
    packed = found.packed.take(make_reader(con), Entropy())
    query = con.sql(found.query.replace(SALT, "12345")).to_arrow_table()
    assert rows(packed, found.keys) == rows(query, found.keys)
    for key in found.keys:
        assert packed.schema.field(key).type == query.schema.field(key).type


@pytest.mark.parametrize("text", ALL)
def test_the_same_totals_without_groups(con: duckdb.DuckDBPyConnection, text: str) -> None:
    found = operator(con, text)
    log: list[str] = []
    totals = found.packed.take(make_reader(con, log), Entropy())
    assert len(log) == 2
    assert rows(totals, ()) == rows(con.sql(found.query).to_arrow_table(), ())
    con.execute("DELETE FROM t")
    assert found.packed.take(make_reader(con), Entropy()) is None
    assert found.release(make_reader(con), Entropy()).table.num_rows == 1


def test_public_groups_with_gaps_are_coded(con: duckdb.DuckDBPyConnection) -> None:
    """Values between public groups are no groups: they must not take a place that a unit has."""
    text = "SELECT WITH DP OPTIONS (max_groups_contributed = 1) z, COUNT(*) FROM t GROUP BY z"
    found = operator(con, text)
    assert [route.dense for route in found.packed.routes] == [True, False]
    seen: list[str] = []
    totals = rows(found.packed.take(make_reader(con, seen), Entropy()), found.keys)
    assert "row_number" in seen[1]
    touched = con.sql("SELECT COUNT(DISTINCT u) FROM t WHERE z IN (0, 2, 9)").fetchall()[0][0]
    elsewhere = con.sql("SELECT COUNT(DISTINCT u) FROM t WHERE z = 5").fetchall()[0][0]
    assert totals.keys() == {(0,), (2,), (9,)}
    assert elsewhere > 3
    assert sum(row["units"] for row in totals.values()) == touched
    whole = operator(con, text.replace("z", "k")).packed
    seen.clear()
    assert whole.take(make_reader(con, seen), Entropy()) is not None
    assert "row_number" not in seen[1]


@pytest.mark.parametrize("text", SHAPES[:2])
def test_a_unit_counts_in_no_more_groups_than_it_may(con: duckdb.DuckDBPyConnection, text: str) -> None:
    text = text.replace("SELECT", "SELECT WITH DP OPTIONS (max_groups_contributed = 2)", 1)
    found = operator(con, text)
    assert found.packed.groups == 2
    key, inside = ("ward", "ward IN ('A', 'B', 'it''s')") if "ward" in text else ("k", "k BETWEEN 0 AND 3")
    touched = con.sql(
        f"SELECT COUNT(DISTINCT {key}) FROM t WHERE {inside} AND u IS NOT NULL GROUP BY u"
    ).fetchall()
    for _ in range(5):
        totals = rows(found.packed.take(make_reader(con), Entropy()), found.keys)
        assert sum(row["units"] for row in totals.values()) == sum(min(2, n) for (n,) in touched)
        # there was something to choose
        assert sum(min(2, n) for (n,) in touched) < sum(n for (n,) in touched)


def test_each_choice_is_as_likely_whoever_else_is_there() -> None:
    alone = np.zeros(3, dtype=np.int64)
    among = np.concatenate([alone, np.repeat(np.arange(1, 400), 5)])
    entropy = Entropy()
    for units in (alone, among):
        seen: Counter[int] = Counter()
        for _ in range(1200 if units is alone else 300):
            kept = choose_groups(units, 1, entropy)
            assert kept[:3].sum() == 1
            seen[int(np.flatnonzero(kept[:3])[0])] += 1
        expected = sum(seen.values()) / 3
        assert sum((seen[i] - expected) ** 2 / expected for i in range(3)) < 36  # but for 2e-8 of all runs
    crowd = choose_groups(among, 2, entropy)
    assert crowd is not None
    assert np.bincount(among[crowd]).tolist() == [2] * 400
    assert choose_groups(np.arange(9), 1, entropy) is None


@pytest.mark.parametrize("few", [8, 0], ids=["drawn", "shuffled"])
def test_every_set_of_groups_is_as_likely(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.noise.samplers._FEW_GROUPS", few)
    people = 6000
    kept = choose_groups(np.repeat(np.arange(people), 5), 2, Entropy())
    seen = Counter(tuple(np.flatnonzero(row).tolist()) for row in kept.reshape(people, 5))
    assert len(seen) == 10
    assert all(len(pair) == 2 for pair in seen)
    assert sum((n - people / 10) ** 2 / (people / 10) for n in seen.values()) < 55  # but for 2e-8 of all runs


def test_numbers_below_bounds_of_their_own_have_no_bias() -> None:
    bound = 3 << 30  # a third of all words would favour some numbers
    drawn = draw_below_each(np.full(30_000, bound), Entropy())
    thirds = np.bincount(drawn // (1 << 30), minlength=3)
    assert drawn.max() < bound
    assert sum((thirds - 10_000) ** 2 / 10_000) < 36  # but for 2e-8 of all runs
    words = iter([0, 2**32 - 1])  # the word 0 is one of those that are drawn again
    entropy = Entropy(lambda n: b"".join(next(words, 7).to_bytes(8, "little") for _ in range(n // 8)))
    assert draw_below_each(np.array([bound]), entropy).tolist() == [bound - 1]
    biased = Counter((np.arange(30_000) * (2**32 // 30_000) % bound // (1 << 30)).tolist())
    assert sum((biased[i] - 10_000) ** 2 / 10_000 for i in range(3)) > 36


@pytest.mark.parametrize("part", [1, 64, 1 << 20])
@pytest.mark.parametrize("rows", [40, 70_000])
def test_rows_and_sums_are_exact_however_many(rows: int, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts of any size: a unit is never in two of them."""
    monkeypatch.setattr("dpsql.mechanisms.fast.packed_aggregation._PART", part)
    dice = np.random.default_rng(4)
    unit = np.concatenate([np.zeros(rows, dtype=np.int64), np.arange(1, 50), dice.integers(0, 50, 500)])
    value = dice.integers(2**20 - 9, 2**20, len(unit))
    value[dice.random(len(unit)) < 0.3] = 0  # absent
    first, second = dice.integers(0, 3, len(unit)), dice.integers(0, 5, len(unit))
    layout = Layout(PackedRoute(("a", "b"), "", ""), 0, (0, 0), (3, 5), 50, (20,))
    packed = (((unit << 2 | first) << 3 | second) << 20) | value
    wanted = {}
    for u, code, v in zip(unit.tolist(), (first << 3 | second).tolist(), value.tolist(), strict=True):
        n, there, total = wanted.get((u, code), (0, 0, 0))
        wanted[u, code] = (n + 1, there + (v > 0), total + v)
    for parts in (
        sort_pairs(dice.permutation(packed), layout),
        sort_pairs(dice.permutation(packed), layout, threads=3),
        sort_pairs(dice.permutation(packed).astype(layout.kind), layout, threads=2),
    ):
        seen, found = [], []
        for one in parts:
            seen.append(set(one.units.tolist()))
            columns = (one.units, one.codes, one.rows, *one.sums)
            found += zip(*(column.tolist() for column in columns), strict=True)
        assert {(u, code): rest for u, code, *rest in found} == {k: list(v) for k, v in wanted.items()}
        assert [row[:2] for row in found] == sorted(row[:2] for row in found)
        assert sum(map(len, seen)) == 50


def test_always_choosing_the_first_would_be_seen() -> None:
    seen = Counter([0] * 1200)
    assert sum((seen[i] - 400) ** 2 / 400 for i in range(3)) > 36


def test_what_does_not_fit_is_read_by_the_query_and_as_often(con: duckdb.DuckDBPyConnection) -> None:
    found = operator(con, "SELECT k, COUNT(*) FROM t GROUP BY k")
    fits: list[str] = []
    found.release(make_reader(con, fits), Entropy())
    con.execute("INSERT INTO t (u, k) VALUES (9223372036854775807, 1), (-9223372036854775808, 1)")
    wide: list[str] = []
    table = found.release(make_reader(con, wide), Entropy()).table
    assert len(fits) == len(wide) == 3
    assert table.num_rows == 4
    full: list[str] = []
    found.release(make_reader(con, full, room=10), Entropy())
    assert len(full) == 3
    assert "counted" in full[-1]
    assert "counted" in wide[-1]
    assert "counted" not in fits[-1]
    remote: list[str] = []
    found.release(make_reader(con, remote, room=0), Entropy())
    assert len(remote) == 1  # an engine elsewhere ships no rows


def test_rows_that_came_after_the_ranges_are_left_out(con: duckdb.DuckDBPyConnection) -> None:
    found = operator(con, "SELECT g, COUNT(*) FROM t GROUP BY g")
    con.execute("DELETE FROM t WHERE g > 100")
    read = make_reader(con)
    seen: list[str] = []

    def execute(sql: str, lent: Any) -> pa.Table:
        if len(seen) == 1:
            con.execute("INSERT INTO t (u, g) VALUES (5000, 0), (1, 5000)")
        seen.append(sql)
        return read.execute(sql, lent)

    table = found.packed.take(Reader(execute, {}, 10**6), Entropy())
    assert (5000,) not in rows(table, found.keys)


def test_ranges_are_read_once_while_the_data_stay_as_they_are(con: duckdb.DuckDBPyConnection) -> None:
    found = operator(con, "SELECT COUNT(*), SUM(x) FROM t").packed
    kept: dict[str, object] = {}
    first: list[str] = []
    reader = make_reader(con, first)
    wanted = rows(found.take(replace(reader, memory=lambda text: kept), Entropy()), ())
    for memory, lent, many in (
        (lambda text: kept, {}, 1),
        (lambda text: kept, {"beside": pa.table({"a": [1]})}, 2),  # which another statement may call the same
        (lambda text: {}, {}, 2),
        (lambda text: None, {}, 2),
        (None, {}, 2),
    ):
        log: list[str] = []
        again = replace(make_reader(con, log), memory=memory, lent=lent)
        assert rows(found.take(again, Entropy()), ()) == wanted
        assert len(log) == many
    for i in range(2 * packing._KEPT):
        replace(found, ranges=f"{found.ranges} -- {i}").take(
            replace(make_reader(con), memory=lambda text: kept), Entropy()
        )
    assert len(kept) == packing._KEPT


def test_an_empty_table(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("DELETE FROM t")
    for text, size in ((SHAPES[0], 3), (SHAPES[2], 0)):
        assert operator(con, text).release(make_reader(con), Entropy()).table.num_rows == size


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*), VAR_POP(x) FROM t",
        "SELECT ward, VAR_POP(x) FROM t GROUP BY ward",
        "SELECT ward, AVG(x, contribution_bounds_per_group => (0, 3)) FROM t GROUP BY ward",
        "SELECT WITH DP OPTIONS (group_selection_strategy = OPTIMAL) LOWER(ward) AS w, COUNT(*) FROM t WHERE x > 0 GROUP BY x, w",
        "SELECT a.ward, COUNT(*) FROM t AS a JOIN t AS b USING (u) GROUP BY a.ward",
        "SELECT WITH DP OPTIONS (max_rows_contributed = 4) ward, COUNT(*) FROM t GROUP BY ward",
    ],
)
def test_other_shapes_have_the_query_only(con: duckdb.DuckDBPyConnection, text: str) -> None:
    assert operator(con, text).packed is None


def test_sums_by_code_are_exact() -> None:
    dice = np.random.default_rng(3)
    codes = dice.integers(0, 7, 5000)
    for far in (3, 2**30, 2**47, 2**49):
        values = dice.integers(-far, far, 5000)
        totals = packing._Totals(7, ("p",))
        for some, what in zip(np.array_split(codes, 4), np.array_split(values, 4), strict=True):
            totals.add(some, [what])
        assert totals.sums["p"].tolist() == [int(sum(int(v) for v in values[codes == c])) for c in range(7)]
        assert totals.units.tolist() == np.bincount(codes).tolist()


def test_the_session_takes_the_route(con: duckdb.DuckDBPyConnection) -> None:
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
        assert inside.engine(session).room > 10**5
        asked: list[str] = []
        engine = inside.engine(session)
        execute, batches = engine.execute, engine.batches
        engine.execute = lambda sql, lent=None: asked.append(sql) or execute(sql, lent)  # type: ignore
        engine.batches = lambda sql, lent=None: asked.append(sql) or batches(sql, lent)  # type: ignore
        answer = session.sql(
            "SELECT WITH DP OPTIONS (max_groups_contributed = 4) k, COUNT(*) FROM t GROUP BY k"
        )
        assert answer.shape == (4, 2)
        assert len(asked) == 3
        assert PACKED_TOTALS in asked[-1]


@pytest.mark.parametrize("by", ["", " GROUP BY k"])
def test_sums_that_64_bits_may_not_hold_are_left_to_the_query(by: str) -> None:
    wide = POLICY[: POLICY.index("[tables.t.columns]")].replace(
        "max_rows_per_group = 3", "max_rows_per_group = 20000"
    )
    wide += f"[tables.t.columns]\nk = {{ values = [1] }}\nx = {{ bounds = [0, {1 << 50}] }}\n"
    with open_session(
        wide, f"CREATE TABLE t AS SELECT i % 2 AS u, 1 AS k, {1 << 50} AS x FROM range(17000) AS r(i)"
    ) as session:
        total = 17000 * (1 << 50)
        assert total // 2 >= 2**62 * 2  # one unit's own sum
        answer = max(row[0] for row in session.sql(f"SELECT SUM(x) FROM t{by}").fetchall())
        assert abs(answer - total) < total / 1000


@pytest.mark.parametrize("by", ["", "k"])
def test_weighed_totals_of_more_than_64_bits_are_the_same_by_both_routes(by: str) -> None:
    far = 1 << 38
    policy = (
        POLICY[: POLICY.index("ward =")]
        + f"k = {{ values = [0, 1, 2, 3] }}\nx = {{ bounds = [{-far}, {far}] }}"
    )
    with open_both(
        policy,
        f"CREATE TABLE t AS SELECT i % 40 AS u, i % 40 % 4 AS k, CASE WHEN i % 7 > 0 THEN {far} - i END AS x "
        "FROM range(1000) AS r(i)",
    ) as (con, session):
        text = f"SELECT {by + ', ' if by else ''}AVG(x), SUM(x) FROM t" + (f" GROUP BY {by}" if by else "")
        found = inside.bind(session, text).blocks[0].operator
        assert isinstance(found, Aggregation)
        packed = rows(found.packed.take(make_reader(con), Entropy()), found.keys)
        query = rows(con.sql(found.query.replace(SALT, "12345")).to_arrow_table(), found.keys)
        assert packed == query
        total, count = (s.column for s in found.outputs[0].statistics)
        assert by or max(row[total] for row in packed.values()) > 2**63
        mean = dict(con.sql(f"SELECT {by or 0}, AVG(x) FROM t GROUP BY ALL").fetchall())
        present = dict(con.sql(f"SELECT {by or 0}, COUNT(x) FROM t GROUP BY ALL").fetchall())
        for key, row in packed.items():
            assert 0 < row[count] < present[key[0] if key else 0] << 20  # there was something to weigh
            assert row[total] / row[count] == pytest.approx(mean[key[0] if key else 0], rel=1e-6)


def test_what_one_unit_may_add_keeps_within_62_bits() -> None:
    """A unit's weighed total is computed in 64 bits: where it may not fit, the query is read."""
    tally = UnitTotal("p", -3 << 41, 3 << 41, 0, True, 0, 3, 1 << 20)
    assert tally.far >= 2**62
    found = PackedAggregation("", (PackedRoute((), "", ""),), (PackedValue("v", 9),), (tally,), "units", None)
    known = pa.table({"n": [10], "u_low": [0], "u_high": [3]})
    assert found.take(Reader(lambda sql, lent: known, {}, 10**6), Entropy()) is None
    near = dataclasses.replace(found, tallies=(dataclasses.replace(tally, low=-3 << 30, high=3 << 30),))
    assert near._layout(Reader(lambda sql, lent: known, {}, 10**6)) is not None


@pytest.mark.parametrize("seed", range(20))
def test_weighed_totals_are_exact_fractions_rounded_down(seed: int) -> None:
    dice = np.random.default_rng(seed)
    most, scale = int(dice.integers(1, 30)), 1 << 20
    many = dice.integers(0, 200, 50)
    total = np.where(many == 0, 0, dice.integers(-10_000, 10_000, 50))
    tallies = (
        UnitTotal("n", 0, most, 0, rows=most, scale=scale),
        UnitTotal("s", -9, 9, 0, True, 0, most, scale),
    )
    parts = dict(packing._contributions(tallies, many, [many, 2 * total]))
    for i, n in enumerate(many.tolist()):
        weight = Fraction(scale * min(n, most), n or 1)
        assert parts["n"][i] * scale + parts["n_rest"][i] == scale * min(n, most)
        assert parts["s"][i] * scale + parts["s_rest"][i] == math.floor(int(total[i]) * weight)
        assert 0 <= parts["s_rest"][i] < scale
