"""SQL above the private part computes, and does nothing else: by a closed list that is held against DuckDB's own."""

from __future__ import annotations

import json
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.catalogue.row_names import CHANGING_FUNCTIONS, PUBLIC_FUNCTIONS
from dpsql.engine.public_sql import SESSION_NAMES, TABLE_FUNCTIONS, check_public
from dpsql.errors import BindError
from dpsql.policy.model import Policy

POLICY = """
budget = { epsilon = 1000 }
[tables]
visits = { privacy_unit = "person", max_rows = 1 }
plans = { public = true }
"""
CLOCK = {
    "ago", "current_date", "current_localtime", "current_localtimestamp", "get_current_time", "get_current_timestamp",
    "now", "today", "transaction_timestamp",
}  # fmt: skip
_WITHIN = "CONSISTENT_WITHIN_QUERY"
CHANCE = {"gen_random_uuid", "random", "uuid", "uuidv4"}
TELLING = [
    "current_setting('temp_directory')", "write_log('x')", "getenv('HOME')", "getvariable('x')", "version()",
    "current_database()", "current_schema()", "current_schemas(true)", "current_query()", "current_user",
    "session_user", "user", "current_role", "current_catalog", "txid_current()", "nextval('s')", "setseed(0.5)",
    "sleep_ms(1)", "pg_get_viewdef(1)", "has_table_privilege('plans', 'SELECT')", "json_serialize_plan('SELECT 1')",
    "json_execute_serialized_sql('{}')", "inet_server_addr()", "stats(1)", "in_search_path('memory', 'main')",
    "add_parquet_key('a', 'b')", "read_text('/etc/passwd')", "icu_sort_key('a', 'b')", "uuidv7()",
]  # fmt: skip


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        yield con


@pytest.fixture(scope="module")
def session() -> Iterator[dpsql.Session]:
    data = {"visits": pa.table({"person": list(range(100))}), "plans": pa.table({"plan": ["free", "95%"]})}
    with dpsql.connect(data, policy=Policy.loads(POLICY)) as session:
        yield session


def catalog(con: duckdb.DuckDBPyConnection) -> list[tuple[str, str, str | None, str | None]]:
    rows = con.execute(
        "SELECT lower(function_name), function_type, stability, macro_definition FROM duckdb_functions()"
    ).fetchall()
    assert len(rows) > 1000
    return rows


def calls(con: duckdb.DuckDBPyConnection, expression: str) -> set[str]:
    row = con.execute("SELECT json_serialize_sql(?::VARCHAR)", [f"SELECT {expression}"]).fetchone()
    found: set[str] = set()
    waiting = [json.loads(row[0])]
    assert not waiting[0]["error"], expression
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            found |= {node["function_name"].lower()} if node.get("function_name") else set()
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return found


# -- the list, held against DuckDB's catalog ---------------------------------------------------------------------------


def test_what_is_listed_depends_on_its_arguments_only(con: duckdb.DuckDBPyConnection) -> None:
    """But for the clock and for chance: DuckDB itself says which functions do not.

    From 2.0.1 on it says of moments with a zone that they depend on the session's, which is no secret.
    """
    said: dict[str, set[str | None]] = {}
    for name, _, stability, _ in catalog(con):
        said.setdefault(name, set()).add(stability)
    moved = {n for n, all_said in said.items() if "VOLATILE" in all_said or all_said - {None} == {_WITHIN}}
    assert moved & PUBLIC_FUNCTIONS <= CLOCK | CHANCE
    assert {"current_database", "write_log", "nextval", "setseed"} <= moved - PUBLIC_FUNCTIONS, "it can fail"


def test_what_is_listed_is_made_of_what_is_listed(con: duckdb.DuckDBPyConnection) -> None:
    """A macro is what it calls."""
    macros = {n: body for n, kind, _, body in catalog(con) if kind == "macro" and n in PUBLIC_FUNCTIONS}
    assert len(macros) > 30
    for name, body in macros.items():
        assert body is not None, name
        assert calls(con, body) <= PUBLIC_FUNCTIONS | {"error"}, name


def test_no_listed_function_reads_files_or_settings(con: duckdb.DuckDBPyConnection) -> None:
    """Functions that stand in FROM and PRAGMAs are other lists: of those in FROM, three may stand there."""
    tables = {n for n, kind, _, _ in catalog(con) if kind in ("table", "table_macro", "pragma")}
    others = {n for n, kind, _, _ in catalog(con) if kind not in ("table", "table_macro", "pragma")}
    assert {"range", "generate_series", "unnest"} == TABLE_FUNCTIONS
    assert (tables - others) & PUBLIC_FUNCTIONS <= {"unnest", "repeat_row"}


def test_every_function_of_duckdb_is_listed_or_refused(con: duckdb.DuckDBPyConnection) -> None:
    names = {n for n, _, _, _ in catalog(con) if n.isidentifier()}
    refused = set()
    for name in names:
        try:
            check_public(f'SELECT "{name}"(1)', (), ())
        except BindError as error:
            refused.add(name)
            assert error.name == name
    assert names - refused <= PUBLIC_FUNCTIONS
    assert refused.isdisjoint(PUBLIC_FUNCTIONS)
    assert len(refused) > 200


def test_every_name_that_is_a_call_without_parentheses_is_known(con: duckdb.DuckDBPyConnection) -> None:
    for name in {n for n, _, _, _ in catalog(con) if n.isidentifier()} | SESSION_NAMES:
        try:
            con.execute(f"SELECT {name}")
        except duckdb.Error:
            continue
        if name not in PUBLIC_FUNCTIONS:
            with pytest.raises(BindError):
                check_public(f"SELECT {name}", (), ())


# -- the shapes ----------------------------------------------------------------------------------------------------------

WRONG = {
    "a table that nobody gave": "SELECT * FROM elsewhere",
    "a view of the catalog": "SELECT * FROM duckdb_tables",
    "a schema": "SELECT * FROM information_schema.tables",
    "a catalog": "SELECT * FROM memory.main.plans",
    "a file": "SELECT * FROM 'plans.csv'",
    "a reader": "SELECT * FROM read_csv('plans.csv')",
    "a glob": "SELECT * FROM glob('*')",
    "a query in a text": "SELECT * FROM query('SELECT 1')",
    "a table in a text": "SELECT * FROM query_table('plans')",
    "settings": "SELECT * FROM duckdb_settings()",
    "secrets": "SELECT * FROM duckdb_secrets()",
    "a histogram of a table in a text": "SELECT * FROM histogram_values('plans', plan)",
    "a description": "SELECT * FROM (DESCRIBE plans)",
    "a summary": "SELECT * FROM (SUMMARIZE plans)",
    "a list of tables": "SELECT * FROM (SHOW ALL TABLES)",
    "in a subquery": "SELECT (SELECT version()) FROM plans",
    "in a CTE": "WITH v AS (SELECT version() AS v) SELECT * FROM v",
    "in a lambda": "SELECT list_transform([1], x -> x + txid_current()) FROM plans",
    "in COLUMNS": "SELECT COLUMNS(c -> c = current_setting('x')) FROM plans",
    "in a window": "SELECT sum(1) OVER (ORDER BY version()) FROM plans",
    "in a filter": "SELECT count(*) FILTER (version() = 'x') FROM plans",
    "in the order of an aggregate": "SELECT list(plan ORDER BY version()) FROM plans",
    "in JOIN": "SELECT * FROM plans JOIN plans AS q ON version() = 'x'",
    "in LATERAL": "SELECT * FROM plans, LATERAL (SELECT version()) AS t",
    "in VALUES": "SELECT * FROM (VALUES (version())) AS t",
    "in LIMIT": "SELECT * FROM plans LIMIT length(version())",
    "in PIVOT": "SELECT * FROM plans PIVOT (max(version()) FOR plan IN ('free'))",
    "in a set operation": "SELECT plan FROM plans UNION ALL SELECT version()",
    "in QUALIFY": "SELECT plan FROM plans QUALIFY version() = 'x'",
    "as a method": "SELECT plan.current_setting() FROM plans",
    "with a schema": "SELECT main.current_setting('x')",
    "of pg_catalog": "SELECT pg_catalog.pg_postmaster_start_time()",
    "in capitals": "SELECT VERSION()",
    "quoted": 'SELECT "version"()',
    "two statements": "SELECT 1; SELECT 2",
    "no query": "CREATE TABLE t AS SELECT 1",
    "a setting": "SET threads = 1",
}
RIGHT = {
    "a lambda": "SELECT list_transform([1, 2], lambda x: x + 1) FROM plans",
    "names of one's own": "SELECT \"user\", current_user FROM (SELECT plan AS \"user\", 1 AS current_user FROM plans)",
    "a recursive CTE": "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 4) SELECT * FROM r",
    "a text that looks like a call": """SELECT '{"class": "FUNCTION", "function_name": "version"}' AS version""",
    "casts": "SELECT TRY_CAST('1' AS DECIMAL(5, 2)), 'a'::ENUM('a', 'b'), {'a': [1]}::STRUCT(a DOUBLE[]), MAP {1: 2}",
    "windows": "SELECT row_number() OVER w, lag(plan) OVER (ORDER BY plan) FROM plans WINDOW w AS (ORDER BY plan)",
    "shapes of FROM": "SELECT * FROM plans AS a POSITIONAL JOIN range(3) AS r(i) CROSS JOIN (VALUES (1)) AS v(x)",
    "pivots": "SELECT * FROM plans PIVOT (count(*) FOR plan IN ('free')) UNPIVOT (n FOR k IN (free))",
    "the clock": "SELECT current_date, now(), today(), current_timestamp, localtimestamp",
    "everything about order": "SELECT DISTINCT ON (plan) plan FROM plans GROUP BY ALL ORDER BY ALL LIMIT 50% OFFSET 0",
    "sets": "SELECT grouping(plan), count(*) FROM plans GROUP BY CUBE (plan) HAVING bool_or(true)",
    "samples": "SELECT * FROM plans USING SAMPLE 1 ROWS",
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_does_more_than_compute_is_refused(con: duckdb.DuckDBPyConnection, name: str) -> None:
    with pytest.raises(BindError):
        check_public(WRONG[name], ("plans",), ("plan",))


@pytest.mark.parametrize("name", RIGHT)
def test_what_computes_is_not(con: duckdb.DuckDBPyConnection, name: str) -> None:
    check_public(RIGHT[name], ("plans",), ("plan",))
    con.execute("CREATE OR REPLACE TEMP TABLE plans AS SELECT 'free' AS plan")
    con.execute(RIGHT[name])


# -- statements ----------------------------------------------------------------------------------------------------------

NOISY = "SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM visits"


@pytest.mark.parametrize("call", TELLING)
@pytest.mark.parametrize(
    "text",
    [
        f"SELECT n, CALL AS told FROM ({NOISY}) AS t",
        "SELECT CALL FROM plans",
        "SELECT COUNT(*) FROM visits, (SELECT CALL AS told FROM plans) AS p",
        f"SELECT n FROM ({NOISY}) AS t ORDER BY CALL",
    ],
)
def test_nothing_above_the_private_part_tells_of_the_machine(
    session: dpsql.Session, call: str, text: str
) -> None:
    before = session.budget().spent_epsilon
    with pytest.raises(BindError) as told:
        session.sql(text.replace("CALL", call))
    assert session.budget().spent_epsilon == before, "refused before it is paid"
    error = told.value
    name = call.partition("(")[0]
    assert error.message.startswith(f"{name} is not a function that may be called above the private part")
    assert error.span is not None
    assert error.text[slice(*error.span)] == name
    assert error.hint


def test_a_released_column_may_have_the_name_of_a_call(session: dpsql.Session) -> None:
    assert session.sql("SELECT plan AS user FROM plans ORDER BY user").fetchall() == [("95%",), ("free",)]
    rows = session.sql(f"SELECT version FROM (SELECT n AS version FROM ({NOISY}) AS t) AS u").fetchall()
    assert abs(rows[0][0] - 100) < 40


@pytest.mark.parametrize(
    ("query", "repeats"),
    [
        ("SELECT range * 0.5 AS p FROM range(9)", True),
        ("WITH c AS (SELECT plan FROM plans) SELECT * FROM c ORDER BY 1", True),
        ("SELECT range * random() AS p FROM range(9)", False),
        ("WITH c AS (SELECT uuid() AS u) SELECT * FROM c", False),
        ("SELECT current_timestamp", False),
        ("SELECT age(DATE '2000-01-01')", False),
        ("SELECT plan FROM plans TABLESAMPLE 50%", False),
        ("SELECT plan FROM plans USING SAMPLE 1", False),
    ],
)
def test_what_repeats(query: str, repeats: bool) -> None:
    assert check_public(query, ("plans",), ("plan",)).repeats is repeats


def test_functions_that_change_are_known() -> None:
    """DuckDB calls functions of the clock consistent within a query, as it does those that read the time zone."""
    listed = "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE stability = 'VOLATILE'"
    with duckdb.connect() as con:
        assert {name for (name,) in con.sql(listed).fetchall()} & PUBLIC_FUNCTIONS <= CHANGING_FUNCTIONS
