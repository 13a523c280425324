"""The catalogue's claims about row functions, compared with DuckDB."""

from __future__ import annotations

import ast
from pathlib import Path

import duckdb
import pytest

from dpsql.catalogue.row_names import EXACT_CALLS, OWN, ROW_NAMES, ROW_WORDS, RowName
from dpsql.lock import tree

VALUES = {"NUMBER": "1.5::DOUBLE", "DOUBLE": "1.5::DOUBLE", "INTEGER": "2", "TEXT": "'ab'", "LIST": "[1, 2]"}
OWN_CALLS = {
    "abs": "abs({})", "ceil": "ceil({})", "floor": "floor({})", "round": "round({}, 1)", "trunc": "trunc({})", "sign": "sign({})",
    "mod": "mod({}, 2)", "xor": "xor({}, 3)", "epoch": "epoch({}::DATE)",
    "date_diff": "date_diff('day', {}::DATE, DATE '2024-01-01')",
    "date_part": "date_part('week', {}::DATE)", "date_sub": "date_sub('day', {}::DATE, DATE '2024-01-01')",
    "date_trunc": "date_trunc('day', {}::DATE)", "dayname": "dayname({}::DATE)", "monthname": "monthname({}::DATE)",
    "last_day": "last_day({}::DATE)", "make_date": "make_date({}, 1, 2)", "strftime": "strftime({}::DATE, '%Y')",
    "extract": "extract(year FROM {}::DATE)", "time_bucket": "time_bucket(INTERVAL 1 DAY, {}::DATE)",
    "strptime": "strptime({}::VARCHAR, '%Y')",
    "try_strptime": "try_strptime({}::VARCHAR, '%Y')", "array_slice": "array_slice({}::INT[], 1, 2)",
    "list_slice": "list_slice({}::INT[], 1, 2)", "string_split": "string_split({}::VARCHAR, ',')",
    "epoch_ms": "epoch_ms({}::BIGINT)", "make_timestamp": "make_timestamp({}::BIGINT)",
    "to_timestamp": "to_timestamp({}::DOUBLE)",
    "timezone": "timezone('UTC', {}::TIMESTAMP)",
    "regexp_extract": "regexp_extract({}::VARCHAR, 'a')", "regexp_full_match": "regexp_full_match({}::VARCHAR, 'a')",
    "regexp_matches": "regexp_matches({}::VARCHAR, 'a')", "regexp_replace": "regexp_replace({}::VARCHAR, 'a', 'b')",
}  # fmt: skip

SECOND = {
    "mod": ("mod(2, NULL)",), "xor": ("xor(2, NULL)",), "make_date": ("make_date(2, NULL, 1)", "make_date(2, 1, NULL)"),
    "date_diff": ("date_diff('day', DATE '2024-01-01', NULL::DATE)",),
    "date_sub": ("date_sub('day', DATE '2024-01-01', NULL::DATE)",),
}  # fmt: skip
"""Calls with NULL in a further place that may be a column."""


def calls(row: RowName) -> list[str]:
    """Return calls of a strict function with NULL in each place."""
    if row.unit:
        return [f"{row.name}(NULL::DATE)"]
    if row.total == OWN:
        return [OWN_CALLS[row.name].format("NULL"), *SECOND.get(row.name, ())]
    given = [word.strip("'?") for word in row.signature.partition("-> ")[0].strip().split(", ") if word]
    nulls = {"TEXT": "NULL::VARCHAR", "LIST": "NULL::INTEGER[]"}
    return [
        f"{row.name}({', '.join(nulls.get(kind, 'NULL') if i == place else VALUES[kind] for i, kind in enumerate(given))})"
        for place in range(len(given))
    ]


@pytest.mark.parametrize("row", [row for row in ROW_NAMES if row.strict], ids=lambda row: row.name)
def test_a_strict_function_of_null_is_null(row: RowName) -> None:
    if row.name == "width_bucket":
        return  # DuckDB has none: it is written as a CASE of comparisons
    for call in calls(row):
        assert duckdb.execute(f"SELECT {call}").fetchall() == [(None,)], call


def test_no_function_is_volatile() -> None:
    found = duckdb.execute(
        "SELECT function_name, stability FROM duckdb_functions() WHERE function_type = 'scalar'"
    ).fetchall()
    changing = {name for name, stability in found if stability == "VOLATILE"}
    assert "random" in changing
    assert not changing & (ROW_WORDS | EXACT_CALLS | tree.SCALARS)


def test_the_lock_reads_names_alone() -> None:
    """The lock has rules of its own: of the catalogue it reads sets of names."""
    for path in Path(tree.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpsql.catalogue"):
                assert {item.name for item in node.names} <= {
                    "DUCKDB_WORDS",
                    "EXACT_CALLS",
                    "EXACT_AGGREGATES",
                }
