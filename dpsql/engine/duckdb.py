"""DuckDB as the engine: private data behind a locked connection that only exact queries of plans reach."""

from __future__ import annotations

import glob
import hashlib
import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from dpsql.errors import BindError, EngineError, PolicyError, did_you_mean
from dpsql.policy import Policy, Table

WITHHELD = "the engine failed while it read private data; why is withheld."
_FILES = {".parquet": "read_parquet", ".csv": "read_csv", ".tsv": "read_csv", ".json": "read_json", ".jsonl": "read_json"}
_CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "memory_limit": "",
}
# Settings that one of the supported versions does not know are left out there; the plans do not rely on them.
_SETTINGS = (
    "SET enable_progress_bar = false",
    "SET max_expression_depth = 1000",
    "SET error_on_division_by_zero = false",
    "SET ieee_floating_point_ops = true",
    "SET preserve_insertion_order = false",
    "SET perfect_ht_threshold = 22",
)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class DuckDBEngine:
    """See :class:`dpsql.engine.base.Engine`.

    Args:
        database: the path of a DuckDB file (opened read-only), ``":memory:"``, or an open connection (used through a
            cursor, its settings left alone).
        policy: its sources become views, before the connection is locked.
        base: the folder that relative sources start from.

    Raises:
        PolicyError: the database or a source does not exist.
    """

    dialect = "duckdb"

    def __init__(self, database: Any, policy: Policy, base: Path) -> None:
        self._policy = policy
        self._base = base
        self._lock = threading.RLock()
        self._attached = isinstance(database, duckdb.DuckDBPyConnection)
        self._database = database
        self._token = uuid.uuid4().hex
        self._clone: duckdb.DuckDBPyConnection | None = None
        self._sources = {t.name: self._files(t) for t in policy.tables.values() if t.source is not None}
        self._open()

    def _open(self) -> None:
        if self._attached:
            self._con = self._database.cursor()
        else:
            config = {key: value for key, value in _CONFIG.items() if value}
            path = str(self._database)
            memory = path in (":memory:", "")
            if not memory and not Path(path).is_file():
                raise PolicyError(f"there is no database {path}.", hint="give the path of a DuckDB file.")
            try:
                self._con = duckdb.connect(path if not memory else ":memory:", read_only=not memory, config=config)
            except duckdb.Error:
                raise PolicyError(f"{path} can't be opened as a DuckDB database.") from None
        row = self._con.execute("SELECT current_database(), current_schema()").fetchone()
        assert row is not None
        self._home = row
        self._relations = {table.name: self._relation(table) for table in self._policy.tables.values()}
        if not self._attached:
            self._harden()

    def _files(self, table: Table) -> list[str] | None:
        """The files of a source, or None when it is a table of the database."""
        assert table.source is not None
        suffix = Path(table.source).suffix.lower()
        if suffix not in _FILES:
            return None
        pattern = os.path.expanduser(table.source)
        if not os.path.isabs(pattern):
            pattern = str(self._base.resolve() / pattern)
        found = sorted(os.path.realpath(path) for path in glob.glob(pattern, recursive=True))
        if not found:
            raise PolicyError(f"the source {table.source} of {table.name} does not exist.")
        return found

    def _relation(self, table: Table) -> str:
        files = self._sources.get(table.name)
        if files is not None:
            assert table.source is not None
            reader = _FILES[Path(table.source).suffix.lower()]
            listed = ", ".join("'" + path.replace("'", "''") + "'" for path in files)
            body = f"{reader}([{listed}])"
        else:
            name = table.source or table.name
            body = ".".join(quoted(part) for part in (*self._home, name))
        try:
            described = self._con.execute(f"DESCRIBE SELECT * FROM {body}").fetchall()
        except duckdb.Error:
            raise PolicyError(
                f"the policy names {table.name}, which the database does not have.",
                hint=did_you_mean(table.source or table.name, self._existing()),
            ) from None
        enums = [name for name, kind, *_ in described if kind.startswith("ENUM")]
        if files is None and not enums:
            return body
        # The labels of an ENUM are data: a private column shows its text only.
        casts = ", ".join(f"CAST({quoted(name)} AS VARCHAR) AS {quoted(name)}" for name in enums)
        star = f"* REPLACE ({casts})" if casts else "*"
        view = quoted(f"dpsql_source_{table.name}")
        self._con.execute(f"CREATE OR REPLACE TEMP VIEW {view} AS SELECT {star} FROM {body}")
        return f"temp.main.{view}"

    def _existing(self) -> list[str]:
        rows = self._con.execute("SELECT table_name FROM information_schema.tables").fetchall()
        return [row[0] for row in rows]

    def _harden(self) -> None:
        for setting in _SETTINGS:
            try:
                self._con.execute(setting)
            except duckdb.Error:
                continue
        allowed = [path for files in self._sources.values() for path in files or []]
        if allowed:
            listed = ", ".join("'" + path.replace("'", "''") + "'" for path in allowed)
            self._con.execute(f"SET allowed_paths = [{listed}]")
        self._con.execute("SET enable_external_access = false")
        self._con.execute("SET lock_configuration = true")

    # -- the protocol -------------------------------------------------------------------------------------------

    def schema(self, table: Table) -> Mapping[str, str]:
        rows = self._con.execute(f"DESCRIBE SELECT * FROM {self._relations[table.name]}").fetchall()
        return {row[0]: row[1] for row in rows}

    def relation(self, table: Table) -> str:
        return self._relations[table.name]

    def public(self, table: Table) -> pa.Table:
        """All rows of a public table."""
        assert table.public, "only public tables are read whole"
        return self._con.sql(f"SELECT * FROM {self._relations[table.name]}").to_arrow_table()

    @property
    def dataset(self) -> str:
        """What the data are called in the ledger: the files they are in, or the attached database."""
        parts = [path for files in self._sources.values() for path in files or []]
        if self._attached:
            rows = self._con.execute("SELECT path FROM duckdb_databases() WHERE NOT internal").fetchall()
            parts += [str(row[0]) for row in rows if row[0]] or ["attached"]
        elif str(self._database) not in (":memory:", ""):
            parts.append(os.path.realpath(str(self._database)))
        return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()[:32]

    def version(self) -> str:
        """Changes when a file changes. An attached connection's data are taken for new in each session."""
        paths = [path for files in self._sources.values() for path in files or []]
        in_files = not self._attached and str(self._database) not in (":memory:", "")
        if in_files:
            paths.append(str(self._database))
        uncovered = any(files is None for files in self._sources.values()) or len(self._sources) < len(self._relations)
        parts = [f"{p}:{(s := os.stat(p)).st_size}:{s.st_mtime_ns}" for p in sorted(paths) if os.path.exists(p)]
        if uncovered and not in_files:
            parts.append(self._token)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def check(self, sql: str, lent: Mapping[str, Sequence[tuple[str, str]]]) -> None:
        """Binds the query against an empty copy of the schema: what it refuses, it refuses whatever the data are."""
        message = ""
        with self._lock:
            clone = self._empty_copy()
            for name, columns in lent.items():
                items = ", ".join(f"CAST(NULL AS {kind}) AS {quoted(column)}" for column, kind in columns)
                clone.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS SELECT {items} WHERE FALSE")
            try:
                clone.execute(f"EXPLAIN {sql}")
            except duckdb.Error as error:
                message = str(error).split("\n")[0]
        if message:
            raise BindError("the engine can't run this.", hint=message)

    def _empty_copy(self) -> duckdb.DuckDBPyConnection:
        """A database with the same names and no rows, made once. Planning on the data themselves would read them."""
        if self._clone is None:
            self._clone = duckdb.connect(":memory:", config={"python_enable_replacements": "false"})
            for catalog in {relation.split(".")[0] for relation in self._relations.values()} - {"temp"}:
                if catalog.strip('"') != "memory":
                    self._clone.execute(f"ATTACH ':memory:' AS {catalog}")
            for table in self._policy.tables.values():
                relation = self._relations[table.name]
                catalog, schema, _ = relation.split(".", 2)
                if catalog != "temp" and schema.strip('"') != "main":
                    self._clone.execute(f"CREATE SCHEMA IF NOT EXISTS {catalog}.{schema}")
                columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in self.schema(table).items())
                kind = "TEMP TABLE" if catalog == "temp" else "TABLE"
                self._clone.execute(f"CREATE {kind} IF NOT EXISTS {relation} ({columns})")
        return self._clone

    def execute(self, sql: str, lent: Mapping[str, pa.Table] | None = None) -> pa.Table:
        """Runs one exact query, with public relations lent to it under their names.

        Raises:
            EngineError: anything failed; the engine's message, which may hold values, is dropped here.
            KeyboardInterrupt: the user stopped it.
        """
        table, stopped = None, False
        with self._lock:
            try:
                for name, rows in (lent or {}).items():
                    self._con.register(name, rows)
                table = self._con.sql(sql).to_arrow_table()
            except (duckdb.InterruptException, KeyboardInterrupt):
                stopped = True
            except (duckdb.FatalException, duckdb.InternalException):
                self._reopen()
            except Exception:
                table = None
            finally:
                for name in lent or {}:
                    self._drop(name)
        if stopped:
            raise KeyboardInterrupt
        if table is None:
            raise EngineError(WITHHELD)
        return table

    def _drop(self, name: str) -> None:
        try:
            self._con.unregister(name)
        except duckdb.Error:
            return

    def _reopen(self) -> None:
        """An internal error invalidates DuckDB's whole instance; the next statement gets a new one."""
        if self._attached:
            return
        try:
            self._con.close()
        except duckdb.Error:
            pass
        self._open()

    def interrupt(self) -> None:
        self._con.interrupt()

    def close(self) -> None:
        self._con.close()
