"""The server's log: one JSON object a line, of who, when, which statement, what charge and how it ended.

It never holds data, the text of a statement, a parameter, a token, or an address beyond what tells analysts apart.
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
"""Everything that a line may say besides its time and event."""


class EventLog:
    """A log of events. Safe for threads; a log that can't be written stops nothing.

    Args:
        file: where lines go; None drops them.
    """

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._recent: deque[dict[str, str | int | float]] = deque(maxlen=_RECENT)

    @property
    def recent(self) -> list[dict[str, str | int | float]]:
        """The latest lines, oldest first, but for those of single requests, which the ledger tells."""
        with self._lock:
            return list(self._recent)

    def write(self, event: str, **fields: str | int | float | None) -> None:
        """Write a line.

        Args:
            event: what happened, in a word or two: ``open``, ``answer``, ``refused token``.
            fields: from :data:`FIELDS`; None is left out.

        Raises:
            ValueError: a field that no line has.
        """
        unknown = set(fields) - set(FIELDS)
        if unknown:
            raise ValueError(f"no line of the log has {', '.join(sorted(unknown))}")
        told = {name: value for name, value in fields.items() if value is not None}
        said: dict[str, str | int | float] = {
            "when": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "event": event,
        }
        said |= {name: value[:_LONGEST] if isinstance(value, str) else value for name, value in told.items()}
        line = json.dumps(said, ensure_ascii=True) + "\n"
        with self._lock:
            if event not in _ROUTINE:
                self._recent.append(said)
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
    """Return the class of an error, and the place in our code that it came from; its own words may hold values."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if "dpsql" in file.parts:
            place = f" at {file.name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}{place}"
