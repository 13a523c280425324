"""Casts that fail whatever is released: between types that have none, and of a constant that is no such value.

DuckDB finds out only when a row arrives, which is after the payment. Its bound plan names the types of every cast, so that
each pair of types is tried once, on a value of ours.
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
"""A value of each type, which all casts that there are take in some form."""
_NO_CAST = "Unimplemented type for cast"
_SWALLOWS = ("CASE_EXPR", "OPERATOR_TRY")
"""Kinds of nodes below which an expression need not be evaluated, or may fail unseen."""
MAX_TRIED = 1000
"""Pairs of types that are remembered."""


class CastCheck:
    """The casts of a connection's queries; the pairs of types that were tried are remembered."""

    def __init__(self) -> None:
        self._tried: dict[str, str] = {}

    def check(self, con: duckdb.DuckDBPyConnection, sql: str) -> None:
        """Refuse a query with a cast that always fails. What DuckDB can't describe is not refused here.

        Raises:
            BindError: there is one.
        """
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
        """Return DuckDB's words where a cast fails; an empty text where it does not."""
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
                pass  # of the cast itself nothing is said
            self._tried[sql] = message
        return self._tried[sql]


def _refusal(what: str, target: str) -> BindError:
    error = BindError(
        f"above the private part: {what}", hint="nothing was charged; TRY_CAST gives NULL instead."
    )
    error.name = target.lower().split("(")[0].split(" ")[0].rstrip("[]")
    return error


def _list_casts(plan: Any) -> Iterator[tuple[Mapping[str, Any], Any, bool]]:
    """Yield what is cast, to which type, and whether it surely is where there is a row; TRY_CAST is none of them."""
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
    """Write a type of a plan in SQL; None for one that is not known here."""
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
    """Write a value of a type, as a cast of ours; None for one that is not known here."""
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
