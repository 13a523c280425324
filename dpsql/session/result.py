"""The result of a statement: released numbers, their intervals, their cost.

A :class:`Result` is plain data without connection, cursor or exact values: it can be pickled, compared and kept. Its
conversions have DuckDB's names and return DuckDB's types.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import importlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa
import pyarrow.compute as pc

from dpsql.errors import BindError, Error, did_you_mean
from dpsql.language.labels import Orders, order_labels
from dpsql.late_dataclass import dataclass
from dpsql.numerics.exact_numbers import make_doubles, make_values

if TYPE_CHECKING:
    import pandas
    import polars
    from matplotlib.axes import Axes

    from dpsql.binding.plan import IntervalColumns
    from dpsql.privacy.events import Event


class DeclaredResult:
    """A statement of a declared plan with its text, ``source``. It becomes the result once the plan has run."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._result: Result | None = None

    @property
    def result(self) -> Result:
        """The answer; BindError if the plan has not run yet."""
        if self._result is None:
            raise BindError("this statement is declared, not run yet.", hint="leave the with block first.")
        return self._result

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.result, name)

    def __len__(self) -> int:
        return len(self.result)

    def __iter__(self) -> Iterator[ResultRow]:
        return iter(self.result)

    def __getitem__(self, key: Any) -> Any:
        return self.result[key]

    def __repr__(self) -> str:
        return f"<declared: {self.source}>" if self._result is None else repr(self._result)


ResultRow = tuple[Any, ...]
"""A row of Python values."""
LowHigh = tuple[float, float]
"""Low and high end of an interval, in units of the column; of a date or time, two of these."""
Ends = tuple[pa.ChunkedArray, pa.ChunkedArray]
"""Low and high ends of a column's intervals, as doubles, or as dates or times like the column's; NULL if there is none."""


@dataclass(frozen=True, init=False, repr=False)
class Result:
    """The released rows of one statement.

    Args:
        table: the visible columns. Decimals of scale 0 (DuckDB's HUGEINT) become 64-bit integers if every value fits.
        intervals: for a column with error bars, one ``(low, high)`` per row (None for a value without), or the low and
            high ends as two Arrow columns. They are in units of the column and cover noise, not the effect of clamping.
        loss: the cost for people: ``"ε=0.1"``; ``"no charge"`` if all of it was stored, empty for a public statement.
        event: the event the ledger settled; None if nothing was charged.
        notes: sentences under the table.
        statement_id: the ledger's number of the charge; None if there is none.
        cost_line: the cost and the remaining budget, ``"cost ε=0.1 · ε=0.8 of ε=1 left"``.
        confidence: level of the intervals.
        whole: shown without cuts: it is text to read, like a plan.
        lasting: False if the budget that paid for it lasts for one process only.
        expected_error: known expected errors of output columns.
        orders: columns of an ENUM's labels, in the type's order, which a kept result has again.

    >>> r = Result(pa.table({"n": [1240]}), intervals={"n": [(1210.0, 1270.0)]}, loss="ε=0.1")
    >>> r.fetchall(), r.intervals, r.shape
    ([(1240,)], {'n': [(1210.0, 1270.0)]}, (1, 1))
    """

    table: pa.Table
    _intervals: tuple[tuple[str, Ends], ...]
    loss: str = ""
    event: Event | None = None
    notes: tuple[str, ...] = ()
    statement_id: str | None = None
    cost_line: str = ""
    confidence: float = 0.95
    whole: bool = False
    lasting: bool = True
    _errors: tuple[tuple[str, float], ...] = ()
    _orders: Orders = ()

    def __init__(
        self,
        table: pa.Table,
        *,
        intervals: Mapping[str, Sequence[LowHigh | None] | Ends] | None = None,
        loss: str = "",
        event: Event | None = None,
        notes: Iterable[str] = (),
        statement_id: str | int | None = None,
        cost_line: str = "",
        confidence: float = 0.95,
        whole: bool = False,
        lasting: bool = True,
        expected_error: Mapping[str, float] | None = None,
        orders: Orders = (),
    ) -> None:
        self.__dict__.update(
            table=_whole_numbers(table),
            _intervals=tuple((column, _ends(given)) for column, given in (intervals or {}).items()),
            loss=loss,
            event=event,
            notes=tuple(notes),
            statement_id=None if statement_id is None else str(statement_id),
            cost_line=cost_line,
            confidence=confidence,
            whole=whole,
            lasting=lasting,
            _errors=tuple((expected_error or {}).items()),
            _orders=tuple(orders),
        )

    @classmethod
    def finished(
        cls,
        table: pa.Table,
        columns: Sequence[str],
        intervals: Sequence[IntervalColumns],
        spreads: Sequence[tuple[str, float]] = (),
        **rest: Any,
    ) -> Result:
        """Build a Result from a finished relation with interval columns.

        ``table`` has the visible ``columns`` first, in order, then the low and high columns of ``intervals``.
        ``spreads`` are columns of maps, such as histograms, with the half width of each count's interval. ``rest`` are
        the constructor's other arguments.
        """
        ends = {i.column: _both(table.column(i.low), table.column(i.high)) for i in intervals}
        visible = table.select(list(range(len(columns)))).rename_columns(list(columns))
        shown: dict[str, Ends] = {c: e for c, e in ends.items() if e[0].null_count < len(e[0])}
        shown |= {name: _spread(visible.column(name), width) for name, width in spreads}
        return cls(visible, intervals=shown, **rest)

    __hash__ = None  # type: ignore[assignment]  # it is a table: compare it, don't use it as a key

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[ResultRow]:
        return iter(self.fetchall())

    @property
    def ordered_table(self) -> pa.Table:
        """The table with columns of labels as ordered dictionaries."""
        return order_labels({"": self.table}, {"": self._orders})[""] if self._orders else self.table

    @overload
    def __getitem__(self, key: int) -> ResultRow: ...
    @overload
    def __getitem__(self, key: str) -> list[Any]: ...
    @overload
    def __getitem__(self, key: slice) -> list[ResultRow]: ...
    def __getitem__(self, key: int | str | slice) -> Any:
        """Return a row by position, rows by a slice, or a column's values by its name.

        >>> r = Result(pa.table({"ward": ["A", "B"], "n": [7, 5]}))
        >>> r[0], r[-1:], r["n"]
        (('A', 7), [('B', 5)], [7, 5])
        """
        if not isinstance(key, str):
            return self.fetchall()[key]
        if key not in self.columns:
            raise NoColumn(f"the result has no column {key}.", hint=did_you_mean(key, self.columns))
        return to_python_values(self.table.column(self.columns.index(key)))

    def item(self) -> Any:
        """Return the value of a result with one row and one column; ValueError for any other shape."""
        if self.shape != (1, 1):
            rows, columns = self.shape
            raise ValueError(f"item() is for one row and one column; here are {rows} and {columns}.")
        return self[0][0]

    @property
    def columns(self) -> list[str]:
        """Names of the visible columns, in order."""
        return list(self.table.column_names)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return (self.table.num_rows, self.table.num_columns)

    @property
    def intervals(self) -> dict[str, list[LowHigh | None]]:
        """Intervals by column: one ``(low, high)`` per row, None for a value without.

        Choices and comparisons have none. A histogram has a dictionary with one interval per bin. For many millions of
        rows use :attr:`ends`.
        """
        return {column: _pairs(*ends) for column, ends in self._intervals}

    @property
    def ends(self) -> dict[str, Ends]:
        """The intervals as two Arrow columns of doubles, dates or times each, low and high, NULL for a value without.

        >>> low, high = Result(pa.table({"n": [7]}), intervals={"n": [(5.0, 9.0)]}).ends["n"]
        >>> low.to_pylist(), high.to_pylist()
        ([5.0], [9.0])
        """
        return dict(self._intervals)

    @property
    def expected_error(self) -> dict[str, float]:
        """The expected absolute error by column, in its own units: the mean effect of noise on a value.

        It uses the caps and bounds that were found. For means and spreads it is derived from their intervals; for
        quantiles it assumes 1,000 rows spread evenly between the bounds. It excludes the effect of caps and clipping,
        which is unbounded; ``OPTIONS (report_cut = TRUE)`` reports that.
        """
        return dict(self._errors)

    def arrow(self, *, intervals: bool = False) -> pa.Table:
        """Return the rows as an Arrow table; with ``intervals``, each column's ends follow it, as ``n_low`` and ``n_high``."""
        return self._with_ends() if intervals else self.table

    def _with_ends(self) -> pa.Table:
        names, columns, taken, ends = [], [], set(self.columns), self.ends
        for name, column in zip(self.columns, self.table.columns, strict=True):
            names.append(name)
            columns.append(column)
            for end, suffix in zip(ends.get(name, ()), ("low", "high"), strict=False):
                free = next(f for f in (f"{name}{'_' * n}{suffix}" for n in count(1)) if f not in taken)
                taken.add(free)
                names.append(free)
                columns.append(end)
        return pa.Table.from_arrays(columns, names=names)

    def with_interval_columns(self, names: Iterable[str]) -> Result:
        """Return this result with the ends of intervals as columns, rounded outwards to two digits of the half width.

        ``names`` are the columns that have them whatever their values are: NULL if there is no interval.
        """
        found, ends = dict(self._intervals), {}
        for name in names:
            column = self.table.column(self.columns.index(name))
            kind = column.type if pa.types.is_temporal(column.type) else pa.float64()
            nothing = pa.chunked_array([pa.nulls(len(column), kind)])
            ends[name] = _round_outwards(*found.get(name, (nothing, nothing)))
        made = copy.copy(self)
        made.__dict__.update(_intervals=tuple(ends.items()))
        said = f"_low and _high are the ends of {self.confidence * 100:g}% intervals, for the noise alone"
        made.__dict__.update(
            table=made._with_ends(), _intervals=(), notes=(*self.notes, said) if ends else self.notes
        )
        return made

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the Arrow C stream, through which polars, DuckDB and pandas read a Result directly."""
        return self.table.__arrow_c_stream__(requested_schema)

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> object:
        """Return the interchange object through which frame and plot libraries read any frame."""
        return self.table.__dataframe__(nan_as_null, allow_copy)

    def fetchall(self) -> list[ResultRow]:
        """Return all rows as tuples of Python values."""
        values = [to_python_values(column) for column in self.table.columns]
        return list(zip(*values, strict=True)) if values else []

    def fetchone(self) -> ResultRow | None:
        """Return the first row, always, as there is no cursor; None if there is none."""
        return tuple(to_python_values(c.slice(0, 1))[0] for c in self.table.columns) if len(self) else None

    def dicts(self) -> list[dict[str, Any]]:
        """Return all rows as dictionaries. Of columns with equal names, the last is kept."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.fetchall()]

    def fetchnumpy(self) -> dict[str, Any]:
        """Return columns as numpy arrays, masked if they have NULLs."""
        import numpy as np

        arrays: dict[str, Any] = {}
        for name, column in zip(self.columns, self.table.columns, strict=True):
            column = _simple(column)
            if column.null_count == 0:
                arrays[name] = column.to_numpy()
            else:
                filled = column.fill_null(0) if _numeric(column.type) else column
                mask = column.is_null().to_numpy()
                arrays[name] = np.ma.masked_array(filled.to_numpy(), mask=mask)
        return arrays

    def df(self, *, intervals: bool = False) -> pandas.DataFrame:
        """Return a pandas DataFrame with DuckDB's types: integers with NULLs stay integers, decimals become floats.

        Args:
            intervals: whether a column's interval ends follow it, as ``n_low`` and ``n_high``.

        Raises:
            MissingLibrary: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise MissingLibrary("pandas", ".df()") from None
        series, table = [], self.arrow(intervals=intervals)
        for column in table.columns:
            column = _simple(column)
            if pa.types.is_date(column.type):
                column = column.cast(pa.timestamp("us"))
            series.append(column.to_pandas(types_mapper=_nullable if column.null_count else None))
        frame = pd.concat(series, axis=1) if series else pd.DataFrame()
        frame.columns = pd.Index(table.column_names)
        return frame

    to_pandas = df

    def pl(self, *, intervals: bool = False) -> polars.DataFrame:
        """Return a polars DataFrame; with ``intervals``, each column's ends follow it, as ``n_low`` and ``n_high``.

        Raises:
            MissingLibrary: polars is not installed.
        """
        try:
            import polars
        except ImportError:
            raise MissingLibrary("polars", ".pl()") from None
        table = self.arrow(intervals=intervals)
        columns = [_durations(column) for column in table.columns]
        frame = polars.from_arrow(pa.Table.from_arrays(columns, names=table.column_names))
        assert isinstance(frame, polars.DataFrame)
        return frame

    to_polars = pl
    to_arrow = arrow

    def plot(self, x: str | None = None, y: str | None = None, kind: str | None = None) -> Axes:
        """Draw column ``y`` by ``x`` with its intervals, as a matplotlib Axes.

        Args:
            x: the column of the places; by default the first other column.
            y: the column of the numbers; by default the first that has intervals.
            kind: ``line`` (with a band) or ``bar`` (with whiskers); by default a line over days and numbers.

        Raises:
            BindError: no such column or kind, or nothing to draw.
            MissingLibrary: matplotlib is not installed.
        """
        drawn: Axes = import_notebook("plots").draw_result(self, x, y, kind)
        return drawn

    def __repr__(self) -> str:
        return repr(import_notebook("render").show_result(self))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        bundle: dict[str, str] = import_notebook("render").show_result(self)._repr_mimebundle_()
        return bundle


class NoColumn(Error, KeyError):
    """A result has no column of the given name."""

    __str__ = Error.__str__


class MissingLibrary(Error, ImportError):
    """A conversion or a plot needs a library that is not installed. Nothing was charged or lost."""

    def __init__(self, library: str, wanted_by: str) -> None:
        others = ".dicts(), .fetchall() and .arrow() need nothing more." if wanted_by.startswith(".") else ""
        super().__init__(
            f"{wanted_by} needs {library}, which is not installed.",
            hint=f"pip install {library}{'.  ' + others if others else ''}",
        )


def _nullable(kind: pa.DataType) -> Any:
    """Return the nullable pandas type of integers and booleans; None for Arrow's choice."""
    import pandas as pd

    if pa.types.is_boolean(kind):
        return pd.BooleanDtype()
    name = str(kind).replace("int", "Int").replace("uI", "UI")
    return pd.api.types.pandas_dtype(name) if pa.types.is_integer(kind) else None


def import_notebook(module: str) -> Any:
    """Import a notebook module, which renders a Result; nothing here depends on it otherwise."""
    return importlib.import_module(f"dpsql.notebook.{module}")


def _ends(given: Sequence[LowHigh | None] | Ends) -> Ends:
    """Return interval ends as two Arrow columns, from columns or pairs."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], pa.ChunkedArray):
        low, high = given
        return low, high
    ends = ([None if pair is None else float(pair[i]) for pair in given] for i in (0, 1))
    low, high = (pa.chunked_array([make_values(values, pa.float64())]) for values in ends)
    return low, high


_ZERO = pa.Array.from_buffers(pa.float64(), 1, [None, pa.py_buffer(bytes(8))])[0]
"""0, made without a Python number, for which Arrow would import pandas."""


def _both(low: pa.ChunkedArray, high: pa.ChunkedArray) -> Ends:
    if pa.types.is_temporal(low.type):
        return low, high
    low, high = (pc.add(end.cast(pa.float64(), safe=False), _ZERO) for end in (low, high))  # 0 for -0
    if low.null_count or high.null_count:
        known = pc.and_(pc.is_valid(low), pc.is_valid(high))
        nothing = pa.scalar(None, pa.float64())
        low, high = pc.if_else(known, low, nothing), pc.if_else(known, high, nothing)
    return low, high


def _round_outwards(low: pa.ChunkedArray, high: pa.ChunkedArray) -> Ends:
    """Round the ends of intervals down and up, to two digits of the half width; other ends than doubles are unchanged."""
    if not pa.types.is_float64(low.type) or not len(low):
        return low, high
    import numpy as np

    ends = [end.fill_null(math.nan).to_numpy() for end in (low, high)]
    with np.errstate(all="ignore"):
        power = np.floor(np.log10((ends[1] - ends[0]) / 2)) - 1
        up, down = 10.0 ** np.maximum(-power, 0), 10.0 ** np.maximum(power, 0)
        rounded = [to(end * up / down) * down / up for to, end in zip((np.floor, np.ceil), ends, strict=True)]
    known = np.isfinite(rounded[0]) & np.isfinite(rounded[1])
    whole = [np.where(known, *pair) for pair in zip(rounded, ends, strict=True)]
    a, b = (pa.chunked_array([make_doubles(end, ~np.isnan(end))]) for end in whole)
    return a, b


def _pairs(low: pa.ChunkedArray, high: pa.ChunkedArray) -> list[Any]:
    read = to_python_values if pa.types.is_temporal(low.type) else pa.ChunkedArray.to_pylist
    ends = zip(read(low), read(high), strict=True)
    if pa.types.is_map(low.type):
        return [
            None if a is None else {key: (x, y) for (key, x), (_, y) in zip(a, b, strict=True)}
            for a, b in ends
        ]
    return [None if a is None or b is None else (a, b) for a, b in ends]


def _spread(column: pa.ChunkedArray, width: float) -> Ends:
    """Return the maps of low ends and of high ends for maps of counts."""
    rows = column.to_pylist()
    key = column.type.key_type
    key = pa.decimal256(39, 0) if key == pa.decimal128(38, 0) else key  # a HUGEINT has up to 39 digits
    kind = pa.map_(key, pa.float64())
    low, high = (
        pa.chunked_array(
            [make_values([None if row is None else [(k, v + end) for k, v in row] for row in rows], kind)]
        )
        for end in (-width, width)
    )
    return low, high


def _whole_numbers(table: pa.Table) -> pa.Table:
    """Cast decimals of scale 0 (DuckDB's HUGEINT) to int64 if all values fit."""
    for i, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type) and field.type.scale == 0:
            with contextlib.suppress(pa.ArrowInvalid):  # a value does not fit
                whole = table.column(i).cast(pa.int64())
                table = table.set_column(i, pa.field(field.name, pa.int64()), whole)
    return table


def _numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _simple(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cast decimals to doubles and intervals to durations, as DuckDB's numpy and pandas conversions do."""
    return column.cast(pa.float64()) if pa.types.is_decimal(column.type) else _durations(column)


def _durations(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_interval(column.type):
        return column
    values = to_python_values(column)
    try:
        return pa.chunked_array([pa.array(values, pa.duration("us"))])
    except (pa.ArrowException, OverflowError):  # beyond 292,000 years
        return pa.chunked_array([pa.array([None if v is None else str(v) for v in values], pa.string())])


def to_python_values(column: pa.ChunkedArray) -> list[Any]:
    """Return Python values as ``fetchall`` of DuckDB: int for scale-0 decimals, timedelta for intervals, dict for maps."""
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):  # dates outside Python's range
        values = [_beyond(scalar) for scalar in column]
    if pa.types.is_decimal(column.type) and column.type.scale == 0:
        return [None if v is None else int(v) for v in values]
    if pa.types.is_interval(column.type):
        return [None if v is None else _timedelta(v) for v in values]
    if pa.types.is_map(column.type):
        return [None if v is None else dict(v) for v in values]
    return values


def _timedelta(value: Any) -> datetime.timedelta | str:
    days, microseconds = value.months * 30 + value.days, value.nanoseconds // 1000
    try:
        return datetime.timedelta(days=days, microseconds=microseconds)
    except OverflowError:  # above a billion days
        return f"{days} days {microseconds} microseconds"


def _beyond(scalar: Any) -> Any:
    """Return a date or time outside Python's range as DuckDB's ``fetchall``: ±infinity as first or last, others as text."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if isinstance(scalar, pa.StructScalar):
            return {name: _beyond(value) for name, value in scalar.items()}
        if isinstance(scalar, pa.MapScalar):
            return [tuple(map(_beyond, pair.values())) for pair in scalar.values]
        if isinstance(scalar, pa.ListScalar | pa.FixedSizeListScalar):
            return [_beyond(value) for value in scalar.values]
        number, kind = scalar.value, scalar.type
    last = 2**31 - 1 if pa.types.is_date(kind) else 2**63 - 1
    ends = datetime.date if pa.types.is_date(kind) else datetime.datetime
    if abs(number) == last:
        return ends.max if number > 0 else ends.min
    import numpy as np

    text = str(np.datetime64(number, "D" if pa.types.is_date(kind) else kind.unit)).removeprefix("+")
    return text.replace("T", " ").rstrip("0").rstrip(".") if "." in text else text
