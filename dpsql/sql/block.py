"""A noisy block: SELECT WITH DP over private rows, bound, priced, and replaced by the relation it releases."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql import plan
from dpsql.errors import BindError, BudgetExceeded, PrivacyError
from dpsql.mechanisms import additive, partition
from dpsql.sql.aggregates import TABLE, Aggregate, bind_aggregate
from dpsql.sql.dialect import parse_fragment, span_of, to_sql
from dpsql.sql.domain import Domain, public_domain
from dpsql.sql.joins import From
from dpsql.sql.naming import fresh_names, label_of
from dpsql.sql.options import Call, Options, call_of
from dpsql.sql.relation import Names, column, fold
from dpsql.sql.rewrite import UNITS, Exact, Key
from dpsql.sql.types import Typed

if TYPE_CHECKING:
    from dpsql.sql.bind import Binder, Env


@dataclass
class Share:
    """The block's epsilon and delta, and how they are dealt out."""

    epsilon: Fraction
    delta: Fraction
    parts: list[Fraction]
    delta_parts: int


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
    exact: Exact = field(init=False)
    domain: Domain | None = None
    keys: dict[str, Key] = field(default_factory=dict)
    aggregates: dict[str, Aggregate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = self.bound.names

    # -- what aggregates ask ------------------------------------------------------------------------------------

    def expression(self, node: exp.Expression) -> Typed:
        for inner in node.walk():
            if (call := call_of(inner)) is not None and call.name in TABLE:
                raise PrivacyError(
                    f"{call.name} stands inside another aggregate.",
                    span=span_of(inner),
                    hint="aggregate in a subquery first.",
                )
        return self.binder.expression(node, self.names, self.env)[0]

    def condition(self, node: exp.Expression) -> Typed:
        typed = self.expression(node)
        if typed.type.kind not in ("BOOLEAN", "NULL"):
            raise BindError(f"a condition is needed, and this is {typed.type.sql}.", span=span_of(node))
        return typed

    def is_unit(self, node: exp.Expression) -> bool:
        return isinstance(node, exp.Column) and not node.is_star and self.names.find(node).is_unit

    def is_constant(self, node: exp.Expression) -> bool:
        return isinstance(node, exp.Literal)

    def source(self, node: exp.Expression) -> str:
        return to_sql(node)

    def label(self, call: Call) -> str:
        return label_of(call)

    def moves(self, sensitivity: int, steps: Fraction | int = 1) -> str:
        shown = Fraction(sensitivity) / Fraction(steps)
        where = "in one group" if self.keys else "in all"
        return f"one privacy unit moves this by at most {float(shown):g} {where}"

    def count_distinct(self, call: Call, name: str, options: dict[str, object]) -> Aggregate:
        raise PrivacyError(
            "COUNT(DISTINCT ...) counts privacy units only.",
            span=span_of(call.node),
            hint="group by the column, and count the groups of the answer.",
        )

    # -- binding ------------------------------------------------------------------------------------------------

    def bind(self) -> None:
        """Keys first (they decide the bounding), then every clause above them."""
        where = self.select.args.get("where")
        condition = to_sql(self.condition(where.this).node) if where else None
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
        expressions = self._group_expressions()
        self._check_unit_option()
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
        )  # fmt: skip
        if rows is not None and not self.bound.row_level and not keys:
            self.exact.groups = None
        self._clauses()

    def _group_expressions(self) -> list[exp.Expression]:
        group = self.select.args.get("group")
        if group is None:
            return []
        for kind in ("rollup", "cube", "grouping_sets"):
            if group.args.get(kind):
                raise PrivacyError(
                    f"{kind.replace('_', ' ').upper()} is not answered yet in one block.",
                    span=span_of(group.args[kind][0]),
                    hint="write one block per grouping and put them together with UNION ALL.",
                )
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

    def _has_aggregate(self, node: exp.Expression) -> bool:
        return any((call := call_of(n)) is not None and call.name in TABLE for n in node.walk())

    def _keys(self, expressions: list[exp.Expression]) -> tuple[tuple[Key, ...], list[tuple[Key, Typed]]]:
        pairs: list[tuple[Key, Typed]] = []
        for node in expressions:
            if node.is_star:
                raise PrivacyError("rows can't be grouped by all of their columns.", span=span_of(node))
            if any(self.is_unit(c) for c in node.find_all(exp.Column)):
                raise PrivacyError(
                    "the privacy unit can't be a group: each group would be one unit.",
                    span=span_of(node),
                    hint="COUNT(DISTINCT ...) counts the units.",
                )
            typed = self.expression(node)
            if typed.type.kind == "DOUBLE":
                raise PrivacyError(
                    "numbers with fractions make no stable groups.",
                    span=span_of(node),
                    hint="group by FLOOR(x)::INTEGER or a CASE of ranges.",
                )
            text = self._spelling(node)
            if text not in self.keys:
                key = Key(f"k{len(self.keys)}", to_sql(typed.node), typed.type.sql)
                self.keys[text] = key
                pairs.append((key, typed))
        return tuple(key for key, _ in pairs), pairs

    def _spelling(self, node: exp.Expression) -> str:
        """One spelling for equal expressions: columns by the field they mean."""
        node = node.copy()
        for found in list(node.find_all(exp.Column)):
            if not found.is_star:
                exact = self.names.find(found).typed.node.copy()
                if found is node:
                    return to_sql(exact)
                found.replace(exact)
        return to_sql(node)

    def _check_unit_option(self) -> None:
        named = self.options.get("privacy_unit_column")
        if named is None:
            return
        units = {fold(f.name) for _, f in self.names.fields() if f.is_unit}
        if fold(named) not in units:
            raise self.options.refuse(
                "privacy_unit_column", f"{named} is not the privacy unit of {self.bound.subject}.",
                "the policy declares the unit; a query can restate it, never change it.", PrivacyError,
            )  # fmt: skip

    def _check_strategy(self) -> None:
        strategy = self.options.get("group_selection_strategy")
        if strategy == "PUBLIC_GROUPS" and self.keys and self.domain is None:
            raise self.options.refuse(
                "group_selection_strategy", "these groups are not public.",
                "join a public table of the groups with RIGHT JOIN, or ask the owner to declare the column's values.",
                PrivacyError,
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
        aliases: dict[str, exp.Expression] = {}
        shown: list[exp.Expression] = []
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
        self.release()
        for key in ("joins", "where", "group", "having"):
            select.set(key, None)
        select.set("from_", exp.From(this=exp.to_table(self.name)))
        if where:
            select.set("where", exp.Where(this=where[0]))
        names = fresh_names(labels)
        select.set("expressions", [exp.alias_(e, n, quoted=True) for e, n in zip(shown, names, strict=True)])
        by_name = {a.name: a for a in self.aggregates.values()}
        select.meta["dpsql_intervals"] = [
            (n, *ends)
            for n, e in zip(names, shown, strict=True)
            if (ends := interval_of(e, by_name)) is not None
        ]

    def _label(self, node: exp.Expression) -> str:
        if isinstance(node, exp.Column):
            return node.name
        call = call_of(node)
        return label_of(call) if call is not None and call.name in TABLE else to_sql(node)

    def above(self, node: exp.Expression, aliases: dict[str, exp.Expression]) -> exp.Expression:
        """The expression as the finished statement writes it: keys and aggregates are columns of the release."""
        if isinstance(node, exp.Query):
            if self.binder.query(node, self.env, inner=False) is not None:
                raise PrivacyError("private rows can't stand here.", span=span_of(node))
            return node
        if not isinstance(node, exp.Literal | exp.Star | exp.Boolean | exp.Null):
            found = self._key(node)
            if found is not None:
                return found
        call = call_of(node)
        if call is not None and call.name in TABLE and not isinstance(node, exp.Window):
            return self._aggregate(call)
        if isinstance(node, exp.Column):
            known = aliases.get(fold(node.name)) if not node.table else None
            if known is not None:
                return exp.paren(known.copy())
            item = self.names.find(node)
            if item.is_unit:
                raise PrivacyError(
                    f"{node.name} is the privacy unit: it is never released.",
                    span=span_of(node),
                    hint="COUNT(DISTINCT ...) counts the units.",
                )
            raise PrivacyError(
                f"{node.name} must be a group or stand inside an aggregate.",
                span=span_of(node),
                hint=f"add GROUP BY {node.name}, or write AVG({node.name}).",
            )
        if isinstance(node, exp.Anonymous) and node.name.lower().startswith("dpsql__"):
            raise BindError(f"{node.name[7:].upper()} takes no named arguments.", span=span_of(node))
        return self._children(node, aliases)

    def _children(self, node: exp.Expression, aliases: dict[str, exp.Expression]) -> exp.Expression:
        if isinstance(node, exp.Window) and isinstance(node.this, exp.AggFunc):
            # A window above the block: its own function runs over released rows, only its arguments are ours.
            function = node.this
            for child in list(function.iter_expressions()):
                child.replace(self.above(child, aliases))
            rest = [child for child in node.iter_expressions() if child is not function]
        else:
            rest = list(node.iter_expressions())
        for child in rest:
            new = self.above(child, aliases)
            if new is not child:
                child.replace(new)
        return node

    def _key(self, node: exp.Expression) -> exp.Expression | None:
        if not self.keys:
            return None
        try:
            text = self._spelling(node)
        except BindError:
            return None
        key = self.keys.get(text)
        return column(key.name) if key is not None else None

    def _aggregate(self, call: Call) -> exp.Expression:
        text = self._spelling_of_call(call)
        if text not in self.aggregates:
            taken = [*(key.name for key in self.keys.values()), *(a.name for a in self.aggregates.values())]
            self.aggregates[text] = bind_aggregate(self, call, fresh_names([*taken, label_of(call)])[-1])
        found = self.aggregates[text]
        if found.report == "JSON":
            return _json(found.name, self.confidence)
        return exp.cast(column(found.name), found.type) if found.type != "BIGINT" else column(found.name)

    def _spelling_of_call(self, call: Call) -> str:
        return to_sql(call.node)

    # -- the price ----------------------------------------------------------------------------------------------

    @property
    def confidence(self) -> float:
        value = self.options.get("confidence", Fraction(95, 100))
        if not 0 < value < 1:
            raise self.options.refuse(
                "confidence", "confidence must lie between 0 and 1.", "write confidence = 0.95."
            )
        return float(value)

    def release(self) -> None:
        """Deals out the budget, makes the operator, and gives the block to the plan."""
        aggregates = list(self.aggregates.values())
        private = bool(self.keys) and self.domain is None
        if not aggregates and not private:
            raise PrivacyError(
                "there is nothing noisy to release here.", span=span_of(self.select), hint="add an aggregate."
            )
        gaussian = self.options.get("noise") == "GAUSSIAN"
        noisy = len(aggregates) if gaussian else 0
        share = deal(
            self.binder, self.options, self.select, [(a.share, a.call.node) for a in aggregates] + [(None, None)] * private,
            noisy + private,
        )  # fmt: skip
        outputs = []
        for i, item in enumerate(aggregates):
            outputs.append(
                item.build(self._noise(share.parts[i], share.delta / max(share.delta_parts, 1), gaussian))
            )
        selection = None
        if private:
            selection = partition.GroupSelection(
                UNITS, share.parts[-1], share.delta / share.delta_parts, self.per_unit_groups,
                (self.options.get("group_selection_strategy") or "OPTIMAL").lower(),
                self.options.get("min_privacy_units_per_group", 1),
            )  # fmt: skip
        keys = tuple(key.name for key in self.keys.values())
        operator = additive.Aggregation(self.exact.sql(), keys, tuple(outputs), selection, self.confidence)
        columns = [(key.name, key.type) for key in self.keys.values()]
        for item in aggregates:
            columns += [
                (item.name, item.type),
                (f"{item.name}__low", "DOUBLE"),
                (f"{item.name}__high", "DOUBLE"),
            ]
        inputs = tuple(dict.fromkeys((*self.bound.inputs, *self.binder.lent_inputs, *self._domain_inputs())))
        self.binder.blocks.append(
            plan.Block(
                self.name, operator, tuple(columns), inputs, self._sentences(aggregates), self.confidence
            )
        )

    def _domain_inputs(self) -> tuple[plan.Input, ...]:
        return self.domain.inputs if self.domain is not None else ()

    def _noise(self, epsilon: Fraction, delta: Fraction, gaussian: bool):  # type: ignore[no-untyped-def]
        groups = 1 if self.exact.row_budget is not None else self.per_unit_groups

        def make(partial, parts):  # type: ignore[no-untyped-def]
            sensitivity = max(1, self.exact.sensitivity(partial))
            count = self.per_unit_groups if partial.fixed else groups
            if gaussian:
                noise = additive.GaussianNoise.calibrate(epsilon / parts, delta / parts, sensitivity, count)
            else:
                noise = additive.LaplaceNoise(epsilon / parts, sensitivity, count)
            return additive.Statistic(partial.name, noise)

        return make

    def _sentences(self, aggregates: list[Aggregate]) -> tuple[str, ...]:
        return (*protected(self.bound, self.exact.max_rows, self.exact.row_budget), *self._grouping(),
                *(f"{a.label}: {a.said}." for a in aggregates))  # fmt: skip

    def _grouping(self) -> tuple[str, ...]:
        if not self.keys:
            return ()
        limit = f"one privacy unit counts in at most {self.per_unit_groups} of them"
        if self.domain is not None:
            return (f"Groups are public ({self.domain.origin}): all of them appear; {limit}.",)
        return (f"Groups are private: each is shown by the number of its privacy units; {limit}.",)


def protected(bound: From, max_rows: int | None, row_budget: int | None = None) -> tuple[str, ...]:
    """Who is protected, in a sentence."""
    if bound.row_level:
        return (f"Each row of {bound.subject} is protected.",)
    units = " and ".join(dict.fromkeys(str(t.privacy_unit) for r in bound.relations for t in r.tables))
    rows = row_budget if row_budget is not None else max_rows
    counted = f", with at most {rows} row{'s' if rows != 1 else ''}" + (
        " in all" if row_budget else " in one group"
    )
    return (f"Each {units} in {bound.subject} is protected{counted if rows is not None else ''}.",)


def interval_of(
    node: exp.Expression, aggregates: dict[str, Aggregate]
) -> tuple[exp.Expression, exp.Expression] | None:
    """The ends of an output's interval: the same expression over the ends of its one aggregate, where that is monotone."""
    columns = [c for c in node.find_all(exp.Column)]
    if len(columns) != 1 or columns[0].name not in aggregates or not _monotone(node):
        return None
    ends = []
    for end in ("low", "high"):
        copy = node.copy()
        target = next(iter(copy.find_all(exp.Column)))
        new = column(f"{target.name}__{end}")
        if target is copy:
            copy = new
        else:
            target.replace(new)
        ends.append(exp.cast(copy, "DOUBLE"))
    return ends[0], ends[1]


def _monotone(node: exp.Expression) -> bool:
    if isinstance(node, exp.Column):
        return True
    if isinstance(node, exp.Paren | exp.Cast | exp.Round):
        return _monotone(node.this)
    if isinstance(node, exp.Add) or isinstance(node, exp.Greatest | exp.Least):
        rest = [c for c in node.iter_expressions() if not isinstance(c, exp.Literal)]
        return len(rest) == 1 and _monotone(rest[0])
    if isinstance(node, exp.Sub | exp.Div):
        return isinstance(node.expression, exp.Literal) and _monotone(node.this)
    return False


def _json(name: str, confidence: float) -> exp.Expression:
    value, low, high = (to_sql(column(f"{name}{end}")) for end in ("", "__low", "__high"))
    text = (
        f"SELECT to_json({{'result': {{'value': {value}, 'noise_confidence_interval': {{'lower_bound': {low}, "
        f"'upper_bound': {high}, 'confidence_level': {confidence}}}}}}})"
    )
    return parse_fragment(text).expressions[0]


def deal(
    binder: Binder, options: Options, select: exp.Select,
    shares: list[tuple[Fraction | None, exp.Expression | None]], deltas: int,
) -> Share:  # fmt: skip
    """Deals the block's epsilon: named shares first, the rest in equal parts; and checks the owner's limits.

    Raises:
        PrivacyError: there is no epsilon or no delta to deal.
        BindError: the named shares add up to more than the block's epsilon.
        BudgetExceeded: the block asks for more than the policy allows one query.
    """
    budget = binder.catalog.policy.budget
    named = [share for share, _ in shares if share is not None]
    open_parts = len(shares) - len(named)
    epsilon = options.get("epsilon")
    if epsilon is None:
        epsilon = sum(named, Fraction(0)) if not open_parts else budget.default_epsilon
    if epsilon is None:
        raise PrivacyError(
            "this needs an epsilon: the policy sets no default.",
            span=span_of(options.mode_node)
            or span_of(select.expressions[0] if select.expressions else select),
            hint="write SELECT WITH DP OPTIONS (epsilon = 0.1) ...",
        )
    if "epsilon" not in options.values and open_parts:
        binder.notes.append(f"ε={float(epsilon):g} is the policy's default")
    limit = budget.max_epsilon_per_query
    if limit is not None and epsilon > limit:
        raise BudgetExceeded(
            f"this query asks for ε={float(epsilon):g}; the policy allows ε={float(limit):g} per query.",
            span=span_of(options.nodes.get("epsilon"))
            or next((span_of(n) for s, n in shares if s and n is not None), None),
            hint=f"epsilon = {float(limit):g} would fit.",
        )
    rest = epsilon - sum(named, Fraction(0))
    if rest < 0 or (rest == 0 and open_parts):
        raise BindError(
            f"Epsilon overconsumption: the shares add up to {float(sum(named)):g} of ε={float(epsilon):g}"
            + (", and nothing is left for the rest." if rest == 0 else "."),
            span=next((span_of(node) for share, node in shares if share is not None), None),
            hint="lower the shares, or raise the epsilon of the block.",
        )
    parts = [share if share is not None else rest / open_parts for share, _ in shares]
    delta = Fraction(0)
    if deltas:
        delta = options.get("delta", budget.default_delta)
        if not delta:
            raise PrivacyError(
                "this needs a delta: " + ("private groups" if not options.get("noise") == "GAUSSIAN" else "Gaussian noise")
                + " can't be released without one.",
                span=span_of(options.nodes.get("delta")) or span_of(options.mode_node)
                or span_of(select.args.get("group")) or span_of(select),
                hint="write OPTIONS (delta = 1e-7), or declare the groups' values in the policy.",
            )  # fmt: skip
    return Share(epsilon, Fraction(delta), parts, deltas)


def dp_block(binder: Binder, select: exp.Select, bound: From, options: Options, env: Env) -> None:
    """Binds SELECT WITH DP in place."""
    Block(binder, select, bound, options, env, binder.name("block")).bind()


__all__ = ["Block", "deal", "dp_block", "interval_of", "protected", "replace"]
