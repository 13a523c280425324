"""For every test: the register of ledgers is a throwaway one, also in the processes that a test starts."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# The default run is the same everywhere; HYPOTHESIS_PROFILE=random looks further, for as long as one likes.
settings.register_profile("steady", derandomize=True, database=None)
settings.register_profile("random", print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.fixture(autouse=True, scope="session")
def state_apart(tmp_path_factory: pytest.TempPathFactory) -> None:
    patch = pytest.MonkeyPatch()
    patch.setenv("DPSQL_STATE", str(tmp_path_factory.mktemp("state")))
