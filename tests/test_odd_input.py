"""Odd input: what no text and no path can hold is an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import dpsql
from tests.support.small import POLICY, open_small

HALF = "\ud800"


@pytest.fixture
def session() -> Iterator[dpsql.Session]:
    con, session = open_small()
    with con, session:
        yield session


@pytest.mark.parametrize(
    ("text", "params"),
    [
        (f"SELECT COUNT(*) FROM t WHERE k = '{HALF}'", None),
        (f'SELECT COUNT(*) AS "{HALF}" FROM t', None),
        (f"SELECT COUNT(*) FROM t -- {HALF}", None),
        ("SELECT COUNT(*) FROM t WHERE k = $p", {"p": HALF}),
        ("SELECT COUNT(*) FROM t WHERE k IN $p", {"p": ["a", HALF]}),
        ("SELECT n, $p AS p FROM (SELECT COUNT(*) AS n FROM t)", {"p": f"a{HALF}"}),
    ],
)
def test_half_of_a_character_is_no_text(
    session: dpsql.Session, text: str, params: dict[str, Any] | None
) -> None:
    for ask in (session.sql, session.explain):
        with pytest.raises((dpsql.ParseError, dpsql.BindError), match="half of a character") as caught:
            ask(text, params)
        assert caught.value.span is not None
    assert session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"] == 0


@pytest.mark.parametrize("path", ["a\0b", f"/tmp/{HALF}", "/tmp/" + "x" * 300, "/tmp" + "/x" * 3000])
def test_what_no_file_can_be_called(path: str) -> None:
    policy = dpsql.Policy.loads(POLICY)
    for given in ({"database": path}, {"ledger": path}, {"policy": path}):
        with pytest.raises(dpsql.PolicyError, match=f"the path of the {next(iter(given))}"):
            dpsql.connect(**{"policy": policy, **given})


def test_a_pivot_of_too_many_columns_is_refused_before_they_are_made(session: dpsql.Session) -> None:
    listed = ", ".join(map(str, range(900)))
    text = "SELECT * FROM (SELECT k, n, x, COUNT(*) AS c FROM t GROUP BY ALL) PIVOT (SUM(c) FOR {})"
    fields = " ".join(f"{name} IN ({listed})" for name in ("k", "n", "x"))
    with pytest.raises(dpsql.ParseError, match="729,000,000 columns, and 1,000 are the most") as caught:
        session.sql(text.format(fields))
    assert caught.value.span is not None


def test_candidates_are_refused_by_their_number(session: dpsql.Session) -> None:
    text = "WITH c AS (SELECT v FROM range({}) AS r(v)) SELECT v, EXPMECH(COUNT(*) FILTER (WHERE x >= v)) OVER c FROM t"
    with pytest.raises(dpsql.BindError, match="more than 10,000,000 candidates") as caught:
        session.sql(text.format(10**12))
    assert caught.value.span is not None
    assert session.sql(text.format(5)).shape[0] == 1
