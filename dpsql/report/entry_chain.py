"""The explanation of one statement's charge, for the owner: the protected unit, the parts of the cost, cheaper options.

It uses the ledger and the policy, not the data, so a report can be made without access to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dpsql.errors import BindError
from dpsql.ledger.ledger import Ledger
from dpsql.policy.model import Policy, Table
from dpsql.privacy.accountants import Accountant, format_percent
from dpsql.privacy.cost_words import chooses_groups, explain_difference, list_cost_parts
from dpsql.privacy.events import Event
from dpsql.privacy.records import Entry
from dpsql.report.tables import name_of

_ENDINGS = {
    "failed": "The engine failed after data were touched: the charge stays, and why is withheld.",
    "interrupted": "It was stopped after data were touched: the charge stays.",
    "open": "It is being answered, or a declared threshold is open: what was set aside counts until it is settled.",
    "unsettled": "Its process ended before it was settled: all that was set aside counts.",
    "written off": "It was charged after a backup was made, and counts in full.",
    "debited": "Nothing was drawn: stored answers were shown.",
}
"""Sentences about outcomes; a released answer needs none."""


def explain_entry(entry: Entry, accountant: Accountant, policy: Policy | None) -> list[str]:
    """Return the explanation of a statement, in sentences.

    Args:
        entry: a statement of the ledger.
        accountant: the ledger's.
        policy: the owner's; None if the ledger's can't be read any more.
    """
    refused = entry.outcome == "refused"
    event = entry.asked if refused else entry.event or entry.asked
    tables = _find_tables(entry.text, policy)
    told = [f"Refused: {entry.reason}"] if refused and entry.reason else []
    told += [f"Protected in {table.name}: {table.unit_words.removesuffix('.')}." for table in tables]
    if event is not None:
        told.append(
            f"It {'would have' if refused else ''} lost {accountant.write_charge(event)}:".replace("  ", " ")
        )
        told += list_cost_parts(event)
    told += ["Nothing was charged."] if refused else list(_say_charge(entry, accountant))
    return [*told, *_advise_owner(event, tables, entry.text)]


def _find_tables(text: str, policy: Policy | None) -> list[Table]:
    """Return the private tables whose names occur in a statement."""
    private = [] if policy is None else [table for table in policy.tables.values() if not table.public]
    return [table for table in private if re.search(rf"(?i)\b{re.escape(table.name)}\b", text)]


def _say_charge(entry: Entry, accountant: Accountant) -> Iterator[str]:
    """Yield sentences on how a charge was settled, and how it counts."""
    yield from filter(
        None,
        [
            explain_difference(entry.asked, entry.event, accountant.write_charge),
            _ENDINGS.get(entry.outcome, ""),
        ],
    )
    used = None if entry.event is None else accountant.used_by(entry.event)
    if used is not None:
        yield f"It uses {format_percent(used)} of what the rule allows."
    if entry.debit is not None:
        debit = accountant.write_charge(entry.debit)
        yield f"{debit} of the analyst's share pays for stored answers, and nothing of the whole."


_AGGREGATES = re.compile(
    r"(?i)\b(COUNT|COUNT_IF|COUNTIF|SUM|AVG|MEAN|VAR\w*|STD\w*|MEDIAN|QUANTILE\w*|PERCENTILE\w*|MIN|MAX|MODE|HISTOGRAM|GEO\w*|CORR|"
    r"COVAR\w*|REGR\w*|SKEW\w*|KURT\w*|APPROX\w*|EXPMECH|ABOVE_THRESHOLD|PTR\w*|STABLE\w*)\s*\("
)
_DISTINCT = re.compile(r"(?i)\bCOUNT\s*\(\s*DISTINCT\s+(?:\w+\.)?\"?(\w+)\"?\s*\)")


def _counts_units_alone(text: str, table: Table) -> bool:
    """Return whether a statement asks for numbers of units only; their noise does not depend on caps of rows."""
    unit = table.unit_path[-1].column.lower() if table.unit_path else ""
    rest = _DISTINCT.sub(lambda found: "" if found[1].lower() == unit else found[0], text)
    return rest != text and _AGGREGATES.search(rest) is None


def _advise_owner(event: Event | None, tables: list[Table], text: str) -> Iterator[str]:
    """Yield changes of the policy by which such statements would cost less or err less."""
    for table in tables if event is not None else ():
        cap = "max_rows" if table.max_rows is not None else "max_rows_per_group"
        most = getattr(table, cap)
        if most is not None and most > 1 and not _counts_units_alone(text, table):
            rows = f"{cap} = {most:,} in {table.name}"
            yield f"More exact at the same cost: fewer than {rows}, if so few rows of one unit are enough."
    if chooses_groups(event):
        yield "Cheaper: declare the values of the grouping column, if they are public; then no δ is spent on choosing groups."


def explain_statement(ledger: Ledger, number: int, policy: Policy | None = None) -> str:
    """Return the explanation of a statement of a ledger, for a terminal.

    Args:
        ledger: an open one.
        number: the statement's number, as in SHOW LEDGER and the CSV.
        policy: the owner's; by default the one that the ledger was last opened with.

    Raises:
        BindError: there is no statement of that number.
    """
    entry = next(iter(ledger.walk(number, number)), None) if 1 <= number <= ledger.count else None
    if entry is None:
        raise BindError(
            f"the ledger has no statement {number}.", hint=f"they are numbered from 1 to {ledger.count}."
        )
    accountant = ledger.accountant
    charge = entry.charge(accountant)
    head = [
        f"{entry.statement_id}: {entry.text}",
        f"{name_of(entry)}, {entry.outcome}, charged {charge}.",
        "",
    ]
    return "\n".join(
        [*head, *(f"  - {told}" for told in explain_entry(entry, accountant, policy or ledger.policy))]
    )
