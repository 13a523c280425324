"""Which columns a policy speaks of, what types it gives them, and the lines that would give them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from dpsql.errors import PolicyError
from dpsql.policy.model import Column, Names, Policy, Table, collect_fields, fold
from dpsql.policy.toml import write_toml


def list_mentioned(policy: Policy, table: Table) -> list[str]:
    """List the columns of a table that the policy speaks of: declared ones, and those on the way to a privacy unit."""
    named = Names({name: name for name in table.columns})
    met = [
        name
        for other in policy.tables.values()
        for hop in other.unit_path
        if fold(hop.table) == fold(table.name)
        for name in (hop.key, hop.column)
    ]
    return [*table.columns, *Names({name: name for name in met if name and name not in named})]


def list_untyped(policy: Policy, table: Table) -> list[str]:
    """List the columns that the policy speaks of without saying their type."""
    types = {fold(name) for name, column in table.columns.items() if column.type is not None}
    return [name for name in list_mentioned(policy, table) if fold(name) not in types]


def list_types(policy: Policy, table: Table) -> dict[str, str]:
    """Give the columns of a source that has no types of its own, as the policy declares them.

    Raises:
        PolicyError: a column that it speaks of has no type, or none is declared; the hint has the lines to paste.
    """
    missing = list_untyped(policy, table)
    types = {name: column.type for name, column in table.columns.items() if column.type is not None}
    if missing or not types:
        raise explain_missing_types(table, missing)
    return types


def explain_missing_types(table: Table, missing: list[str]) -> PolicyError:
    """Make the error of a policy that leaves types out, with the lines to paste."""
    said = (
        f"; {', '.join(missing)} {'have' if len(missing) > 1 else 'has'} none in the policy"
        if missing
        else ""
    )
    lines = write_columns(table, dict.fromkeys(missing or ["column"]))
    return PolicyError(
        f"the source of {table.name} does not say what types its columns have{said}.",
        keys=("tables", table.name),
        hint="\n".join(["declare them (dpsql policy check proposes types), for instance:", *lines]),
    )


def write_columns(table: Table, types: Mapping[str, str | None]) -> list[str]:
    """Write lines of a policy that declare types of a table's columns, with what is said of them already.

    Args:
        table: as it is now.
        types: the columns, and the type of each; None for one that what is said of it suggests.
    """
    lines = {}
    for name, kind in types.items():
        column = table.columns[name] if name in table.columns else Column()
        lines[name] = {"type": kind or _suggested(column), **collect_fields(column)}
    return write_toml({"tables": {table.name: {"columns": lines}}}).splitlines()


def _suggested(column: Column) -> str:
    """A type that what the policy says of a column fits: nothing else is known of it here."""
    ends: tuple[object, ...] = column.values or column.bounds or ("",)
    first = getattr(ends[0], "written", ends[0])
    if isinstance(first, bool):
        return "BOOLEAN"
    if isinstance(first, datetime.datetime):
        return "TIMESTAMP"
    if isinstance(first, datetime.date):
        return "DATE"
    if isinstance(first, datetime.time):
        return "TIME"
    if isinstance(first, str):
        return "VARCHAR"
    return "BIGINT" if all(isinstance(end, int) for end in ends) else "DOUBLE"
