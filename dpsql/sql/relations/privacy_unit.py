"""What is known of privacy units beyond their names, and whether a query names the right one."""

from __future__ import annotations

from dpsql.errors import PrivacyError
from dpsql.sql.parse.options import Options
from dpsql.sql.relations.relation import From, Names, Relation, fold

WHOLE_UNIT_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
"""SQL types of integers that fit BIGINT."""


def has_whole_unit(relation: Relation) -> bool:
    """Whether units are integers that fit BIGINT, whatever the data."""
    return relation.unit_type is not None and relation.unit_type.sql in WHOLE_UNIT_TYPES


def find_unit_holder(bound: From) -> Relation:
    """The private relation whose unit has the widest type: after an outer join, any of them may give a row its unit."""
    private = [relation for relation in bound.relations if relation.private]
    return next((relation for relation in private if not has_whole_unit(relation)), private[0])


def check_unit(options: Options, names: Names, subject: str) -> None:
    """A query may restate the privacy unit of what it reads (``subject``).

    Raises:
        PrivacyError: ``privacy_unit_column`` names anything else.
    """
    named = options.get("privacy_unit_column")
    if named is None or fold(named) in {fold(f.name) for _, f in names.fields() if f.is_unit}:
        return
    raise options.refuse(
        "privacy_unit_column", f"{named} is not the privacy unit of {subject}.",
        "the policy declares the unit; a query can restate it, never change it.", PrivacyError,
    )  # fmt: skip


def describe_protection(bound: From, max_rows: int | None, row_budget: int | None = None) -> tuple[str, ...]:
    """Who is protected, in a sentence."""
    if bound.row_level:
        return (f"Each row of {bound.subject} is protected.",)
    ends = [t.unit_path[-1] for r in bound.relations for t in r.tables if t.unit_path]
    direct = all(len(t.unit_path) == 1 for r in bound.relations for t in r.tables)
    units = " and ".join(dict.fromkeys(e.column if direct else f"{e.table}.{e.column}" for e in ends))
    rows = row_budget if row_budget is not None else max_rows
    where = "in all" if row_budget else "in one group"
    counted = f", with at most {rows} row{'s' if rows != 1 else ''} {where}"
    return (f"Each {units} in {bound.subject} is protected{counted if rows is not None else ''}.",)
