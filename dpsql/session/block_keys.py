"""The keys under which answers of private blocks are stored: equal blocks have equal keys.

Equal blocks ask the same question about the same data under the same rules, however they are written. A key consists of
the operator with its caps, epsilon, delta and noise; its exact texts in normal form with parameter values; the time
zone; the policy's rules and the data version of each table read; and the content of each public relation. It omits
names chosen by the analyst or by the binder, and the confidence if intervals can be recomputed.

Relation and guarantee: none. Showing a release again is post-processing under any key. Too coarse a key would give
a wrong answer, too fine a key an unnecessary charge.
"""

from __future__ import annotations

import hashlib
import re
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import Field, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dpsql.binding.plan import PrivateBlock
from dpsql.engine.base import DECLARED, IN_NO_FILE, Engine
from dpsql.errors import Error
from dpsql.exact.gate import Forms, Gate
from dpsql.exact.normal_form import UnresolvedName
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.quantile_tree import KeptTree
from dpsql.policy.model import Policy, Table, fold
from dpsql.privacy.periods import Days, intersect

_DATA = "the data of "
_FORM = "block 2"
"""Part of every key; incremented when the meaning of keys changes."""
_LABELS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("Count", "Sum", "Mean", "Variance", "Pair", "DistinctCount", "Histogram", "AutoBounded"), ("name",)),
    **dict.fromkeys(("Iqr", "Quantile", "Mode", "ArgMax", "ProposedMedian", "Coordinates"), ("name",)),
    **dict.fromkeys(("ProposedQuantile", "ProposedIqr", "ProposedMode", "Trimmed"), ("name",)),
    **dict.fromkeys(("BlockMean", "BlockMedian", "WinsorizedMean", "NoisyMode", "StableMode", "ConsensusMean"), ("name",)),
    "InverseSensitivity": ("name",), "Quantiles": ("names",), "QuantileTree": ("names",), "FeatureVotes": ("name", "column"),
    "NoiseReducedAggregation": ("reduced",), "Marginal": ("name",),
    "PythonBlocks": ("column",), "LiftedBlocks": ("columns",), "BlockQueries": ("columns",),
}  # fmt: skip
"""Fields that only label output columns, by class: exact texts name columns by position."""
_IMPLIED: Mapping[str, tuple[str, ...]] = {
    "AboveThreshold": ("rows", "sweep"),
    "ExponentialChoice": ("rows", "sweep"),
    "Probe": ("rows",),
}
"""Fields implied by the rest of the key, by class: read only by the second lock, or another route to equal numbers."""
_REREAD: Mapping[str, tuple[str, ...]] = {"QuantileTree": ("names", "ranks", "whole", "bars")}
"""Fields that only select the values read from a kept tree, by class."""
_UNRELATED = {"name", "source", "version", "public", "columns", "data_from", "data_until", "closed_before"}
"""Fields of a policy's table that are no rules about it, or that are compared separately."""
_QUERY = re.compile(r"\s*\(*\s*(SELECT|WITH|FROM|VALUES)\b", re.IGNORECASE)
_KEPT = 200
_MOST_SORTED = 100_000
"""Relations with at most this number of rows are compared without regard to order."""

Lent = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class BlockShape:
    """The form of a block, without its public relations.

    ``text`` is the canonical operator; ``items`` name its inputs: policy rules and data versions. ``columns`` are its
    output names, in order. ``again`` is whether confidence is left out.
    """

    text: str
    items: Mapping[str, str]
    columns: tuple[str, ...]
    again: bool
    closed: frozenset[str] = frozenset()
    """The tables that declare its periods and whose days no longer change: versions of their data are no part of keys."""
    public: Mapping[str, str] = field(default_factory=dict)
    """Versions of the public tables its exact texts read, by name; their content is part of ``text``."""

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """Short digests of the items."""
        return {name: _digest_item(name, value) for name, value in self.items.items()}


@dataclass
class BlockKeys:
    """Makes the keys of a session's blocks."""

    policy: Policy
    engine: Engine
    gate: Gate
    schema: Callable[[Table], Mapping[str, str]]
    _shapes: dict[int, tuple[PrivateBlock, BlockShape]] = field(default_factory=dict)
    _contents: dict[str, str] = field(default_factory=dict)
    _kinds: dict[str, dict[str, str]] = field(default_factory=dict)
    """The types of each table's columns, by folded names in their order."""
    _keys: dict[tuple[object, ...], tuple[BlockShape, str]] = field(default_factory=dict)
    """Keys by shape, contents of public relations, and time zone."""
    _zone: str = ""
    """The engine's time zone at the last look-up."""

    def read_zone(self) -> None:
        """Ask the engine for its time zone, a part of keys; called once per look-up, since it is a query."""
        self._zone = self.engine.time_zone

    @cached_property
    def forms(self) -> Forms:
        """This session's texts in the form for comparison."""
        return Forms(self.gate, self.policy, self.engine, self.public_content)

    def shape(self, block: PrivateBlock, lent: Callable[[], Lent]) -> BlockShape:
        """Return a block's canonical form, computed once per block; ``lent`` returns the columns of its public relations."""
        known = self._shapes.get(id(block))
        if known is not None and known[0] is block:
            return known[1]
        made = self._shape(block, lent())
        if len(self._shapes) >= _KEPT:
            self._shapes.clear()
        self._shapes[id(block)] = (block, made)
        return made

    def renew_versions(self) -> None:
        """Replace the versions of private data in the cached shapes by the present ones."""
        for at, (block, shape) in self._shapes.items():
            data = {
                n: self.engine.versions[n.removeprefix(_DATA)] for n in shape.items if n.startswith(_DATA)
            }
            self._shapes[at] = block, replace(shape, items={**shape.items, **data})
        self._keys.clear()

    def key(self, shape: BlockShape, contents: Iterable[str]) -> str:
        """Return the key of a block, given the contents of its public relations."""
        held = tuple(contents)
        at = (id(shape), held, self._zone)
        known = self._keys.get(at)
        if known is None or known[0] is not shape:
            items = self._drop_versions(shape.items, shape.closed)
            made = _digest(_FORM, shape.text, self._zone, repr(sorted(items.items())), *held)
            if len(self._keys) >= _KEPT:
                self._keys.clear()
            known = self._keys[at] = (shape, made)
        return known[1]

    def list_part_keys(
        self,
        shape: BlockShape,
        contents: Sequence[str],
        scans: Sequence[tuple[str, Days, int]],
        parts: Iterable[Days],
    ) -> list[str]:
        """Return the keys of a block's parts. Each has the data versions of the tables whose rows may still change.

        Args:
            shape: of the block over other, fixed days.
            contents: of its public relations.
            scans: those of :class:`~dpsql.binding.plan.PeriodParts`, of which a key has the days within its part's periods.
            parts: the periods of each part.
        """
        keys: list[str] = []
        begun: dict[frozenset[str], hashlib._Hash] = {}
        for periods in parts:
            read = [(holder, intersect(days, periods), closed) for holder, days, closed in scans]
            done = {holder for holder, _, _ in read}
            done -= {holder for holder, days, closed in read if days and days[-1][1] > closed}
            first = begun.get(frozenset(done))
            if first is None:
                items = self._drop_versions(shape.items, done)
                held = repr(sorted(items.items()))
                first = begun[frozenset(done)] = _hash(f"{_FORM} part", shape.text, self._zone, held)
            days = [(holder, days) for holder, days, _ in read]
            keys.append(_hash(repr(days), *contents, after=first).hexdigest())
        return keys

    def _drop_versions(self, items: Mapping[str, str], closed: Collection[str]) -> dict[str, str]:
        """Return the inputs without the data versions of the tables whose periods the ``closed`` ones declare."""
        tables = self.policy.tables.values() if closed else ()
        named = (t.name for t in tables if not t.public and self.policy.find_holder(t).name in closed)
        dropped = {f"{_DATA}{name}" for name in named}
        return {name: value for name, value in items.items() if name not in dropped}

    def skeleton(self, block: PrivateBlock) -> str:
        """Return a block's operator without its texts: noise, caps and outputs."""
        writer = _Writer(self, {}, {}, {name: at for at, (name, _) in enumerate(block.columns)}, set(), True)
        writer.blank = True
        return repr((writer.value(block.operator), [kind for _, kind in block.columns], block.confidence))

    def items(self, shape: BlockShape, contents: Iterable[str]) -> dict[str, str]:
        """Return short digests of all inputs of an answer, under readable names."""
        budget = self.policy.budget
        said = {
            **{f"the public data of {name}": version for name, version in shape.public.items()},
            "the time zone": self._zone,
            "default_epsilon": str(budget.default_epsilon),
            "default_delta": str(budget.default_delta),
            "the accountant": budget.accountant,
            "what the public relations hold": "\n".join(contents),
        }
        more = {name: _digest_item(name, value) for name, value in said.items()}
        return {**self._drop_versions(shape.digests, shape.closed), **more}

    # -- the operator -------------------------------------------------------------------------------------------

    def _shape(self, block: PrivateBlock, lent: Lent) -> BlockShape:
        operator = block.operator
        inputs = {item.name: place for place, item in enumerate(block.inputs)}
        names = {name: place for place, (name, _) in enumerate(block.columns)}
        again = operator.can_show_again or not _has_intervals(block)
        texts, reread = {*operator.queries, *operator.checked}, isinstance(operator, KeptTree)
        writer = _Writer(self, lent, inputs, names, texts, again, reread)
        kinds = () if writer.reread else tuple(kind for _, kind in block.columns)
        text = repr((writer.value(operator), kinds))
        if not again:
            text += repr(block.confidence)
        private = [table for table in writer.read.values() if not table.public]
        read: Collection[Table] = writer.read.values() if private else self.policy.tables.values()
        items: dict[str, str] = {}
        for table in read:
            columns = writer.columns if private else None
            items |= self._rules(table, columns)
        public = {t.name: self.public_content(t) for t in writer.read.values() if t.public}
        return BlockShape(text, items, tuple(names), again, block.closed, public)

    def _rules(self, table: Table, columns: set[str] | None) -> dict[str, str]:
        """Return the policy's rules for a table and for its columns that are read."""
        name = table.name
        version = self.engine.versions[name]
        if table.public:  # its content replaces its name in the text
            return {}
        items = {f"{_DATA}{name}": version}
        if not table.file:
            items[f"source of {name}"] = str(table.source)
        for item, value in _list_fields(table):
            if item.name not in _UNRELATED:
                items[f"{item.name} of {name}"] = repr(value)
        kinds = self._kinds.get(name)
        if kinds is None:
            kinds = {fold(column): kind for column, kind in self.schema(table).items()}
            kinds = self._kinds[name] = dict(sorted(kinds.items()))
        declared = {fold(column): rules for column, rules in table.columns.items()}
        for column in kinds if columns is None else sorted({*columns} & kinds.keys()):
            items[f"type of {name}.{column}"] = kinds[column]
            rules = declared.get(column)
            for rule, value in _list_fields(rules) if rules is not None else ():
                items[f"{rule.name} of {name}.{column}"] = repr(value)
        return items

    def public_content(self, table: Table) -> str:
        """Return a public table's version, or a digest of its rows if it has none."""
        if table.name not in self._contents:
            version = self.engine.versions[table.name]
            if version.startswith(IN_NO_FILE):
                version = digest_content(self.engine.public(table))
            elif version.startswith(DECLARED):
                version = f"{table.name} {version}"
            self._contents[table.name] = version
        return self._contents[table.name]


@dataclass
class _Writer:
    """Writes the canonical form of an operator, and collects the tables and columns that its texts read."""

    keys: BlockKeys
    lent: Lent
    inputs: Mapping[str, int]
    names: Mapping[str, int]
    texts: set[str]
    again: bool
    reread: bool = False
    """Whether other quantiles can be read from a kept tree, so that the key omits those asked for."""
    read: dict[str, Table] = field(default_factory=dict)
    columns: set[str] = field(default_factory=set)
    blank: bool = False
    """Whether texts of queries are left out."""

    def value(self, value: object) -> object:
        """Return plain tuples and texts that are equal for equal operators."""
        name = type(value).__qualname__
        if is_dataclass(value) and not isinstance(value, type):
            labels = _LABELS.get(name, ())
            out: list[object] = [name]
            for item, found in _list_fields(value):
                if not item.compare or (item.name == "confidence" and self.again):
                    continue
                if isinstance(value, Aggregation) and item.name == "packed":
                    continue  # another route to the same totals
                if item.name in _IMPLIED.get(name, ()):
                    continue
                if self.reread and item.name in _REREAD.get(name, ()):
                    continue
                if item.name in labels:
                    out.append((item.name, self._called(found)))
                else:
                    out.append((item.name, self.value(found)))
            return tuple(out)
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, tuple | list):
            return tuple(self.value(item) for item in value)
        if isinstance(value, Mapping):
            return ("mapping", *((self.value(k), self.value(v)) for k, v in value.items()))
        if isinstance(value, set | frozenset):
            return ("set", *sorted(repr(self.value(item)) for item in value))
        return ("value", name, repr(value))

    def _called(self, name: str | Sequence[str]) -> object:
        if isinstance(name, str):
            return ("column", self.names[name]) if name in self.names else name
        return tuple(self._called(one) for one in name)

    def _text(self, text: str) -> object:
        if text in self.inputs:
            return ("input", self.inputs[text])
        if text not in self.texts and not _QUERY.match(text):
            return text
        if self.blank:
            return ("query",)
        try:
            return ("query", self._query(text))
        except (UnresolvedName, Error):
            if text in self.texts:  # its tables are unknown, so assume all of them
                self.read |= {table.name: table for table in self.keys.policy.tables.values()}
                self.columns |= {
                    fold(c)
                    for t in self.keys.policy.tables.values()
                    if not t.public
                    for c in self.keys.schema(t)
                }
            return text

    def _query(self, text: str) -> str:
        form = self.keys.forms.of(text, self.lent, tuple(self.inputs))
        self.read |= {name: self.keys.policy.tables[name] for name in form.tables}
        self.columns |= form.columns
        return form.text


def _list_fields(value: Any) -> list[tuple[Field[object], Any]]:
    return [(item, getattr(value, item.name)) for item in fields(value)]


def _has_intervals(block: PrivateBlock) -> bool:
    """Return whether a block shows its intervals' level: in columns, or in a note about a list."""
    return any(name.endswith("__low") or kind.endswith("]") for name, kind in block.columns)


def digest_content(table: pa.Table) -> str:
    """Return a digest of a relation's rows and types, independent of column names and row order.

    >>> one, other = pa.table({"a": [1, 2]}), pa.table({"b": [2, 1]})
    >>> digest_content(one) == digest_content(other), digest_content(one) == digest_content(one.slice(1))
    (True, False)
    """
    table = table.rename_columns([str(place) for place in range(table.num_columns)])
    table = table.replace_schema_metadata(None).unify_dictionaries().combine_chunks()
    if 1 < table.num_rows <= _MOST_SORTED and all(_sorts(kind) for kind in table.schema.types):
        order = [(name, "ascending") for name in table.column_names]
        table = table.take(pc.sort_indices(table, sort_keys=order)).combine_chunks()
    found = hashlib.sha256(str(table.num_rows).encode())
    for column in table.columns:
        found.update(repr(str(column.type)).encode())
        sink = pa.BufferOutputStream()
        plain = pa.table({"0": column})
        with pa.ipc.new_stream(sink, plain.schema) as writer:
            writer.write_table(plain)
        found.update(memoryview(sink.getvalue()))
    return found.hexdigest()


_digests: dict[int, tuple[weakref.ref[pa.Table], str]] = {}


def digest_lent(table: pa.Table) -> str:
    """Return the digest of a public relation; cached for a large one as long as it exists, since its rows don't change."""
    key, known = id(table), _digests.get(id(table))
    if known is not None and known[0]() is table:
        return known[1]
    made = digest_content(table)
    if table.num_rows > _MOST_SORTED:
        _digests[key] = weakref.ref(table, lambda _: _digests.pop(key, None)), made
    return made


def _sorts(kind: pa.DataType) -> bool:
    is_ = pa.types
    tests = (is_.is_integer, is_.is_floating, is_.is_string, is_.is_boolean)
    return any(test(kind) for test in (*tests, is_.is_date, is_.is_timestamp, is_.is_decimal))


def _digest(*parts: str) -> str:
    return _hash(*parts).hexdigest()


def _digest_item(name: str, value: str) -> str:
    return _digest(name, value)[:16]


def _hash(*parts: str, after: hashlib._Hash | None = None) -> hashlib._Hash:
    """Return the hash of texts, after those of another hash."""
    found = hashlib.sha256() if after is None else after.copy()
    for part in parts:
        held = part.encode(errors="surrogatepass")
        found.update(len(held).to_bytes(8, "big") + held)
    return found
