"""Time and memory against rows: small and textual units beside plain DuckDB's ``COUNT(DISTINCT unit)``, at 1 to 30 million rows.

Run with ``pytest -m benchmark -s``; ``DPSQL_GROWTH=long`` adds 30 million rows, and 100 million in Parquet. Times are those of
one process, both sides in turn, the median of pairs; ``first`` is a session's first statement, which makes the units' codes.
Peaks are of the resident memory of two processes, one for each side, Python and what it imports included: what there was before
the statement is told beside them, for at a million rows it is most of it.
``python tests/benchmarks/test_growth.py [ROWS ...]`` prints one table, from 100,000 to 30 million rows on one and two threads,
in some minutes and 2 GB on disk: the ratios of times, with integer units, and of peaks from 3 million rows on.
Each figure of a test is added to the file that ``DPSQL_BENCHMARKS`` names, as a line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]
LONG = os.environ.get("DPSQL_GROWTH") == "long"
MILLIONS = (1, 3, 10, *((30,) if LONG else ()))
UNITS = {"integer": "unit", "text": "name"}
CASES = {
    "total": (
        "SELECT COUNT(*) AS n, SUM(amount) AS s FROM t",
        "SELECT COUNT(DISTINCT {unit}), COUNT(*), SUM(amount) FROM t",
    ),
    "10 keys": (
        "SELECT c10, COUNT(*) AS n, SUM(amount) AS s FROM t GROUP BY c10",
        "SELECT c10, COUNT(DISTINCT {unit}), COUNT(*), SUM(amount) FROM t GROUP BY c10",
    ),
    "private keys": (
        "SELECT c1k, COUNT(*) AS n FROM t GROUP BY c1k",
        "SELECT c1k, COUNT(DISTINCT {unit}), COUNT(*) FROM t GROUP BY c1k",
    ),
}
TARGET, TARGET_PEAK = 1.5, 1.2
POLICY = """
[budget]
epsilon = 1e6
delta = 1e-2
accountant = "basic"
default_epsilon = 1
default_delta = 1e-8
[tables.t]
{source}
privacy_unit = "{unit}"
max_rows_per_group = 20
max_groups = 3
[tables.t.columns]
c10 = {{ values = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] }}
amount = {{ bounds = [0, 100] }}
"""

_SIDES = """
import json, statistics, sys, time
given = json.loads(sys.argv[1])
import duckdb

def open_plain():
    con = duckdb.connect(config={"threads": given["threads"]})
    if given["database"]:
        con.execute("ATTACH '" + given["database"] + "' AS d (READ_ONLY)")
        con.execute("USE d")
    else:
        con.execute("CREATE VIEW t AS FROM '" + given["parquet"] + "'")
    con.execute("SET enable_progress_bar = false")
    con.execute("SET perfect_ht_threshold = 17")  # as the engine sets it, for both sides
    return lambda: con.execute(given["plain"]).fetchall()

def open_ours():
    import dpsql
    places = [given["database"]] if given["database"] else []
    session = dpsql.connect(
        *places, policy=dpsql.Policy.loads(given["policy"]), resources={"threads": given["threads"]}
    )
    return lambda: session.sql(given["ours"], fresh=True).fetchall()

def clock(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
"""

_TIMES = """
plain, ours = open_plain(), open_ours()
clock(plain)
first = clock(ours)
pairs = [(clock(plain), clock(ours)) for _ in range(given["times"])]
print(json.dumps({
    "plain": statistics.median(p for p, _ in pairs), "seconds": statistics.median(o for _, o in pairs),
    "ratio": statistics.median(o / p for p, o in pairs), "first": first,
}))
"""

_PEAK = """
call = open_plain() if given["side"] == "plain" else open_ours()
before = peak()
call(), call()
print(json.dumps((peak(), before)))
"""


def run(script: str, given: Mapping[str, object]) -> Any:
    """Run a script in a process of its own, and return what it prints."""
    command = [sys.executable, "-c", _SIDES + script, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def make_rows(con: duckdb.DuckDBPyConnection, rows: int, more: str = "") -> None:
    """Make a table with ten rows a unit on average, units by numbers and by names."""
    con.execute("SET memory_limit = '4GiB'; SET preserve_insertion_order = false")
    con.execute(
        f"CREATE TABLE people AS SELECT i AS unit, CAST(uuid() AS VARCHAR) AS name FROM range({rows // 10}) AS r(i)"
    )
    con.execute(
        f"""CREATE TABLE t AS SELECT unit, name, i % 10 AS c10, (i * 7919) % 1009 AS c1k, amount{more} FROM
        (SELECT i, hash(i) % {rows // 10} AS u, CAST(hash(i + 1) % 101 AS INTEGER) AS amount FROM range({rows}) AS r(i))
        JOIN people ON unit = u"""
    )
    con.execute("DROP TABLE people")


@pytest.fixture(scope="module", params=MILLIONS, ids="{}M".format)
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("growth") / "data.duckdb"
    rows = request.param * 1_000_000
    with duckdb.connect(str(path)) as con:
        make_rows(con, rows)
    yield str(path), rows
    path.unlink()


def compare(name: str, given: Mapping[str, object], rows: int) -> None:
    """Measure, print and note one case."""
    times = run(_TIMES, given)
    peaks, before = {}, {}
    for side in ("ours", "plain"):
        peaks[side], before[side] = run(_PEAK, {**given, "side": side})
    record = {
        "name": name, "ratio": times["ratio"], "target": TARGET, "seconds": times["seconds"], "plain": times["plain"],
        "first": times["first"], "peak": peaks["ours"], "plain_peak": peaks["plain"], "target_peak": TARGET_PEAK,
        "imported": before["ours"], "plain_imported": before["plain"],
        "rows": rows, "threads": given["threads"],
    }  # fmt: skip
    print(
        f"\n{name}, {rows // 10**6}M rows, {given['threads']} threads: {times['ratio']:.2f}x (target {TARGET}), "
        f"{times['seconds']:.3f}s / {times['plain']:.3f}s, first {times['first'] / times['plain']:.2f}x, peak "
        f"{peaks['ours'] / 2**20:.0f} / {peaks['plain'] / 2**20:.0f} MiB, {peaks['ours'] / peaks['plain']:.2f}x "
        f"(target {TARGET_PEAK}), of which {before['ours'] / 2**20:.0f} / {before['plain'] / 2**20:.0f} before"
    )
    if place := os.environ.get("DPSQL_BENCHMARKS"):
        with open(place, "a") as file:
            file.write(json.dumps(record) + "\n")
    assert times["ratio"] < 20


@pytest.mark.parametrize("threads", sorted({1, min(2, os.cpu_count() or 1)}))
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("unit", UNITS)
def test_growth(database: tuple[str, int], unit: str, case: str, threads: int) -> None:
    path, rows = database
    ours, plain = CASES[case]
    given = {
        "database": path, "threads": threads, "policy": POLICY.format(unit=UNITS[unit], source=""), "ours": ours,
        "plain": plain.format(unit=UNITS[unit]), "times": 5 if rows < 10**7 else 3,
    }  # fmt: skip
    compare(f"growth, {unit} units, {case}", given, rows)


@pytest.mark.parametrize("millions", [3, *((100,) if LONG else ())])
def test_thirty_columns_of_which_two_are_read(millions: int, tmp_path: Path) -> None:
    """Parquet with row groups and dictionaries of texts, as it is written by most programs."""
    rows, place = millions * 10**6, tmp_path / "wide.parquet"
    wide = "".join(f", hash(i + {j}) % 1000 AS w{j}" for j in range(25))
    with duckdb.connect(str(tmp_path / "made.duckdb")) as con:
        make_rows(con, rows, wide)
        con.execute(f"COPY t TO '{place}' (FORMAT parquet, ROW_GROUP_SIZE 122880, COMPRESSION zstd)")
    (tmp_path / "made.duckdb").unlink()
    for case, (ours, plain) in CASES.items():
        if case == "total":  # it reads the unit alone, and the amount
            continue
        given = {
            "database": "", "parquet": str(place), "threads": min(2, os.cpu_count() or 1), "ours": ours,
            "plain": plain.format(unit="name"), "times": 3,
            "policy": POLICY.format(unit="name", source=f"source = '{place}'"),
        }  # fmt: skip
        compare(f"growth, Parquet of 30 columns, text units, {case}", given, rows)


# -- one table, by hand ----------------------------------------------------------------------------------------------

_ROWS = (10**5, 10**6, 3 * 10**6, 10**7, 3 * 10**7)
_MEMORY_FROM = 3 * 10**6
_PAIRS = {10**5: 15, 10**6: 9, 3 * 10**6: 5}


def measure_line(path: str, rows: int, threads: int) -> list[str]:
    """Return the cells of one line: a ratio of times for each statement, and the ratio of the peaks."""
    cells = []
    for ours, plain in CASES.values():
        given = {
            "database": path,
            "threads": threads,
            "policy": POLICY.format(unit="unit", source=""),
            "ours": ours,
            "plain": plain.format(unit="unit"),
            "times": _PAIRS.get(rows, 3),
        }
        cell = f"{run(_TIMES, given)['ratio']:.2f}"
        if rows >= _MEMORY_FROM and threads > 1:
            peaks = [run(_PEAK, {**given, "side": side})[0] for side in ("ours", "plain")]
            cell += f" ({peaks[0] / peaks[1]:.2f})"
        cells.append(cell)
    return cells


def main() -> None:
    start = time.monotonic()
    print("time (memory) over plain DuckDB's; goals 1.5 (1.2)")
    print(f"{'rows':>12} {'threads':>8} " + " ".join(f"{case:>14}" for case in CASES))
    with tempfile.TemporaryDirectory() as folder:
        for rows in map(int, sys.argv[1:] or _ROWS):
            path = Path(folder) / f"{rows}.duckdb"
            with duckdb.connect(str(path)) as con:
                make_rows(con, rows)
            for threads in (1, 2):
                cells = measure_line(str(path), rows, threads)
                print(f"{rows:>12,} {threads:>8} " + " ".join(f"{cell:>14}" for cell in cells), flush=True)
            path.unlink()
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
