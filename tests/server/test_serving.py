"""The start of a server: where it listens, what it reads again, and what other users of its machine can't open."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow.flight as flight
import pytest

import dpsql
from dpsql.cli import main
from dpsql.client.channel import is_this_machine
from dpsql.errors import LedgerError, ServerError
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.upkeep import back_up
from dpsql.server.serve import find_location
from dpsql.server.served import run_together
from tests.support.own_process import run_python
from tests.support.served import ROOT, ServerProcess, make_token, write_data, write_policy

pytestmark = pytest.mark.timeout(600)


def start_and_fail(policy: Path, *arguments: str) -> str:
    """Start a server that can't start; return what it says."""
    done = run_python(
        "-m",
        "dpsql.cli",
        "serve",
        "--policy",
        str(policy),
        *arguments,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


# -- where it listens ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]", "::1"])
def test_this_machine_alone(host: str) -> None:
    assert is_this_machine(host)


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:1", "[::]:1", "example.org:1", "10.0.0.1:31337", "localhost.example:1"]
)
def test_beyond_this_machine_there_is_tls(listen: str) -> None:
    with pytest.raises(ServerError, match="TLS"):
        find_location(listen, tls=False)
    assert find_location(listen, tls=True).startswith("grpc+tls://")


@pytest.mark.parametrize(
    "listen",
    ["", "31337", ":31337", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", "127.0.0.1:-1", "h:\u0661"],
)
def test_places_that_are_none(listen: str) -> None:
    with pytest.raises(ServerError, match="no address to listen at"):
        find_location(listen, tls=True)


def test_what_can_not_start_says_why(folder: Path) -> None:
    policy = write_policy(folder, {"ada": 1})
    assert "TLS" in start_and_fail(policy, "--listen", "0.0.0.0:0")
    assert "needs its key" in start_and_fail(policy, "--tls-cert", "x.pem")
    assert "--database" in start_and_fail(policy, "--database", "a", "--database", "b")
    assert "no database" in start_and_fail(policy, "--database", str(folder / "none.duckdb"))
    assert "not Spark" in start_and_fail(policy, "--database", "sc://host")
    (folder / "visits.parquet").unlink()
    assert "visits" in start_and_fail(policy)


def test_a_database_in_the_working_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with duckdb.connect(str(folder / "data.duckdb")) as con:
        con.execute("CREATE TABLE colours AS SELECT 'red' AS name")
    tables = "[tables.colours]\npublic = true\n"
    policy = write_policy(folder, {"ada": 1}, "answer_times = []", tables=tables)
    monkeypatch.chdir(folder)
    with ServerProcess(policy, "--database", "data.duckdb") as server:
        with dpsql.connect(server.url, token=make_token(policy, "ada")) as session:
            assert session.sql("SELECT name FROM colours").fetchall() == [("red",)]
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("policy taken")


def test_one_server_for_a_ledger(folder: Path) -> None:
    policy = write_policy(folder, {"ada": 1}, "answer_times = []")
    with ServerProcess(policy):
        assert "another server has the ledger" in start_and_fail(policy, "--listen", "127.0.0.1:0")
    with ServerProcess(policy) as again:
        assert again.url
    other = folder / "other.toml"
    shutil.copy(policy, other)
    same = str(policy) + ".ledger"
    said = start_and_fail(
        policy, "--policy", str(other), "--ledger", same, "--ledger", same, "--listen", "127.0.0.1:0"
    )
    assert "another server has the ledger" in said


def test_a_socket_is_for_its_group(folder: Path) -> None:
    policy = write_policy(folder, {"ada": 10}, "answer_times = []")
    place = folder / "s.sock"
    first = ServerProcess(policy, listen=f"unix:{place}")
    assert first.url == f"grpc+unix://{place}"
    assert stat.S_IMODE(place.stat().st_mode) == 0o660
    with dpsql.connect(first.url, token=make_token(policy, "ada")) as session:
        assert session.sql("SELECT COUNT(*) AS n FROM visits").fetchall()
    first.process.kill()
    first.stop()
    assert place.exists(), "a killed server leaves its socket"
    with ServerProcess(policy, listen=f"unix:{place}") as second, second.connect("ada") as client:
        assert client.run("SELECT 1 AS x").results
    assert not place.exists()
    place.write_text("a file")
    assert "is a file already" in start_and_fail(policy, "--listen", f"unix:{place}")


def test_what_is_served_and_what_is_missing_is_told(folder: Path) -> None:
    policy = write_policy(folder, {"ada": 10}, "answer_times = []")
    with ServerProcess(policy) as running:
        told = running.events
    assert told[0]["event"] == "serve"
    assert told[0]["tables"] == "visits, wards"
    reasons = [line["why"] for line in told if line["event"] == "missing"]
    assert any("answer_times" in why for why in reasons)
    assert any("token" in why for why in reasons)


def test_two_policies(folder: Path) -> None:
    first = write_policy(folder, {"ada": 10}, "answer_times = []")
    second = folder / "second.toml"
    second.write_text(first.read_text().replace("[tables.wards]", "[tables.rooms]"))
    with ServerProcess(first, "--policy", str(second)) as running:
        with running.connect("ada") as client:
            assert client.opened["catalog"] == "clinic"
            client.run("SELECT COUNT(*) AS n FROM visits").raise_error()
        with running.connect("ada", make_token(second, "ada")) as client:
            assert client.opened["catalog"] == "second"
            assert client.run("SELECT COUNT(*) AS n FROM rooms").results
    for policy, count in ((first, 1), (second, 0)):
        with Ledger.read(str(policy) + ".ledger") as ledger:
            assert len(ledger.entries()) == count


def test_limits_of_requests_sessions_and_answers(folder: Path) -> None:
    limits = "answer_times = []\nkeep_text_days = 1\nmax_requests_per_minute = 30\nmax_sessions = 2\nmax_result_bytes = 20000"
    policy = write_policy(folder, {"ada": 900}, limits)
    with ServerProcess(policy) as running, running.connect("ada") as client:
        client.run("SELECT COUNT(*) AS n FROM visits").raise_error()
        with pytest.raises(dpsql.Error, match="larger than the 20,000 bytes"):
            client.run("SELECT i, i * 2 AS j FROM range(100000) AS t(i)").raise_error()
        running.connect("ada")
        with pytest.raises(flight.FlightServerError, match="limit of open sessions"):
            running.connect("ada")
        with pytest.raises(flight.FlightUnavailableError, match="too many requests"):
            for _ in range(40):
                client.run("SELECT 1 AS x")
    with Ledger.read(str(policy) + ".ledger") as ledger:
        assert [entry.outcome for entry in ledger.entries()] == ["released"]


# -- what is read again -------------------------------------------------------------------------------------------------


def test_a_policy_is_read_again(folder: Path) -> None:
    policy = write_policy(folder, {"ada": 10, "bob": 10}, "answer_times = [0.5]")
    with ServerProcess(policy) as running, running.connect("ada") as client:
        client.run("out << SELECT COUNT(*) AS n FROM visits").raise_error()
        kept = client.value("SELECT n FROM out")
        text = policy.read_text()

        def reload(new: str, event: str) -> dict[str, object]:
            policy.write_text(new)
            before = sum(line["event"] == event for line in running.events)
            running.process.send_signal(signal.SIGHUP)
            end = time.monotonic() + 60
            while time.monotonic() < end:
                found = [line for line in running.events if line["event"] == event]
                if len(found) > before:
                    return found[-1]
                time.sleep(0.05)
            raise AssertionError(running.events)

        for wrong in (
            "[budget]\nepsilom = 1",
            text.replace("visits.parquet", "none.parquet"),
            text.replace("epsilon = 1000", "epsilon = 9000"),
        ):
            told = reload(wrong, "policy not taken")
            assert told["why"]
            assert client.run("SELECT 1 AS x").results, "the old one holds"
        assert f"dpsql ledger adopt --policy {policy.name}" in str(told["hint"])  # the last one grants more
        assert main(["ledger", "adopt", "--policy", str(policy)]) == 0
        reload(text.replace("epsilon = 1000", "epsilon = 9000"), "policy taken")
        stream = client.stream("run", {"text": "SELECT COUNT(*) AS n FROM visits WHERE cost > 5"})
        assert next(stream).head["kind"] == "stage"
        text = text.replace("epsilon = 1000", "epsilon = 9000")
        reload(text.replace("cost = { bounds = [0, 500] }", "cost = { bounds = [0, 100] }"), "policy taken")
        assert [message.head["kind"] for message in stream] == ["result", "end"], (
            "what runs ends under the old one"
        )
        assert "[0, 100]" in client.act("explain", {"text": "SELECT SUM(cost) AS s FROM visits"}).text()
        assert client.value("SELECT n FROM out") == kept
        assert len(running.events) > 5


def test_a_ledger_is_not_replaced_under_a_server(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy, backup = write_policy(folder, {"ada": 10}, "answer_times = []"), folder / "b"
    ledger = Path(f"{policy}.ledger")
    with ServerProcess(policy) as running, running.connect("ada") as client:
        back_up(ledger, backup)
        assert main(["ledger", "restore", "--policy", str(policy), str(backup)]) == 1
        assert "stop the server" in capsys.readouterr().err
        client.run("SELECT COUNT(*) AS n FROM visits").raise_error()
        ledger.rename(folder / "moved")  # what the lock can't prevent
        shutil.copy(backup, ledger)
        with pytest.raises(LedgerError, match="while the server ran") as raised:
            client.run("SELECT COUNT(*) AS n FROM visits WHERE cost > 5").raise_error()
        assert "tell the owner" in str(raised.value.hint)
        assert str(folder) not in f"{raised.value.message} {raised.value.hint}"
        told = running.wait_for("ledger replaced")
        assert told["hint"].startswith("restart the server")
    assert main(["ledger", "restore", "--policy", str(policy), str(backup)]) == 0


# -- other users --------------------------------------------------------------------------------------------------------


@pytest.fixture
def for_others(folder: Path) -> Iterator[Path]:
    """A folder that others may enter, as that of a service is."""
    made = Path("/tmp") / f"dpsql-others-{os.getpid()}"
    shutil.copytree(folder, made)
    yield made
    shutil.rmtree(made)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_can_ask_and_can_not_open(for_others: Path) -> None:
    """The data are closed by their owner, everything else by dpsql, though the folder is open to all."""
    nobody = pwd.getpwnam("nobody")
    policy = write_policy(for_others, {"ada": 10}, "answer_times = []")
    for name in ("visits.parquet", "wards.parquet", policy.name):
        (for_others / name).chmod(0o600)
    for_others.chmod(0o755)
    token = make_token(policy, "ada")
    with ServerProcess(policy) as running:
        with running.connect("ada") as client:
            client.run("SELECT COUNT(*) AS n FROM visits").raise_error()
        pids = [running.process.pid, *running.workers()]
        code = f"""
            import os, json, pathlib
            import pyarrow.flight as flight
            from dpsql.client.wire import PROTOCOL, Message, encode
            from dpsql.client.wire import decode_all
            os.setgroups([]); os.setgid({nobody.pw_gid}); os.setuid({nobody.pw_uid})
            opened = []
            places = list(pathlib.Path({str(for_others)!r}).iterdir())
            places += [pathlib.Path(f"/proc/{{pid}}/{{name}}") for pid in {pids} for name in ("mem", "environ", "maps", "fd/3")]
            for place in places:
                try:
                    place.open("rb").read(1)
                    opened.append(place.name)
                except OSError:
                    pass
            client = flight.connect({running.url!r})
            def ask(kind, head, session=""):
                headers = [(b"authorization", b"Bearer {token}"), (b"dpsql-session", session.encode())]
                options = flight.FlightCallOptions(headers=headers)
                results = client.do_action(flight.Action(kind, encode(Message(head))), options)
                return [message.head for result in results for message in decode_all(result.body.to_pybytes())]
            session = ask("dpsql.open", {{"protocol": PROTOCOL}})[0]["session"]
            told = [head["kind"] for head in ask("dpsql.run", {{"text": "SELECT COUNT(*) AS n FROM visits"}}, session)]
            print(json.dumps([len(places), sorted(opened), told]))
            """
        done = run_python(
            "-c", textwrap.dedent(code), timeout=240, cwd="/", env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
    assert done.returncode == 0, done.stderr
    count, opened, told = eval(done.stdout)
    assert count > 10
    assert [name for name in opened if not name.endswith(".log")] == []
    assert told == ["result", "end"]


def test_the_server_ends_while_a_policy_is_read_again(tmp_path: Path) -> None:
    """A reading may take minutes: here it waits for ever for data from a pipe."""
    write_data(tmp_path)
    policy = write_policy(tmp_path, {"ada": 5}, "answer_times = []")
    with ServerProcess(policy) as running, running.connect("ada") as ada:
        os.mkfifo(tmp_path / "pipe.csv")
        policy.write_text(policy.read_text().replace("visits.parquet", "pipe.csv"))
        running.process.send_signal(signal.SIGHUP)
        time.sleep(1)
        assert ada.run("SELECT COUNT(*) AS n FROM visits").results, "the old reading holds meanwhile"
        assert running.stop() == 0  # which waits for it, and not for ever
        assert "policy taken" not in {event["event"] for event in running.events}


def test_the_end_does_not_wait_for_what_never_ends() -> None:
    never, done = threading.Event(), threading.Event()
    begun = time.monotonic()
    assert not run_together([never.wait, done.set], 0.2)
    assert time.monotonic() - begun > 0.19
    assert done.wait(60), "the others end"
    never.set()
    assert run_together([never.wait, done.set], 60)
