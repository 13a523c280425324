"""Two engines behind one reader: every exact query of a plan runs on both, and their rows are compared.

What runs is what a session sends: the proved text in its normal form, with the values of its parameters.

Rows and groups that a salted hash chooses are others on each engine, so the tables below are such that nothing is cut:
no unit has more rows or groups than the policy allows. Blocks are dealt by a salted hash too; there the hash is replaced
by the unit itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

import dpsql
from dpsql.binding.plan import Plan
from dpsql.engine.base import Engine
from dpsql.engine.duckdb import DuckDBEngine
from dpsql.language.statements import parse
from dpsql.mechanisms.base import SALT, Reader
from dpsql.noise.entropy import Entropy
from tests.support import inside

_CARRIED = r'"?\w+"?\."?(?:dpsql_unit|unit_\w+)"?'
_UNIT = rf"(?:hash\((?P<of>{_CARRIED})\)|CAST\((?P<cast>{_CARRIED}) AS BIGINT\))"
_SALT = r"(?:CAST\(\d+ AS UBIGINT\)|\d+)"
_HASH = rf"hash\(xor\(hash\((?P<{{0}}>[\w.\"]+)\), {_SALT}\)\)"
_TURN = rf"(?:CAST\({_HASH.format('turn')} >> 1 AS BIGINT\)|{_HASH.format('its')})"
_MIXED = rf"hash\(xor\({_UNIT}, (?:{_TURN}|{_SALT})\)\)"
_BLOCK = (
    re.compile(rf"{_MIXED} // (?P<size>\d+)", re.IGNORECASE),
    re.compile(rf"{_MIXED} >> (?P<shift>\d+)", re.IGNORECASE),
    re.compile(rf"{_MIXED} % (?P<blocks>\d+)", re.IGNORECASE),
)
"""The number of a unit's block, as :func:`dpsql.mechanisms.subsample.blocks.block_number` writes it;
a text in normal form is printed anew, with other capitals, and the unit's column has a secret name there."""


def _dealt(found: re.Match[str]) -> str:
    """The remainder of the unit, a turn further on in each turn."""
    parts = found.groupdict()
    if parts.get("size") is not None:
        blocks = (2**64 - 1) // int(parts["size"]) + 1
    else:
        blocks = int(parts["blocks"]) if parts.get("blocks") is not None else 1 << 64 - int(parts["shift"])
    turn = parts["turn"] or parts["its"]
    unit = f"CAST({parts['of'] or parts['cast']} AS BIGINT)"
    return f"({unit} + {turn}) % {blocks}" if turn else f"{unit} % {blocks}"


def dealt(sql: str) -> str:
    """The query with its blocks dealt by the unit's own number, alike on every engine."""
    for form in _BLOCK:
        sql = form.sub(_dealt, sql)
    assert not re.search(rf"xor\({_UNIT}", sql, re.IGNORECASE), f"a block is chosen by a hash: {sql}"
    return sql


class Both:
    """A reader of plans. ``compared`` counts the queries that agreed."""

    room = 0

    def __init__(self, here: DuckDBEngine, there: Engine) -> None:
        self.here, self.there = here, there
        self.lent: Mapping[str, pa.Table] = {}
        self.compared = 0

    def __call__(self, sql: str, lent: Mapping[str, pa.Table] | None = None, /) -> pa.Table:
        lent = {**self.lent, **(lent or {})}
        sql = dealt(sql)
        mine, theirs = self.here.execute(self.ours(sql), lent), self.there.execute(sql, lent)
        assert_same(mine, theirs, sql)
        self.compared += 1
        return mine

    def apart(self, sql: str, lent: Mapping[str, pa.Table], /) -> pa.Table:
        """Run a query away from the private data: compared too, each engine's own way of doing it."""
        lent = {**self.lent, **lent}
        mine, theirs = self.here.apart(sql, lent), self.there.apart(sql, lent)
        assert_same(mine, theirs, sql)
        return mine

    def ours(self, sql: str) -> str:
        """The same query with DuckDB's names of the tables."""
        for table in self.here.policy.tables.values():
            sql = sql.replace(self.there.relation(table), self.here.relation(table))
        return sql


def assert_same(mine: pa.Table, theirs: pa.Table, said: str = "") -> None:
    """The same columns, types and rows; floats to within what a different order of additions may give."""
    assert mine.schema.names == theirs.schema.names
    assert mine.schema.types == theirs.schema.types, said
    one, two = (sorted(table.to_pylist(), key=_order) for table in (mine, theirs))
    assert len(one) == len(two), said
    for a, b in zip(one, two, strict=True):
        assert all(_alike(a[name], b[name]) for name in a), f"{said}\n{a}\n{b}"


def _order(row: dict[str, Any]) -> str:
    # of two zeros one stays
    return repr([round(v, 6) + 0.0 if isinstance(v, float) else v for v in row.values()])


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-9)
    return bool(a == b)


def plan_of(session: dpsql.Session, text: str, params: Mapping[str, Any] | None = None) -> Plan:
    """The plan, checked by the session's engine as a session would."""
    (statement,) = parse(text, params)
    plan = inside.bind(session, statement)
    inside.check(session, plan)
    return plan


def released(session: dpsql.Session, plan: Plan, read: Both) -> int:
    """Releases the plan's blocks, reading through both engines; how many queries were compared."""
    before, releases = read.compared, {}
    for block in plan.blocks:
        tables = {name: release.table for name, release in releases.items()}
        read.lent = {
            i.name: inside.finisher(session).finish(i.sql, tables, plan.public) for i in block.inputs
        }
        gate = inside.gate(session)
        exact, prove = gate.reading(block.operator), gate.proving(block.operator)
        reader = Reader(read, read.lent, read.room, None, read.apart, exact, prove=prove)
        releases[block.name] = block.operator.release(reader, Entropy())
    return read.compared - before


__all__ = ["SALT", "Both", "assert_same", "dealt", "plan_of", "released"]
