"""DuckDB's plan of an exact text is read once for texts whose values have the same types."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.engine.sandbox import SchemaReplica

POLICY = """
budget = { epsilon = 1e12, delta = 0.5, default_epsilon = 1, default_delta = 1e-9 }
[tables]
t = { privacy_unit = "uid", max_rows = 1, max_groups = 1 }
"""


def test_other_constants_of_the_same_types_read_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i AS uid, i::UTINYINT AS x FROM range(200) r(i)")
    read: list[str] = []
    plan = SchemaReplica.plan

    def count(self: SchemaReplica, sql: str, lent: object, of: str = "") -> str:
        read.append(sql)
        return plan(self, sql, lent, of)  # type: ignore[arg-type]

    monkeypatch.setattr(SchemaReplica, "plan", count)
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
        found = []
        for value in ("20", "30", "300", "2.5", "3.5"):
            session.sql(f"SELECT COUNT(*) FROM t WHERE x < {value}")
            found.append(len(read))
            read.clear()
    assert found[0] > 0
    assert found[1] == 0  # 30 has the types of 20
    assert found[2] > 0  # 300 doesn't fit the column's type
    assert found[3] > 0
    assert found[4] > 0  # what is no small whole number is read by its value
