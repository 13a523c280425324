"""Statements of a ledger, read from their rows: text, analyst, outcome and charge.

They are read page by page through an index, and no charge depends on them: that takes the sums alone (see
:mod:`dpsql.ledger.accounts`). Each row is checked against its own hash and the hash before it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import Any

from dpsql.ledger.log_file import START, Row, Said, check_said, damaged_error, read_body, verify_rows
from dpsql.privacy.events import Event
from dpsql.privacy.records import Entry, format_local_time

__all__ = [
    "DEBIT_ALONE",
    "FORGOTTEN",
    "OUTCOMES",
    "WRITTEN_OFF",
    "Entry",
    "format_local_time",
    "read_entries",
    "read_event",
    "read_one_entry",
]

OUTCOMES = ("released", "failed", "interrupted")
"""Outcomes of a reservation. An unfinished one is shown as ``open``, or ``unsettled`` if its process is gone."""
WRITTEN_OFF = "written off"
"""The outcome of a charge that the owner wrote off while restoring a backup."""
DEBIT_ALONE = "debited"
"""The outcome of a statement without noise of its own: only an analyst's share was charged, for stored answers of others."""
FORGOTTEN = "(forgotten)"
"""Replaces a text that the owner had forgotten."""

_PAGE = 2000


def read_event(body: Mapping[str, Any]) -> Event:
    """Read an event from a row; ValueError if it costs less than nothing."""
    return _read_event(json.dumps(body, sort_keys=True))


@lru_cache(maxsize=4096)
def _read_event(text: str) -> Event:
    event = Event.from_json(json.loads(text))
    if min(event.basic) < 0 or event.basic[1] > 1:
        raise ValueError("an event can't cost less than nothing")
    return event


_ROWS = """
    SELECT log.seq, log.kind, log.statement, log.at, log.body, log.hash, before.hash, said.salt, said.content
    FROM log LEFT JOIN log AS before ON before.seq = log.seq - 1 LEFT JOIN said ON said.seq = log.seq
    WHERE log.statement BETWEEN ? AND ? ORDER BY log.statement, log.seq"""


def read_entries(
    connection: sqlite3.Connection, first: int, last: int, forgotten: str = ""
) -> Iterator[Entry]:
    """Yield the statements from number ``first`` to ``last``, with one page of them in memory.

    ``forgotten`` is the time before which the owner blanked texts. LedgerError if a row is not valid, or does not fit its hash.
    """
    for start in range(max(1, first), last + 1, _PAGE):
        rows = connection.execute(_ROWS, (start, min(last, start + _PAGE - 1))).fetchall()
        found = [_read_row(raw, forgotten) for raw in rows]
        for number, lines in groupby(found, key=lambda line: line[0].statement):
            try:
                yield _fold(number, list(lines))
            except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
                raise damaged_error(f"statement {number} can't be read") from None


def read_one_entry(connection: sqlite3.Connection, number: int, forgotten: str = "") -> Entry | None:
    """Return one statement; None if there is no such number."""
    return next(read_entries(connection, number, number, forgotten), None) if number > 0 else None


_Line = tuple[Row, dict[str, Any], dict[str, Any] | None]
"""A row, its body, and its content outside the row; None if there is none or it was forgotten."""


def _read_row(raw: tuple[Any, ...], forgotten: str) -> _Line:
    head = START if raw[0] == 1 else str(raw[6])
    (row,) = verify_rows([raw[:6]], int(raw[0]) - 1, head)
    body = read_body(row)
    said = None if raw[7] is None else Said(*raw[7:])
    return row, body, check_said(row, body, said, forgotten) if "said" in body else None


def _fold(number: int, lines: list[_Line]) -> Entry:
    """Return the statement that its rows add up to."""
    (row, body, said), *rest = lines
    if row.kind not in _BEGIN:
        raise ValueError("a statement that did not begin")
    known: dict[str, Any] = {"text": FORGOTTEN} if said is None else said
    event = None if body["event"] is None else read_event(body["event"])
    told = [body["analyst"], known["text"], body["user"], known.get("reason", ""), known.get("key", "")]
    if not all(isinstance(value, str) for value in told):
        raise TypeError("text expected")
    analyst, text, user, reason, key = told
    outcome, charged = _BEGIN[row.kind], None if row.kind in ("refuse", "debit") else event
    process = str(body.get("process", ""))
    entry = Entry(number, row.at, analyst, text, outcome, charged, event, reason, key, user, process)
    if row.kind == "debit":
        entry = _note_debit(replace(entry, asked=None), event, said)
    for row, body, said in rest:
        if entry.outcome != "reserved":
            raise ValueError("settled twice")
        event = read_event(body["event"])
        if row.kind == "progress":
            entry = replace(entry, progress=event)
            continue
        if row.kind == "debit":
            entry = _note_debit(entry, event, said)
            continue
        known = said or {}
        entry = replace(
            entry, event=event, outcome=body["outcome"], release=known.get("release"),
            blocks=dict(known.get("blocks", {})),
            parts={key: read_event(part) for key, part in known.get("parts", {}).items()},
        )  # fmt: skip
    return entry


def _note_debit(entry: Entry, event: Event | None, said: dict[str, Any] | None) -> Entry:
    return replace(entry, debit=event, debited=dict((said or {}).get("blocks", {})))


_BEGIN = {"reserve": "reserved", "refuse": "refused", "spend": WRITTEN_OFF, "debit": DEBIT_ALONE}
