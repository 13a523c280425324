"""Three ways to release one answer, with their expected errors: inverse sensitivity, PTR, noise for the whole range.

This is arithmetic on public numbers for EXPLAIN: no data are read, nothing is released, no guarantee depends on it. It
assumes, and says, that values are spread evenly between the declared bounds; if the analyst gives no public number of
rows, it assumes several. With n such rows one rank is R / n, for bounds R apart:

    inverse sensitivity   k rows move a range or a trimmed mean by k R / (2 n), and each of them lowers an answer's weight by
                          exp(-rate), so lengths above ln(1 / beta) / rate have probability beta
    PTR                   IQR: a factor of base ** noise of R / 2, if the noisy count finds a base for this many rows;
                          quantiles: exact if enough rows share the value, else NULL; needs a delta
    noise                 one row may move any of them by R, whatever n: Laplace noise of scale R / epsilon
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.mechanisms.aggregation import Part
from dpsql.mechanisms.inverse_sensitivity import InverseSensitivity, Spread
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.ptr import iqr_scale, ptr_statistics
from dpsql.mechanisms.ptr.stability_test import make_stability_test
from dpsql.mechanisms.quantiles import Quantiles
from dpsql.mechanisms.selection.exponential import MostFrequent

ASSUMED_ROWS = (1_000, 10_000, 100_000)
"""Numbers of rows assumed if no public number is given."""
_PASSES = 0.99
_PTR_SHARE = Fraction(19, 40)
"""The share of epsilon of the test in PTR's IQR, and of its noise; a twentieth counts the rows."""


@dataclass(frozen=True)
class AlternativeErrors:
    """The expected errors of one answer for several numbers of rows, each way in the answer's own units (None: no answer)."""

    name: str
    inverse: tuple[float, ...]
    tested: tuple[float | None, ...] | None
    """The errors under PTR; None if public numbers do not determine them."""
    global_noise: float
    width: float
    """The distance between the bounds."""


def compare_ways(
    part: Part, delta: Fraction, rows: Sequence[int], confidence: float
) -> Iterator[AlternativeErrors]:
    """Yield the expected errors of a part's answers, for values spread evenly between the bounds.

    Args:
        delta: PTR's delta.
        rows: numbers of rows.
        confidence: the probability of smaller errors.
    """
    log = -math.log(1 - confidence)
    if isinstance(part, InverseSensitivity):
        width = float((part.high - part.low) / part.steps)
        noise = LaplaceNoise(part.epsilon, max(1, part.high - part.low), part.groups)
        edits = log / float(part.rate)
        errors = tuple(min(edits / (2 * n), 1.0) * width for n in rows)
        tested = _test_spread(part, delta, rows, confidence) if isinstance(part.statistic, Spread) else None
        wide = noise.half_width(confidence) / float(part.steps)
        yield AlternativeErrors(part.name, errors, tested, wide, width)
    elif isinstance(part, Quantiles) and part.even_ends is not None:
        low, high, steps = part.even_ends
        width = float((high - low) / steps)
        for name, rank in zip(part.names, part.ranks, strict=True):
            if rank.end is None:
                share = part.epsilon / len(part.ranks)
                noise = LaplaceNoise(share, max(1, high - low), part.groups)
                off = log / float(part.rate(rank) * rank.scale)
                needed = _count_edits(share / part.groups, delta / part.groups, part.rows)
                shared = 2 * float(max(rank.p, 1 - rank.p)) * needed
                exact = tuple(0.0 if n / (high - low + 1) > shared else None for n in rows)
                errors = tuple(min(off / n, 1.0) * width for n in rows)
                yield AlternativeErrors(
                    name, errors, exact, noise.half_width(confidence) / float(steps), width
                )


def _count_edits(epsilon: Fraction, delta: Fraction, rows: int) -> int:
    """Return the distance to another answer at which PTR's test passes in 99 of 100 runs."""
    return (make_stability_test("AUTO", epsilon, delta).needed(_PASSES) + 1) * rows


def _test_spread(
    part: InverseSensitivity, delta: Fraction, rows: Sequence[int], confidence: float
) -> tuple[float | None, ...]:
    """Return the errors of PTR's IQR, half of the range for such values; None if its test is unlikely to pass."""
    half = part.epsilon * _PTR_SHARE
    edits = _count_edits(half / part.groups, delta / part.groups, part.rows)
    noise = LaplaceNoise(half, ptr_statistics.iqr_sensitivity(), part.groups)
    reach = noise.half_width(confidence) / iqr_scale.LOG_GRID
    spread = float((part.high - part.low) / part.steps) / 2
    found: list[float | None] = []
    for n in rows:
        if n < iqr_scale.count_rows_needed(iqr_scale.BASES[1], edits):
            found.append(None)
            continue
        log = reach * math.log(iqr_scale.choose_base(n, edits))
        found.append(min(math.expm1(min(log, 700.0)), 1.0) * spread)
    return tuple(found)


def describe_ways(
    part: Part, delta: Fraction, rows: Sequence[int], given: bool, confidence: float
) -> Iterator[str]:
    """Yield a sentence per answer that compares the three ways; ``given``: the analyst gave the number of rows."""
    if isinstance(part, MostFrequent):
        behind = part.bound_error(confidence)
        lead = _count_edits(part.epsilon / part.groups, delta / part.groups, part.rows)
        yield (
            f"{part.name}, three ways at {confidence:.4g}: inverse sensitivity, at most {behind:.4g} rows behind the most "
            f"frequent value; PTR (δ={float(delta):g}), exact from a lead of {lead} rows, else NULL; noise on each count, at "
            f"most {2 * behind:.4g} rows behind."
        )
        return
    for errors in compare_ways(part, delta, rows, confidence):
        many = " / ".join(f"{n:,}" for n in rows)
        own = " / ".join(map(_show_error, errors.inverse))
        other = "takes it as AVG with trim, and how far off only the data tell"
        if errors.tested is not None:
            other = f"(δ={float(delta):g}) {' / '.join(map(_show_error, errors.tested))}"
        more = ", more than the bounds are apart" if errors.global_noise > errors.width else ""
        yield (
            f"{errors.name}, three ways at {confidence:.4g}, for {many} rows spread evenly between the bounds "
            f"({'the spread is' if given else 'both are'} assumed): inverse sensitivity {own}; PTR {other}; noise for the whole "
            f"range ±{errors.global_noise:.3g}{more}, however many rows there are."
        )


def _show_error(error: float | None) -> str:
    return "NULL" if error is None else f"±{error:.3g}" if error else "exact"
