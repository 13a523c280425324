"""The server's certificate, its key, and the authority of analysts' certificates, as all ports use them.

SIGHUP reads the files again (:mod:`dpsql.server.serve`).
"""

from __future__ import annotations

import ssl
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.client.channel import read_authority
from dpsql.errors import ServerError
from dpsql.late_dataclass import dataclass

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

    @property
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
        """Read the files.

        Raises:
            ServerError: they can't be read, or aren't a certificate and its key.
        """
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
    """Return the certificates of a file.

    Raises:
        ServerError: the extra's library is missing. ValueError: there are none.
    """
    try:
        from cryptography.x509 import load_pem_x509_certificates
    except ImportError:
        raise ServerError("TLS needs cryptography.", hint="pip install 'dpsql[server]'") from None
    return load_pem_x509_certificates(pem)


def find_end(pem: bytes) -> datetime:
    """Return when the first of some certificates ends; ValueError if there are none."""
    return min(certificate.not_valid_after_utc for certificate in load_certificates(pem))
