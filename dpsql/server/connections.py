"""Connections: listening sockets, the files of TLS, and limits on connections that have not logged in.

A port accepts few connections that have not logged in, in all and per address, for a short time. It drops the oldest first.

All ports use one certificate of the server, its key, and the authority of analysts' certificates. SIGHUP reads the files
again (:mod:`dpsql.server.serve`).
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import stat
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import suppress
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from dpsql.client.channel import is_this_machine, read_authority
from dpsql.errors import ServerError
from dpsql.late_dataclass import dataclass
from dpsql.server.event_log import EventLog

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


@dataclass(frozen=True)
class Tls:
    """What the server needs for TLS.

    Args:
        certificate, key: the server's, in PEM.
        authority: the certificates, in PEM, of the authorities that sign analysts' certificates, which are then required.
        context: of Python's own sockets.
    """

    certificate: bytes
    key: bytes
    authority: bytes | None
    context: ssl.SSLContext

    @cached_property
    def binding(self) -> bytes | None:
        """The certificate's ``tls-server-end-point`` (RFC 5929); None if its signature has no digest of its own."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.hashes import MD5, SHA1, SHA256

        certificate = load_certificates(self.certificate)[0]
        try:
            digest = certificate.signature_hash_algorithm
        except UnsupportedAlgorithm:
            return None
        if isinstance(digest, MD5 | SHA1):
            digest = SHA256()
        return None if digest is None else certificate.fingerprint(digest)

    def same_as(self, other: Tls) -> bool:
        """Return whether the files are those of another reading."""
        return (self.certificate, self.key, self.authority) == (other.certificate, other.key, other.authority)

    def list_ends(self) -> dict[str, datetime]:
        """Return when the server's certificate and the authority's end."""
        files = {"server": self.certificate, "authority": self.authority}
        return {name: find_end(pem) for name, pem in files.items() if pem is not None}


@dataclass(frozen=True)
class TlsFiles:
    """The files of a :class:`Tls`."""

    certificate: Path
    key: Path
    authority: Path | None = None

    def read(self) -> Tls:
        """Read the files; ServerError if they can't be read, or aren't a certificate and its key."""
        authority = None if self.authority is None else read_authority(self.authority)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            tls = Tls(self.certificate.read_bytes(), self.key.read_bytes(), authority, context)
            context.load_cert_chain(self.certificate, self.key, password="")  # never ask for one
            tls.list_ends()
        except ssl.SSLError:
            raise ServerError(
                f"{self.certificate} and {self.key} aren't a certificate and its key."
            ) from None
        except OSError as error:
            raise ServerError(f"the file {error.filename} can't be read: {error.strerror}.") from None
        except ValueError:
            raise ServerError(f"{self.certificate} has no certificate in PEM.") from None
        if authority is not None:
            context.load_verify_locations(cadata=authority.decode("ascii", "replace"))
            context.verify_mode = ssl.CERT_REQUIRED
        return tls


def load_certificates(pem: bytes) -> list[Certificate]:
    """Return the certificates of a file; ServerError without the extra's library, ValueError if there are none."""
    try:
        from cryptography.x509 import load_pem_x509_certificates
    except ImportError:
        raise ServerError("TLS needs cryptography.", hint="pip install 'dpsql[server]'") from None
    return load_pem_x509_certificates(pem)


def find_end(pem: bytes) -> datetime:
    """Return when the first of some certificates ends; ValueError if there are none."""
    return min(certificate.not_valid_after_utc for certificate in load_certificates(pem))


SOCKET_MASK = 0o117
"""An analysts' socket is open to its owner and to the folder's group."""


def bind_socket(path: Path, mask: int, backlog: int) -> socket.socket:
    """Return a listening Unix socket; ``mask`` holds the permissions that it denies.

    Raises:
        ServerError: another file or server has the path, or the folder can't be written.
    """
    clear_socket(path)
    made = socket.socket(socket.AF_UNIX)
    before = os.umask(mask)
    try:
        made.bind(str(path))
        made.listen(backlog)
    except OSError as error:
        made.close()
        raise ServerError(f"the server can't listen on {path}: {error.strerror or error}.") from None
    finally:
        os.umask(before)
    return made


def clear_socket(path: Path) -> None:
    """Remove the socket of a server that has ended; ServerError if the path is another file, or in use."""
    try:
        kind = path.stat().st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(kind):
        raise ServerError(f"{path} is a file already.", hint="unix: names a socket, which the server makes.")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink()
            return
    raise ServerError(f"another server listens on {path}.")


ListenPlace = tuple[str, int] | Path
"""A host and a port, or the path of a Unix socket."""


def read_place(listen: str, tls: bool, example: str) -> ListenPlace:
    """Return the address of an option.

    Args:
        listen: ``host:port``, or ``unix:`` with a path.
        tls: whether clients use TLS.
        example: a valid option, for the hint.

    Raises:
        ServerError: the address is invalid, or needs TLS.
    """
    if listen.startswith("unix:"):
        return Path(listen.removeprefix("unix:")).absolute()
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ServerError(f"{listen!r} is no address to listen at.", hint=example)
    if not tls and not is_this_machine(host):
        raise ServerError(
            "an address outside this machine needs TLS, or others could read tokens and answers.",
            hint="--tls-cert cert.pem --tls-key key.pem",
        )
    return host, int(port)


def open_listener(place: ListenPlace, mask: int, backlog: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one.

    Args:
        place: the address.
        mask: the permissions that a Unix socket denies.
        backlog: the most connections that wait.

    Raises:
        ServerError: the port or path is in use, or the address isn't this machine's.
    """
    if isinstance(place, Path):
        return bind_socket(place, mask, backlog)
    host, port = place
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=backlog)
    except (OSError, OverflowError):
        raise ServerError(
            f"the server can't listen on {host}:{port}.", hint="port 0 takes a free one."
        ) from None


# -- connections that have not logged in ---------------------------------------------------------------------------


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
    """A connection that has not logged in yet. The address has no port."""

    address: str
    since: float
    drop: Callable[[], None]


class Arrivals:
    """The connections of one port that have not logged in: few in all and per address. Thread-safe.

    Args:
        tell: called now and then for the log, with the number of dropped connections, their addresses, and the reason.
        port: the port's name in the log.
    """

    def __init__(self, tell: Callable[[int, str, str], None], port: str) -> None:
        self._tell, self._port = tell, port
        self._lock = threading.Lock()
        self._held: dict[Hashable, _Arrival] = {}
        """The connections, oldest first."""
        self._dropped: Counter[str] = Counter()
        """Connections dropped since the last line of the log, by address."""
        self._line: threading.Timer | None = None
        self._next_line = 0.0

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._held

    def add(self, key: Hashable, peer: str, drop: Callable[[], None]) -> None:
        """Count a new connection, and drop the oldest one if its address, or the port, has too many.

        Args:
            key: identifies the connection.
            peer: its address, as gRPC writes it.
            drop: ends the connection; called from any thread, without a lock.
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
        """Stop counting a closed connection. The log counts it as dropped if it took too long."""
        with self._lock:
            found = self._held.pop(key, None)
        if found is not None and time.monotonic() - found.since >= LOGIN_SECONDS:
            self._note(found.address)

    def let_in(self, key: Hashable) -> None:
        """Stop counting a connection that has logged in."""
        with self._lock:
            self._held.pop(key, None)

    def drop(self, key: Hashable) -> None:
        """Drop a connection, if it has not logged in."""
        with self._lock:
            doomed = self._held.pop(key, None)
        if doomed is not None:
            self._drop(doomed)

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
        why = f"{self._port}: they did not log in within {LOGIN_SECONDS:.0f} seconds, sent too much, or made room for others"
        self._tell(dropped.total(), ", ".join(listed), why)


def log_dropped(log: EventLog, count: int, addresses: str, why: str) -> None:
    """Write a line about dropped connections."""
    log.write("connections dropped", count=count, address=addresses, why=why)


# -- sockets that a library has ------------------------------------------------------------------------------------------


PeerPlace = tuple[str, int]
"""An address and a port."""


def read_peer(peer: str) -> PeerPlace | None:
    """Return the address and the port of a peer as gRPC writes it; None if it has none.

    >>> read_peer("ipv4:127.0.0.1:51312"), read_peer("ipv6:%5B::1%5D:50000"), read_peer("unix:")
    (('127.0.0.1', 51312), ('::1', 50000), None)
    """
    kind, _, rest = peer.partition(":")
    host, _, port = unquote(rest).rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdigit():
        return None
    return _name_host(host.strip("[]")), int(port)


def shorten_address(peer: str) -> str:
    """Return the address without its port; for IPv6 the network, since a host may use any of its addresses.

    >>> shorten_address("ipv4:10.0.0.7:51312"), shorten_address("ipv6:%5B2001:db8:1:2:3::9%5D:50000")
    ('10.0.0.7', '2001:db8:1:2')
    >>> shorten_address("unix:1000"), shorten_address("unix:/run/dpsql/dpsql.sock")
    ('unix:1000', 'unix')
    """
    place = read_peer(peer)
    if place is None:
        kind, _, user = peer.partition(":")
        return peer[:20] if user.isdigit() else kind[:20]
    if ":" not in place[0]:
        return place[0]
    try:
        parts = ipaddress.IPv6Address(place[0]).exploded.split(":")
    except ValueError:
        return "ipv6"
    return ":".join(part.lstrip("0") or "0" for part in parts[:4])


def find_peer(sock: socket.socket, address: Any) -> str:
    """Return the address of an accepted connection, as gRPC writes it; of a Unix socket the user's number."""
    if sock.family != socket.AF_UNIX:
        return write_peer(address)
    with suppress(OSError, AttributeError):
        return f"unix:{struct.unpack('iII', sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]}"
    return "unix:"


def write_peer(address: tuple[object, ...]) -> str:
    """Return an address as gRPC writes it, so that all ports count an address alike.

    >>> write_peer(("10.0.0.7", 51312)), write_peer(("::1", 50000, 0, 0))
    ('ipv4:10.0.0.7:51312', 'ipv6:[::1]:50000')
    """
    host, port = str(address[0]), address[1]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _name_host(host: str) -> str:
    """Return an address without an IPv6 zone; an IPv4 address that is mapped into IPv6 gets its own form."""
    host = host.partition("%")[0]
    with suppress(ValueError):
        mapped = ipaddress.IPv6Address(host).ipv4_mapped
        return host if mapped is None else str(mapped)
    return host


def _find_sockets(port: int) -> dict[PeerPlace, socket.socket]:
    """Return duplicates of this process's sockets that are connected to a port, by peer.

    A duplicate keeps its connection even if the library closes its own and the descriptor is used again.
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


def count_received(sock: socket.socket) -> int:
    """Return the bytes that a TCP connection has received; 0 if unknown."""
    with suppress(OSError, AttributeError, struct.error):
        told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED + 8)
        return int(struct.unpack_from("Q", told, _RECEIVED)[0])
    return 0


_RECEIVED = 128
"""The place of tcpi_bytes_received in Linux's struct tcp_info."""


class SocketWatch:
    """Inspects the sockets of a gRPC port once a second, because gRPC doesn't report silent connections.

    gRPC reads a message of any size before a handler sees its token. So a connection that has sent more than one request may
    have, and is not known at the next look, is dropped.

    Args:
        port: the port.
        arrivals: counts the connections.
        most: returns the most bytes that a connection may send before it is known.
    """

    def __init__(self, port: int, arrivals: Arrivals, most: Callable[[], int]) -> None:
        self._port, self._arrivals, self._most = port, arrivals, most
        self._lock = threading.Lock()
        self._known: set[PeerPlace] = set()
        """The peers that have logged in."""
        self._seen: set[PeerPlace] = set()
        """The peers that the last look found."""
        self._found: dict[PeerPlace, socket.socket] = {}
        """Duplicates of their sockets, during a look."""

    def note_known(self, peer: str) -> None:
        """Note that a peer has logged in, with a call."""
        place = read_peer(peer)
        if place is not None and place not in self._known:
            with self._lock:
                self._known.add(place)
            self._arrivals.let_in(place)

    def look(self) -> None:
        """Count new connections, and drop surplus and slow ones."""
        known = set(self._known)  # a peer that logs in during the look may not be found yet
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
                elif count_received(found[place]) > self._most():
                    self._arrivals.drop(place)
            self._arrivals.drop_slow()
        finally:
            self._seen = set(found)
            for copy in found.values():
                copy.close()

    def _shut(self, place: PeerPlace) -> None:
        """Shut down a connection of gRPC's; gRPC sees it as closed by the peer."""
        if place in self._found:
            with suppress(OSError):
                self._found[place].shutdown(socket.SHUT_RDWR)
