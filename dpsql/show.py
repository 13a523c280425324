"""SHOW: the budget, the ledger, the policy and the tables as relations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpsql.result import Result

if TYPE_CHECKING:
    from dpsql.session import Session


def show(session: Session, what: str) -> Result:
    """The relation that ``SHOW <what>`` displays."""
    columns: dict[str, list[Any]] = _SHOWN[what](session)
    return Result(pa.table(columns), cost_line="no charge")


def _tables(session: Session) -> dict[str, list[Any]]:
    rows = []
    for table in session.policy.tables.values():
        unit = "" if table.public else str(table.privacy_unit)
        rows.append(
            (table.name, "public" if table.public else "private", unit, table.max_rows, table.max_groups)
        )
    names = ("table", "kind", "privacy_unit", "max_rows", "max_groups")
    return _columns(names, rows)


def _policy(session: Session) -> dict[str, list[Any]]:
    budget = session.policy.budget
    rows = [("budget", name, _text(getattr(budget, name))) for name in budget.__dataclass_fields__]
    for table in session.policy.tables.values():
        for name, column in table.columns.items():
            if column.bounds is not None:
                rows.append(
                    (table.name, name, f"bounds {_text(column.bounds[0])} to {_text(column.bounds[1])}")
                )
            if column.values is not None:
                rows.append((table.name, name, "values " + ", ".join(map(str, column.values))))
    return _columns(("where", "name", "declared"), rows)


def _budget(session: Session) -> dict[str, list[Any]]:
    names, rows = session._ledger.relation_budget()
    return _columns(names, rows)


def _ledger(session: Session) -> dict[str, list[Any]]:
    names, rows = session._ledger.relation_entries()
    return _columns(names, rows)


def _tradeoff(session: Session) -> dict[str, list[Any]]:
    from dpsql.privacy import tradeoff

    budget = session.policy.budget
    epsilon = min(float(budget.epsilon), 500.0)  # beyond that, nothing is hidden
    curve = tradeoff.from_epsilon_delta(epsilon, budget.delta)
    alphas = [i / 50 for i in range(51)]
    return {"type_i_error": alphas, "type_ii_error": [float(curve(alpha)) for alpha in alphas]}


def _columns(names: tuple[str, ...], rows: list[Any]) -> dict[str, list[Any]]:
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _text(value: Any) -> str:
    from fractions import Fraction

    return f"{float(value):g}" if isinstance(value, Fraction) else "" if value is None else str(value)


_SHOWN = {"TABLES": _tables, "POLICY": _policy, "BUDGET": _budget, "LEDGER": _ledger, "TRADEOFF": _tradeoff}
