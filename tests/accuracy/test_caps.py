"""Errors of counts, sums, means and ratios under caps in an owner's plain words, by shapes of rows per unit."""

from __future__ import annotations

import json
import math

import duckdb
import pytest

import dpsql
from tests.support.accuracy import Table
from tests.support.cap_cases import CUT, FIGURES, NAMES, POLICY, SHAPES, STATEMENTS, fill, measure

SHORT = [("one row a period", "count by period", "1"), ("two groups", "count by period", "0.1"),
         ("zipf", "AVG", "1"), ("geometric", "SUM / COUNT", "1")]  # fmt: skip
VERSION = "0ac89b59"
"""The commit of the figures of record: the last one in which ``max_rows`` was a cap on the rows in one group."""


def check(case: tuple[str, str, str], draws: int, table: Table) -> None:
    shape, statement, epsilon = case
    before, chance = json.loads(FIGURES.read_text())[", ".join(case)]
    name = f"{statement}, {shape}, epsilon {epsilon}: mean absolute error"
    most = before / 6 if (shape, statement) == ("one row a period", "count by period") else None
    table.check(name, measure(*case, draws), before=before, chance=chance, version=VERSION, most=most)


@pytest.mark.accuracy
@pytest.mark.parametrize("case", NAMES, ids=", ".join)
def test_no_error_is_larger_than_before(case: tuple[str, str, str], accuracy: Table) -> None:
    """Of 100 releases each; counts by period of one row a period are at least six times better."""
    check(case, 100, accuracy)


@pytest.mark.parametrize("case", SHORT, ids=", ".join)
def test_in_short(case: tuple[str, str, str]) -> None:
    check(case, 12, Table())


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != CUT])
def test_plain_words_lose_nothing(shape: str) -> None:
    rows, groups, given = SHAPES[shape]
    with duckdb.connect() as con:
        fill(con, given)
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY.format(rows, groups))) as session:
            for statement in STATEMENTS.values():
                truth = dict(con.sql(f"SELECT {statement}").fetchall())
                found = dict(session.sql(f"SELECT WITH DP OPTIONS (epsilon = 1e8) {statement}").fetchall())
                assert found == pytest.approx(truth, rel=1e-4)


def test_eight_years_of_545_men() -> None:
    """At ε = 0.5 the interval of each year is ±48, where 64 rows would have ±383."""
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT i // 8 AS u, CAST(i % 8 AS INTEGER) AS year, 1 AS code, 1.0 AS x FROM range(4360) AS r(i)"
        )
        for caps in ("max_rows = 8", "max_rows = 8\nmax_groups = 8"):
            policy = POLICY.replace("max_rows = {}\nmax_groups = {}", caps).format()
            with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as session:
                answer = session.sql(
                    "SELECT WITH DP OPTIONS (epsilon = 0.5) year, COUNT(*) AS n FROM t GROUP BY year"
                )
                widths = {(high - low) / 2 for low, high in answer.intervals["n"]}
                assert widths == {48.0}


def test_figures_of_record_are_complete() -> None:
    figures = json.loads(FIGURES.read_text())
    assert set(figures) == {", ".join(case) for case in NAMES}
    assert all(math.isfinite(n) and n >= 0 for pair in figures.values() for n in pair)
