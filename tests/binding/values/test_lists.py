"""Lists in row expressions are no longer than their public bound says."""

from __future__ import annotations

import duckdb
import pytest

from dpsql.binding.values.declared_values import length_of
from dpsql.binding.values.total_expressions import make_total
from dpsql.language.dialect import parse_tokens, to_sql
from dpsql.language.tokens import tokenize
from tests.support.nasty import NastyScope, fill

LISTS = (
    "[i, b, null]",
    "l[1:2]",
    "l[-2:-1]",
    "[i, b, 3][2:]",
    "array_slice([i, b, 3], 0, 2)",
    "string_split('a,b,,c', ',')",
)


def beyond(con: duckdb.DuckDBPyConnection, text: str, most: int | None = None) -> int:
    """Return the number of rows with a list longer than its bound, or than ``most``."""
    typed = make_total(parse_tokens(tokenize(f"SELECT {text}"), text).expressions[0], NastyScope())
    bound = length_of(typed) if most is None else most
    found = con.execute(f"SELECT COUNT(*) FROM t WHERE len({to_sql(typed.node)}) > {bound}").fetchall()
    return int(found[0][0])


@pytest.mark.parametrize("text", LISTS)
def test_no_list_is_longer_than_its_bound(text: str) -> None:
    with duckdb.connect() as con:
        fill(con)
        assert beyond(con, text) == 0


def test_a_bound_that_is_too_small_is_noticed() -> None:
    with duckdb.connect() as con:
        fill(con)
        assert beyond(con, "[i, b, null]", 2) > 0
        assert beyond(con, "string_split('a,b,,c', ',')", 3) > 0
