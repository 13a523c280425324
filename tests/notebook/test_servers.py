"""The magic and the command line over a session on a server: as at hand, and no token is ever seen."""

from __future__ import annotations

import getpass
import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.error import StdinNotImplementedError
from IPython.core.interactiveshell import InteractiveShell

import dpsql
from dpsql import cli
from dpsql.client.remote_session import RemoteSession
from dpsql.demo import POLICY
from dpsql.notebook import line_commands
from dpsql.session.result import Result
from tests.support.remote import NearServer

TOKEN = "s3cretT0ken"
COUNT = (
    "SELECT WITH DP OPTIONS (epsilon = 0.1) plan, COUNT(DISTINCT person_id) AS n FROM visits GROUP BY plan"
)
Cell = Callable[..., Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NearServer]:
    folder = tmp_path_factory.mktemp("server")
    with (
        dpsql.connect(policy=POLICY, ledger=folder / "visits.ledger") as session,
        NearServer(session, TOKEN) as server,
    ):
        yield server


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("DPSQL_TOKEN", raising=False)
    shell = InteractiveShell()
    shell.run_line_magic("load_ext", "dpsql")
    yield shell
    for session in shell._dpsql_sessions.values():
        session.close()
    shell.run_line_magic("unload_ext", "dpsql")
    shell.history_manager.end_session()


@pytest.fixture
def cell(shell: InteractiveShell) -> Cell:
    def run(text: str) -> Any:
        result = shell.run_cell(text, store_history=True)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            raise error
        return result.result

    return run


def test_a_story(
    cell: Cell,
    shell: InteractiveShell,
    server: NearServer,
    token_file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cell(f"%dpsql connect {server.url} --token-file {token_file}")
    said = capsys.readouterr().out
    assert "visits" in said
    assert f"ann at {server.url}" in said
    result = cell(f"%%dpsql\n{COUNT}")
    assert isinstance(result, Result)
    assert result.intervals["n"]
    assert cell(f"x = %dpsql {COUNT}") is None
    assert shell.user_ns["x"].loss == "no charge"
    cell(f"%%dpsql\nout << {COUNT}")
    cell("%dpsql keep x")
    assert cell("%%dpsql\nSELECT COUNT(*) AS c FROM out JOIN x USING (plan)").fetchall() == [(len(result),)]
    wanted = "free"
    shell.user_ns["wanted"] = wanted
    assert cell("%%dpsql\nSELECT $wanted AS p").fetchall() == [("free",)]
    assert "Would cost" in repr(cell(f"%%dpsql --explain\n{COUNT.replace('0.1', '0.2')}"))
    cell("%%dpsql --plan -o planned\nSELECT COUNT(DISTINCT person_id) AS n FROM visits WHERE year = 1")
    assert any("one of a declared plan" in note for note in shell.user_ns["planned"].notes)
    assert "budget ε=" in repr(cell("%dpsql budget"))
    assert "<meter" in cell("%dpsql budget")._repr_mimebundle_()["text/html"]
    assert cell("%dpsql ledger").columns[0] == "statement"
    assert "out · a kept result" in repr(cell("%dpsql tables"))
    assert "person_id" in repr(cell("%dpsql columns visits"))
    assert cell("%dpsql columns out")["column_name"] == list(result.columns)
    assert cell("%dpsql policy").columns == ["where", "name", "declared"]
    assert "ann at gr" in repr(cell("%dpsql sessions"))
    assert isinstance(cell("%dpsql session"), RemoteSession)
    with pytest.raises(dpsql.BindError) as caught:
        cell("%%dpsql\nSELECT COUNT(*) FROM nowhere")
    assert caught.value.excerpt()
    with pytest.raises(dpsql.BindError, match="private table"):
        cell(f"%%dpsql -o visits\n{COUNT}")
    with pytest.raises(dpsql.ServerError, match="the owner runs dpsql report"):
        cell("%dpsql report")
    cell("%dpsql close")


def test_completion_asks_once_between_two_statements(
    cell: Cell, shell: InteractiveShell, server: NearServer, token_file: Path
) -> None:
    def offered(text: str) -> list[str]:
        with provisionalcompleter():
            return [c.text for c in shell.Completer.completions(text, len(text))]

    cell(f"%dpsql connect {server.url} --token-file {token_file}")
    assert "person_id" in offered("%%dpsql\nSELECT pers")
    asked = len(server.channel.sent)
    assert "visits" in offered("%%dpsql\nSELECT COUNT(*) FROM vis")
    assert len(server.channel.sent) == asked
    cell("%%dpsql\nSELECT 1 AS one")
    asked = len(server.channel.sent)
    assert "visits" in offered("%%dpsql\nSELECT COUNT(*) FROM vis")
    assert len(server.channel.sent) == asked, "nothing was kept"
    cell("%%dpsql\nlater << SELECT 1 AS one")
    assert "later" in offered("%%dpsql\nSELECT COUNT(*) FROM la")
    shell._dpsql_sessions["main"].close()
    shell._dpsql_sessions["main"]._schema = None
    assert "count" in offered("%%dpsql\nSELECT cou")  # and no error where the server is gone


def test_the_token_is_asked_for_unseen(
    cell: Cell, server: NearServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return TOKEN

    monkeypatch.setattr(getpass, "getpass", ask)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    cell(f"%dpsql connect {server.url}")
    assert prompts == [f"token for {server.url}: "]
    shown = capsys.readouterr()
    assert TOKEN not in shown.out + shown.err


def test_the_token_of_the_environment(
    cell: Cell, server: NearServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPSQL_TOKEN", TOKEN)
    cell(f"%dpsql connect {server.url}")


def test_a_token_that_ends_soon(
    cell: Cell,
    server: NearServer,
    token_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell(f"%dpsql connect {server.url} --token-file {token_file}")
    assert "the token ends" not in capsys.readouterr().out
    soon = datetime.now(UTC) + timedelta(days=3)
    monkeypatch.setattr(server.channel, "expires", soon.isoformat())
    cell(f"%dpsql connect {server.url} --token-file {token_file}")
    assert f"the token ends on {soon.date()}" in capsys.readouterr().out


@pytest.mark.parametrize("failure", [StdinNotImplementedError("no"), EOFError(), KeyboardInterrupt()])
def test_a_notebook_that_can_not_ask(monkeypatch: pytest.MonkeyPatch, failure: BaseException) -> None:
    def ask(prompt: str) -> str:
        raise failure

    monkeypatch.setattr(getpass, "getpass", ask)
    with pytest.raises(dpsql.ServerError, match="there is no token") as caught:
        line_commands._ask_token("grpc+tls://host:1", kernel=True)
    assert "--token-file" in str(caught.value.hint)


@pytest.mark.parametrize(
    "line",
    [
        "{url} --token s3cretT0ken", "{url} --token=s3cretT0ken", "{url} s3cretT0ken", "grpc+tcp://s3cretT0ken@127.0.0.1:1",
        "s3cretT0ken {url}", "{url} --token-file {wrong}", "{url} --policy p.toml", "d.duckdb --policy p.toml --tls-ca c.pem",
        "{url} --token-file /no/such/file",
    ],
)  # fmt: skip
def test_what_is_refused_does_not_repeat_a_token(
    cell: Cell, server: NearServer, tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("s3cretT0ken2")
    with pytest.raises(dpsql.Error) as caught:
        cell("%dpsql connect " + line.format(url=server.url, wrong=wrong))
    shown = capsys.readouterr()
    said = "\n".join([*caught.value.lines(), repr(caught.value), shown.err])
    assert "s3cretT0ken" not in said
    assert isinstance(caught.value, dpsql.ParseError | dpsql.ServerError)


# -- the command line


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.delenv("DPSQL_TOKEN", raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        status = cli.main(arguments)
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


def test_the_command_line(
    run: Callable[..., tuple[int, str, str]], server: NearServer, token_file: Path
) -> None:
    where = ("--server", server.url, "--token-file", str(token_file))
    status, out, err = run("sql", *where, COUNT)
    assert (status, err) == (0, "")
    assert "95% interval" in out
    status, out, err = run("sql", *where, "--format", "json", COUNT)
    assert json.loads(out)["cost"] in err
    status, out, _ = run("sql", *where, "--format", "csv", "--params", '{"x": 5}', "SELECT $x + 1 AS y")
    assert out == "y\n6\n"
    status, out, _ = run("explain", *where, COUNT)
    assert "no charge" not in out
    assert "Would cost" in out
    status, out, err = run("sql", *where, "SELECT COUNT(*) FROM nowhere")
    assert status == 1
    assert "^^^^^^^" in err


def test_the_command_line_writes_arrow(
    server: NearServer, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Out(io.StringIO):
        buffer = io.BytesIO()

    monkeypatch.setattr("sys.stdout", Out())
    cli.main(
        ["sql", "--server", server.url, "--token-file", str(token_file), "--format", "arrow", "SELECT 1 AS x"]
    )
    assert pa.ipc.open_stream(Out.buffer.getvalue()).read_all().to_pydict() == {"x": [1]}


def test_wrong_usage(run: Callable[..., tuple[int, str, str]], server: NearServer, token_file: Path) -> None:
    for extra in (["--analyst", "bob"], ["--ledger", "x"], ["--database", "d.duckdb"]):
        status, _, err = run("sql", "--server", server.url, *extra, "SELECT 1")
        assert status == 1
        assert f"a server decides on {extra[0]}" in err
    assert run("sql", "--policy", str(POLICY), "--token-file", str(token_file), "SELECT 1")[0] == 1
    status, _, err = run("sql", "--server", server.url, "SELECT 1")
    assert status == 1
    assert "there is no token" in err
    with pytest.raises(SystemExit):
        cli.main(["sql", "--server", server.url, "--policy", "p.toml", "SELECT 1"])
    with pytest.raises(SystemExit):
        cli.main(["sql", "SELECT 1"])
