"""Group selection: exact probabilities over neighbouring counts, published tables, and the sampling."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import mpmath
import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.per_group import (
    GroupSelector,
    compute_keep_probabilities,
    compute_laplace_threshold,
    split_delta,
)
from dpsql.noise.entropy import Entropy
from dpsql.privacy import events
from tests.support.goodness import fixed

VECTORS = json.loads(
    (Path(__file__).parents[1] / "published" / "vectors" / "vectors_partition_quantile.json").read_text()
)
LOSSES = [
    (Fraction(1), Fraction(1, 10**5)),
    (Fraction(1, 10), Fraction(1, 10**9)),
    (Fraction(5), Fraction(1, 3)),
    (Fraction(200), Fraction(1, 10**6)),
    (Fraction(1, 3), Fraction(9, 10)),
]


def chances(epsilon: Fraction, delta: Fraction) -> list[Fraction]:
    table = compute_keep_probabilities(epsilon, delta)
    return [Fraction(p, table[-1]) for p in table]


def laplace_chances(epsilon: Fraction, delta: Fraction, most: int) -> list[float]:
    """Pr[n + DLap >= T], exactly enough; a group without units is not there."""
    t, rate = compute_laplace_threshold(epsilon, delta), mpmath.mpf(epsilon.numerator) / epsilon.denominator
    one = mpmath.mpf(1)

    def tail(k: int) -> mpmath.mpf:
        return mpmath.exp(-k * rate) / (one + mpmath.exp(-rate)) if k > 0 else one - tail(1 - k)

    return [0.0, *(tail(t - n) for n in range(1, most + 1))]


def violations(p: Sequence[Fraction | float], epsilon: Fraction, delta: Fraction) -> int:
    """Neighbouring counts whose keep or drop probabilities differ by more than (epsilon, delta) allows."""
    with mpmath.workdps(80):
        grow = mpmath.exp(mpmath.mpf(epsilon.numerator) / epsilon.denominator)
        d = mpmath.mpf(delta.numerator) / delta.denominator
        exact = [
            mpmath.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else mpmath.mpf(x) for x in p
        ]
        bad = 0
        for a, b in pairwise(exact):
            for x, y in ((a, b), (b, a), (1 - a, 1 - b), (1 - b, 1 - a)):
                bad += bool(x > grow * y + d)
        return bad


@pytest.mark.parametrize(("epsilon", "delta"), LOSSES)
def test_no_pair_of_neighbouring_counts_is_told_apart(epsilon: Fraction, delta: Fraction) -> None:
    p = [*chances(epsilon, delta), Fraction(1)]
    assert p[0] == 0
    assert p[1] <= delta
    assert p == sorted(p)
    assert violations(p, epsilon, delta) == 0
    worse = [p[0], *(min(x * (1 + Fraction(1, 10**6)), Fraction(1)) for x in p[1:])]
    assert violations(worse, epsilon, delta) > 0, "the control must fail"


@pytest.mark.parametrize(("epsilon", "delta"), LOSSES[:2])
def test_the_threshold_tells_no_neighbours_apart_and_is_the_least(epsilon: Fraction, delta: Fraction) -> None:
    with mpmath.workdps(50):
        p = laplace_chances(epsilon, delta, 3 * compute_laplace_threshold(epsilon, delta))
        assert violations(p, epsilon, delta) == 0
        assert violations([p[0], *p[2:]], epsilon, delta) > 0, "one lower gives a lone unit away: the control"


@pytest.mark.parametrize("case", VECTORS["partition_selection"], ids=lambda c: f"{c['eps']}-{c['delta']}")
def test_published_probabilities(case: dict[str, object]) -> None:
    epsilon, delta = Fraction(str(case["eps"])), Fraction(str(case["delta"]))
    p = chances(epsilon, delta)
    assert len(p) - 1 == case["first_n_with_pi_1"]
    for n, published in case["pi"].items():  # type: ignore[attr-defined]
        assert float(p[int(n)]) == pytest.approx(published, rel=1e-9)
    # the discrete threshold is the continuous one rounded up, but for its own normalisation
    assert abs(compute_laplace_threshold(epsilon, delta) - case["laplace_tau"]) <= 1.5  # type: ignore[operator]


def recurrence(epsilon: float, delta: float, most: int) -> list[mpmath.mpf]:
    with mpmath.workdps(60):
        e, d, out = mpmath.exp(epsilon), mpmath.mpf(delta), [mpmath.mpf(0)]
        for _ in range(most):
            out.append(min(e * out[-1] + d, 1 - (1 - out[-1] - d) / e, mpmath.mpf(1)))
        return out


def test_nothing_is_given_away_by_rounding() -> None:
    p = chances(Fraction(1, 4), Fraction(1, 2**20))
    best = recurrence(0.25, 2.0**-20, len(p) - 1)
    with mpmath.workdps(60):
        for ours, optimum in zip(p, best, strict=True):
            assert 0 <= optimum - mpmath.mpf(ours.numerator) / ours.denominator < mpmath.mpf(10) ** -40


@pytest.mark.parametrize("groups", [1, 2, 7, 1000])
@pytest.mark.parametrize("delta", [Fraction(1, 10**6), Fraction(1, 3), Fraction(1, 10**30)])
def test_keys_share_delta(groups: int, delta: Fraction) -> None:
    one = split_delta(delta, groups)
    together = 1 - (1 - one) ** groups
    assert together <= delta
    assert together > delta * (1 - Fraction(1, 10**12)), "hardly any of it is lost"
    assert delta / groups <= one * (1 + Fraction(1, 10**12))


@pytest.mark.parametrize("groups", [2, 7])
@pytest.mark.parametrize(("epsilon", "delta"), LOSSES[:2])
def test_the_keys_of_one_unit_lose_no_more_together_than_is_charged(
    epsilon: Fraction, delta: Fraction, groups: int
) -> None:
    each = GroupSelector("u", epsilon, delta, groups).per_key
    assert groups * each[0] <= epsilon
    assert 1 - (1 - each[1]) ** groups <= delta
    for strategy in ("optimal", "laplace_threshold"):
        selection = GroupSelector("u", epsilon, delta, groups, strategy)
        alone = 1 - (1 - delta) ** Fraction(1, groups)
        assert selection.probability(1) <= alone * (1 + 1e-9)
        grown = math.exp(epsilon / groups) * selection.probability(1) + alone
        assert selection.probability(2) <= grown * (1 + 1e-9)


def kept(selection: GroupSelector, units: int, n: int = 40_000) -> float:
    return float(selection.keep(np.full(n, units), fixed(f"{selection} {units}")).mean())


def agrees(selection: GroupSelector, units: int, p: float, n: int = 40_000) -> bool:
    return abs(kept(selection, units, n) - p) <= 6 * math.sqrt(p * (1 - p) / n) + 1e-12


@pytest.mark.parametrize("strategy", ["optimal", "laplace_threshold"])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("minimum", [1, 5])
def test_groups_are_kept_as_often_as_said(strategy: str, groups: int, minimum: int) -> None:
    selection = GroupSelector("u", Fraction(3, 2), Fraction(1, 1000), groups, strategy, minimum)
    middle = selection._least(0.5)
    for units in (middle - 2, middle - 1, middle, middle + 2):
        assert agrees(selection, units, selection.probability(units))
    assert not agrees(selection, middle, selection.probability(middle - 2)), "the control must fail"
    assert kept(selection, minimum - 1) == 0
    assert kept(selection, 0) == 0
    assert kept(selection, 10**6) == 1


def test_probability_of_each_strategy_is_the_exact_one() -> None:
    threshold = GroupSelector("u", Fraction(1), Fraction(1, 10**5), strategy="laplace_threshold", minimum=3)
    exact = laplace_chances(Fraction(1), Fraction(1, 10**5), 30)
    assert [threshold.probability(n + 2) for n in range(30)] == pytest.approx(
        [float(x) for x in exact[:30]], rel=1e-12
    )
    optimal = GroupSelector("u", Fraction(1), Fraction(1, 10**5))
    assert [optimal.probability(n) for n in range(24)] == [
        float(x) for x in chances(Fraction(1), Fraction(1, 10**5))
    ]


@pytest.mark.parametrize("minimum", [1, 2, 10])
def test_a_minimum_keeps_the_guarantee(minimum: int) -> None:
    """Every pair of neighbouring counts, the shifted ones included."""
    epsilon, delta = Fraction(1), Fraction(1, 10**5)
    p = [*[Fraction(0)] * (minimum - 1), *chances(epsilon, delta)]
    selection = GroupSelector("u", epsilon, delta, minimum=minimum)
    assert [selection.probability(n) for n in range(len(p))] == [float(x) for x in p]
    assert violations(p, epsilon, delta) == 0
    cut = [x if n >= minimum else Fraction(0) for n, x in enumerate(chances(epsilon, delta))]
    assert minimum == 1 or violations(cut, epsilon, delta) > 0, "a plain cut-off does not: the control"


def test_tiny_losses_take_the_threshold() -> None:
    """A table would have billions of rows; the noisy threshold has the same guarantee and ends."""
    selection = GroupSelector("u", Fraction(1, 10**9), Fraction(1, 10**6))
    assert compute_keep_probabilities(*selection.per_key) is None
    middle = selection._least(0.5)
    assert agrees(selection, middle, selection.probability(middle))
    assert selection.keep(np.array([1, 2, 10**12]), Entropy()).tolist() == [False, False, True]


def test_huge_losses_end() -> None:
    selection = GroupSelector("u", Fraction(10**6), Fraction(1, 10**12))
    assert selection.keep(np.array([0, 1, 2, 3]), Entropy()).tolist() == [False, False, True, True]
    threshold = GroupSelector("u", Fraction(10**6), Fraction(1, 10**12), strategy="laplace_threshold")
    assert threshold.keep(np.array([0, 1, 2, 3]), Entropy()).tolist() == [False, False, True, True]


def test_a_million_groups_take_moments() -> None:
    counts = np.random.default_rng(3).geometric(0.05, 1_000_000)
    selection = GroupSelector("u", Fraction(1), Fraction(1, 10**12), 5)
    start = time.process_time()
    chosen = selection.keep(counts, Entropy())
    assert time.process_time() - start < 10
    assert 0 < chosen.sum() < len(counts)
    assert counts[chosen].min() > 1


def test_event_and_sentence() -> None:
    selection = GroupSelector("u", Fraction(1), Fraction(1, 10**5), 1)
    assert selection.event == events.GroupSelection(Fraction(1), Fraction(1, 10**5), 1)
    assert selection.sentence() == (
        "groups are selected by their number of units (optimal, ε=1, δ=1e-05): "
        "a group appears with probability 1e-05 from 1 unit, above one half from 12, above 0.999 from 18; "
        "smaller groups are left out"
    )
    assert "from 5 units" in GroupSelector("u", Fraction(1), Fraction(1, 10**5), 1, "optimal", 5).sentence()


BAD: list[Callable[[], GroupSelector]] = [
    lambda: GroupSelector("u", Fraction(0), Fraction(1, 2)),
    lambda: GroupSelector("u", Fraction(1), Fraction(0)),
    lambda: GroupSelector("u", Fraction(1), Fraction(1)),
    lambda: GroupSelector("u", Fraction(1), Fraction(1, 2), 0),
    lambda: GroupSelector("u", Fraction(1), Fraction(1, 2), minimum=0),
    lambda: GroupSelector("u", Fraction(1), Fraction(1, 2), strategy="all"),
]


@pytest.mark.parametrize("make", BAD)
def test_bad_parameters(make: Callable[[], GroupSelector]) -> None:
    with pytest.raises(ValueError, match="must be"):
        make()


@pytest.mark.parametrize("strategy", ["optimal", "laplace_threshold"])
def test_an_answer_without_groups_says_how_many_units_one_needs(strategy: str) -> None:
    selector = GroupSelector("n", Fraction(1, 10), Fraction(1, 10**6), groups=3, strategy=strategy)
    block = Aggregation("SELECT k, n", ("k",), (), selector)
    notes = {}
    for units in (1, 10**9):
        exact = pa.table({"k": ["a"], "n": pa.array([units], pa.int64())})
        notes[units] = block.release(lambda _, exact=exact: exact, fixed(f"{strategy} {units}")).notes
    assert not notes[10**9], "a group is there"
    said = int(notes[1][0].split("about ")[1].split()[0].replace(",", ""))
    assert selector.probability(said - 1) < 0.5 <= selector.probability(said)
