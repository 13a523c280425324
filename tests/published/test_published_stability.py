"""Published vectors of stability: radii, distances, and the textbook's sampling."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.mechanisms.order_statistics import Ordered, find_rank
from dpsql.mechanisms.ptr.ptr_statistics import (
    BASE_TWO,
    compute_iqr,
    find_quartile_ranks,
    measure_bin_distance,
)
from dpsql.mechanisms.ptr.stability_test import (
    OptimalTest,
    measure_mode_radius,
    measure_quantile_radius,
    measure_votes_radius,
)
from dpsql.mechanisms.subsample.blocks import Participation, compute_textbook_sampling
from tests.support.vectors import vectors

STEPS = 64  # grid steps per unit of log2, for noise that is added to a logarithm


class Case(dict):  # type: ignore[type-arg]
    """Remembers what was looked at: a test ends with ``used``, so that no published number goes unread."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.seen: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.seen.add(key)
        return super().__getitem__(key)

    def used(self) -> None:
        """Of two relations, sessions have that of added and removed rows."""
        missed = set(self) - self.seen
        assert all("_sub" in key for key in missed), missed


# --- the price of rules that test a distance with noise

Law = tuple[float, int | None]
"""The chance of passing, and where the released logarithm lies (in steps); None: another answer altogether."""


@functools.cache
def overlap(ratio: float, shift: int, scale: float, growth: float) -> float:
    """Sum of max(p - growth * ratio * q, 0) over two discrete Laplace laws that lie ``shift`` steps apart."""
    x = np.arange(-int(40 * scale), int(40 * scale) + shift)
    unit = (1 - math.exp(-1 / scale)) / (1 + math.exp(-1 / scale))
    p, q = unit * np.exp(-np.abs(x) / scale), unit * np.exp(-np.abs(x - shift) / scale)
    return float(np.maximum(p - growth * ratio * q, 0).sum())


def excess(a: Law, b: Law, scale: float, epsilon: float) -> float:
    """Hockey-stick divergence at epsilon between "NULL, or the logarithm with Laplace noise"."""
    growth = math.exp(epsilon)
    null = max(0.0, (1 - a[0]) - growth * (1 - b[0]))
    if a[1] is None or b[1] is None:
        return null + a[0]
    return null + a[0] * overlap(round(b[0] / a[0], 12), abs(a[1] - b[1]), scale, growth)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(2)])
def test_what_is_shipped_keeps_its_promise_where_the_printed_rule_does_not(epsilon: Fraction) -> None:
    """One test of the larger distance, with the optimal chances, then the noise: (2 epsilon, delta) for all pairs."""
    delta = Fraction(1, 10**6)
    test = OptimalTest(epsilon, delta)
    scale = STEPS / float(epsilon)
    law = [float(test.probability(r)) for r in range(test.cap + 2)]
    worst = less = law[0]  # the far pair: both radii are 0
    for p, q in itertools.chain(
        itertools.pairwise(law), itertools.pairwise(law[::-1]), zip(law, law, strict=True)
    ):
        worst = max(worst, excess((p, 0), (q, STEPS), scale, 2 * float(epsilon)))
        less = max(less, excess((p, 0), (q, STEPS), scale, 1.5 * float(epsilon)))
    assert worst <= float(delta) * (1 + 1e-6)
    assert less > float(delta) * 100  # the control: a smaller claim would be false, and the search shows it


# --- distances


@pytest.mark.parametrize(
    "case", list(map(Case, vectors("iqr_scale")["vectors"])), ids=lambda c: str(dict(c)["x"])[:30]
)
def test_ranges_and_their_bins(case: Case) -> None:
    data = Ordered.all(np.sort(np.asarray(case["x"], dtype=np.float64)))
    assert data.n == case["n"]
    assert find_quartile_ranks(data.n) == (case["ell"], case["u"])
    spread = compute_iqr(data)
    assert spread == case["iqr"]
    for which in (1, 2):
        bounds = BASE_TWO.find_bin(spread, which)
        if case[f"bin{which}"] == "-inf":
            assert bounds is None
        else:
            k = case[f"bin{which}"] - (0 if which == 1 else Fraction(1, 2))
            assert math.log2(bounds[0]) == pytest.approx(float(k))
            assert bounds[1] == 2 * bounds[0]
            assert bounds[0] <= spread < bounds[1]
        assert measure_bin_distance(data, which, 500) == case[f"A0_addrem_disc{which}"]
    case.used()


@pytest.mark.parametrize(
    "case", list(map(Case, vectors("stability")["vectors"])), ids=lambda c: str(dict(c)["x"])[:30]
)
def test_radii(case: Case) -> None:
    x = sorted(case["x"])
    for p, name in ((Fraction(1, 2), "median"), (Fraction(3, 4), "q3")):
        value = x[find_rank(len(x), p) - 1]
        assert value == case[name]
        below, upto = sum(v < value for v in x), sum(v <= value for v in x)
        assert measure_quantile_radius(len(x), below, upto, p) == case[f"d_{name}_addrem"]
    counts = sorted(Counter(x).items(), key=lambda item: (-item[1], item[0]))
    (value, top), (other, second) = (*counts, (value, 0))[:2]
    assert value == case["mode"]
    exact = measure_mode_radius(top, second, bool(second) and other > value)
    assert exact == case["d_mode_addrem"]
    assert max(top - second - 1, 0) == case["d_mode_gap_conservative_addrem"] <= exact
    assert measure_votes_radius(top, second) == case["d_mode_gap_conservative_sub"], (
        "a changed block is replaced"
    )
    case.used()


def test_the_textbooks_example_of_a_median() -> None:
    """n/2 + 1 zeros and n/2 millions: stable where rows come and go, not where one is replaced."""
    case = Case(vectors("stability")["dwork_roth_7_2_example"])
    tables = {"x": [0] * 11 + [10**6] * 10, "y": [0] * 10 + [10**6] * 10}
    for name, table in tables.items():
        value = table[find_rank(len(table), Fraction(1, 2)) - 1]
        assert value == case[f"{name}_median"]
        below, upto = sum(v < value for v in table), sum(v <= value for v in table)
        assert measure_quantile_radius(len(table), below, upto, Fraction(1, 2)) == case[f"d_{name}_addrem"]
    case.used()


@pytest.mark.parametrize("case", list(map(Case, vectors("stability")["a_samp"])))
def test_what_the_textbooks_sampling_costs(case: Case) -> None:
    epsilon, delta, n = Fraction(str(case["eps"])), Fraction(str(case["delta"])), case["n"]
    q, runs = compute_textbook_sampling(epsilon, delta, n)
    assert float(q) == pytest.approx(case["q"], rel=1e-12)
    assert runs == case["m"]
    assert n * float(q) == pytest.approx(case["expected_subsample"], rel=1e-12)
    # with a person more there are more runs: the rule is for a public number of people, which is what it asks for
    assert compute_textbook_sampling(epsilon, delta, n + 1)[1] == case["m_if_n_plus_1"]
    assert (case["m_if_n_plus_1"] != runs) is case["m_changes_with_n"] is True
    sampling = Participation("SELECT 1 AS most", q, runs)
    assert sampling.cap == case["cap_2mq"]
    assert case["log10_Pr_row_in_more_than_2mq"] == "below -300"
    assert sampling.failure < Fraction(1, 10**70)
    loose = 2 * math.log(1 / delta) / float(epsilon)
    assert case["qmax_tight"] == pytest.approx(1 / (16 * (1 + loose)), rel=1e-9)
    assert float(q) < case["qmax_tight"]
    # blocks that do the same: the lead that the (Laplace) test passes with probability 0.99
    lead = 2 * (1 + (math.log(1 / (2 * delta)) + math.log(1 / 0.02)) / float(epsilon))
    assert case["partition_blocks_unanimous"] == math.ceil(lead)
    assert case["partition_blocks_gap_quarter"] == math.ceil(4 * lead)
    case.used()
