"""Who holds an open reservation, and whether that process is certainly gone.

Only ever used to give something back (hits that an interactive threshold did not find) and to show a word in
a table; so every doubt is answered with "alive".
"""

from __future__ import annotations

import getpass
import os
import socket
from pathlib import Path


def identity(pid: int | None = None) -> str:
    """This process (or ``pid``) on this boot of this machine, distinct even when process numbers come
    round.
    """
    pid = os.getpid() if pid is None else pid
    return "|".join([socket.gethostname(), _boot(), _namespace(), str(pid), _started(pid)])


def certainly_gone(other: str) -> bool:
    """True when ``other`` was a process of this boot and namespace that does not run any more."""
    parts, mine = other.split("|"), identity().split("|")
    if len(parts) != 5 or parts[:3] != mine[:3] or not mine[1] or not parts[3].isdigit():
        return False
    return _started(int(parts[3])) != parts[4]


def user() -> str:
    """The name of the user as the operating system knows it; empty when it knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


def _boot() -> str:
    return _text(Path("/proc/sys/kernel/random/boot_id"))


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Start of the process in clock ticks since boot; empty for no such process (or no /proc)."""
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in "ZX":  # a zombie has finished: nothing of it can answer any more
        return ""
    return fields[19]


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
