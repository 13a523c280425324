"""A noisy block: SELECT WITH DP over private rows, bound, priced, and replaced by the relation it releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import BindError, PrivacyError
from dpsql.sql.dp.aggregates import BlockOutput
from dpsql.sql.dp.budget_split import require_groups
from dpsql.sql.dp.build_operator import release
from dpsql.sql.dp.own_queries import split_quantiles
from dpsql.sql.dp.public_groups import Domain, public_domain
from dpsql.sql.dp.registry import (
    TABLE,
    bind_aggregate,
    read_as_mean,
    refuse_elsewhere,
    refuse_nobody,
    refuse_ungrouped,
)
from dpsql.sql.exact.exact_query import Exact, GroupKey, write_membership
from dpsql.sql.expressions.types import Typed
from dpsql.sql.normalize import Env, label_of, make_unique, outer_queries, resolve_key, spell
from dpsql.sql.parse.dialect import bind_error, privacy_error, table_named, to_sql
from dpsql.sql.parse.options import Call, Options, call_of
from dpsql.sql.public_side import Released, install
from dpsql.sql.relations.fan_out import split_conjuncts
from dpsql.sql.relations.projections import substitute_aliases
from dpsql.sql.relations.relation import From, Names, column, fold
from dpsql.sql.relations.unit_rows import check_unit, describe_protection

if TYPE_CHECKING:
    from dpsql.sql.relations.catalog import Binder


@dataclass
class Block:
    """Collects the keys and aggregates of one block while its clauses are rewritten."""

    binder: Binder
    select: exp.Select
    bound: From
    options: Options
    env: Env
    within: Sequence[exp.Expr] = ()
    """Keys to whose public groups rows are held, for the cells of grouping sets to add up."""
    name: str = field(init=False)
    names: Names = field(init=False)
    named: dict[str, exp.Expr] = field(init=False)
    """What the SELECT list calls by a name, over the rows."""
    exact: Exact = field(init=False)
    domain: Domain | None = None
    keys: dict[str, GroupKey] = field(default_factory=dict)
    asked: dict[str, BlockOutput] = field(default_factory=dict)
    """Aggregates by the spelling of their calls."""
    conditions: list[exp.Expr] = field(default_factory=list)
    """What WHERE asks of every row, in terms of the exact query."""
    key_nodes: list[exp.Expr] = field(default_factory=list)
    """The keys in terms of the exact query."""

    def __post_init__(self) -> None:
        self.name = self.binder.name("block")
        self.names = self.bound.names
        self.named = {
            fold(item.alias): item.this.copy()
            for item in self.select.expressions
            if isinstance(item, exp.Alias) and not self._has_aggregate(item) and not item.find(exp.Window)
        }

    # -- what aggregates ask ------------------------------------------------------------------------------------

    def expression(self, node: exp.Expr) -> Typed:
        """Return an expression over the rows, which can't fail."""
        node = substitute_aliases(node, self.named, self.names)
        for inner in node.walk(prune=lambda n: isinstance(n, exp.Query)):
            if (call := Block._call(self, inner)) is not None:
                raise self._misplaced(call, inner)
        return self.binder.expression(node, self.names, self.env)[0]

    def _misplaced(self, call: Call, node: exp.Expr) -> PrivacyError:
        where, hint = "stands inside another aggregate", "aggregate in a subquery first."
        if node.find_ancestor(exp.Where) is self.select.args.get("where") is not None:
            where, hint = (
                "can't stand in WHERE",
                f"write HAVING {to_sql(call.node)} ..., which looks at the noisy value.",
            )
        elif node.find_ancestor(exp.Group) is self.select.args.get("group") is not None:
            where, hint = (
                "can't be a group",
                "group by columns; the noisy value may be a group in an outer SELECT.",
            )
        return privacy_error(node, f"{call.name} {where}.", hint)

    def condition(self, node: exp.Expr) -> Typed:
        """Return a condition on the rows, which can't fail."""
        typed = self.expression(node)
        if typed.type.kind not in ("BOOLEAN", "NULL"):
            raise bind_error(node, f"a condition is needed, and this is {typed.type.sql}.")
        return typed

    def where(self) -> str | None:
        """Return the WHERE of the exact query, and note what it says of public groups."""
        where = self.select.args.get("where")
        if where is None:
            return None
        node = self.condition(where.this).node
        self.conditions = split_conjuncts(node)
        return to_sql(node)

    def filtered(self, call: Call, sql: str) -> str:
        """Return an expression that is NULL where the FILTER does not hold."""
        if call.where is None:
            return sql
        return f"CASE WHEN {to_sql(self.condition(call.where).node)} THEN {sql} END"

    def is_unit(self, node: exp.Expr) -> bool:
        """Say whether a node names the privacy unit."""
        item = self.names.known(node)
        return item is not None and item.is_unit

    def say_sensitivity(self, sensitivity: int, steps: Fraction | int = 1) -> str:
        """Say for EXPLAIN how far one unit moves a total."""
        shown = Fraction(sensitivity) / Fraction(steps)
        where = "in one group" if self.keys else "in all"
        return f"one privacy unit moves this by at most {float(shown):g} {where}"

    # -- binding ------------------------------------------------------------------------------------------------

    def bind(self) -> None:
        """Bind the keys first (they decide the bounding), then every clause above them."""
        condition = self.where()
        distinct = self.select.args.get("distinct")
        if distinct is not None and distinct.args.get("on") is not None:
            raise privacy_error(
                distinct.args["on"],
                "DISTINCT ON chooses rows, and here they are private.",
                "aggregate in a subquery first, and choose from its answer.",
            )
        if distinct and not self.select.args.get("group"):
            self.select.set("group", exp.Group(all=True))
            self.select.set("distinct", None)
        if self.within:
            condition = self._inside(self.within, condition)
        expressions = self._group_expressions()
        check_unit(self.options, self.names, self.bound.subject)
        keys, typed = self._keys(expressions)
        self.domain = public_domain(self, typed) if keys else None
        self._check_strategy()
        groups = self._groups()
        size = self.domain.size if self.domain is not None else None
        rows = self.options.get("max_rows_contributed")
        free = size is not None and groups is not None and size <= groups and rows is None
        self.per_unit_groups = min(x for x in (groups, size, rows) if x is not None) if keys else 1
        self.exact = Exact(
            self.bound, condition, keys, self.bound.max_rows, None if free or not keys else groups, rows,
            self.domain.sql if self.domain is not None else None,
            self.domain is not None and self.domain.nullable,
        )  # fmt: skip
        if rows is not None and not self.bound.row_level and not keys:
            self.exact.groups = None
        self._clauses()

    def _inside(self, within: Sequence[exp.Expr], condition: str | None) -> str:
        """Hold the rows to those of the public groups of all these keys: only then do grouping sets add up."""
        pairs = []
        for i, node in enumerate(within):
            typed = self.expression(node)
            pairs.append((GroupKey(f"w{i}", to_sql(typed.node), typed.type.sql), typed))
        domain = public_domain(self, pairs)
        if domain is None:
            raise self.options.refuse(
                "consistent", "cells are made to add up only where all groups are public.",
                "leave consistent out, or ask the owner to declare the columns' values.", PrivacyError,
            )  # fmt: skip
        values, names = [f"({k.sql})" for k, _ in pairs], [k.name for k, _ in pairs]
        groups = f"({domain.sql})" if domain.nullable else f"({domain.sql}) AS within"
        inside = write_membership(values, names, groups, domain.nullable)
        return f"({condition}) AND {inside}" if condition else inside

    def _group_expressions(self) -> list[exp.Expr]:
        group = self.select.args.get("group")
        if group is None:
            return []
        if group.args.get("all"):
            return [item.unalias() for item in self.select.expressions if not self._has_aggregate(item)]
        known = {fold(f.name) for _, f in self.names.fields()}
        return [resolve_key(n, self.select, lambda c: fold(c.name) in known) for n in group.expressions]

    def _has_aggregate(self, node: exp.Expr) -> bool:
        return any(self._call(n) is not None for n in node.walk())

    def _keys(self, expressions: list[exp.Expr]) -> tuple[tuple[GroupKey, ...], list[tuple[GroupKey, Typed]]]:
        pairs: list[tuple[GroupKey, Typed]] = []
        for node in expressions:
            if node.is_star:
                raise privacy_error(node, "rows can't be grouped by all of their columns.")
            unit = next((c for c in node.find_all(exp.Column) if self.is_unit(c)), None)
            if unit is not None:
                raise privacy_error(
                    node,
                    "the privacy unit can't be a group: each group would be one unit."
                    if unit is node
                    else "groups can't be made of the privacy unit.",
                    f"COUNT(DISTINCT {unit.name}) counts the units; totals per {unit.name} may stand in a subquery.",
                )
            named = self.names.known(node)
            if named is not None and named.anchors:
                raise privacy_error(
                    node,
                    f"{node.name} leads to one privacy unit: each group would be one unit.",
                    f"group by what units share; totals per {node.name} may stand in a subquery.",
                )
            typed = self.expression(node)
            if typed.type.kind == "DOUBLE":
                raise privacy_error(
                    node,
                    "numbers with fractions make no stable groups.",
                    "group by FLOOR(x)::INTEGER or a CASE of ranges.",
                )
            if typed.type.two_faced:
                raise privacy_error(
                    node,
                    f"equal values of {typed.type.sql} may look different, so they make no stable groups.",
                    "group by a number made of it, such as FLOOR(EPOCH(x))::BIGINT of an interval.",
                )
            text = self.spelling(node)
            if text not in self.keys:
                key = GroupKey(f"k{len(self.keys)}", to_sql(typed.node), typed.type.sql)
                self.keys[text] = key
                pairs.append((key, typed))
        self.key_nodes = [typed.node for _, typed in pairs]
        return tuple(key for key, _ in pairs), pairs

    def spelling(self, node: exp.Expr) -> str:
        """Return one spelling for equal expressions: columns by the field they mean."""
        node = node.copy()
        for found in list(node.find_all(exp.Column)):
            if not found.is_star:
                item = self.names.known(found)
                if item is None:  # a field of a struct, written like a column
                    continue
                exact = item.typed.node.copy()
                if found is node:
                    return to_sql(exact)
                found.replace(exact)
        return to_sql(node)

    def _check_strategy(self) -> None:
        strategy = self.options.get("group_selection_strategy")
        if strategy == "PUBLIC_GROUPS" and self.keys and self.domain is None:
            raise self.options.refuse(
                "group_selection_strategy", "these groups are not public.",
                "join a public table of the groups with RIGHT JOIN, or ask the owner to declare the column's values.",
                PrivacyError,
            )  # fmt: skip
        if "min_privacy_units_per_group" in self.options.values and self.keys and self.domain is not None:
            raise self.options.refuse(
                "min_privacy_units_per_group", "these groups are public: all of them appear, however few units they have.",
                "leave it out, or write HAVING COUNT(DISTINCT ...) >= 10, which looks at the noisy number.",
            )  # fmt: skip

    def _groups(self) -> int | None:
        """Return how many groups a unit may touch; None where nothing needs to bound them."""
        rows = self.options.get("max_rows_contributed")
        if self.options.get("max_groups_contributed") is not None and rows is not None:
            raise self.options.refuse(
                "max_rows_contributed", "max_groups_contributed and max_rows_contributed exclude each other.",
                "give one of the two.",
            )  # fmt: skip
        if not self.bound.row_level and (not self.keys or rows is not None):
            return None
        return require_groups(self.bound, self.options, self.select.args.get("group") or self.select)

    # -- the clauses above --------------------------------------------------------------------------------------

    def _clauses(self) -> None:
        select = self.select
        aliases: dict[str, exp.Expr] = {}
        shown: list[exp.Expr] = []
        labels: list[str] = []
        for item in select.expressions:
            if item.is_star:
                raise privacy_error(
                    item,
                    f"rows of {self.bound.subject} can't be released.",
                    f"try SELECT COUNT(*) FROM {self.bound.subject}.",
                )
            inner = item.unalias()
            labels.append(item.alias if isinstance(item, exp.Alias) else self._label(inner))
            above = self.above(inner, aliases)
            shown.append(above)
            if isinstance(item, exp.Alias):
                aliases[fold(item.alias)] = above
        where = [self.above(select.args["having"].this, aliases)] if select.args.get("having") else []
        for key in ("qualify", "order"):
            clause = select.args.get(key)
            if clause is not None:
                for node in list(clause.expressions) if key == "order" else [clause]:
                    node.set("this", self.above(node.this, aliases))
                if key == "qualify" and clause.find(exp.Window) is None:
                    hint = "write HAVING."
                    raise bind_error(clause, "QUALIFY needs a window function.", hint)
        for key in ("limit", "offset"):
            for query in outer_queries(select.args.get(key) or exp.Null()):
                self.binder.public_query(query, self.env)
        self.release()
        install(
            select, table_named(self.name), list(zip(make_unique(labels), shown, strict=True)), self.released
        )
        if where:
            select.set("where", exp.Where(this=where[0]))

    @property
    def released(self) -> list[Released]:
        """The columns of the release: keys, then aggregates."""
        keys = [Released(key.name, key.type) for key in self.keys.values()]
        return [*keys, *(Released(item.name, item.type, item.intervals) for item in self.asked.values())]

    def _call(self, node: exp.Expr) -> Call | None:
        """Return the call of an aggregate that this mode releases; None for any other node."""
        call = call_of(node)
        return call if call is not None and call.name in TABLE else None

    def _label(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Column):
            return node.name
        call = self._call(node)
        return label_of(call) if call is not None else spell(node)

    def above(self, node: exp.Expr, aliases: dict[str, exp.Expr]) -> exp.Expr:
        """Return an expression of the finished statement: keys and aggregates are columns of the release."""
        if isinstance(node, exp.Query):
            self.binder.public_query(node, self.env)
            return node
        if not isinstance(node, exp.Literal | exp.Star | exp.Boolean | exp.Null):
            found = self._key(node)
            if found is not None:
                return found
        mean = read_as_mean(self, node)
        node = node if mean is None else mean
        call = self._call(node)
        if call is not None and not isinstance(node, exp.Window):
            listed = [self.above(one, aliases) for one in split_quantiles(node, call)]
            return exp.Array(expressions=listed) if listed else self._aggregate(call)
        refuse_elsewhere(node)
        if isinstance(node, exp.Column):
            known = aliases.get(fold(node.name)) if not node.table else None
            if known is not None:
                return exp.paren(known.copy())
            self.expression(node)
            if self.is_unit(node):
                raise privacy_error(
                    node,
                    f"{node.name} is the privacy unit: it is never released.",
                    "COUNT(DISTINCT ...) counts the units.",
                )
            raise refuse_ungrouped(self, node)
        if isinstance(node, exp.Anonymous) and node.name.lower().startswith("dpsql__"):
            raise bind_error(node, f"{node.name[7:].upper()} takes no named arguments.")
        return self._children(node, aliases)

    def _children(self, node: exp.Expr, aliases: dict[str, exp.Expr]) -> exp.Expr:
        inner = (
            node.this.this
            if isinstance(node, exp.Window) and isinstance(node.this, exp.Filter)
            else node.this
        )
        if isinstance(node, exp.Window) and isinstance(inner, exp.AggFunc):
            # A window above the block: its own function runs over released rows, only its arguments are ours.
            function: exp.Expr | None = node.this
            filtered = [node.this.expression] if node.this is not inner else []
            for child in [*inner.iter_expressions(), *filtered]:
                child.replace(self.above(child, aliases))
        else:
            function = None
        children: list[exp.Expr] = [child for child in node.iter_expressions() if child is not function]
        for part in children:
            new = self.above(part, aliases)
            if new is not part:
                part.replace(new)
        return node

    def _key(self, node: exp.Expr) -> exp.Expr | None:
        if not self.keys:
            return None
        try:
            text = self.spelling(node)
        except BindError:
            return None
        key = self.keys.get(text)
        return column(key.name) if key is not None else None

    def _aggregate(self, call: Call) -> exp.Expr:
        """Return what stands for a call above the block; equal calls are one aggregate."""
        text = to_sql(call.node)
        if text not in self.asked:
            refuse_nobody(self, call)
            taken = [*(key.name for key in self.keys.values()), *(item.name for item in self.asked.values())]
            name = make_unique([*taken, self._name_of(call, text)])[-1]
            self.asked[text] = self._bind_call(call, name)
        return self.asked[text].express(self.confidence)

    def _name_of(self, call: Call, text: str) -> str:
        return label_of(call)

    def _bind_call(self, call: Call, name: str) -> BlockOutput:
        return bind_aggregate(self, call, name)

    # -- the price ----------------------------------------------------------------------------------------------

    @property
    def confidence(self) -> float:
        """The level of the intervals."""
        return self.options.confidence

    def release(self) -> None:
        """Deal out the budget, make the operator, and give the block to the plan."""
        release(self)

    def sentences(self, said: tuple[str, ...]) -> tuple[str, ...]:
        """Return what EXPLAIN says: who is describe_protection, which groups there are, and what each aggregate computes."""
        return (
            *describe_protection(self.bound, self.exact.max_rows, self.exact.row_budget),
            *self._grouping(),
            *said,
        )

    def _grouping(self) -> tuple[str, ...]:
        if not self.keys:
            return ()
        limit = f"one privacy unit counts in at most {self.per_unit_groups} of them"
        if self.domain is not None:
            return (f"Groups are public ({self.domain.origin}): all of them appear; {limit}.",)
        return (f"Groups are private: each is shown by the number of its privacy units; {limit}.",)


def dp_block(
    binder: Binder,
    select: exp.Select,
    bound: From,
    options: Options,
    env: Env,
    within: Sequence[exp.Expr] = (),
) -> Block:
    """Bind SELECT WITH DP in place."""
    block = Block(binder, select, bound, options, env, within)
    block.bind()
    return block
