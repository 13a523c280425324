"""The explanation of a charge: its parts, how it was settled and, for the owner, the protected unit and cheaper options.

It uses events, the ledger and the policy, which are public, and no data.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from dpsql.errors import BindError
from dpsql.ledger.ledger import Ledger
from dpsql.numerics.exact_numbers import write_number
from dpsql.policy.model import Policy, Table
from dpsql.privacy.accountants import Accountant
from dpsql.privacy.amounts import format_percent
from dpsql.privacy.events import (
    BoundedRange,
    DiscreteLaplace,
    Event,
    GaussianSparseVector,
    GaussianTest,
    GroupSelection,
    JointGaussian,
    NoiseReduction,
    PureDP,
    RenyiSelection,
    RoundedGaussian,
    SparseVector,
    StableQuestions,
    StableTest,
)
from dpsql.privacy.records import Entry
from dpsql.report.tables import name_of


def describe_mechanism(event: Event) -> str:
    """Return a description of one mechanism of a statement."""
    match event:
        case DiscreteLaplace(count=1):
            return "discrete Laplace noise on one number"
        case DiscreteLaplace():
            return f"discrete Laplace noise on one number, in each of the {event.count} groups of one privacy unit"
        case RoundedGaussian():
            return "Gaussian noise on one number"
        case JointGaussian():
            return f"Gaussian noise on {len(event.sigmas)} numbers, calibrated once for all of them"
        case BoundedRange():
            return "a choice by the exponential mechanism"
        case PureDP():
            return "a choice, or noise without delta"
        case SparseVector() | GaussianSparseVector():
            return _describe_threshold(event)
        case GroupSelection() | RenyiSelection():
            return "choosing which private groups may be shown"
        case StableTest():
            return "a noisy test of how stable the answer is"
        case GaussianTest():
            return "a noisy test of how stable the answer is, with Gaussian noise"
        case NoiseReduction():
            return f"noise reduced until the answers were accurate, at most ε={write_number(event.most)}"
    return event.kind.replace("_", " ")


def _describe_threshold(event: SparseVector | GaussianSparseVector) -> str:
    what = "questions to" if isinstance(event, StableQuestions) else "comparisons with"
    most = event.max_hits
    if event.refresh:
        said = f"{what} a noisy threshold that is drawn afresh for each of at most {most} hits"
    else:
        said = f"{what} one noisy threshold, at most {most} hit{'s' if most != 1 else ''}"
    if event.hits is None:
        return said
    return f"{said}, of which {event.hits} {'was' if event.hits == 1 else 'were'} found"


def chooses_groups(event: Event | None) -> bool:
    """Return whether a part of an event chose among private groups."""
    leaves = () if event is None else event.leaves()
    return any(isinstance(leaf, GroupSelection | RenyiSelection) for leaf in leaves)


def list_cost_parts(event: Event) -> list[str]:
    """Return a sentence for each mechanism of an event with its loss; equal ones are counted."""
    said = Counter(f"{leaf.sentence()}: {describe_mechanism(leaf)}" for leaf in event.leaves())
    return [f"{text}." if count == 1 else f"{count} times {text}." for text, count in said.items()]


def explain_loss(
    verb: str, asked: Event | None, used: Event | None, write: Callable[[Event], str]
) -> Iterator[str]:
    """Yield the loss of a statement, its parts, and why less was charged than was reserved.

    ``verb`` begins the first sentence; ``asked`` was reserved, ``used`` is the part of it that was used.
    """
    event = used or asked
    if event is None:
        return
    yield f"{verb} {write(event)}, of these parts:"
    yield from list_cost_parts(event)
    if asked is None or used is None or asked == used:
        return
    if write(asked) == write(used):
        yield f"{used.sentence()} of {asked.sentence()} was used; this accountant charges the whole."
    else:
        yield f"{write(asked)} was reserved and {write(used)} was used: only that is charged."


def find_named_tables(text: str, policy: Policy) -> list[Table]:
    """Return the private tables whose names occur in a statement."""
    private = (table for table in policy.tables.values() if not table.public)
    return [table for table in private if re.search(rf"(?i)\b{re.escape(table.name)}\b", text)]


_OUTCOMES = {
    "failed": "The engine failed after data were read: the charge stays, and the reason is withheld.",
    "interrupted": "It was stopped after data were read: the charge stays.",
    "open": "It is being answered, or a declared threshold is open: the reserved amount counts until it is settled.",
    "unsettled": "Its process ended before it was settled: the whole reserved amount counts.",
    "written off": "It was charged after a backup was made, and counts in full.",
    "debited": "Nothing was drawn: stored answers were shown.",
}
"""Sentences about outcomes; a released answer needs none."""


def explain_entry(entry: Entry, accountant: Accountant, policy: Policy | None) -> list[str]:
    """Return the explanation of a ledger's statement, in sentences. ``policy`` is None if it can't be read any more."""
    refused = entry.outcome == "refused"
    used = None if refused else entry.event
    tables = [] if policy is None else find_named_tables(entry.text, policy)
    said = [f"Refused: {entry.reason}"] if refused and entry.reason else []
    said += [f"Protected in {table.name}: {table.unit_words.removesuffix('.')}." for table in tables]
    verb = "It would have lost" if refused else "It lost"
    said += explain_loss(verb, entry.asked, used, accountant.write_charge)
    said += ["Nothing was charged."] if refused else _explain_settlement(entry, accountant)
    return [*said, *_advise_owner(used or entry.asked, tables, entry.text)]


def _explain_settlement(entry: Entry, accountant: Accountant) -> Iterator[str]:
    if entry.outcome in _OUTCOMES:
        yield _OUTCOMES[entry.outcome]
    used = None if entry.event is None else accountant.used_by(entry.event)
    if used is not None:
        yield f"It uses {format_percent(used)} of the limit of the rule."
    if entry.debit is not None:
        yield explain_debit(accountant.write_charge(entry.debit), "the analyst")


def explain_debit(charge: str, analyst: str) -> str:
    """Return the sentence on stored answers that a share alone pays for."""
    return f"{charge} of {analyst}'s share pays for stored answers, and nothing of the whole."


_AGGREGATES = re.compile(
    r"(?i)\b(COUNT|COUNT_IF|COUNTIF|SUM|AVG|MEAN|VAR\w*|STD\w*|MEDIAN|QUANTILE\w*|PERCENTILE\w*|MIN|MAX|MODE|HISTOGRAM|GEO\w*|CORR|"
    r"COVAR\w*|REGR\w*|SKEW\w*|KURT\w*|APPROX\w*|EXPMECH|ABOVE_THRESHOLD|PTR\w*|STABLE\w*)\s*\("
)
_DISTINCT = re.compile(r"(?i)\bCOUNT\s*\(\s*DISTINCT\s+(?:\w+\.)?\"?(\w+)\"?\s*\)")


def _counts_units_alone(text: str, table: Table) -> bool:
    """Return whether a statement asks for numbers of units only; their noise does not depend on caps on rows."""
    unit = table.unit_path[-1].column.lower() if table.unit_path else ""
    rest = _DISTINCT.sub(lambda found: "" if found[1].lower() == unit else found[0], text)
    return rest != text and _AGGREGATES.search(rest) is None


def _advise_owner(event: Event | None, tables: list[Table], text: str) -> Iterator[str]:
    """Yield changes of the policy by which such statements would cost less or err less."""
    for table in tables if event is not None else ():
        cap, most = "max_rows", table.max_rows
        if most is None:
            cap, most = "max_rows_per_group", table.max_rows_per_group
        if most is not None and most > 1 and not _counts_units_alone(text, table):
            yield (
                f"More exact at the same cost: lower {cap} = {most:,} in {table.name}, if fewer rows of one unit are enough."
            )
    if chooses_groups(event):
        yield "Cheaper: declare the values of the grouping column, if they are public; then choosing groups costs no δ."


def explain_statement(ledger: Ledger, number: int, policy: Policy | None = None) -> str:
    """Return the explanation of a statement by its number, for a terminal; BindError if there is none of that number.

    ``policy``: the owner's; by default the one that the ledger was last opened with.
    """
    entry = next(iter(ledger.walk(number, number)), None) if 1 <= number <= ledger.count else None
    if entry is None:
        raise BindError(
            f"the ledger has no statement {number}.",
            hint=f"statements are numbered from 1 to {ledger.count}.",
        )
    accountant = ledger.accountant
    sentences = explain_entry(entry, accountant, policy or ledger.policy)
    head = f"{number}: {entry.text}\n{name_of(entry)}, {entry.outcome}, charged {entry.charge(accountant)}.\n"
    return "\n".join([head, *(f"  - {sentence}" for sentence in sentences)])
