"""A column counted as it streams by: the same numbers as a grouping, in any type and any parts, or nothing at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.base import Reader
from dpsql.mechanisms.fast import column_counts
from dpsql.mechanisms.fast.column_counts import MAX_RANGE, count_column, stream_column
from tests.support.connections import fresh
from tests.support.fixtures import open_session

KINDS = ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "DATE"]


def reader(con: duckdb.DuckDBPyConnection, room: int = 1) -> Reader:
    def stream(sql: str, lent: Mapping[str, pa.Table]) -> Iterator[pa.Table]:
        for batch in con.sql(sql).to_arrow_reader(1000):
            yield pa.Table.from_batches([batch])

    return Reader(lambda sql, lent: con.sql(sql).to_arrow_table(), {}, room, stream)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("low", "high"), [(0, 50), (-7, 3), (-1000, 1000), (60, 70), (-500, -400), (5, 5), (300, 400)]
)
def test_the_same_as_a_grouping(kind: str, low: int, high: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_counts, "_ROWS", 700)
    least = 0 if kind.startswith("U") else -100
    number = f"CAST({least} + (random() * {100 - least})::INTEGER AS {'INTEGER' if kind == 'DATE' else kind})"
    made = f"DATE '1970-01-01' + {number}" if kind == "DATE" else number
    with fresh() as con:
        con.execute(
            f"CREATE TEMP TABLE t AS SELECT CASE WHEN random() < 0.9 THEN {made} END AS x FROM range(5000)"
        )
        plain = "x - DATE '1970-01-01'" if kind == "DATE" else "CAST(x AS BIGINT)"
        query = f"SELECT LEAST(GREATEST({plain}, {low}), {high}) AS v, COUNT(*) FROM t WHERE x IS NOT NULL GROUP BY 1"
        expected = dict(con.execute(query).fetchall())
        found = count_column(reader(con), "SELECT x FROM t", low, high)
    assert len(found) == high - low + 1
    assert {low + int(i): int(found[i]) for i in np.flatnonzero(found)} == expected


def test_the_ends_of_a_type() -> None:
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE t AS SELECT UNNEST([{-(2**63)}, {2**63 - 1}, 0, 5]::BIGINT[]) AS x")
        found = count_column(reader(con), "SELECT x FROM t", -1, 5)
        assert found.tolist() == [1, 1, 0, 0, 0, 0, 2]
        low = 2**62
        found = count_column(reader(con), "SELECT x FROM t", low, low + 1)
        assert found.tolist() == [3, 1]


def test_no_rows_and_nothing_but_nulls() -> None:
    with duckdb.connect() as con:
        for sql in ("SELECT 1 WHERE FALSE", "SELECT NULL", "SELECT CAST(NULL AS INTEGER)"):
            found = count_column(reader(con), sql, 0, 3)
            assert found.tolist() == [0, 0, 0, 0]


def test_rows_that_must_stay_are_not_read() -> None:
    def never(*_: object) -> pa.Table:
        raise AssertionError

    assert count_column(Reader(never, {}, 0), "SELECT 1", 0, 3) is None
    assert count_column(Reader(never, {}, 9), "SELECT 1", 0, MAX_RANGE) is None
    assert count_column(lambda sql, lent=None: never(), "SELECT 1", 0, 3) is None


@pytest.mark.parametrize("kind", ["DECIMAL(4,1)", "DECIMAL(9,2)", "DECIMAL(18,3)", "DECIMAL(10,0)"])
@pytest.mark.parametrize("version", ["1.0", "1.5"])
def test_decimals_are_integers_without_their_point(kind: str, version: str) -> None:
    """In as many bits as a version of Arrow's format gives them, from the first row of a part and from later ones."""
    places = int(kind[-2])
    with duckdb.connect() as con:
        con.execute(f"SET arrow_output_version = '{version}'")
        query = f"SELECT CASE WHEN range % 7 > 0 THEN CAST((range - 1500) / 10 AS {kind}) END AS x FROM range(3000)"
        wanted = [int(v.scaleb(places)) for (v,) in con.sql(query).fetchall() if v is not None]
        table = con.sql(query).to_arrow_table()
        for first in (0, 5, 2999):
            part = table.slice(first)
            found = np.concatenate(list(stream_column(Reader(lambda sql, lent: part), "q", places=places)))  # noqa: B023
            assert sorted(found.tolist()) == sorted(wanted[len(wanted) - len(found) :])
            assert len(found) == part.num_rows - part.column(0).null_count
        counts = count_column(reader(con), query, -200, 200, places)
        assert int(counts.sum()) == len(wanted)
        assert counts[200] == wanted.count(0)


def test_what_is_no_integer_is_a_wrong_plan() -> None:
    for text, places in (
        ("SELECT 1.5", None),
        ("SELECT 1.5", 2),
        ("SELECT 15", 1),
        ("SELECT 1::DECIMAL(19, 1)", 1),
    ):
        with duckdb.connect() as con, pytest.raises(TypeError):
            count_column(reader(con), text, 0, 3, places)


POLICY = """
budget = { epsilon = 1e9, delta = 0.5, accountant = "basic", default_epsilon = 1e7 }
[tables]
t = { privacy_unit = "ROW", columns = { i = { bounds = [-20, 30] }, b = { bounds = [-20, 30] }, \
    d = { bounds = [-20, 30] }, m = { bounds = [-20, 30] } } }
u = { source = "t", privacy_unit = "who", max_rows = 5, columns = { i = { bounds = [-20, 30] } } }
"""


@pytest.mark.parametrize("table", ["t", "u"])
@pytest.mark.parametrize("x", ["i", "b", "d", "m", "i * 2", "i FILTER"])
def test_quantiles_by_both_routes(table: str, x: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session's quantiles, with values beyond the bounds, NULLs and (doubles) NaN and infinities among them."""
    if table == "u" and x in "bdm":
        pytest.skip("declared for t")
    routes: list[bool] = []
    inner = column_counts.count_column

    def watched(read: object, *given: object) -> object:
        found = None if routes else inner(read, *given)  # type: ignore[arg-type]
        routes.append(found is not None)
        return found

    monkeypatch.setattr("dpsql.mechanisms.fast.column_counts.count_column", watched)
    argument, _, rest = x.partition(" FILTER")
    rest = " FILTER (WHERE i <> 3)" if " FILTER" in x else rest
    bounds = ", contribution_bounds_per_row => (-30, 40)" if "*" in x else ""
    asked = (f"QUANTILE_DISC({argument}, {p}{bounds}){rest}" for p in (0.5, 0.9))
    query = f"SELECT {', '.join(asked)} FROM {table}"
    with open_session(
        POLICY,
        """CREATE TABLE t AS SELECT range AS who,
            CASE WHEN range % 7 = 0 THEN NULL ELSE (range * 37 % 61 - 25)::INTEGER END AS i,
            i::BIGINT AS b, i::DECIMAL(8, 2) + 0.25 AS m,
            CASE range % 11 WHEN 0 THEN 'NaN' WHEN 1 THEN '-Infinity' WHEN 2 THEN 1e300 ELSE i + 0.5 END::DOUBLE AS d
            FROM range(200)""",
    ) as session:
        answers = [session.sql(query, fresh=True).fetchall() for _ in range(2)]
        assert " AS value" in session.explain(query).sql[0]
    assert answers[0] == answers[1]
    assert routes == [True, False]


def test_one_column_within_two_ranges() -> None:
    with open_session(
        POLICY,
        "CREATE TABLE t AS SELECT range::INTEGER AS i, 1.5::DOUBLE AS d, 0 AS b, 0 AS m FROM range(101)",
    ) as session:
        bounds = "contribution_bounds_per_row => ({}, {})"
        narrow, wide = (f"QUANTILE_DISC(i, 0.5, {bounds.format(*ends)})" for ends in ((0, 20), (0, 1000)))
        assert session.sql(f"SELECT {narrow}, {wide} FROM t").fetchall() == [(20, 50)]
