"""Certificates for tests, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(folder: Path, name: str, days: int = 2) -> None:
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", str(days)]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    own = ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
    subprocess.run(
        ["openssl", "req", "-x509", *curve, *names, *own], cwd=folder, check=True, capture_output=True
    )
