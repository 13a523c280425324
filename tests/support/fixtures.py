"""What most files open: DuckDB in memory with some tables, and a session over it under a policy; and fixtures of these."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import duckdb
import pytest

import dpsql

Scope = Literal["function", "module"]
Both = tuple[duckdb.DuckDBPyConnection, dpsql.Session]


@contextmanager
def open_both(policy: str, *tables: str, **more: Any) -> Iterator[Both]:
    """Open DuckDB in memory with these tables, and a session over it; ``more`` is for :func:`dpsql.connect`."""
    with duckdb.connect() as con:
        for text in tables:
            con.execute(text)
        with dpsql.connect(con, policy=dpsql.Policy.loads(policy), **more) as session:
            yield con, session


@contextmanager
def open_session(policy: str, *tables: str, **more: Any) -> Iterator[dpsql.Session]:
    """Open a session over DuckDB in memory with these tables."""
    with open_both(policy, *tables, **more) as (_, session):
        yield session


def con_fixture(tables: str, scope: Scope = "module") -> Any:
    """Return a fixture: a connection in memory with these tables."""

    @pytest.fixture(scope=scope)
    def con() -> Iterator[duckdb.DuckDBPyConnection]:
        with duckdb.connect() as con:
            con.execute(tables)
            yield con

    return con


def session_fixture(
    policy: str, tables: str | None = None, scope: Scope = "module", *, ledger: bool = False
) -> Any:
    """Return a fixture: a session over these tables, or over the file's ``con``; with a ledger on the disk if wanted."""

    @pytest.fixture(scope=scope)
    def session(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[dpsql.Session]:
        place = tmp_path_factory.mktemp("session") / "ledger" if ledger else None
        with ExitStack() as stack:
            if tables is None:
                con = request.getfixturevalue("con")
            else:
                con = stack.enter_context(duckdb.connect())
                con.execute(tables)
            yield stack.enter_context(dpsql.connect(con, policy=dpsql.Policy.loads(policy), ledger=place))

    return session


def both_fixture(policy: str, tables: str, scope: Scope = "module") -> Any:
    """Return a fixture: a connection in memory with these tables, and a session over it."""

    @pytest.fixture(scope=scope)
    def both() -> Iterator[Both]:
        with open_both(policy, tables) as opened:
            yield opened

    return both
