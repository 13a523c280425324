"""Errors of five statements over eight shapes of rows per unit, under caps in an owner's plain words.

    python -m tests.support.cap_cases FILE       writes the figures, by the dpsql that Python finds

The policy says how many rows one unit may have, and in how many groups. The tables are the same in every run; noise is the
product's own. The figures of record are of the last commit in which ``max_rows`` was a cap on the rows in one group.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np

import dpsql

UNITS, PERIODS = 545, 8
CODES = (10, 20, 30)
"""The codes in use, of the hundred that the bounds allow."""
EPSILONS = ("1", "0.1")
FIGURES = Path(__file__).parents[1] / "accuracy" / "caps_before.json"
POLICY = """
[budget]
epsilon = 1e15
accountant = "basic"
[tables.t]
privacy_unit = "u"
max_rows = {}
max_groups = {}
[tables.t.columns]
year = {{ values = [0, 1, 2, 3, 4, 5, 6, 7] }}
code = {{ bounds = [0, 99] }}
x = {{ bounds = [0, 100] }}
"""
STATEMENTS = {
    "count by period": "year AS k, COUNT(*) AS n FROM t GROUP BY year",
    "count by code": "code AS k, COUNT(*) AS n FROM t GROUP BY code",
    "SUM": "0 AS k, SUM(x) AS n FROM t",
    "AVG": "0 AS k, AVG(x) AS n FROM t",
    "SUM / COUNT": "0 AS k, SUM(x) / COUNT(*) AS n FROM t",
}
CUT = "one unit in ten above the cap"
"""The shape of which the caps leave rows out; of the others they leave out none."""
Rows = list[tuple[int, int]]


def make_shapes() -> Iterator[tuple[str, int, int, Rows]]:
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
    yield CUT, 4, 1, [(u, u % PERIODS) for u in range(UNITS) for _ in range(12 if u % 10 == 0 else 2)]


SHAPES = {name: rest for name, *rest in make_shapes()}
NAMES = [(shape, statement, epsilon) for shape in SHAPES for statement in STATEMENTS for epsilon in EPSILONS]


def fill(con: duckdb.DuckDBPyConnection, rows: Rows) -> None:
    """Create the table of a shape."""
    con.execute("CREATE TABLE t (u INTEGER, year INTEGER, code INTEGER, x DOUBLE)")
    values = ", ".join(f"({u}, {p}, {CODES[u % 3]}, {(u * 7 + p * 3) % 60 + 20})" for u, p in rows)
    con.execute(f"INSERT INTO t VALUES {values}")


def measure(shape: str, statement: str, epsilon: str, draws: int) -> list[float]:
    """Return the error of each release: the mean over groups with rows, where a group that is not shown counts as 0."""
    rows, groups, given = SHAPES[shape]
    with duckdb.connect() as con:
        fill(con, given)
        text = STATEMENTS[statement]
        truth = dict(con.sql(f"SELECT {text}").fetchall())
        policy = dpsql.Policy.loads(POLICY.format(rows, groups))
        with dpsql.connect(con, policy=policy) as session:
            asked = f"SELECT WITH DP OPTIONS (epsilon = {epsilon}) {text}"
            errors = []
            for _ in range(draws):
                answer = dict(session.sql(asked, fresh=True).fetchall())
                errors.append(float(np.mean([abs(float(answer.get(k) or 0) - n) for k, n in truth.items()])))
            return errors


def main(file: str, draws: int = 100) -> None:
    """Write each case's mean error and its standard error."""
    figures = {}
    for case in NAMES:
        errors = measure(*case, draws)
        figures[", ".join(case)] = [
            float(f"{np.mean(errors):.4g}"),
            float(f"{np.std(errors, ddof=1) / math.sqrt(draws):.3g}"),
        ]
        print(*case, *figures[", ".join(case)], flush=True)
    Path(file).write_text(json.dumps(figures, indent=0) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:2])
