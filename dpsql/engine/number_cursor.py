"""The cursor that columns of numbers stream from: decimals come as the integers that DuckDB stores.

On the way to Arrow a decimal of up to 18 digits is widened to 128 bits, unless a connection asks for the format's version that
has narrower ones: a third of the time. That version writes other types otherwise too, so other queries don't use it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import duckdb
import pyarrow as pa

ARROW_VERSION = "'1.5'"
"""The first version of Arrow's format with decimals of 32 and 64 bits."""


def ask_for_narrow_decimals(con: duckdb.DuckDBPyConnection) -> bool:
    """Let a connection give decimals in no more bits than they need; return whether it will."""
    with contextlib.suppress(duckdb.Error):
        if hasattr(pa, "decimal64"):
            con.execute(f"SET SESSION arrow_output_version = {ARROW_VERSION}")
            return True
    return False


class NumberCursor:
    """The cursor, opened when it is first needed, that one query at a time may have.

    Args:
        open_cursor: gives it, or None where there can be none; None where there never is.
    """

    def __init__(self, open_cursor: Callable[[], duckdb.DuckDBPyConnection | None] | None) -> None:
        self._open = open_cursor
        self._con: duckdb.DuckDBPyConnection | None = None
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def borrow(self) -> Iterator[duckdb.DuckDBPyConnection | None]:
        """Lend the cursor; None where there is none, or another query has it."""
        if not self._lock.acquire(blocking=False):
            yield None
            return
        try:
            if self._con is None and self._open is not None:
                self._con, self._open = self._open(), None
            yield self._con
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the cursor; a query that has it ends."""
        con, self._con, self._open = self._con, None, None
        if con is not None:
            with contextlib.suppress(duckdb.Error):
                con.close()
