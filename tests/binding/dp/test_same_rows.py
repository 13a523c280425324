"""Numbers of one statement describe the same rows: quotients of sums and counts are means, within the values' bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pytest

import dpsql

TABLES = (300, 20_000)
"""Small tables, each a group of its own with its own units, so that one statement asks all of them; in short and at length."""
BOUNDS = {"x": (-3, 40), "y": (2.5, 10), "z": (1, 10)}
POLICY = f"""
[budget]
epsilon = 1e22
accountant = "basic"
default_epsilon = 1e18
[tables.t]
privacy_unit = "u"
max_rows_per_group = 3
max_groups = 1
[tables.t.columns]
k = {{ bounds = [0, {TABLES[1] - 1}] }}
""" + "\n".join(f"{name} = {{ bounds = [{low}, {high}] }}" for name, (low, high) in BOUNDS.items())
ALL = "WITH DP OPTIONS (group_selection_strategy = PUBLIC_GROUPS)"


@contextmanager
def open_tables(tables: int) -> Iterator[dpsql.Session]:
    """Open tables of one to six units of up to nine rows, where three rows of a unit count; z is often missing."""
    with duckdb.connect() as con:
        con.execute(
            f"""CREATE TABLE t AS SELECT k, k * 10 + hash(k, i) % (1 + k % 6) AS u, CAST(hash(k, i, 1) % 60 AS INTEGER) - 10 AS x,
            (hash(k, i, 2) % 10007) / 800.0 AS y, CASE WHEN hash(k, i, 3) % 3 > 0 THEN CAST(hash(k, i, 4) % 12 AS BIGINT) END AS z
            FROM range({tables}) AS tables(k), LATERAL (SELECT UNNEST(range(CAST(1 + hash(k) % 20 AS BIGINT))) AS i) AS rows"""
        )
        policy = POLICY.replace(f"[0, {TABLES[1] - 1}]", f"[0, {tables - 1}]")
        with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as opened:
            yield opened


@pytest.mark.parametrize("tables", TABLES)
@pytest.mark.parametrize("name", BOUNDS)
def test_a_sum_over_a_count_is_the_mean(tables: int, name: str) -> None:
    """Compare quotients in the block and above it, by way of a CTE and a star, under a cast and a factor."""
    low, high = BOUNDS[name]
    block = f"""SELECT {ALL} k, SUM({name}) AS s, COUNT({name}) AS n, COUNT(*) AS rows, AVG({name}) AS m,
        SUM({name}) / COUNT({name}) AS q, SUM({name}) / COUNT(*) AS r FROM t GROUP BY k"""
    text = f"""WITH a AS ({block}), b AS (SELECT * FROM a) SELECT n, rows, m, q, r, s / n AS above,
        s::DOUBLE / NULLIF(n, 0) AS cast_, 100.0 * s / n AS percent, s / rows AS part, s FROM b"""
    seen = fractions = 0
    with open_tables(tables) as session:
        answer = session.sql(text).fetchall()
    for n, rows, m, q, r, above, cast, percent, part, s in answer:
        assert 0 <= n <= rows
        least, most = min(low, 0.0 if n < rows else low), max(high, 0.0 if n < rows else high)
        assert all(value is None or least - 1e-9 <= value <= most + 1e-9 for value in (r, part))
        if n:
            assert q == m, "one mechanism"
            assert above == pytest.approx(m, rel=1e-12, abs=1e-12)
            assert (cast, percent) == pytest.approx((m, 100 * m), rel=1e-12, abs=1e-12)
            assert low - 1e-9 <= above <= high + 1e-9
            assert part == pytest.approx(r, rel=1e-12, abs=1e-12)
            seen += 1
            fractions += not math.isclose(float(s) / n, m, rel_tol=1e-6, abs_tol=1e-6)
    assert seen > 0.8 * tables
    assert name == "y" or fractions > 0.1 * tables, "the rounded sum has another quotient"


@pytest.mark.parametrize("tables", TABLES)
def test_shares_are_no_more_than_all(tables: int) -> None:
    """Of five spellings."""
    text = f"""SELECT {ALL} k, SUM(CASE WHEN x > 0 THEN 1 ELSE 0 END) / COUNT(*) AS a, COUNT_IF(x > 0) / COUNT(*) AS b,
        COUNT(*) FILTER (WHERE x > 0) / COUNT(*) AS c, SUM(CASE WHEN x > 0 THEN 1 END) / COUNT(*) AS d, AVG((x > 0)::INT) AS m,
        COUNT(z) / COUNT(*) AS e, SUM(y) FILTER (WHERE x > 0) / SUM(y) AS f FROM t GROUP BY k"""
    cut = 0
    with open_tables(tables) as session:
        answer = session.sql(text).fetchall()
    for _, a, b, c, d, m, e, f in answer:
        assert all(value is None or -1e-9 <= value <= 1 + 1e-9 for value in (a, b, c, d, e, f))
        assert (b, c, d) == pytest.approx((a, a, a), abs=1e-5), "all rows of a unit weigh alike"
        if m is not None:
            assert a == pytest.approx(m, abs=1e-12)
            cut += 0 < a < 1
    assert cut > 0.3 * tables


def test_values_that_no_sum_has_are_not_counted() -> None:
    with duckdb.connect() as con:
        values = "[1.0, 200, 1e12, -1e300, 'inf'::DOUBLE, '-inf'::DOUBLE, 'nan'::DOUBLE, NULL]"
        con.execute(
            f"CREATE TABLE t AS SELECT i AS u, {values}[i % 8 + 1] AS y, y AS free, i % 8 AS k FROM range(800) AS r(i)"
        )
        columns = "y = { bounds = [2.5, 10] }\nk = { values = [0, 1, 2, 3, 4, 5, 6, 7] }"
        policy = f"{POLICY.partition('k =')[0].replace('max_rows_per_group = 3', 'max_rows = 1')}{columns}"
        with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as opened:
            free = "COUNT(free), SUM(free, contribution_bounds_per_row => (0, 10))"
            found = opened.sql(
                f"SELECT k, COUNT(y), SUM(y), AVG(y), {free} FROM t GROUP BY k ORDER BY k"
            ).fetchall()
            there = [(n > 0, total > 0, mean is not None) for _, n, total, mean, _, _ in found]
            assert there == [(True,) * 3] * 2 + [(False,) * 3] * 6
            assert [n for *_, n, _ in found] == [100] * 4 + [0] * 4, "without bounds, all finite ones"


@pytest.mark.parametrize(
    ("items", "rows"),
    [
        ("COUNT(y)", 700), ("COUNT(y), SUM(w)", 700), ("COUNT(y), COUNT(w), MEDIAN(y)", 700), ("COUNT(y), SUM(y + 1)", 700),
        ("COUNT(y), AVG(t.y)", 200), ("COUNT(t.y), STDDEV(y)", 200), ("COUNT(y), CORR(w, y)", 200),
        ("COUNT(y), SUM(y) FILTER (WHERE w > 1)", 200),
    ],
)  # fmt: skip
def test_a_count_alone_is_that_of_duckdb(items: str, rows: int) -> None:
    """NaN, infinities and far values are left out of a count only beside a sum of the counted values."""
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT i AS u, i % 4 AS w, [1.0, 200, 1e12, -1e300, 'inf'::DOUBLE, '-inf'::DOUBLE, "
            "'nan'::DOUBLE, NULL][i % 8 + 1] AS y FROM range(800) AS r(i)"
        )
        columns = "y = { bounds = [2.5, 10] }\nw = { bounds = [0, 3] }"
        policy = f"{POLICY.partition('k =')[0].replace('max_rows_per_group = 3', 'max_rows = 1')}{columns}"
        with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as session:
            assert session.sql(f"SELECT {items} FROM t").fetchall()[0][0] == rows
            if rows == 700:
                assert con.sql("SELECT COUNT(y) FROM t").fetchall() == [(700,)]
