"""The figures for Prometheus: who may read them, what they say of a server at work, and what they must not say."""

from __future__ import annotations

import http.client
import re
import ssl
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")
pytest.importorskip("uvicorn")

from prometheus_client.parser import text_string_to_metric_families

import dpsql
from dpsql.errors import Error, ServerError
from dpsql.server.analyst_tokens import TokenFile
from dpsql.server.console.console import MetricsPlace
from dpsql.server.console.process import find_free_space
from tests.support.certificates import make_certificate
from tests.support.served import ROOT, ServerProcess, make_token, try_until, write_data, write_policy

pytestmark = pytest.mark.timeout(600)
PAGE = ROOT / "notebooks" / "docs" / "howto" / "watch_the_server.md"
TOKEN = "0123456789abcdef"
Figures = dict[tuple[str, ...], float]


def write_token(folder: Path, text: str = TOKEN) -> Path:
    path = folder / "metrics.token"
    path.touch(0o600)
    path.write_text(f"{text}\n")
    return path


def ask(address: str, path: str, token: str = "", authority: Path | None = None) -> tuple[int, str]:
    if authority is None:
        connection = http.client.HTTPConnection(address, timeout=60)
    else:
        context = ssl.create_default_context(cafile=str(authority))
        connection = http.client.HTTPSConnection(address, timeout=60, context=context)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, text


def read_figures(text: str) -> Figures:
    return {
        (
            sample.name,
            *(value for key, value in sorted(sample.labels.items()) if key != "policy"),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_figures_of_a_server(tmp_path: Path) -> None:
    write_data(tmp_path, 500)
    policy = write_policy(tmp_path, {"ada": 10, "bob": 3}, "answer_times = []")
    make_certificate(tmp_path, "own", 30)
    files = [f"--tls-{name}={tmp_path / file}" for name, file in (("cert", "own.pem"), ("key", "own.key"))]
    places = (f"--metrics-token={write_token(tmp_path)}", "--metrics=127.0.0.1:0", *files)
    with ServerProcess(policy, *places) as server:
        assert server.process.stdout is not None
        line = server.process.stdout.readline()
        assert line.startswith("metrics on 127.0.0.1:")
        address, authority = line.split()[-1].replace("127.0.0.1", "localhost"), tmp_path / "own.pem"
        assert ask(address, "/healthz", authority=authority) == (200, "ok")
        for token in ("", "wrong", TOKEN[:-1]):
            status, text = ask(address, "/metrics", token, authority)
            assert status == 401
            assert "ada" not in text
        TokenFile(policy).add("bob", 10)
        TokenFile(policy).pause("bob", "too curious")

        def look() -> Figures:
            status, text = ask(address, "/metrics", TOKEN, authority)
            assert status == 200
            return read_figures(text)

        before = look()
        assert before["dpsql_budget_left_ratio", "ada"] == before["dpsql_budget_left_ratio", ""] == 1
        assert before["dpsql_paused", "bob"] == 1
        assert 9 < before["dpsql_token_days_left", "bob"] < 10
        assert 29 < before["dpsql_certificate_days_left", "server"] < 30
        assert ("dpsql_certificate_days_left", "authority") not in before
        assert before["dpsql_ledger_up",] == 1
        url = server.url.replace("127.0.0.1", "localhost")
        with dpsql.connect(url, token=make_token(policy, "ada"), tls_ca=authority) as session:
            session.sql("SELECT COUNT(*) AS n FROM visits")
            with pytest.raises(Error):
                session.sql("SELECT * FROM visits")
            after = try_until(
                look, lambda now: now.get(("dpsql_statements_total", "ada", "refused")) == 1, 200
            )
            assert after["dpsql_sessions", "ada"] == 1
        assert after["dpsql_statements_total", "ada", "charged"] == 1
        assert after["dpsql_epsilon_left", "ada"] == pytest.approx(9.9)
        assert after["dpsql_epsilon_limit", "ada"] == 10
        assert after["dpsql_budget_left_ratio", "ada"] == pytest.approx(0.99)
        assert after["dpsql_budget_left_ratio", "bob"] == 1
        assert after["dpsql_running_requests", "ada"] == after["dpsql_overruns", "ada"] == 0
        names = {key[0] for key in after}
        assert names == {*re.findall(r"`(dpsql_\w+)`", PAGE.read_text("utf-8"))}
        assert not [
            name for name in names if any(word in name for word in ("second", "memory", "cpu", "rows"))
        ]


def test_free_space_is_a_power_of_two(tmp_path: Path) -> None:
    free = find_free_space(tmp_path)
    assert free == 2 ** (int(free).bit_length() - 1) > 0
    assert find_free_space(tmp_path / "none") == 0


def test_a_port_needs_a_token_that_nobody_else_reads(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="need a token"):
        MetricsPlace("127.0.0.1:0").open()
    with pytest.raises(ServerError, match="needs TLS"):
        MetricsPlace("0.0.0.0:0", write_token(tmp_path)).open()
    with pytest.raises(ServerError, match="no token of 16"):
        MetricsPlace("127.0.0.1:0", write_token(tmp_path, "short")).open()
    path = write_token(tmp_path)
    path.chmod(0o644)
    with pytest.raises(ServerError, match="may read the token file"):
        MetricsPlace("127.0.0.1:0", path).open()
    path.chmod(0o600)
    sock, setup = MetricsPlace("127.0.0.1:0", path).open()
    sock.close()
    assert TOKEN not in str(setup)
