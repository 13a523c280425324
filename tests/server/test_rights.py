"""A right is asked at each request: every operation of every protocol, under each state that a right may be in.

The operations are found by looking at the adapters: one that is new fails here until it is listed.
"""

from __future__ import annotations

import http.client
import re
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.flight as flight
import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from dpsql.cli import main
from dpsql.client.wire import Message, encode
from dpsql.server import client_session
from dpsql.server.analyst_tokens import TokenFile
from dpsql.server.console.app import make_app
from dpsql.server.console.process import make_metrics_app
from dpsql.server.flight.flight_sql import ACTIONS
from dpsql.server.flight.front import OWN_ACTIONS, Front
from dpsql.server.flight.protobuf import pack_message
from dpsql.server.ledger_service import _CALLS, PAYING_CALLS
from dpsql.server.postgres.connection import _LETTING_GO, HANDLERS, PostgresConnection
from dpsql.server.rights import Lapse, RightError
from tests.support.flight_sql_client import shake_hands
from tests.support.postgres import (
    SYNC,
    BarePostgres,
    PostgresServer,
    bind,
    describe,
    execute,
    message,
    parse,
    query,
    read_error,
    read_rows,
    text,
)
from tests.support.scripted_worker import EVENT, ScriptedQueue, ScriptedSide
from tests.support.served import BareClient, make_token, write_data, write_policy

STATES = ["paused", "ended", "removed", "rotated", "no share", "too many"]
FINAL = {"ended", "removed", "rotated", "no share"}
"""States in which the session ends."""
COUNT = "SELECT COUNT(*) AS n FROM visits"
LIMITS = "answer_times = []\nmax_sessions = 1000\nmax_requests_per_minute = 200"


def write(folder: Path, names: list[str]) -> Path:
    return write_policy(folder, dict.fromkeys(names, 100), LIMITS)


def name_analyst(state: str) -> str:
    return "ana_" + state.replace(" ", "_")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    folder = tmp_path_factory.mktemp("rights")
    write_data(folder)
    names = [name_analyst(state) for state in ["fine", *STATES]]
    with PostgresServer(write(folder, names), "--console", "127.0.0.1:0") as running:
        for name in names:
            make_token(running.policy, name)
        yield running


def bring_about(server: PostgresServer, state: str) -> None:
    """Bring an analyst's right into a state."""
    name, tokens = name_analyst(state), TokenFile(server.policy)
    if state == "paused":
        tokens.pause(name, "a test")
    elif state == "ended":
        past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat(timespec="seconds")
        with tokens._writing() as records:
            records[name] = replace(records[name], expires=past)
    elif state == "removed":
        tokens.remove(name)
    elif state == "rotated":
        tokens.rotate(name)
    elif state == "no share":
        write(server.policy.parent, [name_analyst(one) for one in ["fine", *STATES] if one != state])
        take_policy(server)


def take_policy(server: PostgresServer) -> None:
    """Let the server read its policy again, as its owner does."""
    assert main(["ledger", "adopt", "--policy", str(server.policy)]) == 0

    def count() -> int:
        return sum(line["event"] == "policy taken" for line in server.events)

    taken = count()
    server.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + 60
    while count() == taken:
        assert time.monotonic() < end, server.events[-3:]
        time.sleep(0.05)


# -- PostgreSQL ------------------------------------------------------------------------------------------------------------

Prepare = list[bytes]
MESSAGES: dict[bytes, tuple[Prepare, bytes]] = {
    b"Q": ([], query(COUNT)),
    b"P": ([], parse(COUNT, "x")),
    b"B": ([parse(COUNT, "s"), SYNC], bind(name="s", portal="x")),
    b"D": ([parse(COUNT, "s"), SYNC], describe("S", "s")),
    b"E": ([], parse(COUNT) + bind() + execute()),
    b"C": ([parse(COUNT, "s"), SYNC], message(b"C", b"S", text("s"))),
    b"H": ([], message(b"H")),
    b"S": ([], b""),
}
"""How each message comes about: what is sent while the right holds, and what is sent then."""
OPEN_PORTAL: Prepare = [
    query("BEGIN"),
    parse("SELECT * FROM wards", "s") + bind(name="s", portal="p") + execute("p", 1),
    SYNC,
]


def prepare(server: PostgresServer, analyst: str, sent: Prepare) -> BarePostgres:
    client = server.open(analyst)
    at = 0
    while at < len(sent):
        parts = [sent[at]]
        if at + 1 < len(sent) and sent[at + 1] == SYNC:
            parts.append(SYNC)
        came = client.ask(*parts)
        assert not read_error(came), came
        at += len(parts)
    return client


def test_every_message_of_postgresql_is_listed() -> None:
    assert set(MESSAGES) == set(HANDLERS)


COUNTED = (b"Q", b"D", b"E")
"""Messages that count as a request."""


def judge_postgres(state: str, kind: bytes, came: list[tuple[bytes, bytes]]) -> None:
    """Check what comes to a message under a state."""
    error = read_error(came)
    if state in FINAL:
        assert error["S"] == "FATAL", (kind, came)
        assert error["C"] == ("28000" if state == "no share" and "share" in error["M"] else "57P01"), came
        assert came[-1][0] == b"E", "the session ends"
    elif state == "paused" and kind not in _LETTING_GO:
        assert (error["S"], error["C"]) == ("ERROR", "28000"), (kind, came)
        assert "paused" in error["M"]
    elif state == "too many" and kind in COUNTED:
        assert (error["S"], error["C"]) == ("ERROR", "53400"), (kind, came)
    else:
        assert not error, (kind, came)
    if state not in FINAL:
        assert came[-1][0] == b"Z", "the session goes on"


# A request to cancel comes in a connection of its own and is no message. Nothing is said to it under any state. It stops only the
# analyst's own statement, so a pause and a limit do not forbid it; the end of a right has stopped everything already.
CANCELS = {Lapse.PAUSED: True, Lapse.TOO_MANY: True, Lapse.ENDED: False, Lapse.NO_SHARE: False}
"""Whether a request to cancel stops something once a right has lapsed."""


def ask_to_cancel(server: PostgresServer, key: bytes) -> bytes:
    """Ask for the end of a statement, and return what is said to that."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as asker:
        asker.sendall(struct.pack(">ii", 16, 80877102) + key)
        return asker.recv(10)


@pytest.mark.parametrize("lapse", [None, *CANCELS])
def test_a_request_to_cancel_asks_the_right(lapse: Lapse | None) -> None:
    stopped: list[str] = []

    def check(letting_go: bool) -> None:
        if lapse is not None and not (CANCELS[lapse] and letting_go):
            raise RightError(lapse)

    def interrupt(handle: str) -> bool:
        stopped.append(handle)
        return True

    connection = SimpleNamespace(
        _right=SimpleNamespace(check=check), _key=(7, b"1234"), _queue=SimpleNamespace(interrupt=interrupt),
        _record=SimpleNamespace(handle="own"),
    )  # fmt: skip
    assert not PostgresConnection.cancel(cast("PostgresConnection", connection), b"4321")
    assert not stopped
    allowed = lapse is None or CANCELS[lapse]
    assert PostgresConnection.cancel(cast("PostgresConnection", connection), b"1234") is allowed
    assert stopped == ["own"] * allowed


def test_every_lapse_is_listed_for_a_request_to_cancel() -> None:
    assert {*CANCELS, Lapse.TOO_LARGE} == {*Lapse}


# -- the owner's page ------------------------------------------------------------------------------------------------------

PAGES = {
    "/": 303,
    "/enter": 403,
    "/console.css": 200,
    "/console.js": 200,
    "/policy/{policy}/": 200,
    "/policy/{policy}/{part}": 200,
}
"""The owner's pages, and what comes of them with the owner's cookie: a link works once.

They ask no analyst's right, for they are the owner's: the one-time link that the server prints opens them, and nothing of an
analyst's does, in any state. They only show; no method but GET and HEAD is taken up.
"""


def test_every_page_of_the_owners_is_listed() -> None:
    nothing: Any = None
    pages = make_app({"host": ""}, nothing).routes
    figures = make_metrics_app(nothing, "").routes
    assert {route.path for route in cast("list[Any]", pages)} == {*PAGES}
    assert {route.path for route in cast("list[Any]", figures)} == {"/metrics", "/healthz"}
    assert all(route.methods <= {"GET", "HEAD"} for route in cast("list[Any]", [*pages, *figures]))


def ask_page(address: str, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(address, timeout=90)
    connection.request(method, path, headers=headers)
    reply = connection.getresponse()
    reply.read()
    connection.close()
    return reply


@pytest.fixture(scope="module")
def owner(server: PostgresServer) -> tuple[str, str]:
    """Open the owner's link, and return the page's address and the cookie."""
    assert server.process.stdout is not None
    found = re.match(r"console at http://([^/]+)(/enter\?key=\S+)", server.process.stdout.readline())
    assert found is not None
    reply = ask_page(found[1], found[2])
    assert reply.status == 200
    return found[1], str(reply.headers["set-cookie"]).partition(";")[0]


def judge_console(owner: tuple[str, str], token: str) -> None:
    """Check that the owner's pages open by the owner's link alone."""
    address, cookie = owner
    (place,) = [ask_page(address, "/", Cookie=cookie).headers["location"]]
    for page, expected in PAGES.items():
        path = page.replace("/policy/{policy}/", place).replace("{part}", "live")
        assert ask_page(address, path, Cookie=cookie).status == expected, page
        assert ask_page(address, path, "POST", Cookie=cookie).status == 405
        for given in (
            {"Authorization": f"Bearer {token}"},
            {"Cookie": f"dpsql-console={token}"},
            {"Authorization": f"Bearer {token}", "Cookie": cookie[:-1]},
        ):
            assert ask_page(address, path, **given).status == 403, page
    assert ask_page(address, f"/enter?key={token}").status == 403


# -- Flight ----------------------------------------------------------------------------------------------------------------

ASK = flight.FlightDescriptor.for_command(pack_message("CommandStatementQuery", query=COUNT))


def call(client: flight.FlightClient, method: str, options: flight.FlightCallOptions) -> Any:
    """Do a call of Flight, whatever comes of it."""
    if method == "do_get":
        return client.do_get(flight.Ticket(pack_message("CommandGetCatalogs")), options).read_all()
    if method == "list_actions":
        return list(client.list_actions(options))
    if method == "list_flights":
        return list(client.list_flights(b"", options))
    if method in ("get_flight_info", "get_schema"):
        return getattr(client, method)(ASK, options)
    if method == "do_put":
        command = pack_message("CommandPreparedStatementQuery", prepared_statement_handle=b"x" * 40)
        schema = pa.schema([("a", pa.int64())])
        writer, reader = client.do_put(flight.FlightDescriptor.for_command(command), schema, options)
        with writer:
            writer.write_batch(pa.record_batch([[1]], schema=schema))
            writer.done_writing()
            return reader.read()
    if method == "do_exchange":
        writer, reader = client.do_exchange(ASK, options)
        with writer:
            writer.done_writing()
            return reader.read_chunk()
    raise AssertionError(f"{method} is listed nowhere")


def list_calls() -> list[str]:
    """Return the calls of Flight that the front answers."""
    return sorted(
        name for name in vars(Front) if not name.startswith("_") and hasattr(flight.FlightServerBase, name)
    )


def list_actions() -> list[str]:
    """Return all actions: the front's own, those of workers, and those of Flight SQL."""
    return [f"dpsql.{name}" for name in [*OWN_ACTIONS, *client_session.OPERATIONS]] + list(ACTIONS)


def test_every_call_of_flight_is_listed() -> None:
    served = {name for name in vars(flight.FlightServerBase) if not name.startswith("_")}
    ours = {"port", "run", "serve", "serve_with_handler", "shutdown", "wait"}
    assert served - ours == {*list_calls()}


UNCOUNTED = {"dpsql.interrupt", "list_actions", "list_flights", "do_exchange", "handshake"}
"""What does not count as a request: it stops something, or asks nothing."""
KINDS: dict[str, type[Exception]] = {
    "paused": flight.FlightUnauthorizedError, "ended": flight.FlightUnauthenticatedError,
    "removed": flight.FlightUnauthenticatedError, "rotated": flight.FlightUnauthenticatedError,
    "no share": flight.FlightUnauthorizedError, "too many": flight.FlightUnavailableError,
}  # fmt: skip


def judge_flight(state: str, name: str, error: Exception | None) -> None:
    expected = KINDS.get(state)
    if state == "too many" and name in UNCOUNTED:
        expected = None
    if expected is None:
        assert not isinstance(error, (*KINDS.values(),)), (name, error)
    else:
        assert type(error) is expected, (state, name, error)


@pytest.mark.parametrize("state", ["fine", *STATES])
def test_every_operation_of_every_protocol_asks_the_right(
    server: PostgresServer, owner: tuple[str, str], state: str
) -> None:
    analyst = name_analyst(state)
    token = make_token(server.policy, analyst)
    opened = {kind: prepare(server, analyst, sent) for kind, (sent, _) in MESSAGES.items()}
    fetching = prepare(server, analyst, OPEN_PORTAL)
    waiting = prepare(server, analyst, [])
    inside = BareClient(server.url, token)
    headers = [(b"authorization", b"Bearer " + token.encode()), (b"dpsql-session", inside.session.encode())]
    options = flight.FlightCallOptions(headers=headers, timeout=60)
    before = count_charges(server, analyst)
    bring_about(server, state)

    def exhaust() -> None:
        """Ask until no request is left in this minute."""
        if state == "too many":
            for _ in range(2000):
                try:
                    call(inside.flight, "get_flight_info", options)
                except flight.FlightUnavailableError:
                    return
            raise AssertionError("requests are not counted")

    for kind, (needed, sent) in MESSAGES.items():
        for _ in range(5):  # a request may become free meanwhile
            exhaust()
            came = opened[kind].ask(sent, SYNC)
            if state != "too many" or kind not in COUNTED or read_error(came):
                break
            opened[kind].close()
            opened[kind], before = prepare(server, analyst, needed), count_charges(server, analyst)
        judge_postgres(state, kind, came)
    judge_postgres(state, b"F" if state != "too many" else b"S", fetching.ask(execute("p", 1), SYNC))
    assert ask_to_cancel(server, waiting.key) == b""
    judge_postgres(state, b"S", waiting.ask(SYNC))
    judge_console(owner, token)
    for client in [*opened.values(), fetching, waiting]:
        client.close()
    with suppress(PermissionError):
        server.open(analyst, token).close()
        assert state in ("fine", "too many")

    tried: dict[str, Callable[[], object]] = {
        name: lambda name=name: call(inside.flight, name, options)
        for name in list_calls()
        if name != "do_action"
    }  # type: ignore[misc]
    for action in list_actions():
        if action in ("dpsql.close",):
            continue
        body = encode(Message({"protocol": 0})) if action.startswith("dpsql.") else b""
        tried[action] = lambda action=action, body=body: list(  # type: ignore[misc]
            inside.flight.do_action(flight.Action(action, body), options)
        )
    tried["dpsql.close"] = lambda: list(
        inside.flight.do_action(flight.Action("dpsql.close", encode(Message({}))), options)
    )
    tried["handshake"] = lambda: shake_hands(server.url, f"Bearer {token}")
    for name, attempt in tried.items():
        error: Exception | None = None
        for _ in range(5):  # a request may become free meanwhile
            exhaust()
            try:
                found, error = attempt(), None
            except Exception as caught:
                error = caught
            # what has become free may fail for a reason of its own
            refused = isinstance(error, KINDS["too many"])
            if state != "too many" or refused or name in UNCOUNTED or name == "get_schema":
                break
        if name == "get_schema" and state != "fine":  # it alone tells nothing to those without a right
            assert error is None or state == "too many"
            assert error is not None or not len(found.schema)  # type: ignore[attr-defined]
            continue
        judge_flight(state, name, error)
    inside.flight.close()
    if state != "fine":
        assert count_charges(server, analyst) == before


def count_charges(server: PostgresServer, analyst: str) -> int:
    return sum(line["event"] == "charge" and line["analyst"] == analyst for line in server.events)


def test_an_idle_session_ends_with_its_token(server: PostgresServer) -> None:
    tokens = TokenFile(server.policy)
    name = name_analyst("fine")
    held = next(record for record in tokens.list() if record.name == name)
    client = server.open(name)
    assert read_rows(client.ask(query("SELECT 1 AS a"))) == [[b"1"]]
    with tokens._writing() as records:
        records[name] = replace(held, expires=(datetime.now(UTC) + timedelta(seconds=2)).isoformat())
    try:
        kind, body = client.receive()  # nothing is asked
        assert kind == b"E"
        assert b"SFATAL\0" in body
        assert b"C57P01\0" in body
        with pytest.raises((EOFError, ConnectionError)):
            client.receive()
    finally:
        with tokens._writing() as records:
            records[name] = held
        client.close()


def test_outcomes_are_told_in_the_same_words(server: PostgresServer) -> None:
    """Of both protocols: what was charged is released, a mistake is public and no failure, and who is paused is refused."""
    name = name_analyst("fine")
    client, inside = server.open(name), BareClient(server.url, make_token(server.policy, name))
    texts = [
        "SELECT COUNT(*) AS n FROM visits WHERE cost < {}",
        "SELEC {}",
        "SELECT city FROM visits WHERE cost < {}",
    ]
    for number, asked in enumerate(texts):
        client.ask(query(asked.format(400 + number)))
        inside.run(asked.format(410 + number))
    client.close()
    inside.flight.close()

    def list_outcomes(operation: str) -> list[str]:
        lines = [line for line in server.events if line["event"] == "answer" and line["analyst"] == name]
        return [line["outcome"] for line in lines if line["operation"] == operation][-3:]

    for operation in ("postgres_run", "run"):
        assert list_outcomes(operation) == ["released", "public", "public"]


def test_a_lower_share_holds_for_open_sessions(server: PostgresServer) -> None:
    """A policy that is read again: both protocols refuse what the new share has no room for."""
    name = name_analyst("fine")
    client, inside = server.open(name), BareClient(server.url, make_token(server.policy, name))
    asked = "SELECT WITH DP OPTIONS (epsilon = {}) COUNT(*) AS n FROM visits WHERE cost < {}"
    assert not read_error(client.ask(query(asked.format(1, 100))))
    shares = {name_analyst(one): 1.5 if one == "fine" else 100.0 for one in ["fine", *STATES]}
    write_policy(server.policy.parent, shares, LIMITS)
    take_policy(server)
    assert read_error(client.ask(query(asked.format(2, 200))))["C"] == "53400"
    assert inside.run(asked.format(2, 300)).messages[-1].head["class"] == "BudgetExceeded"
    client.close()
    inside.flight.close()


def test_overruns_pause_open_sessions(tmp_path: Path) -> None:
    """Of seventy statements that take longer than the last answer time, the first twenty are answered, or few more.

    They are asked one after another in an open session, and together in one message.
    """
    write_data(tmp_path)
    policy = write_policy(
        tmp_path, {"ada": 100, "bob": 100}, "answer_times = [0.001]\nmax_requests_per_minute = 6000"
    )

    def ask(number: int) -> str:
        return f"SELECT WITH DP OPTIONS (epsilon = 0.01) COUNT(*) AS n FROM visits WHERE cost < {number}"

    with PostgresServer(policy) as server:
        client = server.open("ada")
        errors = [read_error(client.ask(query(ask(number)))) for number in range(70)]
        refused = [error for error in errors if error]
        assert 20 <= 70 - len(refused) < 40
        assert {error["C"] for error in refused} == {"28000"}
        assert not any(errors[: 70 - len(refused)]), "who is paused stays so"
        together = server.open("bob")
        came = together.ask(query("; ".join(map(ask, range(70, 140)))))  # none is a stored answer of ada's
        assert 20 <= sum(kind == b"C" for kind, _ in came) < 70
        assert read_error(came)["C"] == "57014"
        assert "paused" in read_error(came)["M"]
        assert read_error(together.ask(query(ask(99))))["C"] == "28000"
        client.close()
        together.close()


# -- while a statement runs ------------------------------------------------------------------------------------------------


class Rights:
    """A right that a test lets lapse."""

    def __init__(self) -> None:
        self.lapse: Lapse | None = None

    def __call__(self, mark: str, letting_go: bool) -> None:
        if self.lapse is not None and not (self.lapse is Lapse.PAUSED and letting_go):
            raise RightError(self.lapse)


@pytest.mark.parametrize("lapse", [Lapse.PAUSED, Lapse.ENDED, Lapse.NO_SHARE])
def test_nothing_more_is_paid_without_a_right(lapse: Lapse) -> None:
    """What was paid is settled; a pause lets it be told, and an end does not."""
    rights, answers = Rights(), []

    def script(side: ScriptedSide, frame: Message) -> None:
        number = side.pay(EVENT)
        assert number is not None
        side.touch()
        rights.lapse = lapse
        side.settle(number, EVENT)
        answers.append(side.ask("reserve", event=EVENT, text="SELECT").head)
        side.reply(kind="end")

    with ScriptedQueue(script, "answer_times = [0.05]") as made:
        made.queue._ask_right = rights
        if lapse is Lapse.PAUSED:
            assert made.ask()[-1].head["kind"] == "end"
        else:
            with pytest.raises(RightError) as caught:
                made.ask()
            assert caught.value.lapse is lapse
        assert made.waits, "it waits for its public time in both cases"
        assert answers[0]["class"] == "Interrupted"
        assert made.outcomes() == ["released"]
        with pytest.raises(RightError):
            made.ask()


@pytest.mark.parametrize("method", sorted(_CALLS))
def test_calls_of_a_worker_that_charge_ask_the_right(method: str) -> None:
    rights, answers = Rights(), []

    def script(side: ScriptedSide, frame: Message) -> None:
        rights.lapse = Lapse.PAUSED
        answers.append(side.ask(method, event=EVENT, text="SELECT", shown={}).head)
        side.reply(kind="end")

    with ScriptedQueue(script) as made:
        made.queue._ask_right = rights
        made.ask()
        refused = "paused" in str(answers[0].get("message", ""))
        assert refused == (method in PAYING_CALLS)
        assert not [outcome for outcome in made.outcomes() if outcome != "refused"]


def test_a_request_that_waits_asks_again_at_its_turn() -> None:
    rights, asked = Rights(), []

    def script(side: ScriptedSide, frame: Message) -> None:
        asked.append(frame)
        side.reply(kind="end")

    with ScriptedQueue(script) as made:
        made.queue._ask_right = rights
        made.ask()
        rights.lapse = Lapse.PAUSED
        with pytest.raises(RightError):
            made.ask()
        assert len(asked) == 1
