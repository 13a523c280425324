"""One message to a server and its reply: what arrives is checked, the stop button is passed on, and the answer waited for.

The thread that works reads the reply itself, and the one that waits for it hears a stop. The first one is told to the server,
which answers at its own time what became of the statement; at the second one nobody waits any longer.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from dpsql.client.channel import Channel
from dpsql.errors import Error, Interrupted
from dpsql.interrupts import leave_work, run_apart, telling_stops
from dpsql.wire import Message, ResultReader, WireError, get_field, read_error

if TYPE_CHECKING:
    from dpsql.result import Result

OPEN_SECONDS = 120.0
"""Seconds that a server may take to open a session: it may have to read the owner's files first."""
INTERRUPT_SECONDS = 10.0
"""Seconds that a server may take to hear that a statement should stop, or that a session ends."""
MAX_PAGES = 1000
"""Messages with values in one reply."""
_UNSURE = "SHOW LEDGER says whether the statement was charged."
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass
class Reply:
    """The reply to one message: its results and its values."""

    results: list[Result] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)

    @property
    def value(self) -> dict[str, Any]:
        """The one value that was asked for.

        Raises:
            WireError: there is none.
        """
        if not self.values:
            raise WireError("the server's reply holds no value.")
        return self.values[0]


class Conversation:
    """The messages of one session."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.handle = ""
        """The server's name for the session; empty until it is open."""
        self.stage = ""
        """The stage that the running statement has reached, as the server tells it."""
        self.given: WeakValueDictionary[int, Result] = WeakValueDictionary()
        """The results that the server can be told to keep, by its handles."""

    def ask(
        self, operation: str, head: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Reply:
        """Send a message and wait for the reply; a stop is passed on, and then the reply is waited for.

        Args:
            operation: ``run``, ``explain``, ...
            head: what it needs.
            timeout: seconds after which to give up. A statement takes as long as it takes.

        Raises:
            Error: the one that the server answers, with what was answered before it.
        """
        outcome = run_apart(partial(self._exchange, operation, head, timeout))
        if outcome.leaving is not None:
            raise outcome.leaving
        reply = outcome.get()
        if outcome.stopped:
            raise KeyboardInterrupt
        return reply

    def _exchange(self, operation: str, head: Mapping[str, Any] | None, timeout: float | None) -> Reply:
        """Send a message and read the reply in this thread, which only the thread that waits for it can hear stops for."""
        reply, reader = Reply(), ResultReader()
        message = Message(dict(head or {}))
        try:
            with telling_stops(self._interrupt if self.handle else None, self._explain_leaving):
                arriving = self._channel.call(f"dpsql.{operation}", message, self.handle, timeout)
                for arrived in _read_to_end(arriving):
                    self._take(arrived, reply, reader)
            reply.results = reader.results()
        except Error as error:
            error.answered = error.answered or tuple(reader.finished)
            raise
        finally:
            self.stage = ""
            for head, result in zip(reader.heads, reader.finished, strict=False):
                if isinstance(head.get("handle"), int):
                    self.given[head["handle"]] = result
        return reply

    def close(self) -> None:
        """Tell the server that the session ends, and close the connection."""
        try:
            for _ in self._channel.call("dpsql.close", Message({}), self.handle, INTERRUPT_SECONDS):
                pass
        finally:
            self._channel.close()

    def _take(self, told: Message, reply: Reply, reader: ResultReader) -> None:
        arrived = Message(_clean(told.head), told.payload)
        kind = arrived.head.get("kind")
        if kind in ("result", "rows"):
            reader.take(arrived)
        elif kind == "value":
            if len(reply.values) >= MAX_PAGES:
                raise WireError(
                    "the server's reply is too long.", hint="ask for the last ones alone: ledger(1000)."
                )
            reply.values.append(arrived.head)
        elif kind == "stage":
            self.stage = get_field(arrived.head, "stage", str)[:40]
        elif kind == "error":
            raise read_error(arrived)
        else:
            raise WireError("the server's reply holds something else than an answer.")

    def _interrupt(self) -> None:
        """Tell the server to stop what runs. Whether that was in time, the reply says."""

        def send() -> None:
            for _ in self._channel.call("dpsql.interrupt", Message({}), self.handle, INTERRUPT_SECONDS):
                pass

        leave_work(send)

    def _explain_leaving(self) -> BaseException:
        """Return the error of who does not wait for the reply."""
        if not self.handle:
            return KeyboardInterrupt()  # there is no session yet, and nothing that could be charged
        return Interrupted(
            "left while the server was still at it: the statement may be charged.",
            hint="SHOW LEDGER says whether it was; its answer is stored then, and free.",
        )


def _read_to_end(arriving: Iterator[Message]) -> Iterator[Message]:
    """Yield the messages of a reply up to its end. What the transport still says then is not waited for.

    Raises:
        WireError: it broke off.
    """
    for arrived in arriving:
        if arrived.head.get("kind") == "end":
            leave_work(partial(deque, arriving, maxlen=0))
            return
        yield arrived
    raise WireError("the server's reply broke off.", hint=_UNSURE)


def _clean(value: Any) -> Any:
    """Return JSON values whose texts hold no control or direction characters: no server moves an analyst's cursor."""
    if isinstance(value, str):
        return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return {key: _clean(item) for key, item in value.items()} if isinstance(value, dict) else value
