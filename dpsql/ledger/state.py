"""How much is left: what the displays, the price of EXPLAIN and the error of a refused statement say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import BudgetExceeded
from dpsql.ledger.account import Purse
from dpsql.ledger.amounts import DOWN, UP, pair, short
from dpsql.ledger.terms import Terms
from dpsql.policy import Policy
from dpsql.privacy.events import Event, PureDP
from dpsql.privacy.filters import MANY


@dataclass(frozen=True)
class BudgetState:
    """The budget at one moment: of the whole, or of an analyst's share (then ``whole`` is the state of the
    whole).

    ``spent_epsilon`` and ``spent_delta`` are plain sums over everything charged; under ``basic`` they are
    what is compared with the limit. ``left_epsilon`` is, under every accountant, the largest epsilon that one
    further statement may have (of a share: that both allow). ``about`` counts further statements at the
    default epsilon.
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
        """``"ε=0.8 of ε=1 left"``, with whose share it is."""
        mine = f"{self.analyst}'s " if self.analyst else ""
        return f"{self.left} of {mine}ε={short(self.limit_epsilon)} left"

    @property
    def about_text(self) -> str:
        """``"about 8 more at ε=0.1"``, empty where the policy has no default."""
        if self.about is None or self.default_epsilon is None:
            return ""
        count = "any number" if self.about >= MANY else f"about {self.about}" if self.about else "none"
        return f"{count} more at ε={short(self.default_epsilon)}"


def state_of(
    terms: Terms, purses: Mapping[str | None, Purse], policy: Policy | None, analyst: str | None
) -> BudgetState:
    """The state of an analyst's share where there is one (with the whole inside), else of the whole."""
    default = policy.budget.default_epsilon if policy is not None else None
    whole = _state(terms, purses[None], None, default, None)
    if analyst is None or analyst not in purses:
        return whole
    return _state(terms, purses[analyst], analyst, default, whole)


def exceeded(purse: Purse, event: Event, analyst: str | None) -> BudgetExceeded:
    """The error for an event that a purse does not admit: requested, left, and what would fit."""
    whose = f"{analyst}'s " if analyst else ""
    room = purse.filter.room(purse.spent)
    epsilon, delta = event.basic
    where = "%dpsql budget shows where it went."
    if delta and delta <= room.delta_left and epsilon and purse.admits(PureDP(epsilon)):
        # pure statements may go on by their plain sum where one with a delta is held by rho or mu
        message = f"without its delta it would fit, with it the {purse.filter.name} sum is too large."
        fits = f"without delta, epsilon => {short(room.epsilon_left, DOWN)} would fit."
    elif delta > room.delta_left:
        left = short(room.delta_left, DOWN)
        message = f"δ={left} of {whose}δ={short(purse.filter.delta)} is left for it."
        fits = f"delta = {left} would fit." if room.delta_left else "a statement without delta may still fit."
    else:
        left = short(room.epsilon_left, DOWN)
        message = f"ε={left} of {whose}ε={short(purse.filter.epsilon)} is left."
        fits = f"epsilon => {left} would fit." if room.epsilon_left else "stored answers are still free."
    return BudgetExceeded(f"This query costs {event.sentence()}; {message}", hint=f"{fits}  {where}")


def _state(
    terms: Terms, purse: Purse, analyst: str | None, default: Fraction | None, whole: BudgetState | None
) -> BudgetState:
    room = purse.filter.room(purse.spent)
    about = None if default is None else purse.filter.more(purse.spent, PureDP(default))
    left = room.epsilon_left
    if whole is not None:  # both must admit
        left = min(left, whole.left_epsilon)
        about = None if about is None or whole.about is None else min(about, whole.about)
    return BudgetState(
        accountant=terms.accountant,
        limit_epsilon=purse.filter.epsilon,
        limit_delta=purse.filter.delta,
        spent_epsilon=purse.spent.epsilon,
        spent_delta=purse.spent.delta,
        left_epsilon=left,
        left_delta=room.delta_left,
        detail=purse.filter.sentence(purse.spent),
        analyst=analyst,
        default_epsilon=default,
        about=about,
        whole=whole,
    )
