"""Terms of a ledger: what a session may change, what only the owner may, and what is noticed from
outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.errors import BudgetExceeded, LedgerError, PolicyError
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.terms import Terms
from dpsql.policy.model import Policy
from dpsql.privacy.events import Event, GroupSelection, PureDP
from tests.support.ledgers import policy_of

Reopen = Callable[..., Ledger]
TENTH = PureDP(Fraction(1, 10))
SHARES = "[analysts.alice]\nepsilon = 0.5\n"
OTHER = '[tables.other]\nprivacy_unit = "patient_id"\n'


def text_of(policy: Policy, **changes: str) -> Policy:
    text = policy.dumps()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return Policy.loads(text)


LOOSER = {
    "epsilon": (policy_of(epsilon="1.01"), "ε=1 and is now ε=1.01"),
    "delta": (policy_of(delta="2e-6"), "δ=1e-06 and is now δ=2e-06"),
    "delta though epsilon fell": (policy_of(epsilon="0.5", delta="2e-6"), "δ=1e-06 and is now δ=2e-06"),
    "accountant": (policy_of(accountant="zcdp"), "accountant was basic and is now zcdp"),
    "a private table more": (policy_of(more=OTHER), "private table other was added"),
    "another unit": (text_of(policy_of(), patient_id="person_id"), "unit of visits was patient_id"),
    "rows for units": (
        text_of(policy_of(), **{'"patient_id"': '"ROW"', "max_rows = 20": ""}),
        "and is now ROW",
    ),
}


@pytest.mark.parametrize("name", LOOSER)
def test_looser_terms_are_the_owners_to_give(ledger: Ledger, path: Path, reopen: Reopen, name: str) -> None:
    ledger.settle(ledger.reserve(TENTH, "q"), TENTH, None, "released")
    policy, why = LOOSER[name]
    with pytest.raises(LedgerError, match=why) as told:
        reopen(policy)
    assert "dpsql ledger adopt" in str(told.value.hint)
    change, *more = Ledger.adopt(path, policy, "visits.duckdb")
    assert why.split(" was ")[0] in change
    weaker = "unit" in why or "ROW" in why
    assert any("no longer protects each patient_id" in text for text in more) == weaker
    with reopen(policy) as again:
        assert again.state().spent_epsilon == Fraction(1, 10)
        assert any("the owner changed the terms" in notice for notice in again.notices)
    assert Ledger.adopt(path, policy, "visits.duckdb") == ()


def test_what_a_session_may_change(ledger: Ledger, reopen: Reopen) -> None:
    ledger.settle(ledger.reserve(TENTH, "q"), TENTH, None, "released")
    bounds = (
        text_of(policy_of(), **{"[0, 500]": "[0, 600]"}) if "[0, 500]" in policy_of().dumps() else policy_of()
    )
    public = policy_of(more="[tables.wards]\npublic = true\n")
    fewer = Policy.loads("[budget]\nepsilon = 1\ndelta = 1e-6\naccountant = 'basic'\n")
    for policy in (bounds, public, fewer, policy_of(more=SHARES), policy_of()):
        with reopen(policy) as again:
            assert again.state().spent_epsilon == Fraction(1, 10)


def test_a_smaller_budget_holds_at_once_and_may_come_back(ledger: Ledger, reopen: Reopen) -> None:
    ledger.settle(ledger.reserve(PureDP(Fraction(1, 2)), "q"), PureDP(Fraction(1, 2)), None, "released")
    with reopen(policy_of(epsilon="0.4", delta="0")) as tighter:
        assert tighter.state().left_epsilon == 0
        with pytest.raises(BudgetExceeded):
            tighter.reserve(PureDP(Fraction(1, 1000)), "no")
    assert reopen().state().left_epsilon == Fraction(1, 2)


def test_a_share_can_be_lowered_or_given_but_not_raised_or_dropped(path: Path) -> None:
    Ledger.open(path, policy_of(more=SHARES), "d").close()
    Ledger.open(path, policy_of(more=SHARES.replace("0.5", "0.4")), "d").close()
    Ledger.open(path, policy_of(more=SHARES + "[analysts.bob]\nepsilon = 1\n"), "d").close()
    with pytest.raises(LedgerError, match="share of alice was raised"):
        Ledger.open(path, policy_of(more=SHARES.replace("0.5", "0.6")), "d")
    with pytest.raises(LedgerError, match="share of alice was removed"):
        Ledger.open(path, policy_of(), "d")


def test_a_table_that_was_private_stays_known(path: Path) -> None:
    """Leaving a table out, adopting, and bringing it back as a public one is still noticed."""
    Ledger.open(path, policy_of(more=OTHER), "d").close()
    raised = policy_of(epsilon="2")
    assert Ledger.adopt(path, raised, "d")
    public = policy_of(epsilon="2", more="[tables.OTHER]\npublic = true\n")
    with pytest.raises(LedgerError, match="other was private and is now public"):
        Ledger.open(path, public, "d")


def test_another_data_set(ledger: Ledger, reopen: Reopen) -> None:
    with pytest.raises(LedgerError, match=r"belongs to other data: .* another database") as told:
        reopen(dataset="other.duckdb")
    assert "Spent budget stays spent" in str(told.value.hint)


def test_another_data_set_says_which_tables(path: Path) -> None:
    def write(files: dict[str, str]) -> Policy:
        tables = [f'[tables.{name}]\nsource = "{file}"\npublic = true\n' for name, file in files.items()]
        return policy_of(more="".join(tables))

    Ledger.open(path, write({"wards": "w1.csv", "codes": "c.csv"}), "d").close()
    with pytest.raises(LedgerError) as told:
        Ledger.open(path, write({"wards": "w2.csv", "days": "d.csv"}), "e")
    assert "wards was in w1.csv and is now in w2.csv" in told.value.message
    assert "days was added, in d.csv, codes, in c.csv, was left out" in told.value.message


def test_adopting_less_protection_is_told_loudly(path: Path) -> None:
    rows = text_of(policy_of(), **{'"patient_id"': '"ROW"', "max_rows = 20": ""})
    Ledger.open(path, policy_of(more=OTHER), "d").close()
    public = policy_of(more="[tables.other]\npublic = true\n")
    assert any(text.startswith("WARNING: other is public") for text in Ledger.adopt(path, public, "d"))
    assert any("single rows alone" in text for text in Ledger.adopt(path, rows, "d"))
    (warning,) = [text for text in Ledger.adopt(path, policy_of(), "d") if "WARNING" in text]
    assert "protect single rows only" in warning  # stronger from now on, and not for what was answered


def test_terms_round_trip() -> None:
    terms = Terms.of(policy_of(more=SHARES), "d")
    assert Terms.from_json(terms.to_json()) == terms
    for key, bad in [("epsilon", "-1"), ("epsilon", "nan"), ("delta", 0.1), ("units", 3), ("epsilon", "1/0")]:
        with pytest.raises(LedgerError, match="terms"):
            Terms.from_json({**terms.to_json(), key: bad})


# -- what is noticed from outside -------------------------------------------------------------


def test_a_deleted_ledger_is_not_a_fresh_budget(ledger: Ledger, path: Path, reopen: Reopen) -> None:
    ledger.settle(ledger.reserve(TENTH, "q"), TENTH, None, "released")
    ledger.close()
    path.unlink()
    with pytest.raises(LedgerError, match="was here and is gone"):
        reopen()
    assert not path.exists()
    with pytest.raises(LedgerError, match="was here and is gone"):
        Ledger.read(path)
    assert Ledger.adopt(path, policy_of(), "visits.duckdb", fresh=True) == ("a new ledger was begun",)
    with reopen() as anew:
        assert anew.state().spent_epsilon == 0
        assert any("earlier ledger of the same data" in notice for notice in anew.notices)


def test_an_older_copy_is_noticed(ledger: Ledger, path: Path, reopen: Reopen) -> None:
    ledger.settle(ledger.reserve(TENTH, "q"), TENTH, None, "released")
    ledger.close()
    older = path.read_bytes()
    with reopen() as again:
        again.reserve(PureDP(Fraction(1, 2)), "q")
    path.write_bytes(older)
    with pytest.raises(LedgerError, match="older or another copy"):
        reopen()
    changes = Ledger.adopt(path, policy_of(), "visits.duckdb")
    assert changes == ("this copy was put in place of a newer or another one",)
    with reopen() as adopted:
        assert adopted.state().spent_epsilon == Fraction(1, 10)


def test_another_ledger_in_its_place_is_noticed(
    ledger: Ledger, path: Path, tmp_path: Path, reopen: Reopen
) -> None:
    ledger.reserve(TENTH, "q")
    ledger.close()
    Ledger.open(tmp_path / "new.ledger", policy_of(), "visits.duckdb").close()
    (tmp_path / "new.ledger").replace(path)
    with pytest.raises(LedgerError, match="another ledger was here before"):
        reopen()


def test_a_second_ledger_for_the_same_data_is_noticed(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    assert ledger.notices == ()
    with Ledger.open(tmp_path / "second.ledger", policy_of(), "visits.duckdb") as second:
        assert any(path.name in notice and "another ledger" in notice for notice in second.notices)
    with Ledger.open(tmp_path / "third.ledger", policy_of(), "unrelated") as third:
        assert third.notices == ()


def test_a_copy_is_noticed_and_a_move_is_not(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    ledger.close()
    copied = tmp_path / "copy.ledger"
    copied.write_bytes(path.read_bytes())
    with Ledger.open(copied, policy_of(), "visits.duckdb") as copy:
        assert any("a copy of this ledger" in notice for notice in copy.notices)
    path.unlink()
    moved = tmp_path / "moved.ledger"
    copied.replace(moved)
    with Ledger.open(moved, policy_of(), "visits.duckdb") as ledger_moved:
        assert len(ledger_moved.notices) == 1  # the one from when it was a copy, kept in the log


def test_a_lost_mark_and_a_lost_register_stop_nobody(
    ledger: Ledger, path: Path, reopen: Reopen, register: Path
) -> None:
    mark = Path(f"{path}.d/mark")
    mark.unlink()
    (register / "ledgers.sqlite").write_bytes(b"not a database")
    with reopen() as again:
        again.reserve(TENTH, "q")
    assert mark.exists()
    mark.write_bytes(b"\xff\x00")
    reopen().close()


def test_a_ledger_through_a_symbolic_link_is_the_same(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.ledger"
    link.symlink_to(path)
    ledger.reserve(TENTH, "q")
    with Ledger.open(link, policy_of(), "visits.duckdb") as same:
        assert same.path == path
        assert same.notices == ()
        assert same.state().spent_epsilon == Fraction(1, 10)


# -- the share of delta for mechanisms --------------------------------------------------------


def split(share: str = "", epsilon: str = "1", delta: str = "1e-6", more: str = "") -> Policy:
    text = policy_of(epsilon, delta, "zcdp", more).dumps()
    return Policy.loads(
        text.replace("[budget]", f"[budget]\nmechanism_delta_share = {share}") if share else text
    )


def grouping(epsilon: str, delta: str) -> GroupSelection:
    return GroupSelection(Fraction(epsilon), Fraction(delta))


def charge(ledger: Ledger, *events: Event) -> None:
    for event in events:
        ledger.settle(ledger.reserve(event, "q"), event, None, "released")


def test_the_share_of_delta_is_the_owners(path: Path) -> None:
    with Ledger.open(path, split(), "d") as ledger:
        assert ledger.state().mechanism_delta == Fraction(1, 2) / 10**6
    for share in ("0.1", "0.6"):  # either way: what was admitted under one is not what the other would have
        with pytest.raises(LedgerError, match=f"share of delta for mechanisms was 0.5 and is now {share}"):
            Ledger.open(path, split(share), "d")
    assert Ledger.adopt(path, split("0.1"), "d") == (
        "the share of delta for mechanisms was 0.5 and is now 0.1",
    )
    with Ledger.open(path, split("0.1"), "d") as ledger:
        assert ledger.state().mechanism_delta == Fraction(1, 10**7)
    with Ledger.read(path) as ledger:
        assert ledger.state().mechanism_delta == Fraction(1, 10**7)


@pytest.fixture
def older(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger from before an owner could choose the share, with charges that were admitted then."""
    told = Terms.to_json
    with monkeypatch.context() as then:
        then.setattr(
            Terms, "to_json", lambda t: {k: v for k, v in told(t).items() if k != "mechanism_delta_share"}
        )
        with Ledger.open(path, split(), "d") as ledger:
            charge(ledger, PureDP(Fraction(1, 10)), grouping("0.1", "1e-8"))
    return path


def test_an_older_ledger_is_folded_anew_and_keeps_its_tenth(older: Path) -> None:
    with Ledger.open(older, split(), "d") as ledger:
        state = ledger.state()
        assert state.mechanism_delta == Fraction(1, 10**7)
        assert state.left_delta == Fraction(9, 10**8)
        assert state.left_epsilon == Fraction(8, 10)  # the plain sum goes on, though a delta was used
        with pytest.raises(BudgetExceeded):
            ledger.reserve(grouping("0.1", "2e-7"), "more delta than a tenth")
        charge(ledger, PureDP(Fraction(8, 10)))
    with Ledger.open(older, split("0.1"), "d") as ledger:  # said, and the same
        assert ledger.state().left_epsilon == 0
    with pytest.raises(LedgerError, match=r"was 0\.1 and is now 0\.3"):
        Ledger.open(older, split("0.3"), "d")
    assert Ledger.adopt(older, split(), "d") == ("the share of delta for mechanisms was 0.1 and is now 0.5",)
    with Ledger.open(older, split(), "d") as ledger:
        assert ledger.state().left_delta == Fraction(49, 10**8)


def test_an_older_ledger_of_sums_has_no_share(ledger: Ledger, path: Path) -> None:
    policy = Policy.loads(policy_of().dumps().replace("[budget]", "[budget]\nmechanism_delta_share = 0.2"))
    with Ledger.open(path, policy, "visits.duckdb") as again:
        assert again.state().mechanism_delta == Fraction(1, 10**6)


def test_a_session_under_a_smaller_budget_is_held_by_the_granted_one_too(path: Path) -> None:
    """Each looks at an order of its own: what one admits, the other might not."""
    Ledger.open(path, split(epsilon="1", delta="1e-6"), "d").close()
    tight = split(epsilon="1", delta="1e-9")
    with Ledger.open(path, tight, "d") as ledger:
        account = ledger._book.account
        own, kept = account.filters(None)
        assert own.filter.order > kept.filter.order
        event = PureDP(Fraction(1, 100))
        for _ in range(30):
            charge(ledger, event)
        assert own.spent.count == kept.spent.count == 30
        state = ledger.state()
        assert state.about == min(p.filter.more(p.spent, PureDP(Fraction(1, 10))) for p in (own, kept))
        assert state.left_epsilon == min(p.filter.fits(p.spent) for p in (own, kept))
    with Ledger.open(path, split(), "d") as ledger:
        assert len(ledger._book.account.filters(None)) == 1
        assert ledger.state().spent_epsilon == Fraction(3, 10)


def test_what_only_the_granted_terms_refuse_is_refused(path: Path) -> None:
    """A session that was opened before the owner lowered what is granted."""
    with Ledger.open(path, split(epsilon="2"), "d") as ledger:
        charge(ledger, PureDP(Fraction(1, 2)))
        body = {"terms": Terms.of(split(epsilon="1"), "d").to_json(), "changes": ["lower"], "user": ""}
        with ledger._book.writing() as (write, _):
            write("adopt", 0, body)
        assert ledger.state().left_epsilon == Fraction(1, 2)
        with pytest.raises(BudgetExceeded, match=r"ε=0\.5 of ε=1 is left"):
            ledger.reserve(PureDP(Fraction(1)), "within its own terms")
        assert ledger.find_excess(*[PureDP(Fraction(1, 4))] * 3) is not None
        assert ledger.find_excess(*[PureDP(Fraction(1, 4))] * 2) is None


def test_a_share_of_delta_that_makes_no_sense() -> None:
    for share in ("1", "-0.1", "2", '"half"'):
        with pytest.raises(PolicyError, match="mechanism_delta_share"):
            split(share)
    assert split("0").budget.mechanism_delta == 0
    assert split("0.5").dumps() == split().dumps()
    assert "mechanism_delta_share = 0.1" in split("0.1").dumps()


def test_terms_of_an_accountant_that_this_version_has_not_are_refused_in_a_sentence() -> None:
    """A ledger that a later version made: told apart by its name, without a failure on the way."""
    asked = Terms.of(policy_of(), "d")
    later = replace(asked, accountant="later")
    assert later.grants(asked) == ["the accountant was later and is now basic"]
    assert later.limits() != asked.limits()
