"""The cases of the table of accuracy.

The tables are made of hashes, so they are the same in every run; noise is the product's own.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import duckdb

from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.privacy.conversions import gaussian_mu
from tests.support.accuracy import Case
from tests.support.adult import ADULT_AGES

EVEN = (
    "CREATE TABLE t AS SELECT i AS u, i % 100 + (i * 7919 % 1000) / 1000 AS x, (i * 31 + i // 7) % 100 AS y, i % 4 AS k, "
    "i % 7 AS j FROM range(1000) r(i)"
)
"""A thousand units of one row each; x and y are spread evenly over [0, 100)."""
EVEN_POLICY = """
[tables.t]
privacy_unit = "u"
max_rows = 1
max_groups = 1
[tables.t.columns]
x = { bounds = [0, 100] }
y = { bounds = [0, 100] }
k = { values = [0, 1, 2, 3] }
j = { values = [0, 1, 2, 3, 4, 5, 6] }
"""


def draw(i: str, place: int) -> str:
    """Return SQL of a number in [0, 1) that follows from an expression."""
    return f"(hash(({i}) * 8 + {place}) / 18446744073709551616.0)"


MILLION = (
    f"CREATE TABLE t AS SELECT ({draw('i', 0)} * {draw('i', 1)} * 100000)::BIGINT AS u, ({draw('i', 2)} * 10)::BIGINT % 10 AS k "
    "FROM range(1000000) r(i)"
)
"""A million rows of 90,862 units, of which the most have few: a tenth have a third of the rows."""


def spread_pareto(least: float, shape: float) -> str:
    """Return SQL that makes a hundred thousand units whose rows follow a Pareto law, cut at 5,000."""
    return (
        f"CREATE TABLE t AS SELECT u, ({draw('u * 10007 + j', 2)} * 10)::BIGINT % 10 AS k FROM (SELECT i AS u, "
        f"LEAST(FLOOR({least} * POW({draw('i', 5)}, -1 / {shape})), 5000)::BIGINT AS n FROM range(100000) r(i)) AS units, "
        "LATERAL (SELECT UNNEST(range(n)) AS j) AS rows"
    )


HEAVY = spread_pareto(5.4, 2)
"""A million rows; the rows of a unit have no variance."""
HEAVIER = spread_pareto(2.2, 1.2)
"""A million rows; one unit in twenty has 27 or more, one in a thousand 580, a few have thousands: any cap costs much."""
TEN_KEYS = """
[tables.t]
privacy_unit = "u"
[tables.t.columns]
k = { values = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] }
"""
TEN_KEYS_CAPPED = TEN_KEYS.replace('"u"', '"u"\nmax_rows_per_group = 4\nmax_groups = 3')
BOTH = "max_rows_contributed = AUTO, max_groups_contributed = AUTO"
COUNTS = "SELECT k, COUNT(*) FROM t GROUP BY k"
PEERS = "OpenDP 0.60, PipelineDP 0.60, SmartNoise 0.41, Qrlew 0.17"


def private(options: str, statement: str) -> str:
    """Return a statement with the options of a private block."""
    return statement.replace("SELECT", f"SELECT WITH DP OPTIONS ({options})", 1)


def gaussian_error(numbers: int, weight: float = 1.0) -> float:
    """Return the expected absolute error of one of so many counts that are calibrated together at (1, 1e-6)."""
    sigma = math.sqrt(numbers) / float(gaussian_mu(Fraction(1), Fraction(1, 10**6)))
    return weight * sigma * math.sqrt(2 / math.pi)


def laplace_error(numbers: int) -> float:
    """Return the expected absolute error of one of so many counts that share an epsilon of 1."""
    return LaplaceNoise(Fraction(1, numbers), 1).mean_error


def find_best_cap(con: duckdb.DuckDBPyConnection) -> float:
    """Return the mean relative error of ten counts under the best fixed cap on rows of a unit, in hindsight, at epsilon 1.

    What lies beyond the cap is lost, and Laplace noise is of the cap's scale: E|X - b| = b + s exp(-b / s).
    """
    sized = "SELECT COUNT(*) AS n FROM t GROUP BY u"
    errors = []
    for cap in (1 << i for i in range(14)):
        row = con.execute(f"SELECT SUM(GREATEST(n - {cap}, 0)) / 10, SUM(n) / 10 FROM ({sized})").fetchone()
        assert row is not None
        lost, whole = map(float, row)
        errors.append((lost + cap * math.exp(-lost / cap)) / whole)
    return min(errors)


def count_columns(numbers: int) -> str:
    """Return a statement of so many counts of one unit each."""
    return f"SELECT {', '.join(f'COUNT(*) FILTER (WHERE x >= {i})' for i in range(numbers))} FROM t"


def on_even(name: str, statement: str, options: str, **more: Any) -> Case:
    """Return a case over a thousand units of one row each."""
    more.setdefault("keys", 1 if "GROUP BY" in statement else 0)
    return Case(name, EVEN, EVEN_POLICY, private(options, statement), statement, **more)


CAPS = [
    *(
        Case(
            f"ten public keys, {tails} tails, caps found: mean relative error",
            data, TEN_KEYS, private(f"epsilon = 1, {BOTH}", COUNTS), COUNTS, keys=1, relative=True,
            draws=(8, 0), peers=PEERS, most=most, best=find_best_cap,
        )
        for tails, data, most in (("heavy", HEAVY, 0.02), ("heavier", HEAVIER, None))
    ),
    Case(
        "ten public keys, 11 rows a unit, caps found: mean relative error",
        MILLION, TEN_KEYS, private(f"epsilon = 1, {BOTH}", COUNTS), COUNTS, keys=1, relative=True,
        draws=(8, 0), peers=PEERS, most=0.02,
    ),
    Case(
        "ten public keys, 11 rows a unit, the policy's caps (4 rows of 3 groups), rows in all found",
        MILLION, TEN_KEYS_CAPPED, private("epsilon = 1, max_rows_contributed = AUTO", COUNTS), COUNTS, keys=1,
        relative=True, draws=(5, 0), peers=PEERS,
    ),
    Case(
        "ten public keys, 11 rows a unit, 4 rows of 3 groups: mean relative error",
        MILLION, TEN_KEYS_CAPPED, private("epsilon = 1", COUNTS), COUNTS, keys=1, relative=True,
        draws=(5, 0), peers=PEERS,
    ),
]  # fmt: skip
GAUSSIAN = "epsilon = 1, delta = 1e-6, noise = GAUSSIAN"
JOINT = [
    on_even(
        f"{k} counts, noise = GAUSSIAN: mean absolute error", count_columns(k), GAUSSIAN,
        closed=lambda k=k: gaussian_error(k), draws=(max(20, 400 // k), 10 if k == 2 else 0),
    )
    for k in (1, 2, 4, 16, 64)
]  # fmt: skip
AUTO_NOISE = [
    on_even(
        f"{k} counts, noise = AUTO: mean absolute error", count_columns(k), "epsilon = 1, delta = 1e-6",
        closed=lambda k=k: min(laplace_error(k), gaussian_error(k)), draws=(max(20, 400 // k), 0),
    )
    for k in (1, 2, 4, 16, 64)
]  # fmt: skip
ONE = "epsilon = 1"
ONE_AND_ENDS = "epsilon = 1.33333333333"
"""An epsilon of 1 for the answer, and an eighth of the whole for each end of its interval."""
MEDIAN = "SELECT MEDIAN(x) FROM t"
QUARTILES = "SELECT QUANTILE_CONT(x, 0.25), QUANTILE_CONT(x, 0.5), QUANTILE_CONT(x, 0.75) FROM t"
ESTIMATES = [
    on_even("AVG of 1,000 rows in [0, 100]: mean absolute error", "SELECT AVG(x) FROM t", ONE, draws=(300, 10)),
    on_even("AVG by 4 keys: mean absolute error", "SELECT k, AVG(x) FROM t GROUP BY k", ONE),
    on_even("COUNT, SUM and AVG: mean relative error", "SELECT COUNT(*), SUM(x), AVG(x) FROM t", ONE, relative=True),
    on_even("a ratio of sums: mean relative error", "SELECT SUM(x) / SUM(y) FROM t", ONE, relative=True),
    on_even("VAR_POP: mean relative error", "SELECT VAR_POP(x) FROM t", ONE, relative=True),
    on_even("STDDEV_POP: mean relative error", "SELECT STDDEV_POP(x) FROM t", ONE, relative=True),
    on_even("CORR: mean absolute error", "SELECT CORR(y, x) FROM t", ONE),
    on_even("COUNT(DISTINCT): mean absolute error", "SELECT COUNT(DISTINCT y) FROM t", ONE),
    on_even(
        "MEDIAN in [0, 100], ε = 1 without its interval: mean absolute error", MEDIAN, ONE_AND_ENDS,
    ),
    on_even(
        "three quantiles in [0, 100], ε = 1 without their intervals: mean absolute error", QUARTILES, ONE_AND_ENDS,
    ),
]  # fmt: skip
SETS = [
    on_even(
        "ROLLUP of 4 keys: mean absolute error", "SELECT k, COUNT(*) FROM t GROUP BY ROLLUP (k)", ONE,
    ),
    on_even(
        "CUBE of 4 and 7 keys, noise = GAUSSIAN: mean absolute error",
        "SELECT k, j, COUNT(*) FROM t GROUP BY CUBE (k, j)", GAUSSIAN, keys=2, draws=(40, 0),
    ),
]  # fmt: skip
ADULT = (
    "CREATE TABLE t AS SELECT row_number() OVER () AS u, age FROM (SELECT 17 + i AS age, UNNEST(range(n)) FROM (SELECT UNNEST("
    f"{list(ADULT_AGES)}) AS n, UNNEST(range({len(ADULT_AGES)})) AS i) AS counts) AS ages"
)
"""One row for each of 32,561 persons."""
ADULT_POLICY = """
[tables.t]
privacy_unit = "u"
max_rows = 1
"""
TUTORIAL = "clip bound, sum and count of a third of ε each, as in tutorials"


def tutorial_error() -> float:
    """Return the mean absolute error of a tutorial's ``auto_avg``, where its clip bound is the oldest's 90 years.

    A third of epsilon each for the bound, for the clipped sum and for the count. Two Laplace terms of scales a > b have the mean
    absolute value (a^2 + a b + b^2) / (a + b).
    """
    rows = sum(ADULT_AGES)
    mean = sum((17 + i) * n for i, n in enumerate(ADULT_AGES)) / rows
    a, b = 3 * 90 / rows, 3 * mean / rows
    return (a * a + a * b + b * b) / (a + b)


AUTO = "contribution_bounds_per_row => AUTO"
ADULTS = [
    Case(
        f"Adult, {call} of age with bounds found: mean absolute error", ADULT, ADULT_POLICY,
        private(ONE, f"SELECT {call}(age, {AUTO}) FROM t"), f"SELECT {call}(age) FROM t", draws=(300, 0), **more,
    )
    for call, more in (
        ("AVG", {"peers": f"{tutorial_error():.2g}: {TUTORIAL}", "most": tutorial_error()}), ("SUM", {}), ("STDDEV_POP", {}),
    )
]  # fmt: skip
WIDE = f"CREATE TABLE t AS SELECT i AS u, 15 + 10 * {draw('i', 6)} AS x FROM range(10000) r(i)"
"""Ten thousand values between 15 and 25."""
QUANTILES = [
    Case(
        f"{call} of 10,000 values near 20, bounds [0, 1e6]: mean relative error", WIDE,
        ADULT_POLICY + "columns.x.bounds = [0, 1e6]\n", private(ONE, f"SELECT {shown} FROM t"), f"SELECT {shown} FROM t",
        relative=True, draws=(100, 5 if call == "MEDIAN" else 0), most=0.02,
    )
    for call, shown in (("MEDIAN", "MEDIAN(x)"), ("two quartiles", "QUANTILE_CONT(x, 0.25), QUANTILE_CONT(x, 0.75)"))
]  # fmt: skip
CASES = [*CAPS, *JOINT, *AUTO_NOISE, *ESTIMATES, *SETS, *ADULTS, *QUANTILES]
