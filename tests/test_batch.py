"""Declared plans: priced together before the first statement runs."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

import dpsql
from dpsql.privacy.pld import DeclaredPlan
from tests.support import inside

VISITS = Path(dpsql.__file__).parent / "demo" / "visits.parquet"


def policy(epsilon: str = "10", accountant: str = "basic") -> dpsql.Policy:
    return dpsql.Policy.loads(f"""
budget = {{ epsilon = {epsilon}, delta = 1e-6, accountant = "{accountant}", default_epsilon = 0.1, default_delta = 1e-7 }}
[tables]
visits = {{ source = "{VISITS}", privacy_unit = "person_id", max_rows_per_group = 5, max_groups = 5 }}
""")


def test_a_plan_of_many_costs_less_than_its_sum() -> None:
    with dpsql.connect(policy=policy()) as session:
        with session.plan() as plan:
            handles = [plan.sql(f"SELECT COUNT(*) AS n FROM visits WHERE age > {a}") for a in range(40)]
            assert session.ledger() == []
        assert [handle.shape for handle in handles] == [(1, 1)] * 40
        assert len(plan.results) == 40
        (entry,) = session.ledger()
        assert isinstance(entry.event, DeclaredPlan)
        assert entry.event.basic[0] < Fraction(4)
        assert session.budget().spent_epsilon == entry.event.basic[0]


def test_a_plan_that_does_not_fit_charges_nothing() -> None:
    with dpsql.connect(policy=policy("1")) as session:
        with pytest.raises(dpsql.BudgetExceeded), session.plan() as plan:
            for epsilon in (0.6, 0.7):
                plan.sql(f"SELECT WITH DP OPTIONS (epsilon = {epsilon}) COUNT(*) FROM visits")
        assert session.budget().spent_epsilon == 0
        with pytest.raises(dpsql.BindError, match="not run"):
            _ = plan.results


def test_under_zcdp_it_is_one_composed_event() -> None:
    with dpsql.connect(policy=policy("1", "zcdp")) as session:
        with session.plan() as plan:
            first = plan.sql("SELECT COUNT(*) AS n FROM visits")
            second = plan.sql(
                "SELECT WITH DP OPTIONS (epsilon = 0.2) COUNT(DISTINCT person_id) AS p FROM visits"
            )
        assert abs(first.fetchall()[0][0] - 20190) < 2000
        assert abs(second.fetchall()[0][0] - 5912) < 500
        assert len(session.ledger()) == 1


def test_a_failure_keeps_the_whole_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    with dpsql.connect(policy=policy()) as session:
        monkeypatch.setattr(
            inside.engine(session), "execute", lambda *a: (_ for _ in ()).throw(dpsql.EngineError("no"))
        )
        with pytest.raises(dpsql.EngineError), session.plan() as plan:
            plan.sql("SELECT COUNT(*) FROM visits")
            plan.sql("SELECT COUNT(*) FROM visits WHERE age > 3")
        assert session.budget().spent_epsilon > 0


def test_an_error_in_the_block_runs_nothing() -> None:
    with dpsql.connect(policy=policy()) as session:
        with pytest.raises(dpsql.BindError), session.plan() as plan:
            plan.sql("SELECT COUNT(*) FROM visits")
            plan.sql("SELECT COUNT(*) FROM nowhere")
        assert session.budget().spent_epsilon == 0
        assert session.sql("SELECT COUNT(*) FROM visits").shape == (1, 1)
