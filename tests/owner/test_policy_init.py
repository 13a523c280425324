"""A first policy: it tells nothing about a row, reads back, and waits for its owner where only the owner can know."""

from __future__ import annotations

import datetime
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql import cli
from dpsql.engine.base import find_files
from dpsql.errors import ParseError, PolicyError
from dpsql.notebook.line_commands import is_policy_command, run_policy_command
from dpsql.owner.policy_check import check_policy
from dpsql.owner.policy_init import PolicyDraft, init_policy
from dpsql.policy.model import Policy
from dpsql.policy.toml import TODO
from dpsql.policy.unit_guess import guess_unit

ROWS = {
    "patient_id": [1, 2], "ward": ["A", "B"], "amount": [2.5, 1e9], "age": [33, 200], "stayed": [True, None],
    "day": [datetime.date(2024, 1, 2), None], "zip": [1234, 2345],
}  # fmt: skip
OTHERS = {
    "patient_id": [1], "ward": ["a secret"], "amount": [-7.0], "age": [4], "stayed": [False],
    "day": [datetime.date(1900, 1, 1)], "zip": [9],
}  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPSQL_STATE", str(tmp_path / "state"))


def write_parquet(rows: dict[str, list[object]]) -> str:
    table = pa.table(rows, schema=pa.schema({n: pa.array(v).type for n, v in ROWS.items()}))
    pq.write_table(table, "visits.parquet")
    return "visits.parquet"


def write_csv(rows: dict[str, list[object]]) -> str:
    lines = [";".join(rows), *(";".join(map(str, row)) for row in zip(*rows.values(), strict=True))]
    Path("visits.csv").write_text("\n".join(lines))
    return "visits.csv"


def write_json(rows: dict[str, list[object]]) -> str:
    Path("visits.json").write_text(str(rows["ward"]))
    return "visits.json"


def write_duckdb(rows: dict[str, list[object]]) -> str:
    Path("clinic.duckdb").unlink(missing_ok=True)
    with duckdb.connect("clinic.duckdb") as con:
        con.execute("CREATE TABLE visits (patient_id INTEGER, ward VARCHAR, amount DOUBLE, day DATE)")
        con.executemany(
            "INSERT INTO visits VALUES (?, ?, ?, ?)",
            list(zip(*(rows[c] for c in ("patient_id", "ward", "amount", "day")), strict=True)),
        )
    return "clinic.duckdb"


def make_frames(rows: dict[str, list[object]]) -> dict[str, object]:
    return {
        "visits": pd.DataFrame(rows).astype({"ward": object, "stayed": object}),
        "lazy": pl.LazyFrame(rows),
    }


@pytest.mark.parametrize("write", [write_parquet, write_json, write_duckdb, make_frames])
def test_nothing_that_a_row_says_is_in_it(write: Callable[..., object]) -> None:
    """Two sources of the same names and types have the same policy, to the letter."""
    first = str(init_policy(write(ROWS)))
    assert first == str(init_policy(write(OTHERS)))
    assert "secret" not in first
    assert "1000000000" not in first


def test_types_and_formats_are_all_that_rows_of_csv_say() -> None:
    given, others = ({**rows, "day": [str(day) for day in rows["day"]]} for rows in (ROWS, OTHERS))
    given["day"], others["stayed"] = ["2024-01-02", "NA"], ["False"]
    first, second = (str(init_policy(write_csv(rows))) for rows in (given, others))
    first, second = (" ".join(text.split()) for text in (first, second))
    assert first.replace(', null = ["", "NA", "None"]', "") == second
    assert "the first lines" in second
    assert "secret" not in second


@pytest.mark.parametrize("write", [write_parquet, write_csv, write_json, write_duckdb])
def test_each_line_says_what_it_means(write: Callable[..., str]) -> None:
    for line in init_policy(write(ROWS)).text.splitlines():
        assert not line or line.startswith(("#", "[")) or "  # " in line, line


def settle(draft: PolicyDraft) -> str:
    """Decide everything, as an owner would."""
    text = draft.text.replace("GUESS", "")
    for line in draft.text.splitlines():
        if f'"{TODO}"' in line:
            key = line.split(" = ")[0]
            value = "20" if key.startswith("max_") else "[0, 500]"
            decided = line.replace("GUESS", "").replace(f'"{TODO}"', value)
            text = text.replace(line.replace("GUESS", ""), decided)
    return text


def test_from_a_file_to_an_answer() -> None:
    write_parquet(ROWS)
    draft = init_policy("visits.parquet", output="policy.toml")
    assert draft.open == ("visits.max_rows", "visits.amount.bounds")
    assert 'privacy_unit = "patient_id"' in draft.text
    assert "age = { bounds = [0, 120] }" in draft.text
    assert "zip: BIGINT; a key or code" in draft.text
    missing = check_policy("policy.toml").missing
    assert [line.split(" ")[1] for line in missing] == ["max_rows", "bounds", "="]
    line = next(n for n, text in enumerate(draft.text.splitlines(), 1) if text.startswith("amount"))
    assert f"amount are still TODO (line {line})" in missing[1]
    assert "is a guess" in missing[2]
    Path("settled.toml").write_text(settle(draft))
    found = check_policy("settled.toml")
    assert found.missing == []
    assert "Nothing is missing" in repr(found)
    with dpsql.connect(policy="settled.toml") as session:
        assert session.sql("SELECT COUNT(*) AS n, SUM(amount) AS s FROM visits").columns == ["n", "s"]


def test_what_is_todo_declares_nothing() -> None:
    """The text can be used as it is: what is undecided is as if it were left out, so it is refused where it is needed."""
    write_parquet(ROWS)
    policy = Policy.loads(init_policy("visits.parquet").text)
    table = policy.table("visits")
    assert (table.max_rows, table.max_groups, table.columns["amount"].bounds) == (None, None, None)
    assert TODO not in policy.dumps()
    with pytest.raises(PolicyError, match="bounds"):
        Policy.loads(init_policy("visits.parquet").text.replace(f'bounds = "{TODO}"', 'bounds = "todo"'))


def test_a_unit_that_nothing_points_to_is_asked_for() -> None:
    draft = init_policy({"logs": pa.table({"line_nr": [1], "level": ["x"], "took": [1.5]})}, output="p.toml")
    assert draft.open[0] == "logs.privacy_unit"
    assert "(line_nr?)" in draft.text
    with pytest.raises(PolicyError, match="privacy_unit of logs is still TODO") as refused:
        Policy.load("p.toml")
    assert refused.value.excerpt()[-1].count("^") == len(f'privacy_unit = "{TODO}"'), (
        "its comment is not marked"
    )
    found = check_policy("p.toml", {"logs": pa.table({"took": [1.5]})})
    assert any("privacy_unit is still TODO" in line for line in found.missing)


def test_row_and_a_named_unit_are_taken_at_their_word() -> None:
    frame = {"visits": pl.DataFrame(ROWS)}
    row = init_policy(frame, "row")
    assert 'privacy_unit = "ROW"' in row.text
    assert "GUESS, from names" not in row.text
    assert 'privacy_unit = "zip"' in init_policy(frame, "ZIP").text
    with pytest.raises(PolicyError, match="has a column zippo") as told:
        init_policy(frame, "zippo")
    assert told.value.hint == "did you mean zip?"


def test_declared_keys_lead_to_a_person() -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, email VARCHAR, born DATE)")
        con.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, user_id INTEGER REFERENCES users(id), cost DOUBLE)"
        )
        con.execute("CREATE TABLE items (order_id INTEGER REFERENCES orders(id), number INTEGER)")
        con.execute('CREATE TABLE returns (order_id INTEGER, reason VARCHAR, "odd name" INTEGER)')
        con.execute('CREATE TABLE "odd-name" (a INTEGER)')
        draft = init_policy(con)
        policy = Policy.loads(draft.text)
        assert {name: table.privacy_unit for name, table in policy.tables.items()} == {
            "users": "id",
            "orders": "user_id -> users.id, id",
            "items": "order_id -> orders.id, user_id -> users.id, id",
            "returns": "order_id -> orders.id, user_id -> users.id, id",
        }
        assert policy.tables["users"].max_rows == 1
        assert "email = " not in draft.text, "nobody lists addresses"
        assert "'odd-name'" in draft.text
        Path("p.toml").write_text(settle(draft))
        assert check_policy("p.toml", con).missing == []


@pytest.mark.parametrize(
    ("columns", "unit"),
    [
        (("visit_id", "PatientID", "name"), "PatientID"),
        (("order_no", "custkey"), "custkey"),
        (("id", "e_mail"), "e_mail"),
        (("household_id", "person_nr"), "person_nr"),
        (("hh", "household_id"), "household_id"),
        (("userid", "session_id"), "userid"),
        (("order_id", "amount"), None),
        (("driver_license_fee", "person_count", "users"), "users"),
    ],
)
def test_guesses(columns: tuple[str, ...], unit: str | None) -> None:
    from dpsql.engine.schemas import TableSchema

    assert guess_unit(TableSchema("t", None, dict.fromkeys(columns, "INTEGER"))) == unit


def test_a_suggested_column_is_called_as_in_the_data() -> None:
    Path("p.toml").write_text(
        '[budget]\nepsilon = 1\n[tables.t]\nprivacy_unit = "Kunden Nr"\nmax_rows = 5\nmax_groups = 1\n'
    )
    found, *_ = check_policy("p.toml", {"t": pa.table({"Kunden Nr.": ["a"], "Tag": ["b"]})}).missing
    assert found == "t: the privacy unit Kunden Nr is not a column. Did you mean Kunden Nr.?"


@pytest.mark.parametrize("name", ["visits[1].csv", "visits (1).csv", "all*.csv"])
def test_a_file_whose_name_looks_like_a_glob(name: str) -> None:
    """The policy names that file and no other."""
    Path(name).write_text("person_id,cost\n1,2\n")
    Path("visits1.csv").write_text("person_id,other\n1,2\n")
    Path("p.toml").write_text(init_policy(name).text)
    table = next(iter(Policy.load("p.toml").tables.values()))
    assert list(table.columns) == ["person_id", "cost"]
    assert find_files(table, Path.cwd()) == [str(Path.cwd().resolve() / name)]


def test_sources_that_are_none() -> None:
    sqlite3.connect("s.db").execute("CREATE TABLE t (x)")
    Path("bad.parquet").write_text("no")
    Path("empty.duckdb").touch()
    for source, said in (
        ("nowhere.csv", "there is no file"), ("*.parq", "there is no file"), ("nowhere.duckdb", "there is no database"),
        ("s.db", "SQLite"), ("bad.parquet", "can't be read as Parquet"), ("empty.duckdb", "it is empty"),
        ({"t": 3}, "which is no table"), ({}, "no table"),
    ):  # fmt: skip
        with pytest.raises(PolicyError, match=said):
            init_policy(source)


def test_a_database_that_another_process_writes_is_called_locked() -> None:
    path = write_duckdb(ROWS)
    code = f"import duckdb, sys; con = duckdb.connect({path!r}); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        other.stdout.readline()
        Path("p.toml").write_text('[budget]\nepsilon = 1\n[tables.visits]\nprivacy_unit = "patient_id"\n')
        for ask in (lambda: init_policy(path), lambda: dpsql.connect(path, policy="p.toml")):
            with pytest.raises(PolicyError, match=f"locked, since another process .*{other.pid}"):
                ask()
        other.communicate("")
    with dpsql.connect(path, policy="p.toml") as session:
        assert next(iter(session.columns("visits"))) == "patient_id"


def test_a_glob_of_files_and_what_it_is_called() -> None:
    Path("data").mkdir()
    for year in (2023, 2024):
        pq.write_table(pa.table(ROWS), f"data/visits_{year}.parquet")
    draft = init_policy("data/visits_*.parquet", output="p.toml")
    assert 'source = "data/visits_*.parquet"' in draft.text
    assert "[tables.visits]" in draft.text
    assert "[tables.data]" in init_policy("data/*.parquet").text


def test_several_files_are_several_tables(capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(ROWS)
    Path("wards.csv").write_text("ward;name\nA;Heart\n")
    assert cli.main(["policy", "init", "visits.csv", "wards.csv", "-o", "p.toml"]) == 0
    text = Path("p.toml").read_text()
    assert "[tables.visits]" in text
    assert "[tables.wards]" in text
    assert "for visits.csv and wards.csv" in text
    assert init_policy(["visits.csv", Path("wards.csv")]).text == text
    assert cli.main(["policy", "init", "*.csv"]) == 1
    told = capsys.readouterr().err
    assert "visits.csv and wards.csv have different columns" in told
    line = next(part for part in told.splitlines() if "dpsql policy init" in part).partition("dpsql ")[2]
    # the line that the hint writes works
    assert cli.main([*line.replace("policy.toml", "q.toml").split()]) == 0
    assert "[tables.wards]" in Path("q.toml").read_text()
    Path("other").mkdir()
    Path("other/visits.csv").write_text("a\n1\n")
    with pytest.raises(PolicyError, match="would both be the table visits"):
        init_policy(["visits.csv", "other/visits.csv"])
    with pytest.raises(PolicyError, match="include a database"):
        init_policy(["visits.csv", "x.duckdb"])


def test_files_of_a_glob_may_have_columns_more() -> None:
    for place, names in enumerate((["a"], ["a", "b"])):
        pq.write_table(pa.table({name: [1] for name in names}), f"v{place}.parquet")
    assert "# b:" in init_policy("v*.parquet").text or "b =" in init_policy("v*.parquet").text
    pq.write_table(pa.table({"c": [1]}), "v2.parquet")
    with pytest.raises(PolicyError, match="different columns"):
        init_policy("v*.parquet")
    Path("c1.csv").write_text("a,b\n1,2\n")
    Path("c2.csv").write_text("b,a\n1,2\n")
    assert init_policy("c*.csv").open


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    write_parquet(ROWS)
    assert cli.main(["policy", "init", "visits.parquet"]) == 0
    assert capsys.readouterr().out == str(init_policy("visits.parquet"))
    assert cli.main(["policy", "init", "visits.parquet", "--unit", "zip", "-o", "p.toml"]) == 0
    assert (
        'written to p.toml: 2 values to decide, marked "TODO"; then: dpsql policy check'
        in capsys.readouterr().out
    )
    assert cli.main(["policy", "init", "visits.parquet", "-o", "p.toml"]) == 1
    assert "p.toml exists already" in capsys.readouterr().err
    assert cli.main(["policy", "check", "p.toml"]) == 1


def test_the_magic() -> None:
    frame = pd.DataFrame(ROWS)
    assert "[tables.visits]" in run_policy_command("init visits", {"visits": frame}).text()
    made = run_policy_command("init visits --unit zip -o p.toml", {"visits": frame}).text()
    assert made.endswith("then: %dpsql policy check p.toml")
    told = run_policy_command("check p.toml frames", {"frames": {"visits": frame}}).text()
    assert 'stayed = { type = "BOOLEAN" }' in told
    assert "Missing:" in told
    assert "visits: protects each zip" in told
    assert not is_policy_command("initial")
    for wrong in ("init", "init a b", "check", "check a b c", "init a --unt b"):
        with pytest.raises(ParseError):
            run_policy_command(wrong, {})


VISITS = '[tables.visits]\nsource = "visits.parquet"\nprivacy_unit = "patient_id"\nmax_rows = 2\n'

WRONG = [
    ('ward = { bounds = [0, 1] }', "bounds are for numbers, dates and times", "Remove bounds."),
    ('stayed = { bounds = [0, 1] }', "its type is BOOLEAN", "Remove bounds."),
    ('amount = { bounds = [5, 5] }', "each value counts as 5", "amount = { bounds = [0, 5] }"),
    ('amount = { bounds = [2020-01-01, 2021-01-01] }', "bounds are dates", "amount = { bounds = [0, 100] }"),
    ('day = { bounds = [0, 100] }', "bounds are numbers", "day = { bounds = [2020-01-01, 2020-12-31] }"),
    ('zip = { values = ["1", "2"] }', "values are text", "zip = { values = [1, 2] }"),
    ('zip = { values = ["a"] }', "values are text", "Remove values."),
    ('zip = { values = [1.5] }', "values are numbers", "Remove values."),
    ('ward = { values = [1, 2] }', "values are numbers", 'ward = { values = ["1", "2"] }'),
    ('stayed = { values = ["true"], type = "BOOLEAN" }', "are text", 'stayed = { type = "BOOLEAN", values = [true] }'),
    ('day = { values = ["2024-01-02"] }', "values are text", "day = { values = [2024-01-02] }"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "said", "better"), WRONG)
def test_a_column_that_does_not_fit_its_type(line: str, said: str, better: str) -> None:
    """The line that the check proposes is one that it has nothing to say of."""
    write_parquet(ROWS)
    head = f"[budget]\nepsilon = 1\n{VISITS}"
    Path("p.toml").write_text(f"{head}[tables.visits.columns]\n{line}\n")
    (found,) = check_policy("p.toml").missing
    assert said in found
    assert found.endswith(better)
    written = "" if better.startswith("Remove") else better
    Path("p.toml").write_text(f"{head}[tables.visits.columns]\n{written}\n")
    assert check_policy("p.toml").missing == []


@pytest.mark.parametrize(
    ("delta", "column", "verdict"),
    [
        ("1e-6", "", None),
        ("1e-4", "", "advice"),
        ("0.01", 'type = "UTINYINT"', "missing"),
        ("1e-3", 'type = "UTINYINT"', None),
        ("1e-3", "bounds = [1, 999]", None),
        ("1e-3", "bounds = [1, 1000]", "missing"),
        ("0.4", 'values = ["a", "b", "c"], type = "VARCHAR"', "missing"),
    ],
)
def test_a_delta_that_protects_nobody(delta: str, column: str, verdict: str | None) -> None:
    """Publishing the rows of one of n units at random is private at a delta of 1/n."""
    write_parquet(ROWS)
    Path("p.toml").write_text(
        f'[budget]\nepsilon = 1\ndelta = {delta}\n[tables.visits]\nsource = "visits.parquet"\n'
        f'privacy_unit = "patient_id"\nmax_rows = 2\ncolumns.patient_id = {{ {column} }}\n'
    )
    found = check_policy("p.toml")
    said = {
        name: [line for line in getattr(found, name) if line.startswith("delta = ")]
        for name in ("missing", "advice")
    }
    assert [name for name, lines in said.items() if lines] == ([verdict] if verdict else [])
    assert (found.budget[0].startswith("delta = ")) == (verdict is not None)


def test_missing_defaults_are_proposed_as_lines_that_fit() -> None:
    write_parquet(ROWS)
    text = f"[budget]\nepsilon = 3\ndelta = 1e-6\n{{}}\n{VISITS}"
    Path("p.toml").write_text(text.format(""))
    proposed = check_policy("p.toml").budget
    assert proposed == ["default_epsilon = 0.3", "max_epsilon_per_query = 2", "default_delta = 1e-08"]
    Path("p.toml").write_text(text.format("\n".join(proposed)))
    assert check_policy("p.toml").budget == []


def test_units_are_counted_for_the_owners_eyes_only() -> None:
    write_parquet(ROWS)
    Path("p.toml").write_text(f"[budget]\nepsilon = 1\ndelta = 0.1\n{VISITS}")
    assert check_policy("p.toml").counted == []
    assert (
        "visits: 2 units; delta times that is 0.2; write a smaller delta, because this is high"
        in check_policy("p.toml", rows=True).counted
    )
