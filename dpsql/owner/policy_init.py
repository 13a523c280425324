"""The command ``dpsql policy init``: a first policy, written from a source's schema alone.

No value is read, neither for bounds nor for groups nor for the number of units, so the text reveals nothing about a row. But
CSV files have no schema. Their types and format are guesses from the first lines, which the owner confirms.
Decisions that only the owner can make are ``"TODO"``; ``dpsql policy check`` requires them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpsql.engine.schemas import TableSchema, read_schemas
from dpsql.engine.sources import simplify_type
from dpsql.errors import PolicyError, did_you_mean
from dpsql.late_dataclass import dataclass
from dpsql.owner.column_checks import find_kind, find_known_bounds
from dpsql.policy.model import NameMapping, fold
from dpsql.policy.tables import ZONED, parse_path
from dpsql.policy.toml import TODO, write_toml
from dpsql.policy.unit_guess import find_units, list_candidates, names_a_person, names_a_thing
from dpsql.policy.validate import settle_name
from dpsql.privacy.accountants import suggest_delta
from dpsql.privacy.filters import MECHANISM_SHARE

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


@dataclass(frozen=True, repr=False)
class PolicyDraft:
    """The text of a first policy.

    Args:
        text: TOML with a comment on each line.
        open: the open decisions, such as ``visits.max_rows``.
    """

    text: str
    open: tuple[str, ...]

    def dump(self, path: str | Path) -> Path:
        """Write the text to a file, which must not exist.

        Raises:
            PolicyError: it exists, or can't be written.
        """
        place = Path(path).expanduser()
        try:
            with place.open("x", encoding="utf-8") as file:
                file.write(self.text)
        except FileExistsError:
            raise PolicyError(
                f"{place} exists already.",
                hint="name another file, or move this one away. One policy can cover several files: dpsql policy init a.csv "
                "b.csv -o policy.toml",
            ) from None
        except OSError:
            raise PolicyError(f"{place} can't be written.", hint="check that its folder exists.") from None
        return place

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
            line = f'{_key(name)} = {{ type = "{kind}", bounds = {known[0]} }}'
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
            return _comment(f"{_key(name)} = {{ bounds = {known[0]} }}", guess)
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
        return _comment(f"# {_key(name)} = {{ {example} }}", f"{kind}; {said}")
    return f"# {name}: {kind}{_REST.get(sort, '')}"


def _key(name: str) -> str:
    return write_toml({name: 1}).partition(" = ")[0]


def _inline(name: str, value: Mapping[str, object], comment: str) -> str:
    return _comment(write_toml({name: value}, _INLINE).strip(), comment)
