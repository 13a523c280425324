"""From DuckDB's own parser to a tree of few kinds of nodes: what it serialises of a text, in versions 1.5 and 2.0."""

from __future__ import annotations

import json
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from dpsql.sql.lock.duckdb_types import Node, read_older_type, read_type
from dpsql.sql.lock.tree import (  # fmt: skip
    Call,
    Cast,
    Derived,
    Expr,
    Join,
    Literal,
    Made,
    Order,
    Parameter,
    Query,
    Ref,
    Select,
    Source,
    Subquery,
    Table,
    Union,
    Values,
    Window,
    refuse,
)

_IGNORED = frozenset({"class", "type", "query_location", "query_location_length", "location"})
_NOTHING: tuple[object, ...] = (
    None,
    False,
    "",
    [],
    {},
    {"map": []},
    {"type": "ORDER_MODIFIER", "orders": []},
)

_OPERATORS = {
    "OPERATOR_NOT": "not",
    "OPERATOR_IS_NULL": "is null",
    "OPERATOR_IS_NOT_NULL": "is not null",
    "OPERATOR_COALESCE": "coalesce",
    "OPERATOR_TRY": "try",
    "COMPARE_IN": "in",
    "COMPARE_NOT_IN": "not in",
    "ARRAY_EXTRACT": "array_extract",
    "ARRAY_SLICE": "array_slice",
    "STRUCT_EXTRACT": "struct_extract",
    "ARRAY_CONSTRUCTOR": "list_value",
    "OPERATOR_NULLIF": "nullif",
}
COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_DISTINCT_FROM": "is distinct from",
    "COMPARE_NOT_DISTINCT_FROM": "is not distinct from",
}


def read_tree(text: str) -> Query:
    """The query of a serialised text.

    Raises:
        Unproved: it is not one SELECT, or holds something that is not known here.
    """
    try:
        return _whole(json.loads(text))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError):
        refuse("a tree of another shape")


def _whole(whole: Node) -> Query:
    if whole.get("error") or len(whole.get("statements", ())) != 1:
        refuse("not one SELECT")
    statement = whole["statements"][0]
    _only(statement, ("node", "named_param_map"))
    return _query(statement["node"])


def _only(node: Node, known: Iterable[str]) -> None:
    """Refuses a field that says something and is not among those known."""
    for key, value in node.items():
        if value and key not in known and key not in _IGNORED and value not in _NOTHING:
            refuse(f"{node.get('type')} with {key}")


_SELECT = frozenset({
    "modifiers", "cte_map", "select_list", "from_table", "where_clause", "group_expressions", "group_sets", "having",
    "qualify", "aggregate_handling",
})  # fmt: skip
_UNION = frozenset({"modifiers", "cte_map", "setop_type", "setop_all", "left", "right", "children"})


def _query(node: Node) -> Query:
    kind = node["type"]
    if kind == "SELECT_NODE":
        return _select(node)
    if kind != "SET_OPERATION_NODE":
        refuse(f"a query of kind {kind}")
    _only(node, _UNION)
    parts = node.get("children") or [node["left"], node["right"]]
    distinct, order, limit = _modifiers(node)
    if distinct or order:
        refuse("a set operation that is ordered or made distinct")
    if node["setop_type"] not in ("UNION", "EXCEPT", "INTERSECT"):
        refuse("a set operation by name")
    every = bool(node.get("setop_all"))
    return Union(_ctes(node), node["setop_type"], every, tuple(map(_query, parts)), limit)


def _select(node: Node) -> Select:
    _only(node, _SELECT)
    if node.get("aggregate_handling") != "STANDARD_HANDLING":
        refuse("GROUP BY ALL")
    groups = tuple(map(_expr, node.get("group_expressions") or ()))
    sets = node.get("group_sets") or []
    if sets and [sorted(one) for one in sets] != [list(range(len(groups)))]:
        refuse("grouping sets")
    if not sets and groups:
        refuse("groups in no set")
    distinct, order, limit = _modifiers(node)
    items = []
    for item in node["select_list"]:
        name = item.get("alias")
        if not name:
            refuse("an output column without a name")
        items.append((name, _expr(item)))
    clauses = (node.get(key) for key in ("where_clause", "having", "qualify"))
    where, having, qualify = (None if clause is None else _expr(clause) for clause in clauses)
    return Select(
        _ctes(node), tuple(items), _source(node["from_table"]), where, groups, having, qualify, distinct, order, limit
    )  # fmt: skip


def _ctes(node: Node) -> tuple[tuple[str, Query], ...]:
    found = []
    for item in (node.get("cte_map") or {}).get("map") or ():
        value = item["value"]
        _only(value, ("materialized", "query", "query_node"))
        if value.get("aliases"):
            refuse("a CTE with a list of columns")
        query = value.get("query_node") or value["query"]["node"]
        found.append((item["key"], _query(query)))
    return tuple(found)


def _modifiers(node: Node) -> tuple[bool, tuple[Order, ...], int | None]:
    distinct, limit = False, None
    order: tuple[Order, ...] = ()
    for item in node.get("modifiers") or ():
        kind = item["type"]
        if kind == "DISTINCT_MODIFIER":
            _only(item, ())
            distinct = True
        elif kind == "ORDER_MODIFIER":
            _only(item, ("orders",))
            order = _orders(item["orders"])
        elif kind == "LIMIT_MODIFIER":
            _only(item, ("limit", "offset", "limit_type"))
            if item.get("limit_type") not in (None, "ROW_COUNT"):
                refuse("a limit in percent")
            given = [_expr(item[key]) for key in ("limit", "offset") if item.get(key)]
            if not all(isinstance(one, Literal | Parameter) for one in given):
                refuse("a limit that is no number")
            most = given[0] if item.get("limit") else None
            limit = most.value if isinstance(most, Literal) and isinstance(most.value, int) else -1
        else:
            refuse(f"a modifier {kind}")
    return distinct, order, limit


def _orders(items: list[Node]) -> tuple[Order, ...]:
    return tuple(
        Order(_expr(item["expression"]), f"{item['type']} {item.get('null_order', '')}") for item in items
    )


# -- FROM ----
_JOINS = {
    "INNER": "INNER",
    "LEFT": "LEFT",
    "RIGHT": "RIGHT",
    "OUTER": "OUTER",
    "FULL": "OUTER",
    "SEMI": "SEMI",
    "ANTI": "ANTI",
}


def _source(node: Node) -> Source | None:
    kind = node["type"]
    if kind == "EMPTY":
        return None
    if kind == "JOIN":
        _only(
            node, ("left", "right", "condition", "join_type", "ref_type", "is_implicit", "nearest_count",
                   "nearest_order_type"),
        )  # fmt: skip
        shape = node.get("ref_type")
        if shape not in ("REGULAR", "CROSS", "ASOF") or node["join_type"] not in _JOINS:
            refuse(f"a join {node['join_type']} {shape}")
        if node.get("nearest_count") not in (None, 1):
            refuse("a join of the nearest")
        left, right = _source(node["left"]), _source(node["right"])
        if left is None or right is None:
            refuse("a join with nothing")
        on = None if node.get("condition") is None else _expr(node["condition"])
        if (on is None) != (shape == "CROSS"):
            refuse("a join without a condition")
        return Join(left, right, _JOINS[node["join_type"]], on, shape == "ASOF")
    alias = node.get("alias")
    if not alias:
        refuse("a relation without an alias")
    if kind == "BASE_TABLE":
        _only(node, ("alias", "schema_name", "table_name", "catalog_name", "qualified_name"))
        path = tuple(p for p in (node["catalog_name"], node["schema_name"], node["table_name"]) if p)
        given = (node.get("qualified_name") or {}).get("path")
        if given is not None and tuple(given) != path:
            refuse("a table without its whole path")
        return Table(path, alias)
    columns = tuple(node.get("column_name_alias") or ())
    if kind == "TABLE_FUNCTION":
        _only(node, ("alias", "function", "column_name_alias", "with_ordinality"))
        if node.get("with_ordinality") not in (None, "WITHOUT_ORDINALITY"):
            refuse("ordinality")
        call = _expr(node["function"])
        if not isinstance(call, Call) or not columns:
            refuse("a table function without names")
        return Made(call.name, call.args, alias, columns)
    if kind != "SUBQUERY":
        refuse(f"a relation of kind {kind}")
    _only(node, ("alias", "subquery", "column_name_alias"))
    inner = node["subquery"]["node"]
    values = _values(inner)
    if values is not None:
        return Values(values, alias, columns)
    if columns:
        refuse("a subquery with a list of columns")
    return Derived(_query(inner), alias, columns)


def _values(node: Node) -> tuple[tuple[Expr, ...], ...] | None:
    """The rows of VALUES, which the parser writes as ``SELECT * FROM`` of a list."""
    source = node.get("from_table") or {}
    if source.get("type") != "EXPRESSION_LIST":
        return None
    _only(node, ("select_list", "from_table", "aggregate_handling"))
    _only(source, ("alias", "values"))
    star = node["select_list"]
    if len(star) != 1 or star[0]["class"] != "STAR":
        refuse("some columns of VALUES")
    _only(star[0], ())
    return tuple(tuple(map(_expr, row)) for row in source["values"])


# -- expressions ------------------------------------------------------------------------------------------------


def _expr(node: Node) -> Expr:
    read = _READERS.get(node["class"])
    if read is None:
        refuse(f"an expression {node['class']}")
    return read(node)


def _column(node: Node) -> Expr:
    _only(node, ("alias", "column_names"))
    names = node["column_names"]
    if len(names) != 2:
        refuse("a column that is not written with its relation")
    return Ref(names[0], names[1])


def _constant(node: Node) -> Expr:
    _only(node, ("alias", "literal", "value"))
    given = node.get("literal")
    if given is not None:
        _only(given, ("kind", "text"))
        return Literal(
            _LITERALS[given["kind"]](given.get("text", ""))
            if given["kind"] in _LITERALS
            else refuse("a literal")
        )
    value = node["value"]
    kind, inner = value["type"]["id"], value.get("value")
    if value.get("is_null"):
        return Literal(None)
    if kind == "DECIMAL":
        info = value["type"]["type_info"]
        if isinstance(inner, dict):
            inner = _huge(inner)
        return Literal(Fraction(int(inner), 10 ** info["scale"]))
    if kind == "HUGEINT":
        return Literal(_huge(inner))
    if kind in ("INTEGER", "BIGINT", "UBIGINT"):
        return Literal(int(inner))
    if kind == "DOUBLE":
        return Literal(float(inner))
    if kind == "VARCHAR":
        return Literal(str(inner))
    if kind == "BOOLEAN":
        return Literal(bool(inner))
    refuse(f"a constant {kind}")


def _huge(parts: Node) -> int:
    return int(parts["upper"]) * 2**64 + int(parts["lower"])


def _numeric(text: str) -> Fraction | float:
    return float(text) if "e" in text.lower() else Fraction(text)


_LITERALS: dict[str, Any] = {
    "INTEGER": lambda text: int(text.replace("_", "")),
    "NUMERIC": _numeric,
    "STRING": str,
    "BOOLEAN": lambda text: text == "true",
    "NULL_LITERAL": lambda text: None,
}


def _parameter(node: Node) -> Expr:
    _only(node, ("alias", "identifier"))
    if str(node["identifier"]).isdigit():
        refuse("a parameter without a name")
    return Parameter(node["identifier"])


_FUNCTION = frozenset({
    "alias", "function_name", "children", "arguments", "order_bys", "filter", "distinct", "is_operator", "qualified_name",
    "schema",
})  # fmt: skip
# Functions with a syntax of their own, which version 1.5 names with its schema.
_OF_MAIN = (
    "list_value", "struct_pack", "row", "trim", "ltrim", "rtrim", "substring", "position", "date_part", "timezone",
)  # fmt: skip


def _function(node: Node) -> Expr:
    _only(node, _FUNCTION)
    name = node["function_name"].lower()
    if node.get("schema") and (node["schema"] != "main" or name not in _OF_MAIN):
        refuse("a function of a schema")
    given = (node.get("qualified_name") or {}).get("path")
    if given is not None and [part.lower() for part in given] != [name]:
        refuse("a function of a schema")
    args, names = _arguments(node)
    if any(names) and name != "struct_pack":
        refuse("an argument with a name")
    where = None if node.get("filter") is None else _expr(node["filter"])
    orders = _orders((node.get("order_bys") or {}).get("orders") or [])
    return Call(name, args, bool(node.get("distinct")), where, orders, names)


def _arguments(node: Node) -> tuple[tuple[Expr, ...], tuple[str, ...]]:
    """The arguments, and their names."""
    if node.get("arguments"):
        pairs = [(item["expression"], item.get("name") or "") for item in node["arguments"]]
    else:
        pairs = [(item, item.get("alias") or "") for item in node.get("children") or ()]
    return tuple(_expr(item) for item, _ in pairs), tuple(name for _, name in pairs)


def _operator(node: Node) -> Expr:
    _only(node, ("alias", "children"))
    if node["type"] not in _OPERATORS:
        refuse(f"an operator {node['type']}")
    return Call(_OPERATORS[node["type"]], tuple(map(_expr, node["children"])))


def _comparison(node: Node) -> Expr:
    _only(node, ("alias", "left", "right"))
    return Call(COMPARISONS[node["type"]], (_expr(node["left"]), _expr(node["right"])))


def _conjunction(node: Node) -> Expr:
    _only(node, ("alias", "children"))
    return Call("and" if node["type"] == "CONJUNCTION_AND" else "or", tuple(map(_expr, node["children"])))


def _between(node: Node) -> Expr:
    _only(node, ("alias", "input", "lower", "upper"))
    if node["type"] != "COMPARE_BETWEEN":
        refuse("a BETWEEN of another kind")
    return Call("between", tuple(_expr(node[key]) for key in ("input", "lower", "upper")))


def _case(node: Node) -> Expr:
    _only(node, ("alias", "case_checks", "else_expr"))
    parts = [_expr(one[key]) for one in node["case_checks"] for key in ("when_expr", "then_expr")]
    return Call("case", (*parts, _expr(node["else_expr"])))


def _cast(node: Node) -> Expr:
    _only(node, ("alias", "child", "cast_type", "type_expr", "try_cast"))
    given = node.get("type_expr")
    name, detail = read_type(given) if given is not None else read_older_type(node["cast_type"])
    child = _expr(node["child"])
    if name == "BOOLEAN" and child in (Literal("t"), Literal("f")):  # TRUE and FALSE of the older version
        return Literal(child == Literal("t"))
    return Cast(child, name, bool(node.get("try_cast")), detail)


_WINDOW = frozenset({
    "alias", "function_name", "children", "arguments", "partitions", "orders", "start", "end", "start_expr", "end_expr",
    "offset_expr", "default_expr", "filter_expr", "exclude_clause", "ignore_nulls", "distinct", "qualified_name",
})  # fmt: skip


def _window(node: Node) -> Expr:
    _only(node, _WINDOW)
    args, names = _arguments(node)
    if any(names):
        refuse("an argument with a name")
    more = [node.get("offset_expr"), node.get("default_expr")]
    args = (*args, *(_expr(one) for one in more if one))
    plain = (
        not (node.get("ignore_nulls") or node.get("distinct")) and node.get("exclude_clause") == "NO_OTHER"
    )
    ends = tuple(None if not node.get(key) else _expr(node[key]) for key in ("start_expr", "end_expr"))
    where = None if not node.get("filter_expr") else _expr(node["filter_expr"])
    return Window(
        node["function_name"].lower(), args, tuple(map(_expr, node.get("partitions") or ())),
        _orders(node.get("orders") or []), node["start"], node["end"], (ends[0], ends[1]), where, plain,
    )  # fmt: skip


_QUERIES = ("EXISTS", "ANY", "SCALAR", "NOT_EXISTS")


def _subquery(node: Node) -> Expr:
    _only(node, ("alias", "subquery_type", "subquery", "child", "comparison_type"))
    if node["subquery_type"] not in _QUERIES:
        refuse("a subquery of another kind")
    child = None if not node.get("child") else _expr(node["child"])
    return Subquery(
        node["subquery_type"], _query(node["subquery"]["node"]), child, node.get("comparison_type") or ""
    )


_READERS = {
    "COLUMN_REF": _column,
    "CONSTANT": _constant,
    "PARAMETER": _parameter,
    "FUNCTION": _function,
    "OPERATOR": _operator,
    "COMPARISON": _comparison,
    "CONJUNCTION": _conjunction,
    "BETWEEN": _between,
    "CASE": _case,
    "CAST": _cast,
    "WINDOW": _window,
    "SUBQUERY": _subquery,
}
