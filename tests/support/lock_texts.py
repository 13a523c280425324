"""Hand-made and forged exact texts: the pieces that most of them share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import duckdb
import pytest

from dpsql.binding.bind import Plans
from dpsql.binding.plan import Plan
from dpsql.exact import gate
from dpsql.lock.check import check
from dpsql.lock.tree import Base, Hop, Known, Lent, Unproved
from dpsql.mechanisms.base import Claim, ClaimedText, LentTotals, list_claims

VISITS = ("memory", "main", "visits")
LABS = ("memory", "main", "labs")
ITEMS = ("memory", "main", "items")
ORDERS = ("memory", "main", "orders")
WARDS = ("memory", "main", "wards")
LINES = ("memory", "main", "lines")
NAMES = ("memory", "main", "named")

KNOWN = Known(
    tables={
        VISITS: Base(
            {"patient_id": "BIGINT", "visit_id": "BIGINT", "ward": "BIGINT", "amount": "DOUBLE", "note": "VARCHAR",
             "tags": "VARCHAR[]", "place": "STRUCT(patient_id BIGINT)"},
            unit="patient_id", kind="BIGINT",
        ),
        LABS: Base({"patient_id": "INTEGER", "test": "VARCHAR", "value": "DOUBLE"}, unit="patient_id", kind="INTEGER"),
        NAMES: Base({"patient_id": "VARCHAR", "name": "VARCHAR"}, unit="patient_id", kind="VARCHAR"),
        WARDS: Base({"ward": "BIGINT", "name": "VARCHAR"}, public=True),
        ORDERS: Base({"id": "BIGINT", "user_id": "BIGINT", "total": "BIGINT"}, unit="user_id", kind="BIGINT"),
        ITEMS: Base(
            {"order_id": "BIGINT", "price": "BIGINT"}, unit="order_id", kind="BIGINT",
            path=(Hop(ORDERS, "id", "user_id", "BIGINT"),),
        ),
        LINES: Base({"kind": "BIGINT", "price": "BIGINT"}),
    },
    lent={"lent1": Lent(frozenset({"c0", "c1"}), 5), "lent2": Lent(frozenset({"c0"}))},
    macros=frozenset({"upper", "generate_series"}),
)  # fmt: skip

_CON = duckdb.connect()


def serialise(text: str) -> str:
    """DuckDB's own parser."""
    found = _CON.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchone()
    return str(found[0])


def forge_texts(monkeypatch: pytest.MonkeyPatch, pattern: str, wrong: str) -> list[int]:
    """Replace a pattern in all claimed texts from now on, as a faulty binder might; return the hits so far.

    Plans that were checked before are bound, and checked, anew.
    """
    hits: list[int] = []
    bound = Plans.bind

    def bind_anew(plans: Plans, *given: Any) -> Plan:
        plans._kept.clear()
        return bound(plans, *given)

    def faulty(operator: object) -> tuple[ClaimedText, ...]:
        claims = []
        for claimed in list_claims(operator):
            text, count = re.subn(pattern, wrong, claimed.text, flags=re.IGNORECASE)
            hits.append(count)
            claims.append(replace(claimed, text=text))
        return tuple(claims)

    monkeypatch.setattr(gate, "list_claims", faulty)
    monkeypatch.setattr(Plans, "bind", bind_anew)
    return hits


def why(text: str, claim: Claim, lent: Mapping[str, object] | None = None, known: Known = KNOWN) -> str:
    """Why a text is refused; nothing where it is accepted."""
    held: dict[str, LentTotals] = dict(lent or {})  # type: ignore[arg-type]
    try:
        check(ClaimedText(text, claim, held), known, serialise)
    except Unproved as error:
        return error.why
    return ""


def visits(n: int, extra: str = "") -> str:
    """The base table with its unit, under the alias ``rn``."""
    return (
        f'(SELECT "r{n}b"."patient_id" AS "c0", "r{n}b"."visit_id" AS "c1", "r{n}b"."ward" AS "c2", "r{n}b"."amount" AS "c3",'
        f' "r{n}b"."note" AS "c4", "r{n}b"."tags" AS "c5", "r{n}b"."place" AS "c6", "r{n}b"."patient_id" AS "unit7f3a"'
        f' FROM "memory"."main"."visits" AS "r{n}b" WHERE "r{n}b"."patient_id" IS NOT NULL{extra}) AS "r{n}"'
    )


def labs(n: int) -> str:
    """Another private table of the same units, in narrower integers."""
    return (
        f'(SELECT "r{n}b"."test" AS "c0", "r{n}b"."value" AS "c1", "r{n}b"."patient_id" AS "unit7f3a"'
        f' FROM "memory"."main"."labs" AS "r{n}b" WHERE "r{n}b"."patient_id" IS NOT NULL) AS "r{n}"'
    )


def named(n: int) -> str:
    """A private table whose unit is text."""
    return (
        f'(SELECT "r{n}b"."name" AS "c0", "r{n}b"."patient_id" AS "unit7f3a"'
        f' FROM "memory"."main"."named" AS "r{n}b" WHERE "r{n}b"."patient_id" IS NOT NULL) AS "r{n}"'
    )


SALTED = "CAST($salt AS UBIGINT)"


def order(alias: str, *columns: str) -> str:
    """The secret order of a unit's groups or rows."""
    listed = ", ".join(f'"{alias}"."{column}"' for column in columns)
    return f"hash(xor(hash({listed}), {SALTED}))"
