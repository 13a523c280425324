"""Looks up a statement's blocks in the ledger by their keys: stored blocks are free, the others are paid and drawn.

Equal blocks are one draw and one charge. A block that reads an earlier block is known only once that is released, so it
is drawn again whenever the earlier one is. Releases are stored as bytes: relations and notes, nothing exact.
"""

from __future__ import annotations

import datetime
import io
import itertools
import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from dpsql.binding.plan import PeriodParts, Plan, PrivateBlock, StrategyVariant
from dpsql.binding.public_statement import FORETOLD
from dpsql.binding.relations.scanned_periods import MOST_RANGES
from dpsql.errors import BindError, Error, PostprocessingError
from dpsql.late_dataclass import dataclass
from dpsql.ledger.answers import StoredRelease, hash_release
from dpsql.ledger.ledger import KeptReleases, Ledger
from dpsql.mechanisms.aggregation import Aggregation, list_groups, unite_releases
from dpsql.mechanisms.base import ErrorBasis, Release
from dpsql.mechanisms.empty_groups import choose_shown_groups
from dpsql.mechanisms.quantile_tree import KeptTree
from dpsql.mechanisms.strategies import EVEN, StrategyChoice
from dpsql.privacy.events import Event, compose_events
from dpsql.privacy.periods import (
    Days,
    date_event,
    find_day_after,
    find_first_day,
    remove_days,
    say_periods,
    unite,
    unite_periods,
)
from dpsql.session.block_keys import BlockKeys, BlockShape, Lent, digest_lent


def pack(relations: Mapping[str, pa.Table], notes: tuple[str, ...]) -> bytes:
    """Return the relations as Arrow streams, with names, lengths and notes in front.

    >>> relations, notes = unpack(pack({"a": pa.table({"n": [1]})}, ("fine",)))
    >>> relations["a"].to_pylist(), notes
    ([{'n': 1}], ('fine',))
    """
    little = sum(table.num_rows for table in relations.values()) <= _WRITTEN_ONCE
    streams = [_write_stream(table) for table in relations.values()] if little else []
    sizes = [stream.size for stream in streams] or [_measure(table) for table in relations.values()]
    text = json.dumps({"names": list(relations), "sizes": sizes, "notes": notes}).encode()
    text += b" " * (-(4 + len(text)) % 8)  # align the streams as Arrow would
    head = struct.pack(">I", len(text)) + text
    if streams:
        return b"".join((head, *streams))
    sink = io.BytesIO(head)
    sink.seek(0, io.SEEK_END)
    for table in relations.values():
        _write(table, sink)
    return sink.getvalue()


_WRITTEN_ONCE = 1000
"""Releases with at most this number of rows may be in memory twice while they are packed."""


def _write_stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    _write(table, sink)
    return sink.getvalue()


def _measure(table: pa.Table) -> int:
    """Return the length of a table's stream without writing it: a release may take a tenth of memory."""
    counted = pa.MockOutputStream()
    _write(table, counted)
    return int(counted.size())


def _write(table: pa.Table, sink: object) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def unpack(stored: bytes) -> tuple[dict[str, pa.Table], tuple[str, ...]]:
    """Return the relations and notes that :func:`pack` packed."""
    (size,) = struct.unpack(">I", stored[:4])
    sizes, notes = _read_head(stored[4 : 4 + size])
    relations, at = {}, 4 + size
    whole = pa.py_buffer(stored)
    for name, length in sizes:
        relations[name] = pa.ipc.open_stream(whole.slice(at, length)).read_all()
        at += length
    return relations, notes


@lru_cache(maxsize=256)
def _read_head(head: bytes) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
    """Return the names and lengths of relations, and the notes: most parts of one answer have equal ones."""
    read = json.loads(head)
    return tuple(zip(read["names"], read["sizes"], strict=True)), tuple(read["notes"])


def call_by_place(release: Release, names: Sequence[str]) -> Release:
    """Return a release with its columns, in the order of ``names``, named by position."""
    places = {name: place for place, name in enumerate(names)}
    notes = release.notes
    if notes:
        any_name = "|".join(re.escape(name) for name in sorted(places, key=len, reverse=True))
        mention = re.compile(rf"(?<!\w)(?:{any_name})(?!\w)")
        notes = tuple(mention.sub(lambda found: f"\x01{places[found[0]]}\x02", note) for note in notes)
    columns = [f"c{places[name]}" if name in places else f"x{name}" for name in release.table.column_names]
    return replace(release, table=release.table.rename_columns(columns), notes=notes)


def call_by_name(release: Release, names: Sequence[str]) -> Release:
    """Return a release with its columns named by position renamed to ``names``."""
    known = {f"c{place}": name for place, name in enumerate(names)}
    notes = (re.sub("\x01(\\d+)\x02", lambda found: names[int(found[1])], note) for note in release.notes)
    columns = [known.get(name, name[1:]) for name in release.table.column_names]
    return replace(release, table=release.table.rename_columns(columns), notes=tuple(notes))


Lend = Callable[[str, Mapping[str, pa.Table], tuple[str, ...]], pa.Table]
"""Evaluates a public relation that a block reads, given its SQL, the releases so far and the public tables."""
Draw = Callable[[PrivateBlock, Mapping[str, pa.Table]], Release]
"""Releases a block over its public relations."""

CORRECT = "correct the text above the private part: the release is stored, and asking again is free."
"""The hint if public SQL fails on released values."""
_RELEASE, _NOISY = "release", "noisy"
_NEVER = itertools.count()
_WORTH = 1.05
"""Another strategy is mentioned if its error is smaller by at least this factor."""


def _compose_known(events: Iterable[Event | None]) -> Event | None:
    """Return the joint event of those that are known; None if none is."""
    known = [event for event in events if event is not None]
    return compose_events(known) if known else None


@dataclass
class Draws:
    """One draw of several parts of a block: the block over their days, with the plan that keeps its texts."""

    plan: Plan
    block: PrivateBlock
    parts: list[RequestedBlock] = field(default_factory=list)
    used: Event | None = None


@dataclass
class RequestedBlock:
    """One block of a statement, and the known part of its answer."""

    block: PrivateBlock
    shape: BlockShape | None = None
    key: str = ""
    contents: tuple[str, ...] = ()
    lent: Mapping[str, pa.Table] | None = None
    """The tables it reads, once known: its answer is drawn over exactly the rows in its key."""
    stored: StoredRelease | None = None
    dropped: str = ""
    """The time of its answer, if that was dropped to make room for others."""
    same: RequestedBlock | None = None
    """An earlier equal block, whose answer it shares."""
    release: Release | None = None
    confidence: float = 0.95
    note: str = ""
    """A note on the gain of another strategy over the stored answer's."""
    periods: Days = ()
    """The days of the periods that pay for it, if it is a part of another block."""
    shown: Days = ()
    """The days of its own periods: of a node of a tree, those of the last one."""
    level: int = 0
    """The level of its node, if its block has a growing tree."""
    parts: list[RequestedBlock] = field(default_factory=list)
    """Its parts, each of some periods, if it is stored in parts."""
    draws: list[Draws] = field(default_factory=list)
    """The draws of the periods without a stored part."""

    @property
    def free(self) -> bool:
        """Whether nothing is drawn for it: it is stored, shares another block's draw, or was prepaid."""
        if self.parts:
            return not self.draws
        return self.stored is not None or self.same is not None or self.block.prepaid

    @property
    def new(self) -> Days | None:
        """The days of its periods without an answer; None for all."""
        if self.parts:
            return unite(p for part in self.parts if not part.free for p in part.shown)
        return () if self.free else self.block.periods

    @property
    def event(self) -> Event:
        """The greatest loss of its draws."""
        return compose_events(one.block.event for one in self.draws) if self.parts else self.block.event

    @property
    def used(self) -> Event | None:
        """The loss of its release, of the units of its periods; None before the release."""
        if self.parts:
            return _compose_known(one.used for one in self.draws)
        periods = self.periods or self.block.periods
        return None if self.release is None else date_event(self.release.event, periods)

    @property
    def debit(self) -> Event | None:
        """The debit of the analyst's share for its stored answer; None if that is free."""
        return None if self.stored is None else self.stored.debit


@dataclass
class PreparedPlan:
    """A plan with its blocks looked up."""

    plan: Plan
    asked: list[RequestedBlock]
    changed: str = ""
    """The changes since the statement was last asked, if it must be paid again."""
    failed_above: BindError | None = None
    """The failure of public SQL between two blocks, on the first block's release."""
    debited: int | None = None
    """The number of the statement that debited the analyst's share for its stored answers."""

    @property
    def answers(self) -> list[RequestedBlock]:
        """Everything that has a key of its own: blocks, or their parts."""
        return [one for item in self.asked for one in (item.parts or [item])]

    @property
    def event(self) -> Event | None:
        """The joint event of the blocks to draw; None if it costs nothing."""
        return _compose_known(item.event for item in self.asked if not item.free)

    @property
    def debit(self) -> Event | None:
        """The charge on the analyst's share alone, for other analysts' stored answers; None if there is none."""
        return _compose_known(item.debit for item in self.answers)

    @property
    def used(self) -> Event | None:
        """The used part of the cost, once released."""
        return _compose_known(item.used for item in self.asked if not item.free)

    @property
    def stored(self) -> list[StoredRelease]:
        """The stored answers that are shown again."""
        return [item.stored for item in self.answers if item.stored is not None]

    @property
    def since(self) -> str:
        """The text ``"stored since 14:02"`` for the latest of its stored blocks; empty if there are none."""
        return _say_since(max(self.stored, key=lambda s: s.when).when_text) if self.stored else ""

    @property
    def paid_until(self) -> str | None:
        """The last day of the periods that it reads and that need no payment; None without budgets per period."""
        read = unite_periods(block.periods for block in self.plan.blocks)
        unpaid = unite_periods(item.new for item in self.asked)
        paid = () if read is None or unpaid is None else remove_days(read, unpaid)
        return datetime.date.fromordinal(paid[-1][1] - 1).isoformat() if paid else None

    @property
    def counted(self) -> str:
        """How many periods are stored and how many are new: ``"31 days stored, 1 new"``; empty without parts."""
        held = [(item.block.parts, part) for item in self.asked for part in item.parts]
        new = unite(p for _, part in held if not part.free for p in part.shown)
        old = remove_days(unite(p for _, part in held for p in part.shown), new)
        units = {parts.part: parts for parts, _ in held if parts is not None}
        if not units:
            return ""
        unit, parts = next(iter(units.items()))
        said = [
            f"{n} {unit}{'' if n == 1 else 's'} {word}"
            for n, word in ((parts.count(old), "stored"), (parts.count(new), "new"))
            if n
        ]
        return f"{said[0]}, {parts.count(new)} new" if len(said) > 1 else said[0]

    @property
    def relations(self) -> dict[str, pa.Table]:
        """The releases known so far, by block name, with the shown groups."""
        return _show_groups(self.plan, self.asked)

    @property
    def answered(self) -> Plan:
        """The plan with its blocks as answered, possibly by other strategies than the plan's."""
        return replace(self.plan, blocks=tuple(item.block for item in self.asked))

    def adjust(self, relations: Mapping[str, pa.Table]) -> Mapping[str, pa.Table]:
        """Return the releases as the SQL above them reads them, given the strategies that answered them."""
        return self.plan.adjusted(relations, [item.block for item in self.asked])

    @property
    def expected_errors(self) -> dict[str, float]:
        """The expected absolute errors of output columns, once all is released."""
        released = ((item.block.name, item.release) for item in self.asked if item.release is not None)
        return self.answered.expect_errors({name: ErrorBasis(release=release) for name, release in released})

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes under the result, without duplicates."""
        said = [note for item in self.asked if item.release is not None for note in item.release.notes]
        said += [_say_dropped(item) for item in self.answers if item.dropped]
        said += [item.note for item in self.asked if item.note]
        said += [note for _, note in _choose_groups(self.plan, self.asked).values() if note]
        return tuple(dict.fromkeys([*said, *([self.changed] if self.changed else [])]))

    def sentences(self) -> tuple[str, ...]:
        """EXPLAIN's sentences on which blocks are free, and why others no longer are."""
        blocks = [item for item in self.asked if not item.block.prepaid]
        said = []
        for place, item in enumerate(blocks, 1):
            which = "This block" if len(blocks) == 1 else f"Block {place} of {len(blocks)}"
            if item.parts and item.block.parts is not None:
                new = unite(p for part in item.parts if not part.free for p in part.periods)
                said.append(f"{which} is stored in parts: {self.counted}.")
                said += [f"Drawn are {say_periods(new)}."] if new else []
            elif item.stored is not None:
                debit = (
                    "free"
                    if item.debit is None
                    else f"{item.debit.sentence()} of your share, nothing of the whole"
                )
                said.append(f"{which} is {_say_since(item.stored.when_text)}: {debit}.")
                said += [f"{item.note[:1].upper()}{item.note[1:]}."] if item.note else []
            elif item.same is not None:
                said.append(f"{which} is the same as another: one draw and one charge.")
            elif item.dropped:
                said.append(f"{which} is charged again: {_say_dropped(item)}.")
        return (*said, *([f"{self.changed[:1].upper()}{self.changed[1:]}."] if self.changed else ()))


@dataclass
class StoredBlocks:
    """The blocks of a session's statements, looked up in the ledger.

    Args:
        lent: returns the columns of the public relations that a plan's block reads.
        check: proves the texts of a plan's block that is not checked when the plan is made, before it is paid.
    """

    keys: BlockKeys
    ledger: Ledger
    lend: Lend
    lent: Callable[[Plan, PrivateBlock], Lent]
    check: Callable[[Plan, PrivateBlock], None]

    def prepare(
        self, plans: Sequence[Plan], fresh: bool = False, paid: dict[str, RequestedBlock] | None = None
    ) -> list[PreparedPlan]:
        """Look up all blocks of statements that are paid together, in order. Reads only public relations and the ledger.

        ``fresh``: ignore stored answers; ``paid``: earlier statements' blocks by key, to which those of these plans are added.
        """
        first: dict[str, RequestedBlock] = {} if paid is None else paid
        if any(plan.blocks for plan in plans):
            self.keys.read_zone()
        if not fresh:
            plans = [self._prefer_stored(plan) for plan in plans]
        chosen = frozenset(
            self._shape(plan, block).text
            for plan in plans
            for block in plan.blocks
            if block.variants and block.strategy is not None
        )
        return [self._prepare(plan, fresh, first, chosen) for plan in plans]

    def _prefer_stored(self, plan: Plan) -> Plan:
        """Return a plan, or the one with its grouping sets one by one if that is wholly stored and the plan is not."""
        if plan.by_sets is None or self._is_stored(plan):
            return plan
        sets = tuple(one for block in plan.blocks for one in (block.sets or (block,)))
        if not self._is_stored(replace(plan, blocks=sets)):
            return plan
        made = plan.by_sets()
        return made if self._is_stored(made) else plan

    def _is_stored(self, plan: Plan) -> bool:
        """Return whether a plan would cost nothing."""
        return self._prepare(plan, False, {}, frozenset()).event is None

    def _shape(self, plan: Plan, block: PrivateBlock) -> BlockShape:
        return self.keys.shape(block, lambda: self.lent(plan, block))

    def _prepare(
        self, plan: Plan, fresh: bool, first: dict[str, RequestedBlock], chosen: frozenset[str]
    ) -> PreparedPlan:
        asked: list[RequestedBlock] = []
        known: dict[str, RequestedBlock] = {}
        for place, block in enumerate(plan.blocks):
            item = RequestedBlock(block, confidence=block.confidence)
            asked.append(item)
            known[block.name] = item
            if block.prepaid:
                item.key = f"never {next(_NEVER)}"
                continue
            item.contents, item.lent = self._read_inputs(plan, block, known)
            if block.parts is not None:
                if self._prepare_parts(plan, place, item, block.parts, fresh, first):
                    continue
                self.check(plan, block)
            item.shape = self._shape(plan, block)
            item.key = self.keys.key(item.shape, item.contents)
            found = None
            if item.key not in first:
                found = None if fresh else self.ledger.replay(item.key) or self._find_variant(plan, item)
            if item.key not in first and found is None:
                self._share_variant(plan, item, first, chosen)
            item.same = first.setdefault(item.key, item)
            if item.same is item:
                item.same = None
                if found is not None:
                    item.stored = found
                    item.release = _unpack_answer(item, found.release)
                elif not fresh:
                    gone = self.ledger.find_dropped(item.key)
                    item.dropped = "" if gone is None else gone.when_text
            elif item.same.release is not None:
                item.release = _rename(item.same, item)
        prepared = PreparedPlan(plan, asked)
        if not fresh and prepared.event is not None:
            prepared.changed = self._say_what_changed(prepared)
        return prepared

    def _prepare_parts(
        self,
        plan: Plan,
        place: int,
        item: RequestedBlock,
        parts: PeriodParts,
        fresh: bool,
        first: dict[str, RequestedBlock],
    ) -> bool:
        """Look up a block's parts and prepare the others' draws, by public facts alone; return whether it is stored in parts."""
        model = self._narrow(plan, place, self._choose_model_days(parts)) if item.lent is not None else None
        if model is None:
            return False
        columns = tuple(name for name, _ in item.block.columns)
        shape = replace(self._shape(model.plan, model.block), columns=columns)
        found: list[RequestedBlock] = []
        divided = parts.list_draws()
        keys = self.keys.list_part_keys(shape, item.contents, parts.scans, [days for _, days, _ in divided])
        stored = {} if fresh else self.ledger.replay_all([key for key in keys if key not in first])
        for key, (level, periods, shown) in zip(keys, divided, strict=True):
            part = RequestedBlock(item.block, shape, key, item.contents, item.lent, stored.get(key))
            part.periods, part.shown, part.level = periods, shown, level
            part.same = first.get(key)
            if part.same is None and part.stored is None and not fresh:
                gone = self.ledger.find_dropped(key)
                part.dropped = "" if gone is None else gone.when_text
            part.confidence = item.confidence
            found.append(part)
        draws: list[Draws] = []
        for days, together in _list_pieces(part for part in found if not part.free):
            one = self._narrow(plan, place, days)
            if one is None or one.block.periods != days:
                return False
            if parts.levels:
                assert isinstance(one.block.operator, Aggregation)
                one.block = replace(one.block, operator=one.block.operator.at_level(together[0].level))
            self.check(one.plan, one.block)
            one.parts = together
            draws.append(one)
        item.shape, item.parts, item.draws = shape, found, draws
        item.key = hash_release("\n".join(part.key for part in found).encode())
        for part in found:
            first.setdefault(part.key, part)
            if part.stored is not None:
                part.release = _unpack_answer(part, part.stored.release)
        self._unite_parts(item)
        return True

    def _choose_model_days(self, parts: PeriodParts) -> Days:
        """Return the fixed period over which a block is written in the keys of its parts."""
        starts = (self.keys.policy.tables[holder].data_from for holder, _, _ in parts.scans)
        start = max(day.toordinal() for day in starts if day is not None)
        return ((find_first_day(start, parts.part), find_day_after(start, parts.part)),)

    def _narrow(self, plan: Plan, place: int, days: Days) -> Draws | None:
        """Return a plan's block over other days; None if it would not be the same question, as if noise depends on the days."""
        assert plan.narrow is not None
        try:
            made = plan.narrow(days)
        except Error:
            return None
        block, whole = made.blocks[place], plan.blocks[place]
        alike = self.keys.skeleton(block) == self.keys.skeleton(whole)
        same = alike and [i.sql for i in block.inputs] == [i.sql for i in whole.inputs]
        return Draws(made, block) if same else None

    def _find_variant(self, plan: Plan, item: RequestedBlock) -> StoredRelease | None:
        """Return the stored answer of a block under another strategy, and switch the item to that strategy."""
        for variant, block, shape in self._list_variants(plan, item):
            found = self.ledger.replay(self.keys.key(shape, item.contents))
            if found is not None:
                item.note = _compare_strategies(
                    item.block.strategy, variant, _shows_numbers(plan, item.block)
                )
                item.block, item.shape, item.key = block, shape, self.keys.key(shape, item.contents)
                return found
        return None

    def _share_variant(
        self, plan: Plan, item: RequestedBlock, first: Mapping[str, RequestedBlock], chosen: frozenset[str]
    ) -> None:
        """Draw equal blocks of statements paid together once, under the strategy that one of them chose."""
        for variant, block, shape in self._list_variants(plan, item) if first or chosen else ():
            if item.block.strategy is None and variant.gain >= _WORTH:
                continue  # the paid draw is better
            key = self.keys.key(shape, item.contents)
            if key in first or (item.block.strategy is None and shape.text in chosen):
                item.block, item.shape, item.key = block, shape, key
                return

    def _list_variants(
        self, plan: Plan, item: RequestedBlock
    ) -> Iterator[tuple[StrategyVariant, PrivateBlock, BlockShape]]:
        for variant in item.block.variants:
            block = replace(item.block, operator=variant.operator, strategy=None, variants=())
            yield variant, block, self._shape(plan, block)

    def _read_inputs(
        self, plan: Plan, block: PrivateBlock, known: Mapping[str, RequestedBlock]
    ) -> tuple[tuple[str, ...], dict[str, pa.Table] | None]:
        """Return digests of a block's public relations, and their rows if all are known."""
        tables: dict[str, pa.Table] = {}
        contents = []
        relations = _show_groups(plan, known.values())
        for item in block.inputs:
            mentioned = [name for name in known if re.search(rf"\b{re.escape(name)}\b", item.sql)]
            if all(name in relations for name in mentioned) and FORETOLD not in item.sql:
                try:
                    tables[item.name] = self.lend(
                        item.sql,
                        plan.order_labels({name: relations[name] for name in mentioned}),
                        plan.public,
                    )
                except BindError as error:
                    if not mentioned:
                        raise
                    raise PostprocessingError(error.message, hint=CORRECT) from None
                contents.append(digest_lent(tables[item.name]))
                continue
            text = item.sql
            for name in sorted(mentioned, key=len, reverse=True):
                text = re.sub(rf"\b{re.escape(name)}\b", f"<{known[name].key}>", text)
            contents.append(f"drawn {text}")
        return tuple(contents), tables if len(tables) == len(block.inputs) else None

    # -- drawing ------------------------------------------------------------------------------------------------

    def draw_all(self, prepared: Sequence[PreparedPlan], draw: Draw) -> str:
        """Release the blocks that are not stored; return ``released``, ``failed``, ``interrupted``, or ``above``.

        ``above``: public SQL between two blocks failed on released values, so the later blocks were not drawn. Never
        raises: tracebacks, whose frames contain exact values, are dropped.
        """
        try:
            for one in prepared:
                self._draw_plan(one, draw)
        except KeyboardInterrupt:
            return "interrupted"
        except Exception:
            return "failed"
        return "above" if any(one.failed_above is not None for one in prepared) else "released"

    def _draw_plan(self, prepared: PreparedPlan, draw: Draw) -> None:
        for item in prepared.asked:
            if item.release is not None:
                continue
            if item.same is not None:
                item.release = _rename(item.same, item)
                continue
            if item.parts:
                self._draw_parts(item, draw)
                continue
            if item.lent is None:
                plan = prepared.plan
                try:
                    relations = plan.order_labels(prepared.relations)
                    item.lent = {i.name: self.lend(i.sql, relations, plan.public) for i in item.block.inputs}
                except BindError as error:
                    prepared.failed_above = error
                    return
                item.contents = tuple(digest_lent(table) for table in item.lent.values())
            item.release = draw(item.block, item.lent)

    def _draw_parts(self, item: RequestedBlock, draw: Draw) -> None:
        """Draw the periods without a stored part together, and divide the release by the periods of its groups."""
        parts = item.block.parts
        assert parts is not None and item.lent is not None and item.shape is not None
        for one in item.draws:
            names = [given.name for given in one.block.inputs]
            release = draw(one.block, dict(zip(names, item.lent.values(), strict=True)))
            one.used = date_event(release.event, one.block.periods)
            own = [name for name, _ in one.block.columns]
            release = call_by_name(call_by_place(release, own), item.shape.columns)
            groups = list_groups(release.table, parts.keys)
            starts = np.array([parts.starts.get(group, 0) for group in groups], dtype=np.int64)
            for part in one.parts:
                mask = pa.array(starts == part.shown[0][0])
                noisy = None if release.noisy is None else release.noisy.filter(mask)
                part.release = replace(release, table=release.table.filter(mask), noisy=noisy)
        self._unite_parts(item)

    @staticmethod
    def _unite_parts(item: RequestedBlock) -> None:
        """Join the releases of a block's parts, once all are known."""
        for part in item.parts:
            if part.release is None and part.same is not None and part.same.release is not None:
                part.release = _rename(part.same, part)
        releases = [part.release for part in item.parts if part.release is not None]
        if len(releases) == len(item.parts):
            operator, parts = item.block.operator, item.block.parts
            item.release = unite_releases(operator, releases)
            if isinstance(operator, Aggregation) and parts is not None and parts.levels:
                item.release = operator.add_up(item.release)

    def pack_drawn(self, prepared: Iterable[PreparedPlan]) -> KeptReleases:
        """Pack the drawn releases for storage."""
        releases: dict[str, bytes] = {}
        questions: dict[str, bytes] = {}
        events: dict[str, Event] = {}
        for one in prepared:
            for item in one.answers:
                if item.periods and not item.free and item.used is not None:
                    releases[item.key], events[item.key] = _pack_answer(item), item.used
            for place, item in enumerate(one.asked):
                if item.shape is None or item.release is None or item.free or item.parts:
                    continue
                key = self.keys.key(item.shape, item.contents)
                releases[key] = _pack_answer(item)
                events[key] = date_event(item.release.event, item.block.periods)
                items = self.keys.items(item.shape, item.contents)
                questions[_identify_question(one.plan, place)] = json.dumps(items).encode()
        return KeptReleases(releases, questions, events)

    # -- what was asked before ----------------------------------------------------------------------------------

    def _say_what_changed(self, prepared: PreparedPlan) -> str:
        for place, item in enumerate(prepared.asked):
            skipped = item.free or item.parts
            found = None if skipped else self.ledger.asked(_identify_question(prepared.plan, place))
            if found is None or item.shape is None:
                continue
            before = _read_items(found[1])
            now = self.keys.items(item.shape, item.contents)
            names = [name for name in now if before.get(name, now[name]) != now[name]]
            names += [name for name in before if name not in now]
            if names:
                listed = ", ".join(names[:3]) + (" and more" if len(names) > 3 else "")
                return f"not the answer of {found[0].when_text}, because of later changes: {listed}"
        return ""


def _list_pieces(parts: Iterable[RequestedBlock]) -> Iterator[tuple[Days, list[RequestedBlock]]]:
    """Yield the parts that are drawn together, with their periods: those of one level, as long as a condition lists these."""
    for _, alike in itertools.groupby(sorted(parts, key=lambda part: part.level), lambda part: part.level):
        days: Days = ()
        together: list[RequestedBlock] = []
        for part in alike:
            more = unite([*days, *part.periods])
            if together and len(more) > MOST_RANGES:
                yield days, together
                more, together = part.periods, []
            days = more
            together.append(part)
        yield days, together


def _choose_groups(plan: Plan, asked: Iterable[RequestedBlock]) -> dict[str, tuple[pa.Table, str]]:
    """Return the shown groups of blocks with ranged groups, and sentences on the others."""
    answered = {i.block.name: (i.block.operator, i.release) for i in asked if i.release is not None}
    return choose_shown_groups(plan.ranged, answered)


def _show_groups(plan: Plan, asked: Iterable[RequestedBlock]) -> dict[str, pa.Table]:
    """Return the releases known so far, by block name, with the shown groups."""
    listed = list(asked)
    whole = {item.block.name: item.release.table for item in listed if item.release is not None}
    return {**whole, **{name: table for name, (table, _) in _choose_groups(plan, listed).items()}}


def _shows_numbers(plan: Plan, block: PrivateBlock) -> bool:
    """Return whether a statement shows individual numbers of a block, not only their sums."""
    told = {error.name for error in block.operator.errors(ErrorBasis(rows=(1,)))}
    terms = (term for _, traces in plan.traced for trace in traces for term in trace)
    return any(name == block.name and column in told for name, column, _ in terms)


def _compare_strategies(chosen: StrategyChoice | None, stored: StrategyVariant, single: bool) -> str:
    """Return a note on how much smaller a fresh answer's error would be; empty if hardly, or for numbers that aren't shown."""
    alone = stored.single_gain if single else 1.0
    gain, where = max((stored.gain, "the shown numbers"), (alone, "single numbers"))
    if gain < _WORTH:
        return ""
    best = EVEN if chosen is None else chosen.chosen
    return (
        f"the stored answer uses the strategy {stored.word}: a fresh one (fresh=True, %%dpsql --fresh) by "
        f"{best} has {gain:.3g} times less error in {where}, and is charged"
    )


def list_shown(prepared: Iterable[PreparedPlan]) -> dict[str, str]:
    """Return digests of the stored answers for which a share must be debited, by block key."""
    return {
        item.stored.key: hash_release(item.stored.release)
        for one in prepared
        for item in one.answers
        if item.stored is not None and item.debit is not None
    }


def _say_since(when: str) -> str:
    return f"stored since {when}" if when else "stored already"


def _say_dropped(item: RequestedBlock) -> str:
    return f"the answer of {item.dropped} was dropped, because the owner limits the size of stored answers (keep_answers_mb)"


def _identify_question(plan: Plan, place: int) -> str:
    return hash_release(f"{place}\x00{plan.text}".encode(errors="surrogatepass"))


def _read_items(held: bytes) -> dict[str, str]:
    try:
        found = json.loads(held)
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


# -- releases as they are kept: by places, not by names ----------------------------------------------------------------


def _pack_answer(item: RequestedBlock) -> bytes:
    assert item.release is not None and item.shape is not None
    kept = call_by_place(item.release, item.shape.columns)
    relations = {_RELEASE: kept.table, **({} if kept.noisy is None else {_NOISY: kept.noisy})}
    return pack(relations, (*kept.notes, repr(item.confidence)))


def _unpack_answer(item: RequestedBlock, held: bytes) -> Release:
    assert item.shape is not None
    relations, (*notes, confidence) = unpack(held)
    if isinstance(item.block.operator, KeptTree):  # its answers to other questions serve as well
        return item.block.operator.read_again(relations[_NOISY])
    kept = Release(relations[_RELEASE], item.block.operator.event, tuple(notes), relations.get(_NOISY))
    return _show_again(item, call_by_name(kept, item.shape.columns), float(confidence))


def _rename(other: RequestedBlock, item: RequestedBlock) -> Release:
    assert other.release is not None and other.shape is not None and item.shape is not None
    if isinstance(item.block.operator, KeptTree) and other.release.noisy is not None:
        return item.block.operator.read_again(other.release.noisy)
    release = call_by_name(call_by_place(other.release, other.shape.columns), item.shape.columns)
    return _show_again(item, release, other.confidence)


def _show_again(item: RequestedBlock, release: Release, confidence: float) -> Release:
    operator = item.block.operator
    if confidence != item.confidence and operator.can_show_again:
        return replace(release, table=operator.show_again(release.table, release.noisy))
    return release
