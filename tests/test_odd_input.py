"""Odd input: what no text and no path can hold is an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
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


DIGITS = "1" * 9000


@pytest.mark.parametrize(
    "text",
    [
        "SELECT SUM(n + {}) FROM t",
        "SELECT COUNT(*) + {} FROM t",
        "SELECT COUNT(*) FROM t WHERE x > 0.{}",
        "SELECT COUNT(*) FROM t WHERE x > 1e{}",
        "SELECT COUNT(*) FROM t WHERE n = CAST('{}' AS INTEGER)",
        "SELECT COUNT(*) FROM t WHERE n::DECIMAL({}, 1) = 1",
        "SELECT COUNT(*) FROM t WHERE n = 0x{}",
        "SELECT k, COUNT(*) FROM t GROUP BY {}",
        "SELECT HISTOGRAM(n, [1, {}]) FROM t",
        "SELECT SUM(n) OVER (ORDER BY n ROWS {} PRECEDING) FROM t",
        "SELECT WITH DP OPTIONS (epsilon = 1/{}) COUNT(*) FROM t",
    ],
)
@pytest.mark.parametrize("digits", [100, 401, 9000])
def test_long_numbers_are_refused_in_words(session: dpsql.Session, text: str, digits: int) -> None:
    """Python reads no integer of more than 4,300 digits, and DuckDB has bytes for one beyond 128 bits."""
    if digits == 100 and any(part in text for part in ("0.{}", "n + {}", "[1, {}]", "epsilon")):
        return  # a number of 102 characters is one
    with pytest.raises((dpsql.ParseError, dpsql.BindError, dpsql.PrivacyError)) as caught:
        session.sql(text.format(DIGITS[:digits]))
    assert len(caught.value.message) < 200
    assert session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"] == 0


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (10**9000, "an integer that does not fit 128 bits"),
        (-(2**128), "an integer that does not fit 128 bits"),
        ([1, 10**400], "an integer that does not fit 128 bits"),
        (Decimal(DIGITS), "a number of|no finite number"),
        (Decimal(f"0.{DIGITS}"), "a number of 9,002 characters"),
        (Decimal("1e9000"), "no finite number"),
        (Decimal("NaN"), "no finite number"),
        (Decimal("sNaN"), "no finite number"),
    ],
    ids=["integer", "128 bits", "in a list", "Decimal", "places", "exponent", "NaN", "signalling"],
)
def test_long_numbers_are_no_parameters(session: dpsql.Session, value: object, said: str) -> None:
    with pytest.raises(dpsql.BindError, match=said):
        session.sql("SELECT COUNT(*) FROM t WHERE n IN ($p)", {"p": value})


def test_numbers_that_fit_are_read(session: dpsql.Session) -> None:
    session.sql(f"SELECT COUNT(*) FROM t WHERE x < 1e30 AND x > 0.{'0' * 300}1")
    assert session.sql("SELECT COUNT(*) FROM t WHERE x < $p", {"p": 1e300}).columns
    for value in (2**100, -(2**100), Decimal("0.12345678901234567")):
        assert session.sql("SELECT $p AS p", {"p": value}).fetchall() == [(value,)]


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
    with pytest.raises(dpsql.ParseError, match="729,000,000 columns; the limit is 1,000") as caught:
        session.sql(text.format(fields))
    assert caught.value.span is not None


def test_candidates_are_refused_by_their_number(session: dpsql.Session) -> None:
    text = "WITH c AS (SELECT v FROM range({}) AS r(v)) SELECT v, EXPMECH(COUNT(*) FILTER (WHERE x >= v)) OVER c FROM t"
    with pytest.raises(dpsql.BindError, match="more than 10,000,000 candidates") as caught:
        session.sql(text.format(10**12))
    assert caught.value.span is not None
    assert session.sql(text.format(5)).shape[0] == 1
