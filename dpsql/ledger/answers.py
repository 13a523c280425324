"""The file of stored answers, which may be shown again at no cost, as post-processing.

The file ``answers`` in the ledger's folder stays below the size that the owner sets: then the oldest answers are dropped, and
asking again is a new, charged answer. Charges do not depend on this file. Each private block's release has its own key. Ledgers
of older versions store whole statements' releases under the statements' keys, and these are still found.

A release has two keys, its definition and its newest answer, which are replaced together. It is never dropped to make room.

The file contains released values only. The settlement's row in the ledger commits to the bytes, so a changed answer is
detected. Answers are written after the settlement: if the process is killed in between, asking again is charged again.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dpsql.errors import LedgerError
from dpsql.late_dataclass import dataclass
from dpsql.ledger.log_file import PUBLISHED, set_durable
from dpsql.ledger.state_files import make_folder, make_private_file, place_side_file, read_inode, read_mode
from dpsql.privacy.events import Event
from dpsql.privacy.records import Entry, format_local_time

_PIECE = 1 << 24
_MOST_KEYS = 500
"""The most keys that one query names."""
ASKED = "asked "
"""Prefix of the key of a question's subject, which later explains why no stored answer fits; no charge depends on it."""
DEBITED = "debited "
"""Prefix of an analyst and the key of another's answer, for which this analyst's share was debited."""
DEFINED, ANSWERED = "release ", "released "
"""Prefixes of a release's folded name: the keys of its definition, and of its newest answer."""
LARGEST_RELEASE = 999_000_000
"""Greatest size of a stored release, in bytes: SQLite has no larger values."""
_DROPPED = 10_000
"""Greatest number of dropped keys that are remembered, so that a note can name them."""

_TABLES = (
    "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, statement INTEGER NOT NULL, size INTEGER NOT NULL, release BLOB)",
    "CREATE INDEX IF NOT EXISTS answers_statement ON answers (statement, size)",
    "CREATE TABLE IF NOT EXISTS held (one INTEGER PRIMARY KEY CHECK (one = 1), bytes INTEGER NOT NULL)",
    "INSERT OR IGNORE INTO held VALUES (1, 0)",
)


MAX_NAME = 63
"""The most letters of a release's name."""


def is_release_name(name: str) -> bool:
    """Return whether a name may be a release's: a word of at most :data:`MAX_NAME` letters."""
    return name.isidentifier() and len(name) <= MAX_NAME


@dataclass(frozen=True)
class PublishedRelease:
    """A release as it is stored: its definition, its newest answer, and the time of that."""

    definition: bytes
    answer: bytes
    when: str

    @property
    def digest(self) -> str:
        """The digest of the definition, by which a change of it is noticed."""
        return hash_release(self.definition)


@dataclass(frozen=True)
class StoredRelease:
    """A release that was paid for: its bytes, time, statement, and loss.

    ``event`` is the loss of this release. A server omits the time, the number and the name for another analyst's statement: they
    are empty and None. ``debit`` is charged to the analyst's own share before the release is shown.
    """

    release: bytes
    when: str
    statement_id: int | None
    event: Event
    key: str = ""
    analyst: str = ""
    debit: Event | None = None

    @property
    def when_text(self) -> str:
        """The time as shown: ``"14:02"``, with the date unless it was today; empty if unknown."""
        return format_local_time(self.when) if self.when else ""


def name_debit(analyst: str | None, key: str) -> str:
    """Return the key of the record that an analyst's share was debited for an answer."""
    return f"{DEBITED}{analyst} {key}"


def check_release(entry: Entry | None, key: str, release: bytes) -> StoredRelease:
    """Return the release if the log has it as released, under this key, with these bytes; LedgerError if it was changed."""
    event = None if entry is None else entry.lost(key)
    if entry is None or event is None or entry.kept(key) != hash_release(release):
        raise LedgerError(
            "The stored answer of this statement does not fit the ledger's record of it.",
            hint="--fresh (in Python: fresh=True) pays for a new answer.",
        )
    return StoredRelease(release, entry.when, entry.statement_id, event, key, entry.analyst)


def check_published(entry: Entry | None, key: str, content: bytes) -> None:
    """Raise LedgerError unless the log has these bytes as a release's, under this key."""
    if entry is None or entry.outcome != PUBLISHED or entry.blocks.get(key) != hash_release(content):
        raise LedgerError(
            "A release does not fit the ledger's record of it.",
            hint="DROP RELEASE removes it, and CREATE OR REPLACE RELEASE makes it anew.",
        )


def check_kept(entry: Entry | None, key: str, release: bytes) -> bool:
    """Check the value of a key of any kind, and return whether it is a release; LedgerError if it is not in the log."""
    if key.startswith(DEBITED):
        analyst, _, of = key.removeprefix(DEBITED).rpartition(" ")
        if entry is None or entry.analyst != analyst or of not in entry.debited:
            raise LedgerError("A stored answer is recorded as debited, but the ledger has no such debit.")
        return False
    if key.startswith(ASKED):
        return False
    if key.startswith((DEFINED, ANSWERED)):
        check_published(entry, key, release)
        return key.startswith(ANSWERED)
    check_release(entry, key, release)
    return True


def hash_release(release: bytes) -> str:
    """Hash a release."""
    return hashlib.sha256(release).hexdigest()


class AnswerStore:
    """The stored answers of a ledger. The file is created with the first answer; the ledger's lock guards it.

    ``ledger``: its path; None keeps the answers in memory. ``limit``: the greatest size in bytes.
    """

    def __init__(self, ledger: Path | None, limit: int | None = None, timeout: float = 30.0) -> None:
        self.path = None if ledger is None else place_side_file(ledger, "answers")
        self.limit = limit
        self._ledger, self._timeout = ledger, timeout
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    def close(self) -> None:
        """Close the file, or forget the answers in memory."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, key: str) -> tuple[int, bytes | None] | None:
        """Return the statement and the bytes of a key; the bytes of a dropped answer are None."""
        return self.get_all([key]).get(key)

    def get_all(self, keys: Sequence[str]) -> dict[str, tuple[int, bytes | None]]:
        """Return the statements and the bytes of the keys that have any."""
        found: dict[str, tuple[int, bytes | None]] = {}
        for start in range(0, len(keys), _MOST_KEYS):
            some = keys[start : start + _MOST_KEYS]
            marks = ", ".join("?" * len(some))
            for key, number, release in self._select(
                f"key, statement, release FROM answers WHERE key IN ({marks})", *some
            ):
                found[key] = number, None if release is None else bytes(release)
        return found

    def _select(self, query: str, *values: str) -> list[Any]:
        """Return the rows of a query; none without a file."""
        with self._open(make=False) as connection:
            return [] if connection is None else connection.execute(f"SELECT {query}", values).fetchall()

    def get_release(self, name: str) -> dict[str, tuple[int, bytes]]:
        """Return the statement and the bytes of both keys of a release, as of one moment; empty without one."""
        keys = DEFINED + name, ANSWERED + name
        found = self._select("key, statement, release FROM answers WHERE key IN (?, ?)", *keys)
        return {key: (statement, bytes(content)) for key, statement, content in found}

    def list_names(self) -> list[str]:
        """Return the folded names of the releases, the oldest first."""
        ends = DEFINED, DEFINED[:-1] + "!"
        found = self._select("key FROM answers WHERE key >= ? AND key < ? ORDER BY rowid", *ends)
        return [str(key).removeprefix(DEFINED) for (key,) in found]

    def remove(self, keys: Iterable[str]) -> None:
        """Remove the values of keys that don't count towards the limit."""
        with self._writing(make=False) as connection:
            if connection is not None:
                connection.executemany("DELETE FROM answers WHERE key = ?", [(key,) for key in keys])

    def put(self, releases: Mapping[str, bytes], statement: int) -> None:
        """Store releases. They replace older ones of their keys; then the oldest are dropped, down to the limit."""
        if not releases:
            return
        with self._writing() as connection:
            grown = sum(
                self._put_one(connection, key, statement, release) for key, release in releases.items()
            )
            connection.execute("UPDATE held SET bytes = bytes + ?", (grown,))
            if self.limit is not None:
                self._make_room(connection, self.limit)

    def forget(self, statements: tuple[int, ...]) -> int:
        """Remove the answers of statements, with their keys, and return how many there were."""
        with self._writing(make=False) as connection:
            if connection is None:
                return 0
            gone = sum(_remove(connection, number) for number in statements)
        self.compact()
        return gone

    def compact(self) -> None:
        """Rewrite the file, so that no removed bytes are left in it."""
        with self._open(make=False) as connection:
            if connection is not None and self.path is not None:
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def all(self) -> Iterator[tuple[str, int, bytes]]:
        """Yield the key, the statement and the bytes of each stored answer."""
        with self._open(make=False) as connection:
            if connection is not None:
                yield from connection.execute(
                    "SELECT key, statement, release FROM answers WHERE release IS NOT NULL ORDER BY statement"
                )

    def _put_one(self, connection: sqlite3.Connection, key: str, statement: int, release: bytes) -> int:
        """Store an answer in place of its key's earlier one, and return the growth in bytes."""
        found = connection.execute("SELECT size FROM answers WHERE key = ?", (key,)).fetchone()
        size, before = len(release), 0 if found is None else int(found[0])
        if key.startswith((DEFINED, ANSWERED)):
            # its place, outside the limit: of size 0, so that it is never dropped to make room
            connection.execute(
                "INSERT INTO answers VALUES (?, ?, 0, ?) ON CONFLICT (key) DO UPDATE "
                "SET statement = excluded.statement, release = excluded.release",
                (key, statement, release),
            )
            return 0
        if found is not None:
            connection.execute("DELETE FROM answers WHERE key = ?", (key,))
        if self.limit is not None and size > self.limit:
            connection.execute("INSERT INTO answers VALUES (?, ?, 0, NULL)", (key, statement))
            return -before
        if size <= _PIECE:
            connection.execute("INSERT INTO answers VALUES (?, ?, ?, ?)", (key, statement, size, release))
            return size - before
        # binding a value copies it; a large release is written in pieces
        made = connection.execute(
            "INSERT INTO answers VALUES (?, ?, ?, zeroblob(?))", (key, statement, size, size)
        )
        with connection.blobopen("answers", "release", made.lastrowid or 0) as blob:
            for start in range(0, size, _PIECE):
                blob.write(release[start : start + _PIECE])
        return size - before

    def _make_room(self, connection: sqlite3.Connection, limit: int) -> None:
        held = connection.execute("SELECT bytes FROM held").fetchone()[0]
        if held <= limit:
            return
        dropped = []
        for key, size in connection.execute(
            "SELECT key, size FROM answers WHERE size > 0 ORDER BY statement"
        ):
            if held <= limit:
                break
            held -= size
            dropped.append((key,))
        connection.executemany("UPDATE answers SET release = NULL, size = 0 WHERE key = ?", dropped)
        connection.execute("UPDATE held SET bytes = ?", (held,))
        connection.execute(
            "DELETE FROM answers WHERE release IS NULL AND key NOT IN "
            "(SELECT key FROM answers WHERE release IS NULL ORDER BY statement DESC LIMIT ?)",
            (_DROPPED,),
        )

    @contextmanager
    def _writing(self, make: bool = True) -> Iterator[sqlite3.Connection]:
        with self._open(make) as connection:
            if connection is None:
                yield connection  # type: ignore[misc]
                return
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _open(self, make: bool) -> Iterator[sqlite3.Connection | None]:
        try:
            yield self._connect(make)
            return
        except sqlite3.Error:
            name = "" if self.path is None else f" {self.path}"
        raise LedgerError(
            f"The file{name} of stored answers can't be read or written.",
            hint="move it away: charges do not depend on it, and answers are then paid for again.",
        )

    def _connect(self, make: bool) -> sqlite3.Connection | None:
        if self._ledger is None:
            if self._connection is None:
                self._connection = _connect(":memory:", self._timeout)
            return self._connection
        if self._connection is None:
            self.path = place_side_file(self._ledger, "answers")
        assert self.path is not None
        if self._connection is not None and read_inode(self.path) != self._file:
            self.close()  # it was moved away
        if self._connection is None:
            if not self.path.exists():
                if not make:
                    return None
                with suppress(OSError):
                    make_folder(self._ledger)
                    make_private_file(self.path, read_mode(self._ledger))
            self._connection, self._file = _connect(str(self.path), self._timeout), read_inode(self.path)
        return self._connection


def _connect(name: str, timeout: float) -> sqlite3.Connection:
    connection = sqlite3.connect(name, isolation_level=None, check_same_thread=False, timeout=timeout)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA secure_delete = ON")
        if connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'held'").fetchone()[0] == 0:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute("COMMIT")
        set_durable(connection, False)
    except BaseException:
        connection.close()
        raise
    return connection


def _remove(connection: sqlite3.Connection, statement: int) -> int:
    held = connection.execute(
        "SELECT count(*), coalesce(sum(size), 0) FROM answers WHERE statement = ?", (statement,)
    )
    count, size = held.fetchone()
    if count:
        connection.execute("DELETE FROM answers WHERE statement = ?", (statement,))
        connection.execute("UPDATE held SET bytes = bytes - ?", (size,))
    return int(count)
