"""The upgrade of a ledger of an earlier version, which is kept as a copy beside it.

Version 1 held what analysts wrote inside the rows, and answers inside the ledger. The upgrade writes each row anew,
with its number and time, in a new chain: what was said stands apart behind a salted digest, and the body keeps the hash
that the row had, so that a mark of the older chain is still recognised. The last row, of kind ``upgrade``, holds the last
hash of the older chain. All of it is one transaction on the same file; a session of an older dpsql that has it open
finds other hashes and stops.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from dpsql.errors import LedgerError
from dpsql.ledger import log_file
from dpsql.ledger.answers import AnswerStore
from dpsql.ledger.log_file import START, VERSION, Row, Said, damaged_error, read_body, verify_rows

_APART = {"reserve": ("text", "key"), "refuse": ("text", "reason"), "settle": ("release", "blocks")}
"""The parts of a body of version 1 that stand apart since."""


def upgrade_ledger(connection: sqlite3.Connection, path: Path, *, read_only: bool) -> sqlite3.Connection:
    """Return a connection to the ledger in the form of this version.

    Args:
        connection: to the ledger of an earlier version; it is closed where another one is returned.
        path: where the ledger is.
        read_only: leave the file as it is, and return an upgraded copy that nobody else sees.

    Raises:
        LedgerError: the ledger is damaged, or can't be written.
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
            if log_file.read_version(connection) < VERSION:  # another process may have been quicker
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
    """Copy the ledger as it is to a file that nobody else may read, and nobody write."""
    version = log_file.read_version(connection)
    for number in range(1, 1000):
        copy = path.with_name(f"{path.name}-version-{version}" + (f"-{number}" if number > 1 else ""))
        try:
            os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            continue
        except OSError as error:
            raise LedgerError(
                f"The ledger {path} can't be upgraded: no copy can be kept beside it ({error.strerror}).",
                hint="ask the data owner: dpsql ledger upgrade.",
            ) from None
        # Not from ``connection``, whose transaction would hold it up: nobody else writes meanwhile.
        with (
            closing(log_file.connect_to_ledger(path, read_only=True)) as read,
            closing(sqlite3.connect(copy)) as kept,
        ):
            read.backup(kept)
        copy.chmod(0o400)
        return copy
    raise LedgerError(f"The ledger {path} can't be upgraded: too many copies of it are beside it.")


def _move_answers(connection: sqlite3.Connection, path: Path) -> None:
    """Write the answers to the file of their own, before the ledger says that they are there."""
    answers = AnswerStore(path)
    try:
        for key, statement, release in connection.execute("SELECT key, statement, release FROM replay"):
            answers.put({key: bytes(release)}, statement)
    finally:
        answers.close()


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
        new = log_file.link_row(
            head, row.seq, row.kind, row.statement, row.at,
            body | {"was": row.hash} | ({} if said is None else {"said": said.digest}),
        )  # fmt: skip
        log_file.append_row(connection, new, said)
        head, last, rows, at = new.hash, row.hash, row.seq, row.at
    if not rows:
        raise damaged_error("it has no rows")
    told: dict[str, Any] = {"from": 1, "rows": rows, "head": last, "copy": copy}
    log_file.append_row(connection, log_file.link_row(head, rows + 1, "upgrade", 0, at, told))
    connection.execute("DROP TABLE older")
    connection.execute("DROP TABLE replay")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _read_older(connection: sqlite3.Connection) -> Iterator[Row]:
    return verify_rows(
        connection.execute("SELECT seq, kind, statement, at, body, hash FROM older ORDER BY seq")
    )
