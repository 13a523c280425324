"""SHOW: the budget, the ledger, the policy and the tables as relations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import pyarrow as pa

from dpsql.ledger.display import budget_rows, entry_rows
from dpsql.ledger.ledger import Ledger
from dpsql.policy import Policy
from dpsql.result import Result


def show(policy: Policy, ledger: Ledger, what: str, kept: Iterable[str] = ()) -> Result:
    """Makes the relation that ``SHOW <what>`` displays; ``kept`` are the names of kept results."""
    columns = _SHOWN[what](policy, ledger)
    if what == "TABLES":
        for name in kept:
            for values, value in zip(columns.values(), (name, "kept result", "", None, None), strict=True):
                values.append(value)
    return Result(pa.table(columns), cost_line="no charge")


def _tables(policy: Policy, ledger: Ledger) -> dict[str, list[Any]]:
    rows = []
    for table in policy.tables.values():
        unit = "" if table.public else str(table.privacy_unit)
        rows.append(
            (table.name, "public" if table.public else "private", unit, table.max_rows, table.max_groups)
        )
    names = ("table", "kind", "privacy_unit", "max_rows", "max_groups")
    return _columns(names, rows)


def _policy(policy: Policy, ledger: Ledger) -> dict[str, list[Any]]:
    budget = policy.budget
    rows = [("budget", name, _text(getattr(budget, name))) for name in budget.__dataclass_fields__]
    for table in policy.tables.values():
        for name, column in table.columns.items():
            if column.bounds is not None:
                rows.append(
                    (table.name, name, f"bounds {_text(column.bounds[0])} to {_text(column.bounds[1])}")
                )
            if column.values is not None:
                rows.append((table.name, name, "values " + ", ".join(map(str, column.values))))
    return _columns(("where", "name", "declared"), rows)


def _budget(policy: Policy, ledger: Ledger) -> dict[str, list[Any]]:
    return _columns(*budget_rows(ledger.state()))


def _ledger(policy: Policy, ledger: Ledger) -> dict[str, list[Any]]:
    return _columns(*entry_rows(ledger.entries(), ledger.terms.accountant))


def _tradeoff(policy: Policy, ledger: Ledger) -> dict[str, list[Any]]:
    from dpsql.privacy import tradeoff

    budget = policy.budget
    epsilon = min(float(budget.epsilon), 500.0)  # beyond that, nothing is hidden
    curve = tradeoff.from_epsilon_delta(epsilon, budget.delta)
    alphas = [i / 50 for i in range(51)]
    return {"type_i_error": alphas, "type_ii_error": [float(curve(alpha)) for alpha in alphas]}


def _columns(names: tuple[str, ...], rows: list[Any]) -> dict[str, list[Any]]:
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _text(value: Any) -> str:
    return f"{float(value):g}" if isinstance(value, Fraction) else "" if value is None else str(value)


_SHOWN: dict[str, Callable[[Policy, Ledger], dict[str, list[Any]]]] = {
    "TABLES": _tables,
    "POLICY": _policy,
    "BUDGET": _budget,
    "LEDGER": _ledger,
    "TRADEOFF": _tradeoff,
}
