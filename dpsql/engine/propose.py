"""Types that the rows of an untyped source suggest. For the data owner's eyes only: they tell about the rows."""

from __future__ import annotations

import contextlib

import duckdb

from dpsql.engine.clone import literal
from dpsql.errors import PolicyError
from dpsql.policy import Format, Table
from dpsql.policy_types import type_of


def propose_types(table: Table, files: list[str]) -> dict[str, str]:
    """Read a source whose types the policy must declare, and give what its rows look like; empty where they can't be read."""
    listed = f"[{', '.join(map(literal, files))}]"
    text = (table.format or Format()).fit(table.source, table.text) if table.text is not None else Format()
    if table.text is None:
        body = f"read_parquet({listed}, union_by_name = true, hive_partitioning = true)"
    elif table.text == "json":
        body = f"read_json({listed}, sample_size = -1, union_by_name = true, ignore_errors = true, format = 'auto')"
    else:
        quotes = f"quote = {literal(text.quote)}, escape = {literal(text.escape or '')}"
        body = (
            f"read_csv({listed}, sample_size = -1, union_by_name = true, ignore_errors = true, null_padding = true, "
            f"delim = {literal(text.delimiter or ',')}, {quotes}, header = {text.header}, nullstr = {literal(text.null)})"
        )
    with contextlib.suppress(duckdb.Error), duckdb.connect(":memory:", config={"temp_directory": ""}) as con:
        rows = con.execute(f"DESCRIBE SELECT * FROM {body}").fetchall()
        return {row[0]: _known(row[1]) for row in rows}
    return {}


def _known(kind: str) -> str:
    with contextlib.suppress(PolicyError):
        return type_of(kind)
    return "VARCHAR"
