"""Blocks of AVG, VARIANCE, CORR and REGR_*: as plain DuckDB has them of each block's rows by itself, in any order of rows."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import duckdb
import pytest

import dpsql
from dpsql.mechanisms.base import SALT
from dpsql.mechanisms.subsample.blocks import LiftedBlocks
from tests.support import inside

POLICY = """
budget = { epsilon = 10, default_epsilon = 1 }
[tables]
t = { privacy_unit = "u", max_rows = 300, columns = { x = { bounds = [0, 100] }, y = { bounds = [-50, 50] } } }
"""
BLOCKS = 8
Row = tuple[int, float | None, float | None, int | None, str]


def make_rows() -> list[Row]:
    """Rows of few units, so that some blocks are empty; among them missing values, NaN and the infinities."""
    source = random.Random(5)
    rows: list[Row] = []
    x: float | None
    for _ in range(1500):
        x = source.uniform(0, 100)
        if source.random() < 0.03:
            x = source.choice([None, math.nan, math.inf, -math.inf])
        y = None if source.random() < 0.03 else source.gauss(0, 15)
        i = None if source.random() < 0.03 else source.randrange(-100, 100)
        rows.append((source.randrange(11), x, y, i, source.choice("abc")))
    return rows


def fill(con: duckdb.DuckDBPyConnection, rows: Sequence[Row]) -> None:
    listed = ", ".join(
        "({}, {}, {}, {}, '{}')".format(u, *("NULL" if v is None else f"'{v!r}'" for v in (x, y, i)), g)
        for u, x, y, i, g in rows
    )
    con.execute(
        "CREATE TABLE t AS SELECT u, x::DOUBLE AS x, y::DOUBLE AS y, i::INTEGER AS i, g, x::DOUBLE AS z, i::BIGINT AS b "
        f"FROM (VALUES {listed}) AS v(u, x, y, i, g)"
    )


def run(rows: Sequence[Row], items: str, salt: int = 12345) -> dict[int, tuple[object, ...]]:
    """Return the exact results of each block, as the plan's own text gives them."""
    with duckdb.connect() as con:
        fill(con, rows)
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
            text = f"SELECT WITH SUBSAMPLE OPTIONS (blocks = {BLOCKS}, bounds = (0, 10)) {items}"
            (block,) = inside.bind(session, text).blocks
            source = block.operator.source  # type: ignore[attr-defined]
            assert isinstance(source, LiftedBlocks)
            table = inside.reader(session)(source.query.replace(SALT, str(salt)))
            found = {row.pop("dpsql_block"): tuple(row.values()) for row in table.to_pylist()}
            return found


def find_block(unit: int, salt: int = 12345) -> int:
    with duckdb.connect() as con:
        (number,) = con.execute(f"SELECT hash(xor(CAST({unit} AS BIGINT), {salt})) >> 61").fetchone() or (0,)
        return int(number)


CALLS = [
    "AVG(x)", "AVG(i)", "VARIANCE(x)", "VAR_POP(y)", "STDDEV(i)", "STDDEV_POP(x)", "CORR(x, y)", "CORR(y, i)", "COVAR_POP(x, i)",
    "COVAR_SAMP(x, y)", "REGR_SLOPE(y, x)", "REGR_INTERCEPT(x, y)", "REGR_R2(x, i)", "REGR_AVGX(x, y)", "REGR_AVGY(x, y)",
    "VARIANCE(x) FILTER (WHERE i > 0)", "CORR(x, y) / STDDEV(x)", "AVG(x) + VARIANCE(2 * x - 1)", "VARIANCE(DISTINCT i)",
    "VARIANCE(z)", "STDDEV(b)", "CORR(z, y)", "REGR_INTERCEPT(b, z)", "VARIANCE(z) FILTER (WHERE i > 0)", "STDDEV(z) / AVG(z)",
    "VARIANCE(EXP(z / 20)) FILTER (WHERE y < 0 AND i > 90)", "STDDEV(z) + CORR(b, z) + COUNT(*) + VARIANCE(x) + MAX(i)",
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_each_block_is_as_duckdb_has_its_rows_alone_in_any_order(call: str) -> None:
    rows = make_rows()
    mine = run(rows, f"{call} AS m FROM t")
    places = {unit: find_block(unit) for unit in range(11)}
    assert set(mine) == set(range(BLOCKS))
    assert len(set(places.values())) < BLOCKS  # an empty block is among them
    for number in range(BLOCKS):
        kept = [row for row in rows if places[row[0]] == number]
        with duckdb.connect() as con:
            fill(con, kept or rows)
            finite = "CASE WHEN ISFINITE(x) THEN x END"
            clean = f"SELECT {finite} AS x, y, i, {finite} AS z, b FROM t" + ("" if kept else " WHERE FALSE")
            (theirs,) = con.execute(f"SELECT {call} FROM ({clean}) AS t").fetchone() or (None,)
        (value,) = mine[number]
        if theirs is None:
            assert value is None
        else:
            near = 1e-12 * (1000 if call.startswith("COVAR") else 10)
            assert value == pytest.approx(theirs, rel=1e-12, abs=near), number
    random.Random(1).shuffle(rows)
    assert run(rows, f"{call} AS m FROM t") == mine
    assert run(sorted(rows, key=repr), f"{call} AS m FROM t") == mine


def test_moments_below_other_aggregates_and_beside_them() -> None:
    """A group of which no row counts is a row all the same: how many groups there are is asked, too."""
    rows = [(u, None if g == "c" else x, y, i, g) for u, x, y, i, g in make_rows()]
    inner = "(SELECT g, STDDEV(x) AS s, CORR(x, y) AS r, COUNT(*) AS n FROM t GROUP BY g)"
    mine = run(
        rows, f"COUNT(*) AS k, COUNT(s) AS known, MAX(s) AS s, MIN(r) AS r, SUM(n) AS n FROM {inner} AS v"
    )
    full = {find_block(unit) for unit in range(11)}
    assert all((row[0], row[1]) == (3, 2) for number, row in mine.items() if number in full)
    assert all(row[0] == 0 for number, row in mine.items() if number not in full)
    random.Random(2).shuffle(rows)
    again = run(
        rows, f"COUNT(*) AS k, COUNT(s) AS known, MAX(s) AS s, MIN(r) AS r, SUM(n) AS n FROM {inner} AS v"
    )
    assert again == mine


def test_a_moment_of_moments() -> None:
    rows = make_rows()
    inner = "(SELECT g, CAST(ROUND(STDDEV(x)) AS INTEGER) AS s FROM t GROUP BY g)"
    mine = run(rows, f"STDDEV(s) AS m FROM {inner} AS v")
    random.Random(3).shuffle(rows)
    assert run(rows, f"STDDEV(s) AS m FROM {inner} AS v") == mine


def test_columns_of_constants_have_no_correlation() -> None:
    rows: list[Row] = [(u, 0.1, float(k), 7, "a") for u in range(40) for k in range(3)]
    for call, expected in (("CORR(x, y)", math.nan), ("REGR_SLOPE(y, i)", math.nan), ("VARIANCE(x)", 0.0)):
        values = [value for (value,) in run(rows, f"{call} AS m FROM t").values()]
        assert all(repr(value) == repr(expected) for value in values), call
    assert {value for (value,) in run(rows, "REGR_R2(x, y) AS m FROM t").values()} == {1.0}
