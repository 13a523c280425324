"""A noisy block: SELECT WITH DP over private rows, bound, priced, and replaced by the relation it releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import BindError, PrivacyError
from dpsql.sql.dp.aggregates import Aggregate
from dpsql.sql.dp.build_operator import release
from dpsql.sql.dp.public_groups import Domain, public_domain
from dpsql.sql.dp.quantiles import each_quantile
from dpsql.sql.dp.quotients import read_as_mean
from dpsql.sql.dp.refusals import refuse_elsewhere, refuse_nobody, ungrouped
from dpsql.sql.dp.registry import TABLE, bind_aggregate
from dpsql.sql.exact.exact_query import Exact, GroupKey, write_membership
from dpsql.sql.expressions.types import Typed
from dpsql.sql.normalize import Env, label_of, make_unique, outer_queries, spell
from dpsql.sql.parse.dialect import expression_of, span_of, table_named, to_sql
from dpsql.sql.parse.options import Call, Options, call_of
from dpsql.sql.relations.intervals import interval_of, write_json_report
from dpsql.sql.relations.limits import split_conjuncts
from dpsql.sql.relations.privacy_unit import check_unit, describe_protection
from dpsql.sql.relations.projections import substitute_aliases
from dpsql.sql.relations.relation import From, Names, column, fold

if TYPE_CHECKING:
    from dpsql.sql.relations.context import Binder


@dataclass
class Block:
    """Collects the keys and aggregates of one block while its clauses are rewritten."""

    binder: Binder
    select: exp.Select
    bound: From
    options: Options
    env: Env
    name: str
    names: Names = field(init=False)
    named: dict[str, exp.Expr] = field(init=False)
    """What the SELECT list calls by a name, over the rows."""
    exact: Exact = field(init=False)
    domain: Domain | None = None
    keys: dict[str, GroupKey] = field(default_factory=dict)
    aggregates: dict[str, Aggregate] = field(default_factory=dict)
    conditions: list[exp.Expr] = field(default_factory=list)
    """What WHERE asks of every row, in terms of the exact query."""
    key_nodes: list[exp.Expr] = field(default_factory=list)
    """The keys in terms of the exact query."""

    def __post_init__(self) -> None:
        self.names = self.bound.names
        self.named = {
            fold(item.alias): item.this.copy()
            for item in self.select.expressions
            if isinstance(item, exp.Alias) and not self._has_aggregate(item) and not item.find(exp.Window)
        }

    # -- what aggregates ask ------------------------------------------------------------------------------------

    def expression(self, node: exp.Expr) -> Typed:
        node = substitute_aliases(node, self.named, self.names)
        for inner in node.walk(prune=lambda n: isinstance(n, exp.Query)):
            if (call := call_of(inner)) is not None and call.name in TABLE:
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
        return PrivacyError(f"{call.name} {where}.", span=span_of(node), hint=hint)

    def condition(self, node: exp.Expr) -> Typed:
        typed = self.expression(node)
        if typed.type.kind not in ("BOOLEAN", "NULL"):
            raise BindError(f"a condition is needed, and this is {typed.type.sql}.", span=span_of(node))
        return typed

    def where(self) -> str | None:
        """The WHERE of the exact query, which may say something of public groups."""
        where = self.select.args.get("where")
        if where is None:
            return None
        node = self.condition(where.this).node
        self.conditions = split_conjuncts(node)
        return to_sql(node)

    def filtered(self, call: Call, sql: str) -> str:
        """The expression where the FILTER holds, NULL elsewhere."""
        if call.where is None:
            return sql
        return f"CASE WHEN {to_sql(self.condition(call.where).node)} THEN {sql} END"

    def is_unit(self, node: exp.Expr) -> bool:
        item = self.names.known(node)
        return item is not None and item.is_unit

    def is_constant(self, node: exp.Expr) -> bool:
        return isinstance(node, exp.Literal)

    def source(self, node: exp.Expr) -> str:
        return to_sql(node)

    def label(self, call: Call) -> str:
        return label_of(call)

    def moves(self, sensitivity: int, steps: Fraction | int = 1) -> str:
        shown = Fraction(sensitivity) / Fraction(steps)
        where = "in one group" if self.keys else "in all"
        return f"one privacy unit moves this by at most {float(shown):g} {where}"

    # -- binding ------------------------------------------------------------------------------------------------

    def bind(self) -> None:
        """Keys first (they decide the bounding), then every clause above them."""
        condition = self.where()
        distinct = self.select.args.get("distinct")
        if distinct is not None and distinct.args.get("on") is not None:
            raise PrivacyError(
                "DISTINCT ON chooses rows, and here they are private.",
                span=span_of(distinct.args["on"]),
                hint="aggregate in a subquery first, and choose from its answer.",
            )
        if distinct and not self.select.args.get("group"):
            self.select.set("group", exp.Group(all=True))
            self.select.set("distinct", None)
        within = self.select.meta.get("dpsql_within")
        if within:
            condition = self._inside(within, condition)
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

    def _inside(self, within: list[exp.Expr], condition: str | None) -> str:
        """Holds the rows to those of the public groups of all these keys: only then do grouping sets add up."""
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
        out = []
        aliases = {
            fold(item.alias): item.this for item in self.select.expressions if isinstance(item, exp.Alias)
        }
        for node in group.expressions:
            if isinstance(node, exp.Literal) and not node.is_string:
                place = int(node.name) if node.name.isdigit() else 0
                if not 1 <= place <= len(self.select.expressions):
                    raise BindError("GROUP BY counts the columns of the SELECT from 1.", span=span_of(node))
                node = self.select.expressions[place - 1].unalias()
            elif isinstance(node, exp.Column) and not node.table and fold(node.name) in aliases:
                known = {fold(f.name) for _, f in self.names.fields()}
                node = aliases[fold(node.name)] if fold(node.name) not in known else node
            out.append(node)
        return out

    def _has_aggregate(self, node: exp.Expr) -> bool:
        return any((call := call_of(n)) is not None and call.name in TABLE for n in node.walk())

    def _keys(self, expressions: list[exp.Expr]) -> tuple[tuple[GroupKey, ...], list[tuple[GroupKey, Typed]]]:
        pairs: list[tuple[GroupKey, Typed]] = []
        for node in expressions:
            if node.is_star:
                raise PrivacyError("rows can't be grouped by all of their columns.", span=span_of(node))
            unit = next((c for c in node.find_all(exp.Column) if self.is_unit(c)), None)
            if unit is not None:
                raise PrivacyError(
                    "the privacy unit can't be a group: each group would be one unit."
                    if unit is node
                    else "groups can't be made of the privacy unit.",
                    span=span_of(node),
                    hint=f"COUNT(DISTINCT {unit.name}) counts the units; totals per {unit.name} may stand in a subquery.",
                )
            named = self.names.known(node)
            if named is not None and named.anchors:
                raise PrivacyError(
                    f"{node.name} leads to one privacy unit: each group would be one unit.",
                    span=span_of(node),
                    hint=f"group by what units share; totals per {node.name} may stand in a subquery.",
                )
            typed = self.expression(node)
            if typed.type.kind == "DOUBLE":
                raise PrivacyError(
                    "numbers with fractions make no stable groups.",
                    span=span_of(node),
                    hint="group by FLOOR(x)::INTEGER or a CASE of ranges.",
                )
            if typed.type.two_faced:
                raise PrivacyError(
                    f"equal values of {typed.type.sql} may look different, so they make no stable groups.",
                    span=span_of(node),
                    hint="group by a number made of it, such as FLOOR(EPOCH(x))::BIGINT of an interval.",
                )
            text = self.spelling(node)
            if text not in self.keys:
                key = GroupKey(f"k{len(self.keys)}", to_sql(typed.node), typed.type.sql)
                self.keys[text] = key
                pairs.append((key, typed))
        self.key_nodes = [typed.node for _, typed in pairs]
        return tuple(key for key, _ in pairs), pairs

    def spelling(self, node: exp.Expr) -> str:
        """One spelling for equal expressions: columns by the field they mean."""
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
        """L0: how many groups a unit may touch."""
        asked = self.options.get("max_groups_contributed")
        rows = self.options.get("max_rows_contributed")
        if asked is not None and rows is not None:
            raise self.options.refuse(
                "max_rows_contributed", "max_groups_contributed and max_rows_contributed exclude each other.",
                "give one of the two.",
            )  # fmt: skip
        if self.bound.row_level:
            return 1
        if not self.keys or rows is not None:
            return None
        if asked is not None:
            return int(asked)
        if self.bound.max_groups is not None:
            return self.bound.max_groups
        raise PrivacyError(
            "nothing says how many groups one privacy unit may be in.",
            span=span_of(self.select.args["group"]) or span_of(self.select),
            hint="write OPTIONS (max_groups_contributed = 3), or ask the owner for max_groups.",
        )

    # -- the clauses above --------------------------------------------------------------------------------------

    def _clauses(self) -> None:
        select = self.select
        aliases: dict[str, exp.Expr] = {}
        shown: list[exp.Expr] = []
        labels: list[str] = []
        for item in select.expressions:
            if item.is_star:
                raise PrivacyError(
                    f"rows of {self.bound.subject} can't be released.",
                    span=span_of(item),
                    hint=f"try SELECT COUNT(*) FROM {self.bound.subject}.",
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
                    raise BindError(
                        "QUALIFY needs a window function.", span=span_of(clause), hint="write HAVING."
                    )
        for query in [
            q for key in ("limit", "offset") for q in outer_queries(select.args.get(key) or exp.Null())
        ]:
            self.above(query, {})
        self.release()
        for key in ("joins", "where", "group", "having"):
            select.set(key, None)
        select.set("from_", exp.From(this=table_named(self.name)))
        if where:
            select.set("where", exp.Where(this=where[0]))
        names = make_unique(labels)
        select.set("expressions", [exp.alias_(e, n, quoted=True) for e, n in zip(shown, names, strict=True)])
        by_name = self.with_intervals
        select.meta["dpsql_intervals"] = [
            (n, *ends)
            for n, e in zip(names, shown, strict=True)
            if (ends := interval_of(e, by_name)) is not None
        ]

    @property
    def with_intervals(self) -> Mapping[str, object]:
        """Released columns that have an interval."""
        return {a.name: a for a in self.aggregates.values() if a.intervals}

    def _label(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Column):
            return node.name
        call = call_of(node)
        return label_of(call) if call is not None and call.name in TABLE else spell(node)

    def above(self, node: exp.Expr, aliases: dict[str, exp.Expr]) -> exp.Expr:
        """The expression as the finished statement writes it: keys and aggregates are columns of the release."""
        if isinstance(node, exp.Query):
            if self.binder.query(node, self.env, inner=False) is not None:
                raise PrivacyError("private rows can't stand here.", span=span_of(node))
            return node
        if not isinstance(node, exp.Literal | exp.Star | exp.Boolean | exp.Null):
            found = self._key(node)
            if found is not None:
                return found
        mean = read_as_mean(self, node)
        node = node if mean is None else mean
        call = call_of(node)
        if call is not None and call.name in TABLE and not isinstance(node, exp.Window):
            listed = [self.above(one, aliases) for one in each_quantile(node, call)]
            return exp.Array(expressions=listed) if listed else self._aggregate(call)
        refuse_elsewhere(node)
        if isinstance(node, exp.Column):
            known = aliases.get(fold(node.name)) if not node.table else None
            if known is not None:
                return exp.paren(known.copy())
            self.expression(node)
            if self.is_unit(node):
                raise PrivacyError(
                    f"{node.name} is the privacy unit: it is never released.",
                    span=span_of(node),
                    hint="COUNT(DISTINCT ...) counts the units.",
                )
            raise ungrouped(self, node)
        if isinstance(node, exp.Anonymous) and node.name.lower().startswith("dpsql__"):
            raise BindError(f"{node.name[7:].upper()} takes no named arguments.", span=span_of(node))
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
        text = self._spelling_of_call(call)
        if text not in self.aggregates:
            refuse_nobody(self, call)
            taken = [*(key.name for key in self.keys.values()), *(a.name for a in self.aggregates.values())]
            self.aggregates[text] = bind_aggregate(self, call, make_unique([*taken, label_of(call)])[-1])
        found = self.aggregates[text]
        if found.report == "JSON":
            return write_json_report(found.name, self.confidence)
        if found.shown is not None:
            return expression_of(found.shown(to_sql(column(found.name))))
        return (
            exp.cast(column(found.name), found.type, dialect="duckdb")
            if found.type != "BIGINT"
            else column(found.name)
        )

    def _spelling_of_call(self, call: Call) -> str:
        return to_sql(call.node)

    # -- the price ----------------------------------------------------------------------------------------------

    @property
    def confidence(self) -> float:
        return self.options.confidence

    def release(self) -> None:
        """Deals out the budget, makes the operator, and gives the block to the plan."""
        release(self)

    def sentences(self, aggregates: list[Aggregate]) -> tuple[str, ...]:
        return (*describe_protection(self.bound, self.exact.max_rows, self.exact.row_budget), *self._grouping(),
                *(f"{a.label}: {a.said}." for a in aggregates))  # fmt: skip

    def _grouping(self) -> tuple[str, ...]:
        if not self.keys:
            return ()
        limit = f"one privacy unit counts in at most {self.per_unit_groups} of them"
        if self.domain is not None:
            return (f"Groups are public ({self.domain.origin}): all of them appear; {limit}.",)
        return (f"Groups are private: each is shown by the number of its privacy units; {limit}.",)


def dp_block(binder: Binder, select: exp.Select, bound: From, options: Options, env: Env) -> Block:
    """Binds SELECT WITH DP in place."""
    block = Block(binder, select, bound, options, env, binder.name("block"))
    block.bind()
    return block
