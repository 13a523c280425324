"""Bounds of a public table's numbers: its own least and largest values, to which what comes later is held."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from tests.support.fixtures import con_fixture

POLICY = """
budget = { epsilon = 1e9, delta = 1e-3, accountant = "basic", default_epsilon = 1e5 }
[tables]
sales = { privacy_unit = "u", max_rows = 50 }
items = { public = true, columns = { given = { bounds = [0, 100] } } }
"""
JOINED = "FROM sales JOIN items USING (item)"
TABLES = """
CREATE TABLE sales AS SELECT i % 300 AS u, i % 5 AS item FROM range(3000) r(i);
CREATE TABLE items AS SELECT i AS item, (i * 2.5 + 1)::DECIMAL(8, 2) AS price, i * 1.5::DOUBLE AS weight,
    'nan'::DOUBLE AS missing, i AS given FROM range(5) r(i);
INSERT INTO items VALUES (9, NULL, 'inf', 'nan', 9);
"""
con = con_fixture(TABLES, scope="function")


def test_sums_of_public_numbers_need_no_bounds_given(con: duckdb.DuckDBPyConnection) -> None:
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
        for total in ("SUM(price)", "AVG(price)", "SUM(weight)", "SUM(price * weight)"):
            query = f"SELECT {total} AS a {JOINED}"
            mine, theirs = session.sql(query).fetchone(), con.sql(query).fetchall()[0]
            assert float(mine[0]) == pytest.approx(float(theirs[0]), rel=1e-3)
        assert "[1, 11] (from the public table)" in str(session.explain(f"SELECT SUM(price) {JOINED}"))
        assert "[0, 100] (from the public table)" in str(session.explain(f"SELECT SUM(given) {JOINED}"))
        with pytest.raises(dpsql.PrivacyError, match="needs bounds for missing"):
            session.sql(f"SELECT SUM(missing) {JOINED}")


def test_what_is_in_the_table_later_is_held_to_what_was_charged_for(con: duckdb.DuckDBPyConnection) -> None:
    """A price of 1,000 would move the sum by more than is charged; it counts as 11, the largest of before."""
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
        query = f"SELECT SUM(price) AS a {JOINED}"
        before = session.sql(query)
        con.execute("UPDATE items SET price = 1000")
        after = session.sql(query, fresh=True)
        assert after.event == before.event
        assert float(after.fetchone()[0]) == pytest.approx(3000 * 11, rel=1e-3)
