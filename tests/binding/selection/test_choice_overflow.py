"""Private values at the ends of their types: an answer, and never a failure that would tell of them."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql

POLICY = """
budget = { epsilon = 1e12, delta = 0.5, accountant = "basic", default_epsilon = 1e9 }
[tables]
t = { privacy_unit = "ROW", columns = { b = { bounds = [0, 10] } } }
c = { public = true }
"""
FAR = ["9223372036854775807", "-9223372036854775808", "NULL", "0"]


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (b BIGINT, h HUGEINT)")
        con.execute("INSERT INTO t VALUES " + ", ".join(f"({v}, {v})" for v in FAR))
        con.execute("INSERT INTO t VALUES (4, 170141183460469231731687303715884105727), (7, 3)")
        con.execute("CREATE TABLE c AS FROM (VALUES (1), (-3), (8), (0)) AS v(n)")
        yield con


@pytest.mark.parametrize(
    ("condition", "plain"),
    [
        ("b + b > n", "CAST(b AS HUGEINT) + b > n"),
        ("b * b > n", "CAST(b AS HUGEINT) * b > n"),
        ("-b > n", "-CAST(b AS HUGEINT) > n"),
        ("abs(b) = n", "abs(CAST(b AS HUGEINT)) = n"),
        ("b + 1 BETWEEN n AND 5", "CAST(b AS HUGEINT) + 1 BETWEEN n AND 5"),
        ("h > n", "h > n"),
        ("n >= h", "n >= h"),
    ],
)
def test_wider_than_64_bits(
    con: duckdb.DuckDBPyConnection, session: dpsql.Session, condition: str, plain: str
) -> None:
    call = f"EXPMECH(COUNT(*) FILTER (WHERE {condition}), top => 4, answer => TRUE) OVER c"
    found = session.sql(f"SELECT n, {call} FROM t").fetchall()
    wanted = con.sql(f"SELECT n, (SELECT COUNT(*) FROM t WHERE {plain}) FROM c").fetchall()
    assert sorted(found) == sorted(wanted)
