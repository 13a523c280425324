"""Sessions that are asked and that report in mu and rho: every figure against closed forms, and against another library."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest

import dpsql
from dpsql.errors import BudgetExceeded, LedgerError, PolicyError, PrivacyError
from dpsql.ledger.ledger import Ledger
from dpsql.privacy.conversions import gaussian_mu
from dpsql.report.data import make_report
from dpsql.report.pages import report_text, write_page
from dpsql.report.tables import BudgetPanel
from tests.support.case_files import read_part

DEMO = Path(dpsql.__file__).parent / "demo"
TABLES = f"""
[tables]
visits = {{ source = "{DEMO}/visits.parquet", privacy_unit = "person_id", max_rows_per_group = 5, max_groups = 2, \
    columns = {{ age = {{ bounds = [0, 65] }} }} }}
"""
COUNT = "SELECT WITH DP OPTIONS (mu = {mu}) COUNT(*) AS n FROM visits WHERE age >= {age}"
NORMAL = NormalDist()
Open = Callable[[str], dpsql.Session]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Open]:
    opened: list[dpsql.Session] = []

    def start(budget: str) -> dpsql.Session:
        path = tmp_path / f"policy{len(opened)}.toml"
        path.write_text(f"[budget]\n{budget}\n{TABLES}")
        opened.append(dpsql.connect(policy=path))
        return opened[-1]

    yield start
    for session in opened:
        session.close()


def curve_of(mu: float, alpha: float) -> float:
    """G_mu in closed form."""
    return NORMAL.cdf(NORMAL.inv_cdf(1 - alpha) - mu) if 0 < alpha < 1 else 1.0 - alpha


def delta_of(mu: float, epsilon: float) -> float:
    """The delta of mu-GDP in closed form."""

    def tail(x: float) -> float:
        return math.erfc(x / math.sqrt(2)) / 2

    return tail(epsilon / mu - mu / 2) - math.exp(epsilon) * tail(epsilon / mu + mu / 2)


def rows(session: dpsql.Session, what: str) -> list[dict[str, Any]]:
    shown = session.sql(f"SHOW {what}")
    return [dict(zip(shown.columns, row, strict=True)) for row in shown.fetchall()]


def test_a_session_of_mu_reviewed_figure_by_figure(start: Open) -> None:
    session = start("mu = 1")
    asked = (0.3, 0.4, 0.5)
    for i, mu in enumerate(asked):
        assert session.sql(COUNT.format(mu=mu, age=i)).loss == f"μ={mu}"
    spent = math.sqrt(sum(mu * mu for mu in asked))
    left = math.sqrt(1 - spent**2)
    # the headline, the cost line, the ledger
    state = session.budget()
    assert state.sentence == f"μ={math.floor(left * 1e4) / 1e4:g} of μ=1 left"
    again = session.sql(COUNT.format(mu=0.3, age=0))
    assert again.cost_line.endswith(state.sentence)
    (whole,) = rows(session, "BUDGET")
    assert (whole["currency"], whole["amount"]) == ("mu", 1)
    assert whole["amount_spent"] == pytest.approx(spent, rel=1e-9)
    assert whole["amount_left"] == pytest.approx(left, rel=1e-9)
    ledger = rows(session, "LEDGER")
    assert [row["charge"] for row in ledger] == ["μ=0.3", "μ=0.4", "μ=0.5"]
    assert [row["mu"] for row in ledger] == pytest.approx(asked, rel=1e-9)
    assert [row["rho"] for row in ledger] == [None] * 3
    # the curves
    for what, mu in (("TRADEOFF", 1.0), ("TRADEOFF SPENT", spent)):
        shown = rows(session, what)
        assert len(shown) == 51
        for row in shown:
            assert row["type_ii_error"] == pytest.approx(curve_of(mu, row["type_i_error"]), abs=1e-9)
    # groups, certainty, errors
    report = make_report(session.account)
    groups = rows(session, "GROUPS")
    for row in groups:
        mu, k = 1.0 if row["loss"] == "budget" else spent, row["units"]
        assert row["mu"] == pytest.approx(k * mu, rel=1e-9)
        assert row["certainty"] == pytest.approx(NORMAL.cdf(k * mu / 2), abs=1e-9)
        assert row["delta"] == 1e-6
        assert delta_of(k * mu, row["epsilon"]) == pytest.approx(1e-6, rel=1e-4)
        for at in (1, 5, 10):
            assert row[f"type_ii_at_{at}"] == pytest.approx(curve_of(k * mu, at / 100), abs=1e-9)
    told = report["guarantee"]
    assert [g["mu"] for g in told["groups"]] == [1, 2, 3, 4, 5]
    assert told["certainty"] == pytest.approx(NORMAL.cdf(0.5))
    assert told["certainty_spent"] == pytest.approx(NORMAL.cdf(spent / 2))
    for errors, mu in zip(told["errors"], (1.0, spent), strict=True):
        assert errors["type_ii"] == [[a, pytest.approx(curve_of(mu, a), abs=1e-9)] for a in (0.01, 0.05, 0.1)]
    drawn = report["pictures"]
    assert all(
        beta == pytest.approx(curve_of(1.0, alpha), abs=1e-9) for alpha, beta in drawn["tradeoff"]["promise"]
    )
    assert all(beta == pytest.approx(curve_of(spent, a), abs=1e-9) for a, beta in drawn["tradeoff"]["spent"])
    assert drawn["attacker"]["spent"] == (pytest.approx(spent), pytest.approx(NORMAL.cdf(spent / 2)))
    steps = [step["left"] for step in drawn["burn_down"]["steps"]]
    assert steps == pytest.approx([1, math.sqrt(0.91), math.sqrt(0.75), left])
    for x, promised, used in zip(
        *(drawn["epsilon_delta"][k] for k in ("epsilon", "promise", "spent")), strict=True
    ):
        assert promised == pytest.approx(delta_of(1.0, x), abs=1e-12)
        assert used == pytest.approx(delta_of(spent, x), abs=1e-12)
    page, text = write_page(report), report_text(session.account)
    places = (page, text, BudgetPanel.of(session.account).text(), BudgetPanel.of(session.account).html())
    assert all(state.sentence in place for place in places)
    assert "1-Gaussian differentially private" in page
    assert "69%" in text  # Φ(1/2)


def test_a_session_of_mu_against_another_library(start: Open) -> None:
    accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant  # type: ignore[import-untyped]

    session = start("mu = 1")
    asked = (0.3, 0.4, 0.5)
    for i, mu in enumerate(asked):
        session.sql(COUNT.format(mu=mu, age=i))
    other = PLDAccountant()
    for mu in asked:
        other.compose(accounting.GaussianDpEvent(1 / mu))
    found = {row["accountant"]: row for row in rows(session, "ACCOUNTANTS")}
    assert list(found) == ["zcdp", "basic", "gdp", "rdp", "pld"]
    wanted = other.get_epsilon(1e-6)
    assert found["gdp"]["epsilon"] == pytest.approx(wanted, rel=1e-4)
    assert found["pld"]["epsilon"] == pytest.approx(wanted, rel=1e-3)
    assert found["pld"]["epsilon"] >= wanted * (1 - 1e-4)
    rho = sum(mu * mu / 2 for mu in asked)
    concentrated = accounting.rdp.RdpAccountant()
    concentrated.compose(accounting.ZCDpEvent(rho))
    assert found["zcdp"]["epsilon"] == pytest.approx(concentrated.get_epsilon(1e-6), rel=1e-2)
    assert found["zcdp"]["spent"] == f"ρ={rho:g}"
    assert found["gdp"]["spent"] == "μ=0.7072"
    assert found["basic"]["epsilon"] == pytest.approx(session.budget().spent_epsilon, rel=1e-9)
    for row in rows(session, "GROUPS"):
        if row["units"] == 1:
            mu = row["mu"]
            assert row["epsilon"] == pytest.approx(accounting.get_epsilon_gaussian(1 / mu, 1e-6), rel=1e-6)


def test_how_much_more_each_accountant_would_allow(start: Open) -> None:
    session = start("mu = 1")
    for i in range(3):
        session.sql(COUNT.format(mu=0.4, age=i))
    found = {row["accountant"]: row for row in rows(session, "ACCOUNTANTS")}
    assert found["gdp"]["session"]
    assert found["gdp"]["more_like_last"] == 3  # 6 x 0.16 <= 1 < 7 x 0.16
    epsilon = float(session.policy.budget.epsilon)
    mu, more = 0.4, found["pld"]["more_like_last"]
    assert delta_of(mu * math.sqrt(3 + more), epsilon) <= 1e-6 < delta_of(mu * math.sqrt(5 + more), epsilon)
    for _ in range(3):
        session.sql(COUNT.format(mu=0.4, age=1), fresh=True)
    with pytest.raises(BudgetExceeded, match=r"costs μ=0.4; μ=0.2 of μ=1 is left") as refused:
        session.sql(COUNT.format(mu=0.4, age=1), fresh=True)
    assert str(refused.value.hint).startswith("mu = 0.2 would fit.")
    assert session.sql(COUNT.format(mu=0.2, age=1)).loss == "μ=0.2"
    assert session.budget().sentence == "μ=0 of μ=1 left"
    assert rows(session, "ACCOUNTANTS")[2]["within"]


def test_gdp_in_epsilon_draws_its_own_curve_where_it_holds(start: Open) -> None:
    """The curve of (3, 1e-6) misses .047 at .06 false alarms; all that the Gaussian rule can spend leaves .822."""
    session = start('epsilon = 3\ndelta = 1e-6\naccountant = "gdp"')
    mu = float(gaussian_mu(Fraction(3), Fraction(5, 10**7)))
    before = rows(session, "TRADEOFF")[3]
    assert before["type_i_error"] == 0.06
    assert before["type_ii_error"] == pytest.approx(0.0468, abs=1e-4)  # one pure loss of 3 would be admitted
    assert before["type_ii_error_by_rule"] == pytest.approx(curve_of(mu, 0.06), abs=1e-5)
    assert session.budget().sentence == "μ=0.6298 of μ=0.6298 left, or ε=3 of ε=3 by the plain sum"
    assert "by_rule" in make_report(session.account)["pictures"]["tradeoff"]
    assert session.sql(COUNT.format(mu=0.3, age=0)).cost_line == "cost μ=0.3 · μ=0.5538 of μ=0.6298 left"
    after = rows(session, "TRADEOFF")[3]
    assert list(after) == ["type_i_error", "type_ii_error"]
    assert after["type_ii_error"] == pytest.approx(0.8225, abs=1e-4)
    with pytest.raises(BudgetExceeded):  # the plain sum is closed in every continuation: this is why
        session.sql("SELECT WITH DP OPTIONS (epsilon = 2) COUNT(*) FROM visits")
    pure = start('epsilon = 3\ndelta = 1e-6\naccountant = "gdp"')
    pure.sql("SELECT WITH DP OPTIONS (epsilon = 0.1) COUNT(*) FROM visits")
    assert rows(pure, "TRADEOFF")[3]["type_ii_error"] == pytest.approx(0.0468, abs=1e-4)
    pure.sql("SELECT WITH DP OPTIONS (epsilon = 2.9) COUNT(*) FROM visits")


def test_a_budget_of_rho(start: Open) -> None:
    session = start("rho = 0.1\ndelta = 1e-6")
    asked = "SELECT WITH DP OPTIONS (rho = 0.02) COUNT(*) AS n, AVG(age) AS a, MEDIAN(age) AS m FROM visits"
    assert session.sql(asked).cost_line == "cost ρ=0.02 · ρ=0.08 of ρ=0.1 left"
    private = (
        "SELECT WITH DP OPTIONS (rho = 0.03, delta = 1e-7) plan, COUNT(*) AS n FROM visits GROUP BY plan"
    )
    assert session.sql(private).cost_line == "cost ρ=0.03, δ=1e-07 · ρ=0.05 of ρ=0.1 left"
    report = make_report(session.account)
    assert [g["rho"] for g in report["guarantee"]["groups"]] == pytest.approx(
        [0.1 * k * k for k in range(1, 6)]
    )
    assert "0.1-zCDP except with probability 1e-06" in report["guarantee"]["formal"]
    assert [row["rho"] for row in rows(session, "LEDGER")] == pytest.approx([0.02, 0.03], rel=1e-8)
    with pytest.raises(BudgetExceeded, match=r"costs ρ=0.06; ρ=0.0\d+ of ρ=0.1 is left"):
        session.sql(asked.replace("0.02", "0.06"))


def test_a_default_session_says_rho_of_what_was_asked_so(start: Open) -> None:
    session = start("epsilon = 3\ndelta = 1e-6")
    line = session.sql("SELECT WITH DP OPTIONS (rho = 0.01) COUNT(*) AS n FROM visits").cost_line
    assert line.startswith("cost ρ=0.01 · ε=")
    assert session.sql("SELECT WITH DP OPTIONS (epsilon = 0.1) COUNT(*) AS n FROM visits").loss == "ε=0.1"


EVERY_KIND = read_part(__file__, "EVERY_KIND")


@pytest.mark.parametrize("asked", EVERY_KIND, ids=range(len(EVERY_KIND)))
@pytest.mark.parametrize("currency", ["mu", "rho"])
def test_every_kind_costs_what_was_asked(start: Open, asked: str, currency: str) -> None:
    """Never more, and less than a millionth less: so that ten of a tenth each are what the owner granted."""
    session = start("mu = 1\ndelta = 1e-6" if currency == "mu" else "rho = 1\ndelta = 1e-6")
    result = session.sql(asked.replace("mu = 0.1", f"{currency} = 0.1"))
    event = result.event
    event = session.account.accountant.charge(event)
    cost = event.mu if currency == "mu" else event.rho
    assert Fraction(1, 10) * (1 - Fraction(1, 10**6)) < cost <= Fraction(1, 10) + Fraction(1, 10**28)
    assert result.loss.startswith(("μ" if currency == "mu" else "ρ") + "=0.1")


def test_explain_says_what_would_be_charged(start: Open) -> None:
    session = start("mu = 1")
    told = session.explain("SELECT WITH DP OPTIONS (mu = 0.5) COUNT(*) AS n FROM visits")
    assert told.price.startswith("Would cost μ=0.5; μ=1 of μ=1 left.")
    assert "deviation 10 (μ=0.5)" in str(told)
    assert "at other mu:" in str(told)
    assert "[μ=0.5]" in str(told)
    assert session.ledger() == []
    assert session.explain("SELECT WITH DP OPTIONS (mu = 2) COUNT(*) FROM visits").price.startswith(
        "It would be refused."
    )


def test_the_limit_per_query_protects(start: Open) -> None:
    session = start("mu = 1\nmax_epsilon_per_query = 2")
    most = float(gaussian_mu(Fraction(2), Fraction(1, 10**6)))
    with pytest.raises(BudgetExceeded) as refused:
        session.sql(COUNT.format(mu=0.5, age=0))
    fits = str(refused.value.hint).removeprefix("write mu = ").removesuffix(".")
    assert float(fits) == pytest.approx(most, abs=1e-3)
    session.sql(COUNT.format(mu=fits, age=0))
    assert delta_of(float(fits), 2) <= 1e-6


@pytest.mark.parametrize("budget", ["epsilon = 1", 'epsilon = 1\ndelta = 1e-6\naccountant = "basic"'])
def test_a_session_that_sums_epsilon_refuses_kindly(start: Open, budget: str) -> None:
    session = start(budget)
    with pytest.raises(PrivacyError, match="not count in mu") as refused:
        session.sql(COUNT.format(mu=0.2, age=0))
    assert str(refused.value.hint).startswith("write epsilon = 0.84")
    assert refused.value.span is not None


# -- terms ----------------------------------------------------------------------------------------------------------


def policy_of(budget: str) -> dpsql.Policy:
    return dpsql.Policy.loads(f"[budget]\n{budget}\n{TABLES}")


def test_shares_of_analysts(tmp_path: Path) -> None:
    path = tmp_path / "shared.toml"
    path.write_text(f"[budget]\nmu = 1\n[analysts.anna]\nmu = 0.5\n{TABLES}")
    with dpsql.connect(policy=path, analyst="anna") as session:
        assert session.sql(COUNT.format(mu=0.3, age=0)).cost_line == "cost μ=0.3 · μ=0.4 of anna's μ=0.5 left"
        with pytest.raises(BudgetExceeded, match=r"μ=0.4 of anna's μ=0.5 is left"):
            session.sql(COUNT.format(mu=0.41, age=1))
        assert [row["amount"] for row in rows(session, "BUDGET")] == [1, 0.5]
    with dpsql.connect(policy=path) as session:
        assert session.budget().sentence == "μ=0.9539 of μ=1 left"
        session.sql(COUNT.format(mu=0.9, age=2))
    with dpsql.connect(policy=path, analyst="anna") as session:
        assert session.budget().sentence == "μ=0.4 of anna's μ=0.5 left, but only μ=0.3162 of the whole"
        assert session.sql("SHOW BUDGET").dicts()[1]["amount_left"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("share", "told"),
    [
        ("epsilon = 1", "in mu"),
        ("mu = 2", "more than the whole mu"),
        ("rho = 1", "in mu"),
        ("delta = 1e-7", "no mu"),
    ],
)
def test_a_share_is_in_the_budgets_currency(share: str, told: str) -> None:
    with pytest.raises(PolicyError, match=told):
        dpsql.Policy.loads(f"[budget]\nmu = 1\ndelta = 1e-6\n[analysts.anna]\n{share}\n{TABLES}")


def test_the_ledger_keeps_the_terms(tmp_path: Path) -> None:
    path = tmp_path / "own.ledger"
    Ledger.open(path, policy_of("mu = 1"), "d").close()
    with Ledger.open(path, policy_of("mu = 0.5"), "d") as ledger:  # tighter
        assert ledger.state().sentence == "μ=0.5 of μ=0.5 left"
    for budget, told in (
        ("mu = 1.1", "was μ=1 and is now μ=1.1"),
        ("epsilon = 1", "was in μ and is now in ε"),
    ):
        with pytest.raises(LedgerError, match=told):
            Ledger.open(path, policy_of(budget), "d")
    Ledger.adopt(path, policy_of("mu = 1.1"), "d")
    with Ledger.open(path, policy_of("mu = 1.1"), "d") as ledger:
        assert ledger.state().limit == "μ=1.1"
    with Ledger.read(path) as ledger, ledger.under("zcdp") as other:
        assert other.state().limit_epsilon == ledger.terms.epsilon
        assert write_page(make_report(other))
