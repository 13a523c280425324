"""Any query, for every subsample block at once: each level groups by the block besides what it groups by itself.

A lifted query carries the number of the block as its first column. Rows get it from the hash of their privacy unit; an
aggregation keeps it as a key; ORDER BY ... LIMIT chooses within it. What comes out has one row per block wherever the
query has one row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import PrivacyError
from dpsql.mechanisms.fast.block_means import Near
from dpsql.mechanisms.subsample.subsample import Range
from dpsql.sql.expressions import total_expressions
from dpsql.sql.expressions.fixed_point import (
    choose_fine_steps,
    unify_zeros,
    write_canonical,
    write_group_keys,
    write_order_independent,
)
from dpsql.sql.expressions.types import BIGINT, DOUBLE, Type, Typed
from dpsql.sql.normalize import label_of, make_unique, resolve_key
from dpsql.sql.parse.dialect import bind_error, parse_fragment, privacy_error, to_sql
from dpsql.sql.parse.functions import names_of
from dpsql.sql.parse.options import Call, call_of
from dpsql.sql.relations.relation import Field, From, Names, Relation, column, column_name, fold
from dpsql.sql.relations.unit_rows import find_unit_holder

if TYPE_CHECKING:
    from dpsql.sql.normalize import Env
    from dpsql.sql.relations.catalog import Binder

BLOCK = "dpsql_block"
"""No column of the analyst's is called so, and no name of a level above may be taken for it: it is always qualified."""
_LARGEST = "1e70"
"""Numbers beyond this count as missing inside a block: their squares would make some aggregates raise."""

# How an aggregate inside a block is written: number of arguments, and its result (None: the type of the first).
_NUMERIC = {
    "AVG": 1, "SUM": 1, "STDDEV": 1, "STDDEV_SAMP": 1, "STDDEV_POP": 1, "VARIANCE": 1, "VAR_POP": 1, "MEDIAN": 1,
    "QUANTILE_CONT": 2, "QUANTILE_DISC": 2, "CORR": 2, "COVAR_POP": 2, "COVAR_SAMP": 2, "REGR_SLOPE": 2,
    "REGR_INTERCEPT": 2, "REGR_R2": 2, "REGR_COUNT": 2, "REGR_AVGX": 2, "REGR_AVGY": 2,
}  # fmt: skip
_COUNTS = ("COUNT(", "REGR_COUNT(")
_ANY = {"MIN": 1, "MAX": 1, "MODE": 1, "ARG_MAX": 2, "ARG_MIN": 2}
KNOWN = names_of("SUBSAMPLE")


@dataclass(frozen=True)
class Lifted:
    """A query whose first column is the block, and its other columns: in SQL they are called by their places."""

    sql: str
    fields: tuple[Field, ...]
    single: bool
    """One row per block, by its form."""

    def relation(self, alias: str, name: str) -> Relation:
        fields = tuple(
            replace(f, typed=replace(f.typed, node=column(column_name(place), name)))
            for place, f in enumerate(self.fields)
        )
        source: exp.Expr = parse_fragment(f"SELECT * FROM ({self.sql}) AS {name}").args["from_"].this
        return Relation(alias, name, fields, source, True)


RowSql = Callable[[Relation, exp.Expr | None], str]
"""SQL of something about a private row, from its relation and its privacy unit."""


def write_from(bound: From) -> str:
    """Return the FROM of private rows, joins included."""
    return " ".join(map(to_sql, (bound.source, *bound.joins)))


def write_where(unit: exp.Expr | None, select: exp.Select, names: Names, *more: str) -> str:
    """Return the WHERE of a query inside a block: its own, and that a unit owns the row.

    A row that an outer join kept without a unit is there because no unit matches it: it would carry what one unit does into
    a block that is not that unit's.
    """
    conditions = [f"{to_sql(unit)} IS NOT NULL"] if unit is not None else []
    where = select.args.get("where")
    if where is not None:
        conditions.append(f"({to_sql(total_expressions.make_condition(where.this, names).node)})")
    conditions += more
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


Ctes = dict[str, tuple[exp.Expr, "Ctes"]]
"""Names that WITH gave: a query, and the names that it can see itself."""


@dataclass
class Lifter:
    """Lifts one query.

    ``number`` gives the SQL of the block of a private row, and ``turns`` a join that repeats the rows, where a unit is
    in several blocks. ``blocks``: how many there are, with or without rows.
    """

    binder: Binder
    number: RowSql
    turns: RowSql
    blocks: int
    ctes: Ctes = field(default_factory=dict)
    bound: list[From] = field(default_factory=list)
    """Every FROM over private tables, for whoever needs their units."""
    one: bool = False
    """Whether the last FROM that was read has one row per block at most."""

    def query(self, tree: exp.Expr, env: Env) -> Lifted:
        """Raises PrivacyError for what can't be lifted: the caller may run it block by block."""
        if isinstance(tree, exp.Subquery):
            return self.query(tree.this, env)
        if not isinstance(tree, exp.Select):
            raise privacy_error(tree, "only SELECT can run inside SUBSAMPLE.")
        outside = self.ctes
        try:
            return self._query(tree, env)
        finally:
            self.ctes = outside

    def _query(self, tree: exp.Select, env: Env) -> Lifted:
        with_ = tree.args.get("with_")
        for cte in with_.expressions if with_ is not None else ():
            if (with_ is not None and with_.args.get("recursive")) or cte.args["alias"].args.get("columns"):
                raise _unliftable(cte, "such a CTE")
            self.ctes = {**self.ctes, fold(cte.alias): (cte.this, self.ctes)}
        for key, what in (
            ("qualify", "QUALIFY"),
            ("windows", "WINDOW"),
            ("offset", "OFFSET"),
            ("sample", "USING SAMPLE"),
            ("distinct", "DISTINCT"),
        ):
            if tree.args.get(key):
                raise _unliftable(tree.args[key], what)
        group = tree.args.get("group")
        if group is not None and any(value for key, value in group.args.items() if key != "expressions"):
            raise _unliftable(group, "GROUP BY in several ways")
        limit = tree.args.get("limit")
        if limit is not None and not (isinstance(limit, exp.Limit) and limit.expression.name.isdigit()):
            raise _unliftable(limit, "such a LIMIT")
        names, source, block, owned = self._from(tree, env)
        one = self.one
        text = write_where(owned, tree, names)
        aggregated = bool(tree.args.get("group")) or any(
            self._aggregate(n) for item in tree.expressions for n in item.walk()
        )
        if not aggregated:
            rows = self._rows(tree, names, f"{source}{text}", block)
            return replace(rows, single=rows.single or one)
        return self._groups(tree, names, f"{source}{text}", block)

    def _aggregate(self, node: exp.Expr) -> bool:
        call = call_of(node)
        return call is not None and call.name in KNOWN

    def _from(self, tree: exp.Select, env: Env) -> tuple[Names, str, str, exp.Expr | None]:
        """Return the scope, FROM as SQL, the block of a row, and the unit that must own it."""
        from_ = tree.args.get("from_")
        if from_ is None:
            raise privacy_error(tree, "a query inside SUBSAMPLE needs private rows.")
        item = from_.this
        cte = self.ctes.get(fold(item.name)) if isinstance(item, exp.Table) else None
        inner = item.this if isinstance(item, exp.Subquery) else cte[0] if cte is not None else None
        if inner is not None:
            if tree.args.get("joins"):
                raise _unliftable(item, "a join of subqueries")
            named = item.args.get("alias")
            if named is not None and named.args.get("columns"):
                raise _unliftable(item, "such an alias")
            alias = item.alias_or_name or self.binder.name("derived")
            here, self.ctes = self.ctes, cte[1] if cte is not None else self.ctes
            lifted = self.query(inner, env)
            name = self.binder.name("lifted")
            relation, self.one = lifted.relation(alias, name), lifted.single
            self.ctes = here
            return Names((relation,)), f" FROM {to_sql(relation.source)}", to_sql(column(BLOCK, name)), None
        bound = self.binder.private_from(tree, env)
        self.one = False
        self.bound.append(bound)
        private = find_unit_holder(bound)
        source = f" FROM {write_from(bound)}{self.turns(private, bound.unit)}"
        return bound.names, source, self.number(private, bound.unit), bound.unit

    def _rows(self, tree: exp.Select, names: Names, source: str, block: str) -> Lifted:
        items, fields = [f"{block} AS {BLOCK}"], list[Field]()
        for item in tree.expressions:
            if item.is_star:
                if len([value for value in item.args.values() if value]) > (
                    1 if isinstance(item, exp.Column) else 0
                ):
                    raise _unliftable(item, "such a *")
                for _alias, f in names.fields():
                    items.append(f"{to_sql(f.typed.node)} AS {column_name(len(fields))}")
                    fields.append(f)
                continue
            typed = total_expressions.make_total(item.unalias(), names)
            name = item.alias_or_name or self.binder.name("column")
            items.append(f"{to_sql(typed.node)} AS {column_name(len(fields))}")
            fields.append(Field(name, typed))
        text = f"SELECT {', '.join(items)}{source}"
        return self._cut(tree, text, tuple(fields), names, block)

    def _groups(self, tree: exp.Select, names: Names, source: str, block: str) -> Lifted:
        group = tree.args.get("group")
        keys: list[tuple[str, Typed, exp.Expr]] = []
        for place in group.expressions if group is not None else ():
            node = resolve_key(place, tree)
            keys.append((f"k{len(keys)}", unify_zeros(total_expressions.make_total(node, names)), node))
        made: dict[str, tuple[str, Typed]] = {}
        above = Grouped(names, keys, made)
        outputs: list[tuple[str, Typed]] = []
        labels = []
        for item in tree.expressions:
            inner = item.unalias()
            call = call_of(inner)
            known = call is not None and call.name in KNOWN
            labels.append(
                item.alias or (label_of(call) if call and known else item.alias_or_name or to_sql(item))
            )
            outputs.append(("", total_expressions.make_total(above.rewrite(inner.copy()), above)))
        outputs = [(name, typed) for name, (_, typed) in zip(make_unique(labels), outputs, strict=True)]
        having = tree.args.get("having")
        condition = (
            to_sql(total_expressions.make_condition(above.rewrite(having.this.copy()), above).node)
            if having is not None
            else ""
        )
        order = tree.args.get("order")
        ordered = []
        for node in order.expressions if order is not None else ():
            alias = next(
                (
                    t
                    for n, t in outputs
                    if isinstance(node.this, exp.Column) and fold(n) == fold(node.this.name)
                ),
                None,
            )
            if isinstance(node.this, exp.Literal) and node.this.name.isdigit():
                alias = (
                    outputs[int(node.this.name) - 1][1] if 0 < int(node.this.name) <= len(outputs) else None
                )
            typed = alias or total_expressions.make_total(above.rewrite(node.this.copy()), above)
            ordered.append(f"{to_sql(typed.node)} {_direction(node)}")
        inner_items = [f"{block} AS {BLOCK}", *(f"{to_sql(t.node)} AS {n}" for n, t, _ in keys)]
        inner_items += [f"{sql} AS {typed.node.name}" for sql, typed in made.values()]
        by = [sql for _, t, _ in keys for sql in write_group_keys(t)]
        inner = f"SELECT {', '.join(inner_items)}{source} GROUP BY {', '.join([block, *by])}"
        grouped = f"({inner}) AS g"
        if not keys:  # one row even where no row is left: what the query gives of nothing
            also = [
                f"COALESCE(g.{typed.node.name}, 0) AS {typed.node.name}"
                if sql.startswith(_COUNTS)
                else f"g.{typed.node.name}"
                for sql, typed in made.values()
            ]
            every = f"range({self.blocks}) AS every({BLOCK}) LEFT JOIN {grouped} ON g.{BLOCK} = every.{BLOCK}"
            grouped = f"(SELECT {', '.join([f'every.{BLOCK}', *also])} FROM {every}) AS g"
        shown = [f"g.{BLOCK} AS {BLOCK}"]
        shown += [f"{to_sql(t.node)} AS {column_name(place)}" for place, (_, t) in enumerate(outputs)]
        text = f"SELECT {', '.join(shown)} FROM {grouped}" + (f" WHERE {condition}" if condition else "")
        limit = tree.args.get("limit")
        if limit is not None:
            count = limit.expression.name
            ties = [*ordered, *(part for name, t, _ in keys for part in _all_of(f"g.{name}", t))]
            text += f" QUALIFY row_number() OVER (PARTITION BY g.{BLOCK} ORDER BY {', '.join(ties) or '1'}) <= {int(count)}"
        single = not keys or (limit is not None and limit.expression.name == "1")
        return Lifted(text, tuple(Field(n, t) for n, t in outputs), single)

    def _cut(
        self, tree: exp.Select, text: str, fields: tuple[Field, ...], names: Names, block: str
    ) -> Lifted:
        limit = tree.args.get("limit")
        if limit is None:  # an order without a limit says nothing about rows that are aggregated above
            return Lifted(text, fields, False)
        order = tree.args.get("order")
        items = []
        for node in order.expressions if order is not None else ():
            if isinstance(node.this, exp.Literal):
                raise _unliftable(node, "ORDER BY a place")
            items.append(f"{to_sql(total_expressions.make_total(node.this, names).node)} {_direction(node)}")
        if not items:
            raise privacy_error(limit, "LIMIT inside SUBSAMPLE needs ORDER BY.")
        for f in fields:  # among equals, not the first that comes
            items += _all_of(to_sql(f.typed.node), f.typed)
        whole = int(limit.expression.name)
        # The block as an expression of this FROM: by its name it would be that of the level above, seen sideways.
        text += f" QUALIFY row_number() OVER (PARTITION BY {block} ORDER BY {', '.join(items)}) <= {whole}"
        return Lifted(text, fields, whole == 1)


@dataclass
class Grouped:
    """The scope above an exact aggregation: its keys and aggregates are columns of ``g``.

    ``made`` collects the aggregates: their spelling, to SQL and what they are above.
    """

    names: Names
    keys: list[tuple[str, Typed, exp.Expr]]
    made: dict[str, tuple[str, Typed]]

    def column(self, node: exp.Column) -> Typed:
        if node.meta.get(_ABOVE):
            for name, typed, _ in self.keys:
                if name == node.name:
                    return replace(typed, node=node.copy(), constant=False)
            for _, typed in self.made.values():
                if typed.node.name == node.name:
                    return replace(typed, node=node.copy())
        raise bind_error(
            node, f"{node.name} must be a group or stand inside an aggregate.", f"write AVG({node.name})."
        )

    def rewrite(self, node: exp.Expr) -> exp.Expr:
        for name, _, key in self.keys:
            if node == key:
                return _above(name)
        call = call_of(node)
        if call is not None and call.name in KNOWN:
            return self._made(call)
        for child in list(node.iter_expressions()):
            new = self.rewrite(child)
            if new is not child:
                child.replace(new)
        return node

    def _made(self, call: Call) -> exp.Expr:
        text = to_sql(call.node)
        if text not in self.made:
            sql, kind = aggregate_sql(call, self.names)
            self.made[text] = (sql, Typed(_above(f"a{len(self.made)}"), kind))
        return self.made[text][1].node.copy()


_ABOVE = "dpsql_above"


def _above(name: str) -> exp.Column:
    """A column of the aggregation: known by a mark of ours, so that an analyst's alias ``g`` is not taken for it."""
    made = column(name, "g")
    made.meta[_ABOVE] = True
    return made


def _all_of(sql: str, typed: Typed) -> list[str]:
    """What a value is sorted by so that none but the same are equal: how it is written, where equals may look different."""
    return [sql, f"CAST({sql} AS VARCHAR)"] if typed.type.two_faced else [sql]


def _direction(node: exp.Expr) -> str:
    nulls = "FIRST" if node.args.get("nulls_first") else "LAST"
    return f"{'DESC' if node.args.get('desc') else 'ASC'} NULLS {nulls}"


def _unliftable(node: exp.Expr, what: str) -> PrivacyError:
    return privacy_error(node, f"{what} is not known inside SUBSAMPLE.")


def aggregate_sql(call: Call, names: Names) -> tuple[str, Type]:
    """An aggregate over a block's rows that can't fail: numbers as doubles within reason, all else as it is.

    Raises:
        BindError: wrong arguments; PrivacyError: an aggregate that is not known.
    """
    name = {"VARIANCE": "VAR_SAMP", "STDDEV": "STDDEV_SAMP"}.get(call.name, call.name)
    where = (
        f" FILTER (WHERE {to_sql(total_expressions.make_condition(call.where, names).node)})"
        if call.where is not None
        else ""
    )
    if call.named:
        raise bind_error(call.node, "aggregates inside SUBSAMPLE are exact: they take no options.")
    distinct = "DISTINCT " if call.distinct else ""
    if call.name == "COUNT":
        inside = (
            "*"
            if not call.args or call.args[0].is_star
            else to_sql(total_expressions.make_total(call.args[0], names).node)
        )
        return f"COUNT({distinct}{inside}){where}", BIGINT
    if call.name == "COUNT_IF":
        return (
            f"COUNT(*) FILTER (WHERE {to_sql(total_expressions.make_condition(call.args[0], names).node)})",
            BIGINT,
        )
    need = _NUMERIC.get(call.name) or _ANY[call.name]
    if len(call.args) != need:
        raise bind_error(call.node, f"{call.name} takes {need} argument{'s' if need > 1 else ''}.")
    typed = [total_expressions.make_total(argument, names) for argument in call.args]
    if call.name in _ANY:
        given = [write_canonical(t, place) for t, place in zip(typed, call.args, strict=True)]
        # Among equals DuckDB takes the first that it meets, which other blocks' rows may decide: so the smallest.
        first = f" ORDER BY {given[0]}" if call.name in ("MODE", "ARG_MAX", "ARG_MIN") else ""
        return f"{name}({', '.join(given)}{first}){where}", typed[0].type
    for t, place in zip(typed, call.args, strict=True):
        if not t.type.numeric:
            raise bind_error(place, f"{call.name} needs a number, and this is {t.type.sql}.")
    values = [_reasonable(to_sql(t.node)) for t in typed]
    if call.name.startswith("QUANTILE"):
        if not typed[1].constant:
            raise bind_error(call.args[1], "the quantile must be a literal.")
        values[1] = to_sql(typed[1].node)
    return write_order_independent(name, typed, values, distinct, where), DOUBLE


def _reasonable(sql: str) -> str:
    double = f"CAST({sql} AS DOUBLE)"
    return f"CASE WHEN ABS({double}) < {_LARGEST} THEN {double} END"


# -- one average per block --------------------------------------------------------------------------------------

_PLAIN_CLAUSES = {"kind", "expressions", "from_", "where", "order"}


def near(select: exp.Select, bound: From, number: RowSql, bounds: Range) -> Near | None:
    """Return the shorter way to what a query gives that could be lifted; None where it has another shape.

    Args:
        select: the query inside SUBSAMPLE.
        bound: its only FROM over private rows.
        number: SQL of a row's block.
        bounds: the grid through which the combiner looks at the average.
    """
    call = call_of(select.expressions[0].unalias())
    if {key for key, value in select.args.items() if value} - _PLAIN_CLAUSES or len(select.expressions) != 1:
        return None
    if call is None or call.name != "AVG" or call.distinct or call.where is not None:
        return None
    from_ = select.args["from_"].this
    if len(bound.relations) != 1 or bound.joins or not isinstance(from_, exp.Table):
        return None
    if not isinstance(call.args[0], exp.Column):
        return None
    typed = total_expressions.make_total(call.args[0], bound.names)
    steps = choose_fine_steps(typed.bounds) if typed.type.kind == "DOUBLE" else None
    known = typed.bounds
    if steps is None or known is None or known.low is None or known.high is None:
        return None
    # As far as the declared bounds and once more: a few values beyond them are no reason to go the longer way.
    most = math.nextafter(float(2 * max(abs(known.low), abs(known.high))), math.inf)
    least = 0.0 if known.low >= 0 else -most
    rounding = 1 / Fraction(steps) + Fraction(most) / 2**48  # of the grid, and of the division
    source, value = to_sql(bound.source), to_sql(typed.node)
    block = number(find_unit_holder(bound), bound.unit)
    inside = [f"CAST({end!r} AS DOUBLE)" for end in (least, most)]
    # What a table says of its rows without reading them answers both where no number lies beyond.
    beyond = f"SELECT 1 AS one FROM {source} WHERE {value} < {inside[0]} OR {value} > {inside[1]} LIMIT 1"
    where = write_where(bound.unit, select, bound.names, f"{value} BETWEEN {inside[0]} AND {inside[1]}")
    grouped = (
        f"SELECT {block} AS {BLOCK}, SUM(CAST({value} AS DOUBLE)) AS total, COUNT(*) AS n FROM {source}"
        f"{where} GROUP BY {block}"
    )
    return Near(
        f"SELECT COUNT(*) AS beyond FROM ({beyond}) AS found", grouped, bounds, Fraction(least), Fraction(most), rounding
    )  # fmt: skip
