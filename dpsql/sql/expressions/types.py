"""SQL types as the binder sees them: a kind that decides what may meet what, and DuckDB's own spelling."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from sqlglot import exp

from dpsql.sql.expressions.bounds import Bounds

TypeKind = Literal[
    "NULL", "BOOLEAN", "INTEGER", "DECIMAL", "DOUBLE", "TEXT", "DATE", "TIME", "TIMESTAMP", "INTERVAL", "UUID", "LIST",
    "STRUCT", "OTHER",
]  # fmt: skip

_RANGES = {
    "TINYINT": (-(2**7), 2**7 - 1), "SMALLINT": (-(2**15), 2**15 - 1), "INTEGER": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1), "HUGEINT": (-(2**127), 2**127 - 1), "UTINYINT": (0, 2**8 - 1),
    "USMALLINT": (0, 2**16 - 1), "UINTEGER": (0, 2**32 - 1), "UBIGINT": (0, 2**64 - 1), "UHUGEINT": (0, 2**128 - 1),
}  # fmt: skip
# Digits that DuckDB gives an integer type where it meets decimals.
_DIGITS = {
    "TINYINT": 3, "SMALLINT": 5, "INTEGER": 10, "BIGINT": 19, "HUGEINT": 38, "UTINYINT": 3, "USMALLINT": 5,
    "UINTEGER": 10, "UBIGINT": 20, "UHUGEINT": 39,
}  # fmt: skip
_KINDS: dict[str, TypeKind] = {
    **dict.fromkeys(_RANGES, "INTEGER"), "BOOLEAN": "BOOLEAN", "FLOAT": "DOUBLE", "DOUBLE": "DOUBLE",
    "VARCHAR": "TEXT", "DATE": "DATE", "TIME": "TIME", "TIMESTAMP": "TIMESTAMP", "TIMESTAMP_S": "TIMESTAMP",
    "TIMESTAMP_MS": "TIMESTAMP", "TIMESTAMP_NS": "TIMESTAMP", "INTERVAL": "INTERVAL", "UUID": "UUID", "NULL": "NULL",
}  # fmt: skip
_SPELLINGS = {
    "INT": "INTEGER", "INT4": "INTEGER", "SIGNED": "INTEGER", "INT1": "TINYINT", "INT2": "SMALLINT",
    "SHORT": "SMALLINT",
    "INT8": "BIGINT", "LONG": "BIGINT", "INT128": "HUGEINT", "UINT8": "UTINYINT", "UINT16": "USMALLINT",
    "UINT32": "UINTEGER", "UINT64": "UBIGINT", "UINT128": "UHUGEINT", "REAL": "FLOAT", "FLOAT4": "FLOAT",
    "FLOAT8": "DOUBLE", "TEXT": "VARCHAR", "STRING": "VARCHAR", "CHAR": "VARCHAR", "BPCHAR": "VARCHAR",
    "NVARCHAR": "VARCHAR", "BOOL": "BOOLEAN", "LOGICAL": "BOOLEAN", "DATETIME": "TIMESTAMP",
    "TIMESTAMP_US": "TIMESTAMP",
    "TIMESTAMP WITHOUT TIME ZONE": "TIMESTAMP", "NUMERIC": "DECIMAL", '"NULL"': "NULL",
}  # fmt: skip


@dataclass(frozen=True)
class Type:
    """A kind, and DuckDB's spelling of the type.

    ``element`` is what a list holds, ``fields`` are what a struct has.

    >>> Type.parse("DECIMAL(10,2)").kind, Type.parse("UBIGINT").kind
    ('DECIMAL', 'INTEGER')
    >>> Type.parse("STRUCT(a INTEGER, b VARCHAR)[]").element.fields[1]
    ('b', Type(kind='TEXT', sql='VARCHAR', element=None, fields=()))
    """

    kind: TypeKind
    sql: str
    element: Type | None = None
    fields: tuple[tuple[str, Type], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Type:
        """Reads a type as DESCRIBE shows it, or as CAST writes it.

        Types without a rule of ours are of kind OTHER: no expression takes them. The labels of an ENUM are data, so
        an ENUM is text here (the engine shows its columns as text); inside lists and structs it keeps the bare name
        ENUM, for whoever takes a value out to cast it.
        """
        made = _parse(text.strip())
        return TEXT if made.sql == "ENUM" else made

    @property
    def numeric(self) -> bool:
        return self.kind in ("INTEGER", "DECIMAL", "DOUBLE")

    @property
    def two_faced(self) -> bool:
        """Whether equal values may look different: 0.0 and -0.0, a month and 30 days.

        A group of such values is shown as one of them, whichever row came first: one unit could choose it for all.
        """
        inner = [self.element] if self.element is not None else [kind for _, kind in self.fields]
        return self.kind in ("DOUBLE", "INTERVAL") or any(kind.two_faced for kind in inner)

    @property
    def reach(self) -> Bounds | None:
        """All values that an integer type can hold; None for other types."""
        ends = _RANGES.get(self.sql)
        return None if ends is None else Bounds(Fraction(ends[0]), Fraction(ends[1]))

    @property
    def digits(self) -> tuple[int, int]:
        """Digits before and after the point, of an integer or decimal type."""
        found = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", self.sql)
        if found:
            width, scale = int(found[1]), int(found[2])
            return width - scale, scale
        return _DIGITS[self.sql], 0

    @property
    def sum_type(self) -> str:
        """The type of SUM over it in DuckDB."""
        if self.kind == "DECIMAL":
            return f"DECIMAL(38,{self.digits[1]})"
        return "HUGEINT" if self.kind == "INTEGER" and self.sql != "UHUGEINT" else "DOUBLE"


def decimal(width: int, scale: int) -> Type:
    return Type("DECIMAL", f"DECIMAL({width},{scale})")


def _parse(text: str) -> Type:
    array = re.fullmatch(r"(?s)(.*)\[\d*\]", text)
    if array:
        element = _parse(array[1].strip())
        return Type("LIST", f"{element.sql}[]", element) if element.kind != "OTHER" else Type("OTHER", "LIST")
    upper = text.upper()
    if upper.startswith("STRUCT(") and text.endswith(")"):
        return _struct(text[len("STRUCT(") : -1])
    if upper.startswith("ENUM"):
        return Type("TEXT", "ENUM")
    found = re.fullmatch(r"(?:DECIMAL|NUMERIC|DEC)(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", upper)
    if found:
        width, scale = int(found[1] or 18), int(found[2] or 0) if found[1] else 3
        return decimal(width, scale) if 0 < width <= 38 and scale <= width else Type("OTHER", "DECIMAL")
    name = (
        re.sub(r"\(\s*\d+\s*\)$", "", upper).strip()
        if upper.startswith(("VARCHAR", "CHAR", "TEXT"))
        else upper
    )
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
    """At commas outside of parentheses and quotes."""
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
NULL = Type("NULL", "NULL")


@dataclass(frozen=True)
class Typed:
    """An expression that can't fail in the engine, whatever the data.

    ``bounds`` are what is public about its values (see :mod:`dpsql.sql.expressions.bounds`), ``values`` all that the policy
    declares, ``reach`` what its integers can't leave because of their types (so that widening can be proved to
    be enough). ``nullable`` is False where a value is certain to be there. ``plain`` is the type that DuckDB gives the
    analyst's own expression, where ours is wider to hold what would have overflowed.
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
    """The longest text or list that counts; see :mod:`dpsql.sql.expressions.lengths`."""
    unchecked: bool = False
    """True where the engine may hold a longer value: ``lengths.hold`` makes it NULL."""

    @property
    def span(self) -> Bounds | None:
        """The integers it may hold: proved, or by its type."""
        return self.reach if self.reach is not None else self.type.reach

    @property
    def shown(self) -> Type:
        """The type that the analyst's expression has in DuckDB."""
        return self.plain if self.plain is not None else self.type
