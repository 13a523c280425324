"""The stop button at any line of a statement: what was reserved stays charged, once, and the session goes on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import dpsql
from dpsql.interrupts import StopRequest
from tests.support.fixtures import session_fixture
from tests.support.stop_button import pressed

POLICY = """
budget = { epsilon = 100000, delta = 0.5, accountant = "basic", default_epsilon = 1, default_delta = 1e-6 }
[tables]
t = { privacy_unit = "u", max_rows = 1, max_groups = 1, columns = { x = { bounds = [0, 10] }, \
    k = { values = [0, 1, 2] } } }
"""
ROOM = Path(dpsql.__file__).parent
STATEMENTS = [
    "SELECT k, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY k",
    "WITH c(v) AS (VALUES (1), (5)) SELECT v, EXPMECH(COUNT(*) FILTER (WHERE x >= v)) OVER c FROM t",
]
WATCHED = ("session/session.py", "interrupts.py")
"""The modules that run in the main thread, where the exceptions of signal handlers arise."""


class Stopper:
    """Raises KeyboardInterrupt at the n-th line that runs in the watched modules."""

    def __init__(self, at: int) -> None:
        self.left, self.fired = at, False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line" and not self.fired:
            self.left -= 1
            if self.left <= 0:
                self.fired = True
                raise KeyboardInterrupt
        return self


LINE = str(ROOM / "session" / "pipeline.py")
"""The file whose ``release`` calls the operator's, and never holds what that reads."""
FILES = {str(ROOM / name) for name in WATCHED}
assert all(Path(name).exists() for name in (LINE, *FILES))
TABLES = """
CREATE TABLE t AS SELECT i AS u, i % 11 AS x, i % 3 AS k FROM range(200) r(i);
"""
session = session_fixture(POLICY, TABLES, scope="function")


def spent(session: dpsql.Session) -> float:
    return float(session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"])


def holding(error: BaseException | None) -> list[str]:
    """Frames of a traceback, and of what it came from, where operators hold exact rows."""
    found = []
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            if code.co_filename != LINE and code.co_name in (
                "released",
                "release",
                "_totals",
                "table",
                "execute",
                "_whole",
            ):
                found.append(code.co_name)
            trace = trace.tb_next
        error = error.__cause__ or error.__context__
    return found


@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_stop_button_at_any_line(session: dpsql.Session, statement: str) -> None:
    before, at, stopped, kept = spent(session), 1, 0, 0
    while True:
        stopper = Stopper(at)
        was = sys.gettrace()
        answered = False
        sys.settrace(stopper)
        try:
            session.sql(statement, fresh=True)
            answered = True
        except (KeyboardInterrupt, dpsql.Interrupted) as caught:
            assert not holding(caught), "a frame that held exact rows is left in the traceback"
        except dpsql.Error as error:  # the ledger may say that it was stopped, and nothing else may fail
            assert isinstance(error, dpsql.LedgerError), error
        finally:
            sys.settrace(was)
        now = spent(session)
        assert now - before in (0, 1), "an interruption charged twice, or gave back"
        assert not answered or now - before == 1, "an answer without a charge"
        kept += now - before == 1 and not answered
        before = now
        if not stopper.fired:
            break
        stopped += 1
        at += 1
    assert stopped > 20
    assert kept > 3
    assert session.sql(STATEMENTS[0].replace("AS n", "AS last")).shape == (3, 3)


# -- at random moments ------------------------------------------------------------------------------------------------

KINDS = [
    "SELECT k, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY k",
    "SELECT x % 7 AS g, COUNT(*) AS n FROM t GROUP BY g",
    "SELECT MEDIAN(x) AS m, QUANTILE(x, 0.9) AS q FROM t",
    "WITH c(v) AS (SELECT * FROM range(200)) SELECT v, EXPMECH(COUNT(*) FILTER (WHERE x >= v)) OVER c FROM t",
    "WITH c(v) AS (SELECT * FROM range(50)) SELECT v, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE x < v), 90) OVER c FROM t",
    "SELECT WITH PTR IQR(x) AS i, MODE(k) AS k FROM t",
    "SELECT WITH SUBSAMPLE OPTIONS (blocks = 20, bounds = (0, 10)) AVG(x) AS a FROM t",
    "SELECT WITH SUBSAMPLE OPTIONS (blocks = 20, bounds = (0, 10)) slow(x) AS a FROM t",
    "SELECT SUM(a.n * b.range) AS s FROM (SELECT COUNT(*) AS n FROM t) AS a, range(3000000) AS b",
    "EXPLAIN SELECT k, AVG(x) AS a FROM t GROUP BY k",
    "SHOW BUDGET",
]  # fmt: skip


@pytest.mark.timeout(120)
def test_a_look_for_the_stop_button_never_keeps_a_lock() -> None:
    """The main thread looks while it waits, and a stop in there must not let the next one wait for ever."""
    at, stopper = 1, Stopper(1)
    while True:
        stop, stopper = StopRequest(), Stopper(at)
        was = sys.gettrace()
        with stop.telling(None, KeyError):
            stop.count = 1
            sys.settrace(stopper)
            try:
                assert isinstance(stop.find_leave(), KeyError)
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(was)
            again = threading.Thread(target=stop.request, daemon=True)
            again.start()
            again.join(30)
            assert not again.is_alive(), f"it waits for ever after a stop at line {at}"
        if not stopper.fired:
            break
        at += 1
    assert at > 3


class Late(Exception):
    """Raised by a timer's handler, as time-outs are."""


def slow(x: Any) -> float:
    total = 0.0
    for value in list(x) * 200:
        total += float(value)
    return total / (len(x) * 200)


@contextmanager
def fire_after(delay: float, with_timer: bool) -> Iterator[None]:
    """Send Ctrl-C, or let a timer's handler raise an exception, unless the body has ended before."""
    over = threading.Event()

    def late(*_: object) -> None:
        raise Late

    def press() -> None:
        if not over.wait(delay):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    was = signal.signal(signal.SIGALRM, late)
    button = threading.Thread(target=press)
    if with_timer:
        signal.setitimer(signal.ITIMER_REAL, delay)
    else:
        button.start()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        over.set()
        if not with_timer:
            button.join()
        signal.signal(signal.SIGALRM, was)


def fire_when(condition: Callable[[], object], kind: int = signal.SIGINT) -> AbstractContextManager[None]:
    """Send a signal to the main thread once a condition holds, however long that takes."""
    main = threading.main_thread().ident or 0
    return pressed(lambda: signal.pthread_kill(main, kind), every=0, times=1, ready=lambda done: condition())


def is_answered(session: dpsql.Session) -> bool:
    """Tell whether the only statement is paid and answered, and its answer processed further."""
    return [entry.outcome for entry in session.ledger()] == ["released"]


def in_ours(error: BaseException) -> bool:
    """Return whether an exception arose in a line of ours, and not in the test's own."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename.startswith(str(ROOM))


def fire_at(session: dpsql.Session, times: int, with_timer: bool, seed: int) -> Counter[str]:
    """Stop statements of all kinds at random moments, and count how they ended."""
    dice, ended = random.Random(seed), Counter[str]()
    session.register("slow", slow, returns=float)
    usual: dict[str, float] = {}

    def ask(statement: str) -> dpsql.Result:
        began = time.perf_counter()
        answer = session.sql(statement, fresh=True)
        took = time.perf_counter() - began
        # the machine may have been busy with others before
        usual[statement] = min(took, usual.get(statement, took))
        return answer

    for statement in KINDS * 2:  # when all is warm
        ask(statement)
    for i in range(times):
        statement = KINDS[i % len(KINDS)]
        before, entries, how = spent(session), len(session.ledger()), "outside"
        delay = dice.uniform(1e-4, usual[statement] * 1.2)
        try:
            with fire_after(delay, with_timer):
                try:
                    answer = ask(statement)
                    how = "answered"
                    assert answer.shape[0] > 0
                except dpsql.Interrupted as error:
                    how = "interrupted"
                    assert not holding(error)
                    assert error.__cause__ is None
                except (KeyboardInterrupt, Late) as error:
                    how = "bare" if in_ours(error) else how
        except (KeyboardInterrupt, Late):
            pass  # it came when the statement had ended already
        ended[how] += 1
        paid = 0 if statement.startswith(("EXPLAIN", "SHOW")) else 1
        cost = spent(session) - before
        assert cost in (0, paid), (statement, how, cost)
        assert how != "answered" or cost == paid, (statement, how)
        assert len(session.ledger()) - entries == (cost > 0), (statement, how)
    assert session.sql(KINDS[0], fresh=True).shape == (3, 3)
    assert not [e for e in session.ledger() if e.outcome == "reserved"], "each was settled"
    return ended


@pytest.mark.parametrize("with_timer", [False, True], ids=["Ctrl-C", "a timer"])
def test_stopped_at_random_moments(session: dpsql.Session, with_timer: bool) -> None:
    """The long form of 2,000 each is in ``test_stopped_two_thousand_times``."""
    ended = fire_at(session, 66, with_timer, 1)
    assert ended["interrupted"] > 10, ended
    assert ended["bare"] <= 5, ended  # one in 10,000: it has to come within a microsecond of ours


@pytest.mark.stochastic
@pytest.mark.parametrize("with_timer", [False, True], ids=["Ctrl-C", "a timer"])
def test_stopped_two_thousand_times(session: dpsql.Session, with_timer: bool) -> None:
    ended = fire_at(session, 2_000, with_timer, 2)
    print(dict(ended))
    assert ended["interrupted"] > 500, ended
    assert ended["bare"] <= 20, ended


def test_a_stop_ends_a_query_that_would_never_end(session: dpsql.Session) -> None:
    endless = "SELECT SUM(a.n * b.range) AS s FROM (SELECT COUNT(*) AS n FROM t) AS a, range(100000) AS b, range(100000) AS c"
    with (
        fire_when(lambda: is_answered(session)),
        pytest.raises(dpsql.Interrupted, match="was paid, and the answer is stored"),
    ):
        session.sql(endless)
    assert spent(session) == 1
    assert session.sql("SELECT COUNT(*) AS n FROM t").cost_line.startswith("stored")


def test_a_stop_ends_a_registered_function(session: dpsql.Session) -> None:
    begun = threading.Event()

    def endless(x: Any) -> float:
        begun.set()
        while True:
            x = x

    session.register("endless", endless, returns=float)
    with fire_when(begun.is_set), pytest.raises(dpsql.Interrupted, match="stays charged"):
        session.sql("SELECT WITH SUBSAMPLE OPTIONS (blocks = 20, bounds = (0, 10)) endless(x) AS a FROM t")
    assert spent(session) == 1


def test_closing_never_raises(session: dpsql.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError

    closed: list[str] = []
    engine = session._pipeline.engine
    monkeypatch.setattr(session._pipeline.thresholds, "close_all", fails)
    monkeypatch.setattr(engine, "close", lambda: closed.append("engine"))
    session.close()
    assert closed == ["engine"]
    session.close()


def test_a_forked_process_ends_in_peace(session: dpsql.Session) -> None:
    session.sql("SELECT COUNT(*) AS n FROM t")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of Python advise against it
        child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


STOPS = """
import random, signal, time
from dpsql.interrupts import run_apart

class Late(Exception): pass

def late(*_): raise Late

signal.signal(signal.SIGALRM, late)
dice = random.Random(1)
for _ in range(8000):
    try:
        signal.setitimer(signal.ITIMER_REAL, dice.uniform(2e-5, 4e-4))
        run_apart(lambda: time.sleep(1e-4))
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Late:
        pass
"""
"""Many stops of work so short that they often come while the main thread begins or ends to wait for it."""


def test_no_stop_ends_a_worker_that_the_next_work_waits_for() -> None:
    subprocess.run([sys.executable, "-c", STOPS], capture_output=True, check=True, timeout=120)


ENDS = {
    "a finaliser": "class Late:\n    def __del__(self, ask=ask):\n        ask()\nlate = Late()",
    "a generator": "def hold():\n    with session:\n        yield\nheld = hold()\nnext(held)",
    "no new thread": (
        "import threading\nfrom dpsql import interrupts\ninterrupts._IDLE.clear()\n"
        'def start(self):\n    raise RuntimeError("can\'t start new thread")\n'
        "threading.Thread.start = start\nask()"
    ),
}
"""Ways to use a session where no other thread runs."""


@pytest.mark.parametrize("way", ENDS)
def test_where_no_other_thread_runs_the_main_thread_works(way: str, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(POLICY)
    text = (
        "import sys, duckdb, dpsql\n"
        "data = duckdb.connect()\n"
        "data.sql('CREATE TABLE t AS SELECT range AS u, 1 AS x, 1 AS k FROM range(9)')\n"
        "session = dpsql.connect(data, policy=sys.argv[1])\n"
        "def ask(sql=session.sql, say=sys.stdout.write):\n"
        "    try:\n        sql('SELECT COUNT(*) AS n FROM t')\n"
        "    except ImportError:  # Python has put its modules away\n        pass\n"
        "    say('ended')\n"
        f"session.sql('SELECT SUM(x) AS s FROM t')\n{ENDS[way]}\n"
    )
    command = [sys.executable, "-c", text, str(tmp_path / "p.toml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == ("" if way == "a generator" else "ended"), done.stderr
    assert "Traceback" not in done.stderr


def test_a_handler_may_leave_python(session: dpsql.Session) -> None:
    """The reserved loss stays charged, and the exit is not taken for a stop."""

    def leave(*_: object) -> None:
        raise SystemExit(7)

    was = signal.signal(signal.SIGALRM, leave)
    try:
        with fire_when(lambda: is_answered(session), signal.SIGALRM), pytest.raises(SystemExit) as caught:
            session.sql(
                "SELECT SUM(a.n * b.range) AS s FROM (SELECT COUNT(*) AS n FROM t) AS a, range(100000) AS b, range(100000) AS c"
            )
    finally:
        signal.signal(signal.SIGALRM, was)
    assert caught.value.code == 7
    assert spent(session) == 1
