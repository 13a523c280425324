"""Both sides of a worker's ledger: the worker's proxy calls the front's service, which checks and answers for one analyst.

A new statement takes four calls: its stored answer, the last statement of its question, the reservation, and the settlement,
which returns the budget left. A stored statement takes the first only.

An attacker may control a worker, which parses the analyst's text. So the front checks every value from it. The analyst's name
comes from the token, a worker settles only its own tickets, and it learns only totals about other analysts. The front can't
check that a worker drew the noise that it paid for.

Events, texts, keys and digests have public limits. They ensure that an event can be read and added up fast, under every
accountant, now and from the ledger.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from inspect import signature
from pathlib import Path
from typing import Any, NoReturn, Self

import dpsql.privacy.filters  # noqa: F401 - it imports every kind of event
from dpsql.client.wire import (
    MALFORMED,
    Message,
    WireError,
    cut_bytes,
    get_field,
    read_as,
    read_entry,
    read_error,
    read_state,
    write_error,
)
from dpsql.errors import BudgetExceeded, Error, Interrupted, LedgerError
from dpsql.ledger.answers import PublishedRelease, StoredRelease, is_release_name
from dpsql.ledger.ledger import BudgetState, Entry, KeptReleases, Ledger, Ticket
from dpsql.ledger.log_file import OUTCOMES
from dpsql.ledger.own_statements import OwnStatements, conceal_entry
from dpsql.ledger.store import ReplacedLedgerError
from dpsql.ledger.terms import Terms
from dpsql.policy.model import Policy, fold
from dpsql.privacy.accountants import Accountant
from dpsql.privacy.amounts import format_percent
from dpsql.privacy.codec import write_as, write_record
from dpsql.privacy.events import Event
from dpsql.report.data import PICTURES
from dpsql.report.figures import FIGURES
from dpsql.server.frames import mark_left

MAX_EVENT_PARTS = 5000
"""Most values in an event, with its parts."""
MAX_EVENTS = 1000
"""Most events in a list."""
MAX_REPEATS = 10**6
"""Most repetitions of one event: hits, groups, coordinates."""
MAX_LOGGED_TEXT = 200_000
"""Characters of a text that is logged."""
MAX_KEYS = 10_000
"""Blocks of one statement."""

_LEAST, _MOST = Fraction(1, 10**100), Fraction(10**15)
_MOST_STEPS = 10**60
"""A sensitivity in steps of the noise, or its square."""
_NUMBER = re.compile(r"[0-9]{1,1000}(/0{0,9}[1-9][0-9]{0,999})?")
_REPEATED = frozenset({"count", "max_hits", "hits", "groups"})
_HEX = re.compile(r"[0-9a-f]{64}")
_EVENT = "a message contains an event that no mechanism has."


def read_worker_event(body: Any) -> Event:
    """Read an event from a worker; WireError if the event is invalid or exceeds a limit."""
    try:
        _check_values(body)
        event = Event.from_json(body)
        epsilon, delta = event.basic
    except MALFORMED:
        raise WireError(_EVENT) from None
    if epsilon < 0 or not 0 <= delta <= 1:
        raise WireError(_EVENT)
    return event


def read_worker_events(body: object) -> list[Event]:
    """Read a list of events; WireError if the list is invalid, or longer than :data:`MAX_EVENTS`."""
    if not isinstance(body, list) or len(body) > MAX_EVENTS:
        raise WireError("a message has no valid list of events.")
    return [read_worker_event(item) for item in body]


def _check_values(body: Any) -> None:
    todo: list[tuple[str, Any]] = [("", body)]
    count = 0
    while todo:
        name, value = todo.pop()
        count += 1
        if count > MAX_EVENT_PARTS:
            raise ValueError("too large")
        if isinstance(value, dict):
            todo += value.items()
        elif isinstance(value, list):
            todo += (("", item) for item in value)
        else:
            _check_value(name, value)


def _check_value(name: str, value: Any) -> None:
    if isinstance(value, str) and name != "kind":
        if not _NUMBER.fullmatch(value):
            raise ValueError(name)
        amount = Fraction(value)
        if amount and not _LEAST <= amount <= _MOST:
            raise ValueError(name)
    elif isinstance(value, int) and abs(value) > (MAX_REPEATS if name in _REPEATED else _MOST_STEPS):
        raise ValueError(name)
    elif isinstance(value, float):
        raise TypeError(name)


def read_text(value: object) -> str:
    """Return an encodable text of at most :data:`MAX_LOGGED_TEXT` characters; WireError if it isn't a text."""
    return read_as(str, value)[:MAX_LOGGED_TEXT].encode(errors="replace").decode()


def read_key(value: object) -> str:
    """Return the key of a block or a question: 64 hexadecimal digits; WireError if the key is invalid."""
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise WireError("a message has no valid key.")
    return value


def read_release_name(value: object) -> str:
    """Return the folded name of a release; WireError if it isn't one."""
    if not isinstance(value, str) or not is_release_name(value) or fold(value) != value:
        raise WireError("a message has no valid name.")
    return value


def read_digests(body: object) -> dict[str, str]:
    """Return digests of stored answers by their keys; WireError if they are invalid, or more than :data:`MAX_KEYS`."""
    if not isinstance(body, dict) or len(body) > MAX_KEYS:
        raise WireError("a message has no valid digests.")
    return {read_key(key): read_key(digest) for key, digest in body.items()}


def cut_pieces(listed: Any, content: bytes) -> list[tuple[list[Any], bytes]]:
    """Split bytes by ``[key, size, ...]``, and return each item with its bytes; WireError if the sizes don't add up."""
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise WireError("a message has no valid list of sizes.")
    sizes = [item[1] if isinstance(item, list) and len(item) >= 2 else None for item in listed]
    return list(zip(listed, cut_bytes(sizes, content), strict=True))


def conceal_paths(text: str, paths: Iterable[str]) -> str | None:
    """Return a text without the paths of the owner's files; None if it contains another path."""
    for path in sorted(paths, key=len, reverse=True):
        text = text.replace(f" {path}", "").replace(path, "")
    return None if re.search(r"[\w.-]*[/\\][\w.-]+", text) else text


MAX_CALLS = 100_000
"""Most calls of one request."""
MAX_WRITES = 5000
"""Most statements that one request may write into the ledger."""
MAX_OPEN = 1000
"""Most open reservations of a worker."""
ENTRIES_ON_A_PAGE = 500
MAX_PAGE_BYTES = 4 << 20
MAX_QUESTION_BYTES = 1 << 20
"""Bytes of the blocks of a question."""

_STOPPED = "the statement was stopped before it was paid: nothing was charged."
_FAILED = "The ledger could not do this."
_UNREADABLE = "The ledger can't be read or written."
_ASK_OWNER = "ask its owner."
_REPLACED = "The owner's ledger was removed or replaced while the server ran; nothing can be charged."
_TELL_OWNER = "tell the owner: the server must be restarted. Your statement has no error."
RESTART = "restart the server; after a restore, nothing else is needed. Put a moved ledger back first."
"""The owner's hint if the ledger was replaced while the server ran."""


class LedgerService:
    """The calls of one worker on the ledger of one analyst.

    Args:
        ledger: opened for this analyst (:meth:`dpsql.ledger.ledger.Ledger.for_analyst`); it stays open when a worker ends.
        largest: bytes of releases that one statement may store.
        report: called with errors of the ledger, for the owner only.
        tell: called with a statement's number, charge and outcome, for the owner's log.
    """

    def __init__(
        self,
        ledger: Ledger,
        largest: int = 100_000_000,
        report: Callable[[BaseException], None] = lambda error: None,
        tell: Callable[[int, str, str], None] = lambda number, charge, outcome: None,
    ) -> None:
        self.ledger = ledger
        self.largest = largest
        self._report, self._tell = report, tell
        self._lock = threading.RLock()
        self._open: dict[int, Ticket] = {}
        self._own = OwnStatements(ledger)
        self._figures = _FigureCache(ledger)
        self._told_state: tuple[int, BudgetState] | None = None
        self._untold: list[tuple[int, str, str]] = []
        self._unkept: list[Callable[[], None]] = []
        self._holding = ExitStack()
        """Releases this worker's hold on the drawing of releases."""
        self.begin()

    def begin(self) -> None:
        """Begin a request, and reset its counts."""
        self._calls = self._writes = 0
        self._holding.close()

    def call(self, method: str, head: dict[str, Any], payload: bytes, may_pay: bool) -> Message:
        """Answer one call of :class:`~dpsql.server.ledger_service.LedgerProxy`; :meth:`finish_call` follows. Never raises.

        Args:
            method: the method's name.
            head, payload: its arguments.
            may_pay: whether a reservation may be made now; otherwise the answer to one is an ``Interrupted`` error.

        Returns:
            ``{"kind": "answer", ...}``, or an error of ours that names no path and no other analyst.
        """
        with self._lock:
            try:
                self._calls += 1
                found = _CALLS.get(method)
                if found is None or self._calls > MAX_CALLS:
                    raise WireError("the ledger has no such call, or one request has too many.")
                if method in PAYING_CALLS and not may_pay:
                    raise Interrupted(_STOPPED)
                perform, fields = found
                values = {**head, "payload": payload}
                given = ((n, values.get(n)) for n, needed in fields if needed or values.get(n) is not None)
                return perform(self, **{name: _FIELDS[name](value) for name, value in given})
            except Error as error:
                return write_error(self._conceal(error))
            except Exception as error:
                self._report(error)
                return write_error(LedgerError(_FAILED, hint=_ASK_OWNER))

    def finish_call(self) -> None:
        """Store released blocks and log charges, after the worker has its answer, so that it need not wait."""
        with self._lock:
            unkept, self._unkept = self._unkept, []
            for keep in unkept:
                try:
                    keep()
                except Exception as error:  # a block that isn't stored is asked and paid again
                    self._report(error)
            untold, self._untold = self._untold, []
        for number, charge, outcome in untold:
            self._tell(number, charge, outcome)

    def settle_all(self) -> list[int]:
        """Settle the open statements of a worker that has ended: thresholds by their last progress, others in full.

        Returns:
            The settled statements. If the ledger can't be written, a statement stays charged in full.
        """
        settled = []
        with self._lock:
            self._holding.close()
            for number, ticket in list(self._open.items()):
                try:
                    used = self.ledger.settle_left(ticket)
                    settled.append(number)
                    self._untold.append((number, self.ledger.accountant.write_charge(used), "interrupted"))
                except LedgerError as error:
                    self._report(error)
            self._open.clear()
        self.finish_call()
        return settled

    # -- charges --------------------------------------------------------------------------------------------------

    def _reserve(self, event: Event, text: str, shown: Mapping[str, str] | None = None) -> Message:
        if len(self._open) >= MAX_OPEN:
            raise LedgerError("Too many statements and thresholds are open.", hint="CLOSE some thresholds.")
        self._count_write()
        ticket = self.ledger.reserve(event, text, shown)
        self._open[ticket.statement_id] = ticket
        return _answer(statement_id=ticket.statement_id)

    def _debit(self, text: str, shown: Mapping[str, str]) -> Message:
        self._count_write()
        number = self.ledger.debit(text, shown)
        if number is not None:
            self._untold.append((number, "the share alone", "debited"))
        return _answer(statement_id=number, state=write_record(self.ledger.state()))

    def _progress(self, statement_id: int, event: Event) -> Message:
        self.ledger.note_progress(self._find_ticket(statement_id), event)
        return _answer()

    def _settle(
        self, statement_id: int, event: Event, outcome: str, payload: bytes, kept: object = ()
    ) -> Message:
        ticket = self._find_ticket(statement_id)
        if outcome not in OUTCOMES:
            raise WireError("a message has an outcome that no statement has.")
        self._unkept.append(
            self.ledger.begin_settling(ticket, event, self._read_kept(kept, payload), outcome)
        )
        del self._open[ticket.statement_id]
        used = event if outcome == "released" else ticket.event
        self._untold.append((ticket.statement_id, self.ledger.accountant.write_charge(used), outcome))
        return _answer(state=write_record(self.ledger.state()), left=self.ledger.say_left(used))

    def _read_kept(self, kept: object, payload: bytes) -> KeptReleases:
        if len(payload) > self._most:
            return KeptReleases()  # its blocks are asked and paid again
        pieces = cut_pieces(kept, payload)
        releases, questions, events = {}, {}, {}
        for item, piece in pieces:
            key = read_key(item[0])
            if len(item) == 2:
                if len(piece) <= MAX_QUESTION_BYTES:
                    questions[key] = piece
                continue
            releases[key] = piece
            if item[2] is not None:
                events[key] = read_worker_event(item[2])
        if sum(map(len, releases.values())) > self.largest:
            releases = {}
        return KeptReleases(releases, questions, events)

    @property
    def _most(self) -> int:
        """Most bytes of releases and of their questions' blocks."""
        return self.largest + MAX_QUESTION_BYTES

    def _refuse(self, text: str, reason: str, event: Event | None = None) -> Message:
        self._count_write()
        self.ledger.refuse(text, reason, event)
        return _answer()

    def _count_write(self) -> None:
        self._writes += 1
        if self._writes > MAX_WRITES:
            raise LedgerError("One request writes too many statements.", hint="ask in several cells.")

    def _find_ticket(self, number: int) -> Ticket:
        """Return an open reservation of this worker."""
        ticket = self._open.get(number)
        if ticket is None:
            raise LedgerError("No statement of that number is open here.")
        return ticket

    # -- stored answers -------------------------------------------------------------------------------------------

    def _replay(self, key: str) -> Message:
        """Send a stored release, without time and statement if another analyst paid for it."""
        found = self.ledger.replay(key)
        if found is None:
            gone = self.ledger.find_dropped(key)
            mine = gone is not None and gone.analyst == self.ledger.analyst
            return _answer(found=None, dropped=None if gone is None else gone.when if mine else "")
        mine = found.analyst == self.ledger.analyst
        about = {
            "when": found.when if mine else "",
            "statement_id": found.statement_id if mine else None,
            "event": found.event.to_json(),
            "debit": write_as(Event | None, found.debit),
            "left": self._find_state().sentence,
        }
        return Message({"kind": "answer", "found": about}, found.release)

    def _asked(self, question: str) -> Message:
        """Send the analyst's own last statement of a question, with its blocks."""
        found = self.ledger.asked(question)
        if found is None or found[0].analyst != self.ledger.analyst:
            return _answer(entry=None)
        entry = replace(conceal_entry(found[0]), blocks=found[0].blocks)
        return Message({"kind": "answer", "entry": write_record(entry)}, found[1])

    # -- releases -------------------------------------------------------------------------------------------------

    def _hold(self) -> Message:
        """Send whether the worker may draw releases now: no other session does until :meth:`_free`, or its request's end."""
        self.ledger.check_publisher()
        try:
            self._holding.enter_context(self.ledger.hold_releases(_refuse_to_wait))
        except _BusyError:
            return _answer(held=False)
        return _answer(held=True)

    def _free(self) -> Message:
        self._holding.close()
        return _answer()

    def _publish(
        self, name: str, text: str, payload: bytes, over: str | None = None, kept: object = None
    ) -> Message:
        """Store a release, or drop it if there are no ``kept`` sizes of its definition and its answer."""
        self._count_write()
        if len(payload) > self._most:
            raise LedgerError("The answer is larger than the owner allows.", hint="aggregate it further.")
        contents = None
        if kept is not None:
            pieces = [piece for _, piece in cut_pieces(kept, payload)]
            if len(pieces) != 2 or len(pieces[0]) > MAX_QUESTION_BYTES:
                raise WireError("a message has no valid release.")
            contents = pieces[0], pieces[1]
        self.ledger.publish(name, text, contents, over)
        return _answer()

    def _releases(self) -> Message:
        return _answer(names=self.ledger.list_releases())

    def _release(self, name: str) -> Message:
        """Send a release's definition and answer, and their sizes."""
        found = self.ledger.find_release(name)
        if found is None:
            return _answer(sizes=None)
        sizes = [len(found.definition), len(found.answer)]
        content = found.definition + found.answer
        return Message({"kind": "answer", "sizes": sizes, "when": found.when}, content)

    # -- the budget left and past statements ----------------------------------------------------------------------

    def _terms(self) -> Message:
        """Send the constant facts under a policy, as far as the analyst may know them."""
        terms, mine = self.ledger.terms, self.ledger.analyst or ""
        own = replace(
            terms,
            dataset="",
            units={},
            public=(),
            policy="",
            shares={name: share for name, share in terms.shares.items() if name == mine},
            own_shares={name: share for name, share in terms.own_shares.items() if name == mine},
        )
        return _answer(terms=own.to_json(), largest=self.largest, debits=self.ledger.debits_shares)

    def _state(self, after: Sequence[Event] = (), debit: Event | None = None) -> Message:
        asked = after or debit is not None
        return _answer(state=write_record(self.ledger.state(after, debit) if asked else self._find_state()))

    def _find_state(self) -> BudgetState:
        """Return the budget left, cached until the ledger changes."""
        row = self.ledger.last_row
        if self._told_state is None or self._told_state[0] != row:
            self._told_state = (row, self.ledger.state())
        return self._told_state[1]

    def _excess(self, after: Sequence[Event] = (), debit: Event | None = None) -> Message:
        error = self.ledger.find_excess(*after, debit=debit)
        return _answer(error=None if error is None else write_error(error).head)

    def _count(self) -> Message:
        return _answer(count=self._own.count)

    def _entries(self, start: int = 0, last: int | None = None, others: bool = False) -> Message:
        """Send a page of the analyst's own statements and its start; with ``others``, also the totals of all others."""
        count = self._own.count
        start = max(0, min(start if last is None else count - last, count))
        listed: list[dict[str, Any]] = []
        size = 0
        for entry in self._own.page(start, ENTRIES_ON_A_PAGE):
            listed.append(write_record(entry))
            size += len(entry.text) * 4
            if size > MAX_PAGE_BYTES:
                break
        total = self._own.sum_others() if others else None
        return _answer(count=count, start=start, entries=listed, others=write_as(Entry | None, total))

    def _tabulate(self, what: str) -> Message:
        return Message({"kind": "answer"}, self._figures.make(what))

    def _conceal(self, error: Error) -> Error:
        """Return the error without the paths of the owner's files."""
        if not isinstance(error, LedgerError):
            return error
        self._report(error)
        if isinstance(error, ReplacedLedgerError):
            return LedgerError(_REPLACED, hint=_TELL_OWNER)
        path = self.ledger.path
        paths = (
            []
            if path is None
            else [f"{path}{end}" for end in ("", "-answers", "-id", "-wal", ".d/answers", ".d/mark")]
        )
        message, hint = conceal_paths(error.message, paths), conceal_paths(error.hint or "", paths)
        if message is None or hint is None:
            return LedgerError(_UNREADABLE, hint=_ASK_OWNER)
        return LedgerError(message, hint=hint or None)


_FIELDS: dict[str, Callable[[Any], Any]] = {"shown": read_digests, "after": read_worker_events}
_FIELDS |= dict.fromkeys(("event", "debit"), read_worker_event)
_FIELDS |= dict.fromkeys(("key", "question"), read_key)
_FIELDS |= dict.fromkeys(("text", "reason"), read_text)
_FIELDS |= {name: partial(read_as, str) for name in ("outcome", "what", "over")}
_FIELDS["name"] = read_release_name
_FIELDS |= {name: partial(read_as, int) for name in ("statement_id", "start", "last")}
_FIELDS |= {
    "kept": lambda listed: listed,
    "others": partial(read_as, bool),
    "payload": partial(read_as, bytes),
}
"""Reads the arguments of calls, which a worker under an attacker's control may have made."""
_NAMES = (
    "reserve debit progress settle refuse replay asked terms state excess count entries tabulate "
    "publish releases release hold free"
)
_Call = tuple[Callable[..., Message], list[tuple[str, bool]]]
_CALLS: dict[str, _Call] = {
    name: (perform, [(p.name, p.default is p.empty) for p in [*signature(perform).parameters.values()][1:]])
    for name in _NAMES.split()
    for perform in [vars(LedgerService)[f"_{name}"]]
}
"""The calls with their arguments, and whether these are required."""
PAYING_CALLS = frozenset({"reserve", "debit", "publish"})
"""Calls that charge something new, or show it to all analysts."""


class _BusyError(Exception):
    """Another session draws releases."""


def _refuse_to_wait() -> None:
    raise _BusyError


def _answer(**values: Any) -> Message:
    return Message({"kind": "answer", **values})


class _FigureCache:
    """A cache of figures about all analysts' statements, until the ledger changes; slow ones are kept for a while."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._made: dict[str, tuple[int, float, bytes]] = {}

    def make(self, what: str) -> bytes:
        """Return figures as JSON; WireError if no figures have that name."""
        known = {**FIGURES, **{f"picture {name}": make for name, make in PICTURES.items()}}
        if what not in known:
            raise WireError("the ledger has no such figures.")
        rows, now = self._ledger.last_row, time.monotonic()
        if what in self._made:
            seen, until, held = self._made[what]
            if seen == rows or now < until:
                return held
        found: Any = known[what](self._ledger)
        if what.startswith("picture"):
            found = _without_texts(found)
        took = time.monotonic() - now
        until = now + (_REST * took if took > _QUICK else 0.0)
        held = json.dumps(found).encode()
        self._made[what] = (rows, until, held)
        return held


_QUICK = 0.5
_REST = 20.0
"""Figures that take longer than half a second take at most a twentieth of the time."""


def _without_texts(picture: dict[str, Any]) -> dict[str, Any]:
    """Return a picture without texts and refusals, which may be another analyst's."""
    found = dict(picture)
    if "burn_down" in found:
        steps = [{**step, "text": ""} for step in found["burn_down"]["steps"]]
        found["burn_down"] = {**found["burn_down"], "steps": steps, "refused": []}
    return found


# -- the worker's side -------------------------------------------------------------------------------------------------


Ask = Callable[[dict[str, Any], bytes], Message]
"""Sends one call to the front and returns its answer. The head has the method and its arguments."""


class LedgerProxy(Ledger):
    """The ledger of one analyst in a worker, which asks the front: the analyst's own statements, and totals of others.

    Args:
        ask: sends a call to the front and returns the answer of ``LedgerService.call``; the proxy raises its errors.
        policy: the policy of the worker's sessions.
        analyst: the analyst's name, which the front takes from the token instead.
    """

    lasting = True
    """The front keeps a file."""
    notices: tuple[str, ...] = ()
    """None: they are for the owner, and may name paths and other analysts."""
    dataset = ""
    """Only the owner knows the data's name."""

    def __init__(self, ask: Ask, policy: Policy, analyst: str) -> None:
        self._ask = ask
        self.path: Path | None = None
        self.policy = policy
        self.analyst = analyst
        self.warnings = ()
        self._state: BudgetState | None = None
        self._deferred: int | None = None
        """The last settled statement, if the front writes the settlement later."""
        self._left: str | None = None
        """The sentence on the budget left from the last call."""
        self._dropped: dict[str, str | None] = {}

    def _call(self, method: str, payload: bytes = b"", **values: object) -> Message:
        """Ask the front; events are sent as JSON."""
        self._state = self._deferred = self._left = None
        answer = self._ask({"method": method, **{n: _write(value) for n, value in values.items()}}, payload)
        if answer.head.get("kind") == "error":
            raise read_error(answer)
        return answer

    # -- constant facts under a policy ----------------------------------------------------------------------------

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return self._call("terms").head

    @cached_property
    def terms(self) -> Terms:
        """The ledger's terms, as far as this analyst may know them."""
        return Terms.from_json(get_field(self._facts, "terms", dict))

    @cached_property
    def accountant(self) -> Accountant:
        """The accountant of the whole budget, which writes charges in its own currency."""
        return self.terms.open_filter()

    @property
    def debits_shares(self) -> bool:
        return get_field(self._facts, "debits", bool)

    def say_rule(self, event: Event) -> str:
        used = self.accountant.used_by(event)
        return "" if used is None else f" It uses {format_percent(used)} of the {self.accountant.name} rule."

    # -- the three steps ------------------------------------------------------------------------------------------

    def reserve(self, event: Event, text: str, shown: Mapping[str, str] | None = None) -> Ticket:
        answer = self._call("reserve", event=event, text=text, shown=dict(shown or {}))
        return Ticket(get_field(answer.head, "statement_id", int), event, "", self)

    def debit(self, text: str, shown: Mapping[str, str]) -> int | None:
        answer = self._call("debit", text=text, shown=dict(shown))
        self._state = read_state(answer.head.get("state"))
        number = answer.head.get("statement_id")
        return number if isinstance(number, int) else None

    def note_progress(self, ticket: Ticket, event: Event) -> None:
        self._call("progress", statement_id=ticket.statement_id, event=event)

    def settle(self, ticket: Ticket, event: Event, kept: KeptReleases | None, outcome: str) -> None:
        kept = kept or KeptReleases()
        size = sum(map(len, kept.releases.values()))
        if size > get_field(self._facts, "largest", int):
            kept = KeptReleases({}, kept.questions)
        sizes: list[tuple[object, ...]] = [
            (key, len(release), kept.events.get(key)) for key, release in kept.releases.items()
        ]
        sizes += [(question, len(items)) for question, items in kept.questions.items()]
        content = b"".join([*kept.releases.values(), *kept.questions.values()])
        number = ticket.statement_id
        answer = self._call("settle", content, statement_id=number, event=event, outcome=outcome, kept=sizes)
        if answer.head.get("promised"):
            self._deferred = number
        else:
            self._state = read_state(answer.head.get("state"))
            self._left = get_field(answer.head, "left", str)

    def begin_settling(
        self, ticket: Ticket, event: Event, kept: KeptReleases | None, outcome: str
    ) -> Callable[[], None]:
        self.settle(ticket, event, kept, outcome)
        return lambda: None  # the front does the rest

    def refuse(self, text: str, reason: str, event: Event | None = None) -> None:
        try:
            self._call("refuse", text=text, reason=reason, event=event)
        except Error:  # the analyst's own error matters more than a line of the log
            return

    # -- stored answers -------------------------------------------------------------------------------------------

    def replay(self, key: str) -> StoredRelease | None:
        answer = self._call("replay", key=key)
        found = answer.head.get("found")
        self._dropped = {} if found is not None else {key: answer.head.get("dropped")}
        if found is None:
            return None
        self._left = get_field(found, "left", str, "") or None
        number, debit = found.get("statement_id"), found.get("debit")
        return StoredRelease(
            answer.payload,
            get_field(found, "when", str),
            number if isinstance(number, int) else None,
            read_as(Event, found.get("event")),
            key,
            debit=None if debit is None else read_as(Event, debit),
        )

    def replay_all(self, keys: Sequence[str]) -> dict[str, StoredRelease]:
        found: dict[str, StoredRelease] = {}
        dropped: dict[str, str | None] = {}
        for key in keys:
            stored = self.replay(key)
            dropped |= self._dropped
            if stored is not None:
                found[key] = stored
        self._dropped = dropped
        return found

    def find_dropped(self, key: str) -> Entry | None:
        """Return a statement that has only its time, and only if it was this analyst's own."""
        if key not in self._dropped:
            self.replay(key)
        when = self._dropped.get(key)
        return None if when is None else Entry(0, when, "", "", "released", None, None)

    def asked(self, question: str) -> tuple[Entry, bytes] | None:
        answer = self._call("asked", question=question)
        entry = answer.head.get("entry")
        return None if entry is None else (read_entry(entry), answer.payload)

    # -- releases -------------------------------------------------------------------------------------------------

    def check_publisher(self) -> None:
        super().check_publisher()  # by the worker's policy; the front asks its own again

    def publish(
        self, name: str, text: str, contents: tuple[bytes, bytes] | None, over: str | None = None
    ) -> None:
        self.check_publisher()
        content = b"".join(contents or ())
        sizes = None if contents is None else [("", len(one)) for one in contents]
        self._call("publish", content, name=name, text=text, over=over, kept=sizes)

    @contextmanager
    def hold_releases(self, wait: Callable[[], None]) -> Iterator[None]:
        while not self._call("hold").head.get("held"):  # a worker has no file of the ledger
            wait()
        try:
            yield
        finally:
            with suppress(Error):  # the front frees it when the request ends
                self._call("free")

    def list_releases(self) -> list[str]:
        return [read_as(str, name) for name in get_field(self._call("releases").head, "names", list)]

    def find_release(self, name: str) -> PublishedRelease | None:
        answer = self._call("release", name=name)
        sizes = answer.head.get("sizes")
        if sizes is None:
            return None
        definition, content = cut_bytes(sizes, answer.payload)
        return PublishedRelease(definition, content, get_field(answer.head, "when", str))

    # -- the budget left and past statements ----------------------------------------------------------------------

    def state(self, after: Iterable[Event] = (), debit: Event | None = None) -> BudgetState:
        events = tuple(after)
        if self._state is not None and not events and debit is None:
            state, self._state = self._state, None  # from the settlement just before
            return state
        return read_state(self._call("state", after=events, debit=debit).head.get("state"))

    def say_left(self, event: Event | None = None) -> str:
        if self._deferred is None:
            left, self._left = self._left, None
            return self.state().sentence if left is None else left
        number, self._deferred = self._deferred, None
        return mark_left(number)

    def find_excess(self, *events: Event, debit: Event | None = None) -> BudgetExceeded | None:
        error = self._call("excess", after=events, debit=debit).head.get("error")
        if error is None:
            return None
        found = read_error(Message(error))
        return found if isinstance(found, BudgetExceeded) else BudgetExceeded(found.message, hint=found.hint)

    @property
    def count(self) -> int:
        """The number of this analyst's own charges and refusals."""
        return get_field(self._call("count").head, "count", int)

    def entries(self, last: int | None = None) -> list[Entry]:
        """Return the totals of others, if there are any, and then the analyst's own statements, or the ``last`` of them."""
        answer = self._call("entries", last=last, others=True).head
        others, count = answer.get("others"), get_field(answer, "count", int)
        found = [read_entry(body) for body in get_field(answer, "entries", list)]
        start = get_field(answer, "start", int)
        if start + len(found) < count:
            found += self._list_own(start + len(found), count)
        return [*([] if others is None else [read_entry(others)]), *found]

    def walk(self, first: int = 1, last: int | None = None) -> Iterator[Entry]:
        """Yield the analyst's own statements with numbers in a range, in order."""
        for entry in self._list_own(0, self.count):
            if first <= entry.statement_id and (last is None or entry.statement_id <= last):
                yield entry

    def _list_own(self, start: int, end: int) -> Iterator[Entry]:
        while start < end:
            page = get_field(self._call("entries", start=start).head, "entries", list)
            if not page:
                return
            yield from map(read_entry, page)
            start += len(page)

    def tabulate(self, what: str, make: Callable[[Self], Any]) -> Any:
        """Return figures about all analysts' statements, which the front makes."""
        found = json.loads(self._call("tabulate", what=what).payload)
        if what.removeprefix("picture ") in PICTURES and what.startswith("picture "):
            return found
        names, rows = found
        return tuple(names), [tuple(row) for row in rows]

    def list_own_numbers(self, after: int = 0) -> list[int]:
        return [entry.statement_id for entry in self.walk(after + 1)]

    def _leave_to_server(self, *given: object, **named: object) -> NoReturn:
        raise LedgerError("Only the server can do this.")

    settle_left = find_debits = spent_by_all = under = for_analyst = _leave_to_server
    last_row = property(_leave_to_server)

    def close(self) -> None:
        """Do nothing, because the front closes the ledger and settles open statements."""


def _write(value: object) -> object:
    """Return a call's argument as a JSON value."""
    if isinstance(value, tuple | list):
        return [_write(item) for item in value]
    return value.to_json() if isinstance(value, Event) else value
