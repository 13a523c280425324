"""Subsample blocks: where the results that get combined come from.

A source runs an arbitrary analysis exactly on each of ``blocks`` disjoint parts of the privacy units, and
gives one result per part. What makes this private is only that a unit is in one block (or in a known number
of them) whatever the other units are: see :func:`block_number`. Never ``NTILE`` or ``row_number()``, where
one unit more shifts every later row into another block.

A result is a function of its own block's rows: a block without rows, a failure inside a block, a NULL and a
value that does not fit give None, and the combiner puts its public default there. The number of blocks is
public and fixed.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from dpsql.errors import EngineError
from dpsql.mechanisms.base import SALT, Read, salted
from dpsql.mechanisms.order import cells, quoted
from dpsql.noise.entropy import Entropy

BLOCK = "__dpsql_block__"
"""Where a query for one block wants the number of the block."""

Progress = Callable[[int, int], None]
"""Told (blocks done, blocks in all). Both are public; it may raise Interrupted."""


def block_number(unit: str, blocks: int, turn: str | None = None) -> str:
    """DuckDB SQL for the block of a privacy unit: 0..blocks-1, from the unit's value and a secret salt only.

    Args:
        unit: SQL of the unit. turn: SQL of an integer; each turn partitions anew.

    Up to 256 blocks in a power of two are taken from the top bits as one byte, which DuckDB groups by without
    a hash table: a third faster than a remainder.

    >>> block_number("u", 128)
    'CAST(hash(xor(hash(u), __dpsql_salt__)) >> 57 AS UTINYINT)'
    """
    key = SALT if turn is None else f"hash(xor(hash({turn}), {SALT}))"
    mixed = f"hash(xor(hash({unit}), {key}))"
    bits = blocks.bit_length() - 1
    if blocks == 1 << bits and 1 <= bits <= 8:
        return f"CAST({mixed} >> {64 - bits} AS UTINYINT)"
    return f"CAST({mixed} % {blocks} AS INTEGER)"


@dataclass(frozen=True)
class Results:
    """Results by output column: one value per block, None where there is none; and their Arrow types, if
    known.
    """

    columns: dict[str, list[Any]]
    types: dict[str, pa.DataType]


class Source(Protocol):
    """Gives one result per block and output column."""

    @property
    def query(self) -> str: ...

    def asking(self, query: str) -> Source:
        """The same with another query text."""
        ...

    @property
    def blocks(self) -> int: ...

    @property
    def queries(self) -> tuple[str, ...]: ...

    def results(self, read: Read, entropy: Entropy) -> Results: ...

    def sentence(self) -> str: ...


@dataclass(frozen=True)
class LiftedBlocks:
    """One grouped query for all blocks.

    Args:
        query: gives ``block``, an integer in [0, blocks), and the output columns; one row per block that has
            a result. A block with several rows has no single result, so it counts as failed.
        columns: the outputs.
        blocks: how many there are.
    """

    query: str
    columns: tuple[str, ...]
    blocks: int

    def asking(self, query: str) -> LiftedBlocks:
        return replace(self, query=query)

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.query,)

    def results(self, read: Read, entropy: Entropy) -> Results:
        table = read(salted(self.query, entropy))
        numbers = table.column("block").to_pylist()
        seen: dict[int, int] = {}
        for row, number in enumerate(numbers):
            if number is not None and 0 <= int(number) < self.blocks:
                seen[int(number)] = -1 if int(number) in seen else row
        columns: dict[str, list[Any]] = {}
        for name in self.columns:
            values = cells(table.column(name))
            columns[name] = [None] * self.blocks
            for number, row in seen.items():
                if row >= 0:
                    columns[name][number] = values[row]
        return Results(columns, {name: table.schema.field(name).type for name in self.columns})

    def sentence(self) -> str:
        return f"the query runs exactly on each of {self.blocks:,} blocks of privacy units, in one pass."


@dataclass(frozen=True)
class BlockQueries:
    """One query per block, for what can't be lifted: the token ``__dpsql_block__`` stands for the block's
    number.

    A block whose query fails has no result; an interruption ends the whole. All queries share one salt.
    """

    query: str
    columns: tuple[str, ...]
    blocks: int
    progress: Progress | None = field(default=None, compare=False, repr=False)

    def asking(self, query: str) -> BlockQueries:
        return replace(self, query=query)

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.query,)

    def results(self, read: Read, entropy: Entropy) -> Results:
        query = salted(self.query, entropy)
        columns: dict[str, list[Any]] = {name: [None] * self.blocks for name in self.columns}
        types: dict[str, pa.DataType] = {}
        for number in range(self.blocks):
            if self.progress:
                self.progress(number, self.blocks)
            try:
                table = read(query.replace(BLOCK, str(number)))
            except EngineError:
                continue
            types = types or {name: table.schema.field(name).type for name in self.columns}
            if table.num_rows == 1:
                for name in self.columns:
                    columns[name][number] = cells(table.column(name))[0]
        if self.progress:
            self.progress(self.blocks, self.blocks)
        return Results(columns, types)

    def sentence(self) -> str:
        return f"the query runs exactly on each of {self.blocks:,} blocks of privacy units, block by block."


@dataclass(frozen=True)
class PythonBlocks:
    """A registered Python function, called once per block with that block's rows.

    Args:
        query: gives ``block`` and the argument columns, one row per row that counts.
        arguments: passed in this order, each a numpy array with the block's values.
        name: of the function, which identifies it in the plan; ``column``: of the result.
        function: must be a function of its arguments alone. What it remembers between calls, writes, or
            measures is outside the guarantee.

    Rows of a block come sorted by the arguments, so their order says nothing of other blocks. A block without
    rows is not run. Exceptions give no result; warnings and what the function prints are swallowed, as they
    would speak of private rows.
    """

    query: str
    arguments: tuple[str, ...]
    blocks: int
    name: str
    column: str
    function: Callable[..., Any] = field(compare=False, repr=False)
    progress: Progress | None = field(default=None, compare=False, repr=False)

    def asking(self, query: str) -> PythonBlocks:
        return replace(self, query=query)

    @property
    def queries(self) -> tuple[str, ...]:
        names = ", ".join(map(quoted, self.arguments))
        order = "".join(f", {i + 2}" for i in range(len(self.arguments)))
        return (f"SELECT block, {names} FROM ({self.query}) AS given ORDER BY 1{order}",)

    def results(self, read: Read, entropy: Entropy) -> Results:
        table = read(salted(self.queries[0], entropy))
        numbers = np.array(
            [-1 if b is None else b for b in table.column("block").to_pylist()], dtype=np.int64
        )
        arrays = [table.column(name).to_numpy() for name in self.arguments]
        results: list[Any] = [None] * self.blocks
        starts = np.searchsorted(numbers, np.arange(self.blocks), side="left")
        ends = np.searchsorted(numbers, np.arange(self.blocks), side="right")
        for number in range(self.blocks):
            if self.progress:
                self.progress(number, self.blocks)
            start, end = int(starts[number]), int(ends[number])
            if start < end:
                # copies: whatever the function does to its arguments, no other block sees it
                results[number] = self._call([array[start:end].copy() for array in arrays])
        if self.progress:
            self.progress(self.blocks, self.blocks)
        return Results({self.column: results}, {})

    def _call(self, arguments: Sequence[Any]) -> Any:
        silent = io.StringIO()
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(silent),
            contextlib.redirect_stderr(silent),
        ):
            warnings.simplefilter("ignore")
            try:
                return self.function(*arguments)
            except Exception:  # whatever goes wrong inside a block is a result like any other: the default
                return None

    def sentence(self) -> str:
        where = f"the rows of each of {self.blocks:,} blocks of privacy units"
        return f"the Python function {self.name} runs on {where}."


Reporting = TypeVar("Reporting")


def reporting(operator: Reporting, progress: Progress) -> Reporting:
    """The same operator, telling ``progress`` as its blocks finish; others come back unchanged."""
    source = getattr(operator, "source", None)
    if isinstance(source, BlockQueries | PythonBlocks):
        return replace(operator, source=replace(source, progress=progress))  # type: ignore[type-var]
    return operator
