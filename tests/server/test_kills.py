"""Workers and servers that are killed, and statements that are stopped, at random moments: the ledger stays right.

Every answer that a client saw was charged, every charge without an answer is in the report, a statement of which a client
was told that it cost nothing is not in the ledger, and the server starts again. The short forms kill a few; ``-m stochastic``
kills 200 workers and 50 servers, and stops 200 statements.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pyarrow.flight as flight
import pytest

from dpsql.server.analyst_tokens import TokenFile
from tests.support.own_process import run_python
from tests.support.served import BareClient, ServerProcess, make_token, read_charged, write_data, write_policy

pytestmark = pytest.mark.timeout(3600)
ANALYSTS = ("ada", "bob", "cyd")
GRID = "answer_times = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6]\nmax_requests_per_minute = 1000000"


def short_and_long(short: int, long: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("count", [short, pytest.param(long, marks=pytest.mark.stochastic)])


class Story:
    """The questions of clients, and what they were told. Each statement is asked once."""

    def __init__(self) -> None:
        self.answered: set[str] = set()
        self.uncharged: set[str] = set()
        self.asked: set[str] = set()
        self.other: list[str] = []
        self._number = 0
        self._lock = threading.Lock()

    def write(self) -> str:
        with self._lock:
            self._number += 1
            text = f"SELECT COUNT(*) AS n FROM visits WHERE cost > {self._number}"
            self.asked.add(text)
        return text

    def ask(self, client: BareClient) -> None:
        """Ask a statement of its own, and note what is told."""
        text = self.write()
        reply = client.run(text, epsilon="0.01")
        end = reply.messages[-1].head
        if end["kind"] == "end":
            assert reply.results[0].shape == (1, 1)
            self.answered.add(text)
        elif "asking again is free" in end["message"]:
            assert client.run(text, epsilon="0.01").results[0].loss == "no charge"
            self.answered.add(text)
        elif "nothing was charged" in end["message"]:
            self.uncharged.add(text)
        else:
            self.other.append(f"{end['class']}: {end['message']}")

    def wait_for_answer(self, seconds: float = 60) -> None:
        """Wait until a further statement is answered; where all workers were just killed, that may take long."""
        told, end = len(self.answered), time.monotonic() + seconds
        while len(self.answered) == told and time.monotonic() < end:
            time.sleep(0.01)

    def check(self, policy: Path) -> dict[str, int]:
        """Compare with the ledger; return how many statements had which outcome."""
        entries, spent = read_charged(policy)
        found: dict[str, str] = {entry.text: entry.outcome for entry in entries}
        assert len(found) == len(entries), "nothing was charged twice"
        assert set(found) <= self.asked
        assert all(found.get(text) == "released" for text in self.answered), "what was seen was charged"
        assert not self.uncharged & set(found), "what was told to cost nothing cost nothing"
        report = run_python("-m", "dpsql.cli", "report", str(policy) + ".ledger", timeout=300)
        assert report.returncode == 0, report.stderr
        assert spent == Fraction(len(entries), 100)
        return {kind: list(found.values()).count(kind) for kind in sorted(set(found.values()))}


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    write_data(tmp_path, 60_000)
    return write_policy(tmp_path, dict.fromkeys(ANALYSTS, 300), GRID)


def keep_asking(
    story: Story, connect: Callable[[], BareClient], enough: threading.Event, resume: Callable[[], object]
) -> None:
    """Ask until it is enough, whatever happens to the server."""
    client: BareClient | None = None
    while not enough.is_set():
        try:
            client = client or connect()
            story.ask(client)
        except flight.FlightUnauthorizedError:
            resume()  # paused after failures past payment
        except (flight.FlightError, OSError):
            client = None
            enough.wait(0.05)


@pytest.fixture
def asking(policy: Path) -> Iterator[Callable[[Story, Callable[[str], BareClient]], Callable[[], None]]]:
    """Let every analyst ask in a thread, until what this returns is called, which waits for them."""
    threads: list[threading.Thread] = []
    enough = threading.Event()

    def end() -> None:
        enough.set()
        for thread in threads:
            thread.join(120)

    def start(story: Story, connect: Callable[[str], BareClient]) -> Callable[[], None]:
        for name in ANALYSTS:
            resume = lambda name=name: TokenFile(policy).resume(name)  # noqa: E731
            given = (story, lambda name=name: connect(name), enough, resume)
            threads.append(threading.Thread(target=keep_asking, args=given))
            threads[-1].start()
        return end

    yield start
    end()


@short_and_long(6, 200)
def test_workers_that_are_killed(policy: Path, asking: Callable[..., Callable[[], None]], count: int) -> None:
    rng, story = random.Random(7), Story()
    with ServerProcess(policy) as running:
        end = asking(story, running.connect)
        killed = 0
        while killed < count:
            story.wait_for_answer()
            time.sleep(rng.uniform(0.0, 0.2))
            for pid in rng.sample(workers, 1) if (workers := running.workers()) else []:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        end()
    seen = story.check(policy)
    print(
        f"\n{killed} workers killed: {len(story.answered)} answered, {len(story.uncharged)} uncharged, ledger {seen}"
    )
    assert story.answered
    assert not [said for said in story.other if not said.startswith(("EngineError", "Error"))], story.other[
        :5
    ]


@short_and_long(2, 50)
def test_servers_that_are_killed(policy: Path, asking: Callable[..., Callable[[], None]], count: int) -> None:
    rng, story = random.Random(8), Story()
    for name in ANALYSTS:
        make_token(policy, name)
    servers = [ServerProcess(policy)]
    end = asking(story, lambda name: servers[-1].connect(name))
    for _ in range(count):
        story.wait_for_answer()
        time.sleep(rng.uniform(0.0, 1.3))
        servers[-1].process.kill()
        servers[-1].stop()
        servers.append(ServerProcess(policy))
    story.wait_for_answer()
    end()
    assert servers[-1].stop() == 0
    seen = story.check(policy)
    print(f"\n{count} servers killed: {len(story.answered)} answered, ledger {seen}")
    assert story.answered


@short_and_long(8, 200)
def test_statements_that_are_stopped(policy: Path, count: int) -> None:
    rng, story = random.Random(9), Story()
    with ServerProcess(policy) as running, running.connect("ada") as client, running.connect("ada") as other:
        other.session = client.session
        client.run("SELECT 1 AS x").raise_error()
        for _ in range(count):
            timer = threading.Timer(rng.uniform(0.0, 0.15), other.interrupt)
            timer.start()
            story.ask(client)
            timer.join()
    seen = story.check(policy)
    told = {said.partition(":")[0] for said in story.other}
    print(
        f"\n{count} stopped: {len(story.answered)} answered, {len(story.uncharged)} uncharged, ledger {seen}"
    )
    assert told <= {"Interrupted"}
    assert len(story.answered) + len(story.uncharged) + len(story.other) == count


def test_the_story_would_tell(policy: Path) -> None:
    story = Story()
    with ServerProcess(policy) as running, running.connect("ada") as client:
        story.ask(client)
    story.check(policy)
    (text,) = story.answered
    for wrong in ("answered", "uncharged"):
        told = Story()
        told.asked = {text}
        getattr(told, wrong).add(text if wrong == "uncharged" else "SELECT 2")
        with pytest.raises(AssertionError):
            told.check(policy)
