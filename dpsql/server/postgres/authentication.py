"""SCRAM-SHA-256 with an analyst's token as the password (RFC 5802, RFC 7677).

The server keeps a verifier with the token's hash: salted keys, from which the token can't be computed, and which can't replace
it. A client proves that it knows the token without sending it. The exchange for an unknown analyst runs to its end, too,
with a salt made from the name, so that it doesn't reveal which names exist.

The package scramp can't take its place: version 1.5 refuses the empty user name that libpq sends. This module stands apart
because :mod:`dpsql.server.analyst_tokens` makes verifiers without the rest of the protocol.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

from dpsql.late_dataclass import dataclass

MECHANISM = "SCRAM-SHA-256"
MECHANISM_BOUND = "SCRAM-SHA-256-PLUS"
"""SCRAM-SHA-256 bound to the TLS connection by the server's certificate."""
SCRAM_ROUNDS = 4096
"""Rounds of the password hash. More rounds wouldn't help, since a token has 256 random bits."""
_SALT_BYTES = 16
_NONCE_BYTES = 18
_MAX_NONCE = 512


class ScramError(Exception):
    """An exchange breaks the rules; it ends like one with a wrong password."""


@dataclass(frozen=True)
class Verifier:
    """The server's half of a password: salt, rounds, and two keys.

    >>> verifier = Verifier.make("pencil", salt=b"0123456789abcdef")
    >>> Verifier.read(str(verifier)) == verifier
    True
    """

    salt: bytes
    rounds: int
    stored_key: bytes
    server_key: bytes

    @classmethod
    def make(cls, password: str, salt: bytes | None = None, rounds: int = SCRAM_ROUNDS) -> Verifier:
        """Return the verifier of an ASCII password."""
        salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
        salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, rounds)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        stored_key = hashlib.sha256(client_key).digest()
        return cls(salt, rounds, stored_key, hmac.digest(salted, b"Server Key", "sha256"))

    @classmethod
    def make_mock(cls, secret: bytes, name: str) -> Verifier:
        """Return a verifier without a password. Its salt depends on the name only, as a real one's does."""
        salt = hmac.digest(secret, name.encode(errors="replace"), "sha256")[:_SALT_BYTES]
        return cls(salt, SCRAM_ROUNDS, secrets.token_bytes(32), secrets.token_bytes(32))

    def __str__(self) -> str:
        salt, stored, server = (_encode(part) for part in (self.salt, self.stored_key, self.server_key))
        return f"{MECHANISM}${self.rounds}:{salt}${stored}:{server}"

    @classmethod
    def read(cls, text: str) -> Verifier:
        """Read a verifier that ``str`` wrote; ValueError if the text isn't one."""
        kind, first, second = text.split("$")
        rounds, salt = first.split(":")
        stored, server = (_decode(part) for part in second.split(":"))
        found = cls(_decode(salt), int(rounds), stored, server)
        if kind != MECHANISM or len(stored) != 32 or len(server) != 32 or not 1 <= found.rounds <= 10**7:
            raise ValueError("no verifier")
        return found


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("no base64") from None


class ScramExchange:
    """The server's side of one exchange: :meth:`begin`, then :meth:`finish`.

    Args:
        verifier: the analyst's, or a mock.
        binding: the certificate's digest, if the client may bind the exchange to it.
    """

    def __init__(self, verifier: Verifier, binding: bytes | None = None) -> None:
        self._verifier, self._binding = verifier, binding
        self._bound = False
        self._header = self._first_bare = self._server_first = self._nonce = ""

    def begin(self, mechanism: str, message: bytes) -> bytes:
        """Take the client's first message, and return the server's; ScramError if the message breaks the rules."""
        text = _read_ascii(message)
        flag, _, rest = text.partition(",")
        authorized, _, bare = rest.partition(",")
        self._bound = mechanism == MECHANISM_BOUND
        if mechanism not in (MECHANISM, MECHANISM_BOUND) or (self._bound and self._binding is None):
            raise ScramError
        allowed = {"p=tls-server-end-point"} if self._bound else {"n"} if self._binding else {"n", "y"}
        fields = bare.split(",")
        if flag not in allowed or authorized or len(fields) < 2 or not fields[0].startswith("n="):
            raise ScramError
        nonce = fields[1].removeprefix("r=")
        if not fields[1].startswith("r=") or not 0 < len(nonce) <= _MAX_NONCE:
            raise ScramError
        self._header, self._first_bare = f"{flag},,", bare
        self._nonce = nonce + _encode(secrets.token_bytes(_NONCE_BYTES))
        self._server_first = f"r={self._nonce},s={_encode(self._verifier.salt)},i={self._verifier.rounds}"
        return self._server_first.encode()

    def finish(self, message: bytes) -> bytes:
        """Take the client's proof, and return the server's own; ScramError if the password or the message is wrong."""
        text = _read_ascii(message)
        without_proof, separator, proof_text = text.rpartition(",p=")
        fields = without_proof.split(",")
        if not separator or len(fields) < 2:
            raise ScramError
        try:
            channel, proof = _decode(fields[0].removeprefix("c=")), _decode(proof_text)
        except ValueError:
            raise ScramError from None
        expected = self._header.encode() + ((self._binding or b"") if self._bound else b"")
        sentence = f"{self._first_bare},{self._server_first},{without_proof}".encode()
        signature = hmac.digest(self._verifier.stored_key, sentence, "sha256")
        if len(proof) != len(signature):
            raise ScramError
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        known = hmac.compare_digest(hashlib.sha256(client_key).digest(), self._verifier.stored_key)
        fits = hmac.compare_digest(channel, expected) and fields[1] == f"r={self._nonce}"
        if not (known and fits and fields[0].startswith("c=")):
            raise ScramError
        return b"v=" + _encode(hmac.digest(self._verifier.server_key, sentence, "sha256")).encode()


def _read_ascii(message: bytes) -> str:
    try:
        return message.decode("ascii")
    except UnicodeDecodeError:
        raise ScramError from None
