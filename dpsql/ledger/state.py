"""How much is left: what the displays, the price of EXPLAIN and the error of a refused statement say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import BudgetExceeded
from dpsql.ledger.accounts import Account, Purse
from dpsql.ledger.terms import Terms
from dpsql.numerics.rounding import DOWN, UP, pair, short
from dpsql.policy.model import Policy
from dpsql.privacy.events import Event, PureDP
from dpsql.privacy.filters import MANY
from dpsql.privacy.spent import left_sentence, percent


@dataclass(frozen=True)
class BudgetState:
    """The budget at one moment: of the whole, or of an analyst's share (then ``whole`` is the state of the
    whole).

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

    @property
    def share(self) -> Fraction:
        """The part of the limit that is gone, from 0 to 1."""
        return 1 - self.left_epsilon / self.limit_epsilon

    @property
    def spent(self) -> str:
        """``"ε=0.2"``, rounded up."""
        return pair(self.spent_epsilon, self.spent_delta, UP)

    @property
    def limit(self) -> str:
        """``"ε=1, δ=1e-06"``."""
        return pair(self.limit_epsilon, self.limit_delta)

    @property
    def left(self) -> str:
        """``"ε=0.8"``, rounded down."""
        return f"ε={short(self.left_epsilon, DOWN)}"

    @property
    def sentence(self) -> str:
        """``"ε=0.8 of ε=1 left"``, with whose share it is; and the part of the rule, where the rule says what is left."""
        mine = f"{self.analyst}'s " if self.analyst else ""
        return left_sentence(self.left_epsilon, self.limit_epsilon, self.rule, mine)

    @property
    def rule_text(self) -> str:
        """``"21%"`` of the rule used; empty where there is no rule but the sum."""
        return "" if self.rule_used is None else percent(self.rule_used)

    @property
    def about_text(self) -> str:
        """``"about 8 more at ε=0.1"``, empty where the policy has no default."""
        if self.about is None or self.default_epsilon is None:
            return ""
        count = "any number" if self.about >= MANY else f"about {self.about}" if self.about else "none"
        return f"{count} more at ε={short(self.default_epsilon)}"


def state_of(
    account: Account, policy: Policy | None, analyst: str | None, after: Iterable[Event] = ()
) -> BudgetState:
    """The state of an analyst's share where there is one (with the whole inside), else of the whole.

    Args:
        account: the log so far.
        policy: for the default epsilon.
        analyst: who asks.
        after: further events, counted as if they had been charged.
    """
    default = policy.budget.default_epsilon if policy is not None else None
    held, kept, events = account.purses(analyst), account.kept(analyst), tuple(after)

    def of(whose: str | None, whole: BudgetState | None) -> BudgetState:
        purses = [purses[whose] for purses in (held, kept) if whose in purses]
        return _state(account.terms, purses, whose, default, whole, events)

    whole = of(None, None)
    return whole if analyst is None or analyst not in held else of(analyst, whole)


def exceeded(purse: Purse, event: Event, analyst: str | None) -> BudgetExceeded:
    """The error for an event that a purse does not admit: requested, left, and what would fit."""
    whose = f"{analyst}'s " if analyst else ""
    room = purse.filter.room(purse.spent)
    epsilon, delta = event.basic
    own = delta if purse.filter.name == "basic" else event.delta
    where = "%dpsql budget shows where it went."
    left = short(room.epsilon_left, DOWN)
    if own > room.delta_left:
        left = short(room.delta_left, DOWN)
        message = f"δ={left} of {whose}δ={short(purse.filter.mechanism_delta)} is left for it."
        fits = f"delta = {left} would fit." if room.delta_left else "a statement without delta may still fit."
    elif event.epsilon is None and epsilon and purse.admits(PureDP(epsilon)):
        # Gaussian noise has no largest loss, so the plain sum can't hold it: the rule must
        message = f"Laplace noise of that epsilon would fit, Gaussian noise does not fit the {purse.filter.name} rule."
        fits = "noise = 'laplace' would fit."
    else:
        message = f"ε={left} of {whose}ε={short(purse.filter.epsilon)} is left."
        fits = f"epsilon => {left} would fit." if room.epsilon_left else "stored answers are still free."
    return BudgetExceeded(f"This query costs {event.sentence()}; {message}", hint=f"{fits}  {where}")


def _state(
    terms: Terms,
    purses: list[Purse],
    analyst: str | None,
    default: Fraction | None,
    whole: BudgetState | None,
    after: tuple[Event, ...],
) -> BudgetState:
    """The state of the first purse; of what is left, the least that one of them says."""
    spents = [purse.after(after) for purse in purses]
    rooms = [purse.filter.room(spent) for purse, spent in zip(purses, spents, strict=True)]
    room = min(rooms, key=lambda room: room.epsilon_left)
    about = None
    if default is not None:
        event = PureDP(default)
        about = min(p.filter.more(spent, event) for p, spent in zip(purses, spents, strict=True))
    left, rule = room.epsilon_left, room.rule
    delta_left = min(room.delta_left for room in rooms)
    if whole is not None:  # both must admit
        if whole.left_epsilon < left:
            left, rule = whole.left_epsilon, whole.rule
        delta_left = min(delta_left, whole.left_delta)
        about = None if about is None or whole.about is None else min(about, whole.about)
    held, spent = purses[0].filter, spents[0]
    return BudgetState(
        accountant=terms.accountant,
        limit_epsilon=held.epsilon,
        limit_delta=held.delta,
        spent_epsilon=spent.epsilon,
        spent_delta=spent.delta if terms.accountant == "basic" else spent.aside,
        left_epsilon=left,
        left_delta=delta_left,
        detail=held.sentence(spent),
        analyst=analyst,
        default_epsilon=default,
        about=about,
        whole=whole,
        mechanism_delta=held.mechanism_delta,
        rule=rule,
        rule_used=held.used(spent),
    )
