"""PostgreSQL's catalogue and information schema, filled only from the policy and from names and types of columns.

Schema ``public`` has the policy's tables and the session's kept results. Relations without a counterpart in the policy (indexes,
keys, triggers, functions) are empty. No row of data is read, and no number of rows is shown.

In ``pg_catalog.txt``, a line with its indented continuation is a relation: its name, with PostgreSQL's number if tools know it,
and its columns with the letters of their types. ``i`` is an integer, ``b`` a boolean, ``d`` a double, ``I`` and ``T`` are lists
of integers and of texts; the default is a text. DuckDB's own catalogue can't replace these: it has a third of them, other numbers
of types, and no kept results.

A query is parsed as by PostgreSQL, and written as DuckDB SQL over these relations: its parameters become literals, and functions
about the session and the catalogue become constants and look-ups. The result is ordinary public SQL, under the same list of
functions.

This module stands apart from :mod:`dpsql.server.postgres.worker_side`, since few sessions ask for the catalogue.
"""

from __future__ import annotations

import functools
import itertools
import re
import zlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dpsql.catalogue.aggregate_names import MECHANISMS, OFFERED_MODES
from dpsql.engine.postprocess import Finisher
from dpsql.engine.public_sql import Copies
from dpsql.errors import BindError, ParseError
from dpsql.language.parameters import make_literal
from dpsql.language.postgres import PUBLIC, TextPart
from dpsql.language.postgres_texts import split_array
from dpsql.language.tokens import tokenize
from dpsql.policy.model import Budget, Policy
from dpsql.policy.validate import fold
from dpsql.server.postgres import types
from dpsql.server.postgres.commands import SERVER_VERSION, ClientSettings
from dpsql.session.session import Session

INFORMATION = "information_schema"
RELATIONS: dict[str, dict[str, str]] = {}
"""The columns of each relation, with the signs of their types."""
CATALOGS: dict[str, int] = {}
"""The numbers of PostgreSQL's own relations, which tools have written down."""

for _line in Path(__file__).with_suffix(".txt").read_text().replace("\n    ", " ").splitlines():
    _first, *_columns = _line.split()
    _name, _, _number = _first.partition("=")
    RELATIONS[_name] = {name: kind or "t" for name, _, kind in (column.partition(":") for column in _columns)}
    if not _name.startswith(INFORMATION):
        RELATIONS[_name] |= {"tableoid": "i", "xmin": "i"}
    if _number:
        CATALOGS[_name] = int(_number)

_SQL = {"i": "BIGINT", "t": "VARCHAR", "b": "BOOLEAN", "d": "DOUBLE", "I": "BIGINT[]", "T": "VARCHAR[]"}
_OID_NAME = re.compile("oid|relid|typid|namespace|owner|typelem|typarray|typbasetype")
COLUMN_KINDS = {
    name: "OID" if kind == "i" and _OID_NAME.search(name) else _SQL[kind]
    for columns in RELATIONS.values()
    for name, kind in columns.items()
}
"""The SQL types of columns by name, for parameters that are compared with them."""
_SCHEMAS = {11: "pg_catalog", 2200: PUBLIC, 13000: INFORMATION}
_OURS, _PUBLIC_OID, _OWNER_OID, _DATABASE_OID, _ANALYST_OID = 11, 2200, 10, 16000, 16001
_FIRST_OID = 1 << 24
_ARROW = {
    "i": pa.int64(),
    "t": pa.string(),
    "b": pa.bool_(),
    "d": pa.float64(),
    "I": pa.list_(pa.int64()),
    "T": pa.list_(pa.string()),
}
_WHERE = "table_catalog table_schema table_name"
_ABOVE = "above the private part"


@functools.cache
def open_finisher() -> Finisher:
    """Return an empty database, for queries over the relations and over empty copies of tables."""
    return Finisher(Copies({}), Policy(Budget(Fraction(1))))


def make_oid(name: str) -> int:
    """Return the number of a relation, which is the same whatever else there is."""
    return _FIRST_OID + zlib.crc32(name.encode()) % (1 << 30)


class Catalogue:
    """PostgreSQL's catalogue as an analyst's session sees it; ``database`` is the policy's name."""

    def __init__(self, session: Session, analyst: str, database: str) -> None:
        self._session, self._analyst, self._database = session, analyst, database
        self._facts = _list_facts(analyst, database)
        self._key: tuple[Any, ...] = ()
        self._tables: dict[str, pa.Table] = {}

    def answer(
        self, part: TextPart, values: Sequence[Any], settings: ClientSettings, described: bool = False
    ) -> pa.Table:
        """Answer a question.

        Args:
            part: the question.
            values: of its parameters.
            settings: the session's; ``set_config`` changes them.
            described: whether only the columns are asked for. Nothing changes then, and the values may be samples.

        Raises:
            ParseError, BindError: it is none that can be answered.
        """
        asked = None if described else settings
        sql, read = write_catalog_query(part.own, values, self._facts, asked)
        tables = self._fill()
        lent = {name: tables[name] for name in sorted(read)}
        if "pg_settings" in lent:
            lent["pg_settings"] = _list_settings(settings)
        try:
            return open_finisher().finish(sql, lent)
        except BindError as error:
            what = error.message.replace(f"{_ABOVE}: ", "").replace(_ABOVE, "over PostgreSQL's catalogue")
            raise BindError(
                f"this question to PostgreSQL's catalogue is not answered here: {what}",
                hint="SHOW TABLES and SHOW POLICY list the tables and the policy.",
                sqlstate=error.sqlstate,
            ) from None

    def _fill(self) -> dict[str, pa.Table]:
        """Return the relations, made again if the policy's tables or the kept results have changed."""
        session = self._session
        listed = [(name, "table") for name in session.policy.tables] + [
            (name, "kept") for name in session.relations
        ]
        described = [(name, kind, tuple(session.columns(name).items())) for name, kind in listed]
        key = tuple(described)
        if key != self._key:
            rows = self._list_rows(described)
            self._tables = {name: _make_table(name, rows.get(name, [])) for name in RELATIONS}
            self._key = key
        return self._tables

    def _list_rows(self, described: Sequence[tuple[str, str, tuple[tuple[str, str], ...]]]) -> _Rows:
        """Return the rows of the relations that have some, by their names."""
        rows, analyst = _Rows(), self._analyst
        rows.add(
            "pg_namespace", "oid nspname nspowner", *((n, name, _OWNER_OID) for n, name in _SCHEMAS.items())
        )
        rows.add(
            "pg_database",
            "oid datname datdba datcollate datctype encoding datallowconn datconnlimit dattablespace datlocprovider",
            (_DATABASE_OID, self._database, _OWNER_OID, "C", "C", 6, True, -1, 1663, "c"),
        )
        roles = ((_OWNER_OID, "owner", True, True, -1), (_ANALYST_OID, analyst, True, True, -1))
        rows.add("pg_roles", "oid rolname rolcanlogin rolinherit rolconnlimit", *roles)
        rows.add("pg_user", "usename usesysid usesuper usecreatedb", (analyst, _ANALYST_OID, False, False))
        _add_types(rows)
        words = sorted(word.lower() for word in (*OFFERED_MODES, *MECHANISMS))
        rows.add("pg_get_keywords", "word catcode catdesc", *((word, "U", "unreserved") for word in words))
        rows.add("pg_am", "oid amname amtype", (2, "heap", "t"))
        rows.add("pg_tablespace", "oid spcname spcowner", (1663, "pg_default", _OWNER_OID))
        schemata = ((self._database, name, "owner") for name in _SCHEMAS.values())
        rows.add(f"{INFORMATION}_schemata", "catalog_name schema_name schema_owner", *schemata)
        for name, kind, columns in described:
            self._add_table(rows, name, kind, columns)
        own = ((n, name, _OURS, "r", _OWNER_OID, len(RELATIONS[name])) for name, n in CATALOGS.items())
        rows.add("pg_class", "oid relname relnamespace relkind relowner relnatts", *own)
        return rows

    def _add_table(self, rows: _Rows, name: str, kind: str, columns: Sequence[tuple[str, str]]) -> None:
        oid, where = make_oid(name), (self._database, PUBLIC, name)
        table = (oid, name, _PUBLIC_OID, make_oid(f"{name} type"), "r", _OWNER_OID, 2, len(columns))
        rows.add("pg_class", "oid relname relnamespace reltype relkind relowner relam relnatts", table)
        rows.add("pg_tables", "schemaname tablename tableowner", (PUBLIC, name, "owner"))
        comment = (oid, CATALOGS["pg_class"], 0, self._describe(name, kind))
        rows.add("pg_description", "objoid classoid objsubid description", comment)
        shown = f"{_WHERE} table_type is_insertable_into is_typed"
        rows.add(f"{INFORMATION}_tables", shown, (*where, "BASE TABLE", "NO", "NO"))
        grant = (*where, "owner", self._analyst, "SELECT", "NO")
        for view in ("table_privileges", "role_table_grants"):
            rows.add(f"{INFORMATION}_{view}", f"{_WHERE} grantor grantee privilege_type is_grantable", grant)
        told = {} if kind == "kept" else self._session.policy.tables[name].columns
        for place, (column, written) in enumerate(columns, 1):
            text = next((rules.description for key, rules in told.items() if fold(key) == fold(column)), None)
            if text:
                comment = (oid, CATALOGS["pg_class"], place, text)
                rows.add("pg_description", "objoid classoid objsubid description", comment)
            found = types.find_sql_type(written)
            size = found.name_field(column).size
            storage = "x" if size < 0 else "p"
            rows.add(
                "pg_attribute",
                "attrelid attname atttypid attnum atttypmod attlen attidentity attgenerated attislocal attstattarget attstorage",
                (oid, column, found.kind, place, found.modifier, size, "", "", True, -1, storage),
            )
            spoken = "ARRAY" if found.spoken.endswith("[]") else found.spoken.partition("(")[0]
            named = (spoken, self._database, "pg_catalog", _name_udt(found.kind))
            rows.add(
                f"{INFORMATION}_columns",
                f"{_WHERE} column_name ordinal_position is_nullable is_updatable data_type udt_catalog udt_schema udt_name "
                "is_identity is_generated numeric_precision numeric_scale numeric_precision_radix",
                (*where, column, place, "YES", "NO", *named, "NO", "NEVER", *_describe_digits(found)),
            )

    def _describe(self, name: str, kind: str) -> str:
        if kind == "kept":
            return "a kept result: public"
        table = self._session.policy.tables[name]
        kind = (
            "public" if table.public else f"private: aggregates alone; the privacy unit is {table.unit_text}"
        )
        return f"{table.description} ({kind})" if table.description else kind


class _Rows(dict[str, list[dict[str, object]]]):
    """Rows by the names of their relations."""

    def add(self, relation: str, columns: str, *rows: Sequence[object]) -> None:
        """Add rows with values of these columns."""
        made = (dict(zip(columns.split(), row, strict=True)) for row in rows)
        self.setdefault(relation, []).extend(made)


def _list_settings(settings: ClientSettings) -> pa.Table:
    rows = _Rows()
    listed = ((*one, "user", "string") for one in settings.list())
    rows.add("pg_settings", "name setting context vartype", *listed)
    return _make_table("pg_settings", rows["pg_settings"])


def _describe_digits(found: types.PgType) -> tuple[int | None, int | None, int | None]:
    """Return precision, scale and radix of a numeric type, as in the information schema."""
    if found.kind == types.NUMERIC and found.modifier >= 0:
        return (*divmod(found.modifier - 4, 1 << 16), 10)
    whole = {types.INT2: 16, types.INT4: 32, types.INT8: 64}
    bits = whole | {types.FLOAT4: 24, types.FLOAT8: 53}
    return bits.get(found.kind), 0 if found.kind in whole else None, 2 if found.kind in bits else None


def _name_udt(kind: int) -> str:
    item = next((item for item, array in types.ARRAYS.items() if array == kind), None)
    return types.NAMES[kind] if item is None else f"_{types.NAMES[item]}"


def _add_types(rows: _Rows) -> None:
    """Add our types and their arrays."""
    numbers = {types.INT2, types.INT4, types.INT8, types.FLOAT4, types.FLOAT8, types.NUMERIC, types.OID}
    times = {types.DATE, types.TIME, types.TIMESTAMP, types.TIMESTAMPTZ}
    columns = (
        "oid typname typlen typcategory typarray typelem dpsql_spoken typinput typoutput typreceive typsend"
    )
    columns += " typnamespace typowner typtype typdelim typisdefined"
    common, lists = (_OURS, _OWNER_OID, "b", ",", True), _name_functions("array_")
    named = [*lists]
    for kind, name in types.NAMES.items():
        category = "N" if kind in numbers else "D" if kind in times else "B" if kind == types.BOOL else "S"
        found, array = types.PgType(kind), types.ARRAYS.get(kind, 0)
        size, parted = found.name_field("").size, kind in times or kind in _UNDERSCORED
        functions = _name_functions(f"{name}_" if parted else name)
        rows.add(
            "pg_type", columns, (kind, name, size, category, array, 0, found.spoken, *functions, *common)
        )
        if array:
            listed = (array, f"_{name}", -1, "A", 0, kind, f"{found.spoken}[]", *lists, *common)
            rows.add("pg_type", columns, listed)
        named += functions
    rows.add("pg_proc", "oid proname pronamespace", *((make_oid(name), name, _OURS) for name in named))


_UNDERSCORED = (types.NUMERIC, types.INTERVAL, types.UUID, types.JSON)
"""Types whose functions have an underscore in their names, besides those of times."""


def _name_functions(prefix: str) -> tuple[str, ...]:
    """Return the names of a type's functions, by which drivers know its binary format."""
    return tuple(prefix + verb for verb in ("in", "out", "recv", "send"))


def _make_table(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return a relation; columns missing in ``rows`` are 0 or false, NULL if they are texts or of the information schema."""
    defaults = {"tableoid": CATALOGS.get(name, 0), "relpersistence": "p", "relreplident": "d"}
    plain = {} if name.startswith(INFORMATION) else {"i": 0, "b": False}
    made = {}
    for column, kind in RELATIONS[name].items():
        default = defaults.get(column, plain.get(kind))
        made[column] = pa.array([row.get(column, default) for row in rows], _ARROW[kind])
    return pa.table(made)


# -- queries as DuckDB SQL ----------------------------------------------------------------------------------------------

_HINT = "SHOW TABLES and SHOW POLICY say what there is."
_NO_TEXT = (
    "pg_get_expr pg_get_viewdef pg_get_indexdef pg_get_constraintdef pg_get_triggerdef pg_get_ruledef pg_get_functiondef "
    "pg_get_function_result pg_get_function_arguments pg_get_function_identity_arguments pg_get_partkeydef "
    "pg_get_partition_constraintdef pg_get_statisticsobjdef_columns pg_get_serial_sequence pg_tablespace_location "
    "shobj_description inet_server_addr inet_client_addr pg_size_pretty pg_get_statisticsobjdef "
    "pg_relation_filepath pg_describe_object"
)
_NO_NUMBER = (
    "pg_relation_size pg_total_relation_size pg_table_size pg_indexes_size pg_database_size pg_tablespace_size "
    "pg_stat_get_numscans inet_server_port inet_client_port age pg_sequence_last_value pg_partition_root"
)
_TRUE = (
    "pg_table_is_visible pg_type_is_visible pg_function_is_visible pg_has_role pg_collation_is_visible "
    "pg_opclass_is_visible pg_operator_is_visible pg_statistics_obj_is_visible"
)
_FALSE = (
    "pg_is_other_temp_schema pg_is_in_recovery pg_is_wal_replay_paused pg_relation_is_publishable row_security_active "
    "pg_relation_is_updatable pg_column_is_updatable"
)
_OWNER = "'owner'"
_TEMPLATES = {
    **dict.fromkeys(_NO_TEXT.split(), "CAST(NULL AS VARCHAR)"),
    **dict.fromkeys(_NO_NUMBER.split(), "CAST(NULL AS BIGINT)"),
    **dict.fromkeys(_TRUE.split(), "TRUE"),
    **dict.fromkeys(_FALSE.split(), "FALSE"),
    "pg_get_userbyid": _OWNER,
    "pg_encoding_to_char": "'UTF8'",
    "pg_char_to_encoding": "6",
    "pg_backend_pid": "0",
    "pg_my_temp_schema": "0",
    "txid_current": "1",
    "pg_postmaster_start_time": "CAST(NULL AS TIMESTAMP)",
    "pg_options_to_table": "NULL",
    "quote_ident": "_1",
    **dict.fromkeys(
        ("quote_literal", "quote_nullable"), "chr(39) || replace(_1, chr(39), chr(39) || chr(39)) || chr(39)"
    ),
    "pg_advisory_unlock_all": "''",
    "format_type": (
        "CASE WHEN _1 = 1700 AND _2 >= 4 THEN 'numeric(' || ((_2 - 4) // 65536) || ',' || ((_2 - 4) % 65536) || ')' "
        # One map for all rows, since a join would reorder them, which psql's \gdesc shows.
        "ELSE (SELECT map_from_entries(list((dpsql_f.oid, dpsql_f.dpsql_spoken))) FROM pg_type AS dpsql_f)[_1] END"
    ),
    "obj_description": (
        "(SELECT max(dpsql_d.description) FROM pg_description AS dpsql_d WHERE dpsql_d.objoid = _1 AND dpsql_d.objsubid = 0)"
    ),
    "col_description": (
        "(SELECT max(dpsql_d.description) FROM pg_description AS dpsql_d WHERE dpsql_d.objoid = _1 AND dpsql_d.objsubid = _2)"
    ),
    "to_regclass": "(SELECT max(dpsql_c.oid) FROM pg_class AS dpsql_c WHERE dpsql_c.relname = _1)",
    "to_regtype": (
        "(SELECT max(dpsql_t.oid) FROM pg_type AS dpsql_t WHERE dpsql_t.typname = lower(_1) OR dpsql_t.dpsql_spoken = lower(_1))"
    ),
    "to_regproc": "(SELECT max(dpsql_p.oid) FROM pg_proc AS dpsql_p WHERE dpsql_p.proname = _1)",
    "to_regnamespace": "(SELECT max(dpsql_n.oid) FROM pg_namespace AS dpsql_n WHERE dpsql_n.nspname = _1)",
    "json_build_object": "json_object()",
    "jsonb_build_object": "json_object()",
    "json_agg": "json_group_array(_1)",
    "jsonb_agg": "json_group_array(_1)",
    "parse_ident": "string_split(replace(_1, '\"', ''), '.')",
    "array_upper": "array_length(_1)",
    "array_lower": "1",
    "generate_subscripts": "unnest(range(1, array_length(_1) + 1))",
    "regexp_split_to_table": "unnest(regexp_split_to_array(_1, _2))",
    "_pg_expandarray": "CAST(NULL AS STRUCT(x BIGINT, n BIGINT))",
}
_CALLED = {name: name for name in ("pg_get_keywords", "pg_available_extension_versions")}
_CALLED["pg_show_all_settings"] = "pg_settings"
"""Relations that are functions in PostgreSQL."""
_SCHEMA = r"^.*[.]"
_VERBS = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE"})
"""Words that PostgreSQL takes for names after AS and a dot."""
_ALL_ARGUMENTS = frozenset({"json_build_object", "jsonb_build_object"})
_NAMES_OF = {
    "REGCLASS": "(SELECT max(dpsql_c.relname) FROM pg_class AS dpsql_c WHERE dpsql_c.oid = _1)",
    "REGTYPE": "(SELECT max(dpsql_t.dpsql_spoken) FROM pg_type AS dpsql_t WHERE dpsql_t.oid = _1)",
    "REGNAMESPACE": "(SELECT max(dpsql_n.nspname) FROM pg_namespace AS dpsql_n WHERE dpsql_n.oid = _1)",
    "REGROLE": _OWNER,
    "REGPROC": "'-'",
    "REGPROCEDURE": "'-'",
}
_NUMBERS_OF = {"REGCLASS": "to_regclass", "REGTYPE": "to_regtype", "REGNAMESPACE": "to_regnamespace"}
_TEXTS = (
    "NAME CHAR TEXT XID CSTRING ACLITEM SQL_IDENTIFIER CHARACTER_DATA YES_OR_NO PG_NODE_TREE REGCONFIG PG_LSN"
)
_TYPES = dict.fromkeys((*_TEXTS.split(), "INFORMATION_SCHEMA.SQL_IDENTIFIER"), "VARCHAR")
_TYPES |= {"OID": "BIGINT", "INT2VECTOR": "BIGINT[]", "OIDVECTOR": "BIGINT[]", "CARDINAL_NUMBER": "INTEGER"}
_PRIVILEGES = ("SELECT", "USAGE", "CONNECT")
_OPERATORS = {
    "~": "regexp_matches(_1, _2)",
    "~*": "regexp_matches(_1, _2, 'i')",
    "!~": "NOT regexp_matches(_1, _2)",
    "!~*": "NOT regexp_matches(_1, _2, 'i')",
    "~~": "_1 LIKE _2",
    "!~~": "NOT _1 LIKE _2",
    **{sign: f"_1 {sign} _2" for sign in ("=", "<>", "||")},
}


def _list_facts(analyst: str, database: str) -> dict[str, exp.Expr]:
    """Return the values of functions about the session."""
    known = {"version": f"PostgreSQL {SERVER_VERSION} (dpsql)", "current_schema": PUBLIC}
    known |= dict.fromkeys(("current_database", "current_catalog"), database)
    known |= dict.fromkeys(("current_user", "session_user", "user", "current_role"), analyst)
    schemas = exp.array(*map(exp.Literal.string, ("pg_catalog", PUBLIC)))
    return {"current_schemas": schemas} | {name: exp.Literal.string(fact) for name, fact in known.items()}


def write_catalog_query(
    text: str, values: Sequence[object], facts: Mapping[str, exp.Expr], settings: ClientSettings | None
) -> tuple[str, set[str]]:
    """Translate a catalogue query to DuckDB SQL, and return it with the names of its relations.

    ``facts`` are the values of functions; ``set_config`` changes ``settings``. Without these, all settings are NULL.

    Raises:
        ParseError, BindError: it can't be answered.
    """
    tree = _parse(text)
    for node in [node for node in tree.find_all(exp.Parameter) if node.name.isdigit()]:
        number = int(node.name)
        if not 1 <= number <= len(values):
            raise BindError(f"the parameter ${number} has no value.")
        node.replace(_make_value(values[number - 1], number))
    _name_outputs(tree)
    tree = exp.Paren(this=tree)  # so that each node can be replaced
    read = _name_relations(tree)
    _drop_collations(tree)
    _number_groups(tree)
    _write_operators(tree)
    _write_calls(tree, facts, settings)
    _write_casts(tree)
    _write_lists(tree)
    read |= {name for table in tree.find_all(exp.Table) if (name := table.name) in RELATIONS}
    return tree.this.sql("duckdb", unsupported_level=sqlglot.ErrorLevel.IGNORE), read


def _parse(text: str) -> exp.Expr:
    """Parse one query as PostgreSQL does, and drop ``pg_catalog.`` qualifiers."""
    signs = list(text)
    tokens = tokenize(text)
    for schema, dot in itertools.pairwise(tokens):
        if schema.text.lower() == "pg_catalog" and dot.text == ".":
            signs[schema.start : dot.end + 1] = " " * (dot.end + 1 - schema.start)
        if schema.text.upper() in ("AS", ".") and text[dot.start : dot.end + 1].upper() in _VERBS:  # a name
            signs[dot.start], signs[dot.end] = f'"{signs[dot.start]}', f'{signs[dot.end]}"'
    for word, opening, closing in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if opening.text + closing.text == "[]" and word.text.lower().startswith(("reg", "oid", "name")):
            plain = "int" if word.text.lower() == "oid" else "text"
            signs[word.start : word.end + 1] = plain.ljust(word.end + 1 - word.start)
        if (called := _CALLED.get(word.text.lower())) and opening.text + closing.text == "()":
            signs[word.start : closing.end + 1] = called.ljust(closing.end + 1 - word.start)
    try:
        found = sqlglot.parse("".join(signs), read="postgres")
    except (SqlglotError, RecursionError):
        raise ParseError("this question to PostgreSQL's catalogue is not understood.", hint=_HINT) from None
    if len(found) != 1 or not isinstance(found[0], exp.Query):
        raise ParseError("only queries are answered here.", hint=_HINT)
    return found[0]


def _make_value(value: object, number: int) -> exp.Expr:
    if isinstance(value, list):
        return exp.array(*(make_literal(item, str(number)) for item in value))
    return make_literal(value, str(number))


def _name_relations(tree: exp.Expr) -> set[str]:
    """Replace tables' names by the catalogue's, and return these; BindError for an unknown relation."""
    known = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    read = set()
    for table in list(tree.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier):
            continue
        schema, name = table.db.lower(), table.name.lower()
        if not schema and name in known:
            continue
        whole = f"{INFORMATION}_{name}" if schema == INFORMATION else name
        if schema not in ("", INFORMATION) or whole not in RELATIONS:
            what = f"{schema}.{name}" if schema else name
            raise BindError(
                f"the catalogue that is shown here has no {what[:80]}.", hint=_HINT, sqlstate="42P01"
            )
        read.add(whole)
        alias = table.args.get("alias")
        columns = alias.args.get("columns") if alias is not None else None
        named = exp.TableAlias(this=exp.to_identifier(table.alias or name), columns=columns)
        made = exp.Table(this=exp.to_identifier(whole), alias=named)
        for key in ("joins", "laterals", "pivots"):
            if table.args.get(key):
                made.set(key, table.args[key])
        table.replace(made)
    for column in tree.find_all(exp.Column):
        column.set("db", None)
        column.set("catalog", None)
    return read


def _name_outputs(tree: exp.Expr) -> None:
    """Name the answer's columns as PostgreSQL does: by column, function or type."""
    for select in reversed(
        [tree, *tree.find_all(exp.Subquery, exp.CTE)]
    ):  # an inner name may be an outer one
        first = select if isinstance(select, exp.Select) else select.this
        for item in list(first.expressions) if isinstance(first, exp.Select) else ():
            if not isinstance(item, exp.Alias | exp.Column | exp.Star):
                item.replace(exp.alias_(item.copy(), _name_output(item), quoted=True))


_CALL = re.compile(r"(\w+)(?=\(|\Z)")
"""The name of a function that is called, or of one without brackets."""


def list_output_names(tree: exp.Expr | None) -> list[str]:
    """Return the names of a query's columns as PostgreSQL has them; none if a star stands for some of them.

    >>> list_output_names(sqlglot.parse("SELECT COUNT(*), AVG(x) + 1, y::INTEGER, 1.5::NUMERIC, x AS z FROM t")[0])
    ['count', '?column?', 'y', 'numeric', 'z']
    >>> list_output_names(sqlglot.parse("SELECT (SELECT 1 AS a UNION SELECT 2), (SELECT 1)")[0])
    ['a', '?column?']
    """
    items = tree.selects if isinstance(tree, exp.Query) else []
    if any(item.is_star for item in items):
        return []
    return [
        item.alias.removesuffix("()") if isinstance(item, exp.Alias) else _name_output(item) for item in items
    ]


def _name_output(node: exp.Expr) -> str:
    while isinstance(node, exp.Cast | exp.Paren | exp.Collate | exp.Filter | exp.WithinGroup | exp.Window):
        if isinstance(node.this, exp.Literal | exp.Query):
            break
        node = node.this
    if isinstance(node, exp.Dot):
        node = node.expression
    if isinstance(node, exp.Cast):
        written = _name_type(node.args["to"])
        return types.NAMES.get(types.find_sql_type(written, 0).kind, written.lower())
    if isinstance(node, exp.Column | exp.Identifier):
        return node.name
    if isinstance(node, exp.Case | exp.Exists | exp.Array):
        return node.key
    if isinstance(node, exp.Subquery):
        return next(iter(list_output_names(node.this)), "?column?")
    if not isinstance(node, exp.Func) or isinstance(node, exp.Connector):
        return "?column?"
    called = node.meta.get("called") or node.sql("postgres")
    found = _CALL.match(called)
    return "?column?" if found is None else found[1].lower()


def _drop_collations(tree: exp.Expr) -> None:
    for node in list(tree.find_all(exp.Collate)):
        node.replace(node.this)
    for string in list(tree.find_all(exp.ByteString)):
        string.replace(exp.Literal.string(string.name))
    for select in tree.find_all(exp.Select):
        select.set("locks", None)


def _number_groups(tree: exp.Expr) -> None:
    """Group by the position of an output whose name is a relation's, too: DuckDB would group by the relation's rows."""
    for select in tree.find_all(exp.Select):
        group, outputs = select.args.get("group"), [item.alias for item in select.expressions]
        sources = [select.args.get("from_"), *select.args.get("joins", ())]
        relations = {source.this.alias_or_name for source in sources if source is not None}
        for item in list(group.expressions) if group is not None else ():
            if isinstance(item, exp.Column) and not item.table and item.name in relations & {*outputs}:
                item.replace(exp.Literal.number(outputs.index(item.name) + 1))


_FUNCTION_COLUMNS = ("typinput", "typoutput", "typreceive", "typsend")


def _write_operators(tree: exp.Expr) -> None:
    # the relation has names of functions in place of numbers
    for compared in list(tree.find_all(exp.EQ, exp.NEQ)):
        for side, other in ((compared.this, compared.expression), (compared.expression, compared.this)):
            if side.name.lower() not in _FUNCTION_COLUMNS:
                continue
            if other.name == "0":
                other.replace(exp.Literal.string("-"))
            elif isinstance(other, exp.Column):
                side.replace(_fill_template(_TEMPLATES["to_regproc"], [side]))
    while (named := tree.find(exp.Operator)) is not None:
        template = _OPERATORS.get(str(named.args["operator"]).split(".")[-1].strip())
        if template is None:
            raise BindError("this operator is not known to the catalogue that is shown here.")
        named.replace(_fill_template(template, [named.this, named.expression]))
    for node in list(tree.find_all(exp.RegexpLike, exp.RegexpILike)):
        template = _OPERATORS["~" if isinstance(node, exp.RegexpLike) else "~*"]
        node.replace(_fill_template(template, [node.this, node.expression]))


_KEYWORDS = (
    exp.CurrentUser,
    exp.SessionUser,
    exp.CurrentSchema,
    exp.CurrentDatabase,
    exp.CurrentCatalog,
    exp.CurrentVersion,
    exp.CurrentSchemas,
)
"""Functions about the session, some of which are called without brackets."""


def _write_calls(tree: exp.Expr, facts: Mapping[str, exp.Expr], settings: ClientSettings | None) -> None:
    """Replace functions about the session and the catalogue by constants and look-ups, innermost first."""
    for called in list(tree.find_all(exp.Format)):
        called.replace(_write_format(called))
    calls = list(tree.find_all(exp.Anonymous, *_KEYWORDS))
    for node in reversed(calls):
        name = _name_output(node)
        fact = facts.get(name)
        if isinstance(node, exp.CurrentSchemas) and node.this == exp.false():
            fact = exp.array(exp.Literal.string(PUBLIC))
        made = _write_call(name, list(node.expressions), settings) if fact is None else fact.copy()
        if made is None:
            continue
        place = node.parent if isinstance(node.parent, exp.Dot) else node
        source = place.parent
        if isinstance(source, exp.Table) and source.this is place:  # a function in FROM
            _put_row(source, made, name)
            continue
        (place if isinstance(place, exp.Dot) and place.expression is node else node).replace(made)
    for column in [c for c in tree.find_all(exp.Column) if not c.table and not c.this.args.get("quoted")]:
        if column.name.lower() in ("user", "session_user", "current_role"):
            column.replace(facts["user"].copy())
    for table in [t for t in tree.find_all(exp.Table) if isinstance(t.this, exp.Func)]:
        name = _name_output(table.this)
        if name in ("generate_series", "unnest"):
            if table.alias and not table.alias_column_names:  # its one column has this name, too
                table.args["alias"].set("columns", [exp.to_identifier(table.alias)])
        else:
            _put_row(table, table.this, name)
    for dot in list(tree.find_all(exp.Dot)):
        if isinstance(dot.this, exp.Identifier) and isinstance(dot.expression, exp.Func):
            dot.replace(dot.expression)


def _write_format(node: exp.Expr) -> exp.Expr:
    """Translate ``format('%I.%s', a, b)``; names need no quotes here."""
    given = list(node.expressions)
    parts = re.split(r"%([sIL%])", node.name)
    signs = parts[1::2]
    if not (isinstance(node.this, exp.Literal) and len([s for s in signs if s != "%"]) == len(given)):
        raise BindError("format takes a literal, and a value for each of its signs.")
    made: list[exp.Expr] = [exp.Literal.string(parts[0])]
    for sign, rest in zip(signs, parts[2::2], strict=True):
        value = exp.Literal.string("%") if sign == "%" else exp.cast(given.pop(0).copy(), "text")
        made += [_fill_template(_TEMPLATES["quote_literal"], [value]) if sign == "L" else value]
        made += [exp.Literal.string(rest)] if rest else []
    return exp.Paren(this=functools.reduce(lambda a, b: exp.DPipe(this=a, expression=b), made))


def _put_row(table: exp.Expr, value: exp.Expr, name: str) -> None:
    alias = table.alias or name
    row = exp.Select(expressions=[exp.alias_(value, alias)])
    table.replace(exp.Subquery(this=row, alias=exp.TableAlias(this=exp.to_identifier(alias))))


def _write_call(name: str, given: list[exp.Expr], settings: ClientSettings | None) -> exp.Expr | None:
    if name.startswith("has_") and name.endswith("_privilege"):
        wanted = given[-1].name.upper() if given else ""
        return exp.Boolean(this=all(word.strip() in _PRIVILEGES for word in wanted.split(",")))
    if name in ("current_setting", "set_config"):
        return _write_setting(name, given, settings)
    template = _TEMPLATES.get(name)
    if template is None:
        return None
    if name in _ALL_ARGUMENTS:
        return exp.Anonymous(this="json_object", expressions=given)
    return _fill_template(template, given)


def _fill_template(template: str, given: Sequence[exp.Expr]) -> exp.Expr:
    made = exp.Paren(this=sqlglot.parse_one(template, read="duckdb"))
    for column in list(made.find_all(exp.Column)):
        if column.name in ("_1", "_2") and not column.table:
            place = int(column.name[1]) - 1
            column.replace(given[place].copy() if place < len(given) else exp.Null())
    return made


def _write_setting(name: str, given: Sequence[exp.Expr], settings: ClientSettings | None) -> exp.Expr:
    given = [item.this if isinstance(item, exp.Cast) else item for item in given]
    if not given or not all(isinstance(item, exp.Literal | exp.Boolean | exp.Null) for item in given[:2]):
        raise BindError(f"{name} takes literals here.")
    if settings is None:
        return exp.cast(exp.Null(), "text")
    setting = given[0].name
    if name == "set_config" and len(given) > 1:
        settings.change(setting, given[1].name)
    found = settings.get(setting) if len(given) < 2 else settings.find(setting)
    return exp.Null() if found is None else exp.Literal.string(found)


def _write_casts(tree: exp.Expr) -> None:
    """Translate casts to PostgreSQL's own types: ``regclass`` and similar to numbers or names, others to ours."""
    for node in reversed(list(tree.find_all(exp.Cast))):
        kind = _name_type(node.args["to"])
        if kind in _NAMES_OF:
            node.replace(_write_registered(node, kind))
        elif kind.removesuffix("[]") in _TYPES:
            ours = _TYPES[kind.removesuffix("[]")] + ("[]" if kind.endswith("[]") else "")
            inside = node.this
            node.set("to", exp.DataType.build(ours, dialect="duckdb"))
            node.set("this", inside)


def _name_type(kind: exp.Expr) -> str:
    written = kind.sql("postgres").upper().replace('"', "").removeprefix("PG_CATALOG.")
    return written.split("(")[0]


def _write_registered(node: exp.Cast, kind: str) -> exp.Expr:
    """Translate ``x::regclass``: a name to its number; a number to the name if it is shown, to itself if compared."""
    inside = node.this.this if isinstance(node.this, exp.Paren) else node.this
    text = isinstance(inside, exp.Literal) and inside.is_string
    if text and not inside.name.isdigit() and kind in _NUMBERS_OF:
        name = inside.name.rpartition(".")[2].strip('"')
        if isinstance(node.parent, exp.Alias):  # shown, by its name
            return exp.Literal.string(name)
        return _fill_template(_TEMPLATES[_NUMBERS_OF[kind]], [exp.Literal.string(name)])
    if text and kind in ("REGPROC", "REGPROCEDURE"):
        return exp.Literal.string(inside.name.removeprefix("pg_catalog."))
    if text:
        inside = exp.cast(inside.copy(), "BIGINT", dialect="duckdb")
    elif (
        kind in _NUMBERS_OF and isinstance(inside, exp.Column) and COLUMN_KINDS.get(inside.name) == "VARCHAR"
    ):
        inside = _fill_template(_TEMPLATES[_NUMBERS_OF[kind]], [inside])
    elif kind in _NUMBERS_OF and isinstance(inside, exp.DPipe | exp.Concat):  # a name that is put together
        last = exp.Anonymous(
            this="regexp_replace", expressions=[inside.copy(), *map(exp.Literal.string, (_SCHEMA, ""))]
        )
        inside = _fill_template(_TEMPLATES[_NUMBERS_OF[kind]], [last])
    parent = node.parent
    joined = isinstance(parent, exp.DPipe | exp.Dot)
    compared = isinstance(parent, exp.Binary | exp.In | exp.Paren | exp.Any) and not joined
    to_number = isinstance(parent, exp.Cast) and _name_type(parent.args["to"]) in ("OID", "BIGINT", "INT")
    if compared or to_number:
        return exp.cast(inside.copy(), "BIGINT", dialect="duckdb")
    return _fill_template(_NAMES_OF[kind], [inside])


def _write_lists(tree: exp.Expr) -> None:
    """Translate ``'{a,b}'`` to a list in ``ANY`` and in casts to lists, and divisions to DuckDB's of whole numbers."""
    for quotient in list(tree.find_all(exp.Div)):
        quotient.replace(exp.IntDiv(this=quotient.this, expression=quotient.expression))
    for call in [call for call in tree.find_all(exp.Anonymous) if call.name.upper() == "ALL"]:
        call.replace(exp.All(this=exp.Paren(this=call.expressions[0])))
    for node in list(tree.find_all(exp.Any, exp.All, exp.Cast)):
        if isinstance(node, exp.Cast) and not node.args["to"].is_type("array"):
            continue
        inside = node.this.this if isinstance(node.this, exp.Paren) else node.this
        inside = inside.this if isinstance(inside, exp.Cast) else inside
        if isinstance(inside, exp.Literal) and inside.is_string and inside.name[:1] == "{":
            items = _read_items(inside.name)
            compared = node.parent
            if isinstance(compared, exp.EQ) and node is compared.expression and items:  # literals of any type
                compared.replace(exp.In(this=compared.this, expressions=items))
            else:
                inside.replace(exp.array(*items))


def _read_items(text: str) -> list[exp.Expr]:
    try:
        return [exp.Null() if item is None else exp.Literal.string(item) for item in split_array(text)]
    except ValueError:
        raise BindError("a text in braces is no array.", hint="'{a,b}'", sqlstate="22P02") from None
