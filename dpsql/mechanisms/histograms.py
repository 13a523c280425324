"""``COUNT(DISTINCT x)``: how many different values there are in a group, with discrete Laplace noise.

Relation: ADD_REMOVE. Sensitivity: a unit with at most ``rows`` rows in a group brings or takes at most ``rows`` values
there, in at most ``groups`` groups. Guarantee: epsilon-DP. The caller must bound the rows and groups of a unit by rules that
look at that unit alone.

``HISTOGRAM(x)``: how many rows fall into each of a list of public bins, with discrete Laplace noise.

Relation: ADD_REMOVE. Sensitivity: a unit with at most ``rows`` rows in a group moves the bins there by at most ``rows`` in
L1, however they are spread, in at most ``groups`` groups. Guarantee: epsilon-DP (the L1 form of the Laplace
mechanism), charged as noise on one bin of each group where a unit has one row there, and as pure epsilon where its rows
may be spread. The caller must bound the rows and groups of a unit by rules that look at that unit alone, and choose the
bins without looking at the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dpsql.mechanisms.additive_noise import LaplaceNoise, Statistic
from dpsql.mechanisms.composite import Answered, Group, rows_of
from dpsql.mechanisms.estimators import Count, Noisy, exact_integers
from dpsql.noise.entropy import Entropy
from dpsql.numerics.integers import integers
from dpsql.privacy.events import Event, PureDP


@dataclass(frozen=True)
class DistinctCount:
    """One released column; ``query`` gives the keys and the exact number ``n`` of each group that has rows."""

    query: str
    keys: tuple[str, ...]
    name: str
    noise: LaplaceNoise
    confidence: float = 0.95

    @property
    def event(self) -> Event:
        return self.noise.event

    @property
    def statistic(self) -> Statistic:
        return Statistic("n", self.noise)

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        """A noisy count for each group, zero plus noise where there are no rows."""
        rows = rows_of(table, self.keys)
        counts = exact_integers(table.column("n"))
        nothing = np.zeros(0, dtype=np.intp)
        exact = [int(sum(int(counts[i]) for i in rows.get(group, nothing))) for group in groups]
        noisy = {self.statistic: self.noise.add(integers(exact), entropy)}
        return Answered(self._shown(noisy), self.event)

    def shown_again(self, released: pa.Table) -> dict[str, pa.Array]:
        """The released counts, with intervals at this part's confidence."""
        return self._shown({self.statistic: exact_integers(released.column(self.name))})

    def _shown(self, noisy: Noisy) -> dict[str, pa.Array]:
        shown = Count(self.name, self.statistic).show(noisy, self.confidence)
        return {self.name: shown.value, f"{self.name}__low": shown.low, f"{self.name}__high": shown.high}

    def sentences(self, confidence: float) -> tuple[str, ...]:
        return Count(self.name, self.statistic).sentences(confidence)


BIN, COUNT = "bin", "n"
"""Columns of the query: the place of a bin, from 0, and how many rows are in it."""


@dataclass(frozen=True)
class Histogram:
    """One released column, a list of ``bins`` noisy counts; ``query`` gives keys, :data:`BIN` and :data:`COUNT`."""

    query: str
    keys: tuple[str, ...]
    name: str
    bins: int
    noise: LaplaceNoise

    @property
    def event(self) -> Event:
        return self.noise.event if self.noise.sensitivity == 1 else PureDP(self.noise.epsilon)

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        """A noisy count of every bin of each group, empty or not."""
        rows = rows_of(table, self.keys)
        places, counts = exact_integers(table.column(BIN)), exact_integers(table.column(COUNT))
        nothing = np.zeros(0, dtype=np.intp)
        exact = np.zeros((len(groups), self.bins), dtype=np.int64)
        for i, group in enumerate(groups):
            held = rows.get(group, nothing)
            np.add.at(exact[i], places[held].astype(np.int64), counts[held].astype(np.int64))
        noisy = self.noise.add(exact.reshape(-1), entropy)
        lists = [[int(v) for v in row] for row in noisy.reshape(exact.shape)]
        return Answered({self.name: pa.array(lists, pa.list_(pa.int64()))}, self.event)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        return (
            f"{self.name}: the count of each of {self.bins} bins with {self.noise.sentence(confidence)}.",
        )
