"""Checks of ``answers = "own"``: the same draw, the share of whoever asks is debited, and the whole is not. With exact sums."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.errors import BudgetExceeded, LedgerError
from dpsql.ledger.answers import AnswerStore, hash_release
from dpsql.ledger.ledger import KeptReleases, Ledger
from dpsql.ledger.log_file import DEBIT_ALONE
from dpsql.ledger.upkeep import back_up, forget_before, restore_ledger, verify_ledger
from dpsql.policy.model import Policy
from dpsql.privacy.events import DiscreteLaplace, Event, PureDP, compose_events
from dpsql.report.data import make_report
from dpsql.report.pages import report_text, write_page
from tests.support.ledgers import policy_of

SHARES = "[analysts.ada]\nepsilon = 4\n[analysts.bob]\nepsilon = 4\n[analysts.cy]\nepsilon = 1\n"
NAMES = ("ada", "bob", "cy")


def rules(answers: str = "own", accountant: str = "basic") -> Policy:
    policy = policy_of(epsilon="8", accountant=accountant, more=SHARES)
    return Policy.loads(policy.dumps().replace("[budget]\n", f'[budget]\nanswers = "{answers}"\n'))


def ask(ledger: Ledger, key: str, event: Event, *, fresh: bool = False) -> str:
    """Ask as a session does, and say what it was: ``drawn``, ``debited`` or ``free``."""
    stored = None if fresh else ledger.replay(key)
    if stored is None:
        release = random.randbytes(8)
        ledger.settle(ledger.reserve(event, key), event, KeptReleases({key: release}), "released")
        return "drawn"
    if stored.debit is None:
        assert ledger.debit(key, {key: hash_release(stored.release)}) is None
        return "free"
    assert stored.debit == event
    assert ledger.debit(key, {key: hash_release(stored.release)}) == ledger.count
    return "debited"


def spent(ledger: Ledger) -> tuple[Fraction, Fraction]:
    """Return what was spent of the whole, and of the analyst's share."""
    state = ledger.state()
    return state.whole.spent_epsilon, state.spent_epsilon


@pytest.mark.parametrize("accountant", ["basic", "zcdp", "gdp"])
@pytest.mark.parametrize("answers", ["own", "shared"])
def test_the_sums_are_exact(path: Path, answers: str, accountant: str) -> None:
    """Random questions of three analysts: the whole is the sum of the draws, a share that of its own and of its debits."""
    chance, policy = random.Random(4), rules(answers, accountant)
    events = {f"k{i}": DiscreteLaplace(Fraction(1, 3 * i + 7), i + 1) for i in range(12)}
    whole, shares = Fraction(0), dict.fromkeys(NAMES, Fraction(0))
    # whose share has paid for the draw that is stored
    holds: dict[str, set[str]] = {name: set() for name in NAMES}
    with Ledger.open(path, policy, "d") as root:
        for _ in range(60):
            name, key = chance.choice(NAMES), chance.choice(list(events))
            fresh = chance.random() < 0.15
            drawn = fresh or not any(key in held for held in holds.values())
            wanted = "drawn" if drawn else "free" if key in holds[name] or answers == "shared" else "debited"
            assert ask(root.for_analyst(name), key, events[key], fresh=fresh) == wanted
            cost = events[key].basic[0]
            whole += cost * (wanted == "drawn")
            shares[name] += cost * (wanted != "free")
            for other in NAMES:
                if wanted == "drawn":
                    holds[other].discard(key)
            holds[name].add(key)
        for name in NAMES:
            assert spent(root.for_analyst(name)) == (whole, shares[name])
        charged = [e.event.basic[0] for e in root.entries() if e.event is not None]
        debited = [e.debit.basic[0] for e in root.entries() if e.debit is not None]
        assert sum(charged, Fraction(0)) == whole
        assert sum(charged + debited, Fraction(0)) == sum(shares.values())
        assert bool(debited) == (answers == "own")
    with Ledger.open(path, policy, "d", "bob") as again:  # folded from the file
        assert spent(again) == (whole, shares["bob"])
    assert verify_ledger(path).statements == len(charged) + len(debited)


def test_a_share_that_is_used_up_stops_stored_answers_of_others_only(path: Path) -> None:
    with Ledger.open(path, rules(), "d") as root:
        ada, cy = root.for_analyst("ada"), root.for_analyst("cy")
        ask(ada, "one", PureDP(Fraction(1, 2)))
        ask(ada, "two", PureDP(Fraction(3, 4)))
        assert ask(cy, "one", PureDP(Fraction(1, 2))) == "debited"
        before = [spent(ledger) for ledger in (ada, cy)]
        with pytest.raises(
            BudgetExceeded, match=r"stored answer costs ε=0.75 of cy's share; ε=0.5 of cy's ε=1 is left"
        ):
            ask(cy, "two", PureDP(Fraction(3, 4)))
        assert [spent(ledger) for ledger in (ada, cy)] == before
        assert ask(cy, "one", PureDP(Fraction(1, 2))) == "free"  # paid for already
        assert ask(ada, "two", PureDP(Fraction(3, 4))) == "free"  # who drew it


def test_what_is_drawn_and_what_is_shown_again_are_charged_together_or_not_at_all(path: Path) -> None:
    half, most = PureDP(Fraction(1, 2)), PureDP(Fraction(3, 4))
    with Ledger.open(path, rules(), "d") as root:
        ada, cy = root.for_analyst("ada"), root.for_analyst("cy")
        ask(ada, "one", most)
        stored = cy.replay("one")
        assert stored.debit == most
        debit = {"one": hash_release(stored.release)}
        count = root.count
        with pytest.raises(BudgetExceeded):
            cy.reserve(half, "both", debit)
        assert root.count == count
        assert spent(cy) == (Fraction(3, 4), Fraction(0))
        ticket = cy.reserve(PureDP(Fraction(1, 4)), "both", debit)
        assert spent(cy) == (Fraction(1), Fraction(1))  # reserved
        cy.settle(ticket, ticket.event, None, "failed")
        assert spent(cy) == (Fraction(1), Fraction(1))
        (entry,) = cy.entries(1)
        assert (entry.event, entry.debit, entry.outcome) == (ticket.event, most, "failed")
        assert entry.charge(cy.accountant) == "ε=0.25 and ε=0.75 of the share"
        again = cy.replay("one")
        assert again.debit is None
    verify_ledger(path)


def test_each_block_is_debited_for_its_own_loss_and_once(path: Path) -> None:
    """Two sessions of one analyst may have looked it up before either paid."""
    parts = {"one": PureDP(Fraction(1, 2)), "two": PureDP(Fraction(1, 3))}
    whole = compose_events(parts.values())
    with Ledger.open(path, rules(), "d") as root:
        ada, bob = root.for_analyst("ada"), root.for_analyst("bob")
        kept = KeptReleases({key: key.encode() for key in parts}, {}, parts)
        ada.settle(ada.reserve(whole, "both"), whole, kept, "released")
        stored = bob.replay("two")
        assert stored.debit == parts["two"]
        shown = {"two": hash_release(b"two")}
        assert bob.debit("two", shown) == 2
        assert bob.debit("two again", shown) is None
        assert bob.debit("both", {**shown, "one": hash_release(b"one")}) == 3
        assert spent(bob) == (Fraction(5, 6), Fraction(5, 6))
        with pytest.raises(LedgerError, match="was replaced meanwhile"):
            root.for_analyst("cy").debit("one", {"one": hash_release(b"another draw")})
        with pytest.raises(LedgerError, match="was replaced meanwhile"):
            root.for_analyst("cy").debit("none", {"none": hash_release(b"")})
    verify_ledger(path)


def test_a_checkpoint_holds_debits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.ledger.store.ROWS_BETWEEN_CHECKPOINTS", 7)
    policy, small = rules(), PureDP(Fraction(1, 100))
    with Ledger.open(path, policy, "d") as root:
        for i in range(20):
            ask(root.for_analyst("ada"), f"k{i}", small)
            assert ask(root.for_analyst("bob"), f"k{i}", small) == "debited"
    with Ledger.open(path, policy, "d", "bob") as bob:
        assert spent(bob) == (Fraction(1, 5), Fraction(1, 5))
    found = verify_ledger(path)
    assert found.checkpoints >= 5
    with Ledger.read(path).under("zcdp") as counted:
        assert counted.state().spent_epsilon == Fraction(1, 5)


def test_a_changed_or_forged_debit_shows(path: Path) -> None:
    import sqlite3

    with Ledger.open(path, rules(), "d") as root:
        ask(root.for_analyst("ada"), "k", PureDP(Fraction(1, 2)))
        ask(root.for_analyst("bob"), "k", PureDP(Fraction(1, 2)))
    verify_ledger(path)
    with sqlite3.connect(Path(f"{path}.d/answers")) as answers:
        answers.execute(
            "UPDATE answers SET key = replace(key, 'debited bob', 'debited cy') WHERE key LIKE 'debited%'"
        )
    with Ledger.open(path, rules(), "d", "cy") as cy:
        stored = cy.replay("k")
        assert stored.debit is not None  # a note in the side file is no debit
    with pytest.raises(LedgerError, match="has no such debit"):
        verify_ledger(path)


def test_texts_of_debits_are_forgotten_and_their_charges_stay(path: Path) -> None:
    tomorrow = date.today() + timedelta(days=2)
    with Ledger.open(path, rules(), "d") as root:
        ask(root.for_analyst("ada"), "secret name", PureDP(Fraction(1, 2)))
        ask(root.for_analyst("bob"), "secret name", PureDP(Fraction(1, 2)))
    forget_before(path, tomorrow)
    found = verify_ledger(path)
    assert (found.forgotten, found.answers) == (3, 0)  # two texts, and the answer's digest
    assert b"secret name" not in path.read_bytes()
    with Ledger.open(path, rules(), "d", "bob") as bob:
        assert spent(bob) == (Fraction(1, 2), Fraction(1, 2))


def test_debits_that_came_after_a_backup_are_written_off_to_their_shares(path: Path, tmp_path: Path) -> None:
    with Ledger.open(path, rules(), "d") as root:
        ask(root.for_analyst("ada"), "k", PureDP(Fraction(1, 2)))
    back_up(path, tmp_path / "copy")
    with Ledger.open(path, rules(), "d") as root:
        ask(root.for_analyst("bob"), "k", PureDP(Fraction(1, 2)))
        ask(root.for_analyst("bob"), "l", PureDP(Fraction(1, 4)))
    restore_ledger(path, tmp_path / "copy")
    verify_ledger(path)
    with Ledger.open(path, rules(), "d") as root:
        assert spent(root.for_analyst("bob")) == (Fraction(3, 4), Fraction(3, 4))
        assert spent(root.for_analyst("ada")) == (Fraction(3, 4), Fraction(1, 2))


@pytest.mark.parametrize("name", ["ADA", "Ada"])
def test_a_share_holds_whatever_the_case_of_the_name(path: Path, name: str) -> None:
    with Ledger.open(path, rules(), "d", name) as ledger:
        assert ledger.analyst == "ada"
        with pytest.raises(BudgetExceeded, match="ada's"):
            ledger.reserve(PureDP(Fraction(5)), "q")
        with pytest.raises(LedgerError, match="gives no share"):
            ledger.for_analyst("dora")


def test_the_owners_report_says_which_holds_and_what_shares_were_debited(path: Path) -> None:
    with Ledger.open(path, rules(), "d") as root:
        ask(root.for_analyst("ada"), "k", PureDP(Fraction(1, 2)))
        ask(root.for_analyst("bob"), "k", PureDP(Fraction(1, 2)))
        data = make_report(root)
        people = {p["who"]: (p["statements"], p["epsilon"], p["debited"]) for p in data["asked"]["people"]}
        assert people == {"ada": (1, 0.5, 0.0), "bob": (0, 0.0, 0.5)}
        assert data["refused"] == []
        assert data["left"]["charges"] == 1
        assert [e["outcome"] for e in data["asked"]["statements"]] == ["released", DEBIT_ALONE]
        assert "share alone" in write_page(data)
        assert "ε=0.5 of the share" in report_text(root)
        assert any("debited once to the share" in said for said in data["assumptions"]["sentences"])
    with Ledger.open(path.with_name("other"), rules("shared"), "e") as root:
        ask(root.for_analyst("ada"), "k", PureDP(Fraction(1, 2)))
        data = make_report(root)
        assert any("is free for every analyst" in said for said in data["assumptions"]["sentences"])
        assert "share alone" not in write_page(data)


# -- through sessions -------------------------------------------------------------------------------------------------

PLAIN = """
budget = {{ epsilon = 10, default_epsilon = 1, answers = "{}" }}
[tables]
visits = {{ source = "visits.parquet", privacy_unit = "person", max_rows = 1, max_groups = 1, \
    columns.age.bounds = [0, 100] }}
[analysts.ada]
epsilon = 8
[analysts.bob]
epsilon = 3
"""
ONE, TWO = "SELECT COUNT(*) AS n FROM visits", "SELECT SUM(age) AS s FROM visits"


@pytest.fixture
def sessions(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[dpsql.Session, dpsql.Session]]:
    (tmp_path / "p.toml").write_text(PLAIN.format(getattr(request, "param", "own")))
    pq.write_table(pa.table({"person": list(range(50)), "age": [40] * 50}), tmp_path / "visits.parquet")
    opened = [dpsql.connect(policy=tmp_path / "p.toml", analyst=name) for name in ("ada", "bob")]
    yield opened[0], opened[1]
    for session in opened:
        session.close()


def left(session: dpsql.Session) -> tuple[Fraction, Fraction]:
    state = session.budget()
    return state.whole.left_epsilon, state.left_epsilon


def test_a_session_says_whose_share_is_debited(sessions: tuple[dpsql.Session, dpsql.Session]) -> None:
    ada, bob = sessions
    first = ada.sql(ONE)
    assert left(bob) == (9, 3)
    explained = bob.explain(ONE)
    assert "Would cost ε=1 of bob's share and nothing more of the whole" in explained.price
    assert explained.event is None
    assert left(bob) == (9, 3)
    again = bob.sql(ONE)
    assert again.fetchall() == first.fetchall()  # the same draw
    assert left(bob) == (9, 2)
    assert again.loss == "ε=1 of bob's share"
    assert "ε=1 of bob's share · ε=2 of bob's ε=3 left" in again.cost_line
    assert again.statement_id == str(bob.ledger()[-1].statement_id)
    assert bob.ledger()[-1].outcome == DEBIT_ALONE
    assert bob.sql(ONE).loss == "no charge"
    assert ada.sql(ONE).loss == "no charge"
    assert left(bob) == (9, 2)
    rows = bob.sql("SHOW BUDGET").dicts()
    assert [row["answers"] for row in rows] == ["own", "own"]


def test_statements_that_are_partly_stored_pay_both_ways(
    sessions: tuple[dpsql.Session, dpsql.Session],
) -> None:
    ada, bob = sessions
    ada.sql(ONE)
    both = f"SELECT n, s FROM ({ONE}) AS a, ({TWO}) AS b"
    assert "ε=1 and ε=1 of bob's share" in bob.explain(both).price
    result = bob.sql(both)
    assert left(bob) == (8, 1)
    assert result.loss == "ε=1 and ε=1 of bob's share"
    with bob.plan() as plan:
        plan.sql(TWO)
        plan.sql(ONE)
    assert left(bob) == (8, 1)
    ada.sql("SELECT COUNT(*) FILTER (WHERE age > 3) AS n FROM visits", fresh=True)
    ada.sql("SELECT COUNT(*) FILTER (WHERE age > 4) AS n FROM visits", fresh=True)
    with pytest.raises(BudgetExceeded, match="of bob's share"), bob.plan() as plan:
        plan.sql("SELECT COUNT(*) FILTER (WHERE age > 3) AS n FROM visits")
        plan.sql("SELECT COUNT(*) FILTER (WHERE age > 4) AS n FROM visits")
    assert left(bob) == (6, 1)
    together = bob.explain(
        "SELECT COUNT(*) FILTER (WHERE age > 3) AS n FROM visits; SELECT COUNT(*) FILTER (WHERE age > 4) AS n FROM visits"
    )
    assert "more than is left" in together.price


@pytest.mark.parametrize("sessions", ["shared"], indirect=True)
def test_shared_answers_are_free(sessions: tuple[dpsql.Session, dpsql.Session]) -> None:
    ada, bob = sessions
    ada.sql(ONE)
    assert bob.sql(ONE).loss == "no charge"
    assert left(bob) == (9, 3)
    assert [row["answers"] for row in bob.sql("SHOW BUDGET").dicts()] == ["shared", "shared"]


def test_answers_in_memory_are_closed_with_their_ledger() -> None:
    """Python 3.13 warns of connections that are left open."""
    store = AnswerStore(None)
    store.put({"key": b"answer"}, 1)
    connection = store._connection
    store.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
