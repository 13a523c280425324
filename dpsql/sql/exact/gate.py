"""What every exact query passes on its way to the engine: its normal form is written, and it is proved safe."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot.errors import SqlglotError

from dpsql.mechanisms.claimed import claims_of
from dpsql.mechanisms.claims import Claimed
from dpsql.policy import fold
from dpsql.sql.exact.check import Serialise
from dpsql.sql.exact.lock import Lock, columns_of
from dpsql.sql.exact.query import UnresolvedName, normal_form, with_values, without_values
from dpsql.sql.relations.catalog import Catalog
from dpsql.sql.relations.relation import UNIT

Prove = Callable[[str, str, Mapping[str, pa.Table], Mapping[str, int]], None]
MAX_KEPT = 1000
"""Texts, but for their values, whose normal forms are remembered."""


class Gate:
    """The only way from an operator's texts to an engine.

    Args:
        catalog: what the data's tables, columns and struct fields are called: no alias is called like one of them.
        serialise: the engine's own parser, for the second lock.
    """

    def __init__(self, catalog: Catalog, serialise: Serialise) -> None:
        self._catalog = catalog
        self._lock = Lock(catalog, serialise)
        self._allowed: dict[str, None] = {}
        self._unit = f"unit_{secrets.token_hex(8)}"
        self._kept: dict[tuple[object, ...], str] = {}

    def exact(self, sql: str, lent: Mapping[str, Sequence[str]]) -> str:
        """Return the text that the engine gets for an operator's query.

        Args:
            sql: an exact query; its parameters stay in it.
            lent: the columns of the public relations that it may read, by the relations' names.
        """
        shape, values = without_values(sql)
        key = (shape, *((name, *columns) for name, columns in sorted(lent.items())))
        found = self._kept.get(key)
        if found is None:
            try:
                found = self._written(shape, lent, self._unit)
            except (SqlglotError, UnresolvedName):  # a value that is part of the syntax
                return self._written(sql, lent, self._unit)
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[key] = found
        return with_values(found, values)

    def prove(self, operator: object, lent: Mapping[str, Sequence[str]]) -> None:
        """Prove every text that an operator may read, before anything is paid.

        Raises:
            Unproved: one of them may do more than the operator charges for.
        """
        for claimed in claims_of(operator):
            given = {**lent, **columns_of(claimed)}
            text = self.exact(claimed.text, given)
            self._lock.prove(replace(claimed, text=text), lent)
            self._allowed.pop(text, None)
            self._allowed[text] = None
        while len(self._allowed) > MAX_KEPT:  # the oldest
            del self._allowed[next(iter(self._allowed))]

    def reading(self, operator: object) -> Callable[[str, Mapping[str, pa.Table]], str]:
        """Return what becomes of each text that an operator reads, with the relations lent to it.

        Without an operator nothing is released: texts get their normal form only, for tests that look at exact rows.
        """
        claims = () if operator is None else claims_of(operator)

        def text(sql: str, lent: Mapping[str, pa.Table]) -> str:
            columns = {name: table.column_names for name, table in lent.items()}
            return self.exact(sql, columns) if operator is None else self.proved(sql, columns, claims)

        return text

    def prove_written(
        self, operator: object, text: str, written: str, lent: Mapping[str, Sequence[str]], salt: int | None
    ) -> None:
        """Prove what an engine of another language runs in a text's place, before anything is paid.

        Args:
            text: the exact query in its normal form. written: what is run. lent: columns of what is lent to it.
            salt: the number that stands in it for the secret.

        Raises:
            Unproved: it may do more than the operator charges for.
        """
        packed = getattr(getattr(operator, "packed", None), "queries", ())
        claims = claims_of(operator)
        if any(text == self._text_of(claimed, lent) for claimed in claims if claimed.text in packed):
            return  # read only where rows may come here, which they may not: else refused when it is read
        self._prove_written(claims, text, written, lent, salt)

    def proving(self, operator: object) -> Prove | None:
        """Return what proves each text that runs in another language; None where none does.

        Without an operator nothing is released, as for ``reading``.
        """
        if operator is None:
            return None
        claims, engine = claims_of(operator), self._catalog.engine

        def prove(text: str, full: str, lent: Mapping[str, pa.Table], values: Mapping[str, int]) -> None:
            columns = {name: table.column_names for name, table in lent.items()}
            written = engine.written(full, lent)
            if written is not None:
                self._prove_written(claims, text, written, columns, values.get("salt"))

        return prove

    def _prove_written(
        self, claims: Sequence[Claimed], text: str, written: str, lent: Mapping[str, Sequence[str]], salt: int | None
    ) -> None:  # fmt: skip
        own = {name for claimed in claims for name in claimed.lent}
        others = {name: columns for name, columns in lent.items() if name not in own}
        mine = [claimed for claimed in claims if self._text_of(claimed, others) == text]
        self._lock.prove_written(written, mine, claims, others, salt)

    def _text_of(self, claimed: Claimed, lent: Mapping[str, Sequence[str]]) -> str:
        return self.exact(claimed.text, {**lent, **columns_of(claimed)})

    def proved(self, sql: str, lent: Mapping[str, Sequence[str]], claims: Sequence[Claimed]) -> str:
        """Return the text that the engine gets while an operator runs; one that was not proved before is proved now.

        Raises:
            Unproved: it does what no claim of the operator covers.
        """
        text = self.exact(sql, lent)
        if text not in self._allowed:
            own = {name for claimed in claims for name in claimed.lent}
            self._lock.prove_late(text, claims, {n: c for n, c in lent.items() if n not in own})
        return text

    def shown(self, sql: str, lent: Mapping[str, Sequence[str]]) -> str:
        """Return the same text for people, with a fixed word for the secret name of the unit's column."""
        return self._written(sql, lent, UNIT)

    def compared(self, sql: str, lent: Mapping[str, Sequence[str]]) -> str:
        """Return the same text as what the engine gets, with that fixed word: to tell equal queries from others."""
        return self.exact(sql, lent).replace(self._unit, UNIT)

    def _written(self, sql: str, lent: Mapping[str, Sequence[str]], unit: str) -> str:
        taken = {fold(name) for columns in lent.values() for name in columns} | {fold(name) for name in lent}

        def columns(parts: tuple[str, ...]) -> Sequence[str] | None:
            return lent.get(parts[0]) if len(parts) == 1 else None

        return normal_form(sql, columns, self._catalog.names | taken, unit)
