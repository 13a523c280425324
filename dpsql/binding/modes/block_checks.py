"""What a query inside a block may use: a closed list of constructs that depend on the block's rows alone.

Excluded is access to anything else: files, settings, clocks, random numbers. A query must return one row, and its tables must
have one kind of privacy unit: otherwise one unit would be in two blocks.

Only :mod:`dpsql.binding.modes.block_queries` uses it. It is a separate module because privacy depends on it, so that it can be
reviewed alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from dpsql.binding.public_statement import Schema
from dpsql.binding.relations.binder import Binder
from dpsql.binding.relations.exact_aggregates import refuse_arguments
from dpsql.binding.relations.relation import Field, Relation, fold
from dpsql.binding.relations.unit_rows import has_whole_unit
from dpsql.binding.values import total_expressions
from dpsql.binding.values.coercion import refuse_order
from dpsql.binding.values.declared_values import Declared, check_released, list_values
from dpsql.catalogue.aggregate_names import BLOCK_CALLS, EXACT_AGGREGATES, nearest_aggregate
from dpsql.catalogue.row_names import CALLED_FUNCTIONS, FILLING_FUNCTIONS, NOT_LISTED
from dpsql.errors import BindError, PrivacyError
from dpsql.language.dialect import NAME_OF_CLASS, NAMED, ROW_OF_CLASS, join_word, privacy_error, to_sql

_NODES = """
Select Subquery Union Except Intersect From Join Where Group Having Qualify Order Ordered Limit Offset Window WindowSpec
Alias Identifier TableAlias Table Star Distinct Filter WithinGroup With CTE Tuple Values Exists Unnest Cube Rollup
GroupingSets Interval Var IgnoreNulls RespectNulls Array DataType DataTypeParam Column
RegrSxx RegrSyy RegrSxy Kurtosis Skewness ArrayAgg GroupConcat First Last AnyValue LogicalAnd LogicalOr BitwiseAndAgg BitwiseOrAgg
BitwiseXorAgg RowNumber Rank DenseRank PercentRank CumeDist Ntile Lag Lead FirstValue LastValue NthValue
ArraySort ArrayDistinct ArrayMax ArrayMin
"""

_NAMED = (CALLED_FUNCTIONS | BLOCK_CALLS) - FILLING_FUNCTIONS
"""Functions without a class of their own, or called as ``x.f()``; in a block no binder bounds the length of filled texts."""

_OTHER_CLASSES = {vars(exp)[name] for name in _NODES.split() if name in vars(exp)}

_BLOCK_CLASSES = {kind for kind, row in NAME_OF_CLASS.items() if "SUBSAMPLE" in row.modes}

_BLOCK_CLASSES -= {exp.ApproxQuantile}  # it depends on the order of rows

_CLASSES: frozenset[type] = frozenset(
    {*total_expressions._HANDLERS, *ROW_OF_CLASS, *_BLOCK_CLASSES, *_OTHER_CLASSES} - {exp.Pad}
)
"""Classes of nodes that depend on the block's rows alone: expressions, structure, aggregates, windows, lists; no filled texts."""

_FROM_FUNCTIONS = ("range", "generate_series", "unnest")

_BY_ORDER: dict[type[exp.Expr], tuple[str, ...]] = {
    **dict.fromkeys((exp.Min, exp.Max, exp.Ordered), ("this",)),
    **dict.fromkeys((exp.ArgMax, exp.ArgMin), ("expression",)),
    **dict.fromkeys((exp.LT, exp.LTE, exp.GT, exp.GTE), ("this", "expression")),
    **dict.fromkeys((exp.Greatest, exp.Least), ("this", "expressions")),
    exp.Between: ("this", "low", "high"),
}
"""Nodes that compare values, and the arguments that they compare."""

_WITH_TIES = tuple(kind for kind, row in NAME_OF_CLASS.items() if row.ties)


def _as_list(part: object) -> list[exp.Expr]:
    return [item for item in (part if isinstance(part, list) else [part]) if isinstance(item, exp.Expr)]


def check_query(tree: exp.Select) -> None:
    """Raise PrivacyError for a construct that is not on the list, and for a query that may return more than one row."""
    for node in tree.walk():
        _allow(node)
    _one_row(tree)


def check_relations(private: list[Relation], tree: exp.Select) -> None:
    """Check a query of blocks against the private relations that it reads.

    Raises:
        BindError: a comparison with a constant that a column can't have, or by the order of labels.
        PrivacyError: their units, or their rows if these are units, are not of one kind.
    """
    _refuse_undeclared(private, tree)
    _refuse_order(private, tree)
    _one_kind_of_unit(private, tree)
    _one_kind_of_row(private, tree)


def describe_answer(binder: Binder, sql: str, schemas: Mapping[str, Schema]) -> list[tuple[str, str]]:
    """Return names and types of the columns of a block's answer; BindError if it doesn't fit its tables."""
    try:
        return binder.finish.describe(sql, schemas, binder.public)
    except BindError as error:
        raise BindError(f"inside a block: {error.message.partition(': ')[2]}") from None


def _refuse_undeclared(private: list[Relation], tree: exp.Expr) -> None:
    """Raise BindError for a comparison of a column, by an unambiguous name, with a constant that it can't have."""
    named: dict[str, list[Field]] = {}
    for relation in private:
        for f in relation.fields:
            named.setdefault(fold(f.name), []).append(f)

    def declared(node: exp.Column) -> Declared | None:
        found = named.get(fold(node.name), [])
        values = list_values(found[0].typed) if len(found) == 1 else None
        return None if values is None else (to_sql(node), values)

    for query in tree.find_all(exp.Select):
        check_released(query, declared)


def _refuse_order(private: list[Relation], tree: exp.Expr) -> None:
    """Raise BindError for an expression that depends on the order of an ENUM's labels, which are texts in a block."""
    fields = (f for relation in private for f in relation.fields if f.typed.order is not None)
    ordered = {fold(f.name): f.typed for f in fields}
    for node in tree.find_all(*_BY_ORDER) if ordered else ():
        if isinstance(node, exp.Ordered) and isinstance(node.parent and node.parent.parent, _WITH_TIES):
            continue
        given = [part for key in _BY_ORDER[type(node)] for part in _as_list(node.args.get(key))]
        columns = [(part.this if isinstance(part, exp.Order) else part).unnest() for part in given]
        found = [ordered.get(fold(c.name)) for c in columns if isinstance(c, exp.Column)]
        known = [typed for typed in found if typed is not None]
        if known and len(known) == len(columns):
            refuse_order(known, node)


def refuse_many_rows(select: exp.Select) -> PrivacyError:
    """Return the refusal of a query that may return more than one row."""
    hint = "aggregate to one row, or order the rows and keep the first."
    what, first = "a query inside SUBSAMPLE must return one row.", select.expressions[0]
    return privacy_error(select.args.get("group"), what, hint, around=first)


def _allow(node: exp.Expr) -> None:
    """Refuse constructs not known to depend on the block's rows alone."""
    if isinstance(node, exp.Anonymous):
        name = node.name.lower()
        if name.startswith(NAMED):
            raise refuse_arguments(node)
        in_from = isinstance(node.parent, exp.Table) and name in _FROM_FUNCTIONS
        if name not in _NAMED and not (in_from and _literals(node.expressions)):
            why, near = NOT_LISTED.get(name), nearest_aggregate(name)
            hint = f"did you mean {near}?" if near is not None and near != name.upper() else None
            what = f"{name} can't be used inside SUBSAMPLE{f': {why}' if why else ''}."
            raise privacy_error(node, what, hint)
        return
    if isinstance(node, exp.GenerateSeries):
        ends = [part for key in ("start", "end", "step") if (part := node.args.get(key)) is not None]
        if isinstance(node.parent, exp.Table) and _literals(ends):
            return
    if type(node) not in _CLASSES:
        what = node.sql_name() if isinstance(node, exp.Func) else node.key.upper()
        raise privacy_error(node, f"{what} can't be used inside SUBSAMPLE.")
    if isinstance(node, exp.Join) and join_word(node, "method") == "POSITIONAL":
        raise privacy_error(node, "rows have no positions to join by.")
    if isinstance(node, exp.Table | exp.Subquery):
        for key in ("sample", "pivots", "laterals", "version", "when", "hints", "changes"):
            if node.args.get(key):
                raise privacy_error(node, f"{key.upper()} can't be used inside SUBSAMPLE.")


def _literals(nodes: list[exp.Expr]) -> bool:
    plain = (node.this if isinstance(node, exp.Neg) else node for node in nodes)
    return all(isinstance(node, exp.Literal) for node in plain)


def _own(select: exp.Select) -> Iterator[exp.Expr]:
    for item in select.expressions:
        yield from item.walk(prune=lambda n: isinstance(n, exp.Query))


def _is_aggregate(node: exp.Expr) -> bool:
    """Return whether a call is an aggregate, also one that sqlglot has no class for."""
    return isinstance(node, exp.AggFunc) or (
        isinstance(node, exp.Anonymous) and node.name.lower() in EXACT_AGGREGATES
    )


def _one_row(select: exp.Select) -> None:
    limit = select.args.get("limit")
    if limit is not None and isinstance(limit.expression, exp.Literal) and limit.expression.name == "1":
        return
    own = list(_own(select))
    windowed = {id(node.this) for node in own if isinstance(node, exp.Window)}
    windowed |= {id(n.this) for n in own if isinstance(n, exp.Filter | exp.IgnoreNulls) and id(n) in windowed}
    aggregates = any(_is_aggregate(node) and id(node) not in windowed for node in own)
    if not select.args.get("group") and (aggregates or select.args.get("from_") is None):
        return
    raise refuse_many_rows(select)


def _one_kind_of_unit(private: list[Relation], tree: exp.Expr) -> None:
    """Refuse units of several types: with unequal hashes one unit would be in two blocks."""
    kinds = {("whole" if has_whole_unit(r) else r.unit_type.sql) for r in private if r.unit_type is not None}
    if len(kinds) > 1:
        what = "the privacy units of these tables have different types."
        hint = "ask the owner for units of one type, or query the tables one at a time."
        raise privacy_error(tree.args.get("from_"), what, hint)


def _one_kind_of_row(private: list[Relation], tree: exp.Expr) -> None:
    """Refuse rows that are their own units read with different columns: one row would be in two blocks."""
    kinds: dict[str, tuple[str, ...]] = {}
    for relation in (r.renamed("same", "same") for r in private if r.unit is None):
        said = (to_sql(relation.source), *(to_sql(f.typed.node) for f in relation.fields))
        for table in relation.tables:
            if kinds.setdefault(table.name, said) != said:
                what = f"each row of {table.name} is a privacy unit, and two places read it with different columns."
                hint = f"name {table.name} itself in both places, or ask the owner for a privacy unit column."
                raise privacy_error(tree.args.get("from_") or tree.expressions[0], what, hint)
