"""The second lock's proof that a text can't fail, over a table with a column of each common type."""

from __future__ import annotations

import duckdb

from dpsql.lock.totality import prove_total


def prove(text: str) -> None:
    """Prove a text over the table ``t``, or raise Unproved."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (n INTEGER, tiny TINYINT, x DOUBLE, s VARCHAR, day DATE)")
        con.execute("ALTER TABLE t ADD COLUMN hm TIME; ALTER TABLE t ADD COLUMN iv INTERVAL")
        con.execute("ALTER TABLE t ADD COLUMN ts TIMESTAMP; ALTER TABLE t ADD COLUMN h HUGEINT")
        plan = "SELECT json_serialize_plan(?, optimize := false)"
        prove_total(text, lambda sql: str(con.execute(plan, [sql]).fetchall()[0][0]))
