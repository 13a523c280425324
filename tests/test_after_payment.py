"""Late failures: what types alone decide is refused before it, and what released values decide is free to correct."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import NoReturn

import pytest

import dpsql
from dpsql.ledger import log_file
from dpsql.ledger.answers import AnswerStore
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
