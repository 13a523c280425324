"""Arithmetic over BIGINT, which is computed in 128 bits: in grouping sets, in scores of candidates, and in a unit's sums."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql

POLICY = """
budget = { epsilon = 1e12, delta = 0.5, accountant = "basic", default_epsilon = 1e7, default_delta = 1e-9 }
[tables]
t = { privacy_unit = "uid", max_rows = 3, max_groups = 3, columns = { n = { bounds = [1, 4] }, \
    k = { values = ["a", "b"] } } }
pub = { public = true }
"""
MOST = 2**127 - 1


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[duckdb.DuckDBPyConnection, dpsql.Session]]:
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t AS SELECT i // 2 AS uid, 1 + i % 4 AS n, (i % 5 - 2)::HUGEINT AS h, ['a', 'b'][1 + i % 2] AS k "
        "FROM range(240) r(i)"
    )
    con.execute(
        f"INSERT INTO t VALUES (9000, 1, {MOST}, 'a'), (9000, 1, {MOST}, 'a'), (9001, 2, {MOST}, 'b')"
    )
    con.execute("CREATE TABLE pub AS SELECT range AS w FROM range(1, 9)")
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
        yield con, session


@pytest.mark.parametrize("key", ["n + 1", "n * 2", "n * n", "abs(n)", "n + n", "LEAST(n * n, 9)"])
@pytest.mark.parametrize("sets", ["ROLLUP (g)", "CUBE (g, k)", "GROUPING SETS ((g), (k))"])
def test_keys_of_grouping_sets(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Session], key: str, sets: str
) -> None:
    con, session = both
    other = "k" if "k" in sets else "1"
    text = f"SELECT {key} AS g, {other} AS o, COUNT(*) AS c FROM t GROUP BY {sets} HAVING COUNT(*) > 0"
    assert sorted(map(str, session.sql(text).fetchall())) == sorted(map(str, con.execute(text).fetchall()))


@pytest.mark.parametrize(
    "value", ["n + 1", "n * n", "abs(n)", "n::HUGEINT", "COALESCE(n + 1, 0)", "n / 2", "n + 1.5"]
)
def test_scores_of_candidates(both: tuple[duckdb.DuckDBPyConnection, dpsql.Session], value: str) -> None:
    con, session = both
    text = f"SELECT w, EXPMECH(COUNT(*) FILTER (WHERE {value} = w), answer => TRUE, top => 8) OVER pub FROM t"
    counts = {row[0]: round(row[-1]) for row in session.sql(text).fetchall()}
    exact = f"SELECT w, (SELECT COUNT(*) FROM t WHERE {value} = w) FROM pub"
    assert counts == dict(con.execute(exact).fetchall())


@pytest.mark.parametrize(
    "look",
    ["SUM(n * n * n) % 7 = 1", "SUM(h) // 2 = 0", "SUM(h)::VARCHAR = '1'", "SUM(DISTINCT h) = -1",
     "SUM(h) FILTER (WHERE k = 'a') // 2 = 1", "SUM(h % 3) & 1 = 1"],
)  # fmt: skip
def test_a_unit_s_sum_is_a_whole_number(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Session], look: str
) -> None:
    con, session = both
    text = (
        f"SELECT COUNT(*) FROM (SELECT uid, {look} AS found FROM t WHERE uid < 9000 GROUP BY uid) WHERE found"
    )
    assert session.sql(text).fetchall() == con.execute(text).fetchall()


def test_a_sum_that_128_bits_do_not_hold_is_missing(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Session],
) -> None:
    text = "SELECT COUNT(*) FROM (SELECT uid, SUM(h) AS s FROM t GROUP BY uid) WHERE s IS NULL"
    assert both[1].sql(text).fetchall() == [(2,)]
