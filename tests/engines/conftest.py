"""The engines of the suite, each started once. A local Spark runs for the tests that are marked so."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.engines import Engine, Kept, connect_server


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql", reason="pip install 'dpsql[spark]'")
    builder = sql.SparkSession.builder.master("local[2]").appName("dpsql tests")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.warehouse.dir": tempfile.mkdtemp(prefix="warehouse"),
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def remote(kept: Kept) -> Iterator[tuple[str, Any]]:
    """The address of a Spark Connect server, and a session there."""
    with connect_server() as address:
        from pyspark.sql.connect.session import SparkSession

        session = SparkSession.builder.remote(address).create()
        yield address, session
        kept.close()  # while there is a server: the client would ask a lost one again for minutes
        session.stop()


@pytest.fixture(scope="session")
def kept() -> Iterator[Kept]:
    with contextlib.ExitStack() as stack:
        yield Kept(stack)


@pytest.fixture
def engine(request: pytest.FixtureRequest, kept: Kept, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """The engine that a test is parametrised with."""
    name = request.param
    spark = None
    if name == "spark":
        spark = request.getfixturevalue("spark")
    elif name == "connect":
        spark = request.getfixturevalue("remote")[1]
    found: Engine = kept.once(name, lambda stack: Engine(name, tmp_path_factory.mktemp(name), spark))
    return found
