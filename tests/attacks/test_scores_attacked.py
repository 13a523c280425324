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
from dpsql.binding.modes import utility
from dpsql.binding.plan import Plan
from dpsql.binding.values.sql_types import Typed
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import SALT
from dpsql.mechanisms.per_group import Integers
from dpsql.mechanisms.selection import utilities
from dpsql.mechanisms.selection.exponential import ExponentialChoice
from dpsql.noise.entropy import Entropy
from tests.support import inside
from tests.support.case_files import read_part
from tests.support.fixtures import open_both

POLICY = """
budget = { epsilon = 1e7, delta = 0.5, accountant = "basic", default_epsilon = 1e6, default_delta = 1e-6 }
[tables]
t = { privacy_unit = "unit", max_rows = 2, columns = { x = { bounds = [-2, 5] }, y = { bounds = [0, 9] }, \
    w = { bounds = [-3, 3] }, d = { bounds = [-1.5, 2] }, m = { bounds = [0, 100] }, h = { bounds = [0, 1000] } } }
s = { privacy_unit = "unit", max_rows = 2, columns = { z = { bounds = [0, 3] } } }
c = { public = true }
pub = { public = true }
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

ANSWERED = read_part(__file__, "ANSWERED")

REFUSED = read_part(__file__, "REFUSED")

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
    with open_both(POLICY, SCHEMA) as (con, session):
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
    kinds = ("leaf", "leaf", "sum", "sum", "abs", "greatest", "least", "times", "public")
    kind = dice.choice(kinds) if depth else "leaf"
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
    whole = utilities._move

    def wrong(form: utilities.FormNode, *more: Any) -> tuple[int, int]:
        if isinstance(form, utilities.Absolute) and doctored == "ABS is monotone":
            return 0, whole(form, *more)[1]
        if isinstance(form, utilities.Extreme) and doctored == "the first of GREATEST":
            return wrong(form.parts[0], *more)
        return whole(form, *more)

    monkeypatch.setattr(utilities, "_move", wrong)
    if doctored == "all are apart":
        monkeypatch.setattr(utility, "find_apart", lambda *given: ((0, 1),))
    assert beyond(session, text, 8), "the doctored rule passed"
