"""Aggregates without a noisy form, and what to ask instead.

What a noisy block refuses of its SELECT: columns of rows, and aggregates in which rows of nobody would count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import PrivacyError
from dpsql.sql.parse.dialect import span_of, to_sql
from dpsql.sql.parse.options import Call
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
    """Refuses an aggregate that has no noisy form, and says what to write.

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
    raise PrivacyError(f"{name} has no noisy form.", span=span_of(node), hint=hint.format(x=shown))


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
    raise PrivacyError(
        "public rows that no private row meets would count here, and private rows decide which these are.",
        span=span_of(call.node),
        hint=f"{hint}, or {counted}, which counts the rows that meet." if counted is not None else f"{hint}.",
    )


def _shown(block: Block) -> Iterator[tuple[Relation, Field]]:
    return ((r, f) for r in block.bound.relations if r.private for f in r.fields if not f.hidden)


def _place(item: Field) -> tuple[str, str]:
    node = item.typed.node
    return (node.table, node.name) if isinstance(node, exp.Column) else ("", "")


def _adds_nothing(block: Block, call: Call, lost: LostColumns) -> bool:
    """Whether a row of nobody adds nothing to it."""
    if call.where is not None and surely_fails(block.condition(call.where.copy()).node, lost):
        return True
    values = [
        arg for arg in call.args[:2] if not isinstance(arg, exp.Star | exp.Literal | exp.Array | exp.Tuple)
    ]
    if call.name == "COUNT_IF":
        return any(surely_fails(block.condition(arg.copy()).node, lost) for arg in values[:1])
    return any(surely_null(block.expression(arg.copy()).node, lost) for arg in values if not arg.is_star)


def ungrouped(block: Block, node: exp.Column) -> PrivacyError:
    """Make the refusal of a column that is neither a group nor inside an aggregate."""
    grouped = block.select.args.get("group")
    shown = {fold(item.alias): item for item in block.select.expressions if isinstance(item, exp.Alias)}
    for key in grouped.expressions if grouped is not None else ():
        # GROUP BY h, where h is both a column and what the SELECT calls another: the column is meant
        item = shown.get(fold(key.name)) if isinstance(key, exp.Column) else None
        if item is not None and any(found is node for found in item.walk()):
            place = block.select.expressions.index(item) + 1
            return PrivacyError(
                f"GROUP BY {key.name} means the column {key.name}, not what the SELECT calls so.",
                span=span_of(key),
                hint=f"write GROUP BY {place}, or another name.",
            )
    numeric = block.names.find(node).typed.type.numeric
    one = f"AVG({node.name})" if numeric else f"COUNT(DISTINCT {node.name})"
    return PrivacyError(
        f"{node.name} must be a group or stand inside an aggregate.",
        span=span_of(node),
        hint=f"write {one}, or {node.name}, COUNT(*) ... GROUP BY {node.name}.",
    )
