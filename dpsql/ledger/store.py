"""Who holds an open reservation, and whether that process is certainly gone.

Only ever used to give something back (hits that an interactive threshold did not find) and to show a word in
a table; so every doubt is answered with "alive".

The open file of a ledger, and the account that its log amounts to: one writer at a time, never behind.

Everything that goes wrong here ends the same way: nothing half-written, nothing half-summed, an honest error.
"""

from __future__ import annotations

import getpass
import os
import socket
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpsql.errors import LedgerError
from dpsql.ledger import rollback_detection, schema
from dpsql.ledger.accounts import Account
from dpsql.ledger.hash_chain import START, Row, damaged, link, verified
from dpsql.ledger.terms import Terms


def identity(pid: int | None = None) -> str:
    """This process (or ``pid``) on this boot of this machine, distinct even when process numbers come
    round.
    """
    pid = os.getpid() if pid is None else pid
    return "|".join([socket.gethostname(), _boot(), _namespace(), str(pid), _started(pid)])


def certainly_gone(other: str) -> bool:
    """True when ``other`` was a process of this boot and namespace that does not run any more."""
    parts, mine = other.split("|"), identity().split("|")
    if len(parts) != 5 or parts[:3] != mine[:3] or not mine[1] or not parts[3].isdigit():
        return False
    return _started(int(parts[3])) != parts[4]


def user() -> str:
    """The name of the user as the operating system knows it; empty when it knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


def _boot() -> str:
    return _text(Path("/proc/sys/kernel/random/boot_id"))


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Start of the process in clock ticks since boot; empty for no such process (or no /proc)."""
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


class Book:
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
        self.process = identity()
        self.user = user()
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
            schema.found(self._connected(), first)
        _OPEN.add(self)

    @property
    def charges(self) -> bool:
        """Whether something can be charged here: not to a copy, nor to what is only read."""
        return self.path is not None and not self._read_only

    def copy(self, terms: Terms) -> Book:
        """The rows as they are now, in memory, to be read under other terms. Nothing can be charged to a
        copy.
        """
        memory = schema.connect(None)
        with self.reading() as connection:
            connection.backup(memory)
        memory.execute("PRAGMA query_only = ON")
        return Book(None, terms, connection=memory)

    def close(self) -> None:
        """Closes the file. Open reservations stay charged."""
        with self._lock:
            self._closed = True
            self._disconnect()
        _OPEN.discard(self)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, with the account up to date."""
        with self._lock, self._guarded() as connection:
            self._catch_up(connection)
            yield connection

    def current(self) -> Account:
        """The account, with what other processes wrote by now."""
        with self.reading():
            return self.account

    def hash_at(self, seq: int) -> object:
        """The hash stored in a row, None when there is no such row."""
        with self.reading() as connection:
            return schema.hash_at(connection, seq)

    @contextmanager
    def writing(self, durable: bool = True) -> Iterator[tuple[Write, sqlite3.Connection]]:
        """One transaction: take the write lock, read what others wrote, decide and append, commit.

        With ``durable`` the rows are on the disk when the block ends; without, they may be lost in a power
        cut (not when a process dies).
        """
        rows: list[Row] = []

        def write(kind: str, statement: int, body: dict[str, Any]) -> None:
            seq, head = (rows[-1].seq, rows[-1].hash) if rows else (self.account.seq, self.account.head)
            row = link(head, seq + 1, kind, statement, now(), body)
            schema.append(connection, row)
            rows.append(row)

        with self._lock, self._guarded() as connection:
            schema.durable(connection, durable)
            connection.execute("BEGIN IMMEDIATE")
            self._catch_up(connection)
            yield write, connection
            connection.execute("COMMIT")
            self._check_kept()
            self._fold(rows)
            if durable and rows and self.path is not None:
                mark = rollback_detection.Mark(self.account.ledger_id, rows[-1].seq, rows[-1].hash)
                rollback_detection.write_mark(self.path, mark)
                rollback_detection.renew(self.path, mark)

    def _check_kept(self) -> None:
        """After a commit: the rows must be in files that still have their names."""
        if self.path is not None:
            wal = _inode(schema.wal_path(self.path))
            self._wal = self._wal or wal
            if _inode(self.path) != self._file or wal != self._wal:
                raise _replaced(self.path)

    @contextmanager
    def _guarded(self) -> Iterator[sqlite3.Connection]:
        """The connection of this process. Whatever goes wrong: roll back, and fold the log afresh next
        time.
        """
        with schema.honest(self.path):
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
        return schema.connect(self.path, read_only=self._read_only, timeout=self._timeout)

    def _disconnect(self) -> None:
        if self._connection is not None and self._pid == os.getpid():
            self._connection.close()
            self._connection = None

    def _before_fork(self) -> None:
        """SQLite's locks don't survive a fork: let go of the file. Both processes open it again when they
        need it.
        """
        self._lock.acquire()
        if self.path is not None:
            with suppress(sqlite3.Error):
                self._disconnect()

    def _after_fork(self) -> None:
        """In a forked process. A budget in memory can't be shared, so the child has none."""
        if self.path is None or self._connection is not None:
            raise LedgerError(
                "This ledger was opened before the process was forked: both would spend the same budget.",
                hint="connect again in the new process, with a ledger in a file: ledger='...'.",
            )
        self._pid = os.getpid()
        self.process = identity()
        self._trusted = False

    def _catch_up(self, connection: sqlite3.Connection) -> Account:
        """Folds the rows that were written since, after checking that the log still goes through the last
        one.
        """
        if not self._trusted:
            self.account = Account(self._terms)
        account = self.account
        if account.seq and schema.hash_at(connection, account.seq) != account.head:
            raise damaged(f"row {account.seq} is not the one that was written")
        self._fold(verified(schema.rows_after(connection, account.seq), account.seq, account.head))
        if account.head == START:
            raise damaged("it has no rows")
        return account

    def _fold(self, rows: list[Row]) -> None:
        self._trusted = False  # until done: an interruption in the middle must not leave half a sum
        self.account.apply(rows)
        self._trusted = True


_OPEN: weakref.WeakSet[Book] = weakref.WeakSet()


def now() -> str:
    """The time for a row, in UTC. Nothing is ever decided by it."""
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
