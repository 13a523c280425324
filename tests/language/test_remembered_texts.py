"""Statements of a text that was read before are those of the first time, whatever was done with them since."""

from __future__ import annotations

import pytest

import dpsql
from dpsql.errors import ParseError
from dpsql.language.statements import MAX_REMEMBERED_TEXT, parse
from tests.support.clinic import open_clinic

TEXTS = [
    "SELECT WITH DP OPTIONS (epsilon = 1) ward, COUNT(*) AS n FROM visits GROUP BY ALL ORDER BY n LIMIT 2",
    "EXPLAIN SELECT AVG(age) FROM visits; SHOW BUDGET",
    "DECLARE alarm ABOVE_THRESHOLD 100 OPTIONS (epsilon = 1, max_hits = 3); SELECT WITH alarm COUNT(*) FROM visits; CLOSE alarm",
    "WITH c AS (SELECT COUNT(*) AS n FROM visits) SELECT n + 1 FROM c",
]


def show(text: str) -> list[tuple[object, ...]]:
    return [(s, repr(s.tree)) for s in parse(text)]


@pytest.mark.parametrize("text", TEXTS)
def test_asking_changes_nothing_of_what_is_remembered(text: str) -> None:
    before = show(text)
    con, session = open_clinic()
    with con, session:
        for _ in range(2):
            try:
                session.run(text, fresh=True)
                session.explain(text)
            except dpsql.Error:
                pass
    assert show(text) == before
    assert parse(text) is not parse(text)  # a list of one's own


def test_what_is_wrong_is_wrong_each_time() -> None:
    for _ in range(2):
        with pytest.raises(ParseError) as caught:
            parse("SELEC 1")
        assert caught.value.text == "SELEC 1"


def test_long_texts_and_parameters_are_read_anew() -> None:
    long = f"SELECT 1 AS {'x' * MAX_REMEMBERED_TEXT}"
    assert parse(long)[0].tree is not parse(long)[0].tree
    text = "SELECT $x"
    assert [parse(text, {"x": v})[0].tree.sql() for v in (1, 2)] == ["SELECT 1", "SELECT 2"]  # type: ignore[union-attr]
