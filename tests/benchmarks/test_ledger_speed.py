"""The time of a statement in the ledger after ten thousand earlier ones: it prints, and does not gate."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import pytest

from dpsql.ledger.ledger import KeptReleases, Ledger
from tests.support.benchmarks import Benchmarks, Figure
from tests.support.ledgers import policy_of
from tests.support.long_ledgers import event_of, fill_ledger

EARLIER = 10_000


@pytest.mark.benchmark
@pytest.mark.parametrize("accountant", ["basic", "zcdp", "gdp"])
def test_the_next_statement(
    tmp_path: Path, accountant: str, monkeypatch: pytest.MonkeyPatch, benchmarks: Benchmarks
) -> None:
    monkeypatch.setenv("DPSQL_STATE", str(tmp_path / "state"))
    path = tmp_path / "a.ledger"
    fill_ledger(path, policy_of("1000", "1e-6", accountant), EARLIER)
    begin = time.perf_counter()
    ledger = Ledger.open(path, policy_of("1000", "1e-6", accountant), "d")
    opened = time.perf_counter() - begin
    paid, priced, synced = [], [], []
    for i in range(100):
        begin = time.perf_counter()
        ticket = ledger.reserve(event_of(i), "SELECT 1")
        ledger.settle(ticket, ticket.event, KeptReleases({str(i): b"x" * 2000}), "released")
        paid.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        ledger.state()
        priced.append(time.perf_counter() - begin)
        with (tmp_path / "one-write").open("wb") as plain:  # what the disk alone takes for one durable write
            plain.write(b"x" * 4096)
            plain.flush()
            begin = time.perf_counter()
            os.fsync(plain.fileno())
            synced.append(time.perf_counter() - begin)
    ledger.close()
    pay, price, sync = (1000 * statistics.median(times) for times in (paid, priced, synced))
    print(
        f"\n{accountant}: after {EARLIER} statements, reserve and settle {pay:.2f} ms ({sync:.2f} ms is one "
        f"fsync of this disk), price of the next {price:.3f} ms (target 5), open {opened:.2f} s"
    )
    benchmarks.note(Figure(f"W10 price of the next after {EARLIER:,}, {accountant}", price, 5, unit="ms"))
    assert len(paid) == 100
