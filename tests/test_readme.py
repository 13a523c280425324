"""The README's claims hold."""

from __future__ import annotations

import ast
import re
import runpy
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dpsql

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def fenced(after: str, language: str) -> str:
    found = re.search(rf"{re.escape(after)}\n+```{language}\n(.*?)```", README, re.DOTALL)
    return found[1]


def test_the_two_lines_that_ci_runs() -> None:
    for name, last in (("demo", "dpsql demo"), ("tests", "pytest")):
        line = fenced(f"<!-- run: {name} -->", "sh")
        assert line.count("\n") == 1, "one line each"
        assert line.strip().endswith(last)
    run = (ROOT / ".ci" / "run").read_text()
    assert "<!-- run: $1 -->" in run


def test_the_picture_is_what_the_notebook_shows() -> None:
    draw = runpy.run_path(str(ROOT / "notebooks" / "make_picture.py"))["draw"]
    stored = (ROOT / "notebooks" / "docs" / "static" / "answer.svg").read_text(encoding="utf-8")
    assert "](notebooks/docs/static/answer.svg)" in README
    assert stored == draw(), "run python notebooks/make_picture.py"
    assert "rows of visits can&#x27;t be released." in stored


def test_the_first_answer_is_what_the_notebook_shows() -> None:
    find_cells = runpy.run_path(str(ROOT / "notebooks" / "make_picture.py"))["find_cells"]
    source, printed = find_cells()[0]
    shown = re.search(r"```sql\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)
    assert source == f"%%dpsql\n{shown[1]}".rstrip("\n")
    assert printed.startswith(shown[2].rstrip("\n"))


def test_your_own_data_in_five_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run again in one folder, the same answer is shown for free; changed data are asked anew."""
    lines = fenced("## Your own data in five lines", "python")
    assert len(ast.parse(lines).body) == 5
    *before, last = lines.strip().split("\n")
    monkeypatch.chdir(tmp_path)

    def run(people: int) -> tuple[Any, bool, Fraction]:
        Path("visits.csv").write_text("patient_id\n" + "\n".join(str(i % people) for i in range(300)))
        space: dict[str, Any] = {}
        exec("\n".join(before), space)
        with space["session"] as session:
            result = eval(last, space)
            return result.item(), result.event is None, session.budget().spent_epsilon

    first = run(50)
    assert abs(first[0] - 50) < 100
    assert first[1:] == (False, Fraction(1, 2))
    assert run(50) == (first[0], True, Fraction(1, 2))
    assert run(51)[1:] == (False, 1)


def test_without_a_ledger_each_footer_says_so() -> None:
    policy = dpsql.Policy.loads(
        '[budget]\nepsilon = 1\n[tables.visits]\nprivacy_unit = "person"\nmax_rows = 1'
    )
    asked = "SELECT WITH DP OPTIONS (epsilon = 0.5) COUNT(*) AS n FROM visits"
    said = "this budget lasts for this process only"
    with dpsql.connect({"visits": pa.table({"person": [1, 2]})}, policy=policy) as session:
        for _ in range(2):  # a stored answer, too
            answer = session.sql(asked)
            assert said in repr(answer)
            assert said in answer._repr_mimebundle_()["text/html"]
        budget = session.sql("SHOW BUDGET")
        assert said in repr(budget)
        assert budget["lasts"] == ["for this process only"]
        assert said not in repr(session.sql("SHOW TABLES"))


def test_with_a_ledger_no_footer_says_so(tmp_path: Path) -> None:
    policy = dpsql.Policy.loads(
        '[budget]\nepsilon = 1\n[tables.visits]\nprivacy_unit = "person"\nmax_rows = 1'
    )
    frames = {"visits": pa.table({"person": [1, 2]})}
    with dpsql.connect(frames, policy=policy, ledger=tmp_path / "visits.ledger") as session:
        answer = session.sql("SELECT WITH DP OPTIONS (epsilon = 0.5) COUNT(*) AS n FROM visits")
        budget = session.sql("SHOW BUDGET")
        assert "this process only" not in repr(answer) + repr(budget)
        assert budget["lasts"] == ["in the ledger"]


def test_links_lead_to_files() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", README)
    assert len(links) > 5
    assert all((ROOT / link).exists() for link in links), links


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
