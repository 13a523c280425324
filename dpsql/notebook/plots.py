"""Pictures. Each function draws on a matplotlib Axes, imported when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpsql.errors import BindError, did_you_mean
from dpsql.notebook.render import format_cell
from dpsql.result import MissingLibrary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpsql.result import Result


def make_axes(wanted_by: str, width: float = 6.4, height: float = 3.2) -> Axes:
    """Make an empty plot with one pair of axes.

    Raises:
        MissingLibrary: matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot
    except ImportError:
        raise MissingLibrary("matplotlib", wanted_by) from None
    _, drawn = pyplot.subplots(figsize=(width, height), layout="constrained")
    drawn.spines[["top", "right"]].set_visible(False)
    return drawn


def draw_bars(result: Result, x: str | None = None, y: str | None = None) -> Axes:
    """Draw a released column as bars with whiskers; never bars alone, so ``y`` needs an interval.

    ``x`` is by default the first column that isn't ``y``, ``y`` the first column with intervals.

    Raises:
        BindError: no such column, or ``y`` has no interval (a choice, a comparison, something computed).
        MissingLibrary: matplotlib is not installed.
    """
    intervals = result.intervals
    if not intervals:
        raise BindError(
            "this result has no intervals, so there are no bars with whiskers to draw.",
            hint="plot a count, a sum or a mean, or draw result.df() yourself.",
        )
    y = next(iter(intervals)) if y is None else y
    x = next((c for c in result.columns if c != y), None) if x is None else x
    for name in (x, y):
        if name is not None and name not in result.columns:
            raise BindError(f"the result has no column {name}.", hint=did_you_mean(name, result.columns))
    if y not in intervals:
        raise BindError(f"{y} has no interval.", hint=f"there is one for {', '.join(intervals)}.")
    heights = result.table.column(y).to_pylist()
    labels = result.table.column(x).to_pylist() if x else [""] * len(heights)
    drawn = make_axes(".plot()")
    shown = [(i, h, p) for i, (h, p) in enumerate(zip(heights, intervals[y], strict=True)) if h is not None]
    places = [i for i, _, _ in shown]
    values = [float(h) for _, h, _ in shown]
    drawn.bar(places, values, color="0.75", width=0.7)
    whiskers: list[list[float]] = [[], []]
    for value, (_, _, pair) in zip(values, shown, strict=True):
        low, high = pair or (math.nan, math.nan)
        whiskers[0].append(max(0.0, value - low))
        whiskers[1].append(max(0.0, high - value))
    drawn.errorbar(places, values, yerr=whiskers, fmt="none", ecolor="C0", capsize=3)
    drawn.set_xticks(range(len(labels)), [format_cell(label) for label in labels])
    if max((len(format_cell(label)) for label in labels), default=0) * len(labels) > 70:
        drawn.tick_params(axis="x", rotation=60)
    drawn.axhline(0, color="0.4", linewidth=0.8)
    drawn.set(xlabel=x or "", ylabel=y)
    drawn.set_title(f"whiskers: {result.confidence * 100:g}% interval of the noise", loc="left", fontsize=9)
    return drawn


def draw_pictures(pictures: Mapping[str, Any]) -> Axes:
    """Draw what :func:`dpsql.report.data.list_pictures` gives: what was left after each charge, or trade-off curves."""
    if "burn_down" in pictures:
        return plot_burn_down(pictures["burn_down"])
    curves = pictures["tradeoff"]
    rule = {"all of the rule": curves["by_rule"]} if "by_rule" in curves else {}
    return plot_tradeoff({"whole budget": curves["promise"], **rule, "spent so far": curves["spent"]})


def plot_burn_down(data: Mapping[str, Any]) -> Axes:
    """Draw how much was left after each charge; hollow marks are refused statements.

    ``data`` is the report's: ``limit``, ``steps`` and ``refused``.
    """
    drawn = make_axes("budget plots")
    places = [step["charges"] for step in data["steps"]]
    left = [step["left"] for step in data["steps"]]
    drawn.step(places, left, where="post", color="C0")
    drawn.plot(places, left, "o", color="C0", markersize=4)
    for mark in data["refused"]:
        drawn.plot(mark["charges"], mark["level"], "o", markerfacecolor="none", color="0.4")
    if len(places) <= 10:
        for step in data["steps"][1:]:
            at = (step["charges"], step["left"])
            drawn.annotate(step["text"][:24], at, xytext=(4, 4), textcoords="offset points", fontsize=7)
    limit, sign = data["limit"], data.get("symbol", "ε")
    drawn.axhline(limit, color="0.4", linewidth=0.8, linestyle=":")
    drawn.annotate(
        f"limit {sign}={limit:g}", (0, limit), xytext=(4, 3), textcoords="offset points", fontsize=8
    )
    drawn.axhline(0, color="0.4", linewidth=0.8)
    lowest = min(0.0, *left, *(mark["level"] for mark in data["refused"]))
    drawn.set(xlabel="charges", ylabel=f"{sign} left", ylim=(lowest, limit * 1.15))
    return drawn


def plot_tradeoff(curves: Mapping[str, Sequence[tuple[float, float]]]) -> Axes:
    """Draw trade-off curves, by name: an attacker's type II error for each type I error; the diagonal is perfect privacy."""
    drawn = make_axes("trade-off plots", 3.8, 3.6)
    drawn.plot([0, 1], [1, 0], color="0.6", linestyle=":", linewidth=1)
    drawn.annotate(
        "perfect privacy", (0.5, 0.5), rotation=-45, fontsize=8, ha="center", va="bottom", color="0.4"
    )
    for name, points in curves.items():
        drawn.plot(*zip(*points, strict=True))
        middle = min(points, key=lambda point: abs(point[0] - point[1]))
        drawn.annotate(name, middle, xytext=(4, 4), textcoords="offset points", fontsize=8)
    drawn.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="type I error", ylabel="type II error")
    return drawn
