"""Errors that are told before anything is paid, at other epsilons."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

import dpsql
from dpsql.mechanisms.base import MEAN_ROWS, ErrorBasis
from dpsql.mechanisms.moments import Count, Mean
from dpsql.mechanisms.per_group import LaplaceNoise, Statistic
from dpsql.noise.entropy import Entropy
from tests.support.fixtures import session_fixture

POLICY = """
budget = { epsilon = 100, delta = 1e-3, accountant = "basic", max_epsilon_per_query = 4 }
[tables]
t = { privacy_unit = "u", max_rows_per_group = 2, max_groups = 3, columns = { x = { bounds = [0, 10] }, \
    k = { values = [1, 2, 3] } } }
"""
TABLES = """
CREATE TABLE t AS SELECT i AS u, i % 3 + 1 AS k, i % 10 AS x FROM range(50) AS r(i);
"""
session = session_fixture(POLICY, TABLES)


def test_an_error_is_what_the_sentence_says(session: dpsql.Session) -> None:
    explained = session.explain("SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM t")
    ((name, errors),) = explained.errors.rows
    own = errors[explained.errors.epsilons.index(Fraction(1))]
    assert name == "n"
    assert f"within ±{own:g} with 0.95" in str(explained)
    assert f"±{own:g}" in str(explained).split("Error that")[1].split("Exact SQL")[0]
    assert json.loads(explained.json())["errors"]["n"]["1"] == own


@pytest.mark.parametrize("whole", [1, 1 << 20], ids=["of rows", "of parts of rows"])
def test_the_error_of_a_mean_covers_what_noise_does(whole: int) -> None:
    """A thousand rows and more, noise drawn a few thousand times: off by more than said in no more than 5 of 100."""
    count = Statistic("n", LaplaceNoise(Fraction(1, 10), whole))
    total = Statistic("s", LaplaceNoise(Fraction(1, 10), 10 * whole))
    mean = Mean("m", total, count, Fraction(1), Fraction(10), (Fraction(0), Fraction(20)), whole)
    from dpsql.mechanisms.aggregation import Aggregation

    errors = list(Aggregation("", (), (mean,)).errors(ErrorBasis(MEAN_ROWS, confidence=0.95)))
    assert [error.label for error in errors] == [f"m, of {rows:,} rows" for rows in MEAN_ROWS]
    assert errors[0].error > 9 * errors[1].error > 80 * errors[2].error
    entropy, draws, said = Entropy(), 4000, errors[0]
    # all rows at 17, about 10
    exact_total, exact_count = (
        np.full(draws, 7 * MEAN_ROWS[0] * whole),
        np.full(draws, MEAN_ROWS[0] * whole),
    )
    noisy = {total: total.noise.add(exact_total, entropy), count: count.noise.add(exact_count, entropy)}
    off = np.abs(np.asarray(mean.show(noisy, 0.95).value) - 17.0)
    assert (off > said.error).mean() < 0.05
    assert (off > said.error / 20).mean() > 0.05, "and it is not empty talk"
    (less,) = Aggregation("", (), (Count("c", count),)).errors(
        ErrorBasis(confidence=0.95, factor=Fraction(2))
    )
    assert less.error < count.noise.half_width(0.95)
