"""The store of releases: what was answered once may be shown again, for that is post-processing.

Each private block's release is kept under a key of its own; ledgers of older versions hold whole statements' releases
under the statements' keys, and these are found as they were.

It holds what mechanisms let out and nothing else; the bytes come in with the settlement, in the same
transaction, and the settlement's row holds their digest, so a changed answer shows.

Who holds an open reservation, and whether that process is certainly gone.

Only ever used to give something back (hits that an interactive threshold did not find) and to show a word in
a table; so every doubt is answered with "alive".

The open file of a ledger, and the account that its log amounts to: one writer at a time, never behind.

Everything that goes wrong here ends the same way: nothing half-written, nothing half-summed, an honest error.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import socket
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpsql.errors import LedgerError
from dpsql.ledger import log_file, state_files
from dpsql.ledger.accounts import Account, Entry, format_local_time
from dpsql.ledger.log_file import START, Row, damaged_error, link_row, verify_rows
from dpsql.ledger.terms import Terms
from dpsql.privacy.events import Event

_PIECE = 1 << 24
ASKED = "asked "
"""Before the key of what a question was about: it decides nothing, and only says later what has changed."""
LARGEST_RELEASE = 999_000_000
"""Bytes of a release that is kept: SQLite has no larger values."""


@dataclass(frozen=True)
class StoredRelease:
    """A release that was paid for: its bytes, when, by which statement, and what that cost then."""

    release: bytes
    when: str
    statement_id: int
    event: Event

    @property
    def when_text(self) -> str:
        """The time as shown: ``"14:02"``, with the date when it was not today."""
        return format_local_time(self.when)


def put_release(connection: sqlite3.Connection, key: str, statement: int, release: bytes) -> None:
    """Keep a release, inside the transaction that settles it. A fresh answer replaces an older one."""
    if len(release) <= _PIECE:
        connection.execute("INSERT OR REPLACE INTO replay VALUES (?, ?, ?)", (key, statement, release))
        return
    # a value that is bound is copied once more: the release of ten million groups is written piece by piece
    made = connection.execute(
        "INSERT OR REPLACE INTO replay VALUES (?, ?, zeroblob(?))", (key, statement, len(release))
    )
    with connection.blobopen("replay", "release", made.lastrowid or 0) as blob:
        for start in range(0, len(release), _PIECE):
            blob.write(release[start : start + _PIECE])


def get_release(connection: sqlite3.Connection, key: str) -> tuple[int, bytes] | None:
    """Return the statement and the bytes kept under a key."""
    row = connection.execute("SELECT statement, release FROM replay WHERE key = ?", (key,)).fetchone()
    return None if row is None else (row[0], bytes(row[1]))


def check_release(entry: Entry | None, key: str, release: bytes) -> StoredRelease:
    """Return the release, if the log knows it as released, under this key, with these bytes.

    Raises:
        LedgerError: it was changed, or never paid for.
    """
    if entry is None or entry.event is None or entry.kept(key) != hash_release(release):
        raise LedgerError(
            "The stored answer of this statement does not fit the ledger's record of it.",
            hint="--fresh (in Python: fresh=True) pays for a new answer.",
        )
    return StoredRelease(release, entry.when, entry.statement_id, entry.event)


def hash_release(release: bytes) -> str:
    """Hash a release."""
    return hashlib.sha256(release).hexdigest()


def identify_process(pid: int | None = None) -> str:
    """Identify this process (or ``pid``) on this boot of this machine, even when process numbers come round."""
    pid = os.getpid() if pid is None else pid
    boot = _text(Path("/proc/sys/kernel/random/boot_id"))
    return "|".join([socket.gethostname(), boot, _namespace(), str(pid), _started(pid)])


def is_certainly_gone(other: str) -> bool:
    """Decide whether ``other`` was a process of this boot and namespace that does not run any more."""
    parts, mine = other.split("|"), identify_process().split("|")
    if len(parts) != 5 or parts[:3] != mine[:3] or not mine[1] or not parts[3].isdigit():
        return False
    return _started(int(parts[3])) != parts[4]


def get_user() -> str:
    """Return the user's name as the operating system knows it; empty when it knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Return the start of a process in clock ticks since boot; empty for no such process, or no /proc."""
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in "ZX":  # a zombie has finished: nothing of it can answer any more
        return ""
    return fields[19]


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


Write = Callable[[str, int, dict[str, Any]], None]
"""Appends a row: its kind, its statement (0: none), what it says."""


class LedgerStore:
    """A connection to a ledger and the fold of its rows. Safe for threads, processes and forks.

    Args:
        path: the file; None for a new ledger in memory, which begins with ``first``.
        terms: the terms that rule the sums; None for those that the ledger grants.
    """

    def __init__(
        self,
        path: Path | None,
        terms: Terms | None,
        *,
        first: Row | None = None,
        connection: sqlite3.Connection | None = None,
        read_only: bool = False,
        timeout: float = 30.0,
    ) -> None:
        self.path = path
        self.process = identify_process()
        self.user = get_user()
        self.account = Account(terms)
        self._terms = terms
        self._read_only = read_only
        self._timeout = timeout
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._trusted = True
        self._closed = False
        self._connection: sqlite3.Connection | None = connection or self._connect()
        self._file = None if path is None else _inode(path)
        self._wal: tuple[int, int] | None = None
        if first is not None:
            log_file.write_first_row(self._connected(), first)
        _OPEN.add(self)

    @property
    def charges(self) -> bool:
        """True where something can be charged: not to a copy, nor to what is only read."""
        return self.path is not None and not self._read_only

    def copy(self, terms: Terms) -> LedgerStore:
        """Copy the rows into memory, to be read under other terms and never charged."""
        memory = log_file.connect_to_ledger(None)
        with self.reading() as connection:
            connection.backup(memory)
        memory.execute("PRAGMA query_only = ON")
        return LedgerStore(None, terms, connection=memory)

    def close(self) -> None:
        """Close the file. Open reservations stay charged."""
        with self._lock:
            self._closed = True
            self._disconnect()
        _OPEN.discard(self)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection, with the account up to date."""
        with self._lock, self._guarded() as connection:
            self._catch_up(connection)
            yield connection

    def current(self) -> Account:
        """Return the account, with what other processes wrote by now."""
        with self.reading():
            return self.account

    def hash_at(self, seq: int) -> object:
        """Return the hash stored in a row; None when there is no such row."""
        with self.reading() as connection:
            return log_file.read_hash(connection, seq)

    @contextmanager
    def writing(self, durable: bool = True) -> Iterator[tuple[Write, sqlite3.Connection]]:
        """Run one transaction: take the write lock, read what others wrote, decide and append, commit.

        With ``durable`` the rows are on the disk when the block ends; without, they may be lost in a power
        cut (not when a process dies).
        """
        rows: list[Row] = []

        def write(kind: str, statement: int, body: dict[str, Any]) -> None:
            seq, head = (rows[-1].seq, rows[-1].hash) if rows else (self.account.seq, self.account.head)
            row = link_row(head, seq + 1, kind, statement, format_now(), body)
            log_file.append_row(connection, row)
            rows.append(row)

        with self._lock, self._guarded() as connection:
            log_file.set_durable(connection, durable)
            connection.execute("BEGIN IMMEDIATE")
            self._catch_up(connection)
            yield write, connection
            connection.execute("COMMIT")
            self._check_kept()
            self._fold(rows)
            if durable and rows and self.path is not None:
                mark = state_files.Checkpoint(self.account.ledger_id, rows[-1].seq, rows[-1].hash)
                state_files.write_checkpoint(self.path, mark)
                state_files.update_register(self.path, mark)

    def _check_kept(self) -> None:
        """Check after a commit that the rows are in files that still have their names."""
        if self.path is not None:
            wal = _inode(log_file.wal_path(self.path))
            self._wal = self._wal or wal
            if _inode(self.path) != self._file or wal != self._wal:
                raise _replaced(self.path)

    @contextmanager
    def _guarded(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection of this process. On any error roll back, and fold the log afresh next time."""
        with log_file.explain_errors(self.path):
            connection = self._connected()
            try:
                yield connection
            except BaseException:
                self._trusted = False
                with suppress(sqlite3.Error):
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                raise

    def _connected(self) -> sqlite3.Connection:
        if self._closed:
            raise LedgerError("The ledger is closed.")
        if self._pid != os.getpid():
            self._after_fork()
        if self.path is not None and _inode(self.path) != self._file:
            raise _replaced(self.path)
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        self._wal = None
        return log_file.connect_to_ledger(self.path, read_only=self._read_only, timeout=self._timeout)

    def _disconnect(self) -> None:
        if self._connection is not None and self._pid == os.getpid():
            self._connection.close()
            self._connection = None

    def _before_fork(self) -> None:
        """Let go of the file, since SQLite's locks don't survive a fork. Both processes open it again."""
        self._lock.acquire()
        if self.path is not None:
            with suppress(sqlite3.Error):
                self._disconnect()

    def _after_fork(self) -> None:
        """Take over in a forked process. A budget in memory can't be shared, so the child has none."""
        if self.path is None or self._connection is not None:
            raise LedgerError(
                "This ledger was opened before the process was forked: both would spend the same budget.",
                hint="connect again in the new process, with a ledger in a file: ledger='...'.",
            )
        self._pid = os.getpid()
        self.process = identify_process()
        self._trusted = False

    def _catch_up(self, connection: sqlite3.Connection) -> Account:
        """Fold the rows written since, after checking that the log still goes through the last one."""
        if not self._trusted:
            self.account = Account(self._terms)
        account = self.account
        if account.seq and log_file.read_hash(connection, account.seq) != account.head:
            raise damaged_error(f"row {account.seq} is not the one that was written")
        self._fold(verify_rows(log_file.read_rows_after(connection, account.seq), account.seq, account.head))
        if account.head == START:
            raise damaged_error("it has no rows")
        return account

    def _fold(self, rows: list[Row]) -> None:
        self._trusted = False  # until done: an interruption in the middle must not leave half a sum
        self.account.apply(rows)
        self._trusted = True


_OPEN: weakref.WeakSet[LedgerStore] = weakref.WeakSet()


def format_now() -> str:
    """Return the time for a row, in UTC. Nothing is ever decided by it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


def _replaced(path: Path) -> LedgerError:
    return LedgerError(
        f"The ledger {path} was removed or replaced while it was open; nothing can be charged.",
        hint="put it back and connect again.",
    )


def _before_fork() -> None:
    for book in list(_OPEN):
        book._before_fork()


def _in_parent() -> None:
    for book in list(_OPEN):
        with suppress(RuntimeError):  # opened by another thread in between: never locked here
            book._lock.release()


def _in_child() -> None:
    for book in list(_OPEN):
        book._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
