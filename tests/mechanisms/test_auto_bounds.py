"""AUTO bounds: the clipped totals are exact, their sensitivity is what is declared, and bounds follow the data.

The search alone is in test_rung_search.py, and that it does not run away in test_false_rungs.py.
"""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.auto_bounds import BOUND_BITS, PLACES, AutoBounded
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import DiscreteLaplace, PureDP, compose_events
from tests.support.goodness import fixed

VECTORS = Path(__file__).parents[1] / "published" / "vectors"


def place(value: float, lowest: int, highest: int) -> tuple[int, int, int]:
    """Sign, rung and size in steps, as the exact query gives them."""
    if not value:
        return 0, lowest, 0
    rung = min(max(math.ceil(math.log2(abs(value))), lowest), highest)
    steps = round(abs(Fraction(value)) / Fraction(2) ** (rung - PLACES))
    return (1 if value > 0 else -1), rung, min(steps, 1 << PLACES)


def histogram(values: list[float], lowest: int, highest: int, groups: list[str] | None = None) -> pa.Table:
    cells: dict[tuple[object, ...], list[int]] = {}
    for i, value in enumerate(values):
        sign, rung, steps = place(value, lowest, highest)
        cell = cells.setdefault((groups[i] if groups else None, sign, rung), [0, 0, 0])
        for power in range(3):
            cell[power] += steps**power
    keys = list(cells)
    table = {"sign": [k[1] for k in keys], "rung": [k[2] for k in keys]}
    table |= {name: [cells[k][power] for k in keys] for power, name in enumerate(("n", "total", "squares"))}
    columns = {name: pa.array(column, pa.int64()) for name, column in table.items()}
    return pa.table({"g": pa.array([k[0] for k in keys]), **columns} if groups else columns)


def clipped(values: list[float], low: Fraction, high: Fraction, auto: AutoBounded) -> Fraction:
    table = histogram(values, auto.lowest, auto.highest)
    columns = [np.asarray(table.column(c), dtype=np.int64) for c in ("sign", "rung", "n", "total")]
    return auto._clipped(*columns, low, high)


def auto(kind: str = "sum", epsilon: Fraction = Fraction(1), **more: object) -> AutoBounded:
    return AutoBounded("q", (), "a", kind, epsilon, -4, 20, **more)  # type: ignore[arg-type]


def test_clipped_totals_are_exact() -> None:
    values = [3.0, -7.5, 0.0, 1000.25, 16.0, -0.125, 4.0000001, 1e9]
    for low, high in itertools.product((0, -1, -8, -(2**20)), (0, 1, 4, 16, 1024, 2**20)):
        want = sum(min(max(Fraction(v), Fraction(low)), Fraction(high)) for v in values)
        got = clipped(values, Fraction(low), Fraction(high), auto())
        assert abs(got - want) <= len(values) * Fraction(1, 2**PLACES) * max(abs(low), high, 1) / 2


def test_clipped_squares_are_exact_and_move_by_half_the_distance_squared() -> None:
    """Clipped rows' squares about 0, instead of the middle of the bounds, would need four times as much noise."""
    rng = np.random.default_rng(3)
    values, part = [*rng.normal(0, 300, 40).tolist(), 2.0**21, -0.1, 0.0], auto("var_pop")

    def squares(rows: list[float], low: Fraction, high: Fraction, centre: Fraction) -> Fraction:
        table = histogram(rows, part.lowest, part.highest)
        sign, rung, n, total, square = (
            np.asarray(table.column(c), dtype=np.int64) for c in ("sign", "rung", "n", "total", "squares")
        )
        first = part._clipped(sign, rung, n, total, low, high)
        return part._clipped(sign, rung, n, square, low, high, 2) - 2 * centre * first + centre**2 * len(rows)

    for low, high in (
        (Fraction(0), Fraction(16)),
        (Fraction(-64), Fraction(16)),
        (Fraction(-1024), Fraction(0)),
    ):
        centre, reach = (low + high) / 2, (high - low) / 2
        want = sum((min(max(Fraction(v), low), high) - centre) ** 2 for v in values)
        assert (
            abs(squares(values, low, high, centre) - want)
            <= len(values) * Fraction(1, 2**PLACES) * 4 * reach**2
        )
        for at in (centre, Fraction(0)):
            moved = max(
                squares([*values[:i], *values[i + 1 :], v], low, high, at)
                - squares(values[:i] + values[i + 1 :], low, high, at)
                for i, v in enumerate(values)
            )
            assert (moved <= reach**2) == (at == centre)


def test_a_row_moves_a_clipped_total_by_at_most_its_bound() -> None:
    """Exactly, whatever the other rows are, and after rounding to the grid of which the bound is whole."""
    rng = np.random.default_rng(2)
    values = [*(rng.normal(0, 300, 60).tolist()), 2.0**21, 1e300, 0.1, 0.3]
    for low, high in ((0, 16), (-64, 16), (-1024, 1024), (-1, 0)):
        reach = Fraction(max(-low, high))
        steps = Fraction(1 << BOUND_BITS) / reach
        for i, extra in enumerate(values):
            rest = values[:i] + values[i + 1 :]
            less, more = (clipped(v, Fraction(low), Fraction(high), auto()) for v in (rest, [*rest, extra]))
            assert abs(more - less) <= reach
            assert abs(math.floor(more * steps) - math.floor(less * steps)) <= 1 << BOUND_BITS


def test_float_sums_would_not_do() -> None:
    """The witness of the textbook's query: a difference of two clipped float sums moves by 3, not by 1."""
    witness = json.loads((VECTORS / "vectors_partition_quantile.json").read_text())["float_diff_query_demo"][
        "witness"
    ]
    b, values = witness["b"], witness["x"]

    def float_query(rows: list[float]) -> float:
        return float(sum(min(v, b) for v in rows) - sum(min(v, b + 1) for v in rows))

    moved = max(
        abs(float_query(values) - float_query(values[:i] + values[i + 1 :])) for i in range(len(values))
    )
    assert moved > 1
    assert witness["without"] - witness["with_row"] == 3


@pytest.mark.parametrize("scale", [2.0**-2, 1.0, 1000.0])
def test_bounds_follow_the_scale_of_the_data(scale: float) -> None:
    rng = np.random.default_rng(7)
    values = (rng.normal(5, 2, 4000) * scale).tolist()
    table = histogram(values, -4, 20)
    release = auto("avg").alone().release(lambda sql: table, fixed(str(scale)))
    mean, low, high = (release.table.column(c)[0].as_py() for c in ("a", "a__low", "a__high"))
    assert low <= mean <= high
    assert mean == pytest.approx(5 * scale, rel=0.05)
    assert "bounds found privately" in release.notes[0]


def test_both_signs_are_clipped() -> None:
    values = [-100.0] * 3000 + [3.0] * 3000
    release = auto().alone().release(lambda sql: histogram(values, -4, 20), fixed("signs"))
    assert release.table.column("a")[0].as_py() == pytest.approx(-291_000, rel=0.02)
    bounds = [f"[-{low}, {high}]" for low in (128, 256, 512) for high in (4, 8, 16, 32)]
    assert any(b in release.notes[0] for b in bounds)


def test_groups_share_the_bounds() -> None:
    values, groups = [2.0] * 3000 + [8.0] * 3000, ["x"] * 3000 + ["y"] * 3000
    part = AutoBounded("q", ("g",), "a", "avg", Fraction(4), -4, 20, groups=2)
    answered = part.answer(histogram(values, -4, 20, groups), [("x",), ("y",), ("empty",)], fixed("groups"))
    x, y, empty = answered.columns["a"].to_pylist()
    assert (x, y) == (pytest.approx(2, rel=0.05), pytest.approx(8, rel=0.05))
    assert empty is None or 0 <= empty <= 8  # of nothing: NULL where the noisy count is not above 0
    assert part.search().rows == 2


@pytest.mark.parametrize("kind", ["sum", "avg", "var_samp"])
@pytest.mark.parametrize(
    "values", [[], [0.0] * 1000, [50.0] * 60, [1e12]], ids=["none", "zeros", "few", "one"]
)
def test_too_few_rows_give_null(kind: str, values: list[float]) -> None:
    part = auto(kind)
    release = part.alone().release(lambda sql: histogram(values, -4, 20), fixed(f"few {kind}"))
    assert release.table.to_pylist() == [{"a": None, "a__low": None, "a__high": None}]
    assert release.event == part.event
    (note,) = release.notes
    assert f"about {part.needed[0]} rows" in note
    assert "NULL" in note


def test_null_says_no_more_than_that() -> None:
    """Nothing but the outcome of the search: the same words, the same charge, for a group and for all."""
    part = AutoBounded("q", ("g",), "a", "sum", Fraction(1), -4, 20, groups=2)
    groups = [("x",), ("y",)]
    said = [
        part.answer(histogram(values, -4, 20, ["x"] * len(values)), groups, fixed("null"))
        for values in ([], [3.0] * 40)
    ]
    assert said[0].notes == said[1].notes
    assert said[0].event == said[1].event == part.event
    assert all(column.to_pylist() == [None, None] for one in said for column in one.columns.values())


def test_enough_rows_give_an_answer() -> None:
    """As many as EXPLAIN says, in 19 of 20 runs."""
    part, entropy = auto(), fixed("enough")
    (needed,) = part.needed
    table = histogram([700.0] * needed, -4, 20)
    groups = [()]
    notes = [part.answer(table, groups, entropy).notes[0] for _ in range(200)]  # type: ignore[list-item]
    assert sum("NULL" in note for note in notes) < 20
    assert sum("[0, 1024]" in note for note in notes) > 150
    few = histogram([700.0] * (needed // 2), -4, 20)
    assert sum("NULL" in part.answer(few, groups, entropy).notes[0] for _ in range(50)) > 45  # type: ignore[list-item]


class TestDeclaredBounds:
    def test_end_the_ladder(self) -> None:
        part = auto(low=Fraction(17), high=Fraction(90))
        below, above = part.ladders
        assert below is None
        assert above.bound(above.top) == 90
        assert above.bound(above.top - 1) == 64
        release = part.alone().release(lambda sql: histogram([85.0] * 2000, -4, 20), fixed("declared"))
        assert "[0, 90]" in release.notes[0]
        said = " ".join(part.sentences(0.95))
        assert "up to 90 and none below 0, by the declared bounds" in said

    def test_one_sided(self) -> None:
        below, above = auto(low=Fraction(-3)).ladders
        assert (below.end, below.highest, above.end, above.highest) == (3, 2, None, 20)
        assert below.doubt > above.doubt

    def test_beyond_the_type(self) -> None:
        ladder = auto(high=Fraction(10) ** 30).ladders[1]
        assert ladder.bound(ladder.top) == 2**20

    def test_of_nothing_but_zeros(self) -> None:
        part = auto(low=Fraction(0), high=Fraction(0))
        release = part.alone().release(lambda sql: histogram([0.0] * 9, -4, 20), fixed("zeros"))
        assert release.table.column("a").to_pylist() == [None]
        assert part.event == auto().event
        assert "some rows" in release.notes[0]

    def test_no_row_is_above_an_end_that_is_no_step(self) -> None:
        """A row at the end, rounded to its rung's steps, adds no more than the bound that the noise is made for."""
        for end in (Fraction(0.1), Fraction(1, 3), Fraction(90), Fraction(100_000.7)):
            part = auto(high=end, low=-end)
            ladder = part.ladders[1]
            bound = ladder.bound(ladder.top)
            assert end <= bound <= end * (1 + Fraction(1, 2 ** (PLACES - 1)))
            # as they are, though the rung of some goes beyond the end
            for share in (1, 0.99, 0.7, 0.3, 0.01):
                value = float(end) * share
                got = clipped([value, -value, value], -bound, bound, part)
                assert got <= bound
                assert float(got) == pytest.approx(value, rel=1e-3)


def test_event_is_public() -> None:
    """The bounds have 15 %; the sum's noise is the same number of steps whatever the bounds turn out to be."""
    part = DiscreteLaplace(Fraction(3, 20), 1)
    rest = DiscreteLaplace(Fraction(17, 20), 3 << BOUND_BITS)
    assert auto(rows=3).event == compose_events([PureDP(Fraction(3, 20)), rest])
    mean = compose_events(
        [part, DiscreteLaplace(Fraction(17, 40), 1 << BOUND_BITS), DiscreteLaplace(Fraction(17, 40), 1)]
    )
    assert auto("avg").event == mean
    each = Fraction(17, 60)
    spread = [
        DiscreteLaplace(each, 1 << BOUND_BITS),
        DiscreteLaplace(each, 1),
        DiscreteLaplace(each, 1 << BOUND_BITS),
    ]
    assert auto("stddev_samp").event == compose_events([part, *spread])
    assert auto("stddev_samp").event.basic == (1, 0)
    assert auto().event.basic == (1, 0)


def test_groups_and_rows_share_the_noise() -> None:
    part = AutoBounded("q", ("g",), "a", "avg", Fraction(1), -4, 20, rows=3, groups=2)
    noisy = [DiscreteLaplace(Fraction(17, 40), 3 << BOUND_BITS, 2), DiscreteLaplace(Fraction(17, 40), 3, 2)]
    assert part.event == compose_events([PureDP(Fraction(3, 20)), *noisy])
    assert part.search().scale == 40
    assert part.search(7).noise == 7 * part.search().noise


@pytest.mark.parametrize("kind", ["sum", "avg", "var_pop"])
@pytest.mark.parametrize(
    "ends", [(Fraction(0), Fraction(8)), (Fraction(-8), Fraction(2)), (Fraction(-4), Fraction(0))]
)
def test_a_row_moves_what_gets_the_noise_by_its_sensitivity(
    kind: str, ends: tuple[Fraction, Fraction], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more row at an end of the bounds, or anywhere between them: as far as the noise was made for, and no farther."""
    added: list[int] = []

    def add(noise: LaplaceNoise, values: list[int], entropy: Entropy) -> np.ndarray:
        if noise.sensitivity == 1 << BOUND_BITS:
            added.append(int(values[0]))
        return np.array([int(v) for v in values], dtype=object)

    monkeypatch.setattr(LaplaceNoise, "add", add)
    part = auto(kind)
    of = 2 if kind == "var_pop" else 1  # the total, and the squares
    more = (*ends, sum(ends) / 2)
    for total, square, rows in [
        (Fraction(7, 3), Fraction(31, 7), 4),
        *((Fraction(7, 3) + x, Fraction(31, 7) + x**2, 5) for x in more),
    ]:
        part._shown([total], [rows], *ends, Entropy(), [square])
    for one in range(of):
        moved = [abs(after - added[one]) for after in added[one + of :: of]]
        assert len(moved) == 3
        assert max(moved) <= 1 << BOUND_BITS
        assert max(moved) >= (1 << BOUND_BITS) - 1
