"""The command ``dpsql policy import``: SmartNoise's metadata as a policy.

Declarations that have a counterpart are carried over: tables, the private identifier or row privacy, ``max_ids``,
bounds. Others are reported, never guessed: a cardinality is no list of values, and where dimensions were declared
harmless the values must be declared here. Switches that turn protection off (``sample_max_ids``, ``clamp_columns``,
``censor_dims``) are not carried over. The budget is no part of the metadata, so the caller gives it.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpsql.errors import PolicyError, did_you_mean
from dpsql.policy.model import Budget, Column, Policy, Table
from dpsql.policy.tables import TEXT_KINDS
from dpsql.session.result import MissingLibrary

_TABLE_KEYS = (
    "rows", "max_ids", "row_privacy", "sample_max_ids", "censor_dims", "clamp_counts", "clamp_columns", "use_dpsu",
)  # fmt: skip
_COLUMN_KEYS = (
    "name", "type", "private_id", "is_key", "lower", "upper", "min", "max", "nullable", "missing_value", "sensitivity",
    "cardinality", "bounded", "auto_lower", "auto_upper",
)  # fmt: skip
_NUMBERS = ("int", "float", "integer", "number", "decimal")
_TYPES = {
    "int": "BIGINT", "integer": "BIGINT", "float": "DOUBLE", "number": "DOUBLE", "decimal": "DOUBLE",
    "string": "VARCHAR", "boolean": "BOOLEAN", "datetime": "TIMESTAMP",
}  # fmt: skip


_ALWAYS_ON = {
    "sample_max_ids": "rows over the limit of a unit are always held back here",
    "clamp_columns": "values are always clamped to their bounds here",
    "censor_dims": "rare groups are always held back here; declare the values of harmless columns, and all are shown",
}
"""Protections that SmartNoise's metadata may switch off, and what to know here."""


@dataclass(frozen=True)
class Imported:
    """A policy, with notes for the owner on how it was made."""

    policy: Policy
    notes: tuple[str, ...]

    def text(self) -> str:
        """Return TOML with the notes as comments."""
        head = [
            "Made from SmartNoise's metadata. Read it before it is used: it says what may be lost.",
            *self.notes,
        ]
        return "".join(f"# {line}\n" for line in head) + "\n" + self.policy.dumps()


def import_smartnoise(
    text: str, epsilon: Fraction, delta: Fraction = Fraction(0), sources: Mapping[str, str] | None = None
) -> Imported:
    """Read SmartNoise's metadata, YAML or JSON.

    Args:
        text: the metadata.
        epsilon: the whole budget, for all analysts and for good.
        delta: that of the budget.
        sources: file or glob by table name, as ``source`` has it.

    Raises:
        MissingLibrary: it is not JSON, and PyYAML is not installed.
        PolicyError: it is no metadata, or says something that a policy can't.
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
            "there is no table in it that can be asked about.",
            hint="each table needs a column with private_id: True, or row_privacy: True.",
        )
    return Imported(Policy(Budget(epsilon, delta), tables), tuple(notes))


def _read(text: str) -> Mapping[str, Any]:
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
        "this is no metadata of SmartNoise's.",
        hint="it reads database, schema, table, column: each column with a type.",
    )


def _check_keys(given: Iterable[object], known: tuple[str, ...], where: str, what: str) -> None:
    for key in given:
        if key not in known:
            raise PolicyError(
                f"the {where} has an {what} {key} that SmartNoise's metadata do not have.",
                hint=did_you_mean(str(key), known),
            )


def _tables(
    node: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield tables at any depth: nodes with columns, which are nodes with a type."""
    children = {str(key): value for key, value in node.items() if isinstance(value, Mapping)}
    if path and any("type" in child for child in children.values()):
        yield path, node
        return
    for key, child in children.items():
        yield from _tables(child, (*path, key))


def _name(written: str) -> str:
    """Make a table's name that a policy can have."""
    return re.sub(r"\W", "_", _bare(written), flags=re.ASCII)


def _bare(written: str) -> str:
    """Take away the quotes of any engine."""
    for left, right in ('""', "``", "[]"):
        if len(written) > 1 and written[0] == left and written[-1] == right:
            return written[1:-1]
    return written


def _type(source: str | None, item: Mapping[str, Any]) -> str | None:
    """Return the type of a column, where the source is text, which has none of its own."""
    text = source is not None and source.lower().endswith(tuple(TEXT_KINDS))
    return _TYPES.get(str(item.get("type", "")).lower()) if text else None


def _table(
    name: str, path: tuple[str, ...], node: Mapping[str, Any], source: str | None, notes: list[str]
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
        notes.append(f"{name}: clamp_counts is for the query to say: GREATEST(COUNT(*), 0), at no cost.")
    rows = options.get("max_ids", 1)
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise PolicyError(f"the table {path[-1]} has a max_ids that is no whole number above 0.")
    own = _bare(path[-1])
    if source is None and name != own:  # not a plain name, or one that two schemas have
        source = own if name == _name(own) else f"{_bare(path[-2])}.{own}"
        notes.append(f"{name}: this is the table {source} of the database.")
    if options.get("row_privacy"):
        if rows != 1:
            raise PolicyError(f"the table {path[-1]} has row_privacy, so its max_ids is 1.")
        return Table(name, source=source, privacy_unit="ROW", columns=columns)
    if not units:
        notes.append(f"{name}: left out, for it has neither a private_id nor row_privacy.")
        return None
    if len(units) > 1:
        raise PolicyError(
            f"the table {path[-1]} has {len(units)} private identifiers: {', '.join(units)}.",
            hint="make one column of them in the data; a policy names one.",
        )
    if rows > 1:
        notes.append(f"{name}: max_ids = {rows} bounds a unit's rows in all, and so does max_rows = {rows}.")
    return Table(name, source=source, privacy_unit=units[0], max_rows=rows, columns=columns)


def _bounds(where: str, item: Mapping[str, Any], notes: list[str]) -> tuple[Any, Any] | None:
    _check_keys(item, _COLUMN_KEYS, f"column {where}", "attribute")
    kind = str(item.get("type", "")).lower()
    for key, said in (
        (
            "cardinality",
            f" = {item.get('cardinality')} is not carried over; values = [...] make its groups public.",
        ),
        ("sensitivity", " is not carried over; it is derived from the bounds."),
        ("missing_value", f" is for the query to say: COALESCE({where.split('.')[-1]}, ...)."),
    ):
        if item.get(key) is not None:
            notes.append(f"{where}: {key}{said}")
    low, high = (item.get(a, item.get(b)) for a, b in (("lower", "min"), ("upper", "max")))
    if (low is None) != (high is None):
        notes.append(f"{where}: one bound alone is not carried over; sums need both.")
    if low is None or high is None:
        if kind in _NUMBERS and low is high:
            notes.append(
                f"{where}: no bounds; sums of it must give their own, and nothing is added up without."
            )
        return None
    if isinstance(low, bool | str) or isinstance(high, bool | str):
        raise PolicyError(f"the bounds of {where} are no numbers.", hint="lower: 0 and upper: 100")
    return low, high
