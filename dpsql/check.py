"""``dpsql policy check``: what a policy declares about its data, what is missing, and what could be declared.

For the data owner. It reads column names and types, never rows: a bound that was looked up in the data would
tell about the data. What it proposes is public knowledge only (an age, a month, a latitude); for everything
else it says whom to ask.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dpsql.engine.duckdb import DuckDBEngine
from dpsql.errors import PolicyError, did_you_mean
from dpsql.policy import Policy, Table
from dpsql.policy_checks import bound_text

KNOWN = (
    (r"age(_years)?|years_old", "[0, 120]", "nobody is older"),
    (r"month", "[1, 12]", "months"),
    (r"day(_of_month)?", "[1, 31]", "days of a month"),
    (r"weekday|day_of_week", "[0, 7]", "days of a week"),
    (r"hour(_of_day)?", "[0, 24]", "hours of a day"),
    (r"minute|second", "[0, 60]", "a clock's"),
    (r"lat(itude)?", "[-90, 90]", "degrees of latitude"),
    (r"lon(gitude)?|lng", "[-180, 180]", "degrees of longitude"),
    (r".*(percent|percentage|pct)", "[0, 100]", "percent"),
    (r"(share|fraction|probability|proportion)(_.*)?", "[0, 1]", "a part of a whole"),
)
"""Names whose bounds anybody knows: a pattern of the whole name, bounds, why."""

_NUMBERS = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|REAL|DECIMAL.*)$", re.I)


@dataclass
class Findings:
    """What a check found. ``missing`` must be mended; ``advice`` and ``proposals`` may be taken."""

    declared: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    proposals: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Everything as text, with what is missing first after what is declared."""
        lines = list(self.declared)
        for title, found in (("Missing:", self.missing), ("To consider:", self.advice)):
            if found:
                lines += ["", title, *(f"  - {line}" for line in found)]
        if self.proposals:
            lines += ["", "From public knowledge, without looking at a row, you could declare:", ""]
            lines += [f"    {line}" for line in self.proposals]
        if not self.missing:
            lines += ["", "Nothing is missing. No row was read."]
        return lines


def check(policy: Path, data: str = ":memory:") -> Findings:
    """Holds a policy against its data's columns.

    Args:
        policy: the TOML file.
        data: a DuckDB database that holds tables without a source of their own.

    Raises:
        PolicyError: the file is not a policy, or the database can't be opened.
    """
    declared = Policy.load(policy)
    findings = Findings()
    _budget(declared, findings)
    engine = DuckDBEngine(data, declared, policy.parent)
    try:
        for table in declared.tables.values():
            try:
                schema = engine.schema(table)
            except PolicyError as error:
                findings.missing.append(f"{table.name}: {error.message}")
                continue
            _table(table, schema, findings)
    finally:
        engine.close()
    if not declared.tables:
        findings.missing.append("the policy names no table, so there is nothing to ask about.")
    return findings


def _budget(policy: Policy, findings: Findings) -> None:
    budget = policy.budget
    findings.declared.append(
        f"budget: ε={float(budget.epsilon):g}, δ={float(budget.delta):g}, accountant {budget.accountant}"
    )
    if budget.max_epsilon_per_query is None:
        findings.advice.append("max_epsilon_per_query: without it one statement may spend the whole budget.")
    if budget.default_epsilon is None:
        findings.advice.append("default_epsilon: without it every statement must name its epsilon.")
    if budget.delta == 0:
        findings.advice.append(
            "delta = 0: groups with private keys can't be selected, nor Gaussian noise used."
        )
    for name, analyst in policy.analysts.items():
        findings.declared.append(f"analyst {name}: ε={float(analyst.epsilon):g} of the whole")


def _table(table: Table, schema: Mapping[str, str], findings: Findings) -> None:
    if table.public:
        findings.declared.append(f"{table.name}: public, {len(schema)} columns")
        return
    unit = table.privacy_unit or ""
    protected = "each row" if table.row_level else f"each {unit}"
    limits = f", at most {table.max_rows} rows in a group" if table.max_rows is not None else ""
    groups = f", at most {table.max_groups} groups" if table.max_groups is not None else ""
    findings.declared.append(f"{table.name}: protects {protected}{limits}{groups}")
    names = {name.lower() for name in schema}
    column = re.split(r"\s*->", unit)[0].strip()
    if not table.row_level and column.lower() not in names:
        findings.missing.append(
            f"{table.name}: the privacy unit {column} is not a column. {_near(column, schema)}"
        )
    if not table.row_level and table.max_rows is None:
        findings.missing.append(f"{table.name}: max_rows, the rows of one {column} that count in one group.")
    if not table.row_level and table.max_groups is None:
        findings.advice.append(f"{table.name}: max_groups; without it each grouped statement must name it.")
    for name in table.columns:
        if name.lower() not in names:
            findings.missing.append(
                f"{table.name}.{name} is declared but not in the data. {_near(name, schema)}"
            )
    _columns(table, schema, column, findings)


def _columns(table: Table, schema: Mapping[str, str], unit: str, findings: Findings) -> None:
    known = {name.lower() for name in table.columns}
    undeclared, proposed = [], []
    for name, kind in schema.items():
        if name.lower() in known or name.lower() == unit.lower() or not _NUMBERS.match(kind):
            continue
        bounds = next((b for pattern, b, _ in KNOWN if re.fullmatch(pattern, name, re.I)), None)
        if bounds is None:
            undeclared.append(name)
        else:
            proposed.append(f"{name} = {{ bounds = {bounds} }}")
    for name, column in table.columns.items():
        if column.bounds is not None:
            low, high = (bound_text(end) for end in column.bounds)
            findings.declared.append(f"  {name}: {low} to {high}")
        elif column.values is not None:
            findings.declared.append(f"  {name}: {len(column.values)} public values")
    if undeclared:
        findings.advice.append(
            f"{table.name}: {', '.join(undeclared)}: no bounds, so no sums or means of them. Ask "
            "somebody who knows what they mean; don't look in the data."
        )
    if proposed:
        findings.proposals += [f"[tables.{table.name}.columns]", *proposed]


def _near(name: str, schema: Mapping[str, str]) -> str:
    return (did_you_mean(name, schema) or "").capitalize()
