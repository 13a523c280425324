"""Moments on grids that blocks choose themselves: DuckDB's own of each block, in any order, wherever the numbers lie."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from fractions import Fraction

import duckdb
import pytest

from dpsql.binding.relations.exact_aggregates import write_layers, write_own_grid_moments
from dpsql.mechanisms.queries import Select
from tests.support.moments import ALL, Answers, Row, ask_plainly, assert_same, axes_of, fill, list_odd_groups

VALUE = "CASE WHEN ABS({0}) < 1e70 THEN {0} END"


def ask(rows: Sequence[Row], condition: str | None = None) -> Answers:
    """Return every aggregate of each group, as it is written."""
    found: Answers = {}
    with duckdb.connect() as con:
        fill(con, rows)
        for name in ALL:
            values = [VALUE.format(side) for side in axes_of(name)]
            made = write_own_grid_moments(name, values, condition, "a0")
            text = write_layers(made.add_up_alone("g", "g", Select((), "t")), ["g"], {"a0": made}).sql
            found[name] = dict(con.execute(text).fetchall())
    return found


Draw = Callable[[random.Random], float]
DRAWS: dict[str, Draw] = {
    "amounts": lambda r: round(math.exp(r.random() * 7), 2),
    "integers": lambda r: float(r.randrange(-(2**40), 2**40)),
    "rates": lambda r: r.random() * 1e-6,
    "normal": lambda r: r.gauss(0, 1),
    "half a unit": lambda r: 0.5 + r.random() / 1000,
}


@pytest.mark.parametrize("first", list(DRAWS))
def test_moments_are_duckdbs_and_do_not_depend_on_the_order_of_rows(first: str) -> None:
    source = random.Random(3)
    rows: list[Row] = []
    for i in range(3000):
        y, x = DRAWS[first](source), DRAWS["normal"](source)
        rows.append((i % 5, None if source.random() < 0.05 else y, None if source.random() < 0.05 else x + y))
    size = max(abs(y) for _, y, _ in rows if y is not None)
    near = dict.fromkeys(("COVAR_POP", "COVAR_SAMP", "REGR_INTERCEPT", "REGR_AVGY"), 1e-11 * size)
    mine = ask(rows)
    assert_same(mine, ask_plainly(rows, VALUE), near | {"REGR_AVGX": 1e-11 * (size + 9)}, 1e-11)
    source.shuffle(rows)
    assert ask(rows) == mine
    assert ask(sorted(rows, key=repr)) == mine


def test_a_result_is_its_blocks_alone() -> None:
    """Other blocks, however large their numbers, change nothing of it; nor does the number of threads."""
    source = random.Random(4)
    own: list[Row] = [(0, source.gauss(5, 1), source.gauss(0, 2)) for _ in range(500)]
    others: list[Row] = [
        (g, source.gauss(0, 10.0 ** (7 * g)), source.random()) for g in range(1, 9) for _ in range(300)
    ]
    alone, together = ask(own), ask([*own, *others])
    assert all(together[name][0] == alone[name][0] for name in ALL)


def test_groups_without_spread_or_rows_are_as_in_duckdb() -> None:
    rows = [*list_odd_groups(1e71), (99, 5e-324, 0.0), (99, 0.0, 1.0)]
    assert_same(ask(rows), ask_plainly(rows, VALUE), {}, 1e-11)


@pytest.mark.parametrize("size", [1e-100, 1e-9, 1.0, 1e9, 9e69])
def test_numbers_of_any_size_do_not_overflow(size: float) -> None:
    rows: list[Row] = [(0, size * (i % 11 - 5) / 5, size * (i % 7) / 6) for i in range(400)]
    mine, theirs = ask(rows), ask_plainly(rows, VALUE)
    for name in ("VAR_POP", "STDDEV_SAMP", "COVAR_SAMP", "REGR_AVGX", "REGR_INTERCEPT"):
        assert mine[name][0] == pytest.approx(theirs[name][0], rel=1e-9, abs=1e-9 * size), name
    assert mine["CORR"][0] == pytest.approx(
        ask_plainly([(g, y / size, x / size) for g, y, x in rows], VALUE)["CORR"][0] or 0, rel=1e-9
    )  # type: ignore[operator]


def test_a_small_spread_far_from_zero_is_kept() -> None:
    """On a grid from zero to the greatest number nothing would be left of it."""
    rows: list[Row] = [(0, 1e9 + i % 10 / 4, 1e12 + i % 3) for i in range(1000)]
    mine = ask(rows)
    assert mine["VAR_POP"][0] == pytest.approx(0.515625, rel=1e-11)
    assert mine["REGR_AVGX"][0] == pytest.approx(1e12 + 0.999, rel=1e-15)


def test_a_filter_leaves_rows_out() -> None:
    rows: list[Row] = [(i % 3, float(i * i % 17), float(i % 5)) for i in range(60)]
    assert_same(ask(rows, "x > 1"), ask_plainly(rows, VALUE, " WHERE x > 1"), {}, 1e-11)
    assert set(ask(rows, "x > 9")["CORR"].values()) == {None}


def test_squares_of_the_farthest_values_fit_128_bits() -> None:
    """Half of the steps between the ends, and one for rounding; 2^40 times."""
    made = write_own_grid_moments("VAR_POP", ["y"], None, "a0")
    steps = Fraction(4398046511104)
    assert f"{float(steps)!r} / " in made.add_up_alone("g", "g", Select((), "t")).sql
    assert (steps / 2 + 1) ** 2 * 2**40 < 2**127


def test_other_aggregates_and_long_values_are_written_otherwise() -> None:
    assert write_own_grid_moments("AVG", ["y"], None, "a0") is None
    assert write_own_grid_moments("VAR_POP", [" + ".join(["y"] * 600)], None, "a0") is None
