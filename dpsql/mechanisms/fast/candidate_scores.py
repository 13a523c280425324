"""One statistic for each of many candidates out of histograms, and the few candidates that may win.

Scores: the private rows are scanned once. Where they are on this machine and the candidates' thresholds lie close, the
compared column is counted as it streams by; else the engine gives, for every distinct value x, the number of rows and the
sum of what is added. Then ``COUNT(*) FILTER (WHERE x >= c.v)``, ranges, equality and ``SUM(LEAST(x, c.b))`` are
differences of running sums: exact, in integers. Whether the route is taken depends on types only, never on values.

Pruning: the number of rows at or above a threshold falls as the threshold rises. So the counts at the ends of a cell of
neighbouring integers (:mod:`dpsql.mechanisms.fast.column_counts`) bound every candidate whose threshold is in it. Some
dozen neighbours at a time are bounded so; with the range of their factors, these are bounds of their utilities from both
sides. Candidates are far that would not be near the best at their upper bounds, were the best at its lower bound.

The law of the choice is the one that all exact utilities give. :class:`~dpsql.noise.selection.CandidateGaps` holds the
exact gaps of near candidates; of the others that they are farther than its reach, which is proved here; and the exact gap
of any that a draw falls on, for which every integer is counted. Far ones are proposed, or tossed for, with a chance no
smaller than theirs, and kept with the exact ratio. So rough counts only change the time that a choice takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, reduce

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.mechanisms.base import Claim, ClaimedText, PublicClaim, Reader, RowsClaim
from dpsql.mechanisms.fast import FastRoute
from dpsql.mechanisms.fast.column_counts import (
    MAX_BINS,
    BinnedColumn,
    HistogramQuery,
    PrefixSums,
    Thresholds,
    accumulate,
    bin_column,
    count_column,
    find_span,
    is_comparable,
    is_decimal,
    read_numbers,
    stream_column,
)
from dpsql.mechanisms.selection.generalised_exponential import (
    ChoiceRates,
    EqualNearness,
    GroupBounds,
    Nearness,
    UnequalNearness,
    compute_spread,
)
from dpsql.mechanisms.selection.utility_forms import Linear, UtilityForm
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import FEW_CANDIDATES, CandidateGaps
from dpsql.numerics.exact_numbers import Integers, add_integers, multiply_integers, read_integers

CANDIDATE_PLACE = "dpsql_ord"
"""The candidates' column of their place."""
CANDIDATE_BASE = "dpsql_base"
"""The candidates' column of a number that is added to every score."""
CANDIDATE_SCORE, CANDIDATE_THRESHOLD = "dpsql_score", "dpsql_threshold"
CANDIDATE_SENSITIVITY = "dpsql_sensitivity"
"""Columns that queries put beside the candidates' own: the statistic, and each candidate's threshold and sensitivity."""


_LOWER = (">", ">=")
"""Operators between x and a bound from below."""
_AFTER = (">", "<=")
"""Operators for which an x equal to the bound is on its lower side."""
_SAFE = 1 << 61
_SOME = 1 << 15
"""Rows that show whether most doubles differ."""
_TOGETHER = 1 << 6  # candidates that are near, or far, together
_CLOSE = 8
"""The multiple of evenly spread thresholds' distance up to which neighbours are still close."""


# -- scores -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CandidateFactor:
    """A public integer of each candidate: ``times`` its ``column``, which is held to ``[low, high]``; NULL is 0.

    Without a column it is ``times`` for all.
    """

    times: int
    column: str | None = None
    low: int = 0
    high: int = 0

    def of(self, table: pa.Table) -> Integers | int:
        """Return the factors of the candidates in a table."""
        if self.column is None:
            return self.times
        column = table.column(self.column)
        held = read_numbers(column) if pa.types.is_integer(column.type) else read_integers(column)
        if len(held) and not (self.low <= int(held.min()) and int(held.max()) <= self.high):
            held = np.clip(held, self.low, self.high)
        return held if self.times == 1 else np.asarray(multiply_integers(held, self.times))


@dataclass(frozen=True)
class ScoreTerm:
    """``factor * aggregate`` of a candidate.

    Args:
        histogram: the place of the histogram that is aggregated.
        factor: the public factor.
        bounds: pairs of an operator (``x op column``) and a column.
        clip: the column b of ``SUM(LEAST(x, b))``.
        row: how far one row moves the aggregate.
    """

    histogram: int
    factor: CandidateFactor
    bounds: tuple[tuple[str, str], ...] = ()
    clip: str | None = None
    row: int = 1

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of thresholds."""
        return (*(name for _, name in self.bounds), *((self.clip,) if self.clip is not None else ()))

    def bound_moves(self, factor: Integers | int) -> Integers | int:
        """Return how far one row moves candidates of these factors."""
        size = abs(factor) if isinstance(factor, int) else np.abs(factor)
        moved: Integers | int = multiply_integers(size, self.row)
        return moved

    def aggregate(self, run: PrefixSums, found: Mapping[str, Thresholds]) -> Integers | int:
        """Return the aggregate of every candidate."""
        if self.clip is not None:
            return run.clipped(found[self.clip])
        if not self.bounds:
            return run.total
        low = high = None
        for op, name in self.bounds:
            if op == "=":
                low, high = run.place(found[name], after=False), run.place(found[name], after=True)
            elif op in _LOWER:
                low = run.place(found[name], after=op in _AFTER)
            else:
                high = run.place(found[name], after=op in _AFTER)
        score: Integers
        if high is None:
            score = run.total - run.sums[low]
        elif low is None:
            score = run.sums[high]
        else:  # an empty range, whose ends may stand in any order, holds nothing
            score = np.where(low < high, run.sums[high] - run.sums[low], 0)
        for _, name in self.bounds:
            if (missing := found[name].missing) is not None:
                score = np.where(missing, 0, score)
        return score


@dataclass(frozen=True)
class ScoredCandidates:
    """Candidates as they came, their places in their order, and their exact statistic."""

    table: pa.Table
    places: Integers
    scores: Integers
    sensitivities: Integers | None = None

    @property
    def order(self) -> NDArray[np.intp] | None:
        """The permutation that puts the candidates in order; None where they came so."""
        if bool((self.places[1:] > self.places[:-1]).all()):
            return None
        return np.argsort(self.places, kind="stable")


@dataclass(frozen=True)
class CandidateScores(FastRoute[ScoredCandidates]):
    """The queries of the candidates and of the histograms, and the formula that joins them.

    Args:
        candidates: the query of the candidates.
        histograms: the queries of the histograms.
        terms: the formula; ``base`` is added to it.
        base: a column of the candidates.
        lent: the lent relation that has the candidates, with the query's columns, where it only chooses columns.
        rows: rows of one unit, in the sensitivities of candidates that differ.
        form: what puts the terms together, where that is no plain sum; then ``bases`` are columns of public numbers, and
            ``multiples`` the public factors of what is no sum.
    """

    candidates: str
    histograms: tuple[HistogramQuery, ...]
    terms: tuple[ScoreTerm, ...]
    base: str | None = None
    lent: tuple[str, tuple[str, ...]] | None = None
    rows: int = 1
    form: UtilityForm | None = None
    bases: tuple[str, ...] = ()
    multiples: tuple[CandidateFactor, ...] = ()

    @property
    def queries(self) -> tuple[str, ...]:
        columns = (h.column for h in self.histograms if h.column is not None)
        return (self.candidates, *(h.query for h in self.histograms), *columns)

    def claims(self, plain: Claim) -> Iterator[ClaimedText]:
        yield ClaimedText(self.candidates, PublicClaim())
        for place, counted in enumerate(self.histograms):
            moved = max((t.row for t in self.terms if t.histogram == place and t.clip is None), default=None)
            sums = (("v", moved),) if moved is not None and " AS v " in counted.query else ()
            claim = RowsClaim(self.rows, moves=(("n", 1), *sums))
            yield ClaimedText(counted.query, claim)
            yield ClaimedText(counted.limited, replace(claim, limit=counted.limit))
            if counted.column is not None:
                yield ClaimedText(counted.column, RowsClaim(self.rows))

    def take(self, read: Reader, entropy: Entropy, varying: bool = False) -> ScoredCandidates | None:
        """Return the candidates with their scores (``varying``: with their own sensitivities).

        None for types that are not compared here, and where a histogram has more than :data:`MAX_BINS` bins.
        """
        found = self.read_candidates(read)
        if found is None:
            return None
        table, ends = found
        runs: list[PrefixSums] = []
        for i, counted in enumerate(self.histograms):
            mine = [ends[c] for t in self.terms if t.histogram == i for c in t.columns]
            run = _count_dense(counted, mine, read) or _sort_doubles(counted, read)
            if run is None:
                histogram = read(counted.limited)
                # A HUGEINT comes as a decimal, which may not fit 64 bits.
                kind = histogram.schema.field("x").type
                if histogram.num_rows > MAX_BINS or not is_comparable(kind) or is_decimal(kind):
                    return None
                run = _sum_histogram(counted, histogram)
            if not all(run.is_comparable_with(end) for end in mine):
                return None
            runs.append(run)
        return self.score(table, ends, runs, varying)

    def read_candidates(self, read: Reader) -> tuple[pa.Table, Mapping[str, Thresholds]] | None:
        """Read the candidates, and their thresholds by column; None for types that are not compared here."""
        table = self._find_lent(read)
        table = read(self.candidates) if table is None else table
        ends = self.read_thresholds(table)
        return None if ends is None else (table, ends)

    def read_thresholds(self, table: pa.Table) -> Mapping[str, Thresholds] | None:
        """Read the thresholds of candidates by column; None for types that are not compared here."""
        names = dict.fromkeys(c for t in self.terms for c in t.columns)
        ends = {name: end for name in names if (end := Thresholds.of(table.column(name))) is not None}
        return None if len(ends) < len(names) else ends

    def score(
        self, table: pa.Table, ends: Mapping[str, Thresholds], runs: list[PrefixSums], varying: bool
    ) -> ScoredCandidates:
        """Compute the statistic of candidates with thresholds ``ends`` out of the counts of each histogram."""
        form = self.form or UtilityForm(Linear(tuple(range(len(self.terms)))), ())
        factors = [term.factor.of(table) for term in self.terms]
        found = [term.aggregate(runs[term.histogram], ends) for term in self.terms]
        terms = list(map(multiply_integers, factors, found))
        bases = [read_integers(table.column(name)) for name in self.bases]
        multiples = [factor.of(table) for factor in self.multiples]
        score: Integers | int = 0 if self.base is None else read_integers(table.column(self.base))
        score = add_integers(score, form.evaluate(terms, bases, multiples))
        places, size, mine = read_integers(table.column(CANDIDATE_PLACE)), table.num_rows, None
        if varying:
            moved = [term.bound_moves(factor) for term, factor in zip(self.terms, factors, strict=True)]
            own = reduce(add_integers, moved) if self.form is None else form.bound_own(moved, multiples)
            mine = self.bound_unit_moves(_spread(own, size))
        return ScoredCandidates(table, places, _spread(score, size), mine)

    def bound_unit_moves(self, rows: Integers | int) -> Integers:
        """Return how far one unit moves candidates that one row moves so far: a step at least."""
        return _spread(multiply_integers(np.maximum(np.atleast_1d(rows), 1), self.rows), 0)

    def _find_lent(self, read: Reader) -> pa.Table | None:
        """Return the candidates from the relation that is lent, where the engine would return it as it is."""
        if self.lent is None or (here := read.lent.get(self.lent[0])) is None:
            return None
        found = here.select(self.lent[1])
        return found if all(map(_is_unchanged, found.schema.types)) else None


def _is_unchanged(kind: pa.DataType) -> bool:
    """Return whether a lent column comes back from the engine as it is."""
    plain = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind)
    return bool(plain or kind in (pa.float64(), pa.date32()) or is_decimal(kind))


def _count_dense(counted: HistogramQuery, ends: list[Thresholds], read: Reader) -> PrefixSums | None:
    """Count the column itself, where all thresholds are near each other."""
    if counted.column is None or (between := find_span(counted, ends)) is None:
        return None
    counts = count_column(read, counted.column, *between)
    return None if counts is None else PrefixSums.dense(counts, between[0], counted.digits)


def _sort_doubles(counted: HistogramQuery, read: Reader) -> PrefixSums | None:
    """Sort the column itself, where its doubles mostly differ: there would be as many groups as rows, nearly."""
    room = 8 * read.room
    if not counted.doubles or counted.column is None or not room:
        return None
    held: list[NDArray[np.float64]] = []
    for values in stream_column(read, counted.column, doubles=True):
        some, room = values[:_SOME], room - values.nbytes
        if room < 0 or (not held and 2 * len(np.unique(some)) < len(some)):
            return None
        held.append(values)
    if not held:
        return None
    x = np.concatenate(held)
    x.sort()
    sums = np.arange(len(x) + 1)
    return PrefixSums(x, sums, sums, 0)


def _sum_histogram(counted: HistogramQuery, table: pa.Table) -> PrefixSums:
    x, n = read_numbers(table.column("x")), read_integers(table.column("n"))
    v = read_integers(table.column("v")) if "v" in table.column_names else n
    if x.dtype == np.int64 and len(x) and int(x.max()) - int(x.min()) < 4 * len(x) + (1 << 16):
        place = np.full(int(x.max()) - int(x.min()) + 1, -1, dtype=np.intp)  # distinct and close: no sorting
        place[x - x.min()] = np.arange(len(x))
        order = place[place >= 0]
    else:
        order = np.argsort(x, kind="stable")
    return PrefixSums(x[order], accumulate(v[order]), accumulate(n[order]), counted.digits)


def _spread(v: Integers | int, size: int) -> Integers:
    if not isinstance(v, int):
        return v
    return np.full(size, v, dtype=np.int64 if abs(v) < _SAFE else object)


# -- pruning ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PrunedCandidates:
    """Candidates of which only those near the best were scored: their gaps, the rate, and the exact utility of any."""

    table: pa.Table
    gaps: CandidateGaps
    rate: Fraction
    utility: Callable[[int], int]


@dataclass(frozen=True)
class CandidatePruning(FastRoute[PrunedCandidates]):
    """The candidates of a choice, with as few of them scored as possible.

    The route exists for one count per candidate, of rows on one side of its threshold, times factors of one sign. It is
    not taken where there are few candidates, nor where there are more doubles than may be held.
    """

    scores: CandidateScores
    rates: ChoiceRates
    varying: bool

    @property
    def queries(self) -> tuple[str, ...]:
        return self.scores.queries

    def claims(self, plain: Claim) -> Iterator[ClaimedText]:
        yield from self.scores.claims(plain)

    def take(self, read: Reader, entropy: Entropy) -> PrunedCandidates | None:
        term, counted = self.scores.terms[0], self.scores.histograms[0]
        one_sided = len(term.bounds) == 1 and term.bounds[0][0] != "="
        alone = len(self.scores.terms) == 1 and self.scores.base is None and self.scores.form is None
        if not alone or not one_sided or counted.column is None:
            return None
        found = self.scores.read_candidates(read)
        if found is None or found[0].num_rows < FEW_CANDIDATES:
            return None
        table, ends = found
        end = ends[term.bounds[0][1]]
        factor = np.broadcast_to(term.factor.of(table), table.num_rows)
        least, most = int(factor.min()), int(factor.max())
        if end.missing is not None or least < 0 < most:
            return None
        near: Nearness = EqualNearness(self.rates.equal)
        one, other = (int(self.scores.bound_unit_moves(term.bound_moves(f))[0]) for f in (least, most))
        if self.varying and one != other:
            c = compute_spread(self.rates.unequal)
            if c is None:
                return None
            near = UnequalNearness(self.rates.unequal, self.rates.margin(table.num_rows), c)
        cells = bin_column(counted, end, read, counted.column)
        if cells is None:
            return None
        return _Pruning(self.scores, table, end, factor, cells, self.varying).prune(near)


@dataclass(frozen=True)
class _Pruning:
    """Candidates, and their statistic as far as the cells determine it."""

    scores: CandidateScores
    table: pa.Table
    end: Thresholds
    factor: Integers
    cells: BinnedColumn
    varying: bool

    def prune(self, near: Nearness) -> PrunedCandidates:
        rows, first, last = self._keep(near)
        found = self._score(_take_rows(self.table, rows), first, last)
        whole = cache(lambda: self._score(self.table, 0, len(self.cells.counts)))
        places, gaps = near.measure(found.scores, found.sensitivities)
        size = self.table.num_rows
        top = int(found.scores.max())

        def gap(i: int) -> int:
            return near.gap(i, top, whole().scores, whole().sensitivities)

        def utility(i: int) -> int:
            at = int(np.searchsorted(rows, i))
            here = at < len(rows) and int(rows[at]) == i
            return int(found.scores[at] if here else whole().scores[i])

        held = CandidateGaps(size, gaps, rows[places], near.reach, gap)
        return PrunedCandidates(self.table, held, near.rate, utility)

    @property
    def _term(self) -> ScoreTerm:
        return self.scores.terms[0]

    def _score(self, table: pa.Table, first: int, last: int) -> ScoredCandidates:
        """Score candidates whose thresholds are in the cells from ``first`` up to before ``last``."""
        ends = self.scores.read_thresholds(table)
        assert ends is not None  # as those of all were
        return self.scores.score(table, ends, [self.cells.run(first, last)], self.varying)

    def _group(self) -> _Groups:
        """Group neighbours with thresholds in close cells; unordered candidates are sorted by cells before."""
        size = self.table.num_rows
        starts = np.arange(0, size, _TOGETHER)
        found = self._bound_groups(None, starts)
        wide = found.highest - found.lowest > _CLOSE * (len(self.cells.counts) // len(starts) + 1)
        if np.count_nonzero(wide) * _CLOSE > len(starts):
            order = np.argsort(self._find_cells(self.end).astype(np.uint16), kind="stable")
            return self._bound_groups(order, starts)
        if not wide.any():
            return found
        alone = np.repeat(wide, _TOGETHER)[:size]
        alone[starts] = True
        return self._bound_groups(None, np.flatnonzero(alone))

    def _find_cells(self, end: Thresholds) -> NDArray[np.int64]:
        return self.cells.of(end, self._term.bounds[0][0] in _AFTER)

    def _bound_groups(self, order: NDArray[np.intp] | None, starts: NDArray[np.intp]) -> _Groups:
        values = self.end.values if order is None else self.end.values[order]
        ends = (pick.reduceat(values, starts) for pick in (np.fmin, np.maximum))  # NaN is the greatest
        return _Groups(order, starts, *(self._find_cells(Thresholds(v, self.end.scale)) for v in ends))

    def _keep(self, near: Nearness) -> tuple[NDArray[np.intp], int, int]:
        """Return the candidates that may be near, groups at a time, and the cells of their thresholds."""
        groups = self._group()
        order, starts, lowest, highest = groups.order, groups.starts, groups.lowest, groups.highest
        factor = self.factor if order is None else self.factor[order]
        below = np.concatenate([[0], np.cumsum(self.cells.counts)])
        counts = [below[lowest], below[highest + 1]]
        if self._term.bounds[0][0] in _LOWER:
            counts = [below[-1] - n for n in counts]
        factors = [pick.reduceat(factor, starts) for pick in (np.minimum, np.maximum)]
        corners = [multiply_integers(f, n) for f in factors for n in counts]
        moved = [self.scores.bound_unit_moves(self._term.bound_moves(f)) for f in factors]
        low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
        may = near.may_hold(GroupBounds(low, high, np.minimum(*moved), np.maximum(*moved)))
        kept = np.flatnonzero(np.repeat(may, np.diff(starts, append=len(factor))))
        rows = kept if order is None else np.sort(order[kept])
        return rows, int(lowest[may].min()), int(highest[may].max()) + 1


@dataclass(frozen=True)
class _Groups:
    """Candidates in an order (None: as they came), the start of each group, and the cells of its thresholds."""

    order: NDArray[np.intp] | None
    starts: NDArray[np.intp]
    lowest: NDArray[np.int64]
    highest: NDArray[np.int64]


def _take_rows(table: pa.Table, rows: Integers) -> pa.Table:
    """Take some rows of a table, ascending: in slices, where they stand together."""
    starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
    if len(starts) > _TOGETHER:
        return table.take(pa.array(rows))
    lengths = np.diff(starts, append=len(rows))
    return pa.concat_tables([table.slice(int(rows[s]), int(n)) for s, n in zip(starts, lengths, strict=True)])
