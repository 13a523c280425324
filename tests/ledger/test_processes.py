"""Kills, races and forks: zero answers unpaid, zero overspent. Each check is shown to fail on a store that is
wrong.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.errors import BudgetExceeded, LedgerError
from dpsql.ledger import store
from dpsql.ledger.accounts import Account
from dpsql.ledger.ledger import KeptReleases, Ledger
from dpsql.privacy.events import PureDP, SparseVector
from dpsql.privacy.pld import declare
from dpsql.privacy.records import Entry
from tests.support.ledgers import policy_of
from tests.support.own_process import run_python

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

SMALL = PureDP(Fraction(1, 1000))


def in_child(work: Callable[[], None]) -> int:
    """Runs ``work`` in a forked process; its number. The child leaves with 0, or with 1 after an
    exception.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# -- kills ------------------------------------------------------------------------------------


def answer(path: Path, answers: Path, pay_first: bool) -> None:
    """Answers statements for ever: pays, writes the answer down where the kill can't take it back,
    settles.
    """
    policy = policy_of(epsilon="1000")
    told = os.open(answers, os.O_WRONLY | os.O_APPEND)
    ledger = Ledger.open(path, policy, "d")
    while True:
        if pay_first:
            ticket = ledger.reserve(SMALL, "q")
            os.write(told, b"%d\n" % ticket.statement_id)
        else:  # the mistake that the check must find
            os.write(told, b"%d\n" % (len(ledger.entries()) + 1))
            ticket = ledger.reserve(SMALL, "q")
        ledger.settle(ticket, SMALL, KeptReleases({"key": b"released"}), "released")


def kills(path: Path, answers: Path, count: int, pay_first: bool) -> int:
    """Kills an answering process ``count`` times at random moments; how many answers were never paid."""
    answers.touch()
    chance = random.Random()
    lost = 0
    entries: dict[int, Entry] = {}
    for i in range(count):
        child = in_child(lambda: answer(path, answers, pay_first))
        if i % 3:  # on a busy machine it may take long to open the ledger
            before, since = answers.stat().st_size, time.monotonic()
            while answers.stat().st_size == before and time.monotonic() - since < 30:
                time.sleep(0.001)
        time.sleep(chance.uniform(0.005, 0.08))
        os.kill(child, signal.SIGKILL)
        wait(child)
        if not path.exists():
            continue
        with Ledger.open(path, policy_of(epsilon="1000"), "d") as ledger:
            entries = {entry.statement_id: entry for entry in ledger.entries()}
            assert ledger.state().spent_epsilon == Fraction(len(entries), 1000)
        paid = {number for number, entry in entries.items() if entry.event == SMALL}
        unpaid = [n for n in map(int, answers.read_text().split()) if n not in paid]
        assert all(entry.outcome in ("released", "unsettled") for entry in entries.values())
        lost += bool(unpaid)
        if unpaid:
            answers.write_text("")
    assert len(entries) > count / 5  # it did get work done in between
    return lost


def test_no_answer_is_unpaid_however_it_dies(path: Path, tmp_path: Path) -> None:
    assert kills(path, tmp_path / "answers", 25, pay_first=True) == 0


@pytest.mark.stochastic
def test_no_answer_is_unpaid_in_three_hundred_kills(path: Path, tmp_path: Path) -> None:
    assert kills(path, tmp_path / "answers", 320, pay_first=True) == 0


def test_the_check_finds_a_store_that_pays_later(path: Path, tmp_path: Path) -> None:
    # A kill must fall between the answer and the payment: on a busy machine that takes a few rounds.
    assert any(kills(path, tmp_path / "answers", 25, pay_first=False) for _ in range(12))


def test_a_kill_while_the_ledger_is_made(path: Path, tmp_path: Path) -> None:
    """There is a whole ledger or none, never half of one.

    The delay is halved after a ledger that was made in time and doubled after one that was not, so on a machine of any speed
    the kills fall around the moment that counts.
    """
    chance = random.Random()
    delay, outcomes = 0.01, []
    for i in range(200):
        if i >= 12 and len(set(outcomes)) == 2:
            break
        target = tmp_path / f"{i}.ledger"
        child = in_child(lambda target=target: Ledger.open(target, policy_of(), "d").close())  # type: ignore[misc]
        time.sleep(delay * chance.uniform(0.5, 1.5))
        os.kill(child, signal.SIGKILL)
        wait(child)
        outcomes.append(target.exists())
        delay *= 0.5 if outcomes[-1] else 2
        with Ledger.open(target, policy_of(), "d") as ledger:
            assert ledger.reserve(SMALL, "q").statement_id == 1
    assert set(outcomes) == {True, False}


def make_and_die(path: Path, at: int, counted: Path) -> None:
    """Makes a ledger, and is killed when it calls or returns for the ``at``-th time; else tells how often it did."""
    policy = policy_of()
    seen = 0

    def count(*_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    Ledger.open(path, policy, "d").close()
    sys.setprofile(None)
    counted.write_text(str(seen))


def test_a_kill_at_any_step_of_making_the_ledger(tmp_path: Path) -> None:
    counted = tmp_path / "counted"
    assert wait(in_child(lambda: make_and_die(tmp_path / "whole", 0, counted))) == 0
    steps = int(counted.read_text())
    made = []
    for i, at in enumerate([*range(1, steps, steps // 30), steps - 10]):
        target = tmp_path / f"{i}.ledger"
        assert (
            wait(in_child(lambda target=target, at=at: make_and_die(target, at, counted))) == -signal.SIGKILL
        )  # type: ignore[misc]
        made.append(target.exists())
        with Ledger.open(target, policy_of(), "d") as ledger:
            assert ledger.reserve(SMALL, "q").statement_id == 1
    assert not made[0]
    assert made[-1]
    assert made == sorted(made)


# -- races ------------------------------------------------------------------------------------


def spend_all(
    path: Path, processes: int, price: Fraction, careless: bool = False
) -> tuple[Fraction, list[int]]:
    """Lets processes spend one budget of 1 until each is refused; what the ledger says was spent, and by
    each.
    """
    counts = [path.with_name(f"paid-{i}") for i in range(processes)]
    gate, checked = path.with_name("gate"), [path.with_name(f"checked-{i}") for i in range(processes)]

    def spend(count: Path) -> None:
        ledger = Ledger.open(path, policy_of(), "d")
        count.write_text("ready")
        while not gate.exists():
            time.sleep(0.002)
        paid = 0
        while True:
            if careless:  # checks, lets the others do the same, and only then charges
                if ledger.state().left_epsilon < price:
                    break
                count.with_name(count.name.replace("paid", "checked")).touch()
                while not all(other.exists() for other in checked):
                    time.sleep(0.002)
                Account.find_excess = lambda *given, **more: None  # type: ignore[method-assign]
            try:
                ledger.settle(ledger.reserve(PureDP(price), "q"), PureDP(price), None, "released")
            except BudgetExceeded:
                break
            paid += 1
        count.write_text(str(paid))

    children = [in_child(lambda count=count: spend(count)) for count in counts]  # type: ignore[misc]
    while not all(count.exists() and count.read_text() for count in counts):
        time.sleep(0.01)
    gate.touch()
    assert [wait(child) for child in children] == [0] * processes
    with Ledger.open(path, policy_of(), "d") as ledger:
        return ledger.state().spent_epsilon, [int(count.read_text()) for count in counts]


def test_eight_processes_spend_one_budget(path: Path) -> None:
    spent, paid = spend_all(path, 8, Fraction(1, 64))
    assert spent == 1
    assert sum(paid) == 64


@pytest.mark.stochastic
def test_twenty_processes_spend_one_budget(path: Path) -> None:
    spent, paid = spend_all(path, 20, Fraction(1, 500))
    assert spent == 1
    assert sum(paid) == 500


def test_the_check_finds_a_store_that_checks_outside_the_lock(path: Path) -> None:
    spent, paid = spend_all(path, 8, Fraction(1, 4), careless=True)
    assert spent > 1
    assert sum(paid) > 4


def test_processes_that_make_the_ledger_at_once_share_it(path: Path) -> None:
    children = [
        in_child(lambda: Ledger.open(path, policy_of(), "d").reserve(SMALL, "q") and None) for _ in range(8)
    ]
    assert [wait(child) for child in children] == [0] * 8
    with Ledger.open(path, policy_of(), "d") as ledger:
        assert ledger.state().spent_epsilon == Fraction(8, 1000)
    leftover = {p.name for p in path.parent.iterdir()} - {path.name, path.name + ".d", "state"}
    assert not leftover


# -- forks ------------------------------------------------------------------------------------


def test_a_declared_plan_is_read_in_a_new_process(path: Path) -> None:
    """Its kind of event is of a module that a session may never import; such a ledger was once told to be damaged."""
    plan = declare([SMALL] * 40, Fraction(1, 10**9))
    with Ledger.open(path, policy_of(), "d") as ledger:
        ledger.settle(ledger.reserve(plan, "a plan"), plan, None, "released")
    code = "import sys; from dpsql.ledger.ledger import Ledger; print([e.event.kind for e in Ledger.read(sys.argv[1]).entries()])"
    assert run_python("-c", code, str(path), check=True).stdout.split() == ["['declared_plan']"]


def test_a_fork_in_the_middle(ledger: Ledger, reopen: Callable[..., Ledger]) -> None:
    """Parent and child go on with one ledger, and with a reservation that was open when they parted."""
    ticket = ledger.reserve(PureDP(Fraction(1, 2)), "before the fork")

    def work() -> None:
        for _ in range(5):
            ledger.settle(ledger.reserve(SMALL, "child"), SMALL, None, "released")
        ledger.settle(ticket, ticket.event, None, "released")

    child = in_child(work)
    for _ in range(5):
        ledger.settle(ledger.reserve(SMALL, "parent"), SMALL, None, "released")
    assert wait(child) == 0
    with pytest.raises(LedgerError, match="settled already"):
        ledger.settle(ticket, ticket.event, None, "released")
    assert ledger.state().spent_epsilon == Fraction(510, 1000) == reopen().state().spent_epsilon
    assert sorted(e.text for e in ledger.entries()) == ["before the fork", *["child"] * 5, *["parent"] * 5]


def test_forks_while_threads_are_charging(ledger: Ledger, reopen: Callable[..., Ledger]) -> None:
    """The lock that another thread holds at the moment of the fork must not be left locked in the child."""
    stop = threading.Event()

    def charge() -> None:
        while not stop.is_set():
            ledger.reserve(PureDP(Fraction(1, 10**6)), "thread")

    thread = threading.Thread(target=charge)
    thread.start()
    children = [in_child(lambda: ledger.reserve(SMALL, "child") and None) for _ in range(6)]
    codes = [wait(child) for child in children]
    stop.set()
    thread.join()
    assert codes == [0] * 6
    assert sum(e.text == "child" for e in reopen().entries()) == 6


def test_a_budget_in_memory_is_not_doubled_by_a_fork() -> None:
    ledger = Ledger.open(None, policy_of(), "d")
    ledger.reserve(SMALL, "before")

    def work() -> None:
        with pytest.raises(LedgerError, match="before the process was forked"):
            ledger.reserve(SMALL, "child")

    assert wait(in_child(work)) == 0
    assert ledger.reserve(SMALL, "parent").statement_id == 2


def test_a_fork_that_python_did_not_see(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.reserve(SMALL, "before")
    monkeypatch.setattr(ledger._book, "_pid", -1)
    with pytest.raises(LedgerError, match="connect again in the new process"):
        ledger.reserve(SMALL, "after")


# -- what dead processes left open ------------------------------------------------------------

ALARM = SparseVector(Fraction(1, 10), Fraction(3, 10), 3)


def hits(n: int) -> SparseVector:
    return SparseVector(Fraction(1, 10), Fraction(3, 10), 3, n)


def leave_open(path: Path, progress: int | None) -> int:
    """A process that declares a threshold, tells ``progress`` hits, and then waits to be killed."""
    ready = path.with_name("ready")

    def work() -> None:
        ticket = Ledger.open(path, policy_of(), "d").reserve(ALARM, "DECLARE alarm")
        for n in range(0 if progress is None else progress + 1):
            ticket.update(hits(n))
        ready.touch()
        time.sleep(60)

    child = in_child(work)
    while not ready.exists():
        time.sleep(0.005)
    return child


@pytest.mark.parametrize(("progress", "spent"), [(None, 4), (0, 1), (2, 3)])
def test_a_threshold_dies_with_its_kernel(path: Path, progress: int | None, spent: int) -> None:
    child = leave_open(path, progress)
    with Ledger.open(path, policy_of(), "d") as alive:
        assert alive.state().spent_epsilon == Fraction(4, 10)
        assert alive.entries()[0].outcome == "open"
    os.kill(child, signal.SIGKILL)
    wait(child)
    with Ledger.open(path, policy_of(), "d") as after:
        assert after.state().spent_epsilon == Fraction(spent, 10)
        assert after.entries()[0].outcome == ("unsettled" if progress is None else "interrupted")


def test_who_is_gone() -> None:
    me = store.identify_process()
    assert not store.is_certainly_gone(me)
    host, boot, space, pid, started = me.split("|")
    assert store.is_certainly_gone("|".join([host, boot, space, pid, "1"])) == bool(boot)
    for doubtful in (
        "",
        "x",
        "|".join(["elsewhere", boot, space, pid, "1"]),
        "|".join([host, "b", space, pid, "1"]),
    ):
        assert not store.is_certainly_gone(doubtful)
    child = in_child(lambda: None)
    wait(child)
    assert store.is_certainly_gone("|".join([host, boot, space, str(child), started])) == bool(boot)
