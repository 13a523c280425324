"""Tables as aligned text for terminals and logs, and as plain HTML for notebooks.

Both come from one :class:`Sheet` of formatted cells, so they can't differ. There are no colours and no widgets: the notebook's
own style serves in light and dark, and without scripts only sorting and filtering are missing. Importing this needs the
standard library and Arrow only, so ``print(result)`` shows the table outside notebooks, too.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal
from functools import partial
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from dpsql.late_dataclass import dataclass
from dpsql.report.tables import (
    BUDGET_COLUMNS,
    LEDGER_COLUMNS,
    LEDGER_TEXT,
    NO_MATH,
    Display,
    Html,
    Sheet,
    SheetColumn,
    clip_text,
    join,
    measure_width,
    quote,
    tag,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.session.result import LowHigh, Result

ROWS = 20
"""Rows shown before the middle is left out; ``%config DpsqlMagic.rows`` changes it for a notebook."""

MAX_UNFOLDED = 1_000
"""The longest result whose HTML has all rows, folded."""

MAX_LINES = 80
"""The most columns that are listed at once; in a larger tree of tables and columns the tables are folded."""

NOISY_DIGITS = 4
"""Digits shown of a noisy number without an interval."""

NOISE_ONLY = "intervals cover noise only"
EXACT_SQL = "Exact SQL:"
"""The line of an explanation before its SQL."""
NOT_LASTING = 'this budget lasts for this process only: dpsql.connect(..., ledger="name.ledger") keeps it'
NO_GROUP = "no group was kept"
"""The beginning of the note on an answer without rows, which comes first."""
NO_INTERVAL = "no interval: computed after the release"
_LIST = "list-style: none; margin: 0.2em 0 0.6em; padding-left: 1.2em"
_STEP = re.compile(r"(\d+)\. ")
_PRE = (
    "margin: 0; white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere; text-align: left; "
    "font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
)


@dataclass(frozen=True, repr=False)
class Panel(Display):
    """Text that is displayed unchanged, in fixed width; in a notebook as equivalent HTML."""

    plain: str
    markup: str = ""

    def text(self) -> str:
        """Return the text."""
        return self.plain

    def html(self) -> str:
        """Return the HTML, or the text in fixed width."""
        return self.markup or tag("pre", self.plain, style=_PRE)


def show_result(result: Result) -> Sheet | Panel:
    """Return a result's display: a table, or its text if it is text to read."""
    if not result.whole:
        return make_result_sheet(result)
    lines = [_one_line(line) for value in result.table.column(0).to_pylist() for line in value.split("\n")]
    return Panel("\n".join(lines).rstrip(), _fold_sql(lines))


def _fold_sql(lines: list[str]) -> str:
    """Return an explanation as HTML in fixed width, with its exact SQL folded; empty without exact SQL."""
    if EXACT_SQL not in lines:
        return ""
    start = lines.index(EXACT_SQL)
    words, sql = lines[:start], "\n".join(lines[start + 1 :]).rstrip()
    lines_of_sql = sql.count("\n") + 1
    folded = join([tag("summary", f"Exact SQL ({lines_of_sql} lines)"), tag("pre", sql, style=_PRE)])
    return tag("div", join([*_list_steps(words), tag("details", folded)]))


def _list_steps(lines: list[str]) -> list[Html]:
    """Return an explanation's text: its numbered lines as a list, the lines before it as a paragraph, tables in fixed width."""
    parts: list[Html] = []
    for numbered, group in groupby(lines, lambda line: bool(_STEP.match(line))):
        if numbered:
            steps = [_STEP.split(line, maxsplit=1) for line in group]
            first = int(steps[0][1])
            items = join(tag("li", text) for _, _, text in steps)
            parts.append(tag("ol", items, start=first, style="list-style: decimal; padding-left: 2em"))
        elif not parts:
            parts.append(tag("p", " ".join(group)))
        else:
            parts.append(tag("pre", "\n".join(group).rstrip(), style=_PRE))
    return parts


def make_result_sheet(result: Result, rows: int | None = None) -> Sheet:
    """Return a result's first and last rows, with numbers rounded to the digits that the noise allows, and its cost."""
    if tuple(result.columns) == BUDGET_COLUMNS:
        return _turn(result)
    total, limit = len(result), ROWS if rows is None else max(2, rows)
    if tuple(result.columns[:2]) == ("column_name", "column_type"):
        limit = max(limit, MAX_LINES)  # a table's columns are read whole
    gap = limit // 2 if total > limit else None
    kept = _index(range(total) if gap is None else [*range(gap), *range(total - (limit - gap), total)])
    table = result.table.take(kept) if gap is not None else result.table
    intervals = result.ends
    maps = [place for place, field in enumerate(table.schema) if str(field.type).startswith("map<")]
    columns: list[SheetColumn] = []
    opened: list[_OpenedMap] = []
    for place, (name, values) in enumerate(zip(result.columns, table.columns, strict=True)):
        if place in maps:
            spread = tuple(end.take(kept) for end in intervals.get(name, ()))
            opened.append(_open_map(name, values, spread, result.confidence, len(columns)))
        elif name in intervals and str(intervals[name][0].type) != "double":  # dates and times
            columns += _with_moments(
                name, values, [end.take(kept) for end in intervals[name]], result.confidence
            )
        elif name in intervals:
            ends = (end.take(kept).to_pylist() for end in intervals[name])
            pairs = [
                None if low is None or high is None else (low, high) for low, high in zip(*ends, strict=True)
            ]
            columns += _with_interval(name, values.to_pylist(), pairs, result.confidence)
        elif name in _TEXTS and _is_ledger(result):
            columns.append(_clip(name, values))
        else:
            noisy = any(note.startswith(f"no interval for {name}:") for note in result.notes)
            columns.append(_plain(name, values, NOISY_DIGITS if noisy else None))
    if opened:
        columns, starts = _join_maps(columns, opened, table.num_rows)
        gap = None if gap is None else starts[gap]
    more = partial(make_result_sheet, result, total) if gap is not None and total <= MAX_UNFOLDED else None
    return Sheet(
        tuple(columns), write_caption(result, None if gap is None else len(kept)), gap, more=more, sorts=True
    )


def _turn(result: Result) -> Sheet:
    """Return a sheet with a line a column and a column a row, for a few rows of many columns; columns of NULL are left out."""
    first, *rest = ([format_cell(value) for value in result[name]] for name in result.columns)
    lines = [
        [name, *cells] for name, cells in zip(result.columns[1:], rest, strict=True) if {*cells} != {"NULL"}
    ]
    return Sheet.of((result.columns[0], *first), lines, first, caption=write_caption(result))


def _index(rows: Sequence[int]) -> pa.Array:
    """Return row numbers as an Arrow array. A list would make Arrow import pandas, which takes half a second."""
    import pyarrow as pa

    held = pa.py_buffer(array("q", rows))
    return pa.Array.from_buffers(pa.int64(), len(rows), [None, held])


class _OpenedMap(NamedTuple):
    """A column of maps as columns of its own, with one line for each entry of each row's map."""

    place: int
    """The number of columns before it."""
    columns: list[SheetColumn]
    lines: list[int]
    """The lines of each row."""


def _open_map(
    name: str, values: pa.ChunkedArray, ends: Sequence[pa.ChunkedArray], confidence: float, place: int
) -> _OpenedMap:
    """Write each entry of maps, such as a bin of a histogram, on its own line, with its interval if it has one."""
    held = [row or [] for row in values.to_pylist()]
    entries = [entry for row in held for entry in row]
    counts = [value for _, value in entries]
    keys = tuple(format_cell(key) for key, _ in entries)
    if ends:
        low, high = ([value for row in end.to_pylist() for _, value in row or ()] for end in ends)
        made = _with_interval("count", counts, list(zip(low, high, strict=True)), confidence)
    else:
        shown = tuple(map(format_cell, counts))
        made = [SheetColumn("value", shown, all(value is None or is_number(value) for value in counts))]
    return _OpenedMap(place, [SheetColumn(_one_line(name), keys), *made], [len(row) for row in held])


def _join_maps(
    columns: list[SheetColumn], opened: Sequence[_OpenedMap], rows: int
) -> tuple[list[SheetColumn], list[int]]:
    """Join maps with the other columns, whose values are on the first line of their row.

    Returns:
        All columns, and the line on which each row starts.
    """
    heights = [max(1, *(item.lines[row] for item in opened)) for row in range(rows)]
    starts = [0, *accumulate(heights)][:rows]

    def spread(column: SheetColumn, lines: Sequence[int]) -> SheetColumn:
        cells, taken = [""] * sum(heights), 0
        for start, many in zip(starts, lines, strict=True):
            cells[start : start + many] = column.cells[taken : taken + many]
            taken += many
        return SheetColumn(column.heading, tuple(cells), column.right)

    wide: list[SheetColumn] = []
    for place in range(len(columns) + 1):
        wide += [spread(part, item.lines) for item in opened if item.place == place for part in item.columns]
        if place < len(columns):
            wide.append(spread(columns[place], [1] * rows))
    return wide, starts


def write_caption(result: Result, shown: int | None = None) -> tuple[str, ...]:
    """Return the number of rows, the cost, and the notes."""
    total = len(result)
    rows = f"{group_digits(total)} row{'' if total == 1 else 's'}"
    parts = [rows if shown is None else f"{shown} of {rows}"]
    if result.cost_line:
        parts.append(result.cost_line)
    if not result.lasting:
        parts.append(NOT_LASTING)
    if noise := _mostly_noise(result):
        *others, last = noise
        named = f"{', '.join(others)} and {last} are" if others else f"{last} is"
        parts.append(f"{named} mostly noise: EXPLAIN names the change that helps most")
    below = _below_zero(result)
    if below is not None:
        parts.append(f"{below} below 0 may be noise: its interval reaches above 0; GREATEST(..., 0) is free")
    parts += sorted(result.notes, key=lambda note: not note.startswith(NO_GROUP))
    if _is_ledger(result) and any(len(t or "") > LEDGER_TEXT for name in _TEXTS for t in result[name]):
        parts.append(f"texts are shown up to {LEDGER_TEXT} characters; .df() has them whole")
    if result.ends:
        parts.append(NOISE_ONLY)
    elif result.event is not None and not result.notes and _measures(result):
        parts.append(NO_INTERVAL)
    return tuple(parts)


def _mostly_noise(result: Result) -> list[str]:
    """Return the columns of numbers most of which are smaller than the half width of their interval."""
    import pyarrow as pa
    import pyarrow.compute as pc

    drowned = []
    for name, (low, high) in result.ends.items() if result.event is not None else ():
        column = result.table.column(name)
        if pa.types.is_decimal(column.type):
            column = pc.cast(column, pa.float64())
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            size = pc.abs(column)  # no Python number here, for which Arrow would import pandas
            small = pc.less(pc.add(size, size), pc.subtract(high, low))
            if (pc.mean(small).as_py() or 0) > 0.5:
                drowned.append(name)
    return drowned


def _below_zero(result: Result) -> str | None:
    """Return the first column of whole numbers with one below 0 that noise alone may explain."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, (_, high) in result.ends.items():
        column = result.table.column(name)
        if pa.types.is_integer(column.type) and (pc.min(column).as_py() or 0) < 0:
            below = pc.and_(pc.less(column, pa.scalar(0, column.type)), pc.greater_equal(high, 0.0))
            if pc.any(below).as_py():
                return name
    return None


def _measures(result: Result) -> bool:
    """Return whether there are numbers with a fraction, which choices and keys hardly ever are."""
    import pyarrow as pa

    return any(pa.types.is_floating(f.type) or pa.types.is_decimal(f.type) for f in result.table.schema)


def make_sheet(
    headings: Sequence[str], rows: Iterable[Sequence[object]], caption: Iterable[str] = ()
) -> Sheet:
    """Return a sheet of Python values, with numbers to the right."""
    listed = list(rows)
    columns = zip(headings, zip(*listed, strict=True), strict=False)
    numbers = [h for h, values in columns if all(is_number(v) or v is None for v in values)]
    cells = [["" if v is None else format_cell(v) for v in row] for row in listed]
    return Sheet.of(headings, cells, numbers, caption=tuple(caption), sorts=True)


def _plain(name: str, values: pa.ChunkedArray, digits: int | None = None) -> SheetColumn:
    import pyarrow as pa

    from dpsql.session.result import to_python_values

    kind = values.type
    right = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    cells = [_write_digits(v, digits) if digits else format_cell(v) for v in to_python_values(values)]
    if pa.types.is_timestamp(kind) and all(cell == "NULL" or cell.endswith(_MIDNIGHT) for cell in cells):
        cells = [cell.removesuffix(_MIDNIGHT) for cell in cells]
    return SheetColumn(_one_line(name), tuple(cells), right)


_MIDNIGHT = " 00:00:00"


def _write_digits(value: Any, digits: int) -> str:
    """Write a number of unknown noise with some significant digits."""
    if isinstance(value, float) and abs(value) < 10**digits:
        return f"{value:.{digits}g}"
    if not is_number(value) or not math.isfinite(value) or abs(value) < 10**digits:
        return format_cell(value)
    return round_to_power(value, Decimal(str(value)).adjusted() - digits + 1)


_TEXTS = ("text", "reason")
"""The columns of SHOW LEDGER whose values may be long."""


def _is_ledger(result: Result) -> bool:
    return tuple(result.columns) == LEDGER_COLUMNS


def _clip(name: str, values: pa.ChunkedArray) -> SheetColumn:
    """Write the beginnings of texts, since a statement or a reason has several lines."""
    texts = ("" if text is None else _one_line(clip_text(text, LEDGER_TEXT)) for text in values.to_pylist())
    return SheetColumn(name, tuple(texts))


def _with_interval(
    name: str, values: list[object], pairs: list[LowHigh | None], confidence: float
) -> list[SheetColumn]:
    numbers, widths = [], []
    digits = [
        find_last_digit(_spread(v, p))
        for v, p in zip(values, pairs, strict=True)
        if p is not None and v is not None and 0 < p[1] - p[0] < math.inf
    ]
    even = min(digits) if digits and max(digits) - min(digits) <= 1 else None  # points under each other
    for value, pair in zip(values, pairs, strict=True):
        shown, width = round_with_interval(value, pair, even)
        numbers.append(shown)
        widths.append(width)
    if values and not any(widths):
        return [SheetColumn(_one_line(name), tuple(numbers), True)]
    heading = f"{confidence * 100:g}% interval"
    return [SheetColumn(_one_line(name), tuple(numbers), True), SheetColumn(heading, tuple(widths))]


def _with_moments(
    name: str, values: pa.ChunkedArray, ends: Sequence[pa.ChunkedArray], confidence: float
) -> list[SheetColumn]:
    low, high = (_plain(name, end).cells for end in ends)
    widths = tuple("" if a == b == "NULL" else f"{a} to {b}" for a, b in zip(low, high, strict=True))
    return [_plain(name, values), SheetColumn(f"{confidence * 100:g}% interval", widths)]


def round_with_interval(value: Any, pair: LowHigh | None, power: int | None = None) -> tuple[str, str]:
    """Round a released number to the digits that the noise leaves meaningful, and write its interval.

    ``power`` is the power of ten to round to; by default that of the half width.

    The half width keeps two digits and is rounded up, so that the shown interval is never too narrow.

    >>> round_with_interval(1243, (1213.0, 1273.0))
    ('1 240', '± 30')
    >>> round_with_interval(6395, (6394.0, 6396.0))
    ('6 395', '± 1')
    >>> round_with_interval(2.46812, (2.3, 2.9))
    ('2.5', '2.3 to 2.9')
    >>> round_with_interval(None, None)
    ('NULL', '')
    """
    if pair is None or value is None or not all(map(math.isfinite, (*pair, value))):
        return format_cell(value), ""
    low, high = pair
    half = (high - low) / 2
    if half <= 0:
        return format_cell(value), "± 0"
    power = find_last_digit(_spread(value, pair)) if power is None else power
    power = max(power, 0) if isinstance(value, int) else power
    shown = round_to_power(value, power)
    if abs((low + high) / 2 - float(value)) > 0.01 * half:  # post-processing moved it off the middle
        return shown, f"{round_to_power(low, power)} to {round_to_power(high, power)}"
    return shown, f"± {_half_width(half)}"


def _spread(value: Any, pair: LowHigh) -> float:
    """Return half the interval's width; for multiplicative noise, the distance to its near end."""
    low, high = pair
    near = float(value) - low
    return near if 0 < 4 * low < high and near > 0 else (high - low) / 2


def find_last_digit(half_width: float) -> int:
    """Return the power of ten to round to for a half width; one lower if it begins with 1.

    >>> [find_last_digit(w) for w in (30.0, 14.0, 0.27, 1234.5)]
    [1, 0, -1, 2]
    """
    number = Decimal(repr(float(half_width)))
    return number.adjusted() - (number.normalize().as_tuple().digits[0] == 1)


def round_to_power(value: object, power: int) -> str:
    """Round a number to a power of ten, and group its digits by three.

    >>> round_to_power(1243, 1), round_to_power(0.12345, -2), round_to_power(-0.2, 0)
    ('1 240', '0.12', '0')
    """
    number = Decimal(repr(value) if isinstance(value, float) else str(value))
    number = number.quantize(Decimal(1).scaleb(power), ROUND_HALF_EVEN) if number.adjusted() < 25 else number
    return group_digits(number + 0 if number else abs(number))


def _half_width(half: float) -> str:
    number = Decimal(repr(half))
    power = number.adjusted() - 1
    slack = number.scaleb(-9)  # the most that float subtraction of the ends adds
    up = (number - slack).quantize(Decimal(1).scaleb(power), ROUND_CEILING)
    if up.as_tuple().digits[-1] == 0 and power < 0:
        up = up.quantize(Decimal(1).scaleb(power + 1))
    return group_digits(up)


def group_digits(number: int | Decimal) -> str:
    """Group digits by three with spaces that don't break.

    >>> group_digits(1234567)
    '1 234 567'
    """
    return (
        f"{number:,f}".replace(",", " ") if isinstance(number, Decimal) else f"{number:,}".replace(",", " ")
    )


def format_cell(value: object) -> str:
    """Write a value as DuckDB does: ``NULL``, ``true``, six significant digits of a float."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 or not math.isfinite(value) else f"{value:.10g}"
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, dict):
        value = f"{{{', '.join(f'{format_cell(k)}: {format_cell(v)}' for k, v in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_cell, value))}]"
    return _one_line(str(value))


def is_number(value: object) -> bool:
    """Return whether a value is a number; a boolean is not."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _one_line(text: str) -> str:
    """Spell out control and direction characters: no value may move the cursor or forge a row."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


@dataclass(frozen=True)
class TreeTable:
    """A table: its name, its line in the policy's words, and each column with its type and its declaration."""

    name: str
    words: str
    columns: tuple[tuple[str, str, str], ...]

    @property
    def title(self) -> str:
        """The line of the table itself."""
        count = len(self.columns)
        return f"{self.words} · {count} column{'' if count == 1 else 's'}"


@dataclass(frozen=True, repr=False)
class SchemaTree(Display):
    """The tables and kept results of a session, as text and as HTML whose tables unfold.

    It has no table element and no script, because JupyterLab's panel sanitizes its HTML and reads its tables as charges.
    """

    tables: tuple[TreeTable, ...]

    @property
    def folded(self) -> bool:
        """Whether there are too many columns to list them all."""
        return sum(len(table.columns) for table in self.tables) > MAX_LINES

    def text(self) -> str:
        """Return one line a table, and below it one a column."""
        if not self.tables:
            return "the policy names no tables"
        lines: list[str] = []
        for table in self.tables:
            lines.append(f"{table.name} · {table.title}")
            if not self.folded:
                widths = [max((measure_width(row[i]) for row in table.columns), default=0) for i in (0, 1)]
                for name, kind, said in table.columns:
                    parts = [_pad(name, widths[0]), _pad(kind, widths[1]), said]
                    lines.append("  " + "   ".join(parts).rstrip())
        if self.folded:
            lines.append("DESCRIBE and a table's name list its columns")
        return "\n".join(lines)

    def html(self) -> Html:
        """Return each table as an element that unfolds."""
        return self.unfold(not self.folded)

    def unfold(self, unfolded: bool) -> Html:
        """Return the HTML with all tables unfolded, or with none."""
        parts = []
        for table in self.tables:
            head = tag("summary", tag("b", table.name) + f" · {table.title}")
            rows = (
                tag("li", tag("code", name) + f" {kind}" + (f" · {said}" if said else ""))
                for name, kind, said in table.columns
            )
            body = head + tag("ul", join(rows), style=_LIST)
            parts.append(tag("details", body, open="open" if unfolded else None))
        return tag("div", join(parts) or quote(self.text()), class_=f"dpsql-tables {NO_MATH}")


def _pad(text: str, width: int) -> str:
    return text + " " * (width - measure_width(text))
