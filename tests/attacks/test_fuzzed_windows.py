"""Statements with windows over noisy counts, made at random, on neighbouring tables: the same plan, words and columns."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from tests.support import inside

POLICY = """
budget = { epsilon = 1e9, delta = 0.9, accountant = "zcdp", default_epsilon = 1, default_delta = 1e-6 }
[tables]
v = { privacy_unit = "id", max_rows_per_group = 2, max_groups = 5, columns = { \
    day = { bounds = [2024-01-01, 2024-02-09] }, k = { values = [1, 2, 3, 4, 5, 6, 7, 8] }, \
    w = { values = ["A", "B"] }, x = { bounds = [0, 10] } } }
"""
KEYS = [("day",), ("day", "w"), ("w", "day"), ("k",), ("k", "w"), ("w",), ("day", "k"), ()]
VALUES = ["COUNT(*)", "SUM(x)", "COUNT(x)", "AVG(x)", "COUNT(DISTINCT id)", "MAX(x)"]
FUNCTIONS = ["SUM", "SUM", "SUM", "AVG", "MAX", "COUNT", "SUM(DISTINCT"]
FRAMES = [
    "", "", "ROWS 3 PRECEDING", "ROWS BETWEEN 6 PRECEDING AND CURRENT ROW", "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "RANGE UNBOUNDED PRECEDING", "ROWS BETWEEN 2 FOLLOWING AND 5 FOLLOWING", "ROWS BETWEEN 9 PRECEDING AND 1 PRECEDING",
    "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW", "GROUPS 2 PRECEDING", "ROWS 99999999999 PRECEDING",
]  # fmt: skip
OPTIONS = [
    "epsilon = 1", "epsilon = 0.5, delta = 1e-7", "rho = 0.1", "epsilon = 2, strategy = TREE", "epsilon = 1, strategy = EVEN",
    "epsilon = 1, delta = 1e-6, noise = GAUSSIAN, strategy = SQUARE_ROOT", "epsilon = 1, strategy = MARGINALS",
    "epsilon = 1, noise = AUTO",
    "epsilon = 1, strategy = TREE, max_groups_contributed = 40", "epsilon = 1, max_rows_contributed = 3",
]  # fmt: skip


def tables(with_unit: bool) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE v AS SELECT n % 40 AS id, DATE '2024-01-01' + (n * 7 % 40)::INTEGER AS day, n % 8 + 1 AS k, "
        "CASE WHEN n % 3 = 0 THEN 'A' ELSE 'B' END AS w, (n % 11)::DOUBLE AS x FROM range(200) r(n)"
    )
    if with_unit:  # on every day, beyond all bounds, and where nothing is declared
        con.execute(
            "INSERT INTO v SELECT 666, DATE '2024-01-01' + n::INTEGER, n % 12, 'A', 'inf' FROM range(40) r(n) "
            "UNION ALL VALUES (666, NULL, NULL, NULL, 'nan'::DOUBLE), (666, DATE '1999-01-01', -5, 'CANARY', -1e300)"
        )
    return con


def make_statement(seed: int) -> str:
    """Return a statement with one to three windows, in the block or above it."""
    pick = random.Random(seed)
    keys, options = pick.choice(KEYS), pick.choice(OPTIONS)
    inside = pick.random() < 0.4
    values = [pick.choice(VALUES) for _ in range(pick.randint(1, 2))]
    named = values if inside else [f"n{i}" for i in range(len(values))]
    items = []
    for i in range(pick.randint(1, 3)):
        parts = [key for key in keys if pick.random() < 0.4]
        order = pick.choice([*keys, *keys, named[0], f"{keys[0]}, {keys[-1]}"]) if keys else named[0]
        over = f"PARTITION BY {', '.join(parts)} " if parts else ""
        if pick.random() < 0.9:
            over += f"ORDER BY {order} {pick.choice(['', '', 'DESC', 'NULLS FIRST'])} {pick.choice(FRAMES)}"
        function = pick.choice(FUNCTIONS)
        call = f"{function}{' ' if '(' in function else '('}{pick.choice(named)})"
        quotients = ["{0} / 2", "{0} / NULLIF({1}, 0)"]
        shape = pick.choice(["{0}", "{0}", *quotients, "GREATEST({0}, 0)", "-{0}", "ROUND({0})", "{0} + {1}"])
        items.append(f"{shape.format(f'{call} OVER ({over})', named[-1])} AS c{i}")
    shown = ", ".join([*keys, *items])
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    where = pick.choice(["", "", "", " WHERE x > 3", " WHERE day > DATE '2024-01-20'"])
    if inside:
        return f"SELECT WITH DP OPTIONS ({options}) {shown} FROM v{where}{group}"
    block = ", ".join([*keys, *(f"{value} AS n{i}" for i, value in enumerate(values))])
    above = pick.choice(["d", "d", "(SELECT * FROM d) AS e", "(SELECT * FROM d WHERE n0 > 0) AS e"])
    more = pick.choice(["", "", " ORDER BY 1 LIMIT 5", " WHERE n0 > 1", " QUALIFY ROW_NUMBER() OVER () < 9"])
    return f"WITH d AS (SELECT WITH DP OPTIONS ({options}) {block} FROM v{where}{group}) SELECT {shown} FROM {above}{more}"


@pytest.fixture(scope="module")
def neighbours() -> Iterator[tuple[dpsql.Session, dpsql.Session]]:
    policy = dpsql.Policy.loads(POLICY)
    with (
        dpsql.connect(tables(True), policy=policy) as one,
        dpsql.connect(tables(False), policy=policy) as other,
    ):
        yield one, other


def ask(session: dpsql.Session, text: str, run: bool) -> tuple[object, ...]:
    """Return what can be seen of a statement, but for noisy numbers. Which groups of a range are shown depends on these.

    The last item is the columns with intervals; None without rows.
    """
    try:
        plan = inside.planned(session, text)
        said = "\n".join(
            (plan.finish, *plan.notes, *(line for block in plan.blocks for line in block.explain()))
        )
        if not run:
            return ("planned", said, None)
        result = session.sql(text, fresh=True)
    except dpsql.Error as error:
        assert not isinstance(error, dpsql.EngineError)
        assert "CANARY" not in "\n".join(error.lines())
        return (type(error).__name__, *error.lines(), None)
    notes = [note for note in result.notes if not any(w in note for w in ("NULL", "bound", "of the range"))]
    intervals = sorted(result.intervals) if len(result) else None
    return ("answered", said, str(result.loss), *result.columns, *notes, intervals)


def check(neighbours: tuple[dpsql.Session, dpsql.Session], seed: int, run: bool) -> object:
    text = make_statement(seed)
    (*one, mine), (*other, theirs) = (ask(session, text, run) for session in neighbours)
    assert one == other, text
    assert None in (mine, theirs) or mine == theirs, text
    return one[0]


def test_windows_made_at_random(neighbours: tuple[dpsql.Session, dpsql.Session]) -> None:
    found = [check(neighbours, seed, seed % 4 == 0) for seed in range(40)]
    assert found.count("answered") >= 3
    assert found.count("planned") >= 12


@pytest.mark.stochastic
def test_twenty_thousand_windows_made_at_random(neighbours: tuple[dpsql.Session, dpsql.Session]) -> None:
    found = [check(neighbours, seed, seed % 10 == 0) for seed in range(1000, 21_000)]
    assert found.count("answered") >= 500
