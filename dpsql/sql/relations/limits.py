"""Public bounds on what one privacy unit can make a query do: the public rows that its rows meet, and its own rows.

A row meets at most ``max_fan_out`` public rows, or the statement is refused at binding: how many rows share a join key is
counted in the public tables, which are nobody's. Where a unit's own rows meet one another (joins of private tables,
correlated subqueries) or several public rows, each side is cut to a public number of the unit's rows, chosen by a
secret hash of the row, so that no more than ``max_unit_rows`` pairs come of one unit, and fewer where these are sorted or
held. Rows that the frame of a window passes over are cut alike. The cut looks at the unit's own rows only, and mentions
of one table in one query are cut alike. A unit below the number loses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import BindError, PrivacyError
from dpsql.mechanisms.base import SALT
from dpsql.policy.model import Table
from dpsql.sql.expressions import total_expressions
from dpsql.sql.expressions.lengths import check_length, length_of
from dpsql.sql.expressions.types import Typed
from dpsql.sql.normalize import Env
from dpsql.sql.parse.dialect import parse_fragment, privacy_error, to_sql
from dpsql.sql.public_side import Finish
from dpsql.sql.relations.relation import UNIT, Field, Names, Relation, column, fold, meets_exactly

if TYPE_CHECKING:
    from dpsql.sql.relations.catalog import Catalog
    from dpsql.sql.relations.relation import From

DEFAULT_MAX_FAN_OUT = 10_000
"""Public rows that one private row meets, where the policy does not say."""
DEFAULT_MAX_UNIT_ROWS = 1_000_000
"""Rows that come of one unit where its rows meet, where the policy does not say."""

SORTED_ROWS = 50_000
"""Rows that come of one unit where its rows meet and are then sorted or held: by mechanisms that need rows, groups and
windows. The engine takes about a microsecond and a hundred bytes for each."""
SORTED_CHARACTERS = 2**25
"""Characters of texts in rows that come of one unit where its rows meet and are then sorted or held."""
FRAMED_ROWS = 25_000
"""Rows of one unit that the frames of windows pass over: the engine takes some microseconds for each."""
_UNCUT_ROWS = 100_000
"""So many rows of one unit need no cut where they meet few public rows and are only counted: to cut them takes as long."""

_MOST_COUNTED = 10**8
"""Rows of a public relation that are counted where it has no key: more are too many in any case."""

CountPerKey = Callable[[exp.Expr, Relation, list[Field]], "int | None"]
"""The greatest number of rows of a public FROM item with the same values of these columns; None where nobody knows yet."""


def _least(tables: Iterable[Table], key: str, default: int) -> int:
    given = (getattr(table, key, None) for table in tables)
    return min((int(value) for value in given if value is not None), default=default)


def max_fan_out(tables: Iterable[Table]) -> int:
    """Return how many public rows a row of these tables may meet."""
    return _least(tables, "max_fan_out", DEFAULT_MAX_FAN_OUT)


def max_unit_rows(tables: Iterable[Table]) -> int:
    """Return how many rows may come of one unit of these tables where its rows meet."""
    return _least(tables, "max_unit_rows", DEFAULT_MAX_UNIT_ROWS)


def split_conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    if condition is None:
        return []
    if isinstance(condition, exp.Paren):
        return split_conjuncts(condition.this)
    if isinstance(condition, exp.And):
        return [*split_conjuncts(condition.left), *split_conjuncts(condition.right)]
    return [condition]


# -- public rows ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MetRelation:
    """A public FROM item that private rows meet, the join that brought it, and its columns that USING ties to others."""

    relation: Relation
    join: exp.Join | None = None
    ties: tuple[tuple[str, str], ...] = ()


Condition = tuple[exp.Expr, "str | None"]
"""What holds of rows that meet; where it says an alias, only for the rows of that relation."""


def count_fan_out(
    public: Sequence[tuple[MetRelation, exp.Expr]],
    reached: set[str],
    conditions: Sequence[Condition],
    names: Names,
    most: CountPerKey,
) -> tuple[int, list[tuple[Relation, list[Field]]]]:
    """Return the greatest number of public rows that one private row meets, and the items (with their keys) for which
    nobody knows it yet.

    Args:
        public: the items, of which those that equalities tie to ``reached`` are looked up by their keys.
        reached: folded aliases of the relations whose row is given.
        conditions: conjuncts that hold of all rows that meet.
        names: the scope of the conditions.
    """
    total, waiting = 1, list(public)
    unknown: list[tuple[Relation, list[Field]]] = []
    reached = set(reached)
    while waiting:
        keyed = [(met, item, _keys(met, reached, conditions, names)) for met, item in waiting]
        met, item, keys = next((found for found in keyed if found[2]), keyed[0])
        waiting.remove((met, item))
        reached.add(fold(met.relation.alias))
        count = most(item, met.relation, keys)
        if count is None:
            unknown.append((met.relation, keys))
        else:
            total *= max(1, count)
    return total, unknown


def _keys(met: MetRelation, reached: set[str], conditions: Sequence[Condition], names: Names) -> list[Field]:
    alias = fold(met.relation.alias)
    tied = {name for name, owner in met.ties if owner in reached}
    keys = [f for f in met.relation.fields if fold(f.name) in tied]
    for part, only in conditions:
        if not isinstance(part, exp.EQ) or only not in (None, alias):
            continue
        for mine, other in ((part.this, part.expression), (part.expression, part.this)):
            if not isinstance(mine, exp.Column) or _owner(mine, names) != alias or other.find(exp.Query):
                continue
            if not {_owner(node, names) for node in other.find_all(exp.Column)} <= reached:
                continue
            field = next((f for f in met.relation.fields if fold(f.name) == fold(mine.name)), None)
            kind = _typed(other, names)
            if field is not None and kind is not None and meets_exactly(field.typed.type, kind.type):
                keys.append(field)
    return [key for i, key in enumerate(keys) if not any(key is other for other in keys[:i])]


def _owner(node: exp.Column, names: Names) -> str | None:
    """The folded alias of the relation that a column belongs to; None where it is not just one's."""
    found = names.known(node)
    owners = [a for a, f in names.fields() if f is found] if found is not None else []
    if not owners and names.outer is not None and names.elsewhere(node):
        return ""  # of the row around
    return fold(owners[0]) if len(owners) == 1 else None


def _typed(node: exp.Expr, names: Names) -> Typed | None:
    try:
        return total_expressions.make_total(node, names)
    except (BindError, PrivacyError):
        return None


def refuse_fan_out(count: int, tables: Iterable[Table], node: exp.Expr) -> None:
    """Refuse a FROM in which a private row meets too many public rows.

    Raises:
        PrivacyError: it does.
    """
    limit = max_fan_out(tables)
    if count > limit:
        raise privacy_error(
            node,
            f"one private row could meet {count:,} public rows here, and max_fan_out is {limit:,}.",
            "join on a key with fewer rows, or ask the owner for a larger max_fan_out (of a list, a max_length) in the "
            "policy.",
        )


def keep_first_rows(relation: Relation, source: exp.Expr, keys: list[Field], rows: int) -> exp.Expr:
    """Return a public source with at most ``rows`` rows for each value of its keys, the first by all columns."""
    by = ", ".join(to_sql(key.typed.node) for key in keys)
    order = ", ".join(to_sql(f.typed.node) for f in relation.fields)
    window = f"{f'PARTITION BY {by} ' if keys else ''}{f'ORDER BY {order}' if order else ''}"
    return _chosen(relation, source, f"row_number() OVER ({window}) <= {rows}")


def _chosen(relation: Relation, source: exp.Expr, condition: str, short: Collection[Field] = ()) -> exp.Expr:
    items = [
        (check_length(f.typed) if any(f is s for s in short) else f.typed.node, f.typed.node.name)
        for f in relation.fields
    ]
    items += [(relation.unit, UNIT)] if relation.unit is not None else []
    columns = ", ".join(f"{to_sql(node)} AS {to_sql(column(name))}" for node, name in items)
    query = parse_fragment(f"SELECT {columns} FROM {to_sql(source)} QUALIFY {condition}")
    assert isinstance(query, exp.Select)
    return query.subquery(exp.to_identifier(relation.name), copy=False)


def bound_list_length(typed: Typed, tables: Iterable[Table]) -> int:
    """Return how many rows UNNEST makes of a list: as many as a private row may meet, at most."""
    return min(length_of(typed), max_fan_out(tables))


# -- a unit's own rows ------------------------------------------------------------------------------------------


def floor_root(total: int, sides: int) -> int:
    """Return the greatest number whose power ``sides`` is at most ``total``, and 1 at least.

    >>> floor_root(10**6, 2), floor_root(10**6, 3), floor_root(999, 3)
    (1000, 100, 9)
    """
    low, high = 1, max(1, total)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**sides <= total else (low, middle - 1)
    return low


def secret_hash(names: Iterable[str]) -> str:
    """Return a number that orders rows by these values in a way that nobody can foresee.

    The salt is mixed in between two hashes: DuckDB combines the hashes of several arguments by multiplication and
    exclusive or, which would leave the order much the same under every salt.
    """
    return f"hash(xor(hash({', '.join(names)}), CAST({SALT} AS UBIGINT)))"


def _looks(field: Field) -> list[str]:
    """All that a query may see of a column: its value, and what tells equal values of it apart."""
    text, kind = to_sql(field.typed.node), field.typed.type.kind
    if kind == "OTHER":
        return []
    more = {"DOUBLE": [f"signbit({text})"], "INTERVAL": [f"CAST({text} AS VARCHAR)"]}
    return [text, *more.get(kind, [])]


def cut_unit_rows(
    relation: Relation, source: exp.Expr, rows: int, keys: Sequence[Field] = (), short: Collection[Field] = ()
) -> exp.Expr:
    """Return the source with at most ``rows`` rows of each unit (and key), chosen by a secret hash of the row's own values.

    Rows that look the same in all columns are the same to any query, so it does not matter which of them stay. Texts of the
    columns ``short`` are missing where they are longer than the policy says.
    """
    assert relation.unit is not None
    unit = to_sql(relation.unit)
    by = ", ".join([unit, *(to_sql(key.typed.node) for key in keys)])
    order = secret_hash([unit, *(value for f in relation.fields for value in _looks(f))])
    return _chosen(
        relation, source, f"row_number() OVER (PARTITION BY {by} ORDER BY {order}) <= {rows}", short
    )


def limit_public(
    bound: From, public: list[MetRelation], joins: list[exp.Join], where: list[exp.Expr], most: CountPerKey, place: exp.Expr,
    outer: Names | None,
) -> None:  # fmt: skip
    """Count the public rows that a private row meets; where nobody can know yet, hold the public side to the limit."""
    private = [r for r in bound.relations if r.private]
    if (not private and outer is None) or bound.row_level:
        return
    outside = any(_side(join) for join in joins)
    conditions: list[Condition] = [] if outside else [(part, None) for part in where]
    for i, join in enumerate(joins):
        # Rows of the left side that an outer join keeps need not meet its condition.
        right = next((m.relation for m in public if m.join is join), None)
        alone = _side(join) in ("LEFT", "FULL") and (
            right is not None or _private_before(bound, joins[:i], public)
        )
        only = None if not alone else fold(right.alias) if right is not None else ""
        conditions += [(part, only) for part in split_conjuncts(join.args.get("on"))]
    names = replace(bound.names, outer=outer)
    reached = {fold(r.alias) for r in private} | {""}
    meeting = [(m, place if m.join is None else m.join.this) for m in public if not _adds_no_rows(m.join)]
    count, unknown = count_fan_out(meeting, reached, conditions, names, most)
    around = outer.fan_out if outer is not None else 1
    bound.fan_out = math.prod([bound.fan_out * count, *(r.fan_out for r in private)])
    tables = [table for r in private for table in r.tables]
    scope = outer
    while scope is not None:
        tables += [table for r in scope.relations for table in r.tables]
        scope = scope.outer
    refuse_fan_out(bound.fan_out * around, tables, place)
    # Released groups are public, but how many there are is not known before they are released.
    for relation, keys in unknown:
        rows = floor_root(max_fan_out(tables) // (bound.fan_out * around), len(unknown))
        _replace_source(bound, relation, lambda source: keep_first_rows(relation, source, keys, rows))  # noqa: B023


def _side(join: exp.Join) -> str:
    return str(join.args.get("side") or "").upper()


def _private_before(bound: From, joins: Sequence[exp.Join], public: Sequence[MetRelation]) -> bool:
    """Whether private rows stand before a join: a FROM that starts with public rows has none until one joins them."""
    brought = [m.join for m in public]
    return None not in brought or any(not any(join is other for other in brought) for join in joins)


def _adds_no_rows(join: exp.Join | None) -> bool:
    return join is not None and str(join.args.get("kind") or "").upper() in ("SEMI", "ANTI")


def _replace_source(bound: From, relation: Relation, make: Callable[[exp.Expr], exp.Expr]) -> None:
    if bound.source.alias_or_name == relation.name:
        bound.source = make(bound.source)
    for join in bound.joins:
        if join.this.alias_or_name == relation.name:
            join.set("this", make(join.this))


@dataclass(frozen=True)
class UnitMeeting:
    """What a SELECT does with the rows of one unit that meet in it.

    ``levels`` is how many queries over rows of one unit meet. ``frames`` are the lengths of the frames that move in its
    windows, 0 for one without an end. Where the statement sorts or holds rows afterwards, ``held`` are the folded names
    of the columns that it reads (None where it counts only; ``*`` among them says all).
    """

    levels: int = 1
    frames: tuple[int, ...] = ()
    held: frozenset[str] | None = frozenset({"*"})

    def texts(self, relation: Relation) -> list[Field]:
        """The texts of a relation that are sorted or held; what finds the unit is never changed."""
        held = self.held or frozenset()
        return [
            f for f in relation.fields
            if f.typed.type.kind == "TEXT" and f.typed.type.sql != "ENUM" and not (f.is_unit or f.anchors)
            and ("*" in held or fold(f.name) in held)
        ]  # fmt: skip


def limit_own(bound: From, meeting: UnitMeeting) -> None:
    """Cut each side where a unit's own rows meet, so that no more come of one unit than the policy says."""
    sides = [r for r in bound.sides if r.unit is not None]
    several = [r for r in sides if not r.per_unit and r.name not in bound.keys]
    alone = len(sides) == 1 and meeting.levels == 1
    met = bound.fan_out // math.prod(
        r.fan_out for r in bound.relations if r.private
    )  # public rows, in this FROM
    if bound.row_level or not sides or (alone and not meeting.frames and met == 1):
        return
    found = [r for r in sides if not r.per_unit and r.name in bound.keys]
    for relation in found:
        keys = bound.keys[relation.name]
        _replace_source(bound, relation, lambda source: cut_unit_rows(relation, source, 1, keys))  # noqa: B023
    if found:
        bound.notes.append(
            "Where a key finds several rows of one unit, one of them counts, chosen by a secret hash."
        )
    one = len(several) == 1 and meeting.levels == 1
    if not several or (one and not meeting.frames and met == 1):
        return
    total = max_unit_rows(table for r in sides for table in r.tables)
    rows = _rows_of_each_side(met if one else bound.fan_out, several, meeting, total)
    if one and not meeting.frames and rows >= _UNCUT_ROWS:
        return
    for relation in several:
        short = [] if one else meeting.texts(relation)
        _replace_source(bound, relation, lambda source: cut_unit_rows(relation, source, rows, (), short))  # noqa: B023
    counted = f"Where a unit's rows meet, {rows:,} of each table's count"
    if one:
        what = (
            "a window's frame passes over a unit's rows"
            if meeting.frames
            else "a unit's rows meet public rows"
        )
        counted = f"Where {what}, {rows:,} of them count"
    bound.notes.append(f"{counted}, chosen by a secret hash (max_unit_rows = {total:,}).")


def _rows_of_each_side(fan_out: int, several: list[Relation], meeting: UnitMeeting, total: int) -> int:
    """How many rows of one unit each side keeps. Fewer than the policy's max_rows only where max_unit_rows needs it."""

    def each(most: int) -> int:
        return floor_root(floor_root(max(1, most // fan_out), meeting.levels), len(several))

    if any(meeting.frames):
        # Each row is looked at with the others of its frame: with all of its unit's at most.
        total = max(total // max(meeting.frames), floor_root(total, 2))
    rows = each(total)
    fewest = total
    if meeting.frames:
        fewest = min(total, FRAMED_ROWS // len(meeting.frames))
    elif meeting.held is not None:
        fewest = min(total, SORTED_ROWS)
    if len(several) > 1 or meeting.levels > 1:
        width = sum(length_of(f.typed) for relation in several for f in meeting.texts(relation))
        fewest = min(fewest, SORTED_CHARACTERS // max(1, width))
    declared = max((r.max_rows or 0 for r in several), default=0)
    return min(rows, max(each(fewest), declared))


def frames_of(select: exp.Select) -> tuple[int, ...]:
    """Return the lengths of the frames that move in the windows of a SELECT; 0 for a frame without an end.

    Without a frame of its own, an aggregate that is ordered has one that runs from the first row.
    """
    lengths = []
    places = [
        *select.expressions,
        *(select.args[key] for key in ("where", "qualify") if select.args.get(key)),
    ]
    for place in places:
        for node in place.walk(prune=lambda n: isinstance(n, exp.Query)):
            if not isinstance(node, exp.Window):
                continue
            spec, function = node.args.get("spec"), node.this
            while isinstance(function, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
                function = function.this
            if spec is not None:
                ends = [spec.args.get(key) for key in ("start", "end")]
                given = [int(e.name) for e in ends if isinstance(e, exp.Literal) and e.name.isdigit()]
                endless = any(str(end).upper() == "UNBOUNDED" for end in ends)
                lengths.append(0 if endless else 1 + sum(given))
            elif node.args.get("order") is not None and isinstance(function, _MOVING):
                lengths.append(0)
    return tuple(lengths)


_MOVING = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)
"""Aggregates that a window adds up over its frame."""


def levels_of(select: exp.Select, outer: Names | None, env: Env, catalog: Catalog) -> int:
    """Return how many queries over rows of one unit meet in this one: itself, those around it, and those inside.

    A query inside that only looks for equal values meets nothing: each row finds its own by a hash.
    """
    around = 0
    while outer is not None:
        around += 1
        outer = outer.outer
    if around and not _compares_rows(select):
        around = 0
    return 1 + around + _deepest(select, env, catalog)


def _deepest(select: exp.Expr, env: Env, catalog: Catalog) -> int:
    from_ = select.args.get("from_")
    skipped = [from_, *(join.this for join in select.args.get("joins") or [])]
    inner = [
        query for query in select.find_all(exp.Select)
        if query is not select and query.parent_select is select and not any(_below(query, item) for item in skipped)
    ]  # fmt: skip
    found = [_deepest(query, env, catalog) for query in inner]
    met = [_compares_rows(query) and _reads_units(query, env, catalog) for query in inner]
    return max((deep + (1 if meets else 0) for deep, meets in zip(found, met, strict=True)), default=0)


def _below(node: exp.Expr, item: exp.Expr | None) -> bool:
    above: exp.Expr | None = node
    while above is not None and above is not item:
        above = above.parent
    return above is not None


def _reads_units(query: exp.Select, env: Env, catalog: Catalog) -> bool:
    private = {fold(name) for name, table in catalog.policy.tables.items() if not table.public}
    private |= {name for name, cte in env.items() if cte.private is not None}
    return any(fold(table.name) in private for table in query.find_all(exp.Table))


def _compares_rows(query: exp.Select) -> bool:
    """Whether a condition or a value of a subquery may look at columns of two tables, other than for equality."""
    parts = list(query.expressions)
    for place in (query.args.get("where"), *(join.args.get("on") for join in query.args.get("joins") or [])):
        whole = place.this if isinstance(place, exp.Where) else place
        while whole is not None:
            last = whole.expression if isinstance(whole, exp.And) else whole
            parts += [last.this, last.expression] if isinstance(last, exp.EQ) else [last]
            whole = whole.this if isinstance(whole, exp.And) else None
    return any(_mixes(part) for part in parts)


def _mixes(part: exp.Expr) -> bool:
    columns = [node for node in part.find_all(exp.Column) if not isinstance(node.this, exp.Star)]
    tables = {fold(node.table) for node in columns}
    return len(tables) > 1 or (len(columns) > 1 and tables == {""})


def count_rows_per_key(finish: Finish, public: Iterable[str], rows: str, keys: list[str]) -> int:
    """Return the greatest number of rows of a public query with the same keys; without keys, that of all rows."""
    count = f"SELECT COUNT(*)::BIGINT AS n FROM (SELECT 1 FROM ({rows}) AS t LIMIT {_MOST_COUNTED}) AS t"
    total = int(finish.keep(count, public).column(0)[0].as_py())
    if not keys or total <= 1:
        return total
    columns = ", ".join(to_sql(column(key)) for key in keys)
    known = " AND ".join(f"{to_sql(column(key))} IS NOT NULL" for key in keys)
    each = f"SELECT COUNT(*) AS n FROM ({rows}) AS t WHERE {known} GROUP BY {columns}"
    text = f"SELECT COALESCE(MAX(n), 0)::BIGINT AS n FROM ({each}) AS g"
    return int(finish.keep(text, public).column(0)[0].as_py())
