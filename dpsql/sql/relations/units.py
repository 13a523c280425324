"""What is known of privacy units beyond their names: whether they are small integers, which hash faster."""

from __future__ import annotations

from dpsql.sql.relations.joins import From
from dpsql.sql.relations.relation import Relation

WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
"""SQL types of integers that fit BIGINT."""


def whole_unit(relation: Relation) -> bool:
    """Whether units are integers that fit BIGINT, whatever the data."""
    return relation.unit_type is not None and relation.unit_type.sql in WHOLE


def holder(bound: From) -> Relation:
    """The private relation whose unit has the widest type: after an outer join, any of them may give a row its unit."""
    private = [relation for relation in bound.relations if relation.private]
    return next((relation for relation in private if not whole_unit(relation)), private[0])
