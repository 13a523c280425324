"""What ``%load_ext dpsql`` adds to a notebook that has DuckDB, sqlglot and IPython already."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

MEASURE = """
import time
import duckdb, sqlglot, IPython
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
began = time.perf_counter()
shell.run_line_magic("load_ext", "dpsql")
print(time.perf_counter() - began)
"""


@pytest.mark.benchmark
def test_loading_adds_little(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    seconds = []
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", MEASURE],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            cwd=tmp_path,
        )
        seconds.append(float(done.stdout.splitlines()[-1]))
    with capsys.disabled():
        print(f"\n%load_ext dpsql: {statistics.median(seconds):.3f} s (target 0.35)")
    assert statistics.median(seconds) < 0.35


CLIENT = """
import time
began = time.process_time()
import dpsql
import dpsql.client.connect, dpsql.client.session
from pyarrow import flight
print(time.process_time() - began)
"""


@pytest.mark.benchmark
def test_a_client_loads_little(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    seconds = []
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", CLIENT],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            cwd=tmp_path,
        )
        seconds.append(float(done.stdout))
    with capsys.disabled():
        print(
            f"\na client of a server, up to its first message: {statistics.median(seconds):.3f} s (target 0.3)"
        )
    assert statistics.median(seconds) < 0.3


@pytest.mark.benchmark
def test_a_result_is_cheap(capsys: pytest.CaptureFixture[str]) -> None:
    import time

    import pyarrow as pa

    from dpsql.result import Result

    table = pa.table({"n": [1240]})
    began = time.perf_counter()
    for _ in range(100):
        repr(Result(table, intervals={"n": [(1210.0, 1270.0)]}))
    each = (time.perf_counter() - began) / 100
    with capsys.disabled():
        print(f"\nbuilding and showing a result of one row: {each * 1e3:.2f} ms")
    assert each < 0.02
