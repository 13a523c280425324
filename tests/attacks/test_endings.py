"""How a statement ends does not depend on one person: with the extremes of every type in that person's rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.binding.values import fixed_point
from dpsql.engine import base as engine_base
from dpsql.lock import lock
from tests.support import endings
from tests.support.case_files import read_part
from tests.support.endings import EXTREME, Composed, Neighbours, compare, compose, tables

PAIRS, MANY = 2_000, int(os.environ.get("DPSQL_ENDINGS", "50000"))


@pytest.mark.timeout(900)
def test_no_statement_ends_otherwise(tmp_path: Path) -> None:
    found = compare(tmp_path, range(PAIRS))
    assert [pair for part in found for pair in part.different] == []
    assert sum(part.answered for part in found) > PAIRS // 4


@pytest.mark.stochastic
@pytest.mark.timeout(20_000)
def test_no_statement_of_many_ends_otherwise(tmp_path: Path) -> None:
    found = compare(tmp_path, range(PAIRS, PAIRS + MANY))
    assert [pair for part in found for pair in part.different] == []


@pytest.mark.parametrize("plan_once", [False, True])
def test_a_value_without_a_way_out_would_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan_once: bool
) -> None:
    """The control: 128-bit integers leave as they are, and the second lock knows no harm of it."""
    monkeypatch.setattr(fixed_point, "find_exit_type", lambda kind, wide=None: kind)
    monkeypatch.setattr(lock, "list_wide_outputs", lambda outputs: frozenset())
    # the quicker routes read the values of released groups alone
    for name in ("LITTLE_ROWS", "LITTLE_BYTES"):
        monkeypatch.setattr(engine_base, name, 10**9)
    neighbours = Neighbours(tmp_path, ["h", "lh"], plan_once)
    try:
        neighbours.check([Composed(FOUND[0].replace("diag", "who").replace(" p ", " t "))])
        assert len(neighbours.different) == 1
        neighbours.check(item for item in compose(range(480), neighbours.columns) if not item.condition)
        assert len(neighbours.different) > 2, "the generator finds it, too"
        assert {found[0] for _, *pair in neighbours.different for found in pair} == {"answer", "error"}
    finally:
        neighbours.close()


FRAMES = (
    "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN {} PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN {} PRECEDING AND {} FOLLOWING EXCLUDE TIES",
)
STEPS = {"b": "9223372036854775807", "d": "1e308", "dt": "INTERVAL 200000 YEARS", "iv": "INTERVAL 1 DAY"}
WINDOWED = [
    text.format(w=f"MAX({c}) OVER (PARTITION BY uid ORDER BY {c} {frame.format(step, step)})", c=c)
    for c, step in STEPS.items()
    for frame in FRAMES
    for text in (
        "SELECT COUNT(*) FROM (SELECT uid, {w} AS k FROM t) WHERE k IS NOT NULL",
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 10), blocks = 20) MAX(k) FROM (SELECT {w} AS k FROM t)",
        "SELECT WITH SUBSAMPLE OPTIONS (combine = 'stable_mode', blocks = 20) MODE(k) FROM (SELECT {w} AS k FROM t)",
    )
]
LAMBDAS = [
    text.format(call=call.format(c=c))
    for c in STEPS
    for call in (
        "list_transform([{c}], lambda y: y + y)",
        "list_filter([{c}], lambda y: y + y > y)",
        "[y + y FOR y IN [{c}]]",
    )
    for text in (
        "SELECT {call} AS k, COUNT(*) FROM t GROUP BY k",
        "SELECT COUNT(*) FROM t WHERE len({call}) > 0",
        "SELECT WITH PTR MODE(len({call})) FROM t",
        "SELECT WITH SUBSAMPLE OPTIONS (combine = 'stable_mode', blocks = 20) MODE(len({call})) FROM t",
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 10), blocks = 20) SUM(len({call})) FROM t",
    )
]
WRAPPED = [
    text.format(k=k)
    for k in (
        "iv",
        "iv + INTERVAL 1 DAY",
        "iv + iv",
        "-iv",
        "iv * 2",
        "dt - dt",
        "COALESCE(iv, INTERVAL 1 DAY)",
    )
    for text in (
        "SELECT {k} AS k, COUNT(*) FROM t GROUP BY k",
        "SELECT EPOCH({k}) AS k, COUNT(*) FROM t GROUP BY k",
        "SELECT CAST({k} AS VARCHAR) AS k, COUNT(*) FROM t GROUP BY k",
        "SELECT COUNT(DISTINCT {k}) FROM t",
        "SELECT SUM({k}, contribution_bounds_per_row => (INTERVAL 0 DAY, INTERVAL 1 DAY)) FROM t",
        "SELECT MEDIAN({k}, contribution_bounds_per_row => (INTERVAL 0 DAY, INTERVAL 1 DAY)) FROM t",
        "SELECT WITH PTR MODE(EPOCH({k})) FROM t",
        "SELECT WITH SUBSAMPLE OPTIONS (combine = 'stable_mode', blocks = 20) MODE({k}) FROM t",
        "SELECT EXPMECH(COUNT(*) FILTER (WHERE {k} = pub.iv)) OVER pub FROM t",
    )
]


STRANGE = [
    form.format(k=text.format(c=c))
    for text in read_part(endings.__file__, "_STRANGE")
    for c in (("tz", "zz") if "{c}" in text else ("",))
    for form in read_part(endings.__file__, "_STRANGE_FORMS")
]


@pytest.mark.parametrize(
    ("texts", "answered"), [(WRAPPED, 25), (WINDOWED, 30), (LAMBDAS, 0), (STRANGE[::4], 30)]
)
def test_no_window_lambda_or_interval_ends_otherwise(tmp_path: Path, texts: list[str], answered: int) -> None:
    """Frames by distance where a value plus the distance overflows; lambdas; intervals that wrap in Arrow; distances of
    moments; texts of a megabyte, and JSON."""
    neighbours = Neighbours(tmp_path, [*STEPS, "tz", "zz", "jt"], plan_once=True)
    try:
        neighbours.check(map(Composed, texts))
        assert neighbours.different == []
        assert neighbours.answered >= answered
    finally:
        neighbours.close()


# -- what was found ------------------------------------------------------------------------------------------------

RARE = "CASE WHEN diag = 'rare' THEN 1 ELSE 0 END"
HUGE = f"({RARE})::HUGEINT * 9223372036854775807 * 9223372036854775807 * 2"
FOUND = (
    f"SELECT {HUGE} AS k, COUNT(*) FROM p GROUP BY k",
    f"SELECT DISTINCT {HUGE} AS k FROM p",
    f"SELECT {HUGE} AS k, COUNT(*) FROM p GROUP BY GROUPING SETS ((k), ())",
    f"SELECT [{HUGE}] AS k, COUNT(*) FROM p GROUP BY k",
    f"SELECT k, COUNT(*) FROM (SELECT uid, MAX({HUGE}) AS k FROM p GROUP BY uid) GROUP BY k",
    f"SELECT WITH PTR MODE({HUGE}) FROM p",
    f"SELECT WITH PTR MEDIAN({HUGE}) FROM p",
    f"SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 10), blocks = 20) MAX({HUGE}) FROM p",
    f"SELECT WITH SUBSAMPLE OPTIONS (combine = 'stable_mode', blocks = 20) MAX({HUGE}) FROM p",
    f"SELECT WITH DP OPTIONS (max_groups_contributed = AUTO) CAST({HUGE} AS UHUGEINT) AS k, COUNT(*) FROM p GROUP BY k",
    f"SELECT WITH DP OPTIONS (max_rows_contributed = AUTO) [{HUGE}] AS k, COUNT(*) FROM p GROUP BY k",
    "SELECT h, COUNT(*) FROM p GROUP BY h",
    "SELECT u, COUNT(*) FROM p GROUP BY u",
    "SELECT COUNT(*) FROM p WHERE age IN (SELECT CAST(1 AS DECIMAL(38, 37)))",
    "SELECT COUNT(*) FROM p WHERE age NOT IN (SELECT CAST(1 AS DECIMAL(38, 37)))",
    "SELECT COUNT(*) FROM p WHERE (age, 1) IN (SELECT CAST(1 AS DECIMAL(38, 37)), 1)",
    f"SELECT COUNT(*) FROM p WHERE {RARE} * 99 + 1 IN (SELECT 1.0000000000000000000000000000000000001)",
    "SELECT COUNT(*) FROM p WHERE age IN (SELECT x FROM (VALUES (CAST(0.5 AS DECIMAL(38, 38)))) v(x))",
    "SELECT COUNT(*) FROM p WHERE age IN (WITH w AS (SELECT CAST(1 AS DECIMAL(38, 37)) AS x) SELECT x FROM w)",
    "SELECT COUNT(*) FROM p WHERE age IN (SELECT UNNEST([CAST(1 AS DECIMAL(38, 37))]))",
    "SELECT COUNT(*) FROM p WHERE age IN (SELECT x FROM other)",
    "SELECT COUNT(*) FROM p WHERE (CASE WHEN diag = 'rare' THEN [1, 2] ELSE [1] END) = (SELECT [1]::INTEGER[1])",
    "SELECT COUNT(*) FROM p WHERE (CASE WHEN diag = 'rare' THEN [1, 2] ELSE [1] END) IN (SELECT [1]::INTEGER[1])",
    "SELECT COUNT(*) FROM p JOIN (SELECT [1]::INTEGER[1] AS l) AS o ON (CASE WHEN diag = 'rare' THEN [1, 2] ELSE [1] END) = o.l",
    f"SELECT COUNT(*) FROM p WHERE [{RARE} * 99 + 1] IN ((SELECT [CAST(1 AS DECIMAL(38, 37))]), [2])",
    "SELECT COUNT(*) FROM p WHERE age = (SELECT CAST(1 AS DECIMAL(38, 37)))",
)
POLICY = """
budget = { epsilon = 1e15, delta = 0.5, accountant = "basic", default_epsilon = 20, default_delta = 1e-15 }
[tables]
p = { privacy_unit = "uid", max_rows = 2, max_groups = 2 }
other = { public = true }
"""
MOST = 2**127 - 1


def _open(*statements: str) -> dpsql.Session:
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE p AS SELECT i AS uid, 'flu' AS diag, 1 AS age, 1::HUGEINT AS h, 1::UHUGEINT AS u FROM range(300) r(i)"
    )
    con.execute("CREATE TABLE other AS SELECT CAST(1 AS DECIMAL(38, 37)) AS x")
    for statement in statements:
        con.execute(statement)
    return dpsql.connect(con, policy=dpsql.Policy.loads(POLICY))


PERSON = f"INSERT INTO p VALUES ({EXTREME}, 'rare', 77, {MOST}, {2**128 - 1})"


@pytest.fixture(scope="module")
def neighbours() -> Iterator[list[dpsql.Session]]:
    sessions = [_open(), _open(PERSON)]
    yield sessions
    for session in sessions:
        session.close()


@pytest.mark.parametrize("text", FOUND)
def test_a_statement_that_one_person_ended(neighbours: list[dpsql.Session], text: str) -> None:
    said = []
    for session in neighbours:
        try:
            result = session.sql(text)
            said.append(("answer", *result.columns, *map(str, result.to_arrow().schema.types)))
        except dpsql.Error as error:
            assert not isinstance(error, dpsql.EngineError), text
            said.append(("error", type(error).__name__, error.message))
    assert said[0] == said[1]


EXACT = (
    ("age IN (SELECT CAST(1 AS DECIMAL(38, 37)))", 300),
    ("age NOT IN (SELECT CAST(1 AS DECIMAL(38, 37)))", 1),
    ("age IN (SELECT CAST(77 AS DOUBLE))", 1),
    ("age IN (SELECT 0.5)", 0),
    ("age NOT IN (SELECT 0.5)", 301),
    ("h IN (SELECT CAST(1 AS UTINYINT))", 300),
    ("u IN (SELECT CAST(-1 AS TINYINT))", 0),
    (f"h IN (SELECT {MOST})", 1),
    ("[age] IN (SELECT [CAST(77 AS BIGINT)])", 1),
    ("[age] IN (SELECT CAST([77] AS INTEGER[1]))", 1),
    ("(age, diag) IN (SELECT CAST(77 AS DECIMAL(38, 30)), 'rare')", 1),
)


@pytest.mark.parametrize(("condition", "rows"), EXACT)
def test_a_membership_means_what_it_means_in_duckdb(
    neighbours: list[dpsql.Session], condition: str, rows: int
) -> None:
    text = f"SELECT WITH DP OPTIONS (epsilon = 1e9) COUNT(*) FROM p WHERE {condition}"
    assert neighbours[1].sql(text).fetchall() == [(rows,)]


def test_integers_of_39_digits_are_released_as_they_are() -> None:
    more = (
        f"CREATE OR REPLACE TABLE p AS SELECT i AS uid, CASE WHEN i < 150 THEN {MOST} ELSE -{MOST} - 1 END AS h, "
        f"CAST('{2**128 - 1}' AS UHUGEINT) AS u, {{'a': u}} AS st FROM range(300) r(i)"
    )
    with _open(more) as session:

        def ask(text: str) -> list[object]:
            return session.sql(text.replace("SELECT", "SELECT WITH DP OPTIONS (epsilon = 1e9)", 1)).fetchall()

        assert ask("SELECT h, COUNT(*) FROM p GROUP BY h ORDER BY h") == [(-MOST - 1, 150), (MOST, 150)]
        assert ask("SELECT u, COUNT(*) FROM p GROUP BY u") == [(2**128 - 1, 300)]
        assert ask("SELECT [u] AS k, COUNT(*) FROM p GROUP BY k") == [([2**128 - 1], 300)]
        assert ask("SELECT st AS k, COUNT(*) FROM p GROUP BY k") == [({"a": 2**128 - 1}, 300)]
        assert session.sql("SELECT WITH PTR OPTIONS (epsilon = 1e6) MODE(u) FROM p").fetchall() == [
            (2**128 - 1,)
        ]


@pytest.mark.parametrize("column", ["h", "u"])
def test_a_histogram_of_128_bits_is_answered(neighbours: list[dpsql.Session], column: str) -> None:
    text = f"SELECT WITH DP OPTIONS (epsilon = 1e9) HISTOGRAM({column}, [CAST(1 AS UTINYINT)]) FROM p"
    ((found,),) = neighbours[0].sql(text).fetchall()
    assert {int(key): count for key, count in found.items()} == {
        1: 300,
        MOST if column == "h" else 2**128 - 1: 0,
    }


def test_public_integers_of_39_digits_are_read() -> None:
    made = f"CREATE OR REPLACE TABLE other AS SELECT {MOST} AS x, CAST('{2**128 - 1}' AS UHUGEINT) AS y"
    with _open(PERSON, made) as session:
        assert session.sql("SELECT x, y FROM other").fetchall() == [(MOST, 2**128 - 1)]
        where = "h IN (SELECT x FROM other) AND u IN (SELECT y FROM other)"
        text = f"SELECT WITH DP OPTIONS (epsilon = 1e9) COUNT(*) FROM p WHERE {where}"
        assert session.sql(text).fetchall() == [(1,)]


def test_the_tables_differ_in_one_person_alone() -> None:
    opened: Callable[[bool], duckdb.DuckDBPyConnection] = tables
    with opened(True) as there, opened(False) as away:
        query = f"SELECT COUNT(*) FROM t WHERE uid = {EXTREME}"
        assert [con.execute(query).fetchall() for con in (there, away)] == [[(6,)], [(0,)]]


def test_a_sum_of_decimals_has_room_for_many_rows() -> None:
    """DuckDB's type of SUM over DECIMAL(38, 37) holds nothing above 10, and every answer would be an error."""
    made = (
        "CREATE OR REPLACE TABLE p AS SELECT i AS uid, CAST(2 AS DECIMAL(38, 37)) AS w FROM range(300) r(i)"
    )
    with _open(made) as session:
        bounds = "contribution_bounds_per_row => (0, 10)"
        for value in ("w", "w + 1", "DISTINCT w"):
            text = f"SELECT WITH DP OPTIONS (epsilon = 1e9) SUM({value}, {bounds}) FROM p"
            ((found,),) = session.sql(text).fetchall()
            assert round(found) == {"w": 600, "w + 1": 900, "DISTINCT w": 2}[value]
