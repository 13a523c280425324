"""Binding the TPC-DS statements of the peers: milliseconds of CPU time, printed, and a ratio to parsing them.

Run with ``pytest -m benchmark -s``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import duckdb
import pytest

import dpsql
from dpsql.language.statements import parse
from tests.support import inside, peers
from tests.support.benchmarks import Benchmarks, Figure

pytestmark = pytest.mark.benchmark
TARGET = 50
"""Milliseconds for the slowest statement, on a machine with nothing else to do."""
MOST_RATIO = 12
"""So many times as long as reading its text may binding a statement take, at the median."""


def milliseconds(work: Callable[[], object]) -> float:
    """The least CPU time of several runs."""
    took = []
    for _ in range(5):
        start = time.process_time()
        work()
        took.append(time.process_time() - start)
    return min(took) * 1e3


def test_binding_tpcds(benchmarks: Benchmarks) -> None:
    """From the statement's tree to its plan and price; nothing runs, nothing is remembered."""
    found: dict[str, tuple[float, float]] = {}
    with duckdb.connect() as con:
        con.execute(peers.data_of("tpcds"))
        with dpsql.connect(con, policy=peers.policy_of("tpcds")) as session:
            for case in peers.cases():
                if case.suite == "tpcds" and case.verdict == peers.ANSWERED:
                    (statement,) = parse(case.text, case.params)
                    read = milliseconds(lambda case=case: parse(case.text, case.params))
                    bound = milliseconds(lambda statement=statement: inside.bind(session, statement).event)
                    found[str(case)] = read, bound
    times = [bound for _, bound in found.values()]
    ratio = statistics.median(bound / read for read, bound in found.values())
    print(
        f"\nbinding {len(times)} statements of TPC-DS: median {statistics.median(times):.1f} ms, worst {max(times):.1f} ms"
    )
    benchmarks.note(Figure("binding TPC-DS, over reading its text", ratio, MOST_RATIO))
    for name, (_, bound) in sorted(found.items(), key=lambda item: -item[1][1]):
        if bound > TARGET:
            print(f"above {TARGET} ms: {name}, {bound:.1f} ms")
    assert ratio <= MOST_RATIO
