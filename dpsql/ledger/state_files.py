"""Files next to a ledger and in the state directory: private files, digests, detection of rollbacks, a server's lock.

A ledger is one file and one folder next to it, ``<ledger>.d``, with everything that is not a charge: stored answers, the
mark, a server's lock, and the files that an upgrade or a restoration replaced. Earlier versions wrote these next to the
ledger; a file that is there is used there, until ``dpsql ledger upgrade`` moves it.

Private files are readable by the user who runs dpsql only, with any umask. Digests of data files show whether a
stored answer is about unchanged data.

Two records outside the ledger detect a ledger that is missing, rolled back, copied, or the second one for its data. Both
are best effort, and no charge depends on them:

* the *mark*, a file in the ledger's folder, with the ledger's number and its last row. A missing ledger with a
  mark was deleted or moved; a ledger that ends before its mark was rolled back.
* the *register*, a SQLite file in the user's state directory, with one line per ledger that this user opened: data set,
  number, path, last row. It detects a second ledger for the data, a copy of a ledger, and a ledger that was deleted or
  rolled back with its mark.

Both are renewed after each charge. Opening a ledger compares it with both, and refuses a ledger that does not continue the
recorded rows; reading one warns. Neither detects a deletion on another machine, by another user, or of the ledger with its
mark and the register, nor a set of files restored together. Against these, keep backups, or keep data and ledger
under another user of the operating system.

A server's lock is a file in the ledger's folder, released by the operating system when the server's process ends. The owner's
own sessions need no lock: they may charge while a server runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from dpsql.errors import LedgerError, ServerError
from dpsql.late_dataclass import dataclass

try:
    import fcntl
except ImportError:  # Windows, which has no server
    fcntl = None  # type: ignore[assignment]

OWNER_ONLY = 0o600


def find_state_directory() -> Path:
    """Return this user's directory of state: ``$DPSQL_STATE``, ``$XDG_STATE_HOME/dpsql`` or ``~/.local/state/dpsql``."""
    chosen, state = os.environ.get("DPSQL_STATE"), os.environ.get("XDG_STATE_HOME")
    if chosen:
        return Path(chosen)
    return (Path(state) if state else Path.home() / ".local" / "state") / "dpsql"


def make_state_directory() -> Path:
    """Return the directory of :func:`find_state_directory`, created with mode 0700 if missing; else OSError."""
    home = find_state_directory()
    make_private_directory(home)
    return home


def place_ledger(policy: Path) -> Path:
    """Return the default path of the ledger of a policy file."""
    return policy.with_name(policy.name + ".ledger")


_EARLIER = {"mark": "{}-id", "answers": "{}-answers", "served": ".{}.served"}
"""Names of side files in versions that had no folder for them."""


def place_side_file(ledger: Path, name: str) -> Path:
    """Return the path of a ledger's side file: in its folder, unless an earlier version wrote it next to the ledger."""
    before = ledger.with_name(_EARLIER[name].format(ledger.name))
    return before if before.exists() else place_folder(ledger) / name


def place_folder(ledger: Path) -> Path:
    """Return the path of the folder of a ledger's side files."""
    return ledger.with_name(ledger.name + ".d")


def make_folder(ledger: Path) -> Path:
    """Return the folder of a ledger's side files, with the ledger's permissions, created if missing; else OSError."""
    mode = read_mode(ledger)
    make_private_directory(place_folder(ledger), mode | (mode & 0o444) >> 2)
    return place_folder(ledger)


def gather_side_files(ledger: Path) -> list[str]:
    """Move the files that earlier versions wrote next to a ledger into its folder, and return their former names.

    Each is renamed in one step, and both places are read, so a crash loses nothing. No server may have the ledger, and no
    process may write to it. Stored answers stay while a session has them open.

    Raises:
        OSError: one can't be moved.
    """
    moved = []
    for name in _EARLIER:
        before, after = place_side_file(ledger, name), place_folder(ledger) / name
        if before == after or not (name != "answers" or _leave_log(before)):
            continue
        make_folder(ledger)
        before.replace(after)
        moved.append(before.name)
    return moved


def _leave_log(database: Path) -> bool:
    """Write a database's log into its file, so that it can be renamed; return False if a process has it open."""
    try:
        with closing(sqlite3.connect(database, timeout=1.0, isolation_level=None)) as alone:
            return bool(alone.execute("PRAGMA journal_mode = DELETE").fetchone()[0] == "delete")
    except sqlite3.Error:
        return False


def make_private_directory(path: Path, mode: int = 0o700) -> None:
    """Create a directory of this mode; give an existing one of this user the mode; OSError if it can't be created."""
    path.mkdir(parents=True, exist_ok=True, mode=mode)
    found = path.stat()
    if stat.S_IMODE(found.st_mode) != mode:
        # Another user's directory keeps its mode; files in it are private by their own mode.
        with suppress(OSError):
            path.chmod(mode)


def make_private_file(path: Path, mode: int = OWNER_ONLY) -> None:
    """Create an empty file of this mode, or set it; OSError if it can't be created, or is another user's."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, mode)
    try:
        _give_mode(descriptor, mode)
    finally:
        os.close(descriptor)


def write_private(path: Path, text: str, mode: int = OWNER_ONLY) -> None:
    """Write a text to a file that has its mode from the first byte on; OSError if it can't be written."""
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
    """Return the mode of a ledger's side files: 0600, unless the owner gave others access to the ledger."""
    try:
        return stat.S_IMODE(path.stat().st_mode) & 0o666
    except OSError:
        return OWNER_ONLY


def read_inode(path: Path) -> tuple[int, int] | None:
    """Return the device and the inode of a file, which tell whether it was replaced; None if it is missing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


def _give_mode(descriptor: int, mode: int) -> None:
    if hasattr(os, "fchmod") and stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
        os.fchmod(descriptor, mode)


def hash_files(paths: Iterable[str]) -> dict[str, str]:
    """Return the digest of each file that exists.

    A file that was only touched, or copied over itself, keeps its digest. Digests are cached in the state directory by path,
    size, times and inode, so a large file is read once. Files that changed a moment ago are read again, since a file
    system's clock may not tell two changes apart.
    """
    found = {}
    with _Digests() as known:
        for path in sorted(paths):
            with suppress(OSError):
                found[path] = known.digest(path)
    return found


@contextmanager
def _open_database(name: str, table: str) -> Iterator[sqlite3.Connection]:
    """Open a small database of the state directory, with one table; else OSError or sqlite3.Error."""
    file = make_state_directory() / name
    with suppress(OSError):  # another user's file: SQLite reports whether it can be used
        make_private_file(file)
    with closing(sqlite3.connect(file, timeout=1.0, isolation_level=None)) as known:
        known.execute("PRAGMA synchronous = OFF")
        known.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        yield known


_KEPT = 10_000
"""Greatest number of cached digests; the oldest are dropped."""
_DIGESTS = "digests (path TEXT PRIMARY KEY, stamp TEXT NOT NULL, digest TEXT NOT NULL)"
_SETTLED = 2 * 10**9
"""Nanoseconds after which modification times distinguish a change from the next one."""


class _Digests(ExitStack):
    """The cached digests of files. Best effort: a digest that can't be stored is computed again."""

    def __init__(self) -> None:
        super().__init__()
        self._known: sqlite3.Connection | None = None
        with suppress(OSError, sqlite3.Error):
            self._known = self.enter_context(_open_database("files.sqlite", _DIGESTS))

    def digest(self, path: str) -> str:
        """Return the digest of a file; OSError if it can't be read."""
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
        with suppress(sqlite3.Error):
            return [] if self._known is None else self._known.execute(sql, values).fetchall()
        return []


def _stamp(stat: os.stat_result) -> str:
    return f"{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ctime_ns}:{stat.st_dev}:{stat.st_ino}"


_KEEP = 2000
_REGISTER = (
    "ledgers.sqlite",
    "ledgers (ledger TEXT, path TEXT, dataset TEXT, seq INTEGER, hash TEXT, seen INTEGER, PRIMARY KEY (ledger, path))",
)


@dataclass(frozen=True)
class Checkpoint:
    """The number of a ledger, and its last recorded row."""

    ledger: str
    seq: int
    hash: str


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Read a ledger's mark; None if there is none. An unreadable mark is the mark of an unknown ledger."""
    try:
        text = place_side_file(path, "mark").read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError):
        return Checkpoint("", 0, "")
    with suppress(ValueError, KeyError, TypeError):
        body = json.loads(text)
        return Checkpoint(str(body["ledger"]), int(body["seq"]), str(body["hash"]))
    return Checkpoint("", 0, "")


def write_checkpoint(path: Path, mark: Checkpoint) -> None:
    """Renew the mark, with the mode of the ledger. Failures are ignored: they lose a warning, not a charge."""
    target = place_side_file(path, "mark")
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    text = json.dumps({"ledger": mark.ledger, "seq": mark.seq, "hash": mark.hash}) + "\n"
    try:
        make_folder(path)
        write_private(draft, text, read_mode(path))
        draft.replace(target)
    except OSError:
        with suppress(OSError):
            draft.unlink()


def write_adopt(path: Path) -> str:
    """Return the command that continues a ledger under a policy."""
    policy = path.name.removesuffix(".ledger")
    if path.name.endswith(".toml.ledger"):
        return f"dpsql ledger adopt --policy {policy}"
    return f"dpsql ledger adopt --policy FILE --ledger {path.name}"


def explain_missing(path: Path) -> LedgerError | None:
    """Return the error for a ledger that is missing although it has a mark; None if it is new."""
    mark = read_checkpoint(path)
    if mark is None:
        return None
    rows = f" It had {mark.seq} rows." if mark.seq else ""
    return LedgerError(
        f"The ledger {path} was here and is gone; a new one would be a fresh budget for these data.{rows}",
        hint=f"restore it from a backup. Only the data owner may begin anew: {write_adopt(path)} --fresh",
    )


def explain_rollback(
    path: Path, mark: Checkpoint, ledger: str, seq: int, hashes_there: Collection[object]
) -> LedgerError | None:
    """Return the error for a ledger that does not continue its mark; None if it does."""
    if mark.ledger == "":
        return None
    if mark.ledger != ledger:
        what = "another ledger was here before"
    elif seq < mark.seq:
        what = f"it ends at row {seq}, but row {mark.seq} was written before"
    elif mark.hash not in hashes_there:
        what = f"its row {mark.seq} is not the one that was written"
    else:
        return None
    return LedgerError(
        f"The ledger {path} was replaced by an older or another copy: {what}.",
        hint="put the newest copy back; only the data owner may go on with this one: dpsql ledger adopt.",
    )


def enter_register(path: Path, dataset: str, mark: Checkpoint) -> list[str]:
    """Enter a ledger into this user's register, and return warnings as sentences.

    ``mark``: the last row that is certainly on the disk; a power cut may lose a later one.
    """
    with suppress(OSError, sqlite3.Error), _open_database(*_REGISTER) as known:
        return _register(known, str(path), dataset, mark)
    return []


def update_register(path: Path, mark: Checkpoint) -> None:
    """Update the last row of a ledger in the register. Failures are ignored, as for the mark."""
    with suppress(OSError, sqlite3.Error), _open_database(*_REGISTER) as known:
        known.execute(
            "UPDATE ledgers SET seq = ?, hash = ? WHERE ledger = ? AND path = ? AND seq < ?",
            (mark.seq, mark.hash, mark.ledger, str(path), mark.seq),
        )


def leave_register(path: Path, ledger: str) -> None:
    """Remove a ledger from the register, by its owner's decision."""
    with suppress(OSError, sqlite3.Error), _open_database(*_REGISTER) as known:
        for where, _ in _continued(known, str(path), ledger):
            known.execute("DELETE FROM ledgers WHERE ledger = ? AND path = ?", (ledger, where))


def read_register(path: Path, ledger: str) -> list[Checkpoint]:
    """Return the register's marks of a ledger, at this path and at paths that no longer exist."""
    if not (find_state_directory() / _REGISTER[0]).exists():
        return []  # reading creates no file
    with suppress(OSError, sqlite3.Error), _open_database(*_REGISTER) as known:
        return [mark for _, mark in _continued(known, str(path), ledger)]
    return []


def _continued(known: sqlite3.Connection, path: str, ledger: str) -> list[tuple[str, Checkpoint]]:
    rows = known.execute("SELECT path, seq, hash FROM ledgers WHERE ledger = ?", (ledger,)).fetchall()
    return [
        (where, Checkpoint(ledger, seq, digest))
        for where, seq, digest in rows
        if where == path or not Path(where).exists()
    ]


def _shorten(where: str, path: str) -> str:
    """Return a ledger's name in a note: the file name in the same folder, else the path, with ~ for the home folder."""
    other = Path(where)
    if other.parent == Path(path).parent:
        return other.name
    home = Path.home()
    return f"~/{other.relative_to(home).as_posix()}" if other.is_relative_to(home) else where


def _register(known: sqlite3.Connection, path: str, dataset: str, mark: Checkpoint) -> list[str]:
    known.execute("BEGIN IMMEDIATE")
    told = []
    for ledger, where in known.execute(
        "SELECT ledger, path FROM ledgers WHERE dataset = ? AND path != ? ORDER BY seen", (dataset, path)
    ).fetchall():
        exists, shown = Path(where).exists(), _shorten(where, path)
        if ledger == mark.ledger and exists:
            told.append(f"a copy of this ledger is at {shown}: charges to one are not seen by the other")
        elif ledger == mark.ledger:
            known.execute(
                "DELETE FROM ledgers WHERE ledger = ? AND path = ?", (ledger, where)
            )  # it moved here
        elif exists:
            told.append(f"another ledger is charged for the same data: {shown}; their losses add up")
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
    seen = known.execute(
        "SELECT seq, hash FROM ledgers WHERE ledger = ? AND path = ?", (mark.ledger, path)
    ).fetchone()
    if seen is not None and seen[0] > mark.seq:  # the mark was lost, and the register is newer
        mark = Checkpoint(mark.ledger, *seen)
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


def take_ledger(ledger: Path) -> int:
    """Lock a ledger for this server; ServerError if another has it, LedgerError if its folder can't be written."""
    try:
        make_folder(ledger.expanduser().resolve())
        descriptor = os.open(_place_lock(ledger), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, OWNER_ONLY)
    except OSError as error:
        raise LedgerError(f"the folder of the ledger {ledger} can't be written: {error.strerror}.") from None
    if not _lock(descriptor):
        os.close(descriptor)
        raise ServerError(
            f"another server has the ledger {ledger}.",
            hint="one server may serve it; end the other one first.",
        )
    return descriptor


def is_served(ledger: Path) -> bool:
    """Return whether a server has a ledger now."""
    with _trying(ledger) as free:
        return not free


@contextmanager
def keep_servers_away(ledger: Path) -> Iterator[None]:
    """Keep servers from taking a ledger within the block; LedgerError if a server has it."""
    with _trying(ledger) as free:
        if not free:
            raise LedgerError(
                f"A server has the ledger {ledger}, and would go on with the file that it opened.",
                hint="stop the server, restore, and start it again.",
            )
        yield


@contextmanager
def hold_releases(ledger: Path, wait: Callable[[], None]) -> Iterator[None]:
    """Restrict the drawing of releases within the block to one session: the next one finds the answers that this one pays for.

    ``wait`` is called until no other session does. If the folder can't be written or locked, none waits.
    """
    with ExitStack() as held:
        with suppress(OSError, LedgerError):
            place = make_folder(ledger) / "refreshing"
            descriptor = os.open(place, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, OWNER_ONLY)
            held.callback(os.close, descriptor)
            while fcntl is not None:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    wait()
                    continue
                # closing is not enough: a forked process has the descriptor, too
                held.callback(fcntl.flock, descriptor, fcntl.LOCK_UN)
                break
        yield


@contextmanager
def _trying(ledger: Path) -> Iterator[bool]:
    """Yield whether the ledger is free; if it is, no server can take it within the block."""
    try:
        descriptor = os.open(_place_lock(ledger), os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # no server ever had it
        yield True
        return
    try:
        yield _lock(descriptor)
    finally:
        os.close(descriptor)


def _place_lock(ledger: Path) -> Path:
    return place_side_file(ledger.expanduser().resolve(), "served")


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
