"""Fixtures of a served clinic: its data, a copy of them for each test, and one server without a grid for a file's tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.served import ServerProcess, write_data, write_policy


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with the clinic's data."""
    made = tmp_path_factory.mktemp("clinic")
    write_data(made)
    return made


@pytest.fixture
def folder(data: Path, tmp_path: Path) -> Path:
    """Give a test a folder of its own, with the data."""
    for name in ("visits.parquet", "wards.parquet"):
        shutil.copy(data / name, tmp_path / name)
    return tmp_path


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[ServerProcess]:
    """Start a server without a grid, for ada and bob."""
    limits = "answer_times = []\nmax_requests_per_minute = 1000000"
    with ServerProcess(write_policy(data, {"ada": 300, "bob": 300}, limits)) as running:
        yield running
