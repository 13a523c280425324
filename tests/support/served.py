"""A server in a process of its own, over a small clinic, and a bare client that speaks its messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow.flight as flight

from dpsql.client.wire import PROTOCOL, Message, decode_all, encode, parse_result, read_error
from dpsql.ledger.ledger import Entry, Ledger
from dpsql.server.analyst_tokens import TokenFile

ROOT = Path(__file__).resolve().parents[2]
BUDGET = """
[budget]
epsilon = 1000
delta = 1e-3
accountant = "basic"
default_epsilon = 0.1
default_delta = 1e-7
"""
TABLES = """
[tables.visits]
source = "visits.parquet"
privacy_unit = "patient"
max_rows_per_group = 5
max_groups = 3
[tables.visits.columns]
ward = { values = ["A", "B", "C", "D"] }
cost = { bounds = [0, 500] }
day = { bounds = [0, 400] }
city = { max_length = 20 }

[tables.wards]
source = "wards.parquet"
public = true
"""
SECRET = "Zanzibar-4711"
"""A value of the data that no reply may hold."""


FIRST_STEP = 0.25 - 0.005
"""Seconds after which the first answer leaves under the usual grid; what waits for it never takes less, on any machine."""
T = TypeVar("T")


def read_charged(policy: Path) -> tuple[list[Entry], Fraction]:
    """Return the statements in a policy's ledger that were not refused, and the epsilon spent, which is the sum of theirs."""
    with Ledger.read(f"{policy}.ledger") as ledger:
        entries = [entry for entry in ledger.entries() if entry.outcome != "refused"]
        spent = ledger.state().spent_epsilon
    assert spent == sum((entry.event.basic[0] for entry in entries if entry.event is not None), Fraction(0))
    return entries, spent


def try_until(ask: Callable[[], T], holds: Callable[[T], bool], tries: int = 40) -> T:
    """Ask until what came holds, and return it.

    A machine that stalls may spoil any one of them; what a wrong server does not do comes never.
    """
    for _ in range(tries):
        if holds(came := ask()):
            return came
    raise AssertionError(f"the last of {tries} was {came}")


def write_data(folder: Path, rows: int = 5_000) -> None:
    """Write the tables as Parquet files."""
    with duckdb.connect() as con:
        con.execute(
            f"COPY (SELECT i % {max(1, rows // 5)} AS patient, 'ABCD'[1 + i % 4] AS ward, (i * 37 % 500)::DOUBLE AS cost, "
            f"(i * 13 % 400)::INTEGER AS day, CASE WHEN i = 7 THEN '{SECRET}' ELSE 'Delft' END AS city "
            f"FROM range({rows}) AS t(i)) TO '{folder / 'visits.parquet'}'"
        )
        con.execute(
            "COPY (SELECT * FROM (VALUES ('A', 'Heart'), ('B', 'Skin'), ('C', 'Eyes')) AS t(ward, name)) "
            f"TO '{folder / 'wards.parquet'}'"
        )


def write_policy(
    folder: Path, analysts: Mapping[str, float], server: str = "", budget: str = BUDGET, tables: str = TABLES
) -> Path:
    """Write a policy with shares of analysts and a [server] section."""
    shares = "".join(f"[analysts.{name}]\nepsilon = {share}\n" for name, share in analysts.items())
    path = folder / "clinic.toml"
    path.write_text(f"{budget}\n{tables}\n{shares}\n[server]\n{server}\n")
    return path


class ServerProcess:
    """A server, ``dpsql serve``, in a process of its own.

    Args:
        policy: the policy file; its folder gets the log.
        arguments: further ones.
        listen: where.
        command: what runs the command line.
    """

    def __init__(
        self, policy: Path, *arguments: str, listen: str = "127.0.0.1:0", command: list[str] | None = None
    ) -> None:
        self.policy = policy
        self.log_path = policy.parent / "server.log"
        self._log = self.log_path.open("a")
        known = {
            **os.environ,
            "PYTHONFAULTHANDLER": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        self.process = subprocess.Popen(
            [*(command or [sys.executable, "-m", "dpsql.cli"]), "serve", "--policy", str(policy), "--listen", listen, *arguments],
            stdout=subprocess.PIPE, stderr=self._log, text=True, env=known,
        )  # fmt: skip
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), (line, self.log_path.read_text())
        self.url = line.split()[-1]

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines of the log."""
        complete, _, _ = self.log_path.read_text().rpartition("\n")
        return [json.loads(line) for line in complete.splitlines() if line.startswith("{")]

    def wait_for(self, event: str, seconds: float = 60, **fields: object) -> dict[str, Any]:
        """Wait until the log has an event."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for line in self.events:
                if line["event"] == event and all(line.get(key) == value for key, value in fields.items()):
                    return line
            time.sleep(0.02)
        raise AssertionError((event, self.log_path.read_text()[-3000:]))

    def workers(self) -> list[int]:
        """The processes of workers, which the fork server started."""
        return [pid for server in self.fork_servers() for pid in list_children(server)]

    def fork_servers(self) -> list[int]:
        """The process that starts workers."""
        return [pid for pid in list_children(self.process.pid) if "dpsql.server.worker" in read_command(pid)]

    def stop(self, number: int = signal.SIGTERM, seconds: float = 120) -> int:
        """Send a signal, and return the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(seconds)
        self.process.stdout.close()
        self._log.close()
        return status

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            where = len(self.log_path.read_text())
            self.process.send_signal(signal.SIGABRT)  # it writes where each thread is
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
            self.process.kill()
            self.stop()
            raise AssertionError(f"the server does not end:\n{self.log_path.read_text()[where:]}") from None

    def connect(self, name: str, token: str | None = None) -> BareClient:
        """Open a session of an analyst."""
        return BareClient(self.url, token or make_token(self.policy, name))


_TOKENS: dict[tuple[Path, str], str] = {}
_MAKING = threading.Lock()


def make_token(policy: Path, name: str) -> str:
    """Return the token of an analyst, made once, whichever thread asks first."""
    with _MAKING:
        if (policy, name) not in _TOKENS:
            _TOKENS[policy, name] = TokenFile(policy).add(name)
        return _TOKENS[policy, name]


def list_children(pid: int) -> list[int]:
    """Return the processes that a process started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def read_command(pid: int) -> str:
    """Return the command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@dataclass
class Reply:
    """The messages of a reply, and when each came, in seconds after the request."""

    messages: list[Message]
    times: list[float]

    @property
    def kinds(self) -> list[str]:
        return [message.head["kind"] for message in self.messages]

    def raise_error(self) -> Reply:
        """Raise the error that the reply ends with, where there is one."""
        for message in self.messages:
            if message.head["kind"] == "error":
                raise read_error(message)
        return self

    @property
    def results(self) -> list[Any]:
        found = self.raise_error().messages
        return [parse_result(message) for message in found if message.head["kind"] == "result"]

    def text(self) -> str:
        """All of it, as text."""
        return repr([(message.head, message.payload) for message in self.messages])


class BareClient:
    """A client that sends what it is told to."""

    def __init__(self, url: str, token: str) -> None:
        self.token = token
        self.flight = flight.connect(url)
        self.session = ""
        self.opened = self.act("open", {"protocol": PROTOCOL, "client": "test"}).messages[0].head
        self.session = self.opened["session"]

    def stream(self, operation: str, head: Mapping[str, Any], payload: bytes = b"") -> Iterator[Message]:
        """Yield the messages of a reply as they come."""
        headers = [(b"authorization", b"Bearer " + self.token.encode())]
        if self.session:
            headers.append((b"dpsql-session", self.session.encode()))
        action = flight.Action(f"dpsql.{operation}", encode(Message(dict(head), payload)))
        for result in self.flight.do_action(action, flight.FlightCallOptions(headers=headers)):
            yield from decode_all(result.body.to_pybytes())

    def act(self, operation: str, head: Mapping[str, Any], payload: bytes = b"") -> Reply:
        """Ask, and return the whole reply."""
        begun = time.monotonic()
        messages, times = [], []
        for message in self.stream(operation, head, payload):
            messages.append(message)
            times.append(time.monotonic() - begun)
        return Reply(messages, times)

    def run(self, text: str, **more: Any) -> Reply:
        """Ask a statement."""
        return self.act("run", {"text": text, **more})

    def value(self, text: str, **more: Any) -> Any:
        """Return the first value of a statement's answer."""
        return self.run(text, **more).results[-1].fetchall()[0][0]

    def interrupt(self) -> bool:
        """Stop what the session asks."""
        return bool(self.act("interrupt", {}).messages[0].head["stopped"])

    def __enter__(self) -> BareClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.flight.close()
