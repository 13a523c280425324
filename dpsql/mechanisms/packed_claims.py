"""Claims about packed rows, and about the totals computed from them in this process.

The processing of packed rows is no SQL: the second lock checks the texts against these claims, and these against the charge.
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
"""A table's path and its unit column."""


@dataclass(frozen=True)
class PackingClaim:
    """One integer per row: the unit in the highest bits, then the group codes, then the values, the first lowest.

    Args:
        keys: the number of group codes.
        values: the greatest of each value.
        tallies: the limits on a unit's totals.
        charged: the sensitivity that each column's noise is calibrated to.
        groups: the most groups kept per unit.
        coded: the unit column whose hash accompanies an integer without unit; its codes cover all values of the column.
    """

    keys: int
    values: tuple[int, ...]
    tallies: tuple[tuple[str, int], ...]
    charged: tuple[tuple[str, SensitivityClaim], ...]
    groups: int | None
    coded: UnitPlace | None = None


@dataclass(frozen=True)
class CodesClaim:
    """The claim that a text returns the hash of each distinct value of a unit's column once, and nothing else."""

    unit: UnitPlace


@dataclass(frozen=True)
class LentTotals:
    """A relation of exact, already bounded totals that an operator provides to its own queries.

    ``halves`` are totals in two columns, by the first's name: the second, and the number of its steps per step of the
    first; ``columns`` then counts both in these steps. A unit is in at most ``groups`` groups; with ``shares`` it may
    be in any number, but moves their total by no more than in ``groups`` groups.
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
