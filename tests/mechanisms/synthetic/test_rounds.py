"""Marginals that are chosen and measured: what is charged, exactly; what may move; and who sees what."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.per_group import GaussianNoise, JointGaussianNoise, LaplaceNoise
from dpsql.mechanisms.synthetic.models import (
    MAX_MARGINAL,
    ReleasedMarginal,
    count_model_cells,
    estimate_total,
    list_marginals,
)
from dpsql.mechanisms.synthetic.rounds import TOTAL, WEIGHT, ExactCells, SyntheticRows
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import BoundedRange, Event, JointGaussian
from tests.support.goodness import fixed
from tests.support.operator_contract import OperatorContract
from tests.support.plain_model import PlainFitter

KEYS = ("k0", "k1", "k2", "k3")
SIZES = (2, 3, 2, 2)


def laplace(
    steps: int = 1, groups: int = 1, rounds: int = 3, choice: Fraction | None = Fraction(1, 30)
) -> SyntheticRows:
    reach, part = steps * groups, Fraction(9, 10) / (4 + 2 * rounds)
    return SyntheticRows(
        "SELECT joint", KEYS, "p0", tuple(f"SELECT {k}" for k in KEYS), SIZES, steps, groups, LaplaceNoise(part, reach),
        LaplaceNoise(2 * part, reach), rounds, choice, fitter=PlainFitter(sweeps=3),
    )  # fmt: skip


def gaussian(rounds: int = 3) -> SyntheticRows:
    pair, parts = (Fraction(9, 10), Fraction(1, 10**6)), 4 + 2 * rounds
    single, measured = (JointGaussianNoise.calibrate_share(*pair, 2, 1, Fraction(n, parts)) for n in (1, 2))
    return replace(laplace(2, rounds=rounds), single=single, measured=measured)


def cells(rows: dict[tuple[int, ...], int], sizes: tuple[int, ...] = SIZES) -> ExactCells:
    codes = np.array(list(rows), dtype=np.int64).reshape(-1, len(sizes))
    return ExactCells(sizes, codes, np.array(list(rows.values()), dtype=np.int64))


EXAMPLE = {(i % 2, i % 3, (i // 2) % 2, (i * i) % 2): 40 + 7 * i for i in range(6)}


class TestContract(OperatorContract):
    operator = laplace()

    def exact(self, text: str) -> pa.Table:
        if text != "SELECT joint":
            key = text.removeprefix("SELECT ")
            return pa.table({key: [f"{key} {v}" for v in range(SIZES[KEYS.index(key)])]})
        columns = {key: [f"{key} {codes[i]}" for codes in EXAMPLE] for i, key in enumerate(KEYS)}
        return pa.table({**columns, "p0": pa.array(list(EXAMPLE.values()), pa.int64())})


# -- what is released -------------------------------------------------------------------------------------------------


def test_what_is_charged_is_what_was_measured() -> None:
    for operator in (laplace(), gaussian(), laplace(rounds=10, choice=None), gaussian(rounds=1)):
        measured = operator.measure(cells(EXAMPLE), Entropy())
        leaves = list(operator.event.leaves())
        joint = [leaf for leaf in leaves if isinstance(leaf, JointGaussian)]
        noises: list[Event] = [leaf for leaf in leaves if not isinstance(leaf, BoundedRange)]
        if joint:
            (noise,) = joint
            assert set(noise.squares) == {operator.reach**2}
            variances = [float(sigma) ** 2 + 1 / 12 for sigma in noise.sigmas]
        else:
            rates = [leaf.epsilon / operator.reach for leaf in noises]
            variances = [2 * np.exp(-float(r)) / np.expm1(-float(r)) ** 2 for r in rates]
        assert len(measured.released) == len(variances) == len(KEYS) + operator.rounds
        assert [m.deviation**2 for m in measured.released] == pytest.approx(variances)
        choices = [leaf for leaf in leaves if isinstance(leaf, BoundedRange)]
        assert len(choices) == (0 if operator.choice is None else operator.rounds)
        assert {leaf.epsilon for leaf in choices} <= {operator.choice}


def test_the_whole_costs_what_was_asked() -> None:
    assert laplace(rounds=3).event.basic == (Fraction(9, 10) + 3 * Fraction(1, 30), 0)
    assert gaussian(rounds=3).event.basic == (Fraction(9, 10) + 3 * Fraction(1, 30), Fraction(1, 10**6))


def test_all_candidates_are_measured_where_nothing_is_chosen() -> None:
    measured = laplace(rounds=10, choice=None).measure(cells(EXAMPLE), Entropy())
    assert {m.columns for m in measured.released} == {(i,) for i in range(4)} | set(list_marginals(SIZES))


def test_noise_of_the_measurements_is_that_of_the_charge() -> None:
    operator, exact = gaussian(), cells(EXAMPLE)
    found = [operator.measure(exact, fixed(f"noise {i}")).released for i in range(300)]
    off = {True: [], False: []}  # type: ignore[var-annotated]
    for marginal in itertools.chain(*found):
        off[len(marginal.columns) == 1] += list(np.array(marginal.counts) - exact.project(marginal.columns))
    for single, noise in ((True, operator.single), (False, operator.measured)):
        ratio = np.std(off[single]) / np.sqrt(noise.variance)
        assert abs(ratio - 1) < 0.05
        assert not any(abs(ratio * factor - 1) < 0.05 for factor in (0.9, 1.1))  # it would be seen


def test_the_fitter_sees_releases_alone() -> None:
    fitter = PlainFitter(sweeps=2)
    operator = replace(gaussian(), fitter=fitter)
    operator.measure(cells(EXAMPLE), Entropy())
    assert len(fitter.seen) == 1 + operator.rounds
    for sizes, released, total in fitter.seen:
        assert sizes == SIZES
        assert type(total) is int
        assert total == estimate_total(released[: len(SIZES)])  # type: ignore[index]
        for marginal in released:  # type: ignore[attr-defined]
            assert type(marginal) is ReleasedMarginal
            assert {type(count) for count in marginal.counts} == {int}
            assert type(marginal.deviation) is float


def test_a_large_epsilon_gives_the_rows_themselves() -> None:
    noise = LaplaceNoise(Fraction(10**6), 1)
    operator = replace(
        laplace(rounds=10, choice=None), single=noise, measured=noise, fitter=PlainFitter(sweeps=200)
    )
    measured = operator.measure(cells(EXAMPLE), Entropy())
    assert measured.total == sum(EXAMPLE.values())
    for columns in list_marginals(SIZES):
        expected = measured.model.project(columns)
        assert np.abs(expected - cells(EXAMPLE).project(columns)).max() < 1


def test_a_release_counts_equal_rows() -> None:
    contract = TestContract()
    table = contract.release(Entropy())[0].table
    assert table.column_names == [*KEYS, WEIGHT, TOTAL]
    assert len(set(zip(*(table.column(k).to_pylist() for k in KEYS), strict=True))) == table.num_rows
    (total,) = set(table.column(TOTAL).to_pylist())
    assert sum(table.column(WEIGHT).to_pylist()) == total


def test_values_that_are_not_public_are_left_out() -> None:
    operator = laplace()
    table = pa.table({k: ["a", "x"] for k in KEYS} | {"p0": pa.array([5, 7], pa.int64())})
    known = [pa.array(["a", "b", "c"][:size]) for size in SIZES]
    found = operator._read_cells(lambda _sql, _lent=None: table, known)
    assert found.counts.tolist() == [5]


def test_noise_for_less_than_a_unit_moves_is_refused() -> None:
    for changes in ({"steps": 2}, {"groups": 2}, {"measured": None}, {"choice": Fraction(0)}, {"rounds": 0}):
        with pytest.raises(ValueError, match="noise"):
            replace(laplace(), **changes)  # type: ignore[arg-type]
    # the root of two groups is not enough: all rows may fall together
    with pytest.raises(ValueError, match="noise"):
        replace(laplace(1, 2), single=GaussianNoise.calibrate(Fraction(1), Fraction(1, 10**6), 1, 2))


# -- the exact loss ---------------------------------------------------------------------------------------------------


def list_units(steps: int, groups: int, sizes: tuple[int, ...]) -> Iterator[dict[tuple[int, ...], int]]:
    """Yield what one unit may add to the joint cells: at most ``steps`` in each of at most ``groups``."""
    places = list(itertools.product(*map(range, sizes)))
    for many in range(1, groups + 1):
        for chosen in itertools.combinations(places, many):
            for counts in itertools.product(range(1, steps + 1), repeat=many):
                yield dict(zip(chosen, counts, strict=True))


def find_greatest_loss(
    operator: SyntheticRows, sizes: tuple[int, ...], steps: int, groups: int
) -> tuple[Fraction, float]:
    """Return the greatest loss, over all units, of one marginal's Laplace noise, exactly; and of one choice, at 50 digits."""
    assert isinstance(operator.measured, LaplaceNoise)
    base = dict.fromkeys(itertools.product(*map(range, sizes)), 3)
    candidates = [*((i,) for i in range(len(sizes))), *list_marginals(sizes)]
    expected = {c: np.full(int(np.prod([sizes[i] for i in c])), 6.4) for c in candidates}
    noisy, choice = Fraction(0), mpmath.mpf(0)
    for unit in list_units(steps, groups, sizes):
        more = {cell: count + unit.get(cell, 0) for cell, count in base.items()}
        pair = [cells(rows, sizes) for rows in (base, more)]
        for columns in candidates:
            moved = np.abs(pair[0].project(columns) - pair[1].project(columns)).sum()
            noisy = max(noisy, int(moved) / operator.measured.scale)
        with mpmath.workdps(50):
            rate = (
                mpmath.mpf(1) * operator.choice.numerator / operator.choice.denominator / (2 * operator.reach)
            )
            logs = []
            for exact in pair:
                scores = [operator.score(exact.project(c), expected[c]) for c in list_marginals(sizes)]
                total = mpmath.log(sum(mpmath.exp(rate * score) for score in scores))
                logs.append([rate * score - total for score in scores])
            choice = max(choice, *(abs(a - b) for a, b in zip(*logs, strict=True)))
    return noisy, float(choice)


@pytest.mark.parametrize(("steps", "groups"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_no_unit_loses_more_than_is_charged(steps: int, groups: int) -> None:
    sizes = (2, 2, 2)
    operator = replace(laplace(steps, groups), sizes=sizes, keys=KEYS[:3], domains=("a", "b", "c"))
    noisy, choice = find_greatest_loss(operator, sizes, steps, groups)
    assert noisy == operator.measured.epsilon  # exactly: all rows of a unit in one cell
    assert choice <= operator.choice  # type: ignore[operator]


def test_it_would_fail() -> None:
    sizes = (2, 2, 2)
    shape = {"sizes": sizes, "keys": KEYS[:3], "domains": ("a", "b", "c")}
    less = replace(laplace(1, 1), **shape)  # noise for one row, where a unit has two
    noisy, _ = find_greatest_loss(less, sizes, 2, 1)
    assert noisy == 2 * less.measured.epsilon
    tight = replace(less, choice=Fraction(40))  # so large that a choice loses nearly all of it
    assert find_greatest_loss(tight, sizes, 1, 1)[1] <= 40 < find_greatest_loss(tight, sizes, 4, 1)[1]


# -- what is public ---------------------------------------------------------------------------------------------------


def test_the_size_of_a_model_is_known_before_it_is_fitted() -> None:
    assert count_model_cells((5, 6), []) == 11
    assert count_model_cells((5, 6), [(0, 1)]) == 36
    many = tuple([10] * 8)
    assert count_model_cells(many, itertools.combinations(range(8), 2)) > 10**8


def test_candidates_are_bounded_together() -> None:
    sizes = tuple([40] * 30)  # 435 pairs, 4,060 threes of 64,000 cells each
    found = list_marginals(sizes)
    assert {c for c in found if len(c) == 2} == set(itertools.combinations(range(30), 2))
    assert 0 < sum(len(c) == 3 for c in found) < 300


@pytest.mark.parametrize("expected", [math.nan, math.inf, -math.inf, 1e19, 2.0**63, -1e300])
def test_one_row_moves_a_score_by_one_whatever_a_model_expects(expected: float) -> None:
    operator = laplace()
    empty, one = np.zeros(4, dtype=np.int64), np.array([1, 0, 0, 0])
    odd = np.full(4, expected)
    assert abs(operator.score(empty, odd) - operator.score(one, odd)) <= 1
    assert estimate_total([ReleasedMarginal((0,), (10**30, 1), 1.0)]) * MAX_MARGINAL < 2**63, (
        "all cells add up"
    )


def test_a_model_that_grows_too_large_is_not_chosen() -> None:
    operator = laplace()
    released = [ReleasedMarginal((i,), (1,) * 200, 1.0) for i in range(4)]
    large = replace(operator, sizes=(200, 200, 200, 200))
    known = [ReleasedMarginal((0, 1), (1,) * 40_000, 1.0), ReleasedMarginal((1, 2), (1,) * 40_000, 1.0)]
    allowed = large._list_allowed(large.candidates, [*released, *known])
    assert (0, 2) not in allowed  # a triangle: 8 million cells
    assert (2, 3) in allowed
