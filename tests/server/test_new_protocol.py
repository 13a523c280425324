"""A client protocol of one file: lines over TCP. The first has the token, each further one a statement; rows come back with tabs.

Login, rights, answer times, limits, stops and the log are those of every protocol, since they are in what the adapter calls.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from dpsql.client.wire import Message, encode, parse_result
from dpsql.errors import Error
from dpsql.ledger.ledger import Ledger
from dpsql.server.event_log import EventLog
from dpsql.server.isolation import MemoryGroups
from dpsql.server.queues import SessionRecord
from dpsql.server.rights import Refused
from dpsql.server.served import Right, ServedFiles, ServedPolicy
from tests.support.served import make_token, write_data, write_policy


class Lines(socketserver.StreamRequestHandler):
    """One client."""

    def handle(self) -> None:
        served = cast("LineServer", self.server).served
        identity = served.identify(self.rfile.readline().decode().strip())
        try:
            if identity is None:
                raise Refused("no valid token.")
            right = Right.of(served, identity)
            record = right.queue.open(right.mark)
            for line in cast("IO[bytes]", self.rfile):
                self.wfile.write(self.answer(right, record, line.decode().strip()).encode() + b"\n\n")
        except Refused as refusal:
            self.wfile.write(f"{refusal}\n\n".encode())

    def answer(self, right: Right, record: SessionRecord, text: str) -> str:
        body = encode(Message({"text": text}))
        right.take(len(body))
        try:
            found = list(right.queue.ask(right.queue.make_call("run", record.handle), record, body))
        except Error as error:
            return "\n".join(error.lines())
        results = [parse_result(message) for message in found if message.head["kind"] == "result"]
        return "\n".join("\t".join(map(str, row)) for result in results for row in result.fetchall())


class LineServer(socketserver.ThreadingTCPServer):
    """The listener."""

    daemon_threads = True

    def __init__(self, served: ServedPolicy) -> None:
        super().__init__(("127.0.0.1", 0), Lines)
        self.served = served


class LineClient:
    """A client, which logs in with a token."""

    def __init__(self, port: int, token: str) -> None:
        with socket.create_connection(("127.0.0.1", port)) as sock:
            self.file = sock.makefile("rw")
        self.file.write(f"{token}\n")

    def ask(self, text: str) -> str:
        """Return the lines up to an empty one."""
        self.file.write(f"{text}\n")
        self.file.flush()
        return "\n".join(iter(lambda: self.file.readline().rstrip("\n"), ""))


@contextmanager
def serving(policy: Path) -> Iterator[LineServer]:
    served = ServedPolicy(
        ServedFiles(policy, ":memory:", Path(f"{policy}.ledger")),
        MemoryGroups(policy, policy),
        EventLog(None),
    )
    try:
        served.start()
        with LineServer(served) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield server
            finally:
                server.shutdown()
                served.stop(5)
    finally:
        served.close()


def test_a_protocol_of_one_file(tmp_path: Path) -> None:
    write_data(tmp_path)
    policy = write_policy(tmp_path, {"ada": 9})
    token = make_token(policy, "ada")
    with serving(policy) as server:
        port = server.server_address[1]
        wrong, client = LineClient(port, "dpsql_wrong"), LineClient(port, token)
        with wrong.file, client.file:
            assert wrong.ask("SELECT 1") == "no valid token."
            assert client.ask("SELECT 1 AS x, 'a' AS y") == "1\ta"
            assert abs(int(client.ask("SELECT COUNT(*) AS n FROM visits")) - 5000) < 500
            assert "cost must be a group" in client.ask("SELECT cost FROM visits")
            server.served.tokens.pause("ada", "a test")
            assert "paused" in client.ask("SELECT 1 AS x")
    with Ledger.read(Path(f"{policy}.ledger")) as ledger:
        assert [(entry.analyst, entry.outcome) for entry in ledger.entries()][:1] == [("ada", "released")]
