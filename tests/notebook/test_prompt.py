"""The prompt of ``dpsql sql``: what is typed, what is completed, and what is remembered."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import dpsql
from dpsql import Policy, Session
from dpsql.demo import POLICY
from dpsql.notebook.prompt import PROMPT_COMMANDS, Prompt, is_whole, open_history, run_prompt
from dpsql.session.result import Result

EXACT = '[budget]\nepsilon = 1\n[tables.people]\nprivacy_unit = "id"\nmax_rows = 1\n[tables.people.columns]\n'
EXACT += 'id = { type = "BIGINT" }\ncity = { type = "VARCHAR", values = ["Delft", "Leiden"] }\n'


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPSQL_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    policy = Policy.loads(EXACT)
    with dpsql.connect({"people": {"id": [1, 2], "city": ["Delft", "Leiden"]}}, policy=policy) as opened:
        yield opened


def typed(session: Session, keys: str, **more: object) -> list[Result]:
    """Return the results of what is typed at a prompt."""
    shown: list[Result] = []
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(keys)
        run_prompt(session, shown.append, **more)  # type: ignore[arg-type]
    return shown


def test_a_statement_of_several_lines_ends_with_a_semicolon(session: Session) -> None:
    (result,) = typed(session, "SELECT 1 AS one,\r'a;' AS text -- not yet;\r;\r\x04")
    assert result.dicts() == [{"one": 1, "text": "a;"}]


def test_a_stop_drops_what_is_typed(session: Session) -> None:
    (result,) = typed(session, "SELECT nonsense\x03SELECT 2 AS two;\r\x04")
    assert result.item() == 2


def test_an_error_is_shown_and_the_prompt_goes_on(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    (result,) = typed(session, "SELECT nothing FROM people;\r.nothing\rSELECT 3 AS three;\rquit\r")
    assert result.item() == 3
    told = capsys.readouterr().err
    assert "no column nothing" in told
    assert "^^^^^^^" in told
    assert "ParseError: there is no command .nothing.\n" in told


def test_a_path_that_can_not_be_read_does_not_end_the_prompt(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    (result,) = typed(
        session, '.read "q.sql\r.read ~nobody-is-called-so/q.sql\r.read gone.sql\rSELECT 4 AS four;\r\x04'
    )
    assert result.item() == 4
    told = capsys.readouterr().err
    assert "a quote on this line is not closed." in told
    assert "the file ~nobody-is-called-so/q.sql can't be read." in told
    assert "the file gone.sql can't be read." in told


def test_what_was_answered_before_an_error_is_not_lost(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    (result,) = typed(
        session,
        "SELECT WITH DP OPTIONS (epsilon = 0.01) COUNT(*) FROM people; "
        "SELECT WITH DP OPTIONS (epsilon = 1) COUNT(id) FROM people;\r\x04",
    )
    assert result.loss == "ε=0.01"
    assert "BudgetExceeded: " in capsys.readouterr().err


def test_commands(session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.sql").write_text("SELECT $city AS city")
    keys = ".help\r.help epsilon\r.tables\r.columns people\r.budget\r.ledger\r.policy\r.mechanisms\r"
    keys += f".set city Delft\r.read {tmp_path}/q.sql\r"
    (result,) = typed(session, keys + ".set\r.quit\r")
    assert result.item() == "Delft"
    out, err = capsys.readouterr()
    assert all(command in out for command in PROMPT_COMMANDS)
    assert "OPTIONS (epsilon = ...): the block's whole epsilon" in out
    assert "Delft, Leiden" in out
    assert "budget ε=1" in out
    assert err == "ParseError: .set takes a name and a value.\nHint: .set city Delft\n"


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("SELECT 1", False), ("SELECT 1;", True), ("SELECT ';", False), ("SELECT 1; -- it's done", True), ("/* ;", False),
        ('SELECT "a;', False), (".tables", True), ("", True), ("exit", True), ("SELECT 1; SELECT 2", False),
    ],
)  # fmt: skip
def test_when_enter_asks(text: str, whole: bool) -> None:
    assert is_whole(text) is whole


def test_completion_of_commands_and_parameters(session: Session) -> None:
    prompt = Prompt(session, print, {"town": "Delft"})
    assert [offer.text for offer in prompt.complete(".bud", 4)[1]] == [".budget"]
    assert [offer.text for offer in prompt.complete(".columns p", 10)[1]] == ["people"]
    assert [offer.text for offer in prompt.complete("SELECT $", 8)[1]] == ["$town"]


def test_history_is_private_and_the_owner_may_forbid_it(session: Session, state: Path) -> None:
    assert isinstance(open_history(session), FileHistory)
    assert stat.S_IMODE((state / "history").stat().st_mode) == 0o600
    assert isinstance(open_history(session, wanted=False), InMemoryHistory)
    forbidding = Policy.loads(EXACT + "[ledger]\nprompt_history = false\n")
    assert forbidding.fingerprint == session.policy.fingerprint, (
        "answers stay free, and charges what they are"
    )
    assert Policy.loads(forbidding.dumps()) == forbidding
    assert not forbidding.for_analyst(None).ledger.prompt_history, "a server's analysts are told"
    (state / "history").unlink()
    with dpsql.connect({"people": {"id": [1], "city": ["Delft"]}}, policy=forbidding) as other:
        assert ("ledger", "prompt_history", "false") in other.sql("SHOW POLICY").fetchall()
        assert typed(other, "SELECT 'secret' AS word;\r\x04")
    assert not (state / "history").exists()


def test_a_statement_is_remembered_where_it_may_be(session: Session, state: Path) -> None:
    typed(session, "SELECT 4 AS four;\r\x04")
    assert "SELECT 4 AS four" in (state / "history").read_text()
    typed(session, "SELECT 5 AS five;\r\x04", history=False)
    assert "five" not in (state / "history").read_text()


def test_without_its_packages_it_says_what_to_install(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    monkeypatch.setattr("dpsql.notebook.prompt.util.find_spec", lambda name: None)
    with pytest.raises(dpsql.Error, match=r"pip install 'dpsql\[prompt\]'"):
        run_prompt(session, print)


def test_a_terminal(tmp_path: Path, state: Path) -> None:
    """The command itself in a terminal: the answer with its cost, and a clean end."""
    pexpect = pytest.importorskip("pexpect", reason="IPython brings it where there are terminals")
    root = str(Path(dpsql.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "PROMPT_TOOLKIT_NO_CPR": "1", "DPSQL_STATE": str(state)}
    arguments = ["-m", "dpsql.cli", "sql", "--policy", str(POLICY), "--ledger", str(tmp_path / "l.ledger")]
    child = pexpect.spawn(
        sys.executable, arguments, env=environment, encoding="utf-8", dimensions=(40, 150), timeout=120
    )
    child.expect("dpsql>")
    child.send("SELECT WITH DP OPTIONS (epsilon = 0.2)\rCOUNT(*) AS n FROM vis\t")
    child.expect("its")  # what Tab wrote
    child.send(";\r")
    child.expect("cost ε=0.2 · ε=2.8 of ε=3 left")
    child.expect("dpsql>")
    child.send("\x04")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    with dpsql.connect(policy=POLICY, ledger=tmp_path / "l.ledger") as session:
        assert [entry.outcome for entry in session.ledger()] == ["released"]
