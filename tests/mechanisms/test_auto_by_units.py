"""AUTO finds bounds from one row of each unit: caps on rows do not hide them, and false bounds have a computed chance."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.auto_bounds import ANYWHERE, PLACES, SEARCH, SHARED, AutoBounded
from dpsql.mechanisms.base import RowsClaim
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import DiscreteLaplace

UNITS, CAP = 40_000, 512
LOWEST, HIGHEST = -30, 64


def _rungs(values: np.ndarray) -> pa.Table:
    """Return positive values by rung, as the exact query gives them."""
    rung = np.clip(np.ceil(np.log2(values)), LOWEST, HIGHEST).astype(np.int64)
    steps = np.minimum(np.rint(values / np.exp2(rung - PLACES)), 1 << PLACES).astype(np.int64)
    kept, at = np.unique(rung, return_inverse=True)
    n = np.bincount(at)
    total = np.zeros(len(kept), dtype=np.int64)
    np.add.at(total, at, steps)
    columns = {"sign": np.ones(len(kept), dtype=np.int64), "rung": kept, "n": n, "total": total}
    return pa.table({name: pa.array(column) for name, column in columns.items()})


@pytest.fixture(scope="module")
def amounts() -> tuple[pa.Table, pa.Table, float]:
    """The rungs of all rows of units with 1 to 600 rows, those of one row of each, and the mean of the rows that count."""
    rng = np.random.default_rng(5)
    rows = np.minimum(rng.integers(1, 601, UNITS), CAP)
    first = rng.lognormal(4, 0.5, UNITS)
    others = rng.lognormal(4, 0.5, int(rows.sum()) - UNITS)
    every = np.concatenate([first, others])
    return _rungs(every), _rungs(first), float(every.mean())


def _part(sample: str = "one", kind: str = "avg") -> AutoBounded:
    return AutoBounded("all", (), "a", kind, Fraction(1), LOWEST, HIGHEST, CAP, sample=sample)  # type: ignore[arg-type]


@pytest.mark.parametrize("draws", [200, pytest.param(1_000, marks=pytest.mark.stochastic)])
def test_a_mean_is_found_under_a_large_cap(amounts: tuple[pa.Table, pa.Table, float], draws: int) -> None:
    """40,000 units of 1 to 600 rows at epsilon 1: no answer is NULL, and the median error is below 0.05."""
    every, one, mean = amounts
    part, entropy, errors = _part(), Entropy(), []
    read = {"all": every, "one": one}
    table = part.read_exact(lambda sql: read[sql], entropy)  # type: ignore[arg-type]
    for _ in range(draws):
        (value,) = part.answer(table, [()], entropy).columns["a"].to_pylist()
        assert value is not None
        errors.append(abs(value / mean - 1))
    print(f"{draws} answers, median relative error {np.median(errors):.4f}")
    assert np.median(errors) < 0.05


def test_the_chance_of_null_is_computed(amounts: tuple[pa.Table, pa.Table, float]) -> None:
    """The fullest rung of the sample misses its threshold with a probability far below one in a billion."""
    search = _part().search()
    most = int(np.asarray(amounts[1].column("n")).max())
    threshold = search.ladders[1].list_thresholds(search.scale)[0]  # type: ignore[union-attr]
    assert math.exp(-(most - threshold) / float(search.scale)) < 1e-9


def test_rows_in_place_of_units_would_not_do(amounts: tuple[pa.Table, pa.Table, float]) -> None:
    """Negative control: where noise covers all rows of a unit, AUTO asks for more rows on a rung than it asks for units."""
    assert _part().needed[0] <= 350
    assert _part(sample="").needed[0] >= 100 * _part().needed[0]


def test_false_bounds_have_a_computed_chance() -> None:
    """No rung with a row: by the exact law of one, two and four noises, the chances of all sums together are what is said."""
    search = _part().search()
    scale = float(search.scale)
    assert scale == pytest.approx(1 / float(SEARCH))
    size = 2_000
    places = np.abs(np.arange(-size, size + 1))
    one = np.exp(-places / scale) * math.tanh(0.5 / scale)
    two = np.convolve(one, one)
    laws = {1: one, 2: two, 4: np.convolve(two, two)}
    chance = 0.0
    for ladder in search.ladders:
        for window, threshold in zip(laws, ladder.list_thresholds(search.scale), strict=True):
            law = laws[window]
            middle = len(law) // 2
            each = float(law[middle + threshold :].sum())
            chance += each * (ladder.top - window + 1)
    assert chance <= float(ANYWHERE / SHARED)
    assert chance >= float(ANYWHERE / SHARED) / 100  # the thresholds are not far higher than they must be


def test_a_unit_moves_one_number_by_one() -> None:
    """The search is charged and claimed as noise on one number of one unit, whatever the caps are."""
    part = _part()
    assert part.search().event == DiscreteLaplace(SEARCH, 1, 1)
    claims = {claim.text: claim.claim for claim in part.claims()}
    assert claims["one"] == RowsClaim(1, moves=(("n", 1),))
    assert part.event.basic[0] == 1
    assert _part(sample="").search().rows == CAP


def test_the_sample_says_how_many_rows_it_stands_for() -> None:
    """A released number of rows is within the caps, and so is what stands in for it in a sum."""
    assert _part().search(1, Fraction(100)).noise * 100 == _part().search(1, Fraction(1)).noise
    assert _part().search(1, Fraction(10**9)).noise * CAP == _part().search(1, Fraction(1)).noise
    assert (
        _part(kind="sum").search().noise * math.isqrt(CAP) == _part(kind="sum").search(1, Fraction(1)).noise
    )
