"""The cursor that columns of numbers stream from: narrow decimals there, and nothing else than before everywhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from dpsql.engine.duckdb import DuckDBEngine, ask_for_narrow_decimals
from dpsql.policy.model import Budget, Policy, Table

TEXT = "CAST(CASE WHEN range % 5 > 0 THEN range / 100 END AS DECIMAL({}, 2)) AS {}"
COLUMNS = f"{TEXT.format(9, 's')}, {TEXT.format(18, 'm')}, {TEXT.format(30, 'w')}"
ROWS = f"SELECT range AS u, {COLUMNS}, 'a'::BLOB AS b FROM range(5000)"
NARROW = {"s": pa.decimal32(9, 2), "m": pa.decimal64(18, 2)} if hasattr(pa, "decimal64") else {}
WIDE = {"s": pa.decimal128(9, 2), "m": pa.decimal128(18, 2), "w": pa.decimal128(30, 2)}
POLICY = Policy(Budget(1), {"t": Table("t", privacy_unit="u")})
Open = Callable[[], DuckDBEngine]


@pytest.fixture(params=["attached", "registered", "file", "frame"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Yield what opens an engine of the same rows."""
    kind, engines = request.param, list[DuckDBEngine]()
    with duckdb.connect(str(tmp_path / "t.duckdb") if kind == "file" else ":memory:") as con:
        con.execute(f"CREATE {'TABLE' if kind != 'registered' else 'TEMP TABLE'} t AS {ROWS}")
        given: Any = {"t": con.sql("FROM t").to_arrow_table()} if kind == "frame" else con
        if kind == "file":
            con.close()
            given = tmp_path / "t.duckdb"

        def engine() -> DuckDBEngine:
            engines.append(DuckDBEngine(given, POLICY, tmp_path))
            return engines[-1]

        engine.kind = kind  # type: ignore[attr-defined]
        yield engine
        for one in engines:
            one.close()


def ask(engine: DuckDBEngine, column: str) -> str:
    return f"SELECT {column} AS x FROM {engine.relation(POLICY.tables['t'])}"


def read(parts: Iterator[pa.Table]) -> pa.ChunkedArray:
    return pa.concat_tables(parts).column(0)


def test_the_same_numbers_in_fewer_bits(opened: Open) -> None:
    engine = opened()
    alone = opened.kind == "registered"  # type: ignore[attr-defined]
    for column in ("s", "m", "w"):
        whole, numbers = (
            engine.execute(ask(engine, column)).column(0),
            read(engine.numbers(ask(engine, column))),
        )
        assert whole.type == read(engine.batches(ask(engine, column))).type == WIDE[column]
        assert numbers.type == (whole.type if alone else NARROW.get(column, whole.type))
        assert sorted(numbers.drop_null().to_pylist()) == sorted(whole.drop_null().to_pylist())
        assert numbers.null_count == whole.null_count == 1000
    assert engine.execute(ask(engine, "b")).schema.field("x").type == pa.binary()


def test_who_comes_meanwhile_gets_them_otherwise(opened: Open) -> None:
    """Two columns at once, and more sessions than there are cursors: the numbers are the same."""
    engine = opened()
    if opened.kind != "registered":  # type: ignore[attr-defined]  # there all queries wait for one connection
        first = engine.numbers(ask(engine, "m"))
        part = next(first)
        other = read(engine.numbers(ask(engine, "m")))
        assert other.type == WIDE["m"]
        mine = read(iter([part, *first])).drop_null().to_pylist()
        assert sorted(mine) == sorted(other.drop_null().to_pylist())
    for _ in range(4):
        more = opened()
        assert read(more.numbers(ask(more, "s"))).null_count == 1000
        assert more.execute(ask(more, "s")).column(0).type == WIDE["s"]


def test_an_owner_s_connection_is_left_alone(tmp_path: Path) -> None:
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE t AS {ROWS}")
        engine = DuckDBEngine(con, POLICY, tmp_path)
        read(engine.numbers(ask(engine, "m")))
        assert con.sql("SELECT m FROM t").to_arrow_table().column(0).type == WIDE["m"]
        assert con.cursor().sql("SELECT m FROM t").to_arrow_table().column(0).type == WIDE["m"]
        engine.close()


def test_a_connection_whose_settings_are_locked(tmp_path: Path) -> None:
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE t AS {ROWS}")
        con.execute("SET lock_configuration = true")
        assert not ask_for_narrow_decimals(con.cursor())
        engine = DuckDBEngine(con, POLICY, tmp_path)
        assert read(engine.numbers(ask(engine, "m"))).type == WIDE["m"]
        engine.close()
