"""Statements laid out in lines."""

from __future__ import annotations

import contextlib

import pytest

from dpsql.errors import ParseError
from dpsql.language.formatter import WIDTH, format_statements
from dpsql.language.tokens import tokenize
from tests.support.corpora import cases
from tests.support.thirty_statements import THIRTY

LONG = (
    "SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6) ward, COUNT(*) AS visits, AVG(minutes) AS minutes, SUM(cost) AS cost "
    "FROM visits v LEFT JOIN (SELECT ward, beds FROM wards WHERE beds > 10 AND floor IS NOT DISTINCT FROM 2) w USING (ward) "
    "WHERE minutes BETWEEN 1 AND 5 AND ward IN ('eyes', 'ears') OR doctor = 'the one with the very long name' GROUP BY ward; "
    "out<<SELECT 1 -- one"
)
LINES = """\
SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6)
    ward,
    COUNT(*) AS visits,
    AVG(minutes) AS minutes,
    SUM(cost) AS cost
FROM visits v
LEFT JOIN (
    SELECT ward, beds
    FROM wards
    WHERE beds > 10 AND floor IS NOT DISTINCT FROM 2
) w USING (ward)
WHERE minutes BETWEEN 1 AND 5
    AND ward IN ('eyes', 'ears')
    OR doctor = 'the one with the very long name'
GROUP BY ward;
out<<SELECT 1 -- one"""


def test_clauses_begin_lines_and_long_lists_have_a_line_an_item() -> None:
    assert format_statements(LONG) == LINES
    assert format_statements(LINES) == LINES
    assert format_statements("SELECT 1") == "SELECT 1"
    assert format_statements("-- nothing") == "-- nothing"


def test_comments_stay_where_they_are() -> None:
    text = "-- first\nSELECT /* one */ 1, -- two\n2 FROM t"
    assert format_statements(text) == "-- first\nSELECT /* one */ 1, -- two\n2\nFROM t"
    with pytest.raises(ParseError, match="does not end"):
        format_statements("SELECT 'a")


def test_only_white_space_changes() -> None:
    texts = [*THIRTY, *(case.text for folder in ("plan", "explain", "reject") for case in cases(folder))]
    changed = 0
    for text in texts:
        with contextlib.suppress(ParseError):
            tokens = [(token.token_type, token.text) for token in tokenize(text)]
            made = format_statements(text)
            assert [(token.token_type, token.text) for token in tokenize(made)] == tokens
            assert format_statements(made) == made
            assert made.count("--") == text.count("--")
            changed += made != text
            if "\n" in made and "--" not in made:
                assert max(map(len, made.splitlines())) <= max(len(text), WIDTH)
    assert changed > 200
