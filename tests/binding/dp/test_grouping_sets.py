"""ROLLUP, CUBE and GROUPING SETS give what DuckDB gives, at an epsilon that hides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

import dpsql

VISITS = Path(dpsql.__file__).parent / "demo" / "visits.parquet"
POLICY = f"""
[budget]
epsilon = 1e9
accountant = "basic"
default_epsilon = 1e7

[tables.visits]
source = "{VISITS}"
privacy_unit = "person_id"
max_rows_per_group = 5
max_groups = 5
[tables.visits.columns]
plan = {{ values = ["free", "25%", "50%", "95%", "deductible"] }}
year = {{ values = [1, 2, 3, 4, 5] }}
"""


@pytest.mark.parametrize(
    "query",
    [
        "SELECT plan, year, COUNT(*) AS n FROM visits GROUP BY ROLLUP (plan, year)",
        "SELECT plan, female, COUNT(*) AS n FROM visits GROUP BY CUBE (plan, female)",
        "SELECT plan, year, COUNT(*) AS n, GROUPING(plan) AS g FROM visits GROUP BY GROUPING SETS ((plan), (year), ())",
        "SELECT year, female, COUNT(*) AS n FROM visits GROUP BY year, ROLLUP (female)",
        "SELECT plan AS p, COUNT(*) AS n FROM visits GROUP BY ROLLUP (plan) HAVING COUNT(*) > 3000",
        "SELECT plan, COUNT(*) AS n FROM visits v GROUP BY ROLLUP (v.plan) HAVING GROUPING(plan) = 0",
        "SELECT plan, COUNT(*), rank() OVER (ORDER BY COUNT(*) DESC) AS r FROM visits GROUP BY ROLLUP (plan)",
        "SELECT plan, year, COUNT(*), SUM(COUNT(*)) OVER (PARTITION BY GROUPING(plan, year)) AS s, s + 1 AS more "
        "FROM visits GROUP BY CUBE (plan, year)",
        "SELECT v.plan, COUNT(*) AS n FROM visits v GROUP BY ROLLUP (v.plan) "
        "QUALIFY row_number() OVER (ORDER BY n DESC) < 4 AND plan IS NOT NULL",
        # A column twice: two items are two keys, also where they are equal.
        "SELECT plan, COUNT(*) AS n FROM visits GROUP BY ROLLUP (plan, plan)",
        "SELECT plan, GROUPING(plan) AS g, COUNT(*) AS n FROM visits GROUP BY CUBE (plan, PLAN)",
        "SELECT plan, COUNT(*) AS n FROM visits GROUP BY GROUPING SETS ((plan), (plan), (), ())",
        "SELECT plan AS a, plan AS b, COUNT(*) AS n FROM visits GROUP BY ROLLUP (a, b)",
        "SELECT plan AS a, plan AS b, GROUPING(b, a), COUNT(*) AS n FROM visits GROUP BY CUBE (a, b) HAVING a IS NOT NULL",
        "SELECT plan AS a, plan, COUNT(*) AS n FROM visits GROUP BY ROLLUP (a, plan)",
        "SELECT plan AS a, year, upper(plan) AS b, upper(plan) || '!' AS c, COUNT(*) FROM visits GROUP BY ROLLUP (year, b), plan",
        "SELECT plan AS a, plan AS b, rank() OVER (PARTITION BY GROUPING(a) ORDER BY COUNT(*), a, b) FROM visits "
        "GROUP BY CUBE (a, b)",
        # Items by number.
        "SELECT plan, year, COUNT(*) AS n FROM visits GROUP BY ROLLUP (1, 2)",
        "SELECT plan AS a, plan AS b, COUNT(*) AS n FROM visits GROUP BY CUBE (1, 2)",
        # A column of the rows goes before an item's name; an aggregate sees the rows as they are.
        "SELECT coalesce(plan, 'all') AS plan, COUNT(*) AS n FROM visits GROUP BY ROLLUP (plan)",
        "SELECT plan, COUNT(plan), COUNT(*) FILTER (WHERE plan = 'free') FROM visits GROUP BY ROLLUP (plan)",
    ],
)
def test_grouping_sets_equal_duckdb(query: str) -> None:
    with dpsql.connect(policy=dpsql.Policy.loads(POLICY)) as session:
        mine = session.sql(query).fetchall()
    visits = duckdb.read_parquet(str(VISITS))
    theirs = visits.query("visits", query).fetchall()
    assert sorted(mine, key=repr) == sorted(theirs, key=repr)


@pytest.mark.parametrize(
    "order",
    [
        "v.plan, v.year",
        "v.year DESC, plan",
        "COUNT(v.doctor_visits), 1, n, v.year",
        "GROUPING(v.plan, v.year) DESC, CASE WHEN level = 0 THEN v.plan END, n",
        "r DESC, v.plan, v.year",
        "COUNT(*) DESC, plan, v.year",
    ],
)
def test_answers_of_grouping_sets_are_sorted_as_by_duckdb(order: str) -> None:
    query = (
        "SELECT plan, COUNT(*) AS n, GROUPING(v.plan) + GROUPING(v.year) AS level, rank() OVER (ORDER BY n) AS r "
        f"FROM visits AS v GROUP BY ROLLUP (v.plan, v.year) ORDER BY {order}"
    )
    with dpsql.connect(policy=dpsql.Policy.loads(POLICY)) as session:
        answer = session.sql(query)
        assert answer.columns == ["plan", "n", "level", "r"], "what it is sorted by is not shown"
        mine = answer.fetchall()
    visits = duckdb.read_parquet(str(VISITS))
    assert mine == visits.query("visits", query).fetchall()


def test_the_sets_share_the_epsilon() -> None:
    with dpsql.connect(policy=dpsql.Policy.loads(POLICY)) as session:
        result = session.sql(
            "SELECT WITH DP OPTIONS (epsilon = 3) plan, COUNT(*) FROM visits GROUP BY ROLLUP (plan)"
        )
        assert result.event.basic == (3, 0)


# -- cells that add up --------------------------------------------------------------------------------------------

CONSISTENT = (
    "SELECT WITH DP OPTIONS (epsilon = {e}, consistent = {c}) plan, year, COUNT(*) AS n, SUM(cost) AS s "
    "FROM visits GROUP BY {g}"
)
COSTS = POLICY.replace("[tables.visits.columns]", "[tables.visits.columns]\ncost = { bounds = [0, 100] }")


def _cells(rows: list[tuple[object, ...]]) -> dict[tuple[object, object], tuple[float, float]]:
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}  # type: ignore[misc]


@pytest.fixture(scope="module")
def costs() -> Iterator[dpsql.Session]:
    con = duckdb.connect()
    con.execute(
        f"CREATE TABLE visits AS SELECT *, (row_number() OVER () % 97)::DOUBLE AS cost FROM '{VISITS}'"
    )
    policy = COSTS.replace(f'source = "{VISITS}"', "")
    with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as session:
        yield session


@pytest.mark.parametrize(
    "sets", ["ROLLUP (plan, year)", "CUBE (plan, year)", "GROUPING SETS ((plan), (year), ())"]
)
@pytest.mark.parametrize("kind", ["TRUE", "NONNEGATIVE"])
def test_cells_add_up_exactly_at_no_cost(costs: dpsql.Session, sets: str, kind: str) -> None:
    query = CONSISTENT.format(e="0.01", c=kind, g=sets)
    result = costs.sql(query, fresh=True)
    plain = costs.sql(CONSISTENT.format(e="0.01", c="FALSE", g=sets))
    assert result.event.basic == (Fraction(1, 100), 0)
    cells = _cells(result.fetchall())
    assert all(isinstance(n, int) for n, _ in cells.values())
    assert kind == "TRUE" or all(n >= 0 for n, _ in cells.values())
    plans = {p for p, _ in cells if p is not None}
    years = {y for _, y in cells if y is not None}
    for place in (0, 1):
        if "ROLLUP" in sets or "CUBE" in sets:
            for p in plans:
                assert cells[p, None][place] == sum(cells[p, y][place] for y in years)
        if "CUBE" in sets:
            for y in years:
                assert cells[None, y][place] == sum(cells[p, y][place] for p in plans)
        if "ROLLUP" not in sets:
            assert cells[None, None][place] == sum(cells[None, y][place] for y in years)
        assert cells[None, None][place] == sum(cells[p, None][place] for p in plans)
    raw = _cells(plain.fetchall())
    # Counts add up by chance in one of some hundred thousand runs, and sums as well in one of 10^15.
    assert raw[None, None] != tuple(sum(raw[p, None][i] for p in plans) for i in (0, 1)), (
        "control: noise as it falls"
    )
    again = costs.sql(query)
    assert again.fetchall() == result.fetchall()
    assert "no charge" in again.cost_line


def test_without_noise_they_are_what_duckdb_counts(costs: dpsql.Session) -> None:
    cells = _cells(costs.sql(CONSISTENT.format(e="1e7", c="TRUE", g="CUBE (plan, year)")).fetchall())
    con = duckdb.connect()
    wanted = con.sql(
        f"SELECT plan, year, COUNT(*) FROM '{VISITS}' WHERE plan IS NOT NULL AND year IS NOT NULL GROUP BY CUBE (plan, year)"
    ).fetchall()
    assert {(p, y): n for p, y, n in wanted} == {key: n for key, (n, _) in cells.items()}


def test_rows_of_no_declared_group_are_in_the_totals_alone() -> None:
    """A total is of all rows, whether or not its cells are made to add up."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t AS SELECT i AS u, CASE WHEN i % 4 > 1 THEN 'a' WHEN i % 4 = 1 THEN 'x' END AS k FROM range(400) AS s(i)"
    )
    policy = (
        "[budget]\nepsilon = 1e9\n[tables.t]\nprivacy_unit = 'u'\nmax_rows = 1\nmax_groups = 1\n"
        "columns.k.values = ['a', 'b']"
    )
    with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as session:
        query = (
            "SELECT WITH DP OPTIONS (epsilon = 1e6{}) k, COUNT(*) AS n FROM t GROUP BY ROLLUP (k) ORDER BY k"
        )
        adjusted = session.sql(query.format(", consistent = TRUE"))
        assert adjusted.fetchall() == [("a", 200), ("b", 0), (None, 400)]
        assert any("rows in no group of k" in note for note in adjusted.notes)
        assert session.sql(query.format("")).fetchall() == [("a", 200), ("b", 0), (None, 400)]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT WITH DP OPTIONS (epsilon = 1, consistent = TRUE) age, COUNT(*) FROM visits GROUP BY ROLLUP (age)", "public"),
        ("SELECT WITH DP OPTIONS (epsilon = 1, consistent = TRUE) plan, AVG(cost) FROM visits GROUP BY ROLLUP (plan)", "add up"),
        (
            "SELECT WITH DP OPTIONS (epsilon = 1, consistent = TRUE) plan, COUNT(DISTINCT person_id) FROM visits "
            "GROUP BY ROLLUP (plan)", "no cells here add up",
        ),
        ("SELECT WITH DP OPTIONS (epsilon = 1, consistent = 3) plan, COUNT(*) FROM visits GROUP BY ROLLUP (plan)", "NONNEGATIVE"),
    ],
)  # fmt: skip
def test_what_does_not_add_up_is_refused(costs: dpsql.Session, query: str, message: str) -> None:
    with pytest.raises(dpsql.Error, match=message):
        costs.sql(query)
