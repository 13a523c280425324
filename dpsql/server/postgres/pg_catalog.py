"""PostgreSQL's catalogue and information schema, filled only from the policy and from names and types of columns.

Schema ``public`` has the policy's tables and the session's kept results. Relations without a counterpart in the policy (indexes,
keys, triggers, functions) are empty. No row of data is read, and no number of rows is shown.

In ``pg_catalog.txt``, a line with its indented continuation is a relation: its name, with PostgreSQL's number if tools know it,
and its columns with the letters of their types. ``i`` is an integer, ``b`` a boolean, ``d`` a double, ``I`` and ``T`` are lists
of integers and of texts; the default is a text. DuckDB's own catalogue can't replace these: it has a third of them, other numbers
of types, and no kept results.

This module stands apart from :mod:`dpsql.server.postgres.worker_side`, since few sessions ask for the catalogue.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpsql.catalogue.aggregate_names import MECHANISMS, OFFERED_MODES
from dpsql.engine.postprocess import Finisher
from dpsql.engine.public_sql import Copies
from dpsql.errors import BindError
from dpsql.language.postgres import (
    INFORMATION,
    PUBLIC,
    SessionFacts,
    TextPart,
    write_catalog_query,
)
from dpsql.policy.model import Budget, Policy
from dpsql.policy.validate import fold
from dpsql.server.postgres import types
from dpsql.server.postgres.commands import SERVER_VERSION, ClientSettings
from dpsql.session.session import Session

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
    """PostgreSQL's catalogue as a session sees it.

    Args:
        session: the analyst's.
        analyst: the name.
        database: the name of the policy.
    """

    def __init__(self, session: Session, analyst: str, database: str) -> None:
        self._session, self._analyst, self._database = session, analyst, database
        self._key: tuple[Any, ...] = ()
        self._tables: dict[str, pa.Table] = {}

    def answer(self, part: TextPart, values: Sequence[Any], settings: ClientSettings) -> pa.Table:
        """Answer a question.

        Args:
            part: the question.
            values: of its parameters.
            settings: the session's; ``set_config`` changes them.

        Raises:
            ParseError, BindError: it is none that can be answered.
        """
        version = f"PostgreSQL {SERVER_VERSION} (dpsql)"
        facts = SessionFacts(self._analyst, self._database, version, settings.find, settings.change)
        names = {name: tuple(columns) for name, columns in RELATIONS.items()}
        query = write_catalog_query(part.own, values, names, facts)
        tables = self._fill()
        lent = {
            name: self._settings_table(settings) if name == "pg_settings" else tables[name]
            for name in query.relations
        }
        try:
            return open_finisher().finish(query.sql, lent)
        except BindError as error:
            what = error.message.replace(f"{_ABOVE}: ", "").replace(_ABOVE, "over PostgreSQL's catalogue")
            raise BindError(
                f"this question to PostgreSQL's catalogue is not answered here: {what}",
                hint="SHOW TABLES and SHOW POLICY list the tables and the policy.",
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
        for relation in ("pg_roles", "pg_authid"):
            roles = ((_OWNER_OID, "owner", True, True, -1), (_ANALYST_OID, analyst, True, True, -1))
            rows.add(relation, "oid rolname rolcanlogin rolinherit rolconnlimit", *roles)
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
        table = (oid, name, _PUBLIC_OID, "r", _OWNER_OID, 2, len(columns))
        rows.add("pg_class", "oid relname relnamespace relkind relowner relam relnatts", table)
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
            named = (spoken, self._database, "pg_catalog", _name_type(found.kind))
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

    def _settings_table(self, settings: ClientSettings) -> pa.Table:
        rows = _Rows()
        listed = ((name, value, "user", "string") for name, value in settings.list())
        rows.add("pg_settings", "name setting context vartype", *listed)
        return _make_table("pg_settings", rows["pg_settings"])


class _Rows(dict[str, list[dict[str, object]]]):
    """Rows by the names of their relations."""

    def add(self, relation: str, columns: str, *rows: Sequence[object]) -> None:
        """Add rows with values of these columns."""
        made = (dict(zip(columns.split(), row, strict=True)) for row in rows)
        self.setdefault(relation, []).extend(made)


def _describe_digits(found: types.PgType) -> tuple[int | None, int | None, int | None]:
    """Return precision, scale and radix of a numeric type, as in the information schema."""
    if found.kind == types.NUMERIC and found.modifier >= 0:
        return (*divmod(found.modifier - 4, 1 << 16), 10)
    bits = {types.INT2: 16, types.INT4: 32, types.INT8: 64, types.FLOAT4: 24, types.FLOAT8: 53}
    return bits.get(found.kind), None, 2 if found.kind in bits else None


def _name_type(kind: int) -> str:
    item = next((item for item, array in types.ARRAYS.items() if array == kind), None)
    return types.NAMES[kind] if item is None else f"_{types.NAMES[item]}"


def _add_types(rows: _Rows) -> None:
    """Add our types and their arrays."""
    numbers = {types.INT2, types.INT4, types.INT8, types.FLOAT4, types.FLOAT8, types.NUMERIC, types.OID}
    times = {types.DATE, types.TIME, types.TIMESTAMP, types.TIMESTAMPTZ}
    columns = (
        "oid typname typlen typcategory typarray typelem dpsql_spoken typinput typoutput typreceive typsend"
    )
    common, lists = (_OURS, _OWNER_OID, "b", ",", True), _name_functions("array_")
    for kind, name in types.NAMES.items():
        category = "N" if kind in numbers else "D" if kind in times else "B" if kind == types.BOOL else "S"
        found, array = types.PgType(kind), types.ARRAYS.get(kind, 0)
        called = f"{name}_" if kind in times or kind in _UNDERSCORED else name
        made = [
            (
                kind,
                name,
                found.name_field("").size,
                category,
                array,
                0,
                found.spoken,
                *_name_functions(called),
            )
        ]
        if array:
            made.append((array, f"_{name}", -1, "A", 0, kind, f"{found.spoken}[]", *lists))
        functions = (*_name_functions(called), *lists) if kind == types.TEXT else _name_functions(called)
        rows.add(*_FUNCTIONS, *((make_oid(function), function, _OURS) for function in functions))
        shared = f"{columns} typnamespace typowner typtype typdelim typisdefined"
        rows.add("pg_type", shared, *((*one, *common) for one in made))


_UNDERSCORED = (types.NUMERIC, types.INTERVAL, types.UUID, types.JSON)
"""Types whose functions have an underscore in their names, besides those of times."""


_FUNCTIONS = ("pg_proc", "oid proname pronamespace")


def _name_functions(prefix: str) -> tuple[str, ...]:
    """Return the names of a type's functions, by which drivers know its binary format."""
    return tuple(prefix + verb for verb in ("in", "out", "recv", "send"))


_DEFAULTS: dict[str, Any] = {"i": 0, "b": False}


def _make_table(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return a relation; columns missing in ``rows`` are 0, false or NULL."""
    columns = RELATIONS[name]
    made = {}
    for column, kind in columns.items():
        values = [row.get(column, _default(name, column, kind)) for row in rows]
        made[column] = pa.array(values, _ARROW[kind])
    return pa.table(made)


def _default(relation: str, column: str, kind: str) -> Any:
    if column == "tableoid":
        return CATALOGS.get(relation, 0)
    if column == "relpersistence":
        return "p"
    if column == "relreplident":
        return "d"
    if relation.startswith(INFORMATION) or column in ("relpartbound", "rolvaliduntil"):
        return None
    return _DEFAULTS.get(kind)
