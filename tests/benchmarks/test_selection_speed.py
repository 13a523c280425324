"""Private choices over given exact numbers: nanoseconds for each candidate, and shares of what DuckDB takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.above_threshold import AboveThreshold, Noise, split
from dpsql.mechanisms.exponential import ExponentialChoice
from dpsql.mechanisms.ladder import AutoBounded
from dpsql.mechanisms.quantile import Quantiles, Rank
from dpsql.noise.entropy import Entropy

pytestmark = pytest.mark.benchmark
N = 1_000_000
Print = Callable[[str], None]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Print:
    def show(line: str) -> None:
        with capsys.disabled():
            print(f"\n  {line}")

    return show


def median_seconds(job: Callable[[], object], runs: int = 7) -> float:
    taken = []
    for _ in range(runs):
        start = time.perf_counter()
        job()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def candidates(scores: np.ndarray) -> pa.Table:
    place = np.arange(len(scores))
    return pa.table({"k": place, "dpsql_ord": place, "score": scores})


@pytest.mark.parametrize("refresh", [False, True])
def test_a_million_answers(refresh: bool, say: Print) -> None:
    """W6: at most 50 ns each. No statistic is near the threshold, so all are asked."""
    noise = Noise(1, *split(Fraction(1), 10, monotone=True), 10, True, refresh)
    table = candidates(np.random.default_rng(1).integers(-5000, -2000, N))
    operator = AboveThreshold(("q",), ("k",), 0, noise)
    each = median_seconds(lambda: operator.release(lambda sql: table, Entropy())) / N * 1e9
    say(f"W6 above threshold, {'fresh thresholds' if refresh else 'one threshold'}: {each:.1f} ns an answer")
    assert each < 50


@pytest.mark.parametrize("method", ["exponential", "permute_and_flip", "noisy_max"])
def test_a_million_candidates(method: str, say: Print) -> None:
    """W7, without the scan."""
    table = candidates(np.random.default_rng(1).integers(0, 10**6, N))
    operator = ExponentialChoice(("q",), ("k",), 1, Fraction(1), True, method)  # type: ignore[arg-type]
    each = median_seconds(lambda: operator.release(lambda sql: table, Entropy())) / N * 1e9
    say(f"W7 {method}: {each:.1f} ns a candidate")
    assert each < 150


def test_a_million_unequal_candidates(say: Print) -> None:
    """W7 with prices, which differ in sensitivity."""
    prices = np.arange(1, N + 1)
    bids = np.sort(np.random.default_rng(1).lognormal(np.log(N / 5), 1, N))
    table = candidates(prices * (N - np.searchsorted(bids, prices))).append_column(
        "sensitivity", pa.array(prices)
    )
    operator = ExponentialChoice(("q",), ("k",), N, Fraction(1), True, "permute_and_flip", varying=True)
    each = median_seconds(lambda: operator.release(lambda sql: table, Entropy()), 3) / N * 1e9
    say(f"W7 generalised: {each:.1f} ns a candidate")
    assert each < 1500


def test_median_of_a_histogram(say: Print) -> None:
    """W5: the histogram and the choice, against quantile_cont."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT (random() + random()) * 500 AS x FROM range(5000000)")
    query = "SELECT CAST(LEAST(GREATEST(x, 0), 1000) * 20 AS INTEGER) AS value, COUNT(*) AS count FROM t GROUP BY 1"
    part = Quantiles("q", (), ("m",), (Rank(Fraction(1, 2)),), 0, 20_000, Fraction(1), steps=Fraction(20))
    known = con.execute(query).to_arrow_table()
    ours, theirs = [], []
    for _ in range(5):
        ours.append(
            median_seconds(
                lambda: part.alone().release(lambda sql: con.execute(query).to_arrow_table(), Entropy()), 1
            )
        )
        theirs.append(
            median_seconds(lambda: con.execute("SELECT quantile_cont(x, 0.5) FROM t").fetchall(), 1)
        )
    choice = median_seconds(lambda: part.alone().release(lambda sql: known, Entropy()))
    ratio = statistics.median(ours) / statistics.median(theirs)
    say(
        f"W5 median: {ratio:.2f} x quantile_cont; the choice alone {choice * 1e3:.2f} ms over {known.num_rows} values"
    )
    assert choice < 0.1


def test_auto_bounds(say: Print) -> None:
    """The ladder over the whole range of a double: the mechanism's part of AUTO."""
    rng = np.random.default_rng(1)
    rung = np.repeat(np.arange(-30, 65), 2)
    n = rng.integers(0, 10**6, len(rung))
    sign = np.tile([-1, 1], len(rung) // 2)
    table = pa.table({"sign": sign, "rung": rung, "n": n, "total": n << 19})
    part = AutoBounded("q", (), "a", "avg", Fraction(1), -30, 64)
    took = median_seconds(lambda: part.alone().release(lambda sql: table, Entropy()))
    say(f"AUTO: {took * 1e3:.2f} ms beside the scan")
    assert took < 0.1
