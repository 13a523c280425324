"""The checks of ``dpsql policy check`` that read rows.

If neither the source nor the policy has types, they are proposed from the rows, and for a CSV file a format from the first
lines. Once the owner declares them, no row decides them. Values of text files that would be NULL are sought in a sample, or
with ``--data`` in all rows. Whether a text file's first records can be used is checked here, since sessions don't.

``--data`` adds exact counts of the rows that the policy leaves out or changes. They are not private, and must not be
published: a policy chosen by them reveals a little about the data. They show mistakes, such as a bound in another unit of
measure or a cap that leaves out most rows.

The module stands apart from ``policy_check.py``, which reads no row.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpsql.binding.relations.unit_rows import RowCaps
from dpsql.engine.base import find_files
from dpsql.engine.duckdb import DuckDBEngine
from dpsql.engine.proposals import (
    SAMPLE_ROWS,
    TextProposal,
    count_losses,
    propose_format,
    propose_object_types,
    propose_types,
)
from dpsql.engine.sandbox import quote_identifier, quote_literal
from dpsql.engine.sources import describe_file, find_bad_columns
from dpsql.engine.text_sources import (
    READ_ERRORS,
    describe_records,
    read_first_record,
    reads_columns,
    show_headings,
)
from dpsql.errors import PolicyError
from dpsql.late_dataclass import dataclass
from dpsql.owner.column_checks import Findings, find_kind, find_known_bounds, suggest_name
from dpsql.policy.model import (
    Column,
    Format,
    NameMapping,
    Policy,
    Table,
    list_mentioned,
    list_types,
    list_untyped,
    write_columns,
)
from dpsql.policy.toml import write_toml
from dpsql.policy.validate import write_bound

# -- types and formats ------------------------------------------------------------------------------------------------


def describe_missing_column(error: PolicyError, declared: Policy, base: Path, said: list[str]) -> list[str]:
    """Return sentences on a text file's missing column, with the file's names; none for other errors or columns ``said``."""
    table = declared.tables.get(error.keys[1]) if error.keys[:1] == ("tables",) and error.keys[2:3] else None
    if table is None or table.text is None:
        return []
    headings = show_headings(table, list_types(declared, table), find_files(table, base))
    named = any(
        line.startswith(f"{table.name}.{error.keys[-1]} is in the policy but not in ") for line in said
    )
    return headings if named else [error.message, *headings]


def check_records(table: Table, base: Path, findings: Findings) -> None:
    """Report first records of a text source that can't be used; ``base`` is the folder of its files."""
    if table.text is not None:
        said = describe_records(table, find_files(table, base))
        findings.missing += [f"{table.name}: {line}" for line in said]


def propose_missing_types(policy: Policy, base: Path, data: Any, findings: Findings, rows: bool) -> Policy:
    """Return the policy with proposals for missing types, so that the rest can be checked."""
    tables = {}
    for name, table in policy.tables.items():
        tables[name] = table
        if table.text is None and not table.several:
            frame = NameMapping(data).get(table.source or name) if isinstance(data, Mapping) else None
            kinds = {} if frame is None else propose_object_types(name, frame)
            untyped = {c: k for c, k in kinds.items() if c not in table.columns or not table.columns[c].type}
            if untyped:
                findings.missing.append(f"{name}: the types of its columns of Python objects.")
                tables[name] = _propose_types(table, untyped, findings)
            continue
        try:
            files = find_files(table, base)
        except PolicyError:
            continue  # the engine reports it
        _check_format(table, files, findings)
        found = _propose_format(policy, table, files, findings)
        tables[name] = table = table if found is None else found[0]
        there = NameMapping(propose_types(table, files) if found is None else found[1].types)
        named = table.text == "json" or table.format is None or table.format.header
        for column in list_mentioned(policy, table) if there and named else ():
            if column not in there:
                findings.missing.append(
                    f"{name}.{column} is in the policy but not in {table.source}. {suggest_name(column, there)}"
                )
        spoken = NameMapping(dict.fromkeys((*table.columns, *list_mentioned(policy, table))))
        unnamed = [column for column in there if column not in spoken] if there and named else []
        if unnamed and any(column.type for column in table.columns.values()):
            findings.advice.append(
                f"{name}: {', '.join(unnamed)}: in {table.source} but not in the policy, so statements can't use it."
            )
        missing = list_untyped(policy, table)
        if not missing and any(column.type for column in table.columns.values()):
            _check_losses(policy, table, files, there, findings, rows)
            continue
        kinds = {column: there.get(column, "VARCHAR") for column in missing}
        spoken = NameMapping({**table.columns, **dict.fromkeys(missing)})
        kinds |= {column: kind for column, kind in there.items() if column not in spoken}
        kinds = kinds or {"column": "VARCHAR"}
        findings.missing.append(f"{name}: the types of its columns, because {table.source} has none.")
        notes = {} if found is None else found[1].notes
        findings.advice += [f"{name}.{column}: {note}." for column, note in notes.items() if column in kinds]
        tables[name] = _propose_types(table, kinds, findings)
    return replace(policy, tables=tables)


def _propose_format(
    policy: Policy, table: Table, files: list[str], findings: Findings
) -> tuple[Table, TextProposal] | None:
    """Return a CSV table and its proposal, with the proposed format if its own does not read it; None for other tables."""
    if table.text in (None, "json"):
        return None
    proposal = propose_format(table, files, list_mentioned(policy, table))
    if proposal is None or not proposal.settings:
        return None if proposal is None else (table, proposal)
    types = {name: column.type for name, column in table.columns.items() if column.type is not None}
    if types and not list_untyped(policy, table) and reads_columns(table, types, files):
        losses = count_losses(table, files, types)
        better = count_losses(replace(table, format=proposal.form), files, types)
        if losses is None or better is None or losses.weight <= better.weight:
            return table, proposal
    if table.format is None:
        findings.edits["tables", table.name, "format"] = proposal.settings
    else:
        for key, value in proposal.settings.items():
            findings.edits["tables", table.name, "format", key] = value
    settings = proposal.form.collect()
    findings.types += write_toml({"tables": {table.name: {"format": settings}}}).splitlines()
    findings.missing.append(f"{table.name}: its format, as the first lines of {table.source} show.")
    return replace(table, format=proposal.form), proposal


def _check_losses(
    policy: Policy, table: Table, files: list[str], there: Mapping[str, str], findings: Findings, rows: bool
) -> None:
    """Report values of a text source that are NULL under its declared types, and propose better ones."""
    if table.text is None:
        return
    types = list_types(policy, table)
    losses = count_losses(table, files, types, None if rows else SAMPLE_ROWS)
    if losses is None:
        return  # the engine reports it
    which = f"all rows of {table.source}" if rows else f"the first {SAMPLE_ROWS:,} rows of {table.source}"
    findings.sampled.append(which)
    if losses.unread:
        findings.lost = True
        much = losses.unread * 4 >= losses.rows
        share = "none" if losses.unread == losses.rows else "at least a quarter" if much else "some"
        here = which.replace("all rows", "the rows", 1) if share == "none" else which
        if table.text == "json":
            why = "is a JSON object" if share == "none" else "are no JSON objects"
        else:
            can = "can" if share == "none" else "can't"
            why = f"{can} be read, since their fields or quotes don't fit the format"
        (findings.missing if much else findings.advice).append(
            f"{table.name}: {share} of {here} {why}: all their values are NULL."
        )
    better = {}
    for name, (lost, values) in losses.lost.items():
        findings.lost = True
        kind, proposed = types[name], there.get(name, "VARCHAR")
        if lost * 4 < values:
            findings.advice.append(
                f"{table.name}.{name}: some values in {which} do not fit {kind}, and are NULL."
            )
            continue
        findings.missing.append(
            f"{table.name}.{name}: at least a quarter of its values in {which} do not fit {kind}, and are NULL."
        )
        better[name] = "VARCHAR" if proposed == kind else proposed
    if better:
        _propose_types(table, better, findings)


def _propose_types(table: Table, kinds: Mapping[str, str], findings: Findings) -> Table:
    """Record proposed types, and known bounds of numbers, and return the table with them."""
    bounded = _bound_known(table, kinds)
    table = replace(table, columns={**table.columns, **bounded})
    findings.types += write_columns(table, kinds)
    typed = {
        c: replace(table.columns[c] if c in table.columns else Column(), type=k) for c, k in kinds.items()
    }
    for name, column in typed.items():
        place = ("tables", table.name, "columns", name)
        findings.edits[*place, "type"] = column.type
        if column.bounds is not None and name in bounded:
            findings.edits[*place, "bounds"] = list(column.bounds)
    return replace(table, columns={**table.columns, **typed})


def _bound_known(table: Table, kinds: Mapping[str, str]) -> dict[str, Column]:
    """Return undeclared columns of numbers with bounds that are public knowledge."""
    made = {}
    for name, kind in kinds.items():
        column = table.columns[name] if name in table.columns else Column()
        known = find_known_bounds(name)
        if known and find_kind(kind) == "number" and column.bounds is None and column.values is None:
            low, high = json.loads(known[0])
            made[name] = replace(column, bounds=(Fraction(low), Fraction(high)))
    return made


def _check_format(table: Table, files: list[str], findings: Findings) -> None:
    """Report risks of a text source's format."""
    form = table.format or Format()
    if form.quoted_newlines:
        findings.advice.append(
            f"{table.name}: quoted_newlines: one stray quote, and so one person's row, changes the rows after it. "
            "Write the file without newlines in its fields, if you can."
        )
    if form.records == "array":
        findings.advice.append(
            f'{table.name}: records = "array": one bad record, and so one person\'s, ends the file. '
            "Write one object on each line, if you can."
        )
    elif table.text == "json":
        try:
            starts = [(read_first_record(path, form) or "").lstrip().startswith("[") for path in files]
        except READ_ERRORS:
            return
        if any(starts):
            findings.missing.append(
                f"{table.name}: {table.source} looks like one array, each line of which would be a row of NULLs. "
                'Write one object on each line, or declare format = { records = "array" }.'
            )


# -- exact counts -----------------------------------------------------------------------------------------------------

_CAPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
"""Caps on the rows of a unit; the six largest that some unit exceeds are compared with the declared one."""


def count_rows(
    engine: DuckDBEngine, table: Table, schema: Mapping[str, str], policy: Policy, base: Path
) -> Iterator[str]:
    """Yield sentences with the exact counts of a table; ``base`` is the folder of its files."""
    yield from _count_units(engine, table, schema, policy)
    yield from _count_misfits(engine, table, schema, policy.tables)
    if table.file:
        yield from _count_unreadable(engine, table, find_files(table, base))


def _count_units(
    engine: DuckDBEngine, table: Table, schema: Mapping[str, str], policy: Policy
) -> Iterator[str]:
    """Yield the number of units of a table that contains the unit's column."""
    path = table.unit_path
    if table.public or len(path) > 1 or (path and path[0].column not in NameMapping(schema)):
        return
    what = f"COUNT(DISTINCT {quote_identifier(path[0].column)})" if path else "COUNT(*)"
    count = engine.execute(f"SELECT {what} AS n FROM {engine.relation(table)}").to_pylist()[0]["n"]
    risk = policy.budget.delta * count
    much = "; write a smaller delta, because this is high" if risk > Fraction(1, 10) else ""
    yield f"{table.name}: {count:,} units; delta times that is {float(risk):.2g}{much}"


def _count_unreadable(engine: DuckDBEngine, table: Table, files: list[str]) -> Iterator[str]:
    """Yield the numbers of rows and values of a file that can't be read."""
    relation, columns = engine.relation(table), list(engine.schema(table))
    quoted = [quote_identifier(name) for name in columns]
    nulls = " AND ".join(f"{name} IS NULL" for name in quoted)
    counts = ", ".join(f"COUNT(*) - COUNT({name}) AS c{i}" for i, name in enumerate(quoted))
    wanted = f"COUNT(*) AS n, COUNT(*) FILTER (WHERE {nulls}) AS bad, {counts}"
    (row,) = engine.execute(f"SELECT {wanted} FROM {relation}").to_pylist()
    total, bad, *empty = row.values()
    yield f"{table.name}: {total} rows, {bad} of them with no value at all"
    for name, count in zip(columns, empty, strict=True):
        if count:
            yield f"{table.name}.{name}: {count} are NULL or do not fit"
    if table.text is None:
        for path in files:
            bad = find_bad_columns(path, describe_file(path))
            if bad:
                yield f"{Path(path).name}: values that can't be read in {', '.join(bad)}"


def _count_misfits(
    engine: DuckDBEngine, table: Table, schema: Mapping[str, str], tables: Mapping[str, Table]
) -> Iterator[str]:
    """Yield sentences on a private table's rows that never count or count as another value; ``tables``: all of the policy."""
    if table.public:
        return
    unit = table.unit_path[0].column if table.unit_path else None
    if unit is not None and unit in NameMapping(schema):
        yield from _count_without_unit(engine, table, unit)
        if table.period is None:
            yield from _count_capped(engine, _Units.of(engine, table, tables), table)
        else:
            yield f"{table.name}: rows of one unit are not counted, because a period divides the units"
    yield from _count_outside(engine, table, schema)


def _count_without_unit(engine: DuckDBEngine, table: Table, unit: str) -> Iterator[str]:
    (none, rows) = _ask(engine, table, f"COUNT(*) FILTER (WHERE {quote_identifier(unit)} IS NULL), COUNT(*)")
    if none:
        yield f"{table.name}: {_share(none, rows)} have no {unit}: they are in no answer"


@dataclass(frozen=True)
class _Units:
    """A FROM item with the rows of a table, and the SQL expression of their unit."""

    rows: str
    unit: str

    @classmethod
    def of(cls, engine: DuckDBEngine, table: Table, tables: Mapping[str, Table]) -> _Units:
        """Join the tables on the path to the unit as statements do, with one row for each key."""
        text = f"{engine.relation(table)} AS rows"
        unit = f"rows.{quote_identifier(table.unit_path[0].column)}"
        named = NameMapping(tables)
        for place, hop in enumerate(table.unit_path[1:]):
            key, column = quote_identifier(hop.key), quote_identifier(hop.column)
            found = f"SELECT {key} AS k, MIN({column}) AS v FROM {engine.relation(named[hop.table])} GROUP BY {key}"
            text += f" LEFT JOIN ({found}) AS hop{place} ON hop{place}.k = {unit}"
            unit = f"hop{place}.v"
        return cls(text, unit)


def _count_capped(engine: DuckDBEngine, units_of: _Units, table: Table) -> Iterator[str]:
    """Count the rows that caps leave out, in all and in groups of declared values, with the noise under these caps."""
    unit = units_of.unit
    of_units = f"(SELECT COUNT(*) AS n FROM {units_of.rows} WHERE {unit} IS NOT NULL GROUP BY {unit})"
    key, cap = "max_rows", table.max_rows
    if cap is None:
        key, cap = "max_rows_per_group", table.max_rows_per_group
    caps = sorted({*_CAPS, *([] if cap is None else [cap])})
    sums = ", ".join(f"COUNT(*) FILTER (WHERE n > {c}), SUM(GREATEST(n - {c}, 0))" for c in caps)
    units, rows, *found = _read(engine, f"SELECT COUNT(*), SUM(n), {sums} FROM {of_units}")
    if not rows:
        return
    above = dict(zip(caps, zip(found[::2], found[1::2], strict=True), strict=True))
    if cap is not None:
        yield (
            f"{table.name}: {above[cap][0]:,} of {units:,} units have more than {key} = {cap} rows; without groups "
            f"{_share(above[cap][1], rows)} are left out, and a count has {_describe_noise(cap)}"
        )
    others = [c for c in caps if c != cap and above[c][0]][-6:]
    if others:
        told = "; ".join(
            f"{_percent(above[c][1], rows)} above {c:,}, with {_describe_noise(c)}" for c in others
        )
        yield f"{table.name}: rows that other caps would leave out without groups, and their noise: {told}"
    for column, declared in table.columns.items():
        if declared.values is not None and (table.max_rows is not None or table.max_groups is not None):
            yield from _count_grouped(engine, units_of, table, column, declared)


def _describe_noise(rows: int) -> str:
    """Return the noise of a count that one unit changes by at most ``rows``, at epsilon 1."""
    return f"noise of about ±{3 * rows:,} at ε=1"  # 95 % of Laplace noise is within 3 times its scale


def _count_grouped(
    engine: DuckDBEngine, units_of: _Units, table: Table, column: str, declared: Column
) -> Iterator[str]:
    """Count the rows that caps leave out if a column's declared values are the groups."""
    caps = RowCaps(table.max_rows, table.max_rows_per_group, table.max_groups)
    if caps.total is None or caps.each is None:
        return
    key, unit = f"rows.{quote_identifier(column)}", units_of.unit
    wanted = f"{unit} IS NOT NULL AND {_write_among(key, declared)}"
    cells = f"(SELECT {unit} AS u, COUNT(*) AS n FROM {units_of.rows} WHERE {wanted} GROUP BY {unit}, {key})"
    sums = f"COUNT(*) AS g, SUM(n) AS n, LEAST(SUM(LEAST(n, {caps.each})), {caps.total}) AS kept"
    units = f"(SELECT {sums} FROM {cells} GROUP BY u)"
    more = "0" if caps.groups is None else f"COUNT(*) FILTER (WHERE g > {caps.groups})"
    count, many, total, kept = _read(engine, f"SELECT COUNT(*), {more}, SUM(n), SUM(kept) FROM {units}")
    if not total:
        return
    several = ""
    if caps.groups is not None:
        several = f"{many:,} of {count:,} units are in more than max_groups = {caps.groups} groups; "
    yield (
        f"{table.name} by {column}: {several}{_share(total - kept, total)} are left out under all caps together, and a count has "
        f"{_describe_noise(caps.total)}"
    )


def _count_outside(engine: DuckDBEngine, table: Table, schema: Mapping[str, str]) -> Iterator[str]:
    """Count values outside of the bounds, and undeclared values; NULLs are neither."""
    kinds = NameMapping(schema)
    for name, column in table.columns.items():
        if name not in kinds:
            continue
        key = quote_identifier(name)
        if column.time_zone is not None:
            key = f"TRY(timezone({quote_literal(column.time_zone)}, {key}))"
        if column.bounds is not None:
            test = _write_outside(key, find_kind(kinds[name]), column)
            low, high = map(write_bound, column.bounds)
            told = f"are outside of {low} to {high}, and count as the nearest bound"
        elif column.values is not None:
            test = f"NOT {_write_among(key, column)}"
            told = "are not among the declared values, and in no public group"
        else:
            continue
        many, rows = _ask(
            engine, table, f"COUNT(*) FILTER (WHERE {key} IS NOT NULL AND {test}), COUNT({key})"
        )
        if many:
            yield f"{table.name}.{name}: {_share(many, rows, 'values')} {told}"


def _write_outside(key: str, kind: str, column: Column) -> str:
    assert column.bounds is not None
    number = f"epoch({key})" if kind in ("date", "time", "interval") else f"CAST({key} AS DOUBLE)"
    low, high = (float(end) for end in column.bounds)
    return f"({number} < {low!r} OR {number} > {high!r})"


def _write_among(key: str, column: Column) -> str:
    assert column.values is not None
    listed = ", ".join(quote_literal(_write_value(value)) for value in column.values)
    return f"COALESCE(CAST({key} AS VARCHAR) IN ({listed}), FALSE)"


def _write_value(value: object) -> str:
    """Return a value as the engine casts it to text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)


def _ask(engine: DuckDBEngine, table: Table, items: str) -> list[int]:
    return _read(engine, f"SELECT {items} FROM {engine.relation(table)}")


def _read(engine: DuckDBEngine, sql: str) -> list[int]:
    found = engine.execute(sql).columns
    return [int(column[0].as_py() or 0) for column in found]


def _share(part: int, whole: int, what: str = "rows") -> str:
    return f"{part:,} of {whole:,} {what} ({_percent(part, whole)})"


def _percent(part: int, whole: int) -> str:
    """Return a share in per cent; 0 and 100 only if exact.

    >>> [_percent(part, 1000000) for part in (0, 1, 7000, 123456, 999999, 1000000)]
    ['0%', '<0.1%', '0.7%', '12.3%', '>99.9%', '100%']
    """
    share = 100 * part / whole if whole else 0.0
    if 0 < share < 0.1:
        return "<0.1%"
    if 99.9 < share < 100:
        return ">99.9%"
    return f"{share:.1f}".removesuffix(".0") + "%"
