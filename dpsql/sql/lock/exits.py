"""The way out of the engine: every value of each output has a form in which Arrow, Python and another DuckDB have it too.

Integers of 128 bits have none: Arrow has decimals of 38 digits in their place. So an output of such a type must be proved to
have at most 38 digits, and lists, structs and maps must not hold one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dpsql.sql.lock.casts import Plan, write_attempts
from dpsql.sql.lock.facts import Value
from dpsql.sql.lock.tree import refuse

_MOST = 10**38 - 1
_MOST_OF_ONE = 1 << 92
"""What one row may add to a sum: 38 digits hold the sum over more rows than there are people."""
_WIDE = ("HUGEINT", "UHUGEINT")
_PLAIN = frozenset((
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT", "DOUBLE",
    "DECIMAL", "VARCHAR", "CHAR", "ENUM", "UUID", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS",
    "TIMESTAMP WITH TIME ZONE", "BLOB", "INTERVAL", "NULL", "SQLNULL",
))  # fmt: skip
"""Types whose every value can leave. Of an interval the microseconds may wrap round, which ends no statement."""


def is_held(value: Value) -> bool:
    """Return whether an output that is an integer has at most 38 digits: within bounds, or a sum of bounded terms.

    Values of public relations may have more: those end a statement in the same way whatever the private rows are.
    """
    if value.public or (value.most is not None and value.most <= _MOST):
        return True
    if not value.whole:
        return False
    if value.step is not None:
        return max(-value.step[0], value.step[1]) <= _MOST_OF_ONE
    return (value.weight is not None and value.weight <= _MOST_OF_ONE) or (
        value.total is not None and value.total <= _MOST_OF_ONE
    )


def prove_exits(text: str, plan: Plan, held: frozenset[str]) -> None:
    """Prove that every value which a text may give can leave the engine.

    Args:
        text: the query.
        plan: gives DuckDB's bound plan of a text.
        held: the outputs that are proved to be integers of at most 38 digits.

    Raises:
        Unproved: one may not, or there is no plan to read.
    """
    for name, kind in list_outputs(text, plan):
        if kind.get("id") in _WIDE and name in held:
            continue
        if not _leaves(kind):
            refuse(f"an output of the type {kind.get('id')}, whose values may have no way out")


def list_outputs(text: str, plan: Plan) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the names and types of the outputs of a text.

    Raises:
        Unproved: there is no plan to read.
    """
    try:
        (root,) = json.loads(plan(f"SELECT * FROM ({write_attempts(text)}) AS outputs"))["plans"]
        found = [(item["alias"], item["return_type"]) for item in root["expressions"]]
    except (ValueError, LookupError, TypeError):
        refuse("no plan of the text")
    return found


def _leaves(kind: Mapping[str, Any]) -> bool:
    info = kind.get("type_info") or {}
    if kind.get("id") in ("LIST", "ARRAY", "MAP"):
        return _leaves(info.get("child_type") or {})
    if kind.get("id") in ("STRUCT", "TUPLE"):
        return all(_leaves(part["second"]) for part in info.get("child_types") or [{"second": {}}])
    return kind.get("id") in _PLAIN
