"""For every test: the register of ledgers is a throwaway one, also in the processes that a test starts."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def state_apart(tmp_path_factory: pytest.TempPathFactory) -> None:
    patch = pytest.MonkeyPatch()
    patch.setenv("DPSQL_STATE", str(tmp_path_factory.mktemp("state")))
