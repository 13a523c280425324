"""Explains an answer or a refusal: the privacy unit, the bounds, the origin of the cost.

The explanation uses the plan, the policy and the ledger: it draws and reads nothing. It repeats no released value
except in the answer's notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Protocol

from dpsql.errors import (
    BindError,
    BudgetExceeded,
    EngineError,
    Error,
    Interrupted,
    PostprocessingError,
)
from dpsql.explain import describe_plan, list_draws, name_errors
from dpsql.explanation import Errors
from dpsql.ledger.ledger import Ledger
from dpsql.numerics.exact_numbers import write_number
from dpsql.plan import Plan, PrivateBlock
from dpsql.policy.model import Policy
from dpsql.privacy.amounts import SYMBOLS
from dpsql.privacy.cost_words import chooses_groups, explain_difference, list_cost_parts
from dpsql.privacy.events import DiscreteLaplace, Event, compose_events
from dpsql.sql.selection.declared import Declaration
from dpsql.stored_blocks import PreparedPlan
from dpsql.why import Why, WhyPart, end_sentence, say_refusal

SHOWN_ANSWERS = 3
"""The most answers whose errors are compared at other epsilons."""

_ROWS = re.compile(r"(?:at most|and) ([\d,]+) rows in (?:one group|all)\b")
_GROUPS = re.compile(
    r"(?:one privacy unit counts in at most |max_groups_contributed = )([\d,]+)(?: of them| would leave out)"
)


@dataclass(frozen=True)
class AskedStatement:
    """The last statement of a session, as needed for its explanation. It contains no released row.

    Args:
        bound: its bound form; None if it was not bound, or reads nothing private.
        said: the sentences on its stored blocks.
        reserved: the event that was, or would have been, reserved.
        debit: the charge on the analyst's share alone.
        used: the final charge.
        since: the time the answer was stored.
        done: its outcome in a word; empty while it runs.
        draws: its blocks without duplicates of another's draw.
    """

    text: str
    bound: Plan | Declaration | None = None
    said: tuple[str, ...] = ()
    reserved: Event | None = None
    debit: Event | None = None
    used: Event | None = None
    notes: tuple[str, ...] = ()
    since: str = ""
    error: Error | None = field(default=None, compare=False)
    done: str = ""
    draws: tuple[PrivateBlock, ...] | None = None

    @property
    def paid_all(self) -> bool:
        """Whether its charge is the price of all of its blocks: nothing was stored."""
        events = [block.operator.event for block in self.draws or ()]
        return bool(events) and self.reserved == compose_events(events)

    def look_up(self, prepared: PreparedPlan) -> AskedStatement:
        """Return the statement with the result of its blocks' look-up."""
        return replace(
            self,
            bound=prepared.plan,
            said=prepared.sentences(),
            reserved=prepared.event,
            debit=prepared.debit,
            draws=tuple(list_draws(prepared)),
        )

    def finish(self, prepared: PreparedPlan, notes: tuple[str, ...]) -> AskedStatement:
        """Return the statement as answered."""
        done = "answered" if prepared.used is not None or not prepared.stored else "shown again"
        return replace(
            self,
            used=prepared.used,
            notes=notes,
            since=prepared.since,
            done=done if prepared.plan.blocks else "free",
        )

    def fail(self, error: Error) -> AskedStatement:
        """Return the statement as refused or failed."""
        done = "interrupted" if isinstance(error, Interrupted) else "refused"
        failed = isinstance(error, EngineError | PostprocessingError)
        return replace(self, error=_detach(error), done="failed" if failed else done)


def _detach(error: Error) -> Error:
    """Return a copy of an error without its traceback, whose frames may contain exact values."""
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == Error.__module__)
    made: Error = kind(error.message, span=error.span, hint=error.hint, text=error.text)
    return made


class Remembers(Protocol):
    """The owner of the last statement: a session's pipeline."""

    last: AskedStatement | None


@contextmanager
def noting(line: Remembers, text: str, bound: Plan | Declaration | None = None) -> Iterator[None]:
    """Remember a text, with its bound form once known, as the last statement; an error is its outcome."""
    line.last = AskedStatement(text, bound)
    try:
        yield
    except Error as error:
        line.last = line.last.fail(error)
        raise


def explain_why(asked: AskedStatement | None, ledger: Ledger, policy: Policy) -> Why:
    """Explain a session's last statement. Spends nothing and reads nothing private. BindError if nothing was asked yet."""
    if asked is None:
        raise BindError("nothing was asked yet.", hint="ask first: what it was is explained then.")
    plan = asked.bound if isinstance(asked.bound, Plan) else None
    protected, bounded = _split_sentences(asked)
    if asked.bound is None or not protected:
        protected = [*protected, *_say_units(asked, policy)]
    parts = [
        ("Why it was " + asked.done, say_refusal(asked.error) if asked.error is not None else []),
        ("Who is protected", protected if asked.done != "free" else []),
        ("What was bounded, and where the noise is", bounded),
        ("Where the cost comes from", list(_say_cost(asked, ledger))),
        ("What the answer itself tells", [end_sentence(note) for note in asked.notes]),
        (
            "What to write instead" if asked.done == "refused" else "What would be cheaper or more exact",
            list(_advise(asked, plan, ledger, policy)),
        ),
    ]
    return Why(asked.text, asked.done, tuple(WhyPart(title, tuple(told)) for title, told in parts if told))


def _split_sentences(asked: AskedStatement) -> tuple[list[str], list[str]]:
    """Return a plan's sentences on the privacy unit, and the others."""
    if isinstance(asked.bound, Declaration):
        told: Iterable[str] = asked.bound.sentences()
    elif asked.bound is not None:
        told = describe_plan(asked.bound)
    else:
        told = ()
    unique = list(dict.fromkeys(told))
    protected = [sentence for sentence in unique if re.search(r"\b(is|are) protected\b", sentence)]
    return protected, [end_sentence(sentence) for sentence in unique if sentence not in protected]


def _say_units(asked: AskedStatement, policy: Policy) -> list[str]:
    """Return the units of the private tables the text names; of all tables if it names none."""
    private = [table for table in policy.tables.values() if not table.public]
    named = [t for t in private if re.search(rf"(?i)\b{re.escape(t.name)}\b", asked.text)] or private
    units = dict.fromkeys(f"{t.unit_words[:1].upper()}{t.unit_words[1:]} in {t.name}" for t in named)
    return [f"{unit} {'is' if 'any one row' in unit.lower() else 'are'} protected." for unit in units]


def _say_cost(asked: AskedStatement, ledger: Ledger) -> Iterator[str]:
    """Yield the charge, its parts, and how it is accounted."""
    write = ledger.accountant.write_charge
    refused = asked.error is not None and asked.done == "refused"
    event = asked.used or asked.reserved
    if refused:
        yield "Nothing was charged."
        if isinstance(asked.error, BudgetExceeded) and event is not None:
            yield f"It would have lost {write(event)}, of these parts:"
    elif asked.done == "free":
        yield "It reads nothing private, and costs nothing."
        return
    elif event is None:
        yield f"No charge{f': it is {asked.since}' if asked.since else ''}."
    else:
        verb = "It set aside" if asked.done == "declared" else "It lost"
        yield f"{verb} {write(event)}, of these parts:"
    if event is not None and (not refused or isinstance(asked.error, BudgetExceeded)):
        yield from list_cost_parts(event)
        yield from filter(
            None, [explain_difference(asked.reserved, asked.used, write), ledger.say_rule(event).strip()]
        )
    yield from asked.said
    if asked.debit is not None:
        yield f"{write(asked.debit)} of {ledger.analyst}'s share pays for stored answers, and nothing of the whole."
    yield f"Left: {ledger.state().sentence}."


def _advise(asked: AskedStatement, plan: Plan | None, ledger: Ledger, policy: Policy) -> Iterator[str]:
    """Yield cheaper or more exact variants, from public facts alone."""
    if asked.error is not None and asked.error.hint:
        yield end_sentence(asked.error.hint)
    if plan is None or not plan.blocks:
        return
    event = asked.used or asked.reserved
    errors = name_errors(plan, policy.budget, asked.draws)
    if errors is not None:
        errors = _tell_once(errors)
        room = ledger if isinstance(asked.error, BudgetExceeded) else None
        yield from _compare_errors(errors, room, asked.paid_all)
    leaves = () if event is None else event.leaves()
    noisy = [leaf for leaf in leaves if isinstance(leaf, DiscreteLaplace)]
    if len(noisy) > 1 and len(plan.columns) > 1:
        yield (
            f"{len(noisy)} noisy numbers share the ε: a SELECT with fewer of them, or epsilon => in one aggregate, makes "
            "that one more exact at the same cost."
        )
    capped = ("max_rows_contributed", "max_rows_per_group", "max_groups_contributed")
    if not any(option in asked.text.lower() for option in capped):
        yield from _advise_caps(" ".join(said for block in plan.blocks for said in block.sentences))
    if chooses_groups(event):
        yield (
            "Private groups are chosen with a part of ε and with δ: where the owner declares the column's values, or a public "
            "table is joined (RIGHT JOIN), every group appears and that part goes into the numbers."
        )
    if asked.done in ("answered", "shown again"):
        yield (
            "The same again is free, for the answer is stored. The mean of two fresh answers costs both; one answer with twice "
            "the epsilon is better."
        )


def _advise_caps(told: str) -> Iterator[str]:
    """Yield the effect of lower caps, if the blocks' sentences, before units are renamed, mention higher ones."""
    rows, groups = (
        max((int(n.replace(",", "")) for n in pattern.findall(told)), default=1)
        for pattern in (_ROWS, _GROUPS)
    )
    if rows > 1:
        yield (
            f"Up to {rows:,} rows of one privacy unit count, and the noise hides them all: OPTIONS (report_cut = TRUE) tells "
            f"about what is left out, for a part of ε; max_rows_contributed = {2 * rows} would let more count, with more noise, "
            "and a lower number leave out more, with less; AUTO finds a number privately."
        )
    if groups > 1:
        yield (
            f"One privacy unit counts for up to {groups:,} groups, and the noise hides that: a lower max_groups_contributed has "
            "less noise, and leaves out more."
        )


def _compare_errors(errors: Errors, ledger: Ledger | None, paid_all: bool = True) -> Iterator[str]:
    """Yield the errors at half and at twice the amount or, for a statement over budget, at the largest amount that fits.

    Args:
        ledger: the ledger whose remaining budget limits the amount; None if the statement fits.
        paid_all: whether the cost was that of all numbers; stored numbers change the price of another amount.
    """
    sign = SYMBOLS[errors.currency]
    own = errors.epsilons.index(errors.own)
    if ledger is not None:
        left = ledger.state().left_epsilon
        fits = [
            i for i, amount in enumerate(errors.epsilons) if amount <= left and errors.currency == "epsilon"
        ]
        if fits and _list_errors(errors, fits[-1], own):
            yield f"{_say_amount(errors, fits[-1], sign)} would fit: {_list_errors(errors, fits[-1], own)}."
        return
    for factor, often in ((Fraction(2), "twice"), (Fraction(1, 2), "half")):
        what = f"for {often} the cost" if paid_all else f"{often} as much, all of it paid anew"
        at = next((i for i, amount in enumerate(errors.epsilons) if amount == errors.own * factor), None)
        told = "" if at is None else _list_errors(errors, at, own)
        if at is not None and told:
            yield f"{_say_amount(errors, at, sign)}, {what}: {told}."


def _say_amount(errors: Errors, at: int, sign: str) -> str:
    return f"{sign}={write_number(errors.epsilons[at])}"


def _tell_once(errors: Errors) -> Errors:
    """Return the errors for one number of rows per answer: the smallest that is informative."""
    first: dict[str, tuple[str, tuple[float, ...]]] = {}
    for name, row in errors.rows:
        first.setdefault(re.sub(r", of [\d,]+ rows$", "", name), (name, row))
    return replace(errors, rows=tuple(first.values()))


def _list_errors(errors: Errors, at: int, own: int) -> str:
    """Return the errors at another amount, without those that the bounds make equal at both amounts."""
    differ = [(name, row) for name, row in errors.rows if row[at] != row[own]]
    shown = [
        f"{name} within ±{row[at]:.4g} instead of ±{row[own]:.4g}" for name, row in differ[:SHOWN_ANSWERS]
    ]
    if not shown:
        return ""
    more = ", and so on" if len(differ) > SHOWN_ANSWERS else ""
    return f"{', '.join(shown)}{more} (with {errors.confidence:.4g} probability)"
