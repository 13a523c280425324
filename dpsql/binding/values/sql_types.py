"""SQL types, and typed expressions with the public facts about their values.

A type has a kind, which decides whether two values may meet, and DuckDB's own spelling.

Bounds are the ranges that the policy declares, propagated through expressions by interval arithmetic. Ends are exact
fractions; None is an open end. The interval contains the expression's values over clamped columns; the expression's own
values are clamped to it before they are added up. It is about known values: NULL, NaN and the infinities are missing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Literal

from sqlglot import exp

from dpsql.late_dataclass import dataclass
from dpsql.numerics.interval_arithmetic import Enclosure, round_outward
from dpsql.privacy.periods import Days

BoundsEnd = Fraction | None


def _least(a: BoundsEnd, b: BoundsEnd) -> BoundsEnd:
    return None if a is None or b is None else min(a, b)


def _most(a: BoundsEnd, b: BoundsEnd) -> BoundsEnd:
    return None if a is None or b is None else max(a, b)


def _least_known(a: BoundsEnd, b: BoundsEnd) -> BoundsEnd:
    return b if a is None else a if b is None else min(a, b)


@dataclass(frozen=True)
class Bounds:
    """``[low, high]``; an end of None is open.

    >>> Bounds(Fraction(1), Fraction(2)) * Bounds(Fraction(-1), Fraction(3))
    Bounds(low=Fraction(-2, 1), high=Fraction(6, 1))
    """

    low: BoundsEnd = None
    high: BoundsEnd = None

    @classmethod
    def point(cls, value: Fraction | int) -> Bounds:
        """Return the interval of one value."""
        return cls(Fraction(value), Fraction(value))

    @property
    def ends(self) -> tuple[Fraction, Fraction] | None:
        """Both ends; None if one is open."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def only(self) -> Fraction | None:
        """The only number of the interval; None if it has several."""
        return self.low if self.low == self.high else None

    def __neg__(self) -> Bounds:
        return Bounds(None if self.high is None else -self.high, None if self.low is None else -self.low)

    def __add__(self, other: Bounds) -> Bounds:
        low = None if self.low is None or other.low is None else self.low + other.low
        high = None if self.high is None or other.high is None else self.high + other.high
        return Bounds(low, high)

    def __sub__(self, other: Bounds) -> Bounds:
        return self + -other

    def __mul__(self, other: Bounds) -> Bounds:
        mine, theirs = self.ends, other.ends
        if mine is None or theirs is None:
            return self._scaled(other) or other._scaled(self) or Bounds()
        products = [a * b for a in mine for b in theirs]
        return Bounds(min(products), max(products))

    def _scaled(self, factor: Bounds) -> Bounds | None:
        """Return a half-open interval times a constant."""
        c = factor.only
        if not c:
            return None if c is None else Bounds.point(0)
        ends = (None if self.low is None else self.low * c, None if self.high is None else self.high * c)
        return Bounds(*ends) if c > 0 else Bounds(ends[1], ends[0])

    def __truediv__(self, other: Bounds) -> Bounds:
        """Return the quotient, which is unbounded if the divisor may be zero."""
        ends = other.ends
        return (
            Bounds() if ends is None or ends[0] <= 0 <= ends[1] else self * Bounds(1 / ends[1], 1 / ends[0])
        )

    def absolute(self) -> Bounds:
        """Return the interval of absolute values."""
        if self.low is not None and self.low >= 0:
            return self
        if self.high is not None and self.high <= 0:
            return -self
        return Bounds(Fraction(0), _most(self.high, None if self.low is None else -self.low))

    def union(self, other: Bounds) -> Bounds:
        """Return the smallest interval around both."""
        return Bounds(_least(self.low, other.low), _most(self.high, other.high))

    def remainder(self, divisor: Bounds) -> Bounds:
        """Return the bounds of ``a % b``: nearer to zero than both, with the sign of ``a``."""
        far = _least_known(self.absolute().high, divisor.absolute().high)
        low = Fraction(0) if self.low is not None and self.low >= 0 else None if far is None else -far
        high = Fraction(0) if self.high is not None and self.high <= 0 else far
        return Bounds(low, high)

    def holds(self, other: Bounds) -> bool:
        """Return whether this interval contains another."""
        above = self.low is None or (other.low is not None and self.low <= other.low)
        return above and (self.high is None or (other.high is not None and other.high <= self.high))

    def rounded(self) -> Bounds:
        """Return the interval rounded outward to integers: it contains results of FLOOR, CEIL, ROUND and integer casts."""
        low = None if self.low is None else Fraction(math.floor(self.low))
        high = None if self.high is None else Fraction(math.ceil(self.high))
        return Bounds(low, high)

    def raised(
        self, enclose: Callable[[Fraction], Enclosure | None], start: Fraction | None = None
    ) -> Bounds:
        """Return the bounds of an increasing function, rounded outward; an end without an enclosure is open.

        Args:
            enclose: encloses the function's value.
            start: the start of its domain.
        """
        low = start if start is not None and (self.low is None or self.low < start) else self.low
        found = [None if end is None else enclose(end) for end in (low, self.high)]
        first, last = (None if end is None else round_outward(end) for end in found)
        return Bounds(None if first is None else first[0], None if last is None else last[1])

    @classmethod
    def around(cls, items: Iterable[tuple[Bounds | None, bool]]) -> Bounds:
        """Return the smallest interval around all, each with whether its value may be missing; unknown if one is."""
        return reduce(cls.union, [i or UNKNOWN for i, _ in items])

    @classmethod
    def greatest(cls, items: Iterable[tuple[Bounds | None, bool]]) -> Bounds:
        """Return the bounds of GREATEST, which skips NULLs: the low end is the highest of values that are never missing."""
        given = [(i or UNKNOWN, nullable) for i, nullable in items]
        sure = [i.low for i, nullable in given if not nullable and i.low is not None]
        low = max(sure) if sure else reduce(_least, [i.low for i, _ in given])
        return cls(low, reduce(_most, [i.high for i, _ in given]))

    @classmethod
    def least(cls, items: Iterable[tuple[Bounds | None, bool]]) -> Bounds:
        """Return the bounds of LEAST, as for :meth:`greatest`."""
        return -cls.greatest((-(i or UNKNOWN), nullable) for i, nullable in items)


UNKNOWN = Bounds()


def unite_bounds(found: Iterable[Bounds | None]) -> Bounds | None:
    """Return the smallest interval around all; None if one of them is unknown."""
    found = [*found]
    return None if None in found else Bounds.around((bounds, True) for bounds in found)


TypeKind = Literal[
    "NULL", "BOOLEAN", "INTEGER", "DECIMAL", "DOUBLE", "TEXT", "DATE", "TIME", "TIMESTAMP", "INTERVAL", "UUID", "LIST",
    "STRUCT", "MAP", "MOMENT", "OTHER",
]  # fmt: skip
"""A MAP is only read by its keys.

MOMENT is a TIMESTAMP WITH TIME ZONE: it is counted and compared, and has a local time only in a named zone."""

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
_RANGES = {name: (-(2**bits) // 2, 2**bits // 2 - 1) for name, bits in _BITS.items()}
_RANGES |= {f"U{name}": (0, 2**bits - 1) for name, bits in _BITS.items()}
# An integer type's digits in DuckDB if it meets decimals.
_DIGITS = {name: len(str(high)) for name, (_, high) in _RANGES.items()} | {"HUGEINT": 38}
_KINDS: dict[str, TypeKind] = {
    **dict.fromkeys(_RANGES, "INTEGER"),
    "BOOLEAN": "BOOLEAN",
    **dict.fromkeys(("FLOAT", "DOUBLE"), "DOUBLE"),
    "VARCHAR": "TEXT",
    "DATE": "DATE",
    "TIME": "TIME",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), "TIMESTAMP"),
    "INTERVAL": "INTERVAL",
    "UUID": "UUID",
    "NULL": "NULL",
    "TIMESTAMP WITH TIME ZONE": "MOMENT",
}
_SPELLINGS = {
    **dict.fromkeys(("INT", "INT4", "SIGNED"), "INTEGER"),
    **dict.fromkeys(("INT2", "SHORT"), "SMALLINT"),
    **dict.fromkeys(("INT8", "LONG"), "BIGINT"),
    "INT1": "TINYINT",
    "INT128": "HUGEINT",
    "UINT8": "UTINYINT",
    "UINT16": "USMALLINT",
    "UINT32": "UINTEGER",
    "UINT64": "UBIGINT",
    "UINT128": "UHUGEINT",
    "FLOAT8": "DOUBLE",
    "NUMERIC": "DECIMAL",
    '"NULL"': "NULL",
    **dict.fromkeys(("REAL", "FLOAT4"), "FLOAT"),
    **dict.fromkeys(("TEXT", "STRING", "CHAR", "BPCHAR", "NVARCHAR"), "VARCHAR"),
    **dict.fromkeys(("BOOL", "LOGICAL"), "BOOLEAN"),
    **dict.fromkeys(("DATETIME", "TIMESTAMP_US", "TIMESTAMP WITHOUT TIME ZONE"), "TIMESTAMP"),
    "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE",
}
SMALL_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
"""Integers that fit BIGINT, which DuckDB adds in 128 bits: no number of rows overflows these."""
NARROW_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT")
"""Integers of at most 32 bits with a sign."""


@dataclass(frozen=True)
class Type:
    """A kind, and DuckDB's spelling of the type.

    ``element`` is a list's element type, ``fields`` are a struct's, or a map's key and value.
    ``INTEGER[3]``, of a fixed size, is a list, too.

    >>> Type.parse("DECIMAL(10,2)").kind, Type.parse("UBIGINT").kind
    ('DECIMAL', 'INTEGER')
    >>> Type.parse("STRUCT(a INTEGER, b VARCHAR)[]").element.fields[1]
    ('b', Type(kind='TEXT', sql='VARCHAR', element=None, fields=()))
    """

    kind: TypeKind
    sql: str
    element: Type | None = None
    fields: tuple[tuple[str, Type], ...] = ()
    zone: str = field(default="", compare=False, repr=False)
    """The zone of a TIMESTAMP that has the policy's local times; empty for every other type."""

    @classmethod
    def parse(cls, text: str) -> Type:
        """Return a type from its spelling in DESCRIBE or CAST.

        Types without a rule of ours are of kind OTHER: no expression takes them. An ENUM is text, since its labels are
        data. Inside lists and structs it keeps the bare name ENUM: such values are cast when they are read.
        """
        made = _parse(text.strip())
        return TEXT if made.sql == "ENUM" else made

    @property
    def numeric(self) -> bool:
        """Whether it is an integer, a decimal or a float."""
        return self.kind in ("INTEGER", "DECIMAL", "DOUBLE")

    @property
    def two_faced(self) -> bool:
        """Whether equal values may look different (0.0 and -0.0): one unit's row could then choose the shown value of a group."""
        return any(part.kind in ("DOUBLE", "INTERVAL") for part in self.walk())

    def walk(self) -> Iterator[Type]:
        """Yield this type and the types inside it."""
        yield self
        for inner in (self.element, *(kind for _, kind in self.fields)):
            if inner is not None:
                yield from inner.walk()

    @property
    def reach(self) -> Bounds | None:
        """The range of an integer type; None for other types."""
        return _reach_of(self.sql)

    @property
    def digits(self) -> tuple[int, int]:
        """Digits before and after the point, of an integer or decimal type."""
        found = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", self.sql)
        if found:
            width, scale = int(found[1]), int(found[2])
            return width - scale, scale
        return _DIGITS[self.sql], 0

    def find_sum_type(self, most: Fraction) -> str:
        """Return the type of a released SUM over values of up to ``most``: DuckDB's, with fewer decimals if it needs room.

        >>> decimal(18, 2).find_sum_type(Fraction(1000)), decimal(38, 37).find_sum_type(Fraction(10))
        ('DECIMAL(38,2)', 'DECIMAL(38,18)')
        """
        if self.kind == "DECIMAL":
            room = 38 - len(str(math.ceil(most))) - _SUM_DIGITS
            return f"DECIMAL(38,{min(self.digits[1], room)})" if room >= 0 else "DOUBLE"
        return "HUGEINT" if self.kind == "INTEGER" and self.sql != "UHUGEINT" else "DOUBLE"


_SUM_DIGITS = 18
"""Digits by which a sum and its noise may exceed the greatest value."""


def decimal(width: int, scale: int) -> Type:
    """Return a DECIMAL type."""
    return Type("DECIMAL", f"DECIMAL({width},{scale})")


def list_of(element: Type) -> Type:
    """Return the type of lists of any length."""
    return Type("LIST", f"{element.sql}[]", element)


def _parse(text: str) -> Type:
    array = re.fullmatch(r"(?s)(.*)\[(\d*)\]", text)
    if array:
        element = _parse(array[1].strip())
        if element.kind in ("OTHER", "MOMENT"):
            return Type("OTHER", "LIST")
        return Type("LIST", f"{element.sql}[{array[2]}]", element)
    upper = text.upper()
    if upper.startswith("STRUCT(") and text.endswith(")"):
        return _struct(text[len("STRUCT(") : -1])
    if upper.startswith("MAP(") and text.endswith(")"):
        inner = [_parse(part.strip()) for part in _split(text[len("MAP(") : -1])]
        if len(inner) == 2 and not any(kind.kind == "OTHER" for kind in inner):
            named = ", ".join(kind.sql for kind in inner)
            return Type("MAP", f"MAP({named})", None, (("key", inner[0]), ("value", inner[1])))
    if upper.startswith("ENUM"):
        return Type("TEXT", "ENUM")
    found = re.fullmatch(r"(?:DECIMAL|NUMERIC|DEC)(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", upper)
    if found:
        width, scale = int(found[1] or 18), int(found[2] or 0) if found[1] else 3
        return decimal(width, scale) if 0 < width <= 38 and scale <= width else Type("OTHER", "DECIMAL")
    sized = upper.startswith(("VARCHAR", "CHAR", "TEXT"))
    name = re.sub(r"\(\s*\d+\s*\)$", "", upper).strip() if sized else upper
    name = _SPELLINGS.get(name, name)
    kind = _KINDS.get(name)
    return Type(kind, name) if kind is not None else Type("OTHER", upper.split("(")[0])


def _struct(body: str) -> Type:
    fields = []
    for part in _split(body):
        found = re.fullmatch(r'(?s)\s*("(?:[^"]|"")+"|[^\s"]+)\s+(.+)', part)
        if found is None:
            return Type("OTHER", "STRUCT")
        name = found[1][1:-1].replace('""', '"') if found[1].startswith('"') else found[1]
        fields.append((name, _parse(found[2].strip())))
    if any(kind.kind == "OTHER" for _, kind in fields):
        return Type("STRUCT", "STRUCT", None, tuple(fields))
    named = ", ".join('"' + name.replace('"', '""') + '" ' + kind.sql for name, kind in fields)
    return Type("STRUCT", f"STRUCT({named})", None, tuple(fields))


def _split(body: str) -> list[str]:
    """Return the parts between commas outside parentheses and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for i, c in enumerate(body):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(body[start:i])
            start = i + 1
    return [*parts, body[start:]]


BOOLEAN = Type("BOOLEAN", "BOOLEAN")
TINYINT = Type("INTEGER", "TINYINT")
INTEGER = Type("INTEGER", "INTEGER")
BIGINT = Type("INTEGER", "BIGINT")
HUGEINT = Type("INTEGER", "HUGEINT")
FLOAT = Type("DOUBLE", "FLOAT")
DOUBLE = Type("DOUBLE", "DOUBLE")
TEXT = Type("TEXT", "VARCHAR")
DATE = Type("DATE", "DATE")
TIME = Type("TIME", "TIME")
TIMESTAMP = Type("TIMESTAMP", "TIMESTAMP")
INTERVAL = Type("INTERVAL", "INTERVAL")
UUID = Type("UUID", "UUID")
MOMENT = Type("MOMENT", "TIMESTAMP WITH TIME ZONE")
NULL = Type("NULL", "NULL")
BLOB = Type("OTHER", "BLOB")
"""Bytes, which are counted, and compared with constants."""
OTHER = Type("OTHER", "OTHER")


@dataclass(frozen=True)
class Typed:
    """An expression that can't fail in the engine, whatever the data.

    Args:
        bounds: the public interval of its values, after clamping.
        values: its declared values.
        reach: the range that its integers' types prove, from which wide enough types follow.
        nullable: False if no value is missing.
        plain: the type in DuckDB of the analyst's own expression, if ours is wider against overflow.
    """

    node: exp.Expr
    type: Type
    bounds: Bounds | None = None
    constant: bool = False
    values: tuple[object, ...] | None = None
    reach: Bounds | None = None
    nullable: bool = True
    plain: Type | None = None
    length: int | None = None
    """The greatest length that isn't replaced by NULL; see :mod:`dpsql.binding.values.declared_values`."""
    unchecked: bool = False
    """Whether the engine's value may be longer; ``lengths.hold`` replaces it by NULL."""
    order: tuple[str, ...] | None = field(default=None, compare=False, repr=False)
    """The labels of an ENUM, in the type's order, for its texts or lists of these."""
    place: exp.Expr | None = field(default=None, compare=False, repr=False)
    """The analyst's own node, for carets."""
    twin: tuple[exp.Expr, exp.Expr] | None = field(default=None, compare=False, repr=False)
    """A node of local time, and the moment that it shows; see :attr:`moment`."""
    unmatched: bool = field(default=False, compare=False, repr=False)
    """Whether it is a column that is NULL in rows of an outer join without a match."""
    days: Days | None = field(default=None, compare=False, repr=False)
    """The public days of the period's column in a scan that reads no other days."""

    @classmethod
    def made_of(
        cls,
        node: exp.Expr,
        kind: Type,
        parts: Sequence[Typed],
        bounds: Bounds | None = None,
        *,
        nullable: bool | None = None,
        reach: Bounds | None = None,
        plain: Type | None = None,
    ) -> Typed:
        """Return a value made of parts: constant if all are, and nullable if one is, unless that is given."""
        missing = any(part.nullable for part in parts) if nullable is None else nullable
        constant = all(part.constant for part in parts)
        return cls(node, kind, bounds, constant, None, reach, missing, None if plain == kind else plain)

    @property
    def ends(self) -> tuple[Fraction, Fraction] | None:
        """Both ends of its bounds; None if one is open."""
        return (self.bounds or UNKNOWN).ends

    @property
    def moment(self) -> exp.Expr | None:
        """The moment that a local time shows, if known, as a zone may show two alike; values made from the local time lose it."""
        if self.type.kind == "MOMENT":
            return self.node
        return self.twin[1].copy() if self.twin is not None and self.twin[0] == self.node else None

    @property
    def label_order(self) -> tuple[str, ...] | None:
        """The order of its labels; None for a list of labels, too."""
        return self.order if self.type == TEXT else None

    @property
    def span(self) -> Bounds | None:
        """The range of its integers, proved or of its type."""
        return self.reach if self.reach is not None else self.type.reach

    @property
    def shown(self) -> Type:
        """The type that the analyst's expression has in DuckDB."""
        return self.plain if self.plain is not None else self.type


# -- nodes of an expression -------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def _reach_of(sql: str) -> Bounds | None:
    ends = _RANGES.get(sql)
    return None if ends is None else Bounds(Fraction(ends[0]), Fraction(ends[1]))


@lru_cache(maxsize=512)
def _data_type(sql: str) -> exp.DataType:
    return exp.DataType.build(sql, dialect="duckdb")


def read_type(sql: str) -> exp.DataType:
    """Return a new node of an SQL type."""
    known = _data_type(sql)
    if all(key == "this" or not value for key, value in known.args.items()):
        return exp.DataType(this=known.this, nested=False)
    return known.copy()


def make_cast(node: exp.Expr, kind: Type, trying: bool = False) -> exp.Expr:
    """Return a cast; ``trying``: one that gives NULL instead of an error."""
    made = exp.TryCast if trying else exp.Cast
    return made(this=node, to=read_type(kind.sql))


def make_try(node: exp.Expr) -> exp.Expr:
    """Return the node in TRY, which gives NULL instead of an error."""
    return node if isinstance(node, exp.Try) else exp.Try(this=node)


_ATOMS = (exp.Column, exp.Literal, exp.Paren, exp.Func, exp.Boolean, exp.Null, exp.Bracket)


def parenthesise(node: exp.Expr) -> exp.Expr:
    """Return the node in parentheses, unless it is an operand without them."""
    connector = isinstance(node, exp.Binary)  # AND, OR and some operators are functions to sqlglot
    return node if isinstance(node, _ATOMS) and not connector else exp.Paren(this=node)


def make_call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """Return a call by DuckDB's own name and order of arguments, which no dialect translates."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def write_local_time(moment: exp.Expr, zone: str) -> exp.Expr:
    """Return the local time of a moment in a zone, or the moment of a local time; NULL outside the calendar.

    DuckDB's ICU library decides what a local time means that a change of clocks leaves out or repeats.
    """
    return make_try(make_call("timezone", exp.Literal.string(zone), moment))
