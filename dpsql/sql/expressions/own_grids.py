"""Moments of numbers without a public size: each block has a grid of its own, between the least and the greatest of its rows.

The rows are read twice: for these ends, and then for sums of integers as in :mod:`dpsql.sql.expressions.exact_moments`. To
sort the rows of a block takes three times as long.

A block's grid is made of its own rows alone, so a result is a function of these, in any order, as it must be. The grid is
2^42 steps wide, so what a value is off by is measured against the block's spread, however far from zero that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dpsql.sql.expressions.exact_moments import (
    ExactMoments,
    filter_values,
    is_moment,
    write_moment,
    write_parts,
)

_STEPS = 2.0**42
"""Steps between the ends: squares of half of them, 2^40 times, fit 128 bits."""
_NEAREST = "1e-170"
"""Ends that are closer are one number: squares of such distances are no doubles any more."""


@dataclass(frozen=True)
class OwnGridMoments(ExactMoments):
    """Moments over grids of the blocks' own. ``values`` are doubles, NULL where they are missing, none of them infinite."""

    reads_twice: ClassVar[bool] = True

    def add_up(self) -> list[str]:
        raise NotImplementedError("these sums are made apart from others")

    def add_up_alone(self, owner: str, name: str, source: str) -> str:
        """Write the sums of each owner of rows (called ``name``)."""
        items = [f"{owner} AS {name}", *(f"{value} AS {axis}" for axis, value in self.values.items())]
        rows = f"(SELECT {', '.join(items)} FROM {source})"
        if len(self.values) > 1:  # no WHERE: the engine may think then that these are fewer than blocks
            pairs = [f"CASE WHEN each.{b} IS NOT NULL THEN each.{a} END AS {a}" for a, b in ("yx", "xy")]
            rows = f"(SELECT each.{name} AS {name}, {', '.join(pairs)} FROM {rows} AS each)"
        ends, steps = [f"given.{name} AS {name}"], [f"rows.{name} AS {name}"]
        for axis in self.values:
            low, high = f"MIN(given.{axis})", f"MAX(given.{axis})"
            fine = f"WHEN {high} - {low} > {_NEAREST} THEN {_STEPS!r} / ({high} - {low})"
            ends.append(f"({low} + {high}) / 2 AS c{axis}")
            ends.append(f"CASE {fine} ELSE CAST(1 AS DOUBLE) END AS s{axis}")
            steps += [f"ends.c{axis} AS c{axis}", f"ends.s{axis} AS s{axis}"]
            steps.append(f"TRY_CAST((rows.{axis} - ends.c{axis}) * ends.s{axis} AS BIGINT) AS {axis}")
        # always true: of what passes a condition the engine thinks that it is little, as this is
        few = "HAVING COALESCE(MAX(given.y) >= MIN(given.y), TRUE)"
        grid = f"(SELECT {', '.join(ends)} FROM {rows} AS given GROUP BY given.{name} {few}) AS ends"
        on = f"{rows} AS rows JOIN {grid} ON ends.{name} = rows.{name}"
        of = {axis: f"stepped.{axis}" for axis in (*self.values, *(k + a for k in "cs" for a in self.values))}
        sums = [f"{sql.format(**of)} AS {part}" for part, sql in self.sums]
        stepped = f"(SELECT {', '.join(steps)} FROM {on}) AS stepped"
        return f"SELECT stepped.{name} AS {name}, {', '.join(sums)} FROM {stepped} GROUP BY stepped.{name}"


def write_own_grid_moments(
    name: str, values: Sequence[str], condition: str | None, prefix: str
) -> OwnGridMoments | None:
    """Write an aggregate of one or two numbers; None where it is no moment, or they are too long.

    Args:
        name: of the aggregate.
        values: SQL of its arguments as doubles of a reasonable size, NULL where they are missing.
        condition: SQL of its FILTER.
        prefix: begins the names of the layers' columns.
    """
    if not is_moment(name):
        return None
    axes = dict(zip("yx", values, strict=False))
    given = filter_values(axes, condition)
    if given is None:
        return None
    sums, moments = write_parts(
        name,
        prefix,
        dict.fromkeys(axes, False),
        lambda axis: f" / {prefix}_s{axis} + {prefix}_c{axis}",
        lambda a, b: f" / {prefix}_s{a} / {prefix}_s{b}",
    )
    text = " ".join(sql for _, sql in moments)
    # one number for all rows of a block: the engine has no cheaper way to keep it than its least
    kept = [f"{kind}{axis}" for axis in axes for kind in "sc"]
    sums += tuple((f"{prefix}_{one}", f"MIN({{{one}}})") for one in kept if f"{prefix}_{one}" in text)
    return OwnGridMoments(given, "", sums, moments, write_moment(name, prefix), ())
