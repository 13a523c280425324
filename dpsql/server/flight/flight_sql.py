"""Flight SQL: the calls of its clients, the tables that they browse, and SqlInfo.

The policy alone gives the tables of catalogs, schemas, tables and keys. A policy is a catalog with its file's name. It has one
schema without a name, since the language has no schemas, and there are no keys. SqlInfo is about dpsql and its language, never
about data; the protocol defines the numbers and types of its facts. Statements go to the analyst's worker, as from dpsql's own
client. This module stands apart from :mod:`dpsql.server.flight.front`, which authenticates, and serves clients without protobuf.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from dpsql import __version__
from dpsql.client.wire import (
    MALFORMED,
    Head,
    Message,
    WireError,
    encode,
    get_field,
    parse_result,
    read_as,
    write_params,
)
from dpsql.errors import BindError, Error, ParseError, PrivacyError
from dpsql.late_dataclass import dataclass
from dpsql.policy.model import Policy
from dpsql.server.calls import AnalystCall
from dpsql.server.flight.protobuf import make_message, pack_message, unpack_message
from dpsql.server.queues import AnalystQueue, SessionRecord
from dpsql.server.rights import Refused
from dpsql.server.served import Right
from dpsql.session.explanation import Description
from dpsql.session.result import Result

_T = TypeVar("_T")

TABLE_TYPE = "TABLE"
SCHEMA_NAME = ""
"""The name of the one schema of a catalog."""


_KINDS = {"int": pa.int32(), "rule": pa.uint8(), "bytes": pa.binary(), "": pa.string()}


def _make_schema(text: str) -> pa.Schema:
    """Return the schema of columns: ``name``, ``name:kind`` unless it is a text, with ``!`` if it is never NULL."""
    columns = ((*word.rstrip("!").partition(":"), not word.endswith("!")) for word in text.split())
    return pa.schema([pa.field(name, _KINDS[kind], null) for name, _, kind, null in columns])


_REFERENCES = """pk_catalog_name pk_db_schema_name pk_table_name! pk_column_name! fk_catalog_name fk_db_schema_name
    fk_table_name! fk_column_name! key_sequence:int! fk_key_name pk_key_name update_rule:rule! delete_rule:rule!"""
_COLUMNS = {
    "CommandGetCatalogs": "catalog_name!",
    "CommandGetDbSchemas": "catalog_name db_schema_name!",
    "CommandGetTables": "catalog_name db_schema_name table_name! table_type!",
    "CommandGetTableTypes": "table_type!",
    "CommandGetPrimaryKeys": "catalog_name db_schema_name table_name! column_name! key_name key_sequence:int!",
    **{f"CommandGet{which}": _REFERENCES for which in ("ExportedKeys", "ImportedKeys", "CrossReference")},
}
SCHEMAS = {name: _make_schema(columns) for name, columns in _COLUMNS.items()}
"""The columns of each of these tables."""
TABLES_WITH_SCHEMA = _make_schema(_COLUMNS["CommandGetTables"] + " table_schema:bytes!")


def find_table_schema(name: str, command: Any) -> pa.Schema:
    """Return the columns of the table that a command of browsing asks for.

    Raises:
        ParseError: it is another command.
    """
    if name == "CommandGetSqlInfo":
        return SQL_INFO_SCHEMA
    if name not in SCHEMAS:
        raise ParseError(_READ_ONLY, hint="send a query as SQL.")
    with_schema = name == "CommandGetTables" and command.include_schema
    return TABLES_WITH_SCHEMA if with_schema else SCHEMAS[name]


def list_tables(catalog: str, policy: Policy, command: Any) -> list[str]:
    """Return the names of the policy's tables that a GetTables command asks for, in order."""
    kinds = list(command.table_types)
    if not _is_asked(command, "catalog", catalog) or (kinds and TABLE_TYPE not in kinds):
        return []
    if not _matches(command, "db_schema_filter_pattern", SCHEMA_NAME):
        return []
    names = [table.name for table in policy.tables.values()]
    return sorted(name for name in names if _matches(command, "table_name_filter_pattern", name))


def list_rows(
    name: str, command: Any, catalog: str, policy: Policy, schemas: Mapping[str, pa.Schema]
) -> list[dict[str, object]]:
    """Return the rows of a command of browsing; there are none of keys.

    Args:
        name, command: the command.
        catalog: the policy's name.
        policy: the policy.
        schemas: the columns of tables, if they are wanted.
    """
    place: dict[str, object] = {
        "catalog_name": catalog,
        "db_schema_name": SCHEMA_NAME,
        "table_type": TABLE_TYPE,
    }
    if name in ("CommandGetCatalogs", "CommandGetTableTypes"):
        return [place]
    if name == "CommandGetDbSchemas" and _is_asked(command, "catalog", catalog):
        return [place] if _matches(command, "db_schema_filter_pattern", SCHEMA_NAME) else []
    if name != "CommandGetTables":
        return []
    empty = pa.schema([])
    return [
        {**place, "table_name": table, "table_schema": schemas.get(table, empty).serialize().to_pybytes()}
        for table in list_tables(catalog, policy, command)
    ]


def _is_asked(command: Any, field: str, name: str) -> bool:
    """Return whether a filter is missing or has this name; an empty filter means the empty name."""
    return not command.HasField(field) or getattr(command, field) == name


def _matches(command: Any, field: str, name: str) -> bool:
    """Return whether a name matches a LIKE pattern (% is any text, _ any character), or there is no pattern."""
    if not command.HasField(field):
        return True
    parts = [""]
    for sign in re.findall(r"\\.|.", getattr(command, field)[:1000], re.DOTALL):
        if sign == "%":
            parts.append("")
        else:
            parts[-1] += "." if sign == "_" else re.escape(sign[-1])
    first, *middle = parts
    last = f".*{middle.pop()}" if middle else ""
    found = "".join(f"(?>.*?{part})" for part in middle)  # the first place of each is the best: no way back
    return re.fullmatch(first + found + last, name, re.DOTALL | re.IGNORECASE) is not None


_STRING, _BOOL, _BIGINT, _BITMASK, _LIST, _MAP = range(6)
"""The members of the union of values, in order."""
_MEMBERS = (
    ("string_value", pa.string()),
    ("bool_value", pa.bool_()),
    ("bigint_value", pa.int64()),
    ("int32_bitmask", pa.int32()),
    ("string_list", pa.list_(pa.field("string_data", pa.string()))),
    ("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.field("$data$", pa.int32())))),
)
_UNION = pa.dense_union([pa.field(name, kind) for name, kind in _MEMBERS])
SQL_INFO_SCHEMA = pa.schema([pa.field("info_name", pa.uint32(), nullable=False), pa.field("value", _UNION)])

TRUE_FACTS = (3, 4, 9, 506, 515, 516, 518, 520, 521, 524, 532)
"""Read-only, SQL, cancel; tables are selectable; aliases, correlation names, expressions in ORDER BY."""
FALSE_FACTS = (
    *(5, 10, 11),
    *(500, 501, 502, 519, 523, 527, 536, 537, 539, 556, 563, 565, 566),
    *range(572, 577),
)
"""Substrait, ingestion, DDL, LIKE ... ESCAPE, SELECT FOR UPDATE, procedures, transactions, batches, savepoints."""
_MASKS = dict.fromkeys((8, 100, 101, 533, 534, 535, 570, 571), 0) | dict.fromkeys((503, 505, 526, 564), 1)
_MASKS |= dict.fromkeys((528, 567, 568, 569), 2) | dict.fromkeys((507, 522, 525, 540), 3) | {538: 15}
"""Ordinals and bit masks. There are no transactions (8), and a handle does not expire while the server runs (100, 101).

Names are compared without case, in quotes too (503, 505). NULLs come last (507). Neither a schema nor
a catalog comes before a table's name (533 to 535).
"""
_LIMITS = (*range(541, 556), 557, 558, 559, 560, 561)
"""Limits without a number: 0 says that there is none, or none that is known."""


def list_sql_info(version: str, statement_bytes: int) -> dict[int, tuple[int, object]]:
    """Return the facts by number, each with its union member; ``statement_bytes``: the largest statement allowed."""
    facts: dict[int, tuple[int, object]] = dict.fromkeys(_LIMITS, (_BIGINT, 0))
    facts |= dict.fromkeys(TRUE_FACTS, (_BOOL, True))
    facts |= dict.fromkeys(FALSE_FACTS, (_BOOL, False))
    facts |= {number: (_BITMASK, mask) for number, mask in _MASKS.items()}
    texts = {0: "dpsql", 1: version, 2: pa.__version__, 504: '"', 513: "\\", 514: ""}
    texts |= {529: "schema", 530: "procedure", 531: "policy"}
    facts |= {number: (_STRING, text) for number, text in texts.items()}
    facts |= dict.fromkeys(range(508, 513), (_LIST, []))
    facts |= {517: (_MAP, []), 557: (_BIGINT, statement_bytes), 562: (_BIGINT, 0)}
    return dict(sorted(facts.items()))


def make_sql_info(asked: Iterable[int], version: str, statement_bytes: int) -> pa.Table:
    """Return the table of GetSqlInfo: the named facts, or all if none is named."""
    facts = list_sql_info(version, statement_bytes)
    wanted = set(asked)
    chosen = [(n, *fact) for n, fact in facts.items() if not wanted or n in wanted]
    members: list[list[object]] = [[] for _ in _MEMBERS]
    offsets = []
    for _, member, value in chosen:
        offsets.append(len(members[member]))
        members[member].append(value)
    arrays = [pa.array(values, kind) for values, (_, kind) in zip(members, _MEMBERS, strict=True)]
    union = pa.UnionArray.from_dense(
        pa.array([member for _, member, _ in chosen], pa.int8()),
        pa.array(offsets, pa.int32()),
        arrays,
        [name for name, _ in _MEMBERS],
    )
    numbers = pa.array([number for number, _, _ in chosen], pa.uint32())
    return pa.Table.from_arrays([numbers, union], schema=SQL_INFO_SCHEMA)


# -- answers ---------------------------------------------------------------------------------------------------------------

MAX_INTERVALS = 10_000
"""Most rows with intervals in the metadata."""
_LEFT_OUT = (
    "the intervals of {:,} rows are left out: INTERVAL_LOW(column) and INTERVAL_HIGH(column) select them."
)
BATCH_BYTES = 1 << 20
"""The approximate size of a batch of rows, since clients limit messages."""


def write_answer(result: Result) -> pa.Table:
    """Return a result's table with loss, cost, intervals and notes in the schema's metadata."""
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


def _plain(value: object) -> object:
    """Return ends of intervals as JSON values; an infinite end is null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, int | float | str) else str(value)


def write_prepared(found: Description) -> pa.Schema:
    """Return a prepared statement's columns, with its price in the metadata."""
    return (found.schema or pa.schema([])).with_metadata({"dpsql.price": found.price})


def cut_batches(table: pa.Table) -> pa.RecordBatchReader:
    """Return a table in batches of about :data:`BATCH_BYTES`."""
    each = max(1, table.nbytes // max(1, len(table)))
    batches = table.to_batches(max_chunksize=max(1, BATCH_BYTES // each))
    return pa.RecordBatchReader.from_batches(table.schema, batches)


@dataclass(frozen=True)
class StatementHandle:
    """A prepared statement. The client keeps it, so the server remembers none; it gives no right to anything.

    Args:
        text: dpsql SQL.
        bound: the values of its parameters as JSON values, by the client's names; None before they are bound.
    """

    text: str
    bound: Head | None = None

    def write(self) -> bytes:
        """Return the handle as bytes."""
        return json.dumps({"text": self.text, "bound": self.bound}, separators=(",", ":")).encode()

    @classmethod
    def read(cls, data: bytes) -> StatementHandle:
        """Read a handle; BindError if the bytes aren't one."""
        try:
            parts = json.loads(data)
            bound = None if parts["bound"] is None else get_field(parts, "bound", dict)
            return cls(get_field(parts, "text", str), bound)
        except (*MALFORMED, WireError):
            raise BindError("this is no handle of a prepared statement.", hint="prepare it again.") from None


MAX_PARAMETERS = 1000
"""Most parameters of one statement."""
_ONE_ROW = "a statement takes one row of values at a time, not {}."


def read_parameters(reader: object, most_bytes: int) -> dict[str, object]:
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
    """Return the next batch, checked; None after the last one."""
    try:
        batch = reader.read_chunk().data
        if batch is not None:
            batch.validate(full=True)
        return batch
    except StopIteration:
        return None
    except Exception:  # any error of Arrow's about invalid bytes
        raise BindError("the values of the parameters can't be read.") from None


def _read_value(column: pa.Array) -> object:
    try:
        value = column[0].as_py()
    except Exception:  # a time outside Python's range, or an unknown type
        raise BindError("the values of the parameters can't be read.") from None
    return value


ACTIONS = {
    "CreatePreparedStatement": "Bind and price a statement; spends nothing.",
    "ClosePreparedStatement": "Forget a prepared statement.",
    "BeginTransaction": "Refused: there are no transactions.",
    "BeginSavepoint": "Refused: there are no transactions.",
    "EndTransaction": "Refused: there are no transactions.",
    "EndSavepoint": "Refused: there are no transactions.",
}
"""The actions of Flight SQL that have an answer, even if it is a refusal."""
_QUERIES = ("CommandStatementQuery", "CommandPreparedStatementQuery")
_LOOK_SECONDS = 0.25
"""Seconds between two checks that a client is still connected."""
_NO_TRANSACTIONS = "transactions aren't supported: statements write nothing, and a charge can't be undone."
_READ_ONLY = "the client sent this as an update, but dpsql only answers queries."


def write_flight_error(error: Error) -> flight.FlightServerError:
    """Return Flight's error with the class, sentence, caret and hint of an error of ours."""
    return flight.FlightServerError("\n".join(error.lines()).removesuffix("."))  # Arrow writes its own


class FlightSqlService:
    """The answers to Flight SQL clients. Its exceptions are safe for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[tuple[str, str], str] = {}
        """Handles of the sessions that analysts' connections share."""

    # -- commands -----------------------------------------------------------------------------------------------

    def make_info(self, caller: Right, descriptor: Any) -> flight.FlightInfo:
        """Return where to fetch the rows of a command, without asking a worker."""
        name, command = unpack_message(descriptor.command or b"")
        if name in _QUERIES:
            handle = self._read_statement(command).write()
            schema, ticket = None, pack_message("TicketStatementQuery", statement_handle=handle)
        else:
            schema, ticket = find_table_schema(name, command), bytes(descriptor.command)
        return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])], -1, -1)

    def find_schema(self, caller: Right, context: object, descriptor: Any) -> pa.Schema:
        """Return the columns of a command's rows. Nothing is spent."""
        name, command = unpack_message(descriptor.command or b"")
        if name not in _QUERIES:
            return find_table_schema(name, command)
        return write_prepared(self._describe(caller, context, self._read_statement(command)))

    def _read_statement(self, command: Any) -> StatementHandle:
        """Return the statement of a command, which has its text or a handle."""
        if "query" not in command.DESCRIPTOR.fields_by_name:
            return StatementHandle.read(command.prepared_statement_handle)
        if command.transaction_id:
            raise PrivacyError(_NO_TRANSACTIONS, hint="leave autocommit on.")
        return StatementHandle(command.query)

    def fetch(self, caller: Right, context: object, ticket: bytes) -> flight.RecordBatchStream:
        """Return the rows of a ticket. A statement is paid here."""
        name, command = unpack_message(ticket)
        if name == "TicketStatementQuery":
            held = StatementHandle.read(command.statement_handle)
            table = write_answer(self._run(caller, context, held))
        else:
            table = self._make_table(caller, context, name, command)
        return flight.RecordBatchStream(cut_batches(table))

    def put(self, caller: Right, context: object, descriptor: Any, reader: object, writer: Any) -> None:
        """Bind the values of a prepared statement's parameters, and send the client the new handle."""
        name, command = unpack_message(descriptor.command or b"")
        if name != "CommandPreparedStatementQuery":
            raise ParseError(_READ_ONLY, hint="let the client execute it as a query.")
        held = self._read_statement(command)
        bound = read_parameters(reader, caller.queue.edition.policy.server.max_parameter_bytes)
        handle = StatementHandle(held.text, bound).write()
        reply = make_message("DoPutPreparedStatementResult", prepared_statement_handle=handle)
        writer.write(pa.py_buffer(reply.SerializeToString()))

    # -- actions ------------------------------------------------------------------------------------------------

    def act(self, caller: Right, context: object, kind: str, body: bytes) -> Iterator[bytes]:
        """Yield what an action answers."""
        if kind == "CreatePreparedStatement":
            yield self._prepare(
                caller, context, self._unpack_as("ActionCreatePreparedStatementRequest", body)
            )
        elif kind == "ClosePreparedStatement":
            self._unpack_as("ActionClosePreparedStatementRequest", body)
        else:
            raise PrivacyError(_NO_TRANSACTIONS, hint="leave autocommit on.")

    def _prepare(self, caller: Right, context: object, request: Any) -> bytes:
        held = self._read_statement(request)
        found = self._describe(caller, context, held)
        schema = b"" if found.schema is None else write_prepared(found).serialize().to_pybytes()
        return pack_message(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=held.write(),
            dataset_schema=schema,
            parameter_schema=found.parameters.serialize().to_pybytes(),
            is_update=False,
        )

    # -- tables -------------------------------------------------------------------------------------------------

    def _make_table(self, caller: Right, context: object, name: str, command: Any) -> pa.Table:
        """Return the table of a command of browsing."""
        schema, policy = find_table_schema(name, command), caller.queue.edition.policy
        if name == "CommandGetSqlInfo":
            return make_sql_info(command.info, __version__, policy.server.max_statement_bytes)
        schemas: dict[str, pa.Schema] = {}
        if schema is TABLES_WITH_SCHEMA:
            schemas = self._ask_value(dict[str, pa.Schema], caller, context, "schemas", {})
        rows = list_rows(name, command, caller.served.name, policy, schemas)
        return pa.Table.from_pylist(rows, schema=schema)

    # -- the worker ---------------------------------------------------------------------------------------------

    def _describe(self, caller: Right, context: object, held: StatementHandle) -> Description:
        """Return the columns of a statement, those of its parameters, and its price."""
        asked = {"text": held.text, "bound": held.bound}
        return self._ask_value(Description, caller, context, "describe", asked)

    def _run(self, caller: Right, context: object, held: StatementHandle) -> Result:
        """Answer a statement; of several, the last one's result is given."""
        found = self._ask(caller, context, "run", {"text": held.text, "bound": held.bound})
        results = [message for message in found if message.head["kind"] == "result"]
        return parse_result(results[-1]) if results else Result(pa.table({}))

    def _ask_value(self, kind: type[_T], caller: Right, context: object, operation: str, head: Head) -> _T:
        """Ask the worker, and return the one value of its reply."""
        values = (message.head.get("value") for message in self._ask(caller, context, operation, head))
        return read_as(kind, next(values, None))

    def _ask(self, caller: Right, context: Any, operation: str, head: Head) -> list[Message]:
        """Ask the worker, and return its messages once they may leave."""
        record = self._find_session(caller)
        call = caller.queue.make_call(operation, record.handle)
        call.is_abandoned = context.is_cancelled
        with _stopping(context, caller.queue, call):
            try:
                return list(caller.queue.ask(call, record, encode(Message(dict(head)))))
            except Error as error:
                raise write_flight_error(error) from None

    def _find_session(self, caller: Right) -> SessionRecord:
        """Return the session that an analyst's connections share; open another if it has ended."""
        key = (caller.served.name, caller.queue.analyst)
        with self._lock:
            try:
                return caller.queue.find(self._sessions.get(key, ""))
            except Refused:
                record = caller.queue.open(caller.mark, caller.member)
                self._sessions[key] = record.handle
                return record

    # -- handles and messages -----------------------------------------------------------------------------------

    def _unpack_as(self, name: str, data: bytes) -> Any:
        found, message = unpack_message(data)
        if found != name:
            raise flight.FlightServerError("this action is for another message of Flight SQL.")
        return message


@contextmanager
def _stopping(context: Any, queue: AnalystQueue, call: AnalystCall) -> Iterator[None]:
    """Stop a call if its client disconnects or cancels it within the block."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_SECONDS):
            if context.is_cancelled():
                queue.stop_call(call)
                return

    watching = threading.Thread(target=watch, daemon=True, name="dpsql-flight-sql")
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
