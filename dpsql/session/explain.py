"""Explains plans before they are paid, and answers and refusals afterwards.

Everything comes from the plan, the policy and the ledger: nothing is drawn, paid or read from private data. The values
that these functions return are in :mod:`dpsql.session.explanation`, which also renders them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.binding.plan import Plan, PrivateBlock, ProtectedUnit
from dpsql.catalogue.option_names import CAP_OPTIONS
from dpsql.errors import BindError, BudgetExceeded
from dpsql.ledger.ledger import Ledger
from dpsql.mechanisms.base import MEAN_ROWS, ErrorBasis, ExpectedError
from dpsql.numerics.exact_numbers import write_number
from dpsql.policy.model import Budget, Policy
from dpsql.privacy.amounts import SYMBOLS, Amount
from dpsql.privacy.events import DiscreteLaplace, Event, NoiseReduction, compose_events
from dpsql.privacy.periods import intersect, list_periods, remove_days, say_periods, unite
from dpsql.session.explanation import Errors, Explanation, Why, WhyPart, end_sentence, explain_error
from dpsql.session.outcomes import AskedStatement, list_draws, write_charge
from dpsql.session.stored_blocks import PreparedPlan

if TYPE_CHECKING:
    from dpsql.binding.modes.declared import Declaration

FACTORS = tuple(Fraction(n, 10) for n in (1, 2, 5, 10, 20, 50, 100))
"""Epsilons of the table of expected errors, as multiples of the statement's own."""
MAX_JOINED = 3
"""The most sentences on one output that are joined into a paragraph."""
_NOTHING_SPENT = "Nothing has been spent and no private data were read."


# -- charges ----------------------------------------------------------------------------------------------------


def _write_price(ledger: Ledger, event: Event | None, debit: Event | None) -> str:
    return write_charge(ledger, event, debit) + ("" if debit is None else " and nothing more of the whole")


def _explain_price(
    verb: str, ledger: Ledger, event: Event | None, debit: Event | None = None, notes: Sequence[str] = ()
) -> str:
    """Return the sentences on a charge and the remaining budget, or why that is too small."""
    excess = ledger.find_excess(*([] if event is None else [event]), debit=debit)
    if excess is not None:
        return f"It would be refused. {excess.message} {_NOTHING_SPENT}"
    rule = "" if event is None else ledger.say_rule(event)
    inside = f" ({', '.join(notes)})" if notes else ""
    price = _write_price(ledger, event, debit)
    return f"{verb} {price}{inside}; {ledger.state().sentence}.{rule} {_NOTHING_SPENT}"


# -- expected errors --------------------------------------------------------------------------------------------


def expect_errors(
    plan: Plan, budget: Budget, draws: Sequence[PrivateBlock] | None, once: bool = False
) -> Errors | None:
    """Return a plan's expected errors at the epsilons the owner allows; None if none is known in advance.

    ``draws`` are the paid blocks, as from :func:`list_draws`, by default all. With ``once`` an answer has only its error for
    the smallest informative number of rows.
    """
    paid = [block for block in plan.blocks if not block.prepaid]
    draws = paid if draws is None else draws
    if not draws:
        return None
    asked = _find_asked(draws)
    most = budget.max_epsilon_per_query or budget.epsilon
    factors = [f for f in FACTORS if f == 1 or asked.times(f).bound_epsilon(budget.at_delta) <= most]
    bases = [[(b, ErrorBasis(MEAN_ROWS, confidence=b.confidence, factor=f)) for b in paid] for f in factors]
    grid = [[e for block, basis in row for e in block.operator.errors(basis)] for row in bases]
    answers = [(errors[0], tuple(error.error for error in errors)) for errors in zip(*grid, strict=True)]
    kept = _drop_limits(answers, factors.index(Fraction(1)))
    if once:
        first: dict[tuple[str, str], tuple[ExpectedError, tuple[float, ...]]] = {}
        for error, row in kept:
            first.setdefault((error.name, error.condition), (error, row))
        kept = list(first.values())
    names = plan.output_names
    rows = tuple(dict.fromkeys((_rename(error.label, names, ", "), row) for error, row in kept))
    amounts = tuple(asked.times(f).amount for f in factors)
    return Errors(amounts, rows, asked.amount, plan.confidence, asked.currency) if rows else None


def _drop_limits(
    answers: Sequence[tuple[ExpectedError, tuple[float, ...]]], own: int
) -> list[tuple[ExpectedError, tuple[float, ...]]]:
    """Drop numbers of rows so small that an answer is anywhere between its bounds; keep the largest.

    ``answers`` have an error per amount, in ascending order of amounts; ``own`` is the index of the statement's own amount.
    """
    kept = []
    for place, (error, row) in enumerate(answers):
        after = [(e.name, e.condition) for e, _ in answers[place + 1 : place + 2] if e.rows is not None]
        last = error.rows is None or (error.name, error.condition) not in after
        if last or row[own] < row[0]:
            kept.append((error, row))
    return kept


def _find_asked(blocks: Sequence[PrivateBlock]) -> Amount:
    """Return the joint loss requested for several blocks: in mu or in rho if all of it is, otherwise in epsilon."""
    asked = [block.asked for block in blocks if block.asked is not None]
    currencies = {amount.currency for amount in asked}
    if len(asked) != len(blocks) or len(currencies) != 1 or "epsilon" in currencies:
        return Amount("epsilon", compose_events([block.operator.event for block in blocks]).basic[0])
    return Amount(currencies.pop(), sum((amount.total for amount in asked), Fraction(0)))


def _list_mean_errors(plan: Plan) -> tuple[tuple[int, tuple[tuple[str, float], ...]], ...]:
    """Return output columns' expected errors by number of rows; for one number if none depends on it."""

    def expect(*rows: int) -> dict[str, float]:
        return plan.expect_errors({block.name: ErrorBasis(rows) for block in plan.blocks})

    found = [(rows, expect(rows)) for rows in MEAN_ROWS]
    assumed = found[0][1] != expect()
    return tuple((rows, tuple(errors.items())) for rows, errors in found[: None if assumed else 1] if errors)


# -- before payment ---------------------------------------------------------------------------------------------

Written = Callable[[PrivateBlock, str], str]
"""Returns the engine's text for a query of a block's operator."""


def explain_plan(
    prepared: PreparedPlan, ledger: Ledger, budget: Budget, written: Written, as_json: bool = False
) -> Explanation:
    """Explain a plan and its price under the session's accountant; stored blocks are free."""
    plan, event, debit = prepared.plan, prepared.event, prepared.debit
    # the plan as answered, with the choices the statement alone would have made
    pairs = zip(prepared.answered.blocks, plan.blocks, strict=True)
    blocks = tuple(replace(own, strategy=block.strategy) for own, block in pairs)
    sentences = [*describe_plan(replace(prepared.answered, blocks=blocks)), *prepared.sentences()]
    sentences += [] if event is None else _describe_paying(event, ledger)
    if not plan.blocks:
        price = "It reads nothing private and costs nothing."
        sentences = ["This statement reads public data only."]
    elif event is not None or debit is not None:
        leaves = () if event is None else event.leaves()
        verb = (
            "Would cost at most" if any(isinstance(one, NoiseReduction) for one in leaves) else "Would cost"
        )
        notes = [n for item in prepared.asked if not item.free for n in item.block.operator.price_notes]
        price = _explain_price(verb, ledger, event, debit, () if event is None else notes)
    else:
        why = "nothing more: it was reserved at DECLARE"
        if prepared.stored:
            why = f"nothing: it is {prepared.since}"
        elif any(item.same is not None for item in prepared.asked):
            why = "nothing: an earlier statement asks for the same numbers"
        price = f"Would cost {why}; {ledger.state().sentence}. No private data were read."
    return Explanation(
        tuple(dict.fromkeys(sentences)),
        price,
        tuple(dict.fromkeys(written(block, q) for block in plan.blocks for q in block.operator.queries)),
        plan.finish,
        as_json,
        expect_errors(plan, budget, list_draws(prepared)),
        event,
        debit=debit,
        mean_errors=_list_mean_errors(prepared.answered),
        least_caps=any(block.operator.finds_cap for block in plan.blocks),
        strategies=tuple(block.strategy for block in plan.blocks if block.strategy is not None),
    )


def _describe_paying(event: Event, ledger: Ledger) -> Iterator[str]:
    """Yield the sentence on the periods that pay for an event, and the one of them with the least left."""
    stretches = ledger.state().stretches
    if not stretches:
        return
    days = list_periods(event)
    if days is None:
        yield (
            "All periods pay for this, also later ones: it reads a table without privacy_period, or is a threshold."
        )
        return
    paying = [s for s in stretches if intersect(s.days, days)]
    whole = unite(pair for s in stretches for pair in s.days)
    least = min(paying, key=lambda s: s.left_epsilon, default=None)
    left = f", of which {least.period} has least left: {least.left}" if least and len(paying) > 1 else ""
    every = "" if remove_days(whole, days) else " These are all periods: OPTIONS (periods = ...) names fewer."
    yield f"Periods that pay: {say_periods(days)}{left}.{every}"


def explain_declaration(declared: Declaration, ledger: Ledger, as_json: bool = False) -> Explanation:
    """Explain what DECLARE would reserve, and how its questions would be answered."""
    price = _explain_price("Would reserve", ledger, declared.event)
    sentences = (*declared.sentences(), *_describe_paying(declared.event, ledger))
    return Explanation(sentences, price, (), "", as_json, event=declared.event)


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
        left = f"then {after.sentence}" if fits else f"that is more than is left: {before.sentence}"
        charge = _write_price(ledger, compose_events(events) if events else None, debit)
        price = f"Together they would cost {charge}; {left}. {_NOTHING_SPENT}"
    sentences = tuple(sentence for part in parts for sentence in part.sentences)
    queries = tuple(dict.fromkeys(query for part in parts for query in part.sql))
    return Explanation(sentences, price, queries, "", any(p.as_json for p in parts), parts=tuple(parts))


def describe_plan(plan: Plan) -> list[str]:
    """Return a plan's sentences, with the statement's output names: privacy unit, bounds, noise."""
    names = plan.output_names
    told = [_rename(s, names, ": ") for block in plan.blocks for s in block.explain()]
    shown = {names.get(column, column) for block in plan.blocks for column, _ in block.columns}
    units = {said.unit for said in told if isinstance(said, ProtectedUnit) and said.unit}
    unit = f"one {units.pop()}" if len(units) == 1 else "one privacy unit"
    return [
        sentence
        if isinstance(sentence, ProtectedUnit)
        else _end_once(sentence.replace("one privacy unit", unit))
        for sentence in (*_group_sentences(told, shown), *plan.limits)
    ]


def _end_once(sentence: str) -> str:
    """Return a sentence without a second full stop after a name that ends in one."""
    return sentence[:-1] if sentence.endswith("..") and not sentence.endswith("...") else sentence


def _rename(text: str, names: Mapping[str, str], end: str) -> str:
    """Return a text with the released column's name at its start replaced by the output's."""
    for column, name in names.items():
        if text == column or text.startswith(column + end):
            return name + text[len(column) :]
    return text


def _group_sentences(sentences: Sequence[str], names: set[str]) -> list[str]:
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


# -- after an answer or a refusal -------------------------------------------------------------------------------

SHOWN_ANSWERS = 3
"""The most answers whose errors are compared at other epsilons."""


def explain_why(asked: AskedStatement | None, ledger: Ledger, policy: Policy) -> Why:
    """Explain a session's last statement. Spends nothing and reads nothing private. BindError if nothing was asked yet."""
    if asked is None:
        raise BindError(
            "nothing was asked yet.", hint="run a statement first; %dpsql why explains the last one."
        )
    bound, plan = asked.bound, asked.bound if isinstance(asked.bound, Plan) else None
    sentences = (
        describe_plan(bound) if isinstance(bound, Plan) else bound.sentences() if bound is not None else ()
    )
    unique = dict.fromkeys(sentences)
    protected: list[str] = [sentence for sentence in unique if isinstance(sentence, ProtectedUnit)]
    bounded = [end_sentence(sentence) for sentence in unique if not isinstance(sentence, ProtectedUnit)]
    better = "What to write instead" if asked.done == "refused" else "What would be cheaper or more exact"
    parts = {
        f"Why it was {asked.done}": explain_error(asked.error) if asked.error is not None else [],
        "Who is protected": (protected or _list_units(asked, policy)) if asked.done != "free" else [],
        "What was bounded, and where the noise is": bounded,
        "Where the cost comes from": list(_explain_cost(asked, ledger)),
        "Notes on the answer": [end_sentence(note) for note in asked.notes],
        better: list(_advise(asked, plan, ledger, policy)),
    }
    return Why(asked.text, asked.done, tuple(WhyPart(title, tuple(s)) for title, s in parts.items() if s))


def _list_units(asked: AskedStatement, policy: Policy) -> list[str]:
    """Return the units of the private tables the text names; of all tables if it names none."""
    from dpsql.report.data import find_named_tables

    named = find_named_tables(asked.text, policy) or [t for t in policy.tables.values() if not t.public]
    units = dict.fromkeys(f"{t.unit_words[:1].upper()}{t.unit_words[1:]} in {t.name}" for t in named)
    return [f"{unit} {'is' if 'any one row' in unit.lower() else 'are'} protected." for unit in units]


def _explain_cost(asked: AskedStatement, ledger: Ledger) -> Iterator[str]:
    """Yield the charge, its parts, and how it is accounted."""
    from dpsql.report.data import explain_debit, explain_loss

    write = ledger.accountant.write_charge
    verb: str | None = "It set aside" if asked.done == "declared" else "It lost"
    event = asked.used or asked.reserved
    if asked.done == "refused":
        yield "Nothing was charged."
        verb = "It would have lost" if isinstance(asked.error, BudgetExceeded) else None
    elif asked.done == "free":
        yield "It reads nothing private, and costs nothing."
        return
    elif event is None:
        yield f"No charge{f': it is {asked.since}' if asked.since else ''}."
    if event is not None and verb is not None:
        yield from explain_loss(verb, asked.reserved, asked.used, write)
        if rule := ledger.say_rule(event).strip():
            yield rule
    yield from asked.said
    if asked.debit is not None:
        yield explain_debit(write(asked.debit), ledger.analyst or "the analyst")
    yield f"Left: {ledger.state().sentence}."


def _advise(asked: AskedStatement, plan: Plan | None, ledger: Ledger, policy: Policy) -> Iterator[str]:
    """Yield cheaper or more exact variants, from public facts alone."""
    if asked.error is not None and asked.error.hint:
        yield end_sentence(asked.error.hint)
    if plan is None or not plan.blocks:
        return
    event = asked.used or asked.reserved
    errors = expect_errors(plan, policy.budget, asked.draws, once=True)
    if errors is not None:
        over_budget = ledger if isinstance(asked.error, BudgetExceeded) else None
        yield from _compare_errors(errors, over_budget, asked.paid_all)
    leaves = () if event is None else event.leaves()
    noisy = sum(isinstance(leaf, DiscreteLaplace) for leaf in leaves)
    if noisy > 1 and len(plan.columns) > 1:
        yield (
            f"{noisy} noisy numbers share ε. Fewer of them in the SELECT, or epsilon => in one aggregate, make a number more "
            "exact at the same cost."
        )
    if not any(option in asked.text.lower() for option in CAP_OPTIONS):
        yield from _advise_caps(plan)
    from dpsql.report.data import chooses_groups

    if chooses_groups(event):
        yield (
            "Choosing private groups takes a part of ε, and δ. If the owner declares the column's values, or a public table is "
            "joined (RIGHT JOIN), every group appears and that part goes into the numbers."
        )
    if asked.done in ("answered", "shown again"):
        yield (
            "Asking again is free, because the answer is stored. One answer with twice the epsilon is more exact than the mean "
            "of two fresh answers."
        )


def _advise_caps(plan: Plan) -> Iterator[str]:
    """Yield the effect of other caps, if more than one row or group of a unit counts."""
    units = [s for block in plan.blocks for s in block.sentences if isinstance(s, ProtectedUnit)]
    rows = max((unit.rows for unit in units), default=1)
    groups = max((unit.groups for unit in units), default=1)
    if rows > 1:
        yield (
            f"Up to {rows:,} rows of one privacy unit count, and the noise covers all of them. A lower max_rows_contributed "
            f"leaves out more rows and has less noise; max_rows_contributed = {2 * rows} counts more rows with more noise; AUTO "
            "finds a cap privately. OPTIONS (report_cut = TRUE) reports the effect of the cap, for a part of ε."
        )
    if groups > 1:
        yield (
            f"One privacy unit counts for up to {groups:,} groups, and the noise covers all of them. A lower "
            "max_groups_contributed has less noise and leaves out more."
        )


def _compare_errors(errors: Errors, ledger: Ledger | None, paid_all: bool) -> Iterator[str]:
    """Yield the errors at half and at twice the amount or, if over the budget of ``ledger``, at the largest that fits.

    ``paid_all``: whether the cost was that of all numbers; stored numbers change the price of another amount.
    """
    own = errors.epsilons.index(errors.own)

    def compare(at: int, what: str) -> Iterator[str]:
        if found := _list_errors(errors, at, own):
            yield f"{SYMBOLS[errors.currency]}={write_number(errors.epsilons[at])}{what}: {found}."

    if ledger is not None:
        left = ledger.state().left_epsilon if errors.currency == "epsilon" else 0
        fits = [at for at, amount in enumerate(errors.epsilons) if amount <= left]
        yield from compare(fits[-1], " would fit") if fits else ()
        return
    for factor, often in ((Fraction(2), "twice"), (Fraction(1, 2), "half")):
        what = f", for {often} the cost" if paid_all else f", {often} as much, all of it paid anew"
        if errors.own * factor in errors.epsilons:
            yield from compare(errors.epsilons.index(errors.own * factor), what)


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
