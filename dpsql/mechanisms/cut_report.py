"""Noisy counts of the rows removed by caps and bounds, for an analyst who may raise a cap.

Relation: ADD_REMOVE. The total removed by a cap has no bounded sensitivity: one unit may have any number of rows above
it. So a unit counts for at most what the caps allow it to add to the answers: with caps of m rows in each of L groups,
at most m L rows and L groups above the caps, and m L times the largest size of a value outside the bounds. A unit that
is added or removed moves each number by at most that, independently of other units. Guarantee: that of the noises,
which share the report's epsilon equally. The caller must ensure that the query applies these limits to each unit.

The report says whether something is cut, and about how much; above twice the caps it says "at least". Only notes are released.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from dpsql.mechanisms.aggregation import Answered, Group, Part
from dpsql.mechanisms.base import ClaimedText, SensitivityClaim, SumsClaim
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import read_integers
from dpsql.privacy.events import Event, compose_events

CUT_SHARE = Fraction(1, 10)
"""The report's share of a block's budget."""


@dataclass(frozen=True)
class ClippedValue:
    """A value that aggregates clamp to ``[low, high]`` grid steps: a column of the rows, its expression, steps to a unit."""

    y: str
    low: int
    high: int
    steps: Fraction
    source: str


@dataclass(frozen=True)
class CutNumber:
    """One number of removed rows, groups or values.

    Args:
        column: of the query's only row, in grid steps.
        what: what exceeds which cap, for people.
        counted: the limit on one unit, for people.
    """

    column: str
    what: str
    counted: str
    noise: LaplaceNoise
    steps: Fraction = Fraction(1)

    @property
    def meaning(self) -> str:
        """The wording of its effect on an answer, unless it counts rows or groups."""
        lacks = "; a sum lacks up to that, an average up to that over its rows"
        return lacks if self.what.endswith("added up") else ""

    def reach(self, confidence: float) -> float:
        """Return the half width of its interval, in units."""
        return self.noise.half_width(confidence) / float(self.steps)


@dataclass(frozen=True)
class CutReport(Part):
    """Noisy numbers of the effect of caps and bounds, as notes with confidence ``level``; ``share`` is the loss in words."""

    query: str
    numbers: tuple[CutNumber, ...]
    level: float
    share: str
    keys: tuple[str, ...] = ()

    @property
    def event(self) -> Event:
        return compose_events(number.noise.event for number in self.numbers)

    def claims(self) -> Iterator[ClaimedText]:
        moved = ((n.column, SensitivityClaim(n.noise.sensitivity)) for n in self.numbers)
        yield ClaimedText(self.query, SumsClaim((), tuple(moved)))

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        notes = (self._note(number, table, entropy) for number in self.numbers)
        return Answered({}, self.event, tuple(notes))

    def _note(self, number: CutNumber, table: pa.Table, entropy: Entropy) -> str:
        exact: Any = read_integers(table.column(number.column)) if table.num_rows else [0]
        noisy = int(number.noise.add(exact[:1], entropy)[0]) / float(number.steps)
        reach = number.reach(self.level)
        if noisy <= reach:
            return f"cut: {number.what}: up to {_write(max(noisy, 0) + reach)}, which the noise hides{number.meaning}"
        return f"cut: {number.what}: about {_write(noisy)} ± {_write(reach)}, counting at most {number.counted} of one unit"

    def sentences(self, confidence: float) -> tuple[str, ...]:
        told = "; ".join(f"{n.what} (±{_write(n.reach(confidence))})" for n in self.numbers)
        return (
            f"What caps and bounds cut is told in notes, for {self.share} of the whole: {told}, with "
            f"{confidence:.4g} probability. Of one privacy unit no more counts than the caps let it add.",
        )

    @property
    def price_note(self) -> str:
        return f"{self.share} of it tells what caps and bounds cut"


def _write(number: float) -> str:
    """Return three significant digits, rounded up, with thousands separators."""
    if number >= 1000:
        return f"{math.ceil(float(f'{number:.3g}')):,}".replace(",", " ")
    return f"{number:.3g}"
