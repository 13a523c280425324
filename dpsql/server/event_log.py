"""The server's log: one JSON object per line, with time, analyst, number of the statement, charge and outcome.

The log never contains data, texts of statements, parameters or tokens; an address is as short as possible.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

FIELDS = (
    "analyst", "session", "operation", "statement", "charge", "outcome", "seconds", "address", "policy", "why", "hint",
    "count", "tables", "analysts",
)  # fmt: skip
"""Every field that a line may have in addition to its time and event."""


class EventLog:
    """A log of events. Thread-safe; the server goes on if the log can't be written.

    Args:
        file: gets the lines; None drops them.
    """

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._recent: deque[dict[str, str | int | float]] = deque(maxlen=_RECENT)

    @property
    def recent(self) -> list[dict[str, str | int | float]]:
        """The latest lines, oldest first, without those about single requests, which the ledger has."""
        with self._lock:
            return list(self._recent)

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
                self._recent.append(written)
            try:
                if self._file is not None:
                    self._file.write(line)
                    self._file.flush()
            except (OSError, ValueError):  # full, or closed
                pass


_LONGEST = 200
_RECENT = 50
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
