"""Public groups: keys whose values everybody may know, so that all of them appear and no delta is spent.

The groups are enumerated: each column of a key runs over the values or days that the policy declares, or over the rows of
a public table that an outer join keeps, and the keys are computed from those. Keys that share a column are computed
together, so that year(d) and month(d) give the months of d's range and not all pairs of a year and a month.

A key that is made of them may be NULL, as NULLIF(gender, 'male') is for one value: then NULL is a group like the others. A
plain column that the policy declares values of has no such group: what is not declared, NULL too, is left out; nor has a
plain column of booleans. The truth of a condition has one where the condition may be NULL.

Conditions of WHERE restrict the groups where they name nothing but such columns: they are then evaluated over public
values, as they are evaluated over rows, and a group none of whose values they let through can have no row, whatever the
data. A condition that names another column restricts nothing, for which groups it leaves would be told by private rows.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import Error, PrivacyError
from dpsql.plan import Input
from dpsql.sql.dp.group_conditions import Place, by_days, with_keys
from dpsql.sql.exact.exact_query import GroupKey
from dpsql.sql.expressions.fixed_point import DAY
from dpsql.sql.expressions.types import Typed
from dpsql.sql.parse.dialect import to_sql
from dpsql.sql.parse.statements import make_literal
from dpsql.sql.relations.limits import split_conjuncts
from dpsql.sql.relations.relation import Field, Relation, column

if TYPE_CHECKING:
    from dpsql.sql.dp.block import Block

MOST = 1_000_000
MOST_DAYS = 100_000

Pairs = list[tuple[GroupKey, Typed]]


@dataclass(frozen=True)
class Domain:
    """A query of all public groups, how many there are at most (None: unknown), and where they come from."""

    sql: str
    size: int | None
    origin: str
    inputs: tuple[Input, ...] = ()
    nullable: bool = False
    """Whether a key of a group may be NULL: then it is the group of the rows without that value."""


@dataclass(frozen=True)
class Values:
    """What one column runs over: a relation of that one column, how many values it has, and who says so."""

    sql: str
    size: int
    origin: str
    daily: bool = False
    """Whether the values are days, each standing for all the times of that day."""


@dataclass
class Part:
    """Keys that are computed from the same columns or public rows, and the conditions on these."""

    keys: Pairs = field(default_factory=list)
    places: dict[Place, Values] = field(default_factory=dict)
    relations: dict[str, exp.Expr] = field(default_factory=dict)
    """Public tables by alias, as they stand in the exact query."""
    conditions: list[exp.Expr] = field(default_factory=list)
    kept: bool = False
    """Whether a key is of a table that an outer join keeps: nothing is known of how many rows it has."""
    missing: frozenset[str] = frozenset()
    """Names of the keys that may be NULL."""

    @property
    def most(self) -> int:
        return math.prod(values.size for values in self.places.values())

    def meets(self, other: Part) -> bool:
        """Whether the two have a column or a table in common."""
        return bool(self._sources & other._sources)

    @property
    def _sources(self) -> set[Place | str]:
        return {*self.places, *self.relations}

    def and_(self, other: Part) -> Part:
        return Part(
            [*self.keys, *other.keys], {**self.places, **other.places}, {**self.relations, **other.relations},
            [*self.conditions, *other.conditions], self.kept or other.kept, self.missing | other.missing,
        )  # fmt: skip


def public_domain(block: Block, keys: Pairs) -> Domain | None:
    """The domain of all keys together, or None when one of them is private."""
    known = _Known(block)
    parts: list[Part] = []
    for key, typed in keys:
        part = known.part(key, typed)
        if part is None:
            return None
        parts = _joined(parts, part)
    asked = [part for node in known.conditions() if (part := known.condition(node)) is not None]
    parts = _restricted(parts, asked)
    queries = []
    size: int | None = 1
    nullable = False
    for part in parts:
        found = None
        if not part.kept:
            found, part.missing = _size(block, part)
        query = _query(part)
        nullable = nullable or part.kept or bool(part.missing)
        size = None if found is None or size is None else size * found
        if found is not None and found < part.most:
            # It was counted here, and noise is made for so many: whatever else an engine may find, there are no more.
            held = ", ".join(key.name for key, _ in part.keys)
            query = f"SELECT {held} FROM ({query}) AS counted ORDER BY {held} LIMIT {found}"
        queries.append(query)
    if size is not None and size > MOST:
        raise PrivacyError(f"these are more than {MOST} public groups.", hint="group by fewer columns.")
    names = ", ".join(key.name for key, _ in keys)
    sources = " CROSS JOIN ".join(f"({sql}) AS d{i}" for i, sql in enumerate(queries))
    origins = [*(v.origin for p in parts for v in p.places.values()), *known.kept_rows(parts)]
    return Domain(
        f"SELECT {names} FROM {sources}",
        None if size is None else max(1, size),
        " and ".join(dict.fromkeys(origins)),
        nullable=nullable,
    )


def _joined(parts: list[Part], part: Part) -> list[Part]:
    """The parts with one more, which takes in all those that it shares a column or a table with."""
    apart = []
    for other in parts:
        if part.meets(other):
            part = other.and_(part)
        else:
            apart.append(other)
    return [*apart, part]


def _restricted(parts: list[Part], asked: list[Part]) -> list[Part]:
    """The parts with the conditions on them, and with the public rows that these ask for."""
    waiting = [part for part in asked if part.places or part.relations]
    always = [node for part in asked if part not in waiting for node in part.conditions]
    while True:
        near = next((part for part in waiting if any(part.meets(other) for other in parts)), None)
        if near is None:
            break
        waiting.remove(near)
        joined = _joined(parts, near)
        if all(part.most <= MOST for part in joined if part not in parts):
            parts = joined
    return [replace(part, conditions=[*part.conditions, *always]) for part in parts]


class _Known:
    """What is public about the columns of a block."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._fields: dict[Place, Field] = {}
        self._of: dict[Place, Relation] = {}
        for relation in block.bound.relations:
            for item in relation.fields:
                node = item.typed.node
                if isinstance(node, exp.Column):
                    self._fields[node.table, node.name] = item
                    self._of[node.table, node.name] = relation
        self._values: dict[Place, Values] = {}
        """Columns that keys are made of."""
        self._kept: dict[str, Relation] = {}
        """Public tables whose columns are keys, kept by an outer join."""
        self._held: dict[str, Place] = {}
        """Keys that are enumerated as they are, by the SQL of what they are made of."""
        self._met, self._on = _met(block)

    def part(self, key: GroupKey, typed: Typed) -> Part | None:
        """What a key is computed from; None where it is private."""
        places = list(_places(typed.node))
        kept = self._preserved(places)
        if kept is not None:
            self._kept[kept.alias] = kept
            alias = places[0][0]
            return Part([(key, typed)], {}, {alias: kept.source}, kept=True)
        missing = frozenset([key.name] if _may_be_null(typed) else [])
        values = {place: self._enumerated(place, typed) for place in places}
        found = {place: known for place, known in values.items() if known is not None}
        if places and len(found) == len(places) and math.prod(v.size for v in found.values()) <= MOST:
            self._values |= found
            tables = {alias: self._met[alias] for alias, _ in places if alias in self._met}
            return Part([(key, typed)], found, tables, missing=missing)
        made = _of_its_own(key, typed)
        if made is None:
            return None
        place = (f"of_{key.name}", key.name)
        self._held[key.sql] = place
        self._values[place] = made
        own = Typed(column(key.name, place[0]), typed.type, nullable=bool(missing))
        return Part([(key, own)], {place: made}, missing=missing)

    def conditions(self) -> list[exp.Expr]:
        """What every row that is counted meets, in terms of what keys are made of."""
        daily = {place for place, values in self._values.items() if values.daily}
        given = (*self._block.conditions, *self._on, *self._block.bound.conditions)
        found = (with_keys(node, self._held) for node in given)
        return [part for node in found for part in by_days(node, daily)]

    def condition(self, node: exp.Expr) -> Part | None:
        """What a condition is about; None where it names anything else than what keys are made of, or lent rows."""
        part = Part(conditions=[node])
        for found in node.walk(prune=lambda n: isinstance(n, exp.Query)):
            if isinstance(found, exp.Query) and not self._lent(found):
                return None
            if not isinstance(found, exp.Column):
                continue
            place = (found.table, found.name)
            if place in self._values:
                if self._values[place].daily and not _by_day(found):
                    return None
                part.places[place] = self._values[place]
            elif place[0] in self._kept_aliases:
                part.relations[place[0]] = self._kept_aliases[place[0]]
            elif place[0] in self._met:
                part.relations[place[0]] = self._met[place[0]]
            else:
                return None
        return part

    @property
    def _kept_aliases(self) -> dict[str, exp.Expr]:
        return {relation.source.alias_or_name: relation.source for relation in self._kept.values()}

    def _lent(self, query: exp.Expr) -> bool:
        """Whether a subquery reads nothing but public relations that are lent, and no column of the row around it."""
        names = {item.name for item in self._block.binder.lent_inputs}
        tables = list(query.find_all(exp.Table))
        own = {"", *(table.alias_or_name for table in tables)}
        return all(table.name in names and not table.db for table in tables) and all(
            found.table in own for found in query.find_all(exp.Column)
        )

    def kept_rows(self, parts: list[Part]) -> list[str]:
        return [f"the rows of {alias}" for alias in self._kept] if any(part.kept for part in parts) else []

    def _preserved(self, places: list[Place]) -> Relation | None:
        """The public table, kept by an outer join, that all columns of a key come from."""
        relations = {id(self._of[place]): self._of[place] for place in places if place in self._of}
        if len(relations) != 1 or any(place not in self._of for place in places):
            return None
        (relation,) = relations.values()
        return relation if relation.public_preserved else None

    def _enumerated(self, place: Place, key: Typed) -> Values | None:
        """The values of a column that the policy declares, or its days."""
        found = self._fields.get(place)
        if found is None:
            return None
        typed = found.typed
        if typed.values is not None:
            rows = ", ".join(f"(CAST({to_sql(make_literal(v))} AS {typed.type.sql}))" for v in typed.values)
            sql = f"SELECT v AS {_quoted(place[1])} FROM (VALUES {rows}) AS t(v)"
            # '2020-1-1' and '2020-01-01' are one group: shown twice, it would be answered twice and paid once.
            sql = sql if _all_different(typed) else sql.replace("SELECT", "SELECT DISTINCT", 1)
            return Values(sql, len(typed.values), "declared by the policy")
        own = [node for node in key.node.find_all(exp.Column) if (node.table, node.name) == place]
        return _days(place[1], typed, own)


def _places(node: exp.Expr) -> Iterable[Place]:
    return dict.fromkeys((found.table, found.name) for found in node.find_all(exp.Column))


def _met(block: Block) -> tuple[dict[str, exp.Expr], list[exp.Expr]]:
    """Public tables of which every row that is counted has met a row, by their aliases, and what the two had in common."""
    bound = block.bound
    sides = [str(join.args.get("side") or "").upper() for join in bound.joins]
    if any(side not in ("", "LEFT") for side in sides) or any(r.public_preserved for r in bound.relations):
        return {}, []
    private = {r.source.alias_or_name for r in bound.relations if r.private}
    shown = {r.source.alias_or_name: r for r in bound.relations if not r.private}
    tables: dict[str, exp.Expr] = {}
    conditions: list[exp.Expr] = []
    for source, join in [(bound.source, None), *((join.this, join) for join in bound.joins)]:
        kind = str(join.args.get("kind") or "").upper() if join is not None else ""
        if join is not None and (join.args.get("side") or kind not in ("", "INNER", "CROSS", "SEMI")):
            continue
        conditions += split_conjuncts(join.args.get("on")) if join is not None else []
        alias = source.alias_or_name
        relation = shown.get(alias)
        public = relation is not None and all(item.public for item in relation.fields)
        if isinstance(source, exp.Table | exp.Subquery) and alias not in private and public:
            tables[alias] = source
    return tables, conditions


def _query(part: Part) -> str:
    """The groups of a part: its keys over everything that they are made of."""
    keys, places = part.keys, list(part.places)
    if not part.relations and not part.conditions and len(keys) == len(places) == 1:
        key, typed = keys[0]
        if isinstance(typed.node, exp.Column) and not part.places[places[0]].daily:
            given, own = part.places[places[0]].sql, _quoted(places[0][1])
            if given.startswith((f"SELECT v AS {own}", f"SELECT DISTINCT v AS {own}")):
                return given.replace(f"v AS {own}", f"v AS {key.name}", 1)
            return f"SELECT DISTINCT days.{own} AS {key.name} FROM ({given}) AS days"
    items = ", ".join(f"{to_sql(typed.node)} AS {key.name}" for key, typed in keys)
    sources = [to_sql(source) for source in part.relations.values()]
    conditions = [to_sql(node) for node in part.conditions]
    by_alias: dict[str, list[str]] = {}
    for (alias, name), values in part.places.items():
        if alias in part.relations:
            conditions.append(f"{_quoted(alias)}.{_quoted(name)} IN ({values.sql})")
        else:
            by_alias.setdefault(alias, []).append(f"({values.sql}) AS v{len(by_alias.get(alias, []))}")
    for alias, relations in by_alias.items():
        inner = relations[0].rpartition(" AS ")[0] if len(relations) == 1 else (
            f"(SELECT * FROM {' CROSS JOIN '.join(relations)})"
        )  # fmt: skip
        sources.append(f"{inner} AS {_quoted(alias)}")
    if not part.kept:
        there = (typed for key, typed in keys if key.name not in part.missing)
        conditions += [f"({to_sql(typed.node)}) IS NOT NULL" for typed in there]
    where = f" WHERE {' AND '.join(f'({c})' for c in conditions)}" if conditions else ""
    return f"SELECT DISTINCT {items} FROM {' CROSS JOIN '.join(sources)}{where}"


def _size(block: Block, part: Part) -> tuple[int, frozenset[str]]:
    """How many groups a part has, and which keys are NULL in one of them: counted, where it is made of what the policy and
    the statement say alone."""
    single = len(part.keys) == len(part.places) == 1 and isinstance(part.keys[0][1].node, exp.Column)
    lent = any(node.find(exp.Query) is not None for node in part.conditions)
    most = part.most, part.missing
    if part.relations or lent or (single and not part.conditions) or not block.binder.catalog.engine.lossless:
        return most  # another engine may count otherwise
    names = sorted(part.missing)
    counted = "".join(f", COUNT(*) - COUNT({name})" for name in names)
    try:
        row = block.binder.finish.keep(f"SELECT COUNT(*){counted} FROM ({_query(part)}) AS d").to_pylist()[0]
    except Error:
        return most
    size, *absent = row.values()
    return min(part.most, int(size)), frozenset(name for name, n in zip(names, absent, strict=True) if n)


def _may_be_null(typed: Typed) -> bool:
    """Whether NULL is a group of a key: of what is made of columns. Of a column as it is, groups are the values alone, be
    they declared or true and false."""
    return typed.nullable and not isinstance(typed.node, exp.Column)


def _of_its_own(key: GroupKey, typed: Typed) -> Values | None:
    """A key that has few values whatever it is made of: a boolean, or a CASE whose outcomes are written out."""
    if typed.type.kind == "BOOLEAN":
        shown, unknown = (
            ("true, false and NULL", ", (NULL)") if _may_be_null(typed) else ("true and false", "")
        )
        rows = f"VALUES (FALSE), (TRUE){unknown}"
        sql = f"SELECT v AS {_quoted(key.name)} FROM ({rows}) AS t(v)"
        return Values(sql, 3 if unknown else 2, shown)
    outcomes = _outcomes(typed.node)
    if outcomes is None or typed.nullable:
        return None
    rows = ", ".join(f"(CAST({sql} AS {typed.type.sql}))" for sql in dict.fromkeys(outcomes))
    sql = f"SELECT DISTINCT v AS {_quoted(key.name)} FROM (VALUES {rows}) AS t(v)"
    return Values(sql, len(outcomes), "written in the query")


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


def _days(name: str, typed: Typed, columns: list[exp.Column]) -> Values | None:
    """Every day of a DATE whose bounds the policy declares; of a TIMESTAMP too, where only its day matters."""
    kind = typed.type.kind
    daily = kind == "DATE" or (kind == "TIMESTAMP" and all(map(_by_day, columns)))
    bounds = typed.bounds if daily else None
    if bounds is None or bounds.low is None or bounds.high is None:
        return None
    first, last = math.floor(bounds.low / DAY), math.floor(bounds.high / DAY)
    if not 0 < last - first + 1 <= MOST_DAYS:
        return None
    start = datetime.date(1970, 1, 1) + datetime.timedelta(days=first)
    day = f"CAST(CAST('{start.isoformat()}' AS DATE) + CAST(i AS INTEGER) AS {kind})"
    sql = f"SELECT {day} AS {_quoted(name)} FROM range({last - first + 1}) AS s(i)"
    return Values(sql, last - first + 1, "the days that the policy declares", kind == "TIMESTAMP")


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


def _quoted(name: str) -> str:
    return to_sql(exp.to_identifier(name, quoted=True))
