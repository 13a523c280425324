"""Reserve, settle, refuse, replay, shares: what the ledger promises while nothing goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.client.wire import read_state
from dpsql.errors import BudgetExceeded, LedgerError
from dpsql.ledger.ledger import KeptReleases, Ledger
from dpsql.privacy import conversions
from dpsql.privacy.codec import write_record
from dpsql.privacy.events import (
    Composed,
    DiscreteLaplace,
    GroupSelection,
    PureDP,
    RoundedGaussian,
    SparseVector,
    StableTest,
)
from dpsql.report.tables import BudgetPanel, list_budget, list_entries
from tests.support.ledgers import policy_of

Reopen = Callable[..., Ledger]
TENTH = PureDP(Fraction(1, 10))
SPARSE = SparseVector(Fraction(1, 10), Fraction(3, 10), 3)


def ask(
    ledger: Ledger, event: object = TENTH, text: str = "SELECT COUNT(*) FROM visits", key: str = ""
) -> None:
    ticket = ledger.reserve(event, text)  # type: ignore[arg-type]
    ledger.settle(ticket, ticket.event, KeptReleases({key: b"released"} if key else {}), "released")


def test_ten_tenths_make_one(ledger: Ledger) -> None:
    for _ in range(10):
        ask(ledger)
    with pytest.raises(BudgetExceeded):
        ledger.reserve(PureDP(Fraction(1, 10**30)), "one more")
    assert ledger.state().left_epsilon == 0


def test_a_million_small_charges_are_not_free(ledger: Ledger) -> None:
    ask(ledger, PureDP(Fraction(1, 10**17)))
    with pytest.raises(BudgetExceeded):
        ledger.reserve(PureDP(Fraction(1)), "all")


def test_the_refusal_says_what_would_fit(ledger: Ledger) -> None:
    ask(ledger, PureDP(Fraction(1, 5)))
    with pytest.raises(BudgetExceeded) as told:
        ledger.reserve(PureDP(Fraction(9, 10)), "too much")
    assert told.value.message == "This query costs ε=0.9; ε=0.8 of ε=1 is left."
    assert told.value.hint == "OPTIONS (epsilon = 0.8) would fit.  SHOW LEDGER shows where it went."
    ledger.reserve(PureDP(Fraction("0.8")), "what was said to fit")


def test_the_refusal_says_when_delta_is_short(ledger: Ledger) -> None:
    with pytest.raises(BudgetExceeded) as told:
        ledger.reserve(GroupSelection(Fraction(1, 10), Fraction(1, 10**5)), "groups")
    assert told.value.message == "This query costs ε=0.1, δ=1e-05; δ=1e-06 of δ=1e-06 is left for it."
    ledger.reserve(GroupSelection(Fraction(1, 10), Fraction(1, 10**6)), "groups")


def test_a_reservation_counts_in_full_until_settled(ledger: Ledger, reopen: Reopen) -> None:
    ticket = ledger.reserve(PureDP(Fraction(3, 5)), "long")
    other = reopen()
    assert other.state().left_epsilon == Fraction(2, 5)
    assert [e.outcome for e in other.entries()] == ["open"]
    with pytest.raises(BudgetExceeded):
        other.reserve(PureDP(Fraction(1, 2)), "too much now")
    ledger.settle(ticket, ticket.event, None, "released")
    assert other.state().left_epsilon == Fraction(2, 5)


@pytest.mark.parametrize("outcome", ["failed", "interrupted"])
def test_failure_keeps_the_whole_charge(ledger: Ledger, reopen: Reopen, outcome: str) -> None:
    ticket = ledger.reserve(SPARSE, "SELECT ABOVE_THRESHOLD(...)")
    kept = KeptReleases({"k": b"exact"}, {"k": b"exact"})
    ledger.settle(ticket, SparseVector(Fraction(1, 10), Fraction(3, 10), 3, 0), kept, outcome)
    again = reopen()
    assert again.state().spent_epsilon == Fraction(4, 10)
    assert again.entries()[0].outcome == outcome
    assert again.replay("k") is None


def test_hits_that_were_not_found_are_given_back_under_basic(ledger: Ledger, reopen: Reopen) -> None:
    ticket = ledger.reserve(SPARSE, "svt")
    ledger.settle(ticket, SparseVector(Fraction(1, 10), Fraction(3, 10), 3, 1), None, "released")
    assert ledger.state().spent_epsilon == Fraction(2, 10)
    assert reopen().state().spent_epsilon == Fraction(2, 10)


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
def test_hits_are_not_given_back_where_that_is_not_proved(path: Path, accountant: str) -> None:
    policy = policy_of(accountant=accountant)
    with Ledger.open(path, policy, "d") as ledger:
        ticket = ledger.reserve(SPARSE, "svt")
        before = ledger.state().left_epsilon
        ledger.settle(ticket, SparseVector(Fraction(1, 10), Fraction(3, 10), 3, 0), None, "released")
        assert ledger.state().left_epsilon == before
        fresh = SparseVector(Fraction(1, 10), Fraction(3, 10), 3, refresh=True)
        ticket = ledger.reserve(fresh, "rounds")
        before = ledger.state().left_epsilon
        ledger.settle(ticket, SparseVector(Fraction(1, 10), Fraction(3, 10), 3, 0, True), None, "released")
        assert ledger.state().left_epsilon > before


def test_a_settlement_can_only_be_cheaper_by_the_rule(ledger: Ledger) -> None:
    ticket = ledger.reserve(TENTH, "q")
    for event in (PureDP(Fraction(1, 5)), PureDP(Fraction(1, 20)), SPARSE, Composed((TENTH,))):
        with pytest.raises(LedgerError, match="More was used"):
            ledger.settle(ticket, event, KeptReleases({"k": b"never"}), "released")
    assert ledger.replay("k") is None
    assert ledger.state().spent_epsilon == Fraction(1, 10)
    ledger.settle(ticket, TENTH, KeptReleases({"k": b"yes"}), "released")
    with pytest.raises(LedgerError, match="settled already"):
        ledger.settle(ticket, TENTH, KeptReleases({"k": b"again"}), "released")
    with pytest.raises(ValueError, match="outcome"):
        ledger.settle(ticket, TENTH, None, "refunded")


def test_within() -> None:
    found = SparseVector(Fraction(1, 10), Fraction(3, 10), 3, 2)
    assert found.is_within(SPARSE)
    assert Composed((TENTH, found)).is_within(Composed((TENTH, SPARSE)))
    assert not SPARSE.is_within(found)
    assert Composed((found,)).is_within(Composed((SPARSE, TENTH)))  # the second never ran
    assert not Composed((TENTH, found)).is_within(Composed((SPARSE, TENTH)))
    assert not Composed((TENTH, TENTH)).is_within(Composed((TENTH, SPARSE)))
    assert not SparseVector(Fraction(1, 20), Fraction(3, 10), 3, 2).is_within(SPARSE)
    assert not SparseVector(Fraction(1, 10), Fraction(3, 10), 3, 2, True).is_within(SPARSE)


def test_refusals_are_logged_at_no_cost(ledger: Ledger, reopen: Reopen) -> None:
    ledger.refuse("SELECT * FROM visits", "rows can't be released")
    ledger.refuse("SELECT SUM(x) FROM visits", "too dear", PureDP(Fraction(7)))
    first, second = reopen().entries()
    assert (first.outcome, first.event, first.asked, first.charge("basic")) == ("refused", None, None, "0")
    assert second.asked == PureDP(Fraction(7))
    assert second.reason == "too dear"
    assert reopen().state().spent_epsilon == 0


def test_every_kind_of_event_survives(path: Path) -> None:
    events = [
        DiscreteLaplace(Fraction(1, 7), 1000, 3),
        RoundedGaussian(Fraction(100000), 4, Fraction(1, 100), Fraction(1, 10**9)),
        GroupSelection(Fraction(1, 10), Fraction(1, 10**9), 2),
        StableTest(Fraction(1, 10), Fraction(1, 10**9)),
        Composed((TENTH, SPARSE)),
    ]
    policy = policy_of(epsilon="5")
    with Ledger.open(path, policy, "d") as ledger:
        for event in events:
            ask(ledger, event)
        state = ledger.state()
    with Ledger.open(path, policy, "d") as again:
        assert [entry.event for entry in again.entries()] == events
        assert again.state() == state


# -- replay -----------------------------------------------------------------------------------


def test_an_answer_is_replayed_after_a_restart(ledger: Ledger, reopen: Reopen) -> None:
    ticket = ledger.reserve(TENTH, "q")
    assert ledger.replay("key") is None
    ledger.settle(ticket, TENTH, KeptReleases({"key": b"\x00arrow\xff"}), "released")
    again = reopen()
    stored = again.replay("key")
    assert (stored.release, stored.statement_id, stored.event) == (b"\x00arrow\xff", 1, TENTH)
    assert again.replay("other") is None
    assert again.state().spent_epsilon == Fraction(1, 10)
    assert len(again.entries()) == 1


@pytest.mark.parametrize("size", [999, 1000, 1001, 2000, 4321])
def test_a_large_answer_is_written_piece_by_piece(
    ledger: Ledger, reopen: Reopen, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("dpsql.ledger.answers._PIECE", 1000)
    for turn in range(2):  # the second takes the place of the first
        release = bytes((7 * i + turn) % 251 for i in range(size))
        ledger.settle(ledger.reserve(TENTH, "q"), TENTH, KeptReleases({"key": release}), "released")
    stored = reopen().replay("key")
    assert stored.release == release


def test_what_the_store_can_not_hold_is_answered_all_the_same(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.ledger.ledger.LARGEST_RELEASE", 10)
    ledger.settle(ledger.reserve(TENTH, "q"), TENTH, KeptReleases({"key": b"0123456789"}), "released")
    assert ledger.replay("key") is not None
    ledger.settle(ledger.reserve(TENTH, "q"), TENTH, KeptReleases({"more": b"0123456789a"}), "released")
    assert ledger.replay("more") is None
    assert ledger.state().spent_epsilon == Fraction(2, 10)
    assert [entry.outcome for entry in ledger.entries()] == ["released", "released"]


def test_a_fresh_answer_takes_the_place_of_the_old(ledger: Ledger) -> None:
    for release in (b"first", b"second"):
        ledger.settle(ledger.reserve(TENTH, "q"), TENTH, KeptReleases({"key": release}), "released")
    stored = ledger.replay("key")
    assert (stored.release, stored.statement_id) == (b"second", 2)
    assert ledger.state().spent_epsilon == Fraction(2, 10)


# -- shares -----------------------------------------------------------------------------------


def test_a_share_and_the_whole_must_both_admit(path: Path) -> None:
    policy = policy_of(more="[analysts.alice]\nepsilon = 0.5\n[analysts.bob]\nepsilon = 0.8\n")
    alice = Ledger.open(path, policy, "d", "alice")
    bob = Ledger.open(path, policy, "d", "bob")
    ask(alice, PureDP(Fraction(3, 10)))
    with pytest.raises(BudgetExceeded, match=r"ε=0\.2 of alice's ε=0\.5 is left"):
        alice.reserve(PureDP(Fraction(3, 10)), "beyond her share")
    ask(bob, PureDP(Fraction(6, 10)))
    state = bob.state()
    assert (state.left_epsilon, state.analyst) == (Fraction(1, 10), "bob")  # his share has 0.2, the whole 0.1
    assert state.about == 1
    assert state.sentence == "ε=0.2 of bob's ε=0.8 left, but only ε=0.1 of the whole"
    assert (
        "ε=0.2 of bob's ε=0.8 left, but only ε=0.1 of the whole; about 1 more question at" in state.bar_line
    )
    assert state.share == Fraction(3, 4)
    assert [row[6] for row in list_budget(state)[1]] == [0.1, 0.2]
    assert read_state(write_record(state)) == state
    with pytest.raises(BudgetExceeded, match=r"ε=0\.1 of ε=1 is left"):
        bob.reserve(PureDP(Fraction(2, 10)), "beyond the whole")
    nobody = Ledger.open(path, policy, "d")
    assert nobody.state().left_epsilon == Fraction(1, 10)
    assert [row[0] for row in list_budget(alice.state())[1]] == ["whole", "alice"]
    with pytest.raises(LedgerError, match="no share to 'alcie'") as told:
        Ledger.open(path, policy, "d", "alcie")
    assert told.value.hint == "did you mean alice?"


def test_names_without_shares_are_only_names(path: Path, policy: object) -> None:
    with Ledger.open(path, policy_of(), "d", "carol") as ledger:
        ask(ledger)
        assert ledger.entries()[0].analyst == "carol"


# -- interactive thresholds -------------------------------------------------------------------


def test_progress_of_a_threshold(ledger: Ledger) -> None:
    def hits(n: int) -> SparseVector:
        return SparseVector(Fraction(1, 10), Fraction(3, 10), 3, n)

    ticket = ledger.reserve(SPARSE, "DECLARE alarm")
    ticket.update(hits(0))
    ticket.update(hits(2))
    assert ledger.state().spent_epsilon == Fraction(4, 10)  # the whole, while it is open
    with pytest.raises(LedgerError, match="can't decrease"):
        ticket.update(hits(1))
    with pytest.raises(LedgerError, match="More was used"):
        ticket.update(PureDP(Fraction(1, 100)))
    ledger.settle(ticket, hits(2), None, "released")
    assert ledger.state().spent_epsilon == Fraction(3, 10)
    with pytest.raises(LedgerError, match="settled already"):
        ticket.update(hits(3))


# -- displays ---------------------------------------------------------------------------------


def test_the_text_of_the_budget(ledger: Ledger) -> None:
    ask(ledger, text="SELECT ABOVE_THRESHOLD(COUNT(*),\n 100, epsilon => 0.1, max_hits => 1) FROM visits")
    ledger.settle(ledger.reserve(TENTH, "SELECT 2"), TENTH, None, "failed")
    bar, head, first, second = BudgetPanel.of(ledger).text().splitlines()
    assert (
        bar
        == "ε=0.8 of ε=1 left; about 8 more questions at ε=0.1     ████░░░░░░░░░░░░░░░░  budget ε=1, δ=1e-06"
    )
    assert head.split() == ["when", "charge", "outcome", "cell"]
    shown = "SELECT ABOVE_THRESHOLD(COUNT(*), 100, epsilon..."
    assert first.split(maxsplit=3)[1:] == ["ε=0.1", "released", shown]
    assert second.split(maxsplit=3)[1:] == ["ε=0.1", "failed", "SELECT 2"]
    page = BudgetPanel.of(ledger).html()
    assert "<meter" in page
    assert "<p>ε=0.8 of ε=1 left; about 8 more questions at ε=0.1 <meter" in page
    assert "<script" not in page


def test_html_is_escaped(ledger: Ledger) -> None:
    ledger.refuse("SELECT '<img src=x>'", "<b>")
    assert "<img" not in BudgetPanel.of(ledger).html()


def test_relations(ledger: Ledger) -> None:
    ask(ledger)
    ledger.refuse("SELECT *", "no rows")
    names, rows = list_entries(ledger.entries(), ledger.accountant)
    assert names[0] == "statement"
    assert [row[0] for row in rows] == [1, 2]
    assert [row[names.index("epsilon")] for row in rows] == [0.1, 0.0]
    names, rows = list_budget(ledger.state())
    assert dict(zip(names, rows[0], strict=True))["left_epsilon"] == 0.9


def test_state_under_zcdp(path: Path) -> None:
    with Ledger.open(path, policy_of(accountant="zcdp"), "d") as ledger:
        for _ in range(60):
            ask(ledger, PureDP(Fraction(1, 50)))
        state = ledger.state()
        assert state.spent_epsilon == Fraction(60, 50)  # beyond the plain sum: the rule still has room
        assert 0 < state.left_epsilon < Fraction(1, 2)
        assert state.rule is not None
        assert f"{state.rule_text} of the rule used" in state.sentence
        assert state.sentence in BudgetPanel.of(ledger).text()
        ledger.reserve(PureDP(state.left_epsilon), "what was said to fit")


# -- in memory, threads -----------------------------------------------------------------------


def test_in_memory(tmp_path: Path, register: Path) -> None:
    with Ledger.open(None, policy_of(), "d") as ledger:
        ask(ledger, key="k")
        assert ledger.replay("k") is not None
        assert "this budget lasts for this process only" in BudgetPanel.of(ledger).text()
        with pytest.raises(BudgetExceeded):
            ledger.reserve(PureDP(Fraction(1)), "all")
    with pytest.raises(LedgerError, match="closed"):
        ledger.state()
    assert list(tmp_path.iterdir()) == []
    assert not register.exists()


def test_another_accountant_reads_the_same_events(path: Path) -> None:
    with Ledger.open(path, policy_of(accountant="basic"), "d") as ledger:
        for _ in range(40):
            ask(ledger, PureDP(Fraction(1, 50)))
        assert ledger.state().left_epsilon == Fraction(1, 5)
        with ledger.under("zcdp") as other:
            assert other.state().spent_epsilon == Fraction(4, 5)
            assert "of the rule" in other.state().detail
            assert "counted as zcdp would have" in other.notices[0]
            with pytest.raises(LedgerError):
                other.reserve(TENTH, "a copy can't be charged")
        with pytest.raises(LedgerError, match="no accountant"):
            ledger.under("moments")
        assert len(ledger.entries()) == 40
    with Ledger.read(path) as owner, pytest.raises(LedgerError, match="read-only"):
        owner.reserve(TENTH, "reading only")


def test_a_refusal_says_what_is_in_the_way(path: Path) -> None:
    with Ledger.open(path, policy_of(accountant="zcdp"), "d") as ledger:
        ask(ledger, PureDP(Fraction(1, 5)))
        ask(ledger, GroupSelection(Fraction(1, 5), Fraction(4, 10**7)))
        with pytest.raises(BudgetExceeded) as told:
            ledger.reserve(GroupSelection(Fraction(1, 5), Fraction(2, 10**7)), "groups")
        assert told.value.message.endswith("δ=1e-07 of δ=5e-07 is left for it.")
        assert str(told.value.hint).startswith("delta = 1e-07 would fit.")
        epsilon, delta = Fraction(3, 5), Fraction(1, 10**6)
        noise = RoundedGaussian(conversions.gaussian_sigma(epsilon, delta), 1, epsilon, delta)
        with pytest.raises(BudgetExceeded) as told:
            ledger.reserve(noise, "Gaussian noise")
        assert told.value.message.endswith("Gaussian noise does not fit the zcdp rule.")
        assert str(told.value.hint).startswith("noise = 'laplace' would fit.")
        ledger.reserve(PureDP(Fraction(3, 5)), "what was said to fit")
