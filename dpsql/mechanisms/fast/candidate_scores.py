"""One statistic for each of many candidates, out of histograms: prefix sums in memory, whatever their number.

The private rows are scanned once. Where they are on this machine and the candidates' thresholds lie close, the column
that is compared is counted as it streams by; else the engine gives, for every distinct value x, the number of rows and
the sum of what is added. Then ``COUNT(*) FILTER (WHERE x >= c.v)``, ranges, equality and ``SUM(LEAST(x, c.b))`` are
differences of running sums: exact, in integers.

Comparisons are DuckDB's: integers and decimals (as integers of the finer scale), doubles (NaN is the greatest value and
equal to itself) and dates. For other types :meth:`Sweep.score` says None, and the statistic comes from SQL; this
depends on types only, never on values. Which route the histogram takes depends on the thresholds, which are public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.mechanisms.base import Read, room_of
from dpsql.mechanisms.estimators import exact_integers
from dpsql.mechanisms.fast.stream_counts import streamed, tallied
from dpsql.numerics.integers import SAFE, Integers, integers, largest, plus, times

ORD = "dpsql_ord"
"""The candidates' column of their place."""
BASE = "dpsql_base"
"""The candidates' column of what is added to every score."""
SCORE, LEVEL, MOVES = "dpsql_score", "dpsql_threshold", "dpsql_sensitivity"
"""Columns that queries put beside the candidates' own: the statistic, and each candidate's threshold and sensitivity."""
_SAFE = 1 << 61
_INT64 = (1 << 63) - 1
LOWER = (">", ">=")
"""Operators between x and a bound from below."""
AFTER = (">", "<=")
"""Those for which x is on the lower side of the bound where it is equal to it."""


_SOME = 1 << 15
"""Rows that say whether most doubles differ."""

MOST = 1 << 22
"""Bins that are held here; where there are more, the engine joins them with the candidates."""


@dataclass(frozen=True)
class Public:
    """A public integer of each candidate: ``times`` its ``column``, which is held to ``[low, high]``; NULL is 0.

    Without a column it is ``times`` for all.
    """

    times: int
    column: str | None = None
    low: int = 0
    high: int = 0

    def of(self, table: pa.Table) -> Integers | int:
        if self.column is None:
            return self.times
        held = _whole(table.column(self.column))
        if len(held) and not (self.low <= int(held.min()) and int(held.max()) <= self.high):
            held = np.clip(held, self.low, self.high)
        return held if self.times == 1 else np.asarray(times(held, self.times))


@dataclass(frozen=True)
class Counted:
    """What is asked of the private rows.

    ``query`` gives the distinct ``x``, how many rows have it ``n`` and, unless rows are counted, the sum of ``v``.
    ``column``, where there is one, gives the x of every row, of which only counts are wanted. Either may be scaled:
    ``digits`` places of a decimal were made whole. ``least``: x is held to it from below (in a clipped sum). ``doubles``: the
    column has these, and else integers or dates.
    """

    query: str
    column: str | None = None
    digits: int = 0
    least: int | None = None
    doubles: bool = False

    @property
    def limited(self) -> str:
        """The query, of which no more rows come than are held here."""
        return f"SELECT * FROM ({self.query}) AS histogram LIMIT {MOST + 1}"


@dataclass(frozen=True)
class Swept:
    """``factor * aggregate`` of a candidate.

    ``histogram`` is the place of what is counted. ``bounds`` are pairs of an operator (``x op column``) and a column;
    ``clip`` is the column b of ``SUM(LEAST(x, b))``. ``row``: how far one row moves the aggregate.
    """

    histogram: int
    factor: Public
    bounds: tuple[tuple[str, str], ...] = ()
    clip: str | None = None
    row: int = 1

    def moved(self, factor: Integers | int) -> Integers | int:
        """How far one row moves candidates of these factors."""
        size: Integers | int = abs(factor) if isinstance(factor, int) else np.abs(factor)
        moved: Integers | int = times(size, self.row)
        return moved


@dataclass(frozen=True)
class Scored:
    """Candidates as they came, their places in their order, and their exact statistic."""

    table: pa.Table
    places: Integers
    scores: Integers
    sensitivities: Integers | None = None

    @property
    def order(self) -> NDArray[np.intp] | None:
        """Where the candidates in order are; None where they came so."""
        if bool((self.places[1:] > self.places[:-1]).all()):
            return None
        return np.argsort(self.places, kind="stable")


@dataclass(frozen=True)
class Sweep:
    """The queries of the candidates and of the histograms, and how they come together.

    ``lent`` says which lent relation has the candidates, and which of its columns are the query's, where the query does
    nothing but choose columns. ``rows``: rows of one unit, in the sensitivities of candidates that differ.
    """

    candidates: str
    histograms: tuple[Counted, ...]
    terms: tuple[Swept, ...]
    base: str | None = None
    lent: tuple[str, tuple[str, ...]] | None = None
    rows: int = 1

    @property
    def queries(self) -> tuple[str, ...]:
        columns = (h.column for h in self.histograms if h.column is not None)
        return (self.candidates, *(h.query for h in self.histograms), *columns)

    def score(self, read: Read, varying: bool = False) -> Scored | None:
        """The candidates with their scores; None for types that are not compared here, and where a histogram has more
        than :data:`MOST` bins. ``varying``: with their own sensitivities.
        """
        met = self.met(read)
        if met is None:
            return None
        table, ends = met
        runs: list[Running] = []
        for i, counted in enumerate(self.histograms):
            mine = [ends[c] for t in self.terms if t.histogram == i for c in _columns(t)]
            column = counted.column
            run = (
                None
                if column is None
                else _dense(counted, column, mine, read) or _sorted(counted, column, read)
            )
            if run is None:
                found = read(counted.limited)
                kind = found.schema.field("x").type  # decimals hold HUGEINTs here, which may not fit 64 bits
                if found.num_rows > MOST or not _comparable(kind) or _decimal(kind):
                    return None
                run = _sparse(counted, found)
            if not all(run.meets(end) for end in mine):
                return None
            runs.append(run)
        return self.scored(table, ends, runs, varying)

    def met(self, read: Read) -> tuple[pa.Table, Mapping[str, End]] | None:
        """The candidates, and their thresholds by column; None for types that are not compared here."""
        table = self._candidates(read)
        ends = self.ends(table)
        return None if ends is None else (table, ends)

    def ends(self, table: pa.Table) -> Mapping[str, End] | None:
        names = dict.fromkeys(c for t in self.terms for c in _columns(t))
        ends = {name: end for name in names if (end := End.of(table.column(name))) is not None}
        return None if len(ends) < len(names) else ends

    def scored(self, table: pa.Table, ends: Mapping[str, End], runs: list[Running], varying: bool) -> Scored:
        """The statistic of candidates whose thresholds are ``ends``, out of what was counted for each histogram."""
        score: Integers | int = 0 if self.base is None else exact_integers(table.column(self.base))
        own: Integers | int = 0
        for term in self.terms:
            factor = term.factor.of(table)
            score = plus(score, times(factor, _aggregate(term, runs[term.histogram], ends)))
            own = plus(own, term.moved(factor)) if varying else own
        places, size = exact_integers(table.column(ORD)), table.num_rows
        mine = self.moved(_spread(own, size)) if varying else None
        return Scored(table, places, _spread(score, size), mine)

    def moved(self, rows: Integers | int) -> Integers:
        """How far one unit moves candidates that one row moves so far: a step at least."""
        return _spread(times(np.maximum(np.atleast_1d(rows), 1), self.rows), 0)

    def _candidates(self, read: Read) -> pa.Table:
        if self.lent is not None:
            name, columns = self.lent
            here: pa.Table | None = getattr(read, "lent", {}).get(name)
            if here is not None and all(_plainly(here.schema.field(c).type) for c in columns):
                return here.select(columns)
        return read(self.candidates)


def _aggregate(term: Swept, run: Running, found: Mapping[str, End]) -> Integers | int:
    if term.clip is not None:
        return run.clipped(found[term.clip])
    if not term.bounds:
        return run.total
    ends = [(op, found[name]) for op, name in term.bounds]
    low = high = None
    for op, end in ends:
        if op == "=":
            low, high = run.place(end, after=False), run.place(end, after=True)
        elif op in LOWER:
            low = run.place(end, after=op in AFTER)
        else:
            high = run.place(end, after=op in AFTER)
    score: Integers
    if high is None:
        score = run.total - run.sums[low]
    elif low is None:
        score = run.sums[high]
    else:  # an empty range, whose ends may stand in any order, holds nothing
        score = np.where(low < high, run.sums[high] - run.sums[low], 0)
    for _, end in ends:
        if end.missing is not None:
            score = np.where(end.missing, 0, score)
    return score


def _columns(term: Swept) -> tuple[str, ...]:
    return (*(name for _, name in term.bounds), *((term.clip,) if term.clip is not None else ()))


def _comparable(kind: pa.DataType) -> bool:
    if pa.types.is_integer(kind):
        return bool(kind != pa.uint64())
    return kind in (pa.float64(), pa.date32(), pa.null()) or _decimal(kind)


def _decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision)


def _plainly(kind: pa.DataType) -> bool:
    """Whether a lent column comes back from the engine as it is."""
    plain = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind)
    return bool(plain or kind in (pa.float64(), pa.date32()) or _decimal(kind))


@dataclass(frozen=True)
class End:
    """Thresholds: doubles, or integers of ``scale`` places (NULL: any number)."""

    values: NDArray[Any]
    scale: int = 0
    missing: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> End | None:
        """None for what is not compared here: other types, and decimals beyond 64 bits."""
        if not _comparable(column.type):
            return None
        scale = column.type.scale if _decimal(column.type) else 0
        values = _unscaled(column) if _decimal(column.type) else _plain(column)
        if values is None or not column.null_count:
            return None if values is None else cls(values, scale)
        missing = column.is_null().to_numpy()
        there = values[~missing]
        return cls(np.where(missing, there[0] if len(there) else 0, values), scale, missing)

    @property
    def floats(self) -> bool:
        return self.values.dtype.kind == "f"

    def edge(self, digits: int, after: bool) -> NDArray[np.int64]:
        """Integers that a value, with ``digits`` places made whole, is below (``after``: is at most) exactly if it is
        below the threshold (at most it)."""
        if self.scale <= digits:
            times = 10 ** (digits - self.scale)
            # A decimal whose places are made whole has 15 digits: what is held back here is beyond all of them.
            return self.values if times == 1 else np.clip(self.values, -SAFE // times, SAFE // times) * times
        by = 10 ** (self.scale - digits)
        if by > _INT64:  # less than one
            return np.where(self.values < 0, -1, 0) if after else np.where(self.values > 0, 1, 0)
        return np.asarray(self.values // by if after else -(-self.values // by), dtype=np.int64)


@dataclass(frozen=True)
class Running:
    """The values in order, and sums over those before each (and over all): of what is added, and of rows.

    ``first``: the values are ``first``, ``first + 1``, ..., with what lies beyond counted at the ends.
    """

    x: NDArray[Any]
    sums: Integers
    counts: Integers
    digits: int
    first: int | None = None

    @classmethod
    def dense(cls, counts: NDArray[np.int64], low: int, digits: int) -> Running:
        """How often each of ``low``, ``low + 1``, ... occurs."""
        return replace(cls.of(np.arange(low, low + len(counts)), counts, digits), first=low)

    @classmethod
    def of(cls, x: NDArray[Any], counts: NDArray[np.int64], digits: int = 0) -> Running:
        """How many rows have each of these values, which are in order."""
        sums = _cumulative(counts)
        return cls(x, sums, sums, digits)

    @property
    def total(self) -> int:
        return int(self.sums[-1])

    @property
    def floats(self) -> bool:
        return bool(self.x.dtype.kind == "f")

    def meets(self, end: End) -> bool:
        """Whether such thresholds are compared with the values as the engine would."""
        return not end.scale if self.floats else not (self.digits and end.floats)

    def place(self, end: End, after: bool) -> NDArray[np.intp]:
        """How many of the values are below each threshold, or at most it (``after``). NULL: anything."""
        side: Literal["left", "right"] = "right" if after else "left"
        if self.floats or end.floats:
            x, found = self.x.astype(np.float64), end.values.astype(np.float64)
            return np.asarray(np.searchsorted(x, found, side), dtype=np.intp)
        edge, size = end.edge(self.digits, after), len(self.x)
        if self.first is not None:
            return _from(edge, self.first, size, after)
        if not size or int(self.x[-1]) - int(self.x[0]) >= 4 * size + (1 << 16):
            return np.asarray(np.searchsorted(self.x, edge, side), dtype=np.intp)
        first, width = int(self.x[0]), int(self.x[-1]) - int(self.x[0]) + 1
        table = np.zeros(width + 1, dtype=np.intp)  # table[k]: how many values are below first + k
        table[self.x - first + 1] = 1
        np.cumsum(table, out=table)
        return np.asarray(table[_from(edge, first, width, after)], dtype=np.intp)

    def clipped(self, end: End) -> Integers:
        """The sum of the values, each held to at most b (b NULL: 0): values are integers here."""
        at = self.place(end, after=True)
        weighed = _cumulative(times(integers(self.x), integers(self.counts[1:] - self.counts[:-1])))
        beyond = integers(self.counts[-1] - self.counts[at])
        score: Integers = plus(integers(weighed[at]), times(end.values, beyond))
        return score if end.missing is None else np.where(end.missing, 0, score)


def _from(edge: NDArray[np.int64], first: int, width: int, after: bool) -> NDArray[np.intp]:
    """How many of ``first``, ``first + 1``, ... (``width`` of them) are below each edge, or at most it (``after``)."""
    near = np.clip(edge, max(first - 1, -_INT64 - 1), min(first + width, _INT64)) - first
    return np.clip(near + 1 if after else near, 0, width)


def span(counted: Counted, ends: list[End]) -> tuple[int, int] | None:
    """The integers between which all thresholds lie; None where they can't be counted one by one."""
    if counted.doubles or not ends or any(end.floats or not len(end.values) for end in ends):
        return None
    low = min(int(end.edge(counted.digits, after=False).min()) for end in ends) - 1
    high = max(int(end.edge(counted.digits, after=True).max()) for end in ends) + 1
    if counted.least is not None:
        low, high = counted.least, max(counted.least, high)
    return None if max(-low, high) >= SAFE else (low, high)


def _dense(counted: Counted, text: str, ends: list[End], read: Read) -> Running | None:
    """From the column itself, where all thresholds are near each other."""
    between = span(counted, ends)
    counts = None if between is None else tallied(read, text, *between)
    return None if between is None or counts is None else Running.dense(counts, between[0], counted.digits)


def _sorted(counted: Counted, text: str, read: Read) -> Running | None:
    """From the column itself, where its doubles mostly differ: there would be as many groups as rows, nearly."""
    room = 8 * room_of(read) if counted.doubles else 0
    held: list[NDArray[Any]] = []
    for values in streamed(read, text, doubles=True) if room else ():
        some, room = values[:_SOME], room - values.nbytes
        if room < 0 or (not held and 2 * len(np.unique(some)) < len(some)):
            return None
        held.append(values)
    if not held:
        return None
    x = np.concatenate(held)
    x.sort()
    sums = np.arange(len(x) + 1)
    return Running(x, sums, sums, 0)


def _sparse(counted: Counted, table: pa.Table) -> Running:
    x, n = _plain(table.column("x")), exact_integers(table.column("n"))
    v = exact_integers(table.column("v")) if "v" in table.column_names else n
    order = _order(x)
    return Running(x[order], _cumulative(v[order]), _cumulative(n[order]), counted.digits)


def _plain(column: pa.ChunkedArray) -> NDArray[Any]:
    if column.type == pa.date32():
        column = column.cast(pa.int32())
    if pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.int64)
    values = (pc.fill_null(column, 0) if column.null_count else column).to_numpy()
    return np.asarray(values, dtype=np.float64 if pa.types.is_floating(column.type) else np.int64)


def _whole(column: pa.ChunkedArray) -> Integers:
    return _plain(column) if pa.types.is_integer(column.type) else exact_integers(column)


def _unscaled(column: pa.ChunkedArray) -> NDArray[np.int64] | None:
    """The integers behind decimals (NULL: anything); None where they need more than 64 bits."""
    out = np.zeros(len(column), dtype=np.int64)
    at = 0
    for chunk in column.chunks:
        if chunk.null_count:
            chunk = pc.fill_null(chunk, pa.scalar(0, chunk.type))
        raw = np.frombuffer(chunk.buffers()[1], dtype=np.int64)[2 * chunk.offset :][: 2 * len(chunk)]
        if bool((raw[0::2] >> 63 != raw[1::2]).any()):
            return None
        out[at : at + len(chunk)] = raw[0::2]
        at += len(chunk)
    return out


def _order(x: NDArray[Any]) -> NDArray[np.intp]:
    if x.dtype == np.int64 and len(x) and int(x.max()) - int(x.min()) < 4 * len(x) + (1 << 16):
        place = np.full(
            int(x.max()) - int(x.min()) + 1, -1, dtype=np.intp
        )  # distinct and close: no need to sort
        place[x - x.min()] = np.arange(len(x))
        return place[place >= 0]
    return np.argsort(x, kind="stable")


def _cumulative(v: Integers) -> Integers:
    """Sums before each place, and the whole."""
    wide = v.dtype == object or largest(v) * len(v) >= _SAFE
    out = np.zeros(len(v) + 1, dtype=object if wide else np.int64)
    np.cumsum(v.astype(object) if wide else v, out=out[1:])
    return out


def _spread(v: Integers | int, size: int) -> Integers:
    if not isinstance(v, int):
        return v
    return np.full(size, v, dtype=np.int64 if abs(v) < _SAFE else object)
