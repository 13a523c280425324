"""The engine: exact SQL over private tables, the interface of every database that has them.

To add an engine, write one module with a subclass of :class:`Engine`, the only importer of its package. The subclass
must pass ``EngineContract`` in ``tests/support/engine_contract.py``.

Rows that do not fit memory are spilled. DuckDB makes its spill files with mode 0644, in a directory with mode 0755 that remains
when the process is killed. So each engine gets a directory with mode 0700, which is removed when the engine is closed. A killed
process's directory is removed by the next engine that spills to the same place: each directory has a file locked by its process,
made before and removed after it, and the operating system releases the lock however the process ends.
"""

from __future__ import annotations

import abc
import contextlib
import glob
import hashlib
import os
import re
import secrets
import shutil
import stat
import tempfile
import threading
import uuid
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from dpsql.engine import sandbox
from dpsql.errors import EngineError, PolicyError
from dpsql.ledger.state_files import OWNER_ONLY, hash_files, make_private_directory, make_state_directory
from dpsql.mechanisms.base import OutOfMemory
from dpsql.policy.model import Policy, Table
from dpsql.privacy.periods import Days

WITHHELD = "the engine failed while it read private data; why is withheld."
LITTLE_ROWS, LITTLE_BYTES = 30_000, 100_000
"""The most rows of a table, and bytes of files, for which its plain query is faster than examining the data first."""
MAX_MEMORIES = 4
"""The most tables, or sets of them, with cached facts."""
DECLARED, IN_NO_FILE = "version ", "session "
"""Prefixes of a table's version: declared by the policy, and for data in no file."""


class Engine(abc.ABC):
    """Exact SQL over private tables; only the asking operator sees an answer.

    A subclass names the tables, returns their schemas and runs queries. This class binds queries before payment, runs
    those without private tables, detects changes of data, and stops and closes its resources.

    ``resources``: settings of the DuckDB for queries over public relations alone; ``time_limit``: seconds after which
    such a query fails.
    """

    dialect: str = "duckdb"
    """The sqlglot dialect of :meth:`relation`."""
    lossless: bool = False
    """Whether public relations may have DuckDB's own Arrow types, which preserve UUIDs and 128-bit integers."""
    parallel: bool = False
    """Whether several threads may read at once."""
    wide_integers: bool = False
    """Whether 128-bit products and quotients are exact, and fast enough to add up instead of sorting."""

    def orders(self, table: Table) -> Mapping[str, tuple[str, ...]]:
        """Return the labels of a table's columns of an ordered type, in that order; exact queries see texts."""
        return {}

    def __init__(
        self,
        policy: Policy,
        base: Path,
        resources: Mapping[str, str] | None = None,
        time_limit: float | None = None,
    ) -> None:
        self.policy = policy
        self._base = base
        self._resources = dict(resources or {})
        self._time_limit = time_limit
        self._lock, self._replica_lock = threading.RLock(), threading.RLock()
        self._stop = threading.Event()
        self._stops: set[threading.Event] = set()
        self._memory_lock = threading.Lock()
        self._memories: dict[tuple[str, ...], tuple[object, dict[str, object]]] = {}
        self._rows: dict[str, int] = {}
        self._token = uuid.uuid4().hex
        self._spill = make_spill_directory(self._resources.pop("temp_directory", None))
        self._sandbox = sandbox.Sandbox(self._spill.subdirectory("apart"), self._resources)
        self._replica: sandbox.SchemaReplica | None = None
        self._fingerprint()

    def _fingerprint(self) -> None:
        tables = self.policy.tables.values()
        self.versions, self._version = fingerprint_data(tables, self.files, self._token, self.digest_frame)

    @property
    def time_zone(self) -> str:
        """The time zone in which exact queries read and format timestamps."""
        return "UTC"

    def make_spill_folder(self) -> Path:
        """Create a private directory for exact rows that an operator can't keep in memory; it ends with the engine."""
        return Path(self._spill.subdirectory(f"rows-{secrets.token_hex(8)}"))

    @property
    def room(self) -> int:
        """Rows of eight bytes that an operator may keep at once; 0 if rows must stay in the engine."""
        return 0

    @property
    def threads(self) -> int:
        """The threads that process a query, if local; an operator may use this number."""
        return 1

    def reads_little(self, sql: str, lent: Mapping[str, pa.Table]) -> bool:
        """Return whether a text reads only small relations. The result is private; it only selects between equivalent routes."""
        few = all(table.num_rows <= LITTLE_ROWS for table in lent.values())
        return few and not any(name in sql for name in self._large)

    @cached_property
    def _large(self) -> tuple[str, ...]:
        """The names in exact texts of all tables that may be large, as first known."""
        rows = self.estimate_rows()
        return tuple(self.relation(t) for t in self.policy.tables.values() if not self._is_little(t, rows))

    def _is_little(self, table: Table, rows: Mapping[tuple[str, ...], int]) -> bool:
        path = self.path(table)
        if path is not None:
            return path in rows and rows[path] <= LITTLE_ROWS
        with contextlib.suppress(OSError):
            files = self.files(table)
            return files is not None and sum(os.stat(file).st_size for file in files) <= LITTLE_BYTES
        return False

    def count_rows(self, sql: str) -> int:
        """Return about how many rows a text's large tables have. The result is private: it only selects equivalent routes."""
        names = [name for name in self._large if name in sql]
        for name in names:
            if name not in self._rows:
                self._rows[name] = self.estimate(name)
        return sum(self._rows[name] for name in names)

    def estimate(self, relation: str) -> int:
        """Return the approximate number of rows of a relation; 0 if only reading them would show it."""
        return 0

    def remember(self, sql: str) -> MutableMapping[str, object] | None:
        """Return a private cache for facts about a text's tables, replaced when files change; None if data change unnoticed."""
        return self._remember(sql, self.find_state)

    def remember_units(self, sql: str) -> MutableMapping[str, object] | None:
        """Return such a cache for a text that reads only the unit columns of tables."""
        return self._remember(sql, self.find_state_of_units)

    def _remember(self, sql: str, find: Callable[[Table], object]) -> MutableMapping[str, object] | None:
        named = [table for table in self.policy.tables.values() if self.relation(table) in sql]
        state = tuple(find(table) for table in named)
        if not named or None in state:
            return None
        key = tuple(table.name for table in named)
        with self._memory_lock:
            kept = self._memories.pop(key, None)
            if kept is None or kept[0] != state:
                kept = (state, {})
            self._memories[key] = kept
            for old in list(self._memories)[:-MAX_MEMORIES]:
                del self._memories[old]
            return kept[1]

    def hold_snapshot(
        self, sql: str
    ) -> contextlib.AbstractContextManager[MutableMapping[str, object] | None]:
        """Return a context in which this thread's texts see one state of a text's tables, with that state's cache, if any."""
        return contextlib.nullcontext()

    def find_state(self, table: Table) -> object:
        """Return a value that changes if a table's rows may have changed; None if unknown."""
        return find_states(self.files(table) or ())

    def find_state_of_units(self, table: Table) -> object:
        """Return a value that changes if a table's units may have changed; None if unknown."""
        return self.find_state(table)

    def estimate_rows(self) -> Mapping[tuple[str, ...], int]:
        """Return the approximate rows of the owner's tables, by their places; empty if unknown."""
        return {}

    def within(self, days: Days | None) -> contextlib.AbstractContextManager[None]:
        """Return a context in which this thread's texts need no row of other days from tables that declare a period.

        Each scan of these tables keeps such rows out, so an engine may leave out their files. None: all days.
        """
        return contextlib.nullcontext()

    @property
    def macros(self) -> frozenset[str]:
        """Functions defined in the owner's database; no exact query may call one of these names."""
        return frozenset()

    def read_again(self, before: Callable[[], None]) -> bool:
        """Read files that are new or have changed since they were last read, and return whether there are any.

        No query may run meanwhile. If it fails, each further call tries again.

        Args:
            before: called before a row is read, since the time that it takes depends on the rows.

        Raises:
            PolicyError: a file can't be read.
        """
        return False

    @property
    @abc.abstractmethod
    def dataset(self) -> str:
        """The name of the data in the ledger, constant while the data describe the same people."""

    @abc.abstractmethod
    def place(self, table: Table) -> tuple[str, str, str]:
        """Return the catalog, schema and name of a table in exact queries."""

    @property
    def home(self) -> tuple[str, ...]:
        """The default catalog and schema; empty if tables have plain names only."""
        return ()

    def path(self, table: Table) -> tuple[str, str, str] | None:
        """Return the catalog, schema and name of a table in the owner's database; None for a file, a frame or a view of ours."""
        return None

    @abc.abstractmethod
    def schema(self, table: Table) -> Mapping[str, str]:
        """Return a table's columns and DuckDB types, in order, without reading a row; PolicyError if its source is missing."""

    @abc.abstractmethod
    def execute(self, sql: str, lent: Mapping[str, pa.Table] | None = None) -> pa.Table:
        """Run one exact query, with additional public relations by name.

        Raises:
            EngineError: it failed; the engine's message, which may contain values, is dropped.
            KeyboardInterrupt: the user stopped it.
        """

    def files(self, table: Table) -> Sequence[str] | None:
        """Return the local files of a whole table; None if there are none."""
        return None

    def digest_frame(self, table: Table) -> str | None:
        """Return a digest of a table's rows if it is a given frame, else None."""
        return None

    def relation(self, table: Table) -> str:
        """Return the fully qualified SQL name of a table for a FROM clause."""
        return ".".join(map(sandbox.quote_identifier, self.place(table)))

    def public(self, table: Table) -> pa.Table:
        """Return all rows of a public table, for SQL over releases."""
        assert table.public, "only public tables are read whole"
        wide = {
            c: written for c, kind in self.schema(table).items() if (written := write_exit_type(kind)) != kind
        }
        casts = ", ".join(
            f"CAST({quoted} AS {kind}) AS {quoted}"
            for c, kind in wide.items()
            if (quoted := sandbox.quote_identifier(c))
        )
        columns = f"* REPLACE ({casts})" if casts else "*"
        return self.execute(f"SELECT {columns} FROM {self.relation(table)}")

    def version(self) -> str:
        """Return a text that changes with any table's content or declared version, as last read."""
        return self._version

    def check(self, sql: str, lent: Mapping[str, sandbox.TypedColumns], apart: bool = False) -> str | None:
        """Bind an exact query against an empty copy of the schema, before payment; BindError if it fails whatever the data.

        ``apart``: whether it reads public relations alone, and is run by :meth:`apart`.

        Returns:
            The text that runs instead, if :meth:`translate` returns one.
        """
        with self._replica_lock:
            self.replica.check(sql, lent)
        return None

    def plan(self, sql: str, lent: Mapping[str, sandbox.TypedColumns], of: str = "") -> str:
        """Return DuckDB's bound plan of an exact query over empty tables; ``of``: an equivalent query that needs no check."""
        with self._replica_lock:
            return self.replica.plan(sql, lent, of)

    def parse(self, sql: str) -> str:
        """Return DuckDB's own tree of an exact query, for the second lock."""
        with self._replica_lock:
            return self.replica.parse(sql)

    def plan_late(self, sql: str, lent: Mapping[str, pa.Table]) -> str:
        """Return that plan for a query written during a release, with its additional relations."""
        with self._replica_lock:
            columns = {name: self.replica.describe(table) for name, table in lent.items()}
            return self.replica.plan(sql, columns)

    @property
    def replica(self) -> sandbox.SchemaReplica:
        """The empty copy of the schema, opened lazily."""
        if self._replica is None:
            tables = self.policy.tables.values()
            self._replica = sandbox.SchemaReplica.of(
                (self.place(t), list(self.schema(t).items())) for t in tables
            )
        return self._replica

    def check_lent(self, table: pa.Table) -> None:
        """Raise BindError if the engine can't represent a value of a public relation that is known before payment."""
        return

    def apart(self, sql: str, lent: Mapping[str, pa.Table]) -> pa.Table:
        """Run a query over public relations alone, apart from the private data; raises as :meth:`execute`."""
        stop = threading.Event()
        self._stops.add(stop)
        try:
            outcome = self._sandbox.run(sql, lent, stop, self._time_limit)
        finally:
            self._stops.discard(stop)
        raise_unless_done(outcome.state)
        assert outcome.table is not None
        return outcome.table

    def translate(self, sql: str, lent: Mapping[str, pa.Table]) -> str | None:
        """Return an exact query in the engine's language, which is also proved; None if it runs unchanged."""
        return None

    def batches(self, sql: str, lent: Mapping[str, pa.Table] | None = None) -> Iterator[pa.Table]:
        """Yield the rows of an exact query in parts, at least one; raises as :meth:`execute`."""
        yield self.execute(sql, lent)

    def numbers(self, sql: str, lent: Mapping[str, pa.Table] | None = None) -> Iterator[pa.Table]:
        """Yield one numeric column as :meth:`batches` does; decimals may have no more bits than needed."""
        return self.batches(sql, lent)

    def _run_parts(self, parts: Generator[pa.Table], interrupt: Callable[[], object]) -> Iterator[pa.Table]:
        """Yield the parts of a query, one query at a time, each computed in a thread that the stop button ends.

        Args:
            parts: a generator that releases its relations when closed; its errors are dropped.
            interrupt: asks the engine to end the query.

        Raises:
            EngineError, KeyboardInterrupt: as for :meth:`execute`.
        """
        with self._lock:
            state, _ = yield from self._run_steps(parts, interrupt)
        raise_unless_done(state)

    def _run_steps(
        self, parts: Generator[pa.Table], interrupt: Callable[[], object], whole: bool = False
    ) -> Generator[pa.Table, None, tuple[str, bool]]:
        """Yield a query's parts as :meth:`_run_parts` (one if ``whole``); return its end, and whether the instance broke."""
        stop = threading.Event()
        self._stops.add(stop)
        try:
            while True:
                outcome = sandbox.run_interruptibly(
                    lambda: next(parts, None), interrupt, stop, self._time_limit
                )
                broken = outcome.failure is not None and issubclass(outcome.failure, sandbox.FATAL_ERRORS)
                if outcome.table is None:
                    return outcome.state, broken
                yield outcome.table
                if whole:
                    return outcome.state, broken
        finally:
            self._stops.discard(stop)
            with contextlib.suppress(Exception):
                parts.close()

    def _forget(self) -> None:
        """Forget what is known of the data: cached facts, numbers of rows, the schema."""
        if self._replica is not None:
            self._replica.put_away()
            self._replica = None
        self._memories.clear()
        self._rows.clear()
        self.__dict__.pop("_large", None)

    def interrupt(self) -> None:
        """Stop the running queries, from any thread."""
        self._stop.set()
        for stop in list(self._stops):
            stop.set()

    def close(self) -> None:
        """Close the engine's resources."""
        self._forget()
        self._sandbox.close()
        self._spill.close()


_TYPE_WORDS = re.compile(r"\"(?:[^\"]|\"\")*\"|'(?:[^']|'')*'|\bU?HUGEINT\b")


def write_exit_type(kind: str) -> str:
    """Return a type with text in place of 128-bit integers, which Arrow lacks.

    >>> write_exit_type('STRUCT("HUGEINT" HUGEINT, b UHUGEINT[])')
    'STRUCT("HUGEINT" VARCHAR, b VARCHAR[])'
    """
    return _TYPE_WORDS.sub(lambda found: found[0] if found[0][0] in "\"'" else "VARCHAR", kind)


def raise_unless_done(state: str) -> None:
    """Raise the error for a query's end; do nothing if it succeeded.

    Raises:
        KeyboardInterrupt: it was stopped.
        EngineError: it failed, always with the same message.
        OutOfMemory: it failed for lack of memory, with that message too.
    """
    if state == "stopped":
        raise KeyboardInterrupt
    if state == "full":
        raise OutOfMemory(WITHHELD)
    if state == "failed":
        raise EngineError(WITHHELD)


def find_states(paths: Iterable[str]) -> tuple[tuple[int, ...], ...] | None:
    """Return a value that changes if a file does; None if there is none, or one is missing."""
    with contextlib.suppress(OSError):
        found = [os.stat(path) for path in sorted(paths)]
        return tuple((f.st_dev, f.st_ino, f.st_size, f.st_mtime_ns) for f in found) or None
    return None


def look_at_files(patterns: Iterable[str]) -> tuple[object, ...]:
    """Return a value that changes if a file of these patterns does, or if there is another."""
    listed = [
        (path, find_states([path])) for pattern in patterns for path in glob.glob(pattern, recursive=True)
    ]
    return tuple(sorted(listed, key=lambda item: item[0]))


def write_absolute(table: Table, base: Path) -> str:
    """Return a table's source as an absolute path or pattern; a relative one starts from ``base``."""
    pattern = os.path.expanduser(table.source or "")
    return pattern if os.path.isabs(pattern) else str(base.resolve() / pattern)


def list_origins(table: Table, files: Iterable[str], base: Path) -> list[str]:
    """Return the texts that name a table's files in the ledger: their paths, or one pattern, since files may be added."""
    return [write_absolute(table, base)] if table.several and "://" not in (table.source or "") else [*files]


def find_files(table: Table, base: Path) -> list[str]:
    """Return the sorted real paths of a source's files; PolicyError if there are none."""
    pattern = write_absolute(table, base)
    paths = sorted(os.path.realpath(path) for path in glob.glob(pattern, recursive=True))
    if not paths:
        raise PolicyError(
            f"the source {table.source} of {table.name} does not exist.",
            hint=f"relative sources start from {base}.",
        )
    return paths


def fingerprint_data(
    tables: Iterable[Table],
    files: Callable[[Table], Sequence[str] | None],
    token: str,
    digest: Callable[[Table], str | None] = lambda table: None,
) -> tuple[dict[str, str], str]:
    """Return a version of each table's data, and one of all data together.

    A version that the policy declares replaces the content. A table's version includes only those parts of a file's
    path that affect rows (``year=2024/``); the version of all data includes whole paths.

    Args:
        files: returns the local files of a whole table; None if there are none.
        token: a text for data that are in no file, new in each session.
        digest: returns the digest of a frame's rows, which is its version.
    """
    files_of = {t.name: [] if t.version is not None else files(t) for t in tables}
    digests = hash_files({path for paths in files_of.values() for path in paths or ()})
    each: dict[str, str] = {}
    parts: dict[str, None] = {}
    for table in tables:
        paths = files_of[table.name]
        if table.version is not None:
            each[table.name] = DECLARED + table.version
            parts[f"{table.name} version {table.version}"] = None
        elif paths is None and (content := digest(table)) is not None:
            each[table.name] = content
            parts[f"{table.name} frame {content}"] = None
        elif paths is None:
            each[table.name] = IN_NO_FILE + token
            parts[token] = None
        else:
            folders = {
                path: "/".join(part for part in Path(path).parts[:-1] if "=" in part) for path in paths
            }
            each[table.name] = hash_lines(f"{folders[path]}:{digests.get(path, token)}" for path in paths)
    return each, hash_lines([*parts, *(f"{path}:{digest}" for path, digest in digests.items())])


def hash_lines(lines: Iterable[str]) -> str:
    """Return the SHA-256 of lines of text."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


try:
    import fcntl
except ImportError:  # Windows: an open file can't be removed, which serves as a lock
    fcntl = None  # type: ignore[assignment]

SPILL_PREFIX = "dpsql-spill-"
_LOCK = ".lock"
_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class SpillDirectory:
    """A directory for one engine's spilled files, private to this user and removed when its last user closes it.

    ``parent`` is its parent directory; None for the state directory, or else the one for temporary files. OSError if it
    can't be made.
    """

    def __init__(self, parent: str | Path | None = None) -> None:
        self.path = _make(_default_parent() if parent is None else Path(parent).expanduser())
        self._users: set[object] = {None}
        self._finalizer = weakref.finalize(self, _remove, self.path, _HELD[self.path], os.getpid())

    def subdirectory(self, name: str) -> str:
        """Create a subdirectory with mode 0700, and return its path; each instance of DuckDB needs a separate one."""
        inner = self.path / name
        make_private_directory(inner)
        return str(inner)

    def keep_for(self, user: object) -> None:
        """Keep the directory until this user also closes it: an instance may outlive the engine that opened it."""
        self._users.add(user)

    def close(self, user: object = None) -> None:
        """Remove the directory and its content, unless it has other users; idempotent."""
        self._users.discard(user)
        if not self._users:
            self._finalizer()


def make_spill_directory(place: str | None) -> SpillDirectory:
    """Create a spill directory, by default in the state directory; PolicyError if impossible."""
    with contextlib.suppress(OSError):
        return SpillDirectory(place)
    raise PolicyError(
        f"dpsql can't create a directory for spilled rows below {place or 'the state directory'}.",
        hint='name a directory that you may write to: resources={"temp_directory": "/scratch"}.',
    )


_HELD: dict[Path, int] = {}
"""The directories of this process, with the open files whose locks claim them."""


def _default_parent() -> Path:
    with contextlib.suppress(OSError):
        parent = make_state_directory() / "spill"
        make_private_directory(parent)
        if os.access(parent, os.W_OK | os.X_OK):
            return parent
    return Path(tempfile.gettempdir())


def _make(parent: Path) -> Path:
    if not parent.is_dir():
        make_private_directory(parent)
    parent = parent.resolve()
    _sweep(parent)
    while True:
        path = parent / f"{SPILL_PREFIX}{secrets.token_hex(8)}"
        lock = _lock_path(path)
        descriptor = os.open(lock, _FLAGS | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        if _take_lock(descriptor) is False or not _is_same(descriptor, lock):
            os.close(descriptor)  # another process removed the file between the two steps
            continue
        try:
            path.mkdir(mode=0o700)
            path.chmod(0o700)
        except OSError:
            _remove(path, descriptor, os.getpid())
            raise
        _HELD[path] = descriptor
        return path


def _sweep(parent: Path) -> None:
    """Remove the directories of processes that have ended, as far as possible."""
    with contextlib.suppress(OSError):
        for lock in list(parent.glob(f"{SPILL_PREFIX}*{_LOCK}")):
            path = lock.with_name(lock.name.removesuffix(_LOCK))
            if path not in _HELD:
                with contextlib.suppress(OSError):
                    _sweep_one(path, lock)


def _sweep_one(path: Path, lock: Path) -> None:
    found = os.lstat(lock)
    if not stat.S_ISREG(found.st_mode) or (hasattr(os, "getuid") and found.st_uid != os.getuid()):
        return
    if fcntl is None:
        lock.unlink()  # fails while its process has it open
        shutil.rmtree(path, ignore_errors=True)
        return
    descriptor = os.open(lock, _FLAGS)
    if _take_lock(descriptor) and _is_same(descriptor, lock):
        _remove(path, descriptor, os.getpid())
    else:
        os.close(descriptor)


def _take_lock(descriptor: int) -> bool | None:
    """Take the lock; False if another process has it, None if there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if isinstance(error, BlockingIOError) else None
    return True


def _is_same(descriptor: int, lock: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(lock))
    except OSError:
        return False


def _remove(path: Path, descriptor: int, pid: int) -> None:
    if pid != os.getpid():
        return  # a forked process: the directory is its parent's
    _HELD.pop(path, None)
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):  # never through a link
            shutil.rmtree(path, ignore_errors=True)
    if fcntl is None:
        os.close(descriptor)
    if not path.exists():
        with contextlib.suppress(OSError):
            _lock_path(path).unlink()
    if fcntl is not None:
        os.close(descriptor)


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + _LOCK)


def _forget_directories() -> None:
    """Release the locks in a forked process, which would otherwise outlive the process that owns them."""
    for descriptor in _HELD.values():
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_directories)
