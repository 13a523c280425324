"""The queries of a sweep: histograms of the private rows, and the candidates, from which equal scores are computed.

A histogram is used only for types that are compared here as in the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.mechanisms.fast.candidate_scores import (
    CANDIDATE_BASE,
    CANDIDATE_PLACE,
    CandidateFactor,
    CandidateScores,
    ScoreTerm,
)
from dpsql.mechanisms.fast.column_counts import DECIMAL_DIGITS
from dpsql.mechanisms.fast.thresholds import DOUBLE_DIGITS, HistogramQuery
from dpsql.sql.expressions.exits import clamp_to_38_digits
from dpsql.sql.expressions.types import Type
from dpsql.sql.parse.dialect import to_sql
from dpsql.sql.selection.candidates import CANDIDATE, CandidateStatistic, Range, Term, Weight, all_of

_INTEGERS = {"INTEGER", "NULL"}
_NUMBERS = {"INTEGER", "DECIMAL", "DOUBLE", "NULL"}
_UNLIKE = ("FLOAT", "UBIGINT", "HUGEINT", "UHUGEINT")
"""Types without a 64-bit integer or double in Arrow."""
_SMALL = ("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT")
_NARROW_DIGITS = 9
_STEADY = (
    exp.Column,
    exp.Identifier,
    exp.Literal,
    exp.Paren,
    exp.Neg,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Cast,
    exp.DataType,
    exp.DataTypeParam,
    exp.Try,
)
"""Deterministic expressions."""


@dataclass
class _Shown:
    """The candidates' columns that a sweep reads: each expression once."""

    items: dict[str, str] = field(default_factory=dict)
    """SQL by name."""
    bare: bool = True
    """Whether all of them are columns."""
    steady: bool = True
    """Whether all of them are columns, or deterministic functions of one."""

    def own(self, name: str) -> str:
        self.items.setdefault(name, to_sql(exp.column(name, table=CANDIDATE, quoted=True)))
        return name

    def column(self, node: exp.Expr | str, made: exp.Expr | None = None) -> str:
        """Return the name of an expression's column; a text was ``made`` from an expression."""
        bare = None if isinstance(node, str) else _bare(node)
        made = made if isinstance(node, str) else node
        self.steady &= made is not None and all(isinstance(part, _STEADY) for part in made.walk())
        if bare is not None and bare.table == CANDIDATE:
            return self.own(bare.name)
        sql = node if isinstance(node, str) else to_sql(node)
        found = next((name for name, text in self.items.items() if text == sql), f"dpsql_{len(self.items)}")
        self.items[found] = sql
        self.bare &= bare is not None
        return found


def sweep_of(
    rows: str, source: str, columns: Sequence[str], statistic: CandidateStatistic,
    types: Mapping[tuple[str, str], Type], per_unit: int, extra: Mapping[str, str],
) -> CandidateScores | None:  # fmt: skip
    """Return the sweep of a statistic in a one-pass shape; None for values that are no numbers or dates.

    ``types``: the type of each column in the terms, by relation and name; ``per_unit``: rows of one privacy unit.
    """
    histograms: dict[HistogramQuery, int] = {}
    shown = _Shown()
    for name in (*columns, CANDIDATE_PLACE):
        shown.own(name)
    swept = []
    for term in statistic.terms:
        counted = _counted(rows, term, types)
        if counted is None:
            return None
        place = histograms.setdefault(counted, len(histograms))
        bounds = tuple(
            (r.op, shown.column(_as_double(r.bound) if _meet_as_doubles(r, types) else r.bound))
            for r in term.ranges
        )
        clip = shown.column(term.clip) if term.clip is not None else None
        swept.append(ScoreTerm(place, _public(term.weight, shown, types), bounds, clip, term.weight.row))
    more = dict(extra)
    if statistic.constant != "0":
        more[CANDIDATE_BASE] = f"CAST({statistic.constant} AS HUGEINT)"
    bases = tuple(f"{CANDIDATE_BASE}_{i}" for i in range(len(statistic.bases)))
    more |= {name: f"CAST({sql} AS HUGEINT)" for name, sql in zip(bases, statistic.bases, strict=True)}
    multiples = tuple(_public(weight, shown, types) for weight in statistic.multiples)
    as_it_is = not more and shown.bare
    items = [
        f"{sql} AS {to_sql(exp.to_identifier(name, quoted=True))}"
        for name, sql in (shown.items | more).items()
    ]
    return CandidateScores(
        f"SELECT {', '.join(items)} FROM {source} AS {CANDIDATE}", tuple(histograms), tuple(swept),
        CANDIDATE_BASE if CANDIDATE_BASE in more else None, (source, tuple(shown.items)) if as_it_is else None, per_unit,
        source if not more and shown.steady else None, statistic.form_of(per_unit), bases, multiples,
    )  # fmt: skip


def _public(weight: Weight, shown: _Shown, types: Mapping[tuple[str, str], Type]) -> CandidateFactor:
    if weight.sql is None:
        return CandidateFactor(weight.times)
    node = _bare(weight.raw)
    kind = types.get((node.table, node.name)) if node is not None else None
    plain = kind is not None and kind.kind == "INTEGER" and kind.sql not in _UNLIKE
    return CandidateFactor(
        weight.times,
        shown.column(*((weight.raw,) if plain else (weight.sql, weight.raw))),
        weight.low,
        weight.high,
    )


def _counted(rows: str, term: Term, types: Mapping[tuple[str, str], Type]) -> HistogramQuery | None:
    """Return the histogram of a term; None if it is not compared here."""
    if term.shape in ("several ranges", "nested loop"):
        return None
    where = all_of(term.free)
    added = "" if term.amount == "1" else f", SUM({term.amount}) AS v"
    head, tail = f"WITH rows AS ({rows}) SELECT", f"FROM rows WHERE {where}"
    if term.shape == "constant":
        return HistogramQuery(f"{head} 0 AS x, COUNT(*) AS n{added} {tail}")
    if (
        bare := term.bare
    ) is not None:  # DuckDB knows a tighter range for it than for the amount, which may be NULL
        value = to_sql(bare.value)
        x = f"GREATEST({value}, {bare.least})"
        query = f"{head} {x} AS x, COUNT(*) AS n {tail} AND ({value}) IS NOT NULL GROUP BY x"
        narrow, places = (_narrow(bare.value, types), None) if bare.decimal is None else bare.decimal
        return HistogramQuery(query, f"{head} {to_sql(narrow)} AS x {tail}", 0, bare.least, places=places)
    x = term.ranges[0].value
    compared = _compared(term.ranges[0].x, [r.bound for r in term.ranges], types)
    if compared is None:
        return None
    query = f"{head} {compared.whole} AS x, COUNT(*) AS n{added} {tail} AND ({x}) IS NOT NULL GROUP BY x"
    found = HistogramQuery(query, digits=compared.digits, as_doubles=compared.as_doubles)
    if added or not compared.kind:
        return found
    column = f"{head} {compared.column or compared.whole} AS x {tail}"
    places = compared.digits if compared.column is not None else None
    return replace(found, column=column, doubles=compared.kind == "doubles", places=places)


@dataclass(frozen=True)
class _Compared:
    """A compared private side.

    Args:
        whole: its SQL, as an integer or a double.
        digits: decimal places made whole in it.
        kind: its certain column type: ``whole`` numbers or ``doubles``, else nothing.
        column: a decimal column with equal integers, without multiplication.
        as_doubles: whether these are compared with doubles.
    """

    whole: str
    digits: int
    kind: str
    column: str | None = None
    as_doubles: bool = False


def _compared(
    side: exp.Expr, publics: Sequence[exp.Expr], types: Mapping[tuple[str, str], Type]
) -> _Compared | None:
    """Return how a private side is compared; None unless it and the public sides are all numbers, or all dates."""
    kinds = {kind for public in publics for kind in _kinds(public, types)}
    x, mine, own = to_sql(side), _kinds(side, types), _type_of(side, types)
    if mine == {"DATE"}:
        return _Compared(x, 0, "whole" if own is not None else "") if kinds <= {"DATE"} else None
    if not kinds <= _NUMBERS:
        return None
    if mine <= {"INTEGER", "DOUBLE", "NULL"}:
        exact = mine <= _INTEGERS
        kind = "" if own is None else "whole" if exact else "doubles"
        x = clamp_to_38_digits(x) if exact and own is None and _is_wide(side) else x
        return _Compared(x, 0, kind) if exact or own is not None or "DECIMAL" not in kinds else None
    if own is None or own.kind != "DECIMAL":
        return None
    if "DOUBLE" in kinds:  # of several, all must be doubles: decimals are compared unchanged
        doubles = all(_is_double(public, types) for public in publics)
        if not doubles or sum(own.digits) > DOUBLE_DIGITS:
            return _Compared(to_sql(_as_double(side)), 0, "doubles") if doubles else None
    if sum(own.digits) > DECIMAL_DIGITS:
        return None
    narrow = "INTEGER" if sum(own.digits) <= _NARROW_DIGITS else "BIGINT"
    places = own.digits[1]
    column = f"CAST({x} AS DECIMAL({sum(own.digits)}, {places}))"  # its own type: no conversion
    scaled = f"CAST({x} * {10**places} AS {narrow})"
    return _Compared(scaled, places, "whole", column, "DOUBLE" in kinds)


def _is_wide(node: exp.Expr) -> bool:
    """Return whether an expression is computed in signed integers of 128 bits: some have more digits than leave the engine."""
    casts = [cast.to for cast in node.find_all(exp.Cast)]
    wide = any(kind.is_type("int128") for kind in casts)
    return wide and not any(kind.is_type(*_NO_INTEGERS) for kind in casts) and node.find(exp.Div) is None


_NO_INTEGERS = ("double", "float", "decimal", "uint128")


def _meet_as_doubles(found: Range, types: Mapping[tuple[str, str], Type]) -> bool:
    """Return whether the engine casts decimals to doubles to compare the two sides."""
    own = _type_of(found.x, types)
    return own is not None and (
        (own.kind == "DOUBLE" and "DECIMAL" in _kinds(found.bound, types))
        or (own.kind == "DECIMAL" and _is_double(found.bound, types))
    )


def _is_double(node: exp.Expr, types: Mapping[tuple[str, str], Type]) -> bool:
    """Return whether a numeric expression is certainly a double: a column, or computed from one."""
    inner = node.unnest()
    if isinstance(inner, exp.Column):
        kind = types.get((inner.table, inner.name))
        return kind is not None and kind.kind == "DOUBLE" and kind.sql not in _UNLIKE
    if isinstance(inner, exp.Neg):
        return _is_double(inner.this, types)
    if isinstance(inner, exp.Add | exp.Sub | exp.Mul):
        return _is_double(inner.this, types) or _is_double(inner.expression, types)
    return False


def _as_double(node: exp.Expr) -> exp.Expr:
    return exp.Cast(this=node.copy(), to=exp.DataType.build("DOUBLE", dialect="duckdb"))


def _type_of(node: exp.Expr, types: Mapping[tuple[str, str], Type]) -> Type | None:
    bare = _bare(node)
    return types.get((bare.table, bare.name)) if bare is not None else None


def _kinds(node: exp.Expr, types: Mapping[tuple[str, str], Type]) -> set[str]:
    """Return the numeric kinds in an expression; a literal with a point is a decimal."""
    known = [types.get((c.table, c.name)) for c in node.find_all(exp.Column)]
    kinds: set[str] = {"OTHER" if t is None or t.sql in _UNLIKE else t.kind for t in known}
    for literal in node.find_all(exp.Literal):
        if not literal.is_string and not literal.is_int:
            kinds.add("DOUBLE" if "e" in literal.name.lower() else "DECIMAL")
    return kinds


def _narrow(node: exp.Expr, types: Mapping[tuple[str, str], Type]) -> exp.Expr:
    """Return grid integers with no more bits than needed."""
    if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast) and node.to.is_type("bigint"):
        inner: exp.Expr = node.this.unnest()
        kind = types.get((inner.table, inner.name)) if isinstance(inner, exp.Column) else None
        small = isinstance(inner, exp.TryCast) and inner.to.is_type("int")
        if small or (kind is not None and kind.sql in _SMALL):
            return inner
    return node


def _bare(node: exp.Expr) -> exp.Column | None:
    inner = node.unnest()
    return inner if isinstance(inner, exp.Column) else None
