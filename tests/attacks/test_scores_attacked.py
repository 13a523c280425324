"""Statistics written to get around the derived sensitivity: each is refused, or moves by no more than is derived.

A unit is taken out of a table whose values lie at, within and far beyond their declared bounds; the candidates hold NULLs, NaN,
infinities, negative numbers and wide integers. What moves is compared in integer steps, so nothing is rounded away.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.binding.plan import Plan
from dpsql.binding.selection import utility
from dpsql.binding.values.sql_types import Typed
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import SALT
from dpsql.mechanisms.per_group import Integers
from dpsql.mechanisms.selection import utility_forms
from dpsql.mechanisms.selection.exponential import ExponentialChoice
from dpsql.noise.entropy import Entropy
from tests.support import inside

POLICY = """
[budget]
epsilon = 1e7
delta = 0.5
accountant = "basic"
default_epsilon = 1e6
default_delta = 1e-6
[tables.t]
privacy_unit = "unit"
max_rows = 2
[tables.t.columns]
x = { bounds = [-2, 5] }
y = { bounds = [0, 9] }
w = { bounds = [-3, 3] }
d = { bounds = [-1.5, 2] }
m = { bounds = [0, 100] }
h = { bounds = [0, 1000] }
[tables.s]
privacy_unit = "unit"
max_rows = 2
[tables.s.columns]
z = { bounds = [0, 3] }
[tables.c]
public = true
[tables.pub]
public = true
"""
SCHEMA = """
CREATE TABLE t (
    unit INTEGER, x INTEGER, y INTEGER, w INTEGER, d DOUBLE, m DECIMAL(10, 2), h HUGEINT, day DATE, s VARCHAR, f BOOLEAN
);
CREATE TABLE s (unit INTEGER, z INTEGER);
CREATE TABLE pub AS FROM (VALUES ('a', 1), ('a', 2), ('b', 3)) AS v(s, lab);
CREATE TABLE c AS FROM (VALUES
    (0, 1, 0, 3, 2, 1.5::DOUBLE, 2.25::DECIMAL(9, 2), 5::HUGEINT, DATE '2024-01-01', 'a', TRUE),
    (1, -3, 1, 2, 4, 'inf'::DOUBLE, -1.10::DECIMAL(9, 2), -7::HUGEINT, DATE '2024-02-01', 'b', FALSE),
    (2, NULL, NULL, 4, NULL, 'nan'::DOUBLE, NULL, 12::HUGEINT, NULL, NULL, NULL),
    (3, 2, 3, 1, 9, -0.3::DOUBLE, 0.00::DECIMAL(9, 2), 0::HUGEINT, DATE '1999-12-31', '', TRUE),
    (4, 0, 2, 2, 0, '-inf'::DOUBLE, 3.33::DECIMAL(9, 2), 3::HUGEINT, DATE '2024-01-01', 'a', FALSE)
) AS v(id, k, lo, hi, b, g, q, e, cday, name, ok);
"""
VALUES = {
    "x": ("NULL", "-9", "-2", "0", "1", "2", "3", "5", "99"), "y": ("NULL", "0", "1", "4", "9", "50"),
    "w": ("NULL", "-3", "-1", "0", "3", "7"), "d": ("NULL", "'nan'", "'inf'", "1e300", "-0.3", "1.5", "0.1", "-7"),
    "m": ("NULL", "0.01", "99.99", "5.55", "250"), "h": ("NULL", "0", "3", str(2**127 - 1), "7", "1000"),
    "day": ("NULL", "'2024-01-01'", "'2023-06-01'"), "s": ("NULL", "'a'", "'b'", "'7'", "''"),
    "f": ("NULL", "TRUE", "FALSE"),
}  # fmt: skip
UNITS = (1, 2, 3)

ANSWERED = """
COUNT(*)
g * COUNT(*)
LEAST(g, 1000) * COUNT(*)
GREATEST(g, -1000) * COUNT(*)
LEAST(k, 1000) * COUNT(*)
COALESCE(k, 1000) * COUNT(*)
COALESCE(g, 1000) * COUNT(*)
CASE WHEN g > 100 THEN 5000 ELSE g END * COUNT(*)
(CASE WHEN k IS NULL THEN 77 ELSE k END) * COUNT(*)
NULLIF(k, 1) * COUNT(*)
ABS(k) * COUNT(*)
k * k * COUNT(*)
k * k * k * COUNT(*)
(k - hi) * COUNT(*)
-k * COUNT(*)
q * COUNT(*)
q * q * COUNT(*)
q * COUNT(*) FILTER (WHERE x > k) - k * COUNT(*)
e * COUNT(*)
e * e * e * COUNT(*)
g * g * COUNT(*)
k % 3 * COUNT(*)
COUNT(*) / (b + 1)
COUNT(*) / hi
SUM(x)
SUM(x) FILTER (WHERE x > k)
SUM(w)
SUM(d)
SUM(m)
SUM(h)
SUM(x + y)
SUM(x * k)
SUM(x * g)
SUM(k)
SUM(g)
SUM(q)
SUM(e)
SUM(e * e * e)
SUM(1)
SUM(1000)
SUM(x - k)
SUM(ABS(x - k))
SUM(-ABS(x - k))
SUM((x - k) * (x - k))
SUM(CASE WHEN x > k THEN y ELSE w END)
SUM(CASE WHEN x > k THEN 1000 END)
SUM(COALESCE(x, 1000))
SUM(COALESCE(x, k))
SUM(LEAST(x, 1000))
SUM(LEAST(x, k))
SUM(LEAST(k, x))
SUM(LEAST(d, g))
SUM(LEAST(y, g))
SUM(LEAST(m, q))
SUM(LEAST(h, e))
SUM(LEAST(h, b))
SUM(LEAST(GREATEST(x, lo), hi))
SUM(GREATEST(LEAST(x, hi), lo))
SUM(LEAST(GREATEST(d, -1), g))
SUM(LEAST(x, k)) - SUM(LEAST(x, k + 1))
SUM(LEAST(y, b)) - SUM(LEAST(y, b + 1))
SUM(LEAST(y, b)) - SUM(LEAST(y, b - 3))
SUM(LEAST(d, g)) - SUM(LEAST(d, g + 0.1))
SUM(LEAST(m, q)) - SUM(LEAST(m, q + 0.01))
SUM(LEAST(m, q)) - SUM(LEAST(m, q + 1))
SUM(LEAST(y, b)) - SUM(LEAST(y, b * 2))
SUM(LEAST(y, b)) - 2 * SUM(LEAST(y, b + 1))
k * SUM(LEAST(y, b)) - k * SUM(LEAST(y, b + 1))
SUM(LEAST(y, b)) - SUM(LEAST(y, b + 1)) - SUM(LEAST(y, b + 1))
SUM(LEAST(y, b)) FILTER (WHERE x > 0) - SUM(LEAST(y, b + 1))
SUM(LEAST(y, b)) + SUM(LEAST(y, b + 1))
SUM(LEAST(x, y))
SUM(LEAST(x, y, k))
SUM(LEAST(x, k, hi))
SUM(LEAST(LEAST(x, k), hi))
SUM(x, contribution_bounds_per_row => (0, 1))
COUNT(x)
COUNT(k)
COUNT(NULL)
COUNT(x > k)
COUNT_IF(x > k)
COUNT_IF(NULL)
COUNT(*) FILTER (WHERE x > k OR y < hi)
COUNT(*) FILTER (WHERE NOT (x > k))
COUNT(*) FILTER (WHERE NOT (x > k AND y < b))
COUNT(*) FILTER (WHERE x > k) - COUNT(*) FILTER (WHERE x <= k)
COUNT(*) FILTER (WHERE x / (x - k) > 1)
COUNT(*) FILTER (WHERE x % k = 0)
COUNT(*) FILTER (WHERE s = name)
COUNT(*) FILTER (WHERE CAST(s AS INTEGER) = k)
COUNT(*) FILTER (WHERE s > name)
COUNT(*) FILTER (WHERE s BETWEEN name AND 'b')
COUNT(*) FILTER (WHERE day = cday)
COUNT(*) FILTER (WHERE day >= cday)
COUNT(*) FILTER (WHERE day - cday > 3)
COUNT(*) FILTER (WHERE day BETWEEN cday AND cday + 30)
COUNT(*) FILTER (WHERE f = ok)
COUNT(*) FILTER (WHERE f AND ok)
COUNT(*) FILTER (WHERE f IS NOT DISTINCT FROM ok)
COUNT(*) FILTER (WHERE d >= g)
COUNT(*) FILTER (WHERE d BETWEEN g AND q)
COUNT(*) FILTER (WHERE d = g)
COUNT(*) FILTER (WHERE m = q)
COUNT(*) FILTER (WHERE h >= e)
COUNT(*) FILTER (WHERE h = e)
COUNT(*) FILTER (WHERE h = g)
COUNT(*) FILTER (WHERE x IN (k, lo, hi))
COUNT(*) FILTER (WHERE x NOT IN (k, lo))
k + COUNT(*)
k * hi + COUNT(*)
COUNT(*) + COUNT(*) + COUNT(*)
COUNT(*) - COUNT(*)
2 * (COUNT(*) + 3 * (COUNT(*) - SUM(w)))
-(-(COUNT(*) - k * SUM(x)))
(COUNT(*) - SUM(x)) * k / hi
(COUNT(*) * k) * (hi * 2)
COUNT(*) FILTER (WHERE unit = k)
COUNT(*) FILTER (WHERE unit = id)
CAST(k > 1 AS INTEGER) * COUNT(*)
CAST(k AS DECIMAL(18,6)) * COUNT(*)
CAST(q AS INTEGER) * COUNT(*)
CAST(g AS INTEGER) * COUNT(*)
CAST(g AS FLOAT) * COUNT(*)
CAST(b AS TINYINT) * COUNT(*)
0.1 * COUNT(*)
0.1::DOUBLE * SUM(d)
1e-300 * COUNT(*)
g * SUM(d)
q * SUM(d) + 0.333333333333333 * SUM(m) + 1e-3::DOUBLE * SUM(h)
GREATEST(k, hi, b) * COUNT(*)
LEAST(k, hi, b) * SUM(x)
LEAST(GREATEST(k, 0), 1) * COUNT(*)
COUNT(*) * 0
0 * COUNT(*)
CASE WHEN k > 0 THEN k ELSE -hi END * SUM(x)
COUNT(*) FILTER (WHERE x > k) * (CASE WHEN hi > 2 THEN 1 ELSE -1 END)
ROUND(g, 1) * COUNT(*)
FLOOR(q) * COUNT(*)
CEIL(g) * SUM(w)
SIGN(k) * SUM(w)
SIN(g) * COUNT(*)
ATAN(g) * COUNT(*)
TANH(g) * COUNT(*)
1 / (3 - g * 0.1) * COUNT(*)
(CASE WHEN isnan(g) THEN 1000 ELSE g END) * COUNT(*)
(CASE WHEN isinf(g) THEN 1000 ELSE 1 END) * COUNT(*)
GREATEST(LEAST(g, 1e6), -1e6) * COUNT(*)
LEAST(CASE WHEN g > 2 THEN 7 ELSE g END, 4) * COUNT(*)
COALESCE(NULLIF(k, 2), 500) * COUNT(*)
COALESCE(CAST(g AS INTEGER), 40) * COUNT(*)
LEAST(CAST(g AS INTEGER), 40) * COUNT(*)
CAST(k AS TINYINT) * CAST(k AS TINYINT) * CAST(b AS TINYINT) * CAST(b AS TINYINT) * CAST(b AS TINYINT) * COUNT(*)
CAST(b AS UTINYINT) * COUNT(*)
(CAST(b AS UTINYINT) - CAST(hi AS UTINYINT)) * COUNT(*)
- CAST(b AS UTINYINT) * COUNT(*)
SUM(x, contribution_bounds_per_row => (0, 1)) FILTER (WHERE x > k)
SUM(unit, contribution_bounds_per_row => (0, 1))
SUM(LEAST(unit, k), contribution_bounds_per_row => (0, 4))
LENGTH(name) + COUNT(*)
SUM(LEAST(w, k))
SUM(LEAST(w, g)) - SUM(LEAST(w, g + 2))
SUM(LEAST(h, e)) - SUM(LEAST(h, e + 1))
EXP(g) * COUNT(*)
SQRT(b) * COUNT(*)
POWER(k, 2) * COUNT(*)
POWER(2, b) * COUNT(*)
SUM((x - k) ** 2)
1/(1+EXP(-g)) * COUNT(*)
k ^ 3 * COUNT(*)
ABS(COUNT(*) - k)
GREATEST(COUNT(*), k)
LEAST(COUNT(*), k)
COALESCE(SUM(x), 0)
-ABS(COUNT(*) FILTER (WHERE x < k) - COUNT(*) FILTER (WHERE x >= k))
-ABS(COUNT(*) FILTER (WHERE x < k) + COUNT(*) FILTER (WHERE x >= k))
COUNT(*) FILTER (WHERE x BETWEEN lo AND hi) + COUNT(*) FILTER (WHERE x > hi) + COUNT(*) FILTER (WHERE x < lo)
COUNT(*) FILTER (WHERE s = 'a') + COUNT(*) FILTER (WHERE s = 'b')
COUNT(*) FILTER (WHERE s = name) + COUNT(*) FILTER (WHERE s <> name)
COUNT(*) FILTER (WHERE d < g) + COUNT(*) FILTER (WHERE d >= g)
COUNT(*) FILTER (WHERE f) + COUNT(*) FILTER (WHERE NOT f)
COUNT(*) FILTER (WHERE x < 1) + COUNT(*) FILTER (WHERE x >= 1) - SUM(w) FILTER (WHERE x = 2)
-ABS(COUNT_IF(x < k AND f) - COUNT_IF(x < k AND NOT f)) - ABS(COUNT_IF(x >= k AND f) - COUNT_IF(x >= k AND NOT f))
-ABS(SUM(w) FILTER (WHERE x < k) - SUM(w) FILTER (WHERE x >= k))
GREATEST(COUNT(*) FILTER (WHERE x < k), COUNT(*) FILTER (WHERE x >= k))
LEAST(COUNT(*) FILTER (WHERE x > k), SUM(y), 3)
GREATEST(SUM(w), -SUM(w), COUNT(*))
k * ABS(COUNT(*) - SUM(w))
-k * ABS(COUNT(*) - 3) + hi * LEAST(SUM(x), SUM(y))
q * GREATEST(SUM(x), g) - ABS(g * SUM(d) - q * SUM(m))
ABS(ABS(COUNT(*) - SUM(x)) - ABS(SUM(w) - k))
0.5 * ABS(COUNT(*) - SUM(d) / 3)
ABS(SUM(LEAST(y, b)) - SUM(LEAST(y, b + 1)))
ABS(SUM(LEAST(y, b))) - ABS(SUM(LEAST(y, b + 1)))
SUM(LEAST(y, b)) - ABS(SUM(LEAST(y, b + 1)))
GREATEST(SUM(LEAST(w, k)), COUNT(*) FILTER (WHERE x > k AND y < b))
LEAST(COUNT(*) FILTER (WHERE x > lo AND x < hi), COUNT(*) FILTER (WHERE y > lo AND y < b)) - COUNT(*)
(COUNT(*) - ABS(SUM(x) - 2)) * (k - hi)
ABS(COUNT(*) - SUM(w)) / hi
GREATEST(k * COUNT(*), b * SUM(x), -3 * SUM(w))
""".strip().splitlines()

REFUSED = """
COUNT(*) + x
x * COUNT(*)
COUNT(*) / x
e * 10000000000000000000000000000000000 * COUNT(*)
e * 12345678901234567890123456789012345678 * COUNT(*)
1e300 * COUNT(*)
1e30 * COUNT(*)
LN(b) * COUNT(*)
COUNT(*) / b
COUNT(*) / g
COUNT(*) / q
COUNT(*) // hi
COUNT(*) % 2
1 / COUNT(*)
k / COUNT(*)
COUNT(*) * COUNT(*)
COUNT(*) * SUM(x)
SUM(x) / COUNT(*)
AVG(x)
MAX(x)
MIN(x) * k
CASE WHEN COUNT(*) > 3 THEN 1 ELSE 0 END
CASE WHEN k > 1 THEN COUNT(*) ELSE SUM(x) END
COUNT(*) > 3
CAST(COUNT(*) AS DOUBLE)
CAST(COUNT(*) AS VARCHAR)
COUNT(*)::BIGINT * 2
ROUND(COUNT(*))
COALESCE(SUM(x), 100)
SQRT(COUNT(*))
ABS(COUNT(*)) * ABS(SUM(x))
LEAST(COUNT(*), 3) / COUNT(*)
ABS(x)
GREATEST(COUNT(*), x)
LEAST(COUNT(DISTINCT x), COUNT(*))
ABS(AVG(x))
ABS(MAX(x))
COUNT(*) ** 2
COUNT(DISTINCT x)
SUM(DISTINCT x)
SUM(x) OVER ()
COUNT(*) FILTER (WHERE COUNT(*) > 2)
SUM(NULL)
SUM(x, contribution_bounds_per_row => AUTO)
SUM(x, epsilon => 1)
COUNT(*, epsilon => 1)
COUNT(x, y)
COUNT_IF(x)
COUNT(*) FILTER (WHERE s = k)
COUNT(*) FILTER (WHERE s LIKE name)
COUNT(*) FILTER (WHERE x = ANY (SELECT z FROM s))
COUNT(*) FILTER (WHERE x IN (SELECT z FROM s))
COUNT(*) FILTER (WHERE (SELECT COUNT(*) FROM s) > k)
COUNT(*) FILTER (WHERE EXISTS (SELECT 1 FROM s WHERE s.unit = t.unit AND z > k))
COUNT(*) FILTER (WHERE x > (SELECT MAX(lab) FROM pub))
COUNT(*) + (SELECT COUNT(*) FROM s)
(SELECT MAX(z) FROM s) * COUNT(*)
(SELECT MAX(lab) FROM pub) * COUNT(*)
random() * COUNT(*)
COUNT(*) FILTER (WHERE random() < 0.5)
unit * COUNT(*)
SUM(unit)
LENGTH(name) * COUNT(*)
CAST(name AS INTEGER) * COUNT(*)
TRY_CAST(name AS INTEGER) * COUNT(*)
(k > 1) * COUNT(*)
ok * COUNT(*)
k * NULL * COUNT(*)
NULL * COUNT(*)
NULL + COUNT(*)
year(cday) * COUNT(*)
EXTRACT(epoch FROM cday) * COUNT(*)
(cday - DATE '2020-01-01') * COUNT(*)
hash(name) * COUNT(*)
(3 - 1 / g) * COUNT(*)
COALESCE(TRY_CAST(name AS INTEGER), 9) * COUNT(*)
CAST(CAST(g AS VARCHAR) AS DOUBLE) * COUNT(*)
(k << 40) * COUNT(*)
(k & 7) * COUNT(*)
xor(k, 7) * COUNT(*)
~k * COUNT(*)
e * e * e * e * e * e * e * e * e * e * e * e * e * e * e * e * e * e * e * e * COUNT(*)
g * 1e10 * SUM(d) + q * 1e-10 * SUM(m) + 0.3333333 * SUM(h)
""".strip().splitlines()

SOURCES = [
    "t JOIN s USING (unit)",
    "t JOIN s ON t.unit = s.unit AND t.x > s.z",
    "t, s WHERE t.unit = s.unit",
    "s FULL JOIN t USING (unit)",
    "t AS one JOIN t AS two USING (unit)",
    "t JOIN pub USING (s)",
    "t LEFT JOIN pub USING (s)",
    "t SEMI JOIN pub USING (s)",
    "t, pub",
    "t JOIN (SELECT s, MAX(lab) AS lab FROM pub GROUP BY s) USING (s)",
    "t WHERE x > 1",
    "t WHERE x IN (SELECT lab FROM pub)",
    "(SELECT unit, x * 2 AS x2, s FROM t) AS q",
    "(SELECT * FROM t UNION ALL SELECT * FROM t) AS u",
    "(SELECT unit, COUNT(*) AS n FROM t GROUP BY unit) AS u",
]
NO_SOURCES = [
    "t CROSS JOIN s",
    "t JOIN s ON t.x = s.z",
    "t POSITIONAL JOIN s",
    "t WHERE x > k",
    "t WHERE x IN (SELECT z FROM s)",
    "t TABLESAMPLE 50%",
    "t ORDER BY x LIMIT 2",
    "(SELECT DISTINCT x FROM t) AS u",
    "(SELECT x, COUNT(*) AS n FROM t GROUP BY x) AS u",
]
CANDIDATES = [
    "VALUES (1.0), (-3.5)",
    "VALUES (CAST(5 AS UBIGINT)), (CAST(7 AS UBIGINT))",
    "VALUES (CAST(1.5 AS FLOAT)), (CAST('nan' AS FLOAT))",
    "VALUES (CAST(0.5 AS DECIMAL(38, 38))), (CAST(0.25 AS DECIMAL(38, 38)))",
    "SELECT unnest([1, 2, NULL])",
    "SELECT lab FROM pub",
    "SELECT epoch(now()) / 1e9",
    "SELECT random() * 10 FROM range(3)",  # read when the statement is bound, and drawn anew when it runs
    "SELECT CAST(random() * 1000 AS INTEGER) FROM range(3)",
    "SELECT CAST(random() * 1000 AS DECIMAL(9, 2)) - 500 FROM range(3)",
]
LARGE = [
    "VALUES (1e300), (1.0)",
    f"VALUES (CAST({2**64 - 1} AS UBIGINT)), (0)",
    f"VALUES (CAST({10**37} AS HUGEINT)), (1)",
    f"VALUES (CAST({10**38 - 1} AS DECIMAL(38, 0)))",
    "VALUES (CAST(3e38 AS FLOAT))",
]
WITH_V = [
    "v * COUNT(*)",
    "v * COUNT(*) - SUM(x)",
    "v * v * SUM(d)",
    "SUM(LEAST(y, v))",
    "SUM(LEAST(w, v)) - SUM(LEAST(w, v + 1))",
]


@pytest.fixture(scope="module")
def session() -> Iterator[dpsql.Session]:
    with duckdb.connect() as con:
        con.execute(SCHEMA)
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
            session.con = con  # type: ignore[attr-defined]
            yield session


def fill(con: duckdb.DuckDBPyConnection, seed: int) -> list[str]:
    """Schemas with all of three units of up to three rows each, where two count, and without each of them."""
    names = [f"d{seed}_{gone}" for gone in (0, *UNITS)]
    if con.sql(f"FROM duckdb_schemas() WHERE schema_name = '{names[0]}'").fetchall():
        return names
    dice = random.Random(seed)
    rows = [
        (unit, f"({unit}, {', '.join(map(dice.choice, VALUES.values()))})") for unit in (1, 1, 1, 2, 2, 3)
    ]  # type: ignore[arg-type]
    more = [(unit, f"({unit}, {dice.choice(('NULL', '0', '2', '3', '9'))})") for unit in (1, 1, 2, 3, 3, 3)]
    for gone, schema in enumerate(names):
        con.execute(f"CREATE SCHEMA {schema}")
        for name, all_rows in (("t", rows), ("s", more)):
            kept = ", ".join(row for unit, row in all_rows if unit != gone)
            con.execute(
                f"CREATE TABLE {schema}.{name} AS FROM main.{name} LIMIT 0; INSERT INTO {schema}.{name} VALUES {kept}"
            )
    return names


class Seen(Exception):
    """The scores that the mechanism is about to choose from."""


def seen(self: ExponentialChoice, scores: Integers, own: Integers | None, entropy: Entropy) -> list[int]:
    held = [None] * len(scores) if own is None else [max(1, int(v)) for v in own]
    raise Seen(list(zip(map(int, scores), held, strict=True)))


def steps(con: duckdb.DuckDBPyConnection, plan: Plan, schema: str) -> list[tuple[int, int | None]]:
    """The exact score of every candidate, and its own sensitivity. The same rows of a unit are kept each time."""

    def read(sql: str) -> pa.Table:
        for name in "ts":
            sql = sql.replace(f'"memory"."main"."{name}"', f"{schema}.{name}")
        return con.sql(sql.replace(SALT, "12345")).to_arrow_table()

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Seen) as caught:
        patch.setattr(ExponentialChoice, "choose", seen)
        plan.blocks[-1].operator.release(read, Entropy(bytes))
    return caught.value.args[0]  # type: ignore[no-any-return]


def beyond(session: dpsql.Session, text: str, tables: int, meanwhile: str = "") -> list[str]:
    """List moves beyond the derived sensitivity, or both ways where one is claimed. Raises where a statement is refused."""
    con: duckdb.DuckDBPyConnection = session.con  # type: ignore[attr-defined]
    plan = inside.bind(session, text)
    if meanwhile:
        con.execute(meanwhile)
    for item in plan.blocks[-1].inputs:
        con.execute(f"CREATE OR REPLACE TEMP TABLE {item.name} AS {item.sql}")
    operator = plan.blocks[-1].operator
    assert isinstance(operator, ExponentialChoice)
    found, ways = [], set()
    for seed in range(tables):
        whole, *others = (steps(con, plan, schema) for schema in fill(con, seed))
        for less in others:
            for i, ((score, own), (other, _)) in enumerate(zip(whole, less, strict=True)):
                moved = score - other
                ways |= {moved > 0} if moved else set()
                if abs(moved) > operator.sensitivity or (own is not None and abs(moved) > own):
                    found.append(f"candidate {i} moves by {moved} of {operator.sensitivity} ({own})")
    if operator.monotone and len(ways) > 1:
        found.append("both ways")
    return found


TABLES = [1, pytest.param(40, marks=pytest.mark.stochastic)]


@pytest.mark.parametrize("tables", TABLES)
@pytest.mark.parametrize("given", ANSWERED)
def test_a_unit_moves_it_by_no_more_than_is_derived(session: dpsql.Session, given: str, tables: int) -> None:
    assert beyond(session, f"SELECT EXPMECH({given}) OVER c FROM t", tables) == []


@pytest.mark.parametrize("given", REFUSED)
def test_refused_before_anything_is_read(session: dpsql.Session, given: str) -> None:
    call = f"EXPMECH({given})" if len(given) % 2 else f"ABOVE_THRESHOLD({given}, 1)"
    with pytest.raises((dpsql.PrivacyError, dpsql.BindError)):
        session.sql(f"SELECT {call} OVER c FROM t")
    assert float(session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"]) == 0


@pytest.mark.parametrize("tables", TABLES)
@pytest.mark.parametrize("source", SOURCES)
def test_whatever_the_rows_come_from(session: dpsql.Session, source: str, tables: int) -> None:
    assert beyond(session, f"SELECT EXPMECH(k * COUNT(*)) OVER c FROM {source}", tables) == []


@pytest.mark.parametrize("source", NO_SOURCES)
def test_rows_that_are_refused(session: dpsql.Session, source: str) -> None:
    with pytest.raises((dpsql.PrivacyError, dpsql.BindError)):
        session.sql(f"SELECT EXPMECH(COUNT(*)) OVER c FROM {source}")


@pytest.mark.parametrize("tables", TABLES)
@pytest.mark.parametrize("candidates", CANDIDATES)
def test_whatever_the_candidates_come_from(session: dpsql.Session, candidates: str, tables: int) -> None:
    for given in WITH_V:
        text = f"WITH p(v) AS ({candidates}) SELECT EXPMECH({given}) OVER p FROM t"
        assert beyond(session, text, tables) == [], given


@pytest.mark.parametrize("candidates", LARGE)
def test_sums_that_38_digits_may_not_hold(session: dpsql.Session, candidates: str) -> None:
    """One that overflows for many rows only would tell how many there are."""
    with pytest.raises(dpsql.PrivacyError, match="too large"):
        session.sql(f"WITH p(v) AS ({candidates}) SELECT EXPMECH(v * COUNT(*)) OVER p FROM t")
    beside = f"WITH p(v) AS ({candidates}) SELECT EXPMECH(v + COUNT(*)) OVER p FROM t"
    assert beyond(session, beside, 1) == []  # what is added moves nothing, and is held to 64 bits


def test_a_public_table_that_changes_after_its_bounds_were_read(session: dpsql.Session) -> None:
    for given in ("lab * COUNT(*)", "SUM(LEAST(y, lab))", "COUNT(*) - lab * SUM(x)", "SUM(x * lab)"):
        session.con.execute("UPDATE pub SET lab = lab % 10")  # type: ignore[attr-defined]
        text = f"SELECT EXPMECH({given}) OVER pub FROM t"
        assert beyond(session, text, 2, "UPDATE pub SET lab = lab + 1000 * (lab - 2)") == [], given
    session.con.execute("UPDATE pub SET lab = ((lab % 10) + 10) % 10")  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Loose(utility.Factor):
    """A factor that is not held to the range that was read."""

    read: int = 0

    @property
    def range(self) -> tuple[int, int]:
        return -self.read, self.read


held_factor_of = utility.factor_of


def loose(typed: Typed, span: tuple[int, int] | None) -> utility.Factor:
    held = held_factor_of(typed, span)
    return Loose(typed, held.scale, -(10**9), 10**9, held.top)


@pytest.mark.parametrize(
    ("doctored", "text"),
    [
        ("factors as they come", "SELECT EXPMECH(lab * COUNT(*)) OVER pub FROM t"),
        ("half the factor", "SELECT EXPMECH(k * COUNT(*)) OVER c FROM t"),
        ("one direction", "SELECT EXPMECH(k * COUNT(*)) OVER c FROM t"),
        ("clips that are always near", "SELECT EXPMECH(SUM(LEAST(y, b)) - SUM(LEAST(y, b * 2))) OVER c FROM t"),
    ],
)  # fmt: skip
def test_the_check_notices(
    session: dpsql.Session, doctored: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile = "UPDATE pub SET lab = lab + 1000" if doctored == "factors as they come" else ""
    assert beyond(session, text, 8) == []
    if doctored == "factors as they come":
        monkeypatch.setattr(utility, "factor_of", loose)
    elif doctored == "half the factor":
        half = property(lambda self: (self.low // 2, self.high // 2))
        monkeypatch.setattr(utility.Factor, "range", half)
    elif doctored == "one direction":
        whole = utility.compute_movement
        monkeypatch.setattr(utility, "compute_movement", lambda *given: (0, max(map(abs, whole(*given)))))
    else:
        monkeypatch.setattr(
            utility,
            "_limit",
            lambda node, typed, steps: utility.Limit("b", utility.Fraction(0), True, (0, 1)),
        )
    found = beyond(session, text, 8, meanwhile)
    session.con.execute("UPDATE pub SET lab = lab % 1000")  # type: ignore[attr-defined]
    assert found, "the doctored statistic passed"


# -- random trees -----------------------------------------------------------------------------------------------------

COMPARISONS = [
    "x < k", "x >= k", "x > k", "x = k", "x BETWEEN lo AND hi", "x > hi", "y <= b", "y > b", "d < g", "d >= g", "m > q", "f",
    "NOT f", "s = 'a'", "s = 'b'", "s <> 'a'", "s = name", "x < 2", "x >= 2", "x > 4", "w <= 0", "f IS NULL",
]  # fmt: skip
SUMMED = ["x", "y", "w", "d", "LEAST(y, b)", "LEAST(y, b + 1)", "LEAST(x, k)", "ABS(x - k)"]
PUBLIC = ["k", "hi", "-2", "0.5", "g", "q", "(k - hi)", "3"]


def drawn(dice: random.Random, depth: int) -> str:
    """A random utility: a tree of sums, differences, multiples, ABS, GREATEST and LEAST."""
    kind = (
        dice.choice(("leaf", "leaf", "sum", "sum", "abs", "greatest", "least", "times", "public"))
        if depth
        else "leaf"
    )
    if kind == "leaf":
        found = dice.choice(("COUNT(*)", "COUNT(*)", f"SUM({dice.choice(SUMMED)})"))
        where = " AND ".join(dice.sample(COMPARISONS, dice.choice((0, 1, 1, 2))))
        return f"{found} FILTER (WHERE {where})" if where else found
    one = drawn(dice, depth - 1)
    other = drawn(dice, depth - 1)
    public = dice.choice(PUBLIC)
    return {
        "sum": f"({one} {dice.choice('+-')} {other})",
        "abs": f"ABS({one} - {other})",
        "greatest": f"GREATEST({one}, {other})",
        "least": f"LEAST({one}, {other}, {public})",
        "times": f"{public} * ({one})",
        "public": f"({one} - {public})",
    }[kind]


def search(session: dpsql.Session, first: int, cases: int) -> tuple[int, list[str]]:
    """Count the random trees that are answered, and list moves beyond what is derived; the second lock proves each."""
    answered, found = 0, []
    for number in range(first, first + cases):
        dice = random.Random(number)
        given = drawn(dice, 1 + number % 3)
        text = f"SELECT EXPMECH({given}) OVER c FROM t"
        try:
            plan = inside.bind(session, text)
        except dpsql.PrivacyError:
            continue  # too many steps for exact integers
        inside.check(session, plan)
        answered += 1
        found += [f"{given}: {fault}" for fault in beyond(session, text, 1 + number % 2)]
    return answered, found


def test_random_trees_move_by_no_more_than_is_derived(session: dpsql.Session) -> None:
    answered, found = search(session, 0, 25)
    assert found == []
    assert answered > 20


@pytest.mark.stochastic
@pytest.mark.parametrize("slice_", range(8))
def test_random_trees_at_length(session: dpsql.Session, slice_: int) -> None:
    answered, found = search(session, 1000 * (slice_ + 1), 150)
    assert found == []
    assert answered > 100


@pytest.mark.parametrize(
    ("doctored", "given"),
    [
        ("ABS is monotone", "ABS(COUNT(*) - SUM(y))"),
        ("the first of GREATEST", "GREATEST(COUNT(*), SUM(y))"),
        ("all are apart", "ABS(COUNT(*)) + COUNT(*) FILTER (WHERE y > 0)"),
    ],
)
def test_the_check_notices_wrong_rules(
    session: dpsql.Session, doctored: str, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"SELECT EXPMECH({given}) OVER c FROM t"
    assert beyond(session, text, 8) == []
    whole = utility_forms._move

    def wrong(form: utility_forms.FormNode, *more: Any) -> tuple[int, int]:
        if isinstance(form, utility_forms.Absolute) and doctored == "ABS is monotone":
            return 0, whole(form, *more)[1]
        if isinstance(form, utility_forms.Extreme) and doctored == "the first of GREATEST":
            return wrong(form.parts[0], *more)
        return whole(form, *more)

    monkeypatch.setattr(utility_forms, "_move", wrong)
    if doctored == "all are apart":
        monkeypatch.setattr(utility, "find_apart", lambda *given: ((0, 1),))
    assert beyond(session, text, 8), "the doctored rule passed"
