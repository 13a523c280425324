"""Order statistics by every way of reading them, against sorting everything."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dpsql
from dpsql.mechanisms import order_statistics as order
from dpsql.mechanisms.base import Reader
from dpsql.mechanisms.order_statistics import choose_spacing, find_rank, read_order_statistics
from dpsql.mechanisms.ptr import ptr_statistics
from tests.support.connections import fresh

QUARTILES = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
REACH = 20
RNG = np.random.default_rng(12)


def spread_out(n: int) -> np.ndarray:
    return RNG.normal(size=n)


def heavy(n: int) -> np.ndarray:
    return np.sign(RNG.normal(size=n)) * np.exp(RNG.random(n) * 700)


def tied(n: int) -> np.ndarray:
    return RNG.integers(0, 5, n).astype(np.float64)


def nearly_constant(n: int) -> np.ndarray:
    values = np.full(n, 7.0)
    values[: n // 10] = RNG.random(n // 10) * 1e-300
    ends = values[n // 10 : n // 8]
    ends[::2], ends[1::2] = -1.7e308, 1.7e308
    return values


def ordered_already(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.float64)


SHAPES = [spread_out, heavy, tied, nearly_constant, ordered_already]


def reading(values: np.ndarray, groups: int = 1) -> Callable[[str], pa.Table]:
    connection = fresh()
    table = pa.table({"k": np.arange(len(values)) % groups, "v": values})
    connection.register("given", table)
    connection.execute("CREATE TEMP TABLE t AS SELECT * FROM given")
    return lambda sql: connection.sql(sql).to_arrow_table()


def check(found: order.Ordered, values: np.ndarray) -> None:
    ranked = np.sort(values)
    n = len(ranked)
    assert found.n == n
    for p in QUARTILES:
        middle = find_rank(n, p)
        first, last = max(1, middle - REACH), min(n, middle + REACH)
        assert np.array_equal(found.slice(first, last), ranked[first - 1 : last])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [1, 2, 47, 9000])
@pytest.mark.parametrize("fetch", [10**6, 500, 60])
def test_ungrouped(shape: Callable[[int], np.ndarray], n: int, fetch: int) -> None:
    values = shape(n) if n > 40 or shape is not nearly_constant else np.zeros(n)
    check(read_order_statistics(reading(values), "SELECT v FROM t", (), QUARTILES, REACH, fetch)[()], values)


@pytest.mark.parametrize("shape", [spread_out, tied, heavy])
def test_grouped(shape: Callable[[int], np.ndarray]) -> None:
    values = shape(2000)
    found = read_order_statistics(reading(values, 7), "SELECT k, v FROM t", ("k",), QUARTILES, REACH)
    assert len(found) == 7
    for (key,), data in found.items():
        check(data, values[np.arange(2000) % 7 == key])


def test_two_keys_with_nulls() -> None:
    listed = "('a', TRUE, 1.0), ('a', NULL, 2.0), (NULL, TRUE, 3.0), ('a', TRUE, 4.0)"
    rows = f"SELECT * FROM (VALUES {listed}) AS r(k, b, v)"
    found = read_order_statistics(reading(np.zeros(1)), rows, ("k", "b"), QUARTILES, REACH)
    assert {key: data.n for key, data in found.items()} == {("a", True): 2, ("a", None): 1, (None, True): 1}
    assert found[("a", True)].at(2) == 4


def test_what_is_not_finite_is_missing() -> None:
    values = np.array([1.0, math.nan, math.inf, -math.inf, 2.0])
    found = read_order_statistics(reading(values), "SELECT v FROM t", (), QUARTILES, REACH)[()]
    assert found.n == 2
    assert list(found.slice(0, 3)) == [-math.inf, 1, 2, math.inf]
    nothing = reading(np.array([math.nan]))
    assert read_order_statistics(nothing, "SELECT v FROM t", (), QUARTILES, REACH) == {}
    assert read_order_statistics(nothing, "SELECT k, v FROM t", ("k",), QUARTILES, REACH) == {}


def test_ranks_that_were_not_read_are_not_invented() -> None:
    found = read_order_statistics(
        reading(np.arange(9000.0)), "SELECT v FROM t", (), (Fraction(1, 2),), 3, 100
    )[()]
    with pytest.raises(LookupError):
        found.at(20)


def test_spacing_is_a_power_of_two_below_the_scale() -> None:
    for scale in (Fraction(1, 3), Fraction(7), Fraction(10**30), Fraction(1, 10**30)):
        step = choose_spacing(scale)
        assert step <= scale / 1024 < 2 * step
        assert step.numerator & (step.numerator - 1) == 0
        assert step.denominator & (step.denominator - 1) == 0
    with pytest.raises(ValueError, match="positive"):
        choose_spacing(Fraction(0))


@pytest.mark.parametrize("rows", [0, 3, 899, 900, 5000])
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_many_values_come_in_parts(rows: int, kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many were counted before: rows may have come or gone since."""
    monkeypatch.setattr(order, "_AT_ONCE", -1)
    values = pa.chunked_array([pa.array(RNG.normal(size=300), pa.float64()) for _ in range(3)]).cast(kind)
    parts = [pa.table({"v": chunk}) for chunk in values.chunks]
    column = order._fetch(Reader(lambda sql, lent: parts[0], stream=lambda sql, lent: iter(parts)), "", rows)
    assert np.array_equal(column, np.asarray(values, dtype=np.float64))


@pytest.mark.parametrize("unit", ["ROW", "k"])
@pytest.mark.parametrize(
    "asked", ["PTR OPTIONS (epsilon = 500) IQR(v)", "STABLE OPTIONS (epsilon = 500) TRIMMED_MEAN(v, 0.1)"]
)
def test_more_rows_than_fit_are_answered(monkeypatch: pytest.MonkeyPatch, unit: str, asked: str) -> None:
    """The second lock proves the text that is then read, and the answer is that of the fetched column."""
    policy = f"""
        budget = {{ epsilon = 1e7, delta = 1e-2, accountant = "basic", default_delta = 1e-6 }}
        [tables.t]
        privacy_unit = "{unit}"
        {"max_rows = 2" if unit != "ROW" else ""}
        columns.v.bounds = [0, 1000]"""
    answers = []
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT range // 2 AS k, (range % 997)::DOUBLE AS v FROM range(4000)")
        for most in (4, 10_000):
            few = partial(read_order_statistics, fetch=most)
            monkeypatch.setattr(ptr_statistics, "read_order_statistics", few)
            with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as session:
                found = session.sql(f"SELECT WITH {asked} AS q FROM t", fresh=True)
                answers.append(found.fetchall()[0][0])
    assert answers[0] == pytest.approx(answers[1], abs=1)
