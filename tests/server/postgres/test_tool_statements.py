"""Statements of BI tools and drivers on a real server: each is answered, or refused by a sentence of ours that helps."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from tests.support.clinic import BUDGET
from tests.support.postgres import PostgresServer
from tests.support.served import TABLES, write_data, write_policy
from tests.support.tool_statements import REFUSED, STATEMENTS

psycopg = pytest.importorskip("psycopg")
SEEN = """
day = { bounds = [2024-01-01, 2025-02-28] }
seen = { bounds = [2024-01-01, 2024-12-31] }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    folder = tmp_path_factory.mktemp("tools")
    write_data(folder)
    visits = folder / "visits.parquet"
    with duckdb.connect() as con:
        con.execute(
            f"CREATE TABLE v AS SELECT * REPLACE (DATE '2024-01-01' + day AS day), "
            f"TIMESTAMP '2024-01-01' + INTERVAL (day * 20) HOUR AS seen FROM '{visits}'; COPY v TO '{visits}'"
        )
    limits = "answer_times = []\nmax_requests_per_minute = 10000000"
    tables = TABLES.replace("day = { bounds = [0, 400] }\n", SEEN)
    with PostgresServer(write_policy(folder, {"ada": 1e12}, limits, BUDGET, tables)) as running:
        yield running


@pytest.mark.parametrize("tool", STATEMENTS)
def test_statements_of_a_tool(server: PostgresServer, tool: str) -> None:
    wrong = []
    with psycopg.connect(server.make_url(), autocommit=True) as made:
        for asked in STATEMENTS[tool]:
            said = next((sentence for part, sentence in REFUSED.items() if part in asked), None)
            try:
                made.execute(asked)
                found = None
            except psycopg.Error as error:
                assert error.diag.sqlstate[:2] in ("42", "22"), asked
                found = error.diag.message_primary
            if (said is None) != (found is None) or (found is not None and said not in found):
                wrong.append((asked, found))
    assert not wrong


def test_nine_of_ten_are_answered() -> None:
    every = [asked for texts in STATEMENTS.values() for asked in texts]
    refused = [asked for asked in every if any(part in asked for part in REFUSED)]
    assert len(every) >= 90
    assert len(refused) == len(REFUSED) <= len(every) / 8


def test_npgsql_knows_arrays(server: PostgresServer) -> None:
    with psycopg.connect(server.make_url(), autocommit=True) as made:
        (asked,) = (text for text in STATEMENTS["Power Bi"] if "elemtypoid" in text)
        kinds = {row[2]: (row[3], row[5]) for row in made.execute(asked).fetchall()}
    assert (kinds["int4"], kinds["_int4"]) == (("b", None), ("a", 23))
