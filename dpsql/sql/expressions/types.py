"""SQL types and typed expressions, with public upper bounds on the lengths that one row can have.

A type has a kind, which decides what may meet what, and DuckDB's own spelling.

A text is as long as its row says, and so is what a function makes of it: a statement could be chosen that needs gigabytes
or hours if one person is there, and whose failure tells so. Each text and list therefore has a bound that follows from
the policy alone. A column's is its ``max_length``; a longer value is NULL, which the exact query checks only where a
function needs the bound, so columns that are compared, grouped by or matched with LIKE are read as they are. What would
be longer than :data:`MAX_TEXT`, or take more than :data:`MAX_STEPS`, is refused, whatever the data.

Lengths count code points of texts and elements of lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from sqlglot import exp

from dpsql.errors import PrivacyError
from dpsql.sql.expressions.bounds import Bounds
from dpsql.sql.parse.dialect import privacy_error, span_of

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
        """Read a type as DESCRIBE shows it, or as CAST writes it.

        Types without a rule of ours are of kind OTHER: no expression takes them. The labels of an ENUM are data, so
        an ENUM is text here (the engine shows its columns as text); inside lists and structs it keeps the bare name
        ENUM, for whoever takes a value out to cast it.
        """
        made = _parse(text.strip())
        return TEXT if made.sql == "ENUM" else made

    @property
    def numeric(self) -> bool:
        """True for integers, decimals and floats."""
        return self.kind in ("INTEGER", "DECIMAL", "DOUBLE")

    @property
    def two_faced(self) -> bool:
        """True where equal values may look different: 0.0 and -0.0, a month and 30 days.

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
    """Return a DECIMAL type."""
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
    """Split at commas outside of parentheses and quotes."""
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
    """The longest text or list that counts; see :mod:`dpsql.sql.expressions.types`."""
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


DEFAULT_MAX_LENGTH = 65_536
"""Characters of a text, or elements of a list, where the policy does not say."""
MAX_TEXT = 2**20
"""Characters of one text that a function makes of one row."""
MAX_WRITTEN = 2**24
"""Characters of all texts that the functions of one statement make of one row."""
MAX_STEPS = 2**26
"""Steps (of about a nanosecond) that one function takes for one row, where it takes more than a few for a character."""

_MARK = "dpsql_max_length"
"""Key of a node's ``meta``: the longest value that counts, where the engine may hold a longer one."""
_WIDTHS = {
    "NULL": 0, "BOOLEAN": 5, "INTEGER": 40, "DECIMAL": 41, "DOUBLE": 32, "DATE": 24, "TIME": 24, "TIMESTAMP": 48,
    "INTERVAL": 96, "UUID": 36,
}  # fmt: skip
"""Characters of a value that is written as text."""
_SIZED = ("TEXT", "LIST")
_CHOOSERS = ("coalesce", "greatest", "least")
_written: ContextVar[dict[object, int] | None] = ContextVar("written", default=None)


def column_length(declared: object) -> int:
    """Return the ``max_length`` that a policy's column declares, or the default."""
    given: int | None = getattr(declared, "max_length", None)
    return DEFAULT_MAX_LENGTH if given is None else given


def length_of(typed: Typed) -> int:
    """Return the public bound of a value's length; of what is no text or list, as it would be written."""
    if typed.length is not None:
        return typed.length
    if isinstance(typed.node, exp.Literal) and typed.type.kind == "TEXT":
        return len(typed.node.name)
    return _WIDTHS.get(typed.type.kind, DEFAULT_MAX_LENGTH)


def mark_length(typed: Typed) -> Typed:
    """Return a value that is read from a relation, with the bound that :func:`hold` will enforce.

    The value's node must be the caller's own: it is marked.
    """
    if typed.type.kind not in _SIZED or typed.constant or (typed.length is not None and not typed.unchecked):
        return typed
    length = length_of(typed)
    typed.node.meta[_MARK] = length
    return replace(typed, length=length, unchecked=True)


def hold(typed: Typed, most: int | None = None) -> Typed:
    """Return the value, or NULL where it is longer than its public bound, and than ``most``.

    The check stands at the columns that the value is chosen from, so that nothing is computed twice.
    """
    if typed.type.kind not in _SIZED or typed.type.sql == "ENUM":
        return typed
    length = length_of(typed)
    if most is not None and most < length:
        return replace(
            typed, node=_checked(typed.node, typed.type, most), length=most, unchecked=False, nullable=True
        )
    if not typed.unchecked and (typed.length is not None or typed.constant):
        return typed
    found: list[exp.Expr] = []
    node = _held(typed.node.copy(), typed.type, found) if typed.unchecked else typed.node
    if not found:
        node = _checked(node, typed.type, length)
    return replace(typed, node=node, length=length, unchecked=False, nullable=True)


def check_length(typed: Typed) -> exp.Expr:
    """Return a column's value, or NULL where it is longer than its public bound."""
    return _checked(typed.node.copy(), typed.type, length_of(typed)) if typed.unchecked else typed.node.copy()


def _held(node: exp.Expr, kind: Type, found: list[exp.Expr]) -> exp.Expr:
    length = node.meta.pop(_MARK, None)
    if length is not None:
        found.append(node)
        return _checked(node, kind, length)
    places: list[exp.Expr] = []
    if isinstance(node, exp.Case):
        places = [branch.args["true"] for branch in node.args["ifs"]]
        places += [node.args["default"]] if node.args.get("default") is not None else []
    elif isinstance(node, exp.Paren):
        places = [node.this]
    elif isinstance(node, exp.Anonymous) and str(node.this) in _CHOOSERS:
        places = list(node.expressions)
    for place in places:
        place.replace(_held(place.copy(), kind, found))
    return node


def _checked(node: exp.Expr, kind: Type, length: int) -> exp.Expr:
    """``CASE WHEN x is no longer THEN x END``. Bytes are counted first: that takes no look at the text."""

    def most(name: str) -> exp.Expr:
        counted = exp.Anonymous(this=name, expressions=[node.copy()])
        return exp.LTE(this=counted, expression=exp.Literal.number(length))

    fits = most("len") if kind.kind == "LIST" else exp.Or(this=most("strlen"), expression=most("length"))
    return exp.Case(ifs=[exp.If(this=fits, true=node.copy())])


# -- limits -----------------------------------------------------------------------------------------------------


@contextmanager
def one_statement() -> Iterator[None]:
    """Count what is written for one row from here on as one statement's; inside another, as that one's."""
    if _written.get() is not None:
        yield
        return
    token = _written.set({})
    try:
        yield
    finally:
        _written.reset(token)


def count_written(name: str, length: int, node: exp.Expr, weight: int = 1) -> int:
    """Return the bound of a text that a function makes, after counting it.

    Args:
        name: the function, as the analyst knows it.
        length: the bound.
        node: the analyst's call, for the caret. A call that is bound twice is counted once.
        weight: characters in memory for each that is given.

    Raises:
        PrivacyError: the text, or all texts of the statement together, could be too long.
    """
    if length > MAX_TEXT:
        raise privacy_error(
            node,
            f"{name} could make {length:,} characters of one row, and {MAX_TEXT:,} is the most.",
            LENGTH_HINT,
        )
    count_kept(name, length * weight, node)
    return length


LENGTH_HINT = "write LEFT(x, 1000) for x, or ask the owner for a max_length of the column in the policy."


def count_kept(name: str, length: int, node: exp.Expr) -> None:
    """Count characters that a function keeps in memory for one row.

    Raises:
        PrivacyError: those of the statement could be too many.
    """
    counted = _written.get()
    if counted is None:
        return
    span = span_of(node)
    key: object = (name, span) if span is not None else (name, id(node), len(counted))
    counted[key] = max(counted.get(key, 0), length)
    if sum(counted.values()) > MAX_WRITTEN:
        raise PrivacyError(
            f"with {name}, this statement could make more than {MAX_WRITTEN:,} characters of one row.",
            span=span,
            hint=LENGTH_HINT,
        )


def limit_steps(name: str, steps: int, node: exp.Expr, hint: str = LENGTH_HINT) -> None:
    """Refuse a function that could take too long for one row.

    Raises:
        PrivacyError: it is more than :data:`MAX_STEPS`.
    """
    if steps > MAX_STEPS:
        raise privacy_error(
            node,
            f"{name} could take about {_short(steps)} steps for one row, and {_short(MAX_STEPS)} is the most.",
            hint,
        )


def _short(steps: int) -> str:
    digits = len(str(steps)) - 1
    return f"{steps:,}" if digits < 6 else f"{steps // 10**6:,} million" if digits < 12 else f"10^{digits}"
