"""Little queries give the tables that DuckDB's own way to Arrow gives, or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engine import base
from dpsql.engine.duckdb import MAX_ROWS, LittleQueries
from tests.support import inside
from tests.support.fixtures import con_fixture

TEXTS = [
    "SELECT COUNT(*) AS n, SUM(x) AS s, CAST(SUM(x) AS HUGEINT) * -1 AS h FROM t",
    "SELECT x % 3 AS k, COUNT(*) AS n, CAST(MAX(x) AS INTEGER) AS i, x % 3 = 1 AS b FROM t GROUP BY x % 3 ORDER BY k",
    "SELECT 'a''b' || x AS text, CAST(x AS DOUBLE) / 3 AS d, NULL::BIGINT AS none FROM t ORDER BY x",
    "SELECT x, 'nan'::DOUBLE AS nan, '-inf'::DOUBLE AS low FROM t WHERE x > 10 ** 6",
    "SELECT 170141183460469231731687303715884105::HUGEINT AS wide, -9223372036854775808 AS least",
]
OTHERS = [
    "SELECT DATE '2024-01-31' AS d",
    "SELECT x::DECIMAL(10, 2) AS d FROM t",
    "SELECT [x] AS list FROM t",
    f"SELECT range AS many FROM range({MAX_ROWS + 1})",
]
TABLES = """
CREATE TABLE t AS SELECT range AS x FROM range(20);
"""
con = con_fixture(TABLES, scope="function")


@pytest.mark.parametrize("steady", [True, False])
@pytest.mark.parametrize("text", TEXTS)
def test_they_give_the_same_table(con: duckdb.DuckDBPyConnection, text: str, steady: bool) -> None:
    little, wanted = LittleQueries(con, steady), con.sql(text).to_arrow_table()
    for _ in range(3):  # as it stands, prepared, and once more
        found = little.ask(text)
        assert found.schema.equals(wanted.schema)
        assert repr(found.to_pylist()) == repr(wanted.to_pylist())


@pytest.mark.parametrize("text", OTHERS)
def test_others_are_left_to_arrow(con: duckdb.DuckDBPyConnection, text: str) -> None:
    little = LittleQueries(con, True)
    for _ in range(2):
        assert little.ask(text) is None
        assert con.sql(text).to_arrow_table().num_rows  # the cursor is free for it


def test_where_data_may_change_nothing_is_prepared(con: duckdb.DuckDBPyConnection) -> None:
    """A plan may rest on what a column held: one of DuckDB 1.5 leaves out conditions that were always true."""
    little = LittleQueries(con, False)
    text = "SELECT COUNT(*) AS n FROM t WHERE x < 100"
    for wanted in (20, 20, 20):
        assert little.ask(text).to_pylist() == [{"n": wanted}]  # type: ignore[union-attr]
    con.execute("INSERT INTO t SELECT 1000 + range FROM range(7)")
    assert little.ask(text).to_pylist() == [{"n": 20}]  # type: ignore[union-attr]
    assert not con.execute("SELECT * FROM duckdb_prepared_statements()").fetchall()


def test_an_owner_changes_rows_between_two_statements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attached database is read as it is now, however often a text was asked; in a file of our own texts are prepared."""
    monkeypatch.setattr(base, "LITTLE_ROWS", 30_000)
    policy = dpsql.Policy.loads('[budget]\nepsilon = 1e9\n[tables.t]\nprivacy_unit = "ROW"\n')
    text = "SELECT WITH DP OPTIONS (epsilon = 1e6) COUNT(*) AS n FROM t WHERE x < 100"
    with duckdb.connect(tmp_path / "data.duckdb") as owner:
        owner.execute("CREATE TABLE t AS SELECT range AS x FROM range(20)")
        with dpsql.connect(owner, policy=policy) as session:
            for _ in range(3):
                assert session.sql(text, fresh=True).item() == 20
            owner.execute("INSERT INTO t SELECT 50 FROM range(5)")
            owner.execute("INSERT INTO t SELECT 500 FROM range(5)")
            assert session.sql(text, fresh=True).item() == 25
            assert not _count_prepared(session)
    with dpsql.connect(tmp_path / "data.duckdb", policy=policy) as session:
        for _ in range(3):
            assert session.sql(text, fresh=True).item() == 25
        assert _count_prepared(session) == 1


def _count_prepared(session: dpsql.Session) -> int:
    engine: Any = inside.engine(session)
    ((count,),) = engine._con.execute("SELECT COUNT(*) FROM duckdb_prepared_statements()").fetchall()
    return int(count)
