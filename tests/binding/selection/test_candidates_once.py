"""EXPMECH asks each candidate once: winners are distinct, however often the list holds a value."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql

POLICY = """
budget = { epsilon = 1e12, accountant = "basic", default_epsilon = 1e8 }
[tables]
t = { privacy_unit = "u", max_rows = 1 }
pub = { public = true }
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dpsql.Session]:
    con = duckdb.connect()
    n = "CASE WHEN i < 100 THEN 1 WHEN i < 150 THEN 2 ELSE 3 END"
    con.execute(f"CREATE TABLE t AS SELECT i AS u, {n} AS n FROM range(160) r(i)")
    con.execute("CREATE TABLE pub AS SELECT * FROM (VALUES (3), (1), (1), (2), (2), (1)) v(n)")
    ledger: Path = tmp_path_factory.mktemp("once") / "ledger"
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY), ledger=ledger) as made:
        yield made


VALUES = "WITH c(v) AS (VALUES (3), (1), (1), (2), (NULL), (2), (1), (NULL))"


@pytest.mark.parametrize("method", ["exponential", "permute_and_flip", "noisy_max", "gumbel"])
def test_winners_are_distinct(session: dpsql.Session, method: str) -> None:
    text = f"{VALUES} SELECT EXPMECH(COUNT(*) FILTER (WHERE n = v), top => 3, method => '{method}') OVER c FROM t"
    won = [v for (v,) in session.sql(text).fetchall()]
    assert sorted(won) == [1, 2, 3]
    assert method == "gumbel" or won == [1, 2, 3]


@pytest.mark.parametrize(
    ("listed", "many"), [("(1), (2), (2), (3)", 3), ("(1), (2), (3), (4)", 4), ("(NULL), (1), (1)", 2)]
)
def test_lists_in_order(session: dpsql.Session, listed: str, many: int) -> None:
    text = f"WITH c(v) AS (VALUES {listed}) SELECT EXPMECH(COUNT(*) FILTER (WHERE n = v), top => 2) OVER c FROM t"
    assert f"of {many} candidates" in str(session.explain(text))
    assert [v for (v,) in session.sql(text).fetchall()][:1] == [1]


def test_lists_of_chance_are_drawn_anew(session: dpsql.Session) -> None:
    text = "WITH c(v) AS (SELECT random()) SELECT EXPMECH(COUNT(*) FILTER (WHERE n >= v)) OVER c FROM t"
    assert len({session.sql(text, fresh=True).fetchall()[0] for _ in range(5)}) == 5


def test_candidates_of_a_table_and_with_answers(session: dpsql.Session) -> None:
    text = "SELECT EXPMECH(COUNT(*) FILTER (WHERE t.n = pub.n), top => 3, answer => TRUE) OVER pub FROM t"
    assert session.sql(text).fetchall() == [(1, 100), (2, 50), (3, 10)]


def test_rows_that_differ_in_another_column_are_other_candidates(session: dpsql.Session) -> None:
    listed = "WITH c(v, w) AS (VALUES (1, 'x'), (1, 'y'), (1, 'x'))"
    text = f"{listed} SELECT EXPMECH(COUNT(*) FILTER (WHERE n = v), top => 2) OVER c FROM t"
    assert sorted(session.sql(text).fetchall()) == [(1, "x"), (1, "y")]


def test_what_is_promised_counts_them_once(session: dpsql.Session) -> None:
    text = f"{VALUES} SELECT EXPMECH(COUNT(*) FILTER (WHERE n = v), top => 2) OVER c FROM t"
    assert "of 4 candidates" in str(session.explain(text))
    with pytest.raises(dpsql.BindError, match="only 4 candidates"):
        session.sql(text.replace("top => 2", "top => 5"))
