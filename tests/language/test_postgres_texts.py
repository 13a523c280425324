"""Intervals and arrays in texts: what they are read as is what DuckDB has, or they are refused."""

from __future__ import annotations

import duckdb
import pytest

from dpsql.errors import ParseError
from dpsql.language.dialect import parse_tokens
from dpsql.language.tokens import tokenize

KEPT = [
    "INTERVAL '3 days 02:00:00'", "INTERVAL '1 day 2 hours'", "INTERVAL '-1 day'", "INTERVAL '02:00:00.5'", "INTERVAL '2' DAY",
    "INTERVAL '90 minutes'", "INTERVAL '1 month 2 days'", "INTERVAL '1 quarter'", "'7 days'::INTERVAL", "'1.5 hours'::INTERVAL",
    "'3 days 0.000000 seconds'::INTERVAL", "INTERVAL '-1 day 02:00:00'", "'-00:00:01'::INTERVAL", "'1 year 2 months'::INTERVAL",
    "time_bucket(INTERVAL '5 minutes', TIMESTAMP '2024-01-01 00:07:00')",
]  # fmt: skip
ARRAYS = {
    "'{1,NULL,3}'::INTEGER[]": [1, None, 3], "'{}'::VARCHAR[]": [], "'{a,\"b, c\"}'::TEXT[]": ["a", "b, c"],
    "2 = ANY('{1,2}'::INTEGER[])": True, "'x' = ANY('{a,b}')": False,
    "time_bucket('300s', TIMESTAMP '2024-01-01 00:07:00')::VARCHAR": "2024-01-01 00:05:00",
}  # fmt: skip


def rewrite(text: str) -> str:
    """Return the query of an expression after it has been read and written again."""
    asked = f"SELECT {text}"
    return parse_tokens(tokenize(asked), asked).sql("duckdb")


def ask(text: str) -> object:
    """Return an expression's value after it has been read and written again."""
    with duckdb.connect() as con:
        return con.execute(rewrite(text)).fetchall()[0][0]


@pytest.mark.parametrize("text", KEPT)
def test_intervals_are_those_of_duckdb(text: str) -> None:
    with duckdb.connect() as con:
        assert con.execute(f"SELECT {text} = ({rewrite(text)})").fetchall() == [(True,)]


@pytest.mark.parametrize("text", ARRAYS)
def test_texts_of_arrays(text: str) -> None:
    assert ask(text) == ARRAYS[text]


@pytest.mark.parametrize("text", ["3 days foo", "3 days 02:xx"])
def test_intervals_that_would_lose_a_part_are_refused(text: str) -> None:
    asked = f"SELECT INTERVAL '{text}'"
    with pytest.raises(ParseError):
        parse_tokens(tokenize(asked), asked)
