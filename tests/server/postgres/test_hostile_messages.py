"""Hostile conversations of PostgreSQL's extended protocol: messages in any order, cut off, with absurd counts and formats.

A client sends several messages at once, in and outside of transactions and failed ones, and cancels what runs.
Every answer that a client got is in the ledger, every charge is settled, and nothing is paid twice.
The short form has 160 conversations of some ten messages; ``-m stochastic`` has 10,000.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpsql.server.postgres import types
from tests.support.hostile_clients import OTHER, HostileClient, attack
from tests.support.postgres import (
    FLUSH,
    SYNC,
    BarePostgres,
    PostgresServer,
    bind,
    describe,
    execute,
    message,
    parse,
    query,
    read_rows,
    text,
)
from tests.support.served import SECRET, read_charged, write_data, write_policy

PAID = [f"SELECT {number} AS k, COUNT(*) AS n FROM visits WHERE cost > {number}" for number in range(400)]
"""Statements whose answers tell which of them was paid."""
MARKED = [f"SELECT 1000 + {number} AS k, COUNT(*) AS n FROM visits WHERE cost > $1" for number in range(40)]
TEXTS = [
    "SELECT $1::int + $2", "SELECT 1 AS a", "SELEC", "SELECT cots FROM visits", "SELECT city FROM visits", "", ";", "TABLE wards",
    "PREPARE p(int) AS SELECT COUNT(*) FROM visits WHERE day > $1", "EXECUTE p(7)", "EXECUTE p", "EXECUTE nobody(1)",
    "DECLARE c CURSOR FOR SELECT unnest([1, 2, 3])", "FETCH 1 FROM c", "FETCH BACKWARD 1 FROM c", "MOVE 2 FROM c", "CLOSE c",
    "COPY (SELECT ward, name FROM wards) TO STDOUT", "COPY (SELECT 1) TO STDOUT (FORMAT binary)", "COPY wards FROM STDIN",
    "SELECT typname FROM pg_type WHERE oid = $1", "SELECT relname FROM pg_class WHERE relname = ANY($1)", "SHOW BUDGET",
    "SELECT * FROM wards WHERE ward = $1 AND name <> ALL($2)", "SELECT $1", "SELECT $99", "SELECT unnest(range(5000)) AS i",
    "SET statement_timeout = 1", "SET statement_timeout = 0", "DISCARD ALL", "DEALLOCATE ALL", "SELECT 1 LIMIT $1",
    "k << SELECT 1 AS a", "EXPLAIN SELECT COUNT(*) FROM visits", "SELECT set_config('x.y', $1, false)",
]  # fmt: skip
BLOCKS = [
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT s",
    "ROLLBACK TO SAVEPOINT s",
    "RELEASE s",
    "START TRANSACTION",
]
VALUES = [
    None, b"", b"5", b"-1", b"{1,2}", b"{", b"t", b"2024-02-30", b"\\xff", b"NaN", b"9" * 1200, b"\0\0\0\7", bytes(8),
    struct.pack(">iiI", 1, 0, 23) + struct.pack(">iiii", 2**31 - 1, 1, 4, 7), struct.pack(">iiI", 2**31 - 1, 0, 23),
    struct.pack(">HhHH", 0xFFFF, -1, 0, 0), struct.pack(">HhHH", 1, 32767, 0, 0) + b"\x27\x0f",
    struct.pack(">qii", 2**63 - 1, 1, 1),
    struct.pack(">q", -(2**63)), struct.pack(">d", float("inf")), b"\x01" * 16, "\u202e\U0001f600".encode(),
]  # fmt: skip
KINDS = [0, *types.NAMES, *types.ARRAYS.values(), 2205, 3802, 2**32 - 1]
ABSURD = [struct.pack(">h", number) for number in (-1, -32768, 32767, 257)] + [
    struct.pack(">i", number) for number in (-1, -2, -(2**31), 2**31 - 1, 1 << 24)
]
"""Counts and lengths that are put anywhere in a message's body."""
CANCEL = 80877102


class Conversing(HostileClient):
    """A hostile client that sends conversations of several messages, and waits for what each of them answers."""

    forbidden = ("Traceback", SECRET, ".parquet", "site-packages", "/dpsql/", ".py", "pyarrow")

    def __init__(self, server: PostgresServer, seed: int) -> None:
        super().__init__(server, seed)
        self.port = server.port
        self.client: BarePostgres | None = None
        self.answered: set[str] = set()
        """The texts whose answers came."""

    def name(self) -> str:
        return self.rng.choice(["", "", "", "a", "b", "c"])

    def statement(self) -> str:
        return self.rng.choice(self.rng.choice([TEXTS, TEXTS, PAID, MARKED, BLOCKS]))

    def numbers(self, most: int) -> list[int]:
        return [self.rng.choice([0, 0, 1, 1, 2, -1, 255, 32767]) for _ in range(self.rng.randrange(most + 1))]

    def make_bind(self) -> bytes:
        values = [self.rng.choice(VALUES) for _ in range(self.rng.choice([0, 1, 1, 1, 2, 3]))]
        formats, results = self.numbers(2), self.numbers(3)
        if self.rng.random() < 0.7:
            formats, results = [self.rng.choice([0, 1]) for _ in range(len(values))], []
        return bind(values, self.name(), self.name(), formats, results)

    def make_message(self) -> bytes:
        """Return one message, whose parts fit one another or not."""
        kinds = [self.rng.choice(KINDS) for _ in range(self.rng.choice([0, 0, 0, 1, 2]))]
        return self.rng.choice([
            lambda: parse(self.statement(), self.name(), kinds), self.make_bind, self.make_bind,
            lambda: describe("S", self.name()), lambda: describe("P", self.name()),
            lambda: execute(self.name(), self.rng.choice([0, 0, 1, 2, -1, 2**31 - 1])),
            lambda: execute(self.name(), self.rng.choice([0, 0, 1, 2, -1, 2**31 - 1])),
            lambda: message(b"C", self.rng.choice([b"S", b"P"]), text(self.name())), lambda: FLUSH, lambda: SYNC,
            lambda: query(self.statement()),
            lambda: message(b"d", self.rng.randbytes(self.rng.randrange(40))), lambda: message(b"c"),
            lambda: message(b"f", text("no")), lambda: message(b"F", struct.pack(">iii", 1, 0, 0)),
        ])()  # fmt: skip

    def make_good(self) -> bytes:
        """Return the messages of a statement as drivers send them."""
        asked, name = self.statement(), self.name()
        values = [b"250"] if "$1" in asked and "$2" not in asked else []
        closing = message(b"C", b"S", text(name)) if name else b""
        described = self.rng.choice([b"", describe("S", name), describe("P", name)])
        many = self.rng.choice([0, 0, 1, 100])
        return closing + parse(asked, name) + bind(values, name, name) + described + execute(name, many)

    def mutate(self, sent: bytes) -> bytes:
        """Put an absurd number into a message, cut its body short, or say another length."""
        chance, body = self.rng.random(), bytearray(sent[5:])
        if chance < 0.06 and body:
            number, at = self.rng.choice(ABSURD), self.rng.randrange(len(body))
            body[at : at + len(number)] = number
            return message(sent[:1], bytes(body))
        if chance < 0.1:
            return message(sent[:1], bytes(body[: self.rng.randrange(len(body) + 1)]))
        if chance < 0.11:
            return sent[:1] + self.rng.choice(ABSURD[4:]) + bytes(body)
        return sent

    def converse(self) -> None:
        """Send a conversation, and read up to its last answer; the connection goes where it broke the protocol."""
        assert self.client is not None
        begun = [query(self.rng.choice(BLOCKS))] if self.rng.random() < 0.2 else []
        middle = [
            self.make_good() if self.rng.random() < 0.4 else self.mutate(self.make_message())
            for _ in range(self.rng.randrange(1, 9))
        ]
        # at its end comes an answer whatever was before, unless the connection ends
        sent = b"".join([*begun, *middle, SYNC, query("SELECT 'the end' AS word")])
        if self.rng.random() < 0.05:
            sent = sent[: self.rng.randrange(len(sent))]
            self.client.send(sent)
            self.end()
            return
        self.client.send(sent)
        if self.rng.random() < 0.1:
            self.cancel(self.client.key)
        came: list[tuple[bytes, bytes]] = []
        while not any(b"the end" in body for kind, body in came[-4:] if kind == b"D"):
            new = self.client.until()
            if not new or new[-1][0] != b"Z":
                self.end()
                came += new
                break
            came += new
            if any(kind == b"E" and b"57014" in body for kind, body in new) and not self.more():
                break
        self.judge(sent[:200], b"".join(body for _, body in came))
        for row in read_rows(came):
            if len(row) == 2 and row[0] is not None and row[0].isdigit() and row[1] is not None:
                self.note_answer(int(row[0]))

    def note_answer(self, number: int) -> None:
        self.answered.update(asked for asked in PAID[number : number + 1])

    def more(self) -> bool:
        """Return whether more comes soon: a cancelled statement may have been the last one."""
        assert self.client is not None
        self.client.socket.settimeout(2)
        try:
            return bool(self.client.socket.recv(1, socket.MSG_PEEK))
        except TimeoutError:
            return False
        finally:
            self.client.socket.settimeout(60)

    def cancel(self, key: bytes) -> None:
        """Ask to cancel, with the right secret or another one."""
        wrong = key[:4] + self.rng.randbytes(4)
        with socket.create_connection(("127.0.0.1", self.port)) as asker:
            asker.sendall(struct.pack(">ii", 16, CANCEL) + self.rng.choice([key, key, wrong]))

    def end(self) -> None:
        if self.client is not None:
            self.client.close()
        self.client = None

    def send(self, count: int) -> None:
        for _ in range(count):
            self.sent += 1
            try:
                if self.client is None or self.rng.random() < 0.02:
                    self.end()
                    self.client = BarePostgres(self.port)
                    self.client.log_in("ada", self.token)
                self.converse()
            except (OSError, EOFError):
                self.end()
        self.end()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    write_data(tmp_path)
    limits = "answer_times = []\nmax_requests_per_minute = 10000000\nmax_sessions = 10000\nmax_statement_bytes = 20000"
    with PostgresServer(write_policy(tmp_path, {"ada": 900, OTHER: 1}, limits)) as running:
        yield running


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("count", [160, pytest.param(10_000, marks=pytest.mark.stochastic)])
def test_hostile_conversations(server: PostgresServer, count: int) -> None:
    clients = [Conversing(server, seed + count) for seed in range(4)]
    clients[0].send(20)
    attack(server, clients, count)
    failures = [line for line in server.events if line["event"] == "failure"]
    assert not failures, failures[:5]
    last = server.open()
    assert read_rows(last.ask(query("SELECT 1 AS x"))) == [[b"1"]]
    last.close()
    server.stop()
    entries, _ = read_charged(server.policy)
    answered = set[str]().union(*(client.answered for client in clients))
    released = [entry.text for entry in entries if entry.outcome == "released"]
    assert len(answered) > min(50, count // 20)
    assert answered <= {*released}, "every answer that came is paid"
    assert len({*released}) == len(released), "nothing is paid twice"
    assert {entry.outcome for entry in entries} <= {"released", "interrupted", "failed"}, (
        "and all of it is settled"
    )
    print(
        f"\n{sum(client.sent for client in clients):,} conversations, {len(released)} paid, {len(answered)} came"
    )
