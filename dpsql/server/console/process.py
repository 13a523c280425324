"""The process that serves the owner's page and the metrics over HTTP.

    python -m dpsql.server.console.process FRAMES PIPE SOCKET [SOCKET]

The process reads ledgers and files of tokens, opens no data, and parses no statement. It leaves the network before it reads the
first request, so it can't open connections; it only has the sockets that it was given. It ends when the pipe does.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.server.console.app import ANSWER_SECONDS, ConsolePages, LedgerView, make_app
from dpsql.server.frames import Frames
from dpsql.server.isolation import confine, protect_memory

if TYPE_CHECKING:
    from starlette.applications import Starlette

CONNECTION_SECONDS = 15.0
"""Seconds after which a connection without a running request is closed, so that idle ones keep nobody out."""


def make_protocol() -> type[asyncio.Protocol]:
    """Return a protocol of uvicorn's whose connections end soon."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class ShortProtocol(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.loop.call_later(CONNECTION_SECONDS, self._end)

        def _end(self) -> None:
            if not self.transport.is_closing():
                self.shutdown()

    return ShortProtocol


MEMORY_BYTES = 2 << 30
"""Bytes of memory for the process, in addition to mapped libraries."""
_NICE = 10
_IDLE_SECONDS = 5
_MAX_HEAD = 16_384


def _end_with(pipe: int) -> None:
    """End this process as soon as a pipe has no more writer."""
    while os.read(pipe, 1):
        pass
    os._exit(0)


def run_console(frames: int, pipe: int, *listening: int) -> None:
    """Answer browsers and scrapes until the front is gone."""
    confine(MEMORY_BYTES)
    protect_memory()
    os.nice(_NICE)  # analysts' requests come first
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    front = Frames(socket.socket(fileno=frames))
    setup = front.receive(ANSWER_SECONDS).head
    views = [LedgerView(one["name"], Path(one["policy"]), Path(one["ledger"])) for one in setup["policies"]]
    pages = ConsolePages(front, {view.name: view for view in views})
    servers = []
    if setup["page"]:
        servers.append(make_server(make_app(setup, pages)))
    if setup["metrics"] is not None:
        from dpsql.server.console.metrics import keep_certificate, make_metrics_app

        files = setup["metrics"]["files"]
        servers.append(make_server(make_metrics_app(pages, setup["metrics"]["digest"]), files))
        if files:
            keep_certificate(servers[-1].config.ssl, files)
    running = [
        threading.Thread(target=server.run, args=([socket.socket(fileno=number)],), daemon=True)
        for server, number in zip(servers, listening, strict=True)
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def make_server(app: Starlette, files: Sequence[str] = ()) -> Any:
    """Return an HTTP server of uvicorn's; ``files`` are a certificate and its key, if it has TLS."""
    certificate, key = files or (None, None)
    import uvicorn

    config = uvicorn.Config(
        app,
        http=make_protocol(),
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # no proxy may change the client's address
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=_MAX_HEAD,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    config.load()
    return uvicorn.Server(config)


if __name__ == "__main__":
    run_console(*map(int, sys.argv[1:]))
