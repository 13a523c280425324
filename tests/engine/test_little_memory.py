"""More rows than memory holds: every kind of statement ends, in a process that stays small. Each run is a process."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

import dpsql
from tests.support import inside
from tests.support.own_process import read_found, run_apart

POLICY = """
budget = { epsilon = 1e9, delta = 0.5, accountant = "basic", default_delta = 1e-6 }
[tables]
visits = { source = "part*.parquet", privacy_unit = "unit", max_rows = 8, columns.unit = { type = "UBIGINT" }, \
    columns.item = { type = "INTEGER" }, columns.amount = { type = "DOUBLE", bounds = [0, 40] }, \
    columns.note = { type = "VARCHAR" } }
prices = { public = true, source = "prices.parquet" }
"""
PTR = "SELECT WITH PTR OPTIONS (max_rows_contributed = 2, epsilon = 100)"
BLOCKS = "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 100, bounds = (0, 40), {more}combine = 'mean')"
STATEMENTS = {
    "AVG": "SELECT WITH DP OPTIONS (epsilon = 100) COUNT(*), SUM(amount), AVG(amount) FROM visits",
    "MEDIAN": "SELECT WITH DP OPTIONS (epsilon = 100) MEDIAN(amount) FROM visits",
    "COUNT(DISTINCT)": "SELECT WITH DP OPTIONS (epsilon = 100) COUNT(DISTINCT note) FROM visits",
    "groups": "SELECT WITH DP OPTIONS (max_groups_contributed = 3, epsilon = 100) item, COUNT(*) AS n FROM visits GROUP BY item",
    "groups of texts": (
        "SELECT WITH DP OPTIONS (max_groups_contributed = 3, epsilon = 1) note, COUNT(*) AS n FROM visits "
        "GROUP BY note ORDER BY n DESC"
    ),
    "EXPMECH": (
        "SELECT price, EXPMECH(price * COUNT(*) FILTER (WHERE amount >= price), epsilon => 100) OVER prices FROM visits"
    ),
    "IQR": f"{PTR} IQR(amount) FROM visits",
    "MODE": f"{PTR} MODE(note) FROM visits",
    "QUANTILE": f"{PTR} QUANTILE_DISC(amount, 0.5) FROM visits",
    "blocks of AVG": f"{BLOCKS.format(more='')} AVG(amount) FROM visits",
    "blocks of MEDIAN": f"{BLOCKS.format(more='')} MEDIAN(amount) FROM visits",
}
ONE_PASS = ("blocks of AVG",)
"""The cases that need no more memory than they have answers: nothing of them is spilled."""


def generated(folder: Path, rows: int, files: int, group: int = 122_880) -> int:
    """Parquet of rows with a text of their own, four to a unit; gives its bytes."""
    size = 0
    with duckdb.connect() as con:
        for i in range(files):
            path = folder / f"part{i}.parquet"
            con.execute(
                f"COPY (SELECT hash(i, 1) % {rows // 4} AS unit, (hash(i, 2) % {rows // 120})::INTEGER AS item, "
                "(hash(i, 3) % 4000) / 100.0::DOUBLE AS amount, IF(i % 50 = 0, 'often', md5(i::VARCHAR)) AS note "
                f"FROM range({i * rows // files}, {(i + 1) * rows // files}) AS s(i)) "
                f"TO '{path}' (ROW_GROUP_SIZE {group})"
            )
            size += path.stat().st_size
        # no CSV: to read one takes more than the least limits here leave DuckDB 1.5
        con.execute(
            f"COPY (SELECT i / 10 AS price FROM range(1, 401) AS s(i)) TO '{folder / 'prices.parquet'}'"
        )
    (folder / "policy.toml").write_text(POLICY)
    return size


def asked(folder: Path, rows: int, limit: int, names: list[str], more: int) -> None:
    """Each statement ends, spills, is right, and leaves the process below ``limit`` and ``more`` above what it began with."""
    statements = {name: STATEMENTS[name] for name in names}
    done = run_apart(folder, folder / "policy.toml", limit, statements)
    assert done.returncode == 0, done.stderr[:2000]
    found = read_found(done)
    for name, one in found.items():
        mib = {key: one[key] >> 20 for key in ("spilled", "peak")}
        print(f"{limit >> 20} MiB, {name}: {one['seconds']} s, {mib} MiB, {one['rows']} rows, {one['row']}")
    right = {
        "AVG": lambda row: abs(int(row[0]) - rows) < 0.03 * rows and abs(float(row[2]) - 20) < 0.2,
        "MEDIAN": lambda row: abs(float(row[0]) - 20) < 0.5,
        "COUNT(DISTINCT)": lambda row: abs(int(row[0]) - 0.97 * rows) < 0.03 * rows,
        "groups": lambda row: 30 < int(row[1]) < 200,
        "groups of texts": lambda row: row[0] == "often" and 0 < int(row[1]) < rows / 50,
        "EXPMECH": lambda row: abs(float(row[0]) - 20) < 1,
        "IQR": lambda row: abs(float(row[0]) - 20) < 2,
        "MODE": lambda row: row[0] == "often",
        "QUANTILE": lambda row: abs(float(row[0]) - 20) < 0.2,
        "blocks of AVG": lambda row: abs(float(row[0]) - 20) < 0.5,
        "blocks of MEDIAN": lambda row: abs(float(row[0]) - 20) < 1,
    }
    for name, one in found.items():
        assert one["row"], (name, one)
        assert "None" not in one["row"], (name, one)
        assert right[name](one["row"]), (name, one)
        assert one["peak"] < limit + more, (name, one)
        assert one["spilled"] > 0 or name.startswith("blocks"), (name, one)
        assert not (one["spilled"] and name in ONE_PASS), (name, one)


def test_little_memory(tmp_path: Path) -> None:
    """A short form: what was wanting, with a limit of 32 MiB over rows that take 40 when they are read, and more once they
    are sorted beside their hashes."""
    generated(tmp_path, 600_000, 2, 20_000)
    names = ["MEDIAN", "COUNT(DISTINCT)", "groups", "MODE", "blocks of MEDIAN"]
    asked(tmp_path, 600_000, 32 << 20, names, 80 << 20)


def test_a_limit_that_nothing_fits_says_nothing_of_the_data(tmp_path: Path) -> None:
    generated(tmp_path, 200_000, 2)
    resources = {
        "memory_limit": "8MiB", "threads": 1, "max_temp_directory_size": "1MiB", "temp_directory": str(tmp_path / "t"),
    }  # fmt: skip
    with dpsql.connect(policy=tmp_path / "policy.toml", resources=resources) as session:
        with pytest.raises(dpsql.EngineError) as caught:
            session.sql(STATEMENTS["COUNT(DISTINCT)"])
        assert "withheld" in str(caught.value)
        assert caught.value.__cause__ is None
        assert type(caught.value) is dpsql.EngineError, "what was wanting is not said"


def test_threads_go_with_the_memory_limit(tmp_path: Path) -> None:
    """A thread for each 256 MiB; those that were asked for are taken as they are."""
    generated(tmp_path, 1_200, 1)

    def threads(**resources: str | int) -> int:
        with dpsql.connect(policy=tmp_path / "policy.toml", resources=resources) as session:
            found = inside.engine(session).execute("SELECT current_setting('threads') AS n")
            return int(found.column("n")[0].as_py())

    there = os.cpu_count() or 1
    assert threads(memory_limit="300MiB") == 1 == threads(memory_limit="10MiB")
    assert threads(memory_limit="520MiB") == min(2, there)
    assert threads(memory_limit="10MiB", threads=2) == 2
