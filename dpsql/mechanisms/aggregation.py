"""Noisy aggregates of groups, alone and together with statistics that need a histogram of each group.

Relation: ADD_REMOVE. Guarantee: the composition of the events of the noises, the group selection and the further parts.
Each statistic is released once, with independent noise; everything after that is post-processing. The binder must ensure
that each query bounds a privacy unit's contribution, and its groups, as noise and selection declare. Keys are public, or
the selection's column counts the distinct units of each group.

Aggregates read one row per group, the other parts a histogram per group. The aggregation decides the groups; every part
then answers for exactly these groups, including empty ones.

Aggregates of a requested accuracy: noise is reduced until every interval is narrow enough, and only that is charged.

The interval widths of means and variances depend on private counts, so the required epsilon is unknown in advance. Noise
of little epsilon is drawn first and reduced step by step. After each step the intervals are recomputed from the noisy
integers; the first that are all narrow enough are the answer.

Relation: ADD_REMOVE. Guarantee: :class:`~dpsql.privacy.events.NoiseReduction`, since each statistic has a chain of
noises (:class:`~dpsql.noise.samplers.NoiseChain`) at one of a public sequence of levels, and the stopping rule depends on
released integers alone. The caller must ensure the sensitivities, as in any aggregation.

Intervals: an answer released because it looks accurate was more likely lucky. Each look uses three quarters of the
allowed miss probability; the rest covers the selection. This is measured in the tests' worst cases, not proved.

Sources: Koufogiannis, Han and Pappas (2015); Ligett, Neel, Roth, Waggoner and Wu (2017); Whitehouse, Ramdas, Wu and
Rogers (2022); Rogers, Samorodnitsky, Wu and Ramdas (2023).
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms import base
from dpsql.mechanisms.empty_groups import find_significant
from dpsql.mechanisms.fast.column_counts import ColumnCounts
from dpsql.mechanisms.fast.packed_aggregation import PackedAggregation
from dpsql.mechanisms.moments import Count, Estimate, Mean, Noisy, Output, Pair, Sum, Variance, read_errors
from dpsql.mechanisms.ordered_noise import GrowingTree, OrderedNoise, StepRows, add_noise
from dpsql.mechanisms.per_group import (
    GroupSelector,
    JointGaussianNoise,
    LaplaceNoise,
    Noise,
    Statistic,
    change_noise,
)
from dpsql.mechanisms.unit_parts import KEY_PART_COLUMN, read_totals
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import NoiseChain
from dpsql.numerics.exact_numbers import (
    Floats,
    Integers,
    add_integers,
    make_values,
    pack_integers,
    read_integers,
    round_significant,
    to_mask,
    unpack_integers,
    write_number,
)
from dpsql.privacy.events import Event, NoiseReduction, compose_events

Group = tuple[object, ...]
"""Values of the keys; ``()`` without grouping."""

_NAN = object()

# -- groups -----------------------------------------------------------------------------------------------------------


def list_groups(table: pa.Table, keys: Iterable[str]) -> list[Group]:
    """Return the group of every row as comparable values (NaN equals NaN)."""
    columns = [_list_values(table.column(key)) for key in keys]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def index_groups(table: pa.Table, keys: tuple[str, ...]) -> Mapping[Group, NDArray[np.intp]]:
    """Return the row numbers of each group."""
    if not keys:
        return {(): np.arange(table.num_rows)}
    found: dict[Group, list[int]] = {}
    for i, group in enumerate(list_groups(table, keys)):
        found.setdefault(group, []).append(i)
    return {group: np.array(rows, dtype=np.intp) for group, rows in found.items()}


def find_rows(table: pa.Table, keys: tuple[str, ...], groups: Iterable[Group]) -> Iterator[NDArray[np.intp]]:
    """Yield the row numbers of each of these groups; none of a group that the table lacks."""
    found = index_groups(table, keys) if table.num_rows else {}
    none = np.zeros(0, dtype=np.intp)
    return (found.get(group, none) for group in groups)


def _list_values(column: pa.ChunkedArray) -> list[object]:
    """List values by type alone, so that all tables agree: Python has no infinite date, no year 10000, no 24:00:00."""
    kind = column.type
    if pa.types.is_nested(kind):
        return [_read_raw(scalar) for scalar in column]
    if _is_moment(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return [_merge_nan(v) for v in column.to_pylist()]


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


def _read_raw(scalar: pa.Scalar) -> object:
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if _is_moment(kind):
        return scalar.value
    if pa.types.is_struct(kind):
        return tuple(_read_raw(scalar[i]) for i in range(kind.num_fields))
    if pa.types.is_nested(kind):
        return tuple(_read_raw(item) for item in scalar.values)
    return _merge_nan(scalar.as_py())


def _merge_nan(value: object) -> object:
    return _NAN if isinstance(value, float) and math.isnan(value) else value


def sort_by_key(table: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Sort rows by their keys, ascending, NULL last, so that the engine's order doesn't matter."""
    ordering = pa.table({str(i): _make_sortable(table.column(key)) for i, key in enumerate(keys)})
    order = [(str(i), "ascending") for i in range(len(keys))]
    return table.take(pc.sort_indices(ordering, sort_keys=order))  # NULL at the end, as Arrow does


_IS_SORTED = (
    *(pa.types.is_primitive, pa.types.is_decimal, pa.types.is_string, pa.types.is_large_string),
    *(pa.types.is_binary, pa.types.is_fixed_size_binary),
)
"""Tests of the types that Arrow sorts, except intervals."""


def _make_sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column if Arrow can sort it, else the text of its values."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if any(is_kind(kind) for is_kind in _IS_SORTED) and not pa.types.is_interval(kind):
        return column
    texts = [None if v is None else repr(v) for v in _list_values(column)]
    return pa.chunked_array([make_values(texts, pa.string())])


def list_statistics(outputs: Iterable[Output]) -> tuple[Statistic, ...]:
    """List the statistics of outputs, each once, in order of first use."""
    return tuple(dict.fromkeys(s for output in outputs for s in output.statistics))


# -- one row per group ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Aggregation(base.Operator):
    """One private block of noisy aggregates. Equal statistics of several outputs are released and charged once.

    Args:
        query: returns one row per group: the ``keys``, every statistic's column (integers; NULL counts as 0) and the
            selection's column. Without keys it returns one row; an empty relation stands for zeros.
        selection: chooses the groups to keep, if keys are private.
        packed: another route to the rows of ``query``.
        ordered: the public key in whose order some statistics have noise; empty if none has.
        unit_parts: ``query`` over some of the units (:mod:`~dpsql.mechanisms.unit_parts`); empty if it has no such form.
    """

    query: str
    keys: tuple[str, ...]
    outputs: tuple[Output, ...]
    selection: GroupSelector | None = None
    confidence: float = 0.95
    packed: PackedAggregation | None = None
    ordered: str = ""
    unit_parts: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        in_order = any(isinstance(s.noise, OrderedNoise) for s in self.statistics)
        if in_order and (self.ordered not in self.keys or self.selection is not None):
            raise ValueError("noise in the order of a key needs a public one")

    @cached_property
    def statistics(self) -> tuple[Statistic, ...]:
        """Each distinct statistic, in order of first use."""
        return list_statistics(self.outputs)

    @cached_property
    def event(self) -> Event:
        noises = [s.noise.event for s in self.statistics]
        return compose_events(noises if self.selection is None else [*noises, self.selection.event])

    @property
    def divides(self) -> bool:
        alike = all(isinstance(s.noise, GrowingTree) for s in self.statistics)
        return type(self) is Aggregation and self.selection is None and (alike or not self.ordered)

    def at_level(self, level: int) -> Aggregation:
        """Return the aggregation that draws the nodes of one level of its growing trees."""

        def change(noise: Noise) -> Noise:
            return noise.at_level(level) if isinstance(noise, GrowingTree) else noise

        return replace(self, outputs=tuple(change_noise(output, change) for output in self.outputs))

    def add_up(self, nodes: base.Release) -> base.Release:
        """Return the release of the steps of growing trees, given that of the node which ends with each step."""
        given = self.read_noisy(nodes.table, nodes.noisy)
        noisy = {s: s.noise.add_up(given[s]) for s in self.statistics if isinstance(s.noise, GrowingTree)}
        keys = {key: nodes.table.column(key) for key in self.keys}
        return replace(nodes, table=self._show(keys, noisy), noisy=self.pack_noisy(noisy))

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.query,)

    @property
    def is_free(self) -> bool:
        """Whether it only lists public groups and releases nothing private."""
        return not self.outputs and self.selection is None

    def claims(self) -> Iterator[base.ClaimedText]:
        noises = ((s.column, s.noise) for s in self.statistics)
        noisy = [(column, base.SensitivityClaim(n.sensitivity, n.groups)) for column, n in noises]
        if self.selection is not None:  # a unit counts once in a group
            noisy.append((self.selection.column, base.SensitivityClaim(1, self.selection.groups)))
        claim = base.SumsClaim(self.keys, tuple(dict.fromkeys(noisy)), self.selection is not None)
        yield base.ClaimedText(self.query, claim)
        if self.unit_parts:  # of private groups, the keys also decide the part
            keys = (*self.keys, KEY_PART_COLUMN) if self.keys and self.selection is not None else self.keys
            yield base.ClaimedText(self.unit_parts, replace(claim, keys=keys), late=True)
        if self.packed is not None:
            yield from self.packed.claims(claim)

    def release(self, read: base.Read, entropy: Entropy) -> base.Release:
        table, noisy = self.draw(base.Reader.over(read), entropy)
        return base.Release(table, self.event, self.note_groups(table), noisy)

    def note_groups(self, released: pa.Table) -> tuple[str, ...]:
        """Return a note on how many units a private group needs, if none was released."""
        return (self.selection.note_none(),) if self.selection is not None and not released.num_rows else ()

    @property
    def can_show_again(self) -> bool:
        return True

    def show_again(self, released: pa.Table, noisy: pa.Table | None) -> pa.Table:
        keys = {key: released.column(key) for key in self.keys}
        return self._show(keys, self.read_noisy(released, noisy))

    def read_noisy(self, released: pa.Table, noisy: pa.Table | None) -> dict[Statistic, Integers]:
        """Return the released integers; without ``noisy``, the columns are these integers."""
        if noisy is None:
            return {o.statistics[0]: read_integers(released.column(o.name)) for o in self.outputs}
        return {s: unpack_integers(noisy.column(i)) for i, s in enumerate(self.statistics)}

    def list_noisy(self, release: base.Release) -> pa.Table:
        """Return the released integers, one column for each statistic."""
        if release.noisy is not None:
            return release.noisy
        return self._pack(self.read_noisy(release.table, None))

    @cached_property
    def counts(self) -> frozenset[Statistic]:
        """The statistics whose exact integers are never negative."""
        outputs = self.outputs
        alone = (o.statistic for o in outputs if isinstance(o, Count) or (isinstance(o, Sum) and o.counting))
        return frozenset([*alone, *(o.count for o in outputs if isinstance(o, Mean | Variance | Pair))])

    @cached_property
    def presence(self) -> tuple[Statistic, ...]:
        """The statistics that show whether a group has rows.

        The totals of means and other moments are left out: their count is of the rows that they add up.
        """
        moments = [o for o in self.outputs if isinstance(o, Mean | Variance | Pair)]
        covered = {s for output in moments for s in output.statistics} - self.counts
        return tuple(s for s in self.statistics if s not in covered)

    def find_filled(self, release: base.Release, keys: tuple[str, ...], doubt: float) -> base.Booleans | None:
        whole = all(output.shows_integers for output in self.outputs)
        if not self.outputs or (release.noisy is None and not whole):
            return None
        noisy = self.read_noisy(release.table, release.noisy)
        columns = [(s.noise, noisy[s]) for s in self.presence]
        counting = [s in self.counts for s in self.presence]
        return find_significant(columns, counting, release.table.num_rows, doubt)

    def draw(self, read: base.Reader, entropy: Entropy) -> tuple[pa.Table, pa.Table | None]:
        """Return the released columns, and the noisy integers behind them if the columns don't show these."""
        table = self.read_kept(read, entropy)
        runs = self._list_runs(table)
        noisy = {s: add_noise(s.noise, self._exact(table, s.column), runs, entropy) for s in self.statistics}
        columns: dict[str, pa.Array] = {key: table.column(key) for key in self.keys}
        del table  # of ten million groups: the exact columns are as large as the released ones
        return self._show(columns, noisy), self.pack_noisy(noisy)

    def pack_noisy(self, noisy: Noisy) -> pa.Table | None:
        """Return the noisy integers for :meth:`read_noisy`; None if the columns show them all (a BIGINT can't show 2**63)."""
        fits = all(values.dtype == np.int64 for values in noisy.values())
        if fits and all(output.shows_integers for output in self.outputs):
            return None
        return self._pack(noisy)

    def _pack(self, noisy: Noisy) -> pa.Table:
        return pa.table({str(i): pack_integers(noisy[s]) for i, s in enumerate(self.statistics)})

    def read_kept(self, read: base.Reader, entropy: Entropy) -> pa.Table:
        """Read the exact totals of the kept groups, sorted by their keys."""
        parts = [self._select(part, entropy) for part in self._totals(read, entropy)]
        table = pa.concat_tables(parts, promote_options="permissive")  # some may have integers of 128 bits
        return sort_by_key(table, self.keys) if self.keys else table

    def _list_runs(self, table: pa.Table) -> list[StepRows]:
        """Return the rows of each run of steps in a table sorted by its keys."""
        if not self.ordered or len(self.keys) == 1:
            return [np.arange(table.num_rows)]
        others = tuple(key for key in self.keys if key != self.ordered)
        return list(index_groups(table, others).values())

    def _show(self, keys: Mapping[str, object], noisy: Noisy) -> pa.Table:
        columns = dict(keys)
        for output in self.outputs:
            columns |= output.show(noisy, self.confidence).columns(output.name)
        return pa.table(columns)

    def _totals(self, read: base.Reader, entropy: Entropy) -> Iterator[pa.Table]:
        """Yield totals in parts under group selection, so that dropped groups are never all in memory."""
        packed = self.packed
        if packed is not None and packed.is_worth_reading(read, self.query):
            table = packed.follow(read, entropy)
            if table is not None:
                return iter((table,))
        return read_totals(read, self.query, self.unit_parts, self.keys, self.selection is not None, entropy)

    def _select(self, table: pa.Table, entropy: Entropy) -> pa.Table:
        """Return the kept groups, with the columns that are still needed."""
        needed = list(dict.fromkeys([*self.keys, *(s.column for s in self.statistics)]))
        if self.selection is None:
            return table.select(needed)
        units = read_integers(table.column(self.selection.column))
        table = table.select(needed).filter(to_mask(self.selection.keep(units, entropy)))
        for place, name in enumerate(needed):
            if name not in self.keys and pa.types.is_decimal(table.schema.field(name).type):
                with contextlib.suppress(pa.ArrowInvalid):  # 128 bits are seldom needed
                    table = table.set_column(place, name, table.column(name).cast(pa.int64()))
        return table

    def _exact(self, table: pa.Table, column: str) -> Integers:
        if not self.keys and table.num_rows == 0:
            return np.zeros(1, dtype=np.int64)
        if not self.keys and table.num_rows > 1:
            raise ValueError("a query without keys must give one row")
        return read_integers(table.column(column))

    def sentences(self, confidence: float) -> tuple[str, ...]:
        selected = () if self.selection is None else (self.selection.sentence(),)
        route = () if self.packed is None else ("Small keys are summed in memory: same result, faster.",)
        lines = (line for output in self.outputs for line in output.sentences(confidence))
        return (*selected, *self._describe_calibration(), *lines, *route)

    def _describe_calibration(self) -> Iterator[str]:
        """Yield a sentence for each joint calibration."""
        joint = (s.noise for s in self.statistics if isinstance(s.noise, JointGaussianNoise))
        for epsilon, delta in dict.fromkeys((noise.epsilon, noise.delta) for noise in joint):
            yield (
                f"Gaussian noise is calibrated once for all of its numbers together (ε={write_number(epsilon)}, "
                f"δ={write_number(delta)}, by the analytic formula): each has noise for its own sensitivity to one privacy unit."
            )

    def errors(self, basis: base.ErrorBasis) -> Iterator[base.ExpectedError]:
        for output in self.outputs:
            found = list(self._state_errors(output, basis))
            yield from found
            if not found and basis.release and f"{output.name}__low" in basis.release.table.column_names:
                yield from read_errors(
                    basis.release, output.name, output.statistics[0].noise, self.confidence
                )

    def _state_errors(self, output: Output, basis: base.ErrorBasis) -> Iterable[base.ExpectedError]:
        return output.errors(basis)


# -- further parts ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answered:
    """Released columns, one value per requested group, and the event that was used."""

    columns: Mapping[str, pa.Array]
    event: Event
    notes: tuple[str, ...] = ()


class Part(ABC):
    """Statistics that need more than one exact row per group."""

    query: str
    keys: tuple[str, ...]
    confidence: float | None = None
    """The level of its intervals; None if it shows none."""
    by_group: ClassVar[bool] = False
    """Whether it answers for each group independently of the others."""

    @property
    @abstractmethod
    def event(self) -> Event: ...

    @abstractmethod
    def claims(self) -> Iterable[base.ClaimedText]:
        """Yield every text that it may read, with its claim."""

    @property
    def queries(self) -> tuple[str, ...]:
        """Every text that it reads, except that of the column route."""
        return (self.query,)

    @property
    def column_route(self) -> ColumnCounts | None:
        """A route that counts the values of a column in this process, if any."""
        return None

    def read_exact(self, read: base.Reader, entropy: Entropy) -> pa.Table:
        """Return the result of ``query``, or equal totals in several rows per group."""
        return read(self.query)

    @abstractmethod
    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        """Release the columns for these groups, in this order; ``table`` is the result of ``query``."""

    def answer_counts(self, counts: NDArray[np.int64], entropy: Entropy) -> Answered:
        """Release the columns from the column route's counts."""
        raise NotImplementedError

    @property
    def can_redraw(self) -> bool:
        """Whether :meth:`redraw` makes all of its intervals."""
        return self.confidence is None

    def redraw(self, released: pa.Table) -> Mapping[str, pa.Array]:
        """Return the released columns that have intervals, at its own confidence."""
        return {}

    @abstractmethod
    def sentences(self, confidence: float) -> tuple[str, ...]: ...

    def errors(self, basis: base.ErrorBasis) -> Iterable[base.ExpectedError]:
        return ()

    @property
    def price_note(self) -> str:
        """A sentence on the part of its price that doesn't pay for answers."""
        return ""

    def alone(self) -> Together:
        """Return an operator that releases only this, ungrouped."""
        return Together(None, (self,))


@dataclass(frozen=True)
class Together(base.Operator):
    """An aggregation, if any, and further parts.

    ``aggregation`` may be None only without grouping; with keys it decides the groups, even without outputs. All queries get
    the same salt, so that they bound contributions alike.
    """

    aggregation: Aggregation | None
    parts: tuple[Part, ...]

    @property
    def event(self) -> Event:
        first = [] if self.aggregation is None or self.aggregation.is_free else [self.aggregation.event]
        return compose_events([*first, *(part.event for part in self.parts)])

    @property
    def divides(self) -> bool:
        first = self.aggregation
        return first is not None and first.divides and all(part.by_group for part in self.parts)

    @property
    def queries(self) -> tuple[str, ...]:
        first = () if self.aggregation is None else self.aggregation.queries
        routes = (route for part in self.parts if (route := part.column_route) is not None)
        return (*first, *dict.fromkeys([*self._part_texts, *(route.text for route in routes)]))

    @property
    def checked(self) -> tuple[str, ...]:
        first = () if self.aggregation is None else self.aggregation.checked
        return (*first, *dict.fromkeys(self._part_texts))

    @property
    def _part_texts(self) -> list[str]:
        return [text for part in self.parts for text in part.queries]

    def claims(self) -> Iterator[base.ClaimedText]:
        if self.aggregation is not None:
            yield from replace(self.aggregation, packed=None).claims()  # the packed route is not taken here
        for part in self.parts:
            yield from part.claims()

    def release(self, read: base.Read, entropy: Entropy) -> base.Release:
        reader = base.add_salt(read, self.queries, entropy)
        columns: dict[str, pa.Array] = {}
        answers: list[Answered] = []
        events: list[Event] = []
        groups: list[Group] = [()]
        noisy: pa.Table | None = None
        notes: list[str] = []
        if (first := self.aggregation) is not None:
            table, noisy = first.draw(reader, entropy)
            notes += first.note_groups(table)
            columns = {name: table.column(name) for name in table.column_names}
            events += [] if first.is_free else [first.event]
            groups = list_groups(table, first.keys) if first.keys else groups
        # by the query: a column's counts depend on its clamping bounds
        tables: dict[str, pa.Table] = {}
        counts: dict[str, NDArray[np.int64] | None] = {}
        for part in self.parts:
            text, route = part.query, part.column_route
            if route is not None and text not in counts:
                counts[text] = route.follow(reader, entropy)
            if route is not None and (held := counts[text]) is not None:
                answers.append(part.answer_counts(held, entropy))
                continue
            if text not in tables:
                tables[text] = part.read_exact(reader, entropy)
            answers.append(part.answer(tables[text], groups, entropy))
        for answered in answers:
            columns |= answered.columns
        notes += (note for answered in answers for note in answered.notes)
        event = compose_events([*events, *(answered.event for answered in answers)])
        return base.Release(pa.table(columns), event, tuple(dict.fromkeys(notes)), noisy)

    @property
    def can_show_again(self) -> bool:
        return all(part.can_redraw for part in self.parts)

    def show_again(self, released: pa.Table, noisy: pa.Table | None) -> pa.Table:
        columns = {name: released.column(name) for name in released.column_names}
        if self.aggregation is not None:
            table = self.aggregation.show_again(released, noisy)
            columns |= {name: table.column(name) for name in table.column_names}
        for part in self.parts:
            columns |= part.redraw(released)
        return pa.table(columns)

    def find_filled(self, release: base.Release, keys: tuple[str, ...], doubt: float) -> base.Booleans | None:
        return None if self.aggregation is None else self.aggregation.find_filled(release, keys, doubt)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        first = () if self.aggregation is None else self.aggregation.sentences(confidence)
        return (*first, *(line for part in self.parts for line in part.sentences(confidence)))

    def errors(self, basis: base.ErrorBasis) -> Iterator[base.ExpectedError]:
        if self.aggregation is not None:
            yield from self.aggregation.errors(basis)
        for part in self.parts:
            yield from part.errors(basis)

    @property
    def price_notes(self) -> tuple[str, ...]:
        return tuple(part.price_note for part in self.parts if part.price_note)


def unite_releases(operator: base.Operator, releases: Sequence[base.Release]) -> base.Release:
    """Return the release of all groups, sorted by their keys, given those of some groups each."""
    first = operator.aggregation if isinstance(operator, Together) else operator
    if len(releases) == 1 or not isinstance(first, Aggregation):
        return releases[0]
    shown = [one for one in releases if one.noisy is None]
    tables = [_beside(one.table, one.noisy) for one in releases if one.noisy is not None]
    if shown:  # of some groups, the shown integers are all there is
        table = pa.concat_tables([one.table for one in shown], promote_options="permissive")
        whole_of = base.Release(table, operator.event, ())
        tables.append(_beside(table, first.list_noisy(whole_of)) if tables else table)
    whole = sort_by_key(pa.concat_tables(tables, promote_options="permissive"), first.keys)
    count = releases[0].table.num_columns
    own = whole.select(range(count, whole.num_columns))
    return base.Release(
        whole.select(range(count)),
        operator.event,
        tuple(dict.fromkeys(note for one in releases for note in one.notes)),
        own.rename_columns([str(i) for i in range(own.num_columns)]) if own.num_columns else None,
    )


def _beside(table: pa.Table, own: pa.Table) -> pa.Table:
    for place, column in enumerate(own.columns):
        table = table.append_column(f"noisy {place}", column)
    return table


STEPS = 220
"""Levels of noise: from 1/4096 of epsilon to all of it, each 4 percent above the previous one."""
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
            note = f"with ε={used} not every interval ends within {float(self.error):g}; a larger epsilon may be enough"
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
            "up. Accountants that sum ε charge what was used; others charge the stages that were begun.",
        )

    def _state_errors(self, output: Output, basis: base.ErrorBasis) -> Iterable[base.ExpectedError]:
        """Return the errors of calibrated outputs; for reduced ones, those of Laplace noise that is just narrow enough."""
        if output.name not in self.reduced:
            return output.errors(basis)
        if basis.confidence is not None or (
            basis.release is not None and not isinstance(output, Count | Sum)
        ):
            return ()
        part = 1 / -math.log1p(-self.confidence) if self.confidence > 0 else 1.0
        return (base.ExpectedError(output.name, float(self.error) * min(part, 1.0)),)
