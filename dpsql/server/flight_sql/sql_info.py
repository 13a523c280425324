"""The facts that GetSqlInfo and GetXdbcTypeInfo tell a client: about dpsql and its language, never about data.

The numbers of facts, and the types of their values, are those of the Flight SQL protocol.

The tables that Flight SQL clients browse: catalogs, schemas, tables and keys, from the policy alone.

A policy is a catalog, which is called as its file is. It has one schema without a name, since a table's name stands alone in the
language. There are no keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dpsql.policy.model import Policy

TABLE_TYPE = "TABLE"
SCHEMA_NAME = ""
"""The name of the one schema of a catalog."""


def _text(name: str, nullable: bool = True) -> pa.Field:
    return pa.field(name, pa.string(), nullable=nullable)


_NUMBER, _RULE = pa.field("key_sequence", pa.int32(), nullable=False), pa.uint8()
_REFERENCES = pa.schema(
    [
        *(_text(f"{side}_{name}", nullable) for side in ("pk", "fk") for name, nullable in (
            ("catalog_name", True), ("db_schema_name", True), ("table_name", False), ("column_name", False),
        )),
        _NUMBER,
        _text("fk_key_name"),
        _text("pk_key_name"),
        pa.field("update_rule", _RULE, nullable=False),
        pa.field("delete_rule", _RULE, nullable=False),
    ]
)  # fmt: skip
SCHEMAS = {
    "CommandGetCatalogs": pa.schema([_text("catalog_name", False)]),
    "CommandGetDbSchemas": pa.schema([_text("catalog_name"), _text("db_schema_name", False)]),
    "CommandGetTables": pa.schema(
        [_text("catalog_name"), _text("db_schema_name"), _text("table_name", False), _text("table_type", False)]
    ),
    "CommandGetTableTypes": pa.schema([_text("table_type", False)]),
    "CommandGetPrimaryKeys": pa.schema(
        [
            _text("catalog_name"), _text("db_schema_name"), _text("table_name", False), _text("column_name", False),
            _text("key_name"), _NUMBER,
        ]
    ),
    "CommandGetExportedKeys": _REFERENCES,
    "CommandGetImportedKeys": _REFERENCES,
    "CommandGetCrossReference": _REFERENCES,
}  # fmt: skip
"""The columns of each of these tables."""
TABLES_WITH_SCHEMA = SCHEMAS["CommandGetTables"].append(pa.field("table_schema", pa.binary(), nullable=False))


def find_catalog_schema(name: str, command: Any) -> pa.Schema:
    """Return the columns of the table that a command asks for."""
    with_schema = name == "CommandGetTables" and command.include_schema
    return TABLES_WITH_SCHEMA if with_schema else SCHEMAS[name]


def list_tables(catalog: str, policy: Policy, command: Any) -> list[str]:
    """Return the names of the policy's tables that a GetTables command asks for, in order."""
    kinds = list(command.table_types)
    if not _is_asked(command, "catalog", catalog) or (kinds and TABLE_TYPE not in kinds):
        return []
    if not _matches(command, "db_schema_filter_pattern", SCHEMA_NAME):
        return []
    names = [table.name for table in policy.tables.values()]
    return sorted(name for name in names if _matches(command, "table_name_filter_pattern", name))


def make_tables(catalog: str, names: Sequence[str], schemas: Mapping[str, pa.Schema] | None) -> pa.Table:
    """Return the table of GetTables.

    Args:
        catalog: the policy's name.
        names: the tables.
        schemas: their columns; None where they were not asked for.
    """
    count = len(names)
    columns: list[Any] = [[catalog] * count, [SCHEMA_NAME] * count, list(names), [TABLE_TYPE] * count]
    if schemas is None:
        return _make_table(SCHEMAS["CommandGetTables"], columns)
    written = [schemas.get(name, pa.schema([])).serialize().to_pybytes() for name in names]
    return _make_table(TABLES_WITH_SCHEMA, [*columns, written])


def make_catalog_table(name: str, command: Any, catalog: str) -> pa.Table:
    """Return the table of any other command of browsing; the tables of keys have no rows."""
    schema = SCHEMAS[name]
    rows: dict[str, list[Any]] = {
        "CommandGetCatalogs": [[catalog]],
        "CommandGetTableTypes": [[TABLE_TYPE]],
    }
    if name == "CommandGetDbSchemas":
        asked = _is_asked(command, "catalog", catalog)
        shown = asked and _matches(command, "db_schema_filter_pattern", SCHEMA_NAME)
        rows[name] = [[catalog], [SCHEMA_NAME]] if shown else [[], []]
    return _make_table(schema, rows.get(name, [[] for _ in schema]))


def _make_table(schema: pa.Schema, columns: Sequence[Any]) -> pa.Table:
    return pa.Table.from_arrays(
        [pa.array(values, f.type) for f, values in zip(schema, columns, strict=True)], schema=schema
    )


def _is_asked(command: Any, field: str, name: str) -> bool:
    """Tell whether a filter names this, or is not given. An empty one asks for what has no name."""
    return not command.HasField(field) or getattr(command, field) == name


def _matches(command: Any, field: str, name: str) -> bool:
    """Tell whether a name fits a pattern of LIKE, in which % is any text and _ any character; or none is given."""
    if not command.HasField(field):
        return True
    pattern = getattr(command, field)[:1000]
    parts = re.findall(r"\\.|%+|_|[^%_\\]+|\\", pattern, re.DOTALL)
    return _fits([part[1:] if part[0] == "\\" and len(part) == 2 else part for part in parts], parts, name)


def _fits(texts: Sequence[str], parts: Sequence[str], name: str) -> bool:
    """Compare by the places that a name may be read up to: no pattern takes long."""
    places = {0}
    for text, part in zip(texts, parts, strict=True):
        if part[0] == "%":
            places = set(range(min(places), len(name) + 1))
        elif part == "_":
            places = {place + 1 for place in places if place < len(name)}
        else:
            wanted = text.lower()
            places = {place + len(text) for place in places if name.lower().startswith(wanted, place)}
        if not places:
            return False
    return len(name) in places


_STRING, _BOOL, _BIGINT, _BITMASK, _LIST, _MAP = range(6)
"""The members of the union of values, in order."""
_MEMBERS = (
    ("string_value", pa.string()),
    ("bool_value", pa.bool_()),
    ("bigint_value", pa.int64()),
    ("int32_bitmask", pa.int32()),
    ("string_list", pa.list_(pa.field("string_data", pa.string()))),
    ("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.field("$data$", pa.int32())))),
)
_UNION = pa.dense_union([pa.field(name, kind) for name, kind in _MEMBERS])
SQL_INFO_SCHEMA = pa.schema([pa.field("info_name", pa.uint32(), nullable=False), pa.field("value", _UNION)])

_KEYWORDS = [
    "ABOVE_THRESHOLD", "CLOSE", "DECLARE", "DIFFERENTIAL_PRIVACY", "DP", "EXPLAIN", "EXPMECH", "OPTIONS", "PTR", "SHOW", "STABLE",
    "SUBSAMPLE",
]  # fmt: skip
_NUMBERS = ["ABS", "CEIL", "EXP", "FLOOR", "LN", "LOG", "POWER", "ROUND", "SIGN", "SQRT"]
_STRINGS = ["CONCAT", "LEFT", "LENGTH", "LOWER", "REPLACE", "RIGHT", "SUBSTRING", "TRIM", "UPPER"]
_TIMES = ["DATE_TRUNC", "DAY", "HOUR", "MINUTE", "MONTH", "QUARTER", "SECOND", "YEAR"]

TRUE_FACTS = (3, 4, 9, 506, 515, 516, 518, 520, 521, 524, 532)
"""Read-only, SQL, cancel; tables are selectable; aliases, correlation names, expressions in ORDER BY."""
FALSE_FACTS = (
    5, 10, 11, 500, 501, 502, 519, 523, 527, 536, 537, 539, 556, 563, 565, 566, 572, 573, 574, 575, 576,
)  # fmt: skip
"""Substrait, ingestion, DDL, LIKE ... ESCAPE, SELECT FOR UPDATE, procedures, transactions, batches, savepoints."""
_MASKS = {
    8: 0,  # no transactions
    100: 0,  # a handle does not expire while the server runs
    101: 0,
    503: 1,  # names are compared without case, in quotes too
    505: 1,
    507: 3,  # NULLS LAST
    522: 3,
    525: 3,
    526: 1,
    528: 2,
    533: 0,  # a table's name stands alone: neither a schema nor a catalog comes before it
    534: 0,
    535: 0,
    538: 15,
    540: 3,
    564: 1,
    567: 2,
    568: 2,
    569: 2,
    570: 0,
    571: 0,
}
"""Ordinals and bit masks."""
_LIMITS = (*range(541, 556), 557, 558, 559, 560, 561)
"""Limits without a number: 0 says that there is none, or none that is known."""


def list_sql_info(version: str, statement_bytes: int) -> dict[int, tuple[int, Any]]:
    """Return the facts by their numbers: the member of the union, and the value.

    Args:
        version: the server's.
        statement_bytes: the largest statement that the owner allows.
    """
    facts: dict[int, tuple[int, Any]] = dict.fromkeys(_LIMITS, (_BIGINT, 0))
    facts |= dict.fromkeys(TRUE_FACTS, (_BOOL, True))
    facts |= dict.fromkeys(FALSE_FACTS, (_BOOL, False))
    facts |= {number: (_BITMASK, mask) for number, mask in _MASKS.items()}
    texts = {
        0: "dpsql",
        1: version,
        2: pa.__version__,
        504: '"',
        513: "\\",
        514: "",
        529: "schema",
        530: "procedure",
        531: "policy",
    }
    facts |= {number: (_STRING, text) for number, text in texts.items()}
    lists = {508: _KEYWORDS, 509: _NUMBERS, 510: _STRINGS, 511: [], 512: _TIMES}
    facts |= {number: (_LIST, words) for number, words in lists.items()}
    facts |= {517: (_MAP, []), 557: (_BIGINT, statement_bytes), 562: (_BIGINT, 0)}
    return dict(sorted(facts.items()))


def make_sql_info(asked: Iterable[int], version: str, statement_bytes: int) -> pa.Table:
    """Return the table of GetSqlInfo: the facts that were asked for, all of them where none is named."""
    facts = list_sql_info(version, statement_bytes)
    wanted = set(asked)
    chosen = [(n, *fact) for n, fact in facts.items() if not wanted or n in wanted]
    members: list[list[Any]] = [[] for _ in _MEMBERS]
    offsets = []
    for _, member, value in chosen:
        offsets.append(len(members[member]))
        members[member].append(value)
    arrays = [pa.array(values, kind) for values, (_, kind) in zip(members, _MEMBERS, strict=True)]
    union = pa.UnionArray.from_dense(
        pa.array([member for _, member, _ in chosen], pa.int8()),
        pa.array(offsets, pa.int32()),
        arrays,
        [name for name, _ in _MEMBERS],
    )
    numbers = pa.array([number for number, _, _ in chosen], pa.uint32())
    return pa.Table.from_arrays([numbers, union], schema=SQL_INFO_SCHEMA)


def _field(name: str, kind: pa.DataType, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable=nullable)


XDBC_SCHEMA = pa.schema(
    [
        _field("type_name", pa.string(), False),
        _field("data_type", pa.int32(), False),
        _field("column_size", pa.int32()),
        _field("literal_prefix", pa.string()),
        _field("literal_suffix", pa.string()),
        _field("create_params", pa.list_(pa.field("item", pa.string(), nullable=False))),
        _field("nullable", pa.int32(), False),
        _field("case_sensitive", pa.bool_(), False),
        _field("searchable", pa.int32(), False),
        _field("unsigned_attribute", pa.bool_()),
        _field("fixed_prec_scale", pa.bool_(), False),
        _field("auto_increment", pa.bool_()),
        _field("local_type_name", pa.string()),
        _field("minimum_scale", pa.int32()),
        _field("maximum_scale", pa.int32()),
        _field("sql_data_type", pa.int32(), False),
        _field("datetime_subcode", pa.int32()),
        _field("num_prec_radix", pa.int32()),
        _field("interval_precision", pa.int32()),
    ]
)
"""The columns of GetXdbcTypeInfo."""
_TYPES: Sequence[tuple[str, int, int, str | None]] = (
    ("TINYINT", -6, 3, None),
    ("BIGINT", -5, 19, None),
    ("DECIMAL", 3, 38, None),
    ("INTEGER", 4, 10, None),
    ("SMALLINT", 5, 5, None),
    ("FLOAT", 7, 24, None),
    ("DOUBLE", 8, 53, None),
    ("VARCHAR", 12, 65_536, "'"),
    ("BOOLEAN", 16, 1, None),
    ("DATE", 91, 10, "DATE '"),
    ("TIME", 92, 15, "TIME '"),
    ("TIMESTAMP", 93, 26, "TIMESTAMP '"),
)
"""Names of types, their numbers in ODBC and JDBC, their sizes, and how a literal of them begins."""


def make_xdbc_types(data_type: int | None) -> pa.Table:
    """Return the table of GetXdbcTypeInfo: the types of the language, or the one of a number."""
    chosen = [t for t in _TYPES if data_type is None or t[1] == data_type]
    given: dict[str, Callable[[tuple[str, int, int, str | None]], Any]] = {
        "type_name": lambda t: t[0],
        "data_type": lambda t: t[1],
        "column_size": lambda t: t[2],
        "literal_prefix": lambda t: t[3],
        "literal_suffix": lambda t: "'" if t[3] else None,
        "nullable": lambda t: 1,
        "case_sensitive": lambda t: t[0] == "VARCHAR",
        "searchable": lambda t: 3,
        "unsigned_attribute": lambda t: None if t[3] or t[0] == "BOOLEAN" else False,
        "fixed_prec_scale": lambda t: False,
        "auto_increment": lambda t: False,
        "local_type_name": lambda t: t[0],
        "sql_data_type": lambda t: t[1],
        "num_prec_radix": lambda t: None if t[3] or t[0] == "BOOLEAN" else 10,
    }
    arrays = [
        pa.array([given[f.name](t) if f.name in given else None for t in chosen], f.type) for f in XDBC_SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=XDBC_SCHEMA)
