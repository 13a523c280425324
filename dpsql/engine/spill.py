"""Private directories for rows that do not fit memory, inaccessible to other users.

DuckDB makes its spill files with mode 0644, in a directory with mode 0755 that remains when the process is killed. So
each engine gets a directory with mode 0700, which is removed when the engine is closed.

A killed process's directory is removed by the next engine that spills to the same place. Each directory has a file
locked by its process: the operating system releases the lock however the process ends, and reused process numbers don't
matter. The file is made and locked before the directory, and is removed after it, so that no directory is ever without
its lock.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
import weakref
from pathlib import Path

from dpsql.errors import PolicyError
from dpsql.ledger.state_files import OWNER_ONLY, make_private_directory, make_state_directory

try:
    import fcntl
except ImportError:  # Windows: an open file can't be removed, which serves as a lock
    fcntl = None  # type: ignore[assignment]

SPILL_PREFIX = "dpsql-spill-"
_LOCK = ".lock"
_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class SpillDirectory:
    """A directory for one engine's spilled files, private to this user and removed when its last user closes it.

    ``parent`` is its parent directory; None for the state directory, or else the one for temporary files. OSError if it
    can't be made.
    """

    def __init__(self, parent: str | Path | None = None) -> None:
        self.path = _make(_default_parent() if parent is None else Path(parent).expanduser())
        self._users: set[object] = {None}
        self._finalizer = weakref.finalize(self, _remove, self.path, _HELD[self.path], os.getpid())

    def subdirectory(self, name: str) -> str:
        """Create a subdirectory with mode 0700, and return its path; each instance of DuckDB needs a separate one."""
        inner = self.path / name
        make_private_directory(inner)
        return str(inner)

    def keep_for(self, user: object) -> None:
        """Keep the directory until this user also closes it: an instance may outlive the engine that opened it."""
        self._users.add(user)

    def close(self, user: object = None) -> None:
        """Remove the directory and its content, unless it has other users; idempotent."""
        self._users.discard(user)
        if not self._users:
            self._finalizer()


def make_spill_directory(place: str | None) -> SpillDirectory:
    """Create a spill directory, by default in the state directory; PolicyError if impossible."""
    with contextlib.suppress(OSError):
        return SpillDirectory(place)
    raise PolicyError(
        f"dpsql can't create a directory for spilled rows below {place or 'the state directory'}.",
        hint='name a directory that you may write to: resources={"temp_directory": "/scratch"}.',
    )


_HELD: dict[Path, int] = {}
"""The directories of this process, with the open files whose locks claim them."""


def _default_parent() -> Path:
    with contextlib.suppress(OSError):
        parent = make_state_directory() / "spill"
        make_private_directory(parent)
        if os.access(parent, os.W_OK | os.X_OK):
            return parent
    return Path(tempfile.gettempdir())


def _make(parent: Path) -> Path:
    if not parent.is_dir():
        make_private_directory(parent)
    parent = parent.resolve()
    _sweep(parent)
    while True:
        path = parent / f"{SPILL_PREFIX}{secrets.token_hex(8)}"
        lock = _lock_path(path)
        descriptor = os.open(lock, _FLAGS | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        if _take_lock(descriptor) is False or not _is_same(descriptor, lock):
            os.close(descriptor)  # another process removed the file between the two steps
            continue
        try:
            path.mkdir(mode=0o700)
            path.chmod(0o700)
        except OSError:
            _remove(path, descriptor, os.getpid())
            raise
        _HELD[path] = descriptor
        return path


def _sweep(parent: Path) -> None:
    """Remove the directories of processes that have ended, as far as possible."""
    with contextlib.suppress(OSError):
        for lock in list(parent.glob(f"{SPILL_PREFIX}*{_LOCK}")):
            path = lock.with_name(lock.name.removesuffix(_LOCK))
            if path not in _HELD:
                with contextlib.suppress(OSError):
                    _sweep_one(path, lock)


def _sweep_one(path: Path, lock: Path) -> None:
    found = os.lstat(lock)
    if not stat.S_ISREG(found.st_mode) or (hasattr(os, "getuid") and found.st_uid != os.getuid()):
        return
    if fcntl is None:
        lock.unlink()  # fails while its process has it open
        shutil.rmtree(path, ignore_errors=True)
        return
    descriptor = os.open(lock, _FLAGS)
    if _take_lock(descriptor) and _is_same(descriptor, lock):
        _remove(path, descriptor, os.getpid())
    else:
        os.close(descriptor)


def _take_lock(descriptor: int) -> bool | None:
    """Take the lock; False if another process has it, None if there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if isinstance(error, BlockingIOError) else None
    return True


def _is_same(descriptor: int, lock: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(lock))
    except OSError:
        return False


def _remove(path: Path, descriptor: int, pid: int) -> None:
    if pid != os.getpid():
        return  # a forked process: the directory is its parent's
    _HELD.pop(path, None)
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):  # never through a link
            shutil.rmtree(path, ignore_errors=True)
    if fcntl is None:
        os.close(descriptor)
    if not path.exists():
        with contextlib.suppress(OSError):
            _lock_path(path).unlink()
    if fcntl is not None:
        os.close(descriptor)


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + _LOCK)


def _forget_directories() -> None:
    """Release the locks in a forked process, which would otherwise outlive the process that owns them."""
    for descriptor in _HELD.values():
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_directories)
