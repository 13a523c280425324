"""Frames that SQL doesn't have are refused when a statement is bound, over private rows and above them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from tests.support.city import open_city

ENDS = ("UNBOUNDED PRECEDING", "2 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "UNBOUNDED FOLLOWING")
FRAMES = [f"{k} BETWEEN {a} AND {b}" for k, a, b in itertools.product(("ROWS", "GROUPS"), ENDS, ENDS)]
FRAMES += [
    "ROWS 1 FOLLOWING",
    "ROWS UNBOUNDED FOLLOWING",
    "RANGE BETWEEN UNBOUNDED FOLLOWING AND CURRENT ROW",
]
FRAMES += ["RANGE BETWEEN CURRENT ROW AND INTERVAL 3 DAY PRECEDING"]
FRAMES += [f"ROWS BETWEEN {n} PRECEDING AND CURRENT ROW" for n in (2**63 - 1, 2**63, 10**20)]
INSIDE = (
    "SELECT COUNT(*) FROM (SELECT rider, SUM(trip) OVER (PARTITION BY rider ORDER BY started {}) AS s FROM trips) "
    "WHERE s > 500"
)
ABOVE = "SELECT m, SUM(COUNT(*)) OVER (ORDER BY m {}) FROM (SELECT rider, MONTH(started) AS m FROM trips) GROUP BY m"


@pytest.fixture(scope="module")
def city() -> Iterator[tuple[duckdb.DuckDBPyConnection, dpsql.Session]]:
    con, session = open_city()
    with con, session:
        yield con, session


@pytest.mark.parametrize("frame", FRAMES)
def test_frames_are_answered_as_in_duckdb_or_refused_at_binding(
    city: tuple[duckdb.DuckDBPyConnection, dpsql.Session], frame: str
) -> None:
    con, session = city
    for form in (INSIDE, ABOVE):
        query = form.format(frame)
        try:
            expected = con.execute(query).fetchall()
        except duckdb.Error:
            with pytest.raises(dpsql.BindError, match=r"a frame can't start at|too large") as caught:
                session.sql(query)
            assert caught.value.hint
            assert caught.value.span is not None
        else:
            if form == INSIDE:
                assert session.sql(query).fetchall() == expected
