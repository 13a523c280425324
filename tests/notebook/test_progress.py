"""Signs of life: nothing under a second, one line that goes away after."""

from __future__ import annotations

import re
import time

import pytest

from dpsql.mechanisms.base import report_progress
from dpsql.notebook import sessions
from dpsql.notebook.sessions import show_progress


def test_quick_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PATIENCE", 60)  # the machine may be busy
    shown: list[str] = []
    with show_progress(shown.append):
        time.sleep(0.05)
    assert shown == []


def test_slow_work_shows_a_line_and_wipes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PATIENCE", 0.02)
    shown: list[str] = []
    with pytest.raises(ZeroDivisionError), show_progress(shown.append, every=0.02):
        end = time.monotonic() + 60
        while len(shown) < 2 and time.monotonic() < end:
            time.sleep(0.02)
        raise ZeroDivisionError
    assert len(shown) >= 2
    assert shown[0].startswith("running for")
    assert shown[-1] == ""
    assert all("charge" in line for line in shown[:-1])
    before = len(shown)
    time.sleep(0.06)
    assert len(shown) == before, "the thread has ended"


def test_the_time_of_a_slow_answer_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PATIENCE", 0.02)
    shown: list[str] = []
    with show_progress(shown.append, every=0.02):
        end = time.monotonic() + 60
        while not shown and time.monotonic() < end:
            time.sleep(0.02)
    assert re.fullmatch(r"took \d+ s\n", shown[-1])


def test_the_share_is_shown_where_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PATIENCE", 0.02)
    shown: list[str] = []
    with show_progress(shown.append, every=0.02):
        end = time.monotonic() + 60
        while not any("of 4,000 steps" in line for line in shown) and time.monotonic() < end:
            report_progress(1_200, 4_000)
            time.sleep(0.02)
    assert any("1,200 of 4,000 steps" in line for line in shown)


def test_of_a_server_the_stage_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PATIENCE", 0.02)
    shown: list[str] = []
    with show_progress(shown.append, every=0.02, stage=lambda: "reading"):
        end = time.monotonic() + 60
        while not shown and time.monotonic() < end:
            time.sleep(0.02)
    assert re.fullmatch(r"running for \d+ s, reading; stopping it keeps the charge", shown[0])


def test_a_log_file_gets_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    sessions.draw_in_terminal("running")
    assert capsys.readouterr().err == ""
