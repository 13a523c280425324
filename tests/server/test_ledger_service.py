"""The two sides of a server's ledger: the same face over the wire, and nothing to gain for a worker in an enemy's hands."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import warnings
from collections.abc import Iterator
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.client.wire import Message, WireError, read_error
from dpsql.errors import BudgetExceeded, Error, Interrupted, LedgerError
from dpsql.ledger.answers import AnswerStore, hash_release
from dpsql.ledger.ledger import KeptReleases, Ledger
from dpsql.ledger.log_file import FORGOTTEN
from dpsql.ledger.upkeep import forget_before, verify_ledger
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import KINDS, Composed, DiscreteLaplace, Event, PureDP, SparseVector
from dpsql.privacy.filters import ACCOUNTANTS, MECHANISM_SHARE, open_filter
from dpsql.report.data import list_pictures
from dpsql.server import ledger_service
from dpsql.server.ledger_service import LedgerProxy, LedgerService, read_worker_event
from tests.support import inside, near_ledger
from tests.support.near_ledger import NearLedger

HALF = PureDP(Fraction(1, 2))
KEY, OTHER_KEY = "0" * 64, "f" * 64
COUNT = "SELECT COUNT(*) AS n FROM visits"
CELL = (
    COUNT,
    COUNT,
    "SELECT ward, COUNT(*) AS n, AVG(age) AS a FROM visits GROUP BY ward ORDER BY ward",
    "SELECT w.beds, v.n FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward) AS v JOIN wards AS w USING (ward) ORDER BY 1",
    "EXPLAIN SELECT SUM(age) AS s FROM visits",
    "SELECT * FROM visits",
    "SELECT COUNT(*) AS n FROM visitors",
    "SELECT WITH DP OPTIONS (epsilon = 500) COUNT(*) AS n FROM visits",
    "DECLARE alarm ABOVE_THRESHOLD 100 OPTIONS (epsilon = 1, max_hits = 2)",
    "SELECT WITH alarm COUNT(*) FROM visits WHERE age < 3",
    "SELECT WITH alarm COUNT(*) FROM visits WHERE age < 80",
    "CLOSE alarm",
    "SELECT WITH PTR OPTIONS (epsilon = 1, delta = 1e-6) MODE(ward) AS m FROM visits",
    "SELECT n / 0 AS x FROM (SELECT COUNT(*) AS n FROM visits)",
    "WITH p(x) AS (VALUES (10), (50)) SELECT x, EXPMECH(COUNT(*) FILTER (WHERE age > x), epsilon => 1) OVER p FROM visits",
    "kept << SELECT COUNT(*) AS n FROM visits WHERE age > 5",
    "SELECT n FROM kept",
    "SHOW BUDGET",
    "SHOW TRADEOFF",
    "SHOW TRADEOFF SPENT",
    "SHOW GROUPS",
    "SHOW ACCOUNTANTS",
    "CREATE RELEASE daily AS SELECT ward, COUNT(*) AS n FROM visits WHERE age > 3 GROUP BY ward",
    "SELECT SUM(n) AS s FROM daily AS d JOIN wards USING (ward)",
    "REFRESH RELEASE daily",
    "CREATE RELEASE IF NOT EXISTS daily AS SELECT 1 AS a",
    "CREATE RELEASE visits AS SELECT 1 AS a",
    "SHOW TABLES",
    "DROP RELEASE dayly",
    "DROP RELEASE daily",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPSQL_STATE", str(tmp_path / "state"))
    (tmp_path / "owners").mkdir()
    return tmp_path / "owners"


@pytest.fixture
def near(folder: Path) -> Iterator[NearLedger]:
    made = NearLedger(folder)
    yield made
    made.close()


def settle_call(number: int, event: Event) -> dict[str, Any]:
    """Return the call of a worker that settles its statement of this number."""
    said = {"statement_id": number, "event": event.to_json(), "outcome": "released", "kept": []}
    return {"method": "settle", **said}


def error_of(answer: Message) -> Error:
    assert answer.head["kind"] == "error", answer.head
    return read_error(answer)


def outcome(session: dpsql.Session, text: str, **how: Any) -> tuple[Any, ...]:
    """Return what an analyst sees of a statement, without its time."""
    try:
        result = session.sql(text, **how)
    except Error as error:
        return type(error).__name__, error.message, error.hint, error.span
    rows = [[None if value != value else value for value in row] for row in result.fetchall()]
    line = result.cost_line if "stored" not in result.cost_line else result.cost_line[-20:]
    return rows, result.columns, result.loss, line, result.notes, result.statement_id, result.intervals


def fixed(seed: int) -> Entropy:
    chance = random.Random(seed)
    return Entropy(chance.randbytes)


# -- the same face ----------------------------------------------------------------------------------------------------


def test_a_session_over_the_wire_is_as_one_over_the_ledger(folder: Path, tmp_path: Path) -> None:
    near = NearLedger(folder, accountant="zcdp")
    over, plain = near.session("ada"), near.direct("ada", tmp_path / "other.ledger")
    for session in (over, plain):
        inside.use_entropy(session, fixed(7))
    for text in CELL:
        assert outcome(over, text) == outcome(plain, text), text
    prices = [str(s.explain(f"{COUNT}; SELECT SUM(age) AS s FROM visits").price) for s in (over, plain)]
    assert prices[0] == prices[1]
    assert over.budget() == plain.budget()
    with over.plan() as one, plain.plan() as other:
        for plan in (one, other):
            plan.sql("SELECT SUM(age) AS s FROM visits")
            plan.sql("SELECT COUNT(*) AS n FROM visits WHERE age > 70")
    assert [r.fetchall() for r in one.results] == [r.fetchall() for r in other.results]
    seen, other = (
        [(e.statement_id, e.analyst, e.text, e.outcome, e.event, e.asked, e.reason) for e in s.ledger()]
        for s in (over, plain)
    )
    assert seen == other
    assert [e.text for e in over.ledger(3)] == [row[2] for row in seen[-3:]]
    shown = [session.sql("SHOW LEDGER").df().drop(columns="when").to_csv() for session in (over, plain)]
    assert shown[0] == shown[1]
    mine, theirs = (list_pictures(s.account, "tradeoff") for s in (over, plain))
    assert mine == json.loads(json.dumps(theirs))
    mine, theirs = (list_pictures(s.account, "budget")["burn_down"]["steps"] for s in (over, plain))
    assert [step["left"] for step in mine] == [step["left"] for step in theirs]
    assert near.reported == [] or all(isinstance(error, LedgerError) for error in near.reported)
    near.close()
    verify_ledger(near.path)


def test_budgets_per_period_hold_over_the_wire(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = [date(2024, 1, 1) + timedelta(days=n % 366) for n in range(600)]
    table = pa.table(
        {"person": [*range(600)], "age": [n % 90 for n in range(600)], "ward": ["A", "B"] * 300, "day": days}
    )
    pq.write_table(table, folder / "dated.parquet")
    dated = (
        """privacy_period = "date_trunc('month', day)"\ndata_from = 2024-01-01\ndata_until = 2024-12-31\n"""
    )
    policy = near_ledger.POLICY.replace("[tables.visits]", f"per_period = true\n[tables.visits]\n{dated}")
    monkeypatch.setattr(near_ledger, "POLICY", policy.replace("visits.parquet", "dated.parquet"))
    near = NearLedger(folder, accountant="basic")
    over, plain = near.session("ada"), near.direct("ada", tmp_path / "other.ledger")
    for session in (over, plain):
        inside.use_entropy(session, fixed(7))
    for text in (
        "SELECT WITH DP OPTIONS (epsilon = 20) COUNT(*) AS n FROM visits WHERE day < DATE '2024-03-01'",
        "SELECT ward, COUNT(*) AS n FROM visits WHERE day >= DATE '2024-02-10' GROUP BY ward",
        "SELECT WITH DP OPTIONS (epsilon = 15) COUNT(*) AS n FROM visits",
        "EXPLAIN SELECT WITH DP OPTIONS (epsilon = 15) COUNT(*) AS n FROM visits",
        "DECLARE alarm ABOVE_THRESHOLD 100 OPTIONS (epsilon = 1, max_hits = 2)",
        "SELECT WITH alarm COUNT(*) FROM visits WHERE day >= DATE '2024-12-01'",
        "SHOW BUDGET",
    ):
        assert outcome(over, text) == outcome(plain, text), text
    assert over.budget() == plain.budget()
    assert [s.period for s in over.budget().stretches] == ["2024-01", "2024-02", "2024-03 to 2024-12"]
    event = {"kind": "dated", "event": HALF.to_json(), "periods": [[700000, 700001]]}
    error = error_of(near.ask(near.service("ada"), {"method": "reserve", "event": event, "text": "q"}))
    assert "periods that the policy doesn't have" in error.message
    assert all(isinstance(one, LedgerError) for one in near.reported)
    near.close()
    verify_ledger(near.path)


def test_a_new_statement_takes_four_calls_and_a_stored_one_one(near: NearLedger) -> None:
    session = near.session("ada")
    session.sql("SELECT COUNT(*) AS n FROM visits WHERE age > 1")
    near.calls.clear()
    session.sql(COUNT)
    assert near.calls == {"replay": 1, "asked": 1, "reserve": 1, "settle": 1}
    near.calls.clear()
    assert session.sql(COUNT).cost_line.endswith(session.budget().sentence)
    near.calls.clear()
    session.sql(COUNT)
    assert near.calls == {"replay": 1}


def test_no_call_of_the_ledger_is_forgotten() -> None:
    """Every public member of a ledger is the proxy's own: none falls back to a file that a worker does not have."""
    opening = {"open", "read", "adopt"}
    members = {name for name in dir(Ledger) if not name.startswith("_")} - opening
    proxied = set(vars(LedgerProxy))
    assert members - proxied - {"tabulate"} == set()
    assert "tabulate" in proxied


def test_too_large_releases_are_not_kept(near: NearLedger) -> None:
    service = near.service("ada", largest=10_000)
    ledger = inside_proxy(near, service)
    for size, kept in ((9_999, True), (10_001, False), (0, True)):
        release, key = os.urandom(size), f"{size:064x}"
        ledger.settle(
            ledger.reserve(HALF, "q"), HALF, KeptReleases({key: release}, {key: b"items"}), "released"
        )
        found = ledger.replay(key)
        assert (found is not None) == kept
        if found is not None:
            assert found.release == release
    near.root.close()
    verify_ledger(near.path)


def test_the_owner_is_told_that_answers_are_not_stored(
    near: NearLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them would be paid again, and nobody would know why."""

    def refuse(answers: AnswerStore, *given: object) -> None:
        raise LedgerError("The disk is full.")

    session = near.session("ada")
    with monkeypatch.context() as patch:
        patch.setattr(AnswerStore, "put", refuse)
        assert session.sql(COUNT).loss == "ε=1"
    assert [str(error) for error in near.reported] == ["The disk is full."]
    assert session.sql(COUNT).loss == "ε=1"
    assert session.sql(COUNT).loss == "no charge"


def inside_proxy(near: NearLedger, service: LedgerService, analyst: str = "ada") -> LedgerProxy:
    return LedgerProxy(lambda head, payload: near.ask(service, head, payload), near.policy, analyst)


@pytest.mark.parametrize("answers", ["own", "shared"])
def test_answers_of_others_are_shown_as_the_policy_says(folder: Path, answers: str) -> None:
    near = NearLedger(folder, answers=answers)
    ada, bob = near.session("ada"), near.session("bob")
    first = ada.sql(COUNT)
    again = bob.sql(COUNT)
    assert again.fetchall() == first.fetchall()
    state = bob.budget()
    assert state.whole is not None
    assert state.answers == answers
    assert state.whole.spent_epsilon == 1
    assert state.spent_epsilon == (1 if answers == "own" else 0)
    assert again.loss == ("ε=1 of bob's share" if answers == "own" else "no charge")
    assert again.cost_line.startswith("stored already, ")  # neither when nor by which statement
    assert again.statement_id == ("2" if answers == "own" else None)
    assert bob.sql(COUNT).loss == "no charge"
    assert "stored since" in ada.sql(COUNT).cost_line
    assert bob.budget().spent_epsilon == state.spent_epsilon
    near.close()
    verify_ledger(near.path)


# -- who sees what ----------------------------------------------------------------------------------------------------


def test_of_others_there_are_totals_only(near: NearLedger) -> None:
    grace, ada = near.session("grace_hopper"), near.session("ada")
    marks = [31, 47]
    for mark in marks:
        grace.sql(f"SELECT COUNT(*) AS n FROM visits WHERE age > {mark}")
    with pytest.raises(Error):
        grace.sql("SELECT person AS pineapple FROM visits")
    ada.sql(COUNT)
    near.answers.clear()
    for text in (
        *CELL,
        "SHOW LEDGER",
        "SHOW POLICY",
        f"SELECT COUNT(*) AS n FROM visits WHERE age > {marks[0]}",
    ):
        outcome(ada, text)
    listed = ada.ledger()
    assert [(e.statement_id, e.analyst, e.outcome) for e in listed[:1]] == [(0, "others", "others")]
    assert listed[0].text == "2 statements of other analysts"
    assert listed[0].event == PureDP(Fraction(2))
    assert {e.analyst for e in listed[1:]} == {"ada"}
    (row,) = [row for row in ada.sql("SHOW LEDGER").dicts() if row["analyst"] == "others"]
    assert (row["statement"], row["epsilon"]) == (None, 2.0)
    for what in ("budget", "tradeoff"):
        list_pictures(ada.account, what)
    for call in range(1, 9):
        near.ask(near.service("ada"), {"method": "entries", "start": call, "others": True})
    assert len(near.answers) > 40
    secrets = ["grace", "hopper", "pineapple", *(f"age > {mark}" for mark in marks[1:]), str(near.folder), "secret.ledger",
               "visits.parquet", socket.gethostname(), Path("/proc/sys/kernel/random/boot_id").read_text().strip()]  # fmt: skip
    for answer in near.answers:
        for secret in secrets:
            assert secret.encode() not in answer, secret


@pytest.mark.parametrize("accountant", ["basic", "zcdp", "gdp"])
def test_the_totals_of_others_add_up(folder: Path, accountant: str) -> None:
    near, chance = NearLedger(folder, accountant=accountant), random.Random(1)
    services = {name: near.service(name) for name in ("ada", "bob")}
    ada, bob = (inside_proxy(near, service, name) for name, service in services.items())
    held = [ada.reserve(PureDP(Fraction(1, 7)), "open")]
    for _ in range(30):
        ledger, event = chance.choice([ada, bob]), DiscreteLaplace(Fraction(1, chance.randint(2, 9)), 1)
        ticket = ledger.reserve(event, "q")
        if chance.random() < 0.8:
            ledger.settle(ticket, event, None, chance.choice(["released", "failed"]))
        else:
            held.append(ticket)
        if chance.random() < 0.2:
            ledger.refuse("r", "why")
        others = ada.entries(0)
        wanted = [e for e in near.root.entries() if e.analyst == "bob" and e.event is not None]
        assert bool(others) == bool(wanted)
        if others:
            total = others[0].event
            assert total is not None
            assert total.basic[0] == sum((e.event.basic[0] for e in wanted if e.event), Fraction(0))
            assert others[0].text.startswith(f"{len(wanted)} statement")
            if accountant == "gdp":
                mu = sum((float(e.event.mu) ** 2 for e in wanted if e.event), 0.0) ** 0.5
                assert float(total.mu) == pytest.approx(mu, rel=1e-6)
        assert ada.count == sum(e.analyst == "ada" for e in near.root.entries())
    assert all(ticket.statement_id for ticket in held)
    near.close()


def test_errors_say_no_path(near: NearLedger) -> None:
    ada = near.session("ada")
    ada.sql(COUNT)
    near.path.rename(near.path.with_name("elsewhere"))
    near.answers.clear()
    with pytest.raises(LedgerError) as caught:
        ada.sql("SELECT SUM(age) AS s FROM visits")
    assert "removed or replaced" in str(caught.value)
    for answer in near.answers:
        assert str(near.folder).encode() not in answer
        assert b"secret.ledger" not in answer
    assert any(str(near.path) in str(error) for error in near.reported)  # the owner is told
    near.path.with_name("elsewhere").rename(near.path)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("The ledger /srv/a/b.ledger is gone.", "The ledger is gone."),
        ("/srv/a/b.ledger-answers can't be read", " can't be read"),
        ("/srv/a/b.ledger.d/answers can't be read", " can't be read"),
        ("another ledger: /home/owner/other.ledger", None),
        ("C:\\data\\x.ledger is locked", None),
        ("ε=1/3 of ε=2 left", None),
    ],
)
def test_what_is_left_of_a_text_with_paths(text: str, left: str | None) -> None:
    paths = ["/srv/a/b.ledger", "/srv/a/b.ledger-answers", "/srv/a/b.ledger.d/answers"]
    assert ledger_service.conceal_paths(text, paths) == left


# -- a worker in an enemy's hands -------------------------------------------------------------------------------------


def test_a_ticket_is_settled_by_its_worker_alone_and_once(near: NearLedger) -> None:
    mine, theirs = near.service("ada"), near.service("bob")
    opened = near.ask(mine, {"method": "reserve", "event": HALF.to_json(), "text": "q"}).head["statement_id"]
    settle = settle_call(opened, HALF)
    progress = {"method": "progress", "statement_id": opened, "event": HALF.to_json()}
    for service in (theirs, near.service("ada")):
        for call in (settle, progress):
            assert "No statement of that number" in error_of(near.ask(service, call)).message
    for wrong in (0, -1, opened + 1, "1", None, True, 1.0, [opened]):
        error_of(near.ask(mine, {**settle, "statement_id": wrong}))
    assert near.ask(mine, settle).head["kind"] == "answer"
    error_of(near.ask(mine, settle))
    assert [e.analyst for e in near.root.entries()] == ["ada"]
    assert theirs.settle_all() == []


def test_a_charge_is_lowered_by_the_rule_alone(near: NearLedger) -> None:
    service = near.service("ada")
    stream = SparseVector(Fraction(1), Fraction(1), 2)
    reserve = {"method": "reserve", "event": stream.to_json(), "text": "q"}
    opened = near.ask(service, reserve).head["statement_id"]

    def progress(event: Event) -> Message:
        head = {"method": "progress", "statement_id": opened, "event": event.to_json()}
        return near.ask(service, head)

    cheaper = (PureDP(Fraction(1, 100)), SparseVector(Fraction(1), Fraction(1, 2), 2, 0), Composed((stream,)))
    for event in cheaper:
        error_of(near.ask(service, settle_call(opened, event)))
    found = SparseVector(Fraction(1), Fraction(1), 2, 1)
    assert progress(found).head["kind"] == "answer"
    error_of(progress(SparseVector(Fraction(1), Fraction(1), 2, 0)))
    assert near.ask(service, settle_call(opened, found)).head["kind"] == "answer"
    (entry,) = near.root.entries()
    assert entry.event == found


def test_what_a_dead_worker_left_open_is_settled_once_and_in_full_or_by_its_last_progress(
    near: NearLedger,
) -> None:
    told: list[tuple[int, str, str]] = []
    service = near.service("ada", tell=lambda *charge: told.append(charge))
    ledger = inside_proxy(near, service)
    stream = SparseVector(Fraction(1), Fraction(1), 2)
    asked = ((HALF, "one"), (stream, "alarm"), (stream, "asked nothing"))
    one, alarm, never = (ledger.reserve(event, text) for event, text in asked)
    alarm.update(SparseVector(Fraction(1), Fraction(1), 2, 0))
    alarm.update(SparseVector(Fraction(1), Fraction(1), 2, 1))
    other = inside_proxy(near, near.service("bob"), "bob").reserve(HALF, "another worker's")
    assert service.settle_all() == [one.statement_id, alarm.statement_id, never.statement_id]
    assert told == [
        (one.statement_id, "ε=0.5", "interrupted"),
        (alarm.statement_id, "ε=2", "interrupted"),
        (never.statement_id, "ε=2", "interrupted"),
    ]
    assert service.settle_all() == []
    found = {e.statement_id: (e.outcome, e.event) for e in near.root.entries()}
    assert found == {
        one.statement_id: ("interrupted", HALF),
        alarm.statement_id: ("interrupted", SparseVector(Fraction(1), Fraction(1), 2, 1)),
        never.statement_id: ("interrupted", stream),
        other.statement_id: ("open", HALF),
    }
    with pytest.raises(LedgerError, match="No statement of that number"):
        ledger.settle(one, HALF, None, "released")


def test_a_stopped_call_can_pay_nothing(near: NearLedger) -> None:
    ada = near.session("ada")
    ada.sql(COUNT)
    near.may_pay = False
    with pytest.raises(Interrupted, match="nothing was charged"):
        ada.sql("SELECT SUM(age) AS s FROM visits")
    assert ada.sql(COUNT).loss == "no charge"
    assert ada.explain("SELECT SUM(age) AS s FROM visits").event is not None
    near.may_pay = True
    assert near.root.state().spent_epsilon == 1


def test_the_limits_of_one_request(near: NearLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_service, "MAX_OPEN", 3)
    monkeypatch.setattr(ledger_service, "MAX_WRITES", 6)
    monkeypatch.setattr(ledger_service, "MAX_CALLS", 12)
    small = PureDP(Fraction(1, 1000))
    service = near.service("ada")
    ledger = inside_proxy(near, service)
    for _ in range(3):
        ledger.reserve(small, "q")
    with pytest.raises(LedgerError, match="Too many statements and thresholds"):
        ledger.reserve(small, "q")
    for _ in range(9):
        ledger.refuse("r", "why")
    assert near.root.count == 6
    with pytest.raises(Error, match="one request has too many"):
        ledger.state()
    service.begin()
    assert ledger.state().spent_epsilon == Fraction(3, 1000)


def test_no_hostile_call_changes_what_is_charged_to_others_or_raises(near: NearLedger) -> None:
    """Eight hundred calls: fields missing, of other types, too large, or of other calls."""
    chance = random.Random(11)
    bob = near.session("bob")
    bob.sql(COUNT)
    spent = bob.budget().spent_epsilon
    service = near.service("ada")
    good: list[dict[str, Any]] = [
        {"method": "reserve", "event": PureDP(Fraction(1, 10**6)).to_json(), "text": "q", "shown": {}},
        {"method": "debit", "text": "q", "shown": {KEY: OTHER_KEY}},
        {"method": "progress", "statement_id": 1, "event": HALF.to_json()},
        {"method": "settle", "statement_id": 2, "event": HALF.to_json(), "outcome": "released",
         "kept": [[KEY, 3, None], [KEY, 2]]},
        {"method": "refuse", "text": "q", "reason": "r", "event": HALF.to_json()},
        {"method": "replay", "key": KEY}, {"method": "asked", "question": KEY},
        {"method": "terms"},
        {"method": "state", "after": [HALF.to_json()], "debit": HALF.to_json()}, {"method": "excess", "after": [HALF.to_json()]},
        {"method": "count"}, {"method": "entries", "start": 0, "last": 3, "others": True},
        {"method": "tabulate", "what": "GROUPS"},
    ]  # fmt: skip
    deep: Any = PureDP(Fraction(1)).to_json()
    for _ in range(60):
        deep = {"kind": "composed", "events": [deep]}
    values: list[Any] = [
        None, True, -1, 0, 10**30, 2**63, 1.5, "", "x" * 3000, "\ud800", "../../etc/passwd", [], [1], {}, {"kind": "pure"}, KEY,
        [[KEY, 10**12, None]], [[KEY, -3, None]], [[1, 2]], [[KEY]], {KEY: 1}, {"kind": "pure", "epsilon": "1e400"}, deep,
        {"kind": "pure", "epsilon": "9" * 900}, {"kind": "pure", "epsilon": "0"}, {"kind": "pure", "epsilon": "-1"},
        {"kind": "composed", "events": []}, {"kind": "sparse_vector", "epsilon1": "1", "epsilon2": "1", "max_hits": 10**18,
        "hits": None, "refresh": True}, [HALF.to_json()] * 2000, {"kind": "pure", "epsilon": "1/0"},
    ]  # fmt: skip
    rows = near.root.count
    for turn in range(800):
        head = dict(chance.choice(good))
        for _ in range(chance.randint(0, 2)):
            head[chance.choice([*head, "event", "text", "key", "analyst", "who"])] = chance.choice(values)
        if chance.random() < 0.02:
            service.begin()
        payload = chance.choice([b"", b"12345", b"x" * 5000])
        method = head.get("method")
        answer = service.call(
            method if isinstance(method, str) else "?", head, payload, chance.random() < 0.9
        )
        assert answer.head["kind"] in ("answer", "error"), turn
        assert b"Traceback" not in json.dumps(answer.head).encode()
    assert {e.analyst for e in near.root.entries() if e.statement_id > rows} <= {"ada"}
    assert bob.budget().spent_epsilon == spent
    assert [repr(error) for error in near.reported if not isinstance(error, Error)] == []
    service.settle_all()
    near.close()
    verify_ledger(near.path)
    with Ledger.read(near.path) as again:
        for accountant in ACCOUNTANTS:
            with again.under(accountant) as other:
                other.state()


@pytest.mark.parametrize("path", ["refused", "reserved"])
def test_events_beyond_the_limits_are_never_written(near: NearLedger, path: str) -> None:
    service = near.service("ada")
    count = near.root.count
    for amount in ("9" * 20, f"1/{10**120}", "1/0", "-1", "0x1", "1e3", "", "٣", "1/3/4"):
        body = {"kind": "pure", "epsilon": amount}
        head = {"method": "refuse", "text": "q", "reason": "r", "event": body} if path == "refused" else {
            "method": "reserve", "event": body, "text": "q"}  # fmt: skip
        error = error_of(near.ask(service, head))
        assert error.message == "a message contains an event that no mechanism has."
    assert near.root.count == count


def test_events_within_the_limits_can_be_added_up_under_every_accountant() -> None:
    """Whatever a worker has written, the ledger can be read again, and recounted for the owner's report."""
    chance = random.Random(3)
    filters = [open_filter(name, Fraction(3), Fraction(1, 10**6), MECHANISM_SHARE) for name in ACCOUNTANTS]
    read = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for _ in range(250):
            try:
                event = read_worker_event(_any_event(chance))
            except WireError:
                continue
            read += 1
            for held in filters:
                spent = held.add(held.start, event)
                held.admits(held.start, event)
                held.more(spent, event)
                held.write_charge(event)
                held.sentence(spent)
    assert read > 80


def _any_event(chance: random.Random) -> dict[str, Any]:
    from dataclasses import fields

    kind = chance.choice([kind for kind in KINDS.values() if kind.kind != "declared_plan"])
    body: dict[str, Any] = {"kind": kind.kind}
    for item in fields(kind):
        declared = str(item.type)
        if declared.startswith("tuple"):
            body[item.name] = [_any_event(chance) for _ in range(chance.randint(1, 3))]
        elif declared == "bool":
            body[item.name] = chance.random() < 0.5
        elif declared.startswith("int"):
            body[item.name] = (
                None if "None" in declared and chance.random() < 0.5 else chance.choice([1, 2, 7, 10**6])
            )
        elif "delta" in item.name or item.name == "failure":
            body[item.name] = str(Fraction(chance.randint(1, 99), 10 ** chance.randint(2, 99)))
        else:
            body[item.name] = str(Fraction(chance.randint(1, 99)) * Fraction(10) ** chance.randint(-99, 13))
    return body


def test_texts_are_forgotten_while_the_ledger_is_served(near: NearLedger) -> None:
    """Forget as ``keep_text_days`` does once a day: charges stay, and what was forgotten is asked and paid anew."""
    ada = near.session("ada")
    ada.sql("SELECT COUNT(*) AS n FROM visits WHERE ward LIKE 'pineapple'")
    spent = ada.budget().spent_epsilon
    assert b"pineapple" in near.path.read_bytes() + near.path.with_name("secret.ledger-wal").read_bytes()
    forget_before(near.path, date.today() + timedelta(days=2))
    assert [entry.text for entry in ada.ledger()] == [FORGOTTEN]
    assert ada.budget().spent_epsilon == spent
    assert ada.sql("SELECT COUNT(*) AS n FROM visits WHERE ward LIKE 'pineapple'").loss == "ε=1"
    assert ada.budget().spent_epsilon == 2 * spent
    forget_before(near.path, date.today() + timedelta(days=2))
    near.close()
    for pattern in ("secret.ledger", "secret.ledger-*", "secret.ledger.d/*"):
        for file in near.folder.glob(pattern):
            assert b"pineapple" not in file.read_bytes(), file.name
    verify_ledger(near.path)


def test_own_shares_hold_over_the_wire(near: NearLedger) -> None:
    bob, dear = near.session("bob"), "SELECT WITH DP OPTIONS (epsilon = 21) COUNT(*) AS n FROM visits"
    with pytest.raises(BudgetExceeded, match="bob's ε=20 is left"):
        bob.sql(dear)
    assert "of bob's ε=20 is left" in bob.explain(dear).price
    stored = near.root.for_analyst("ada")
    ticket = stored.reserve(HALF, "a")
    stored.settle(ticket, HALF, KeptReleases({KEY: b"release"}), "released")
    proxy = inside_proxy(near, near.service("bob"), "bob")
    found = proxy.replay(KEY)
    assert found is not None
    assert found.release == b"release"
    assert (found.when, found.statement_id, found.analyst, found.debit) == ("", None, "", None)
    assert hash_release(found.release) == hash_release(b"release")


# -- releases ---------------------------------------------------------------------------------------------------------


def test_one_worker_at_a_time_draws_releases(near: NearLedger) -> None:
    first, second = near.service("ada"), near.service("ada")
    hold, free = {"method": "hold"}, {"method": "free"}
    for end in (lambda: near.ask(first, free), first.begin, first.settle_all):
        assert near.ask(first, hold).head["held"]
        assert not near.ask(second, hold).head["held"]
        end()
        assert near.ask(second, hold).head["held"]
        near.ask(second, free)
    assert near.ask(near.service("bob"), hold).head["kind"] == "error", "bob may not refresh"


def test_a_refresh_waits_until_another_is_done(near: NearLedger) -> None:
    ada, other = near.session("ada"), near.service("ada")
    ada.sql("CREATE RELEASE daily AS SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward")
    assert near.calls["hold"] == near.calls["free"] == 1
    near.ask(other, {"method": "hold"})
    paid, asked = near.calls["reserve"], near.calls["hold"]
    thread = threading.Thread(target=lambda: ada.sql("REFRESH RELEASE daily", fresh=True))
    thread.start()
    while near.calls["hold"] < asked + 3:
        thread.join(0.01)
        assert thread.is_alive()
    assert near.calls["reserve"] == paid
    near.ask(other, {"method": "free"})
    thread.join()
    assert near.calls["reserve"] == paid + 1


def test_a_release_of_one_analyst_is_read_by_all(near: NearLedger) -> None:
    ada, bob = near.session("ada"), near.session("bob")
    made = ada.sql("CREATE RELEASE daily AS SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward")
    near.calls.clear()
    assert bob.sql("FROM daily").fetchall() == made.fetchall()
    assert near.calls["release"] > 0
    assert near.calls["reserve"] == 0
    near.calls.clear()
    bob.sql(COUNT)
    assert near.calls["release"] + near.calls["releases"] == 0, "ordinary statements cost no further call"
    shown = bob.sql("SHOW RELEASES").dicts()[0]
    assert (shown["release"], shown["rows"], shown["next_refresh"]) == ("daily", 2, "nothing")
    texts = [row["text"] for row in bob.sql("SHOW LEDGER").dicts()[1:]]
    assert all("daily" not in text for text in texts), "its statements are ada's"
    for change in (
        "REFRESH RELEASE daily",
        "DROP RELEASE daily",
        "CREATE OR REPLACE RELEASE daily AS SELECT 1 AS a",
    ):
        with pytest.raises(dpsql.PrivacyError, match="bob may not"):
            bob.sql(change)


def test_the_front_asks_for_the_right_whatever_the_worker_does(near: NearLedger) -> None:
    sizes, over = [["", 2], ["", 3]], ""
    publish = {"method": "publish", "name": "daily", "text": "CREATE RELEASE", "over": over, "kept": sizes}
    bob, ada = near.service("bob"), near.service("ada")
    assert "may not" in error_of(near.ask(bob, publish, b"{}abc")).message
    assert near.ask(bob, {"method": "releases"}).head["names"] == []
    for wrong in (
        {"name": "a b"}, {"name": "DAILY"}, {"name": "x" * 64}, {"name": 7}, {"name": ""}, {"name": "../daily"},
        {"kept": [["", 2]]}, {"kept": [["", 1], ["", 1]]}, {"kept": [["", -1], ["", 6]]}, {"over": 7},
    ):  # fmt: skip
        assert error_of(near.ask(ada, publish | wrong, b"{}abc")).message.find("a message") >= 0, wrong
    near.may_pay = False  # while a session is restored, or a statement is described
    assert isinstance(error_of(near.ask(ada, publish, b"{}abc")), Interrupted)
    near.may_pay = True
    large = error_of(near.ask(near.service("ada", largest=3), publish, b"x" * (2 << 20)))
    assert "larger than the owner allows" in large.message
    assert near.ask(bob, {"method": "releases"}).head["names"] == []
    near.ask(ada, publish, b"{}abc")
    found = near.ask(bob, {"method": "release", "name": "daily"})
    assert (found.head["sizes"], found.payload) == ([2, 3], b"{}abc")
    assert "no valid name" in error_of(near.ask(bob, {"method": "release", "name": "a b"})).message
    reader = near.session("bob")
    # what a worker forged is read as no code, and fails in words
    with pytest.raises(LedgerError, match="can't be read"):
        reader.sql("FROM daily")
    assert "may not" in error_of(near.ask(bob, {"method": "publish", "name": "daily", "text": "x"})).message
    near.ask(ada, {"method": "publish", "name": "daily", "text": "DROP RELEASE daily"})
    assert near.ask(bob, {"method": "releases"}).head["names"] == []
