"""Every kind of statement on a standalone Spark cluster of this machine: a master, and workers of one core each.

    python -m tests.support.spark_cluster ROWS FOLDER

It prints a line of JSON for each finding; `tests/engines/test_spark_cluster.py` runs it. A process of its own, since
a driver can't change its cluster.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import dpsql
from dpsql.engine.duckdb import DuckDBEngine
from tests.support import inside
from tests.support.both import Both, plan_of, released

EPSILON = "7.3821"
"""An epsilon whose digits nothing else has."""
POLICY = f"""
[budget]
epsilon = 1e6
delta = 0.5
accountant = "basic"
default_epsilon = {EPSILON}
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
        """Return the process ids of the workers' executors; a worker has other short-lived children."""
        found: list[int] = []
        for worker in self.workers:
            children = Path(f"/proc/{worker.pid}/task").glob("*/children")
            for pid in (pid for path in children for pid in path.read_text().split()):
                with contextlib.suppress(OSError):
                    if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        found.append(int(pid))
        return found

    def kill(self, place: int) -> None:
        """Kill a worker and its executor."""
        own = Cluster(self.master, [self.workers[place]])
        for pid in [*own.executors(), self.workers[place].pid]:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.workers[place].wait()


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
    """Return a session of the cluster that writes its events to a folder."""
    from pyspark.sql import SparkSession

    (folder / "events").mkdir(exist_ok=True)
    builder = SparkSession.builder.master(cluster.master).appName("cluster")
    for key, value in {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "4",
        "spark.driver.host": "127.0.0.1", "spark.driver.memory": "1g", "spark.executor.memory": "900m",
        "spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(folder / "events"), "spark.eventLog.compress": "false",
    }.items():  # fmt: skip
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


# -- findings -----------------------------------------------------------------------------------------------------------


def compare(session: dpsql.Session, policy: dpsql.Policy, folder: Path, texts: Texts) -> None:
    """Compare the exact results of every statement with DuckDB's, and ask it."""
    both = Both(DuckDBEngine(":memory:", policy, folder), inside.engine(session))
    for name, text in STATEMENTS.items():
        begun = time.monotonic()
        equal = released(session, plan_of(session, text), both)
        compared = time.monotonic() - begun
        seconds, rows = texts.ask(session, name)
        say("statement", statement=name, equal=equal, rows=rows, seconds=seconds, compared=round(compared, 2))
    both.here.close()


def time_plain(session: dpsql.Session, spark: Any, folder: Path) -> None:
    """Time a statement and one plain query, in turn."""
    spark.read.parquet(str(folder / "visits")).createOrReplaceTempView("visits")
    text = STATEMENTS["COUNT, SUM, AVG"]
    asked: dict[str, Callable[[], object]] = {
        "plain": lambda: spark.sql(PLAIN).collect(), "private": lambda: session.sql(text, fresh=True),
    }  # fmt: skip
    times: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(3):
        for name, ask in asked.items():
            begun = time.monotonic()
            ask()
            times[name].append(time.monotonic() - begun)
    say("time", **{name: round(sorted(found)[1], 2) for name, found in times.items()})


_SECRET = re.compile(r"\b[0-9]{12,20}\b")


class Texts:
    """What Spark was sent for each run of a statement: the exact text without the secret salt, Spark's text, the relations."""

    def __init__(self, engine: Any) -> None:
        self.runs: dict[str, list[list[tuple[str, str, str]]]] = {name: [] for name in STATEMENTS}
        self._engine, self._sent = engine, []
        execute, batches = engine.execute, engine.batches
        engine.execute = lambda sql, lent=None: self._note(sql, lent) or execute(sql, lent)
        engine.batches = lambda sql, lent=None: self._note(sql, lent) or batches(sql, lent)

    def _note(self, sql: str, lent: Mapping[str, pa.Table] | None) -> None:
        self._sent.append((_SECRET.sub("?", sql), self._engine.translate(sql, lent or {}), str(lent or {})))

    def ask(self, session: dpsql.Session, name: str) -> tuple[float, int]:
        """Ask a statement, and return its seconds and rows."""
        self._sent.clear()
        begun = time.monotonic()
        rows = len(session.sql(STATEMENTS[name], fresh=True))
        seconds = time.monotonic() - begun
        self.runs[name].append([*self._sent])
        return round(seconds, 2), rows


def look_at_travels(session: dpsql.Session, spark: Any, cluster: Cluster, folder: Path, sent: Texts) -> None:
    """Look for the policy, the ledger and noise in what Spark is sent.

    Noise: the texts and relations of a statement are equal, whatever its noise, except for the secret salt. The policy: neither
    texts, nor serialised tasks, nor events, nor the executors' environments have its numbers or paths.
    """
    same, texts = [], []
    for name, runs in sent.runs.items():
        sent.ask(session, name)
        texts += [(written, lent) for run in runs for _, written, lent in run]
        one, other = ([(sql, lent) for sql, _, lent in run] for run in runs)
        if one and one == other:
            same.append(name)
    engine = inside.engine(session)
    marks = [EPSILON.encode(), b"policy.toml", b".ledger", b"epsilon", b"default_delta"]
    own, virtual = engine._session, spark.sparkContext._jvm
    own.conf.set("spark.sql.adaptive.enabled", "false")  # so that a plan is made without being run
    size: int = 0
    found: set[bytes] = set()
    for text, lent in texts:
        found |= {mark for mark in marks if mark in text.encode()}
        if lent == "{}":
            buffer = virtual.java.io.ByteArrayOutputStream()  # tasks are serialised by Java, as here
            virtual.java.io.ObjectOutputStream(buffer).writeObject(
                own.sql(text)._jdf.queryExecution().toRdd()
            )
            content = bytes(buffer.toByteArray())
            size += len(content)
            found |= {mark for mark in marks if mark in content}
    own.conf.set("spark.sql.adaptive.enabled", "true")
    places = [path for path in (folder / "events").rglob("*") if path.is_file()]
    places += [Path(f"/proc/{pid}/{what}") for pid in cluster.executors() for what in ("environ", "cmdline")]
    for place in places:
        found |= {mark for mark in marks if mark in place.read_bytes().replace(b"spark.", b"")}
    say(
        "travels", same=same, texts=len(texts), tasks=size, places=len(places), found=sorted(map(repr, found))
    )


def lose_workers(session: dpsql.Session, spark: Any, cluster: Cluster) -> None:
    """Lose a worker, then all, in the middle of a statement: it is answered, or charged and refused."""
    tracker = spark.sparkContext.statusTracker()
    text = STATEMENTS["private groups"]

    def charged() -> int:
        return len(session.ledger())

    for place, name in enumerate(("one", "all")):
        before, killed = charged(), threading.Event()

        def strike(place: int = place, killed: threading.Event = killed) -> None:
            while not tracker.getActiveStageIds():
                time.sleep(0.005)
            cluster.kill(place)
            killed.set()
            if place:  # no worker is left: Spark would wait for one
                time.sleep(5)
                inside.engine(session).interrupt()

        thread = threading.Thread(target=strike)
        thread.start()
        try:
            end = f"answered {len(session.sql(text, fresh=True)) > 0}"
        except dpsql.Error as error:
            end = type(error).__name__
        thread.join()
        say("lost", workers=name, end=end, charges=charged() - before, killed=killed.is_set())


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
            texts = Texts(inside.engine(session))
            compare(session, policy, folder, texts)
            time_plain(session, spark, folder)
            look_at_travels(session, spark, cluster, folder, texts)
            lose_workers(session, spark, cluster)
        say("done")
    os._exit(0)  # the driver would try to reach its cluster


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
