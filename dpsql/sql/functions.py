"""The allow-list of row functions: argument kinds, result, and how each is made total.

Why not others: a function is on the list when, whatever the values, it gives a value (``TOTAL``) or can be made to
(``TRY`` turns what would raise into NULL). Left out, each class for its reason: volatile functions and whatever reads
files, settings or metadata (an answer that is not about the rows); functions whose cost or size grows with a value
(``repeat``, ``lpad``, ``range``: time and memory would tell); JSON, bit strings and unions (errors that TRY does not
catch); functions that raise on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.sql import bounds
from dpsql.sql.bounds import Interval
from dpsql.sql.types import BIGINT, BOOLEAN, DATE, DOUBLE, TEXT, TIMESTAMP, Kind, Type, Typed

NUM: tuple[Kind, ...] = ("INTEGER", "DECIMAL", "DOUBLE")
STR: tuple[Kind, ...] = ("TEXT",)
DAY: tuple[Kind, ...] = ("DATE", "TIMESTAMP")
CLOCK: tuple[Kind, ...] = ("TIMESTAMP", "TIME")
INT: tuple[Kind, ...] = ("INTEGER",)

BoundsOf = Callable[[Sequence[Typed]], Interval | None]


@dataclass(frozen=True)
class Function:
    """One entry. ``literal`` are the places of arguments that must be constants; ``double`` casts numbers to DOUBLE
    first, which makes arithmetic total; ``trying`` wraps the call in TRY."""

    arguments: tuple[tuple[Kind, ...], ...]
    result: Type | None
    """None: the type of the first argument."""
    optional: int = 0
    literal: tuple[int, ...] = ()
    double: bool = False
    trying: bool = False
    bounds: BoundsOf | None = None


def _fixed(low: int, high: int | None) -> BoundsOf:
    return lambda given: Interval(Fraction(low), None if high is None else Fraction(high))


def _rounded(given: Sequence[Typed]) -> Interval | None:
    return given[0].bounds.rounded() if given[0].bounds is not None and len(given) == 1 else None


def _math(result_bounds: BoundsOf | None = None) -> Function:
    """DOUBLE in, DOUBLE out: domain errors are NaN or infinite, which count as missing."""
    return Function((NUM,), DOUBLE, double=True, bounds=result_bounds, trying=True)


def _part(low: int, high: int | None, trying: bool = False) -> Function:
    return Function((DAY,), BIGINT, bounds=_fixed(low, high), trying=trying)


_TEXT_TEXT = Function((STR,), TEXT)
_TEXT_BOOL = Function((STR, STR), BOOLEAN)
_LENGTH = Function((STR,), BIGINT, bounds=_fixed(0, None))

FUNCTIONS: dict[str, Function] = {
    # mathematics on DOUBLE
    **{name: _math() for name in ("SQRT", "CBRT", "LN", "LOG2", "LOG10", "EXP", "SIN", "COS", "TAN", "ATAN", "ASIN", "ACOS",
                                  "SINH", "COSH", "DEGREES", "RADIANS", "COT")},
    "TANH": _math(_fixed(-1, 1)),
    "ATAN2": Function((NUM, NUM), DOUBLE, double=True, trying=True),
    "POW": Function((NUM, NUM), DOUBLE, double=True, trying=True),
    "POWER": Function((NUM, NUM), DOUBLE, double=True, trying=True),
    "FLOOR": Function((NUM,), None, trying=True, bounds=_rounded),
    "CEIL": Function((NUM,), None, trying=True, bounds=_rounded),
    "CEILING": Function((NUM,), None, trying=True, bounds=_rounded),
    "TRUNC": Function((NUM,), None, trying=True),
    "ROUND": Function((NUM, INT), None, optional=1, literal=(1,), trying=True, bounds=_rounded),
    "SIGN": Function((NUM,), BIGINT, trying=True, bounds=_fixed(-1, 1)),
    "ISNAN": Function((("DOUBLE",),), BOOLEAN),
    "ISINF": Function((("DOUBLE",),), BOOLEAN),
    "ISFINITE": Function((("DOUBLE",),), BOOLEAN),
    # text
    "LOWER": _TEXT_TEXT, "UPPER": _TEXT_TEXT, "REVERSE": _TEXT_TEXT, "STRIP_ACCENTS": _TEXT_TEXT,
    "TRIM": Function((STR, STR), TEXT, optional=1, literal=(1,)),
    "LTRIM": Function((STR, STR), TEXT, optional=1, literal=(1,)),
    "RTRIM": Function((STR, STR), TEXT, optional=1, literal=(1,)),
    "LENGTH": _LENGTH, "STRLEN": _LENGTH,
    "STARTSWITH": _TEXT_BOOL, "STARTS_WITH": _TEXT_BOOL, "ENDSWITH": _TEXT_BOOL, "ENDS_WITH": _TEXT_BOOL,
    "CONTAINS": _TEXT_BOOL, "PREFIX": _TEXT_BOOL, "SUFFIX": _TEXT_BOOL,
    "SUBSTRING": Function((STR, INT, INT), TEXT, optional=1, literal=(1, 2)),
    "LEFT": Function((STR, INT), TEXT, literal=(1,), trying=True),
    "RIGHT": Function((STR, INT), TEXT, literal=(1,), trying=True),
    "REPLACE": Function((STR, STR, STR), TEXT, literal=(1, 2)),
    "SPLITPART": Function((STR, STR, INT), TEXT, literal=(1, 2)),
    "SPLIT_PART": Function((STR, STR, INT), TEXT, literal=(1, 2)),
    "STRPOSITION": Function((STR, STR), BIGINT, bounds=_fixed(0, None)),
    "MD5": _TEXT_TEXT, "SHA256": _TEXT_TEXT,
    # dates: parts are total, all else may leave the calendar
    "YEAR": _part(-290308, 294247), "MONTH": _part(1, 12), "DAY": _part(1, 31), "QUARTER": _part(1, 4),
    "WEEK": _part(1, 53, True), "WEEKOFYEAR": _part(1, 53, True), "DAYOFWEEK": _part(0, 6), "DAY_OF_WEEK": _part(0, 6),
    "DAYOFYEAR": _part(1, 366), "DAY_OF_YEAR": _part(1, 366), "DAYOFMONTH": _part(1, 31), "DAY_OF_MONTH": _part(1, 31),
    "DAYOFWEEKISO": _part(1, 7), "ISODOW": _part(1, 7), "WEEKDAY": _part(0, 6),
    "HOUR": Function((CLOCK,), BIGINT, bounds=_fixed(0, 23)),
    "MINUTE": Function((CLOCK,), BIGINT, bounds=_fixed(0, 59)),
    "SECOND": Function((CLOCK,), BIGINT, bounds=_fixed(0, 59)),
    "DAYNAME": Function((DAY,), TEXT), "MONTHNAME": Function((DAY,), TEXT),
    "EPOCH": Function((DAY,), DOUBLE, trying=True),
    "LAST_DAY": Function((DAY,), DATE, trying=True), "LASTDAY": Function((DAY,), DATE, trying=True),
}  # fmt: skip

PARTS: dict[str, tuple[int, int | None]] = {
    "YEAR": (-290308, 294247), "MONTH": (1, 12), "DAY": (1, 31), "QUARTER": (1, 4), "WEEK": (1, 53), "DOW": (0, 6),
    "DAYOFWEEK": (0, 6), "ISODOW": (1, 7), "DOY": (1, 366), "DAYOFYEAR": (1, 366), "HOUR": (0, 23), "MINUTE": (0, 59),
    "SECOND": (0, 59), "DECADE": (-29031, 29425), "CENTURY": (-2904, 2943),
}  # fmt: skip
UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
"""Units that dates are truncated to, and that intervals are made of."""

NOT_LISTED = {
    "RANDOM": "its answer is not about the rows",
    "UUID": "its answer is not about the rows",
    "NOW": "its answer is not about the rows; write a date",
    "CURRENT_TIMESTAMP": "its answer is not about the rows; write a date",
    "CURRENT_DATE": "its answer is not about the rows; write a date",
    "ERROR": "an error would be an answer without noise",
    "REPEAT": "its cost depends on the values",
    "LPAD": "its cost depends on the values",
    "RPAD": "its cost depends on the values",
    "SLEEP_MS": "time would be an answer without noise",
}

__all__ = ["FUNCTIONS", "NOT_LISTED", "PARTS", "TIMESTAMP", "UNITS", "Function", "bounds"]
