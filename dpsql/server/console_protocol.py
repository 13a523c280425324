"""HTTP of the owner's page: connections are few and short-lived until a browser has sent its cookie."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from dpsql.server.arrivals import LOGIN_SECONDS, Arrivals, write_peer

_CURRENT: ContextVar[BoundedProtocol | None] = ContextVar("connection", default=None)
"""The connection that a request came over."""


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 over one connection, which counts as an arrival until its browser is known."""

    arrivals: ClassVar[Arrivals]
    """The bounds, of all connections."""
    _slow: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Count the connection, and give it some seconds."""
        super().connection_made(transport)
        peer = "unix:" if self.client is None else write_peer(self.client)
        self._slow = self.loop.call_later(LOGIN_SECONDS, self._end_slow)
        self.arrivals.add(self, peer, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Take bytes; a request in them is of this connection."""
        _CURRENT.set(self)
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection no more."""
        self._end_count()
        super().connection_lost(exc)

    def let_in(self) -> None:
        """Note that its browser is known."""
        self._end_count()

    def _end_count(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None
        self.arrivals.let_in(self)

    def _end_slow(self) -> None:
        self.arrivals.leave(self)
        self.transport.abort()


def let_browser_in() -> None:
    """Note that the browser is known which sent the request that is answered now."""
    connection = _CURRENT.get()
    if connection is not None:
        connection.let_in()
