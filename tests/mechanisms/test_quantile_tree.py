"""Quantiles from one noisy tree: exact losses over every way a unit may lie, the law, the bound, groups, and what must fail."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.order_statistics import WantedRank
from dpsql.mechanisms.per_group import Noise
from dpsql.mechanisms.quantile_tree import (
    KeptTree,
    QuantileTree,
    _pack_nodes,
    choose_shape,
    expect_plain,
    expect_tree,
    list_shapes,
    make_tree_of,
)
from dpsql.mechanisms.quantiles import Quantiles
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import unpack_integers
from dpsql.privacy.events import DiscreteLaplace, PureDP, compose_events
from tests.support.goodness import REFUSED, fixed, p_value
from tests.support.operator_contract import OperatorContract
from tests.support.ordered import added_by
from tests.support.quantile_trees import (
    find_law,
    list_nodes,
    list_unit_moves,
    make_part,
    measure_loss,
    read_tree,
)

ONE = Fraction(1)
HALF = Fraction(1, 2)


def histogram(counts: list[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    held = np.flatnonzero(counts)
    return held, np.asarray(counts)[held]


# -- the loss -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "reached", "in_all"), [(1, 1, False), (2, 1, False), (1, 2, False), (2, 2, False), (2, 1, True)]
)
@pytest.mark.parametrize("shape", [(2, 2), (4, 1)])
def test_no_unit_costs_more_than_epsilon(
    rows: int, reached: int, in_all: bool, shape: tuple[int, int]
) -> None:
    """Over every way in which its rows lie in two groups; some way costs all of it, and 0.9 of the noise is too little."""
    part = make_part(4, [HALF], ONE, *shape, rows=rows, groups=reached, in_all=in_all)
    moves = list(list_unit_moves(4, 2, rows, reached, in_all))
    losses = [measure_loss(part, move) for move in moves]
    assert max(losses) == part.event.basic[0] == ONE
    assert max(measure_loss(part, move, Fraction(9, 10)) for move in moves) > ONE
    # rows of one unit that fall into one node or into different ones are as many
    assert len({loss for loss, move in zip(losses, moves, strict=True) if sum(map(sum, move)) == rows}) == 1


def test_the_event_is_that_of_the_numbers_that_move() -> None:
    one = make_part(16, [HALF], ONE, 2, 4, groups=3)
    assert one.event == DiscreteLaplace(ONE, 1, 12)
    assert one.noise.scale == 12
    several = make_part(16, [HALF], ONE, 2, 4, rows=3, groups=2)
    assert several.event == compose_events([PureDP(Fraction(1, 8))] * 8)
    assert several.noise.scale == 24
    many = make_part(16, [HALF], ONE, 2, 4, rows=3, groups=50)
    assert many.event == compose_events([PureDP(Fraction(1, 4))] * 4)
    assert many.event.rho >= several.event.rho >= one.event.rho


def test_what_gets_noise_are_the_counts_of_the_nodes() -> None:
    """Those of the tree that the losses are worked out for: each node once, and every node that is looked at."""
    counts = [3, 0, 5, 2, 0, 0, 7, 1, 4, 4]
    part = make_part(10, [Fraction(i, 20) for i in range(1, 20)], ONE, 3, 3)
    seen: list[list[int]] = []

    def add(noise: Noise, exact: np.ndarray, _: Entropy) -> np.ndarray:
        assert noise == part.noise
        seen.append([int(v) for v in exact])
        return exact

    with added_by(add):
        found = part.read([histogram(counts)], Entropy())
    nodes = list_nodes(part, [counts])
    assert seen[:2] == nodes[:2]
    # of the third level only the children of nodes with a quantile: the node of points 3 to 5 has one too
    assert seen[2] == nodes[2]
    cumulated = np.cumsum(counts)
    n = cumulated[-1]
    assert found == [[int(np.searchsorted(cumulated, n * i / 20 - 1e-9)) for i in range(1, 20)]]


# -- the law --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [HALF, Fraction(1, 4)])
@pytest.mark.parametrize("draws", [1500, pytest.param(40_000, marks=pytest.mark.stochastic)])
def test_answers_follow_the_exact_law(p: Fraction, draws: int) -> None:
    """Of four points and two levels, over all noise; a law with less noise is refused."""
    counts = [1, 8, 0, 1]
    part = make_part(4, [p], HALF, 2, 2)
    groups = [histogram(counts)] * draws
    sample = np.array([row[0] for row in part.read(groups, fixed(f"tree {p}"))])
    scale = float(part.noise.scale)
    law = find_law(part, counts, scale, 30)
    factor = 0.9 if draws > 10_000 else 0.5
    wrong = find_law(part, counts, scale * factor, 30)
    assert p_value(sample, lambda v: law.get(v, 0.0), signed=False) > REFUSED
    assert p_value(sample, lambda v: wrong.get(v, 0.0), signed=False) < REFUSED


def test_the_law_of_neighbours_is_within_epsilon() -> None:
    """Exactly, of answers alone: they tell less than the whole tree does."""
    part = make_part(4, [HALF], ONE, 2, 2)
    laws = [find_law(part, counts, float(part.noise.scale), 24) for counts in ([2, 0, 1, 2], [2, 1, 1, 2])]
    ratios = [abs(math.log(laws[0][v] / laws[1][v])) for v in laws[0]]
    assert 0.05 < max(ratios) <= 1.001


def test_both_routes_and_the_number_by_number_reading_agree() -> None:
    """The same entropy, the same answer: by the engine's histogram, by counts of a column, and from the whole tree."""
    rng = np.random.default_rng(4)
    for points, branches, levels in ((10, 3, 3), (64, 4, 3), (37, 37, 1), (5, 2, 3)):
        part = make_part(points, [0.01, 0.2, 0.5, 0.77, 0.99], Fraction(1, 2), branches, levels)
        counts = rng.integers(0, 9, points)
        table = pa.table({"value": np.arange(points), "count": counts})
        one = part.answer(table, [()], fixed("routes")).columns
        other = part.answer_counts(counts.astype(np.int64), fixed("routes")).columns
        assert one == other
        nodes = list_nodes(part, [[int(c) for c in counts]])
        noisy = [
            [v + int(d) for v, d in zip(level, rng.integers(-9, 10, len(level)), strict=True)]
            for level in nodes
        ]
        flat = np.array([v for level in noisy for v in level])
        steps = part.answer_all(flat).columns
        assert [steps[name][0].as_py() for name in part.names] == read_tree(part, noisy)


def test_a_kept_tree_has_the_law_of_one_that_is_drawn_where_it_is_looked_at() -> None:
    part = make_part(4, [HALF], HALF, 2, 2)
    counts, entropy = np.array([1, 8, 0, 1]), fixed("kept")
    table = pa.table({"value": np.arange(4), "count": counts})
    operator = KeptTree(None, (part,))
    sample = np.array(
        [int(operator.release(lambda _: table, entropy).table.column(0)[0].as_py()) for _ in range(600)]
    )
    law, wrong = (find_law(part, [1, 8, 0, 1], float(part.noise.scale) * f, 30) for f in (1, 0.5))
    assert p_value(sample, lambda v: law.get(v, 0.0), signed=False) > REFUSED
    assert p_value(sample, lambda v: wrong.get(v, 0.0), signed=False) < REFUSED


def test_a_kept_tree_holds_all_of_its_nodes_and_serves_any_quantile() -> None:
    """And nothing else: each node's exact count with noise, and what is read is a function of these."""
    counts = [3, 0, 5, 2, 0, 0, 7, 1, 4, 4]
    part = make_part(10, [HALF], Fraction(10**6), 3, 3)
    table = pa.table({"value": np.arange(10), "count": counts})
    release = KeptTree(None, (part,)).release(lambda _: table, Entropy())
    held = [v for level in list_nodes(part, [counts]) for v in level]
    assert release.noisy.column("nodes").to_pylist() == held
    other = make_part(10, [0.1, 0.9], Fraction(10**6), 3, 3)
    found = KeptTree(None, (other,)).read_again(release.noisy).table
    assert [column[0].as_py() for column in found.columns] == [0, 9]
    with pytest.raises(ValueError, match="not the counts"):
        KeptTree(None, (make_part(11, [HALF], ONE, 3, 3),)).read_again(release.noisy)


@pytest.mark.parametrize("size", [2**20, 2**40, 2**70])
def test_kept_counts_of_any_size_come_back(size: int) -> None:
    part = make_part(4, [HALF], ONE, 2, 2)
    nodes = np.array([size, -size, 3, size, -1, 0], dtype=object if size > 2**62 else np.int64)
    assert unpack_integers(_pack_nodes(nodes).column(0)).tolist() == nodes.tolist()
    assert part.answer_all(nodes).columns["q0"][0].as_py() in range(4)


def test_only_a_tree_of_all_rows_is_kept() -> None:
    grouped = QuantileTree("q", ("g",), ("a",), (WantedRank(HALF),), 0, 8, ONE, branches=3, levels=2)
    plain = Quantiles("q", (), ("a",), (WantedRank(HALF),), 0, 8, ONE)
    for parts in ((grouped,), (plain,), (make_part(4, [HALF], ONE, 2, 2),) * 2):
        with pytest.raises(ValueError, match="tree"):
            KeptTree(None, parts)


# -- what is read ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1), Fraction(10**6)])
def test_quantiles_ascend_and_lie_on_the_grid(epsilon: Fraction) -> None:
    levels = [Fraction(i, 50) for i in range(1, 50)]
    part = make_part(1000, levels[::-1], epsilon, 10, 3)
    rng = np.random.default_rng(7)
    groups = [histogram(rng.integers(0, 3, 1000) * rng.integers(0, 2)) for _ in range(40)]
    for row in part.read(groups, fixed("ascend")):
        assert row == sorted(row, reverse=True)
        assert 0 <= min(row) <= max(row) <= 999


def test_no_rows_and_little_noise() -> None:
    """Where the noisy number of rows is not above 0 the answer is public: points at the levels' parts of the grid."""
    part = make_part(101, [Fraction(1, 4), HALF], Fraction(10**6), 11, 2)
    assert part.read([histogram([0] * 101)], Entropy()) == [[25, 50]]


def test_groups_in_parts_are_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    part = make_part(50, [0.1, 0.5, 0.9], Fraction(10**6), 8, 2)
    rng = np.random.default_rng(3)
    groups = [histogram(rng.integers(0, 5, 50)) for _ in range(30)]
    whole = part.read(groups, Entropy())
    monkeypatch.setattr("dpsql.mechanisms.quantile_tree._AT_ONCE", 60)
    assert part.read(groups, Entropy()) == whole


def test_counts_of_any_size() -> None:
    """More rows than 64 bits count are counted all the same."""
    counts = np.array([2**62, 2**62, 2**62, 2**63], dtype=object)
    part = make_part(4, [Fraction(1, 10), HALF, Fraction(9, 10)], ONE, 2, 2)
    assert part.read([(np.arange(4), counts)], Entropy()) == [[0, 2, 3]]


def test_the_ends_stay_within_the_data() -> None:
    rng = np.random.default_rng(5)
    values, counts = np.unique(rng.integers(400, 600, 10_000), return_counts=True)
    ranks = (WantedRank.least(), WantedRank(HALF), WantedRank.greatest())
    part = QuantileTree("q", (), ("a", "b", "c"), ranks, -50_000, 50_000, ONE, branches=18, levels=4)
    found = np.array(part.read([(values, counts)] * 200, fixed("ends of the data")))
    assert found[:, 0].min() >= 400
    assert found[:, 2].max() <= 599
    assert found[:, 0].max() <= 430
    naive = QuantileTree(
        "q", (), ("a",), (WantedRank(Fraction(1, 1000)),), -50_000, 50_000, ONE, branches=18, levels=4
    )
    assert min(v for (v,) in naive.read([(values, counts)] * 200, fixed("naive"))) < 400


# -- how far off ----------------------------------------------------------------------------------------------


def rank_misses(part: Quantiles, counts: np.ndarray, found: list[list[int]]) -> np.ndarray:
    """Return how far the ranks of answers are from the wanted ones, at the nearer side of a value."""
    upto = np.cumsum(counts)
    n = upto[-1]
    misses = []
    for row in found:
        for rank, step in zip(part.ranks, row, strict=True):
            target = float(rank.p) * n
            below, at = upto[step] - counts[step], upto[step]
            misses.append(max(below - target, target - at, 0.0))
    return np.array(misses).reshape(len(found), -1)


@pytest.mark.parametrize("shape", ["even", "atoms", "sparse"])
def test_the_bound_holds_whatever_the_data(shape: str) -> None:
    rng = np.random.default_rng(6)
    counts = {
        "even": np.full(4096, 3),
        "atoms": np.bincount(rng.integers(0, 5, 5000) * 700, minlength=4096),
        "sparse": np.bincount(rng.integers(0, 4096, 300), minlength=4096),
    }[shape]
    part = make_part(4096, [0.03, 0.25, 0.5, 0.9], ONE, 8, 4)
    found = part.read([histogram(counts)] * 300, fixed(f"bound {shape}"))
    misses = rank_misses(part, counts, found)
    for place, rank in enumerate(part.ranks):
        assert (misses[:, place] > part.bound_error(rank, 0.9)).mean() < 0.1
    if shape == "even":  # and says something
        assert part.bound_error(part.ranks[2], 0.9) < 12 * part.measure_rank(part.ranks[2])


@pytest.mark.parametrize("points", [37, 4096])
def test_expected_errors_are_those_of_draws(points: int) -> None:
    """Within a tenth, for rows spread evenly; 0.8 of the noise is told apart."""
    levels = [Fraction(2 * i + 1, 61) for i in range(30)]
    part = make_tree_of(make_part(points, levels, ONE, points, 1), ONE, 2)
    counts = np.full(points, 200_000 // points)
    found = part.read([histogram(counts)] * 120, fixed(f"expected {points}"))
    edges = np.cumsum(counts) - counts / 2
    off = np.array(
        [
            [edges[s] - float(r.p) * counts.sum() for r, s in zip(part.ranks, row, strict=True)]
            for row in found
        ]
    )
    grain = (counts[0] ** 2) / 12
    measured = math.sqrt(max(0.0, float((off**2).mean()) - grain))
    expected = math.sqrt(np.mean([part.measure_rank(rank) ** 2 for rank in part.ranks]))
    if points > 1000:
        assert abs(measured / expected - 1) < 0.1
        assert abs(measured / (0.8 * expected) - 1) > 0.1


def test_errors_of_choices_in_order_are_those_of_draws() -> None:
    """Sorting helps where quantiles are nearer to each other than their errors, and is in the figures of EVEN."""
    ranks = tuple(WantedRank(Fraction(i, 40)) for i in range(1, 40))
    part = Quantiles("q", (), tuple("q" * 39), ranks, 0, 9999, ONE)
    counts = np.ones(10_000, dtype=np.int64)
    (told,) = expect_plain(part, 10_000).values()
    (apart,) = expect_plain(part, None).values()
    found = [part._choose(np.arange(10_000), counts, fixed(f"order {i}")) for i in range(60)]
    off = np.array(
        [[step + 0.5 - float(r.p) * 10_000 for r, step in zip(ranks, row, strict=True)] for row in found]
    )
    measured = math.sqrt(float((off**2).mean()))
    assert abs(measured / told - 1) < 0.12
    few = expect_plain(part, 500)["q"]
    assert few < 0.7 * apart
    assert told < apart


def test_the_shape_with_the_least_error_is_taken() -> None:
    """Over ranks that are spread evenly; it does not depend on which are asked for."""
    ranks = tuple(WantedRank(Fraction(2 * i + 1, 100)) for i in range(50))
    names = ("q",) * 50
    for points in (2, 3, 10, 121, 5000, 1 << 15, 1 << 24):
        shapes = list(list_shapes(points))
        assert all(b**k >= points for b, k in shapes)
        trees = {
            (b, k): QuantileTree("q", (), names, ranks, 0, points - 1, ONE, branches=b, levels=k)
            for b, k in shapes
        }
        errors = {shape: expect_tree(tree, None)["q"] for shape, tree in trees.items()}
        assert errors[choose_shape(points, 2)] <= min(errors.values()) * 1.001


@pytest.mark.parametrize("shape", [(1, 3), (2, 2), (3, 0)])
def test_a_tree_without_a_leaf_for_each_point_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="tree"):
        make_part(9, [HALF], ONE, *shape)


class TestQuantileTree(OperatorContract):
    operator = QuantileTree(
        "SELECT q", (), ("a", "b", "a"), (WantedRank(HALF), WantedRank.least(), WantedRank(Fraction(9, 10))), 0, 99, ONE,
        branches=10, levels=2,
    ).alone()  # fmt: skip

    def exact(self, text: str) -> pa.Table:
        return pa.table({"value": pa.array([3, 4, 50], pa.int32()), "count": pa.array([30, 4, 9])})


class TestKeptTree(TestQuantileTree):
    operator = KeptTree(
        None,
        (
            QuantileTree(
                "SELECT q", (), ("a", "b"), (WantedRank(HALF), WantedRank.least()), 0, 99, ONE, branches=10, levels=2
            ),
        ),
    )  # fmt: skip
