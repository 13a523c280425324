"""A standalone Spark cluster: equal exact results, what travels to executors, and lost workers. In a process of its own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.own_process import run_python
from tests.support.spark_cluster import STATEMENTS

pytestmark = [pytest.mark.spark, pytest.mark.stochastic, pytest.mark.timeout(1800)]
ROWS = int(os.environ.get("DPSQL_SPARK_ROWS", "100000"))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    pytest.importorskip("pyspark", reason="pip install 'dpsql[spark]'")
    folder = tmp_path_factory.mktemp("cluster")
    done = run_python(
        "-m",
        "tests.support.spark_cluster",
        str(ROWS),
        str(folder),
        cwd=Path(__file__).parents[2],
        timeout=1700,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]


def of(found: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [one for one in found if one["name"] == name]


def test_exact_results_equal_duckdbs(found: list[dict[str, Any]]) -> None:
    assert of(found, "cluster")[0]["executors"] == 2
    assert [one["statement"] for one in of(found, "statement")] == list(STATEMENTS)
    assert all(one["equal"] >= 1 and one["rows"] >= 1 for one in of(found, "statement"))


def test_neither_noise_nor_policy_travels(found: list[dict[str, Any]]) -> None:
    """The texts of every statement are those of another run of it, whose noise differs."""
    (travels,) = of(found, "travels")
    assert travels["same"] == list(STATEMENTS)
    assert travels["tasks"] > 10_000
    assert travels["places"] >= 3
    assert travels["found"] == []


def test_a_lost_worker_is_charged_once(found: list[dict[str, Any]]) -> None:
    one, every = of(found, "lost")
    assert one["killed"]
    assert every["killed"]
    assert one["end"] in ("answered True", "EngineError")
    assert every["end"] in ("Interrupted", "EngineError")
    assert one["charges"] == every["charges"] == 1
