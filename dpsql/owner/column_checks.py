"""Checks of a policy's columns and periods against their types, and of its delta against the possible number of units.

Each finding names the error and proposes the line to write. None reads a row.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from decimal import Decimal
from fractions import Fraction
from typing import Any

from dpsql.errors import did_you_mean
from dpsql.late_dataclass import dataclass
from dpsql.numerics.exact_numbers import round_significant, write_number
from dpsql.policy.model import Column, NameMapping, Policy, Table
from dpsql.policy.tables import ZONED
from dpsql.policy.toml import write_toml
from dpsql.policy.unit_guess import names_a_thing
from dpsql.policy.validate import DateBound, write_bound

KNOWN_BOUNDS = (
    (r"age(_years)?|years_old", "[0, 120]", "no one is older"),
    (r"month", "[1, 12]", "months"),
    (r"day(_of_month)?", "[1, 31]", "days of a month"),
    (r"weekday|day_of_week", "[0, 7]", "days of a week"),
    (r"hour(_of_day)?", "[0, 24]", "hours of a day"),
    (r"minute|second", "[0, 60]", "a clock's"),
    (r"lat(itude)?", "[-90, 90]", "degrees of latitude"),
    (r"lon(gitude)?|lng", "[-180, 180]", "degrees of longitude"),
    (r".*(percent|percentage|pct)", "[0, 100]", "percent"),
    (r"(share|fraction|probability|proportion)(_.*)?", "[0, 1]", "a part of a whole"),
)
"""Bounds that are public knowledge: a pattern of the whole name, the bounds, and the reason."""

RECKLESS = Fraction(1, 10**5)
"""The delta above which the owner is warned if the number of units is unknown."""

_INTEGERS = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?$")
_NUMBERS = re.compile(r"FLOAT$|DOUBLE$|REAL$|DECIMAL|NUMERIC|BIGNUM$|VARINT$")
_UNITS_OF = {"BOOLEAN": 2, "TINYINT": 256, "UTINYINT": 256, "SMALLINT": 65_536, "USMALLINT": 65_536}
_FITTING = {
    "number": "numbers",
    "date": "dates",
    "time": "times",
    "text": "text",
    "boolean": "booleans",
    "interval": "numbers of seconds",
}
"""The form of a column's values, and of the ends of its bounds, by its kind."""


@dataclass(repr=False)
class Findings:
    """The findings of a check: ``missing`` has the errors, ``advice``, ``budget`` and ``proposals`` are optional.

    ``types`` are proposed lines, and ``edits`` their values by key. ``sampled`` names the rows in which values that would be
    NULL were sought, and ``lost`` is whether there were any.
    """

    declared: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    budget: list[str] = field(default_factory=list)
    proposals: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    counted: list[str] = field(default_factory=list)
    edits: dict[tuple[str, ...], Any] = field(default_factory=dict)
    sampled: list[str] = field(default_factory=list)
    lost: bool = False

    def lines(self) -> list[str]:
        """Return the findings as lines of text."""
        lines = list(self.declared)
        for title, said in (("Missing:", self.missing), ("To consider:", self.advice)):
            if said:
                lines += ["", title, *(f"  - {line}" for line in said)]
        if self.types:
            title = "Types, proposed from the rows. Correct them if necessary, use --write, or replace the lines and paste:"
            lines += ["", title, ""]
            lines += [f"    {line}" for line in self.types]
        proposed = [*(["[budget]"] if self.budget else []), *self.budget, *self.proposals]
        if proposed:
            lines += [
                "",
                "You could declare these values, which are public knowledge and no row decides:",
                "",
            ]
            lines += [f"    {line}" for line in proposed]
        if not self.missing:
            lines += ["", self._conclude()]
        if self.counted:
            lines += ["", "Exact counts, which must not be published:"]
            lines += [f"  - {line}" for line in self.counted]
        return lines

    def _conclude(self) -> str:
        """Return the last line of a check that found nothing missing in the policy."""
        if self.lost:
            return "All is declared, but some values are read as NULL: see above."
        if self.sampled:
            return f"Nothing is missing, as far as {' and '.join(self.sampled)} show."
        return "Nothing is missing. Nothing above depends on a row."

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__


def find_known_bounds(name: str) -> tuple[str, str] | None:
    """Return publicly known bounds of a column with that name, and the reason; None if there are none.

    >>> find_known_bounds("Age"), find_known_bounds("amount")
    (('[0, 120]', 'no one is older'), None)
    """
    return next(
        ((bounds, why) for pattern, bounds, why in KNOWN_BOUNDS if re.fullmatch(pattern, name, re.I)), None
    )


def find_kind(kind: str) -> str:
    """Return the kind of a type: number, date, time, interval, text, boolean, or other.

    >>> [find_kind(kind) for kind in ("DECIMAL(10,2)", "TIMESTAMP_NS", "VARCHAR", "INTEGER[]")]
    ['number', 'date', 'text', 'other']
    """
    kind = kind.upper()
    if kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION")):
        return "other"
    if _INTEGERS.match(kind) or _NUMBERS.match(kind):
        return "number"
    if kind.startswith(("DATE", "TIMESTAMP")):
        return "date"
    plain = {"TIME": "time", "INTERVAL": "interval", "VARCHAR": "text", "BOOLEAN": "boolean"}
    return plain.get(kind, "text" if kind.startswith("ENUM") else "other")


def check_columns(table: Table, schema: Mapping[str, str]) -> Iterator[str]:
    """Yield findings on bounds and values that do not fit their column's type, with a line to write."""
    kinds = NameMapping(schema)
    for name, column in table.columns.items():
        if name not in kinds:
            continue
        kind = kinds[name]
        found = (*_check_zone(column, kind), *_check_bounds(column, kind), *_check_values(column, kind))
        for wrong, better in found:
            line = write_toml({name: better}, frozenset(Column.__dataclass_fields__)).strip()
            at_fault = wrong.partition(" ")[0]
            proposed = f"Write {line}" if better.get(at_fault) else f"Remove {at_fault}."
            yield f"{table.name}.{name}: {wrong} {proposed}"


def _check_zone(column: Column, kind: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield errors of a column's time zone, with a better declaration."""
    given = column.collect()
    if column.time_zone is not None and kind != ZONED:
        better = {key: value for key, value in given.items() if key != "time_zone"}
        yield f"time_zone is for {ZONED}, but its type is {kind}.", better
    elif column.time_zone is None and kind == ZONED and (column.bounds or column.values):
        said = "bounds" if column.bounds else "values"
        yield (
            f"{said} are local times, and need a time_zone: its type is {kind}.",
            {"time_zone": "UTC", **given},
        )


def _check_bounds(column: Column, kind: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield errors of a column's bounds, with a better declaration."""
    if column.bounds is None:
        return
    sort, rest = find_kind(kind), {k: v for k, v in column.collect().items() if k != "bounds"}
    low, high = column.bounds
    given = f"{low.kind}s" if isinstance(low, DateBound) else "numbers"
    if sort in ("text", "boolean", "other"):
        yield f"bounds are for numbers, dates and times, but its type is {kind}.", rest
    elif given != _FITTING[sort].partition(" ")[0]:
        bounds = _EXAMPLES.get(sort)
        yield f"bounds are {given}, but its type is {kind}.", {**rest, "bounds": bounds} if bounds else rest
    elif low == high:
        yield (
            f"bounds are equal, so each value counts as {write_bound(low)}, and sums are only counts.",
            {**rest, "bounds": _widen(low, high)},
        )


_EXAMPLES = {
    "date": (DateBound(datetime.date(2020, 1, 1)), DateBound(datetime.date(2020, 12, 31))),
    "time": (DateBound(datetime.time(8)), DateBound(datetime.time(18))),
    "number": (Fraction(0), Fraction(100)),
    "interval": (Fraction(0), Fraction(3600)),
}


def _widen(low: Fraction, high: Fraction) -> tuple[Fraction, Fraction]:
    """Return example bounds from or to 0, given equal bounds."""
    if isinstance(low, DateBound):
        return _EXAMPLES[low.kind]
    return (Fraction(0), high) if high > 0 else (low, Fraction(0)) if low < 0 else (Fraction(0), Fraction(1))


def _check_values(column: Column, kind: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield errors of a column's values, with a better declaration."""
    if column.values is None:
        return
    sort, first = find_kind(kind), column.values[0]
    rest = {k: v for k, v in column.collect().items() if k != "values"}
    given = _name_kind(first)
    if sort == "other":
        yield f"values can't be listed for the type {kind}.", rest
        return
    fits = given == _FITTING[sort] and not (
        _INTEGERS.match(kind.upper()) and any(v != int(v) for v in column.values if isinstance(v, Decimal))
    )
    if not fits:
        better = [_convert(value, sort, bool(_INTEGERS.match(kind.upper()))) for value in column.values]
        instead = {**rest, "values": better} if None not in better else rest
        yield f"values are {given}, but its type is {kind}, so no row has them.", instead


def _name_kind(value: object) -> str:
    kinds = ((bool, "booleans"), ((int, Decimal), "numbers"), (str, "text"), (datetime.date, "dates"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "times")


def _convert(value: object, sort: str, whole: bool) -> object:
    """Return a value converted to a column's kind; None if it has no such value."""
    text = write_toml({"v": value}).partition("=")[2].strip().strip('"')
    if sort == "text":
        return text
    if sort == "boolean":
        return {"true": True, "false": False, "1": True, "0": False}.get(text.lower())
    if sort == "number":
        number = re.fullmatch(r"[+-]?\d{1,30}(\.\d{1,30})?", text)
        if number is None or (whole and Fraction(text).denominator != 1):
            return None
        return int(Fraction(text)) if Fraction(text).denominator == 1 else Decimal(text)
    if sort == "date":
        for kind in (datetime.date, datetime.datetime):
            try:
                return kind.fromisoformat(text)
            except ValueError:
                continue
    return None


def count_possible_units(table: Table, schema: Mapping[str, str]) -> int | None:
    """Return the possible number of units, from the declaration of the unit's column; None if it sets no limit."""
    if table.public or table.row_level or not table.unit_path:
        return None
    name = table.unit_path[0].column
    column = table.columns[name] if name in table.columns else Column()
    kind = NameMapping(schema).get(name, "")
    counts = [_UNITS_OF[kind]] if kind in _UNITS_OF else []
    if column.values is not None:
        counts.append(len(column.values))
    if column.bounds is not None and _INTEGERS.match(kind):
        counts.append(int(column.bounds[1] - column.bounds[0]) + 1)
    return min(counts, default=None)


def check_delta(policy: Policy, units: int | None) -> tuple[str, Fraction] | None:
    """Return a warning about a delta that protects no unit, and a better delta; None if it is small enough.

    Publishing the rows of one unit, chosen at random among n, is private at a delta of 1/n, so delta must be far smaller.
    """
    delta = policy.budget.delta
    if units is not None and delta * units >= 1:
        better = round_significant(Fraction(1, 100 * units), 1)
        return (
            f"delta = {write_number(delta)} is at least 1 over {units:,}, the possible number of units: this delta allows "
            "publishing the rows of one of them, chosen at random.",
            better,
        )
    if units is None and delta > RECKLESS:
        return (
            f"delta = {write_number(delta)} protects no one among {round(1 / delta):,} or more possible people: it allows "
            "publishing the rows of one of them, chosen at random.",
            Fraction(1, 10**6),
        )
    return None


def list_undated(policy: Policy) -> Iterator[str]:
    """Yield a note on each table that every period's budget pays for."""
    for table in policy.tables.values():
        if policy.budget.per_period and not table.public and table.period is None:
            yield (
                f"{table.name}: without privacy_period every statement that reads it is charged to all periods, also later ones."
            )


def check_period(table: Table, schema: Mapping[str, str]) -> Iterator[str]:
    """Yield the error of a period with a budget of its own whose column is no date."""
    period = table.declared_period if table.data_from is not None else None
    kind = None if period is None else NameMapping(schema).get(period.column)
    if period is not None and kind not in (None, "DATE", "TIMESTAMP"):
        yield f"{table.name}: a budget per period needs a DATE or a TIMESTAMP, and {period.column} is {kind}."


def check_bounds(table: Table, schema: Mapping[str, str], unit: str, findings: Findings) -> None:
    """Report bounds, values and time zones, declared and missing; ``unit`` is the column of the privacy unit."""
    known = {name.lower() for name, column in table.columns.items() if column.bounds or column.values}
    undeclared, proposed = [], []
    for name, kind in schema.items():
        wanted = find_kind(kind) == "number" and not names_a_thing(name)
        if name.lower() in known or name.lower() == unit.lower() or not wanted:
            continue
        found = find_known_bounds(name)
        if found is None:
            undeclared.append(name)
        else:
            declared = next((c.type for n, c in table.columns.items() if n.lower() == name.lower()), None)
            typed = f'type = "{declared}", ' if declared else ""
            proposed.append(f"{name} = {{ {typed}bounds = {found[0]} }}")
    for name, column in table.columns.items():
        if column.bounds is not None:
            low, high = (write_bound(end) for end in column.bounds)
            where = f", local times of {column.time_zone}" if column.time_zone is not None else ""
            findings.declared.append(f"  {name}: {low} to {high}{where}")
        elif column.values is not None:
            findings.declared.append(f"  {name}: {len(column.values)} public values")
    spoken = {name.lower() for name in table.columns} | {unit.lower()} | {name.lower() for name in undeclared}
    unnamed = [
        name
        for name in schema
        if name.lower() not in spoken and not any(line.startswith(f"{name} = ") for line in proposed)
    ]
    if unnamed and table.text is None:
        findings.declared.append(f"  not in the policy, but open to statements: {', '.join(unnamed)}")
    if undeclared:
        findings.advice.append(
            f"{table.name}: {', '.join(undeclared)}: no bounds, so no sums or means of them. Ask someone who knows their "
            "meaning; don't look in the data."
        )
    zones = {name.lower(): column.time_zone for name, column in table.columns.items()}
    moments = [name for name, kind in schema.items() if kind == ZONED and zones.get(name.lower()) is None]
    if moments:
        findings.advice.append(
            f"{table.name}: {', '.join(moments)}: no time_zone, so statements that need local times name a zone. Where one zone "
            f'fits all, write time_zone = "UTC", or another, in the line of the column.'
        )
    if proposed:
        findings.proposals += [f"[tables.{table.name}.columns]", *proposed]


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return the sentence that names the closest known name; empty if none is close."""
    hint = did_you_mean(name, known) or ""
    return hint[:1].upper() + hint[1:]
