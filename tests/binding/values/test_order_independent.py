"""Sums in blocks, and units' own sums: the same whatever the order of the rows, and whoever else has rows."""

from __future__ import annotations

from fractions import Fraction

import duckdb
import pytest

import dpsql
from dpsql.binding.values.fixed_point import write_order_independent
from dpsql.binding.values.sql_types import BIGINT, DOUBLE, Bounds, Typed
from dpsql.language.dialect import parse_fragment
from dpsql.mechanisms.base import SALT
from tests.support import inside
from tests.support.policies import budget, table, write_policy

POLICY = write_policy(
    budget(10, None, 1, accountant=None), t=table("u", None, None, {"max_rows": 300}, z=(-1000, 1000))
)
TABLE = """
CREATE TABLE t AS SELECT n % 2000 AS u, CASE (n * 7919 // 2000) % 3 WHEN 0 THEN 1e16 WHEN 1 THEN 1.0 ELSE -1e16 END AS x,
    SIN(n) * 1000 AS z, (n % 100)::INTEGER AS i FROM range(400_000) AS r(n)
"""
"""1e16 + 1 - 1e16 is 0 or 1, by order."""


def _results(con: duckdb.DuckDBPyConnection, call: str, salt: str = "12345") -> dict[int, float]:
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
        text = f"SELECT WITH SUBSAMPLE OPTIONS (blocks = 16, bounds = (0, 10)) {call} AS m FROM t"
        operator = inside.bind(session, text).blocks[0].operator
        query = operator.source.query.replace(SALT, salt)  # type: ignore[attr-defined]
        return {row.pop("dpsql_block"): row.popitem()[1] for row in inside.reader(session)(query).to_pylist()}


@pytest.mark.parametrize("call", ["SUM(x)", "AVG(x)", "SUM(z)", "AVG(i)", "VARIANCE(x)", "CORR(x, z)"])
def test_one_unit_moves_one_block(call: str) -> None:
    con = duckdb.connect()
    con.execute(TABLE)
    less = _results(con, call)
    con = duckdb.connect()
    con.execute(
        TABLE.replace(
            "CREATE TABLE t AS", "CREATE TABLE t AS SELECT 999999 AS u, 5.5 AS x, 1.0 AS z, 1 AS i UNION ALL"
        )
    )
    more = _results(con, call)
    assert set(less) == set(more) == set(range(16))
    assert sum(less[block] != more[block] for block in less) <= 1


def test_plain_sums_depend_on_the_order() -> None:
    """The control, and what it is about: the same rows in another order."""
    typed = Typed(parse_fragment("v"), DOUBLE)
    sums, mine = set(), set()
    for rows in ("1e16, 1, -1e16", "1e16, -1e16, 1", "1, 1e16, -1e16"):
        con = duckdb.connect()
        con.execute(f"CREATE TABLE t AS SELECT CAST(UNNEST([{rows}]) AS DOUBLE) AS v")
        sums.add(con.execute("SELECT SUM(v) FROM t").fetchone())
        mine.add(
            con.execute(f"SELECT {write_order_independent('SUM', [typed], ['v'], '', '')} FROM t").fetchone()
        )
    assert len(sums) == 2
    assert len(mine) == 1


@pytest.mark.parametrize("name", ["SUM", "AVG"])
@pytest.mark.parametrize(
    ("kind", "bounds", "values"),
    [
        (DOUBLE, Bounds(Fraction(0), Fraction(10)), "0.1, 7.25, 1e6, -3, 'nan', 'inf', NULL"),
        (DOUBLE, Bounds(Fraction(-1, 10**9), Fraction(1, 10**9)), "1e-10, -3e-11, 0, NULL"),
        (DOUBLE, Bounds(Fraction(0), Fraction(10) ** 65), "1e60, 3, -1e59"),
        (DOUBLE, None, "0.1, 7.25, 1e6, -3, NULL"),
        (DOUBLE, None, "0.1, 0, -0.0, 5, 1e-9, -3e-300, 1e18, 7e18, 1e60, NULL"),
        (DOUBLE, None, "5.0, NULL, 'nan'::DOUBLE"),
        (DOUBLE, None, "0.0, -0.0"),
        (DOUBLE, None, "1e-12, 3e-13, -2e-14"),
        (BIGINT, None, "9223372036854775807, 9223372036854775807, -9223372036854775808, 5, NULL"),
        (BIGINT, None, "NULL"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("distinct", ["", "DISTINCT "])
def test_sums_are_right(name: str, kind: object, bounds: Bounds | None, values: str, distinct: str) -> None:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t AS SELECT CAST(UNNEST([{values}]) AS {kind.sql}) AS v")  # type: ignore[attr-defined]
    typed = Typed(parse_fragment("v"), kind, bounds)  # type: ignore[arg-type]
    double = "CASE WHEN ABS(CAST(v AS DOUBLE)) < 1e70 THEN CAST(v AS DOUBLE) END"
    condition = "v IS NULL OR v <> 5"
    where = f" FILTER (WHERE {condition})"
    mine = con.execute(
        f"SELECT {write_order_independent(name, [typed], [double], distinct, condition)} FROM t"
    ).fetchone()
    wide = "v" if kind is BIGINT else double
    theirs = con.execute(f"SELECT CAST({name}({distinct}{wide}){where} AS DOUBLE) FROM t").fetchone()
    assert mine[0] == theirs[0] if theirs[0] is None else mine[0] == pytest.approx(theirs[0], rel=1e-12)


@pytest.mark.parametrize(
    "inner",
    [
        "SELECT u, MIN(x) AS m FROM v GROUP BY u",
        "SELECT u, MAX(-x) AS m FROM v GROUP BY u",
        "SELECT u, ARG_MAX(x, 1) AS m FROM v GROUP BY u",
        "SELECT u, QUANTILE_DISC(x, 0.5) AS m FROM v GROUP BY u",
        "SELECT u, x AS m FROM v GROUP BY u, x",
        "SELECT DISTINCT u, x AS m FROM v",
        "SELECT u, MIN(x) OVER (PARTITION BY u) AS m FROM v",
        "SELECT DISTINCT u, g AS m FROM v",
    ],
)
def test_equal_values_that_look_different_are_not_told_apart_by_their_order(inner: str) -> None:
    """0.0 and -0.0, or a month and 30 days: which comes first is up to the rows of others."""
    policy = dpsql.Policy.loads(POLICY.replace("tables.t", "tables.v").replace("z =", "x ="))
    found = []
    for first, second in (("-0.0", "0.0"), ("0.0", "-0.0")):
        days, month = ("1 month", "30 days") if first == "0.0" else ("30 days", "1 month")
        with duckdb.connect() as con:
            con.execute(
                f"CREATE TABLE v AS SELECT 1 AS u, x::DOUBLE AS x, g::INTERVAL AS g, NULL AS z "
                f"FROM (VALUES ('{first}', '{days}'), ('{second}', '{month}')) AS t(x, g)"
            )
            with dpsql.connect(con, policy=policy) as session:
                signs = "CAST(m AS VARCHAR) IN ('-0.0', '1 month')"
                text = f"SELECT COUNT(*) FILTER (WHERE {signs}) AS n FROM ({inner}) AS own"
                operator = inside.bind(session, text).blocks[0].operator
                found.append(inside.reader(session)(operator.queries[0].replace(SALT, "1")).to_pylist())
    assert found[0] == found[1]
