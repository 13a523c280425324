"""The store of releases: what was answered once may be shown again, for that is post-processing.

Each private block's release is kept under a key of its own; ledgers of older versions hold whole statements' releases
under the statements' keys, and these are found as they were.

It holds what mechanisms let out and nothing else; the bytes come in with the settlement, in the same
transaction, and the settlement's row holds their digest, so a changed answer shows.
"""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import dataclass

from dpsql.errors import LedgerError
from dpsql.ledger.accounts import Entry, local
from dpsql.privacy.events import Event

_PIECE = 1 << 24
_ASKED = "asked "
LARGEST = 999_000_000
"""Bytes of a release that is kept: SQLite has no larger values."""


@dataclass(frozen=True)
class Stored:
    """A release that was paid for: its bytes, when, by which statement, and what that cost then."""

    release: bytes
    when: str
    statement_id: int
    event: Event

    @property
    def when_text(self) -> str:
        """The time as shown: ``"14:02"``, with the date when it was not today."""
        return local(self.when)


def put(connection: sqlite3.Connection, key: str, statement: int, release: bytes) -> None:
    """Keeps a release, inside the transaction that settles it. A fresh answer takes the place of an older
    one.
    """
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


def get(connection: sqlite3.Connection, key: str) -> tuple[int, bytes] | None:
    """Statement and bytes kept under a key."""
    row = connection.execute("SELECT statement, release FROM replay WHERE key = ?", (key,)).fetchone()
    return None if row is None else (row[0], bytes(row[1]))


def remember(connection: sqlite3.Connection, question: str, statement: int, items: bytes) -> None:
    """Keeps what a question was asked about. It decides nothing: it only says later what has changed."""
    connection.execute(
        "INSERT OR REPLACE INTO replay VALUES (?, ?, ?)", (_ASKED + question, statement, items)
    )


def remembered(connection: sqlite3.Connection, question: str) -> tuple[int, bytes] | None:
    """Statement and items kept for a question."""
    return get(connection, _ASKED + question)


def stored(entry: Entry | None, key: str, release: bytes) -> Stored:
    """The release, when the log knows it as released, under this key, with these bytes.

    Raises:
        LedgerError: it was changed, or never paid for.
    """
    if entry is None or entry.event is None or entry.kept(key) != digest(release):
        raise LedgerError(
            "The stored answer of this statement does not fit the ledger's record of it.",
            hint="--fresh (in Python: fresh=True) pays for a new answer.",
        )
    return Stored(release, entry.when, entry.statement_id, entry.event)


def digest(release: bytes) -> str:
    return hashlib.sha256(release).hexdigest()
