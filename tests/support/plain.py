"""A policy under which answers are plain DuckDB's: the noise is far below what is shown."""

from __future__ import annotations

_POLICY = """
[budget]
epsilon = 1e10
delta = 1e-3
accountant = "basic"
max_epsilon_per_query = 1e7
default_epsilon = 1e6
default_delta = 1e-9

[tables.v]
privacy_unit = "id"
max_rows = 1
max_groups = 1
[tables.v.columns]
w = { values = ["A", "B"] }
{columns}
[tables.plans]
public = true
"""


def policy_of(columns: str) -> str:
    """Return a policy for a table v of one row per unit, with w and these columns, and a public one, plans."""
    return _POLICY.replace("{columns}", columns)
