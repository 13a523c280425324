"""What notices a ledger that is gone, rolled back, copied, or one of two for the same data.

Two small memories outside the ledger, both best effort, neither ever needed for a charge to hold:

* the *mark*, a file ``<ledger>-id`` beside the ledger, with the ledger's number and its last row. A ledger
that
  is missing although its mark is there was deleted or moved; one that ends before its mark was rolled back.
* the *register*, one SQLite file in the user's state directory (``$DPSQL_STATE``, else
``$XDG_STATE_HOME/dpsql``,
  else ``~/.local/state/dpsql``), with a line per ledger that this user opened: data set, number, path, last
  row. It notices a second ledger for the same data, a copy of a ledger, and a ledger deleted together with
  its mark.

What neither notices: a ledger that was deleted on another machine, by another user, or with its mark and the
register; a set of files restored together. Against that only the owner's own backups help, or keeping data
and ledger under another user of the operating system.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from dpsql.errors import LedgerError

_KEEP = 2000


@dataclass(frozen=True)
class Mark:
    """The number of a ledger, and the last row seen of it."""

    ledger: str
    seq: int
    hash: str


def mark_path(path: Path) -> Path:
    return path.with_name(path.name + "-id")


def read_mark(path: Path) -> Mark | None:
    """The mark beside a ledger; None when there is none. A mark that can't be read is a mark of an unknown
    ledger.
    """
    try:
        text = mark_path(path).read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError):
        return Mark("", 0, "")
    with suppress(ValueError, KeyError, TypeError):
        body = json.loads(text)
        return Mark(str(body["ledger"]), int(body["seq"]), str(body["hash"]))
    return Mark("", 0, "")


def write_mark(path: Path, mark: Mark) -> None:
    """Renews the mark. Its loss loses a warning, not a charge: failures are ignored."""
    target = mark_path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.write_text(json.dumps({"ledger": mark.ledger, "seq": mark.seq, "hash": mark.hash}) + "\n")
        draft.replace(target)
    except OSError:
        with suppress(OSError):
            draft.unlink()


def missing(path: Path) -> LedgerError | None:
    """The error for a ledger that is not there but has been; None when it is new."""
    mark = read_mark(path)
    if mark is None:
        return None
    rows = f" It had {mark.seq} rows." if mark.seq else ""
    return LedgerError(
        f"The ledger {path} was here and is gone; a new one would be a fresh budget for the same data.{rows}",
        hint="restore it from a backup. Only the data owner may begin anew: dpsql ledger adopt --fresh.",
    )


def rolled_back(path: Path, mark: Mark, ledger: str, seq: int, hash_there: object) -> LedgerError | None:
    """The error for a ledger that does not continue what was seen of it; None when it does."""
    if mark.ledger == "":
        return None
    if mark.ledger != ledger:
        what = "another ledger was here before"
    elif seq < mark.seq:
        what = f"it ends at row {seq}, but row {mark.seq} was written before"
    elif hash_there != mark.hash:
        what = f"its row {mark.seq} is not the one that was written"
    else:
        return None
    return LedgerError(
        f"The ledger {path} was replaced by an older or another copy: {what}.",
        hint="put the newest copy back; only the data owner may go on with this one: dpsql ledger adopt.",
    )


def register(path: Path, dataset: str, mark: Mark) -> list[str]:
    """Enters a ledger into this user's register, and tells what is odd about it, in sentences."""
    with suppress(OSError, sqlite3.Error):
        home = _state()
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with closing(sqlite3.connect(home / "ledgers.sqlite", timeout=1.0, isolation_level=None)) as known:
            return _register(known, str(path), dataset, mark)
    return []


def _register(known: sqlite3.Connection, path: str, dataset: str, mark: Mark) -> list[str]:
    known.execute("PRAGMA synchronous = OFF")
    known.execute(
        "CREATE TABLE IF NOT EXISTS ledgers "
        "(ledger TEXT, path TEXT, dataset TEXT, seq INTEGER, hash TEXT, seen INTEGER, "
        "PRIMARY KEY (ledger, path))"
    )
    known.execute("BEGIN IMMEDIATE")
    told = []
    for ledger, where in known.execute(
        "SELECT ledger, path FROM ledgers WHERE dataset = ? AND path != ? ORDER BY seen", (dataset, path)
    ).fetchall():
        exists = Path(where).exists()
        if ledger == mark.ledger and exists:
            told.append(
                f"a copy of this ledger is at {where}: what is charged to one is not seen by the other"
            )
        elif ledger == mark.ledger:
            known.execute(
                "DELETE FROM ledgers WHERE ledger = ? AND path = ?", (ledger, where)
            )  # it moved here
        elif exists:
            told.append(f"another ledger is charged for the same data: {where}; their losses add up")
    if len(told) > 3:
        told = [*told[:2], f"{len(told) - 2} more ledgers are charged for the same data; their losses add up"]
    gone = known.execute(
        "SELECT count(*) FROM ledgers WHERE dataset = ? AND path = ? AND ledger != ?",
        (dataset, path, mark.ledger),
    ).fetchone()[0]
    if gone:
        told.append(
            "an earlier ledger of the same data was at this path and was replaced; their losses add up"
        )
    last = known.execute(
        "SELECT seq FROM ledgers WHERE ledger = ? AND path = ?", (mark.ledger, path)
    ).fetchone()
    if last is not None and last[0] > mark.seq:
        told.append(
            f"this ledger ended at row {last[0]} when it was opened before; now it ends at {mark.seq}"
        )
    known.execute(
        "INSERT OR REPLACE INTO ledgers VALUES (?, ?, ?, ?, ?, strftime('%s', 'now'))",
        (mark.ledger, path, dataset, mark.seq, mark.hash),
    )
    known.execute(
        "DELETE FROM ledgers WHERE rowid NOT IN (SELECT rowid FROM ledgers ORDER BY seen DESC LIMIT ?)",
        (_KEEP,),
    )
    known.execute("COMMIT")
    return told


def _state() -> Path:
    chosen = os.environ.get("DPSQL_STATE")
    if chosen:
        return Path(chosen)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "dpsql"
