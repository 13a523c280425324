"""Texts of faster routes: proved when they are read, and never the reason why a paid statement fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.lock import lock
from dpsql.lock.check import check
from dpsql.mechanisms.base import ClaimedText, Reader
from tests.support import inside
from tests.support.lock_texts import forge_texts

POLICY = """
budget = { epsilon = 1e9, default_epsilon = 1e6 }
[tables]
visits = { privacy_unit = "patient_id", max_rows_per_group = 3, max_groups = 2, columns.amount.bounds = [0, 100], \
    columns.ward.values = [0, 1, 2] }
"""
GROUPED = "SELECT ward, COUNT(*) AS n, SUM(amount) AS s FROM visits GROUP BY ward"
MEDIAN = "SELECT MEDIAN(amount) AS m FROM visits"
PRICE = (
    "WITH p(x) AS (SELECT range FROM range(10, 100)) "
    "SELECT EXPMECH(COUNT(*) FILTER (WHERE amount >= x) * x) OVER p AS w FROM visits"
)
STATEMENTS = (GROUPED, MEDIAN, PRICE)


@pytest.fixture
def session() -> Iterator[dpsql.Session]:
    """A session on a frame, whose number of rows the engine doesn't know beforehand."""
    rows = "SELECT i // 3 AS patient_id, i // 3 % 3 AS ward, i % 101 AS amount FROM range(606) AS r(i)"
    with duckdb.connect() as con:
        visits = con.sql(rows).to_arrow_table()
    with dpsql.connect({"visits": visits}, policy=dpsql.Policy.loads(POLICY)) as made:
        yield made


def watch(session: dpsql.Session, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the texts that the engine runs from now on."""
    engine, run = inside.engine(session), list[str]()

    def noting(method: Callable[..., Any]) -> Callable[..., Any]:
        def note(sql: str, *given: Any) -> Any:
            run.append(sql)
            return method(sql, *given)

        return note

    for name in ("execute", "batches", "numbers"):
        monkeypatch.setattr(engine, name, noting(getattr(engine, name)))
    return run


def forge_routes(monkeypatch: pytest.MonkeyPatch, pattern: str, wrong: str) -> list[int]:
    """Replace a pattern in the texts that routes read, which their claims don't know of; return the hits so far."""
    hits: list[int] = []
    on_route = Reader.on_route

    def forged(self: Reader) -> Reader:
        def exact(sql: str, lent: Any) -> str:
            text, count = re.subn(pattern, wrong, sql)
            hits.append(count)
            assert self.exact is not None
            return self.exact(text, lent)

        return on_route(replace(self, exact=exact))

    monkeypatch.setattr(Reader, "on_route", forged)
    return hits


def answer(session: dpsql.Session, statement: str) -> tuple[list[dict[str, float]], str]:
    """Return a statement's rows, which have little noise, and its charge."""
    result = session.sql(statement, fresh=True)
    rows = [{name: round(float(value), -1) for name, value in row.items()} for row in result.dicts()]
    return rows, result.loss


@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_texts_of_a_route_are_proved_when_it_is_taken(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    proved: list[str] = []

    def note(claimed: ClaimedText, *given: Any) -> Any:
        proved.append(claimed.text)
        return check(claimed, *given)

    monkeypatch.setattr(lock, "check", note)
    session.explain(statement)
    plain = set(proved)
    run = watch(session, monkeypatch)
    session.sql(statement)
    private = {
        re.sub(r"CAST\(\d+ AS UBIGINT", "CAST($salt AS UBIGINT", text) for text in run if "visits" in text
    }
    assert private, "the route reads the data"
    assert not private & plain
    assert private <= set(proved)


FORGED = {
    "ranges of a table that nobody has": (GROUPED, r"SELECT COUNT\(\*\) AS n, MIN\(u\).*", "SELECT x FROM secrets"),
    "ranges that are no SQL": (GROUPED, r"SELECT COUNT\(\*\) AS n,", "SELECT SELECT"),
    "packed values in the bits of others": (GROUPED, r"\) \* 1 AS p", ") * 3 AS p"),
    "packed rows of a missing column": (GROUPED, r"CAST\(u AS BIGINT\)", "CAST(v AS BIGINT)"),
    "packed rows of another unit": (GROUPED, r"CAST\(u AS BIGINT\)", "CAST(k0 AS BIGINT)"),
    "totals that are doubled": (GROUPED, r"COALESCE\((dpsql_totals\.p0)", r"COALESCE(2 * \1"),
    "a column that others' rows decide": (MEDIAN, r"^SELECT v AS value", r"SELECT SUM(v) OVER () AS value"),
    "a column with a row more of each unit": (MEDIAN, r"lag\(u, 3\)", "lag(u, 4)"),
    "a column of each row twice": (PRICE, r"AS x FROM rows$", "AS x FROM rows CROSS JOIN range(2)"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_a_route_with_a_wrong_text_falls_back_on_the_plain_one(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    statement, pattern, wrong = FORGED[name]
    expected = answer(session, statement)
    hits = forge_routes(monkeypatch, pattern, wrong)
    run = watch(session, monkeypatch)
    assert answer(session, statement) == expected
    assert sum(hits), "no text has such a place"
    assert "GROUP BY" in run[-1], "the plain text is read"


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_plain_text_that_is_wrong_is_refused_before_payment(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    session.explain(statement)
    hits = forge_texts(monkeypatch, r"COUNT\(\*\)", "1000 * COUNT(*)")
    run = watch(session, monkeypatch)
    before = str(session.budget().spent)
    with pytest.raises(dpsql.PrivacyError, match="could not be proved safe"):
        session.sql(statement)
    assert sum(hits)
    assert str(session.budget().spent) == before
    assert not any("visits" in text for text in run)


def test_a_failure_of_the_engine_ends_a_statement_on_either_route(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what precedes a reading falls back: a failed reading ends a statement as that of the plain text would."""
    engine = inside.engine(session)

    def fail(sql: str, *given: Any) -> Any:
        raise dpsql.EngineError("withheld")

    for name in ("execute", "batches", "numbers"):
        monkeypatch.setattr(engine, name, fail)
    for statement in STATEMENTS:
        with pytest.raises(dpsql.EngineError):
            session.sql(statement)
