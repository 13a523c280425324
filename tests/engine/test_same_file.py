"""Several sessions of one process on the same database file, and whether its data are still the same."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.engine.duckdb import DuckDBEngine
from dpsql.errors import PolicyError
from dpsql.ledger import state_files
from dpsql.policy.model import Policy
from tests.support import inside
from tests.support.policies import budget, table, write_policy

POLICY = write_policy(budget(1000, accountant=None), visits=table("person", None, None, {"max_rows": 1}))
OTHER = """
[tables.plans]
public = true
source = "plans.parquet"
"""
COUNT = "SELECT WITH DP OPTIONS (epsilon = 50) COUNT(*) AS n FROM visits"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "clinic.duckdb")) as con:
        con.execute("CREATE TABLE visits AS SELECT i AS person FROM range(1000) AS t(i)")
        con.execute(f"COPY (SELECT 'free' AS plan) TO '{tmp_path / 'plans.parquet'}' (FORMAT parquet)")
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "other.toml").write_text(POLICY + OTHER)
    return tmp_path


@pytest.fixture
def connect(folder: Path) -> Callable[..., dpsql.Session]:
    def opened(policy: str = "policy.toml", **more: object) -> dpsql.Session:
        return dpsql.connect(folder / "clinic.duckdb", policy=folder / policy, **more)  # type: ignore[arg-type]

    return opened


def near_thousand(session: dpsql.Session, fresh: bool = True) -> bool:
    ((count,),) = session.sql(COUNT, fresh=fresh).fetchall()
    return bool(abs(count - 1000) < 10)  # noise of scale 1/50


def test_several_sessions_read_one_file(connect: Callable[..., dpsql.Session]) -> None:
    with connect() as first, connect() as second, connect(ledger=None) as third:
        assert all(map(near_thousand, (first, second, third, first)))
        first.close()
        assert near_thousand(second)
        assert near_thousand(third)


def test_the_file_is_free_when_the_last_session_closes(
    connect: Callable[..., dpsql.Session], folder: Path
) -> None:
    first, second = connect(), connect()
    first.close()
    second.close()
    with duckdb.connect(str(folder / "clinic.duckdb")) as con:  # to write: nobody may have it open
        con.execute("INSERT INTO visits SELECT 1000 + i FROM range(100) AS t(i)")
    with connect() as again:
        ((count,),) = again.sql(COUNT).fetchall()
        assert abs(count - 1100) < 10


def test_each_session_has_its_own_policy_and_resources(connect: Callable[..., dpsql.Session]) -> None:
    """A session's access to files is closed before its first statement, and the other session shares none of it."""
    with connect() as first, connect("other.toml", resources={"memory_limit": "300MiB"}) as second:
        assert second.sql("SELECT plan FROM plans").fetchall() == [("free",)]
        assert near_thousand(first)
        assert near_thousand(second)
        with pytest.raises(dpsql.BindError, match="there is no table plans"):
            first.sql("SELECT plan FROM plans")
        for session in (first, second):
            con = inside.engine(session)._con  # type: ignore[union-attr]
            with pytest.raises(duckdb.Error):
                con.execute("SET enable_external_access = true")
            with pytest.raises(duckdb.Error):
                con.execute("CREATE TABLE visits2 AS SELECT 1 AS i; INSERT INTO clinic.visits SELECT 1")
        with pytest.raises(duckdb.Error):
            inside.engine(first)._con.execute("SELECT * FROM 'plans.parquet'")  # type: ignore[union-attr]


def test_sessions_of_several_threads(connect: Callable[..., dpsql.Session]) -> None:
    outcomes: list[object] = []

    def ask() -> None:
        try:
            with connect() as session:
                outcomes.append(near_thousand(session))
        except BaseException as error:
            outcomes.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [True] * 4


def test_a_file_that_is_open_to_write_is_refused_in_our_words(
    connect: Callable[..., dpsql.Session], folder: Path
) -> None:
    with duckdb.connect(str(folder / "clinic.duckdb")) as own:
        with pytest.raises(PolicyError, match="can't be opened as a DuckDB database") as told:
            connect()
        assert told.value.hint is not None
        assert "pass that connection" in told.value.hint
        with dpsql.connect(own, policy=Policy.loads(POLICY)) as session:
            assert near_thousand(session)
    with duckdb.connect(str(folder / "clinic.duckdb"), read_only=True), connect() as beside:
        assert near_thousand(beside)


@pytest.mark.parametrize(
    "name", ["memory.duckdb", "temp.duckdb", "system.duckdb", 'it\'s "mine".duckdb', "a.b.db"]
)
def test_a_file_may_have_any_name(folder: Path, name: str) -> None:
    (folder / "clinic.duckdb").rename(folder / name)
    with dpsql.connect(folder / name, policy=Policy.loads(POLICY)) as session:
        assert near_thousand(session)


def test_a_cell_that_connects_may_be_run_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.chdir(folder)
    shell = InteractiveShell()
    shell.run_line_magic("load_ext", "dpsql")
    for line in ("", "", "--session two", "--session two", "", "--policy other.toml"):
        chosen = line if "--policy" in line else f"--policy policy.toml {line}"
        shell.run_line_magic("dpsql", f"connect clinic.duckdb {chosen}")
        assert near_thousand(shell._dpsql_sessions.get_open(), fresh=False)  # type: ignore[attr-defined]
    for session in shell._dpsql_sessions.values():  # type: ignore[attr-defined]
        session.close()


# -- whether it is the same data ---------------------------------------------------------------------------------------


def version(folder: Path, policy: str = POLICY, database: str = "clinic.duckdb") -> str:
    engine = DuckDBEngine(folder / database if database else ":memory:", Policy.loads(policy), folder)
    try:
        return engine.version()
    finally:
        engine.close()


@pytest.mark.parametrize("name", ["clinic.duckdb", "plans.parquet"])
def test_a_file_that_was_only_touched_is_the_same_data(folder: Path, name: str) -> None:
    before = version(folder, POLICY + OTHER)
    os.utime(folder / name, (1, 1))
    assert version(folder, POLICY + OTHER) == before
    again = (folder / name).read_bytes()
    (folder / name).unlink()
    (folder / name).write_bytes(again)
    assert version(folder, POLICY + OTHER) == before


def test_a_file_of_the_same_size_and_time_with_other_content_is_other_data(folder: Path) -> None:
    """Negative control: inode or change time tell, whatever the time of modification is set to."""
    plans = folder / "plans.parquet"
    os.utime(plans, (10**9, 10**9))
    before = version(folder, POLICY + OTHER)
    plans.write_bytes(plans.read_bytes().replace(b"free", b"full"))
    os.utime(plans, (10**9, 10**9))
    assert version(folder, POLICY + OTHER) != before


def test_touching_does_not_make_an_answer_paid_again(
    folder: Path, connect: Callable[..., dpsql.Session]
) -> None:
    with connect() as session:
        session.sql(COUNT)
        spent = session.budget().spent_epsilon
        os.utime(folder / "clinic.duckdb")
        session.sql(COUNT)
        assert session.budget().spent_epsilon == spent
    with connect() as session:
        session.sql(COUNT)
        assert session.budget().spent_epsilon == spent
    with duckdb.connect(str(folder / "clinic.duckdb")) as con:
        con.execute("DELETE FROM visits WHERE person = 7")
    with connect() as session:
        session.sql(COUNT)
        assert session.budget().spent_epsilon == 2 * spent


def test_a_digest_is_kept_for_the_next_session(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file is read once; what changed a moment ago is read again."""
    import hashlib

    read: list[object] = []
    real = hashlib.file_digest
    monkeypatch.setattr(
        state_files.hashlib, "file_digest", lambda file, name: read.append(file.name) or real(file, name)
    )
    first = version(folder)
    assert version(folder) == first, "files of this second are not trusted"
    assert len(read) == 2, "files of this second are not trusted"
    monkeypatch.setattr(state_files, "_SETTLED", -(10**18))
    assert version(folder) == first
    assert len(read) == 3
    assert version(folder) == first
    assert len(read) == 3
    os.utime(folder / "clinic.duckdb", (1, 1))
    assert version(folder) == first
    assert len(read) == 4


def test_without_a_state_directory_digests_are_computed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = version(folder)
    (folder / "file").write_text("")
    monkeypatch.setenv("DPSQL_STATE", str(folder / "file" / "below"))
    assert version(folder) == before


def test_a_declared_version_alone_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpsql.engine.base import fingerprint_data

    class Table:
        name, version = "visits", "2024-05"

    def never(table: object) -> list[str]:
        raise AssertionError("a declared version stands for the content")

    declared = fingerprint_data([Table()], never, "token")[1]  # type: ignore[list-item]
    assert declared == fingerprint_data([Table()], never, "another token")[1]  # type: ignore[list-item]
    Table.version = "2024-06"
    assert declared != fingerprint_data([Table()], never, "token")[1]  # type: ignore[list-item]


def test_a_frame_is_known_by_its_rows(folder: Path) -> None:
    import pandas as pd
    import pyarrow as pa

    def version_of(frame: object, source: str = "") -> str:
        policy = (
            POLICY.replace("privacy_unit =", f'source = "{source}"\nprivacy_unit =') if source else POLICY
        )
        engine = DuckDBEngine({source or "visits": frame}, Policy.loads(policy), folder)
        found = engine.versions["visits"]
        engine.close()
        return found

    rows = {"person": [1, 2, 3], "word": ["a", "b", None]}
    first = version_of(pd.DataFrame(rows))
    assert first == version_of(pd.DataFrame(rows)) == version_of(pd.DataFrame(rows), "frame")
    assert first != version_of(pd.DataFrame({**rows, "person": [1, 2, 4]}))
    assert first != version_of(pd.DataFrame({**rows, "word": ["a", None, "b"]}))
    assert first != version_of(pd.DataFrame({"person": [1, 2, 3]}))
    table = pa.table(rows)
    assert version_of(table) == version_of(pa.concat_tables([table.slice(0, 1), table.slice(1)]))
    assert version_of(table) != version_of(table.slice(0, 2))


def test_tables_of_an_open_connection_are_new_in_each_session(folder: Path) -> None:
    import duckdb

    with duckdb.connect() as con:
        con.execute("CREATE TABLE visits AS SELECT 1 AS person")
        engines = [DuckDBEngine(con, Policy.loads(POLICY), folder) for _ in "ab"]
        first, second = engines
        assert first.version() == first.version() != second.version()
        for engine in engines:
            engine.close()
