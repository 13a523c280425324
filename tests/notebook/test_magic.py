"""The magic in a real kernel, on the demo's data: what a newcomer types, in order, and what must happen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nbclient.exceptions import CellExecutionError

import dpsql
from dpsql.demo import POLICY
from dpsql.errors import PolicyError
from dpsql.notebook import sessions
from tests.support.kernel import kinds, run, text

COUNT = "SELECT WITH DP OPTIONS (epsilon = 0.1) COUNT(DISTINCT person_id) AS people FROM visits"
PER_PLAN = (
    "SELECT WITH DP OPTIONS (epsilon = 0.1) plan, COUNT(DISTINCT person_id) AS n FROM visits GROUP BY plan"
)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One kernel; each cell's outputs under a name."""
    folder = tmp_path_factory.mktemp("story")
    (folder / "q.sql").write_text(COUNT.replace("people", "from_file"))
    cells = {
        "load": "%load_ext dpsql",
        "help before": "%dpsql",
        "no session": f"%%dpsql\n{COUNT}",
        "demo": "%dpsql demo --ledger a.ledger",
        "help": "%dpsql",
        "star": "%%dpsql\nSELECT * FROM visits",
        "count": f"%%dpsql\n{COUNT}",
        "default": "%%dpsql\nSELECT COUNT(*) AS n FROM visits",
        "per plan": f"%%dpsql\n{PER_PLAN}",
        "underscore": "df = _.df(); print(type(df).__name__, df.shape, sorted(df['plan']))",
        "arrows": f"%%dpsql\n-- a comment above\nout << {COUNT}",
        "out": "print(type(out).__name__, out.loss, len(out.intervals['people']))",
        "out flag": f"%%dpsql -o kept\n{COUNT}",
        "out show": f"%%dpsql -o kept --show\n{COUNT}",
        "line": f"x = %dpsql {COUNT}",
        "x": "print(x.fetchone() == kept.fetchone() == out.fetchone())",
        "params": f"plan = 'free'\nr = %dpsql {COUNT} WHERE plan = $plan\nprint(r.shape)",
        "params json": f'%%dpsql --params \'{{"wanted": "95%"}}\'\n{COUNT} WHERE plan = $wanted',
        "params missing": f"%%dpsql\n{COUNT} WHERE plan = $plaan",
        "params wrong": f"plans = ['free']\n%dpsql {COUNT} WHERE plan = $plans",
        "template": f"%%dpsql\n{COUNT} WHERE plan = '{{{{plan}}}}'",
        "comments": "%%dpsql\n-- nothing here\n/* nor here */ ;",
        "several": "%%dpsql\nSELECT 1 AS a; SELECT 2 AS b;",
        "several refused": f"%%dpsql\n{COUNT.replace('people', 'fine')}; SELECT * FROM visits",
        "file": "%dpsql --file q.sql",
        "budget": "%dpsql budget",
        "tables": "%dpsql tables",
        "columns": "%dpsql columns visits",
        "policy": "%dpsql policy",
        "mechanisms": "%dpsql mechanisms",
        "caught": "import dpsql\ntry:\n    %dpsql SELECT * FROM visits\n"
        "except dpsql.PrivacyError as e:\n    print('caught')",
        "keep": f"%%dpsql\ncounts << {PER_PLAN}",
        "reads kept": "%%dpsql\nSELECT plan, n FROM counts JOIN plans USING (plan)",
        "keeps below": "%%dpsql\nSELECT 1 AS a; two << SELECT 2 AS b",
        "two": "print(two.fetchall())\n%dpsql SELECT b + 1 AS c FROM two",
        "private name": "%%dpsql\nvisits << SELECT WITH DP OPTIONS (epsilon = 0.01) COUNT(*) AS never FROM visits",
        "keep command": "%dpsql SELECT 5 AS five\n%dpsql keep last\n%dpsql SELECT five FROM last",
        "keep variable": "%dpsql keep counts\n%dpsql SELECT COUNT(*) AS plans FROM counts",
        "keep wrong": "%dpsql keep visits",
        "keep frame": "import pandas as pd\nlabels = pd.DataFrame({'w': ['a', 'b'], 'label': ['first', 'second']})\n"
        "%dpsql keep labels\nprint(type(labels).__name__)\n%dpsql SELECT MAX(label) AS most FROM labels",
        "keep number": "five = 5\n%dpsql keep five",
        "listed": "%dpsql tables",
        "kept columns": "%dpsql columns counts",
        "ledger": "%dpsql ledger",
    }
    return dict(zip(cells, run(list(cells.values()), folder), strict=True))


def test_kept_results_are_relations_of_later_cells(story: dict[str, Any]) -> None:
    assert story["keep"] == []
    assert "±" in text(story["reads kept"])
    assert "no charge" in text(story["reads kept"])
    assert "(2,)" in text(story["two"])
    assert "3" in text(story["two"])
    assert "5" in text(story["keep command"])
    assert "plans" in text(story["keep variable"])
    assert "counts" in text(story["listed"])
    assert "kept result" in text(story["listed"])
    assert "plan" in text(story["kept columns"])
    assert "VARCHAR" in text(story["kept columns"])


def test_keeping_a_variable_leaves_it_as_it_is(story: dict[str, Any]) -> None:
    assert "DataFrame" in text(story["keep frame"])
    assert "second" in text(story["keep frame"])
    assert story["keep number"][0].ename == "BindError"
    assert "no table" in text(story["keep number"]) or "no table" in story["keep number"][0].traceback[0]


def test_a_private_name_is_refused_before_anything_is_paid(story: dict[str, Any]) -> None:
    for cell in ("private name", "keep wrong"):
        assert story[cell][0].ename == "BindError"
        assert "private table" in story[cell][0].traceback[0]
    assert "never" not in text(story["ledger"])


def test_loading_says_one_line_and_how_to_begin(story: dict[str, Any]) -> None:
    assert text(story["load"]).strip().count("\n") == 0
    assert "%dpsql connect" in text(story["load"])
    assert "%dpsql connect" in text(story["help before"])
    assert "ε=3" in text(story["demo"])
    assert text(story["demo"]).strip().count("\n") == 0


def test_help_has_an_example_that_runs(story: dict[str, Any]) -> None:
    lines = [line.strip() for line in text(story["help"]).splitlines()]
    assert "%%dpsql\nSELECT COUNT(*) AS n FROM visits" in "\n".join(lines)
    assert kinds(story["default"]) == ["execute_result"], "the same cell, run"


def test_rows_are_refused_in_three_lines(story: dict[str, Any]) -> None:
    (error,) = story["star"]
    assert error.output_type == "error"
    assert error.ename == "PrivacyError"
    assert error.traceback[0].startswith("PrivacyError: ")
    assert "SELECT * FROM visits" in error.traceback[1]
    assert set(error.traceback[2].strip()) == {"^"}
    assert error.traceback[-1].startswith("Hint: ")
    assert len(error.traceback) == 4
    assert not any("Traceback" in line or ".py" in line for line in error.traceback)


def test_an_answer_is_a_table_with_an_interval_and_one_line_of_cost(story: dict[str, Any]) -> None:
    (output,) = story["count"]
    assert output.output_type == "execute_result"
    lines = output.data["text/plain"].splitlines()
    assert "95% interval" in lines[0]
    assert "± 30" in lines[1]
    assert "cost ε=0.1" in lines[2]
    assert "left" in lines[2]
    assert len(lines) == 3
    assert output.data["text/html"].count("<table") == 1
    assert "± 30" in output.data["text/html"]


def test_conversion_of_the_last_result(story: dict[str, Any]) -> None:
    assert "DataFrame (5, 2) ['25%', '50%', '95%', 'deductible', 'free']" in text(story["underscore"])


def test_keeping_a_result_shows_nothing_or_its_cost(story: dict[str, Any]) -> None:
    assert story["arrows"] == []
    assert "Result no charge 1" in text(story["out"])
    assert "no charge" in text(story["out flag"])
    assert "people" not in text(story["out flag"])
    assert "people" in text(story["out show"])
    assert story["line"] == []
    assert "True" in text(story["x"])


def test_parameters_are_bound_from_the_notebook(story: dict[str, Any]) -> None:
    assert "(1, 1)" in text(story["params"])
    assert "±" in text(story["params json"])
    assert "did you mean" in text(story["params missing"]) or "plaan" in text(story["params missing"])
    for name in ("params missing", "params wrong"):
        assert kinds(story[name]) == ["error"]
        assert story[name][0].ename == "BindError"
    assert "write $plan without quotes" in story["template"][0].traceback[-1]
    assert kinds(story["template"]) == ["error"]


def test_comments_do_nothing_and_cost_nothing(story: dict[str, Any]) -> None:
    assert story["comments"] == []


def test_several_statements_are_all_shown(story: dict[str, Any]) -> None:
    assert kinds(story["several"]) == ["display_data", "execute_result"]


def test_a_cell_is_bound_before_any_of_it_is_paid(story: dict[str, Any]) -> None:
    assert kinds(story["several refused"]) == ["error"]
    assert "fine" not in text(story["ledger"])


def test_a_file(story: dict[str, Any]) -> None:
    assert "from_file" in text(story["file"])


def test_the_panels(story: dict[str, Any]) -> None:
    budget = text(story["budget"])
    assert "█" in budget
    assert "left" in budget
    assert "released" in budget
    assert "visits" in text(story["tables"])
    assert "private" in text(story["tables"])
    assert "doctor_visits" in text(story["columns"])
    assert "0 to 30" in text(story["columns"])
    assert "epsilon" in text(story["policy"])
    assert "ABOVE_THRESHOLD" in text(story["mechanisms"])
    assert "refused" in text(story["ledger"])


def test_errors_can_be_caught(story: dict[str, Any]) -> None:
    assert text(story["caught"]).strip() == "caught"


def test_a_failing_cell_stops_run_all(tmp_path: Path) -> None:
    cells = ["%load_ext dpsql", "%dpsql demo", "%%dpsql\nSELECT * FROM visits", "print('never')"]
    with pytest.raises(CellExecutionError, match="PrivacyError"):
        run(cells, tmp_path, allow_errors=False)


def test_a_restart_keeps_the_budget_and_the_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPSQL_STATE", str(tmp_path / ".state"))
    with dpsql.connect(policy=POLICY, ledger=tmp_path / "dpsql-demo.ledger") as session:
        before = repr(session.sql(PER_PLAN))
    cells = ["%load_ext dpsql", "%dpsql demo", f"%%dpsql\n{PER_PLAN}"]
    after = run(cells, tmp_path)
    assert before.splitlines()[:6] == text(after[2]).splitlines()[:6], (
        "the table; below it stands what was paid"
    )
    assert "no charge" in text(after[2])
    assert "ε=2.9" in text(after[1])


def test_settings_from_pyproject(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text(
        f'[tool.dpsql]\npolicy = "{POLICY.as_posix()}"\nledger = "mine.ledger"\noutput = "pandas"\nrows = 7\n'
    )
    outputs = run(["%load_ext dpsql", f"%%dpsql\n{COUNT}", "%config DpsqlMagic.rows"], tmp_path)
    assert "ε=3" in text(outputs[0])
    assert (tmp_path / "mine.ledger").exists()
    assert "<table" in outputs[1][-1].data["text/html"]
    assert "dataframe" in outputs[1][-1].data["text/html"]
    assert text(outputs[2]) == "7"


@pytest.mark.parametrize(
    ("line", "says"), [("polcy = 'x'", "did you mean policy?"), ("rows = true", "whole number")]
)
def test_wrong_settings(tmp_path: Path, line: str, says: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.dpsql]\n{line}\n")
    with pytest.raises(PolicyError) as caught:
        sessions.read_settings(tmp_path)
    assert says in str(caught.value)


def test_other_peoples_projects_say_nothing(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.black]\nline-length = 1\n")
    assert sessions.read_settings(inner) == sessions.Settings()
    (inner / "pyproject.toml").write_text("not toml [")
    assert sessions.read_settings(inner) == sessions.Settings()
