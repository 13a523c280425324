"""The process that serves the owner's page and the metrics over HTTP.

    python -m dpsql.server.console.process FRAMES PIPE SOCKET [SOCKET]

The process reads ledgers and files of tokens, opens no data, and parses no statement. It leaves the network before it reads the
first request, so it can't open connections; it only has the sockets that it was given. It ends when the pipe does.

Figures for Prometheus are the state of the server, the public sums of the ledger, and the days to the end of tokens:

    GET /metrics        with the token of the owner's file, unless it is a Unix socket
    GET /healthz        ``ok`` while the server answers and each ledger can be read

No figure is about private data or an answer: a charge is in the ledger from its public time on, and a request ends at one.
Times, rows, memory and processor time of requests are missing for that reason. The free disk is a power of two, since spilled
rows take space, too.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dpsql.errors import Error, ServerError
from dpsql.server.connections import TlsFiles
from dpsql.server.console.app import ANSWER_SECONDS, AnalystView, ConsolePages, LedgerView, make_app
from dpsql.server.frames import Frames
from dpsql.server.isolation import confine, protect_memory

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

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


# -- figures for Prometheus ---------------------------------------------------------------------------------------------

_DAY = 86_400.0
_RENEW_SECONDS = 60.0
_GAUGES = {
    "sessions": "Open sessions.",
    "running_requests": "Requests that a worker answers now.",
    "waiting_requests": "Requests that wait for their turn.",
    "overruns": "Statements of the last hour that took longer than the last answer time.",
    "failures": "Statements that failed after payment, since the analyst was resumed.",
    "paused": "1 if the analyst is paused.",
    "token_days_left": "Days until the token expires.",
    "epsilon_left": "The largest epsilon of one more statement.",
    "epsilon_limit": "The epsilon of the share; without an analyst, of the whole.",
    "budget_left_ratio": "The part of the share that is left, from 0 to 1, in any currency; without an analyst, of the whole.",
}
"""The figures by policy and analyst, with their help."""


class LedgerCollector(Collector):
    """Makes the figures at each scrape."""

    def __init__(self, pages: ConsolePages) -> None:
        self._pages = pages

    def collect(self) -> Iterable[Metric]:
        """Yield the figures."""
        live = self._pages.ask_live()
        by_analyst = {
            name: GaugeMetricFamily(f"dpsql_{name}", help, labels=("policy", "analyst"))
            for name, help in _GAUGES.items()
        }
        statements = CounterMetricFamily(
            "dpsql_statements", "Statements in the ledger.", labels=("policy", "analyst", "outcome")
        )
        readable = GaugeMetricFamily("dpsql_ledger_up", "1 if the ledger can be read.", labels=("policy",))
        disk = GaugeMetricFamily(
            "dpsql_ledger_disk_free_bytes",
            "Free space for the ledger, rounded down to a power of two.",
            labels=("policy",),
        )
        for one in live["policies"]:
            name = one["name"]
            view = self._pages.views[name]
            disk.add_metric((name,), find_free_space(view.path.parent))
            try:
                whole = view.open(one["readings"]).state()
                analysts = view.list_analysts(one["queues"])
            except Error:
                readable.add_metric((name,), 0)
                continue
            readable.add_metric((name,), 1)
            for who, state in [("", whole.whole or whole), *((one.name, one.share) for one in analysts)]:
                if state is not None:
                    by_analyst["epsilon_left"].add_metric((name, who), float(state.left_epsilon))
                    by_analyst["epsilon_limit"].add_metric((name, who), float(state.limit_epsilon))
                    by_analyst["budget_left_ratio"].add_metric((name, who), float(1 - state.share))
            for analyst in analysts:
                statements.add_metric((name, analyst.name, "charged"), analyst.statements)
                statements.add_metric((name, analyst.name, "refused"), analyst.refused)
                for figure, value in _list_figures(analyst).items():
                    by_analyst[figure].add_metric((name, analyst.name), value)
        yield from (*by_analyst.values(), statements, readable, disk)
        events = CounterMetricFamily("dpsql_events", "Lines of the log.", labels=("event",))
        for event, count in live["counts"].items():
            events.add_metric((event,), count)
        certificates = GaugeMetricFamily(
            "dpsql_certificate_days_left", "Days until a certificate expires.", labels=("certificate",)
        )
        for name, end in live["certificates"].items():
            certificates.add_metric((name,), count_days(end))
        yield from (events, certificates)


def _list_figures(analyst: AnalystView) -> dict[str, float]:
    """Return the figures of one analyst's queue and token."""
    calls = analyst.queue.get("calls", [])
    waiting = sum(call["stage"] == "waits" for call in calls)
    figures: dict[str, float] = {
        "sessions": analyst.queue.get("sessions", 0),
        "running_requests": len(calls) - waiting,
        "waiting_requests": waiting,
        "overruns": analyst.queue.get("overruns", 0),
        "failures": analyst.queue.get("failures", 0),
    }
    if analyst.token is not None:
        figures["paused"] = bool(analyst.token.paused)
        figures["token_days_left"] = count_days(analyst.token.expires)
    return figures


def count_days(end: str) -> float:
    """Return the days until a time in ISO 8601; negative after it."""
    return (datetime.fromisoformat(end) - datetime.now(UTC)).total_seconds() / _DAY


def find_free_space(folder: Path) -> float:
    """Return the free bytes of a folder's disk, rounded down to a power of two; 0 if unknown."""
    with suppress(OSError):
        found = os.statvfs(folder)
        free = found.f_bavail * found.f_frsize
        return float(1 << free.bit_length() >> 1)
    return 0.0


def make_metrics_app(pages: ConsolePages, digest: str) -> Starlette:
    """Return the application; ``digest``: the SHA-256 of the token that a scrape needs (empty: none)."""
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    registry = CollectorRegistry(auto_describe=False)
    registry.register(LedgerCollector(pages))

    def show(request: Request) -> Response:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        good = hmac.compare_digest(hashlib.sha256(token.strip().encode(errors="replace")).hexdigest(), digest)
        if digest and not (good and scheme.lower() == "bearer"):
            return PlainTextResponse(
                "This needs the token of --metrics-token.", 401, {"WWW-Authenticate": "Bearer"}
            )
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    def tell_health(request: Request) -> Response:
        try:
            for one in pages.ask_live()["policies"]:
                pages.views[one["name"]].open(one["readings"]).state()
        except Error:
            return PlainTextResponse("a ledger can't be read", 503)
        return PlainTextResponse("ok")

    return Starlette(routes=[Route("/metrics", show), Route("/healthz", tell_health)])


def keep_certificate(context: ssl.SSLContext, files: Sequence[str]) -> None:
    """Read a context's certificate again now and then, in a thread, and keep the old one if the files can't be used."""

    def work() -> None:
        while True:
            time.sleep(_RENEW_SECONDS)
            with suppress(ServerError, OSError):
                TlsFiles(
                    Path(files[0]), Path(files[1])
                ).read()  # a context that failed would be left without its key
                context.load_cert_chain(*files)

    threading.Thread(target=work, daemon=True, name="dpsql-certificate").start()


if __name__ == "__main__":
    run_console(*map(int, sys.argv[1:]))
