"""Claims about rows that come packed, and about the totals that are made of them here.

What becomes of packed rows is no SQL: the second lock holds the texts to these claims, and the claims to what is charged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SensitivityClaim:
    """The claim that one privacy unit moves a number by at most ``steps`` in each of at most ``groups`` groups.

    Both are charged: an L1 distance of ``steps * groups``, and an L2 distance of ``steps`` times the root of ``groups``.
    """

    steps: int
    groups: int = 1


UnitPlace = tuple[tuple[str, ...], str]
"""The path of a table and its column of units."""


@dataclass(frozen=True)
class PackingClaim:
    """One integer per row: the unit in the highest bits, then the group codes, then the values, the first lowest.

    Args:
        keys: the number of group codes.
        values: the greatest of each value.
        tallies: what a unit's total is held to.
        charged: what the noise of each column is made for.
        groups: the most groups that one unit keeps.
        coded: where the integer holds no unit, and the hash of one stands beside it: of which column, for its codes are
            made of all values there are in it.
    """

    keys: int
    values: tuple[int, ...]
    tallies: tuple[tuple[str, int], ...]
    charged: tuple[tuple[str, SensitivityClaim], ...]
    groups: int | None
    coded: UnitPlace | None = None


@dataclass(frozen=True)
class CodesClaim:
    """The claim that a text gives the hash of each different value of a unit's column, once, and nothing else."""

    unit: UnitPlace


@dataclass(frozen=True)
class LentTotals:
    """A relation of exact totals, held to bounds already, that an operator lends to its own queries.

    ``halves`` are totals in two columns, by the first's name: the second, and how many of its steps make one of the first, so
    that ``columns`` is about both, in these steps. A unit is in ``groups`` at most, or ``shares`` as far a way among any.
    """

    keys: tuple[str, ...]
    columns: Mapping[str, int]
    groups: int | None
    halves: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    shares: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return (*self.keys, *self.columns, *(rest for rest, _ in self.halves.values()))
