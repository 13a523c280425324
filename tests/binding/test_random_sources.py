"""Random joins, subqueries and totals per unit: before noise, what is counted is what plain DuckDB counts."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import HealthCheck, example, given, settings

import dpsql
from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.base import SALT
from dpsql.mechanisms.moments import Sum
from tests.support import inside
from tests.support.grammar import POLICY, PUBLIC, SCHEMA, sources

Clean = tuple[duckdb.DuckDBPyConnection, dpsql.Session]
QUIET = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
VALUES = {
    "unit": [1, 2, 3, 4], "k": ["a", "b", "z", None], "x": [0.5, 3, -1, None], "n": [1, 2, 3, 5, None], "f": [True, False, None],
    "y": [1, 2, 3], "q": [0, 1, 4, None], "oid": [1, 2, 3, 3, 4],
    "w": [1], "day": ["2020-01-01", "2020-01-31"],
    "moment": ["2020-03-29 00:59:59Z", "2020-10-25 01:30:00+02"], "zone": ["2020-03-08 06:59:59Z", "2020-11-01 05:30:00Z"],
    "span": ["1 day", "24 hours", "3 hours"], "level": ["a", "b", "z"], "bits": ["0", "101"], "raw": [b"a", b"", b"\xff\0"],
    "clock": ["12:00:00+00"], "id": ["0" * 32, "f" * 32], "items": [[], [1, None], [1, 1]], "pairs": [{"a": 1}],
    "parts": [{"a": 1, "b": ["x"]}, {"a": None, "b": []}], "whole": [0, 3, 5],
}  # fmt: skip


@pytest.fixture(scope="module")
def clean() -> Iterator[Clean]:
    """Tables in which every row has a unit, every order one, and nothing is far from its bounds or over its caps."""
    con = duckdb.connect(config={"threads": 1})
    con.execute(f"CREATE TABLE g AS {PUBLIC}")
    chance = random.Random(3)
    for name, columns in SCHEMA.items():
        con.execute(f"CREATE TABLE {name} ({columns})")
        names = [column.split()[0] for column in columns.split(", ")]
        for number in range(4 if name == "o" else 12):
            row = [chance.choice(VALUES[column]) for column in names]
            row = [number + 1, *row[1:]] if name == "o" else row
            # what the policy says of v is true: w belongs to one unit, and an order leads to its own
            if name == "v":
                unit = con.execute("SELECT unit FROM o WHERE oid = ?", [row[1]]).fetchall()[0][0]
                row = [unit, row[1], unit, *row[3:]]
            con.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
    wide = re.sub(r"max_(rows_per_group|rows|groups) = \d", r"max_\1 = 1000000", POLICY)
    with con, dpsql.connect(con, policy=dpsql.Policy.loads(wide)) as session:
        yield con, session


def counts(clean: Clean, source: str) -> tuple[list[int], list[int]]:
    con, session = clean
    # Public rows that an outer join keeps are nobody's: an answer in which they would count is refused.
    source = source.replace("FULL JOIN g", "LEFT JOIN g").replace("RIGHT JOIN g", "JOIN g")
    shown = "COUNT(*) AS a, COUNT(x) AS b, COUNT(k) AS c, COUNT(n) AS d, COUNT(*) FILTER (WHERE f) AS e, COUNT(DISTINCT u) AS g"
    try:
        plan = inside.bind(session, f"SELECT {shown} FROM ({source}) AS z")
    except dpsql.PrivacyError as error:
        said = ("more rows of one privacy unit than can be counted", "max_fan_out is")
        assert any(words in error.message for words in said), error
        return [], []
    if any(note.endswith(("are joined", "used in a window")) for note in plan.notes):
        return [], []
    (block,) = plan.blocks
    for item in block.inputs:
        con.execute(f"CREATE OR REPLACE TEMP TABLE {item.name} AS {item.sql}")
    assert isinstance(block.operator, Aggregation)
    query = inside.write_alone(session, block.operator.query).replace(SALT, "7")
    (exact,) = con.sql(query).to_arrow_table().to_pylist()
    outputs = block.operator.outputs
    places = [output.statistic.column for output in outputs]  # type: ignore[union-attr]
    parts = [output.whole if isinstance(output, Sum) else 1 for output in outputs]
    # The policy says where the moments of this column are.
    source = re.sub(r"\bzone\b", "timezone('America/New_York', zone)", source)
    # Private rows meet only where both are of one unit, which plain SQL has to say.
    source = source.replace("ON t.n = v.w", "ON t.n = v.w AND t.unit = v.unit")
    source = source.replace("(SELECT n FROM t)", "(SELECT n FROM t WHERE t.unit = v.unit)")
    # Public rows that a FULL join keeps are nobody's: they don't count.
    (plain,) = con.sql(
        f"SELECT {shown} FROM ({source}) AS z WHERE {'u IS NOT NULL' if 'FULL JOIN g' in source else 'TRUE'}"
    ).fetchall()
    return [int(exact[place]) // part for place, part in zip(places, parts, strict=True)], list(plain)


@settings(QUIET, max_examples=50)
@given(sources(1))
@example(
    "SELECT u, MIN(k) AS k, MEDIAN(x) AS x, n % 2 AS n, TRUE AS f "
    "FROM (SELECT unit AS u, level AS k, epoch(moment) AS x, hour(zone)::INTEGER AS n FROM w) AS v GROUP BY u, n % 2"
)
def test_counts_are_plain_duckdbs(clean: Clean, source: str) -> None:
    ours, theirs = counts(clean, source)
    assert ours == theirs, source


@pytest.mark.stochastic
@settings(QUIET, max_examples=3000)
@given(sources(2))
def test_counts_are_plain_duckdbs_at_length(clean: Clean, source: str) -> None:
    ours, theirs = counts(clean, source)
    assert ours == theirs, source
