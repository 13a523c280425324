"""What the rooms ask of the binder: what it knows of the statement, and the way back to the queries inside it.

A block holds queries that hold blocks, so its room needs the binder that called it. It is written down here what for,
and :mod:`dpsql.sql.bind` does it: so the rooms stand below the way of a statement, and not in a circle with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import pyarrow as pa
from sqlglot import exp

from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.consistency import Consistent
from dpsql.plan import Block, Input
from dpsql.sql.expressions.types import Typed
from dpsql.sql.normalize import Env
from dpsql.sql.public_side import Finish, Released
from dpsql.sql.relations.catalog import Catalog
from dpsql.sql.relations.relation import From, Names, Relation


class Binder(Protocol):
    """Binds one statement. Holds what the plan will hold, and nothing of the data."""

    catalog: Catalog
    finish: Finish
    thresholds: dict[str, Any]
    """Declared interactive thresholds, by folded name."""
    blocks: list[Block]
    public: dict[str, None]
    notes: list[str]
    limits: list[str]
    """Sentences of EXPLAIN on what of a unit's rows counts."""
    adjustments: list[Consistent]
    lent_inputs: dict[Input, None]
    """Public relations that the exact queries are lent."""
    once: dict[str, Relation]
    """Public subqueries that stand in several copies of one SELECT."""

    def name(self, kind: str) -> str:
        """A name that nothing else in the statement has."""
        ...

    def query(self, tree: exp.Expr, env: Env, inner: bool) -> Relation | None:
        """Binds a query in place. Gives the private relation that it keeps, or None when it is public from here on.

        ``inner`` says that the query stands in FROM or a CTE, where private rows may pass through.
        """
        ...

    def public_query(self, tree: exp.Expr, env: Env) -> None:
        """Bind, in place, a query that stands where no private rows may.

        Raises:
            PrivacyError: it keeps private rows.
        """
        ...

    def add_block(
        self, name: str, operator: Operator, released: Iterable[Released], inputs: Iterable[Input],
        sentences: tuple[str, ...], confidence: float = 0.95,
    ) -> None:  # fmt: skip
        """Add a block to the plan, whose exact queries read ``inputs`` besides what they were lent."""
        ...

    def source(self, node: exp.Expr, env: Env) -> Relation | None:
        """The private relation that a FROM item is, or None when it is public.

        It is bound once, in place; copies of it, as one for each of several grouping sets, mean the same.
        """
        ...

    def private_from(self, select: exp.Select, env: Env) -> From:
        """The FROM of a SELECT that must read private rows."""
        ...

    def from_of(
        self, select: exp.Select, relations: dict[int, Relation | None], env: Env, outer: Names | None = None
    ) -> From:
        """The FROM of a SELECT whose items have been found to be these, beside a row of ``outer`` if there is one."""
        ...

    def lend(self, node: exp.Expr, env: Env) -> Relation:
        """A public FROM item as an exact query reads it: a policy table as it is, all else evaluated and lent."""
        ...

    def public_relation(self, query: exp.Expr, env: Env, name: str) -> Relation:
        """A public query, as a relation of its own: with the CTEs it needs, and columns typed by the finisher. Its columns are
        lent under names of ours."""
        ...

    def known(self, found: Input, steady: bool = False) -> pa.Table | None:
        """The rows of a public relation; None when it depends on what is not released yet. ``steady``: they are always the
        same."""
        ...

    def expression(self, node: exp.Expr, names: Names, env: Env) -> tuple[Typed, tuple[Input, ...]]:
        """A row expression that can't fail, with the public relations that its subqueries are lent."""
        ...
