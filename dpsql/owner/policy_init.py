"""First policies: ``dpsql policy init`` from a source's schema, ``dpsql policy import`` from SmartNoise's metadata.

From a schema, no value is read, neither for bounds nor for groups nor for the number of units, so the text reveals nothing
about a row. But CSV files have no schema. Their types and format are guesses from the first lines, which the owner confirms.
Decisions that only the owner can make are ``"TODO"``; ``dpsql policy check`` requires them.

From SmartNoise's metadata, declarations with a counterpart are carried over: tables, the private identifier or row privacy,
``max_ids``, bounds. Others are reported, never guessed. A cardinality is no list of values, so harmless dimensions need
declared values. Switches that turn protection off (``sample_max_ids``, ``clamp_columns``, ``censor_dims``) are not carried
over. The metadata have no budget, so the caller gives it.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpsql.engine.schemas import TableSchema, read_schemas
from dpsql.engine.sources import simplify_type
from dpsql.errors import PolicyError, did_you_mean
from dpsql.late_dataclass import dataclass
from dpsql.owner.column_checks import find_kind, find_known_bounds
from dpsql.policy.model import Budget, Column, NameMapping, Policy, Table, fold
from dpsql.policy.tables import TEXT_KINDS, ZONED, parse_path
from dpsql.policy.toml import TODO, write_key, write_toml
from dpsql.policy.unit_guess import find_units, list_candidates, names_a_person, names_a_thing
from dpsql.policy.validate import settle_name
from dpsql.privacy.accountants import suggest_delta
from dpsql.privacy.filters import MECHANISM_SHARE
from dpsql.session.result import MissingLibrary

EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
"""The budget of a first policy, a common choice."""
_MARGIN = 40
_INLINE = frozenset(("bounds", "values", "type", "max_length", "time_zone"))

_EXAMPLES = {
    "date": ("bounds = [2020-01-01, 2020-12-31]", "optional: the first and the last that count"),
    "time": ("bounds = [08:00:00, 18:00:00]", "optional: the first and the last that count"),
    "text": (
        'values = ["...", "..."]',
        "if all its values are public, list them, since such groups need no delta",
    ),
}
"""Optional lines by the kind of the column."""
_REST = {"boolean": "; its groups are public"}
_TYPES = '"BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP" ...'


def write_new_file(path: str | Path, text: str) -> Path:
    """Write a policy's text to a file; PolicyError if the file exists, or can't be written."""
    place = Path(path).expanduser()
    try:
        with place.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise PolicyError(
            f"{place} exists already.",
            hint="name another file, or move this one away. One policy can cover several files: dpsql policy init a.csv "
            "b.csv -o policy.toml",
        ) from None
    except OSError:
        raise PolicyError(f"{place} can't be written.", hint="check that its folder exists.") from None
    return place


@dataclass(frozen=True, repr=False)
class PolicyDraft:
    """The text of a first policy, a comment on each line, and its open decisions, such as ``visits.max_rows``."""

    text: str
    open: tuple[str, ...]

    def dump(self, path: str | Path) -> Path:
        """Write the text to a file, which must not exist; PolicyError if it exists, or can't be written."""
        return write_new_file(path, self.text)

    def summary(self, path: str | Path, command: str = "dpsql") -> str:
        """Return one line on the written file: the number of open decisions, and the next command."""
        number = len(self.open)
        todo = (
            f'{number} value{"" if number == 1 else "s"} to decide, marked "{TODO}"'
            if number
            else "confirm its guesses"
        )
        return f"written to {path}: {todo}; then: {command} policy check {path}"

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def init_policy(source: object, unit: str | None = None, output: str | Path | None = None) -> PolicyDraft:
    """Write a first policy of a source from its schema alone; only of CSV files are the first lines read.

    Args:
        source: a Parquet, CSV or JSON file, a glob, or a list of these (each is a table). Or a DuckDB file or connection, a
            pandas, polars or Arrow table (named ``data``), or a mapping of names to such tables.
        unit: the column that identifies the person, or ``"ROW"``; by default it is guessed from the columns' names, and
            marked as a guess.
        output: the file to write, which must not exist; paths in the policy are relative to its folder.

    Returns:
        The text. The owner has to decide each ``"TODO"`` in it; :func:`dpsql.check_policy` lists them.

    Raises:
        PolicyError: the source can't be read or has no such column, or the file exists.

    >>> import pyarrow as pa
    >>> print(init_policy({"visits": pa.table({"patient_id": [1], "amount": [9.5]})}).open)
    ('visits.max_rows', 'visits.amount.bounds')
    """
    base = Path.cwd() if output is None else Path(output).expanduser().absolute().parent
    named = read_schemas(source, base)
    tables = [table for table in named if _has_name(table.name)]
    if not tables:
        raise PolicyError(
            "the source has no table whose name a policy can have.", hint="give a view a plain name."
        )
    row = unit is not None and fold(unit.strip()) == "row"
    units = dict.fromkeys((t.name for t in tables), "ROW") if row else dict(find_units(tables, unit))
    if not units and unit is not None:
        known = [column for table in tables for column in table.columns]
        raise PolicyError(f"no table of the source has a column {unit}.", hint=did_you_mean(unit, known))
    lines = [*_write_head(source, named, tables), *_write_budget()]
    still: list[str] = []
    for table in tables:
        lines += _write_table(table, units.get(table.name), unit is not None, still)
    draft = PolicyDraft("\n".join(lines) + "\n", tuple(still))
    if output is not None:
        draft.dump(output)
    return draft


def _has_name(name: str) -> bool:
    try:
        settle_name("name", name)
    except PolicyError:
        return False
    return True


def _write_head(source: Any, named: Sequence[TableSchema], tables: Sequence[TableSchema]) -> Iterator[str]:
    """Yield the comments at the start of the file."""
    paths = source if isinstance(source, list | tuple) else [source]
    files = all(isinstance(path, str | os.PathLike) for path in paths)
    said = " and ".join(os.path.basename(os.fspath(path)) for path in paths) if files else "tables in memory"
    if any(table.guessed for table in tables):
        yield f"# A first policy for {said}. Types and formats are guesses from the first lines; nothing else was read."
    else:
        yield f"# A first policy for {said}, written from names and types alone: no value was read."
    yield "# A policy is public. Decide from the way the data were made, never from the data."
    yield f'# 1. Replace each "{TODO}". 2. Confirm each GUESS, and delete that word. 3. Run: dpsql policy check policy.toml'
    for name in (table.name for table in named if table not in tables):
        yield f"# Left out: {name!r}, because a policy can't have such a name. Use a view with another name."


def _write_budget() -> Iterator[str]:
    mechanisms = DELTA * MECHANISM_SHARE
    yield from ("", "[budget]")
    risk = "the chance of a worse loss: far less than 1 over the number of people in the data"
    yield _line(
        "epsilon", EPSILON, "the privacy loss of all statements: 1 is common; above 10 protects little"
    )
    yield _line("delta", DELTA, risk)
    yield _line("default_epsilon", EPSILON / 10, "the cost of a statement that names none")
    yield _line("default_delta", suggest_delta(mechanisms), "its delta, which groups with private keys need")
    yield _line("max_epsilon_per_query", EPSILON / 2, "the limit of one statement")


def _line(key: str, value: object, comment: str) -> str:
    return _comment(write_toml({key: value}, _INLINE).strip(), comment)


def _comment(line: str, comment: str) -> str:
    return f"{line:<{_MARGIN}}  # {comment}"


def _write_table(table: TableSchema, unit: str | None, given: bool, still: list[str]) -> Iterator[str]:
    """Yield the lines of one table's section, and add open decisions to ``still``."""
    (head,) = [
        line for line in write_toml({"tables": {table.name: {"x": 1}}}).splitlines() if line.startswith("[")
    ]
    yield from ("", head)
    if table.source is not None:
        yield _line("source", table.source, "relative to this file")
    if table.settings:
        form = write_toml({"format": table.settings}, frozenset(table.settings)).strip()
        yield _comment(form, "GUESS, from the first lines")
    yield from _write_unit(table, unit, given, still)
    yield from _write_columns(table, unit, head, still)


def _write_unit(table: TableSchema, unit: str | None, given: bool, still: list[str]) -> Iterator[str]:
    if unit is None:
        still.append(f"{table.name}.privacy_unit")
        near = ", ".join(list_candidates(table)[:5])
        said = f" ({near}?)" if near else ""
        which = f'the column that identifies the person{said}, or "ROW" if no person has two rows'
        yield _line("privacy_unit", TODO, which)
        yield _comment("# public = true", "instead, if the table has no personal data")
    elif unit == "ROW":
        yield _line(
            "privacy_unit",
            unit,
            "each row is another person's; two rows of one person aren't protected together",
        )
        return
    else:
        guess = "" if given and "->" not in unit else "GUESS, from names: "
        which = f"{guess}all rows with one value are protected together; rows without a value count nowhere"
        yield _line("privacy_unit", unit, which)
    path = parse_path(table.name, unit) if unit else ()
    one = path[-1].column if path else "unit"
    if len(path) == 1 and fold(path[0].column) in table.unique:
        yield _line("max_rows", 1, f"the most rows of one {one} that count: it is a key of the table")
        return
    still += [f"{table.name}.max_rows"]
    yield _line(
        "max_rows",
        TODO,
        f"the most rows of one {one} that count: more has more noise, fewer leaves out more rows",
    )


def _write_columns(table: TableSchema, unit: str | None, head: str, still: list[str]) -> Iterator[str]:
    yield from ("", f"{head[:-1]}.columns]")
    if not table.columns:
        yield '# JSON has no schema; "dpsql policy check" proposes names and types from the rows: correct them'
        return
    path = parse_path(table.name, unit) if unit not in (None, "ROW") else ()
    own = fold(path[0].column) if path else ""
    names = NameMapping(dict.fromkeys(table.columns))
    for name in names:
        write = _write_guessed if table.guessed else _write_column
        line = write(table.name, name, table.columns[name], fold(name) == own, still)
        line += f"; {table.notes[name]}" if name in table.notes else ""
        yield line if line.isprintable() else f"# {name!a}: left out, because its name can't be printed"


def _write_guessed(table: str, name: str, kind: str | None, unit: bool, still: list[str]) -> str:
    """Return the line of a CSV file's column, with its type."""
    sort = find_kind(kind or "")
    if unit:
        return _inline(name, {"type": kind}, "GUESS of its type; the unit can be counted, but never shown")
    if sort == "number" and not names_a_thing(name):
        known = find_known_bounds(name)
        if known is not None:
            line = f'{write_key(name)} = {{ type = "{kind}", bounds = {known[0]} }}'
            return _comment(line, f"GUESS of its type, and from the name: {known[1]}")
        still.append(f"{table}.{name}.bounds")
        said = "GUESS of its type; bounds are [lowest, highest], for sums and means; or delete them"
        return _inline(name, {"type": kind, "bounds": TODO}, said)
    example, said = _EXAMPLES.get(sort, ("", "")) if not names_a_person(name) else ("", "")
    more = f"; {example}: {said}" if example else ""
    return _inline(name, {"type": kind}, f"GUESS of its type{more}")


def _write_column(table: str, name: str, kind: str | None, unit: bool, still: list[str]) -> str:
    if kind is None:
        still.append(f"{table}.{name}.type")
        known = find_known_bounds(name)
        said = f", perhaps with bounds = {known[0]}" if known else ""
        return _inline(name, {"type": TODO}, f"the type of its texts: {_TYPES}{said}")
    sort = find_kind(kind)
    if unit:
        return f"# {name}: {kind}; the privacy unit can be counted, but never shown"
    if sort == "number" and not names_a_thing(name):
        known = find_known_bounds(name)
        if known is not None:
            guess = f"{kind}; GUESS, from the name: {known[1]}"
            return _comment(f"{write_key(name)} = {{ bounds = {known[0]} }}", guess)
        still.append(f"{table}.{name}.bounds")
        return _inline(
            name, {"bounds": TODO}, f"{kind}; [lowest, highest], for sums and means; or delete the line"
        )
    if sort == "number":
        return f"# {name}: {kind}; a key or code, whose sums mean nothing, so it has no bounds"
    if sort in _EXAMPLES and not names_a_person(name):
        example, said = _EXAMPLES[sort]
        if simplify_type(kind) == ZONED:
            example = f'time_zone = "UTC", {example}'
            said = "optional: the zone of its local times, and the first and the last that count"
        return _comment(f"# {write_key(name)} = {{ {example} }}", f"{kind}; {said}")
    return f"# {name}: {kind}{_REST.get(sort, '')}"


def _inline(name: str, value: Mapping[str, object], comment: str) -> str:
    return _comment(write_toml({name: value}, _INLINE).strip(), comment)


_TABLE_KEYS = "rows max_ids row_privacy sample_max_ids censor_dims clamp_counts clamp_columns use_dpsu"
_COLUMN_KEYS = """
    name type private_id is_key lower upper min max nullable missing_value sensitivity cardinality bounded auto_lower
    auto_upper"""
_NUMBERS = ("int", "float", "integer", "number", "decimal")
_METADATA_TYPES = {
    **dict.fromkeys(("int", "integer"), "BIGINT"),
    **dict.fromkeys(("float", "number", "decimal"), "DOUBLE"),
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
    "datetime": "TIMESTAMP",
}


_ALWAYS_ON = {
    "sample_max_ids": "dpsql always leaves out rows over the limit of a unit",
    "clamp_columns": "dpsql always clamps values to their bounds",
    "censor_dims": "dpsql never shows rare private groups; declare the values of harmless columns to see all groups",
}
"""Protections that SmartNoise's metadata may switch off, and dpsql's behaviour."""


@dataclass(frozen=True)
class Imported:
    """A policy, with notes for the owner on the import."""

    policy: Policy
    notes: tuple[str, ...]

    def text(self) -> str:
        """Return TOML with the notes as comments."""
        head = [
            "Made from SmartNoise's metadata. Read it before use: it sets the limits on the privacy loss.",
            *self.notes,
        ]
        return "".join(f"# {line}\n" for line in head) + "\n" + self.policy.dumps()


def import_smartnoise(
    text: str, epsilon: Fraction, delta: Fraction = Fraction(0), sources: Mapping[str, str] | None = None
) -> Imported:
    """Convert SmartNoise's metadata, YAML or JSON.

    Args:
        text: the metadata.
        epsilon, delta: the whole budget, for all analysts.
        sources: the ``source`` of tables by name, a file or a glob.

    Raises:
        MissingLibrary: it is not JSON, and PyYAML is not installed.
        PolicyError: it is no metadata, or has settings that no policy can have.
    """
    root = _read(text)
    notes: list[str] = []
    given = {name.lower(): source for name, source in (sources or {}).items()}
    tables: dict[str, Table] = {}
    found = list(_tables(root, ()))
    plain = [_name(path[-1]) for path, _ in found]
    for path, node in found:
        name = _name(path[-1])
        if plain.count(name) > 1:
            name = "_".join(_name(part) for part in path[-2:] if part)
        table = _table(name, path, node, given.pop(name.lower(), None), notes)
        if table is not None:
            tables[name] = table
    if given:
        raise PolicyError(
            f"the metadata have no table {next(iter(given))}.", hint=did_you_mean(next(iter(given)), tables)
        )
    if not tables:
        if not found:
            raise _make_refusal()
        raise PolicyError(
            "the metadata have no table with a privacy unit.",
            hint="each table needs a column with private_id: True, or row_privacy: True.",
        )
    return Imported(Policy(Budget(epsilon, delta), tables), tuple(notes))


def _read(text: str) -> Mapping[str, object]:
    try:
        root = json.loads(text)
    except json.JSONDecodeError:
        try:
            yaml = importlib.import_module("yaml")
        except ImportError:
            raise MissingLibrary("PyYAML", "dpsql policy import") from None
        try:
            root = yaml.safe_load(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f" (line {mark.line + 1})" if mark is not None else ""
            raise PolicyError(f"the metadata are not YAML{where}.") from None
    if not isinstance(root, Mapping):
        raise _make_refusal()
    return root


def _make_refusal() -> PolicyError:
    return PolicyError(
        "these are not metadata of SmartNoise.",
        hint="nest database, schema, table and column; each column has a type.",
    )


def _check_keys(given: Iterable[object], keys: str, where: str, what: str) -> None:
    known = keys.split()
    for key in given:
        if key not in known:
            raise PolicyError(
                f"the {where} has an {what} {key}, which SmartNoise does not have.",
                hint=did_you_mean(str(key), known),
            )


def _tables(
    node: Mapping[str, object], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, object]]]:
    """Yield tables at any depth: nodes with columns, which are nodes with a type."""
    children = {str(key): value for key, value in node.items() if isinstance(value, Mapping)}
    if path and any("type" in child for child in children.values()):
        yield path, node
        return
    for key, child in children.items():
        yield from _tables(child, (*path, key))


def _name(written: str) -> str:
    """Return a table's name as a policy can have it."""
    return re.sub(r"\W", "_", _bare(written), flags=re.ASCII)


def _bare(written: str) -> str:
    """Return a name without the quotes of any engine."""
    for left, right in ('""', "``", "[]"):
        if len(written) > 1 and written[0] == left and written[-1] == right:
            return written[1:-1]
    return written


def _type(source: str | None, item: Mapping[str, object]) -> str | None:
    """Return the type of a column if the source is text; None for sources with types."""
    text = source is not None and source.lower().endswith(tuple(TEXT_KINDS))
    return _METADATA_TYPES.get(str(item.get("type", "")).lower()) if text else None


def _table(
    name: str, path: tuple[str, ...], node: Mapping[str, object], source: str | None, notes: list[str]
) -> Table | None:
    options = {key: value for key, value in node.items() if not isinstance(value, Mapping)}
    _check_keys(options, _TABLE_KEYS, f"table {path[-1]}", "option")
    columns: dict[str, Column] = {}
    units = []
    for key, item in node.items():
        if not isinstance(item, Mapping):
            continue
        column = _bare(str(item.get("name") or key))
        kind = _type(source, item)
        if kind is not None:
            columns[column] = Column(type=kind)
        if item.get("private_id") or item.get("is_key"):
            units.append(column)
            continue
        bounds = _bounds(f"{name}.{column}", item, notes)
        if bounds is not None:
            columns[column] = Column(bounds=bounds, type=kind)
    for option, said in _ALWAYS_ON.items():
        if options.get(option) is False:
            notes.append(f"{name}: {option} = False is not carried over: {said}.")
    if options.get("clamp_counts"):
        notes.append(
            f"{name}: clamp_counts is not carried over; a query can write GREATEST(COUNT(*), 0), at no cost."
        )
    rows = options.get("max_ids", 1)
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise PolicyError(f"max_ids of the table {path[-1]} must be a whole number above 0.")
    own = _bare(path[-1])
    if source is None and name != own:  # not a plain name, or one that two schemas have
        source = own if name == _name(own) else f"{_bare(path[-2])}.{own}"
        notes.append(f"{name}: the table {source} of the database.")
    if options.get("row_privacy"):
        if rows != 1:
            raise PolicyError(f"the table {path[-1]} has row_privacy, so its max_ids is 1.")
        return Table(name, source=source, privacy_unit="ROW", columns=columns)
    if not units:
        notes.append(f"{name}: left out, because it has neither a private_id nor row_privacy.")
        return None
    if len(units) > 1:
        raise PolicyError(
            f"the table {path[-1]} has {len(units)} private identifiers: {', '.join(units)}.",
            hint="combine them in one column of the data, because a policy names one.",
        )
    if rows > 1:
        notes.append(f"{name}: max_ids = {rows} becomes max_rows = {rows}; both limit a unit's rows in all.")
    return Table(name, source=source, privacy_unit=units[0], max_rows=rows, columns=columns)


def _bounds(where: str, item: Mapping[str, object], notes: list[str]) -> tuple[Any, Any] | None:
    _check_keys(item, _COLUMN_KEYS, f"column {where}", "attribute")
    kind = str(item.get("type", "")).lower()
    for key, said in (
        (
            "cardinality",
            f" = {item.get('cardinality')} is not carried over; values = [...] make its groups public.",
        ),
        ("sensitivity", " is not carried over; dpsql derives it from the bounds."),
        ("missing_value", f" is not carried over; a query can write COALESCE({where.split('.')[-1]}, ...)."),
    ):
        if item.get(key) is not None:
            notes.append(f"{where}: {key}{said}")
    low, high = (item.get(a, item.get(b)) for a, b in (("lower", "min"), ("upper", "max")))
    if (low is None) != (high is None):
        notes.append(f"{where}: one bound alone is not carried over; sums need both.")
    if low is None or high is None:
        if kind in _NUMBERS and low is high:
            notes.append(f"{where}: no bounds; sums and means must give their own.")
        return None
    if isinstance(low, bool | str) or isinstance(high, bool | str):
        raise PolicyError(f"the bounds of {where} are not numbers.", hint="lower: 0 and upper: 100")
    return low, high
