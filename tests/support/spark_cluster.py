"""Every kind of statement on a standalone Spark cluster of this machine: a master, and workers of one core each.

    python -m tests.support.spark_cluster ROWS FOLDER

It prints a line of JSON for each finding; `tests/engines/test_spark_cluster.py` runs it. A process of its own, since
a driver can't change its cluster.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

import dpsql
from dpsql.engine.duckdb import DuckDBEngine
from tests.support import inside
from tests.support.both import Both, plan_of, released

POLICY = f"""
[budget]
epsilon = 1e6
delta = 0.5
accountant = "basic"
default_epsilon = 10
default_delta = 1e-6
[tables.visits]
source = "visits/*/*.parquet"
version = "1"
privacy_unit = "who"
max_rows_per_group = 5
max_groups = 3
columns.who = {{ type = "BIGINT" }}
columns.ward = {{ type = "BIGINT", values = {[*range(10)]} }}
columns.day = {{ type = "BIGINT", values = {[*range(31)]} }}
columns.item = {{ type = "BIGINT" }}
columns.amount = {{ type = "DOUBLE", bounds = [0, 40] }}
columns.note = {{ type = "VARCHAR" }}
[tables.prices]
public = true
source = "prices.parquet"
version = "1"
columns.price = {{ type = "BIGINT" }}
"""
DP, PTR = "SELECT WITH DP", "SELECT WITH PTR OPTIONS (max_rows_contributed = 5)"
BLOCKS = "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 40), blocks = 16, combine = 'mean')"
PLAIN = "SELECT COUNT(*) AS n, SUM(amount) AS s, AVG(amount) AS a FROM visits"
STATEMENTS = {
    "COUNT, SUM, AVG": f"{DP} COUNT(*) AS n, SUM(amount) AS s, AVG(amount) AS a FROM visits",
    "public groups": f"{DP} ward, COUNT(*) AS n, SUM(amount) AS s FROM visits GROUP BY ward",
    "private groups": f"{DP} item, COUNT(*) AS n FROM visits GROUP BY item",
    "MEDIAN": f"{DP} MEDIAN(amount) AS m FROM visits",
    "COUNT(DISTINCT)": f"{DP} COUNT(DISTINCT note) AS n FROM visits",
    "GROUPING SETS": f"{DP} ward, day, COUNT(*) AS n FROM visits GROUP BY GROUPING SETS ((ward), (day), ())",
    "running totals": f"{DP} day, COUNT(*) AS n, SUM(COUNT(*)) OVER (ORDER BY day) AS upto FROM visits GROUP BY day",
    "PTR MEDIAN": f"{PTR} MEDIAN(amount) AS m FROM visits",
    "PTR MODE": f"{PTR} MODE(note) AS m FROM visits",
    "blocks of AVG": f"{BLOCKS} AVG(amount) AS a FROM visits",
    "EXPMECH": "SELECT price, EXPMECH(price * COUNT(*) FILTER (WHERE amount >= price)) OVER prices FROM visits",
    "ABOVE_THRESHOLD": (
        "SELECT price, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE amount <= price), 100) OVER prices FROM visits"
    ),
}


def say(name: str, **found: object) -> None:
    """Print a finding."""
    print(json.dumps({"name": name, **found}), flush=True)


def write_data(folder: Path, rows: int) -> None:
    """Write Parquet in partitions: five rows to a unit, in at most two groups of each kind, so that no cap cuts any."""
    with duckdb.connect() as con:
        con.execute(
            "COPY (SELECT i // 5 AS who, (i // 5) % 10 AS ward, (hash(i // 5) % 30)::BIGINT + i % 2 AS day, "
            "(hash(i // 5, 1) % 1000)::BIGINT + i % 2 AS item, (hash(i, 2) % 161)::BIGINT / 4.0 AS amount, "
            f"'n' || hash(i, 3) % 500 AS note, i % 8 AS part FROM range({rows}) AS s(i)) TO '{folder / 'visits'}' "
            "(FORMAT parquet, PARTITION_BY part, WRITE_PARTITION_COLUMNS true)"
        )
        con.execute(f"COPY (SELECT i AS price FROM range(1, 41) AS s(i)) TO '{folder / 'prices.parquet'}'")
    (folder / "policy.toml").write_text(POLICY)


@dataclass
class Cluster:
    """A master and its workers, ended by their process ids."""

    master: str
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def executors(self) -> list[int]:
        """Return the process ids of the workers' executors."""
        found: list[int] = []
        for worker in self.workers:
            with contextlib.suppress(OSError):
                children = Path(f"/proc/{worker.pid}/task").glob("*/children")
                found += [int(pid) for path in children for pid in path.read_text().split()]
        return found


@contextlib.contextmanager
def start_cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """Start a standalone cluster on loopback from the package's own scripts."""
    import pyspark

    home = Path(pyspark.__file__).parent
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        port, page = (place.getsockname()[1] for place in ports)

    def start(*given: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), *given],
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"},
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    master = f"spark://127.0.0.1:{port}"
    place = ("--host", "127.0.0.1")
    head = start(
        "org.apache.spark.deploy.master.Master", *place, "--port", str(port), "--webui-port", str(page)
    )
    cluster = Cluster(master)
    try:
        for number in range(workers):
            own = (
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                str(folder / f"work{number}"),
                "--webui-port",
                "0",
            )
            cluster.workers.append(start("org.apache.spark.deploy.worker.Worker", *place, *own, master))
        for _ in range(900):
            with contextlib.suppress(OSError):
                state = json.load(urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=5))
                if state["aliveworkers"] == workers:
                    break
            assert head.poll() is None, "the master ended"
            time.sleep(0.2)
        yield cluster
    finally:
        executors = cluster.executors()
        for process in [*cluster.workers, head]:
            process.kill()
            process.wait()
        for pid in executors:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def open_spark(cluster: Cluster, folder: Path) -> Any:
    """Return a session of the cluster."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(cluster.master).appName("cluster")
    for key, value in {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "4",
        "spark.driver.host": "127.0.0.1", "spark.driver.memory": "1g", "spark.executor.memory": "900m",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }.items():  # fmt: skip
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


# -- findings -----------------------------------------------------------------------------------------------------------


def compare(session: dpsql.Session, policy: dpsql.Policy, folder: Path) -> None:
    """Compare the exact results of every statement with DuckDB's, and ask it."""
    both = Both(DuckDBEngine(":memory:", policy, folder), inside.engine(session))
    for name, text in STATEMENTS.items():
        equal = released(session, plan_of(session, text), both)
        begun = time.monotonic()
        rows = len(session.sql(text, fresh=True))
        say("statement", statement=name, equal=equal, rows=rows, seconds=round(time.monotonic() - begun, 2))
    both.here.close()


def time_plain(session: dpsql.Session, spark: Any, folder: Path) -> None:
    """Time a statement and one plain query, in turn."""
    spark.read.parquet(str(folder / "visits")).createOrReplaceTempView("visits")
    text, found = STATEMENTS["COUNT, SUM, AVG"], {"plain": 0.0, "private": 0.0}
    asked: dict[str, Callable[[], object]] = {
        "plain": lambda: spark.sql(PLAIN).collect(), "private": lambda: session.sql(text, fresh=True),
    }  # fmt: skip
    for name, ask in asked.items():
        times = []
        for _ in range(3):
            begun = time.monotonic()
            ask()
            times.append(time.monotonic() - begun)
        found[name] = round(sorted(times)[1], 2)
    say("time", **found)


def main(rows: int, folder: Path) -> None:
    """Run everything; the cluster is ended at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "visits").exists():
        write_data(folder, rows)
    policy = dpsql.Policy.load(folder / "policy.toml")
    with start_cluster(folder) as cluster:
        spark = open_spark(cluster, folder)
        say("cluster", rows=rows, executors=len(cluster.executors()), version=spark.version)
        with dpsql.connect(spark, policy=folder / "policy.toml", ledger=folder / "own.ledger") as session:
            compare(session, policy, folder)
            time_plain(session, spark, folder)
        say("done")
    os._exit(0)  # the driver would try to reach its cluster


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
