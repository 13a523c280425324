"""Operations: a worker passes a client's message to an ordinary session, and returns messages.

    run, plan           statements; ``touch`` is called before a statement may read private data
    describe, schemas, explain, why, budget, budget_panel, ledger, columns, tables, check_name, plot
                        spend nothing, and read no private row
    keep                keep a result of the session, by its handle
    postgres_run, postgres_describe     statements of PostgreSQL's clients; the first may pay

A reply ends in ``end``, or in ``error``: one of ours with class, sentence, caret and hint. Other exceptions become one fixed
sentence, since Python's message may contain paths and data.

A session's journal lists its kept results and open thresholds. Another process uses it to make the kept results again from stored
answers, without cost. The front keeps it.

This module stands apart from :mod:`dpsql.server.worker` because that one runs alone, and imports it after it is confined.
"""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from dpsql.client.wire import (
    CHUNK,
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
    write_arrow_schemas,
    write_error,
    write_question,
    write_result,
    write_statement_description,
)
from dpsql.errors import BindError, Error, Interrupted, PostprocessingError
from dpsql.language.statements import Statement, parse
from dpsql.late_dataclass import dataclass
from dpsql.privacy.codec import write_as, write_record
from dpsql.privacy.records import BudgetState
from dpsql.report.data import list_pictures
from dpsql.report.tables import BudgetPanel, clip_text
from dpsql.session.description import match_parameters
from dpsql.session.explanation import Explanation, Why
from dpsql.session.interface import Question, may_keep
from dpsql.session.pipeline import watch_touch
from dpsql.session.result import Result
from dpsql.session.session import Session

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

_FAILED = "the server could not finish this, and withholds the reason."
_FAILED_HINT = "SHOW LEDGER says whether it was charged."
_GONE = "run its cell again: stored answers are free."


@dataclass
class _Memory:
    """The results of one session that its client refers to."""

    results: OrderedDict[int, tuple[Result, Question, int]] = field(default_factory=OrderedDict)
    """A result, its question and the bytes of its rows, by handle."""
    count: int = field(default_factory=lambda: secrets.randbelow(1 << 40))
    """The last handle. It starts at random, so that another process doesn't take an old handle for one of its own."""
    size: int = 0
    kept: dict[str, bytes] = field(default_factory=dict)
    """Lines of the journal by folded name."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the next reply with notes."""

    def remember(self, result: Result, question: Question, size: int) -> int:
        """Return the handle of a result, and forget the oldest results above the limits."""
        self.count += 1
        self.size += size
        self.results[self.count] = (result, question, size)
        while len(self.results) > MAX_REMEMBERED or self.size > MAX_REMEMBERED_BYTES:
            self.size -= self.results.popitem(last=False)[1][2]
        return self.count

    def note_kept(self, name: str, content: str, question: Question | None) -> None:
        """Write the question of a kept result into the journal, unless it is too long."""
        self.kept.pop(name.lower(), None)  # it must follow the kept results that it reads
        if question is None:
            return
        written = json.dumps({"kept": name, "content": content, **write_question(question)}).encode()
        if len(written) <= MAX_JOURNAL_LINE and len(self.kept) < MAX_JOURNAL:
            self.kept[name.lower()] = written

    def take_notes(self) -> list[str]:
        """Return the sentences for this reply, and clear them."""
        taken, self.notes = self.notes, []
        return taken


_MEMORIES: WeakKeyDictionary[Session, _Memory] = WeakKeyDictionary()


def _memory_of(session: Session) -> _Memory:
    return _MEMORIES.setdefault(session, _Memory())


def _ignore(error: BaseException) -> None:
    pass


def answer(
    operation: str,
    session: Session,
    body: bytes,
    touch: Callable[[], None] = lambda: None,
    report: Callable[[BaseException], None] = _ignore,
) -> Iterator[Message]:
    """Answer one message of a client. The last message is ``end`` or ``error``; no exception leaves.

    Args:
        operation: ``run``, ``plan``, ``explain``, ...
        session: the client's session.
        body: the client's message.
        touch: called each time before private data may be read; the client then gets :data:`dpsql.client.wire.READING`.
        report: called with an exception that isn't ours. It may contain data, and is for the owner only.
    """
    memory = _memory_of(session)
    try:
        perform = _OPERATIONS.get(operation)
        if perform is None:
            raise WireError(f"this server knows no operation {operation[:40]!r}.")
        head = decode(body).head
        steps = perform(session, memory, head)
        while (message := _step(steps, touch)) is not None:
            if message.head["kind"] != "rows":
                encode(Message(message.head))  # a head that can't be encoded becomes an error here
            yield message
        yield Message({"kind": "end"})
    except KeyboardInterrupt:
        late = Interrupted("stopped as it ended: its answers are stored, and asking again is free.")
        yield write_error(late)
    except Error as error:
        yield _write_error(error, memory)
    except Exception as error:
        report(error)
        yield _write_error(Error(_FAILED, hint=_FAILED_HINT), memory)


def _step(steps: Iterator[Message], touch: Callable[[], None]) -> Message | None:
    """Return the next message. A caller may use several threads, so no context stays set between two messages."""
    with watch_touch(touch):
        return next(steps, None)


def _write_error(error: Error, memory: _Memory) -> Message:
    message = write_error(error)
    notes = memory.take_notes()
    if notes:
        message.head["hint"] = " ".join([*filter(None, [error.hint]), *(f"{note}." for note in notes)])
    return message


def add_note(session: Session, sentence: str) -> None:
    """Add a sentence, without its full stop, to the next reply with notes."""
    _memory_of(session).notes.append(sentence)


# -- statements -------------------------------------------------------------------------------------------------------


def _run(session: Session, memory: _Memory, head: Head) -> Iterator[Message]:
    cell = _read_question(head)
    try:
        results = session.answer(cell, get_field(head, "fresh", bool, False))
    except Error as error:
        answered = [result for result in error.answered if isinstance(result, Result)]
        yield from _send_results(session, memory, answered, cell)
        raise
    yield from _send_results(session, memory, results, cell)


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


def _send_results(
    session: Session, memory: _Memory, results: Sequence[Result], cell: Question
) -> Iterator[Message]:
    """Yield the messages of a cell's results, and remember their questions."""
    if len(results) == 1 and not cell.synthetic and ";" not in cell.text and not may_keep(cell.text):
        yield from _send(memory, results[0], cell)
        return
    statements = parse(cell.text, cell.params) if results else []
    for statement, result in zip(statements, results, strict=False):
        question = replace(cell, text=statement.source)
        if statement.keep:
            memory.note_kept(statement.keep, session.kept.get(statement.keep.lower(), ""), question)
        yield from _send(memory, result, question, statement.keep)


def _send(
    memory: _Memory, result: Result, question: Question | None = None, keep: str = ""
) -> Iterator[Message]:
    """Yield the messages of one result."""
    size = int(result.table.nbytes)
    if size > MAX_RESULT:
        raise PostprocessingError(
            f"the answer has {size:,} bytes; the server sends {MAX_RESULT:,} at most. Its cost is paid.",
            hint="ask for fewer rows or columns of it: the private part is stored, and free.",
        )
    more = {} if question is None else {"handle": memory.remember(result, question, size), "keep": keep}
    for message in write_result(result, **more):
        if message.head["kind"] == "result":
            message.head["notes"] += memory.take_notes()
        yield message


def _plan(session: Session, memory: _Memory, head: Head) -> Iterator[Message]:
    """Price statements together, and run them if the client asks for it."""
    listed = get_field(head, "statements", list)
    if len(listed) > MAX_STATEMENTS or not all(isinstance(item, dict) for item in listed):
        raise WireError(f"a plan may have {MAX_STATEMENTS:,} statements.")
    plan = session.plan()
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
    for question, result in zip(questions, plan.run(), strict=True):
        yield from _send(memory, result, question)


def _describe(session: Session, memory: _Memory, head: Head) -> Iterator[Message]:
    """Yield the columns of the answer and of the parameters, and the price."""
    asked = _read_question(head)
    yield write_statement_description(session.describe(asked.text, asked.params))


def _schemas(session: Session, memory: _Memory, head: Head) -> Iterator[Message]:
    """Yield the columns of the policy's tables."""
    found = session.table_schemas()
    yield make_value(tables=list(found), schemas=write_arrow_schemas(found.values()))


# -- operations that spend nothing ------------------------------------------------------------------------------------


def _explain(session: Session, head: Head) -> Explanation:
    asked = _read_question(head)
    return session.explain(asked.text, asked.params, epsilon=asked.epsilon)


def _budget_panel(session: Session, head: Head) -> BudgetPanel:
    shown = session.budget_panel()
    charges = (replace(charge, text=clip_text(charge.text, MAX_CHARGE_TEXT)) for charge in shown.charges)
    return replace(shown, charges=tuple(charges))


_VALUES: dict[str, tuple[Any, Callable[[Session, Head], Any]]] = {
    "explain": (Explanation, _explain),
    "why": (Why, lambda session, head: session.why()),
    "budget": (BudgetState, lambda session, head: session.budget()),
    "budget_panel": (BudgetPanel, _budget_panel),
    "columns": (dict[str, str], lambda session, head: session.columns(get_field(head, "table", str))),
}
"""Operations that return one value, and its type."""


def _send_value(name: str, session: Session, memory: _Memory, head: Head) -> Iterator[Message]:
    kind, ask = _VALUES[name]
    yield make_value(value=write_as(kind, ask(session, head)))


def _ledger(session: Session, memory: _Memory, head: Head) -> Iterator[Message]:
    """Yield the statements in messages of about :data:`~dpsql.client.wire.CHUNK` bytes."""
    last = None if head.get("last") is None else get_field(head, "last", int)
    page: list[dict[str, Any]] = []
    size = 0
    for entry in session.ledger(last):
        body = write_record(entry)
        page.append(body)
        size += len(json.dumps(body))
        if size > CHUNK:
            yield make_value(entries=page)
            page, size = [], 0
    yield make_value(entries=page)


def _tables(session: Session, memory: _Memory, head: Head) -> Iterator[Message]:
    yield from _send(memory, session.tables())


def _check_name(session: Session, memory: _Memory, head: Head) -> Iterator[Message]:
    session.check_name(get_field(head, "name", str))
    yield from ()


def _keep(session: Session, memory: _Memory, head: Head) -> Iterator[Message]:
    name, handle = get_field(head, "name", str), get_field(head, "result", int)
    session.check_name(name)
    if handle not in memory.results:
        raise BindError("the server has forgotten this result.", hint=_GONE)
    result, question, _ = memory.results[handle]
    session.keep(name, result)
    memory.note_kept(name, session.kept[name.lower()], question)
    yield from ()


def _plot(session: Session, memory: _Memory, head: Head) -> Iterator[Message]:
    pictures = list_pictures(session.account, get_field(head, "what", str))
    yield make_value(pictures=pictures)


def _postgres_run(session: Session, memory: _Memory, head: Head) -> Iterator[Message]:
    from dpsql.server.postgres.answers import answer_postgres  # few sessions need it

    def note_kept(statement: Statement, params: Mapping[str, object] | None) -> None:
        question = Question(statement.source, params)
        memory.note_kept(statement.keep, session.kept.get(statement.keep.lower(), ""), question)

    yield from answer_postgres(session, head, note_kept)


def _postgres_describe(session: Session, memory: _Memory, head: Head) -> Iterator[Message]:
    from dpsql.server.postgres.answers import describe_postgres

    yield from describe_postgres(session, head)


_STATEMENTS = (_run, _plan, _describe, _postgres_run, _postgres_describe)
_OTHERS = (_schemas, _ledger, _tables, _check_name, _keep, _plot)
_OPERATIONS: dict[str, Callable[[Session, _Memory, Head], Iterator[Message]]] = {
    perform.__name__.removeprefix("_"): perform for perform in (*_STATEMENTS, *_OTHERS)
}
_OPERATIONS |= {name: partial(_send_value, name) for name in _VALUES}
OPERATIONS = frozenset(_OPERATIONS)
"""The names of all operations."""


# -- the journal ------------------------------------------------------------------------------------------------------


def read_journal(session: Session) -> list[bytes]:
    """Return the lines from which :func:`restore_session` restores a session in another process.

    A line has a kept result's statement, never its rows, or an open threshold's name, whose noisy level ends with the process.
    """
    lines = list(_memory_of(session).kept.values())
    return lines + [json.dumps({"threshold": name}).encode() for name in session.open_thresholds]


def restore_session(session: Session, journal: Iterable[bytes]) -> None:
    """Make the kept results of a session again in a new process.

    The caller must forbid payments, so that only stored answers are used. The next reply gets a note about each kept result that
    can't be made again or would differ, and about each threshold that was open.
    """
    for line in journal:
        body = json.loads(line)
        if "threshold" in body:
            name = body["threshold"]
            add_note(session, f"the threshold {name} is closed, because its process ended: DECLARE it again")
        elif not _restore(session, body):
            add_note(
                session, f"the kept result {body['kept']} is lost, because its process ended: {_GONE[:-1]}"
            )


def _restore(session: Session, body: Head) -> bool:
    """Make one kept result again; return False if that would cost, fails, or gives other rows."""
    name = str(body["kept"])
    question = _read_question(body)
    try:
        result = session.answer(question)[-1]
        session.keep(name, result)
    except Error:
        return False
    if session.kept[name.lower()] != body["content"]:
        session.forget(name)
        return False
    _memory_of(session).note_kept(name, body["content"], question)
    return True
