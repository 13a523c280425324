"""Aggregates without a noisy form, and what to ask instead."""

from __future__ import annotations

from sqlglot import exp

from dpsql.errors import PrivacyError
from dpsql.sql.dialect import span_of, to_sql

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
