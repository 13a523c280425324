"""Pictures, without a display."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import dpsql
from dpsql.errors import BindError
from dpsql.result import Result

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


def test_never_bars_alone() -> None:
    with pytest.raises(BindError, match="no intervals"):
        Result(pa.table({"busy": [True]})).plot()
    with pytest.raises(BindError, match="there is one for n"):
        result().plot(y="m")
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
