"""Noisy aggregates of groups: exact integers in, noisy values with intervals out.

Relation: ADD_REMOVE. Guarantee: what the events of the noises and of the group selection compose to; the
statistics are released together, each once, with independent noise, and everything after that is
post-processing. The caller (the rewriter) must ensure that the query bounds every privacy unit's
contribution as the noises declare, that group keys are public or a selection is given whose column counts
the distinct units of each group, and that a unit touches at most as many groups as noise and selection say.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsql.mechanisms.additive_noise import GaussianNoise, LaplaceNoise, Statistic
from dpsql.mechanisms.base import Read, Release, parts, room_of, salted
from dpsql.mechanisms.estimators import Count, Mean, Noisy, Output, Sum, Variance, exact_integers, longs
from dpsql.mechanisms.fast.packed_aggregation import Packed
from dpsql.mechanisms.group_selection import GroupSelection
from dpsql.noise.entropy import Entropy
from dpsql.numerics.integers import Integers, integers
from dpsql.privacy.events import Event, compose

__all__ = [
    "Aggregation",
    "Count",
    "GaussianNoise",
    "LaplaceNoise",
    "Mean",
    "Output",
    "Statistic",
    "Sum",
    "Variance",
]


@dataclass(frozen=True)
class Aggregation:
    """One private block of noisy aggregates.

    ``query`` gives one row per group: the ``keys``, every statistic's column (integers; NULL counts as 0)
    and the selection's column. Without keys it gives one row; an empty relation then stands for zeros.
    Equal statistics of several outputs are one statistic: released once, charged once.
    """

    query: str
    keys: tuple[str, ...]
    outputs: tuple[Output, ...]
    selection: GroupSelection | None = None
    confidence: float = 0.95
    packed: Packed | None = None
    """Another route to the rows of ``query``, taken where the engine has ``room`` for packed rows."""

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """Each distinct statistic, in order of first use."""
        return tuple(dict.fromkeys(s for output in self.outputs for s in output.statistics))

    @property
    def event(self) -> Event:
        chosen: Iterable[Event] = () if self.selection is None else (self.selection.event,)
        return compose([*(s.noise.event for s in self.statistics), *chosen])

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.query,)

    @property
    def checked(self) -> tuple[str, ...]:
        """All that may be read: the query, and the other route to its rows."""
        return (self.query, *(self.packed.queries if self.packed is not None else ()))

    @property
    def lends(self) -> Mapping[str, list[tuple[str, str]]]:
        """What the operator itself gives its queries to read."""
        return self.packed.lends if self.packed is not None else {}

    @property
    def free(self) -> bool:
        """Whether it only says which public groups there are: nothing private is released."""
        return not self.outputs and self.selection is None

    def release(self, read: Read, entropy: Entropy) -> Release:
        table, noisy = self.drawn(read, entropy)
        return Release(table, self.event, (), noisy)

    @property
    def shows(self) -> bool:
        return True

    def shown(self, released: pa.Table, noisy: pa.Table | None) -> pa.Table:
        """The released columns at this operator's confidence, out of the noisy integers behind them."""
        keys = {key: released.column(key) for key in self.keys}
        if noisy is None:  # what is shown of a count or of a whole sum is the noisy integer itself
            found = {o.statistics[0]: exact_integers(released.column(o.name)) for o in self.outputs}
        else:
            found = {s: _unwritten(noisy.column(i)) for i, s in enumerate(self.statistics)}
        return self._shown(keys, found)

    def released(self, read: Read, entropy: Entropy) -> pa.Table:
        """The released columns."""
        return self.drawn(read, entropy)[0]

    def drawn(self, read: Read, entropy: Entropy) -> tuple[pa.Table, pa.Table | None]:
        """The released columns, and the noisy integers behind them where the columns do not hold these themselves."""
        table = _together(self._selected(part, entropy) for part in self._totals(read, entropy))
        if self.keys:
            table = by_key(table, self.keys)
        noisy = {s: s.noise.add(self._exact(table, s.column), entropy) for s in self.statistics}
        columns: dict[str, Any] = {key: table.column(key) for key in self.keys}
        del table  # of ten million groups: the exact columns are as large as what is released
        shown = self._shown(columns, noisy)
        plain = all(isinstance(o, Count) or (isinstance(o, Sum) and o.whole) for o in self.outputs)
        # A count of 2**63 and more is shown as the most that a BIGINT holds.
        plain = plain and all(values.dtype == np.int64 for values in noisy.values())
        kept = (
            None if plain else pa.table({str(i): _written(noisy[s]) for i, s in enumerate(self.statistics)})
        )
        return shown, kept

    def _shown(self, columns: dict[str, Any], noisy: Noisy) -> pa.Table:
        columns = dict(columns)
        for output in self.outputs:
            shown = output.show(noisy, self.confidence)
            columns[output.name] = shown.value
            columns[f"{output.name}__low"], columns[f"{output.name}__high"] = shown.low, shown.high
        return pa.table(columns)

    def _totals(self, read: Read, entropy: Entropy) -> Iterator[pa.Table]:
        """In parts where groups are selected: those that are not kept never are in memory together."""
        if self.packed is not None and room_of(read):
            table = self.packed.table(read, entropy)
            if table is not None:
                return iter((table,))
        read = salted(read, (self.query,), entropy)
        return parts(read, self.query) if self.selection is not None else iter((read(self.query),))

    def _selected(self, table: pa.Table, entropy: Entropy) -> pa.Table:
        """The groups that are kept, and of them what is needed further."""
        needed = list(dict.fromkeys([*self.keys, *(s.column for s in self.statistics)]))
        if self.selection is None:
            return table.select(needed)
        units = exact_integers(table.column(self.selection.column))
        table = table.select(needed).filter(pa.array(self.selection.keep(units, entropy)))
        for place, name in enumerate(needed):
            if name not in self.keys and pa.types.is_decimal(table.schema.field(name).type):
                with contextlib.suppress(
                    pa.ArrowInvalid
                ):  # 128 bits are twice as much to hold, and seldom needed
                    table = table.set_column(place, name, table.column(name).cast(pa.int64()))
        return table

    def _exact(self, table: pa.Table, column: str) -> Any:
        if not self.keys and table.num_rows == 0:
            return np.zeros(1, dtype=np.int64)
        if not self.keys and table.num_rows > 1:
            raise ValueError("a query without keys must give one row")
        return exact_integers(table.column(column))

    def sentences(self, confidence: float) -> tuple[str, ...]:
        said = () if self.selection is None else (self.selection.sentence(),)
        route = () if self.packed is None else (_ROUTE,)
        return (*said, *(line for output in self.outputs for line in output.sentences(confidence)), *route)


def _written(values: Integers) -> pa.Array:
    """Noisy integers as they are kept: as text where some take more than 64 bits."""
    return longs(values) if values.dtype == np.int64 else pa.array([str(int(v)) for v in values], pa.string())


def _unwritten(column: pa.ChunkedArray) -> Integers:
    if pa.types.is_string(column.type):
        return integers([int(v) for v in column.to_pylist()])
    return exact_integers(column)


_ROUTE = "Where rows fit memory as one integer each, they are added up here instead of grouped there: the same totals, sooner."


def _together(parts: Iterable[pa.Table]) -> pa.Table:
    """One table; where an integer of some part takes 128 bits, all parts hold it so."""
    held = list(parts)
    schema = held[0].schema
    for part in held:
        for place, field in enumerate(part.schema):
            if pa.types.is_decimal(field.type) and pa.types.is_integer(schema.field(place).type):
                schema = schema.set(place, field)
    return pa.concat_tables([part.cast(schema) for part in held]) if len(held) > 1 else held[0]


def by_key(table: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """The rows in the order of their keys, ascending, NULL last: nothing is left of the engine's order."""
    ordering = pa.table({str(i): _sortable(table.column(key)) for i, key in enumerate(keys)})
    order = [(str(i), "ascending") for i in range(len(keys))]
    return table.take(pc.sort_indices(ordering, sort_keys=order))  # NULL at the end, as Arrow does


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column itself where Arrow can sort it; else the rank of its values' text."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    plain = (
        pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_string(kind)
        or pa.types.is_large_string(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind)
    )  # fmt: skip
    if plain and not pa.types.is_interval(kind):
        return column
    values = column.to_pylist()
    return pa.chunked_array([pa.array([None if v is None else repr(v) for v in values], type=pa.string())])
