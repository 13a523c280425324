"""OPTIONS (error = x): the epsilon that an accuracy takes, what is refused before it is paid, and what is charged."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest

import dpsql
from dpsql.errors import Error
from dpsql.privacy.events import DiscreteLaplace, NoiseReduction
from tests.support.fixtures import open_session

POLICY = """
budget = {{ epsilon = 20, delta = 1e-5, accountant = "{accountant}", default_epsilon = 1, default_delta = 1e-7 }}
[tables]
t = {{ privacy_unit = "u", max_rows = 1, max_groups = 1, columns = {{ age = {{ bounds = [0, 100] }}, \
    k = {{ values = ["a", "b"] }}, day = {{ bounds = [2024-01-01, 2024-12-31] }} }} }}
"""


@pytest.fixture(params=["zcdp"])
def session(request: pytest.FixtureRequest) -> Iterator[dpsql.Session]:
    with open_session(
        POLICY.format(accountant=request.param),
        "CREATE TABLE t AS SELECT i AS u, (i % 60 + 20)::DOUBLE AS age, CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END AS k, "
        "i % 7 AS free, DATE '2024-03-01' AS day FROM range(20000) r(i)",
    ) as opened:
        yield opened


def test_a_count_takes_the_least_epsilon_that_is_enough(session: dpsql.Session) -> None:
    found = session.sql("SELECT WITH DP OPTIONS (error = 10, epsilon = 1) COUNT(*) AS n FROM t")
    (noise,) = found.event.leaves()
    assert isinstance(noise, DiscreteLaplace)
    (low, high), (value,) = found.intervals["n"][0], found.fetchone()
    assert high - value == value - low == 10
    less = f"SELECT WITH DP OPTIONS (epsilon = {float(noise.epsilon) * 0.95}) COUNT(*) AS n FROM t"
    (low, high), (value,) = session.sql(less).intervals["n"][0], session.sql(less).fetchone()
    assert high - value > 10  # a twentieth less epsilon would not do
    assert found.loss == "ε=0.28437"


@pytest.mark.parametrize(
    ("session", "error"), [("zcdp", "0.2"), ("basic", "1"), ("gdp", "20")], indirect=["session"]
)
def test_a_mean_is_charged_for_what_it_took(session: dpsql.Session, error: str) -> None:
    before = session.budget().left_epsilon
    found = session.sql(f"SELECT WITH DP OPTIONS (error = {error}, epsilon = 4) AVG(age) AS a FROM t")
    (event,) = found.event.leaves()
    assert isinstance(event, NoiseReduction)
    assert event.most == 4
    assert event.epsilon < 1
    (low, high), (value,) = found.intervals["a"][0], found.fetchone()
    assert max(high - value, value - low) <= float(error)
    assert before - session.budget().left_epsilon == event.epsilon
    again = session.sql(f"SELECT WITH DP OPTIONS (error = {error}, epsilon = 4) AVG(age) AS a FROM t")
    assert again.loss == "no charge"


def test_counts_beside_means_take_what_they_need(session: dpsql.Session) -> None:
    found = session.sql(
        "SELECT WITH DP OPTIONS (error = 30, epsilon = 4) k, COUNT(*) AS n, AVG(age) AS a FROM t GROUP BY k"
    )
    count, mean = found.event.leaves()
    assert isinstance(count, DiscreteLaplace)
    assert isinstance(mean, NoiseReduction)
    assert count.epsilon < Fraction(1, 8)
    assert mean.most == 4 - count.epsilon
    assert all(high - low <= 60 for column in found.intervals.values() for low, high in column)


def test_private_groups_are_chosen_first(session: dpsql.Session) -> None:
    text = "SELECT WITH DP OPTIONS (error = 3, epsilon = 4, delta = 1e-6) free, AVG(age) AS a FROM t GROUP BY free"
    found = session.sql(text)
    assert len(found.fetchall()) == 7
    assert [event.kind for event in found.event.leaves()] == ["group_selection", "noise_reduction"]


def test_gaussian_noise_of_a_count_fits_too(session: dpsql.Session) -> None:
    text = "SELECT WITH DP OPTIONS (error = 30, epsilon = 1, delta = 1e-6, noise = GAUSSIAN) k, COUNT(*) AS n FROM t GROUP BY k"
    found = session.sql(text)
    assert all(high - low <= 60 for low, high in found.intervals["n"])
    assert found.event.basic[0] < 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("OPTIONS (error = 0, epsilon = 1) COUNT(*) FROM t", "above 0"),
        ("OPTIONS (error = 1, epsilon = 1) AVG(day) FROM t", "for numbers"),
    ],
)
def test_what_can_not_be_had_is_refused_before_it_is_paid(
    session: dpsql.Session, text: str, message: str
) -> None:
    before = session.budget().left_epsilon
    with pytest.raises(Error, match=message):
        session.sql(f"SELECT WITH DP {text}")
    assert session.budget().left_epsilon == before


@pytest.mark.parametrize("error", ["1", "0.3"])
def test_a_hint_can_be_followed(session: dpsql.Session, error: str) -> None:
    text = "SELECT WITH DP OPTIONS (error = {}, epsilon = {}) COUNT(*) AS n FROM t"
    with pytest.raises(Error) as refused:
        session.sql(text.format(error, "0.01"))
    epsilon, other = (
        str(refused.value.hint).removeprefix("write epsilon = ").removesuffix(".").split(", or error = ")
    )
    session.explain(text.format(error, epsilon))
    session.explain(text.format(other, "0.01"))


def test_explain_says_that_a_price_is_the_most(session: dpsql.Session) -> None:
    """Only where noise is reduced step by step: the noise of a count follows from the error, and so does its price."""
    text = "SELECT WITH DP OPTIONS (error = {}, epsilon = 1) {} FROM t"
    assert session.explain(text.format(30, "AVG(age)")).price.startswith("Would cost at most ε=1;")
    for other in (text.format(30, "COUNT(*)"), "SELECT WITH DP OPTIONS (epsilon = 1) AVG(age) FROM t"):
        assert "at most" not in session.explain(other).price
