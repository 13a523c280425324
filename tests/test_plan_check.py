"""What of a plan is bound before it is paid: each text, but for those of quicker routes that differ in small numbers alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.errors import BindError
from tests.support import inside

POLICY = """
[budget]
epsilon = 1e6
[tables.visits]
privacy_unit = "user_id"
max_rows = 5
columns.amount.bounds = [0, 100]
"""
TEXT = "SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n, SUM(amount) AS s FROM visits WHERE amount > {}"


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


def test_routes_are_bound_once_for_small_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_visits() as session:
        bound = watch(session, monkeypatch)
        session.sql(TEXT.format(7))
        assert len(bound) == 3  # the plain text, the ranges and the packed rows
        session.sql(TEXT.format(12))
        assert len(bound) == 4
        assert "GROUP BY" in bound[-1]
        assert "> 12" in bound[-1]
        session.sql(TEXT.format(5_000_000_000))  # no number of 32 bits
        assert len(bound) == 7
        session.sql(TEXT.format("7.5"))
        assert len(bound) == 10


def test_a_text_that_was_refused_is_bound_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_visits() as session:
        with monkeypatch.context() as patch:
            watch(session, patch, fail="u_low")
            for _ in range(2):
                with pytest.raises(BindError, match="refused"):
                    session.sql(TEXT.format(7))
        bound = watch(session, monkeypatch)
        session.sql(TEXT.format(8))
        assert any("u_low" in text for text in bound)
