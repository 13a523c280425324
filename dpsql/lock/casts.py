"""Casts that the engine adds, calls that fail inside TRY, joins that fail, and types of outputs: none may fail for any value.

DuckDB casts operands to a common type, and a value that does not fit ends the query with an error. Then one person's row
would decide how a statement ends. DuckDB's bound plan lists these casts with both types, wherever they occur: comparisons, IN,
rows, joins, set operations, lists, branches, arguments. A cast that may fail is refused. The planned text has TRY_CAST for its
own casts, so the remaining ones are DuckDB's.

TRY does not catch every error. DuckDB ends a query for a part that a time or an interval has not, for a bucket whose width is
not above zero, and for an escape of several characters, as soon as a row has a value there. The plan has the types of all
arguments, so such calls are refused by them.

DuckDB has no SEMI or ANTI join by an order of intervals, and says so only when there is a row to join.

Outputs need a type that Arrow, Python and another DuckDB also have. Arrow represents 128-bit integers as decimals of 38
digits. So an output of such a type must be proved to have at most 38 digits, and lists, structs and maps can't contain one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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


Plan = Callable[[str], str]
"""DuckDB's bound plan of a text as JSON, without optimizations."""

_WRITTEN = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\bCAST\(""")
_FLOATS = ("FLOAT", "DOUBLE")
_WRITABLE = frozenset(("BOOLEAN", "UUID", "ENUM", "DATE", "INTERVAL", "DECIMAL", "CHAR", *_FLOATS, *RANGES))
"""Types whose every value has a text. Times and timestamps out of range, which files may have, have none."""
_NESTED = ("STRUCT", "TUPLE")


def prove_casts(text: str, plan: Plan) -> list[tuple[str, Node]]:
    """Prove that no cast that DuckDB adds and no call can fail, and return the names and types of a text's outputs."""
    try:
        (root,) = json.loads(plan(f"SELECT * FROM ({write_attempts(text)}) AS outputs"))["plans"]
        outputs = [(str(item["alias"]), item["return_type"]) for item in root["expressions"]]
    except (ValueError, LookupError, TypeError):
        refuse("no plan of the text")
    for node in _list_nodes(root):
        if node.get("type") == "OPERATOR_CAST":
            details = node.get("function_data") or node  # DuckDB 1.5: in the node itself
            child, target = _operand(node), node["return_type"]
            if not details.get("try_cast") and not _fits(child, target):
                refuse(f"a cast of {_name(child)} to {target.get('id')} that DuckDB adds, and that may fail")
        elif node.get("type") == "BOUND_FUNCTION":
            _check_call(str(node.get("name") or node["qname"]["path"][-1]), node.get("children") or [])
        elif node.get("join_type") in ("SEMI", "ANTI"):
            _check_join(node)
    return outputs


def write_attempts(text: str) -> str:
    """Return a text with TRY_CAST for CAST.

    >>> write_attempts("SELECT CAST(a AS DATE), TRY_CAST(b AS DATE), 'CAST('")
    "SELECT TRY_CAST(a AS DATE), TRY_CAST(b AS DATE), 'CAST('"
    """
    return _WRITTEN.sub(lambda found: "TRY_CAST(" if found[0] == "CAST(" else found[0], text)


_NAMED = frozenset(("names", "returned_types"))
"""The names and types of all columns of a table that a plan reads, which are no expressions."""


def _list_nodes(plan: object) -> list[Node]:
    """Return the operators and expressions of a plan; the types of their results have none."""
    nodes: list[Node] = []
    waiting: list[Any] = [plan]
    while waiting:
        part = waiting.pop()
        if part.__class__ is list:
            waiting += part
        elif part.__class__ is dict:
            nodes.append(part)
            named = _NAMED if part.get("type") == "LOGICAL_GET" else ()
            for key, value in part.items():
                if key != "return_type" and key not in named:
                    waiting.append(value)
    return nodes


_NO_DATES = frozenset(("TIME", "TIME_NS", "TIME WITH TIME ZONE", "INTERVAL"))
_PARTS_OF_DATES = """
era century decade millennium year isoyear quarter month week weekofyear yearweek day dayofmonth dayofweek weekday isodow
dayofyear julian dayname monthname last_day timezone timezone_hour timezone_minute date_diff datediff date_sub datesub
date_trunc datetrunc
"""
_OF_DATES = frozenset(_PARTS_OF_DATES.split())
"""Functions of dates. Of those that read a time or an interval too, some fail for one."""
_OF_CLOCKS = frozenset(("hour", "minute", "second", "millisecond", "microsecond", "epoch"))
"""The parts that a time and an interval have."""
_ESCAPED = frozenset(("like_escape", "not_like_escape", "ilike_escape", "not_ilike_escape"))


def _check_call(name: str, arguments: Sequence[Node]) -> None:
    """Refuse a call that fails for some values, inside TRY, too."""
    if name in ("date_part", "datepart"):
        fails = str(_constant(arguments[0])).lower() not in _OF_CLOCKS
    elif name in _ESCAPED:
        escape = _constant(arguments[-1])
        if not isinstance(escape, str) or len(escape) != 1:
            refuse("an escape that is not one character")
        return
    elif name == "time_bucket":
        if not _is_above_zero(arguments[0]):
            refuse("a bucket whose width is not a constant above zero")
        return
    else:
        fails = name in _OF_DATES
    if fails and any(_name(argument) in _NO_DATES for argument in arguments):
        refuse(f"{name} of a time or an interval")


def _check_join(node: Node) -> None:
    """Refuse a SEMI or ANTI join that compares intervals otherwise than by equality."""
    unequal = [one for one in node.get("conditions") or [] if one.get("comparison") != "COMPARE_EQUAL"]
    for part in _list_nodes([unequal, node.get("condition")]):
        if str(part.get("comparison") or part.get("type")).startswith("COMPARE"):
            sides = [*part.values(), *(part.get("children") or [])]
            if any(isinstance(side, dict) and _name(side) == "INTERVAL" for side in sides):
                refuse("a SEMI or ANTI join that compares intervals")


def _is_above_zero(width: Node) -> bool:
    if width.get("type") == "BOUND_FUNCTION":  # DuckDB 1.5: to_days of a text
        return len(width["children"]) == 1 and (_read_count(width["children"][0]) or 0) > 0
    parts = _constant(width)
    return isinstance(parts, dict) and min(parts.values()) >= 0 and max(parts.values()) > 0


def _fits(child: Node, target: Node) -> bool:
    """Return whether every value of an operand has a cast to a type."""
    if (count := _read_count(child)) is not None and target.get("id") in (*RANGES, *_FLOATS):
        least, most = RANGES.get(target["id"], (-(10**9), 10**9))
        return least <= count <= most
    if child.get("expression_class") != "BOUND_CONSTANT":
        return is_total(child.get("return_type") or {}, target)
    constant = child["value"]
    if constant.get("is_null"):
        return True
    kind, value = constant.get("type") or {}, constant.get("value")
    if is_total(kind, target):
        return True
    name, info = kind.get("id"), kind.get("type_info") or {}
    if target.get("id") == "BOOLEAN":  # DuckDB 1.5 reads TRUE and FALSE as casts of these texts
        return value in ("t", "f")
    if not isinstance(value, int) or isinstance(value, bool) or name not in (*RANGES, "DECIMAL"):
        return False
    scale = int(info.get("scale", 0)) if name == "DECIMAL" else 0
    if target.get("id") in RANGES:
        low, high = RANGES[target["id"]]
        return bool(low * 10**scale <= value <= high * 10**scale)
    if target.get("id") == "DECIMAL":
        before, after = _digits(target)
        return scale <= after and abs(value) < 10 ** (before + scale)
    return False


def _read_count(child: Node) -> int | None:
    """Return the whole number in an INTERVAL's text, which DuckDB 1.5 reads as a truncated DOUBLE; None for other operands."""
    text = _constant(child)
    return int(text) if isinstance(text, str) and re.fullmatch(r"-?[0-9]{1,9}", text) else None


def _operand(cast: Node) -> Node:
    child: Node = cast.get("child") or cast["children"][0]
    return child


def _constant(node: Node) -> object:
    """Return the value of a constant inside casts and truncations; None for other operands."""
    while node.get("type") == "OPERATOR_CAST" or node.get("name") == "trunc":
        node = _operand(node)
    constant = node.get("value") if node.get("expression_class") == "BOUND_CONSTANT" else None
    return constant.get("value") if isinstance(constant, dict) else None


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
        (before, after), (room, behind) = _digits(source), _digits(target)
        return before <= room and after <= behind
    if other == "VARCHAR":
        return name in _WRITABLE and not _is_json(target)
    if name == "BOOLEAN":
        return other in (*RANGES, *_FLOATS)
    if other in _FLOATS:
        return name in ("FLOAT", "DECIMAL") or (name in RANGES and (name, other) != ("UHUGEINT", "FLOAT"))
    if name in RANGES:
        low, high = RANGES[name]
        if other in RANGES:
            least, most = RANGES[other]
            return least <= low and high <= most
        return other == "DECIMAL" and max(-low, high) < 10 ** _digits(target)[0]
    return False


def _is_json(kind: Node) -> bool:
    return (kind.get("type_info") or {}).get("alias") == "JSON"


def _is_total_inside(source: Node, target: Node) -> bool:
    name, other = source["id"], target.get("id")
    here, there = source.get("type_info") or {}, target.get("type_info") or {}
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


def _digits(kind: Node) -> tuple[int, int]:
    """Return the digits of a decimal before and after the point."""
    info = kind.get("type_info") or {}
    scale = int(info.get("scale", 0))
    return int(info.get("width", 0)) - scale, scale


def _name(child: Node) -> str:
    kind = child.get("return_type") or (child.get("value") or {}).get("type") or {}
    return str(kind.get("id"))
