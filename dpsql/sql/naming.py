"""Names of output columns, as DuckDB would choose them."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from dpsql.sql.dialect import to_sql
from dpsql.sql.options import Call, call_of
from dpsql.sql.relation import fold

_MECHANISMS = ("ABOVE_THRESHOLD", "EXPMECH")


def label_of(call: Call) -> str:
    """``count_star()``, ``sum(amount)``; a mechanism by its name alone."""
    if call.name in _MECHANISMS:
        return call.name.lower()
    if call.name == "COUNT" and (not call.args or call.args[0].is_star) and not call.distinct:
        return "count_star()"
    inside = ", ".join(to_sql(argument) for argument in call.args)
    return f"{call.name.lower()}({'DISTINCT ' if call.distinct else ''}{inside})"


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
