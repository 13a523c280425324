"""With next to no noise the answers are plain DuckDB's, to the grid: over the demo's table, and over nasty
values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from tests.support.demo import BUDGET, CASES, DEMO, PERSON, POLICY, ROW
from tests.support.fixtures import open_both


def _session(unit: str, folder: Path) -> dpsql.Session:
    text = POLICY.replace("UNIT", unit).replace('source = "', f'source = "{DEMO}/')
    path = folder / "policy.toml"
    path.write_text(text)
    return dpsql.connect(policy=path)


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dpsql.Session]:
    with _session(PERSON, tmp_path_factory.mktemp("person")) as session:
        yield session


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dpsql.Session]:
    with _session(ROW, tmp_path_factory.mktemp("row")) as session:
        yield session


@pytest.fixture(scope="module")
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        for name in ("visits", "plans"):
            con.execute(f"CREATE VIEW {name} AS FROM '{DEMO / name}.parquet'")
        yield con


def near(ours: Any, theirs: Any, slack: float) -> bool:
    """Equal, or numbers no farther apart than the slack (relative, plus the same share of 1)."""
    if isinstance(theirs, Decimal | float) and isinstance(ours, int | float | Decimal):
        return math.isclose(float(ours), float(theirs), rel_tol=slack, abs_tol=slack)
    return bool(ours == theirs)


def same(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]], slack: float, ordered: bool) -> None:
    if not ordered:
        ours, theirs = (sorted(rows, key=lambda r: [str(v) for v in r]) for rows in (ours, theirs))
    assert len(ours) == len(theirs), (ours, theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert len(mine) == len(other)
        assert all(near(a, b, slack) for a, b in zip(mine, other, strict=True)), (mine, other)


@pytest.mark.parametrize(("unit", "case"), CASES)
def test_the_demo_table(
    unit: str, case: str, request: pytest.FixtureRequest, plain: duckdb.DuckDBPyConnection
) -> None:
    ours, _, theirs = case.partition("|")
    expected = plain.sql(theirs or ours).fetchall()
    session: dpsql.Session = request.getfixturevalue(unit)
    answer = session.sql(ours)
    same(answer.fetchall(), expected, 1e-3, ordered="ORDER BY" in ours)


NASTY = """
CREATE TYPE mood AS ENUM ('sad', 'fine', 'glad');
CREATE TABLE nasty AS SELECT * FROM (VALUES
    (1, 1.5::DOUBLE, 5::BIGINT, 1::HUGEINT, 2.125::DECIMAL(18,3), 1::DECIMAL(38,10), DATE '2024-02-29', TRUE,
        'sad'::mood, 'a', 7::UBIGINT),
    (1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (2, 'nan'::DOUBLE, 9223372036854775807, 170141183460469231731687303715884105727, 999999999999999.999,
        9999999999999999999999999999.9999999999, DATE '294247-01-10', FALSE, 'fine', '',
         18446744073709551615),
    (2, 'infinity'::DOUBLE, -9223372036854775808, -170141183460469231731687303715884105728,
    -999999999999999.999,
        -9999999999999999999999999999.9999999999, DATE '4714-01-01 (BC)', TRUE, 'glad', 'ä', 0),
    (3, '-infinity'::DOUBLE, 0, 0, 0, 0, DATE 'infinity', NULL, 'sad', '"', 10),
    (3, -0.0::DOUBLE, -1, -3, -1.5, -0.5, DATE '1970-01-01', FALSE, NULL, 'NULL', 3),
    (4, 1e300, 7, 10000000, 7.001, 3.3333333333, DATE '2000-01-01', TRUE, 'glad', 'b', 8),
    (4, -1e-300, 6, 20, 6.999, 4, DATE '-infinity', TRUE, 'glad', 'b', 9),
    (5, 1500.25, 2, -20, 3.5, 5.5, DATE '2024-12-31', FALSE, 'sad', 'c', 1),
    (NULL, 3.0, 3, 3, 3, 3, DATE '2024-12-31', FALSE, 'sad', 'c', 1)
) AS t(unit, x, b, h, d, dd, day, flag, mood, word, u);
CREATE TABLE empty AS FROM nasty LIMIT 0;
"""
_BOUNDS = {"x": (2, 10), "b": (1, 8), "h": (-10, 10), "d": (2, 7), "dd": (1, 5), "u": (2, 9)}
_FARTHEST = {"x": 2**31 / 2**16, "b": 2**31, "h": 2**31, "d": 2**31 / 1000, "dd": 2**53 / 10**10, "u": 2**31}
_NASTY_TABLE = """
[tables.{name}]
{unit}
[tables.{name}.columns]
word = {{ values = ["a", "b", "c", "z"] }}
mood = {{ values = ["sad", "fine", "glad"] }}
"""
Nasty = tuple[dpsql.Session, duckdb.DuckDBPyConnection, str]


@pytest.fixture(scope="module", params=["unit", "ROW"])
def nasty(request: pytest.FixtureRequest) -> Iterator[Nasty]:
    """A session over the nasty table and an empty one, the connection they are in, and which rows count."""
    unit = f'privacy_unit = "{request.param}"'
    if request.param == "unit":
        unit += "\nmax_rows = 9\nmax_groups = 9"
    text = BUDGET
    for name in ("nasty", "empty"):
        text += _NASTY_TABLE.format(name=name, unit=unit)
        text += "".join(
            f"{column} = {{ bounds = [{low}, {high}] }}\n" for column, (low, high) in _BOUNDS.items()
        )
    with open_both(text, NASTY) as (con, session):
        yield session, con, "unit IS NOT NULL" if request.param == "unit" else "TRUE"


def _held(con: duckdb.DuckDBPyConnection, table: str, column: str, where: str) -> list[float]:
    """Return the values of a column that count: neither NULL, NaN nor infinite nor absurdly far; held to the bounds."""
    low, high = _BOUNDS[column]
    rows = con.sql(f"SELECT {column} FROM {table} WHERE {where} AND {column} IS NOT NULL").fetchall()
    known = [v for (v,) in rows if math.isfinite(v) and abs(v) < _FARTHEST[column]]
    return [float(min(max(v, low), high)) for v in known]


@pytest.mark.parametrize("column", list(_BOUNDS))
@pytest.mark.parametrize("table", ["nasty", "empty"])
def test_values_are_held_to_their_bounds_and_missing_ones_stay_missing(
    nasty: Nasty, table: str, column: str
) -> None:
    session, con, where = nasty
    known = _held(con, table, column, where)
    answer = session.sql(f"SELECT SUM({column}), AVG({column}), VAR_POP({column}) FROM {table}").fetchone()
    assert near(answer[0], float(sum(known)), 2e-3), (answer, known)
    if known:  # of nothing, a mean is the middle of the bounds plus noise
        mean = sum(known) / len(known)
        spread = sum((v - mean) ** 2 for v in known) / len(known)
        assert near(answer[1], mean, 1e-3), (answer, known)
        assert near(answer[2], spread, 5e-3), (answer, known)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT COUNT(*), COUNT(x), COUNT(b), COUNT(h), COUNT(d), COUNT(dd), COUNT(day), COUNT(flag), "
        "COUNT(mood) FROM nasty",
        "SELECT COUNT(*) FROM nasty WHERE x > 1",
        "SELECT COUNT(*) FROM nasty WHERE x > 1 OR x IS NULL",
        "SELECT COUNT(*) FROM nasty WHERE NOT (x = x)",
        "SELECT COUNT(*) FROM nasty WHERE x = 0 AND x >= -0.0",
        "SELECT COUNT(*) FROM nasty WHERE flag IS NOT TRUE",
        "SELECT COUNT(*) FROM nasty WHERE flag",
        "SELECT flag, COUNT(*) FROM nasty WHERE flag IS NOT NULL GROUP BY flag",
        "SELECT mood, COUNT(*) FROM nasty WHERE mood IS NOT NULL GROUP BY mood ORDER BY mood::VARCHAR",
        "SELECT word, COUNT(*) FROM nasty WHERE word IN ('a', 'b', 'c') GROUP BY word HAVING COUNT(*) > 0",
        "SELECT COUNT(*) FROM nasty WHERE day > '2000-01-01' AND isfinite(x)",
        "SELECT COUNT(*) FROM nasty WHERE b + 1 > 0 OR h IS NOT DISTINCT FROM 1",
        "SELECT COUNT(*) FROM nasty WHERE d::DOUBLE * 2 > 4.25",
        "SELECT COUNT(*) FROM nasty WHERE u % 2 = 1 AND u >= 3",
        "SELECT COUNT(*) FROM nasty WHERE year(day) = 2024 OR day = DATE '1970-01-01'",
        "SELECT COUNT(*) FROM nasty WHERE x / (u - u) > 1 OR word || '' = ''''",
        "SELECT COUNT(*), COUNT(x), COUNT(*) FILTER (WHERE flag) FROM empty",
    ],
)
def test_missing_values_count_as_in_sql(nasty: Nasty, query: str) -> None:
    session, con, where = nasty
    plain = query.replace("FROM nasty", f"FROM (FROM nasty WHERE {where})").replace("b + 1", "b::HUGEINT + 1")
    same(session.sql(query).fetchall(), con.sql(plain).fetchall(), 1e-6, ordered="ORDER BY" in query)


def test_units_that_are_null_are_dropped_and_empty_groups_appear(nasty: Nasty) -> None:
    session, _, where = nasty
    answer = session.sql("SELECT word, COUNT(*), SUM(d) FROM nasty GROUP BY word").fetchall()
    by_word = {row[0]: row[1:] for row in answer}
    assert list(by_word) == ["a", "b", "c", "z"]
    assert by_word["c"][0] == (2 if where == "TRUE" else 1)
    assert by_word["z"][0] == 0
    assert near(by_word["z"][1], 0.0, 0.05)
    nothing = session.sql("SELECT word, COUNT(*), SUM(x) FROM empty GROUP BY word").fetchall()
    assert [row[:2] for row in nothing] == [(word, 0) for word in "abcz"]
    assert all(abs(row[2]) < 0.01 for row in nothing), "a sum of nothing is noise about 0, never NULL"


def test_null_never_becomes_a_lower_bound(nasty: Nasty) -> None:
    """GREATEST(NULL, 5) is 5 in SQL: a missing value must be skipped, not counted at the bound."""
    session, _, _ = nasty
    missing = session.sql("SELECT COUNT(*), SUM(x), SUM(b), SUM(d) FROM nasty WHERE b IS NULL").fetchone()
    assert missing[0] == 1
    assert all(near(value, 0.0, 1e-2) for value in missing[1:]), missing
