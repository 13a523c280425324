"""Open filters with their running sums; what they are solved from, and how a checkpoint holds them.

A filter's sums of what was settled are the same, to the last digit, whenever the same rows are folded: a checkpoint
can be compared with a fold from the first row on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dpsql.ledger.terms import Terms, open_own_filters
from dpsql.privacy.accountants import Accountant, Spent
from dpsql.privacy.events import Event
from dpsql.privacy.filters import MECHANISM_SHARE, open_filter

_FOLD_ABOVE = 64


class FilterState:
    """An open filter and its running sums. Open reservations are summed apart, because they may still shrink.

    Args:
        whose: the analyst whose share it limits; None for the whole.
        accountant: the filter.
        base: the sums of what was settled; by default nothing was.
    """

    def __init__(self, whose: str | None, accountant: Accountant, base: Spent | None = None) -> None:
        self.whose = whose
        self.filter = accountant
        self.base: Spent = accountant.start if base is None else base
        """The sums of what was settled: the same, to the last digit, whenever the same rows were folded."""
        self._left: dict[int, Event] = {}
        """Reservations that nobody settled for long, left behind by processes that died."""
        self._with_left = self.base
        self._open: dict[int, Event] = {}
        self._sum: Spent | None = self.base

    @property
    def spent(self) -> Spent:
        """Everything that counts: settled, and reserved in full."""
        if self._sum is None:
            self._sum = self._add(self._with_left, self._open.values())
        return self._sum

    def after(self, events: Iterable[Event]) -> Spent:
        """Return what would count with further events."""
        return self._add(self.spent, events)

    def _add(self, spent: Spent, events: Iterable[Event]) -> Spent:
        for event in events:
            spent = self.filter.add(spent, event)
        return spent

    def reserve(self, statement: int, event: Event) -> None:
        """Count a reservation in full."""
        self._open[statement] = event
        self._sum = None
        if len(self._open) > _FOLD_ABOVE:
            oldest = next(iter(self._open))
            self._left[oldest] = self._open.pop(oldest)
            self._with_left = self.filter.add(self._with_left, self._left[oldest])

    def charge(self, event: Event) -> None:
        """Count what was used, where nothing was reserved before."""
        self.base = self.filter.add(self.base, event)
        self._with_left = self._add(self.base, self._left.values())
        self._sum = None

    def settle(self, statement: int, event: Event) -> None:
        """Replace what was reserved by what was used."""
        self.base = self.filter.add(self.base, event)
        if self._open.pop(statement, None) is None:
            del self._left[statement]
            self._with_left = self._add(self.base, self._left.values())
        else:
            self._with_left = self.filter.add(self._with_left, event) if self._left else self.base
        self._sum = None


def write_limits(terms: Terms) -> str:
    """Write all that the filters of terms are solved from: equal texts count alike."""
    accountant, epsilon, delta, share, shares, _ = terms.limits()
    assert isinstance(shares, dict)
    limits: list[Any] = [accountant, *map(str, (epsilon, delta, share))]
    limits.append({n: [*map(str, s)] for n, s in shares.items()})
    return json.dumps(limits if terms.own is None else [*limits, terms.own_to_json()])


def open_states(limits: str) -> list[FilterState]:
    """Open the filters of limits, as :func:`write_limits` wrote them: the whole's, then those of the shares."""
    return [FilterState(whose, accountant) for whose, accountant in _open_filters(limits)]


@lru_cache(maxsize=64)
def _open_filters(limits: str) -> tuple[tuple[str | None, Accountant], ...]:
    accountant, epsilon, delta, part, shares, *own = json.loads(limits)
    share = MECHANISM_SHARE if part == "None" else Fraction(part)
    if own:
        return open_own_filters(accountant, Fraction(epsilon), Fraction(delta), share, shares, own[0])
    amounts = {None: (epsilon, delta), **shares}
    return tuple(
        (whose, open_filter(accountant, Fraction(epsilon), Fraction(delta), share))
        for whose, (epsilon, delta) in amounts.items()
    )


def restore_states(limits: str, sums: list[Any]) -> list[FilterState] | None:
    """Return filters with the sums of a checkpoint; None where this version of dpsql keeps other sums."""
    states = open_states(limits)
    if len(states) != len(sums):
        raise ValueError("a sum for each filter")
    found = []
    for state, body in zip(states, sums, strict=True):
        base = Spent.from_json(body)
        if base is None or base.orders != state.filter.start.orders:
            return None
        found.append(FilterState(state.whose, state.filter, base))
    return found


def compare_sums(sums: Mapping[str, Any], found: Mapping[str, list[FilterState]]) -> bool:
    """Check that the sums of a checkpoint are those that were found: equal, or above by what another version rounded."""
    for limits, written in sums.items():
        states = found.get(limits)
        if states is None or len(states) != len(written):
            return False
        for state, body in zip(states, written, strict=True):
            if body != state.base.to_json() and not _is_above(body, state.base):
                return False
    return True


def _is_above(written: Mapping[str, Any], least: Spent) -> bool:
    try:
        sums = Spent.from_json(written)
    except (TypeError, ValueError, ZeroDivisionError):
        return False
    if (
        sums is None
        or sums.count != least.count
        or sums.orders != least.orders
        or (sums.near is None) != (least.near is None)
    ):
        return False
    pairs = [
        (getattr(sums, name), getattr(least, name))
        for name in ("epsilon", "delta", "rho", "mu_squared", "aside")
    ]
    pairs += [(sums.near or 0, least.near or 0), *zip(sums.renyi, least.renyi, strict=True)]
    return all(one >= other for one, other in pairs)
