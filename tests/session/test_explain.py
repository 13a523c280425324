"""The chain behind an answer or a refusal: in Python, over the wire, in a notebook, and in the owner's report."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

import dpsql
from dpsql import BindError, BudgetExceeded, Error, Policy, PrivacyError, Session
from dpsql.client.wire import WireError, read_as
from dpsql.ledger.ledger import Ledger
from dpsql.privacy import events, filters
from dpsql.privacy.codec import write_record
from dpsql.privacy.periods import Dated
from dpsql.report.data import describe_mechanism, explain_entry, explain_statement
from dpsql.report.pages import report_text, write_report
from dpsql.session.explain import explain_why
from dpsql.session.explanation import Why, WhyPart
from dpsql.session.outcomes import AskedStatement
from tests.support.remote import connect_near

POLICY = """
budget = { epsilon = 10, delta = 1e-4, default_epsilon = 0.5, default_delta = 1e-6 }
[tables]
visits = { privacy_unit = "person", max_rows_per_group = 4, max_groups = 2, columns = { person = { type = "BIGINT" }, \
    ward = { type = "VARCHAR", values = ["A", "B"] }, city = { type = "VARCHAR" }, \
    age = { type = "BIGINT", bounds = [0, 100] } } }
"""
SECRET = 77_731
DATA = {
    "visits": {
        "person": [n // 2 for n in range(400)], "ward": ["A", "B"] * 200, "city": ["Delft"] * 399 + ["Nowhere-77731"],
        "age": [n % 90 for n in range(400)],
    },
}  # fmt: skip


@pytest.fixture
def session() -> Iterator[Session]:
    with dpsql.connect(DATA, policy=Policy.loads(POLICY)) as opened:
        yield opened


def part(why: Why, title: str) -> str:
    """Return the sentences of one part; empty where there is none."""
    return "\n".join(
        sentence for part in why.parts if part.title.startswith(title) for sentence in part.sentences
    )


def test_an_answer(session: Session) -> None:
    result = session.sql(
        "SELECT WITH DP OPTIONS (epsilon = 1) ward, COUNT(*) AS n, AVG(age) AS a FROM visits GROUP BY ward"
    )
    before = session.budget()
    why = session.why()
    assert session.budget() == before, "it spends nothing"
    assert why.outcome == "answered"
    assert "Each person in visits is protected, with at most 4 rows in one group" in part(
        why, "Who is protected"
    )
    bounded = part(why, "What was bounded")
    assert "clamped to [0, 100] (from the policy)" in bounded
    assert "n: count the rows" in bounded, "by the names of the statement"
    cost = part(why, "Where the cost comes from")
    assert f"It lost {result.loss}" in cost
    told = re.findall(r"(?:(\d+) times )?ε=([\d.]+): ", cost)
    assert sum(Fraction(e) * int(n or 1) for n, e in told) == result.event.basic[0], (
        "the parts add up to the whole"
    )
    assert session.budget().sentence in cost
    assert str(why).startswith(why.statement)
    assert "<li" in why.html()


def test_what_it_advises_is_what_explain_says(session: Session) -> None:
    text = "SELECT WITH DP OPTIONS (epsilon = {}) COUNT(*) AS n FROM visits"
    session.sql(text.format(1))
    advice = part(session.why(), "What would be cheaper or more exact")
    for epsilon, words in (("2", "for twice the cost"), ("0.5", "for half the cost")):
        explained = session.explain(text.format(epsilon)).errors
        own = explained.rows[0][1][explained.epsilons.index(explained.own)]
        assert f"ε={epsilon}, {words}: n within ±{own:.4g} instead of" in advice


def test_equal_blocks_are_one_draw_and_one_cost(session: Session) -> None:
    text = "SELECT (SELECT COUNT(*) FROM visits) - (SELECT COUNT(*) FROM visits) AS d"
    errors = session.explain(text).errors
    assert len(errors.rows) == 1
    assert errors.own == Fraction(session.sql(text).event.basic[0])  # type: ignore[union-attr]
    advice = part(session.why(), "What would be")
    assert f"ε={float(2 * errors.own):g}, for twice the cost" in advice
    session.sql(text)
    advice = part(session.why(), "What would be")
    assert f"ε={float(2 * errors.own):g}, twice as much, all of it paid anew" in advice


def test_looking_into_the_ledger_asks_nothing(session: Session) -> None:
    session.sql("SELECT COUNT(*) AS n FROM visits")
    session.sql("SHOW LEDGER; SHOW BUDGET")
    assert session.why().statement == "SELECT COUNT(*) AS n FROM visits"


def test_fewer_rows_of_a_unit_are_as_much_better_as_it_says(session: Session) -> None:
    session.sql("SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM visits")
    assert "Up to 4 rows of one privacy unit count" in part(session.why(), "What would be")
    session.sql("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward")
    assert "One privacy unit counts for up to" in part(session.why(), "What would be")
    text = "SELECT WITH DP OPTIONS (epsilon = 1{}) COUNT(*) AS n FROM visits"
    told = (session.explain(text.format(more)) for more in ("", ", max_rows_contributed = 1"))
    plain, capped = (explanation.expected_error["n"] for explanation in told)
    assert plain > 3 * capped
    session.sql("SELECT WITH DP OPTIONS (epsilon = 1, max_rows_contributed = 1) COUNT(*) AS n FROM visits")
    assert "Up to" not in part(session.why(), "What would be")


def test_private_groups(session: Session) -> None:
    session.sql("SELECT WITH DP OPTIONS (epsilon = 1) city, COUNT(*) AS n FROM visits GROUP BY city")
    why = session.why()
    assert "choosing which private groups may be shown" in part(why, "Where the cost")
    assert "declares the column's values" in part(why, "What would be")


def test_a_stored_answer(session: Session) -> None:
    for _ in range(2):
        session.sql("SELECT COUNT(*) AS n FROM visits")
    why = session.why()
    assert why.outcome == "shown again"
    assert "No charge: it is stored since" in part(why, "Where the cost")


@pytest.mark.parametrize(
    ("text", "kind", "rule"),
    [
        ("SELECT * FROM visits", PrivacyError, "become public only through a mechanism"),
        ("SELECT nothing FROM visits", BindError, "no private row was read"),
        ("SELEC 1", dpsql.ParseError, "no data were read"),
        (
            "SELECT WITH DP OPTIONS (epsilon = 20) COUNT(*) AS n FROM visits",
            BudgetExceeded,
            "compared with the remaining budget",
        ),
    ],
)
def test_a_refusal(session: Session, text: str, kind: type[Error], rule: str) -> None:
    with pytest.raises(kind) as caught:
        session.sql(text)
    why = session.why()
    assert (why.outcome, why.statement) == ("refused", text)
    told = part(why, "Why it was refused")
    assert caught.value.message.lower().rstrip(".") in told.lower()
    assert rule in told
    assert "All rows of any one person in visits are protected." in part(why, "Who") or "Each person" in part(
        why, "Who"
    )
    assert "Nothing was charged." in part(why, "Where the cost")
    if caught.value.hint:
        assert caught.value.hint.lower().rstrip(".") in part(why, "What to write instead").lower()


def test_what_does_not_fit_is_told_with_what_would(session: Session) -> None:
    with pytest.raises(BudgetExceeded):
        session.sql("SELECT WITH DP OPTIONS (epsilon = 20) COUNT(*) AS n FROM visits")
    why = session.why()
    assert "It would have lost ε=20" in part(why, "Where the cost")
    assert "ε=20: discrete Laplace noise on one number." in part(why, "Where the cost")
    assert re.search(r"ε=10 would fit: n within ±[\d.]+ instead of", part(why, "What to write instead"))


def test_other_statements(session: Session) -> None:
    session.sql("SHOW BUDGET")
    assert part(session.why(), "Where the cost") == "It reads nothing private, and costs nothing."
    session.sql("SELECT 1")
    assert session.why().outcome == "free"
    session.sql("DECLARE alarm ABOVE_THRESHOLD 100 OPTIONS (epsilon = 1, max_hits = 2)")
    assert "It set aside ε=1" in part(session.why(), "Where the cost")
    session.sql("CLOSE alarm")
    assert "of which 0 were found" in part(session.why(), "Where the cost")
    session.explain("SELECT COUNT(*) FROM visits")
    assert session.why().statement == "CLOSE alarm", "to look at a price is no question"


def test_a_declared_plan_and_several_statements(session: Session) -> None:
    with session.plan() as plan:
        plan.sql("SELECT COUNT(*) AS a FROM visits")
        plan.sql("SELECT SUM(age) AS b FROM visits")
    assert session.why().statement == "SELECT SUM(age) AS b FROM visits"
    assert "one of a declared plan" in part(session.why(), "Notes on the answer").lower()
    with pytest.raises(BudgetExceeded):
        session.sql("SELECT 1; SELECT WITH DP OPTIONS (epsilon = 20) COUNT(*) AS n FROM visits; SELECT 2")
    assert session.why().statement == "SELECT WITH DP OPTIONS (epsilon = 20) COUNT(*) AS n FROM visits"


def test_nothing_was_asked(session: Session) -> None:
    with pytest.raises(BindError, match="nothing was asked yet"):
        session.why()


def test_it_holds_nothing_that_was_not_paid_for(session: Session) -> None:
    """Neither a value of the data, nor a released row, nor a traceback whose frames might hold one."""
    with pytest.raises(Error):
        session.sql(f"SELECT nothing FROM visits WHERE city = 'Nowhere-{SECRET}'")
    asked = session._pipeline.last
    assert asked.error.__traceback__ is None
    assert asked.error.__context__ is None
    result = session.sql("SELECT WITH DP OPTIONS (epsilon = 5) city, COUNT(*) AS n FROM visits GROUP BY city")
    assert "Delft" in result["city"]
    told = str(session.why())
    assert "Delft" not in told
    assert "77731" not in told
    del result
    gc.collect()
    held = session._pipeline.last
    assert held is not None
    assert not any(hasattr(value, "num_rows") for value in vars(held).values())


def test_an_engine_that_fails_says_no_more(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session._pipeline._blocks, "draw_all", lambda prepared, draw: "failed")
    with pytest.raises(dpsql.EngineError):
        session.sql("SELECT COUNT(*) AS n FROM visits")
    why = session.why()
    assert why.outcome == "failed"
    assert "The reason of the failure is withheld" in part(why, "Why it was failed")
    assert "It lost ε=0.5" in part(why, "Where the cost"), "the charge stays"


# -- over the wire, and in a notebook


def test_a_remote_session_tells_the_same(session: Session) -> None:
    remote, _ = connect_near(session)
    with pytest.raises(BindError, match="nothing was asked yet"):
        remote.why()
    remote.sql("SELECT COUNT(*) AS n FROM visits")
    assert remote.why() == session.why()
    assert str(remote.why()) == str(session.why())
    with pytest.raises(PrivacyError):
        remote.sql("SELECT * FROM visits")
    assert remote.why().outcome == "refused"
    assert "SELECT COUNT(*)" in part(remote.why(), "What to write instead")


def test_what_is_no_chain_is_refused() -> None:
    why = Why("SELECT 1", "free", (WhyPart("Where", ("It costs nothing.",)),))
    assert read_as(Why, json.loads(json.dumps(write_record(why)))) == why
    for body in (
        None,
        {},
        {"statement": 1},
        {**write_record(why), "parts": [1]},
        {**write_record(why), "outcome": None},
    ):
        with pytest.raises(WireError):
            read_as(Why, body)


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell()
    shell.user_ns["frames"], shell.user_ns["policy"] = DATA, POLICY
    shell.run_cell(
        "import dpsql, pathlib, tempfile; p = pathlib.Path(tempfile.mkdtemp()) / 'p.toml'; p.write_text(policy)"
    )
    shell.run_cell("%load_ext dpsql")
    shell.run_cell("%dpsql connect frames --policy $p")
    yield shell
    shell.run_cell("%dpsql close")
    shell.run_cell("%unload_ext dpsql")


def test_the_magic(shell: InteractiveShell) -> None:
    def ask(cell: str) -> Why:
        shell.run_cell(cell)
        shell.run_cell("told = %dpsql why")
        found = shell.user_ns["told"]
        assert isinstance(found, Why)
        return found

    assert ask("%%dpsql\nSELECT COUNT(*) AS n FROM visits").outcome == "answered"
    assert ask("%%dpsql\nSELECT * FROM visits").outcome == "refused"
    assert "{{city}}" in ask("%%dpsql\nSELECT '{{city}}'").statement, "refused before a session heard of it"
    assert "nothing" in ask("%%dpsql --explain\nSELECT nothing FROM visits").statement
    assert ask("%%dpsql\nSELECT 1 AS one").outcome == "free", "what a session heard of comes after"
    bundle = shell.user_ns["told"]._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}


def test_the_last_answer_of_any_session(shell: InteractiveShell) -> None:
    def ask(cell: str) -> Why:
        return shell.run_cell(cell).result  # type: ignore[no-any-return]

    shell.user_ns["beside"] = Path(shell.user_ns["p"]).with_suffix(".other")
    shell.run_cell("%dpsql connect frames --policy $p --session other --ledger $beside")
    shell.run_cell("%dpsql sessions main")
    shell.run_cell("%%dpsql --session other\nSELECT COUNT(*) AS n FROM visits WHERE age > 3")
    assert "age > 3" in ask("%dpsql why").statement, "it was asked of another session than the current one"
    shell.run_cell("%%dpsql\nSELECT COUNT(*) AS n FROM visits WHERE age > 4")
    shell.run_cell("%dpsql sessions other")
    assert "age > 4" in ask("%dpsql why").statement, "the current session was asked nothing since"
    assert "age > 3" in ask("%dpsql why other").statement
    shell.run_cell("%dpsql close other")
    shell.run_cell("%dpsql sessions main")


def test_a_statement_is_text_and_no_markup() -> None:
    asked = AskedStatement("SELECT '<script>alert(1)</script>'", done="free")
    policy = Policy.loads(POLICY)
    with dpsql.connect(DATA, policy=policy) as session:
        assert "<script>" not in explain_why(asked, session.account, policy).html()


# -- for the owner


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    place = tmp_path / "v.ledger"
    with dpsql.connect(DATA, policy=Policy.loads(POLICY), ledger=place) as session:
        session.sql("SELECT WITH DP OPTIONS (epsilon = 1) city, COUNT(*) AS n FROM visits GROUP BY city")
        with pytest.raises(PrivacyError):
            session.sql("SELECT city FROM visits")
        session.sql("DECLARE alarm ABOVE_THRESHOLD 100 OPTIONS (epsilon = 1)")
        session.sql("CLOSE alarm")
    return place


def test_the_report_tells_the_chain_of_each_statement(ledger: Path, tmp_path: Path) -> None:
    with Ledger.read(ledger) as opened:
        first, refused, declared = opened.entries()
        told = "\n".join(explain_entry(first, opened.accountant, opened.policy))
        assert "Protected in visits: all rows of any one person." in told
        assert "choosing which private groups may be shown" in told
        assert "Cheaper: declare the values of the grouping column" in told
        told = "\n".join(explain_entry(refused, opened.accountant, opened.policy))
        assert refused.reason in told
        assert "Nothing was charged." in told
        told = "\n".join(explain_entry(declared, opened.accountant, None))
        assert "of ε=1 was used; this accountant charges the whole." in told
        assert explain_statement(opened, 1).startswith(f"1: {first.text}\n")
        with pytest.raises(BindError, match="no statement 9"):
            explain_statement(opened, 9)
        text = report_text(opened)
        assert "dpsql report v.ledger --why 3 explains statement 3" in text
        assert re.search(r"^ +1 +[\d: -]+ .*SELECT WITH DP", text, re.M)  # the number that --why takes
        assert re.search(
            r"who +statements +charged +of\n +\S+ +2 +ε=2 +the whole\n Sums by person: plain sums", text
        )
        page = write_report(opened, None, tmp_path / "r.html").read_text()
        assert page.count("<summary>why</summary>") == 3
        body = json.loads(write_report(opened, None, tmp_path / "r.json").read_text())
    assert body["asked"]["statements"][0]["why"][0].startswith("Protected in visits")


def test_every_kind_of_event_has_words() -> None:
    assert filters.ACCOUNTANTS
    for kind in events.KINDS.values():
        if issubclass(kind, events.EventList | Dated):  # they have other events inside
            continue
        blank = object.__new__(kind)
        for name, value in (
            ("count", 1),
            ("hits", None),
            ("max_hits", 1),
            ("sigmas", (1, 2)),
            ("most", Fraction(1)),
        ):
            object.__setattr__(blank, name, value)
        assert describe_mechanism(blank) != kind.kind.replace("_", " "), f"{kind.__name__} is described"
