"""The budget says the same figures in every place, and no statement makes it fall off a cliff."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from html import unescape
from pathlib import Path

import pytest

import dpsql
from dpsql.errors import BindError, BudgetExceeded, PrivacyError
from dpsql.owner.policy_check import check_policy
from dpsql.report.data import make_report
from dpsql.report.pages import report_text, write_page
from dpsql.report.tables import BudgetPanel

DEMO = Path(dpsql.__file__).parent / "demo"
POLICY = """
[budget]
epsilon = {epsilon}
delta = {delta}
accountant = "{accountant}"
default_epsilon = 0.01
{more}
[tables.visits]
source = "{demo}/visits.parquet"
privacy_unit = "person_id"
max_rows_per_group = 5
max_groups = 2
[tables.visits.columns]
age = {{ bounds = [0, 65] }}
"""
GROUPS = (
    "SELECT WITH DP OPTIONS (epsilon = 0.5, delta = 1e-8) plan AS g, COUNT(*) AS n FROM visits GROUP BY g"
)
COUNT = "SELECT WITH DP OPTIONS (epsilon = 0.1) COUNT(*) AS n FROM visits"
Open = Callable[..., dpsql.Session]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Open]:
    opened: list[dpsql.Session] = []

    def start(
        epsilon: str = "3", accountant: str = "zcdp", more: str = "", delta: str = "1e-6"
    ) -> dpsql.Session:
        path = tmp_path / f"policy{len(opened)}.toml"
        path.write_text(
            POLICY.format(demo=DEMO, epsilon=epsilon, accountant=accountant, more=more, delta=delta)
        )
        opened.append(dpsql.connect(policy=path))
        return opened[-1]

    yield start
    for session in opened:
        session.close()


LINES = {
    "ε": (
        "cost ε=0.1 · ε=2.9 of ε=3 left",
        "cost ε=0.5, δ=1e-08 · ε=2.4 of ε=3 left",
        "cost ε=0.1 · ε=2.3 of ε=3 left",
    ),
    "μ": (
        "cost μ=0.1225 · μ=0.6178 of μ=0.6298 left, or ε=2.9 of ε=3 by the plain sum",
        "cost μ=0.3089, δ=1e-08 · μ=0.535 of μ=0.6298 left, or ε=2.4 of ε=3 by the plain sum",
        "cost μ=0.1225 · μ=0.5208 of μ=0.6298 left, or ε=2.3 of ε=3 by the plain sum",
    ),
}
"""Cost lines in the accountants' currencies."""


@pytest.mark.parametrize(("accountant", "sign"), [("zcdp", "ε"), ("gdp", "μ"), ("basic", "ε")])
def test_no_cliff(start: Open, accountant: str, sign: str) -> None:
    session = start(accountant=accountant)
    said = [session.sql(COUNT), session.sql(GROUPS), session.sql(COUNT, fresh=True)]
    assert tuple(result.cost_line for result in said) == LINES[sign]
    session.sql(COUNT.replace("0.1", "2.3"))
    with pytest.raises(BudgetExceeded):
        session.sql(COUNT.replace("0.1", "2.9"))


def everywhere(session: dpsql.Session) -> list[str]:
    """List what each place says about what is left."""
    told, account = make_report(session.account), session.account
    return [
        session.budget().sentence,
        BudgetPanel.of(account).text(),
        BudgetPanel.of(account).html(),
        report_text(account),
        told["left"]["sentence"],
        write_page(told),
        str(session.explain(COUNT)),
        "\n".join(row[0] for row in session.sql(f"EXPLAIN {COUNT}").fetchall()),
        session.sql(COUNT).cost_line,  # a stored answer, so it is free
    ]


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
def test_the_same_figures_everywhere(start: Open, accountant: str) -> None:
    session = start("1", accountant)
    session.sql(COUNT)
    session.sql(GROUPS)
    sentence = {"zcdp": "ε=0.4 of ε=1 left", "gdp": "μ=0 of μ=0.229 left, or ε=0.4 of ε=1 by the plain sum"}[
        accountant
    ]
    assert all(sentence in place and f"{sentence} for one" not in place for place in everywhere(session))
    shown = session.sql("SHOW BUDGET")
    row = dict(zip(shown.columns, shown.fetchall()[0], strict=True))
    assert row["spent_epsilon"] == 0.6
    assert row["left_epsilon"] == 0.4
    assert (row["mechanism_delta"], row["spent_delta"], row["left_delta"]) == (5e-7, 1e-8, 4.9e-7)
    state = session.budget()
    assert row["rule_used"] == float(state.rule_used) == make_report(session.account)["left"]["rule_used"]
    assert row["more_at_default"] == state.about == make_report(session.account)["left"]["about"] >= 40


def test_the_rules_share_where_the_rule_is_not_the_sum(start: Open) -> None:
    session = start("1")
    session.sql(COUNT)
    small = COUNT.replace("0.1", "0.01")
    lines = [session.sql(small, fresh=True).cost_line for _ in range(80)]
    assert lines[0] == "cost ε=0.01 · ε=0.89 of ε=1 left"
    state = session.budget()
    assert state.rule == state.rule_used
    assert state.rule_text == "31%"
    assert lines[-1].endswith(f" · {state.sentence}")
    assert state.sentence == f"{state.left} of ε=1 left for one more, 31% of the rule used"
    assert all(state.sentence in place for place in everywhere(session)[:2] + everywhere(session)[3:])
    found = [Fraction(line.split("·")[1].split()[0].removeprefix("ε=")) for line in lines]
    assert found == sorted(found, reverse=True)  # no jump where the one takes over from the other


def test_the_ledger_shows_what_the_accountant_charged(start: Open) -> None:
    """Hits that one noisy threshold did not find are free under basic alone."""
    for accountant, free in (("basic", True), ("zcdp", False)):
        session = start("3", accountant)
        session.sql("DECLARE a ABOVE_THRESHOLD 1000000000 OPTIONS (epsilon = 0.2, max_hits = 10)")
        session.sql("CLOSE a")
        row = session.sql("SHOW LEDGER").fetchall()[0]
        epsilon = row[4]
        assert (epsilon < 0.2) == free
        assert session.budget().spent == row[3]
        assert float(session.budget().spent_epsilon) == epsilon
        assert make_report(session.account)["asked"]["statements"][0]["epsilon"] == epsilon
        assert row[3] in BudgetPanel.of(session.account).text()


# -- EXPLAIN of several -------------------------------------------------------------------------------------------


def test_explain_prices_each_statement_and_all(start: Open) -> None:
    session = start()
    told = session.explain(f"{COUNT}; {GROUPS}; SELECT 1")
    first, second, third = told.parts
    assert first.price.startswith("Would cost ε=0.1;")
    assert second.price.startswith("Would cost ε=0.5, δ=1e-08;")
    assert "costs nothing" in third.price
    assert told.price.startswith("Together they would cost ε=0.6, δ=1e-08; then ε=2.4 of ε=3 left.")
    text = str(told)
    assert "Statement 1 of 3:" in text
    assert text.startswith(told.price), "the total is what is asked for first"
    assert text.index("Statement 3 of 3:") < text.index("Exact SQL")
    assert text.count("Exact SQL") >= 2
    assert "SELECT" not in repr(told), "long SQL is asked for"
    shown = told._repr_mimebundle_()
    assert shown["text/plain"] == repr(told)
    assert shown["text/html"].count("<details>") == 1
    before, _, folded = shown["text/html"].partition("<details>")
    assert before.startswith(f'<div class="dpsql-explanation mathjax_ignore"><p>{told.price}</p>')
    assert all(sentence in unescape(before) for part in told.parts for sentence in part.sentences)
    assert "GROUP BY" in folded
    assert "GROUP BY" not in before
    assert "monospace" in folded
    statement = session.sql(f"EXPLAIN {GROUPS}")._repr_mimebundle_()
    assert "GROUP BY" in statement["text/plain"]
    before, _, folded = statement["text/html"].partition("<details>")
    assert "GROUP BY" not in before
    assert "GROUP BY" in folded
    assert folded.endswith("</pre></details></div>")
    assert statement["text/plain"].count("has been spent") == 1


def test_explain_calls_numbers_what_the_statement_calls_them(start: Open) -> None:
    told = start().explain("SELECT COUNT(*) AS n FROM visits")
    own = [sentence for sentence in told.sentences if sentence.startswith("n: ")]
    assert len(own) == 1
    assert "count the rows" in own[0]
    assert ". The count has discrete Laplace noise" in own[0]
    assert "; one person_id moves this by at most 5 in all" in own[0]
    assert "count_star()" not in str(told).partition("Exact SQL")[0]


def test_price_of_all_is_asked_as_json(start: Open) -> None:
    session = start()
    told = session.explain(f"{COUNT}; {GROUPS}; SELECT 1")
    read = json.loads(told.json())
    assert [s["price"] for s in read["statements"]] == [p.price for p in told.parts]
    assert read["price"] == told.price
    assert session.budget().spent_epsilon == 0
    assert session.ledger() == []
    session.run(f"{COUNT}; {GROUPS}; SELECT 1")
    assert session.budget().sentence == "ε=2.4 of ε=3 left"  # as it was said


def test_explain_says_that_all_together_are_too_much(start: Open) -> None:
    session = start("1", "basic")
    one = COUNT.replace("0.1", "0.6")
    two = f"{one}; {one} WHERE 1 = 1"  # an equal block would be the same draw, and free
    assert "ε=1.2; that is more than is left: ε=1 of ε=1 left" in session.explain(two).price
    assert "nothing; ε=1 of ε=1 left" in session.explain("SELECT 1; SELECT 2").price


def test_explain_knows_what_an_earlier_statement_declares(start: Open) -> None:
    session = start()
    declare = "DECLARE a ABOVE_THRESHOLD 100 OPTIONS (epsilon = 0.2, max_hits = 3)"
    told = session.explain(f"{declare}; SELECT WITH a COUNT(*) FROM visits")
    assert told.parts[0].price.startswith("Would reserve ε=0.2")
    assert "reserved at DECLARE" in told.parts[1].price
    assert told.price.startswith("Together they would cost ε=0.2; then ε=2.8 of ε=3 left.")
    with pytest.raises(BindError):
        session.explain("SELECT WITH a COUNT(*) FROM visits")


# -- a delta that fits ----------------------------------------------------------------------------------------------


def hint(session: dpsql.Session) -> str:
    with pytest.raises(PrivacyError) as told:
        session.sql(GROUPS.replace(", delta = 1e-8", ""))
    return str(told.value.hint)


def test_the_hint_is_sized_from_what_is_left(start: Open) -> None:
    session = start()
    assert hint(session).startswith("add delta = 1e-08 to OPTIONS")
    session.sql(GROUPS.replace("1e-8", "4e-7").replace("0.5", "0.1"))
    assert hint(session).startswith("add delta = 2e-09 to OPTIONS")
    session.sql(GROUPS.replace("1e-8", "1e-7").replace("0.5", "0.1"))
    assert hint(session).startswith("no delta is left for it")
    assert hint(start(more="mechanism_delta_share = 0.1")).startswith("add delta = 2e-09 to OPTIONS")
    assert hint(start(delta="0")).startswith("no delta is left for it: declare")


def test_policy_check_proposes_a_default_delta(start: Open, tmp_path: Path) -> None:
    start()
    found = check_policy(tmp_path / "policy0.toml")
    assert "default_delta = 1e-08" in found.budget
    assert "    [budget]" in found.lines()
    assert any("δ=5e-07 of it for mechanisms" in line for line in found.declared)
    start(more="default_delta = 1e-8")
    assert not any("default_delta" in line for line in check_policy(tmp_path / "policy1.toml").budget)
    start(more="default_delta = 6e-7")
    assert any(
        line.startswith("default_delta: more than δ=5e-07")
        for line in check_policy(tmp_path / "policy2.toml").advice
    )
    session = start(more="default_delta = 1e-8")
    for _ in range(3):
        session.sql(GROUPS.replace(", delta = 1e-8", ""), fresh=True)
    assert session.budget().left_delta == Fraction(47, 10**8)


@pytest.mark.parametrize("accountant", ["basic", "zcdp", "gdp"])
def test_every_display_says_the_same_digits(start: Open, accountant: str) -> None:
    """The cost line, SHOW LEDGER, the panel, the report as text and as a page: one charge is one text everywhere."""
    session = start("1.7", accountant)
    charges, left = [], ""
    for number, epsilon in enumerate(("0.1", "0.0333333333", "0.123456789", "0.007")):
        text = f"SELECT WITH DP OPTIONS (epsilon = {epsilon}) COUNT(*) AS n FROM visits WHERE age > $age"
        line = session.sql(text, {"age": 30 + number}).cost_line
        cost, left, *_ = line.split(" · ")
        charges.append(cost.removeprefix("cost "))
    ledger = session.sql("SHOW LEDGER")
    assert ledger["charge"] == charges
    panel = repr(session.budget_panel())
    told = report_text(session.account)
    page = unescape(write_page(make_report(session.account)))
    for charge in charges:
        assert re.search(rf"  {re.escape(charge)}  ", panel), charge
        assert re.search(rf"  {re.escape(charge)}  ", told), charge
        assert charge in page
    figure = left.partition(" of ")[0]
    assert figure in panel
    assert figure in told
    assert figure in page
    assert session.budget().sentence == left


def test_values_of_parameters_stand_in_the_ledger_and_in_the_report(start: Open) -> None:
    session = start()
    session.sql(
        "SELECT COUNT(*) AS n FROM visits WHERE age > $age AND plan IN ($plans)",
        {"age": 3, "plans": ["free"]},
    )
    session.sql("SELECT COUNT(*) AS n FROM visits WHERE plan = ?", ["x" * 99])
    session.sql("SELECT COUNT(*) AS n FROM visits WHERE plan = '$age'", {"age": 3})
    first, second, third = (entry.text for entry in session.ledger())
    assert first.endswith(" AND plan IN ($plans) /* $age = 3, $plans = ['free'] */")
    assert second.endswith("xx... */")
    assert len(second) < 140
    assert "/*" not in third, "what stands in a text is no parameter"
    assert session.sql("SHOW LEDGER")["text"][0] == first
    assert "/* $age = 3, $plans = ['free'] */" in unescape(write_page(make_report(session.account)))
