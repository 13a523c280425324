"""What one privacy unit moves: exact queries of random statements, on random tables with and without a unit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small import open_small

import dpsql
from dpsql.errors import Error
from dpsql.mechanisms.additive import Aggregation, GaussianNoise
from dpsql.mechanisms.base import SALT
from dpsql.plan import Plan
from dpsql.sql.bind import bind
from dpsql.sql.parse import parse
from dpsql.sql.rewrite import Exact

Rows = list[tuple[str, ...]]
SMALL = tuple[duckdb.DuckDBPyConnection, dpsql.Session]
QUIET = settings(
    max_examples=500,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def small() -> Iterator[SMALL]:
    con, session = open_small()
    with con, session:
        yield con, session


# -- random tables ----------------------------------------------------------------------------------------------

doubles = st.sampled_from(
    [
        "NULL",
        "'nan'",
        "'inf'",
        "'-inf'",
        "-0.0",
        "0.3",
        "2.71828",
        "-9",
        "5",
        "40",
        "1e300",
        "-1e9",
        "32767.9",
        "1e-300",
    ]
)
_row = st.tuples(
    st.sampled_from(["1", "1", "2", "NULL"]),
    st.sampled_from(["'a'", "'b'", "'c'", "'z'", "NULL"]),
    st.sampled_from(["1", "2", "3", "NULL"]),
    doubles,
    st.sampled_from(["NULL", "-2147483648", "2147483647", "0", "3", "5"]),
    st.sampled_from(["NULL", "-9223372036854775808", "9223372036854775807", "4", "-1"]),
    st.sampled_from(["NULL", "-99999999.99", "99999999.99", "0.25", "1.99"]),
    st.sampled_from(["NULL", "TRUE", "FALSE"]),
)
rows = st.lists(_row, min_size=3, max_size=12)
others = st.lists(
    st.tuples(st.sampled_from(["1", "2", "3", "NULL"]), st.sampled_from(["NULL", "-7", "2", "9"])), max_size=6
)

# -- random statements ------------------------------------------------------------------------------------------

numbers = st.sampled_from(
    ["x", "n", "d", "x * 2 - 1", "LEAST(x, n)", "GREATEST(x, 0)", "COALESCE(n, 3)", "ABS(x)", "n + d", "x / 2", "-n",
     "CASE WHEN f THEN n ELSE 2 END", "ROUND(x)", "n * n", "NULLIF(n, 3)", "LEAST(b, 3) + n", "x::INTEGER",
     "LEAST(GREATEST(b, -4), 4)", "n % 4", "f::INTEGER", "SQRT(LEAST(GREATEST(x, 0), 4))"]
)  # fmt: skip
conditions = st.sampled_from(["f", "x > 1", "n IS NULL OR k = 'a'", "NOT f AND p = 1", "b > 0", "x <> x"])


LIMITS = ((0, 4), (-3, 2), (2, 3), (-5, -1), (0, 0))


@st.composite
def aggregates(draw: st.DrawFn) -> str:
    low, high = draw(st.sampled_from(LIMITS))
    per = f"contribution_bounds_per_{draw(st.sampled_from(['group', 'row']))} => ({low}, {high})"
    kind = draw(
        st.sampled_from(
            ["COUNT(*)", "COUNT(x)", "COUNT(DISTINCT unit)", f"COUNT(*, contribution_bounds_per_group => ({low}, {high}))",
             *(f"{name}({draw(numbers)})" for name in ("SUM", "AVG", "VAR_POP")),
             f"CORR({draw(numbers)}, {draw(numbers)})", f"COVAR_POP({draw(numbers)}, x)",
             *(f"{name}({draw(st.sampled_from('xndb'))}, {per})" for name in ("SUM", "AVG"))]
        )
    )  # fmt: skip
    return kind + draw(st.sampled_from(["", "", f" FILTER (WHERE {draw(conditions)})"]))


@st.composite
def statements(draw: st.DrawFn) -> str:
    source = draw(
        st.sampled_from(
            ["t", "t", "r", "r", "(SELECT * FROM t WHERE x < 30 OR x IS NULL) AS t", "t JOIN s USING (unit)",
             "t RIGHT JOIN g USING (k)", "(SELECT * FROM t UNION ALL SELECT * FROM t WHERE f) AS t",
             "t LEFT JOIN s ON t.unit = s.unit", "t JOIN g ON t.k = g.k OR label = 1"]
        )
    )  # fmt: skip
    row_level = source == "r"
    parts = [draw(aggregates()) for _ in range(6)]
    if row_level:
        parts = [part.replace("DISTINCT unit", "*") for part in parts]
    keys = draw(st.sampled_from(["", "", "k", "f", "p", "k, f", "k, p", "p % 2", "k = 'a'", "n"]))
    limits = ["max_groups_contributed = 1", "max_groups_contributed = 2", "max_rows_contributed = 3", ""]
    options = [draw(st.sampled_from(limits)), draw(st.sampled_from(["", "noise = GAUSSIAN, delta = 1e-7"]))]
    mode = f"WITH DP OPTIONS ({', '.join(o for o in options if o)}) " if any(options) else ""
    where = draw(st.sampled_from(["", f" WHERE {draw(conditions)}"]))
    text = ", ".join(f"{a} AS c{i}" for i, a in enumerate(parts))
    if "JOIN g" in source or "JOIN s" in source:
        text, keys, where = (re.sub(r"\b(unit|k)\b", r"t.\1", item) for item in (text, keys, where))
        if "USING (k)" in source:
            text, keys, where = (item.replace("t.k", "k") for item in (text, keys, where))
    group = f" GROUP BY {keys}" if keys else ""
    return f"SELECT {mode}{keys + ', ' if keys else ''}{text} FROM {source}{where}{group}"


# -- the check --------------------------------------------------------------------------------------------------


def literal(values: tuple[str, ...]) -> str:
    return f"({', '.join(values)})"


def fill(con: duckdb.DuckDBPyConnection, table: str, given: list[tuple[str, ...]]) -> None:
    con.execute(f"DELETE FROM {table}")
    if given:
        con.execute(f"INSERT INTO {table} VALUES {', '.join(map(literal, given))}")


def read(con: duckdb.DuckDBPyConnection, operator: Aggregation) -> dict[tuple[Any, ...], dict[str, int]]:
    """The exact statistics by group, under a fixed salt."""
    table = con.sql(operator.query.replace(SALT, "12345")).to_arrow_table().to_pylist()
    return {
        tuple(row[k] for k in operator.keys): {
            c: int(v or 0) for c, v in row.items() if c not in operator.keys
        }
        for row in table
    }


def moved(before: dict[Any, dict[str, int]], after: dict[Any, dict[str, int]], column: str) -> list[int]:
    keys = before.keys() | after.keys()
    changes = (before.get(key, {}).get(column, 0) - after.get(key, {}).get(column, 0) for key in keys)
    return [abs(change) for change in changes if change]


def violations(
    operator: Aggregation, before: dict[Any, Any], after: dict[Any, Any], budgeted: bool
) -> list[str]:
    """What moves more than the noise declares."""
    found = []
    for statistic in operator.statistics:
        noise, changes = statistic.noise, moved(before, after, statistic.column)
        if not budgeted and len(changes) > noise.groups:
            found.append(f"{statistic.column} moves in {len(changes)} groups, not {noise.groups}")
        if max(changes, default=0) > noise.sensitivity:
            found.append(f"{statistic.column} moves by {max(changes)} in a group, not {noise.sensitivity}")
        if isinstance(noise, GaussianNoise):
            if sum(c * c for c in changes) > noise.sensitivity**2 * noise.groups:
                found.append(f"{statistic.column} moves too far in L2")
        elif sum(changes) > noise.sensitivity * noise.groups:
            found.append(f"{statistic.column} moves too far in L1")
    if operator.selection is not None:
        changes = moved(before, after, operator.selection.column)
        if len(changes) > operator.selection.groups or max(changes, default=0) > 1:
            found.append(f"units move by {changes}")
    elif operator.keys and before.keys() != after.keys():
        found.append("public groups depend on the data")
    return found


def check(small: SMALL, text: str, given: list[tuple[str, ...]], more: list[tuple[str, ...]]) -> list[str]:
    con, session = small
    plan = bound(session, text)
    if plan is None:
        return []
    row_level = " FROM r" in text
    name = "r" if row_level else "t"
    fill(con, name, given)
    fill(con, "s", more)
    found: list[str] = []
    for block in plan.blocks:
        operator = block.operator
        assert isinstance(operator, Aggregation)
        before = read(con, operator)
        budgeted = "max_rows_contributed" in text
        for gone in sorted({0, len(given) // 2, len(given) - 1}) if row_level else ("1", "2"):
            con.execute("BEGIN")
            if row_level:
                fill(con, name, [row for i, row in enumerate(given) if i != gone])
            else:
                con.execute(f"DELETE FROM t WHERE unit = {gone}; DELETE FROM s WHERE unit = {gone}")
            found += violations(operator, before, read(con, operator), budgeted)
            con.execute("ROLLBACK")
    return found


# Rows of one unit at the far ends of everything, beside a unit of ordinary rows.
FAR = [
    ("1", "'a'", "1", "1e300", "2147483647", "9223372036854775807", "99999999.99", "TRUE"),
    ("1", "'a'", "1", "5", "2147483647", "9223372036854775807", "99999999.99", "TRUE"),
    ("1", "'a'", "2", "32767.9", "7", "4", "1.99", "TRUE"),
    ("1", "'b'", "3", "-9", "-2147483648", "-9223372036854775808", "-99999999.99", "FALSE"),
    ("1", "'c'", "3", "40", "2147483647", "4", "1.99", "TRUE"),
    ("1", "'b'", "2", "NULL", "NULL", "NULL", "NULL", "NULL"),
    ("2", "'b'", "1", "2.71828", "3", "4", "0.25", "FALSE"),
    ("2", "'a'", "3", "0.3", "5", "-1", "0.25", "TRUE"),
]
EVERY = [
    "COUNT(*)", "COUNT(b)", "COUNT(DISTINCT unit)", "COUNT(DISTINCT unit) FILTER (WHERE f)", "COUNT_IF(x > 1)",
    *(f"COUNT(*, contribution_bounds_per_group => {pair})" for pair in LIMITS),
    *(f"{name}({number})" for name in ("SUM", "AVG", "VARIANCE", "STDDEV_POP") for number in ("x", "n", "d", "x * n")),
    *(f"{name}({pair})" for name in ("CORR", "COVAR_SAMP", "REGR_SLOPE") for pair in ("x, n", "d, x * n", "n, n")),
    "REGR_R2(b, x, contribution_bounds_per_row => (-3, 2))", "REGR_INTERCEPT(x, d) FILTER (WHERE f)",
    *(f"{name}({number}, contribution_bounds_per_{per} => {pair})"
      for name in ("SUM", "AVG") for number in "xnbd" for per in ("row", "group") for pair in LIMITS),
]  # fmt: skip


@pytest.mark.parametrize(
    ("table", "keys", "limit"),
    [
        ("t", "", ""), ("t", "", "max_rows_contributed = 3, "), ("t", "k", ""), ("t", "k", "max_rows_contributed = 3, "),
        ("t", "p", "max_groups_contributed = 1, "), ("t", "f, k", ""), ("r", "", ""), ("r", "k", ""), ("r", "p", ""),
    ],
)  # fmt: skip
def test_every_aggregate_at_the_far_ends(small: SMALL, table: str, keys: str, limit: str) -> None:
    noise = "GAUSSIAN, delta = 1e-4" if keys == "k" else "LAPLACE"
    parts = [part.replace("DISTINCT unit", "*") if table == "r" else part for part in EVERY]
    text = (
        f"SELECT WITH DP OPTIONS ({limit}epsilon = 1, noise = {noise}) {keys + ', ' if keys else ''}{', '.join(parts)} "
        f"FROM {table}" + (f" GROUP BY {keys}" if keys else "")
    )
    assert bound(small[1], text) is not None, "refused"
    assert check(small, text, FAR, []) == []


@pytest.mark.parametrize(
    ("doctored", "text"),
    [
        ("clamp", "SELECT COUNT(*), SUM(x) FROM t"),
        ("clamp", "SELECT k, SUM(n, contribution_bounds_per_group => (0, 4)) FROM t GROUP BY k"),
        (
            "groups",
            "SELECT WITH DP OPTIONS (max_groups_contributed = 1) k, COUNT(DISTINCT unit) FROM t GROUP BY k",
        ),
        ("groups", "SELECT p, COUNT(DISTINCT unit) FROM t GROUP BY p"),
        ("budget", "SELECT WITH DP OPTIONS (max_rows_contributed = 2) k = 'a', COUNT(*) FROM t GROUP BY 1"),
    ],
)
def test_the_check_notices_a_missing_bound(
    small: SMALL, doctored: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check(small, text, FAR, []) == []
    if doctored == "clamp":
        monkeypatch.setattr(Exact, "_clamp", lambda self, partial, budgeted: partial.name)
    elif doctored == "groups":
        original = Exact._user_level
        monkeypatch.setattr(
            Exact,
            "_user_level",
            lambda self, names: re.sub(r" QUALIFY .*? FROM u", "", original(self, names)),
        )
    else:
        monkeypatch.setattr(Exact, "_clamp", lambda self, partial, budgeted: f"LEAST({partial.name}, 9)")
    _PLANS.pop(text)
    found = check(small, text, FAR, [])
    _PLANS.pop(text)
    assert found, "the doctored query passed"


_PLANS: dict[str, Plan | None] = {}
_BOUND = {"answered": 0, "refused": 0}


def bound(session: dpsql.Session, text: str) -> Plan | None:
    """The plan, or None where the statement is refused (the grammar draws some that must be)."""
    if text not in _PLANS:
        try:
            _PLANS[text] = bind(parse(text)[0], session._catalog, session._finisher)
        except Error as error:
            _PLANS[text] = None
            assert type(error) in (dpsql.PrivacyError, dpsql.BindError), text
        _BOUND["refused" if _PLANS[text] is None else "answered"] += 1
    return _PLANS[text]


@settings(QUIET, max_examples=100)
@given(statements(), rows, others)
def test_no_unit_moves_more_than_is_declared(small: SMALL, text: str, given: Rows, more: Rows) -> None:
    assert check(small, text, given, more) == [], text


@pytest.mark.stochastic
@settings(QUIET, max_examples=3000)
@given(statements(), rows, others)
def test_no_unit_moves_more_than_is_declared_at_length(
    small: SMALL, text: str, given: Rows, more: Rows
) -> None:
    assert check(small, text, given, more) == [], text


def test_the_grammar_is_mostly_answered() -> None:
    assert _BOUND["answered"] > 3 * _BOUND["refused"]
