"""Policies as texts: a budget, and tables with their columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def budget(
    epsilon: object,
    delta: object = None,
    default_epsilon: object = None,
    default_delta: object = None,
    accountant: str | None = "basic",
    **more: object,
) -> dict[str, object]:
    """Return the section ``[budget]`` of :func:`write_policy`."""
    given = {
        "epsilon": epsilon,
        "delta": delta,
        "accountant": accountant,
        "default_epsilon": default_epsilon,
        "default_delta": default_delta,
    }
    return _drop_none(given | more)


def table(
    unit: str | None = None,
    rows: int | None = None,
    groups: int | None = None,
    settings: Mapping[str, object] | None = None,
    /,
    **columns: Any,
) -> dict[str, object]:
    """Return a table of :func:`write_policy`: a column has a tuple of its bounds, a list of its values, or its whole declaration.

    >>> print(write_policy(budget(1), t=table("u", 2, x=(0, 1), k=["a"])))
    [budget]
    epsilon = 1
    accountant = "basic"
    [tables.t]
    privacy_unit = "u"
    max_rows_per_group = 2
    [tables.t.columns]
    x = { bounds = [0, 1] }
    k = { values = ["a"] }
    <BLANKLINE>
    """
    own = {"privacy_unit": unit, "max_rows_per_group": rows, "max_groups": groups, **(settings or {})}
    kinds = {tuple: "bounds", list: "values"}
    declared = {
        name: {kinds[type(given)]: list(given)} if type(given) in kinds else given
        for name, given in columns.items()
    }
    return _drop_none(own) | ({"columns": declared} if declared else {})


def write_policy(budget: Mapping[str, object], /, **tables: Mapping[str, object]) -> str:
    """Return the text of a policy, with each setting and each column on a line of its own."""
    lines = ["[budget]", *(f"{key} = {_write(value)}" for key, value in budget.items())]
    for name, own in tables.items():
        lines += [
            f"[tables.{name}]",
            *(f"{key} = {_write(value)}" for key, value in own.items() if key != "columns"),
        ]
        columns = own.get("columns")
        if isinstance(columns, Mapping):
            lines += [
                f"[tables.{name}.columns]",
                *(f"{column} = {_write(given)}" for column, given in columns.items()),
            ]
    return "\n".join(lines) + "\n"


def _drop_none(given: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in given.items() if value is not None}


def _write(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_write(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_write, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)
