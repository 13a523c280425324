"""One table of all figures of speed, at the end of the run."""

from __future__ import annotations

import pytest

from tests.support.benchmarks import Benchmarks

_BENCHMARKS = pytest.StashKey[Benchmarks]()


@pytest.fixture(scope="session")
def benchmarks(request: pytest.FixtureRequest) -> Benchmarks:
    """The table that is printed at the end: ``benchmarks.compare(name, ours, plain, target=...)`` adds a line to it."""
    return request.config.stash.setdefault(_BENCHMARKS, Benchmarks())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    benchmarks = config.stash.get(_BENCHMARKS, None)
    if benchmarks is not None and benchmarks.figures:
        terminalreporter.section("speed, beside targets and other systems")
        terminalreporter.write_line(str(benchmarks))
