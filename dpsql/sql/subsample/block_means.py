"""SQL of the shorter way to one average per block, for ``AVG`` of a bounded column of doubles."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from sqlglot import exp

from dpsql.mechanisms.fast.block_means import Near
from dpsql.mechanisms.subsample.subsample import Range
from dpsql.sql.expressions import total_expressions
from dpsql.sql.expressions.fixed_point import choose_fine_steps
from dpsql.sql.parse.dialect import to_sql
from dpsql.sql.parse.options import call_of
from dpsql.sql.relations.privacy_unit import find_unit_holder
from dpsql.sql.relations.relation import From, Relation
from dpsql.sql.subsample.vectorised_blocks import BLOCK

_PLAIN = {"kind", "expressions", "from_", "where", "order"}


def near(
    select: exp.Select, bound: From, number: Callable[[Relation, exp.Expr | None], str], bounds: Range
) -> Near | None:
    """The shorter way to what a query gives that could be lifted; None where it has another shape.

    Args:
        select: the query inside SUBSAMPLE. bound: its only FROM over private rows. number: SQL of a row's block.
        bounds: the grid through which the combiner looks at the average.
    """
    call = call_of(select.expressions[0].unalias())
    if {key for key, value in select.args.items() if value} - _PLAIN or len(select.expressions) != 1:
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
    conditions = [f"{to_sql(bound.unit)} IS NOT NULL"] if bound.unit is not None else []
    where = select.args.get("where")
    conditions += (
        [f"({to_sql(total_expressions.make_condition(where.this, bound.names).node)})"]
        if where is not None
        else []
    )
    inside = [f"CAST({end!r} AS DOUBLE)" for end in (least, most)]
    # What a table says of its rows without reading them answers both where no number lies beyond.
    beyond = f"SELECT 1 AS one FROM {source} WHERE {value} < {inside[0]} OR {value} > {inside[1]} LIMIT 1"
    conditions.append(f"{value} BETWEEN {inside[0]} AND {inside[1]}")
    grouped = (
        f"SELECT {block} AS {BLOCK}, SUM(CAST({value} AS DOUBLE)) AS total, COUNT(*) AS n FROM {source} "
        f"WHERE {' AND '.join(conditions)} GROUP BY {block}"
    )
    return Near(
        f"SELECT COUNT(*) AS beyond FROM ({beyond}) AS found", grouped, bounds, Fraction(least), Fraction(most), rounding
    )  # fmt: skip
