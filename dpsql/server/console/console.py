"""The front's side of the owner's page and of the metrics: their sockets, one-time links, and their process.

A separate process (:mod:`dpsql.server.console.process`) writes the page and the metrics from the ledger, which it may only
read, so that neither HTTP nor a long ledger slows the front. The process asks the front which calls run and whether a link is
valid. The front answers nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

from dpsql.client.channel import is_this_machine, read_secret
from dpsql.client.wire import Message
from dpsql.errors import ServerError
from dpsql.late_dataclass import dataclass
from dpsql.server.connections import ListenPlace, TlsFiles, open_listener, read_place
from dpsql.server.event_log import EventLog, name_place
from dpsql.server.frames import FrameError, Frames
from dpsql.server.served import ServedPolicy
from dpsql.server.worker_process import select_environment, start_program

MAX_STARTS = 5
"""How often the process is started in all."""
_LINK_BYTES = 24
_CLOSING_SECONDS = 5.0
_BACKLOG = 64
_OWN_MASK = 0o177
_LEAST_TOKEN = 16


@dataclass(frozen=True)
class MetricsPlace:
    """Where metrics are served.

    Args:
        listen: ``host:port``, or ``unix:/path`` of a socket that only its owner may use.
        token: the file with the token that a scrape needs; None for a Unix socket only.
        tls: the certificate's files; None on loopback and Unix sockets.
    """

    listen: str
    token: Path | None = None
    tls: TlsFiles | None = None

    def open(self) -> tuple[socket.socket, dict[str, object]]:
        """Return the listening socket, and the setup of its process; ServerError if the address or the token can't be used."""
        place = read_place(self.listen, self.tls is not None, "--metrics 127.0.0.1:9464")
        is_port = not isinstance(place, Path)
        if is_port and self.token is None:
            hint = (
                "openssl rand -hex 32 > metrics.token; chmod 600 metrics.token; --metrics-token metrics.token"
            )
            raise ServerError(
                "metrics on a port need a token, or anyone could read the analysts' names.", hint=hint
            )
        token = "" if self.token is None else read_secret(self.token)
        if self.token is not None and len(token) < _LEAST_TOKEN:
            raise ServerError(
                f"{self.token} has no token of {_LEAST_TOKEN} characters or more.",
                hint="openssl rand -hex 32",
            )
        digest = hashlib.sha256(token.encode()).hexdigest() if token else ""
        tls = self.tls if is_port else None
        files = [] if tls is None else [str(file.absolute()) for file in (tls.certificate, tls.key)]
        return open_listener(place, _OWN_MASK, _BACKLOG), {"digest": digest, "files": files}


class Console:
    """The owner's page and the metrics while a server runs, from :meth:`start` to :meth:`close`.

    Args:
        listen: ``host:port`` of this machine, or ``unix:/path`` of a socket that only its owner may use; None for no page.
        served: the policies.
        log: gets events.
        out: gets a line with each one-time link.
        metrics: where metrics are served; None for none.
        find_ends: returns when the server's certificates expire.

    Raises:
        ServerError: an address can't be used or isn't of this machine, or the extra's libraries are missing.
    """

    def __init__(
        self,
        listen: str | None,
        served: Sequence[ServedPolicy],
        log: EventLog,
        out: TextIO,
        metrics: MetricsPlace | None = None,
        find_ends: Callable[[], dict[str, datetime]] = dict,
    ) -> None:
        missing = [name for name in ("starlette", "uvicorn", "prometheus_client") if find_spec(name) is None]
        if missing:
            what = f"the owner's page and metrics need {' and '.join(missing)}."
            raise ServerError(what, hint="pip install 'dpsql[server]'")
        self._served, self._log, self._out, self._find_ends = served, log, out, find_ends
        place = None if listen is None else _read_own_place(listen)
        self._path = place if isinstance(place, Path) else None
        self._socket = None if place is None else open_listener(place, _OWN_MASK, _BACKLOG)
        self._metrics: socket.socket | None = None
        self._metrics_setup: dict[str, object] | None = None
        if metrics is not None:
            self._metrics, self._metrics_setup = metrics.open()
        self._key = ""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._closed = False

    @property
    def address(self) -> str:
        """The page's address, without a link."""
        if self._path is not None or self._socket is None:
            return "http://localhost"
        host, port = self._socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def start(self) -> None:
        """Start the process, and print a link."""
        threading.Thread(target=self._keep_running, daemon=True, name="dpsql-console").start()
        if self._metrics is not None and self._metrics.family != socket.AF_UNIX:
            host, port = self._metrics.getsockname()[:2]
            print(f"metrics on {f'[{host}]' if ':' in host else host}:{port}", file=self._out, flush=True)
        self.print_link()

    def print_link(self) -> None:
        """Make a new one-time link, which replaces the last one, and print it."""
        if self._socket is None:
            return
        with self._lock:
            self._key = secrets.token_urlsafe(_LINK_BYTES)
            where = "" if self._path is None else f" over {self._path}"
            line = f"console at {self.address}/enter?key={self._key}{where} (this link works once)"
        with suppress(OSError, ValueError):
            print(line, file=self._out, flush=True)

    def _keep_running(self) -> None:
        for start in range(MAX_STARTS):
            if start:
                self._log.write("console restarted", count=start)
                self.print_link()  # the new process knows no browsers
            self._run_once()
            if self._closed:
                return
        self._log.write("console ended", why=f"its process ended {MAX_STARTS} times")

    def _run_once(self) -> None:
        """Start the process, and answer its questions until it ends."""
        ours, theirs = socket.socketpair()
        read, write = os.pipe()
        listening = [sock.fileno() for sock in (self._socket, self._metrics) if sock is not None]
        files = (theirs.fileno(), read, *listening)
        try:
            with self._lock:
                if self._closed:
                    return
                self._process = start_program("dpsql.server.console.process", files, select_environment("TZ"))
                self._pipe = write
        finally:
            theirs.close()
            os.close(read)
        frames = Frames(ours)
        try:
            frames.send(self._describe())
            while True:
                frames.send(self._answer(frames.receive()))
        except FrameError:
            pass
        except Exception as error:
            self._log.write("failure", why=name_place(error))
        finally:
            frames.close()
            self._end_process()

    def _describe(self) -> dict[str, object]:
        """Return the first frame's head: the policies and their ledgers."""
        places = [
            {
                "name": one.name,
                "policy": str(one.places.policy.absolute()),
                "ledger": str(one.places.ledger.absolute()),
            }
            for one in self._served
        ]
        host = "" if self._path is not None or self._socket is None else self._socket.getsockname()[0]
        shown = {"page": self._socket is not None, "metrics": self._metrics_setup}
        return {"kind": "setup", "policies": places, "host": host, **shown}

    def _answer(self, asked: Message) -> dict[str, object]:
        kind = asked.head["kind"]
        if kind == "live":
            return {
                "kind": "live",
                "policies": [one.summarize() for one in self._served],
                "counts": dict(self._log.counts),
                "certificates": {name: end.isoformat() for name, end in self._find_ends().items()},
            }
        if kind == "enter":
            return {"kind": "enter", "good": self._use_link(asked.head.get("key"))}
        raise FrameError("a frame of an unknown kind")

    def _use_link(self, key: object) -> bool:
        """Return whether a link is the last one printed; it then expires."""
        if not isinstance(key, str):
            return False
        with self._lock:
            good = bool(self._key) and hmac.compare_digest(key.encode(), self._key.encode())
            if good:
                self._key = ""
        self._log.write("console entered" if good else "refused link")
        return good

    def _end_process(self) -> None:
        process = self._process
        if self._pipe >= 0:
            os.close(self._pipe)  # its end ends the process
            self._pipe = -1
        if process is not None:
            try:
                process.wait(_CLOSING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def close(self) -> None:
        """End the process, and listen no more."""
        with self._lock:
            self._closed = True
            process = self._process
        if process is not None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_CLOSING_SECONDS)
            if process.poll() is None:
                process.kill()
        for sock in filter(None, (self._socket, self._metrics)):
            place = sock.getsockname() if sock.family == socket.AF_UNIX else None
            sock.close()
            if place is not None:
                with suppress(OSError):
                    Path(place).unlink()


def _read_own_place(listen: str) -> ListenPlace:
    """Return the page's address, which is this machine's."""
    place = read_place(listen, True, "--console 127.0.0.1:8080, or --console unix:/run/dpsql/console.sock")
    if not isinstance(place, Path) and not is_this_machine(place[0]):
        port = place[1]
        raise ServerError(
            "the owner's page has no TLS, and is for this machine only.",
            hint=f"--console 127.0.0.1:{port}, and from another machine ssh -L {port}:127.0.0.1:{port} to this one.",
        )
    return place
