"""TLS certificates of a connection: the authority of the server's, and the analyst's own with its key.

They are read and checked before the connection opens: gRPC reports an invalid file as a server that does not answer.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from dpsql.errors import ServerError

MAX_CERTIFICATES = 1 << 20
"""Greatest size of a file of certificates or of a key, in bytes."""


@dataclass(frozen=True)
class ClientCertificate:
    """An analyst's certificate with its chain, and its key. Both are PEM; the key is never shown."""

    chain: bytes
    key: bytes = field(repr=False)


def read_authority(file: str | Path) -> bytes:
    """Read the certificates of an authority.

    Raises:
        ServerError: the file can't be read, or holds no certificate.
    """
    text = _read(file, "file of certificates")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=text.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise ServerError(
            f"{file} holds no certificate in PEM.", hint="it begins with -----BEGIN CERTIFICATE-----."
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
        said = (
            f"the key {held} has a passphrase, which nobody is asked for."
            if asked
            else f"{certificate} and {held} are no certificate with its key."
        )
        hint = f"openssl pkey -in {held} writes it without one." if asked else None
        raise ServerError(said, hint=hint) from None
    return ClientCertificate(chain, secret)


def _read(file: str | Path, what: str) -> bytes:
    try:
        with Path(file).expanduser().open("rb") as opened:
            return opened.read(MAX_CERTIFICATES)
    except (OSError, RuntimeError, ValueError):
        raise ServerError(f"the {what} {file} can't be read.") from None
