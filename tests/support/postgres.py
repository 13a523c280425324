"""A server that speaks PostgreSQL's protocol, and a bare client of it that sends what it is told to."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.served import ServerProcess, make_token


class PostgresServer(ServerProcess):
    """A server with a port for PostgreSQL's clients."""

    def __init__(self, policy: Path, *arguments: str, pg: str = "127.0.0.1:0") -> None:
        super().__init__(policy, "--pg", pg, *arguments)
        self.port = int(self.process.stdout.readline().rpartition(":")[2])

    def make_url(self, name: str = "ada") -> str:
        """Return an analyst's connection as libpq has it."""
        token = make_token(self.policy, name)
        return f"host=127.0.0.1 port={self.port} user={name} password={token} dbname=clinic"

    def environment(self, name: str = "ada") -> dict[str, str]:
        """Return the variables that libpq reads."""
        token = make_token(self.policy, name)
        return {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": name,
            "PGPASSWORD": token,
            "PGDATABASE": "clinic",
        }

    def open(self, name: str = "ada", token: str | None = None, **more: str) -> BarePostgres:
        """Log a bare client in."""
        client = BarePostgres(self.port)
        try:
            client.log_in(name, make_token(self.policy, name) if token is None else token, more)
        except BaseException:
            client.socket.close()
            raise
        return client


def message(kind: bytes, *parts: bytes) -> bytes:
    """Return a message."""
    body = b"".join(parts)
    return kind + struct.pack(">i", len(body) + 4) + body


def text(*words: str) -> bytes:
    """Return texts with their zero bytes."""
    return b"".join(word.encode() + b"\0" for word in words)


def parse(statement: str, name: str = "", kinds: Sequence[int] = ()) -> bytes:
    return message(b"P", text(name, statement), struct.pack(f">h{len(kinds)}I", len(kinds), *kinds))


def bind(
    values: Sequence[bytes | None] = (), name: str = "", portal: str = "", formats: Sequence[int] = (),
    results: Sequence[int] = (),
) -> bytes:  # fmt: skip
    given = b"".join(b"\xff\xff\xff\xff" if v is None else struct.pack(">i", len(v)) + v for v in values)
    listed = [struct.pack(f">h{len(found)}h", len(found), *found) for found in (formats, results)]
    return message(b"B", text(portal, name), listed[0], struct.pack(">h", len(values)), given, listed[1])


def describe(kind: str = "P", name: str = "") -> bytes:
    return message(b"D", kind.encode(), text(name))


def execute(portal: str = "", most: int = 0) -> bytes:
    return message(b"E", text(portal), struct.pack(">i", most))


SYNC, FLUSH, END = message(b"S"), message(b"H"), message(b"X")


def query(statement: str) -> bytes:
    return message(b"Q", text(statement))


class BarePostgres:
    """A client of the protocol, byte by byte."""

    def __init__(self, port: int, timeout: float = 60) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.parameters: dict[str, str] = {}
        self.key = b""

    def send(self, *parts: bytes) -> None:
        self.socket.sendall(b"".join(parts))

    def take(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = self.socket.recv(size - len(found))
            if not piece:
                raise EOFError
            found += piece
        return found

    def receive(self) -> tuple[bytes, bytes]:
        """Return the next message."""
        kind = self.take(1)
        (size,) = struct.unpack(">i", self.take(4))
        return kind, self.take(size - 4)

    def until(self, last: bytes = b"Z") -> list[tuple[bytes, bytes]]:
        """Return all messages up to one of a kind, or to the end of the connection."""
        found = []
        while not found or found[-1][0] != last:
            try:
                found.append(self.receive())
            except (EOFError, ConnectionError):
                break
        return found

    def ask(self, *parts: bytes) -> list[tuple[bytes, bytes]]:
        """Send messages, and return what comes up to ReadyForQuery."""
        self.send(*parts)
        return self.until()

    def kinds(self, *parts: bytes) -> str:
        """Return the kinds of the messages that come, without notices."""
        return b"".join(kind for kind, _ in self.ask(*parts) if kind not in b"NS").decode()

    def secure(self, context: ssl.SSLContext) -> bytes:
        """Ask for TLS."""
        self.send(struct.pack(">ii", 8, 80877103))
        answer = self.take(1)
        if answer == b"S":
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        return answer

    def start(self, parameters: Mapping[str, str], version: int = 196608) -> tuple[bytes, bytes]:
        """Send the startup message, and return what comes."""
        body = struct.pack(">i", version) + b"".join(text(*pair) for pair in parameters.items()) + b"\0"
        self.send(struct.pack(">i", len(body) + 4), body)
        return self.receive()

    def log_in(self, user: str, token: str, more: Mapping[str, str] | None = None) -> None:
        """Log in with SCRAM-SHA-256.

        Raises:
            PermissionError: it failed; with the fields of the error.
        """
        kind, body = self.start({"user": user, "database": "clinic", **(more or {})})
        if kind == b"v":
            kind, body = self.receive()
        if kind == b"E":
            raise PermissionError(read_fields(body))
        nonce = base64.b64encode(secrets.token_bytes(18)).decode()
        first = f"n=,r={nonce}"
        kind, body = self.prove(
            text("SCRAM-SHA-256") + struct.pack(">i", len(first) + 3) + f"n,,{first}".encode()
        )
        server = body[4:].decode()
        fields = dict(item.split("=", 1) for item in server.split(","))
        salted = hashlib.pbkdf2_hmac(
            "sha256", token.encode(), base64.b64decode(fields["s"]), int(fields["i"])
        )
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without = f"c=biws,r={fields['r']}"
        said = f"{first},{server},{without}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), said, "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
        kind, body = self.prove(f"{without},p={proof}".encode())
        if kind == b"E":
            raise PermissionError(read_fields(body))
        expected = base64.b64encode(hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), said, "sha256"))
        assert body[4:] == b"v=" + expected, "the server proves that it knows the token, too"
        for kind, body in self.until():
            if kind == b"E":
                raise PermissionError(read_fields(body))
            if kind == b"S":
                name, value = body.decode().split("\0")[:2]
                self.parameters[name] = value
            if kind == b"K":
                self.key = body

    def prove(self, body: bytes) -> tuple[bytes, bytes]:
        self.send(message(b"p", body))
        return self.receive()

    def close(self) -> None:
        self.socket.close()


def read_fields(body: bytes) -> dict[str, str]:
    """Return the fields of an error or a notice by their letters."""
    return {part[:1].decode(): part[1:].decode() for part in body.split(b"\0") if part}


def read_row(body: bytes) -> list[bytes | None]:
    """Return the values of a DataRow."""
    (count,), at = struct.unpack_from(">h", body), 2
    values: list[bytes | None] = []
    for _ in range(count):
        (size,) = struct.unpack_from(">i", body, at)
        at += 4
        values.append(None if size < 0 else body[at : at + size])
        at += max(0, size)
    return values


def read_rows(messages: Sequence[tuple[bytes, bytes]]) -> list[list[bytes | None]]:
    return [read_row(body) for kind, body in messages if kind == b"D"]


def read_error(messages: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the fields of the first error among messages; empty where there is none."""
    return next((read_fields(body) for kind, body in messages if kind == b"E"), {})
