"""Connections that have not logged in yet: few in all and of each address, for a short time, dropped oldest first.

They lock no analyst out. A new connection always has room, because the oldest one is dropped for it. If there are too many in
all, that is the oldest one of the address with the most connections. Connections that have logged in are never dropped.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

from dpsql.server.event_log import EventLog
from dpsql.server.tokens import shorten_address

MAX_ARRIVING, MAX_OF_AN_ADDRESS = 64, 32
"""Connections of a port that have not logged in, in all and of one address."""
LOGIN_SECONDS = 10.0
"""Seconds that a connection has to log in."""
FIRST_LINE_SECONDS, LINE_SECONDS = 1.0, 10.0
"""Seconds from the first dropped connection to the log's line, and between two lines."""
_ADDRESSES_TOLD = 8
_ADDRESSES_COUNTED = 1000


@dataclass(frozen=True)
class _Arrival:
    """A connection that has not logged in yet: its address without the port, the time of its arrival, and the way to drop it."""

    address: str
    since: float
    drop: Callable[[], None]


class Arrivals:
    """The connections of one port that have not logged in. Safe for threads.

    Args:
        tell: called now and then with the number of dropped connections, their addresses, and why: for the log.
        port: the port's name in that line.
    """

    def __init__(self, tell: Callable[[int, str, str], None], port: str) -> None:
        self._tell, self._port = tell, port
        self._lock = threading.Lock()
        self._held: dict[Hashable, _Arrival] = {}
        """The connections, oldest first."""
        self._dropped: Counter[str] = Counter()
        """The connections that the next line of the log tells, by address."""
        self._line: threading.Timer | None = None
        self._next_line = 0.0

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._held

    def add(self, key: Hashable, peer: str, drop: Callable[[], None]) -> None:
        """Count a new connection, and drop the oldest one if there are too many of its address, or in all.

        Args:
            key: the connection's own key.
            peer: its address, as gRPC writes it.
            drop: ends the connection; called without any lock, and from any thread.
        """
        address = shorten_address(peer)
        with self._lock:
            self._held[key] = _Arrival(address, time.monotonic(), drop)
            counts = Counter(one.address for one in self._held.values())
            crowded = address if counts[address] > MAX_OF_AN_ADDRESS else ""
            if not crowded and len(self._held) > MAX_ARRIVING:
                crowded = counts.most_common(1)[0][0]
            oldest = next((one for one, held in self._held.items() if held.address == crowded), None)
            doomed = None if oldest is None else self._held.pop(oldest)
        if doomed is not None:
            self._drop(doomed)

    def leave(self, key: Hashable) -> None:
        """Stop counting a connection that is gone. One that took too long counts for the log as dropped."""
        with self._lock:
            found = self._held.pop(key, None)
        if found is not None and time.monotonic() - found.since >= LOGIN_SECONDS:
            self._note(found.address)

    def let_in(self, key: Hashable) -> None:
        """Stop counting a connection that has logged in."""
        with self._lock:
            self._held.pop(key, None)

    def drop_slow(self) -> None:
        """Drop connections that have used up their time."""
        end = time.monotonic() - LOGIN_SECONDS
        with self._lock:
            slow = [key for key, held in self._held.items() if held.since <= end]
            doomed = [self._held.pop(key) for key in slow]
        for one in doomed:
            self._drop(one)

    def _drop(self, doomed: _Arrival) -> None:
        self._note(doomed.address)
        doomed.drop()

    def _note(self, address: str) -> None:
        """Count a dropped connection for the log's next line."""
        with self._lock:
            known = address in self._dropped or len(self._dropped) < _ADDRESSES_COUNTED
            self._dropped[address if known else "others"] += 1
            if self._line is not None:
                return
            wait = max(FIRST_LINE_SECONDS, self._next_line - time.monotonic())
            self._line = threading.Timer(wait, self._write)
            self._line.daemon = True
            self._line.start()

    def _write(self) -> None:
        with self._lock:
            dropped, self._dropped = self._dropped, Counter()
            self._line, self._next_line = None, time.monotonic() + LINE_SECONDS
        listed = [f"{address} ({count})" for address, count in dropped.most_common(_ADDRESSES_TOLD)]
        if len(dropped) > _ADDRESSES_TOLD:
            listed.append(f"and {len(dropped) - _ADDRESSES_TOLD} more")
        why = f"{self._port}: they did not log in within {LOGIN_SECONDS:.0f} seconds, or made room for others"
        self._tell(dropped.total(), ", ".join(listed), why)


def log_dropped(log: EventLog, count: int, addresses: str, why: str) -> None:
    """Write a line about dropped connections."""
    log.write("connections dropped", count=count, address=addresses, why=why)


# -- sockets that a library has ------------------------------------------------------------------------------------------


PeerPlace = tuple[str, int]
"""An address and a port."""


def read_place(peer: str) -> PeerPlace | None:
    """Return the address and the port of a peer as gRPC writes it; None of one that has none.

    >>> read_place("ipv4:127.0.0.1:51312"), read_place("ipv6:%5B::1%5D:50000"), read_place("unix:")
    (('127.0.0.1', 51312), ('::1', 50000), None)
    """
    kind, _, rest = peer.partition(":")
    host, _, port = unquote(rest).rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdigit():
        return None
    return _name_host(host.strip("[]")), int(port)


def write_peer(address: tuple[object, ...]) -> str:
    """Return an address as gRPC writes it, so that all ports count what an address does together.

    >>> write_peer(("10.0.0.7", 51312)), write_peer(("::1", 50000, 0, 0))
    ('ipv4:10.0.0.7:51312', 'ipv6:[::1]:50000')
    """
    host, port = str(address[0]), address[1]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _name_host(host: str) -> str:
    """Return an address in one form: of IPv6 without its zone, and IPv4 in its own form if it is mapped into IPv6."""
    return host.partition("%")[0].removeprefix("::ffff:")


def _find_sockets(port: int) -> dict[PeerPlace, socket.socket]:
    """Return copies of this process's sockets that are connected to a port of ours, by their peers' places.

    A copy is of the same connection even if the library closes its own meanwhile and another file takes the number.
    """
    found: dict[PeerPlace, socket.socket] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode):
                continue
            copy = socket.socket(fileno=os.dup(int(name)))
        except (OSError, ValueError):
            continue
        try:
            inet = copy.family in (socket.AF_INET, socket.AF_INET6)
            if inet and copy.getsockname()[1] == port:
                host, number = copy.getpeername()[:2]
                place = _name_host(host), number
                if place not in found:  # a copy made here may be listed, too
                    found[place] = copy
                    continue
        except OSError:  # it listens, or is closed
            pass
        copy.close()
    return found


class SocketWatch:
    """A look, once a second, at the sockets of a port that gRPC serves, which reports nothing about silent connections.

    Args:
        port: the port, of this process.
        arrivals: the bounds.
    """

    def __init__(self, port: int, arrivals: Arrivals) -> None:
        self._port, self._arrivals = port, arrivals
        self._lock = threading.Lock()
        self._known: set[PeerPlace] = set()
        """The peers that have logged in."""
        self._seen: set[PeerPlace] = set()
        """The peers that the look before has found."""
        self._found: dict[PeerPlace, socket.socket] = {}
        """Copies of their sockets, while a look goes on."""

    def note_known(self, peer: str) -> None:
        """Note that a peer has logged in, with a call."""
        place = read_place(peer)
        if place is not None and place not in self._known:
            with self._lock:
                self._known.add(place)
            self._arrivals.let_in(place)

    def look(self) -> None:
        """Count new connections, and drop those that are too many or too slow."""
        known = set(self._known)  # a peer that becomes known meanwhile may not be found yet
        self._found = found = _find_sockets(self._port)
        try:
            for place in self._seen - set(found):
                self._arrivals.leave(place)
            with self._lock:
                self._known -= known - set(found)
            for place in found:
                if place not in self._seen and place not in self._known:
                    self._arrivals.add(place, write_peer(place), partial(self._shut, place))
                if place in self._known:
                    self._arrivals.let_in(place)
            self._arrivals.drop_slow()
        finally:
            self._seen = set(found)
            for copy in found.values():
                copy.close()

    def _shut(self, place: PeerPlace) -> None:
        """End a connection of gRPC's, which takes it for closed by the peer."""
        if place in self._found:
            with suppress(OSError):
                self._found[place].shutdown(socket.SHUT_RDWR)
