"""The contract between a mechanism and the rest of the package: its exact queries, claims, release and report.

An :class:`Operator` is a frozen value inside a plan, without connection or data. It names its exact queries, knows its cost
before data are touched, and turns exact relations into a :class:`Release`.

For each exact text an operator claims, in the numbers that calibrate its noise, how far one privacy unit can move the result.
The second lock (:mod:`dpsql.lock.check`) derives these numbers from the text: a text may do less than its claim allows, never
more. Claims are made from the noise, never from the text, so the lock compares with the actual charge. An operator without
claims may read nothing. The processing of packed rows is no SQL: the second lock checks the texts against claims about packed
rows, and these against the charge.

The progress of a release is public: a statement's number of steps, and that one of them is done, whatever its outcome.
"""

from __future__ import annotations

import contextlib
import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from dataclasses import field, replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar, ParamSpec, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.errors import EngineError, PrivacyError
from dpsql.interrupts import check_stop
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.per_group import Noise
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import Event
from dpsql.privacy.periods import Days

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True)
class SensitivityClaim:
    """The claim that one privacy unit moves a number by at most ``steps`` in each of at most ``groups`` groups.

    Both are charged: an L1 distance of ``steps * groups``, and an L2 distance of ``steps`` times the root of ``groups``.
    """

    steps: int
    groups: int = 1


UnitPlace = tuple[tuple[str, ...], str]
"""A table's path and its unit column."""


@dataclass(frozen=True)
class PackingClaim:
    """One integer per row: the unit in the highest bits, then the group codes, then the values, the first lowest.

    Args:
        keys: the number of group codes.
        values: the greatest of each value.
        tallies: the limits on a unit's totals.
        charged: the sensitivity that each column's noise is calibrated to.
        groups: the most groups kept per unit.
        coded: the unit column whose hash accompanies an integer without unit; its codes cover all values of the column.
    """

    keys: int
    values: tuple[int, ...]
    tallies: tuple[tuple[str, int], ...]
    charged: tuple[tuple[str, SensitivityClaim], ...]
    groups: int | None
    coded: UnitPlace | None = None


@dataclass(frozen=True)
class CodesClaim:
    """The claim that a text returns the hash of each distinct value of a unit's column once, and nothing else."""

    unit: UnitPlace


@dataclass(frozen=True)
class LentTotals:
    """A relation of exact, already bounded totals that an operator provides to its own queries.

    ``halves`` are totals in two columns, by the first's name: the second, and the number of its steps per step of the
    first; ``columns`` then counts both in these steps. A unit is in at most ``groups`` groups; with ``shares`` it may
    be in any number, but moves their total by no more than in ``groups`` groups.
    """

    keys: tuple[str, ...]
    columns: Mapping[str, int]
    groups: int | None
    halves: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    shares: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.keys, *self.columns, *(rest for rest, _ in self.halves.values()))


ProgressListener = Callable[[int, int], None]
"""Called with (steps done, total steps)."""

_listener: ContextVar[ProgressListener | None] = ContextVar("dpsql_progress", default=None)


@contextlib.contextmanager
def watch_progress(listener: ProgressListener) -> Iterator[None]:
    """Report the progress of releases in this thread to ``listener``.

    A search that stops early stops at its released hit.

    >>> with watch_progress(lambda done, steps: print(f"{done} of {steps}")):
    ...     report_progress(3, 128)
    3 of 128
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report_progress(done: int, steps: int) -> None:
    """Report progress to this thread's listener, if any; KeyboardInterrupt if the user stopped the statement."""
    check_stop()
    listener = _listener.get()
    if listener is not None:
        listener(done, steps)


Booleans = NDArray[np.bool_]

# -- reading ----------------------------------------------------------------------------------------------------------

SALT = "$salt"
"""The parameter of a plan's SQL that a release replaces by a fresh secret integer."""

SHARED_PREFIX = "dpsql_shared_"
"""Prefix of the names of exact queries that texts refer to; the texts show neither their content nor their salt."""
Columns = Sequence[tuple[str, str]]
"""Names and SQL types of a relation's columns, in order."""


class OutOfMemory(EngineError):
    """The engine lacks the memory for a query; only callers that can ask for less distinguish it from other failures."""


class Read(Protocol):
    """A function that runs one exact query. Only operators have its result, and only during a release."""

    def __call__(self, sql: str, lent: Mapping[str, pa.Table] | None = None, /) -> pa.Table:
        """Return the query's rows; ``lent``: further relations. EngineError without a reason, KeyboardInterrupt if stopped."""


NormalForm = Callable[[str, Mapping[str, pa.Table]], str]
"""Returns a text's checked normal form, given its additional relations."""
Prove = Callable[[str, str, Mapping[str, pa.Table], Mapping[str, int]], None]
"""Proves the text of an engine with another dialect, given the query, its normal form with values, and the relations."""


class UnprovedRoute(Exception):
    """A text of a faster route can't be written or proved, so the plain queries are read."""


def _guard(step: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return a step before a text is read, of which every error is an :class:`UnprovedRoute`."""

    @functools.wraps(step)
    def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return step(*args, **kwargs)
        except Exception:
            raise UnprovedRoute from None

    return guarded


@dataclass(frozen=True)
class Reader:
    """A :class:`Read` over an engine.

    Args:
        lent: relations available to all queries of the plan.
        room: the number of eight-byte rows that may be kept in this process; 0 if the data are remote, so that nothing of their
            size is fetched.
        stream: runs a query and yields its rows in parts.
        scratch: runs a query over additional relations only, away from the private data.
        exact: returns a text's checked normal form.
        values: integers for the parameters of texts.
        prove: proves the translation that the engine runs instead of a text.
        hold: proves an operator that another selects during release, and returns ``exact`` and ``prove`` for it alone.
        little: returns whether a text in normal form reads few rows.
        rows: returns the approximate number of rows of the tables that a text in normal form reads.
        memory: returns a cache of facts about the data a text reads, valid while the data stay unchanged; None if they may
            change unnoticed.
        unit_memory: such a cache for a text that reads only the units' columns; defaults to ``memory``.
        snapshot: returns a context in which this thread's texts see one state of the tables a text reads, and a cache for that
            state; None if there is none.
        threads: the engine's number of threads.
        numbers: like ``stream``, for a query of one numeric column, whose decimals may have 32 or 64 bits.
        spill: makes a private directory for exact rows that memory lacks.
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
    spill: Callable[[], Path] | None = None

    @classmethod
    def over(cls, read: Read) -> Reader:
        """Return ``read`` if it is a reader, else a reader that calls it."""
        if isinstance(read, cls):
            return read
        return cls(lambda sql, lent: read(sql, lent) if lent else read(sql))

    def __call__(self, sql: str, lent: Mapping[str, pa.Table] | None = None, /) -> pa.Table:
        given = {**self.lent, **(lent or {})}
        return self.execute(self._text(sql, given), given)

    def read_apart(self, sql: str, lent: Mapping[str, pa.Table]) -> pa.Table:
        """Run a query over additional relations only, away from the private data if the engine has such a place."""
        return self.scratch(sql, {**self.lent, **lent}) if self.scratch is not None else self(sql, lent)

    def stream_parts(self, sql: str) -> Iterator[pa.Table]:
        """Yield the rows in parts of about 250,000, at least one; a part is valid until the next."""
        if self.stream is None:
            return iter((self(sql),))
        return self.stream(self._text(sql, self.lent), self.lent)

    def stream_numbers(self, sql: str) -> Iterator[pa.Table]:
        """Yield one column of numbers as :meth:`stream_parts` does; decimals may come in 32 or 64 bits."""
        if self.numbers is None:
            return self.stream_parts(sql)
        return self.numbers(self._text(sql, self.lent), self.lent)

    def remember(self, sql: str, units: bool = False) -> MutableMapping[str, object] | None:
        """Return the cache of facts about the data a text reads, if any; ``units``: it reads only the units' columns."""
        memory = self.unit_memory if units and self.unit_memory is not None else self.memory
        if memory is None:
            return None
        return memory(self.write(sql))

    def estimate_rows(self, sql: str) -> int:
        """Return the approximate number of rows of the tables a text reads; 0 if unknown or remote."""
        if self.rows is None or not self.room:
            return 0
        return self.rows(self.write(sql))

    def write(self, sql: str) -> str:
        """Return a text's checked normal form."""
        return sql if self.exact is None else self.exact(sql, self.lent)

    def _text(self, sql: str, lent: Mapping[str, pa.Table]) -> str:
        text = sql if self.exact is None else self.exact(sql, lent)
        full = fill_parameters(text, self.values) if self.values else text
        if self.prove is not None:
            self.prove(sql, full, lent, self.values)
        return full

    def reads_little(self, sql: str) -> bool:
        """Return whether a text reads few rows, so that one query is faster than examining the data first."""
        return self.little is not None and self.little(self.write(sql), self.lent)

    def on_route(self) -> Reader:
        """Return a reader for a faster route; it raises :class:`UnprovedRoute` for a text that can't be proved."""
        exact, prove = self.exact, self.prove
        if exact is None and prove is None:
            return self
        return replace(self, exact=exact and _guard(exact), prove=prove and _guard(prove))


_TOKENS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$([a-z]+)\b""")


def fill_parameters(sql: str, values: Mapping[str, int]) -> str:
    """Return ``sql`` with the integers ``values`` for its parameters; quoted text is unchanged.

    >>> fill_parameters("SELECT hash($salt) AS a, '$salt' AS b", {"salt": 7})
    "SELECT hash(7) AS a, '$salt' AS b"
    """
    return _TOKENS.sub(lambda found: str(values[found[1]]) if found[1] in values else found[0], sql)


def bind_parameters(read: Read, values: Mapping[str, int]) -> Reader:
    """Return a reader that replaces the parameters of texts by these integers."""
    reader = Reader.over(read)
    return replace(reader, values={**reader.values, **values})


def hold_to(read: Read, operator: Operator) -> Reader:
    """Return a reader limited to the claims of an operator selected during release; Unproved if a text exceeds them."""
    reader = Reader.over(read)
    if reader.hold is None:
        return reader
    exact, prove = reader.hold(operator)
    return replace(reader, exact=exact, prove=prove)


def add_salt(read: Read, texts: Iterable[str], entropy: Entropy) -> Reader:
    """Return a reader that replaces every :data:`SALT` by one fresh secret integer of 63 bits.

    A plan is a fixed text, but rows, groups and blocks are chosen by a hash of the privacy unit and of a secret salt
    that changes with every release. All texts of a release get the same salt, so that equal hashes agree; a reader that
    has a salt keeps it. If no text can contain a salt, no entropy is used.

    Mix the salt in *before* hashing: ``hash(xor(hash(unit), salt))``. DuckDB combines the hashes of several arguments
    by a multiplication and an exclusive or, so ``hash(unit, salt) % m`` (m a power of two) gives the same blocks,
    renumbered, under every salt, and several rounds would give one and the same partition.
    """
    reader, name = Reader.over(read), SALT.removeprefix("$")
    if name in reader.values or not any(SALT in text or SHARED_PREFIX in text for text in texts):
        return reader
    return bind_parameters(reader, {name: int(entropy.words(1)[0]) >> 1})


# -- claims -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SumsClaim:
    """The claim that a text returns one row per group of ``keys``, and that ``columns`` move within their noise's sensitivity.

    ``selected``: a separate mechanism selects the groups; otherwise the groups must be public.
    """

    keys: tuple[str, ...]
    columns: tuple[tuple[str, SensitivityClaim], ...]
    selected: bool = False


@dataclass(frozen=True)
class ScoresClaim:
    """The claim that one privacy unit moves no candidate's score by more than ``most``.

    Args:
        most: the sensitivity that is charged.
        rows: the most rows of one unit that move a score.
        clipped: whether some statistics clamp values.
        own: the column of each candidate's own sensitivity, if they differ.
        moves: the greatest decrease and increase of each statistic by one row, if scores are no plain sums.
        apart: pairs of statistics without common rows.
        monotone: whether a row moves all scores in the same direction.
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
        rows, groups: the most rows of a unit in a group, and the most groups of a unit.
        within: columns clamped to a greatest absolute value.
        moves: sums, with each one's sensitivity to one row.
        each: a column of public candidates; a unit's rows may count for each of them.
        scores: the claim about the candidates' scores.
        in_all: whether ``rows`` covers all groups together; a unit may then be in as many groups as it has rows.
        any_function: whether the mechanism needs no sensitivity; sums may then lack ``moves`` and ``scores``.
        limit: the text's final LIMIT, if the operator discards results that reach it.
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
    """Any function, per block: each row is computed from the rows with its number in ``column``, a unit is in ``most`` blocks.

    ``most`` is None if a separate text counts the blocks of a unit (:class:`ParticipationClaim`).
    """

    column: str
    most: int | None = 1


@dataclass(frozen=True)
class ParticipationClaim:
    """The greatest number of blocks of any privacy unit."""


@dataclass(frozen=True)
class PublicClaim:
    """The claim that a text reads nothing private."""


@dataclass(frozen=True)
class RouteClaim:
    """The claim that a text only selects between routes that release the same distribution (ranges, row counts, bins)."""


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
    """A text, its claim, and the private relations that the operator adds to it.

    ``late``: it belongs to a faster route, and is proved when it is read instead of before payment. ``periods``: those that
    pay for it, with a budget per period; None for all. Its block sets them: until then it may read no private row.
    """

    text: str
    claim: Claim
    lent: Mapping[str, LentTotals | Sequence[str]] = field(default_factory=dict)
    late: bool = False
    periods: Days | None = ()


# -- operators --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Release:
    """A mechanism's release, public from here on.

    Args:
        table: the released columns; the interval of column ``a`` is in the double columns ``a__low`` and ``a__high``
            (NULL for a value without). The order of rows depends only on released values (sorted by key, by candidate,
            or by rank of a private choice).
        event: the event actually used: the reserved one, or a cheaper one if hits were not found.
        notes: sentences shown with the answer.
        noisy: the noisy integers behind the columns, if the operator can show them again at another confidence.
    """

    table: pa.Table
    event: Event
    notes: tuple[str, ...] = ()
    noisy: pa.Table | None = None


MEAN_ROWS = (1_000, 10_000, 100_000)
"""Rows of the group for which the error of a mean is stated: it falls as they grow."""


@dataclass(frozen=True)
class ErrorBasis:
    """The row counts for which errors are stated, and the kind of error.

    Errors that depend on a group's rows are stated for each assumed number in ``rows``, or are read from the intervals
    of a ``release``. With neither, only those that public numbers determine are stated.

    With a ``confidence``, errors are half widths at ``factor`` times the operator's epsilon (delta unchanged); without
    one, they are expected absolute errors.
    """

    rows: tuple[int, ...] = ()
    release: Release | None = None
    confidence: float | None = None
    factor: Fraction = Fraction(1)

    def of(self, noise: Noise) -> float:
        """Return the error of noise, in grid steps."""
        if self.confidence is None:
            return noise.mean_error
        return noise.rescale(self.factor).half_width(self.confidence)


@dataclass(frozen=True)
class ExpectedError:
    """The error of a released column, ``±error``, in units of the column or in ranks.

    ``rows``: the number of rows it assumes; None if it depends on none. ``condition``: a further assumption.
    """

    name: str
    error: float
    rows: int | None = None
    condition: str = ""

    @property
    def label(self) -> str:
        """The name with the assumptions."""
        return f"{self.name}{'' if self.rows is None else f', of {self.rows:,} rows'}{self.condition}"


class TextReader(ABC):
    """Has texts that read exact relations, and provides relations to them."""

    @property
    @abstractmethod
    def queries(self) -> tuple[str, ...]:
        """The exact SQL that EXPLAIN shows."""

    @property
    def checked(self) -> tuple[str, ...]:
        """The texts that are bound before payment: all that it may read without a faster route."""
        return self.queries

    @property
    def apart(self) -> tuple[str, ...]:
        """Its texts that run away from the private data, over relations it provides."""
        return ()

    @property
    def provides(self) -> Mapping[str, Columns]:
        """Relations that it provides to its texts."""
        return {}


class Operator(TextReader):
    """A mechanism applied to exact relations: printable, comparable, storable.

    Required members are abstract; the others default to the simplest mechanism.

    Conventional fields of operators and of their parts:

    Args:
        query, values: the exact SQL.
        keys: names of the grouping columns.
        name: the released column.
        epsilon: for all groups of a unit together.
        rows: the most rows of one privacy unit that count in a group.
        groups: the most groups of one privacy unit.
        in_all: whether ``rows`` covers all groups together; then ``groups`` is 1.
        steps: grid steps to a unit of the column.
        confidence: level of the intervals.
    """

    prepaid: ClassVar[bool] = False
    """Whether an earlier statement reserved the whole cost."""
    finds_cap: ClassVar[bool] = False
    """Whether it finds a cap privately."""

    confidence: float | None = None
    """The level of its intervals; None if it has none."""

    @property
    @abstractmethod
    def event(self) -> Event: ...

    @property
    def divides(self) -> bool:
        """Whether its rows, and its stored integers, are of public groups whose releases are independent of each other."""
        return False

    @property
    def threshold_name(self) -> str:
        """The open threshold that it asks; empty if none."""
        return ""

    @property
    def can_show_again(self) -> bool:
        """Whether :meth:`show_again` works; some intervals need more than is stored."""
        return False

    def claims(self) -> Iterable[ClaimedText]:
        """Yield every text that may be read, except those run apart, with its claim; PrivacyError if these are unknown."""
        raise PrivacyError("this statement states no bounds on its reads, so it can't be checked.")

    def require_libraries(self) -> None:
        """Import what a release needs besides this package, so that an ImportError precedes payment."""

    @abstractmethod
    def release(self, read: Read, entropy: Entropy) -> Release:
        """Read the exact relations and add the noise. Failures that depend on the data are values, not exceptions."""

    def show_again(self, released: pa.Table, noisy: pa.Table | None) -> pa.Table:
        """Return the released columns with intervals at this confidence, by post-processing; ValueError if impossible."""
        raise ValueError("the intervals of this release can't be made again")

    def find_filled(self, release: Release, keys: tuple[str, ...], doubt: float) -> Booleans | None:
        """Return which groups of a release differ significantly from a group without rows; None if no number shows it.

        Args:
            release: of this operator.
            keys: the columns made of ranges; rows grouped by none of them are always kept.
            doubt: the probability, at most, that any group without rows is found.
        """
        return None

    @abstractmethod
    def sentences(self, confidence: float) -> tuple[str, ...]:
        """Describe noise, scale and expected error for EXPLAIN, from public quantities only."""

    def errors(self, basis: ErrorBasis) -> Iterable[ExpectedError]:
        """Yield the errors of released columns, as far as ``basis`` and public numbers determine them."""
        return ()

    @property
    def price_notes(self) -> tuple[str, ...]:
        """The parts of its price that don't pay for answers, in words."""
        return ()


def list_claims(operator: object) -> tuple[ClaimedText, ...]:
    """Return every text that an operator may read, except those run apart, with its claim."""
    return tuple(operator.claims() if isinstance(operator, Operator) else Operator.claims(operator))  # type: ignore[arg-type]
