"""Addresses, tokens, and the channel over Flight: what it refuses, what it says, and what it never says."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.flight as flight
import pytest

import dpsql
from dpsql.cli import main
from dpsql.client import channel as channels
from dpsql.client import wire
from dpsql.client.connect import connect_server, connect_session, is_address
from dpsql.client.wire import Message, decode, encode
from dpsql.errors import Error, ServerError
from dpsql.ledger.state_files import write_private
from tests.support.certificates import make_certificate
from tests.support.served import try_until
from tests.support.stop_button import pressed

TOKEN = "s3cret-T0ken.~+/=_"


# -- addresses


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("grpc+tls://data.example.org:31338", "grpc+tls://data.example.org:31338"),
        ("grpc+tls://data.example.org", "grpc+tls://data.example.org:31337"),
        ("grpc+tls://10.0.0.1:1/", "grpc+tls://10.0.0.1:1"),
        ("grpc+tls://[2001:db8::1]:5", "grpc+tls://[2001:db8::1]:5"),
        ("grpc+tcp://127.0.0.1:5", "grpc+tcp://127.0.0.1:5"),
        ("grpc+tcp://127.9.9.9:5", "grpc+tcp://127.9.9.9:5"),
        ("grpc+tcp://[::1]:5", "grpc+tcp://[::1]:5"),
        ("grpc+tcp://localhost:5", "grpc+tcp://127.0.0.1:5"),
        ("grpc+unix:///run/dpsql/dpsql.sock", "grpc+unix:///run/dpsql/dpsql.sock"),
    ],
)
def test_addresses(text: str, location: str) -> None:
    assert is_address(text)
    assert channels.parse_address(text).location == location


@pytest.mark.parametrize(
    "text",
    [
        "grpc+tls://", "grpc+tls://host:99999999", "grpc+tls://host:x", "grpc+tls://ho st:1", "grpc+tls://host/path", "grpcs://h",
        "grpc+tls://s3cret@host:1", "grpc+tls://me:s3cret@host:1", "grpc+tls://host:1?token=s3cret", "grpc+tls://host#s3cret",
        "grpc+unix://run/x.sock", "grpc+unix://x", "grpc+unix:///" + "x" * 200, "grpc+udp://127.0.0.1:5", "grpc+tls://[::1",
        "grpc+tcp://192.168.0.1:5", "grpc+tcp://data.example.org:5", "grpc+tcp://0.0.0.0:5", "grpc+tcp://127.0.0.1.example.org:5",
        "grpc+tcp://localhost.example.org:5", "grpc+tcp://2130706433:5", "grpc+tcp://[::ffff:10.0.0.1]:5", "grpc+tls://-a:1",
    ],
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    assert is_address(text)
    with pytest.raises(ServerError) as caught:
        channels.parse_address(text)
    assert "s3cret" not in "\n".join(caught.value.lines())


@pytest.mark.parametrize(
    "database",
    [":memory:", "visits.duckdb", "/data/v.duckdb", "C:\\v.duckdb", "spark://host:7077", "local[2]", "sc://host", 5, None, {}],
)  # fmt: skip
def test_databases_are_no_addresses(database: Any) -> None:
    assert not is_address(database)


def test_a_token_goes_in_the_clear_to_this_machine_alone() -> None:
    with pytest.raises(ServerError, match="in the clear") as caught:
        dpsql.connect("grpc+tcp://data.example.org:31337", token=TOKEN)
    assert caught.value.hint == "grpc+tls://data.example.org:31337"


# -- tokens


def test_where_a_token_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPSQL_TOKEN", raising=False)
    assert channels.find_token(None) is None
    monkeypatch.setenv("DPSQL_TOKEN", "")
    assert channels.find_token(None) is None
    monkeypatch.setenv("DPSQL_TOKEN", f" {TOKEN}\n")
    assert channels.find_token(None) == TOKEN
    file = tmp_path / "token"
    file.write_text("other\nmore\n")
    file.chmod(0o600)
    assert channels.find_token(None, file) == "other"
    assert channels.find_token("given", file) == "given"


@pytest.mark.skipif(os.name != "posix", reason="files have no modes")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_token_that_others_can_read_is_not_sent(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "my token"
    file.write_text(TOKEN)
    file.chmod(mode)
    with pytest.raises(ServerError, match="others on this machine may read") as caught:
        channels.find_token(None, file)
    assert TOKEN not in str(caught.value)
    command = str(caught.value.hint)
    subprocess.run(["sh", "-c", command], check=True)
    assert channels.find_token(None, file) == TOKEN


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="who is not root gives no file away")
def test_a_token_file_of_another_user_is_theirs_to_look_after(tmp_path: Path) -> None:
    """Secrets that a system mounts belong to root, and are readable."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    os.chown(file, 12345, -1)
    file.chmod(0o644)
    assert channels.find_token(None, file) == TOKEN


@pytest.mark.parametrize("token", ["", "two words", "x\r\nauthorization: Bearer y", "é", "x" * 8001, 5])
def test_what_is_no_token(token: Any, tmp_path: Path) -> None:
    with pytest.raises(ServerError) as caught:
        channels.find_token(token)
    assert not token or str(token) not in str(caught.value)
    file = tmp_path / "token"
    file.write_bytes(b"\xff\xfe")
    file.chmod(0o600)
    for wrong in (file, tmp_path / "none", tmp_path):
        with pytest.raises(ServerError, match="can't be read"):
            channels.find_token(None, wrong)


def test_without_a_token_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPSQL_TOKEN", raising=False)
    with pytest.raises(ServerError, match="there is no token"):
        dpsql.connect("grpc+tcp://127.0.0.1:1")


def test_connect_takes_what_fits_the_place(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="a server has its own policy and analyst"):
        connect_session("grpc+tcp://127.0.0.1:1", policy="p.toml", analyst="ann")  # type: ignore[call-overload]
    with pytest.raises(ServerError, match="are for servers"):
        connect_session("visits.duckdb", policy="p.toml", token=TOKEN)  # type: ignore[call-overload]
    with pytest.raises(dpsql.PolicyError, match="needs the policy"):
        connect_session("visits.duckdb")
    for content in (None, "no certificate"):
        file = tmp_path / "ca.pem"
        if content is not None:
            file.write_text(content)
        with pytest.raises(ServerError):
            connect_server("grpc+tls://127.0.0.1:1", TOKEN, tls_ca=file)


# -- the channel


LONG = 60
"""Seconds in which anything has happened that will; what never comes takes as long."""


class Servant(flight.FlightServerBase):
    """A Flight server that does what the action's name says."""

    def __init__(self, location: str, **options: Any) -> None:
        self.headers: list[dict[str, list[str]]] = []
        self.bodies: list[Message] = []
        self.stopped, self.released = threading.Event(), threading.Event()
        outer = self

        class Reader(flight.ServerMiddlewareFactory):
            def start_call(self, info: Any, headers: Any) -> None:
                outer.headers.append({k.lower(): list(v) for k, v in headers.items()})

        super().__init__(location, middleware={"headers": Reader()}, **options)

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        self.bodies.append(decode(action.body.to_pybytes()))
        return getattr(self, action.type.removeprefix("dpsql."))()  # type: ignore[no-any-return]

    def _messages(self, *messages: Message) -> Iterator[Any]:
        for message in messages:
            yield flight.Result(encode(message))

    def open(self) -> Iterator[Any]:
        head = {
            "kind": "value",
            "session": "h4ndle",
            "analyst": "ann",
            "policy": "[budget]\nepsilon = 1\ndelta = 0\n",
        }
        return self._messages(Message(head), Message({"kind": "end"}))

    def close(self) -> Iterator[Any]:
        return self._messages(Message({"kind": "end"}))

    def interrupt(self) -> Iterator[Any]:
        self.stopped.set()
        return self._messages(Message({"kind": "end"}))

    def run(self) -> Iterator[Any]:
        yield from self._messages(Message({"kind": "stage", "stage": "reading"}))
        if not self.stopped.wait(LONG):
            raise flight.FlightServerError("nobody pressed stop.")
        time.sleep(0.3)  # its own time
        stopped = dpsql.Interrupted("the statement was stopped. ε=1 stays charged.")
        yield from self._messages(wire.write_error(stopped))

    def explain(self) -> Iterator[Any]:
        yield from self._messages(Message({"kind": "value"}))
        self.released.wait(LONG)

    def budget(self) -> Iterator[Any]:
        raise flight.FlightUnauthenticatedError("no valid token; the owner gives one: dpsql analyst add.")

    def why(self) -> Iterator[Any]:
        raise flight.FlightUnauthorizedError("you are paused.")

    def columns(self) -> Iterator[Any]:
        raise flight.FlightServerError("this server does not.")

    def plot(self) -> Iterator[Any]:
        raise ValueError("/secret/path 42")

    def ledger(self) -> Iterator[Any]:
        yield flight.Result(bytes(1 << 20))

    def check_name(self) -> Iterator[Any]:
        yield flight.Result(b"no message")

    def budget_panel(self) -> Iterator[Any]:
        raise flight.FlightUnavailableError("too many requests of yours in a minute; ask again later.")


@pytest.fixture(scope="module", params=["tcp", "unix"])
def servant(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Servant, str]]:
    if request.param == "tcp":
        server = Servant("grpc+tcp://127.0.0.1:0")
        url = f"grpc+tcp://127.0.0.1:{server.port}"
    else:
        url = f"grpc+unix://{tmp_path_factory.mktemp('s')}/s"
        server = Servant(url)
    with server:
        yield server, url
        server.released.set()


def test_the_token_travels_in_a_header_and_is_shown_nowhere(servant: tuple[Servant, str]) -> None:
    server, url = servant
    with dpsql.connect(url, token=TOKEN) as session:
        assert server.headers[-1]["authorization"] == [f"Bearer {TOKEN}"]
        assert "dpsql-session" not in server.headers[-1]
        assert server.bodies[-1].head["protocol"] == wire.PROTOCOL
        assert session.policy.budget.epsilon == 1
        shown = [
            repr(session),
            str(session),
            repr(session._conversation),
            repr(session._conversation._channel),
        ]
        assert not any(TOKEN in text for text in shown)
    assert server.headers[-1]["dpsql-session"] == ["h4ndle"]


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda s: s.budget(), "no valid token; the owner gives one: dpsql analyst add."),
        (lambda s: s.why(), "you are paused."),
        (lambda s: s.columns("t"), "this server does not."),
        (lambda s: s.budget_panel(), "too many requests of yours in a minute; ask again later."),
    ],
)
def test_the_sentences_of_a_server(servant: tuple[Servant, str], ask: Any, said: str) -> None:
    with dpsql.connect(servant[1], token=TOKEN) as session, pytest.raises(ServerError) as caught:
        ask(session)
    assert caught.value.message == said
    assert caught.value.__cause__ is None


def test_what_breaks_has_a_sentence_of_ours(servant: tuple[Servant, str]) -> None:
    with dpsql.connect(servant[1], token=TOKEN) as session:
        for ask in (
            lambda: session._find_pictures("budget"),
            lambda: session.ledger(),
            lambda: session.check_name("x"),
        ):
            with pytest.raises(Error) as caught:
                ask()
            text = "\n".join(caught.value.lines())
            assert "Traceback" not in text
            assert "secret" not in text
            assert "gRPC" not in text
            assert TOKEN not in text


@pytest.mark.parametrize(
    "address", ["grpc+tcp://127.0.0.1:9", "grpc+unix:///no/such/socket", "grpc+tls://127.0.0.1:9"]
)
def test_where_nobody_listens(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    def connect() -> float:
        began = time.monotonic()
        with pytest.raises(ServerError):
            dpsql.connect(address, token=TOKEN)
        return time.monotonic() - began

    try_until(connect, lambda took: took < 10, 3)


def test_a_file_that_is_no_socket(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(ServerError, match="no server answers"):
        dpsql.connect(f"grpc+unix://{tmp_path}/f", token=TOKEN)


def test_a_server_that_does_not_answer_in_time(servant: tuple[Servant, str]) -> None:
    server, url = servant
    server.released.clear()
    with dpsql.connect(url, token=TOKEN) as session, pytest.raises(ServerError, match="in time"):
        session._conversation.ask("explain", {}, 0.2)
    server.released.set()


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_stop_button_is_told_and_the_answer_waited_for(servant: tuple[Servant, str]) -> None:
    server, url = servant
    server.stopped.clear()
    with dpsql.connect(url, token=TOKEN) as session:
        with (
            pressed(press, times=1, ready=lambda done: session.stage),
            pytest.raises(dpsql.Interrupted, match=r"ε=1 stays charged"),
        ):
            session.sql("SELECT 1")
        assert server.stopped.is_set()
        assert session.stage == ""


def test_who_presses_twice_does_not_wait(servant: tuple[Servant, str]) -> None:
    server, url = servant
    server.released.clear()
    server.stopped.clear()
    with dpsql.connect(url, token=TOKEN) as session:
        asked = len(server.bodies)
        with (
            pressed(
                press,
                times=2,
                ready=lambda done: server.stopped.is_set() if done else len(server.bodies) > asked,
            ),
            pytest.raises(dpsql.Interrupted, match="left while") as caught,
        ):
            session.explain("SELECT 1")
        assert not server.released.is_set(), "it answers no more than before"
        server.released.set()
        assert "SHOW LEDGER" in str(caught.value.hint)


def test_the_stage_is_seen_while_it_runs(servant: tuple[Servant, str]) -> None:
    server, url = servant
    server.stopped.clear()
    with dpsql.connect(url, token=TOKEN) as session:
        ended: list[BaseException] = []

        def run() -> None:
            try:
                session.sql("SELECT 1")
            except Error as error:
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        end = time.monotonic() + LONG / 2
        while not session.stage and time.monotonic() < end:
            time.sleep(0.01)
        assert session.stage == "reading"
        server.stopped.set()
        thread.join()
        assert [type(error) for error in ended] == [dpsql.Interrupted]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    folder = tmp_path_factory.mktemp("tls")
    for name in ("ca", "other"):
        make_certificate(folder, name, common=name, names="IP:127.0.0.1")
    return folder


def test_tls(certificates: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pair = ((certificates / "ca.pem").read_bytes(), (certificates / "ca.key").read_bytes())
    with Servant("grpc+tls://127.0.0.1:0", tls_certificates=[pair]) as server:
        url = f"grpc+tls://127.0.0.1:{server.port}"
        with dpsql.connect(url, token=TOKEN, tls_ca=certificates / "ca.pem") as session:
            assert session.analyst == "ann"
        asked = len(server.headers)
        with pytest.raises(ServerError, match="is for another name") as caught:
            dpsql.connect(f"grpc+tls://localhost:{server.port}", token=TOKEN, tls_ca=certificates / "ca.pem")
        assert "subjectAltName" in str(caught.value.hint)
        plain = f"grpc+tcp://127.0.0.1:{server.port}"
        with pytest.raises(ServerError, match="before a word") as caught:
            dpsql.connect(plain, token=TOKEN)
        assert f"it may speak TLS: {url}" in str(caught.value.hint)
        token = certificates / "token"
        write_private(token, TOKEN)
        assert main(["sql", "SELECT 1", "--server", plain, "--token-file", str(token)]) == 1
        assert "--tls-ca ca.pem" in capfd.readouterr().err
        for authority in (None, certificates / "other.pem"):
            with pytest.raises(ServerError, match="certificate") as caught:
                dpsql.connect(url, token=TOKEN, tls_ca=authority)
            assert "tls_ca" in str(caught.value.hint)
        assert len(server.headers) == asked  # the token was not sent
    with Servant("grpc+tcp://127.0.0.1:0") as server:
        with pytest.raises(ServerError, match="speaks no TLS"):
            dpsql.connect(f"grpc+tls://127.0.0.1:{server.port}", token=TOKEN, tls_ca=certificates / "ca.pem")
        assert server.headers == []


def test_a_socket_may_be_written_as_the_owner_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(channels.parse_address("unix:d.sock")) == f"grpc+unix://{tmp_path}/d.sock"
    assert str(channels.parse_address("unix:/run/d.sock")) == "grpc+unix:///run/d.sock"
    assert is_address("unix:d.sock")
    with pytest.raises(ServerError, match="whole path"):
        channels.parse_address("unix:")


def test_no_proxy_sees_a_token_in_the_clear(
    servant: tuple[Servant, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "grpc_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with dpsql.connect(servant[1], token=TOKEN) as session:
        assert session.analyst == "ann"


def test_dbapi_over_a_channel(servant: tuple[Servant, str]) -> None:
    with dpsql.dbapi.connect(servant[1], token=TOKEN) as connection:
        assert connection.session.analyst == "ann"
    with pytest.raises(dpsql.dbapi.OperationalError):
        dpsql.dbapi.connect("grpc+tcp://127.0.0.1:9", token=TOKEN)
