"""The grid of answer times, with a clock that only moves when somebody sleeps or works."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from fractions import Fraction

import pytest

from dpsql.server import calls, queues
from dpsql.server.calls import AnswerClock, AnswerTimes
from tests.support.scripted_worker import ScriptedQueue, ScriptedSide

GRID = AnswerTimes.of((Fraction(1, 4), Fraction(1, 2), Fraction(1)))
LEAD = GRID.lead


class FakeTime:
    """A stand-in for the module ``time``."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(calls, "time", fake)
    monkeypatch.setattr(
        calls.AnswerClock, "_given_up", property(lambda self: fake, lambda self, event: None), raising=False
    )
    return fake


def test_the_grid_doubles_beyond_its_end() -> None:
    asked = [0, 0.25, 0.2501, 0.5, 0.7, 1, 1.1, 2.1, 4.01, 100]
    assert [GRID.find_next(at) for at in asked] == [0.25, 0.25, 0.5, 0.5, 1, 1, 2, 4, 8, 128]


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.2, 0.224])
def test_replies_of_a_step_leave_at_one_time(clock: FakeTime, seconds: float) -> None:
    timed = AnswerClock(GRID)
    timed.touch()
    clock.now += seconds
    timed.wait_for_ledger()
    assert clock.now == pytest.approx(1000.25 - LEAD), "the ledger is written at a time that tells nothing"
    clock.now += LEAD / 2  # post-processing
    timed.wait_for_reply()
    assert clock.now == pytest.approx(1000.25)


def test_what_is_not_done_ahead_of_a_time_takes_the_next_one(clock: FakeTime) -> None:
    timed = AnswerClock(GRID)
    timed.touch()
    clock.now += 0.25 - LEAD / 2
    timed.wait_for_reply()
    assert clock.now == pytest.approx(1000.5)


def test_slow_postprocessing_leaves_at_multiples_of_the_lead(clock: FakeTime) -> None:
    timed = AnswerClock(GRID)
    timed.touch()
    timed.wait_for_ledger()
    clock.now += LEAD * 4.3
    timed.wait_for_reply()
    late = (clock.now - 1000.25) / LEAD
    assert late == pytest.approx(round(late))
    assert round(late) == 4


@pytest.mark.parametrize("seconds", [0.0, 0.06, 0.224])
def test_the_data_are_opened_until_a_time_that_tells_nothing(clock: FakeTime, seconds: float) -> None:
    timed = AnswerClock(GRID)
    clock.now += seconds
    timed.wait_for_step()
    assert clock.now == pytest.approx(1000.25 - LEAD)
    timed.wait_for_reply()
    assert clock.now == pytest.approx(1000.25 - LEAD), "nothing else was read"
    timed.touch()
    clock.now += 0.01
    timed.wait_for_reply()
    assert clock.now == pytest.approx(1000.5), "its times count from the request"


def test_what_touches_nothing_leaves_at_once(clock: FakeTime) -> None:
    timed = AnswerClock(GRID)
    clock.now += 0.01
    timed.wait_for_ledger()
    timed.wait_for_reply()
    assert clock.now == pytest.approx(1000.01)


def test_statements_of_a_cell_count_from_the_one_before(clock: FakeTime) -> None:
    """Others see their reservations, so each begins at a time that tells nothing of the one before."""
    timed = AnswerClock(GRID)
    seen = []
    for seconds in (0.11, 0.05, 0.3):
        timed.touch()
        clock.now += seconds
        timed.wait_for_ledger()
        seen.append(clock.now - 1000)
    timed.wait_for_reply()
    assert seen == pytest.approx([0.25 - LEAD, 0.5 - LEAD, 1.0 - LEAD])
    assert clock.now == pytest.approx(1001.0)


def test_a_statement_after_slow_postprocessing_begins_on_the_grid_too(clock: FakeTime) -> None:
    timed = AnswerClock(GRID)
    timed.touch()
    timed.wait_for_ledger()
    clock.now += LEAD * 2.5
    timed.touch()
    steps = (timed.start - 1000.25) / LEAD
    assert steps == pytest.approx(round(steps))


def test_a_killed_worker_is_told_at_the_time_that_was_found_before(clock: FakeTime) -> None:
    timed = AnswerClock(GRID)
    timed.touch()
    clock.now += 0.1
    reply = timed.find_reply_time(clock.now)
    clock.now = timed.find_ledger_time(reply) + 0.003  # the kill came a little late
    timed.touch()
    timed.set_reply_time(reply)
    timed.wait_for_ledger()
    timed.wait_for_reply()
    assert clock.now == pytest.approx(1000.25)


@pytest.mark.parametrize(
    ("ran", "waited", "alone"), [(2, 98, 0.04), (20, 80, 0.4), (90, 0, 2), (0, 0, 2), (0, 7, 0)]
)
def test_load_is_no_work_of_the_statement(clock: FakeTime, ran: int, waited: int, alone: float) -> None:
    times = [(500, 500), (500 + ran, 500 + waited)]
    timed = AnswerClock(GRID)
    timed.read_processor = lambda: times.pop(0)
    timed.touch()
    clock.now += 2.0
    timed.wait_for_reply()
    assert timed.took == [pytest.approx((2 + LEAD, alone + LEAD))]


def test_first_times_are_skipped_and_the_last_one_doubles() -> None:
    assert [GRID.skip(count).times for count in range(5)] == [
        (0.25, 0.5, 1), (0.5, 1), (1,), (2,), (4,)
    ]  # fmt: skip
    assert AnswerTimes(()).skip(1).times == ()


@pytest.mark.parametrize("public", [None, 1003.0])
def test_times_count_from_the_end_of_the_call_that_was_waited_for(
    clock: FakeTime, public: float | None
) -> None:
    timed = AnswerClock(GRID)
    clock.now += 3.0 if public is None else 3.001
    timed.begin_after(public)
    timed.touch()
    clock.now = 1003.23
    timed.wait_for_reply()
    assert timed.took == [pytest.approx((0.23 + LEAD, 0.23 + LEAD))]
    assert clock.now == pytest.approx(1003.5)


def test_without_a_grid_nothing_waits(clock: FakeTime) -> None:
    timed = AnswerClock(AnswerTimes(()))
    timed.touch()
    clock.now += 0.033
    timed.wait_for_step()
    timed.wait_for_ledger()
    timed.set_reply_time(5000.0)
    timed.wait_for_reply()
    assert clock.now == pytest.approx(1000.033)


# -- those who probe times ----------------------------------------------------------------------------------------------


class SimulatedAnalyst:
    """An analyst whose statements take a number of seconds alone, on a machine with so much load."""

    def __init__(self, clock: FakeTime, made: ScriptedQueue) -> None:
        self.clock, self.made = clock, made
        self.times = made.queue.edition.grid

    def ask(self, seconds: float, load: float) -> float:
        """Run a statement; return the seconds until its reply."""
        begun = self.clock.now
        call = self.made.queue.make_call("run", self.made.session.handle)
        processor = [(0, 0), (1000, round(1000 * (load - 1)))]
        call.clock.read_processor = lambda: processor.pop(0)
        call.clock.touch()
        self.clock.now += seconds * load
        call.clock.wait_for_reply()
        self.made.queue._count(call)
        return self.clock.now - begun


def nothing(side: ScriptedSide, frame: object) -> None:
    raise AssertionError("no worker is asked")


@pytest.fixture
def analyst(clock: FakeTime, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedAnalyst]:
    """Return an analyst under the usual times."""
    monkeypatch.setattr(queues, "time", clock)
    with ScriptedQueue(nothing, "answer_times = [0.25, 0.5, 1, 2, 4]") as made:
        yield SimulatedAnalyst(clock, made)


def probe(analyst: SimulatedAnalyst, load: float, aim: float | None = None) -> tuple[int, int]:
    """Let an analyst add as much work as lets half of the statements miss a time; one person's rows decide which half.

    Without ``aim`` it is the first time that is not skipped. The machine has some load. Return how many statements were asked
    within an hour and before the pause, and how many missed the time.
    """
    rng, end = random.Random(load), analyst.clock.now + queues.OVERRUN_SECONDS
    seconds, asked, missed = 0.9 * (aim or 0.1), 0, 0
    while not analyst.made.paused and analyst.clock.now < end:
        expected = aim or analyst.made.queue.grid.times[0]
        late = analyst.ask(seconds * rng.choice([1, 1.2]) / load, load) > expected + LEAD
        asked, missed = asked + 1, missed + late
        seconds *= 0.95 if late else 1.1
    return asked, missed


def test_who_probes_the_last_time_is_paused_with_the_twentieth_miss(analyst: SimulatedAnalyst) -> None:
    asked, missed = probe(analyst, 1, aim=4)
    assert missed == queues.MAX_OVERRUNS
    assert asked < 2 * queues.MAX_OVERRUNS
    assert "longer than the last answer time" in analyst.made.paused[0]


@pytest.mark.parametrize("load", [1, 2, 16])
def test_who_probes_all_times_learns_twenty_misses_of_each(analyst: SimulatedAnalyst, load: float) -> None:
    """Each time is found out anew as the times before it are skipped; what looks like load only lengthens that."""
    begun = analyst.clock.now
    _, missed = probe(analyst, load)
    assert missed <= queues.MAX_OVERRUNS * (len(analyst.times.times) + math.log2(load))
    if load <= 2:
        assert analyst.made.paused
        assert analyst.clock.now < begun + 1200


def test_what_is_not_done_a_lead_before_a_time_has_missed_it(analyst: SimulatedAnalyst) -> None:
    """Its reply takes the next time, so that it tells as much as one that takes longer."""
    seen = [analyst.ask(0.24 if number % 2 else 0.22, 1) for number in range(200)]
    assert max(place for place, at in enumerate(seen) if at < 0.4) < 2 * queues.MAX_OVERRUNS


@pytest.mark.parametrize(("load", "most"), [(1, 0.15), (5, 0.15), (20, 0.15), (5, 1.5), (20, 1.5)])
def test_an_honest_analyst_is_not_paused_on_a_busy_machine(
    analyst: SimulatedAnalyst, load: float, most: float
) -> None:
    """Statements of up to so many seconds alone, one every two seconds for an hour."""
    rng = random.Random(load)
    end = analyst.clock.now + 3600
    while analyst.clock.now < end:
        analyst.ask(rng.uniform(0.02, most), load * rng.uniform(0.7, 1.3))
        analyst.clock.now += 2
    assert not analyst.made.paused
    assert (analyst.ask(0.02, 1) > 0.4) == (load > 1), "quick statements wait longer meanwhile"
    analyst.clock.now += queues.OVERRUN_SECONDS
    assert analyst.ask(0.02, 1) == pytest.approx(0.25), "the times come back"


def test_work_close_to_a_time_tells_little(analyst: SimulatedAnalyst) -> None:
    """Rows that decide whether a statement misses one time are told at most twenty times an hour, and cost no pause."""
    seen = [analyst.ask(0.3 if number % 2 else 0.2, 1) for number in range(200)]
    assert sorted({round(at, 3) for at in seen}) == [0.25, 0.5]
    last = max(place for place, at in enumerate(seen) if at < 0.4)
    assert last < 2 * queues.MAX_OVERRUNS
    assert not analyst.made.paused
