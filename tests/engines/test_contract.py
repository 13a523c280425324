"""The engines that are shipped, under the contract of every engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

from dpsql.engine.duckdb import DuckDBEngine
from dpsql.policy.model import Policy
from tests.support.engine_contract import EngineContract, OpenEngine


class TestDuckDB(EngineContract):
    """DuckDB over a database file."""

    @pytest.fixture
    def open_engine(self, tmp_path: Path) -> OpenEngine:
        """Write the tables into a new DuckDB file."""

        def opened(tables: Mapping[str, pa.Table], policy: Policy) -> DuckDBEngine:
            path = tmp_path / f"data{len(list(tmp_path.iterdir()))}.duckdb"
            with duckdb.connect(path) as con:
                for name, table in tables.items():
                    con.register("dpsql_lent", table)
                    con.execute(f"CREATE TABLE {name} AS FROM dpsql_lent")
                    con.unregister("dpsql_lent")
            return DuckDBEngine(str(path), policy, tmp_path)

        return opened


@pytest.mark.spark
class TestSpark(EngineContract):
    """Spark over Parquet files."""

    stopped_joins = 9

    @pytest.fixture
    def open_engine(self, spark: Any, tmp_path: Path) -> OpenEngine:
        """Write the tables as Parquet files, and let the policy name them."""
        from dpsql.spark.spark_engine import SparkEngine

        def opened(tables: Mapping[str, pa.Table], policy: Policy) -> SparkEngine:
            for name, table in tables.items():
                spark.createDataFrame(table).createOrReplaceTempView(name)
            return SparkEngine(spark, policy, tmp_path)

        return opened
