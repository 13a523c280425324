"""Subsample blocks: the sources of the results that combiners make private.

A source runs an arbitrary analysis exactly on each of ``blocks`` disjoint parts of the privacy units, and returns one
result per part. This is private only because a unit's block (or its number of blocks) is independent of the other
units: see :func:`write_block_number`. Never use ``NTILE`` or ``row_number()``: one more unit would shift every later
row into another block.

A result is a function of its own block's rows: a block without rows, a failure inside a block, a NULL and a value that
does not fit give None, which the combiner replaces by its public default. The number of blocks is public and fixed.
"""

from __future__ import annotations

import contextlib
import decimal
import hashlib
import io
import numbers
import types
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from dpsql.errors import EngineError
from dpsql.interrupts import run_breakable
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms import base
from dpsql.mechanisms.order_statistics import read_cells
from dpsql.mechanisms.queries import Select, Subquery
from dpsql.noise.entropy import Entropy

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

    Up to 256 blocks are numbered in one byte, by which DuckDB groups without a hash table: by the top bits if their
    number is a power of two, else by the equal part of 2^64 that contains the hash (the last part is shorter).

    >>> write_block_number("u", 128)
    'CAST(hash(xor(hash(u), $salt)) >> 57 AS UTINYINT)'
    >>> write_block_number("u", 128, whole=True)
    'CAST(hash(xor(CAST(u AS BIGINT), $salt)) >> 57 AS UTINYINT)'
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
    bits = blocks.bit_length() - 1
    if blocks == 1 << bits and 1 <= bits <= 8:
        return f"CAST({mixed} >> {64 - bits} AS UTINYINT)"
    if blocks < 256:
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
