"""One analyst's statements in a ledger, and the totals of the others: what an analyst of a server may see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from dpsql.ledger.ledger import Ledger
from dpsql.ledger.log_file import format_now
from dpsql.numerics.exact_numbers import compute_root, shorten
from dpsql.privacy.accountants import Accountant, Spent
from dpsql.privacy.conversions import gaussian_delta
from dpsql.privacy.events import Event, GroupSelection, PureDP, RoundedGaussian
from dpsql.privacy.records import OTHERS, Entry

_NOTHING = Fraction(0)


class OwnStatements:
    """The statements of a ledger's analyst; each call reads only the statements added since the last one.

    Of other analysts it has the number and the sums of their charges only: no text, time, name, number, user or process.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._numbers: list[int] = []
        self._seen = 0
        self._settled = 0
        """Number of the analyst's first statements in the sums. These are final."""
        self._sums = ledger.accountant.start

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
        held, whole, own = self.ledger.accountant, self.ledger.spent_by_all(), self._sum_own()
        rest = whole.count - own.count
        if rest <= 0:
            return None
        pairs = ((whole.epsilon, own.epsilon), (whole.delta, own.delta), (whole.rho, own.rho))
        sums = (max(_NOTHING, all_ - mine) for all_, mine in (*pairs, (whole.mu_squared, own.mu_squared)))
        event = _make_total(held, *sums)
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

    def _sum_own(self) -> Spent:
        """Return the sums of the analyst's charges, as the accountant counts them."""
        sums, fixed, held = self._sums, True, self.ledger.accountant
        numbers = self._list_numbers()
        for place in range(self._settled, len(numbers)):
            for entry in self._read(numbers[place]):
                fixed = fixed and entry.outcome not in ("open", "unsettled")
                sums = sums if entry.event is None else held.add(sums, entry.event)
            if fixed:
                self._settled, self._sums = place + 1, sums
        return sums


def conceal_entry(entry: Entry) -> Entry:
    """Return a statement without the user, the process and the keys of its answers."""
    return replace(entry, user="", process="", key="", release=None, blocks={}, debited={}, parts={})


def _make_total(
    held: Accountant, epsilon: Fraction, delta: Fraction, rho: Fraction, mu_squared: Fraction
) -> Event | None:
    """Return an event with the sums of others, for display: no filter ever adds it."""
    if held.speaks and (rho if held.currency == "rho" else mu_squared) > 0:
        sigma = compute_root(1 / (2 * rho) if held.currency == "rho" else 1 / mu_squared)
        least = gaussian_delta(shorten(1 / sigma), epsilon)
        if max(delta, least) < 1:
            return RoundedGaussian(sigma, 1, epsilon, max(delta, least, _TINY))
    if epsilon <= 0:
        return None
    return GroupSelection(epsilon, min(delta, 1 - _TINY)) if delta else PureDP(epsilon)


_TINY = Fraction(1, 10**300)
