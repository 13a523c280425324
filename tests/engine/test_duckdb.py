"""The DuckDB engine: what it opens, what it hides, what it refuses to do."""

from __future__ import annotations

import decimal
import os
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.engine import sources
from dpsql.engine.base import WITHHELD
from dpsql.engine.duckdb import DuckDBEngine
from dpsql.errors import BindError, EngineError, PolicyError, PrivacyError
from dpsql.policy.model import Budget, Column, Policy, Table
from tests.support import inside
from tests.support.stop_button import pressed

SECRET = "not-a-number-4711"


def policy(*tables: Table) -> Policy:
    return Policy(Budget(1), {table.name: table for table in tables})


def visits(source: str | None = None, **types: str) -> Table:
    columns = {name: Column(type=kind) for name, kind in types.items()}
    return Table("visits", privacy_unit="person", source=source, columns=columns)


@pytest.fixture
def data() -> pa.Table:
    return pa.table({"person": [1, 1, 2], "amount": [1.5, None, 2.0], "note": ["a", SECRET, "c"]})


@pytest.fixture
def file(tmp_path: Path, data: pa.Table) -> Path:
    with duckdb.connect(str(tmp_path / "visits.duckdb")) as con:
        con.register("given", data)
        con.execute("CREATE TABLE visits AS SELECT * FROM given")
        con.execute("CREATE TABLE hidden AS SELECT 42 AS answer")
    return tmp_path / "visits.duckdb"


def count(engine: DuckDBEngine, name: str = "visits") -> int:
    table = engine.policy.tables[name]
    return int(engine.execute(f"SELECT COUNT(*) AS n FROM {engine.relation(table)}")["n"][0].as_py())


class TestOpening:
    def test_an_open_connection_keeps_its_settings_and_stays_open(self, data: pa.Table) -> None:
        with duckdb.connect() as con:
            con.register("given", data)
            con.execute("CREATE TABLE visits AS SELECT * FROM given")
            settings = "SELECT name, value FROM duckdb_settings() WHERE name <> 'duckdb_api' ORDER BY name"
            before = con.execute(settings).fetchall()
            engine = DuckDBEngine(con, policy(visits()), Path())
            assert count(engine) == 3
            engine.close()
            assert con.execute(settings).fetchall() == before
            assert con.execute("SELECT COUNT(*) FROM visits").fetchone() == (3,)

    def test_settings_that_merge_people_are_refused(self, data: pa.Table) -> None:
        with duckdb.connect() as con:
            con.execute("SET default_collation = 'nocase'")
            con.register("visits", data)
            with pytest.raises(PolicyError, match="default_collation"):
                DuckDBEngine(con, policy(visits()), Path())

    def test_a_cursor_does_not_inherit_them(self) -> None:
        with duckdb.connect() as con:
            con.execute("CREATE TABLE visits AS SELECT unnest(['A', 'a']) AS person")
            con.execute("SET default_collation = 'nocase'")
            engine = DuckDBEngine(con, policy(visits()), Path())
            people = engine.execute(f"SELECT COUNT(DISTINCT person) AS n FROM {engine.relation(visits())}")
            assert people["n"][0].as_py() == 2
            engine.close()

    @pytest.mark.parametrize(
        ("database", "source", "sentence"),
        [
            ("nowhere.duckdb", None, "there is no database"),
            (":memory:", None, "does not have"),
            (":memory:", "nowhere.parquet", "does not exist"),
            (":memory:", "policy.py/x", "does not read files like"),
            (":memory:", "policy.py/", "does not read files like"),
            (":memory:", "broken.parquet", "can't be read as parquet"),
            ("broken.parquet", None, "can't be opened"),
        ],
    )
    def test_what_is_missing(self, tmp_path: Path, database: str, source: str | None, sentence: str) -> None:
        (tmp_path / "broken.parquet").write_text(SECRET)
        where = database if database == ":memory:" else str(tmp_path / database)
        with pytest.raises(PolicyError, match=sentence) as caught:
            DuckDBEngine(where, policy(visits(source)), tmp_path)
        assert SECRET not in "".join(traceback.format_exception(caught.value))

    def test_a_database_that_was_not_named(self, tmp_path: Path) -> None:
        with pytest.raises(PolicyError) as caught:
            DuckDBEngine(":memory:", policy(visits()), tmp_path)
        assert caught.value.hint is not None
        assert "connect to the database that holds visits" in caught.value.hint

    def test_text_that_does_not_fit_its_column_is_null(self, tmp_path: Path) -> None:
        rows = "\n".join(f"{n},1" for n in range(30_000))
        (tmp_path / "visits.csv").write_text(f"person,amount\n{rows}\n7,{SECRET}\n")
        table = visits("visits.csv", person="BIGINT", amount="BIGINT")
        engine = DuckDBEngine(":memory:", policy(table), tmp_path)
        assert engine.schema(table)["amount"] == "BIGINT"
        assert count(engine) == 30_001
        engine.close()


class TestHiding:
    def test_labels_of_an_enum_are_data(self) -> None:
        with duckdb.connect() as con:
            con.execute("CREATE TYPE illness AS ENUM ('flu', 'it''s, (rare)')")
            con.execute("CREATE TABLE visits (person INT, ill illness, all_ill illness[], amount INT)")
            engine = DuckDBEngine(con, policy(visits()), Path())
            assert dict(engine.schema(visits())) == {
                "person": "INTEGER",
                "ill": "VARCHAR",
                "all_ill": "VARCHAR[]",
                "amount": "INTEGER",
            }
            engine.close()

    def test_the_engines_message_is_withheld(self, file: Path) -> None:
        engine = DuckDBEngine(str(file), policy(visits()), file.parent)
        sql = f"SELECT SUM(CAST(note AS INTEGER)) AS s FROM {engine.relation(visits())}"
        with pytest.raises(EngineError) as caught:
            engine.execute(sql)
        error = caught.value
        assert error.message == WITHHELD
        assert error.__cause__ is None
        assert error.__context__ is None
        frames = [frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__)]
        assert SECRET not in repr(frames)
        engine.close()

    def test_every_failure_reads_the_same(self, file: Path) -> None:
        engine = DuckDBEngine(str(file), policy(visits()), file.parent)
        said = set()
        for sql in (
            "SELECT CAST('x' AS INT)",
            "SELECT nothing",
            "SELEC",
            "SELECT error('x')",
            "COPY visits TO 'x'",
        ):
            with pytest.raises(EngineError) as caught:
                engine.execute(sql)
            said.add(str(caught.value))
        assert said == {WITHHELD}
        engine.close()

    def test_an_internal_error_is_one_more_failure_and_the_next_statement_works(self, file: Path) -> None:
        engine = DuckDBEngine(str(file), policy(visits()), file.parent)
        nines = "9" * 44
        for sql in (
            f"SELECT TRY_CAST({nines} AS BIGINT)",
            f"SELECT CASE WHEN person = 1 THEN {nines} ELSE 1 END::BIGINT FROM {engine.relation(visits())}",
        ):
            try:
                engine.execute(sql)
            except EngineError as error:
                assert str(error) == WITHHELD
        assert count(engine) == 3
        engine.close()


class TestLocked:
    @pytest.mark.parametrize(
        "sql",
        [
            "SELECT * FROM read_csv('/etc/passwd')",
            "SELECT * FROM '/etc/passwd'",
            "SELECT * FROM glob('/*')",
            "COPY visits TO 'out.csv'",
            "INSTALL httpfs",
            "SET enable_external_access = true",
            "SET memory_limit = '1GB'",
            "CREATE TABLE x AS SELECT 1",
            "DROP TABLE visits",
            "SELECT * FROM outside",
        ],
    )
    def test_outside_is_out_of_reach(
        self, file: Path, tmp_path: Path, sql: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        outside = pa.table({"a": [1]})  # a local of this frame: Python names are not tables
        engine = DuckDBEngine(str(file), policy(visits()), file.parent)
        with pytest.raises(EngineError):
            engine.execute(sql)
        assert not (tmp_path / "out.csv").exists()
        assert outside.num_rows == 1
        engine.close()

    def test_a_source_stays_readable_and_its_neighbours_do_not(self, tmp_path: Path, data: pa.Table) -> None:
        with duckdb.connect() as con:
            con.register("given", data)
            con.execute(f"COPY given TO '{tmp_path}/visits.parquet'")
            con.execute(f"COPY given TO '{tmp_path}/other.parquet'")
        engine = DuckDBEngine(":memory:", policy(visits("visits.parquet")), tmp_path)
        assert count(engine) == 3
        with pytest.raises(EngineError):
            engine.execute(f"SELECT * FROM read_parquet('{tmp_path}/other.parquet')")
        engine.close()


class TestAnswers:
    def test_sums_are_exact_integers(self) -> None:
        with duckdb.connect() as con:
            con.execute("CREATE TABLE visits AS SELECT 9223372036854775807 AS person FROM range(1000)")
            engine = DuckDBEngine(con, policy(visits()), Path())
            total = engine.execute(f"SELECT SUM(person) AS s FROM {engine.relation(visits())}")
            assert total.schema.field("s").type == pa.decimal128(38, 0)
            assert total["s"][0].as_py() == decimal.Decimal(9223372036854775807000)
            engine.close()

    def test_lent_relations_are_seen_once(self, file: Path) -> None:
        engine = DuckDBEngine(str(file), policy(visits()), file.parent)
        lent = {"dpsql_lent": pa.table({"k": [1, 2]})}
        assert engine.execute("SELECT SUM(k) AS s FROM dpsql_lent", lent)["s"][0].as_py() == 3
        with pytest.raises(EngineError):
            engine.execute("SELECT SUM(k) AS s FROM dpsql_lent")
        engine.close()

    def test_check_binds_without_data(self, file: Path) -> None:
        engine = DuckDBEngine(str(file), policy(visits()), file.parent)
        engine.check(
            f"SELECT SUM(k + person) FROM {engine.relation(visits())}, lent", {"lent": [("k", "BIGINT")]}
        )
        # fails on data only
        engine.check(f"SELECT CAST(note AS INTEGER) FROM {engine.relation(visits())}", {})
        with pytest.raises(BindError):
            engine.check(f"SELECT nothing FROM {engine.relation(visits())}", {})
        engine.close()

    @pytest.mark.parametrize("stop", ["signal", "interrupt"])
    def test_stopping(self, file: Path, stop: str) -> None:
        engine = DuckDBEngine(str(file), policy(visits()), file.parent)
        act: dict[str, Callable[[], None]] = {
            "signal": lambda: os.kill(os.getpid(), signal.SIGINT),
            "interrupt": engine.interrupt,
        }
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt), pressed(act[stop], times=1 if stop == "signal" else None):
            engine.execute("SELECT SUM(a.range * b.range % 7) FROM range(300000) a, range(300000) b")
        assert time.monotonic() - begun < 60
        assert count(engine) == 3
        engine.close()


def test_no_exact_query_calls_a_function_that_the_owner_makes_later() -> None:
    with duckdb.connect() as con:
        con.execute("CREATE SCHEMA other")
        con.execute("CREATE TABLE visits AS SELECT range AS person, 30 AS age FROM range(9)")
        con.execute("CREATE VIEW other.seen AS SELECT person, age FROM visits")
        shared = {"privacy_unit": "person", "max_rows": 1, "columns": {"age": Column(bounds=(0, 99))}}
        tables = [
            Table(name, source=source, **shared) for name, source in (("v", "visits"), ("s", "other.seen"))
        ]  # type: ignore[arg-type]
        with dpsql.connect(con, policy=policy(*tables)) as session:
            engine = inside.engine(session)
            assert engine.macros == frozenset()
            con.execute("CREATE MACRO sum(a) AS 7")
            con.execute('CREATE MACRO "+"(a, b) AS 7')
            con.execute("CREATE MACRO range(a) AS TABLE SELECT 7 AS range")
            assert con.execute("SELECT sum(age) + 1 FROM visits").fetchone() == (7,)
            for table in tables:
                text = f"SELECT sum(age) + 1 AS a FROM {engine.relation(table)}"
                assert engine.execute(text).to_pylist() == [{"a": 271}]
            assert engine.execute("SELECT * FROM range(2)").num_rows == 2
        with dpsql.connect(con, policy=policy(*tables)) as later:
            assert inside.engine(later).macros == {"sum", "+", "range"}, "the second lock refuses them"


def test_no_exact_query_calls_a_function_of_the_owner(tmp_path: Path) -> None:
    """A macro that is named like a function of DuckDB is called in its place, and its sensitivity is unknown."""
    path = tmp_path / "data.duckdb"
    with duckdb.connect(path) as con:
        con.execute("CREATE TABLE visits AS SELECT range AS person, 30 AS age FROM range(9)")
    table = Table("visits", privacy_unit="person", max_rows=2, columns={"age": Column(bounds=(0, 99))})
    sums = "SELECT WITH DP OPTIONS (epsilon = 0.1) SUM(age) AS s FROM visits"
    with dpsql.connect(str(path), policy=policy(table)) as session:
        assert session.sql(sums).shape == (1, 1)
    with duckdb.connect(path) as con:
        con.execute("CREATE MACRO ABS(a) AS a * a")
    with dpsql.connect(str(path), policy=policy(table)) as session:
        before = session.budget().spent
        with pytest.raises(PrivacyError):
            session.sql(sums)
        assert session.budget().spent == before


def test_a_session_lists_the_catalog_once_for_all_of_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listing it takes longer than any other step of opening a table."""
    listed: list[object] = []
    own = sources.list_catalog
    monkeypatch.setattr(sources, "list_catalog", lambda con: listed.append(con) or own(con))
    with duckdb.connect() as con:
        for number in range(5):
            con.execute(f"CREATE TABLE t{number} AS SELECT 1 AS u")
        tables = {f"t{number}": Table(f"t{number}", privacy_unit="u", max_rows=1) for number in range(5)}
        DuckDBEngine(con, Policy(Budget(1), tables), Path()).close()
    assert len(listed) == 2, "for its cursor, and for the places of its tables"
