"""The command ``dpsql policy import``: SmartNoise's metadata as a policy.

Declarations with a counterpart are carried over: tables, the private identifier or row privacy, ``max_ids``, bounds.
Others are reported, never guessed. A cardinality is no list of values, so harmless dimensions need declared values.
Switches that turn protection off (``sample_max_ids``, ``clamp_columns``, ``censor_dims``) are not carried over. The
metadata have no budget, so the caller gives it.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from dpsql.errors import PolicyError, did_you_mean
from dpsql.late_dataclass import dataclass
from dpsql.policy.model import Budget, Column, Policy, Table
from dpsql.policy.tables import TEXT_KINDS
from dpsql.session.result import MissingLibrary

_TABLE_KEYS = "rows max_ids row_privacy sample_max_ids censor_dims clamp_counts clamp_columns use_dpsu"
_COLUMN_KEYS = """
    name type private_id is_key lower upper min max nullable missing_value sensitivity cardinality bounded auto_lower
    auto_upper"""
_NUMBERS = ("int", "float", "integer", "number", "decimal")
_TYPES = {
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
    return _TYPES.get(str(item.get("type", "")).lower()) if text else None


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
