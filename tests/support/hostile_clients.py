"""Hostile clients of a server: they keep what they hear and should not, while the server lives on and stays small."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.flight as flight

from tests.support.served import SECRET, ServerProcess, make_token

OTHER = "bobbington"
"""Another analyst of the servers that are attacked."""
MODULE = re.compile(r"\.py(?:(?<=[a-z_]{4}\.py)|(?<=pld\.py)|(?<=why\.py))")
"""A module's file; what is shorter than any of ours, random bytes may spell.

It looks back from the dot, since a search for letters takes hours in a reply with megabytes of them.
"""


class HostileClient:
    """A client that sends hostile messages, and keeps what came back that should not have.

    Args:
        server: the one that it attacks.
        seed: of its choices.
    """

    forbidden: ClassVar[Sequence[str]] = (
        "Traceback", SECRET, ".parquet", "site-packages", "/dpsql/", "pyarrow/", OTHER,
    )  # fmt: skip
    """Words that no reply may hold; nor may it name the policy's folder, or a module. They are long: handles are random bytes."""

    def __init__(self, server: ServerProcess, seed: int) -> None:
        self.rng = random.Random(seed)
        self.token = make_token(server.policy, "ada")
        self.folder = str(server.policy.parent)
        self.found: list[str] = []
        self.sent = 0

    def send(self, count: int) -> None:
        """Send so many messages, and judge what comes."""
        raise NotImplementedError

    def judge(self, sent: object, came: object) -> None:
        """Keep what came where it says what it should not."""
        told = came.decode(errors="replace") if isinstance(came, bytes) else str(came)
        if any(word in told for word in (*self.forbidden, self.folder)) or MODULE.search(told):
            self.found.append(f"{sent!r}: {told[:2000]}")


class HostileFlightClient(HostileClient):
    """A hostile client that calls Arrow Flight: each of its ``kinds`` sends something, and returns what comes."""

    kinds: list[Callable[[], Any]]

    def __init__(self, server: ServerProcess, seed: int) -> None:
        super().__init__(server, seed)
        self.port = int(server.url.rpartition(":")[2])

    def send(self, count: int) -> None:
        for _ in range(count):
            ask = self.rng.choice(self.kinds)
            try:
                came: Any = ask()
            except (flight.FlightError, pa.ArrowException, ValueError, UnicodeError) as error:
                came = str(error)
            self.sent += 1
            self.judge(ask.__name__, came)


def attack(server: ServerProcess, clients: Sequence[HostileClient], count: int) -> None:
    """Let all clients send at once, ``count`` messages together.

    Raises:
        AssertionError: a reply says what it should not, or the server ended, grew by 200 MiB or met an exception.
    """
    before, begun = sum(client.sent for client in clients), read_memory(server.process.pid)
    each = count // len(clients)
    running = [threading.Thread(target=client.send, args=(each,)) for client in clients]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    found = [told for client in clients for told in client.found]
    assert not found, "\n".join(found[:10])
    assert sum(client.sent for client in clients) - before >= each * len(clients)
    assert server.process.poll() is None
    assert read_memory(server.process.pid) - begun < 200, "megabytes more"
    assert "Traceback" not in server.log_path.read_text()


def read_memory(pid: int) -> int:
    """Return the megabytes that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 >> 20
