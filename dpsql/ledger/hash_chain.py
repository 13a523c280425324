"""Rows of the log, and the chain of hashes that holds them together.

The log only grows: a reservation, its settlement and a refusal are rows of their own, and nothing is ever
rewritten. Each row's hash covers the row and the hash before it, so a changed, swapped, inserted or missing
row shows. The chain has no secret key: it shows accidents and clumsy edits, not the work of somebody who
recomputes all of it (the witness in :mod:`dpsql.ledger.rollback_detection` makes that harder; the owner's backups settle
it).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from dpsql.errors import LedgerError

START = "0" * 64
"""The hash before the first row."""

KINDS = ("open", "policy", "adopt", "reserve", "progress", "settle", "refuse", "notice")


class Row(NamedTuple):
    """One row of the log: its number, what it is, the statement it speaks of (0: none), when, and what it
    says.
    """

    seq: int
    kind: str
    statement: int
    at: str
    body: str
    hash: str


def digest(previous: str, seq: int, kind: str, statement: int, at: str, body: str) -> str:
    """Hash of a row that follows the row with hash ``previous``."""
    text = json.dumps([previous, seq, kind, statement, at, body], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def link(previous: str, seq: int, kind: str, statement: int, at: str, body: dict[str, Any]) -> Row:
    """A new row, chained to ``previous``."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return Row(seq, kind, statement, at, text, digest(previous, seq, kind, statement, at, text))


def verified(rows: Iterable[tuple[object, ...]], seq: int = 0, head: str = START) -> list[Row]:
    """The rows that follow row ``seq`` with hash ``head``, when they do.

    Raises:
        LedgerError: a row is missing, out of place, of the wrong type, or does not fit its hash.
    """
    found = []
    for raw in rows:
        row = _typed(raw, seq + 1)
        if row.hash != digest(head, *row[:5]):
            raise damaged(f"row {row.seq} does not fit its hash")
        found.append(row)
        seq, head = row.seq, row.hash
    return found


def says(row: Row) -> dict[str, Any]:
    """The body of a row as a dictionary. NaN and infinities are not JSON and are refused."""
    try:
        body = json.loads(row.body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise damaged(f"row {row.seq} can't be read")
    return body


def damaged(what: str) -> LedgerError:
    """The error for a ledger that can't be trusted any more."""
    return LedgerError(
        f"The ledger was damaged or changed by hand: {what}.",
        hint="restore the ledger from a backup; nothing can be charged to this one.",
    )


def _typed(raw: tuple[object, ...], expected: int) -> Row:
    if tuple(map(type, raw)) != (int, str, int, str, str, str):
        raise damaged(f"row {expected} is malformed")
    row = Row(*raw)  # type: ignore[arg-type]  # the types were just checked
    if row.seq != expected:
        raise damaged(f"row {expected} is missing")
    if row.kind not in KINDS or row.statement < 0:
        raise damaged(f"row {expected} is malformed")
    return row


def _no_constant(name: str) -> object:
    raise ValueError(name)
