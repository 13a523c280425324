"""Reads the parse trees that DuckDB 1.5 and 2.0 serialise into the second lock's tree.

It stands apart from the check, which never sees DuckDB's formats. It refuses every field that it doesn't read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from dpsql.lock import tree
from dpsql.lock.tree import Call, Cast, Expr, Literal, refuse

Node = dict[str, Any]
"""A node of DuckDB's serialised tree."""

_PLACES = frozenset({"query_location", "query_location_length", "location"})
_NO_ORDER = {"type": "ORDER_MODIFIER"}

_OPERATORS = {
    "OPERATOR_NOT": "not",
    "OPERATOR_IS_NULL": "is null",
    "OPERATOR_IS_NOT_NULL": "is not null",
    "OPERATOR_COALESCE": "coalesce",
    "OPERATOR_TRY": "try",
    "OPERATOR_NULLIF": "nullif",
    "ARRAY_EXTRACT": "array_extract",
    "ARRAY_SLICE": "array_slice",
    "ARRAY_CONSTRUCTOR": "list_value",
    "STRUCT_EXTRACT": "struct_extract",
    "COMPARE_IN": "in",
    "COMPARE_NOT_IN": "not in",
    "COMPARE_BETWEEN": "between",
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_DISTINCT_FROM": "is distinct from",
    "COMPARE_NOT_DISTINCT_FROM": "is not distinct from",
    "CONJUNCTION_AND": "and",
    "CONJUNCTION_OR": "or",
}


def read_tree(text: str) -> tree.Query:
    """Return the query of a serialised text."""
    try:
        whole = json.loads(text, object_hook=_drop_nothing)
        if whole.get("error") or len(whole.get("statements", ())) != 1:
            refuse("not one SELECT")
        (statement,) = whole["statements"]
        _only(statement, ("node", "named_param_map"))
        return _query(statement["node"])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError):
        refuse("a tree of another shape")


def _drop_nothing(node: Node) -> Node | None:
    """Drop positions in the text and empty fields; None for an ORDER BY of nothing."""
    for key, value in list(node.items()):
        if key in _PLACES or not (value or (value == 0 and value is not False)):
            del node[key]
    return None if node == _NO_ORDER else node


_COMMON = frozenset(("class", "type"))


def _only(node: Node, known: Iterable[str]) -> None:
    others = node.keys() - _COMMON
    if not others.issubset(known):
        refuse(f"{node.get('type')} with {min(others.difference(known))}")


_CLAUSES = ("where_clause", "having", "qualify")


def _query(node: Node) -> tree.Query:
    kind = node["type"]
    if kind == "SELECT_NODE":
        return _select(node)
    if kind != "SET_OPERATION_NODE":
        refuse(f"a query of kind {kind}")
    _only(node, ("modifiers", "cte_map", "setop_type", "setop_all", "left", "right", "children"))
    parts = node.get("children") or [node["left"], node["right"]]
    distinct, order, limit = _modifiers(node)
    if distinct or order:
        refuse("a set operation that is ordered or made distinct")
    if node["setop_type"] not in ("UNION", "EXCEPT", "INTERSECT"):
        refuse("a set operation by name")
    return tree.Union(node["setop_type"], tuple(map(_query, parts)), _ctes(node), limit)


def _select(node: Node) -> tree.Select:
    known = "modifiers cte_map select_list from_table group_expressions group_sets aggregate_handling"
    _only(node, (*known.split(), *_CLAUSES))
    if node.get("aggregate_handling") != "STANDARD_HANDLING":
        refuse("GROUP BY ALL")
    groups = _exprs(node.get("group_expressions", ()))
    sets = node.get("group_sets", [])
    if sets and [sorted(one) for one in sets] != [list(range(len(groups)))]:
        refuse("grouping sets")
    if not sets and groups:
        refuse("groups in no set")
    names = [item.get("alias") for item in node["select_list"]]
    if None in names:
        refuse("an output column without a name")
    items = tuple(zip(names, _exprs(node["select_list"]), strict=True))
    where, having, qualify = (_maybe(node.get(key)) for key in _CLAUSES)
    return tree.Select(
        items, _source(node["from_table"]), _ctes(node), where, groups, having, qualify, *_modifiers(node)
    )


def _ctes(node: Node) -> tuple[tuple[str, tree.Query], ...]:
    found = []
    for item in node.get("cte_map", {}).get("map", ()):
        value = item["value"]
        _only(value, ("materialized", "query", "query_node"))
        found.append((item["key"], _query(value.get("query_node") or value["query"]["node"])))
    return tuple(found)


def _modifiers(node: Node) -> tuple[bool, tuple[tree.Order, ...], int | None]:
    distinct, limit = False, None
    order: tuple[tree.Order, ...] = ()
    for item in node.get("modifiers", ()):
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
            most, offset = (_maybe(item.get(key)) for key in ("limit", "offset"))
            if not all(isinstance(one, Literal | tree.Parameter | None) for one in (most, offset)):
                refuse("a limit that is no number")
            found = tree.integer(most)
            limit = -1 if found is None else found
        else:
            refuse(f"a modifier {kind}")
    return distinct, order, limit


def _orders(items: Iterable[Node]) -> tuple[tree.Order, ...]:
    ways = [(item["expression"], f"{item['type']} {item.get('null_order', '')}") for item in items]
    return tuple(tree.Order(_expr(by), how) for by, how in ways)


# -- FROM -------------------------------------------------------------------------------------------------------

_JOINS = {kind: kind for kind in ("INNER", "LEFT", "RIGHT", "OUTER", "SEMI", "ANTI")} | {"FULL": "OUTER"}


def _source(node: Node) -> tree.Source | None:
    kind, alias = node["type"], node.get("alias", "")
    if kind == "EMPTY":
        return None
    if kind == "JOIN":
        return _join(node)
    if not alias:
        refuse("a relation without an alias")
    columns = tuple(node.get("column_name_alias", ()))
    if kind == "BASE_TABLE":
        _only(node, ("alias", "schema_name", "table_name", "catalog_name", "qualified_name"))
        path = tuple(node[key] for key in ("catalog_name", "schema_name", "table_name") if key in node)
        if tuple(node.get("qualified_name", {}).get("path", path)) != path:
            refuse("a table without its whole path")
        return tree.Table(path, alias)
    if kind == "TABLE_FUNCTION":
        _only(node, ("alias", "function", "column_name_alias", "with_ordinality"))
        if node.get("with_ordinality") not in (None, "WITHOUT_ORDINALITY"):
            refuse("ordinality")
        call = _expr(node["function"])
        if not isinstance(call, Call) or not columns:
            refuse("a table function without names")
        return tree.Made(call.name, call.args, alias, columns)
    if kind != "SUBQUERY":
        refuse(f"a relation of kind {kind}")
    _only(node, ("alias", "subquery", "column_name_alias"))
    inner = node["subquery"]["node"]
    if inner.get("from_table", {}).get("type") == "EXPRESSION_LIST":
        return tree.Values(_values(inner), alias, columns)
    if columns:
        refuse("a subquery with a list of columns")
    return tree.Derived(_query(inner), alias)


def _join(node: Node) -> tree.Join:
    known = "left right condition join_type ref_type is_implicit nearest_count nearest_order_type"
    _only(node, known.split())
    shape = node.get("ref_type")
    if shape not in ("REGULAR", "CROSS", "ASOF") or node["join_type"] not in _JOINS:
        refuse(f"a join {node['join_type']} {shape}")
    if node.get("nearest_count") not in (None, 1):
        refuse("a join of the nearest")
    left, right = _source(node["left"]), _source(node["right"])
    if left is None or right is None:
        refuse("a join with nothing")
    on = _maybe(node.get("condition"))
    if (on is None) != (shape == "CROSS"):
        refuse("a join without a condition")
    return tree.Join(left, right, _JOINS[node["join_type"]], on, shape == "ASOF")


def _values(node: Node) -> tuple[tuple[Expr, ...], ...]:
    """Read the rows of VALUES, which the parser represents as ``SELECT * FROM`` a list."""
    _only(node, ("select_list", "from_table", "aggregate_handling"))
    _only(node["from_table"], ("alias", "values"))
    if [item["class"] for item in node["select_list"]] != ["STAR"]:
        refuse("some columns of VALUES")
    _only(node["select_list"][0], ())
    return tuple(map(_exprs, node["from_table"]["values"]))


# -- expressions ------------------------------------------------------------------------------------------------

_READERS: dict[str, tuple[Callable[[Node], Expr], frozenset[str]]] = {}


def _reads(kind: str, fields: str) -> Callable[[Callable[[Node], Expr]], Callable[[Node], Expr]]:
    """Register the reader of a class of expressions, with the fields that it reads."""

    def register(read: Callable[[Node], Expr]) -> Callable[[Node], Expr]:
        _READERS[kind] = read, _COMMON.union(("alias", *fields.split()))
        return read

    return register


def _expr(node: Node) -> Expr:
    found = _READERS.get(node["class"])
    if found is None:
        refuse(f"an expression {node['class']}")
    read, fields = found
    if not node.keys() <= fields:
        _only(node, fields)
    return read(node)


def _exprs(nodes: Iterable[Node]) -> tuple[Expr, ...]:
    return tuple(map(_expr, nodes))


def _maybe(node: Node | None) -> Expr | None:
    return None if node is None else _expr(node)


@_reads("COLUMN_REF", "column_names")
def _column(node: Node) -> Expr:
    names = node["column_names"]
    if len(names) != 2:
        refuse("a column that is not written with its relation")
    return tree.Ref(*names)


@_reads("CONSTANT", "literal value")
def _constant(node: Node) -> Expr:
    if "literal" in node:
        _only(node["literal"], ("kind", "text"))
        return _literal(node["literal"]["kind"], node["literal"].get("text", ""))
    kind, inner = node["value"]["type"], node["value"].get("value")
    match kind["id"]:
        case _ if node["value"].get("is_null"):
            return Literal(None)
        case "DECIMAL":
            return Literal(Fraction(_integer(inner), 10 ** kind["type_info"]["scale"]))
        case "INTEGER" | "BIGINT" | "UBIGINT" | "HUGEINT":
            return Literal(_integer(inner))
        case "DOUBLE":
            return Literal(float(inner))
        case "VARCHAR":
            return Literal(inner or "")
        case "BOOLEAN":
            return Literal(bool(inner))
    refuse(f"a constant {kind['id']}")


def _integer(given: Any) -> int:
    return int(given["upper"]) * 2**64 + int(given["lower"]) if isinstance(given, dict) else int(given)


def _literal(kind: str, text: str) -> Literal:
    match kind:
        case "INTEGER":
            return Literal(int(text.replace("_", "")))
        case "NUMERIC":
            return Literal(float(text) if "e" in text.lower() else Fraction(text))
        case "STRING":
            return Literal(text)
        case "BOOLEAN":
            return Literal(text == "true")
        case "NULL_LITERAL":
            return Literal(None)
    refuse("a literal")


@_reads("PARAMETER", "identifier")
def _parameter(node: Node) -> Expr:
    name = str(node["identifier"])
    if name.isdigit():
        refuse("a parameter without a name")
    return tree.Parameter(name)


_MAIN = """
list_value struct_pack row trim ltrim rtrim substring position date_part timezone
like_escape not_like_escape ilike_escape not_ilike_escape
"""
_OF_MAIN = frozenset(_MAIN.split())
"""Functions with their own syntax, which DuckDB 1.5 qualifies with a schema."""


@_reads(
    "FUNCTION",
    "function_name children arguments order_bys filter distinct is_operator qualified_name schema",
)
def _function(node: Node) -> Expr:
    name = node["function_name"].lower()
    if "schema" in node and (node["schema"] != "main" or name not in _OF_MAIN):
        refuse("a function of a schema")
    if [part.lower() for part in node.get("qualified_name", {}).get("path", [name])] != [name]:
        refuse("a function of a schema")
    args, names = _arguments(node)
    if any(names) and name != "struct_pack":
        refuse("an argument with a name")
    orders = _orders(node.get("order_bys", {}).get("orders", ()))
    return Call(name, args, "distinct" in node, _maybe(node.get("filter")), orders, names)


def _arguments(node: Node) -> tuple[tuple[Expr, ...], tuple[str, ...]]:
    pairs = [(item["expression"], item.get("name", "")) for item in node.get("arguments", ())]
    pairs = pairs or [(item, item.get("alias", "")) for item in node.get("children", ())]
    return _exprs([item for item, _ in pairs]), tuple([name for _, name in pairs])


@_reads("OPERATOR", "children")
@_reads("CONJUNCTION", "children")
@_reads("COMPARISON", "left right")
@_reads("BETWEEN", "input lower upper")
def _operator(node: Node) -> Expr:
    if node["type"] not in _OPERATORS:
        refuse(f"an operator {node['type']}")
    sides = [node[key] for key in ("left", "right", "input", "lower", "upper") if key in node]
    return Call(_OPERATORS[node["type"]], _exprs(sides or node.get("children", ())))


@_reads("CASE", "case_checks else_expr")
def _case(node: Node) -> Expr:
    parts = [one[key] for one in node["case_checks"] for key in ("when_expr", "then_expr")]
    return Call("case", _exprs([*parts, node["else_expr"]]))


@_reads("CAST", "child cast_type type_expr try_cast")
def _cast(node: Node) -> Expr:
    name, detail = _type(node["type_expr"] if "type_expr" in node else node["cast_type"])
    child = _expr(node["child"])
    if name == "BOOLEAN" and child in (Literal("t"), Literal("f")):  # TRUE and FALSE in DuckDB 1.5
        return Literal(child == Literal("t"))
    return Cast(child, name, "try_cast" in node, detail)


@_reads(
    "WINDOW",
    "function_name children arguments partitions orders start end start_expr end_expr offset_expr "
    "default_expr filter_expr exclude_clause ignore_nulls has_ignore_nulls distinct qualified_name",
)
def _window(node: Node) -> Expr:
    args, names = _arguments(node)
    if any(names):
        refuse("an argument with a name")
    more = _exprs(node[key] for key in ("offset_expr", "default_expr") if key in node)
    plain = "ignore_nulls" not in node and "distinct" not in node and node.get("exclude_clause") == "NO_OTHER"
    start, end, where = (_maybe(node.get(key)) for key in ("start_expr", "end_expr", "filter_expr"))
    parts, orders = _exprs(node.get("partitions", ())), _orders(node.get("orders", ()))
    frame = node["start"], node["end"], (start, end)
    return tree.Window(node["function_name"].lower(), args + more, parts, orders, *frame, where, plain)


@_reads("LAMBDA", "lhs expr syntax_type")
def _arrow(node: Node) -> Expr:
    """Read a lambda, or ``TRY_CAST(x AS JSON) -> path``, whose left side is no parameter."""
    left = node["lhs"]
    if left["class"] == "CAST":
        return Call("->", _exprs((left, node["expr"])))
    if node.get("syntax_type") not in (None, "LAMBDA_KEYWORD"):
        refuse("a lambda with an arrow")
    places = left.get("arguments") or left.get("children") or [left]
    names = [name for place in places for name in place.get("expression", place)["column_names"]]
    if len(names) != len(places) or len(set(names)) != len(names):
        refuse("a lambda of other parameters")
    return tree.Lambda(tuple(names), _expr(_bind_names(node["expr"], frozenset(names))))


def _bind_names(node: object, names: frozenset[str]) -> Any:
    """Return a lambda's body with its parameters in a class of their own; a lambda within it keeps none."""
    if isinstance(node, list):
        return [_bind_names(part, names) for part in node]
    if not isinstance(node, dict):
        return node
    if node.get("class") == "COLUMN_REF" and len(node["column_names"]) == 1:
        (name,) = node["column_names"]
        return {"class": "BOUND", "name": name} if name in names else node
    if node.get("class") == "LAMBDA" and node["lhs"]["class"] != "CAST":
        refuse("a lambda within a lambda")
    return {key: _bind_names(part, names) for key, part in node.items()}


@_reads("BOUND", "name")
def _bound(node: Node) -> Expr:
    return tree.Bound(node["name"])


@_reads("SUBQUERY", "subquery_type subquery child comparison_type")
def _subquery(node: Node) -> Expr:
    kind = node["subquery_type"]
    if kind not in ("EXISTS", "NOT_EXISTS", "ANY", "SCALAR"):
        refuse("a subquery of another kind")
    if kind == "ANY" and node.get("comparison_type") != "COMPARE_EQUAL":
        refuse("a subquery with another comparison")
    return tree.Subquery(kind, _query(node["subquery"]["node"]), _maybe(node.get("child")))


# -- types ----------------------------------------------------------------------------------------------------------

_WORDS = """
BOOLEAN TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT FLOAT DOUBLE DECIMAL VARCHAR
BLOB BIT DATE TIME TIMESTAMP TIMESTAMP_S TIMESTAMP_MS TIMESTAMP_NS INTERVAL UUID LIST ARRAY STRUCT MAP JSON
"""
_TYPES = frozenset(_WORDS.split()) | {"TIMESTAMP WITH TIME ZONE", "TIME WITH TIME ZONE"}
"""DuckDB's built-in types. Any other name may be a user's type."""

_SYNONYMS = {
    "INTEGER": "INT INT4 INT32 SIGNED",
    "BIGINT": "INT8 INT64 LONG",
    "SMALLINT": "INT2 INT16 SHORT",
    "TINYINT": "INT1",
    "VARCHAR": "TEXT STRING CHAR BPCHAR",
    "FLOAT": "REAL FLOAT4",
    "DOUBLE": "FLOAT8",
    "BOOLEAN": "BOOL LOGICAL",
    "DECIMAL": "NUMERIC DEC",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ TIMESTAMP_TZ",
    "TIME WITH TIME ZONE": "TIMETZ",
    "HUGEINT": "INT128",
    "UHUGEINT": "UINT128",
    "UBIGINT": "UINT64",
    "UINTEGER": "UINT32",
    "USMALLINT": "UINT16",
    "UTINYINT": "UINT8",
    "BLOB": "BYTEA",
    "TIMESTAMP": "DATETIME TIMESTAMP_US",
}
_OTHER_NAMES = {other: name for name, others in _SYNONYMS.items() for other in others.split()}


def _type(node: Node) -> tuple[str, str]:
    """Return a type's first word, and its digits, elements and fields as text."""
    if "id" in node:  # DuckDB 1.5; in 2.0 a type is an expression
        name, rest = node["id"], node.get("type_info", {})
        if (name, rest.get("name")) == ("UNBOUND", "JSON"):
            _only(rest, ("name",))
            name, rest = "JSON", {}
        if "alias" in rest:
            refuse("a type with a name of its own")
        inner = [part["second"] for part in rest.get("child_types", ())]
        inner += [rest["child_type"]] if "child_type" in rest else []
    else:
        if node["class"] != "TYPE":
            refuse("a type that is computed")
        _only(node, ("alias", "type_name", "children", "qualified_name"))
        name, rest = node["type_name"], node.get("children", [])
        if len(node.get("qualified_name", {}).get("path", [name])) != 1:
            refuse("a type that is not DuckDB's own")
        inner = [part for part in rest if part["class"] != "CONSTANT"]
    name = _OTHER_NAMES.get(name.upper(), name.upper())
    if name not in _TYPES:
        refuse("a type that is not DuckDB's own")
    for part in inner:
        _type(part)
    return name, json.dumps(rest, sort_keys=True) if rest else ""
