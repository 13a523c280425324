"""Addresses of servers, analysts' tokens, and messages over Arrow Flight, which no other client module uses.

Addresses are ``grpc+tls://host:31337``, ``grpc+unix:///path`` and, on this machine only, ``grpc+tcp://127.0.0.1:31337``, since it
sends the token in the clear. Errors and displays never contain the token.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from dpsql.client.wire import MAX_HEAD, MAX_PAYLOAD, Message, decode_all, encode, waiting_in_place
from dpsql.errors import Error, ServerError
from dpsql.late_dataclass import dataclass

PORT = 31337
"""The port of an address without one."""
MAX_SOCKET_PATH = 107
"""Greatest length of a socket's path, in bytes, on every system."""
MAX_TOKEN_FILE = 8192
SCHEMES = ("grpc+tls", "grpc+unix", "grpc+tcp")

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]{2,45}")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,8000}")
_CLOSED = r"socket closed|broken pipe|reset by peer"
_ADDRESSES = "grpc+tls://host:31337, or grpc+unix:///path/of/the/socket."


@dataclass(frozen=True)
class ServerAddress:
    """The address of a server: its Flight location, and its display."""

    location: str
    shown: str
    tls: bool = False
    socket: Path | None = None

    def __str__(self) -> str:
        return self.shown


def parse_address(text: str) -> ServerAddress:
    """Parse the address of a server.

    Raises:
        ServerError: it is not valid, or would send the token in the clear. The text is not repeated: it may contain a secret.
    """
    if text.startswith("unix:"):  # as in dpsql serve --listen; relative to the working directory
        place = text.removeprefix("unix:")
        return _parse_socket("", os.path.abspath(place) if place else "")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ServerError("this is no address of a server.", hint=_ADDRESSES) from None
    if parts.scheme not in SCHEMES:
        raise ServerError("this is no address of a server.", hint=_ADDRESSES)
    if parts.username is not None or parts.query or parts.fragment:
        raise ServerError(
            "an address holds a host and a port, and nothing secret.",
            hint="give the token by token=..., a file, or DPSQL_TOKEN.",
        )
    if parts.scheme == "grpc+unix":
        return _parse_socket(parts.netloc, parts.path)
    if not _HOST.fullmatch(host) or parts.path.strip("/"):
        raise ServerError("this is no address of a server.", hint=_ADDRESSES)
    if parts.scheme == "grpc+tcp" and not is_this_machine(host):
        raise ServerError(
            f"grpc+tcp:// is for servers on this machine: to {host} the token would travel in the clear.",
            hint=f"grpc+tls://{host}:{port or PORT}",
        )
    if parts.scheme == "grpc+tcp" and host == "localhost":
        host = "127.0.0.1"  # no name service decides where the token goes
    shown = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{PORT if port is None else port}"
    return ServerAddress(shown, shown, tls=parts.scheme == "grpc+tls")


def _parse_socket(host: str, path: str) -> ServerAddress:
    if host or not path.startswith("/") or "\0" in path:
        raise ServerError("a socket has a whole path.", hint="grpc+unix:///run/dpsql/dpsql.sock")
    if len(path.encode(errors="replace")) > MAX_SOCKET_PATH:
        raise ServerError(f"the path of a socket has at most {MAX_SOCKET_PATH} bytes.")
    return ServerAddress(f"grpc+unix://{path}", f"grpc+unix://{path}", socket=Path(path))


def is_this_machine(host: str) -> bool:
    """Return whether a host is this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def find_token(token: str | None, file: str | Path | None = None) -> str | None:
    """Return the given token, a file's first line, ``DPSQL_TOKEN``, or None; ServerError, which omits it, for other texts."""
    where = "this"
    if token is None and file is not None:
        where, token = f"the first line of {file}", read_secret(file)
    if token is None:
        where, token = "the value of DPSQL_TOKEN", os.environ.get("DPSQL_TOKEN", "").strip() or None
    if token is not None and not (isinstance(token, str) and _TOKEN.fullmatch(token)):
        raise ServerError(f"{where} can't be a token.", hint="the owner prints it: dpsql analyst add NAME.")
    return token


def read_secret(file: str | Path) -> str:
    """Return the first line of a file that only its owner may read; ServerError otherwise."""
    try:
        with Path(file).expanduser().open("rb") as opened:
            _check_private(file, os.fstat(opened.fileno()))
            return opened.read(MAX_TOKEN_FILE).partition(b"\n")[0].decode().strip()
    except (OSError, UnicodeDecodeError, RuntimeError, ValueError):
        raise ServerError(f"the token file {file} can't be read.") from None


def _check_private(file: str | Path, status: os.stat_result) -> None:
    """Raise an error for a file of the user that others may read or write, as ssh does for keys."""
    if os.name == "posix" and status.st_uid == os.geteuid() and status.st_mode & 0o077:
        raise ServerError(
            f"others on this machine may read the token file {file}, and ask in your name.",
            hint=f"chmod 600 {shlex.quote(str(file))}",
        )


class Channel(Protocol):
    """Carries messages to a server and back. Several threads may use it."""

    def call(
        self, action: str, message: Message, session: str = "", timeout: float | None = None
    ) -> Iterator[Message]:
        """Send a message, and yield the messages of the reply as they arrive.

        Args:
            action: ``dpsql.run``, ...
            message: the message.
            session: the handle of the session, if it is open.
            timeout: greatest wait in seconds.

        Raises:
            ServerError: the server can't be reached, or refuses the message. WireError: the reply is not valid.
        """

    def close(self) -> None:
        """Close the connection."""


@dataclass(repr=False)
class FlightChannel:
    """A channel over Arrow Flight.

    Args:
        address: the server's address.
        token: the analyst's token; empty with a certificate.
        tls_ca: the trusted certificates, in PEM; by default the system's.
        certificate: the analyst's own, for a server that asks for one.
    """

    address: ServerAddress
    token: str = field(repr=False)
    tls_ca: bytes | None = None
    certificate: ClientCertificate | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        os.environ.setdefault(
            "GRPC_VERBOSITY", "NONE"
        )  # else gRPC prints refused connections to standard error
        from pyarrow import flight

        if self.address.socket is not None and not self.address.socket.exists():
            raise ServerError(
                f"there is no socket {self.address.socket}.",
                hint="is the server running, and may you enter its folder?",
            )
        options = [
            ("grpc.max_receive_message_length", MAX_PAYLOAD + MAX_HEAD),
            ("grpc.enable_retries", 0),  # a statement is sent once
        ]
        if not self.address.tls:
            options.append(("grpc.enable_http_proxy", 0))  # no token goes to a proxy in the clear
        given: dict[str, object] = {} if self.tls_ca is None else {"tls_root_certs": self.tls_ca}
        if self.certificate is not None:
            given |= {"cert_chain": self.certificate.chain, "private_key": self.certificate.key}
        try:
            with waiting_in_place():
                self._client = flight.FlightClient(self.address.location, generic_options=options, **given)
        except (OSError, ValueError, flight.FlightError):
            raise ServerError(f"{self.address} can't be reached from here.") from None

    def call(
        self, action: str, message: Message, session: str = "", timeout: float | None = None
    ) -> Iterator[Message]:
        """Send a message, and yield the messages of the reply as they arrive."""
        import pyarrow as pa
        from pyarrow import flight

        headers = [(b"authorization", b"Bearer " + self.token.encode())] if self.token else []
        if session:
            headers.append((b"dpsql-session", session.encode()))
        options = flight.FlightCallOptions(headers=headers, timeout=timeout)
        try:
            for reply in self._client.do_action(flight.Action(action, encode(message)), options):
                yield from decode_all(reply.body)
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise self._explain(error) from None

    def _explain(self, error: Exception) -> Error:
        """Return our error for an exception of Flight, with the server's sentence if it has one."""
        from pyarrow import flight

        sentence = _read_sentence(str(error))
        if isinstance(error, flight.FlightUnauthenticatedError):
            return ServerError(sentence or "the server does not take this token.")
        if isinstance(error, flight.FlightUnavailableError):
            return self._explain_unreachable(str(error))
        if isinstance(error, flight.FlightTimedOutError):
            return ServerError(f"{self.address} did not answer in time.")
        if isinstance(error, flight.FlightServerError | flight.FlightUnauthorizedError) and sentence:
            return ServerError(sentence)
        return ServerError(
            "the connection to the server broke off.",
            hint="SHOW LEDGER says whether a statement was charged.",
        )

    def _explain_unreachable(self, text: str) -> Error:
        if self.address.tls and re.search(r"wrong version number|record layer|packet length", text, re.I):
            return ServerError(
                f"{self.address} speaks no TLS.",
                hint="is the port right? On this machine a server without TLS is at grpc+tcp://127.0.0.1:PORT.",
            )
        if self.address.tls and re.search(r"peer name|hostname", text, re.I):
            return ServerError(
                f"the certificate of {self.address} is for another name.",
                hint="write the host as the certificate has it: its owner sees the names by openssl x509 -in server.pem -noout "
                "-ext subjectAltName.",
            )
        if self.address.tls and re.search(r"certificate|ssl|handshake|tls", text, re.I):
            return ServerError(
                f"the certificate of {self.address} is not one that is trusted here.",
                hint='tls_ca="ca.pem" names the authority that the owner uses.',
            )
        if self.address.socket is None and re.search(_CLOSED, text, re.I):
            if not self.address.tls:
                secure = self.address.shown.replace("grpc+tcp:", "grpc+tls:")
                hint = f'it may speak TLS: {secure}, and tls_ca="ca.pem" names the authority that the owner uses.'
            elif self.certificate is not None:
                hint = "it takes no such client certificate; its authority has to sign it."
            else:
                hint = 'it may ask for a client certificate: tls_client_cert="ann.pem", tls_client_key="ann.key".'
            return ServerError(f"{self.address} closed the connection before a word was said.", hint=hint)
        sentence = _read_sentence(text)
        if sentence and not re.search(r"connect|resolv|lookup|address", sentence, re.I):
            return ServerError(sentence)
        return ServerError(
            f"no server answers at {self.address}.", hint="is it running, and is the address right?"
        )

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


_WRAPPED = re.compile(r"^Flight [a-z ]+, with message: ")
_DEBUG = re.compile(r"\.? ?(Detail: |gRPC client debug context|Client context).*", re.DOTALL)


def _read_sentence(text: str) -> str:
    """Return the sentence that a server raised, without Flight's wrapping; empty if it is not a sentence."""
    sentence = _DEBUG.sub("", _WRAPPED.sub("", text)).strip()
    plain = sentence.isprintable() and len(sentence) <= 300 and "Traceback" not in sentence
    return (sentence if sentence.endswith(".") else f"{sentence}.") if sentence and plain else ""


# -- certificates ---------------------------------------------------------------------------------------------------------

MAX_CERTIFICATES = 1 << 20
"""Greatest size of a file of certificates or of a key, in bytes."""


@dataclass(frozen=True)
class ClientCertificate:
    """An analyst's certificate with its chain, and its key. Both are PEM; the key is never shown."""

    chain: bytes
    key: bytes = field(repr=False)


def read_authority(file: str | Path) -> bytes:
    """Read the certificates of an authority; ServerError if the file can't be read, or holds no certificate."""
    import ssl  # 10 ms, for servers alone

    text = _read(file, "file of certificates")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=text.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise ServerError(
            f"{file} has no certificate in PEM.", hint="one begins with -----BEGIN CERTIFICATE-----."
        ) from None
    return text


def read_client_certificate(certificate: str | Path, key: str | Path | None = None) -> ClientCertificate:
    """Read an analyst's certificate and its key.

    Args:
        certificate: the certificate in PEM, with its chain.
        key: its key in PEM, without a passphrase; None if the certificate's file has it.

    Raises:
        ServerError: a file can't be read, the two don't belong together, or the key has a passphrase.
    """
    import ssl  # as above

    held = certificate if key is None else key
    chain, secret = _read(certificate, "client certificate"), _read(held, "key")
    if b"PRIVATE KEY-----" not in secret:
        raise ServerError(
            f"{held} holds no private key in PEM.", hint='tls_client_key="ann.key" names the file that does.'
        )
    asked: list[bool] = []

    def refuse() -> str:
        asked.append(True)
        return ""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_cert_chain(Path(certificate).expanduser(), Path(held).expanduser(), password=refuse)
    except (ssl.SSLError, ValueError, OSError):
        sentence = (
            f"the key {held} has a passphrase, which nobody is asked for."
            if asked
            else f"{certificate} and {held} are no certificate with its key."
        )
        hint = f"openssl pkey -in {held} writes it without one." if asked else None
        raise ServerError(sentence, hint=hint) from None
    return ClientCertificate(chain, secret)


def _read(file: str | Path, what: str) -> bytes:
    try:
        with Path(file).expanduser().open("rb") as opened:
            return opened.read(MAX_CERTIFICATES)
    except (OSError, RuntimeError, ValueError):
        raise ServerError(f"the {what} {file} can't be read.") from None
