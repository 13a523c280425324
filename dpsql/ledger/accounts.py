"""The account of a ledger: its filters, the fold of the log's rows, and the state of a budget.

An :class:`Account` folds the rows one by one, in order; it doesn't depend on files. Under another accountant, rows show their
cost there. A checkpoint stores a whole fold, so the rows before it need not be read again. A filter's sums of settled charges
depend on the rows alone, to the last digit: a checkpoint can be compared with a fold from the first row.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dpsql.errors import BudgetExceeded, LedgerError
from dpsql.late_dataclass import dataclass
from dpsql.ledger.log_file import (
    OUTCOMES,
    START,
    Row,
    RowBody,
    damaged_error,
    read_body,
    read_event,
    write_json,
)
from dpsql.ledger.terms import Terms, open_own_filters
from dpsql.numerics.exact_numbers import DOWN, write_short
from dpsql.policy.model import Policy
from dpsql.privacy.accountants import Accountant, Spent
from dpsql.privacy.amounts import OwnRoom
from dpsql.privacy.codec import write_record
from dpsql.privacy.events import Event, PureDP
from dpsql.privacy.filter_states import (
    FilterState,
    PeriodState,
    Shortage,
    Texts,
    find_all_cuts,
)
from dpsql.privacy.filters import MECHANISM_SHARE, open_filter
from dpsql.privacy.periods import (
    FIRST,
    LAST,
    Days,
    intersect,
    list_segments,
    say_periods,
    undate_event,
    write_periods,
)
from dpsql.privacy.records import BudgetState

_PER_PERIOD = "per period "
"""Begins the limits of terms with a budget per period."""


def write_limits(terms: Terms) -> str:
    """Write everything that the filters of terms are solved from; equal texts add up alike."""
    accountant, epsilon, delta, share, shares, _ = terms.limits()
    assert isinstance(shares, dict)
    limits: list[object] = [accountant, *map(str, (epsilon, delta, share))]
    limits.append({n: [*map(str, s)] for n, s in shares.items()})
    text = json.dumps(limits if terms.own is None else [*limits, terms.own_to_json()])
    return _PER_PERIOD + text if terms.per_period else text


def open_states(limits: str) -> list[FilterState]:
    """Open the filters of a text by :func:`write_limits`: the whole's, then those of the shares."""
    kind = PeriodState if limits.startswith(_PER_PERIOD) else FilterState
    filters = _open_filters(limits.removeprefix(_PER_PERIOD))
    return [kind(whose, accountant) for whose, accountant in filters]


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


def restore_states(limits: str, sums: Sequence[Any], read: ReadContent | None) -> list[FilterState] | None:
    """Return filters with the sums of a checkpoint, whose content ``read`` returns; None if it has other sums."""
    states = open_states(limits)
    if len(states) != len(sums):
        raise ValueError("a sum for each filter")
    for state, body in zip(states, sums, strict=True):
        if isinstance(state, PeriodState):
            sealed = _read_sealed(body, state, read)
            if sealed is None:
                return None
            state.unseal(*sealed)
        elif not state.read_json(body):
            return None
    return states


def compare_sums(
    sums: Mapping[str, Any], found: Mapping[str, list[FilterState]], read: ReadContent | None = None
) -> bool:
    """Return whether the sums of a checkpoint equal the computed ones, or exceed them by another version's rounding."""
    for limits, written in sums.items():
        states, restored = found.get(limits), None
        with suppress(KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
            restored = restore_states(limits, written, read)
        if states is None or restored is None:
            return False
        if not all(state.covers(other) for state, other in zip(states, restored, strict=True)):
            return False
    return True


# -- the sums of periods in a checkpoint ------------------------------------------------------------------------------

ReadContent = Callable[[int, int], str]
"""Reads a piece of the content that a row stores outside of it: the place of its first character, and its length."""
_Sealed = tuple[list[int], Texts]
"""The first days of stretches of periods, and their sums."""
_ROWS, _PER_PAGE = "rows", 64
_BEFORE_ROWS = len(write_json({_ROWS: ""})) - 2
_END = ";"


class _Pages:
    """The texts of a checkpoint's sums, of which a page is read, and compared with its digest, when one of them is needed."""

    def __init__(self, first: int, pages: Sequence[tuple[int, str]], count: int, read: ReadContent) -> None:
        self._first, self._pages, self._count, self._read = first, pages, count, read
        self._known: dict[int, list[str]] = {}

    def __getitem__(self, place: int) -> str:
        number, at = divmod(place, _PER_PAGE)
        if number not in self._known:
            size, digest = self._pages[number]
            start = self._first + sum(size for size, _ in self._pages[:number])
            text = self._read(start, size)
            texts = text.split(_END)
            if _hash(text) != digest or len(texts) != min(_PER_PAGE, self._count - number * _PER_PAGE):
                raise damaged_error("the sums of a checkpoint do not fit their digest")
            self._known[number] = texts
        return self._known[number][at]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _seal_periods(sums: Mapping[str, list[FilterState]]) -> tuple[dict[str, list[object]], RowBody | None]:
    """Return a checkpoint's entry for the sums of periods, and the content with the sums, which its row stores outside of it.

    The row has the days at which stretches begin, as differences, and the length and the digest of each page of sums: so
    opening a ledger does not read these.
    """
    heads: dict[str, list[object]] = {}
    texts: list[str] = []
    first = _BEFORE_ROWS
    for limits, states in sums.items():
        for state in states:
            assert isinstance(state, PeriodState)
            starts, rows = state.seal()
            found = [_END.join(rows[at : at + _PER_PAGE]) for at in range(0, len(rows), _PER_PAGE)]
            pages = [(len(page), _hash(page)) for page in found]
            steps = [after - before for before, after in itertools.pairwise([0, *starts])]
            heads.setdefault(limits, []).append(
                {"sums": state.names, "steps": steps, "at": first, "pages": pages}
            )
            first += sum(map(len, found))
            texts += found
    return heads, {_ROWS: "".join(texts)} if heads else None


def _read_sealed(body: Mapping[str, Any], state: PeriodState, read: ReadContent | None) -> _Sealed | None:
    """Return the sums of periods in a checkpoint; None if their content is gone, or if other sums are kept."""
    if "steps" not in body:
        return _read_older(body, state)
    if read is None or body["sums"] != state.names:
        return None
    starts = [*itertools.accumulate(map(int, body["steps"]))]
    pages = [(int(size), str(digest)) for size, digest in body["pages"]]
    if min(body["steps"]) < 1 or starts[0] != FIRST or len(pages) != len(starts) // _PER_PAGE + 1:
        raise ValueError("a sum for each stretch of periods")
    return starts, _Pages(int(body["at"]), pages, len(starts) + 1, read)


def _read_older(body: Mapping[str, Any], state: PeriodState) -> _Sealed | None:
    """Read the sums as version 1.0.0rc1 wrote them: all as JSON, equal ones once."""
    starts, at = [int(start) for start in body["starts"]], [int(place) for place in body["at"]]
    if starts != sorted(set(starts)) or starts[:1] != [FIRST] or len(starts) != len(at) or min(at) < 0:
        raise ValueError("a sum for each stretch of periods")
    sums = [Spent.from_json(one) for one in (*body["sums"], body["all"])]
    if any(one is None or one.orders != state.filter.start.orders for one in sums):
        return None
    texts = ["" if one is None else one.to_text() for one in sums]
    return starts, [texts[place] for place in (*at, -1)]


@dataclass(frozen=True)
class Reservation:
    """A charge that is not settled yet. It counts in full."""

    statement: int
    analyst: str
    process: str
    event: Event
    progress: Event | None = None

    def to_json(self) -> list[object]:
        """Return the fields, in order, for a checkpoint."""
        return list(write_record(self).values())


class Account:
    """The fold of the log so far: sums and open reservations. Its size does not grow with the number of statements.

    Args:
        terms: rule instead of the granted ones: tighter, or for reading.
        limits: texts by :func:`write_limits`, of further budgets whose sums are computed from the first row on.
    """

    def __init__(self, terms: Terms | None = None, limits: Iterable[str] = ()) -> None:
        self.ledger_id = ""
        self.seq = 0
        self.head = START
        self.granted: Terms | None = None
        self.policy = ""
        self.count = 0
        """The number of the last statement."""
        self.open: dict[int, Reservation] = {}
        self._redated: set[int] = set()
        """Open reservations made before a change of the periods: they count in every period."""
        self.notices: list[str] = []
        self.forgotten = ""
        """The time before which the owner blanked texts."""
        self.sealed = 0
        """The row of the last checkpoint."""
        self._asked = terms
        self._ruled: tuple[Terms | None, Terms, list[str]] | None = None
        self._last = ""
        self._charged = False
        self._sums: dict[str, list[FilterState]] = {text: open_states(text) for text in limits}
        self._known: dict[tuple[object, ...], dict[tuple[Spent, ...], BudgetState]] = {}

    @property
    def terms(self) -> Terms:
        """The terms that rule: the session's, else the granted ones."""
        return self._rule()[1]

    def _ruling(self) -> list[str]:
        """Return the limits that must all admit: those of the terms that rule, and the granted ones."""
        return self._rule()[2]

    def _rule(self) -> tuple[Terms | None, Terms, list[str]]:
        """Return the granted terms, the terms that rule under them, and their limits. Computed once for each grant."""
        granted = self.granted
        if self._ruled is not None and self._ruled[0] is granted:
            return self._ruled
        terms = self._asked or granted
        if terms is None:
            raise damaged_error("it has no beginning")
        terms = terms if granted is None else terms.under(granted)
        rules = [write_limits(terms)]
        if granted is not None and granted.accountant == terms.accountant:
            rules.append(write_limits(granted))
        self._ruled = (granted, terms, list(dict.fromkeys(rules)))
        return self._ruled

    def find_missing(self) -> list[str]:
        """Return the limits that rule without sums; computing these takes a fold of the whole log."""
        missing = [text for text in self._ruling() if text not in self._sums]
        if missing and not self._charged:
            self._sums.update((text, open_states(text)) for text in missing)
            return []
        return missing

    @property
    def limits(self) -> list[str]:
        """The limits whose spending is known, those in force first."""
        return list(dict.fromkeys([*self._ruling(), *self._sums]))

    @property
    def sums(self) -> Mapping[str, list[FilterState]]:
        """The filters with their sums, by their limits."""
        return self._sums

    def filters(self, analyst: str | None) -> list[FilterState]:
        """Return the filters that must all admit: the whole's first, then the filter of the analyst's share if there is one.

        If a session runs under other terms, the filters of the granted ones follow. The filter of a smaller budget checks another
        Rényi order, so it might admit events that the granted one would not; both together stop no later than either. Terms of
        another accountant have their own filters only.
        """
        if self.find_missing():
            raise damaged_error("its sums are not those of its terms")
        states = [state for text in self._ruling() for state in self._sums[text]]
        return [state for state in states if state.whose in (None, analyst)]

    def find_known(self, policy: Policy | None, analyst: str | None) -> dict[tuple[Spent, ...], BudgetState]:
        """Return the cache of a period's budget states, by the sums of :meth:`filters`."""
        said = None if policy is None else (policy.budget.default_epsilon, policy.budget.answers)
        found = self._known.setdefault((said, analyst, self.terms.at_delta, *self._ruling()), {})
        if len(found) > _MOST_KNOWN:
            found.clear()
        return found

    def find_excess(
        self, analyst: str | None, *events: Event, debit: Event | None = None
    ) -> BudgetExceeded | None:
        """Return the error for the first event that doesn't fit, or a ``debit`` of the analyst's share alone; None if all fit."""
        for state in self.filters(analyst):
            asked = events if debit is None or state.whose is None else (*events, debit)
            shortage = state.find_shortage(asked)
            if shortage is not None:
                return explain_exceeded(shortage, stored=shortage.place == len(events))
        return None

    def check_periods(self) -> None:
        """Raise LedgerError for a session from before a change of the periods: its charges would name the old periods."""
        asked, granted = self._asked, self.granted
        if asked is not None and granted is not None and asked.per_period and granted.redates(asked):
            raise LedgerError(
                "The owner changed the periods after this session began.",
                hint="connect again, with the present policy.",
            )

    def apply(self, rows: Iterable[Row]) -> None:
        """Fold further rows in; LedgerError if a row is not valid, such as a settlement without a reservation."""
        for row in rows:
            body = read_body(row)
            try:
                getattr(self, f"_on_{row.kind}")(row, body)
            except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
                raise damaged_error(f"row {row.seq} can't be read") from None
            if row.at < self._last:
                self._note(f"the clock went back before row {row.seq}: {self._last} to {row.at}")
            self.seq, self.head, self._last = row.seq, row.hash, row.at

    # -- one method for each kind of row ----------------------------------------------------------

    def _on_open(self, row: Row, body: RowBody) -> None:
        if row.seq != 1:
            raise ValueError("a second beginning")
        self.ledger_id = str(body["ledger"])
        self.granted = Terms.from_json(body["terms"])
        self.policy = self.granted.policy

    def _on_adopt(self, row: Row, body: RowBody) -> None:
        before, self.granted = self.granted, Terms.from_json(body["terms"])
        if before is not None and before.redates(self.granted):
            self._redated |= self.open.keys() if before.per_period else set()
            for state in itertools.chain(*self._sums.values()):
                if isinstance(state, PeriodState):
                    state.forget_periods()
        self.policy = self.granted.policy
        self._note(f"{row.at[:10]} the owner changed the terms: {'; '.join(body['changes'])}")

    def _on_policy(self, row: Row, body: RowBody) -> None:
        self.policy = str(body["policy"])

    def _on_notice(self, row: Row, body: RowBody) -> None:
        self._note(str(body["text"]))

    def _on_upgrade(self, row: Row, body: RowBody) -> None:
        if not isinstance(body["head"], str):
            raise TypeError("text expected")

    def _on_restore(self, row: Row, body: RowBody) -> None:
        self._note(f"{row.at[:10]} the owner restored an older copy: {body['lost']}")

    def _on_forget(self, row: Row, body: RowBody) -> None:
        before = body["before"]
        if not isinstance(before, str):
            raise TypeError("text expected")
        self.forgotten = max(self.forgotten, before)

    def _on_checkpoint(self, row: Row, body: RowBody) -> None:
        self.sealed = row.seq

    def _on_reserve(self, row: Row, body: RowBody) -> None:
        analyst, event = self._begin(row, body), read_event(body["event"])
        self.open[row.statement] = Reservation(row.statement, analyst, str(body.get("process", "")), event)
        for state in self._states(analyst):
            state.reserve(row.statement, event)

    def _on_progress(self, row: Row, body: RowBody) -> None:
        reserved, event = self.open[row.statement], read_event(body["event"])
        _check_cheaper(reserved, event)
        self.open[row.statement] = replace(reserved, progress=event)

    def _on_settle(self, row: Row, body: RowBody) -> None:
        reserved, event = self.open[row.statement], read_event(body["event"])
        _check_cheaper(reserved, event)
        if body["outcome"] not in OUTCOMES:
            raise ValueError(body["outcome"])
        used = undate_event(event) if row.statement in self._redated else event
        for state in self._states(reserved.analyst):
            state.settle(row.statement, used)
        del self.open[row.statement]
        self._redated.discard(row.statement)

    def _on_refuse(self, row: Row, body: RowBody) -> None:
        self._begin(row, body)
        if body["event"] is not None:
            read_event(body["event"])

    def _on_publish(self, row: Row, body: RowBody) -> None:
        self._begin(row, body)

    def _on_debit(self, row: Row, body: RowBody) -> None:
        """Charge an analyst's share only: they saw a stored answer that another analyst paid for."""
        held = self.open.get(row.statement)
        analyst = self._begin(row, body) if held is None else held.analyst
        if held is not None and body["analyst"] != analyst:
            raise ValueError("another analyst's statement")
        event = read_event(body["event"])
        for state in self._states(analyst):
            if state.whose is not None:
                state.charge(event)

    def _on_spend(self, row: Row, body: RowBody) -> None:
        """Count a charge that the owner wrote off: against every share if the analyst is unknown."""
        analyst, event = self._begin(row, body), read_event(body["event"])
        for state in self._states(None if body["everybody"] else analyst):
            state.reserve(row.statement, event)
            state.settle(row.statement, event)

    # -- helpers ----------------------------------------------------------------------------------

    def _begin(self, row: Row, body: RowBody) -> str:
        """Record a new statement, and return its analyst."""
        if row.statement != self.count + 1:
            raise ValueError("statements are numbered in order")
        told = [body["analyst"], body["user"], body["said"]]
        if not all(isinstance(value, str) for value in told):
            raise TypeError("text expected")
        self.count = row.statement
        return str(told[0])

    def _states(self, analyst: str | None) -> list[FilterState]:
        """Return the filters that a charge of an analyst enters, for every limit; with all shares if the analyst is None."""
        if not self._charged:
            self.find_missing()
            self._charged = True
        states = [state for states in self._sums.values() for state in states]
        return states if analyst is None else [s for s in states if s.whose in (None, analyst)]

    def _note(self, text: str) -> None:
        self.notices.append(text)
        if len(self.notices) > _NOTICES:
            self.notices[:2] = [_MORE]

    # -- checkpoints ------------------------------------------------------------------------------

    def seal(self) -> tuple[dict[str, object], RowBody | None]:
        """Return the fold as JSON, exactly, for a checkpoint, and the content that its row stores outside of it."""
        kept = {text: self._sums[text] for text in self.limits[:_MOST_LIMITS] if text in self._sums}
        dated = {text: states for text, states in kept.items() if text.startswith(_PER_PERIOD)}
        plain = {text: [s.to_json() for s in states] for text, states in kept.items() if text not in dated}
        periods, content = _seal_periods(dated)
        return self.describe() | {"sums": plain} | ({"periods": periods} if periods else {}), content

    def describe(self) -> dict[str, object]:
        """Return the fold without its sums, as JSON."""
        assert self.granted is not None
        return {
            "ledger": self.ledger_id,
            "terms": self.granted.to_json(),
            "policy": None if self.policy == self.granted.policy else self.policy,
            "count": self.count,
            "charged": self._charged,
            "forgotten": self.forgotten,
            "last": self._last,
            "notices": list(self.notices),
            "open": [reservation.to_json() for reservation in self.open.values()],
            **({"redated": sorted(self._redated)} if self._redated else {}),
        }

    @classmethod
    def restore(cls, row: Row, terms: Terms | None, read: ReadContent | None = None) -> Account:
        """Return the account of a checkpoint.

        Args:
            read: reads the content of its row; None if that is gone.

        Raises:
            LedgerError: the checkpoint is not one that :meth:`seal` wrote.
        """
        account, body = cls(terms), read_body(row)
        try:
            account.granted = Terms.from_json(body["terms"])
            account.ledger_id = str(body["ledger"])
            account.policy = str(body["policy"] or account.granted.policy)
            account.count, account._charged = int(body["count"]), bool(body["charged"])
            account.forgotten, account._last = str(body["forgotten"]), str(body["last"])
            account.notices = [str(text) for text in body["notices"]]
            for number, analyst, process, event, progress in body["open"]:
                noted = None if progress is None else read_event(progress)
                account.open[number] = Reservation(number, analyst, process, read_event(event), noted)
            account._redated = {int(number) for number in body.get("redated", [])}
            for text, sums in list_sums(body).items():
                states = restore_states(text, sums, read)
                if states is not None:
                    account._sums[text] = states
        except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
            raise damaged_error(f"the checkpoint in row {row.seq} can't be read") from None
        for reserved in account.open.values():
            redated = reserved.statement in account._redated
            event = undate_event(reserved.event) if redated else reserved.event
            for state in account._states(reserved.analyst):
                state.reserve(reserved.statement, event)
        account.seq, account.head, account.sealed, account._last = row.seq, row.hash, row.seq, row.at
        return account


def list_sums(body: RowBody) -> dict[str, Any]:
    """Return a checkpoint's sums by their limits."""
    return {**body["sums"], **body.get("periods", {})}


_MOST_KNOWN = 10_000
_NOTICES = 100
_MORE = "earlier notices are in the log"
_MOST_LIMITS = 4
"""Greatest number of limits in a checkpoint; a session under other limits folds the whole log once."""


def _check_cheaper(reserved: Reservation, event: Event) -> None:
    if not event.is_within(reserved.event):
        raise ValueError("more was used than reserved")


def explain_exceeded(shortage: Shortage, stored: bool = False) -> BudgetExceeded:
    """Return the error for an event (``stored``: a debit) that doesn't fit: cost, remaining budget, an amount that fits."""
    state, event = shortage.state, shortage.event
    whose = f"{state.whose}'s " if state.whose else ""
    held = state.filter
    room, epsilon = held.room(state.spent), event.basic[0]
    where = "SHOW LEDGER shows where it went."
    left = write_short(room.epsilon_left, DOWN)
    if held.own_delta(event) > room.delta_left:
        left = write_short(room.delta_left, DOWN)
        message = f"δ={left} of {whose}δ={write_short(held.mechanism_delta)} is left for it."
        fits = f"delta = {left} would fit." if room.delta_left else "a statement without delta may still fit."
        if held.mechanism_delta < held.delta:
            fits += f" The rest of δ={write_short(held.delta)} converts the {held.name} rule."
    elif (
        event.epsilon is None
        and epsilon
        and not held.promises_rule
        and held.admits(state.spent, PureDP(epsilon))
    ):
        # Gaussian noise has no largest loss, so only the rule can count it, not the plain sum
        message = (
            f"Laplace noise of that epsilon would fit, Gaussian noise does not fit the {held.name} rule."
        )
        fits = "noise = 'laplace' would fit."
    elif room.own is not None:
        message = f"{room.own.say(held.epsilon, whose).replace(' left', ' is left', 1)}."
        largest = [f"{held.currency} = {write_short(room.own.left, DOWN)}"] if room.own.left > 0 else []
        largest += [f"epsilon = {left} of a pure mechanism"] if room.own.by_sum and room.epsilon_left else []
        fits = f"{', or '.join(largest)} would fit." if largest else "stored answers are still free."
    else:
        message = f"ε={left} of {whose}ε={write_short(held.epsilon)} is left."
        fits = (
            f"OPTIONS (epsilon = {left}) would fit."
            if room.epsilon_left
            else "stored answers are still free."
        )
    if shortage.days is not None:
        message = f"in {say_periods(shortage.days)}, {message}"
    if shortage.fits:
        fits = f"OPTIONS (periods = {write_periods(shortage.fits)}) would fit.  {fits}"
    if stored:
        cost = f"This stored answer costs {held.write_charge(event)} of {whose}share"
        return BudgetExceeded(f"{cost}; {message}", hint=where)
    return BudgetExceeded(f"This query costs {held.write_charge(event)}; {message}", hint=f"{fits}  {where}")


def make_budget_state(
    account: Account,
    policy: Policy | None,
    analyst: str | None,
    after: Iterable[Event] = (),
    debit: Event | None = None,
    domain: Days | None = None,
    asked: Days | None = None,
) -> BudgetState:
    """Return the state of an analyst's share, with the whole inside; without a share, the state of the whole.

    With budgets per period it is that of the fullest period in the ``domain``, with those of all stretches of it.

    Args:
        after: further events, counted as if they were charged.
        debit: one that is charged to the share only.
        asked: the only periods of the domain to look at; None for all.
    """
    if not account.terms.per_period:
        return _make_state(account, policy, analyst, tuple(after), debit)
    events, states = tuple(after), account.filters(analyst)
    both = events if debit is None else (*events, debit)
    domain = domain if asked is None else intersect(asked, domain or ((FIRST, LAST),))
    for one in states:
        one.bring_up_to_date(domain)
    cuts = [cut for state in states for cut in state.cuts]
    known: dict[tuple[Spent, ...], BudgetState] = {} if both else account.find_known(policy, analyst)
    found: list[tuple[tuple[int, int], BudgetState]] = []
    for low, high in list_segments([*cuts, *find_all_cuts(both)], domain):
        sums = tuple(state.after(both if state.whose else events, low) for state in states)
        state = known.get(sums)
        if state is None:
            state = known[sums] = _make_state(account, policy, analyst, events, debit, low)
        if found and found[-1][1] is state and found[-1][0][1] == low:
            low = found.pop()[0][0]
        found.append(((low, high), state))
    if not found:
        return _make_state(account, policy, analyst, events, debit)
    stretches = tuple(replace(state, period=say_periods((days,)), days=(days,)) for days, state in found)
    fullest = min(stretches, key=_find_left)
    alone = len({id(state) for _, state in found}) == 1
    part = "" if policy is None else policy.shortest_period
    every = "each period" if asked is None else say_periods(domain)
    return replace(fullest, period=every if alone else fullest.period, stretches=stretches, part=part)


def _find_left(state: BudgetState) -> Fraction:
    return state.left_epsilon if state.own is None else state.own.left


def _make_state(
    account: Account,
    policy: Policy | None,
    analyst: str | None,
    after: tuple[Event, ...],
    debit: Event | None,
    day: int | None = None,
) -> BudgetState:
    """Return the state of the budget, or with a ``day`` of that of its period."""
    default = policy.budget.default_epsilon if policy is not None else None
    states, events = account.filters(analyst), after
    at_delta = account.terms.at_delta
    whole = _state([s for s in states if s.whose is None], default, None, events, at_delta, day)
    own = [state for state in states if state.whose is not None]
    if not own:
        return whole
    events = events if debit is None else (*events, debit)
    answers = "shared" if policy is None else policy.budget.answers
    return replace(_state(own, default, whole, events, at_delta, day), answers=answers)


def _state(
    states: list[FilterState],
    default: Fraction | None,
    whole: BudgetState | None,
    after: tuple[Event, ...],
    at_delta: Fraction,
    day: int | None,
) -> BudgetState:
    """Return the state of the first filter, with the least remaining budget of all filters."""
    held, spents = states[0].filter, [state.after(after, day) for state in states]
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
    """Return the first room, reduced to the least of all rooms, since all filters must admit."""
    known = [room for room in rooms if room is not None]
    if not known:
        return None
    sums = [room.by_sum for room in known]
    by_sum = None if None in sums else min(amount for amount in sums if amount is not None)
    return replace(known[0], left=min(room.left for room in known), by_sum=by_sum)
