"""The long form: TPC-H's exact queries on both engines, more of the language, and Spark Connect."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.engine.duckdb import DuckDBEngine
from dpsql.engine.spark import SparkEngine
from dpsql.errors import BindError
from tests.engine.both import Both, plan_of, released
from tests.engine.test_spark import Pair, pair  # noqa: F401 - the fixture
from tests.tpch import test_tpch as tpch

pytestmark = [pytest.mark.spark, pytest.mark.stochastic, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def shop(spark: Any) -> Iterator[Pair]:
    folder = tpch.data("0.01")
    policy = dpsql.Policy.loads(
        (tpch.HERE / "policy.toml").read_text().replace('source = "', f'source = "{folder}/')
    )
    with dpsql.connect(spark, policy=policy) as session:
        engine = session._engine
        assert isinstance(engine, SparkEngine)
        yield Pair(session, Both(DuckDBEngine(":memory:", policy, Path()), engine))


ABSENT_TPCH: dict[str, str] = {}
"""Queries of TPC-H that Spark refuses, and why."""


@pytest.mark.parametrize("query", tpch.QUERIES, ids=lambda q: q.name)
def test_tpch_has_the_same_exact_answers(query: tpch.Query, shop: Pair) -> None:
    if query.name in ABSENT_TPCH:
        with pytest.raises(BindError, match=ABSENT_TPCH[query.name]):
            plan_of(shop.session, query.answered)
        return
    plan = plan_of(shop.session, query.answered)
    assert released(shop.session, plan, shop.read) >= 1


MORE = {
    "rollup": "SELECT ward, urgent, COUNT(*) AS n FROM visits GROUP BY ROLLUP (ward, urgent)",
    "grouping sets": "SELECT ward, urgent, SUM(age) AS n FROM visits GROUP BY GROUPING SETS ((ward), (urgent), ())",
    "spread": "SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) IQR(age) AS s FROM visits",
    "stable quantile": "SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) QUANTILE_DISC(age, 0.25) AS q FROM visits",
    "near quantile": "SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) MEDIAN(age, local_sensitivity => 2) AS q FROM visits",
    "stable mode": "SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) MODE(city) AS m FROM visits",
    "grouped medians": "SELECT ward, MEDIAN(age) AS m, MIN(amount) AS low FROM visits GROUP BY ward",
    "spreads": "SELECT ward, STDDEV(age) AS s, VARIANCE(amount) AS v FROM visits GROUP BY ward",
    "distinct": "SELECT COUNT(DISTINCT city) AS n FROM visits",
    "filter": "SELECT COUNT(*) FILTER (WHERE city LIKE 'D%') AS n, AVG(amount) FILTER (WHERE urgent) AS a FROM visits",
    "bounds found": "SELECT SUM(weight, contribution_bounds_per_row => AUTO) AS s FROM visits",
    "clips": "WITH b(c) AS (VALUES (10), (50), (100)) SELECT ABOVE_THRESHOLD(SUM(LEAST(age, c)), 500, epsilon => 1) OVER b FROM visits",
    "two sided": "WITH r(lo, hi) AS (VALUES (0, 20), (20, 60), (60, 120)) SELECT EXPMECH(COUNT(*) FILTER (WHERE age >= lo AND age < hi), epsilon => 1) OVER r FROM visits",
    "any condition": "WITH r(a) AS (VALUES (1), (2), (3)) SELECT EXPMECH(COUNT(*) FILTER (WHERE age % a = 0), epsilon => 1) OVER r FROM visits",
    "unit's own sums": "SELECT AVG(n, contribution_bounds_per_row => (0, 5)) AS a FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id)",
    "dates": "SELECT COUNT(*) AS n FROM visits WHERE day >= DATE '2015-01-01' AND EXTRACT(month FROM day) > 3 AND date_trunc('month', day) < DATE '2029-01-01'",
    "cases": "SELECT SUM(CASE WHEN age > 60 THEN 2 WHEN urgent THEN 1 ELSE 0 END, contribution_bounds_per_row => (0, 2)) AS s FROM visits",
    "blocks of a whole query": "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, blocks = 5, bounds = (0, 130)) MAX(a) AS m FROM (SELECT city, AVG(age) AS a FROM visits GROUP BY city)",
    "regression": "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, blocks = 5, bounds = (-1, 1)) REGR_SLOPE(age, week) AS m FROM visits",
}  # fmt: skip


@pytest.mark.parametrize("name", MORE)
def test_more_of_the_language(name: str, pair: Pair) -> None:  # noqa: F811
    plan = plan_of(pair.session, MORE[name])
    assert released(pair.session, plan, pair.read) >= 1


_CONNECT = '''
import sys, threading, warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").config(
    "spark.sql.shuffle.partitions", "2").getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect")
import pyarrow as pa, pyarrow.parquet as pq
from pathlib import Path
import dpsql
from dpsql.engine.duckdb import DuckDBEngine
from tests.engine.both import Both, plan_of, released
folder = Path(sys.argv[1])
pq.write_table(pa.table({"who": [i % 50 for i in range(200)], "x": [float(i) for i in range(200)],
                         "k": [str(i % 3) for i in range(200)]}), folder / "t.parquet")
policy = dpsql.Policy.loads("""
[budget]
epsilon = 1000
delta = 0.01
default_epsilon = 1
default_delta = 1e-6
[tables.t]
source = "t.parquet"
privacy_unit = "who"
max_rows = 4
max_groups = 3
[tables.t.columns]
x = { bounds = [0, 200] }
""", base=folder)
with dpsql.connect(spark, policy=policy) as session:
    engine = session._engine
    both = Both(DuckDBEngine(":memory:", policy, folder), engine)
    for text in ("SELECT COUNT(*) AS n, SUM(x) AS s FROM t", "SELECT k, COUNT(*) AS n FROM t GROUP BY k",
                 "SELECT MEDIAN(x) AS m FROM t", "SELECT WITH PTR MODE(k) AS m FROM t"):
        assert released(session, plan_of(session, text), both) >= 1
        assert session.sql(text).shape[1] >= 1
    lent = {"lent": pa.table({"n": range(1000)})}
    assert sum(part.num_rows for part in engine.batches("SELECT n FROM lent", lent, 100)) == 1000
    threading.Timer(3, engine.interrupt).start()
    try:
        engine.execute("SELECT COUNT(*) AS n FROM range(3000000) AS a(i) CROSS JOIN range(3000000) AS b(j) WHERE a.i % 97 = b.j % 89")
    except KeyboardInterrupt:
        print("stopped")
print("connect", "works", flush=True)
import os
os._exit(0)  # the server of this process may still be ending what was stopped
'''


def test_spark_connect(tmp_path: Path) -> None:
    """In a process of its own: Spark does not let both kinds of session live in one."""
    for name in ("pyspark", "grpc"):
        pytest.importorskip(name)
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-c", _CONNECT, str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "stopped" in done.stdout and "connect works" in done.stdout
