"""Aggregates of a requested accuracy: noise is reduced until every interval is narrow enough, and only that is charged.

The interval widths of means and variances depend on private counts, so the required epsilon is unknown in advance. Noise
of little epsilon is drawn first and reduced step by step. After each step the intervals are recomputed from the noisy
integers; the first that are all narrow enough are the answer.

Relation: ADD_REMOVE. Guarantee: :class:`~dpsql.privacy.events.NoiseReduction`, since each statistic has a chain of
noises (:class:`~dpsql.noise.samplers.NoiseChain`) at one level of a public ladder, and the stopping rule depends on
released integers alone. The caller must ensure the sensitivities, as in any aggregation.

Intervals: an answer released because it looks accurate was more likely lucky. Each look uses three quarters of the
allowed miss probability; the rest covers the selection. This is measured in the tests' worst cases, not proved.

Sources: Koufogiannis, Han and Pappas (2015); Ligett, Neel, Roth, Waggoner and Wu (2017); Whitehouse, Ramdas, Wu and
Rogers (2022); Rogers, Samorodnitsky, Wu and Ramdas (2023).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TypeVar

import numpy as np
import pyarrow as pa

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms import base
from dpsql.mechanisms.aggregation import Aggregation, list_statistics
from dpsql.mechanisms.empty_groups import find_significant
from dpsql.mechanisms.moments import Count, Estimate, Noisy, Output, Sum
from dpsql.mechanisms.per_group import LaplaceNoise, Statistic, change_noise
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import NoiseChain
from dpsql.numerics.exact_numbers import (
    Floats,
    Integers,
    add_integers,
    read_integers,
    round_significant,
    write_number,
)
from dpsql.privacy.events import Event, NoiseReduction, compose_events

STEPS = 220
"""Levels of the ladder: from 1/4096 of epsilon to all of it, each 4 percent above the previous one."""
_PACE = 4096 ** (1 / STEPS)
RUNGS = (*(round_significant(Fraction(_PACE ** (i - STEPS)), 6) for i in range(STEPS)), Fraction(1))
"""The fractions of epsilon at which noise is examined: public constants."""
LOOK_SHARE = 0.75
"""The fraction of the miss probability used by a look's intervals."""

_Scaled = TypeVar("_Scaled")


def rescale_statistics(output: _Scaled, factor: Fraction) -> _Scaled:
    """Return a statistic, or an output of several, with noise for ``factor`` times its epsilon."""
    return change_noise(output, lambda noise: noise.rescale(factor))


def measure_widths(estimate: Estimate) -> Floats:
    """Return the distance of each value to the farther end of its interval; infinite if an end is missing."""
    value, low, high = (np.asarray(c.to_numpy(zero_copy_only=False), dtype=np.float64) for c in estimate)
    middle = np.where(np.isnan(value), (low + high) / 2, value)
    return np.nan_to_num(np.maximum(middle - low, high - middle), nan=math.inf)


class _Look:
    """The answer at one level: the outputs, and whether all intervals are narrow enough."""

    def __init__(self, plan: NoiseReducedAggregation, noisy: Noisy, factor: Fraction) -> None:
        values = {rescale_statistics(s, factor): integers for s, integers in noisy.items()}
        level = 1 - LOOK_SHARE * (1 - plan.confidence)
        scaled = [rescale_statistics(output, factor) for output in plan.sought]
        self.shown = {output.name: output.show(values, level) for output in scaled}
        most = float(plan.error)
        self.narrow = all(bool(np.all(measure_widths(shown) <= most)) for shown in self.shown.values())


@dataclass(frozen=True)
class NoiseReducedAggregation(Aggregation):
    """An aggregation whose interval ends should be within ``error`` (in units of the column) of their values.

    ``reduced`` names the outputs whose noise is reduced; the other outputs' noise is already calibrated to the error.
    """

    error: Fraction = Fraction(1)
    reduced: tuple[str, ...] = ()

    @property
    def sought(self) -> tuple[Output, ...]:
        return tuple(output for output in self.outputs if output.name in self.reduced)

    @property
    def _chained(self) -> tuple[Statistic, ...]:
        return list_statistics(self.sought)

    @property
    def _fixed(self) -> tuple[Output, ...]:
        return tuple(output for output in self.outputs if output.name not in self.reduced)

    @property
    def _most(self) -> Fraction:
        return sum((s.noise.epsilon for s in self._chained), Fraction(0))

    @property
    def event(self) -> Event:
        return self._charge(Fraction(1))

    def _charge(self, factor: Fraction) -> Event:
        chosen = () if self.selection is None else (self.selection.event,)
        fixed = (s.noise.event for s in list_statistics(self._fixed))
        return compose_events([*fixed, *chosen, NoiseReduction(self._most, self._most * factor)])

    @property
    def can_show_again(self) -> bool:
        return False

    def show_again(self, released: pa.Table, noisy: pa.Table | None) -> pa.Table:
        return base.Operator.show_again(self, released, noisy)

    def find_filled(self, release: base.Release, keys: tuple[str, ...], doubt: float) -> base.Booleans | None:
        whole = [output for output in self._fixed if output.shows_integers]
        if not whole:
            return None
        columns = [(o.statistics[0].noise, read_integers(release.table.column(o.name))) for o in whole]
        counting = [o.statistics[0] in self.counts for o in whole]
        return find_significant(columns, counting, release.table.num_rows, doubt)

    def release(self, read: base.Read, entropy: Entropy) -> base.Release:
        table = self.read_kept(base.Reader.over(read), entropy)
        exact = {s: self._exact(table, s.column) for s in self._chained}
        factor, look = self._search(exact, entropy)
        noisy = {s: s.noise.add(self._exact(table, s.column), entropy) for s in list_statistics(self._fixed)}
        columns: dict[str, pa.Array] = {key: table.column(key) for key in self.keys}
        for output in self.outputs:
            shown = look.shown.get(output.name) or output.show(noisy, self.confidence)
            columns |= shown.columns(output.name)
        released, used = pa.table(columns), write_number(self._most * factor)
        note = f"every interval ends within {float(self.error):g}: that took ε={used}"
        if not look.narrow:
            note = f"with ε={used} not every interval ends within {float(self.error):g}; a larger epsilon may do it"
        return base.Release(released, self._charge(factor), (note, *self.note_groups(released)))

    def _search(self, exact: Mapping[Statistic, Integers], entropy: Entropy) -> tuple[Fraction, _Look]:
        """Return the first level with narrow intervals, or the last, and its answer."""
        chains = {s: self._chain(s, len(values), entropy) for s, values in exact.items()}
        for factor in RUNGS:
            noisy = {s: np.asarray(add_integers(exact[s], chain.noise)) for s, chain in chains.items()}
            look = _Look(self, noisy, factor)
            if look.narrow or factor == 1:
                break
            for chain in chains.values():
                chain.step()
        return factor, look

    @staticmethod
    def _chain(statistic: Statistic, n: int, entropy: Entropy) -> NoiseChain:
        noise = statistic.noise
        if not isinstance(noise, LaplaceNoise):
            raise ValueError("only Laplace noise is reduced step by step")
        return NoiseChain([noise.rescale(factor).scale for factor in RUNGS], n, entropy)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        selected = () if self.selection is None else (self.selection.sentence(),)
        return (
            *selected,
            *(line for output in self._fixed for line in output.sentences(confidence)),
            f"{', '.join(self.reduced)}: noise is reduced step by step until every interval ends within "
            f"{float(self.error):g} of its value, at {confidence:.4g} confidence, or ε={write_number(self._most)} is used "
            "up. Sums of ε are charged what was used, rules for many statements the stages that were begun.",
        )

    def _state_errors(self, output: Output, basis: base.ErrorBasis) -> Iterable[base.ExpectedError]:
        """Return those of calibrated outputs; for reduced ones, of Laplace noise whose interval just ends within ``error``."""
        if output.name not in self.reduced:
            return output.errors(basis)
        if basis.confidence is not None or (
            basis.release is not None and not isinstance(output, Count | Sum)
        ):
            return ()
        part = 1 / -math.log1p(-self.confidence) if self.confidence > 0 else 1.0
        return (base.ExpectedError(output.name, float(self.error) * min(part, 1.0)),)
