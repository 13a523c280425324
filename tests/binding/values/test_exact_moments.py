"""Moments from exact integers: DuckDB's own of each group by itself, and to the last bit the same in any order."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction

import duckdb
import pytest

from dpsql.binding.relations.exact_aggregates import write_exact_moments, write_layers
from dpsql.binding.values.sql_types import BIGINT, DOUBLE, INTEGER, Bounds, Type, Typed
from dpsql.language.dialect import parse_fragment
from dpsql.mechanisms.queries import Select
from tests.support.moments import (
    ALL,
    Answers,
    Row,
    Value,
    ask_plainly,
    assert_same,
    axes_of,
    fill,
    list_odd_groups,
)

VALUE = "CASE WHEN ISFINITE(CAST({0} AS DOUBLE)) THEN CAST({0} AS DOUBLE) END"


def bounded(low: str, high: str) -> Bounds:
    return Bounds(Fraction(low), Fraction(high))


def ask(rows: Sequence[Row], kinds: tuple[Type, Type], bounds: tuple[Bounds | None, Bounds | None], alone: bool,
        condition: str | None = None) -> Answers:  # fmt: skip
    """Return every aggregate by group, as it is written where it stands alone or beside others."""
    with duckdb.connect() as con:
        fill(con, rows, kinds)
        typed = [
            Typed(parse_fragment(name), kind, b) for name, kind, b in zip("yx", kinds, bounds, strict=True)
        ]
        found = {}
        for name in ALL:
            made = write_exact_moments(name, typed[: len(axes_of(name))], condition, "a0")
            sums = Select(("g", *made.add_up()), "t", group="g")
            if alone:
                sums = made.add_up_alone("g", "g", Select((), "t"))
            text = write_layers(sums, ["g"], {"a0": made}).sql
            found[name] = dict(con.execute(text).fetchall())
        return found


def assert_near(mine: Answers, theirs: Answers, rows: Sequence[Row]) -> None:
    """Compare, to 1e-12 of the size of the values."""
    y, x = (
        max([float(v) for v in side if v is not None and abs(float(v)) < 1e60], key=abs, default=1.0)
        for side in ([row[1] for row in rows], [row[2] for row in rows])
    )
    scales = {"COVAR_POP": y * x, "COVAR_SAMP": y * x, "REGR_SLOPE": y / (x or 1), "REGR_INTERCEPT": y}
    scales |= {
        "REGR_AVGX": 2 * x,
        "REGR_AVGY": 2 * y,
    }  # one value many times is off by half a step of the grid
    assert_same(mine, theirs, {name: 1e-12 * abs(scale) for name, scale in scales.items()}, 1e-12)


KINDS = [
    pytest.param((DOUBLE, DOUBLE), (bounded("0", "1000"), bounded("-1", "1")), id="doubles"),
    pytest.param((DOUBLE, INTEGER), (bounded("0", "1000"), None), id="a double and an integer"),
    pytest.param((INTEGER, Type.parse("DECIMAL(9,2)")), (None, None), id="an integer and a decimal"),
    pytest.param((Type.parse("DECIMAL(12,4)"), Type.parse("UINTEGER")), (None, None), id="more digits"),
    pytest.param((BIGINT, Type.parse("DECIMAL(30,3)")), (bounded("-5000", "5000"), bounded("0", "1000")), id="wide, with bounds"),
    pytest.param((Type.parse("FLOAT"), Type.parse("TINYINT")), (bounded("-8", "8"), None), id="a float"),
]  # fmt: skip


def draw(kind: Type, bounds: Bounds | None, source: random.Random) -> Value:
    if source.random() < 0.05:
        return None
    if kind.kind == "INTEGER":
        return source.randrange(0, 100)
    low, high = (0.0, 500.0) if bounds is None else (float(bounds.low or 0), float(bounds.high or 0))
    value = source.triangular(low, high)
    return round(value, kind.digits[1]) if kind.kind == "DECIMAL" else value


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(("kinds", "bounds"), KINDS)
def test_moments_are_duckdbs_and_do_not_depend_on_the_order_of_rows(
    kinds: tuple[Type, Type], bounds: tuple[Bounds | None, Bounds | None], alone: bool
) -> None:
    source = random.Random(7)
    rows: list[Row] = []
    for i in range(3000):
        y, x = (draw(kind, b, source) for kind, b in zip(kinds, bounds, strict=True))
        rows.append((i % 7, y, x))
    mine = ask(rows, kinds, bounds, alone)
    assert_near(mine, ask_plainly(rows, VALUE, kinds=kinds), rows)
    source.shuffle(rows)
    assert ask(rows, kinds, bounds, alone) == mine


@pytest.mark.parametrize("alone", [True, False])
def test_groups_without_spread_or_rows_are_as_in_duckdb(alone: bool) -> None:
    rows = list_odd_groups(math.nan)
    sides = (bounded("0", "10"), bounded("-10", "10"))
    mine = ask(rows, (DOUBLE, DOUBLE), sides, alone)
    theirs = ask_plainly(rows, VALUE)
    for g in (5, 6):  # in pairs a row counts where both are there, on either side
        assert mine["REGR_AVGX"].get(g) == theirs["REGR_AVGX"][g]
    assert_near(mine, theirs, rows)


@pytest.mark.parametrize("alone", [True, False])
def test_a_filter_leaves_rows_out(alone: bool) -> None:
    rows: list[Row] = [(i % 3, float(i * i % 17), float(i % 5)) for i in range(60)]
    sides = (bounded("0", "20"), bounded("0", "20"))
    mine = ask(rows, (DOUBLE, DOUBLE), sides, alone, "x > 1")
    assert_near(mine, ask_plainly(rows, VALUE, " WHERE x > 1"), rows)


def test_a_small_spread_far_from_zero_is_kept() -> None:
    """Squares of the values less the square of their mean would leave nothing of it, in doubles."""
    rows: list[Row] = [(0, 1e9 + i % 10 / 4, 2_000_000_000 + i % 3) for i in range(1000)]
    sides = (bounded("1e9", "1000000003"), None)
    mine = ask(rows, (DOUBLE, INTEGER), sides, True)
    assert mine["VAR_POP"][0] == pytest.approx(0.515625, rel=1e-12)
    assert mine["REGR_AVGX"][0] == pytest.approx(2_000_000_000.999, rel=1e-15)
    assert mine["VAR_POP"] == ask(rows, (DOUBLE, INTEGER), sides, False)["VAR_POP"]


@pytest.mark.parametrize("alone", [True, False])
def test_the_largest_integers_do_not_overflow(alone: bool) -> None:
    rows: list[Row] = [(0, 2**31 - 1 if i % 2 else -(2**31), 2**32 - 1 if i % 3 else 0) for i in range(1000)]
    kinds = (INTEGER, Type.parse("UINTEGER"))
    assert_near(ask(rows, kinds, (None, None), alone), ask_plainly(rows, VALUE, kinds=kinds), rows)


@pytest.mark.parametrize("alone", [True, False])
def test_values_far_beyond_their_bounds_are_missing_and_break_nothing(alone: bool) -> None:
    near: list[Row] = [(0, float(i % 11), 1.0 * (i % 4)) for i in range(100)]
    far: list[Row] = [(0, value, 1.0) for value in (1e6, -1e6, 1e15, 1e70, -1e300, 1.7e308)]
    sides = (bounded("0", "10"), bounded("0", "10"))
    expected = ask(near, (DOUBLE, DOUBLE), sides, alone)
    assert ask([*near, *far], (DOUBLE, DOUBLE), sides, alone) == expected
    beyond: list[Row] = [*near, (0, 70.0, 1.0), (0, -60.0, 2.0)]
    assert_near(ask(beyond, (DOUBLE, DOUBLE), sides, alone), ask_plainly(beyond, VALUE), beyond)


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        (DOUBLE, None), (DOUBLE, Bounds(Fraction(0), None)), (BIGINT, None), (Type.parse("DECIMAL(18,2)"), None),
        (DOUBLE, Bounds(Fraction(0), Fraction(10) ** 20)),
    ],
)  # fmt: skip
def test_numbers_without_a_public_size_have_no_grid(kind: Type, bounds: Bounds | None) -> None:
    typed = Typed(parse_fragment("y"), kind, bounds)
    assert write_exact_moments("VAR_SAMP", [typed], None, "a0") is None
    assert write_exact_moments("CORR", [Typed(parse_fragment("x"), INTEGER), typed], None, "a0") is None


@pytest.mark.parametrize("name", ["AVG", "SUM", "MEDIAN", "COUNT"])
def test_other_aggregates_are_no_moments(name: str) -> None:
    assert write_exact_moments(name, [Typed(parse_fragment("y"), INTEGER)], None, "a0") is None


@pytest.mark.parametrize("size", ["1e-50", "3", "999.99", "1e18"])
def test_squares_of_the_farthest_values_fit_128_bits(size: str) -> None:
    """As many as 2^40 of them: the limit of what counts is public, and of the type's size."""
    number = Typed(parse_fragment("y"), DOUBLE, bounded(f"-{size}", size))
    made = write_exact_moments("VAR_POP", [number], None, "a0")
    most = int(made.there.split()[-1])
    assert most**2 << 40 < 1 << 127
    steps = float(made.values["y"].split("* ")[1].split()[0])
    assert 2**38 < float(size) * steps <= most / 16


def test_long_values_are_not_written_over_and_over() -> None:
    short, long = (Typed(parse_fragment(" + ".join(["y"] * many)), INTEGER) for many in (50, 600))
    assert write_exact_moments("VAR_POP", [short], None, "a0") is not None
    assert write_exact_moments("VAR_POP", [long], None, "a0") is None
