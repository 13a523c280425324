"""Joins of every type by every comparison in plain DuckDB: none may fail because there is a row, except those that we refuse."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from dpsql.lock.tree import Unproved
from tests.support.totality import prove

TYPES = {
    "INTERVAL": "to_days(CAST(i AS INTEGER))",
    "BOOLEAN": "i % 2 = 0",
    "TINYINT": "i % 100",
    "BIGINT": "i",
    "HUGEINT": "i",
    "UBIGINT": "i",
    "UHUGEINT": "i",
    "FLOAT": "i",
    "DOUBLE": "i / 7",
    "DECIMAL(4, 1)": "i % 100",
    "DECIMAL(38, 2)": "i",
    "VARCHAR": "'x' || i",
    "BLOB": "encode('x' || i)",
    "BIT": "CAST(CAST(i % 2 AS VARCHAR) AS BIT)",
    "UUID": "md5(CAST(i AS VARCHAR))",
    "DATE": "DATE '2020-01-01' + CAST(i AS INTEGER)",
    "TIME": "TIME '00:00:00' + to_seconds(i)",
    "TIMESTAMP": "TIMESTAMP '2020-01-01' + to_days(CAST(i AS INTEGER))",
    "TIMESTAMP_NS": "TIMESTAMP '2020-01-01' + to_days(CAST(i AS INTEGER))",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP '2020-01-01' + to_days(CAST(i AS INTEGER))",
    "INTEGER[]": "[i]",
    "STRUCT(a INTEGER, b VARCHAR)": "{'a': i, 'b': 'x'}",
}
KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN")
SIGNS = ("=", "<>", "<", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
SIZES = ((1, 1), (3, 2), (40, 3000))
"""Rows of the two sides: DuckDB chooses its joins by them."""


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        yield con


@pytest.mark.parametrize("kind", TYPES)
def test_only_what_the_lock_refuses_fails_for_some_rows(con: duckdb.DuckDBPyConnection, kind: str) -> None:
    failed = set()
    for sizes in SIZES:
        for name, rows in zip("ab", sizes, strict=True):
            made = f"SELECT CAST({TYPES[kind]} AS {kind}) AS x, i AS n FROM range({rows}) AS r(i)"
            con.execute(f"CREATE OR REPLACE TABLE {name} AS {made}")
        for join in KINDS:
            for sign in SIGNS:
                for more in ("", " AND a.n = b.n", " AND a.n < b.n"):
                    try:
                        con.execute(f"SELECT COUNT(*) FROM a {join} b ON a.x {sign} b.x{more}").fetchall()
                    except duckdb.Error:
                        failed.add((join, sign, more))
    assert bool(failed) == (kind == "INTERVAL")
    for join, sign, more in failed:
        with pytest.raises(Unproved):
            prove(f"SELECT a.n FROM t AS a {join} t AS b ON a.iv {sign} b.iv{more}")
