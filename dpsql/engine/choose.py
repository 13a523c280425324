"""Which engine a session runs on: by what it was given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.engine.duckdb import DuckDBEngine
from dpsql.errors import PolicyError
from dpsql.policy.model import Policy

if TYPE_CHECKING:
    from dpsql.engine.spark import SparkEngine

_SPARK = ("spark://", "sc://", "k8s://", "local[", "yarn")


def open_engine(
    database: Any, policy: Policy, base: Path, resources: Mapping[str, str | int] | None = None
) -> DuckDBEngine | SparkEngine:
    """Spark for a Spark master, a Spark Connect address or a SparkSession; DuckDB for all else.

    Raises:
        PolicyError: the policy does not fit the data, or Spark is not installed.
    """
    if isinstance(database, str):
        spark = database.startswith(_SPARK)
    else:
        spark = type(database).__module__.startswith("pyspark.sql")
    if not spark:
        return DuckDBEngine(database, policy, base, resources)
    if resources:
        raise PolicyError("Spark has its own resources.", hint="set them on the SparkSession.")
    from dpsql.engine.spark import SparkEngine

    return SparkEngine(database, policy, base)
