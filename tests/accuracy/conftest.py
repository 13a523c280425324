"""One table of all that was measured, at the end of the run."""

from __future__ import annotations

import pytest

from tests.support.accuracy import Table

_TABLE = pytest.StashKey[Table]()


@pytest.fixture(scope="session")
def accuracy(request: pytest.FixtureRequest) -> Table:
    """The table that is printed at the end: ``accuracy.check(name, errors, before=...)`` adds a line to it."""
    return request.config.stash.setdefault(_TABLE, Table())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    table = config.stash.get(_TABLE, None)
    if table is not None and table.lines:
        terminalreporter.section("accuracy")
        terminalreporter.write_line(str(table))
