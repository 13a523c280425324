"""Pictures on a matplotlib Axes; matplotlib is imported at the first picture.

Pictures are transparent, in middle tones that are readable on light and on dark pages.
"""

from __future__ import annotations

import datetime
import importlib
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dpsql.errors import BindError, did_you_mean
from dpsql.notebook.render import format_cell, is_number
from dpsql.report.tables import Data
from dpsql.session.result import MissingLibrary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpsql.session.result import Result


INK = "#7c7c7c"
"""The colour of words and lines: 4.1 to 1 against white, 4.5 to 1 against JupyterLab's dark."""
BARS, WHISKERS = "#80808066", "#3584c8"
CURVES = ("#3584c8", "#d1731f", "#3f9b57", "#b36ad0")


def make_axes(wanted_by: str, width: float = 6.4, height: float = 3.2) -> Axes:
    """Return an empty plot with one pair of axes.

    Raises:
        MissingLibrary: matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot
    except ImportError:
        raise MissingLibrary("matplotlib", wanted_by) from None
    figure, drawn = pyplot.subplots(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    drawn.patch.set_alpha(0)
    drawn.spines[["top", "right"]].set_visible(False)
    drawn.spines[["left", "bottom"]].set_color(INK)
    drawn.tick_params(colors=INK, which="both")
    for axis in (drawn.xaxis, drawn.yaxis):
        axis.label.set_color(INK)
        axis.get_offset_text().set_color(INK)
    for place in ("left", "center", "right"):
        drawn.set_title("", loc=place, color=INK)
    return drawn


def draw_bars(result: Result, x: str | None = None, y: str | None = None) -> Axes:
    """Draw a released column as bars with whiskers. A number without an interval has none, and the title says so.

    ``x`` is by default the first column that isn't ``y``, ``y`` the first column with intervals.

    Raises:
        BindError: no such column, ``y`` is no number, or none is named and none has an interval.
        MissingLibrary: matplotlib is not installed.
    """
    import pyarrow as pa

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
    heights = result.table.column(y).to_pylist()
    if not all(height is None or is_number(height) for height in heights) and y not in intervals:
        hint = f"there is {', '.join(intervals)}." if intervals else "name a column of numbers."
        raise BindError(f"{y} is no column of numbers.", hint=hint)
    labels = result.table.column(x).to_pylist() if x else [""] * len(heights)
    pairs: list[Any] = intervals.get(y, [None] * len(heights))
    if any(isinstance(pair, dict) for pair in pairs):
        labels, heights, pairs = _open_bins(labels, heights, pairs)
        x = y if x is None else f"{x}, {y}"
    drawn = make_axes(".plot()")
    shown = [(i, h, p) for i, (h, p) in enumerate(zip(heights, pairs, strict=True)) if h is not None]
    dates = _place_dates(labels)
    places = [i if dates is None else dates[i] for i, _, _ in shown]
    values = [float(h) for _, h, _ in shown]
    gaps = [after - before for before, after in pairwise(sorted(set(places))) if after > before]
    drawn.bar(places, values, color=BARS, width=0.7 * min(gaps, default=1))
    whiskers: list[list[float]] = [[], []]
    for value, (_, _, pair) in zip(values, shown, strict=True):
        low, high = pair or (math.nan, math.nan)
        whiskers[0].append(max(0.0, value - low))
        whiskers[1].append(max(0.0, high - value))
    if y in intervals:
        drawn.errorbar(places, values, yerr=whiskers, fmt="none", ecolor=WHISKERS, capsize=3)
    if dates is None:
        drawn.set_xticks(range(len(labels)), [format_cell(label) for label in labels])
        if max((len(format_cell(label)) for label in labels), default=0) * len(labels) > 70:
            drawn.tick_params(axis="x", rotation=60)
    else:
        _show_dates(drawn)
    drawn.axhline(0, color=INK, linewidth=0.8)
    drawn.set(xlabel=x or "", ylabel=y)
    whose = f"whiskers: {result.confidence * 100:g}% interval of the noise"
    drawn.set_title(whose if y in intervals else f"no interval for {y} is known", loc="left", fontsize=9)
    return drawn


def _open_bins(labels: Sequence[object], rows: Sequence[Any], ends: Sequence[Any]) -> tuple[list[Any], ...]:
    """Return labels, counts and intervals of the bins of histograms, one after another."""
    shown: list[object] = []
    counts: list[Any] = []
    pairs: list[Any] = []
    for label, row, own in zip(labels, rows, ends, strict=True):
        for (key, count), pair in zip(row or (), (own or {}).values(), strict=False):
            shown.append(
                format_cell(key) if label in ("", None) else f"{format_cell(label)}: {format_cell(key)}"
            )
            counts.append(count)
            pairs.append(pair)
    return shown, counts, pairs


def _place_dates(labels: Sequence[object]) -> list[float] | None:
    """Return the places of dates on a time axis; None unless all are dates."""
    if len(labels) < 2 or not all(isinstance(label, datetime.date) for label in labels):
        return None
    dates: Any = importlib.import_module("matplotlib.dates")
    return [float(place) for place in dates.date2num(list(labels))]


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
    """Draw the remaining budget after each charge; hollow marks are refused statements.

    ``data`` is the report's: ``limit``, ``steps`` and ``refused``.
    """
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
                step["text"][:24], at, xytext=(4, 4), textcoords="offset points", fontsize=7, color=INK
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
