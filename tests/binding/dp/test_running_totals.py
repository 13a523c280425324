"""Running totals and ranges: which statements are seen to ask for them, what is chosen, and what a stored answer serves."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import sqlglot

import dpsql
from dpsql.binding.traced_columns import find_uses
from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.marginals import calibrate_together, find_pair
from dpsql.mechanisms.ordered_noise import (
    OrderedNoise,
    SquareRootNoise,
    TreeNoise,
    add_noise,
    list_square_root,
)
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise, Noise
from dpsql.mechanisms.strategies import EVEN, SQUARE_ROOT, TREE
from dpsql.mechanisms.window_widths import WindowSum
from dpsql.privacy.events import compose_events
from tests.support import inside
from tests.support.goodness import fixed
from tests.support.residuals import used_of

POLICY = """
budget = { epsilon = 1e12, delta = 0.5, accountant = "{accountant}", default_delta = 1e-6 }
[tables]
v = { privacy_unit = "id", max_rows_per_group = {rows}, max_groups = {groups}, columns = { \
    day = { bounds = [2024-01-01, {last}] }, w = { values = ["A", "B"] }, x = { bounds = [0, 10] }, \
    z = { bounds = [0.25, 7.5] }, y = { values = [0, 1, 2, 3] } } }
"""
DATA = """
CREATE TABLE v AS
SELECT n % 150 AS id, CASE WHEN n % 50 = 7 THEN NULL ELSE DATE '2024-01-01' + (n * n % 31 * 2)::INTEGER END AS day,
       CASE WHEN n % 3 = 0 THEN 'A' WHEN n % 41 = 5 THEN NULL ELSE 'B' END AS w, n % 11 AS x, n % 4 AS y,
       n % 7 + 0.5::DOUBLE AS z
FROM range(600) r(n)
"""


def opened(
    last: str = "2024-12-30", rows: int = 1, groups: int = 1, accountant: str = "basic", more: str = ""
) -> dpsql.Session:
    """Open a session; ``more`` is a SELECT of further rows by their number ``i``."""
    con = duckdb.connect()
    con.execute(DATA)
    if more:
        con.execute(f"INSERT INTO v BY NAME {more} FROM range(16) AS s(i)")
    text = POLICY
    for name, value in {"last": last, "rows": rows, "groups": groups, "accountant": accountant}.items():
        text = text.replace(f"{{{name}}}", str(value))
    return dpsql.connect(con, policy=dpsql.Policy.loads(text))


@pytest.fixture(scope="module")
def year() -> Iterator[dpsql.Session]:
    with opened(accountant="zcdp") as session:
        yield session


def noises(session: dpsql.Session, text: str) -> list[Noise]:
    """Return the noise of the statistics of a statement's one block."""
    block = inside.bind(session, text).blocks[-1]
    operator = getattr(block.operator, "aggregation", block.operator)
    assert isinstance(operator, Aggregation)
    return [statistic.noise for statistic in operator.statistics]


# -- what is seen ---------------------------------------------------------------------------------------------

_BLOCK = "WITH d AS (SELECT k0 AS day, k1 AS w, CAST(n AS BIGINT) AS n FROM block), e AS (SELECT * FROM d) "
_RUN = WindowSum("n", "k0", frozenset({"k1"}))


@pytest.mark.parametrize(
    ("text", "windows", "cells"),
    [
        ("SELECT SUM(n) OVER (PARTITION BY k1 ORDER BY k0) FROM block", [_RUN], []),
        (_BLOCK + "SELECT SUM(n) OVER (PARTITION BY w ORDER BY day) FROM d", [_RUN], []),
        (_BLOCK + "SELECT t.s / 2 FROM (SELECT SUM(e.n) OVER (PARTITION BY e.w ORDER BY e.day) AS s FROM e) AS t", [_RUN], []),
        (_BLOCK + "SELECT SUM(-n) OVER g FROM d WINDOW g AS (PARTITION BY w ORDER BY day)", [_RUN], []),
        (_BLOCK + "SELECT w, n, SUM(n) OVER (PARTITION BY w ORDER BY day) FROM d ORDER BY day", [_RUN], ["n"]),
        (
            _BLOCK + "SELECT SUM(n) OVER (PARTITION BY w ORDER BY day DESC) FROM d",
            [WindowSum("n", "k0", frozenset({"k1"}), descending=True)], [],
        ),
        # seen, but not weighed: they tell little of what noise is best
        (_BLOCK + "SELECT SUM(n) OVER (ORDER BY day DESC) FROM d", [], []),
        (_BLOCK + "SELECT SUM(n) OVER () FROM d", [], []),
        (_BLOCK + "SELECT 100 / SUM(n) OVER (PARTITION BY w ORDER BY day) FROM d", [], []),
        (_BLOCK + "SELECT SUM(n / 2) OVER (PARTITION BY w ORDER BY day) FROM d", [], []),
        (_BLOCK + "SELECT SUM(n) OVER (PARTITION BY w ORDER BY day) FROM d LIMIT 3", [], []),
        (
            _BLOCK + "SELECT AVG(n) OVER (PARTITION BY w ORDER BY day ROWS BETWEEN 6 PRECEDING AND 1 FOLLOWING) FROM d",
            [WindowSum("n", "k0", frozenset({"k1"}), -6, 1, mean=True)], [],
        ),
        (
            _BLOCK + "SELECT SUM(n) OVER (PARTITION BY w ORDER BY day ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) FROM d",
            [WindowSum("n", "k0", frozenset({"k1"}), 0, None)], [],
        ),
        # not seen, so that each is a use of single cells
        (_BLOCK + "SELECT SUM(n) OVER (PARTITION BY w ORDER BY day) FROM d WHERE n > 0", [], ["n", "n"]),
        (_BLOCK + "SELECT SUM(n) OVER (ORDER BY day, w) FROM d", [], ["n"]),
        (_BLOCK + "SELECT SUM(n) OVER (ORDER BY n) FROM d", [], ["n", "n"]),
        (_BLOCK + "SELECT SUM(n) OVER (ORDER BY day ROWS 6 PRECEDING) FROM d", [], ["n"]),
        (_BLOCK + "SELECT SUM(GREATEST(n, 0)) OVER (PARTITION BY w ORDER BY day) FROM d", [], ["n"]),
        (_BLOCK + "SELECT MAX(n) OVER (PARTITION BY w ORDER BY day) FROM d", [], ["n"]),
        (_BLOCK + "SELECT SUM(n) FILTER (WHERE n > 0) OVER (ORDER BY day) FROM d", [], ["n", "n"]),
        (_BLOCK + "SELECT SUM(n) OVER (ORDER BY day RANGE BETWEEN INTERVAL 6 DAYS PRECEDING AND CURRENT ROW) FROM d", [], ["n"]),
        (_BLOCK + "SELECT SUM(n) OVER (PARTITION BY w ORDER BY day ROWS 6 PRECEDING EXCLUDE CURRENT ROW) FROM d", [], ["n"]),
        (_BLOCK + "SELECT SUM(d.n) OVER (PARTITION BY d.w ORDER BY d.day) FROM d JOIN e USING (day)", [], ["n"]),
        (_BLOCK + "SELECT SUM(n) OVER (PARTITION BY w ORDER BY day) FROM (SELECT * FROM d LIMIT 3) AS t", [], ["n"]),
        (_BLOCK + "SELECT day, SUM(n) FROM d GROUP BY day", [], ["n"]),
    ],
)  # fmt: skip
def test_what_is_seen_to_be_a_sum_over_neighbours(
    text: str, windows: list[WindowSum], cells: list[str]
) -> None:
    tree = sqlglot.parse_one(text, dialect="duckdb")
    uses = find_uses(tree, "block", ["k0", "k1"], ["n"])
    assert list(uses.windows) == windows
    assert list(uses.cells) == cells


@pytest.mark.parametrize("over", ["PARTITION BY y", "PARTITION BY y ORDER BY day", "ORDER BY day"])
@pytest.mark.parametrize("keys", ["day, y", "y, day"])
def test_noise_does_not_go_by_the_order_of_what_parts_a_window(
    year: dpsql.Session, over: str, keys: str
) -> None:
    """Keys of a window are known under LIMIT, where nobody can tell the errors of its sums."""
    options = "epsilon = 1, delta = 1e-6, strategy = TREE"
    block = f"SELECT WITH DP OPTIONS ({options}) day, y, COUNT(*) AS n FROM v GROUP BY {keys}"
    plan = inside.bind(year, f"WITH d AS ({block}) SELECT SUM(n) OVER ({over}) AS s FROM d LIMIT 5")
    assert any("follow the order of day" in said for said in plan.blocks[-1].sentences)


def test_frames_are_those_of_the_engine() -> None:
    """The steps of each frame, beside DuckDB's sums of powers of two."""

    def side(steps: int | None, far: str) -> str:
        return far if steps is None else f"{abs(steps)} {'FOLLOWING' if steps > 0 else 'PRECEDING'}"

    for start, end in [(None, 0), (None, None), (0, None), (-6, 0), (-2, 3), (1, 4), (-3, -1)]:
        for falling in (False, True):
            order = f"ORDER BY i {'DESC' if falling else ''}"
            frame = f"{side(start, 'UNBOUNDED PRECEDING')} AND {side(end, 'UNBOUNDED FOLLOWING')}"
            over = f"{order} ROWS BETWEEN {frame}"
            found = duckdb.sql(f"SELECT SUM(1 << i) OVER ({over}) FROM range(12) r(i) {order}")
            direct = [int(total) for (total,) in found.fetchall() if total is not None]
            first, last = WindowSum("n", "k0", frozenset(), start, end, falling).list_ranges(12)
            assert [sum(1 << k for k in range(a, b + 1)) for a, b in zip(first, last, strict=True)] == direct


# -- what is chosen -------------------------------------------------------------------------------------------

RUNNING = "SELECT WITH DP OPTIONS ({0}) day, SUM(COUNT(*)) OVER (ORDER BY day) AS n FROM v GROUP BY day"
PLAIN = "SELECT WITH DP OPTIONS ({0}, group_selection_strategy = PUBLIC_GROUPS) day, COUNT(*) AS n FROM v GROUP BY day"


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ("epsilon = 1", TreeNoise), ("epsilon = 1, delta = 1e-6, noise = GAUSSIAN", SquareRootNoise),
        ("mu = 0.5", SquareRootNoise),
        ("epsilon = 1, strategy = EVEN", LaplaceNoise), ("epsilon = 1, strategy = SQUARE_ROOT", SquareRootNoise),
        ("mu = 0.5, strategy = TREE", TreeNoise), ("mu = 0.5, strategy = EVEN", GaussianNoise),
    ],
)  # fmt: skip
def test_a_year_of_running_totals(year: dpsql.Session, options: str, kind: type[Noise]) -> None:
    (noise,) = noises(year, RUNNING.format(options))
    assert isinstance(noise, kind)
    said = year.explain(RUNNING.format(options))
    if "EVEN" not in options:
        assert isinstance(noise, OrderedNoise)
        assert f"Strategy: {noise.word}, " in str(said)
        (told,) = json.loads(said.json())["strategies"]
        assert told["chosen"] == noise.word
        assert list(told["expected_rmse"]) == [EVEN, TREE, SQUARE_ROOT]


def test_frames_beyond_all_steps_ask_for_nothing(year: dpsql.Session) -> None:
    text = "SELECT WITH DP OPTIONS (epsilon = 1) w, SUM(COUNT(*)) OVER (ORDER BY w ROWS BETWEEN 2 FOLLOWING AND 5 FOLLOWING) AS n"
    assert all(isinstance(noise, LaplaceNoise) for noise in noises(year, f"{text} FROM v GROUP BY w"))
    forced = text.replace("epsilon = 1", "epsilon = 1, strategy = TREE")
    assert [n for _, n in year.sql(f"{forced} FROM v GROUP BY w").fetchall()] == [None, None]


@pytest.mark.parametrize(("last", "groups"), [("2024-01-02", 1), ("2024-01-12", 1), ("2024-02-29", 5)])
@pytest.mark.parametrize("accountant", ["basic", "zcdp", "gdp"])
def test_never_worse_than_plain_noise(last: str, groups: int, accountant: str) -> None:
    """Nor dearer, in the currency of the session: two, 12 and 60 steps, windows of all kinds."""
    own = {"basic": "epsilon = 50", "zcdp": "rho = 0.1", "gdp": "mu = 0.5"}[accountant]
    with opened(last, groups=groups, accountant=accountant) as session:
        for options in ("epsilon = 1", own):
            for frame in ("", " DESC", " ROWS 1 PRECEDING", " ROWS 6 PRECEDING"):
                text = (
                    f"SELECT WITH DP OPTIONS ({options}) day, SUM(x) AS s, SUM(SUM(x)) OVER (ORDER BY day{frame}) AS t, "
                    f"SUM(COUNT(*)) OVER (ORDER BY day{frame}) AS n FROM v GROUP BY day"
                )
                plan = inside.bind(session, text)
                even = inside.bind(session, text.replace(options, options + ", strategy = EVEN"))
                choice = plan.blocks[0].strategy
                errors = choice.by_name()
                assert all(errors[choice.chosen][column] <= error for column, error in errors[EVEN].items())
                assert plan.event.basic == even.event.basic or accountant != "basic"
                if accountant == "zcdp":
                    assert plan.event.rho <= even.event.rho * (1 + Fraction(1, 10**6))
                if accountant == "gdp":
                    assert plan.event.mu <= even.event.mu * (1 + Fraction(1, 10**6))


def test_each_column_has_what_serves_it(year: dpsql.Session) -> None:
    """A running total by a tree, a sum of two days by plain noise; a mean beside them keeps its own."""
    text = (
        "SELECT WITH DP OPTIONS (epsilon = 3) day, SUM(COUNT(*)) OVER (ORDER BY day) AS n, "
        "SUM(SUM(x)) OVER (ORDER BY day ROWS 1 PRECEDING) AS s, AVG(x) AS m FROM v GROUP BY day"
    )
    kinds = [type(noise) for noise in noises(year, text)]
    assert kinds[:2] == [TreeNoise, LaplaceNoise]
    assert set(kinds[2:]) == {LaplaceNoise}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT WITH DP OPTIONS (epsilon = 1, strategy = TREE) COUNT(*) FROM v", "no key has values"),
        ("SELECT WITH DP OPTIONS (epsilon = 1, strategy = TREE) day, MAX(x) FROM v GROUP BY day", "no output adds up"),
        ("SELECT WITH DP OPTIONS (epsilon = 1, strategy = SQUARE_ROOT) day, AVG(x) FROM v GROUP BY day", "no output adds up"),
        ("SELECT WITH DP OPTIONS (epsilon = 1, strategy = TREE, error = 5) day, COUNT(*) FROM v GROUP BY day", "an error"),
        (
            "SELECT WITH DP OPTIONS (epsilon = 1, strategy = TREE, max_groups_contributed = AUTO) day, COUNT(*) FROM v "
            "GROUP BY day",
            "caps are found",
        ),
        ("SELECT WITH DP OPTIONS (epsilon = 1, strategy = MARGINALS) day, COUNT(*) FROM v GROUP BY day", "grouping sets"),
        ("SELECT WITH DP OPTIONS (epsilon = 1, strategy = TREE) day, COUNT(*) FROM v GROUP BY ROLLUP (day)", "ordered"),
        ("SELECT WITH DP OPTIONS (epsilon = 1, strategy = LINE) day, COUNT(*) FROM v GROUP BY day", "can't be LINE"),
    ],
)  # fmt: skip
def test_what_has_no_order_is_refused_and_free(year: dpsql.Session, text: str, why: str) -> None:
    before = str(year.budget())
    with pytest.raises(dpsql.Error, match=why) as caught:
        year.sql(text)
    assert caught.value.span is not None
    assert str(year.budget()) == before


# -- the numbers ----------------------------------------------------------------------------------------------

WINDOWS = [
    "SUM(n) OVER (PARTITION BY w ORDER BY day)",
    "SUM(n) OVER (PARTITION BY w ORDER BY day DESC)",
    "SUM(s) OVER (PARTITION BY w ORDER BY day ROWS BETWEEN 6 PRECEDING AND CURRENT ROW)",
    "SUM(s) OVER (ORDER BY day)",
    "SUM(n) OVER (PARTITION BY w ORDER BY day) / SUM(n) OVER (PARTITION BY w)",
    "AVG(s) OVER (PARTITION BY w ORDER BY day ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING)",
]


@pytest.mark.parametrize("strategy", ["AUTO", "TREE", "SQUARE_ROOT"])
@pytest.mark.parametrize("noise", ["LAPLACE", "GAUSSIAN"])
def test_without_noise_all_is_as_plain_duckdb_has_it(strategy: str, noise: str) -> None:
    """Units with more rows and days than are counted, days and wards that are NULL, days without rows."""
    options = f"epsilon = 1e9, delta = 1e-9, noise = {noise}, strategy = {strategy}"
    with opened("2024-03-10", rows=2, groups=70) as session:
        con = duckdb.connect()
        con.execute(DATA)
        capped = (
            "SELECT day, w, LEAST(COUNT(*), 2) AS n, LEAST(SUM(x), 20) AS s FROM v WHERE day IS NOT NULL AND w IS NOT NULL "
            "GROUP BY id, day, w"
        )
        days = (
            "SELECT d::DATE AS day, w FROM range(DATE '2024-01-01', DATE '2024-03-11', INTERVAL 1 DAY) r(d), "
            "(VALUES ('A'), ('B')) t(w)"
        )
        plain = (
            f"WITH d AS (SELECT day, w, COALESCE(SUM(n), 0) AS n, COALESCE(SUM(s), 0) AS s FROM ({days}) LEFT JOIN ({capped}) "
            "USING (day, w) GROUP BY day, w) "
        )
        private = (
            f"WITH d AS (SELECT WITH DP OPTIONS ({options}, max_groups_contributed = 70) day, w, COUNT(*) AS n, SUM(x) AS s "
            "FROM v GROUP BY day, w) "
        )
        above = f"SELECT day, w, n, s, {', '.join(WINDOWS)} FROM d ORDER BY day, w"
        direct = con.sql(plain + above).fetchall()
        released = session.sql(private + above).fetchall()
        assert len(direct) == 140
        assert sum(row[2] for row in direct) > 300
        for mine, its in zip(released, direct, strict=True):
            assert mine[:2] == its[:2]
            assert [float(v) for v in mine[2:]] == pytest.approx([float(v) for v in its[2:]], abs=1e-6)


def test_units_in_many_steps_are_capped_before_any_sum() -> None:
    """A unit that is on every day counts on as many as it may, and so much in the total over all days."""
    with opened("2024-03-10", rows=1, groups=3) as session:
        total = session.sql(RUNNING.format("epsilon = 1e9, strategy = TREE")).fetchall()[-1][1]
        assert 150 <= total <= 150 * 3


# -- a stored answer ------------------------------------------------------------------------------------------


def test_a_stored_tree_serves_every_statement_over_its_block() -> None:
    with opened() as session:
        first = session.sql(RUNNING.format("epsilon = 1"))
        assert first.loss == "ε=1"
        totals = {day: int(n) for day, n in first.fetchall()}
        block = PLAIN.format("epsilon = 1")
        days = session.sql(block)
        assert days.loss == "no charge"
        ends = sorted(totals)
        assert dict(days.fetchall()) == {
            day: totals[day] - (totals[ends[i - 1]] if i else 0) for i, day in enumerate(ends)
        }
        span = session.sql(
            f"SELECT SUM(n) FROM ({block}) AS d WHERE day BETWEEN '2024-03-01' AND '2024-05-30'"
        )
        assert span.loss == "no charge"
        low, high = (day for day in ends if str(day) in ("2024-02-29", "2024-05-30"))
        assert span.fetchone() == (totals[high] - totals[low],)
        week = RUNNING.replace("ORDER BY day)", "ORDER BY day ROWS 6 PRECEDING)")
        again = session.sql(week.format("epsilon = 1"))
        assert again.loss == "no charge"
        assert any("the strategy TREE: a fresh one" in note and "by EVEN has" in note for note in again.notes)


def test_a_stored_plain_answer_is_free_and_says_what_a_fresh_one_is_worth() -> None:
    with opened() as session:
        session.sql(PLAIN.format("epsilon = 1"))
        text = RUNNING.format("epsilon = 1")
        said = str(session.explain(text))
        assert "cost nothing" in said
        assert "by TREE has 2.0" in said
        found = session.sql(text)
        assert found.loss == "no charge"
        assert sum("the strategy EVEN: a fresh one" in note for note in found.notes) == 1
        forced = session.sql(RUNNING.format("epsilon = 1, strategy = TREE"))
        assert forced.loss == "ε=1"
        fresh = session.sql(text, fresh=True)
        assert fresh.loss == "ε=1"
        assert not any("strategy" in note for note in fresh.notes)
        assert session.sql(text).loss == "no charge"
        assert not any("strategy" in note for note in session.sql(text).notes)


@pytest.mark.parametrize("strategy", ["TREE", "SQUARE_ROOT"])
def test_errors_are_those_of_the_strategy_that_the_answer_is_stored_by(strategy: str) -> None:
    text = PLAIN.format("epsilon = 1")
    with opened() as session:
        plain = session.explain(text).expected_error["n"]
        forced = session.sql(PLAIN.format(f"epsilon = 1, strategy = {strategy}"))
        told = session.explain(text)
        found = session.sql(text)
        assert found.loss == "no charge"
        assert found.expected_error == told.expected_error == forced.expected_error
        times = found.expected_error["n"] / plain
        assert times > 3
        (note,) = (note for note in found.notes if "strategy" in note)
        assert f"the strategy {strategy}: a fresh one" in note
        assert "less error in single numbers" in note
        more = float(note.split(" by EVEN has ")[1].split()[0])
        assert more == pytest.approx(times, rel=0.25)  # of mean errors, and of roots of mean squares
        assert f"{strategy}: a fresh one" in str(told)
        assert "neighbouring steps" in str(told) or "square root" in str(told)
        span = session.sql(f"SELECT SUM(n) FROM ({text}) AS d WHERE day > '2024-03-01'")
        assert span.loss == "no charge"
        # sums over many days are what it is good at
        assert not any("strategy" in note for note in span.notes)
        fresh = session.sql(text, fresh=True)
        assert fresh.expected_error["n"] == plain


@pytest.mark.parametrize("accountant", ["basic", "zcdp", "gdp", "rdp"])
def test_a_strategy_that_was_forced_serves_every_statement_over_its_block(accountant: str) -> None:
    """Where the session counts in another currency AUTO would hold the strategy to what plain noise costs there."""
    days = PLAIN.format("epsilon = 1")
    for strategy in ("TREE", "SQUARE_ROOT"):
        with opened(rows=2, groups=6, accountant=accountant) as session:
            session.sql(PLAIN.format(f"epsilon = 1, strategy = {strategy}"))
            spent = session.budget().spent
            since = f"SELECT SUM(n) FROM ({days}) AS d WHERE day > '2024-03-01'"
            for text in (days, RUNNING.format("epsilon = 1"), since):
                assert session.sql(text).loss == "no charge"
            assert session.budget().spent == spent


def test_equal_blocks_of_one_statement_or_plan_are_one_draw() -> None:
    """The days and their running totals: one charge, in either order, and they add up."""
    block = PLAIN.format("epsilon = 1")
    with opened() as session:
        text = (
            f"WITH a AS ({block}), b AS ({block}) SELECT a.n, t.s FROM a JOIN "
            "(SELECT day, SUM(n) OVER (ORDER BY day) AS s FROM b) AS t USING (day) ORDER BY day"
        )
        found = session.sql(text)
        assert found.loss == "ε=1"
        run = 0
        for n, s in found.fetchall():
            run += n
            assert s == run
    for texts in ([block, RUNNING.format("epsilon = 1")], [RUNNING.format("epsilon = 1"), block]):
        with opened() as session:
            with session.plan() as plan:
                for text in texts:
                    plan.sql(text)
            results = plan.results
            assert session.budget().spent_epsilon == 1
            days, totals = results if texts[0] == block else results[::-1]
            assert sum(n for _, n in days.fetchall()) == max(totals.fetchall())[1]


def test_a_plan_calibrates_the_noise_of_running_totals_with_the_rest() -> None:
    """Two blocks of Gaussian noise in one plan cost what they cost, and have less noise than apart."""
    texts = [
        "SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, noise = GAUSSIAN) w, COUNT(*) AS n FROM v GROUP BY w",
        RUNNING.format("epsilon = 1, delta = 1e-6, noise = GAUSSIAN"),
    ]
    with opened() as session:
        operators = [inside.bind(session, text).blocks[0].operator for text in texts]
        assert [find_pair(operator) for operator in operators] == [(Fraction(1), Fraction(1, 10**6))] * 2
        joint = calibrate_together(operators)
        for one, other in zip(operators, joint, strict=True):
            mine, its = (o.statistics[0].noise.variance for o in (one, other))  # type: ignore[attr-defined]
            assert its < mine
        event = compose_events(operator.event for operator in joint)
        assert event.basic == (2, Fraction(2, 10**6))


WINDOW_ERRORS = {
    "n": "SUM(n) OVER (PARTITION BY w ORDER BY day)",
    "half": "SUM(n * 3) OVER (PARTITION BY w ORDER BY day DESC) / 2 + 1",
    "week": "AVG(n) OVER (PARTITION BY w ORDER BY day ROWS 6 PRECEDING)",
    "wards": "SUM(n) OVER (ORDER BY day)",
    "ward": "SUM(n) OVER (PARTITION BY w)",
    "one": "n",
}


@pytest.mark.parametrize("strategy", ["EVEN", "TREE", "SQUARE_ROOT"])
@pytest.mark.parametrize("noise", ["LAPLACE", "GAUSSIAN"])
def test_expected_errors_of_windows_are_those_that_are_found(strategy: str, noise: str) -> None:
    """Answers over no rows, so that what is shown is the error; a few more windows than have intervals have errors too.

    The noise is drawn 2,000 times, by the same entropy in every run of the test, and plain DuckDB adds up its windows.
    """
    options = f"epsilon = 1, delta = 1e-6, noise = {noise}, strategy = {strategy}"
    more = ", ".join(
        f"SUM(n) OVER (PARTITION BY w ORDER BY day ROWS {i} PRECEDING) AS m{i}" for i in range(4)
    )
    shown = ", ".join(f"{item} AS {name}" for name, item in WINDOW_ERRORS.items())
    block = f"SELECT WITH DP OPTIONS ({options}) day, w, COUNT(*) AS n FROM v WHERE id < 0 GROUP BY day, w"
    text = f"WITH d AS ({block}), e AS (SELECT {shown}, {more} FROM d) SELECT * FROM e"
    with opened("2024-02-09") as session:
        told = session.explain(text).expected_error
        assert list(told) == [*WINDOW_ERRORS, "m0", "m1", "m2", "m3"]
        assert session.sql(text).expected_error == told
        (drawn,) = noises(session, text)
    days, runs = np.arange(40), np.arange(2000 * 2 * 40).reshape(-1, 40)
    noisy = add_noise(
        drawn, np.zeros(runs.size, dtype=np.int64), list(runs), fixed(f"windows/{strategy}/{noise}")
    )
    run = np.repeat(np.arange(len(runs)), len(days))
    released = pa.table({"draw": run // 2, "w": run % 2, "day": np.tile(days, len(runs)), "n": noisy})
    parted = [
        item.replace("PARTITION BY", "PARTITION BY draw,").replace("(ORDER", "(PARTITION BY draw ORDER")
        for item in WINDOW_ERRORS.values()
    ]
    errors = ", ".join(f"ABS({item} - {'+ 1' in item:d}) AS e{i}" for i, item in enumerate(parted))
    means = ", ".join(f"AVG(e{i})" for i in range(len(parted)))
    assert released.num_rows == 160_000
    found = duckdb.sql(f"SELECT {means} FROM (SELECT {errors} FROM released)").fetchall()[0]
    # What is told is the mean of Gaussian noise of the same variance. Noises of Laplace that add up are off by less than that,
    # and by more than one of them.
    least = math.sqrt(math.pi) / 2 if noise == "LAPLACE" else 1.0
    for mean, (name, error) in zip(found, told.items(), strict=False):
        assert 0.94 * least * error < mean < 1.06 * error, name


def test_nothing_is_told_of_windows_that_are_not_sums_of_neighbours(year: dpsql.Session) -> None:
    quotient = "SUM(n) OVER (ORDER BY day) / SUM(n) OVER ()"
    for item in ("MAX(n) OVER (ORDER BY day)", quotient, "SUM(n) OVER (ORDER BY n)"):
        text = f"SELECT {item} AS t FROM ({PLAIN.format('epsilon = 1')}) AS d"
        assert year.explain(text).expected_error == {}
    far = RUNNING.replace("ORDER BY day)", "ORDER BY day ROWS BETWEEN 900 FOLLOWING AND 901 FOLLOWING)")
    assert year.explain(far.format("epsilon = 1")).expected_error == {}


# -- intervals ------------------------------------------------------------------------------------------------

SHOWN = [
    "SUM(n) OVER (PARTITION BY w ORDER BY day)",
    "SUM(n) OVER (PARTITION BY w ORDER BY day DESC)",
    "-(SUM(n) OVER (PARTITION BY w ORDER BY day ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING))",
    "AVG(n) OVER (PARTITION BY w ORDER BY day ROWS 6 PRECEDING)",
    "SUM(n) OVER (ORDER BY day) / 2 + 1",
    "SUM(n) OVER g",
]


@pytest.mark.stochastic
@pytest.mark.parametrize("strategy", ["EVEN", "TREE", "SQUARE_ROOT"])
@pytest.mark.parametrize("noise", ["LAPLACE", "GAUSSIAN"])
def test_intervals_of_windows_hold_the_truth(strategy: str, noise: str) -> None:
    check_intervals(strategy, noise, 100)


@pytest.mark.parametrize(
    ("strategy", "noise"), [("EVEN", "LAPLACE"), ("TREE", "LAPLACE"), ("SQUARE_ROOT", "GAUSSIAN")]
)
def test_intervals_of_windows_hold_the_truth_in_short(strategy: str, noise: str) -> None:
    check_intervals(strategy, noise, 16)


def check_intervals(strategy: str, noise: str, draws: int) -> None:
    """See that intervals at 90 % hold the truth, and are not so wide that they say nothing."""
    options = f"epsilon = 1, delta = 1e-6, noise = {noise}, strategy = {strategy}, confidence = 0.9"
    names = [f"c{i}" for i in range(len(SHOWN))]
    items = ", ".join(f"{shown} AS {name}" for shown, name in zip(SHOWN, names, strict=True))
    block = "(SELECT WITH DP OPTIONS ({0}) day, w, COUNT(*) AS n FROM v WHERE id < 0 GROUP BY day, w)"
    above = f"SELECT day, w, {items} FROM d WINDOW g AS (PARTITION BY w) ORDER BY day, w"
    with opened("2024-02-09") as session:
        text = f"WITH d AS {block.format(options)} {above}"
        held = {name: [0, 0] for name in names}
        for _ in range(draws):
            result = session.sql(text, fresh=True)
            assert not any("no interval" in note for note in result.notes)
            for place, name in enumerate(names, 2):
                truth = 1.0 if "+ 1" in SHOWN[place - 2] else 0.0
                for row, ends in zip(result.fetchall(), result.intervals[name], strict=True):
                    if row[place] is None:
                        assert ends is None
                        continue
                    low, high = ends
                    assert low <= row[place] <= high
                    held[name][0] += low <= truth <= high
                    held[name][1] += 1
        for hits, rows in held.values():  # neighbouring totals have noise in common: few of them are apart
            assert hits / rows > 0.9 - 1.2 / math.sqrt(draws)
        assert sum(hits / rows for hits, rows in held.values()) / len(held) < 0.995


def test_intervals_are_those_of_the_answer_and_not_of_the_plan() -> None:
    """A stored answer by plain noise has its own widths in a statement that would have chosen a tree."""
    text = RUNNING.format("epsilon = 1")
    with opened() as session:
        session.sql(PLAIN.format("epsilon = 1"))
        stored = session.sql(text)
        fresh = session.sql(text, fresh=True)
        wide, narrow = (result.intervals["n"][-1] for result in (stored, fresh))
        z = math.log(1 / 0.05) / math.sqrt(2)
        assert wide[1] - wide[0] == pytest.approx(2 * z * math.sqrt(1.8414 * 365), rel=0.02)
        assert narrow[1] - narrow[0] < (wide[1] - wide[0]) / 2
        session.keep("totals", fresh)
        assert session.sql("SELECT n FROM totals").intervals["n"] == fresh.intervals["n"]


@pytest.mark.parametrize(
    ("inner", "plain", "factor"),
    [
        ("SUM(n * 100)", "SUM(n)", 100), ("SUM(n / 2)", "SUM(n)", 0.5), ("SUM(-(n * 2.5))", "SUM(n)", -2.5),
        ("SUM(n::INT * 3 / 2)", "SUM(n)", 1.5), ("AVG(n * 10)", "AVG(n)", 10), ("SUM(CAST(n AS DOUBLE) * 4)", "SUM(n)", 4),
        ("SUM(s * 10)", "SUM(s)", 10), ("SUM(CAST(s AS DOUBLE))", "SUM(s)", 1),
        ("SUM(CAST(n / 2 AS INTEGER))", "", None), ("SUM(CAST(s AS INTEGER))", "", None), ("SUM(short)", "", None),
        ("SUM(n * 0)", "", None),
    ],
)  # fmt: skip
def test_intervals_of_multiples_are_multiples(inner: str, plain: str, factor: float | None) -> None:
    """Of what is multiplied or divided below the sum; numbers that are rounded one by one add their rounding up."""
    block = "SELECT WITH DP OPTIONS (epsilon = 1) day, COUNT(*) AS n, SUM(z) AS s FROM v GROUP BY day"
    with opened("2024-02-09") as session:
        shown = f"{inner} OVER (ORDER BY day) AS a, {plain or 'SUM(n)'} OVER (ORDER BY day) AS b"
        text = f"WITH d AS ({block}), e AS (SELECT day, n, s, CAST(s AS DECIMAL(18, 1)) AS short FROM d) SELECT {shown} FROM e"
        found = session.sql(text)
        assert "b" in found.intervals
        assert ("a" in found.intervals) == (factor is not None)
        for one, other in zip(found.intervals.get("a", ()), found.intervals["b"], strict=False):
            assert factor is not None
            assert sorted(one) == pytest.approx(sorted(end * factor for end in other))


def test_frames_without_rows_and_filtered_ones_have_no_interval() -> None:
    with opened("2024-02-09") as session:
        text = RUNNING.format("epsilon = 1").replace(
            "ORDER BY day)", "ORDER BY day ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING)"
        )
        result = session.sql(text)
        assert result.fetchall()[0][1] is None
        assert result.intervals["n"][0] is None
        assert result.intervals["n"][1] is not None
        filtered = text.replace("GROUP BY day", "GROUP BY day HAVING COUNT(*) > 0")
        assert "n" not in session.sql(filtered).intervals


def test_long_statements_go_on_without_them() -> None:
    """As many windows as fit the limits of what stands above a block; none is refused for its intervals."""
    with opened("2024-02-09") as session:
        for count in (8, 9, 40):
            items = ", ".join(f"SUM(n) OVER (ORDER BY day ROWS {i} PRECEDING) AS c{i}" for i in range(count))
            result = session.sql(f"WITH d AS ({PLAIN.format('epsilon = 1')}) SELECT {items} FROM d")
            assert len(result.intervals) == (count if count <= 8 else 0)


# -- neighbours -----------------------------------------------------------------------------------------------

UNITS = {
    "in neighbouring steps": "SELECT 5000 AS id, DATE '2024-01-01' + (i // 2)::INTEGER AS day, 'A' AS w, 10 AS x, 1 AS y",
    "in one step": "SELECT 5000 AS id, DATE '2024-01-04' AS day, CASE WHEN i % 2 = 0 THEN 'A' ELSE 'B' END AS w, i AS x, 1 AS y",
    "in steps far apart": "SELECT 5000 AS id, DATE '2024-01-01' + (i * 3)::INTEGER AS day, 'B' AS w, 12 - i AS x, i % 4 AS y",
    "beyond all": "SELECT 5000 AS id, CASE i % 3 WHEN 0 THEN DATE '2024-01-02' WHEN 1 THEN DATE '2031-01-01' END AS day, "
    "NULL AS w, 99 AS x, 9 AS y",
}
NUMBERS = ["COUNT(*)", "COUNT(w)", "SUM(x)", "SUM(x) FILTER (WHERE y = 1)", "COUNT_IF(x > 4)"]
FRAMES = [
    "", " DESC", " ROWS 2 PRECEDING", " ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING",
    " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
]  # fmt: skip


def write_statement(dice: random.Random) -> str:
    """Write a statement with running totals, or without any where a strategy is forced."""
    order = dice.choice(["day", "day", "day", "y"])
    others = dice.sample([key for key in ("day", "w", "y") if key != order], dice.choice([0, 0, 1]))
    keys = [order, *others]
    dice.shuffle(keys)
    parted = f"PARTITION BY {', '.join(others)} " if others and dice.random() < 0.8 else ""
    options = dice.choice(["epsilon = 1", "rho = 0.2", "epsilon = 1, delta = 1e-6, noise = GAUSSIAN"])
    strategy = dice.choice(["AUTO", "TREE", "TREE", "SQUARE_ROOT", "SQUARE_ROOT"])
    caps = dice.choice(["", "", "", ", max_rows_contributed = 4", ", max_groups_contributed = 3"])
    numbers = dice.sample(NUMBERS, dice.randint(1, 2))
    windows = strategy == "AUTO" or dice.random() < 0.5
    items = [
        f"SUM({number}) OVER ({parted}ORDER BY {order}{dice.choice(FRAMES)})" if windows else number
        for number in numbers
    ]
    shown = ", ".join(f"{item} AS n{i}" for i, item in enumerate(items))
    where = dice.choice(["", "", " WHERE x > 2", " WHERE w = 'A'", " WHERE day < DATE '2024-01-09'"])
    return (
        f"SELECT WITH DP OPTIONS ({options}, strategy = {strategy}{caps}) {', '.join(keys)}, {shown} FROM v{where} "
        f"GROUP BY {', '.join(keys)}"
    )


def list_moved(noise: OrderedNoise, moved: np.ndarray) -> list[np.ndarray]:
    """Return how the vectors that get noise move where one run's steps move so, by their definitions."""
    if isinstance(noise, TreeNoise):
        sizes = [noise.branches**level for level in range(noise.levels)]
        return [
            np.array([sum(moved[i : i + size]) for i in range(0, len(moved), size)], dtype=object)
            for size in sizes
        ]
    n, r = len(moved), [int(v) for v in list_square_root(len(moved))]
    return [np.array([sum(r[i - j] * moved[j] for j in range(i + 1)) for i in range(n)], dtype=object)]


def check_neighbours(count: int, seed: int, every: int = 1) -> dict[str, int]:
    """Compare plans and exact steps with and without a unit; return how many statements were planned, and how far it went.

    Plans are compared for one statement in ``every``, exact steps for all. The control, ``root``,
    counts what noise for the root of the steps that a unit is in would not have covered.
    """
    dice = random.Random(seed)
    found = dict.fromkeys(("planned", "refused", "ordered", "moved", "full", "root"), 0)
    with opened("2024-01-12", rows=2, groups=4, accountant="zcdp") as without:
        for unit in UNITS.values():
            with opened("2024-01-12", rows=2, groups=4, accountant="zcdp", more=unit) as with_it:
                for i in range(count):
                    compare(with_it, without, write_statement(dice), found, i % every == 0)
    return found


def compare(one: dpsql.Session, other: dpsql.Session, text: str, found: dict[str, int], both: bool) -> None:
    try:
        plans = [inside.planned(session, text) for session in ((one, other) if both else (one,))]
    except dpsql.BindError:
        found["refused"] += 1
        return
    found["planned"] += 1
    assert repr(plans[0].blocks) == repr(plans[-1].blocks)
    operator = plans[0].blocks[-1].operator
    assert isinstance(operator, Aggregation)
    tables = [inside.read_cells(session, operator, operator) for session in (one, other)]
    groups = [table.select(operator.keys).to_pylist() for table in tables]
    assert groups[0] == groups[1]
    runs: dict[str, list[int]] = {}
    for place, row in enumerate(groups[0]):
        runs.setdefault(str([row[key] for key in operator.keys if key != operator.ordered]), []).append(place)
    for run in runs.values():
        run.sort(key=lambda place: groups[0][place][operator.ordered or operator.keys[0]])
    for statistic in operator.statistics:
        columns = [[int(v or 0) for v in table.column(statistic.column).to_pylist()] for table in tables]
        moved = np.array([a - b for a, b in zip(*columns, strict=True)], dtype=object)
        noise = statistic.noise
        if not isinstance(noise, OrderedNoise):
            assert used_of(noise, moved) <= 1, text
            continue
        found["ordered"] += 1
        parts = [list_moved(noise, moved[run]) for run in runs.values()]
        assert len(moved) // len(runs) <= noise.steps
        for level, own in enumerate(noise.vectors):
            whole = np.concatenate([vectors[level] for vectors in parts])
            used = used_of(own, whole)
            assert used <= 1, text
            found["moved"] += used > 0
            found["full"] += used == 1
            apart = noise.base.sensitivity**2 * noise.base.groups
            if isinstance(noise, SquareRootNoise):
                apart *= sum(int(v) ** 2 for v in list_square_root(noise.steps))
            found["root"] += isinstance(own, GaussianNoise) and sum(v * v for v in whole) > apart


def test_statements_at_random_over_neighbours() -> None:
    found = check_neighbours(6, seed=25)
    assert found["planned"] > 15
    assert found["moved"] > 10
    assert found["full"] > 0  # nothing less than what is charged would do
    assert found["root"] > 0


@pytest.mark.stochastic
@pytest.mark.timeout(14400)
def test_many_statements_at_random_over_neighbours() -> None:
    print(check_neighbours(5000, seed=26, every=8))
