"""The demo's data are what PROVENANCE.md says, and can be made again."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dpsql.demo import POLICY
from dpsql.policy.model import Policy

HERE = POLICY.parent
MAKE: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "notebooks" / "make_demo.py"))


def test_what_is_shipped() -> None:
    visits = pq.read_table(HERE / "visits.parquet")
    assert visits.num_rows == 20_190
    assert len(visits["person_id"].unique()) == 5_912
    assert (HERE / "visits.parquet").stat().st_size < 500_000
    story = (HERE / "PROVENANCE.md").read_text(encoding="utf-8")
    for name in visits.column_names:
        assert f"`{name}`" in story
    assert "public domain" in story


def test_the_policy_is_true_of_the_data() -> None:
    table = Policy.load(POLICY).tables["visits"]
    visits = pq.read_table(HERE / "visits.parquet")
    for name, column in table.columns.items():
        if column.values is not None:
            assert set(visits[name].unique().to_pylist()) <= set(column.values)
    rows = visits.group_by("person_id").aggregate(
        [("year", "count"), ("plan", "count_distinct"), ("site", "count_distinct")]
    )
    assert max(rows["year_count"].to_pylist()) == table.max_rows
    assert (
        max(rows["plan_count_distinct"].to_pylist())
        == max(rows["site_count_distinct"].to_pylist())
        == table.max_groups
    )


def test_it_can_be_made_again(tmp_path: Path) -> None:
    pytest.importorskip("statsmodels")
    made = MAKE["make_visits"](MAKE["find_source"]())
    assert made.equals(pq.read_table(HERE / "visits.parquet"))
    assert MAKE["make_plans"]().equals(pq.read_table(HERE / "plans.parquet"))
