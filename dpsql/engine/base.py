"""What an engine must do. Each engine's package is imported only in its own module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from dpsql.policy import Table


class Engine(Protocol):
    """Runs exact SQL over private tables. Its answers never leave the operators that asked for them."""

    dialect: str
    """The sqlglot dialect that plans are written in."""

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

    def check(self, sql: str, lent: Mapping[str, Sequence[tuple[str, str]]]) -> None:
        """Binds an exact query against empty relations, before anything is paid.

        Raises BindError when the engine would refuse it whatever the data are.
        """
        ...

    def execute(self, sql: str, lent: Mapping[str, pa.Table] | None = None) -> pa.Table:
        """Runs one exact query, with public relations lent to it under their names.

        Raises EngineError with a fixed message, without cause or context.
        """
        ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...
