"""The prepared statements and portals of one connection: unread texts and values by the names that a client gives them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dpsql.server.postgres import reports
from dpsql.server.postgres.messages import BindMessage, ParseMessage, ProtocolError
from dpsql.server.postgres.reports import RefusedMessage, write_problem

MAX_PREPARED = 2000
"""Prepared statements of a connection."""
MAX_PREPARED_BYTES = 8 << 20
"""Bytes of their texts, all together."""
MAX_PORTALS = 100
MAX_PORTAL_BYTES = 64 << 20
"""Bytes of values, and of rows still to be fetched, that portals hold all together."""


@dataclass
class PreparedStatement:
    """A prepared statement.

    ``fields`` are its columns and ``told_kinds`` the types of its parameters, once the client was told of them with
    ``described``.
    """

    text: str
    kinds: tuple[int, ...]
    fields: list[Any] | None = None
    described: bytes | None = None
    told_kinds: list[int] = field(default_factory=list)


@dataclass
class Portal:
    """A statement with its values; and what is left of its rows, once it was executed.

    ``describing`` says that the client waits for its columns; ``tail`` is what follows its last row.
    """

    statement: PreparedStatement
    bound: BindMessage
    describing: bool = False
    rows: bytes | None = None
    at: int = 0
    tail: list[bytes] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The bytes that it holds."""
        return sum(len(value or b"") for value in self.bound.values) + len(self.rows or b"")


class Portals:
    """Statements and portals by their names. The empty name is taken again and again; any other is taken once."""

    def __init__(self) -> None:
        self._statements: dict[str, PreparedStatement] = {}
        self._portals: dict[str, Portal] = {}

    def prepare(self, parsed: ParseMessage) -> None:
        """Keep a statement.

        Raises:
            ProtocolError: its name is taken. RefusedMessage: there are too many.
        """
        if parsed.name and parsed.name in self._statements:
            raise ProtocolError("there is a prepared statement of this name already.")
        held = sum(len(statement.text) for statement in self._statements.values())
        if len(self._statements) >= MAX_PREPARED or held + len(parsed.text) > MAX_PREPARED_BYTES:
            said = write_problem("ERROR", reports.TOO_MANY, "too many prepared statements.", "DEALLOCATE ALL")
            raise RefusedMessage(said)
        self._statements[parsed.name] = PreparedStatement(parsed.text, parsed.kinds)

    def find_statement(self, name: str) -> PreparedStatement:
        """Return a statement.

        Raises:
            RefusedMessage: there is none of that name.
        """
        statement = self._statements.get(name)
        if statement is None:
            said = "there is no such prepared statement."
            raise RefusedMessage(write_problem("ERROR", reports.UNKNOWN_STATEMENT, said))
        return statement

    def bind(self, bound: BindMessage) -> None:
        """Keep a portal.

        Raises:
            ProtocolError: its name is taken. RefusedMessage: there is no such statement, or portals hold too much.
        """
        statement = self.find_statement(bound.statement)
        if bound.portal and bound.portal in self._portals:
            raise ProtocolError("there is a portal of this name already.")
        self._portals[bound.portal] = Portal(statement, bound)
        self.check_size()

    def find_portal(self, name: str) -> Portal:
        """Return a portal.

        Raises:
            RefusedMessage: there is none of that name.
        """
        portal = self._portals.get(name)
        if portal is None:
            raise RefusedMessage(write_problem("ERROR", reports.UNKNOWN_PORTAL, "there is no such portal."))
        return portal

    def check_size(self) -> None:
        """End all portals where they hold too much.

        Raises:
            RefusedMessage: they did.
        """
        if (
            len(self._portals) > MAX_PORTALS
            or sum(portal.size for portal in self._portals.values()) > MAX_PORTAL_BYTES
        ):
            self._portals.clear()
            hint = "fetch all rows at once: what was paid is stored, and free."
            raise RefusedMessage(write_problem("ERROR", reports.TOO_MANY, "portals hold too much.", hint))

    def list_describing(self) -> list[Portal]:
        """Return the portals whose columns the client waits for."""
        return [portal for portal in self._portals.values() if portal.describing]

    def close(self, kind: str, name: str) -> None:
        """Forget a statement (``S``) or a portal (``P``); where there is none, nothing happens."""
        held: dict[str, Any] = self._statements if kind == "S" else self._portals
        held.pop(name, None)

    def end_portals(self) -> None:
        """Forget all portals, as the end of a transaction does."""
        self._portals.clear()

    def forget(self, name: str) -> None:
        """Forget a prepared statement; ``*`` stands for all, and an empty name for none."""
        if name == "*":
            self._statements.clear()
        elif name:
            self._statements.pop(name, None)
