"""Exact aggregates: of each unit's own rows, or of a subsample block, with the expressions above them.

Aggregates of numbers shared by many rows are written in layers if that is faster than sorting, and as separate queries
if some of them read the rows separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from fractions import Fraction

from sqlglot import exp

from dpsql.binding.relations import relation as rel
from dpsql.binding.relations.relation import From, Names
from dpsql.binding.values.coercion import refuse_order
from dpsql.binding.values.exact_moments import (
    ExactMoments,
    write_exact_moments,
    write_layers,
    write_own_grid_moments,
)
from dpsql.binding.values.fixed_point import (
    MOST_DECIMALS,
    bound_any_sum,
    make_canonical,
    snap_to_decimal,
    sum_decimals,
    sum_wide_integers,
    unify_zeros,
    write_group_keys,
    write_order_independent,
)
from dpsql.binding.values.lengths import DEFAULT_MAX_LENGTH, MAX_TEXT, hold, length_of
from dpsql.binding.values.sql_types import (
    BIGINT,
    DOUBLE,
    HUGEINT,
    SMALL_INTEGERS,
    TEXT,
    Bounds,
    Type,
    Typed,
    decimal,
)
from dpsql.binding.values.total_expressions import make_condition, make_total
from dpsql.catalogue.aggregate_names import AGGREGATE_OF_NAME, names_of
from dpsql.errors import BindError
from dpsql.language.dialect import bind_error, privacy_error, to_sql
from dpsql.language.options import Call, call_of
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.queries import As, Join, Select, Source, Subquery, write_filter


def bound_rows(bound: From) -> Bounds:
    """Return the number of one unit's rows, as far as the policy or the query determines it."""
    return Bounds(Fraction(0), None if bound.most_rows is None else Fraction(bound.most_rows))


def bound_unit_aggregate(call: Call, names: Names, rows: Bounds, grouped: bool) -> Bounds | None:
    """Return the public bounds of a unit's own aggregate: a count is at most its rows, an average within its column's bounds."""
    if grouped and call.name == "COUNT" and call.where is None and (not call.args or call.args[0].is_star):
        return Bounds(Fraction(1), rows.high)  # a group has a row
    row = AGGREGATE_OF_NAME[call.name]
    if "COUNT" in call.name:
        return rows
    if call.name == "CORR":
        return Bounds(Fraction(-1), Fraction(1))
    inner = make_total(call.args[0], names).bounds
    if inner is None or inner.low is None or inner.high is None:
        return None
    if row.within:
        return inner
    if row.form == "spread":
        return Bounds(Fraction(0), _bound_spread(row.kind, inner.high - inner.low))
    return inner * rows if call.name == "SUM" and rows.bounded else None


def _bound_spread(kind: str, width: Fraction) -> Fraction:
    """Return the largest spread in an interval of a width: half of the values at each end, or one of two for a sample."""
    sample = kind.endswith("samp")
    if kind.startswith("stddev"):
        return width * (3 if sample else 2) / 4
    return width**2 / (2 if sample else 4)


LIFTED_AGGREGATES = names_of("SUBSAMPLE")
_LARGEST = "1e70"
"""Larger numbers count as missing: their squares would make some aggregates fail."""
_LONGEST = 100_000
"""The most characters of the rows' SQL, over all aggregates that read them separately."""

_FEWEST_JOINED = 100
"""The fewest texts of a unit that STRING_AGG must have room for."""

COUNT_CALLS = ("COUNT(", "REGR_COUNT(")
"""Prefixes of the SQL of aggregates that are 0 without rows."""
_ABOVE = "dpsql_above"


def _exact_call(node: exp.Expr) -> Call | None:
    call = call_of(node)
    return call if call is not None and call.name in LIFTED_AGGREGATES else None


def has_exact_aggregate(item: exp.Expr) -> bool:
    """Return whether an expression contains an exact aggregate."""
    return any(_exact_call(node) for node in item.walk())


@dataclass
class Grouped:
    """The scope above an exact aggregation: keys, and aggregates (``made``, by spelling), are columns of ``g``."""

    names: rel.Names
    keys: list[tuple[str, Typed, exp.Expr]] = field(default_factory=list)
    rows: Bounds | None = None
    """The number of aggregated rows, if these are one unit's; None if nothing is known of the aggregates."""
    layered: bool = False
    """Whether aggregates of many rows may be written in layers, which the engine computes faster than by sorting."""
    twice: bool = False
    """Whether these rows may be read twice."""
    made: dict[str, tuple[str, Typed]] = field(default_factory=dict)
    moments: dict[str, ExactMoments] = field(default_factory=dict)
    _by_column: dict[str, Typed] = field(default_factory=dict)

    @classmethod
    def by(
        cls,
        nodes: Iterable[exp.Expr],
        names: rel.Names,
        rows: Bounds | None = None,
        layered: bool = False,
        twice: bool = False,
    ) -> Grouped:
        """Return the scope above an aggregation grouped by these expressions."""
        keys = [(f"k{i}", unify_zeros(make_total(n, names)), n) for i, n in enumerate(nodes)]
        return cls(names, keys, rows, layered, twice)

    def inner(self, owner: str, name: str, rows: Select) -> Select:
        """Return the aggregation of rows, given without columns, for each owner of them (called ``name``) and each key."""
        if self.moments and len(self.made) == 1 and not self.keys:
            return self._alone(owner, name, rows, *self.moments)
        apart = [made for made, sums in self.moments.items() if sums.reads_twice and not self.keys]
        if len(rows.sql) * len(apart) > _LONGEST:
            apart = []
        names = [t.node.name for _, t in self.made.values() if t.node.name not in apart]
        parts = [self._together(owner, name, rows, names)] if names or not apart else []
        parts += [self._alone(owner, name, rows, made) for made in apart]
        if len(parts) == 1:
            return parts[0]
        shown = [As(f"part0.{made}", made) for made in (name, *names)]
        shown += [As(f"part{len(parts) - len(apart) + i}.{made}", made) for i, made in enumerate(apart)]
        joined: Source = Subquery(parts[0], "part0")
        for i, part in enumerate(parts[1:], 1):
            joined = Join(joined, Subquery(part, f"part{i}"), f"part{i}.{name} = part0.{name}")
        return Select(tuple(shown), joined)

    def _alone(self, owner: str, name: str, rows: Select, made: str) -> Select:
        """Return the aggregation with one aggregate made of sums, and no key."""
        moments = self.moments[made]
        return write_layers(moments.add_up_alone(owner, name, rows), [name], {made: moments})

    def _together(self, owner: str, name: str, rows: Select, names: Sequence[str]) -> Select:
        """Return the aggregation with some of the aggregates of the rows."""
        moments = {m: sums for m, sums in self.moments.items() if m in names and not sums.reads_twice}
        items = [As(owner, name), *(As(to_sql(t.node), n) for n, t, _ in self.keys)]
        made = [(sql, t.node.name) for sql, t in self.made.values() if t.node.name in names]
        plain = [(sql, one) for sql, one in made if one not in moments]
        items += [As(sql, one) for sql, one in plain]
        items += [item for sums in moments.values() for item in sums.add_up()]
        by = (owner, *(sql for _, t, _ in self.keys for sql in write_group_keys(t)))
        grouped = replace(rows, columns=tuple(items), group=by)
        kept = [name, *(n for n, _, _ in self.keys), *(one for _, one in plain)]
        return write_layers(grouped, kept, moments) if moments else grouped

    def column(self, node: exp.Column) -> Typed:
        """Return a column of the aggregation; BindError if there is no such column."""
        if node.meta.get(_ABOVE):
            key = next((typed for name, typed, _ in self.keys if name == node.name), None)
            if (found := key or self._by_column.get(node.name)) is not None:
                return replace(found, node=node.copy(), constant=False)
        same = self.names.known(node)
        for name, typed, own in self.keys if same is not None else ():
            if self.names.known(own) is same:
                return replace(typed, node=rel.column(name, "g"), constant=False)
        hint = f"write AVG({to_sql(node)})."
        raise bind_error(node, f"{node.name} must be a group or stand inside an aggregate.", hint)

    def total(self, node: exp.Expr) -> Typed:
        """Return an expression above the aggregation that can't fail."""
        return make_total(self._rewrite(node.copy()), self)

    def condition(self, node: exp.Expr) -> str:
        """Return the SQL of a condition above the aggregation."""
        return to_sql(make_condition(self._rewrite(node.copy()), self).node)

    def _rewrite(self, node: exp.Expr) -> exp.Expr:
        """Replace keys and aggregates in an expression by columns of the aggregation."""
        for name, _, key in self.keys:
            if node == key or (
                type(node) is type(key) and _resolved(node, self.names) == _resolved(key, self.names)
            ):
                return _above(name)
        if self.rows is not None:
            node = _spell_with_exact_names(node)
            if (chosen := _ordered_choice(node)) is not None:
                return self._choose(node, *chosen)
            if (listed := _list_of(node)) is not None:
                return self._list(node, listed)
            if (joined := _list_of(node, exp.GroupConcat)) is not None:
                return self._join(node, joined)
        call = _exact_call(node)
        if call is not None:
            text = to_sql(call.node)
            if text not in self.made:
                own = self.rows is not None
                sql, kind = write_exact_aggregate(call, self.names, own)
                bounds = (
                    bound_unit_aggregate(call, self.names, self.rows, bool(self.keys))
                    if self.rows is not None
                    else None
                )
                reach = bound_any_sum(make_total(call.args[0], self.names)) if kind == HUGEINT else None
                order = (
                    make_total(call.args[0], self.names).order if AGGREGATE_OF_NAME[call.name].ties else None
                )
                above = Typed(_above(f"a{len(self.made)}"), kind, bounds, reach=reach, order=order)
                moments = self._write_moments(call, above.node.name) if self.layered else None
                if moments is not None:
                    self.moments[above.node.name] = moments
                self.made[text] = (sql, above)
                self._by_column[above.node.name] = above
            return self.made[text][1].node.copy()
        for child in list(node.iter_expressions()):
            new = self._rewrite(child)
            if new is not child:
                child.replace(new)
        return node

    def _choose(
        self, node: exp.Expr, chosen: exp.Expr, order: Sequence[exp.Expr], where: exp.Expr | None
    ) -> exp.Expr:
        """Return the column with the first value in an order, whose ties are decided by the value itself."""
        text = to_sql(node)
        if text not in self.made:
            typed = make_total(chosen, self.names)
            value = to_sql(make_canonical(typed, chosen))
            sql = f"FIRST({value} ORDER BY {', '.join([*self._order(order), value])}){self._filter(where)}"
            self._add(text, sql, replace(typed, constant=False, nullable=True, plain=None))
        return self.made[text][1].node.copy()

    def _list(self, node: exp.Expr, asked: _List) -> exp.Expr:
        """Return the column with the list of a unit's values; PrivacyError for lists of lists and the like."""
        text = to_sql(node)
        if text not in self.made:
            typed = make_total(asked.value, self.names)
            if typed.type.kind in ("LIST", "STRUCT", "OTHER", "NULL") or typed.type.sql == "ENUM":
                what = f"a list of {typed.type.sql} can't be made of a privacy unit's rows."
                raise privacy_error(asked.value, what, "list numbers, texts, dates or times.")
            kind = Type.parse(f"{typed.type.sql}[]")
            made = Typed(exp.null(), kind, length=DEFAULT_MAX_LENGTH, unchecked=True)
            self._add(text, self._write_list(node, asked, to_sql(make_canonical(typed, asked.value))), made)
        return self.made[text][1].node.copy()

    def _join(self, node: exp.Expr, asked: _List) -> exp.Expr:
        """Return the column with a unit's texts one after another; NULL if there are more than fit a text."""
        text = to_sql(node)
        if text not in self.made:
            call = node.this if isinstance(node, exp.Filter) else node
            between = call.args.get("separator") or exp.Literal.string(",")
            typed = make_total(asked.value, self.names)
            if typed.type.kind != "TEXT" or not between.is_string:
                what = "STRING_AGG takes texts, and a literal between them."
                raise bind_error(node, what, "cast the value to VARCHAR.")
            declared = [len(str(value)) for value in typed.values or ()]
            longest = max(declared, default=length_of(typed))
            most = MAX_TEXT // (longest + len(between.name) or 1)
            if most < _FEWEST_JOINED:
                what = f"the texts of one privacy unit may be {longest:,} characters long each, too many to join."
                shown = to_sql(asked.value)
                raise privacy_error(asked.value, what, f"shorten them: LEFT({shown}, 40) instead of {shown}.")
            value = to_sql(hold(typed, longest).node)
            there = f"{value} IS NOT NULL"
            listed = self._write_list(node, asked, value, there)
            fits = f"COUNT({value}){self._filter(asked.where)} <= {most}"
            sql = f"CASE WHEN {fits} THEN array_to_string({listed}, {to_sql(between)}) END"
            self._add(text, sql, Typed(exp.null(), TEXT, length=MAX_TEXT))
        return self.made[text][1].node.copy()

    def _write_list(self, node: exp.Expr, asked: _List, value: str, there: str = "") -> str:
        """Write the list of values in their order; the values themselves decide its ties."""
        if asked.distinct and any(item.this != asked.value for item in asked.order):
            what = "DISTINCT values have no order by other values."
            raise bind_error(node, what, f"order by {to_sql(asked.value)} itself.")
        order = [*self._order(asked.order), value]
        if asked.distinct:  # by the very values, as DuckDB requires it
            order = [self._order_by(value, item) for item in asked.order[:1]] or [value]
        where = self._filter(asked.where, there)
        return f"LIST({'DISTINCT ' * asked.distinct}{value} ORDER BY {', '.join(order)}){where}"

    def _order(self, order: Sequence[exp.Expr]) -> list[str]:
        by = []
        for item in order:
            key = make_total(item.this, self.names)
            refuse_order([key], item.this)
            by.append(self._order_by(to_sql(make_canonical(key, item.this)), item))
        return by

    @staticmethod
    def _order_by(value: str, item: exp.Expr) -> str:
        desc, first = bool(item.args.get("desc")), bool(item.args.get("nulls_first"))
        return f"{value} {'DESC' if desc else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"

    def _filter(self, where: exp.Expr | None, there: str = "") -> str:
        parts = [there] if there else []
        parts += [] if where is None else [f"({to_sql(make_condition(where, self.names).node)})"]
        return write_filter(" AND ".join(parts))

    def _add(self, text: str, sql: str, typed: Typed) -> None:
        """Add an aggregate with its type, under the next name."""
        above = replace(typed, node=_above(f"a{len(self.made)}"))
        self.made[text] = (sql, above)
        self._by_column[above.node.name] = above

    def _write_moments(self, call: Call, prefix: str) -> ExactMoments | None:
        """Return an aggregate's SQL from exact sums; None if it is written otherwise."""
        if call.distinct:
            return None
        condition = None if call.where is None else to_sql(make_condition(call.where, self.names).node)
        typed = [make_total(argument, self.names) for argument in call.args if not argument.is_star]
        name = AGGREGATE_OF_NAME[call.name].kind.upper()
        made = write_exact_moments(name, typed, condition, prefix)
        if made is None and self.twice:
            made = write_own_grid_moments(name, [_as_double(t) for t in typed], condition, prefix)
        return made


def _spell_with_exact_names(node: exp.Expr) -> exp.Expr:
    """Return BOOL_OR, BOOL_AND and ANY_VALUE of one unit's rows as MAX or MIN; other nodes unchanged."""
    if isinstance(node, exp.Filter) and (inner := _spell_with_exact_names(node.this)) is not node.this:
        return exp.Filter(this=inner, expression=node.expression.copy())
    given = node.this if isinstance(node, exp.IgnoreNulls) else node
    kind = exp.Max if isinstance(given, exp.LogicalOr) else exp.Min
    arbitrary = (
        isinstance(given, exp.Anonymous) and given.name.lower() == "arbitrary" and len(given.expressions) == 1
    )
    if not (isinstance(given, exp.LogicalOr | exp.LogicalAnd | exp.AnyValue) or arbitrary):
        return node
    value = given.expressions[0] if arbitrary else given.this
    if not isinstance(value, exp.Expr) or isinstance(value, exp.Order | exp.HavingMax | exp.Distinct):
        return node
    if isinstance(given, exp.LogicalOr | exp.LogicalAnd):
        value = exp.cast(value.copy(), "BOOLEAN", dialect="duckdb")
    made = kind(this=value.copy())
    made.meta.update(given.meta)
    return made


def _ordered_choice(node: exp.Expr) -> tuple[exp.Expr, list[exp.Expr], exp.Expr | None] | None:
    """Return the value, the order and the condition of FIRST or LAST; None for other nodes.

    LAST is the first value in the reverse order.
    """
    where = None
    if isinstance(node, exp.Filter):
        where, node = node.expression.this, node.this
    if not isinstance(node, exp.First | exp.Last) or not isinstance(node.this, exp.Expr):
        return None
    value, order = node.this, list[exp.Expr]()
    if isinstance(value, exp.Order):
        value, order = value.this, [item.copy() for item in value.expressions]
    if isinstance(node, exp.Last):
        for item in order:
            for key in ("desc", "nulls_first"):
                item.set(key, not item.args.get(key))
    return value, order, where


@dataclass(frozen=True)
class _List:
    """A list of the values of rows: their order, whether equal ones are put together, and the condition of FILTER."""

    value: exp.Expr
    order: tuple[exp.Expr, ...]
    distinct: bool
    where: exp.Expr | None


def _list_of(node: exp.Expr, kind: type[exp.Expr] = exp.ArrayAgg) -> _List | None:
    """Return what LIST or ARRAY_AGG asks for; None for other nodes."""
    where = None
    if isinstance(node, exp.Filter):
        where, node = node.expression.this, node.this
    if not isinstance(node, kind) or not isinstance(node.this, exp.Expr):
        return None
    value, order = node.this, tuple[exp.Expr, ...]()
    if isinstance(value, exp.Order):
        value, order = value.this, tuple(value.expressions)
    distinct = isinstance(value, exp.Distinct)
    if distinct and len(value.expressions) == 1:
        value = value.expressions[0]
    return _List(value, order, distinct, where)


def _resolved(node: exp.Expr, names: rel.Names) -> exp.Expr:
    """Return an expression with each column in one spelling, by its relation and name."""
    holder = exp.Paren(this=node.copy())
    for column in list(holder.find_all(exp.Column)):
        found = names.known(column)
        alias = next((alias for alias, item in names.fields() if item is found), None)
        if found is not None and column.find_ancestor(exp.Query) is None:
            column.replace(rel.column(found.name, alias))
    inner: exp.Expr = holder.this
    return inner


def _above(name: str) -> exp.Column:
    """Return a column of the aggregation, marked to distinguish it from an analyst's ``g``."""
    made = rel.column(name, "g")
    made.meta[_ABOVE] = True
    return made


def refuse_arguments(node: exp.Expr) -> BindError:
    """Return the refusal of named arguments inside a block."""
    what = "aggregates inside SUBSAMPLE are exact: they take no named arguments."
    return bind_error(node, what, "leave out the arguments with names.")


def write_exact_aggregate(call: Call, names: rel.Names, own: bool = False) -> tuple[str, Type]:
    """Return the SQL of a total aggregate: numbers as doubles in a safe range, others unchanged; BindError if invalid.

    ``own``: the rows are one unit's, whose sum of integers is an integer that may be compared.
    """
    where = write_filter("" if call.where is None else to_sql(make_condition(call.where, names).node))
    if call.named:
        raise refuse_arguments(call.node)
    distinct = "DISTINCT " if call.distinct else ""
    if call.name == "COUNT" and (not call.args or call.args[0].is_star):
        return f"COUNT({distinct}*){where}", BIGINT
    if call.name == "COUNT_IF":
        return f"COUNT(*){write_filter(to_sql(make_condition(call.args[0], names).node))}", BIGINT
    if call.name == "COUNT":
        return f"COUNT({distinct}{to_sql(make_total(call.args[0], names).node)}){where}", BIGINT
    name = AGGREGATE_OF_NAME[call.name].kind.upper()
    call.require(AGGREGATE_OF_NAME[call.name].arguments[1])
    typed = [make_total(argument, names) for argument in call.args]
    if AGGREGATE_OF_NAME[call.name].chosen:
        if call.name != "MODE":
            refuse_order(typed[-1:], call.args[-1])
        given = [to_sql(make_canonical(t, place)) for t, place in zip(typed, call.args, strict=True)]
        # DuckDB takes the first of equals, which other blocks' rows may determine: so take the smallest.
        first = f" ORDER BY {given[0]}" if AGGREGATE_OF_NAME[call.name].ties else ""
        return f"{name}({', '.join(given)}{first}){where}", typed[0].type
    for t, place in zip(typed, call.args, strict=True):
        if not t.type.numeric:
            raise bind_error(place, f"{call.name} needs a number, and this is {t.type.sql}.")
    if own and call.name == "SUM" and bound_any_sum(typed[0]) is not None:
        kind = "BIGINT" if typed[0].type.sql in SMALL_INTEGERS else "HUGEINT"
        return f"SUM({distinct}CAST({to_sql(typed[0].node)} AS {kind})){where}", HUGEINT
    if own and call.name == "SUM" and typed[0].type.kind == "INTEGER":
        return sum_wide_integers(typed[0], distinct, where), HUGEINT
    if (
        own
        and call.name == "SUM"
        and typed[0].type.kind == "DECIMAL"
        and typed[0].type.digits[1] <= MOST_DECIMALS
    ):
        return sum_decimals(typed[0], distinct, where), decimal(38, typed[0].type.digits[1])
    values = [_as_double(t) for t in typed]
    if call.name.startswith("QUANTILE"):
        if not typed[1].constant:
            raise bind_error(call.args[1], "the quantile must be a literal.")
        values[1] = to_sql(typed[1].node)
    total = write_order_independent(name, typed, values, distinct, where)
    if own and name in ("SUM", "AVG") and typed[0].type.kind == "DOUBLE":
        total = snap_to_decimal(total, typed[0].bounds)
    return total, DOUBLE


def _as_double(typed: Typed) -> str:
    """Return the SQL of a number as a double in a safe range; other numbers are missing."""
    double = f"CAST({to_sql(typed.node)} AS DOUBLE)"
    return f"CASE WHEN ABS({double}) < {_LARGEST} THEN {double} END"
