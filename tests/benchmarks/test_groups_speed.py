"""Many groups in little memory: what is not kept is forgotten part by part. Each measurement has a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]

_COMMON = """
import json, resource, time
from fractions import Fraction
import numpy as np, pyarrow as pa
from dpsql.mechanisms.additive import Aggregation, Count, LaplaceNoise, Statistic
from dpsql.mechanisms.base import Reader
from dpsql.mechanisms.partition import GroupSelection
from dpsql.noise.entropy import Entropy

def report(start, **more):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": time.perf_counter() - start, "peak_gib": peak, **more}))

def operator():
    count = Count("n", Statistic("units", LaplaceNoise(Fraction(1), 1)))
    return Aggregation("q", ("k",), (count,), GroupSelection("units", Fraction(1), Fraction(1, 10**6)))

def stream(groups, law, size=1 << 20):
    dice = np.random.default_rng(1)
    def parts(sql, lent):
        for at in range(0, groups, size):
            n = min(size, groups - at)
            yield pa.table({"k": np.arange(at, at + n), "units": law(dice, n)})
    return Reader(None, {}, 0, parts)
"""

_KEPT = """
start = time.perf_counter()
release = operator().release(stream(10_000_000, lambda dice, n: dice.integers(40, 90, n)), Entropy())
report(start, kept=release.table.num_rows)
"""

_RARE = """
start = time.perf_counter()
release = operator().release(stream(GROUPS, lambda dice, n: np.minimum(dice.zipf(2.2, n), 10**9)), Entropy())
report(start, kept=release.table.num_rows)
"""

_DUCKDB = """
import duckdb, dpsql, tempfile
con = duckdb.connect()
con.execute("SET memory_limit = '1GB'; SET threads = 2; SET preserve_insertion_order = false")
con.execute(f"SET temp_directory = '{tempfile.mkdtemp()}'")
con.execute("CREATE TABLE t AS SELECT i AS u, (i * 7919) % 10000019 AS k FROM range(12000000) AS r(i)")
policy = dpsql.Policy.loads('''
[budget]
epsilon = 10
delta = 1e-3
default_delta = 1e-6
[tables.t]
privacy_unit = "u"
max_rows = 1
max_groups = 1
''')
with dpsql.connect(con, policy=policy) as session:
    start = time.perf_counter()
    result = session.sql("SELECT WITH DP OPTIONS (epsilon = 1) k, COUNT(*) AS n FROM t GROUP BY k")
    report(start, kept=result.shape[0])
"""


def measured(script: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", _COMMON + script], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_ten_million_groups_that_are_all_kept() -> None:
    found = measured(_KEPT)
    print(f"10 million groups, all released: {found}")
    assert found["kept"] > 9_900_000
    assert found["peak_gib"] < 2


def test_ten_million_groups_of_a_table() -> None:
    found = measured(_DUCKDB)
    print(f"10 million groups of 12 million rows in DuckDB (1 GB): {found}")
    assert found["peak_gib"] < 2


def test_a_billion_groups_by_extrapolation() -> None:
    """Ten times the groups take ten times the time and the same memory, apart from what is kept."""
    few, many = (measured(_RARE.replace("GROUPS", str(groups))) for groups in (10**7, 10**8))
    each = (many["seconds"] - few["seconds"]) / (9 * 10**7)
    print(f"10^7 groups: {few}, 10^8 groups: {many}; 10^9 in {each * 10**9 / 60:.0f} minutes of one core")
    assert many["peak_gib"] < few["peak_gib"] + 0.3
    assert 0 < many["kept"] < 10**7
