"""Errors of means, spreads and correlations where a cap cuts: beside what they were before rows were weighed."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import dpsql

Ints = NDArray[np.int64]
UNITS = 1000
LOW, HIGH, CENTRE = 0, 100, 50
POLICY = f"""
[budget]
epsilon = 1e13
delta = 0.5
accountant = "basic"
default_epsilon = 1e9
[tables.t]
privacy_unit = "u"
max_rows = {{}}
[tables.t.columns]
x = {{{{ bounds = [{LOW}, {HIGH}] }}}}
y = {{{{ bounds = [{LOW}, {HIGH}] }}}}
"""
WHAT = ("AVG(x)", "STDDEV_POP(x)", "CORR(y, x)")
NOISE = 1e-4
"""The most that the little noise of a huge epsilon adds to an error, with rare exceptions."""


def _geometric() -> Ints:
    return np.random.default_rng(1).geometric(0.1, UNITS)


def _heavy() -> Ints:
    return np.minimum(np.floor(np.random.default_rng(2).pareto(1.2, UNITS) + 1), 5000).astype(np.int64)


def _two_kinds() -> Ints:
    return np.where(np.arange(UNITS) % 5 < 4, 3, 60)


SHAPES: dict[str, Callable[[], Ints]] = {
    "constant": lambda: np.full(UNITS, 12),
    "geometric": _geometric,
    "heavy tail": _heavy,
    "bimodal": _two_kinds,
    "one giant": lambda: np.where(np.arange(UNITS) == 0, 20_000, 3),
}
CAPS = (50, 90, 99)


def column(of: float, many: int) -> NDArray[np.float64]:
    """Numbers in [0, 1) that are spread evenly over any run of rows: units differ in their rows only by chance."""
    return np.arange(many) * of % 1.0


@functools.cache
def rows(shape: str) -> tuple[Ints, Ints, Ints]:
    """Each row's unit, x and y: y falls as x rises."""
    unit = np.repeat(np.arange(UNITS), SHAPES[shape]())
    x = (15 + 40 * column((5**0.5 - 1) / 2, len(unit))).astype(np.int64)
    y = (90 - x + 10 * column(2**0.5 - 1, len(unit))).astype(np.int64)
    return unit, x, y


def before(shape: str, cap: int) -> dict[str, float]:
    """The estimators as they were, without noise: every moment's total of a unit clamped, the count of its rows cut."""
    unit, x, y = rows(shape)
    dx, dy = x - CENTRE, y - CENTRE
    reach = HIGH - CENTRE

    def total(values: Ints, low: int, high: int) -> float:
        return float(np.clip(np.bincount(unit, weights=values), low * cap, high * cap).sum())

    n = max(total(np.ones_like(x), 0, 1), 1.0)
    mean_x, mean_y = (total(d, -reach, reach) / n for d in (dx, dy))
    var_x, var_y = (
        min(max(total(d * d, 0, reach**2) / n - m**2, 0.0), (HIGH - LOW) ** 2 / 4)
        for d, m in ((dx, mean_x), (dy, mean_y))
    )
    cov = total(dx * dy, -(reach**2), reach**2) / n - mean_x * mean_y
    spread = math.sqrt(var_x * var_y)
    return {
        "AVG(x)": min(max(CENTRE + mean_x, LOW), HIGH),
        "STDDEV_POP(x)": math.sqrt(var_x),
        "CORR(y, x)": min(max(cov / spread, -1.0), 1.0) if spread else math.nan,  # NULL: no answer
    }


def after(shape: str, cap: int) -> tuple[dict[str, float], dict[str, float]]:
    """The answers, and the truth."""
    unit, x, y = rows(shape)
    table = pa.table({"u": unit, "x": x, "y": y})
    with duckdb.connect() as con:
        con.register("given", table)
        con.execute("CREATE TABLE t AS SELECT * FROM given")
        con.unregister("given")
        truth = con.sql(f"SELECT {', '.join(WHAT)} FROM t").fetchall()[0]
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY.format(cap))) as session:
            answer = session.sql(f"SELECT {', '.join(WHAT)} FROM t").fetchall()[0]
    return dict(zip(WHAT, answer, strict=True)), dict(zip(WHAT, truth, strict=True))


@pytest.mark.parametrize("share", CAPS)
@pytest.mark.parametrize("shape", SHAPES)
def test_never_further_from_the_truth_than_before(shape: str, share: int) -> None:
    """Shown by ``pytest -s``: the shape, the cap's percentile and value, and each error before and after."""
    cap = max(1, int(np.percentile(SHAPES[shape](), share)))
    old, (new, truth) = before(shape, cap), after(shape, cap)
    cells = []
    for what in WHAT:
        errors = [abs(found - truth[what]) for found in (old[what], new[what])]
        cells.append(f"{what} {errors[0]:9.5f} -> {errors[1]:9.5f}")
        assert math.isnan(errors[0]) or errors[1] <= errors[0] + NOISE, what
    print(f"\n| {shape:10} | {share}th: {cap:4} | {' | '.join(cells)} |")


@pytest.mark.parametrize("shape", ["geometric", "heavy tail", "bimodal"])
def test_what_was_wrong_is_right(shape: str) -> None:
    """At the median, the mean was at a bound or far off, and is within a hundredth of the range."""
    cap = int(np.percentile(SHAPES[shape](), 50))
    old, (new, truth) = before(shape, cap), after(shape, cap)
    assert abs(old["AVG(x)"] - truth["AVG(x)"]) > 5
    assert abs(new["AVG(x)"] - truth["AVG(x)"]) < 1
    assert abs(new["STDDEV_POP(x)"] - truth["STDDEV_POP(x)"]) < 1
    assert abs(new["CORR(y, x)"] - truth["CORR(y, x)"]) < 0.01
