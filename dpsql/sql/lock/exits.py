"""The way out of the engine: every value of each output has a form in which Arrow, Python and another DuckDB have it too.

Integers of 128 bits have none: Arrow has decimals of 38 digits in their place. So an output of such a type must be proved to
have at most 38 digits, and lists, structs and maps must not hold one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dpsql.sql.lock.facts import Value
from dpsql.sql.lock.tree import refuse

_MOST = 10**38 - 1
MOST_OF_ONE = 1 << 92
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
    if value.public or value.narrow or (value.most is not None and value.most <= _MOST):
        return True
    if not value.whole:
        return False
    if value.step is not None:
        return max(-value.step[0], value.step[1]) <= MOST_OF_ONE
    return (value.weight is not None and value.weight <= MOST_OF_ONE) or (
        value.total is not None and value.total <= MOST_OF_ONE
    )


def list_wide_outputs(outputs: Iterable[tuple[str, Mapping[str, Any]]]) -> frozenset[str]:
    """Return the outputs of a text that are integers of 128 bits, which may have more than 38 digits.

    Args:
        outputs: their names, and their types in DuckDB's plan.

    Raises:
        Unproved: another output may have no way out.
    """
    wide = set()
    for name, kind in outputs:
        if kind.get("id") in _WIDE:
            wide.add(name)
        elif not _leaves(kind):
            refuse(f"an output of the type {kind.get('id')}, whose values may have no way out")
    return frozenset(wide)


def _leaves(kind: Mapping[str, Any]) -> bool:
    info = kind.get("type_info") or {}
    if kind.get("id") in ("LIST", "ARRAY", "MAP"):
        return _leaves(info.get("child_type") or {})
    if kind.get("id") in ("STRUCT", "TUPLE"):
        return all(_leaves(part["second"]) for part in info.get("child_types") or [{"second": {}}])
    return kind.get("id") in _PLAIN
