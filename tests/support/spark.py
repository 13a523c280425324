"""Tables, expressions and the pair of engines that the suites on Spark share."""

# ruff: noqa: E501  (a row in one line each)
from __future__ import annotations

import dataclasses
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import dpsql
from tests.support.both import Both
from tests.support.corpora import CORPORA, POLICIES

SPENT = dataclasses.replace(
    POLICIES["usual"],
    budget=dataclasses.replace(POLICIES["usual"].budget, epsilon=Fraction(1000), delta=Fraction(1, 20)),
)


def fill(con: duckdb.DuckDBPyConnection) -> None:
    """Rows for the corpora's tables: no unit has more rows or groups than the policy lets count."""
    con.execute((CORPORA / "schema.sql").read_text())
    for table in ("visits", "patients", "bids", "orders", "lines", "wards", "diseases"):
        con.execute(f"DELETE FROM {table}")
    rng = random.Random(20)
    for patient in range(1, 81):
        ward, city = rng.choice("ABC"), rng.choice(["Delft", "Leiden", "Ünïcode", "", None])
        for _ in range(rng.randint(1, 5)):
            amount = rng.choice(
                [rng.uniform(-50, 600), 0.0, -0.0, float("nan"), float("inf"), 1e300, None, 12.5]
            )
            row = [
                patient if rng.random() < 0.97 else None, ward, city, rng.choice(["flu", "cold", None]),
                rng.choice([rng.randint(0, 130), None]), amount, rng.choice([rng.gauss(70, 10), None]),
                rng.randint(1, 53), f"20{rng.randint(10, 30)}-0{rng.randint(1, 9)}-1{rng.randint(0, 9)}",
                rng.choice([True, False, None]), rng.choice(["17", "not a number", None]),
            ]  # fmt: skip
            con.execute(f"INSERT INTO visits VALUES ({', '.join('?' * len(row))})", row)
        con.execute("INSERT INTO patients VALUES (?, ?)", [patient, rng.randint(0, 200_000)])
        con.execute("INSERT INTO orders VALUES (?, ?, ?)", [patient, patient // 2, rng.randint(0, 1000)])
        con.execute("INSERT INTO lines VALUES (?, ?)", [rng.randint(1, 90), rng.randint(-5, 120)])
    for _ in range(300):
        con.execute("INSERT INTO bids VALUES (?, ?)", [round(rng.uniform(-1, 12), 2), rng.choice(["x", "y"])])
    con.execute("INSERT INTO wards VALUES ('A', 10), ('B', 20), ('D', 5)")
    con.execute("INSERT INTO diseases VALUES ('flu'), ('cold'), ('gout')")


def share(spark: Any, con: duckdb.DuckDBPyConnection) -> None:
    for (name,) in con.sql("SELECT table_name FROM duckdb_tables()").fetchall():
        spark.createDataFrame(con.sql(f"SELECT * FROM {name}").to_arrow_table()).createOrReplaceTempView(name)


@dataclasses.dataclass
class Pair:
    session: dpsql.Session
    read: Both


NASTY = """CREATE TABLE t AS SELECT * FROM (VALUES
(1, 3::BIGINT, 2::SMALLINT, 1.5::DOUBLE, 2.5::FLOAT, 10.25::DECIMAL(8,2), 'abc', DATE '2020-02-29', TIMESTAMP '2020-02-29 13:14:15.123', TRUE),
(2, -7, -3, -2.5, -0.5, -3.33, 'Ünïcode', DATE '1969-12-31', TIMESTAMP '1969-12-31 23:59:59', FALSE),
(3, 0, 0, 0.0, 0.0, 0.00, '', DATE '2000-01-01', TIMESTAMP '2000-01-01', NULL),
(4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
(5, 9223372036854775807, 32767, 'nan', 'nan', 999999.99, '  pad  ', DATE '9998-12-31', TIMESTAMP '9998-12-31 23:59:59.999999', TRUE),
(6, -9223372036854775808, -32768, 'inf', 'inf', -999999.99, 'a%b_c\\d', DATE '0001-05-01', TIMESTAMP '1001-01-01', FALSE),
(7, 1000000000000, 5, '-inf', '-inf', 2.50, 'x,y,,z', DATE '2021-01-03', TIMESTAMP '2021-01-03 00:00:01', TRUE),
(8, 12345, 7, 1e300, 1e30, 3.50, '17', DATE '2023-12-31', TIMESTAMP '2023-12-31 12:00:00', TRUE),
(9, -5, -5, 2.675, 0.1, -2.50, 'not a number', DATE '2024-12-30', TIMESTAMP '2024-12-30 06:30:00.5', TRUE),
(10, 4, 4, -0.0, 16777217, 0.05, 'A\u00e9\U0001f600z', DATE '1582-10-10', TIMESTAMP '2010-06-15 10:20:30', TRUE),
(11, 8, 1, 0.49999999999999994, 1e-30, 1.005, 'line\nbreak', DATE '2016-02-29', TIMESTAMP '2016-02-29', TRUE),
(12, 2147483648, 100, 9007199254740993, -7.5, 12.34, '${x} $1 ''q'' "d"', DATE '2019-06-30', TIMESTAMP '2019-06-30 23:59:59.9', FALSE)
) v(id, b, s, d, f, c, x, day, w, ok)"""
EXPRESSIONS = (Path(__file__).parents[1] / "engines" / "expressions.txt").read_text().splitlines()


def numbered(table: pa.Table) -> pa.Table:
    """Dates as numbers: some are beyond what Python can hold."""
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_date(column.type):
            column = column.cast(pa.int32()).cast(pa.int64())
        elif pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        columns[name] = column
    return pa.table(columns)


def chosen(mark: str) -> list[str]:
    lines = [line for line in EXPRESSIONS if line.strip() and not line.startswith("#")]
    return [line.removeprefix("- ") for line in lines if line.startswith("- ") == (mark == "refused")]


AGGREGATES = [
    "SUM(b)", "SUM(s)", "SUM(c)", "SUM(b) // 2", "SUM(b) // GREATEST(COUNT(b), 1)", "AVG(c)", "COUNT(*)", "COUNT(d)", "COUNT(DISTINCT x)", "MIN(d)", "MAX(d)", "MIN(x)",
    "MAX(day)", "SUM(s) FILTER (WHERE ok)", "COUNT(*) FILTER (WHERE d > 0)", "AVG(b)", "AVG(s)", "ARG_MAX(x, b)",
    "ARG_MIN(x, b)", "MEDIAN(CAST(s AS DOUBLE))", "QUANTILE_CONT(CAST(s AS DOUBLE), 0.25)",
    "STDDEV_SAMP(CAST(s AS DOUBLE) ORDER BY 1)", "VAR_POP(CAST(s AS DOUBLE) ORDER BY 1)",
    "CORR(CAST(s AS DOUBLE), CAST(id AS DOUBLE) ORDER BY 1)", "COVAR_SAMP(CAST(s AS DOUBLE), CAST(id AS DOUBLE))",
    "REGR_SLOPE(CAST(s AS DOUBLE), CAST(id AS DOUBLE))", "REGR_INTERCEPT(CAST(s AS DOUBLE), CAST(id AS DOUBLE))",
    "REGR_R2(CAST(s AS DOUBLE), CAST(id AS DOUBLE))", "REGR_COUNT(CAST(s AS DOUBLE), CAST(id AS DOUBLE))",
    "REGR_AVGX(CAST(s AS DOUBLE), CAST(id AS DOUBLE))", "REGR_AVGY(CAST(s AS DOUBLE), CAST(id AS DOUBLE))",
    "SUM(CAST(CASE WHEN ABS(d) < 1e15 THEN d * 1e9 END AS HUGEINT))",
]  # fmt: skip
