"""Blocks of AVG, VARIANCE, CORR and REGR_*: as plain DuckDB has them of each block's rows by itself, in any order of rows."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import duckdb
import pytest

import dpsql
from dpsql.binding.relations import exact_aggregates
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


@pytest.mark.parametrize(
    ("call", "added"),
    [
        ("CORR(x, i)", True),
        ("STDDEV(x + y)", True),
        ("VARIANCE(DISTINCT x)", False),
        ("VARIANCE(EXP(x))", True),
        ("CORR(z, b)", True),
        ("STDDEV(z) + COUNT(*)", True),
        ("VARIANCE(DISTINCT z)", False),
        ("MAX(s) AS s, MIN(r) AS r FROM (SELECT g, STDDEV(z) AS s, 1 AS r FROM t GROUP BY g) AS v --", False),
        ("STDDEV(s) AS s, MIN(s) AS r FROM (SELECT u, SUM(z) AS s FROM t GROUP BY u) AS v --", False),
    ],
)
def test_moments_are_not_sorted(call: str, added: bool) -> None:
    """What has declared bounds or few digits is added up, and what has neither where its rows may be read twice."""
    with duckdb.connect() as con:
        fill(con, make_rows()[:10])
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
            text = f"SELECT WITH SUBSAMPLE OPTIONS (blocks = 8, bounds = (0, 10)) {call} AS m FROM t"
            (block,) = inside.bind(session, text).blocks
            assert ("ORDER BY" not in block.operator.queries[0]) == added


def test_explain_tells_what_does_not_count() -> None:
    with duckdb.connect() as con:
        fill(con, make_rows()[:10])
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
            start = "SELECT WITH SUBSAMPLE OPTIONS (blocks = 8, bounds = (0, 10))"
            told = str(session.explain(f"{start} CORR(x, i) AS m FROM t"))
            assert "CORR: numbers farther than 1,024 from 50 count as missing." in told
            assert "count as missing" not in str(session.explain(f"{start} CORR(i, i) AS m FROM t"))


def test_engines_without_wide_integers_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    with duckdb.connect() as con:
        fill(con, make_rows()[:10])
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
            monkeypatch.setattr(inside.engine(session), "wide_integers", False)
            for call in ("CORR(x, i)", "CORR(z, b)"):
                text = f"SELECT WITH SUBSAMPLE OPTIONS (blocks = 8, bounds = (0, 10)) {call} AS m FROM t"
                (block,) = inside.bind(session, text).blocks
                assert "ORDER BY" in block.operator.queries[0]


def test_a_long_query_is_not_written_for_each_of_many_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    with duckdb.connect() as con:
        fill(con, make_rows()[:10])
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
            text = "SELECT WITH SUBSAMPLE OPTIONS (blocks = 8, bounds = (0, 10)) STDDEV(z) + VARIANCE(b) AS m FROM t"
            (block,) = inside.bind(session, text).blocks
            assert "ORDER BY" not in block.operator.queries[0]
            monkeypatch.setattr(exact_aggregates, "_LONGEST", 500)
            (block,) = inside.bind(session, text).blocks
            assert "ORDER BY" in block.operator.queries[0]


def test_the_golden_text_of_a_variance() -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT 1::BIGINT AS u, 1.5::DOUBLE AS x, 1.5::DOUBLE AS y")
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
            text = "SELECT WITH SUBSAMPLE OPTIONS (blocks = 8, bounds = (0, 10)) VAR_POP(x) AS m FROM t"
            (block,) = inside.bind(session, text).blocks
    for part in (
        "a0_myy / a0_mn AS a0",
        "(CAST(a0_yy - (a0_y // a0_n) * a0_y - (a0_y // a0_n) * (a0_y % a0_n) - ((a0_y % a0_n) * (a0_y % a0_n)) // a0_n AS "
        "DOUBLE) - CAST(((a0_y % a0_n) * (a0_y % a0_n)) % a0_n AS DOUBLE) / a0_n) / 7.378697629483821e+19 AS a0_myy",
        "NULLIF(COUNT(rows.y), 0) AS a0_n, SUM(rows.y) AS a0_y, SUM(CAST(rows.y AS HUGEINT) * rows.y) AS a0_yy",
        "WHERE rows.y BETWEEN -8796093022208 AND 8796093022208 GROUP BY rows.dpsql_block",
    ):
        assert part in block.operator.queries[0]


def test_the_golden_text_of_a_variance_without_bounds() -> None:
    """The ends are of the block's own rows, and none but these look at them."""
    with duckdb.connect() as con:
        fill(con, make_rows()[:10])
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
            text = "SELECT WITH SUBSAMPLE OPTIONS (blocks = 8, bounds = (0, 10)) VAR_POP(z) AS m FROM t"
            (block,) = inside.bind(session, text).blocks
    (query,) = block.operator.queries
    row = """CASE WHEN ABS(CAST("dpsql_table_2"."c5" AS DOUBLE)) < 1e70 THEN CAST("dpsql_table_2"."c5" AS DOUBLE) END AS y FROM"""
    assert query.count(row) == 2
    for part in (
        "(MIN(given.y) + MAX(given.y)) / 2 AS cy, CASE WHEN MAX(given.y) - MIN(given.y) > 1e-170 THEN 4398046511104.0 / "
        "(MAX(given.y) - MIN(given.y)) ELSE CAST(1 AS DOUBLE) END AS sy FROM",
        "GROUP BY given.dpsql_block HAVING COALESCE(MAX(given.y) >= MIN(given.y), TRUE)) AS ends "
        "ON ends.dpsql_block = rows.dpsql_block",
        "TRY_CAST((rows.y - ends.cy) * ends.sy AS BIGINT) AS y",
        "SUM(CAST(stepped.y AS HUGEINT) * stepped.y) AS a0_yy, MIN(stepped.sy) AS a0_sy",
        "/ a0_sy / a0_sy AS a0_myy",
    ):
        assert part in query
