"""How much is left: what the displays, the price of EXPLAIN and the error of a refused statement say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from dpsql.errors import BudgetExceeded
from dpsql.ledger.account import Purse
from dpsql.ledger.amounts import DOWN, UP, floor4, pair, short
from dpsql.ledger.terms import Terms
from dpsql.policy import Policy
from dpsql.privacy.events import Event, PureDP

MANY = 1000
"""Counting how many more statements fit stops here."""


@dataclass(frozen=True)
class BudgetState:
    """The budget at one moment, of the whole and (when ``analyst`` is a name with a share) of the narrower of the two.

    ``spent_epsilon`` and ``spent_delta`` are plain sums over everything charged; under ``basic`` they are what is
    compared with the limit. ``left_epsilon`` is what one further statement may cost, under every accountant: the
    largest epsilon of a pure mechanism that would still be admitted.
    """

    accountant: str
    limit_epsilon: Fraction
    limit_delta: Fraction
    spent_epsilon: Fraction
    spent_delta: Fraction
    left_epsilon: Fraction
    left_delta: Fraction
    share: Fraction
    detail: str
    analyst: str | None = None
    default_epsilon: Fraction | None = None
    whole: BudgetState | None = None
    _purse: Purse | None = field(default=None, repr=False, compare=False)

    @property
    def spent(self) -> str:
        """``"ε=0.2"``."""
        return pair(self.spent_epsilon, self.spent_delta, UP)

    @property
    def limit(self) -> str:
        """``"ε=1, δ=1e-06"``."""
        return pair(self.limit_epsilon, self.limit_delta)

    @property
    def left(self) -> str:
        """``"ε=0.8"``."""
        return f"ε={short(self.left_epsilon, DOWN)}"

    @property
    def sentence(self) -> str:
        """``"ε=0.8 of ε=1 left"``, with whose share it is."""
        mine = f"{self.analyst}'s " if self.analyst else ""
        if self.accountant != "basic" and self.left_epsilon != self.limit_epsilon - self.spent_epsilon:
            return f"room for one more of {self.left} under {mine}ε={short(self.limit_epsilon)}"
        return f"{self.left} of {mine}ε={short(self.limit_epsilon)} left"

    @cached_property
    def about(self) -> int | None:
        """How many more statements at the default epsilon would fit, counted to 1000; None without a default."""
        if self.default_epsilon is None or self._purse is None:
            return None
        count = copies(self._purse, self.default_epsilon)
        return count if self.whole is None or self.whole.about is None else min(count, self.whole.about)

    @property
    def about_text(self) -> str:
        """``"about 8 more at ε=0.1"``, empty without a default."""
        if self.about is None or self.default_epsilon is None:
            return ""
        count = f"more than {MANY}" if self.about >= MANY else f"about {self.about}" if self.about else "no"
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
    left = largest(purse)
    asked, delta = event.basic
    where = "%dpsql budget shows where it went."
    if delta > 0 and (delta > purse.left_delta or asked == 0 or purse.admits(PureDP(asked))):
        message = (
            f"This query costs {event.sentence()}; δ={short(purse.left_delta, DOWN)} of "
            f"{whose}δ={short(purse.delta)} is left."
        )
        fits = (
            f"delta = {short(purse.left_delta, DOWN)} would fit."
            if purse.left_delta
            else "ask without delta."
        )
        return BudgetExceeded(message, hint=f"{fits}  {where}")
    message = f"This query costs {event.sentence()}; ε={short(left, DOWN)} of {whose}ε={short(purse.epsilon)} is left."
    fits = (
        f"epsilon => {short(left, DOWN)} would fit."
        if left
        else "what was answered before can be shown again, free."
    )
    return BudgetExceeded(message, hint=f"{fits}  {where}")


def largest(purse: Purse) -> Fraction:
    """The largest epsilon of one pure mechanism that would be admitted: exact, or to four digits below."""
    plain = purse.epsilon - purse.spent_epsilon
    if plain > 0 and purse.admits(PureDP(plain)):
        return plain
    low, high = Fraction(0), purse.epsilon
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if purse.admits(PureDP(middle)) else (low, middle)
    return floor4(low) if low > purse.epsilon / 2**20 else Fraction(0)


def copies(purse: Purse, epsilon: Fraction) -> int:
    """How many pure mechanisms of this epsilon would still be admitted, one after another, up to :data:`MANY`."""
    event, spent, count = PureDP(epsilon), purse.spent, 0
    while count < MANY and purse.filter.admits(spent, event):
        spent, count = purse.filter.add(spent, event), count + 1
    return count


def _state(
    terms: Terms, purse: Purse, analyst: str | None, default: Fraction | None, whole: BudgetState | None
) -> BudgetState:
    left = largest(purse)
    if whole is not None:
        left = min(left, whole.left_epsilon)
    return BudgetState(
        accountant=terms.accountant,
        limit_epsilon=purse.epsilon,
        limit_delta=purse.delta,
        spent_epsilon=purse.spent_epsilon,
        spent_delta=purse.spent_delta,
        left_epsilon=left,
        left_delta=max(Fraction(0), purse.left_delta),
        share=min(Fraction(1), max(Fraction(0), 1 - left / purse.epsilon)),
        detail=purse.filter.sentence(purse.spent),
        analyst=analyst,
        default_epsilon=default,
        whole=whole,
        _purse=purse,
    )
