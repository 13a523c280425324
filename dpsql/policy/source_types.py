"""What a policy says of sources that have no types of their own: the types of columns, and how text is written.

Both are closed lists. What is not in them is an error of the policy, never a guess over the data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dpsql.errors import PolicyError, did_you_mean
from dpsql.policy.validate import settle

_PLAIN = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
    "UHUGEINT", "FLOAT", "DOUBLE", "VARCHAR", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS",
    "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", "INTERVAL", "UUID", "BLOB",
)  # fmt: skip
_SPELLINGS = {
    "INT": "INTEGER", "INT1": "TINYINT", "INT2": "SMALLINT", "INT4": "INTEGER", "INT8": "BIGINT", "LONG": "BIGINT",
    "SHORT": "SMALLINT", "REAL": "FLOAT", "FLOAT4": "FLOAT", "FLOAT8": "DOUBLE", "TEXT": "VARCHAR",
    "STRING": "VARCHAR", "CHAR": "VARCHAR", "BOOL": "BOOLEAN", "DATETIME": "TIMESTAMP", "TIMESTAMPTZ":
    "TIMESTAMP WITH TIME ZONE", "BYTEA": "BLOB",
}  # fmt: skip
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)(?:\(\s*([0-9]{1,2})\s*(?:,\s*([0-9]{1,2})\s*)?\))?")
_LIST = re.compile(r"(.+?)\s*\[\s*\]", re.DOTALL)
_FIELD = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([A-Za-z_][A-Za-z0-9_]*))\s+(.+)', re.DOTALL)
_DEEP = 8

_ENCODINGS = ("utf-8", "latin-1", "windows-1252")
_RECORDS = ("lines", "array")
_SPECIFIER = re.compile(r"%(?:-?[dmyHIMSj]|[YbBfgnpaA%])")
_CSV_ONLY = ("delimiter", "quote", "escape", "header", "null", "quoted_newlines")


def type_of(text: object, deep: int = 0) -> str:
    """Return DuckDB's own spelling of a type.

    Raises:
        PolicyError: it is none of those that a column may have.

    >>> type_of("int"), type_of("decimal(10, 2)"), type_of("text[]")
    ('INTEGER', 'DECIMAL(10,2)', 'VARCHAR[]')
    """
    found = _type(text.strip(), deep) if isinstance(text, str) else None
    if found is None:
        known = did_you_mean(str(text).upper(), (*_PLAIN, "DECIMAL", *_SPELLINGS))
        raise PolicyError(
            f"{text!r} is no type of a column.",
            keys=("type",),
            hint=known or 'type = "INTEGER", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP" and so on.',
        )
    return found


def _type(text: str, deep: int) -> str | None:
    if deep > _DEEP:
        return None
    listed = _LIST.fullmatch(text)
    if listed:
        element = _type(listed[1].strip(), deep + 1)
        return None if element is None else f"{element}[]"
    upper = " ".join(text.upper().split())
    if upper.startswith("STRUCT(") and text.endswith(")"):
        return _struct(text[len("STRUCT(") : -1], deep)
    number = _DECIMAL.fullmatch(upper)
    if number:
        width, scale = int(number[1] or 18), int(number[2] or 0) if number[1] else 3
        return f"DECIMAL({width},{scale})" if 0 < width <= 38 and scale <= width else None
    name = _SPELLINGS.get(upper, upper)
    return name if name in _PLAIN else None


def _struct(body: str, deep: int) -> str | None:
    fields = []
    for part in _parts(body):
        found = _FIELD.fullmatch(part)
        kind = _type(found[3].strip(), deep + 1) if found else None
        if found is None or kind is None:
            return None
        fields.append(f'"{found[1] or found[2]}" {kind}')
    return f"STRUCT({', '.join(fields)})" if fields else None


def _parts(body: str) -> list[str]:
    """What stands between the commas of the outermost level."""
    parts, start, depth, quoted = [], 0, 0, False
    for index, letter in enumerate(body):
        quoted ^= letter == '"'
        if not quoted:
            depth += (letter == "(") - (letter == ")")
            if letter == "," and depth == 0:
                parts.append(body[start:index])
                start = index + 1
    return [*parts, body[start:]]


def has_length(kind: str) -> bool:
    """Tell whether values of a type have a length: texts, bytes and lists."""
    return kind in ("VARCHAR", "BLOB") or kind.endswith("[]")


@dataclass(frozen=True)
class Format:
    """How a text source is written. What is left out has one fixed meaning: nothing is guessed from the file.

    Args:
        delimiter: one letter between two fields; a comma, of TSV a tab.
        quote: what encloses a field that holds the delimiter; ``""`` where nothing does.
        escape: what stands before a quote within quotes (the quote itself, or a backslash).
        header: whether the first line of each file names the columns. Without it, they come in the policy's order.
        encoding: ``"utf-8"``, ``"latin-1"`` or ``"windows-1252"``.
        null: the text without quotes that means NULL.
        date_format, timestamp_format: as strptime has them; without, ISO dates.
        quoted_newlines: whether a quoted field may go on in the next line. Then one stray quote changes the rows after
            it, so one person's row can: the check of the policy warns.
        records: of JSON: ``"lines"`` (an object on each line), or ``"array"`` (one array of objects, where one bad
            record ends the file; the check of the policy warns).
    """

    delimiter: str | None = None
    quote: str = '"'
    escape: str | None = None
    header: bool = True
    encoding: str = "utf-8"
    null: str = ""
    date_format: str | None = None
    timestamp_format: str | None = None
    quoted_newlines: bool = False
    records: str = "lines"

    def __post_init__(self) -> None:
        for key in ("header", "quoted_newlines"):
            if not isinstance(getattr(self, key), bool):
                raise PolicyError(f"{key} is true or false.", keys=(key,))
        for key, empty in (("delimiter", False), ("quote", True), ("escape", False)):
            _letter(key, getattr(self, key), empty)
        if self.quote and self.quote == self.delimiter:
            raise PolicyError("delimiter and quote are the same.", keys=("quote",))
        if self.escape is not None and (not self.quote or self.escape == self.delimiter):
            raise PolicyError("there is no such escape: it stands before a quote.", keys=("escape",))
        if self.quoted_newlines and not self.quote:
            raise PolicyError("without quotes no newline is quoted.", keys=("quoted_newlines",))
        if not isinstance(self.null, str) or "\n" in self.null or len(self.null) > 100:
            raise PolicyError("null is a short text.", keys=("null",), hint='null = "NA"')
        settle(self, "encoding", _one("encoding", self.encoding, _ENCODINGS))
        settle(self, "records", _one("records", self.records, _RECORDS))
        for key in ("date_format", "timestamp_format"):
            _pattern(key, getattr(self, key))

    def fit(self, source: str | None, text: str | None) -> Format:
        """Return this format for a source of one kind of text (``"csv"``, ``"tsv"``, ``"json"``), its defaults settled.

        Raises:
            PolicyError: the source is no text, or says what its kind has not.
        """
        if text is None:
            raise PolicyError(
                f"the source {source} has a format of its own."
                if source
                else "only a text file has a format.",
                keys=("format",),
                hint="remove format.",
            )
        odd = _CSV_ONLY if text == "json" else ("records",)
        for key in odd:
            if getattr(self, key) != type(self).__dataclass_fields__[key].default:
                raise PolicyError(
                    f"{text.upper()} has no {key}.", keys=("format", key), hint=f"remove {key}."
                )
        comma = self.delimiter or ("\t" if text == "tsv" else ",")
        if comma == self.quote:
            raise PolicyError("delimiter and quote are the same.", keys=("format", "quote"))
        made = object.__new__(Format)
        for key in type(self).__dataclass_fields__:
            settle(made, key, getattr(self, key))
        settle(made, "delimiter", comma)
        settle(made, "escape", self.escape or self.quote)
        return made


def _letter(key: str, value: object, empty: bool) -> None:
    if value is None or (empty and value == ""):
        return
    if not isinstance(value, str) or len(value) != 1 or value in "\r\n\0" or ord(value) > 126:
        raise PolicyError(f"{key} is one letter of ASCII.", keys=(key,), hint=f"{key} = ';'")


def _one(key: str, value: object, known: tuple[str, ...]) -> str:
    if isinstance(value, str) and value.lower() in known:
        return value.lower()
    raise PolicyError(
        f"there is no {key} {value!r} here.", keys=(key,), hint=f"it is one of {', '.join(known)}."
    )


def _pattern(key: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not value or "%" not in value:
        raise PolicyError(f"{key} is a pattern.", keys=(key,), hint=f'{key} = "%d.%m.%Y"')
    if "%" in _SPECIFIER.sub("", value) or "\n" in value:
        raise PolicyError(f"{key} has a % that means nothing here.", keys=(key,), hint="%Y %m %d %H %M %S %f")
