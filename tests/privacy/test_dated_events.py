"""Statements whose parts read different periods: each period pays for the parts that read it, and the words say so."""

from __future__ import annotations

from fractions import Fraction

import dpsql
from tests.support.fixtures import session_fixture

POLICY = """
budget = { epsilon = 100, delta = 0.01, per_period = true, accountant = "basic" }
[tables]
visits = { privacy_unit = "pid", privacy_period = "date_trunc('month', day)", data_from = 2024-01-01, \
    data_until = 2024-12-20, max_rows = 4, columns.x.bounds = [0, 100] }
"""
LAPLACE = "SELECT WITH DP OPTIONS (epsilon = 1) SUM(x) FROM visits WHERE "
GAUSS = "SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, noise = 'gaussian') COUNT(*) FROM visits WHERE "
JANUARY, DECEMBER = "day < DATE '2024-02-01'", "day >= DATE '2024-12-01'"
TABLES = """
CREATE TABLE visits(pid BIGINT, day DATE, x BIGINT);
"""
session = session_fixture(POLICY, TABLES, scope="function")


def spent(session: dpsql.Session) -> dict[str, Fraction]:
    return {state.period: state.spent_epsilon for state in session.budget().stretches}


def test_a_charge_names_each_amount_with_its_periods(session: dpsql.Session) -> None:
    both = f"SELECT ({LAPLACE}{JANUARY}) AS a, (SELECT WITH DP OPTIONS (epsilon = {{}}) COUNT(*) FROM visits WHERE {{}}) AS b"
    overlap = both.format(2, "day < DATE '2024-04-01'")
    assert "ε=3 for 2024-01; ε=2 for 2024-02 to 2024-03;" in str(session.explain(overlap))
    session.sql(overlap)
    assert spent(session) == {"2024-01": 3, "2024-02 to 2024-03": 2, "2024-04 to 2024-12": 0}
    assert session.ledger()[-1].charge("basic") == "ε=3 for 2024-01; ε=2 for 2024-02 to 2024-03"
    assert "cost ε=1 for 2024-01 and 2024-12 ·" in str(session.sql(both.format(1, DECEMBER), fresh=True))


def test_statements_of_a_plan_are_calibrated_and_priced_with_those_of_their_own_periods(
    session: dpsql.Session,
) -> None:
    with session.plan() as plan:
        plan.sql(GAUSS + JANUARY)
        plan.sql(GAUSS + DECEMBER)
    assert spent(session) == {"2024-01": 1, "2024-02 to 2024-11": 0, "2024-12": 1}
    with session.plan() as plan:
        for condition in (JANUARY, DECEMBER, DECEMBER + " AND x > 3"):
            plan.sql(LAPLACE + condition)
    found = spent(session)
    assert (found["2024-01"], found["2024-02 to 2024-11"]) == (2, 0)
    assert 2 < found["2024-12"] < 3  # two statements cost less together
