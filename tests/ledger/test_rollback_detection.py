"""Whoever reads a ledger is told when it was rolled back; and nobody else may read what is beside it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.cli import main
from dpsql.errors import LedgerError
from dpsql.ledger import state_files
from dpsql.ledger.ledger import Ledger
from dpsql.privacy.events import PureDP
from dpsql.report.data import make_report
from dpsql.report.pages import report_text, write_report
from dpsql.report.tables import BudgetPanel
from tests.support.ledgers import policy_of

Reopen = Callable[..., Ledger]
TENTH = PureDP(Fraction(1, 10))


def mark_of(path: Path) -> Path:
    return Path(f"{path}.d/mark")


@pytest.fixture
def rolled_back(ledger: Ledger, path: Path, reopen: Reopen) -> Path:
    """A ledger put back to what it was before its last two charges."""
    ledger.reserve(TENTH, "kept")
    ledger.close()
    older = path.read_bytes()
    with reopen() as again:
        again.reserve(TENTH, "lost")
        again.reserve(TENTH, "lost too")
    path.write_bytes(older)
    return path


@pytest.mark.parametrize("with_mark", [True, False])
def test_whoever_reads_a_rolled_back_ledger_is_told(rolled_back: Path, with_mark: bool) -> None:
    if not with_mark:
        mark_of(rolled_back).unlink()
    with Ledger.read(rolled_back) as ledger:
        (warning,) = ledger.warnings
        assert "older or another copy" in warning
        assert warning in ledger.notices
        assert report_text(ledger).startswith(f"WARNING: {warning}\n")
        assert report_text(ledger, accountant="zcdp").startswith("WARNING: ")
        assert make_report(ledger)["warnings"] == [warning]
        assert warning not in make_report(ledger)["notices"]
        assert warning in BudgetPanel.of(ledger).text()
        assert "older or another copy" in BudgetPanel.of(ledger).html()
        page = write_report(ledger, None, rolled_back.with_name("page.html")).read_text()
        assert '<p class="warning" role="alert">' in page
        assert "older or another copy" in page


def test_a_ledger_that_was_not_touched_is_shown_without_a_warning(ledger: Ledger, path: Path) -> None:
    ledger.reserve(TENTH, "kept")
    with Ledger.read(path) as owner:
        assert owner.warnings == ()
        assert owner.notices == ()
        assert "WARNING" not in report_text(owner)
        assert 'role="alert"' not in write_report(owner, None, path.with_name("page.html")).read_text()


@pytest.mark.parametrize("name", ["", "out.csv", "out.json", "out.html"])
def test_the_command_says_so_on_the_terminal(
    rolled_back: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output = ["-o", str(rolled_back.with_name(name))] if name else []
    assert main(["report", str(rolled_back), *output]) == 0
    assert capsys.readouterr().err.startswith("WARNING: The ledger ")


def test_a_rollback_without_a_mark_is_refused_while_the_register_is_there(
    rolled_back: Path, reopen: Reopen, register: Path
) -> None:
    mark_of(rolled_back).unlink()
    with pytest.raises(LedgerError, match="it ends at row 2, but row 4 was written before"):
        reopen()
    mark_of(rolled_back).unlink(missing_ok=True)
    with pytest.raises(LedgerError, match="older or another copy"):  # a refused opening teaches it nothing
        reopen()
    changes = Ledger.adopt(rolled_back, policy_of(), "visits.duckdb")
    assert changes == ("this copy was put in place of a newer or another one",)
    with reopen() as adopted:
        assert adopted.state().spent_epsilon == Fraction(1, 10)
    (register / "ledgers.sqlite").unlink()
    reopen().close()


def test_a_rollback_that_takes_another_path_is_refused(
    rolled_back: Path, tmp_path: Path, policy: object
) -> None:
    moved = tmp_path / "moved.ledger"
    rolled_back.replace(moved)
    mark_of(rolled_back).unlink()
    with pytest.raises(LedgerError, match="older or another copy"):
        Ledger.open(moved, policy_of(), "visits.duckdb")


def test_a_lost_mark_is_made_again_and_the_register_forgets_nothing(
    ledger: Ledger, path: Path, reopen: Reopen
) -> None:
    ledger.reserve(TENTH, "kept")
    ledger.close()
    older = path.read_bytes()
    with reopen() as again:
        again.reserve(TENTH, "lost")
    mark_of(path).unlink()
    reopen().close()  # nothing was charged: the new mark knows the first row only
    mark_of(path).unlink()
    path.write_bytes(older)
    with pytest.raises(LedgerError, match="it ends at row 2, but row 3 was written before"):
        reopen()


def test_a_rollback_of_the_open_file_is_noticed(ledger: Ledger, path: Path, reopen: Reopen) -> None:
    """The same file, written over with what it held before: neither its name nor its number changes."""
    ledger.reserve(TENTH, "kept")
    with reopen() as other:
        mark = json.loads(mark_of(path).read_text())
        mark_of(path).write_text(json.dumps(mark | {"seq": mark["seq"] + 5}))
        for shown in (other.state, other.entries, lambda: other.reserve(TENTH, "again")):
            with pytest.raises(LedgerError, match="older or another copy"):
                shown()


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_nobody_else_may_read_what_is_beside_a_ledger(
    umask: None, tmp_path: Path, reopen: Reopen, register: Path
) -> None:
    with reopen() as ledger:
        ledger.reserve(TENTH, "q")
        for name in ("page.html", "rows.csv", "data.json", "text.txt"):
            write_report(ledger, None, tmp_path / name)
        found = [path for path in [register, *tmp_path.rglob("*")] if path.name != "register"]
        modes = {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in found}
    assert {name for name, mode in modes.items() if mode == "0o700"} == {"state", "policy.ledger.d"}, modes
    files = {name for name, mode in modes.items() if mode == "0o600"}
    assert files == modes.keys() - {"state", "policy.ledger.d"}, modes
    assert {"policy.ledger", "policy.ledger-wal", "policy.ledger-shm", "mark"} < files
    assert {"ledgers.sqlite", "page.html"} < files


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_what_earlier_versions_left_open_is_closed(
    umask: None, ledger: Ledger, path: Path, register: Path
) -> None:
    page = path.with_name("page.html")
    page.write_text("a longer page than the one that takes its place " * 10_000)
    for wide in (page, mark_of(path), register / "ledgers.sqlite"):
        wide.chmod(0o644)
    register.chmod(0o755)
    ledger.reserve(TENTH, "q")
    write_report(ledger, None, page)
    for closed in (page, mark_of(path), register / "ledgers.sqlite"):
        assert stat.S_IMODE(closed.stat().st_mode) == 0o600, closed
    assert stat.S_IMODE(register.stat().st_mode) == 0o700
    assert page.read_text().endswith("</html>\n")


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_a_ledger_that_its_owner_shares_has_a_mark_that_they_share(
    umask: None, ledger: Ledger, path: Path
) -> None:
    path.chmod(0o660)
    ledger.reserve(TENTH, "q")
    assert stat.S_IMODE(mark_of(path).stat().st_mode) == 0o660


def test_a_report_may_go_to_a_pipe(ledger: Ledger, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    state_files.write_private(Path(f"/dev/fd/{writing}"), "a page")
    os.close(writing)
    with open(reading) as pipe:
        assert pipe.read() == "a page"
