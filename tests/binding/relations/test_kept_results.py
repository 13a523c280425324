"""Kept results are public relations of later statements: with their intervals, under names that WITH and policies may take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dpsql
from tests.support.fixtures import con_fixture

POLICY = """
budget = { epsilon = 1e9, delta = 1e-3, accountant = "basic", max_epsilon_per_query = 1e6, default_epsilon = 1e5, \
    default_delta = 1e-9 }
[tables]
visits = { privacy_unit = "id", max_rows = 1, max_groups = 1, columns = { plan = { values = ["free", "full"] }, \
    cost = { bounds = [0, 100] } } }
plans = { public = true }
"""
TABLES = """
CREATE TABLE visits AS
        SELECT i AS id, CASE WHEN i % 4 = 0 THEN 'free' ELSE 'full' END AS plan, i % 90 AS cost FROM range(1000) AS t(i);
CREATE TABLE plans AS SELECT * FROM (VALUES ('free', 0), ('full', 9), ('none', 1)) AS t(plan, price);
"""
con = con_fixture(TABLES)


MADE = "SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT plan, n, price FROM out JOIN plans USING (plan) ORDER BY plan",
        "SELECT * FROM out ORDER BY n",
        "SELECT o.plan AS p, n / 2 AS half FROM out AS o ORDER BY p",
        "SELECT COUNT(*) FROM visits JOIN out USING (plan) WHERE out.n > 500",
        "SELECT out.plan, COUNT(id) AS c FROM visits RIGHT JOIN out USING (plan) GROUP BY out.plan ORDER BY ALL",
        "SELECT COUNT(*) FROM visits WHERE plan IN (SELECT plan FROM out WHERE n < 500)",
        "SELECT (SELECT MAX(n) FROM out) - COUNT(*) FROM visits WHERE plan = 'full'",
        "WITH big AS (SELECT plan FROM OUT WHERE n > 500) SELECT COUNT(*) FROM visits JOIN big USING (plan)",
        "WITH out AS (SELECT 1 AS one) SELECT * FROM out",
        "WITH out AS (SELECT plan FROM out WHERE n > 500) SELECT * FROM out",
        "SELECT n FROM out UNION ALL SELECT price FROM plans ORDER BY 1",
        "SELECT plan, SUM(n) OVER (ORDER BY plan) AS s FROM out ORDER BY plan",
        "FROM visits JOIN out USING (plan) SELECT COUNT(*) WHERE n > 500",
        "FROM plans JOIN out USING (plan) ORDER BY plan",
        "FROM (SELECT plan, COUNT(*) AS c FROM visits GROUP BY plan) AS v JOIN out USING (plan) ORDER BY plan",
    ],
)
def test_answers_are_duckdbs(session: dpsql.Session, con: duckdb.DuckDBPyConnection, text: str) -> None:
    session.sql(f"out << {MADE}")
    with con.cursor() as plain:
        plain.execute(f"CREATE TEMP TABLE out AS {MADE}")
        assert session.sql(text).fetchall() == plain.execute(text).fetchall()


def test_intervals_go_on(session: dpsql.Session) -> None:
    kept = session.sql(
        "out << SELECT WITH DP OPTIONS (epsilon = 1) plan, COUNT(*) AS n FROM visits GROUP BY plan"
    )
    for text in (
        "SELECT * FROM out",
        "SELECT plan, n FROM out AS o",
        "SELECT n, price FROM out JOIN plans USING (plan) ORDER BY n",
    ):
        again = session.sql(text)
        assert again.cost_line == "no charge"
        assert sorted(map(str, again.intervals["n"])) == sorted(map(str, kept.intervals["n"]))
    shifted = session.sql("SELECT n + 10 AS m FROM out")
    assert shifted.intervals["m"] == [(low + 10, high + 10) for low, high in kept.intervals["n"] if low]
    ends = session.sql("SELECT n__low, n__high FROM out").fetchall()
    assert ends == kept.intervals["n"]
    session.keep("again", session.sql("SELECT * FROM out"))
    assert session.sql("SELECT * FROM again").intervals == kept.intervals


def test_histograms_keep_the_intervals_of_their_bins(session: dpsql.Session) -> None:
    session.keep("bars", session.sql("SELECT HISTOGRAM(plan) AS h, COUNT(*) AS n FROM visits"))
    (made,) = session.sql("SELECT h FROM bars").intervals["h"]
    one = session.sql("SELECT h['free'] AS f, h['free'] / 2 AS half, h['free'] + h['full'] AS both FROM bars")
    (low, high), (half, _), (least, most) = (one.intervals[name][0] for name in ("f", "half", "both"))
    assert (low, high) == made["free"]
    assert half == low / 2
    assert most - least > 2 * (high - low)  # two numbers hold together
    assert one.loss == ""
    assert "h" in session.sql("WITH b AS (SELECT * FROM bars) SELECT n, h FROM b").intervals
    assert "m" not in session.sql("SELECT map_values(h)[1] AS m FROM bars").intervals
    assert not session.sql("SELECT INTERVAL_LOW(h['free']) AS l FROM bars").intervals


@pytest.mark.parametrize(
    "text",
    [
        "WITH dpsql_kept_as_out AS (SELECT 1 AS n) SELECT n FROM out UNION ALL SELECT n FROM dpsql_kept_as_out",
        "WITH dpsql_kept_as_out AS (SELECT 1 AS n), dpsql_kept_as_out_ AS (SELECT 2 AS n) "
        "SELECT n FROM out, (SELECT n AS m FROM dpsql_kept_as_out_) AS o WHERE m = 2",
        "WITH DPSQL_KEPT_AS_OUT AS (SELECT 1 AS n) SELECT n, COUNT(*) AS c FROM visits, out WHERE out.plan = visits.plan "
        "GROUP BY n",
        "WITH dpsql_kept_as_out(c) AS (VALUES (7)) SELECT n, EXPMECH(-ABS(n - COUNT(*))) OVER out FROM visits",
    ],
)
def test_names_of_ours_in_the_statement_do_no_harm(session: dpsql.Session, text: str) -> None:
    session.keep("out", session.sql(MADE))
    other = text.replace("dpsql_kept_as_out", "another").replace("DPSQL_KEPT_AS_OUT", "ANOTHER")
    assert sorted(session.sql(text)["n"]) == sorted(session.sql(other)["n"])


def test_another_level_of_confidence_stays_with_its_numbers(session: dpsql.Session) -> None:
    kept = session.sql(
        f"out << {MADE.replace('SELECT', 'SELECT WITH DP OPTIONS (epsilon = 1, confidence = 0.5)', 1)}"
    )
    again = session.sql("SELECT n FROM out")
    assert again.confidence == kept.confidence == 0.5
    assert again.intervals == kept.intervals
    both = session.sql("SELECT out.n, c FROM out CROSS JOIN (SELECT COUNT(*) AS c FROM visits)")
    assert not both.intervals


def test_later_statements_of_the_same_cell(session: dpsql.Session) -> None:
    spent = len(session.ledger())
    results = session.run(
        f"a << {MADE}; b << SELECT plan FROM a WHERE n > 500; SELECT COUNT(*) FROM visits SEMI JOIN b USING (plan)"
    )
    assert results[-1].fetchall() == [(750,)]
    assert results[1].fetchall() == [("full",)]
    chosen = session.sql(
        "c << SELECT plan FROM plans; SELECT EXPMECH(COUNT(*) FILTER (WHERE visits.plan = c.plan)) OVER c FROM visits"
    )
    assert chosen.fetchall() == [("full",)]
    assert len(session.ledger()) == spent + 3


def test_what_is_wrong_is_said_before_the_first_is_paid(session: dpsql.Session) -> None:
    for text in (
        f"a << {MADE}; SELECT nothing FROM a",
        f"a << {MADE}; visits << SELECT 1",
        "visits << SELECT COUNT(*) FROM visits",
    ):
        with pytest.raises(dpsql.Error):
            session.sql(text)
    assert not [entry for entry in session.ledger() if entry.outcome != "refused"]
    with pytest.raises(dpsql.BindError, match="there is no table a"):
        session.sql("SELECT * FROM a")


def test_names(session: dpsql.Session, con: duckdb.DuckDBPyConnection) -> None:
    text = "SELECT 1; Visits << SELECT COUNT(*) FROM visits"
    with pytest.raises(dpsql.BindError, match="private table") as caught:
        session.sql(text)
    assert caught.value.span == (text.index("Visits"), text.index("Visits") + 6)
    for name in ("visits", "VISITS", "a b", "1", "", 'x"'):
        with pytest.raises(dpsql.BindError):
            session.keep(name, session.sql("SELECT 1"))
    session.sql("plans << SELECT 'mine' AS plan")  # a public table's name may be taken
    assert session.sql("SELECT * FROM plans").fetchall() == [("mine",)]
    assert session.sql("WITH plans AS (SELECT 3 AS x) SELECT * FROM plans").fetchall() == [(3,)]
    session.sql("plans << SELECT plan || '!' AS plan FROM plans")  # it is read, then replaced
    assert session.sql("SELECT * FROM plans").fetchall() == [("mine!",)]
    listed = session.sql("SHOW TABLES").fetchall()
    assert listed == session.tables().fetchall()
    assert ("plans", "kept result", "", None, None, None) in listed
    assert session.columns("plans") == {"plan": "VARCHAR"}
    with pytest.raises(dpsql.ParseError, match="follows <<"):
        session.sql("x <<")
    with pytest.raises(dpsql.BindError, match="no answer to keep yet"), session.plan() as plan:
        plan.sql("x << SELECT 1")


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"plan": ["free"]}),
        pa.table({"plan": ["free", None], "plan_1": [1, 2]}).rename_columns(["plan", "plan"]),
    ],
)
def test_tables_of_the_analysts_own(session: dpsql.Session, table: pa.Table) -> None:
    session.keep("mine", table)
    assert session.sql("SELECT COUNT(*) FROM visits JOIN mine USING (plan)").fetchall() == [(250,)]
    with pytest.raises(dpsql.BindError, match="no table"):
        session.keep("mine", 3)


def test_a_stored_answer_belongs_to_the_content_and_not_to_the_name(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """The control of replay: the same statement over another kept result is another statement."""
    text = "SELECT COUNT(*) FROM visits JOIN out USING (plan)"
    with duckdb.connect(tmp_path / "visits.duckdb") as file:
        for name in ("visits", "plans"):
            file.register("given", con.sql(f"FROM {name}").to_arrow_table())
            file.execute(f"CREATE TABLE {name} AS FROM given")

    def asked(made: str) -> Any:
        policy = dpsql.Policy.loads(POLICY)
        with dpsql.connect(tmp_path / "visits.duckdb", policy=policy, ledger=tmp_path / "ledger") as session:
            session.sql(f"out << {made}")
            found = session.sql(text)
            return found.fetchall(), "no charge" in found.cost_line

    assert asked("SELECT 'free' AS plan") == ([(250,)], False)
    assert asked("SELECT 'full' AS plan") == ([(750,)], False)
    assert asked("SELECT 'fr' || 'ee' AS plan") == ([(250,)], True)


def test_private_rows_are_not_kept(session: dpsql.Session) -> None:
    with pytest.raises(dpsql.PrivacyError):
        session.sql("out << SELECT * FROM visits")
    assert "out" not in {row[0] for row in session.tables().fetchall()}


def test_other_modes_read_kept_results(session: dpsql.Session) -> None:
    session.sql("out << SELECT 'free' AS plan")
    text = "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 100), blocks = 4) AVG(cost) FROM visits JOIN out USING (plan)"
    assert 40 < session.sql(text).fetchall()[0][0] < 50
    text = "SELECT WITH PTR MEDIAN(cost) FROM visits JOIN out USING (plan)"
    assert len(session.sql(text)) == 1
    assert session.explain("SELECT COUNT(*) FROM visits JOIN out USING (plan)").sentences
