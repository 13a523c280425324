"""Noisy numbers of what caps and bounds took away of a block's rows, beside its answers, for an analyst who may raise a cap.

Relation: ADD_REMOVE. What a cap removes in all has no bounded sensitivity: one unit may have any number of rows beyond it. So
of each unit no more counts than the caps let it add to the answers: with caps of m rows in each of L groups, at most m L rows
beyond the caps, L groups beyond them, and m L times the largest size of a value beyond the bounds. A unit that comes or goes
moves each number by at most that (it counts once, whatever others have). Guarantee: that of the noises, which have the report's
own share of epsilon in equal parts. The caller must ensure that the query holds each unit to these numbers.

It says whether something is cut, and about how much; beyond twice the caps it says "at least". Nothing is released but notes.
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
"""The share of a block's budget that tells what is cut."""


@dataclass(frozen=True)
class ClippedValue:
    """A value that aggregates hold to ``[low, high]`` grid steps: a column of the rows, what it is made of, steps to a unit."""

    y: str
    low: int
    high: int
    steps: Fraction
    source: str


@dataclass(frozen=True)
class CutNumber:
    """One number of what was cut.

    Args:
        column: of the query's only row, in grid steps.
        what: what lies beyond which cap, for people.
        counted: the most that counts of one unit, for people.
        noise: made for that.
        steps: grid steps to a unit.
    """

    column: str
    what: str
    counted: str
    noise: LaplaceNoise
    steps: Fraction = Fraction(1)

    @property
    def meaning(self) -> str:
        """The words for how far an answer may be off by it, where it is not a number of rows or groups."""
        lacks = "; a sum lacks up to that, an average up to that over its rows"
        return lacks if self.what.endswith("added up") else ""

    def reach(self, confidence: float) -> float:
        """Return how far the noise reaches, in units."""
        return self.noise.half_width(confidence) / float(self.steps)


@dataclass(frozen=True)
class CutReport(Part):
    """Noisy numbers of what caps and bounds took away, as notes.

    Args:
        query: gives one row with a column for each number.
        numbers: at least one.
        level: confidence of what is told.
        share: what it may lose, as people read it.
    """

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
    """Return three significant digits, rounded up; thousands are set apart."""
    if number >= 1000:
        return f"{math.ceil(float(f'{number:.3g}')):,}".replace(",", " ")
    return f"{number:.3g}"
