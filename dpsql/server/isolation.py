"""Limits that the operating system holds a worker to: memory, files, processor time, no network.

A worker confines itself before it imports anything else: :func:`confine` must run while it has one thread. Whatever a system
does not offer is left out, and told to the owner at start. On Linux the network is closed twice where that is allowed: by a
namespace without devices, and by a filter that refuses to make a socket, which needs no rights at all.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import resource
import struct
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

ADDRESS_SPACE = 4 << 30
"""Bytes that a worker may map beyond its memory limit, where only that can be bounded: libraries, threads, arenas."""
MAX_FILES = 1024
NICENESS = 5
"""The niceness of a worker towards the front, and of its computing threads towards the one that makes replies."""
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 22, 38
_GROUPS = Path("/sys/fs/cgroup")

# What a worker never needs: new sockets, the memory of other processes, and the ways round this filter.
# By architecture: its number in the kernel, then socket, ptrace, process_vm_readv, process_vm_writev, io_uring_setup,
# pidfd_getfd.
_FILTERED = {
    "x86_64": (0xC000003E, (41, 101, 310, 311, 425, 438)),
    "aarch64": (0xC00000B7, (198, 117, 270, 271, 425, 438)),
}
_X32 = 0x40000000
_EACCES = 13


def confine(memory: int | None) -> dict[str, str]:
    """Confine this process, and say how far that went. It must have one thread.

    Args:
        memory: bytes that it may use where nothing else bounds them; None where a cgroup does.

    Returns:
        By what each of ``network``, ``memory`` and ``peeking`` (the memory of other processes) is held; empty texts where by
        nothing.
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
    """Let this process use so many more seconds of all its processors; the system ends it then."""
    used = sum(os.times()[:2])
    _limit("RLIMIT_CPU", int(used + seconds) + 1, soft_only=True)


def yield_to_front() -> None:
    """Let the front go first on a busy machine: else replies leave the later, the longer statements have computed."""
    _stand_back(0)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICENESS))  # this process has a session of its own


def yield_to_this_thread(known: set[int]) -> None:
    """Let this thread go before the process's others, which compute: it makes the replies.

    Args:
        known: the threads that stand back already; the others are added.
    """
    with suppress(OSError):
        if os.stat("/proc/self/task").st_nlink - 2 == len(known):
            return
        threads = {int(name) for name in os.listdir("/proc/self/task")}
        known &= threads
        for thread in threads - known:
            known.add(thread)
            if thread != threading.get_native_id():
                _stand_back(thread)


def _stand_back(thread: int) -> None:
    """Give a thread a lower priority, 0 for this one. Nobody needs a right for that."""
    with suppress(OSError, AttributeError):
        kind = os.sched_getscheduler(thread)
        if kind in (os.SCHED_FIFO, os.SCHED_RR):
            given = os.sched_getparam(thread).sched_priority
            os.sched_setscheduler(thread, kind, os.sched_param(max(1, given - 1)))
        else:
            given = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, given + NICENESS)


def protect_memory() -> None:
    """Keep other processes of this user from reading this one's memory, which holds tokens and answers."""
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
    """Go to a network namespace without devices. Who is not root needs a user namespace for it, and keeps the own user there."""
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
    """Refuse system calls that no worker needs, for good, also in what it starts."""
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
    """The cgroups of workers, where the front may make any: version 2, writable, with the memory controller.

    A group with processes of its own can't have groups with controllers, so the front moves to one below first.

    Args:
        root: where the system shows its groups.
        membership: the file that says which one this process is in.
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

    @property
    def possible(self) -> bool:
        """Tell whether groups can be made."""
        return self._place is not None

    def make(self, memory: int) -> Path | None:
        """Make a group with so many bytes; None where that can't be."""
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
    """Remove a group whose processes have ended, or are about to."""
    for _ in range(10):
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)


def list_unconfined(held: dict[str, str]) -> list[str]:
    """Return sentences about what this system does not hold workers to."""
    said = []
    if held.get("memory") != "cgroup":
        said.append(
            "no cgroup can be made here: the memory of workers is bounded by their address space"
            if held.get("memory")
            else "the memory of workers is bounded by DuckDB's own limit alone"
        )
    if not held.get("network"):
        said.append("workers can open network connections")
    if not held.get("peeking"):
        said.append(
            "workers can read the memory of other processes of their user, where the system lets them"
        )
    return said
