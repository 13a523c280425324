"""A block's result is made of its own rows alone: not of where others' rows end, not of which of two equal rows came first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dpsql
from dpsql.binding.modes import block_checks, block_queries, block_sources
from dpsql.engine.duckdb import DuckDBEngine
from dpsql.errors import PrivacyError
from dpsql.mechanisms.base import Reader, add_salt, bind_parameters
from dpsql.mechanisms.subsample import blocks
from dpsql.mechanisms.subsample.blocks import BlockQueries, BlockRows
from dpsql.noise.entropy import Entropy
from tests.support import inside

POLICY = """
budget = {{ epsilon = 1e9, delta = 0.5, accountant = "basic", default_epsilon = 1e6, default_delta = 1e-6 }}
[tables]
t = {{ privacy_unit = "{unit}", max_rows = {rows} }}
"""


def fixed() -> Entropy:
    """Always the same bytes, so that units are dealt into the same blocks."""
    return Entropy(lambda n: bytes((5 * (i + 3)) % 251 for i in range(n)))


def results(
    statements: list[str], query: str, unit: str = "u", blocks: int = 4, register: Callable[..., Any] | None = None
) -> list[Any]:  # fmt: skip
    """Return the result of each block, over the table t that the statements make."""
    with duckdb.connect() as con:
        for statement in statements:
            con.execute(statement)
        policy = dpsql.Policy.loads(POLICY.format(unit=unit, rows=1 if unit == "ROW" else 1000))
        with dpsql.connect(con, policy=policy) as session:
            if register is not None:
                session.register("f", register)
            text = query.replace("SUBSAMPLE", f"SUBSAMPLE OPTIONS (blocks = {blocks}, bounds = (0, 1))")
            plan = inside.bind(session, text)
            inside.check(session, plan)
            source = plan.blocks[0].operator.source  # type: ignore[attr-defined]
            (column,) = source.results(inside.reader(session), fixed()).columns.values()
            return list(column)


# -- where the rows of others end -------------------------------------------------------------------------------


def _joined(cut: int) -> list[Any]:
    """One block of 5,000 rows, whose table is in two pieces."""
    n = 5000
    block, x = pa.array([0] * n, pa.uint8()), pa.array([i % 7 for i in range(n)])
    table = pa.table({"block": block, "x": x, "y": pa.array(np.sin(np.arange(n)))})
    pieces = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    block, x = pa.array([0] * 21, pa.uint8()), pa.array([i % 7 for i in range(21)])
    few = pa.table({"block": block, "x": x, "z": pa.array([float(i) for i in range(21)])})
    rows = (
        BlockRows("t", "SELECT t", (("x", "BIGINT"), ("y", "DOUBLE"))),
        BlockRows("w", "SELECT w", (("x", "BIGINT"), ("z", "DOUBLE"))),
    )
    query = "SELECT LIST(y + z)[1500] AS a, SUM(y * z) AS b FROM t JOIN w USING (x)"
    source = BlockQueries(rows, query, ("a", "b"), 1)
    engine = DuckDBEngine(":memory:", dpsql.Policy.loads('[budget]\nepsilon = 1\naccountant = "basic"'), None)  # type: ignore[arg-type]

    def read(sql: str, lent: object) -> pa.Table:
        return pieces if "SELECT t" in sql else few

    found = source.results(Reader(read, scratch=engine.apart), fixed()).columns
    engine.close()
    return [found["a"][0], found["b"][0]]


def test_where_the_rows_of_others_end_is_not_seen() -> None:
    assert _joined(1000) == _joined(3000)


def test_it_would_be_if_rows_came_in_the_pieces_of_the_table() -> None:
    def pieces(self: Any, number: int) -> pa.Table:
        return self.table.slice(self.starts[number], self.size(number))

    with mock.patch.object(blocks._Parts, "rows", pieces):
        assert _joined(1000) != _joined(3000)


def test_a_blocks_query_has_one_thread() -> None:
    policy = dpsql.Policy.loads('[budget]\nepsilon = 1\naccountant = "basic"')
    with dpsql.connect(policy=policy, resources={"threads": 2}) as session:
        found = inside.engine(session).apart("SELECT current_setting('threads') AS n", {})  # type: ignore[attr-defined]
        assert found.column("n").to_pylist() == [1]


# -- rows that are units ----------------------------------------------------------------------------------------

TWICE = (
    "WITH a AS (SELECT x FROM t), r AS (SELECT WITH SUBSAMPLE (SELECT COUNT(*) FROM a) + (SELECT SUM(y) FROM t) AS n) "
    "SELECT n FROM r"
)
SAME = "SELECT WITH SUBSAMPLE (SELECT COUNT(*) FROM t) + (SELECT SUM(y) FROM t) AS n"
PEOPLE = "CREATE TABLE t AS SELECT i AS x, i * 3 AS y FROM range({}) AS r(i)"


def test_a_row_that_is_a_unit_is_in_one_block() -> None:
    with pytest.raises(PrivacyError, match="each row of t is a privacy unit"):
        results([PEOPLE.format(100)], TWICE, "ROW", 16)
    all_, fewer = (results([PEOPLE.format(n)], SAME, "ROW", 16) for n in (101, 100))
    assert sum(a != b for a, b in zip(all_, fewer, strict=True)) == 1


def test_it_would_be_in_two_by_what_each_mention_shows_of_it() -> None:
    with mock.patch.object(block_checks, "_one_kind_of_row"):
        all_, fewer = (results([PEOPLE.format(n)], TWICE, "ROW", 16) for n in (101, 100))
    assert sum(a != b for a, b in zip(all_, fewer, strict=True)) == 2


# -- random subsamples over two tables --------------------------------------------------------------------------

WIDTHS = ["CREATE TABLE t AS SELECT -5::INTEGER AS u", "CREATE TABLE p AS SELECT -5::BIGINT AS u"]


def _together(patched: bool = False) -> set[tuple[int, int]]:
    """In how many of the two tables one unit is seen by a run, over all runs."""
    text = (
        "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 50, delta = 0.01, combine = 'stable_mode', sampling = 'bernoulli', units = 2) "
        "(SELECT COUNT(*) FROM t) + 2 * (SELECT COUNT(*) FROM p) AS n"
    )
    policy = POLICY.format(unit="u", rows=1) + '[tables.p]\nprivacy_unit = "u"\nmax_rows = 1\n'
    plain = block_sources.Blocks.unit if patched else block_sources.Blocks.hashed
    with duckdb.connect() as con, mock.patch.object(block_sources.Blocks, "hashed", plain):
        for statement in WIDTHS:
            con.execute(statement)
        with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as session:
            plan = inside.bind(session, text)
            operator: Any = plan.blocks[0].operator
            source, most = operator.source, operator.participation.query
            read = add_salt(inside.reader(session), (most,), fixed())
            seen = source.results(read, fixed()).columns["n"]
            every = bind_parameters(read, {"first": 0, "last": operator.participation.runs})
            counted = every(most).column("most")[0].as_py()
            return {(n, counted - sum(v > 0 for v in seen)) for n in seen}


def test_a_unit_of_two_tables_is_in_the_same_random_subsamples() -> None:
    found = _together()
    assert {n for n, _ in found} == {0, 3}
    assert {missed for _, missed in found} == {0}


def test_it_would_be_in_more_than_are_counted_if_types_were_hashed_as_they_are() -> None:
    found = _together(patched=True)
    assert {1, 2} <= {n for n, _ in found}
    assert all(missed < 0 for _, missed in found)


# -- equal values that look different ---------------------------------------------------------------------------


def _orders(kind: str, query: str, register: Callable[..., Any] | None = None) -> tuple[list[Any], list[Any]]:
    """The same rows, kept in two orders."""
    faces = {
        "FLOAT": ["'0'::FLOAT", "'-0'::FLOAT"], "DOUBLE": ["'nan'::DOUBLE", "-'nan'::DOUBLE"],
        "FLOAT[]": ["['0'::FLOAT]", "['-0'::FLOAT]"], "INTERVAL": ["INTERVAL 1 MONTH", "INTERVAL 30 DAYS"],
    }[kind]  # fmt: skip
    made = []
    for values in (faces, faces[::-1]):
        rows = " UNION ALL ".join(f"SELECT 1 AS u, {value} AS x" for value in values)
        made.append(results([f"CREATE TABLE t AS {rows}"], query, register=register))
    return made[0], made[1]


FACES = [
    ("FLOAT", "SELECT WITH SUBSAMPLE FIRST(CAST(x AS VARCHAR)) AS a FROM t"),
    ("DOUBLE", "SELECT WITH SUBSAMPLE FIRST(CAST(x AS VARCHAR)) AS a FROM t"),
    ("FLOAT[]", "SELECT WITH SUBSAMPLE FIRST(CAST(x AS VARCHAR)) AS a FROM t"),
    ("FLOAT[]", "SELECT WITH SUBSAMPLE x FROM t GROUP BY x ORDER BY COUNT(*) LIMIT 1"),
    ("FLOAT[]", "SELECT WITH SUBSAMPLE x FROM t ORDER BY u LIMIT 1"),
    ("INTERVAL", "SELECT WITH SUBSAMPLE x FROM t GROUP BY x ORDER BY COUNT(*) LIMIT 1"),
    ("INTERVAL", "SELECT WITH SUBSAMPLE x FROM t ORDER BY u LIMIT 1"),
]


SHOWS = int(duckdb.__version__.split(".")[0]) >= 2
"""True where so few rows come in the order they were kept: the older DuckDB gives both orders alike."""


def _looks(faces: tuple[list[Any], list[Any]]) -> tuple[str, str]:
    return repr(faces[0]), repr(faces[1])


@pytest.mark.parametrize(("kind", "query"), FACES)
def test_which_of_two_equal_values_came_first_is_not_seen(kind: str, query: str) -> None:
    one, other = _looks(_orders(kind, query))
    assert one == other
    assert "None, None, None, None" not in one


@pytest.mark.skipif(not SHOWS, reason="the comparison needs an order that is kept")
@pytest.mark.parametrize(("kind", "query"), FACES)
def test_it_would_be_if_equals_were_left_as_they_come(kind: str, query: str) -> None:
    plain: Callable[..., str] = lambda query, names, as_text=(): (  # noqa: E731
        f"SELECT block, {', '.join(names)} FROM ({query}) AS given ORDER BY block, {names[0]}"
    )
    with (
        mock.patch.object(block_queries, "unify_zeros", lambda typed: typed),
        mock.patch.object(blocks, "_by_block", plain),
        mock.patch.object(block_queries, "_all_of", lambda sql, typed: [sql]),
    ):
        one, other = _looks(_orders(kind, query))
    assert one != other


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE", "FLOAT[]", "INTERVAL"])
def test_nor_by_a_function(kind: str) -> None:
    def first(x: Any) -> str:
        return str(np.copysign(1, x[0])) if x.dtype.kind == "f" else repr(x[0])

    query = "SELECT WITH SUBSAMPLE f(x) AS a FROM t"
    one, other = _looks(_orders(kind, query, first))
    assert one == other
    assert "None, None, None, None" not in one
    with (
        mock.patch.object(block_sources, "unify_zeros", lambda typed: typed),
        mock.patch.object(blocks.PythonBlocks, "as_text", (), create=True),
        mock.patch.object(blocks, "_by_block", lambda q, *_: f"SELECT block, x0 FROM ({q}) AS q ORDER BY block, x0"),
    ):  # fmt: skip
        one, other = _looks(_orders(kind, query, first))
        assert one != other or not SHOWS, "the comparison can't fail"
