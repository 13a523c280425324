"""SQLAlchemy dialects over the PEP 249 driver, for tools that take a database's address as a URL.

    dpsql:///policy.toml?database=visits.duckdb          local data; dpsql:////srv/policy.toml with an absolute path
    dpsql+grpc://host:31337?token_file=ana.token         an owner's server, by TLS except on this machine
    dpsql+grpc:///run/dpsql/dpsql.sock?token_file=...    an owner's server over a socket

``intervals=columns`` adds the ends of intervals as columns of each answer. An engine has one session, shared by its
connections with its kept results and thresholds. Reflection shows the policy's tables and spends nothing. There are no
transactions and no writes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import __version__, exc, pool, types
from sqlalchemy.engine import default
from sqlalchemy.sql import compiler

from dpsql.client.channel import is_this_machine
from dpsql.errors import ServerError

if TYPE_CHECKING:
    from sqlalchemy.engine.url import URL

_IS_OLD = __version__.startswith("1.")
"""True for SQLAlchemy 1.4, which names the driver differently."""
SCHEMA = "main"
"""The only schema shown to tools. Statements omit it."""
SQL_TYPE_KEY, REMARKS_KEY = b"ARROW:FLIGHT:SQL:TYPE_NAME", b"ARROW:FLIGHT:SQL:REMARKS"
"""The metadata keys of a column's SQL type and description, copied since importing their module would load the engine."""
_LOCAL = ("database", "ledger", "analyst", "intervals")
_REMOTE = ("token_file", "tls_ca", "tls_client_cert", "tls_client_key", "tls", "intervals")
_TRUE, _FALSE = ("1", "true", "yes"), ("0", "false", "no")


class DuckType(types.UserDefinedType[Any]):
    """A DuckDB type unknown to SQLAlchemy: lists, structs, maps, intervals. Values are unchanged; ``text`` is its SQL."""

    cache_ok = True

    def __init__(self, text: str) -> None:
        self.text = text

    def get_col_spec(self, **given: object) -> str:
        """Return the type's SQL."""
        return self.text


_TYPES: Mapping[str, object] = {
    "BOOLEAN": types.Boolean, "TINYINT": types.SmallInteger, "SMALLINT": types.SmallInteger, "INTEGER": types.Integer,
    "BIGINT": types.BigInteger, "UTINYINT": types.SmallInteger, "USMALLINT": types.Integer, "UINTEGER": types.BigInteger,
    "UBIGINT": types.Numeric(20, 0), "HUGEINT": types.Numeric(38, 0), "UHUGEINT": types.Numeric(39, 0), "FLOAT": types.REAL,
    "DOUBLE": types.Float(53), "VARCHAR": types.String, "ENUM": types.String, "UUID": types.String, "JSON": types.String,
    "BLOB": types.LargeBinary, "DATE": types.Date, "TIME": types.Time, "TIMESTAMP": types.TIMESTAMP,
    "TIMESTAMP_S": types.TIMESTAMP, "TIMESTAMP_MS": types.TIMESTAMP, "TIMESTAMP_NS": types.TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": types.TIMESTAMP(timezone=True),
}  # fmt: skip
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")


def find_type(text: str) -> object:
    """Return SQLAlchemy's type for one of DuckDB's.

    >>> find_type("DECIMAL(10,2)"), find_type("INTEGER[]").text
    (Numeric(precision=10, scale=2), 'INTEGER[]')
    """
    decimal = _DECIMAL.fullmatch(text)
    if decimal:
        return types.Numeric(int(decimal[1]), int(decimal[2]))
    found = _TYPES.get(text) or _TYPES.get(text.partition("(")[0] if text.startswith("ENUM(") else "")
    if found is None:
        return DuckType(text)
    return found() if isinstance(found, type) else found


class DpsqlCompiler(compiler.SQLCompiler):
    """Writes statements: LIMIT and OFFSET are independent, and ILIKE stays ILIKE."""

    def visit_ilike_case_insensitive_operand(self, element: Any, **given: object) -> str:
        return str(element.element._compiler_dispatch(self, **given))

    def visit_ilike_op_binary(self, binary: object, operator: object, **given: object) -> str:
        """Return ``a ILIKE pattern``; the pattern stays a value, which lower(pattern) would not be."""
        return self._write_ilike(binary, "ILIKE", given)

    def visit_not_ilike_op_binary(self, binary: object, operator: object, **given: object) -> str:
        return self._write_ilike(binary, "NOT ILIKE", given)

    def _write_ilike(self, binary: Any, word: str, given: dict[str, object]) -> str:
        """Return the comparison, with its escape character if there is one."""
        text = f"{self.process(binary.left, **given)} {word} {self.process(binary.right, **given)}"
        escape = binary.modifiers.get("escape")
        return (
            text if escape is None else f"{text} ESCAPE {self.render_literal_value(escape, types.STRINGTYPE)}"
        )

    def limit_clause(self, select: Any, **given: object) -> str:
        text = ""
        if select._limit_clause is not None:
            text += f"\n LIMIT {self.process(select._limit_clause, **given)}"
        if select._offset_clause is not None:
            text += f"\n OFFSET {self.process(select._offset_clause, **given)}"
        return text


class DpsqlTypeCompiler(compiler.GenericTypeCompiler):
    """Writes types: a Python float is a DOUBLE, and texts have no length."""

    def visit_FLOAT(self, type_: object, **given: object) -> str:  # noqa: N802 - the name is SQLAlchemy's
        """Return DOUBLE: FLOAT has 32 bits."""
        return "DOUBLE"

    def visit_VARCHAR(self, type_: object, **given: object) -> str:  # noqa: N802
        return "VARCHAR"

    def visit_DATETIME(self, type_: object, **given: object) -> str:  # noqa: N802
        return "TIMESTAMP"

    def visit_BLOB(self, type_: object, **given: object) -> str:  # noqa: N802
        return "BLOB"


def _find_schema(table: Any) -> Any:
    return None if table.schema == SCHEMA else table.schema


class DpsqlPreparer(compiler.IdentifierPreparer):
    """Writes names without schemas, since tables have none."""

    schema_for_object = staticmethod(_find_schema)


class DpsqlDialect(default.DefaultDialect):
    """The dialect for local data: ``dpsql:///policy.toml?database=visits.duckdb&ledger=...&analyst=...``."""

    name = "dpsql"
    driver = "dpsql"
    default_paramstyle = "qmark"
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_sane_rowcount = False
    supports_sane_multi_rowcount = False
    supports_default_values = False
    supports_empty_insert = False
    supports_alter = False
    supports_comments = True
    postfetch_lastrowid = False
    returns_unicode_strings = True
    max_identifier_length = 255
    default_schema_name = SCHEMA
    statement_compiler = DpsqlCompiler
    type_compiler = DpsqlTypeCompiler
    preparer = DpsqlPreparer

    @classmethod
    def import_dbapi(cls) -> Any:
        from dpsql import dbapi

        return dbapi

    if _IS_OLD:
        dbapi = import_dbapi  # type: ignore[assignment]

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:
        """Return a thread-safe pool of one session."""
        return pool.StaticPool

    # -- connecting -----------------------------------------------------------------------------------------------

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, object]]:
        """Parse a URL; ArgumentError if it names no policy or has unknown options."""
        given = _read_query(url, _LOCAL)
        if url.host or url.username or url.password or url.port:
            raise exc.ArgumentError(
                "data at hand have no host: dpsql:///policy.toml, or dpsql+grpc://host:31337"
            )
        if not url.database:
            raise exc.ArgumentError(
                "the path of a policy is missing: dpsql:///policy.toml?database=visits.duckdb"
            )
        return [given.pop("database", ":memory:")], {"policy": url.database, **given}

    def do_begin(self, dbapi_connection: object) -> None:
        """Do nothing: there are no transactions."""

    def get_isolation_level(self, dbapi_connection: object) -> Any:
        return "AUTOCOMMIT"

    def get_isolation_level_values(self, dbapi_connection: object) -> Any:
        return ["AUTOCOMMIT"]

    def get_default_isolation_level(self, dbapi_connection: object) -> Any:
        return "AUTOCOMMIT"

    def set_isolation_level(self, dbapi_connection: object, level: str) -> None:
        """Do nothing: there are no transactions."""

    def is_disconnect(self, e: object, connection: object, cursor: object) -> bool:
        """Return whether a server is gone or has ended the session, so that the pool reconnects."""
        return isinstance(getattr(e, "reason", None), ServerError)

    def _get_server_version_info(self, connection: object) -> tuple[int, ...]:
        from dpsql import __version__ as version

        return tuple(int(part) for part in re.findall(r"\d+", version)[:3])

    def _get_default_schema_name(self, connection: object) -> str:
        return SCHEMA

    # -- reflection: reads only what the policy shows ------------------------------------------------------

    def get_schema_names(self, connection: object, **given: object) -> list[str]:
        return [SCHEMA]

    def get_table_names(self, connection: object, schema: str | None = None, **given: object) -> list[str]:
        return list(self._find_tables(connection, given)) if schema in (None, SCHEMA) else []

    def get_view_names(self, connection: object, schema: str | None = None, **given: object) -> list[str]:
        """Return no views: kept results belong to the session alone."""
        return []

    def get_temp_table_names(
        self, connection: object, schema: str | None = None, **given: object
    ) -> list[str]:
        tables = self._find_tables(connection, given)
        return [name for name in _open_session(connection).tables()["table"] if name not in tables]

    def has_table(
        self, connection: object, table_name: str, schema: str | None = None, **given: object
    ) -> bool:
        return schema in (None, SCHEMA) and table_name in self._find_tables(connection, given)

    def get_columns(
        self, connection: object, table_name: str, schema: str | None = None, **given: object
    ) -> Any:
        """Return a table's columns with their types; NoSuchTableError if the policy names no such table."""
        if not self.has_table(connection, table_name, schema, **given):
            raise exc.NoSuchTableError(table_name)
        fields = self._find_tables(connection, given)[table_name]
        return [
            {
                "name": field.name,
                "type": find_type(field.metadata[SQL_TYPE_KEY].decode()),
                "nullable": True,
                "default": None,
                "autoincrement": False,
                "comment": field.metadata.get(REMARKS_KEY, b"").decode() or None,
            }
            for field in fields
        ]

    def get_table_comment(
        self, connection: object, table_name: str, schema: str | None = None, **given: object
    ) -> Any:
        """Return a table's description and privacy unit; NoSuchTableError if the policy names no such table."""
        if not self.has_table(connection, table_name, schema, **given):
            raise exc.NoSuchTableError(table_name)
        table = _open_session(connection).policy.tables[table_name]
        kind = "public" if table.public else f"private: protects {table.unit_words}"
        return {"text": f"{table.description} ({kind})" if table.description else kind}

    def get_pk_constraint(
        self, connection: object, table_name: str, schema: str | None = None, **given: object
    ) -> Any:
        """Return no keys: the policy declares none."""
        return {"constrained_columns": [], "name": None}

    def _find_nothing(
        self, connection: object, table_name: str, schema: str | None = None, **given: object
    ) -> Any:
        """Return an empty list: the policy declares no such thing."""
        return []

    get_foreign_keys = get_indexes = get_unique_constraints = get_check_constraints = _find_nothing

    def _find_tables(self, connection: object, given: Mapping[str, object]) -> Any:
        """Return the schemas of the policy's tables, cached by an inspector."""
        cache: Any = given.get("info_cache")
        cache = {} if cache is None else cache
        if self.name not in cache:
            cache[self.name] = _open_session(connection).table_schemas()
        return cache[self.name]


class DpsqlServerDialect(DpsqlDialect):
    """The dialect for an owner's server: ``dpsql+grpc://host:31337?token_file=...``, or a socket's path in place of the host.

    The token is the first line of ``token_file``, the URL's password, or the value of ``DPSQL_TOKEN``. A user in the
    URL must be the token's analyst. On this machine ``tls`` is false unless a certificate is named; elsewhere it is true.
    """

    driver = "grpc"
    supports_statement_cache = True

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, object]]:
        """Parse a URL; ArgumentError if it names no server or has unknown options."""
        given = _read_query(url, _REMOTE)
        tls = given.pop("tls", None)
        if tls is not None and tls.lower() not in (*_TRUE, *_FALSE):
            raise exc.ArgumentError("tls is true or false.")
        if url.host and url.database:
            raise exc.ArgumentError("a server has a host, or a socket's path: not both")
        if url.host:
            certified = any(name in given for name in ("tls_ca", "tls_client_cert"))
            secure = certified or not is_this_machine(url.host) if tls is None else tls.lower() in _TRUE
            host = f"[{url.host}]" if ":" in url.host else url.host
            address = f"grpc+{'tls' if secure else 'tcp'}://{host}" + (f":{url.port}" if url.port else "")
        elif url.database:
            path = url.database if url.database.startswith("/") else f"/{url.database}"
            address = f"grpc+unix://{path}"
        else:
            raise exc.ArgumentError(
                "the host of a server is missing: dpsql+grpc://host:31337?token_file=ana.token"
            )
        if url.password is not None:
            given["token"] = str(url.password)
        return [address], {**given, "analyst": url.username}

    def connect(self, *arguments: Any, **given: Any) -> Any:
        """Connect to the server; OperationalError if it can't be reached, or the token's analyst isn't the URL's user."""
        from dpsql import dbapi

        analyst = given.pop("analyst", None)
        opened = dbapi.connect_to_server(*arguments, **given)
        if analyst is not None and opened.session.analyst != analyst:
            opened.close()
            raise dbapi.OperationalError(f"the token is not one of {analyst}.")
        return opened


def _read_query(url: URL, known: tuple[str, ...]) -> dict[str, Any]:
    """Return a URL's query options; ArgumentError if one is unknown or repeated."""
    for name, value in url.query.items():
        if name not in known:
            raise exc.ArgumentError(f"{name} is not known here; there are {', '.join(known)}.")
        if not isinstance(value, str):
            raise exc.ArgumentError(f"{name} is given twice.")
    return dict(url.query)


def _open_session(connection: Any) -> Any:
    return connection.connection.dbapi_connection.session
