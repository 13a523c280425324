"""The queries of a sweep: histograms of the private rows, and the candidates beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.mechanisms.fast.candidate_scores import BASE, ORD, Counted, Public, Sweep, Swept
from dpsql.sql.expressions.types import Type
from dpsql.sql.parse.dialect import expression_of, to_sql
from dpsql.sql.selection.candidate_factors import Weight
from dpsql.sql.selection.candidates import Term
from dpsql.sql.selection.score import Bare, Statistic

_INTEGERS = {"INTEGER", "NULL"}
_NUMBERS = {"INTEGER", "DECIMAL", "DOUBLE", "NULL"}
_UNLIKE = ("FLOAT", "UBIGINT", "HUGEINT", "UHUGEINT")
"""Types that Arrow has no integer or double of 64 bits for."""
_SMALL = ("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT")
_EXACT_DIGITS = 15
"""Decimals of so many digits are exact integers as doubles, once their places are made whole."""
_NARROW_DIGITS = 9


@dataclass
class _Shown:
    """The candidates' columns that a sweep reads: each expression once."""

    alias: str
    items: dict[str, str] = field(default_factory=dict)
    """SQL by name."""

    def own(self, name: str) -> str:
        self.items.setdefault(name, to_sql(exp.column(name, table=self.alias, quoted=True)))
        return name

    def column(self, sql: str) -> str:
        """The name of an expression's column."""
        node = _bare(sql)
        if node is not None and node.table == self.alias:
            return self.own(node.name)
        found = next((name for name, text in self.items.items() if text == sql), f"dpsql_{len(self.items)}")
        self.items[found] = sql
        return found


def sweep_of(
    rows: str, source: str, columns: Sequence[str], alias: str, statistic: Statistic,
    types: Mapping[tuple[str, str], Type], per_unit: int, extra: Mapping[str, str],
) -> Sweep | None:  # fmt: skip
    """The sweep of a statistic in a one-pass shape, or None where values are not compared as numbers or dates.

    Args:
        rows: the query of the private rows. source: the lent relation of the candidates, called ``alias`` in the terms.
        columns: the candidate's columns to return. extra: further columns, in SQL by name.
        types: the type of each column that the terms name, by relation and name.
        per_unit: rows of one privacy unit.
    """
    histograms: dict[Counted, int] = {}
    shown = _Shown(alias)
    for name in (*columns, ORD):
        shown.own(name)
    swept = []
    for term, bare, weight in zip(statistic.terms, statistic.bare, statistic.weights, strict=True):
        counted = _counted(rows, term, bare, types)
        if counted is None:
            return None
        place = histograms.setdefault(counted, len(histograms))
        ends = (
            [("=", term.equal[1])] if term.equal is not None else [(r.op, r.threshold) for r in term.ranges]
        )
        bounds = tuple((op, shown.column(sql)) for op, sql in ends)
        clip = shown.column(term.clip) if term.clip is not None else None
        swept.append(Swept(place, _public(weight, shown, types), bounds, clip, weight.row))
    more = {
        **extra,
        **({BASE: f"CAST({statistic.constant} AS HUGEINT)"} if statistic.constant != "0" else {}),
    }
    as_it_is = not more and all(_bare(sql) is not None for sql in shown.items.values())
    items = [
        f"{sql} AS {to_sql(exp.to_identifier(name, quoted=True))}"
        for name, sql in (shown.items | more).items()
    ]
    return Sweep(
        f"SELECT {', '.join(items)} FROM {source} AS {alias}", tuple(histograms), tuple(swept),
        BASE if BASE in more else None, (source, tuple(shown.items)) if as_it_is else None, per_unit,
    )  # fmt: skip


def _public(weight: Weight, shown: _Shown, types: Mapping[tuple[str, str], Type]) -> Public:
    if weight.sql is None:
        return Public(weight.times)
    node = _bare(weight.raw)
    kind = types.get((node.table, node.name)) if node is not None else None
    plain = kind is not None and kind.kind == "INTEGER" and kind.sql not in _UNLIKE
    return Public(weight.times, shown.column(weight.raw if plain else weight.sql), weight.low, weight.high)


def _counted(
    rows: str, term: Term, bare: Bare | None, types: Mapping[tuple[str, str], Type]
) -> Counted | None:
    """What is counted for a term; None where it is not compared here."""
    if term.shape == "nested loop":
        return None
    where = " AND ".join(f"({c})" for c in term.free) or "TRUE"
    added = "" if term.amount == "1" else f", SUM({term.amount}) AS v"
    head, tail = f"WITH rows AS ({rows}) SELECT", f"FROM rows WHERE {where}"
    if term.shape == "constant":
        return Counted(f"{head} 0 AS x, COUNT(*) AS n{added} {tail}")
    if bare is not None:  # DuckDB knows more of the range of this than of the amount, which passes NULL on
        x = f"GREATEST({bare.value}, {bare.low})"
        query = f"{head} {x} AS x, COUNT(*) AS n {tail} AND ({bare.value}) IS NOT NULL GROUP BY x"
        return Counted(query, f"{head} {_narrow(bare.value, types)} AS x {tail}", 0, bare.low)
    x, publics = (term.equal[0], [term.equal[1]]) if term.equal is not None else (
        term.ranges[0].value, [r.threshold for r in term.ranges]
    )  # fmt: skip
    compared = _compared(x, publics, types)
    if compared is None:
        return None
    scaled, digits, kind = compared
    query = f"{head} {scaled} AS x, COUNT(*) AS n{added} {tail} AND ({x}) IS NOT NULL GROUP BY x"
    column = f"{head} {scaled} AS x {tail}" if kind and not added else None
    return Counted(query, column, digits, doubles=column is not None and kind == "doubles")


def _compared(
    x: str, publics: Sequence[str], types: Mapping[tuple[str, str], Type]
) -> tuple[str, int, str] | None:
    """A private side in SQL, its places that are made whole, and whether it is a column of ``whole`` numbers or ``doubles`` for
    certain (else nothing). None where it and the public sides are not all numbers that are compared here, or all dates.
    """
    kinds = {kind for side in publics for kind in _kinds(side, types)}
    mine, node = _kinds(x, types), _bare(x)
    own = types.get((node.table, node.name)) if node is not None else None
    if mine == {"DATE"}:
        return (x, 0, "whole" if own is not None else "") if kinds <= {"DATE"} else None
    if not kinds <= _NUMBERS:
        return None
    if mine <= {"INTEGER", "DOUBLE", "NULL"}:
        exact = mine <= _INTEGERS
        kind = "" if own is None else "whole" if exact else "doubles"
        return (x, 0, kind) if exact or "DECIMAL" not in kinds else None
    if own is None or own.kind != "DECIMAL" or sum(own.digits) > _EXACT_DIGITS or "DOUBLE" in kinds:
        return None
    narrow = "INTEGER" if sum(own.digits) <= _NARROW_DIGITS else "BIGINT"
    places = own.digits[1]
    return f"CAST(CAST({x} AS DOUBLE) * {10**places} AS {narrow})", places, "whole"


def _kinds(side: str, types: Mapping[tuple[str, str], Type]) -> set[str]:
    """What kinds of numbers an expression is made of; a number with a point is a decimal."""
    node = expression_of(side)
    known = [types.get((c.table, c.name)) for c in node.find_all(exp.Column)]
    kinds: set[str] = {"OTHER" if t is None or t.sql in _UNLIKE else t.kind for t in known}
    for literal in node.find_all(exp.Literal):
        if not literal.is_string and not literal.is_int:
            kinds.add("DOUBLE" if "e" in literal.name.lower() else "DECIMAL")
    return kinds


def _narrow(value: str, types: Mapping[tuple[str, str], Type]) -> str:
    """Grid integers in no more bits than they need."""
    node = expression_of(value)
    if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast) and node.to.is_type("bigint"):
        inner = _unwrapped(node.this)
        kind = types.get((inner.table, inner.name)) if isinstance(inner, exp.Column) else None
        small = isinstance(inner, exp.TryCast) and inner.to.is_type("int")
        if small or (kind is not None and kind.sql in _SMALL):
            return to_sql(inner)
    return value


def _unwrapped(node: exp.Expr) -> exp.Expr:
    return _unwrapped(node.this) if isinstance(node, exp.Paren) else node


def _bare(sql: str) -> exp.Column | None:
    node = _unwrapped(expression_of(sql))
    return node if isinstance(node, exp.Column) else None
