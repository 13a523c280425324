"""Late failures: what types alone decide is refused before it, and what released values decide is free to correct."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import NoReturn

import pytest

import dpsql
from dpsql.ledger import log_file
from dpsql.ledger.answers import AnswerStore
from tests.support.fixtures import session_fixture
from tests.support.small import open_small

RELEASED = "WITH f AS (SELECT k, COUNT(*) AS n FROM t GROUP BY k) "


@pytest.fixture
def session() -> Iterator[dpsql.Session]:
    con, session = open_small()
    with con, session:
        yield session


def spent(session: dpsql.Session) -> float:
    return float(session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"])


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT n::DATE FROM (SELECT COUNT(*) AS n FROM t)",
        "SELECT COUNT(*)::DATE FROM t",
        RELEASED + "SELECT SUM(n) FROM f GROUP BY n::TIME",
        RELEASED + "SELECT COUNT(*) FROM t JOIN (SELECT n::DATE AS d, k FROM f) AS j USING (k)",
    ],
)
def test_what_types_decide_is_refused_before_the_payment(session: dpsql.Session, statement: str) -> None:
    with pytest.raises(dpsql.BindError, match="BIGINT can't be cast to") as caught:
        session.sql(statement)
    assert caught.value.span is not None
    assert spent(session) == 0


def test_what_released_values_decide_is_free_to_correct(session: dpsql.Session) -> None:
    with pytest.raises(dpsql.PostprocessingError, match="ε=1 was paid, and the answer is stored") as caught:
        session.sql(RELEASED + "SELECT k::INTEGER FROM f")
    assert "free" in str(caught.value.hint)
    assert spent(session) == 1
    with pytest.raises(dpsql.PostprocessingError) as again:
        session.sql(RELEASED + "SELECT k::INTEGER FROM f")
    assert "was paid" not in again.value.message, "nothing was, this time"
    assert session.sql(RELEASED + "SELECT TRY_CAST(k AS INTEGER) AS k FROM f").loss == "no charge"
    assert spent(session) == 1


def test_a_failure_between_two_blocks_pays_for_the_first(session: dpsql.Session) -> None:
    two = RELEASED + "SELECT COUNT(*) FROM t JOIN (SELECT {} AS p FROM f) AS j ON j.p = t.p"
    with pytest.raises(dpsql.PostprocessingError, match="ε=1 was paid"):
        session.sql(two.format("k::INTEGER"))
    assert spent(session) == 1, "the second block was not drawn"
    with pytest.raises(dpsql.PostprocessingError):
        session.sql(two.format("k::INTEGER"))
    assert spent(session) == 1
    session.sql(two.format("TRY_CAST(k AS INTEGER)"))
    assert spent(session) == 2, "the first block's answer is stored"


def test_a_declared_plan_keeps_what_it_released(session: dpsql.Session) -> None:
    with pytest.raises(dpsql.PostprocessingError), session.plan() as plan:
        plan.sql(RELEASED + "SELECT k::INTEGER FROM f")
    paid = spent(session)
    assert session.sql(RELEASED + "SELECT k FROM f").loss == "no charge"
    assert spent(session) == paid > 0


def test_a_stop_while_binding_charges_nothing(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    for name in (
        "dpsql.binding.bind._plan",
        "dpsql.engine.postprocess.check_public",
        "dpsql.lock.lock.check",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(name, stop)
            with pytest.raises(dpsql.Interrupted, match="nothing was charged"):
                session.sql(RELEASED + f"SELECT k, n + {len(name)} AS m FROM f")
        assert spent(session) == 0
    session.sql(RELEASED + "SELECT k FROM f")
    assert spent(session) == 1


@pytest.mark.parametrize(
    ("error", "cause"),
    [(sqlite3.SQLITE_FULL, "the disk is full"), (sqlite3.SQLITE_BUSY, "locked by another process")],
)
@pytest.mark.parametrize("kind", ["reserve", "settle", "answers"])
def test_a_full_disk_says_what_was_charged(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch, kind: str, error: int, cause: str
) -> None:
    """A write fails in each of three places: the charge, the settlement and the answer."""

    def fail() -> NoReturn:
        full = sqlite3.OperationalError("the system says no")
        full.sqlite_errorcode = error
        raise full

    append, put = log_file.append_row, AnswerStore.put

    def refuse_row(connection: sqlite3.Connection, row: log_file.Row, said: object) -> None:
        if row.kind == kind:
            fail()
        append(connection, row, said)  # type: ignore[arg-type]

    def refuse_answer(answers: AnswerStore, *given: object) -> None:
        if kind == "answers":
            with log_file.explain_errors(None):
                fail()
        put(answers, *given)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(log_file, "append_row", refuse_row)
        patch.setattr(AnswerStore, "put", refuse_answer)
        if kind == "answers":
            assert session.sql("SELECT COUNT(*) FROM t").loss == "ε=1", "an answer that was settled is given"
        else:
            with pytest.raises(dpsql.LedgerError, match=cause) as caught:
                session.sql("SELECT COUNT(*) FROM t")
            charged = "ε=1 stays charged, and there is no answer" in caught.value.message
            assert charged == (kind == "settle")
            assert ("Nothing was charged" in caught.value.message) == (kind == "reserve")
    assert spent(session) == (0 if kind == "reserve" else 1), "as it said"
    assert session.sql("SELECT COUNT(*) FROM t").loss == "ε=1", "the next statement works"


FAR = """
budget = { epsilon = 1e9, delta = 0.5, accountant = "basic", default_epsilon = 1e6, default_delta = 1e-9 }
[tables]
t = { privacy_unit = "u", max_rows = 4, max_groups = 4, columns = { iv = { bounds = [0, 1e9] }, far = { bounds = [0, 1e14] } } }
lists = { public = true }
structs = { public = true }
days = { public = true }
"""
TABLES = """
CREATE TABLE t AS SELECT i % 100 AS u, to_days(1000 + i) AS iv, to_days(i) AS far FROM range(300) r(i);
CREATE TABLE days AS SELECT d::DATE AS d FROM (VALUES ('infinity'), ('0044-03-15 (BC)')) v(d);
CREATE TABLE lists AS SELECT [d] AS d FROM days;
CREATE TABLE structs AS SELECT {'a': d} AS d FROM days;
"""
far = session_fixture(FAR, TABLES, scope="function")


@pytest.mark.parametrize("aggregate", ["SUM", "AVG", "MEDIAN", "MAX"])
def test_bounds_beyond_all_intervals_are_refused_before_the_payment(
    far: dpsql.Session, aggregate: str
) -> None:
    with pytest.raises(dpsql.BindError, match="more than an INTERVAL's answer has"):
        far.sql(f"SELECT {aggregate}(far) FROM t")
    assert spent(far) == 0
    assert far.sql(f"SELECT {aggregate}(far, contribution_bounds_per_row => (0, 1e9)) FROM t").fetchall()


def test_an_interval_of_more_than_292_years_is_released_whole(far: dpsql.Session) -> None:
    (answer,) = far.sql("SELECT SUM(iv) AS s, AVG(iv) AS a FROM t").fetchall()
    assert answer[0].days == pytest.approx(344_850, abs=5), "Arrow counts 292 years of nanoseconds"
    assert answer[1].days == pytest.approx(1149, abs=1)
    noisy = far.sql("SELECT WITH DP OPTIONS (epsilon = 1e-9) SUM(iv) AS s FROM t").fetchall()
    assert abs(noisy[0][0].days) <= 999_999_999


@pytest.mark.parametrize("table", ["days", "lists", "structs"])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM {}",
        "SELECT c.d, COUNT(t.u) FROM t RIGHT JOIN {} AS c ON t.u < 50 GROUP BY c.d",
        "SELECT c.d, COUNT(*) FROM t JOIN {} AS c ON t.u < 50 GROUP BY c.d",
        "SELECT d, ABOVE_THRESHOLD(COUNT(*), 5, max_hits => 2) OVER {} FROM t",
        "SELECT d, EXPMECH(COUNT(*)) OVER {} FROM t",
    ],
)
def test_public_dates_outside_python_are_answered(far: dpsql.Session, table: str, text: str) -> None:
    answer = far.sql(text.format(table))
    assert len(answer.fetchall()) == (1 if "EXPMECH" in text else 2)
    assert str(answer)
