"""Engines: exact SQL over private data, public SQL over releases.

base.py            the contract of an engine; private directories for temporary files
duckdb.py          DuckDB over private data
postprocess.py     DuckDB over releases and public tables
public_sql.py      the SQL allowed there, and its process
sandbox.py         queries that always end; shared instances; databases without private data
sources.py         files, database files and frames as relations
arrow_tables.py    frames and Arrow objects as tables, without values on which DuckDB fails
text_sources.py    CSV and JSON lines
proposals.py       for the owner: formats and types from rows
schemas.py         for the owner: columns, types and keys of sources
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.errors import PolicyError

if TYPE_CHECKING:
    from dpsql.engine.base import Engine
    from dpsql.policy.model import Policy


def open_engine(
    database: Any, policy: Policy, base: Path, resources: Mapping[str, str | int] | None
) -> Engine:
    """Return an engine: Spark for its addresses and sessions, DuckDB for other databases; an engine is returned unchanged.

    Raises:
        PolicyError: the policy does not fit the data, or Spark is not installed.
    """
    from dpsql.engine.base import Engine
    from dpsql.engine.duckdb import DuckDBEngine

    if isinstance(database, Engine):
        return database
    if isinstance(database, str):
        spark = is_spark_address(database)
    else:
        spark = type(database).__module__.startswith("pyspark.sql")
    if not spark:
        return DuckDBEngine(database, policy, base, resources)
    if resources:
        raise PolicyError("Spark has its own resources.", hint="set them on the SparkSession.")
    from dpsql.spark.spark_engine import SparkEngine

    return SparkEngine(database, policy, base)


def is_spark_address(database: str) -> bool:
    """Return whether a text is an address of Spark.

    >>> is_spark_address("sc://host"), is_spark_address("local.duckdb")
    (True, False)
    """
    return database.startswith(("spark://", "sc://", "k8s://", "local[", "yarn"))
