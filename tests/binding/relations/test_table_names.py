"""Qualified names: the policy's table or none, whatever stands in a name."""

from __future__ import annotations

import pytest

import dpsql
from tests.support.fixtures import open_session, session_fixture

POLICY = """
[budget]
epsilon = 1e13
accountant = "basic"
default_epsilon = 1e9
max_epsilon_per_query = 1e9
[tables."shop.sales"]
privacy_unit = "who"
max_rows = 9
[tables."my table"]
privacy_unit = "who"
max_rows = 9
[tables.visits]
privacy_unit = "who"
max_rows = 9
[tables.a]
source = "shop.b"
privacy_unit = "who"
max_rows = 9
[tables."main.wards"]
public = true
"""
TABLES = """
CREATE SCHEMA shop;
CREATE SCHEMA a;
CREATE TABLE shop.sales AS SELECT i AS who FROM range(5) AS t(i);
CREATE TABLE sales AS SELECT i AS who FROM range(50) AS t(i);
CREATE TABLE "my table" AS SELECT i AS who FROM range(6) AS t(i);
CREATE TABLE visits AS SELECT i AS who FROM range(7) AS t(i);
CREATE TABLE shop.visits AS SELECT i AS who FROM range(70) AS t(i);
CREATE TABLE "shop.visits" AS SELECT i AS who FROM range(700) AS t(i);
CREATE TABLE shop.b AS SELECT i AS who FROM range(8) AS t(i);
CREATE TABLE a.b AS SELECT i AS who FROM range(80) AS t(i);
CREATE TABLE "a.b" AS SELECT i AS who FROM range(800) AS t(i);
CREATE TABLE wards AS SELECT i AS beds FROM range(3) AS t(i);
"""
FOUND = {
    "shop.sales": 5, '"shop"."sales"': 5, "memory.shop.sales": 5, "SHOP.Sales": 5, '"my table"': 6, 'main."my table"': 6,
    "visits": 7, "main.visits": 7, "memory.visits": 7, "a": 8, "wards": 3, "main.wards": 3, "memory.main.wards": 3,
}  # fmt: skip
NOT_FOUND = (
    "sales", "main.sales", '"shop.sales"', "shop.visits", '"main.visits"', '"shop.visits"', 'main."shop.visits"', "a.b",
    '"a.b"', "shop.a", "main.a", "shop.b", '"main.wards"', "shop.wards", "other.visits", "temp.visits", '"my.table"',
    '"main"".""visits"', "main.main.visits", "system.main.visits",
)  # fmt: skip


session = session_fixture(POLICY, TABLES)


@pytest.mark.parametrize("name", FOUND)
def test_a_name_is_the_table_that_duckdb_finds(session: dpsql.Session, name: str) -> None:
    assert session.sql(f"SELECT COUNT(*) FROM {name}").fetchall() == [(FOUND[name],)]


@pytest.mark.parametrize("name", NOT_FOUND)
def test_no_other_table_is_found(session: dpsql.Session, name: str) -> None:
    with pytest.raises(dpsql.BindError, match="there is no table") as caught:
        session.sql(f"SELECT COUNT(*) FROM {name}")
    assert caught.value.span is not None


def test_policies_are_written_as_they_are_read() -> None:
    policy = dpsql.Policy.loads(POLICY)
    assert dpsql.Policy.loads(policy.dumps()) == policy


SPELLED = """
budget = { epsilon = 1e9, accountant = "basic", default_epsilon = 1e6 }
[tables]
visits = { privacy_unit = "PERSON", max_rows = 3 }
items = { privacy_unit = "Visit -> visits.ID, person", max_rows = 6 }
days = { source = "visits", privacy_unit = "Person", privacy_period = "date_trunc('month', DAY)", max_rows = 3 }
"""


def test_columns_of_a_unit_are_those_of_the_data_in_any_case() -> None:
    with open_session(
        SPELLED,
        "CREATE TABLE visits AS SELECT i AS id, i // 5 AS \"Person\", DATE '2024-01-01' + i::INTEGER AS day "
        "FROM range(50) AS r(i)",
        'CREATE TABLE items AS SELECT i // 2 AS "VISIT" FROM range(100) AS r(i)',
    ) as session:
        counts = [
            session.sql(f"SELECT COUNT(*) AS n FROM {table}").fetchall()[0][0]
            for table in ("visits", "items", "days")
        ]
    in_a_month = [5] * 6 + [1, 4] + [5] * 3
    assert counts == [30, 60, sum(min(3, rows) for rows in in_a_month)]
