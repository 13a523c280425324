"""Public rows joined to private rows: their number is public, and bounded.

A row joins at most ``max_fan_out`` public rows, or binding refuses the statement: the public tables show how many rows
share a join key.

Unmatched rows are public rows that an outer join keeps without a private match. Private rows determine which these are,
and they belong to no unit, so they are not counted. An answer in which they would count is refused, since it would
differ from SQL's. There are two exceptions: aggregates to which unmatched rows add nothing, such as the count of a
private column; and public groups whose rows are all matched or all unmatched, for which an empty group counts 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace

from sqlglot import exp

from dpsql.binding.relations.binder import Binder
from dpsql.binding.relations.relation import (
    UNIT,
    Field,
    From,
    LostColumns,
    Names,
    Relation,
    Unmatched,
    column,
    find_least,
    fold,
    meets_exactly,
)
from dpsql.binding.traced_columns import PublicColumns, list_facts
from dpsql.binding.values import total_expressions
from dpsql.binding.values.declared_values import check_length, length_of
from dpsql.binding.values.sql_types import Typed
from dpsql.catalogue.row_names import STRICT_CALLS
from dpsql.errors import BindError, PrivacyError
from dpsql.language.dialect import join_word, parse_select, privacy_error, to_sql
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.queries import ROW_COUNT, As, Select, Subquery
from dpsql.policy.model import Table

DEFAULT_MAX_FAN_OUT = 10_000
"""The default limit on public rows per private row."""
DEFAULT_MAX_UNIT_ROWS = 1_000_000
"""The default limit on joined rows per unit."""


_MOST_COUNTED = 10**8
"""The most rows of a public relation counted if it has no key: more are refused anyway."""


def max_fan_out(tables: Iterable[Table]) -> int:
    """Return the most public rows that a row of these tables may join."""
    return find_least(*(table.max_fan_out for table in tables)) or DEFAULT_MAX_FAN_OUT


def max_unit_rows(tables: Iterable[Table]) -> int:
    """Return the most joined rows of one unit of these tables."""
    return find_least(*(table.max_unit_rows for table in tables)) or DEFAULT_MAX_UNIT_ROWS


def split_conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """Return the conjuncts of a condition."""
    if condition is None:
        return []
    if isinstance(condition, exp.Paren):
        return split_conjuncts(condition.this)
    if isinstance(condition, exp.And):
        return [*split_conjuncts(condition.left), *split_conjuncts(condition.right)]
    return [condition]


def find_equal_columns(
    parts: Iterable[exp.Expr], names: Names, beyond: Callable[[exp.Column], bool]
) -> list[tuple[Field, Field]]:
    """Return the pairs of columns that conditions equate, exactly one of them ``beyond``, which comes second."""
    found = []
    for part in parts:
        ends = [part.this, part.expression] if isinstance(part, exp.EQ) else []
        sides = {beyond(end): f for end in ends if (f := names.known(end)) is not None}
        if len(sides) == 2:
            found.append((sides[False], sides[True]))
    return found


# -- public rows ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MetRelation:
    """A public FROM item joined to private rows, its join, and its columns that USING equates with others."""

    relation: Relation
    join: exp.Join | None = None
    ties: tuple[tuple[str, str], ...] = ()


Condition = tuple[exp.Expr, "str | None"]
"""A join condition, and the alias of the only relation whose rows it restricts, if any."""


def count_fan_out(
    binder: Binder,
    public: Sequence[tuple[MetRelation, exp.Expr]],
    reached: set[str],
    conditions: Sequence[Condition],
    names: Names,
) -> tuple[int, list[tuple[Relation, list[Field]]]]:
    """Return the most public rows joined to one private row, and the items (with their keys) with an unknown number.

    Args:
        public: the items; those equated with ``reached`` are looked up by their keys.
        reached: folded aliases of the relations whose row is given.
        conditions: conjuncts true of all joined rows.
    """
    total, waiting = 1, list(public)
    unknown: list[tuple[Relation, list[Field]]] = []
    reached = set(reached)
    equal = _list_equalities(conditions, {fold(met.relation.alias): met.relation for met, _ in public}, names)
    while waiting:
        keyed = ((met, item, _keys(met, reached, equal)) for met, item in waiting)
        met, item, keys = next((found for found in keyed if found[2]), (*waiting[0], []))
        waiting.remove((met, item))
        reached.add(fold(met.relation.alias))
        count = count_rows_per_key(binder, item, met.relation, keys)
        if count is None:
            unknown.append((met.relation, keys))
        else:
            total *= max(1, count)
    return total, unknown


_Equalities = Mapping[str, Sequence[tuple[Field, Set[str | None]]]]
"""Columns that must equal something, with the owners of its parts, by folded alias."""


def _list_equalities(
    conditions: Sequence[Condition], relations: Mapping[str, Relation], names: Names
) -> _Equalities:
    found: dict[str, list[tuple[Field, Set[str | None]]]] = {alias: [] for alias in relations}
    owned: dict[int, list[str]] = {}
    for owner, item in names.fields():
        owned.setdefault(id(item), []).append(owner)

    def owner_of(node: exp.Column) -> str | None:
        """Return the folded alias of the relation that a column belongs to; None if ambiguous."""
        known = names.known(node)
        owners = owned.get(id(known), [])
        if not owners and names.outer is not None and names.elsewhere(node):
            return ""  # from the outer row
        return fold(owners[0]) if len(owners) == 1 else None

    for part, only in conditions:
        if not isinstance(part, exp.EQ):
            continue
        for mine, other in ((part.this, part.expression), (part.expression, part.this)):
            alias = owner_of(mine) if isinstance(mine, exp.Column) else None
            if alias is None or alias not in relations or only not in (None, alias) or other.find(exp.Query):
                continue
            field = next((f for f in relations[alias].fields if fold(f.name) == fold(mine.name)), None)
            kind = _typed(other, names)
            if field is not None and kind is not None and meets_exactly(field.typed.type, kind.type):
                found[alias].append((field, {owner_of(node) for node in other.find_all(exp.Column)}))
    return found


def _keys(met: MetRelation, reached: set[str], equal: _Equalities) -> list[Field]:
    tied = {name for name, owner in met.ties if owner in reached}
    keys = [f for f in met.relation.fields if fold(f.name) in tied]
    keys += [field for field, owners in equal[fold(met.relation.alias)] if owners <= reached]
    return list({id(key): key for key in keys}.values())


def _typed(node: exp.Expr, names: Names) -> Typed | None:
    try:
        return total_expressions.make_total(node, names)
    except (BindError, PrivacyError):
        return None


def refuse_fan_out(count: int, tables: Iterable[Table], node: exp.Expr) -> None:
    """Raise PrivacyError if a private row of a FROM joins too many public rows."""
    limit = max_fan_out(tables)
    if count > limit:
        raise privacy_error(
            node,
            f"one private row could meet {count:,} public rows here, and max_fan_out is {limit:,}.",
            "join on a key with fewer rows, or ask the owner for a larger max_fan_out (of a list, a max_length) in the "
            "policy.",
        )


def keep_first_rows(relation: Relation, source: exp.Expr, keys: list[Field], rows: int) -> exp.Expr:
    """Return a public source with at most ``rows`` rows per value of its keys, the first by all columns."""
    kept = keep_first(rows, [key.typed.node for key in keys], [f.typed.node for f in relation.fields])
    return choose_rows(relation, source, kept)


def number_rows(by: Iterable[exp.Expr], order: Iterable[exp.Expr]) -> exp.Window:
    """Return the number of a row among those with its key, in an order."""
    ordered = [exp.Ordered(this=node.copy(), nulls_first=False) for node in order]
    window = exp.Window(this=exp.RowNumber(), partition_by=[node.copy() for node in by], over="OVER")
    window.set("order", exp.Order(expressions=ordered) if ordered else None)
    return window


def keep_first(rows: int, by: Iterable[exp.Expr], order: Iterable[exp.Expr]) -> exp.Expr:
    """Return the condition that keeps the first rows of each key in an order."""
    return exp.LTE(this=number_rows(by, order), expression=exp.Literal.number(rows))


def choose_rows(
    relation: Relation, source: exp.Expr, condition: exp.Expr, short: Collection[Field] = ()
) -> exp.Expr:
    """Return a subquery of a source's rows that satisfy a condition over windows."""
    items = [
        (check_length(f.typed) if any(f is s for s in short) else f.typed.node, f.typed.node.name)
        for f in relation.fields
    ]
    moments = (f.typed.moment for f in relation.fields if f.typed.type.zone)
    items += [(moment, moment.name) for moment in moments if moment is not None]
    items += [(relation.unit, UNIT)] if relation.unit is not None else []
    query = exp.Select(expressions=[exp.alias_(node.copy(), column(name).this) for node, name in items])
    query.set("from_", exp.From(this=source.copy()))
    query.set("qualify", exp.Qualify(this=condition))
    return query.subquery(exp.to_identifier(relation.name), copy=False)


def bound_list_length(typed: Typed, tables: Iterable[Table]) -> int:
    """Return the most rows that UNNEST makes of a list: the greatest fan-out of a private row."""
    return min(length_of(typed), max_fan_out(tables))


def floor_root(total: int, sides: int) -> int:
    """Return the greatest number whose power ``sides`` is at most ``total``, and at least 1.

    >>> floor_root(10**6, 2), floor_root(10**6, 3), floor_root(999, 3)
    (1000, 100, 9)
    """
    low, high = 1, max(1, total)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**sides <= total else (low, middle - 1)
    return low


def limit_public(
    binder: Binder,
    bound: From,
    public: list[MetRelation],
    joins: list[exp.Join],
    where: list[exp.Expr],
    place: exp.Expr,
    outer: Names | None,
) -> None:
    """Count the public rows joined to a private row; if the number is unknown, cut the public side to the limit."""
    private = [r for r in bound.relations if r.private]
    if (not private and outer is None) or bound.row_level:
        return
    outside = any(join_word(join, "side") for join in joins)
    conditions: list[Condition] = [] if outside else [(part, None) for part in where]
    for i, join in enumerate(joins):
        # Rows of the left side that an outer join keeps may violate its condition.
        right = next((m.relation for m in public if m.join is join), None)
        alone = join_word(join, "side") in ("LEFT", "FULL") and (
            right is not None or _private_before(joins[:i], public)
        )
        only = None if not alone else fold(right.alias) if right is not None else ""
        conditions += [(part, only) for part in split_conjuncts(join.args.get("on"))]
    names = replace(bound.names, outer=outer)
    reached = {fold(r.alias) for r in private} | {""}
    meeting = [
        (m, place if m.join is None else m.join.this)
        for m in public
        if m.join is None or join_word(m.join, "kind") not in ("SEMI", "ANTI")
    ]
    count, unknown = count_fan_out(binder, meeting, reached, conditions, names)
    around = outer.fan_out if outer is not None else 1
    bound.meets_unknown = bool(unknown)
    bound.fan_out = math.prod([bound.fan_out * count, *(r.fan_out for r in private)])
    tables = [table for r in private for table in r.tables]
    if outer is not None:
        tables += [table for scope in outer.scopes() for r in scope.relations for table in r.tables]
    refuse_fan_out(bound.fan_out * around, tables, place)
    # Released groups are public, but their number is unknown before the release.
    for relation, keys in unknown:
        rows = floor_root(max_fan_out(tables) // (bound.fan_out * around), len(unknown))
        replace_source(bound, relation, lambda source: keep_first_rows(relation, source, keys, rows))  # noqa: B023


def _private_before(joins: Sequence[exp.Join], public: Sequence[MetRelation]) -> bool:
    """Return whether private rows precede a join: a FROM that starts with public rows has none until one joins them."""
    brought = [m.join for m in public]
    return None not in brought or any(not any(join is other for other in brought) for join in joins)


def replace_source(bound: From, relation: Relation, make: Callable[[exp.Expr], exp.Expr]) -> None:
    """Replace the source of one relation in a FROM, in place."""
    if bound.source.alias_or_name == relation.name:
        bound.source = make(bound.source)
    for join in bound.joins:
        if join.this.alias_or_name == relation.name:
            join.set("this", make(join.this))


def count_rows_per_key(binder: Binder, item: exp.Expr, relation: Relation, keys: list[Field]) -> int | None:
    """Return the most rows of a public FROM item with equal keys; None if unknown. A release has one row for its full key."""
    if relation.inputs:
        rows, names = relation.inputs[0].sql, [key.typed.node.name for key in keys]
    else:
        rows, names = Select("*", to_sql(column(item.name))).sql, [key.name for key in keys]
    if binder.is_unreleased(rows):
        return 1 if _is_one_group(binder, rows, names) else None

    def first(query: Select) -> int:
        return int(binder.finish.keep(query.sql, binder.public).column(0)[0].as_py())

    some = Subquery(Select("1", Subquery(rows, "t"), limit=_MOST_COUNTED), "t")
    total = first(Select(As("COUNT(*)::BIGINT", "n"), some))
    if not keys or total <= 1:
        return total
    by = tuple(to_sql(column(name)) for name in names)
    known = tuple(f"{name} IS NOT NULL" for name in by)
    each = Subquery(Select(ROW_COUNT, Subquery(rows, "t"), known, by), "g")
    return first(Select(As("COALESCE(MAX(n), 0)::BIGINT", "n"), each))


_MULTIPLYING = (exp.SetOperation, exp.Join, exp.Lateral, exp.Unnest, exp.Explode, exp.Values, exp.Pivot)


def _is_one_group(binder: Binder, rows: str, names: Collection[str]) -> bool:
    """Return whether rows of a public query with equal values in these columns are of one group of a release.

    The query reads one release, and no clause makes several rows of one; the columns are all keys of its groups.
    """
    tree = parse_select(rows)
    ctes = {cte.alias for cte in tree.find_all(exp.CTE)}
    tables = [table.name for table in tree.find_all(exp.Table) if table.name not in ctes]
    block = next((block for block in binder.blocks if tables == [block.name]), None)
    keys = None if block is None else binder.group_keys.get(block.name)
    if block is None or keys is None or tree.find(*_MULTIPLYING):
        return False
    known = PublicColumns(tree, {block.name: list_facts(block.name, [name for name, _ in block.columns])})
    released = [facts.released for name in names for facts in known.find_columns(tree, name)]
    return keys <= {found.name for found in released if found is not None and not found.casts}


# -- rows without a unit ---------------------------------------------------------------------------------------------

_STRICT = (
    exp.Paren, exp.Cast, exp.TryCast, exp.Try, exp.Neg, exp.Not, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod,
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.ILike, exp.Abs, exp.Round, exp.Floor, exp.Ceil,
    exp.Lower, exp.Upper, exp.Length, exp.TimestampTrunc, exp.DateTrunc,
)  # fmt: skip
"""Nodes that are NULL if a part of them is."""


def find_unmatched(
    before: Unmatched | None,
    join: exp.Join,
    on: Iterable[exp.Expr],
    private: tuple[bool, bool],
    lost: LostColumns,
) -> Unmatched | None:
    """Return the unmatched rows after a join of these ``private`` sides; ``lost``: from :func:`find_lost_columns`."""
    side, kind = (join_word(join, key) for key in ("side", "kind"))
    left, right = private
    known = tuple(on)
    if left != right and side in ("FULL", "RIGHT" if left else "LEFT"):
        return Unmatched(join, (*(before.on if before is not None else ()), *known))
    inner = not side and kind in ("", "INNER", "SEMI") and any(surely_fails(node, lost) for node in known)
    return None if inner or (side == "RIGHT" and right) else before


def surely_null(node: exp.Expr | None, lost: LostColumns) -> bool:
    """Return whether an expression of the exact query is certainly NULL on an unmatched row."""
    if isinstance(node, exp.Column):
        return (node.table, node.name) in lost
    if isinstance(node, exp.Null):
        return True
    if isinstance(node, exp.Case):
        ifs = node.args["ifs"]
        if node.this is not None and surely_null(node.this, lost):
            return surely_null(node.args.get("default") or exp.Null(), lost)
        outcomes = [branch.args["true"] for branch in ifs if node.this or not surely_fails(branch.this, lost)]
        return all(surely_null(found, lost) for found in (*outcomes, node.args.get("default") or exp.Null()))
    if isinstance(node, exp.Between | exp.In):
        return surely_null(node.this, lost)
    if isinstance(node, exp.Anonymous) and node.name.lower() not in STRICT_CALLS:
        return False
    if isinstance(node, (*_STRICT, exp.Anonymous)):
        return any(surely_null(part, lost) for part in node.iter_expressions())
    return False


def surely_fails(node: exp.Expr, lost: LostColumns) -> bool:
    """Return whether a condition of the exact query is certainly not true on an unmatched row."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And | exp.Or):
        both = [surely_fails(side, lost) for side in (node.this, node.expression)]
        return any(both) if isinstance(node, exp.And) else all(both)
    if isinstance(node, exp.Boolean):
        return not node.this
    if isinstance(node, exp.Not) and isinstance(bare := node.this.unnest(), exp.Is):
        return isinstance(bare.expression, exp.Null) and surely_null(bare.this, lost)
    return surely_null(node, lost)


def asks_for_unmatched(node: exp.Expr, lost: LostColumns) -> bool:
    """Return whether a condition selects unmatched rows: that a private column is NULL."""
    node = node.unnest()
    return isinstance(node, exp.Is) and isinstance(node.expression, exp.Null) and surely_null(node.this, lost)


def meets_whole_groups(found: Unmatched, keys: Iterable[exp.Expr], lost: LostColumns) -> bool:
    """Return whether private rows join all public rows of a group or none: the keys include the public join columns."""
    held = {(key.table, key.name) for key in keys if isinstance(key, exp.Column)}
    columns = (column for node in found.on for column in node.find_all(exp.Column))
    return not found.inside and all((c.table, c.name) in held | lost for c in columns)


def find_lost_columns(relations: Iterable[Relation]) -> LostColumns:
    """Return the columns of private relations that are NULL in unmatched rows."""
    private = [relation for relation in relations if relation.private]
    lost = [f.typed for r in private for f in r.fields if r.unmatched is None or f.lost]
    nodes = [node for typed in lost for node in (typed.node, typed.moment) if node is not None]
    nodes += [r.unit for r in private if r.unit is not None]
    return frozenset((node.table, node.name) for node in nodes if isinstance(node, exp.Column))


def add_unmatched(
    relation: Relation,
    found: Unmatched | None,
    lost: LostColumns,
    values: Iterable[exp.Expr],
    conditions: Iterable[exp.Expr],
) -> Relation:
    """Return a subquery's relation with the facts about its unmatched rows.

    ``found``: the outer join that keeps them in the subquery; ``lost``: the columns of the subquery's FROM that are
    NULL in them.
    """
    if found is None or any(surely_fails(node, lost) for node in conditions):
        return relation
    pairs = zip(relation.fields, values, strict=True)
    fields = tuple(replace(f, lost=surely_null(value, lost)) for f, value in pairs)
    return replace(relation, fields=fields, unmatched=replace(found, inside=True))
