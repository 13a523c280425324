"""The check of SQL that runs above the private part: what is not known to be harmless is refused.

It reads the text that goes to the engine, as DuckDB's own parser understands it, so it needs to know nothing of how
the text was made. Functions, relations and every kind of node must be on a list; a parser of a later version that
knows more finds it refused here.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import duckdb

from dpsql.engine.public_functions import FUNCTIONS, NAMES_OF_THE_SESSION, RELATIONS
from dpsql.errors import BindError

_EXPRESSIONS = {
    "BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "LAMBDA",
    "LAMBDA_REF", "OPERATOR", "POSITIONAL_REFERENCE", "STAR", "SUBQUERY", "WINDOW", "TYPE",
}  # fmt: skip
_REFUSED_RELATIONS = {"SHOW_REF": "a description of tables"}
_RELATIONS = {
    "BASE_TABLE", "CTE", "EMPTY", "EXPRESSION_LIST", "JOIN", "PIVOT", "SUBQUERY", "TABLE_FUNCTION",
    "CTE_NODE", "RECURSIVE_CTE_NODE", "SELECT_NODE", "SET_OPERATION_NODE",
}  # fmt: skip
_MODIFIERS = {
    "DISTINCT_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "ORDER_MODIFIER",
    "ORDER_DEFAULT", "ASCENDING", "DESCENDING", "INVALID",
}  # fmt: skip


def check_public(
    con: duckdb.DuckDBPyConnection, sql: str, relations: Iterable[str], columns: Iterable[str]
) -> None:
    """Refuse SQL that does anything but compute from these relations.

    Args:
        con: a connection whose parser reads the text; nothing of it is run.
        sql: a query.
        relations: names of released relations and public tables.
        columns: names of their columns.

    Raises:
        BindError: it reads or calls something else, or DuckDB can't say what it does.
    """
    tree = _parsed(con, sql)
    nodes = list(_nodes(tree))
    named = {name.lower() for name in relations} | {name.lower() for name in _given_names(nodes)}
    written = {name.lower() for name in columns} | {name.lower() for name in _aliases(nodes)}
    for node in nodes:
        if "class" in node:
            _check_expression(node, written)
        elif "type" in node:
            _check_relation(node, named)


def _parsed(con: duckdb.DuckDBPyConnection, sql: str) -> Mapping[str, Any]:
    row = con.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()
    tree: Mapping[str, Any] = json.loads(row[0]) if row is not None else {"error": True}
    if tree.get("error", True) or len(tree["statements"]) != 1:
        raise BindError(
            f"above the private part: {str(tree.get('error_message', 'this is not one query'))[:200]}",
            hint="dpsql only answers questions: write a SELECT.",
        )
    return tree


def _refused(name: str) -> BindError:
    near = difflib.get_close_matches(name, FUNCTIONS, n=1, cutoff=0.8)
    error = BindError(
        f"{name} is not a function that may be called above the private part.",
        hint=f"did you mean {near[0]}?" if near else "only functions that compute from their arguments may.",
    )
    error.name = name
    return error


def _nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            # A constant's value is data: whatever it looks like, nothing in it is a node.
            waiting.extend(
                value for key, value in node.items() if node.get("class") != "CONSTANT" or key != "value"
            )
        elif isinstance(node, list):
            waiting.extend(node)


def _check_expression(node: Mapping[str, Any], written: set[str]) -> None:
    kind = node["class"]
    if kind not in _EXPRESSIONS:
        raise BindError(f"{str(kind).lower().replace('_', ' ')} can't stand above the private part.")
    if kind in ("FUNCTION", "WINDOW"):
        name = str(node["function_name"]).lower()
        if name not in FUNCTIONS:
            raise _refused(name)
    if kind == "COLUMN_REF":
        names = node["column_names"]
        if len(names) == 1 and names[0].lower() in NAMES_OF_THE_SESSION and names[0].lower() not in written:
            raise _refused(names[0].lower())


def _check_relation(node: Mapping[str, Any], named: set[str]) -> None:
    kind = node["type"]
    if not isinstance(kind, str) or kind.endswith("_TYPE_INFO") or "id" in node:
        return  # a type of a cast
    if kind not in _RELATIONS and kind not in _MODIFIERS:
        raise BindError(
            f"{_REFUSED_RELATIONS.get(kind, kind.lower().replace('_', ' '))} can't stand above the private part.",
            hint="SHOW TABLES lists the tables, %dpsql columns their columns.",
        )
    if kind == "TABLE_FUNCTION":
        name = str(node["function"]["function_name"]).lower()
        if name not in RELATIONS:
            raise _refused(name)
    if kind == "BASE_TABLE":
        name = str(node["table_name"])
        if node["schema_name"] or node["catalog_name"] or name.lower() not in named:
            raise BindError(
                f"{name} can't be read above the private part.", hint="SHOW TABLES lists the tables."
            )


def _given_names(nodes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Names that WITH gives."""
    for node in nodes:
        if isinstance(node.get("map"), list):
            yield from (str(item["key"]) for item in node["map"] if isinstance(item, dict) and "key" in item)
        if node.get("type") in ("RECURSIVE_CTE_NODE", "CTE_NODE"):
            yield str(node.get("cte_name", ""))


def _aliases(nodes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Names that the query gives to columns, wherever."""
    for node in nodes:
        if isinstance(node.get("alias"), str):
            yield node["alias"]
        for key in ("column_name_alias", "aliases"):
            if isinstance(node.get(key), list):
                yield from (name for name in node[key] if isinstance(name, str))
