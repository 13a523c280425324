"""An owner's work on a ledger: verify, back up, restore, have texts forgotten; and how many answers are kept."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path

import pytest

import dpsql
from dpsql.cli import main
from dpsql.errors import BindError, BudgetExceeded, LedgerError, ParseError, PolicyError
from dpsql.ledger import log_file, store
from dpsql.ledger.ledger import KeptReleases, Ledger
from dpsql.ledger.log_file import FORGOTTEN
from dpsql.ledger.state_files import place_side_file, take_ledger
from dpsql.ledger.upkeep import back_up, forget_before, restore_ledger, upgrade, verify_ledger
from dpsql.policy.model import Policy
from dpsql.privacy.events import GroupSelection, PureDP
from tests.support.ledgers import policy_of

Reopen = Callable[..., Ledger]
TENTH = PureDP(Fraction(1, 10))


def ask(ledger: Ledger, text: str = "q", **kept: bytes) -> None:
    ledger.settle(ledger.reserve(TENTH, text), TENTH, KeptReleases(kept), "released")


def mark_of(path: Path) -> Path:
    return Path(f"{path}.d/mark")


# -- verify, backup ---------------------------------------------------------------------------


def test_a_backup_is_taken_while_sessions_charge(path: Path, tmp_path: Path) -> None:
    policy = policy_of(epsilon="1000000")  # it lasts, however long the backups take
    stop, made = threading.Event(), []
    with Ledger.open(path, policy, "d") as ledger:

        def charge() -> None:
            while not stop.is_set():
                ask(ledger)

        thread = threading.Thread(target=charge)
        thread.start()
        try:
            for i in range(5):
                made.append(back_up(path, tmp_path / f"{i}.backup"))
        finally:
            stop.set()
            thread.join()
        ask(ledger)
    for i, found in enumerate(made):
        copy = tmp_path / f"{i}.backup"
        assert verify_ledger(copy) == found
        assert found.statements <= verify_ledger(path).statements
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert not copy.with_name(copy.name + "-wal").exists()
    with pytest.raises(LedgerError, match="exists already"):
        back_up(path, tmp_path / "0.backup")


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        ("UPDATE said SET content = replace(content, 'first', 'worst')", "does not fit its digest"),
        ("UPDATE said SET salt = 'x'", "does not fit its digest"),
        ("DELETE FROM said WHERE seq = 2", "is missing"),
        ("INSERT INTO said VALUES (99, '', '{}')", "a content has no row"),
        ("UPDATE log SET at = '2000-01-01' WHERE seq = 2", "does not fit its hash"),
    ],
)
def test_verify_finds_what_was_changed(ledger: Ledger, path: Path, edit: str, told: str) -> None:
    ask(ledger, "first")
    ask(ledger, "second")
    ledger.close()
    verify_ledger(path)
    with sqlite3.connect(path) as connection:
        connection.execute(edit)
    connection.close()
    with pytest.raises(LedgerError, match=told):
        verify_ledger(path)


def test_verify_finds_a_changed_answer(ledger: Ledger, path: Path) -> None:
    ask(ledger, key=b"released")
    assert verify_ledger(path).answers == 1
    with sqlite3.connect(str(path) + ".d/answers") as connection:
        connection.execute("UPDATE answers SET release = x'00'")
    connection.close()
    with pytest.raises(LedgerError, match="does not fit the ledger's record"):
        verify_ledger(path)


# -- restore ----------------------------------------------------------------------------------


@pytest.fixture
def backed_up(path: Path, tmp_path: Path) -> Path:
    """A backup after two charges of alice; then bob was charged three times."""
    file = tmp_path / "kept.backup"
    with Ledger.open(path, shared(), "d", "alice") as ledger:
        ask(ledger, "a", first=b"1")
        ask(ledger, "b")
        back_up(path, file)
    with Ledger.open(path, shared(), "d", "bob") as ledger:
        for i in range(3):
            ask(ledger, f"lost {i}", **{f"lost{i}": b"2"})
        ledger.refuse("no", "no")
    return file


def shared() -> Policy:
    return policy_of(more="[analysts.alice]\nepsilon = 0.6\n[analysts.bob]\nepsilon = 0.6\n")


def left(path: Path, analyst: str | None = None) -> Fraction:
    with Ledger.open(path, shared(), "d", analyst) as ledger:
        return ledger.state().left_epsilon


def test_charges_since_are_taken_from_the_ledger_that_is_there(path: Path, backed_up: Path) -> None:
    told = restore_ledger(path, backed_up)
    assert told[0].startswith("3 charges since row 5 were written off")
    assert left(path) == Fraction(5, 10)
    assert left(path, "alice") == Fraction(4, 10)
    assert left(path, "bob") == Fraction(3, 10)
    with Ledger.open(path, shared(), "d") as ledger:
        assert [e.outcome for e in ledger.entries()] == ["released"] * 2 + ["written off"] * 3
        assert [e.text for e in ledger.entries()] == ["a", "b", "lost 0", "lost 1", "lost 2"]
        assert ledger.replay("first") is not None
        assert ledger.replay("lost1") is None  # the restored ledger does not know it as paid
        assert any("restored an older copy" in notice for notice in ledger.notices)
    assert verify_ledger(path).answers == 1
    assert Path(f"{path}.d/replaced-1.ledger").exists()


@pytest.mark.parametrize("how", ["gone", "damaged", "rolled back", "gone with its mark"])
def test_what_is_not_known_is_asked_for(path: Path, backed_up: Path, how: str, register: Path) -> None:
    if how == "damaged":
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE log SET at = '2000-01-01' WHERE seq = 8")
        connection.close()
    elif how == "rolled back":
        shutil.copy(backed_up, path)
    else:
        path.unlink()
    if how == "gone with its mark":
        mark_of(path).unlink()
        (register / "ledgers.sqlite").unlink()
    else:
        with pytest.raises(LedgerError):  # no session goes on with it
            left(path)
    with pytest.raises(LedgerError, match="The charges since row 5 of the backup are unknown") as told:
        restore_ledger(path, backed_up)
    assert "--spent EPSILON" in str(told.value.hint)
    restore_ledger(path, backed_up, (Fraction(3, 10), Fraction(1, 10**7)))
    with Ledger.open(path, shared(), "d") as ledger:
        entry = ledger.entries()[-1]
        assert (entry.outcome, entry.event) == (
            "written off",
            GroupSelection(Fraction(3, 10), Fraction(1, 10**7)),
        )
    assert left(path) == Fraction(5, 10)
    assert left(path, "alice") == Fraction(1, 10)  # nobody knows whose it was: it counts for everybody
    assert left(path, "bob") == Fraction(3, 10)
    with Ledger.open(path, shared(), "d", "alice") as ledger, pytest.raises(BudgetExceeded):
        ledger.reserve(PureDP(Fraction(2, 10)), "more than is left of the share")
    verify_ledger(path)


def test_nothing_is_asked_where_nothing_was_charged_since(path: Path, tmp_path: Path) -> None:
    with Ledger.open(path, shared(), "d") as ledger:
        ask(ledger)
    back_up(path, tmp_path / "b")
    path.unlink()
    assert restore_ledger(path, tmp_path / "b")[0].startswith("0 charges since")
    assert left(path) == Fraction(9, 10)


def test_a_restored_ledger_goes_on_and_the_replaced_one_does_not(path: Path, backed_up: Path) -> None:
    with Ledger.open(path, shared(), "d") as session:
        restore_ledger(path, backed_up)
        with pytest.raises(LedgerError, match="removed or replaced while it was open"):
            session.reserve(TENTH, "q")
    with Ledger.open(path, shared(), "d") as ledger:
        ask(ledger)
    mark_of(path).unlink()
    shutil.copy(backed_up, path)
    with pytest.raises(LedgerError, match="older or another copy"):
        left(path)


def test_no_charge_slips_by_while_a_backup_is_restored(path: Path, tmp_path: Path) -> None:
    """A session goes on charging; what it was told is paid is in the restored ledger, whenever the moment came."""
    policy, paid = policy_of(epsilon="1000000"), 0  # it lasts, however long the restoring takes
    with Ledger.open(path, policy, "d") as ledger:
        ask(ledger)
    back_up(path, tmp_path / "b")
    ready = threading.Event()

    def charge() -> None:
        nonlocal paid
        with Ledger.open(path, policy, "d") as session, pytest.raises(LedgerError):
            while True:
                session.reserve(TENTH, "q")
                paid += 1
                if paid == 5:
                    ready.set()

    thread = threading.Thread(target=charge)
    thread.start()
    ready.wait()
    restore_ledger(path, tmp_path / "b")
    thread.join()
    with Ledger.open(path, policy, "d") as ledger:
        assert ledger.state().spent_epsilon >= Fraction(paid + 1, 10)
        ask(ledger)
    assert paid >= 5
    verify_ledger(path)


def test_a_backup_of_another_ledger_takes_no_charges_over(
    path: Path, tmp_path: Path, backed_up: Path
) -> None:
    other = tmp_path / "other.ledger"
    with Ledger.open(other, shared(), "d") as ledger:
        ask(ledger)
    with pytest.raises(LedgerError, match="are unknown"):
        restore_ledger(other, backed_up)
    with sqlite3.connect(backed_up) as connection:
        connection.execute("UPDATE log SET at = '2000-01-01' WHERE seq = 3")
    connection.close()
    with pytest.raises(LedgerError, match="does not fit its hash"):
        restore_ledger(path, backed_up)
    assert left(path) == Fraction(5, 10)  # as it was


@pytest.mark.parametrize(
    "spent", [(Fraction(-1), Fraction(0)), (Fraction(1), Fraction(1)), (Fraction(0), Fraction(1, 10))]
)
def test_what_is_written_off_is_a_loss(path: Path, backed_up: Path, spent: tuple[Fraction, Fraction]) -> None:
    with pytest.raises(LedgerError, match="an epsilon above 0"):
        restore_ledger(path, backed_up, spent)


# -- forget -----------------------------------------------------------------------------------


def every_byte(path: Path) -> bytes:
    return b"".join(
        file.read_bytes()
        for place in (path.name, path.name + "-*", path.name + ".d/*")
        for file in path.parent.glob(place)
    )


def test_texts_are_forgotten_while_charges_and_chain_verify(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "ROWS_BETWEEN_CHECKPOINTS", 10)
    policy = policy_of(epsilon="10")
    with Ledger.open(path, policy, "d") as ledger:
        monkeypatch.setattr(log_file, "format_now", lambda: "2024-03-01T10:00:00.000000+00:00")
        for i in range(30):
            kept = KeptReleases({f"key{i}": b"Garbo"}, {f"asked{i}": b"Garbo"})
            ledger.settle(ledger.reserve(TENTH, f"SELECT '{i} Greta Garbo'"), TENTH, kept, "released")
        ledger.refuse("SELECT 'Garbo'", "Garbo is no table")
        monkeypatch.setattr(log_file, "format_now", lambda: "2024-03-02T10:00:00.000000+00:00")
        ask(ledger, "SELECT 'Marlene Dietrich'", later=b"1")
        before = ledger.state()
        assert b"Garbo" in every_byte(path)
        told = forget_before(path, date(2024, 3, 2))
        assert told == (
            "61 texts and 60 stored answers from before 2024-03-02 were forgotten",
            "asked again, these statements are charged again",
        )
        assert b"Garbo" not in every_byte(path)
        assert b"key7" not in every_byte(path)
        assert b"Dietrich" in every_byte(path)
        assert ledger.state() == before  # in the session that went on meanwhile
        assert {e.text for e in ledger.entries()} == {FORGOTTEN, "SELECT 'Marlene Dietrich'"}
        assert ledger.replay("key7") is None
        assert ledger.replay("later") is not None
        ask(ledger, "SELECT 'after'")
    with Ledger.open(path, policy, "d") as again:
        assert again.state().spent_epsilon == before.spent_epsilon + Fraction(1, 10)
        assert [e.outcome for e in again.entries()] == ["released"] * 30 + ["refused"] + ["released"] * 2
    found = verify_ledger(path)
    assert (found.forgotten, found.statements, found.answers) == (61, 33, 1)
    with sqlite3.connect(path) as connection:  # what was not forgotten must be there
        connection.execute("DELETE FROM said WHERE content LIKE '%Dietrich%'")
    connection.close()
    with pytest.raises(LedgerError, match="is missing"):
        verify_ledger(path)


def test_nobody_waits_for_readers_while_texts_are_forgotten(path: Path) -> None:
    """SQLite's own patience of 30 seconds would hold every statement that long."""
    with Ledger.open(path, policy_of(epsilon="10"), "d") as ledger:
        ask(ledger)
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM log").fetchall()
            ask(ledger)
            begun = time.monotonic()
            told = forget_before(path, date.today() + timedelta(days=2))
            ask(ledger)
            assert time.monotonic() - begun < 28
    assert told[1].startswith("a session is reading")


# -- how many answers are kept ----------------------------------------------------------------


def keeping(megabytes: int) -> Policy:
    return policy_of(epsilon="10", more=f"[ledger]\nkeep_answers_mb = {megabytes}\n")


def test_the_oldest_answers_are_dropped_to_make_room(path: Path) -> None:
    answers = Path(f"{path}.d/answers")
    with Ledger.open(path, keeping(1), "d") as ledger:
        for i in range(30):
            ask(ledger, "q", **{f"k{i}": bytes([i]) * 200_000})
            size = sum(f.stat().st_size for f in path.parent.glob(answers.name + "*"))
            assert size < 8_000_000
        assert [i for i in range(30) if ledger.replay(f"k{i}") is not None] == [25, 26, 27, 28, 29]
        assert [e.statement_id for i in range(30) if (e := ledger.find_dropped(f"k{i}"))] == list(
            range(1, 26)
        )
        assert ledger.find_dropped("never") is None
        ask(ledger, "q", large=bytes(1_000_001))
        assert ledger.replay("large") is None
        assert ledger.replay("k29") is not None
        assert ledger.state().spent_epsilon == Fraction(31, 10)
    with Ledger.open(path, keeping(0), "d") as ledger:
        ask(ledger, "q", more=b"1")
        assert all(ledger.replay(key) is None for key in ("more", "k29"))
    assert verify_ledger(path).answers == 0


def test_a_dropped_answer_is_charged_again_and_explain_says_so_before(tmp_path: Path) -> None:
    data = {"visits": __import__("pandas").DataFrame({"id": range(300), "age": [n % 60 for n in range(300)]})}
    text = """
        budget = {{ epsilon = 10 }}
        [tables]
        visits = {{ privacy_unit = "id", max_rows = 1, version = "1", columns = {{ age = {{ bounds = [0, 60] }} }} }}
        [ledger]
        keep_answers_mb = {}
    """
    query = "SELECT WITH DP OPTIONS (epsilon = 0.5) SUM(age) AS s FROM visits"
    with dpsql.connect(data, policy=Policy.loads(text.format(1)), ledger=tmp_path / "a.ledger") as session:
        session.sql(query)
        assert "is stored since" in str(session.explain(query))
        assert session.sql(query).loss == "no charge"
    with dpsql.connect(data, policy=Policy.loads(text.format(0)), ledger=tmp_path / "a.ledger") as session:
        session.sql(query.replace("0.5", "0.25"))  # makes room: there is none
        told = str(session.explain(query))
        assert "This block is charged again: the answer of" in told
        assert "keep_answers_mb" in told
        assert "Would cost ε=0.5" in told
        answer = session.sql(query)
        assert answer.loss == "ε=0.5"
        assert any("was dropped" in note for note in answer.notes)
        assert session.budget().spent_epsilon == Fraction(125, 100)
        assert not any("was dropped" in note for note in session.sql(query, fresh=True).notes)


def test_the_limit_is_no_term_and_no_part_of_a_policy_s_meaning(path: Path) -> None:
    assert keeping(1).fingerprint == policy_of(epsilon="10").fingerprint != policy_of(epsilon="9").fingerprint
    assert Policy.loads(keeping(7).dumps()) == keeping(7)
    assert "[ledger]" not in policy_of().dumps()
    for wrong in (-1, '"1 GB"', 1.5, "true"):
        with pytest.raises(PolicyError, match="keep_answers_mb must be a whole number, at least 0"):
            policy_of(more=f"[ledger]\nkeep_answers_mb = {wrong}\n")


def test_a_broken_file_of_answers_keeps_no_charge_from_being_made(path: Path, reopen: Reopen) -> None:
    answers = Path(f"{path}.d/answers")
    answers.parent.mkdir()
    answers.write_bytes(b"no database" * 1000)
    with reopen() as ledger:
        with pytest.raises(LedgerError, match="of stored answers can't be read"):
            ledger.replay("k")
        ask(ledger, "q", k=b"1")
        assert ledger.state().spent_epsilon == Fraction(1, 10)
        answers.unlink()
        assert ledger.replay("k") is None
        ask(ledger, "q", k=b"1")
        assert ledger.replay("k") is not None


# -- one file and one folder ------------------------------------------------------------------


def scatter(path: Path) -> None:
    """Put the files of a ledger's folder where earlier versions wrote them."""
    for name, before in {
        "mark": f"{path.name}-id",
        "answers": f"{path.name}-answers",
        "served": f".{path.name}.served",
    }.items():
        place_side_file(path, name).rename(path.with_name(before))
    Path(f"{path}.d").rmdir()


def test_a_ledger_is_one_file_and_one_folder(path: Path, reopen: Reopen) -> None:
    with reopen() as ledger:
        ask(ledger, "q", k=b"1")
    os.close(take_ledger(path))
    with Ledger.read(path) as read:
        assert len(read.entries()) == 1
    verify_ledger(path)
    assert {file.name for file in path.parent.iterdir()} - {"state"} == {path.name, path.name + ".d"}
    assert {file.name for file in Path(f"{path}.d").iterdir()} == {"mark", "answers", "served"}


def test_files_of_earlier_versions_are_used_where_they_are_and_gathered_on_request(
    path: Path, reopen: Reopen
) -> None:
    with reopen() as ledger:
        ask(ledger, "q", k=b"1")
    older = path.read_bytes()
    os.close(take_ledger(path))
    scatter(path)
    with reopen() as ledger:
        assert ledger.replay("k") is not None
        ask(ledger, "q2", k2=b"2")
        server = take_ledger(path)
        with pytest.raises(LedgerError, match="A server has the ledger"):
            upgrade(path)
        os.close(server)
        assert "answers" not in upgrade(path).partition("Moved")[2]  # this session has them open
        assert ledger.replay("k2") is not None
    assert upgrade(path).endswith(f"Moved into {path.name}.d: {path.name}-answers.")
    assert "Moved" not in upgrade(path)
    assert {file.name for file in path.parent.iterdir()} - {"state"} == {path.name, path.name + ".d"}
    with reopen() as ledger:
        assert ledger.replay("k") is not None
        assert ledger.replay("k2") is not None
        assert ledger.state().spent_epsilon == Fraction(2, 10)
    path.write_bytes(older)  # the mark came along, too
    shutil.rmtree(path.with_name("state"), ignore_errors=True)
    with pytest.raises(LedgerError, match="was replaced by an older"):
        reopen()


def test_the_folder_is_open_to_those_to_whom_the_ledger_is(path: Path, reopen: Reopen) -> None:
    reopen().close()
    assert stat.S_IMODE(Path(f"{path}.d").stat().st_mode) == 0o700
    path.chmod(0o660)
    with reopen() as ledger:
        ask(ledger, "q", k=b"1")
    assert stat.S_IMODE(Path(f"{path}.d").stat().st_mode) == 0o770
    assert stat.S_IMODE(Path(f"{path}.d/answers").stat().st_mode) == 0o660


# -- the command line, and SHOW ---------------------------------------------------------------


def test_the_commands(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        status = main(["ledger", *arguments])
        told = capsys.readouterr()
        return status, told.out + told.err

    policy = tmp_path / "policy"
    policy.write_text(shared().dumps())
    beside = path.with_name("policy.ledger")
    with Ledger.open(beside, shared(), "d") as ledger:
        ask(ledger, "SELECT 1")
    assert run("verify", "--policy", str(policy))[1].startswith("whole: 3 rows, 1 statement, 0 checkpoints")
    assert run("verify", str(policy)) == run("verify", "--policy", str(policy))
    assert "given twice" in run("verify", str(policy), "--policy", str(policy))[1]
    file = tmp_path / "b.backup"
    assert run("backup", str(file), "--ledger", str(beside))[0] == 0
    assert run("backup", str(file), "--ledger", str(beside))[0] == 1
    with Ledger.open(beside, shared(), "d") as ledger:
        ask(ledger, "SELECT 2")
    beside.unlink()
    status, told = run("restore", str(file), "--policy", str(policy))
    assert status == 1
    assert "give the amount to write off as spent: --spent EPSILON" in told
    assert (
        run("restore", str(file), "--policy", str(policy), "--spent", "0.2", "--spent-delta", "1e-8")[0] == 0
    )
    assert left(beside) == Fraction(7, 10)
    assert run("restore", str(file), "--policy", str(policy), "--spent", "lots")[1].count("are numbers") == 1
    tomorrow = (date.today() + timedelta(days=2)).isoformat()
    assert "is yet to come" in run("forget", "--before", tomorrow, "--ledger", str(beside))[1]
    assert verify_ledger(beside).forgotten == 0
    today = date.today().isoformat()
    assert "texts and 0 stored answers" in run("forget", "--before", today, "--ledger", str(beside))[1]
    assert "is not a day" in run("forget", "--before", "soon", "--ledger", str(beside))[1]
    assert "has format 2" in run("upgrade", "--ledger", str(beside))[1]
    assert "give the ledger, or the policy" in run("verify")[1]
    with sqlite3.connect(beside) as connection:
        connection.execute("UPDATE log SET at = '2000' WHERE seq = 2")
    connection.close()
    status, told = run("verify", "--ledger", str(beside))
    assert status == 1
    assert "does not fit its hash" in told


def test_show_ledger_limit() -> None:
    policy = Policy.loads('[budget]\nepsilon = 10\n[tables.t]\nprivacy_unit = "id"\nmax_rows = 1\n')
    with dpsql.connect({"t": __import__("pandas").DataFrame({"id": [1, 2, 3]})}, policy=policy) as session:
        for i in range(5):
            session.sql(f"SELECT WITH DP OPTIONS (epsilon = 0.{i + 1}) COUNT(*) AS n FROM t")
        rows = session.sql("SHOW LEDGER").fetchall()
        assert len(rows) == 5
        assert session.sql("SHOW LEDGER LIMIT 2").fetchall() == rows[-2:]
        assert session.sql("show ledger limit 99;").fetchall() == rows
        assert session.sql("SHOW LEDGER LIMIT 0").fetchall() == []
        assert session.ledger(1) == session.ledger()[-1:]
        for text, told in (
            ("SHOW LEDGER LIMIT", "nothing follows LIMIT"),
            ("SHOW LEDGER LIMIT -1", "LIMIT takes a whole number"),
            ("SHOW LEDGER LIMIT ٣", "LIMIT takes a whole number"),
            ("SHOW LEDGER LIMIT 2 3", "nothing may follow here"),
            ("SHOW BUDGET LIMIT 2", "nothing may follow here"),
        ):
            with pytest.raises((ParseError, BindError), match=told):
                session.sql(text)
