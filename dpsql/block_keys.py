"""The keys under which answers of private blocks are kept: equal blocks have equal keys.

Equal blocks ask the same of the same data under the same rules, however they are written and wherever they stand. The key
holds the operator with its caps, epsilon, delta and noise; its exact texts in normal form, with the values of parameters in
them; the time zone; of the tables that these texts read what the policy says of them and which version of the data they
are; and the content of each public relation. Names that an analyst chose are not in it, nor the names that were made
while binding; nor is the confidence where intervals can be made again.

Relation and guarantee: none of its own. To show again what was released is post-processing, whatever the key: one that is
too coarse would give a wrong answer, one that is too fine a charge that need not be.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dpsql.engine.base import DECLARED, IN_NO_FILE, Engine
from dpsql.errors import Error
from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.fast.made_once import MadeOnce
from dpsql.mechanisms.kept_tree import KeptTree
from dpsql.plan import PrivateBlock
from dpsql.policy.model import Policy, Table, fold
from dpsql.sql.exact.gate import Forms, Gate
from dpsql.sql.exact.query import UnresolvedName

_FORM = "block 1"
"""Goes into every key: another meaning of keys gets another number."""
_LABELS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("Count", "Sum", "Mean", "Variance", "Pair", "DistinctCount", "Histogram", "AutoBounded"), ("name",)),
    **dict.fromkeys(("Iqr", "Quantile", "Mode", "ArgMax", "ProposedMedian", "Coordinates"), ("name",)),
    **dict.fromkeys(("ProposedQuantile", "ProposedIqr", "ProposedMode", "Trimmed"), ("name",)),
    **dict.fromkeys(("BlockMean", "BlockMedian", "WinsorizedMean", "NoisyMode", "StableMode", "ConsensusMean"), ("name",)),
    "InverseSensitivity": ("name",), "Quantiles": ("names",), "QuantileTree": ("names",), "FeatureVotes": ("name", "column"),
    "NoiseReducedAggregation": ("reduced",), "Marginal": ("name",),
    "PythonBlocks": ("column",), "LiftedBlocks": ("columns",), "BlockQueries": ("columns",),
}  # fmt: skip
"""Fields that only say what output columns are called, by class: exact texts name columns by their places."""
_KIND_IN_KEYS: Mapping[str, str] = {
    "BlockRows": "Rows", "CandidateFactor": "Public", "CandidateScores": "Sweep",
    "DateBound": "Moment", "GroupSelector": "GroupSelection", "HistogramQuery": "Counted", "ResultRange": "Range",
    "ReturnType": "Returns", "ScoreTerm": "Swept", "ThresholdNoise": "Noise", "WantedRank": "Rank",
}  # fmt: skip
"""The name under which a class stands in stored keys, where it was renamed since: old answers keep their keys."""
_IMPLIED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("AboveThreshold", "ExponentialChoice", "Probe"), ("rows",)),
    "CandidateScores": ("steady",),
    "HistogramQuery": ("as_doubles", "places"),
}
"""Fields that only the second lock reads, by class, as the sensitivity holds them too; what only saves time, or texts say."""
_REREAD: Mapping[str, tuple[str, ...]] = {"QuantileTree": ("names", "ranks", "whole", "bars")}
"""Fields that say what is read from a tree that is kept, by class."""
_UNRELATED = {"name", "source", "version", "public", "columns"}
"""Fields of a policy's table that are no rules about it, or that are compared separately."""
_ADDED = {"determines", "privacy_period"}
"""Rules that earlier versions did not know: where none is said, the key is theirs, and their answers are found."""
_ADDED_FIELDS = {
    "asked_again",
    "bars",
    "bases",
    "confidence",
    "declared",
    "form",
    "geometric",
    "in_all",
    "multiples",
    "ordered",
    "reach",
    "sample",
    "sigma",
    "sigma_delta",
}
"""Fields of operators that earlier versions did not have: where they are empty, the key is theirs."""
_QUERY = re.compile(r"\s*\(*\s*(SELECT|WITH|FROM|VALUES)\b", re.IGNORECASE)
_KEPT = 200
_MOST_SORTED = 100_000
"""Rows that are put into an order before they are compared; more stand in the order that they came in."""

Lent = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class BlockShape:
    """The form of a block before any public relation is looked at.

    ``text`` is the operator, canonically; ``items`` say by name what it rests on: rules of the policy, versions of the data.
    ``columns`` are the names of its output columns, in order. ``again`` says whether confidence is left out.
    """

    text: str
    items: Mapping[str, str]
    columns: tuple[str, ...]
    again: bool
    public: Mapping[str, str] = field(default_factory=dict)
    """Versions of the public tables that its exact texts read, by name; their content stands in ``text``."""


@dataclass
class BlockKeys:
    """The maker of keys for a session's blocks."""

    policy: Policy
    engine: Engine
    gate: Gate
    schema: Callable[[Table], Mapping[str, str]]
    _shapes: dict[int, tuple[PrivateBlock, BlockShape]] = field(default_factory=dict)
    _contents: dict[str, str] = field(default_factory=dict)
    _keys: dict[tuple[object, ...], tuple[BlockShape, str]] = field(default_factory=dict)
    """The keys of shapes, by the shapes themselves, what public relations hold, and the time zone."""
    _zone: str = ""
    """The time zone of the engine when a statement was looked up last."""

    def read_zone(self) -> None:
        """Ask the engine for its time zone, which keys of answers hold: once for each look-up, since that is a query."""
        self._zone = self.engine.time_zone

    @cached_property
    def forms(self) -> Forms:
        """The texts of this session in the form in which they are compared."""
        return Forms(self.gate, self.policy, self.engine, self.public_content)

    def shape(self, block: PrivateBlock, lent: Callable[[], Lent]) -> BlockShape:
        """Return the canonical form of a block, made once for each block that is remembered.

        Args:
            block: as it stands in a plan.
            lent: gives the columns of what its texts read besides tables.
        """
        known = self._shapes.get(id(block))
        if known is not None and known[0] is block:
            return known[1]
        made = self._shape(block, lent())
        if len(self._shapes) >= _KEPT:
            self._shapes.clear()
        self._shapes[id(block)] = (block, made)
        return made

    def key(self, shape: BlockShape, contents: Iterable[str]) -> str:
        """Return the key of a block whose public relations have these contents."""
        held = tuple(contents)
        at = (id(shape), held, self._zone)
        known = self._keys.get(at)
        if known is None or known[0] is not shape:
            made = _digest(_FORM, shape.text, self._zone, repr(sorted(shape.items.items())), *held)
            if len(self._keys) >= _KEPT:
                self._keys.clear()
            known = self._keys[at] = (shape, made)
        return known[1]

    def items(self, shape: BlockShape, contents: Iterable[str]) -> dict[str, str]:
        """Return short digests of all that an answer rests on, by names that people can read."""
        budget = self.policy.budget
        said = {
            **shape.items,
            **{f"the public data of {name}": version for name, version in shape.public.items()},
            "the time zone": self._zone,
            "default_epsilon": str(budget.default_epsilon),
            "default_delta": str(budget.default_delta),
            "the accountant": budget.accountant,
            "what the public relations hold": "\n".join(contents),
        }
        return {name: _digest(name, value)[:16] for name, value in said.items()}

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
        return BlockShape(text, items, tuple(names), again, public)

    def _rules(self, table: Table, columns: set[str] | None) -> dict[str, str]:
        """Return what the policy says of a table and of its columns that are read."""
        name = table.name
        version = self.engine.versions[name]
        if table.public:  # its content stands in the text, where its name was
            return {}
        items = {f"the data of {name}": version}
        if not table.file:
            items[f"source of {name}"] = str(table.source)
        for item in fields(table):
            said = item.name not in _ADDED or getattr(table, item.name) != item.default
            if item.name not in _UNRELATED and said:
                items[f"{item.name} of {name}"] = repr(getattr(table, item.name))
        kinds = {fold(column): kind for column, kind in self.schema(table).items()}
        declared = {fold(column): rules for column, rules in table.columns.items()}
        for column in sorted(kinds):
            if columns is not None and column not in columns:
                continue
            items[f"type of {name}.{column}"] = kinds[column]
            rules = declared.get(column)
            for rule in fields(rules) if rules is not None else ():
                items[f"{rule.name} of {name}.{column}"] = repr(getattr(rules, rule.name))
        return items

    def public_content(self, table: Table) -> str:
        """Return the version of a public table, or a digest of its rows where it has no version."""
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
    """The canonical form of an operator, and the tables and columns that its texts read."""

    keys: BlockKeys
    lent: Lent
    inputs: Mapping[str, int]
    names: Mapping[str, int]
    texts: set[str]
    again: bool
    reread: bool = False
    """Whether other quantiles are read from what is kept, so that those that are asked for are not in the key."""
    read: dict[str, Table] = field(default_factory=dict)
    columns: set[str] = field(default_factory=set)

    def value(self, value: Any) -> Any:
        """Return plain tuples and texts, equal for equal operators."""
        name = type(value).__qualname__
        if is_dataclass(value) and not isinstance(value, type):
            labels = _LABELS.get(name, ())
            out: list[Any] = [_KIND_IN_KEYS.get(name, name)]
            for item in fields(value):
                if not item.compare or (item.name == "confidence" and self.again):
                    continue
                if isinstance(value, Aggregation) and item.name == "packed":
                    continue  # another route to the rows of its query: the same totals
                if item.name in _IMPLIED.get(name, ()):
                    continue
                if self.reread and item.name in _REREAD.get(name, ()):
                    continue
                found = getattr(value, item.name)
                if item.name in _ADDED_FIELDS and not found:
                    continue
                if item.name in labels:
                    out.append((item.name, self._called(found)))
                else:
                    out.append((item.name, self.value(found)))
            return tuple(out)
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return ("mapping", *((self.value(k), self.value(v)) for k, v in value.items()))
        if isinstance(value, tuple | list):
            return tuple(self.value(item) for item in value)
        if isinstance(value, set | frozenset):
            return ("set", *sorted(repr(self.value(item)) for item in value))
        return ("value", _KIND_IN_KEYS.get(name, name), repr(value))

    def _called(self, name: Any) -> Any:
        if isinstance(name, str):
            return ("column", self.names[name]) if name in self.names else name
        return tuple(self._called(one) for one in name)

    def _text(self, text: str) -> Any:
        if text in self.inputs:
            return ("input", self.inputs[text])
        if text not in self.texts and not _QUERY.match(text):
            return text
        try:
            return ("query", self._query(text))
        except (UnresolvedName, Error):
            if text in self.texts:  # which tables it reads is not known: all of them, then
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


def _has_intervals(block: PrivateBlock) -> bool:
    """Return whether a block shows the level of its intervals: in columns, or for a list in a note."""
    return any(name.endswith("__low") or kind.endswith("]") for name, kind in block.columns)


def digest_content(table: pa.Table) -> str:
    """Return a digest of a relation's rows and types. Names of columns and the order of rows don't matter.

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


_digests: MadeOnce[str] = MadeOnce(4)


def digest_lent(table: pa.Table) -> str:
    """Return the digest of a relation that is lent: that of a large one is made once, as nobody changes its rows."""
    if table.num_rows <= _MOST_SORTED:
        return digest_content(table)
    found = _digests.get(table, "")
    if found is None:
        _digests.keep(table, "", found := digest_content(table))
    return found


def _sorts(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind)
        or pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_decimal(kind)
    )  # fmt: skip


def _digest(*parts: str) -> str:
    found = hashlib.sha256()
    for part in parts:
        held = part.encode(errors="surrogatepass")
        found.update(len(held).to_bytes(8, "big") + held)
    return found.hexdigest()
