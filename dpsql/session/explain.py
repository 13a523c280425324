"""SHOW returns the budget, ledger, policy and tables as relations; EXPLAIN a plan's sentences, price and exact SQL.

Neither spends anything or reads private data.

Explains an answer or a refusal: the privacy unit, the bounds, the origin of the cost.

The explanation uses the plan, the policy and the ledger: it draws and reads nothing. It repeats no released value
except in the answer's notes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Protocol

import pyarrow as pa

from dpsql.binding.plan import Plan, PrivateBlock
from dpsql.binding.selection.declared import Declaration
from dpsql.errors import BindError, BudgetExceeded, EngineError, Error, Interrupted, PostprocessingError
from dpsql.ledger.ledger import Ledger
from dpsql.mechanisms.base import ErrorBasis
from dpsql.mechanisms.contribution_caps import CapSearch
from dpsql.mechanisms.moments import MEAN_ROWS
from dpsql.numerics.exact_numbers import write_number
from dpsql.policy.model import Budget, Policy, Table
from dpsql.privacy.amounts import SYMBOLS, Amount
from dpsql.privacy.cost_words import chooses_groups, explain_difference, list_cost_parts
from dpsql.privacy.events import DiscreteLaplace, Event, compose_events
from dpsql.privacy.gradual_events import NoiseReduction
from dpsql.report.figures import FIGURES, list_figures
from dpsql.report.tables import list_budget, list_entries
from dpsql.session.explanation import Errors, Explanation, Why, WhyPart, end_sentence, say_refusal
from dpsql.session.result import Result
from dpsql.session.stored_blocks import PreparedPlan

__all__ = [
    "Errors",
    "Explanation",
    "expect_errors",
    "explain_all",
    "explain_declaration",
    "explain_plan",
    "show",
]


def show(
    policy: Policy, ledger: Ledger, what: str, kept: Iterable[str] = (), limit: int | None = None
) -> Result:
    """Return the relation that ``SHOW <what>`` displays; ``limit`` is SHOW LEDGER's number of rows, the last ones."""
    if what == "LEDGER":
        columns = _columns(*list_entries(ledger.entries(limit), ledger.accountant))
    elif what in FIGURES:
        columns = _columns(*list_figures(ledger, what))
    else:
        columns = _SHOWN[what](policy, ledger)
    if what == "TABLES":
        for name in kept:
            for values, value in zip(
                columns.values(), (name, "kept result", "", None, None, None), strict=True
            ):
                values.append(value)
    return Result(pa.table(columns), cost_line="no charge", lasting=ledger.lasting or what != "BUDGET")


def _tables(policy: Policy, ledger: Ledger) -> dict[str, list[Any]]:
    rows = [
        (
            t.name,
            "public" if t.public else "private",
            _unit(t),
            t.max_rows,
            t.max_rows_per_group,
            t.max_groups,
        )
        for t in policy.tables.values()
    ]
    names = ("table", "kind", "privacy_unit", "max_rows", "max_rows_per_group", "max_groups")
    return _columns(names, rows)


def _unit(table: Table) -> str:
    """Return the column or path of a table's privacy unit, and its period if it has one."""
    return f"{table.unit_text or ''}{f' {table.period.words}' if table.period else ''}"


def _policy(policy: Policy, ledger: Ledger) -> dict[str, list[Any]]:
    budget = policy.budget
    rows = [("budget", name, _text(getattr(budget, name))) for name in budget.__dataclass_fields__]
    if policy.ledger.keep_answers_mb is not None:
        rows.append(("ledger", "keep_answers_mb", str(policy.ledger.keep_answers_mb)))
    if not policy.ledger.prompt_history:
        rows.append(("ledger", "prompt_history", "false"))
    for name, value in policy.server.collect().items():
        rows.append(
            ("server", name, ", ".join(map(_text, value)) if isinstance(value, tuple) else _text(value))
        )
    for table in policy.tables.values():
        if not table.public:
            names = ("max_rows", "max_rows_per_group", "max_groups")
            caps = tuple((name, getattr(table, name)) for name in names)
            rows.append((table.name, "privacy_unit", table.unit_text or "ROW"))
            rows += [(table.name, name, str(cap)) for name, cap in caps if cap is not None]
        if table.period is not None:
            rows.append(
                (
                    table.name,
                    "privacy_period",
                    f"one {table.unit_path[-1].column}'s rows {table.period.words}",
                )
            )
        if table.determines:
            rows.append((table.name, "determines", "; ".join(table.determines)))
        for name, column in table.columns.items():
            if column.bounds is not None:
                low, high = map(_text, column.bounds)
                rows.append((table.name, name, f"bounds {low} to {high}"))
            if column.values is not None:
                rows.append((table.name, name, "values " + ", ".join(map(str, column.values))))
    return _columns(("where", "name", "declared"), rows)


def _columns(names: tuple[str, ...], rows: list[Any]) -> dict[str, list[Any]]:
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _text(value: Any) -> str:
    return f"{float(value):g}" if isinstance(value, Fraction) else "" if value is None else str(value)


_SHOWN: dict[str, Callable[[Policy, Ledger], dict[str, list[Any]]]] = {
    "TABLES": _tables,
    "POLICY": _policy,
    "BUDGET": lambda policy, ledger: _columns(*list_budget(ledger.state(), ledger.lasting)),
}


FACTORS = tuple(Fraction(n, 10) for n in (1, 2, 5, 10, 20, 50, 100))
"""Epsilons of the table of expected errors, as multiples of the statement's own."""

MAX_JOINED = 3
"""The most sentences on one output that are joined into a paragraph."""

_NOTHING_SPENT = "Nothing has been spent and no private data were read."


def list_draws(prepared: PreparedPlan) -> list[PrivateBlock]:
    """Return the blocks that would be drawn if nothing were stored, without duplicates."""
    return [item.block for item in prepared.asked if item.same is None and not item.block.prepaid]


def expect_errors(plan: Plan, budget: Budget, draws: Sequence[PrivateBlock] | None = None) -> Errors | None:
    """Return a plan's expected errors at the epsilons the owner allows; None if none is known in advance.

    ``draws`` are the paid blocks, as from :func:`list_draws`; by default all of the plan's.
    """
    paid = [block for block in plan.blocks if not block.prepaid]
    draws = paid if draws is None else draws
    if not draws:
        return None
    event = compose_events([block.operator.event for block in draws])
    asked = _find_asked(draws) or Amount("epsilon", event.basic[0])
    most = budget.max_epsilon_per_query or budget.epsilon
    factors = [f for f in FACTORS if f == 1 or asked.times(f).bound_epsilon(budget.at_delta) <= most]
    bases = [[(b, ErrorBasis(MEAN_ROWS, confidence=b.confidence, factor=f)) for b in paid] for f in factors]
    grid = [[e for block, basis in row for e in block.operator.errors(basis)] for row in bases]
    rows = _drop_limits(
        [
            (answers[0].name + answers[0].note, tuple(answer.error for answer in answers))
            for answers in zip(*grid, strict=True)
        ],
        factors.index(Fraction(1)),
    )
    grid_of = tuple(asked.times(f).amount for f in factors)
    return Errors(grid_of, rows, asked.amount, plan.confidence, asked.currency) if rows else None


_OF_ROWS = re.compile(r"(.+), of [\d,]+ rows")
"""Matches the name of an error that depends on the number of rows."""


def _drop_limits(
    rows: list[tuple[str, tuple[float, ...]]], own: int
) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """Drop numbers of rows so small that an answer is anywhere between its bounds; keep the largest.

    Args:
        rows: the errors of each answer at several amounts, the smallest first.
        own: the index of the statement's own amount.
    """
    kept = []
    for place, (name, errors) in enumerate(rows):
        found, after = _OF_ROWS.fullmatch(name), [other for other, _ in rows[place + 1 : place + 2]]
        larger = [other for other in map(_OF_ROWS.fullmatch, after) if other is not None]
        last = found is None or all(other[1] != found[1] for other in larger)
        if last or errors[own] < errors[0]:
            kept.append((name, errors))
    return tuple(kept)


def _find_asked(blocks: Sequence[PrivateBlock]) -> Amount | None:
    """Return the joint loss requested for several blocks, if all of it is in mu or all in rho."""
    asked = [block.asked for block in blocks if block.asked is not None]
    currencies = {amount.currency for amount in asked}
    if len(asked) != len(blocks) or len(currencies) != 1 or "epsilon" in currencies:
        return None
    return Amount(currencies.pop(), sum((amount.total for amount in asked), Fraction(0)))


Written = Callable[[PrivateBlock, str], str]
"""Returns the engine's text for a query of a block's operator."""


def explain_plan(
    prepared: PreparedPlan, ledger: Ledger, budget: Budget, written: Written, as_json: bool = False
) -> Explanation:
    """Explain a plan and its price under the session's accountant; stored blocks are free."""
    plan = prepared.plan
    sentences = [*describe_plan(_keep_choices(prepared.answered, plan)), *prepared.sentences()]
    event, debit = prepared.event, prepared.debit
    if not plan.blocks:
        price = "It reads nothing private and costs nothing."
        sentences = ["This statement reads public data only."]
    elif event is not None:
        capped = any(isinstance(one, NoiseReduction) for one in event.leaves())
        notes = [n for item in prepared.asked if not item.free for n in item.block.operator.price_notes]
        price = _say_price("Would cost at most" if capped else "Would cost", event, ledger, debit, notes)
    elif debit is not None:
        price = _say_price("Would cost", None, ledger, debit)
    else:
        why = "nothing more: it was reserved at DECLARE"
        if prepared.stored:
            why = f"nothing: it is {prepared.since}"
        elif any(item.same is not None for item in prepared.asked):
            why = "nothing: the same is asked before"
        price = f"Would cost {why}; {ledger.state().sentence}. No private data were read."
    queries = tuple(dict.fromkeys(written(block, q) for block in plan.blocks for q in block.operator.queries))
    errors = name_errors(plan, budget, list_draws(prepared))
    sentences = list(dict.fromkeys(sentences))
    return Explanation(
        tuple(sentences), price, queries, plan.finish, as_json, errors, event, debit=debit,
        mean_errors=_list_mean_errors(prepared.answered),
        least_caps=any(isinstance(block.operator, CapSearch) for block in plan.blocks),
        strategies=tuple(block.strategy for block in plan.blocks if block.strategy is not None),
    )  # fmt: skip


def _keep_choices(answered: Plan, plan: Plan) -> Plan:
    """Return a plan as answered, with the choices the statement alone would have made."""
    pairs = zip(answered.blocks, plan.blocks, strict=True)
    return replace(answered, blocks=tuple(replace(own, strategy=block.strategy) for own, block in pairs))


def _list_mean_errors(plan: Plan) -> tuple[tuple[int, tuple[tuple[str, float], ...]], ...]:
    """Return output columns' expected errors by number of rows; for one number if none depends on it."""

    def expect(*rows: int) -> dict[str, float]:
        return plan.expect_errors({block.name: ErrorBasis(rows) for block in plan.blocks})

    found = [(rows, expect(rows)) for rows in MEAN_ROWS]
    assumed = found[0][1] != expect()
    return tuple((rows, tuple(errors.items())) for rows, errors in found[: None if assumed else 1] if errors)


def describe_plan(plan: Plan) -> list[str]:
    """Return a plan's sentences, with the statement's output names: privacy unit, bounds, noise."""
    names = plan.output_names
    told = [_rename(s, names, ": ") for block in plan.blocks for s in block.explain()]
    shown = {names.get(column, column) for block in plan.blocks for column, _ in block.columns}
    sentences = [*_group_sentences(told, shown), *plan.limits]
    units = {found[1] or "row" for s in sentences if (found := _PROTECTED.match(s)) is not None}
    unit = f"one {units.pop()}" if len(units) == 1 else "one privacy unit"
    return [_end_once(sentence.replace("one privacy unit", unit)) for sentence in sentences]


def _end_once(sentence: str) -> str:
    """Return a sentence without a second full stop after a name that ends in one."""
    return sentence[:-1] if sentence.endswith("..") and not sentence.endswith("...") else sentence


_PROTECTED = re.compile(r"Each (?:row of .+|(\S.*?) in .+) is protected")
"""Matches the sentence that names the privacy unit, if that is a row or all rows of one value."""


def name_errors(plan: Plan, budget: Budget, draws: Sequence[PrivateBlock] | None = None) -> Errors | None:
    """Return a plan's expected errors as :func:`expect_errors`, without duplicates, by output name."""
    errors, names = expect_errors(plan, budget, draws), plan.output_names
    if errors is None:
        return None
    rows = dict.fromkeys((_rename(name, names, ", "), row) for name, row in errors.rows)
    return replace(errors, rows=tuple(rows))


def _rename(text: str, names: Mapping[str, str], end: str) -> str:
    """Return a text with the released column's name at its start replaced by the output's."""
    for column, name in names.items():
        if text == column or text.startswith(column + end):
            return name + text[len(column) :]
    return text


def _group_sentences(sentences: Sequence[str], names: Iterable[str]) -> list[str]:
    """Join the sentences on each output's computation and noise into one, with its name once."""
    grouped = list(dict.fromkeys(sentences))
    for name in names:
        own = [sentence for sentence in grouped if sentence.startswith(f"{name}: ")]
        if 1 < len(own) <= MAX_JOINED:
            first, *rest = (sentence.removeprefix(f"{name}: ").rstrip(".") for sentence in own)
            joined = ". ".join([f"{name}: {first}", *map(_capitalise, rest)])
            grouped[grouped.index(own[0])] = f"{joined}."
            grouped = [sentence for sentence in grouped if sentence not in own[1:]]
    return grouped


def _capitalise(sentence: str) -> str:
    """Capitalise a sentence, unless its first word is a letter of a formula."""
    first = sentence.partition(" ")[0]
    return sentence if len(first) == 1 and first != "a" else sentence[:1].upper() + sentence[1:]


def explain_declaration(declared: Declaration, ledger: Ledger, as_json: bool = False) -> Explanation:
    """Explain what DECLARE would reserve, and how its questions would be answered."""
    price = _say_price("Would reserve", declared.event, ledger)
    return Explanation(declared.sentences(), price, (), "", as_json, event=declared.event)


def explain_all(parts: list[Explanation], ledger: Ledger) -> Explanation:
    """Explain statements that are paid one after another, and price them together."""
    if len(parts) == 1:
        return parts[0]
    events = [part.event for part in parts if part.event is not None]
    debits = [part.debit for part in parts if part.debit is not None]
    debit = compose_events(debits) if debits else None
    if not events and debit is None:
        price = f"Together they would cost nothing; {ledger.state().sentence}. No private data were read."
    else:
        before, after = ledger.state(), ledger.state(events, debit)
        fits = ledger.find_excess(*events, debit=debit) is None
        left = f"then {after.sentence}" if fits else f"that is more than there is: {before.sentence}"
        charge = _write_charge(compose_events(events) if events else None, debit, ledger)
        price = f"Together they would cost {charge}; {left}. {_NOTHING_SPENT}"
    sentences = tuple(sentence for part in parts for sentence in part.sentences)
    queries = tuple(dict.fromkeys(query for part in parts for query in part.sql))
    return Explanation(sentences, price, queries, "", any(p.as_json for p in parts), parts=tuple(parts))


def _say_price(
    verb: str, event: Event | None, ledger: Ledger, debit: Event | None = None, notes: Sequence[str] = ()
) -> str:
    """Return the sentence on a charge (``debit``: the share's alone) and the remaining budget, or why it is too small."""
    state, excess = ledger.state(), ledger.find_excess(*([] if event is None else [event]), debit=debit)
    if excess is None:
        rule = "" if event is None else ledger.say_rule(event)
        inside = f" ({', '.join(notes)})" if notes else ""
        return (
            f"{verb} {_write_charge(event, debit, ledger)}{inside}; {state.sentence}.{rule} {_NOTHING_SPENT}"
        )
    return f"It would be refused. {excess.message} {_NOTHING_SPENT}"


def _write_charge(event: Event | None, debit: Event | None, ledger: Ledger) -> str:
    write = ledger.accountant.write_charge
    shared = (
        [] if debit is None else [f"{write(debit)} of {ledger.analyst}'s share and nothing more of the whole"]
    )
    return ", and ".join([*([] if event is None else [write(event)]), *shared])


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
