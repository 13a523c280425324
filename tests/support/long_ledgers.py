"""Ledgers of many statements, written in one transaction, with the chain that the ledger itself would have made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import islice
from pathlib import Path

from dpsql.ledger import log_file
from dpsql.ledger.accounts import Account
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.log_file import Row, Said, hash_row, write_json
from dpsql.policy.model import Policy
from dpsql.privacy.events import DiscreteLaplace, Event

BEGAN = datetime(2024, 1, 1, tzinfo=UTC)
ANALYSTS = ("alice", "bob", "carol")
_PIECE = 20_000


def event_of(number: int) -> Event:
    """Return what a statement costs: one of a hundred prices, as in a notebook that repeats itself."""
    return DiscreteLaplace(Fraction(number % 97 + 1, 10**6), 1000)


def fill_ledger(
    path: Path, policy: Policy, statements: int, dataset: str = "d", *, sealed: bool = True
) -> None:
    """Make a ledger of settled statements, a thousand a day, of three analysts in turn.

    With ``sealed`` a checkpoint is its last row, whose sums are the prices times how often each was paid.
    """
    Ledger.open(path, policy, dataset).close()
    connection = log_file.connect_to_ledger(path)
    try:
        connection.execute("BEGIN IMMEDIATE")
        account = Account()
        account.apply(log_file.verify_rows(log_file.read_rows_after(connection, 0)))
        last = Row(account.seq, "", 0, "", "", account.head)
        made = _rows(last, statements)
        while piece := list(islice(made, _PIECE)):
            connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)", [row for row, _ in piece])
            said = [(row.seq, *said) for row, said in piece if said is not None]
            connection.executemany("INSERT INTO said VALUES (?, ?, ?)", said)
            last = piece[-1][0]
        if sealed:
            log_file.append_row(connection, _seal(account, last, statements))
        connection.execute("COMMIT")
    finally:
        connection.close()


def _rows(last: Row, statements: int) -> Iterator[tuple[Row, Said | None]]:
    seq, head = last.seq, last.hash
    events = [event_of(number).to_json() for number in range(97)]
    settled = [write_json({"outcome": "released", "event": event}) for event in events]
    for number in range(1, statements + 1):
        at = (BEGAN + timedelta(seconds=86.4 * number)).isoformat(timespec="microseconds")
        said = Said(
            f"{number:032x}", write_json({"text": f"SELECT COUNT(*) FROM visits WHERE day = {number}"})
        )
        who = ANALYSTS[number % len(ANALYSTS)]
        body = write_json(
            {"analyst": who, "user": "", "process": "", "event": events[number % 97], "said": said.digest}
        )
        for kind, text, apart in (("reserve", body, said), ("settle", settled[number % 97], None)):
            seq += 1
            head = hash_row(head, seq, kind, number, at, text)
            yield Row(seq, kind, number, at, text, head), apart


def _seal(account: Account, last: Row, statements: int) -> Row:
    account.filters(None)
    account.count, account._charged, account._last = statements, statements > 0, last.at
    counts = Counter(number % 97 for number in range(1, statements + 1))
    for state in (state for states in account.sums.values() for state in states):
        for number, times in counts.items():
            state.base = state.filter.add(state.base, event_of(number), times)
    return log_file.link_row(last.hash, last.seq + 1, "checkpoint", 0, last.at, account.seal()[0])
