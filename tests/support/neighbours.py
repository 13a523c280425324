"""Two databases that differ in one privacy unit, whose values are as bad as they can be."""

from __future__ import annotations

from collections.abc import Callable

import duckdb

import dpsql

BAD = 666
"""The unit that only one of the two has."""
CANARY = "CANARY"
"""The content of its texts, which no message and no object may hold."""
POLICY = """
budget = { epsilon = 100000, delta = 1e-2, accountant = "basic", max_epsilon_per_query = 10, default_epsilon = 1, \
    default_delta = 1e-9 }
[tables]
people = { privacy_unit = "person_id", max_rows = 1, max_groups = 1, columns = { age = { bounds = [0, 120] }, \
    active = { values = [true, false] } } }
visits = { privacy_unit = "person_id", max_rows_per_group = 3, max_groups = 2, columns = { \
    ward = { values = ["A", "B"] }, amount = { bounds = [0, 100] } } }
wards = { public = true }
"""
COLUMNS = {
    "person_id": "INTEGER", "age": "INTEGER", "tiny": "TINYINT", "big": "BIGINT", "huge": "HUGEINT", "salary": "DOUBLE",
    "price": "DECIMAL(18,2)", "wide": "DECIMAL(38,10)", "name": "VARCHAR", "code": "VARCHAR", "js": "VARCHAR", "born": "DATE",
    "seen": "TIMESTAMP", "clock": "TIME", "gap": "INTERVAL", "city": "VARCHAR", "active": "BOOLEAN", "uid": "UUID",
    "tags": "VARCHAR[]", "info": "STRUCT(a INTEGER, b VARCHAR)",
}  # fmt: skip
_WORST = [
    "666, 0, -128, -9223372036854775808, '-170141183460469231731687303715884105728', 'nan', '-9999999999999999.99', "
    "'9999999999999999999999999999.9999999999', 'CANARY', '(CANARY', '{CANARY', '5881580-07-10', '290309-12-22 (BC) 00:00:00', "
    "'24:00:00', '178000000 years', 'CANARYTOWN', NULL, 'ffffffff-ffff-ffff-ffff-ffffffffffff', [NULL, 'CANARY'], "
    "{'a': 2147483647, 'b': 'CANARY'}"
]


Opener = Callable[[duckdb.DuckDBPyConnection, dpsql.Policy], dpsql.Session]


def open_neighbours(opened: Opener | None = None) -> tuple[dpsql.Session, dpsql.Session]:
    """Sessions on the data with the unit, and without it; ``opened`` makes one of tables in DuckDB."""
    return _open(True, opened), _open(False, opened)


def _open(bad: bool, opened: Opener | None) -> dpsql.Session:
    con = tables(bad)
    policy = dpsql.Policy.loads(POLICY)
    return dpsql.connect(con, policy=policy) if opened is None else opened(con, policy)


def tables(bad: bool) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE people ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())})")
    con.execute(
        "INSERT INTO people SELECT n, 20 + n % 60, n % 100, n, n, n * 1.5, n, n, 'name ' || n, n::VARCHAR, '{\"a\": 1}',"
        " DATE '1950-01-01' + n::INTEGER, TIMESTAMP '2020-01-01' + INTERVAL (n) HOUR, TIME '10:00:00', INTERVAL (n) DAY,"
        " CASE n % 2 WHEN 0 THEN 'Delft' ELSE 'Leiden' END, n % 3 = 0, uuid(), ['a', 'b'], {'a': n, 'b': 'x'}"
        " FROM range(1, 401) r(n)"
    )
    con.execute("CREATE TABLE visits (person_id INTEGER, amount DOUBLE, ward VARCHAR, day DATE)")
    con.execute("INSERT INTO visits SELECT n % 400 + 1, n % 100, 'A', '2024-01-01' FROM range(800) r(n)")
    if bad:
        for row in _WORST:
            con.execute(f"INSERT INTO people VALUES ({row})")
        con.execute(
            f"INSERT INTO visits VALUES ({BAD}, 'inf', '{CANARY}', 'infinity'), ({BAD}, 'nan', NULL, '-infinity')"
        )
    con.execute("CREATE TABLE wards AS SELECT * FROM (VALUES ('A', 10), ('B', 20)) AS v(ward, beds)")
    con.execute("CREATE TABLE hidden AS SELECT 1 AS answer")
    return con
