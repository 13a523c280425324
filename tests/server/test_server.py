"""A server in a process of its own, real sockets, real workers: what an analyst and an owner see of it."""

from __future__ import annotations

import datetime
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.flight as flight
import pytest

import dpsql
from dpsql.cli import main
from dpsql.client.wire import Message, decode
from dpsql.ledger.ledger import Ledger
from dpsql.privacy.periods import list_periods
from dpsql.server.analyst_tokens import TokenFile
from tests.support import nights
from tests.support.postgres import PostgresServer, query, read_error, read_rows
from tests.support.served import (
    FIRST_STEP,
    BareClient,
    Reply,
    ServerProcess,
    try_until,
    write_data,
    write_policy,
)

pytestmark = pytest.mark.timeout(600)
SLOW = "SELECT ward, MEDIAN(cost) AS m FROM visits GROUP BY ward"
"""Takes half a second on the data of ``slow``."""
LEAD = 0.025
"""Seconds by which the ledger is written before an answer leaves, under the usual grid."""


@pytest.fixture
def ada(server: ServerProcess) -> Iterator[BareClient]:
    with server.connect("ada") as client:
        yield client
        client.act("close", {})


@pytest.fixture
def bob(server: ServerProcess) -> Iterator[BareClient]:
    with server.connect("bob") as client:
        yield client
        client.act("close", {})


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with the usual grid, over more rows."""
    made = tmp_path_factory.mktemp("slow")
    write_data(made, 600_000)
    policy = write_policy(made, {"ada": 300, "bob": 300}, "max_requests_per_minute = 100000")
    with ServerProcess(policy) as running:
        yield running


def in_thread(client: BareClient, text: str) -> tuple[threading.Thread, list[Any]]:
    """Ask in another thread; what came is in the list in the end."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(client.run(text, fresh=True)))
    thread.start()
    return thread, found


def wait_until_reading(client: BareClient, text: str) -> tuple[threading.Thread, list[Any], float]:
    """Ask in another thread, and return once the server says that data are read, and when the request was sent."""
    found: list[Any] = []
    reading = threading.Event()

    def ask() -> None:
        for message in client.stream("run", {"text": text, "fresh": True}):
            reading.set()
            found.append((message, time.monotonic()))

    thread = threading.Thread(target=ask)
    begun = time.monotonic()
    thread.start()
    assert reading.wait(30)
    return thread, found, begun


def disturb_while_reading(
    client: BareClient, text: str, disturb: Callable[[], object]
) -> tuple[Message, float]:
    """Ask until what is done meanwhile comes before the answer; return the error, and after how many seconds it came."""

    def ask() -> tuple[Message, float]:
        thread, found, begun = wait_until_reading(client, text)
        disturb()
        thread.join()
        return found[-1][0], found[-1][1] - begun

    return try_until(ask, lambda came: came[0].head["kind"] == "error")


def charged(server: ServerProcess) -> list[Any]:
    """Return the entries of the ledger, as its owner reads them."""
    with Ledger.read(server.policy.with_name("clinic.toml.ledger")) as ledger:
        return ledger.entries()


# -- statements ---------------------------------------------------------------------------------------------------------


def test_one_statement(ada: BareClient, server: ServerProcess) -> None:
    reply = ada.run("SELECT COUNT(*) AS n FROM visits")
    assert [kind for kind in reply.kinds if kind != "stage"] == ["result", "end"]
    (result,) = reply.results
    assert abs(result.fetchall()[0][0] - 5000) < 1000
    assert result.loss == "ε=0.1"
    assert "ada" in result.cost_line
    line = server.wait_for("answer", analyst="ada", operation="run", outcome="released")
    assert "SELECT" not in str(line)


def test_who_asks_is_what_the_token_says(ada: BareClient, bob: BareClient, server: ServerProcess) -> None:
    ada.run("SELECT COUNT(*) AS n FROM visits WHERE ward = 'A'", fresh=True).raise_error()
    bob.run("SELECT COUNT(*) AS n FROM visits WHERE ward = 'B'", fresh=True, analyst="ada").raise_error()
    who = {entry.text.rpartition("= ")[2]: entry.analyst for entry in charged(server) if "ward" in entry.text}
    assert who == {"'A'": "ada", "'B'": "bob"}
    assert ada.opened["analyst"] == "ada"
    assert bob.opened["analyst"] == "bob"


def test_a_session_is_of_one_analyst(ada: BareClient, bob: BareClient) -> None:
    ada.run("out << SELECT COUNT(*) AS n FROM visits").raise_error()
    ours, bob.session = bob.session, ada.session
    with pytest.raises(flight.FlightServerError, match="no such session"):
        bob.run("SELECT n FROM out")
    bob.session = ours
    with pytest.raises(dpsql.BindError):
        bob.run("SELECT n FROM out").raise_error()
    assert ada.run("SELECT n FROM out").results


def test_nothing_of_the_owner_is_in_what_opens_a_session(ada: BareClient, data: Path) -> None:
    said = str(ada.opened)
    assert "parquet" not in said
    assert "bob" not in said
    assert str(data) not in said
    policy = dpsql.Policy.loads(ada.opened["policy"])
    assert list(policy.tables) == ["visits", "wards"]
    assert list(policy.analysts) == ["ada"]


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.stochastic)])
def test_what_is_explained_costs_nothing(ada: BareClient, server: ServerProcess, count: int) -> None:
    before = len(charged(server))
    for number in range(count):
        said = ada.act("explain", {"text": f"SELECT COUNT(*) AS n FROM visits WHERE cost > {number}"})
        assert said.kinds == ["value", "end"]
    assert len(charged(server)) == before


def test_the_fronts_modules(folder: Path) -> None:
    """The front opens no data and parses nothing, as what it has imported when it ends tells."""
    policy = write_policy(folder, {"ada": 1}, "answer_times = []")
    runner = folder / "run.py"
    runner.write_text(
        "import sys\nfrom dpsql.cli import main\nstatus = main(sys.argv[1:])\n"
        "print('modules', [name for name in ('duckdb', 'sqlglot', 'IPython') if name in sys.modules], status)\n"
    )
    import sys

    with ServerProcess(policy, command=[sys.executable, str(runner)]) as running:
        with running.connect("ada") as client:
            client.run("SELECT COUNT(*) AS n FROM visits").raise_error()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.stdout is not None
        assert running.process.stdout.readline() == "modules [] 0\n"


# -- stopping -----------------------------------------------------------------------------------------------------------


def test_a_stop_before_the_payment_costs_nothing(slow: ServerProcess) -> None:
    """The second of two requests waits for its turn, and is stopped there."""
    with slow.connect("ada") as first, slow.connect("ada") as second:
        numbers = itertools.count(9)

        def ask() -> tuple[str, Message, Message]:
            text = f"SELECT COUNT(*) AS n FROM visits WHERE cost > {next(numbers)}"
            thread, found, _ = wait_until_reading(first, SLOW)
            waiting, refused = in_thread(second, text)
            while waiting.is_alive() and not second.interrupt():
                time.sleep(0.01)
            waiting.join()
            thread.join()
            return text, refused[0].messages[-1], found[-1][0]

        text, refused, told = try_until(ask, lambda came: came[1].head["kind"] == "error")
        assert refused.head["message"].endswith("nothing was charged.")
        assert told.head["kind"] == "end"
        entries = charged(slow)
        assert text not in [entry.text for entry in entries]
        assert entries[-1].text == SLOW
        first.act("close", {})
        second.act("close", {})


def test_nothing_is_stopped_where_nothing_runs(ada: BareClient) -> None:
    assert not ada.interrupt()
    assert ada.run("SELECT 1 AS x").results[0].fetchall() == [(1,)]


# -- the grid -----------------------------------------------------------------------------------------------------------


# Here is what can be seen from outside on any machine: nothing comes before its time, and what need not wait has not waited at
# least once. That it comes at a time of the grid is tested with clocks of their own: test_answer_times.py, test_queues.py.


def wait_for_none(ask: Callable[[], Reply]) -> None:
    """Check that a reply waits for no time of the grid."""
    try_until(ask, lambda reply: reply.times[-1] < FIRST_STEP)


def test_answers_leave_at_public_times(slow: ServerProcess) -> None:
    with slow.connect("ada") as client:
        for text in (
            "SELECT COUNT(*) AS n FROM visits",
            "SELECT SUM(cost) AS s FROM visits WHERE city LIKE '%e%'",
            SLOW,
        ):
            reply = try_until(
                lambda text=text: client.run(text, fresh=True).raise_error(),  # type: ignore[misc]
                lambda reply: reply.times[0] < reply.times[-1] - 0.02,  # the stage is told at once
            )
            assert reply.times[-1] >= FIRST_STEP
        client.act("close", {})


def test_what_reads_nothing_leaves_at_once(slow: ServerProcess) -> None:
    with slow.connect("ada") as client:
        text = "SELECT COUNT(*) AS n FROM visits WHERE cost > 1"
        client.run(text).raise_error()
        for ask in (
            lambda: client.run(text),  # stored
            lambda: client.run("SHOW BUDGET"),
            lambda: client.run("SELECT 1 AS x"),
            lambda: client.act("explain", {"text": text}),
            lambda: client.run("SELEC"),
            lambda: client.run("SELECT cost FROM visits"),
        ):
            wait_for_none(ask)
        client.act("close", {})


def test_a_further_session_is_opened_until_a_public_time(slow: ServerProcess) -> None:
    """The time it takes to open the data for it may tell about one damaged value."""
    with slow.connect("ada") as first:
        first.act("budget", {})
        with slow.connect("ada") as second:
            assert second.act("budget", {}).times[-1] >= FIRST_STEP - LEAD
            wait_for_none(lambda: second.act("budget", {}))
            second.act("close", {})
        first.act("close", {})


def test_statements_of_a_cell_are_paid_on_the_grid(slow: ServerProcess) -> None:
    """Others see when the second one is reserved: that must not tell how long the first one took."""
    with slow.connect("ada") as client:
        client.run("SELECT COUNT(*) AS n FROM visits", fresh=True).raise_error()
        cell = "; ".join(f"SELECT COUNT(*) AS n FROM visits WHERE cost > {i}" for i in (1, 2, 3))
        reply = client.run(cell, fresh=True)
        assert reply.kinds == ["stage"] * 3 + ["result"] * 3 + ["end"]
        # The next one begins when the one before is settled, shortly before its time.
        assert reply.times[1] >= FIRST_STEP - LEAD, reply.times
        assert reply.times[2] >= 2 * FIRST_STEP - LEAD, reply.times
        assert reply.times[-1] >= 3 * FIRST_STEP, reply.times
        client.act("close", {})


# -- ends ---------------------------------------------------------------------------------------------------------------


def test_a_worker_that_dies_costs_its_statement_and_nothing_else(slow: ServerProcess) -> None:
    with slow.connect("ada") as client:
        client.run("out << SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward").raise_error()
        client.run("DECLARE alarm ABOVE_THRESHOLD 100 OPTIONS (epsilon = 1, max_hits = 3)").raise_error()
        assert client.value("SELECT WITH alarm COUNT(*) AS c FROM visits") is not None
        kept = client.run("SELECT ward, n FROM out ORDER BY ward").results[0].fetchall()

        def kill() -> None:
            for pid in busiest(slow):
                os.kill(pid, signal.SIGKILL)

        message, seconds = disturb_while_reading(client, SLOW, kill)
        assert message.head["class"] == "EngineError"
        assert seconds >= FIRST_STEP
        entries = charged(slow)
        assert entries[-1].outcome in ("interrupted", "failed")
        reply = client.run("SELECT ward, n FROM out ORDER BY ward")
        assert reply.results[0].fetchall() == kept, "what was kept is made again from stored answers"
        assert "alarm" in reply.text()
        assert "closed" in reply.text()
        with pytest.raises(dpsql.Error, match="alarm"):
            client.run("SELECT WITH alarm COUNT(*) AS c FROM visits").raise_error()
        assert len(charged(slow)) == len(entries)
        client.act("close", {})


def busiest(server: ServerProcess) -> list[int]:
    """Return the workers that have used most processor time: a spare one has hardly any."""

    def used(pid: int) -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    workers = sorted(server.workers(), key=used)
    return workers[1:] if len(workers) > 1 else workers


@pytest.mark.parametrize("with_fork_server", [False, True])
def test_a_worker_that_dies_idle_is_not_noticed(
    server: ServerProcess, ada: BareClient, with_fork_server: bool
) -> None:
    ada.run("SELECT COUNT(*) AS n FROM visits").raise_error()
    for pid in [*server.workers(), *(server.fork_servers() if with_fork_server else [])]:
        os.kill(pid, signal.SIGKILL)
    assert ada.run("SELECT COUNT(*) AS n FROM visits").raise_error().results


def test_a_killed_server_leaves_its_charges_and_no_workers(folder: Path) -> None:
    policy = write_policy(folder, {"ada": 10}, "answer_times = [20]")
    first = ServerProcess(policy)
    client = first.connect("ada")
    stream = client.stream("run", {"text": "SELECT COUNT(*) AS n FROM visits"})
    assert next(stream).head["kind"] == "stage"
    workers = [*first.fork_servers(), *first.workers()]
    assert len(workers) > 1
    first.process.kill()
    first.stop()
    with pytest.raises(flight.FlightError):
        list(stream)
    end = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers), "workers end with the front"
    (entry,) = charged(first)
    assert entry.outcome == "unsettled"
    write_policy(folder, {"ada": 10}, "answer_times = []")
    with ServerProcess(policy) as second, second.connect("ada") as again:
        assert "9.9" in str(again.run("SHOW BUDGET").results[0].fetchall())
    assert [entry.outcome for entry in charged(first)] == ["unsettled"]


def test_an_orderly_end_settles_what_runs(folder: Path) -> None:
    policy = write_policy(folder, {"ada": 10}, "answer_times = [6]")  # a stalled worker answers in that
    running = ServerProcess(policy)
    with running.connect("ada") as client:
        client.run("DECLARE alarm ABOVE_THRESHOLD 100 OPTIONS (epsilon = 1, max_hits = 3)").raise_error()
        thread, found, _ = wait_until_reading(client, "SELECT COUNT(*) AS n FROM visits")
        assert running.stop() == 0
        thread.join()
        assert found[-1][0].head["kind"] == "end", "it was done by its answer time"
    assert {entry.outcome for entry in charged(running)} == {"released"}
    assert running.events[-1]["event"] == "end"


# -- tokens -------------------------------------------------------------------------------------------------------------


# -- the wire -----------------------------------------------------------------------------------------------------------


def test_calls_that_are_not_ours_get_one_sentence(server: ServerProcess, ada: BareClient) -> None:
    options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer " + ada.token.encode())])
    descriptor = flight.FlightDescriptor.for_path("x")
    said = set()
    for ask in (
        lambda: list(ada.flight.list_flights(b"x", options)),
        lambda: ada.flight.get_flight_info(descriptor, options),
        lambda: ada.flight.do_get(flight.Ticket(b"x"), options).read_all(),
        lambda: ada.flight.do_get(flight.Ticket(b"\n\x04type"), options).read_all(),
        lambda: list(ada.flight.do_action(flight.Action("x", b""), options)),
    ):
        with pytest.raises(flight.FlightError) as caught:
            ask()
        assert "Traceback" not in str(caught.value)
        said.add(str(caught.value).partition(".")[0])
    assert ada.flight.get_schema(descriptor, options).schema.names == []
    assert said == {"this server answers clients of dpsql and of Flight SQL only"}


def test_what_is_no_message_is_told_so(ada: BareClient) -> None:
    headers = [(b"authorization", b"Bearer " + ada.token.encode()), (b"dpsql-session", ada.session.encode())]
    options = flight.FlightCallOptions(headers=headers)
    for body in (b"", b"\xff" * 9, b"\0\0\0\2\0\0\0\0[]"):
        (reply,) = ada.flight.do_action(flight.Action("dpsql.run", body), options)
        message = decode(reply.body.to_pybytes())
        assert message.head["kind"] == "error"


def test_large_requests_are_refused_unread(ada: BareClient) -> None:
    with pytest.raises(flight.FlightServerError, match="bytes; the server takes"):
        ada.run("SELECT 1 AS x", more="y" * 2_000_000)
    with pytest.raises(dpsql.ParseError, match="the owner allows"):
        ada.run("SELECT 1 AS x -- " + "y" * 200_000).raise_error()


def test_an_older_client_is_told(server: ServerProcess) -> None:
    client = server.connect("ada")
    said = client.act("open", {"protocol": 0}).messages[-1]
    assert "version" in said.head["message"]


# -- releases ---------------------------------------------------------------------------------------------------------


def test_releases_are_read_by_all_and_changed_by_those_who_may(folder: Path) -> None:
    limits = "answer_times = []\nmax_requests_per_minute = 1000000"
    policy = write_policy(folder, {"ada": 300, "bob": 300}, limits)
    policy.write_text(policy.read_text().replace("[analysts.ada]\n", "[analysts.ada]\nreleases = true\n"))
    daily = "CREATE RELEASE daily AS SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
    with PostgresServer(policy) as running, running.connect("ada") as ada, running.connect("bob") as bob:
        made = ada.run(daily).results[0].fetchall()
        assert sorted(bob.run("FROM daily").results[0].fetchall()) == sorted(made)
        with pytest.raises(dpsql.PrivacyError, match="bob may not"):
            bob.run("REFRESH RELEASE daily").raise_error()
        client = running.open("bob")
        tables = client.ask(
            query("SELECT table_name FROM information_schema.tables WHERE table_name = 'daily'")
        )
        assert read_rows(tables) == [[b"daily"]]
        assert sorted(read_rows(client.ask(query("SELECT ward FROM public.daily")))) == [
            [w] for w in (b"A", b"B", b"C", b"D")
        ]
        done = client.ask(query("REFRESH RELEASE daily"))
        assert "may not" in read_error(done)["M"]
        client.socket.close()
        write_data(folder, 2000)
        assert main(["refresh", "--policy", str(policy)]) == 0, "the owner, beside the server"
        now = sorted(bob.run("FROM daily").results[0].fetchall())
        assert now != sorted(made)
        assert ada.run("REFRESH RELEASE daily").results[0].loss == "no charge"
        TokenFile(policy).pause("ada", "a test")
        with pytest.raises(Exception, match="paused"):
            ada.run("REFRESH RELEASE daily").raise_error()
        assert sorted(bob.run("FROM daily").results[0].fetchall()) == now


def test_a_tree_of_growing_totals_is_refreshed_by_the_owner_and_read_by_analysts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three mornings, the last of which is the server's today: whoever refreshes draws one node."""
    today = datetime.date.today()
    monkeypatch.setattr(nights, "FIRST", today - datetime.timedelta(days=4))
    for number in range(4):
        nights.write_day(tmp_path, number)
    budget, _, tables = nights.CLOSED.replace("2024-01-30", str(nights.FIRST)).partition("[tables.visits]")
    limits = "answer_times = []\nmax_requests_per_minute = 1000000"
    policy = write_policy(tmp_path, {"ada": 1e9, "bob": 1e9}, limits, budget, f"[tables.visits]{tables}")
    policy.write_text(policy.read_text().replace("[analysts.ada]\n", "[analysts.ada]\nreleases = true\n"))

    def come_to(days_before: int) -> None:
        monkeypatch.setattr(dpsql.Policy, "today", today - datetime.timedelta(days=days_before))

    come_to(2)
    with dpsql.connect(policy=policy) as owner:
        owner.sql(f"CREATE RELEASE totals AS {nights.TOTALS}")
    with ServerProcess(policy) as running, running.connect("ada") as ada, running.connect("bob") as bob:

        def read() -> list[int]:
            found, mine = (who.run("SELECT t FROM totals ORDER BY day").results[0] for who in (bob, ada))
            assert found.fetchall() == mine.fetchall()
            assert found.cost_line.startswith("no charge")
            return [total for (total,) in found.fetchall()]

        assert read() == [20, 40]
        come_to(1)
        assert main(["refresh", "--policy", str(policy)]) == 0, "the owner, beside the server"
        assert read() == [20, 40, 60]
        with pytest.raises(dpsql.PrivacyError, match="bob may not"):
            bob.run("REFRESH RELEASE totals").raise_error()
        assert ada.run("REFRESH RELEASE totals").results[0].cost_line.startswith("3 days stored, 1 new")
        assert read() == [20, 40, 60, 80]
        come_to(0)
        assert main(["refresh", "--policy", str(policy)]) == 0
        assert bob.run(nights.TOTALS).results[0].cost_line.startswith("4 days stored · no charge")
    with Ledger.read(tmp_path / "clinic.toml.ledger") as ledger:
        paid = [list_periods(entry.event) for entry in ledger.entries() if entry.event is not None]
    places = [[(low - paid[0][0][0], high - paid[0][0][0]) for low, high in days] for days in paid]
    assert places == [[(0, 2)], [(2, 3)], [(0, 4)]]
