"""Utilities that are no plain sum: absolute values, greatest and least of sums, with their sensitivity to one row.

The parts of a utility are sums over rows, each times a public factor, and public numbers. Movements follow from those
of the parts:

    sum        by the sum of the movements of its parts
    ABS        by as much as its argument, either way
    GREATEST   by no more than the part that rises most, and no less than the part that falls most; LEAST likewise
    multiple   by the factor times the movement

Movements are pairs: the greatest decrease and the greatest increase of a number by one more row. So the difference of
two counts moves by 1 and not by 2, and a utility without decreases is monotone.

Some statistics have no common row, whatever the candidate: ``x < c.v`` and ``x >= c.v``. A row then moves only the
statistics of a set without such a pair, and the movement is the greatest over these sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations

import numpy as np

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import ScoresClaim
from dpsql.numerics.exact_numbers import Integers, add_integers, multiply_integers, to_integers

Movement = tuple[int, int]
"""The lowest (at most 0) and the highest (at least 0) change of a number by one more row."""

MAX_SETS = 64
"""The most sets of statistics examined; if there are more, a row is assumed to move all statistics."""


@dataclass(frozen=True)
class Linear:
    """A sum of weighted statistics and of public numbers, by index."""

    terms: tuple[int, ...]
    bases: tuple[int, ...] = ()


@dataclass(frozen=True)
class Total:
    """A sum of forms."""

    parts: tuple[FormNode, ...]


@dataclass(frozen=True)
class Absolute:
    """The distance of a form from zero."""

    part: FormNode


@dataclass(frozen=True)
class Extreme:
    """The greatest of several forms, or the least."""

    parts: tuple[FormNode, ...]
    greatest: bool


@dataclass(frozen=True)
class Multiple:
    """A form times a public factor, by index."""

    factor: int
    part: FormNode


FormNode = Linear | Total | Absolute | Extreme | Multiple


def parts_of(form: FormNode) -> tuple[FormNode, ...]:
    """Return the parts of a form."""
    match form:
        case Linear():
            return ()
        case Absolute(part) | Multiple(_, part):
            return (part,)
        case Total(parts) | Extreme(parts):
            return parts


@dataclass(frozen=True)
class UtilityForm:
    """A utility over its parts.

    Args:
        moves: each statistic's movement, without its factor.
        most: the greatest move of any candidate's utility by one row.
        clipped: whether some statistics clamp values to a candidate's limit.
    """

    root: FormNode
    moves: tuple[Movement, ...]
    apart: tuple[tuple[int, int], ...] = ()
    most: int = 1
    rows: int = 1
    clipped: bool = False

    @property
    def linear(self) -> bool:
        return isinstance(self.root, Linear)

    def claim(self, plain: ScoresClaim) -> ScoresClaim:
        """Return a claim about scores that includes their form."""
        return replace(plain, rows=self.rows, moves=self.moves, apart=self.apart, clipped=self.clipped)

    def evaluate(
        self,
        terms: Sequence[Integers | int],
        bases: Sequence[Integers | int],
        factors: Sequence[Integers | int],
    ) -> Integers | int:
        """Compute the utility of every candidate, exactly; one number if all are equal."""

        def value(form: FormNode) -> Integers | int:
            match form:
                case Linear():
                    return _sum([*(terms[i] for i in form.terms), *(bases[i] for i in form.bases)])
                case Total(parts):
                    return _sum(list(map(value, parts)))
                case Absolute(part):
                    return np.abs(_array(value(part)))
                case Extreme(parts, greatest):
                    return reduce(np.maximum if greatest else np.minimum, map(_array, map(value, parts)))
                case Multiple(factor, part):
                    made: Integers | int = multiply_integers(factors[factor], value(part))
                    return made

        found = value(self.root)
        return found if isinstance(found, int) or len(found) != 1 else int(found[0])

    def bound_own(self, terms: Sequence[Integers | int], factors: Sequence[Integers | int]) -> Integers:
        """Return each candidate's sensitivity to one row, given those of its weighted statistics."""

        def size(form: FormNode) -> Integers:
            match form:
                case Linear():
                    return _array(_sum([np.abs(_array(terms[i])) for i in form.terms]))
                case Total(parts):
                    return _array(_sum(list(map(size, parts))))
                case Absolute(part):
                    return size(part)
                case Extreme(parts):
                    return reduce(np.maximum, map(size, parts))
                case Multiple(factor, part):
                    return _array(multiply_integers(np.abs(_array(factors[factor])), size(part)))

        return np.minimum(np.maximum(size(self.root), 1), _array(self.most))


def _array(value: Integers | int) -> Integers:
    return to_integers([value]) if isinstance(value, int) else value


def _sum(values: Sequence[Integers | int]) -> Integers | int:
    made: Integers | int = reduce(add_integers, values, 0)
    return made


# -- movements --------------------------------------------------------------------------------------------------------


def compute_movement(
    root: FormNode,
    terms: Sequence[Movement],
    factors: Sequence[tuple[int, int]],
    apart: Sequence[tuple[int, int]] = (),
) -> Movement:
    """Compute the movement of a utility by one more row.

    ``factors``: the ranges of the factors of multiples; ``apart``: pairs of statistics without common rows.

    >>> difference = Linear((0, 1))
    >>> compute_movement(difference, [(0, 1), (-1, 0)], [])
    (-1, 1)
    >>> both = Total((Absolute(Linear((0,))), Absolute(Linear((1,)))))
    >>> compute_movement(both, [(0, 1), (0, 1)], []), compute_movement(both, [(0, 1), (0, 1)], [], [(0, 1)])
    ((-2, 2), (-1, 1))
    """
    found = [_move(root, terms, factors, kept) for kept in find_sets(len(terms), apart)]
    return min(low for low, _ in found), max(high for _, high in found)


def _move(
    form: FormNode, terms: Sequence[Movement], factors: Sequence[tuple[int, int]], kept: frozenset[int]
) -> Movement:
    inner = [_move(part, terms, factors, kept) for part in parts_of(form)]
    lows, highs = [low for low, _ in inner], [high for _, high in inner]
    match form:
        case Linear():
            moved = [terms[i] for i in form.terms if i in kept]
            return sum(low for low, _ in moved), sum(high for _, high in moved)
        case Total():
            return sum(lows), sum(highs)
        case Absolute():
            most = max(-lows[0], highs[0])
            return -most, most
        case Extreme():
            return min(lows), max(highs)
        case Multiple(factor):
            ends = [f * v for f in factors[factor] for v in inner[0]]
            return min(ends), max(ends)


def find_sets(count: int, apart: Sequence[tuple[int, int]]) -> Iterator[frozenset[int]]:
    """Yield sets of statistics that one row may count in; every such set is part of one of them.

    >>> sorted(map(sorted, find_sets(3, [(0, 1)])))
    [[0, 2], [1, 2]]
    >>> list(map(sorted, find_sets(2, [])))
    [[0, 1]]
    """
    every = frozenset(range(count))
    sets = {every}
    for pair in apart:
        sets = {left - {gone} for left in sets for gone in (pair if left.issuperset(pair) else (-1,))}
        if len(sets) > MAX_SETS:
            yield every
            return
    for one, other in combinations(sorted(sets, key=len), 2):
        if one < other:
            sets.discard(one)
    yield from sets
