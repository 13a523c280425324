"""The owner's page: its view of the ledger, and its HTML.

This module stands apart from :mod:`dpsql.server.console.process`, which serves the page and the metrics, and confines itself.

A one-time link gives a browser a cookie; without it, every address except a link's answers one sentence. The page allows GET and
HEAD only, and refuses requests that name another host or come from another site, since nothing can be changed here.

Each request reads the budget and the latest statements. A thread counts the statements of each analyst. The sums of the whole
ledger are in ``dpsql report``.

:func:`dpsql.report.tables.fill` escapes everything in templates, since analysts choose names and texts.

:mod:`dpsql.server.console.console` is the front's side.
"""

from __future__ import annotations

import hmac
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from dpsql.client.channel import is_this_machine
from dpsql.errors import Error, PolicyError
from dpsql.late_dataclass import dataclass
from dpsql.ledger.ledger import Ledger
from dpsql.privacy.records import BudgetState, Entry
from dpsql.report.data import describe_entry
from dpsql.report.pages import write_bar, write_statements, write_table
from dpsql.report.tables import Data, Html, clip_text, fill, join, name_of, read_template, tag
from dpsql.server.analyst_tokens import TokenFile, TokenRecord
from dpsql.server.frames import FrameError, Frames
from dpsql.server.queues import MAX_FAILURES, MAX_OVERRUNS

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

LATEST_STATEMENTS = 20
_STEP = 500
"""Statements read under one lock."""
_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class AnalystView:
    """One analyst: the token, the share, the statements, and the server's counts."""

    name: str
    token: TokenRecord | None
    share: BudgetState | None
    statements: int
    refused: int
    queue: Data
    known: bool
    """Whether the policy has the name."""


class LedgerView:
    """One policy for the owner's page, with the folder of its tokens and its ledger's file. Thread-safe."""

    def __init__(self, name: str, policy: Path, ledger: Path) -> None:
        self.name = name
        self.path = ledger
        self._tokens = TokenFile(policy)
        self._lock = threading.RLock()
        self._ledger: Ledger | None = None
        self._readings = 0
        self._looked = 0
        """The last statement that was counted."""
        self._counts: Counter[tuple[str, bool]] = Counter()
        """The number of statements by analyst and by whether they were refused."""
        self._shares: tuple[int, dict[str, BudgetState]] = (-1, {})
        threading.Thread(target=self._count, daemon=True, name="dpsql-figures").start()

    def open(self, readings: int = 0) -> Ledger:
        """Return the ledger, reopened if the policy was read again; LedgerError if it can't be read or trusted."""
        with self._lock:
            if self._ledger is None or readings > self._readings:
                if self._ledger is not None:
                    self._ledger.close()
                self._ledger, self._readings = Ledger.read(self.path), max(readings, self._readings)
                self._shares = (-1, {})
            return self._ledger

    # -- statements -----------------------------------------------------------------------------------------------

    def latest(self) -> list[Data]:
        """Return the latest statements, newest first."""
        with self._lock:
            ledger = self.open()
            return self._describe(ledger, reversed(ledger.entries(LATEST_STATEMENTS)))

    def find_statements(self, numbers: Iterable[int]) -> list[Data]:
        """Return statements by their numbers."""
        with self._lock:
            ledger = self.open()
            return self._describe(
                ledger, (entry for number in numbers for entry in ledger.walk(number, number))
            )

    def _describe(self, ledger: Ledger, entries: Iterable[Entry]) -> list[Data]:
        return [describe_entry(entry, ledger.accountant, ledger.policy) for entry in entries]

    def _count(self) -> None:
        """Count new statements, some at a time, so that requests don't wait."""
        while True:
            more = False
            with suppress(Error), self._lock:
                ledger = self.open()
                end = min(ledger.count, self._looked + _STEP)
                for entry in ledger.walk(self._looked + 1, end):
                    self._counts[name_of(entry), entry.outcome == "refused"] += 1
                self._looked, more = end, end < ledger.count
            time.sleep(0 if more else _LOOK_SECONDS)

    # -- people ---------------------------------------------------------------------------------------------------

    def list_analysts(self, queues: list[Data]) -> list[AnalystView]:
        """Return the analysts who may ask or have asked; ``queues`` has the server's counts."""
        with self._lock:
            ledger = self.open()
            policy = ledger.policy
            tokens: dict[str, TokenRecord] = {}
            with suppress(PolicyError):
                tokens = {record.name: record for record in self._tokens.list()}
            counted = {queue["analyst"]: queue for queue in queues}
            known = list(policy.analysts) if policy is not None else []
            shares = self._find_shares(ledger, known)
            return [
                AnalystView(
                    name,
                    tokens.get(name),
                    shares.get(name),
                    self._counts[name, False],
                    self._counts[name, True],
                    counted.get(name, {}),
                    name in known,
                )
                for name in dict.fromkeys([*known, *tokens, *counted, *(who for who, _ in self._counts)])
            ]

    def _find_shares(self, ledger: Ledger, names: list[str]) -> dict[str, BudgetState]:
        row = ledger.last_row
        if self._shares[0] != row:
            found = {}
            for name in names:
                with suppress(Error):
                    found[name] = ledger.for_analyst(name).state()
            self._shares = (row, found)
        return self._shares[1]


_STAGES = {"waits": "waits for its turn", "works": "before private data", "reads": "reads private data"}


def write_link(policy: str, part: str = "") -> str:
    """Return the address of a policy's page."""
    return f"/policy/{quote(policy, safe='')}/{part}"


def write_frame(view: LedgerView, names: Sequence[str], content: Html, told: str) -> Html:
    """Write a whole page.

    Args:
        view: its policy.
        names: all policies.
        content: its content.
        told: the sentence next to the title, which a script updates.
    """
    links = (
        tag("a", name, href=write_link(name), aria_current="page" if name == view.name else None)
        for name in names
    )
    listed = tag("ul", join(tag("li", link) for link in links), class_="policies")
    chosen = tag("nav", listed, aria_label="Policies")
    return fill(
        "console.html",
        title=f"{view.name} · dpsql",
        heading=f"Privacy budget of {view.name}",
        policies=chosen if len(names) > 1 else Html(),
        live=write_link(view.name, "live"),
        told=told,
        content=content,
    )


def write_section(name: str, title: str, inner: Html) -> Html:
    """Write a section with its heading."""
    return fill("section.html", id=name, title=title, inner=inner)


# -- now ------------------------------------------------------------------------------------------------------------------


def tell_now(view: LedgerView, live: Data) -> str:
    """Return one sentence on the present state, for the title's line."""
    running = sum(len(queue["calls"]) for queue in live["queues"])
    sessions = sum(queue["sessions"] for queue in live["queues"])
    return f"{view.open().state().sentence} · {running or 'nothing'} running · {sessions} session{'s' * (sessions != 1)} open"


def write_now(view: LedgerView, live: Data) -> Html:
    """Write the budget, running calls, analysts and latest statements; a script updates this part."""
    state = view.open().state()
    whole = state.whole or state
    facts = [
        whole.about_text,
        whole.detail or f"{whole.spent} of {whole.limit} spent",
        f"accountant {whole.accountant}",
    ]
    notices = [tag("p", text, class_="warning", role="alert") for text in view.open().warnings]
    left = fill(
        "left.html",
        sentence=whole.sentence,
        bar=write_bar(float(whole.share), f"spent of the whole budget of {view.name}"),
        facts=join(tag("li", fact) for fact in facts if fact),
        notes=Html(),
    )
    latest = view.latest()
    listed = (
        write_statements(latest, "The latest statements, newest first") if latest else tag("p", "None yet.")
    )
    sections = [
        join(notices),
        write_section("left", "Budget left", left),
        write_section("running", "Running requests", _write_running(view, live["queues"])),
        write_section("analysts", "Analysts", _write_analysts(view.list_analysts(live["queues"]))),
        write_section("latest", "Latest statements", listed),
    ]
    return tag("div", join(sections), id="live")


def _write_running(view: LedgerView, queues: Sequence[Data]) -> Html:
    calls = [(queue["analyst"], call) for queue in queues for call in queue["calls"]]
    if not calls:
        return tag("p", "Nothing runs.")
    numbers = {number for _, call in calls for number in call["statements"]}
    texts = {entry["statement"]: entry for entry in view.find_statements(sorted(numbers))}
    rows = []
    for who, call in calls:
        paid = [texts[number] for number in call["statements"] if number in texts]
        stage = "is stopping" if call["stopped"] else _STAGES.get(call["stage"], call["stage"])
        shown = [tag("code", clip_text(entry["text"], 600)) for entry in paid]
        rows.append(
            (
                who,
                call["session"],
                call["operation"],
                f"{call['seconds']:g} s",
                stage,
                ", ".join(str(entry["statement"]) for entry in paid) or "—",
                ", ".join(entry["charge"] for entry in paid) or "—",
                Html(Html("<br>").join(shown)) if shown else "nothing paid so far",
            )
        )
    caption = "Running and queued requests; a text is shown once it is paid"
    return write_table(
        "who|session|asks for|since|stage|number|charge|statement", rows, caption, "since|number|charge"
    )


def _write_analysts(analysts: Sequence[AnalystView]) -> Html:
    if not analysts:
        return tag("p", "The policy names no analyst, and there are no statements.")
    rows = []
    for one in analysts:
        share: Html | str = "of the whole"
        if one.share is not None:
            spent = write_bar(float(one.share.share), f"spent of the share of {one.name}")
            said = f"{one.share.spent} of {one.share.limit} spent, {one.share.left} left"
            share = spent + tag("span", said)
        counted = one.queue
        rows.append(
            (
                tag("span", one.name or "not named", class_="name"),
                _write_state(one),
                share,
                str(one.statements),
                str(one.refused),
                str(counted.get("sessions", 0)),
                f"{counted.get('failures', 0)} of {MAX_FAILURES}",
                f"{counted.get('overruns', 0)} of {MAX_OVERRUNS}",
            )
        )
    caption = (
        "Analysts, their shares, and the server's counts; failures after payment and overruns lead to a pause"
    )
    heads = "who|state|share|asked|refused|sessions|failures|overruns"
    return write_table(heads, rows, caption, "asked|refused|sessions|failures|overruns")


def _write_state(one: AnalystView) -> Html:
    token = one.token
    if not one.known:
        return tag("span", "not in the policy")
    if token is None:
        return tag("span", "no token")
    if token.has_expired():
        return tag("span", f"expired {token.expires[:10]}", class_="state bad")
    if token.paused:
        return tag("span", "paused", class_="state bad") + tag("span", token.paused, class_="reason")
    return tag("span", f"may ask until {token.expires[:10]}")


ANSWER_SECONDS = 10.0
"""Seconds that the front may take to answer."""


COOKIE = "dpsql-console"
SESSION_SECONDS = 12 * 3600
"""Seconds that a browser's cookie is valid."""
_LIVE_SECONDS = 0.5
_NOT_LET_IN = "Open the link that the server printed at its start. It works once; SIGHUP prints another."
_WRONG_LINK = "This link was used, or isn't the last one that the server printed. SIGHUP prints another."
_ELSEWHERE = "This page is for this machine only, and can't be opened from another page."
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


class Cookies:
    """The cookies of browsers that were let in: the time of their end, signed with a key of this process."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def make(self, seconds: int = SESSION_SECONDS) -> str:
        """Return the cookie of one more browser."""
        end = str(int(time.time()) + seconds)
        return f"{end}.{self._sign(end)}"

    def is_valid(self, cookie: str) -> bool:
        """Return whether a cookie was made here, and is not too old."""
        end, _, signature = cookie.partition(".")
        made_here = hmac.compare_digest(signature.encode(), self._sign(end).encode())
        return made_here and int(end) > time.time()

    def _sign(self, end: str) -> str:
        return hmac.digest(self._key, end.encode(), "sha256").hex()


def is_from_here(host: str, origin: str | None, site: str | None, bound: str) -> bool:
    """Return whether a request is for this machine, and comes from a page of ours or from none.

    Args:
        host: the header Host, with any port, since a tunnel may have another one.
        origin: the header Origin, if there is one.
        site: the header Sec-Fetch-Site, which browsers send.
        bound: the address of the listening socket; empty for a Unix socket.
    """
    try:
        named = urlsplit(f"http://{host}")
        known = named.netloc == host and "@" not in host and bool(named.hostname) and named.port != 0
    except ValueError:
        return False
    if not known or not (is_this_machine(named.hostname or "") or (named.hostname == bound and bound)):
        return False
    return origin in (None, f"http://{host}") and site in (None, "none", "same-origin")


class ConsolePages:
    """The pages of all policies, and their questions to the front, one at a time."""

    def __init__(self, front: Frames, views: dict[str, LedgerView]) -> None:
        self._front, self.views = front, views
        self._lock = threading.RLock()
        self._live: tuple[float, Data] = (0.0, {})

    def _ask(self, head: Data) -> Data:
        """Ask the front, or end this process if the front has ended."""
        with self._lock:
            try:
                self._front.send(head)
                return self._front.receive(ANSWER_SECONDS).head
            except (FrameError, TimeoutError):
                os._exit(1)

    def use_link(self, key: str) -> bool:
        """Return whether a one-time link is valid; it then expires."""
        return self._ask({"kind": "enter", "key": key}).get("good") is True

    def ask_live(self) -> Data:
        """Return the queues' states, the counts of the log and the ends of certificates, asked at most twice a second."""
        with self._lock:
            if not self._live[1] or time.monotonic() - self._live[0] > _LIVE_SECONDS:
                self._live = (time.monotonic(), self._ask({"kind": "live"}))
            return self._live[1]

    def write(self, name: str, part: str) -> Html | None:
        """Return a page, or None if the address has none; Error if the ledger can't be read or trusted."""
        view = self.views.get(name)
        if view is None or part not in ("", "live"):
            return None
        live = self.ask_live()
        mine = next(one for one in live["policies"] if one["name"] == name)
        view.open(mine["readings"])
        told, content = tell_now(view, mine), write_now(view, mine)
        if part == "live":
            return tag("p", told, id="told") + content
        return write_frame(view, list(self.views), content, told)


def make_app(setup: Data, pages: ConsolePages) -> Starlette:
    """Return the application of the page; ``setup`` has the address of the listening socket."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
    from starlette.routing import Route

    cookies = Cookies()
    files = {
        "console.css": (read_template("style.css") + read_template("console.css"), "text/css"),
        "console.js": (read_template("console.js"), "text/javascript"),
    }

    async def guard(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        reply = refuse(request)
        if reply is None:
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
        if request.url.path != "/enter" and not cookies.is_valid(request.cookies.get(COOKIE, "")):
            return PlainTextResponse(_NOT_LET_IN, 403)
        return None

    def enter(request: Request) -> Response:
        if request.method != "GET" or "prefetch" in request.headers.get("sec-purpose", ""):
            return PlainTextResponse(_WRONG_LINK, 403)  # it was not looked at
        if not pages.use_link(request.query_params.get("key", "")[:200]):
            return PlainTextResponse(_WRONG_LINK, 403)
        # a page of ours leads on: a browser keeps a strict cookie from a redirect that another page began
        reply = HTMLResponse(fill("console_enter.html"))
        reply.set_cookie(
            COOKIE, cookies.make(), max_age=SESSION_SECONDS, httponly=True, samesite="strict", path="/"
        )
        return reply

    def begin(request: Request) -> Response:
        return RedirectResponse(write_link(next(iter(pages.views))), 303)

    def show_file(request: Request) -> Response:
        text, kind = files[request.url.path.removeprefix("/")]
        return Response(str(text), media_type=kind)

    def show(request: Request) -> Response:
        name, part = request.path_params["policy"], request.path_params.get("part", "")
        try:
            page = pages.write(name, part)
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
        Route("/policy/{policy}/{part}", show),
    ]
    return Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)])
