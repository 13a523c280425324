"""Fixtures of several files in this room."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from shop import Shop, open_shop

import dpsql


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """The shop: a session on it, and plain DuckDB beside."""
    con, session, plain = open_shop()
    with con, session, plain:
        yield session, plain


@pytest.fixture
def session(con: duckdb.DuckDBPyConnection, request: pytest.FixtureRequest) -> Iterator[dpsql.Session]:
    """A session of its own for each test, over its file's ``con`` and under its file's ``POLICY``."""
    with dpsql.connect(con, policy=dpsql.Policy.loads(request.module.POLICY)) as session:
        yield session
