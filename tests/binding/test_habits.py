"""What analysts write in DuckDB out of habit is answered as plain DuckDB answers it, or named in the refusal."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dpsql
from tests.support.analyst import check_rows
from tests.support.clinic import BUDGET
from tests.support.fixtures import session_fixture

POLICY = (
    BUDGET
    + """
[tables]
v = { privacy_unit = "u", max_rows = 3, max_groups = 3, columns = { k = { values = ["a", "b", "c"] }, \
    n = { bounds = [0, 6] }, price = { bounds = [0, 1000] }, day = { bounds = [2024-01-01, 2024-12-31] } } }
pub = { public = true }
"""
)
ROWS = """CREATE TABLE v AS SELECT i // 3 AS u, i AS id, ['a', 'b', 'c'][i % 3 + 1] AS k, CASE WHEN i % 5 > 0 THEN i % 7 END AS n,
  [19.99, 29.99, 50.02][i % 3 + 1]::DOUBLE AS price, TIMESTAMP '2024-01-01' + to_hours(i::INT * 5 % 2000) AS ts,
  DATE '2024-01-01' + (i % 300)::INT AS day, i % 2 = 0 AS f, [i % 3, 1] AS l, '2024010' || (1 + i % 5) AS d,
  [{'key': 'a', 'value': {'s': 'v' || i % 2}}] AS e FROM range(600) r(i)"""

ANSWERED = """
SELECT AVG(c) FROM (SELECT a.U, k, COUNT(*) AS c FROM v AS a GROUP BY u, A.K)
SELECT AVG(c) FROM (SELECT u, date_trunc('month', v.day) AS m, COUNT(*) AS c FROM v GROUP BY U, date_trunc('month', DAY))
SELECT COUNT(*) FROM (SELECT u, SUM(price) AS s FROM v GROUP BY u) WHERE s = 100
SELECT COUNT(*) FROM v, UNNEST(e) AS y(p) WHERE y.p.value.s = 'v1'
SELECT COUNT(*) FROM v WHERE list_has_any(l, [2, 3]) AND list_has_all(l, [1])
SELECT COUNT(*) FROM v WHERE list_sum(l) = 3 OR list_max(l) = 1 OR len(list_distinct(l)) = 1 OR list_position(l, 1) = 2
SELECT COUNT(*) FROM v WHERE lpad(n::VARCHAR, 2, '0') = '03' OR rpad(k, 3, 'x') = 'axx'
SELECT COUNT(*) FROM (SELECT ROW_NUMBER() OVER w AS r FROM v WINDOW w AS (PARTITION BY u ORDER BY id)) WHERE r = 2
SELECT COUNT(*) FROM (SELECT LAST_VALUE(n) OVER (W ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS r FROM v WINDOW w AS (PARTITION BY u ORDER BY id)) WHERE r = 1
SELECT COUNT(*) FROM (SELECT SUM(n) OVER (PARTITION BY u ORDER BY id RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS s FROM v) WHERE s = 3
SELECT COUNT(*) FROM (SELECT SUM(n) OVER (PARTITION BY u ORDER BY id RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS s FROM v) WHERE s > 9
SELECT COUNT(*) FROM (SELECT COUNT(*) OVER (PARTITION BY u ORDER BY f GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM v) WHERE s = 2
SELECT COUNT(*) FROM (SELECT SUM(n) OVER (PARTITION BY u ORDER BY ts RANGE BETWEEN INTERVAL 6 HOURS PRECEDING AND CURRENT ROW) AS s FROM v) WHERE s = 3
SELECT COUNT(*) FROM (SELECT COUNT(*) OVER (PARTITION BY u ORDER BY day RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND INTERVAL 1 DAY FOLLOWING) AS s FROM v) WHERE s = 3
SELECT COUNT(*) FROM (SELECT SUM(price) OVER (PARTITION BY u ORDER BY id) AS s FROM v) WHERE s = 49.98
SELECT COUNT(*) FROM (SELECT SUM(price) OVER (PARTITION BY u) AS s FROM v) WHERE s >= 100
SELECT AVG(a) FROM (SELECT AVG(price) OVER (PARTITION BY u) AS a FROM v)
SELECT COUNT(*) FROM (SELECT LAG(n IGNORE NULLS) OVER (PARTITION BY u ORDER BY id) AS s FROM v) WHERE s = 3
SELECT COUNT(*) FROM (SELECT LAG(n, 1, 0) OVER (PARTITION BY u ORDER BY id) AS r FROM v) WHERE r = 0
SELECT COUNT(*) FROM (SELECT NTILE(2) OVER (PARTITION BY u ORDER BY id) AS r FROM v) WHERE r = 1
SELECT COUNT(*) FROM (SELECT NTH_VALUE(n, 2) OVER (PARTITION BY u ORDER BY id) AS r FROM v) WHERE r = 1
SELECT COUNT(*) FROM (SELECT PERCENT_RANK() OVER (PARTITION BY u ORDER BY id) AS r, CUME_DIST() OVER (PARTITION BY u ORDER BY id) AS c FROM v) WHERE r = 0.5 AND c < 1
SELECT COUNT(*) FROM (SELECT DISTINCT u, FIRST_VALUE(k) OVER (PARTITION BY u ORDER BY id DESC) AS k FROM v) WHERE k = 'c'
SELECT COUNT(*) FROM (SELECT u, bool_or(f) AS b, bool_and(f) AS c FROM v GROUP BY u) WHERE b AND NOT c
SELECT COUNT(*) FROM (SELECT u, bool_or(n > 5) FILTER (WHERE f) AS b FROM v GROUP BY u HAVING bool_or(f)) WHERE b
SELECT COUNT(*) FROM (SELECT u, FIRST(k ORDER BY ts DESC, id) AS k FROM v GROUP BY u) WHERE k = 'c'
SELECT COUNT(*) FROM (SELECT u, LAST(n ORDER BY id) AS n FROM v GROUP BY u) WHERE n IS NULL
SELECT COUNT(*) FROM (SELECT u, ANY_VALUE(l) AS l, ANY_VALUE(u) AS w FROM v GROUP BY u) WHERE w >= 0
SELECT REGR_COUNT(price, n), COUNT(*) FROM v GROUP BY ()
SELECT COUNT(*) FROM v WHERE l = [2, 1] OR l[1:1] IN ([1], [7]) OR [0, NULL] = l
SELECT favg(n), fsum(n) FROM v
SELECT COUNT(DISTINCT (k, n)), COUNT(DISTINCT (k, f)) FROM v
SELECT COUNT(*) FROM v WHERE (k, n) IN (('a', 1), ('b', 2), ('c', NULL)) OR (k, f) = ('b', TRUE)
SELECT COUNT(*) FROM v WHERE (k, n) NOT IN (('a', 1)) AND (k, n) <> ('b', NULL)
SELECT AVG(COLUMNS(['price', 'n'])) FROM v
SELECT MAX(COLUMNS('^pri')) - 1 FROM v
SELECT COUNT(*) FROM (SELECT COLUMNS(['k', 'n']) FROM v) WHERE n = 1
SELECT COUNT(*) FROM v WHERE day + INTERVAL (1) DAY = '2024-01-03' OR day - INTERVAL (-2) DAY = '2024-02-03'
SELECT k, COUNT(*) FROM v GROUP /* by */ BY k ORDER -- by
 BY k
"""  # noqa: E501
CASES = ANSWERED.replace("\n BY", "¶ BY").strip().split("\n")


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(ROWS)
    con.execute("CREATE TABLE pub AS SELECT * FROM (VALUES ('a', 1), ('b', 2)) p(k, w)")
    return con


session = session_fixture(POLICY)


@pytest.mark.parametrize("text", CASES)
def test_answers_are_plain_duckdbs(con: duckdb.DuckDBPyConnection, session: dpsql.Session, text: str) -> None:
    text = text.replace("¶", "\n")
    check_rows(session.sql(text).fetchall(), con.cursor().execute(text).fetchall())


def test_a_table_is_created_of_an_answer(session: dpsql.Session) -> None:
    made = session.sql("CREATE OR REPLACE TEMP TABLE counts AS SELECT k, COUNT(*) AS n FROM v GROUP BY k")
    assert session.sql("SELECT SUM(n) FROM counts").fetchall() == [(sum(n for _, n in made.fetchall()),)]
    assert session.sql("DESCRIBE counts").fetchall()[0][:2] == ("k", "VARCHAR")
    with pytest.raises(dpsql.BindError, match="private table"):
        session.sql("CREATE TABLE v AS SELECT COUNT(*) FROM v")
    with pytest.raises(dpsql.ParseError, match="CREATE VIEW is not a statement"):
        session.sql("CREATE VIEW counts AS SELECT COUNT(*) FROM v")


def test_a_table_is_described_by_public_facts(session: dpsql.Session) -> None:
    before = session.budget().spent
    rows = {row[0]: row for row in session.sql("DESCRIBE main.V").fetchall()}
    assert rows["u"][5] == "privacy unit"
    assert rows["k"][1:] == ("VARCHAR", "YES", None, None, "values a, b, c")
    assert rows["day"][5] == "bounds 2024-01-01 to 2024-12-31"
    assert session.sql("DESC v").fetchall() == session.sql("DESCRIBE TABLE v").fetchall() == [*rows.values()]
    found = {row[0]: row for row in session.sql("SUMMARIZE v").fetchall()}
    assert found["n"][2:5] == ("0", "6", None)
    assert (found["u"][5], found["k"][4:]) == ("yes", (3, None, "a, b, c"))
    assert found["id"][2:] == (None,) * 5  # its extremes are the rows' own
    assert session.sql("DESCRIBE").fetchall() == session.sql("SHOW TABLES").fetchall()
    assert session.budget().spent == before
    with pytest.raises(dpsql.BindError, match="there is no table w"):
        session.sql("DESCRIBE w")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT\u200b COUNT(*) FROM v", "zero width space (U+200B)"),
        ("SELECT COUNT(*) FROM v WHERE k = ‘a’", "‘ is a typographic quote"),
        ("SELECT COUNT(*) AS “n” FROM v", "“ is a typographic quote"),
        ("SELECT COUNT(*) FROM v \u2060WHERE f", "word joiner (U+2060)"),
        ("SELECT COUNT(*) FROM v /* open /* closed */", "a comment does not end"),
    ],
)
def test_signs_that_look_like_others_are_named(session: dpsql.Session, text: str, said: str) -> None:
    with pytest.raises(dpsql.ParseError) as caught:
        session.sql(text)
    assert said in caught.value.message
    assert caught.value.span is not None


def test_a_pasted_mark_and_other_spaces_are_read(session: dpsql.Session) -> None:
    text = "\ufeffSELECT\u00a0COUNT(*)\u3000FROM v WHERE d <> '‘\u200b’' /* “ /* \u200b */ ” */ -- ’"
    assert session.sql(text).fetchall() == [(600,)]


NAMES = ["तालिका", "テーブル", "جدول", "表", "Größe", "ตาราง", "می\u200cخواهم", "naïve_2", "таблица", "😀"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_of_any_script(name: str, tmp_path: Path) -> None:
    con = duckdb.connect()
    con.execute(f'CREATE TABLE "{name}" AS SELECT i AS "{name}", i % 2 AS "{name}2" FROM range(300) r(i)')
    table = f'[tables."{name}"]\nprivacy_unit = "{name}"\nmax_rows = 1\n'
    policy = f'{BUDGET}\n{table}[tables."{name}".columns]\n"{name}2" = {{ bounds = [0, 1] }}\n'
    with dpsql.connect(con, policy=dpsql.Policy.loads(policy), ledger=tmp_path / "ledger") as session:
        text = f'SELECT COUNT(*), SUM({name}2) AS {name} FROM {name} AS {name} WHERE {name}.{name}2 >= 0 AND "{name}" >= 0'
        assert session.sql(text).fetchall() == con.execute(text).fetchall()
        kept = session.sql(f"CREATE TABLE x AS SELECT COUNT(*) AS {name} FROM {name}")
        assert kept.columns[0] == name
