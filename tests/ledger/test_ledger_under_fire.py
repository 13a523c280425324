"""The ledger under fire: broken files, tampering, full disks, clocks. An honest error, and never an unpaid
answer.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.errors import BudgetExceeded, LedgerError
from dpsql.ledger import log_file
from dpsql.ledger.ledger import KeptReleases, Ledger
from dpsql.ledger.log_file import START, hash_row
from dpsql.privacy.events import PureDP
from tests.support.ledgers import policy_of
from tests.support.own_process import run_python

Reopen = Callable[..., Ledger]
TENTH = PureDP(Fraction(1, 10))


@pytest.fixture
def spent(ledger: Ledger, path: Path) -> Path:
    """A closed ledger with two statements, the first with a stored release, and no mark beside it."""
    ledger.settle(ledger.reserve(TENTH, "first"), TENTH, KeptReleases({"key": b"released"}), "released")
    ledger.settle(ledger.reserve(TENTH, "second"), TENTH, None, "failed")
    ledger.close()
    Path(f"{path}.d/mark").unlink()
    return path


def change(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def change_answers(path: Path, statement: str) -> None:
    change(Path(f"{path}.d/answers"), statement)


def rewrite(path: Path, row: int, edit: Callable[[dict[str, object]], None]) -> None:
    """Changes a row and recomputes the whole chain, as somebody would who knows how it is made."""
    with sqlite3.connect(path) as connection:
        head = START
        for seq, kind, statement, at, body, _ in connection.execute(
            "SELECT * FROM log ORDER BY seq"
        ).fetchall():
            said = json.loads(body)
            if seq == row:
                edit(said)
            body = json.dumps(said, sort_keys=True)
            head = hash_row(head, seq, kind, statement, at, body)
            connection.execute("UPDATE log SET body = ?, hash = ? WHERE seq = ?", (body, head, seq))
    connection.close()


# -- broken files -----------------------------------------------------------------------------


def test_the_fixture_is_fine(spent: Path, reopen: Reopen) -> None:
    """The ledger that the tests below break does open when it is not broken."""
    assert reopen().state().spent_epsilon == Fraction(2, 10)


@pytest.mark.parametrize(
    "content", [b"", b"epsilon = 1\n", b"\x00" * 8192, b"SQLite format 3\x00" + b"\x07" * 4000]
)
def test_not_a_ledger(path: Path, reopen: Reopen, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"empty|not a ledger|damaged|not a dpsql ledger"):
        reopen()
    assert path.read_bytes() == content


def test_a_directory(path: Path, reopen: Reopen) -> None:
    path.mkdir()
    with pytest.raises(LedgerError, match="can't be opened"):
        reopen()


def test_no_such_directory(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="can't be created"):
        Ledger.open(tmp_path / "nowhere" / "a.ledger", policy_of(), "d")


def test_any_other_database(path: Path, reopen: Reopen) -> None:
    change(path, "CREATE TABLE t (x)")
    with pytest.raises(LedgerError, match="not a dpsql ledger"):
        reopen()


def test_a_newer_format(spent: Path, reopen: Reopen) -> None:
    change(spent, "PRAGMA user_version = 3")
    with pytest.raises(LedgerError, match="has format 3; this dpsql writes format 2"):
        reopen()


@pytest.mark.parametrize("keep", [0, 1, 99, 100, 4095, 4096, 8192, 12288])
def test_cut_off(spent: Path, reopen: Reopen, keep: int) -> None:
    assert keep < spent.stat().st_size
    os.truncate(spent, keep)
    with pytest.raises(LedgerError):
        reopen()


def test_flipped_bytes(spent: Path, reopen: Reopen, tmp_path: Path) -> None:
    """Wherever a byte flips: an error, or (in free space, or SQLite's own counters) the very same
    statements.
    """
    whole = spent.read_bytes()
    before = reopen().entries()
    noticed = 0
    for at in range(0, len(whole), 97):
        target = tmp_path / "flipped.ledger"
        target.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            with Ledger.read(target) as ledger:
                assert ledger.entries() == before
        except LedgerError:
            noticed += 1
    assert noticed > 20


# -- tampering --------------------------------------------------------------------------------

TAMPERED = {
    "a row deleted": "DELETE FROM log WHERE seq = 3",
    "the beginning deleted": "DELETE FROM log WHERE seq = 1",
    "all rows deleted": "DELETE FROM log",
    "a charge lowered": "UPDATE log SET body = replace(body, '1/10', '1/99')",
    "a charge made negative": "UPDATE log SET body = replace(body, '1/10', '-1/10')",
    "another analyst": 'UPDATE log SET body = replace(body, \'"analyst":""\', \'"analyst":"eve"\')',
    "a settlement for a reservation": "UPDATE log SET kind = 'refuse' WHERE seq = 2",
    "a time": "UPDATE log SET at = '2020-01-01' WHERE seq = 2",
    "rows swapped": "UPDATE log SET seq = CASE seq WHEN 2 THEN -4 WHEN 4 THEN -2 END WHERE seq IN (2, 4)",
    "a number for a text": "UPDATE log SET body = 7 WHERE seq = 2",
    "a blob for a text": "UPDATE log SET body = x'00' WHERE seq = 2",
    "a gap": "UPDATE log SET seq = 9 WHERE seq = 5",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON log BEGIN DELETE FROM log WHERE seq = new.seq; END",
    "a view": "CREATE VIEW v AS SELECT 1",
    "a table gone": "DROP TABLE said",
}


@pytest.mark.parametrize("name", TAMPERED)
def test_tampering_shows(spent: Path, reopen: Reopen, name: str) -> None:
    change(spent, TAMPERED[name])
    with pytest.raises(LedgerError, match="damaged or changed by hand"):
        reopen()


REWRITTEN: dict[str, tuple[int, Callable[[dict[str, object]], None]]] = {
    "negative epsilon": (2, lambda row: row.update(event={"kind": "pure", "epsilon": "-1/10"})),
    "NaN epsilon": (2, lambda row: row.update(event={"kind": "pure", "epsilon": float("nan")})),
    "float epsilon": (2, lambda row: row.update(event={"kind": "pure", "epsilon": 0.1})),
    "division by zero": (2, lambda row: row.update(event={"kind": "pure", "epsilon": "1/0"})),
    "unknown kind": (2, lambda row: row.update(event={"kind": "free"})),
    "no event": (2, lambda row: row.update(event=None)),
    "an event without text": (2, lambda row: row.pop("said")),
    "a cheaper settlement": (3, lambda row: row.update(event={"kind": "pure", "epsilon": "1/20"})),
    "a refund": (5, lambda row: row.update(outcome="refunded")),
    "a negative budget": (1, lambda row: row["terms"].update(epsilon="-1")),  # type: ignore[attr-defined]
    "no terms": (1, lambda row: row.pop("terms")),
}


@pytest.mark.parametrize("name", REWRITTEN)
def test_rows_that_no_ledger_writes_are_refused_even_in_a_good_chain(
    spent: Path, reopen: Reopen, name: str
) -> None:
    rewrite(spent, *REWRITTEN[name])
    with pytest.raises(LedgerError, match="damaged or changed by hand"):
        reopen()


def test_a_chain_recomputed_shows_by_the_mark(spent: Path, reopen: Reopen, register: Path) -> None:
    """Somebody who rewrites everything must also rewrite the mark and the register; without both, this is what
    is not noticed.
    """
    with reopen() as again:
        again.reserve(TENTH, "third")
    rewrite(spent, 2, lambda row: row.update(user="nobody to see"))
    with pytest.raises(LedgerError, match="is not the one that was written"):
        reopen()
    Path(f"{spent}.d/mark").unlink()
    with pytest.raises(LedgerError, match="is not the one that was written"):
        reopen()
    (register / "ledgers.sqlite").unlink()
    assert reopen().entries()[0].user == "nobody to see"


@pytest.mark.parametrize("reads", [1, 2])
def test_a_kept_error_does_not_keep_old_rows(ledger: Ledger, path: Path, reads: int) -> None:
    """A notebook keeps its last error. Once the owner has mended the file, the open ledger reads it as it is now."""
    for text in ("first", "second"):
        ledger.reserve(TENTH, text)
    with sqlite3.connect(path) as other:
        seq, right = other.execute("SELECT max(seq), hash FROM log").fetchone()
        other.execute("UPDATE log SET hash = 'wrong' WHERE seq = ?", (seq,))
        # rows beyond the wrong one, so that some are not read
        copied = "SELECT seq + ?, kind, statement, at, body, hash FROM log WHERE seq = ?"
        for more in (1, 2):
            other.execute(f"INSERT INTO log (seq, kind, statement, at, body, hash) {copied}", (more, seq))
    kept = []
    for _ in range(reads):
        with pytest.raises(LedgerError, match="damaged") as error:
            ledger.state()
        kept.append(error.value)
    with sqlite3.connect(path) as other:
        other.execute("DELETE FROM log WHERE seq > ?", (seq,))
        other.execute("UPDATE log SET hash = ? WHERE seq = ?", (right, seq))
    assert ledger.state().spent_epsilon == Fraction(2, 10)
    assert ledger.reserve(TENTH, "third").statement_id == 3
    assert len(kept) == reads


def test_a_changed_release_shows(spent: Path, reopen: Reopen) -> None:
    change_answers(spent, "UPDATE answers SET release = x'00'")
    with pytest.raises(LedgerError, match="does not fit the ledger's record"):
        reopen().replay("key")
    change_answers(spent, "UPDATE answers SET release = CAST('released' AS BLOB), key = 'other'")
    with pytest.raises(LedgerError, match="does not fit the ledger's record"):
        reopen().replay("other")


def test_a_release_for_a_failed_statement_shows(spent: Path, reopen: Reopen) -> None:
    change_answers(spent, "INSERT INTO answers VALUES ('', 2, 1, x'00')")
    with pytest.raises(LedgerError, match="does not fit"):
        reopen().replay("")


def test_changed_while_it_is_open(ledger: Ledger, path: Path) -> None:
    ledger.reserve(TENTH, "q")
    change(path, "UPDATE log SET hash = 'x' WHERE seq = 2")
    with pytest.raises(LedgerError, match="damaged"):
        ledger.reserve(TENTH, "q")


def test_removed_or_replaced_while_it_is_open(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    ledger.reserve(TENTH, "q")
    moved = tmp_path / "moved"
    path.replace(moved)
    with pytest.raises(LedgerError, match="removed or replaced while it was open"):
        ledger.reserve(TENTH, "q")
    shutil.copy(moved, path)
    with pytest.raises(LedgerError, match="removed or replaced while it was open"):
        ledger.reserve(TENTH, "q")


def test_its_log_removed_while_it_is_open(ledger: Ledger, path: Path) -> None:
    ledger.reserve(TENTH, "q")
    path.with_name(path.name + "-wal").unlink()
    with pytest.raises(LedgerError, match="removed or replaced while it was open"):
        ledger.reserve(TENTH, "q")


# -- disks, locks, clocks ---------------------------------------------------------------------


def test_a_busy_ledger(ledger: Ledger, path: Path) -> None:
    with (
        Ledger.open(path, policy_of(), "visits.duckdb", timeout=0.05) as waiting,
        sqlite3.connect(path) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="locked by another process"):
            waiting.reserve(TENTH, "q")
        assert waiting.state().spent_epsilon == 0  # reading needs no lock
        other.rollback()
        assert waiting.reserve(TENTH, "q").statement_id == 1
    other.close()


FULL = """
import resource, signal, sys
from fractions import Fraction
from pathlib import Path
from dpsql.errors import LedgerError
from dpsql.ledger.ledger import Ledger
from dpsql.privacy.events import PureDP
from tests.support.ledgers import policy_of

path, tenth = Path(sys.argv[1]), PureDP(Fraction(1, 1000))
ledger = Ledger.open(path, policy_of(), "visits.duckdb")
paid = ledger.reserve(tenth, "there is room").statement_id
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
room = Path(str(path) + "-wal").stat().st_size + int(sys.argv[2])
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
told = ""
for _ in range(100):
    try:
        paid = ledger.reserve(tenth, "x" * 3000).statement_id
    except LedgerError as error:
        told = error.message
        break
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
paid = ledger.reserve(tenth, "there is room again").statement_id
print(paid, told)
"""


@pytest.mark.parametrize("room", [0, 5000, 20000])
def test_a_full_disk(path: Path, reopen: Reopen, room: int) -> None:
    """Nothing can be charged while the disk is full: an honest error; what was charged stays; it works again
    after.
    """
    ran = run_python("-c", FULL, str(path), str(room), check=True, cwd=os.getcwd())
    paid, told = ran.stdout.split(" ", 1)
    assert "Without a durable charge there is no answer" in told
    assert reopen().state().spent_epsilon == Fraction(int(paid), 1000)


def test_a_read_only_ledger(spent: Path, tmp_path: Path) -> None:
    """As another user who may read but not write. Runs the same as root, by giving root's rights away."""
    code = (
        "import os, sys\n"
        "from fractions import Fraction\n"
        "from dpsql.errors import LedgerError\n"
        "from dpsql.ledger.ledger import KeptReleases, Ledger\n"
        "from dpsql.privacy.events import PureDP\n"
        "from tests.support.ledgers import policy_of\n"
        "os.environ['DPSQL_STATE'] = '/nonexistent'\n"
        "os.geteuid() == 0 and os.setuid(65534)\n"
        "with Ledger.read(sys.argv[1]) as ledger:\n"
        "    print(ledger.state().sentence)\n"
        "try:\n"
        "    ledger = Ledger.open(sys.argv[1], policy_of(), 'visits.duckdb')\n"
        "    ledger.reserve(PureDP(Fraction(1, 10)), 'q')\n"
        "except LedgerError as error:\n"
        "    print(error.message)\n"
    )
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if folder.stat().st_uid == os.getuid() and folder != Path("/tmp"):
            folder.chmod(0o755)
    spent.chmod(0o444)
    spent.parent.chmod(0o555)
    try:
        ran = run_python("-c", code, str(spent), cwd=os.getcwd(), check=True)
    finally:
        spent.parent.chmod(0o755)
    sentence, told = ran.stdout.splitlines()
    assert sentence == "ε=0.8 of ε=1 left"
    assert "read-only" in told or "can't be opened" in told


def test_a_clock_that_goes_back_gives_nothing_back(
    ledger: Ledger, reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.reserve(PureDP(Fraction(9, 10)), "q")
    monkeypatch.setattr(log_file, "format_now", lambda: "1999-12-31T23:59:59.000000+00:00")
    ledger.refuse("SELECT *", "no")
    again = reopen()
    assert again.state().left_epsilon == Fraction(1, 10)
    assert any("the clock went back" in notice for notice in again.notices)
    with pytest.raises(BudgetExceeded):
        again.reserve(PureDP(Fraction(2, 10)), "q")
    assert [entry.statement_id for entry in again.entries()] == [1, 2]


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.stochastic)])
def test_interruption_at_any_line_keeps_charge_and_ledger(path: Path, step: int) -> None:
    """KeyboardInterrupt raised at each line that reserve and settle run: no charge lost, the next statement
    works.
    """
    policy = policy_of(epsilon="100000")
    ledger = Ledger.open(path, policy, "d")
    at = 1
    while _interrupt(ledger, at):
        at += step
    reserved = sum(entry.event is not None for entry in ledger.entries())
    with Ledger.open(path, policy, "d") as again:
        assert again.state().spent_epsilon == Fraction(reserved, 10) == ledger.state().spent_epsilon
    assert at > 100


def _interrupt(ledger: Ledger, at: int) -> bool:
    """Runs one statement, interrupted at its ``at``-th line in the ledger; False when it has fewer lines."""
    seen = 0

    def trace(frame: object, event: str, arg: object) -> object:
        nonlocal seen
        if "/dpsql/ledger/" not in frame.f_code.co_filename:  # type: ignore[attr-defined]
            return None
        if event == "line":
            seen += 1
            if seen == at:
                raise KeyboardInterrupt
        return trace

    before, paid = len(ledger.entries()), False
    old = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        ticket = ledger.reserve(TENTH, "q")
        paid = True
        ledger.settle(ticket, TENTH, KeptReleases({"key": b"released"}), "released")
    except KeyboardInterrupt:
        seen = at
    finally:
        sys.settrace(old)
    after = [e for e in ledger.entries() if e.statement_id > before]
    assert len(after) >= paid  # an answer could only be given where the charge is
    assert all(e.event == TENTH for e in after)
    return seen >= at
