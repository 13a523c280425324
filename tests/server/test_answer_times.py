"""The grid of answer times, with a clock that only moves when somebody sleeps or works."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpsql.server import calls
from dpsql.server.calls import AnswerClock, AnswerTimes

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
        calls.AnswerClock,
        "_given_up",
        property(lambda self: fake, lambda self, event: None),
        raising=False,
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


def test_overruns_are_counted_by_the_last_time_that_is_listed(clock: FakeTime) -> None:
    quick, slow = AnswerClock(GRID), AnswerClock(GRID)
    for timed, seconds in ((quick, 0.9), (slow, 1.1)):
        timed.start = clock.now
        timed.touch()
        clock.now += seconds
        timed.wait_for_reply()
    assert (quick.overruns, slow.overruns) == (0, 1)


@pytest.mark.parametrize(("ran", "waited", "overruns"), [(10, 90, 0), (90, 10, 1), (0, 0, 1)])
def test_load_alone_makes_no_overrun(clock: FakeTime, ran: int, waited: int, overruns: int) -> None:
    times = [(500, 500), (500 + ran, 500 + waited)]
    timed = AnswerClock(GRID)
    timed.read_processor = lambda: times.pop(0)
    timed.touch()
    clock.now += 2.0
    timed.wait_for_reply()
    assert timed.overruns == overruns


def test_waiting_in_the_queue_is_no_overrun(clock: FakeTime) -> None:
    timed = AnswerClock(GRID)
    clock.now += 3.0
    timed.begin_work()
    timed.touch()
    clock.now += 0.5
    timed.wait_for_reply()
    assert not timed.overruns
    assert clock.now == pytest.approx(1004.0), "the times of the grid count from the request"


def test_without_a_grid_nothing_waits(clock: FakeTime) -> None:
    timed = AnswerClock(AnswerTimes(()))
    timed.touch()
    clock.now += 0.033
    timed.wait_for_step()
    timed.wait_for_ledger()
    timed.set_reply_time(5000.0)
    timed.wait_for_reply()
    assert clock.now == pytest.approx(1000.033)
    assert not timed.overruns
