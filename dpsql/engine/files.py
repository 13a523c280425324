"""Files that tables are read from: their names, and whether they are still what they were.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from dpsql.errors import PolicyError
from dpsql.ledger.private_files import digests_of
from dpsql.policy.model import Table

DECLARED, IN_NO_FILE = "version ", "session "
"""How the version of a table's data begins that the policy declares, and that of data which are in no file."""


def found(table: Table, base: Path) -> list[str]:
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


def once() -> Digests:
    """Return a way to digests that looks at each file one time only."""
    kept: dict[str, str] = {}

    def digests(paths: set[str]) -> Mapping[str, str]:
        kept.update(digests_of(paths - kept.keys()))
        return {path: kept[path] for path in sorted(paths) if path in kept}

    return digests


def versions_of(
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


def version_of(
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
