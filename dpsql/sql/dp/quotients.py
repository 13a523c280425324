"""``SUM(x) / COUNT(x)`` of the same rows, read as the mean that it is.

A SUM and a COUNT that stand alone clamp a unit's total, each its own: their quotient may exceed every value. A mean weighs
the rows of such a unit instead, and is held to the bounds.
"""

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import BindError
from dpsql.sql.parse.dialect import NAMED
from dpsql.sql.parse.options import Call, call_of, read_epsilon

if TYPE_CHECKING:
    from dpsql.sql.dp.block import Block

_OF_A_SUM = {"contribution_bounds_per_row", "epsilon"}
_OF_A_COUNT = {"epsilon"}


def read_as_mean(block: Block, node: exp.Expr) -> exp.Expr | None:
    """Return the call of AVG that a quotient means; None where it is no ``SUM(x) / COUNT(x)`` of the same rows.

    The count may stand in ``NULLIF(..., 0)``, and the sum may be made a DOUBLE first. Bounds per group are left alone:
    with them AVG is the mean of the units' own means. Named shares of epsilon go to the mean where both calls have one;
    else it takes an equal part, like any aggregate.
    """
    if not isinstance(node, exp.Div):
        return None
    total, count = call_of(_find_sum(node.this)), call_of(_find_count(node.expression))
    if total is None or count is None or (total.name, count.name) != ("SUM", "COUNT"):
        return None
    if total.named.keys() - _OF_A_SUM or count.named.keys() - _OF_A_COUNT:
        return None
    if any(call.distinct or call.over or len(call.args) != 1 for call in (total, count)):
        return None
    if count.args[0].is_star or not _have_same_rows(block, total, count):
        return None
    named = [argument.copy() for name, (_, argument) in total.named.items() if name != "epsilon"]
    if "epsilon" in total.named and "epsilon" in count.named:
        named.append(_add_shares(total, count))
    argument = total.args[0].copy()
    kind = block.expression(argument.copy()).type
    if not kind.numeric and kind.kind not in ("BOOLEAN", "INTERVAL"):
        return None  # dates have a mean, and no sum: the refusal says so
    if kind.kind == "BOOLEAN":
        argument = exp.cast(argument, "INTEGER")
    made: exp.Expr = exp.Avg(this=argument)
    if named:
        made = exp.Anonymous(this=f"{NAMED}avg", expressions=[argument, *named])
    if total.where is not None:
        made = exp.Filter(this=made, expression=exp.Where(this=total.where.copy()))
    return made


def _unwrap(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _find_sum(node: exp.Expr) -> exp.Expr:
    """Return the call that is made a DOUBLE before it is divided: a quotient of numbers is one anyway."""
    node = _unwrap(node)
    if isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DOUBLE:
        return _unwrap(node.this)
    if isinstance(node, exp.Mul):
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            if isinstance(other, exp.Literal) and not other.is_string and float(other.name) == 1:
                return _unwrap(one)
    return node


def _find_count(node: exp.Expr) -> exp.Expr:
    node = _unwrap(node)
    if (
        isinstance(node, exp.Nullif)
        and isinstance(node.expression, exp.Literal)
        and node.expression.name == "0"
    ):
        return _unwrap(node.this)
    return node


def _have_same_rows(block: Block, total: Call, count: Call) -> bool:
    """Say whether both calls have the same argument and the same FILTER."""
    try:
        pairs = [(total.args[0], count.args[0])]
        if total.where is not None and count.where is not None:
            pairs.append((total.where, count.where))
        elif total.where is not count.where:
            return False
        return all(block.spelling(one) == block.spelling(other) for one, other in pairs)
    except BindError:  # an unknown column: what binds the calls says so, with its place
        return False


def _add_shares(total: Call, count: Call) -> exp.Expr:
    """Return the argument ``epsilon`` of the mean: the sum of what both calls were given."""
    shares = [read_epsilon(call.named["epsilon"][0]) for call in (total, count)]
    argument = total.named["epsilon"][1].copy()
    with decimal.localcontext(prec=100):  # two literals: their sum has finitely many digits
        both = sum((decimal.Decimal(s.numerator) / s.denominator for s in shares), decimal.Decimal(0))
    value = exp.Literal.number(f"{both.normalize():f}")
    value.meta.update(argument.expression.meta)
    argument.set("expression", value)
    return argument
