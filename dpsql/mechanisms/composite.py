"""Several kinds of statistic in one block: noisy aggregates, quantiles, and totals with bounds found privately.

Aggregates need one row per group, the others a histogram per group, so each part has an exact query of its own.
The groups are decided once, by the aggregation (whose query gives the keys, and a selection where they are
private); every part then answers for exactly these groups, the empty ones too.

Relation: ADD_REMOVE. Guarantee: what the events of the aggregation and of the parts compose to; nothing is
shared between them but the released keys.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.mechanisms.additive import Aggregation
from dpsql.mechanisms.base import Read, Release, salted
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import Event, compose

Group = tuple[object, ...]
"""Values of the keys; ``()`` where nothing is grouped."""

Rows = Mapping[Group, NDArray[np.intp]]
"""Which rows of a table belong to which group."""

_NAN = object()


@dataclass(frozen=True)
class Answered:
    """Released columns, one value per group asked for, and what was really used."""

    columns: Mapping[str, pa.Array]
    event: Event
    notes: tuple[str, ...] = ()


class Part(Protocol):
    """Statistics that need more than one exact row per group."""

    @property
    def query(self) -> str: ...

    @property
    def keys(self) -> tuple[str, ...]: ...

    @property
    def event(self) -> Event: ...

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        """Releases the columns for these groups, in this order; ``table`` is what ``query`` gave."""
        ...

    def sentences(self, confidence: float) -> tuple[str, ...]: ...


@runtime_checkable
class Redrawn(Protocol):
    """A part whose intervals can be made again from what it released, at its own confidence."""

    def shown_again(self, released: pa.Table) -> Mapping[str, pa.Array]: ...


@runtime_checkable
class Countable(Protocol):
    """A part without keys whose query counts the values of a column, which may come here to be counted."""

    @property
    def column(self) -> str | None: ...

    def counted(self, read: Read, column: str) -> NDArray[np.int64] | None: ...

    def answer_counted(self, counts: NDArray[np.int64], entropy: Entropy) -> Answered: ...


def _column(part: Part) -> str:
    return (part.column or "") if isinstance(part, Countable) else ""


def groups_of(table: pa.Table, keys: tuple[str, ...]) -> list[Group]:
    """The group of every row, in a form that can be compared: NaN equals NaN. Takes whatever value a key may have."""
    if not keys:
        return [()] * table.num_rows
    return list(zip(*(_values(table.column(key)) for key in keys), strict=True))


def _values(column: pa.ChunkedArray) -> list[object]:
    """By type alone, so that all tables of a block agree: Python has no infinite date, no year 10000, no 24:00:00."""
    kind = column.type
    if pa.types.is_nested(kind):
        return [_raw(scalar) for scalar in column]
    if _moment(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return [_same(v) for v in column.to_pylist()]


def _moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


def _raw(scalar: Any) -> object:
    """A nested value by what Arrow stores of it."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if _moment(kind):
        return scalar.value
    if pa.types.is_struct(kind):
        return tuple(_raw(scalar[i]) for i in range(kind.num_fields))
    if pa.types.is_nested(kind):
        return tuple(_raw(item) for item in scalar.values)
    return _same(scalar.as_py())


def _same(value: Any) -> object:
    if isinstance(value, float) and math.isnan(value):
        return _NAN
    return value


def rows_of(table: pa.Table, keys: tuple[str, ...]) -> Rows:
    """The rows of each group."""
    if not keys:
        return {(): np.arange(table.num_rows)}
    found: dict[Group, list[int]] = {}
    for i, group in enumerate(groups_of(table, keys)):
        found.setdefault(group, []).append(i)
    return {group: np.array(rows, dtype=np.intp) for group, rows in found.items()}


@dataclass(frozen=True)
class Together:
    """A block of an aggregation, or none, and further parts.

    ``aggregation`` may be None only where nothing is grouped; with keys it says which groups there are, with or
    without outputs of its own. All queries get the same salt, so that they bound contributions alike.
    """

    aggregation: Aggregation | None
    parts: tuple[Part, ...]

    @property
    def event(self) -> Event:
        first = [] if self.aggregation is None or self.aggregation.free else [self.aggregation.event]
        return compose([*first, *(part.event for part in self.parts)])

    @property
    def queries(self) -> tuple[str, ...]:
        first = () if self.aggregation is None else self.aggregation.queries
        columns = (column for part in self.parts if (column := _column(part)))
        return (*first, *dict.fromkeys([*(part.query for part in self.parts), *columns]))

    def release(self, read: Read, entropy: Entropy) -> Release:
        read = salted(read, self.queries, entropy)
        columns: dict[str, Any] = {}
        events: list[Event] = []
        notes: list[str] = []
        groups: list[Group] = [()]
        noisy: pa.Table | None = None
        if self.aggregation is not None:
            first = self.aggregation
            table, noisy = first.drawn(read, entropy)
            columns = {name: table.column(name) for name in table.column_names}
            events += [] if first.free else [first.event]
            if first.keys:
                groups = groups_of(table, first.keys)
        seen: dict[str, pa.Table] = {}
        counts: dict[str, NDArray[np.int64] | None] = {}
        for part in self.parts:
            text, column = part.query, _column(part)
            if column and isinstance(part, Countable):
                if (
                    text not in counts
                ):  # by the query: a column's counts depend on the bounds that it is held to
                    counts[text] = part.counted(read, column)
                if (held := counts[text]) is not None:
                    answered = part.answer_counted(held, entropy)
            if counts.get(text) is None:
                if text not in seen:
                    seen[text] = read(text)
                answered = part.answer(seen[text], groups, entropy)
            columns |= answered.columns
            events.append(answered.event)
            notes += answered.notes
        return Release(pa.table(columns), compose(events), tuple(dict.fromkeys(notes)), noisy)

    @property
    def shows(self) -> bool:
        """A part shows itself again, or has no intervals."""
        return all(isinstance(part, Redrawn) or not hasattr(part, "confidence") for part in self.parts)

    def shown(self, released: pa.Table, noisy: pa.Table | None) -> pa.Table:
        """The released columns at this operator's confidence."""
        columns = {name: released.column(name) for name in released.column_names}
        if self.aggregation is not None:
            table = self.aggregation.shown(released, noisy)
            columns |= {name: table.column(name) for name in table.column_names}
        for part in self.parts:
            if isinstance(part, Redrawn):
                columns |= part.shown_again(released)
        return pa.table(columns)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        first = () if self.aggregation is None else self.aggregation.sentences(confidence)
        return (*first, *(line for part in self.parts for line in part.sentences(confidence)))
