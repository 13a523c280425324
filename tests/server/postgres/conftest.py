"""One server for all tests of PostgreSQL's protocol: its port is theirs, and its ledger has room for all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.clinic import BUDGET
from tests.support.hostile_clients import OTHER
from tests.support.postgres import PostgresServer
from tests.support.served import write_data, write_policy


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    folder = tmp_path_factory.mktemp("postgres")
    write_data(folder)
    limits = "answer_times = []\nmax_requests_per_minute = 10000000\nmax_sessions = 10000\nmax_statement_bytes = 20000"
    with PostgresServer(write_policy(folder, {"ada": 1e12, "bob": 1, OTHER: 1}, limits, BUDGET)) as running:
        yield running
