"""SQL types as the binder sees them: a kind that decides what may meet what, and DuckDB's own spelling."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from dpsql.sql.bounds import Interval

Kind = Literal[
    "NULL", "BOOLEAN", "INTEGER", "DECIMAL", "DOUBLE", "TEXT", "DATE", "TIME", "TIMESTAMP", "INTERVAL", "UUID", "LIST",
    "STRUCT", "OTHER",
]  # fmt: skip

_RANGES = {
    "TINYINT": (-(2**7), 2**7 - 1), "SMALLINT": (-(2**15), 2**15 - 1), "INTEGER": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1), "HUGEINT": (-(2**127), 2**127 - 1), "UTINYINT": (0, 2**8 - 1),
    "USMALLINT": (0, 2**16 - 1), "UINTEGER": (0, 2**32 - 1), "UBIGINT": (0, 2**64 - 1), "UHUGEINT": (0, 2**128 - 1),
}  # fmt: skip
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(_RANGES, "INTEGER"), "BOOLEAN": "BOOLEAN", "FLOAT": "DOUBLE", "DOUBLE": "DOUBLE",
    "VARCHAR": "TEXT", "DATE": "DATE", "TIME": "TIME", "TIMESTAMP": "TIMESTAMP", "TIMESTAMP_S": "TIMESTAMP",
    "TIMESTAMP_MS": "TIMESTAMP", "TIMESTAMP_NS": "TIMESTAMP", "INTERVAL": "INTERVAL", "UUID": "UUID",
    '"NULL"': "NULL", "NULL": "NULL", "ENUM": "TEXT",
}  # fmt: skip
_SPELLINGS = {"INT": "INTEGER", "REAL": "FLOAT", "FLOAT4": "FLOAT", "FLOAT8": "DOUBLE", "TEXT": "VARCHAR", "STRING": "VARCHAR",
              "BOOL": "BOOLEAN", "INT8": "BIGINT", "INT4": "INTEGER", "INT2": "SMALLINT", "INT128": "HUGEINT",
              "NUMERIC": "DECIMAL(18,3)", "DECIMAL": "DECIMAL(18,3)", "CHAR": "VARCHAR", "DATETIME": "TIMESTAMP"}  # fmt: skip


@dataclass(frozen=True)
class Type:
    """A kind, and DuckDB's spelling of the type.

    >>> Type.parse("DECIMAL(10,2)").kind, Type.parse("UBIGINT").kind
    ('DECIMAL', 'INTEGER')
    """

    kind: Kind
    sql: str

    @classmethod
    def parse(cls, text: str) -> Type:
        """Reads a type as DESCRIBE shows it. Types without a rule of ours are of kind OTHER: no expression takes them."""
        text = text.strip()
        upper = _SPELLINGS.get(text.upper(), text.upper())
        if upper.endswith("[]"):
            return cls("LIST", text)
        if upper.startswith("STRUCT"):
            return cls("STRUCT", text)
        if upper.startswith("DECIMAL"):
            return cls("DECIMAL", upper)
        if upper.startswith("ENUM"):
            return cls("TEXT", "VARCHAR")
        base = upper.split("(")[0]
        kind = _KINDS.get(base)
        return cls(kind, "VARCHAR" if kind == "TEXT" else upper) if kind is not None else cls("OTHER", text)

    @property
    def numeric(self) -> bool:
        return self.kind in ("INTEGER", "DECIMAL", "DOUBLE")

    @property
    def reach(self) -> Interval | None:
        """All values that an integer type can hold."""
        ends = _RANGES.get(self.sql)
        return None if ends is None else Interval(*(_fraction(end) for end in ends))

    @property
    def digits(self) -> tuple[int, int]:
        """Digits before and after the point, of an integer or decimal type."""
        found = re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", self.sql)
        if found:
            width, scale = int(found[1]), int(found[2])
            return width - scale, scale
        return len(str(_RANGES[self.sql][1])), 0

    @property
    def sum_type(self) -> str:
        """The type of SUM over it in DuckDB."""
        if self.kind == "DECIMAL":
            return f"DECIMAL(38,{self.digits[1]})"
        return "HUGEINT" if self.kind == "INTEGER" else "DOUBLE"


def _fraction(value: int):  # type: ignore[no-untyped-def]
    from fractions import Fraction

    return Fraction(value)


BOOLEAN = Type("BOOLEAN", "BOOLEAN")
BIGINT = Type("INTEGER", "BIGINT")
HUGEINT = Type("INTEGER", "HUGEINT")
DOUBLE = Type("DOUBLE", "DOUBLE")
TEXT = Type("TEXT", "VARCHAR")
DATE = Type("DATE", "DATE")
TIMESTAMP = Type("TIMESTAMP", "TIMESTAMP")
INTERVAL = Type("INTERVAL", "INTERVAL")
NULL = Type("NULL", "NULL")


@dataclass(frozen=True)
class Typed:
    """An expression that can't fail in the engine, whatever the data.

    ``bounds`` are what is public about its values (see :mod:`dpsql.sql.bounds`), ``values`` all that the policy declares,
    ``reach`` what its integers can't leave because of their types (so that widening can be proved to be enough).
    """

    node: exp.Expression
    type: Type
    bounds: Interval | None = None
    constant: bool = False
    values: tuple[object, ...] | None = None
    reach: Interval | None = None

    @property
    def span(self) -> Interval | None:
        """The integers it may hold: proved, or by its type."""
        return self.reach if self.reach is not None else self.type.reach
