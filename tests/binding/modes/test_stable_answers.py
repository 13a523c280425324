"""SELECT WITH STABLE through a session: answers, charges without delta, groups and caps."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.mechanisms.aggregation import Together
from dpsql.privacy.events import BoundedRange
from tests.support import inside
from tests.support.fixtures import con_fixture

POLICY = """
[budget]
epsilon = 1000
delta = {delta}
accountant = "{accountant}"
default_epsilon = 20
[tables.t]
privacy_unit = "{unit}"
{caps}
[tables.t.columns]
age = {{ bounds = [0, 120] }}
pay = {{ bounds = [0, 1000] }}
day = {{ bounds = [2024-01-01, 2024-12-31] }}
sex = {{ values = ["f", "m", "x"] }}
"""
ALL = (
    "IQR(age) AS i, TRIMMED_MEAN(pay, 0.1) AS t, MEDIAN(age) AS m, QUANTILE_CONT(pay, 0.9) AS q, QUANTILE(age, 0.25) AS d, "
    "MODE(sex) AS s"
)
TABLES = """
CREATE TABLE t AS SELECT i % 2000 AS u, 20 + i % 41 AS age, (i % 1000)::DOUBLE AS pay,
    ['f', 'm', 'm'][1 + i % 3] AS sex, DATE '2024-01-01' + (i % 300)::INTEGER AS day, NULL::INTEGER AS missing
    FROM range(8200) r(i);
"""
con = con_fixture(TABLES)


def opened(
    con: duckdb.DuckDBPyConnection, accountant: str, unit: str = "ROW", delta: str = "0"
) -> dpsql.Session:
    caps = "" if unit == "ROW" else "max_rows = 5\nmax_groups = 2"
    policy = dpsql.Policy.loads(POLICY.format(accountant=accountant, unit=unit, caps=caps, delta=delta))
    return dpsql.connect(con, policy=policy)


@pytest.mark.parametrize("accountant", ["basic", "zcdp", "gdp"])
def test_answers_are_near_under_a_budget_without_delta(
    con: duckdb.DuckDBPyConnection, accountant: str
) -> None:
    """The owner's delta is 0 with the basic rule: nothing here needs one."""
    with opened(con, accountant, delta="0" if accountant == "basic" else "1e-6") as session:
        (row,) = session.sql(f"SELECT WITH STABLE {ALL} FROM t").dicts()
        assert 19 <= row["i"] <= 22
        assert abs(row["t"] - 499.5) < 15
        assert abs(row["m"] - 40) <= 1
        assert abs(row["q"] - 900) < 15
        assert abs(row["d"] - 30) <= 1
        assert row["s"] == "m"
        budget = session.sql("SHOW BUDGET").dicts()[0]
        assert budget["spent_epsilon"] > 0
        assert not budget.get("spent_delta")


@pytest.mark.parametrize("where", ["FALSE", "missing > 0", "u = 3 AND pay = 3"])
def test_few_rows_and_none_are_answered_too(con: duckdb.DuckDBPyConnection, where: str) -> None:
    with opened(con, "basic") as session:
        for text in (
            ALL,
            "IQR(missing CLAMPED BETWEEN 0 AND 9) AS i, TRIMMED_MEAN(missing CLAMPED BETWEEN 3 AND 3, 0) AS t",
        ):
            (row,) = session.sql(f"SELECT WITH STABLE {text} FROM t WHERE {where}").fetchall()
            assert None not in row
        assert row[1] == 3, "where bounds meet there is one answer"


def test_public_groups_all_have_an_answer(con: duckdb.DuckDBPyConnection) -> None:
    with opened(con, "zcdp", delta="1e-6") as session:
        text = "SELECT WITH STABLE sex, IQR(age) AS w, MODE(sex) AS s FROM t GROUP BY sex HAVING w >= 0 ORDER BY sex"
        rows = session.sql(text).fetchall()
        assert [row[0] for row in rows] == ["f", "m", "x"]
        assert all(18 <= row[1] <= 23 for row in rows[:2])
        assert [row[2] for row in rows[:2]] == ["f", "m"]
        assert rows[2][1] is not None


def parts_of(session: dpsql.Session, text: str) -> tuple[Any, ...]:
    made = inside.bind(session, text).blocks[0].operator
    assert isinstance(made, Together)
    return made.parts


def test_mechanisms_are_dealt_what_is_asked(con: duckdb.DuckDBPyConnection) -> None:
    """The whole epsilon, and a unit's rows and groups: the caps of the policy, or those of OPTIONS."""
    with opened(con, "basic", "u") as session:
        asked = "sex, IQR(age), TRIMMED_MEAN(pay, 0.25, epsilon => 1) FROM t GROUP BY sex"
        head = "SELECT WITH STABLE OPTIONS (epsilon = 3{}) " + asked
        parts = {part.name: part for part in parts_of(session, head.format(""))}
        spread, mean = parts["iqr(age)"], parts["trimmed_mean(pay, 0.25)"]
        assert (spread.epsilon, mean.epsilon) == (2, 1)
        assert {(part.rows, part.groups, part.in_all) for part in parts.values()} == {(5, 1, True)}
        assert spread.event == BoundedRange(Fraction(2), 1)
        assert mean.statistic.part == Fraction(1, 4)
        assert mean.cells > 1 << 15
        parts = {part.name: part for part in parts_of(session, head.format(", max_rows_contributed = 1"))}
        assert {(part.rows, part.groups) for part in parts.values()} == {(1, 1)}
        parts = {part.name: part for part in parts_of(session, head.format(", max_rows_per_group = 2"))}
        assert {(part.rows, part.groups, part.in_all) for part in parts.values()} == {(2, 2, False)}
        assert parts["iqr(age)"].event == BoundedRange(Fraction(2), 2)
        both = parts_of(session, "SELECT WITH STABLE OPTIONS (epsilon = 1) IQR(age), MEDIAN(age) FROM t")
        assert len({part.query for part in both}) == 1, "answers of one column share their histogram"


def test_medians_and_modes_are_those_of_mode_dp(con: duckdb.DuckDBPyConnection) -> None:
    with opened(con, "basic") as session:
        asked = "MEDIAN(age), QUANTILE_CONT(pay, 0.9), MODE(sex) FROM t"
        stable, noisy = (
            parts_of(session, f"SELECT WITH {mode} OPTIONS (epsilon = 1) {asked}")
            for mode in ("STABLE", "DP")
        )
        assert stable == noisy
