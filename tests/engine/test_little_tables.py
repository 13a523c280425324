"""Small tables: read by their plan's own query, which releases what the quicker routes for large ones do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engine import base as engine_base
from dpsql.mechanisms.fast import packed_aggregation
from tests.support import inside
from tests.support.fixtures import con_fixture

POLICY = """
[budget]
epsilon = 1e9
delta = 0.5
default_epsilon = 1e6
default_delta = 1e-6
[tables.t]
privacy_unit = "u"
max_rows_per_group = 3
max_groups = 3
columns.k.values = [0, 1, 2]
columns.x.bounds = [0, 10]
[tables.grown]
privacy_unit = "u"
max_rows_per_group = 3
max_groups = 3
"""
STATEMENTS = [
    "SELECT COUNT(*) AS n, SUM(x) AS s, AVG(x) AS a FROM t",
    "SELECT COUNT(DISTINCT u) AS n, SUM(x) AS s FROM t WHERE x > 3",
    "SELECT k, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY k ORDER BY k",
    "SELECT g, COUNT(*) AS n FROM t GROUP BY g ORDER BY g",
]
TABLES = """
CREATE TABLE t AS SELECT i // 3 AS u, i % 3 AS k, i % 2 AS g, i * 7 % 11 AS x FROM range(600) AS r(i);
CREATE TABLE grown AS SELECT i AS u FROM range(300000) AS r(i);
"""
con = con_fixture(TABLES, scope="function")


def count_queries(session: dpsql.Session, monkeypatch: pytest.MonkeyPatch, statement: str) -> int:
    """Return how many exact queries a new answer reads."""
    engine: Any = inside.engine(session)
    read: list[str] = []

    def note(method: Any) -> Any:
        def noted(sql: str, lent: Any = None) -> Any:
            read.append(sql)
            return method(sql, lent)

        return noted

    with monkeypatch.context() as patch:
        for name in ("execute", "batches"):
            patch.setattr(engine, name, note(getattr(engine, name)))
        session.sql(statement, fresh=True)
    return len(read)


@pytest.mark.parametrize("statement", STATEMENTS[:3])
def test_a_small_table_is_read_by_one_query(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    assert count_queries(session, monkeypatch, statement) == 1


def test_a_larger_table_is_looked_at_first(session: dpsql.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Routes without groups begin at some 260,000 rows: one grouping by unit is as quick before."""
    text = "SELECT COUNT(*) AS n FROM grown"
    assert count_queries(session, monkeypatch, text) == 2
    monkeypatch.setattr(packed_aggregation, "_FEW_ROWS", 300_001)
    assert count_queries(session, monkeypatch, text) == 1


@pytest.mark.parametrize("statement", STATEMENTS)
def test_both_routes_give_the_same(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """At a huge epsilon, where no unit has more rows or groups than count."""
    answers, explained = [], []
    for limit in (-1, 30_000):
        monkeypatch.setattr(engine_base, "LITTLE_ROWS", limit)
        monkeypatch.setattr(packed_aggregation, "_FEW_ROWS", 0)
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
            explained.append(str(session.sql(f"EXPLAIN {statement}").fetchall()))
            rows = session.sql(statement).fetchall()
            answers.append([[round(float(value), 3) for value in row] for row in rows])
    plain = con.sql(statement).fetchall()
    assert answers[0] == answers[1]
    assert answers[0] == [[round(float(value), 3) for value in row] for row in plain]
    assert explained[0] == explained[1], "what was not paid for tells nothing about the size"


def test_a_kept_answer_is_found_whichever_route_it_took(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    policy = dpsql.Policy.loads(POLICY)
    paid = []
    for limit in (-1, 30_000):
        monkeypatch.setattr(engine_base, "LITTLE_ROWS", limit)
        monkeypatch.setattr(packed_aggregation, "_FEW_ROWS", 0)
        con.execute(f"ATTACH IF NOT EXISTS '{tmp_path / 'rows.db'}' AS rows")
        con.execute("CREATE TABLE IF NOT EXISTS rows.t AS FROM memory.t")
        con.execute("CREATE TABLE IF NOT EXISTS rows.grown AS FROM memory.grown")
        con.execute("DETACH rows")
        with dpsql.connect(tmp_path / "rows.db", policy=policy, ledger=tmp_path / "one.ledger") as session:
            paid.append(session.sql(STATEMENTS[0]).event is not None)
    assert paid == [True, False]
