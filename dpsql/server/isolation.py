"""Limits of the operating system on a worker: memory, files, processor time, no network.

A worker confines itself while it has one thread. The server reports at its start which limits a system lacks. Linux closes the
network twice if it can: by a namespace without devices, and by a system call filter, which needs no privileges.
"""

from __future__ import annotations

import ctypes
import glob
import itertools
import os
import platform
import resource
import struct
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

ADDRESS_SPACE = 4 << 30
"""Bytes that a worker may map above its memory limit (libraries, threads, arenas) if only mappings can be limited."""
MAX_FILES = 1024
NICENESS = 5
"""Added to the niceness of a worker, and again to that of its computing threads."""
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 22, 38
_GROUPS = Path("/sys/fs/cgroup")

# By architecture: its number in the kernel, and the calls that a worker never needs (new sockets, other processes' memory, and
# ways around the filter): socket, ptrace, process_vm_readv, process_vm_writev, io_uring_setup, pidfd_getfd.
_FILTERED = {
    "x86_64": (0xC000003E, (41, 101, 310, 311, 425, 438)),
    "aarch64": (0xC00000B7, (198, 117, 270, 271, 425, 438)),
}
_X32 = 0x40000000
_EACCES = 13


def confine(memory: int | None) -> dict[str, str]:
    """Confine this process, which must have one thread.

    Args:
        memory: bytes that it may use; None if a cgroup limits them.

    Returns:
        The means that limit ``network``, ``memory`` and ``peeking`` (reading other processes' memory); empty if there is none.
    """
    _limit("RLIMIT_CORE", 0)
    _limit("RLIMIT_NOFILE", MAX_FILES)
    held = {"memory": "cgroup" if memory is None else ""}
    if memory is not None and _limit("RLIMIT_AS", memory + ADDRESS_SPACE):
        held["memory"] = "address space"
    by = [name for name, close in (("namespace", _leave_network), ("filter", _filter_calls)) if close()]
    held["network"] = " and ".join(by)
    held["peeking"] = "filter" if "filter" in by else ""
    return held


def bound_processor_time(seconds: float) -> None:
    """Let the system end this process after some more seconds of processor time."""
    used = sum(os.times()[:2])
    _limit("RLIMIT_CPU", int(used + seconds) + 1, soft_only=True)


def yield_to_front() -> None:
    """Lower this process's priority below the front's, or busy workers would delay replies by an amount that leaks."""
    _lower_priority(0)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICENESS))  # this process has a session of its own


def yield_to_this_thread(known: set[int]) -> None:
    """Lower other threads' priority below this one, which makes the replies; add them to ``known``."""
    with suppress(OSError):
        if os.stat("/proc/self/task").st_nlink - 2 == len(known):
            return
        threads = {int(name) for name in os.listdir("/proc/self/task")}
        known &= threads
        for thread in threads - known:
            known.add(thread)
            if thread != threading.get_native_id():
                _lower_priority(thread)


def _lower_priority(thread: int) -> None:
    """Lower the priority of a thread; 0 is this one."""
    with suppress(OSError, AttributeError):
        kind = os.sched_getscheduler(thread)
        if kind in (os.SCHED_FIFO, os.SCHED_RR):
            given = os.sched_getparam(thread).sched_priority
            os.sched_setscheduler(thread, kind, os.sched_param(max(1, given - 1)))
        else:
            given = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, given + NICENESS)


def protect_memory() -> None:
    """Forbid other processes of this user to read this one's memory, which contains tokens and answers."""
    with suppress(OSError, AttributeError):
        _libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _limit(name: str, most: int, soft_only: bool = False) -> bool:
    with suppress(OSError, ValueError, AttributeError):
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(kind, (most, hard if soft_only else most))
        return True
    return False


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _leave_network() -> bool:
    """Enter a network namespace without devices. Users other than root need a user namespace for it."""
    if sys.platform != "linux":
        return False
    user, group = os.getuid(), os.getgid()
    with suppress(OSError, AttributeError):
        if user == 0:
            return bool(_libc().unshare(_CLONE_NEWNET) == 0)
        if _libc().unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
            return False
        for file, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            Path("/proc/self", file).write_text(text)
        return True
    return False


def _filter_calls() -> bool:
    """Refuse the system calls in :data:`_FILTERED` for ever, also in child processes."""
    known = _FILTERED.get(platform.machine())
    if sys.platform != "linux" or known is None:
        return False
    number, calls = known
    refuse = len(calls) + 1
    # (code, jump if true, jump if false, operand); a place counts from the next instruction
    load_arch, load_call = (0x20, 0, 0, 4), (0x20, 0, 0, 0)
    program = [load_arch, (0x15, 0, refuse + 2, number), load_call, (0x35, refuse, 0, _X32)]
    program += [(0x15, len(calls) - place, 0, call) for place, call in enumerate(calls)]
    program += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050000 | _EACCES)]
    code = b"".join(struct.pack("HBBI", *one) for one in program)
    with suppress(OSError, AttributeError):
        libc = _libc()
        held = ctypes.create_string_buffer(code, len(code))
        described = struct.pack("HP", len(program), ctypes.addressof(held))
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            return False
        return bool(libc.prctl(_PR_SET_SECCOMP, 2, ctypes.c_char_p(described), 0, 0) == 0)
    return False


class MemoryGroups:
    """The cgroups of workers, if cgroups (version 2) are writable and have the memory controller.

    A group with processes can't contain groups with controllers, so the front moves into a group of its own first.

    Args:
        root: the mount point of cgroups.
        membership: the file that names this process's group.
    """

    def __init__(self, root: Path = _GROUPS, membership: Path = Path("/proc/self/cgroup")) -> None:
        self._place: Path | None = None
        self._numbers = itertools.count(1)
        with suppress(OSError, StopIteration):
            lines = membership.read_text().splitlines()
            own = root / next(line for line in lines if line.startswith("0::"))[3:].strip("/")
            if "memory" not in (own / "cgroup.controllers").read_text().split():
                return
            front = own / "front"
            front.mkdir(exist_ok=True)
            (front / "cgroup.procs").write_text(str(os.getpid()))
            (own / "cgroup.subtree_control").write_text("+memory")
            self._place = own

    def make(self, memory: int) -> Path | None:
        """Return a new group with a limit in bytes; None if it can't be made."""
        if self._place is None:
            return None
        group = self._place / f"worker-{os.getpid()}-{next(self._numbers)}"
        try:
            group.mkdir()
            (group / "memory.max").write_text(str(memory))
        except OSError:
            remove_group(group)
            return None
        for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
            with suppress(OSError):
                (group / name).write_text(value)
        return group


def remove_group(group: Path) -> None:
    """Remove a group whose processes have ended or are ending."""
    for _ in range(10):
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)


def list_unconfined(held: dict[str, str], memory_mb: int) -> list[str]:
    """Return a sentence for each limit that this system lacks; ``memory_mb`` is the policy's limit of a worker's memory."""
    missing = []
    if held.get("memory") != "cgroup":
        spare = ADDRESS_SPACE >> 20
        missing.append(
            f"no cgroup can be made here: a worker may map {memory_mb:,} + {spare:,} MiB (max_memory_mb, and a margin for "
            "libraries), and nothing limits what it keeps in memory to max_memory_mb"
            if held.get("memory")
            else f"only DuckDB's own limit, {memory_mb // 2:,} MiB, bounds the memory of workers"
        )
    if not held.get("network"):
        missing.append("workers can open network connections")
    if not held.get("peeking"):
        missing.append("workers may be able to read the memory of other processes of their user")
    return missing


def list_readable(patterns: Iterable[str]) -> list[str]:
    """Return the files of paths or patterns that others than their owner can read: a group counts, a closed folder protects."""
    return [
        path
        for pattern in patterns
        for path in sorted(glob.glob(pattern, recursive=True))
        if _is_readable(Path(path))
    ]


def _is_readable(path: Path) -> bool:
    with suppress(OSError):
        real = path.resolve()
        modes = [place.stat().st_mode for place in (real, *real.parents)]
        # bits of the group, then of others: to read the file, and to enter each folder
        return any(modes[0] & 4 << shift and all(mode & 1 << shift for mode in modes[1:]) for shift in (3, 0))
    return False
