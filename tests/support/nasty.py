"""A table whose values are as bad as DuckDB lets them be: what expressions must be total over."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import duckdb
from sqlglot import exp

from dpsql.binding.relations.relation import column
from dpsql.binding.values.sql_types import Type, Typed
from dpsql.binding.values.total_expressions import make_total
from dpsql.errors import BindError
from dpsql.language.dialect import parse_tokens
from dpsql.language.tokens import tokenize

INTEGERS = {
    "ti": ("TINYINT", [0, 1, -1, 127, -128]),
    "si": ("SMALLINT", [0, 1, -1, 32767, -32768]),
    "i": ("INTEGER", [0, 1, -1, 7, 2**31 - 1, -(2**31)]),
    "b": ("BIGINT", [0, 1, -1, 7, 2**63 - 1, -(2**63)]),
    "h": ("HUGEINT", [0, 1, -1, 2**127 - 1, -(2**127)]),
    "uti": ("UTINYINT", [0, 1, 255]),
    "ui": ("UINTEGER", [0, 1, 2**32 - 1]),
    "u": ("UBIGINT", [0, 1, 2**64 - 1]),
    "uh": ("UHUGEINT", [0, 1, 2**128 - 1]),
}
DATES = [
    "2020-02-29", "1970-01-01", "infinity", "-infinity", "5877642-06-25 (BC)", "5881580-07-10", "0001-01-01",
    "9999-12-31", "4714-01-01 (BC)", "294247-01-10", "294247-01-11", "290309-12-22 (BC)", "290309-12-21 (BC)",
]  # fmt: skip
TIMESTAMPS = [
    "2020-02-29 23:59:59.999999", "1970-01-01", "infinity", "-infinity", "294247-01-10 04:00:54.775806",
    "290309-12-22 (BC) 00:00:00", "0001-01-01", "9999-12-31 23:59:59.999999",
]  # fmt: skip
TEXTS = [
    "", "a", "5", "-7", " 12 ", "1e400", "nan", "x%y_z", "é😀𝔘ß", "2020-02-30", "2020-02-28", "true", "(", "\\", "9" * 43,
    "ab" * 3000, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "infinity", "1.5", "a\u0301", "İI", "it''s", "2020-01-01 10:00:00",
]  # fmt: skip
QUOTED = {
    "f": ("FLOAT", ["nan", "inf", "-inf", "-0.0", "3.4e38", "1e-45", "0.1", "1.5", "-2.5"]),
    "d": ("DOUBLE", ["nan", "inf", "-inf", "-0.0", "1.7976931348623157e308", "5e-324", "0.1", "-1e308", "9.3e18", "1e19",
                     "2.5", "-1", "0", "700", "-3.7"]),
    "y": ("DECIMAL(4,1)", ["0", "999.9", "-999.9", "0.1", "-0.5"]),
    "z": ("DECIMAL(18,6)", ["0", "999999999999.999999", "-999999999999.999999", "0.000001", "2.5"]),
    "x": ("DECIMAL(38,0)", ["0", "9" * 38, "-" + "9" * 38, "1"]),
    "w": ("DECIMAL(38,10)", ["0", "9" * 28 + "." + "9" * 10, "-" + "9" * 28 + "." + "9" * 10, "0.0000000001"]),
    "p": ("BOOLEAN", ["true", "false"]),
    "s": ("VARCHAR", TEXTS),
    "s2": ("VARCHAR", ["", "a", "😀", "$"]),
    "dt": ("DATE", DATES), "dt2": ("DATE", DATES[:5]), "ts": ("TIMESTAMP", TIMESTAMPS), "ts2": ("TIMESTAMP", TIMESTAMPS[:5]),
    "tm": ("TIME", ["00:00:00", "23:59:59.999999", "24:00:00", "12:34:56.7"]),
    "iv": ("INTERVAL", ["0 days", "1 day", "-1 month", "178000000 years", "-178000000 years", "2147483647 days",
                        "-2147483648 days"]),
    "g": ("UUID", ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
                   "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    "tns": ("TIMESTAMP_NS", ["2020-02-29 23:59:59.999999999", "1677-09-22", "2262-04-11 23:47:16.854775806"]),
    "tz": ("TIMESTAMPTZ", ["2024-03-31 01:30:00+00", "infinity", "-infinity", "290309-12-22 (BC) 00:00:00+00",
                           "294247-01-10 04:00:54.775806+00", "2024-10-27 00:30:00+00", "0001-01-01 00:00:00+00"]),
    "tss": ("TIMESTAMP_S", ["2020-02-29 23:59:59", "290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54"]),
}  # fmt: skip
NESTED = {
    "l": ("INTEGER[]", ["[]", "[1]", "[1, NULL, 3]", "[2147483647, 2147483647]"]),
    "ls": ("VARCHAR[]", ["[]", "['a']", "['a', NULL]"]),
    "st": (
        'STRUCT(a INTEGER, "b c" VARCHAR, d DOUBLE[])',
        ["{'a': 1, 'b c': 'x', 'd': [1.5]}", "{'a': 2147483647, 'b c': NULL, 'd': NULL}"],
    ),
    "mp": ("MAP(VARCHAR, INTEGER)", ["MAP {}", "MAP {'a': 1, '': NULL}", "MAP {'b': 2147483647}"]),
}
COLUMNS: dict[str, tuple[str, list[str]]] = {
    **{name: (kind, [f"'{value}'" for value in values]) for name, (kind, values) in INTEGERS.items()},
    **{name: (kind, [f"'{value}'" for value in values]) for name, (kind, values) in QUOTED.items()},
    **NESTED,
}
ROWS = 48
EXPRESSIONS_FILE = Path(__file__).parents[1] / "binding" / "values" / "expressions.sql"


class NastyScope:
    """The columns of the table ``t``."""

    def column(self, node: exp.Column) -> Typed:
        name = node.name.lower()
        if name not in COLUMNS or node.table.lower() not in ("", "t"):
            raise BindError(f"there is no column {node.name}.")
        return Typed(column(name), Type.parse(COLUMNS[name][0]))


def fill(con: duckdb.DuckDBPyConnection) -> None:
    """Table ``t`` with all values, and tables ``t0, t1, ...`` of one row each, whose statistics are that row."""
    con.execute("SET threads = 1")
    for setting in ("error_on_division_by_zero = false", "ieee_floating_point_ops = true"):
        try:
            con.execute(f"SET {setting}")
        except duckdb.Error:  # not known to the other version
            continue
    listed = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    con.execute(f"CREATE TABLE t (id INTEGER, {listed})")
    chance = random.Random(7)
    longest = max(len(values) for _, values in COLUMNS.values())
    for i in range(ROWS):
        cells = [str(i)]
        for kind, values in COLUMNS.values():
            value = values[i % len(values)] if i <= longest else chance.choice([*values, "NULL"])
            value = value if i > 0 else "NULL"
            cells.append(f"CAST({value} AS {kind})")
        con.execute(f"INSERT INTO t SELECT {', '.join(cells)}")
        con.execute(f"CREATE TABLE t{i} AS SELECT * FROM t WHERE id = {i}")


LINES = [
    line.partition("  -- ")
    for line in EXPRESSIONS_FILE.read_text(encoding="utf-8").splitlines()
    if line.strip() and not line.startswith("-- ")
]
EXPRESSIONS = [text for text, _, _ in LINES]
COMPARED = [text for text, _, note in LINES if note != "total only"]


@cache
def bound(text: str) -> Typed:
    sql = f"SELECT {text}"
    return make_total(parse_tokens(tokenize(sql), sql).expressions[0], NastyScope())
