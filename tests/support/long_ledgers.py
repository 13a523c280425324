"""Ledgers of many statements, written in one transaction, with the chain that the ledger itself would have made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from itertools import islice
from pathlib import Path

from dpsql.ledger import log_file
from dpsql.ledger.accounts import Account
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.log_file import Row, Said, hash_row, write_json
from dpsql.policy.model import Policy
from dpsql.privacy.events import DiscreteLaplace, Event
from dpsql.privacy.periods import date_event

BEGAN = datetime(2024, 1, 1, tzinfo=UTC)
PERIODS_BEGIN = date(2015, 1, 1)
ANALYSTS = ("alice", "bob", "carol")
_PIECE = 20_000


def event_of(number: int) -> Event:
    """Return what a statement costs: one of a hundred prices, as in a notebook that repeats itself."""
    return DiscreteLaplace(Fraction(number % 97 + 1, 10**6), 1000)


def fill_ledger(
    path: Path, policy: Policy, statements: int, dataset: str = "d", *, sealed: bool = True, periods: int = 0
) -> None:
    """Make a ledger of settled statements, a thousand a day, of three analysts in turn.

    With ``sealed`` a checkpoint is its last row, whose sums are the prices times how often each was paid. With ``periods``
    each statement is paid by one of so many days, in turn.
    """
    Ledger.open(path, policy, dataset).close()
    connection = log_file.connect_to_ledger(path)
    try:
        connection.execute("BEGIN IMMEDIATE")
        account = Account()
        account.apply(log_file.verify_rows(log_file.read_rows_after(connection, 0)))
        last = Row(account.seq, "", 0, "", "", account.head)
        made = _rows(last, statements, periods)
        while piece := list(islice(made, _PIECE)):
            connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)", [row for row, _ in piece])
            said = [(row.seq, *said) for row, said in piece if said is not None]
            connection.executemany("INSERT INTO said VALUES (?, ?, ?)", said)
            last = piece[-1][0]
        if sealed:
            row, content = _seal(account, last, statements, periods)
            log_file.append_row(connection, row, content)
        connection.execute("COMMIT")
    finally:
        connection.close()


def _event(number: int, periods: int) -> Event:
    day = PERIODS_BEGIN.toordinal() + number % max(periods, 1)
    return date_event(event_of(number % 97), ((day, day + 1),) if periods else None)


def _rows(last: Row, statements: int, periods: int) -> Iterator[tuple[Row, Said | None]]:
    seq, head = last.seq, last.hash
    for number in range(1, statements + 1):
        at = (BEGAN + timedelta(seconds=86.4 * number)).isoformat(timespec="microseconds")
        said = Said(
            f"{number:032x}", write_json({"text": f"SELECT COUNT(*) FROM visits WHERE day = {number}"})
        )
        who, event = ANALYSTS[number % len(ANALYSTS)], _event(number, periods).to_json()
        body = write_json({"analyst": who, "user": "", "process": "", "event": event, "said": said.digest})
        settled = write_json({"outcome": "released", "event": event})
        for kind, text, apart in (("reserve", body, said), ("settle", settled, None)):
            seq += 1
            head = hash_row(head, seq, kind, number, at, text)
            yield Row(seq, kind, number, at, text, head), apart


def _seal(account: Account, last: Row, statements: int, periods: int) -> tuple[Row, Said | None]:
    account.filters(None)
    account.count, account._charged, account._last = statements, statements > 0, last.at
    counts = Counter(number % 97 for number in range(1, statements + 1))
    for state in (state for states in account.sums.values() for state in states):
        if periods:
            for number in range(1, statements + 1):
                state.charge(_event(number, periods))
            continue
        for number, times in counts.items():
            state.base = state.filter.add(state.base, event_of(number), times)
    body, content = account.seal()
    said = None if content is None else Said.of(content)
    body |= {} if said is None else {"said": said.digest}
    return log_file.link_row(last.hash, last.seq + 1, "checkpoint", 0, last.at, body), said
