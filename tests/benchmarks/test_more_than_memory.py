"""1 GiB of memory over 10 GiB of Parquet, for every kind of statement. Each run is a process of its own.

It takes hours, 10 GiB of disk for the file and as much again for what is spilled, so it runs only where
``DPSQL_MORE_THAN_MEMORY`` names a folder for both: ``DPSQL_MORE_THAN_MEMORY=/big pytest -m benchmark -s
tests/benchmarks/test_more_than_memory.py``. The file is kept there for further runs, and removed by who asked for it.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import duckdb
import pytest

from tests.support.own_process import Run, run_at_most

FOLDER = os.environ.get("DPSQL_MORE_THAN_MEMORY")
pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.timeout(0),
    pytest.mark.skipif(FOLDER is None, reason="names no folder for a file of 10 GiB"),
]
ROWS, UNITS, ROWS_OF_A_FILE = 120_000_000, 10_800_000, 27_000_000
LIMIT, MORE = 1 << 30, 768 << 20
"""What DuckDB may take, and the process besides."""
SECONDS = float(os.environ.get("DPSQL_SECONDS", "600"))
"""A longer run is cut, and said to be."""
POLICY = """
[budget]
epsilon = 1e9
delta = 0.5
accountant = "basic"
default_delta = 1e-6
[tables.visits]
source = "part*.parquet"
version = "1"
privacy_unit = "unit"
max_rows_per_group = 20
max_groups = 5
COLUMNS
[tables.people]
source = "part*.parquet"
version = "1"
privacy_unit = "who"
max_rows_per_group = 20
max_groups = 5
COLUMNS
[tables.rows]
source = "part*.parquet"
version = "1"
privacy_unit = "ROW"
COLUMNS
[tables.prices]
public = true
source = "prices.parquet"
"""
COLUMNS = """
columns.unit = { type = "BIGINT" }
columns.who = { type = "VARCHAR" }
columns.item = { type = "INTEGER" }
columns.ward = { type = "INTEGER", values = WARDS }
columns.day = { type = "INTEGER", values = DAYS }
columns.amount = { type = "DOUBLE", bounds = [0, 40] }
columns.note = { type = "VARCHAR" }
""".replace("WARDS", str([*range(10)])).replace("DAYS", str([*range(365)]))
DP = "SELECT WITH DP OPTIONS (epsilon = 100)"
PTR = "SELECT WITH PTR OPTIONS (max_rows_contributed = 2, epsilon = 100)"
BLOCKS = "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 100, bounds = (0, 40), blocks = 128, combine = 'mean')"
GROUPS = "SELECT WITH DP OPTIONS (max_groups_contributed = 3, epsilon = {})"
STATEMENTS = {
    "COUNT, SUM, AVG by row": f"{DP} COUNT(*), SUM(amount), AVG(amount) FROM rows",
    "COUNT, SUM, AVG by unit": f"{DP} COUNT(*), SUM(amount), AVG(amount) FROM visits",
    "COUNT, SUM, AVG by a text unit": f"{DP} COUNT(*), SUM(amount), AVG(amount) FROM people",
    "10 public groups": f"{DP} ward, COUNT(*) AS n, SUM(amount) AS s FROM visits GROUP BY ward",
    "10 public groups by a text unit": f"{DP} ward, COUNT(*) AS n, SUM(amount) AS s FROM people GROUP BY ward",
    "MEDIAN": f"{DP} MEDIAN(amount) FROM visits",
    "five quantiles": f"{DP} QUANTILE_CONT(amount, [0.1, 0.25, 0.5, 0.75, 0.9]) AS q FROM visits",
    "128 blocks of AVG": f"{BLOCKS} AVG(amount) FROM visits",
    "EXPMECH, 400 candidates": (
        "SELECT price, EXPMECH(price * COUNT(*) FILTER (WHERE amount >= price), epsilon => 100) OVER prices FROM visits"
    ),
    "ABOVE_THRESHOLD, 400 candidates": (
        "SELECT price, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE amount <= price), 60000000, epsilon => 100) OVER prices FROM visits"
    ),
    "GROUPING SETS": (
        f"{DP} ward, day, COUNT(*) AS n FROM visits GROUP BY GROUPING SETS ((ward, day), (ward), (day), ())"
    ),
    "running totals of 365 days": (
        f"{DP} day, COUNT(*) AS n, SUM(COUNT(*)) OVER (ORDER BY day) AS upto FROM visits GROUP BY day"
    ),
    "100,000 private groups": f"{GROUPS.format(100)} item, COUNT(*) AS n FROM visits GROUP BY item",
    "100,000 private groups by a text unit": f"{GROUPS.format(100)} item, COUNT(*) AS n FROM people GROUP BY item",
    "128 blocks of MEDIAN": f"{BLOCKS} MEDIAN(amount) FROM visits",
    "PTR MEDIAN": f"{PTR} MEDIAN(amount) FROM visits",
    "PTR MODE of 118 million texts": f"{PTR} MODE(note) FROM visits",
    "private groups of 118 million texts": (
        f"{GROUPS.format(1)} note, COUNT(*) AS n FROM visits GROUP BY note ORDER BY n DESC"
    ),
    "COUNT(DISTINCT) of 118 million texts": f"{DP} COUNT(DISTINCT note) FROM visits",
    "PTR IQR": f"{PTR} IQR(amount) FROM visits",
}
"""The most important first; what takes longest last."""


def write_data(folder: Path) -> None:
    """Write 10 GiB of texts and doubles that nothing makes shorter, eleven rows to a unit; a fiftieth of the texts are one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "policy.toml").write_text(POLICY.replace("COLUMNS", COLUMNS))
    with duckdb.connect() as con:
        con.execute("SET preserve_insertion_order = false")
        for number, first in enumerate(range(0, ROWS, ROWS_OF_A_FILE)):
            last = min(first + ROWS_OF_A_FILE, ROWS)
            if (path := folder / f"part{number}.parquet").exists():
                continue
            con.execute(
                "COPY (SELECT u AS unit, (hash(u, 8)::UHUGEINT * 18446744073709551616 + hash(u, 9))::UUID::VARCHAR AS who, "
                "(hash(i, 2) % 100000)::INTEGER AS item, (hash(i, 4) % 10)::INTEGER AS ward, (hash(i, 5) % 365)::INTEGER "
                "AS day, hash(i, 3) / 18446744073709551616.0::DOUBLE * 40 AS amount, "
                "IF(i % 50 = 0, 'often', uuid()::VARCHAR) AS note FROM "
                f"(SELECT i, (hash(i, 1) % {UNITS})::BIGINT AS u FROM range({first}, {last}) AS s(i))) TO '{path}'"
            )
        con.execute(
            f"COPY (SELECT i / 10 AS price FROM range(1, 401) AS s(i)) TO '{folder / 'prices.parquet'}'"
        )
    size = sum(path.stat().st_size for path in folder.glob("part*.parquet"))
    assert size > 9.9 * LIMIT, size


def run(folder: Path, name: str) -> Run:
    """Run one statement, and add a line of JSON to ``runs.jsonl`` in the folder."""
    found = run_at_most(
        folder, folder / "policy.toml", LIMIT, STATEMENTS[name], SECONDS, max_temp_directory_size="30GiB"
    )
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    record = {"name": name, **found.as_record(), "duckdb": duckdb.__version__, "when": when}
    with (folder / "runs.jsonl").open("a") as file:
        print(json.dumps(record), file=file)
    return found


@pytest.mark.parametrize("name", STATEMENTS)
def test_it_ends_in_a_tenth_of_the_memory(name: str) -> None:
    assert FOLDER is not None
    write_data(Path(FOLDER))
    found = run(Path(FOLDER), name)
    print(f"\n{name}: {found}")
    assert found.outcome in ("ended", "cut"), found
    assert found.peak < LIMIT + MORE, found
