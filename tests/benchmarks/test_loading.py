"""The time that ``%load_ext dpsql`` adds to a notebook that has DuckDB, sqlglot and IPython already."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.benchmarks import Benchmarks, Figure

MEASURE = """
import time
import duckdb, sqlglot, IPython
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
began = time.perf_counter()
shell.run_line_magic("load_ext", "dpsql")
print(time.perf_counter() - began)
"""


def time_starts(script: str, folder: Path) -> float:
    """Return the median of the seconds that a script prints last, each time in a new process."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", script]
    return statistics.median(
        float(
            subprocess.run(
                command, capture_output=True, text=True, check=True, env=environment, cwd=folder
            ).stdout.splitlines()[-1]
        )
        for _ in range(5)
    )


@pytest.mark.benchmark
def test_loading_adds_little(benchmarks: Benchmarks, tmp_path: Path) -> None:
    seconds = time_starts(MEASURE, tmp_path)
    benchmarks.note(Figure("W12 %load_ext dpsql", seconds, 0.35, unit="s"))
    assert seconds < 0.35


CLIENT = """
import time
began = time.process_time()
import dpsql
import dpsql.client.connect, dpsql.client.remote_session
from pyarrow import flight
print(time.process_time() - began)
"""


@pytest.mark.benchmark
def test_a_client_loads_little(benchmarks: Benchmarks, tmp_path: Path) -> None:
    seconds = time_starts(CLIENT, tmp_path)
    benchmarks.note(Figure("a client of a server, up to its first message", seconds, 0.3, unit="s"))
    assert seconds < 0.3


@pytest.mark.benchmark
def test_a_result_is_cheap(benchmarks: Benchmarks) -> None:
    import time

    import pyarrow as pa

    from dpsql.session.result import Result

    table = pa.table({"n": [1240]})
    began = time.perf_counter()
    for _ in range(100):
        repr(Result(table, intervals={"n": [(1210.0, 1270.0)]}))
    each = (time.perf_counter() - began) / 100
    benchmarks.note(Figure("building and showing a result of one row", each * 1e3, 20, unit="ms"))
    assert each < 0.02
