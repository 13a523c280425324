"""The data owner's declarations: tables, privacy unit, bounds, public values, budget.

A policy is a TOML file or the same in Python (frozen values). It is read when a session opens and never changed
by SQL; a table that it does not name does not exist. Everything it says is public: it must come from how the
data were made, never from looking at them.

>>> policy = Policy.loads('''
... [budget]
... epsilon = 3
... delta = 1e-6
... [tables.visits]
... privacy_unit = "patient_id"
... max_rows = 20
... columns.amount.bounds = [0, 500]
... ''')
>>> policy.table("VISITS").columns["amount"].bounds
(Fraction(0, 1), Fraction(500, 1))
"""

from __future__ import annotations

import copy
import datetime
import hashlib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from fractions import Fraction
from pathlib import Path

from dpsql.errors import PolicyError
from dpsql.policy import validate
from dpsql.policy.toml import Section, assign, declare_field, parse_toml, read_section, write_toml
from dpsql.policy.validate import DateBound, Hop, NameMapping, Value, fold
from dpsql.privacy.filters import ACCOUNTANTS, MECHANISM_SHARE

__all__ = ["Analyst", "Budget", "Column", "Format", "Hop", "NameMapping", "Policy", "Table", "Value", "fold"]

TEXT_KINDS = {
    ".csv": "csv", ".csv.gz": "csv", ".tsv": "tsv", ".tsv.gz": "tsv",
    ".json": "json", ".jsonl": "json", ".ndjson": "json",
}  # fmt: skip
"""Endings of text files, whose types are not in them, and the kind of text."""
FILE_ENDINGS = (".parquet", *TEXT_KINDS)


@dataclass(frozen=True)
class Column(Section):
    """The owner's word on one column: its type, its range, the list of its public values.

    Args:
        type: DuckDB's type of it. A value that does not fit is NULL. Sources whose types would be inferred from rows
            (CSV, JSON, columns of Python objects, several Parquet files) must have it.
        bounds: the lowest and the highest value that count; rows beyond are clamped. Numbers (of an INTERVAL column,
            seconds), or dates or times without a zone, which are kept as :class:`dpsql.policy.validate.DateBound`.
        values: every value there can be, in the order in which groups are shown. Keys over it cost no delta.
        max_length: letters of a text (items of a list) that count, 65,536 where it is left out; where an expression needs
            a length, a longer value is NULL.
    """

    bounds: tuple[Fraction, Fraction] | None = declare_field(validate.settle_bounds)
    values: tuple[Value, ...] | None = declare_field(validate.settle_values)
    type: str | None = declare_field(validate.settle_type)
    max_length: int | None = declare_field(validate.settle_whole)

    def _check_together(self) -> None:
        if self.max_length is not None and self.type is not None and not validate.has_length(self.type):
            raise PolicyError(
                f"max_length is for texts and lists, not for {self.type}.",
                keys=("max_length",),
                hint="remove max_length.",
            )

    def suggest_type(self) -> str:
        """Return a type that fits what the policy says of the column, which is all that is known here."""
        ends: tuple[object, ...] = self.values or self.bounds or ("",)
        first = ends[0].written if isinstance(ends[0], DateBound) else ends[0]
        for kind, name in _TYPES_OF_VALUES.items():
            if isinstance(first, kind):
                return name
        return "BIGINT" if all(isinstance(end, int) for end in ends) else "DOUBLE"


_TYPES_OF_VALUES = {
    bool: "BOOLEAN", datetime.datetime: "TIMESTAMP", datetime.date: "DATE", datetime.time: "TIME", str: "VARCHAR",
}  # fmt: skip


@dataclass(frozen=True)
class Format(Section):
    """The format of a text source. What is left out has one fixed meaning: nothing is guessed.

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

    delimiter: str | None = declare_field(validate.settle_letter, only="csv")
    quote: str = declare_field(validate.settle_letter, '"', only="csv")
    escape: str | None = declare_field(validate.settle_letter, only="csv")
    header: bool = declare_field(validate.settle_flag, True, only="csv")
    encoding: str = declare_field(validate.settle_choice("utf-8", "latin-1", "windows-1252"), "utf-8")
    null: str = declare_field(validate.settle_null, "", only="csv")
    date_format: str | None = declare_field(validate.settle_pattern)
    timestamp_format: str | None = declare_field(validate.settle_pattern)
    quoted_newlines: bool = declare_field(validate.settle_flag, False, only="csv")
    records: str = declare_field(validate.settle_choice("lines", "array"), "lines", only="json")

    def _check_together(self) -> None:
        if self.quote and self.quote == self.delimiter:
            raise PolicyError("delimiter and quote are the same.", keys=("quote",))
        if self.escape is not None and (not self.quote or self.escape == self.delimiter):
            raise PolicyError("there is no such escape: it stands before a quote.", keys=("escape",))
        if self.quoted_newlines and not self.quote:
            raise PolicyError("without quotes no newline is quoted.", keys=("quoted_newlines",))

    def fit(self, source: str | None, text: str | None) -> Format:
        """Return this format for a source of one kind of text (``"csv"``, ``"tsv"``, ``"json"``), its defaults settled.

        Raises:
            PolicyError: the source is no text, or the format says what its kind does not have.
        """
        if text is None:
            wrong = (
                f"the source {source} has a format of its own."
                if source
                else "only a text file has a format."
            )
            raise PolicyError(wrong, keys=("format",), hint="remove format.")
        for key in self.find_given("csv" if text == "json" else "json"):
            raise PolicyError(f"{text.upper()} has no {key}.", keys=("format", key), hint=f"remove {key}.")
        comma = self.delimiter or ("\t" if text == "tsv" else ",")
        if comma == self.quote:
            raise PolicyError("delimiter and quote are the same.", keys=("format", "quote"))
        made = copy.copy(self)
        assign(made, "delimiter", comma)
        assign(made, "escape", self.escape or self.quote)
        return made


@dataclass(frozen=True)
class Table(Section):
    """A table that analysts may name.

    Args:
        name: its name in SQL.
        public: nothing in it is private; it is joined, read and shown as it is.
        source: a file, a glob, or a table of the database; without it, the database's table of that name.
        privacy_unit: whose presence is hidden: ``"ROW"``, a column, or a path
            ``"order_id -> orders.id, user_id"`` (follow order_id to the row of orders with that id, whose
            user_id is the unit).
        max_rows: how many rows of one unit count in one group (1 where the unit is ROW).
        max_groups: how many groups one unit counts in, where a query does not say.
        columns: types, bounds and public values, by column name.
        format: how a text source is written.
        version: which version of the data this is, for instance a date; without it, the files' sizes and times.
        max_fan_out: how many public rows one private row may meet; 10,000 where it is left out.
        max_unit_rows: how many rows one unit may become where its own rows meet each other; a million where it is left
            out.
    """

    name: str = declare_field(validate.settle_name, MISSING)
    public: bool = declare_field(validate.settle_flag, False)
    source: str | None = declare_field(validate.settle_text)
    privacy_unit: str | None = declare_field(validate.settle_text, only="private")
    max_rows: int | None = declare_field(validate.settle_whole, only="private")
    max_groups: int | None = declare_field(validate.settle_whole, only="private")
    columns: Mapping[str, Column] = declare_field(validate.settle_names, sections=Column)
    format: Format | None = declare_field(None, section=Format)
    version: str | None = declare_field(validate.settle_text)
    max_fan_out: int | None = declare_field(validate.settle_whole, only="private")
    max_unit_rows: int | None = declare_field(validate.settle_whole, only="private")

    def _check_together(self) -> None:
        if self.format is not None:
            self.format.fit(self.source, self.text)
            assign(self, "format", None if self.format == Format() else self.format)
        if self.source is not None and "://" in self.source:
            raise PolicyError(
                f"the source of {self.name} is not a local file or table.",
                keys=("source",),
                hint="copy it beside the policy, or into the database.",
            )
        if self.public:
            for key in self.find_given("private"):
                raise PolicyError(
                    f"the table {self.name} is public, so it has no {key}.",
                    keys=(key,),
                    hint=f"remove public = true, or remove {key}.",
                )
        elif self.privacy_unit is None:
            raise PolicyError(
                f"the table {self.name} has no privacy unit.",
                hint='add privacy_unit = "<the column that says whose row it is>", or public = true.',
            )
        elif self.row_level:
            if self.max_rows not in (None, 1):
                raise PolicyError(
                    f"the privacy unit of {self.name} is the row, so max_rows is 1.",
                    keys=("max_rows",),
                    hint="remove max_rows, or name the column that says whose row it is.",
                )
            assign(self, "max_rows", 1)
        else:
            validate.parse_path(self.name, self.privacy_unit)

    @property
    def row_level(self) -> bool:
        """True where each row is its own privacy unit."""
        return self.privacy_unit is not None and fold(self.privacy_unit.strip()) == "row"

    @property
    def unit_path(self) -> tuple[Hop, ...]:
        """The way from a row to its privacy unit, one hop for a column; empty for public and row-level tables.

        >>> Table("items", privacy_unit="order_id -> orders.id, user_id").unit_path[1]
        Hop(table='orders', key='id', column='user_id')
        """
        if self.privacy_unit is None or self.row_level:
            return ()
        return validate.parse_path(self.name, self.privacy_unit)

    @property
    def unit_domain(self) -> str:
        """A name of the kind of unit; tables whose units are the same people share it."""
        path = self.unit_path
        return fold(path[-1].column) if path else f"row of {fold(self.name)}"

    @property
    def file(self) -> bool:
        """True where the source is a file or a glob rather than a table of the database."""
        source = "" if self.source is None else self.source.lower()
        return source.endswith(FILE_ENDINGS) or "/" in source or "*" in source

    @property
    def text(self) -> str | None:
        """The kind of text (``"csv"``, ``"tsv"``, ``"json"``); None for a source that has types of its own."""
        source = "" if self.source is None else self.source.lower()
        return next((kind for ending, kind in TEXT_KINDS.items() if source.endswith(ending)), None)

    @property
    def several(self) -> bool:
        """True where the source is a pattern, which may find any number of files."""
        return self.file and any(letter in (self.source or "") for letter in "*?[")

    def path(self, base: Path | None) -> Path:
        """Return the path of the source file, which starts from the policy's folder."""
        return (base or Path()) / Path(self.source or "").expanduser()


@dataclass(frozen=True)
class Budget(Section):
    """The privacy that may be lost in all, and by one statement.

    Args:
        epsilon, delta: the whole.
        accountant: the way losses are summed: one of :data:`dpsql.privacy.filters.ACCOUNTANTS`, by default ``"zcdp"``.
        max_epsilon_per_query: no block may ask for more.
        default_epsilon, default_delta: what a block costs that does not say.
        mechanism_delta_share: the part of delta for mechanisms that have a delta of their own (groups with private
            keys, stability tests); the rest pays for the conversion of zcdp and gdp. ``basic`` sums all deltas and
            takes no notice of it. A ledger keeps the share that it was opened with.

    Numbers may be ints, Fractions, or floats (taken by the digits that print them).

    >>> Budget(1, 1e-6).delta
    Fraction(1, 1000000)
    """

    epsilon: Fraction = declare_field(
        validate.settle_positive, MISSING, start="epsilon = 1 is a usual start."
    )
    delta: Fraction = declare_field(validate.settle_probability, Fraction(0))
    accountant: str = declare_field(validate.settle_choice(*ACCOUNTANTS), "zcdp")
    max_epsilon_per_query: Fraction | None = declare_field(validate.settle_positive)
    default_epsilon: Fraction | None = declare_field(validate.settle_positive)
    default_delta: Fraction | None = declare_field(validate.settle_probability)
    mechanism_delta_share: Fraction = declare_field(validate.settle_share, MECHANISM_SHARE)

    def _check_together(self) -> None:
        for key, limit in (
            ("default_epsilon", "max_epsilon_per_query"),
            ("default_epsilon", "epsilon"),
            ("default_delta", "delta"),
        ):
            value, most = getattr(self, key), getattr(self, limit)
            if value is not None and most is not None and value > most:
                raise PolicyError(
                    f"{key} is more than {limit}, so it could never be spent.",
                    keys=(key,),
                    hint=f"make {key} smaller, or {limit} larger.",
                )

    @property
    def mechanism_delta(self) -> Fraction:
        """The delta of all mechanisms that have one of their own, together."""
        return ACCOUNTANTS[self.accountant].split(self.delta, self.mechanism_delta_share)


@dataclass(frozen=True)
class Analyst(Section):
    """One analyst's share of the budget. Without delta, the whole delta is open to them."""

    epsilon: Fraction = declare_field(validate.settle_positive, MISSING, start="epsilon = 1")
    delta: Fraction | None = declare_field(validate.settle_probability)


@dataclass(frozen=True)
class Policy(Section):
    """The owner's declaration as a whole.

    Args:
        budget: what may be lost.
        tables: what may be asked about, by name.
        analysts: shares of the budget, by name.
        base: the folder that relative sources start from.

    Raises:
        PolicyError: when made, if its parts do not fit each other.
    """

    budget: Budget = declare_field(
        None, MISSING, section=Budget, start="begin with [budget] and epsilon = 1."
    )
    tables: Mapping[str, Table] = declare_field(validate.settle_names, sections=Table)
    analysts: Mapping[str, Analyst] = declare_field(validate.settle_names, sections=Analyst)
    base: Path | None = field(default=None, compare=False)

    def _check_together(self) -> None:
        for name, table in self.tables.items():
            if fold(name) != fold(table.name):
                raise PolicyError(f"the table {table.name} is listed as {name}.", keys=("tables", name))
            self._check_path(table)
        for name, analyst in self.analysts.items():
            for key in ("epsilon", "delta"):
                share = getattr(analyst, key)
                if share is not None and share > getattr(self.budget, key):
                    raise PolicyError(
                        f"the share of {name} is more than the whole {key}.",
                        keys=("analysts", name, key),
                        hint=f"a share is at most the {key} of [budget].",
                    )

    def _check_path(self, table: Table) -> None:
        """Check that the tables on the way to the unit are in the policy, and lead to the same unit."""
        path = table.unit_path
        for index, hop in enumerate(path[1:], start=1):
            keys = ("tables", table.name, "privacy_unit")
            if hop.table not in self.tables:
                raise PolicyError(
                    f"the path to the privacy unit of {table.name} goes through {hop.table}, which has no policy.",
                    keys=keys,
                    hint=f"add [tables.{hop.table}].",
                )
            through = self.tables[hop.table]
            rest = [fold(step.column) for step in path[index:]]
            if not through.public and [fold(step.column) for step in through.unit_path] != rest:
                raise PolicyError(
                    f"{table.name} and {hop.table} do not lead to the same privacy unit.",
                    keys=keys,
                    hint=f"from {hop.table} on, the path must be the privacy unit of {hop.table}.",
                )

    def table(self, name: str) -> Table | None:
        """Return the table of that name, whatever its case (ASCII); None where the policy names none."""
        return self.tables.get(name)

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy file; relative sources start from its folder.

        Raises:
            PolicyError: the file is missing or wrong; the message starts with its name and shows the line.
        """
        path = Path(path).expanduser()
        try:
            text = path.read_bytes().decode("utf-8")
        except OSError:
            raise PolicyError(f"the policy file {path} can't be read.", hint="is the path right?") from None
        except UnicodeDecodeError:
            raise PolicyError(f"{path.name}: the file is not UTF-8 text.") from None
        return cls.loads(text, base=path.absolute().parent, name=path.name)

    @classmethod
    def loads(cls, text: str, base: str | Path | None = None, name: str = "policy") -> Policy:
        """Read policy text; `name` begins each message.

        Raises:
            PolicyError: the text is not TOML, has an unknown key, or says something that can't be.
        """
        return read_section(parse_toml(text, name), (), cls, base=None if base is None else Path(base))

    def dumps(self) -> str:
        """Return TOML that :meth:`loads` reads back as an equal policy."""
        said = {"budget": self.budget.collect()}
        said["tables"] = {name: table.collect() for name, table in self.tables.items()}
        said["analysts"] = {name: analyst.collect() for name, analyst in self.analysts.items()}
        return write_toml(said, _INLINE)

    def dump(self, path: str | Path) -> None:
        """Write the policy to a file."""
        Path(path).write_text(self.dumps(), encoding="utf-8")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what the policy says, however it was written down."""
        return hashlib.sha256(self.dumps().encode()).hexdigest()


_INLINE = frozenset(Column.__dataclass_fields__)


def list_mentioned(policy: Policy, table: Table) -> list[str]:
    """List the columns of a table that the policy names: declared ones, and those on paths to a privacy unit."""
    named = NameMapping({name: name for name in table.columns})
    met = [
        name
        for other in policy.tables.values()
        for hop in other.unit_path
        if fold(hop.table) == fold(table.name)
        for name in (hop.key, hop.column)
    ]
    return [*table.columns, *NameMapping({name: name for name in met if name and name not in named})]


def list_untyped(policy: Policy, table: Table) -> list[str]:
    """List the columns that the policy speaks of without saying their type."""
    types = {fold(name) for name, column in table.columns.items() if column.type is not None}
    return [name for name in list_mentioned(policy, table) if fold(name) not in types]


def list_types(policy: Policy, table: Table) -> dict[str, str]:
    """Give the columns of a source that has no types of its own, as the policy declares them.

    Raises:
        PolicyError: a column that it speaks of has no type, or none is declared; the hint has the lines to paste.
    """
    missing = list_untyped(policy, table)
    types = {name: column.type for name, column in table.columns.items() if column.type is not None}
    if missing or not types:
        raise explain_missing_types(table, missing)
    return types


def explain_missing_types(table: Table, missing: list[str]) -> PolicyError:
    """Make the error of a policy that leaves types out, with the lines to paste."""
    said = (
        f"; {', '.join(missing)} {'have' if len(missing) > 1 else 'has'} none in the policy"
        if missing
        else ""
    )
    lines = write_columns(table, dict.fromkeys(missing or ["column"]))
    return PolicyError(
        f"the source of {table.name} does not say what types its columns have{said}.",
        keys=("tables", table.name),
        hint="\n".join(["declare them (dpsql policy check proposes types), for instance:", *lines]),
    )


def write_columns(table: Table, types: Mapping[str, str | None]) -> list[str]:
    """Write lines of a policy that declare types of a table's columns, with what is said of them already.

    Args:
        table: as it is now.
        types: the columns, and the type of each; None for one that what is said of it suggests.
    """
    known = NameMapping({**dict.fromkeys(types, Column()), **table.columns})
    lines = {n: {"type": kind or known[n].suggest_type(), **known[n].collect()} for n, kind in types.items()}
    return write_toml({"tables": {table.name: {"columns": lines}}}, _INLINE).splitlines()
