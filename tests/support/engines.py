"""One suite for every engine: what an engine is to the tests, and which of them run on it when.

The tables of a test are made in DuckDB. An engine of this list gets them where it reads from, and opens the session:

* ``duckdb``: a database file, opened by its path.
* ``parquet``: DuckDB over Parquet files, with little memory and one thread.
* ``spark``: temporary views of a local Spark.
* ``connect``: the same through Spark Connect, on a server of its own.

The first two run by default; Spark's short form with ``-m "spark and not stochastic"``, all of it with ``-m spark``.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.policy.model import Policy

ENGINES = ("duckdb", "parquet", "spark", "connect")


def across(cases: Iterable[Any], short: Callable[[Any], bool], engines: Sequence[str] = ENGINES) -> list[Any]:
    """Every case on every engine: those that are ``short`` in Spark's short form too."""
    found = []
    for engine in engines:
        for case in cases:
            marks = [pytest.mark.spark] if engine in ("spark", "connect") else []
            if engine == "connect" or (engine == "spark" and not short(case)):
                marks.append(pytest.mark.stochastic)
            found.append(pytest.param(engine, case, marks=marks, id=f"{engine}-{str(case)[:90]}"))
    return found


@dataclasses.dataclass
class Engine:
    """An engine under test."""

    name: str
    folder: Path
    spark: Any = None
    """The SparkSession, where it is Spark."""

    @property
    def on_spark(self) -> bool:
        return self.spark is not None

    def session(self, con: duckdb.DuckDBPyConnection, policy: Policy) -> dpsql.Session:
        """A session over the tables that a connection holds."""
        place = self.folder / f"{len(list(self.folder.iterdir()))}"
        place.mkdir()
        names = [row[0] for row in con.sql("SELECT table_name FROM duckdb_tables()").fetchall()]
        if self.name == "duckdb":
            con.execute(f"ATTACH '{place}/data.duckdb' AS there")
            for name in names:
                con.execute(f"CREATE TABLE there.{name} AS FROM {name}")
            con.execute("DETACH there")
            return dpsql.connect(str(place / "data.duckdb"), policy=policy)
        if self.name == "parquet":
            for name in names:
                con.execute(f"COPY {name} TO '{place}/{name}.parquet'")
            tables = {
                name: dataclasses.replace(table, source=str(place / f"{table.source or name}.parquet"))
                for name, table in policy.tables.items()
            }
            limits = {"memory_limit": "256MiB", "threads": 1, "temp_directory": str(place / "spilled")}
            return dpsql.connect(policy=dataclasses.replace(policy, tables=tables), resources=limits)
        for name in names:
            rows = con.sql(f"SELECT * FROM {name}").to_arrow_table()
            self.spark.createDataFrame(rows, self._columns(rows.schema)).createOrReplaceTempView(name)
        return dpsql.connect(self.spark, policy=policy)

    @staticmethod
    def _columns(schema: Any) -> Any:
        """Spark Connect does not look for the types of a table without rows."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(schema, prefer_timestamp_ntz=True)


class Kept:
    """The things that are opened once for all tests of an engine, and closed at the end.

    A fixture of a module would be opened anew for each case, since its engine is one of the case's parameters.
    """

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._made: dict[Any, Any] = {}

    def close(self) -> None:
        self._stack.close()
        self._made.clear()

    def once(self, key: Any, make: Callable[[ExitStack], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make(self._stack)
        return self._made[key]


@contextmanager
def connect_server() -> Iterator[str]:
    """A Spark Connect server, and its address."""
    home = Path(pytest.importorskip("pyspark").__file__).parent
    pytest.importorskip("grpc")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.port": port, "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": 2,
        "spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.driver.memory": "1g",
    }  # fmt: skip
    given = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    process = subprocess.Popen(
        [str(home / "bin" / "spark-submit"), "--class", server, "--master", "local[2]", *given, "spark-internal"],
        env={**os.environ, "SPARK_HOME": str(home), "SPARK_NO_DAEMONIZE": "1"},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None, "the server ended"
                time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
