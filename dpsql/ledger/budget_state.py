"""What is left of a budget at one moment, and what was spent: what every display and the price of EXPLAIN say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dpsql.ledger.accounts import Account
from dpsql.ledger.filter_states import FilterState
from dpsql.numerics.exact_numbers import DOWN, UP, write_number, write_pair, write_short
from dpsql.policy.model import Policy
from dpsql.privacy.accountants import MANY
from dpsql.privacy.amounts import OwnRoom, format_percent, say_what_is_left
from dpsql.privacy.events import Event, PureDP
from dpsql.privacy.filters import ACCOUNTANTS


@dataclass(frozen=True)
class BudgetState:
    """The budget at one moment: of the whole, or of an analyst's share.

    ``whole`` is, beside a share, the state of the whole.

    ``spent_epsilon`` is the plain sum over everything charged; ``spent_delta`` the sum of the deltas that mechanisms
    have of their own (under ``basic``: of all deltas), of which ``mechanism_delta`` is the limit. ``left_epsilon`` is,
    under every accountant, the largest epsilon that one further statement may have (of a share: that both allow).
    ``about`` counts further statements at the default epsilon. ``rule_used`` is the part that is gone of what zcdp or
    gdp allow by their rule, None where there is no rule but the sum; ``rule`` is the same where the rule, and not the
    plain sum, says what is left.
    """

    accountant: str
    limit_epsilon: Fraction
    limit_delta: Fraction
    spent_epsilon: Fraction
    spent_delta: Fraction
    left_epsilon: Fraction
    left_delta: Fraction
    detail: str
    analyst: str | None = None
    default_epsilon: Fraction | None = None
    about: int | None = None
    whole: BudgetState | None = None
    mechanism_delta: Fraction = Fraction(0)
    rule: Fraction | None = None
    rule_used: Fraction | None = None
    own: OwnRoom | None = field(default=None, repr=False)
    """What is left in the rule's own currency, where the accountant speaks it."""
    promises_rule: bool = field(default=False, repr=False)
    """True where the budget was given in that currency, and the limit itself is what is promised."""
    at_delta: Fraction = field(default=Fraction(0), repr=False)
    """The delta at which a budget in its own currency is shown as an epsilon."""

    @property
    def has_rule(self) -> bool:
        """True where the accountant counts by a rule beside the plain sum."""
        return ACCOUNTANTS[self.accountant].has_rule

    @property
    def currency(self) -> str:
        """The currency that amounts are said in: ``epsilon``, ``mu`` or ``rho``."""
        return ACCOUNTANTS[self.accountant].currency if self.own is not None else "epsilon"

    @property
    def share(self) -> Fraction:
        """The part of the limit that is gone, from 0 to 1."""
        if self.own is None:
            return 1 - self.left_epsilon / self.limit_epsilon
        gone = 1 - self.own.left / self.own.limit
        return gone if self.own.by_sum is None else min(gone, 1 - self.own.by_sum / self.limit_epsilon)

    @property
    def spent(self) -> str:
        """``"ε=0.2"``, rounded up; ``"μ=0.2"`` where the accountant speaks it."""
        if self.own is None:
            return write_pair(self.spent_epsilon, self.spent_delta, UP)
        delta = f", δ={write_short(self.spent_delta, UP)}" if self.spent_delta else ""
        return f"{self.own.symbol}={write_short(self.own.spent, UP)}{delta}"

    @property
    def limit(self) -> str:
        """``"ε=1, δ=1e-06"``; ``"μ=1, δ=1e-06"`` of a budget in mu."""
        if self.own is None or not self.promises_rule:
            return write_pair(self.limit_epsilon, self.limit_delta)
        delta = f", δ={write_short(self.limit_delta)}" if self.limit_delta else ""
        return f"{self.own.symbol}={write_number(self.own.limit, up=False)}{delta}"

    @property
    def left(self) -> str:
        """``"ε=0.8"``, rounded down; ``"μ=0.8"`` where the accountant speaks it."""
        if self.own is not None:
            return f"{self.own.symbol}={write_short(self.own.left, DOWN)}"
        return f"ε={write_short(self.left_epsilon, DOWN)}"

    @property
    def sentence(self) -> str:
        """``"ε=0.8 of ε=1 left"``, with whose share it is; and the part of the rule, where the rule says what is left."""
        mine = f"{self.analyst}'s " if self.analyst else ""
        if self.own is not None:
            return self.own.say(self.limit_epsilon, mine)
        return say_what_is_left(self.left_epsilon, self.limit_epsilon, self.rule, mine)

    @property
    def rule_text(self) -> str:
        """``"21%"`` of the rule used; empty where there is no rule but the sum."""
        return "" if self.rule_used is None else format_percent(self.rule_used)

    @property
    def about_text(self) -> str:
        """``"about 8 more at ε=0.1"``, empty where the policy has no default."""
        if self.about is None or self.default_epsilon is None:
            return ""
        count = "any number" if self.about >= MANY else f"about {self.about}" if self.about else "none"
        return f"{count} more at ε={write_short(self.default_epsilon)}"


def make_budget_state(
    account: Account, policy: Policy | None, analyst: str | None, after: Iterable[Event] = ()
) -> BudgetState:
    """Return the state of an analyst's share where there is one (with the whole inside), else of the whole.

    Args:
        account: the log so far.
        policy: for the default epsilon.
        analyst: who asks.
        after: further events, counted as if they had been charged.
    """
    default = policy.budget.default_epsilon if policy is not None else None
    states, events = account.filters(analyst), tuple(after)
    at_delta = account.terms.at_delta
    whole = _state([state for state in states if state.whose is None], default, None, events, at_delta)
    own = [state for state in states if state.whose is not None]
    return _state(own, default, whole, events, at_delta) if own else whole


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
    if whole is not None:  # both must admit
        if whole.left_epsilon < left:
            left, rule = whole.left_epsilon, whole.rule
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
    )


def _least_own(rooms: list[OwnRoom | None]) -> OwnRoom | None:
    """Return the first room, with no more left than any of them: all must admit."""
    known = [room for room in rooms if room is not None]
    if not known:
        return None
    sums = [room.by_sum for room in known]
    by_sum = None if None in sums else min(amount for amount in sums if amount is not None)
    return replace(known[0], left=min(room.left for room in known), by_sum=by_sum)
