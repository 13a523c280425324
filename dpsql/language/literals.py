"""Literals of times: the seconds of dates, moments and intervals as written."""

from __future__ import annotations

import datetime
from fractions import Fraction

from sqlglot import exp

from dpsql.catalogue.date_units import UNIT_SECONDS
from dpsql.language.dialect import to_sql
from dpsql.language.parameter_values import drop_zone
from dpsql.policy.validate import DateBound


def interval_seconds(node: exp.Interval) -> Fraction | None:
    """Return the seconds of an INTERVAL literal, with months of 30 days; None for other units of varying length."""
    unit = node.args.get("unit")
    name = str(unit.name).upper() if unit is not None else ""
    per = UNIT_SECONDS.get(name) or UNIT_SECONDS.get(name.removesuffix("S"))
    amount = node.this.name if isinstance(node.this, exp.Literal) else ""
    whole = amount.removeprefix("-")
    return int(amount) * per if per is not None and whole.isdigit() and len(whole) <= 7 else None


def moment_of(node: exp.Expr) -> tuple[str, Fraction] | None:
    """Return the kind and the seconds of a literal DATE, TIMESTAMP, TIME or INTERVAL; None for other nodes."""
    if isinstance(node, exp.Interval):
        length = interval_seconds(node)
        return None if length is None else ("INTERVAL", length)
    if not isinstance(node, exp.Cast) or not isinstance(node.this, exp.Literal):
        return None
    kind, text = to_sql(node.args["to"]), node.this.name.strip()
    try:
        if kind == "DATE":
            return kind, DateBound(datetime.date.fromisoformat(text))
        if kind == "TIMESTAMP":
            return kind, DateBound(drop_zone(datetime.datetime.fromisoformat(text)))
        if kind == "TIME":
            return kind, DateBound(datetime.time.fromisoformat(text))
    except (ValueError, OverflowError):
        pass
    return None
