"""The plan of a statement: a value that EXPLAIN prints, tests compare, the ledger stores and replay looks up.

A plan contains no connection and no data. Its loss is known before anything runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field

import pyarrow as pa
import pyarrow.compute as pc

from dpsql.language.labels import Orders, name_label_type, order_labels
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Aggregation, Group, Part, Together
from dpsql.mechanisms.base import ErrorBasis, Operator
from dpsql.mechanisms.consistency import Consistent
from dpsql.mechanisms.contribution_caps import CapSearch
from dpsql.mechanisms.empty_groups import RangedGroups
from dpsql.mechanisms.moments import Mean, Output, Pair, Variance
from dpsql.mechanisms.ordered_noise import find_node_level
from dpsql.mechanisms.strategies import StrategyChoice
from dpsql.mechanisms.window_widths import WINDOW_ERROR, WindowWidths
from dpsql.privacy.amounts import Amount
from dpsql.privacy.events import Event, compose_events
from dpsql.privacy.periods import Days, date_event, find_day_after, find_first_day, unite


def _find_answer(operator: Operator) -> Operator:
    """Return the operator of an answer: that for the lowest caps, if these are found privately."""
    return _find_answer(operator.least) if isinstance(operator, CapSearch) else operator


def find_null_reasons(operator: Operator) -> Mapping[str, str]:
    """Return why values are NULL, by column, except for mechanisms that release their own note with a NULL."""
    operator = _find_answer(operator)
    aggregation = operator.aggregation if isinstance(operator, Together) else operator
    outputs = aggregation.outputs if isinstance(aggregation, Aggregation) else ()
    reasons = ((output.name, _find_reason(output)) for output in outputs)
    return {name: reason for name, reason in reasons if reason}


def _find_reason(output: Output) -> str:
    """Return why an output is NULL; empty if it never is. Counts of weighted rows are rounded."""
    if not isinstance(output, Mean | Variance | Pair):
        return ""
    kind = "" if isinstance(output, Mean) else output.kind
    needed = 2 if kind.endswith("samp") or (isinstance(output, Pair) and kind != "covar_pop") else 1
    few = f"too few rows for this ε (their noisy count is below {needed})"
    divides = isinstance(output, Pair) and not kind.startswith("covar")
    return f"{few}, or no spread above the noise to divide by" if divides else few


class ProtectedUnit(str):
    """EXPLAIN's sentence on a privacy unit, with the values that it states.

    Args:
        unit: the name of one unit, ``row`` or a column; empty if only a period of it is protected.
        rows: the greatest cap on one unit's rows, in all or in one group; 1 if unknown.
        groups: the cap on one unit's groups; 1 if there are no groups or it is unknown.
    """

    unit: str
    rows: int
    groups: int

    def __new__(cls, text: str, unit: str = "", rows: int = 1, groups: int = 1) -> ProtectedUnit:
        made = super().__new__(cls, text)
        made.unit, made.rows, made.groups = unit, rows, groups
        return made


@dataclass(frozen=True)
class Input:
    """A public relation that an exact query reads, evaluated apart from private data and then passed to the engine.

    ``sql`` reads public tables and earlier blocks' releases; it runs in the engine of the outer statement.
    """

    name: str
    sql: str


def name_orders(orders: Iterable[tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return orders of labels by the names of their types."""
    return {name_label_type(order): order for order in orders}


@dataclass(frozen=True)
class StrategyVariant:
    """A block under a named strategy other than the chosen one.

    ``gain`` is the ratio of its error to the chosen strategy's, in the displayed values (1 if nothing was chosen).
    ``single_gain`` is that ratio for the block's individual numbers, for statements without a choice.
    """

    word: str
    operator: Operator
    gain: float = 1.0
    single_gain: float = 1.0


@dataclass(frozen=True)
class PeriodParts:
    """The parts of a block whose groups are of some periods each: each part may be stored and paid on its own.

    Args:
        part: the unit of the periods, as ``date_trunc`` calls it.
        keys: the columns of its release that decide the periods.
        starts: the first day of the part of each of their values.
        classes: the first days of the periods of each part.
        scans: for each scan of a private table, the table that declares its period, the days that are read, and the day before
            which its rows no longer change.
        levels: those of the growing tree whose nodes are stored; 0 without a tree.
    """

    part: str
    keys: tuple[str, ...]
    starts: Mapping[Group, int]
    classes: tuple[tuple[int, ...], ...]
    scans: tuple[tuple[str, Days, int], ...]
    levels: int = 0

    def list_parts(self) -> list[Days]:
        """Return the periods of each part, as ranges of days."""
        return [unite((day, find_day_after(day, self.part)) for day in one) for one in self.classes]

    def list_draws(self) -> list[tuple[int, Days, Days]]:
        """Return the level, the periods that are drawn, and its own ones for each part.

        With a tree, the node that ends with a part is drawn.
        """
        days = self.list_parts()
        if not self.levels:
            return [(0, one, one) for one in days]
        levels = [find_node_level(count, self.levels) for count in range(1, len(days) + 1)]
        starts = (days[i + 1 - 2**n][0][0] for i, n in enumerate(levels))
        return [(n, ((start, own[-1][1]),), own) for n, start, own in zip(levels, starts, days, strict=True)]

    @property
    def closed(self) -> int:
        """The day before which all rows are read and no longer change."""
        return min(min(days[-1][1], closed) for _, days, closed in self.scans)

    def count(self, days: Days) -> int:
        """Return the number of periods."""
        return sum(find_first_day(day, self.part) == day for low, high in days for day in range(low, high))


@dataclass(frozen=True)
class PrivateBlock:
    """One private SELECT: an operator, and the name and columns of the relation that its release becomes.

    Its exact queries may read ``inputs``. ``sentences`` state the privacy unit and the bounds with their sources.
    """

    name: str
    operator: Operator
    columns: tuple[tuple[str, str], ...] = ()
    inputs: tuple[Input, ...] = ()
    sentences: tuple[str, ...] = ()
    confidence: float = 0.95
    asked: Amount | None = None
    """Greatest loss the statement requested, in its own currency; None if it requested none."""
    strategy: StrategyChoice | None = None
    """The strategy by which its numbers, and those of blocks chosen with it, are measured; None if there was no choice."""
    variants: tuple[StrategyVariant, ...] = ()
    """This block under other strategies: a stored answer by any of them also serves the statement."""
    orders: tuple[tuple[str, tuple[str, ...]], ...] = field(default=(), compare=False, repr=False)
    """The columns of labels of an ENUM, with all labels in the type's order; see :mod:`dpsql.language.labels`."""
    periods: Days | None = None
    """The periods that its texts read, and that pay for it; None for all."""
    parts: PeriodParts | None = field(default=None, compare=False, repr=False)
    """Its parts, if its release can be divided by periods."""
    sets: tuple[PrivateBlock, ...] = field(default=(), compare=False, repr=False)
    """The blocks of its grouping sets one by one, if they could have been measured so."""
    closed: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """The tables that declare its periods and whose days no longer change: its answer is of all versions of their data."""

    @property
    def event(self) -> Event:
        """The greatest loss of its release, of the units of its periods."""
        return date_event(self.operator.event, self.periods)

    @property
    def prepaid(self) -> bool:
        """Whether its cost was reserved earlier: it asks a threshold that DECLARE made."""
        return self.operator.prepaid

    @property
    def own_queries(self) -> tuple[Part, ...]:
        """The mechanisms of aggregates with exact queries of their own."""
        operator = _find_answer(self.operator)
        return operator.parts if isinstance(operator, Together) else ()

    def explain(self) -> tuple[str, ...]:
        """Return EXPLAIN's sentences about this block."""
        chosen = () if self.strategy is None else (self.strategy.sentence(),)
        return (*self.sentences, *chosen, *self.operator.sentences(self.confidence))


@dataclass
class PlanBuilder:
    """The parts of a plan that grow while its statement is bound."""

    blocks: list[PrivateBlock] = field(default_factory=list, init=False)
    public: dict[str, None] = field(default_factory=dict, init=False)
    notes: list[str] = field(default_factory=list, init=False)
    limits: list[str] = field(default_factory=list, init=False)
    """EXPLAIN's sentences on the limits of a unit's contribution."""
    adjustments: list[Consistent] = field(default_factory=list, init=False)
    ranged: list[RangedGroups] = field(default_factory=list, init=False)
    """The blocks with groups made by a range, some of which an answer shows."""


@dataclass(frozen=True)
class IntervalColumns:
    """The finished relation's columns for the interval of an output column (dropped before display)."""

    column: str
    low: str
    high: str


_KINDS = {
    "BIGINT": pa.int64(),
    "INTEGER": pa.int32(),
    "INT": pa.int32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "VARCHAR": pa.string(),
    "TEXT": pa.string(),
}
_HUGEINT = pa.decimal128(38, 0)
"""The Arrow type that DuckDB gives a HUGEINT."""
_NUMBERS = frozenset({"BIGINT", "HUGEINT", "DOUBLE"})
"""SQL types that can be cast to each other."""
_EXACT = 2**53
"""A double represents every integer up to this one."""


@dataclass(frozen=True)
class Renamed:
    """An output column that renames a column of the release and casts it from its first to its last of ``kinds`` in turn."""

    name: str
    source: str
    kinds: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether each cast is defined for its types."""
        return len(set(self.kinds)) == 1 or _NUMBERS.issuperset(self.kinds)

    def read(self, table: pa.Table) -> pa.ChunkedArray | None:
        """Return the column cast as the engine would cast it; None if only the engine can."""
        column = table.column(self.source)
        if column.type == _KINDS.get(self.kinds[0]) and len(set(self.kinds)) == 1:
            return column
        if not _NUMBERS.issuperset(self.kinds):
            return None
        for kind in self.kinds[1:]:
            cast = _CASTS.get((str(column.type), kind))
            column = None if cast is None else cast(column)
            if column is None:
                return None
        return column


def _double(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Cast integers to doubles; None if one is greater than ``_EXACT``."""
    ends = pc.min_max(column)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return None if low is not None and max(-low, high) > _EXACT else column.cast(pa.float64())


_CASTS: dict[tuple[str, str], Callable[[pa.ChunkedArray], pa.ChunkedArray | None]] = {
    **dict.fromkeys(
        (("int64", "BIGINT"), ("double", "DOUBLE"), (str(_HUGEINT), "HUGEINT")), lambda same: same
    ),
    ("int64", "HUGEINT"): lambda column: column.cast(_HUGEINT),
    **dict.fromkeys((("int64", "DOUBLE"), (str(_HUGEINT), "DOUBLE")), _double),
}
"""Casts from an Arrow type to an SQL type."""
NO_INTERVAL_FOR = "no interval for "
"""Prefix of notes about columns whose error has no interval."""
_UNBOUNDED = "the noise leaves it unbounded, for example because its divisor may be 0"


@dataclass(frozen=True)
class ReleaseDraft:
    """A release that a statement will publish.

    Args:
        text: its definition, one query.
        epsilon: the default cost of its blocks, as a fraction in text; empty for the policy's.
        over: the release that it takes the place of, as it was when the statement was bound; empty if there must be none, None
            for whichever there is.
    """

    name: str
    text: str
    epsilon: str = ""
    over: str | None = ""


@dataclass(frozen=True)
class Plan:
    """Private blocks, and the public SQL that runs over their releases.

    ``text`` is the canonical statement with its parameters filled in: equal statements have equal texts. ``finish`` is
    DuckDB SQL over the releases (by block name) and the tables in ``public``. ``columns`` are the output names, in order.
    """

    text: str
    blocks: tuple[PrivateBlock, ...]
    finish: str
    columns: tuple[str, ...]
    public: tuple[str, ...] = ()
    intervals: tuple[IntervalColumns, ...] = ()
    confidence: float = 0.95
    notes: tuple[str, ...] = ()
    adjustments: tuple[Consistent, ...] = ()
    """Post-processing of the releases before ``finish`` reads them."""
    renamed: tuple[Renamed, ...] | None = None
    """The columns of ``finish`` if it only renames and casts; otherwise None."""
    limits: tuple[str, ...] = ()
    """EXPLAIN's sentences on the limits of a unit's contribution."""
    shared: tuple[object, ...] = ()
    """The queries its exact texts refer to by name; kept alive as long as the plan."""
    traced: tuple[tuple[str, tuple[tuple[tuple[str, str, float], ...], ...]], ...] = ()
    """Origins of the output columns, in order: :mod:`dpsql.binding.traced_columns`."""
    spreads: tuple[tuple[str, float], ...] = ()
    """Columns of maps of noisy counts, with the half width of each count's interval."""
    by_sets: Callable[[], Plan] | None = field(default=None, compare=False, repr=False)
    """Returns the statement with grouping sets measured one by one, if they are together; None if they need not be."""
    widths: tuple[WindowWidths, ...] = ()
    """Relations of half widths that ``finish`` reads with the releases."""
    window_errors: tuple[WindowWidths, ...] = ()
    """The windows that output columns are traced to and whose errors are reported."""
    ranged: tuple[RangedGroups, ...] = ()
    """The blocks with groups made by a range; an answer shows those that differ from a group without rows."""
    narrow: Callable[[Days], Plan] | None = field(default=None, compare=False, repr=False)
    """Returns the statement over other days, for blocks that are stored in parts."""
    size: int = field(default=0, compare=False, repr=False)
    """Size of its exact queries in characters: :class:`dpsql.binding.relations.plan_size.WrittenTexts`."""
    draft: ReleaseDraft | None = field(default=None, compare=False)
    """The release that its answer is published as."""

    def expect_errors(self, by_block: Mapping[str, ErrorBasis]) -> dict[str, float]:
        """Return the expected absolute errors of output columns, in their own units, as far as they are determined.

        Independent errors are summed in quadrature. For a UNION the side with the largest error counts.

        Args:
            by_block: the basis of each block's errors; errors of other blocks are unknown.
        """
        operators = {block.name: block.operator for block in self.blocks if block.name in by_block}
        stated = ((name, e) for name, operator in operators.items() for e in operator.errors(by_block[name]))
        known = {(block, e.name): e.error for block, e in stated}
        for window in self.window_errors:
            error = window.expect_error(operators[window.block]) if window.block in operators else None
            known |= {} if error is None else {(window.relation, WINDOW_ERROR): error}
        found = {}
        for shown, (name, traces) in zip(self.columns, self.traced, strict=False):
            errors = []
            for trace in traces if shown.lower() == name.lower() else ():
                terms = [(known.get((block, column)), factor) for block, column, factor in trace]
                scaled = [error * factor for error, factor in terms if error is not None]
                if len(scaled) == len(terms):
                    errors.append(math.hypot(*scaled))
            if errors:
                found[shown] = max(errors)
        return found

    @property
    def interval_columns(self) -> tuple[str, ...]:
        """The output columns that may have intervals."""
        return (*(item.column for item in self.intervals), *(name for name, _ in self.spreads))

    @property
    def output_names(self) -> dict[str, str]:
        """The statement's names for released columns, as far as they are unambiguous."""
        released = Counter(column for block in self.blocks for column, _ in block.columns)
        found: dict[str, str] = {}
        for name, traces in self.traced:
            if len(traces) == 1 and len(traces[0]) == 1:
                _, column, factor = traces[0][0]
                if factor == 1 and released[column] == 1:
                    found.setdefault(column, name)
        return found

    def list_notes(
        self, released: Iterable[str], relations: Mapping[str, pa.Table], table: pa.Table
    ) -> tuple[str, ...]:
        """Return the notes under an answer; ``released`` notes on columns without intervals get the outputs' names."""
        names = self.output_names
        named = (_name_note(note, names) for note in released)
        return tuple(dict.fromkeys((*self.notes, *named, *self._explain_missing(relations, table, names))))

    def _explain_missing(
        self, relations: Mapping[str, pa.Table], table: pa.Table, names: Mapping[str, str]
    ) -> Iterator[str]:
        """Yield the reasons why released values are NULL and why numbers that could have an interval have none."""
        shown = {name: table.column(at) for at, name in enumerate(self.columns)}
        if any(column.null_count for column in shown.values()):
            for block in self.blocks:
                reasons = find_null_reasons(block.operator)
                for name, reason in reasons.items() if block.name in relations else ():
                    label = names.get(name, name)
                    column = shown.get(label, relations[block.name].column(name))
                    if column.null_count:
                        some = f"{label}: {column.null_count:,} of {len(column):,} values are NULL"
                        yield f"{f'{label} is NULL' if len(column) == 1 else some}: {reason}"
        for item in self.intervals:
            low, value = table.column(item.low), shown.get(item.column)
            if value is not None and low.null_count == len(low) and value.null_count < len(value):
                yield f"{NO_INTERVAL_FOR}{item.column}: {_UNBOUNDED}"

    def direct(self, relations: Mapping[str, pa.Table]) -> pa.Table | None:
        """Return the finished relation if it needs no SQL; None if columns need the engine's casts."""
        if self.renamed is None:
            return None
        (table,) = relations.values()
        columns = {item.name: item.read(table) for item in self.renamed}
        return None if any(column is None for column in columns.values()) else pa.table(columns)

    @property
    def schemas(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """Names and SQL types of the columns of the non-public relations that ``finish`` reads, by relation."""
        blocks = {block.name: block.columns for block in self.blocks}
        return {**blocks, **{item.relation: item.columns for item in self.widths}}

    def adjusted(
        self, relations: Mapping[str, pa.Table], drawn: Iterable[PrivateBlock] = ()
    ) -> Mapping[str, pa.Table]:
        """Return the releases as ``finish`` reads them; the ``drawn`` blocks may have another strategy than the plan's."""
        for adjustment in self.adjustments:
            relations = adjustment.applied(relations)
        blocks = {block.name: block for block in (*self.blocks, *drawn)}
        made = dict(relations)
        for item in self.widths:
            block = blocks[item.block]
            made[item.relation] = item.make(block.operator, relations[item.block], block.confidence)
        return self.order_labels(made)

    def find_orders(self, columns: Iterable[tuple[str, str]]) -> Orders:
        """Return the columns of ``finish`` that have labels, given their names and SQL types."""
        known = name_orders(order for block in self.blocks for _, order in block.orders)
        pairs = zip(self.columns, columns, strict=False)
        return [(name, known[kind]) for name, (_, kind) in pairs if kind in known]

    def order_labels(self, relations: Mapping[str, pa.Table]) -> Mapping[str, pa.Table]:
        """Return the releases with columns of labels in the order of their types."""
        return order_labels(relations, {block.name: block.orders for block in self.blocks if block.orders})

    @property
    def event(self) -> Event | None:
        """The cost as one jointly composed event; None if free, as without private blocks or for a prepaid probe."""
        paid = [block.event for block in self.blocks if not block.prepaid]
        return compose_events(paid) if paid else None


def _name_note(note: str, names: Mapping[str, str]) -> str:
    """Return a note of the form ``no interval for a, b: why`` with the names of the outputs."""
    if not note.startswith(NO_INTERVAL_FOR):
        return note
    rest, named = note[len(NO_INTERVAL_FOR) :], []
    while column := next((c for c in names if rest.startswith((f"{c}, ", f"{c}: "))), ""):
        named.append(names[column])
        rest = rest[len(column) :]
        if rest.startswith(": "):
            return f"{NO_INTERVAL_FOR}{', '.join(named)}{rest}"
        rest = rest[2:]
    return note
