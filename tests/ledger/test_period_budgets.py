"""Budgets per period: each period's sums are those of an independent fold over the log, and each filter holds."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import json
import random
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dpsql.errors import BudgetExceeded, LedgerError
from dpsql.ledger import accounts, store
from dpsql.ledger.answers import hash_release
from dpsql.ledger.ledger import KeptReleases, Ledger
from dpsql.ledger.log_file import Said, hash_row
from dpsql.ledger.terms import Terms
from dpsql.ledger.upkeep import verify_ledger
from dpsql.policy.model import Policy
from dpsql.privacy import filter_states
from dpsql.privacy.accountants import Spent
from dpsql.privacy.events import (
    Composed,
    DiscreteLaplace,
    Event,
    GroupSelection,
    JointGaussian,
    PureDP,
    SparseVector,
    compose_events,
)
from dpsql.privacy.filters import ACCOUNTANTS, open_filter
from dpsql.privacy.periods import Days, date_event, parse_periods
from dpsql.report.data import make_report
from dpsql.report.pages import report_text, write_page
from dpsql.report.tables import list_budget

POLICY = """
[budget]
epsilon = 1
delta = 1e-6
accountant = "zcdp"
per_period = true
[tables.visits]
privacy_unit = "pid"
privacy_period = "date_trunc('month', day)"
data_from = 2024-01-01
data_until = 2024-12-31
max_rows = 3
"""
HALF, TENTH = PureDP(Fraction(1, 2)), PureDP(Fraction(1, 10))
PAIR = (Fraction(1, 10), Fraction(1, 10**8))


def policy_of(accountant: str = "zcdp", change: tuple[str, str] = ("", "")) -> Policy:
    return Policy.loads(POLICY.replace('"zcdp"', f'"{accountant}"').replace(*change))


def months(*texts: str) -> Days:
    return parse_periods(f"2024-{text}" for text in texts)


def ask(ledger: Ledger, event: Event, periods: Days | None, used: Event | None = None) -> None:
    ticket = ledger.reserve(date_event(event, periods), "a statement")
    ledger.settle(
        ticket, ticket.event if used is None else date_event(used, periods), KeptReleases(), "released"
    )


def left(ledger: Ledger) -> dict[str, Fraction]:
    return {state.period: state.left_epsilon for state in ledger.state().stretches}


def say_left(ledger: Ledger, *texts: str) -> str:
    """Return what is left in some months, and where, as a cost line says it."""
    return ledger.say_left(date_event(TENTH, months(*texts))).removeprefix("ε=").replace(" of ε=1 left", "")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "l.ledger", policy_of("basic"), "data")


def test_each_period_has_a_budget_of_its_own(ledger: Ledger) -> None:
    ask(ledger, HALF, months("03"))
    ask(ledger, HALF, months("03", "05"))
    ask(ledger, HALF, months("07"))
    half, whole = Fraction(1, 2), Fraction(1)
    assert left(ledger) == {
        "2024-01 to 2024-02": whole, "2024-03": 0, "2024-04": whole, "2024-05": half, "2024-06": whole, "2024-07": half,
        "2024-08 to 2024-12": whole,
    }  # fmt: skip
    assert ledger.state().sentence == ledger.say_left() == "ε=0 of ε=1 left in 2024-03"
    asked = [say_left(ledger, *texts) for texts in (("05",), ("05", "07"), ("04 to 2024-05",), ("11",))]
    assert asked == ["0.5 in 2024-05", "0.5 in 2024-05 and 2024-07", "0.5 in 2024-05", "1 in 2024-11"]
    names, rows = list_budget(ledger.state())
    assert (names[0], [row[0] for row in rows]) == ("period", [*left(ledger)])


def test_a_refusal_names_the_fullest_period_and_what_would_fit(ledger: Ledger) -> None:
    ask(ledger, PureDP(Fraction("0.4")), months("03"))
    ask(ledger, PureDP(Fraction("0.9")), months("05"))
    with pytest.raises(BudgetExceeded) as told:
        ledger.reserve(date_event(PureDP(Fraction("0.7")), months("01 to 2024-06")), "half a year")
    assert told.value.message == "This query costs ε=0.7; in 2024-05, ε=0.1 of ε=1 is left."
    hint = "OPTIONS (periods = ('2024-01 to 2024-02', '2024-04', '2024-06')) would fit."
    assert str(told.value.hint).startswith(hint)
    ledger.reserve(
        date_event(PureDP(Fraction("0.7")), months("01 to 2024-02", "04", "06")), "what was said to fit"
    )


def test_what_has_no_period_is_charged_to_all_of_them_for_ever(ledger: Ledger) -> None:
    ask(ledger, HALF, months("03"))
    ask(ledger, PureDP(Fraction(2, 5)), None)
    with pytest.raises(BudgetExceeded, match=r"in 2024-03, ε=0.1 of ε=1 is left"):
        ledger.reserve(HALF, "everything")
    later = Ledger.open(ledger.path, policy_of("basic", ("2024-12-31", "2030-12-31")), "data")
    with pytest.raises(BudgetExceeded, match=r"in 2030-01, ε=0.6 of ε=1 is left"):
        later.reserve(date_event(PureDP(Fraction("0.7")), parse_periods(["2030-01"])), "later")


@pytest.mark.parametrize(
    "period", ["2025-01", "2023-12", "2024-03-01", "2024-03-05 to 2024-04-30", "0001 to 9999"]
)
def test_periods_that_the_policy_lacks_are_never_written(ledger: Ledger, period: str) -> None:
    event = compose_events([HALF, date_event(TENTH, parse_periods([period]))])
    with pytest.raises(LedgerError, match="periods that the policy doesn't have"):
        ledger.reserve(event, "q")
    assert ledger.count == 0


def test_days_out_of_range_are_no_event() -> None:
    for periods in (
        [],
        [[0, 5]],
        [[5, 10**7]],
        [[9, 5]],
        [[1, 5], [3, 9]],
        [[20, 30], [1, 5]],
        [[1, 5], [5, 9]],
    ):
        with pytest.raises(ValueError, match="periods"):
            Event.from_json({"kind": "dated", "event": HALF.to_json(), "periods": periods})
    inner = date_event(HALF, months("03")).to_json()
    with pytest.raises(ValueError, match="single undated"):
        Event.from_json({"kind": "dated", "event": inner, "periods": [[1, 5]]})


def test_what_never_ran_is_not_charged_to_its_period(ledger: Ledger) -> None:
    first, second = date_event(HALF, months("01")), date_event(HALF, months("02"))
    ticket = ledger.reserve(compose_events([first, second]), "two blocks")
    assert left(ledger)["2024-01 to 2024-02"] == Fraction(1, 2)
    ledger.settle(ticket, Composed((first,)), None, "released")
    assert left(ledger) == {"2024-01": Fraction(1, 2), "2024-02 to 2024-12": 1}


def test_a_stored_answer_of_another_debits_the_share_in_its_periods(tmp_path: Path) -> None:
    shares = "[analysts.ana]\nepsilon = 0.6\n[analysts.bob]\nepsilon = 1\n[tables"
    policy = Policy.loads(POLICY.replace('"zcdp"', '"basic"\nanswers = "own"').replace("[tables", shares))
    ana = Ledger.open(tmp_path / "l.ledger", policy, "data", "ana")
    bob = ana.for_analyst("bob")
    parts = {"a": date_event(HALF, months("03")), "b": date_event(TENTH, months("05"))}
    ticket = bob.reserve(compose_events(parts.values()), "two blocks")
    answers = {"a": b"March", "b": b"May"}
    bob.settle(ticket, ticket.event, KeptReleases(answers, events=parts), "released")
    ana.debit("again", {"a": hash_release(b"March")})
    share = {s.period: s.share_left or s.left_epsilon for s in ana.state().stretches}
    assert share["2024-03"] == TENTH.epsilon
    assert share["2024-04"] == share["2024-05"] == Fraction(3, 5)
    with pytest.raises(BudgetExceeded, match="in 2024-03"):
        ana.reserve(date_event(PureDP(Fraction(1, 5)), months("03")), "more")


def test_the_report_says_what_each_period_has_left_and_what_a_whole_person_may_lose(ledger: Ledger) -> None:
    ask(ledger, HALF, months("03"))
    page, text = write_page(make_report(ledger)), report_text(ledger)
    assert "  2024-03: ε=0.5 spent, ε=0.5 left" in text
    assert "a person's rows in k periods count as k units" in text
    assert "2024-04 to 2024-12" in page
    assert [e.charge("basic") for e in ledger.entries()] == ["ε=0.5 for 2024-03"]


@pytest.mark.parametrize("periods", [months("02"), months("01 to 2024-02"), None])
def test_a_settlement_moves_no_charge_to_another_period(ledger: Ledger, periods: Days | None) -> None:
    ticket = ledger.reserve(date_event(HALF, months("01")), "January")
    with pytest.raises(LedgerError, match="More was used"):
        ledger.settle(ticket, date_event(HALF, periods), None, "released")
    assert left(ledger)["2024-01"] == Fraction(1, 2)


def test_shares_are_per_period_too(tmp_path: Path) -> None:
    policy = policy_of(
        "basic", ("[tables", "[analysts.ana]\nepsilon = 0.6\n[analysts.bob]\nepsilon = 1\n[tables")
    )
    ana = Ledger.open(tmp_path / "l.ledger", policy, "data", "ana")
    bob = ana.for_analyst("bob")
    ask(ana, HALF, months("03"))
    with pytest.raises(BudgetExceeded, match=r"in 2024-03, ε=0.1 of ana's ε=0.6 is left"):
        ana.reserve(date_event(HALF, months("03")), "more")
    ask(bob, HALF, months("03"))
    with pytest.raises(BudgetExceeded, match=r"in 2024-03, ε=0 of ε=1 is left"):
        ana.reserve(date_event(TENTH, months("03")), "more")
    ask(ana, HALF, months("04"))
    assert all(state.whole is not None for state in ana.state().stretches)
    assert (left(ana)["2024-04"], left(bob)["2024-04"]) == (Fraction(1, 10), Fraction(1, 2))


# -- against an independent fold ------------------------------------------------------------------------------------------


def project(body: Mapping[str, Any], day: int) -> list[Event]:
    """Return an event's parts that a unit of a day's period may lose, from its JSON."""
    if body["kind"] == "dated":
        return project(body["event"], day) if any(a <= day < b for a, b in body["periods"]) else []
    if body["kind"] == "composed":
        return [event for part in body["events"] for event in project(part, day)]
    return [Event.from_json(body)]


def draw_event(rng: random.Random) -> tuple[Event, Event]:
    """Return an event, and what is used of it."""
    epsilon = Fraction(rng.randrange(1, 30), 100)
    event = rng.choice([
        PureDP(epsilon), DiscreteLaplace(epsilon, 3, 2), GroupSelection(epsilon, Fraction(1, 10**8)),
        JointGaussian((Fraction(200),), (2,), *PAIR), SparseVector(epsilon / 3, epsilon, 3),
        Composed((PureDP(epsilon / 2), DiscreteLaplace(epsilon / 2, 2))),
    ])  # fmt: skip
    used = SparseVector(event.epsilon1, event.epsilon2, 3, 1) if isinstance(event, SparseVector) else event
    return event, used


def draw_periods(rng: random.Random) -> Days | None:
    if rng.random() < 0.1:
        return None
    low = rng.randrange(1, 13)
    texts = [f"{low:02} to 2024-{min(12, low + rng.randrange(4)):02}"] + [
        f"{rng.randrange(1, 13):02}"
    ] * rng.randrange(2)
    return months(*texts)


def fill(ledger: Ledger, rng: random.Random, statements: int) -> int:
    """Ask random statements, some of two blocks, and return how many were refused."""
    refused = 0
    for _ in range(statements):
        pairs = [(*draw_event(rng), draw_periods(rng)) for _ in range(rng.choice([1, 1, 2]))]
        event = compose_events(date_event(event, days) for event, _, days in pairs)
        used = compose_events(date_event(used, days) for _, used, days in pairs)
        try:
            ticket = ledger.reserve(event, "SELECT")
        except BudgetExceeded:
            refused += 1
            held, spent = ledger.accountant, fold_days(ledger)
            parts = {day: project(event.to_json(), day) for day in spent}
            assert any(p and not held.admits(spent[day], compose_events(p)) for day, p in parts.items())
            continue
        outcome = rng.choice(["released", "released", "failed", "open"])
        if outcome != "open":
            with suppress(LedgerError):
                ledger.settle(ticket, used if outcome == "released" else event, None, outcome)
    return refused


DAYS = [datetime.date(2024, month, 15).toordinal() for month in range(1, 13)]


def fold_days(ledger: Ledger) -> dict[int, Any]:
    """Return the sums of each month by the entries alone."""
    held = ledger.accountant
    spent = dict.fromkeys(DAYS, held.start)
    for entry in ledger.entries():
        for day in DAYS if entry.event is not None else ():
            if parts := project(entry.event.to_json(), day):  # type: ignore[union-attr]
                spent[day] = held.add(spent[day], compose_events(parts))
    return spent


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_each_pairs_loss_is_within_the_budget_by_an_independent_fold(
    tmp_path: Path, accountant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "ROWS_BETWEEN_CHECKPOINTS", 20)
    path, policy = tmp_path / "l.ledger", policy_of(accountant)
    rng, refused = random.Random(accountant), 0
    for _ in range(4):
        with Ledger.open(path, policy, "data") as ledger:
            refused += fill(ledger, rng, 12)
            spent, held = fold_days(ledger), open_filter(accountant, Fraction(1), Fraction(1, 10**6))
            assert all(held.holds(one) for one in spent.values())
            for day, one in spent.items():
                (state,) = [s for s in ledger.state().stretches if covers(s.period, day)]
                assert state.left_epsilon == held.room(one).epsilon_left
                assert state.spent_epsilon == one.epsilon
    assert refused > 5
    found = verify_ledger(path)  # the sums of every checkpoint are those of the fold
    assert found.statements + refused == 48
    assert found.checkpoints


def covers(period: str, day: int) -> bool:
    return any(low <= day < high for low, high in parse_periods([period]))


def test_a_charge_that_is_forgotten_in_one_period_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    project_event = filter_states.project_event
    monkeypatch.setattr(
        filter_states,
        "project_event",
        lambda e, day: None if day == months("04")[0][0] else project_event(e, day),
    )
    with Ledger.open(None, policy_of("basic"), "data") as ledger, pytest.raises(AssertionError):
        fill(ledger, random.Random(3), 30)
        spent = fold_days(ledger)
        assert all(ledger.accountant.holds(one) for one in spent.values())


def test_a_ledger_of_many_periods_is_opened_without_their_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "ROWS_BETWEEN_CHECKPOINTS", 30)
    path, policy = tmp_path / "l.ledger", policy_of("basic", ("'month'", "'day'"))
    first = datetime.date(2024, 1, 1).toordinal()
    with Ledger.open(path, policy, "data") as ledger:
        for day in range(31):
            ask(ledger, PureDP(Fraction(1, day + 100)), ((first + day, first + day + 1),))
        ask(ledger, TENTH, ((first, first + 366 - 11),))
        sums = [s.left_epsilon for s in ledger.state().stretches]
    read: list[object] = []
    read_text = Spent.read_text

    def count(text: str, orders: tuple[Fraction, ...]) -> Spent:
        read.append(text)
        return read_text(text, orders)

    monkeypatch.setattr(Spent, "read_text", count)
    with Ledger.open(path, policy, "data") as ledger:
        assert not read
        ask(ledger, TENTH, ((first + 7, first + 8),))
        assert ledger.say_left(date_event(TENTH, ((first + 7, first + 8),))).endswith(" left in 2024-01-08")
        assert len(read) == 1
        left = [s.left_epsilon for s in ledger.state().stretches]
        assert len(left) == len(sums) == 33
        assert [*map(Fraction.__sub__, sums, left)] == [TENTH.epsilon if i == 7 else 0 for i in range(33)]
    assert verify_ledger(path).checkpoints


def write_older(body: dict[str, Any], text: str) -> dict[str, Any]:
    """Return a checkpoint as version 1.0.0rc1 wrote it: with the sums of periods as JSON in its row."""
    del body["said"]
    for limits, states in body.pop("periods").items():
        for head in states:
            orders = tuple(Fraction(order) for order in head["sums"][6:])
            size = sum(length for length, _ in head["pages"])
            pages, at = text[head["at"] : head["at"] + size], 0
            sums = []
            for length, _ in head["pages"]:
                sums += [Spent.read_text(one, orders).to_json() for one in pages[at : at + length].split(";")]
                at += length
            starts = [*itertools.accumulate(head["steps"])]
            held = {"all": sums.pop(), "starts": starts, "at": [*range(len(sums))], "sums": sums}
            body["sums"].setdefault(limits, []).append(held)
    return body


def change_checkpoint(path: Path, register: Path, change: Callable[[sqlite3.Connection, int], None]) -> None:
    """Change the last checkpoint, and make the rows from it on fit again."""
    with closing(sqlite3.connect(path)) as connection, connection:
        (seq,) = connection.execute("SELECT max(seq) FROM log WHERE kind = 'checkpoint'").fetchone()
        change(connection, seq)
        (head,) = connection.execute("SELECT hash FROM log WHERE seq = ?", (seq - 1,)).fetchone()
        for row in connection.execute("SELECT * FROM log WHERE seq >= ? ORDER BY seq", (seq,)).fetchall():
            head = hash_row(head, *row[:5])
            connection.execute("UPDATE log SET hash = ? WHERE seq = ?", (head, row[0]))
    Path(f"{path}.d/mark").unlink()
    (register / "ledgers.sqlite").unlink()


def make_older(connection: sqlite3.Connection, seq: int) -> None:
    (text,) = connection.execute("SELECT content FROM said WHERE seq = ?", (seq,)).fetchone()
    (body,) = connection.execute("SELECT body FROM log WHERE seq = ?", (seq,)).fetchone()
    older = json.dumps(write_older(json.loads(body), text), sort_keys=True)
    connection.execute("UPDATE log SET body = ? WHERE seq = ?", (older, seq))
    connection.execute("DELETE FROM said WHERE seq = ?", (seq,))


def forget_content(connection: sqlite3.Connection, seq: int) -> None:
    """Blank a content, as an older dpsql does on behalf of the owner."""
    connection.execute("DELETE FROM said WHERE seq = ?", (seq,))


def lower_sums(connection: sqlite3.Connection, seq: int) -> None:
    """Write smaller sums, with digests that fit."""
    (text,) = connection.execute("SELECT content FROM said WHERE seq = ?", (seq,)).fetchone()
    (body,) = connection.execute("SELECT body FROM log WHERE seq = ?", (seq,)).fetchone()
    read = json.loads(body)
    (head,) = next(iter(read["periods"].values()))
    page = text[head["at"] : head["at"] + head["pages"][0][0]]
    lower = ";".join(" ".join("0" if n[:1].isdigit() else n for n in one.split()) for one in page.split(";"))
    text = text.replace(page, lower)
    head["pages"] = [[len(lower), hashlib.sha256(lower.encode()).hexdigest()]]
    said = Said("0", text)
    connection.execute("UPDATE said SET salt = '0', content = ? WHERE seq = ?", (text, seq))
    body = json.dumps(read | {"said": said.digest}, sort_keys=True)
    connection.execute("UPDATE log SET body = ? WHERE seq = ?", (body, seq))


def cut_page(connection: sqlite3.Connection, seq: int) -> None:
    connection.execute("UPDATE said SET content = replace(content, ' 0 ', ' 1 ') WHERE seq = ?", (seq,))


@pytest.fixture
def sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accountant: str
) -> tuple[Path, dict[str, Fraction]]:
    """A ledger with a checkpoint and rows after it, and what each period has left."""
    monkeypatch.setattr(store, "ROWS_BETWEEN_CHECKPOINTS", 20)
    path = tmp_path / "l.ledger"
    with Ledger.open(path, policy_of(accountant), "data") as ledger:
        fill(ledger, random.Random(accountant), 30)
        return path, left(ledger)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("change", [make_older, forget_content])
def test_older_and_forgotten_sums_of_periods_lose_no_charge(
    sealed: tuple[Path, dict[str, Fraction]],
    accountant: str,
    register: Path,
    change: Callable[[sqlite3.Connection, int], None],
) -> None:
    path, expected = sealed
    change_checkpoint(path, register, change)
    with Ledger.open(path, policy_of(accountant), "data") as ledger:
        assert left(ledger) == expected
        fill(ledger, random.Random(1), 15)  # further checkpoints follow
        spent = fold_days(ledger)
        for state in ledger.state().stretches:
            days = [day for day in DAYS if covers(state.period, day)]
            assert all(state.spent_epsilon == spent[day].epsilon for day in days)
    if change is make_older:
        assert verify_ledger(path).checkpoints


@pytest.mark.parametrize("accountant", ["basic", "rdp"])
def test_changed_sums_of_periods_are_found(
    sealed: tuple[Path, dict[str, Fraction]], accountant: str, register: Path
) -> None:
    path, _ = sealed
    kept = path.read_bytes()
    change_checkpoint(path, register, cut_page)
    with (
        Ledger.open(path, policy_of(accountant), "data") as ledger,  # reads no sums yet
        pytest.raises(LedgerError, match="do not fit their digest"),
    ):
        ask(ledger, TENTH, months("03"))
    path.write_bytes(kept)
    change_checkpoint(path, register, lower_sums)
    Ledger.open(path, policy_of(accountant), "data").close()
    with pytest.raises(LedgerError, match="is not the sum of the rows before it"):
        verify_ledger(path)


# -- terms ----------------------------------------------------------------------------------------------------------------


def changes(path: Path, change: tuple[str, str], then: tuple[str, str]) -> tuple[str, ...]:
    with Ledger.open(path, policy_of("basic", change), "data"):
        pass
    with pytest.raises(LedgerError, match="opened for other terms"):
        Ledger.open(path, policy_of("basic", then), "data")
    return Ledger.adopt(path, policy_of("basic", then), "data")


ONE = ("per_period = true", ""), ("data_from = 2024-01-01\ndata_until = 2024-12-31\n", "")


def plain_policy() -> Policy:
    return Policy.loads(POLICY.replace('"zcdp"', '"basic"').replace(*ONE[0]).replace(*ONE[1]))


def test_a_budget_per_period_is_a_change_of_terms_and_old_charges_count_in_each(tmp_path: Path) -> None:
    path = tmp_path / "l.ledger"
    with Ledger.open(path, plain_policy(), "data") as ledger:
        ask(ledger, HALF, None)
    with pytest.raises(LedgerError, match="each period now has its own"):
        Ledger.open(path, policy_of("basic"), "data")
    assert Ledger.adopt(path, policy_of("basic"), "data") == (
        "the budget was one for all periods, and each period now has its own",
    )
    with Ledger.open(path, policy_of("basic"), "data") as ledger:
        assert left(ledger) == {"2024": Fraction(1, 2)}
        assert ledger.state().sentence == "ε=0.5 of ε=1 left in each period"
        ask(ledger, HALF, months("03"))
    with Ledger.open(
        path, plain_policy(), "data"
    ) as ledger:  # one budget for all is less, and needs no word of the owner
        assert ledger.state().left_epsilon == 0


def test_an_earlier_first_day_is_a_change_of_terms_and_a_later_last_one_is_none(tmp_path: Path) -> None:
    told = changes(tmp_path / "l.ledger", ("", ""), ("2024-01-01", "2023-06-01"))
    assert told == ("data_from of visits was 2024-01-01 and is now 2023-06-01",)
    with Ledger.open(
        tmp_path / "l.ledger", policy_of("basic", ("2024-12-31", "2030-12-31")), "data"
    ) as ledger:
        assert left(ledger)["2024 to 2030"] == 1


def test_a_table_that_was_left_out_comes_back_with_its_terms(tmp_path: Path) -> None:
    path, whole = tmp_path / "l.ledger", policy_of("basic")
    with Ledger.open(path, whole, "data") as ledger:
        ask(ledger, HALF, months("03"))
    other = policy_of("basic", ("[tables.visits]", "[tables.labs]"))
    assert Ledger.adopt(path, other, "data") == ("the private table labs was added",)
    assert Ledger.adopt(path, policy_of("basic", ("2024-01-01", "2023-06-01")), "data") == (
        "data_from of visits was 2024-01-01 and is now 2023-06-01",
    )
    assert Ledger.adopt(path, policy_of("basic", ("'month', day", "'month', left_on")), "data")
    with Ledger.open(path, policy_of("basic", ("'month', day", "'month', left_on")), "data") as ledger:
        assert left(ledger) == {"2024": Fraction(1, 2)}


@pytest.mark.parametrize("period", ["date_trunc('week', day)", "date_trunc('month', left_on)"])
def test_after_a_change_of_the_period_all_charges_count_in_each(
    tmp_path: Path, period: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, then = tmp_path / "l.ledger", ("date_trunc('month', day)", period)
    before = Ledger.open(path, policy_of("basic"), "data")
    ask(before, HALF, months("03"))
    ask(before, TENTH, months("05"))
    tickets = [before.reserve(date_event(TENTH, months("07")), "still open") for _ in range(2)]
    told = Ledger.adopt(path, policy_of("basic", then), "data")
    assert any("WARNING" in text for text in told)
    rest = Fraction(1, 5)
    with Ledger.open(path, policy_of("basic", then), "data") as ledger:
        assert {*left(ledger).values()} == {rest}
        before.settle(tickets[0], tickets[0].event, None, "released")
        assert {*left(ledger).values()} == {rest}
        with pytest.raises(LedgerError, match="owner changed the periods after this session began"):
            before.reserve(date_event(TENTH, months("05")), "in the periods of before")
        assert {*left(ledger).values()} == {rest}
    monkeypatch.setattr(store, "ROWS_BETWEEN_CHECKPOINTS", 1)
    with Ledger.open(path, policy_of("basic", then), "data") as ledger:  # from a checkpoint
        ask(ledger, TENTH, parse_periods(["2024-09-02 to 2024-09-08"]) if "week" in period else months("09"))
    with Ledger.open(path, policy_of("basic", then), "data") as ledger:
        before.settle(tickets[1], tickets[1].event, None, "released")
        assert sorted({*left(ledger).values()}) == [rest - Fraction(1, 10), rest]
    assert verify_ledger(path).checkpoints


def test_ledgers_without_periods_are_written_as_before() -> None:
    terms = Terms.of(plain_policy(), "data")
    assert not {"per_period", "starts"} & terms.to_json().keys()
    assert accounts.write_limits(terms).startswith('["basic"')
    assert Terms.from_json(terms.to_json()) == terms
    dated = Terms.of(policy_of("basic"), "data")
    assert Terms.from_json(dated.to_json()) == dated
    assert dated.starts == {"visits": "2024-01-01"}
