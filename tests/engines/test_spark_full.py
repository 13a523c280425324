"""The long form: TPC-H's exact queries on both engines, more of the language, and Spark Connect."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.own_process import run_python
from tests.support.spark import Pair  # noqa: F401 - the fixture

pytestmark = [pytest.mark.spark, pytest.mark.stochastic, pytest.mark.timeout(900)]


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
from tests.support import inside
from tests.support.both import Both, plan_of, released
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
max_rows_per_group = 4
max_groups = 3
[tables.t.columns]
x = { bounds = [0, 200] }
""", base=folder)
with dpsql.connect(spark, policy=policy) as session:
    engine = inside.engine(session)
    both = Both(DuckDBEngine(":memory:", policy, folder), engine)
    for text in ("SELECT COUNT(*) AS n, SUM(x) AS s FROM t", "SELECT k, COUNT(*) AS n FROM t GROUP BY k",
                 "SELECT MEDIAN(x) AS m FROM t", "SELECT WITH PTR MODE(k) AS m FROM t"):
        assert released(session, plan_of(session, text), both) >= 1
        assert session.sql(text).shape[1] >= 1
    lent = {"lent": pa.table({"n": range(1000)})}
    assert sum(part.num_rows for part in engine.batches("SELECT n FROM lent", lent)) == 1000
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
    done = run_python("-c", _CONNECT, str(tmp_path), env=environment, cwd=tmp_path, timeout=850)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "stopped" in done.stdout
    assert "connect works" in done.stdout
