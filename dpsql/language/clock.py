"""The time of a statement: ``now()``, CURRENT_DATE and their like are constants of it, as in PostgreSQL.

The time is read once for a text, in UTC and to the second, before anything runs: no statement measures another one.
Values that are computed from it alone, such as ``date_trunc('month', now())``, become constants too, so that a statement
is a new question only if such a value has changed.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator

from sqlglot import exp

from dpsql.catalogue.row_names import CLOCKS
from dpsql.errors import BindError, Error
from dpsql.language.dialect import span_of, to_sql
from dpsql.language.parameters import make_literal
from dpsql.mechanisms.queries import As, Select

_WORD = re.compile(rf"(?i)\b({'|'.join(CLOCKS)})\b")


def reads_clock(text: str, tree: exp.Expr | None) -> bool:
    """Return whether a statement of a text names the present time."""
    return tree is not None and _WORD.search(text) is not None and any(map(_name_clock, tree.walk()))


def find_now() -> datetime.datetime:
    """Return the present time in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def fold_clocks(
    tree: exp.Expr,
    now: datetime.datetime,
    evaluate: Callable[[str], object],
    label: Callable[[exp.Expr], str],
) -> list[str]:
    """Replace the present time, and what is computed from it alone, by constants, in place.

    Args:
        tree: a query.
        now: its time.
        evaluate: returns the value of a query of one constant, or raises an error.
        label: names an output without a name.

    Returns:
        The texts of the constants that change within an hour.
    """
    for query in list(tree.find_all(exp.Subquery)):
        if (scalar := _read_scalar(query)) is not None:
            query.replace(exp.paren(scalar, copy=False))
    clocks = [node for node in tree.walk() if _name_clock(node)]
    for select in tree.find_all(exp.Select) if clocks else ():
        for item in select.expressions:
            if not isinstance(item, exp.Alias) and any(map(_name_clock, item.walk())):
                item.replace(exp.alias_(item.copy(), label(item), quoted=True))
    found: list[str] = []
    left = [node for node in tree.walk() if _name_clock(node)]
    for node in left:
        if node.root() is not tree:
            continue  # part of a constant before it
        place = _find_constant(node)
        value: object = None
        if place is not node:
            try:
                value = evaluate(Select(As(to_sql(_write_clocks(place.copy(), now)), "value")).sql)
                made = _make_constant(value)
            except Error:
                place, value = node, None
        if value is None:
            place, made = node, _write_clock(_name_clock(node), now)
            value = now if CLOCKS[_name_clock(node)] != "DATE" else None
        if (span := span_of(place)) is not None:
            made.meta.update(start=span[0], end=span[1] - 1)
        place.replace(made)
        if isinstance(value, datetime.datetime) and value.time().replace(hour=0) != datetime.time():
            found.append(value.replace(tzinfo=None).isoformat(" "))
    return found


def _read_scalar(query: exp.Subquery) -> exp.Expr | None:
    """Return the one value of ``(SELECT now())``, a query of a constant computed from the time; None for another query."""
    inner = query.this.unnest() if isinstance(query.this, exp.Subquery) else query.this
    named = query.alias or isinstance(query.parent, exp.From | exp.Join | exp.In | exp.Exists | exp.Subquery)
    if named or not isinstance(inner, exp.Select) or len(inner.expressions) != 1:
        return None
    value: exp.Expr = inner.expressions[0].unalias()
    if any(part for key, part in inner.args.items() if key != "expressions"):
        return None
    constant = all(isinstance(part, _COMPUTED) for part in _walk_around(value))
    return value if constant and any(map(_name_clock, value.walk())) else None


def _name_clock(node: exp.Expr) -> str:
    """Return the name of a call of the present time; an empty text for another node."""
    if isinstance(node, exp.Anonymous):
        name, given = node.name.lower(), node.expressions
    elif isinstance(node, exp.Func):
        name, given = node.sql_name().lower(), [value for value in node.args.values() if value]
    else:
        return ""
    precise = all(isinstance(one, exp.Literal) and not one.is_string for one in given)
    return name if name in CLOCKS and precise and len(given) < 2 else ""


def _write_clock(name: str, now: datetime.datetime) -> exp.Expr:
    kind, local = CLOCKS[name], now.replace(tzinfo=None)
    texts = {"DATE": local.date().isoformat(), "TIME": local.time().isoformat()}
    text = texts.get(kind.split()[0], local.isoformat(" "))
    offset = "+00" if kind.endswith("ZONE") else ""
    return exp.cast(exp.Literal.string(text + offset), kind, dialect="duckdb")


def _write_clocks(node: exp.Expr, now: datetime.datetime) -> exp.Expr:
    holder = exp.Paren(this=node)
    for clock in [found for found in holder.walk() if _name_clock(found)]:
        clock.replace(_write_clock(_name_clock(clock), now))
    return holder


def _make_constant(value: object) -> exp.Expr:
    if isinstance(value, datetime.datetime) and value.utcoffset() is not None:
        local = value.astimezone(datetime.UTC).replace(tzinfo=None)
        return exp.cast(exp.Literal.string(f"{local.isoformat(' ')}+00"), "TIMESTAMPTZ", dialect="duckdb")
    if isinstance(value, tuple):  # an interval's months, days and nanoseconds
        raise BindError("an interval is no constant of one unit.")
    return make_literal(value, "now")


_COMPUTED = (
    exp.Literal, exp.Paren, exp.Interval, exp.Var, exp.DataType, exp.DataTypeParam, exp.Cast, exp.Add, exp.Sub, exp.Neg,
    exp.TimestampTrunc, exp.DateTrunc, exp.Extract, exp.AtTimeZone, exp.TimeToStr, exp.Upper, exp.Lower,
    exp.DPipe,
)  # fmt: skip


def _find_constant(node: exp.Expr) -> exp.Expr:
    """Return the largest expression around a call that is computed from it alone."""
    while node.parent is not None and isinstance(node.parent, _COMPUTED):
        if not all(isinstance(part, _COMPUTED) for part in _walk_around(node.parent)):
            break
        node = node.parent
    return node


def _walk_around(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes of an expression without calls of the present time."""
    return (part for part in node.walk(prune=lambda n: bool(_name_clock(n))) if not _name_clock(part))
