"""What an operator says of each exact text that it may read, in the numbers that its noise is made of.

The second lock (:mod:`dpsql.sql.exact.check`) derives the same numbers from the text and compares: a text may do less
than its claim allows, never more. A claim is built from the noise, never from the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


class Noisy(Protocol):
    """Noise of one statistic: what one privacy unit may move it by in a group, and in how many groups."""

    @property
    def sensitivity(self) -> int: ...

    @property
    def groups(self) -> int: ...


@dataclass(frozen=True)
class Moves:
    """At most this much moves in a group when one privacy unit comes or goes (in grid steps), in at most ``groups``.

    What is charged is the pair: noise of an L1 distance of ``steps * groups`` and an L2 distance of ``steps`` times the
    root of ``groups``.
    """

    steps: int
    groups: int = 1

    @classmethod
    def of(cls, noise: Noisy) -> Moves:
        return cls(noise.sensitivity, noise.groups)


@dataclass(frozen=True)
class Sums:
    """One row for each group of ``keys``; a column's exact number moves as its noise is made for.

    ``selected``: groups are kept by a mechanism of their own; else which groups there are must be public.
    """

    keys: tuple[str, ...]
    columns: tuple[tuple[str, Moves], ...]
    selected: bool = False


@dataclass(frozen=True)
class Scores:
    """The column of candidates' scores, which one privacy unit moves by at most ``most``: by ``rows`` of its rows.

    Args:
        terms: how far a row moves each statistic of it, where the operator says so. clipped: some hold values to a limit.
        own: the column of each candidate's own sensitivity, where they differ.
    """

    column: str
    most: int
    rows: int
    terms: tuple[int, ...] | None = None
    clipped: bool = False
    own: str | None = None


@dataclass(frozen=True)
class Rows:
    """Any function, group by group of ``keys``, of at most ``rows`` rows of a privacy unit in each of at most ``groups``.

    ``within`` are columns that are held to a distance from zero; ``moves`` sums, with what one row moves each by.
    """

    rows: int
    groups: int = 1
    keys: tuple[str, ...] = ()
    within: tuple[tuple[str, int], ...] = ()
    moves: tuple[tuple[str, int], ...] = ()
    each: str | None = None
    """A column of public candidates: a unit's rows may count for each of them."""
    scores: Scores | None = None


@dataclass(frozen=True)
class Blocks:
    """Any function, block by block: a row is made of what has the number in ``column``. A unit is in ``most`` of them.

    ``most`` is None where a text of its own counts how many blocks a unit is in (:class:`Participates`).
    """

    column: str
    most: int | None = 1


@dataclass(frozen=True)
class Participates:
    """The greatest number of blocks that a privacy unit is in."""


@dataclass(frozen=True)
class Public:
    """Reads nothing private."""


@dataclass(frozen=True)
class Choice:
    """What is read only decides between ways that release the same distribution: ranges, numbers of rows, bins."""


@dataclass(frozen=True)
class Packing:
    """One integer for each row: the unit above, then the codes of the groups, then the values with the first lowest.

    ``values`` are the greatest of each, ``keys`` how many codes there are; ``tallies`` what a unit's total is held to.
    """

    keys: int
    values: tuple[int, ...]
    tallies: tuple[tuple[str, int], ...]
    charged: tuple[tuple[str, Moves], ...]
    groups: int | None


Claim = Sums | Rows | Blocks | Participates | Public | Choice | Packing


@dataclass(frozen=True)
class Totals:
    """A relation of exact totals that an operator lends to its own queries: held to bounds before.

    ``halves`` are totals in two columns, by the first: the second, and how many of the second's steps one of the first is;
    ``columns`` says then how far a unit moves both together, in these steps.
    """

    keys: tuple[str, ...]
    columns: Mapping[str, int]
    groups: int | None
    halves: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """All columns."""
        return (*self.keys, *self.columns, *(rest for rest, _ in self.halves.values()))


@dataclass(frozen=True)
class Claimed:
    """A text, what is said of it, and the private relations that the operator itself lends to it."""

    text: str
    claim: Claim
    lent: Mapping[str, Totals | Sequence[str]] = field(default_factory=dict)
