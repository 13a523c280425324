"""Caps on the rows of one privacy unit, and the tight L1 and L2 bounds that follow from them.

A unit has ``c(g)`` rows that count in group g. Up to three caps bound them: ``in_all`` the sum of all ``c(g)``, ``per_group``
each of them, and ``groups`` the number of positive ones. If one row moves a number by at most 1, the unit moves it by at most
``c(g)`` in group g, so the distances between answers of neighbouring data are the norms of the vector c.

* L1: the sum of ``c(g)`` is at most ``total = min(in_all, per_group * groups)``, which is attained.
* L2: let ``each = min(per_group, total)``. The sum of squares is convex, so over ``0 <= c(g) <= each`` with a sum of at most
  ``total`` it is largest at a vertex: ``total // each`` groups have ``each`` rows, and one has the rest. Since
  ``total <= per_group * groups``, these are at most ``groups`` groups, so the cap on groups is met.

A text that bounds ``c(g)`` by ``each`` and their sum by ``total`` has both distances, whatever the number of groups: groups are
dropped only if their number itself is counted, see :class:`~dpsql.exact.exact_query.Exact`.
"""

from __future__ import annotations

from dpsql.late_dataclass import dataclass


@dataclass(frozen=True)
class RowCaps:
    """The caps in force; None means no cap.

    Args:
        in_all: rows of one unit that count in total (``max_rows``, ``max_rows_contributed``).
        per_group: its rows that count in one group (``max_rows_per_group``).
        groups: its groups that count (``max_groups``, ``max_groups_contributed``), or the number of all groups.
    """

    in_all: int | None
    per_group: int | None = None
    groups: int | None = 1

    @property
    def total(self) -> int | None:
        """The most rows of one unit that count in total; None if unbounded."""
        product = None if self.per_group is None or self.groups is None else self.per_group * self.groups
        known = [most for most in (self.in_all, product) if most is not None]
        return min(known, default=None)

    @property
    def each(self) -> int | None:
        """The most rows of one unit that count in one group; None if unbounded."""
        known = [most for most in (self.per_group, self.total) if most is not None]
        return min(known, default=None)

    @property
    def binds_total(self) -> bool:
        """Whether the cap on all rows is lower than what the other two imply."""
        if self.in_all is None or self.groups == 1:
            return False
        return self.per_group is None or self.groups is None or self.in_all < self.per_group * self.groups

    @property
    def squared(self) -> int:
        """The square of the L2 distance, in rows."""
        total, each = self.bounds
        full, rest = divmod(total, each)
        return full * each**2 + rest**2

    @property
    def bounds(self) -> tuple[int, int]:
        """The total and each, which must be bounded."""
        assert self.total is not None and self.each is not None, "rows per unit are unbounded"
        return self.total, self.each

    def reach(self, gaussian: bool) -> tuple[int, int]:
        """Return rows r and groups g such that noise for r rows in each of g groups covers the caps.

        Laplace noise covers ``r * g``, Gaussian noise ``r * sqrt(g)``. If ``each`` divides ``total``, one pair has
        exactly the L1 and the L2 distance. Otherwise each kind of noise has its own exact pair: all rows in one group,
        or one row in each of ``squared`` groups.
        """
        total, each = self.bounds
        if total % each == 0:
            return each, total // each
        return (1, self.squared) if gaussian else (total, 1)

    def say(self, grouped: bool) -> str:
        """Return the caps as a clause, such as "1 row in one group and 5 rows in all"; empty if there are none."""
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
