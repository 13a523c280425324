"""The owner's page: who is let in, what it shows of a long ledger and of hostile names, and that the front does not wait."""

from __future__ import annotations

import http.client
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import sys
import textwrap
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from dpsql.errors import ServerError
from dpsql.ledger.ledger import Ledger
from dpsql.policy.model import Policy
from dpsql.server.analyst_tokens import TokenFile
from dpsql.server.console import console
from dpsql.server.console.app import Cookies, is_from_here
from tests.support.long_ledgers import fill_ledger
from tests.support.own_process import run_python
from tests.support.served import (
    ROOT,
    ServerProcess,
    list_children,
    make_token,
    read_command,
    try_until,
    write_data,
    write_policy,
)

pytestmark = pytest.mark.timeout(600)
PAGES = ("", "live")
HOSTILE = "<img src=x onerror=alert(1)>\"'&{{7*7}}</script><script>alert(2)</script>"
NASTY = 'a<b>&"c'
"""The name of a policy file, and so of a catalog."""


class Owner:
    """A browser of the owner's, that keeps its cookie."""

    def __init__(self, line: str) -> None:
        assert line.startswith("console at http://"), line
        self.address, self.link = re.match(r"console at http://([^/]+)(/enter\?key=\S+)", line).groups()  # type: ignore[union-attr]
        self.path = found[1] if (found := re.search(r" over (\S+)", line)) else None
        self.cookie = ""

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, str]:
        """Ask, without following anything."""
        connection = http.client.HTTPConnection(self.address, timeout=90)
        if self.path:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(self.path)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            given.setdefault("Cookie", self.cookie)
        connection.request(method, path, headers=given)
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        return reply, text

    def enter(self) -> Owner:
        reply, _ = self.ask(self.link)
        assert reply.status == 200
        self.cookie = reply.headers["set-cookie"].partition(";")[0]
        return self

    def read(self, path: str) -> str:
        reply, text = self.ask(path)
        assert reply.status == 200, (path, reply.status, text)
        return text


def read_link(server: ServerProcess) -> str:
    assert server.process.stdout is not None
    return server.process.stdout.readline()


def console_pids(server: ServerProcess) -> list[int]:
    return [pid for pid in list_children(server.process.pid) if "console.process" in read_command(pid)]


class Parts(HTMLParser):
    """The elements of a page, with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy of a nasty name, with 10,000 statements in its ledger, and some of a hostile analyst."""
    made = tmp_path_factory.mktemp("clinic")
    write_data(made, 500)
    first = write_policy(
        made, {"ada": 50, "alice": 50}, "answer_times = []\nmax_requests_per_minute = 100000"
    )
    policy = made / f"{NASTY}.toml"
    text = first.read_text() + f"\n[analysts.'{HOSTILE.replace(chr(39), '')}']\nepsilon = 1\n"
    policy.write_text(text)
    first.unlink()
    return made


@pytest.fixture(scope="module")
def policy(folder: Path) -> Path:
    return folder / f"{NASTY}.toml"


@pytest.fixture(scope="module")
def server(folder: Path, policy: Path) -> Iterator[tuple[ServerProcess, Owner]]:
    # makes the ledger, and the data's name
    with ServerProcess(policy) as begun, begun.connect("ada") as client:
        client.run("SELECT COUNT(*) AS n FROM visits").raise_error()
    ledger = Path(f"{policy}.ledger")
    with Ledger.read(ledger) as read:
        dataset = read.dataset
    for place in folder.glob(f"{NASTY}.toml.ledger*"):
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    loaded = Policy.load(policy)
    fill_ledger(ledger, loaded, 10_000, dataset)
    evil = next(name for name in loaded.analysts if name.startswith("<img"))
    with Ledger.open(ledger, loaded, dataset, evil) as opened:
        opened.refuse(f"SELECT '{HOSTILE}'", HOSTILE)
    with ServerProcess(policy, "--console", "127.0.0.1:0") as running:
        with running.connect("ada") as client:
            client.run(f'SELECT COUNT(*) AS "{HOSTILE.replace(chr(34), "")}" FROM visits').raise_error()
        yield running, Owner(read_link(running)).enter()


@pytest.fixture
def owner(server: tuple[ServerProcess, Owner]) -> Owner:
    return server[1]


def place(tab: str = "") -> str:
    return f"/policy/{quote(NASTY, safe='')}/{tab}"


# -- who is let in ------------------------------------------------------------------------------------------------------


def test_without_the_link_there_is_nothing(server: tuple[ServerProcess, Owner]) -> None:
    stranger = Owner(f"console at http://{server[1].address}/enter?key=x")
    told = set()
    for path in ("/", "/console.css", "/console.js", "/nowhere", "/policy/", *(place(tab) for tab in PAGES)):
        for cookie in ("", "dpsql-console=", "dpsql-console=x", f"dpsql-console={'A' * 43}"):
            stranger.cookie = cookie
            reply, text = stranger.ask(path)
            assert reply.status == 403
            told.add(text)
    assert len(told) == 1, "one sentence, whatever was asked for"
    assert NASTY not in told.pop()
    for key in ("", "x", server[1].link.partition("=")[2], "%00", "é" * 9000):
        assert stranger.ask(f"/enter?key={quote(key)}")[0].status in (400, 403), "the link was used"


def test_a_link_works_once_and_for_who_opens_it(folder: Path) -> None:
    other = folder / "other.toml"
    other.write_text((folder / f"{NASTY}.toml").read_text())
    with ServerProcess(other, "--console", "localhost:0") as running:
        first = Owner(read_link(running))
        assert first.ask(first.link, "HEAD")[0].status == 403
        assert first.ask(first.link, Sec_Purpose="prefetch;prerender")[0].status == 403, "nobody looked at it"
        reply, _ = first.enter().ask("/")
        assert (reply.status, reply.headers["location"]) == (303, "/policy/other/")
        again = Owner(f"console at http://{first.address}{first.link} ")
        assert again.ask(again.link)[0].status == 403
        running.process.send_signal(signal.SIGHUP)
        second = Owner(read_link(running)).enter()
        assert first.read("/policy/other/") == second.read("/policy/other/"), "both browsers are let in"
        (pid,) = console_pids(running)
        os.kill(pid, signal.SIGKILL)
        third = Owner(read_link(running))
        running.wait_for("console restarted")
        assert first.ask("/policy/other/")[0].status == 403, "what the process knew is gone"
        assert third.enter().read("/policy/other/")
        (pid,) = console_pids(running)
    assert not Path(f"/proc/{pid}").exists(), "it ends with the server"
    text = running.log_path.read_text()
    assert first.link.partition("=")[2] not in text
    assert {line["event"] for line in running.events} >= {
        "console entered",
        "refused link",
        "console restarted",
    }


def test_the_cookie_and_the_headers(owner: Owner, server: tuple[ServerProcess, Owner]) -> None:
    for path in ("/", place(), "/console.js", "/enter?key=wrong", "/nowhere"):
        reply, _ = owner.ask(path)
        policy = dict(part.split(" ", 1) for part in reply.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"
        assert "unsafe" not in str(policy)
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "server" not in reply.headers
    running = server[0]
    running.process.send_signal(signal.SIGHUP)
    other = Owner(read_link(running))
    cookie = other.ask(other.link)[0].headers["set-cookie"].lower()
    assert {"httponly", "samesite=strict", "path=/"} <= {part.strip() for part in cookie.split(";")}
    assert "domain" not in cookie


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:80"},
        {"Host": "localhost@evil.example"},
        {"Host": "10.0.0.1:8080"},
        {"Host": ""},
        {"Host": "127.0.0.1:99999"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_other_hosts_and_pages_are_refused(owner: Owner, headers: dict[str, str]) -> None:
    assert owner.ask(place(), **headers)[0].status in (400, 403)
    assert owner.ask(place(), Sec_Fetch_Site="same-origin", Origin=f"http://{owner.address}")[0].status == 200


def test_whom_a_host_names() -> None:
    good = [
        ("localhost:8080", None, None, "127.0.0.1"),
        ("[::1]:9", None, "none", "::1"),
        ("127.0.0.1", None, None, ""),
    ]
    for given in good:
        assert is_from_here(*given)
    assert is_from_here("localhost:1", "http://localhost:1", "same-origin", "")
    for host in (
        "",
        "x",
        "localhost:1:2",
        "[::1",
        "localhost/",
        "a@localhost",
        "localhost:0",
        "0.0.0.0:1",
        "LOCALHOST.:1",
    ):
        assert not is_from_here(host, None, None, "127.0.0.1")
    assert not is_from_here("localhost:1", "http://localhost:2", None, "")


def test_nothing_can_be_changed(owner: Owner) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"):
        assert owner.ask(place(), method)[0].status in (400, 405)


def test_a_cookie_is_signed_and_ends() -> None:
    cookies = Cookies()
    cookie = cookies.make()
    end, _, signature = cookie.partition(".")
    assert cookies.is_valid(cookie)
    for wrong in (
        "",
        ".",
        end,
        cookie[:-1],
        f"{int(end) + 1}.{signature}",
        "é.é",
        f"x{cookie}",
        Cookies().make(),
    ):
        assert not cookies.is_valid(wrong)
    assert not cookies.is_valid(cookies.make(-1))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_of_the_machine(server: tuple[ServerProcess, Owner], folder: Path) -> None:
    """On TCP another user is told one sentence; a socket they can't even open, in a folder that is open to all."""
    open_folder = Path("/tmp") / f"dpsql-console-{os.getpid()}"
    shutil.copytree(folder, open_folder, ignore=shutil.ignore_patterns("*.ledger*", "*.log"))
    policy, nobody = open_folder / "small.toml", pwd.getpwnam("nobody")
    shutil.move(open_folder / f"{NASTY}.toml", policy)
    open_folder.chmod(0o755)
    port, (pid,) = server[1].address.rpartition(":")[2], console_pids(server[0])
    try:
        with ServerProcess(policy, "--console", f"unix:{open_folder}/page.sock") as running:
            mine = Owner(read_link(running))
            assert mine.address == "localhost"
            assert stat.S_IMODE((open_folder / "page.sock").stat().st_mode) == 0o600
            assert "Budget left" in mine.enter().read("/policy/small/")
            assert mine.ask("/policy/small/", Host="localhost:9999")[0].status == 200, "through a tunnel"
            code = f"""
                import encodings.idna, http.client, os, socket
                os.setgroups([]); os.setgid({nobody.pw_gid}); os.setuid({nobody.pw_uid})
                connection = http.client.HTTPConnection("127.0.0.1", {port})
                connection.request("GET", {place()!r}); print(connection.getresponse().status)
                for path in ("{open_folder}/page.sock",):
                    try: socket.socket(socket.AF_UNIX).connect(path); print("connected")
                    except OSError as error: print(type(error).__name__)
                for name in ("mem", "environ", "fd/3"):
                    try: open("/proc/{pid}/" + name, "rb").read(1); print("read")
                    except OSError: print("closed")
                """
            done = run_python("-c", textwrap.dedent(code), cwd="/")
        assert done.stdout.split() == ["403", "PermissionError", "closed", "closed", "closed"], done
        assert not (open_folder / "page.sock").exists()
    finally:
        shutil.rmtree(open_folder)


def test_where_it_can_not_listen(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(listen: str) -> None:
        console.Console(listen, [], console.EventLog(None), sys.stdout)

    for listen, said in (
        ("0.0.0.0:8080", "for this machine only"), ("10.1.2.3:80", "for this machine only"), ("8080", "no address"),
        ("127.0.0.1:x", "no address"), (f"unix:{policy}", "is a file already"), ("unix:/nowhere/at/all", "can.t listen on"),
    ):  # fmt: skip
        with pytest.raises(ServerError, match=said):
            start(listen)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ServerError, match="can't listen"):
        start(f"127.0.0.1:{taken.getsockname()[1]}")
    monkeypatch.setattr(console, "find_spec", lambda name: None)
    with pytest.raises(ServerError, match="starlette and uvicorn and prometheus_client") as caught:
        start("127.0.0.1:0")
    assert caught.value.hint == "pip install 'dpsql[server]'"


# -- what is shown ------------------------------------------------------------------------------------------------------


def test_what_is_left_and_who_may_ask(owner: Owner, policy: Path) -> None:
    page = Parts(owner.read(place()))
    with Ledger.read(f"{policy}.ledger") as ledger:
        state = ledger.for_analyst("ada").state()
        latest = ledger.entries(1)[0]
    assert state.whole is not None
    assert state.whole.sentence in page.text
    assert f"{state.spent} of {state.limit} spent" in page.text
    meters = [given for name, given in page.elements if given.get("role") == "meter"]
    assert len(meters) == 4, "the whole, and three shares"
    assert all(given["aria-label"] for given in meters)
    assert latest.text.split()[0] in page.text
    assert "the server" in page.text


def test_names_and_texts_are_escaped(owner: Owner) -> None:
    seen = ""
    for path in map(place, PAGES):
        text = owner.read(path)
        page = Parts(text)
        seen += page.text
        scripts = [given for name, given in page.elements if name == "script"]
        assert all(given == {"src": "/console.js", "defer": None} for given in scripts)
        for name, given in page.elements:
            assert name not in ("img", "iframe", "object", "form", "base", "style")
            assert not [key for key in given if key.startswith("on") or key == "style"], (name, given)
            for key in ("href", "src"):
                assert given.get(key, "/").startswith(("/", "data:,", "#")), given  # type: ignore[union-attr]
    assert HOSTILE in seen, "it is there, as text"
    assert NASTY in seen
    assert HOSTILE.replace("'", "") in seen


def test_labels_for_screen_readers(owner: Owner) -> None:
    page = Parts(owner.read(place()))
    assert next(given["href"] for name, given in page.elements if name == "a") == "#content", (
        "first a way past the menu"
    )
    assert [given["lang"] for name, given in page.elements if name == "html"] == ["en"]
    assert sum(name == "h1" for name, _ in page.elements) == 1
    for name, given in page.elements:
        assert name != "th" or given["scope"] == "col"
        assert name != "nav" or given["aria-label"]
        assert given.get("class") != "scroll" or (given["role"], given["tabindex"]) == ("region", "0")
    tables, captions = (sum(name == kind for name, _ in page.elements) for kind in ("table", "caption"))
    assert tables == captions


def test_what_runs_pauses_and_overruns(tmp_path: Path) -> None:
    write_data(tmp_path, 400_000)
    policy = write_policy(
        tmp_path, {"ada": 300, "bob": 3}, "answer_times = [0.01]\nmax_requests_per_minute = 100000"
    )
    with ServerProcess(policy, "--console", "127.0.0.1:0") as server, server.connect("ada") as client:
        owner = Owner(read_link(server)).enter()
        slow = "SELECT ward, MEDIAN(cost) AS m FROM visits GROUP BY ward"

        def look() -> str:
            """Return what the page tells while a statement runs, where it has not ended before."""
            stream = client.stream("run", {"text": slow, "fresh": True})
            assert next(stream).head["kind"] == "stage"
            text = Parts(owner.read("/policy/clinic/live")).text
            list(stream)
            return text

        text = try_until(look, lambda text: "reads private data" in text, 15)
        assert "1 running" in text
        assert slow in text
        client.run("SELECT * FROM visits")
        client.run("DECLARE x ABOVE_THRESHOLD 5 OPTIONS (epsilon = 100000)")
        TokenFile(policy).add("bob")
        TokenFile(policy).pause("bob", "too curious")
        end = time.monotonic() + 60
        while not re.search(r"\b[1-9]\d* of 20", text := Parts(owner.read("/policy/clinic/live")).text):
            assert time.monotonic() < end, "an answer beyond the last time is an overrun"
        assert "too curious" in text
        assert "nothing running" in text
        policy.write_text(policy.read_text().replace("bounds = [0, 500]", "bounds = [0, 300]"))
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("policy taken", 60)
        assert owner.read("/policy/clinic/")


# -- the front ------------------------------------------------------------------------------------------------------------


def test_no_statement_is_parsed_and_no_data_are_opened(server: tuple[ServerProcess, Owner]) -> None:
    code = (
        "import sys, dpsql.server.console.process\n"
        "import uvicorn, starlette.applications\n"
        "print([name for name in ('duckdb', 'sqlglot', 'IPython', 'pyarrow.flight') if name in sys.modules])"
    )
    done = run_python("-c", code, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.stdout.strip() == "[]", done
    (pid,) = console_pids(server[0])
    if os.geteuid() == 0:
        assert "duckdb" not in Path(f"/proc/{pid}/maps").read_text()
    assert int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[16]) >= 10, (
        "the front goes first"
    )


# -- in a browser ---------------------------------------------------------------------------------------------------------

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
@pytest.mark.parametrize("look", ["light", "dark"])
def test_the_page_in_a_browser(server: tuple[ServerProcess, Owner], look: str) -> None:
    api = pytest.importorskip("playwright.sync_api")
    running, owner = server
    running.process.send_signal(signal.SIGHUP)
    link = Owner(read_link(running)).link
    wrong: list[str] = []
    with (
        api.sync_playwright() as started,
        running.connect("ada", make_token(running.policy, "ada")) as client,
    ):
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context(color_scheme=look, viewport={"width": 1200, "height": 1000}).new_page()
        page.on(
            "console", lambda told: wrong.append(told.text) if told.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda told: wrong.append(str(told)))
        page.on("dialog", lambda told: wrong.append(told.message))
        page.goto(f"http://{owner.address}{link}")
        page.wait_for_url("**/policy/**")

        paper, ink = (
            page.evaluate(f"Number(getComputedStyle(document.body).{what}.match(/[\\d.]+/g)[1])")
            for what in ("backgroundColor", "color")
        )
        assert (paper > 200) == (look == "light")
        assert abs(paper - ink) > 120
        assert page.evaluate("document.cookie") == "", "no script can read it"

        before = page.inner_text("#latest tbody tr:first-child")
        client.run(
            f"SELECT COUNT(*) AS n FROM visits WHERE cost > {17 if look == 'light' else 18}", fresh=True
        ).raise_error()
        page.wait_for_function(
            "text => document.querySelector('#latest tbody tr').innerText !== text",
            arg=before,
            timeout=15_000,
        )
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == "#content"
        page.focus("#pause")
        page.keyboard.press("Enter")
        assert page.inner_text("#pause") == "Go on with updates"
        folder = os.environ.get("DPSQL_SHOTS")
        if folder:
            page.screenshot(path=f"{folder}/console-{look}.png", full_page=True)
        for width in (1200, 390):
            page.set_viewport_size({"width": width, "height": 1000})
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        widths = page.eval_on_selector_all(
            ".track rect", "all => all.map(e => e.getBoundingClientRect().width)"
        )
        assert sum(width > 0 for width in widths) >= 3, (
            "the bars have their lengths without a style of their own"
        )
        browser.close()
    assert wrong == []
