"""Kills a refresh of an answer in parts at its lines, in processes of their own, and asks again.

``python -m tests.support.killed_refresh FOLDER WHAT STEP``: of a ``statement``, a ``release`` or a ``tree``, at every ``STEP``-th
line that one refresh runs (1: at each). After each kill the ledger is verified, no period that had a part has paid again, a
release is the one from before or the new one, and asking again gives all days, and is free after that. A line counts once before
the first transaction of the ledger, and once after each.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import dpsql
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.upkeep import verify_ledger
from dpsql.privacy.periods import list_periods, say_periods
from tests.support.nights import CLOSED, DAILY, FIRST, TOTALS, write_day

FOLDERS = (
    "/dpsql/ledger/",
    "/dpsql/session/",
    "/dpsql/privacy/periods.py",
    "/dpsql/mechanisms/aggregation.py",
)
STORED, DAYS = 3, 4
KILLED = 9


def run_apart(work: Callable[[], object]) -> tuple[int, Any]:
    """Run work in a thread of a forked process, and return its exit code and its value."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            made: list[object] = []
            thread = threading.Thread(target=lambda: made.append(work()))
            thread.start()
            thread.join()
            os.write(write, json.dumps(made).encode())
            code = 0 if made else 1
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as sent:
        content = sent.read()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), json.loads(content)[0] if content else None


class Lines:
    """Counts the lines that a thread runs in these folders, and ends the process at one of them."""

    def __init__(self, end: int | None) -> None:
        self.end, self.written = end, 0
        self.known: set[tuple[str, int, int]] = set()

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        if not any(folder in frame.f_code.co_filename for folder in FOLDERS):
            return None
        if event == "line":
            self.written += frame.f_code.co_name == "append_row"
            self.known.add((frame.f_code.co_filename, frame.f_lineno, self.written))
            if len(self.known) == self.end:
                os._exit(KILLED)
        return self


class Refresh:
    """One refresh of a day that is new, over a ledger with a part of each earlier day."""

    def __init__(self, folder: Path, what: str) -> None:
        self.what = what
        self.data = folder / "data"
        self.work, self.kept = folder / "work", folder / "kept"
        self.ledger = self.work / "l.ledger"
        os.environ["DPSQL_STATE"] = str(self.work / "state")
        for number in range(DAYS):
            write_day(self.data, number)
        (self.work / "state").mkdir(parents=True)
        code, needed = run_apart(lambda: (self.ask(STORED), sorted(sys.modules))[1])
        assert code == 0
        for name in needed:  # so that no process imports them again
            with suppress(ImportError):
                importlib.import_module(name)
        shutil.copytree(self.work, self.kept)

    def ask(self, days: int, lines: Lines | None = None, text: str = "") -> list[Any]:
        """Ask on the morning after so many days; return the cost line, the answer, and the number of lines."""
        dpsql.Policy.today = FIRST + datetime.timedelta(days=days)  # type: ignore[assignment, method-assign]
        policy = dpsql.Policy.loads(CLOSED, base=self.data)
        with dpsql.connect(policy=policy, ledger=self.ledger) as session:
            sys.settrace(lines)
            result = session.sql(text or self.write(days))
            sys.settrace(None)
            return [result.cost_line, sorted(map(str, result.fetchall())), len(lines.known) if lines else 0]

    def write(self, days: int) -> str:
        """Return the statement of a morning: the first one creates the release."""
        if self.what != "release":
            return TOTALS if self.what == "tree" else DAILY
        return f"CREATE RELEASE daily AS {DAILY}" if days == STORED else "REFRESH RELEASE daily"

    def restore(self) -> None:
        shutil.rmtree(self.work)
        shutil.copytree(self.kept, self.work)

    def count_lines(self) -> int:
        """Return the number of lines of a refresh that isn't killed."""
        code, answer = run_apart(lambda: self.ask(DAYS, Lines(None)))
        assert code == 0
        return int(answer[2])

    def read_days(self) -> Counter[str]:
        """Return how often each period was charged."""
        with Ledger.read(self.ledger) as ledger:
            events = [entry.event for entry in ledger.entries() if entry.event is not None]
            return Counter(
                say_periods(((day, day + 1),))
                for event in events
                for low, high in list_periods(event) or ()
                for day in range(low, high)
            )

    def kill(self, line: int) -> str:
        """Kill a refresh at a line, check the ledger, ask again, and return what was charged and stored by then."""
        self.restore()
        code, _ = run_apart(lambda: self.ask(DAYS, Lines(line)))
        assert code in (0, KILLED), (line, code)
        if code == 0:
            return "not reached"
        days = [str(FIRST + datetime.timedelta(days=number)) for number in range(DAYS)]
        before, new = Counter(days[:STORED]), Counter(days if self.what == "tree" else days[STORED:])
        charged = self.read_days()
        assert charged in (before, before + new), charged  # no period has paid twice
        paid = charged != before
        verify_ledger(self.ledger)  # each stored answer is one that was paid
        if self.what == "release":
            code, (_, rows, _) = run_apart(lambda: self.ask(DAYS, text="SELECT * FROM daily"))
            assert code == 0
            assert len(rows) in (STORED, DAYS)
        code, (line_again, rows, _) = run_apart(lambda: self.ask(DAYS))
        assert code == 0
        stored = line_again.startswith(f"{DAYS} days stored · no charge")
        assert not stored or paid, "an answer that nobody paid for"
        assert stored or line_again.startswith(f"{STORED} days stored, 1 new"), line_again
        assert len(rows) == DAYS
        code, (line_third, rows_third, _) = run_apart(lambda: self.ask(DAYS))
        assert code == 0
        assert rows_third == rows
        assert line_third.startswith(f"{DAYS} days stored · no charge")
        charged = self.read_days()
        again = new if paid and not stored else Counter()
        assert charged == before + new + again, charged
        verify_ledger(self.ledger)
        return "stored" if stored else "charged" if paid else "untouched"


def main(folder: Path, what: str, step: int, first: int = 1) -> None:
    refresh = Refresh(folder, what)
    lines = refresh.count_lines()
    found = Counter(refresh.kill(line) for line in range(first, lines + 1, step))
    print(json.dumps({"lines": lines, **found}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
