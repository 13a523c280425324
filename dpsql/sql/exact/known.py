"""What the second lock is told beside a text: the policy's tables, public relations that are lent, and our own names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpsql.sql.exact.facts import Hop


@dataclass(frozen=True)
class Base:
    """A table of the policy.

    Args:
        columns: names and SQL types. unit: the column that holds the privacy unit, or that the path starts from.
        path: the hops from there, none where the column is the unit. kind: the unit's SQL type.
    """

    columns: Mapping[str, str]
    public: bool = False
    unit: str | None = None
    path: tuple[Hop, ...] = ()
    kind: str = ""

    @property
    def row_level(self) -> bool:
        """Whether each row is a unit of its own."""
        return not self.public and self.unit is None


@dataclass(frozen=True)
class Lent:
    """A public relation that is lent to the engine; ``count``: how many rows it has, where that is known."""

    columns: frozenset[str]
    count: int | None = None
    unique: str | None = None
    """A column in which no two rows agree."""


@dataclass(frozen=True)
class Known:
    """What names of a text mean.

    Args:
        tables: by catalog, schema and name. lent: by name. salt: the parameters that hold a secret.
        macros: functions that the owner's database has of its own.
    """

    tables: Mapping[tuple[str, ...], Base]
    lent: Mapping[str, Lent] = field(default_factory=dict)
    salt: frozenset[str] = frozenset({"salt"})
    macros: frozenset[str] = frozenset()
