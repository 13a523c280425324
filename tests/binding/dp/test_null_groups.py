"""Groups of rows whose column is NULL: those that a key gives a name, those without a name, and totals over all rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pytest

import dpsql
from tests.support.fixtures import con_fixture, session_fixture

POLICY = """
[budget]
epsilon = 1e12
delta = 0.1
accountant = "basic"
default_epsilon = 1e8
[tables.t]
privacy_unit = "u"
max_rows = 1
max_groups = 3
[tables.t.columns]
k = { values = ["a", "b"] }
n = { bounds = [1, 4] }
x = { bounds = [0, 10] }
d = { bounds = [2024-01-01, 2024-01-05] }
[tables.o]
privacy_unit = "u"
max_rows = 2
max_groups = 3
[tables.o.columns]
k2 = { values = ["a", "b"] }
n2 = { bounds = [1, 4] }
[tables.pub]
public = true
"""
DATA = """
CREATE TABLE t AS SELECT i AS u, [NULL, 'a', 'b'][i % 3 + 1] AS k, i % 4 = 0 AS f, CASE WHEN i % 5 > 0 THEN i % 5 END AS n,
    1.0 * (i % 7) AS x, CASE WHEN i % 3 > 0 THEN i % 3 = 1 END AS g,
    CASE WHEN i % 4 > 0 THEN DATE '2024-01-01' + (i % 3)::INT END AS d FROM range(300) r(i);
CREATE TABLE o AS SELECT i AS u, ['a', 'b'][i % 2 + 1] AS k2, i % 3 = 0 AS g2, i % 4 + 1 AS n2 FROM range(100, 240) r(i);
CREATE TABLE pub AS SELECT * FROM (VALUES ('a', 1), ('b', 2)) v(k, w);
"""


con = con_fixture(DATA)
session = session_fixture(POLICY, ledger=True)


NAMED = [
    "COALESCE(k, '?')", "IFNULL(k, '?')", "k IS NULL", "k IS NOT NULL", "CASE WHEN k = 'a' THEN 'A' ELSE 'other' END",
    "CASE k WHEN 'a' THEN 1 WHEN 'b' THEN 2 ELSE 0 END", "concat('s:', k)", "concat_ws('-', k, 'z')", "COALESCE(upper(k), '?')",
    "COALESCE(k, 'a')", "k IS DISTINCT FROM 'a'", "greatest(k, 'b')", "IF(k IS NULL, 1, 2)", "k = 'a' OR k IS NULL",
    "COALESCE(n, -1)", "COALESCE(n + 1, -1)", "n IS NULL", "CASE WHEN n > 2 THEN 'hi' ELSE 'lo' END", "COALESCE(n // 2, 9)",
    "CASE WHEN n IS NULL THEN 'none' WHEN n > 2 THEN 'hi' ELSE 'lo' END", "greatest(n, 2)", "d IS NULL", "COALESCE(month(d), 0)",
    "CASE WHEN d < DATE '2024-01-02' THEN 'early' ELSE 'late' END", "COALESCE(d, DATE '2000-01-01')",
    "COALESCE(strftime(d, '%m'), 'x')", "COALESCE(g, FALSE)", "g IS NULL", "g IS NOT TRUE",
    "CASE WHEN g THEN 'y' WHEN NOT g THEN 'n' ELSE 'u' END", "COALESCE(k, n::VARCHAR, 'none')", "COALESCE(floor(x), -1)",
]  # fmt: skip
PLACES = [
    "SELECT {} AS q, COUNT(*) FROM t GROUP BY 1",
    "SELECT {} AS q, COUNT(*) FROM t WHERE k IS NULL OR k = 'a' GROUP BY q",
    "SELECT {} AS q, COUNT(*) FROM t GROUP BY ROLLUP (q)",
    "SELECT {} AS q, COUNT(*) FROM t GROUP BY q HAVING COUNT(*) > 70",
    "SELECT COUNT(*), SUM(c) FROM (SELECT {} AS q, COUNT(*) AS c FROM t GROUP BY q) WHERE c > 0",
]


def filled(rows: list[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
    return Counter(row for row in rows if row[-1] != 0)


@pytest.mark.parametrize("key", NAMED)
def test_a_key_that_names_null_has_that_group(
    session: dpsql.Session, con: duckdb.DuckDBPyConnection, key: str
) -> None:
    for place in PLACES:
        text = place.format(key)
        assert filled(session.sql(text).fetchall()) == Counter(con.execute(text).fetchall()), text


@pytest.mark.parametrize(
    ("key", "column"),
    [
        ("n + 1", "n"), ("n", "n"), ("upper(k)", "k"), ("k || 'x'", "k"), ("g", "g"), ("d", "d"),
        ("date_trunc('quarter', d)", "d"),
    ],
)  # fmt: skip
def test_a_key_without_a_name_for_null_says_so(
    session: dpsql.Session, con: duckdb.DuckDBPyConnection, key: str, column: str
) -> None:
    result = session.sql(f"SELECT {key} AS q, COUNT(*) FROM t GROUP BY 1")
    plain = con.execute(f"SELECT {key} AS q, COUNT(*) FROM t GROUP BY 1").fetchall()
    assert filled(result.fetchall()) == Counter(row for row in plain if row[0] is not None)
    assert any("is NULL are in no group" in note for note in result.notes)
    there = session.sql(f"SELECT {key} AS q, COUNT(*) FROM t WHERE {column} IS NOT NULL GROUP BY 1")
    assert not any("is NULL are in no group" in note for note in there.notes)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k2, COUNT(*) FROM t LEFT JOIN o USING (u) GROUP BY k2",
        "SELECT o.k2, COUNT(*) FROM o RIGHT JOIN t ON t.u = o.u GROUP BY 1",
        "SELECT upper(k2) AS q, COUNT(*) FROM t LEFT JOIN o USING (u) GROUP BY q",
        "SELECT g2, k2, COUNT(*) FROM t LEFT JOIN o USING (u) GROUP BY ALL",
        "SELECT n2, COUNT(*) FROM t LEFT JOIN o USING (u) GROUP BY n2",
        "SELECT k2, COUNT(*) FROM t LEFT JOIN o USING (u) GROUP BY ROLLUP (k2)",
        "SELECT k2, COUNT(*) FROM t LEFT JOIN o USING (u) WHERE k2 IS NULL OR k2 = 'a' GROUP BY k2",
        "SELECT k2, COUNT(*) FROM t LEFT JOIN o USING (u) WHERE k2 <> 'a' GROUP BY k2",
        "SELECT k2, COUNT(*) FROM (SELECT t.u, k2 FROM t LEFT JOIN o ON t.u = o.u) GROUP BY k2",
    ],
)
def test_rows_without_a_match_in_an_outer_join_have_a_group(
    session: dpsql.Session, con: duckdb.DuckDBPyConnection, text: str
) -> None:
    result = session.sql(text)
    assert filled(result.fetchall()) == Counter(con.execute(text).fetchall())
    assert not any("is NULL are in no group" in note for note in result.notes)


def test_totals_of_cells_that_add_up_are_of_all_rows(
    session: dpsql.Session, con: duckdb.DuckDBPyConnection
) -> None:
    for items, sets in (
        ("k", "ROLLUP (k)"),
        ("k, n", "CUBE (k, n)"),
        ("k, n", "ROLLUP (n, k)"),
        ("g, k", "CUBE (g, k)"),
    ):
        for kind in ("TRUE", "NONNEGATIVE"):
            for strategy in ("", ", strategy = EVEN"):
                rest = f"{items}, COUNT(*), SUM(x) FROM t GROUP BY {sets}"
                ours = session.sql(
                    f"SELECT WITH DP OPTIONS (consistent = {kind}{strategy}) {rest}"
                ).fetchall()
                theirs = Counter(con.execute(f"SELECT {rest}").fetchall())
                assert not Counter(row for row in ours if row[-2]) - theirs, (sets, kind)
                assert max(n for *_, n, _ in ours) == 300


def test_groups_that_hold_every_row_add_up_under_noise(tmp_path: Path) -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i AS u, ['a', 'b'][i % 2 + 1] AS k FROM range(300) r(i)")
    policy = dpsql.Policy.loads(POLICY.partition("n = {")[0])
    with dpsql.connect(con, policy=policy, ledger=tmp_path / "ledger") as session:
        for _ in range(5):
            text = "SELECT WITH DP OPTIONS (epsilon = 0.5, consistent = TRUE) k, COUNT(*) FROM t GROUP BY ROLLUP (k)"
            found = dict(session.sql(text, fresh=True).fetchall())
            assert found[None] == found["a"] + found["b"]


def test_a_note_is_given_once_for_all_grouping_sets(session: dpsql.Session) -> None:
    result = session.sql("SELECT k, f, AVG(x) FROM t WHERE x > 100 GROUP BY GROUPING SETS ((k), (f), ())")
    assert any("are NULL" in note for note in result.notes)
    assert len(result.notes) == len(set(result.notes))
