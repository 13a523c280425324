"""Certificates for tests, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(
    folder: Path,
    name: str,
    days: int = 2,
    common: str = "localhost",
    names: str = "DNS:localhost,IP:127.0.0.1",
) -> None:
    """Make a key and a certificate that it signs itself: ``NAME.key`` and ``NAME.pem``."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", str(days)]
    shown = ["-subj", f"/CN={common}", *(["-addext", f"subjectAltName={names}"] if names else [])]
    own = ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
    subprocess.run(
        ["openssl", "req", "-x509", *curve, *shown, *own], cwd=folder, check=True, capture_output=True
    )
