"""Two commands: one serves the demo's data with a printed token, the other one answers a cell from elsewhere."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dpsql.demo.demo import prepare_served_demo
from dpsql.policy.model import Policy
from dpsql.server.analyst_tokens import TokenFile

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="the server is for systems with sockets of their own"
)


def environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "DPSQL_STATE": str(folder / "state"), "DPSQL_TOKEN": ""}


def test_two_commands() -> None:
    with TemporaryDirectory(prefix="dp") as name:  # the path of a socket is short
        folder = Path(name)
        command = [sys.executable, "-m", "dpsql.cli", "demo", "--serve", "--listen", "unix:s"]
        command += ["--pg", "127.0.0.1:0", "--console", "127.0.0.1:0"]
        serving = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert serving.stdout is not None
        try:
            told = ""
            for line in serving.stdout:
                told += line
                if line.startswith("listening on"):
                    break
            token = re.search(r"dpsql_[\w-]{43}", told)
            assert token
            assert (folder / "dpsql-demo" / "ada.token").read_text().strip() == token[0]
            asked = re.search(r"^dpsql sql .*?GROUP BY plan'$", told, re.M | re.S)
            assert asked, told
            script = asked[0].replace("dpsql sql", f"{sys.executable} -m dpsql.cli sql", 1)
            for cost in ("cost ε=0.5", "no charge"):
                done = subprocess.run(
                    ["bash", "-c", script],
                    cwd=folder,
                    env=environment(folder),
                    capture_output=True,
                    text=True,
                )
                assert done.returncode == 0, done.stderr
                assert "deductible" in done.stdout
                assert cost in done.stdout
        finally:
            serving.send_signal(signal.SIGTERM)
            serving.wait(30)
            serving.stdout.close()
        assert serving.returncode == 0


def test_what_is_prepared_is_the_owners_alone_and_can_be_prepared_again(tmp_path: Path) -> None:
    policy, first = prepare_served_demo(tmp_path / "demo")
    assert Policy.load(policy).analysts["ada"].epsilon == 2
    _, second = prepare_served_demo(tmp_path / "demo")
    held = TokenFile(policy)
    assert held.identify(first) is None
    assert held.identify(second) is not None
    assert (tmp_path / "demo").stat().st_mode & 0o077 == 0
    assert (tmp_path / "demo" / "ada.token").stat().st_mode & 0o077 == 0
