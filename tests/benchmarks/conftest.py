"""One table of all figures of speed, at the end of the run."""

from __future__ import annotations

import pytest

from tests.support.benchmarks import RUN, Benchmarks


@pytest.fixture(scope="session")
def benchmarks() -> Benchmarks:
    """The table that is printed at the end: ``benchmarks.compare(name, ours, plain, target=...)`` adds a line to it."""
    return RUN


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if RUN.figures:
        terminalreporter.section("speed, beside targets and other systems")
        terminalreporter.write_line(str(RUN))
