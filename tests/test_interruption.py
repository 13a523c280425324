"""The stop button at any line of a statement: what was reserved stays charged, once, and the session goes on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import duckdb
import pytest

import dpsql

POLICY = """
[budget]
epsilon = 100000
delta = 0.5
accountant = "basic"
default_epsilon = 1
default_delta = 1e-6
[tables.t]
privacy_unit = "u"
max_rows = 1
max_groups = 1
[tables.t.columns]
x = { bounds = [0, 10] }
k = { values = [0, 1, 2] }
"""
ROOM = Path(dpsql.__file__).parent
STATEMENTS = [
    "SELECT k, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY k",
    "WITH c(v) AS (VALUES (1), (5)) SELECT v, EXPMECH(COUNT(*) FILTER (WHERE x >= v)) OVER c FROM t",
]
WATCHED = (
    "session.py",
    "pipeline.py",
    "stored_blocks.py",
    "session_state.py",
    "plan.py",
    "mechanisms/aggregation.py",
    "mechanisms/fast/packed_aggregation.py",
    "mechanisms/selection/exponential.py",
)


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


LINE = str(ROOM / "pipeline.py")
"""Its ``release`` calls the operator's, and never holds what that reads."""
FILES = {str(ROOM / name) for name in WATCHED}


@pytest.fixture
def session() -> Iterator[dpsql.Session]:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT i AS u, i % 11 AS x, i % 3 AS k FROM range(200) r(i)")
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
            yield session


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
        at += 3
    assert stopped > 20
    assert kept > 3
    assert session.sql(STATEMENTS[0].replace("AS n", "AS last")).shape == (3, 3)
