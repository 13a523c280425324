"""One table of time and memory from 100,000 to 30 million rows: ``python tests/benchmarks/growth.py [ROWS ...]``.

For each number of rows, on one and on two threads, it prints the ratio of the time of three statements, with integer units, to
plain DuckDB's ``COUNT(DISTINCT unit)`` (medians of pairs in turn). From 3 million rows on it also prints the ratio of the peaks
of resident memory, of two processes. The goals are 1.5 and 1.2. The whole takes some minutes, and 2 GB on disk.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import duckdb

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks import test_growth as growth

ROWS = (10**5, 10**6, 3 * 10**6, 10**7, 3 * 10**7)
FROM_HERE_MEMORY = 3 * 10**6
PAIRS = {10**5: 15, 10**6: 9, 3 * 10**6: 5}


def measure(path: str, rows: int, threads: int) -> list[str]:
    """Return the cells of one line: a ratio of times for each statement, and the ratio of the peaks."""
    cells = []
    for ours, plain in growth.CASES.values():
        given = {
            "database": path,
            "threads": threads,
            "policy": growth.POLICY.format(unit="unit", source=""),
            "ours": ours,
            "plain": plain.format(unit="unit"),
            "times": PAIRS.get(rows, 3),
        }
        cell = f"{growth.run(growth._TIMES, given)['ratio']:.2f}"
        if rows >= FROM_HERE_MEMORY and threads > 1:
            peaks = [growth.run(growth._PEAK, {**given, "side": side})[0] for side in ("ours", "plain")]
            cell += f" ({peaks[0] / peaks[1]:.2f})"
        cells.append(cell)
    return cells


def main() -> None:
    start = time.monotonic()
    print("time (memory) over plain DuckDB's; goals 1.5 (1.2)")
    print(f"{'rows':>12} {'threads':>8} " + " ".join(f"{case:>14}" for case in growth.CASES))
    with tempfile.TemporaryDirectory() as folder:
        for rows in map(int, sys.argv[1:] or ROWS):
            path = Path(folder) / f"{rows}.duckdb"
            with duckdb.connect(str(path)) as con:
                growth.make_rows(con, rows)
            for threads in (1, 2):
                cells = measure(str(path), rows, threads)
                print(f"{rows:>12,} {threads:>8} " + " ".join(f"{cell:>14}" for cell in cells), flush=True)
            path.unlink()
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
