"""SmartNoise's metadata as a policy: what is carried over, what is said instead, and that the policy works."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql import cli
from dpsql.owner.policy_init import import_smartnoise
from dpsql.session.result import MissingLibrary

pytest.importorskip("yaml")

METADATA = """
# A hospital's telemetry, as its owner wrote it down for SmartNoise.
Hospital:
  clinic:
    Visits:
      rows: 120000
      max_ids: 4
      sample_max_ids: True
      censor_dims: False
      clamp_counts: True
      clamp_columns: False
      PatientID:
        type: int
        private_id: True
      Age:
        type: int
        lower: 0
        upper: 110
      Cost:
        type: float
        lower: -20.5
        upper: 9999.99
        sensitivity: 500
      Ward:
        type: string
        cardinality: 12
      Urgent:
        type: boolean
      Seen:
        type: datetime
      Weight:
        type: float
        missing_value: 70
    Devices:
      row_privacy: True
      '"Battery-Level"':
        type: float
        lower: 0.0
        upper: 100.0
      Note:
        type: unknown
    Lookup:
      Code:
        type: string
"""


def test_what_is_carried_over() -> None:
    made = import_smartnoise(METADATA, Fraction(2), Fraction(1, 10**6))
    visits, devices = made.policy.tables["visits"], made.policy.tables["devices"]
    assert (visits.privacy_unit, visits.max_rows, visits.max_groups) == ("PatientID", 4, None)
    assert visits.columns["Age"].bounds == (0, 110)
    assert visits.columns["Cost"].bounds == (Fraction("-20.5"), Fraction("9999.99"))
    assert set(visits.columns) == {"Age", "Cost"}
    assert devices.row_level
    assert devices.columns["Battery-Level"].bounds == (0, 100)
    assert "lookup" not in made.policy.tables
    assert made.policy.budget.epsilon == 2
    assert made.policy.budget.delta == Fraction(1, 10**6)
    assert dpsql.Policy.loads(made.text()) == made.policy


@pytest.mark.parametrize(
    "said",
    [
        "Lookup: left out", "Ward: cardinality = 12", "Cost: sensitivity", "Weight: no bounds", "Weight: missing_value",
        "Visits: censor_dims = False is not carried over", "Visits: clamp_columns = False is not",
        "clamp_counts is not carried over",
        "max_ids = 4 becomes max_rows = 4",
    ],
)  # fmt: skip
def test_what_is_said_instead(said: str) -> None:
    made = import_smartnoise(METADATA, Fraction(1))
    assert any(said in note for note in made.notes)
    assert f"# {next(note for note in made.notes if said in note)}" in made.text()
    assert not any("sample_max_ids" in note for note in made.notes), "True is what happens here anyway"


def test_other_shapes_of_the_same() -> None:
    two = import_smartnoise(
        "db:\n  t:\n    a: {type: int, is_key: true}\n    b: {type: int, min: 1, max: 5}\n", Fraction(1)
    )
    assert two.policy.tables["t"].privacy_unit == "a"
    assert two.policy.tables["t"].columns["b"].bounds == (1, 5)
    unit = {"name": "u", "type": "int", "private_id": True}
    data = {"": {"s": {"t": {"max_ids": 1, "row_privacy": False, "u": unit}}}}
    assert import_smartnoise(json.dumps(data), Fraction(1)).policy.tables["t"].privacy_unit == "u"
    table = "    t:\n      row_privacy: true\n      a: {type: int}\n"
    same = f"db:\n  x:\n{table}  y:\n{table}"
    both = import_smartnoise(same, Fraction(1)).policy.tables
    assert {name: table.source for name, table in both.items()} == {"x_t": "x.t", "y_t": "y.t"}
    odd = import_smartnoise(
        "db:\n  s:\n    Backlog-Orders:\n      row_privacy: true\n      a: {type: int}\n", Fraction(1)
    )
    assert odd.policy.tables["Backlog_Orders"].source == "Backlog-Orders"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", "not metadata of SmartNoise"),
        ("a: [1, 2\n", "not YAML"),
        ("a: 1\n", "not metadata of SmartNoise"),
        ("d:\n  s:\n    t:\n      a: {type: int}\n", "no table with a privacy unit"),
        ("d:\n  s:\n    t:\n      row_privacy: true\n      max_ids: 3\n      a: {type: int}\n", "max_ids is 1"),
        ("d:\n  s:\n    t:\n      max_ids: none\n      a: {type: int, private_id: true}\n", "whole number"),
        ("d:\n  s:\n    t:\n      max_idz: 3\n      a: {type: int, private_id: true}\n", "max_idz"),
        ("d:\n  s:\n    t:\n      row_privacy: true\n      a: {type: int, lowr: 3}\n", "lowr"),
        ("d:\n  s:\n    t:\n      a: {type: int, private_id: true}\n      b: {type: int, private_id: true}\n", "2 private"),
        ("d:\n  s:\n    t:\n      row_privacy: true\n      a: {type: int, lower: x, upper: y}\n", "not numbers"),
        ("d:\n  s:\n    t:\n      row_privacy: true\n      a: {type: int, lower: 9, upper: 1}\n", "reversed"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(dpsql.PolicyError, match=message):
        import_smartnoise(text, Fraction(1))


def test_without_pyyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingLibrary, match="PyYAML"):
        import_smartnoise(METADATA, Fraction(1))
    data = {"d": {"t": {"row_privacy": True, "a": {"type": "int", "lower": 0, "upper": 3}}}}
    assert import_smartnoise(json.dumps(data), Fraction(1)).policy.tables["t"].row_level, (
        "JSON needs nothing more"
    )


def test_the_command_makes_a_policy_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "meta.yaml").write_text(METADATA)
    rows = {"PatientID": [i // 3 for i in range(300)], "Age": [40] * 300, "Cost": [10.0] * 300, "Ward": ["a"] * 300,
            "Urgent": [True] * 300, "Seen": [None] * 300, "Weight": [70.0] * 300}  # fmt: skip
    pq.write_table(pa.table(rows), tmp_path / "v.parquet")
    pq.write_table(pa.table({"Battery-Level": [50.0] * 100}), tmp_path / "d.parquet")
    sources = ["--source", "visits=v.parquet", "--source", "Devices=d.parquet"]
    command = ["policy", "import", "meta.yaml", "--epsilon", "1000000", *sources, "-o", "policy.toml"]
    assert cli.main(command) == 0
    assert "dpsql policy check" in capsys.readouterr().out
    with dpsql.connect(policy="policy.toml") as session:
        count, mean = session.sql(
            "SELECT WITH DP OPTIONS (epsilon = 9e5) COUNT(*), AVG(Age) FROM visits"
        ).fetchone() or (0, 0)
        assert count == 300
        assert abs(mean - 40) < 0.1
        assert session.sql(
            'SELECT WITH DP OPTIONS (epsilon = 9e4) AVG("Battery-Level") FROM devices'
        ).fetchone()
    assert cli.main(["policy", "import", "meta.yaml", "--epsilon", "1", "-o", "policy.toml"]) == 1
    assert "exists already" in capsys.readouterr().err
    assert cli.main(["policy", "import", "meta.yaml", "--epsilon", "1", "--delta", "1e-6"]) == 0
    assert dpsql.Policy.loads(capsys.readouterr().out).budget.delta == Fraction(1, 10**6)
    for wrong in (
        ["--epsilon", "much"],
        ["--epsilon", "1", "--source", "x"],
        ["--epsilon", "1", "--source", "x=y.parquet"],
    ):
        assert cli.main(["policy", "import", "meta.yaml", *wrong]) == 1
    assert cli.main(["policy", "import", "nothing.yaml", "--epsilon", "1"]) == 1


def test_types_are_carried_over_for_a_source_that_has_none(tmp_path: Path) -> None:
    text = {"": {"": {"visits": {
        "person": {"type": "int", "private_id": True},
        "age": {"type": "float", "lower": 0, "upper": 110},
        "seen": {"type": "datetime"},
    }}}}  # fmt: skip
    (tmp_path / "visits.csv").write_text("person,age,seen\n1,3,2024-01-01\n")
    made = import_smartnoise(json.dumps(text), 10, 0, {"visits": str(tmp_path / "visits.csv")}).policy
    types = {name: column.type for name, column in made.tables["visits"].columns.items()}
    assert types == {"person": "BIGINT", "age": "DOUBLE", "seen": "TIMESTAMP"}
    with dpsql.connect(policy=made) as session:
        assert len(session.sql("SELECT WITH DP OPTIONS (epsilon = 1) SUM(age) AS s FROM visits")) == 1
    untyped = import_smartnoise(json.dumps(text), 10, 0, {"visits": "visits.parquet"}).policy
    assert {column.type for column in untyped.tables["visits"].columns.values()} == {None}
