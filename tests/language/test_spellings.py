"""PostgreSQL's TO_CHAR, TO_DATE, TO_TIMESTAMP and DATE, over values that PostgreSQL 15 gives."""

from __future__ import annotations

import datetime

import duckdb
import pytest

import dpsql
from tests.support.fixtures import session_fixture

POLICY = """
budget = { epsilon = 1e9, default_epsilon = 1e6 }
[tables]
t = { privacy_unit = "u", max_rows = 1, columns = { seen = { bounds = [2024-01-01, 2024-12-31] }, \
    day = { bounds = [2024-01-01, 2024-12-31] }, txt = { max_length = 20 } } }
"""
MOMENT = "TIMESTAMP '2024-02-29 13:04:05.678'"
WRITTEN = {
    "YYYY-MM-DD": "2024-02-29", "yyyy/mm/dd": "2024/02/29", "YY": "24", "HH24:MI:SS": "13:04:05", "HH12:MI AM": "01:04 PM",
    "HH:MI pm": "01:04 pm", "SS.MS": "05.678", "SS.US": "05.678000", "Mon": "Feb", "MON": "FEB", "mon": "feb",
    "Month YYYY": "February  2024", "FMMonth YYYY": "February 2024", "MONTH": "FEBRUARY ",
    "Day": "Thursday ", "FMDay": "Thursday",
    "Dy": "Thu", "DY": "THU", "DDD": "060", "D": "5", "ID": "4", "Q": "1", '"Q"Q YYYY': "Q1 2024", "IYYY-IW": "2024-09",
    'YYYY-MM-DD"T"HH24:MI:SS': "2024-02-29T13:04:05", "FMMM/FMDD": "2/29", '"100%" YYYY': "100% 2024",
}  # fmt: skip
TABLES = """
CREATE TABLE t AS SELECT i AS u, TIMESTAMP '2024-01-01' + INTERVAL (i) DAY AS seen, DATE '2024-01-01' + i::INT AS day,
    strftime(DATE '2024-01-01' + i::INT, '%d.%m.%Y') AS txt FROM range(366) r(i);
"""
session = session_fixture(POLICY, TABLES)


def test_to_char_writes_as_postgresql(session: dpsql.Session) -> None:
    asked = ", ".join(f"to_char({MOMENT}, '{form}') AS c{i}" for i, form in enumerate(WRITTEN))
    assert session.sql(f"SELECT {asked}").fetchall() == [tuple(WRITTEN.values())]
    assert session.sql(f"SELECT to_char({MOMENT}, 'YYYY'), DATE({MOMENT})").columns == ["to_char", "date"]


@pytest.mark.parametrize(
    ("form", "groups"), [("YYYY-MM", 12), ('YYYY-"Q"Q', 4), ("FMDay", 7), ("IYYY-IW", 53)]
)
def test_groups_of_private_rows_are_public(session: dpsql.Session, form: str, groups: int) -> None:
    for column in ("seen", "day"):
        rows = session.sql(f"SELECT to_char({column}, '{form}') AS g, COUNT(*) FROM t GROUP BY 1").fetchall()
        assert len(rows) == groups
        assert sum(n for _, n in rows) == 366


READ = [
    ("TO_DATE('20240229', 'YYYYMMDD')", datetime.date(2024, 2, 29)),
    ("TO_TIMESTAMP('2024-02-29 13:04:05.678000', 'YYYY-MM-DD HH24:MI:SS.US')", datetime.datetime(2024, 2, 29, 13, 4, 5, 678000)),
    ("TO_TIMESTAMP('Feb 29 2024 01:04 PM', 'Mon DD YYYY HH12:MI PM')", datetime.datetime(2024, 2, 29, 13, 4)),
    ("DATE('2024-02-29')", datetime.date(2024, 2, 29)),
]  # fmt: skip


@pytest.mark.parametrize(("call", "expected"), READ)
def test_texts_are_read_by_format(session: dpsql.Session, call: str, expected: object) -> None:
    assert session.sql(f"SELECT {call} AS x").fetchall() == [(expected,)]
    assert session.sql(f"SELECT COUNT(*) FROM t WHERE day < {call}").fetchall() in ([(59,)], [(60,)])


def test_private_texts_are_read_by_format(session: dpsql.Session) -> None:
    asked = "SELECT COUNT(*) FROM t WHERE {} >= DATE '2024-12-01'"
    assert session.sql(asked.format("TO_DATE(txt, 'DD.MM.YYYY')")).fetchall() == [(31,)]
    assert session.sql(asked.format("TO_TIMESTAMP(txt, 'DD.MM.YYYY')")).fetchall() == [(31,)]
    assert session.sql(asked.format("TO_DATE(txt, 'YYYY-MM-DD')")).fetchall() == [(0,)], (
        "other texts are NULL"
    )
    assert session.sql(asked.format("DATE(seen)")).fetchall() == [(31,)]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("TO_CHAR(day, 'WW')", "the format 'WW'"),
        ("TO_CHAR(day, 'DDth')", "the format 'Dth'"),
        ("TO_CHAR(u, '999')", "the format '999'"),
        ("TO_CHAR(u, '. ')", "a format of dates and times"),
        ("TO_CHAR(txt, 'YYYY')", "a date is needed"),
        ("TO_CHAR(day, txt)", "a format must be a literal"),
        ("TO_DATE(txt, 'YYYY-Q')", "reads years, months, days and times"),
        ("TO_DATE('2024-13-01', 'YYYY-MM-DD')", "does not have the format"),
    ],
)
def test_others_are_refused(session: dpsql.Session, call: str, said: str) -> None:
    with pytest.raises(dpsql.Error, match=said) as raised:
        session.sql(f"SELECT {call} AS g, COUNT(*) FROM t GROUP BY 1")
    assert raised.value.span is not None


CHAINS = {
    "txt.left(2).upper()": "upper(left(txt, 2))", "t.day.month()": "month(t.day)", "seen.date_trunc('x')": None,
    "('AB').lower() || txt.length()::VARCHAR": "lower('AB') || length(txt)::VARCHAR", "txt.left(1, 2, 3)": None,
}  # fmt: skip


@pytest.mark.parametrize("written", CHAINS)
def test_a_chain_of_calls_is_read_as_calls_in_each_other(session: dpsql.Session, written: str) -> None:
    if CHAINS[written] is None:
        with pytest.raises(dpsql.Error):
            session.sql(f"SELECT COUNT(*) FROM t WHERE {written} IS NULL")
        return
    same = f"({written}) IS NOT DISTINCT FROM ({CHAINS[written]})"
    assert session.sql(f"SELECT COUNT(*) FROM t WHERE {same}").fetchall() == [(366,)]
    assert session.sql("SELECT u.count() AS n FROM t").fetchall() == [(366,)]


ROWS = """
CREATE TABLE r AS SELECT row_number() OVER () AS u, * FROM (SELECT * FROM (VALUES (1), (2), (NULL)) a(x),
    (VALUES ('a'), ('b'), (NULL)) b(y), (VALUES (1.5::DOUBLE), ('nan'), (NULL)) c(z));
"""
ordered = session_fixture(f"{POLICY}r = {{ privacy_unit = 'u', max_rows = 1 }}", TABLES + ROWS)


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
@pytest.mark.parametrize(
    ("left", "right"),
    [("(x, y)", "(1, 'b')"), ("(x, y)", "(1, NULL)"), ("(x, y, z)", "(1, 'a', 1.5)"),
     ("(x = 1, z)", "(TRUE, 1)"), ("(2, 1)", "(x, z)")],
)  # fmt: skip
def test_rows_of_values_have_duckdbs_order(
    ordered: dpsql.Session, left: str, operator: str, right: str
) -> None:
    condition = f"{left} {operator} {right}"
    with duckdb.connect() as con:
        con.execute(ROWS)
        expected = con.execute(f"SELECT COUNT(*) FROM r WHERE {condition}").fetchall()
        ends = con.execute(f"SELECT {left} >= {right}, {left} <= {right} FROM r").fetchall()
    assert ordered.sql(f"SELECT COUNT(*) FROM r WHERE {condition}").fetchall() == expected
    text = f"SELECT COUNT(*) FROM r WHERE {left} BETWEEN {right} AND {right}"
    assert ordered.sql(text).fetchall() == [(sum(map(all, ends)),)]  # DuckDB 1.5 has no BETWEEN for rows
