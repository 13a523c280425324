"""Quantiles within bounds that are far wider than the values: near in every type and clause, and no worse in narrow bounds."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.binding.dp.row_queries import choose_points, refine_points
from dpsql.binding.values.fixed_point import Grid
from dpsql.binding.values.sql_types import Type
from dpsql.mechanisms.base import SALT
from dpsql.mechanisms.order_statistics import GradedGrid, PointWeights, WantedRank, cut_segments
from dpsql.mechanisms.quantiles import Quantiles
from tests.support import inside
from tests.support.fixtures import con_fixture, session_fixture

POLICY = """
budget = { epsilon = 1e6, delta = 1e-3, accountant = "basic" }
[tables]
t = { privacy_unit = "u", max_rows = 1, max_groups = 1, columns = { x = { bounds = [0, 1e6] }, \
    below = { bounds = [-1e6, 0] }, either = { bounds = [-1e6, 1e6] }, tiny = { bounds = [0, 1e6] }, \
    far = { bounds = [0, 1e12] }, i = { bounds = [0, 1000000000] }, d = { bounds = [0, 1000000] }, \
    odd = { bounds = [0, 1e6] }, day = { bounds = [1900-01-01, 2100-01-01] }, \
    moment = { bounds = [2000-01-01, 2001-01-01] }, declared = { values = [0, 1] } } }
few = { privacy_unit = "u", max_rows = 1, columns = { x = { bounds = [-1000, 100000] } } }
"""
TABLES = """
CREATE TABLE t AS SELECT u, x, -x AS below, CASE WHEN u % 4 = 0 THEN -x ELSE x END AS either,
            x / 1000 AS tiny, x AS far, CAST(x AS BIGINT) AS i, CAST(x AS DECIMAL(12, 2)) AS d,
            CASE u % 5 WHEN 0 THEN NULL WHEN 1 THEN 'NaN'::DOUBLE WHEN 2 THEN -'Infinity'::DOUBLE ELSE x END AS odd,
            DATE '2000-01-01' + CAST(x AS INTEGER) AS day, TIMESTAMP '2000-01-01' + to_seconds(x * 86400) AS moment,
            u % 2 AS declared, u % 3 AS private
            FROM (SELECT range AS u, 20 * exp((2 * ((range * 7919) % 10000 + 0.5) / 10000 - 1) ** 3) AS x FROM range(10000));
CREATE TABLE few (u INTEGER, x DOUBLE);
"""
# Ten thousand values around 20, from 7 to 55.
con = con_fixture(TABLES)
session = session_fixture(POLICY)


def is_near(answer: object, truth: float, part: float = 0.02) -> bool:
    """Say whether a number is within a part of another, which is not 0."""
    assert isinstance(answer, (int, float, Decimal))
    return abs(float(answer) - truth) <= part * abs(truth)


@pytest.mark.parametrize(
    ("call", "truth"),
    [
        ("MEDIAN(x)", 20),
        ("MEDIAN(below)", -20),
        ("MEDIAN(either)", 19.2),
        ("MEDIAN(tiny)", 0.02),
        ("MEDIAN(far)", 20),
        ("MEDIAN(i)", 20),
        ("MEDIAN(d)", 20),
        ("MEDIAN(odd)", 20),
        ("MEDIAN(x - 1000)", -980),
        ("QUANTILE_CONT(x, 0.5)", 20),
        ("QUANTILE_DISC(i, 0.5)", 20),
        ("QUANTILE_CONT(either, 0.125)", -20),
        ("QUANTILE_CONT(x, 0.75)", 20 * np.exp(1 / 8)),
    ],
)
def test_answers_are_within_two_per_cent(session: dpsql.Session, call: str, truth: float) -> None:
    """At epsilon 1, as it comes: ten thousand rows are off by some ten in rank."""
    (answer,) = session.sql(f"SELECT WITH DP OPTIONS (epsilon = 1) {call} AS m FROM t").fetchone()
    assert is_near(answer, truth)


def test_lists_ends_and_types(session: dpsql.Session) -> None:
    """The ends fall outside the data once in some thousand runs, as EXPLAIN says: one side of each is looked at."""
    text = "SELECT WITH DP OPTIONS (epsilon = 5) {} FROM t"
    (cuts,) = session.sql(text.format("APPROX_QUANTILES(x, 4) AS q")).fetchone()
    assert all(is_near(a, 20 * np.exp(p)) for a, p in zip(cuts[1:4], (-1 / 8, 0, 1 / 8), strict=True))
    assert cuts[0] < 8.5
    assert cuts[4] > 47
    (first, last) = session.sql(text.format("QUANTILE_CONT(x, [0.25, 0.75]) AS q")).fetchone()[0]
    assert is_near(first, 20 * np.exp(-1 / 8))
    assert is_near(last, 20 * np.exp(1 / 8))
    low, high, d, i = session.sql(text.format("MIN(x), MAX(x), QUANTILE_DISC(d, 0.5), MIN(i)")).fetchone()
    assert low < 9.5
    assert high > 42
    assert isinstance(d, Decimal)
    assert i < 9.5
    day, moment = session.sql(text.format("QUANTILE_DISC(day, 0.5), MEDIAN(moment)")).fetchone()
    assert abs(day - datetime.date(2000, 1, 21)) <= datetime.timedelta(days=1)
    assert abs(moment - datetime.datetime(2000, 1, 21)) <= datetime.timedelta(days=1)


@pytest.mark.parametrize("key", ["declared", "private"])
def test_groups(session: dpsql.Session, key: str) -> None:
    delta = ", delta = 1e-6" if key == "private" else ""
    text = f"SELECT WITH DP OPTIONS (epsilon = 4{delta}) {key}, MEDIAN(x) AS m, MAX(tiny) AS most FROM t GROUP BY {key}"
    rows = session.sql(text).fetchall()
    assert {key for key, *_ in rows} == set(range(2 + (key == "private")))
    for _, middle, most in rows:
        assert is_near(middle, 20)
        assert most > 0.04


def test_stable_medians_use_the_same_points(session: dpsql.Session) -> None:
    (answer,) = session.sql("SELECT WITH STABLE OPTIONS (epsilon = 1) MEDIAN(x) AS m FROM t").fetchone()
    assert is_near(answer, 20)


# -- the law -----------------------------------------------------------------------------------------------------------


def points(low: float, high: float, kind: str = "DOUBLE") -> tuple[Grid, GradedGrid | None]:
    """The even grid of a column within these bounds, and the finer one, if there is one."""
    typed = Type.parse(kind)
    grid = choose_points(typed, Fraction(low), Fraction(high))
    return grid, refine_points(typed, grid)


def miss(values: np.ndarray, grid: Grid, graded: GradedGrid | None, epsilon: Fraction = Fraction(1)) -> float:
    """The expected distance of a median from the true one, added up over the law of the answer."""
    low, high = (grid.low, grid.high) if graded is None else (graded.first, graded.last)
    if graded is None:
        steps = np.rint(values * float(grid.steps)).astype(np.int64)
    else:
        steps = np.array([graded.find_step(Fraction(v)) for v in values.tolist()])
    found, counts = np.unique(np.clip(steps, low, high), return_counts=True)
    rank = WantedRank(Fraction(1, 2))
    starts, sizes, utility = cut_segments(found, counts, low, high, rank)
    part = Quantiles("q", (), ("m",), (rank,), low, high, epsilon, geometric=graded)
    weights = part.weights(rank)
    heavy = sizes if weights is None else weights.add_before(starts + sizes) - weights.add_before(starts)
    weight = np.exp(float(part.rate(rank)) * utility.astype(float)) * heavy
    far = weight < 1e-15 * weight.sum()
    value = (lambda s: s / grid.steps) if graded is None else graded.value
    truth, total = float(np.median(values)), 0.0
    for start, size, w in zip(starts[~far], sizes[~far], weight[~far], strict=True):
        few = np.linspace(start, start + size - 1, min(int(size), 32)).astype(int)
        total += w / weight.sum() * np.mean([abs(float(value(int(s))) - truth) for s in few])
    return float(total)


RNG = np.random.default_rng(22)


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(1, 10)])
@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        pytest.param(RNG.normal(40, 12, 500).clip(0, 120), 0, 120, id="ages"),
        pytest.param(RNG.uniform(0, 1, 300), 0, 1, id="shares"),
        pytest.param(RNG.normal(0, 1, 1000).clip(-4, 4), -4, 4, id="both signs"),
        pytest.param(RNG.normal(37, 0.4, 200).clip(34, 43), 34, 43, id="far from zero"),
        pytest.param(RNG.exponential(10, 400).clip(0, 100), 0, 100, id="waits"),
    ],
)
def test_narrow_bounds_are_no_worse(values: np.ndarray, low: float, high: float, epsilon: Fraction) -> None:
    grid, graded = points(low, high)
    assert miss(values, grid, graded, epsilon) <= 1.01 * miss(values, grid, None, epsilon)


def test_points_of_one_weight_would_draw_medians_to_zero() -> None:
    """The control of the test above."""
    grid, graded = points(-4, 4)
    assert graded is not None
    flat = replace(graded)
    flat.__dict__["weights"] = PointWeights((flat.first,), (1,), flat.last + 1)
    tables = [np.random.default_rng(seed).normal(0, 1, 1000).clip(-4, 4) for seed in range(8)]
    even, finer, drawn = (sum(miss(values, grid, g) for values in tables) for g in (None, graded, flat))
    assert finer <= 1.01 * even < drawn / 1.2


def test_wide_bounds_are_a_hundred_times_better() -> None:
    values = 20 * np.exp(RNG.normal(0, 0.3, 2000))
    grid, graded = points(0, 10**6)
    assert graded is not None
    finer, even = miss(values, grid, graded), miss(values, grid, None)
    assert finer < 0.02 * 20 / 2
    assert even > 9, "the control: even points are 32 apart"


def test_types_that_need_no_finer_points_have_none() -> None:
    assert points(0, 120, "INTEGER")[1] is None
    assert points(0, 1000, "DECIMAL(10, 2)")[1] is None
    assert points(10**6 - 1, 10**6)[1] is None
    coarse, graded = points(0, 10**9, "BIGINT")
    assert coarse.steps < 1
    assert [graded.value(graded.find_step(Fraction(v))) for v in (0, 1, 7, 100)] == [0, 1, 7, 100]


POOL = (-2000.0, 0.0, 0.3, 20.0, 90_000.0)
"""Values of a row: beyond a bound, at 0, on the finest level, and on coarse ones."""


def read_histogram(
    con: duckdb.DuckDBPyConnection, part: Quantiles, values: Sequence[float]
) -> tuple[tuple[int, int], ...]:
    """The histogram that a release reads, of a table of these values."""
    con.execute("DELETE FROM few")
    if values:
        con.executemany("INSERT INTO few VALUES (?, ?)", list(enumerate(values)))
    return tuple(sorted(con.execute(part.query.replace(SALT, "12345")).fetchall()))


def law(part: Quantiles, steps: Sequence[tuple[int, int]], base: Fraction) -> list[tuple[int, Fraction]]:
    """Return where runs of points begin, and the probability of a point to a unit of weight: exp(-rate) is ``base``."""
    found, counts = (np.array([row[i] for row in steps], dtype=np.int64) for i in (0, 1))
    starts, sizes, utility = cut_segments(found, counts, part.low, part.high, part.ranks[0])
    weights = part.weights(part.ranks[0])
    sizes = weights.add_before(starts + sizes) - weights.add_before(starts)
    each = [base ** -int(u) for u in utility]
    total = sum((w * int(size) for w, size in zip(each, sizes, strict=True)), Fraction(0))
    return [(int(start), w / total) for start, w in zip(starts, each, strict=True)]


def loss(one: list[tuple[int, Fraction]], two: list[tuple[int, Fraction]]) -> Fraction:
    """The greatest ratio of the probabilities of a point: looked at wherever a run begins."""
    most = Fraction(0)
    for start in {start for start, _ in (*one, *two)}:
        p, q = (max(run for run in law if run[0] <= start)[1] for law in (one, two))
        most = max(most, p / q, q / p)
    return most


def test_loss_over_all_tables_of_up_to_three_rows(
    con: duckdb.DuckDBPyConnection, session: dpsql.Session
) -> None:
    """Go from rows to points by the engine, and on in rational numbers: exp(epsilon) is base to the -2 p-th power."""
    text = "SELECT WITH DP OPTIONS (epsilon = 1) QUANTILE_CONT(x, 0.25) AS q FROM few"
    (block,) = inside.bind(session, text).blocks
    (part,) = block.operator.parts
    assert isinstance(part, Quantiles)
    assert isinstance(part.geometric, GradedGrid)
    base = Fraction(4, 5)
    tables = [t for n in range(4) for t in itertools.combinations_with_replacement(POOL, n)]
    laws = {t: law(part, read_histogram(con, part, t), base) for t in tables}
    losses = {(t, v): loss(laws[t], laws[tuple(sorted((*t, v)))]) for t in tables if len(t) < 3 for v in POOL}
    allowed = base ** (-2 * part.ranks[0].sensitivity)
    assert base ** -part.ranks[0].sensitivity < max(losses.values()) <= allowed
    # the rest is for the ends
    assert part.rate(part.ranks[0]) == Fraction(3, 4) / (2 * part.ranks[0].sensitivity)
    twice = {t: law(part, read_histogram(con, part, t), base**2) for t in tables}
    worst = max(loss(twice[t], twice[tuple(sorted((*t, v)))]) for t, v in losses)
    assert worst > allowed, "the control: half the sensitivity"


@pytest.mark.parametrize(
    "text", ["SELECT MEDIAN(x) FROM t", "SELECT x > 0 AS k, MEDIAN(x) FROM t GROUP BY k"]
)
@pytest.mark.parametrize("value", [2.0**31 - 1, 2.0**31 - 7000])
def test_a_value_at_the_end_of_31_bits_ends_no_statement(text: str, value: float) -> None:
    """With more points near 0, the number of its point has 32 bits."""
    with duckdb.connect() as con:
        steps = float(choose_points(Type.parse("DOUBLE"), Fraction(0), Fraction(10**6)).steps)
        far = f"CAST('{value / steps!r}' AS DOUBLE)"
        for rows in ("SELECT range FROM range(40)", "SELECT 0 AS range"):
            con.execute(f"CREATE OR REPLACE TABLE t AS SELECT range AS u, {far} AS x FROM ({rows})")
            policy = dpsql.Policy.loads(
                'budget.epsilon = 9\ntables.t = { privacy_unit = "u", max_rows = 1, columns.x.bounds = [0, 1e6] }'
            )
            with dpsql.connect(con, policy=policy) as session:
                held = session.sql(text.replace("SELECT", "SELECT WITH DP OPTIONS (epsilon = 1)")).fetchall()
            assert all(0 <= row[-1] <= 10**6 for row in held)
