"""The client against a server in a process of its own: the same as at hand, whatever becomes of the process that answers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpsql
from dpsql.client.remote_session import RemoteSession
from dpsql.errors import Error
from tests.support import kernel
from tests.support.own_process import run_python
from tests.support.served import ServerProcess, make_token, try_until, write_data, write_policy
from tests.support.stop_button import pressed

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def ada(server: ServerProcess) -> Iterator[RemoteSession]:
    with dpsql.connect(server.url, token=make_token(server.policy, "ada")) as session:
        yield session


def test_synthetic_rows(ada: RemoteSession) -> None:
    """The server pays for the marginals; without the extra it says what to install, and nothing is paid."""
    before = ada.budget().spent_epsilon
    text = "SELECT WITH DP OPTIONS (epsilon = 1) ward FROM visits"
    try:
        assert len(ada.synthesise(text, 50)) == 50
    except Error as missing:
        assert "pip install" in "".join(missing.lines())
        assert ada.budget().spent_epsilon == before
    else:
        assert ada.budget().spent_epsilon == before + 1
    with pytest.raises(dpsql.BindError, match="rows"):
        ada.synthesise(text, -1)


def test_what_an_analyst_sees_of_others(server: ServerProcess, ada: RemoteSession) -> None:
    with dpsql.connect(server.url, token=make_token(server.policy, "bob")) as bob:
        bob.sql("SELECT COUNT(*) AS bobs FROM visits WHERE day < 77")
        assert [entry.analyst for entry in bob.ledger()].count("bob") == 1
        shown = [
            repr(ada.ledger()),
            repr(ada.sql("SHOW LEDGER")),
            repr(ada.budget_panel()),
            repr(ada.sql("SHOW POLICY")),
        ]
        shown += [
            ada.budget_panel().html(),
            repr(ada.policy),
            repr(ada.explain("SELECT COUNT(*) FROM visits")),
        ]
        assert not any("bob" in text for text in shown)
        assert not any("parquet" in text for text in shown)


def test_the_command_line_in_a_process_of_its_own(server: ServerProcess) -> None:
    environment = {**os.environ, "DPSQL_TOKEN": make_token(server.policy, "ada")}
    done = run_python(
        "-X",
        "importtime",
        "-m",
        "dpsql.cli",
        "sql",
        "--server",
        server.url,
        "SELECT COUNT(*) AS n FROM wards",
        env=environment,
        check=True,
        timeout=240,
    )
    assert done.stdout.split()[:2] == ["n", "3"]
    loaded = {
        line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time")
    }
    assert "dpsql.client.remote_session" in loaded
    assert not {"duckdb", "sqlite3", "sqlglot", "dpsql.session.session", "dpsql.ledger.ledger"} & loaded


def test_a_notebook(server: ServerProcess, tmp_path: Path) -> None:
    token = make_token(server.policy, "ada")
    (tmp_path / "token").write_text(token)
    (tmp_path / "token").chmod(0o600)
    outputs = kernel.run(
        [
            "%load_ext dpsql",
            f"%dpsql connect {server.url} --token-file token",
            "%%dpsql\nout << SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward",
            "%%dpsql\nSELECT COUNT(*) AS groups FROM out",
            "%dpsql budget",
            "%dpsql report",
            "%%dpsql\nSELECT nothing FROM visits",
            "import sys; print({'duckdb', 'dpsql.ledger.ledger', 'dpsql.session.session'} & set(sys.modules))",
            f"%dpsql connect {server.url}",
        ],
        tmp_path,
    )
    shown = [kernel.text(cell) for cell in outputs]
    assert f"ada at {server.url}" in shown[1]
    assert "groups" in shown[3]
    assert "share of ada" in shown[4]
    assert shown[5].startswith("ServerError: the ledger is the owner's")
    assert "BindError" in shown[6]
    assert shown[7].strip() == "set()"
    assert "there is no token" in shown[8]  # nbclient can't be asked
    assert token not in repr(outputs)


def test_the_stop_button_on_a_statement_that_reads(tmp_path: Path) -> None:
    """Stop under the public grid: the charge stays, the reply comes at a time of the grid, and the session goes on."""
    write_data(tmp_path, 400_000)
    policy = write_policy(
        tmp_path, {"ada": 300}, "answer_times = [1, 2, 4]\nmax_requests_per_minute = 100000"
    )
    slow = "SELECT ward, MEDIAN(cost) AS m FROM visits GROUP BY ward"
    with (
        ServerProcess(policy) as server,
        dpsql.connect(server.url, token=make_token(policy, "ada")) as session,
    ):
        session.sql("SELECT 1")

        def stop() -> bool:
            """Ask, and stop it while it reads; return whether that came before the answer."""
            try:
                with pressed(
                    lambda: os.kill(os.getpid(), signal.SIGINT), times=1, ready=lambda done: session.stage
                ):
                    session.sql(slow, fresh=True)
            except dpsql.Interrupted:
                return True
            except KeyboardInterrupt:
                pass  # it came when the statement had ended
            return False

        try_until(stop, bool, 10)
        assert session.sql("SELECT 2 AS x").item() == 2
        charged = session.ledger()
        assert all(entry.outcome in ("interrupted", "released") for entry in charged)
        if charged and charged[-1].outcome == "released":
            assert session.sql(slow).loss == "no charge"
