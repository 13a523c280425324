"""Questions of tools to PostgreSQL's catalogue when they connect, browse and complete, put down in short."""

from __future__ import annotations

from tests.support.case_files import read_part

GRAFANA = read_part(__file__, "GRAFANA")
JDBC = read_part(__file__, "JDBC")
METABASE = read_part(__file__, "METABASE")
OTHERS = [
    "SELECT set_config('search_path', '', false)",
    "SELECT oid, typname FROM pg_type WHERE typname = ANY ('{int4,text}')",
    "SELECT c.oid::regclass::text FROM pg_class c WHERE c.oid = 'public.visits'::regclass",
    "SELECT t.oid, typarray FROM pg_type t JOIN pg_namespace ns ON typnamespace = ns.oid WHERE typname = 'hstore'",
    "SELECT COUNT(*) FROM pg_class WHERE relkind = 'r'",
]
