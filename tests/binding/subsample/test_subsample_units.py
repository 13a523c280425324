"""Every row inside SUBSAMPLE belongs to a unit's block: an outer join must not carry one unit into another's."""

from __future__ import annotations

import dpsql
from tests.support import inside
from tests.support.fixtures import session_fixture

POLICY = """
budget = { epsilon = 1e6, delta = 1e-3, accountant = "basic", default_epsilon = 1 }
[tables]
visits = { privacy_unit = "person", max_rows = 3 }
wards = { public = true }
"""
TABLES = """
CREATE TABLE visits AS SELECT range AS person, 'A' AS ward, range * 1.0 AS x FROM range(50);
CREATE TABLE wards AS SELECT * FROM (VALUES ('A', 1), ('B', 2)) AS t(ward, beds);
"""
session = session_fixture(POLICY, TABLES, scope="function")


def results(session: dpsql.Session, query: str, registered: bool = False) -> list[int]:
    """Return the result of each block, for any salt: the rows that it counts."""
    explained = session.explain(query)
    rows = inside.engine(session).execute(explained.sql[0].replace("$salt", "7"))
    return rows.column(rows.column_names[1]).to_pylist()


def test_rows_without_a_unit_are_in_no_block(session: dpsql.Session) -> None:
    counted = results(
        session,
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 100), blocks = 8) COUNT(*) AS n FROM visits RIGHT JOIN wards USING (ward)",
    )
    assert sum(counted) == 50  # the ward that nobody visits counts in no block


def test_nor_for_a_python_function(session: dpsql.Session) -> None:
    session.register("size", lambda beds: float(len(beds)))
    rows = results(
        session,
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 100), blocks = 8) size(beds) FROM visits RIGHT JOIN wards USING (ward)",
    )
    assert len(rows) == 50
    assert 2 not in rows
