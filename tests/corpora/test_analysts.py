# ruff: noqa: E501 - tables are easier to read when each statement has its own line
"""Statements as analysts write them, by kind: answered as plain DuckDB answers, or refused with a hint that works.

The kinds are those of public text-to-SQL benchmarks, dbt projects, cookbooks and analytics that were once answered wrongly,
or refused although an answer could be private.
"""

from __future__ import annotations

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
t = { privacy_unit = "u", max_rows = 1, max_groups = 3, columns = { k = { values = ["a", "b"] }, \
    n = { bounds = [1, 4] }, x = { bounds = [0, 10] }, day = { bounds = [2024-01-01, 2024-01-31] } } }
pub = { public = true }
"""
)
ROWS = """CREATE TABLE t AS SELECT i AS u, [NULL, 'a', 'b'][i % 3 + 1] AS k, i % 4 = 0 AS f, CASE WHEN i % 5 > 0 THEN i % 5 END AS n,
  1.0 * (i % 7) AS x, '2024010' || (1 + i % 5) AS d, DATE '2024-01-01' + (i % 3)::INT AS day,
  TIMESTAMPTZ '2024-01-01 00:00:00+00' + to_hours(i) AS z, ('{"p": "' || ['a', 'b'][i % 2 + 1] || '", "a.b": [' || i % 3 || ']}')::JSON AS j,
  MAP {'os': 'x', 'id': 'v' || i % 4} AS m, [i % 3, 1] AS l, [{'key': 'a', 'value': {'s': 'v' || i % 2}}] AS e, i % 10 AS boss,
  CASE WHEN i % 6 = 0 THEN 'no JSON' ELSE '{"n": ' || i % 5 || '}' END AS raw FROM range(300) r(i)"""
PUBLIC = "CREATE TABLE pub AS SELECT * FROM (VALUES ('a', 1, DATE '2020-01-01'), ('b', 2, DATE '2021-01-01')) v(k, w, since)"

WRONG = """
SELECT COALESCE(n, 0) AS k, COUNT(*) FROM t GROUP BY 1
SELECT COALESCE(CASE WHEN f THEN day END, DATE '2024-01-05') AS k, COUNT(*) FROM t GROUP BY 1
SELECT COALESCE(n > 2, FALSE) AS k, COUNT(*) FROM t GROUP BY 1
SELECT WITH DP OPTIONS (consistent = TRUE) k, COUNT(*) FROM t GROUP BY ROLLUP (k) HAVING GROUPING(k) = 1 ||| SELECT NULL, COUNT(*) FROM t
SELECT COUNT(*) FROM t WHERE regexp_replace(d, '0', '', 'g') = '2241'
SELECT COUNT(*) FROM (SELECT u, SUM(n) AS s FROM t GROUP BY u) WHERE s // 2 = 1
SELECT COUNT(*) FROM (SELECT u, SUM(n) AS s FROM t GROUP BY u) WHERE s::VARCHAR = '2'
SELECT COUNT(*) FROM (SELECT u, SUM(n) AS s FROM t GROUP BY u) WHERE s & 1 = 1
SELECT (s // 2) * 2 AS b, COUNT(*) FROM (SELECT u, SUM(n) AS s FROM t GROUP BY u) GROUP BY 1
SELECT COUNT(*) FROM (SELECT SUM(n) OVER (PARTITION BY u) AS s FROM t) WHERE s // 2 = 1
SELECT COUNT(*) FROM (SELECT u, SUM(x) AS s FROM t GROUP BY u HAVING SUM(x) >= 5)
SELECT HISTOGRAM(u::HUGEINT, [CAST(1 AS UTINYINT)]) FROM t
"""
"""Once answered wrongly."""


KINDS: dict[str, str] = {
    "names": """
SELECT AVG(c) FROM (SELECT t.u, COUNT(*) AS c FROM t GROUP BY u)
SELECT AVG(c) FROM (SELECT u, COUNT(*) AS c FROM t GROUP BY U)""",
    "fields": "SELECT COUNT(*) FROM t, UNNEST(e) AS y(p) WHERE p.value.s = 'v1'",
    "zones": """
SELECT COUNT(*) FROM t WHERE z >= '2024-01-05T00:00:00Z'
SELECT COUNT(*) FROM t WHERE z AT TIME ZONE 'America/New_York' < TIMESTAMP '2024-01-05'""",
    "JSON": """
SELECT COUNT(*) FROM t WHERE j->>'p' = 'a'
SELECT COUNT(*) FROM t WHERE j->>'$.p' = 'a'
SELECT COUNT(*) FROM t WHERE j::VARCHAR::JSON->>'p' = 'a' OR json(j::VARCHAR)->>'p' = 'b'
SELECT COUNT(*) FROM t WHERE (j->'p') = '"a"'
SELECT COUNT(*) FROM t WHERE json_extract_string(j, '$.p') = 'a' AND json_extract_string(j, 'p') = 'a'
SELECT COUNT(*) FROM t WHERE j->'a.b'->>0 = '2'
SELECT COUNT(*) FROM t WHERE json_extract(j, '$."a.b"[0]')::INT = 1
SELECT j->>'p' AS p, COUNT(*) FROM t WHERE j->>'p' IN ('a', 'b') GROUP BY 1
SELECT COUNT(*) FROM t WHERE (raw->>'n')::INT = 2 ||| SELECT COUNT(*) FROM t WHERE TRY_CAST(CASE WHEN json_valid(raw) THEN raw->>'n' END AS INT) = 2
SELECT COUNT(*) FROM t WHERE length(j) > 10""",
    "maps": """
SELECT COUNT(*) FROM t WHERE m['os'] = 'x' AND m['id'] = 'v1'
SELECT COUNT(*) FROM t WHERE m['none'] IS NULL AND map_extract(m, 'id')[1] = 'v2'
SELECT COUNT(*) FROM t WHERE element_at(m, 'id')[1] = 'v2' OR map_extract_value(m, 'id') = 'v3'
SELECT COUNT(*) FROM t WHERE map_contains(m, 'os') AND cardinality(m) = 2
SELECT COUNT(*) FROM t WHERE list_contains(map_keys(m), 'os') AND list_contains(map_values(m), 'v1')
SELECT m['id'] AS v, COUNT(*) FROM t WHERE m['id'] IN ('v1', 'v2') GROUP BY 1
SELECT COUNT(*) FROM (SELECT * FROM t) WHERE m['id'] = 'v1'""",
    "lists": """
SELECT COUNT(*) FROM t WHERE list_has_any(l, [2, 3]) OR l && [0]
SELECT COUNT(*) FROM t WHERE list_sum(l) = 2 AND list_avg(l) = 1 AND list_count(l) = 2
SELECT COUNT(*) FROM t WHERE list_contains(l, 2) OR 0 IN l
SELECT COUNT(*) FROM t WHERE list_first(l) = 1 AND list_last(l) = 1 AND list_any_value(l) = 1 AND list_min(l) = 1""",
    "lambdas": """
SELECT COUNT(*) FROM t WHERE len(list_filter(l, lambda y : y > 1)) = 1
SELECT COUNT(*) FROM t WHERE len(list_filter(l, y -> y > 1)) = 1 ||| SELECT COUNT(*) FROM t WHERE len(list_filter(l, lambda y : y > 1)) = 1
SELECT COUNT(*) FROM t WHERE list_contains(list_transform(l, lambda Y : y + 1), 3)
SELECT COUNT(*) FROM t WHERE list_sum(list_transform(l, lambda y, i : y * i)) = 4
SELECT COUNT(*) FROM t WHERE len(list_filter(l, lambda y : y = n OR y = t.n + 1)) = 1
SELECT COUNT(*) FROM t WHERE list_contains(list_transform(e, lambda y : y.value.s), 'v1')
SELECT COUNT(*) FROM t WHERE len(list_filter(e, lambda y : y['value'].s = 'v1')) = 1
SELECT COUNT(*) FROM t WHERE len(list_filter(string_split(d, '0'), lambda part : part LIKE '2%')) = 2
SELECT COUNT(*) FROM t WHERE list_sum([y + 1 FOR y IN l IF y > 1]) = 3 OR len([y FOR y IN l]) = 1""",
    "times": """
SELECT COUNT(*) FROM t WHERE make_timestamp(2024, n, 1, 0, 0, 0) >= '2024-02-01'
SELECT COUNT(*) FROM t WHERE epoch_ms(z) > 1704067200000
SELECT COUNT(*) FROM t WHERE to_timestamp(u) >= '1970-01-01 00:01:00+00'
SELECT COUNT(*) FROM t WHERE strptime(d, '%Y%m%d') = '2024-01-03' OR try_strptime(d, '%Y%m%d') = '2024-01-04'""",
    "aggregates of a person": """
SELECT COUNT(*) FROM (SELECT u, ARG_MIN(k, day) AS b FROM t GROUP BY u) WHERE b = 'a'""",
    "derived bounds": """
SELECT AVG(s / c) FROM (SELECT u, SUM(n) AS s, COUNT(*) AS c FROM t GROUP BY u)
SELECT SUM(x * w) FROM t JOIN pub USING (k)
SELECT SUM(x * w) FROM t JOIN (VALUES ('a', 2.5), ('b', -3)) v(k, w) USING (k)""",
    "plain spellings": """
SELECT APPROX_TOP_K(k, 2) FROM t WHERE k = 'a' OR (k = 'b' AND f)
WITH s AS (SELECT * FROM t WHERE n = 1 OR (n = 3 AND f)) SELECT approx_top_k(n, 1) AS top FROM s""",
    "intervals": """
SELECT COUNT(*) FROM t WHERE day + INTERVAL '7' DAY = '2024-01-08' OR day + INTERVAL '1 day' = '2024-01-03'
SELECT COUNT(*) FROM t WHERE day + to_days(n::INT) > '2024-01-03' AND day - to_months(1) < '2023-12-03'
SELECT COUNT(*) FROM t WHERE day + INTERVAL (n) DAY > '2024-01-03'""",
    "comments": """
SELECT /* c */ WITH /* d */ DP /* e */ OPTIONS /* f */ (/* g */ epsilon /* h */ = 1e6) COUNT(*) FROM t ||| SELECT COUNT(*) FROM t""",
    "pivots": """
PIVOT t ON k IN ('a', 'b') USING SUM(n) GROUP BY f ORDER BY 1
PIVOT (SELECT k, n, f FROM t WHERE k IS NOT NULL) ON k USING SUM(n) ORDER BY 1""",
    "kept results": "CREATE OR REPLACE TEMP TABLE made AS SELECT WITH DP COUNT(*) AS n FROM t ||| SELECT COUNT(*) FROM t",
    "descriptions": "DESCRIBE pub",
    "today": """
SELECT COUNT(*) FROM t WHERE day >= CURRENT_DATE - INTERVAL 90 DAY
SELECT COUNT(*) FROM t WHERE z >= now() - INTERVAL 90 DAY AND day < date_trunc('month', CURRENT_TIMESTAMP)""",
}
"""Once refused although an answer could be private."""

ADVISED = [
    ("a moment without a zone", "SELECT COUNT(*) FROM t WHERE z >= '2024-01-05'", "'2024-01-05T00:00:00Z'", "SELECT COUNT(*) FROM t WHERE z >= '2024-01-05T00:00:00Z'"),
    ("a day without a zone", "SELECT COUNT(*) FROM t WHERE z::DATE = '2024-01-05'", "(z AT TIME ZONE 'UTC')", "SELECT COUNT(*) FROM t WHERE (z AT TIME ZONE 'UTC')::DATE = '2024-01-05'"),
    ("a public column that the key determines", "SELECT k, ANY_VALUE(since), COUNT(*) FROM t JOIN pub USING (k) GROUP BY k", "SELECT k, since, COUNT(*) FROM t JOIN pub USING (k) GROUP BY k, since", "SELECT k, since, COUNT(*) FROM t JOIN pub USING (k) GROUP BY k, since"),
    ("any value of people", "SELECT ANY_VALUE(d) FROM t", "SELECT d, COUNT(*) FROM t GROUP BY d", "SELECT d, COUNT(*) FROM t GROUP BY d"),
    ("the first of people", "SELECT k, FIRST(n) FROM t WHERE k = 'a' GROUP BY 1", "SELECT k, n, COUNT(*) FROM t WHERE k = 'a' GROUP BY k, n", "SELECT n, COUNT(*) FROM t WHERE k = 'a' AND n > 0 GROUP BY n"),
    ("ranks over everybody", "SELECT q, AVG(x) FROM (SELECT NTILE(2) OVER (ORDER BY x) AS q, x FROM t) GROUP BY q", "SELECT QUANTILE_CONT(x, 0.5)", "SELECT CASE WHEN x < 3 THEN 1 ELSE 2 END AS q, AVG(x) FROM t GROUP BY 1"),
    ("people who meet others", "SELECT COUNT(*) FROM t AS a JOIN t AS b ON a.boss = b.u", "no policy lets", "SELECT COUNT(*) FROM t AS a JOIN t AS b ON a.u = b.u"),
    ("a bound that is missing", "SELECT AVG(length(d)) FROM t", "AVG(LENGTH(d), contribution_bounds_per_row => AUTO)", ""),
    ("files", "COPY (SELECT COUNT(*) FROM t) TO 'x.csv'", "data frame", "SELECT COUNT(*) FROM t"),
    ("the information schema", "SELECT column_name FROM information_schema.columns WHERE table_name = 't'", "DESCRIBE", "DESCRIBE pub"),
    ("random rows", "SELECT COUNT(*) FROM t WHERE random() < 0.1", "aggregate all rows", "SELECT COUNT(*) FROM t"),
    ("samples", "SELECT COUNT(*) FROM t USING SAMPLE 10%", "aggregate all rows", "SELECT COUNT(*) FROM t"),
    ("truths of people", "SELECT bool_or(f) FROM t", "COUNT_IF(f) > 0", "SELECT COUNT_IF(f) > 0 FROM t"),
    ("rows of a pivot", "PIVOT t ON k USING SUM(n) ORDER BY 1", "(SELECT k, n FROM t)", "PIVOT (SELECT k, n FROM t WHERE k IS NOT NULL) ON k USING SUM(n)"),
]  # fmt: skip
"""Refused: the statement, what the hint says, and a statement that follows it (none: its answer has noise of its own)."""


def lines(text: str) -> list[str]:
    return [line for line in text.strip().split("\n") if line]


ANSWERED = [line for text in (WRONG, *KINDS.values()) for line in lines(text)]


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    con.execute(ROWS)
    con.execute(PUBLIC)
    return con


session = session_fixture(POLICY)


@pytest.mark.parametrize("text", ANSWERED)
def test_answers_are_plain_duckdbs(con: duckdb.DuckDBPyConnection, session: dpsql.Session, text: str) -> None:
    mine, _, plain = text.partition(" ||| ")
    check_rows(session.sql(mine).fetchall(), con.cursor().execute(plain or mine).fetchall())


@pytest.mark.parametrize(
    ("text", "said", "instead"), [case[1:] for case in ADVISED], ids=[case[0] for case in ADVISED]
)
def test_hints_lead_to_an_answer(
    con: duckdb.DuckDBPyConnection, session: dpsql.Session, text: str, said: str, instead: str
) -> None:
    with pytest.raises(dpsql.Error) as caught:
        session.sql(text)
    assert said in (caught.value.hint or "")
    if instead:
        check_rows(session.sql(instead).fetchall(), con.cursor().execute(instead).fetchall())


def test_a_kept_result_says_so(session: dpsql.Session) -> None:
    result = session.sql("CREATE TABLE counts AS SELECT k, COUNT(*) AS n FROM t GROUP BY k")
    assert any("kept as counts" in note for note in result.notes)
    assert "counts" in [row[0] for row in session.sql("SHOW TABLES").fetchall()]


def test_filtered_counts_have_names_of_their_own(session: dpsql.Session) -> None:
    text = "SELECT COUNT(*) FILTER (WHERE f), COUNT(*) FILTER (WHERE n > 2) FROM t"
    named = ["count_star() FILTER (WHERE f)", "count_star() FILTER (WHERE n > 2)"]
    assert list(session.sql(text).columns) == named


def test_stored_json_that_is_none_counts_as_missing() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i AS u, '{\"p\": 1}' AS j FROM range(300) r(i)")
    policy = dpsql.Policy.loads(f'{BUDGET}\n[tables.t]\nprivacy_unit = "u"\nmax_rows = 1\n')
    for bad in ("no JSON", "{", '{"p": "\\ud800"}', "[" * 9_000):
        con.execute("UPDATE t SET j = ? WHERE u = 7", [bad])
        with dpsql.connect(con, policy=policy) as session:
            assert session.sql("SELECT COUNT(*) FROM t WHERE j->>'p' = '1'").fetchall() == [(299,)]
