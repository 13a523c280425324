"""Texts of a plan that are bound before it is paid: the first one, and others that differ from bound ones in more than values."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.errors import BindError
from dpsql.exact.normal_form import strip_values
from dpsql.lock.lock import ShapedText
from dpsql.session.gated_queries import GatedQueries
from tests.support import inside

POLICY = """
budget = { epsilon = 1e6 }
[tables]
visits = { privacy_unit = "user_id", max_rows = 5, columns.amount.bounds = [0, 100] }
"""
TEXT = "SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n, MEDIAN(amount) AS m FROM visits WHERE amount > {}"


def open_visits() -> dpsql.Session:
    con = duckdb.connect()
    con.execute("CREATE TABLE visits AS SELECT range % 40 AS user_id, range % 50 AS amount FROM range(100)")
    return dpsql.connect(con, policy=dpsql.Policy.loads(POLICY))


def watch(session: dpsql.Session, monkeypatch: pytest.MonkeyPatch, fail: str = "") -> list[str]:
    """Return the texts that the engine binds from now on; one that holds ``fail`` is refused."""
    engine, bound = inside.engine(session), []
    check = engine.check

    def note(sql: str, lent: Mapping[str, Any], apart: bool = False) -> str | None:
        if fail and fail in sql:
            raise BindError("refused")
        bound.append(sql)
        return check(sql, lent, apart)

    monkeypatch.setattr(engine, "check", note)
    return bound


def bind_texts(check: GatedQueries, *texts: str) -> list[str]:
    """Return those of a block's texts that are bound."""
    bound: list[str] = []
    engine = SimpleNamespace(dialect="duckdb", check=lambda sql, lent, apart: bound.append(sql))
    check.engine = engine  # type: ignore[assignment]
    operator = SimpleNamespace(checked=texts, apart=())
    check._bind_all(SimpleNamespace(operator=operator, periods=None), {})  # type: ignore[arg-type]
    return bound


def test_a_value_that_no_bound_text_has_decides() -> None:
    gate = SimpleNamespace(
        shape=lambda sql, names: ShapedText(*strip_values(sql)),
        exact=lambda sql, names: sql,
        prove_typed=lambda *given: None,
    )
    check = GatedQueries(gate, None, None)  # type: ignore[arg-type]
    first, second = "SELECT a FROM t WHERE a > '{}'", "SELECT COUNT(*) FROM t WHERE a > '{}'"
    assert len(bind_texts(check, first.format("x"), second.format("x"))) == 2
    assert bind_texts(check, first.format("y"), second.format("y")) == [first.format("y")]
    # the same texts, but the first one says nothing of the second one's value
    assert bind_texts(check, first.format("y"), second.format("z")) == [first.format("y"), second.format("z")]
    assert bind_texts(check, first.format("y").replace("a", "b"), second.format("y")) == [
        first.format("y").replace("a", "b")
    ]


def test_a_text_that_was_refused_is_bound_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_visits() as session:
        with monkeypatch.context() as patch:
            watch(session, patch, fail="LAG")
            for _ in range(2):
                with pytest.raises(BindError, match="refused"):
                    session.sql(TEXT.format(7))
        bound = watch(session, monkeypatch)
        session.sql(TEXT.format(8))
        assert any("LAG" in text for text in bound)


def test_the_collector_runs_again_after_a_statement_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_visits() as session:
        paused: list[bool] = []
        engine = inside.engine(session)
        check = engine.check
        monkeypatch.setattr(
            engine, "check", lambda *given: (paused.append(not gc.isenabled()), check(*given))[1]
        )
        session.sql(TEXT.format(7))
        assert paused
        assert all(paused)
        assert gc.isenabled()
        with pytest.raises(BindError):
            session.sql("SELECT COUNT(nothing) FROM visits")
        assert gc.isenabled()
        gc.disable()
        try:
            session.sql(TEXT.format(9))
            assert not gc.isenabled()
        finally:
            gc.enable()
