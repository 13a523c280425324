"""Fields of text files, and values of other sources, in the types that the policy declares."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

import dpsql
from dpsql.engine.duckdb import DuckDBEngine
from dpsql.engine.text_sources import write_text_cast
from dpsql.owner.policy_check import check_policy

TEXTS: dict[str, int | None] = {
    "12": 12, "-7": -7, " 7 ": 7, "+7": 7, "007": 7, "12.0": 12, "12.": 12, "-3.00": -3, "1e3": 1000, "1.5e3": 1500, "0x1F": 31,
    "0x1E": 30, "9007199254740993.0": 9007199254740993, "12.5": None, "-0.5": None, ".5": None, "15e-1": None, "1.0001e3": None,
    "9007199254740993.5": None, "1e30": None, "9.9e400": None, "": None, ".": None, "e": None, "x": None, "1.5.2": None,
}  # fmt: skip


def test_a_number_with_a_fraction_is_no_whole_number() -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (v VARCHAR)")
        con.executemany("INSERT INTO t VALUES (?)", [[text] for text in TEXTS])
        found = dict(con.execute(f"SELECT v, {write_text_cast('v', 'BIGINT')} FROM t").fetchall())
        assert found == TEXTS
        narrow = dict(con.execute(f"SELECT v, {write_text_cast('v', 'UTINYINT')} FROM t").fetchall())
        assert narrow == {t: v if v is not None and 0 <= v < 256 else None for t, v in TEXTS.items()}
        ((wide,),) = con.execute(f"SELECT {write_text_cast(repr('1e30'), 'HUGEINT')}").fetchall()
        assert wide == 10**30


VALUES = [1.0, 12.5, -3.0, 1e15, 0.5]
WHOLE = [1, None, -3, 10**15, None]
UNITS = list(range(len(VALUES)))


def _write_csv(folder: Path) -> str:
    rows = "".join(f"{i},{value}\n" for i, value in zip(UNITS, VALUES, strict=True))
    (folder / "v.csv").write_text(f"unit,x\n{rows}")
    return "v.csv"


def _write_json(folder: Path) -> str:
    rows = [json.dumps({"unit": i, "x": value}) for i, value in zip(UNITS, VALUES, strict=True)]
    (folder / "v.jsonl").write_text("\n".join(rows))
    return "v.jsonl"


def _write_parquet(kind: pa.DataType) -> Callable[[Path], str]:
    def write(folder: Path) -> str:
        table = pa.table({"unit": UNITS, "x": pa.array(VALUES).cast(kind)})
        pyarrow.parquet.write_table(table, folder / "v.parquet")
        return "v.parquet"

    return write


SOURCES: dict[str, Callable[[Path], str]] = {
    "csv": _write_csv,
    "jsonl": _write_json,
    "parquet, DOUBLE": _write_parquet(pa.float64()),
    "parquet, DECIMAL": _write_parquet(pa.decimal128(30, 2)),
    "parquet, VARCHAR": _write_parquet(pa.string()),
}
FRAMES: dict[str, Callable[[], Any]] = {
    "numbers": lambda: pd.DataFrame({"unit": UNITS, "x": VALUES}),
    "objects": lambda: pd.DataFrame({"unit": UNITS, "x": pd.Series(VALUES, dtype=object)}),
    "arrow": lambda: pa.table({"unit": UNITS, "x": np.array(VALUES)}),
}
POLICY = "[budget]\nepsilon = 1e9\ndefault_epsilon = 1e6\n[tables.v]\n{}privacy_unit = 'unit'\nmax_rows = 1\n[tables.v.columns]\n"
TYPED = "unit = { type = 'BIGINT' }\nx = { type = 'BIGINT' }\n"


@pytest.mark.parametrize("kind", [*SOURCES, *FRAMES])
def test_a_column_of_whole_numbers_rounds_nothing(tmp_path: Path, kind: str) -> None:
    source = f"source = '{SOURCES[kind](tmp_path)}'\n" if kind in SOURCES else ""
    policy = dpsql.Policy.loads(POLICY.format(source) + TYPED)
    given: Any = ":memory:" if source else {"v": FRAMES[kind]()}
    engine = DuckDBEngine(given, policy, tmp_path)
    table = engine.execute(f"SELECT x FROM {engine.relation(policy.tables['v'])} ORDER BY unit")
    engine.close()
    assert table["x"].to_pylist() == WHOLE


def test_the_check_of_the_policy_counts_them(tmp_path: Path) -> None:
    _write_csv(tmp_path)
    (tmp_path / "p.toml").write_text(POLICY.format("source = 'v.csv'\n") + TYPED)
    for rows in (False, True):
        found = str(check_policy(tmp_path / "p.toml", rows=rows))
        assert "v.x: at least a quarter of its values" in found
        assert "Nothing is missing" not in found
    with dpsql.connect(policy=tmp_path / "p.toml") as session:
        assert session.sql("SELECT COUNT(*), COUNT(x) FROM v").fetchone() == (5, 3)
