"""Rows of the log, their hash chain, and the SQLite file of a ledger.

The log only grows: a reservation, its settlement and a refusal are separate rows, and no row is rewritten. Each row's hash
covers the row and the hash before it, so changed, swapped, inserted and missing rows are found. The chain has no secret
key: it shows accidents and clumsy edits, but an attacker can recompute all of it. The mark and the register in
:mod:`dpsql.ledger.state_files` make that harder; the owner's backups rule it out.

Statements' texts, and the keys made from them, are stored outside the rows: a row holds a salted digest of them. The owner can
blank a text with its salt, and the chain still verifies. Without the salt no guess of the text can be confirmed.

A ledger is one file, with the two files of SQLite's write-ahead log while it is open. A commit that charges returns after
it is on the disk (``synchronous = FULL``; ``EXTRA`` on file systems that support a rollback journal only). A commit
of a settlement may wait for the next one: if a power cut loses it, the full charge remains. Each writer takes the write lock
before it reads the sums for its decision (``BEGIN IMMEDIATE``), so two processes can't both spend the last of a budget.

Statements are read from their rows page by page, through an index, and no charge depends on them: that takes the sums of
:mod:`dpsql.ledger.accounts` alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from dpsql.errors import LedgerError
from dpsql.privacy.events import Event
from dpsql.privacy.records import Entry

START = "0" * 64
"""The hash before the first row."""

RowBody = Mapping[str, Any]
"""The body of a row, parsed from JSON."""
_KINDS = "open policy adopt reserve progress settle refuse notice checkpoint spend forget restore upgrade debit publish"
ROW_KINDS = tuple(_KINDS.split())


class Row(NamedTuple):
    """One row of the log: its number, kind, statement number (0: none), time, body as JSON, and hash."""

    seq: int
    kind: str
    statement: int
    at: str
    body: str
    hash: str


def format_now() -> str:
    """Return the time for a row, in UTC. No decision depends on it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def hash_row(previous: str, seq: int, kind: str, statement: int, at: str, body: str) -> str:
    """Hash a row that follows the row with hash ``previous``."""
    text = _write_hashed([previous, seq, kind, statement, at, body])
    return hashlib.sha256(text.encode()).hexdigest()


def link_row(previous: str, seq: int, kind: str, statement: int, at: str, body: RowBody) -> Row:
    """Return a new row, chained to ``previous``."""
    text = write_json(body)
    return Row(seq, kind, statement, at, text, hash_row(previous, seq, kind, statement, at, text))


def verify_rows(rows: Iterable[tuple[object, ...]], seq: int = 0, head: str = START) -> Iterator[Row]:
    """Yield rows that follow row ``seq`` with hash ``head``; LedgerError for a missing, moved, wrong or changed row."""
    for raw in rows:
        row = _typed(raw, seq + 1)
        if row.hash != hash_row(head, *row[:5]):
            raise damaged_error(f"row {row.seq} does not fit its hash")
        yield row
        seq, head = row.seq, row.hash


class Said(NamedTuple):
    """The content of a row that is stored outside it, as JSON, and the salt of the row's digest of it."""

    salt: str
    content: str

    @property
    def digest(self) -> str:
        """The digest. Without the salt it reveals nothing about the content."""
        return hashlib.sha256(f"{self.salt}\n{self.content}".encode()).hexdigest()

    @classmethod
    def of(cls, content: RowBody) -> Said:
        """Return the content with a fresh salt."""
        return cls(secrets.token_hex(16), write_json(content))


def write_json(body: RowBody) -> str:
    """Return JSON in the form that the log stores."""
    return _write_body(body)


def check_said(row: Row, body: RowBody, said: Said | None, forgotten: str) -> RowBody | None:
    """Return the content of a row that is stored outside it; None if the owner blanked it.

    ``forgotten``: the time before which the owner blanked contents. LedgerError if the content was changed, or is missing.
    """
    if said is None:
        if row.at < forgotten:
            return None
        raise damaged_error(f"the content of row {row.seq} is missing")
    if said.digest != body["said"]:
        raise damaged_error(f"the content of row {row.seq} does not fit its digest")
    return parse_object(said.content, row.seq)


def read_body(row: Row) -> dict[str, Any]:
    """Return the body of a row as a dictionary. NaN and infinities are not JSON and are refused."""
    return parse_object(row.body, row.seq)


def parse_object(text: str, seq: int) -> dict[str, Any]:
    """Read the JSON object of a row."""
    body = None
    with suppress(ValueError, RecursionError):
        body = _read_body(text)
    if not isinstance(body, dict):
        raise damaged_error(f"row {seq} can't be read")
    return body


def damaged_error(what: str) -> LedgerError:
    """Return the error for a ledger that is damaged or was edited."""
    return LedgerError(
        f"The ledger was damaged or changed by hand: {what}.",
        hint="restore the ledger from a backup; nothing can be charged to this one.",
    )


def _typed(raw: tuple[object, ...], expected: int) -> Row:
    if tuple(map(type, raw)) != (int, str, int, str, str, str):
        raise damaged_error(f"row {expected} is malformed")
    row = Row(*raw)  # type: ignore[arg-type]  # the types were just checked
    if row.seq != expected:
        raise damaged_error(f"row {expected} is missing")
    if row.kind not in ROW_KINDS or row.statement < 0:
        raise damaged_error(f"row {expected} is malformed")
    return row


def _no_constant(name: str) -> object:
    raise ValueError(name)


_write_hashed = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
_write_body = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False
).encode
_read_body = json.JSONDecoder(parse_constant=_no_constant).decode


APPLICATION = 0x6470_736C  # "dpsl": tells a ledger from any other SQLite file
VERSION = 2
"""The version of the tables. Ledgers of version 1 are upgraded, see :func:`dpsql.ledger.store.upgrade_ledger`."""

_LOG = (
    "CREATE TABLE log (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, statement INTEGER NOT NULL, "
    "at TEXT NOT NULL, body TEXT NOT NULL, hash TEXT NOT NULL)"
)
TABLES = {
    "log": _LOG,
    "log_statement": "CREATE INDEX log_statement ON log (statement)",
    "log_checkpoint": "CREATE INDEX log_checkpoint ON log (seq) WHERE kind = 'checkpoint'",
    "said": "CREATE TABLE said (seq INTEGER PRIMARY KEY, salt TEXT NOT NULL, content TEXT NOT NULL)",
}
OLDER_TABLES = {
    1: {
        "log": _LOG,
        "replay": (
            "CREATE TABLE replay (key TEXT PRIMARY KEY, statement INTEGER NOT NULL, release BLOB NOT NULL)"
        ),
    }
}
"""The tables of earlier versions."""

_CHECKED_WHOLE = 1 << 22
"""Files up to this size are checked page by page on opening; larger ones only by ``dpsql ledger verify``."""


def create_ledger_file(path: Path, first: Row) -> bool:
    """Create a ledger file with one row, atomically by a rename; return False if another process was quicker."""
    try:
        with drafting(path) as draft:
            with explain_errors(path), closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                write_first_row(connection, first)
            return give_name(draft, path)
    except OSError as error:
        raise LedgerError(
            f"The ledger {path} can't be created: {error.strerror}.",
            hint="give a path in a directory that you may write to: ledger='...'.",
        ) from None


@contextmanager
def drafting(path: Path) -> Iterator[Path]:
    """Yield an empty private file in a path's folder, removed at the end with SQLite's side files; else OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield draft
    finally:
        for side in ("", "-wal", "-shm", "-journal"):
            with suppress(OSError):
                draft.with_name(draft.name + side).unlink()


def write_first_row(connection: sqlite3.Connection, first: Row) -> None:
    """Write the tables and the first row into an empty database."""
    set_durable(connection, True)
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    for statement in TABLES.values():
        connection.execute(statement)
    append_row(connection, first)
    connection.execute("COMMIT")


def connect_to_ledger(
    path: Path | None, *, read_only: bool = False, timeout: float = 30.0
) -> sqlite3.Connection:
    """Connect to a ledger (None: a new one in memory); LedgerError if it is missing, not a ledger, newer or damaged."""
    if path is None:
        return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    # SQLite's side files are removed by the last connection that may write, so a reader may, if it has the right.
    writes = not read_only or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))
    how = "?mode=rw" if writes else "?mode=ro"
    if not writes and not wal_path(path).exists() and not os.access(path.parent, os.W_OK):
        how += "&immutable=1"  # read-only folder: no writer, and SQLite can't create its side files
    with explain_errors(path):
        connection = sqlite3.connect(
            path.as_uri() + how, uri=True, isolation_level=None, check_same_thread=False, timeout=timeout
        )
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA query_only = {'ON' if read_only else 'OFF'}")
            _recognise(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def set_durable(connection: sqlite3.Connection, wait: bool, logged: bool | None = None) -> bool:
    """Set whether the next commits wait for the disk, and return whether there is a write-ahead log; without, they always wait.

    ``logged`` is the result of an earlier call for this connection: the log can't go away while the file is open.
    """
    first = logged is None
    if first:
        logged = connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        connection.execute("PRAGMA fullfsync = ON")  # macOS: through the drive's own cache
    if logged:
        connection.execute(f"PRAGMA synchronous = {'FULL' if wait else 'NORMAL'}")
    elif first:
        connection.execute("PRAGMA synchronous = EXTRA")
    return bool(logged)


def wal_path(path: Path) -> Path:
    """Return the path of SQLite's write-ahead log of a file."""
    return path.with_name(path.name + "-wal")


def append_row(connection: sqlite3.Connection, row: Row, said: Said | None = None) -> None:
    """Append a row to the log, and the content that is stored outside it."""
    connection.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)", row)
    if said is not None:
        connection.execute("INSERT INTO said VALUES (?, ?, ?)", (row.seq, *said))


def read_version(connection: sqlite3.Connection) -> int:
    """Read the version of a ledger's tables."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def find_checkpoint(connection: sqlite3.Connection) -> Row | None:
    """Return the last row with a checkpoint, or None; LedgerError if the row does not fit its hash."""
    found = connection.execute(
        "SELECT seq FROM log WHERE kind = 'checkpoint' ORDER BY seq DESC LIMIT 1"
    ).fetchone()
    if found is None:
        return None
    head = read_hash(connection, found[0] - 1)
    return next(verify_rows(read_rows_after(connection, found[0] - 1), found[0] - 1, str(head)))


def read_rows_after(connection: sqlite3.Connection, seq: int) -> sqlite3.Cursor:
    """Read the raw rows of the log after row ``seq``, in order. Close the cursor unless all are read."""
    return connection.execute(
        "SELECT seq, kind, statement, at, body, hash FROM log WHERE seq > ? ORDER BY seq", (seq,)
    )


def has_content(connection: sqlite3.Connection, seq: int) -> bool:
    """Return whether row ``seq`` has content outside of it, which may be blanked."""
    return connection.execute("SELECT 1 FROM said WHERE seq = ?", (seq,)).fetchone() is not None


def read_content(connection: sqlite3.Connection, seq: int, start: int, size: int) -> str:
    """Read a piece of the content of row ``seq``, which is ASCII; the caller compares it with a digest."""
    with connection.blobopen("said", "content", seq, readonly=True) as content:
        content.seek(start)
        return content.read(size).decode(errors="replace")


def read_hash(connection: sqlite3.Connection, seq: int) -> object:
    """Read the hash stored in row ``seq``; None if there is no such row."""
    row = connection.execute("SELECT hash FROM log WHERE seq = ?", (seq,)).fetchone()
    return row[0] if row else None


def read_hashes(connection: sqlite3.Connection, seq: int) -> tuple[object, ...]:
    """Read the hash stored in row ``seq``, and its hash before the ledger was upgraded."""
    row = connection.execute("SELECT hash, body FROM log WHERE seq = ?", (seq,)).fetchone()
    if row is None:
        return ()
    return row[0], parse_object(row[1], seq).get("was") if type(row[1]) is str else None


@contextmanager
def explain_errors(path: Path | None) -> Iterator[None]:
    """Raise SQLite's errors as a LedgerError with the cause and a remedy."""
    try:
        yield
        return
    except sqlite3.Error as error:
        told = explain_sqlite_error(error, path)
    raise told


_WITHOUT = " Without a durable charge there is no answer."
_NOTHING = " Nothing was charged."


@contextmanager
def saying_uncharged() -> Iterator[None]:
    """Add "Nothing was charged" to the error of a reservation that SQLite rolled back because the disk is full.

    Raises:
        LedgerError: the error, with that sentence.
    """
    try:
        yield
        return
    except LedgerError as error:
        full = "the disk is full." + _WITHOUT in error.message
        told = LedgerError(error.message + _NOTHING, hint=error.hint) if full else error
    raise told


@contextmanager
def saying_charged(write_charge: Callable[[], str]) -> Iterator[None]:
    """Add to an error after the reservation that the charge stays, and drop the sentences about uncharged errors.

    Raises:
        LedgerError: the error, with that sentence.
    """
    try:
        yield
        return
    except LedgerError as error:
        cause = error.message.removesuffix(_NOTHING).removesuffix(_WITHOUT)
        told = LedgerError(
            f"{cause} {write_charge()} stays charged, and there is no answer.", hint=error.hint
        )
    raise told


_HELD = (
    f"is locked by another process and was not released in time.{_NOTHING}",
    "run the statement again, or close the other session.",
)
_READ_ONLY = (
    f"can't be written: it is read-only here.{_WITHOUT}",
    "ask the data owner for write access to the ledger and its directory.",
)
_ERRORS = {
    sqlite3.SQLITE_BUSY: _HELD,
    sqlite3.SQLITE_LOCKED: _HELD,
    sqlite3.SQLITE_FULL: (
        f"can't grow: the disk is full.{_WITHOUT}",
        "make room on the disk and run the statement again.",
    ),
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: (
        "can't be opened: check that its directory exists and can be read and written.",
        "give another path with ledger='...', or ask the data owner for access.",
    ),
    sqlite3.SQLITE_NOTADB: (
        "is not a ledger: its first bytes are not those of a SQLite database.",
        "give the right file with ledger='...', or restore it from a backup.",
    ),
    sqlite3.SQLITE_IOERR: (
        f"can't be written or read: the disk failed or is full.{_WITHOUT}",
        "check the disk; earlier reservations stay charged.",
    ),
}
"""The message and the hint for each of SQLite's errors."""


def find_error_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary code of an error; 0 for an error of Python's module."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def explain_sqlite_error(error: sqlite3.Error, path: Path | None) -> LedgerError:
    """Return the LedgerError for an error of SQLite."""
    known = _ERRORS.get(find_error_code(error))
    if known is None:
        return damaged_error(f"{'it' if path is None else path} can't be read as a complete ledger")
    name = "The ledger in memory" if path is None else f"The ledger {path}"
    return LedgerError(f"{name} {known[0]}", hint=known[1])


def _recognise(connection: sqlite3.Connection, path: Path) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    schema = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
    if path.stat().st_size == 0:
        raise LedgerError(
            f"The ledger {path} is empty: it was cut off, or something else made the file.",
            hint="restore it from a backup; only if there never was a ledger, delete the empty file.",
        )
    if application != APPLICATION:
        raise LedgerError(
            f"{path} is a SQLite database, but not a dpsql ledger.",
            hint="give the right file with ledger='...'.",
        )
    if version != VERSION and version not in OLDER_TABLES:
        raise LedgerError(
            f"The ledger {path} has format {version}; this dpsql writes format {VERSION}.",
            hint="use the version of dpsql that wrote it (pip install -U dpsql).",
        )
    if schema != OLDER_TABLES.get(version, TABLES):  # a trigger or a view could silently undo a charge
        raise damaged_error("its tables are not those of a ledger")
    if path.stat().st_size <= _CHECKED_WHOLE or version != VERSION:
        check_pages(connection)


def check_pages(connection: sqlite3.Connection) -> None:
    """Check every page of the file; LedgerError if some pages do not fit together."""
    if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        raise damaged_error("some pages of the file do not fit together")


def give_name(draft: Path, path: Path) -> bool:
    """Rename a finished file unless the name is taken, and make the name durable."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if path.exists():
            return False
        os.rename(draft, path)
    sync_folder(path.parent)
    return True


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, so that a change of them survives a power cut."""
    with suppress(OSError):  # Windows can't open directories
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


# -- statements, read from their rows -------------------------------------------------------------------------------

OUTCOMES = ("released", "failed", "interrupted")
"""Outcomes of a reservation. An unfinished one is shown as ``open``, or ``unsettled`` if its process is gone."""
WRITTEN_OFF = "written off"
"""The outcome of a charge that the owner wrote off while restoring a backup."""
DEBIT_ALONE = "debited"
"""The outcome of a statement without noise of its own: only an analyst's share was charged, for stored answers of others."""
PUBLISHED = "published"
"""The outcome of a statement that made, changed or dropped a release, at no charge of its own."""
FORGOTTEN = "(forgotten)"
"""Replaces a text that the owner blanked."""

_PAGE = 2000


def read_event(body: RowBody) -> Event:
    """Read an event from a row; ValueError if it costs less than nothing."""
    return _read_event(json.dumps(body, sort_keys=True))


@lru_cache(maxsize=4096)
def _read_event(text: str) -> Event:
    event = Event.from_json(json.loads(text))
    if min(event.basic) < 0 or event.basic[1] > 1:
        raise ValueError("an event can't cost less than nothing")
    return event


_ROWS = """
    SELECT log.seq, log.kind, log.statement, log.at, log.body, log.hash, before.hash, said.salt, said.content
    FROM log LEFT JOIN log AS before ON before.seq = log.seq - 1 LEFT JOIN said ON said.seq = log.seq
    WHERE log.statement BETWEEN ? AND ? ORDER BY log.statement, log.seq"""


def read_entries(
    connection: sqlite3.Connection, first: int, last: int, forgotten: str = ""
) -> Iterator[Entry]:
    """Yield the statements from number ``first`` to ``last``, with one page of them in memory.

    ``forgotten`` is the time before which the owner blanked texts. LedgerError if a row is not valid, or does not fit its hash.
    """
    for start in range(max(1, first), last + 1, _PAGE):
        rows = connection.execute(_ROWS, (start, min(last, start + _PAGE - 1))).fetchall()
        found = [_read_row(raw, forgotten) for raw in rows]
        for number, lines in groupby(found, key=lambda line: line[0].statement):
            try:
                yield _fold(number, list(lines))
            except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
                raise damaged_error(f"statement {number} can't be read") from None


def read_one_entry(connection: sqlite3.Connection, number: int, forgotten: str = "") -> Entry | None:
    """Return one statement; None if there is no such number."""
    return next(read_entries(connection, number, number, forgotten), None) if number > 0 else None


_Line = tuple[Row, RowBody, RowBody | None]
"""A row, its body, and its content outside the row; None if there is none or it was blanked."""


def _read_row(raw: tuple[Any, ...], forgotten: str) -> _Line:
    head = START if raw[0] == 1 else str(raw[6])
    (row,) = verify_rows([raw[:6]], int(raw[0]) - 1, head)
    body = read_body(row)
    said = None if raw[7] is None else Said(*raw[7:])
    return row, body, check_said(row, body, said, forgotten) if "said" in body else None


def _fold(number: int, lines: list[_Line]) -> Entry:
    """Return the statement that its rows add up to."""
    (row, body, said), *rest = lines
    if row.kind not in _BEGIN:
        raise ValueError("a statement that did not begin")
    known: RowBody = {"text": FORGOTTEN} if said is None else said
    event = None if body["event"] is None else read_event(body["event"])
    told = [body["analyst"], known["text"], body["user"], known.get("reason", ""), known.get("key", "")]
    if not all(isinstance(value, str) for value in told):
        raise TypeError("text expected")
    analyst, text, user, reason, key = told
    outcome, charged = _BEGIN[row.kind], None if row.kind in ("refuse", "debit") else event
    process = str(body.get("process", ""))
    entry = Entry(number, row.at, analyst, text, outcome, charged, event, reason, key, user, process)
    if row.kind == "debit":
        entry = _note_debit(replace(entry, asked=None), event, said)
    if row.kind == "publish":
        entry = replace(entry, blocks=dict((said or {}).get("blocks", {})))
    for row, body, said in rest:
        if entry.outcome != "reserved":
            raise ValueError("settled twice")
        event = read_event(body["event"])
        if row.kind == "progress":
            entry = replace(entry, progress=event)
            continue
        if row.kind == "debit":
            entry = _note_debit(entry, event, said)
            continue
        known = said or {}
        blocks, parts = dict(known.get("blocks", {})), known.get("parts", {})
        parts = {key: read_event(part) for key, part in parts.items()}
        release = known.get("release")
        entry = replace(
            entry, event=event, outcome=body["outcome"], release=release, blocks=blocks, parts=parts
        )
    return entry


def _note_debit(entry: Entry, event: Event | None, said: RowBody | None) -> Entry:
    return replace(entry, debit=event, debited=dict((said or {}).get("blocks", {})))


_BEGIN = {
    "reserve": "reserved",
    "refuse": "refused",
    "spend": WRITTEN_OFF,
    "debit": DEBIT_ALONE,
    "publish": PUBLISHED,
}
