"""Hostile messages to everything that a server listens to: no reply says more than it should, and nothing ends the server.

The short form sends 3,000 of them; ``-m stochastic`` sends 100,000.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from dpsql.client.wire import Message, encode
from tests.support.hostile_clients import OTHER, HostileFlightClient, attack, read_memory
from tests.support.raw_http2 import request
from tests.support.served import BareClient, ServerProcess, write_data, write_policy

OPERATIONS = [
    "run", "plan", "explain", "why", "budget", "ledger", "columns", "keep", "check_name", "plot", "budget_panel",
    "open", "close", "interrupt", "nonsense", "", "restore", "leave", "ledger_service", "run\0", "../run", "RUN",
]  # fmt: skip
TEXTS = [
    "SELECT 1", "SELECT * FROM visits", "SELECT city FROM visits", "SELECT COUNT(*) FROM visits", "SELEC", "", "\0", "\ud800",
    "SELECT " + "(" * 3000, "SELECT COUNT(*) FROM '/etc/passwd'", "SELECT * FROM read_parquet('visits.parquet')",
    "COPY visits TO '/tmp/x'", "ATTACH 'x.duckdb'", "SHOW POLICY", "SHOW LEDGER", "SHOW BUDGET",
    "EXPLAIN SELECT AVG(cost) FROM visits",
    "SELECT error(city) FROM visits", "SELECT city::INTEGER FROM visits", "SELECT SUM(city::DOUBLE) FROM visits", "$x", "; ; ;",
    "SELECT WITH DP OPTIONS (epsilon = 1e999) COUNT(*) FROM visits", "x << SELECT 1 AS a", "visits << SELECT 1 AS a", "CLOSE x",
    "SELECT current_setting('secret_directory')", "SELECT getenv('HOME')", "SELECT * FROM duckdb_settings()", "\u202e" * 50,
    "SELECT 1" + " -- x" * 5000, "SELECT repeat('x', 1000000000)", "SELECT COUNT(*) FROM visits WHERE city = $city",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, 0, -1, 1 << 70, 1.5, "", "x" * 5000, "visits", "/etc/passwd", [], [[]], {}, {"$": 1},
    {"type": "date", "value": "x"},
    "budget", "tradeoff", "\u0000", "dpsql_unit", ["visits"] * 300,
]  # fmt: skip
FIELDS = [
    "text", "fresh", "epsilon", "params", "statements", "last", "table", "name", "result", "handle", "what", "protocol", "run",
    "client", "kind", "session", "analyst", "method", "start",
]  # fmt: skip
PATH = b"/arrow.flight.protocol.FlightService/"


def make_head(rng: random.Random) -> dict[str, Any]:
    head: dict[str, Any] = {}
    if rng.random() < 0.7:
        head["text"] = rng.choice(TEXTS)
    for _ in range(rng.randrange(4)):
        head[rng.choice(FIELDS)] = rng.choice([*VALUES, *TEXTS[:6]])
    if rng.random() < 0.1:
        head["params"] = {rng.choice(["x", "city", "\0"]): rng.choice(VALUES)}
    return head


def make_body(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.1:
        return rng.randbytes(rng.randrange(200))
    if kind < 0.15:
        depth = rng.choice([10, 2000, 200_000])
        nested = b'{"a":' + b"[" * depth + b"]" * rng.choice([0, depth]) + b"}"
        return struct.pack(">II", len(nested), 0) + nested
    if kind < 0.18:
        text = (
            json.dumps({"text": "SELECT 1", "n": 10})
            .replace("10", rng.choice(["NaN", "1e999", "9" * 5000]))
            .encode()
        )
        return struct.pack(">II", len(text), rng.choice([0, 0, 7, 2**32 - 1])) + text
    try:
        body = encode(Message(make_head(rng), rng.randbytes(rng.choice([0, 0, 5, 3000]))))
    except Exception:
        body = b"\0\0\0\2\0\0\0\0{}"
    if kind < 0.5:
        changed = bytearray(body)
        for _ in range(rng.randrange(1, 6)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        body = bytes(changed)
    if kind > 0.95:
        body = body[: rng.randrange(len(body) + 1)]
    return body


class Attacker(HostileFlightClient):
    """A hostile client of dpsql's own messages, whose connection is closed when it has sent them."""

    def __init__(self, server: ServerProcess, seed: int) -> None:
        super().__init__(server, seed)
        self.client = flight.connect(server.url)
        self.session = server.connect("ada").session
        self.kinds = [
            *[self.act] * 12, self.descriptor, self.ticket, self.flights, self.put, self.exchange, self.handshake, self.raw,
        ]  # fmt: skip

    def options(self) -> flight.FlightCallOptions:
        token = self.rng.choice(
            [self.token] * 8 + ["", "x", "dpsql_" + "A" * 43, self.token[:-1], "a" * 5000]
        )
        session = self.rng.choice([self.session] * 8 + ["", "x", "../..", "A" * 22, "b" * 5000])
        scheme = self.rng.choice(["Bearer"] * 9 + ["Basic", "bearer", ""])
        headers = [(b"authorization", f"{scheme} {token}".encode()), (b"dpsql-session", session.encode())]
        if self.rng.random() < 0.05:
            headers.append((b"authorization", b"Bearer x"))
        if self.rng.random() < 0.05:
            headers.append((b"x-bin", self.rng.randbytes(50)))
        return flight.FlightCallOptions(headers=headers, timeout=60)

    def act(self) -> Any:
        operation = self.rng.choice(OPERATIONS)
        kind = self.rng.choice(["dpsql."] * 9 + ["", "x."]) + operation
        action = flight.Action(kind, make_body(self.rng))
        return b"".join(result.body.to_pybytes() for result in self.client.do_action(action, self.options()))

    def descriptor(self) -> Any:
        name = self.rng.choice(["visits", "", "x" * 3000, "../visits.parquet"])
        made = self.rng.choice(
            [flight.FlightDescriptor.for_path(name), flight.FlightDescriptor.for_command(make_body(self.rng))]
        )
        ask = self.rng.choice([self.client.get_flight_info, self.client.get_schema])
        return ask(made, self.options())

    def ticket(self) -> Any:
        return self.client.do_get(flight.Ticket(make_body(self.rng)), self.options()).read_all()

    def flights(self) -> Any:
        if self.rng.random() < 0.5:
            return list(self.client.list_actions(self.options()))
        return list(self.client.list_flights(make_body(self.rng), self.options()))

    def put(self) -> Any:
        table = pa.table({"x": [1, 2], self.rng.choice(["y", "\0", ""]): ["a", None]})
        writer, reader = self.client.do_put(
            flight.FlightDescriptor.for_path("visits"), table.schema, self.options()
        )
        with writer:
            writer.write_table(table)
            writer.done_writing()
            return reader.read()

    def exchange(self) -> Any:
        writer, reader = self.client.do_exchange(
            flight.FlightDescriptor.for_command(make_body(self.rng)), self.options()
        )
        with writer:
            writer.done_writing()
            return reader.read_all()

    def handshake(self) -> Any:
        return self.client.authenticate_basic_token("ada", self.token)

    def raw(self) -> Any:
        method = self.rng.choice(
            [b"DoAction", b"Handshake", b"GetSchema", b"PollFlightInfo", b"Nothing", b"\xff", b"DoGet"]
        )
        value = self.rng.choice(
            [b"Bearer \xff\xfe", b"\x00", b"Bearer " + b"\xc3\xa9" * 300, b"Bearer x", b"\r\nx: y"]
        )
        name = self.rng.choice([b"authorization", b"dpsql-session", b"other", b"x-bin", b"Upper", b"\xff"])
        body = self.rng.choice([make_body(self.rng), b"\n\tdpsql.run", b"\n\xff\xff\xff\xff\x0f"])
        return request(self.port, PATH + method, [(name, value)], body)

    def send(self, count: int) -> None:
        super().send(count)
        self.client.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    write_data(tmp_path)
    limits = "answer_times = []\nmax_requests_per_minute = 100000000\nmax_sessions = 1000000\nmax_statement_bytes = 20000"
    with ServerProcess(write_policy(tmp_path, {"ada": 900, OTHER: 1}, limits)) as running:
        yield running


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.stochastic)])
def test_hostile_messages(server: ServerProcess, count: int) -> None:
    attackers = [Attacker(server, seed) for seed in range(6)]
    attackers[0].send(50)
    attackers[0].client = flight.connect(server.url)
    attack(server, attackers, count)
    with server.connect("ada") as client:
        assert client.run("SELECT 1 AS x").results[0].fetchall() == [(1,)]


def test_the_words_that_are_looked_for_would_be_found(server: ServerProcess) -> None:
    attacker = Attacker(server, 1)
    attacker.kinds = [lambda: (_ for _ in ()).throw(ValueError(f"at {attacker.folder}"))]
    attacker.send(1)
    assert attacker.found


def test_hostile_headers_get_no_traceback(server: ServerProcess) -> None:
    """pyarrow reads headers before any of our code runs, and would send its own frames."""
    port = int(server.url.rpartition(":")[2])
    for value in (b"Bearer \xff\xfe", b"\xc3\xa9"):
        came = request(port, PATH + b"DoAction", [(b"authorization", value)], b"\n\tdpsql.run", 60)
        assert b"ascii" in came, "it reached pyarrow"
        assert b"Traceback" not in came
        assert b"File" not in came


def test_a_large_message_is_refused_and_let_go(server: ServerProcess) -> None:
    client: BareClient = server.connect("ada")
    begun = read_memory(server.process.pid)
    for _ in range(4):
        with pytest.raises(flight.FlightServerError, match="bytes; the server takes"):
            client.act("run", {"text": "SELECT 1"}, b"x" * (15 << 20))
    assert read_memory(server.process.pid) - begun < 150
