"""The page about deployment: its commands make certificates that work, its unit is one, and its socket is the group's alone."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import dpsql
from dpsql.cli import make_parser
from dpsql.errors import ServerError
from dpsql.policy.model import ServerRules
from dpsql.server import queues
from dpsql.server.event_log import ALERTS
from tests.support.own_process import run_python
from tests.support.served import ServerProcess, make_token, write_data, write_policy

PAGE = "\n".join(
    (Path(__file__).parents[2] / "notebooks" / "docs" / "howto" / name).read_text(encoding="utf-8")
    for name in ("serve.md", "run_in_a_container.md")
)
pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="the server is for systems with sockets of their own"
)


def block(kind: str, holding: str) -> str:
    (found,) = [text for text in re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.M | re.S) if holding in text]
    return str(found)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
def test_five_commands_make_an_authority_and_a_certificate_that_a_client_trusts(tmp_path: Path) -> None:
    commands = block("sh", "-keyout ca.key")
    assert len(commands.strip().splitlines()) == 5
    done = subprocess.run(
        ["bash", "-ec", commands.replace("dpsql.example.org", "localhost")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "server.pem: OK" in done.stdout
    assert re.search(r"sha256 Fingerprint=([0-9A-F]{2}:){31}", done.stdout)
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) & 0o077 == 0
    write_data(tmp_path, 500)
    policy = write_policy(tmp_path, {"ana": 5}, "answer_times = []")
    token = make_token(policy, "ana")
    keys = ("--tls-cert", str(tmp_path / "server.pem"), "--tls-key", str(tmp_path / "server.key"))
    with ServerProcess(policy, *keys, listen="localhost:0") as server:
        assert server.url.startswith("grpc+tls://localhost:")
        with dpsql.connect(server.url, token=token, tls_ca=tmp_path / "ca.pem") as session:
            assert session.sql("SHOW TABLES").shape[0] == 2
        with pytest.raises(ServerError):
            dpsql.connect(server.url, token=token)  # the system does not know this authority
        with pytest.raises(ServerError):
            dpsql.connect(
                server.url.replace("localhost", "127.0.0.1"), token=token, tls_ca=tmp_path / "ca.pem"
            )


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_the_unit_is_one(tmp_path: Path) -> None:
    text = (
        block("ini", "[Service]")
        .replace("/opt/dpsql/bin/dpsql", "/bin/true")
        .replace("User=owner", "User=root")
    )
    unit = tmp_path / "dpsql.service"
    unit.write_text(text.replace("Group=analysts", "Group=root"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    told = [line for line in (done.stdout + done.stderr).splitlines() if "dpsql.service" in line]
    assert told == []
    unit.write_text(text + "\n[Service]\nProtectEverything=yes\n")
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert "ProtectEverything" in done.stderr  # it would tell


def test_the_commands_of_the_page_are_commands(capsys: pytest.CaptureFixture[str]) -> None:
    parser = make_parser()
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(block("ini", "[Service]"))
    lines = [
        line for text in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) for line in text.splitlines()
    ]
    lines += [unit["Service"]["ExecStart"].replace("/opt/dpsql/bin/", "")]
    lines += [
        text
        for text in re.findall(r"`(dpsql [^`]*)`", PAGE)
        if " --" in text and not text.endswith("--serve")
    ]
    asked = [line for line in lines if line.startswith("dpsql ")]
    assert len(asked) >= 10
    for line in asked:
        given = parser.parse_args(shlex.split(line)[1:])
        assert given.run, line


def test_the_lines_for_kubernetes_are_options() -> None:
    yaml = pytest.importorskip("yaml")
    made = yaml.safe_load(block("yaml", "kind: Deployment"))
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert 'ENTRYPOINT ["dpsql", "serve"]' in block("dockerfile", "FROM")
    given = make_parser().parse_args(["serve", *container["args"]])
    ports = {int(place.rpartition(":")[2]) for place in (given.listen, given.pg, given.metrics)}
    assert ports == {port["containerPort"] for port in container["ports"]}
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": 9464, "scheme": "HTTPS"}


def test_what_the_page_says_of_the_policy_is_so() -> None:
    rules = ServerRules()
    table = PAGE[PAGE.index("| in `[server]`") : PAGE.index("Shares are under")]
    named = set(
        re.findall(
            r"\b(answer_times|time_zone|keep_text_days|alert_below|identity_provider|max_\w+)\b", table
        )
    )
    assert named == set(ServerRules.__dataclass_fields__)
    for name, value in re.findall(r"`(max_\w+) = (\d+)`", table):
        assert getattr(rules, name) == int(value), name
    assert "[0.25, 0.5, 1, 2, 4]" in table
    assert [float(time) for time in rules.answer_times] == [0.25, 0.5, 1, 2, 4]
    assert (queues.MAX_FAILURES, queues.MAX_OVERRUNS) == (3, 20)
    assert "three such failures, or twenty statements within an hour" in PAGE


def test_each_event_of_the_page_is_written_somewhere() -> None:
    rows = PAGE[PAGE.index("| event |") : PAGE.index("`--alert PROGRAM`")]
    cells = re.findall(r"^\| (`[^|]*) \|", rows, re.M)
    events = {name for cell in cells for name in re.findall(r"`([a-z ]+)`", cell)} - {"failed"}
    events |= ALERTS
    assert len(events) > 6
    folder = Path(queues.__file__).parent
    sources = [path.read_text("utf-8") for path in folder.rglob("*.py")]
    written = {name for text in sources for name in re.findall(r"_?log\.write\(\s*\"([a-z ]+)\"", text)}
    assert events <= written


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may give files to a group"
)
def test_the_socket_takes_the_group_of_its_folder_and_nobody_else_reaches_it() -> None:
    with TemporaryDirectory(prefix="dp", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        place = folder / "run"
        place.mkdir()
        os.chown(place, 0, 65533)
        place.chmod(0o2750)
        write_data(folder, 500)
        policy = write_policy(folder, {"ana": 5}, "answer_times = []")
        token = make_token(policy, "ana")
        with ServerProcess(policy, listen=f"unix:{place / 's'}") as server:
            found = (place / "s").stat()
            assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (65533, 0o660)
            code = (
                "import os, socket, sys\n"
                "os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(65534)\n"
                "socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('in')"
            )
            reached = [run_python("-c", code, str(place / "s"), group) for group in ("65533", "65534")]
            assert [run.stdout for run in reached] == ["in\n", ""]
            assert "PermissionError" in reached[1].stderr
            with dpsql.connect(server.url, token=token) as session:
                session.sql("SELECT COUNT(*) AS n FROM visits")
            charged = server.wait_for("charge", analyst="ana", outcome="released")
            assert charged["charge"] == "ε=0.1"
            assert "SELECT" not in json.dumps(server.events)
