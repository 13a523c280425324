"""One analyst's view of a ledger: their own statements, and the totals of the others.

Of other analysts it shows the number and the sums of their charges only: no text, time, name, number, user or process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from dpsql.ledger.ledger import Ledger
from dpsql.ledger.log_file import format_now
from dpsql.numerics.exact_numbers import compute_root, shorten
from dpsql.privacy import conversions
from dpsql.privacy.accountants import Accountant
from dpsql.privacy.events import Event, GroupSelection, PureDP, RoundedGaussian
from dpsql.privacy.records import OTHERS, Entry

_NOTHING = Fraction(0)


class OwnStatements:
    """The statements of a ledger's analyst. Each look reads only the statements added since the last one.

    Args:
        ledger: opened for the analyst.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._numbers: list[int] = []
        self._seen = 0
        self._settled = 0
        """Number of the analyst's first statements in the sums. These are final."""
        self._sums = (0, _NOTHING, _NOTHING, _NOTHING, _NOTHING)

    @property
    def count(self) -> int:
        """The number of the analyst's charges and refusals."""
        return len(self._list_numbers())

    def page(self, start: int, size: int) -> Iterator[Entry]:
        """Yield up to ``size`` of the analyst's statements, in order, from place ``start`` (0 is the first)."""
        for number in self._list_numbers()[start : start + size]:
            yield from self._read(number)

    def sum_others(self) -> Entry | None:
        """Return the total charge of other analysts, as one entry without a number; None without charges."""
        held = self.ledger.accountant
        whole = self.ledger.spent_by_all()
        count, epsilon, delta, rho, mu_squared = self._sum_own(held)
        rest = whole.count - count
        if rest <= 0:
            return None
        sums = (whole.epsilon - epsilon, whole.delta - delta, whole.rho - rho, whole.mu_squared - mu_squared)
        event = _make_total(held, *(max(_NOTHING, amount) for amount in sums))
        text = f"{rest} statement{'s' if rest > 1 else ''} of other analysts"
        return Entry(0, format_now(), OTHERS, text, OTHERS, event, None)

    def _list_numbers(self) -> list[int]:
        count = self.ledger.count
        if count > self._seen:
            self._numbers += self.ledger.list_own_numbers(self._seen)
            self._seen = count
        return self._numbers

    def _read(self, number: int) -> list[Entry]:
        """Return a statement of the analyst's through :func:`conceal_entry`; nothing for another analyst's."""
        found = self.ledger.walk(number, number)
        return [conceal_entry(entry) for entry in found if entry.analyst == self.ledger.analyst]

    def _sum_own(self, held: Accountant) -> tuple[int, Fraction, Fraction, Fraction, Fraction]:
        """Return the number of the analyst's charges, and their sums as the accountant counts them."""
        sums, fixed = self._sums, True
        numbers = self._list_numbers()
        for place in range(self._settled, len(numbers)):
            for entry in self._read(numbers[place]):
                fixed = fixed and entry.outcome not in ("open", "unsettled")
                sums = _add(sums, entry.charged(held))
            if fixed:
                self._settled, self._sums = place + 1, sums
        return sums


def conceal_entry(entry: Entry) -> Entry:
    """Return a statement without the user, the process and the keys of its answers."""
    return replace(entry, user="", process="", key="", release=None, blocks={}, debited={}, parts={})


def _add(
    sums: tuple[int, Fraction, Fraction, Fraction, Fraction], event: Event | None
) -> tuple[int, Fraction, Fraction, Fraction, Fraction]:
    if event is None:
        return sums
    count, epsilon, delta, rho, mu_squared = sums
    lost, delta_lost = event.basic
    return count + 1, epsilon + lost, delta + delta_lost, rho + event.rho, mu_squared + event.mu**2


def _make_total(
    held: Accountant, epsilon: Fraction, delta: Fraction, rho: Fraction, mu_squared: Fraction
) -> Event | None:
    """Return an event with the sums of others, for display: no filter ever adds it."""
    if held.speaks and (rho if held.currency == "rho" else mu_squared) > 0:
        sigma = compute_root(1 / (2 * rho) if held.currency == "rho" else 1 / mu_squared)
        least = conversions.gaussian_delta(shorten(1 / sigma), epsilon)
        if max(delta, least) < 1:
            return RoundedGaussian(sigma, 1, epsilon, max(delta, least, _TINY))
    if epsilon <= 0:
        return None
    return GroupSelection(epsilon, min(delta, 1 - _TINY)) if delta else PureDP(epsilon)


_TINY = Fraction(1, 10**300)
