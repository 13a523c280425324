"""Statistics of candidates, for every type of column: one number for each candidate, and no failure that tells of a row."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from dpsql.mechanisms.base import SALT
from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_SCORE
from dpsql.mechanisms.selection.exponential import ExponentialChoice
from tests.support import inside

POLICY = """
budget = { epsilon = 1000, default_epsilon = 1 }
[tables]
t = { privacy_unit = "u", max_rows = 1 }
"""
TYPES = {
    "INTEGER": ("5", "7"),
    "HUGEINT": ("5", "10000000000000000000000000000000000000"),
    "DECIMAL(38,10)": ("0.5", "7.25"),
    "FLOAT": ("0.5", "'nan'"),
    "DOUBLE": ("-0.0", "'inf'"),
    "BOOLEAN": ("TRUE", "FALSE"),
    "VARCHAR": ("'a'", "'b'"),
    "DATE": ("'2020-01-01'", "'infinity'"),
    "TIME": ("'10:00:00'", "'24:00:00'"),
    "TIMESTAMP": ("'2020-01-01'", "'-infinity'"),
    "INTERVAL": ("'30 days'", "'1 month'"),
    "UUID": ("'00000000-0000-0000-0000-000000000001'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"),
    "INTEGER[]": ("[1]", "[NULL]"),
}


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        yield con


def _scores(
    con: duckdb.DuckDBPyConnection, kind: str, candidates: str, condition: str, *fillings: str
) -> list[list[int]]:
    """The candidates' scores, for each of the queries that fill the table."""
    con.execute(f"CREATE OR REPLACE TABLE t (u INTEGER, v {kind})")
    found = []
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
        text = f"WITH c(k) AS ({candidates}) SELECT k, EXPMECH(COUNT(*) FILTER (WHERE {condition})) OVER c FROM t"
        plan = inside.bind(session, text)
        operator = plan.blocks[0].operator
        assert isinstance(operator, ExponentialChoice)
        read = inside.reader(session, inside.lend(session, plan))
        for rows in fillings:
            con.execute(f"DELETE FROM t; INSERT INTO t {rows}")
            tables = [read(query.replace(SALT, "7")) for query in operator.batches]
            found.append(
                [int(score) for table in tables for score in table.column(CANDIDATE_SCORE).to_pylist()]
            )
    return found


@pytest.mark.parametrize("condition", ["v = k", "v >= k", "v BETWEEN k AND k"])
@pytest.mark.parametrize("kind", TYPES)
def test_every_type(con: duckdb.DuckDBPyConnection, kind: str, condition: str) -> None:
    """With and without rows there is an answer, and a number for each different candidate."""
    one, other = (f"CAST({value} AS {kind})" for value in TYPES[kind])
    candidates = f"SELECT {one} UNION ALL SELECT {other} UNION ALL SELECT {one}"
    rows = f"SELECT n, {one} FROM range(3) r(n) UNION ALL SELECT 9, {other} UNION ALL SELECT 10, NULL"
    nothing = "SELECT 1, NULL WHERE FALSE"
    equal = con.execute(f"SELECT {one} = {other}").fetchone() == (True,)
    none, found = _scores(con, kind, candidates, condition, nothing, rows)
    assert len(found) == (1 if equal else 2), "equal candidates are asked once"
    assert none == [0] * len(found)
    assert found[0] >= 3
    assert found[-1] >= 1


@pytest.mark.parametrize("condition", ["v - TIMESTAMP '2020-01-01' >= k", "v - k >= INTERVAL 1 DAY"])
def test_lengths_of_time(con: duckdb.DuckDBPyConnection, condition: str) -> None:
    kind = "INTERVAL" if condition.endswith("k") else "TIMESTAMP"
    value = "INTERVAL 1 DAY" if kind == "INTERVAL" else "TIMESTAMP '2020-01-01'"
    rows = "SELECT n, TIMESTAMP '2020-01-01' + n * INTERVAL 1 DAY FROM range(3) r(n)"
    assert _scores(con, "TIMESTAMP", f"SELECT {value}", condition, rows) == [[2]]


@pytest.mark.parametrize(
    ("kind", "wide"), [("BIGINT", "DOUBLE"), ("HUGEINT", "FLOAT"), ("DECIMAL(38,0)", "DOUBLE")]
)
def test_values_that_are_one_double(con: duckdb.DuckDBPyConnection, kind: str, wide: str) -> None:
    """Many integers are equal to one double: that candidate still stands in the list once."""
    rows = "SELECT n, 9007199254740992 + n FROM range(4) r(n)"
    candidates = f"SELECT 9007199254740992::{wide} UNION ALL SELECT 5"
    (scores,) = _scores(con, kind, candidates, "v = k", rows)
    con.execute(f"CREATE OR REPLACE TABLE t AS SELECT CAST(v AS {kind}) AS v FROM ({rows}) AS r(u, v)")
    equal = con.execute(f"SELECT COUNT(*) FROM t WHERE v = 9007199254740992::{wide}").fetchone()
    assert equal[0] > 1
    assert scores == [equal[0], 0]
