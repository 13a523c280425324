"""The expected absolute error of noisy aggregates: the mean effect of noise, from public numbers alone.

For EXPLAIN: no data are read, and no guarantee depends on it. The error of a count or a sum is its noise. A quotient by
a count (a mean, a variance, a correlation) depends on private rows, so its error assumes a number of rows, such as
:data:`TYPICAL_ROWS`, spread evenly between the bounds; for a mean, with a mean a quarter of the bounds' distance from
their middle. Functions of several noisy numbers are linearised, and squared errors add up.

Once an answer is released, its intervals determine the error of such functions (:func:`read_mean_error`), also under
bounds found privately; noise under caps that were found is scaled to the cap.

The bias of caps, clipping and bounds depends on the data; ``OPTIONS (report_cut = TRUE)`` pays for a report on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from dpsql.mechanisms.moments import MEAN_ROWS, Count, Mean, Output, Pair, Sum, Variance
from dpsql.mechanisms.per_group import Noise, Statistic

TYPICAL_ROWS = MEAN_ROWS[0]
"""The assumed rows of a group for errors that depend on their number, if only one can be shown."""
_OFF_CENTRE = 1 / 4
"""The assumed distance of the rows' mean from the middle of the bounds, as a fraction of the bounds' distance."""
_EVEN_VARIANCE = 1 / 12
"""The variance of values spread evenly between the bounds, as a fraction of the squared distance."""


def expect_mean_error(output: Output, rows: int) -> float | None:
    """Return the expected absolute error of an output for ``rows`` rows per group, in its own units; None if unknown."""
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
    """Return the expected absolute error behind released intervals: their mean half width, scaled for the kind of noise."""
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
    """Return the error of a moment divided by the number of rows, in units."""
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
    """Return the error of a measure of two independent columns, whose covariance and derivatives by variances are 0."""
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
        return min(r, 1.0)  # near one half its square moves as much, and less below
    if output.kind == "regr_slope":
        return slope
    mean = add_errors([totals[y], off[y] * count])
    return add_errors([mean, (abs(float(x.centre)) + off[x]) * slope])
