"""Files that only the user who runs dpsql may read, whatever the umask says.

Digests of the files that hold data: what tells whether an answer that was paid for is still about the same data.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

OWNER_ONLY = 0o600


def find_state_directory() -> Path:
    """Return where dpsql remembers things for this user, whether or not it is there.

    It is ``$DPSQL_STATE``, else ``$XDG_STATE_HOME/dpsql``, else ``~/.local/state/dpsql``.
    """
    chosen, state = os.environ.get("DPSQL_STATE"), os.environ.get("XDG_STATE_HOME")
    if chosen:
        return Path(chosen)
    return (Path(state) if state else Path.home() / ".local" / "state") / "dpsql"


def make_state_directory() -> Path:
    """Return the directory of :func:`find_state_directory`, made with mode 0700 where it is missing.

    Raises:
        OSError: it can't be made.
    """
    home = find_state_directory()
    make_private_directory(home)
    return home


def make_private_directory(path: Path) -> None:
    """Make a directory that nobody else may enter; close one of this user's that others may enter.

    Raises:
        OSError: it can't be made.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = path.stat()
    if stat.S_IMODE(found.st_mode) != 0o700:
        # A directory of somebody else keeps its mode: what is put into it is private by its own mode.
        with suppress(OSError):
            path.chmod(0o700)


def make_private_file(path: Path, mode: int = OWNER_ONLY) -> None:
    """Make an empty file of this mode where there is none, and give an existing one the mode.

    Raises:
        OSError: it can't be made, or belongs to somebody else.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, mode)
    try:
        _give_mode(descriptor, mode)
    finally:
        os.close(descriptor)


def write_private(path: Path, text: str, mode: int = OWNER_ONLY) -> None:
    """Write a text to a file that has its mode before the first byte is in it.

    Raises:
        OSError: it can't be written.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, mode)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):  # a terminal or a pipe keeps its mode
            _give_mode(descriptor, mode)
            os.ftruncate(descriptor, 0)
        rest = text.encode()
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)


def read_mode(path: Path) -> int:
    """Return the mode of a file, for those beside it: 0600, unless its owner opened it to others."""
    try:
        return stat.S_IMODE(path.stat().st_mode) & 0o666
    except OSError:
        return OWNER_ONLY


def _give_mode(descriptor: int, mode: int) -> None:
    if hasattr(os, "fchmod") and stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
        os.fchmod(descriptor, mode)


def hash_files(paths: Iterable[str]) -> dict[str, str]:
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
            file = make_state_directory() / "files.sqlite"
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
