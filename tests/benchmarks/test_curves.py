"""Time and memory as rows and threads grow, beside plain DuckDB and beside one scan of the columns that are read.

Each point is made of three processes: one times the statement, the plain query and the scan in turn; one answers the statement
alone, and one the plain query alone, for the peaks of memory. ``DPSQL_BENCHMARKS=build/growth.json pytest -m benchmark -s
tests/benchmarks/test_curves.py`` adds a line for each, of which ``notebooks/make_growth.py`` draws the pictures of the
documentation. ``DPSQL_MILLIONS`` names the millions of rows (by default 1, 3, 10, 30), ``DPSQL_GROWTH_FOLDER`` a folder where the
databases stay for further runs.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.support.benchmarks import note_pairs

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]
MILLIONS = [int(part) for part in os.environ.get("DPSQL_MILLIONS", "1,3,10,30").split(",")]
THREADS = sorted({1, 2, os.cpu_count() or 1}) if (os.cpu_count() or 1) > 1 else [1]
WIDEST = 10
"""The millions of rows over which threads are compared; all else has as many as the machine."""
POLICY = """
budget = { epsilon = 1e6, delta = 1e-2, accountant = "basic", default_epsilon = 1, default_delta = 1e-6 }
[tables]
integers = { source = "visits", privacy_unit = "number", max_rows_per_group = 20, max_groups = 3, \
    columns.c10.values = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], columns.amount.bounds = [0, 100] }
texts = { source = "visits", privacy_unit = "text", max_rows_per_group = 20, max_groups = 3, \
    columns.c10.values = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], columns.amount.bounds = [0, 100] }
"""
CASES = {
    "total": (
        "SELECT COUNT(*), SUM(amount), AVG(amount) FROM {table}",
        "SELECT COUNT(n), SUM(s) FROM (SELECT {unit}, COUNT(*) AS n, SUM(amount) AS s FROM visits GROUP BY {unit})",
        "SELECT {scan}, SUM(amount) FROM visits",
    ),
    "10 keys": (
        "SELECT c10, COUNT(*), SUM(amount) FROM {table} GROUP BY c10",
        "SELECT c10, COUNT(*), SUM(s) FROM (SELECT {unit}, c10, SUM(amount) AS s FROM visits GROUP BY {unit}, c10) GROUP BY c10",
        "SELECT {scan}, SUM(amount), SUM(c10) FROM visits",
    ),
    "private keys": (
        "SELECT c100k, COUNT(*) FROM {table} GROUP BY c100k",
        "SELECT c100k, COUNT(DISTINCT {unit}) FROM visits GROUP BY c100k",
        "SELECT {scan}, SUM(c100k) FROM visits",
    ),
}
UNITS = {
    "integers": {"table": "integers", "unit": "number", "scan": "SUM(number)"},
    "texts": {"table": "texts", "unit": "text", "scan": "SUM(strlen(text))"},
}
CHILD = """
import json, resource, sys, time
from pathlib import Path
import duckdb, dpsql
path, policy, threads, ours, plain, scan, sides = json.loads(sys.argv[1])
con = duckdb.connect(path, read_only=True, config={"threads": threads})
con.execute("SET perfect_ht_threshold = 17")
jobs = {"plain": lambda: con.sql(plain).fetchall(), "scan": lambda: con.sql(scan).fetchall()}
if "ours" in sides:
    session = dpsql.connect(path, policy=dpsql.Policy.loads(policy), ledger=None, resources={"threads": threads})
    jobs["ours"] = lambda: session.sql(ours, fresh=True)
def peak():
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage says is at least what the process had that began this one
        return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if sys.platform == "linux" else 1)
taken = {side: [] for side in sides}
for round in range(4 if len(sides) > 1 else 1):
    for side in sides:
        start = time.perf_counter()
        jobs[side]()
        taken[side].append(time.perf_counter() - start)
print(json.dumps({"seconds": {side: times[1:] or times for side, times in taken.items()}, "peak": peak()}))
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("DPSQL_GROWTH_FOLDER")
    return Path(given) if given else tmp_path_factory.mktemp("growth")


def write_visits(folder: Path, millions: int) -> Path:
    """Write so many visits, ten of each person on average, who has a number and a text."""
    path = folder / f"{millions}.duckdb"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with duckdb.connect(str(path)) as con:
            con.execute(
                f"CREATE TABLE visits AS SELECT number, md5(number::VARCHAR) AS text, c10, c100k, amount FROM "
                f"(SELECT (random() * {millions * 10**5})::BIGINT AS number, (random() * 10)::BIGINT % 10 AS c10, "
                f"(random() * 100000)::BIGINT AS c100k, random() * 120 AS amount FROM range({millions * 10**6}))"
            )
    return path


def ask(path: Path, threads: int, texts: tuple[str, ...], *sides: str) -> dict[str, object]:
    given = json.dumps([str(path), POLICY, threads, *texts, sides])
    done = subprocess.run([sys.executable, "-c", CHILD, given], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


POINTS = [(millions, THREADS[-1]) for millions in MILLIONS]
POINTS += [(WIDEST, threads) for threads in THREADS[:-1] if WIDEST in MILLIONS]


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("millions", "threads"), POINTS)
def test_growth(folder: Path, case: str, units: str, millions: int, threads: int) -> None:
    path = write_visits(folder, millions)
    texts = tuple(text.format(**UNITS[units]) for text in CASES[case])
    seconds = ask(path, threads, texts, "ours", "plain", "scan")["seconds"]
    peaks = {side: ask(path, threads, texts, side)["peak"] for side in ("ours", "plain")}
    note_pairs(
        f"growth, {case}, units are {units}, {millions} million rows, {threads} threads",
        seconds["ours"],
        seconds["plain"],
        case=case,
        units=units,
        rows=millions * 10**6,
        threads=threads,
        scan=statistics.median(seconds["scan"]),
        peak=peaks["ours"],
        plain_peak=peaks["plain"],
    )
