"""The distinct events that a ledger's statements were charged, each with the number of its statements.

A ledger of a million statements has few distinct prices, so figures are computed from them without walking it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.privacy.accountants import Accountant, Spent
from dpsql.privacy.events import Event

if TYPE_CHECKING:
    from dpsql.ledger.ledger import Ledger


@dataclass(frozen=True)
class Charges:
    """Charged events with the number of statements each. No sum depends on their order.

    Args:
        counts: the number of charges of each event, the oldest event first.
        last: the newest event; None if there is none.
    """

    counts: Mapping[Event, int] = field(default_factory=dict)
    last: Event | None = None

    @property
    def first(self) -> Event | None:
        """The oldest event; None if there is none."""
        return next(iter(self.counts), None)

    def add_up(self, cost: Callable[[Event], Fraction]) -> Fraction:
        """Add up a cost over all statements."""
        return sum((times * cost(event) for event, times in self.counts.items()), Fraction(0))

    def add_up_pairs(self) -> tuple[float, float]:
        """Add up the pairs (epsilon, delta) of all statements."""
        return float(self.add_up(lambda e: e.basic[0])), float(self.add_up(lambda e: e.basic[1]))

    def counted_by(self, rule: type[Accountant] | Accountant) -> Charges:
        """Return the charges as an accountant counts them."""
        counts: Counter[Event] = Counter()
        for event, times in self.counts.items():
            counts[rule.charge(event)] += times
        return Charges(counts, None if self.last is None else rule.charge(self.last))

    def fold(self, rule: Accountant) -> Spent:
        """Return an accountant's sums of all charges."""
        spent = rule.start
        for event, times in self.counts.items():
            spent = rule.add(spent, event, times)
        return spent


def count_charges(ledger: Ledger) -> Charges:
    """Count the charges of all statements of a ledger, in one pass."""
    counts: Counter[Event] = Counter()
    last = None
    for entry in ledger.walk(1, ledger.count):
        if entry.event is not None:
            counts[entry.event] += 1
            last = entry.event
    return Charges(counts, last)
