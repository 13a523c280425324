"""Nothing exact stays in the kernel after an answer or a failure, however far the references go."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

import dpsql
from dpsql.engine.sandbox import Outcome
from tests.support.neighbours import CANARY, open_neighbours


def holders() -> list[str]:
    """Types of the objects, among all that the collector knows and their values, that hold the canary's text or rows."""
    found = []
    for thing in gc.get_objects():
        near = gc.get_referents(thing)
        untracked = [i for item in near if not gc.is_tracked(item) for i in gc.get_referents(item)]
        for item in (thing, *near, *untracked):
            if isinstance(item, pa.Table) and has_canary(item):
                found.append("table")
            elif isinstance(item, str) and item.startswith(f"exact {CANARY}"):
                found.append("text")
    return found


def has_canary(table: pa.Table) -> bool:
    """Whether a table's memory has the canary's text; other tests leave texts that aren't UTF-8."""
    chunks = (chunk for column in table.columns for chunk in column.chunks)
    buffers = (buffer for chunk in chunks for buffer in chunk.buffers() if buffer is not None)
    return any(CANARY.encode() in buffer.to_pybytes() for buffer in buffers)


@pytest.fixture
def session() -> Iterator[dpsql.Session]:
    given, without = open_neighbours()
    without.close()
    yield given
    given.close()


def test_an_answer_leaves_nothing_exact(session: dpsql.Session) -> None:
    kept = [session.sql("SELECT name, COUNT(*) FROM people GROUP BY name")]
    gc.collect()
    assert holders() == []
    assert len(kept) == 1


def test_a_failure_leaves_nothing_exact(session: dpsql.Session, monkeypatch: pytest.MonkeyPatch) -> None:

    def failed(*_: object) -> Outcome:
        asked.append(1)
        return Outcome(failure=ValueError, message="".join(["exact ", CANARY, " in a message"]))

    asked: list[int] = []
    monkeypatch.setattr("dpsql.engine.sandbox.run_interruptibly", failed)
    with pytest.raises(dpsql.EngineError) as caught:
        session.sql("SELECT COUNT(*) FROM people")
    sys.last_value = caught.value
    monkeypatch.undo()
    assert asked
    gc.collect()
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert holders() == []
    del sys.last_value


def test_the_search_finds_what_is_kept() -> None:
    kept = [pa.table({"name": [CANARY]}), {"message": "".join(["exact ", CANARY])}]
    assert {"table", "text"} <= set(holders())
    assert len(kept) == 2
