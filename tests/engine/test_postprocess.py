"""The embedded DuckDB that only public things reach."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from dpsql.engine.postprocess import Finisher
from dpsql.engine.sandbox import (
    SchemaReplica,
    quote_identifier,
    run_interruptibly,
    run_query,
    write_empty_query,
)
from dpsql.errors import BindError
from dpsql.policy.model import Budget, Policy, Table

WARDS = Table("wards", public=True)
VISITS = Table("visits", privacy_unit="person")
RELEASED = pa.table({"ward": ["A", "B"], "n": [10, -3]})
TYPES = [("ward", "VARCHAR"), ("n", "BIGINT")]


class Source:
    """Public tables, and a complaint when a private one is asked for."""

    def schema(self, table: Table) -> Mapping[str, str]:
        return {"ward": "VARCHAR", "beds": "INTEGER"}

    def public(self, table: Table) -> pa.Table:
        assert table.public
        return pa.table({"ward": ["A", "B"], "beds": pa.array([5, 7], pa.int32())})

    def orders(self, table: Table) -> Mapping[str, tuple[str, ...]]:
        return {}


@pytest.fixture
def finisher() -> Finisher:
    return Finisher(Source(), Policy(Budget(1), {"wards": WARDS, "visits": VISITS}))


def test_any_sql_over_releases_and_public_tables(finisher: Finisher) -> None:
    sql = "SELECT ward, n * beds AS m, rank() OVER (ORDER BY n) AS r FROM b JOIN wards USING (ward) ORDER BY r LIMIT 1"
    assert finisher.describe(sql, {"b": TYPES}, ["wards"]) == [
        ("ward", "VARCHAR"),
        ("m", "BIGINT"),
        ("r", "BIGINT"),
    ]
    assert finisher.finish(sql, {"b": RELEASED}, ["wards"]).to_pylist() == [{"ward": "B", "m": -21, "r": 1}]


def test_errors_of_types_and_names_come_before_anything_is_paid(finisher: Finisher) -> None:
    for sql in (
        "SELECT n + ward FROM b",
        "SELECT m FROM b",
        "SELECT * FROM visits",
        "SELECT nope(n) FROM b",
        "SELEC",
    ):
        with pytest.raises(BindError):
            finisher.describe(sql, {"b": TYPES}, ["wards"])


def test_releases_are_forgotten(finisher: Finisher) -> None:
    finisher.finish("SELECT * FROM b", {"b": RELEASED})
    with pytest.raises(BindError):
        finisher.finish("SELECT * FROM b", {})


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "COPY (SELECT 1) TO 'out.csv'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "SELECT * FROM RELEASED",
    ],
)
def test_outside_is_out_of_reach(
    finisher: Finisher, sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BindError):
        finisher.finish(sql, {})
    assert not list(tmp_path.iterdir())


def test_failures_at_run_time_say_what_is_wrong(finisher: Finisher) -> None:
    sql = "SELECT CAST(ward AS INTEGER) AS w FROM b"
    finisher.describe(sql, {"b": TYPES})
    with pytest.raises(BindError, match="above the private part") as caught:
        finisher.finish(sql, {"b": RELEASED})
    assert caught.value.__context__ is None


def test_an_answer_is_read_as_far_as_it_may_be_large(
    finisher: Finisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.engine.postprocess.MAX_PUBLIC_SECONDS", 600)
    sql = "SELECT * FROM range(1000000000000) AS r(i)"
    assert finisher.finish(sql, {}, (), 10).num_rows < 1 << 20, "it is only begun where few rows may come"
    with pytest.raises(BindError, match="its answer is larger than 256 MiB"):
        finisher.finish(sql, {})
    assert finisher.finish("SELECT n FROM b", {"b": RELEASED}).num_rows == 2


def test_a_query_that_takes_too_long_is_ended(finisher: Finisher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.engine.postprocess.MAX_PUBLIC_SECONDS", 0.2)
    with pytest.raises(BindError, match="it takes longer than"):
        finisher.finish(
            "SELECT SUM(a.range * b.range) FROM range(1000000000) AS a, range(1000000000) AS b", {}
        )
    monkeypatch.setattr("dpsql.engine.postprocess.MAX_PUBLIC_SECONDS", 600)
    assert finisher.finish("SELECT n FROM b", {"b": RELEASED}).num_rows == 2


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("SELECT CAST(n AS DATE) AS d FROM b", "BIGINT can't be cast to DATE"),
        ("SELECT CAST([n] AS DATE[]) AS d FROM b", "BIGINT[] can't be cast to DATE[]"),
        ("SELECT CAST({'a': n} AS STRUCT(a TIME)) AS d FROM b", "can't be cast to STRUCT"),
        (
            "SELECT ward FROM b ORDER BY CASE WHEN n > 2 THEN CAST(n AS TIME) END",
            "BIGINT can't be cast to TIME",
        ),
        ("SELECT CAST('abc' AS DATE) AS d, n FROM b", "'abc' is not a valid DATE"),
    ],
)
def test_casts_that_always_fail_are_refused_when_they_are_bound(
    finisher: Finisher, sql: str, what: str
) -> None:
    with pytest.raises(BindError) as caught:
        finisher.describe(sql, {"b": TYPES})
    assert what in caught.value.message


@pytest.mark.parametrize(
    "item",
    [
        "TRY_CAST(n AS DATE)", "TRY(CAST('abc' AS DATE))", "CASE WHEN n > 10 THEN CAST('abc' AS DATE) END",
        "CAST('2024-01-01' AS DATE)", "CAST(n AS VARCHAR)", "CAST([n] AS VARCHAR)", "CAST(n AS DECIMAL(10, 2))",
        "CAST(n AS BOOLEAN)", "CAST(current_date AS TIMESTAMP)", "CAST([n] AS DOUBLE[])",
    ],
)  # fmt: skip
def test_casts_that_there_are_are_bound_and_run(finisher: Finisher, item: str) -> None:
    sql = f"SELECT {item} AS d FROM b"
    finisher.describe(sql, {"b": TYPES})
    assert finisher.finish(sql, {"b": RELEASED}).num_rows == 2


def test_a_clone_has_names_and_no_rows() -> None:
    clone = SchemaReplica(
        [
            (("memory", "main", "t"), [("a b", "INTEGER")]),
            (("other", "sub", 'x"y'), [("c", "VARCHAR[]")]),
            (("temp", "main", "s"), [("d", "DATE")]),
        ]
    )
    clone.check('SELECT SUM("a b") FROM memory.main.t', {})
    clone.check('SELECT c, d, k FROM "other"."sub"."x""y", temp.main.s, lent', {"lent": [("k", "BIGINT")]})
    with pytest.raises(BindError):
        clone.check("SELECT nothing FROM memory.main.t", {})
    with pytest.raises(BindError):
        clone.check("SELECT * FROM read_csv('/etc/passwd')", {})
    clone.close()


def test_a_clone_that_was_put_away_serves_the_same_tables_only_and_keeps_nothing_that_was_lent() -> None:
    tables = [(("memory", "main", "kept"), [("a", "INTEGER")])]
    clone = SchemaReplica.of(tables)
    clone.check("SELECT a, k FROM kept, lent", {"lent": [("k", "BIGINT")]})
    clone.put_away()
    other = SchemaReplica.of([(("memory", "main", "kept"), [("a", "BIGINT")])])
    again = SchemaReplica.of(tables)
    assert again is clone
    assert other is not clone
    assert SchemaReplica.of(tables) is not clone, "one clone for two sessions"
    with pytest.raises(BindError, match="can't run"):
        again.check("SELECT k FROM lent", {})
    again.check("SELECT k FROM lent", {"lent": [("k", "DATE")]})


def test_a_finisher_that_breaks_is_opened_anew(finisher: Finisher) -> None:
    assert finisher._opened is None, "nothing was asked"
    sql = "SELECT beds FROM b JOIN wards USING (ward)"
    finisher.describe(sql, {"b": TYPES}, ["wards"])
    before = finisher.finish(sql, {"b": RELEASED}, ["wards"])
    opened = finisher._opened
    finisher._reopen(duckdb.BinderException)
    assert finisher._opened is opened
    finisher._reopen(duckdb.FatalException)
    assert finisher._opened is None
    assert finisher.finish(sql, {"b": RELEASED}, ["wards"]).equals(before)
    assert len(finisher.describe(f"{sql} LIMIT 1", {"b": TYPES}, ["wards"])) == 1


def test_a_thread_that_waits_holds_nothing_of_its_last_query() -> None:
    class Rows:
        pass

    rows = Rows()
    seen = weakref.ref(rows)
    outcome = run_interruptibly(lambda rows=rows: rows, lambda: None, threading.Event())  # type: ignore[misc]
    assert outcome.table is rows  # type: ignore[comparison-overlap]
    del rows, outcome
    assert seen() is None


def test_names_are_quoted() -> None:
    with duckdb.connect() as con:
        columns = [('we "ird', "INTEGER"), ("select", "VARCHAR")]
        assert con.sql(write_empty_query(columns)).to_arrow_table().column_names == ['we "ird', "select"]
        assert con.sql(f"SELECT 1 AS {quote_identifier('a;--')}").to_arrow_table().column_names == ["a;--"]


def test_a_run_is_an_outcome_whatever_happens() -> None:
    with duckdb.connect() as con:
        never = threading.Event()
        assert run_query(con, "SELECT 1 AS a", {}, never).table.to_pylist() == [{"a": 1}]
        failed = run_query(con, "SELECT nothing", {}, never)
        assert failed.table is None
        assert failed.failure is not None
        assert issubclass(failed.failure, duckdb.BinderException)
        stop = threading.Event()
        stop.set()
        begun = time.monotonic()
        slow = "SELECT SUM(a.range * b.range % 7) FROM range(300000) a, range(300000) b"
        assert run_query(con, slow, {}, stop).stopped
        assert time.monotonic() - begun < 60


def test_cached_rows_are_lent_with_their_types(finisher: Finisher) -> None:
    """A UUID is a text for people, and no text for another DuckDB."""
    for value, kind in (("uuid '00000000-0000-0000-0000-000000000001'", "UUID"), ("'a'", "VARCHAR")):
        listed = f"SELECT {value} AS v FROM range(3)"
        finisher.keep(listed)
        with duckdb.connect() as con:
            con.register("lent", finisher.lend(listed, {}))
            assert con.sql("SELECT DISTINCT typeof(v) FROM lent").fetchall() == [(kind,)]
