"""The contract between a mechanism and the rest of the package: what it reads, claims, releases and reports.

An :class:`Operator` is a frozen value inside a plan. It names the exact queries that it needs, knows its cost before any
data are touched, and turns exact relations into a :class:`Release`. It holds no connection and no data.

For each exact text an operator claims, in the numbers that calibrate its noise, how far one privacy unit can move the
result. The second lock (:mod:`dpsql.sql.lock.check`) derives the same numbers from the text and compares: a text may do
less than its claim allows, never more. A claim is made from the noise, never from the text, so what the lock compares
with is what is charged. An operator without claims may read nothing.
"""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.errors import EngineError, PrivacyError
from dpsql.mechanisms.packed_claims import CodesClaim as CodesClaim
from dpsql.mechanisms.packed_claims import LentTotals as LentTotals
from dpsql.mechanisms.packed_claims import PackingClaim as PackingClaim
from dpsql.mechanisms.packed_claims import SensitivityClaim as SensitivityClaim
from dpsql.mechanisms.packed_claims import UnitPlace as UnitPlace
from dpsql.mechanisms.progress import report_progress as report_progress
from dpsql.mechanisms.progress import watch_progress as watch_progress
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import Event

Booleans = NDArray[np.bool_]

# -- reading ----------------------------------------------------------------------------------------------------------

SALT = "$salt"
"""The parameter of a plan's SQL that stands for a fresh secret integer: a release fills it in."""

SHARED_PREFIX = "dpsql_shared_"
"""Begins the names of exact queries that texts refer to: what these hold, the salt too, is not seen in the texts."""
Columns = Sequence[tuple[str, str]]
"""Names and SQL types of a relation's columns, in order."""


class OutOfMemory(EngineError):
    """The engine lacks the memory for a query, which looks like all of its failures but to who can ask for less."""


class Read(Protocol):
    """A function that runs one exact query. Only operators hold its result, and only while they release."""

    def __call__(self, sql: str, lent: Mapping[str, pa.Table] | None = None, /) -> pa.Table:
        """Run the query and return its rows.

        Args:
            sql: the query.
            lent: relations that the query reads by these names, besides those of its plan.

        Raises:
            EngineError: the query failed; the reason is withheld.
            KeyboardInterrupt: the user stopped it.
        """


NormalForm = Callable[[str, Mapping[str, pa.Table]], str]
"""Turns a text, with the relations lent to it, into its checked normal form."""
Prove = Callable[[str, str, Mapping[str, pa.Table], Mapping[str, int]], None]
"""Proves what an engine of another language runs; given are the normal form, the same with values, what is lent, values."""


@dataclass(frozen=True)
class Reader:
    """A :class:`Read` over an engine.

    Args:
        execute: runs a query with the relations lent to it.
        lent: what all queries of the plan may read.
        room: rows of eight bytes that may be held here; 0 where the data are elsewhere, so nothing of their size may come.
        stream: runs a query and gives its rows in parts.
        scratch: runs a query over lent relations only, away from the private data.
        exact: turns a text, with the relations lent to it, into its checked normal form.
        values: integers for the parameters of texts.
        prove: proves what the engine runs in a text's place.
        hold: proves an operator that another chooses while it releases, and returns ``exact`` and ``prove`` for it alone.
        little: tells whether a text in normal form, with the relations lent to it, reads few rows.
        rows: tells about how many rows the tables have that a text in normal form reads.
        memory: gives a place to keep what was found out of the data that a text reads, for as long as they stay the same;
            None where they may change unseen.
        unit_memory: gives the same for a text that reads nothing but the units' columns; ``memory`` where there is none.
        snapshot: gives a context in which this thread's texts see one state of the tables that a text reads, and a place for what
            is found out of that state; None where there is no such context.
        threads: how many the engine works with.
        numbers: like ``stream``, for a query of one column of numbers, whose decimals may come in 32 or 64 bits.
    """

    execute: Callable[[str, Mapping[str, pa.Table]], pa.Table]
    lent: Mapping[str, pa.Table] = field(default_factory=dict)
    room: int = 0
    stream: Callable[[str, Mapping[str, pa.Table]], Iterator[pa.Table]] | None = None
    scratch: Callable[[str, Mapping[str, pa.Table]], pa.Table] | None = None
    exact: NormalForm | None = None
    values: Mapping[str, int] = field(default_factory=dict)
    prove: Prove | None = None
    hold: Callable[[Operator], tuple[NormalForm, Prove | None]] | None = None
    little: Callable[[str, Mapping[str, pa.Table]], bool] | None = None
    memory: Callable[[str], MutableMapping[str, object] | None] | None = None
    numbers: Callable[[str, Mapping[str, pa.Table]], Iterator[pa.Table]] | None = None
    unit_memory: Callable[[str], MutableMapping[str, object] | None] | None = None
    snapshot: (
        Callable[[str], contextlib.AbstractContextManager[MutableMapping[str, object] | None]] | None
    ) = None
    threads: int = 1
    rows: Callable[[str], int] | None = None

    @classmethod
    def over(cls, read: Read) -> Reader:
        """Return ``read`` itself if it is a reader, else a reader that calls it."""
        if isinstance(read, cls):
            return read
        return cls(lambda sql, lent: read(sql, lent) if lent else read(sql))

    def __call__(self, sql: str, lent: Mapping[str, pa.Table] | None = None, /) -> pa.Table:
        given = {**self.lent, **(lent or {})}
        return self.execute(self._text(sql, given), given)

    def read_apart(self, sql: str, lent: Mapping[str, pa.Table]) -> pa.Table:
        """Run a query over lent relations only, away from the private data where there is such a place."""
        return self.scratch(sql, {**self.lent, **lent}) if self.scratch is not None else self(sql, lent)

    def stream_parts(self, sql: str) -> Iterator[pa.Table]:
        """Yield the rows in parts of a quarter of a million or so, at least one, each held only while it is looked at."""
        if self.stream is None:
            return iter((self(sql),))
        return self.stream(self._text(sql, self.lent), self.lent)

    def stream_numbers(self, sql: str) -> Iterator[pa.Table]:
        """Yield one column of numbers as :meth:`stream_parts` does; decimals may come in 32 or 64 bits."""
        if self.numbers is None:
            return self.stream_parts(sql)
        return self.numbers(self._text(sql, self.lent), self.lent)

    def remember(self, sql: str, units: bool = False) -> MutableMapping[str, object] | None:
        """Return the place to keep what was found out of the data that a text reads, where there is one.

        Args:
            sql: the text.
            units: whether it reads nothing but the units' columns.
        """
        memory = self.unit_memory if units and self.unit_memory is not None else self.memory
        if memory is None:
            return None
        return memory(sql if self.exact is None else self.exact(sql, self.lent))

    def estimate_rows(self, sql: str) -> int:
        """Return about how many rows the tables have that a text reads; 0 where nothing is known, or rows stay elsewhere."""
        if self.rows is None or not self.room:
            return 0
        return self.rows(sql if self.exact is None else self.exact(sql, self.lent))

    def _text(self, sql: str, lent: Mapping[str, pa.Table]) -> str:
        text = sql if self.exact is None else self.exact(sql, lent)
        full = fill_parameters(text, self.values) if self.values else text
        if self.prove is not None:
            self.prove(text, full, lent, self.values)
        return full


_TOKENS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$([a-z]+)\b""")


def fill_parameters(sql: str, values: Mapping[str, int]) -> str:
    """Return ``sql`` with the integers of ``values`` for its parameters; quoted text stays as it is.

    >>> fill_parameters("SELECT hash($salt) AS a, '$salt' AS b", {"salt": 7})
    "SELECT hash(7) AS a, '$salt' AS b"
    """
    return _TOKENS.sub(lambda found: str(values[found[1]]) if found[1] in values else found[0], sql)


def bind_parameters(read: Read, values: Mapping[str, int]) -> Reader:
    """Return a reader that fills these integers into the parameters of texts."""
    reader = Reader.over(read)
    return replace(reader, values={**reader.values, **values})


def hold_to(read: Read, operator: Operator) -> Reader:
    """Return a reader of what one operator claims, for a choice that another makes while it releases.

    Raises:
        Unproved: one of its texts may do more than it charges for; nothing of it was read.
    """
    reader = Reader.over(read)
    if reader.hold is None:
        return reader
    exact, prove = reader.hold(operator)
    return replace(reader, exact=exact, prove=prove)


def add_salt(read: Read, texts: Iterable[str], entropy: Entropy) -> Reader:
    """Return a reader that fills one fresh secret integer of 63 bits into every :data:`SALT`.

    A plan is a fixed text, but rows, groups and blocks are chosen by a hash of the privacy unit and of a salt that nobody
    knows and that changes with every release. All texts of one release get the same number, so that two mentions of a
    hash agree; a reader that has a salt keeps it. Where no text can have a place for one, no entropy is used.

    Mix the salt in *before* hashing: ``hash(xor(hash(unit), salt))``. DuckDB combines the hashes of several arguments
    by a multiplication and an exclusive or, so ``hash(unit, salt) % m`` gives the same blocks under every salt, with
    other numbers (m a power of two), and several rounds of it give one and the same partition.
    """
    reader, name = Reader.over(read), SALT.removeprefix("$")
    if name in reader.values or not any(SALT in text or SHARED_PREFIX in text for text in texts):
        return reader
    return bind_parameters(reader, {name: int(entropy.words(1)[0]) >> 1})


# -- claims -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SumsClaim:
    """The claim that a text gives one row per group of ``keys``, and that ``columns`` move as their noise is made for.

    ``selected``: a mechanism of its own chooses which groups are kept; otherwise the groups must be public.
    """

    keys: tuple[str, ...]
    columns: tuple[tuple[str, SensitivityClaim], ...]
    selected: bool = False


@dataclass(frozen=True)
class ScoresClaim:
    """The claim that one privacy unit moves no candidate's score by more than ``most``.

    Args:
        column: the column of the scores.
        most: the sensitivity that is charged.
        rows: the most rows of one unit that move a score.
        clipped: whether some statistics hold values to a limit.
        own: the column of each candidate's own sensitivity, where they differ.
        moves: how far one row lowers and raises each statistic, where scores are no plain sums.
        apart: pairs of statistics that have no row in common.
        monotone: whether a row moves all scores the same way.
    """

    column: str
    most: int
    rows: int
    clipped: bool = False
    own: str | None = None
    moves: tuple[tuple[int, int], ...] | None = None
    apart: tuple[tuple[int, int], ...] = ()
    monotone: bool = False


@dataclass(frozen=True)
class RowsClaim:
    """The claim that a privacy unit has at most ``rows`` rows in each of at most ``groups`` groups.

    Args:
        rows, groups: the most of one unit's rows in a group, and the most groups that it is in.
        keys: the columns that name a group.
        within: columns that are held to a distance from zero.
        moves: sums, with the distance that one row moves each by.
        each: a column of public candidates: a unit's rows may count for each of them.
        scores: what is claimed of the candidates' scores.
        in_all: True where ``rows`` are those of all groups together: then a unit may be in as many groups as it has rows.
        any_function: True where the mechanism needs no sensitivity: what adds rows up may lack ``moves`` and ``scores``.
        limit: the LIMIT that the text ends in, where the operator throws away what reached it.
    """

    rows: int
    groups: int = 1
    keys: tuple[str, ...] = ()
    within: tuple[tuple[str, int], ...] = ()
    moves: tuple[tuple[str, int], ...] = ()
    each: str | None = None
    scores: ScoresClaim | None = None
    in_all: bool = False
    any_function: bool = False
    limit: int | None = None


@dataclass(frozen=True)
class BlocksClaim:
    """Any function, per block: each row is made of the rows with its number in ``column``, a unit is in ``most`` blocks.

    ``most`` is None where a text of its own counts the blocks of a unit (:class:`ParticipationClaim`).
    """

    column: str
    most: int | None = 1


@dataclass(frozen=True)
class ParticipationClaim:
    """The greatest number of blocks that any privacy unit is in."""


@dataclass(frozen=True)
class PublicClaim:
    """The claim that a text reads nothing private."""


@dataclass(frozen=True)
class RouteClaim:
    """The claim that a text only decides between routes that release the same distribution (ranges, row counts, bins)."""


Claim = (
    SumsClaim
    | RowsClaim
    | BlocksClaim
    | ParticipationClaim
    | PublicClaim
    | RouteClaim
    | PackingClaim
    | CodesClaim
)


@dataclass(frozen=True)
class ClaimedText:
    """A text, its claim, and the private relations that the operator itself lends to it.

    ``late``: it is proved when it is read, and not before the statement is paid, since it seldom is.
    """

    text: str
    claim: Claim
    lent: Mapping[str, LentTotals | Sequence[str]] = field(default_factory=dict)
    late: bool = False


# -- operators --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Release:
    """A release: what leaves a mechanism, public from here on.

    Args:
        table: the released columns; the interval of column ``a`` stands in the double columns ``a__low`` and ``a__high``
            (NULL where a value has none). Rows come in an order that does not depend on the data beyond what is released
            (sorted by key, by candidate, or by rank of a private choice).
        event: what was really used: the reserved event, or a cheaper one where hits were not found.
        notes: sentences that are shown beside the answer.
        noisy: the noisy integers behind the columns, where an operator can show them again at another confidence.
    """

    table: pa.Table
    event: Event
    notes: tuple[str, ...] = ()
    noisy: pa.Table | None = None


@dataclass(frozen=True)
class ExpectedError:
    """The error of an answer at a confidence: ``±error`` in units of the column, or in rows of rank."""

    name: str
    error: float


class TextReader(ABC):
    """The texts of something that reads exact relations, and the relations that it lends to them."""

    @property
    @abstractmethod
    def queries(self) -> tuple[str, ...]:
        """The exact SQL of the plain way, for EXPLAIN."""

    @property
    def checked(self) -> tuple[str, ...]:
        """Every text that it may read: the queries, and those of quicker routes to the same numbers."""
        return self.queries

    @property
    def apart(self) -> tuple[str, ...]:
        """Those of its texts that run away from the private data, over relations that it provides itself."""
        return ()

    @property
    def provides(self) -> Mapping[str, Columns]:
        """Relations that it lends to its own texts."""
        return {}


class Operator(TextReader):
    """A mechanism applied to exact relations: printable, comparable, storable.

    What an operator must say is abstract; every other member has the default that suits the simplest mechanism.
    """

    prepaid: ClassVar[bool] = False
    """True where an earlier statement reserved the whole cost, so that this one pays nothing."""

    confidence: float | None = None
    """The level of the intervals that it shows; None where it shows none."""

    @property
    @abstractmethod
    def event(self) -> Event:
        """The charge that is reserved before the data are touched."""

    @property
    def local(self) -> tuple[str, ...]:
        """Those of its texts that are read only where rows may come beside us; an engine elsewhere never runs them."""
        return ()

    @property
    def threshold_name(self) -> str:
        """The open threshold that it asks; empty where it asks none."""
        return ""

    @property
    def can_show_again(self) -> bool:
        """True where :meth:`show_again` works: some intervals rest on more than what is kept."""
        return False

    def claims(self) -> Iterable[ClaimedText]:
        """Yield every text that may be read, but for those that run apart, with its claim.

        Raises:
            PrivacyError: nothing is known of the texts, so none may be read.
        """
        raise PrivacyError("nothing is known of what this statement would read.")

    def require_libraries(self) -> None:
        """Import what a release needs besides this package: an ImportError comes before anything is paid."""

    @abstractmethod
    def release(self, read: Read, entropy: Entropy) -> Release:
        """Read what is needed and add the noise. Failures that depend on the data are values, not exceptions."""

    def show_again(self, released: pa.Table, noisy: pa.Table | None) -> pa.Table:
        """Return the released columns with intervals at this operator's confidence, or raise a ValueError: post-processing."""
        raise ValueError("the intervals of this release can't be made again")

    def find_filled(self, release: Release, keys: tuple[str, ...], doubt: float) -> Booleans | None:
        """Return which groups of a release differ significantly from a group without rows; None where no number tells.

        Args:
            release: of this operator.
            keys: the columns whose values a range makes; rows that are grouped by none of them are always kept.
            doubt: the probability that any group without rows is found, at most.
        """
        return None

    @abstractmethod
    def sentences(self, confidence: float) -> tuple[str, ...]:
        """Describe noise, scale and expected error for EXPLAIN, from public quantities only."""

    def expect_errors(self, factor: Fraction, confidence: float) -> Iterable[ExpectedError]:
        """Yield the errors to expect at ``factor`` times its epsilon (delta stays), where public numbers tell them."""
        return ()

    def mean_errors(self, rows: int) -> Mapping[str, float]:
        """Return the expected absolute errors of released columns, in their own units, of a group of so many rows."""
        return {}

    def find_errors(self, release: Release) -> Mapping[str, float]:
        """Return the same of what was released, which tells which caps and bounds were found."""
        return {} if self.assumes_rows else self.mean_errors(1)

    @property
    def assumes_rows(self) -> bool:
        """Tell whether some of these hold for an assumed number of rows."""
        return False

    @property
    def price_notes(self) -> tuple[str, ...]:
        """The parts of its price that are for something beside the answers, in words."""
        return ()


def list_claims(operator: object) -> tuple[ClaimedText, ...]:
    """Return every text that an operator may read, but for those that run apart, with its claim."""
    return tuple(operator.claims() if isinstance(operator, Operator) else Operator.claims(operator))  # type: ignore[arg-type]
