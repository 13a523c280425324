"""Block averages by the shorter way: the grid points are those of the exact averages, whatever the order and the data."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dpsql
from dpsql.mechanisms.base import SALT, Reader
from dpsql.mechanisms.fast.block_means import BlockMeanPlaces, FastBlockMeans
from dpsql.mechanisms.subsample.blocks import write_block_number
from dpsql.mechanisms.subsample.subsample import ResultRange
from dpsql.noise.entropy import Entropy
from tests.support import inside

TINY = Fraction(1, 2**200)


def near(low: float, high: float, bounds: ResultRange, rounding: Fraction = TINY) -> BlockMeanPlaces:
    return BlockMeanPlaces("", "", bounds, Fraction(low), Fraction(high), rounding)


def sums(values: list[float], chance: random.Random) -> set[float]:
    """What adding them gives, in several orders and several trees."""
    found = set()
    for _ in range(6):
        chance.shuffle(values)
        array = np.array(values)
        half = len(values) // 2
        found |= {sum(values), float(array.sum()), float(array[:half].sum() + array[half:].sum())}
    return found | {sum(sorted(values)), sum(sorted(values, reverse=True)), sum(sorted(values, key=abs))}


@pytest.mark.parametrize("low", [0.0, -1000.0])
@pytest.mark.parametrize("points", [10, 1 << 16, 1 << 42])
def test_what_is_certain_is_right(low: float, points: int) -> None:
    chance = random.Random(points)
    certain = doubtful = 0
    for _ in range(60):
        a, b = sorted(chance.uniform(low, 1000.0) for _ in range(2))
        kinds = [
            lambda a=a, b=b: chance.uniform(a, b), lambda a=a: a, lambda: chance.uniform(low, 1000.0) ** 3 / 1e6,
            lambda: low + 2.0 ** chance.uniform(-40, 9), lambda: float(chance.randint(int(low), 1000)), lambda: 0.1,
        ]  # fmt: skip
        kind = chance.choice(kinds)
        values = [kind() for _ in range(chance.choice([1, 2, 10, 999]))]
        bounds = ResultRange(Fraction(round(a)), Fraction(round(b) + 1), points)
        exact = sum(map(Fraction, values)) / len(values)
        this = near(low, 1000.0, bounds)
        for total in sums(values, chance):
            place = this.place(total, len(values))
            certain, doubtful = certain + (place is not None), doubtful + (place is None)
            assert place is None or place == bounds.place(exact)
    assert certain and (doubtful or points < 1 << 42)


def test_near_the_middle_between_two_points_nothing_is_certain() -> None:
    """The control: the same numbers, added in two orders, lie on two sides of it."""
    values = [0.1] * 3 + [2.0**-54 * 3] + [1.0] * 5
    bounds = ResultRange(Fraction(0), Fraction(1), 1)
    totals = sorted(sums(values * 64, random.Random(3)))
    assert len(totals) > 1, "no two orders differ: this shows nothing"
    middle = (Fraction(totals[0]) + Fraction(totals[-1])) / 2 / (64 * len(values))
    bounds = ResultRange(middle - Fraction(1, 2), middle + Fraction(3, 2), 2)
    naive = {bounds.place(Fraction(total) / (64 * len(values))) for total in totals}
    assert naive == {0, 1}
    assert {near(0, 1, bounds).place(total, 64 * len(values)) for total in totals} == {None}


@pytest.mark.parametrize("low", [0.0, -8.0])
def test_the_error_that_is_allowed_for_is_the_whole_of_it(low: float) -> None:
    """Whatever lies within n u / (1 - n u) times the size of the numbers, and what the exact query rounds, is allowed for."""
    bounds, n, rounding = ResultRange(Fraction(0), Fraction(4), 4), 1000, Fraction(1, 2**60)
    this = near(low, 8.0, bounds, rounding)
    edge = Fraction(3, 2)
    reach = Fraction(n, 2**53 - n) * (edge if low == 0 else 8) + rounding
    for side in (-1, 1):
        inside, outside = (
            float((edge + side * reach * f) * n) for f in (Fraction(99, 100), Fraction(102, 100))
        )
        assert this.place(inside, n) is None
        assert this.place(outside, n) == (1 if side < 0 else 2)
    assert this.place(0.0, 5) == 0 and this.place(1e6, 5) == 4, "beyond the grid there is only one point"
    for total, count in ((float("nan"), 5), (float("inf"), 5), (1.0, 0), (1.0, 2**41)):
        assert this.place(total, count) is None


HOSTILE = {
    "ordinary": "SIN(n) * SIN(n) * 1000",
    "cents": "ROUND(EXP(n % 1000 * 0.007), 2)",
    "nothing": "NULL",
    "some nothing": "CASE WHEN n % 3 > 0 THEN n % 700 END",
    "constant": "0.1",
    "on an edge": "500 + 1000 / 131072",
    "signed zeros": "CASE WHEN n % 2 = 0 THEN -0.0::DOUBLE ELSE 0.0::DOUBLE END",
    "tiny": "5e-324::DOUBLE * (n % 5)",
    "not a number": "CASE WHEN n = 777 THEN 'nan'::DOUBLE ELSE n % 700 END",
    "infinite": "CASE n WHEN 777 THEN 'inf'::DOUBLE WHEN 778 THEN '-inf'::DOUBLE ELSE n % 700 END",
    "huge": "CASE n WHEN 777 THEN 1e308 WHEN 778 THEN -1e308 WHEN 779 THEN 1e300 ELSE n % 700 END",
    "a little beyond": "CASE n WHEN 777 THEN 2001.5 WHEN 778 THEN -0.5 ELSE n % 700 END",
    "at the ends": "CASE n % 3 WHEN 0 THEN 0 WHEN 1 THEN 1000 ELSE 2000 END",
}
POLICY = """
[budget]
epsilon = 1e9
delta = 0.5
accountant = "basic"
default_epsilon = 1
[tables.t]
privacy_unit = "u"
max_rows = 100
[tables.t.columns]
{columns}
y = {{ bounds = [-10, 10] }}
[tables.rows]
source = "s"
privacy_unit = "ROW"
[tables.rows.columns]
{columns}
"""
INSIDE = {"ordinary", "cents", "nothing", "some nothing", "constant", "signed zeros", "tiny", "at the ends"}


@dataclass
class Watched:
    """Runs queries, and keeps what was asked."""

    execute: Callable[[str], pa.Table]
    asked: list[str] = field(default_factory=list)

    def __call__(self, sql: str, lent: Mapping[str, pa.Table]) -> pa.Table:
        self.asked.append(sql)
        return self.execute(sql)


def fixed() -> Entropy:
    return Entropy(lambda n: random.Random(7).randbytes(n))


@pytest.fixture(scope="module")
def session() -> Iterator[dpsql.Session]:
    """The columns ``x0``, ``x1``... of both tables are as hostile as can be."""
    kinds = ", ".join(f"CAST({sql} AS DOUBLE) AS x{i}" for i, sql in enumerate(HOSTILE.values()))
    columns = "\n".join(f"x{i} = {{ bounds = [0, 1000] }}" for i in range(len(HOSTILE)))
    with duckdb.connect() as con:
        con.execute(
            f"CREATE TABLE t AS SELECT n % 5000 AS u, {kinds}, COS(n) * 9.5 AS y, n % 7 AS g FROM range(12_000) AS r(n)"
        )
        con.execute("CREATE TABLE s AS SELECT * EXCLUDE (u, y) FROM t")
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY.format(columns=columns))) as session:
            yield session


def bound(session: dpsql.Session, text: str) -> Any:
    return inside.bind(session, text).blocks[0].operator


@pytest.mark.parametrize("kind", list(HOSTILE))
@pytest.mark.parametrize("rows", ["t", "rows", "t WHERE g <> 3"])
def test_both_ways_give_the_same_grid_points(session: dpsql.Session, kind: str, rows: str) -> None:
    x = f"x{list(HOSTILE).index(kind)}"
    source = bound(
        session, f"SELECT WITH SUBSAMPLE OPTIONS (blocks = 20, bounds = (0, 1000)) AVG({x}) FROM {rows}"
    ).source
    assert isinstance(source, FastBlockMeans)
    read = Watched(inside.engine(session).execute)
    short = source.results(Reader(read, {}, room=1), fixed())
    shorter = "AS total" in read.asked[-1]
    long = source.results(Reader(read, {}), fixed())
    bounds, name = source.near.bounds, source.exact.columns[0]
    assert [bounds.place(v) for v in short.columns[name]] == [bounds.place(v) for v in long.columns[name]]
    assert [v is None for v in short.columns[name]] == [v is None for v in long.columns[name]]
    assert shorter == (kind in INSIDE)


def test_of_two_signs_and_under_one_salt(session: dpsql.Session) -> None:
    source = bound(
        session, "SELECT WITH SUBSAMPLE OPTIONS (blocks = 16, bounds = (-1, 1)) AVG(y) AS a FROM t"
    ).source
    read = Watched(inside.engine(session).execute)
    short = source.results(Reader(read, {}, room=1), Entropy())
    assert len(read.asked) == 2 and None not in short.columns["a"]
    # one block that is not certain: all are read again, with the same salt
    doubtful = replace(source, near=replace(source.near, rounding=Fraction(1)))
    read.asked.clear()
    doubtful.results(Reader(read, {}, room=1), Entropy())
    near_query, exact_query = read.asked[1:]
    salt = near_query.split("xor(CAST(")[1].split(", ")[1].split(")")[0]
    assert salt.isdigit() and salt in exact_query and SALT not in near_query + exact_query


@pytest.mark.parametrize(
    ("query", "shorter"),
    [
        ("AVG(x0) AS a FROM t", True),
        ("AVG(y) AS a FROM t WHERE x0 > 5", True),
        ("AVG(x0) FROM rows", True),
        ("AVG(x0) + 1 AS a FROM t", False),
        ("SUM(x0) AS a FROM t", False),
        ("AVG(x0) FILTER (WHERE g = 1) AS a FROM t", False),
        ("AVG(DISTINCT x0) AS a FROM t", False),
        ("AVG(x0 + y) AS a FROM t", False),
        ("AVG(g) AS a FROM t", False),
        ("AVG(x0) AS a, AVG(y) AS b FROM t", False),
        ("AVG(x0) AS a FROM t HAVING COUNT(*) > 3", False),
        ("AVG(m) AS a FROM (SELECT u, AVG(x0) AS m FROM t GROUP BY u) AS units", False),
        ("AVG(x0) AS a FROM (SELECT * FROM t) AS t", False),
        ("AVG(a.x0) AS a FROM t AS a JOIN t AS b ON a.u = b.u", False),
    ],
)
def test_which_queries_have_a_shorter_way(session: dpsql.Session, query: str, shorter: bool) -> None:
    operator = bound(session, f"SELECT WITH SUBSAMPLE OPTIONS (blocks = 4, bounds = (0, 9)) {query}")
    assert isinstance(operator.source, FastBlockMeans) is shorter
    assert len(operator.queries) == 1, "EXPLAIN shows the exact query"
    assert len(operator.checked) == (3 if shorter else 1)


def test_votes_look_at_results_themselves(session: dpsql.Session) -> None:
    options = "blocks = 4, combine = 'noisy_mode', candidates = (1, 2)"
    assert not isinstance(
        bound(session, f"SELECT WITH SUBSAMPLE OPTIONS ({options}) AVG(x0) FROM t").source, FastBlockMeans
    )


def test_one_unit_moves_one_block_by_either_way(session: dpsql.Session) -> None:
    """With or without a row that sends all blocks the longer way."""
    source = bound(
        session, "SELECT WITH SUBSAMPLE OPTIONS (blocks = 16, bounds = (0, 1000)) AVG(x0) AS a FROM t"
    ).source
    found = []
    for more in (False, True):
        if more:
            inside.engine(session)._con.execute("INSERT INTO t (u, x0) VALUES (99999, 1e6)")
        read = Watched(inside.engine(session).execute)
        results = source.results(Reader(read, {}, room=1), fixed())
        found.append([source.near.bounds.place(v) for v in results.columns["a"]])
        assert ("AS total" in read.asked[-1]) is not more
    inside.engine(session)._con.execute("DELETE FROM t WHERE u = 99999")
    assert sum(a != b for a, b in zip(*found, strict=True)) == 1


def test_blocks_are_numbered_in_equal_parts() -> None:
    """The ends of 64 bits, and of each part."""
    con = duckdb.connect()
    for blocks in (*range(3, 256, 9), 100, 255):
        if blocks & (blocks - 1) == 0:
            continue
        expression = write_block_number("u", blocks).replace(f"hash(xor(hash(u), {SALT}))", "h")
        part = -(-(2**64) // blocks)
        ends = [0, *(i * part + d for i in range(1, blocks) for d in (-1, 0)), 2**64 - 1]
        query = f"SELECT {expression} FROM (SELECT UNNEST(?::UBIGINT[]) AS h)"
        wanted = [0, *(i + d for i in range(1, blocks) for d in (-1, 0)), blocks - 1]
        assert [row[0] for row in con.execute(query, [ends]).fetchall()] == wanted
        assert 0 <= part * blocks - 2**64 < blocks
