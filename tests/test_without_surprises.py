"""Sessions without surprises: every error is ours, no row is in it, and nothing is said as a shell ends."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpsql
from dpsql.demo import POLICY as DEMO
from dpsql.errors import BindError, Error, ParseError, PolicyError
from dpsql.session.interface import guarded
from tests.support.own_process import run_python

SECRET = "SECRET-987"
ROWS = {"person_id": [987654321], "note": [SECRET]}
COUNT = "SELECT WITH DP OPTIONS (epsilon = 0.1) COUNT(*) AS n FROM visits"
BUDGET = "[budget]\nepsilon = 10\n"
VISITS = '[tables.visits]\nprivacy_unit = "person_id"\nmax_rows = 5\n'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPSQL_STATE", str(tmp_path / "state"))
    Path("tables.toml").write_text(BUDGET + VISITS)
    Path("files.toml").write_text(f'{BUDGET}{VISITS}source = "visits.parquet"\n')
    shutil.copy(DEMO.with_name("visits.parquet"), "visits.parquet")


def refused(work: Callable[[], object], kind: type[Error], said: str) -> Error:
    with pytest.raises(kind, match=said) as told:
        work()
    whole = repr(told.value) + str(told.value) + repr(told.value.__cause__) + repr(told.value.__context__)
    assert SECRET not in whole
    assert "987654321" not in whole
    return told.value


@pytest.mark.parametrize(
    "frame",
    [pd.DataFrame(ROWS), pl.DataFrame(ROWS), pl.LazyFrame(ROWS), pa.table(ROWS), list(ROWS), None, 3],
    ids=lambda frame: type(frame).__name__,
)
def test_what_is_no_database_is_named_and_not_printed(frame: Any) -> None:
    told = refused(lambda: dpsql.connect(frame, policy="tables.toml"), PolicyError, type(frame).__name__)
    assert told.hint is not None
    if hasattr(type(frame), "columns") or isinstance(frame, pa.Table):
        assert 'dpsql.connect({"visits": frame}, policy=...)' in told.hint


@pytest.mark.parametrize("policy", [pd.DataFrame(ROWS), ROWS, 3])
def test_what_is_no_policy(policy: Any) -> None:
    refused(lambda: dpsql.connect(policy=policy), PolicyError, f"the policy is a {type(policy).__name__}")


def test_a_forgotten_database_is_asked_for() -> None:
    told = refused(lambda: dpsql.connect(policy="tables.toml"), PolicyError, "no database was given")
    assert told.hint is not None
    for way in ('dpsql.connect("data.duckdb"', "%dpsql connect data.duckdb", "--database data.duckdb"):
        assert way in told.hint
    duckdb.connect("clinic.duckdb").close()
    told = refused(
        lambda: dpsql.connect(policy="tables.toml"), PolicyError, r"next to the policy: clinic.duckdb\)"
    )
    assert 'dpsql.connect("clinic.duckdb"' in (told.hint or "")
    refused(
        lambda: dpsql.connect("clinic.duckdb", policy="tables.toml"),
        PolicyError,
        "the database does not have",
    )


def close_the_file(_: object) -> None:
    Path("visits.parquet").unlink()


def break_the_file(_: object) -> None:
    Path("visits.parquet").write_text("no Parquet")


@pytest.mark.parametrize("lose", [close_the_file, break_the_file])
def test_data_that_went_away_are_told_so_and_nothing_is_charged(lose: Callable[[object], None]) -> None:
    with dpsql.connect(policy="files.toml") as session:
        lose(session)
        for ask in (session.sql, session.explain):
            refused(lambda ask=ask: ask(COUNT), PolicyError, "files have changed, and can't be read")
        refused(lambda: session.columns("visits"), PolicyError, "have changed, and can't be read")
        assert session.budget().spent_epsilon == 0


def test_a_connection_that_lost_its_table_or_was_closed() -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE visits AS SELECT 1 AS person_id")
        with dpsql.connect(con, policy="tables.toml") as session:
            con.execute("DROP TABLE visits")
            refused(lambda: session.sql(COUNT), PolicyError, "can't be read any more")
            con.close()
            refused(lambda: session.sql(COUNT), PolicyError, "can't be read any more")
            refused(lambda: dpsql.connect(con, policy="tables.toml"), PolicyError, "can't be used")


@pytest.fixture
def closed() -> dpsql.Session:
    session = dpsql.connect(policy="files.toml")
    session.close()
    return session


def test_a_closed_session_says_so_whatever_it_is_asked(closed: dpsql.Session) -> None:
    asked: list[Callable[[], object]] = [
        lambda: closed.sql("SELECT 1 AS a"), lambda: closed.run(COUNT), lambda: closed.explain(COUNT), closed.plan,
        closed.budget, closed.ledger, closed.tables, closed.plot, lambda: closed.columns("visits"),
        lambda: closed.keep("a", pa.table({"b": [1]})), lambda: closed.register("f", len),
    ]  # fmt: skip
    for ask in asked:
        refused(ask, BindError, "the session is closed")
    closed.close()


def test_a_plan_that_outlives_its_session() -> None:
    session = dpsql.connect(policy="files.toml")
    plan = session.plan()
    session.close()
    refused(lambda: plan.sql(COUNT), BindError, "the session is closed")


def test_a_statement_is_text() -> None:
    with dpsql.connect(policy="files.toml") as session:
        refused(lambda: session.sql(pd.DataFrame(ROWS)), ParseError, "a statement is a text, not a DataFrame")  # type: ignore[arg-type]


def test_an_error_of_an_engine_leaves_no_trace() -> None:
    """Failures that no check foresaw are told without DuckDB's words, which may quote a value."""

    class Opened:
        def check_open(self) -> None:
            pass

        @guarded
        def ask(self) -> None:
            duckdb.sql(f"SELECT CAST('{SECRET}' AS INTEGER)").fetchall()

        @guarded
        def fail(self) -> None:
            raise ZeroDivisionError

    told = refused(Opened().ask, dpsql.EngineError, "the engine failed")
    assert told.__context__ is None
    with pytest.raises(ZeroDivisionError):
        Opened().fail()


def test_nothing_is_said_as_ipython_ends(tmp_path: Path) -> None:
    """DuckDB's binding tells whatever is still open as a leak, on forty lines."""
    cells = (
        "%load_ext dpsql\n%dpsql demo\nsession = %dpsql session\n%dpsql SELECT COUNT(*) AS n FROM visits\n"
    )
    root = str(Path(dpsql.__file__).parents[1])
    code = (
        f"import sys; sys.path.insert(0, {root!r}); from IPython import start_ipython; "
        "start_ipython(['--simple-prompt', '--no-banner'])"
    )
    done = run_python(
        "-c",
        code,
        input=cells + "%dpsql SELECT oops\nexit\n",
        timeout=120,
        env={
            "IPYTHONDIR": str(tmp_path / "ipython"),
            "DPSQL_STATE": str(tmp_path / "state"),
            "PATH": "",
            "HOME": str(tmp_path),
        },
    )
    assert "95% interval" in done.stdout
    assert "leaked" not in done.stderr + done.stdout
    assert done.returncode == 0
