"""The command ``dpsql policy check``, for the data owner: compares a policy with its data's columns.

It shows column names and types, never rows, because a bound that is looked up in the data reveals something about them. The
bounds that it proposes are public knowledge (an age, a month, a latitude). If neither the source nor the policy has types, it
proposes them from the rows (see :mod:`dpsql.owner.source_checks`, which also counts rows for ``--data``).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpsql.binding.relations.catalog import Catalog
from dpsql.engine.duckdb import DuckDBEngine
from dpsql.errors import LedgerError, PolicyError, find_nearest
from dpsql.late_dataclass import dataclass
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.state_files import place_ledger
from dpsql.ledger.terms import Terms
from dpsql.numerics.exact_numbers import round_significant, write_number
from dpsql.owner.column_checks import (
    Findings,
    check_bounds,
    check_columns,
    check_delta,
    check_period,
    count_possible_units,
    list_undated,
    suggest_name,
)
from dpsql.owner.source_checks import (
    check_records,
    count_rows,
    describe_missing_column,
    propose_missing_types,
)
from dpsql.policy.model import Policy, Table, fold, read_policy_file
from dpsql.policy.toml import TODO, parse_toml, set_values
from dpsql.policy.unit_guess import write_unit
from dpsql.privacy.accountants import suggest_delta
from dpsql.privacy.amounts import SYMBOLS

_DECISIONS = {
    "privacy_unit": 'the column that identifies the person, or "ROW"',
    "max_rows": "the most rows of one unit that count in all, such as max_rows = 20",
    "max_rows_per_group": "the most rows of one unit that count in one group, such as max_rows_per_group = 5",
    "max_groups": "the most groups that one unit counts in, such as max_groups = 3",
    "bounds": "the lowest and the highest value, such as bounds = [0, 100]; delete the line if no sum or mean needs it",
    "values": 'all possible values, such as values = ["A", "B"]',
    "type": "replace the section with the one below, and correct it",
}
"""The decision that each key asks of the owner."""
_GUESS = re.compile(r"\s*(privacy_unit\s*=[^#]*?)\s*#.*\bGUESS\b")


@dataclass(frozen=True)
class Undecided:
    """The open decisions of a policy.

    Args:
        places: table, column (empty for the table itself), key and line of each TODO.
        guesses: the text and the line of each privacy unit that is marked as a guess.
    """

    places: tuple[tuple[str, str, str, int], ...]
    guesses: tuple[tuple[str, int], ...]

    def has(self, key: str, table: str | None = None, column: str = "") -> bool:
        """Return whether a key of a table, or of one of its columns, is a TODO; without a table, of any."""
        return any(
            key == there and (table is None or (fold(table), fold(column)) == (fold(name), fold(within)))
            for name, within, there, _ in self.places
        )

    def lines(self) -> list[str]:
        """Return the open decisions as sentences, columns of one table together."""
        together: dict[tuple[str, str, bool], list[tuple[str, int]]] = {}
        for table, column, key, line in self.places:
            together.setdefault((table, key, column != ""), []).append((column, line))
        lines = [_describe(table, key, found) for (table, key, _), found in together.items()]
        return lines + [
            f"{text} (line {line}) is a guess: does it identify the people to protect? Correct it, or delete the word GUESS."
            for text, line in self.guesses
        ]


def find_undecided(path: Path) -> Undecided:
    """Return the open decisions of a policy file; PolicyError if it can't be read, or is not TOML."""
    text = read_policy_file(path)
    document = parse_toml(text, path.name)
    places = []
    for keys in _find_todos(document.data, ()):
        line = text.count("\n", 0, (document.span(keys) or (0, 0))[0]) + 1
        places.append((keys[1], "" if len(keys) == 3 else keys[-2], keys[-1], line))
    matches = ((_GUESS.match(line), number) for number, line in enumerate(text.splitlines(), 1))
    return Undecided(
        tuple(places), tuple((found[1], number) for found, number in matches if found is not None)
    )


def _find_todos(section: Mapping[str, object], keys: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _find_todos(value, (*keys, key))
        elif value == TODO and key in _DECISIONS and keys[:1] == ("tables",) and len(keys) > 1:
            yield (*keys, key)


def _describe(table: str, key: str, places: list[tuple[str, int]]) -> str:
    where = f"line {places[0][1]}" if len(places) == 1 else f"lines {places[0][1]} to {places[-1][1]}"
    names = ", ".join(name for name, _ in places if name)
    verb = "are" if key in ("bounds", "values") else "is"
    return (
        f"{table}: {key}{f' of {names}' if names else ''} {verb} still {TODO} ({where}): {_DECISIONS[key]}."
    )


def check_policy(policy: str | Path, data: Any = ":memory:", rows: bool = False) -> Findings:
    """Check a policy against its data's columns.

    Files are read once for values that DuckDB can't read; the result is cached until they change.

    Args:
        policy: the TOML file.
        data: a DuckDB file or connection, or a mapping of names to frames, with the tables that have no source.
        rows: whether to count unreadable records and values that do not fit.

    Raises:
        PolicyError: the file is not a policy, or the database can't be opened.
    """
    policy = Path(policy).expanduser()
    findings = Findings()
    undecided = find_undecided(policy)
    findings.missing += undecided.lines()
    try:
        declared = Policy.load(policy)
    except PolicyError as error:
        if not undecided.has("privacy_unit") or error.keys[-1:] != ("privacy_unit",):
            raise
        return findings  # the rest needs the privacy unit
    _check_budget(declared, findings)
    declared = propose_missing_types(declared, policy.parent, data, findings, rows)
    try:
        engine = DuckDBEngine(data, declared, policy.parent)
    except PolicyError as error:
        found = describe_missing_column(error, declared, policy.parent, findings.missing)
        if not found:
            raise
        findings.missing += found
        return findings  # the rest needs the columns
    units: list[int] = []
    try:
        for table in declared.tables.values():
            try:
                schema = engine.schema(table)
            except PolicyError as error:
                findings.missing.append(f"{table.name}: {error.message}")
                continue
            _check_table(table, schema, undecided, findings)
            check_records(table, policy.parent, findings)
            units += [count for count in (count_possible_units(table, schema),) if count is not None]
            if rows:
                findings.counted += count_rows(engine, table, schema, declared, policy.parent)
        if not findings.missing:
            _check_units(declared, engine, findings)
            _check_ledger(declared, engine, place_ledger(policy), findings)
    finally:
        engine.close()
    if not declared.tables:
        findings.missing.append("the policy names no table, so no statement can read data.")
    reckless = check_delta(declared, max(units, default=None))
    if reckless is not None:
        (findings.missing if units else findings.advice).append(reckless[0])
        findings.budget.insert(0, f"delta = {write_number(reckless[1])}")
    return findings


def write_proposals(policy: str | Path, findings: Findings) -> int:
    """Put proposed types and formats into a policy file, and return their number; PolicyError if it can't be edited."""
    path = Path(policy).expanduser().resolve()
    if not findings.edits:
        return 0
    made = set_values(
        path.read_bytes().decode("utf-8"), path.name, findings.edits, "GUESS, from the first lines"
    )
    Policy.loads(made)
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_bytes(made.encode("utf-8"))
        shutil.copymode(path, beside)
        os.replace(beside, path)
    except OSError:
        raise PolicyError(f"{path} can't be written.", hint="check the permissions of its folder.") from None
    return len(findings.edits)


def _check_budget(policy: Policy, findings: Findings) -> None:
    budget = policy.budget
    kept = (
        f", δ={write_number(budget.mechanism_delta)} of it for mechanisms"
        if 0 < budget.mechanism_delta < budget.delta
        else ""
    )
    each = ", for each period" if budget.per_period else ""
    findings.declared.append(
        f"budget: ε={float(budget.epsilon):g}, δ={float(budget.delta):g}{kept}, accountant {budget.accountant}{each}"
    )
    findings.advice += list_undated(policy)
    most = budget.max_epsilon_per_query
    if budget.default_epsilon is None:
        findings.advice.append("default_epsilon: without it every statement must name its epsilon.")
        proposed = round_significant(min(budget.epsilon, most or budget.epsilon) / 10, 1)
        findings.budget.append(f"default_epsilon = {write_number(proposed)}")
    if most is None:
        findings.advice.append("max_epsilon_per_query: without it one statement may spend the whole budget.")
        proposed = round_significant(
            max(budget.epsilon / 2, budget.default_epsilon or Fraction(0)), 1, up=True
        )
        findings.budget.append(f"max_epsilon_per_query = {write_number(proposed)}")
    if budget.delta == 0:
        findings.advice.append(
            "delta = 0: groups with private keys can't be selected, nor Gaussian noise used."
        )
    elif budget.default_delta is None:
        findings.advice.append(
            "default_delta: without it statements over private groups must name their delta."
        )
        findings.budget.append(f"default_delta = {write_number(suggest_delta(budget.mechanism_delta))}")
    elif budget.default_delta > budget.mechanism_delta:
        findings.advice.append(
            f"default_delta: more than δ={write_number(budget.mechanism_delta)}, which mechanism_delta_share leaves, so no "
            "statement can spend it."
        )
    for name, analyst in policy.analysts.items():
        said = [
            f"{sign}={float(share):g}" for key, sign in SYMBOLS.items() if (share := analyst.amounts[key])
        ]
        findings.declared.append(f"analyst {name}: {', '.join(said)} of the whole")
    power = 2 if budget.currency == "mu" else 1  # losses in mu add up by their squares
    shares = sum((a.amounts[budget.currency] or 0) ** power for a in policy.analysts.values())
    if shares > budget.amounts[budget.currency] ** power:
        findings.advice.append(
            "the analysts' shares add up to more than the whole: analysts who ask early may leave the others less than their "
            "share."
        )


def _say_caps(table: Table) -> Iterator[str]:
    """Yield notes on caps that had another meaning in earlier versions, and on caps without effect."""
    rows, each, groups = table.max_rows, table.max_rows_per_group, table.max_groups
    if rows is not None and rows > 1 and groups is not None and each is None:
        yield (
            f"{table.name}: max_rows = {rows} now limits the rows of one unit in all, no longer those in each of "
            f"max_groups = {groups} groups; for that meaning write max_rows_per_group = {rows}."
        )
    if rows is not None and each is not None and groups is not None and each * groups < rows:
        yield f"{table.name}: max_rows = {rows} has no effect, since at most {each} rows in each of {groups} groups count."


def _check_table(table: Table, schema: Mapping[str, str], undecided: Undecided, findings: Findings) -> None:
    if table.public:
        findings.declared.append(f"{table.name}: public, {len(schema)} columns")
        return
    unit = table.unit_text or ""
    protected = "each row" if table.row_level else f"each {table.unit_label}"
    caps = (
        (table.max_rows, "row", " in all"),
        (table.max_rows_per_group, "row", " in a group"),
        (table.max_groups, "group", ""),
    )
    limits = "".join(
        f", at most {most} {what}{'' if most == 1 else 's'}{more}"
        for most, what, more in caps
        if most is not None
    )
    days = "" if table.data_from is None else f"; data from {table.data_from} to {table.data_until}"
    closed = "" if table.closed_before is None else f", unchanged before {table.closed_before}"
    findings.declared.append(f"{table.name}: protects {protected}{limits}{days}{closed}")
    findings.advice += _say_caps(table)
    names = {name.lower() for name in schema}
    path = table.unit_path
    column = path[0].column if path else ""
    if not table.row_level and column.lower() not in names:
        near = find_nearest(column, schema) if len(path) == 1 and unit.lstrip().startswith('"') else None
        spelled = f" Write {write_unit(near)}." if near else ""
        findings.missing.append(
            f"{table.name}: the privacy unit {column} is not a column. {suggest_name(column, schema)}{spelled}"
        )
    claimed = [path[0].column for path in table.unit_paths[1:]] + list(table.determining)
    claimed += [table.declared_period.column] if table.declared_period is not None else []
    for name in (name for name in claimed if name.lower() not in names):
        what = f"{name}, which leads to the privacy unit or divides it, is not a column."
        findings.missing.append(f"{table.name}: {what} {suggest_name(name, schema)}")
    findings.missing += check_period(table, schema)
    if claimed and not table.row_level and any(name.lower() in names for name in claimed):
        findings.declared += _say_claims(table)
    given = {key for key, cap in table.caps.items() if cap is not None or undecided.has(key, table.name)}
    if not table.row_level and not given & {"max_rows", "max_rows_per_group"}:
        findings.advice.append(
            f"{table.name}: max_rows, the most rows of one {column} that count. Without it each statement must name a cap, or "
            "max_rows_contributed = AUTO to find one; PTR, STABLE, EXPMECH and ABOVE_THRESHOLD need a number."
        )
    if given == {"max_rows_per_group"}:
        findings.advice.append(
            f"{table.name}: max_rows or max_groups; without either each grouped statement must name a cap, or AUTO."
        )
    for name in table.columns:
        if name.lower() not in names:
            findings.missing.append(
                f"{table.name}.{name} is declared but not in the data. {suggest_name(name, schema)}"
            )
    findings.missing += check_columns(table, schema)
    left = {name: kind for name, kind in schema.items() if not undecided.has("bounds", table.name, name)}
    check_bounds(table, left, column, findings)


def _check_units(policy: Policy, engine: DuckDBEngine, findings: Findings) -> None:
    """Report, once each, the reasons why units can't be computed from the columns."""
    catalog = Catalog(policy, engine, policy.budget.accountant)
    for table in policy.tables.values():
        try:
            catalog.relation(table, table.name, table.name)
        except PolicyError as error:
            if error.message not in findings.missing:
                findings.missing.append(error.message)


def _check_ledger(policy: Policy, engine: DuckDBEngine, place: Path, findings: Findings) -> None:
    """Report terms that the policy's ledger does not grant."""
    if not place.exists():
        return
    try:
        with Ledger.read(place) as ledger:
            wants = ledger.terms.grants(Terms.of(policy, engine.dataset))
    except LedgerError as error:
        findings.advice.append(f"the ledger {place.name} can't be used: {error.message}")
        return
    if wants:
        command = f"dpsql ledger adopt --policy {place.name.removesuffix('.ledger')}"
        findings.advice.append(
            f"the ledger {place.name} has other terms, and refuses these until the owner adopts them: {'; '.join(wants)}. Adopt "
            f"them by {command}; spent budget stays spent."
        )


def _say_claims(table: Table) -> list[str]:
    """Return a line on the joins that the owner's assertions allow; protection does not rely on them."""
    ways = [*(path[0].column for path in table.unit_paths[1:]), *sorted(table.determining)]
    if not ways:
        return []
    part = "" if table.period is None else f", {table.period.words},"
    unit = table.unit_path[-1].column
    return [f"  joins by {', '.join(ways)} are open; only rows of one {unit}{part} meet in them"]
