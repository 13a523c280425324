"""One message to a server and its reply: the reply is checked, and a stop is passed on.

A worker thread reads the reply, and the calling thread hears stops. The first stop is sent to the server, which
answers at a public time how the statement ended; a second stop leaves without the reply.
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
from dpsql.client.wire import Message, ResultReader, WireError, get_field, read_error
from dpsql.errors import Error, Interrupted
from dpsql.interrupts import leave_work, run_apart, telling_stops

if TYPE_CHECKING:
    from dpsql.session.result import Result

OPEN_SECONDS = 120.0
"""Greatest wait for a session to open: the server may read the owner's files first."""
INTERRUPT_SECONDS = 10.0
"""Greatest wait for a server to take a stop or the end of a session."""
MAX_PAGES = 1000
"""Greatest number of values in one reply."""
_UNSURE = "SHOW LEDGER says whether the statement was charged."
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass
class Reply:
    """The reply to one message: results and values."""

    results: list[Result] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)

    @property
    def value(self) -> dict[str, Any]:
        """The only value of the reply.

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
        """The server's name of the session; empty until it is open."""
        self.stage = ""
        """The stage of the running statement, from the server."""
        self.given: WeakValueDictionary[int, Result] = WeakValueDictionary()
        """Results that the server can keep, by its handles."""

    def ask(
        self, operation: str, head: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Reply:
        """Send a message and wait for the reply, even after a first stop, which is passed on.

        Args:
            operation: ``run``, ``explain``, ...
            head: its arguments.
            timeout: greatest wait in seconds; a statement has none.

        Raises:
            Error: the server's error, with the results before it.
        """
        outcome = run_apart(partial(self._exchange, operation, head, timeout))
        if outcome.leaving is not None:
            raise outcome.leaving
        reply = outcome.get()
        if outcome.stopped:
            raise KeyboardInterrupt
        return reply

    def _exchange(self, operation: str, head: Mapping[str, Any] | None, timeout: float | None) -> Reply:
        """Send a message and read the reply in this thread, while the calling thread listens for stops."""
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
        """End the session on the server, and close the connection."""
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
        """Ask the server to stop the running statement. The reply says whether that was in time."""

        def send() -> None:
            for _ in self._channel.call("dpsql.interrupt", Message({}), self.handle, INTERRUPT_SECONDS):
                pass

        leave_work(send)

    def _explain_leaving(self) -> BaseException:
        """Return the error for leaving without the reply."""
        if not self.handle:
            return KeyboardInterrupt()  # there is no session yet, so nothing is charged
        return Interrupted(
            "left while the server was still at it: the statement may be charged.",
            hint="SHOW LEDGER says whether it was; its answer is stored then, and free.",
        )


def _read_to_end(arriving: Iterator[Message]) -> Iterator[Message]:
    """Yield the messages of a reply up to its end, without waiting for the transport's own end.

    Raises:
        WireError: the reply broke off.
    """
    for arrived in arriving:
        if arrived.head.get("kind") == "end":
            leave_work(partial(deque, arriving, maxlen=0))
            return
        yield arrived
    raise WireError("the server's reply broke off.", hint=_UNSURE)


def _clean(value: Any) -> Any:
    """Return JSON values with control and direction characters replaced, so that no server moves an analyst's cursor."""
    if isinstance(value, str):
        return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return {key: _clean(item) for key, item in value.items()} if isinstance(value, dict) else value
