"""Pictures, without a display."""

from __future__ import annotations

import datetime
import io
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

import dpsql
from dpsql.errors import BindError
from dpsql.session.result import Result

matplotlib = pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def without_display() -> Iterator[None]:
    matplotlib.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def result() -> Result:
    table = pa.table({"plan": ["free", "25%", None], "n": [1980, 1160, None], "m": [1, 2, 3]})
    return Result(table, intervals={"n": [(1965.0, 1995.0), (1140.0, 1170.0), None]}, confidence=0.9)


def whiskers(axes: Any) -> list[tuple[float, float]]:
    (bars,) = axes.collections
    return [(float(line[0][1]), float(line[1][1])) for line in bars.get_segments()]


def test_bars_have_whiskers_where_the_intervals_are() -> None:
    axes = result().plot()
    assert [round(bar.get_height()) for bar in axes.patches] == [1980, 1160]
    assert whiskers(axes) == [(1965.0, 1995.0), (1140.0, 1170.0)]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["free", "25%", "NULL"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("plan", "n")
    assert "90% interval" in axes.get_title(loc="left")


def test_bars_without_whiskers_say_so() -> None:
    with pytest.raises(BindError, match="no intervals"):
        Result(pa.table({"busy": [True]})).plot()
    running = Result(pa.table({"month": [1, 2], "running": [10, 30]}))
    drawn = running.plot(y="running")
    assert [bar.get_height() for bar in drawn.patches] == [10, 30]
    assert not drawn.collections, "no whiskers"
    assert drawn.get_title(loc="left") == "no interval for running is known"
    assert result().plot().get_title(loc="left").startswith("whiskers: 90%")
    with pytest.raises(BindError, match="word is no column of numbers"):
        Result(pa.table({"word": ["a"]})).plot(y="word")
    with pytest.raises(BindError, match="did you mean plan"):
        result().plot(x="plann")


def test_the_owners_pictures_draw() -> None:
    from dpsql.notebook import plots

    steps = [{"charges": i, "left": left, "text": ""} for i, left in enumerate((1.0, 0.9, 0.7))]
    axes = plots.plot_burn_down({"limit": 1.0, "steps": steps, "refused": [{"charges": 2, "level": -0.2}]})
    assert list(axes.lines[0].get_ydata()) == pytest.approx([1.0, 0.9, 0.7])
    axes = plots.plot_tradeoff({"nothing learned": [(0.0, 1.0), (1.0, 0.0)]})
    assert axes.get_xlabel() == "type I error"
    assert len(axes.lines) == 2


def test_a_session_draws_its_budget() -> None:
    policy = dpsql.Policy.loads(
        '[budget]\nepsilon = 1\naccountant = "basic"\n[tables.t]\nprivacy_unit = "u"\nmax_rows = 1'
    )
    with dpsql.connect({"t": pa.table({"u": [1, 2, 3]})}, policy=policy) as session:
        for epsilon in ("0.25", "0.5"):
            session.sql(f"SELECT WITH DP OPTIONS (epsilon = {epsilon}) COUNT(*) FROM t")
        with pytest.raises(dpsql.BudgetExceeded):
            session.sql("SELECT WITH DP OPTIONS (epsilon = 0.75) COUNT(*) FROM t")
        axes = session.plot("budget")
        assert list(axes.lines[0].get_ydata()) == pytest.approx([1.0, 0.75, 0.25])
        assert axes.lines[2].get_ydata() == pytest.approx([-0.5]), (
            "the refused one, at the level it asked for"
        )
        axes = session.plot("tradeoff")
        assert [text.get_text() for text in axes.texts] == ["perfect privacy", "whole budget", "spent so far"]
        promise, spent = (line.get_ydata() for line in axes.lines[1:])
        assert all(a <= b + 1e-9 for a, b in zip(promise, spent, strict=True)), "less was spent than promised"
        with pytest.raises(dpsql.BindError, match="no picture"):
            session.plot("budge")


def brightness(colour: Any) -> float:
    parts = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in matplotlib.colors.to_rgb(colour)
    ]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(colour: Any, page: str) -> float:
    darker, lighter = sorted((brightness(colour), brightness(page)))
    return (lighter + 0.05) / (darker + 0.05)


def test_pictures_can_be_read_on_light_and_on_dark_pages() -> None:
    from dpsql.notebook import plots

    axes = result().plot()
    axes.set_xlabel("set afterwards")
    shown = [axes.xaxis.label, axes.yaxis.label, axes.get_xticklabels()[0], axes.get_yticklabels()[0]]
    colours = [text.get_color() for text in shown] + [
        plots.WHISKERS,
        *plots.CURVES,
        axes.spines["left"].get_edgecolor(),
    ]
    assert axes.figure.get_facecolor()[3] == axes.get_facecolor()[3] == 0, "transparent"
    assert {axes.title.get_color(), axes._left_title.get_color()} == {plots.INK}
    for page in ("#ffffff", "#111111"):
        assert all(contrast(colour, page) > 3 for colour in colours), page
    assert contrast("black", "#111111") < 3, "what matplotlib writes with can't be read"


@pytest.mark.parametrize("kind", ["bar", "line"])
def test_no_front_end_puts_a_white_card_behind_a_picture(kind: str) -> None:
    """The inline backend asks for one if all labels of a transparent picture are dark, or all light."""
    from dpsql.notebook import plots

    inline = pytest.importorskip("matplotlib_inline.backend_inline")
    days = [datetime.date(2024, month, 1) for month in (1, 2, 3, 7)]
    table = pa.table({"month": days, "n": [5, 6, 7, 8]})
    figure = Result(table, intervals={"n": [(4.0, 6.0)] * 4}).plot(kind=kind).figure
    figure.canvas.draw()
    assert not inline._fetch_figure_metadata(figure)
    for axis in (figure.axes[0].xaxis, figure.axes[0].yaxis):
        assert {label.get_color() for label in axis.get_ticklabels()} <= {plots.INK, plots._UP}


def test_dates_stand_on_a_line_of_time() -> None:
    days = [datetime.date(2024, month, 1) for month in (1, 2, 3, 7)]
    table = pa.table({"month": days, "n": [5, 6, 7, 8]})
    axes = Result(table, intervals={"n": [(4.0, 6.0)] * 4}).plot(kind="bar")
    places = [bar.get_x() + bar.get_width() / 2 for bar in axes.patches]
    assert [round(after - before) for before, after in pairwise(places)] == [31, 29, 122]
    assert axes.patches[0].get_width() < 29, "months do not overlap"
    axes.figure.canvas.draw()
    assert "2024" in [label.get_text() for label in axes.get_xticklabels()]


def band(axes: Any) -> set[tuple[float, float]]:
    (filled,) = axes.collections
    return {(float(x), float(y)) for x, y in filled.get_paths()[0].vertices}


def test_days_and_numbers_are_drawn_as_a_line_in_a_band() -> None:
    numbers = pa.table({"age": [30, 10, 20], "n": [3, 1, None]})
    axes = Result(numbers, intervals={"n": [(2.0, 4.0), (0.0, 2.0), None]}).plot()
    assert axes.lines[0].get_xydata().tolist() == [[10, 1], [30, 3]], "sorted, without NULL"
    assert band(axes) == {(10, 0), (10, 2), (30, 2), (30, 4)}
    assert axes.get_title(loc="left").startswith("band: 95%")
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(i) for i in range(366)]
    axes = Result(pa.table({"day": days, "n": range(366)}), intervals={"n": [(0.0, 400.0)] * 366}).plot()
    axes.figure.canvas.draw()
    assert len(axes.get_xticklabels()) < 12, "366 days have few labels"
    assert not axes.patches
    bars = Result(numbers, intervals={"n": [(2.0, 4.0), (0.0, 2.0), None]}).plot(kind="bar")
    assert [bar.get_height() for bar in bars.patches] == [3, 1]


def test_a_kind_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BindError, match="needs days or numbers in plan"):
        result().plot(kind="line")
    with pytest.raises(BindError, match="one row for each year"):
        Result(pa.table({"year": [1, 1, 2], "n": [3, 4, 5]})).plot(y="n", kind="line")
    with pytest.raises(BindError, match="did you mean bar"):
        result().plot(kind="bars")


def test_labels_are_texts_and_not_formulas_and_no_warning_is_shown(recwarn: pytest.WarningsRecorder) -> None:
    names = [
        "$5 to $10",
        "a product whose name is far too long to be read in a picture",
        "\u6771\u4eac",
        "eyes",
    ]
    table = pa.table({"a $ and b $": names, "$n": [5, 6, 7, 8]})
    axes = Result(table, intervals={"$n": [(4.0, 6.0)] * 4}).plot()
    axes.figure.savefig(io.BytesIO(), bbox_inches="tight")
    assert [label.get_text() for label in axes.get_yticklabels()][::3] == [r"\$5 to \$10", "eyes"]
    assert max(len(label.get_text()) for label in axes.get_yticklabels()) == 40
    assert [round(bar.get_width()) for bar in axes.patches] == [5, 6, 7, 8], "long labels have a row each"
    assert axes.get_ylabel() == r"a \$ and b \$"
    assert not recwarn.list
    many = Result(pa.table({"k": [f"ward {i}" for i in range(200)], "n": range(200)})).plot(y="n")
    assert len(many.get_xticklabels()) <= 30


def test_a_histogram_is_drawn_bin_by_bin() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    bins = pa.array([[("a", 5), ("b", 9)], [("a", 1), ("b", 2)]], kind)
    ends = [pa.chunked_array([pa.array([[("a", 5.0 + by), ("b", 9.0 + by)], [("a", 1.0 + by), ("b", 2.0 + by)]],
                                       pa.map_(pa.string(), pa.float64()))]) for by in (-1, 1)]  # fmt: skip
    axes = Result(
        pa.table({"h": bins.slice(0, 1)}), intervals={"h": tuple(e.slice(0, 1) for e in ends)}
    ).plot()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b"]
    assert whiskers(axes) == [(4.0, 6.0), (8.0, 10.0)]
    both = Result(pa.table({"k": ["x", "y"], "h": bins}), intervals={"h": tuple(ends)}).plot()
    assert [label.get_text() for label in both.get_xticklabels()] == ["x: a", "x: b", "y: a", "y: b"]
    assert [round(bar.get_height()) for bar in both.patches] == [5, 9, 1, 2]


def test_curves_have_their_names_beside_them_in_their_colours() -> None:
    from dpsql.notebook import plots

    points = [(i / 20, (1 - i / 20) ** power) for power in (3,) for i in range(21)]
    axes = plots.plot_tradeoff({"whole budget": points, "spent so far": [(x, y**0.5) for x, y in points]})
    names = {text.get_text(): text for text in axes.texts}
    for line, name in zip(axes.lines[1:], ("whole budget", "spent so far"), strict=True):
        assert names[name].get_color() == line.get_color()
        assert names[name].xy in list(zip(line.get_xdata(), line.get_ydata(), strict=True))
    assert axes.get_legend() is None


def test_groups_of_two_keys_have_both_in_their_labels() -> None:
    table = pa.table({"ward": ["A", "A", "B"], "urgent": [True, False, True], "n": [5, 8, 13]})
    result = Result(table, intervals={"n": [(4.0, 6.0), (7.0, 9.0), (12.0, 14.0)]})
    drawn = result.plot()
    assert [label.get_text() for label in drawn.get_xticklabels()] == ["A, true", "A, false", "B, true"]
    assert drawn.get_xlabel() == "ward, urgent"
    assert [label.get_text() for label in result.plot(x="ward").get_xticklabels()] == ["A", "A", "B"]
