"""The messages of Flight SQL, as its public protocol numbers their fields.

The ``protobuf`` package of the extra ``server`` builds their descriptors from the table below on first use. A question mark marks
an optional field, a star a repeated one. Other fields are ignored.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from dpsql.errors import Error

PACKAGE = "arrow.flight.protocol.sql"
_PREFIX = f"type.googleapis.com/{PACKAGE}."
MAX_MESSAGE_BYTES = 16 << 20
"""Bytes of one message that is read."""

_TRANSACTION = "transaction_id:bytes?=2"
_TABLE = ("catalog:string?=1", "db_schema:string?=2", "table:string=3")
_HANDLE = ("prepared_statement_handle:bytes=1",)
MESSAGES: dict[str, tuple[str, ...]] = {
    "CommandGetSqlInfo": ("info:uint32*=1",),
    "CommandGetCatalogs": (),
    "CommandGetDbSchemas": ("catalog:string?=1", "db_schema_filter_pattern:string?=2"),
    "CommandGetTables": (
        "catalog:string?=1", "db_schema_filter_pattern:string?=2", "table_name_filter_pattern:string?=3", "table_types:string*=4",
        "include_schema:bool=5",
    ),
    "CommandGetTableTypes": (),
    "CommandGetPrimaryKeys": _TABLE,
    "CommandGetExportedKeys": _TABLE,
    "CommandGetImportedKeys": _TABLE,
    "CommandGetCrossReference": (
        "pk_catalog:string?=1", "pk_db_schema:string?=2", "pk_table:string=3", "fk_catalog:string?=4", "fk_db_schema:string?=5",
        "fk_table:string=6",
    ),
    "CommandStatementQuery": ("query:string=1", _TRANSACTION),
    "CommandStatementUpdate": ("query:string=1", _TRANSACTION),
    "CommandPreparedStatementQuery": _HANDLE,
    "CommandPreparedStatementUpdate": _HANDLE,
    "TicketStatementQuery": ("statement_handle:bytes=1",),
    "ActionCreatePreparedStatementRequest": ("query:string=1", _TRANSACTION),
    "ActionCreatePreparedStatementResult": (
        "prepared_statement_handle:bytes=1", "dataset_schema:bytes=2", "parameter_schema:bytes=3", "is_update:bool?=4",
    ),
    "ActionClosePreparedStatementRequest": _HANDLE,
    "DoPutPreparedStatementResult": ("prepared_statement_handle:bytes?=1",),
}  # fmt: skip
"""Names of messages, and their fields: name, type and number."""
_SCALARS = {"bytes": 12, "string": 9, "bool": 8, "uint32": 13}
"""Scalar types by the numbers that descriptors give them."""
_OPTIONAL, _REPEATED = 1, 3


class MissingProtobuf(Error):
    """A Flight SQL client asks, and the owner has not installed the messages of its protocol."""


class NotFlightSql(Error):
    """Bytes that are no message of Flight SQL."""


def is_flight_sql(command: bytes) -> bool:
    """Return whether a command or a ticket is for Flight SQL, without the protobuf package.

    >>> is_flight_sql(bytes([10, 60]) + b"type.googleapis.com/arrow.flight.protocol.sql.CommandGetTables")
    True
    """
    return _PREFIX.encode() in command[: len(_PREFIX) + 8]


@cache
def _load_classes() -> dict[str, Any]:
    """Build the classes of all messages."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise MissingProtobuf(
            "this server speaks to dpsql's own clients: its owner has not installed Flight SQL.",
            hint="the owner runs: pip install 'dpsql[server]'; Python can use dpsql.connect(url, token=...) at once.",
        ) from None
    file = descriptor_pb2.FileDescriptorProto(name="dpsql/flight_sql.proto", package=PACKAGE, syntax="proto3")
    for name, fields in {**MESSAGES, "AnyMessage": ("type_url:string=1", "value:bytes=2")}.items():
        _describe_message(file.message_type.add(name=name), fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = [message.name for message in file.message_type]
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{n}")) for n in names}


def _describe_message(message: Any, fields: tuple[str, ...]) -> None:
    for text in fields:
        name, _, rest = text.partition(":")
        kind, _, number = rest.partition("=")
        label = _REPEATED if kind.endswith("*") else _OPTIONAL
        scalar = _SCALARS[kind.rstrip("?*")]
        field = message.field.add(name=name, number=int(number), label=label, type=scalar)
        if kind.endswith("?"):
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")


def make_message(name: str, **fields: object) -> Any:
    """Return a message of the table above; MissingProtobuf if the package is not installed."""
    return _load_classes()[name](**fields)


def read_message(name: str, data: bytes) -> Any:
    """Read the bytes of a known message, else NotFlightSql; MissingProtobuf if the package is not installed."""
    message = make_message(name)
    try:
        if len(data) > MAX_MESSAGE_BYTES:
            raise ValueError
        message.ParseFromString(data)
    except Exception:  # of the package's own kind, which is not imported here
        raise NotFlightSql("this is no message of Flight SQL.") from None
    return message


def pack_message(name: str, **fields: object) -> bytes:
    """Return the bytes of a message inside an ``Any``, as commands, tickets and actions travel."""
    value = make_message(name, **fields).SerializeToString()
    packed: bytes = make_message("AnyMessage", type_url=_PREFIX + name, value=value).SerializeToString()
    return packed


def unpack_message(data: bytes) -> tuple[str, Any]:
    """Read an ``Any``: the name and the message in it, else NotFlightSql; MissingProtobuf as above."""
    packed = read_message("AnyMessage", data)
    name = packed.type_url.removeprefix(_PREFIX)
    if not packed.type_url.startswith(_PREFIX) or name not in MESSAGES:
        raise NotFlightSql("this is no message of Flight SQL that the server knows.")
    return name, read_message(name, packed.value)
