"""The expected absolute error of noisy aggregates: what noise adds on average, from public numbers alone.

For EXPLAIN: no data are read, and no guarantee rests on it. A count or a sum is off by its noise, whatever the data are. What is
divided by a count (a mean, a variance, a correlation) depends on rows that only the data know, so it is told for an assumed
number of rows, such as :data:`TYPICAL_ROWS`, whose values are spread evenly between the bounds; of a mean, that lie a quarter of
the bounds' distance off their middle. Of functions of several noisy numbers the first derivatives count, and squared errors add
up.

Once an answer is released, its own intervals tell of such functions instead (:func:`read_mean_error`), and of bounds that were
found privately; noise under caps that were found is that of the cap.

What caps, clipping and bounds take away is bias that only the data know; ``OPTIONS (report_cut = TRUE)`` pays for a look at it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from dpsql.mechanisms.moments import MEAN_ROWS, Count, Mean, Output, Pair, Sum, Variance
from dpsql.mechanisms.per_group import Noise, Statistic

TYPICAL_ROWS = MEAN_ROWS[0]
"""Rows of a group for which errors are told that depend on their number, where there is room for one."""
_OFF_CENTRE = 1 / 4
"""The assumed distance of the rows' mean from the middle of the bounds, in parts of the bounds' distance."""
_EVEN_VARIANCE = 1 / 12
"""The variance of values that are spread evenly between the bounds, in parts of the squared distance."""


def expect_mean_error(output: Output, rows: int) -> float | None:
    """Return the expected absolute error of an output in its own units; None where nothing is known of it.

    Args:
        output: a noisy aggregate.
        rows: the assumed number of rows of a group, where the error depends on it.
    """
    match output:
        case Count():
            return output.statistic.noise.mean_error
        case Sum():
            return output.statistic.noise.mean_error / float(output.steps)
        case Mean():
            return min(_of_mean(output, rows), _reach(output))
        case Variance():
            return _of_variance(output, rows)
        case Pair():
            return _of_pair(output, rows)
    return None


def read_mean_error(released: pa.Table, name: str, noise: Noise, confidence: float | None) -> float | None:
    """Return the expected absolute error behind released intervals: their half width on average, in proportion to the noise.

    Args:
        released: with the ends of each interval.
        name: of the column.
        noise: the kind of noise that the intervals are for.
        confidence: of the intervals.
    """
    low, high = (released.column(name + end) for end in ("__low", "__high"))
    width = pc.mean(pc.subtract(high, low)).as_py()
    if width is None or confidence is None:
        return None
    return float(width) / 2 * noise.mean_error / max(noise.half_width(confidence), 1.0)


def add_errors(errors: Iterable[float]) -> float:
    """Return the error of a sum of independent terms with these errors."""
    return math.sqrt(sum(error * error for error in errors))


def _reach(output: Mean | Variance) -> float:
    return float(output.bounds[1] - output.bounds[0])


def _per_row(statistic: Statistic, steps: float, whole: int, rows: int) -> float:
    """Return the error of a moment over the number of rows, in units."""
    return statistic.noise.mean_error / (steps * whole * rows)


def _of_mean(output: Mean, rows: int) -> float:
    off = _OFF_CENTRE * _reach(output)
    total = _per_row(output.total, float(output.steps), output.whole, rows)
    return add_errors([total, off * _per_row(output.count, 1, output.whole, rows)])


def _of_variance(output: Variance, rows: int) -> float:
    reach = _reach(output)
    off, variance = _OFF_CENTRE * reach, _EVEN_VARIANCE * reach**2
    squares, total, count = output.moments
    error = add_errors([
        _per_row(squares.statistic, float(squares.steps) / output.whole, output.whole, rows),
        2 * off * _per_row(total.statistic, float(total.steps) / output.whole, output.whole, rows),
        (off**2 - variance) * _per_row(count.statistic, 1, output.whole, rows),
    ])  # fmt: skip
    if output.kind.startswith("stddev"):
        return min(error / (2 * math.sqrt(variance)), reach / 2)
    return min(error, reach**2 / 4)


def _of_pair(output: Pair, rows: int) -> float:
    """Return the error of a measure of two independent columns: their covariance is 0, and so are derivatives by variances."""
    y, x = output.y, output.x
    off = {axis: _OFF_CENTRE * axis.reach for axis in (y, x)}
    product = _per_row(output.product, float(y.steps * x.steps), output.whole, rows)
    count = _per_row(output.count, 1, output.whole, rows)
    totals = {axis: _per_row(axis.total, float(axis.steps), output.whole, rows) for axis in (y, x)}
    covariance = add_errors([product, off[x] * totals[y], off[y] * totals[x], off[y] * off[x] * count])
    slope = covariance / (_EVEN_VARIANCE * x.reach**2 or 1.0)
    if output.kind.startswith("covar"):
        return min(covariance, y.reach * x.reach / 4)
    if output.kind in ("corr", "regr_r2"):
        r = covariance / (_EVEN_VARIANCE * y.reach * x.reach or 1.0)
        return min(r, 1.0)  # its square moves as much where it is about a half, and less below
    if output.kind == "regr_slope":
        return slope
    mean = add_errors([totals[y], off[y] * count])
    return add_errors([mean, (abs(float(x.centre)) + off[x]) * slope])
