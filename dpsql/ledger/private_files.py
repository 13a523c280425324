"""Files that only the user who runs dpsql may read, whatever the umask says."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

OWNER_ONLY = 0o600


def find_state_directory() -> Path:
    """Return where dpsql remembers things for this user, whether or not it is there.

    It is ``$DPSQL_STATE``, else ``$XDG_STATE_HOME/dpsql``, else ``~/.local/state/dpsql``.
    """
    chosen, state = os.environ.get("DPSQL_STATE"), os.environ.get("XDG_STATE_HOME")
    if chosen:
        return Path(chosen)
    return (Path(state) if state else Path.home() / ".local" / "state") / "dpsql"


def state_directory() -> Path:
    """Return the directory of :func:`find_state_directory`, made with mode 0700 where it is missing.

    Raises:
        OSError: it can't be made.
    """
    home = find_state_directory()
    make_private_directory(home)
    return home


def make_private_directory(path: Path) -> None:
    """Make a directory that nobody else may enter; close one of this user's that others may enter.

    Raises:
        OSError: it can't be made.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = path.stat()
    if stat.S_IMODE(found.st_mode) != 0o700:
        # A directory of somebody else keeps its mode: what is put into it is private by its own mode.
        with suppress(OSError):
            path.chmod(0o700)


def make_private_file(path: Path, mode: int = OWNER_ONLY) -> None:
    """Make an empty file of this mode where there is none, and give an existing one the mode.

    Raises:
        OSError: it can't be made, or belongs to somebody else.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, mode)
    try:
        _give_mode(descriptor, mode)
    finally:
        os.close(descriptor)


def write_private(path: Path, text: str, mode: int = OWNER_ONLY) -> None:
    """Write a text to a file that has its mode before the first byte is in it.

    Raises:
        OSError: it can't be written.
    """
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, mode), "w", encoding="utf-8", newline="") as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # a terminal or a pipe keeps its mode
            _give_mode(file.fileno(), mode)
            file.truncate(0)
        file.write(text)


def mode_of(path: Path) -> int:
    """Return the mode of a file, for those beside it: 0600, unless its owner opened it to others."""
    try:
        return stat.S_IMODE(path.stat().st_mode) & 0o666
    except OSError:
        return OWNER_ONLY


def _give_mode(descriptor: int, mode: int) -> None:
    if hasattr(os, "fchmod") and stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
        os.fchmod(descriptor, mode)
