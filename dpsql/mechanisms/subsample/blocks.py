"""Subsample blocks: the sources of their results, and the combiners that make these private.

A source runs an arbitrary analysis exactly on each of ``blocks`` disjoint parts of the privacy units, and returns one
result per part. This is private only because a unit's block (or its number of blocks) is independent of the other
units: see :func:`write_block_number`. Never use ``NTILE`` or ``row_number()``: one more unit would shift every later
row into another block.

A result is a function of its own block's rows: a block without rows, a failure inside a block, a NULL and a value that
does not fit give None, which the combiner replaces by its public default. The number of blocks is public and fixed.

Results that are not numbers are votes. Every block casts one vote (or one per feature), so one privacy unit changes
``rounds`` votes, each moving 1 from one count to another: no count moves by more than 1 per round, two do, and in opposite
directions (so the sharper noise for monotone counts is not valid). The relation is substitution of block results, whatever
the relation of rows, and the number of blocks is public.

Sources: Dwork and Roth (2014) examples 7.1 to 7.3 and algorithms 13 and 14; Smith and Thakurta (2013).
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import hashlib
import io
import math
import numbers
import types
import uuid
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from dpsql.errors import EngineError
from dpsql.interrupts import run_breakable
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms import base
from dpsql.mechanisms.base import ClaimedText, Read, Release
from dpsql.mechanisms.moments import Estimate
from dpsql.mechanisms.order_statistics import read_cells
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise
from dpsql.mechanisms.ptr.stability_test import (
    NOT_STABLE,
    OptimalTest,
    StabilityTest,
    make_stability_test,
    measure_votes_radius,
)
from dpsql.mechanisms.queries import Select, Subquery
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import choose_exponential, permute_and_flip
from dpsql.numerics.exact_numbers import make_values
from dpsql.privacy.events import BoundedRange, Event, PureDP, compose_events

ReturnKind = Literal["DOUBLE", "BIGINT", "VARCHAR", "BOOLEAN"]
_ARROW = {"DOUBLE": pa.float64(), "BIGINT": pa.int64(), "VARCHAR": pa.string(), "BOOLEAN": pa.bool_()}


@dataclass(frozen=True)
class ReturnType:
    """The declared, public return type of a registered Python function.

    Args:
        kind: the SQL type, of one value or of the elements of a list.
        many: whether the function returns a list.
        length: of each list; None if lengths may differ.
    """

    kind: ReturnKind
    many: bool = False
    length: int | None = None

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of a result."""
        return pa.list_(_ARROW[self.kind]) if self.many else _ARROW[self.kind]

    def fit(self, result: object) -> object:
        """Convert one block's result to the declared type, or silently to None, since it was made of private rows."""
        try:
            return self._list(result) if self.many else self._one(result)
        except Exception:  # a user-defined object may raise anything
            return None

    def _list(self, result: object) -> list[object] | None:
        if not isinstance(result, list | tuple | np.ndarray) or isinstance(result, np.ma.MaskedArray):
            return None
        found = [self._one(part) for part in result]
        wrong = None in found or (self.length is not None and len(found) != self.length)
        return None if wrong else found

    def _one(self, value: object) -> object:
        if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
            value = value.item()
        if self.kind == "VARCHAR":
            return value if type(value) is str else None
        if self.kind == "BOOLEAN":
            return value if type(value) is bool else None
        if isinstance(value, bool) or not isinstance(value, numbers.Real | decimal.Decimal):
            return None
        if self.kind == "DOUBLE":
            return float(value)
        whole = int(float(value)) if not isinstance(value, int) else value
        return whole if whole == value and -(2**63) <= whole < 2**63 else None


@dataclass(frozen=True)
class RegisteredFunction:
    """A Python function that SUBSAMPLE may run, with its declared result type, if any."""

    function: Callable[..., object]
    returns: ReturnType | None = None


def write_block_number(
    unit: str, blocks: int, turn: str | None = None, whole: bool = False, hashed: bool = False
) -> str:
    """Return DuckDB SQL for the block of a privacy unit, 0..blocks-1, from the unit's value and a secret salt only.

    Args:
        turn: SQL of an integer; each turn has a new partition.
        whole: the unit is a signed integer of at most 64 bits. Then the salt is mixed in at once, which saves a hash:
            DuckDB's hash of one such integer is a bijection that scatters every bit.
        hashed: ``unit`` is already DuckDB's hash of the unit.

    Up to 256 blocks are numbered in one byte, by which DuckDB groups without a hash table: by the equal part of 2^64 that
    contains the hash (the last part may be shorter).

    >>> write_block_number("u", 128)
    'CAST(hash(xor(hash(u), $salt)) // 144115188075855872 AS UTINYINT)'
    >>> write_block_number("u", 128, whole=True)
    'CAST(hash(xor(CAST(u AS BIGINT), $salt)) // 144115188075855872 AS UTINYINT)'
    >>> write_block_number("u", 100)
    'CAST(hash(xor(hash(u), $salt)) // 184467440737095517 AS UTINYINT)'
    >>> write_block_number("u", 1000)
    'CAST(hash(xor(hash(u), $salt)) % 1000 AS INTEGER)'
    """
    if whole:
        key = base.SALT if turn is None else f"CAST(hash(xor(hash({turn}), {base.SALT})) >> 1 AS BIGINT)"
        mixed = f"hash(xor(CAST({unit} AS BIGINT), {key}))"
    else:
        key = base.SALT if turn is None else f"hash(xor(hash({turn}), {base.SALT}))"
        mixed = f"hash(xor({unit if hashed else f'hash({unit})'}, {key}))"
    if 1 < blocks <= 256:
        return f"CAST({mixed} // {-(-(2**64) // blocks)} AS UTINYINT)"
    return f"CAST({mixed} % {blocks} AS INTEGER)"


@dataclass(frozen=True)
class BlockResults:
    """Results by output column, one value per block (None for no result), and their Arrow types, if known."""

    columns: dict[str, list[object]]
    types: dict[str, pa.DataType]


class BlockSource(base.TextReader):
    """Returns one result per block and output column."""

    blocks: int

    @abstractmethod
    def claims(self, most: int | None) -> Iterator[base.ClaimedText]:
        """Yield every text that may be read, except those run apart, for units in at most ``most`` blocks."""

    @abstractmethod
    def results(self, read: base.Read, entropy: Entropy) -> BlockResults: ...

    @abstractmethod
    def sentence(self) -> str: ...


@dataclass(frozen=True)
class BlockOperator(base.Operator):
    """An operator over the results of blocks, with the texts of their source."""

    source: BlockSource

    @property
    def queries(self) -> tuple[str, ...]:
        return self.source.queries

    @property
    def provides(self) -> Mapping[str, base.Columns]:
        return self.source.provides

    @property
    def apart(self) -> tuple[str, ...]:
        return self.source.apart


RUNS_RELATION = "range($first, $last) AS runs(turn)"
"""The numbers of independent runs, as a relation in SQL."""


def _all_runs(read: base.Read, total: int) -> base.Reader:
    """Return a reader that substitutes all runs in :data:`RUNS_RELATION`."""
    return base.bind_parameters(read, {"first": 0, "last": total})


_FEWER = 4
"""The factor by which blocks read at once are divided, repeatedly, if memory is too small."""


@dataclass(frozen=True)
class LiftedBlocks(BlockSource):
    """One grouped query for all blocks.

    Args:
        query: returns the block, an integer in [0, blocks), and the output columns; one row per block that has a
            result. A block with several rows counts as failed.
        together: for blocks that are runs (:data:`RUNS`), the number made at once; None: all.
    """

    query: str
    columns: tuple[str, ...]
    blocks: int
    together: int | None = None

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.query,)

    def claims(self, most: int | None) -> Iterator[base.ClaimedText]:
        yield base.ClaimedText(self.query, base.BlocksClaim("dpsql_block", most))

    def results(self, read: base.Read, entropy: Entropy) -> BlockResults:
        reader = base.add_salt(read, (self.query,), entropy)
        found = BlockResults({name: [None] * self.blocks for name in self.columns}, {})
        first, many = 0, min(self.together or self.blocks, self.blocks)
        while first < self.blocks:
            last, text = min(first + many, self.blocks), self.query
            if many < self.blocks:  # the engine skips the other blocks' rows while reading
                base.report_progress(first, self.blocks)
                inside = f"part.dpsql_block BETWEEN {first} AND {last - 1}"
                text = Select("*", Subquery(text, "part"), inside).sql
            try:
                table = base.bind_parameters(reader, {"first": first, "last": last})(text)
            except base.OutOfMemory:  # too many at once for an aggregate that keeps its values
                if many <= max(1, self.blocks // _FEWER**3):
                    raise
                many = -(-many // _FEWER)
                continue
            found, first = self._placed(table, first, last, found), last
        if many < self.blocks:
            base.report_progress(self.blocks, self.blocks)
        return found

    def _placed(self, table: pa.Table, first: int, last: int, found: BlockResults) -> BlockResults:
        seen: dict[int, int] = {}
        for row, number in enumerate(table.column(0).to_pylist()):
            if number is not None and first <= int(number) < last:
                seen[int(number)] = -1 if int(number) in seen else row
        for place, name in enumerate(self.columns):
            values = read_cells(table.column(place + 1))
            for number, row in seen.items():
                if row >= 0:
                    found.columns[name][number] = values[row]
        types = {name: table.schema.field(place + 1).type for place, name in enumerate(self.columns)}
        return replace(found, types=types)

    def sentence(self) -> str:
        how = "in one pass" if self.together is None else f"{min(self.together, self.blocks):,} at a time"
        return f"the query runs exactly on each of {self.blocks:,} blocks of privacy units, {how}."


def _by_block(query: str, names: Sequence[str], as_text: Sequence[str] = ()) -> str:
    """Select the rows of each block together, ordered by all their columns, and by the text of some."""
    columns = ("block", *names)
    order = (*columns, *(f"CAST({name} AS VARCHAR)" for name in as_text))
    return Select(columns, Subquery(query, "given"), order=order).sql


@dataclass(frozen=True)
class BlockRows:
    """The rows of one private table, each with its block.

    Args:
        name: the table's name in the query for one block.
        query: returns ``block`` and the columns, called ``c0``, ``c1`` ...; no row without a unit.
    """

    name: str
    query: str
    columns: tuple[tuple[str, str], ...]

    @property
    def ordered(self) -> str:
        """The rows by block and then by all columns, so that the order within a block reveals nothing about other blocks."""
        # lists with zeros of two signs are equal, but print differently
        names = [f"c{place}" for place in range(len(self.columns))]
        kinds = zip(names, self.columns, strict=True)
        lists = [name for name, (_, kind) in kinds if "DOUBLE[" in kind or "FLOAT[" in kind]
        return _by_block(self.query, names, lists)

    def parted(self, table: pa.Table, blocks: int) -> _Parts:
        """Divide the table of :attr:`ordered` into blocks, under the column names in the query for one block."""
        return _Parts.of(table.rename_columns(["block", *(name for name, _ in self.columns)]), blocks)


@dataclass(frozen=True)
class _Parts:
    """A table sorted by its first column, the block."""

    table: pa.Table
    starts: Sequence[int]
    ends: Sequence[int]

    @staticmethod
    def of(table: pa.Table, blocks: int) -> _Parts:
        given = table.column(0).to_pylist()
        numbers = np.array([-1 if b is None else b for b in given], dtype=np.int64)
        starts = np.searchsorted(numbers, np.arange(blocks), side="left").tolist()
        ends = np.searchsorted(numbers, np.arange(blocks), side="right").tolist()
        return _Parts(table.drop_columns(table.column_names[:1]), starts, ends)

    def size(self, number: int) -> int:
        return self.ends[number] - self.starts[number]

    def rows(self, number: int) -> pa.Table:
        """Return one block, its chunks combined: chunk boundaries depend on other blocks and would leak."""
        return self.table.slice(self.starts[number], self.size(number)).combine_chunks()


@dataclass(frozen=True)
class BlockQueries(BlockSource):
    """One query per block, for queries that can't be lifted, over that block's rows alone.

    The rows are read once, sorted by block; then the query runs on each block's part of them, in a separate database,
    if there is one, which it may break. So a result is a function of its block's rows despite underspecified queries
    (ties, the order of addition). A block whose query fails, or does not return one row, has no result; an interruption
    ends all.

    ``query``: runs on each block; ``columns`` are its outputs.
    """

    rows: tuple[BlockRows, ...]
    query: str
    columns: tuple[str, ...]
    blocks: int

    @property
    def queries(self) -> tuple[str, ...]:
        return (*(rows.ordered for rows in self.rows), self.query)

    @property
    def apart(self) -> tuple[str, ...]:
        return (self.query,)

    @property
    def provides(self) -> Mapping[str, base.Columns]:
        return {rows.name: rows.columns for rows in self.rows}

    def claims(self, most: int | None) -> Iterator[base.ClaimedText]:
        for rows in self.rows:
            yield base.ClaimedText(rows.ordered, base.BlocksClaim("block", most))

    def results(self, read: base.Read, entropy: Entropy) -> BlockResults:
        read = _all_runs(base.add_salt(read, (rows.ordered for rows in self.rows), entropy), self.blocks)
        parts = {r.name: r.parted(read(r.ordered), self.blocks) for r in self.rows}
        columns: dict[str, list[object]] = {name: [None] * self.blocks for name in self.columns}
        types = self._types(read, {name: part.table.slice(0, 0) for name, part in parts.items()})
        for number in range(self.blocks):
            base.report_progress(number, self.blocks)
            try:
                table = read.read_apart(self.query, {name: part.rows(number) for name, part in parts.items()})
            except EngineError:
                continue
            if table.num_rows == 1:
                for place, name in enumerate(self.columns):
                    columns[name][number] = read_cells(table.column(place))[0]
        base.report_progress(self.blocks, self.blocks)
        return BlockResults(columns, types)

    def _types(self, read: base.Reader, nothing: dict[str, pa.Table]) -> dict[str, pa.DataType]:
        """Find the types of the outputs from no rows: a successful block's types would reveal its success."""
        try:
            schema = read.read_apart(Select("*", Subquery(self.query, "shape"), limit=0).sql, nothing).schema
        except EngineError:
            return {}
        return {name: schema.field(place).type for place, name in enumerate(self.columns)}

    def sentence(self) -> str:
        return f"the query runs exactly on each of {self.blocks:,} blocks of privacy units, block by block."


@dataclass(frozen=True)
class PythonBlocks(BlockSource):
    """A registered Python function, called once per block with that block's rows.

    Args:
        query: returns ``block`` and the argument columns, one row per row that counts.
        arguments: passed in this order, each a numpy array with the block's values.
        function: must depend on its arguments alone. State that it keeps, writes or measures is outside the guarantee.
        version: distinguishes functions of one name in the plan, see :func:`fingerprint`.

    Rows of a block are sorted by the arguments, so their order reveals nothing about other blocks. A block without rows
    is not run. Exceptions give no result; warnings and printed text are discarded, since they would reveal private rows.
    """

    query: str
    arguments: tuple[str, ...]
    blocks: int
    name: str
    column: str
    function: Callable[..., object] = field(compare=False, repr=False)
    version: str = ""
    as_text: tuple[str, ...] = ()
    """Arguments whose equal values may print differently: they are also sorted by their text."""
    returns: ReturnType | None = None
    """The declared type of a result; any other value is no result."""

    @property
    def queries(self) -> tuple[str, ...]:
        return (_by_block(self.query, self.arguments, self.as_text),)

    def claims(self, most: int | None) -> Iterator[base.ClaimedText]:
        for text in self.queries:
            yield base.ClaimedText(text, base.BlocksClaim("block", most))

    def results(self, read: base.Read, entropy: Entropy) -> BlockResults:
        (query,) = self.queries
        read = _all_runs(base.add_salt(read, (query,), entropy), self.blocks)
        parts = _Parts.of(read(query), self.blocks)
        results: list[object] = [None] * self.blocks
        for number in range(self.blocks):
            base.report_progress(number, self.blocks)
            if parts.size(number):
                results[number] = self._call(parts.rows(number))
        base.report_progress(self.blocks, self.blocks)
        if self.returns is None:
            return BlockResults({self.column: results}, {})
        fitted = list(map(self.returns.fit, results))
        return BlockResults({self.column: fitted}, {self.column: self.returns.arrow})

    def _call(self, rows: pa.Table) -> object:
        """Return the result of one block, its rows converted separately: numpy's type shows whether an integer is missing."""
        out = io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            warnings.simplefilter("ignore")
            try:
                # copies, so that the function can't change other blocks' arguments
                given = [rows.column(name).to_numpy().copy() for name in self.arguments]
                return run_breakable(lambda: self.function(*given))
            except KeyboardInterrupt:  # the stop button
                raise
            except BaseException:  # any failure inside a block, including an exit, gives the default
                return None

    def sentence(self) -> str:
        where = f"the rows of each of {self.blocks:,} blocks of privacy units"
        return f"the Python function {self.name} runs on {where}."


def fingerprint(function: Callable[..., object]) -> str:
    """Return a text that changes with a Python function's code, equal in every process. Its callees don't count."""
    code = getattr(function, "__code__", None)
    parts = [getattr(function, "__qualname__", type(function).__qualname__)]

    def look(item: types.CodeType) -> None:
        parts.append(item.co_code.hex())
        parts.extend(map(repr, (item.co_names, item.co_varnames)))
        for constant in item.co_consts:
            if isinstance(constant, types.CodeType):
                look(constant)
            else:
                plain = sorted(constant, key=repr) if isinstance(constant, frozenset) else constant
                parts.append(repr(plain))

    if isinstance(code, types.CodeType):
        look(code)
        parts.append(repr(getattr(function, "__defaults__", None)))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


Results = Sequence[Any]
"""The results of blocks: any objects that a query or an analyst's function returns."""
ResultKind: TypeAlias = pa.DataType | None
"""The common type of all results, if known."""
Combined = tuple[Mapping[str, pa.Array], tuple[str, ...]]
"""Released columns, and notes."""


class Combiner(ABC):
    """Computes one released value from the block results of one output column."""

    name: str

    @property
    @abstractmethod
    def event(self) -> Event: ...

    @abstractmethod
    def combine(self, values: Results, type: ResultKind, entropy: Entropy, confidence: float) -> Combined:
        """Return the released columns, and notes."""

    @abstractmethod
    def sentences(self, confidence: float, blocks: int) -> tuple[str, ...]: ...


_TIMES = (datetime.date, datetime.time, datetime.timedelta)
_SCALARS = (bool, int, str, bytes, decimal.Decimal, uuid.UUID, pa.MonthDayNano, *_TIMES)


def read_vote(value: object) -> tuple[str, Any] | None:
    """Return the label that equal results share, and its value; None for results that can't be voted for.

    Labels distinguish types (1, 1.0 and TRUE are three results), so the value released for a label does not depend on
    the order of blocks. NaN, NULL and foreign objects are no votes; lists and sets become tuples.

    >>> read_vote([3, 4])
    ('(int 3, int 4)', (3, 4))
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return None if math.isnan(value) else (f"float {value + 0.0!r}", value + 0.0)
    if type(value) in _SCALARS or isinstance(value, datetime.datetime):
        return f"{type(value).__name__} {value!r}", value
    if isinstance(value, dict):  # independent of the order of keys
        pairs = sorted((read_vote(item) for item in value.items()), key=lambda pair: pair[0] if pair else "")
        known = [pair for pair in pairs if pair is not None]
        if len(known) < len(pairs):
            return None
        return "{" + ", ".join(label for label, _ in known) + "}", dict(pair for _, pair in known)
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        parts = [read_vote(part) for part in value]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        if isinstance(value, set | frozenset):
            known.sort(key=lambda part: part[0])
        return "(" + ", ".join(label for label, _ in known) + ")", tuple(v for _, v in known)
    return None


def count_votes(values: Sequence[object]) -> dict[str, tuple[int, object]]:
    """Count votes, with values, by label; results that can't be voted for are no votes."""
    counts: dict[str, tuple[int, object]] = {}
    for value in values:
        found = _tried(value)
        if found:
            counts[found[0]] = (counts.get(found[0], (0, None))[0] + 1, found[1])
    return counts


def _tried(value: object) -> tuple[str, object] | None:
    """Read a vote, or None if an analyst's object fails, so that one block's result stops no others."""
    try:
        return read_vote(value)
    except Exception:
        return None


def find_winner(values: Sequence[object], rounds: int = 1) -> tuple[tuple[str, object] | None, int]:
    """Return label, value and radius (:func:`measure_votes_radius`) of the most frequent vote, the first of equals, if any."""
    leading = sorted(count_votes(values).items(), key=lambda item: (-item[1][0], item[0]))
    counts = [count for _, (count, _) in leading[:2]] + [0, 0]
    radius = measure_votes_radius(counts[0], counts[1], rounds)
    return (leading[0][0], leading[0][1][1]) if leading else None, radius


def make_column(name: str, value: object, type: pa.DataType | None) -> Mapping[str, pa.Array]:
    """Return a column of one value, in this type if it fits, else as text."""
    if isinstance(value, tuple) and not isinstance(value, pa.MonthDayNano):  # an INTERVAL is a tuple, too
        value = list(value)
    try:
        return {name: pa.array([value], type) if type is not None else pa.array([value])}
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # such as a list of numbers and texts
        shown = repr(value).encode("utf-8", "backslashreplace").decode()
        return {name: pa.array([shown], pa.string())}


@dataclass(frozen=True)
class NoisyMode(Combiner):
    """``combine = 'noisy_mode'``: a vote that is likely among the most frequent; never exact.

    Args:
        candidates: a public list of possible results. Then permute-and-flip (``exponential``: the exponential
            mechanism) chooses one of them, with the general factor 2: weight exp(epsilon votes / 2). Other results are
            no votes.
        selection: for possible results that are not public. First each result with votes is kept with the probability
            that the optimal test gives its count, then one of those kept is chosen. A changed vote affects two results,
            by 1 each, like a unit in two groups: so the test must be made with ``groups = 2`` and is (epsilon, delta)
            as a whole; a result seen in one block is kept with probability at most delta / 2. The choice is made among
            names already released. No result kept: NULL.

    Loss: epsilon (pure; bounded range if ``exponential``), and the selection's.
    """

    name: str
    epsilon: Fraction
    candidates: tuple[object, ...] | None = None
    selection: OptimalTest | None = None
    exponential: bool = False

    @classmethod
    def unlisted(cls, name: str, epsilon: Fraction, delta: Fraction, exponential: bool) -> NoisyMode:
        """Return a vote among results that are not public: half of epsilon selects them."""
        return cls(name, epsilon / 2, None, OptimalTest(epsilon / 2, delta, 2), exponential)

    def __post_init__(self) -> None:
        if (self.candidates is None) == (self.selection is None):
            raise ValueError("either the candidates are public, or they are selected privately")
        if self.selection is not None and self.selection.groups != 2:
            raise ValueError(
                "one changed vote touches two results: the selection must be made for two groups"
            )

    @property
    def event(self) -> Event:
        choice = BoundedRange(self.epsilon) if self.exponential else PureDP(self.epsilon)
        return compose_events([choice, self.selection.event]) if self.selection else choice

    def combine(self, values: Results, type: ResultKind, entropy: Entropy, confidence: float) -> Combined:
        counts = count_votes(values)
        if self.candidates is not None:
            labels = dict(filter(None, map(read_vote, self.candidates)))
            options = [(counts.get(label, (0, None))[0], value) for label, value in labels.items()]
        else:
            assert self.selection is not None
            found = list(counts.values())
            kept = self.selection.passes([count - 1 for count, _ in found], entropy) if found else []
            options = [option for option, keep in zip(found, kept, strict=True) if keep]
        if not options:
            return make_column(self.name, None, type), (
                f"{self.name}: no result had enough votes to be named",
            )
        scores = np.array([count for count, _ in options], dtype=np.int64)
        choose = choose_exponential if self.exponential else permute_and_flip
        return make_column(self.name, options[choose(scores, self.epsilon / 2, entropy)][1], type), ()

    def sentences(self, confidence: float, blocks: int) -> tuple[str, ...]:
        how = "the exponential mechanism" if self.exponential else "permute-and-flip"
        if self.candidates is not None:
            size = max(len(self.candidates), 1)
            behind = 2 / float(self.epsilon) * (math.log(size) - math.log(1 - confidence))
            return (
                f"{self.name}: a vote among {size} public candidates by {how}, ε = {float(self.epsilon):.4g}; the winner "
                f"has at most {behind:.1f} of {blocks:,} votes fewer than the best, at {confidence:.0%}.",
            )
        assert self.selection is not None
        return (
            f"{self.name}: a vote; results are named if enough blocks agree (surely from "
            f"{self.selection.cap + 1} of {blocks:,} votes, rarely below {self.selection.needed(0.5) + 1}), then {how} "
            f"chooses among them with ε = {float(self.epsilon):.4g}.",
        )


@dataclass(frozen=True)
class StableMode(Combiner):
    """``combine = 'stable_mode'``: the most frequent vote, exact, if it leads by enough; else NULL.

    Algorithm A_dist on the votes: radius ceil((c1 - c2) / (2 rounds)) - 1 (``measure_votes_radius``), then the test.
    Loss: the test's, independent of the number of possible results. ``rounds`` is the number of votes that one unit can
    change: 1 for disjoint blocks, J for J balanced partitions, and the cap 2mq of :class:`Participation` for the
    textbook's independent subsamples.
    """

    name: str
    test: StabilityTest
    rounds: int = 1

    @classmethod
    def calibrate(
        cls, name: str, kind: str, epsilon: Fraction, delta: Fraction, rounds: int, slack: Fraction
    ) -> StableMode:
        """Return a vote whose test, of a ``kind``, loses epsilon and delta; ``slack`` is the part of delta set aside."""
        return cls(name, make_stability_test(kind, epsilon, delta, slack=slack), rounds)

    @property
    def event(self) -> Event:
        return self.test.event

    def combine(self, values: Results, type: ResultKind, entropy: Entropy, confidence: float) -> Combined:
        winner, radius = find_winner(values, self.rounds)
        passed = self.test.passes([radius], entropy)[0] and winner is not None
        value = winner[1] if passed and winner is not None else None
        return make_column(self.name, value, type), () if passed else (f"{self.name}: {NOT_STABLE}",)

    def sentences(self, confidence: float, blocks: int) -> tuple[str, ...]:
        gap = 2 * self.rounds * (self.test.needed(0.99) + 1)
        lead = f"a lead of {gap:,} of {blocks:,} votes is released in 99 of 100 runs"
        if gap > blocks:
            lead = f"even unanimous votes rarely are enough: {gap:,} would be needed, there are {blocks:,}"
        return (f"{self.name}: the winning vote, exact, if it is stable: {lead}; {self.test.sentence()}.",)


@dataclass(frozen=True)
class Participation:
    """The textbook's independent subsamples (A_samp): each unit joins each of m runs with probability q.

    Args:
        query: returns ``most``, the largest number of runs of one unit (its id, never a value).
        q, runs: the sampling. More than ``cap`` = floor(2 m q) runs of a unit give NULL.

    Whether the check fails depends on coins alone, not on values. Under ADD_REMOVE one more unit means more coins, and
    they fail the check with probability at most ``failure``: a Chernoff bound, to be reserved from delta (the ``slack``
    of the test).
    """

    query: str
    q: Fraction
    runs: int

    @property
    def cap(self) -> int:
        """The most runs of a unit."""
        return max(1, math.floor(2 * self.runs * self.q))

    @property
    def failure(self) -> Fraction:
        """The bound Pr[Bin(m, q) > 2 m q] <= (e/4)^(m q), rounded up."""
        import mpmath  # slow to import, and only this sampling needs it

        with mpmath.workprec(100):
            mean = mpmath.mpf((self.runs * self.q).numerator) / (self.runs * self.q).denominator
            bits = 256
            bound = mpmath.exp(mean * (1 - mpmath.log(4))) * mpmath.mpf(2) ** bits
            return Fraction(int(mpmath.floor(bound)) + 1, 1 << bits)

    def holds(self, read: Read, query: str) -> bool:
        """Return whether no unit is in too many runs."""
        most = read(query).column("most")[0].as_py()
        return most is None or int(most) <= self.cap


def compute_textbook_sampling(epsilon: Fraction, delta: Fraction, n: int) -> tuple[Fraction, int]:
    """Compute the textbook's q and m for n units (public): q = epsilon / (64 ln(1/delta)), m = ln(n/delta) / q^2.

    q is rounded down. EXPLAIN shows m, twenty million runs at epsilon = 1, delta = 1e-6 and n = 100,000, in advance.

    >>> compute_textbook_sampling(Fraction(1), Fraction(1, 10**6), 100_000)[1]
    19801688
    """
    import mpmath

    with mpmath.workprec(120):
        rate = mpmath.mpf(epsilon.numerator) / epsilon.denominator
        small = mpmath.mpf(delta.numerator) / delta.denominator
        q = Fraction(int(mpmath.floor(rate / (64 * mpmath.log(1 / small)) * 2**60)), 1 << 60)
        exact = rate / (64 * mpmath.log(1 / small))
        return q, int(mpmath.ceil(mpmath.log(n / small) / exact**2))


def _named(result: object, features: Mapping[str, int]) -> list[str]:
    """Return the features in a block's list, without duplicates, in its order. A text is a list of one."""
    if isinstance(result, str):
        result = [result]
    if not isinstance(result, list | tuple | np.ndarray) or isinstance(result, np.ma.MaskedArray):
        return []
    named = (f.item() if isinstance(f, np.generic) else f for f in result)
    return list(dict.fromkeys(f for f in named if type(f) is str and f in features))


@dataclass(frozen=True)
class FeatureVotes(BlockOperator):
    """Lists of features by block, released as votes per feature (one row each), or as the most voted ones.

    Args:
        source: its ``column`` has a feature, or a list of them, per block.
        features: the public list, also the order of rows; a block votes for at most ``most`` distinct ones, in the
            order of its list.
        noise: for all the counts: one block changes at most 2 ``most`` counts by 1 each (L1 2s, squared L2 2s, largest
            1), so it must be made with ``sensitivity = 1`` and ``groups = 2 * most``.
        top, epsilon: instead, the ``top`` best features by peeling exponential mechanisms, epsilon / top each, best
            first. Each choice sees counts that move by at most 1, so ``most`` does not matter.
    """

    column: str
    name: str
    features: tuple[str, ...]
    most: int
    noise: LaplaceNoise | GaussianNoise | None = None
    top: int | None = None
    epsilon: Fraction | None = None
    confidence: float = 0.95

    @staticmethod
    def make_noise(epsilon: Fraction, most: int) -> LaplaceNoise:
        """Return the noise of all counts that loses epsilon."""
        return LaplaceNoise(epsilon, 1, 2 * most)

    def __post_init__(self) -> None:
        if (self.noise is None) != (self.top is not None and self.epsilon is not None):
            raise ValueError("either noise for every count, or a number of winners and their epsilon")
        if self.noise is not None and (self.noise.sensitivity != 1 or self.noise.groups != 2 * self.most):
            raise ValueError(
                "one block moves two counts per feature it may name: noise for 2 * most groups of 1"
            )
        if self.top is not None and not 0 < self.top <= len(self.features):
            raise ValueError("more winners than features")

    @property
    def event(self) -> Event:
        if self.noise is not None:
            return self.noise.event
        assert self.top is not None and self.epsilon is not None
        return BoundedRange(self.epsilon, self.top)

    def claims(self) -> Iterator[ClaimedText]:
        yield from self.source.claims(1)

    def counts(self, results: Sequence[object]) -> list[int]:
        """Count the exact votes per feature, in the order of ``features``."""
        places = {feature: i for i, feature in enumerate(self.features)}
        counts = [0] * len(self.features)
        for result in results:
            try:
                known = _named(result, places)
            except Exception:  # a user-defined object is no vote, silently
                continue
            for feature in known[: self.most]:
                counts[places[feature]] += 1
        return counts

    def release(self, read: Read, entropy: Entropy) -> Release:
        counts = self.counts(self.source.results(read, entropy).columns[self.column])
        if self.noise is not None:
            votes = [int(v) for v in self.noise.add(counts, entropy)]
            width = self.noise.half_width(self.confidence)
            ends = (make_values([v + side for v in votes], pa.float64()) for side in (-width, width))
            counted = Estimate(make_values(votes, pa.int64()), *ends).columns("votes")
            return Release(
                pa.table({self.name: make_values(self.features, pa.string()), **counted}), self.event
            )
        assert self.top is not None and self.epsilon is not None
        left = list(range(len(self.features)))
        winners = []
        for _ in range(self.top):
            scores = np.array([counts[i] for i in left], dtype=np.int64)
            winners.append(left.pop(choose_exponential(scores, self.epsilon / self.top / 2, entropy)))
        chosen = make_values([self.features[i] for i in winners], pa.string())
        return Release(pa.table({self.name: chosen}), self.event)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        each = f"Each votes for at most {self.most} of {len(self.features)} features."
        said = f"{self.name}: {self.source.sentence()} {each}"
        if self.noise is not None:
            width = self.noise.half_width(confidence)
            return said, f"votes: every count with noise, within ±{width:.4g} votes at {confidence:.0%}."
        most = f"the {self.top} features with the most votes, by the exponential mechanism"
        return said, f"{self.name}: {most}."
