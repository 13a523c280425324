"""The threads that wait for gRPC's messages: chosen while a connection is made, and nowhere else."""

from __future__ import annotations

import os

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
