"""Ends that the lock derives of doubles: no value of a column has a finite result outside of them."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import duckdb
import pytest
from sqlglot import exp

from dpsql.binding.values.fixed_point import CENTRED_FARTHEST, choose_grid, write_centred
from dpsql.binding.values.sql_types import Type, Typed
from dpsql.lock.duckdb_reader import read_tree
from dpsql.lock.expressions import finite_ends
from dpsql.lock.tree import Cast, Expr, Select

CON = duckdb.connect()
EXTREMES = (0.0, -0.0, 5e-324, 1.7976931348623157e308, math.inf, 0.1, 1 / 3, 2.0**52 + 1, 2.0**53)
OPERANDS = ("CAST(t.x AS DOUBLE)", "CAST(t.x AS DOUBLE) * 1e300 * 1e-290", "3", "-2.5", "1e-3", "1e17", "0.1")
FORMS = (
    "{0} + {1}",
    "{0} - {1}",
    "{0} * {1}",
    "ABS({0})",
    "ABS({0} - {2}) - ABS({0} - {3})",
    "ABS({0}) - ABS({0} - {3})",
)


def parsed(sql: str) -> Expr:
    (text,) = CON.execute("SELECT json_serialize_sql(?)", [f"SELECT {sql} AS y FROM t AS t"]).fetchone() or (
        "",
    )
    query = read_tree(text)
    assert isinstance(query, Select)
    return next(part for part in query.items[0] if not isinstance(part, str))


def written(pick: random.Random, depth: int) -> str:
    if depth == 0:
        return pick.choice(OPERANDS)
    parts = (f"({written(pick, pick.randint(0, depth - 1))})" for _ in range(2))
    return pick.choice(FORMS).format(
        *parts, pick.choice(("0", "1.5", "-7", "1e9")), pick.choice(("2", "1e6", "12.25"))
    )


@pytest.fixture(scope="module", autouse=True)
def numbers() -> None:
    pick = random.Random(7)
    values = [sign * x for x in EXTREMES for sign in (1, -1)]
    values += [pick.uniform(-2, 2) * 2.0 ** pick.randint(-40, 70) for _ in range(400)]
    values += [
        math.ldexp(pick.choice((1, -1)) * (1 + pick.randint(-2, 2) * 2.0**-52), n)
        for n in range(-60, 1000, 3)
    ]
    CON.execute(
        "CREATE OR REPLACE TABLE t AS SELECT UNNEST(?::DOUBLE[]) AS x UNION ALL SELECT 'nan'", [values]
    )


def test_finite_results_are_between_the_ends() -> None:
    pick, bounded = random.Random(5), 0
    for _ in range(400):
        sql = written(pick, 3)
        ends = finite_ends(parsed(sql))
        assert ends is not None
        results = [
            y for (y,) in CON.execute(f"SELECT CAST({sql} AS DOUBLE) FROM t").fetchall() if math.isfinite(y)
        ]
        assert all(ends[0] <= Fraction(y) <= ends[1] for y in results), sql
        bounded += max(map(abs, ends)) < 2**60
    assert bounded > 40


@pytest.mark.parametrize(
    "sql", ["t.x", "CAST(t.x AS FLOAT) * 2", "CAST(t.x AS DOUBLE) / 0.1", "SQRT(CAST(t.x AS DOUBLE))"]
)
def test_other_expressions_have_no_ends(sql: str) -> None:
    assert finite_ends(parsed(f"ABS({sql}) + CAST(t.x AS DOUBLE)")) is None


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [("DOUBLE", 0, 120), ("DOUBLE", -7, 3), ("DOUBLE", 100, 103), ("DOUBLE", 0, 1e9), ("DOUBLE", -1e-5, 2e-5),
     ("DOUBLE", 0.1, 0.7), ("DECIMAL(9,2)", 0, 5), ("DECIMAL(38,4)", -3, 4.5)],
)  # fmt: skip
def test_centred_values_are_clamped_steps_or_missing(kind: str, low: float, high: float) -> None:
    typed = Typed(exp.column("x", table="t"), Type.parse(kind))
    grid = choose_grid(typed.type, Fraction(str(low)), Fraction(str(high)))
    sql = write_centred(typed, grid)
    assert sql is not None
    cast = parsed(sql)
    assert isinstance(cast, Cast)
    ends = finite_ends(cast.child)
    assert ends is not None
    found = math.ceil(ends[0] - Fraction(1, 2)), math.floor(ends[1] + Fraction(1, 2))
    assert found == (grid.low - grid.centre, grid.high - grid.centre)
    source = "t" if kind == "DOUBLE" else f"(SELECT TRY_CAST(x AS {kind}) AS x FROM t)"
    for x, y in CON.execute(f"SELECT CAST(t.x AS DOUBLE), {sql} FROM {source} AS t").fetchall():
        exact = None if x is None or not math.isfinite(x) else Fraction(x) * grid.steps
        if exact is None or abs(exact) >= CENTRED_FARTHEST:
            assert y is None
        elif abs(exact) < CENTRED_FARTHEST - 1:
            assert abs(max(grid.low, min(grid.high, exact)) - grid.centre - y) <= Fraction(3, 4)


def test_a_scale_without_a_limit_leaves_a_distance_unbounded() -> None:
    typed = Typed(exp.column("x", table="t"), Type.parse("DOUBLE"))
    sql = write_centred(typed, choose_grid(typed.type, Fraction(0), Fraction(120)))
    assert sql is not None
    for scale in (2.0**-977, 2.0**-975):  # one missing earlier, and one later than what the error allows
        cast = parsed(sql.replace(repr(2.0**-976), repr(scale)))
        assert isinstance(cast, Cast)
        ends = finite_ends(cast.child)
        assert ends is not None
        assert (max(ends) < 491520 + Fraction(1, 2)) == (scale < 2.0**-976)


def test_the_error_of_a_distance_far_away_would_exceed_its_bound() -> None:
    """Without the limit, a value far away has another distance to both bounds than theirs to each other."""
    (y,) = CON.execute(
        "SELECT ABS(x - 0.0) - ABS(x - 129.0) FROM (SELECT 2.0::DOUBLE ** 61 AS x)"
    ).fetchone() or (0,)
    assert y == 256
