"""The relations of PostgreSQL's catalogue, filled from the policy and from the names and types of columns alone.

Schema ``public`` holds the policy's tables and the session's kept results. What the policy has no word for (indexes, keys,
triggers, functions) is there without rows. No row of data is read, and nothing tells how many there are.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa

from dpsql.engine.postprocess import Finisher
from dpsql.engine.public_process import Copies
from dpsql.errors import BindError
from dpsql.policy.model import Budget, Policy
from dpsql.server.postgres import types
from dpsql.server.postgres.catalog_relations import CATALOGS, RELATIONS
from dpsql.server.postgres.commands import SERVER_VERSION, ClientSettings
from dpsql.session import Session
from dpsql.sql.postgres.catalog_queries import (
    INFORMATION,
    SessionFacts,
    count_numbered_parameters,
    write_catalog_query,
)
from dpsql.sql.postgres.statements import PUBLIC, TextPart

_PG_CATALOG_OID, _PUBLIC_OID, _INFORMATION_OID, _OWNER_OID, _DATABASE_OID, _ANALYST_OID = (
    11,
    2200,
    13000,
    10,
    16000,
    16001,
)
_FIRST_OID = 1 << 24
_ARROW = {
    "i": pa.int64(), "t": pa.string(), "b": pa.bool_(), "d": pa.float64(), "I": pa.list_(pa.int64()), "T": pa.list_(pa.string()),
}  # fmt: skip
_ABOVE = "above the private part"


@functools.cache
def _open_finisher() -> Finisher:
    """Return a database that holds nothing: questions run in it over what is lent to it."""
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

    def count_parameters(self, part: TextPart) -> int:
        """Return how many parameters a question has."""
        return count_numbered_parameters(part.own)

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
            return _open_finisher().finish(query.sql, lent)
        except BindError as error:
            what = error.message.replace(f"{_ABOVE}: ", "").replace(_ABOVE, "over PostgreSQL's catalogue")
            raise BindError(
                f"this question to PostgreSQL's catalogue is not answered here: {what}",
                hint="SHOW TABLES and SHOW POLICY say what there is.",
            ) from None

    def _fill(self) -> dict[str, pa.Table]:
        """Return the relations, made anew where the policy's tables or the kept results are others."""
        session = self._session
        listed = [(name, "table") for name in session.policy.tables] + [
            (name, "kept") for name in session.kept
        ]
        described = [(name, kind, tuple(session.columns(name).items())) for name, kind in listed]
        key = tuple(described)
        if key != self._key:
            rows = self._list_rows(described)
            self._tables = {name: _make_table(name, rows.get(name, [])) for name in RELATIONS}
            self._key = key
        return self._tables

    def _list_rows(
        self, described: Sequence[tuple[str, str, tuple[tuple[str, str], ...]]]
    ) -> Mapping[str, list[dict[str, Any]]]:
        """Return the rows of the relations that have some, by their names."""
        rows: dict[str, list[dict[str, Any]]] = {
            "pg_namespace": [
                {"oid": oid, "nspname": name, "nspowner": _OWNER_OID}
                for oid, name in (
                    (_PG_CATALOG_OID, "pg_catalog"),
                    (_PUBLIC_OID, PUBLIC),
                    (_INFORMATION_OID, INFORMATION),
                )
            ],
            "pg_database": [self._describe_database()],
            "pg_roles": [_describe_role(_OWNER_OID, "owner"), _describe_role(_ANALYST_OID, self._analyst)],
            "pg_user": [
                {"usename": self._analyst, "usesysid": _ANALYST_OID, "usesuper": False, "usecreatedb": False}
            ],
            "pg_type": list(_list_types()),
            "pg_am": [{"oid": 2, "amname": "heap", "amtype": "t"}],
            "pg_tablespace": [{"oid": 1663, "spcname": "pg_default", "spcowner": _OWNER_OID}],
            f"{INFORMATION}_schemata": [
                {"catalog_name": self._database, "schema_name": name, "schema_owner": "owner"}
                for name in ("pg_catalog", PUBLIC, INFORMATION)
            ],
        }
        rows["pg_authid"] = rows["pg_roles"]
        for name, kind, columns in described:
            self._add_table(rows, name, kind, columns)
        for name, oid in CATALOGS.items():
            row = {
                "oid": oid,
                "relname": name,
                "relnamespace": _PG_CATALOG_OID,
                "relkind": "r",
                "relowner": _OWNER_OID,
            }
            rows["pg_class"].append({**row, "relnatts": len(RELATIONS[name])})
        return rows

    def _add_table(
        self, rows: dict[str, list[dict[str, Any]]], name: str, kind: str, columns: Sequence[tuple[str, str]]
    ) -> None:
        oid, where = (
            make_oid(name),
            {"table_catalog": self._database, "table_schema": PUBLIC, "table_name": name},
        )
        table = {
            "oid": oid,
            "relname": name,
            "relnamespace": _PUBLIC_OID,
            "relkind": "r",
            "relowner": _OWNER_OID,
            "relam": 2,
        }
        rows.setdefault("pg_class", []).append({**table, "relnatts": len(columns)})
        rows.setdefault("pg_tables", []).append(
            {"schemaname": PUBLIC, "tablename": name, "tableowner": "owner"}
        )
        rows.setdefault("pg_description", []).append(
            {
                "objoid": oid,
                "classoid": CATALOGS["pg_class"],
                "objsubid": 0,
                "description": self._describe(name, kind),
            }
        )
        tables = rows.setdefault(f"{INFORMATION}_tables", [])
        tables.append({**where, "table_type": "BASE TABLE", "is_insertable_into": "NO", "is_typed": "NO"})
        grant = {
            **where,
            "grantor": "owner",
            "grantee": self._analyst,
            "privilege_type": "SELECT",
            "is_grantable": "NO",
        }
        for view in ("table_privileges", "role_table_grants"):
            rows.setdefault(f"{INFORMATION}_{view}", []).append(grant)
        for place, (column, written) in enumerate(columns, 1):
            found = types.find_sql_type(written)
            rows.setdefault("pg_attribute", []).append(
                {
                    "attrelid": oid, "attname": column, "atttypid": found.kind, "attnum": place, "atttypmod": found.modifier,
                    "attlen": found.name_field(column).size, "attidentity": "", "attgenerated": "", "attislocal": True,
                    "attstattarget": -1, "attstorage": "x" if found.name_field(column).size < 0 else "p",
                }
            )  # fmt: skip
            rows.setdefault(f"{INFORMATION}_columns", []).append(
                {
                    **where, "column_name": column, "ordinal_position": place, "is_nullable": "YES", "is_updatable": "NO",
                    "data_type": "ARRAY" if found.spoken.endswith("[]") else found.spoken.partition("(")[0],
                    "udt_catalog": self._database, "udt_schema": "pg_catalog", "udt_name": _name_type(found.kind),
                    "is_identity": "NO", "is_generated": "NEVER", **_describe_digits(found),
                }
            )  # fmt: skip

    def _describe(self, name: str, kind: str) -> str:
        if kind == "kept":
            return "a kept result: public"
        table = self._session.policy.tables[name]
        return (
            "public" if table.public else f"private: aggregates alone; the privacy unit is {table.unit_text}"
        )

    def _describe_database(self) -> dict[str, Any]:
        named = {
            "oid": _DATABASE_OID,
            "datname": self._database,
            "datdba": _OWNER_OID,
            "datcollate": "C",
            "datctype": "C",
        }
        return {
            **named,
            "encoding": 6,
            "datallowconn": True,
            "datconnlimit": -1,
            "dattablespace": 1663,
            "datlocprovider": "c",
        }

    def _settings_table(self, settings: ClientSettings) -> pa.Table:
        rows = [
            {"name": name, "setting": value, "context": "user", "vartype": "string"}
            for name, value in settings.list()
        ]
        return _make_table("pg_settings", rows)


def _describe_role(oid: int, name: str) -> dict[str, Any]:
    return {"oid": oid, "rolname": name, "rolcanlogin": True, "rolinherit": True, "rolconnlimit": -1}


def _describe_digits(found: types.PgType) -> dict[str, Any]:
    """Return what the information schema says of a numeric type."""
    if found.kind == types.NUMERIC and found.modifier >= 0:
        width, scale = divmod(found.modifier - 4, 1 << 16)
        return {"numeric_precision": width, "numeric_scale": scale, "numeric_precision_radix": 10}
    bits = {types.INT2: 16, types.INT4: 32, types.INT8: 64, types.FLOAT4: 24, types.FLOAT8: 53}.get(
        found.kind
    )
    return {} if bits is None else {"numeric_precision": bits, "numeric_precision_radix": 2}


def _name_type(kind: int) -> str:
    item = next((item for item, array in types.ARRAYS.items() if array == kind), None)
    return types.NAMES[kind] if item is None else f"_{types.NAMES[item]}"


def _list_types() -> Iterator[dict[str, Any]]:
    """Yield the rows of ``pg_type``: our types and their arrays."""
    numbers = {types.INT2, types.INT4, types.INT8, types.FLOAT4, types.FLOAT8, types.NUMERIC, types.OID}
    times = {types.DATE, types.TIME, types.TIMESTAMP, types.TIMESTAMPTZ}
    for kind, name in types.NAMES.items():
        category = "N" if kind in numbers else "D" if kind in times else "B" if kind == types.BOOL else "S"
        found = types.PgType(kind)
        common = {
            "typnamespace": _PG_CATALOG_OID,
            "typowner": _OWNER_OID,
            "typtype": "b",
            "typdelim": ",",
            "typisdefined": True,
        }
        array = types.ARRAYS.get(kind, 0)
        size = found.name_field("").size
        yield {
            **common, "oid": kind, "typname": name, "typlen": size, "typcategory": category, "typarray": array, "typelem": 0,
            "dpsql_spoken": found.spoken, "typinput": f"{name}in",
        }  # fmt: skip
        if array:
            yield {
                **common, "oid": array, "typname": f"_{name}", "typlen": -1, "typcategory": "A", "typarray": 0, "typelem": kind,
                "dpsql_spoken": f"{found.spoken}[]", "typinput": "array_in",
            }  # fmt: skip


_DEFAULTS: dict[str, Any] = {"i": 0, "b": False}


def _make_table(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Make a relation; what rows do not say is 0, false or NULL."""
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
