"""Ledgers of many statements: opened from a sealed checkpoint, reported page by page, and verified as a whole."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.errors import BudgetExceeded, LedgerError
from dpsql.ledger import log_file, store
from dpsql.ledger.accounts import Account, compare_sums
from dpsql.ledger.ledger import KeptReleases, Ledger
from dpsql.ledger.log_file import hash_row, read_rows_after, verify_rows
from dpsql.ledger.upkeep import verify_ledger
from dpsql.policy.model import Policy
from dpsql.privacy.accountants import Spent
from dpsql.privacy.events import PureDP, RoundedGaussian, SparseVector
from dpsql.privacy.filters import ACCOUNTANTS
from dpsql.privacy.pld import declare
from dpsql.privacy.records import Entry
from dpsql.report.data import Tally, make_report, sum_days
from dpsql.report.pages import report_text, write_page, write_report
from tests.support.ledgers import policy_of
from tests.support.long_ledgers import event_of, fill_ledger

TENTH = PureDP(Fraction(1, 10))
SPARSE = SparseVector(Fraction(1, 10), Fraction(3, 10), 3)
GAUSSIAN = RoundedGaussian(Fraction(100000), 4, Fraction(1, 100), Fraction(1, 10**9))
MEBIBYTE = 1 << 20
REPORT = """
import json, resource, sys, time
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.upkeep import verify_ledger
from dpsql.report.data import make_report
from dpsql.report.pages import write_page

def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

before, times = megabytes(), [time.perf_counter()]
with Ledger.read(sys.argv[1]) as owner:
    page = write_page(make_report(owner))
times.append(time.perf_counter())
statements = verify_ledger(sys.argv[1]).statements
times.append(time.perf_counter())
print(json.dumps({
    "report": times[1] - times[0], "verify": times[2] - times[1], "characters": len(page), "statements": statements,
    "megabytes": megabytes() - before,
}))
"""
"""A program that reports and verifies a ledger in a process whose memory is measured: tracing takes minutes longer."""


@pytest.fixture(autouse=True)
def few_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "many" not in request.keywords and "whole_size" not in request.fixturenames:
        monkeypatch.setattr(store, "ROWS_BETWEEN_CHECKPOINTS", 10)


@pytest.fixture
def whole_size() -> None:
    """Checkpoints as far apart as they are in use."""


def rich(accountant: str = "zcdp", more: str = "") -> Policy:
    return policy_of("100000", "1e-6", accountant, more)


def spend(ledger: Ledger, times: int) -> None:
    """Charge every kind of way that a reservation can go, again and again; every tenth is left open."""
    for i in range(times):
        event = (TENTH, SPARSE, GAUSSIAN, event_of(i), declare((TENTH, event_of(i)), Fraction(1, 10**12)))[
            i % 5
        ]
        ticket = ledger.reserve(event, f"SELECT {i}")
        if i % 10 == 9:
            continue
        used = SparseVector(Fraction(1, 10), Fraction(3, 10), 3, 1) if event == SPARSE else event
        ledger.settle(ticket, used, KeptReleases({f"k{i}": b"x" * 10}), "released")
        if i % 7 == 0:
            ledger.refuse("SELECT *", "no")


def fold(path: Path, account: Account | None = None) -> Account:
    """Fold a ledger from its first row on."""
    account = account or Account()
    connection = log_file.connect_to_ledger(path)
    account.apply(verify_rows(read_rows_after(connection, account.seq), account.seq, account.head))
    connection.close()
    return account


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the rows whose hash is computed."""
    seen = [0]

    def count(*row: object) -> str:
        seen[0] += 1
        return hash_row(*row)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(log_file, "hash_row", count)
        yield seen


# -- checkpoints ------------------------------------------------------------------------------


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_a_checkpoint_is_what_a_fold_from_the_first_row_gives(path: Path, accountant: str) -> None:
    policy = rich(accountant, "[analysts.alice]\nepsilon = 50000\n")
    with Ledger.open(path, policy, "d", "alice") as ledger:
        spend(ledger, 60)
        state = ledger.state()
    whole = fold(path)
    assert whole.sealed > 90
    with Ledger.open(path, policy, "d", "alice") as again:
        account = again._book.account
        assert (account.seq, account.head, account.count) == (whole.seq, whole.head, whole.count)
        assert account.open == whole.open
        assert len(account.open) == 6
        for restored, folded in zip(account.filters("alice"), whole.filters("alice"), strict=True):
            assert restored.base == folded.base  # to the last digit
            assert restored.spent == folded.spent
        assert account.seal() == whole.seal()
        assert again.state() == state
    found = verify_ledger(path)
    assert (found.rows, found.statements, found.answers) == (whole.seq, whole.count, 54)
    assert found.checkpoints > 8


def test_sums_survive_json() -> None:
    losses = (Fraction(1, 3), Fraction(1, 10**9), None, Fraction(2, 7), Fraction(5), Fraction(0))
    for sums in (Spent(), Spent(3, *losses, (Fraction(1, 9),), (Fraction(2),))):
        assert Spent.from_json(json.loads(json.dumps(sums.to_json()))) == sums
    assert Spent.from_json({**Spent().to_json(), "another": "1"}) is None  # another version's: folded anew
    for wrong in ({"epsilon": "-1"}, {"count": -1}, {"renyi": ["1"]}):
        with pytest.raises(ValueError, match="sums"):
            Spent.from_json({**Spent().to_json(), **wrong})


def test_more_open_reservations_than_are_summed_apart(path: Path) -> None:
    with Ledger.open(path, rich("basic"), "d") as ledger:
        tickets = [ledger.reserve(SPARSE, str(i)) for i in range(100)]
        for hits, ticket in ((0, tickets[3]), (1, tickets[99]), (3, tickets[50]), (2, tickets[7])):
            ledger.settle(ticket, SparseVector(Fraction(1, 10), Fraction(3, 10), 3, hits), None, "released")
        expected = 96 * Fraction(4, 10) + sum(Fraction(1 + hits, 10) for hits in (0, 1, 3, 2))
        assert ledger.state().spent_epsilon == expected
    with Ledger.open(path, rich("basic"), "d") as again:
        assert again.state().spent_epsilon == expected
        assert len(again._book.account.open) == 96


def tamper(path: Path, edit: str, *, rehash: bool) -> None:
    """Change the sums of the last checkpoint; with ``rehash``, make it and every row after it fit again."""
    with sqlite3.connect(path) as connection:
        (seq,) = connection.execute("SELECT max(seq) FROM log WHERE kind = 'checkpoint'").fetchone()
        (body,) = connection.execute("SELECT body FROM log WHERE seq = ?", (seq,)).fetchone()
        said = json.loads(body)
        for sums in said["sums"].values():
            sums[0]["epsilon"] = edit
        connection.execute("UPDATE log SET body = ? WHERE seq = ?", (json.dumps(said, sort_keys=True), seq))
        if rehash:
            (head,) = connection.execute("SELECT hash FROM log WHERE seq = ?", (seq - 1,)).fetchone()
            for row in connection.execute("SELECT * FROM log WHERE seq >= ? ORDER BY seq", (seq,)).fetchall():
                head = hash_row(head, *row[:5])
                connection.execute("UPDATE log SET hash = ? WHERE seq = ?", (head, row[0]))
    connection.close()


def test_a_tampered_checkpoint_is_refused(path: Path, register: Path) -> None:
    with Ledger.open(path, rich(), "d") as ledger:
        spend(ledger, 40)
    kept = path.read_bytes()
    tamper(path, "0", rehash=False)
    for look in (
        lambda: Ledger.open(path, rich(), "d"),
        lambda: Ledger.read(path),
        lambda: verify_ledger(path),
    ):
        with pytest.raises(LedgerError, match="does not fit its hash"):
            look()
    path.write_bytes(kept)
    tamper(path, "0", rehash=True)  # the mark and the register know the rows after it
    with pytest.raises(LedgerError, match="is not the one that was written"):
        Ledger.open(path, rich(), "d")
    Path(f"{path}.d/mark").unlink()
    (register / "ledgers.sqlite").unlink()
    Ledger.open(path, rich(), "d").close()  # nobody knows: but the whole does not add up
    with pytest.raises(LedgerError, match="is not the sum of the rows before it"):
        verify_ledger(path)


def test_sums_below_the_fold_are_found_and_rounded_up_ones_are_not(path: Path) -> None:
    with Ledger.open(path, rich(), "d") as ledger:
        spend(ledger, 20)
    account = fold(path)
    written = account.seal()[0]["sums"]
    assert compare_sums(written, account.sums)
    for name, shift, fine in (
        ("rho", "1/1000000", True),
        ("rho", "-1/1000000", False),
        ("aside", "-1/1000000000000000", False),
    ):
        changed = json.loads(json.dumps(written))
        for (sums,) in changed.values():
            sums[name] = str(Fraction(sums[name]) + Fraction(shift))
        assert compare_sums(changed, account.sums) == fine


def test_a_damaged_row_before_the_checkpoint_is_found_by_verify(path: Path, whole_size: None) -> None:
    fill_ledger(path, rich(), 9000)
    assert path.stat().st_size > log_file._CHECKED_WHOLE  # else every page is looked at
    Ledger.open(path, rich(), "d").close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE log SET body = replace(body, 'bob', 'rob') WHERE seq = 20")
    connection.close()
    Ledger.open(path, rich(), "d").close()  # the chain is read from the last checkpoint on
    with pytest.raises(LedgerError, match="row 20 does not fit its hash"):
        verify_ledger(path)
    with Ledger.read(path) as owner, pytest.raises(LedgerError, match="row 20 does not fit its hash"):
        owner.entries()


def test_a_session_under_other_limits_folds_the_whole_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(path, rich(), "d") as ledger:
        spend(ledger, 60)
    rows = ledger_rows(path)
    tight = policy_of("90000", "1e-7", "zcdp")
    with counting(monkeypatch) as seen, Ledger.open(path, tight, "d") as other:
        assert seen[0] > rows
        own, granted = other._book.account.filters(None)
        spent = own.spent
    assert [s.base for s in (own, granted)] == [
        s.base for s in fold(path, Account(other.terms)).filters(None)
    ]
    with counting(monkeypatch) as seen, Ledger.open(path, tight, "d") as other:
        assert seen[0] < 20  # it left a checkpoint with its own sums
        assert other._book.account.filters(None)[0].spent == spent
    with counting(monkeypatch) as seen, Ledger.open(path, rich(), "d"):
        assert seen[0] < 20


def ledger_rows(path: Path) -> int:
    return verify_ledger(path).rows


def test_terms_that_were_adopted_are_counted_from_the_first_row(path: Path) -> None:
    with Ledger.open(path, rich(), "d") as ledger:
        spend(ledger, 40)
        state = ledger.state()
    wider = policy_of("200000", "1e-5", "gdp")
    Ledger.adopt(path, wider, "d")
    with Ledger.open(path, wider, "d") as adopted:
        assert adopted.state().spent_epsilon == state.spent_epsilon
        assert adopted.state().accountant == "gdp"
        (own,) = adopted._book.account.filters(None)
        assert own.base == fold(path, Account(adopted.terms)).filters(None)[0].base
    verify_ledger(path)


def test_the_budget_holds_across_checkpoints(path: Path) -> None:
    for _ in range(4):
        with Ledger.open(path, policy_of("1", "0", "basic"), "d") as ledger:
            for _ in range(10):
                ledger.settle(
                    ledger.reserve(PureDP(Fraction(1, 40)), "q"), PureDP(Fraction(1, 40)), None, "released"
                )
    with Ledger.open(path, policy_of("1", "0", "basic"), "d") as ledger:
        assert ledger._book.account.sealed > 60
        with pytest.raises(BudgetExceeded):
            ledger.reserve(PureDP(Fraction(1, 10**6)), "more")


# -- size -------------------------------------------------------------------------------------


def opening(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, float]:
    """Return the rows that opening verifies, and the bytes that it takes."""
    tracemalloc.start()
    try:
        with counting(monkeypatch) as seen, Ledger.open(path, rich(), "d") as ledger:
            ledger.state()
        return seen[0], tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_opening_does_not_grow_with_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole_size: None
) -> None:
    found = {}
    for statements in (1000, 100_000):
        path = tmp_path / f"{statements}.ledger"
        fill_ledger(path, rich(), statements)
        found[statements] = opening(path, monkeypatch)
    (few, small), (many, large) = found.values()
    assert many <= 2 * few + 2
    assert many < 10
    assert large < 2 * small + MEBIBYTE
    with Ledger.read(path) as owner:
        assert owner.count == statements
        assert [e.statement_id for e in owner.entries(3)] == [99_998, 99_999, 100_000]
        assert owner.entries(1)[0].text == "SELECT COUNT(*) FROM visits WHERE day = 100000"


@pytest.mark.stochastic
def test_a_million_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole_size: None) -> None:
    """Twice the time of a thousand, in 50 MB; and the whole report of them in 50 MB."""
    times = {}
    for statements in (1000, 1_000_000):
        path = tmp_path / f"{statements}.ledger"
        fill_ledger(path, rich(), statements)
        rows, size = opening(path, monkeypatch)
        assert rows < 10
        assert size < 50 * MEBIBYTE
        taken = []
        for _ in range(20):
            begin = time.perf_counter()
            Ledger.open(path, rich(), "d").close()
            taken.append(time.perf_counter() - begin)
        times[statements] = min(taken)
    print(f"opening: {times}")
    assert times[1_000_000] <= 2 * times[1000]
    told = json.loads(
        subprocess.run([sys.executable, "-c", REPORT, str(path)], capture_output=True, check=True).stdout
    )
    print(
        f"report: {told['report']:.0f} s, {told['characters']} characters; verification: {told['verify']:.0f} s"
    )
    assert told["characters"] < 2_000_000
    assert told["megabytes"] < 50
    assert told["statements"] == 1_000_000


DATED = """
[budget]
epsilon = 100000
delta = 1e-6
accountant = "zcdp"
per_period = true
[tables.visits]
privacy_unit = "patient_id"
privacy_period = "date_trunc('day', day)"
data_from = 2015-01-01
data_until = 2024-12-28
max_rows = 20
"""


def test_a_ledger_of_many_periods_has_the_sums_of_its_rows(path: Path) -> None:
    fill_ledger(path, Policy.loads(DATED), 600, periods=250)
    with Ledger.open(path, Policy.loads(DATED), "d") as ledger:
        assert len(ledger.state().stretches) == 251
    assert verify_ledger(path).statements == 600


@pytest.mark.stochastic
def test_a_million_statements_of_ten_years_of_days(tmp_path: Path, whole_size: None) -> None:
    """Twice the time of as many without periods."""
    times = []
    for policy, periods in ((rich(), 0), (Policy.loads(DATED), 3650)):
        path = tmp_path / f"{periods}.ledger"
        fill_ledger(path, policy, 1_000_000, periods=periods)
        taken = []
        for _ in range(20):
            begin = time.process_time()
            Ledger.open(path, policy, "d").close()
            taken.append(time.process_time() - begin)
        times.append(min(taken))
    print(f"opening: {times}")
    assert times[1] <= 2 * times[0]


# -- the report -------------------------------------------------------------------------------


def test_a_report_reads_each_statement_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_ledger(path, rich(), 200)
    walked: list[int] = []
    unwatched = Ledger.walk

    def walk(self: Ledger, first: int = 1, last: int | None = None) -> Iterator[Entry]:
        for entry in unwatched(self, first, last):
            walked.append(entry.statement_id)
            yield entry

    monkeypatch.setattr(Ledger, "walk", walk)
    with Ledger.read(path) as owner:
        make_report(owner)
    assert walked == list(range(1, 201))


def test_a_report_pages_and_sums_by_day_and_person(path: Path, whole_size: None) -> None:
    fill_ledger(path, rich(), 3000)
    with Ledger.read(path) as owner:
        told = make_report(owner)
        assert told["pages"] == {"page": 1, "of": 3, "first": 2001, "last": 3000, "count": 3000}
        assert [e["statement"] for e in told["asked"]["statements"]] == list(range(2001, 3001))
        whole = float(sum(event_of(i).basic[0] for i in range(1, 3001)))
        assert told["left"]["charges"] == sum(p["statements"] for p in told["asked"]["people"]) == 3000
        assert {p["who"] for p in told["asked"]["people"]} == {"alice", "bob", "carol"}
        days = told["asked"]["days"]
        assert len(days) == 3 * 3 + 1
        assert sum(d["statements"] for d in days) == 3000
        assert sum(d["epsilon"] for d in days) == pytest.approx(whole)
        second = [d for d in days if d["day"] == "2024-01-02"]
        assert sum(d["statements"] for d in second) == 1000
        steps = told["pictures"]["burn_down"]["steps"]
        assert 300 < len(steps) <= 402
        assert steps[-1] == {"charges": 3000, "left": pytest.approx(told["left"]["epsilon"]),
                             "text": "SELECT COUNT(*) FROM visits WHERE day = 3000"}  # fmt: skip
        page = write_page(told)
        assert len(page.encode()) < 2_000_000
        assert "2001 to 3000 of 3000 (page 1 of 3)" in page
        assert "2024-01-02" in page
        later = write_report(owner, None, path.with_name("page.json"), page=3)
        assert json.loads(later.read_text())["asked"]["statements"][0]["statement"] == 1
        assert report_text(owner, page=3).count("day = ") == 1000
        rows = write_report(owner, None, path.with_name("all.csv")).read_text().splitlines()
        assert len(rows) == 3001


def test_days_become_months_and_years_where_there_are_many() -> None:
    days = {
        (f"20{y:02}-{m:02}-{d:02}", w): Tally(1, 1, Fraction(1), Fraction(1))
        for y in range(9)
        for m in range(1, 13)
        for d in (1, 9)
        for w in "ab"
    }
    for most, rows, first in ((1000, 432, "2008-12-09"), (400, 216, "2008-12"), (100, 18, "2008")):
        found = sum_days(days, most)
        assert (len(found), found[0][0]) == (rows, first)
        assert sum(tally.statements for _, _, tally in found) == 432
    found = sum_days(days, 5)
    assert len(found) == 5
    assert found[-1][:2] == ("earlier", "all others")
    assert sum(tally.epsilon for _, _, tally in found) == 432


# -- the upgrade ------------------------------------------------------------------------------

OLD = Path(__file__).parents[1] / "earlier_version" / "ledger.sqlite"


def test_an_older_ledger_is_upgraded_and_a_copy_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    shutil.copy(OLD, path)
    with Ledger.read(path) as owner:  # whoever reads changes nothing
        policy, dataset, entries = owner.policy, owner.dataset, owner.entries()
        state = owner.state()
    assert policy is not None
    assert path.read_bytes() == OLD.read_bytes()
    with Ledger.open(path, policy, dataset) as ledger:
        assert ledger.entries() == entries
        assert ledger.state() == state
    (copy,) = tmp_path.glob("a.ledger.d/version-1*")
    assert not copy.stat().st_mode & 0o277
    before, after = sqlite3.connect(OLD), sqlite3.connect(path)
    assert (
        sqlite3.connect(copy).execute("SELECT * FROM log").fetchall()
        == before.execute("SELECT * FROM log").fetchall()
    )
    (rows, head) = before.execute("SELECT seq, hash FROM log ORDER BY seq DESC LIMIT 1").fetchone()
    kind, body = after.execute("SELECT kind, body FROM log WHERE seq = ?", (rows + 1,)).fetchone()
    assert kind == "upgrade"
    assert json.loads(body) == {"from": 1, "rows": rows, "head": head, "copy": copy.name}
    verify_ledger(path)
    texts = [row for (row,) in after.execute("SELECT body FROM log")]
    assert not [text for text in texts if "SELECT" in text]  # what was said stands apart
    assert all(entry.text for entry in entries)


def test_a_mark_of_the_older_chain_is_recognised_and_a_rollback_of_it_is_too(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    shutil.copy(OLD, path)
    connection = sqlite3.connect(path)
    ledger_id = json.loads(connection.execute("SELECT body FROM log WHERE seq = 1").fetchone()[0])["ledger"]
    seq, head = connection.execute("SELECT seq, hash FROM log ORDER BY seq DESC LIMIT 1").fetchone()
    connection.close()
    with Ledger.read(path) as owner:
        policy, dataset = owner.policy, owner.dataset
    assert policy is not None
    mark = path.with_name("a.ledger-id")  # where the versions of that chain wrote it
    mark.write_text(json.dumps({"ledger": ledger_id, "seq": seq, "hash": "0" * 64}))
    with pytest.raises(LedgerError, match="is not the one that was written"):
        Ledger.open(path, policy, dataset)
    mark.write_text(json.dumps({"ledger": ledger_id, "seq": seq, "hash": head}))
    Ledger.open(path, policy, dataset).close()


def test_a_damaged_older_ledger_is_not_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    shutil.copy(OLD, path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE log SET body = replace(body, '1/10', '1/99') WHERE kind = 'reserve'")
        connection.execute("UPDATE log SET at = '2020' WHERE seq = 3")
    connection.close()
    kept = path.read_bytes()
    with pytest.raises(LedgerError, match="does not fit its hash"):
        Ledger.open(path, rich(), "d")
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert connection.execute("SELECT count(*) FROM replay").fetchone()[0] > 0
    connection.close()
    assert kept[:16] == path.read_bytes()[:16]
