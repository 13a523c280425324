"""The threads that wait for gRPC's messages: chosen while a connection is made, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpsql.client.wire import waiting_in_place

NAME = "GRPC_EXPERIMENTS"


def test_the_choice_holds_within_the_block_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NAME, raising=False)
    with pytest.raises(ZeroDivisionError), waiting_in_place():
        assert "event_engine_client" in os.environ[NAME]
        raise ZeroDivisionError
    assert NAME not in os.environ


def test_a_choice_of_the_environment_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "other")
    with waiting_in_place():
        assert os.environ[NAME] == "other"
    assert os.environ[NAME] == "other"


ECHO = """
import resource
import sys

import pyarrow.flight as flight

from dpsql.client.wire import waiting_in_place


class Echo(flight.FlightServerBase):
    def do_action(self, context, action):
        yield flight.Result(b"it")


def ask(client):
    return list(client.do_action(flight.Action("any", b"")))


if sys.argv[1] == "chosen":
    with waiting_in_place():
        server = Echo("grpc+tcp://127.0.0.1:0")
else:
    server = Echo("grpc+tcp://127.0.0.1:0")
client = flight.FlightClient(f"grpc+tcp://127.0.0.1:{server.port}")
for _ in range(20):
    ask(client)
waits = []
for _ in range(8):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    for _ in range(50):
        ask(client)
    waits.append((resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before) / 50)
print(min(waits))  # the others may have been disturbed
server.shutdown()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems wait in other ways")
def test_a_call_wakes_fewer_threads(tmp_path: Path) -> None:
    """Both ends in one process: what is counted is how often one of its threads waits. Older versions never had such threads."""
    script = tmp_path / "echo.py"
    script.write_text(ECHO)
    environment = {key: value for key, value in os.environ.items() if key != NAME}
    waits = {
        way: float(
            subprocess.run(
                [sys.executable, str(script), way],
                env=environment, capture_output=True, text=True, check=True, timeout=300,
            ).stdout
        )
        for way in ("chosen", "default")
    }  # fmt: skip
    assert waits["chosen"] < max(7, waits["default"] - 2), waits
