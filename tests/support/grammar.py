# ruff: noqa: E501 - statements are easier to read when each has one line
"""Random statements over private tables, and small databases full of values that are hard to bound.

Every statement aggregates a *source*: rows with a privacy unit ``u`` and columns ``k, x, n, f``, put together from tables by
joins on the unit and along paths, joins with public tables, UNION ALL, subqueries of the same unit, CTEs, and totals per
unit. Keys that paths lead to are not unique in these databases, and some units are missing: nothing that is declared may
rest on what the owner's data only should be.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

import duckdb
from hypothesis import strategies as st

import dpsql
from tests.support.case_files import read_part

POLICY = """
[budget]
epsilon = 1000
delta = 1e-3
accountant = "basic"
default_epsilon = 1
default_delta = 1e-6

[tables.t]
privacy_unit = "unit"
max_rows_per_group = 2
max_groups = 2
[tables.t.columns]
k = { values = ["a", "b", "c"] }
x = { bounds = [-2, 5] }
n = { bounds = [1, 7] }

[tables.s]
privacy_unit = "unit"
max_rows = 1
max_groups = 1
[tables.s.columns]
y = { bounds = [0, 3] }

[tables.o]
privacy_unit = "unit"
max_rows_per_group = 2
max_groups = 2

[tables.i]
privacy_unit = "oid -> o.oid, unit"
max_rows_per_group = 3
max_groups = 2
[tables.i.columns]
k = { values = ["a", "b", "c"] }
q = { bounds = [0, 4] }

[tables.r]
privacy_unit = "ROW"
[tables.r.columns]
k = { values = ["a", "b", "c"] }
x = { bounds = [-2, 5] }
n = { bounds = [1, 7] }

# Three words of the owner's, each of which the data break.
[tables.v]
privacy_unit = ["unit", "oid -> o.oid, unit"]
determines = ["w -> unit"]
max_rows_per_group = 2
max_groups = 2
[tables.v.columns]
k = { values = ["a", "b", "c"] }
q = { bounds = [0, 4] }

# One unit's rows within one month, and rows that find theirs by a key which is not unique.
[tables.m]
privacy_unit = "unit"
privacy_period = "date_trunc('month', day)"
max_rows_per_group = 2
max_groups = 2
[tables.m.columns]
k = { values = ["a", "b", "c"] }
x = { bounds = [-2, 5] }
n = { bounds = [1, 7] }

[tables.h]
privacy_unit = "n -> m.n, unit"
max_rows_per_group = 2
max_groups = 2
[tables.h.columns]
k = { values = ["a", "b", "c"] }
q = { bounds = [0, 4] }

# Types of which a fault was found, or whose values leave the engine in another form.
[tables.w]
privacy_unit = "unit"
max_rows_per_group = 2
max_groups = 2
[tables.w.columns]
zone = { time_zone = "America/New_York", bounds = [2020-01-01, 2020-12-31] }
level = { values = ["a", "b", "c"] }
whole = { bounds = [0, 5] }

[tables.g]
public = true
"""
SCHEMA = {
    "t": "unit INTEGER, k VARCHAR, x DOUBLE, n INTEGER, f BOOLEAN",
    "s": "unit INTEGER, y INTEGER",
    "o": "oid INTEGER, unit INTEGER, k VARCHAR",
    "i": "oid INTEGER, q DOUBLE, k VARCHAR",
    "r": "k VARCHAR, x DOUBLE, n INTEGER, f BOOLEAN",
    "v": "unit INTEGER, oid INTEGER, w INTEGER, k VARCHAR, q DOUBLE",
    "m": "unit INTEGER, day DATE, k VARCHAR, x DOUBLE, n INTEGER, f BOOLEAN",
    "h": "n INTEGER, k VARCHAR, q DOUBLE",
    "w": "unit INTEGER, moment TIMESTAMPTZ, zone TIMESTAMPTZ, span INTERVAL, level VARCHAR, bits BIT, raw BLOB, "
    "clock TIMETZ, items BIGINT[], parts STRUCT(a HUGEINT,b VARCHAR[]), whole HUGEINT, id UUID, pairs MAP(VARCHAR,INTEGER)",
}
UNITS = (1, 2, 3)
PAIRS = {1: (1, 1), 2: (1, 2), 3: (2, 1)}
"""The unit and the month of it that go from m, where a unit goes from the other tables."""
PUBLIC = "SELECT * FROM (VALUES ('a', 1), ('b', 2), ('z', 3), ('w', 2)) AS v(k, label)"

# -- databases --------------------------------------------------------------------------------------------------

_VALUES = {
    "unit": [1, 1, 1, 2, 3, None], "k": ["a", "b", "c", "z", None], "oid": [1, 2, 2, 3, 4, None], "f": [True, False, None],
    "x": ["nan", "inf", "-inf", -0.0, 0.3, 2.71828, -9, 5, 40, 1e300, -1e9, 32767.9, 1e-300, None],
    "n": [None, -(2**31), 2**31 - 1, 0, 3, 5, 7], "y": [None, -7, 2, 9, 1], "q": [None, 0, 1, 4, 99, -3, "nan"],
    "moment": ["2020-03-29 00:59:59Z", "infinity", "-infinity", "290309-12-22 (BC) 00:00:00+00", "2020-10-25 01:30:00+02", None],
    "zone": ["2020-03-08 06:59:59Z", "294247-01-10 04:00:54.775806+00", "-infinity", "2020-11-01 05:30:00Z", None],
    "span": ["1 day", "24 hours", "1 month", "30 days", "178000000 years", "-2147483648 days", "9223372036854775807 microseconds", None],
    "level": ["a", "b", "c", "z", None], "bits": ["0", "1", "101", None], "raw": ["a", "", "\\xFF\\x00", None],
    "clock": ["00:00:00-15:59:59", "24:00:00+15:59:59", "12:00:00+00", None], "id": ["0" * 32, "f" * 32, None],
    "items": ["[]", "[1, NULL]", "[9223372036854775807]", "[1, 1]", None], "pairs": ["{a=1}", "{}", None],
    "parts": ["{a: 1, b: [x]}", "{a: 170141183460469231731687303715884105727, b: []}", "{a: NULL, b: NULL}", None],
    "whole": [0, 3, 2**127 - 1, -(2**127) + 1, 10**38, None],
    "w": [3, 3, 5, None], "day": ["2020-01-01", "2020-01-31", "2020-02-01", "2021-01-01", None],
}  # fmt: skip


def _literal(value: object) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


@dataclass
class Databases:
    """Schemas ``d0, d1, ...``, and beside each ``d0_1, d0_2, d0_3``: the same without one unit (and without one row of r)."""

    con: duckdb.DuckDBPyConnection
    session: dpsql.Session
    count: int

    def contents(self, number: int) -> str:
        return "\n".join(
            f"{name}: {self.con.sql(f'SELECT COLUMNS(*)::VARCHAR FROM d{number}.{name}').fetchall()}"
            for name in SCHEMA
        )


WITHOUT_CAPS = re.sub(r"max_(rows_per_group|rows|groups) = \d+\n", "", POLICY)
"""The same where the owner says nothing of how many rows or groups a unit has."""


def open_databases(count: int, seed: int = 7, policy: str = POLICY) -> Databases:
    con = duckdb.connect(config={"threads": 1})  # the tables are tiny
    con.execute(f"CREATE TABLE g AS {PUBLIC}")
    for name, columns in SCHEMA.items():
        con.execute(f"CREATE TABLE {name} ({columns})")
    chances = {name: random.Random(seed if name in "tsoir" else f"{seed} {name}") for name in SCHEMA}
    chances |= dict.fromkeys("tsoir", chances["t"])
    for number in range(count):
        con.execute(f"CREATE SCHEMA d{number}")
        for name, columns in SCHEMA.items():
            con.execute(f"CREATE TABLE d{number}.{name} ({columns})")
            chance = chances[name]
            names = [column.split()[0] for column in columns.split(", ")]
            rows = [
                [chance.choice(_VALUES[column]) for column in names]
                for _ in range(chance.choice([2, 5, 9, 14]))
            ]
            text = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)
            con.execute(f"INSERT INTO d{number}.{name} VALUES {text}")
        for gone in UNITS:
            con.execute(f"CREATE SCHEMA d{number}_{gone}")
            for name in SCHEMA:
                # Rows of i go with the orders that lead to a unit: without these they lead nowhere, and are dropped.
                pair = "unit = {} AND date_trunc('month', day) = '2020-0{}-01'".format(*PAIRS[gone])
                kept = {
                    "r": f"rowid <> {gone - 1}",
                    "i": "TRUE",
                    "h": "TRUE",
                    "m": f"({pair}) IS NOT TRUE",
                }.get(name, f"unit IS DISTINCT FROM {gone}")
                con.execute(f"CREATE TABLE d{number}_{gone}.{name} AS FROM d{number}.{name} WHERE {kept}")
    return Databases(con, dpsql.connect(con, policy=dpsql.Policy.loads(policy)), count)


# -- sources ----------------------------------------------------------------------------------------------------

Draw = st.DrawFn
_KINDS = ["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"]
_ROWS = read_part(__file__, "_ROWS")
_MONTH = "date_trunc('month', day)"
_PARTED = [  # units of one person and one month
    "SELECT unit AS u, k, x, n, f FROM m",
    "SELECT m.unit AS u, h.k, q AS x, m.n, f FROM m JOIN h ON h.n = m.n",
    "SELECT m.unit AS u, h.k, q AS x, m.n, f FROM m LEFT JOIN h USING (n)",
    "SELECT a.unit AS u, b.k, a.x, b.n, a.f FROM m a JOIN m b USING (unit)",
    f"SELECT unit AS u, MIN(k) AS k, SUM(x) AS x, COUNT(*)::INTEGER AS n, COUNT(*) > 1 AS f FROM m GROUP BY unit, {_MONTH}",
    f"SELECT a.u, k, x, n, f FROM (SELECT unit AS u, {_MONTH} AS w, COUNT(*)::INTEGER AS n FROM m GROUP BY ALL) a "
    f"JOIN (SELECT unit AS u, k, x, f, {_MONTH} AS w FROM m) b ON a.u = b.u AND a.w = b.w",
    f"SELECT unit AS u, k, x, row_number() OVER (PARTITION BY unit, {_MONTH} ORDER BY n, x, k, f)::INTEGER AS n, f FROM m",
    "SELECT unit AS u, k, x, n, EXISTS (SELECT 1 FROM h WHERE h.n = m.n AND h.q > 1) AS f FROM m",
    "SELECT unit AS u, k, (SELECT SUM(o.x) FROM m o WHERE o.unit = m.unit) AS x, n, f FROM m",
    "SELECT unit AS u, k, x, n, f FROM m UNION ALL SELECT unit AS u, k, x * 2 AS x, 3 AS n, f FROM m",
]  # fmt: skip
_ALONE = [  # rows that are their own unit
    "SELECT k, x, n, f FROM r",
    "SELECT k, x, n, f FROM r WHERE n IS NULL OR f",
    "SELECT r.k, x, label AS n, f FROM r JOIN g ON r.k = g.k",
    "SELECT r.k, x, label AS n, f FROM r LEFT JOIN g ON g.k = r.k AND label > n",
    "SELECT k, x, label AS n, f FROM r JOIN (SELECT DISTINCT label FROM g) h ON h.label = r.n",
    "SELECT k, x, n, EXISTS (SELECT 1 FROM g WHERE g.k = r.k) AS f FROM r",
]


@st.composite
def sources(draw: Draw, depth: int) -> str:
    """A query with the columns u, k, x, n, f over private rows."""
    if depth == 0 or draw(st.integers(0, 2)) == 0:
        return draw(st.sampled_from(_ROWS))
    left = draw(sources(depth - 1))
    shape = draw(
        st.sampled_from(
            ["union", "set", "join", "join", "in", "exists", "scalar", "unit", "nested", "public", "cte"]
        )
    )
    if shape == "unit":
        by = draw(st.sampled_from(["u", "u, k", "u, n % 2"]))
        keys = {
            "u": "u, MAX(k) AS k, SUM(x) AS x, COUNT(*)::INTEGER AS n",
            "u, k": "u, k, AVG(x) AS x, COUNT(x)::INTEGER AS n",
        }
        chosen = keys.get(by, "u, MIN(k) AS k, MEDIAN(x) AS x, (n % 2)::INTEGER AS n")
        return f"SELECT {chosen}, COUNT(*) >= 2 AS f FROM ({left}) AS v GROUP BY {by}"
    if shape == "nested":
        names = draw(st.sampled_from(["v", "v(u, k, x, n, f)", "v(u)"]))
        where = draw(st.sampled_from(["", " WHERE f", " WHERE n IS NULL OR n > 1"]))
        return f"SELECT u, k, x * 2 - 1 AS x, LEAST(n, 4)::INTEGER AS n, NOT f AS f FROM ({left}) AS {names}{where}"
    if shape == "public":
        kind = draw(st.sampled_from(["JOIN", "LEFT JOIN", "FULL JOIN"]))
        on = draw(st.sampled_from(["v.k = g.k", "v.k = g.k OR v.n = g.label", "v.n > g.label"]))
        return f"SELECT v.u, v.k, v.x, label AS n, v.f FROM ({left}) AS v {kind} g ON {on}"
    right = draw(sources(depth - 1))
    if shape == "set":
        word = draw(st.sampled_from(["UNION", "INTERSECT", "EXCEPT"]))
        sides = (
            f"SELECT u, k, x::DOUBLE AS x, n::INTEGER AS n, f FROM ({side}) AS v" for side in (left, right)
        )
        return f" {word} ".join(sides)
    if shape == "union":
        sides = (
            f"SELECT u, k, x::DOUBLE AS x, n::INTEGER AS n, f FROM ({side}) AS v" for side in (left, right)
        )
        return " UNION ALL ".join(sides)
    if shape == "in":
        word = draw(st.sampled_from(["IN", "NOT IN"]))
        return f"SELECT u, k, x, n, f FROM ({left}) AS v WHERE u {word} (SELECT u FROM ({right}) AS w)"
    if shape == "exists":
        word = draw(st.sampled_from(["EXISTS", "NOT EXISTS"]))
        return f"SELECT u, k, x, n, f FROM ({left}) AS v WHERE {word} (SELECT 1 FROM ({right}) AS w WHERE w.u = v.u AND w.n >= v.n)"
    if shape == "scalar":
        call = draw(st.sampled_from(["AVG(w.x)", "COUNT(*)", "MAX(w.x + 1)", "SUM(w.n)"]))
        return (
            f"SELECT u, k, (SELECT {call} FROM ({right}) AS w WHERE w.u = v.u) AS x, n, f FROM ({left}) AS v"
        )
    kind = draw(st.sampled_from(_KINDS))
    on = draw(st.sampled_from(["ON v.u = w.u", "ON v.u = w.u AND v.n <= w.n", "USING (u)"]))
    shown = "u" if "USING" in on else "w.u" if kind == "RIGHT JOIN" else "v.u"
    other = "v" if kind in ("SEMI JOIN", "ANTI JOIN") else "w"
    items = f"SELECT {shown} AS u, v.k, {other}.x, {other}.n, v.f"
    if shape == "cte":
        return f"WITH c AS ({left}) {items} FROM c AS v {kind} c AS w {on}"
    return f"{items} FROM ({left}) AS v {kind} ({right}) AS w {on}"


# -- statements -------------------------------------------------------------------------------------------------

_CASE = "CASE WHEN f THEN n ELSE 2 END"
_NUMBERS = ["x", "n", "x * 2 - 1", "LEAST(x, n)", "COALESCE(n, 3)", "ABS(x)", _CASE, "n % 4", "f::INTEGER"]
_NUMBERS += ["SQRT(n)", "LN(n + 1)", "POWER(x, 2)"]
_CONDITIONS = ["f", "x > 1", "n IS NULL OR k = 'a'", "NOT f AND n = 1", "x <> x"]
LIMITS = [(0, 4), (-3, 2), (2, 3), (-5, -1), (0, 0)]
_KEYS = ["", "", "k", "f", "n", "k, f", "n % 2", "x", "FLOOR(x)", "WIDTH_BUCKET(x, -2, 5, 3)", "k = 'a'"]
_KEYS += ["CASE WHEN n > 3 THEN 'x' ELSE 'y' END"]
_KEYS += ["ROLLUP (k, f)", "CUBE (f, n % 2)", "GROUPING SETS ((k), (f, k), ())"]
_OPTIONS = [
    "max_groups_contributed = 1", "max_groups_contributed = 2", "max_rows_contributed = 3", "", "max_rows_contributed = AUTO",
    "max_groups_contributed = AUTO", "max_rows_contributed = AUTO, max_groups_contributed = AUTO",
]  # fmt: skip


_AUTO = "contribution_bounds_per_row => AUTO"


@st.composite
def aggregates(draw: Draw, row_level: bool) -> str:
    low, high = draw(st.sampled_from(LIMITS))
    per = f"contribution_bounds_per_{draw(st.sampled_from(['group', 'row']))} => ({low}, {high})"
    number = draw(st.sampled_from(_NUMBERS))
    bounded = f"contribution_bounds_per_row => ({low}, {high})"
    kind = draw(
        st.sampled_from(
            ["COUNT(*)", "COUNT(x)", "COUNT(DISTINCT k)", "COUNT_IF(x > 1)", "COUNT(*)" if row_level else "COUNT(DISTINCT u)",
             f"COUNT(*, contribution_bounds_per_group => ({low}, {high}))", f"SUM({number}, {per})", f"AVG({number}, {per})",
             f"VAR_POP({number}, {bounded})", f"MEDIAN({number}, {bounded})", f"SUM({number})", f"AVG({number})",
             f"CORR({number}, x, {bounded})", f"COVAR_POP(x, {number})", f"REGR_SLOPE(n, {number}, {bounded})", "SUM(f)",
             "HISTOGRAM(f)", "HISTOGRAM(n, [1, 3])", "HISTOGRAM_EXACT(k, ['a', 'b'])", "MODE(f)", "MODE(n)", "MODE(k)",
             f"SUM({number}, {_AUTO})", f"AVG({number}, {_AUTO})", f"STDDEV({number}, {_AUTO})", f"MEDIAN({number}, {_AUTO})",
             f"SUM(DISTINCT {number}, {bounded})", "SUM(DISTINCT n)", f"APPROX_QUANTILES({number}, 3, {bounded})",
             f"ANON_SUM({number} CLAMPED BETWEEN {low} AND {high})", f"ANON_VAR_POP(x CLAMPED BETWEEN {low} AND {high})"]
        )
    )  # fmt: skip
    return kind + draw(st.sampled_from(["", "", f" FILTER (WHERE {draw(st.sampled_from(_CONDITIONS))})"]))


@st.composite
def statements(draw: Draw, depth: int) -> str:
    row_level = draw(st.integers(0, 7)) == 0
    parted = not row_level and draw(st.integers(0, 7)) == 0
    source = (
        draw(st.sampled_from(_ALONE if row_level else _PARTED))
        if row_level or parted
        else draw(sources(depth))
    )
    parts = [draw(aggregates(row_level)) for _ in range(draw(st.integers(1, 3)))]
    keys = draw(st.sampled_from(_KEYS))
    grouped = f" GROUP BY {keys}" if keys else ""
    shown = f"{keys}, " if keys and "(" not in keys else ""
    options = [
        "epsilon = 1",
        draw(st.sampled_from(_OPTIONS)),
        draw(st.sampled_from(["", "noise = GAUSSIAN, delta = 1e-7"])),
        draw(st.sampled_from(["", "", "", "consistent = TRUE"])),
    ]
    mode = f"WITH DP OPTIONS ({', '.join(option for option in options if option)})"
    where = draw(st.sampled_from(["", "", " WHERE f", " WHERE x > 1 OR n IS NULL"]))
    shape = "" if row_level else draw(st.sampled_from(["", "", "", "", "", "", "pivot", "beside", "stable"]))
    if shape == "pivot":
        group = draw(st.sampled_from([" GROUP BY k", " GROUP BY f", " GROUP BY k, f"]))
        on = "f IN (TRUE, NULL)" if "f" not in group else "n IN (1, 3, 9)"
        return f"SELECT {mode} * FROM ({source}) AS z PIVOT ({', '.join(parts)} FOR {on}{group})"
    if shape == "stable":
        low, high = draw(st.sampled_from(LIMITS))
        bounded = f"{draw(st.sampled_from(_NUMBERS))} CLAMPED BETWEEN {low} AND {high}"
        call = draw(
            st.sampled_from(
                [f"IQR({bounded})", "IQR(n) FILTER (WHERE f)", "TRIMMED_MEAN(x, 0.2)", f"MEDIAN({bounded})"]
            )
        )
        kept = ", ".join(option for option in options[:2] if option)
        by, shown = draw(st.sampled_from([("", ""), (" GROUP BY k", "k, ")]))
        return f"SELECT WITH STABLE OPTIONS ({kept}) {shown}{call} AS c FROM ({source}) AS z{where}{by}"
    if shape == "beside":
        on = draw(st.sampled_from(["z.k = g.k", "z.n > label", "z.k = g.k AND f"]))
        return f"SELECT (SELECT {mode} {parts[0]} FROM ({source}) AS z WHERE {on}) AS c FROM g"
    text = ", ".join(f"{part} AS c{place}" for place, part in enumerate(parts))
    return f"SELECT {mode} {shown}{text} FROM ({source}) AS z{where}{grouped}"
