"""The errors of counts, sums, means and ratios beside the truth, under caps in an owner's plain words, by shape."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import duckdb
import pytest

import dpsql

UNITS, PERIODS = 545, 8
HEAD = '[budget]\nepsilon = 1e12\naccountant = "basic"\n[tables.t]\nprivacy_unit = "u"\n'
COLUMNS = "[tables.t.columns]\nyear = { values = [0, 1, 2, 3, 4, 5, 6, 7] }\nx = { bounds = [0, 100] }\n"
Rows = list[tuple[int, int]]


def shapes() -> Iterator[tuple[str, int, int, Rows]]:
    """Yield shapes of rows per unit: a name, the rows and groups that an owner would say one unit has, units with periods."""
    dice = random.Random(1)
    yield "one row a period", 8, 8, [(u, p) for u in range(UNITS) for p in range(PERIODS)]
    many = {
        "zipf": (20, 8, lambda u: min(20, int(1 / (1 - dice.random())))),
        "one heavy unit in fifty": (60, 8, lambda u: 60 if u % 50 == 0 else 3),
        "constant 1": (1, 1, lambda u: 1),
        "constant 8": (8, 8, lambda u: 8),
        "geometric": (20, 8, lambda u: min(20, 1 + int(-math.log(1 - dice.random()) * 3))),
    }
    for name, (rows, groups, count) in many.items():
        yield (
            name,
            rows,
            groups,
            [(u, dice.randrange(PERIODS)) for u in range(UNITS) for _ in range(count(u))],
        )
    yield "two groups", 6, 2, [(u, (u + i % 2) % PERIODS) for u in range(UNITS) for i in range(6)]
    yield "bursts", 12, 2, [(u, (u + i // 6) % PERIODS) for u in range(UNITS) for i in range(12)]


SHAPES = {name: rest for name, *rest in shapes()}


@pytest.mark.parametrize("shape", SHAPES)
def test_plain_words_lose_nothing_and_have_the_noise_of_one_cap(shape: str) -> None:
    """The error is that of ``max_rows``, where it was that of ``max_rows`` times ``max_groups``."""
    rows, groups, given = SHAPES[shape]
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (u INTEGER, year INTEGER, x DOUBLE)")
        values = ", ".join(f"({u}, {p}, {(u * 7 + p * 3) % 60 + 20})" for u, p in given)
        con.execute(f"INSERT INTO t VALUES {values}")
        policy = dpsql.Policy.loads(f"{HEAD}max_rows = {rows}\nmax_groups = {groups}\n{COLUMNS}")
        truth = dict(con.sql("SELECT year, COUNT(*) FROM t GROUP BY year").fetchall())
        total, count = con.sql("SELECT SUM(x), COUNT(*) FROM t").fetchall()[0]
        with dpsql.connect(con, policy=policy) as session:
            text = "SELECT WITH DP OPTIONS (epsilon = {}) year, COUNT(*) AS n FROM t GROUP BY year"
            assert dict(session.sql(text.format("1e8")).fetchall()) == truth, "nothing is lost"
            whole = session.sql(
                "SELECT WITH DP OPTIONS (epsilon = 1e8) SUM(x) AS s, COUNT(*) AS n, AVG(x) AS m FROM t"
            )
            ((found, n, mean),) = whole.fetchall()
            assert (found, n, mean) == pytest.approx((total, count, total / count), rel=1e-4)
            for epsilon in (1, 0.1):
                errors = []
                for i in range(10):
                    answer = session.sql(text.format(epsilon * (1 + i / 10**6))).fetchall()
                    errors += [abs(n - truth.get(year, 0)) for year, n in answer]
                typical = math.sqrt(sum(e * e for e in errors) / len(errors))
                print(
                    f"{shape}, ε = {epsilon}: {typical:.1f} (root mean square), of {rows} rows; before, of {rows * groups}"
                )
                # 80 draws of Laplace noise: their root mean square is within half and double with overwhelming probability
                assert typical < 2.2 * math.sqrt(2) * rows / epsilon


def test_eight_years_of_545_men() -> None:
    """At ε = 0.5 the interval of each year is ±48, where 64 rows would have ±383."""
    _, _, given = SHAPES["one row a period"]
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT i // 8 AS u, CAST(i % 8 AS INTEGER) AS year, 1.0 AS x FROM range(4360) AS r(i)"
        )
        for caps in ("max_rows = 8", "max_rows = 8\nmax_groups = 8"):
            with dpsql.connect(con, policy=dpsql.Policy.loads(f"{HEAD}{caps}\n{COLUMNS}")) as session:
                answer = session.sql(
                    "SELECT WITH DP OPTIONS (epsilon = 0.5) year, COUNT(*) AS n FROM t GROUP BY year"
                )
                widths = {(high - low) / 2 for low, high in answer.intervals["n"]}
                assert widths == {48.0}
    assert len(given) == UNITS * PERIODS
