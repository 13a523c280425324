"""The owner's work on a ledger: verify, back up, restore, forget texts, upgrade.

A backup is taken while sessions run. Restoring one is the owner's way around the detection of rollbacks: charges since the
backup are charged to the restored ledger as well, so no released answer is ever unpaid.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from dpsql.errors import LedgerError
from dpsql.late_dataclass import dataclass
from dpsql.ledger import log_file, state_files
from dpsql.ledger.accounts import Account, compare_sums, list_sums
from dpsql.ledger.answers import AnswerStore, check_kept
from dpsql.ledger.log_file import Said, check_said, damaged_error, read_body, verify_rows
from dpsql.ledger.state_files import Checkpoint, keep_servers_away
from dpsql.ledger.store import LedgerStore, find_existing, find_replaced, get_user
from dpsql.privacy.events import Event, GroupSelection, PureDP
from dpsql.privacy.records import Entry

_PATIENCE_MS = 200
"""Milliseconds to wait for readers of SQLite's log."""


@dataclass(frozen=True)
class Verified:
    """The counts of a whole verification."""

    rows: int
    statements: int
    checkpoints: int
    forgotten: int
    answers: int
    head: str

    def sentence(self) -> str:
        """Return the counts as one line."""
        counted = [(self.rows, "row"), (self.statements, "statement"), (self.checkpoints, "checkpoint")]
        counted += [(self.answers, "stored answer")]
        told = ", ".join(f"{many} {what}{'' if many == 1 else 's'}" for many, what in counted)
        gone = f", {self.forgotten} texts forgotten" if self.forgotten else ""
        return f"whole: {told}{gone}; last hash {self.head}"


def verify_ledger(path: str | Path) -> Verified:
    """Verify a ledger as a whole: every page, row, text, checkpoint and stored answer; LedgerError if something does not fit.

    The sums of each checkpoint are compared with those of a fold from the first row on.
    """
    where = find_existing(path)
    with closing(LedgerStore(where, None, read_only=True)) as book:
        replaced = find_replaced(where, book)
        if replaced is not None:
            raise replaced
        with book.reading() as connection:
            log_file.check_pages(connection)
            rows, checkpoints, forgotten, account = _verify_rows(connection)
        answers = _verify_answers(book, where)
    return Verified(rows, account.count, checkpoints, forgotten, answers, account.head)


def _verify_rows(connection: sqlite3.Connection) -> tuple[int, int, int, Account]:
    sealed = connection.execute("SELECT body FROM log WHERE kind = 'checkpoint'")
    limits = {text for (body,) in sealed for text in list_sums(log_file.parse_object(str(body), 0))}
    before = connection.execute("SELECT seq, body FROM log WHERE kind = 'forget'")
    blanked = max(
        (str(log_file.parse_object(str(body), seq).get("before")) for seq, body in before), default=""
    )
    if connection.execute("SELECT count(*) FROM said WHERE seq NOT IN (SELECT seq FROM log)").fetchone()[0]:
        raise damaged_error("a content has no row")
    account, checkpoints, forgotten = Account(None, sorted(limits)), 0, 0
    texts = _Texts(connection)
    for row in verify_rows(log_file.read_rows_after(connection, 0)):
        body = read_body(row)
        said = texts.at(row.seq) if "said" in body else None
        if "said" in body:
            forgotten += check_said(row, body, said, blanked) is None
        if row.kind == "checkpoint":
            checkpoints += 1
            _check_sums(account, body, said, row.seq)
        account.apply([row])
    return account.seq, checkpoints, forgotten, account


class _Texts:
    """The contents outside the rows, read in order."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._rows = connection.execute("SELECT seq, salt, content FROM said ORDER BY seq")
        self._next = self._rows.fetchone()

    def at(self, seq: int) -> Said | None:
        if self._next is None or self._next[0] != seq:
            return None
        found, self._next = Said(*self._next[1:]), self._rows.fetchone()
        return found


def _check_sums(account: Account, body: dict[str, Any], said: Said | None, seq: int) -> None:
    """Compare a checkpoint with the fold of the rows before it."""
    found = account.describe()
    wrong = [
        name
        for name in ("ledger", "terms", "policy", "count", "forgotten", "open")
        if found[name] != body[name]
    ]
    content = "" if said is None else said.content
    sums = list_sums(body) if content else body["sums"]  # an older dpsql may have forgotten the content
    if wrong or not compare_sums(sums, account.sums, lambda at, size: content[at : at + size]):
        raise damaged_error(f"the checkpoint in row {seq} is not the sum of the rows before it")


def _verify_answers(book: LedgerStore, path: Path) -> int:
    count = 0
    with closing(AnswerStore(path)) as answers:
        for key, number, release in answers.all():
            count += check_kept(book.find_entry(number), key, bytes(release))
    return count


def back_up(path: str | Path, file: str | Path) -> Verified:
    """Copy a ledger without its stored answers, while sessions may go on, and verify the copy; else LedgerError."""
    where, target = find_existing(path), Path(file).expanduser().resolve()
    with closing(LedgerStore(where, None, read_only=True)) as book:
        replaced = find_replaced(where, book)
        if replaced is not None:
            raise replaced
        with book.reading() as connection:
            _copy(connection, target)
    return verify_ledger(target)


def _copy(source: sqlite3.Connection, target: Path) -> None:
    other = "give another file name."
    try:
        with log_file.drafting(target) as draft:
            with log_file.explain_errors(target), closing(sqlite3.connect(draft)) as copy:
                source.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")  # a single file
            with draft.open("rb") as made:
                os.fsync(made.fileno())
            if not log_file.give_name(draft, target):
                raise LedgerError(f"{target} exists already; it is not overwritten.", hint=other)
    except OSError as error:
        raise LedgerError(f"{target} can't be written: {error.strerror}.", hint=other) from None


def restore_ledger(
    path: str | Path, file: str | Path, spent: tuple[Fraction, Fraction] | None = None
) -> tuple[str, ...]:
    """Replace a ledger by a backup, with the charges since then written off as spent, and return the steps in sentences.

    If the present ledger can be read as a whole and continues the backup, the charges are taken from it. Otherwise ``spent``,
    an epsilon and a delta from the owner, counts against the whole and every share.

    Raises:
        LedgerError: the backup can't be trusted or is of another ledger; the charges are unknown; or a server has the ledger.
    """
    where, source = Path(path).expanduser().resolve(), find_existing(file)
    checked = _verify_backup(source)
    # No charge arrives between reading the old ledger and replacing it, and no server goes on with the old file.
    with keep_servers_away(where), _held(where):
        return _put_back(where, source, checked, spent)


@contextmanager
def _held(where: Path) -> Iterator[None]:
    """Keep other writers out of a ledger, if it exists and can be written."""
    with ExitStack() as stack:
        error: sqlite3.Error | None = None
        try:
            uri = where.as_uri() + "?mode=rw"
            held = stack.enter_context(
                closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=30))
            )
            held.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as found:  # gone or damaged: no process can charge to it
            error = found
        if error is not None and log_file.find_error_code(error) == sqlite3.SQLITE_BUSY:
            raise log_file.explain_sqlite_error(error, where)
        yield


def _put_back(
    where: Path, source: Path, checked: Account, spent: tuple[Fraction, Fraction] | None
) -> tuple[str, ...]:
    lost = _find_lost(where, source, checked)
    if lost is None and spent is None:
        raise LedgerError(
            f"The charges since row {checked.seq} of the backup are unknown: the ledger {where} is gone, damaged, or "
            "no continuation of it.",
            hint="give the amount to write off as spent: --spent EPSILON [--spent-delta DELTA].",
        )
    charges = [_Lost(e.analyst, e.user, e.event, e.text) for e in lost or () if e.event is not None]
    charges += [_Lost(e.analyst, e.user, e.debit, e.text, "debit") for e in lost or () if e.debit is not None]
    if spent is not None and any(spent):
        charges.append(
            _Lost("", get_user(), make_spent_event(*spent), "written off by the owner", "everybody")
        )
    draft = where.with_name(f".{where.name}.{os.getpid()}-{secrets.token_hex(4)}")
    with closing(LedgerStore(source, None, read_only=True)) as book, book.reading() as connection:
        _copy(connection, draft)
    were = "charge since row {} was" if len(charges) == 1 else "charges since row {} were"
    said = f"{len(charges)} {were.format(checked.seq)} written off as spent"
    mark = _write_off(draft, charges, said)
    moved = _move_away(where)
    draft.replace(where)
    state_files.write_checkpoint(where, mark)
    state_files.leave_register(where, mark.ledger)
    _drop_unknown_answers(where)
    return said, *([f"the ledger that was there is now {moved}"] if moved else [])


def make_spent_event(epsilon: Fraction, delta: Fraction) -> Event:
    """Return the event of answers of which only (epsilon, delta) is known; LedgerError if both are 0."""
    if epsilon <= 0 or not 0 <= delta < 1:
        raise LedgerError("A write-off needs an epsilon above 0, and a delta from 0 to below 1.")
    # Group selection is (epsilon, delta) and nothing sharper, in every currency.
    return GroupSelection(epsilon, delta) if delta else PureDP(epsilon)


def _verify_backup(source: Path) -> Account:
    """Return the account of a backup, read from its first row on. The mark and the register are not compared."""
    with closing(LedgerStore(source, None, read_only=True)) as book, book.reading() as connection:
        log_file.check_pages(connection)
        return _verify_rows(connection)[3]


def _find_lost(where: Path, source: Path, backup: Account) -> list[Entry] | None:
    """Return the charges since the backup; None if they are unknown."""
    try:
        with closing(LedgerStore(where, None, read_only=True)) as book:
            if find_replaced(where, book) is not None:
                return None
            with book.reading() as connection:
                log_file.check_pages(connection)
                now = _verify_rows(connection)[3]
            if now.ledger_id != backup.ledger_id or backup.head not in book.hashes_at(backup.seq):
                return None
            return list(book.entries(backup.count + 1, now.count))
    except (LedgerError, OSError):
        pass
    seen = [state_files.read_checkpoint(where), *state_files.read_register(where, backup.ledger_id)]
    marks = [mark for mark in seen if mark is not None]
    with closing(LedgerStore(source, None, read_only=True)) as book:
        held = (m.ledger == backup.ledger_id and m.hash in book.hashes_at(m.seq) for m in marks)
        return [] if marks and all(held) else None  # a charge renews the mark, so none followed the backup


class _Lost(NamedTuple):
    """A charge that is written off: to the whole and a share, to the share only (debit), or to everybody."""

    analyst: str
    user: str
    event: Event
    text: str
    to: str = "whole"


def _write_off(draft: Path, charges: list[_Lost], said: str) -> Checkpoint:
    with closing(sqlite3.connect(draft)) as made:
        made.execute("PRAGMA journal_mode = WAL")
    with closing(LedgerStore(draft, None)) as book:
        with book.writing(durable=False) as (write, _):
            write("restore", 0, {"lost": said, "rows": book.account.seq, "user": book.user})
            for number, lost in enumerate(charges, book.account.count + 1):
                body = {"analyst": lost.analyst, "user": lost.user, "event": lost.event.to_json()}
                if lost.to == "debit":
                    write("debit", number, body, {"text": lost.text})
                else:
                    write("spend", number, body | {"everybody": lost.to == "everybody"}, {"text": lost.text})
        with book.reading() as connection:
            log_file.set_durable(connection, True)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Checkpoint(book.account.ledger_id, book.account.seq, book.account.head)


def _move_away(where: Path) -> Path | None:
    """Rename the present ledger and its side files."""
    if not where.exists():
        return None
    for number in range(1, 1000):
        kept = state_files.make_folder(where) / f"replaced-{number}.ledger"
        if not kept.exists():
            break
    for side in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            where.with_name(where.name + side).replace(kept.with_name(kept.name + side))
    return kept


def _drop_unknown_answers(where: Path) -> None:
    """Drop the stored answers that the restored ledger has not charged."""
    unknown = set()
    with closing(AnswerStore(where)) as answers, closing(LedgerStore(where, None, read_only=True)) as book:
        for key, number, release in answers.all():
            entry = book.find_entry(number)
            try:
                if entry is None:
                    unknown.add(number)
                else:
                    check_kept(entry, key, bytes(release))
            except LedgerError:
                unknown.add(number)
        answers.forget(tuple(sorted(unknown)))


def forget_before(path: str | Path, before: date) -> tuple[str, ...]:
    """Blank the texts, reasons of refusals and stored answers before a day (UTC), with their keys; return the steps in sentences.

    Charges, outcomes and the chain stay. Sessions may go on meanwhile; if one is reading, blanked bytes may stay in SQLite's
    log until the next run.
    """
    where, day = find_existing(path), before.isoformat()
    with closing(LedgerStore(where, None)) as book:
        replaced = find_replaced(where, book)
        if replaced is not None:
            raise replaced
        with book.writing() as (write, connection):
            found = _find_said(connection, day)
            statements = tuple(sorted({statement for _, statement in found if statement}))
            connection.executemany("DELETE FROM said WHERE seq = ?", [(seq,) for seq, _ in found])
            write("forget", 0, {"before": day, "user": book.user})
        answers = book.answers.forget(statements)
        with book.reading() as connection:
            connection.execute("VACUUM")
            busy = _empty_log(connection)
    told = [f"{len(found)} texts and {answers} stored answers from before {day} were forgotten"]
    if answers:
        told.append("asked again, these statements are charged again")
    if busy:
        told.append(
            "a session is reading: run this again once it is closed, to remove them from SQLite's log too"
        )
    return tuple(told)


def _empty_log(connection: sqlite3.Connection) -> bool:
    """Empty SQLite's log; return whether a reader prevents it. This blocks writers, so it waits only shortly."""
    (before,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
    try:
        return bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(before)}")


def _find_said(connection: sqlite3.Connection, day: str) -> list[tuple[int, int]]:
    found: Iterator[tuple[int, int]] = connection.execute(
        "SELECT log.seq, log.statement FROM said JOIN log USING (seq) WHERE log.at < ? AND log.kind <> 'checkpoint'",
        (day,),
    )
    return list(found)


def upgrade(path: str | Path) -> str:
    """Upgrade a ledger of an earlier version, as opening a session does, gather its side files, and say so in a sentence."""
    where = find_existing(path)
    with closing(LedgerStore(where, None)) as book, book.reading() as connection:
        told = f"{where} has format {log_file.read_version(connection)}, which this dpsql writes."
    with keep_servers_away(where), _held(where):
        moved = state_files.gather_side_files(where)
    return told + (
        f" Moved into {state_files.place_folder(where).name}: {', '.join(moved)}." if moved else ""
    )
