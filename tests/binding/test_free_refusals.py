"""Slips that would be answered with noise alone, or in another sense than they are meant: refused or noted before payment."""

from __future__ import annotations

from typing import Any

import pytest

import dpsql
from tests.support.case_files import read_part
from tests.support.fixtures import session_fixture

POLICY = """
budget = { epsilon = 1e9, delta = 1e-2, accountant = "basic", default_epsilon = 10, default_delta = 1e-9 }
[tables]
flights = { privacy_unit = "uid", max_rows = 10, max_groups = 10, columns = { \
    origin = { values = ["JFK", "LGA", "EWR"] }, gate = { values = [1, 2, 3] }, late = { values = [true, false] }, \
    age = { bounds = [0, 120] }, day = { bounds = [2024-01-01, 2024-01-31] } } }
"""
TABLES = """
CREATE TABLE flights AS SELECT i AS uid, ['JFK', 'LGA', 'EWR'][i % 3 + 1] AS origin, i % 3 + 1 AS gate,
    i % 2 = 0 AS late, i % 100 AS age, DATE '2024-01-01' + (i % 30)::INT AS day,
    i::VARCHAR AS note FROM range(300) r(i);
"""
session = session_fixture(POLICY, TABLES)


def refuse(session: dpsql.Session, text: str, params: Any = None) -> dpsql.Error:
    """Return the refusal of a statement, which costs nothing."""
    before = session.budget().spent
    with pytest.raises(dpsql.Error) as caught:
        session.sql(text, params)
    assert not isinstance(caught.value, dpsql.EngineError)
    assert session.budget().spent == before
    return caught.value


def marked(error: dpsql.Error) -> str:
    """Return the text above an error's carets."""
    assert error.span is not None
    return error.text[slice(*error.span)]


STRANGE = read_part(__file__, "STRANGE")


@pytest.mark.parametrize("text", STRANGE)
def test_a_text_that_no_declared_value_is_like_is_refused(session: dpsql.Session, text: str) -> None:
    error = refuse(session, text)
    assert error.message.startswith("the policy declares no value 'jfk' for ")
    assert error.hint == "did you mean 'JFK'?"
    assert marked(error) in ("'jfk'", "CAST('jfk'", "CAST('jfk' AS VARCHAR)")
    if "EXPLAIN" not in text:
        assert len(session.sql(text.replace("'jfk'", "'JFK'")))


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("SELECT COUNT(*) FROM flights WHERE origin = $at", {"at": "jfk"}),
        ("SELECT COUNT(*) FROM flights WHERE origin IN $at", {"at": ["JFK", "jfk"]}),
        ("SELECT COUNT(*) FROM flights WHERE origin = ?", ["jfk"]),
        ("SELECT COUNT(*) FROM flights WHERE list_contains($at, origin)", {"at": ["jfk"]}),
    ],
)
def test_a_parameter_is_read_like_a_constant(session: dpsql.Session, text: str, params: Any) -> None:
    assert refuse(session, text, params).hint == "did you mean 'JFK'?"


@pytest.mark.parametrize("text", [text for text in STRANGE if "EXPLAIN" not in text])
def test_a_value_that_stands_in_for_a_parameter_is_accepted(session: dpsql.Session, text: str) -> None:
    text = text.replace("'jfk'", "$at")
    assert session.describe(text).schema is not None
    assert refuse(session, text, {"at": "jfk"}).hint == "did you mean 'JFK'?"


def test_a_constant_is_refused_in_a_description_with_unknown_parameters(session: dpsql.Session) -> None:
    asked = "SELECT COUNT(*) FROM flights WHERE origin = 'jfk' AND age > $1"
    with pytest.raises(dpsql.BindError, match="the policy declares no value 'jfk' for origin"):
        session.describe(asked)
    first = "SELECT COUNT(*) FROM flights WHERE origin = 'JFk'"
    with pytest.raises(dpsql.BindError, match="the policy declares no value 'JFk' for origin"):
        session.describe(f"{first}; SELECT COUNT(*) FROM flights WHERE age > $1")
    assert refuse(session, first).hint == "did you mean 'JFK'?"


@pytest.mark.parametrize(
    "condition", ["gate = 7", "gate IN (1, 7)", "gate = '7'", "7.0 = gate", "gate + 0 = 7 OR gate = 7"]
)
def test_a_number_that_is_not_declared_is_refused(session: dpsql.Session, condition: str) -> None:
    error = refuse(session, f"SELECT COUNT(*) FROM flights WHERE {condition}")
    assert error.message == "the policy declares no value 7 for gate."
    assert error.hint == "for the rows outside of the declared values, write gate NOT IN (1, 2, 3)."
    assert session.sql("SELECT COUNT(*) FROM flights WHERE gate NOT IN (1, 2, 3)").item() < 20


@pytest.mark.parametrize(
    "condition",
    [
        "origin = 'JFK'", "origin IN ('JFK', 'EWR')", "upper(origin) = 'JFK'", "lower(origin) = 'jfk'",
        "lower(origin) = lower('JFK')", "origin LIKE 'jfk'", "origin <> note", "note = 'jfk'",
        "gate = 2.0", "gate = '2'", "late = FALSE",
        "origin > 'a'", "COALESCE(origin, '?') = '?'", "origin || '' = 'jfk'", "NULLIF(origin, '') IS NULL",
    ],
)  # fmt: skip
def test_what_may_be_meant_is_answered(session: dpsql.Session, condition: str) -> None:
    session.sql(f"SELECT COUNT(*) FROM flights WHERE {condition}")


def test_upper_and_lower_are_applied_to_the_declared_values(session: dpsql.Session) -> None:
    assert (
        refuse(session, "SELECT COUNT(*) FROM flights WHERE lower(origin) = 'JFK'").hint
        == "did you mean 'jfk'?"
    )
    assert (
        refuse(session, "SELECT COUNT(*) FROM flights WHERE UPPER(origin) IN ('jfk')").hint
        == "did you mean 'JFK'?"
    )


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SELECT COUNT(*) FROM flights ORDER BY 2", "write 1."),
        ("SELECT origin, COUNT(*) FROM flights GROUP BY 1 ORDER BY 3 DESC", "write a number from 1 to 2."),
        ("SELECT origin, COUNT(*) FROM flights GROUP BY 1 ORDER BY 0", "write a number from 1 to 2."),
        ("SELECT origin, COUNT(*) FROM flights GROUP BY 1 ORDER BY -1", "write a number from 1 to 2."),
        ("SELECT origin, COUNT(*) FROM flights GROUP BY 3", "write a number from 1 to 2."),
        ("(SELECT COUNT(*) FROM flights) UNION ALL SELECT COUNT(*) FROM flights ORDER BY 2", "write 1."),
        ("SELECT n FROM (SELECT COUNT(*) AS n FROM flights ORDER BY 2)", "write 1."),
        ("SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) FROM flights ORDER BY 2", "write 1."),
        (
            "SELECT origin, COUNT(*) FROM flights GROUP BY origin ORDER BY 'origin'",
            'a column is written "origin".',
        ),
        ("SELECT origin, COUNT(*) FROM flights GROUP BY 'origin'", 'a column is written "origin".'),
    ],
)
def test_a_place_for_which_there_is_no_column_is_refused(
    session: dpsql.Session, text: str, hint: str
) -> None:
    error = refuse(session, text)
    assert error.hint == hint
    assert marked(error)


_WORDS = """GROUP ORDER LIMIT OFFSET FETCH WHERE HAVING JOIN UNION EXCEPT INTERSECT QUALIFY WINDOW PIVOT BY group order by
    offset"""
DANGLING = _WORDS.split()


@pytest.mark.parametrize("word", DANGLING)
@pytest.mark.parametrize(
    "form", ["SELECT COUNT(*) FROM flights {}", "SELECT n FROM (SELECT COUNT(*) AS n FROM flights {})"]
)
def test_a_clause_that_is_not_finished_is_refused(session: dpsql.Session, form: str, word: str) -> None:
    error = refuse(session, form.format(word))
    assert error.message == f"nothing follows {word.upper()}."
    assert error.hint is not None
    assert marked(error) == word
    session.sql(form.format(""))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) GROUP FROM flights",
        "SELECT COUNT(*) FROM flights AS order",
        "SELECT COUNT(*) FROM flights WHER",
        "SELECT COUNT(*) FROM flights LIMT",
        "SELECT COUNT(*) FROM flights ODER",
        "SELECT COUNT(*) FROM flights JION",
        "SELECT COUNT(*) n FROM flights WHER age = 1",
        "SELECT COUNT(*) FROM flights WHERE age = 1 AND",
    ],
)
def test_a_word_of_a_clause_is_no_name(session: dpsql.Session, text: str) -> None:
    assert refuse(session, text).hint is not None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM flights orders",
        "SELECT COUNT(*) FROM flights grouped",
        "SELECT COUNT(*) FROM flights AS wher",
        "SELECT COUNT(wher.age) FROM flights wher",
        'SELECT COUNT(*) FROM flights "group"',
        "SELECT COUNT(*) AS order FROM flights",
        "SELECT COUNT(*) FROM (SELECT age FROM flights) joins",
        "SELECT COUNT(*) n FROM flights f",
    ],
)
def test_a_name_that_only_looks_like_a_word_is_a_name(session: dpsql.Session, text: str) -> None:
    assert abs(session.sql(text).item() - 300) < 100


@pytest.mark.parametrize(
    "condition",
    ["age > 2000", "2000 < age", "age = 500", "age > '2000'", "age < 0", "age BETWEEN 200 AND 300", "day > '2025-01-01'",
     "day < DATE '2024-01-01'", "month(day) = 13", "gate > 3", "age + 1 > 121"],
)  # fmt: skip
def test_a_condition_that_nothing_within_the_bounds_meets_is_noted(
    session: dpsql.Session, condition: str
) -> None:
    notes = session.sql(f"SELECT COUNT(*) FROM flights WHERE {condition}").notes
    assert any(note.startswith("no value within the public bounds meets ") for note in notes), notes
    told = str(session.explain(f"SELECT COUNT(*) FROM flights WHERE {condition}"))
    assert "No value within the public bounds meets " in told


@pytest.mark.parametrize(
    "condition",
    [
        "age > 119",
        "age >= 120",
        "age <= 0",
        "age BETWEEN 100 AND 300",
        "day = '2024-01-31'",
        "age <> 500",
        "NOT age > 3",
    ],
)
def test_a_condition_that_something_meets_is_not_noted(session: dpsql.Session, condition: str) -> None:
    notes = session.sql(f"SELECT COUNT(*) FROM flights WHERE {condition}").notes
    assert not any("public bounds" in note for note in notes), notes
