"""The front's side of a call, with a worker that follows a script: stops, kills, the grid, pauses, turns and idle ends.

No test compares the clock with what the machine should have done by then: what a call waits for is noted, and a script waits
until what it needs has happened.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dpsql.client.wire import Message
from dpsql.server import calls, queues
from dpsql.server.calls import AnswerTimes
from dpsql.server.frames import mark_left
from dpsql.server.queues import MAX_FAILURES, MAX_OVERRUNS
from dpsql.server.rights import MAX_WAITING, Refused
from tests.support.scripted_worker import EVENT, ScriptedQueue, ScriptedSide

pytestmark = pytest.mark.timeout(600)
Make = Callable[..., ScriptedQueue]
GRID = "answer_times = [0.2, 0.4]\n"
STEPS = AnswerTimes((0.2, 0.4))
LATE_GRID = "answer_times = [1000, 2000]\n"
"""A grid whose first time no stall of the machine reaches."""
NO_GRID = "answer_times = []\n"
LONG = 60
"""Seconds in which anything has happened that will."""
TINY = 1e-4


@pytest.fixture
def make() -> Iterator[Make]:
    """Make a queue that is closed in the end."""
    with ExitStack() as stack:
        yield lambda *given, **named: stack.enter_context(ScriptedQueue(*given, **named))


def answer(
    side: ScriptedSide,
    seconds: float = 0.0,
    event: Any = EVENT,
    outcome: str = "released",
    until: threading.Event | None = None,
) -> None:
    """Pay, read for a while or until something has happened, settle, reply."""
    number = side.pay(event)
    if number is None:
        side.reply(kind="error", message="refused")
        return
    side.touch()
    time.sleep(seconds)
    assert until is None or until.wait(LONG)
    side.settle(number, event, outcome)
    side.reply(kind="end")


def pay_and_hang(side: ScriptedSide, frame: Message) -> None:
    """Pay, and read until it is killed."""
    side.pay(EVENT)
    side.touch()
    side.hang()


def outcomes(made: ScriptedQueue) -> list[str]:
    return made.outcomes()


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def stop_after_touch(made: ScriptedQueue) -> threading.Event:
    """Stop the next call as soon as it reads private data; it must not end before it is stopped.

    Returns:
        Set when it is stopped.
    """
    workers, stopped = len(made.pool.workers), threading.Event()

    def stop() -> None:
        wait_for(lambda: len(made.pool.workers) > workers)
        made.pool.wait_for_touch()
        wait_for(lambda: any(call.clock.touched for call in made.queue._calls))
        made.queue.interrupt(made.session.handle)
        stopped.set()

    threading.Thread(target=stop, daemon=True).start()
    return stopped


def stop_on(made: ScriptedQueue, asked: threading.Event) -> None:
    """Stop the next call once its worker has it."""

    def stop() -> None:
        assert asked.wait(LONG)
        made.queue.interrupt(made.session.handle)

    threading.Thread(target=stop, daemon=True).start()


def check_reply_time(made: ScriptedQueue) -> None:
    """Check that the latest reply left at a time of the grid, the first one for which it was ready.

    Where the machine stalls after that was found, it leaves a whole number of leads later.
    """
    last = made.waits[-1]
    leads = last.until / STEPS.lead
    assert leads == pytest.approx(round(leads), abs=TINY), made.waits
    assert 0.2 - TINY <= last.until <= STEPS.find_next(last.begun) + TINY, made.waits
    assert made.took >= last.until - TINY, "it has waited"


def check_step_time(made: ScriptedQueue) -> None:
    """Check that the latest call has waited once, until shortly before a time of the grid, the first one that was left."""
    (wait,) = made.waits
    lead = STEPS.lead
    assert 0.2 - lead - TINY <= wait.until <= STEPS.find_next(wait.begun + lead) - lead + TINY, made.waits
    assert wait.until + lead == pytest.approx(STEPS.find_next(wait.until + lead - TINY)), made.waits
    assert made.took >= wait.until - TINY, "it has waited"


def test_a_call_is_charged_and_logged(make: Make) -> None:
    made = make(lambda side, frame: answer(side), NO_GRID)
    assert [message.head["kind"] for message in made.ask()] == ["stage", "end"]
    assert outcomes(made) == ["released"]


def test_only_run_and_plan_may_pay(make: Make) -> None:
    made = make(lambda side, frame: answer(side), NO_GRID)
    for operation in ("explain", "keep", "budget_panel", "restore", "RUN", ""):
        (message,) = made.ask(operation)
        assert message.head["message"] == "refused", operation
    assert outcomes(made) == []
    made.ask("plan")
    assert outcomes(made) == ["released"]


def test_a_worker_that_lies_gets_nothing_for_it(make: Make) -> None:
    """A lying worker settles what it did not reserve, for less than was reserved, twice; and speaks of other analysts."""
    said: list[Message] = []

    def lie(side: ScriptedSide, frame: Message) -> None:
        side.settle(1, EVENT)
        number = side.pay(EVENT)
        assert number is not None
        said.append(side.settle(99, EVENT))
        said.append(side.settle(number, {"kind": "pure", "epsilon": "2"}))
        said.append(side.settle(number, EVENT, outcome="free"))
        said.append(side.ask("state", analyst="bob", after=[{"kind": "pure", "epsilon": "-1"}]))
        said.append(side.ask("nonsense"))
        side.settle(number, EVENT)
        said.append(side.settle(number, EVENT))

    made = make(lie, NO_GRID)
    made.ask()
    assert [message.head["kind"] for message in said] == ["error"] * 6
    (entry,) = made.ledger.entries()
    assert (entry.outcome, entry.analyst) == ("released", "ada")


@pytest.mark.parametrize("frame", [b"", b"\0" * 12, b"\xff" * 12, b"\0\0\0\2\0\0\0\0{}", b"x" * 100])
def test_a_worker_that_breaks_the_protocol_is_replaced(make: Make, frame: bytes) -> None:
    asked = []

    def script(side: ScriptedSide, call: Message) -> None:
        asked.append(call)
        if len(asked) == 1:
            side.frames._socket.sendall(frame)
            raise SystemExit
        answer(side)

    made = make(script, NO_GRID)
    made.ask()
    made.ask()
    assert len(made.pool.workers) == 2
    assert outcomes(made)[-1] == "released"


def test_a_stop_before_the_payment_is_told_at_once_and_costs_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "STOP_SECONDS", LONG)
    asked = threading.Event()

    def wait_then_pay(side: ScriptedSide, frame: Message) -> None:
        asked.set()
        wait_for(lambda: side.stops)
        answer(side)

    made = make(wait_then_pay, GRID)
    stop_on(made, asked)
    (message,) = made.ask()
    assert message.head["message"] == "refused"
    assert made.waits == []
    assert outcomes(made) == []
    assert made.pool.workers[0].is_alive


def test_a_worker_that_does_not_stop_is_killed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "STOP_SECONDS", 0.2)
    asked = threading.Event()

    def script(side: ScriptedSide, frame: Message) -> None:
        asked.set()
        side.hang()

    made = make(script, GRID)
    stop_on(made, asked)
    (message,) = made.ask()
    assert message.head["class"] == "Interrupted"
    assert "nothing was charged" in message.head["message"]
    assert not made.pool.workers[0].is_alive


def test_a_stop_after_the_payment_kills_at_the_grid(make: Make) -> None:
    made = make(pay_and_hang, GRID)
    stop_after_touch(made)
    stage, message = made.ask()
    assert stage.head["kind"] == "stage"
    assert message.head["class"] == "Interrupted"
    check_reply_time(made)
    assert made.waits[-1].begun >= made.waits[-1].until - STEPS.lead - TINY, "it is not killed before"
    assert outcomes(made) == ["interrupted"]
    assert made.pool.workers[0].side.stops == [], "it is not asked to stop: how it ends would tell when"


def test_what_is_done_by_the_grid_is_answered_although_it_was_stopped(make: Make) -> None:
    left: list[bool] = []

    def script(side: ScriptedSide, frame: Message) -> None:
        number = side.pay(EVENT)
        side.touch()
        assert stopped.wait(LONG)
        (call,) = made.queue._calls
        left.append(bool(call._kills))
        side.settle(number or 0, EVENT)
        left.append(bool(call._kills))
        side.reply(kind="end")

    made = make(script, LATE_GRID, skips_waits=True)
    stopped = stop_after_touch(made)
    assert [message.head["kind"] for message in made.ask()] == ["stage", "end"]
    assert left == [True, False], "a kill is planned until it is done"
    assert [wait.until for wait in made.waits] == pytest.approx([1000 - 0.025, 1000])
    assert outcomes(made) == ["released"]
    assert made.pool.workers[0].is_alive


def test_a_stop_lets_no_further_statement_pay(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "STOP_SECONDS", LONG)

    def two(side: ScriptedSide, frame: Message) -> None:
        answer(side, until=stopped)
        answer(side)

    made = make(two, LATE_GRID, skips_waits=True)
    stopped = stop_after_touch(made)
    assert [message.head["kind"] for message in made.ask()] == ["stage", "end", "error"]
    assert outcomes(made) == ["released"]


def test_a_death_after_the_payment_is_told_at_the_grid(make: Make) -> None:
    def die(side: ScriptedSide, frame: Message) -> None:
        side.pay(EVENT)
        side.touch()
        raise SystemExit

    made = make(die, GRID)
    _, message = made.ask()
    assert message.head["class"] == "EngineError"
    check_reply_time(made)
    assert outcomes(made) == ["interrupted"]


def test_a_death_after_the_settlement_tells_that_the_answer_is_stored(make: Make) -> None:
    def die(side: ScriptedSide, frame: Message) -> None:
        answer(side)
        raise SystemExit

    made = make(die, NO_GRID)
    *_, message = made.ask()
    assert "asking again is free" in message.head["message"]
    assert "nothing was charged" not in message.head["message"]
    assert outcomes(made) == ["released"]
    assert made.queue._failures == 0


def test_a_touch_without_payment_waits_for_the_grid_too(make: Make) -> None:
    """A question to a declared threshold was paid when it was declared."""

    def probe(side: ScriptedSide, frame: Message) -> None:
        side.touch()
        side.reply(kind="end")

    made = make(probe, GRID)
    made.ask()
    check_reply_time(made)


@pytest.mark.parametrize("seconds", [0.0, 0.1])
def test_a_session_whose_data_were_opened_goes_on_on_the_grid(make: Make, seconds: float) -> None:
    """A text file is copied for each session: what reads nothing else must not tell how long that took."""

    def script(side: ScriptedSide, frame: Message) -> None:
        time.sleep(seconds)
        side.frames.send({"kind": "opened"})
        side.frames.receive()
        side.reply(kind="end")

    made = make(script, GRID)
    assert [message.head["kind"] for message in made.ask("columns")] == ["end"]
    check_step_time(made)
    assert outcomes(made) == []


def test_a_statement_that_waited_for_a_worker_goes_on_on_the_grid(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(lambda side, frame: side.reply(kind="end"), GRID)
    made.ask()
    assert made.waits == []
    take = made.pool.take

    def start() -> Any:
        worker = take()
        worker.was_awaited = True
        return worker

    monkeypatch.setattr(made.pool, "take", start)
    made.pool.workers[0].kill()
    made.ask()
    check_step_time(made)
    made.ask()
    assert len(made.waits) == 1, "the next one finds it ready"


@pytest.mark.parametrize("seconds", [0.0, 0.1])
def test_others_see_a_settlement_on_the_grid_alone(make: Make, seconds: float) -> None:
    """A threshold may cost less than was reserved: when that is seen must not tell how long it took."""
    dear = {"kind": "composed", "events": [EVENT, EVENT]}
    cheap = {"kind": "composed", "events": [EVENT]}

    def script(side: ScriptedSide, frame: Message) -> None:
        number = side.pay(dear)
        assert number is not None
        side.touch()
        time.sleep(seconds)
        side.settle(number, cheap)
        side.reply(kind="end")

    made = make(script, GRID)
    begun = time.monotonic()
    thread = threading.Thread(target=made.ask)
    thread.start()
    wait_for(lambda: outcomes(made) == ["released"])
    seen = time.monotonic() - begun
    thread.join()
    written, replied = made.waits
    assert seen >= written.until - TINY
    assert written.outcomes == ("open",)
    assert replied.outcomes == ("released",), "it is seen before the reply"
    check_reply_time(made)
    del made.waits[1:]
    check_step_time(made)


def test_a_client_that_goes_away_changes_nothing(make: Make) -> None:
    made = make(lambda side, frame: answer(side, 0.05), GRID)
    begun = time.monotonic()
    call = made.queue.make_call("run", made.session.handle)
    stream = made.queue.answer(call, made.session, b"")
    assert next(stream)
    stream.close()
    made.took = time.monotonic() - begun
    check_step_time(made)
    assert (call.outcome, outcomes(made)) == ("released", ["released"])
    made.ask()
    assert outcomes(made) == ["released"] * 2


def test_failures_that_were_paid_pause(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(lambda side, frame: answer(side, outcome="failed"), NO_GRID)
    for number in range(MAX_FAILURES):
        assert not made.paused, number
        if number % 2:
            made.ask()
        else:  # a client that goes away is counted, too
            stream = made.queue.answer(made.queue.make_call("run", made.session.handle), made.session, b"")
            next(stream)
            stream.close()
    assert len(made.paused) == 1


def test_deaths_that_were_paid_pause(make: Make) -> None:
    def die(side: ScriptedSide, frame: Message) -> None:
        side.pay(EVENT)
        raise SystemExit

    made = make(die, NO_GRID)
    for _ in range(MAX_FAILURES):
        assert not made.paused
        made.ask()
    assert made.paused == ["3 statements failed after they were paid"]


def test_stops_do_not_pause(make: Make) -> None:
    def script(side: ScriptedSide, frame: Message) -> None:
        side.pay({"kind": "pure", "epsilon": "1/100"})
        side.touch()
        side.hang()

    made = make(script, "answer_times = [0.05]\n")
    for _ in range(MAX_FAILURES + 2):
        stop_after_touch(made)
        made.ask()
    assert outcomes(made) == ["interrupted"] * (MAX_FAILURES + 2)
    assert not made.paused


def test_the_owner_stops_a_statement_by_its_number(make: Make) -> None:
    numbers: list[int] = []

    def script(side: ScriptedSide, frame: Message) -> None:
        numbers.append(side.pay({"kind": "pure", "epsilon": "1/100"}))
        side.touch()
        side.hang()

    made = make(script, "answer_times = [0.05]\n")
    asking = threading.Thread(target=made.ask)
    asking.start()
    while not numbers:
        time.sleep(0.001)
    assert not made.queue.stop_statement(numbers[0] + 1)
    assert made.queue.stop_statement(numbers[0])
    assert not made.queue.stop_statement(numbers[0]), "it is stopped"
    asking.join(LONG)
    assert outcomes(made) == ["interrupted"]
    assert not made.queue.stop_statement(numbers[0]), "it is done"


def test_overruns_pause(make: Make) -> None:
    event = {"kind": "pure", "epsilon": "1/100"}
    made = make(lambda side, frame: answer(side, 0.012, event), "answer_times = [0.005, 0.01]\n")
    for _ in range(MAX_OVERRUNS):
        assert not made.paused
        made.ask()
    assert made.paused == ["20 statements within an hour took longer than the last answer time"]


def test_overruns_fade(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    event = {"kind": "pure", "epsilon": "1/100"}
    made = make(lambda side, frame: answer(side, 0.012, event), "answer_times = [0.005, 0.01]\n")
    for _ in range(MAX_OVERRUNS - 1):
        made.ask()
    assert made.queue.summarize()["overruns"] == MAX_OVERRUNS - 1
    monkeypatch.setattr(queues, "OVERRUN_SECONDS", 0.05)
    time.sleep(0.06)
    assert made.queue.summarize()["overruns"] == 0
    for _ in range(2):
        made.ask()
    assert not made.paused


def test_a_statement_that_takes_too_long_fails(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "LATE_SECONDS", LONG)

    def script(side: ScriptedSide, frame: Message) -> None:
        side.pay(EVENT)
        side.touch()
        monkeypatch.setattr(calls, "LATE_SECONDS", -0.7)
        side.frames.send({"kind": "failure", "why": ""})  # from this one on
        side.hang()

    made = make(script, GRID + "max_seconds = 1\n")
    _, message = made.ask()
    assert message.head["class"] == "EngineError"
    assert outcomes(made) == ["interrupted"]
    assert made.queue._failures == 1


def test_one_call_at_a_time_in_the_order_of_the_requests(make: Make) -> None:
    running: list[int] = []
    order: list[int] = []
    entered = threading.Event()
    go_on = threading.Event()

    def script(side: ScriptedSide, frame: Message) -> None:
        running.append(1)
        assert len(running) == 1
        order.append(frame.head["number"])
        entered.set()
        assert go_on.wait(LONG)
        running.pop()
        side.reply(kind="end")

    made = make(script, NO_GRID)
    threads = []
    for count in range(1, 6):
        threads.append(threading.Thread(target=made.ask))
        threads[-1].start()
        assert entered.wait(LONG)
        # It waits in the line before the next one comes.
        wait_for(lambda count=count: len(made.queue._calls) == count)  # type: ignore[misc]
    go_on.set()
    for thread in threads:
        thread.join()
    assert order == sorted(order)
    assert len(order) == 5


def test_the_times_of_a_call_that_has_waited_count_from_the_reply_before_it(make: Make) -> None:
    """They tell nothing of its own request, whose time its analyst chooses."""
    made = make(lambda side, frame: answer(side), GRID)
    first = threading.Thread(target=made.ask)
    first.start()
    made.pool.wait_for_touch()
    time.sleep(0.031)
    made.ask()
    first.join()
    ends = {wait.asked: wait.asked + wait.until for wait in made.waits}
    end, later = ends.values()
    leads = (later - end) / STEPS.lead
    assert leads == pytest.approx(round(leads), abs=0.05), "a time of the grid, or so many leads late"
    assert later - end >= 0.2 - TINY


def test_too_many_that_wait_are_refused(make: Make) -> None:
    go_on = threading.Event()
    made = make(lambda side, frame: go_on.wait(LONG), NO_GRID)
    threads = [threading.Thread(target=made.ask) for _ in range(MAX_WAITING + 1)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(made.queue._calls) > MAX_WAITING)
    with pytest.raises(Refused):
        made.ask()
    go_on.set()
    for thread in threads:
        thread.join()


def test_a_request_is_dropped_that_nobody_waits_for(make: Make) -> None:
    go_on, asked = threading.Event(), []

    def script(side: ScriptedSide, frame: Message) -> None:
        asked.append(frame.head["operation"])
        go_on.wait(LONG)

    made = make(script, NO_GRID)
    first = threading.Thread(target=made.ask)
    first.start()
    wait_for(lambda: asked)
    call = made.queue.make_call("budget_panel", made.session.handle)
    call.is_abandoned = lambda: True
    with pytest.raises(Refused, match="has disconnected"):
        list(made.queue.answer(call, made.session, b"body"))
    go_on.set()
    first.join()
    assert asked == ["run"]


def test_sessions_are_bounded_and_old_ones_make_room(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(lambda side, frame: answer(side), NO_GRID + "max_sessions = 2\n")
    made.queue.open("mark")
    with pytest.raises(Refused, match="limit of open sessions"):
        made.queue.open("mark")
    monkeypatch.setattr(queues, "UNUSED_SECONDS", -1)
    made.queue.open("mark")
    with pytest.raises(Refused, match="no such session"):
        made.queue.find(made.session.handle)


def test_idle_sessions_leave_and_come_back(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def script(side: ScriptedSide, frame: Message) -> None:
        side.frames.send({"kind": "journal", "sizes": [3, 2]}, b"outtw")
        side.reply(kind="end")

    made = make(script, NO_GRID + "max_idle_minutes = 1\n")
    made.ask()
    made.queue.tidy()
    (worker,) = made.pool.workers
    assert made.session.home is worker
    made.session.used -= 61
    made.queue.tidy()
    assert [frame.head["kind"] for frame in worker.seen] == ["call", "leave"]
    assert made.session.home is None
    monkeypatch.setattr(queues, "EMPTY_SECONDS", -1)
    made.queue.tidy()
    made.queue.tidy()
    assert not worker.is_alive
    made.ask()
    back = made.pool.workers[1].seen[0]
    assert (back.head["kind"], back.head["sizes"], back.payload) == ("restore", [3, 2], b"outtw")


def test_a_session_whose_token_is_gone_ends(make: Make) -> None:
    go_on, refused = threading.Event(), []
    made = make(lambda side, frame: answer(side, until=go_on), NO_GRID)

    def ask() -> None:
        try:
            made.ask()
        except Refused as error:
            refused.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    wait_for(lambda: outcomes(made))
    assert made.queue.end_sessions(lambda record: record.token == "other") == 1
    go_on.set()
    thread.join()
    assert refused, "nothing more is told to a token that is gone"
    with pytest.raises(Refused):
        made.queue.find(made.session.handle)


def test_a_reply_is_made_before_its_time_and_then_says_what_is_left(make: Make) -> None:
    """Work left for a public time would take longer the busier the statement itself keeps the machine."""
    ready: list[list[str]] = []

    def settle(side: ScriptedSide, frame: Message) -> None:
        for _ in range(2):
            number = side.pay(EVENT)
            side.touch()
            assert side.settle(number or 0, EVENT).head == {"kind": "answer", "promised": True}
            ready.append(outcomes(made))
            side.reply(kind="value", cost_line=f"cost, {mark_left(number or 0)}", text=mark_left(99))

    made = make(settle, LATE_GRID, skips_waits=True)
    told = [message.head for message in made.ask() if message.head["kind"] == "value"]
    lead = made.queue.edition.grid.lead
    assert [wait.until for wait in made.waits] == pytest.approx([1000 - lead, 2000 - lead, 2000])
    assert [wait.outcomes.count("released") for wait in made.waits] == [0, 1, 2]
    assert ready[0] == ["open"], "the worker need not wait for the first time of the grid"
    assert sorted(ready[1]) == ["open", "released"], (
        "the next statement is paid when others may see the one before"
    )
    assert [head["cost_line"] for head in told] == [
        "cost, ε=4 of ada's ε=5 left",
        "cost, ε=3 of ada's ε=5 left",
    ]
    assert told[0]["text"] == mark_left(99), "other statements' budgets are not filled in"
    assert outcomes(made) == ["released"] * 2


def test_slow_postprocessing_is_settled_in_time_and_leaves_on_the_lead(make: Make) -> None:
    lead = STEPS.lead

    def process(side: ScriptedSide, frame: Message) -> None:
        number = side.pay(EVENT)
        side.touch()
        side.settle(number or 0, EVENT)
        wait_for(lambda: outcomes(made) == ["released"])  # though it says nothing
        (call,) = made.queue._calls
        while time.monotonic() < call.began + made.waits[0].until + 3.4 * lead:
            time.sleep(0.001)
        side.reply(kind="end")

    made = make(process, GRID)
    assert made.ask()[-1].head["kind"] == "end"
    written, replied = made.waits
    assert written.outcomes == ("open",), "others see the settlement at its time, not when the reply is ready"
    assert replied.until >= written.until + 4 * lead - TINY, (
        "the reply leaves at the next multiple of the lead"
    )
    check_reply_time(made)
    del made.waits[1:]
    check_step_time(made)


def test_what_was_promised_and_can_t_be_written_shows_no_answer(make: Make) -> None:
    """The worker claims to have used more than it reserved."""

    def lie(side: ScriptedSide, frame: Message) -> None:
        number = side.pay(EVENT)
        side.touch()
        assert side.settle(number or 0, {"kind": "pure", "epsilon": "2"}).head.get("promised")
        side.reply(kind="result", bytes=1)
        assert side.pay(EVENT) is None, "and pays nothing more"
        side.reply(kind="end")

    made = make(lie, GRID)
    stage, error = made.ask()
    assert (stage.head["kind"], error.head["kind"]) == ("stage", "error")
    assert "result" not in str(error.head)
    assert made.ledger.state().spent_epsilon == 1


def test_a_death_after_a_promise_loses_nothing(make: Make) -> None:
    def die(side: ScriptedSide, frame: Message) -> None:
        number = side.pay(EVENT)
        side.touch()
        side.settle(number or 0, EVENT)
        raise SystemExit

    made = make(die, GRID)
    *_, message = made.ask()
    check_reply_time(made)
    assert "asking again is free" in message.head["message"]
    assert outcomes(made) == ["released"]
    assert made.queue._failures == 0


def test_the_end_of_the_server_settles(make: Make, tmp_path: Path) -> None:
    made = make(lambda side, frame: answer(side, 0.05), GRID, tmp_path / "a.ledger")
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(made.ask()))
    thread.start()
    wait_for(lambda: outcomes(made))
    made.queue.close(LONG)
    thread.join()
    assert found[0][-1].head["kind"] == "end"
    assert outcomes(made) == ["released"]
    with pytest.raises(Refused, match="the server ends"):
        made.ask()


def test_the_end_of_the_server_waits_for_nobody_for_long(make: Make) -> None:
    made = make(pay_and_hang, "answer_times = [1000]\n")
    thread = threading.Thread(target=made.ask)
    thread.start()
    wait_for(lambda: outcomes(made))
    ending = threading.Thread(target=made.queue.close, args=(0.3,), daemon=True)
    ending.start()
    ending.join(LONG)
    thread.join(LONG)
    assert not ending.is_alive()
    assert not thread.is_alive()
    assert outcomes(made) == ["interrupted"]


def test_the_end_of_the_server_waits_for_no_worker_that_goes_on_talking(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each frame is in time, and none of them is the last."""
    monkeypatch.setattr(queues, "STOP_SECONDS", 0.3)

    def talk(side: ScriptedSide) -> None:
        while True:
            side.frames.send({"kind": "failure", "why": ""})
            time.sleep(0.05)

    made = make(lambda side, frame: side.reply(kind="end"), NO_GRID, leave=talk)
    made.ask()
    ending = threading.Thread(target=made.queue.close, args=(0.1,), daemon=True)
    ending.start()
    ending.join(LONG)
    assert not ending.is_alive()
    assert not made.pool.workers[0].is_alive


def test_the_log_names_charges_and_no_texts(make: Make) -> None:
    made = make(lambda side, frame: answer(side), NO_GRID)
    call = made.queue.make_call("run", made.session.handle)
    list(made.queue.answer(call, made.session, b""))
    made.queue.log_call(call, "s", 0.5, call.outcome)
    opened, charge, line = made.events()
    assert (opened["event"], opened["analyst"]) == ("open", "ada")
    assert (charge["statement"], charge["charge"], charge["outcome"]) == (1, "ε=1", "released")
    assert (line["statement"], line["outcome"]) == (1, "released")
    assert (line["analyst"], line["seconds"]) == ("ada", 0.5)
    assert "SELECT" not in made.log.getvalue()
