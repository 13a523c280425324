"""Guards that hold a row to its unit where types differ, tables change, or rows are units: each guard, and what it is for."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.mechanisms.base import SALT
from tests.support import inside
from tests.support.fixtures import con_fixture

POLICY = """
budget = { epsilon = 1000, delta = 1e-3, accountant = "basic", default_epsilon = 1, default_delta = 1e-6 }
[tables]
rows = { privacy_unit = "ROW", columns = { x = { bounds = [0, 9] } } }
free = { privacy_unit = "u" }
a = { privacy_unit = "u", max_rows_per_group = 2, max_groups = 2 }
b = { privacy_unit = "u", max_rows_per_group = 2 }
keys = { public = true }
"""
TABLES = """
CREATE TABLE rows (k INTEGER, d DOUBLE, x INTEGER);
CREATE TABLE free (u INTEGER, x INTEGER);
CREATE TABLE a (u BIGINT, x INTEGER, k VARCHAR);
CREATE TABLE b (u DECIMAL(18,2), x INTEGER);
CREATE TABLE keys (k BIGINT, v INTEGER);
INSERT INTO keys VALUES (1, 1), (2, 2), (9007199254740992, 3), (9007199254740993, 4);
"""
con = con_fixture(TABLES, scope="function")


def session(con: duckdb.DuckDBPyConnection) -> dpsql.Session:
    return dpsql.connect(con, policy=dpsql.Policy.loads(POLICY))


def operator(session: dpsql.Session, text: str) -> Any:
    return inside.bind(session, text).blocks[0].operator


def exact(session: dpsql.Session, operator: Any) -> int:
    (row,) = inside.reader(session)(operator.query.replace(SALT, "1")).to_pylist()
    return int(row[operator.statistics[0].column] or 0)


SIGNS = "SUM(CASE WHEN rows.x IS NULL THEN -100 ELSE 100 END, contribution_bounds_per_row => (-100, 100))"


OUTER = ["rows RIGHT JOIN keys ON rows.k = keys.k", "keys LEFT JOIN rows ON rows.k = keys.k"]


@pytest.mark.parametrize("join", OUTER)
def test_public_rows_that_no_row_meets_belong_to_none(con: duckdb.DuckDBPyConnection, join: str) -> None:
    """A row more takes an unmatched public row away as well: counted, both would move the sum."""
    with session(con) as ours:
        asked = operator(ours, f"SELECT keys.k, {SIGNS} AS s FROM {join} WHERE keys.k = 1 GROUP BY keys.k")
        before = exact(ours, asked)
        con.execute("INSERT INTO rows VALUES (1, 1, 1)")
        assert 0 < abs(exact(ours, asked) - before) <= asked.statistics[0].noise.sensitivity


@pytest.mark.parametrize("join", [*OUTER, "rows FULL JOIN keys ON rows.k = keys.k"])
def test_public_rows_that_no_row_meets_are_not_counted(con: duckdb.DuckDBPyConnection, join: str) -> None:
    with session(con) as ours, pytest.raises(dpsql.PrivacyError) as caught:
        operator(ours, f"SELECT {SIGNS} AS s FROM {join}")
    assert caught.value.message.startswith("public rows without a matching private row would count here")
    assert caught.value.span is not None


def test_a_public_table_that_changes_meanwhile_meets_each_row_once(con: duckdb.DuckDBPyConnection) -> None:
    """The keys of the public table were unique when the statement was bound."""
    con.execute("INSERT INTO rows VALUES (1, 1, 1)")
    with session(con) as ours:
        asked = operator(ours, "SELECT COUNT(*) AS n FROM rows JOIN keys ON rows.k = keys.k")
        assert exact(ours, asked) == 1
        con.execute("INSERT INTO keys VALUES (1, 5), (1, 6)")
        assert exact(ours, asked) == 1


@pytest.mark.parametrize(
    "text",
    [
        # 2^53 and 2^53 + 1 are one double: unique keys that two of a row's values would equal
        "SELECT COUNT(*) FROM rows JOIN keys ON rows.d = keys.k",
        # units of types in which two may look equal
        "SELECT COUNT(*) FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.u = a.u)",
        "SELECT COUNT(*) FROM a WHERE u IN (SELECT u FROM b)",
        # an aggregate of private rows that nothing links to the row around
        "SELECT COUNT(*) FROM a WHERE EXISTS (SELECT u FROM a GROUP BY u HAVING COUNT(*) > 1)",
        "SELECT COUNT(*) FROM a WHERE x > (SELECT x FROM a GROUP BY u, x)",
        # nothing bounds the rows of a unit
        "SELECT COUNT(DISTINCT x) FROM free",
        "SELECT HISTOGRAM(x, [1, 2]) FROM free",
        "SELECT CORR(x, x, contribution_bounds_per_row => (0, 1)) FROM free",
        "SELECT COUNT(*) FROM free",
    ],
)
def test_refused_before_anything_is_read(con: duckdb.DuckDBPyConnection, text: str) -> None:
    with session(con) as ours, pytest.raises(dpsql.PrivacyError):
        ours.sql(text)


@pytest.mark.parametrize("on", ["a.x = b.x", "a.u = b.u"])
def test_a_hint_proposes_no_link_of_two_types(con: duckdb.DuckDBPyConnection, on: str) -> None:
    con.execute("DROP TABLE b")
    con.execute("CREATE TABLE b (u VARCHAR, x INTEGER)")
    with session(con) as ours, pytest.raises(dpsql.PrivacyError) as refused:
        ours.sql(f"SELECT COUNT(*) FROM a JOIN b ON {on}")
    assert (
        refused.value.hint
        == "a has u and b has u: ask the owner to give the privacy units one name and one type."
    )
