"""A local Spark, started once, for the tests that are marked so."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import pytest


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
