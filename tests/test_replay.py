"""A released block is never paid twice: what is post-processing is free, and what is another question is paid."""

from __future__ import annotations

import ast
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.session import block_keys
from dpsql.session.block_keys import digest_content
from tests.support import inside

POLICY = """
[budget]
epsilon = 1000
delta = 1e-3
default_epsilon = 1
default_delta = 1e-6

[tables.visits]
source = "visits.parquet"
privacy_unit = "person"
max_rows_per_group = 3
max_groups = 2
columns.age.bounds = [0, 120]
columns.plan.values = ["basic", "full"]

[tables.orders]
source = "orders.parquet"
privacy_unit = "person"
max_rows_per_group = 3
max_groups = 2

[tables.plans]
source = "plans.parquet"
public = true
"""
BASE = "SELECT plan, COUNT(*) AS n, AVG(age) AS a FROM visits WHERE age > 20 AND open GROUP BY plan"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Private visits and orders, and a public table of plans."""
    visits = """SELECT i // 2 AS person, i % 90 AS age, CASE i % 3 WHEN 0 THEN 'basic' ELSE 'full' END AS plan,
        i % 5 AS site, i % 2 = 0 AS open, DATE '2024-01-01' + i::INTEGER % 300 AS day FROM range(4000) AS t(i)"""
    write(tmp_path / "visits.parquet", visits)
    write(tmp_path / "orders.parquet", "SELECT i // 2 AS person, i % 7 AS pieces FROM range(2000) AS t(i)")
    write(
        tmp_path / "plans.parquet",
        "SELECT * FROM (VALUES ('basic', 1), ('full', 2)) AS t(plan, cost) ORDER BY plan",
    )
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path


def write(path: Path, query: str) -> None:
    duckdb.sql(f"COPY ({query}) TO '{path}' (FORMAT parquet)")


def spent(session: dpsql.Session) -> Fraction:
    return session.budget().spent_epsilon


def paid(session: dpsql.Session, text: str, params: dict[str, Any] | None = None, **how: Any) -> bool:
    """Asks, and tells whether it was charged: the ledger, the loss and the line of cost must agree."""
    before = len(session.ledger())
    result = session.sql(text, params, **how)
    charged = len(session.ledger()) > before
    line = result.cost_line
    assert charged == (result.loss != "no charge") == (not line.startswith("stored since")), line
    assert charged == (result.event is not None)
    return charged


# -- forty edits that are free ---------------------------------------------------------------------------------------

FREE = [
    ("the same once more", BASE),
    ("other letter case", BASE.lower()),
    ("other white space", BASE.replace(" ", "\n  ")),
    ("a comment", "-- of this year\n" + BASE + " /* all */"),
    ("a semicolon", BASE + ";"),
    ("ORDER BY", BASE + " ORDER BY n DESC"),
    ("ORDER BY an aggregate", BASE + " ORDER BY COUNT(*)"),
    ("LIMIT", BASE + " LIMIT 1"),
    ("OFFSET", BASE + " ORDER BY plan LIMIT 1 OFFSET 1"),
    ("HAVING", BASE + " HAVING COUNT(*) > 10"),
    ("QUALIFY", BASE + " QUALIFY row_number() OVER (ORDER BY COUNT(*)) = 1"),
    ("DISTINCT", BASE.replace("SELECT", "SELECT DISTINCT")),
    ("another alias of an output", BASE.replace("AS n", "AS visits_of_plan")),
    ("no alias", BASE.replace(" AS n", "").replace(" AS a", "")),
    ("an alias of the table", BASE.replace("FROM visits", "FROM visits AS v")),
    ("qualified names", "SELECT v.plan, COUNT(*), AVG(v.age) FROM visits v WHERE v.age > 20 AND v.open GROUP BY v.plan"),
    ("quoted names", 'SELECT "plan", COUNT(*), AVG("age") FROM "visits" WHERE "age" > 20 AND "open" GROUP BY "plan"'),
    ("GROUP BY a place", BASE.replace("GROUP BY plan", "GROUP BY 1")),
    ("GROUP BY ALL", BASE.replace("GROUP BY plan", "GROUP BY ALL")),
    ("GROUP BY an alias", BASE.replace("plan, COUNT", "plan AS p, COUNT").replace("GROUP BY plan", "GROUP BY p")),
    ("FROM first", "FROM visits SELECT plan, COUNT(*) AS n, AVG(age) AS a WHERE age > 20 AND open GROUP BY plan"),
    ("the default epsilon written out", BASE.replace("SELECT", "SELECT WITH DP OPTIONS (epsilon = 1)")),
    ("WITH DP written out", BASE.replace("SELECT", "SELECT WITH DP")),
    ("GoogleSQL's name of it", BASE.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY")),
    ("the policy's max_groups written out", BASE.replace("SELECT", "SELECT WITH DP OPTIONS (max_groups_contributed = 2)")),
    ("the policy's bounds written out", BASE.replace("AVG(age)", "AVG(age, contribution_bounds_per_row => (0, 120))")),
    ("another confidence", BASE.replace("SELECT", "SELECT WITH DP OPTIONS (confidence = 0.5)")),
    ("conditions in another order", BASE.replace("age > 20 AND open", "open AND age > 20")),
    ("a comparison turned round", BASE.replace("age > 20", "20 < age")),
    ("conditions in parentheses", BASE.replace("age > 20 AND open", "(age > 20) AND (open)")),
    ("a parameter with that value", BASE.replace("20", "$least")),
    ("fewer columns shown", BASE.replace("SELECT plan,", "SELECT")),
    ("a column more of what is there", BASE.replace("AS n,", "AS n, COUNT(*) / 2 AS half,")),
    ("rounded", BASE.replace("AVG(age) AS a", "ROUND(AVG(age), 1) AS a")),
    ("an outer SELECT", f"SELECT n FROM ({BASE}) AS t"),
    ("an outer WHERE", f"SELECT * FROM ({BASE}) AS t WHERE n > 100"),
    ("an outer aggregate", f"SELECT SUM(n), MAX(a) FROM ({BASE}) AS t"),
    ("a CTE instead of a subquery", f"WITH t AS ({BASE}) SELECT * FROM t"),
    ("a join with a public table", f"SELECT * FROM ({BASE}) AS t JOIN plans USING (plan)"),
    ("a window over it", f"SELECT *, SUM(n) OVER (ORDER BY plan) FROM ({BASE}) AS t"),
    ("asked twice in one statement", f"SELECT s.n, t.a FROM ({BASE}) AS s JOIN ({BASE}) AS t USING (plan)"),
    ("UNION ALL of it with itself", f"{BASE} UNION ALL {BASE}"),
    ("in a scalar subquery", f"SELECT (SELECT MAX(n) FROM ({BASE}) AS t) AS most"),
    ("an interval shown", f"SELECT n * 2 AS twice FROM ({BASE}) AS t ORDER BY ALL"),
]  # fmt: skip


def test_there_are_forty_free_edits() -> None:
    assert len({text for _, text in FREE}) >= 40 <= len(FREE)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dpsql.Session]:
    """A session that has asked BASE, and closed and opened again: what is stored comes from the disk."""
    where = tmp_path_factory.mktemp("asked")
    path = folder.__wrapped__(where) / "policy.toml"  # type: ignore[attr-defined]
    with dpsql.connect(policy=path) as session:
        assert paid(session, BASE)
    with dpsql.connect(policy=path) as session:
        yield session
        assert spent(session) == 1


@pytest.mark.parametrize("edit", [text for _, text in FREE], ids=[reason for reason, _ in FREE])
def test_an_edit_that_is_post_processing_is_free(asked: dpsql.Session, edit: str) -> None:
    params = {"least": 20} if "$least" in edit else None
    assert "free" in str(asked.explain(edit, params))
    assert "Would cost nothing" in str(asked.explain(edit, params))
    assert not paid(asked, edit, params)


def test_a_free_answer_is_the_answer(asked: dpsql.Session) -> None:
    first = asked.sql(BASE + " ORDER BY plan")
    renamed = asked.sql(
        BASE.replace("AS n", "AS m").replace("FROM visits", "FROM visits v") + " ORDER BY plan"
    )
    assert renamed.fetchall() == first.fetchall()
    assert renamed.columns == ["plan", "m", "a"]
    assert renamed.intervals["m"] == first.intervals["n"]
    assert renamed.intervals["a"] == first.intervals["a"]
    assert renamed.statement_id == first.statement_id is not None


def test_another_confidence_shows_other_intervals_of_the_same_values(asked: dpsql.Session) -> None:
    wide, narrow = (
        asked.sql(BASE.replace("SELECT", f"SELECT WITH DP OPTIONS (confidence = {c})")) for c in (0.999, 0.5)
    )
    assert wide.fetchall() == narrow.fetchall()
    assert (wide.confidence, narrow.confidence) == (0.999, 0.5)
    for column in ("n", "a"):
        for (low, high), (lower, higher) in zip(
            narrow.intervals[column], wide.intervals[column], strict=True
        ):
            assert lower < low < high < higher


# -- what is another question, or about other data, is paid --------------------------------------------------------------

PAID = [
    ("another value in a condition", BASE, BASE.replace("20", "21")),
    ("a condition more", BASE, BASE.replace("open", "open AND site = 1")),
    ("a condition less", BASE, BASE.replace(" AND open", "")),
    ("OR for AND", BASE, BASE.replace("AND", "OR")),
    ("another epsilon", BASE, BASE.replace("SELECT", "SELECT WITH DP OPTIONS (epsilon = 2)")),
    ("other caps", BASE, BASE.replace("SELECT", "SELECT WITH DP OPTIONS (max_groups_contributed = 1)")),
    ("another noise", BASE, BASE.replace("SELECT", "SELECT WITH DP OPTIONS (noise = GAUSSIAN)")),
    ("other bounds", BASE, BASE.replace("AVG(age)", "AVG(age, contribution_bounds_per_row => (0, 60))")),
    ("another column", BASE, BASE.replace("AVG(age)", "AVG(age + 1)")),
    ("another aggregate", BASE, BASE.replace("AVG(age)", "SUM(age)")),
    ("an aggregate more, among which epsilon is dealt", BASE, BASE.replace("AS n", "AS n, MEDIAN(age)")),
    ("an aggregate less", BASE, BASE.replace(", AVG(age) AS a", "")),
    ("other groups", BASE, BASE.replace("plan", "site")),
    ("no groups", BASE, BASE.replace("plan, ", "").replace(" GROUP BY plan", "")),
    ("an aggregate in HAVING that is not shown", BASE, BASE + " HAVING SUM(age) > 10"),
    ("a selection threshold", BASE.replace("plan", "site"),
     BASE.replace("plan", "site").replace("SELECT", "SELECT WITH DP OPTIONS (min_privacy_units_per_group = 5)")),
    ("another delta", BASE.replace("plan", "site"),
     BASE.replace("plan", "site").replace("SELECT", "SELECT WITH DP OPTIONS (delta = 1e-7)")),
    ("another table", "SELECT COUNT(*) FROM visits", "SELECT COUNT(*) FROM orders"),
    ("units for rows", "SELECT COUNT(*) FROM visits", "SELECT COUNT(DISTINCT person) FROM visits"),
    ("another quantile", "SELECT QUANTILE(age, 0.5) FROM visits", "SELECT QUANTILE(age, 0.9) FROM visits"),
    ("a condition moved into FILTER", "SELECT COUNT(*) FROM visits WHERE open", "SELECT COUNT(*) FILTER (open) FROM visits"),
    ("the other side of a comparison", "SELECT COUNT(*) FROM visits WHERE age > site",
     "SELECT COUNT(*) FROM visits WHERE site > age"),
    ("two values that changed places", "SELECT COUNT(*) FROM visits WHERE age > 4 AND site < 3",
     "SELECT COUNT(*) FROM visits WHERE age > 3 AND site < 4"),
    ("a name in quotes that is a value", "SELECT COUNT(*) FROM visits WHERE plan > 'dpsql_table_1'",
     "SELECT COUNT(*) FROM visits WHERE plan > 'dpsql_table_2'"),
    ("other candidates", "WITH c(x) AS (VALUES (10), (50)) SELECT x, EXPMECH(COUNT(*) FILTER (WHERE age > x)) OVER c FROM visits",
     "WITH c(x) AS (VALUES (10), (51)) SELECT x, EXPMECH(COUNT(*) FILTER (WHERE age > x)) OVER c FROM visits"),
]  # fmt: skip


@pytest.mark.parametrize(("base", "edit"), [item[1:] for item in PAID], ids=[item[0] for item in PAID])
def test_another_question_is_paid(folder: Path, base: str, edit: str) -> None:
    with dpsql.connect(policy=folder / "policy.toml") as session:
        assert paid(session, base)
        assert not paid(session, base)
        assert "stored" not in str(session.explain(edit))
        assert paid(session, edit)


def policy_with(old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / "policy.toml").read_text()
        assert old in text
        (folder / "policy.toml").write_text(text.replace(old, new, 1))

    return change


def rewrite(name: str, query: str) -> Callable[[Path], None]:
    return lambda folder: write(folder / name, query.replace("@", str(folder / name)))


def touch(folder: Path) -> None:
    for file in folder.glob("*.parquet"):
        os.utime(file, ns=(1, 1))


def copied(folder: Path) -> None:
    """The same bytes in another place."""
    (folder / "visits.parquet").rename(folder / "v.parquet")
    policy_with('"visits.parquet"', '"v.parquet"')(folder)


OVER_PLANS = "SELECT p.cost, COUNT(*) AS n FROM visits v JOIN plans p ON v.plan = p.plan WHERE p.cost > 0 GROUP BY p.cost"
CHANGED = [
    (
        "fewer rows of a unit", BASE, policy_with("max_rows_per_group = 3", "max_rows_per_group = 2"),
        "max_rows_per_group of visits",
    ),
    ("fewer groups of a unit", BASE, policy_with("max_groups = 2", "max_groups = 1"), "max_groups of visits"),
    ("other bounds", BASE, policy_with("[0, 120]", "[0, 100]"), "bounds of visits.age"),
    ("other values", BASE, policy_with('["basic", "full"]', '["basic"]'), "values of visits.plan"),
    ("another default epsilon", BASE, policy_with("default_epsilon = 1", "default_epsilon = 2"), "default_epsilon"),
    ("another default delta", BASE.replace("plan", "site"),
     policy_with("default_delta = 1e-6", "default_delta = 1e-7"), "default_delta"),
    ("other rows", BASE,
     rewrite("visits.parquet", "SELECT * FROM (SELECT * FROM '@' ORDER BY ALL) LIMIT 3999"), "the data of visits"),
    ("one value", BASE, rewrite("visits.parquet",
     "SELECT * REPLACE (CASE WHEN person = 7 THEN 8 ELSE age END AS age) FROM '@'"), "the data of visits"),
    ("another type", BASE, rewrite("visits.parquet", "SELECT * REPLACE (age::DOUBLE AS age) FROM '@'"), "the data of visits"),
    ("a public table that it joins", OVER_PLANS, rewrite("plans.parquet", "SELECT plan, cost + 1 AS cost FROM '@'"),
     "the public data of plans"),
]  # fmt: skip
"""Each with what is named as the reason."""


@pytest.mark.parametrize(
    ("query", "change", "reason"), [item[1:] for item in CHANGED], ids=[item[0] for item in CHANGED]
)
def test_other_rules_and_other_data_are_paid_and_named(
    folder: Path, query: str, change: Callable[[Path], None], reason: str
) -> None:
    ledger = folder / "kept.ledger"
    with dpsql.connect(policy=folder / "policy.toml", ledger=ledger) as session:
        assert paid(session, query)
        assert not paid(session, query)
    copy = {p: p.read_bytes() for p in folder.glob("*.parquet")}
    change(folder)
    with dpsql.connect(policy=folder / "policy.toml", ledger=ledger) as session:
        assert reason in str(session.explain(query))
        result = session.sql(query)
        (note,) = [n for n in result.notes if "later changes" in n]
        assert result.loss != "no charge"
        assert reason in note
        assert not any(word in note for word in ("bytes", "mtime", "rows of visits.parquet", str(folder)))
        assert not any("later changes" in n for n in session.sql(query).notes)
    if copy != {p: p.read_bytes() for p in folder.glob("*.parquet")}:  # what is put back is stored, too
        for path, held in copy.items():
            path.write_bytes(held)
        with dpsql.connect(policy=folder / "policy.toml", ledger=ledger) as session:
            assert not paid(session, query)


STILL_FREE = [
    ("touched files", touch),
    ("files at another place", copied),
    ("a rule of another table", policy_with('"person"\nmax_rows_per_group = 3\nmax_groups = 2\n\n[tables.plans]',
                                            '"person"\nmax_rows_per_group = 2\nmax_groups = 1\n\n[tables.plans]')),
    ("the data of another table", rewrite("orders.parquet", "SELECT * FROM '@' WHERE person > 3")),
    ("a public table that it does not read", rewrite("plans.parquet", "SELECT plan, cost + 1 AS cost FROM '@'")),
    ("the bounds of another column", policy_with("columns.age", "columns.site.bounds = [0, 9]\ncolumns.age")),
    ("a smaller budget", policy_with("epsilon = 1000", "epsilon = 900")),
    ("another limit per query", policy_with("epsilon = 1000", "epsilon = 1000\nmax_epsilon_per_query = 3")),
]  # fmt: skip


@pytest.mark.parametrize("change", [item[1] for item in STILL_FREE], ids=[item[0] for item in STILL_FREE])
def test_what_a_block_does_not_rest_on_changes_nothing(folder: Path, change: Callable[[Path], None]) -> None:
    ledger = folder / "kept.ledger"
    with dpsql.connect(policy=folder / "policy.toml", ledger=ledger) as session:
        assert paid(session, BASE)
        dataset = session.account.dataset
    change(folder)
    policy = dpsql.Policy.load(folder / "policy.toml")
    if change is copied:  # another data set by name: the owner says that the ledger goes on
        with dpsql.connect(policy=folder / "policy.toml", ledger=folder / "other") as session:
            assert session.account.dataset != dataset
            dpsql.ledger.ledger.Ledger.adopt(ledger, policy, session.account.dataset)
    with dpsql.connect(policy=folder / "policy.toml", ledger=ledger) as session:
        assert not paid(session, BASE)


# -- the shape of a charge -----------------------------------------------------------------------------------------------


def test_equal_blocks_are_one_draw_and_one_charge_under_fresh_too(folder: Path) -> None:
    twice = f"SELECT s.n AS x, t.n AS y FROM ({BASE}) AS s JOIN ({BASE.replace('visits', 'visits v')}) AS t USING (plan)"
    with dpsql.connect(policy=folder / "policy.toml") as session:
        assert "one draw and one charge" in str(session.explain(twice))
        for total in (1, 2):
            result = session.sql(twice, fresh=total == 2)
            assert spent(session) == total
            assert result.loss == "ε=1"
            assert all(x == y for x, y in result.fetchall())


def test_a_statement_costs_what_is_not_stored_of_it(folder: Path) -> None:
    other = "SELECT COUNT(*) AS m FROM orders"
    both = f"SELECT t.n, o.m FROM ({BASE}) AS t, ({other}) AS o"
    with dpsql.connect(policy=folder / "policy.toml") as session:
        stored = dict(session.sql("SELECT plan, n FROM (" + BASE + ") AS t").fetchall())
        assert "Would cost ε=1;" in str(session.explain(both))
        assert "Block 1 of 2 is stored" in str(session.explain(both))
        result = session.sql(both)
        assert result.loss == "ε=1"
        assert "(the rest is stored since" in result.cost_line
        assert spent(session) == 2
        assert {n for n, _ in result.fetchall()} == set(stored.values())
        assert not paid(session, other)
        assert not paid(session, both)
        assert len(session.ledger()) == 2


def test_fresh_pays_for_all_blocks_and_the_new_answer_takes_the_place_of_the_old(folder: Path) -> None:
    query = "SELECT WITH DP OPTIONS (epsilon = 0.001) COUNT(*) AS n FROM visits"
    with dpsql.connect(policy=folder / "policy.toml") as session:
        seen = {session.sql(query).fetchall()[0][0]}
        for _ in range(3):
            result = session.sql(query, fresh=True)
            assert result.loss == "ε=0.001"
            seen.add(result.fetchall()[0][0])
            assert session.sql(query).fetchall() == result.fetchall()
        assert len(seen) > 1  # four draws of noise of scale 3000 are all equal once in 10**11


def test_a_block_over_a_release_is_stored_by_what_that_released(folder: Path) -> None:
    """The second block reads the first one's release: once that is drawn afresh it is another question."""
    first = "SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan"
    query = f"SELECT COUNT(*) AS m FROM visits v JOIN ({first}) AS t ON v.plan = t.plan WHERE v.age < t.n GROUP BY v.plan"
    with dpsql.connect(policy=folder / "policy.toml") as session:
        session.sql(query)
        before = spent(session)
        assert not paid(session, query)
        assert not paid(session, first)
        assert spent(session) == before
        old = session.sql(first).fetchall()
        while session.sql(first, fresh=True).fetchall() == old:
            pass
        before = spent(session)
        assert paid(session, query)
        assert spent(session) == before + 1
        assert not paid(session, query)


def test_a_declared_plan_pays_what_is_not_stored_once(folder: Path) -> None:
    other = "SELECT COUNT(*) AS m FROM orders"
    with dpsql.connect(policy=folder / "policy.toml") as session:
        first = session.sql(BASE)
        with session.plan() as plan:
            for text in (BASE.lower(), other, f"SELECT m + 1 FROM ({other}) AS t"):
                plan.sql(text)
            assert plan.event.basic == (1, 0)
        assert spent(session) == 2
        assert len(session.ledger()) == 2
        assert plan.results[0].fetchall() == first.fetchall()
        assert plan.results[0].loss == "no charge"
        assert plan.results[1].fetchall()[0][0] + 1 == plan.results[2].fetchall()[0][0]
        with session.plan() as plan:
            plan.sql(other)
        assert spent(session) == 2
        assert not paid(session, other)


def test_explain_of_several_statements_pays_equal_blocks_once(folder: Path) -> None:
    with dpsql.connect(policy=folder / "policy.toml") as session:
        assert "Together they would cost ε=1;" in str(session.explain(f"{BASE}; {BASE} ORDER BY n"))
        assert spent(session) == 0
        results = session.run(f"{BASE}; {BASE} ORDER BY n")
        assert [r.loss for r in results] == ["ε=1", "no charge"]
        assert spent(session) == 1


def test_probes_of_a_threshold_are_never_replayed(folder: Path) -> None:
    with dpsql.connect(policy=folder / "policy.toml") as session:
        session.sql("DECLARE alarm ABOVE_THRESHOLD 100000 OPTIONS (epsilon = 1, max_hits = 1)")
        for _ in range(3):
            result = session.sql("SELECT WITH alarm COUNT(*) FROM visits")
            assert "stored" not in result.cost_line
        assert "stored" not in str(session.explain("SELECT WITH alarm COUNT(*) FROM visits"))


def test_the_time_zone_is_part_of_the_question(folder: Path) -> None:
    query = "SELECT COUNT(*) AS n FROM visits WHERE day < DATE '2024-02-01'"
    with dpsql.connect(policy=folder / "policy.toml") as session:
        engine: Any = inside.engine(session)
        assert paid(session, query)
        assert not paid(session, query)
        engine._zone = "Asia/Tokyo"
        assert paid(session, query)


def test_another_registered_function_of_the_same_name_is_another_question(folder: Path) -> None:
    query = "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, bounds = (0, 100)) middle(age) AS m FROM visits"
    with dpsql.connect(policy=folder / "policy.toml") as session:
        for more, total in ((0, 1), (1, 2)):
            source = f"lambda age: float(age.mean()) + {more}"
            session.register("middle", eval(source), returns="DOUBLE")
            assert paid(session, query)
            assert not paid(session, query.replace("AS m", "AS k"))
            assert spent(session) == total


OTHER_KINDS = [
    ("SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 100), combine = 'mean') AVG(age) AS m FROM visits",
     "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 100), combine = 'mean') AVG(v.age) FROM visits v"),
    ("SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 100)) AVG(age) AS m FROM visits",
     "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 100)) AVG(v.age) AS k FROM visits v"),
    ("SELECT WITH DP OPTIONS (error = 30) AVG(age) FROM visits",
     "SELECT WITH DP OPTIONS (error = 30) AVG(v.age) AS m FROM visits v"),
    ("SELECT WITH SUBSAMPLE OPTIONS (blocks = 16, bounds = (0, 100)) AVG(age) AS m FROM visits",
     "SELECT WITH SUBSAMPLE OPTIONS (blocks = 16, bounds = (0, 100), confidence = 0.5) AVG(v.age) AS k FROM visits v"),
    ("SELECT WITH PTR MEDIAN(age) FROM visits", "SELECT WITH PTR OPTIONS (confidence = 0.8) MEDIAN(v.age) AS m FROM visits v"),
    ("SELECT SUM(age, contribution_bounds_per_row => AUTO) FROM visits",
     "SELECT SUM(v.age, contribution_bounds_per_row => AUTO) AS s FROM visits v"),
    ("SELECT MEDIAN(age), COUNT(*) FROM visits",
     "SELECT WITH DP OPTIONS (confidence = 0.5) MEDIAN(v.age), COUNT(*) FROM visits v"),
    ("SELECT COUNT(DISTINCT site) FROM visits",
     "SELECT WITH DP OPTIONS (confidence = 0.5) COUNT(DISTINCT v.site) AS n FROM visits v"),
    ("SELECT HISTOGRAM(age, [0, 50, 120]) FROM visits", "SELECT HISTOGRAM(v.age, [0, 50, 120]) AS h FROM visits v"),
    ("SELECT plan, site, COUNT(*) FROM visits GROUP BY ROLLUP (plan, site)",
     "SELECT plan AS p, site, COUNT(*) AS n FROM visits v GROUP BY ROLLUP (plan, site) ORDER BY n"),
    (OVER_PLANS, OVER_PLANS.replace(" v ", " AS x ").replace("v.plan", "x.plan").replace("AS n", "AS m")),
    ("SELECT COUNT(*) FROM visits WHERE plan IN (SELECT plan FROM plans WHERE cost > 1)",
     "WITH c AS (SELECT x.plan FROM plans AS x WHERE cost > 1) SELECT COUNT(*) FROM visits WHERE plan IN (SELECT plan FROM c)"),
    ("WITH c(x) AS (VALUES (10), (50)) SELECT x, EXPMECH(COUNT(*) FILTER (WHERE age >= c.x)) OVER c FROM visits",
     "WITH d(y) AS (VALUES (10), (50)) SELECT d.y AS z, EXPMECH(COUNT(*) FILTER (WHERE v.age >= d.y)) OVER d FROM visits v"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "edit"), OTHER_KINDS, ids=[query[:60] for query, _ in OTHER_KINDS])
def test_blocks_of_every_kind_are_found_under_other_names(folder: Path, query: str, edit: str) -> None:
    with dpsql.connect(policy=folder / "policy.toml") as session:
        assert paid(session, query)
        first, again = session.sql(query), session.sql(edit)
        assert again.loss == "no charge"
        assert sorted(map(repr, again.fetchall())) == sorted(map(repr, first.fetchall()))
        shown = set(again.columns) - set(first.columns)
        said = [
            n for n in again.notes if any(f"{old}:" in n for old in set(first.columns) - set(again.columns))
        ]
        assert not said, (shown, said)


# -- keys and the store ---------------------------------------------------------------------------------------------------


def test_the_content_of_a_relation_knows_no_names_and_no_order() -> None:
    table = pa.table({"a": [1, None, 3], "b": ["x", "y", None]})
    other = pa.concat_tables([table.slice(2), table.slice(0, 2)]).rename_columns(["c", "d"])
    assert digest_content(table) == digest_content(other)
    for changed in (
        table.slice(1), pa.concat_tables([table, table.slice(0, 1)]), table.select(["b", "a"]),
        table.set_column(0, "a", pa.array([1, None, 4])), table.set_column(0, "a", pa.array([1, 3, None])),
        table.set_column(0, "a", pa.array([1, None, 3], pa.int32())),
    ):  # fmt: skip
        assert digest_content(changed) != digest_content(table)


def test_keys_hold_no_name_that_was_made_while_binding(folder: Path) -> None:
    """Every text of an operator is brought into its form: none is compared as it happens to be written."""
    with dpsql.connect(policy=folder / "policy.toml") as session:
        for query in (BASE, OVER_PLANS, *(item[2] for item in PAID if "dpsql_" not in item[2])):
            prepared = inside.prepared(session, inside.planned(session, query))
            for item in prepared.asked:
                text = item.shape.text
                assert not re.search(r"dpsql_(table|input|derived|cte|block|lent)_\d", text), (query, text)


def test_a_changed_release_is_not_shown(folder: Path) -> None:
    ledger = folder / "l"
    with dpsql.connect(policy=folder / "policy.toml", ledger=ledger) as session:
        session.sql("SELECT COUNT(*) AS n FROM visits")
        session.sql("SELECT COUNT(*) AS n FROM orders")
    con = sqlite3.connect(folder / "l.d/answers")
    rows = con.execute(
        "SELECT key, release FROM answers WHERE key NOT LIKE 'asked%' ORDER BY statement"
    ).fetchall()
    con.execute("UPDATE answers SET release = ? WHERE key = ?", (rows[1][1], rows[0][0]))
    con.commit()
    con.close()
    with dpsql.connect(policy=folder / "policy.toml", ledger=ledger) as session:
        with pytest.raises(dpsql.LedgerError, match="does not fit"):
            session.sql("SELECT COUNT(*) AS n FROM visits")
        assert not paid(session, "SELECT COUNT(*) AS n FROM orders")
        assert paid(session, "SELECT COUNT(*) AS n FROM visits", fresh=True)


def test_what_was_noted_of_a_question_decides_nothing(folder: Path) -> None:
    """Whoever changes it changes a sentence, never what is free."""
    ledger = folder / "l"
    with dpsql.connect(policy=folder / "policy.toml", ledger=ledger) as session:
        session.sql(BASE)
    con = sqlite3.connect(folder / "l.d/answers")
    assert con.execute("UPDATE answers SET release = x'00ff' WHERE key LIKE 'asked %'").rowcount == 1
    con.commit()
    con.close()
    policy_with("max_rows_per_group = 3", "max_rows_per_group = 2")(folder)
    with dpsql.connect(policy=folder / "policy.toml", ledger=ledger) as session:
        assert paid(session, BASE)


# -- ledgers of older versions --------------------------------------------------------------------------------------------

OLD = Path(__file__).parent / "ledger" / "by_statement.sql"
OLD_POLICY = """
budget = { epsilon = 3, delta = 1e-6, default_epsilon = 0.25 }
[tables]
people = { privacy_unit = "id", max_rows = 1 }
"""


def test_a_ledger_that_keeps_answers_by_statement_opens_and_adds_up(tmp_path: Path) -> None:
    path = tmp_path / "old.ledger"
    con = sqlite3.connect(path)
    con.executescript(OLD.read_text())
    con.close()
    people = pa.table({"id": list(range(100)), "x": [i % 7 for i in range(100)]})
    policy = dpsql.Policy.loads(OLD_POLICY)
    with dpsql.connect({"people": people}, policy=policy, ledger=path) as session:
        assert spent(session) == Fraction(1, 2)
        entries = session.ledger()
        assert [e.outcome for e in entries] == ["released", "released"]
        assert not any(e.blocks for e in entries)
        for entry in entries:  # what it kept is still there, and fits the log
            assert session.account.replay(entry.key) is not None
        assert paid(session, "SELECT COUNT(*) AS n FROM people")  # data in no file are new in each session
        assert spent(session) == Fraction(3, 4)
    with dpsql.connect({"people": people}, policy=policy, ledger=path) as session:
        assert spent(session) == Fraction(3, 4)
        assert len(session.ledger()) == 3


def test_the_classes_that_keys_speak_of_exist() -> None:
    """A class that is renamed must take its labels along."""
    package = Path(dpsql.__file__).parent
    classes = {
        n.name
        for p in package.rglob("*.py")
        for n in ast.parse(p.read_text()).body
        if isinstance(n, ast.ClassDef)
    }
    assert block_keys._LABELS.keys() <= classes


def test_changes_through_an_open_connection_are_seen_by_the_next_session() -> None:
    """A page says so: tables of an open connection have one version a session."""
    policy = dpsql.Policy.loads(
        "budget = { epsilon = 1e6, default_epsilon = 1e3 }\ntables.t = { privacy_unit = 'u', max_rows = 1 }"
    )
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT i AS u FROM range(300) r(i)")
        with dpsql.connect(con, policy=policy) as session:
            before = session.sql("SELECT COUNT(*) FROM t").fetchall()
            con.execute("INSERT INTO t SELECT i + 1000 FROM range(300) r(i)")
            assert session.sql("SELECT COUNT(*) FROM t").fetchall() == before
        with dpsql.connect(con, policy=policy) as session:
            assert session.sql("SELECT COUNT(*) FROM t").fetchall()[0][0] > 500
