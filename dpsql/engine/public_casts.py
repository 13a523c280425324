"""Casts that fail whatever is released: between types without a cast, and of an invalid constant.

DuckDB detects them only when a row arrives, after payment. Its bound plan shows the types of every cast, so that each
pair of types is tried once, on a value of ours.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb

from dpsql.engine.sandbox import quote_identifier, quote_literal
from dpsql.errors import BindError

_VALUES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DECIMAL", "FLOAT", "DOUBLE"), "1"),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), "1"),
    "BOOLEAN": "true", "DATE": "'2000-01-01'", "TIME": "'00:00:00'", "INTERVAL": "'1 day'", "UUID": f"'{'0' * 32}'",
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), "'2000-01-01 00:00:00'"),
    "TIMESTAMP WITH TIME ZONE": "'2000-01-01 00:00:00+00'", "TIME WITH TIME ZONE": "'00:00:00+00'",
}  # fmt: skip
"""A value of each type, accepted in some form by all existing casts."""
_NO_CAST = "Unimplemented type for cast"
_SWALLOWS = ("CASE_EXPR", "OPERATOR_TRY")
"""Kinds of nodes below which an expression may not be evaluated, or may fail silently."""
MAX_TRIED = 1000
"""The most cached pairs of types."""


class CastCheck:
    """Checks the casts of a connection's queries, and caches the pairs of types tried."""

    def __init__(self) -> None:
        self._tried: dict[str, str] = {}

    def check(self, con: duckdb.DuckDBPyConnection, sql: str) -> None:
        """Raise BindError for a query with a cast that always fails. Queries that DuckDB can't describe are not refused."""
        try:
            plan = json.loads(con.execute("SELECT json_serialize_plan(?)", [sql]).fetchall()[0][0])
        except (duckdb.Error, ValueError):
            return
        for given, to, sure in _list_casts(plan):
            source, target = _write_type(given.get("return_type")), _write_type(to)
            constant = (
                given.get("value") if sure and given.get("expression_class") == "BOUND_CONSTANT" else None
            )
            if target is None or target == "VARCHAR":
                continue
            if isinstance(constant, Mapping) and constant.get("type", {}).get("id") == "VARCHAR":
                text = constant.get("value")
                if isinstance(text, str) and self._fails(con, quote_literal(text), target):
                    raise _refusal(f"{quote_literal(text[:40])} is no {target}.", target)
            elif source is not None and source != "VARCHAR":
                made = _write_value(given["return_type"])
                if made is not None and self._fails(con, made, target).startswith(_NO_CAST):
                    raise _refusal(f"{source} can't be cast to {target}.", target)

    def _fails(self, con: duckdb.DuckDBPyConnection, value: str, target: str) -> str:
        """Return DuckDB's message if a cast fails; empty otherwise."""
        sql = f"SELECT CAST({value} AS {target})"
        if sql not in self._tried:
            if len(self._tried) >= MAX_TRIED:
                self._tried.clear()
            message = ""
            try:
                con.execute(sql).fetchall()
            except duckdb.ConversionException as error:
                message = str(error).split("\n")[0].removeprefix("Conversion Error: ")
            except duckdb.Error:
                pass  # nothing follows about the cast itself
            self._tried[sql] = message
        return self._tried[sql]


def _refusal(what: str, target: str) -> BindError:
    error = BindError(
        f"above the private part: {what}", hint="nothing was charged; TRY_CAST gives NULL instead."
    )
    error.name = target.lower().split("(")[0].split(" ")[0].rstrip("[]")
    return error


def _list_casts(plan: Any) -> Iterator[tuple[Mapping[str, Any], Any, bool]]:
    """Yield each cast's operand, type, and whether it is certainly evaluated if there is a row; TRY_CAST is excluded."""
    waiting = deque([(plan, True)])
    while waiting:
        node, sure = waiting.popleft()
        if isinstance(node, list):
            waiting.extend((item, sure) for item in node)
        if not isinstance(node, dict):
            continue
        kind = node.get("expression_class")
        if kind == "BOUND_CAST":  # DuckDB 1.5
            if not node.get("try_cast"):
                yield node["child"], node.get("return_type"), sure
        elif node.get("type") == "OPERATOR_CAST" and not (node.get("function_data") or {}).get("try_cast"):
            yield node["children"][0], node.get("return_type"), sure
        sure = sure and node.get("type") not in _SWALLOWS and kind != "BOUND_CONJUNCTION"
        waiting.extend((value, sure) for value in node.values())


def _write_type(kind: Any) -> str | None:
    """Return a plan's type in SQL; None if unknown here."""
    if not isinstance(kind, Mapping):
        return None
    name, info = kind.get("id"), kind.get("type_info") or {}
    if name == "DECIMAL":
        return f"DECIMAL({info.get('width')}, {info.get('scale')})"
    if name == "LIST":
        inner = _write_type(info.get("child_type"))
        return None if inner is None else f"{inner}[]"
    if name == "STRUCT":
        fields = [(item["first"], _write_type(item["second"])) for item in info.get("child_types", [])]
        listed = ", ".join(f"{quote_identifier(label)} {inner}" for label, inner in fields)
        return None if not fields or any(inner is None for _, inner in fields) else f"STRUCT({listed})"
    return str(name) if name in _VALUES or name == "VARCHAR" else None


def _write_value(kind: Mapping[str, Any]) -> str | None:
    """Return a value of a type, as a cast of ours; None if unknown here."""
    name, info = kind.get("id"), kind.get("type_info") or {}
    if name == "LIST":
        inner = _write_value(info.get("child_type") or {})
        return None if inner is None else f"[{inner}]"
    if name == "STRUCT":
        fields = [(item["first"], _write_value(item["second"])) for item in info.get("child_types", [])]
        listed = ", ".join(f"{quote_identifier(label)}: {inner}" for label, inner in fields)
        return None if not fields or any(inner is None for _, inner in fields) else f"{{{listed}}}"
    made = _VALUES.get(str(name))
    return None if made is None else f"CAST({made} AS {_write_type(kind)})"
