"""A small shop: customers, their orders, the items of these; some keys missing, some leading nowhere."""

from __future__ import annotations

import math
from typing import Any

import duckdb

import dpsql

Shop = tuple[dpsql.Session, duckdb.DuckDBPyConnection]
"""A session, and plain DuckDB where only owned rows are seen."""

POLICY = """
budget = { epsilon = 1e12, delta = 1e-2, accountant = "basic", default_epsilon = 1e6, default_delta = 1e-9 }
[tables]
customers = { privacy_unit = "id", max_rows_per_group = 3, max_groups = 9, columns = { age = { bounds = [0, 100] } } }
orders = { privacy_unit = "customer -> customers.id, id", max_rows_per_group = 9, max_groups = 9, columns = { \
    amount = { bounds = [-50, 50] }, kind = { values = ["web", "shop", "phone"] } } }
items = { privacy_unit = "order_id -> orders.order_id, customer -> customers.id, id", max_rows_per_group = 40, \
    max_groups = 20, columns = { quantity = { bounds = [0, 9] } } }
calls = { privacy_unit = "caller", max_rows_per_group = 9, max_groups = 9, columns = { \
    minutes = { bounds = [0, 60] } } }
badges = { privacy_unit = "ROW", columns = { points = { bounds = [0, 10] } } }
products = { public = true }
cities = { public = true }
"""
TABLES = """
CREATE TABLE customers AS SELECT i AS id, ['Delft', 'Leiden', 'Gouda', NULL][1 + i % 4] AS city, 20 + i % 50 AS age
    FROM range(1, 61) r(i);
INSERT INTO customers VALUES (NULL, 'Delft', 40);
CREATE TABLE orders AS SELECT i AS order_id, CASE WHEN i % 17 = 0 THEN NULL ELSE 1 + i * 14 % 130 END AS customer,
    ['web', 'shop', 'phone'][1 + i % 3] AS kind, (i * 11 % 90) - 45 AS amount, DATE '2024-01-01' + (i % 300)::INTEGER AS day
    FROM range(200) r(i);
CREATE TABLE items AS SELECT CASE WHEN i % 19 = 0 THEN NULL ELSE i * 7 % 230 END AS order_id,
    1 + (i // 7 + i // 100) % 5 AS product,
    i % 8 AS quantity FROM range(400) r(i) WHERE i * 7 % 230 < 150;
CREATE TABLE calls AS SELECT CASE WHEN i % 13 = 0 THEN NULL ELSE 1 + i % 70 END AS caller, i * 5 % 55 AS minutes,
    DATE '2024-01-01' + (i % 90)::INTEGER AS day FROM range(150) r(i);
CREATE TABLE badges AS SELECT 1 + i % 6 AS product, i % 10 AS points, ['Delft', 'Leiden', NULL][1 + i % 3] AS city
    FROM range(120) r(i);
CREATE TABLE products AS SELECT * FROM (VALUES (1, 'pen', 2, 100), (2, 'ink', 3, 200), (3, 'pad', 2, 300), (4, 'cup', 5, 400),
    (9, 'hat', 5, 500)) AS v(product, name, price, id);
CREATE TABLE cities AS SELECT * FROM (VALUES ('Delft', 'south', 1), ('Leiden', 'south', 2), ('Gouda', 'south', 3),
    ('Utrecht', 'mid', 4), ('Delft', 'old', 5)) AS v(city, region, id);
"""
# What counts of the private tables: rows that lead to a unit. Plain DuckDB reads these.
OWNED = """
CREATE SCHEMA owned;
CREATE VIEW owned.customers AS SELECT * FROM main.customers WHERE id IS NOT NULL;
CREATE VIEW owned.orders AS SELECT * FROM main.orders WHERE customer IN (SELECT id FROM owned.customers);
CREATE VIEW owned.items AS SELECT * FROM main.items WHERE order_id IN (SELECT order_id FROM owned.orders);
CREATE VIEW owned.calls AS SELECT * FROM main.calls WHERE caller IS NOT NULL;
"""


def near(ours: Any, theirs: Any) -> bool:
    """Equal; numbers as far as the little noise of a huge epsilon allows."""
    if isinstance(theirs, int | float) and not isinstance(theirs, bool) and ours is not None:
        return math.isclose(float(ours), float(theirs), rel_tol=2e-3, abs_tol=0.3)
    return bool(ours == theirs)


def open_shop() -> tuple[duckdb.DuckDBPyConnection, dpsql.Session, duckdb.DuckDBPyConnection]:
    """The data, a session on them, and plain DuckDB where only owned rows are seen."""
    con = duckdb.connect()
    con.execute(TABLES)
    plain = duckdb.connect()
    plain.execute(TABLES + OWNED + "SET search_path = 'owned,main'")
    return con, dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)), plain
