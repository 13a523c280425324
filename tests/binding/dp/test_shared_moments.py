"""A moment that several aggregates need is released once, with the shares of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import duckdb
import pytest

import dpsql
from dpsql.mechanisms.aggregation import Aggregation
from dpsql.privacy.events import DiscreteLaplace
from tests.support.inside import planned

POLICY = """
[budget]
epsilon = 100
[tables.t]
privacy_unit = "ROW"
columns.x.bounds = [0, 50]
"""


@pytest.fixture(scope="module")
def session() -> Iterator[dpsql.Session]:
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT range % 51 AS x FROM range(100)")
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as opened:
        yield opened


def plan(session: dpsql.Session, option: str, numbers: str) -> Aggregation:
    (block,) = planned(session, f"SELECT WITH DP OPTIONS ({option}) {numbers} FROM t").blocks
    assert isinstance(block.operator, Aggregation)
    return block.operator


@pytest.mark.parametrize(
    ("numbers", "shares"),
    [
        ("AVG(x)", {"p0": (1, 2), "p1": (1, 2)}),
        ("COUNT(x), AVG(x)", {"p0": (3, 4), "p1": (1, 4)}),
        ("AVG(x), STDDEV(x)", {"p0": (5, 12), "p1": (5, 12), "p2": (1, 6)}),
        ("AVG(x), STDDEV(x), VARIANCE(x)", {"p0": (7, 18), "p1": (7, 18), "p2": (2, 9)}),
        ("COUNT(x, epsilon => 0.1), AVG(x)", {"p0": (11, 20), "p1": (9, 20)}),
    ],
)
def test_a_moment_has_the_shares_of_all_that_need_it(
    session: dpsql.Session, numbers: str, shares: dict[str, tuple[int, int]]
) -> None:
    operator = plan(session, "epsilon = 1", numbers)
    found = {s.column: s.noise.epsilon for s in operator.statistics}
    assert found == {column: Fraction(*share) for column, share in shares.items()}
    assert len(operator.statistics) == len(shares), "one draw for each"
    assert operator.event.basic == (1, 0)


def test_the_parts_of_a_rho_add_up() -> None:
    """Laplace noise that is asked for in rho costs the whole rho, and hardly less."""
    numbers = "COUNT(x), AVG(x)"
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT 1 AS x")
    policy = POLICY.replace("epsilon = 100", "epsilon = 100\ndelta = 1e-6")
    with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as opened:
        operator = plan(opened, "rho = 0.1, noise = LAPLACE", numbers)
    assert len(operator.statistics) == 2
    assert Fraction(99, 1000) < operator.event.rho <= Fraction(1, 10)


def test_the_charge_is_that_of_the_draws(session: dpsql.Session) -> None:
    operator = plan(session, "epsilon = 1", "COUNT(x), AVG(x)")
    assert set(operator.event.parts) == {
        DiscreteLaplace(Fraction(3, 4), 1),
        DiscreteLaplace(Fraction(1, 4), 25),
    }
