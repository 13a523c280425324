"""Exact queries that read little, or gave a few rows before: there planning a text may take longer than running it.

Which are large is told by the engine's own estimate of rows, which reads no more than a file's footer.

DuckDB's client plans a text twice before it gives a table, and once where rows come one by one. A text that one cursor is asked
again is prepared, where the data can't change: a prepared plan may rest on the least and the greatest values that a column had.
Either way gives the same table.
"""

from __future__ import annotations

import contextlib
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence

import duckdb
import pyarrow as pa

from dpsql.numerics.exact_numbers import make_values

MAX_PREPARED, MAX_SEEN = 16, 64
"""Texts that are prepared on one cursor, and those that are known from being asked there once."""
MAX_ROWS = 1000
_KINDS = {
    "BIGINT": pa.int64(),
    "HUGEINT": pa.decimal128(38, 0),
    "INTEGER": pa.int32(),
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
}
"""Types whose values come as Python's without a loss, and what DuckDB makes of them in Arrow."""


_NUMBER = re.compile("[0-9]+")


def _shape(sql: str) -> str:
    return _NUMBER.sub("?", sql)


_ROWS = re.compile(r'"Estimated Cardinality": "~?([0-9]+)"')


def estimate_rows(ask: Callable[[str], Sequence[Sequence[object]]], relation: str) -> int:
    """Return about how many rows a relation has, as the engine's plan to read it says; 0 where it does not."""
    with contextlib.suppress(duckdb.Error):
        plan = ask(f"EXPLAIN (FORMAT JSON) SELECT * FROM {relation}")
        return max((int(rows) for row in plan for rows in _ROWS.findall(str(row[-1]))), default=0)
    return 0


class LittleQueries:
    """The little queries of one cursor.

    Args:
        con: the cursor, on which nobody else prepares anything.
        steady: whether the data are the same as long as it is open.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, steady: bool) -> None:
        self.con, self._steady = con, steady
        self._fit: OrderedDict[str, bool] = OrderedDict()
        """Texts that were asked, and whether their rows come this way."""
        self._prepared: OrderedDict[str, str] = OrderedDict()
        self._made = 0

    def ask(self, sql: str) -> pa.Table | None:
        """Return the rows of a text; None where they are many, or of types that do not come this way."""
        known = self._fit.get(sql)
        if known is False or (known is None and self._fit.get(_shape(sql)) is False):
            return None
        if known and self._steady and sql not in self._prepared:
            self._prepare(sql)
        found = self._run(f"EXECUTE {self._prepared[sql]}" if sql in self._prepared else sql)
        self._remember(sql, found is not None)
        if found is None:
            self._remember(_shape(sql), False)  # the next one with another number is not tried
        return found

    def knows(self, sql: str) -> bool:
        """Tell whether a text's rows came this way, or could have."""
        return self._fit.get(sql, False)

    def note(self, sql: str, found: pa.Table) -> None:
        """Remember what a text gave that was asked otherwise."""
        few = found.num_rows <= MAX_ROWS and all(kind in _KINDS.values() for kind in found.schema.types)
        self._remember(sql, few)

    def _remember(self, sql: str, fits: bool) -> None:
        self._fit[sql] = fits
        while len(self._fit) > MAX_SEEN:
            self._fit.popitem(last=False)

    def _run(self, sql: str) -> pa.Table | None:
        found = self.con.execute(sql)
        described = [(str(column[0]), str(column[1])) for column in found.description or ()]
        known = all(kind in _KINDS for _, kind in described)
        rows = found.fetchmany(MAX_ROWS + 1) if known else []
        if not known or len(rows) > MAX_ROWS:
            if hasattr(
                self.con, "abort"
            ):  # DuckDB 2 does nothing else on a cursor before its rows are fetched
                self.con.abort()
            return None
        columns = zip(*rows, strict=True) if rows else [()] * len(described)
        made = [
            make_values(values, _KINDS[kind]) for values, (_, kind) in zip(columns, described, strict=True)
        ]
        return pa.table(made, names=[name for name, _ in described])

    def _prepare(self, sql: str) -> None:
        self._made += 1
        name = f"dpsql_exact_{self._made}"
        self.con.execute(f"PREPARE {name} AS {sql}")
        self._prepared[sql] = name
        while len(self._prepared) > MAX_PREPARED:
            _, oldest = self._prepared.popitem(last=False)
            with contextlib.suppress(duckdb.Error):
                self.con.execute(f"DEALLOCATE {oldest}")
