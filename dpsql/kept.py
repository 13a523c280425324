"""Results that a session keeps by name, for later statements to read: released numbers, so anybody may."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from dpsql.engine.frames import to_arrow
from dpsql.engine.postprocess import Finisher
from dpsql.errors import BindError, PolicyError, Span
from dpsql.plan import Plan
from dpsql.policy.model import Policy
from dpsql.result import Result
from dpsql.sql.normalize import make_unique
from dpsql.sql.parse.statements import Statement
from dpsql.sql.relations.intervals import FORETOLD, KeptResult
from dpsql.sql.relations.relation import fold


class KeptResults:
    """The kept results of one session.

    Each is held under a name made of its content, so that a stored answer is found again where what it was made of is the
    same, and only there.
    """

    def __init__(self, policy: Policy, finisher: Finisher) -> None:
        self._policy = policy
        self._finisher = finisher
        self.by_name: dict[str, KeptResult] = {}
        """By folded name; the catalog reads it."""

    @property
    def names(self) -> list[str]:
        return [item.name for item in self.by_name.values()]

    def check(self, name: str, span: Span | None = None) -> None:
        """Refuses a name that a result can't take.

        Raises:
            BindError: no identifier, or the name of a private table.
        """
        if not isinstance(name, str) or not name.isidentifier():
            raise BindError(
                f"{name!r} can't be the name of a result.", span=span, hint="write a word, such as out."
            )
        if any(fold(t.name) == fold(name) and not t.public for t in self._policy.tables.values()):
            raise BindError(
                f"{name} is a private table, and no result takes its name.",
                span=span,
                hint=f"write {name}_result, say.",
            )

    def check_statement(self, statement: Statement) -> None:
        """Refuses ``name << ...`` where no result can take the name, with the name's place."""
        start = statement.text.rfind(statement.keep, 0, statement.span[0])
        try:
            self.check(statement.keep, (start, start + len(statement.keep)))
        except BindError as error:
            raise error.located(statement.text) from None

    def keep(self, name: str, result: Any) -> None:
        """Makes a result, or a table of the analyst's own, a relation of later statements.

        Raises:
            BindError: a name that it can't take, or no table.
        """
        self.check(name)
        try:
            given = result if isinstance(result, Result) else Result(to_arrow(name, result))
        except PolicyError as error:
            raise BindError(error.message, hint=error.hint) from None
        columns = make_unique(given.columns)
        table = given.table.rename_columns(columns)
        ends: list[tuple[str, str, str]] = []
        for shown, pair in given.ends.items():
            plain = columns[given.columns.index(shown)]
            low, high = make_unique([*table.column_names, f"{plain}__low", f"{plain}__high"])[-2:]
            table = table.append_column(low, pair[0]).append_column(high, pair[1])
            ends.append((plain, low, high))
        held = f"dpsql_kept_{_digest(table)}"
        self._finisher.hold(held, table)
        self.by_name[fold(name)] = KeptResult(name, held, tuple(columns), tuple(ends), given.confidence)

    @contextlib.contextmanager
    def foretelling(self) -> Iterator[None]:
        """What is foretold inside is forgotten afterwards."""
        before = dict(self.by_name)
        try:
            yield
        finally:
            self.by_name.clear()
            self.by_name.update(before)

    def foretell(self, name: str, plan: Plan) -> None:
        """Lets later statements be bound to what a plan will give, before it runs: to its columns, without rows."""
        schemas = {block.name: block.columns for block in plan.blocks}
        hidden = {key for item in plan.intervals for key in (item.low, item.high)}
        found = [c for c in self._finisher.describe(plan.finish, schemas, plan.public) if c[0] not in hidden]
        columns = make_unique(shown for shown, _ in found)
        kinds = tuple(zip(columns, (kind for _, kind in found), strict=True))
        held = FORETOLD + hashlib.sha256(repr(kinds).encode()).hexdigest()[:24]
        self._finisher.hold(held, kinds)
        self.by_name[fold(name)] = KeptResult(name, held, tuple(columns))

    def schema(self, name: str) -> Mapping[str, str] | None:
        """Names and SQL types of a kept result's columns; None where there is no such."""
        item = self.by_name.get(fold(name))
        if item is None:
            return None
        known = dict(self._finisher.describe(f"FROM {item.table}", {}, (item.table,)))
        return {column: known[column] for column in item.columns}


def _digest(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()[:24]
