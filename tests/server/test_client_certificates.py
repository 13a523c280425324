"""Certificates of analysts, made by the page's commands: the CN says who asks, and nothing else lets anybody in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.flight as flight
import pytest

import dpsql
from dpsql.client.channel import read_client_certificate
from dpsql.errors import ServerError
from dpsql.server.analyst_tokens import TokenFile
from tests.support.certificates import make_certificate
from tests.support.own_process import run_python
from tests.support.served import ROOT, ServerProcess, make_token, write_data, write_policy

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates"),
]
PAGE = (ROOT / "notebooks" / "docs" / "howto" / "serve.md").read_text(encoding="utf-8")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def sign(
    folder: Path,
    file: str,
    subject: str,
    authority: str = "analysts",
    asked: tuple[str, ...] = (),
    given: tuple[str, ...] = (),
) -> None:
    """Make a key, a request with the extensions ``asked``, and the certificate as the options ``given`` say."""
    own = ["-keyout", f"{file}.key", "-out", f"{file}.csr"]
    openssl(folder, "req", *CURVE, "-utf8", "-subj", subject, *asked, *own)
    by = ["-CA", f"{authority}.pem", "-CAkey", f"{authority}.key"]
    openssl(folder, "x509", "-req", "-in", f"{file}.csr", *by, *given, "-out", f"{file}.pem")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy, its data, and the page's commands carried out."""
    made = tmp_path_factory.mktemp("clinic")
    write_data(made, 500)
    policy = write_policy(made, {"ana": 50, "bob": 50}, "answer_times = []")
    (commands,) = [
        text for text in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) if "analysts.key" in text
    ]
    assert len(commands.strip().splitlines()) == 5
    (made / "policy.toml").symlink_to(policy)
    mine = commands.replace("dpsql analyst", f"{sys.executable} -m dpsql.cli analyst")
    done = subprocess.run(["bash", "-ec", mine], cwd=made, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert "ana.pem: OK" in done.stdout
    (made / "policy.toml.analysts").rename(made / "clinic.toml.analysts")
    make_certificate(made, "stranger", common="stranger", names="")
    make_certificate(made, "server")
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    keys = ["--tls-cert", "server.pem", "--tls-key", "server.key", "--tls-client-ca", "analysts.pem"]
    places = [word if word.startswith("--") else str(folder / word) for word in keys]
    with ServerProcess(folder / "clinic.toml", *places, listen="localhost:0") as running:
        yield running


def connect(server: ServerProcess, file: str | None, **more: Any) -> Any:
    place = server.policy.parent
    own = (
        {}
        if file is None
        else {"tls_client_cert": place / f"{file}.pem", "tls_client_key": place / f"{file}.key"}
    )
    return dpsql.connect(server.url, tls_ca=place / "server.pem", **own, **more)


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPSQL_TOKEN", raising=False)


def test_the_cn_is_the_analyst(server: ServerProcess) -> None:
    with connect(server, "ana") as session:
        assert session.analyst == "ana"
        session.sql("SELECT COUNT(*) AS n FROM visits")
        assert session.budget().analyst == "ana"
    with connect(server, "ana", token=TokenFile(server.policy).rotate("ana")) as session:
        assert session.analyst == "ana", "a token of her own may come with it"


def test_a_token_of_another_is_refused(server: ServerProcess) -> None:
    token = make_token(server.policy, "bob")
    with pytest.raises(ServerError, match="to different analysts"):
        connect(server, "ana", token=token)
    with pytest.raises(ServerError, match="no valid token"):
        connect(server, "ana", token="dpsql_" + "x" * 43)
    with pytest.raises(ServerError) as caught:
        connect(server, None, token=token)  # a token alone is not enough here
    assert "certificate" in str(caught.value.hint)
    assert server.wait_for("refused certificate")["analyst"] == "ana"


@pytest.mark.parametrize(
    "subject", ["/CN=eve", "/CN=Ana", "/CN=ana ", "/CN= ana", "/CN=bob\\0", "/O=ana", "/CN=*", "/CN=аna"]
)
def test_an_unknown_name_is_refused(server: ServerProcess, folder: Path, subject: str) -> None:
    sign(folder, "eve", subject)
    with pytest.raises(ServerError, match="names no analyst"):
        connect(server, "eve")
    with pytest.raises(ServerError, match="different analysts"):
        connect(server, "eve", token=make_token(server.policy, "bob"))


def test_another_authority_is_refused(server: ServerProcess, folder: Path) -> None:
    sign(folder, "forged", "/CN=ana", "stranger")
    make_certificate(folder, "self", common="ana", names="")
    for file in ("forged", "self"):
        with pytest.raises(ServerError, match="closed the connection") as caught:
            connect(server, file, token=make_token(server.policy, "bob"))
        assert "authority" in str(caught.value.hint)


def test_a_certificate_past_its_time_is_refused(server: ServerProcess, folder: Path) -> None:
    sign(folder, "old", "/CN=ana", given=("-days", "-1"))
    with pytest.raises(ServerError):
        connect(server, "old")


def test_a_bare_client_without_a_certificate_reaches_nothing(server: ServerProcess, folder: Path) -> None:
    authority = (folder / "server.pem").read_bytes()
    bare = flight.FlightClient(server.url, tls_root_certs=authority)
    headers = [(b"authorization", b"Bearer " + make_token(server.policy, "bob").encode())]
    with pytest.raises(flight.FlightUnavailableError):
        list(
            bare.do_action(
                flight.Action("dpsql.open", b""), flight.FlightCallOptions(headers=headers, timeout=10)
            )
        )


def test_no_certificate_goes_round_a_pause_a_removal_or_an_expiry(
    server: ServerProcess, folder: Path
) -> None:
    tokens = TokenFile(server.policy)
    sign(folder, "bob", "/CN=bob")
    if "bob" not in {record.name for record in tokens.list()}:
        tokens.add("bob")
    session = connect(server, "bob")
    session.sql("SELECT 1 AS x")
    tokens.pause("bob", "too curious")
    for ask in (lambda: session.sql("SELECT 1 AS x"), lambda: connect(server, "bob")):
        with pytest.raises(ServerError, match="paused"):
            ask()
    tokens.resume("bob")
    connect(server, "bob").close()
    with tokens._writing() as records:
        records["bob"] = dpsql.server.analyst_tokens.replace(
            records["bob"], expires="2020-01-01T00:00:00+00:00"
        )
    with pytest.raises(ServerError, match="names no analyst"):
        connect(server, "bob")
    tokens.remove("bob")
    with pytest.raises(ServerError, match="names no analyst"):
        connect(server, "bob")
    tokens.add("bob")
    connect(server, "bob").close()
    with pytest.raises(ServerError, match=r"no such session|ended|has expired"):
        for _ in range(600):
            session.sql("SELECT 1 AS x")  # it is ended with the token of its time, soon
            time.sleep(0.1)


def test_a_subject_alternative_name_is_what_grpc_tells(server: ServerProcess, folder: Path) -> None:
    """The reason why the page asks for an authority that signs none: with one, the CN is not seen at all."""
    asked = ("-addext", "subjectAltName=DNS:nobody")
    sign(folder, "both", "/CN=ana", asked=asked, given=("-copy_extensions", "copy"))
    with pytest.raises(ServerError, match="names no analyst"):
        connect(server, "both")
    sign(folder, "san", "/CN=eve", asked=("-addext", "subjectAltName=DNS:ana"))
    with pytest.raises(ServerError, match="names no analyst"):
        connect(server, "san")  # the page's third command copies none from the request


def test_two_policies_that_know_one_name(folder: Path) -> None:
    first, second = folder / "clinic.toml", folder / "second.toml"
    second.write_text(first.read_text().replace("[tables.wards]", "[tables.rooms]"))
    token = make_token(second, "ana")
    keys = ["--tls-cert", "server.pem", "--tls-key", "server.key", "--tls-client-ca", "analysts.pem"]
    places = [word if word.startswith("--") else str(folder / word) for word in keys]
    copy = folder / "third.toml"
    shutil.copy(first, copy)
    make_token(copy, "ana")
    with ServerProcess(copy, "--policy", str(second), *places, listen="localhost:0") as server:
        with pytest.raises(ServerError, match="several policies"):
            connect(server, "ana")
        with connect(server, "ana", token=token) as session:
            assert "rooms" in session.policy.tables


def test_the_command_line_and_what_it_refuses(server: ServerProcess, folder: Path) -> None:
    base = [sys.executable, "-m", "dpsql.cli", "sql", "--server", server.url, "--tls-ca", "server.pem"]
    own = ["--tls-client-cert", "ana.pem", "--tls-client-key", "ana.key"]
    done = subprocess.run([*base, *own, "SELECT COUNT(*) AS n FROM wards", "--format", "csv"], cwd=folder, env=ENVIRONMENT,
                          capture_output=True, text=True, timeout=240)  # fmt: skip
    assert done.stdout == "n\n3\n", done.stderr
    secret = (folder / "ana.key").read_text().splitlines()[1]
    assert secret not in repr(read_client_certificate(folder / "ana.pem", folder / "ana.key"))


def test_files_that_are_none(folder: Path, tmp_path: Path) -> None:
    url = "grpc+tls://127.0.0.1:1"
    openssl(folder, "pkey", "-in", "ana.key", "-aes256", "-passout", "pass:x", "-out", "locked.key")
    (tmp_path / "both.pem").write_bytes((folder / "ana.pem").read_bytes() + (folder / "ana.key").read_bytes())
    (tmp_path / "text.pem").write_text("no certificate")
    for cert, key, said in (
        (folder / "ana.pem", folder / "locked.key", "passphrase"),
        (folder / "ana.pem", folder / "server.key", "no certificate with its key"),
        (tmp_path / "text.pem", folder / "ana.key", "no certificate with its key"),
        (folder / "ana.pem", None, "holds no private key"),
        (tmp_path / "gone.pem", None, "can't be read"),
        (None, folder / "ana.key", "needs its certificate"),
        (tmp_path / "both.pem", None, "no server answers"),
    ):
        with pytest.raises(ServerError, match=said):
            dpsql.connect(url, tls_client_cert=cert, tls_client_key=key)
    with pytest.raises(ServerError, match="speaks no TLS"):
        dpsql.connect("grpc+tcp://127.0.0.1:1", tls_client_cert=tmp_path / "both.pem")
    with pytest.raises(ServerError, match="are for servers"):
        dpsql.connect("visits.duckdb", policy="p.toml", tls_client_cert=tmp_path / "both.pem")  # type: ignore[call-overload]


def test_a_server_that_can_not_ask_for_certificates(folder: Path) -> None:
    (folder / "broken.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    own = ["--tls-cert", str(folder / "server.pem"), "--tls-key", str(folder / "server.key")]
    for words, said in (
        (["--tls-client-ca", str(folder / "analysts.pem")], "need a certificate of the server"),
        ([*own, "--tls-client-ca", str(folder / "broken.pem")], "has no certificate"),
        ([*own, "--tls-client-ca", str(folder / "gone.pem")], "can't be read"),
    ):
        done = run_python(
            "-m",
            "dpsql.cli",
            "serve",
            "--policy",
            "clinic.toml",
            "--listen",
            "localhost:0",
            *words,
            cwd=folder,
            env=ENVIRONMENT,
            timeout=240,
        )
        assert done.returncode == 1
        assert said in done.stderr
