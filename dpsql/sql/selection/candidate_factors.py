"""Public factors of a candidate, as integers: what an exact aggregate is multiplied by, held to the range that was read.

Integers are whole steps and decimals keep their digits; doubles get a power of two steps to a unit, about 2^20 of them.
The sensitivity of a statistic follows from the range of its factors, which is read from the candidates when the statement is
bound. Every factor is held to that range where it is used: candidates that came out otherwise this time (drawn at
random, or from a clock) change the statistic, never its sensitivity. A missing factor (NULL, NaN, infinite) is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from dpsql.errors import PrivacyError, Span
from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_THRESHOLD
from dpsql.sql.expressions.types import Bounds, Typed
from dpsql.sql.parse.dialect import to_sql
from dpsql.sql.relations.relation import Field

FINE = 20
_FAR = 1 << 62
"""Farthest that a factor may be from 0, in steps."""
_EXACT = 1 << 50
"""Decimals beyond this many steps are rounded, as doubles are."""


@dataclass(frozen=True)
class Weight:
    """A factor as what is computed outside of SQL: ``times`` the BIGINT ``sql``, held to ``[low, high]``.

    NULL is 0; without ``sql`` it is ``times``. ``raw`` is the factor's own text; ``row``: how far one row moves what is
    multiplied.
    """

    times: int
    sql: str | None
    raw: str
    low: int
    high: int
    row: int


@dataclass(frozen=True)
class Factor:
    """A public number per candidate: ``scale`` steps to a unit, between ``low`` and ``high`` steps, 0 among them."""

    typed: Typed
    scale: Fraction
    low: int
    high: int

    @property
    def top(self) -> int:
        """The farthest that it may be from 0, in steps."""
        return max(-self.low, self.high)

    @property
    def whole(self) -> bool:
        """Whether it is an integer that is written out."""
        return isinstance(self.typed.node, exp.Literal) and self.typed.type.kind == "INTEGER"

    @property
    def steps(self) -> str:
        """The factor in steps, not held to its range yet: a BIGINT, NULL where it is missing."""
        text, kind = to_sql(self.typed.node), self.typed.type.kind
        if kind == "INTEGER":
            return f"TRY_CAST({text} AS BIGINT)"
        if kind == "DECIMAL" and self.scale == _digits(self.typed):
            return f"TRY_CAST(TRY(({text}) * {self.scale.numerator}) AS BIGINT)"
        return f"TRY_CAST(ROUND(CAST({text} AS DOUBLE) * {self.scale.numerator}) AS BIGINT)"

    def sql(self, extra: int) -> str:
        """Return the factor in steps, times ``extra``: a HUGEINT, never NULL."""
        if self.whole:
            return f"(CAST({to_sql(self.typed.node)} AS HUGEINT) * {extra})"
        # COALESCE comes first: GREATEST and LEAST pass over a NULL.
        held = f"LEAST(GREATEST(COALESCE({self.steps}, 0), {self.low}), {self.high})"
        return f"(CAST({held} AS HUGEINT) * {extra})"

    def weight(self, extra: int, row: int) -> Weight:
        """Return the factor times ``extra``, of what one row moves by ``row``."""
        text = to_sql(self.typed.node)
        if self.whole:
            return Weight(int(text) * extra, None, text, 0, 0, row)
        return Weight(extra, self.steps, text, self.low, self.high, row)


def factor_of(typed: Typed, span: Span | None) -> Factor:
    """Return a factor with the range that its expression has.

    Raises:
        PrivacyError: it has no range, or one too wide for exact integers.
    """
    bounds = typed.bounds or Bounds()
    if bounds.low is None or bounds.high is None:
        what = "a factor of this statistic has no bound that could be read from the candidates."
        raise PrivacyError(what, span=span, hint="hold it to a range: LEAST(GREATEST(p, 0), 100).")
    scale = _scale(typed)
    low, high = math.floor(bounds.low * scale), math.ceil(bounds.high * scale)
    found = Factor(typed, scale, min(0, low), max(0, high))
    if found.top > _FAR:
        what = "a factor of this statistic is too large for exact integers."
        hint = "write it in larger units, or hold it to a range: LEAST(p, 1000)."
        raise PrivacyError(what, span=span, hint=hint)
    return found


def constant_of(typed: Typed) -> Factor:
    """Return a public number that is added: whatever it is, it moves nothing."""
    return Factor(typed, _scale(typed), -_FAR, _FAR)


def _digits(typed: Typed) -> Fraction:
    return Fraction(10) ** typed.type.digits[1]


def _scale(typed: Typed) -> Fraction:
    """Return the steps to a unit."""
    if typed.type.kind in ("INTEGER", "NULL"):
        return Fraction(1)
    bounds = typed.bounds
    if bounds is None or bounds.low is None or bounds.high is None:
        return _digits(typed) if typed.type.kind == "DECIMAL" else Fraction(1 << FINE)
    top = max(abs(bounds.low), abs(bounds.high), Fraction(1, 1 << FINE))
    if typed.type.kind == "DECIMAL" and top * _digits(typed) <= _EXACT:
        return _digits(typed)
    size = top.numerator.bit_length() - top.denominator.bit_length()
    return Fraction(2) ** max(0, FINE - size - (top > Fraction(2) ** size))


def bounded(f: Field, values: Any) -> Field:
    """Return a field with the range of its values, which are public."""
    if values is None or not f.typed.type.numeric:
        return f
    column = values.column(f.typed.node.name)
    if pa.types.is_floating(column.type):
        column = column.filter(pc.is_finite(column))
    ends = pc.min_max(column).as_py()
    bounds = Bounds.point(0) if ends["min"] is None else Bounds(Fraction(ends["min"]), Fraction(ends["max"]))
    return replace(f, typed=replace(f.typed, bounds=bounds))


def level_of(threshold: Typed, steps: Fraction) -> tuple[int | None, dict[str, str]]:
    """Return the threshold in grid steps: a number, or a column of each candidate."""
    bounds = threshold.bounds
    if threshold.constant and bounds is not None and bounds.low is not None:
        return math.ceil(bounds.low * steps), {}
    # A count reaches 2.5 at 3; on a finer grid a step more or less is nothing, and doubles may be a step off.
    whole = "CEIL" if steps == 1 else "ROUND"
    # Minus infinity is always reached; what is missing never is (GREATEST passes over a NULL, NaN is above all numbers).
    scaled = (
        f"COALESCE({whole}(CAST({to_sql(threshold.node)} AS DOUBLE) * {float(steps)!r}), {float(_FAR)!r})"
    )
    return None, {
        CANDIDATE_THRESHOLD: f"CAST(LEAST(GREATEST({scaled}, -{float(_FAR)!r}), {float(_FAR)!r}) AS BIGINT)"
    }
