"""The privacy unit in disguise: recomputed, renamed, borrowed from a public table, split and mixed.

Each statement runs on two databases at so much epsilon that the noise is gone. They differ in one unit, which has a hundred
rows that name everybody else. Either the statement is refused, in the same words on both; or its whole answer changes by no
more than the rows that count of one unit.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from tests.support import inside
from tests.support.case_files import read_part
from tests.support.goodness import fixed

POLICY = """
budget = { epsilon = 1e12, delta = 0.5, accountant = "basic", default_epsilon = 1e6, default_delta = 1e-9 }
[tables]
t = { privacy_unit = "uid", max_rows_per_group = 2, max_groups = 2, columns = { x = { bounds = [0, 1] }, \
    k = { values = ["a", "b", "c"] } } }
s = { privacy_unit = "uid", max_rows_per_group = 2, max_groups = 2, columns = { y = { bounds = [0, 1] } } }
o = { privacy_unit = "uid", max_rows_per_group = 2, max_groups = 2 }
i = { privacy_unit = "oid -> o.oid, uid", max_rows_per_group = 2, max_groups = 2 }
pub = { public = true }
"""
DATA = """
CREATE TABLE t AS SELECT u AS uid, (u * 7 + n) % 60 AS friend, 1 AS x, ['a', 'b', 'c'][1 + (u + n) % 3] AS k,
    DATE '2024-01-01' + (u + n)::INTEGER AS day, [u % 5, 7] AS list FROM range(60) a(u), range(2) b(n);
CREATE TABLE s AS SELECT u AS uid, 1 AS y, u % 4 AS g FROM range(60) a(u), range(2) b(n);
CREATE TABLE o AS SELECT u AS uid, u AS oid FROM range(60) a(u);
CREATE TABLE i AS SELECT u AS oid, n AS q FROM range(60) a(u), range(2) b(n);
CREATE TABLE pub AS SELECT u AS uid, u AS other, ['a', 'b', 'c'][1 + u % 3] AS k FROM range(70) a(u);
"""
BAD = """
INSERT INTO t SELECT 666, n % 60, 1, ['a', 'b', 'c'][1 + n % 3], DATE '2023-01-01' + n::INTEGER, range(40) FROM range(100) b(n);
INSERT INTO s SELECT 666, 1, n % 4 FROM range(100) b(n);
INSERT INTO o SELECT 666, 1000 + n FROM range(100) b(n);
INSERT INTO i SELECT 1000 + n % 100, n FROM range(300) b(n);
"""
FORMS = read_part(__file__, "FORMS")
DOUBLED = ("JOIN", "UNION", "SUM(n")
"""Marks of larger answers: the bounds of two private tables multiply or add up, and n goes up to 2."""


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[dpsql.Session, dpsql.Session]]:
    cons = [duckdb.connect(), duckdb.connect()]
    for con, more in zip(cons, (BAD, ""), strict=True):
        con.execute(DATA + more)
    with_, without = (dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) for con in cons)
    with cons[0], cons[1], with_, without:
        yield with_, without


def outcome(session: dpsql.Session, query: str) -> str | dict[tuple[object, ...], float]:
    """The answer, under the same secret choices of which rows and values count: one unit is all that differs."""
    inside.use_entropy(session, fixed(query))
    try:
        rows = session.sql(query).fetchall()
    except dpsql.Error as error:
        assert not isinstance(error, dpsql.EngineError)
        return str(error)
    return {tuple(row[:-1]): float(row[-1]) for row in rows}


@pytest.mark.parametrize("query", FORMS)
def test_one_unit_moves_no_more_than_its_rows(both: tuple[dpsql.Session, dpsql.Session], query: str) -> None:
    one, other = (outcome(session, query) for session in both)
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
        return
    moved = sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in {*one, *other})
    most = 4 if any(word in query for word in DOUBLED) else 2
    assert (
        moved
        <= most * (2 if "GROUP BY k" in query or "GROUP BY v" in query or "GROUP BY pub.k" in query else 1)
        + 0.01
    )


def test_plain_duckdb_would_tell(both: tuple[dpsql.Session, dpsql.Session]) -> None:
    """The unit is as bad as it should be: on plain DuckDB most of these statements give it away."""
    cons = [duckdb.connect(), duckdb.connect()]
    for con, more in zip(cons, (BAD, ""), strict=True):
        con.execute(DATA + more)
    told = 0
    for query in FORMS:
        try:
            one, other = (con.execute(query).fetchall() for con in cons)
        except duckdb.Error:
            continue
        told += one != other and (len(one) > 1 or abs(float(one[0][-1]) - float(other[0][-1])) > 4)
    assert told > len(FORMS) / 2
