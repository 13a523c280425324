"""Private SELECTs in the arguments of what stands in FROM, and beside aggregates: answered, or refused with a caret."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from tests.support.fixtures import con_fixture
from tests.support.plain import policy_of

POLICY = policy_of("""
x = { bounds = [0, 50] }
""")
TABLES = """
CREATE TABLE v AS SELECT i AS id, CASE WHEN i < 40 THEN 'A' ELSE 'B' END AS w, i % 50 AS x FROM range(100) t(i);
CREATE TABLE plans AS SELECT * FROM (VALUES ('A', 10), ('B', 20)) AS t(w, price);
"""
con = con_fixture(TABLES)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x FROM UNNEST(ARRAY(SELECT {} COUNT(*) FROM v GROUP BY w)) AS t(x) ORDER BY x",
        "SELECT COUNT(*), MAX(i) FROM range((SELECT {} COUNT(*) FROM v)) AS r(i)",
        "SELECT COUNT(*) FROM generate_series(1, (SELECT {} COUNT(*) FROM v))",
        "SELECT plans.w, i FROM plans JOIN range((SELECT {} COUNT(*) FROM v WHERE w = 'A')) AS r(i) ON i = price ORDER BY ALL",
        "SELECT * FROM (VALUES ((SELECT {} COUNT(*) FROM v), 1)) AS t(x, y)",
        "VALUES ((SELECT {} COUNT(*) FROM v))",
        "SELECT (SELECT {} COUNT(*) FROM v)",
        "SELECT (SELECT {} COUNT(*) FROM v WHERE w = 'A') + 1, COUNT(*) FROM v",
        "SELECT w, COUNT(*) FROM v GROUP BY w ORDER BY w LIMIT (SELECT {} COUNT(*) - 99 FROM v)",
        "SELECT w, COUNT(*) FROM v GROUP BY w ORDER BY w OFFSET (SELECT {} COUNT(*) - 99 FROM v)",
        "SELECT x, y FROM UNNEST(ARRAY(SELECT {} COUNT(*) FROM v)) AS t(x), UNNEST([x, x + 1]) AS u(y) ORDER BY ALL",
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["WITH DP", ""])
def test_answers_are_duckdbs(
    session: dpsql.Session, con: duckdb.DuckDBPyConnection, text: str, mode: str
) -> None:
    assert session.sql(text.format(mode)).fetchall() == con.execute(text.format("")).fetchall()


def test_rows_in_arguments_are_refused_with_a_caret(session: dpsql.Session) -> None:
    text = "SELECT * FROM range((SELECT x FROM v))"
    with pytest.raises(dpsql.PrivacyError) as caught:
        session.sql(text)
    assert caught.value.span == (text.index("x FROM"), text.index("x FROM") + 1)


def test_a_probe_beside_an_aggregate(session: dpsql.Session) -> None:
    session.sql("DECLARE alarm ABOVE_THRESHOLD 50 OPTIONS (epsilon = 1000, max_hits = 3)")
    found = session.sql("SELECT (SELECT WITH alarm COUNT(*) FROM v), COUNT(*) FROM v")
    assert found.fetchall() == [(True, 100)]
    assert not any("dpsql" in name for name in found.columns)


def test_a_mode_where_no_select_begins_is_refused(session: dpsql.Session) -> None:
    with pytest.raises(dpsql.PrivacyError, match="MODE needs private rows") as caught:
        session.sql("SELECT sum(dpsql__mode('DP')) FROM plans")
    assert caught.value.span is not None
    assert session.sql("SELECT 'dpsql__mode' AS a, COUNT(*) FROM v").fetchall() == [("dpsql__mode", 100)]


@pytest.mark.parametrize("name", ['"z"""', '"order"', '"a b"', '"it\'s"'])
def test_odd_names_around_subsample(session: dpsql.Session, name: str) -> None:
    options = "OPTIONS (bounds = (0, 400), blocks = 2)"
    shown = name[1:-1].replace('""', '"')
    found = session.sql(f"SELECT WITH SUBSAMPLE {options} AVG(x) AS {name} FROM v")
    assert found.columns == [shown]
    text = (
        f"WITH {name} AS (SELECT 'A' AS w) SELECT WITH SUBSAMPLE {options} "
        f"(SELECT COUNT(*) FROM v JOIN {name} USING (w)) + MEDIAN(x) AS {name} FROM v"
    )
    assert session.sql(text).columns == [shown]


NOISY = "(SELECT w, COUNT(*) AS n FROM v GROUP BY w)"


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT * FROM (SELECT n, COUNT(*) FROM {NOISY} GROUP BY n) ORDER BY n",
        f"SELECT *, 1 AS one FROM (SELECT n::INTEGER, n + 1, COUNT(*) FROM {NOISY} GROUP BY ALL) ORDER BY ALL",
        f"WITH a AS (SELECT w, n::DOUBLE FROM {NOISY}) SELECT * FROM a ORDER BY w",
        "SELECT SUM(y) FROM (SELECT id, 'w' AS k, x AS y FROM v UNION ALL SELECT id, 'x', x FROM v)",
        "SELECT SUM(x), SUM(x_1) FROM (SELECT id, x, x * 2 AS x FROM v)",
        "SELECT SUM(x) FROM (SELECT id, x::INTEGER + 1, 'x', x, x::DOUBLE FROM v)",
        "SELECT SUM(x_1) FROM (SELECT * FROM v a JOIN v b ON a.id = b.id)",
    ],
)
def test_columns_without_a_name_and_of_one_name_are_called_as_in_duckdb(
    con: duckdb.DuckDBPyConnection, text: str
) -> None:
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
        ours, plain = session.sql(text), con.sql(text)
        assert list(ours.columns) == plain.columns
        for mine, theirs in zip(ours.fetchall(), plain.fetchall(), strict=True):
            assert mine == pytest.approx(theirs, abs=0.1)
