"""The server's log: one JSON object a line, and nothing that no line has."""

from __future__ import annotations

import io
import json
import os
import threading
from datetime import datetime
from pathlib import Path

import pytest

from dpsql.server.event_log import AlertProgram, EventLog
from tests.support.served import try_until


def test_each_event_is_one_line_of_json() -> None:
    file = io.StringIO()
    log = EventLog(file)
    log.write(
        "charge", analyst="ada\n\x00 \u2028", statement=3, charge="ε=0.5", outcome="released", session=None
    )
    log.write("open", analyst="x" * 10_000)
    lines = file.getvalue().splitlines()
    assert len(lines) == 2
    first, second = map(json.loads, lines)
    assert datetime.fromisoformat(first.pop("when")).tzinfo is not None
    told = {
        "event": "charge",
        "analyst": "ada\n\x00 \u2028",
        "statement": 3,
        "charge": "ε=0.5",
        "outcome": "released",
    }
    assert first == told
    assert len(second["analyst"]) == 200
    assert file.getvalue().isascii()


def test_no_line_has_a_text_or_a_parameter() -> None:
    log = EventLog(io.StringIO())
    for field in ("text", "params", "token", "sql", "message"):
        with pytest.raises(ValueError, match=field):
            log.write("answer", **{field: "secret"})


class FullDisk(io.StringIO):
    """A file on a disk with room for some more characters."""

    room = 120

    def write(self, text: str) -> int:
        fits, self.room = text[: self.room], max(0, self.room - len(text))
        super().write(fits)
        if fits != text:
            raise OSError("no space left")
        return len(text)


def test_a_line_that_was_cut_off_spoils_no_other() -> None:
    file = FullDisk()
    log = EventLog(file)
    for number in range(3):
        log.write("charge", statement=number)
    file.room = 1000
    log.write("charge", statement=3)
    first, *cut, last = file.getvalue().splitlines()
    assert [json.loads(line)["statement"] for line in (first, last)] == [0, 3]
    assert all(len(line) < len(last) for line in cut)


def test_a_log_that_can_not_be_written_stops_nothing() -> None:
    closed = io.StringIO()
    closed.close()
    EventLog(closed).write("open", analyst="ada")
    EventLog(None).write("open", analyst="ada")


def test_lines_of_threads_do_not_mix() -> None:
    file = io.StringIO()
    log = EventLog(file)
    threads = [
        threading.Thread(target=lambda: [log.write("a", why="x" * 150) for _ in range(100)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(json.loads(line)["why"] == "x" * 150 for line in file.getvalue().splitlines())
    assert len(file.getvalue().splitlines()) == 400


def test_the_program_for_alerts_is_run_once_for_each(tmp_path: Path) -> None:
    program, out = tmp_path / "alert", tmp_path / "out"
    program.write_text(f"#!/bin/sh\ncat >> {out}\nexit 3\n")
    program.chmod(0o700)
    log = EventLog(None, AlertProgram(program, {"PATH": os.environ["PATH"]}))
    for _ in range(5):
        log.write("no tokens", policy="visits", why="gone")
        log.write("answer", analyst="ada", outcome="failed")
    log.write("pause", analyst="ada", policy="visits", why="x")
    text = try_until(lambda: out.read_text() if out.exists() else "", lambda text: "pause" in text, 10**6)
    assert [json.loads(line)["event"] for line in text.splitlines()] == ["no tokens", "pause"]
    assert log.counts == {"no tokens": 5, "pause": 1}


def test_a_program_for_alerts_that_is_missing_stops_nothing(tmp_path: Path) -> None:
    EventLog(None, AlertProgram(tmp_path / "none", {})).write("pause", analyst="ada")
