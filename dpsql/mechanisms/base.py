"""How far a release has come, for whoever watches: told by mechanisms that work in steps, one block or batch at a time.

What is told is public: how many steps there are is, and a step counts as done whatever became of it. (A search that
stops early stops where its released hit says.)

What a mechanism is to the rest of the house.

An :class:`Operator` is a frozen value inside a plan: it names the exact queries it needs, knows its cost before
any data are touched, and turns exact relations into a :class:`Release`. It holds no connection and no data.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from dpsql.errors import EngineError
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import Event

Listener = Callable[[int, int], None]
"""Told (steps done, steps in all). It may raise KeyboardInterrupt to end the release."""

_listener: ContextVar[Listener | None] = ContextVar("dpsql_progress", default=None)


@contextlib.contextmanager
def reporting(listener: Listener) -> Iterator[None]:
    """Whatever is released in this thread meanwhile tells ``listener`` how far it is.

    >>> with reporting(lambda done, steps: print(f"{done} of {steps}")):
    ...     told(3, 128)
    3 of 128
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def told(done: int, steps: int) -> None:
    """Tells the listener, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(done, steps)


SALT = "$salt"
"""The parameter of a plan's SQL that is a fresh secret integer: it stays in the plan, a release fills it in."""


class NoRoom(EngineError):
    """The engine may not take as much memory as a query wants. Said in the same words as any failure of it: only an
    operator that can ask for less at a time looks at the difference."""


class Read(Protocol):
    """Runs one exact query and gives its rows. Only operators hold what it returns, and only while they release."""

    def __call__(self, sql: str, lent: Mapping[str, pa.Table] | None = None, /) -> pa.Table:
        """``lent``: relations that the query reads by these names, besides those of its plan.

        Raises:
            EngineError: it failed; why is withheld.
            KeyboardInterrupt: the user stopped it.
        """
        ...


@dataclass(frozen=True)
class Reader:
    """A :class:`Read` over an engine: what is lent to the plan's queries, and how many packed rows may be held at once.

    ``room`` is 0 where the data are elsewhere: nothing of their size may come here.
    """

    execute: Callable[[str, Mapping[str, pa.Table]], pa.Table]
    lent: Mapping[str, pa.Table]
    room: int = 0
    stream: Callable[[str, Mapping[str, pa.Table]], Iterator[pa.Table]] | None = None
    scratch: Callable[[str, Mapping[str, pa.Table]], pa.Table] | None = None
    exact: Callable[[str, Mapping[str, pa.Table]], str] | None = None
    """What becomes of a text, with the relations lent to it, before the engine sees it: its normal form, checked."""
    values: Mapping[str, int] = field(default_factory=dict)
    """Integers for the parameters of texts."""
    prove: Callable[[str, str, Mapping[str, pa.Table], Mapping[str, int]], None] | None = None
    """Proves what the engine runs in a text's place: given its normal form, that with its values, what is lent, and these."""

    def apart(self, sql: str, lent: Mapping[str, pa.Table]) -> pa.Table:
        """As a call, for a query that reads lent relations only: away from the private data, where there is such a place."""
        return (self.scratch or self.execute)(sql, {**self.lent, **lent})

    def __call__(self, sql: str, lent: Mapping[str, pa.Table] | None = None, /) -> pa.Table:
        given = {**self.lent, **(lent or {})}
        return self.execute(self._text(sql, given), given)

    def parts(self, sql: str) -> Iterator[pa.Table]:
        """The rows in parts of a million or so, each held only while it is looked at."""
        return (
            iter((self(sql),)) if self.stream is None else self.stream(self._text(sql, self.lent), self.lent)
        )

    def _text(self, sql: str, lent: Mapping[str, pa.Table]) -> str:
        text = sql if self.exact is None else self.exact(sql, lent)
        full = filled(text, self.values) if self.values else text
        if self.prove is not None:
            self.prove(text, full, lent, self.values)
        return full


def room_of(read: Read) -> int:
    """How many rows of one integer may come here, where the data are beside us; 0 where they must stay where they are."""
    return int(getattr(read, "room", 0))


def parts(read: Read, sql: str) -> Iterator[pa.Table]:
    """The rows of a query in parts, where the reader can give them so; else all at once. There is one at least."""
    streamed = getattr(read, "parts", None)
    if streamed is None:
        return iter((read(sql),))
    found: Iterator[pa.Table] = streamed(sql)
    return found


@dataclass(frozen=True)
class Release:
    """What leaves a mechanism: public from here on.

    ``table`` holds the released columns; an interval of column ``a`` stands in the double columns ``a__low`` and
    ``a__high`` (NULL where a value has none). Rows come in an order that does not depend on the data beyond what
    is released (sorted by key, by candidate, or by rank of a private choice).
    ``event`` is what was really used: the reserved event, or a cheaper one where hits were not found.
    """

    table: pa.Table
    event: Event
    notes: tuple[str, ...] = ()
    noisy: pa.Table | None = None
    """Noisy integers that the columns were made of, where an operator can show them again at another confidence: they
    are what the mechanism let out, so keeping them costs nothing.
    """


@runtime_checkable
class Shows(Protocol):
    """An operator that shows again what it released, at another confidence: post-processing."""

    @property
    def shows(self) -> bool:
        """Whether this one can: intervals of some kinds rest on more than what is kept."""
        ...

    def shown(self, released: pa.Table, noisy: pa.Table | None) -> pa.Table:
        """The released columns as this operator would have shown them, with its own confidence."""
        ...


@runtime_checkable
class Operator(Protocol):
    """A mechanism applied to exact relations: printable, comparable, storable."""

    @property
    def event(self) -> Event:
        """What is reserved before the data are touched."""
        ...

    @property
    def queries(self) -> tuple[str, ...]:
        """The exact SQL that ``release`` may read, for EXPLAIN."""
        ...

    def release(self, read: Read, entropy: Entropy) -> Release:
        """Reads what it needs and adds the noise. Data-dependent failures are values, not exceptions."""
        ...

    def sentences(self, confidence: float) -> tuple[str, ...]:
        """For EXPLAIN: noise, scale, expected error; public quantities only."""
        ...


def filled(sql: str, values: Mapping[str, int]) -> str:
    """Return ``sql`` with the integers of ``values`` for its parameters; what stands in quotes is left as it is.

    >>> filled("SELECT hash($salt) AS a, '$salt' AS b", {"salt": 7})
    "SELECT hash(7) AS a, '$salt' AS b"
    """
    return _TOKENS.sub(lambda found: str(values[found[1]]) if found[1] in values else found[0], sql)


_TOKENS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$([a-z]+)\b""")


@dataclass(frozen=True)
class _Filling:
    """A reader of filled texts, over one that knows nothing of parameters."""

    read: Read
    values: Mapping[str, int]

    def __call__(self, sql: str, lent: Mapping[str, pa.Table] | None = None, /) -> pa.Table:
        text = filled(sql, self.values)
        return self.read(text) if lent is None else self.read(text, lent)

    def __getattr__(self, name: str) -> Any:
        """What else the reader can do, with texts filled in where it takes them."""
        found = getattr(self.read, name)
        return (lambda sql: found(filled(sql, self.values))) if name == "parts" else found


def filling(read: Read, values: Mapping[str, int]) -> Read:
    """Return a reader that puts these integers in the places of parameters."""
    known = getattr(read, "values", {})
    if isinstance(read, Reader):
        return replace(read, values={**known, **values})
    return _Filling(read.read if isinstance(read, _Filling) else read, {**known, **values})


def salted(read: Read, texts: Iterable[str], entropy: Entropy) -> Read:
    """Return a reader that puts one fresh secret integer of 63 bits into every place of :data:`SALT`.

    A plan is a fixed text, but rows, groups and blocks are chosen by a hash of the privacy unit and of a salt that nobody
    knows and that changes with every release. All texts of one release get the same number, so that two mentions of a hash
    agree; a reader that has a salt keeps it. Where no text has a place for one, no entropy is used.

    Mix the salt in *before* hashing: ``hash(xor(hash(unit), salt))``. DuckDB combines the hashes of several arguments
    by a multiplication and an exclusive or, so ``hash(unit, salt) % m`` gives the same blocks under every salt, with
    other numbers (m a power of two), and several rounds of it one and the same partition.
    """
    name = SALT.removeprefix("$")
    if name in getattr(read, "values", {}) or not any(SALT in text for text in texts):
        return read
    return filling(read, {name: int(entropy.words(1)[0]) >> 1})
