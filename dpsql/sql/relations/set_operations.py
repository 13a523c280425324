"""UNION, INTERSECT and EXCEPT of private rows of one unit.

UNION ALL puts a unit's rows beside each other. The others compare rows, and rows that hold the privacy unit are alike only
among one unit's own: each is a grouping of the two sides' rows by all columns, of which HAVING keeps those that stand on the
sides it asks for. GROUP BY and these operations call two missing values equal, so the rows are those of DuckDB.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from dpsql.sql.expressions.lengths import length_of
from dpsql.sql.expressions.types import INTEGER, Bounds, Typed
from dpsql.sql.normalize import Env
from dpsql.sql.parse.dialect import bind_error, privacy_error
from dpsql.sql.relations.catalog import Binder
from dpsql.sql.relations.projections import aggregate_per_unit
from dpsql.sql.relations.relation import (
    UNIT,
    Field,
    From,
    Relation,
    column,
    column_name,
    meets_exactly,
)
from dpsql.sql.relations.unit_rows import advise_one_unit

_SIDES = {exp.Union: None, exp.Intersect: (True, True), exp.Except: (True, False)}
"""The sides on which a row must stand, or not; None where either will do."""


def combine(binder: Binder, left: Relation, right: Relation, tree: exp.SetOperation, env: Env) -> Relation:
    """Return what a set operation makes of two private relations of the same units.

    Raises:
        PrivacyError: units differ, or rows of several units would be compared. BindError: columns don't fit.
    """
    word = tree.key.upper()
    if tree.args.get("by_name"):
        what = "BY NAME is not known over private rows."
        raise privacy_error(tree.left, what, "write UNION ALL, with the same columns in the same places.")
    for clause in ("limit", "order"):
        if tree.args.get(clause):
            raise privacy_error(tree.args[clause], "private rows have no order to cut by.")
    if not tree.args.get("distinct"):
        if not isinstance(tree, exp.Union):
            what = f"{word} ALL would compare how often rows occur."
            raise privacy_error(tree.left, what, f"write {word}, with the privacy unit among the columns.")
        return _put_together(left, right, tree, binder.name("union"))
    if not any(
        mine.is_unit and other.is_unit for mine, other in zip(left.fields, right.fields, strict=False)
    ):
        what = f"{word} here would compare rows of different people."
        hint = "keep the privacy unit among the columns of both sides, or aggregate each side first."
        raise privacy_error(tree.left, what, hint)
    side = binder.name("side")
    marked = [
        replace(relation, fields=(*relation.fields, Field(side, _number(place))))
        for place, relation in enumerate((left, right))
    ]
    rows = _put_together(marked[0], marked[1], tree, binder.name("union"))
    names = [exp.column(exp.to_identifier(f.name, quoted=True)) for f in rows.fields[:-1]]
    select = exp.Select(expressions=names)
    select.set("group", exp.Group(expressions=[name.copy() for name in names]))
    conditions = [
        (exp.GT if wanted else exp.EQ)(this=_count_rows_of(side, place), expression=exp.Literal.number(0))
        for place, wanted in enumerate(_SIDES[type(tree)] or ())
    ]
    if conditions:
        select.set("having", exp.Having(this=exp.and_(*conditions, copy=False)))
    return aggregate_per_unit(binder, select, From([rows], rows.source, unit=rows.unit), env)


def _number(place: int) -> Typed:
    return Typed(exp.Literal.number(place), INTEGER, Bounds.point(place), nullable=False)


def _count_rows_of(side: str, place: int) -> exp.Expr:
    """Return the number of a group's rows that stand on one side."""
    here = exp.EQ(this=exp.column(side), expression=exp.Literal.number(place))
    return exp.CountIf(this=here)


def _put_together(left: Relation, right: Relation, tree: exp.SetOperation, alias: str) -> Relation:
    """Return UNION ALL of two private relations of the same units."""
    if left.row_level or right.row_level or left.unit is None or right.unit is None:
        raise privacy_error(tree, "rows that are their own unit can't be put together.")
    kinds = (left.unit_type, right.unit_type)
    alike = kinds[0] is not None and kinds[1] is not None and meets_exactly(kinds[0], kinds[1])
    if not alike or {t.unit_domain for t in left.tables} != {t.unit_domain for t in right.tables}:
        what = "the two sides have different privacy units."
        raise privacy_error(tree.left, what, advise_one_unit([left], [right]))
    if len(left.fields) != len(right.fields):
        raise bind_error(tree, f"the two sides of {tree.key.upper()} have different numbers of columns.")
    fields, halves = [], [exp.Select(), exp.Select()]
    for place, (mine, other) in enumerate(zip(left.fields, right.fields, strict=True)):
        if mine.typed.type.kind != other.typed.type.kind or mine.is_unit != other.is_unit:
            what = f"{mine.name} is not the same kind of column on both sides."
            raise privacy_error(tree, what, "put the same columns, and the privacy unit, in the same places.")
        bounds = None
        if mine.typed.bounds is not None and other.typed.bounds is not None:
            bounds = mine.typed.bounds.union(other.typed.bounds)
        typed = replace(mine.typed, node=column(column_name(place), alias), bounds=bounds, values=None)
        if mine.typed.type.kind in ("TEXT", "LIST"):
            sides = (mine.typed, other.typed)
            longest = max(length_of(side) for side in sides)
            sure = all(side.length is not None and not side.unchecked for side in sides)
            typed = replace(typed, length=longest, unchecked=not sure)
        anchors, optional = mine.anchors & other.anchors, mine.optional or other.optional
        lost = all(f.lost or side.unmatched is None for f, side in ((mine, left), (other, right)))
        fields.append(replace(mine, typed=typed, anchors=anchors, key=False, optional=optional, lost=lost))
        for half, f in zip(halves, (mine, other), strict=True):
            half.select(exp.alias_(f.typed.node.copy(), column_name(place)), copy=False)
    for half, side in zip(halves, (left, right), strict=True):
        assert side.unit is not None
        half.select(exp.alias_(side.unit.copy(), UNIT), copy=False)
        half.from_(side.source.copy(), copy=False)
    source = exp.union(halves[0], halves[1], distinct=False, copy=False).subquery(
        exp.to_identifier(alias), copy=False
    )
    tables = tuple(dict.fromkeys((*left.tables, *right.tables)))
    inputs = tuple(dict.fromkeys((*left.inputs, *right.inputs)))
    known = [side.max_rows for side in (left, right)]
    rows = None if None in known else sum(r for r in known if r is not None)
    return Relation(
        alias, alias, tuple(fields), source, True, column(UNIT, alias), tables, inputs, rows_bound=rows,
        unit_type=left.unit_type, fan_out=max(left.fan_out, right.fan_out), unmatched=left.unmatched or right.unmatched,
    )  # fmt: skip
