"""The process that writes the owner's page.

    python -m dpsql.server.console_process FRAMES PIPE SOCKET

It reads the ledgers and the files of tokens, opens no data, and parses no statement. It can make no connection: it leaves the
network first, and keeps the socket that it was given. When the pipe ends, since the front is gone, so does this process.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

from dpsql.server.arrivals import Arrivals
from dpsql.server.console_app import FrontLink
from dpsql.server.frames import Frames
from dpsql.server.isolation import confine, protect_memory

MEMORY_BYTES = 2 << 30
"""Memory that the process may use, beside what libraries map."""
_NICE = 10
MAX_CONNECTIONS = 64
_IDLE_SECONDS = 5
_MAX_HEAD = 16_384


def _end_with(pipe: int) -> None:
    """End this process as soon as a pipe has no more writer."""
    while os.read(pipe, 1):
        pass
    os._exit(0)


def run_console(frames: int, pipe: int, listening: int) -> None:
    """Answer browsers until the front is gone."""
    confine(MEMORY_BYTES)
    protect_memory()
    os.nice(_NICE)  # whoever asks the front comes first
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    front = FrontLink(Frames(socket.socket(fileno=frames)))
    setup = front.receive_setup()
    import uvicorn

    from dpsql.server.console_app import make_app
    from dpsql.server.console_protocol import make_protocol

    config = uvicorn.Config(
        make_app(front, setup),
        http=make_protocol(Arrivals(front.tell_dropped, "owner's page")),
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nobody else says who asks, and where
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=_MAX_HEAD,
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=listening)])


if __name__ == "__main__":
    run_console(*map(int, sys.argv[1:]))
