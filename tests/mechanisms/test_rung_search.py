"""The search for bounds: its loss by enumeration, how far it may go whatever the data are, and what it takes of known shapes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms.auto_bounds import BEYOND, PLACES, Ladder, RungSearch, find_threshold
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import draw_discrete_laplace
from dpsql.privacy.events import DiscreteLaplace, PureDP
from tests.support.goodness import REFUSED, fixed, p_value

ONE = Fraction(1)


def search(
    *tops: int, epsilon: Fraction = ONE, doubt: Fraction = Fraction(1, 4), rows: int = 1
) -> RungSearch:
    """A search over so many rungs of each sign; 0 for none."""
    below, above = (Ladder(0, top - 1, doubt) if top else None for top in tops)
    return RungSearch((below, above), epsilon, rows, Fraction(2))


# -- loss -------------------------------------------------------------------------------------------------------------

REACH = 16
"""Noise beyond it, once in 10**7 times, is left out."""
Outcome = tuple[Fraction, Fraction] | None
TABLES = list(itertools.product((0, 1, 4), repeat=2))


def outcomes(made: RungSearch) -> dict[tuple[int, int], Outcome]:
    """Return the bounds that are chosen for every two noisy numbers."""
    below = made.ladders[0].top if made.ladders[0] else 0
    span = range(-2 * REACH, REACH + 7)
    return {noisy: made.choose([noisy[:below], noisy[below:]]) for noisy in itertools.product(span, repeat=2)}


def law(known: dict[tuple[int, int], Outcome], counts: Sequence[int], down: int = 0) -> dict[Outcome, int]:
    """Weights of the outcomes in whole numbers, of one total for all tables: noise k weighs 3**-abs(k)."""
    found: dict[Outcome, int] = {}
    for one, two in itertools.product(range(-REACH, REACH + 1), repeat=2):
        outcome = known[max(counts[0] + one - down, -2 * REACH), max(counts[1] + two - down, -2 * REACH)]
        found[outcome] = found.get(outcome, 0) + 3 ** (2 * REACH - abs(one) - abs(two))
    return found


def worst(made: RungSearch, weight: int = 1, peeks: bool = False) -> float:
    """The greatest ratio of an outcome's probabilities, over small tables and one row more on a rung."""
    known, most = outcomes(made), 1.0
    # the mistake: what is sure follows the exact rows
    laws = {
        data: law(known, data, 2 * sum(data) if peeks else 0)
        for counts in TABLES
        for data in (counts, (counts[0] + weight, counts[1]), (counts[0], counts[1] + weight))
    }
    for counts in TABLES:
        for more in ((counts[0] + weight, counts[1]), (counts[0], counts[1] + weight)):
            for outcome in laws[counts].keys() | laws[more].keys():
                a, b = (laws[data].get(outcome, 0) for data in (counts, more))
                if min(a, b) > 3 ** (REACH + 8):  # not moved by what is left out
                    most = max(most, a / b, b / a)
    return most


@pytest.mark.parametrize("tops", [(0, 2), (1, 1)])
def test_loss_of_the_search_on_all_small_neighbours(tops: tuple[int, int]) -> None:
    """Enumerate the loss in rational numbers: exp(epsilon) is 3."""
    made = search(*tops, epsilon=Fraction(11, 10), doubt=Fraction(1, 2))
    assert 2 < worst(made) <= 3.01
    assert worst(made, weight=2) > 4, "the control: a unit of two rows that is charged as one"
    assert worst(made, peeks=True) > 4, "the control: a threshold that follows the rows"


def test_search_and_release_are_one_event() -> None:
    """The bounds are constants afterwards: at the worst outcome a row moves both, by what each is charged."""
    known = outcomes(search(0, 2, epsilon=Fraction(11, 10), doubt=Fraction(1, 2)))
    grid = 8  # steps to a bound, and of the noise on the total: exp(-1 / 8) of its rate
    losses = {"as charged": 0.0, "noise for half the bound": 0.0}
    for counts in TABLES:
        for more in ((counts[0] + 1, counts[1]), (counts[0], counts[1] + 1)):
            here, there = (law(known, data) for data in (counts, more))
            for outcome, weight in here.items():
                if outcome is None or min(weight, there[outcome]) < 3 ** (REACH + 8):
                    continue
                steps = Fraction(grid) / outcome[1]
                sizes = [(n * min(Fraction(2) ** i, outcome[1])) for i, n in enumerate(more)]
                moved = abs(
                    sum(sizes) - sum(n * min(Fraction(2) ** i, outcome[1]) for i, n in enumerate(counts))
                )
                for name, noise in (("as charged", grid), ("noise for half the bound", grid // 2)):
                    loss = abs(math.log(there[outcome] / weight)) + float(moved * steps) / noise
                    losses[name] = max(losses[name], loss)
    assert 1.5 < losses["as charged"] <= math.log(3.01) + 1 < losses["noise for half the bound"]


def test_what_is_released_follows_the_law() -> None:
    made = search(0, 2, epsilon=Fraction(1, 2), doubt=Fraction(1, 2))
    counts = [np.zeros(0, dtype=np.int64), np.array([9, 3], dtype=np.int64)]
    entropy, places = fixed("rungs"), {None: 0, 1: 1, 2: 2}
    drawn = [made.find(counts, entropy) for _ in range(1500)]
    sample = np.array([places[None if found is None else int(found[1])] for found in drawn])
    p = math.exp(-0.5)
    chances = [0.0] * 3
    for noise in itertools.product(range(-25, 26), repeat=2):
        found = made.choose([[], [9 + noise[0], 3 + noise[1]]])
        chances[places[None if found is None else int(found[1])]] += (
            math.prod(p ** abs(k) for k in noise) * ((1 - p) / (1 + p)) ** 2
        )
    assert sum(chances) == pytest.approx(1, abs=1e-4)
    assert min(chances) > 0.01
    assert p_value(sample, lambda i: chances[i] if i < 3 else 0.0, signed=False) > REFUSED
    assert p_value(sample, lambda i: 1 / 3 if i < 3 else 0.0, signed=False) < REFUSED


@pytest.mark.parametrize("rows", [1, 3])
def test_every_number_has_the_noise_that_is_charged(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Look at what the choice is made from; a tenth less noise is another law."""
    seen: list[Sequence[Sequence[int]]] = []
    monkeypatch.setattr(RungSearch, "choose", lambda self, noisy: seen.append(noisy))
    made, counts = search(4000, 4000, epsilon=Fraction(1, 2), rows=rows), np.arange(4000)
    made.find([counts, counts], fixed("charged"))
    drawn = (np.array(seen[0]) - counts).ravel()

    def chance(k: int, rate: float) -> float:
        return math.tanh(rate / 2) * math.exp(-rate * abs(k))

    rate = 0.5 / rows
    assert p_value(drawn, lambda k: chance(k, rate)) > REFUSED
    assert p_value(drawn, lambda k: chance(k, rate * 10 / 9)) < REFUSED, "the control"


def test_charge() -> None:
    assert search(3, 3).event == DiscreteLaplace(ONE, 1)
    assert search(3, 3, rows=4).event == PureDP(ONE)
    assert search(3, 3, rows=4).scale == 4


# -- how far ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [Fraction(1, 1000), Fraction(1, 3), Fraction(5)])
@pytest.mark.parametrize("window", [1, 2, 4])
@pytest.mark.parametrize("doubt", [Fraction(1, 50), Fraction(1, 10**9)])
def test_noise_alone_hardly_ever_reaches_a_threshold(scale: Fraction, window: int, doubt: Fraction) -> None:
    """Check by convolution of the exact law; and no threshold is twice what it had to be."""
    threshold, p = find_threshold(scale, window, doubt), math.exp(-1 / scale)
    assert threshold >= 1
    half = max(3 * threshold, 50)
    k = np.arange(-half, half + 1)
    one = (1 - p) / (1 + p) * p ** np.abs(k)
    total = one
    for _ in range(window - 1):
        total = np.convolve(total, one)
    middle = len(total) // 2
    assert total[middle + threshold :].sum() <= float(doubt) * (1 + 1e-9) + 1e-16
    if threshold > 1 and doubt == Fraction(1, 50):
        assert total[middle + threshold // 4 :].sum() > float(doubt), (
            "the control: a fourth of it is too little"
        )


@pytest.mark.parametrize("doubt", [Fraction(1, 20), Fraction(1, 500)])
def test_no_data_make_it_go_farther(doubt: Fraction) -> None:
    """More than three rungs beyond the last that has a row: as seldom as said, however many rows there are below."""
    made = search(0, 12, epsilon=Fraction(1, 2), doubt=doubt)
    entropy = fixed("how far")
    for counts in ([0] * 12, [10**6] + [0] * 11, [60, 60, 60, 60] + [0] * 8, [3] * 6 + [0] * 6):
        last = max((i + 1 for i, n in enumerate(counts) if n), default=0)
        drawn = [made.find([np.zeros(0, dtype=np.int64), np.array(counts)], entropy) for _ in range(400)]
        far = sum(found is not None and found[1] > Fraction(2) ** (last + BEYOND - 1) for found in drawn)
        assert far <= 400 * doubt + 5 * math.sqrt(400 * doubt) + 1


def test_a_sign_without_a_sure_rung_goes_no_farther_than_the_other() -> None:
    made = search(20, 20, epsilon=ONE, doubt=Fraction(1, 10**6))
    noisy = [[0] * 20, [0] * 20]
    noisy[1][7] = 5000
    noisy[0][9] = 15  # hardly noise, and not sure: beyond what is sure of the other sign
    assert made.choose(noisy) == (0, 128)
    noisy[0][7], noisy[0][9] = 14, 0
    assert made.choose(noisy) == (128, 128)
    assert made.choose([[0] * 20, [5] * 20]) is None


def test_a_bound_is_at_most_three_rungs_beyond_a_sure_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows four rungs beyond, all but sure, count for nothing; with a fourth rung, the control, they draw the bound there."""
    made = search(0, 20, epsilon=ONE, doubt=Fraction(1, 10**6))
    noisy = [0] * 20
    noisy[7], noisy[11] = 5000, made.ladders[1].list_thresholds(made.scale)[0] - 1
    assert made.ladders[1].find_certain(noisy, made.scale) == 8
    assert made.choose([[], noisy]) == (0, 2**7)
    monkeypatch.setattr("dpsql.mechanisms.auto_bounds.BEYOND", 4)
    assert made.choose([[], noisy]) == (0, 2**11)


# -- which ------------------------------------------------------------------------------------------------------------


def hindsight(values: np.ndarray) -> float:
    """The expected error of a sum at epsilon 1 within the best power of two."""
    top = math.ceil(math.log2(np.abs(values).max()))
    return min(expect(values, 2.0**j, 2.0**j, 1.0) for j in range(top - 12, top + 2))


def expect(values: np.ndarray, low: float, high: float, scale: float) -> float:
    """The expected absolute error of a sum: E|bias + Laplace noise|."""
    bias, noise = abs(float((values.clip(-low, high) - values).sum())), scale * max(low, high)
    return bias + noise * math.exp(-bias / noise)


RNG = np.random.default_rng(4)
SHAPES = {
    "ages": np.floor(RNG.normal(40, 15, 10_000).clip(1, 95)),
    "salaries": np.exp(RNG.normal(10.8, 0.6, 10_000)),
    "lognormal": np.exp(RNG.normal(0, 1, 10_000)),
    "heavy tails": RNG.pareto(2, 10_000) + 1,
    "negative": -np.exp(RNG.normal(3, 0.5, 10_000)),
    "tiny": RNG.gamma(2, 1e-6, 10_000),
    "constant": np.full(10_000, 42.0),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_error_is_near_that_of_the_best_bound(shape: str) -> None:
    """Compare with what is known of the error given the bounds."""
    values, entropy = SHAPES[shape], fixed(f"near {shape}")
    doubt = Fraction(1, 16 * 10**9)
    ladders = (Ladder(-30, 64, doubt), Ladder(-30, 64, doubt))
    made = RungSearch(ladders, Fraction(1, 5), 1, Fraction(5, 4))
    rung = np.ceil(np.log2(np.abs(values))).astype(np.int64)
    ones = np.ones(len(values), dtype=np.int64)
    counts = [
        ladder.count(rung[values * sign > 0], ones[values * sign > 0])
        for sign, ladder in zip((-1, 1), ladders, strict=True)
    ]
    best, errors = hindsight(values), []
    for _ in range(60):
        found = made.find(counts, entropy)
        errors.append(expect(values, float(found[0]), float(found[1]), 1.25))
    # One table of each shape: where its largest values lie by chance is known in hindsight only.
    assert float(np.mean(errors)) < (2.2 if shape in ("heavy tails", "lognormal") else 1.5) * best
    assert min(errors) >= best * 0.99


def test_a_gap_is_no_end_of_the_values() -> None:
    """Five hundred values a billion times as large as all others are no tail of theirs."""
    made = search(0, 60, epsilon=Fraction(1, 5), doubt=Fraction(1, 10**9))
    counts = np.zeros(60, dtype=np.int64)
    counts[3], counts[45] = 5000, 500
    places = [made.find([np.zeros(0, dtype=np.int64), counts], fixed(f"gap {i}")) for i in range(40)]
    assert sum(found is not None and found[1] == Fraction(2) ** 45 for found in places) > 30


def test_wrong_searches() -> None:
    with pytest.raises(ValueError, match="needs a rung"):
        Ladder(3, 2, Fraction(1, 2))
    with pytest.raises(ValueError, match="an end on its highest rung"):
        Ladder(0, 2, Fraction(1, 2), end=Fraction(5))
    with pytest.raises(ValueError, match="above 0"):
        RungSearch((None, Ladder(0, 2, Fraction(1, 2))), Fraction(0), 1, ONE)
    ladder = Ladder(0, 3, Fraction(1, 2), end=Fraction(7, 3))
    assert ladder.bound(4) - Fraction(7, 3) < Fraction(8, 1 << PLACES)
    assert [Ladder(0, 3, Fraction(1, 2)).bound(place) for place in range(5)] == [0, 1, 2, 4, 8]


def test_noise_of_the_search_is_the_samplers() -> None:
    """The control of the law above: the same counts without noise give one outcome."""
    made = search(0, 2, epsilon=Fraction(10**6), doubt=Fraction(1, 2))
    assert made.find([np.zeros(0, dtype=np.int64), np.array([9, 3])], Entropy()) is not None
    assert int(draw_discrete_laplace(made.scale, 1, Entropy())[0]) == 0
