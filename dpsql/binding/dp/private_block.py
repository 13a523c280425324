"""A private block: a SELECT over private rows, bound, and replaced by the relation that its mechanisms release.

The modes that aggregate rows (DP, PTR) subclass it, with their calls and mechanisms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import field
from fractions import Fraction

from sqlglot import exp

from dpsql.binding.public_statement import (
    Env,
    Released,
    UniqueNames,
    install,
    label_of,
    make_unique,
    outer_queries,
    resolve_key,
    spell,
    substitute_aliases,
    write_over_rows,
)
from dpsql.binding.relations.binder import Binder
from dpsql.binding.relations.fan_out import (
    asks_for_unmatched,
    find_lost_columns,
    meets_whole_groups,
    split_conjuncts,
    surely_fails,
    surely_null,
)
from dpsql.binding.relations.plan_size import refuse_keys
from dpsql.binding.relations.relation import INTERNAL, Field, From, LostColumns, Names, column, fold
from dpsql.binding.values.declared_values import list_values
from dpsql.binding.values.fixed_point import come_back, leave
from dpsql.binding.values.sql_types import Type, Typed, read_type
from dpsql.catalogue.aggregate_names import (
    BLOCK_CALLS,
    CHOSEN,
    COUNTED,
    ELSEWHERE,
    INSTEAD_OF,
    NO_NOISY_FORM,
    NO_NOISY_NODES,
    names_of,
    nearest_aggregate,
)
from dpsql.catalogue.row_names import END_CALLS, PUBLIC_FUNCTIONS, ROW_WORDS
from dpsql.errors import BindError, PrivacyError
from dpsql.exact.exact_query import GroupKey, PublicGroups
from dpsql.language.dialect import (
    bind_error,
    find_nodes,
    has_more_nodes,
    join_word,
    parse_fragment,
    parse_select,
    privacy_error,
    quote_where_needed,
    table_named,
    to_sql,
)
from dpsql.language.options import Call, Options, call_of
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.queries import As, Select, Subquery

_AGGREGATES = names_of("DP")
_FUNCTIONS = ROW_WORDS | PUBLIC_FUNCTIONS | {name.lower() for name in END_CALLS}
"""The functions of rows, and those above a block."""


@dataclass(frozen=True)
class BlockOutput:
    """An output of a block, before it has a share of the budget."""

    name: str
    call: Call
    share: Fraction | None
    type: str
    intervals: bool
    """Whether its released column has an interval."""

    @property
    def label(self) -> str:
        """Its call, as a statement names its column."""
        return label_of(self.call)

    @property
    def noise_step(self) -> Fraction | None:
        """The step of symmetric, log-concave noise on an exact number; None for any other number."""
        return None

    @property
    def rounded(self) -> bool:
        """Whether the middle of its interval has digits that the number itself lacks."""
        return False

    @property
    def left(self) -> str:
        """The SQL type in which it leaves the mechanism; ``type`` is its type above."""
        return self.type

    def express(self, confidence: float) -> exp.Expr:
        """Return its expression in the finished statement."""
        return exp.Cast(this=column(self.name), to=read_type(self.type))


@dataclass
class AggregatingBlock(ABC):
    """Collects the keys and aggregates of one block while its clauses are rewritten."""

    binder: Binder
    select: exp.Select
    bound: From
    options: Options
    env: Env
    name: str = field(init=False)
    source: exp.Expr = field(init=False)
    """The relation that the SELECT reads in place of the rows."""
    names: Names = field(init=False)
    named: dict[str, exp.Expr] = field(init=False)
    """The expressions that the SELECT list calls by a name, over the rows."""
    domain: PublicGroups | None = None
    keys: dict[str, GroupKey] = field(default_factory=dict)
    asked: dict[str, BlockOutput] = field(default_factory=dict)
    """Aggregates by the spelling of their calls."""
    conditions: list[exp.Expr] = field(default_factory=list)
    """The condition of WHERE on every row, in terms of the exact query."""
    key_nodes: list[exp.Expr] = field(default_factory=list)
    """The keys in terms of the exact query."""
    per_unit_groups: int = 1
    """Groups that one unit may be in."""
    key_sources: dict[str, exp.Expr] = field(default_factory=dict)
    """The analyst's expressions of the keys, by their names in the exact query."""
    own_types: dict[str, Type] = field(default_factory=dict)
    """The types of the keys' own values, by the keys' names; they may leave the engine in other types."""
    column_names: UniqueNames = field(default_factory=UniqueNames)
    """The names of the release's columns: keys, then aggregates."""
    weighs_rows: bool = False
    """Whether the block has several numbers of rows, which must describe equal rows of a unit."""
    weighs_all: bool = False
    """Whether these are numbers of different rows, so that all rows of a unit weigh alike in each of them."""
    summed: frozenset[str] = frozenset()
    """The spellings of the values of which the block has a sum, a mean or another moment."""
    _written: dict[int, str] = field(default_factory=dict)
    """The texts of aggregates' calls, by their nodes."""
    autos: int | None = None
    """The number of aggregates with AUTO in the whole statement; None until the operator needs it."""

    def __post_init__(self) -> None:
        self.name = self.binder.name("block")
        self.source = table_named(self.name)
        self.names = self.bound.names
        self.named = {
            fold(item.alias): item.this.copy()
            for item in self.select.expressions
            if isinstance(item, exp.Alias) and not self._has_aggregate(item) and not item.find(exp.Window)
        }

    # -- for aggregates -----------------------------------------------------------------------------------------

    def expression(self, node: exp.Expr) -> Typed:
        """Return an expression over the rows, which can't fail."""
        node = substitute_aliases(node, self.named, self.names)
        for inner in node.walk(prune=lambda n: isinstance(n, exp.Query)):
            call = call_of(inner)
            if call is not None and call.name in _AGGREGATES:
                raise self._misplaced(call, inner)
        return self.binder.expression(node, self.names, self.env)

    def _misplaced(self, call: Call, node: exp.Expr) -> PrivacyError:
        why, hint = "is inside another aggregate", "aggregate in a subquery first, and then over its rows."
        unit = next((quote_where_needed(f.name) for _, f in self.names.fields() if f.is_unit), None)
        filtered, group = self.select.args.get("where"), self.select.args.get("group")
        if isinstance(filtered, exp.Where) and node.find_ancestor(exp.Where) is filtered:
            why = "is not supported in WHERE"
            hint = "ask for rows here, and for the noisy value in a condition after the groups."
            condition: exp.Expr = filtered.this
            if len(split_conjuncts(condition)) == 1:
                place = "after GROUP BY instead" if group else f"instead of {to_sql(filtered)}"
                hint = f"write HAVING {to_sql(condition)} {place}: it reads the noisy value."
        elif node.find_ancestor(exp.Group) is group is not None:
            why = "can't be a group"
            hint = "group by columns; the noisy value may be a group in an outer query."
        elif unit is not None and (outer := self._call_around(node)) is not None:
            own = self.write_select(Select((unit, As(to_sql(call.node), "n")), group=unit))
            if own is not None:
                hint = f"write {Select(f'{outer.name}(n)', Subquery(own, 't'))}: a subquery aggregates first."
        return privacy_error(node, f"{call.name} {why}.", hint)

    @staticmethod
    def _call_around(node: exp.Expr) -> Call | None:
        above = node.parent
        while above is not None and not isinstance(above, exp.Query):
            if (call := call_of(above)) is not None and call.node is not node and call.name in _AGGREGATES:
                return call
            above = above.parent
        return None

    def write_select(self, asked: Select) -> str | None:
        """Return a query, given without a source, over this block's rows; None if it depends on a query around it."""
        return write_over_rows(self.select, asked)

    def write_counts(self, shown: str) -> str:
        """Return the hint that counts how often each value occurs."""
        whole = self.write_select(Select((shown, "COUNT(*)"), group=shown))
        return f"write {whole}: it counts its values." if whole else "group by it, and count the rows."

    def condition(self, node: exp.Expr) -> Typed:
        """Return a condition on the rows, which can't fail."""
        typed = self.expression(node)
        if typed.type.kind not in ("BOOLEAN", "NULL"):
            hint = f"write {to_sql(node)} <> 0." if typed.type.numeric else None
            raise bind_error(node, f"a condition is needed, and this is {typed.type.sql}.", hint)
        return typed

    def where(self) -> str | None:
        """Return the WHERE of the exact query, and store its conditions, which may restrict public groups."""
        where = self.select.args.get("where")
        if where is None:
            return None
        node = self.condition(where.this).node
        self._refuse_no_unit(where.this)
        self.conditions = split_conjuncts(node)
        return to_sql(node)

    def _refuse_no_unit(self, condition: exp.Expr) -> None:
        """Raise PrivacyError for WHERE unit IS NULL, by which the answer would be only noise: such rows never count.

        After an outer join, such a condition finds rows without a match, and is allowed.
        """
        for part in split_conjuncts(condition):
            inner = part.unnest()
            if not isinstance(inner, exp.Is) or not isinstance(inner.expression, exp.Null):
                continue
            item = self.names.known(inner.this)
            if item is not None and item.is_unit and not item.optional and not item.lost:
                unit = to_sql(inner.this)
                what = f"rows whose {unit} is NULL count nowhere: this would be noise around 0."
                hint = f"leave it out, or ask the owner: a policy with another privacy unit may count rows without {unit}."
                raise privacy_error(part, what, hint)

    def filtered(self, call: Call, sql: str) -> str:
        """Return an expression that is NULL unless the FILTER is true."""
        if call.where is None:
            return sql
        return f"CASE WHEN {to_sql(self.condition(call.where).node)} THEN {sql} END"

    def is_unit(self, node: exp.Expr) -> bool:
        """Return whether a node names the privacy unit."""
        item = self.names.known(node)
        return item is not None and item.is_unit

    # -- binding ------------------------------------------------------------------------------------------------

    @abstractmethod
    def bind(self) -> None:
        """Bind the SELECT, and let it read the block's release."""

    @abstractmethod
    def call_of(self, node: exp.Expr) -> Call | None:
        """Return the call of an aggregate that this mode releases; None for any other node."""

    @abstractmethod
    def bind_call(self, call: Call, name: str) -> BlockOutput:
        """Bind such a call."""

    @abstractmethod
    def build_operator(self) -> None:
        """Divide the budget, make the operator, and add the block to the plan."""

    def group_expressions(self) -> list[exp.Expr]:
        group = self.select.args.get("group")
        if group is None:
            return []
        if group.args.get("all"):
            return [item.unalias() for item in self.select.expressions if not self._has_aggregate(item)]
        known = {fold(f.name) for _, f in self.names.fields()}
        return [
            resolve_key(n.unnest(), self.select, lambda c: fold(c.name) in known) for n in group.expressions
        ]

    def _has_aggregate(self, node: exp.Expr) -> bool:
        return any(self.call_of(n) is not None for n in node.walk())

    def bind_keys(
        self, expressions: list[exp.Expr]
    ) -> tuple[tuple[GroupKey, ...], list[tuple[GroupKey, Typed]]]:
        pairs: list[tuple[GroupKey, Typed]] = []
        for node in expressions:
            if node.is_star:
                raise privacy_error(node, "rows can't be grouped by all of their columns.")
            outside = node.walk(prune=lambda part: isinstance(part, exp.Query))
            unit = next((c for c in outside if isinstance(c, exp.Column) and self.is_unit(c)), None)
            if unit is not None:
                itself = "the privacy unit can't be a group: each group would be one unit."
                what = itself if unit is node else "groups can't be made of the privacy unit."
                name = to_sql(unit.this)
                hint = f"it counts the units; totals per {name} may be in a subquery."
                raise privacy_error(node, what, f"write COUNT(DISTINCT {name}) instead of the group: {hint}")
            named = self.names.known(node)
            if named is not None and named.anchors:
                what = f"{node.name} leads to one privacy unit: each group would be one unit."
                hint = f"group by a column that units share; totals per {node.name} may be in a subquery."
                raise privacy_error(node, what, hint)
            bound = self.expression(node)
            typed = leave(bound)  # a group's key looks the same whichever row comes first
            if typed.type.two_faced and typed.type.kind != "DOUBLE":
                what = f"equal values of {typed.type.sql} may look different, so they make no stable groups."
                hint = "group by a number made of it, such as the whole seconds of an interval."
                raise privacy_error(node, what, hint)
            inner = [query.alias for query in typed.node.find_all(exp.Subquery) if query.alias]
            if len(set(inner)) < len(inner):
                what = "the exact query would compute the subquery of this key twice for each row."
                raise privacy_error(node, what, "name the key in a subquery, and group by that name.")
            text = self.spelling(node)
            if text not in self.keys:
                refuse_keys(len(self.keys) + 1, node)
                name = self.column_names.add(f"k{len(self.keys)}")
                key = GroupKey(name, to_sql(typed.node), typed.type.sql, typed.label_order)
                self.keys[text], self.key_sources[key.name] = key, node
                self.own_types[key.name] = bound.type
                if (values := list_values(typed)) is not None:
                    self.binder.key_values[self.name, key.name] = (to_sql(node), values)
                pairs.append((key, typed))
        self.key_nodes = [typed.node for _, typed in pairs]
        return tuple(key for key, _ in pairs), pairs

    def find_spelling(self, node: exp.Expr) -> str | None:
        """Return :meth:`spelling`; None for an unknown column, which binding it refuses, with its place."""
        try:
            return self.spelling(node)
        except BindError:
            return None

    def spelling(self, node: exp.Expr) -> str:
        """Return one spelling for equal expressions: columns by the field they mean."""
        if isinstance(node, exp.Column):
            item = None if node.is_star else self.names.known(node)
            return to_sql(node if item is None else item.typed.node)
        node = node.copy()
        for found in find_nodes(node, exp.Column):
            item = None if found.is_star else self.names.known(found)
            if item is not None:  # a field of a struct is written like a column
                found.replace(item.typed.node.copy())
        return to_sql(node)

    # -- the clauses above --------------------------------------------------------------------------------------

    def bind_clauses(self) -> None:
        select = self.select
        aliases: dict[str, exp.Expr] = {}
        shown: list[exp.Expr] = []
        labels: list[str] = []
        for item in select.expressions:
            if item.is_star:
                what = f"rows of {self.bound.subject} can't be released."
                raise privacy_error(item, what, f"try {Select('COUNT(*)', self.bound.subject)}.")
            inner = item.unalias()
            labels.append(item.alias if isinstance(item, exp.Alias) else self._label(inner))
            above = self.above(inner, aliases)
            shown.append(above)
            if isinstance(item, exp.Alias):
                aliases[fold(item.alias)] = above
        having = select.args.get("having")
        where = exp.Where(this=self.above(having.this, aliases)) if having is not None else None
        for key in ("qualify", "order"):
            clause = select.args.get(key)
            if clause is not None:
                for node in list(clause.expressions) if key == "order" else [clause]:
                    node.set("this", self.above(node.this, aliases))
                if key == "qualify" and clause.find(exp.Window) is None:
                    hint = "write HAVING instead of QUALIFY."
                    raise bind_error(clause, "QUALIFY needs a window function.", hint)
        for key in ("limit", "offset"):
            for query in outer_queries(select.args.get(key) or exp.Null()):
                self.binder.public_query(query, self.env)
        self.build_operator()
        group = select.args.get("group")
        if group is None or group.args.keys() <= {"expressions", "all"}:
            self.binder.group_keys[self.name] = frozenset(key.name for key in self.keys.values())
        outputs = list(zip(make_unique(labels), shown, strict=True))
        install(select, self.source, outputs)
        select.set("where", where)

    @property
    def released(self) -> list[Released]:
        """The columns of the release: keys, then aggregates."""
        return [*self.released_keys, *(self._release(item) for item in self.asked.values())]

    @property
    def released_keys(self) -> list[Released]:
        """The columns of its keys."""
        return [Released(key.name, key.type, order=key.order) for key in self.keys.values()]

    def spell_key(self, name: str) -> str:
        """Return the analyst's expression of a key, by its name in the exact query."""
        return spell(self.key_sources[name])

    def _release(self, item: BlockOutput) -> Released:
        step = item.noise_step if self.options.get("error") is None else None
        return Released(item.name, item.left, item.intervals, step, rounded=item.rounded)

    def _label(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Column):
            return node.name
        call = self.call_of(node)
        return label_of(call) if call is not None else spell(node)

    def above(self, node: exp.Expr, aliases: dict[str, exp.Expr]) -> exp.Expr:
        """Return an expression of the finished statement: keys and aggregates are columns of the release."""
        constant = isinstance(node, exp.Literal | exp.Star | exp.Boolean | exp.Null)
        if not constant and (found := self._key(node)) is not None:
            return found
        if isinstance(node, exp.Query):
            self.binder.public_query(node, self.env)
            return node
        if (call := self.call_of(node)) is not None and not isinstance(node, exp.Window):
            return self.aggregate(call)
        refuse_elsewhere(node, self.options)
        if isinstance(node, exp.PositionalColumn):
            self.expression(node)
        if isinstance(node, exp.Column):
            known = aliases.get(fold(node.name)) if not node.table else None
            if known is not None:
                return exp.paren(known.copy())
            self.expression(node)
            if self.is_unit(node):
                what = f"{node.name} is the privacy unit: it is never released."
                raise privacy_error(node, what, f"write COUNT(DISTINCT {to_sql(node)}): it counts the units.")
            raise self._refuse_ungrouped(node)
        if isinstance(node, exp.Anonymous) and node.name.lower().startswith("dpsql__"):
            name, near = node.name[7:].upper(), nearest_aggregate(node.name[7:])
            hint = f"did you mean {near}?" if near and near != name else None
            raise bind_error(node, f"{name} takes no named arguments.", hint)
        return self._children(node, aliases)

    def _children(self, node: exp.Expr, aliases: dict[str, exp.Expr]) -> exp.Expr:
        inner = node.this.this if isinstance(node.this, exp.Filter) else node.this
        parts = list(node.iter_expressions())
        if isinstance(node, exp.Window) and isinstance(inner, exp.AggFunc):
            # A window above the block: its function runs over released rows, and only its arguments are rewritten.
            filtered = [node.this.expression] if node.this is not inner else []
            parts = [*inner.iter_expressions(), *filtered, *(part for part in parts if part is not node.this)]
        for part in parts:
            new = self.above(part, aliases)
            if new is not part:
                part.replace(new)
        return node

    def _key(self, node: exp.Expr) -> exp.Expr | None:
        longest = max(map(len, self.keys), default=0)
        if not longest or has_more_nodes(node, 2 * longest + 10):
            return None  # longer than any key, and slow to spell
        key = self.keys.get(self.find_spelling(node) or "")
        if key is None:
            return None
        return come_back(column(key.name), self.own_types[key.name], key.type)

    def aggregate(self, call: Call) -> exp.Expr:
        """Return the expression of a call above the block; equal calls are one aggregate."""
        text = self.write_call(call)
        if text not in self.asked:
            self._refuse_unmatched(call)
            name = self.column_names.add(self.name_of(call, text))
            self.asked[text] = self.bind_call(call, name)
        return self.asked[text].express(self.confidence)

    def write_call(self, call: Call) -> str:
        """Return the text of an aggregate's call, by which equal calls are one."""
        if (text := self._written.get(id(call.node))) is None:
            text = self._written[id(call.node)] = to_sql(call.node)
        return text

    def name_of(self, call: Call, text: str) -> str:
        """Return the name of a released column, before it is made unique."""
        return label_of(call)

    @property
    def confidence(self) -> float:
        """The level of the intervals."""
        return self.options.confidence

    def refuse_misspelt(self) -> None:
        """Raise PrivacyError for a call in the SELECT whose name resembles an aggregate's."""
        for call in self.select.find_all(exp.Anonymous):
            if (misspelt := _find_misspelt(call)) is not None:
                raise misspelt

    # -- refusals -----------------------------------------------------------------------------------------------

    def _refuse_unmatched(self, call: Call) -> None:
        """Raise PrivacyError for an aggregate whose answer depends on public rows without a matching private row."""
        found = self.bound.unmatched
        if found is None:
            return
        lost = find_lost_columns(self.bound.relations)
        fails = any(surely_fails(node, lost) for node in self.conditions)
        if fails or self._adds_nothing(call, lost):
            return
        asked = any(asks_for_unmatched(node, lost) for node in self.conditions)
        if not asked and meets_whole_groups(found, self.public_key_nodes, lost):
            return
        fields = ((r, f) for r in self.bound.relations if r.private for f in r.fields)
        column = next(((r.alias, f.name) for r, f in fields if _place(f) in lost), None)
        side = str(found.join.args["side"]).upper()
        # By JOIN groups are private again, which an earlier hint may have avoided.
        hint = (
            f"write JOIN instead of {side} JOIN" if side != "FULL" else "keep the private table's rows only"
        )
        if column is not None:
            hint = f"write COUNT({'.'.join(map(quote_where_needed, column))}), which counts the rows with a match"
        grouping = self.public_grouping(found.join)
        more = "." if grouping is None else f", or {grouping}, the public side's key."
        what = "public rows without a matching private row would count here, and private rows decide which these are."
        raise privacy_error(call.node, what, hint + more)

    @property
    def public_key_nodes(self) -> Sequence[exp.Expr]:
        """The keys of public groups in terms of the exact query; none if groups are private."""
        return self.key_nodes if self.domain is not None else ()

    def public_grouping(self, join: exp.Join) -> str | None:
        """Return GROUP BY with the public column that a join equates to a private key of the groups."""
        keys = {to_sql(node) for node in self.group_expressions()}
        on = join.args.get("on")
        for equal in on.find_all(exp.EQ) if on is not None else ():
            for key, other in ((equal.this, equal.expression), (equal.expression, equal.this)):
                field_ = self.names.known(other)
                if to_sql(key) in keys and field_ is not None and field_.public:
                    return _write_grouping(other)
        return None

    def find_keeping_join(self, keys: Sequence[exp.Expr]) -> str | None:
        """Return a join that would show all groups of a public table; None unless the keys are of one joined here."""
        relations, fields = self.bound.relations, [self.names.known(key) for key in keys]
        public = [r for r in relations if not r.private and any(f is g for f in r.fields for g in fields)]
        joins = self.select.args.get("joins") or []
        for join in joins:
            if join_word(join, "side") and (grouping := self.public_grouping(join)) is not None:
                return grouping
        inner = len(joins) == 1 and not join_word(joins[0], "side")
        if len(relations) != 2 or len(public) != 1 or public[0].alias.startswith(INTERNAL) or not inner:
            return None
        side = "LEFT" if public[0] is relations[0] else "RIGHT"
        return f"{side} JOIN in place of JOIN, with keys from {public[0].alias},"

    def read_public_groups(self, keys: Iterable[tuple[GroupKey, Typed]]) -> None:
        """Let the SELECT read its public groups, which no row decides."""
        assert self.domain is not None
        groups = parse_select(self.domain.sql)
        self.binder.catalog.name_public_tables(groups)
        for item in dict.fromkeys((*self.bound.inputs, *self.binder.lent_inputs)):
            groups.with_(item.name, as_=parse_fragment(item.sql), copy=False)
        items = [_order_labels(key, list_values(typed)) for key, typed in keys]
        named = exp.select(*items).from_(groups.subquery(self.name, copy=False), copy=False)
        self.source = named.subquery(self.name, copy=False)
        self.binder.notes.append(
            f"these are all possible groups ({self.domain.origin}), whether rows have them or not"
        )

    def _adds_nothing(self, call: Call, lost: LostColumns) -> bool:
        """Return whether a public row without a matching private row adds nothing to a call."""
        if call.where is not None and surely_fails(self.condition(call.where.copy()).node, lost):
            return True
        fixed = exp.Star | exp.Literal | exp.Array | exp.Tuple
        values = [arg.copy() for arg in call.args[:2] if not isinstance(arg, fixed) and not arg.is_star]
        if call.name == "COUNT_IF":
            return any(surely_fails(self.condition(value).node, lost) for value in values[:1])
        return any(surely_null(self.expression(value).node, lost) for value in values)

    def _refuse_ungrouped(self, node: exp.Column) -> PrivacyError:
        """Return the refusal of a column that is neither a group nor inside an aggregate."""
        grouped = self.select.args.get("group")
        items = self.select.expressions
        shown = {fold(item.alias): item for item in items if isinstance(item, exp.Alias)}
        for key in grouped.expressions if grouped is not None else ():
            # In GROUP BY h, a column h of the rows precedes an item of that name.
            item = shown.get(fold(key.name)) if isinstance(key, exp.Column) else None
            if item is not None and any(found is node for found in item.walk()):
                what = f"GROUP BY {key.name} means the column {key.name}, not the item of that name."
                hint = f"write {items.index(item) + 1}, its place in the list, or give it another name."
                return privacy_error(key, what, hint)
        whole = next((item for item in items if any(found is node for found in item.walk())), node).unalias()
        call = node.find_ancestor(exp.Anonymous)
        if call is not None and (misspelt := _find_misspelt(call)) is not None:
            return misspelt
        numeric, named = self.names.find(node).typed.type.numeric, to_sql(node)
        one = f"AVG({named})" if numeric and not self.is_unit(node) else f"COUNT(DISTINCT {named})"
        if whole is not node and not numeric and not self._has_aggregate(whole):
            one = f"COUNT(DISTINCT {to_sql(whole)}) instead of {to_sql(whole)}"
        what = f"{node.name} must be a group or be inside an aggregate."
        window = next(
            (one for item in items for one in item.find_all(exp.Window) if self._has_aggregate(one.this)),
            None,
        )
        written = grouped is not None and not grouped.args.get("all")
        if window is not None and not written and (whole_text := self._write_grouped(window)) is not None:
            hint = f"write {whole_text}: groups in place of windows."
            return privacy_error(node, what, hint)
        if call is not None and call.name.lower() not in _FUNCTIONS:
            return privacy_error(call, f"{call.name.upper()} is not a function here.", f"write {one}.")
        if any(map(self._has_aggregate, items)) and not (grouped is not None and grouped.args.get("all")):
            keys = _write_grouping(node) if grouped is None else f"{to_sql(grouped).strip()}, {named}"
            return privacy_error(node, what, f"write {one}, or add it to the groups: {keys}.")
        hint = f"write {one}, or group by it and count the rows."
        holder = self.select.parent
        if isinstance(holder.parent if isinstance(holder, exp.Subquery) else holder, exp.In):
            listed = self.write_select(Select(named, group=named, having="COUNT(*) > 0"))
            hint = (
                f"write ({listed}): the list is released." if listed else "release the list first, as groups."
            )
        return privacy_error(node, what, hint)

    def _write_grouped(self, window: exp.Window) -> str | None:
        """Return the query that has a window's partitions as groups, and its aggregate in each."""
        keys = tuple(to_sql(key) for key in window.args.get("partition_by") or ())
        return self.write_select(Select((*keys, to_sql(window.this)), group=keys))


def _order_labels(key: GroupKey, values: Sequence[object] | None) -> exp.Expr:
    """Return a key of public groups; labels of an ENUM are an ENUM of the declared ones, in the order of their type."""
    if key.order is None or not values:
        return exp.column(key.name)
    places = {label: place for place, label in enumerate(key.order)}
    labels = sorted(map(str, values), key=lambda label: (places.get(label, len(places)), label))
    listed = exp.DataType(this=exp.DType.ENUM, expressions=[exp.Literal.string(label) for label in labels])
    return exp.alias_(exp.Cast(this=exp.column(key.name), to=listed), key.name)


def _find_misspelt(call: exp.Anonymous) -> PrivacyError | None:
    """Return the refusal of a call whose name resembles an aggregate's."""
    meant = nearest_aggregate(call.name)
    what = f"{call.name} is not an aggregate."
    return None if meant is None else privacy_error(call, what, f"did you mean {meant}?")


def _write_grouping(key: exp.Expr) -> str:
    return to_sql(exp.Group(expressions=[key.copy()])).strip()


def _place(item: Field) -> tuple[str, str]:
    node = item.typed.node
    return (node.table, node.name) if isinstance(node, exp.Column) else ("", "")


def name_unnoised(node: exp.Expr) -> str | None:
    """Return the name of an aggregate that has no noisy form; None for other calls."""
    if isinstance(node, exp.AggFunc):
        return NO_NOISY_NODES.get(type(node).__name__, node.sql_name())
    called = isinstance(node, exp.Anonymous) and node.name.upper() in {*INSTEAD_OF, *NO_NOISY_FORM}
    return node.name.upper() if called else None


def refuse_elsewhere(node: exp.Expr, options: Options) -> None:
    """Raise PrivacyError, with an alternative, for an aggregate that has no noisy form."""
    if isinstance(node, exp.IgnoreNulls | exp.RespectNulls | exp.Filter | exp.WithinGroup):
        node = node.this
    if (name := name_unnoised(node)) is None:
        return
    argument = node.this if isinstance(node.this, exp.Expr) else next(iter(node.expressions), None)
    if isinstance(argument, exp.Distinct):
        argument = argument.expressions[0]
    if isinstance(argument, exp.Order):
        argument = argument.this
    shown = "x"
    if isinstance(argument, exp.Column | exp.Binary | exp.Paren) and not argument.find(
        exp.Query, exp.AggFunc
    ):
        shown = text if len(text := to_sql(argument)) <= 60 else "x"
    written = node.meta.get("called", name).upper() if isinstance(node, exp.AggFunc) else name
    select = node.find_ancestor(exp.Select)
    hint = INSTEAD_OF.get(name, ELSEWHERE).format(x=shown)
    if name not in INSTEAD_OF and (isinstance(node, exp.AggFunc) or name.lower() in BLOCK_CALLS):
        given = "SELECT" if options.mode_node is None else f"SELECT WITH {options.mode.upper()}"
        hint = f"write SELECT WITH SUBSAMPLE instead of {given}: it takes this aggregate, on blocks of privacy units."
    by, whole = node.args.get("expression"), None
    if select is not None and shown != "x" and INSTEAD_OF.get(name) in (COUNTED, CHOSEN):
        group = select.args.get("group") if INSTEAD_OF[name] == CHOSEN else None
        keys = [resolve_key(key, select) for key in group.expressions] if group is not None else []
        listed = (*map(to_sql, keys), shown)
        whole = write_over_rows(select, Select((*listed, "COUNT(*)"), group=listed))
    elif select is not None and shown != "x" and name in ("ARG_MAX", "ARG_MIN") and isinstance(by, exp.Expr):
        order, mean = "2 DESC" if name == "ARG_MAX" else "2", f"AVG({to_sql(by)})"
        whole = write_over_rows(select, Select((shown, mean), group=shown, order=order, limit=1))
    if whole is not None:
        why = (
            "the row of an extreme is one person's"
            if name.startswith("ARG_")
            else "it counts how often each value occurs"
        )
        hint = f"write {whole}: {why}."
    raise privacy_error(node, f"{written} has no noisy form.", hint)
