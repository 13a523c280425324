# ruff: noqa: E501
"""Attacks inside SUBSAMPLE by an analyst: reaching beyond a block, failing loudly, returning what can't be counted."""

from __future__ import annotations

import datetime
import decimal
import random
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.binding.relations.fan_out import floor_root
from dpsql.binding.relations.unit_rows import SORTED_ROWS
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.ptr.stability_test import OptimalTest
from dpsql.mechanisms.subsample.blocks import BlockQueries, FeatureVotes, NoisyMode, PythonBlocks, StableMode
from dpsql.mechanisms.subsample.subsample import BlockMean, BlockMedian, ResultRange, WinsorizedMean
from dpsql.noise.entropy import Entropy
from tests.support import inside
from tests.support.fixtures import con_fixture, open_both

POLICY = """
budget = { epsilon = 1e9, delta = 0.5, accountant = "basic", default_epsilon = 1e6, default_delta = 1e-6 }
[tables]
t = { privacy_unit = "u", max_rows = 2, columns = { x = { bounds = [0, 100] } } }
named = { public = true }
"""
TABLES = """
CREATE TABLE t AS SELECT i % 300 AS u, i % 101 AS x, ['a', 'b'][1 + i % 2] AS site FROM range(600) r(i);
CREATE TABLE named AS SELECT unnest(['a', 'b']) AS site, unnest([1, 2]) AS rank;
CREATE TABLE secret AS SELECT 'CANARY' AS word;
CREATE SEQUENCE counter;
CREATE MACRO peek() AS (SELECT word FROM secret);
CREATE MACRO rows_of() AS TABLE SELECT * FROM secret;
"""
con = con_fixture(TABLES)


def spent(session: dpsql.Session) -> float:
    return float(session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"])


# A window makes each of these a query for one block after another; `{}` stands where its value would be computed.
ONE_BY_ONE = "SELECT WITH SUBSAMPLE OPTIONS (blocks = 4, bounds = (0, 9)) MAX(v) AS v FROM (SELECT {}, ROW_NUMBER() OVER (ORDER BY x) AS v FROM t) AS r"
EXPRESSIONS = [
    "random()", "setseed(0.5)", "uuid()", "gen_random_uuid()",
    "txid_current()", "nextval('counter')", "currval('counter')", "current_setting('threads')",
    "getenv('HOME')", "getvariable('x')", "version()", "current_user", "current_database()", "current_schema()", "pg_typeof(x)",
    "peek()", "error('x')", "read_text('/etc/passwd')", "(SELECT content FROM read_text('/etc/passwd'))",
    "(SELECT COUNT(*) FROM read_csv('/etc/passwd'))", "(SELECT COUNT(*) FROM read_parquet('x.parquet'))", "(SELECT COUNT(*) FROM read_blob('/etc/passwd'))",
    "(SELECT COUNT(*) FROM glob('/etc/*'))", "(SELECT COUNT(*) FROM '/etc/passwd')", "(SELECT COUNT(*) FROM secret)", "(SELECT word FROM secret)",
    "(SELECT COUNT(*) FROM rows_of())", "(SELECT COUNT(*) FROM duckdb_settings())", "(SELECT COUNT(*) FROM duckdb_tables())",
    "(SELECT COUNT(*) FROM information_schema.tables)", "(SELECT COUNT(*) FROM pg_catalog.pg_class)", "(SELECT COUNT(*) FROM sqlite_master)",
    "(SELECT COUNT(*) FROM query('SELECT * FROM secret'))", "(SELECT COUNT(*) FROM query_table('secret'))", "(SELECT COUNT(*) FROM memory.main.secret)",
    "(SELECT COUNT(*) FROM t USING SAMPLE 3)", "(SELECT COUNT(*) FROM t TABLESAMPLE 10 PERCENT)", "(SELECT COUNT(*) FROM t POSITIONAL JOIN named)",
    "(SELECT COUNT(*) FROM range(x))", "(SELECT COUNT(*) FROM pragma_table_info('t'))", "(SELECT COUNT(*) FROM test_all_types())",
    "parse_path('/etc/passwd')", "sniff_csv('/etc/passwd')", "write_log('x')", "list_transform([x], lambda y: random())", "rowid",
    "in_search_path('main', 'main')", "checkpoint()", "force_checkpoint()", "add_parquet_key('k', 'v')", "json_execute_serialized_sql('SELECT 1')",
    "dpsql_unit", "u",
]  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_nothing_beyond_the_block_is_within_reach(session: dpsql.Session, expression: str) -> None:
    # the unit itself may be used inside its block; what comes out is a vote, or a held number
    if expression == "u":
        assert session.sql(ONE_BY_ONE.format("u")).shape == (1, 1)
        return
    with pytest.raises(dpsql.Error) as caught:
        session.sql(ONE_BY_ONE.format(expression))
    assert spent(session) == 0
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    "expression", [f"{call}9, 'x')" for call in ("lpad(site, ", "RPAD(site, ", "site.lpad(", 'site."RPAD"(')]
)
def test_filled_texts_are_refused_in_every_spelling(session: dpsql.Session, expression: str) -> None:
    """No binder bounds their length in a block."""
    with pytest.raises(dpsql.PrivacyError, match="can't be used inside SUBSAMPLE"):
        session.sql(ONE_BY_ONE.format(expression))
    assert spent(session) == 0


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1)) COUNT(*) AS a FROM (PIVOT t ON site USING COUNT(*))",
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1)) COUNT(*) AS a FROM (SUMMARIZE t)",
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1)) COUNT(*) AS a FROM (DELETE FROM t RETURNING *)",
        "WITH d AS (INSERT INTO t VALUES (1, 2, 'a') RETURNING x) SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1)) COUNT(*) AS a FROM d",
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1)) COUNT(*) AS a FROM t; ATTACH '/tmp/x.db'",
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1)) COUNT(*) AS a INTO OUTFILE '/tmp/x' FROM t",
        "COPY (SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1)) COUNT(*) AS a FROM t) TO '/tmp/x.csv'",
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1)) COUNT(*) AS a FROM t AT (VERSION => 1)",
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1)) x, site FROM t",
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1)) DISTINCT ON (site) x FROM t",
    ],
)
def test_statements_that_do_something_else(session: dpsql.Session, statement: str) -> None:
    with pytest.raises(dpsql.Error):
        session.sql(statement)
    assert spent(session) == 0
    assert inside.engine(session).execute('SELECT COUNT(*) AS n FROM "t"', {}).column("n").to_pylist() == [
        600
    ]


# What may fail, swell or take its time on the rows of one block, but is nothing but a function of them.
AWKWARD = [
    "CAST(site AS INTEGER)", "x / 0", "1 // (x - x)", "SQRT(-1 - x)", "LN(-x)", "CAST(1e300 AS INTEGER) + x", "x::TINYINT * 100::TINYINT",
    "repeat(site, 100000000)", "POWER(10, x * 100)", "[1, 2, 3][x]", "CAST('x' AS DATE)", "strptime(site, '%Y')",
    "(SELECT x FROM named)", "lpad(site, 2000000000, 'x')", "list_sort([x, NULL])", "{'a': x}",
]  # fmt: skip


@pytest.mark.parametrize("expression", AWKWARD)
def test_a_block_that_fails_gives_the_default(session: dpsql.Session, expression: str) -> None:
    """Charged, answered, and silent about why; or refused beforehand, whatever the data, at no cost."""
    text = ONE_BY_ONE.format(f"{expression} AS w").replace("MAX(v)", "MAX(v) + 0 * COUNT(w)")
    try:
        result = session.sql(text)
    except dpsql.Error as error:
        assert not isinstance(error, dpsql.EngineError)
        assert spent(session) == 0
    else:
        (value,) = result.fetchone() or (None,)
        assert value is not None
        assert 0 <= value <= 9
        assert spent(session) == 1e6


def test_time_is_limited_by_the_owner(con: duckdb.DuckDBPyConnection) -> None:
    """Blocks that would never end are stopped, and give the default; the session goes on."""
    endless = (
        "SELECT WITH SUBSAMPLE OPTIONS (blocks = 2, bounds = (0, 9)) MAX(v) AS v FROM (SELECT COUNT(DISTINCT a.x * b.i + c.i) AS v, "
        "RANK() OVER (ORDER BY a.x) AS r FROM t AS a, range(10000000) AS b(i), range(10000000) AS c(i) GROUP BY a.x) AS q"
    )
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY), resources={"time_limit": 1}) as session:
        began = time.monotonic()
        (value,) = session.sql(endless).fetchone() or (None,)
        assert value == pytest.approx(4.5, abs=0.1)
        assert time.monotonic() - began < 60
        assert spent(session) == 1e6
        assert session.sql(ONE_BY_ONE.format("x")).shape == (1, 1)


# --- what one unit can make a block do

MEETING = {
    "unlinked": ("SELECT a.x FROM t AS a, t AS b, t AS c WHERE a.x < b.x AND b.x < c.x", 3),
    "a subquery": ("SELECT x FROM t AS a WHERE (SELECT COUNT(*) FROM t AS b WHERE b.x < a.x) > 3", 2),
    "a CTE twice": ("WITH c AS (SELECT x FROM t) SELECT a.x FROM c AS a JOIN c AS b ON a.x < b.x", 2),
    "a CTE of two": ("WITH c AS (SELECT a.x FROM t AS a, t AS b) SELECT a.x FROM c AS a, c AS b", 4),
    "a window": ("SELECT x, ROW_NUMBER() OVER (ORDER BY x) AS v FROM t", 1),
    "one after another": ("SELECT x FROM t UNION SELECT x FROM t", 1),
    "public rows": ("SELECT x FROM t, named", 0),
}


@pytest.mark.parametrize("name", MEETING)
def test_rows_of_one_unit_that_meet_in_a_block_are_bounded(name: str) -> None:
    """However many rows a person has, and though the join is not on the unit."""
    query, sides = MEETING[name]
    text = f"SELECT WITH SUBSAMPLE OPTIONS (blocks = 4, bounds = (0, 9)) COUNT(*) AS v FROM ({query}) AS r"
    with open_both(
        POLICY,
        "CREATE TABLE t AS SELECT i % 300 AS u, i % 101 AS x FROM range(600) r(i)",
        "INSERT INTO t SELECT 4242, i % 101 FROM range(3000) r(i)",
        "CREATE TABLE named AS SELECT 'a' AS site",
    ) as (con, session):
        plan = inside.bind(session, text)
        said = [line for line in plan.limits if "joined in a block" in line]
        source = plan.blocks[0].operator.source  # type: ignore[attr-defined]
        read = [
            con.execute(rows.query.replace("$salt", "7")).fetchall() for rows in getattr(source, "rows", ())
        ]
        assert session.sql(text).shape == (1, 1)
    if sides < 2:
        assert not said
        assert all(len(rows) == 3600 for rows in read)
    else:
        most = floor_root(SORTED_ROWS, sides)
        assert f"{most:,} rows of each table are used" in said[0]
        assert len(said) == 1
        assert read
        assert all(len(rows) == 600 + most for rows in read)


# --- registered functions


class Foul:
    """An object that fails whatever is asked of it."""

    def __repr__(self) -> str:
        raise RuntimeError("CANARY")

    __str__ = __hash__ = __len__ = __iter__ = __float__ = __int__ = as_integer_ratio = __array__ = __repr__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("CANARY")


class FoulList(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        raise RuntimeError("CANARY")

    __len__ = __getitem__ = __iter__  # type: ignore[assignment]


class FoulText(str):
    def __hash__(self) -> int:
        raise RuntimeError("CANARY")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("CANARY")

    __repr__ = __str__ = __hash__  # type: ignore[assignment]


class FoulNumber(float):
    def __add__(self, other: object) -> float:
        raise RuntimeError("CANARY")

    __repr__ = as_integer_ratio = __float__ = __add__  # type: ignore[assignment]


def endless() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def deep(n: int = 3000) -> list[Any]:
    made: list[Any] = []
    for _ in range(n):
        made = [made]
    return made


def objects() -> Any:
    made = np.empty(2, dtype=object)
    made[0], made[1] = Foul(), "a"
    return made


def made(what: str) -> Any:
    """As a block has it: what fails is nothing."""
    try:
        return JUNK[what]()
    except BaseException:
        return None


def leave() -> None:
    sys.exit("CANARY")


def fail() -> None:
    raise RuntimeError("CANARY")


def last() -> Any:
    raise BaseExceptionGroup("CANARY", [GeneratorExit()])


def recurse() -> Any:
    return recurse()


JUNK: dict[str, Callable[[], Any]] = {
    "none": lambda: None, "nan": lambda: float("nan"), "infinity": lambda: float("inf"), "text": lambda: "CANARY", "object": object,
    "foul": Foul, "foul list": lambda: FoulList(["a"]), "list of foul": lambda: [Foul(), "a"], "foul text": lambda: FoulText("a"),
    "list of foul text": lambda: [FoulText("a")], "foul number": lambda: FoulNumber(3), "exit": leave, "error": fail, "group": last,
    "recursion": recurse, "memory": lambda: bytearray(1 << 62), "huge list": lambda: ["a"] * 20_000, "huge text": lambda: "a" * 500_000,
    "huge number": lambda: 10**5000, "endless": endless, "deep": deep, "generator": lambda: (i for i in "ab"), "function": lambda: len,
    "array": lambda: np.arange(12.0).reshape(3, 4), "objects": objects, "dates": lambda: np.datetime64("NaT"),
    "decimal": lambda: decimal.Decimal("sNaN"), "day": lambda: datetime.date.max, "dict": lambda: {Foul.__name__: {1: [2]}}, "complex": lambda: 1j,
    "bytes": lambda: b"\xff", "mixed": lambda: (1, "a", 2.5), "set": lambda: {1, "a"}, "surrogate": lambda: "\ud800", "zero byte": lambda: "a\x00b",
    "bool": lambda: np.bool_(True), "masked": lambda: np.ma.masked, "record": lambda: np.zeros(1, dtype="i4,f8")[0], "type": lambda: int,
    "coins": random.random, "notimplemented": lambda: NotImplemented, "ellipsis": lambda: ...,
}  # fmt: skip
WAYS = {
    "number": "bounds = (0, 9)", "mean": "bounds = (0, 9), combine = 'mean'", "winsorized": "bounds = (0, 9), combine = 'winsorized_mean'",
    "vote": "delta = 1e-6", "stable": "combine = 'stable_mode', sampling = 'partition'", "named": "candidates = ('a', 'b'), combine = 'noisy_mode'",
    "features": "candidates = ('a', 'b'), combine = 'noisy_votes'", "best": "candidates = ('a', 'b'), combine = 'noisy_votes', top = 1",
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_whatever_a_function_gives_the_answer_comes(session: dpsql.Session, way: str) -> None:
    """All the junk at once, each in a block of its own: an answer, a charge, and nothing said of why."""
    junk, calls = list(JUNK.values()), []
    sane: Any = "a" if way in ("vote", "stable", "named") else ["a"] if way in ("features", "best") else 5.0

    def odd(x: np.ndarray) -> Any:
        calls.append(len(x))
        return junk[len(calls) - 1]() if len(calls) <= len(junk) else sane

    session.register("odd", odd)
    result = session.sql(f"SELECT WITH SUBSAMPLE OPTIONS (blocks = 120, {WAYS[way]}) odd(x) AS v FROM t")
    assert len(calls) > 100
    assert sum(calls) == 600
    assert spent(session) == 1e6
    assert result.shape[0] == (2 if way == "features" else 1)
    (value, *_) = result.fetchone() or (None,)
    if way in ("number", "mean", "winsorized"):
        assert value is not None
        assert abs(value - 5) < 1.5
    else:
        assert value == "a"
    assert "CANARY" not in " ".join(result.notes)


RANGE = ResultRange(Fraction(0), Fraction(9), 90)
COMBINERS: list[Any] = [
    BlockMedian.with_interval("v", RANGE, Fraction(10), 9, 0.95), BlockMean("v", RANGE, LaplaceNoise(Fraction(10), 90)), WinsorizedMean("v", RANGE, Fraction(10)),
    NoisyMode("v", Fraction(10), ("a", "b")), NoisyMode("v", Fraction(10), selection=OptimalTest(Fraction(20), Fraction(1, 10), groups=2)),
    StableMode("v", OptimalTest(Fraction(20), Fraction(1, 10))),
]  # fmt: skip


@pytest.mark.parametrize("what", JUNK)
def test_junk_in_every_block_is_a_result_like_any_other(what: str) -> None:
    for combiner in COMBINERS:
        columns, notes = combiner.combine([made(what) for _ in range(9)], None, Entropy(), 0.95)
        (value,) = columns["v"].to_pylist()
        if combiner in COMBINERS[:3]:
            assert value is not None
            assert np.isfinite(value)
        elif combiner is COMBINERS[3]:
            assert value in ("a", "b")
        assert "CANARY" not in " ".join(notes)


def test_one_name_is_counted_once_whatever_stands_beside_it() -> None:
    source = PythonBlocks("SELECT 0 AS block, 1 AS v", ("v",), 1, "f", "f", len)
    votes = FeatureVotes(source, "f", "f", ("a", "b"), 1, top=1, epsilon=Fraction(1))
    for what in JUNK:
        assert votes.counts([made(what)]) in ([0, 0], [1, 0]), what
    assert votes.counts([["a", "a", "b"], ("b", Foul()), FoulList(["a"])]) == [1, 1]


def test_a_function_that_draws_coins_is_run_once_per_block_and_charged_once(session: dpsql.Session) -> None:
    dice = random.Random(3)
    session.register("coin", lambda x: dice.choice("ab"))
    text = "SELECT WITH SUBSAMPLE OPTIONS (blocks = 40, candidates = ('a', 'b')) coin(x) AS v FROM t"
    first = session.sql(text)
    again = session.sql(text)
    assert first.fetchall() == again.fetchall()
    assert spent(session) == 1e6


def test_what_a_function_does_to_its_rows_no_other_block_sees(session: dpsql.Session) -> None:
    def greedy(x: np.ndarray, site: np.ndarray) -> float:
        base = x.base if x.base is not None else x
        found = float(len(base))
        x[:] = 0
        site[:] = "CANARY"
        return found

    session.register("greedy", greedy)
    text = "SELECT WITH SUBSAMPLE OPTIONS (blocks = 6, bounds = (0, 600), combine = 'mean') greedy(x, site) AS v FROM t"
    (value,) = session.sql(text).fetchone() or (0,)
    assert value < 150  # no view through which the whole column could be read


def test_the_stop_button_inside_a_function(session: dpsql.Session) -> None:
    def slow(x: np.ndarray) -> float:
        raise KeyboardInterrupt

    session.register("slow", slow)
    with pytest.raises(dpsql.Interrupted):
        session.sql("SELECT WITH SUBSAMPLE OPTIONS (blocks = 6, bounds = (0, 9)) slow(x) AS v FROM t")
    assert spent(session) == 1e6


def test_the_queries_above_run_block_by_block(session: dpsql.Session) -> None:
    """The control of the allow-list's tests: with a harmless expression their query runs, and on that way."""
    plan = inside.bind(session, ONE_BY_ONE.format("x + 1"))
    assert isinstance(plan.blocks[0].operator.source, BlockQueries)  # type: ignore[attr-defined]
    assert session.sql(ONE_BY_ONE.format("x + 1")).shape == (1, 1)
    assert spent(session) == 1e6
