"""The owner's page over HTTP: who is let in, and which page an address is.

Whoever opens the one-time link gets a cookie; without it every address but that of a link answers one sentence. Requests that
name another host or come from another page are refused, as everything but GET and HEAD is: nothing can be changed here.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dpsql.errors import Error
from dpsql.report.tables import Html, fill, read_template, tag
from dpsql.server import console_pages
from dpsql.server.console_views import LedgerView
from dpsql.server.listening import is_loopback

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from dpsql.server.console_link import FrontLink

COOKIE = "dpsql-console"
SESSION_SECONDS = 12 * 3600
"""Seconds for which a browser that has opened a link is let in."""
MAX_BROWSERS = 20
_LIVE_SECONDS = 0.5
_NOT_LET_IN = "Open the link that the server printed at its start. It works once; SIGHUP prints another."
_WRONG_LINK = "This link is not the last one that the server printed, or was used. SIGHUP prints another."
_ELSEWHERE = "This page answers for this machine alone, and to nobody who comes from another page."
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every reply."""


class Browsers:
    """The browsers that are let in, as digests of their cookies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}

    def add(self) -> str:
        """Let one more in, and return its cookie; of too many the oldest is forgotten."""
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            while len(self._until) >= MAX_BROWSERS:
                del self._until[next(iter(self._until))]
            self._until[_digest(cookie)] = time.monotonic() + SESSION_SECONDS
        return cookie

    def knows(self, cookie: str) -> bool:
        """Tell whether a cookie is of a browser that was let in. A digest is looked up, so its time tells nothing."""
        with self._lock:
            return self._until.get(_digest(cookie), 0.0) > time.monotonic()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def is_from_here(host: str, origin: str | None, site: str | None, bound: str) -> bool:
    """Tell whether a request was meant for this machine, and comes from a page of ours or from none.

    Args:
        host: the header Host. Any port will do, since a tunnel may have another one.
        origin: the header Origin, where there is one.
        site: the header Sec-Fetch-Site, which browsers send.
        bound: the address that is listened on; empty for a socket.
    """
    try:
        named = urlsplit(f"http://{host}")
        known = named.netloc == host and "@" not in host and bool(named.hostname) and named.port != 0
    except ValueError:
        return False
    if not known or not (is_loopback(named.hostname or "") or (named.hostname == bound and bound)):
        return False
    return origin in (None, f"http://{host}") and site in (None, "none", "same-origin")


class ConsolePages:
    """The pages of all policies.

    Args:
        front: what can be asked of the front.
        views: the policies by their names.
    """

    def __init__(self, front: FrontLink, views: dict[str, LedgerView]) -> None:
        self._front, self.views = front, views
        self._lock = threading.Lock()
        self._live: tuple[float, dict[str, Any]] = (0.0, {})

    def ask_live(self) -> dict[str, Any]:
        """Return what runs now, asked at most twice a second."""
        with self._lock:
            asked, live = self._live
            if not live or time.monotonic() - asked > _LIVE_SECONDS:
                live = self._front.ask_live()
                self._live = (time.monotonic(), live)
        return live

    def write(self, name: str, tab: str, query: Any) -> Html | None:
        """Write a page; None where there is none of that address.

        Raises:
            Error: the ledger can't be read or trusted.
        """
        view = self.views.get(name)
        if view is None or tab not in (*console_pages.TABS, "live"):
            return None
        live = self.ask_live()
        mine = next(one for one in live["policies"] if one["name"] == name)
        view.open(mine["readings"])
        told, again = console_pages.tell_now(view, mine), None
        if tab == "live":
            status = tag("p", told, id="told")
            return status + console_pages.write_now(view, mine, live["events"])
        if tab == "":
            content = console_pages.write_now(view, mine, live["events"])
        elif tab == "promise":
            content, again = console_pages.write_promise(view)
        else:
            who, page = query.get("who"), query.get("page", "1")
            found = view.list_page(int(page) if page.isascii() and page.isdigit() and len(page) < 10 else 1, who,
                                   tab == "refusals")  # fmt: skip
            people = [one.name for one in view.list_analysts(mine["desks"])]
            content = console_pages.write_list(view, tab, found, people, who)
        return console_pages.write_frame(view, list(self.views), tab, content, told, again)


def make_app(front: FrontLink, setup: dict[str, Any]) -> Starlette:
    """Return the application.

    Args:
        front: what can be asked of the front.
        setup: the policies and their files, and the address that is listened on.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
    from starlette.routing import Route

    from dpsql.server.console_protocol import let_browser_in

    pages = ConsolePages(
        front,
        {one["name"]: LedgerView(one["name"], Path(one["policy"]), Path(one["ledger"])) for one in setup["policies"]},
    )  # fmt: skip
    browsers = Browsers()
    files = {
        "console.css": (read_template("style.css") + read_template("console.css"), "text/css"),
        "console.js": (read_template("console.js"), "text/javascript"),
    }

    async def guard(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        reply = refuse(request)
        if reply is None:
            if request.url.path != "/enter":
                let_browser_in()
            reply = await go_on(request)
        reply.headers.update(HEADERS)
        return reply

    def refuse(request: Request) -> Response | None:
        given = request.headers
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("Nothing can be changed here.", 405, {"Allow": "GET, HEAD"})
        site = None if request.url.path == "/enter" else given.get("sec-fetch-site")
        if len(given.getlist("host")) != 1 or not is_from_here(
            given["host"], given.get("origin"), site, setup["host"]
        ):
            return PlainTextResponse(_ELSEWHERE, 403)
        if request.url.path != "/enter" and not browsers.knows(request.cookies.get(COOKIE, "")):
            return PlainTextResponse(_NOT_LET_IN, 403)
        return None

    def enter(request: Request) -> Response:
        if request.method != "GET" or "prefetch" in request.headers.get("sec-purpose", ""):
            return PlainTextResponse(_WRONG_LINK, 403)  # it was not looked at
        if not front.use_link(request.query_params.get("key", "")[:200]):
            return PlainTextResponse(_WRONG_LINK, 403)
        # a page of ours leads on: a browser keeps a strict cookie from a redirect that another page began
        reply = HTMLResponse(fill("console_enter.html"))
        reply.set_cookie(
            COOKIE, browsers.add(), max_age=SESSION_SECONDS, httponly=True, samesite="strict", path="/"
        )
        return reply

    def begin(request: Request) -> Response:
        return RedirectResponse(console_pages.write_link(next(iter(pages.views))), 303)

    def show_file(request: Request) -> Response:
        text, kind = files[request.url.path.removeprefix("/")]
        return Response(str(text), media_type=kind)

    def show(request: Request) -> Response:
        name, tab = request.path_params["policy"], request.path_params.get("tab", "")
        try:
            page = pages.write(name, tab, request.query_params)
        except Error as error:
            return PlainTextResponse("\n".join(error.lines()), 503)
        if page is None:
            return PlainTextResponse("There is no such page.", 404)
        return HTMLResponse(str(page))

    routes: Sequence[Route] = [
        Route("/", begin),
        Route("/enter", enter),
        *(Route(f"/{name}", show_file) for name in files),
        Route("/policy/{policy}/", show),
        Route("/policy/{policy}/{tab}", show),
    ]
    return Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)])
