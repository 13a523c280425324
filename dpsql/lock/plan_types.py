"""DuckDB's plans by types: which casts have a result for every value, which calls fail, and which values have a way out.

Outputs need a type that Arrow, Python and another DuckDB also have. Arrow represents 128-bit integers as decimals of 38
digits. So an output of such a type must be proved to have at most 38 digits, and lists, structs and maps can't contain one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """Return whether an output has at most 38 digits: bounded, a sum of bounded terms, or public (so is its failure)."""
    if value.public or value.narrow or (value.most is not None and value.most <= _MOST):
        return True
    if not value.whole:
        return False
    if value.step is not None:
        return max(-value.step[0], value.step[1]) <= MOST_OF_ONE
    moves = (move for move in (value.weight, value.total) if move is not None)
    return any(move <= MOST_OF_ONE for move in moves)


def list_wide_outputs(outputs: Iterable[tuple[str, Node]]) -> frozenset[str]:
    """Return the outputs of a plan that are 128-bit integers, which may have more than 38 digits."""
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


# -- nodes --------------------------------------------------------------------------------------------------------------

_TYPES = frozenset(("return_type", "value", "names", "returned_types"))
"""The parts of a plan that have no expressions."""


def list_expressions(part: Any) -> Iterator[Node]:
    """Yield the outermost expressions in a part of a plan."""
    waiting = [part]
    while waiting:
        part = waiting.pop()
        if part.__class__ is list:
            waiting += reversed(part)
        elif part.__class__ is dict:
            if "expression_class" in part:
                yield part
            else:
                waiting += [value for key, value in reversed(part.items()) if key not in _TYPES]


def _list_nodes(part: Any) -> Iterator[Node]:
    """Yield all nodes of a part of a plan."""
    for node in list_expressions(part):
        yield node
        yield from _list_nodes(list(node.values()))


def read_name(node: Node) -> str:
    """Return the name of a function, an aggregate or a window."""
    found = node.get("name") or node.get("function_name") or (node.get("qname") or {}).get("path")
    if found is None:
        return str(node["type"]).removeprefix("WINDOW_").lower()
    return str(found if isinstance(found, str) else found[-1])


# -- calls and joins that fail, by types ----------------------------------------------------------------------------------

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


def check_call(name: str, arguments: Sequence[Node]) -> None:
    """Refuse a call that fails for some values, inside TRY, too."""
    if name in ("date_part", "datepart"):
        fails = str(read_constant(arguments[0])).lower() not in _OF_CLOCKS
    elif name in _ESCAPED:
        escape = read_constant(arguments[-1])
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


def check_join(node: Node) -> None:
    """Refuse a SEMI or ANTI join that compares intervals otherwise than by equality."""
    if node.get("join_type") not in ("SEMI", "ANTI"):
        return
    unequal = [one for one in node.get("conditions") or [] if one.get("comparison") != "COMPARE_EQUAL"]
    nested = (
        part for part in _list_nodes([unequal, node.get("condition")]) if part["type"].startswith("COMPARE")
    )
    for part in (*unequal, *nested):
        if any(_name(side) == "INTERVAL" for side in list_expressions(list(part.values()))):
            refuse("a SEMI or ANTI join that compares intervals")


def _is_above_zero(width: Node) -> bool:
    if width.get("type") == "BOUND_FUNCTION":  # DuckDB 1.5: to_days of a text
        return len(width["children"]) == 1 and (read_count(width["children"][0]) or 0) > 0
    parts = read_constant(width)
    return isinstance(parts, dict) and min(parts.values()) >= 0 and max(parts.values()) > 0


def is_short(interval: Node) -> bool:
    """Return whether an operand is a constant interval of less than 10,000 years."""
    if interval.get("type") == "BOUND_FUNCTION":  # DuckDB 1.5: to_days of a text
        short = read_name(interval) not in ("to_decades", "to_centuries", "to_millennia")
        return short and abs(read_count(interval["children"][0]) or 10_000) < 10_000
    parts = read_constant(interval)
    most = {"months": 120_000, "days": 3_650_000, "micros": 10**17}
    return isinstance(parts, dict) and all(abs(number) < most.get(part, 0) for part, number in parts.items())


def read_count(child: Node) -> int | None:
    """Return the whole number in an INTERVAL's text, which DuckDB 1.5 reads as a truncated DOUBLE; None for other operands."""
    text = read_constant(child)
    return int(text) if isinstance(text, str) and re.fullmatch(r"-?[0-9]{1,9}", text) else None


def read_operand(cast: Node) -> Node:
    """Return what a cast reads."""
    child: Node = cast.get("child") or cast["children"][0]
    return child


def read_constant(node: Node) -> object:
    """Return the value of a constant inside casts and truncations; None for other operands."""
    while node.get("type") == "OPERATOR_CAST" or node.get("name") == "trunc":
        node = read_operand(node)
    constant = node.get("value") if node.get("expression_class") == "BOUND_CONSTANT" else None
    return constant.get("value") if isinstance(constant, dict) else None


def _name(child: Node) -> str:
    kind = child.get("return_type") or (child.get("value") or {}).get("type") or {}
    return str(kind.get("id"))
