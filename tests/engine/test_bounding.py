"""Rows that count, where mechanisms need rows: exactly as many of each unit as the policy allows, whatever the data."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import duckdb
import pytest

import dpsql
from dpsql.language.statements import parse
from dpsql.mechanisms.base import SALT
from tests.support import inside

POLICY = """
[budget]
epsilon = 100
delta = 0.5
default_epsilon = 1
default_delta = 1e-6
[tables.t]
privacy_unit = "u"
max_rows_per_group = {rows}
max_groups = {groups}
columns.x.bounds = [0, 40]
"""


def counted(
    keys: str, rows: int, groups: int, salt: int = 7
) -> tuple[dict[int, Counter[str]], dict[int, Counter[str]]]:
    """For each unit the rows in each of its groups: all of them, and those that a median looks at."""
    dice = random.Random(5)
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (u INTEGER, k VARCHAR, j INTEGER, x INTEGER)")
        data = [
            (u, dice.choice(["a", "b", "c", None, "e"]), dice.choice([1, 2, None]), u)
            for u in range(30)
            for _ in range(dice.randint(0, 25))
        ]
        con.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", data)
        policy = dpsql.Policy.loads(POLICY.format(rows=rows, groups=groups))
        with dpsql.connect(con, policy=policy) as session:
            (statement,) = parse(f"SELECT {keys}, MEDIAN(x) AS m FROM t GROUP BY {keys}", None)
            plan = inside.bind(session, statement)
            (query,) = (q for q in plan.blocks[0].operator.queries if "value" in q)
            table = inside.engine(session).execute(query.replace(SALT, str(salt)))
    given: dict[int, Counter[str]] = defaultdict(Counter)
    kept: dict[int, Counter[str]] = defaultdict(Counter)
    for u, k, j, _ in data:
        given[u][repr((k, j) if "," in keys else (k,))] += 1
    for row in table.to_pylist():
        group = repr(tuple(row[name] for name in table.column_names if name.startswith("k")))
        kept[int(row["value"])][group] += row["count"]
    return given, kept


@pytest.mark.parametrize("keys", ["k", "k, j"])
@pytest.mark.parametrize(("rows", "groups"), [(1, 1), (2, 3), (3, 2), (1000, 2), (2, 1000), (5, 4)])
def test_each_unit_keeps_what_it_may(keys: str, rows: int, groups: int) -> None:
    given, kept = counted(keys, rows, groups)
    assert given.keys() == kept.keys()
    for unit, all_of_it in given.items():
        assert len(kept[unit]) == min(groups, len(all_of_it))
        for group, n in kept[unit].items():
            assert n == min(rows, all_of_it[group])


def test_the_groups_are_chosen_anew_under_each_salt() -> None:
    kept = [counted("k", 2, 2, salt)[1] for salt in (1, 2)]
    assert any(kept[0][unit].keys() != kept[1][unit].keys() for unit in kept[0])
