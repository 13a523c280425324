"""Noise in the order of a key: exact losses over every way a unit may move, the fit, closed forms, and what must fail."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from dpsql.mechanisms.ordered_noise import (
    ROOT_GRID,
    GrowingTree,
    OrderedNoise,
    SquareRootNoise,
    TreeNoise,
    choose_tree,
    find_node_level,
    find_root_reach,
    list_square_root,
    make_square_root,
    make_tree,
    share_noise,
)
from dpsql.mechanisms.per_group import (
    GaussianNoise,
    GaussianNoiseByMu,
    JointGaussianNoise,
    LaplaceNoise,
    Noise,
)
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import DiscreteLaplace, compose_events
from tests.support.goodness import fixed
from tests.support.ordered import (
    Vector,
    added_by,
    draw_errors,
    list_moves,
    list_vectors,
    measure_gaussian,
    measure_pure,
    read_root,
)

ONE, TINY = Fraction(1), Fraction(1, 10**6)
REACHES = [(1, 1), (2, 1), (1, 3), (2, 2), (1, 6)]


def laplace(sensitivity: int = 1, groups: int = 1) -> LaplaceNoise:
    return LaplaceNoise(ONE, sensitivity, groups)


def gaussians(sensitivity: int, groups: int) -> list[GaussianNoise]:
    return [
        GaussianNoise.calibrate(ONE, TINY, sensitivity, groups),
        JointGaussianNoise.calibrate_share(ONE, TINY, sensitivity, groups, Fraction(1, 3)),
        GaussianNoiseByMu.of_mu(Fraction(1, 4), TINY, sensitivity, groups),
    ]


def strategies(base: Noise, steps: int) -> list[OrderedNoise]:
    trees = [TreeNoise(base, steps, 2, 3), TreeNoise(base, steps, 3, 2), GrowingTree(base, steps, 2, 2)]
    return [*trees, SquareRootNoise(base, steps)]


# -- the loss -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reach", REACHES)
@pytest.mark.parametrize("runs", [1, 2])
def test_no_unit_costs_more_than_pure_epsilon(reach: tuple[int, int], runs: int) -> None:
    """Every move of a unit, in one run of six steps and over two of three."""
    for noise in strategies(laplace(*reach), 6 // runs):
        losses = [measure_pure(noise, move, runs) for move in list_moves(6, *reach)]
        assert max(losses) <= ONE
        unneeded = isinstance(noise, SquareRootNoise | GrowingTree)
        assert max(losses) == ONE or unneeded  # no more noise than is needed
        assert noise.event.basic == (ONE, 0)


@pytest.mark.parametrize("reach", REACHES)
@pytest.mark.parametrize("runs", [1, 2])
def test_no_unit_costs_more_than_the_mu_of_the_event(reach: tuple[int, int], runs: int) -> None:
    for base in gaussians(*reach):
        for noise in strategies(base, 6 // runs):
            losses = [measure_gaussian(noise, move, runs) for move in list_moves(6, *reach)]
            assert max(losses) <= noise.event.mu**2
            assert noise.event.mu <= base.event.mu * (1 + Fraction(1, 10**8))
            assert noise.event.basic == base.event.basic


def test_eight_rows_in_eight_neighbouring_steps_are_eight_in_their_sum() -> None:
    """Not the root of 8: noise that was made for that is refused by the same check."""
    base = GaussianNoise.calibrate(ONE, TINY, 1, 8)
    noise = TreeNoise(base, 64, 2, 4)
    move = np.zeros(64, dtype=np.int64)
    move[8:16] = 1
    most = base.event.mu**2 * (1 + Fraction(1, 10**8))
    assert [int(np.abs(v).max()) for v in list_vectors(noise, [int(v) for v in move])] == [1, 2, 4, 8]
    assert measure_gaussian(noise, move) <= most
    apart = np.zeros(64, dtype=np.int64)
    apart[::8] = 1
    assert measure_gaussian(noise, apart) <= most
    wrong = [share_noise(base, Fraction(1, 4), 1, 8)] * 4  # the root of the number of groups, at every level
    noise.__dict__["vectors"] = tuple(wrong)
    assert measure_gaussian(noise, apart) <= most  # it looks right where the rows lie apart
    assert measure_gaussian(noise, move) > 3 * most


def test_laplace_noise_for_the_root_of_the_groups_is_refused() -> None:
    noise = TreeNoise(laplace(1, 4), 16, 2, 5)
    move = np.zeros(16, dtype=np.int64)
    move[4:8] = 1
    assert measure_pure(noise, move) == ONE
    noise.__dict__["vectors"] = (LaplaceNoise(Fraction(1, 5), 2, 1),) * 5
    assert measure_pure(noise, move) == 2


def test_a_square_root_made_for_the_longest_column_alone_is_refused() -> None:
    base = GaussianNoise.calibrate(ONE, TINY, 1, 4)
    noise = SquareRootNoise(base, 32)
    move = np.zeros(32, dtype=np.int64)
    move[:4] = 1
    assert measure_gaussian(noise, move) <= base.event.mu**2 * (1 + Fraction(1, 10**8))
    column = find_root_reach(32, 1)
    noise.__dict__["vectors"] = (share_noise(base, ONE, 1, 4 * column),)
    assert measure_gaussian(noise, move) > base.event.mu**2


@pytest.mark.parametrize(("steps", "groups"), [(5, 1), (5, 2), (6, 3), (6, 4), (7, 6)])
def test_the_reach_of_the_square_root_covers_every_set_of_steps(steps: int, groups: int) -> None:
    r = list_square_root(steps)
    columns = [np.concatenate((np.zeros(k, dtype=np.int64), r[: steps - k])) for k in range(steps)]
    sets = [sum(columns[k] for k in chosen) for chosen in combinations(range(steps), groups)]
    worst = max(int(v @ v) for v in sets)
    assert worst <= find_root_reach(steps, groups)
    assert find_root_reach(steps, groups) <= worst * (1.0 if groups == 1 else 1.6)
    assert find_root_reach(steps, 1) == int(columns[0] @ columns[0])


def test_the_square_root_never_grows_and_squares_to_all_ones() -> None:
    r = list_square_root(4096)
    assert r[0] == ROOT_GRID
    assert bool((np.diff(r) <= 0).all())
    assert bool((r > 0).all())
    squared = np.convolve(r / ROOT_GRID, r / ROOT_GRID)[:4096]
    assert np.abs(squared - 1).max() < 2e-3


def test_laplace_levels_are_one_event_for_what_may_all_fall_into_one_sum() -> None:
    noise = TreeNoise(laplace(3, 5), 64, 4, 3)
    assert noise.event == DiscreteLaplace(ONE, 15, 3)
    assert all(one.scale == 45 for one in noise.vectors if isinstance(one, LaplaceNoise))


def test_parts_of_a_joint_calibration_keep_the_pair_together() -> None:
    shares = [JointGaussianNoise.calibrate_share(ONE, TINY, 1, 2, Fraction(1, 2)) for _ in range(2)]
    noises = [make_tree(shares[0], 20), make_square_root(shares[1], 20)]
    event = compose_events(noise.event for noise in noises)
    assert event.basic == (ONE, TINY)
    assert event.mu <= compose_events(one.event for one in shares).mu * (1 + Fraction(1, 10**8))


# -- after the draw -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 5, 12, 37])
def test_steps_are_a_function_of_the_noisy_integers_alone(steps: int) -> None:
    rng = np.random.default_rng(1)
    for noise in strategies(laplace(), max(steps, 2)):
        given: list[Vector] = []

        def add(_: Noise, exact: Vector, __: Entropy, given: list[Vector] = given) -> Vector:
            given.append(rng.integers(-(10**6), 10**6, len(exact)))
            return given[-1]

        with added_by(add):
            first = noise.draw_run(np.zeros(steps, dtype=np.int64), Entropy())
        again = iter(given)
        with added_by(lambda *_: next(again)):  # noqa: B023
            other = noise.draw_run(rng.integers(0, 10**9, steps), Entropy())
        assert first.tolist() == other.tolist()


@pytest.mark.parametrize("most", [1, 10**6, 2**59, 2**62, 2**80])
def test_nothing_is_lost_without_noise(most: int) -> None:
    """Integers of any size come back as they were, in every strategy, also where sums pass 64 bits."""
    rng = np.random.default_rng(2)
    for steps in (1, 2, 13, 100):
        values = [int(v) * most // 2**20 for v in rng.integers(-(2**20), 2**20, steps)]
        for noise in strategies(laplace(), max(steps, 2)):
            with added_by(lambda _, exact, __: exact):
                found = noise.add_runs(values, [np.arange(steps)], Entropy())
            assert [int(v) for v in found] == values


def test_runs_are_apart_and_long_ones_are_cut() -> None:
    noise = TreeNoise(LaplaceNoise(Fraction(10**6), 1, 1), 4, 2, 3)
    runs = [np.array([0, 2, 4, 6, 8, 10, 11]), np.array([1, 3]), np.array([9, 7, 5])]
    values = list(range(100, 112))
    assert noise.add_runs(values, runs, fixed("runs")).tolist() == values


@pytest.mark.parametrize(
    ("steps", "branches", "levels"), [(2, 2, 2), (11, 3, 3), (12, 2, 4), (7, 2, 2), (5, 4, 4), (16, 4, 2)]
)
def test_the_fit_is_least_squares(steps: int, branches: int, levels: int) -> None:
    """Values and variances of all ranges, beside plain linear algebra."""
    noise = TreeNoise(GaussianNoise.calibrate(ONE / 4, TINY, 3, 4), steps, branches, levels)
    rows, weights = [], []
    for level, one in enumerate(noise.vectors):
        for start in range(0, steps, branches**level):
            row = np.zeros(steps)
            row[start : start + branches**level] = 1
            rows.append(row)
            weights.append(1 / one.variance)
    a, w = np.array(rows), np.diag(weights)
    inverse = np.linalg.inv(a.T @ w @ a)
    first, last = map(np.array, zip(*[(i, j) for i in range(steps) for j in range(i, steps)], strict=True))
    direct = [inverse[i : j + 1, i : j + 1].sum() for i, j in zip(first, last, strict=True)]
    assert noise.expect_variances(first, last) == pytest.approx(direct)
    rng = np.random.default_rng(3)
    noisy = [rng.integers(-(10**6), 10**6, len(v)) for v in list_vectors(noise, [0] * steps)]
    solved = inverse @ a.T @ w @ np.concatenate(noisy).astype(float)
    assert np.abs(np.cumsum(noise.fit(noisy)) - np.cumsum(solved)).max() <= 0.5 + 1e-6


@pytest.mark.parametrize("steps", [2, 9, 40])
def test_the_square_root_is_solved(steps: int) -> None:
    noise = SquareRootNoise(GaussianNoise.calibrate(ONE, TINY, 1, 1), steps)
    r = list_square_root(steps)
    matrix = np.array([[r[i - j] if i >= j else 0 for j in range(steps)] for i in range(steps)], dtype=float)
    inverse = np.linalg.inv(matrix)
    covariance = inverse @ inverse.T * noise.vectors[0].variance
    first, last = map(np.array, zip(*[(i, j) for i in range(steps) for j in range(i, steps)], strict=True))
    direct = [covariance[i : j + 1, i : j + 1].sum() for i, j in zip(first, last, strict=True)]
    assert noise.expect_variances(first, last) == pytest.approx(direct)
    noisy = np.random.default_rng(4).integers(-(10**9), 10**9, steps)
    assert np.abs(np.cumsum(noise.solve(noisy)) - np.cumsum(inverse @ noisy)).max() <= 0.5 + 1e-6


# -- errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [12, 365])
@pytest.mark.parametrize("word", ["TREE", "SQUARE_ROOT"])
def test_running_totals_are_off_by_the_closed_form(steps: int, word: str) -> None:
    """Within 5 %; a tenth more noise, or less, is not."""
    base = laplace(1, 2) if word == "TREE" else GaussianNoise.calibrate(ONE, TINY, 1, 2)
    noise = make_tree(base, steps) if word == "TREE" else make_square_root(base, steps)
    last = np.arange(steps)
    closed = math.sqrt(noise.expect_variances(0 * last, last).mean() + 1 / 12)
    found = {
        factor: read_root(draw_errors(noise, 800, fixed(f"{word} {steps} {factor}"), factor), 0 * last, last)
        for factor in (0.9, 1.0, 1.1)
    }
    assert abs(found[1.0] / closed - 1) < 0.05
    assert abs(found[0.9] / closed - 1) > 0.05
    assert abs(found[1.1] / closed - 1) > 0.05


@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95, 0.99])
def test_intervals_of_steps_hold_the_truth(confidence: float) -> None:
    for noise in (
        make_tree(laplace(1, 2), 40),
        make_square_root(GaussianNoise.calibrate(ONE, TINY, 1, 2), 40),
    ):
        errors = draw_errors(noise, 2000, fixed(f"held {confidence}"))
        held = (np.abs(errors) <= noise.half_width(confidence)).mean(axis=0)
        assert held.min() > confidence - 4 * math.sqrt(confidence * (1 - confidence) / 2000)
        assert held.mean() < 1 - (1 - confidence) / 3


def list_nodes(count: int, levels: int) -> dict[tuple[int, int], int]:
    """Return the nodes that a running total of so many steps adds up, with their levels."""
    found = {}
    while count:
        level = find_node_level(count, levels)
        found[count - 2**level, count] = level
        count -= 2**level
    return found


@pytest.mark.parametrize("base", [laplace(2, 3), *gaussians(2, 3)])
def test_sums_of_a_growing_tree_have_the_noise_of_nodes_that_do_not_cancel(base: Noise) -> None:
    noise = GrowingTree(base, 21, 2, 4)
    first, last = map(np.array, zip(*[(i, j) for i in range(21) for j in range(i, 21)], strict=True))
    direct = []
    for i, j in zip(first, last, strict=True):
        before, after = list_nodes(int(i), 4), list_nodes(int(j) + 1, 4)
        apart = [
            level
            for found in (before, after)
            for at, level in found.items()
            if not (at in before and at in after)
        ]
        direct.append(sum(noise.vectors[level].variance for level in apart))
    assert noise.expect_variances(first, last) == pytest.approx(direct)


@pytest.mark.parametrize("base", [laplace(2, 3), *gaussians(2, 3)])
def test_levels_that_are_drawn_apart_are_one_growing_tree(base: Noise) -> None:
    """Its exact sums, and its loss, but for rounding."""
    noise, levels = GrowingTree(base, 21, 2, 4), range(4)
    exact = np.random.default_rng(5).integers(-(10**6), 10**6, 21)
    nodes = np.zeros(21, dtype=np.int64)
    with added_by(lambda _, values, __: np.asarray(values)):
        for level in levels:
            ends = [n for n in range(1, 22) if find_node_level(n, 4) == level]
            rows = [row for n in ends for row in range(n - 2**level, n)]
            drawn = noise.at_level(level).add_runs(exact[rows], [np.arange(len(rows))], Entropy())
            assert np.count_nonzero(drawn) <= len(ends)
            nodes[np.array(ends) - 1] = drawn[2**level - 1 :: 2**level]
        assert (noise.add_up(nodes) == exact).all()
        assert (noise.add_runs(exact, [np.arange(21)], Entropy()) == exact).all()
    events = [noise.at_level(level).event for level in levels]
    slack = 1 + Fraction(1, 10**8)
    if isinstance(base, LaplaceNoise):
        assert sum(event.basic[0] for event in events) == noise.event.basic[0] == ONE
    else:
        assert sum(event.mu**2 for event in events) <= base.event.mu**2 * slack
    assert sum(event.rho for event in events) <= noise.event.rho * slack


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("base", [laplace(1, 2), GaussianNoise.calibrate(ONE, TINY, 1, 2)])
def test_intervals_of_growing_totals_hold_the_truth(base: Noise, confidence: float) -> None:
    """In each total: as often as they say, and not with a third more noise."""
    noise, last = GrowingTree(base, 40, 2, 5), np.arange(40)
    widths = [noise.widen(v, confidence) for v in noise.expect_variances(0 * last, last)]
    doubt = 4 * math.sqrt(confidence * (1 - confidence) / 500)
    for factor in (1.0, 1.33):
        errors = np.cumsum(draw_errors(noise, 500, fixed(f"growing {confidence} {factor}"), factor), axis=1)
        held = (np.abs(errors) <= widths).mean(axis=0)
        assert (held.min() > confidence - doubt) == (factor == 1)
        assert held.mean() < 1 - (1 - confidence) / 3


def test_the_figures_of_record() -> None:
    """Root mean squared errors of running totals at ε = 1, δ = 1e-6, of one row of a unit."""
    pure, pair = laplace(), GaussianNoise.calibrate(ONE, TINY, 1, 1)
    for steps, tree, root in ((12, 3.66, 7.22), (365, 8.91, 11.8), (1096, 10.9, 13.2)):
        last = np.arange(steps)
        found = [
            math.sqrt(noise.expect_variances(0 * last, last).mean())
            for noise in (make_tree(pure, steps), make_square_root(pair, steps))
        ]
        assert found == pytest.approx([tree, root], rel=5e-3)


def test_bad_shapes_are_refused() -> None:
    base = laplace()
    for make in (
        lambda: TreeNoise(base, 0, 2, 2),
        lambda: TreeNoise(base, 8, 1, 2),
        lambda: TreeNoise(base, 8, 2, 1),
        lambda: SquareRootNoise(base, 5000),
        lambda: TreeNoise(TreeNoise(base, 8, 2, 2), 8, 2, 2),
    ):
        with pytest.raises(ValueError, match=r"steps|branches|independent"):
            make()
    with pytest.raises(TypeError, match="runs"):
        TreeNoise(base, 8, 2, 2).add([1, 2], Entropy())
    assert choose_tree(2, True, 1)[1] == 2
