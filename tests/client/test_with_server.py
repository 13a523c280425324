"""The client against a server in a process of its own: the same as at hand, whatever becomes of the process that answers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.client.session import RemoteSession
from dpsql.errors import Error
from dpsql.privacy import records
from tests.support import kernel
from tests.support.served import SECRET, ServerProcess, make_token, try_until, write_data, write_policy
from tests.support.stop_button import pressed

pytestmark = pytest.mark.timeout(600)

STATEMENTS = [
    "SELECT COUNT(*) AS n FROM visits",
    "SELECT ward, COUNT(*) AS n, SUM(cost) AS s FROM visits GROUP BY ward ORDER BY ward",
    "SELECT WITH DP OPTIONS (epsilon = 2) AVG(cost) AS a, VARIANCE(day) AS v FROM visits",
    "SELECT city, COUNT(*) AS n FROM visits GROUP BY city",
    "SELECT MEDIAN(cost) AS m, QUANTILE_CONT(cost, 0.9) AS q FROM visits",
    "SELECT WITH STABLE OPTIONS (epsilon = 1) IQR(cost) AS spread FROM visits",
    "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, bounds = (-1, 1)) CORR(cost, day) AS r FROM visits",
    "WITH c(v) AS (VALUES (100), (200)) SELECT v, EXPMECH(COUNT(*) FILTER (WHERE cost >= v), epsilon => 1) OVER c FROM visits",
    "WITH c(v) AS (VALUES (1), (3)) SELECT ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE day > v), 9, epsilon => 1) OVER c FROM visits",
    "SELECT name, COUNT(v.cost) AS n FROM visits v RIGHT JOIN wards USING (ward) GROUP BY name ORDER BY 1",
    "SELECT ward, RANK() OVER (ORDER BY COUNT(*) DESC) AS place FROM visits GROUP BY ward ORDER BY 2, 1",
    "SELECT COUNT(DISTINCT patient) AS people FROM visits WHERE ward = $ward",
    "SELECT * FROM wards ORDER BY ward",
    "SELECT 1 AS one, 1.50 AS price, DATE '2024-02-29' AS day, NULL AS nothing, [1, 2] AS l, {'a': 1} AS s",
    "a << SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward; SELECT SUM(n) AS total FROM a",
    "EXPLAIN SELECT COUNT(*) AS n FROM visits",
    "SHOW TABLES",
    "SELECT * FROM visits",
    "SELECT patient FROM visits GROUP BY patient",
    "SELECT COUNT(*) FROM nowhere",
    "SELECT SUM(costs) FROM visits",
    "SELECT SUM(patient) FROM visits",
    "SELECT WITH DP OPTIONS (epsilom = 1) COUNT(*) FROM visits",
    "SELECT WITH DP OPTIONS (epsilon = 100000) COUNT(*) FROM visits",
    "SELECT COUNT(*) FROM visits;\nSELECT MAX(no) FROM visits",
    "SELECT COUNT(*) FROM visits WHERE city = $city",
    "SELECT COUNT(*) FROM 'visits.parquet'",
    "SELECT read_text('/etc/hostname')",
    "CLOSE alarm",
    "COPY visits TO 'x.csv'",
    "visits << SELECT 1",
    "SELECT (SELECT 1",
]


@pytest.fixture
def ada(server: ServerProcess) -> Iterator[RemoteSession]:
    with dpsql.connect(server.url, token=make_token(server.policy, "ada")) as session:
        yield session


def ask(session: Any, text: str) -> Any:
    """Return all that a statement gives, without the time since when it is stored: a server has a time zone of its own."""
    params = {"ward": "A"} if "$ward" in text else None
    try:
        results = session.run(text, params)
    except Error as error:
        return type(error), error.lines(), error.text, error.span
    shown = [re.sub(r"since \d\d:\d\d(?: UTC)?", "since then", repr(r)) for r in results]
    return shown, [(r.table, r.intervals, r.notes, r.loss, r.statement_id, r.event) for r in results]


def test_thirty_statements_are_the_same_in_process_and_over_the_wire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(records._zone, "told", True)  # as a server tells times
    write_data(tmp_path)
    zone = (
        duckdb.connect().execute("SELECT current_setting('TimeZone')").fetchall()[0][0]
    )  # answers are stored by it
    rules = f'answer_times = []\nmax_requests_per_minute = 100000\ntime_zone = "{zone}"'
    policy = write_policy(tmp_path, {"ada": 300, "bob": 300}, rules)
    told = []
    with (
        ServerProcess(policy) as server,
        dpsql.connect(server.url, token=make_token(policy, "ada")) as remote,
    ):
        for text in STATEMENTS:
            ask(remote, text)  # now it is stored
        for text in STATEMENTS:
            told.append(ask(remote, text))
        budget = remote.budget()
        line = remote.sql(STATEMENTS[0]).cost_line
        assert re.match(r"stored since \d\d:\d\d [A-Z]+, no charge", line), (
            "in the server's zone, by its name"
        )
        assert remote.why().statement == STATEMENTS[0]
    with dpsql.connect(policy=policy, analyst="ada") as session:
        here = [ask(session, text) for text in STATEMENTS]
        spent = session.budget()
    for text, one, other in zip(STATEMENTS, told, here, strict=True):
        assert one == other, text
    assert spent == budget
    everything = repr(told)
    assert SECRET not in everything
    assert str(tmp_path) not in everything
    assert sum(isinstance(one[0], type) for one in told) == 15


def test_prepares_and_explanations_spend_nothing(ada: RemoteSession) -> None:
    before = ada.budget()
    for _ in range(20):
        ada.explain("SELECT ward, AVG(cost) FROM visits GROUP BY ward")
        with pytest.raises(dpsql.BindError):
            ada.plan().sql("SELECT MAX(no) FROM visits")
    assert ada.budget() == before


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


def test_a_worker_that_dies_is_a_note(server: ServerProcess, ada: RemoteSession) -> None:
    result = ada.sql("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward")
    ada.keep("wards_now", result)
    ada.run("total << SELECT SUM(n) AS t FROM wards_now")
    ada.sql("DECLARE alarm ABOVE_THRESHOLD 100 OPTIONS (epsilon = 1, max_hits = 2)")
    spent = ada.budget().spent_epsilon
    for worker in server.workers():
        os.kill(worker, signal.SIGKILL)
    again = ada.sql("SELECT * FROM wards_now")
    assert any("the threshold alarm is closed" in note for note in again.notes)
    assert again.table.equals(result.table)
    assert ada.sql("SELECT t FROM total").item() == sum(result["n"])
    assert ada.budget().spent_epsilon <= spent
    with pytest.raises(dpsql.BindError, match="has forgotten this result"):
        ada.keep("other", result)


def test_a_token_that_ends_is_told(server: ServerProcess) -> None:
    from dpsql.server.tokens import TokenFile

    token = TokenFile(server.policy).rotate("bob")
    with dpsql.connect(server.url, token=token) as bob:
        bob.sql("SELECT 1")
        TokenFile(server.policy).rotate("bob")
        with pytest.raises(dpsql.ServerError, match="token"):
            for _ in range(600):
                bob.sql("SELECT 1")
                time.sleep(0.05)


def test_dbapi_and_pandas(server: ServerProcess) -> None:
    pandas = pytest.importorskip("pandas")
    with dpsql.dbapi.connect(server.url, token=make_token(server.policy, "ada")) as connection:
        cursor = connection.cursor().execute(
            "SELECT ward, name FROM wards WHERE ward <> ? ORDER BY ward", ["C"]
        )
        assert cursor.fetchall() == [("A", "Heart"), ("B", "Skin")]
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frame = pandas.read_sql("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward", connection)
        assert list(frame.columns) == ["ward", "n"]
        with pytest.raises(dpsql.dbapi.ProgrammingError):
            connection.execute("SELECT COUNT(*) FROM nowhere")


def test_the_command_line_in_a_process_of_its_own(server: ServerProcess) -> None:
    environment = {**os.environ, "DPSQL_TOKEN": make_token(server.policy, "ada")}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dpsql.cli", "sql", "--server", server.url, "SELECT COUNT(*) AS n FROM wards"],
        env=environment, capture_output=True, text=True, check=True, timeout=240,
    )  # fmt: skip
    assert done.stdout.split()[:2] == ["n", "3"]
    loaded = {
        line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time")
    }
    assert "dpsql.client.session" in loaded
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
