"""The report of what caps and bounds cut, beside the answers: what one unit moves it by, what it costs, and what it says."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dpsql
from dpsql.binding.plan import Plan
from dpsql.language.statements import parse
from dpsql.lock.tree import Unproved
from dpsql.mechanisms.aggregation import Aggregation, Together
from dpsql.mechanisms.base import Reader
from dpsql.mechanisms.contribution_caps import CutNumber, CutReport
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.noise.entropy import Entropy
from tests.support import inside
from tests.support.fixtures import con_fixture
from tests.support.goodness import REFUSED, fixed, laplace_pmf, p_value

POLICY = """
[budget]
{budget}
[tables.t]
privacy_unit = "u"
max_rows_per_group = 2
max_groups = 2
[tables.t.columns]
x = {{ bounds = [-3, 10] }}
k = {{ values = [1, 2, 3, 4] }}
[tables.r]
privacy_unit = "ROW"
columns.x.bounds = [-3, 10]
"""
BASIC = 'epsilon = 1e9\ndelta = 1e-3\naccountant = "basic"\ndefault_epsilon = 1'
Row = tuple[int, int, int | None]
"""Unit, group and value."""
TABLES = """
CREATE TABLE t (u INTEGER, k INTEGER, x INTEGER); CREATE TABLE r (x INTEGER);
"""
con = con_fixture(TABLES)


@pytest.fixture(scope="module")
def session(con: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Session]:
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY.format(budget=BASIC))) as session:
        yield session


def bind(session: dpsql.Session, text: str) -> Plan:
    (statement,) = parse(text)
    return inside.bind(session, statement)


def report_of(plan: Plan) -> CutReport:
    for block in plan.blocks:
        parts = block.operator.parts if isinstance(block.operator, Together) else ()
        for part in parts:
            if isinstance(part, CutReport):
                return part
    raise AssertionError("no report")


def fill(con: duckdb.DuckDBPyConnection, rows: Sequence[Row]) -> None:
    con.execute("DELETE FROM t; DELETE FROM r")
    if rows:
        con.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        con.executemany("INSERT INTO r VALUES (?)", [(x,) for _, _, x in rows])


def numbers(con: duckdb.DuckDBPyConnection, report: CutReport) -> dict[str, int]:
    row = con.execute(report.query).fetchone()
    assert row is not None
    return {number.what: int(v) for number, v in zip(report.numbers, row, strict=True)}


# -- what it counts ---------------------------------------------------------------------------------------------


def excess(x: int | None, low: int, high: int) -> int:
    return 0 if x is None else max(low - x, 0, x - high)


def by_hand(rows: Sequence[Row], grouped: bool, budget: int | None) -> dict[str, int]:
    """The same numbers, unit by unit."""
    totals: Counter[str] = Counter()
    groups = 2 if grouped else 1
    for unit in {u for u, _, _ in rows}:
        own = [(k, x) for u, k, x in rows if u == unit and (not grouped or k in (1, 2, 3, 4))]
        sizes = Counter(k if grouped else 0 for k, _ in own)
        most = budget if budget is not None else 2 * groups
        beyond = sum(max(n - 2, 0) for n in sizes.values())
        if budget is not None:
            beyond = max(sum(sizes.values()) - budget, 0)
        totals["rows"] += min(beyond, most)
        totals["groups"] += min(max(len(sizes) - 2, 0), 2)
        totals["shared"] += min(max(sum(min(n, 2) for n in sizes.values()) - 4, 0), 4)
        totals["x"] += min(sum(excess(x, -3, 10) for _, x in own), 10 * most)
    return dict(totals)


SHAPES = {
    "all": ("", "SUM(x) AS s FROM t", False, None),
    "groups": ("max_groups_contributed = 2, ", "k, SUM(x) AS s FROM t GROUP BY k", True, None),
    "shared rows": ("", "k, SUM(x) AS s FROM t GROUP BY k", True, None),
    "a budget of rows": (
        "max_rows_contributed = 3, max_rows_per_group = 3, ",
        "k, SUM(x) AS s FROM t GROUP BY k",
        True,
        3,
    ),
}


def table(dice: random.Random, groups: int) -> list[Row]:
    values = [None, -50, -4, -3, 0, 9, 10, 11, 40, 2**31 - 1, -(2**31)]
    return [
        (dice.randint(1, 4), dice.randint(1, groups), dice.choice(values)) for _ in range(dice.randint(0, 25))
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_numbers_are_what_is_cut_and_a_unit_moves_them_no_further(
    con: duckdb.DuckDBPyConnection, session: dpsql.Session, shape: str
) -> None:
    """Compare with the same by hand, on random tables of heavy units, each with every neighbour that lacks a unit."""
    options, rest, grouped, budget = SHAPES[shape]
    report = report_of(
        bind(session, f"SELECT WITH DP OPTIONS ({options}epsilon = 1, report_cut = TRUE) {rest}")
    )
    most = {number.what: number.noise.sensitivity for number in report.numbers}
    assert len(most) == (3 if grouped and budget is None else 2)
    dice, reached, losses = random.Random(shape), Counter[str](), [Fraction(0)]
    for _ in range(60):
        rows = table(dice, 4 if budget is not None else 5)  # the fifth is not public
        fill(con, rows)
        found = numbers(con, report)
        truth = by_hand(rows, grouped, budget)
        for what, value in found.items():
            assert value == truth.get(what.partition(" ")[0], 0), (what, rows)
        for unit in (1, 2):
            fill(con, [row for row in rows if row[0] != unit])
            moved = {what: abs(found[what] - value) for what, value in numbers(con, report).items()}
            for what, far in moved.items():
                assert far <= most[what]
                reached[what] += far == most[what]
            losses.append(sum((moved[n.what] / n.noise.scale for n in report.numbers), Fraction(0)))
    assert set(reached) == set(most), "each is reached: the noise is for no more than one unit can do"
    declared, _ = report.event.basic  # discrete Laplace noise loses exactly the distance over the scale
    assert max(losses) <= declared
    assert 1.5 * max(losses) > declared, "the control: with two thirds of the noise, one unit loses more"


def test_of_rows_that_are_units_only_bounds_cut(
    con: duckdb.DuckDBPyConnection, session: dpsql.Session
) -> None:
    report = report_of(
        bind(session, "SELECT WITH DP OPTIONS (epsilon = 1, report_cut = TRUE) SUM(x) AS s FROM r")
    )
    assert [n.noise.sensitivity for n in report.numbers] == [10]
    fill(con, [(1, 1, 12), (1, 1, -100), (1, 1, 4), (1, 1, None), (1, 1, 500)])
    assert list(numbers(con, report).values()) == [2 + 10 + 10]


def test_a_count_of_a_unit_in_each_group_would_be_refused(session: dpsql.Session) -> None:
    """The control: noise for one group, where a unit may be in several, or for one row less."""
    text = "SELECT WITH DP OPTIONS (epsilon = 1, report_cut = TRUE) k, SUM(x) AS s FROM t GROUP BY k"
    plan = bind(session, text)
    operator = plan.blocks[0].operator
    assert isinstance(operator, Together)
    gate = inside.gate(session)
    gate.prove(operator, {})
    *others, report = operator.parts
    assert isinstance(report, CutReport)
    for place, number in enumerate(report.numbers):
        noise = LaplaceNoise(number.noise.epsilon, number.noise.sensitivity - 1)
        less = [replace(n, noise=noise) if i == place else n for i, n in enumerate(report.numbers)]
        doctored = replace(operator, parts=(*others, replace(report, numbers=tuple(less))))
        with pytest.raises(Unproved):
            gate.prove(doctored, {})


# -- what it costs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "rest", "epsilon"),
    [
        ("epsilon = 2, ", "COUNT(*), SUM(x) FROM t", "2"),
        ("", "COUNT(*) FROM t", "1"),
        ("epsilon = 2, ", "COUNT(*, epsilon => 0.5), SUM(x) FROM t", "2"),
        ("", "COUNT(*, epsilon => 0.9) FROM t", "1"),
        ("epsilon = 2, ", "MEDIAN(x), k FROM t GROUP BY k", "2"),
        ("epsilon = 2, delta = 1e-6, noise = GAUSSIAN, ", "COUNT(*), SUM(x) FROM t", "2"),
        ("epsilon = 2, delta = 1e-6, ", "x % 3 AS p, COUNT(*) FROM t GROUP BY 1", "2"),
    ],
)
def test_it_has_a_tenth_of_the_whole(session: dpsql.Session, options: str, rest: str, epsilon: str) -> None:
    plan = bind(session, f"SELECT WITH DP OPTIONS ({options}report_cut = TRUE) {rest}")
    assert plan.event.basic[0] == Fraction(epsilon)
    report = report_of(plan)
    assert report.event.basic == (Fraction(epsilon) / 10, 0)
    shares = {n.noise.epsilon for n in report.numbers}
    assert shares == {Fraction(epsilon) / 10 / len(report.numbers)}


def test_caps_that_are_found_are_reported_as_they_were_found(
    con: duckdb.DuckDBPyConnection, session: dpsql.Session
) -> None:
    fill(con, [(u, 1, 15) for u in range(200) for _ in range(5)])
    options = "epsilon = 4000, max_rows_contributed = AUTO, report_cut = TRUE"  # noise of scale 1/75 on rows
    text = f"SELECT WITH DP OPTIONS ({options}) SUM(x) AS s FROM t"
    told = session.explain(text)
    assert "of it pays for the report of cuts" in told.price
    plan = bind(session, text)
    assert plan.event.basic[0] == 4000
    rows = [n for n in session.sql(text).notes if n.startswith("cut: rows")]
    assert rows == [
        "cut: rows beyond 2 of one privacy unit in all: about 400 ± 0, counting at most 2 rows of one unit"
    ]


@pytest.mark.parametrize("currency", ["mu", "rho"])
def test_it_has_a_tenth_in_other_currencies(con: duckdb.DuckDBPyConnection, currency: str) -> None:
    policy = dpsql.Policy.loads(POLICY.format(budget=f"{currency} = 1"))
    with dpsql.connect(con, policy=policy) as session:
        plan = bind(
            session, f"SELECT WITH DP OPTIONS ({currency} = 0.5, report_cut = TRUE) COUNT(*), SUM(x) FROM t"
        )
        cost = plan.event.mu if currency == "mu" else plan.event.rho
        assert Fraction(1, 2) * (1 - Fraction(1, 10**6)) < cost <= Fraction(1, 2)
        report = report_of(plan)
        part = report.event.mu**2 * 4 if currency == "mu" else report.event.rho * 2
        assert float(part) == pytest.approx(0.1, rel=1e-5)


def test_grouping_sets_tell_it_once(session: dpsql.Session) -> None:
    plan = bind(
        session,
        "SELECT WITH DP OPTIONS (epsilon = 2, report_cut = TRUE) k, SUM(x) AS s FROM t GROUP BY ROLLUP (k)",
    )
    reports = [
        part
        for block in plan.blocks
        if isinstance(block.operator, Together)
        for part in block.operator.parts
        if isinstance(part, CutReport)
    ]
    assert len(reports) == 1
    assert plan.event.basic[0] == 2


def test_false_is_as_if_it_were_not_written(session: dpsql.Session) -> None:
    text = "SELECT WITH DP OPTIONS (epsilon = 1{}) SUM(x) AS s FROM t"
    plain, other = (bind(session, text.format(more)) for more in ("", ", report_cut = FALSE"))
    assert plain.blocks[0].operator == other.blocks[0].operator
    assert isinstance(plain.blocks[0].operator, Aggregation)


# -- what it says -----------------------------------------------------------------------------------------------


def test_answers_say_about_how_much(con: duckdb.DuckDBPyConnection, session: dpsql.Session) -> None:
    """200 units of 5 rows, of which 3 are beyond the cap and 2 count; each row is 5 beyond the bound."""
    fill(con, [(u, 1, 15) for u in range(200) for _ in range(5)])
    text = "SELECT WITH DP OPTIONS (epsilon = 10000, report_cut = TRUE) SUM(x) AS s, COUNT(*) AS n FROM t"
    result = session.sql(text)
    rows, clipped = [note for note in result.notes if note.startswith("cut: ")]
    assert (
        rows
        == "cut: rows beyond 2 of one privacy unit in all: about 400 ± 0, counting at most 2 rows of one unit"
    )
    assert clipped.startswith("cut: x beyond [-3, 10], added up: about 4 000 ± ")
    assert clipped.endswith("counting at most 20 of one unit")
    again = session.sql(text)
    assert again.loss == "no charge"
    assert again.notes[: len(result.notes)] == result.notes
    fill(con, [(u, 1, 5) for u in range(200)])
    sure = "10, confidence = 0.999999999"  # at 0.95, one-sided and twice: 3 of 200 runs said a cut
    none = session.sql(text.replace("10000", sure), fresh=True)
    unsure = [note for note in none.notes if note.startswith("cut: ")]
    assert len(unsure) == 2
    assert re.fullmatch(
        r"cut: rows beyond 2 of one privacy unit in all: up to [\d ]+, which the noise hides", unsure[0]
    )
    assert re.fullmatch(
        r"cut: x beyond \[-3, 10\], added up: up to [\d .]+, which the noise hides; a sum may be off .+",
        unsure[1],
    )


def test_noise_has_the_distribution_that_is_charged() -> None:
    noise = LaplaceNoise(Fraction(1, 4), 3)
    number = CutNumber("c0", "rows", "3 rows", noise)
    report = CutReport("SELECT", (number,), 0.95, "ε=0.25")
    drawn = []

    class Spy(LaplaceNoise):
        def add(self, values, entropy):  # type: ignore[no-untyped-def]
            found = super().add(values, entropy)
            drawn.append(int(found[0]) - int(values[0]))
            return found

    spied = replace(report, numbers=(replace(number, noise=Spy(noise.epsilon, noise.sensitivity)),))
    entropy, table = fixed("cut"), pa.table({"c0": [100]})
    for _ in range(20_000):
        spied.answer(table, [()], entropy)
    assert p_value(np.array(drawn), laplace_pmf(noise.scale)) > REFUSED
    assert p_value(np.array(drawn), laplace_pmf(noise.scale * Fraction(9, 10))) < REFUSED
    assert report.event == noise.event
    released = Together(None, (report,)).release(Reader(lambda sql, lent: table), Entropy())
    assert released.event == noise.event
    assert released.table.num_columns == 0
