"""Prices of PTR and SUBSAMPLE: the whole of epsilon and delta, rows and groups of a unit, votes of a unit."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

import dpsql
from dpsql.mechanisms.ptr.ptr_statistics import Iqr
from tests.support import inside
from tests.support.fixtures import open_session

POLICY = """
budget = {{ epsilon = 100, delta = 0.1, accountant = "{}" }}
[tables]
t = {{ privacy_unit = "u", max_rows_per_group = 4, max_groups = 2, columns = {{ x = {{ bounds = [-3, 50] }}, \
    k = {{ values = ["a", "b", "c"] }} }} }}
"""
EPSILON, DELTA = Fraction(3, 2), Fraction(1, 10**5)
ITEMS = (
    "IQR(x) AS a, MEDIAN(x) AS b, QUANTILE_DISC(x, 0.9) AS c, MODE(x) AS d, ARG_MAX(site, SUM(x)) AS e, "
    "ARG_MAX(site, COUNT(*)) AS f, MEDIAN(x, local_sensitivity => 2) AS g"
)


@pytest.fixture(params=["basic", "zcdp", "gdp"])
def session(request: pytest.FixtureRequest) -> Iterator[dpsql.Session]:
    with open_session(
        POLICY.format(request.param), "CREATE TABLE t (u INTEGER, x INTEGER, k VARCHAR, site VARCHAR)"
    ) as session:
        yield session


def operator(session: dpsql.Session, options: str, items: str, mode: str) -> Any:
    head = f"SELECT WITH {mode} OPTIONS (epsilon = 1.5, delta = 1e-5{options}) "
    return inside.bind(session, head + items).blocks[0].operator


@pytest.mark.parametrize("grouped", [False, True])
def test_ptr_is_dealt_what_is_asked_and_knows_rows_and_groups_of_a_unit(
    session: dpsql.Session, grouped: bool
) -> None:
    text = f"k, {ITEMS} FROM t GROUP BY k" if grouped else f"{ITEMS} FROM t"
    made = operator(session, "", text, "PTR")
    assert made.event.basic == (EPSILON, DELTA)
    for item in made.items:
        assert item.rows == 4
        assert item.test.groups == (2 if grouped else 1)
        assert item.event.basic == (EPSILON / 7, DELTA / 7)
        if hasattr(item, "noise"):
            assert item.noise.groups == item.test.groups
            parts = [item.test, item.noise, *([item.count] if isinstance(item, Iqr) else [])]
            assert sum((part.event.basic[0] for part in parts), Fraction(0)) == EPSILON / 7
    by_sum, by_count, proposed = made.items[4:]
    assert by_sum.bound >= 50
    assert by_count.bound == 1
    assert proposed.noise.sensitivity == proposed.bound
    assert proposed.bound * proposed.step >= 2


@pytest.mark.parametrize(
    ("options", "delta"),
    [
        (", combine = 'noisy_mode'", DELTA), (", combine = 'noisy_mode', candidates = ('p', 'q')", 0),
        (", combine = 'stable_mode'", DELTA), (", combine = 'stable_mode', rounds = 7", DELTA),
        (", combine = 'stable_mode', sampling = 'partition'", DELTA),
        (", combine = 'stable_mode', sampling = 'bernoulli', units = 1000", DELTA),
    ],
)  # fmt: skip
def test_votes_are_dealt_what_is_asked_and_know_how_many_a_unit_has(
    session: dpsql.Session, options: str, delta: Fraction
) -> None:
    made = operator(session, options, "MODE(site) AS m FROM t", "SUBSAMPLE")
    assert made.event.basic == (EPSILON, delta)
    (combiner,) = made.combiners
    if "stable" in options:
        rounds = 7 if "7" in options else 1 if "partition" in options else 4
        assert combiner.rounds == (made.participation.cap if made.participation else rounds)
        assert combiner.test.slack == (made.participation.failure if made.participation else 0)
        assert made.source.blocks == (made.participation.runs if made.participation else 128 * rounds)


@pytest.mark.parametrize("combine", ["mean", "trimmed_mean", "median", "winsorized_mean"])
def test_numbers_are_dealt_what_is_asked(session: dpsql.Session, combine: str) -> None:
    made = operator(session, f", bounds = (0, 9), combine = '{combine}'", "AVG(x) AS m FROM t", "SUBSAMPLE")
    epsilon, delta = made.event.basic
    assert EPSILON <= epsilon <= EPSILON * (1 + Fraction(1, 10**9))
    assert delta == 0
    (combiner,) = made.combiners
    if "trimmed" in combine or combine == "mean":
        assert combiner.trim == (12 if "trimmed" in combine else 0)
        assert combiner.noise.epsilon == EPSILON
        assert combiner.noise.sensitivity == combiner.bounds.points


@pytest.mark.parametrize("more", ["", ", most = 2", ", top = 2"])
def test_votes_for_features_are_dealt_what_is_asked(session: dpsql.Session, more: str) -> None:
    options = f", combine = 'noisy_votes', candidates = ('p', 'q', 'r'){more}"
    made = operator(session, options, "LIST(site) AS m FROM t", "SUBSAMPLE")
    assert made.event.basic == (EPSILON, 0)
    assert made.most == (2 if "most" in more else 3)
    if made.noise is not None:
        assert made.noise.epsilon == EPSILON
        assert made.noise.groups == 2 * made.most
