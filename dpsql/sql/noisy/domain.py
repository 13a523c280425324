"""Public groups: keys whose values everybody may know, so that all of them appear and no delta is spent."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import PrivacyError
from dpsql.plan import Input
from dpsql.sql.dialect import to_sql
from dpsql.sql.expressions.lines import DAY
from dpsql.sql.expressions.types import Typed
from dpsql.sql.parse import literal
from dpsql.sql.relations.relation import Relation
from dpsql.sql.rewrite import Key

if TYPE_CHECKING:
    from dpsql.sql.noisy.block import Block

MOST = 1_000_000
MOST_DAYS = 100_000


@dataclass(frozen=True)
class Domain:
    """A query of all public groups, how many there are at most (None: unknown), and where they come from."""

    sql: str
    size: int | None
    origin: str
    inputs: tuple[Input, ...] = ()


def public_domain(block: Block, keys: list[tuple[Key, Typed]]) -> Domain | None:
    """The domain of all keys together, or None when one of them is private."""
    parts: list[tuple[str, int | None, str, list[Key]]] = []
    joined: dict[str, list[tuple[Key, exp.Expr]]] = {}
    for key, typed in keys:
        relation = _preserved(block, typed.node)
        if relation is not None:
            joined.setdefault(relation.alias, []).append((key, typed.node))
            continue
        part = _declared(block, key, typed)
        if part is None:
            return None
        parts.append((part[0], part[1], part[2], [key]))
    for alias, items in joined.items():
        relation = next(r for r in block.bound.relations if r.alias == alias)
        columns = ", ".join(f"{to_sql(node)} AS {key.name}" for key, node in items)
        present = " AND ".join(f"({to_sql(node)}) IS NOT NULL" for _, node in items)
        sql = f"SELECT DISTINCT {columns} FROM {to_sql(relation.source)} WHERE {present}"
        parts.append((sql, None, f"the rows of {alias}", [key for key, _ in items]))
    size = 1
    for _, count, _, _ in parts:
        size = size * count if count is not None and size is not None else None  # type: ignore[assignment]
    if size is not None and size > MOST:
        raise PrivacyError(f"these are more than {MOST} public groups.", hint="group by fewer columns.")
    names = ", ".join(key.name for key, _ in keys)
    sources = " CROSS JOIN ".join(f"({sql}) AS d{i}" for i, (sql, _, _, _) in enumerate(parts))
    return Domain(
        f"SELECT {names} FROM {sources}", size, " and ".join(dict.fromkeys(part[2] for part in parts))
    )


def _preserved(block: Block, node: exp.Expr) -> Relation | None:
    """The public table, kept by an outer join, that all columns of a key come from."""
    tables = {column.table for column in node.find_all(exp.Column)}
    if len(tables) != 1:
        return None
    alias = tables.pop()
    return next((r for r in block.bound.relations if r.alias == alias and r.public_preserved), None)


def _declared(block: Block, key: Key, typed: Typed) -> tuple[str, int, str] | None:
    """A key over columns whose values the policy declares; or a boolean."""
    if typed.values is not None and isinstance(typed.node, exp.Column):
        rows = ", ".join(f"(CAST({to_sql(literal(value))} AS {typed.type.sql}))" for value in typed.values)
        # '2020-1-1' and '2020-01-01' are one group: shown twice, it would be answered twice and paid once.
        each = "" if _all_different(typed) else "DISTINCT "
        return (
            f"SELECT {each}v AS {key.name} FROM (VALUES {rows}) AS t(v)",
            len(typed.values),
            "declared by the policy",
        )
    columns = {(c.table, c.name): c for c in typed.node.find_all(exp.Column)}
    known = {}
    for place in columns:
        found = next((f for a, f in block.names.fields() if (a, f.name) == place), None)
        if found is None or found.typed.values is None:
            break
        known[place] = found.typed
    else:
        if known:
            return _computed(key, typed, known)
    days = _days(block, key, typed, list(columns))
    if days is not None:
        return days
    if typed.type.kind == "BOOLEAN":
        return f"SELECT v AS {key.name} FROM (VALUES (FALSE), (TRUE)) AS t(v)", 2, "true and false"
    outcomes = _outcomes(typed.node)
    if outcomes is None or typed.nullable:
        return None
    rows = ", ".join(f"(CAST({sql} AS {typed.type.sql}))" for sql in dict.fromkeys(outcomes))
    return (
        f"SELECT DISTINCT v AS {key.name} FROM (VALUES {rows}) AS t(v)",
        len(outcomes),
        "written in the query",
    )


def _outcomes(node: exp.Expr) -> list[str] | None:
    """What a CASE can come to, where all of that is written out."""
    while isinstance(node, exp.Paren):
        node = node.this
    if not isinstance(node, exp.Case):
        return None
    found: list[str] = []
    for value in [*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default")]:
        inner = _outcomes(value) if value is not None else None
        if inner is not None:
            found += inner
        elif value is None or value.find(exp.Column, exp.Query, exp.Func):
            return None
        else:
            found.append(to_sql(value))
    return found


_PLAIN = {"TEXT": str, "INTEGER": int, "BOOLEAN": bool}


def _all_different(typed: Typed) -> bool:
    """Whether the declared values are certain to differ once they are of the column's type."""
    values = typed.values or ()
    plain = all(type(value) is _PLAIN.get(typed.type.kind) for value in values)
    return plain and len(set(values)) == len(values)


def _days(
    block: Block, key: Key, typed: Typed, columns: list[tuple[str, str]]
) -> tuple[str, int, str] | None:
    """A key over one DATE whose bounds the policy declares: every day of them, or what is made of every day.

    Over a TIMESTAMP too, where only its day matters.
    """
    if len(columns) != 1:
        return None
    alias, name = columns[0]
    found = next((f for a, f in block.names.fields() if (a, f.name) == (alias, name)), None)
    kind = found.typed.type.kind if found is not None else ""
    daily = kind == "DATE" or (kind == "TIMESTAMP" and all(map(_by_day, typed.node.find_all(exp.Column))))
    bounds = found.typed.bounds if found is not None and daily else None
    if bounds is None or bounds.low is None or bounds.high is None:
        return None
    first, last = math.floor(bounds.low / DAY), math.floor(bounds.high / DAY)
    if not 0 < last - first + 1 <= MOST_DAYS:
        return None
    start = datetime.date(1970, 1, 1) + datetime.timedelta(days=first)
    quoted = to_sql(exp.to_identifier(name, quoted=True))
    day = f"CAST(CAST('{start.isoformat()}' AS DATE) + CAST(i AS INTEGER) AS {kind})"
    text = to_sql(typed.node)
    sql = (
        f"SELECT DISTINCT {text} AS {key.name} FROM (SELECT {day} AS {quoted} FROM range({last - first + 1}) AS s(i)) "
        f"AS {to_sql(exp.to_identifier(alias, quoted=True))} WHERE ({text}) IS NOT NULL"
    )
    return sql, last - first + 1, "the days that the policy declares"


_LONG = ("day", "week", "month", "quarter", "year", "decade", "century", "millennium")


def _by_day(column: exp.Column) -> bool:
    """Whether what is made of a timestamp goes by its day alone: it is truncated to days or more, or cast to DATE."""
    node: exp.Expr | None = column.parent
    while isinstance(node, exp.Try | exp.Paren) or (
        isinstance(node, exp.TryCast) and node.to.is_type("timestamp")
    ):
        node = node.parent
    if isinstance(node, exp.Cast):
        return bool(node.to.is_type("date"))
    if isinstance(node, exp.Anonymous) and node.name.lower() in ("date_trunc", "date_part"):
        unit = node.expressions[0]
        return isinstance(unit, exp.Literal) and unit.name.lower() in (
            *_LONG,
            "doy",
            "dow",
            "isodow",
            "isoyear",
        )
    return isinstance(node, exp.Anonymous) and node.name.lower() in ("last_day", "dayname", "monthname")


def _computed(key: Key, typed: Typed, known: dict[tuple[str, str], Typed]) -> tuple[str, int, str]:
    aliases: dict[str, list[str]] = {}
    size = 1
    for (alias, name), column in known.items():
        assert column.values is not None
        size *= len(column.values)
        rows = ", ".join(f"(CAST({to_sql(literal(value))} AS {column.type.sql}))" for value in column.values)
        quoted = to_sql(exp.to_identifier(name, quoted=True))
        aliases.setdefault(alias, []).append(
            f"(VALUES {rows}) AS v{len(aliases)}_{len(aliases.get(alias, []))}({quoted})"
        )
    sources = ", ".join(
        f"(SELECT * FROM {' CROSS JOIN '.join(parts)}) AS {to_sql(exp.to_identifier(alias, quoted=True))}"
        for alias, parts in aliases.items()
    )
    text = to_sql(typed.node)
    sql = f"SELECT DISTINCT {text} AS {key.name} FROM {sources} WHERE ({text}) IS NOT NULL"
    return sql, size, "computed from values that the policy declares"
