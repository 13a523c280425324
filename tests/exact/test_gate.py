"""The text that runs means what the text that was proved means: values are parameters in one, and stand in the other."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from sqlglot import exp

import dpsql
from dpsql.binding.values import coercion
from dpsql.catalogue.row_names import ROW_NAMES, ROW_WORDS
from dpsql.errors import BindError, Error
from dpsql.exact.normal_form import (
    UnresolvedName,
    normalise,
    restore_values,
    write_by_shape,
    write_parameters,
)
from dpsql.language.dialect import parse_fragment, to_sql
from tests.support.fixtures import session_fixture
from tests.support.nasty import COLUMNS, COMPARED, EXPRESSIONS, bound, fill

FLAGS = [
    f"regexp_replace(s, '{pattern}', '{by}'{flag})"
    for pattern, by in (("a", ""), ("[a-z]", "x"), ("(.)", "<\\1>"), ("A", "b"))
    for flag in ("", ", 'g'", ", 'i'", ", 'gi'", ", 'ig'", ", 's'", ", 'c'", ", 'gc'")
]
CALLED = [
    *(f"{name}(s, 'A'{flag})" for name in ("regexp_matches", "regexp_full_match") for flag in ("", ", 'i'", ", 'c'", ", 's'")),
    *(f"regexp_extract(s, '(a)(.)', {group}{flag})" for group in (0, 1, 2) for flag in ("", ", 'i'")),
    *(f"date_trunc('{part}', ts)" for part in ("day", "DAY", "Month", "week", "quarter", "hour", "decade")),
    *(f"date_part('{part}', ts)" for part in ("day", "DAY", "dow", "isodow", "week", "epoch", "minute")),
    *(f"date_diff('{part}', ts, ts2)" for part in ("day", "month", "hour", "YEAR")),
    *(f"date_sub('{part}', ts, ts2)" for part in ("day", "month", "hour")),
    *(f"strftime(ts, '{form}')" for form in ("%Y-%m", "%d/%m/%Y", "%A", "%-d", "%%", "%H:%M:%S")),
    *(f"try_strptime(s, '{form}')" for form in ("%Y-%m-%d", "%d/%m/%Y", "%Y-%m-%d %H:%M:%S")),
    *(f"time_bucket(INTERVAL '{many} {unit}', ts)" for many in (1, 3) for unit in ("day", "month", "hour")),
    *(f"round(z, {digits})" for digits in (-2, 0, 1, 3)), *(f"trunc(d, {digits})" for digits in (0, 1)),
    *(f"substring(s, {start}, {length})" for start in (-2, 1, 3) for length in (0, 1, 5)),
    *(f"left(s, {n})" for n in (-1, 0, 2)), *(f"split_part(s, ' ', {n})" for n in (-1, 1, 2)),
    "width_bucket(d, 0, 10, 5)", "replace(s, 'a', 'bb')", "translate(s, 'abc', 'xy')", "trim(s, 'a')", "ltrim(s, 'a ')",
    "rtrim(s, ' ')", "strpos(s, 'b')",
    "concat_ws('-', s, 'x', NULL)", "string_split(s, ' ')", "s LIKE '%a_' ESCAPE '!'", "s ILIKE 'A%'", "s SIMILAR TO 'a.*'",
    "l[1:2]", "log(2, d)", "log10(d)", "log2(d)", "mod(i, 3)", "xor(i, 5)", "greatest(i, 3)", "ts + INTERVAL 3 DAY",
    "i BETWEEN 0 AND 7",
    "ts - INTERVAL '2 months'", "i::DECIMAL(12,2)", "y IN (0.1, 999.9)", "d::VARCHAR || 'x'", "TRY_CAST(s AS DECIMAL(9,3))",
]  # fmt: skip


def shaped(sql: str) -> str:
    """Return the normal form of a text, as it is written from the text's shape."""
    columns = {"t": ["id", *COLUMNS]}
    form, values = write_by_shape(sql, lambda text: write_parameters(normalise(text, columns)))
    return restore_values(form, values)


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        fill(made)
        yield made


def rows(con: duckdb.DuckDBPyConnection, sql: str) -> list[str | None]:
    return [row[0] for row in con.execute(sql).fetchall()]


def test_values_are_the_same_by_shape_and_by_values(con: duckdb.DuckDBPyConnection) -> None:
    compared = 0
    for text in [*EXPRESSIONS, *FLAGS, *CALLED]:
        try:
            made = to_sql(bound(text).node)
        except Error:
            assert text in CALLED, text
            continue
        plain = f"SELECT CAST(({made}) AS VARCHAR) AS v FROM t ORDER BY id"
        assert rows(con, shaped(plain)) == rows(con, plain), text
        compared += 1
    assert compared > 700


def test_a_value_that_the_writer_leaves_out_is_an_error() -> None:
    flag = parse_fragment("SELECT regexp_replace(t.s, 'a', '', $flag) FROM t")
    with pytest.raises(BindError, match="losing a part"):
        to_sql(flag)
    sql = "SELECT regexp_replace(t.s, 'a', '', 'g') AS v FROM t"
    assert "'g'" in shaped(sql)
    lost = exp.select("a").from_("t")
    lost.set("mode", None)
    assert to_sql(lost) == "SELECT a FROM t"
    with pytest.raises(UnresolvedName):
        shaped("SELECT missing FROM t")


POLICY = """
budget = { epsilon = 1e12, delta = 0.1, accountant = "basic", default_epsilon = 1e8, default_delta = 1e-9 }
[tables]
t = { privacy_unit = "id", max_rows = 1, max_groups = 1, columns = { i = { bounds = [-10, 10] } } }
"""


session = session_fixture(POLICY, ledger=True)


LOOKS = ("md5(({})::VARCHAR) < '8'", "({}) IS NULL")
DIFFER = {".5", "tns", "tns::varchar"}
"""As text: '.5' is read as 0.5, and nanoseconds are not shown as DuckDB shows them."""


def count(session: dpsql.Session | duckdb.DuckDBPyConnection, looks: list[str]) -> list[int]:
    text = ", ".join(f"COUNT(*) FILTER (WHERE {look})" for look in looks)
    return list(session.sql(f"SELECT {text} FROM t").fetchall()[0])


def look_at(con: duckdb.DuckDBPyConnection, text: str) -> tuple[str, int] | None:
    """Return a look at an expression that DuckDB has, and its count; None if it raises for each."""
    for look in LOOKS:
        with contextlib.suppress(duckdb.Error):
            return look.format(text), count(con, [look.format(text)])[0]
    return None


def test_a_session_answers_as_duckdb(session: dpsql.Session, con: duckdb.DuckDBPyConnection) -> None:
    texts = [text for text in (*COMPARED, *FLAGS, *CALLED) if text.strip() not in DIFFER]
    looks = [found for text in texts if (found := look_at(con, text)) is not None]
    compared = 0
    for start in range(0, len(looks), 20):
        parts = [looks[start : start + 20]]
        try:
            count(session, [look for look, _ in parts[0]])
        except Error:  # one of them is refused
            parts = [[look] for look in parts[0]]
        for some in parts:
            with contextlib.suppress(dpsql.BindError, dpsql.PrivacyError):
                ours = count(session, [look for look, _ in some])
                assert ours == [n for _, n in some], [x for x, a in zip(some, ours, strict=True) if x[1] != a]
                compared += len(some)
    assert compared > 550


MODES = (
    "SELECT COUNT(*) FROM t WHERE {0}",
    "SELECT {0} AS k, COUNT(*) FROM t GROUP BY k",
    "SELECT COUNT(DISTINCT {0}) FROM t",
    "SELECT WITH SUBSAMPLE OPTIONS (blocks = 2, bounds = (0, 1)) AVG(CASE WHEN {0} THEN 1 ELSE 0 END) FROM t",
    "SELECT WITH PTR MODE({0}) FROM t",
    "SELECT WITH STABLE OPTIONS (epsilon = 1e6) MODE({0}) FROM t",
    "WITH c(v) AS (VALUES (1), (2)) SELECT EXPMECH(COUNT(*) FILTER (WHERE {0} AND i = v)) OVER c FROM t",
    "WITH c(v) AS (VALUES (1), (2)) SELECT v, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE {0} AND i <= v), 3) OVER c FROM t",
    "SELECT SUM(x) FROM (SELECT id, SUM(CASE WHEN {0} THEN 1 ELSE 0 END) AS x FROM t GROUP BY id)",
    "SELECT COUNT(*) FROM t a WHERE EXISTS (SELECT 1 FROM t WHERE t.id = a.id AND {0})",
)  # fmt: skip


def find_uses() -> dict[str, str]:
    """Return an expression with each function that the binder knows."""
    found: dict[str, str] = {}
    for text in (*EXPRESSIONS, *CALLED, *FLAGS):
        for name in re.findall(r"(\w+)\s*\(", text.lower()):
            if name in ROW_WORDS:
                found.setdefault(name, text)
    return found


def test_the_lock_knows_every_function_in_every_mode(session: dpsql.Session) -> None:
    uses = find_uses()
    missing = {*(row.name for row in ROW_NAMES if row.signature or row.unit), *coercion.CALLED} - uses.keys()
    assert not missing
    listed = list(dict.fromkeys(uses.values()))
    for start in range(0, len(listed), 12):
        some = listed[start : start + 12]
        condition = "(" + " AND ".join(f"({text}) IS NOT NULL" for text in some) + ")"
        for mode in MODES:
            try:
                session.sql(mode.format(condition))
            except Error as error:
                raise AssertionError((mode, some, str(error))) from None


def test_try_strptime_is_what_duckdb_says(session: dpsql.Session, con: duckdb.DuckDBPyConnection) -> None:
    looks = ["try_strptime(s, '%Y-%m-%d') > DATE '2020-01-01'", "try_strptime(s, '%Y-%m-%d') IS NULL"]
    assert count(session, looks) == count(con, looks)
    assert count(session, [look.removeprefix("try_") for look in looks]) == count(con, looks)


def test_no_warning_is_all_that_tells(caplog: pytest.LogCaptureFixture, session: dpsql.Session) -> None:
    session.sql("SELECT COUNT(*) FROM t WHERE regexp_replace(s, 'a', '', 'g') = 'b'")
    assert not caplog.records


def test_each_place_of_the_language_has_the_flags(tmp_path: Path) -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i AS id, 'foo bar baz' AS s, 1 AS i FROM range(300) r(i)")
    k = "regexp_replace(s, 'A', '', 'gi')"
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY), ledger=tmp_path / "ledger") as session:
        assert session.sql(f"SELECT COUNT(*) FROM t WHERE {k} = 'foo br bz'").fetchone() == (300,)
        assert session.sql(f"SELECT {k} AS k, COUNT(*) FROM t GROUP BY k").fetchall() == [("foo br bz", 300)]
        for mode in ("PTR", "SUBSAMPLE", "STABLE OPTIONS (epsilon = 1e6)"):
            assert session.sql(f"SELECT WITH {mode} MODE({k} = 'foo br bz') AS k FROM t").fetchone() == (
                True,
            )
        listed = "WITH c(v) AS (VALUES ('foo br bz'), ('foo br baz'))"
        chosen = f"{listed} SELECT EXPMECH(COUNT(*) FILTER (WHERE {k} = v)) OVER c FROM t"
        assert session.sql(chosen).fetchone() == ("foo br bz",)
