"""The connection to a ledger's file and the account of its log: one writer at a time, always up to date.

After any error nothing is half-written or half-summed. A reservation's process is identified, so that a later session
can tell that it is certainly gone. That only settles thresholds' unused hits and labels a table, so every doubt means alive.

A ledger of version 1 stored texts inside the rows, and answers inside the ledger. The upgrade keeps a copy of it. It
writes each row anew, with its number and time, in a new chain; texts move out of the rows, behind a salted digest. The
body keeps the row's earlier hash, so that an older mark is still recognised, and a last row ``upgrade`` has the last
hash of the older chain. All of it is one transaction on the file: open sessions of an older dpsql find other hashes and stop.
"""

from __future__ import annotations

import getpass
import os
import socket
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from dpsql.errors import LedgerError
from dpsql.ledger import log_file, state_files
from dpsql.ledger.accounts import Account, ReadContent
from dpsql.ledger.answers import AnswerStore
from dpsql.ledger.log_file import (
    START,
    VERSION,
    Row,
    RowBody,
    Said,
    damaged_error,
    link_row,
    read_body,
    read_entries,
    read_one_entry,
    verify_rows,
)
from dpsql.ledger.terms import Terms
from dpsql.privacy.records import Entry

_APART = {"reserve": ("text", "key"), "refuse": ("text", "reason"), "settle": ("release", "blocks")}
"""Parts of a version-1 body that are stored outside the row since."""


def upgrade_ledger(connection: sqlite3.Connection, path: Path, *, read_only: bool) -> sqlite3.Connection:
    """Return a connection to the ledger in this version's format; the given one is closed if another is returned.

    ``read_only``: leave the file unchanged, and return an upgraded private copy. LedgerError if the ledger is damaged, or
    can't be written.
    """
    if read_only:
        with closing(connection), log_file.explain_errors(path):
            draft = sqlite3.connect(
                "", isolation_level=None, check_same_thread=False
            )  # a file without a name
            connection.backup(draft)
            draft.execute("BEGIN")
            _rewrite(draft, "")
            draft.execute("COMMIT")
            draft.execute("PRAGMA query_only = ON")
        return draft
    with log_file.explain_errors(path):
        log_file.set_durable(connection, True)
        connection.execute("BEGIN IMMEDIATE")
        try:
            if log_file.read_version(connection) < VERSION:  # unless another process was quicker
                copy = _keep_copy(connection, path)
                _move_answers(connection, path)
                _rewrite(connection, copy.name)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.close()
            raise
    return connection


def _keep_copy(connection: sqlite3.Connection, path: Path) -> Path:
    """Copy the unchanged ledger to a file that only its owner may read, and no one may write."""
    version = log_file.read_version(connection)
    for number in range(1, 1000):
        name = f"version-{version}" + (f"-{number}" if number > 1 else "")
        try:
            copy = state_files.make_folder(path) / f"{name}.ledger"
            os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            continue
        except OSError as error:
            raise LedgerError(
                f"The ledger {path} can't be upgraded: no copy can be kept in its folder ({error.strerror}).",
                hint="ask the data owner: dpsql ledger upgrade.",
            ) from None
        # A second connection, since the transaction of ``connection`` would block the copy. No other process writes meanwhile.
        with (
            closing(log_file.connect_to_ledger(path, read_only=True)) as read,
            closing(sqlite3.connect(copy)) as kept,
        ):
            read.backup(kept)
        copy.chmod(0o400)
        return copy
    raise LedgerError(f"The ledger {path} can't be upgraded: its folder has too many copies of it.")


def _move_answers(connection: sqlite3.Connection, path: Path) -> None:
    """Write the answers to their own file, before the ledger records that they are there."""
    with closing(AnswerStore(path)) as answers:
        for key, statement, release in connection.execute("SELECT key, statement, release FROM replay"):
            answers.put({key: bytes(release)}, statement)


def _rewrite(connection: sqlite3.Connection, copy: str) -> None:
    connection.execute("ALTER TABLE log RENAME TO older")
    for statement in log_file.TABLES.values():
        connection.execute(statement)
    head, rows, last = START, 0, START
    at = ""
    for row in _read_older(connection):
        body = read_body(row)
        apart = {name: body.pop(name) for name in _APART.get(row.kind, ()) if name in body}
        said = Said.of(apart) if any(apart.values()) or "text" in apart else None
        body |= {"was": row.hash} | ({} if said is None else {"said": said.digest})
        new = link_row(head, row.seq, row.kind, row.statement, row.at, body)
        log_file.append_row(connection, new, said)
        head, last, rows, at = new.hash, row.hash, row.seq, row.at
    if not rows:
        raise damaged_error("it has no rows")
    told: dict[str, object] = {"from": 1, "rows": rows, "head": last, "copy": copy}
    log_file.append_row(connection, log_file.link_row(head, rows + 1, "upgrade", 0, at, told))
    connection.execute("DROP TABLE older")
    connection.execute("DROP TABLE replay")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _read_older(connection: sqlite3.Connection) -> Iterator[Row]:
    return verify_rows(
        connection.execute("SELECT seq, kind, statement, at, body, hash FROM older ORDER BY seq")
    )


def identify_process(pid: int | None = None) -> str:
    """Return an identifier of this process (or ``pid``) on this boot of this machine, safe against reused numbers."""
    pid = os.getpid() if pid is None else pid
    boot = _text(Path("/proc/sys/kernel/random/boot_id"))
    return "|".join([socket.gethostname(), boot, _namespace(), str(pid), _started(pid)])


def is_certainly_gone(other: str) -> bool:
    """Return whether ``other`` was a process of this boot and namespace that does not run any more."""
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
    """Return the start of a process in clock ticks since boot; empty without such a process or without /proc."""
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in "ZX":  # a zombie has finished
        return ""
    return fields[19]


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


class Write(Protocol):
    """Appends a row: its kind, its statement (0: none), its body, and its content outside the chain."""

    def __call__(
        self, kind: str, statement: int, body: RowBody, content: RowBody | None = None, /
    ) -> None: ...


ROWS_BETWEEN_CHECKPOINTS = 1000
"""Rows between checkpoints, which limit the rows read on opening."""

_CACHED = 2_000
"""The most answered statements that are cached."""
_PAGE = 2000


class LedgerStore:
    """A connection to a ledger and the fold of its rows. Safe for threads, processes and forks.

    ``path`` is None for a new ledger in memory, which begins with ``first``. ``terms`` rule the sums; None for the granted ones.
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
        keep_answers: int | None = None,
    ) -> None:
        self.path = path
        self.answers = AnswerStore(path, keep_answers, timeout)
        self.process = identify_process()
        self.user = get_user()
        self.account = Account(terms)
        self._answered: dict[int, tuple[str, Entry]] = {}
        self._terms = terms
        self._folded_whole = False
        self._read_only = read_only
        self._timeout = timeout
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._trusted = False
        self._closed = False
        self._wal: tuple[int, int] | None = None
        self._logged: bool | None = None
        """Whether the open connection has a write-ahead log; None if unknown."""
        self._connection: sqlite3.Connection | None = connection or self._connect()
        self._file = None if path is None else state_files.read_inode(path)
        if first is not None:
            log_file.write_first_row(self._connected(), first)
        _OPEN.add(self)

    @property
    def charges(self) -> bool:
        """Whether charges are possible: not to a copy, nor to a ledger that is only read."""
        return self.path is not None and not self._read_only

    def copy(self, terms: Terms) -> LedgerStore:
        """Open the ledger once more, to be read under other terms and never charged."""
        if self.path is not None:
            return LedgerStore(self.path, terms, read_only=True, timeout=self._timeout)
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
        """Return the account, with other processes' rows so far."""
        with self.reading():
            return self.account

    def hashes_at(self, seq: int) -> tuple[object, ...]:
        """Return the hash of a row and its hash before an upgrade; empty if there is no such row."""
        with self.reading() as connection:
            return log_file.read_hashes(connection, seq)

    def find_entry(self, number: int) -> Entry | None:
        """Return one statement; None if there is no such number."""
        return self.find_entries([number])[number]

    def find_entries(self, numbers: Iterable[int]) -> dict[int, Entry | None]:
        """Return statements by number, answered ones from a cache; None if there is no such number."""
        found: dict[int, Entry | None] = {}
        with self.reading() as connection:
            forgotten = self.account.forgotten
            for number in numbers:
                known = self._answered.get(number)
                if known is not None and known[0] == forgotten:
                    found[number] = known[1]
                    continue
                entry = found[number] = read_one_entry(connection, number, forgotten)
                if entry is not None and entry.outcome == "released":
                    if len(self._answered) >= _CACHED:
                        self._answered.clear()
                    self._answered[number] = forgotten, entry
        return found

    def entries(self, first: int, last: int) -> Iterator[Entry]:
        """Yield the statements from number ``first`` to ``last``, each page as it is when it is read."""
        for start in range(max(1, first), last + 1, _PAGE):
            with self.reading() as connection:
                page = list(
                    read_entries(connection, start, min(last, start + _PAGE - 1), self.account.forgotten)
                )
            yield from page

    def list_statements(self, analyst: str, after: int) -> list[int]:
        """Return the numbers of one analyst's statements after a number, in order. Rows are not checked here."""
        with self.reading() as connection:
            rows = connection.execute(
                "SELECT DISTINCT statement FROM log WHERE statement > ? "
                "AND kind IN ('reserve', 'refuse', 'spend', 'debit', 'publish') "
                "AND json_extract(body, '$.analyst') = ? ORDER BY statement",
                (after, analyst),
            )
            return [number for (number,) in rows]

    @property
    def checkpoint_is_due(self) -> bool:
        """Whether the last checkpoint is too far back."""
        since = self.account.seq - (0 if self._folded_whole else self.account.sealed)
        return self.charges and since >= ROWS_BETWEEN_CHECKPOINTS

    @contextmanager
    def writing(self, durable: bool = True) -> Iterator[tuple[Write, sqlite3.Connection]]:
        """Run one transaction: take the write lock, read others' rows, decide and append, commit.

        With ``durable`` the rows are on the disk when the block ends; without, a power cut may lose them (a crash of the process
        does not).
        """
        rows: list[Row] = []

        def write(kind: str, statement: int, body: RowBody, content: RowBody | None = None) -> None:
            said = None if content is None else Said.of(content)
            seq, head = (rows[-1].seq, rows[-1].hash) if rows else (self.account.seq, self.account.head)
            body = body if said is None else {**body, "said": said.digest}
            row = link_row(head, seq + 1, kind, statement, log_file.format_now(), body)
            log_file.append_row(connection, row, said)
            rows.append(row)

        with self._lock, self._guarded() as connection:
            if self.path is not None:
                self._logged = log_file.set_durable(connection, durable, self._logged)
            connection.execute("BEGIN IMMEDIATE")
            self._catch_up(connection)
            if self.checkpoint_is_due:
                write("checkpoint", 0, *self.account.seal())
            yield write, connection
            connection.execute("COMMIT")
            self._check_kept()
            self._fold(rows)
            if rows and rows[0].kind == "checkpoint":
                self._folded_whole = False
            if durable and rows and self.path is not None:
                mark = state_files.Checkpoint(self.account.ledger_id, rows[-1].seq, rows[-1].hash)
                state_files.write_checkpoint(self.path, mark)
                state_files.update_register(self.path, mark)

    def _check_kept(self) -> None:
        """Check after a commit that the rows are in files that still have their names."""
        if self.path is not None:
            wal = state_files.read_inode(log_file.wal_path(self.path))
            self._wal = self._wal or wal
            if state_files.read_inode(self.path) != self._file or wal != self._wal:
                raise _moved_error(self.path)

    @contextmanager
    def _guarded(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection of this process. After any error, roll back and fold the log afresh next time."""
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
        if self.path is not None and state_files.read_inode(self.path) != self._file:
            raise _moved_error(self.path)
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        self._wal = self._logged = None
        connection = log_file.connect_to_ledger(self.path, read_only=self._read_only, timeout=self._timeout)
        if self.path is None or log_file.read_version(connection) == log_file.VERSION:
            return connection
        return upgrade_ledger(connection, self.path, read_only=self._read_only)

    def _disconnect(self) -> None:
        self._answered.clear()
        if self._pid == os.getpid():
            self.answers.close()
        if self._connection is not None and self._pid == os.getpid():
            self._connection.close()
            self._connection = None

    def _before_fork(self) -> None:
        """Release the file, since SQLite's locks do not survive a fork. Both processes open it again."""
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
        """Fold the rows written since, after checking that the log still contains the last one."""
        if not self._trusted:
            checkpoint = log_file.find_checkpoint(connection)
            self.account = (
                Account(self._terms)
                if checkpoint is None
                else Account.restore(checkpoint, self._terms, self._find_content(connection, checkpoint.seq))
            )
        elif self.path is None:
            return self.account  # no other process can write there
        account = self.account
        # a kept error must not keep the cursor open: later reads would see the old rows
        with closing(log_file.read_rows_after(connection, max(0, account.seq - 1))) as rows:
            if account.seq and (next(rows, None) or ("",))[-1] != account.head:
                raise damaged_error(f"row {account.seq} is not the one that was written")
            self._fold(verify_rows(rows, account.seq, account.head))
        if account.head == START:
            raise damaged_error("it has no rows")
        if account.find_missing():
            self._fold_whole(connection)
        return self.account

    def _find_content(self, connection: sqlite3.Connection, seq: int) -> ReadContent | None:
        """Return a function that reads the content of a row now or later; None if there is none."""

        def read(start: int, size: int) -> str:
            with self._lock, log_file.explain_errors(self.path):
                return log_file.read_content(self._connected(), seq, start, size)

        return read if log_file.has_content(connection, seq) else None

    def _fold_whole(self, connection: sqlite3.Connection) -> None:
        """Fold the log from the first row on, under limits without sums in a checkpoint."""
        self.account = Account(self._terms, self.account.limits)
        with closing(log_file.read_rows_after(connection, 0)) as rows:
            self._fold(verify_rows(rows))
        self._folded_whole = True

    def _fold(self, rows: Iterable[Row]) -> None:
        self._trusted = False  # until done: an interruption must not leave half a sum
        self.account.apply(rows)
        self._trusted = True


_OPEN: weakref.WeakSet[LedgerStore] = weakref.WeakSet()


class ReplacedLedgerError(LedgerError):
    """The error for a ledger whose file was removed or replaced while it was open."""


def _moved_error(path: Path) -> ReplacedLedgerError:
    return ReplacedLedgerError(
        f"The ledger {path} was removed or replaced while it was open; nothing can be charged.",
        hint="if its owner restored a backup, connect again; else put the file back first.",
    )


def find_existing(path: str | Path) -> Path:
    """Return the path of an existing ledger; LedgerError if there is none, or it is gone."""
    where = Path(path).expanduser().resolve()
    if not where.exists():
        raise state_files.explain_missing(where) or LedgerError(f"There is no ledger {where}.")
    return where


def find_replaced(path: Path, book: LedgerStore) -> LedgerError | None:
    """Return the error for a ledger that does not continue its mark and the register."""
    register = state_files.read_register(path, book.account.ledger_id)
    return explain_replaced(path, book, state_files.read_checkpoint(path), *register)


def explain_replaced(
    path: Path, book: LedgerStore, *seen: state_files.Checkpoint | None
) -> LedgerError | None:
    """Return the error for a ledger that does not continue one of the marks; None if it continues all."""
    for mark in filter(None, seen):
        there = book.hashes_at(
            mark.seq
        )  # read after the mark, so that the ledger is never behind its own mark
        told = state_files.explain_rollback(path, mark, book.account.ledger_id, book.account.seq, there)
        if told is not None:
            return told
    return None


def _before_fork() -> None:
    for book in list(_OPEN):
        book._before_fork()


def _in_parent() -> None:
    for book in list(_OPEN):
        with suppress(RuntimeError):  # opened meanwhile by another thread: not locked here
            book._lock.release()


def _in_child() -> None:
    for book in list(_OPEN):
        book._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
