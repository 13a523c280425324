"""Connections that prove nothing keep nobody out: they are few, short-lived, dropped oldest first, counted, and logged."""

from __future__ import annotations

import http.client
import io
import json
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from dpsql.server import connections
from dpsql.server.connections import (
    LOGIN_SECONDS,
    MAX_ARRIVING,
    MAX_OF_AN_ADDRESS,
    Arrivals,
    SocketWatch,
    count_received,
    log_dropped,
    write_peer,
)
from dpsql.server.console.process import CONNECTION_SECONDS
from dpsql.server.event_log import EventLog
from tests.support.certificates import make_certificate
from tests.support.postgres import BarePostgres, PostgresServer, query
from tests.support.served import BareClient, ServerProcess, make_token, write_data, write_policy

CROWD = 500
FAST = 1.0
"""Seconds in which a login ends, with whatever others do meanwhile."""


class Crowd:
    """Connections of one address that prove nothing."""

    def __init__(
        self, port: int, count: int, begin: Callable[[socket.socket], None] = lambda sock: None
    ) -> None:
        self.sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
        for sock in self.sockets:
            with suppress(OSError):
                begin(sock)

    def count_open(self) -> int:
        """Return how many of them the server has not ended."""
        count = 0
        for sock in self.sockets:
            sock.settimeout(0.0)
            try:
                while sock.recv(4096):
                    pass
            except BlockingIOError:
                count += 1
            except OSError:
                pass
        return count

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


# -- the bounds --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def held() -> Iterator[tuple[Arrivals, list[int], io.StringIO]]:
    file = io.StringIO()
    return Arrivals(partial(log_dropped, EventLog(file)), "Test"), [], file


def test_the_oldest_of_an_address_makes_room(held: tuple[Arrivals, list[int], io.StringIO]) -> None:
    found, dropped, _ = held
    for number in range(MAX_OF_AN_ADDRESS + 3):
        found.add(number, f"ipv4:10.0.0.1:{number}", lambda number=number: dropped.append(number))  # type: ignore[misc]
    assert dropped == [0, 1, 2]
    assert len(found) == MAX_OF_AN_ADDRESS


def test_a_crowd_of_many_addresses_meets_those_who_have_most(
    held: tuple[Arrivals, list[int], io.StringIO],
) -> None:
    found, dropped, _ = held
    found.add(-1, "ipv4:10.0.0.9:1", lambda: dropped.append(-1))
    for number in range(3 * MAX_ARRIVING):
        found.add(number, f"ipv4:10.0.{number % 3}.1:{number}", lambda number=number: dropped.append(number))  # type: ignore[misc]
    assert len(found) == MAX_ARRIVING
    assert -1 not in dropped, "the only one of its address is met last"
    assert dropped[:3] == sorted(dropped[:3])


def test_who_was_let_in_is_never_dropped(held: tuple[Arrivals, list[int], io.StringIO]) -> None:
    found, dropped, _ = held
    found.add("ada", "ipv4:10.0.0.1:1", lambda: dropped.append(0))
    found.let_in("ada")
    for number in range(1, 200):
        found.add(number, f"ipv4:10.0.0.1:{number}", lambda number=number: dropped.append(number))  # type: ignore[misc]
    assert 0 not in dropped


def test_lines_of_the_log_are_few_and_count_all(
    held: tuple[Arrivals, list[int], io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _, file = held
    monkeypatch.setattr(connections, "FIRST_LINE_SECONDS", 0.2)
    monkeypatch.setattr(connections, "LINE_SECONDS", 0.5)
    begun = time.monotonic()
    for number in range(1000):
        found.add(number, f"ipv4:10.0.{number % 50}.1:{number}", lambda: None)
    took = time.monotonic() - begun

    def read() -> list[dict[str, object]]:
        return [json.loads(line) for line in file.getvalue().splitlines()]

    wait_until(lambda: sum(int(str(line["count"])) for line in read()) == 1000 - MAX_ARRIVING)
    assert len(read()) <= 2 + took / 0.5
    assert all(line["event"] == "connections dropped" and "10.0." in str(line["address"]) for line in read())


def test_the_slow_are_dropped(
    held: tuple[Arrivals, list[int], io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, dropped, _ = held
    found.add(1, "ipv4:10.0.0.1:1", lambda: dropped.append(1))
    found.drop_slow()
    assert not dropped
    now = time.monotonic()
    monkeypatch.setattr(connections.time, "monotonic", lambda: now + LOGIN_SECONDS + 1)
    found.drop_slow()
    assert dropped == [1]
    assert not len(found)


def test_a_watch_drops_sockets_that_are_not_its_own() -> None:
    """As those of gRPC, which tells nothing of who says nothing."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=200)
    port = listening.getsockname()[1]
    crowd = Crowd(port, MAX_OF_AN_ADDRESS + 10)
    accepted = [listening.accept() for _ in crowd.sockets]
    found = Arrivals(lambda count, addresses, why: None, "Test")
    watch = SocketWatch(port, found, lambda: 10**9)
    known = {write_peer(sock.getsockname()) for sock in crowd.sockets[:15]}
    for peer in known:
        watch.note_known(peer)
    watch.look()
    assert len(found) == MAX_OF_AN_ADDRESS + 10 - 15
    more = Crowd(port, 20)
    accepted += [listening.accept() for _ in more.sockets]
    watch.look()
    assert len(found) == MAX_OF_AN_ADDRESS
    wait_until(lambda: crowd.count_open() + more.count_open() == MAX_OF_AN_ADDRESS + 15)
    for sock in crowd.sockets[:15]:
        sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            sock.recv(1)
    for one in (crowd, more):
        one.close()
    for sock, _ in accepted:
        sock.close()
    listening.close()
    watch.look()
    assert not len(found)


def test_who_sends_much_before_a_token_is_dropped() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
    accepted = [listening.accept()[0] for _ in clients]
    found = Arrivals(lambda count, addresses, why: None, "Test")
    watch = SocketWatch(port, found, lambda: 5000)
    watch.note_known(write_peer(clients[0].getsockname()))
    for client, size in zip(clients, (6000, 6000, 4000), strict=True):
        client.sendall(b"x" * size)
    wait_until(lambda: [count_received(sock) for sock in accepted] == [6000, 6000, 4000])
    watch.look()
    assert len(found) == 1, "one is known, one was dropped"
    closed = []
    for client in clients:
        client.settimeout(0.2)
        try:
            closed.append(client.recv(1) == b"")
        except TimeoutError:
            closed.append(False)
    assert closed == [False, True, False]
    for sock in (*clients, *accepted, listening):
        sock.close()


# -- a server ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    make_certificate(folder, "own")
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    folder = tmp_path_factory.mktemp("arrivals")
    write_data(folder)
    with PostgresServer(write_policy(folder, {"ada": 1}, "answer_times = []")) as running:
        make_token(running.policy, "ada")
        yield running


def drip(sock: socket.socket) -> None:
    """Send the beginning of a startup message."""
    sock.sendall(struct.pack(">ii", 8000, 196608))


def log_in(server: PostgresServer) -> float:
    """Log in, ask something, and return the seconds that it took."""
    begun = time.monotonic()
    client = server.open()
    assert client.kinds(query("SELECT 1")) == "TDCZ"
    client.close()
    return time.monotonic() - begun


def drip_on(crowd: Crowd, ended: threading.Event) -> threading.Thread:
    """Let a crowd send one byte a second each, until it is ended."""

    def run() -> None:
        while not ended.wait(1):
            for sock in crowd.sockets:
                with suppress(OSError):
                    sock.send(b"x", socket.MSG_NOSIGNAL)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("slow", [False, True], ids=["idle", "a byte a second"])
def test_a_crowd_keeps_nobody_out_of_the_postgresql_port(server: PostgresServer, slow: bool) -> None:
    log_in(server)
    inside = server.open()
    crowd, ended = Crowd(server.port, CROWD, drip if slow else lambda sock: None), threading.Event()
    thread = drip_on(crowd, ended)
    if not slow:
        ended.set()
    try:
        took = [log_in(server) for _ in range(5)]
        assert min(took) < FAST, took
        assert sorted(took)[2] < 2 * FAST, took
        assert crowd.count_open() <= MAX_OF_AN_ADDRESS
        assert inside.kinds(query("SELECT 1")) == "TDCZ", "who was let in is not met by it"
        told = server.wait_for("connections dropped")
        assert "127.0.0.1 (" in told["address"]
        wait_until(lambda: crowd.count_open() == 0, 2 * LOGIN_SECONDS + 5)
    finally:
        ended.set()
        thread.join()
        crowd.close()
        inside.close()


def test_a_crowd_keeps_nobody_out_of_flight(server: PostgresServer) -> None:
    token = make_token(server.policy, "ada")
    with BareClient(server.url, token) as inside:
        crowd = Crowd(int(server.url.rpartition(":")[2]), CROWD)
        try:
            for _ in range(3):
                begun = time.monotonic()
                with BareClient(server.url, token) as client:
                    assert client.value("SELECT 1 AS a") == 1
                took = time.monotonic() - begun
                if took < FAST:
                    break
            assert took < FAST
            wait_until(lambda: crowd.count_open() <= MAX_OF_AN_ADDRESS)
            wait_until(lambda: crowd.count_open() == 0, 2 * LOGIN_SECONDS + 5)
            assert inside.value("SELECT 1 AS a") == 1
        finally:
            crowd.close()


def test_handshakes_that_never_end(tmp_path: Path, certificates: Path) -> None:
    write_data(tmp_path)
    files = [str(certificates / name) for name in ("own.pem", "own.key")]
    policy = write_policy(tmp_path, {"ada": 1}, "answer_times = []")
    token = make_token(policy, "ada")

    def begin(sock: socket.socket) -> None:
        sock.sendall(struct.pack(">ii", 8, 80877103))
        sock.recv(1)
        sock.sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a ClientHello

    with PostgresServer(policy, "--tls-cert", files[0], "--tls-key", files[1]) as server:
        context = ssl.create_default_context(cafile=files[0])

        def enter() -> float:
            begun = time.monotonic()
            client = BarePostgres(server.port)
            assert client.secure(context) == b"S"
            client.log_in("ada", token)
            client.close()
            return time.monotonic() - begun

        enter()
        crowds = [Crowd(server.port, 200, begin)]
        crowds.append(
            Crowd(
                int(server.url.rpartition(":")[2]),
                200,
                lambda sock: sock.sendall(b"\x16\x03\x01\x02\x00\x01"),
            )
        )
        try:
            assert min(enter() for _ in range(5)) < FAST
            for crowd in crowds:
                wait_until(lambda crowd=crowd: crowd.count_open() <= MAX_OF_AN_ADDRESS)  # type: ignore[misc]
                wait_until(lambda crowd=crowd: crowd.count_open() == 0, 2 * LOGIN_SECONDS + 5)  # type: ignore[misc]
            dropped = [line["why"] for line in server.events if line["event"] == "connections dropped"]
            assert {why.partition(":")[0] for why in dropped} == {"PostgreSQL", "Flight"}
        finally:
            for crowd in crowds:
                crowd.close()


def test_a_crowd_keeps_the_owner_out_of_no_page(tmp_path: Path) -> None:
    write_data(tmp_path)
    policy = write_policy(tmp_path, {"ada": 1}, "answer_times = []")
    make_token(policy, "ada")
    with ServerProcess(policy, "--console", "127.0.0.1:0") as server:
        assert server.process.stdout is not None
        found = re.search(r"http://127.0.0.1:(\d+)(/enter\?key=\S+)", server.process.stdout.readline())
        assert found is not None
        port, link = int(found[1]), found[2]

        def ask(path: str, cookie: str = "") -> tuple[int, str]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", path, headers={"Cookie": cookie} if cookie else {})
            reply = connection.getresponse()
            reply.read()
            connection.close()
            return reply.status, str(reply.headers["set-cookie"] or "").partition(";")[0]

        status, cookie = ask(link)
        assert status == 200
        kinds: list[bytes] = [b"", b"GET / HTTP/1.1\r\nHo", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"]
        for sent in kinds:
            crowd = Crowd(port, CROWD, lambda sock, sent=sent: sock.sendall(sent))  # type: ignore[misc]
            try:
                assert ask("/policy/clinic/", cookie)[0] == 200
                wait_until(lambda crowd=crowd: crowd.count_open() == 0, 2 * CONNECTION_SECONDS)  # type: ignore[misc]
            finally:
                crowd.close()


def test_the_server_process_may_open_many_files(server: ServerProcess) -> None:
    limits = Path(f"/proc/{server.process.pid}/limits").read_text().splitlines()
    (line,) = [one.split() for one in limits if one.startswith("Max open files")]
    assert int(line[3]) == min(int(line[4]), 65_536)
