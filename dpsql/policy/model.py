"""What the data owner declares: tables, privacy unit, bounds, public values, budget.

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

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from dpsql.errors import PolicyError, did_you_mean
from dpsql.policy.toml import Document, Keys, parse_toml, write_toml
from dpsql.policy.validate import (
    Format,
    Hop,
    Names,
    Value,
    fold,
    has_length,
    parse_path,
    parse_type,
    read_bounds,
    read_positive,
    read_probability,
    read_share,
    read_values,
    require_distinct,
    require_name,
    require_whole,
    settle,
)
from dpsql.privacy.filters import ACCOUNTANTS, MECHANISM_SHARE

__all__ = ["Analyst", "Budget", "Column", "Format", "Hop", "Names", "Policy", "Table", "Value", "fold"]

V = TypeVar("V")

TEXT_KINDS = {
    ".csv": "csv", ".csv.gz": "csv", ".tsv": "tsv", ".tsv.gz": "tsv",
    ".json": "json", ".jsonl": "json", ".ndjson": "json",
}  # fmt: skip
"""Endings of text files, whose types are not in them, and what kind of text it is."""
FILE_ENDINGS = (".parquet", *TEXT_KINDS)


@dataclass(frozen=True)
class Column:
    """What the owner says of one column: its type, its range, the list of its public values.

    Args:
        type: DuckDB's type of it. A value that does not fit is NULL. Sources whose types would be inferred from rows
            (CSV, JSON, columns of Python objects, several Parquet files) must have it.
        bounds: the lowest and the highest value that count; rows beyond are clamped. Numbers (of an INTERVAL column,
            seconds), or dates or times without a zone, which are kept as :class:`dpsql.policy.validate.Moment`.
        values: every value there can be, in the order in which groups are shown. Keys over it cost no delta.
        max_length: letters of a text (items of a list) that count, 65,536 where it is left out; where an expression needs
            a length, a longer value is NULL.
    """

    bounds: tuple[Fraction, Fraction] | None = None
    values: tuple[Value, ...] | None = None
    type: str | None = None
    max_length: int | None = None

    def __post_init__(self) -> None:
        if self.type is not None:
            settle(self, "type", parse_type(self.type))
        if self.max_length is not None:
            require_whole("max_length", self.max_length)
        if self.max_length is not None and self.type is not None and not has_length(self.type):
            raise PolicyError(
                f"max_length is for texts and lists, not for {self.type}.",
                keys=("max_length",),
                hint="remove max_length.",
            )
        if self.bounds is not None:
            settle(self, "bounds", read_bounds(self.bounds))
        if self.values is not None:
            settle(self, "values", read_values(self.values))


@dataclass(frozen=True)
class Table:
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

    name: str
    public: bool = False
    source: str | None = None
    privacy_unit: str | None = None
    max_rows: int | None = None
    max_groups: int | None = None
    columns: Mapping[str, Column] = field(default_factory=dict)
    format: Format | None = None
    version: str | None = None
    max_fan_out: int | None = None
    max_unit_rows: int | None = None

    def __post_init__(self) -> None:
        require_name(self.name)
        require_distinct(self.columns, f"the table {self.name}", "column")
        settle(self, "columns", Names(self.columns))
        if not isinstance(self.public, bool):
            raise PolicyError("public is true or false.", keys=("public",))
        for key in ("source", "privacy_unit", "version"):
            text = getattr(self, key)
            if text is not None and (not isinstance(text, str) or not text.strip()):
                raise PolicyError(f"{key} is text in quotes.", keys=(key,))
        for key in ("max_rows", "max_groups", "max_fan_out", "max_unit_rows"):
            if getattr(self, key) is not None:
                require_whole(key, getattr(self, key))
        if self.format is not None:
            self.format.fit(self.source, self.text)
            settle(self, "format", None if self.format == Format() else self.format)
        if self.source is not None and "://" in self.source:
            raise PolicyError(
                f"the source of {self.name} is not a local file or table.",
                keys=("source",),
                hint="copy it beside the policy, or into the database.",
            )
        if self.public:
            for key in ("privacy_unit", "max_rows", "max_groups", "max_fan_out", "max_unit_rows"):
                if getattr(self, key) is not None:
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
            settle(self, "max_rows", 1)
        else:
            parse_path(self.name, self.privacy_unit)

    @property
    def row_level(self) -> bool:
        """Whether each row is its own privacy unit."""
        return self.privacy_unit is not None and fold(self.privacy_unit.strip()) == "row"

    @property
    def unit_path(self) -> tuple[Hop, ...]:
        """The way from a row to its privacy unit, one hop for a column; empty for public and row-level tables.

        >>> Table("items", privacy_unit="order_id -> orders.id, user_id").unit_path[1]
        Hop(table='orders', key='id', column='user_id')
        """
        if self.privacy_unit is None or self.row_level:
            return ()
        return parse_path(self.name, self.privacy_unit)

    @property
    def unit_domain(self) -> str:
        """Whose units these are: tables whose units are the same people have the same domain."""
        path = self.unit_path
        return fold(path[-1].column) if path else f"row of {fold(self.name)}"

    @property
    def file(self) -> bool:
        """Whether the source is a file or a glob rather than a table of the database."""
        source = "" if self.source is None else self.source.lower()
        return source.endswith(FILE_ENDINGS) or "/" in source or "*" in source

    @property
    def text(self) -> str | None:
        """What kind of text the source is (``"csv"``, ``"tsv"`` or ``"json"``); None where it has types of its own."""
        source = "" if self.source is None else self.source.lower()
        return next((kind for ending, kind in TEXT_KINDS.items() if source.endswith(ending)), None)

    @property
    def several(self) -> bool:
        """Whether the source is a pattern, which may find any number of files."""
        return self.file and any(letter in (self.source or "") for letter in "*?[")

    def path(self, base: Path | None) -> Path:
        """Where the source file is, relative to the policy's folder."""
        return (base or Path()) / Path(self.source or "").expanduser()


@dataclass(frozen=True)
class Budget:
    """What may be lost in all, and by one statement.

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

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    accountant: str = "zcdp"
    max_epsilon_per_query: Fraction | None = None
    default_epsilon: Fraction | None = None
    default_delta: Fraction | None = None
    mechanism_delta_share: Fraction = MECHANISM_SHARE

    def __post_init__(self) -> None:
        settle(self, "epsilon", read_positive("epsilon", self.epsilon))
        settle(self, "delta", read_probability("delta", self.delta))
        if self.accountant not in ACCOUNTANTS:
            raise PolicyError(
                f"there is no accountant {self.accountant}.",
                keys=("accountant",),
                hint=did_you_mean(str(self.accountant), ACCOUNTANTS),
            )
        for key in ("max_epsilon_per_query", "default_epsilon"):
            if getattr(self, key) is not None:
                settle(self, key, read_positive(key, getattr(self, key)))
        settle(self, "mechanism_delta_share", read_share("mechanism_delta_share", self.mechanism_delta_share))
        if self.default_delta is not None:
            settle(self, "default_delta", read_probability("default_delta", self.default_delta))
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
class Analyst:
    """One analyst's share of the budget. Without delta, the whole delta is open to them."""

    epsilon: Fraction
    delta: Fraction | None = None

    def __post_init__(self) -> None:
        settle(self, "epsilon", read_positive("epsilon", self.epsilon))
        if self.delta is not None:
            settle(self, "delta", read_probability("delta", self.delta))


@dataclass(frozen=True)
class Policy:
    """The owner's declaration as a whole. ``base`` is the folder that relative sources start from.

    Raises:
        PolicyError: when made, if its parts do not fit each other.
    """

    budget: Budget
    tables: Mapping[str, Table] = field(default_factory=dict)
    analysts: Mapping[str, Analyst] = field(default_factory=dict)
    base: Path | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        require_distinct(self.tables, "the policy", "table")
        settle(self, "tables", Names(self.tables))
        settle(self, "analysts", Names(self.analysts))
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
        """Every table on the way to the unit is in the policy, and has the same unit from there on."""
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
        """The table of that name, whatever its case (ASCII); None where the policy names none."""
        return self.tables.get(name)

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Reads a policy file; relative sources start from its folder.

        Raises:
            PolicyError: the file is missing or wrong; the message starts with its name and shows the line.
        """
        path = Path(path).expanduser()
        try:
            text = path.read_bytes().decode("utf-8")
        except OSError:
            text = None
        except UnicodeDecodeError:
            raise PolicyError(f"{path.name}: the file is not UTF-8 text.") from None
        if text is None:
            raise PolicyError(f"the policy file {path} can't be read.", hint="is the path right?")
        return cls.loads(text, base=path.absolute().parent, name=path.name)

    @classmethod
    def loads(cls, text: str, base: str | Path | None = None, name: str = "policy") -> Policy:
        """Reads policy text. ``name`` begins each message.

        Raises:
            PolicyError: the text is not TOML, has an unknown key, or says something that can't be.
        """
        document = parse_toml(text, name)
        try:
            return _policy(document, None if base is None else Path(base))
        except PolicyError as error:
            wrong = error
        if wrong.text is not None:
            raise wrong
        raise document.error(wrong.keys, wrong.message, wrong.hint)

    def dumps(self) -> str:
        """TOML that :meth:`loads` reads back as an equal policy."""
        return write_toml(
            {
                "budget": collect_fields(self.budget),
                "tables": {name: collect_fields(table) for name, table in self.tables.items()},
                "analysts": {name: collect_fields(analyst) for name, analyst in self.analysts.items()},
            }
        )

    def dump(self, path: str | Path) -> None:
        """Writes the policy to a file."""
        Path(path).write_text(self.dumps(), encoding="utf-8")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what the policy says, however it was written down."""
        return hashlib.sha256(self.dumps().encode()).hexdigest()


# ---- reading -----------------------------------------------------------------------------------------------


def _policy(document: Document, base: Path | None) -> Policy:
    data = document.data
    _known(document, (), data, ("budget", "tables", "analysts"))
    if "budget" not in data:
        raise document.error((), "there is no [budget].", "begin with [budget] and epsilon = 1.")
    budget = _section(document, ("budget",))
    _known(document, ("budget",), budget, tuple(Budget.__dataclass_fields__))
    if "epsilon" not in budget:
        raise document.error(("budget",), "[budget] has no epsilon.", "epsilon = 1 is a usual start.")
    tables: dict[str, Table] = {}
    for name in _section(document, ("tables",)) if "tables" in data else ():
        table = _table(document, name)
        if any(fold(other) == fold(name) for other in tables):
            raise document.error(("tables", name), f"the table {name} is listed twice.")
        tables[name] = table
    analysts: dict[str, Analyst] = {}
    for name in _section(document, ("analysts",)) if "analysts" in data else ():
        keys = ("analysts", name)
        share = _section(document, keys)
        _known(document, keys, share, ("epsilon", "delta"))
        if "epsilon" not in share:
            raise document.error(keys, f"the analyst {name} has no epsilon.", "epsilon = 1")
        analysts[name] = _made(document, keys, Analyst, share)
    return Policy(_made(document, ("budget",), Budget, budget), tables, analysts, base)


def _table(document: Document, name: str) -> Table:
    keys = ("tables", name)
    given = dict(_section(document, keys))
    _known(document, keys, given, tuple(key for key in Table.__dataclass_fields__ if key != "name"))
    columns: dict[str, Column] = {}
    for column in _section(document, (*keys, "columns")) if "columns" in given else ():
        here = (*keys, "columns", column)
        said = _section(document, here)
        _known(document, here, said, tuple(Column.__dataclass_fields__))
        columns[column] = _made(document, here, Column, said)
    given["columns"] = columns
    if "format" in given:
        place = (*keys, "format")
        _known(document, place, _section(document, place), tuple(Format.__dataclass_fields__))
        given["format"] = _made(document, place, Format, given["format"])
    return _made(document, keys, Table, {"name": name, **given})


def _made(document: Document, keys: Keys, kind: type[V], given: Mapping[str, Any]) -> V:
    """``kind(**given)``, its complaints located below ``keys``."""
    try:
        return kind(**given)
    except PolicyError as error:
        wrong = error
    raise document.error((*keys, *wrong.keys), wrong.message, wrong.hint)


def _section(document: Document, keys: Keys) -> Mapping[str, Any]:
    found: Any = document.data
    for key in keys:
        found = found[key]
    if not isinstance(found, Mapping):
        example = "{ bounds = [0, 100] }" if "columns" in keys else "{ key = value }"
        raise document.error(keys, f"{keys[-1]} is not a section.", f"write {keys[-1]} = {example}.")
    return found


def _known(document: Document, keys: Keys, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in given:
        if key not in known:
            place = f"[{'.'.join(keys)}]" if keys else "the policy"
            raise document.error((*keys, key), f"unknown key {key} in {place}.", did_you_mean(key, known))


def collect_fields(value: Budget | Table | Analyst | Column | Format) -> dict[str, Any]:
    """Collect the fields that say something, in order, without a table's name (its section has it)."""
    said: dict[str, Any] = {}
    for key, declared in type(value).__dataclass_fields__.items():
        item = getattr(value, key)
        if key == "columns":
            item = {name: collect_fields(column) for name, column in item.items()}
        if isinstance(item, Format):
            item = collect_fields(item)
        if key != "name" and item is not None and item != {} and item != declared.default:
            said[key] = item
    return said
