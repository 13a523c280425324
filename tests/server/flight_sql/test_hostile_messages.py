"""Hostile messages of Flight SQL: no reply says more than it should, and nothing ends the server or fills its memory.

Every answer that a client got is in the ledger, and every charge is settled.
The short form sends 1,000 messages; ``-m stochastic`` sends 100,000.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from dpsql.server.flight.flight_sql import ACTIONS
from dpsql.server.flight.protobuf import MESSAGES, make_message, pack_message
from tests.support.flight_sql_client import BareFlightSql, write_basic
from tests.support.hostile_clients import OTHER, HostileFlightClient, attack
from tests.support.raw_http2 import request
from tests.support.served import ServerProcess, make_token, read_charged, write_data, write_policy

TEXTS = [
    "SELECT 1 AS a", "SELECT * FROM visits", "SELECT city FROM visits", "SELEC", "", "\0", "SELECT " + "(" * 3000, "; ; ;", "$x",
    "SELECT COUNT(*) FROM '/etc/passwd'", "SELECT ? AS a", "SELECT $a AS a, ? AS b", "SELECT " + "?, " * 2000 + "1",
    "SELECT * FROM read_parquet('visits.pq')", "COPY visits TO '/tmp/x'", "SHOW POLICY", "SHOW LEDGER", "x << SELECT 1 AS a",
    "SELECT COUNT(*) FROM visits WHERE city = ?", "SELECT COUNT(*) AS n FROM visits", "SELECT city::INTEGER FROM visits",
    "EXPLAIN SELECT AVG(cost) FROM visits", "SELECT getenv('HOME')", "SELECT repeat('x', 1000000000)", "\u202e" * 50,
    "SELECT WITH DP OPTIONS (epsilon = 1e999) COUNT(*) FROM visits", "SELECT 1" + " -- x" * 5000, "CLOSE x", "DECLARE x",
]  # fmt: skip
NAMES = [
    "",
    "clinic",
    "visits",
    "%",
    "%" * 5000,
    "_" * 300,
    "%_" * 2000,
    "\\",
    "../..",
    "\0",
    "main",
    "x" * 50_000,
]
PAID = [f"SELECT COUNT(*) AS n FROM visits WHERE cost > {number}" for number in range(400)]
QUERIES = ("CommandStatementQuery", "CommandPreparedStatementQuery")
PATH = b"/arrow.flight.protocol.FlightService/"
VALUES: list[pa.Array] = [
    pa.array([1]), pa.array(["x"]), pa.array([None]), pa.array([b"\xff"]), pa.array([[1, [2][0]]]), pa.array([{"a": {"b": [1]}}]),
    pa.array([2**62], pa.timestamp("s")), pa.array([-(2**62)], pa.date64()), pa.array(["a"]).dictionary_encode(),
    pa.array([1.5], pa.float32()), pa.array([float("nan")]), pa.array([2**62], pa.duration("s")), pa.array([1, 2]),
    pa.array([], pa.int64()), pa.array(["x" * 300_000]), pa.array([[None] * 20_000]),
    pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]), pa.nulls(1, pa.map_(pa.string(), pa.int64())),
    pa.array([10**37], pa.decimal128(38, 0)), pa.RunEndEncodedArray.from_arrays([1], [7]),
]  # fmt: skip


BOUND: list[Any] = [
    None, True, "x", 7, 1.5, [], [1, "x"], [None, {"int": "1"}], [[1]], {}, {"int": 1}, {"int": "1", "date": "x"}, {"eval": "1"},
    {"int": "9" * 5000}, {"int": "1_0"}, {"float": "nan"}, {"float": "1e999"}, {"decimal": "1e999999999"}, {"decimal": "sNaN"},
    {"date": "0000-00-00"}, {"timestamp": "9999-12-31T23:59:59.999999-23:59"}, {"time": "24:00"}, {"interval": "9" * 40},
    {"timestamp": "2024-01-01T00:00:00+00:00:00.000001"}, {"uuid": "x"}, {"bytes": "0"}, {"bytes": "00" * 100_000},
    {"other": "x" * 9000}, {"other": "\0"},
]  # fmt: skip
"""Values of parameters as the messages have them, and others."""


def encode_field(number: int, data: bytes) -> bytes:
    """Write a field of bytes as protobuf does."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value % 128 | 128)
        value //= 128
    return bytes([*out, value])


class Attacker(HostileFlightClient):
    """A hostile client of Flight SQL."""

    def __init__(self, server: ServerProcess, seed: int) -> None:
        super().__init__(server, seed)
        self.answered: set[int] = set()
        """The ledger's numbers of the answers that came."""
        self.good = BareFlightSql.with_token(server.url, self.token)
        self.client = self.good.flight
        self.handles = [
            self.good.prepare(text).prepared_statement_handle for text in TEXTS[:1] + TEXTS[10:12] + PAID[:1]
        ]
        theirs = BareFlightSql.with_token(server.url, make_token(server.policy, OTHER))
        self.handles += [theirs.prepare("SELECT 1 AS a").prepared_statement_handle]
        theirs.close()
        self.kinds = [
            *[self.command] * 5, *[self.ticket] * 5, *[self.action] * 5, *[self.question] * 4, *[self.put] * 3,
            self.raw_put, self.raw,
        ]  # fmt: skip

    def options(self) -> flight.FlightCallOptions:
        good = f"Bearer {self.token}"
        given = self.rng.choice(
            [good] * 9
            + ["", "Basic", write_basic("ada", self.token), write_basic("\0", "x"), "Basic " + "A" * 4000]
        )
        headers = [(b"authorization", given.encode())]
        return flight.FlightCallOptions(headers=headers, timeout=60)

    def value(self, field: str) -> Any:
        """Return a value for a field of a message."""
        kind = field.partition(":")[2].partition("=")[0].rstrip("?")
        repeated, plain = kind.endswith("*"), kind.rstrip("*")
        made = {
            "string": lambda: self.rng.choice(self.rng.choice([TEXTS, PAID]) if "query" in field else NAMES),
            "bytes": lambda: self.rng.choice(
                [
                    *self.handles,
                    b"",
                    self.rng.randbytes(40),
                    b"\xff" * 3000,
                    *map(self.change, self.handles),
                    *(self.handle() for _ in self.handles),
                ]
            ),
            "bool": lambda: True,
        }.get(plain, lambda: self.rng.choice([0, 1, 8, 508, 2**31 - 1]))
        return [made() for _ in range(self.rng.choice([0, 1, 3, 500]))] if repeated else made()

    def handle(self) -> bytes:
        """Return a handle as the server writes it, with what no server wrote into it."""
        text = self.rng.choice([*TEXTS[:1], *TEXTS[10:12], TEXTS[18], PAID[0], None, 7, ["SELECT 1"], {}])
        names = self.rng.choice([["1"], ["a"], ["1", "2"], ["a", "1"], ["\0"], [""]])
        bound = {name: self.rng.choice(BOUND) for name in names}
        parts = {"text": text, "bound": self.rng.choice([bound, bound, bound, None, [], "x", 0])}
        if self.rng.random() < 0.1:
            del parts[self.rng.choice(["text", "bound"])]
        return json.dumps(parts).encode()

    def change(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self.rng.randrange(1, 5)):
            changed[self.rng.randrange(len(changed))] = self.rng.randrange(256)
        return bytes(changed)

    def message(self, *likely: str) -> bytes:
        """Return a message that is almost, or not at all, one of the protocol; half of them have one of the likely names."""
        kind = self.rng.random()
        if kind < 0.05:
            return self.rng.randbytes(self.rng.randrange(300))
        if kind < 0.08:
            depth = self.rng.choice([50, 2000])
            nested = b""
            for _ in range(depth):
                nested = encode_field(1, nested)
            return encode_field(
                1, b"type.googleapis.com/arrow.flight.protocol.sql.CommandGetTables"
            ) + encode_field(2, nested)
        name = self.rng.choice(likely if likely and self.rng.random() < 0.5 else list(MESSAGES))
        fields = {
            field.partition(":")[0]: self.value(field)
            for field in MESSAGES[name]
            if not any(other in field for other in MESSAGES) and self.rng.random() < 0.7
        }
        body = pack_message(name, **fields)
        if kind < 0.2:
            body = body.replace(b"CommandGet", b"CommandXet").replace(
                b"Statement", self.rng.choice([b"Statemenu", b"Statement\0"])
            )
        elif kind < 0.4:
            body = self.change(body)
        elif kind < 0.45:
            body = body[: self.rng.randrange(len(body) + 1)]
        elif kind < 0.47:
            body += encode_field(3, b"x" * 300_000)
        return body

    def command(self) -> Any:
        ask = self.rng.choice([self.client.get_flight_info, self.client.get_schema])
        found = ask(flight.FlightDescriptor.for_command(self.message(*QUERIES)), self.options())
        return [found.schema, getattr(found, "endpoints", None)]

    def ticket(self) -> Any:
        return self.fetch(self.message("TicketStatementQuery"))

    def fetch(self, ticket: bytes) -> pa.Table:
        """Return the rows of a ticket, and note the ledger's number of a paid answer."""
        table = self.client.do_get(flight.Ticket(ticket), self.options()).read_all()
        number = (table.schema.metadata or {}).get(b"dpsql.statement_id")
        if number is not None:
            self.answered.add(int(number))
        return table

    def question(self) -> Any:
        """Ask a statement as a good client does, or change its ticket."""
        command = pack_message("CommandStatementQuery", query=self.rng.choice(PAID))
        info = self.client.get_flight_info(flight.FlightDescriptor.for_command(command), self.options())
        ticket = info.endpoints[0].ticket.ticket
        return self.fetch(ticket if self.rng.random() < 0.7 else self.change(ticket))

    def action(self) -> Any:
        kind, body = self.rng.choice(list(ACTIONS)), self.message()
        if self.rng.random() < 0.4:
            kind, body = "CreatePreparedStatement", self.message("ActionCreatePreparedStatementRequest")
        results = self.client.do_action(flight.Action(kind, body), self.options())
        return b"".join(result.body.to_pybytes() for result in results)

    def put(self) -> Any:
        columns = [self.rng.choice(VALUES) for _ in range(self.rng.choice([1, 1, 2, 5]))]
        size = len(columns[0])
        columns = [column for column in columns if len(column) == size]
        names = [self.rng.choice(["a", "a", "\0", "", "1", "x" * 2000]) for _ in columns]
        batch = pa.RecordBatch.from_arrays(columns, names)
        command = pack_message(
            "CommandPreparedStatementQuery", prepared_statement_handle=self.rng.choice(self.handles)
        )
        if self.rng.random() < 0.3:
            command = self.message()
        descriptor = flight.FlightDescriptor.for_command(command)
        writer, reader = self.client.do_put(descriptor, batch.schema, self.options())
        with writer:
            for _ in range(self.rng.choice([0, 1, 1, 1, 3])):
                writer.write_batch(batch)
            writer.done_writing()
            told = reader.read()
        if told is None:
            return ""
        handle = make_message("DoPutPreparedStatementResult")
        handle.ParseFromString(told.to_pybytes())
        ticket = self.good.info(
            "CommandPreparedStatementQuery", prepared_statement_handle=handle.prepared_statement_handle
        )
        return self.fetch(ticket.endpoints[0].ticket.ticket)

    def raw_put(self) -> Any:
        """Send a wrong schema, as bytes that pyarrow would not write."""
        command = pack_message("CommandPreparedStatementQuery", prepared_statement_handle=self.handles[1])
        schema = pa.schema([("a", pa.string()), ("b", pa.list_(pa.int64()))]).serialize().to_pybytes()[8:]
        descriptor = encode_field(1, b"\x08\x02" + encode_field(2, command))
        header = encode_field(2, self.change(schema)) + encode_field(1000, self.rng.randbytes(60))
        return self.send_raw(b"DoPut", descriptor + header)

    def raw(self) -> Any:
        method = self.rng.choice(
            [b"GetFlightInfo", b"DoGet", b"GetSchema", b"DoPut", b"DoAction", b"Handshake"]
        )
        return self.send_raw(
            method, self.rng.choice([self.message(), encode_field(2, self.message()), struct.pack(">Q", 7)])
        )

    def send_raw(self, method: bytes, body: bytes) -> bytes:
        headers = [(b"authorization", f"Bearer {self.token}".encode())]
        return request(self.port, PATH + method, headers, body)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    write_data(tmp_path)
    limits = "answer_times = []\nmax_requests_per_minute = 100000000\nmax_statement_bytes = 20000"
    with ServerProcess(write_policy(tmp_path, {"ada": 900, OTHER: 1}, limits)) as running:
        yield running


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("count", [1_000, pytest.param(100_000, marks=pytest.mark.stochastic)])
def test_hostile_messages(server: ServerProcess, count: int) -> None:
    attackers = [Attacker(server, seed + count) for seed in range(4)]
    attackers[0].send(100)
    attack(server, attackers, count)
    places = {line["why"] for line in server.events if line["event"] == "failure"}
    assert not places, "what nobody foresaw"
    assert attackers[0].good.sql("SELECT 1 AS x").to_pylist() == [{"x": 1}]
    server.stop()
    entries, _ = read_charged(server.policy)
    answered = set[int]().union(*(attacker.answered for attacker in attackers))
    released = {entry.statement_id for entry in entries if entry.outcome == "released"}
    assert answered
    assert answered <= released, "every answer that came is paid"
    assert len(released) == len(entries) == len({entry.text for entry in entries}), (
        "nothing is lost, or paid twice"
    )
    print(
        f"\n{sum(attacker.sent for attacker in attackers):,} sent, {len(released)} paid, {len(answered)} came"
    )


def test_the_words_that_are_looked_for_would_be_found(server: ServerProcess) -> None:
    attacker = Attacker(server, 1)
    attacker.kinds = [lambda: (_ for _ in ()).throw(ValueError(f"at {attacker.folder}"))]
    attacker.send(1)
    assert attacker.found
