"""The server's certificate, its key, and the authority of analysts' certificates, as all ports use them.

SIGHUP reads the files again (:mod:`dpsql.server.serve`).
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dpsql.client.channel import read_authority
from dpsql.errors import ServerError

_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.S)
# a sequence of two times, each as UTCTime or GeneralizedTime (RFC 5280, 4.1.2.5); the second one ends the certificate
_VALIDITY = re.compile(
    rb"\x30[\x1e-\x22](?:\x17\x0d\d{12}Z|\x18\x0f\d{14}Z)(?:\x17\x0d(\d{12})Z|\x18\x0f(\d{14})Z)", re.S
)


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
    def der(self) -> bytes:
        """The server's certificate in DER."""
        return ssl.PEM_cert_to_DER_cert(_BLOCK.findall(self.certificate.decode("ascii", "replace"))[0])

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
        except (ValueError, IndexError):
            raise ServerError(f"{self.certificate} has no certificate in PEM.") from None
        if authority is not None:
            context.load_verify_locations(cadata=authority.decode("ascii", "replace"))
            context.verify_mode = ssl.CERT_REQUIRED
        return tls


def find_end(pem: bytes) -> datetime:
    """Return when the first of some certificates ends.

    Raises:
        ValueError: a certificate has no end.
    """
    ends = []
    for block in _BLOCK.findall(pem.decode("ascii", "replace")):
        found = _VALIDITY.search(ssl.PEM_cert_to_DER_cert(block))
        if found is None:
            raise ValueError("a certificate without an end")
        short, long = (None if text is None else text.decode() for text in found.groups())
        text = long or f"{'20' if str(short) < '5' else '19'}{short}"
        ends.append(datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=UTC))
    return min(ends)
