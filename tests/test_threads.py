"""One session asked by several threads: they take turns, the budget adds up, answers are right, and nobody waits for ever."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql import interrupts
from tests.support import inside
from tests.support.at_once import COUNT, PATIENCE, POLICY, ask_at_once, spent

THREADS = 8


@pytest.fixture
def open_session() -> Iterator[Callable[..., dpsql.Session]]:
    """Sessions over 1000 units, 100 of each x, whose noise at the default epsilon is next to none."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT i AS u, i % 10 AS x FROM range(1000) r(i)")
        opened: list[dpsql.Session] = []

        def connect(epsilon: int = 10**9) -> dpsql.Session:
            opened.append(dpsql.connect(con, policy=dpsql.Policy.loads(POLICY.format(epsilon=epsilon))))
            return opened[-1]

        yield connect
        for session in opened:
            session.close()


def test_charges_add_up_and_answers_are_right(open_session: Callable[..., dpsql.Session]) -> None:
    session = open_session()

    def ask(thread: int) -> list[tuple[Any, ...]]:
        # each thread has texts of its own, so that none is stored by another
        limits = [(10 * i + thread) / 10 for i in range(5)]
        return [session.sql(COUNT.format(limit)).fetchall()[0] for limit in limits]

    found = ask_at_once(*(lambda thread=thread: ask(thread) for thread in range(THREADS)))
    assert found == [[(100 * (i + 1),) for i in range(5)]] * THREADS
    assert spent(session) == 1000 * 5 * THREADS
    assert [entry.outcome for entry in session.ledger()] == ["released"] * 5 * THREADS


def test_the_same_question_is_paid_once(open_session: Callable[..., dpsql.Session]) -> None:
    session = open_session()
    question = "SELECT WITH DP OPTIONS (epsilon = 0.01) COUNT(*) AS n FROM t"
    found = ask_at_once(*[lambda: session.sql(question).fetchall()] * THREADS)
    assert found == [found[0]] * THREADS
    assert spent(session) == Fraction(1, 100)


@pytest.mark.parametrize("turns", [True, False])
def test_turns_are_what_makes_it_so(
    open_session: Callable[..., dpsql.Session], monkeypatch: pytest.MonkeyPatch, turns: bool
) -> None:
    session = open_session()
    session.sql(COUNT.format(9))  # what is read once has been read
    if not turns:
        inside.take_no_turns(session, monkeypatch)
    engine, both = inside.engine(session), threading.Barrier(2)
    execute = engine.execute

    def slow(*given: Any) -> Any:
        """Wait until both threads read, for a while."""
        try:
            both.wait(1 if turns else 20)
        except threading.BrokenBarrierError:
            pass
        return execute(*given)

    monkeypatch.setattr(engine, "execute", slow)
    found = ask_at_once(*[lambda: session.sql(COUNT.format(3)).fetchall()] * 2)
    paid_once_and_right = spent(session) == 2000 and found == [[(400,)]] * 2
    assert paid_once_and_right is turns


def test_no_more_is_spent_than_there_is(open_session: Callable[..., dpsql.Session]) -> None:
    session = open_session(3500)
    found = ask_at_once(*(lambda limit=i: session.sql(COUNT.format(limit)) for i in range(THREADS)))
    refused = [answer for answer in found if isinstance(answer, dpsql.BudgetExceeded)]
    assert len(refused) == THREADS - 3
    assert spent(session) == 3000
    assert sum(isinstance(answer, dpsql.Result) for answer in found) == 3


def test_a_cells_default_epsilon_is_its_own(open_session: Callable[..., dpsql.Session]) -> None:
    session = open_session()
    prices = [str(i + 1) for i in range(THREADS)]
    text = "; ".join(COUNT.format(i) for i in range(3))
    found = ask_at_once(
        *(lambda price=price: session.run(text, fresh=True, epsilon=price) for price in prices)
    )
    for price, results in zip(prices, found, strict=True):
        assert [result.event.basic[0] for result in results] == [int(price)] * 3
    assert spent(session) == 3 * sum(map(int, prices))
    assert session.sql(COUNT.format(9.5)).event.basic[0] == 1000  # type: ignore[union-attr]


def test_a_plan_collects_its_own_statements_alone(open_session: Callable[..., dpsql.Session]) -> None:
    session = open_session()
    with session.plan() as plan:
        declared = plan.sql(COUNT.format(2))
        (other,) = ask_at_once(lambda: session.sql(COUNT.format(4)))
        own = session.sql(COUNT.format(5))
        assert type(other) is type(own) is dpsql.Result
        assert (other.fetchall(), own.fetchall()) == ([(500,)], [(600,)])
        assert spent(session) == 2000
    assert declared.fetchall() == [(300,)]
    assert spent(session) == 3000


def test_kept_results_are_found_by_every_thread(open_session: Callable[..., dpsql.Session]) -> None:
    session = open_session()
    found = ask_at_once(
        *(
            lambda i=i: session.sql(f"out{i} << {COUNT.format(i)}; SELECT n + 1 FROM out{i}").fetchall()
            for i in range(THREADS)
        )
    )
    assert found == [[(100 * (i + 1) + 1,)] for i in range(THREADS)]
    read = ask_at_once(*(lambda i=i: session.sql(f"SELECT n FROM out{i}").fetchall() for i in range(THREADS)))
    assert read == [[(100 * (i + 1),)] for i in range(THREADS)]
    assert spent(session) == 1000 * THREADS


def test_a_threshold_finds_no_more_than_it_may(open_session: Callable[..., dpsql.Session]) -> None:
    session = open_session()
    session.sql("DECLARE alarm ABOVE_THRESHOLD OPTIONS (epsilon = 1000, max_hits = 2) 500")
    asked = "SELECT WITH alarm OPTIONS (max_rows_contributed = 1) COUNT(*) AS above FROM t WHERE x <= 9"
    found = ask_at_once(*[lambda: session.sql(asked).fetchall()] * THREADS)
    assert sum(answer == [(True,)] for answer in found) == 2
    assert sum(isinstance(answer, dpsql.BindError) for answer in found) == THREADS - 2
    assert spent(session) == 1000


def test_stopping_one_statement_leaves_the_others_alone(
    open_session: Callable[..., dpsql.Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session()
    engine = inside.engine(session)
    execute, reading = engine.execute, threading.Event()

    def stoppable(*given: Any) -> Any:
        """Read for long the first time: the others wait for it."""
        if not reading.is_set():
            reading.set()
            execute("SELECT COUNT(*) AS n FROM range(10000000000) a(i), range(1000) b(j) WHERE i * j % 7 = 3")
        return execute(*given)

    monkeypatch.setattr(engine, "execute", stoppable)
    answers: list[Any] = []

    def stop_and_ask(limit: int) -> None:
        reading.wait(PATIENCE)
        if limit == 0:
            time.sleep(0.2)
            _thread.interrupt_main()
        answers.append(session.sql(COUNT.format(limit)).fetchall())

    threads = [threading.Thread(target=stop_and_ask, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    with pytest.raises(dpsql.Interrupted, match="stays charged"):
        session.sql(COUNT.format(8))
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(answers) == [[(100,)], [(200,)], [(300,)]]
    assert sorted(entry.outcome for entry in session.ledger()) == ["interrupted"] + ["released"] * 3
    assert spent(session) == 4000


def test_waiting_for_a_turn_can_be_stopped(
    open_session: Callable[..., dpsql.Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session()
    held, over, waits = threading.Event(), threading.Event(), threading.Event()
    check = interrupts.check_stop
    looks: list[int] = []

    def look() -> None:
        """Look for a stop, as the thread does that works for the main thread and waits for its turn."""
        looks.append(1)
        if len(looks) > 1:  # the first look is before it takes up the work
            waits.set()
        check()

    monkeypatch.setattr(interrupts, "check_stop", look)

    def hold() -> None:
        with inside.hold_turn(session):
            held.set()
            assert waits.wait(PATIENCE)
            # a thread that waits for a lock hears no other
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            over.wait(PATIENCE)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(PATIENCE)
    with pytest.raises(dpsql.Interrupted, match="before it was paid"):
        session.sql(COUNT.format(1))
    over.set()
    holder.join(PATIENCE)
    assert spent(session) == 0
    assert session.ledger() == []
    assert session.sql(COUNT.format(1)).fetchall() == [(200,)]


FORKED = """
import os, signal, sys, warnings, dpsql
warnings.simplefilter("ignore")
policy = dpsql.Policy.load("policy.toml")
question = "SELECT WITH DP OPTIONS (epsilon = 0.1) x, COUNT(*) AS n FROM t GROUP BY x"
session = dpsql.connect(policy=policy, ledger="t.ledger")
assert len(session.sql(question)) == 2
def child(epsilon):
    signal.alarm(60)
    try:
        session.sql(question.replace("0.1", "0.2"))
    except dpsql.BindError as error:
        assert "forked" in str(error)
    session.close()
    with dpsql.connect(policy=policy, ledger="t.ledger") as own:
        assert own.sql(question)["n"]
        assert len(own.sql(question.replace("0.1", epsilon))) == 2
    os._exit(0)  # as multiprocessing ends: DuckDB crashes at the exit of a fork that has its parent's connection
children = []
for epsilon in ("0.3", "0.4"):
    children.append(os.fork())
    if not children[-1]:
        child(epsilon)
assert len(session.sql(question.replace("0.1", "0.8"))) == 2
assert [os.waitpid(one, 0)[1] for one in children] == [0, 0]
print(session.sql("SHOW BUDGET")["spent_epsilon"][0])
"""


def test_two_sessions_and_sixteen_threads_share_a_ledger(tmp_path: Path) -> None:
    """As two notebooks do: each charge is counted once, and together they stop at the budget."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT i AS u, i % 10 AS x FROM range(1000) r(i)")
        policy = dpsql.Policy.loads(POLICY.format(epsilon=12_000))
        ledger = tmp_path / "own.ledger"
        sessions = [dpsql.connect(con, policy=policy, ledger=ledger) for _ in range(2)]

        def ask(thread: int) -> int:
            (row,) = sessions[thread % 2].sql(COUNT.format(thread / 16)).fetchall()
            return int(row[0])

        found = ask_at_once(*(lambda thread=thread: ask(thread) for thread in range(16)))
        assert found.count(100) == 12
        assert [type(one) for one in found if one != 100] == [dpsql.BudgetExceeded] * 4
        assert [spent(session) for session in sessions] == [12_000] * 2
        for session in sessions:
            session.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_connects_again_and_shares_the_ledger(tmp_path: Path) -> None:
    """As servers fork workers after loading: the parent's session is refused there, before a charge."""
    duckdb.sql("SELECT i AS u, i % 2 AS x FROM range(300000) r(i)").write_parquet(str(tmp_path / "t.parquet"))
    (tmp_path / "policy.toml").write_text(
        '[budget]\nepsilon = 10\n[tables.t]\nsource = "t.parquet"\nprivacy_unit = "u"\nmax_rows = 1\n'
        "[tables.t.columns]\nx = { values = [0, 1] }\n"
    )
    command = [sys.executable, "-c", FORKED]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "1.6\n", "the parent's 0.1, which is free for the children, and 0.8; 0.3 and 0.4"
