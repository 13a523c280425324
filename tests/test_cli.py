"""The command line, on the demo's data."""

from __future__ import annotations

import argparse
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql import cli
from dpsql.demo import POLICY
from dpsql.demo.demo import CELLS

COUNT = (
    "SELECT WITH DP OPTIONS (epsilon = 0.1) plan, COUNT(DISTINCT person_id) AS n FROM visits GROUP BY plan"
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPSQL_STATE", str(tmp_path / "state"))


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        status = cli.main(arguments)
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


def sql(text: str, *more: str) -> tuple[str, ...]:
    return ("sql", text, "--policy", str(POLICY), "--ledger", "l.ledger", *more)


def test_version_prints_the_versions_that_a_bug_report_needs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first == f"dpsql {dpsql.__version__}"
    versions = {line.split()[0]: line.split()[1] for line in others}
    notebook = {"ipython"} if find_spec("IPython") else set()
    assert set(versions) == {"python", "duckdb", "sqlglot", "numpy", "pyarrow"} | notebook
    assert versions["duckdb"] == duckdb.__version__
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))


def test_the_demo_shows_what_a_notebook_would_and_leaves_its_ledger(run: Run, tmp_path: Path) -> None:
    status, out, err = run("demo")
    assert status == 0
    assert err == ""
    for cell in CELLS:
        assert cell.text.splitlines()[-1] in out
    assert out.count("95% interval") >= 3
    assert "BudgetExceeded: " in out
    assert "would fit" in out
    assert re.search(r"PrivacyError: .*\n.*SELECT \* FROM visits\n *\^+\nHint: ", out)
    assert "no charge" in out
    assert "█" in out
    assert (tmp_path / "dpsql-demo.ledger").exists()
    again = run("demo")[1]
    assert re.findall(r"^ free .*$", out, re.M) == re.findall(r"^ free .*$", again, re.M)
    assert " · cost ε" not in again, "a second run is free"


def test_a_table(run: Run) -> None:
    status, out, err = run(*sql(COUNT))
    assert status == 0
    assert "95% interval" in out
    assert "cost ε=0.1" in out
    assert err == ""


def test_csv_and_its_cost_apart(run: Run) -> None:
    status, out, err = run(*sql(COUNT, "--format", "csv"))
    lines = out.splitlines()
    assert status == 0
    assert lines[0] == "plan,n"
    assert len(lines) == 6
    assert all(re.fullmatch(r"[\w%]+,-?\d+", line) for line in lines[1:])
    assert "cost ε=0.1" in err


def test_json_has_intervals_and_cost(run: Run) -> None:
    answer = json.loads(run(*sql(COUNT, "--format", "json"))[1])
    assert len(answer["rows"]) == 5
    assert answer["rows"][0].keys() == {"plan", "n"}
    low, high = answer["intervals"]["n"][0]
    assert low < answer["rows"][0]["n"] < high
    assert answer["loss"] == "ε=0.1"
    assert answer["confidence"] == 0.95


def test_arrow_on_a_pipe(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dpsql.cli", *sql(COUNT, "--format", "arrow")]
    root = str(Path(dpsql.__file__).parents[1])
    done = subprocess.run(
        command, capture_output=True, check=True, cwd=tmp_path, env={"PYTHONPATH": root, "PATH": ""}
    )
    assert pa.ipc.open_stream(io.BytesIO(done.stdout)).read_all().column_names == ["plan", "n"]


def test_text_from_a_file_and_from_standard_input(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "q.sql").write_text("SELECT plan FROM plans WHERE plan = $p")
    arguments = ("sql", "--file", "q.sql", "--policy", str(POLICY), "--format", "csv", "--ledger", "l.ledger")
    assert run(*arguments, "--params", '{"p": "free"}')[1] == "plan\nfree\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 1 AS one"))
    assert "one" in run("sql", "--policy", str(POLICY))[1]
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 1 AS one"))
    assert run(*sql("-", "--format", "csv"))[1] == "one\n1\n"


def test_explaining_spends_nothing(run: Run) -> None:
    status, out, _ = run("explain", COUNT, "--policy", str(POLICY), "--ledger", "l.ledger")
    assert status == 0
    assert "\n1. " in out
    assert "ε=0.1" in out
    assert "ε=3 of ε=3 left" in out
    told = json.loads(
        run("explain", COUNT, "--policy", str(POLICY), "--ledger", "l.ledger", "--format", "json")[1]
    )
    assert {"sentences", "price", "sql", "finish"} <= told.keys()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (sql("SELECT * FROM visits"), "PrivacyError: "),
        (sql("SELECT nothing FROM plans"), "BindError: "),
        (sql("SELECT 1", "--params", "1"), "JSON object"),
        (sql("SELECT 1", "--params", "[1]"), "0 ? marks, but 1 parameter"),
        (("sql", "--policy", str(POLICY)), "there is no SQL"),
        (("sql", "SELECT 1", "--file", "q.sql", "--policy", str(POLICY)), "not both"),
        (("sql", "SELECT 1", "--policy", "nowhere.toml"), "PolicyError: "),
        (("sql", "--file", "nowhere.sql", "--policy", str(POLICY)), "can't be read"),
    ],
)
def test_errors_are_lines_on_standard_error(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], says: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    status, out, err = run(*arguments)
    assert status == 1
    assert out == ""
    assert says in err
    assert "Traceback" not in err


def test_the_owners_report(run: Run, tmp_path: Path) -> None:
    run(*sql(COUNT))
    run(*sql("SELECT * FROM visits"))
    status, out, _ = run("report", "--ledger", "l.ledger")
    assert status == 0
    assert "ε=2.9 of ε=3 left" in out
    assert "SELECT * FROM visits" in out
    assert "person_id" in out
    assert run("report", "--ledger", "l.ledger", "--output", "r.html")[0] == 0
    assert (tmp_path / "r.html").read_text().lstrip().lower().startswith("<!doctype html>")
    assert run("report")[0] == 1
    assert run("report", "--ledger", "nowhere.ledger")[0] == 1


def test_only_the_owner_changes_the_terms_of_a_ledger(run: Run, tmp_path: Path) -> None:
    visits = POLICY.with_name("visits.parquet").as_posix()
    policy = tmp_path / "p.toml"
    text = f'[budget]\nepsilon = 1\n[tables.visits]\nsource = "{visits}"\n'
    text += 'privacy_unit = "person_id"\nmax_rows = 5\n'
    policy.write_text(text)
    ask = ("sql", "SELECT WITH DP OPTIONS (epsilon = 0.5) COUNT(*) AS n FROM visits", "--policy", "p.toml")
    assert run(*ask)[0] == 0
    policy.write_text(text.replace("epsilon = 1", "epsilon = 5"))
    status, _, err = run(*ask, "--fresh")
    assert status == 1
    assert "LedgerError: " in err
    assert "dpsql ledger adopt --policy p.toml" in err
    _, out, err = run("ledger", "adopt", "--policy", "p.toml")
    assert "was ε=1 and is now ε=5" in out
    assert "stays spent: ε=4.5 of ε=5 left" in err
    assert run(*ask, "--fresh")[0] == 0
    assert "nothing" in run("ledger", "adopt", "--policy", "p.toml")[1]


def test_a_share_that_is_no_section_is_told_as_one(run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("[budget]\nepsilon = 3\n[analysts]\nana = 2\n")
    status, _, err = run("policy", "check", "--policy", "p.toml")
    assert status == 1
    assert "write ana = { epsilon = 2 }" in err


def test_wrong_usage(run: Run) -> None:
    with pytest.raises(SystemExit) as caught:
        run("sql", "SELECT 1")
    assert caught.value.code == 2


def test_policy_check_of_the_demo(run: Run) -> None:
    status, out, _ = run("policy", "check", str(POLICY))
    assert status == 0
    assert "protects each person_id" in out
    assert "Nothing is missing" in out
    assert "inpatient_dollars" in out
    assert "Ask someone who knows" in out


def test_policy_check_names_what_is_missing(run: Run, tmp_path: Path) -> None:
    visits = POLICY.with_name("visits.parquet").as_posix()
    policy = tmp_path / "p.toml"
    policy.write_text(
        f'[budget]\nepsilon = 1\n[tables.visits]\nsource = "{visits}"\n'
        'privacy_unit = "person"\nmax_rows = 5\n'
        "[tables.visits.columns]\ndoctor_visit = { bounds = [0, 30] }\n"
    )
    status, out, _ = run("policy", "check", str(policy))
    assert status == 1
    assert "the privacy unit person is not a column" in out
    assert "Did you mean person_id?" in out
    assert "doctor_visit is declared but not in the data. Did you mean doctor_visits?" in out
    assert "age = { bounds = [0, 120] }" in out
    assert "share_of_year = { bounds = [0, 1] }" in out
    assert "default_epsilon" in out
    assert "max_epsilon_per_query" in out
    assert not re.search(r"64\.28|39182", out), "nothing is looked up in the rows"


CSV = """
[budget]
epsilon = 1
default_epsilon = 0.1
[tables.visits]
source = "visits.{ending}"
privacy_unit = "person"
max_rows = 5
{more}
"""


def test_policy_check_proposes_types_of_a_source_that_has_none(run: Run, tmp_path: Path) -> None:
    """The printed lines are those that have to be pasted: with them, nothing is missing."""
    (tmp_path / "visits.csv").write_text("person,Age,day,note\n1,33,2024-01-02,x\n2,44,2024-01-03,y\n")
    policy = tmp_path / "p.toml"
    policy.write_text(CSV.format(ending="csv", more="columns.age = { bounds = [0, 120] }"))
    status, out, _ = run("policy", "check", str(policy))
    assert status == 1
    assert "the types of its columns, because visits.csv has none" in out
    assert 'age = { type = "BIGINT", bounds = [0, 120] }' in out
    assert 'day = { type = "DATE" }' in out
    pasted = out.split("and paste:")[1].split("You could declare")[0]
    policy.write_text(CSV.format(ending="csv", more="\n".join(line.strip() for line in pasted.splitlines())))
    status, out, _ = run("policy", "check", str(policy))
    assert status == 0
    assert "Nothing is missing" in out


def test_policy_check_counts_what_does_not_fit(run: Run, tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_bytes(b'person,age\n1,33\n2,old\n3,"44\n')
    typed = 'columns.person.type = "BIGINT"\ncolumns.age.type = "INTEGER"'
    policy = tmp_path / "p.toml"
    policy.write_text(CSV.format(ending="csv", more=typed))
    status, out, _ = run("policy", "check", str(policy))
    assert status == 1
    assert (
        "visits.age: at least a quarter of its values in the first 10,000 rows of visits.csv do not fit INTEGER"
        in out
    )
    assert "3 rows" not in out
    status, out, _ = run("policy", "check", str(policy), "--data")
    assert status == 1
    assert "3 rows, 1 of them with no value at all" in out
    assert "visits.age: 2 are NULL" in out


def test_policy_check_warns_where_one_record_may_change_others(run: Run, tmp_path: Path) -> None:
    typed = 'columns.person.type = "BIGINT"\ncolumns.persom.type = "BIGINT"\n'
    (tmp_path / "visits.csv").write_text("person\n1\n")
    (tmp_path / "visits.json").write_text('[{"person": 1}]')
    policy = tmp_path / "p.toml"
    policy.write_text(CSV.format(ending="csv", more=typed + "format.quoted_newlines = true"))
    status, out, _ = run("policy", "check", str(policy))
    assert status == 1
    assert "one stray quote, and so one person's row, changes" in out
    assert "visits.persom is in the policy but not in visits.csv. Did you mean person?" in out
    policy.write_text(CSV.format(ending="json", more=typed))
    assert "looks like one array" in run("policy", "check", str(policy))[1]
    policy.write_text(CSV.format(ending="json", more=typed + 'format.records = "array"'))
    status, out, _ = run("policy", "check", str(policy))
    assert "looks like one array" not in out
    assert "one bad record, and so one person's, ends the file" in out


def test_report_of_a_ledger_under_another_accountant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = tmp_path / "x.ledger"
    with dpsql.connect(policy=POLICY, ledger=ledger) as session:
        session.sql("SELECT COUNT(*) FROM visits")
    for accountant in ("basic", "zcdp", "gdp"):
        assert cli.main(["report", str(ledger), "--accountant", accountant]) == 0
        assert "SELECT COUNT(*)" in capsys.readouterr().out
    assert cli.main(["report", str(ledger), "-o", str(tmp_path / "out.html"), "--accountant", "gdp"]) == 0
    assert "<html" in (tmp_path / "out.html").read_text()
    assert cli.main(["report", str(ledger), "-o", str(tmp_path / "out.json")]) == 0


# -- help, places and completion


def parsers(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Yield each command with its words, however deep it is."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield (*words, name), below
                yield from parsers(below, (*words, name))


EVERY = dict(parsers(cli.make_parser()))


def test_a_command_without_more_words_shows_its_help(run: Run) -> None:
    for words in ((), ("policy",), ("ledger",), ("analyst",)):
        status, out, err = run(*words)
        assert status == 0
        assert out.startswith("usage: " + " ".join(("dpsql", *words)))
        assert err == ""


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_help_says_what_each_command_does_and_its_examples_are_commands(words: tuple[str, ...]) -> None:
    parser = EVERY[words]
    told = parser.format_help()
    assert parser.description
    assert len(parser.description.split()) > 4
    for action in parser._actions:
        listed = isinstance(action, argparse._SubParsersAction)
        assert action.help or listed, f"{action.dest} is explained"
    examples = [line.strip() for line in told.partition("examples:\n")[2].splitlines()]
    assert examples
    for line in examples if words != ("completion",) else ():
        given = shlex.split(line.partition(" > ")[0])
        assert given[: len(words) + 1] == ["dpsql", *words] or words == tuple(given[1 : len(words) + 1])
        cli.make_parser().parse_args(given[1:])


def test_the_database_is_given_in_one_way(run: Run, tmp_path: Path) -> None:
    for words, parser in EVERY.items():
        if "--policy" in parser._option_string_actions and words[0] in ("sql", "explain", "serve"):
            assert "--database" in parser._option_string_actions, words
    with duckdb.connect(str(tmp_path / "v.duckdb")) as database:
        database.execute("CREATE TABLE people AS SELECT range AS id FROM range(9)")
    (tmp_path / "p.toml").write_text(
        '[budget]\nepsilon = 1\n[tables.people]\nprivacy_unit = "id"\nmax_rows = 1\n'
    )
    place = ("--policy", "p.toml", "--database", "v.duckdb")
    assert run("sql", "SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) FROM people", *place)[0] == 0
    assert run("explain", "SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) FROM people", *place)[0] == 0
    assert "protects each id" in run("policy", "check", "p.toml", "--database", "v.duckdb")[1]
    assert run("policy", "init", "--database", "v.duckdb")[1] == run("policy", "init", "v.duckdb")[1]
    assert "nothing" in run("ledger", "adopt", *place)[1]
    assert "can't be in two places" in run("policy", "init", "v.duckdb", "--database", "w.duckdb")[2]
    status, _, err = run("sql", "v.duckdb", "--policy", "p.toml")
    assert (status, err) == (1, "ParseError: v.duckdb is a file, not SQL.\nHint: --database v.duckdb\n")
    assert "a policy is made for data" in run("policy", "init")[2]


def test_the_report_finds_the_ledger_of_a_policy(run: Run, tmp_path: Path) -> None:
    visits = POLICY.with_name("visits.parquet").as_posix()
    (tmp_path / "p.toml").write_text(
        f'[budget]\nepsilon = 1\n[tables.visits]\nsource = "{visits}"\nprivacy_unit = "person_id"\nmax_rows = 5\n'
    )
    run("sql", "SELECT WITH DP OPTIONS (epsilon = 0.5) COUNT(*) AS n FROM visits", "--policy", "p.toml")
    status, out, _ = run("report", "p.toml")
    assert status == 0
    assert "ε=0.5 of ε=1 left" in out
    for place in (("p.toml.ledger",), ("--ledger", "p.toml.ledger"), ("--policy", "p.toml")):
        assert run("report", *place)[1] == out
    assert run("report", "p.toml", "--ledger", "p.toml.ledger")[0] == 1
    status, _, err = run("report", "other.toml")
    assert status == 1
    assert "other.toml.ledger" in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["po"], ["policy"]),
        (["policy", ""], ["check", "import", "init"]),
        (["ledger", "backup", "--pol"], ["--policy"]),
        (["sql", "--format", ""], ["arrow", "csv", "json", "table"]),
        (["sql", "--policy", "p"], ["p.toml"]),
        (["completion", ""], ["bash", "fish", "zsh"]),
    ],
)
def test_bash_completes(run: Run, tmp_path: Path, words: list[str], expected: list[str]) -> None:
    status, script, _ = run("completion", "bash")
    assert status == 0
    (tmp_path / "p.toml").touch()
    line = " ".join(f"'{word}'" for word in words)
    ask = f'COMP_WORDS=(dpsql {line}); COMP_CWORD={len(words)}; _shtab_dpsql; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert sorted(done.stdout.split()) == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_of_shells_have_every_command(run: Run, shell: str) -> None:
    status, script, _ = run("completion", shell)
    assert status == 0
    for words in EVERY:
        assert not words or words[-1] in script
    assert "no-history" in script
