"""Intervals of output columns, and GoogleSQL's JSON report: what a release shows besides its numbers."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from dpsql.sql.dialect import expression_of, to_sql
from dpsql.sql.relations.relation import column

_DOUBLE = exp.DataType.build("DOUBLE", dialect="duckdb")


def interval_of(node: exp.Expr, known: Mapping[str, object]) -> tuple[exp.Expr, exp.Expr] | None:
    """The ends of an output's interval: the same expression over the ends of its one aggregate, where that is monotone."""
    columns = list(node.find_all(exp.Column))
    if len(columns) != 1 or columns[0].name not in known:
        return None
    name = columns[0].name
    return ends_of(node, column(f"{name}__low"), column(f"{name}__high"))


def ends_of(node: exp.Expr, low: exp.Expr, high: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
    """The expression over each end of its one column's interval; None where it may turn them round."""
    if not _monotone(node):
        return None
    ends = []
    for end in (low, high):
        copy = node.copy()
        target = next(iter(copy.find_all(exp.Column)))
        if target is copy:
            copy = end
        else:
            target.replace(end)
        ends.append(exp.Cast(this=copy, to=_DOUBLE.copy()))
    return ends[0], ends[1]


def _monotone(node: exp.Expr) -> bool:
    if isinstance(node, exp.Column):
        return True
    if isinstance(node, exp.Paren | exp.Cast | exp.Round):
        return _monotone(node.this)
    if isinstance(node, (exp.Add, exp.Greatest | exp.Least)):
        rest = [c for c in node.iter_expressions() if not isinstance(c, exp.Literal)]
        return len(rest) == 1 and _monotone(rest[0])
    if isinstance(node, exp.Sub | exp.Div):
        return isinstance(node.expression, exp.Literal) and _monotone(node.this)
    return False


def json_report(name: str, confidence: float) -> exp.Expr:
    value, low, high = (to_sql(column(f"{name}{end}")) for end in ("", "__low", "__high"))
    text = (
        f"to_json({{'result': {{'value': {value}, 'noise_confidence_interval': {{'lower_bound': {low}, "
        f"'upper_bound': {high}, 'confidence_level': {confidence}}}}}}})"
    )
    return expression_of(text)
