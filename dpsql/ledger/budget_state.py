"""The state of a budget at one moment: what every display and the price of EXPLAIN say, worked out of the account."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from dpsql.ledger.accounts import Account
from dpsql.ledger.filter_states import FilterState
from dpsql.policy.model import Policy
from dpsql.privacy.amounts import OwnRoom
from dpsql.privacy.events import Event, PureDP
from dpsql.privacy.records import BudgetState

__all__ = ["BudgetState", "make_budget_state"]


def make_budget_state(
    account: Account,
    policy: Policy | None,
    analyst: str | None,
    after: Iterable[Event] = (),
    debit: Event | None = None,
) -> BudgetState:
    """Return the state of an analyst's share where there is one (with the whole inside), else of the whole.

    Args:
        account: the log so far.
        policy: for the default epsilon.
        analyst: who asks.
        after: further events, counted as if they had been charged.
        debit: a further event that the share alone is charged.
    """
    default = policy.budget.default_epsilon if policy is not None else None
    states, events = account.filters(analyst), tuple(after)
    at_delta = account.terms.at_delta
    whole = _state([state for state in states if state.whose is None], default, None, events, at_delta)
    own = [state for state in states if state.whose is not None]
    if not own:
        return whole
    events = events if debit is None else (*events, debit)
    answers = "shared" if policy is None else policy.budget.answers
    return replace(_state(own, default, whole, events, at_delta), answers=answers)


def _state(
    states: list[FilterState],
    default: Fraction | None,
    whole: BudgetState | None,
    after: tuple[Event, ...],
    at_delta: Fraction,
) -> BudgetState:
    """Return the state of the first filter; of what is left, the least that one of them says."""
    held, spents = states[0].filter, [state.after(after) for state in states]
    rooms = [state.filter.room(spent) for state, spent in zip(states, spents, strict=True)]
    room = min(rooms, key=lambda room: room.epsilon_left)
    left, rule, delta_left = room.epsilon_left, room.rule, min(room.delta_left for room in rooms)
    own = _least_own([room.own for room in rooms])
    about = None
    if default is not None:
        event = PureDP(default)
        about = min(state.filter.more(spent, event) for state, spent in zip(states, spents, strict=True))
    share_left = share_own = None
    if whole is not None:  # both must admit
        if whole.left_epsilon < left:
            share_left, left, rule = left, whole.left_epsilon, whole.rule
        if own is not None and whole.own is not None and whole.own.left < own.left:
            share_own = own
        own = _least_own([own, whole.own])
        delta_left = min(delta_left, whole.left_delta)
        about = None if about is None or whole.about is None else min(about, whole.about)
    return BudgetState(
        accountant=held.name,
        limit_epsilon=held.epsilon,
        limit_delta=held.delta,
        spent_epsilon=spents[0].epsilon,
        spent_delta=held.spent_delta(spents[0]),
        left_epsilon=left,
        left_delta=delta_left,
        detail=held.sentence(spents[0]),
        analyst=states[0].whose,
        default_epsilon=default,
        about=about,
        whole=whole,
        mechanism_delta=held.mechanism_delta,
        rule=rule,
        rule_used=held.used(spents[0]),
        at_delta=at_delta,
        own=own,
        promises_rule=held.promises_rule,
        share_left=share_left,
        share_own=share_own,
    )


def _least_own(rooms: list[OwnRoom | None]) -> OwnRoom | None:
    """Return the first room, with no more left than any of them: all must admit."""
    known = [room for room in rooms if room is not None]
    if not known:
        return None
    sums = [room.by_sum for room in known]
    by_sum = None if None in sums else min(amount for amount in sums if amount is not None)
    return replace(known[0], left=min(room.left for room in known), by_sum=by_sum)
