"""Marginals of private rows, chosen and measured in rounds, and the synthetic rows of a model of them.

Relation: ADD_REMOVE. One privacy unit moves the cells of all columns together by at most ``w = steps * groups`` in L1,
by the caps, which apply once, on these finest cells. A marginal adds cells up, so one unit moves it by at most w in L1;
since all of its rows may be in one cell, its L2 bound is also w. Noise is made for w, never for less.

All parameters of a release are fixed before its first part:

1. every single column's marginal, with noise;
2. in each round, one choice among the candidates by the exponential mechanism, then the chosen marginal, with noise.

The score of a candidate is the L1 distance between its exact counts and those the current model expects, rounded to
integers, less the expected distance due to noise alone. Only the exact counts depend on the data: one unit moves a
score by at most w, by the triangle inequality. Which marginal is measured depends on earlier releases, but no parameter
does. Such adaptive composition of fixed mechanisms is charged by :class:`~dpsql.privacy.events.Composed`: losses add
up, and Gaussian parts are one Gaussian mechanism, for each mechanism is dominated by one pair of distributions,
whatever marginal is chosen, and products of these dominate the whole (Zhu, Dong, Wang 2022, theorem 10; Dong, Roth, Su 2022).

Everything after that is post-processing: the model, the estimated number of rows, and the rows. Source of the rounds:
McKenna, Mullins, Sheldon, Miklau, *AIM: An adaptive and iterative mechanism for differentially private synthetic data*,
PVLDB 15, 2022; here with a fixed number of rounds and fixed noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import field
from fractions import Fraction
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms import base
from dpsql.mechanisms.aggregation import sort_by_key
from dpsql.mechanisms.per_group import Noise
from dpsql.mechanisms.synthetic.models import (
    MAX_MODEL,
    MAX_MODEL_ROWS,
    Fitter,
    GraphicalFitter,
    MarginalColumns,
    Model,
    ReleasedMarginal,
    count_model_cells,
    estimate_total,
    list_marginals,
    require_package,
)
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import choose_exponential
from dpsql.numerics.exact_numbers import make_longs, read_integers, to_integers, write_number
from dpsql.privacy.amounts import Amount
from dpsql.privacy.events import BoundedRange, Event, compose_events

MAX_DRAWN = 1_000_000
"""The most rows drawn from a model: if more are wanted, each represents several."""
WEIGHT, TOTAL = "drawn", "total"
"""Columns of the release after the keys: the number of model rows with these values, and the estimated number of rows."""


MAX_ROUNDS = 32
"""The most measured marginals of several columns."""
CHOICE_SHARE = Fraction(1, 10)
"""The fraction of the total for choices."""
SINGLE_SHARE = Fraction(1, 2)
"""The share of a single column's marginal, relative to a chosen one's."""


def count_rounds(columns: int, candidates: int) -> int:
    """Return the number of marginals measured after the single columns': two per column, or all there are.

    >>> count_rounds(1, 0), count_rounds(3, 4), count_rounds(4, 10), count_rounds(40, 9_880)
    (0, 4, 8, 32)
    """
    return min(candidates, 2 * columns, MAX_ROUNDS)


@dataclass(frozen=True)
class RoundBudget:
    """The number of rounds, and the division of a table's budget.

    Args:
        measurements: the amount of all measurements.
        measured: that of each, single columns first.
        choice: the epsilon of each choice; None if all candidates are measured.
    """

    rounds: int
    measurements: Amount
    measured: tuple[Amount, ...]
    choice: Fraction | None


def divide_budget(sizes: Sequence[int], asked: Amount) -> RoundBudget:
    """Divide the amount of a table whose columns have these numbers of values."""
    candidates = len(list_marginals(sizes))
    rounds = count_rounds(len(sizes), candidates)
    whole, choice = asked, None
    if rounds < candidates:
        whole = Amount(asked.currency, asked.total * (1 - CHOICE_SHARE))
        each = Amount(asked.currency, asked.total * CHOICE_SHARE / rounds)
        choice = each.find_epsilon(BoundedRange)
    parts = [SINGLE_SHARE] * len(sizes) + [Fraction(1)] * rounds
    measured = tuple(Amount(whole.currency, whole.total * part / sum(parts)) for part in parts)
    return RoundBudget(rounds, whole, measured, choice)


@dataclass(frozen=True)
class ExactCells:
    """The exact counts of the combinations of values that occur. It never leaves an operator.

    ``sizes`` are the columns' numbers of values; ``codes`` has the values of each combination by index, shape ``(cells,
    columns)``; ``counts`` its number of rows.
    """

    sizes: tuple[int, ...]
    codes: NDArray[np.int64]
    counts: NDArray[np.int64]

    def project(self, columns: MarginalColumns) -> NDArray[np.int64]:
        """Return the exact integer counts of a marginal."""
        place = np.zeros(len(self.codes), dtype=np.int64)
        for i in columns:
            place = place * self.sizes[i] + self.codes[:, i]
        made = np.zeros(math.prod(self.sizes[i] for i in columns), dtype=np.int64)
        np.add.at(made, place, self.counts)
        return made


@dataclass(frozen=True)
class MeasuredRows:
    """The releases, single columns first, their model and the estimated ``total``: post-processing begins here."""

    released: tuple[ReleasedMarginal, ...]
    model: Model
    total: int


@dataclass(frozen=True)
class SyntheticRows(base.Operator):
    """A block of synthetic rows: each combination of values with its number of model rows.

    Args:
        query: one row per combination of values that occurs: the ``keys``, and ``count``, capped.
        domains: for each key a query of its public values.
        sizes: the greatest number of each key's values.
        steps: the most that one unit moves a count.
        groups: the most counts that one unit moves.
        single: the noise of each single column's marginal.
        measured: the noise of each chosen marginal; None for a single column.
        rounds: the number of marginals measured after those of single columns.
        choice: the epsilon of each choice; None if all candidates are measured without a choice.
    """

    query: str
    keys: tuple[str, ...]
    count: str
    domains: tuple[str, ...]
    sizes: tuple[int, ...]
    steps: int
    groups: int
    single: Noise
    measured: Noise | None = None
    rounds: int = 0
    choice: Fraction | None = None
    fitter: Fitter = field(default=GraphicalFitter(), compare=False, repr=False)

    def __post_init__(self) -> None:
        moved = {
            noise.sensitivity * noise.groups for noise in (self.single, self.measured) if noise is not None
        }
        if (
            moved != {self.reach}
            or (self.measured is not None and self.measured.groups != 1)
            or self.single.groups != 1
        ):
            raise ValueError("noise is made for all that one unit moves, in one cell")
        if (self.measured is None) != (self.rounds == 0) or (self.choice is not None and self.choice <= 0):
            raise ValueError("rounds have noise, and choices an epsilon")

    @property
    def reach(self) -> int:
        """The most that one unit moves a marginal, in L1 and L2: one cell may have all its rows."""
        return self.steps * self.groups

    @cached_property
    def candidates(self) -> tuple[MarginalColumns, ...]:
        """The candidate marginals."""
        return list_marginals(self.sizes)

    @property
    def event(self) -> Event:
        events = [self.single.event] * len(self.keys)
        for _ in range(self.rounds):
            assert self.measured is not None
            events += [] if self.choice is None else [BoundedRange(self.choice)]
            events.append(self.measured.event)
        return compose_events(events)

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.query, *dict.fromkeys(self.domains))

    def claims(self) -> Iterator[base.ClaimedText]:
        # The groups are not released here: they become counts of public cells, including zeros.
        moved = base.SensitivityClaim(self.steps, self.groups)
        yield base.ClaimedText(self.query, base.SumsClaim(self.keys, ((self.count, moved),), selected=True))
        for text in dict.fromkeys(self.domains):
            yield base.ClaimedText(text, base.PublicClaim())

    def require_libraries(self) -> None:
        if isinstance(self.fitter, GraphicalFitter):
            require_package()

    # -- releasing ------------------------------------------------------------------------------------------------

    def release(self, read: base.Read, entropy: Entropy) -> base.Release:
        reader = base.add_salt(read, self.queries, entropy)
        values = [self._read_domain(reader, i) for i in range(len(self.keys))]
        measured = self.measure(self._read_cells(reader, values), entropy)
        return base.Release(self._draw(measured, values), self.event, self._notes(measured))

    def measure(self, cells: ExactCells, entropy: Entropy) -> MeasuredRows:
        """Choose and measure marginals, and fit the model: ``cells`` are not used after this."""
        released = [self._measure(cells, (i,), self.single, entropy) for i in range(len(self.keys))]
        total = estimate_total(released)
        steps = self.rounds + 1
        model = (
            self.fitter.fit(self.sizes, tuple(released), total) if self.choice or not self.rounds else None
        )
        base.report_progress(1, steps)
        left = list(self.candidates)
        exact = {c: cells.project(c) for c in left} if self.choice is not None else {}
        for i in range(self.rounds):
            assert self.measured is not None
            allowed = self._list_allowed(left, released)
            if self.choice is None:
                chosen = allowed[0]
                left.remove(chosen)
            else:
                assert model is not None
                chosen = allowed[self._choose(allowed, exact, model, entropy)]
            released.append(self._measure(cells, chosen, self.measured, entropy))
            if self.choice is not None or i + 1 == self.rounds:
                model = self.fitter.fit(self.sizes, tuple(released), total)
            base.report_progress(i + 2, steps)
        assert model is not None
        return MeasuredRows(tuple(released), model, total)

    def _list_allowed(
        self, left: Sequence[MarginalColumns], released: Sequence[ReleasedMarginal]
    ) -> list[MarginalColumns]:
        """Return the candidates that keep the model small enough to fit; there always is one: those already measured."""
        known = [marginal.columns for marginal in released]
        allowed = [c for c in left if c in known or count_model_cells(self.sizes, [*known, c]) <= MAX_MODEL]
        return allowed or known[:1]

    def _choose(
        self,
        allowed: Sequence[MarginalColumns],
        exact: dict[MarginalColumns, NDArray[np.int64]],
        model: Model,
        entropy: Entropy,
    ) -> int:
        """Choose a candidate by the exponential mechanism; one unit moves each score by at most ``reach``."""
        assert self.choice is not None
        scores = [self.score(exact[c], model.project(c)) for c in allowed]
        return choose_exponential(to_integers(scores), self.choice / (2 * self.reach), entropy)

    def score(self, exact: NDArray[np.int64], expected: NDArray[np.float64]) -> int:
        """Return a candidate's score: the distance of its exact from the model's expected counts, less that due to noise."""
        assert self.measured is not None
        # A model's expectation is arbitrary, and 64-bit integers must not wrap: one row would move them by 2**64.
        grid = np.rint(np.clip(np.nan_to_num(expected), 0, MAX_MODEL_ROWS)).astype(np.int64)
        return int(np.abs(exact - grid).sum()) - round(self.measured.mean_error * len(exact))

    def _measure(
        self, cells: ExactCells, columns: MarginalColumns, noise: Noise, entropy: Entropy
    ) -> ReleasedMarginal:
        noisy = noise.add(cells.project(columns), entropy)
        return ReleasedMarginal(columns, tuple(int(n) for n in noisy), math.sqrt(noise.variance))

    def _read_domain(self, read: base.Read, place: int) -> pa.Array:
        """Return the public values of a key, in order, as an Arrow array."""
        key = self.keys[place]
        values = sort_by_key(read(self.domains[place]).select([key]), (key,)).column(key)
        return values.slice(0, self.sizes[place]).combine_chunks()

    def _read_cells(self, read: base.Read, values: Sequence[pa.Array]) -> ExactCells:
        """Read the exact counts, without combinations that lack a public value, as in the query."""
        table = read(self.query)
        places = []
        for key, known in zip(self.keys, values, strict=True):
            column = table.column(key)
            found = pc.index_in(column, value_set=known.cast(column.type))
            places.append(np.asarray(found.fill_null(-1), dtype=np.int64))
        codes = np.stack(places, axis=1) if table.num_rows else np.zeros((0, len(self.keys)), dtype=np.int64)
        inside = (codes >= 0).all(axis=1)
        counts = np.asarray(read_integers(table.column(self.count)), dtype=np.int64)
        return ExactCells(self.sizes, codes[inside], counts[inside])

    # -- post-processing ------------------------------------------------------------------------------------------

    def _draw(self, measured: MeasuredRows, values: Sequence[pa.Array]) -> pa.Table:
        """Return the rows of the model, equal ones counted, with values instead of indices."""
        drawn = measured.model.draw_rows(min(measured.total, MAX_DRAWN))
        there = (drawn < np.array([len(v) for v in values])).all(axis=1)
        cells, weights = np.unique(drawn[there], axis=0, return_counts=True)
        columns = {
            key: pa.chunked_array([v.take(pa.array(cells[:, i]))])
            for i, (key, v) in enumerate(zip(self.keys, values, strict=True))
        }
        columns[WEIGHT] = make_longs(weights.astype(np.int64))
        columns[TOTAL] = make_longs(np.full(len(cells), measured.total, dtype=np.int64))
        return pa.table(columns)

    def _notes(self, measured: MeasuredRows) -> tuple[str, ...]:
        """Return the note on the measured marginals, by position in the SELECT, as names may differ when it is shown again."""
        chosen = dict.fromkeys(m.columns for m in measured.released if len(m.columns) > 1)
        told = ", ".join(" × ".join(str(i + 1) for i in columns) for columns in chosen)
        plural = "s" if len(self.keys) > 1 else ""
        single = f"synthetic rows, made of noisy counts of {len(self.keys)} column{plural} one by one"
        return (f"{single}, and of columns {told} together" if told else single,)

    # -- what EXPLAIN says ----------------------------------------------------------------------------------------

    def sentences(self, confidence: float) -> tuple[str, ...]:
        plural = "s" if len(self.keys) > 1 else ""
        lines = [
            f"First the count{plural} of each of {len(self.keys)} column{plural} alone, with {self.single.sentence(confidence)}."
        ]
        if self.measured is not None:
            of = f"{self.rounds} marginal{'s' if self.rounds > 1 else ''} of two or three columns"
            how = (
                "all that there are"
                if self.choice is None
                else f"chosen among {len(self.candidates):,}, one by one"
            )
            lines.append(f"Then {of}, {how}, each with {self.measured.sentence(confidence)}.")
        if self.choice is not None:
            lines.append(
                f"Each choice is by the exponential mechanism (ε={write_number(self.choice)}): the marginal with the "
                f"largest L1 distance from the model so far, which one privacy unit moves by at most {self.reach:,}."
            )
        lines.append(
            "A model is fitted to these noisy counts alone, and the rows are drawn from it: post-processing. ROWS gives "
            "their number, else the noisy counts of single columns do."
        )
        return tuple(lines)
