"""Caps on the rows of one privacy unit, and the least that they let it move a group's numbers by.

A unit has ``c(g)`` rows that count in group g. Up to three caps bound them: ``in_all`` the sum of all ``c(g)``, ``per_group``
each of them, and ``groups`` how many are above 0. A number that one row moves by at most 1 moves by at most ``c(g)`` in group
g, so the distances between the answers of neighbouring data are those of the vector c.

* L1: the sum of ``c(g)`` is at most ``in_all``, and at most ``per_group * groups``. Both are reached, so
  ``total = min(in_all, per_group * groups)`` is the least bound.
* L2: among vectors with ``0 <= c(g) <= each`` and a sum of at most ``total``, where ``each = min(per_group, total)``, the sum of
  squares is convex, so it is greatest at a vertex: ``total // each`` groups have ``each`` rows, one has the rest. For ``total
  <= per_group * groups`` these are no more than ``groups`` groups, so the cap on groups makes it no smaller.

An SQL text that holds ``c(g)`` to ``each`` and their sum to ``total`` has both distances, in how many groups the rows ever are.
That is why groups are left out only where their number itself is counted, see :class:`~dpsql.exact.exact_query.Exact`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RowCaps:
    """The caps in force, each None where there is none.

    Args:
        in_all: rows of one unit that count in all (``max_rows``, ``max_rows_contributed``).
        per_group: rows of it that count in one group (``max_rows_per_group``).
        groups: groups that it counts in (``max_groups``, ``max_groups_contributed``), or all that there are.
    """

    in_all: int | None
    per_group: int | None = None
    groups: int | None = 1

    @property
    def total(self) -> int | None:
        """The most rows of one unit that count in all; None where nothing bounds them."""
        product = None if self.per_group is None or self.groups is None else self.per_group * self.groups
        known = [most for most in (self.in_all, product) if most is not None]
        return min(known, default=None)

    @property
    def each(self) -> int | None:
        """The most rows of one unit that count in one group; None where nothing bounds them."""
        known = [most for most in (self.per_group, self.total) if most is not None]
        return min(known, default=None)

    @property
    def binds_total(self) -> bool:
        """Whether the cap on all rows allows less than the other two do."""
        if self.in_all is None:
            return False
        if self.groups == 1:
            return False
        if self.per_group is None or self.groups is None:
            return True
        return self.in_all < self.per_group * self.groups

    @property
    def squared(self) -> int:
        """The square of the L2 distance, in rows."""
        total, each = self.total, self.each
        assert total is not None and each is not None, "rows per unit are unbounded"
        full, rest = divmod(total, each)
        return full * each**2 + rest**2

    def reach(self, gaussian: bool) -> tuple[int, int]:
        """Return rows and groups such that noise for so many rows in each of so many groups covers the caps.

        Laplace noise covers their product, Gaussian noise the root of the groups times the rows. Where ``each`` divides
        ``total``, one pair has exactly the L1 and the L2 distance. Where it does not, each kind of noise has the pair
        that is exact for it: all rows in one group, or one row in as many groups as the squared L2 distance.
        """
        total, each = self.total, self.each
        assert total is not None and each is not None, "rows per unit are unbounded"
        if total % each == 0:
            return each, total // each
        return (1, self.squared) if gaussian else (total, 1)

    def say(self, grouped: bool) -> str:
        """Return the caps that hold as a clause of what counts; empty where there is none."""
        if self.total is None and self.each is None:
            return ""
        if not grouped:
            return f"{_count(self.total, 'row')} in all"
        parts = []
        if self.each is not None and self.each != self.total:
            parts.append(f"{_count(self.each, 'row')} in one group")
        if self.total is not None:
            parts.append(f"{_count(self.total, 'row')} in all")
        return " and ".join(parts)


def _count(number: int | None, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
