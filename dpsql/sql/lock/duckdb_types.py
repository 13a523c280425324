"""DuckDB's own types, under all of their names: the only ones that a cast in an exact query may name."""

from __future__ import annotations

import json
from typing import Any

from dpsql.sql.lock.tree import refuse

Node = dict[str, Any]
"""A part of what DuckDB serialises of a text."""
_WORDS = """
BOOLEAN TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT FLOAT DOUBLE DECIMAL VARCHAR
BLOB BIT DATE TIME TIMESTAMP TIMESTAMP_S TIMESTAMP_MS TIMESTAMP_NS INTERVAL UUID LIST ARRAY STRUCT MAP
"""

_TYPES = frozenset(_WORDS.split()) | {"TIMESTAMP WITH TIME ZONE", "TIME WITH TIME ZONE"}
"""Types that DuckDB itself has. A name that is not here may be anybody's."""

_OTHER_NAMES = {
    "INT": "INTEGER", "INT4": "INTEGER", "INT8": "BIGINT", "INT2": "SMALLINT", "INT1": "TINYINT",
    "TEXT": "VARCHAR", "STRING": "VARCHAR", "REAL": "FLOAT", "FLOAT8": "DOUBLE", "FLOAT4": "FLOAT",
    "BOOL": "BOOLEAN", "NUMERIC": "DECIMAL", "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE",
    "TIMETZ": "TIME WITH TIME ZONE", "TIMESTAMP_TZ": "TIMESTAMP WITH TIME ZONE", "INT128": "HUGEINT",
    "UINT128": "UHUGEINT", "INT64": "BIGINT", "INT32": "INTEGER", "INT16": "SMALLINT", "UINT64": "UBIGINT",
    "UINT32": "UINTEGER", "UINT16": "USMALLINT", "UINT8": "UTINYINT", "SIGNED": "INTEGER", "CHAR": "VARCHAR",
    "BPCHAR": "VARCHAR", "LOGICAL": "BOOLEAN", "DEC": "DECIMAL", "LONG": "BIGINT", "SHORT": "SMALLINT",
    "BYTEA": "BLOB", "DATETIME": "TIMESTAMP", "TIMESTAMP_US": "TIMESTAMP",
}  # fmt: skip
_PLACES = ("query_location", "query_location_length", "location")
_PARTS = frozenset({"class", "type", "alias", "type_name", "children", "qualified_name", *_PLACES})


def read_type(node: Node) -> tuple[str, str]:
    """Return a type's first word and the rest of it, from a tree of DuckDB 2.0, where a type is an expression.

    Raises:
        Unproved: it is computed, or not DuckDB's own.
    """
    name = _read_name(node)
    return name, _write_detail(node["children"]) if node.get("children") else ""


def _read_name(node: Node) -> str:
    if node["class"] != "TYPE":
        if node["class"] != "CONSTANT":
            refuse("a type that is computed")
        return ""
    for key, value in node.items():
        if key not in _PARTS and value not in (None, False, "", [], {}):
            refuse(f"a type with {key}")
    path = (node.get("qualified_name") or {}).get("path") or [node["type_name"]]
    name = str(node["type_name"]).upper()
    name = _OTHER_NAMES.get(name, name)
    if len(path) != 1 or name not in _TYPES:
        refuse("a type that is not DuckDB's own")
    for child in node.get("children") or ():
        _read_name(child)
    return name


def _write_detail(node: Any) -> str:
    """Write a type's digits, elements and fields: types that differ in them keep other values apart."""
    return json.dumps(_remove_places(node), sort_keys=True)


def _remove_places(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _remove_places(value) for key, value in node.items() if key not in _PLACES}
    return [_remove_places(item) for item in node] if isinstance(node, list) else node


def read_older_type(node: Node) -> tuple[str, str]:
    """Return a type's first word and the rest of it, from a tree of DuckDB 1.5.

    Raises:
        Unproved: it is not DuckDB's own, or has another name.
    """
    name = str(node["id"]).upper()
    name = _OTHER_NAMES.get(name, name)
    if name not in _TYPES:
        refuse("a type that is not DuckDB's own")
    info = node.get("type_info") or {}
    if info.get("alias"):
        refuse("a type with a name of its own")
    children = (
        [info["child_type"]]
        if info.get("child_type")
        else [c["second"] for c in info.get("child_types") or ()]
    )
    for child in children:
        read_older_type(child)
    return name, _write_detail(info) if info else ""
