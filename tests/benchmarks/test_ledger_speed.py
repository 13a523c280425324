"""What a statement costs in the ledger after ten thousand earlier ones: it prints, and does not gate."""

from __future__ import annotations

import os
import statistics
import time
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.ledger.ledger import Ledger
from dpsql.privacy.events import DiscreteLaplace, Event
from tests.support.ledgers import policy_of

EARLIER = 10_000


def event(i: int) -> Event:
    return DiscreteLaplace(Fraction(i % 97 + 1, 10**6), 1000)


def fill(path: Path, accountant: str) -> None:
    """Ten thousand settled statements, in one transaction (the ledger itself takes one for each)."""
    ledger = Ledger.open(path, policy_of("1000", "1e-6", accountant), "d")
    with ledger, ledger._book.writing() as (write, _):
        for i in range(EARLIER):
            told = {"analyst": "", "user": "", "text": f"SELECT {i}", "process": "", "key": str(i)}
            write("reserve", i + 1, told | {"event": event(i).to_json()})
            write("settle", i + 1, {"outcome": "released", "event": event(i).to_json(), "release": None})


@pytest.mark.benchmark
@pytest.mark.parametrize("accountant", ["basic", "zcdp", "gdp"])
def test_the_next_statement(tmp_path: Path, accountant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPSQL_STATE", str(tmp_path / "state"))
    path = tmp_path / "a.ledger"
    fill(path, accountant)
    begin = time.perf_counter()
    ledger = Ledger.open(path, policy_of("1000", "1e-6", accountant), "d")
    opened = time.perf_counter() - begin
    paid, priced, synced = [], [], []
    for i in range(100):
        begin = time.perf_counter()
        ticket = ledger.reserve(event(i), "SELECT 1", str(i))
        ledger.settle(ticket, ticket.event, b"x" * 2000, "released")
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
    assert len(paid) == 100
