"""What an engine must do. Each engine's package is imported only in its own module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from dpsql.errors import EngineError
from dpsql.mechanisms.base import NoRoom
from dpsql.policy import Table

WITHHELD = "the engine failed while it read private data; why is withheld."


class Engine(Protocol):
    """Runs exact SQL over private tables. Its answers never leave the operators that asked for them."""

    dialect: str
    """The sqlglot dialect that plans are written in."""

    lossless: bool
    """Whether what is lent may hold DuckDB's own Arrow types, which keep a UUID and a 128-bit integer as they are."""

    @property
    def versions(self) -> Mapping[str, str]:
        """For each table of the policy a text that changes when its data do, as it was when the session began."""
        ...

    @property
    def time_zone(self) -> str:
        """The time zone in which exact queries read and show moments."""
        ...

    @property
    def room(self) -> int:
        """Rows of eight bytes that an operator may hold at once; 0 where rows must stay where they are."""
        ...

    def schema(self, table: Table) -> Mapping[str, str]:
        """Column names and SQL types of a table of the policy, in order; reads no rows.

        Raises PolicyError when the table's source is missing.
        """
        ...

    def relation(self, table: Table) -> str:
        """SQL text that names the table in a FROM clause, fully qualified."""
        ...

    def public(self, table: Table) -> pa.Table:
        """All rows of a public table, for the SQL that runs over releases."""
        ...

    def version(self) -> str:
        """A fingerprint of the data as the owner published them; changes when files change."""
        ...

    def check(
        self, sql: str, lent: Mapping[str, Sequence[tuple[str, str]]], apart: bool = False
    ) -> str | None:
        """Binds an exact query against empty relations, before anything is paid; what it is run as: :meth:`written`.

        ``apart``: it reads lent relations alone, and is run away from the private data.

        Raises BindError when the engine would refuse it whatever the data are.
        """
        ...

    def lendable(self, table: pa.Table) -> None:
        """Looks at what will be lent, where that is known before anything is paid.

        Raises BindError when a value of it has no place in the engine.
        """
        ...

    def execute(self, sql: str, lent: Mapping[str, pa.Table] | None = None) -> pa.Table:
        """Runs one exact query, with public relations lent to it under their names.

        Raises EngineError with a fixed message, without cause or context.
        """
        ...

    def written(self, sql: str, lent: Mapping[str, pa.Table]) -> str | None:
        """Return what an exact query is run as, where the engine has a language of its own; None where it runs as it is."""
        ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


def ended(state: str) -> None:
    """What became of a query, as its caller learns it: nothing where it is done.

    Raises:
        KeyboardInterrupt: it was stopped.
        EngineError: it failed, always in the same words. NoRoom: so too, and for want of memory.
    """
    if state == "stopped":
        raise KeyboardInterrupt
    if state == "full":
        raise NoRoom(WITHHELD)
    if state == "failed":
        raise EngineError(WITHHELD)
