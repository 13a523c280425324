"""The lock by which one server has a ledger, until its process ends; what an owner must not do meanwhile asks for it.

It is a file of its own beside the ledger, which the operating system frees whatever becomes of the server. Sessions of the
owner's own need none of it: they may charge beside a server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpsql.errors import LedgerError, ServerError
from dpsql.ledger.state_files import OWNER_ONLY

try:
    import fcntl
except ImportError:  # no server runs where there is none
    fcntl = None  # type: ignore[assignment]


def take_ledger(ledger: Path) -> int:
    """Take a ledger for this server alone, until its process ends or the descriptor is closed.

    Raises:
        ServerError: another server has it. LedgerError: its folder can't be written.
    """
    try:
        descriptor = os.open(_place_lock(ledger), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, OWNER_ONLY)
    except OSError as error:
        raise LedgerError(f"nothing can be written beside the ledger {ledger}: {error.strerror}.") from None
    if not _lock(descriptor):
        os.close(descriptor)
        raise ServerError(
            f"another server has the ledger {ledger}.",
            hint="one server may serve it; end the other one first.",
        )
    return descriptor


def is_served(ledger: Path) -> bool:
    """Tell whether a server has a ledger now."""
    with _trying(ledger) as free:
        return not free


@contextmanager
def keep_servers_away(ledger: Path) -> Iterator[None]:
    """Let no server take a ledger within the block.

    Raises:
        LedgerError: a server has it.
    """
    with _trying(ledger) as free:
        if not free:
            raise LedgerError(
                f"A server has the ledger {ledger}, and would go on with the file that it opened.",
                hint="stop the server, restore, and start it again.",
            )
        yield


@contextmanager
def _trying(ledger: Path) -> Iterator[bool]:
    """Yield whether no server has the ledger; where none has, none can take it within the block."""
    try:
        descriptor = os.open(_place_lock(ledger), os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # no server of this user ever had it
        yield True
        return
    try:
        yield _lock(descriptor)
    finally:
        os.close(descriptor)


def _place_lock(ledger: Path) -> Path:
    whole = ledger.expanduser().resolve()
    return whole.with_name(f".{whole.name}.served")


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
