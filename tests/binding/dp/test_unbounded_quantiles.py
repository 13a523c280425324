"""Quantiles whose bounds nobody gave: a geometric grid of both signs, exactly placed, and an answer near the wanted rank."""

from __future__ import annotations

import math
from fractions import Fraction

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.mechanisms.order_statistics import GeometricGrid
from dpsql.mechanisms.subsample.subsample import UnboundedRange
from dpsql.privacy.events import BoundedRange
from tests.support.fixtures import session_fixture

POLICY = """
budget = { epsilon = 1e5, delta = 1e-3, accountant = "basic" }
[tables]
t = { privacy_unit = "u", max_rows = 1, columns = { held = { bounds = [0, 10] }, w = { values = ["A", "B"] } } }
"""
GRID = GeometricGrid(-30, 64)
TABLES = """
CREATE TABLE t AS SELECT range AS u, exp(20 * ((range * 0.6180339887) % 1)) AS wide,
        range - 700 AS n, -1000000 - range AS low,
        CASE range % 50 WHEN 0 THEN NULL WHEN 1 THEN 'NaN'::DOUBLE WHEN 2 THEN 'Infinity'::DOUBLE ELSE 5 END AS odd,
        range % 11 AS held, 'A' AS w, (range / 100.0)::DECIMAL(10, 2) AS d FROM range(2000);
"""
session = session_fixture(POLICY, TABLES)


def place(v: float, grid: GeometricGrid = GRID) -> int:
    """The step of a double, in exact arithmetic."""
    size, cells = abs(Fraction(v)), 1 << grid.BITS
    if size < Fraction(2) ** grid.lowest:
        return 0
    power = grid.lowest
    while power < grid.highest - 1 and size >= Fraction(2) ** (power + 1):
        power += 1
    part = min(cells - 1, math.floor((size / Fraction(2) ** power - 1) * cells))
    step = (power - grid.lowest) * cells + part + 1
    return step if v > 0 else -step


def test_every_double_has_its_place() -> None:
    rng = np.random.default_rng(5)
    sizes = [0.0, 1.0, 3.0, 1023.0, 1025.0, 0.1, 1e300, 5e-324, 1.7976931348623157e308]
    sizes += [2.0**exponent for exponent in (-30, -31, 63, 64)]
    sizes += [float(v) for v in np.exp(rng.uniform(-30, 60, 3000))]
    values = np.array([s * sign for s in sizes for sign in (1, -1)])
    sql = f"SELECT {GRID.write_step('v')} FROM (SELECT unnest($1) AS v)"
    found = [step for (step,) in duckdb.execute(sql, [values.tolist()]).fetchall()]
    assert found == [place(v) for v in values] == [GRID.find_step(Fraction(v)) for v in values]
    assert {place(1e300), place(-1e300)} == {GRID.last, -GRID.last}
    for v, step in zip(values, found, strict=True):
        if 2.0**-30 <= abs(v) < 2.0**64:
            assert (
                abs(GRID.value(step))
                <= abs(Fraction(v))
                < abs(GRID.value(step)) * (1 + Fraction(1, 1024)) + 0
            )
    order = np.argsort(values, kind="stable")
    assert (np.diff(np.array(found)[order]) >= 0).all(), "places keep the order of values"


def test_a_power_of_two_and_its_neighbours_have_neighbouring_places() -> None:
    """The logarithm of the double below a power of two may round up to it."""
    values = [
        f(2.0**j)
        for j in range(-29, 63)
        for f in (float, lambda v: math.nextafter(v, 0), lambda v: math.nextafter(v, 1e308))
    ]
    sql = f"SELECT {GRID.write_step('v')} FROM (SELECT unnest($1) AS v)"
    found = [step for (step,) in duckdb.execute(sql, [values]).fetchall()]
    assert all(0 <= step - place(v) <= 1 for v, step in zip(values, found, strict=True))


@pytest.mark.parametrize(
    ("call", "low", "high"),
    [
        ("MEDIAN(wide, contribution_bounds_per_row => AUTO)", math.exp(9.5), math.exp(10.5)),
        ("MEDIAN(n, contribution_bounds_per_row => AUTO)", 280, 320),
        ("QUANTILE_DISC(n, 0.1, contribution_bounds_per_row => AUTO)", -520, -480),
        ("QUANTILE_CONT(low, 0.9, contribution_bounds_per_row => AUTO)", -1_002_000, -999_000),
        ("QUANTILE_CONT(d, 0.25, contribution_bounds_per_row => AUTO)", 4.8, 5.2),
        ("MEDIAN(odd, contribution_bounds_per_row => AUTO)", 5, 5),
        ("MEDIAN(held, contribution_bounds_per_row => AUTO)", 4, 6),
        ("MAX(n, contribution_bounds_per_row => AUTO)", 1200, 1300),
        ("MIN(wide, contribution_bounds_per_row => AUTO)", 1, 1.5),
    ],
)  # fmt: skip
def test_quantiles_need_no_bounds(session: dpsql.Session, call: str, low: float, high: float) -> None:
    """At epsilon 40 the answer is within two rows in all but one of ten million runs."""
    (answer,) = session.sql(f"SELECT WITH DP OPTIONS (epsilon = 40) {call} AS q FROM t").fetchone()
    assert low <= answer <= high
    assert session.ledger()[-1].event.basic == (40, 0)
    ends = 1 if call.startswith(("MIN", "MAX")) else 2
    assert BoundedRange(Fraction(5 * ends), 1) in session.ledger()[-1].event.leaves()


def test_a_median_of_blocks_needs_no_bounds_and_no_delta(session: dpsql.Session) -> None:
    text = "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 20, combine = 'median', bounds = AUTO) {} AS m FROM t"
    (answer,) = session.sql(text.format("AVG(low)")).fetchone()
    assert -1_002_000 < answer < -999_000
    assert session.ledger()[-1].event == BoundedRange(Fraction(20))
    # MAX(odd) would be NaN or infinite in a block with probability 1 - 0.96^16, near one half, and so would its median be open
    (answer,) = session.sql(text.format("MIN(odd)")).fetchone()
    assert answer == 5
    (answer,) = session.sql(text.format("CASE WHEN COUNT(*) > 10000 THEN 1 END")).fetchone()
    assert answer == 0, "blocks without a number count as 0"
    grid = UnboundedRange(GRID)
    assert [grid.place(v) for v in (None, "1", math.nan, math.inf, 0)] == [GRID.last] * 5
    assert (grid.place(1e300), grid.place(-(10**40)), grid.points) == (2 * GRID.last, 0, 2 * GRID.last)
    assert [grid.value(grid.place(v)) for v in (3, -1023, 0.25, 0)] == [3, -1023, 0.25, 0]


def test_groups_lists_and_types(session: dpsql.Session) -> None:
    text = "SELECT WITH DP OPTIONS (epsilon = 80) w, MEDIAN(n, contribution_bounds_per_row => AUTO) AS m FROM t GROUP BY w"
    rows = dict(session.sql(text.replace("80", "80, max_groups_contributed = 1")).fetchall())
    assert set(rows) == {"A", "B"}
    assert abs(rows["A"] - 300) < 20
    text = "SELECT WITH DP OPTIONS (epsilon = 100) APPROX_QUANTILES(n, 4, contribution_bounds_per_row => AUTO) AS q FROM t"
    (found,) = session.sql(text).fetchone()
    assert len(found) == 5
    assert found == sorted(found)
    assert all(isinstance(v, int) for v in found)
    assert "no bounds are needed" in str(session.explain(text))
    with pytest.raises(dpsql.BindError, match="AUTO finds bounds of numbers"):
        session.sql(
            "SELECT WITH DP OPTIONS (epsilon = 1) MEDIAN(DATE '2024-01-01', contribution_bounds_per_row => AUTO) FROM t"
        )
