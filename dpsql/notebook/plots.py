"""Pictures on a matplotlib Axes; matplotlib is imported at the first picture.

Pictures are transparent, in middle tones that are readable on light and on dark pages.
"""

from __future__ import annotations

import datetime
import importlib
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import field
from decimal import Decimal
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpsql.errors import BindError, did_you_mean
from dpsql.late_dataclass import dataclass
from dpsql.notebook.render import format_cell, is_number
from dpsql.report.tables import Data
from dpsql.session.result import MissingLibrary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import RendererBase
    from matplotlib.figure import Figure

    from dpsql.session.result import Result


INK = "#7c7c7c"
"""The colour of words and lines: 4.1 to 1 against white, 4.5 to 1 against JupyterLab's dark."""
_UP = "#818181"
"""The colour of one axis' labels. Of labels that are all dark, or all light, Jupyter's front ends put a card of the other
lightness behind a transparent picture; this grey counts as light and the other as dark."""
BARS, WHISKERS = "#80808066", "#3584c8"
CURVES = ("#3584c8", "#d1731f", "#3f9b57", "#b36ad0")
PLOT_KINDS = ("bar", "line")
_LONGEST_LABEL = 40
_MOST_LABELS = 30
_LETTERS_IN_A_ROW = 70
"""The letters of all labels that fit below a picture of the usual width."""


def make_axes(wanted_by: str, width: float = 6.4, height: float = 3.2) -> Axes:
    """Return an empty plot with one pair of axes; MissingLibrary if matplotlib is not installed."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise MissingLibrary("matplotlib", wanted_by) from None
    figure, drawn = pyplot.subplots(
        figsize=(width, height), layout="constrained", FigureClass=_make_quiet_figure()
    )
    figure.patch.set_alpha(0)
    drawn.patch.set_alpha(0)
    drawn.spines[["top", "right"]].set_visible(False)
    drawn.spines[["left", "bottom"]].set_color(INK)
    drawn.tick_params(colors=INK, which="both")
    drawn.tick_params(axis="y", labelcolor=_UP, which="both")
    for axis in (drawn.xaxis, drawn.yaxis):
        axis.label.set_color(INK)
        axis.get_offset_text().set_color(INK)
    for place in ("left", "center", "right"):
        drawn.set_title("", loc=place, color=INK)
    return drawn


@cache
def _make_quiet_figure() -> type[Figure]:
    """Return a class of figures that draw without warnings, such as of letters that a font lacks."""
    from matplotlib.figure import Figure

    class QuietFigure(Figure):
        """A figure that draws without warnings."""

        def draw(self, renderer: RendererBase) -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                super().draw(renderer)

        def get_tightbbox(self, *args: Any, **options: Any) -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return super().get_tightbbox(*args, **options)

    return QuietFigure


def draw_result(result: Result, x: str | None = None, y: str | None = None, kind: str | None = None) -> Axes:
    """Draw a released column with its intervals: a line with a band over days and numbers, else bars with whiskers.

    ``x`` is by default the first column that isn't ``y``, with the other keys if it repeats a value; ``y`` is the first column
    with intervals. A title says so if the intervals of ``y`` are not known.

    Args:
        result: the released rows.
        x: the column of the places.
        y: the column of the numbers.
        kind: ``line`` or ``bar``; by default a line for three or more different days or numbers.

    Raises:
        BindError: no such column or kind, ``y`` is no number, none is named and none has an interval, or a line is asked for
            over a column of neither days nor numbers.
        MissingLibrary: matplotlib is not installed.
    """
    if kind is not None and kind not in PLOT_KINDS:
        raise BindError(f"there is no kind of picture {kind}.", hint=did_you_mean(kind, PLOT_KINDS))
    named = x
    x, y = _choose_columns(result, x, y)
    known = y in result.intervals
    heights = result.table.column(y).to_pylist()
    labels = result.table.column(x).to_pylist() if x else [""] * len(heights)
    keys = [name for name in result.columns if name != y and name not in result.intervals]
    if named is None and len(keys) > 1 and len({*map(str, labels)}) < len(labels):
        rows_of_keys = zip(
            *(result.table.column(result.columns.index(key)).to_pylist() for key in keys), strict=True
        )
        labels, x = [", ".join(map(format_cell, row)) for row in rows_of_keys], ", ".join(keys)
    pairs: list[Any] = result.intervals.get(y, [None] * len(heights))
    if any(isinstance(pair, dict) for pair in pairs):
        labels, heights, pairs = _open_bins(labels, heights, pairs)
        x = y if x is None else f"{x}, {y}"
    if not all(height is None or is_number(height) for height in heights):
        raise BindError(f"{y} is no column of numbers.", hint="draw result.df() yourself.")
    kind, axis = _arrange(labels, kind, x or "")
    rows = [
        (place, float(height), *(pair or (math.nan, math.nan)))
        for place, height, pair in zip(axis.places, heights, pairs, strict=True)
        if height is not None
    ]
    drawn = make_axes(".plot()", height=max(3.2, 0.24 * len(axis.names)) if axis.lying else 3.2)
    if kind == "line":
        _draw_line(drawn, sorted(rows), known)
    else:
        _draw_bars(drawn, rows, known, axis.lying)
    axis.label(drawn)
    across, along = (drawn.yaxis, drawn.xaxis) if axis.lying else (drawn.xaxis, drawn.yaxis)
    across.set_label_text(_plain(x or ""))
    along.set_label_text(_plain(y))
    shape = "band" if kind == "line" else "whiskers"
    words = f"{shape}: {result.confidence * 100:g}% interval of the noise"
    drawn.set_title(words if known else f"no interval for {_plain(y)} is known", loc="left", fontsize=9)
    return drawn


@dataclass(frozen=True)
class _Axis:
    """The axis of groups: their places, the labels of 0, 1, ... (none for days and numbers), and whether they are days."""

    places: list[float]
    names: list[str] = field(default_factory=list)
    dated: bool = False

    @property
    def lying(self) -> bool:
        """Whether bars lie, one a row: if labels are too long to be next to each other, and not too many."""
        return _are_crowded(self.names) and max(map(len, self.names)) > 8 and len(self.names) <= 60

    def label(self, drawn: Axes) -> None:
        """Draw the labels, of many only some."""
        if self.dated:
            _show_dates(drawn)
        elif self.names:
            step = 1 if self.lying else -(-len(self.names) // _MOST_LABELS)
            shown = self.names[::step]
            across = drawn.yaxis if self.lying else drawn.xaxis
            across.set_ticks(range(0, len(self.names), step), shown)
            if self.lying:
                across.set_inverted(True)
            elif _are_crowded(shown):
                drawn.tick_params(axis="x", rotation=60)


def _are_crowded(names: Sequence[str]) -> bool:
    return max(map(len, names), default=0) * len(names) > _LETTERS_IN_A_ROW


def _arrange(labels: Sequence[object], kind: str | None, x: str) -> tuple[str, _Axis]:
    """Return the kind of the picture and the axis of its groups."""
    places, dated = _find_places(labels)
    apart = len(set(places)) == len(labels)
    if kind == "line" and not (places and apart):
        what = f"one row for each {x}" if places else f"days or numbers in {x}"
        raise BindError(f"a line needs {what}.", hint="write kind='bar'.")
    if kind is None:
        kind = "line" if apart and len(places) >= 3 else "bar"
    if kind == "line" or (dated and apart):
        return kind, _Axis(places, dated=dated)
    return kind, _Axis([float(i) for i in range(len(labels))], [_shorten(label) for label in labels])


def _choose_columns(result: Result, x: str | None, y: str | None) -> tuple[str | None, str]:
    """Return the columns to draw."""
    moments = {c for c, (low, _) in result.ends.items() if pa.types.is_temporal(low.type)}
    intervals = {c: pairs for c, pairs in result.intervals.items() if c not in moments}
    if not intervals and y is None:
        raise BindError(
            "this result has no intervals, so there are no bars with whiskers to draw.",
            hint="plot a count, a sum or a mean, or draw result.df() yourself.",
        )
    y = next(iter(intervals)) if y is None else y
    x = next((c for c in result.columns if c != y), None) if x is None else x
    for name in (x, y):
        if name is not None and name not in result.columns:
            raise BindError(f"the result has no column {name}.", hint=did_you_mean(name, result.columns))
    numbers = pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal
    if y not in intervals and not any(is_kind(result.table.column(y).type) for is_kind in numbers):
        hint = f"there is {', '.join(intervals)}." if intervals else "name a column of numbers."
        raise BindError(f"{y} is no column of numbers.", hint=hint)
    return x, y


_Row = tuple[float, float, float, float]
"""A place, a number, and the ends of its interval, which are NaN if they are not known."""


def _draw_bars(drawn: Axes, rows: Sequence[_Row], known: bool, lying: bool) -> None:
    """Draw bars with whiskers, upright or lying."""
    places, values = [row[0] for row in rows], [row[1] for row in rows]
    gaps = [after - before for before, after in pairwise(sorted(set(places))) if after > before]
    width = 0.7 * min(gaps, default=1)
    whiskers = [
        [max(0.0, value - low) for _, value, low, _ in rows],
        [max(0.0, high - value) for _, value, _, high in rows],
    ]
    if lying:
        drawn.barh(places, values, color=BARS, height=width)
        drawn.axvline(0, color=INK, linewidth=0.8)
    else:
        drawn.bar(places, values, color=BARS, width=width)
        drawn.axhline(0, color=INK, linewidth=0.8)
    if known:
        at = (values, places) if lying else (places, values)
        xerr, yerr = (whiskers, None) if lying else (None, whiskers)
        drawn.errorbar(
            *at, xerr=xerr, yerr=yerr, fmt="none", ecolor=WHISKERS, capsize=3 if len(rows) <= 60 else 0
        )


def _draw_line(drawn: Axes, rows: Sequence[_Row], known: bool) -> None:
    """Draw a line through the numbers, in the band of their intervals."""
    places, values, lows, highs = ([row[i] for row in rows] for i in range(4))
    drawn.plot(
        places, values, color=WHISKERS, linewidth=1.2, marker="o" if len(rows) <= 60 else "", markersize=3
    )
    if known:
        drawn.fill_between(places, lows, highs, color=WHISKERS, alpha=0.25, linewidth=0)


def _plain(text: str) -> str:
    """Return a text that matplotlib does not read as a formula."""
    return text.replace("$", r"\$")


def _shorten(value: object) -> str:
    text = format_cell(value)
    return _plain(text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…")


def _open_bins(
    labels: Sequence[object], rows: Sequence[Any], ends: Sequence[Any]
) -> tuple[list[object], ...]:
    """Return labels, counts and intervals of the bins of histograms, one after another."""
    shown: list[object] = []
    counts: list[object] = []
    pairs: list[object] = []
    for label, row, own in zip(labels, rows, ends, strict=True):
        for (key, count), pair in zip(row or (), (own or {}).values(), strict=False):
            shown.append(
                format_cell(key) if label in ("", None) else f"{format_cell(label)}: {format_cell(key)}"
            )
            counts.append(count)
            pairs.append(pair)
    return shown, counts, pairs


def _find_places(labels: Sequence[object]) -> tuple[list[float], bool]:
    """Return the places of days or numbers, and whether they are days; no places if they are neither."""
    if len(labels) >= 2 and all(isinstance(label, datetime.date) for label in labels):
        dates: Any = importlib.import_module("matplotlib.dates")
        return [float(place) for place in dates.date2num(list(labels))], True
    places = [
        float(label) for label in labels if isinstance(label, int | float | Decimal) and is_number(label)
    ]
    whole = len(labels) >= 2 and len(places) == len(labels) and all(map(math.isfinite, places))
    return (places if whole else []), False


def _show_dates(drawn: Axes) -> None:
    """Turn the x axis into a time axis, with ticks at round dates only."""
    dates: Any = importlib.import_module("matplotlib.dates")
    locator = dates.AutoDateLocator(minticks=3, maxticks=9)
    drawn.xaxis.set_major_locator(locator)
    drawn.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))


def draw_pictures(pictures: Data) -> Axes:
    """Draw a picture of :func:`dpsql.report.data.list_pictures`: the remaining budget, or trade-off curves."""
    if "burn_down" in pictures:
        return plot_burn_down(pictures["burn_down"])
    curves = pictures["tradeoff"]
    rule = {"all of the rule": curves["by_rule"]} if "by_rule" in curves else {}
    return plot_tradeoff({"whole budget": curves["promise"], **rule, "spent so far": curves["spent"]})


def plot_burn_down(data: Data) -> Axes:
    """Draw the remaining budget after each charge, with hollow marks for refused statements, from the report's ``data``."""
    drawn = make_axes("budget plots")
    places = [step["charges"] for step in data["steps"]]
    left = [step["left"] for step in data["steps"]]
    drawn.step(places, left, where="post", color=WHISKERS)
    drawn.plot(places, left, "o", color=WHISKERS, markersize=4)
    for mark in data["refused"]:
        drawn.plot(mark["charges"], mark["level"], "o", markerfacecolor="none", color=INK)
    if len(places) <= 10:
        for step in data["steps"][1:]:
            at = (step["charges"], step["left"])
            drawn.annotate(
                _plain(step["text"][:24]),
                at,
                xytext=(4, 4),
                textcoords="offset points",
                fontsize=7,
                color=INK,
            )
    limit, sign = data["limit"], data.get("symbol", "ε")
    drawn.axhline(limit, color=INK, linewidth=0.8, linestyle=":")
    drawn.annotate(
        f"limit {sign}={limit:g}",
        (0, limit),
        xytext=(4, 3),
        textcoords="offset points",
        fontsize=8,
        color=INK,
    )
    drawn.axhline(0, color=INK, linewidth=0.8)
    lowest = min(0.0, *left, *(mark["level"] for mark in data["refused"]))
    room = 0.05 * limit if lowest < 0 else 0.0
    drawn.set(xlabel="charges", ylabel=f"{sign} left", ylim=(lowest - room, limit * 1.15))
    return drawn


def plot_tradeoff(curves: Mapping[str, Sequence[tuple[float, float]]]) -> Axes:
    """Draw trade-off curves, by name: an attacker's type II error for each type I error; the diagonal is perfect privacy."""
    drawn = make_axes("trade-off plots", 3.8, 3.6)
    drawn.plot([0, 1], [1, 0], color=INK, linestyle=":", linewidth=1)
    drawn.annotate("perfect privacy", (0.72, 0.30), rotation=-45, fontsize=8, ha="center", color=INK)
    for number, (name, points) in enumerate(curves.items()):
        colour = CURVES[number % len(CURVES)]
        drawn.plot(*zip(*points, strict=True), color=colour)
        height = 0.86 - 0.09 * number  # next to its curve, below the previous label
        place = min(points, key=lambda point: abs(point[1] - height))
        words = (min(0.97 - 0.022 * len(name), place[0] + 0.28), height)
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.6}
        drawn.annotate(name, place, words, fontsize=8, color=colour, va="center", arrowprops=line)
    drawn.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="type I error", ylabel="type II error")
    return drawn
