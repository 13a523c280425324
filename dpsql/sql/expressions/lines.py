"""Dates, times, intervals and booleans as numbers: bounds as seconds, values on a line, answers as DuckDB's types.

Bounds of a DATE or TIMESTAMP count seconds since 1970, those of a TIME since midnight, those of an INTERVAL its length
(a month of 30 days, as DuckDB's EPOCH has it). A DATE stands on its line in days, all else in seconds, from a start in
the middle of the bounds, which keeps sums small. What is no moment (infinity) is missing.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from dpsql.errors import PolicyError
from dpsql.policy_checks import Moment
from dpsql.sql.bounds import Interval
from dpsql.sql.dialect import to_sql
from dpsql.sql.expressions.meeting import attempt, call, cast
from dpsql.sql.expressions.moments import length_of, seconds
from dpsql.sql.expressions.types import BIGINT, DATE, DOUBLE, INTEGER, Typed

DAY = 86_400
MOMENTS = ("DATE", "TIMESTAMP", "TIME", "INTERVAL")
_CALENDAR = ("DATE", "TIMESTAMP")
_NOON = datetime.datetime(1970, 1, 1)

Back = Callable[[str], str]
"""From SQL of a released number to SQL of what is shown."""


@dataclass(frozen=True)
class Line:
    """A value as a number, its bounds there, and the ways back: to the finest and to its own type (None: it is one)."""

    typed: Typed
    low: Fraction
    high: Fraction
    between: Back | None = None
    own: Back | None = None
    shown: tuple[str, str] = ("", "")
    """The bounds for the eye."""

    @property
    def unit(self) -> str:
        return "days" if self.typed.type.kind == "INTEGER" else "seconds"


def line(typed: Typed, low: Fraction, high: Fraction) -> Line:
    """The value on its line. ``low`` and ``high`` are as bounds have them."""
    kind = typed.type.kind
    if kind == "BOOLEAN":
        made = Typed(cast(typed.node, INTEGER), INTEGER, typed.bounds, nullable=typed.nullable)
        return Line(made, low, high, None, lambda text: f"CAST(CAST(ROUND({text}) AS INTEGER) AS BOOLEAN)")
    if kind not in MOMENTS:
        return Line(typed, low, high)
    start = Fraction((int(low) + int(high)) // 2 // DAY * DAY) if kind in _CALENDAR else Fraction(0)
    told = _shown(kind, low), _shown(kind, high)
    stamp = (_NOON + datetime.timedelta(seconds=int(start))).isoformat(" ")
    if kind == "DATE":
        since = cast(exp.Literal.string(stamp[:10]), DATE)
        made = Typed(attempt(call("date_diff", exp.Literal.string("day"), since, typed.node)), BIGINT)
        return Line(
            made, (low - start) / DAY, (high - start) / DAY,
            lambda text: f"(CAST('{stamp}' AS TIMESTAMP) + {_length(text, DAY)})",
            lambda text: f"(CAST('{stamp[:10]}' AS DATE) + CAST(ROUND({text}) AS INTEGER))",
            told,
        )  # fmt: skip
    node = seconds(typed)
    if start:
        node = exp.Sub(this=node, expression=cast(exp.Literal.number(int(start)), DOUBLE))
    back: Back
    if kind == "TIMESTAMP":
        back = lambda text: f"(CAST('{stamp}' AS TIMESTAMP) + {_length(text)})"  # noqa: E731
    elif kind == "TIME":
        last = DAY - 1e-6  # the time after it is midnight again
        held = "CASE WHEN {0} > {1} THEN {1} ELSE {0} END"  # LEAST would make a time of NULL
        back = lambda text: f"(CAST('00:00:00' AS TIME) + {_length(held.format(text, last))})"  # noqa: E731
    else:
        back = _length
    return Line(Typed(node, DOUBLE), low - start, high - start, back, back, told)


def _shown(kind: str, end: Fraction) -> str:
    if kind == "INTERVAL":
        return f"{float(end):g} s"
    moment = _NOON + datetime.timedelta(microseconds=int(end * 1_000_000))
    if kind == "DATE":
        return moment.date().isoformat()
    return moment.isoformat(" ") if kind == "TIMESTAMP" else moment.time().isoformat()


def _length(text: str, unit: int = 1) -> str:
    return f"TO_MICROSECONDS(CAST(ROUND(CAST({text} AS DOUBLE) * {unit * 1_000_000}) AS BIGINT))"


def declared(kind: str, bounds: tuple[Fraction, Fraction] | None, where: str) -> Interval | None:
    """The bounds that a policy declares of a column of this kind.

    Raises:
        PolicyError: dates for numbers, or numbers for dates.
    """
    if bounds is None:
        return None
    given = {end.kind if isinstance(end, Moment) else "number" for end in bounds}
    wanted = {"DATE": "date", "TIMESTAMP": "date", "TIME": "time"}.get(kind, "number")
    if given != {wanted}:
        example = {"date": "[2020-01-01, 2020-12-31]", "time": "[08:00:00, 18:00:00]", "number": "[0, 100]"}
        raise PolicyError(
            f"the bounds of {where} are {' and '.join(sorted(g + 's' for g in given))}, and the column is {kind}.",
            hint=f"bounds = {example[wanted]}",
        )
    return Interval(Fraction(bounds[0]), Fraction(bounds[1]))


def moment_of(node: exp.Expr) -> tuple[str, Fraction] | None:
    """The kind and the seconds of a literal DATE, TIMESTAMP, TIME or INTERVAL; None for anything else."""
    if isinstance(node, exp.Interval):
        length = length_of(node)
        return None if length is None else ("INTERVAL", length)
    if not isinstance(node, exp.Cast) or not isinstance(node.this, exp.Literal):
        return None
    kind, text = to_sql(node.args["to"]), node.this.name.strip()
    try:
        if kind == "DATE":
            return kind, Moment(datetime.date.fromisoformat(text))
        if kind == "TIMESTAMP":
            return kind, Moment(datetime.datetime.fromisoformat(text))
        if kind == "TIME":
            return kind, Moment(datetime.time.fromisoformat(text))
    except ValueError:
        pass
    return None
