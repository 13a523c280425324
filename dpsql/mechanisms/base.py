"""What a mechanism is to the rest of the house.

An :class:`Operator` is a frozen value inside a plan: it names the exact queries it needs, knows its cost before
any data are touched, and turns exact relations into a :class:`Release`. It holds no connection and no data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from dpsql.errors import EngineError
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import Event

SALT = "__dpsql_salt__"
"""Where a plan's SQL wants a fresh secret integer: the token stays in the plan, a release fills it in."""


class NoRoom(EngineError):
    """The engine may not take as much memory as a query wants. Said in the same words as any failure of it: only an
    operator that can ask for less at a time looks at the difference."""


class Read(Protocol):
    """Runs one exact query and gives its rows. Only operators hold what it returns, and only while they release."""

    def __call__(self, sql: str, lent: Mapping[str, pa.Table] | None = None, /) -> pa.Table:
        """``lent``: relations that the query reads by these names, besides those of its plan.

        Raises:
            EngineError: it failed; why is withheld.
            KeyboardInterrupt: the user stopped it.
        """
        ...


@dataclass(frozen=True)
class Reader:
    """A :class:`Read` over an engine: what is lent to the plan's queries, and how many packed rows may be held at once.

    ``room`` is 0 where the data are elsewhere: nothing of their size may come here.
    """

    execute: Callable[[str, Mapping[str, pa.Table]], pa.Table]
    lent: Mapping[str, pa.Table]
    room: int = 0
    stream: Callable[[str, Mapping[str, pa.Table]], Iterator[pa.Table]] | None = None
    scratch: Callable[[str, Mapping[str, pa.Table]], pa.Table] | None = None

    def apart(self, sql: str, lent: Mapping[str, pa.Table]) -> pa.Table:
        """As a call, for a query that reads lent relations only: away from the private data, where there is such a place."""
        return (self.scratch or self.execute)(sql, {**self.lent, **lent})

    def __call__(self, sql: str, lent: Mapping[str, pa.Table] | None = None, /) -> pa.Table:
        return self.execute(sql, {**self.lent, **(lent or {})})

    def parts(self, sql: str) -> Iterator[pa.Table]:
        """The rows in parts of a million or so, each held only while it is looked at."""
        return iter((self(sql),)) if self.stream is None else self.stream(sql, self.lent)


def parts(read: Read, sql: str) -> Iterator[pa.Table]:
    """The rows of a query in parts, where the reader can give them so; else all at once. There is one at least."""
    streamed = getattr(read, "parts", None)
    if streamed is None:
        return iter((read(sql),))
    found: Iterator[pa.Table] = streamed(sql)
    return found


@dataclass(frozen=True)
class Release:
    """What leaves a mechanism: public from here on.

    ``table`` holds the released columns; an interval of column ``a`` stands in the double columns ``a__low`` and
    ``a__high`` (NULL where a value has none). Rows come in an order that does not depend on the data beyond what
    is released (sorted by key, by candidate, or by rank of a private choice).
    ``event`` is what was really used: the reserved event, or a cheaper one where hits were not found.
    """

    table: pa.Table
    event: Event
    notes: tuple[str, ...] = ()


@runtime_checkable
class Operator(Protocol):
    """A mechanism applied to exact relations: printable, comparable, storable."""

    @property
    def event(self) -> Event:
        """What is reserved before the data are touched."""
        ...

    @property
    def queries(self) -> tuple[str, ...]:
        """The exact SQL that ``release`` may read, for EXPLAIN."""
        ...

    def release(self, read: Read, entropy: Entropy) -> Release:
        """Reads what it needs and adds the noise. Data-dependent failures are values, not exceptions."""
        ...

    def sentences(self, confidence: float) -> tuple[str, ...]:
        """For EXPLAIN: noise, scale, expected error; public quantities only."""
        ...


def salted(sql: str, entropy: Entropy) -> str:
    """``sql`` with every :data:`SALT` token replaced by one fresh non-negative 63-bit integer literal.

    A plan is a fixed text, but rows, groups and blocks are chosen by ``hash(salt, privacy unit, ...)`` with a
    salt that nobody knows and that changes with every release. All tokens of one text get the same number, so
    that two mentions of a hash agree; an operator that reads several queries which must agree fills them
    through :func:`salted_all`. Text without the token comes back unchanged and costs no entropy.

    Mix the salt in *before* hashing: ``hash(xor(hash(unit), salt))``. DuckDB combines the hashes of several arguments
    by a multiplication and an exclusive or, so ``hash(unit, salt) % m`` gives the same blocks under every salt, with
    other numbers (m a power of two), and several rounds of it one and the same partition.

    >>> salted("SELECT 1", Entropy())
    'SELECT 1'
    """
    if SALT not in sql:
        return sql
    return sql.replace(SALT, str(int(entropy.words(1)[0]) >> 1))


_MARK = "\x00"


def salted_all(texts: Sequence[str], entropy: Entropy) -> list[str]:
    """The texts, with one fresh salt for all of them: queries that must agree on which rows or blocks are chosen."""
    return salted(_MARK.join(texts), entropy).split(_MARK)
