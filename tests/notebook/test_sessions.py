"""The magic inside this process: sessions, settings, and what single cells do."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from IPython.core.interactiveshell import InteractiveShell

import dpsql
from dpsql.notebook import guide
from tests.support.own_process import run_python

Cell = Callable[..., Any]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPSQL_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    shell = InteractiveShell()
    yield shell
    shell.run_line_magic("load_ext", "dpsql")
    for session in shell._dpsql_sessions.values():
        session.close()
    shell.run_line_magic("unload_ext", "dpsql")
    shell.history_manager.end_session()


@pytest.fixture
def cell(shell: InteractiveShell) -> Cell:
    """Runs a cell; gives its value, or raises what it raised."""
    shell.run_cell("%load_ext dpsql\n%dpsql demo")

    def cell(text: str) -> Any:
        done = shell.run_cell(text)
        done.raise_error()
        return done.result

    return cell


def test_loading_twice_does_no_harm(cell: Cell, shell: InteractiveShell) -> None:
    cell("%load_ext dpsql")
    assert sum(type(c).__name__ == "DpsqlMagic" for c in shell.configurables) == 1
    assert "visits" in repr(cell("%dpsql tables"))


def test_unloading_takes_everything_away(cell: Cell, shell: InteractiveShell) -> None:
    matchers = len(shell.Completer.custom_matchers)
    cell("%unload_ext dpsql")
    assert shell.find_line_magic("dpsql") is None
    assert shell.find_cell_magic("dpsql") is None
    assert len(shell.Completer.custom_matchers) == matchers - 1
    assert not any(type(c).__name__ == "DpsqlMagic" for c in shell.configurables)
    cell("%load_ext dpsql")
    assert "visits" in repr(cell("%dpsql tables")), "the session waited"


def test_loading_gives_both_magics_and_advertises_nobody(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell("%load_ext dpsql")
    assert shell.find_line_magic("dpsql") is not None
    assert shell.find_cell_magic("dpsql") is not None
    said = capsys.readouterr().out + repr(shell.run_cell("%dpsql").result) + guide.USAGE
    assert len(said) > 1000
    assert not re.search(r"https?:|www\.|@", said)


def test_reloading_keeps_what_was_spent(cell: Cell) -> None:
    cell("%dpsql SELECT COUNT(*) AS n FROM visits")
    cell("%reload_ext dpsql")
    assert "ε=2.9 of ε=3 left; about 29 more questions at ε=0.1" in repr(cell("%dpsql budget"))
    assert "no charge" in cell("%dpsql SELECT COUNT(*) AS n FROM visits").cost_line


def test_nothing_is_imported_for_a_count(tmp_path: Path) -> None:
    script = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in ("%load_ext dpsql", "%dpsql demo", "%dpsql SELECT COUNT(*) AS n FROM visits"):
    shell.run_cell(cell).raise_error()
print(*{"pandas", "polars", "matplotlib", "ipywidgets", "tqdm", "jinja2"} & {m.partition(".")[0] for m in sys.modules})
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "IPYTHONDIR": str(tmp_path)}
    done = run_python("-c", script, cwd=tmp_path, env=environment, check=True)
    assert "±" in done.stdout
    assert done.stdout.splitlines()[-1] == ""


def test_loading_opens_no_connection(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    shell.run_cell("%load_ext dpsql\n%dpsql demo", silent=True).raise_error()
    shell.run_cell("%dpsql SELECT COUNT(*) AS n FROM visits", silent=True).raise_error()


def test_an_open_connection_is_used(cell: Cell, shell: InteractiveShell, tmp_path: Path) -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE mine AS SELECT range AS person FROM range(1000)")
    policy = tmp_path / "mine.toml"
    policy.write_text('[budget]\nepsilon = 1\n[tables.mine]\nprivacy_unit = "person"\nmax_rows = 1\n')
    shell.user_ns["con"] = con
    cell(f"%dpsql connect con --policy {policy} --session mine")
    found = cell("%dpsql SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM mine").fetchone()[0]
    assert 900 < found < 1100
    con.close()


def test_frames_are_not_found_by_name(cell: Cell, shell: InteractiveShell) -> None:
    pandas = pytest.importorskip("pandas")
    shell.user_ns["frame"] = frame = pandas.DataFrame({"person_id": range(1000)})
    assert len(frame) == 1000
    with pytest.raises(dpsql.BindError, match="no table frame") as caught:
        cell("%dpsql SELECT COUNT(*) FROM frame")
    assert "%dpsql policy init frame" in str(caught.value)
    with pytest.raises(dpsql.BindError) as caught:
        cell("%dpsql SELECT COUNT(*) FROM frames")
    assert "the variable" not in str(caught.value)
    cell("%dpsql policy init frame -o mine.toml")
    cell("%dpsql connect frame --policy mine.toml --session mine")
    assert "frame" in repr(cell("%dpsql tables")), "with a policy, one frame is a table of its name"


def test_several_sessions(cell: Cell) -> None:
    cell("%dpsql demo --session other --ledger other.ledger")
    cell("%dpsql SELECT COUNT(*) AS n FROM visits")
    told = repr(cell("%dpsql sessions"))
    assert "current   other" in told
    assert "ε=2.9 of ε=3" in told
    assert "ε=3 of ε=3" in told
    cell("%dpsql sessions main")
    assert "no charge" not in cell("%dpsql SELECT COUNT(*) AS n FROM visits").cost_line
    assert "no charge" in cell("%dpsql --session other SELECT COUNT(*) AS n FROM visits").cost_line
    with pytest.raises(dpsql.BindError, match="there is main, other"):
        cell("%dpsql --session nobody SELECT 1")
    cell("%dpsql close other")
    with pytest.raises(dpsql.BindError, match="no open session other"):
        cell("%dpsql sessions other")


def test_why_of_a_named_session_is_its_own(cell: Cell) -> None:
    """A refusal of a plan is no session's: it is explained as the last one, and not where a session is named."""
    cell("%dpsql SELECT COUNT(*) AS n FROM visits")
    with pytest.raises(dpsql.BindError):
        cell("%dpsql --explain SELECT nothing FROM visits")
    assert "no column nothing" in repr(cell("%dpsql why"))
    assert "nothing" not in repr(cell("%dpsql why main"))
    with pytest.raises(dpsql.BindError, match="no open session nobody"):
        cell("%dpsql why nobody")


def test_config_lists_the_settings(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    cell("%config DpsqlMagic")
    assert "DpsqlMagic.output=" in capsys.readouterr().out
    cell("%config DpsqlMagic.rows = 2")
    assert repr(cell("%dpsql SELECT plan FROM plans")).splitlines()[-1].strip().startswith("2 of 5 rows")
    cell("%config DpsqlMagic.rows = 20")


def test_the_type_of_results_can_be_set(cell: Cell) -> None:
    cell("%config DpsqlMagic.output = 'arrow'")
    assert cell("%dpsql SELECT 1 AS a").to_pydict() == {"a": [1]}
    cell("%config DpsqlMagic.output = 'result'")
    assert cell("%dpsql SELECT 1 AS a").dicts() == [{"a": 1}]


def test_comments_anywhere_and_a_last_semicolon_change_nothing(cell: Cell) -> None:
    plain = cell("%%dpsql\nSELECT COUNT(*) AS n FROM visits")
    dressed = "-- first; one\n/* a; b */ SELECT -- why\n COUNT(*) AS n /* of ' all */ FROM visits; -- last ;\n-- end"
    again = cell(f"%%dpsql\n{dressed}")
    assert again.fetchall() == plain.fetchall(), "a semicolon ends the statement, and silences nothing"
    assert "no charge" in again.cost_line


def test_parameters_from_a_dict(cell: Cell, shell: InteractiveShell) -> None:
    shell.push({"given": {"a": "x"}})
    assert cell("%dpsql --params $given SELECT $a AS a").fetchall() == [("x",)]


def test_members_of_an_enumeration_of_texts_are_texts(cell: Cell, shell: InteractiveShell) -> None:
    shell.run_cell("import enum\nclass Ward(str, enum.Enum):\n    A = 'x'\nward, wards = Ward.A, [Ward.A]")
    assert cell("%dpsql SELECT $ward AS a").fetchall() == [("x",)]
    assert cell("%dpsql SELECT 1 AS a WHERE 'x' IN $wards").fetchall() == [(1,)]


def test_a_default_epsilon_is_told_where_it_is_the_owners(cell: Cell) -> None:
    told = "ε=0.1 is the policy's default"
    assert told in repr(cell("%dpsql SELECT COUNT(*) AS n FROM visits"))
    for epsilon in ("0.2", "0.1"):
        asked = f"%dpsql --epsilon {epsilon} SELECT COUNT(*) AS n FROM visits WHERE age > 30"
        result = cell(asked)
        assert result.loss == f"ε={epsilon}"
        assert "default" not in repr(result)
    assert told in repr(cell("%dpsql SELECT COUNT(*) AS n FROM visits WHERE age > 31"))


def test_a_column_is_called_as_the_analyst_called_it(cell: Cell) -> None:
    asked = "MEDIAN(age) AS middle, MIN(age) AS youngest, MAX(age), COUNT(*) AS n FROM visits"
    result = cell(f"%dpsql SELECT {asked}")
    assert set(result.intervals) == {"middle", "youngest", "max(age)", "n"}
    notes = " · ".join(result.notes)
    assert "may be above max(age)" in notes
    grouped = cell("%dpsql SELECT plan, COUNT(*) AS n FROM visits GROUP BY ROLLUP (plan)")
    assert "ε=0.1 is the policy's default" in grouped.notes


def test_the_log_says_when_who_what_and_at_what_cost(cell: Cell) -> None:
    cell("%dpsql SELECT COUNT(*) AS n FROM visits")
    with pytest.raises(dpsql.PrivacyError):
        cell("%dpsql SELECT * FROM visits")
    paid, refused = cell("%dpsql log").dicts()
    assert paid["text"] == "SELECT COUNT(*) AS n FROM visits"
    assert (paid["charge"], paid["outcome"]) == ("ε=0.1", "released")
    assert paid["analyst"]
    assert paid["when"] <= refused["when"]
    assert (refused["charge"], refused["outcome"]) == ("0", "refused")
    assert refused["reason"]


def test_braces_and_dollars_arrive(cell: Cell) -> None:
    found = cell("%dpsql SELECT '{x} $y' AS a, {'b': 1} AS s")
    assert found.fetchall() == [("{x} $y", {"b": 1})]


def test_other_placeholders_are_explained(cell: Cell) -> None:
    for written, hint in [
        (":plan", r"\$plan"),
        ("?", r"\$name"),
        ("{{plan}}", r"\$plan"),
        ("'{{ plan }}'", r"\$plan"),
    ]:
        with pytest.raises(dpsql.ParseError, match=hint):
            cell(f"%dpsql SELECT COUNT(*) FROM visits WHERE plan = {written}")
    assert cell("%dpsql SELECT ':plan' AS a").fetchone() == (":plan",), "inside a string it is a string"


def test_an_interrupted_cell(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpsql.engine.duckdb import DuckDBEngine
    from dpsql.interrupts import check_stop

    def stopped(*_: Any, **__: Any) -> None:
        threading.Timer(0.05, signal.raise_signal, [signal.SIGINT]).start()
        for _ in range(6000):
            time.sleep(0.01)
            check_stop()

    monkeypatch.setattr(DuckDBEngine, "execute", stopped)
    with pytest.raises(dpsql.Interrupted, match=r"ε=0\.1 stays charged"):
        cell("%dpsql SELECT COUNT(*) AS n FROM visits")
    assert "interrupted" in repr(cell("%dpsql ledger"))


def test_negative_counts_stay_negative(cell: Cell) -> None:
    none = "SELECT WITH DP OPTIONS (epsilon = 0.02) {} AS n FROM visits WHERE plan = 'free' AND plan = '25%'"
    found = [
        cell("%dpsql --fresh " + none.format("COUNT(DISTINCT person_id)")).fetchone()[0] for _ in range(20)
    ]
    assert min(found) < 0 < max(found)
    assert cell("%dpsql " + none.format("GREATEST(COUNT(DISTINCT person_id), 0)")).fetchone()[0] >= 0


def test_plan_and_epsilon_flags(cell: Cell, shell: InteractiveShell) -> None:
    count = "SELECT COUNT(*) AS n FROM visits"
    cell(f"%%dpsql --plan --epsilon 0.05\n{count}; {count} WHERE age > 3")
    session = shell._dpsql_sessions["main"]
    assert len(session.ledger()) == 1
    assert 0.099 < session.budget().spent_epsilon <= 0.1


def test_connecting_takes_variables(cell: Cell, shell: InteractiveShell, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(
        '[budget]\nepsilon = 1\ndefault_epsilon = 0.5\n[tables.mine]\nprivacy_unit = "person"\nmax_rows = 1\n'
        'columns.person.type = "INTEGER"\n'
    )
    shell.push(
        {
            "where": tmp_path / "p.toml",
            "frames": {"mine": {"person": list(range(1000))}},
            "policy": dpsql.Policy.load(tmp_path / "p.toml"),
            "ages": [30, 40],
        }
    )
    cell("%dpsql connect $frames --policy $where --ledger mine.ledger --session mine")
    assert (
        900 < cell("%%dpsql --session mine\nSELECT COUNT(*) AS n FROM mine WHERE person >= 0").item() < 1100
    )
    cell("%dpsql connect frames --policy $policy --session other")
    assert "lasts for this process only" in repr(cell("%dpsql session other"))
    with pytest.raises(dpsql.BindError, match=r"the parameter \$nothing has no value"):
        cell("%dpsql connect $nothing --policy $where")
    two = cell("%%dpsql --session mine --params $ages\nSELECT ? AS a, ? AS b")
    assert two.fetchall() == [(30, 40)]


def test_a_comment_above_the_magic_does_no_harm(cell: Cell) -> None:
    for above in ("# what is in there\n\n", "-- what is in there\n", "\n"):
        assert cell(f"{above}%%dpsql\nSELECT 1 AS one")["one"] == [1]
    cell("%unload_ext dpsql")
    with pytest.raises(SyntaxError):
        cell("# what is in there\n%%dpsql\nSELECT 1 AS one")


def test_mechanisms_of_one_word(cell: Cell) -> None:
    shown = repr(cell("%dpsql mechanisms median"))
    assert "MEDIAN" in shown
    assert "EXPMECH" not in shown
    with pytest.raises(dpsql.BindError, match="no mechanism has the word medien") as caught:
        cell("%dpsql mechanisms medien")
    assert caught.value.hint == "did you mean MEDIAN?"


def test_sql_is_formatted(cell: Cell, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert repr(cell("%dpsql format SELECT 1 FROM plans")) == "SELECT 1\nFROM plans"
    given: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        type(shell), "set_next_input", lambda self, text, replace=False: given.append((text, replace))
    )
    assert cell("%%dpsql --format out\nSELECT 1 FROM plans\n") is None
    assert given == [("%%dpsql out\nSELECT 1\nFROM plans", True)]
    with pytest.raises(dpsql.ParseError, match="no SQL to format"):
        cell("%dpsql format")


def test_every_statement_fits_one_line(cell: Cell) -> None:
    assert cell("%dpsql DESCRIBE plans").columns[0] == "column_name"
    assert cell("%dpsql SUMMARIZE plans").columns[-1] == "values"
    assert cell("%dpsql SET intervals = 'columns'")["value"] == ["columns"]
