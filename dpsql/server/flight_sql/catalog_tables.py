"""The tables that Flight SQL clients browse: catalogs, schemas, tables and keys, from the policy alone.

A policy is a catalog, which is called as its file is. It has one schema without a name, since a table's name stands alone in the
language. There are no keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dpsql.policy.model import Policy

TABLE_TYPE = "TABLE"
SCHEMA_NAME = ""
"""The name of the one schema of a catalog."""


def _text(name: str, nullable: bool = True) -> pa.Field:
    return pa.field(name, pa.string(), nullable=nullable)


_NUMBER, _RULE = pa.field("key_sequence", pa.int32(), nullable=False), pa.uint8()
_REFERENCES = pa.schema(
    [
        *(_text(f"{side}_{name}", nullable) for side in ("pk", "fk") for name, nullable in (
            ("catalog_name", True), ("db_schema_name", True), ("table_name", False), ("column_name", False),
        )),
        _NUMBER,
        _text("fk_key_name"),
        _text("pk_key_name"),
        pa.field("update_rule", _RULE, nullable=False),
        pa.field("delete_rule", _RULE, nullable=False),
    ]
)  # fmt: skip
SCHEMAS = {
    "CommandGetCatalogs": pa.schema([_text("catalog_name", False)]),
    "CommandGetDbSchemas": pa.schema([_text("catalog_name"), _text("db_schema_name", False)]),
    "CommandGetTables": pa.schema(
        [_text("catalog_name"), _text("db_schema_name"), _text("table_name", False), _text("table_type", False)]
    ),
    "CommandGetTableTypes": pa.schema([_text("table_type", False)]),
    "CommandGetPrimaryKeys": pa.schema(
        [
            _text("catalog_name"), _text("db_schema_name"), _text("table_name", False), _text("column_name", False),
            _text("key_name"), _NUMBER,
        ]
    ),
    "CommandGetExportedKeys": _REFERENCES,
    "CommandGetImportedKeys": _REFERENCES,
    "CommandGetCrossReference": _REFERENCES,
}  # fmt: skip
"""The columns of each of these tables."""
TABLES_WITH_SCHEMA = SCHEMAS["CommandGetTables"].append(pa.field("table_schema", pa.binary(), nullable=False))


def find_catalog_schema(name: str, command: Any) -> pa.Schema:
    """Return the columns of the table that a command asks for."""
    with_schema = name == "CommandGetTables" and command.include_schema
    return TABLES_WITH_SCHEMA if with_schema else SCHEMAS[name]


def list_tables(catalog: str, policy: Policy, command: Any) -> list[str]:
    """Return the names of the policy's tables that a GetTables command asks for, in order."""
    kinds = list(command.table_types)
    if not _is_asked(command, "catalog", catalog) or (kinds and TABLE_TYPE not in kinds):
        return []
    if not _matches(command, "db_schema_filter_pattern", SCHEMA_NAME):
        return []
    names = [table.name for table in policy.tables.values()]
    return sorted(name for name in names if _matches(command, "table_name_filter_pattern", name))


def make_tables(catalog: str, names: Sequence[str], schemas: Mapping[str, pa.Schema] | None) -> pa.Table:
    """Return the table of GetTables.

    Args:
        catalog: the policy's name.
        names: the tables.
        schemas: their columns; None where they were not asked for.
    """
    count = len(names)
    columns: list[Any] = [[catalog] * count, [SCHEMA_NAME] * count, list(names), [TABLE_TYPE] * count]
    if schemas is None:
        return _make_table(SCHEMAS["CommandGetTables"], columns)
    written = [schemas.get(name, pa.schema([])).serialize().to_pybytes() for name in names]
    return _make_table(TABLES_WITH_SCHEMA, [*columns, written])


def make_catalog_table(name: str, command: Any, catalog: str) -> pa.Table:
    """Return the table of any other command of browsing; the tables of keys have no rows."""
    schema = SCHEMAS[name]
    rows: dict[str, list[Any]] = {
        "CommandGetCatalogs": [[catalog]],
        "CommandGetTableTypes": [[TABLE_TYPE]],
    }
    if name == "CommandGetDbSchemas":
        asked = _is_asked(command, "catalog", catalog)
        shown = asked and _matches(command, "db_schema_filter_pattern", SCHEMA_NAME)
        rows[name] = [[catalog], [SCHEMA_NAME]] if shown else [[], []]
    return _make_table(schema, rows.get(name, [[] for _ in schema]))


def _make_table(schema: pa.Schema, columns: Sequence[Any]) -> pa.Table:
    return pa.Table.from_arrays(
        [pa.array(values, f.type) for f, values in zip(schema, columns, strict=True)], schema=schema
    )


def _is_asked(command: Any, field: str, name: str) -> bool:
    """Tell whether a filter names this, or is not given. An empty one asks for what has no name."""
    return not command.HasField(field) or getattr(command, field) == name


def _matches(command: Any, field: str, name: str) -> bool:
    """Tell whether a name fits a pattern of LIKE, in which % is any text and _ any character; or none is given."""
    if not command.HasField(field):
        return True
    pattern = getattr(command, field)[:1000]
    parts = re.findall(r"\\.|%+|_|[^%_\\]+|\\", pattern, re.DOTALL)
    return _fits([part[1:] if part[0] == "\\" and len(part) == 2 else part for part in parts], parts, name)


def _fits(texts: Sequence[str], parts: Sequence[str], name: str) -> bool:
    """Compare by the places that a name may be read up to: no pattern takes long."""
    places = {0}
    for text, part in zip(texts, parts, strict=True):
        if part[0] == "%":
            places = set(range(min(places), len(name) + 1))
        elif part == "_":
            places = {place + 1 for place in places if place < len(name)}
        else:
            wanted = text.lower()
            places = {place + len(text) for place in places if name.lower().startswith(wanted, place)}
        if not places:
            return False
    return len(name) in places
