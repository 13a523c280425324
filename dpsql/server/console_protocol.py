"""HTTP of the owner's page: connections are few and short-lived until a browser has sent its cookie."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from dpsql.server.arrivals import LOGIN_SECONDS, Arrivals, write_peer

_LET_IN: ContextVar[Callable[[], None]] = ContextVar("let_in", default=lambda: None)
"""Called once the browser is known that sent the request."""


def make_protocol(arrivals: Arrivals) -> type[asyncio.Protocol]:
    """Return a protocol of uvicorn's whose connections count as arrivals until their browser is known."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class BoundedProtocol(H11Protocol):
        _slow: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            peer = "unix:" if self.client is None else write_peer(self.client)
            self._slow = self.loop.call_later(LOGIN_SECONDS, self._end_slow)
            arrivals.add(self, peer, transport.abort)

        def data_received(self, data: bytes) -> None:
            _LET_IN.set(self.let_in)
            super().data_received(data)

        def connection_lost(self, exc: Exception | None) -> None:
            self.let_in()
            super().connection_lost(exc)

        def let_in(self) -> None:
            if self._slow is not None:
                self._slow.cancel()
                self._slow = None
            arrivals.let_in(self)

        def _end_slow(self) -> None:
            arrivals.leave(self)
            self.transport.abort()

    return BoundedProtocol


def let_browser_in() -> None:
    """Note that the browser is known which sent the request that is answered now."""
    _LET_IN.get()()
