"""Statements of BI tools and drivers, put down in short, that connect, browse, chart and fill filter boxes."""

from __future__ import annotations

from tests.support.case_files import read_part

TOOLS = "Tableau, Power Bi, Looker, Metabase, Grafana, Dbeaver, Superset, Redash, Dbt, Drivers, Charts, Pgadmin, Datagrip, Frames"
STATEMENTS = {tool: read_part(__file__, tool) for tool in TOOLS.split(", ")}
REFUSED = {
    "CREATE TEMP": "CREATE is not a statement",
    '"$Table" limit 200': "must be a group or be inside an aggregate",
    "pg_terminate": "not a function that may be called",
    "SUBSTRING(": "must be a group or be inside an aggregate",
    "to_timestamp(floor": "this needs a local time",
    "SELECT x.*": "rows of visits can't be released",
    "LIMIT 101": "rows of visits can't be released",
    "INSERT INTO": "an answer is not written into a table",
    "UPDATE visits": "UPDATE is not a statement",
    "VACUUM": "VACUUM is not a statement",
    "LOCK TABLE": "LOCK is not a statement",
    "~*": "~* is PostgreSQL's",
    "SELECT 1 AS one": "nothing noisy to release",
    "FROM AGE(": "the function age is not on the list",
}
"""A part of each refused statement, and of its sentence."""
