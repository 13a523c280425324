"""Fixtures of several files in this room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from shop import Shop, open_shop


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """The shop: a session on it, and plain DuckDB beside."""
    con, session, plain = open_shop()
    with con, session, plain:
        yield session, plain
