"""A separate process for public SQL that may make long texts: its memory and its time end with it.

DuckDB's memory limit does not apply to the texts that one step of a query makes, and nothing stops it within a step,
neither during binding (which computes constants) nor during execution. A process can be stopped, and the system limits
its memory.

The process has a separate :class:`~dpsql.engine.postprocess.Finisher`, over copies of the query's relations. It runs
from its first query until one fails, since starting it takes half a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from dpsql.errors import BindError
from dpsql.interrupts import POLL_SECONDS, is_stop_requested
from dpsql.policy.model import Budget, Policy, Table

MAX_BINDING_SECONDS = 6
"""The most seconds for binding such a query."""
MAX_PROCESS_MEMORY = 640 << 20
"""The most bytes that the process may allocate after its start, far more than its answers."""
_TOO_LARGE = f"its texts need more memory than {MAX_PROCESS_MEMORY >> 20} MiB."
_HINT = "ask for shorter texts."
_STARTUP_SECONDS = 60
_WATCH_SECONDS = 0.02
_HEADER = struct.Struct(">QQ")
_CODE = """
from dpsql.engine.postprocess import Finisher
from dpsql.engine.public_process import serve
serve(Finisher)
"""


@dataclass(frozen=True)
class Sent:
    """A query for the process, with copies of its relations, or their columns alone for binding."""

    which: str
    sql: str
    relations: Mapping[str, Any]
    public: Mapping[str, tuple[Sequence[tuple[str, str]], pa.Table | None]]
    most: int | None = None


class PublicProcess:
    """A process that binds and runs public SQL, started lazily."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, sent: Sent, seconds: float) -> tuple[dict[str, Any], pa.Table | None]:
        """Return a query's column information, and its rows.

        Raises:
            BindError: it failed, or reached a limit.
            KeyboardInterrupt: it was stopped.
        """
        process = self._process or self._start()
        try:
            end = time.monotonic() + seconds
            data = pickle.dumps(sent)
            writer = threading.Thread(target=_write, args=(process, data), daemon=True)
            writer.start()
            said, size = _HEADER.unpack(self._read(_HEADER.size, end))
            answer = json.loads(self._read(said, end))
            rows = self._read(size, end)
        except TimeoutError:
            self.close()
            what = f"it takes longer than {seconds:g} seconds."
            raise BindError(f"above the private part: {what}", hint=_HINT) from None
        except EOFError:
            self.close()
            raise BindError(f"above the private part: {_TOO_LARGE}", hint=_HINT) from None
        except BaseException:
            self.close()
            raise
        if "error" in answer:
            self.close()
            error = BindError(answer["error"], hint=answer["hint"])
            error.name = answer["name"]
            raise error
        return answer, pa.ipc.open_stream(rows).read_all() if size else None

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "MALLOC_ARENA_MAX": "2",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        try:
            process = self._process = subprocess.Popen(
                [sys.executable, "-c", _CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, env=environment, start_new_session=True,
            )  # fmt: skip
            self._read(1, time.monotonic() + _STARTUP_SECONDS)
        except (EOFError, OSError, TypeError):  # including TimeoutError
            self.close()
            raise BindError("above the private part: no process for long texts can be started.") from None
        except BaseException:
            self.close()
            raise
        return process

    def _read(self, size: int, end: float) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        source, found = self._process.stdout.fileno(), bytearray()
        while len(found) < size:
            if is_stop_requested():
                raise KeyboardInterrupt
            if time.monotonic() > end:
                raise TimeoutError
            if select.select([source], [], [], POLL_SECONDS)[0]:
                piece = os.read(source, min(1 << 20, size - len(found)))
                if not piece:
                    raise EOFError
                found += piece
        return bytes(found)

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def _write(process: subprocess.Popen[bytes], data: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):  # it ended: reading its answer shows that
        assert process.stdin is not None
        process.stdin.write(struct.pack(">Q", len(data)) + data)
        process.stdin.flush()


# -- in the process ----------------------------------------------------------------------------------------------------


def _bound_memory() -> None:
    """Limit the process's memory, and end it if the system doesn't enforce the limit."""
    import resource

    scale = 1 if sys.platform == "darwin" else 1024
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale

    def watch() -> None:
        while resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale < base + MAX_PROCESS_MEMORY:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MAX_PROCESS_MEMORY,) * 2)


def serve(make: Callable[..., Any]) -> None:
    """Answer queries with a finisher from ``make``, until the pipe is closed."""
    source, sink = os.dup(0), os.dup(1)
    with contextlib.closing(make(Copies({}), Policy(Budget(Fraction(1))), apart=False)) as finisher:
        finisher.finish("SELECT 1", {})  # loads what every query needs
    _bound_memory()
    os.write(sink, b"+")
    with open(source, "rb") as reader, open(sink, "wb") as writer:
        while head := reader.read(8):
            sent = pickle.loads(reader.read(struct.unpack(">Q", head)[0]))
            tables = {name: Table(name, public=True) for name in sent.public}
            finisher = make(Copies(sent.public), Policy(Budget(Fraction(1)), tables), apart=False)
            with contextlib.closing(finisher):
                said, rows = _answer(finisher, sent)
            writer.write(_HEADER.pack(len(said), len(rows)) + said)
            writer.write(rows)
            writer.flush()


class Copies:
    """The public tables sent with a query."""

    def __init__(self, public: Mapping[str, tuple[Sequence[tuple[str, str]], pa.Table | None]]) -> None:
        self._public = public

    def schema(self, table: Table) -> dict[str, str]:
        """Return names and types of a table's columns."""
        return dict(self._public[table.name][0])

    def public(self, table: Table) -> pa.Table:
        """Return a table's rows."""
        return self._public[table.name][1]

    def orders(self, table: Table) -> dict[str, tuple[str, ...]]:
        """Return none: rows that were sent have their labels in order."""
        return {}


def _answer(finisher: Any, sent: Sent) -> tuple[bytes, bytes]:
    for name, (columns, rows) in sent.public.items():
        if rows is None:
            finisher.hold(name, columns)
    ask: dict[str, Callable[[], Any]] = {
        "describe": lambda: finisher.describe(sent.sql, sent.relations, tuple(sent.public)),
        "running": lambda: finisher.finish(sent.sql, sent.relations, tuple(sent.public), sent.most),
        "lending": lambda: finisher.lend(sent.sql, sent.relations, tuple(sent.public)),
    }
    try:
        found = ask[sent.which]()
    except BindError as error:
        return json.dumps({"error": error.message, "hint": error.hint, "name": error.name}).encode(), b""
    except BaseException:
        what = f"above the private part: {_TOO_LARGE}"
        return json.dumps({"error": what, "hint": _HINT, "name": None}).encode(), b""
    if sent.which == "describe":
        return json.dumps({"columns": found}).encode(), b""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, found.schema) as stream:
        stream.write_table(found)
    return b"{}", out.getvalue().to_pybytes()
