"""Files that tables are read from: their names, and whether they are still what they were.

What an engine must do. Each engine's package is imported only in its own module.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from dpsql.errors import EngineError, PolicyError
from dpsql.ledger.private_files import digests_of
from dpsql.mechanisms.base import NoRoom
from dpsql.policy.model import Table

DECLARED, IN_NO_FILE = "version ", "session "
"""How the version of a table's data begins that the policy declares, and that of data which are in no file."""


def find_files(table: Table, base: Path) -> list[str]:
    """The files of a source by their real names, in order. A relative source starts from ``base``.

    Raises:
        PolicyError: there is none.
    """
    pattern = os.path.expanduser(table.source or "")
    if not os.path.isabs(pattern):
        pattern = str(base.resolve() / pattern)
    paths = sorted(os.path.realpath(path) for path in glob.glob(pattern, recursive=True))
    if not paths:
        raise PolicyError(
            f"the source {table.source} of {table.name} does not exist.",
            hint=f"relative sources start from {base}.",
        )
    return paths


Digests = Callable[[set[str]], Mapping[str, str]]
"""What files hold, by their paths."""


def remember_digests() -> Digests:
    """Return a way to digests that looks at each file one time only."""
    kept: dict[str, str] = {}

    def digests(paths: set[str]) -> Mapping[str, str]:
        kept.update(digests_of(paths - kept.keys()))
        return {path: kept[path] for path in sorted(paths) if path in kept}

    return digests


def fingerprint_each(
    tables: Iterable[Table], files: Callable[[Table], Sequence[str] | None], token: str,
    digests_of: Digests = digests_of,
) -> dict[str, str]:  # fmt: skip
    """Return for each table a text that changes when its data do: the version that the policy declares, which then
    stands for its content, else the content of its files. Where a file is says nothing, but for what a path tells
    about the rows in it (``year=2024/``).

    Args:
        tables: the policy's tables.
        files: the files of this machine that hold all of a table; None where there are none.
        token: stands for data that are in no file: new in each session.
    """
    held = {t.name: None if _declared(t) is not None else files(t) for t in tables}
    digests = digests_of({path for paths in held.values() for path in paths or ()})
    found = {}
    for table in tables:
        paths, declared = held[table.name], _declared(table)
        if declared is not None:
            found[table.name] = DECLARED + declared
        elif paths is None:
            found[table.name] = IN_NO_FILE + token
        else:
            parts = [f"{_partition(path)}:{digests.get(path, token)}" for path in paths]
            found[table.name] = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return found


def _declared(table: Table) -> str | None:
    return getattr(table, "version", None)


def _partition(path: str) -> str:
    return "/".join(part for part in Path(path).parts[:-1] if "=" in part)


def fingerprint_all(
    tables: Iterable[Table], files: Callable[[Table], Sequence[str] | None], token: str,
    digests_of: Digests = digests_of,
) -> str:  # fmt: skip
    """Return a text that changes when the data do: with the version that the policy declares for a table, which then
    stands for its content, else with the content of its files.

    Args:
        tables: the policy's tables.
        files: the files of this machine that hold all of a table; None where there are none.
        token: stands for data that are in no file: new in each session.
    """
    parts: dict[str, None] = {}
    read: set[str] = set()
    for table in tables:
        declared = _declared(table)
        held = files(table) if declared is None else ()
        if declared is not None:
            parts[f"{table.name} version {declared}"] = None
        elif held is None:
            parts[token] = None
        else:
            read.update(held)
    contents = [f"{path}:{digest}" for path, digest in digests_of(read).items()]
    return hashlib.sha256("\n".join([*parts, *contents]).encode()).hexdigest()


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

    def check(self, sql: str, lent: Mapping[str, Sequence[tuple[str, str]]], apart: bool = False) -> None:
        """Binds an exact query against empty relations, before anything is paid.

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

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


def raise_unless_done(state: str) -> None:
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
