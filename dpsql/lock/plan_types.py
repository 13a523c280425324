"""Types in DuckDB's plans: which casts have a result for every value, and which values have a way out.

Outputs need a type that Arrow, Python and another DuckDB also have. Arrow represents 128-bit integers as decimals of 38
digits. So an output of such a type must be proved to have at most 38 digits, and lists, structs and maps can't contain one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dpsql.lock.facts import Value
from dpsql.lock.tree import RANGES, refuse

Node = Mapping[str, Any]
"""A node or a type of DuckDB's plan."""
_MOST = 10**38 - 1
MOST_OF_ONE = 1 << 92
"""The most that one row may add to a sum: over 2**34 rows it has at most 38 digits."""
_WIDE = ("HUGEINT", "UHUGEINT")
_EXPORTED = """
BOOLEAN TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER UBIGINT FLOAT DOUBLE DECIMAL VARCHAR CHAR ENUM UUID DATE
TIME TIMESTAMP TIMESTAMP_S TIMESTAMP_MS TIMESTAMP_NS BLOB INTERVAL NULL SQLNULL
"""
_PLAIN = frozenset(_EXPORTED.split()) | {"TIMESTAMP WITH TIME ZONE"}
"""Types whose every value can be exported. An interval's microseconds may overflow, which raises no error."""


def fits_38_digits(value: Value) -> bool:
    """Return whether an integer output has at most 38 digits: it is bounded, or a sum of bounded terms.

    Public values always pass: if one fails, it fails whatever the private rows are.
    """
    if value.public or value.narrow or (value.most is not None and value.most <= _MOST):
        return True
    if not value.whole:
        return False
    if value.step is not None:
        return max(-value.step[0], value.step[1]) <= MOST_OF_ONE
    moves = (move for move in (value.weight, value.total) if move is not None)
    return any(move <= MOST_OF_ONE for move in moves)


def list_wide_outputs(outputs: Iterable[tuple[str, Node]]) -> frozenset[str]:
    """Return the outputs that are 128-bit integers, which may have more than 38 digits.

    Args:
        outputs: names and types in DuckDB's plan.
    """
    wide = set()
    for name, kind in outputs:
        if kind.get("id") in _WIDE:
            wide.add(name)
        elif not _leaves(kind):
            refuse(f"an output of the type {kind.get('id')}, whose values may have no way out")
    return frozenset(wide)


def _leaves(kind: Node) -> bool:
    info = kind.get("type_info") or {}
    if kind.get("id") in ("LIST", "ARRAY", "MAP"):
        return _leaves(info.get("child_type") or {})
    if kind.get("id") in ("STRUCT", "TUPLE"):
        return all(_leaves(part["second"]) for part in info.get("child_types") or [{"second": {}}])
    return kind.get("id") in _PLAIN


FLOATS = ("FLOAT", "DOUBLE")
_WRITABLE = frozenset(("BOOLEAN", "UUID", "ENUM", "DATE", "INTERVAL", "DECIMAL", "CHAR", *FLOATS, *RANGES))
"""Types whose every value has a text. Times and timestamps out of range, which files may have, have none."""
_NESTED = ("STRUCT", "TUPLE")


def is_total(source: Node, target: Node) -> bool:
    """Return whether every value of a type has a cast to another type."""
    if source == target:
        return True
    name, other = source.get("id"), target.get("id")
    if name in ("NULL", "SQLNULL"):
        return True
    if name in ("LIST", "ARRAY", "MAP") or name in _NESTED:
        return _is_total_inside(source, target)
    if name == other:
        if name != "DECIMAL":
            return name != "ENUM" and not _is_json(target)  # of other values, of texts that are none
        (before, after), (room, behind) = digits_of(source), digits_of(target)
        return before <= room and after <= behind
    if (name, other) == ("TIMESTAMP", "DATE"):
        return True
    if other == "VARCHAR":
        return name in _WRITABLE and not _is_json(target)
    if name == "BOOLEAN":
        return other in (*RANGES, *FLOATS)
    if other in FLOATS:
        return name in ("FLOAT", "DECIMAL") or (name in RANGES and (name, other) != ("UHUGEINT", "FLOAT"))
    if name in RANGES:
        low, high = RANGES[name]
        if other in RANGES:
            least, most = RANGES[other]
            return least <= low and high <= most
        return other == "DECIMAL" and max(-low, high) < 10 ** digits_of(target)[0]
    return False


def _is_json(kind: Node) -> bool:
    return (kind.get("type_info") or {}).get("alias") == "JSON"


def _is_total_inside(source: Node, target: Node) -> bool:
    name, other = source["id"], target.get("id")
    here, there = source.get("type_info") or {}, target.get("type_info") or {}
    if other == "VARCHAR" and not _is_json(target):
        parts = [item["second"] for item in here.get("child_types") or []] or [here.get("child_type") or {}]
        return all(is_total(part, target) for part in parts)
    if name in _NESTED:
        fields, others = here.get("child_types") or [], there.get("child_types") or []
        alike = [item["first"].lower() for item in fields] == [item["first"].lower() for item in others]
        pairs = zip(fields, others, strict=False)
        return other == name and alike and all(is_total(a["second"], b["second"]) for a, b in pairs)
    if other != name and (name, other) != ("ARRAY", "LIST"):
        return False
    if other == "ARRAY" and here.get("size") != there.get("size"):
        return False
    return is_total(here.get("child_type") or {}, there.get("child_type") or {})


def digits_of(kind: Node) -> tuple[int, int]:
    """Return the digits of a decimal before and after the point."""
    info = kind.get("type_info") or {}
    scale = int(info.get("scale", 0))
    return int(info.get("width", 0)) - scale, scale
