"""The server's own certificates: their ends, and their exchange while the server runs."""

from __future__ import annotations

import shutil
import signal
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dpsql
from dpsql.errors import Error, ServerError
from dpsql.server.connections import TlsFiles, find_end
from tests.support.certificates import make_certificate
from tests.support.postgres import PostgresServer
from tests.support.served import make_token, write_data, write_policy

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates"),
]


@pytest.mark.parametrize("days", [30, 400 * 40])
def test_the_end_of_a_certificate(tmp_path: Path, days: int) -> None:
    for name, more in (("long", 500), ("short", 0)):
        make_certificate(tmp_path, name, days + more)
    asked = ["openssl", "x509", "-in", "short.pem", "-noout", "-enddate"]
    text = subprocess.run(asked, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    told = datetime.strptime(text.strip(), "notAfter=%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)
    both = (tmp_path / "long.pem").read_bytes() + (tmp_path / "short.pem").read_bytes()
    assert find_end(both) == told


def test_files_that_are_no_certificate(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_certificate(tmp_path, name)
    (tmp_path / "no.pem").write_text("-----BEGIN CERTIFICATE-----\nno\n")
    for certificate, key in (("a.pem", "b.key"), ("no.pem", "a.key"), ("none.pem", "a.key")):
        with pytest.raises(ServerError, match=r"no\.pem|none\.pem|aren't a certificate and its key"):
            TlsFiles(tmp_path / certificate, tmp_path / key).read()


def test_certificates_are_exchanged_while_the_server_runs(tmp_path: Path) -> None:
    write_data(tmp_path, 500)
    policy = write_policy(tmp_path, {"ana": 50}, "answer_times = []")
    token = make_token(policy, "ana")
    for name in ("old", "new"):
        make_certificate(tmp_path, name)
    for end in ("pem", "key"):
        shutil.copy(tmp_path / f"old.{end}", tmp_path / f"own.{end}")
    (tmp_path / "both.pem").write_bytes(
        (tmp_path / "old.pem").read_bytes() + (tmp_path / "new.pem").read_bytes()
    )
    files = ("--tls-cert", str(tmp_path / "own.pem"), "--tls-key", str(tmp_path / "own.key"))

    def connect(authority: str) -> Any:
        return dpsql.connect(url, token=token, tls_ca=tmp_path / authority)

    with PostgresServer(policy, *files) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        with connect("both.pem") as session:
            first = session.sql("SELECT COUNT(*) AS n FROM visits").fetchall()
            shutil.copy(tmp_path / "new.pem", tmp_path / "own.pem")
            server.process.send_signal(signal.SIGHUP)
            server.wait_for("certificate not taken")
            with connect("old.pem"):
                pass
            shutil.copy(tmp_path / "new.key", tmp_path / "own.key")
            server.process.send_signal(signal.SIGHUP)
            assert "it ends on" in server.wait_for("certificate taken")["why"]
            with connect("new.pem"):
                pass
            with pytest.raises(Error):
                connect("old.pem").close()
            assert session.sql("SELECT COUNT(*) AS n FROM visits").fetchall() == first, "its session goes on"
        postgres = f"host=localhost port={server.port} user=ana password={token} sslmode=verify-full"
        psycopg.connect(f"{postgres} sslrootcert={tmp_path / 'new.pem'}").close()
        with pytest.raises(psycopg.OperationalError, match="certificate"):
            psycopg.connect(f"{postgres} sslrootcert={tmp_path / 'old.pem'}")
        assert server.stop() == 0
