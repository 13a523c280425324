"""State of a session between statements: the current cell, kept results and open thresholds.

Kept results are released values, so any later statement may read them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING

import pyarrow as pa

from dpsql.binding.plan import Plan, PrivateBlock, ReleaseDraft
from dpsql.binding.public_statement import FORETOLD, KeptResult, make_unique
from dpsql.binding.relations.catalog import Catalog
from dpsql.binding.relations.plan_size import refuse_cell
from dpsql.engine.arrow_tables import to_arrow
from dpsql.engine.postprocess import Finisher
from dpsql.errors import BindError, Error, PolicyError, Span, did_you_mean
from dpsql.language.statements import Statement
from dpsql.late_dataclass import dataclass
from dpsql.ledger.ledger import Ledger, Ticket
from dpsql.mechanisms.queries import Select
from dpsql.noise.entropy import Entropy
from dpsql.policy.model import Policy, fold
from dpsql.session.result import MissingLibrary, Result

if TYPE_CHECKING:
    from dpsql.binding.modes.declared import Declaration
    from dpsql.mechanisms.selection.above_threshold import InteractiveThreshold


def require_libraries(blocks: Iterable[PrivateBlock]) -> None:
    """Raise MissingLibrary, with the extra to install, if drawing the blocks needs a missing library; called before payment."""
    for block in blocks:
        found = True
        try:
            block.operator.require_libraries()
        except ImportError:
            found = False
        if not found:  # raised here, so that no other error is in its context
            raise MissingLibrary("'dpsql[synthetic]'", "CREATE SYNTHETIC TABLE")


@dataclass
class OpenCell:
    """A cell while its statements are bound: the names visible to the next statement, and the sizes so far."""

    catalog: Catalog
    thresholds: dict[str, Declaration]
    sizes: list[int] = field(default_factory=list)
    releases: dict[str, ReleaseDraft | None] = field(default_factory=dict)
    """The releases that statements of the cell make or change, by folded name; None for those that they drop."""

    def count(self, size: int, span: Span) -> None:
        """Add a statement's size; raise BindError if the cell's statements are too large together."""
        self.sizes.append(size)
        refuse_cell(self.sizes, span)


class KeptResults:
    """A session's kept results; internal names are digests of the contents, so equal inputs reuse stored answers."""

    def __init__(self, policy: Policy, finisher: Finisher) -> None:
        self._policy = policy
        self._finisher = finisher
        self.by_name: dict[str, KeptResult] = {}
        """The kept results by folded name, which the catalog reads."""

    @property
    def names(self) -> list[str]:
        """The names of kept results, as the analyst wrote them."""
        return [item.name for item in self.by_name.values()]

    def check(self, name: str, span: Span | None = None) -> None:
        """Raise BindError for a name a result can't take: no identifier, or the name of a private table."""
        if not isinstance(name, str) or not name.isidentifier():
            raise BindError(
                f"{name!r} can't be the name of a result.", span=span, hint="write a word, such as out."
            )
        if any(fold(t.name) == fold(name) and not t.public for t in self._policy.tables.values()):
            raise BindError(
                f"{name} is a private table, and no result takes its name.",
                span=span,
                hint=f"write {name}_result, say.",
            )

    def check_statement(self, statement: Statement) -> None:
        """Refuse ``name << ...`` if no result can take the name, with the statement's span."""
        before, span = statement.text.rfind(statement.keep, 0, statement.span[0]), statement.span
        start = statement.text.find(statement.keep, *span) if statement.synthetic else before
        try:
            self.check(statement.keep, (start, start + len(statement.keep)))
        except BindError as error:
            raise error.located(statement.text) from None

    def keep(self, name: str, result: object) -> None:
        """Add a result, or an analyst's table, to later statements' relations; BindError for a bad name or no table."""
        self.check(name)
        try:
            given = result if isinstance(result, Result) else Result(to_arrow(name, result))
        except PolicyError as error:
            raise BindError(error.message, hint=error.hint) from None
        kept, table = make_kept(name, given)
        self._finisher.hold(kept.table, table)
        self.by_name[fold(name)] = kept

    def forget(self, name: str) -> None:
        """Remove a kept result."""
        self.by_name.pop(fold(name), None)

    def foretell(self, name: str, plan: Plan) -> dict[str, KeptResult]:
        """Return a plan's predicted result, to which later statements are bound before it runs: columns without rows."""
        hidden = {key for item in plan.intervals for key in (item.low, item.high)}
        found = [
            c for c in self._finisher.describe(plan.finish, plan.schemas, plan.public) if c[0] not in hidden
        ]
        columns = make_unique(shown for shown, _ in found)
        kinds = tuple(zip(columns, (kind for _, kind in found), strict=True))
        held = FORETOLD + hashlib.sha256(repr(kinds).encode()).hexdigest()[:24]
        self._finisher.hold(held, kinds)
        return {fold(name): KeptResult(name, held, tuple(columns))}

    def schema(self, name: str) -> Mapping[str, str] | None:
        """Return names and SQL types of a kept result's columns; None if there is no such result."""
        item = self.by_name.get(fold(name))
        return None if item is None else self.describe(item)

    def describe(self, item: KeptResult) -> Mapping[str, str]:
        """Return names and SQL types of the columns of a kept result, or of a release."""
        known = dict(self._finisher.describe_shown(Select("*", item.table).sql, {}, (item.table,)))
        return {column: known[column] for column in item.columns}


def make_kept(name: str, given: Result) -> tuple[KeptResult, pa.Table]:
    """Return a result as a relation of later statements: its description, and its rows with the ends of its intervals."""
    columns = make_unique(given.columns)
    table = given.ordered_table.rename_columns(columns)
    ends: list[tuple[str, str, str]] = []
    bins: list[tuple[str, float]] = []
    for shown, pair in given.ends.items():
        plain = columns[given.columns.index(shown)]
        if pa.types.is_map(pair[0].type):
            width = _find_width(*pair)
            bins += [] if width is None else [(plain, width)]
            continue
        if pair[0].type != pa.float64():  # of dates and times
            continue
        low, high = make_unique([*table.column_names, f"{plain}__low", f"{plain}__high"])[-2:]
        table = table.append_column(low, pair[0]).append_column(high, pair[1])
        ends.append((plain, low, high))
    held = f"dpsql_kept_{_digest(table)}"
    return KeptResult(name, held, tuple(columns), tuple(ends), given.confidence, tuple(bins)), table


def _find_width(low: pa.ChunkedArray, high: pa.ChunkedArray) -> float | None:
    """Return the common half width of a histogram's counts; None if there is none."""
    ends = (
        pair
        for rows in zip(low.to_pylist(), high.to_pylist(), strict=True)
        for pair in zip(*(row or () for row in rows), strict=True)
    )
    return max(((above - below) / 2 for (_, below), (_, above) in ends), default=None)


def _digest(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()[:24]


@dataclass
class OpenThreshold:
    """One open threshold. Its noisy level exists only in this process."""

    declaration: Declaration
    ticket: Ticket
    stream: InteractiveThreshold

    def describe_end(self) -> str:
        """Return the status of a closed threshold: its number of hits."""
        return f"closed after {self.declaration.describe_hits(self.stream.hits)}"


class OpenThresholds:
    """Open thresholds, by case-insensitive name."""

    def __init__(self, ledger: Ledger, entropy: Entropy) -> None:
        self._ledger, self._entropy = ledger, entropy
        self.declared: dict[str, Declaration] = {}
        self._open: dict[str, OpenThreshold] = {}
        self._used: dict[str, OpenThreshold] = {}
        """Those that closed themselves at their last hit, and were not CLOSEd since."""

    @property
    def names(self) -> list[str]:
        """The names of open thresholds, as the analyst wrote them."""
        return [opened.declaration.name for opened in self._open.values()]

    def open(self, declaration: Declaration, text: str) -> Ticket:
        """Reserve the whole cost, and draw the noisy threshold; BindError if the name is already open."""
        key = declaration.name.lower()
        if key in self._open:
            raise BindError(
                f"the threshold {declaration.name} is open already.", hint=f"CLOSE {declaration.name} first."
            )
        ticket = self._ledger.reserve(declaration.event, text)
        stream = declaration.open(self._entropy)
        ticket.update(stream.event)
        opened = OpenThreshold(declaration, ticket, stream)
        declaration.ask = lambda value, threshold, sensitivity: self._ask(
            opened, value, threshold, sensitivity
        )
        self._open[key] = opened
        self._used.pop(key, None)
        self.declared[key] = declaration
        return ticket

    def _ask(self, opened: OpenThreshold, value: int, threshold: int, sensitivity: int) -> int | None:
        gap = opened.stream.compare(value, threshold, sensitivity)
        # Record the answer durably before it is returned: a restart must not forget a hit. Both answers are written, so
        # that an unwritable ledger reveals neither.
        opened.ticket.update(opened.stream.event)
        if opened.stream.exhausted:
            self._used[opened.declaration.name.lower()] = self.close(opened.declaration.name)
        return gap

    def close(self, name: str) -> OpenThreshold:
        """Settle a threshold by its number of hits; BindError if no such threshold is open.

        A threshold that closed at its last hit is already settled and is returned once more: whether CLOSE succeeds
        must not depend on the answers.
        """
        key = name.lower()
        if key in self._used:
            return self._used.pop(key)
        if key not in self._open:
            raise BindError(f"no threshold {name} is open.", hint=did_you_mean(name, self.names))
        opened = self._open.pop(key)
        opened.declaration.ask, opened.declaration.closed = None, True
        self._ledger.settle(opened.ticket, opened.stream.event, None, "released")
        return opened

    def require(self, plan: Plan) -> None:
        """Raise BindError if a plan asks a closed threshold: an earlier statement of the cell may have used it up."""
        for block in plan.blocks:
            name = block.operator.threshold_name
            if name and name.lower() not in self._open:
                raise BindError(f"the threshold {name} is closed.", hint="DECLARE it again.")

    def close_all(self) -> None:
        """Settle every open threshold."""
        for opened in list(self._open.values()):
            with suppress(Error):
                self.close(opened.declaration.name)
