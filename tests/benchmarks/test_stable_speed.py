"""Stable answers and block aggregates beside DuckDB's own work on the same data: prints the ratios."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.ptr.ptr_statistics import Iqr, iqr_sensitivity
from dpsql.mechanisms.ptr.stability_test import OptimalTest, Stable
from dpsql.noise.entropy import Entropy
from tests.support.benchmarks import Benchmarks

pytestmark = pytest.mark.benchmark
N = 10_000_000
ONE = Fraction(1)


@pytest.fixture(scope="module")
def data() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(
        f"CREATE TABLE t AS SELECT random() * 1000 AS v, exp(random() * 30) AS w, "
        f"CAST(random() * 1000000 AS BIGINT) AS unit FROM range({N})"
    )
    return connection


@pytest.mark.parametrize("column", ["v", "w"])
def test_iqr_against_quantile_cont(
    data: duckdb.DuckDBPyConnection, column: str, benchmarks: Benchmarks
) -> None:
    """The target is 0.6; the limit here leaves room for a busy machine."""
    test = OptimalTest(ONE, Fraction(1, 10**6))
    operator = Stable(
        (Iqr("spread", f"SELECT {column} AS v FROM t", test, LaplaceNoise(ONE, iqr_sensitivity())),)
    )

    def read(sql: str) -> pa.Table:
        return data.sql(sql).to_arrow_table()

    plain = f"SELECT quantile_cont({column}, [.25, .75]) AS q FROM t"
    name, ours = f"W8 beside {plain}", lambda: operator.release(read, Entropy())
    assert benchmarks.compare(name, ours, lambda: read(plain), target=0.6, rows=N) < 0.8


POLICY = """
budget = { epsilon = 1e6, delta = 1e-3, accountant = "basic" }
[tables]
visits = { privacy_unit = "user_id", max_rows = 100, columns = { amount = { bounds = [0, 1000] }, \
    score = { bounds = [0, 100] } } }
rows = { source = "amounts", privacy_unit = "ROW", columns = { amount = { bounds = [0, 1000] } } }
"""
TARGET = 6
MISSED = (
    "one AVG of integers takes 0.9 ns of a processor for each row, their blocks' bytes alone 2.5, and to count by a byte 3.7 "
    "more, of which DuckDB 2.0.1 spends 1.6 to ask its vector at every row how long it is"
)
MISSED_PAIRS = "a correlation adds up three products of 128 bits, of rows that met their blocks' grids"
"""Above the target, and why: what is measured depends on where the table is and how well its columns are packed."""


@pytest.fixture(scope="module", params=["file", "memory"])
def visits(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Ten million visits of a million people, a few of whom come often."""
    place = str(tmp_path_factory.mktemp("visits") / "visits.db") if request.param == "file" else ":memory:"
    with duckdb.connect(place) as connection:
        connection.execute(
            "CREATE TABLE visits AS SELECT ROUND(EXP(random() * 7), 2) AS amount, CAST(random() * 1000 AS INTEGER) AS points, "
            "CAST(random() * 1000 AS BIGINT) AS steps, "
            f"ROUND(EXP(random() * 7), 2) AS undeclared, ROUND(random() * 100, 1) AS score, "
            f"CAST(FLOOR(1e6 * random() * random()) AS BIGINT) AS user_id FROM range({N})"
        )
        connection.execute("CREATE TABLE amounts AS SELECT amount FROM visits")
        if request.param == "file":
            connection.execute("CHECKPOINT")
        yield connection


@pytest.mark.parametrize("blocks", [100, 128])
@pytest.mark.parametrize(
    ("call", "rows", "most"),
    [
        ("AVG(amount)", "visits", 12),
        ("AVG(amount)", "rows", 12),
        ("AVG(points)", "visits", 24),
        ("AVG(steps)", "visits", 24),
        ("AVG(undeclared)", "visits", 25),
        ("VARIANCE(amount)", "visits", TARGET),
        ("VARIANCE(points)", "visits", TARGET),
        ("CORR(amount, score)", "visits", TARGET),
        ("REGR_SLOPE(amount, score)", "visits", TARGET),
        ("VARIANCE(undeclared)", "visits", 12),
        ("VARIANCE(steps)", "visits", 12),
        ("CORR(undeclared, steps)", "visits", 12),
    ],
)
def test_blocks_against_one_aggregate(
    visits: duckdb.DuckDBPyConnection, blocks: int, call: str, rows: str, most: float, benchmarks: Benchmarks
) -> None:
    """W9, from text to result, beside the same aggregate once, of all rows.

    100 queries would be 300 times; in the order of the values, moments would be 13 to 70 times. Columns without bounds have grids
    of the blocks' own, whose rows are read twice.
    """
    text = f"SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, blocks = {blocks}, bounds = (0, 1000)) {call} AS a FROM {rows}"
    plain = f"SELECT {call} AS a FROM {'amounts' if rows == 'rows' else rows}"
    (place,) = visits.sql("SELECT COUNT(path) FROM duckdb_databases() WHERE path IS NOT NULL").fetchall()[0]
    name = f"W9 {blocks} blocks of {call} of {rows}, in {'a file' if place else 'memory'}"
    with dpsql.connect(visits, policy=dpsql.Policy.loads(POLICY)) as session:
        found = benchmarks.compare(
            name,
            lambda: session.sql(text, fresh=True),
            lambda: visits.sql(plain).to_arrow_table(),
            target=TARGET,
            rows=N,
            times=9,
        )
    assert found < most
    if found > TARGET:
        pytest.xfail(MISSED if call.startswith("AVG") else MISSED_PAIRS)
