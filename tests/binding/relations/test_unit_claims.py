"""An owner's word on the way to the unit opens joins and is never trusted: here the data break each word of it."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from tests.support.fixtures import both_fixture

POLICY = """
budget = { epsilon = 1e30, delta = 0.999, accountant = "basic", default_epsilon = 1e9, default_delta = 1e-9 }
[tables]
admissions = { privacy_unit = "subject_id", max_rows = 9 }
diagnoses = { privacy_unit = ["subject_id", "hadm_id -> admissions.hadm_id, subject_id"], max_rows = 9 }
sales = { privacy_unit = "customer_id", determines = ["order_number -> customer_id"], max_rows = 9 }
returns = { privacy_unit = "customer_id", max_rows = 9 }
tracking = { privacy_unit = "order_number -> sales.order_number, customer_id", max_rows = 9 }
accounts = { privacy_unit = ["customer_id", "login"], max_rows = 9 }
logins = { privacy_unit = "login", max_rows = 9 }
"""
DATA = """
CREATE TABLE admissions AS FROM (VALUES (1, 10), (2, 10), (3, 20), (1, 20)) AS t(subject_id, hadm_id);
CREATE TABLE diagnoses AS FROM (VALUES (1, 10), (2, 10), (3, 20), (NULL, 20), (3, NULL), (3, 10)) AS t(subject_id, hadm_id);
CREATE TABLE sales AS FROM (VALUES (1, 100), (2, 100), (1, 100), (3, 300)) AS t(customer_id, order_number);
CREATE TABLE returns AS FROM (VALUES (1, 100), (2, 300), (3, 300), (NULL, 100)) AS t(customer_id, order_number);
CREATE TABLE tracking AS FROM (VALUES (100, 5), (100, 6), (300, 7), (400, 1), (NULL, 1)) AS t(order_number, days);
CREATE TABLE accounts AS FROM (VALUES (1, 1), (2, 1), (3, 7)) AS t(customer_id, login);
CREATE TABLE logins AS FROM (VALUES (1, 4), (1, 5), (3, 6), (7, 6)) AS t(login, n);
"""


Opened = tuple[duckdb.DuckDBPyConnection, dpsql.Session]


opened = both_fixture(POLICY, DATA)


@pytest.mark.parametrize(
    ("source", "plain"),
    [
        ("diagnoses", "diagnoses d WHERE d.subject_id IS NOT NULL"),  # the first path decides; the other is not followed
        ("diagnoses d JOIN admissions a ON d.hadm_id = a.hadm_id", "diagnoses d JOIN admissions a USING (hadm_id, subject_id)"),
        ("admissions a JOIN diagnoses d USING (hadm_id)", "diagnoses d JOIN admissions a USING (hadm_id, subject_id)"),
        ("diagnoses d LEFT JOIN admissions a USING (hadm_id)",
         "diagnoses d LEFT JOIN admissions a USING (hadm_id, subject_id) WHERE d.subject_id IS NOT NULL"),
        ("admissions a WHERE EXISTS (FROM diagnoses d WHERE d.hadm_id = a.hadm_id)".replace("(FROM", "(SELECT 1 FROM"),
         "admissions a SEMI JOIN diagnoses d USING (hadm_id, subject_id)"),
        ("sales s JOIN returns r ON s.order_number = r.order_number", "sales s JOIN returns r USING (order_number, customer_id)"),
        ("returns r, sales s WHERE r.order_number = s.order_number", "sales s JOIN returns r USING (order_number, customer_id)"),
        ("sales a JOIN sales b USING (order_number)", "sales a JOIN sales b USING (order_number, customer_id)"),
        # A table without a unit of its own: a row is each of its key's units once, however often the key stands there.
        ("tracking", "tracking JOIN (SELECT DISTINCT order_number, customer_id FROM sales) USING (order_number)"),
        ("tracking t JOIN returns r USING (order_number)",
         "tracking JOIN (SELECT DISTINCT order_number, customer_id FROM sales) USING (order_number) "
         "JOIN returns USING (order_number, customer_id)"),
        ("tracking t JOIN sales s USING (order_number)", "tracking JOIN sales USING (order_number)"),
        ("accounts a JOIN logins l USING (login)", "accounts a JOIN logins l ON a.login = l.login AND a.customer_id = l.login"),
    ],
)  # fmt: skip
def test_rows_of_different_units_never_meet(opened: Opened, source: str, plain: str) -> None:
    con, session = opened
    found = session.sql(f"SELECT COUNT(*) FROM {source}").fetchall()
    assert found == con.sql(f"SELECT COUNT(*) FROM {plain}").fetchall()


def test_explain_says_which_rows_meet(opened: Opened) -> None:
    text = "SELECT COUNT(*) FROM sales s JOIN returns r ON s.order_number = r.order_number"
    assert "Private rows meet only if both are of one customer_id." in str(opened[1].explain(text))
