"""The owner's page as the server sees it: where it listens, the one-time link, and the process that writes it.

The page is written by a process of its own, from the ledger that it may only read, so that neither HTTP nor a long ledger slows
the front. Over a socket it asks the front two things: what runs now, and whether a link is good. It also tells how many
connections it dropped. Nothing else is answered.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from dpsql.client.wire import Message
from dpsql.errors import ServerError
from dpsql.server.arrivals import log_dropped
from dpsql.server.event_log import EventLog, name_place
from dpsql.server.frames import FrameError, Frames
from dpsql.server.listening import bind_socket, is_loopback
from dpsql.server.served import ServedPolicy
from dpsql.server.worker_process import select_environment

MAX_STARTS = 5
"""The number of times that the process is started in all, where it ends by itself."""
_LINK_BYTES = 24
_CLOSING_SECONDS = 5.0
_BACKLOG = 64
_OWN_MASK = 0o177


class Console:
    """The owner's page while a server runs. Make it, then :meth:`start`; :meth:`close` ends it.

    Args:
        listen: ``host:port`` of this machine, or ``unix:/path`` of a socket that its owner alone may use.
        served: the policies.
        log: the log, whose latest lines the page shows.
        out: gets a line with each one-time link.

    Raises:
        ServerError: nothing can listen there, others could read along, or the libraries of the extra are missing.
    """

    def __init__(self, listen: str, served: Sequence[ServedPolicy], log: EventLog, out: TextIO) -> None:
        missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
        if missing:
            raise ServerError(
                f"the owner's page needs {' and '.join(missing)}.", hint="pip install 'dpsql[server]'"
            )
        self._served, self._log, self._out = served, log, out
        self._path = Path(listen.removeprefix("unix:")).absolute() if listen.startswith("unix:") else None
        self._socket = _open_socket(listen, self._path)
        self._key = ""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._closed = False

    @property
    def address(self) -> str:
        """The page's address, without a link."""
        if self._path is not None:
            return "http://localhost"
        host, port = self._socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def start(self) -> None:
        """Start the process, and print a link."""
        threading.Thread(target=self._keep_running, daemon=True, name="dpsql-console").start()
        self.print_link()

    def print_link(self) -> None:
        """Make another link, which works once, in place of the one before, and print it."""
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
                self.print_link()  # what the process knew of browsers is gone
            self._run_once()
            if self._closed:
                return
        self._log.write("console ended", why=f"its process ended {MAX_STARTS} times")

    def _run_once(self) -> None:
        """Start the process, and answer it until it ends."""
        ours, theirs = socket.socketpair()
        read, write = os.pipe()
        command = [sys.executable, "-P", "-m", "dpsql.server.console_process"]
        handed = (theirs.fileno(), read, self._socket.fileno())
        try:
            with self._lock:
                if self._closed:
                    return
                self._process = subprocess.Popen(
                    [*command, *map(str, handed)],
                    pass_fds=handed,
                    env=select_environment("TZ"),
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
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

    def _describe(self) -> dict[str, Any]:
        """Return the first frame's head: the policies and their ledgers."""
        places = [
            {"name": one.name, "policy": str(one.places.policy.absolute()), "ledger": str(one.places.ledger.absolute())}
            for one in self._served
        ]  # fmt: skip
        host = "" if self._path is not None else self._socket.getsockname()[0]
        return {"kind": "setup", "policies": places, "host": host}

    def _answer(self, asked: Message) -> dict[str, Any]:
        """Answer the process.

        Raises:
            FrameError: it asks something else.
        """
        kind = asked.head["kind"]
        if kind == "live":
            return {
                "kind": "live",
                "policies": [one.tell() for one in self._served],
                "events": self._log.recent,
            }
        if kind == "enter":
            return {"kind": "enter", "good": self._use_link(asked.head.get("key"))}
        if kind == "dropped":
            count, addresses, why = (asked.head.get(part) for part in ("count", "addresses", "why"))
            log_dropped(self._log, int(str(count)[:9]), str(addresses), str(why))
            return {"kind": "dropped"}
        raise FrameError("a frame of an unknown kind")

    def _use_link(self, key: object) -> bool:
        """Tell whether a link is the one that was printed last, and let it work no more if so."""
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
        self._socket.close()
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()


def _open_socket(listen: str, path: Path | None) -> socket.socket:
    """Return a socket that listens.

    Raises:
        ServerError: it can't, or others could read along.
    """
    if path is not None:
        return bind_socket(path, _OWN_MASK, _BACKLOG)
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ServerError(
            f"{listen!r} is no place for the owner's page.",
            hint="--console 127.0.0.1:8080, or --console unix:/run/dpsql/console.sock",
        )
    if not is_loopback(host):
        raise ServerError(
            "the owner's page speaks no TLS, and is for this machine alone.",
            hint=f"--console 127.0.0.1:{port}, and from elsewhere ssh -L {port}:127.0.0.1:{port} with this machine.",
        )
    try:
        return socket.create_server(
            (host.strip("[]"), int(port)),
            family=socket.AF_INET6 if ":" in host else socket.AF_INET,
            backlog=_BACKLOG,
        )
    except OSError:
        raise ServerError(
            f"the owner's page can't listen on {listen}.", hint="is the port in use? Port 0 takes a free one."
        ) from None
