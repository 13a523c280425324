"""Block averages from sums of doubles in any order, where these determine the grid point of the exact average.

Adding doubles rounds at every step, so a sum depends on the order of the rows, and the order on other units' rows: such
sums may not decide what is released. Exact sums cost a conversion of each row. But a combiner looks at a block's average
through a public grid of some ten thousand points, and the error of a sum of ``n`` doubles in *any* order is bounded: with
``u = 2^-53`` and ``g = n u / (1 - n u)``, by ``g`` times the sum of their sizes (Higham, *Accuracy and Stability of
Numerical Algorithms*, 2nd edition, 4.2). So an average farther than that from the middle between two grid points has the
grid point of the exact one, and what is released is a function of the exact averages only. Should one block of a hundred
come closer, all are read again by the exact query, under the same salt: a new one would prefer the partitions that were
certain, which is a choice made by everybody's rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import pyarrow as pa

from dpsql.mechanisms.base import Claim, ClaimedText, Read, Reader, RouteClaim, add_salt
from dpsql.mechanisms.fast import FastRoute
from dpsql.mechanisms.subsample.blocks import BlockResults, BlockSource, LiftedBlocks
from dpsql.mechanisms.subsample.subsample import ResultRange
from dpsql.noise.entropy import Entropy

_MOST = 2**40
"""Rows of a block; beyond, nothing is certain."""
_BITS = 64
_HALF = 1 << (_BITS - 1)


@dataclass(frozen=True)
class BlockMeanPlaces(FastRoute[dict[int, int]]):
    """The grid point of each block's exact average, by the block's number: read in place of the exact query.

    Args:
        beyond: gives one number, not 0 where some row has a number outside ``[low, high]``, infinite or none.
        query: gives ``dpsql_block``, the ``total`` of its numbers inside ``[low, high]`` in any order, and their count ``n``.
        bounds: the grid that the combiner looks through.
        low: where nothing lies below it and above ``high``, the exact query averages the same numbers, but for rounding.
        high: the other end.
        rounding: the most that its average may differ from theirs by.
    """

    beyond: str
    query: str
    bounds: ResultRange
    low: Fraction
    high: Fraction
    rounding: Fraction

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.beyond, self.query)

    def claims(self, plain: Claim) -> Iterator[ClaimedText]:
        yield ClaimedText(self.beyond, RouteClaim())
        yield ClaimedText(self.query, plain)

    def take(self, read: Reader, entropy: Entropy) -> dict[int, int] | None:
        if not read.room or read(self.beyond).column(0).to_pylist() != [0]:
            return None
        table = read(self.query)
        numbers, totals, counts = (table.column(name).to_pylist() for name in ("dpsql_block", "total", "n"))
        places: dict[int, int] = {}
        for number, total, n in zip(numbers, totals, counts, strict=True):
            if number is None:
                continue
            place = self.place(total, n)
            if place is None or number in places:
                return None
            places[number] = place
        return places

    def place(self, total: float, n: int) -> int | None:
        """Return the grid point of the exact average of ``n`` numbers, or None where two are possible.

        >>> bounds = ResultRange(Fraction(0), Fraction(10), 10)
        >>> route = BlockMeanPlaces("", "", bounds, Fraction(0), Fraction(16), Fraction(1, 2**40))
        >>> route.place(3.2e6, 10**6), route.place(3.5e6, 10**6)
        (3, None)
        """
        if total is None or not math.isfinite(total) or not 0 < n <= _MOST:
            return None
        scale = self._scale
        above, below = total.as_integer_ratio()
        above = (above * scale.low_below - scale.low_above * below * n) * scale.per_step
        at = above // (below * n * scale.low_below * scale.step)  # grid steps from the low end, in 2^-64
        # numbers of one sign are on average as large as their average
        size = max(at + 1 + scale.low, 0) * 1001 // 1000 + 1 if self.low >= 0 else scale.size
        reach = n * size // (2**53 - n) + 1 + scale.rounding
        least, most = ((end + _HALF) >> _BITS for end in (at - reach, at + 1 + reach))
        points = self.bounds.points
        if least == most or most < 0 or least > points:
            return min(max(least, 0), points)
        return None

    @cached_property
    def _scale(self) -> _Scale:
        low, step = self.bounds.low, self.bounds.step
        low_steps, size, rounding = (
            math.ceil(x / step * 2**_BITS) for x in (low, max(-self.low, self.high), self.rounding)
        )
        per_step = step.denominator << _BITS
        return _Scale(low.numerator, low.denominator, step.numerator, per_step, low_steps, size, rounding)


@dataclass(frozen=True)
class _Scale:
    """The grid in whole numbers: fractions of a hundred blocks would be reduced to lowest terms at every step."""

    low_above: int
    low_below: int
    step: int
    per_step: int
    low: int
    """This and the fields below in 2^-64 steps, rounded up."""
    size: int
    rounding: int


@dataclass(frozen=True)
class FastBlockMeans(BlockSource):
    """The blocks of :class:`~dpsql.mechanisms.subsample.blocks.LiftedBlocks` for one average, by the shorter way where certain.

    A source for combiners that look at numbers through ``near.bounds``: what they get are its grid points.
    """

    exact: LiftedBlocks
    near: BlockMeanPlaces

    @property
    def blocks(self) -> int:  # type: ignore[override]
        return self.exact.blocks

    @property
    def queries(self) -> tuple[str, ...]:
        return self.exact.queries

    @property
    def checked(self) -> tuple[str, ...]:
        return (*self.exact.queries, *self.near.queries)

    def claims(self, most: int | None) -> Iterator[ClaimedText]:
        for plain in self.exact.claims(most):
            yield plain
            yield from self.near.claims(plain.claim)

    def results(self, read: Read, entropy: Entropy) -> BlockResults:
        reader = add_salt(read, self.checked, entropy)
        places = self.near.take(reader, entropy)
        if places is None:
            return self.exact.results(reader, entropy)
        bounds, (column,) = self.near.bounds, self.exact.columns
        values: list[Any] = [None] * self.blocks
        for number, place in places.items():
            if 0 <= number < self.blocks:
                values[number] = bounds.low + bounds.step * place
        return BlockResults({column: values}, {column: pa.float64()})

    def sentence(self) -> str:
        return self.exact.sentence()
