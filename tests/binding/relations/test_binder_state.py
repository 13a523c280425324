"""A binder is put back as it was where a query is bound in two ways, so that nothing speaks of blocks that are gone."""

from __future__ import annotations

import dataclasses

import duckdb
import pytest

import dpsql
from dpsql.binding.relations.binder import GROWING
from dpsql.binding.statement_binder import StatementBinder
from dpsql.language.statements import parse
from tests.support import inside
from tests.support.fixtures import con_fixture

POLICY = """
budget = { epsilon = 1e12 }
[tables]
guests = { privacy_unit = "id", max_rows = 1, max_groups = 1, columns = { day = { bounds = [2024-01-01, 2024-01-09] }, \
    ward = { values = ["A", "B", "C"] }, floor = { values = [1, 2] } } }
"""
DATA = """
CREATE TABLE guests AS SELECT i AS id, DATE '2024-01-01' + (i * i % 9)::INTEGER AS day,
       ['A', 'A', 'A', 'B', 'B', 'C'][i % 6 + 1] AS ward, i % 2 + 1 AS floor FROM range(600) t(i)
"""
MODE, CONSISTENT = "WITH DP OPTIONS (epsilon = 1e6) ", "WITH DP OPTIONS (epsilon = 1e6, consistent = TRUE) "
KEPT = {"thresholds", "sources", "shared"}
"""Fields that stay after a first try: thresholds are read alone, places of FROM items and shared texts hold for every try."""
STATEMENTS = [
    "SELECT {mode}COUNT(*) FROM guests WHERE ward IN "
    "(SELECT ward FROM (SELECT {mode}ward, COUNT(*) AS n FROM guests GROUP BY ward) WHERE n > 150)",
    "SELECT {mode}COUNT(*) FROM guests WHERE day IN (SELECT day FROM (SELECT day, SUM(n) OVER (ORDER BY day) AS n FROM "
    "(SELECT {mode}day, COUNT(*) AS n FROM guests GROUP BY day)) WHERE n > 250)",
    "SELECT {mode}COUNT(*) FROM guests WHERE ward IN "
    "(SELECT ward FROM (SELECT {mode}ward, floor, COUNT(*) AS n FROM guests GROUP BY CUBE (ward, floor)) WHERE n > 80)",
    "SELECT {mode}COUNT(*) FROM guests WHERE ward IN "
    "(SELECT ward FROM (SELECT {consistent}ward, COUNT(*) AS n FROM guests GROUP BY ROLLUP (ward)) WHERE n > 150)",
]


con = con_fixture(DATA, scope="function")


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_released_query_in_a_condition_is_bound_once_in_the_end(
    session: dpsql.Session, con: duckdb.DuckDBPyConnection, text: str
) -> None:
    asked = text.format(mode=MODE, consistent=CONSISTENT)
    plain = con.execute(text.format(mode="", consistent="")).fetchall()
    assert session.sql(asked).fetchall() == plain
    (statement,) = parse(asked)
    plan = inside.bind(session, statement)
    names = [block.name for block in plan.blocks]
    assert len(set(names)) == len(names)
    assert {part.relation for item in plan.adjustments for part in item.sets} <= set(names)


def test_all_that_grows_with_a_statement_is_put_back() -> None:
    grows = {
        field.name
        for field in dataclasses.fields(StatementBinder)
        if field.default_factory in (list, dict) and field.name not in KEPT
    }
    assert grows == set(GROWING)
