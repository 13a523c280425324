"""GEOMEAN: DuckDB's geometric mean of the values held to their bounds, its interval, and what one unit moves."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.mechanisms.aggregation import Aggregation
from tests.support import inside
from tests.support.fixtures import both_fixture

POLICY = """
budget = { epsilon = 1e13, delta = 0.5, accountant = "basic", default_epsilon = 1e9 }
[tables]
t = { privacy_unit = "u", max_rows_per_group = 2, max_groups = 2, columns = { n = { bounds = [1, 20] }, \
    z = { bounds = [0, 9] }, k = { values = ["a", "b"] } } }
"""
NASTY = ("1e300", "'inf'", "'-inf'", "'nan'", "-5", "0", "5e-324", "NULL", "1", "40", "41", "17.5")
HELD = "CASE WHEN x < 1 THEN 1 WHEN x > 40 THEN 40 ELSE x END"
TABLES = """
CREATE TABLE t AS SELECT i % 600 AS u, CASE WHEN i % 10 = 0 THEN NULL ELSE (i % 50)::DOUBLE - 3 END AS x,
    i % 20 + 1 AS n, i % 9 AS z, i % 3 = 0 AS f, CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END AS k FROM range(1200) r(i);
"""
opened = both_fixture(POLICY, TABLES, scope="function")


@pytest.mark.parametrize(
    ("ours", "plain"),
    [
        ("GEOMEAN(n)", "geomean(n)"),
        ("GEOMETRIC_MEAN(n * 2)", "geometric_mean(n * 2)"),
        ("GEOMEAN(x, contribution_bounds_per_row => (1, 40))", f"geomean({HELD})"),
        ("GEOMEAN(n) FILTER (WHERE f)", "geomean(CASE WHEN f THEN n END)"),
        ("10 * GEOMEAN(n) + 1", "10 * geomean(n) + 1"),
    ],
)
@pytest.mark.parametrize("keys", ["", "k"])
def test_it_is_duckdbs(
    opened: tuple[duckdb.DuckDBPyConnection, dpsql.Session], ours: str, plain: str, keys: str
) -> None:
    con, session = opened
    tail = f" FROM t{' GROUP BY k ORDER BY k' if keys else ''}"
    came = session.sql(f"SELECT {ours} AS m{tail}").fetchall()
    true = con.execute(f"SELECT {plain} AS m{tail}").fetchall()
    assert [row[0] for row in came] == [pytest.approx(row[0], rel=1e-5) for row in true]


def test_its_interval_holds_the_truth_and_only_what_is_above_0(
    opened: tuple[duckdb.DuckDBPyConnection, dpsql.Session],
) -> None:
    con, session = opened
    text = "SELECT WITH DP OPTIONS (epsilon = 2, confidence = 0.999999999) GEOMEAN(n) AS m FROM t"
    pair = session.sql(text).intervals["m"][0]
    (true,) = con.execute("SELECT geomean(n) FROM t").fetchall()[0]
    assert 0 < pair[0] < true < pair[1] <= 20 * (1 + 1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("GEOMEAN(z)", "needs bounds above 0"),
        ("GEOMEAN(x)", "needs bounds for x"),
        ("GEOMEAN(x, contribution_bounds_per_row => (-1, 4))", "needs bounds above 0"),
        ("GEOMEAN(n, contribution_bounds_per_group => (1, 3))", "bounds per row only"),
        (
            "GEOMEAN(n, contribution_bounds_per_row => AUTO)",
            "AUTO bounds are for SUM, AVG, VARIANCE, STDDEV and quantiles",
        ),
        ("GEOMEAN(n, report_format => 'JSON')", "no JSON report"),
        ("GEOMEAN(DISTINCT n)", "no bounded sensitivity"),
        ("GEOMEAN(k)", "needs a number"),
        ("GEOMEAN(n, n)", "GEOMEAN takes 1 argument"),
    ],
)
def test_it_is_refused_where_it_has_no_bounds(
    opened: tuple[duckdb.DuckDBPyConnection, dpsql.Session], call: str, words: str
) -> None:
    with pytest.raises(dpsql.Error, match=words):
        opened[1].sql(f"SELECT {call} FROM t")


@pytest.mark.parametrize("bounds", ["(1, 40)", "(0.001, 1)", "(5, 5)"])
def test_one_unit_moves_no_total_by_more_than_its_noise_is_made_for(
    opened: tuple[duckdb.DuckDBPyConnection, dpsql.Session], bounds: str
) -> None:
    con, session = opened
    plan = inside.bind(session, f"SELECT GEOMEAN(x, contribution_bounds_per_row => {bounds}) FROM t")
    operator = plan.blocks[0].operator
    assert isinstance(operator, Aggregation)
    text = inside.gate(session).shown(operator.query, {})
    sensitivity = {s.column: s.noise.sensitivity for output in operator.outputs for s in output.statistics}

    def totals() -> dict[str, int]:
        found = con.execute(f"SELECT {', '.join(sensitivity)} FROM ({text})").fetchall()
        return dict(zip(sensitivity, map(int, found[0]), strict=True))

    before, most = totals(), dict.fromkeys(sensitivity, 0)
    for value in NASTY:
        for rows in (1, 2, 1000):
            con.execute("BEGIN")
            con.execute(f"INSERT INTO t (u, x) SELECT -1, CAST({value} AS DOUBLE) FROM range({rows})")
            after = totals()
            con.execute("ROLLBACK")
            most = {name: max(most[name], abs(after[name] - before[name])) for name in most}
    assert all(most[name] <= sensitivity[name] for name in sensitivity)
    assert any(most[name] > sensitivity[name] * 9 // 10 for name in sensitivity), (
        "the noise is made for no less"
    )
