"""DuckDB's own parser, apart from any data: the tree of a text, for the second lock to read."""

from __future__ import annotations

import threading

import duckdb

_LOCAL = threading.local()


def serialise(sql: str) -> str:
    """Return the tree of a text in JSON, as DuckDB's parser makes it; an object that says ``error`` where it makes none.

    It runs in a database in memory that has nothing in it, so no name of the owner's can change what is read.
    """
    con = getattr(_LOCAL, "con", None)
    if con is None:
        con = _LOCAL.con = duckdb.connect(config={"threads": 1})
    found = con.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()
    assert found is not None
    return str(found[0])
