"""The noisy aggregates by name, and what a noisy block refuses of its SELECT, with what to ask instead.

Refused are aggregates without a noisy form, columns of rows, and aggregates in which rows of nobody would count.

``SUM(x) / COUNT(x)`` of the same rows is read as the mean that it is. A SUM and a COUNT that stand alone clamp a unit's
total, each its own: their quotient may exceed every value. A mean weighs the rows of such a unit instead, and is held to the
bounds.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import BindError, PrivacyError
from dpsql.sql.dp import moments, own_queries
from dpsql.sql.dp.aggregates import ARGUMENTS, Aggregate, AggregateCall
from dpsql.sql.parse.dialect import NAMED, privacy_error, to_sql
from dpsql.sql.parse.options import Call, call_of, read_epsilon, refuse_equals
from dpsql.sql.relations.relation import (
    Field,
    LostColumns,
    Relation,
    asks_for_unmatched,
    find_lost_columns,
    fold,
    meets_whole_groups,
    surely_fails,
    surely_null,
)

if TYPE_CHECKING:
    from dpsql.sql.dp.block import Block

TABLE: dict[str, Callable[[AggregateCall], Aggregate]] = {**moments.TABLE, **own_queries.TABLE}
"""Every noisy aggregate: to add one is to add a row."""


def bind_aggregate(block: Block, call: Call, name: str) -> Aggregate:
    """Bind one call.

    Raises:
        BindError: wrong number or type of arguments.
        PrivacyError: no bounds, or no bound on the rows of a unit.
    """
    refuse_equals(call, ARGUMENTS)
    return TABLE[call.name](AggregateCall(block, call, name, call.read(ARGUMENTS)))


_NAMES: dict[type[exp.Expr], str] = {
    exp.ArrayAgg: "LIST",
    exp.GroupConcat: "STRING_AGG",
    exp.LogicalOr: "BOOL_OR",
    exp.LogicalAnd: "BOOL_AND",
    exp.BitwiseAndAgg: "BIT_AND",
    exp.BitwiseOrAgg: "BIT_OR",
    exp.BitwiseXorAgg: "BIT_XOR",
    exp.ArgMax: "ARG_MAX",
    exp.ArgMin: "ARG_MIN",
}
_COUNTED = "count how often each value occurs: SELECT {x}, COUNT(*) ... GROUP BY {x}."
_TYPICAL = "MEDIAN({x}) is a value in the middle; SELECT WITH PTR MODE({x}) is the most common one."
_INSTEAD = {
    **dict.fromkeys(
        ("LIST", "STRING_AGG", "MAP_AGG", "JSON_GROUP_ARRAY", "BITSTRING_AGG", "APPROX_TOP_K"), _COUNTED
    ),
    **dict.fromkeys(("FIRST", "LAST", "ANY_VALUE", "ARBITRARY"), _TYPICAL),
    "BOOL_OR": "write COUNT_IF({x}) > 0: the noisy count may be compared freely.",
    "BOOL_AND": "write COUNT_IF(NOT {x}) <= 0: the noisy count may be compared freely.",
    "APPROX_QUANTILES": "write QUANTILE_CONT({x}, 0.25), QUANTILE_CONT({x}, 0.5) and so on, one for each.",
    "RESERVOIR_QUANTILE": "write QUANTILE_CONT({x}, 0.5).",
    "FSUM": "write SUM({x}): it is exact before the noise.",
    "KAHAN_SUM": "write SUM({x}): it is exact before the noise.",
    "SUMKAHAN": "write SUM({x}): it is exact before the noise.",
    **dict.fromkeys(("GROUPING", "GROUPING_ID"), "without ROLLUP, CUBE or GROUPING SETS it is 0 everywhere."),
    "FAVG": "write AVG({x}).",
    "MODE": "SELECT WITH PTR OPTIONS (delta = 1e-6) MODE({x}) gives the most common value, if it is stable.",
    "IQR": "SELECT WITH PTR OPTIONS (delta = 1e-6) IQR({x}), or QUANTILE_CONT({x}, 0.75) - QUANTILE_CONT({x}, 0.25).",
}
_OTHERS = ("PRODUCT", "ENTROPY", "MAD", "GEOMEAN", "GEOMETRIC_MEAN", "SUM_NO_OVERFLOW", "QUANTILE")


def refuse_elsewhere(node: exp.Expr) -> None:
    """Refuse an aggregate that has no noisy form, and say what to write.

    Raises:
        PrivacyError: always for such an aggregate; never for another node.
    """
    if isinstance(node, exp.IgnoreNulls | exp.RespectNulls | exp.Filter | exp.WithinGroup):
        node = node.this
    if isinstance(node, exp.AggFunc):
        name = _NAMES.get(type(node), node.sql_name())
    elif isinstance(node, exp.Anonymous) and (node.name.upper() in _INSTEAD or node.name.upper() in _OTHERS):
        name = node.name.upper()
    else:
        return
    argument = node.this if isinstance(node.this, exp.Expr) else next(iter(node.expressions), None)
    if isinstance(argument, exp.Distinct):
        argument = argument.expressions[0]
    if isinstance(argument, exp.Order):
        argument = argument.this
    shown = to_sql(argument) if isinstance(argument, exp.Column) else "x"
    hint = _INSTEAD.get(name, "SELECT WITH SUBSAMPLE takes any aggregate, on blocks of privacy units.")
    raise privacy_error(node, f"{name} has no noisy form.", hint.format(x=shown))


def refuse_nobody(block: Block, call: Call) -> None:
    """Refuse an aggregate that would count public rows which no private row meets.

    Raises:
        PrivacyError: it would, and the answer without them would be another.
    """
    found = block.bound.unmatched
    if found is None:
        return
    lost = find_lost_columns(block.bound.relations)
    if any(surely_fails(node, lost) for node in block.conditions) or _adds_nothing(block, call, lost):
        return
    asked = any(asks_for_unmatched(node, lost) for node in block.conditions)
    if block.domain is not None and not asked and meets_whole_groups(found, block.key_nodes, lost):
        return
    counted = next((f"COUNT({r.alias}.{f.name})" for r, f in _shown(block) if _place(f) in lost), None)
    side = str(found.join.args["side"]).upper()
    hint = "keep the private table's rows only" if side == "FULL" else f"write JOIN instead of {side} JOIN"
    raise privacy_error(
        call.node,
        "public rows that no private row meets would count here, and private rows decide which these are.",
        f"{hint}, or {counted}, which counts the rows that meet." if counted is not None else f"{hint}.",
    )


def _shown(block: Block) -> Iterator[tuple[Relation, Field]]:
    return ((r, f) for r in block.bound.relations if r.private for f in r.fields if not f.hidden)


def _place(item: Field) -> tuple[str, str]:
    node = item.typed.node
    return (node.table, node.name) if isinstance(node, exp.Column) else ("", "")


def _adds_nothing(block: Block, call: Call, lost: LostColumns) -> bool:
    """Say whether a row of nobody adds nothing to it."""
    if call.where is not None and surely_fails(block.condition(call.where.copy()).node, lost):
        return True
    values = [
        arg for arg in call.args[:2] if not isinstance(arg, exp.Star | exp.Literal | exp.Array | exp.Tuple)
    ]
    if call.name == "COUNT_IF":
        return any(surely_fails(block.condition(arg.copy()).node, lost) for arg in values[:1])
    return any(surely_null(block.expression(arg.copy()).node, lost) for arg in values if not arg.is_star)


def refuse_ungrouped(block: Block, node: exp.Column) -> PrivacyError:
    """Make the refusal of a column that is neither a group nor inside an aggregate."""
    grouped = block.select.args.get("group")
    shown = {fold(item.alias): item for item in block.select.expressions if isinstance(item, exp.Alias)}
    for key in grouped.expressions if grouped is not None else ():
        # GROUP BY h, where h is both a column and what the SELECT calls another: the column is meant
        item = shown.get(fold(key.name)) if isinstance(key, exp.Column) else None
        if item is not None and any(found is node for found in item.walk()):
            place = block.select.expressions.index(item) + 1
            return privacy_error(
                key,
                f"GROUP BY {key.name} means the column {key.name}, not what the SELECT calls so.",
                f"write GROUP BY {place}, or another name.",
            )
    numeric = block.names.find(node).typed.type.numeric
    one = f"AVG({node.name})" if numeric else f"COUNT(DISTINCT {node.name})"
    return privacy_error(
        node,
        f"{node.name} must be a group or stand inside an aggregate.",
        f"write {one}, or {node.name}, COUNT(*) ... GROUP BY {node.name}.",
    )


_OF_A_SUM = {"contribution_bounds_per_row", "epsilon"}
_OF_A_COUNT = {"epsilon"}


def read_as_mean(block: Block, node: exp.Expr) -> exp.Expr | None:
    """Return the call of AVG that a quotient means; None where it is no quotient of the same rows.

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
