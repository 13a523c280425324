"""``COUNT(DISTINCT x)``: how many different values there are in a group, with discrete Laplace noise.

Relation: ADD_REMOVE. Sensitivity: a unit with at most ``rows`` rows in a group brings or takes at most ``rows`` values
there, in at most ``groups`` groups. Guarantee: epsilon-DP. The caller must bound the rows and groups of a unit by rules that
look at that unit alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dpsql.mechanisms.outputs import Count, Noisy, exact_integers
from dpsql.mechanisms.perturbation import LaplaceNoise, Statistic
from dpsql.mechanisms.together import Answered, Group, rows_of
from dpsql.noise.entropy import Entropy
from dpsql.noise.integers import integers
from dpsql.privacy.events import Event


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
