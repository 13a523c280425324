"""A PEP 249 driver over a session, for tools that use DB-API: ``read_sql`` of pandas, ``%sql`` of JupySQL.

    connection = dpsql.dbapi.connect("visits.duckdb", policy="policy.toml")
    pandas.read_sql("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward", connection)

Every answer is private and charged, as in a session. There are no transactions: charges are final, so commit and
rollback do nothing. Parameters are ``?`` with a sequence, or ``$name`` with a mapping.
"""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpsql import errors
from dpsql.errors import BindError, Error

if TYPE_CHECKING:
    from dpsql.session.interface import AnalystSession
    from dpsql.session.result import LowHigh, Result

apilevel = "2.0"
threadsafety = 2
"""Threads may share connections, but not cursors."""
paramstyle = "qmark"


class Warning(Exception):
    """PEP 249; never raised."""


class InterfaceError(Error):
    """Misuse of the driver: a closed cursor, nothing to fetch."""


class DatabaseError(Error):
    """An error of the statement or the session. ``reason`` is the original error, if any."""

    reason: Error | None = None


class DataError(DatabaseError):
    """PEP 249; never raised: errors reveal nothing about data."""


class OperationalError(DatabaseError):
    """An error of the budget, the ledger, the engine or the policy."""


class IntegrityError(DatabaseError):
    """PEP 249; never raised: nothing is written."""


class InternalError(DatabaseError):
    """PEP 249; never raised."""


class ProgrammingError(DatabaseError):
    """An error in the text or its names."""


class NotSupportedError(DatabaseError):
    """It can't be released privately, or this database doesn't support it."""


_KINDS: dict[type[Error], type[DatabaseError]] = {
    errors.ParseError: ProgrammingError,
    errors.BindError: ProgrammingError,
    errors.PrivacyError: NotSupportedError,
}


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except Error as error:
        raised = _KINDS.get(type(error), OperationalError)("\n".join(error.lines()))
        raised.reason = error
        raise raised from None


class TypeObject:
    """A value equal to the type codes of its kind, as PEP 249 requires."""

    def __init__(self, *tests: Callable[[pa.DataType], bool]) -> None:
        self._tests = tests

    def __eq__(self, other: object) -> bool:
        return isinstance(other, pa.DataType) and any(test(other) for test in self._tests)

    __hash__ = object.__hash__


STRING = TypeObject(pa.types.is_string, pa.types.is_large_string)
BINARY = TypeObject(pa.types.is_binary)
NUMBER = TypeObject(pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
DATETIME = TypeObject(pa.types.is_temporal)
ROWID = TypeObject()

Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime
DateFromTicks = datetime.date.fromtimestamp
TimestampFromTicks = datetime.datetime.fromtimestamp
Binary = bytes


def TimeFromTicks(ticks: float) -> datetime.time:  # noqa: N802 - the name is PEP 249's
    """Return the local time of day of a moment in seconds since 1970."""
    return datetime.datetime.fromtimestamp(ticks).time()


class Cursor:
    """A cursor that runs one statement at a time, and iterates over its rows."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.result: Result | None = None
        """The result of the last statement, with its intervals and cost."""
        self._rows: list[tuple[Any, ...]] = []
        self._at = 0
        self._closed = False

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """Name and Arrow type of each column, and five Nones; None before anything ran."""
        if self.result is None:
            return None
        return [(f.name, f.type, None, None, None, None, f.nullable) for f in self.result.table.schema]

    @property
    def loss(self) -> str | None:
        """The last statement's cost for people (``"ε=0.1"``); None before anything ran."""
        return None if self.result is None else self.result.loss

    @property
    def cost(self) -> str | None:
        """The last statement's cost and the remaining budget, as in a notebook; None before anything ran."""
        return None if self.result is None else self.result.cost_line

    @property
    def intervals(self) -> dict[str, list[LowHigh | None]] | None:
        """Intervals of the last rows, by column; None before anything ran."""
        return None if self.result is None else self.result.intervals

    @property
    def rowcount(self) -> int:
        """The number of rows of the last result; -1 before anything ran."""
        return -1 if self.result is None else len(self._rows)

    def execute(
        self, operation: str, parameters: Sequence[object] | Mapping[str, object] | None = None
    ) -> Cursor:
        """Run a statement and keep its rows; of several, the last one's.

        Raises:
            ProgrammingError, NotSupportedError, OperationalError: see the classes.
        """
        session = self._open()
        with _translated():
            given = parameters if parameters is None or isinstance(parameters, Mapping) else list(parameters)
            results = session.run(operation, given)
        self.result = results[-1] if results else None
        self._rows = self.result.fetchall() if self.result is not None else []
        self._at = 0
        return self

    def executemany(
        self, operation: str, seq_of_parameters: Sequence[Sequence[object] | Mapping[str, object]]
    ) -> Cursor:
        """Run the statement once per set of parameters, and pay for each."""
        for parameters in seq_of_parameters:
            self.execute(operation, parameters)
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row; None if there are no more."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next ``size`` rows, by default ``arraysize``; InterfaceError before execution or after closing."""
        self._open()
        if self.result is None:
            raise InterfaceError("there is nothing to fetch: execute a query first.")
        rows = self._rows[self._at : self._at + (self.arraysize if size is None else size)]
        self._at += len(rows)
        return rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the remaining rows."""
        return self.fetchmany(len(self._rows))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while (row := self.fetchone()) is not None:
            yield row

    def setinputsizes(self, sizes: object) -> None:
        """Do nothing; PEP 249 requires it."""

    def setoutputsize(self, size: object, column: object = None) -> None:
        """Do nothing; PEP 249 requires it."""

    def close(self) -> None:
        """Close the cursor."""
        self._closed = True

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _open(self) -> AnalystSession:
        if self._closed or self.connection._closed:
            raise InterfaceError("the cursor or its connection is closed.")
        return self.connection.session


class Connection:
    """A PEP 249 connection; ``session`` is its dpsql session."""

    Warning = Warning
    Error = Error
    InterfaceError = InterfaceError
    DatabaseError = DatabaseError
    DataError = DataError
    OperationalError = OperationalError
    IntegrityError = IntegrityError
    InternalError = InternalError
    ProgrammingError = ProgrammingError
    NotSupportedError = NotSupportedError

    def __init__(self, session: AnalystSession) -> None:
        self.session = session
        self._closed = False

    def cursor(self) -> Cursor:
        """Return a new cursor."""
        if self._closed:
            raise InterfaceError("the connection is closed.")
        return Cursor(self)

    def execute(self, operation: str, parameters: Any = None) -> Cursor:
        """Run a statement on a new cursor, and return the cursor."""
        return self.cursor().execute(operation, parameters)

    def commit(self) -> None:
        """Do nothing: every charge is durable before the data are touched."""

    def rollback(self) -> None:
        """Do nothing: charges are final."""

    def close(self) -> None:
        """Close the session."""
        if not self._closed:
            self._closed = True
            self.session.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def connect(database: Any = ":memory:", *, intervals: str = "off", **options: Any) -> Connection:
    """Open a session as a PEP 249 connection, with the arguments of :func:`dpsql.connect`.

    Args:
        database: the data, or a server's address.
        intervals: ``"columns"`` for the ends of intervals as columns of each answer, as ``SET intervals = 'columns'``.
        options: the other arguments.

    Raises:
        OperationalError: the policy or the ledger is wrong, or the server can't be reached.
    """
    from dpsql.client.connect import connect_session

    # pandas warns that it was not tested with this driver; it was.
    warnings.filterwarnings("ignore", "pandas only supports SQLAlchemy connectable", UserWarning)
    with _translated():
        return _open(connect_session(database, **options), intervals)


def _open(session: AnalystSession, intervals: str) -> Connection:
    """Return a connection with the setting of intervals; BindError for an unknown one."""
    if intervals not in ("columns", "off"):
        session.close()
        raise BindError("intervals is 'columns' or 'off'.")
    if intervals == "columns":
        session.sql("SET intervals = 'columns'")
    return Connection(session)


def connect_to_server(url: str, *, intervals: str = "off", **options: Any) -> Connection:
    """Open a session on an owner's server as a PEP 249 connection.

    Args:
        url: its address.
        intervals: as for :func:`connect`.
        options: ``token`` or ``token_file``, ``tls_ca``, ``tls_client_cert``, ``tls_client_key``, as for :func:`dpsql.connect`.

    Raises:
        OperationalError: it can't be reached, or rejects the token.
    """
    from dpsql.client import connect as connecting

    with _translated():
        return _open(connecting.connect_server(url, **options), intervals)
