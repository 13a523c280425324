"""Names of output columns, as DuckDB would choose them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sqlglot import exp

from dpsql.sql.dialect import without_modes
from dpsql.sql.options import Call, call_of
from dpsql.sql.relations.relation import fold

_MECHANISMS = ("ABOVE_THRESHOLD", "EXPMECH")


def label_of(call: Call) -> str:
    """``count_star()``, ``sum(amount)``; a mechanism by its name alone."""
    if call.name in _MECHANISMS:
        return call.name.lower()
    if call.name == "COUNT" and (not call.args or call.args[0].is_star) and not call.distinct:
        return "count_star()"
    function = call.node
    while isinstance(function, exp.Filter | exp.WithinGroup | exp.Window):
        function = function.this
    written = function.meta.get("called", call.name.lower())
    distinct = "DISTINCT " if call.distinct and not isinstance(function, exp.ApproxDistinct) else ""
    inside = ", ".join(spelled(argument) for argument in call.args)
    where = f" FILTER (WHERE {spelled(call.where)})" if call.where is not None else ""
    return f"{written}({distinct}{inside}){where}"


_TYPES = {"INT": "INTEGER", "TEXT": "VARCHAR"}


def spelled(node: exp.Expr) -> str:
    """An expression in the words that DuckDB would name its column by."""
    text = without_modes(node).sql(dialect="duckdb", comments=False, normalize_functions="lower")
    text = re.sub(r"\bAS (INT|TEXT)\)", lambda found: f"AS {_TYPES[found[1]]})", text)
    return text.replace("count(*)", "count_star()")


def label_of_item(item: exp.Expr) -> str:
    """The name of one item of a SELECT: its alias, its aggregate's label, or its column; '' where it has none."""
    if isinstance(item, exp.Alias):
        return item.alias
    call = call_of(item)
    return label_of(call) if call is not None else item.alias_or_name


def fresh_names(names: Iterable[str]) -> list[str]:
    """The names, each made unique by a number behind it.

    >>> fresh_names(["n", "n", "N"])
    ['n', 'n_1', 'N_2']
    """
    out: list[str] = []
    seen: set[str] = set()
    for name in names:
        fresh, i = name, 0
        while fold(fresh) in seen:
            i += 1
            fresh = f"{name}_{i}"
        seen.add(fold(fresh))
        out.append(fresh)
    return out
