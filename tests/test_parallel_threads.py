"""Threads of one session that read at the same time, and what must hold while they do."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from tests.support import inside
from tests.support.at_once import COUNT, PATIENCE, POLICY, ask_at_once, spent

THREADS = 16


@pytest.fixture(params=["connection", "file"])
def session(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[dpsql.Session]:
    """A session over 1000 units, on an open connection and on a file."""
    path = str(tmp_path / "data.duckdb") if request.param == "file" else ":memory:"
    with duckdb.connect(path) as con:
        con.execute("CREATE TABLE t AS SELECT i AS u, i % 10 AS x FROM range(1000) r(i)")
        if request.param == "file":
            con.close()
        given = path if request.param == "file" else con
        with dpsql.connect(given, policy=dpsql.Policy.loads(POLICY.format(epsilon=10**9))) as opened:
            yield opened


def read_together(
    session: dpsql.Session, patch: pytest.MonkeyPatch, parties: int, patience: float
) -> list[bool]:
    """Let each query wait, on the cursor that it runs on, for so many others; return which of them met."""
    engine, gate, met = inside.engine(session), threading.Barrier(parties), []
    answer = engine._answer

    def waiting(con: Any, *given: Any) -> Iterator[Any]:
        try:
            gate.wait(patience)
            met.append(True)
        except threading.BrokenBarrierError:
            met.append(False)
        yield from answer(con, *given)

    patch.setattr(engine, "_answer", waiting)
    return met


def test_sixteen_threads_are_in_the_engine_at_once(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = read_together(session, monkeypatch, THREADS, PATIENCE)
    jobs = [lambda i=i: session.sql(COUNT.format(i / 2)).fetchall() for i in range(THREADS)]
    assert ask_at_once(*jobs) == [[(100 * (min(i // 2, 9) + 1),)] for i in range(THREADS)]
    assert len(met) >= THREADS
    assert all(met)
    assert spent(session) == 1000 * THREADS


def test_equal_questions_are_read_once(session: dpsql.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    met = read_together(session, monkeypatch, 2, 0.5)
    session.sql(COUNT.format(2))
    alone = len(met)
    found = ask_at_once(*[lambda: session.sql(COUNT.format(3)).fetchall()] * THREADS)
    assert found == [[(400,)]] * THREADS
    assert len(met) == 2 * alone > 0
    assert spent(session) == 2000


@pytest.mark.parametrize("text", [f"out << {COUNT}", f"{COUNT}; {COUNT} AND x < 11"])
def test_what_changes_the_session_is_read_alone(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    met = read_together(session, monkeypatch, 2, 0.3)
    ask_at_once(*(lambda i=i: session.sql(text.replace("{}", str(i))) for i in (1, 2)))
    assert not any(met)


def test_a_threshold_is_asked_alone(session: dpsql.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.sql("DECLARE alarm ABOVE_THRESHOLD OPTIONS (epsilon = 1000, max_hits = 5) 500")
    met = read_together(session, monkeypatch, 2, 0.3)
    asked = "SELECT WITH alarm OPTIONS (max_rows_contributed = 1) COUNT(*) AS above FROM t WHERE x <= {}"
    ask_at_once(*(lambda i=i: session.sql(asked.format(i)) for i in (8, 9)))
    assert met
    assert not any(met)


def test_closing_waits_for_what_is_read(session: dpsql.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, reading, go_on = inside.engine(session), threading.Event(), threading.Event()
    answer = engine._answer

    def waiting(*given: Any) -> Iterator[Any]:
        reading.set()
        go_on.wait(PATIENCE)
        yield from answer(*given)

    monkeypatch.setattr(engine, "_answer", waiting)
    found: list[Any] = []
    asking = threading.Thread(target=lambda: found.append(session.sql(COUNT.format(3)).fetchall()))
    asking.start()
    assert reading.wait(PATIENCE)
    closing = threading.Thread(target=session.close)
    closing.start()
    closing.join(0.3)
    assert closing.is_alive(), "it closed under a query"
    go_on.set()
    for thread in (asking, closing):
        thread.join(PATIENCE)
    assert found == [[(400,)]]


def test_a_broken_instance_is_replaced_for_all(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One session's internal error ends no other session's statement."""
    path = str(tmp_path / "data.duckdb")
    with duckdb.connect(path) as con:
        con.execute("CREATE TABLE t AS SELECT i AS u, i % 10 AS x FROM range(1000) r(i)")
    policy = dpsql.Policy.loads(POLICY.format(epsilon=10**9))
    with (
        dpsql.connect(path, policy=policy, ledger=None) as one,
        dpsql.connect(path, policy=policy, ledger=None) as two,
    ):
        first, second = inside.engine(one), inside.engine(two)
        assert first._instance is second._instance
        before, answer = first._instance, second._answer
        failures = [duckdb.FatalException("the instance is invalidated")]

        def broken(*given: Any) -> Iterator[Any]:
            if failures:
                raise failures.pop()
            yield from answer(*given)

        monkeypatch.setattr(second, "_answer", broken)
        assert two.sql(COUNT.format(3)).fetchall() == [(400,)]
        assert second._instance is not before
        assert one.sql(COUNT.format(4)).fetchall() == [(500,)]


def test_sessions_see_nothing_of_each_other(tmp_path: Any) -> None:
    path = str(tmp_path / "data.duckdb")
    with duckdb.connect(path) as con:
        con.execute("CREATE TABLE t AS SELECT i AS u, i % 10 AS x FROM range(1000) r(i)")
    policy = dpsql.Policy.loads(POLICY.format(epsilon=10**9))
    with (
        dpsql.connect(path, policy=policy, ledger=None) as one,
        dpsql.connect(path, policy=policy, ledger=None) as two,
    ):
        one.sql(f"secret << {COUNT.format(3)}; SELECT n + 1 FROM secret")
        with pytest.raises(dpsql.BindError, match="there is no table secret"):
            two.sql("SELECT n FROM secret")
        mine, other = inside.engine(one), inside.engine(two)
        mine._con.register("lent", mine._con.execute("SELECT 7 AS n").to_arrow_table())
        mine._con.execute("CREATE TEMP TABLE held AS SELECT 7 AS n")
        assert mine._con.execute("SELECT n FROM lent, held AS h(m)").fetchall() == [(7,)], "a control"
        for name in ("lent", "held"):
            with pytest.raises(duckdb.Error, match="does not exist"):
                other._con.execute(f"FROM {name}")
        seen = other._con.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal UNION ALL "
                                  "SELECT table_name FROM duckdb_tables() WHERE temporary").fetchall()  # fmt: skip
        assert not {("lent",), ("held",)} & set(seen)


CHILD = """
import sys, dpsql
from pathlib import Path
path, policy, sessions = sys.argv[1], dpsql.Policy.load(sys.argv[2]), int(sys.argv[3])
def ask():
    session = dpsql.connect(path, policy=policy, ledger=None)
    session.sql("SELECT x, COUNT(*) + 1 AS n FROM t GROUP BY x ORDER BY n LIMIT 3")
    return session
def measure():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20
kept = [ask()]
before = measure()
kept += [ask() for _ in range(sessions)]
print(measure() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux tells what memory it holds")
@pytest.mark.parametrize("sessions", [12, pytest.param(99, marks=pytest.mark.stochastic)])
def test_many_sessions_take_little_more_than_one(tmp_path: Any, sessions: int) -> None:
    """200 MB for 100: what is kept open for several adds less than 72, and each session less than 1.2 MB."""
    path = str(tmp_path / "data.duckdb")
    with duckdb.connect(path) as con:
        con.execute("CREATE TABLE t AS SELECT i AS u, i % 10 AS x FROM range(1000) r(i)")
    text = POLICY.format(epsilon=10**9).replace("x = {", "x = { values = [0, 1, 2],")
    (tmp_path / "policy.toml").write_text(text)
    command = [sys.executable, "-c", CHILD, path, str(tmp_path / "policy.toml"), str(sessions)]
    taken = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert taken <= 72 + 1.2 * sessions, f"{taken:.0f} MB more for {sessions} sessions"
