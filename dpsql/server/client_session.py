"""The answers to one client's messages: a session, the results that the client may refer to, and its journal.

The operations of a message:

    run, plan           statements; ``touch`` is called before a statement may read private data
    describe, schemas, explain, why, budget, budget_panel, ledger, columns, check_name, plot
                        spend nothing, and read no private row
    keep                keep a result of the session, by its handle
    postgres_run, postgres_describe     statements of PostgreSQL's clients; the first may pay

A reply ends in ``end``, or in ``error``: one of ours with class, sentence, caret and hint. Other exceptions become one fixed
sentence, since Python's message may contain paths and data.

A session's journal lists its kept results and open thresholds. Another process uses it to make the kept results again from stored
answers, without cost. The front keeps it.

This module stands apart from :mod:`dpsql.server.worker`, which is about processes: a session answers without one, too.
"""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from dpsql.client.wire import (
    MAX_RESULT,
    Head,
    Message,
    WireError,
    decode,
    encode,
    get_field,
    make_value,
    read_amount,
    read_params,
    write_error,
    write_question,
    write_result,
)
from dpsql.errors import BindError, Error, Interrupted, ParseError, PostprocessingError
from dpsql.language.statements import parse
from dpsql.policy.model import ServerRules
from dpsql.privacy.codec import write_as
from dpsql.privacy.records import BudgetState, Entry
from dpsql.report.data import list_pictures
from dpsql.report.tables import BudgetPanel, clip_text
from dpsql.server.rights import BODY_OVERHEAD, FAILED
from dpsql.session.description import match_parameters
from dpsql.session.explanation import Description, Explanation, Why
from dpsql.session.interface import Question, may_keep
from dpsql.session.pipeline import watch_touch
from dpsql.session.result import Result
from dpsql.session.session import Session

if TYPE_CHECKING:
    from dpsql.server.postgres.worker_side import PostgresSession

MAX_PARAMETER = 1 << 20
"""Most characters of a text parameter."""
MAX_STATEMENTS = 1000
"""Most statements of a declared plan."""
MAX_JOURNAL = 100
"""Most kept results that another process can make again."""
MAX_JOURNAL_LINE = 1 << 16
"""Most bytes of such a result's statement and parameters."""
MAX_REMEMBERED = 64
"""Most results that a session remembers for ``keep``."""
MAX_REMEMBERED_BYTES = 64 << 20
"""Most bytes of all remembered results."""

MAX_CHARGE_TEXT = 1000
"""Characters of a statement in the list of the latest charges."""

_FAILED_HINT = "SHOW LEDGER says whether it was charged."
_GONE = "run its cell again: stored answers are free."


class ClientSession:
    """A client's session in its worker: dpsql's session, results with handles, the journal, and the owner's ``rules``."""

    def __init__(self, session: Session, rules: ServerRules) -> None:
        self.session, self._rules = session, rules
        self._results: OrderedDict[int, tuple[Result, Question, int]] = OrderedDict()
        """A result, its question and the bytes of its rows, by handle."""
        self._count = secrets.randbelow(1 << 40)
        """The last handle. It starts at random, so that another process doesn't take an old handle for one of its own."""
        self._size = 0
        self._kept: dict[str, bytes] = {}
        """Lines of the journal by folded name."""
        self._notes: list[str] = []
        """Sentences for the next reply with notes, without their full stops."""
        self._postgres: PostgresSession | None = None

    def answer(
        self,
        operation: str,
        body: bytes,
        touch: Callable[[], None] = lambda: None,
        report: Callable[[BaseException], None] = lambda error: None,
    ) -> Iterator[bytes]:
        """Answer one message of the client. The last message is ``end`` or ``error``; no exception leaves.

        Args:
            operation: ``run``, ``plan``, ``explain``, ...
            body: the client's message.
            touch: called each time before private data may be read; the client then gets :data:`dpsql.client.wire.READING`.
            report: called with an exception that isn't ours. It may contain data, and is for the owner only.
        """
        try:
            perform = OPERATIONS.get(operation)
            if perform is None:
                raise WireError(f"this server knows no operation {operation[:40]!r}.")
            head = decode(body).head
            self._check_sizes(head, len(body))
            steps = perform(self, head)
            while (message := _step(steps, touch)) is not None:
                yield encode(message)  # a head that can't be encoded becomes an error here
            yield encode(Message({"kind": "end"}))
        except KeyboardInterrupt:
            late = Interrupted("stopped as it ended: its answers are stored, and asking again is free.")
            yield encode(write_error(late))
        except Error as error:
            yield encode(self._write_error(error))
        except Exception as error:
            report(error)
            yield encode(self._write_error(Error(FAILED, hint=_FAILED_HINT)))

    def _check_sizes(self, head: Head, size: int) -> None:
        """Raise ParseError if a message of ``size`` bytes has larger statements or parameters than the owner allows."""
        listed = head.get("statements")
        asked = [
            item for item in [head, *(listed if isinstance(listed, list) else [])] if isinstance(item, dict)
        ]
        texts = [item["text"] for item in asked if isinstance(item.get("text"), str)]
        written = sum(len(text.encode(errors="replace")) for text in texts)
        for what, held, most, spare in (
            ("statement has", written, self._rules.max_statement_bytes, 0),
            ("parameters have", size - written, self._rules.max_parameter_bytes, BODY_OVERHEAD),
        ):
            if held > most + spare:
                sentence = f"the {what} {held:,} bytes; the owner allows {most:,}."
                raise ParseError(sentence, hint="ask in several statements.")

    def _write_error(self, error: Error) -> Message:
        message = write_error(error)
        notes = self._take_notes()
        if notes:
            message.head["hint"] = " ".join([*filter(None, [error.hint]), *(f"{note}." for note in notes)])
        return message

    def _take_notes(self) -> list[str]:
        """Return the sentences for this reply, and clear them."""
        taken, self._notes = self._notes, []
        return taken

    # -- statements ---------------------------------------------------------------------------------------------------

    def _run(self, head: Head) -> Iterator[Message]:
        cell = _read_question(head)
        try:
            results = self.session.answer(cell, get_field(head, "fresh", bool, False))
        except Error as error:
            yield from self._send_cell([one for one in error.answered if isinstance(one, Result)], cell)
            raise
        yield from self._send_cell(results, cell)

    def _send_cell(self, results: Sequence[Result], cell: Question) -> Iterator[Message]:
        """Yield the messages of a cell's results, and note the questions of kept ones."""
        if len(results) == 1 and not cell.synthetic and ";" not in cell.text and not may_keep(cell.text):
            yield self._send(results[0], cell)
            return
        statements = parse(cell.text, cell.params) if results else []
        for statement, result in zip(statements, results, strict=False):
            question = replace(cell, text=statement.source)
            if statement.keep:
                self._note_kept(statement.keep, question)
            yield self._send(result, question)

    def _send(self, result: Result, question: Question) -> Message:
        """Return the message of one result, which the client may refer to by its handle."""
        size = int(result.table.nbytes)
        if size > MAX_RESULT:
            raise PostprocessingError(
                f"the answer has {size:,} bytes; the server sends {MAX_RESULT:,} at most. Its cost is paid.",
                hint="ask for fewer rows or columns of it: the private part is stored, and free.",
            )
        message = write_result(result, handle=self._remember(result, question, size))
        message.head["notes"] += self._take_notes()
        return message

    def _remember(self, result: Result, question: Question, size: int) -> int:
        """Return the handle of a result, and forget the oldest results above the limits."""
        self._count += 1
        self._size += size
        self._results[self._count] = (result, question, size)
        while len(self._results) > MAX_REMEMBERED or self._size > MAX_REMEMBERED_BYTES:
            self._size -= self._results.popitem(last=False)[1][2]
        return self._count

    def _plan(self, head: Head) -> Iterator[Message]:
        """Price statements together, and run them if the client asks for it."""
        listed = get_field(head, "statements", list)
        if len(listed) > MAX_STATEMENTS or not all(isinstance(item, dict) for item in listed):
            raise WireError(f"a plan may have {MAX_STATEMENTS:,} statements.")
        plan = self.session.plan()
        questions = []
        for item in listed:
            asked = _read_question(item)
            plan.sql(asked.text, asked.params, epsilon=asked.epsilon)
            questions += [replace(asked, text=s.source) for s in parse(asked.text, asked.params)]
        if not get_field(head, "run", bool):
            event = plan.event
            price = None if event is None else event.to_json()
            yield make_value(event=price, count=len(questions))
            return
        yield from map(self._send, plan.run(), questions)

    def _postgres_run(self, head: Head) -> Iterator[Message]:
        yield from self._find_postgres(head).run(head)

    def _postgres_describe(self, head: Head) -> Iterator[Message]:
        yield from self._find_postgres(head).describe(head)

    def _find_postgres(self, head: Head) -> PostgresSession:
        """Return the state of a PostgreSQL client; it begins with the parameters that the client connected with."""
        if self._postgres is None:
            from dpsql.server.postgres.worker_side import PostgresSession  # few sessions need it

            startup, database = (
                get_field(head, "startup", dict, {}),
                get_field(head, "database", str, "dpsql"),
            )
            self._postgres = PostgresSession(self.session, startup, database, self._note_kept)
        return self._postgres

    # -- operations that spend nothing ----------------------------------------------------------------------------------

    def _give_value(self, head: Head, operation: str) -> Iterator[Message]:
        """Yield the value that a session's method of this name returns."""
        kind, find = _VALUES[operation]
        yield make_value(value=write_as(kind, find(self.session, head)))

    def _check_name(self, head: Head) -> Iterator[Message]:
        self.session.check_name(get_field(head, "name", str))
        yield from ()

    def _keep(self, head: Head) -> Iterator[Message]:
        name, handle = get_field(head, "name", str), get_field(head, "result", int)
        self.session.check_name(name)
        if handle not in self._results:
            raise BindError("the server has forgotten this result.", hint=_GONE)
        result, question, _ = self._results[handle]
        self.session.keep(name, result)
        self._note_kept(name, question)
        yield from ()

    # -- the journal ----------------------------------------------------------------------------------------------------

    def _note_kept(self, name: str, question: Question) -> None:
        """Write the question of a kept result into the journal, unless it is too long."""
        self._kept.pop(name.lower(), None)  # it must follow the kept results that it reads
        content = self.session.kept.get(name.lower(), "")
        written = json.dumps({"kept": name, "content": content, **write_question(question)}).encode()
        if len(written) <= MAX_JOURNAL_LINE and len(self._kept) < MAX_JOURNAL:
            self._kept[name.lower()] = written

    def read_journal(self) -> list[bytes]:
        """Return the lines from which :meth:`restore` restores the session in another process.

        A line has a kept result's statement, never its rows, or the name of an open threshold, whose noisy level ends here.
        """
        thresholds = (json.dumps({"threshold": name}).encode() for name in self.session.open_thresholds)
        return [*self._kept.values(), *thresholds]

    def restore(self, journal: Iterable[bytes]) -> None:
        """Make the kept results of a session again in a new process.

        The caller must forbid payments, so that only stored answers are used. The next reply gets a note about each kept result
        that can't be made again or would differ, and about each threshold that was open.
        """
        for line in journal:
            body = json.loads(line)
            if "threshold" in body:
                what = f"the threshold {body['threshold']} is closed, because its process ended: DECLARE it again"
                self._notes.append(what)
            elif not self._restore_kept(body):
                what = f"the kept result {body['kept']} is lost, because its process ended: {_GONE[:-1]}"
                self._notes.append(what)

    def _restore_kept(self, body: Head) -> bool:
        """Make one kept result again; return False if that would cost, fails, or gives other rows."""
        name = str(body["kept"])
        question = _read_question(body)
        try:
            result = self.session.answer(question)[-1]
            self.session.keep(name, result)
        except Error:
            return False
        if self.session.kept[name.lower()] != body["content"]:
            self.session.forget(name)
            return False
        self._note_kept(name, question)
        return True


def _show_panel(session: Session, head: Head) -> BudgetPanel:
    shown = session.budget_panel()
    charges = (replace(charge, text=clip_text(charge.text, MAX_CHARGE_TEXT)) for charge in shown.charges)
    return replace(shown, charges=tuple(charges))


def _explain(session: Session, head: Head) -> Explanation:
    asked = _read_question(head)
    return session.explain(asked.text, asked.params, epsilon=asked.epsilon)


def _describe(session: Session, head: Head) -> Description:
    asked = _read_question(head)
    return session.describe(asked.text, asked.params)


def _list_ledger(session: Session, head: Head) -> list[Entry]:
    return session.ledger(None if head.get("last") is None else get_field(head, "last", int))


_VALUES: dict[str, tuple[object, Callable[[Session, Head], object]]] = {
    "describe": (Description, _describe),
    "schemas": (dict[str, pa.Schema], lambda session, head: session.table_schemas()),
    "explain": (Explanation, _explain),
    "why": (Why, lambda session, head: session.why()),
    "budget": (BudgetState, lambda session, head: session.budget()),
    "budget_panel": (BudgetPanel, _show_panel),
    "columns": (dict[str, str], lambda session, head: session.columns(get_field(head, "table", str))),
    "ledger": (tuple[Entry, ...], _list_ledger),
    "plot": (dict, lambda session, head: list_pictures(session.account, get_field(head, "what", str))),
}
"""The operations that return a value: its type, and the session's method."""
_NAMES = "run plan postgres_run postgres_describe check_name keep"
OPERATIONS: dict[str, Callable[[ClientSession, Head], Iterator[Message]]] = {
    **{name: vars(ClientSession)[f"_{name}"] for name in _NAMES.split()},
    **{name: partial(ClientSession._give_value, operation=name) for name in _VALUES},
}
"""The operations by their names."""


def _step(steps: Iterator[Message], touch: Callable[[], None]) -> Message | None:
    """Return the next message. A caller may use several threads, so no context stays set between two messages."""
    with watch_touch(touch):
        return next(steps, None)


def _read_question(head: Head) -> Question:
    """Return the cell of a statement's message."""
    text, params = get_field(head, "text", str), read_params(head.get("params"))
    if head.get("bound") is not None:
        text, params = match_parameters(text, read_params(head["bound"]) or {})
    for name, value in (params or {}).items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str | bytes) and len(item) > MAX_PARAMETER:
                what = "characters" if isinstance(item, str) else "bytes"
                raise BindError(f"${name} has {len(item):,} {what}; the server takes {MAX_PARAMETER:,}.")
    synthetic = get_field(head, "synthetic", bool, False)
    return Question(text, params, read_amount(head.get("epsilon")), synthetic, head.get("rows"))
