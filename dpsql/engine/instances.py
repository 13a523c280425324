"""DuckDB instances of this process: shared by equal users, and closed when idle.

An instance takes some 4 MiB and eight operating system threads; a cursor takes 20 KiB. A session's own objects
(temporary views and tables, additional relations) belong to one cursor, and no other cursor sees them.

An error that invalidates an instance ends the queries of all its users. Each of them then joins the next one and
retries, so that one user's query makes no other's fail.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Protocol

import duckdb

from dpsql.interrupts import POLL_SECONDS, check_stop

MAX_IDLE = 8
"""The most idle instances of one kind that stay open."""


class SharedInstance:
    """An instance with several users, from :func:`join_instance`.

    Args:
        key: the users' common properties.
        connections: connections to it, of which the first stays here. The others are handed out before any new cursor:
            they may have settings from before the configuration was locked.
        numbers: connections for a :class:`~dpsql.engine.duckdb.NumberCursor` each; there are no others.
    """

    def __init__(
        self,
        key: Hashable,
        connections: Sequence[duckdb.DuckDBPyConnection],
        after: Callable[[], None],
        numbers: Sequence[duckdb.DuckDBPyConnection] = (),
    ) -> None:
        self.key = key
        self.users = 0
        self._base, *self._ready = connections
        self._numbers = list(numbers)
        self._after = after

    def open_cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a cursor for exclusive use."""
        with _REGISTRY.lock:
            return self._ready.pop() if self._ready else self._base.cursor()

    def take_number_cursor(self) -> duckdb.DuckDBPyConnection | None:
        """Return a cursor for numeric columns, for exclusive use; None if none is left."""
        with _REGISTRY.lock:
            return self._numbers.pop() if self._numbers else None

    def leave(self, broken: bool = False) -> None:
        """Stop using it; the last user closes it. If ``broken``, an error invalidated it, and the next user gets a new one."""
        with _REGISTRY.lock:
            self.users -= 1
            if (broken or not self.users) and _REGISTRY.opened.get(self.key) is self:
                del _REGISTRY.opened[self.key]
            if self.users:
                return
        for con in (*self._ready, *self._numbers, self._base):
            with contextlib.suppress(duckdb.Error):
                con.close()
        self._after()


class _Registry:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.opened: dict[Hashable, SharedInstance] = {}


_REGISTRY = _Registry()
_LEFT: list[_Registry] = []
Opened = (
    tuple[Sequence[duckdb.DuckDBPyConnection], Callable[[], None]]
    | tuple[Sequence[duckdb.DuckDBPyConnection], Callable[[], None], Sequence[duckdb.DuckDBPyConnection]]
)
"""Connections to a new instance, the function to call once it is closed, and connections for numeric columns."""


def join_instance(key: Hashable, make: Callable[[], Opened]) -> SharedInstance:
    """Return the shared instance of a key, which its first user makes."""
    with _REGISTRY.lock:
        found = _REGISTRY.opened.get(key)
        if found is None:
            found = _REGISTRY.opened[key] = SharedInstance(key, *make())
        found.users += 1
        return found


MAX_AT_ONCE = 16
"""The most queries of one session that run at once; others wait."""


class Cursors:
    """The cursors of one session: its own and, while that is in use, those of ``open_another``, if any, for other threads."""

    def __init__(
        self,
        own: duckdb.DuckDBPyConnection,
        open_another: Callable[[], duckdb.DuckDBPyConnection | None] | None,
    ) -> None:
        self._own, self._open_another = own, open_another
        self._lock = threading.Lock()
        self._free: list[duckdb.DuckDBPyConnection] = []
        self._others = 0
        self._closed = False

    @contextlib.contextmanager
    def borrow(self, own_is_free: Any) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield the session's own cursor if its lock ``own_is_free``, else another, or else wait for its own."""
        other = None
        if not own_is_free.acquire(blocking=False):
            other = self._take()
            while other is None and not own_is_free.acquire(timeout=POLL_SECONDS):
                check_stop()
        try:
            yield self._own if other is None else other
        finally:
            if other is None:
                own_is_free.release()
            else:
                self._give_back(other)

    def _take(self) -> duckdb.DuckDBPyConnection | None:
        with self._lock:
            if self._free:
                return self._free.pop()
            if self._open_another is None or self._closed or self._others >= MAX_AT_ONCE - 1:
                return None
            made = self._open_another()
            self._others = self._others + 1 if made is not None else MAX_AT_ONCE
            return made

    def _give_back(self, con: duckdb.DuckDBPyConnection) -> None:
        with self._lock:
            if not self._closed:
                self._free.append(con)
                return
        with contextlib.suppress(duckdb.Error):
            con.close()

    def close(self) -> None:
        """Close all but the session's own; those in use are closed when returned."""
        with self._lock:
            self._closed = True
            for con in self._free:
                with contextlib.suppress(duckdb.Error):
                    con.close()
            self._free.clear()


class Idle(Protocol):
    """A holder of an unshared instance, which can be reopened at any time."""

    def close_idle(self) -> bool:
        """Close the instance unless it is in use, and return whether it is closed."""
        ...


class RecentlyUsed:
    """Holders of open instances; the least recently used one is asked first to close."""

    def __init__(self, most: int = MAX_IDLE) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._holders: OrderedDict[int, weakref.ref[Idle]] = OrderedDict()

    def note(self, holder: Idle) -> None:
        """Record that a holder uses its instance now, and close others' if there are too many."""
        with self._lock:
            self._holders[id(holder)] = weakref.ref(holder)
            self._holders.move_to_end(id(holder))
            others = list(self._holders.items())[: max(0, len(self._holders) - self._most)]
        for place, reference in others:
            found = reference()
            if found is None or (found is not holder and found.close_idle()):
                with self._lock:
                    self._holders.pop(place, None)

    def forget(self, holder: Idle) -> None:
        """Remove a holder that closed its instance."""
        with self._lock:
            self._holders.pop(id(holder), None)


def _forget_instances() -> None:
    """Leave the instances open in a forked process, which has none of the threads that closing one would wait for."""
    global _REGISTRY
    _LEFT.append(_REGISTRY)
    _REGISTRY = _Registry()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_instances)
