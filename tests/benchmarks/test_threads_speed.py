"""Sixteen threads on one session: how much sooner they are answered together than in turn.

Run with ``pytest -m benchmark -s``.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import pytest

import dpsql
from tests.support.at_once import POLICY, ask_at_once
from tests.support.benchmarks import Benchmarks, Figure

pytestmark = pytest.mark.benchmark
THREADS, ROWS = 16, 1_000_000
LEAST_RATIO = 1.3
"""So many times as soon on two cores, each query in one thread of DuckDB's."""


def ask_in_turn(*jobs: Callable[[], object]) -> list[object]:
    return [job() for job in jobs]


def measure(ask: Callable[..., list[object]], jobs: Sequence[Callable[[], object]]) -> float:
    start = time.perf_counter()
    answers = ask(*jobs)
    taken = time.perf_counter() - start
    assert all(isinstance(answer, dpsql.Result) for answer in answers), answers
    return taken


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core answers in turn")
def test_threads_are_answered_together(tmp_path: Path, benchmarks: Benchmarks) -> None:
    path = str(tmp_path / "data.duckdb")
    with duckdb.connect(path) as con:
        con.execute(f"CREATE TABLE t AS SELECT hash(i) % 250000 AS u, i % 10 AS x FROM range({ROWS}) r(i)")
    policy = dpsql.Policy.loads(POLICY.format(epsilon=10**9))
    limits = iter(range(10**6))
    ratios = []
    with dpsql.connect(path, policy=policy, resources={"threads": 1}, ledger=None) as session:

        def make_jobs() -> list[Callable[[], object]]:
            texts = [f"SELECT SUM(x) AS s FROM t WHERE x * 7 <= {next(limits)}" for _ in range(THREADS)]
            return [lambda text=text: session.sql(text) for text in texts]

        ask_in_turn(*make_jobs())
        for _ in range(3):
            alone = measure(ask_in_turn, make_jobs())
            ratios.append(alone / measure(ask_at_once, make_jobs()))
    ratio = statistics.median(ratios)
    benchmarks.note(
        Figure(f"{THREADS} threads together, over in turn", 1 / ratio, 1 / LEAST_RATIO, rows=ROWS)
    )
    assert ratio >= LEAST_RATIO
