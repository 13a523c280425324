"""A bare Flight SQL client of pyarrow and protobuf messages, which can send what no good client would."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from dpsql.server.flight.protobuf import make_message, pack_message, unpack_message


class BareFlightSql:
    """A Flight SQL client without a driver.

    Args:
        url: the server's.
        authorization: the header of every call.
    """

    def __init__(self, url: str, authorization: str) -> None:
        self.flight = flight.connect(url)
        self.options_headers = [(b"authorization", authorization.encode())]
        self.options = flight.FlightCallOptions(headers=self.options_headers)

    @classmethod
    def with_token(cls, url: str, token: str) -> BareFlightSql:
        """Make a client that sends a token."""
        return cls(url, f"Bearer {token}")

    def info(self, name: str, **fields: Any) -> flight.FlightInfo:
        """Ask where the rows of a command are."""
        descriptor = flight.FlightDescriptor.for_command(pack_message(name, **fields))
        return self.flight.get_flight_info(descriptor, self.options)

    def table(self, name: str, **fields: Any) -> pa.Table:
        """Return the rows of a command."""
        info = self.info(name, **fields)
        table = self.flight.do_get(info.endpoints[0].ticket, self.options).read_all()
        if info.schema is not None:
            assert table.schema.equals(info.schema), (table.schema, info.schema)
        table.validate(full=True)
        return table

    def schema(self, name: str, **fields: Any) -> pa.Schema:
        """Return the columns of a command, by GetSchema."""
        descriptor = flight.FlightDescriptor.for_command(pack_message(name, **fields))
        return self.flight.get_schema(descriptor, self.options).schema

    def sql(self, text: str) -> pa.Table:
        """Answer a statement that is not prepared."""
        return self.table("CommandStatementQuery", query=text)

    def act(self, kind: str, body: bytes = b"") -> list[bytes]:
        """Do an action, and return the bytes of its results."""
        results = self.flight.do_action(flight.Action(kind, body), self.options)
        return [result.body.to_pybytes() for result in results]

    def prepare(self, text: str) -> Any:
        """Prepare a statement."""
        body = pack_message("ActionCreatePreparedStatementRequest", query=text)
        (found,) = self.act("CreatePreparedStatement", body)
        name, message = unpack_message(found)
        assert name == "ActionCreatePreparedStatementResult"
        return message

    def bind(self, handle: bytes, values: pa.RecordBatch) -> bytes:
        """Send the values of a prepared statement's parameters; return its new handle."""
        command = pack_message("CommandPreparedStatementQuery", prepared_statement_handle=handle)
        writer, reader = self.flight.do_put(
            flight.FlightDescriptor.for_command(command), values.schema, self.options
        )
        with writer:
            writer.write_batch(values)
            writer.done_writing()
            answer = reader.read()
        message = make_message("DoPutPreparedStatementResult")
        message.ParseFromString(answer.to_pybytes())
        return bytes(message.prepared_statement_handle)

    def ask_like_jdbc(self, text: str, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Ask as the JDBC driver does: prepare, look at the columns, bind in the types it was told, execute, fetch, close."""
        prepared = self.prepare(text)
        columns = pa.ipc.read_schema(pa.py_buffer(prepared.dataset_schema))
        assert len(columns) > 0, "an empty schema would make it an update"
        assert not prepared.is_update
        parameters = pa.ipc.read_schema(pa.py_buffer(prepared.parameter_schema))
        handle = prepared.prepared_statement_handle
        if values:
            assert len(parameters) == len(values)
            arrays = [pa.array([value], f.type) for value, f in zip(values.values(), parameters, strict=True)]
            handle = self.bind(handle, pa.RecordBatch.from_arrays(arrays, schema=parameters))
        table = self.table("CommandPreparedStatementQuery", prepared_statement_handle=handle)
        close = pack_message("ActionClosePreparedStatementRequest", prepared_statement_handle=handle)
        assert self.act("ClosePreparedStatement", close) == []
        assert table.schema.equals(columns), (table.schema, columns)
        return table

    def close(self) -> None:
        """Close the connection."""
        self.flight.close()


class _Silent(flight.ClientAuthHandler):
    """A handshake without words: what is told stands in the headers."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        pass

    def get_token(self) -> bytes:
        return b""


class _Received(flight.ClientMiddleware):
    def __init__(self, kept: dict[str, Any]) -> None:
        self._kept = kept

    def received_headers(self, headers: Mapping[str, Any]) -> None:
        self._kept.update({name.lower(): values[0] for name, values in headers.items()})


class _Receiver(flight.ClientMiddlewareFactory):
    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def start_call(self, info: Any) -> _Received:
        return _Received(self.kept)


def write_basic(user: str, token: str) -> str:
    """Return a Basic header as ADBC and JDBC write it, without padding."""
    return "Basic " + base64.b64encode(f"{user}:{token}".encode()).decode().rstrip("=")


def shake_hands(url: str, authorization: str) -> str:
    """Shake hands as a JDBC driver does; return the header that the server tells for all further calls."""
    receiver = _Receiver()
    with flight.connect(url, middleware=[receiver]) as client:
        given = flight.FlightCallOptions(headers=[(b"authorization", authorization.encode())])
        client.authenticate(_Silent(), given)
    return str(receiver.kept["authorization"])
