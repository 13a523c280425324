"""The allow-list of row functions, by class, each class with the reason why it is total.

A function is listed when it gives a value whatever its arguments hold, or can be made to (TRY turns what would raise
into NULL). What is not listed is refused: volatile functions and whatever reads files, settings or metadata (their
answers are not about the rows); functions whose time or memory grows with a number; JSON, bit strings and unions (errors
that TRY does not catch); functions that raise on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from sqlglot import exp

from dpsql.sql.expressions.lengths import length_of
from dpsql.sql.expressions.temporal import DATE_PART_RANGES
from dpsql.sql.expressions.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    TEXT,
    TINYINT,
    Bounds,
    Type,
    Typed,
    TypeKind,
)

NUM: tuple[TypeKind, ...] = ("INTEGER", "DECIMAL", "DOUBLE")
STR: tuple[TypeKind, ...] = ("TEXT",)
INT: tuple[TypeKind, ...] = ("INTEGER",)
LIST: tuple[TypeKind, ...] = ("LIST",)

BoundsOf = Callable[[Sequence[Typed]], Bounds | None]
CountOf = Callable[[Sequence[Typed]], int]
CutOf = Callable[[Sequence[Typed]], int | None]
MAX_LITERAL_COUNT = 1_000_000
"""Largest absolute value of a literal count or place."""


@dataclass(frozen=True)
class RowFunction:
    """A listed function. ``literal`` are the places of arguments that must be constants."""

    arguments: tuple[tuple[TypeKind, ...], ...]
    result: Type
    optional: int = 0
    literal: tuple[int, ...] = ()
    double: bool = False
    """Numbers are cast to DOUBLE, for which no argument raises (a domain error is NaN or infinite)."""
    trying: bool = False
    """The call stands in TRY."""
    bounds: BoundsOf | None = None
    reach: Bounds | None = None
    """Integers that the result can't leave."""
    widens: bool = False
    """The result is HUGEINT where an argument may not fit BIGINT."""
    length: CountOf | None = None
    """The longest text that comes of arguments within their bounds; without it, the first argument's."""
    cut: CutOf | None = None
    """The longest text that comes of any arguments, however long; None where there is no such bound."""
    weight: int = 1
    """Characters that the call keeps in memory for each that it gives."""
    steps: CountOf | None = None
    """Steps for one row, where they are more than a few for a character."""


@dataclass(frozen=True)
class FunctionClass:
    """Functions that are total for one reason."""

    why: str
    functions: dict[str, RowFunction]


def _fixed(low: int, high: int | None) -> BoundsOf:
    return lambda given: Bounds(Fraction(low), None if high is None else Fraction(high))


def _real(result: BoundsOf | None = None, count: int = 1) -> RowFunction:
    return RowFunction((NUM,) * count, DOUBLE, double=True, trying=True, bounds=result)


def _times(weight: int, share: int = 1) -> CountOf:
    """Return a count of steps that grows with the product of two texts' lengths."""
    return lambda given: weight * length_of(given[0]) * length_of(given[1]) // share


def _whole(typed: Typed) -> int | None:
    """Return a literal whole number."""
    point = typed.bounds
    return None if point is None or point.low is None or point.low != point.high else int(point.low)


def _first(given: Sequence[Typed]) -> int | None:
    """Return what left and right keep; where the number is negative, all but so many."""
    kept = _whole(given[1])
    return kept if kept is not None and kept >= 0 else None


def _middle(given: Sequence[Typed]) -> int | None:
    kept = _whole(given[2]) if len(given) > 2 else None
    return None if kept is None else abs(kept)


def _replaced(given: Sequence[Typed]) -> int:
    """Return the longest text that REPLACE makes; an empty text occurs nowhere."""
    text, sought, by = (length_of(item) for item in given)
    return text if sought == 0 else text + text // sought * max(0, by - sought)


def _digest(size: int) -> CutOf:
    return lambda given: size


_SAME = RowFunction((STR,), TEXT)
_COMPOSED = RowFunction((STR,), TEXT, length=lambda given: 3 * length_of(given[0]))
"""A composed text: at most three code points come of one."""
_ASK = RowFunction((STR, STR), BOOLEAN)
_COUNTED = Bounds(Fraction(0), Fraction(2**40))
_LENGTH = RowFunction((STR,), BIGINT, bounds=_fixed(0, None), reach=_COUNTED)
_NEAR = RowFunction((STR, STR), DOUBLE, literal=(1,), bounds=_fixed(0, 1), steps=_times(1, 16))
_STRIP = RowFunction((STR, STR), TEXT, optional=1, literal=(1,))
_CUT = RowFunction((STR, INT), TEXT, literal=(1,), cut=_first)
_FLOATS = RowFunction((("DOUBLE",),), BOOLEAN)

FUNCTION_CLASSES: tuple[FunctionClass, ...] = (
    FunctionClass(
        "Mathematics on DOUBLE: outside the domain the answer is NaN or infinite, which count as missing. TRY is for "
        "connections whose settings make that an error.",
        {
            **{name: _real() for name in (
                "cbrt", "ln", "log10", "log2", "tan", "asinh", "acosh", "atanh", "sinh", "degrees", "radians",
                "cot", "gamma", "lgamma",
            )},
            **{name: _real(_fixed(-1, 1)) for name in ("sin", "cos", "tanh")},
            **{name: _real(_fixed(-2, 2)) for name in ("asin", "atan")},
            **{name: _real(_fixed(0, None)) for name in ("sqrt", "exp")},
            "acos": _real(_fixed(0, 4)), "cosh": _real(_fixed(1, None)), "even": _real(),
            "atan2": _real(_fixed(-4, 4), 2), "pow": _real(None, 2), "log": _real(None, 2),
            "pi": RowFunction((), DOUBLE, bounds=_fixed(3, 4)),
        },
    ),
    FunctionClass(
        "Questions about floating-point values: a test of bits.",
        {"isnan": _FLOATS, "isinf": _FLOATS, "isfinite": _FLOATS, "signbit": _FLOATS},
    ),
    FunctionClass(
        "Whole numbers: TRY, for the answer may not fit.",
        {
            "gcd": RowFunction((INT, INT), BIGINT, trying=True, widens=True),
            "lcm": RowFunction((INT, INT), BIGINT, trying=True, widens=True),
            "bit_count": RowFunction((INT,), TINYINT, trying=True, bounds=_fixed(0, 128)),
        },
    ),
    FunctionClass(
        "Text: every text is valid UTF-8, and the answers have a public bound. Counts and places are literals of a "
        "modest size, for the engine raises on places beyond 32 bits.",
        {
            "lower": _SAME, "upper": _SAME, "reverse": _SAME, "strip_accents": _COMPOSED,
            # Marks are put in order one by one.
            "nfc_normalize": replace(_COMPOSED, steps=lambda given: 2 * length_of(given[0]) ** 2),
            "trim": _STRIP, "ltrim": _STRIP, "rtrim": _STRIP, "length": _LENGTH,
            "strlen": _LENGTH, "bit_length": _LENGTH,
            "substring": RowFunction((STR, INT, INT), TEXT, optional=1, literal=(1, 2), cut=_middle), "left": _CUT, "right": _CUT,
            "replace": RowFunction((STR, STR, STR), TEXT, literal=(1, 2), length=_replaced, steps=_times(1, 64)),
            "translate": RowFunction((STR, STR, STR), TEXT, literal=(1, 2)),
            "split_part": RowFunction((STR, STR, INT), TEXT, literal=(1, 2), weight=5),
            "strpos": RowFunction((STR, STR), BIGINT, bounds=_fixed(0, None), reach=_COUNTED, steps=_times(1, 64)),
            "ascii": RowFunction((STR,), INTEGER, bounds=_fixed(-1, 0x10FFFF)),
            "unicode": RowFunction((STR,), INTEGER, bounds=_fixed(-1, 0x10FFFF)),
            "ord": RowFunction((STR,), INTEGER, bounds=_fixed(-1, 0x10FFFF)),
        },
    ),
    FunctionClass(
        "Questions about two texts.",
        {
            **dict.fromkeys(("starts_with", "ends_with", "prefix", "suffix"), _ASK),
            "contains": replace(_ASK, steps=_times(1, 64)),
        },
    ),
    FunctionClass(
        "Likeness to a literal: the cost is bounded by the literal's length times the text's.",
        {
            "levenshtein": RowFunction(
                (STR, STR), BIGINT, literal=(1,), bounds=_fixed(0, None), reach=_COUNTED, steps=_times(2)
            ),
            "jaro_similarity": _NEAR, "jaro_winkler_similarity": _NEAR,
        },
    ),
    FunctionClass(
        "Digests of a text: of fixed size. (Never of the privacy unit, which is no value here.)",
        {name: replace(_SAME, cut=_digest(size)) for name, size in (("md5", 32), ("sha1", 40), ("sha256", 64))},
    ),
    FunctionClass("Lists: their length.", {"len": RowFunction((LIST,), BIGINT, bounds=_fixed(0, None), reach=_COUNTED)}),
)  # fmt: skip

ROW_FUNCTIONS: dict[str, RowFunction] = {
    name: item for group in FUNCTION_CLASSES for name, item in group.functions.items()
}

DATE_PART_FUNCTIONS = {
    **{name.lower(): name for name in DATE_PART_RANGES if name not in ("DOW", "DOY")},
    "dayofmonth": "DAY", "weekofyear": "WEEK",
}  # fmt: skip
"""Functions that give a part of a date."""

REFUSED_CLASSES: dict[type[exp.Expr], str] = {
    exp.Pad: "lpad", exp.StrToTime: "strptime", exp.Explode: "unnest", exp.Rand: "random", exp.GenerateSeries: "range",
    exp.CurrentDate: "current_date", exp.CurrentTimestamp: "current_timestamp", exp.CurrentTime: "current_time",
}  # fmt: skip
"""DuckDB's names of some calls that are refused."""

_TELLS = "its answer is not about the rows"
_COSTS = "its cost depends on the values"
NOT_LISTED = {
    **dict.fromkeys(
        ("random", "rand", "uuid", "gen_random_uuid", "nextval", "currval", "setseed", "rowid"), _TELLS
    ),
    **dict.fromkeys(
        (
            "now",
            "current_timestamp",
            "current_date",
            "current_time",
            "today",
            "get_current_time",
            "localtimestamp",
            "localtime",
            "current_localtime",
            "current_localtimestamp",
            "get_current_timestamp",
            "transaction_timestamp",
        ),
        f"{_TELLS}; write a date",
    ),
    **dict.fromkeys(
        (
            "getenv",
            "current_setting",
            "getvariable",
            "version",
            "typeof",
            "stats",
            "alias",
            "current_user",
            "session_user",
            "current_catalog",
            "current_database",
            "current_schema",
        ),
        _TELLS,
    ),
    **dict.fromkeys(
        ("read_text", "read_blob", "read_csv", "read_parquet", "glob", "query", "query_table"),
        "it reads files",
    ),
    **dict.fromkeys(
        ("repeat", "lpad", "rpad", "range", "generate_series", "list_resize", "format", "printf"), _COSTS
    ),
    **dict.fromkeys(("error", "assert_true"), "an error would be an answer without noise"),
    **dict.fromkeys(("sleep_ms", "pg_sleep"), "time would be an answer without noise"),
    **dict.fromkeys(
        ("epoch_ns", "epoch_us"), "it fails on far dates while the engine still plans; write epoch(x)"
    ),
    **dict.fromkeys(("hash",), "it differs between versions; write md5(x::VARCHAR)"),
    "columns": "it stands for several columns; name each",
    "strptime": "it fails on text of another form; write try_strptime(x, '%Y-%m-%d')",
    "unnest": "it makes rows of a row; write FROM t, UNNEST(x) AS u(y)",
}
"""Why some names that come to mind are missing."""
