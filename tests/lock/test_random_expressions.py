"""Random expressions, conditions and aggregates that the lock proves total have a result for the extremes of every type."""

from __future__ import annotations

import contextlib
import random
from collections import Counter

import duckdb
import pytest

from dpsql.engine.sandbox import SETTINGS
from dpsql.lock.totality import prove_total
from dpsql.lock.tree import Unproved

COLUMNS = {
    "x DOUBLE": "1.7976931348623157e308 -1.7976931348623157e308 nan inf -inf 1e200 -1e200 0 5e-324 -1.5 3",
    "f FLOAT": "3.4028234e38 -3.4028234e38 nan inf -inf 0 2.5",
    "n INTEGER": "2147483647 -2147483648 0 -1 7",
    "b BIGINT": "9223372036854775807 -9223372036854775808 0 -1 5",
    "u UBIGINT": "18446744073709551615 0 3",
    "h HUGEINT": "170141183460469231731687303715884105727 -170141183460469231731687303715884105728 0 -1 9",
    "d DECIMAL(38,3)": "99999999999999999999999999999999999.999 -99999999999999999999999999999999999.999 0 1.5",
    "e DECIMAL(9,2)": "9999999.99 -9999999.99 0 0.01",
    "t TINYINT": "127 -128 0 -1",
    "s VARCHAR": "a \U0010ffff 12 -99999999999999999999 nan 1e400 infinity 2020-01-01",
    "day DATE": "infinity -infinity 5881580-07-10 0001-01-01 2024-02-29",
    "ts TIMESTAMP": "infinity -infinity 294247-01-10T04:00:54.775806 0001-01-01 2024-02-29T23:59:59.999999",
    "iv INTERVAL": "2147483647months 2147483647days 1day -1month",
}
KINDS = (
    "TINYINT;SMALLINT;INTEGER;BIGINT;HUGEINT;UTINYINT;UBIGINT;DOUBLE;FLOAT;DECIMAL(9,2);DECIMAL(38,3);VARCHAR"
)
CONSTANTS = """
0;1;2;-1;3;7;100;1000;1.5;0.01;1e9;-1e9;1e70;1e300;255;32767;NULL;'nan'::DOUBLE;'infinity'::DOUBLE;CAST(1e9 AS HUGEINT)
"""
COLUMN = """
x;x;x;x;f;f;n;n;b;u;h;d;e;t;year(day);month(ts);epoch(ts);ascii(s);TRY_CAST(s AS DOUBLE);date_diff('day', day, DATE '2020-01-01')
"""
CALLS = """
{0} - {1};{0} - {1};{0} + {1};{0} * {1};{0} // {1};{0} % {1};{0} / {1};abs({0});-{0};abs({0} - {c}) - abs({0} - {k})
{0} - ({0} // {c}) * {c};least(greatest({0}, {c}), {k});round({0});floor({0});trunc({0}, -3);sign({0});sqrt({0});log2({0})
sin({0});ln({0});exp({0});acosh({0});gamma({0});cot({0});cbrt({0});bit_count({0});power({0}, {1});coalesce({0}, {c})
TRY_CAST({0} AS {kind});CAST({0} AS {kind});TRY({0} + {1});CASE WHEN {0} BETWEEN {c} AND {k} THEN {0} END
CASE WHEN abs({0}) < {c} THEN {0} END;CASE WHEN {0} <= {c} THEN {1} ELSE {k} END;CASE WHEN {0} IS NULL OR {0} < {c} THEN {0} END
"""
AGGREGATES = """
sum({0});avg({0});max({0});count({0});var_pop({0});stddev_samp({0});corr({0}, {1});median({0});mode({0});product({0})
bit_or({0});sem({0});skewness({0});entropy({0});mad({0});regr_slope({0}, {1});quantile_cont({0}, 0.5);geomean({0});list({0})
"""
TEXTS = """
SELECT {0} AS y FROM t;SELECT CAST({0} AS {kind}) AS y FROM t
SELECT CAST({0} AS {kind}) AS y FROM t;SELECT CAST({1} AS {kind}) AS y FROM t;SELECT CAST({1} AS {kind}) AS y FROM t
SELECT {total} AS y FROM t;SELECT n % 3 AS k, {total} AS y FROM t GROUP BY ALL
SELECT CAST({1} AS {kind}) AS y FROM t WHERE {1} > {c} AND abs({0}) <= {k}
SELECT {1} * {c} AS y FROM t WHERE {1} BETWEEN {c} AND {k}
SELECT CAST(r.a // r.c AS {kind}) AS y, r.a - (r.a // r.c) * r.c AS z FROM (SELECT sum({1}) AS a, count({1}) AS c FROM t) AS r
"""


def _pick(pick: random.Random, texts: str) -> str:
    return pick.choice(texts.strip().replace("\n", ";").split(";"))


def _expression(pick: random.Random, depth: int) -> str:
    if depth == 0:
        return _pick(pick, COLUMN if pick.random() < 0.9 else CONSTANTS)
    return f"({_write(pick, CALLS, depth - 1)})"


def _write(pick: random.Random, forms: str, depth: int) -> str:
    form = _pick(pick, forms)
    parts = (_expression(pick, pick.randint(0, depth)) for _ in range(2))
    total = _write(pick, AGGREGATES, depth) if "{total}" in form else ""
    c, k = _pick(pick, CONSTANTS), _pick(pick, CONSTANTS)
    return form.format(*parts, c=c, k=k, kind=_pick(pick, KINDS), total=total)


def _fill(con: duckdb.DuckDBPyConnection, pick: random.Random) -> None:
    """Create a table with each extreme among others, and alone."""
    con.execute(f"CREATE TABLE t ({', '.join(COLUMNS)})")
    values = [words.split() for words in COLUMNS.values()]
    for place, extremes in enumerate(values):
        for extreme in extremes:
            row: list[str | None] = [pick.choice(others) for others in values]
            row[place] = extreme
            for given in (row, [one if one is extreme else None for one in row]):
                con.execute(f"INSERT INTO t VALUES ({', '.join('?' * len(given))})", given)


@pytest.mark.parametrize("count", [1000, pytest.param(20_000, marks=pytest.mark.long)])
def test_what_is_proved_does_not_fail(count: int) -> None:
    pick, seen = random.Random(count), Counter[str]()
    with duckdb.connect() as con:
        for name in ("error_on_division_by_zero", "ieee_floating_point_ops"):
            with contextlib.suppress(duckdb.CatalogException):  # in DuckDB 1.5
                con.execute(f"SET {name} = {SETTINGS[name]}")
        _fill(con, pick)
        plan = "SELECT json_serialize_plan(?, optimize := false)"
        for _ in range(count):
            text = _write(pick, TEXTS, 3)
            try:
                con.execute(f"PREPARE bound AS {text}")
            except duckdb.Error:
                continue  # types that have no such call
            try:
                prove_total(text, lambda sql: str(con.execute(plan, [sql]).fetchall()[0][0]))
            except Unproved:
                seen["refused"] += 1
                continue
            con.execute(f"CREATE OR REPLACE TEMP TABLE made AS {text}")
            seen["proved"] += 1
    assert min(seen["proved"], seen["refused"]) > count / 5, seen
