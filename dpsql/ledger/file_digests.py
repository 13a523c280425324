"""Digests of the files that hold data: what tells whether an answer that was paid for is still about the same data."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import time
from collections.abc import Iterable
from typing import Self

from dpsql.ledger.private_files import make_private_file, state_directory


def digests_of(paths: Iterable[str]) -> dict[str, str]:
    """Return the digest of each file that is there.

    A file that was only touched, or copied over itself, is the same. Digests are kept in the state directory under the
    path, size, times and inode of the file, so that a large one is read once. Files that changed a moment ago are
    read again, for the clock of a file system may not tell two changes apart.
    """
    found = {}
    with _Digests() as known:
        for path in sorted(paths):
            with contextlib.suppress(OSError):
                found[path] = known.digest(path)
    return found


_KEPT = 10_000
"""Digests of files that are kept; the oldest are forgotten."""
_SETTLED = 2 * 10**9
"""Nanoseconds after which the time of a change is trusted to tell it from the next one."""


class _Digests:
    """The digests of files that were read before. Best effort: what can't be kept is computed again."""

    def __init__(self) -> None:
        self._known: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError, sqlite3.Error):
            file = state_directory() / "files.sqlite"
            make_private_file(file)
            self._known = sqlite3.connect(file, timeout=1.0, isolation_level=None)
            self._known.execute("PRAGMA synchronous = OFF")
            self._known.execute(
                "CREATE TABLE IF NOT EXISTS digests (path TEXT PRIMARY KEY, stamp TEXT NOT NULL, digest TEXT NOT NULL)"
            )
        return self

    def __exit__(self, *exc: object) -> None:
        if self._known is not None:
            self._known.close()

    def digest(self, path: str) -> str:
        """Return the digest of a file.

        Raises:
            OSError: it can't be read.
        """
        stamp = _stamp(os.stat(path))
        found = self._ask("SELECT digest FROM digests WHERE path = ? AND stamp = ?", path, stamp)
        if found:
            return str(found[0][0])
        with open(path, "rb") as file:
            stat = os.fstat(file.fileno())
            computed = hashlib.file_digest(file, "sha256").hexdigest()
            unchanged = _stamp(os.fstat(file.fileno())) == _stamp(stat)
        if unchanged and time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > _SETTLED:
            self._ask("INSERT OR REPLACE INTO digests VALUES (?, ?, ?)", path, _stamp(stat), computed)
            self._ask("DELETE FROM digests WHERE rowid <= (SELECT max(rowid) FROM digests) - ?", _KEPT)
        return computed

    def _ask(self, sql: str, *values: str | int) -> list[tuple[str, ...]]:
        with contextlib.suppress(sqlite3.Error):
            return [] if self._known is None else self._known.execute(sql, values).fetchall()
        return []


def _stamp(stat: os.stat_result) -> str:
    return f"{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ctime_ns}:{stat.st_dev}:{stat.st_ino}"
