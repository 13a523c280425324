"""The owner's report as plain data: the remaining budget, the statements with their costs, and the guarantee.

The page and the text are two formats of it. The figures are floats, for display; the filters decide charges by exact
fractions.

The explanation of a charge has its parts, how it was settled and, for the owner, the protected unit and cheaper options. It uses
events, the ledger and the policy, which are public, and no data.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from datetime import datetime
from fractions import Fraction

from dpsql.errors import BindError, did_you_mean
from dpsql.late_dataclass import dataclass
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.log_file import PUBLISHED, format_now
from dpsql.numerics.exact_numbers import UP, write_number, write_pair, write_short
from dpsql.policy.model import Column, Policy, Table
from dpsql.policy.validate import DateBound
from dpsql.privacy.accountants import Accountant, RuleAccountant, Spent
from dpsql.privacy.amounts import SYMBOLS, OwnRoom, format_percent
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
from dpsql.privacy.records import BudgetState, Entry
from dpsql.report.figures import (
    ALPHAS,
    GROUP_FIGURES,
    PEOPLE,
    BudgetLoss,
    Charges,
    certainty_text,
    compute_tradeoff,
    describe_group,
    find_conversion_delta,
    find_promise,
    find_rule_curve,
    find_spent,
    list_accountants,
)
from dpsql.report.tables import Data, clip_text, list_cells, name_of

STATEMENTS_ON_A_PAGE = 1000
"""Statements on one page of the report."""
BURN_DOWN_STEPS = 400
"""Points of the curve of the remaining budget."""

_NOTHING = Fraction(0)


@dataclass
class Tally:
    """The sums of one person's statements, in all or on one day."""

    statements: int = 0
    refused: int = 0
    epsilon: Fraction = _NOTHING
    delta: Fraction = _NOTHING
    debits: int = 0
    """Statements with stored answers of others, debited to the share only."""
    debited: Fraction = _NOTHING
    """The epsilon of these debits."""

    def join(self, other: Tally) -> None:
        """Add the sums of another person or day."""
        self.statements += other.statements
        self.refused += other.refused
        self.epsilon += other.epsilon
        self.delta += other.delta
        self.debits += other.debits
        self.debited += other.debited

    def add(self, event: Event | None, debit: Event | None = None) -> None:
        """Count one statement: its charge, and the debit of the share; both are None if it was refused."""
        if debit is not None:
            self.debits += 1
            self.debited += debit.basic[0]
        if event is None:
            self.refused += debit is None
            return
        epsilon, delta = event.basic
        self.statements += 1
        self.epsilon += epsilon
        self.delta += delta


@dataclass
class LedgerSums:
    """The sums of all statements, and the statements of one page: 1 has the newest."""

    ledger: Ledger
    page: int = 1
    page_size: int = STATEMENTS_ON_A_PAGE
    people: dict[str, Tally] = field(default_factory=dict)
    days: dict[tuple[str, str], Tally] = field(default_factory=dict)
    """The sums by the day, in UTC, and the person."""
    charged: Charges = field(default_factory=Charges)
    entries: list[Entry] = field(default_factory=list)
    """The statements of the page, in order."""
    unsettled: int = 0
    burn_down: Data = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = self.ledger.count
        self.count = count
        self.pages = max(1, -(-count // self.page_size))
        self.page = min(max(1, self.page), self.pages)
        last = count - (self.page - 1) * self.page_size
        self.first, self.last = max(1, last - self.page_size + 1), last
        curve = _BurnDown(self.ledger, count)
        accountant = self.ledger.accountant
        for entry in self.ledger.walk(1, count):
            charged, debit = entry.charged(accountant), entry.debit
            person = name_of(entry)
            if entry.outcome != PUBLISHED:
                self.people.setdefault(person, Tally()).add(charged, debit)
                self.days.setdefault((entry.when[:10], person), Tally()).add(charged, debit)
            self.unsettled += entry.event is not None and entry.outcome in ("unsettled", "open")
            curve.add(entry)
            if self.first <= entry.statement_id <= self.last:
                self.entries.append(entry)
        self.burn_down, self.charged = curve.finish(), Charges(curve.events, curve.newest)

    @property
    def charges(self) -> int:
        """The number of charged statements."""
        return sum(tally.statements for tally in self.people.values())


class _BurnDown:
    """The greatest cost of one more statement after each charge, and the level that each refused statement requested."""

    def __init__(self, ledger: Ledger, count: int) -> None:
        self._rule = ledger.accountant
        self._every = max(1, -(-count // BURN_DOWN_STEPS))
        self._spent: Spent = self._rule.start
        self._limit = self._left = find_left(self._rule, self._spent)
        self._charges = 0
        self._since: Counter[Event] = Counter()
        self._last = ""
        self._shown = 0
        self.events: Counter[Event] = Counter()
        self.newest: Event | None = None
        self.steps: list[Data] = [{"charges": 0, "left": float(self._left), "text": ""}]
        self.refused: list[Data] = []

    def add(self, entry: Entry) -> None:
        if entry.event is not None:
            self._since[entry.event] += 1
            self.newest = entry.event
            self._charges += 1
            self._last = entry.text
            if self._charges % self._every == 0:
                self._step()
        elif entry.asked is not None and len(self.refused) < BURN_DOWN_STEPS:
            level = float(self._left - find_cost_of(self._rule, entry.asked))
            self.refused.append({"charges": self._charges, "level": level, "text": clip_text(entry.text, 90)})

    def finish(self) -> Data:
        if self._shown < self._charges:
            self._step()
        symbol = self._rule.symbol if self._rule.speaks else "ε"
        curve = {"limit": float(self._limit), "symbol": symbol, "charges": self._charges}
        return {**curve, "steps": self.steps, "refused": self.refused}

    def _step(self) -> None:
        for event, times in self._since.items():
            self._spent = self._rule.add(self._spent, event, times)
        self.events.update(self._since)
        self._since.clear()
        self._shown = self._charges
        self._left = find_left(self._rule, self._spent)
        self.steps.append(
            {"charges": self._charges, "left": float(self._left), "text": clip_text(self._last, 90)}
        )


def find_cost_of(rule: Accountant, event: Event) -> Fraction:
    """Return the cost of an event, in the session's currency."""
    return rule.own_cost(event) if rule.speaks and isinstance(rule, RuleAccountant) else event.basic[0]


def find_left(rule: Accountant, spent: Spent) -> Fraction:
    """Return the greatest cost of one more statement, in the session's currency."""
    own = rule.own_room(spent)
    if own is not None:
        return own.left
    return rule.fits(spent) if spent.count else rule.epsilon


def sum_days(days: dict[tuple[str, str], Tally], most: int) -> list[tuple[str, str, Tally]]:
    """Return the sums by day and person (by month or year above ``most`` rows; the rest joined in one), the newest first."""
    for length in (10, 7, 4):
        found: dict[tuple[str, str], Tally] = {}
        for (day, who), tally in days.items():
            found.setdefault((day[:length], who), Tally()).join(tally)
        if len(found) <= most:
            break
    newest = sorted(found.items(), key=lambda item: item[0][0], reverse=True)
    rows = [(day, who, tally) for (day, who), tally in newest]
    if len(rows) > most:
        rest = Tally()
        for _, _, tally in rows[most - 1 :]:
            rest.join(tally)
        rows = [*rows[: most - 1], ("earlier", "all others", rest)]
    return rows


FORMAT = 1
_DAYS = 400
"""Rows of the sums by day and person."""
SECTIONS = ("left", "asked", "refused", "guarantee", "assumptions", "pictures")
"""The parts of a report, in their order."""


def make_report(ledger: Ledger, policy: Policy | None = None, *, page: int = 1) -> Data:
    """Return the report as plain data: numbers, texts, lists and dictionaries only.

    Args:
        ledger: an open ledger, or :meth:`Ledger.read` of one (or its copy under another accountant).
        policy: the policy with the assumptions; by default the one that the ledger was last opened with.
        page: the page of single statements: 1 has the newest. All sums are over all statements.

    Raises:
        LedgerError: the ledger can't be read or trusted.
    """
    policy = policy or ledger.policy
    state = ledger.state()
    whole = replace(state.whole or state, stretches=state.stretches, part=state.part)
    sums = LedgerSums(ledger, page)
    names, accountants = list_accountants(ledger, sums.charged)
    return {
        "format": FORMAT,
        "written": format_now(),
        "ledger": None if ledger.path is None else ledger.path.name,
        "dataset": ledger.dataset,
        "warnings": list(ledger.warnings),
        "notices": [notice for notice in ledger.notices if notice not in ledger.warnings],
        "left": _left(whole, sums),
        "pages": {
            "page": sums.page,
            "of": sums.pages,
            "first": sums.first,
            "last": sums.last,
            "count": sums.count,
        },
        "asked": _asked(ledger, sums, policy),
        "accountants": [dict(zip(names, row, strict=True)) for row in accountants],
        "refused": [
            describe_entry(e, ledger.accountant, policy) for e in sums.entries if e.outcome == "refused"
        ],
        "guarantee": _guarantee(ledger, sums, whole, policy),
        "assumptions": _assumptions(policy),
        "pictures": _pictures(ledger, whole, sums),
    }


def list_pictures(ledger: Ledger, what: str) -> Data:
    """Return the numbers of one picture, ``budget`` (left after each charge) or ``tradeoff``; BindError for another name."""
    if what not in PICTURES:
        raise BindError(f"there is no picture of {what}.", hint=did_you_mean(what, PICTURES))
    return ledger.tabulate(f"picture {what}", PICTURES[what])


def _left(whole: BudgetState, sums: LedgerSums) -> Data:
    return {
        "sentence": whole.sentence,
        "accountant": whole.accountant,
        "detail": whole.detail,
        "epsilon": float(whole.left_epsilon),
        "delta": float(whole.left_delta),
        "limit": {"epsilon": float(whole.limit_epsilon), "delta": float(whole.limit_delta)},
        "spent": {"epsilon": float(whole.spent_epsilon), "delta": float(whole.spent_delta)},
        "share_spent": float(whole.share),
        "mechanism_delta": float(whole.mechanism_delta),
        "rule_used": None if whole.rule_used is None else float(whole.rule_used),
        "rule_text": whole.rule_text,
        "own": None if whole.own is None else _own(whole.own),
        "about": whole.about,
        "about_text": whole.about_text,
        "default_epsilon": None if whole.default_epsilon is None else float(whole.default_epsilon),
        "charges": sums.charges,
        "unsettled": sums.unsettled,
        "periods": [
            {"period": one.period, "spent": one.spent, "left": one.left, "share_spent": float(one.share)}
            for one in whole.stretches
        ],
        "cells": [cell._asdict() for cell in list_cells(whole)],
    }


def _own(room: OwnRoom) -> Data:
    amounts = {"limit": room.limit, "spent": room.spent, "left": room.left}
    return {"symbol": room.symbol, **{name: float(amount) for name, amount in amounts.items()}}


def _asked(ledger: Ledger, sums: LedgerSums, policy: Policy | None) -> Data:
    shares = {who: float(share[0]) for who, share in ledger.terms.shares.items()}
    people, days = [], []
    for who, tally in sums.people.items():
        if tally.statements or tally.debits:
            charged = {"epsilon": float(tally.epsilon), "debited": float(tally.debited)}
            people.append({"who": who, "statements": tally.statements, **charged, "share": shares.get(who)})
    for day, who, tally in sum_days(sums.days, _DAYS):
        counts = {"statements": tally.statements, "refused": tally.refused}
        days.append(
            {"day": day, "who": who, **counts, "epsilon": float(tally.epsilon), "delta": float(tally.delta)}
        )
    answered = [e for e in sums.entries if e.outcome != "refused"]
    statements = [describe_entry(e, ledger.accountant, policy) for e in answered]
    return {"people": people, "days": days, "statements": statements}


def _price(rule: Accountant, event: Event | None) -> str:
    """Return the charge, or the part of the rule's limit that it uses."""
    if event is None:
        return ""
    part = rule.used_by(event)
    return rule.write_charge(event) if part is None else f"{format_percent(part)} of the rule"


def describe_entry(entry: Entry, accountant: Accountant, policy: Policy | None) -> Data:
    """Return a statement of the ledger as plain data: analyst, text, time, charge, outcome, and their explanation."""
    event = entry.charged(accountant)
    charged = (Fraction(0), Fraction(0)) if event is None else event.basic
    return {
        "statement": entry.statement_id,
        "when": entry.when,
        "when_text": datetime.fromisoformat(entry.when).astimezone().strftime("%Y-%m-%d %H:%M"),
        "who": name_of(entry),
        "text": entry.text,
        "charge": entry.charge(accountant),
        "price": _price(accountant, event),
        "epsilon": float(charged[0]),
        "delta": float(charged[1]),
        "asked": None if entry.asked is None else accountant.write_charge(entry.asked),
        "outcome": entry.outcome,
        "reason": entry.reason,
        "event": None if entry.event is None else entry.event.to_json(),
        "why": explain_entry(entry, accountant, policy),
    }


def _guarantee(ledger: Ledger, sums: LedgerSums, whole: BudgetState, policy: Policy | None) -> Data:
    promise, spent = find_promise(ledger, sums.charged), find_spent(ledger, sums.charged)
    at_delta = find_conversion_delta(ledger)
    units = sorted({t.unit_words for t in policy.tables.values() if not t.public}) if policy else []
    unit = " or ".join(units) or "all rows of any one privacy unit"
    verb = "is" if unit == "any one row" else "are"
    return {
        "epsilon": float(whole.limit_epsilon),
        "delta": float(whole.limit_delta),
        "currency": promise.currency,
        "amount": promise.amount,
        "certainty": promise.certainty,
        "certainty_spent": spent.certainty,
        "sentence": _say_promise(promise, whole, f"{unit} {verb}")
        + _say_spent(spent)
        + (_SEVERAL_PERIODS if whole.stretches else ""),
        "formal": (
            f"All answers together, chosen one after another in any way, are {_say_formal(promise, whole)}, when "
            f"{unit} {verb} added or removed. The sums are kept by the accountant {whole.accountant}."
            + (_parts(whole) if promise.currency == "epsilon" else "")
        ),
        "errors": [_errors("whole budget", promise), _errors("spent so far", spent)],
        "groups": [_group(promise, k, at_delta) for k in range(1, PEOPLE + 1)],
        "groups_spent": [_group(spent, k, at_delta) for k in range(1, PEOPLE + 1)],
    }


_SEVERAL_PERIODS = (
    " Each period has this budget of its own, so a person's rows in k periods count as k units in the table of several units. "
    "What was spent so far adds up the charges of all periods, and no unit pays all of them."
)


def _say_promise(promise: BudgetLoss, whole: BudgetState, unit: str) -> str:
    """Return the sentence about the most that an attacker can find out."""
    knows = "omebody who sees every answer, and knows all the other rows,"
    sure, even = promise.certainty, "if they gave it even odds before."
    if sure > 0.999:
        return (
            f"S{knows} may become almost certain whether {unit} in the data: a budget of {_say_amount(promise, whole)} protects "
            "hardly anyone."
        )
    if promise.currency != "epsilon":
        told = f"guesses right with a chance of at most {certainty_text(sure)} whether {unit} in the data"
        return f"Even s{knows} {told}, {even}"
    sentence = f"Even s{knows} can't tell with more than {certainty_text(sure)} certainty whether {unit} in the data, {even}"
    if whole.limit_delta:
        sentence += f" Up to a probability of {write_short(whole.limit_delta)}, this may fail."
    return sentence


def _say_amount(promise: BudgetLoss, whole: BudgetState) -> str:
    if promise.currency == "epsilon":
        return f"ε={write_short(whole.limit_epsilon)}"
    return f"{SYMBOLS[promise.currency]}={promise.amount:.4g}"


def _say_spent(spent: BudgetLoss) -> str:
    """Return the sentence about the certainty after the charges so far, in a session with its own currency."""
    if spent.currency == "epsilon":
        return ""
    return f" The charges so far allow {certainty_text(spent.certainty)}."


def _say_formal(promise: BudgetLoss, whole: BudgetState) -> str:
    """Return the guarantee in the terms of the literature."""
    if promise.currency == "epsilon":
        return f"({write_pair(whole.limit_epsilon, whole.limit_delta)})-differentially private"
    amount = f"{promise.amount:.4g}"
    name = f"{amount}-Gaussian differentially private" if promise.currency == "mu" else f"{amount}-zCDP"
    if promise.delta:
        name += f" except with probability {promise.delta:.4g}"
    if not whole.promises_rule:
        return name
    return f"{name} (the curve alone: ε={write_short(whole.limit_epsilon, UP)} at δ={write_short(whole.at_delta)})"


def _errors(of: str, loss: BudgetLoss) -> Data:
    """Return the least type II errors at public type I errors."""
    curve = loss.curve
    return {"of": of, "type_ii": [[alpha, float(curve(alpha))] for alpha in ALPHAS]}


def _group(loss: BudgetLoss, k: int, at_delta: float) -> Data:
    return {"size": k, **dict(zip(GROUP_FIGURES, describe_group(loss, k, at_delta), strict=True))}


def _parts(whole: BudgetState) -> str:
    """Return the sentence about the two parts of delta, if it has two."""
    if not 0 < whole.mechanism_delta < whole.limit_delta:
        return ""
    rest = whole.limit_delta - whole.mechanism_delta
    return (
        f" Of δ, {write_short(whole.mechanism_delta)} is for mechanisms with a δ of their own and {write_short(rest)} for the "
        "rule. A statement is admitted if the plain sum of ε or the rule has room for it."
    )


def _assumptions(policy: Policy | None) -> Data:
    if policy is None:
        return {"sentences": [], "tables": []}
    tables, sentences = [], []
    for table in policy.tables.values():
        if table.public:
            sentences.append(f"{table.name} is public: it has no protection.")
            continue
        limits = filter(None, (_rows(table), _groups(table.max_groups)))
        sentences.append(f"{table.name} protects {table.unit_words}: {', '.join(limits)}.")
        columns = [_describe_column(name, column) for name, column in table.columns.items()]
        unit = table.unit_label or None
        tables.append({"name": table.name, "unit": unit, **table.caps, "columns": columns})
    sentences += _say_server(policy)
    sentences.append("Declared bounds and values are public: they must not be read off the data.")
    sentences.append(
        "The guarantee covers the releases recorded in this ledger. It does not cover another ledger about the same people, nor "
        "anyone with access to the data."
    )
    return {"sentences": sentences, "tables": tables}


def _say_server(policy: Policy) -> list[str]:
    """Return sentences about the price of stored answers, if there are shares, and about missing answer times."""
    said = []
    if policy.analysts and policy.budget.answers == "own":
        said.append(
            "A stored answer is debited once to the share of each other analyst who asks for it. The whole is not "
            "charged again, because nothing is drawn."
        )
    elif policy.analysts:
        said.append(
            "A stored answer is free for every analyst, because the whole budget bounds all answers together."
        )
    if not policy.server.answer_times:
        said.append(
            "Answers leave a server when they are ready (answer_times = []): their times are not protected."
        )
    return said


def _pictures(ledger: Ledger, whole: BudgetState, sums: LedgerSums) -> Data:
    epsilon = float(whole.limit_epsilon)
    charged = sums.charged
    promise, spent = find_promise(ledger, charged), find_spent(ledger, charged)
    promised, used = promise.find_profile(), spent.find_profile()
    grid = [1.5 * epsilon * i / 150 for i in range(151)]
    by_rule = find_rule_curve(ledger, promise)
    curves = {
        "promise": _draw_curve(promise, epsilon),
        "spent": _draw_curve(spent, epsilon) if charged.counts else [(0.0, 1.0), (1.0, 0.0)],
        **({} if by_rule is None else {"by_rule": [(i / 100, by_rule(i / 100)) for i in range(101)]}),
    }
    at_delta = find_conversion_delta(ledger)
    together = [(k, promise.group(k).amount, _group(promise, k, at_delta)) for k in range(1, PEOPLE + 1)]
    return {
        "burn_down": sums.burn_down,
        "epsilon_delta": {
            "epsilon": grid,
            "promise": [promised(x) for x in grid],
            "spent": [used(x) for x in grid] if charged.counts else [0.0] * len(grid),
        },
        "tradeoff": curves,
        "attacker": _attacker(whole, promise, spent),
        "groups": [
            (k, amount, told["delta"] if promise.currency == "epsilon" else 0.0, told["certainty"])
            for k, amount, told in together
        ],
    }


def _draw_picture(ledger: Ledger, name: str) -> Data:
    state = ledger.state()
    return {name: _pictures(ledger, state.whole or state, LedgerSums(ledger))[name]}


PICTURES: Mapping[str, Callable[[Ledger], Data]] = {
    "budget": lambda ledger: _draw_picture(ledger, "burn_down"),
    "tradeoff": lambda ledger: _draw_picture(ledger, "tradeoff"),
}
"""The functions that make the pictures of :func:`list_pictures`, by name."""


def _draw_curve(loss: BudgetLoss, epsilon: float) -> list[tuple[float, float]]:
    if loss.currency != "mu":
        return compute_tradeoff(loss.find_profile(), epsilon)
    curve = loss.curve
    return [(i / 100, curve(i / 100)) for i in range(101)]


def _attacker(whole: BudgetState, promise: BudgetLoss, spent: BudgetLoss) -> Data:
    """Compute the attacker's certainty along the currency of the promise, and the session's place on it."""
    limit, now = promise.amount, spent
    if promise.currency == "epsilon":
        now = BudgetLoss("epsilon", min(limit, float(whole.limit_epsilon - whole.left_epsilon)), 0.0)
    most = max(5.0 if promise.currency == "epsilon" else 2.0, 1.2 * limit)
    places = (i * most / 120 for i in range(121))
    return {
        "symbol": SYMBOLS[promise.currency],
        "curve": [(x, BudgetLoss(promise.currency, x, promise.delta).certainty) for x in places],
        "promise": (limit, promise.certainty),
        "spent": (now.amount, now.certainty),
    }


def _describe_column(name: str, column: Column) -> Data:
    bounds = None
    if column.bounds is not None:
        bounds = [str(end) if isinstance(end, DateBound) else float(end) for end in column.bounds]
    return {"name": name, "bounds": bounds, "values": None if column.values is None else list(column.values)}


def _rows(table: Table) -> str:
    """Return the caps on the rows of one unit."""
    rows, each = 1 if table.row_level else table.max_rows, table.max_rows_per_group
    if rows is None and each is None:
        return "any number of rows"
    caps = []
    if rows is not None:
        caps.append("one row each" if rows == 1 else f"at most {rows} rows of each count in all")
    if each is not None and not table.row_level:
        caps.append(f"at most {each} row{'s' * (each > 1)} of each count in a group")
    return ", ".join(caps)


def _groups(count: int | None) -> str:
    return "" if count is None else "one group each" if count == 1 else f"at most {count} groups each"


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
    """Yield the loss of a statement, its parts, and why less was charged than reserved; ``verb`` begins the first sentence."""
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
    PUBLISHED: "It published or dropped a release, which was charged before.",
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
    if chooses_groups(used or entry.asked):
        said.append(
            "Cheaper: declare the values of the grouping column, if they are public; then choosing groups costs no δ."
        )
    return said


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


def explain_statement(ledger: Ledger, number: int, policy: Policy | None = None) -> str:
    """Explain a statement by its number, under ``policy`` or the last one that opened the ledger; BindError if there is none."""
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
