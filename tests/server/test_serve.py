"""What a running server tells the machine around it: systemd, the program for alerts, a folder for clients of PostgreSQL."""

from __future__ import annotations

import json
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from dpsql.errors import ServerError
from dpsql.server import serve
from dpsql.server.analyst_tokens import TokenFile
from dpsql.server.postgres.connection import PostgresListener, read_postgres_place
from dpsql.server.serve import run_server
from tests.support.served import ServerProcess, make_token, try_until, write_data, write_policy

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that others may enter, with a short name, as a socket's must be."""
    with TemporaryDirectory(prefix="dp", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_systemd_alerts_and_a_socket_for_postgres(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_data(folder, 500)
    (folder / "visits.parquet").chmod(0o644)
    (folder / "wards.parquet").chmod(0o644)
    policy = write_policy(folder, {"ana": 5}, "answer_times = []\nalert_below = 0.95")
    token = make_token(policy, "ana")
    program = folder / "alert"
    program.write_text(f"#!/bin/sh\nenv > {folder}/environment\ncat >> {folder}/alerts\n")
    program.chmod(0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(folder / "notify"))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(folder / "notify"))
        monkeypatch.setenv("DPSQL_TOKEN", token)
        places = ("--pg", f"unix:{folder}", "--alert", str(program))
        with ServerProcess(policy, *places, listen=f"unix:{folder}/flight") as server:
            monkeypatch.delenv("NOTIFY_SOCKET")
            said = [manager.recv(200).decode()]
            assert server.process.stdout is not None
            assert server.process.stdout.readline() == f"listening on postgresql:///?host={folder}\n"
            assert stat.S_IMODE((folder / ".s.PGSQL.5432").stat().st_mode) == 0o660
            missing = " ".join(line["why"] for line in server.events if line["event"] == "missing")
            assert f"chmod 600 {folder}/visits.parquet" in missing
            assert "wards.parquet" not in missing, "a public table is no secret"
            url = f"host={folder} user=ana password={token} dbname=clinic"
            with psycopg.connect(url, autocommit=True) as client:
                ask = "SELECT WITH DP OPTIONS (epsilon = {}) COUNT(*) AS n FROM visits"
                with pytest.raises(psycopg.Error):
                    client.execute("SELEC 1")
                client.execute(ask.format(0.1))
                client.execute(ask.format(0.3))
                client.execute(ask.format(0.4))
                TokenFile(policy).end("ana", server.wait_for("open", analyst="ana")["session"])
                server.wait_for("sessions ended", analyst="ana")
                with pytest.raises(psycopg.errors.AdminShutdown):
                    client.execute("SELECT 1")
            low = server.wait_for("share low", analyst="ana")
            assert low["why"].startswith("ε=4.")
            alerts = try_until(
                lambda: (folder / "alerts").read_text() if (folder / "alerts").exists() else "",
                lambda text: text.endswith("\n"),
                10**6,
            )
            assert [json.loads(line)["event"] for line in alerts.splitlines()] == ["share low"]
            assert token not in (folder / "environment").read_text()
            outcomes = [line["outcome"] for line in server.events if line["event"] == "answer"]
            assert outcomes[0] == "public", "a mistyped statement has not failed"
            assert set(outcomes) == {"public", "released"}
            server.process.send_signal(signal.SIGHUP)
            server.wait_for("policy taken")
            assert server.stop() == 0
            manager.settimeout(0.2)
            while not said[-1].startswith("STOPPING"):
                said.append(manager.recv(200).decode())
    assert not (folder / ".s.PGSQL.5432").exists()
    kinds = [text.partition("=")[0] for text in said if not text.startswith("WATCHDOG")]
    assert kinds == ["READY", "RELOADING", "READY", "STOPPING"]
    assert "WATCHDOG=1" in said


def test_periodic_work_goes_on() -> None:
    sent: list[str] = []

    class Ended:
        def wait(self, seconds: float) -> bool:
            return len(sent) == 2

    def fail() -> None:
        raise ValueError

    log = serve.EventLog(None)
    serve._repeat(2.0, [fail, lambda: sent.append("")], Ended(), log)  # type: ignore[arg-type]
    assert log.counts["failure"] == len(sent) == 2, "one that fails keeps no other from its work"


def test_an_alert_program_must_be_one(tmp_path: Path) -> None:
    (tmp_path / "note").touch(0o600)
    with pytest.raises(ServerError, match="no program"):
        run_server([], "127.0.0.1:0", alert=tmp_path / "note")


def test_a_socket_has_no_certificates_of_analysts() -> None:
    class Certified:
        authority = b"some"

    with pytest.raises(ServerError, match="need TLS"):
        PostgresListener(Path("/tmp/none/.s.PGSQL.5432"), [], serve.EventLog(None), Certified())  # type: ignore[arg-type]
    assert read_postgres_place("unix:/a/.s.PGSQL.6000", False) == Path("/a/.s.PGSQL.6000")
    with pytest.raises(ServerError, match="needs TLS"):
        read_postgres_place("0.0.0.0:5432", False)
