"""The server's log: one JSON object per line, with time, analyst, number of the statement, charge and outcome.

The log never contains data, texts of statements, parameters or tokens; an address is as short as possible.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

_NAMES = """
    analyst session operation statement charge outcome seconds address policy why hint count tables analysts member"""
FIELDS = tuple(_NAMES.split())
"""Every field that a line may have in addition to its time and event."""


_EVENTS = "certificate not taken, ledger replaced, no tokens, no worker, pause, policy not taken, share low"
ALERTS = frozenset(_EVENTS.split(", "))
"""The events that the owner's program is run for."""


class EventLog:
    """A thread-safe log of events; the server goes on if it can't be written. ``alert`` gets the lines of :data:`ALERTS`."""

    def __init__(self, file: TextIO | None, alert: AlertProgram | None = None) -> None:
        self._file, self._alert = file, alert
        self.counts: Counter[str] = Counter()
        """How many lines of each event there were, without those about single requests."""
        self._lock = threading.Lock()
        self._begin = ""
        """A new line, if the last one could not be written to its end."""

    def write(self, event: str, **fields: str | int | float | None) -> None:
        """Write a line.

        Args:
            event: one or two words: ``open``, ``answer``, ``refused token``.
            fields: from :data:`FIELDS`; None is left out.

        Raises:
            ValueError: a field isn't in :data:`FIELDS`.
        """
        unknown = set(fields) - set(FIELDS)
        if unknown:
            raise ValueError(f"no line of the log has {', '.join(sorted(unknown))}")
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        written: dict[str, str | int | float] = {"when": when, "event": event}
        for name, value in fields.items():
            if value is not None:
                written[name] = value[:_LONGEST] if isinstance(value, str) else value
        line = json.dumps(written) + "\n"
        with self._lock:
            if event not in _ROUTINE:
                self.counts[event] += 1
            try:
                if self._file is not None:
                    self._file.write(self._begin + line)
                    self._file.flush()
                    self._begin = ""
            except (OSError, ValueError):  # full, or closed
                self._begin = "\n"
        if self._alert is not None and event in ALERTS:
            about = {name: value for name, value in written.items() if name not in ("when", "count")}
            self._alert.add(json.dumps(about), line)


class AlertProgram:
    """The owner's program that sends alerts, such as mail: run once for each line, on standard input, with ``environment``."""

    def __init__(self, path: Path, environment: Mapping[str, str]) -> None:
        self._path, self._environment = path, dict(environment)
        self._lines: queue.Queue[str] = queue.Queue(_MOST_ALERTS)
        self._sent: dict[str, float] = {}
        threading.Thread(target=self._run, daemon=True, name="dpsql-alerts").start()

    def add(self, about: str, line: str) -> None:
        """Run the program for a line, one at a time; drop the line if too many wait, or if it is like one of the last minutes."""
        now = time.monotonic()
        self._sent = {known: at for known, at in self._sent.items() if now - at < _REPEAT_SECONDS}
        if about not in self._sent:
            self._sent[about] = now
            with suppress(queue.Full):
                self._lines.put_nowait(line)

    def _run(self) -> None:
        while True:
            line = self._lines.get()
            with suppress(OSError, subprocess.SubprocessError):  # the log has the line, too
                subprocess.run(
                    [str(self._path)],
                    input=line.encode(),
                    env=self._environment,
                    cwd="/",
                    timeout=_ALERT_SECONDS,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )


_MOST_ALERTS, _ALERT_SECONDS, _REPEAT_SECONDS = 100, 30.0, 600.0

_LONGEST = 200
_ROUTINE = frozenset({"open", "close", "answer", "charge"})


def name_place(error: BaseException) -> str:
    """Return an error's class and the line of our code that raised it; its message may contain data."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if "dpsql" in file.parts:
            place = f" at {file.name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}{place}"
