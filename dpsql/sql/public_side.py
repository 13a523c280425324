"""The public side of a statement: SQL over releases and public tables, and how a release gets into it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from dpsql.plan import PrivateBlock, Renamed
from dpsql.sql.expressions.types import Type
from dpsql.sql.parse.dialect import table_named

Schema = Sequence[tuple[str, str]]


class Finish(Protocol):
    """The embedded DuckDB that holds nothing private."""

    def describe(
        self, sql: str, relations: Mapping[str, Schema], public: Iterable[str] = ()
    ) -> list[tuple[str, str]]:
        """Return names and SQL types of a query's columns, bound against empty relations.

        Raises:
            BindError: the query does not fit them.
        """
        ...

    def finish(self, sql: str, relations: Mapping[str, pa.Table], public: Iterable[str] = ()) -> pa.Table:
        """Run a query over released relations and public tables."""
        ...

    def keep(self, sql: str, public: Iterable[str] = ()) -> pa.Table:
        """Run a query over public tables alone that always gives the same rows: they may be kept."""
        ...


@dataclass(frozen=True)
class Released:
    """A column of a release, its SQL type, and whether the ends of its interval stand in columns beside it."""

    name: str
    type: str
    interval: bool = False

    @property
    def low(self) -> str:
        """The column of the interval's lower ends."""
        return f"{self.name}__low"

    @property
    def high(self) -> str:
        """The column of the interval's upper ends."""
        return f"{self.name}__high"

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Names and SQL types of the columns that it has in the release."""
        ends = ((self.low, "DOUBLE"), (self.high, "DOUBLE")) if self.interval else ()
        return ((self.name, self.type), *ends)


PRIVATE_CLAUSES = ("joins", "where", "group", "having")


def install(
    select: exp.Select, source: exp.Expr, outputs: Sequence[tuple[str, exp.Expr]] | None = None,
    also: Iterable[str] = (),
) -> None:  # fmt: skip
    """Make a private SELECT, in place, one that reads a release.

    Args:
        select: the SELECT, which keeps what is public in it: ORDER BY, LIMIT, QUALIFY and so on.
        source: the release, or a query over releases.
        outputs: names and expressions of the columns that the SELECT shows; all of the source's where there are none.
        also: further clauses that go with the private ones.
    """
    for key in (*PRIVATE_CLAUSES, *also):
        select.set(key, None)
    select.set("from_", exp.From(this=source))
    if outputs is None:
        select.set("expressions", [exp.Star()])
        return
    select.set("expressions", [exp.alias_(node, name, quoted=True) for name, node in outputs])


def schemas(blocks: Iterable[PrivateBlock]) -> dict[str, Schema]:
    """Return the columns of each block's release, by its name."""
    return {block.name: block.columns for block in blocks}


def public_columns(
    finish: Finish, sql: str, blocks: Iterable[PrivateBlock], public: Iterable[str]
) -> list[tuple[str, Type]]:
    """Return names and types of a public query over the releases of these blocks and these public tables."""
    return [(name, Type.parse(kind)) for name, kind in finish.describe(sql, schemas(blocks), public)]


def renamed(tree: exp.Expr, blocks: Sequence[PrivateBlock]) -> tuple[Renamed, ...] | None:
    """Return the output columns, where a statement only gives one release's columns other names; None where it does more."""
    if not isinstance(tree, exp.Select) or len(blocks) != 1:
        return None
    source = tree.args.get("from_")
    clauses = [key for key, value in tree.args.items() if value and key not in ("expressions", "from_")]
    if clauses or source is None or source.this != table_named(blocks[0].name):
        return None
    kinds = dict(blocks[0].columns)
    found = []
    for item in tree.expressions:
        node = item.unalias()
        target = None
        while isinstance(node, exp.Cast) and not node.args.get("safe"):
            kind = node.to.sql(dialect="duckdb")
            if target not in (None, kind):
                return None
            target, node = kind, node.this
        if not isinstance(node, exp.Column) or node.name not in kinds or not item.alias_or_name:
            return None
        found.append(Renamed(item.alias_or_name, node.name, target or kinds[node.name]))
    names = [column.name.lower() for column in found]
    return tuple(found) if len(set(names)) == len(names) else None
