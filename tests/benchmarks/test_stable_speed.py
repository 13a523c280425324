"""Stable answers and block aggregates beside DuckDB's own work on the same data: prints the ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from fractions import Fraction

import duckdb
import pyarrow as pa
import pytest

from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.blocks import LiftedBlocks, block_number
from dpsql.mechanisms.perturbation import LaplaceNoise
from dpsql.mechanisms.proposals import Iqr, iqr_sensitivity
from dpsql.mechanisms.ptr import OptimalTest, Stable
from dpsql.mechanisms.subsample import BlockMedian, Range, SubsampleAggregate
from dpsql.noise.entropy import Entropy

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


def alternately(jobs: list[Callable[[], object]], times: int = 5) -> list[float]:
    """Median seconds of each job, run in turns."""
    seconds: list[list[float]] = [[] for _ in jobs]
    for _ in range(times):
        for job, taken in zip(jobs, seconds, strict=True):
            start = time.perf_counter()
            job()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in seconds]


def against(
    data: duckdb.DuckDBPyConnection, plain: str, operator: Operator, capsys: pytest.CaptureFixture[str]
) -> float:
    def read(sql: str) -> pa.Table:
        return data.sql(sql).to_arrow_table()

    base, ours = alternately([lambda: read(plain), lambda: operator.release(read, Entropy())])
    with capsys.disabled():
        print(f"\n{ours:.3f} s against {base:.3f} s: {ours / base:.2f} x  {plain}")
    return ours / base


@pytest.mark.parametrize("column", ["v", "w"])
def test_iqr_against_quantile_cont(
    data: duckdb.DuckDBPyConnection, column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The target is 0.6; the limit here leaves room for a busy machine."""
    test = OptimalTest(ONE, Fraction(1, 10**6))
    operator = Stable(
        (Iqr("spread", f"SELECT {column} AS v FROM t", test, LaplaceNoise(ONE, iqr_sensitivity())),)
    )
    plain = f"SELECT quantile_cont({column}, [.25, .75]) AS q FROM t"
    assert against(data, plain, operator, capsys) < 1.5


@pytest.mark.parametrize("blocks", [100, 128])
def test_block_averages_against_one_average(
    data: duckdb.DuckDBPyConnection, blocks: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The target is 4.5; 100 queries would be about 300."""
    query = f"SELECT {block_number('unit', blocks)} AS block, AVG(v) AS a FROM t GROUP BY 1"
    bounds = Range(Fraction(0), Fraction(1000), 1000)
    operator = SubsampleAggregate(LiftedBlocks(query, ("a",), blocks), (BlockMedian("a", bounds, ONE),))
    assert against(data, "SELECT AVG(v) AS a FROM t", operator, capsys) < 20
