"""The questions of Flight SQL clients, put to the worker of the analyst's desk like a dpsql client's own.

Preparing a statement binds and prices it, and spends nothing. It is paid when its rows are fetched: once, since whoever fetches
them again is shown the stored answer. The connections of an analyst share one session, with its kept results and thresholds.
A client that goes away, or asks to cancel, stops its statement as the stop button of a notebook does.

Answers as Flight SQL clients get them: the columns, with the loss, the cost line and the intervals in the schema's metadata.

dpsql.loss          what the answer was charged
dpsql.cost_line     that, and what is left
dpsql.confidence    the level of the intervals
dpsql.intervals     JSON: by column, one [low, high] or null for each row
dpsql.notes         JSON: sentences beside the answer
dpsql.statement_id  its number in the ledger
dpsql.price         of a statement that is only prepared: what it would be charged

Handles of prepared statements: they hold what is asked, so the server keeps nothing, and are of one analyst.

    32 bytes: a code that only this server can make | JSON: the statement, and the values of its parameters

A handle of another analyst's, of another server's, or of before a restart is refused: it has to be prepared again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.flight as flight

from dpsql import __version__
from dpsql.client.wire import (
    Message,
    ResultReader,
    WireError,
    encode,
    get_field,
    read_arrow_schemas,
    read_error,
    unpack_messages,
    write_params,
)
from dpsql.errors import BindError, Error, ParseError, PrivacyError
from dpsql.server.calls import AnalystCall
from dpsql.server.desks import Desk, SessionRecord
from dpsql.server.flight_sql.messages import make_message, pack_message, read_message, unpack_message
from dpsql.server.flight_sql.sql_info import (
    SCHEMAS,
    SQL_INFO_SCHEMA,
    XDBC_SCHEMA,
    find_catalog_schema,
    list_tables,
    make_catalog_table,
    make_sql_info,
    make_tables,
    make_xdbc_types,
)
from dpsql.server.lapses import Refused
from dpsql.server.rights import Right
from dpsql.session.result import Result

MAX_INTERVALS = 10_000
"""Rows whose intervals stand in the metadata."""
BATCH_BYTES = 1 << 20
"""Bytes of one batch of rows, or so: clients take no messages of any size."""
_LEFT_OUT = (
    "the intervals of {:,} rows are left out: INTERVAL_LOW(column) and INTERVAL_HIGH(column) select them."
)


def write_answer(result: Result) -> pa.Table:
    """Return a result's table with what else is known of it in the schema's metadata."""
    notes = list(result.notes)
    metadata = {
        "loss": result.loss,
        "cost_line": result.cost_line,
        "confidence": str(float(result.confidence)),
    }
    if result.statement_id is not None:
        metadata["statement_id"] = result.statement_id
    if len(result) <= MAX_INTERVALS:
        metadata["intervals"] = json.dumps(_plain(result.intervals))
    elif result.ends:
        notes.append(_LEFT_OUT.format(len(result)))
    metadata["notes"] = json.dumps(notes)
    return result.table.replace_schema_metadata({f"dpsql.{key}": text for key, text in metadata.items()})


def write_prepared(schema: pa.Schema, price: str) -> pa.Schema:
    """Return the columns of a statement that is only prepared, with its price in the metadata."""
    return schema.with_metadata({"dpsql.price": price})


def cut_batches(table: pa.Table) -> pa.RecordBatchReader:
    """Return a table in batches that every client takes."""
    each = max(1, table.nbytes // max(1, len(table)))
    batches = table.to_batches(max_chunksize=max(1, BATCH_BYTES // each))
    return pa.RecordBatchReader.from_batches(table.schema, batches)


def _plain(value: Any) -> Any:
    """Return ends of intervals as JSON values; an end beyond all numbers is null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, int | float | str) else str(value)


_CODE_BYTES = 32
_FOREIGN = "this statement was prepared by somebody else, or before the server started anew."


@dataclass(frozen=True)
class StatementHandle:
    """A statement as it was prepared.

    Args:
        text: dpsql SQL.
        bound: the values of its parameters as JSON values, by the names that the client gave them; None before they are bound.
        mark: what tells one execution from others; empty before there is one.
    """

    text: str
    bound: Mapping[str, Any] | None = None
    mark: str = ""


class HandleMaker:
    """A writer and reader of handles, whose key dies with the server."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(_CODE_BYTES)

    def write(self, policy: str, analyst: str, handle: StatementHandle) -> bytes:
        """Return a handle as bytes.

        Args:
            policy: the name of the policy that it is asked under.
            analyst: whose it is.
            handle: what it holds.
        """
        held = {"text": handle.text, "bound": handle.bound, "mark": handle.mark}
        body = json.dumps(held, separators=(",", ":")).encode()
        return self._make_code(policy, analyst, body) + body

    def read(self, policy: str, analyst: str, data: bytes) -> StatementHandle:
        """Read a handle.

        Raises:
            BindError: it is of another analyst, or of another server.
        """
        code, body = data[:_CODE_BYTES], data[_CODE_BYTES:]
        if not hmac.compare_digest(code, self._make_code(policy, analyst, body)):
            raise BindError(_FOREIGN, hint="prepare it again.")
        held = json.loads(body)
        return StatementHandle(held["text"], held["bound"], held["mark"])

    def _make_code(self, policy: str, analyst: str, body: bytes) -> bytes:
        whose = json.dumps([policy, analyst]).encode() + b"\n"
        return hmac.new(self._key, whose + body, hashlib.sha256).digest()


def make_mark() -> str:
    """Return what tells one execution of a statement from others of the same."""
    return secrets.token_hex(8)


MAX_PARAMETERS = 1000
"""Parameters of one statement."""
_ONE_ROW = "one row of values is bound at a time, and {} rows arrived."


def read_parameters(reader: Any, most_bytes: int) -> dict[str, Any]:
    """Read the one row of values that a client sends, and return them as JSON values by their columns' names.

    Columns whose names are not their own alone are called by their places, from 1.

    Args:
        reader: what Arrow Flight reads the client's batches with.
        most_bytes: how much the owner allows.

    Raises:
        BindError: there is no row, there are several, or they are too large or none that can be read.
    """
    found: pa.RecordBatch | None = None
    while (batch := _read_batch(reader)) is not None:
        if batch.nbytes > most_bytes or batch.num_columns > MAX_PARAMETERS:
            raise BindError(f"the parameters have more than the {most_bytes:,} bytes that the owner allows.")
        if batch.num_rows and found is not None:
            raise BindError(_ONE_ROW.format("several"), hint="execute the statement once for each row.")
        found = batch if batch.num_rows or found is None else found
    if found is None or found.num_rows != 1:
        rows = 0 if found is None else found.num_rows
        raise BindError(_ONE_ROW.format(f"{rows:,}"), hint="execute the statement once for each row.")
    values = [_read_value(column) for column in found.columns]
    names = found.schema.names
    if len(set(names)) < len(names):
        names = [str(place) for place in range(1, len(values) + 1)]
    return write_params(dict(zip(names, values, strict=True))) or {}


def _read_batch(reader: Any) -> pa.RecordBatch | None:
    """Return the next batch, checked; None after the last one.

    Raises:
        BindError: it can't be read.
    """
    try:
        batch = reader.read_chunk().data
        if batch is not None:
            batch.validate(full=True)
        return batch
    except StopIteration:
        return None
    except Exception:  # whatever Arrow says of bytes that are none
        raise BindError("the values of the parameters can't be read.") from None


def _read_value(column: pa.Array) -> Any:
    """Return the one value of a column.

    Raises:
        BindError: Python has none for it.
    """
    try:
        value = column[0].as_py()
    except Exception:  # a time that Python does not have, a type without a value
        raise BindError("the values of the parameters can't be read.") from None
    return value


ACTIONS = {
    "CreatePreparedStatement": "Bind and price a statement; spends nothing.",
    "ClosePreparedStatement": "Forget a prepared statement.",
    "CancelQuery": "Stop a statement.",
    "CancelFlightInfo": "Stop a statement.",
    "SetSessionOptions": "Choose the catalog: there is one.",
    "GetSessionOptions": "Tell the catalog.",
    "CloseSession": "End a session, where it is a connection's own.",
    "CreatePreparedSubstraitPlan": "Refused: plans are not read.",
    "BeginTransaction": "Refused: there are no transactions.",
    "BeginSavepoint": "Refused: there are no transactions.",
    "EndTransaction": "Refused: there are no transactions.",
    "EndSavepoint": "Refused: there are no transactions.",
}
"""The actions of Flight SQL that are answered, if only by a refusal."""
_LOOK_SECONDS = 0.25
"""The seconds between two looks at whether a client is still there."""
_CANCELLING, _NOT_CANCELLABLE = 2, 3
_NOT_CLOSEABLE = 3
_INVALID_NAME, _INVALID_VALUE = 1, 2
_NO_TRANSACTIONS = "there are no transactions: nothing is written, and what was charged stays charged."
_READ_ONLY = "the client sent this as an update, and dpsql only answers questions."
_NO_PLANS = "plans in Substrait are not read."
_NO_TABLES = "no rows of yours are taken up: a server's tables are its owner's."


def refuse(error: Error) -> NoReturn:
    """Let a client see an error of ours: its class, its sentence, the caret and the hint.

    Raises:
        FlightServerError: always.
    """
    raise flight.FlightServerError("\n".join(error.lines()).removesuffix("."))  # Arrow writes its own


class FlightSqlService:
    """The answers to Flight SQL clients. What it raises is meant for the client."""

    def __init__(self) -> None:
        self._handles = HandleMaker()
        self._lock = threading.Lock()
        self._sessions: dict[tuple[str, str], str] = {}
        """Handles of the sessions that analysts' connections share."""
        self._running: dict[tuple[str, str, str], AnalystCall] = {}
        """The statements that are being answered, by policy, analyst and mark."""

    # -- commands -----------------------------------------------------------------------------------------------

    def make_info(self, caller: Right, descriptor: Any) -> flight.FlightInfo:
        """Return where the rows of a command are. Nothing is asked of a worker."""
        name, command = self._unpack(descriptor.command)
        schema = None
        if name == "CommandStatementQuery":
            self._check_transaction(command)
            ticket = self._write_ticket(caller, StatementHandle(command.query, None, make_mark()))
        elif name == "CommandPreparedStatementQuery":
            held = self._read_handle(caller, command.prepared_statement_handle)
            ticket = self._write_ticket(caller, StatementHandle(held.text, held.bound, make_mark()))
        else:
            schema, ticket = self._find_table_schema(name, command), bytes(descriptor.command)
        return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])], -1, -1)

    def find_schema(self, caller: Right, context: Any, descriptor: Any) -> pa.Schema:
        """Return the columns of a command's rows. Nothing is spent."""
        name, command = self._unpack(descriptor.command)
        if name == "CommandStatementQuery":
            self._check_transaction(command)
            held = StatementHandle(command.query)
        elif name == "CommandPreparedStatementQuery":
            held = self._read_handle(caller, command.prepared_statement_handle)
        else:
            return self._find_table_schema(name, command)
        found, _, price = self._describe(caller, context, held)
        return write_prepared(pa.schema([]) if found is None else found, price)

    def fetch(self, caller: Right, context: Any, ticket: bytes) -> flight.RecordBatchStream:
        """Return the rows of a ticket. A statement is paid here."""
        name, command = self._unpack(ticket)
        if name == "TicketStatementQuery":
            held = self._read_handle(caller, command.statement_handle)
            table = write_answer(self._run(caller, context, held))
        else:
            table = self._make_table(caller, context, name, command)
        return flight.RecordBatchStream(cut_batches(table))

    def put(self, caller: Right, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Take the values of a prepared statement's parameters; the client is told the handle of the statement with them."""
        name, command = self._unpack(descriptor.command)
        if name != "CommandPreparedStatementQuery":
            self._refuse_update(caller, context, name, command)
        held = self._read_handle(caller, command.prepared_statement_handle)
        try:
            bound = read_parameters(reader, caller.desk.edition.limits.parameter_bytes)
        except Error as error:
            refuse(error)
        handle = self._write_handle(caller, StatementHandle(held.text, bound))
        told = make_message("DoPutPreparedStatementResult", prepared_statement_handle=handle)
        writer.write(pa.py_buffer(told.SerializeToString()))

    # -- actions ------------------------------------------------------------------------------------------------

    def act(self, caller: Right, context: Any, kind: str, body: bytes) -> Iterator[bytes]:
        """Yield what an action answers."""
        if kind == "CreatePreparedStatement":
            yield self._prepare(
                caller, context, self._unpack_as("ActionCreatePreparedStatementRequest", body)
            )
        elif kind == "ClosePreparedStatement":
            self._unpack_as("ActionClosePreparedStatementRequest", body)
        elif kind == "CancelQuery":
            info = self._unpack_as("ActionCancelQueryRequest", body).info
            status = self._cancel(caller, self._read("CancelledFlightInfo", info))
            yield pack_message("ActionCancelQueryResult", result=status)
        elif kind == "CancelFlightInfo":
            status = self._cancel(caller, self._read("CancelFlightInfoRequest", body).info)
            yield make_message("CancelFlightInfoResult", status=status).SerializeToString()
        elif kind == "SetSessionOptions":
            yield self._set_options(caller, self._read("SessionOptions", body))
        elif kind == "GetSessionOptions":
            yield self._list_options(caller)
        elif kind == "CloseSession":
            yield self._read_made("CloseSessionResult", status=_NOT_CLOSEABLE)
        elif kind == "CreatePreparedSubstraitPlan":
            refuse(ParseError(_NO_PLANS, hint="send the statement as SQL."))
        else:
            refuse(PrivacyError(_NO_TRANSACTIONS, hint="leave autocommit on."))

    def _prepare(self, caller: Right, context: Any, request: Any) -> bytes:
        self._check_transaction(request)
        held = StatementHandle(request.query)
        found, parameters, price = self._describe(caller, context, held)
        schema = b"" if found is None else write_prepared(found, price).serialize().to_pybytes()
        return pack_message(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=self._write_handle(caller, held),
            dataset_schema=schema,
            parameter_schema=parameters.serialize().to_pybytes(),
            is_update=False,
        )

    def _set_options(self, caller: Right, asked: Any) -> bytes:
        """Take the catalog that there is; other options are named as those that can't be set."""
        problems = []
        for option in asked.session_options:
            wanted = {"catalog": caller.served.name, "schema": ""}.get(option.key)
            if wanted is None or option.value.string_value != wanted:
                value = make_message(
                    "SessionOptionError", value=_INVALID_NAME if wanted is None else _INVALID_VALUE
                )
                problems.append(make_message("SessionOptionProblem", key=option.key, value=value))
        return self._read_made("SetSessionOptionsResult", errors=problems)

    def _list_options(self, caller: Right) -> bytes:
        options = {"catalog": caller.served.name, "schema": ""}
        listed = [
            make_message(
                "SessionOption", key=key, value=make_message("SessionOptionValue", string_value=text)
            )
            for key, text in options.items()
        ]
        return self._read_made("SessionOptions", session_options=listed)

    def _cancel(self, caller: Right, info: Any) -> int:
        """Stop the statement whose ticket stands in a FlightInfo, where it is the analyst's own and runs."""
        for endpoint in info.endpoint[:1]:
            name, command = self._unpack(endpoint.ticket.ticket)
            if name == "TicketStatementQuery":
                mark = self._read_handle(caller, command.statement_handle).mark
                call = self._running.get((caller.served.name, caller.desk.analyst, mark))
                if call is not None and caller.desk.stop_call(call):
                    return _CANCELLING
        return _NOT_CANCELLABLE

    # -- what is refused ----------------------------------------------------------------------------------------

    def _refuse_update(self, caller: Right, context: Any, name: str, command: Any) -> NoReturn:
        """Refuse what would change something; a statement that is none of the language is told so in its own words."""
        if name == "CommandStatementUpdate":
            self._describe(caller, context, StatementHandle(command.query))
        elif name == "CommandPreparedStatementUpdate":
            self._describe(caller, context, self._read_handle(caller, command.prepared_statement_handle))
        elif name == "CommandStatementIngest":
            refuse(PrivacyError(_NO_TABLES, hint="write small tables as WITH t(a, b) AS (VALUES ...)."))
        else:
            raise flight.FlightServerError("rows are sent for the parameters of a prepared statement only.")
        refuse(ParseError(_READ_ONLY, hint="let the client execute it as a query."))

    def _check_transaction(self, command: Any) -> None:
        if command.transaction_id:
            refuse(PrivacyError(_NO_TRANSACTIONS, hint="leave autocommit on."))

    # -- tables -------------------------------------------------------------------------------------------------

    def _find_table_schema(self, name: str, command: Any) -> pa.Schema:
        if name in SCHEMAS:
            return find_catalog_schema(name, command)
        known = {"CommandGetSqlInfo": SQL_INFO_SCHEMA, "CommandGetXdbcTypeInfo": XDBC_SCHEMA}
        if name not in known:
            refuse(ParseError(_NO_PLANS if "Substrait" in name else _READ_ONLY, hint="send a query as SQL."))
        return known[name]

    def _make_table(self, caller: Right, context: Any, name: str, command: Any) -> pa.Table:
        """Return the rows of a command of browsing."""
        self._find_table_schema(name, command)
        policy = caller.desk.edition.policy
        if name == "CommandGetSqlInfo":
            return make_sql_info(command.info, __version__, policy.server.max_statement_bytes)
        if name == "CommandGetXdbcTypeInfo":
            return make_xdbc_types(command.data_type if command.HasField("data_type") else None)
        if name != "CommandGetTables":
            return make_catalog_table(name, command, caller.served.name)
        names = list_tables(caller.served.name, policy, command)
        schemas = None
        if command.include_schema:
            head = self._ask_value(caller, context, "schemas", {}).head
            schemas = dict(
                zip(_list_texts(head, "tables"), read_arrow_schemas(head.get("schemas")), strict=True)
            )
        return make_tables(caller.served.name, names, schemas)

    # -- the worker ---------------------------------------------------------------------------------------------

    def _describe(
        self, caller: Right, context: Any, held: StatementHandle
    ) -> tuple[pa.Schema | None, pa.Schema, str]:
        """Return the columns of a statement, those of its parameters, and its price."""
        value = self._ask_value(caller, context, "describe", {"text": held.text, "bound": held.bound})
        found = [*read_arrow_schemas(value.head.get("schema")), None][0]
        (parameters,) = read_arrow_schemas(value.head.get("parameters"))
        return found, parameters, get_field(value.head, "price", str)

    def _run(self, caller: Right, context: Any, held: StatementHandle) -> Result:
        """Answer a statement; of several, the last one's result is given."""
        reader = ResultReader()
        for message in self._ask(caller, context, "run", {"text": held.text, "bound": held.bound}, held.mark):
            if message.head["kind"] in ("result", "rows"):
                reader.take(message)
        results = reader.results()
        return results[-1] if results else Result(pa.table({}))

    def _ask_value(self, caller: Right, context: Any, operation: str, head: Mapping[str, Any]) -> Message:
        messages = self._ask(caller, context, operation, head)
        found = next((message for message in messages if message.head["kind"] == "value"), None)
        if found is None:
            raise WireError("the worker's reply holds no value.")
        return found

    def _ask(
        self, caller: Right, context: Any, operation: str, head: Mapping[str, Any], mark: str = ""
    ) -> list[Message]:
        """Ask the worker, and return its messages once they may leave.

        Raises:
            FlightServerError: the error that the worker answers. Refused: the desk does not take it up.
        """
        desk, record = caller.desk, self._find_session(caller)
        call = desk.make_call(operation, record.handle)
        call.is_abandoned = context.is_cancelled
        with self._stoppable(caller, context, call, mark):
            replies = desk.answer_and_log(call, record, encode(Message(dict(head))))
            told = [message for reply in replies for message in unpack_messages(reply)]
        for message in told:
            if get_field(message.head, "kind", str) == "error":
                refuse(read_error(message))
        return told

    @contextmanager
    def _stoppable(self, caller: Right, context: Any, call: AnalystCall, mark: str) -> Iterator[None]:
        """Stop a call within the block, where its client goes away or cancels it."""
        key, ended = (caller.served.name, caller.desk.analyst, mark), threading.Event()
        watching = threading.Thread(
            target=_watch, args=(context, caller.desk, call, ended), daemon=True, name="dpsql-flight-sql"
        )
        if mark:
            self._running[key] = call
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join()
            self._running.pop(key, None)

    def _find_session(self, caller: Right) -> SessionRecord:
        """Return the session of an analyst's connections; another one where it has ended."""
        key = (caller.served.name, caller.desk.analyst)
        with self._lock:
            try:
                return caller.desk.find(self._sessions.get(key, ""))
            except Refused:
                record = caller.desk.open(caller.mark)
                self._sessions[key] = record.handle
                return record

    # -- handles and messages -----------------------------------------------------------------------------------

    def _write_handle(self, caller: Right, handle: StatementHandle) -> bytes:
        return self._handles.write(caller.served.name, caller.desk.analyst, handle)

    def _write_ticket(self, caller: Right, handle: StatementHandle) -> bytes:
        return pack_message("TicketStatementQuery", statement_handle=self._write_handle(caller, handle))

    def _read_handle(self, caller: Right, data: bytes) -> StatementHandle:
        try:
            return self._handles.read(caller.served.name, caller.desk.analyst, data)
        except Error as error:
            refuse(error)

    def _unpack(self, data: bytes | None) -> tuple[str, Any]:
        try:
            return unpack_message(data or b"")
        except Error as error:
            refuse(error)

    def _unpack_as(self, name: str, data: bytes) -> Any:
        found, message = self._unpack(data)
        if found != name:
            raise flight.FlightServerError("this action is for another message of Flight SQL.")
        return message

    def _read(self, name: str, data: bytes) -> Any:
        try:
            return read_message(name, data)
        except Error as error:
            refuse(error)

    def _read_made(self, name: str, **fields: Any) -> bytes:
        try:
            written: bytes = make_message(name, **fields).SerializeToString()
            return written
        except Error as error:
            refuse(error)


def _watch(context: Any, desk: Desk, call: AnalystCall, ended: threading.Event) -> None:
    """Stop a call once its client is gone."""
    while not ended.wait(_LOOK_SECONDS):
        if context.is_cancelled():
            desk.stop_call(call)
            return


def _list_texts(head: Mapping[str, Any], name: str) -> Sequence[str]:
    listed = get_field(head, name, list)
    if not all(isinstance(item, str) for item in listed):
        raise WireError(f"a message arrived without a proper {name!r}.")
    return listed
