"""Lifted into one grouped query, or run block by block: the same result in every block; and of its rows alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from unittest import mock

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.binding.modes import block_sources, subsample_block
from dpsql.errors import PrivacyError
from dpsql.mechanisms.subsample.blocks import BlockQueries, BlockResults, LiftedBlocks
from dpsql.noise.entropy import Entropy
from tests.support import inside
from tests.support.case_files import read_part

POLICY = """
budget = { epsilon = 1e9, delta = 0.5, accountant = "basic", default_epsilon = 1e6, default_delta = 1e-6 }
[tables]
t = { privacy_unit = "u", max_rows = 20, columns = { x = { bounds = [-100, 100] } } }
people = { privacy_unit = "u", max_rows = 1 }
sites = { public = true }
"""
BLOCKS = 12


def tables(con: duckdb.DuckDBPyConnection, more: str = "") -> None:
    """Ties everywhere, NULL, NaN, infinities, both zeros, sums that no order of additions gives alike."""
    con.execute(
        "CREATE TABLE t AS SELECT n % 211 AS u, (n * 37) % 101 - 40 AS x, SIN(n) * 10.0 ** (n % 21 - 10) AS y, "
        "CAST(CASE n % 17 WHEN 0 THEN NULL WHEN 1 THEN 'nan' WHEN 2 THEN 'inf' WHEN 3 THEN '-inf' WHEN 4 THEN '-0' "
        "WHEN 5 THEN '0' ELSE CAST((n % 5) * 0.1 AS VARCHAR) END AS DOUBLE) AS z, ['a', 'b', 'c', NULL][1 + n % 4] AS site, "
        "(n % 7)::DECIMAL(9, 2) / 4 AS d, DATE '2024-01-01' + (n % 90)::INTEGER AS day, n % 3 = 0 AS flag "
        f"FROM (SELECT n FROM (SELECT range AS n FROM range(900) {more}) AS q {'ORDER BY HASH(n)' if more else ''}) AS r"
    )
    con.execute(
        "CREATE TABLE people AS SELECT u, u % 60 + 20 AS age, ['f', 'm'][1 + u % 2] AS sex FROM range(205) r(u)"
    )
    con.execute("CREATE TABLE sites AS SELECT unnest(['a', 'b', 'd']) AS site, unnest([10, 20, 30]) AS beds")


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        tables(con)
        yield con


@pytest.fixture(scope="module")
def session(con: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Session]:
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
        inside.use_entropy(session, fixed())
        yield session


def fixed(salt: int = 5) -> Entropy:
    """Always the same bytes, so that both ways deal the units into the same blocks."""
    return Entropy(lambda n: bytes((salt * (i + 3)) % 251 for i in range(n)))


def results(session: dpsql.Session, query: str, one_by_one: bool, blocks: int = BLOCKS) -> BlockResults:
    """Return the result of each block, on the way that a session goes."""
    text = query.replace("SELECT", f"SELECT WITH SUBSAMPLE OPTIONS (blocks = {blocks}, bounds = (0, 1))", 1)
    if query.startswith("WITH"):
        head, _, tail = query.partition(") SELECT ")
        text = f"{head}) SELECT WITH SUBSAMPLE OPTIONS (blocks = {blocks}, bounds = (0, 1)) {tail}"
    refuse = mock.patch.object(block_sources.SourceBinder, "_lift", side_effect=PrivacyError("not lifted"))
    with refuse if one_by_one else mock.patch.object(subsample_block, "BLOCKS", blocks):
        plan = inside.bind(session, text)
    (block,) = plan.blocks
    source = block.operator.source  # type: ignore[attr-defined]
    assert isinstance(source, BlockQueries if one_by_one else LiftedBlocks), "not the way that was asked for"
    inside.check(session, plan)
    lent = inside.lend(session, plan)
    found: BlockResults = source.results(inside.reader(session, lent), fixed())
    return found


QUERIES = read_part(__file__, "QUERIES")


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return bool(a == b) and (a is None) == (b is None)


@pytest.mark.parametrize("query", QUERIES)
def test_both_ways_give_every_block_the_same(session: dpsql.Session, query: str) -> None:
    lifted, single = (results(session, query, one_by_one) for one_by_one in (False, True))
    assert len(lifted.columns) == len(single.columns)
    for (_, one), (_, other) in zip(lifted.columns.items(), single.columns.items(), strict=True):
        assert len(one) == len(other) == BLOCKS
        assert all(alike(a, b) for a, b in zip(one, other, strict=True)), (one, other)
    if "FALSE" not in query:
        assert any(value is not None for values in lifted.columns.values() for value in values)


def test_a_row_made_of_one_row_is_one_row(session: dpsql.Session) -> None:
    """Without LIMIT 1, which the other way asks for."""
    query = (
        "SELECT CASE WHEN a > b THEN 'x' ELSE 'y' END AS w FROM (SELECT AVG(x) AS a, AVG(d) AS b FROM t) AS q"
    )
    assert results(session, query, False) == results(session, query + " ORDER BY a LIMIT 1", False)
    with pytest.raises(PrivacyError):
        results(session, "SELECT a FROM (SELECT AVG(x) AS a FROM t GROUP BY site) AS q", False)


def test_the_comparison_can_fail(session: dpsql.Session) -> None:
    """The control: other blocks, or another query, and it notices."""
    one = results(session, "SELECT AVG(x) AS a FROM t", False).columns["a"]
    other = results(session, "SELECT AVG(x) AS a FROM t WHERE u <> 7", True).columns["a"]
    assert sum(not alike(a, b) for a, b in zip(one, other, strict=True)) == 1
    with mock.patch(f"{__name__}.fixed", return_value=fixed(7)):
        dealt = results(session, "SELECT AVG(x) AS a FROM t", True).columns["a"]
    assert sum(not alike(a, b) for a, b in zip(one, dealt, strict=True)) > 8


def test_blocks_without_rows(session: dpsql.Session) -> None:
    for query in ("SELECT COUNT(*) AS a FROM t WHERE u < 9", "SELECT AVG(x) AS a FROM t WHERE u < 9"):
        one, other = (results(session, query, one_by_one, 64).columns["a"] for one_by_one in (False, True))
        assert one == other
        assert one.count(0 if "COUNT" in query else None) >= 55


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT SUM(y), AVG(y), CORR(y, x), VARIANCE(y) FROM t",
        "SELECT MIN(z), MAX(z), 1 / MIN(z), MODE(z), ARG_MAX(z, x) FROM t WHERE ABS(z) < 0.05",
        "SELECT MODE(site), ARG_MIN(site, flag), MEDIAN(y) FROM t",
        "SELECT 1 / k AS k FROM (SELECT z AS k, COUNT(*) AS n FROM t WHERE z = 0 GROUP BY z) AS g ORDER BY n, k LIMIT 1",
    ],
)
def test_a_block_depends_on_its_own_rows(session: dpsql.Session, query: str, one_by_one: bool) -> None:
    """To the last bit: with many rows of other units before, between and behind, only their blocks change."""
    before = results(session, query, one_by_one)
    moved: set[int] = set()
    with duckdb.connect() as con:
        tables(con, "UNION ALL SELECT 56 + 211 * range FROM range(5, 150_000)")
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as other:
            after = results(other, query, one_by_one)
    for name, values in before.columns.items():
        moved |= {
            i for i, (a, b) in enumerate(zip(values, after.columns[name], strict=True)) if repr(a) != repr(b)
        }
    assert len(moved) <= 1


def test_plain_sums_would_move_other_blocks() -> None:
    """The control of the last bits: the same rows of a block, with others in between, add up differently."""
    sums = []
    for more in ("", "UNION ALL SELECT 56 + 211 * range FROM range(5, 150_000)"):
        with duckdb.connect() as con:
            tables(con, more)
            rows = con.sql(
                "SELECT u % 12 AS block, SUM(y) FROM t WHERE u % 12 <> 56 % 12 GROUP BY 1 ORDER BY 1"
            )
            sums.append(rows.fetchall())
    assert len(sums[0]) == len(sums[1])
    assert sums[0] != sums[1]


@pytest.mark.parametrize("odd", [3_600_000_000, 10**15])
def test_a_clock_time_outside_the_day_ends_no_statement(odd: int) -> None:
    """DuckDB's process ends if it writes such a time as text; files and Arrow tables may have it (DPSQL-2026-19)."""
    clock = pa.array([3_600_000_000] * 39 + [odd], pa.time64("us"))
    given = pa.table({"u": range(40), "x": range(40), "clock": clock})
    with duckdb.connect() as con:
        con.register("given", given)
        con.execute("CREATE TABLE t AS SELECT * FROM given")
        con.unregister("given")
        policy = "budget = { epsilon = 1e6 }\n[tables]\nt = { privacy_unit = 'u', max_rows = 1 }"
        with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as session:
            ranked = "(SELECT rank() OVER (ORDER BY clock, x) AS r FROM t)"
            asked = f"SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, bounds = (0, 9), blocks = 5) MAX(r) FROM {ranked}"
            assert len(session.sql(asked).fetchall()) == 1
