"""One statistic for each of many candidates, out of histograms: prefix sums in memory, whatever their number.

The engine scans the private rows once and gives, for every distinct value x, the number of rows and the sum of what is
added; the candidates come beside it. Then ``COUNT(*) FILTER (WHERE x >= c.v)``, ranges, equality and
``SUM(LEAST(x, c.b))`` are differences of running sums, looked up by bisection: exact, in integers.

Comparisons are DuckDB's: integers, doubles (NaN is the greatest value and equal to itself) and dates. For other types
:meth:`Sweep.score` says None, and the statistic comes from SQL; this depends on types only, never on values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.mechanisms.base import Read
from dpsql.mechanisms.outputs import exact_integers
from dpsql.mechanisms.perturbation import Integers, integers

BASE = "dpsql_base"
"""The candidates' column of what is added to every score."""

_SAFE = 1 << 61
_LOWER, _UPPER = (">", ">="), ("<", "<=")


MOST = 1 << 22
"""Bins that are held here; where there are more, the engine joins them with the candidates."""


@dataclass(frozen=True)
class Swept:
    """``factor * aggregate`` of a candidate.

    ``histogram`` is the place of the query that gives ``x``, ``n`` and, unless rows are counted, ``v``. ``factor`` is a
    column of the candidates. ``bounds`` are pairs of an operator (``x op column``) and a column; ``clip`` is the column
    b of ``SUM(LEAST(x, b))``.
    """

    histogram: int
    factor: str
    bounds: tuple[tuple[str, str], ...] = ()
    clip: str | None = None


@dataclass(frozen=True)
class Sweep:
    """The queries of the candidates and of the histograms, and how they come together."""

    candidates: str
    histograms: tuple[str, ...]
    terms: tuple[Swept, ...]

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.candidates, *self.histograms)

    def score(self, texts: list[str], read: Read) -> pa.Table | None:
        """The candidates with their ``score``; None for types that are not compared here, and where a histogram has more
        than :data:`MOST` bins. ``texts``: salted queries."""
        table = read(texts[0])
        if not all(_comparable(table.schema.field(c).type) for t in self.terms for c in _columns(t)):
            return None
        runs: list[_Running] = []
        for text in texts[1:]:
            found = read(f"SELECT * FROM ({text}) AS histogram LIMIT {MOST + 1}")
            if found.num_rows > MOST or not _comparable(found.schema.field("x").type):
                return None
            runs.append(_Running(found))
        score = exact_integers(table.column(BASE))
        for term in self.terms:
            factor = exact_integers(table.column(term.factor))
            score = _added(score, _times(factor, self._aggregate(term, runs[term.histogram], table)))
        kind = pa.int64() if score.dtype != object else pa.decimal128(38, 0)
        return table.append_column(
            "score", pa.array(score if score.dtype != object else score.tolist(), kind)
        )

    def _aggregate(self, term: Swept, run: _Running, table: pa.Table) -> Integers:
        if term.clip is not None:
            return run.clipped(table.column(term.clip))
        if not term.bounds:
            return np.full(table.num_rows, run.total, dtype=np.int64 if abs(run.total) < _SAFE else object)
        ends = [(op, table.column(name)) for op, name in term.bounds]
        known = np.ones(table.num_rows, dtype=bool)
        for _, column in ends:
            known &= ~column.is_null().to_numpy()
        low = high = None
        for op, column in ends:
            if op == "=":
                low, high = run.place(column, after=False), run.place(column, after=True)
            elif op in _LOWER:
                low = run.place(column, after=op == ">")
            else:
                high = run.place(column, after=op == "<=")
        first = np.zeros(table.num_rows, dtype=np.intp) if low is None else low
        last = np.full(table.num_rows, run.size, dtype=np.intp) if high is None else high
        # An empty range, whose ends may stand in any order, holds nothing.
        return np.where(known & (first < last), run.sums[last] - run.sums[first], 0)


def _columns(term: Swept) -> tuple[str, ...]:
    return (*(name for _, name in term.bounds), *((term.clip,) if term.clip is not None else ()))


def _comparable(kind: pa.DataType) -> bool:
    if pa.types.is_integer(kind):
        return bool(kind != pa.uint64())
    return kind in (pa.float64(), pa.date32(), pa.null())


class _Running:
    """The distinct values in order, and what lies before each."""

    def __init__(self, table: pa.Table) -> None:
        column = table.column("x")
        x, n = _plain(column), exact_integers(table.column("n"))
        v = exact_integers(table.column("v")) if "v" in table.column_names else n
        order = _order(x)
        self.floats = pa.types.is_floating(column.type)
        self.x, self.size = x[order], len(x)
        self.sums, self.counts = _cumulative(v[order]), _cumulative(n[order])
        self.total = int(self.sums[-1])

    def place(self, column: pa.ChunkedArray, after: bool) -> NDArray[np.intp]:
        """How many of the values are below each threshold, or at most it (``after``). NULL: anything."""
        found = _plain(column)
        x = self.x
        if self.floats or pa.types.is_floating(column.type):
            x, found = x.astype(np.float64), found.astype(np.float64)
        side = "right" if after else "left"
        if x.dtype == np.int64 and self.size and int(x[-1]) - int(x[0]) < 4 * self.size + (1 << 16):
            return self._dense(found, after)
        return np.searchsorted(x, found, side)  # type: ignore[call-overload,no-any-return]

    def _dense(self, found: NDArray[Any], after: bool) -> NDArray[np.intp]:
        """Bisection by a table, where values lie close."""
        first, width = int(self.x[0]), int(self.x[-1]) - int(self.x[0]) + 1
        table = np.zeros(width + 2, dtype=np.intp)
        table[self.x - first + 1] = 1
        np.cumsum(table, out=table)  # table[k]: how many values are below first + k
        held = np.clip(found, first - 1, first + width)
        return np.asarray(table[np.clip(held - first + (1 if after else 0), 0, width)])

    def clipped(self, column: pa.ChunkedArray) -> Integers:
        """The sum of the values, each held to at most b (b NULL: 0): values are integers here, counted in ``n``."""
        b = exact_integers(column)
        at = self.place(column, after=True)
        weighed = _cumulative(_times(integers(self.x), integers(self.counts[1:] - self.counts[:-1])))
        beyond = integers(self.counts[-1] - self.counts[at])
        score = _added(integers(weighed[at]), _times(b, beyond))
        return np.where(column.is_null().to_numpy(), 0, score)


def _plain(column: pa.ChunkedArray) -> NDArray[Any]:
    if column.type == pa.date32():
        column = column.cast(pa.int32())
    if pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.int64)
    values = pc.fill_null(column, 0).to_numpy()
    return np.asarray(values, dtype=np.float64 if pa.types.is_floating(column.type) else np.int64)


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
    wide = v.dtype == object or (len(v) and int(np.abs(v).max()) * len(v) >= _SAFE)
    out = np.zeros(len(v) + 1, dtype=object if wide else np.int64)
    out[1:] = np.cumsum(v.astype(object) if wide else v)
    return out


def _most(v: Integers) -> int:
    return max(abs(int(v.max())), abs(int(v.min()))) if len(v) else 0


def _times(a: Integers, b: Integers) -> Integers:
    if _most(a) * _most(b) >= _SAFE or object in (a.dtype, b.dtype):
        return np.asarray(a.astype(object) * b.astype(object))
    return a * b


def _added(a: Integers, b: Integers) -> Integers:
    if _most(a) + _most(b) >= _SAFE or object in (a.dtype, b.dtype):
        return integers(a.astype(object) + b.astype(object))
    return a + b
