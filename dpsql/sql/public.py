"""The public side of a statement: what runs over releases and public tables only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from dpsql.plan import Block
from dpsql.sql.types import Type

Schema = Sequence[tuple[str, str]]


class Finish(Protocol):
    """The embedded DuckDB that holds nothing private."""

    def describe(
        self, sql: str, relations: Mapping[str, Schema], public: Iterable[str] = ()
    ) -> list[tuple[str, str]]:
        """Names and SQL types of a query's columns, bound against empty relations.

        Raises:
            BindError: the query does not fit them.
        """
        ...

    def finish(self, sql: str, relations: Mapping[str, pa.Table], public: Iterable[str] = ()) -> pa.Table:
        """Runs a query over released relations and public tables."""
        ...


def schemas(blocks: Iterable[Block]) -> dict[str, Schema]:
    return {block.name: block.columns for block in blocks}


def public_columns(
    finish: Finish, sql: str, blocks: Iterable[Block], public: Iterable[str]
) -> list[tuple[str, Type]]:
    """Names and types of a public query over the releases of these blocks and these public tables."""
    return [(name, Type.parse(kind)) for name, kind in finish.describe(sql, schemas(blocks), public)]
