"""The half widths of intervals of sums over neighbouring groups: running totals, moving sums, totals.

The variances of independent noise add up; noise in the order of a key has smaller variances of sums. A half width is
public: it depends only on the noise and on the number of steps.

Relation and guarantee: none. This is post-processing of released and public numbers.
"""

from __future__ import annotations

import math
from dataclasses import field
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Aggregation, Together, index_groups
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.moments import Count, Sum
from dpsql.mechanisms.ordered_noise import GrowingTree, OrderedNoise, widen_sum
from dpsql.mechanisms.per_group import Noise
from dpsql.numerics.exact_numbers import Floats, make_values

WindowPlaces = NDArray[np.intp]

WIDTHS_COLUMN = "widths"
"""The column of a relation of half widths: a list with one number per place in a window's order."""
WINDOW_ERROR = "error"
"""The column through which the error of a window's sums is traced, in the relation of its half widths."""


@dataclass(frozen=True)
class WindowSum:
    """A sum, or mean, of a released column over a frame of neighbouring groups.

    Args:
        order: the key that orders the groups; empty for the sum over all of them.
        start, end: the first and last group of the frame, relative to the current one; None if unbounded.
        mean: whether it is divided by the number of groups.
        factor: the absolute value of each number's constant factor.
        cast: whether each number is cast to a type that may round it.
    """

    value: str
    order: str
    partition: frozenset[str] = frozenset()
    start: int | None = None
    end: int | None = 0
    descending: bool = False
    mean: bool = False
    factor: Fraction = Fraction(1)
    cast: bool = field(default=False, compare=False)

    def list_ranges(self, steps: int) -> tuple[WindowPlaces, WindowPlaces]:
        """Return the first and the last step, ascending, of each step's frame; empty frames are omitted."""
        first, last = self.list_frames(steps)
        there = first <= last
        first, last = first[there], last[there]
        return (steps - 1 - last, steps - 1 - first) if self.descending else (first, last)

    def list_frames(self, steps: int) -> tuple[WindowPlaces, WindowPlaces]:
        """Return the first and the last place of each frame in the window's own order; for an empty one first > last."""
        at = np.arange(steps)
        first = np.zeros(steps, dtype=np.intp) if self.start is None else np.maximum(at + self.start, 0)
        last = np.full(steps, steps - 1) if self.end is None else np.minimum(at + self.end, steps - 1)
        return first, last


@dataclass(frozen=True)
class WindowWidths:
    """A relation of the half widths of one window's sums; ``steps`` are the known public numbers of the keys' values."""

    relation: str
    block: str
    window: WindowSum
    keys: tuple[str, ...]
    steps: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        return self.relation

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        return ((WIDTHS_COLUMN, "DOUBLE[]"),)

    def make(self, operator: Operator, released: pa.Table, confidence: float) -> pa.Table:
        """Return the relation: one row, with an empty list if no half width is known."""
        widths = self._find(operator, released, confidence)
        shown = [] if widths is None else [None if math.isnan(width) else float(width) for width in widths]
        return pa.table({WIDTHS_COLUMN: make_values([shown], pa.list_(pa.float64()))})

    def expect_error(self, operator: Operator) -> float | None:
        """Return the mean expected absolute error of the sums, from public numbers; None if unknown.

        It assumes Gaussian noise of equal variance, which for sums of Laplace noise is too much by an eighth at most.
        """
        output, order = self._read(operator)
        if output is None:
            return None
        known, others = dict(self.steps), [key for key in self.keys if key != order]
        apart = self.window.partition == set(others)
        if order not in known or not (apart or all(key in known for key in others)):
            return None
        many = 1 if apart else math.prod(known[key] for key in others)
        noise = output.statistic.noise
        variances = (
            None if many > 1 and self.window.partition else self._list_variances(noise, known[order], True)
        )
        if variances is None or np.isnan(variances).all():
            return None
        first, last = self.window.list_frames(known[order])
        counts = many * (last - first + 1.0)
        errors = np.sqrt(2 / math.pi * many * variances)
        if not isinstance(noise, OrderedNoise):
            errors = np.where(counts == 1, noise.mean_error, errors)
        steps = float(output.steps) if isinstance(output, Sum) else 1.0
        shown = errors * float(self.window.factor) / (counts if self.window.mean else 1.0)
        return float(shown[~np.isnan(variances)].mean() / steps)

    def _read(self, operator: Operator) -> tuple[Count | Sum | None, str]:
        """Return the summed output, and the key that orders its sums; None if unknown."""
        inner = operator.aggregation if isinstance(operator, Together) else operator
        if not isinstance(inner, Aggregation):
            return None, ""
        output = next((o for o in inner.outputs if o.name == self.window.value), None)
        if not isinstance(output, Count | Sum):
            return None, ""
        ordered = isinstance(output.statistic.noise, OrderedNoise)
        free = [key for key in self.keys if key not in self.window.partition]
        order = self.window.order or (inner.ordered if ordered else free[-1] if free else "")
        known = order in free and (not ordered or order == inner.ordered)
        return (output if known else None), order

    def _find(self, operator: Operator, released: pa.Table, confidence: float) -> Floats | None:
        output, order = self._read(operator)
        if output is None or not released.num_rows:
            return None
        noise = output.statistic.noise
        others = tuple(key for key in self.keys if key != order)
        runs = (
            [len(rows) for rows in index_groups(released, others).values()] if others else [released.num_rows]
        )
        many = 1 if self.window.partition == set(others) else len(runs)
        if many > 1 and self.window.partition:
            return None
        variances = self._list_variances(noise, max(runs), min(runs) == max(runs))
        if variances is None:
            return None
        first, last = self.window.list_frames(max(runs))
        counts = many * (last - first + 1.0)
        steps = float(output.steps) if isinstance(output, Sum) else 1.0
        unique = {
            v: widen_sum(noise, many * v, confidence) for v in np.unique(variances[~np.isnan(variances)])
        }
        alone, single = noise.half_width(confidence), not isinstance(noise, GrowingTree)
        widths = np.array(
            [
                math.nan if math.isnan(v) else alone if single and count == 1 else unique[v]
                for v, count in zip(variances, counts, strict=True)
            ]
        )
        return widths / steps * float(self.window.factor) / (counts if self.window.mean else 1.0)

    def _list_variances(self, noise: Noise, steps: int, even: bool) -> Floats | None:
        """Return the variance of each place's sum in a run; NaN if unknown."""
        first, last = self.window.list_frames(steps)
        there = first <= last
        found = np.full(steps, np.nan)
        if not isinstance(noise, OrderedNoise):
            if not even and (self.window.end is None or self.window.start not in (None, 0)):
                found[there] = noise.variance * steps  # runs of different lengths: no sum has more steps
            else:
                found[there] = (noise.variance * (last - first + 1.0))[there]
            return found
        if even and steps == noise.steps:
            found[there] = noise.expect_variances(*self.window.list_ranges(steps)) + noise.rounding
            return found
        if steps > noise.steps:
            return None
        ends = np.arange(noise.steps)  # a run is the difference of two running totals
        found[there] = 4 * noise.expect_variances(0 * ends, ends).max() + noise.rounding
        return found
