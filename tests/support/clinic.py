# ruff: noqa: E501 - tables are easier to read when each has its own lines
"""A clinic: patients, their visits and tests, people who are rows, wards and months that are public; columns of every type."""

from __future__ import annotations

import duckdb

import dpsql

BUDGET = """
budget = { epsilon = 1e13, delta = 1e-1, accountant = "basic", default_epsilon = 1e6, default_delta = 1e-9 }
"""
"""So much that the noise is nothing, and answers can be compared."""
POLICY = (
    BUDGET
    + """
[tables]
patients = { privacy_unit = "patient", max_rows = 1, max_groups = 1, columns = { age = { bounds = [0, 100] }, \
    sex = { values = ["f", "m"] } } }
visits = { privacy_unit = "patient", max_rows_per_group = 12, max_groups = 12, columns = { \
    ward = { values = ["A", "B", "C", "D"] }, cost = { bounds = [0, 500] }, score = { bounds = [-5, 5] }, \
    u8 = { bounds = [0, 200] }, h = { bounds = [0, 1000] }, small = { bounds = [-10, 10] }, \
    day = { bounds = [2024-01-01, 2024-12-31] }, seen = { bounds = [2024-01-01, 2024-12-31] } } }
tests = { privacy_unit = "visit -> visits.visit, patient", max_rows_per_group = 30, max_groups = 9, columns = { \
    result = { bounds = [0, 10] } } }
people = { privacy_unit = "ROW", columns = { age = { bounds = [0, 100] }, income = { bounds = [0, 1000] }, \
    city = { values = ["Delft", "Leiden"] } } }
wards = { public = true }
months = { public = true }
"""
)
TABLES = """
CREATE TYPE mood AS ENUM ('sad','ok','happy');
CREATE TABLE patients AS SELECT i::BIGINT AS patient, 20 + (i*7)%60 AS age, ['f','m'][1+i%2] AS sex, ['Delft','Leiden','Gouda'][1+i%3] AS city FROM range(200) r(i);
CREATE TABLE visits AS SELECT i AS visit, (i*7%200)::BIGINT AS patient, ['A','B','C','D'][1+(i//3)%4] AS ward,
  DATE '2024-01-01' + (i*11%360)::INTEGER AS day, TIMESTAMP '2024-01-01 00:00:00' + INTERVAL (i*37%8000) HOUR AS seen,
  ((i*31%50000)/100.0)::DECIMAL(10,2) AS cost, ((i*13%1000)/100.0 - 5)::DOUBLE AS score, (i*3%200)::UTINYINT AS u8,
  (i*5%1000)::HUGEINT AS h, ((i%21)-10)::TINYINT AS small, i%3=0 AS urgent, (['sad','ok','happy'][1+i%3])::mood AS feeling,
  [ 'x'||(i%3), 'y' ] AS tags, {'city': ['Delft','Leiden'][1+i%2], 'zip': 1000+i%5} AS address,
  INTERVAL (i%10) DAY AS stay, uuid() AS uid, ['  Ann Lee','bob ray ','CAT Doe'][1+i%3] AS doctor, CASE WHEN i%4=0 THEN NULL ELSE (i%5)::VARCHAR END AS code,
  (i%7)::FLOAT AS fl, (i%100)::SMALLINT as s16, (i%1000)::UBIGINT as u64
  FROM range(1000) r(i);
CREATE TABLE tests AS SELECT i*3%1000 AS visit, ['iron','salt','zinc'][1+i%3] AS kind, (i*17%101)/10.0 AS result FROM range(2000) r(i);
CREATE TABLE people AS SELECT i%90 AS age, (i*37%1000)::DOUBLE AS income, ['Delft','Leiden'][1+i%2] AS city, i AS number FROM range(500) r(i);
CREATE TABLE wards AS SELECT * FROM (VALUES ('A',1,'north'),('B',1,'south'),('C',2,'north'),('E',3,'south')) v(ward,floor,wing);
CREATE TABLE months AS SELECT unnest(generate_series(DATE '2024-01-01', DATE '2024-12-01', INTERVAL 1 MONTH))::DATE AS month;
"""


def open_clinic() -> tuple[duckdb.DuckDBPyConnection, dpsql.Session]:
    """The data, and a session on them."""
    con = duckdb.connect()
    con.execute(TABLES)
    return con, dpsql.connect(con, policy=dpsql.Policy.loads(POLICY))
