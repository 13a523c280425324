"""What the README says is so."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import dpsql

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def fenced(after: str, language: str) -> str:
    found = re.search(rf"{re.escape(after)}\n+```{language}\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_two_lines_that_ci_runs() -> None:
    for name, last in (("demo", "dpsql demo"), ("tests", "pytest")):
        line = fenced(f"<!-- run: {name} -->", "sh")
        assert line.count("\n") == 1, "one line each"
        assert line.strip().endswith(last)
    run = (ROOT / ".ci" / "run").read_text()
    assert "<!-- run: $1 -->" in run


def test_the_policy_is_one_and_its_queries_are_answered(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(re.search(r"```toml\n(.*?)```", README, re.DOTALL)[1])  # type: ignore[index]
    rows = {"patient_id": range(40), "ward": ["A", "B"] * 20, "amount": [1.0] * 40}
    with duckdb.connect() as con:
        con.register("rows", pa.table({name: list(values) for name, values in rows.items()}))
        con.execute(f"COPY rows TO '{tmp_path}/visits.parquet'")
        con.execute("CREATE TABLE wards AS SELECT 'A' AS ward, 10 AS beds")
        with dpsql.connect(con, policy=tmp_path / "policy.toml") as session:
            asked = [cell.strip("`") for cell in re.findall(r"`SELECT [^`]*`|`SHOW [^`]*`", README)]
            asked = [sql for sql in asked if "..." not in sql and sql != "SELECT WITH DP"]
            asked.append(re.search(r'session\.sql\("(.*?)"\)', README)[1])  # type: ignore[index]
            assert len(asked) >= 3
            for sql in asked:
                assert session.sql(sql).shape[1] >= 1
            assert session.sql("SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward").shape == (3, 2)


def test_frames_by_name() -> None:
    policy = dpsql.Policy.loads(
        '[budget]\nepsilon = 1\n[tables.visits]\nprivacy_unit = "person"\nmax_rows = 1'
    )
    for frame in (pa.table({"person": [1, 2]}), pa.table({"person": [1, 2]}).to_pandas()):
        with dpsql.connect({"visits": frame}, policy=policy) as session:
            assert session.sql("SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM visits").shape == (
                1,
                1,
            )


def test_refused_kindly() -> None:
    shown = re.search(r"```\n(PrivacyError.*?)```", README, re.DOTALL)
    assert shown is not None
    policy = dpsql.Policy.loads(
        '[budget]\nepsilon = 1\n[tables.visits]\nprivacy_unit = "person"\nmax_rows = 1'
    )
    with (
        dpsql.connect({"visits": pa.table({"person": [1, 2]})}, policy=policy) as session,
        pytest.raises(dpsql.PrivacyError) as caught,
    ):
        session.sql("SELECT * FROM visits")
    assert "\n".join(caught.value.lines()) == shown[1].strip()
