"""A statistic over the bounded rows of a FROM, and the ways to compute it for all candidates.

Its queries compute it in the engine. A sweep computes equal scores outside SQL, from histograms of the private rows and
the candidates; it exists for types that numpy compares as the engine does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from dpsql.binding.modes.utility import FARTHEST, RowNames, bind_statistic
from dpsql.binding.public_statement import Env
from dpsql.binding.relations.binder import Binder
from dpsql.binding.relations.relation import Field, From, Relation
from dpsql.binding.relations.unit_rows import RowCaps, describe_protection
from dpsql.binding.values import total_expressions
from dpsql.binding.values.fixed_point import clamp_to_38_digits
from dpsql.binding.values.sql_types import Bounds, Type
from dpsql.exact.candidate_statistics import (
    BATCH,
    CANDIDATE,
    ROWS,
    CandidateStatistic,
    Range,
    Term,
    Weight,
    write_candidates,
    write_compared_column,
    write_threshold_bins,
)
from dpsql.exact.exact_query import write_bounded_rows
from dpsql.language.dialect import privacy_error, to_sql
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.fast.candidate_scores import (
    CANDIDATE_BASE,
    CANDIDATE_SENSITIVITY,
    CANDIDATE_THRESHOLD,
    CandidateFactor,
    CandidateScores,
    ScoreTerm,
)
from dpsql.mechanisms.fast.column_counts import DECIMAL_DIGITS
from dpsql.mechanisms.fast.thresholds import DOUBLE_DIGITS, HistogramQuery
from dpsql.mechanisms.queries import CANDIDATE_PLACE, As, Query, Select


def find_range(f: Field, values: pa.Table | None) -> Field:
    """Return a candidates' column with the range of its public values, if these are known."""
    if values is None or not f.typed.type.numeric:
        return f
    column = values.column(f.typed.node.name)
    if pa.types.is_floating(column.type):
        column = column.filter(pc.is_finite(column))
    ends = pc.min_max(column).as_py()
    bounds = Bounds.point(0) if ends["min"] is None else Bounds(Fraction(ends["min"]), Fraction(ends["max"]))
    return replace(f, typed=replace(f.typed, bounds=bounds))


@dataclass(frozen=True)
class ScoredStatistic:
    """A statistic over the rows of a FROM: ``rows`` is their query, with at most ``per_unit`` of one unit."""

    bound: From
    names: RowNames
    statistic: CandidateStatistic
    per_unit: int
    rows: Query

    @classmethod
    def bind(
        cls,
        binder: Binder,
        select: exp.Select,
        bound: From,
        env: Env,
        node: exp.Expr,
        per_unit: int,
        candidate: Relation | None = None,
    ) -> ScoredStatistic:
        """Bind the statistic ``node`` of a SELECT; PrivacyError if its sensitivity can't be derived."""
        relations = bound.relations if candidate is None else (*bound.relations, candidate)
        names = RowNames(tuple(relations), dict(bound.merged), {}, candidate)
        statistic = bind_statistic(node, names, binder.catalog.engine.dialect)
        where = select.args.get("where")
        condition = None if where is None else to_sql(binder.expression(where.this, bound.names, env).node)
        values = dict(names.values) or {"one": "1"}
        rows = write_bounded_rows(bound, condition, (), values, per_unit, None)
        return cls(bound, names, statistic, per_unit, rows)

    @property
    def sensitivity(self) -> int:
        """The most that one unit moves the statistic, in its steps."""
        return self.statistic.sensitivity * self.per_unit

    @property
    def answer_type(self) -> str:
        """The type of fresh answers."""
        return "BIGINT" if self.statistic.steps == 1 else "DOUBLE"

    @property
    def protection(self) -> tuple[str, ...]:
        """EXPLAIN's sentence on the protected unit."""
        return describe_protection(self.bound, RowCaps(self.per_unit), grouped=False)

    @property
    def is_looped(self) -> bool:
        """Whether it is computed candidate by candidate."""
        return self.statistic.shape == "nested loop"

    @property
    def meets_candidates(self) -> bool:
        """Whether rows are joined with candidates, so that the limit on public rows per private row applies."""
        return self.is_looped or "several ranges" in self.statistic.shape

    def find_level(self, node: exp.Expr) -> tuple[int | None, dict[str, str]]:
        """Return a threshold in the statistic's steps: a number, or a column of each candidate.

        Raises:
            PrivacyError: it depends on private rows.
        """
        threshold = total_expressions.make_total(node, self.names)
        columns = threshold.node.find_all(exp.Column)
        if not threshold.type.numeric or any(c.table != CANDIDATE for c in columns):
            what = "the threshold must be public: a number, or an expression over the candidate's columns."
            raise privacy_error(node, what, "release a noisy threshold first, in a block of its own.")
        bounds, steps = threshold.bounds, self.statistic.steps
        if threshold.constant and bounds is not None and bounds.low is not None:
            return math.ceil(bounds.low * steps), {}
        # A count reaches 2.5 at 3; on a finer grid one step is negligible, and doubles may be off by it.
        whole = "CEIL" if steps == 1 else "ROUND"
        # Minus infinity is always reached; a missing one never is (GREATEST skips a NULL, NaN is above all numbers).
        far = repr(float(FARTHEST))
        scaled = f"COALESCE({whole}(CAST({to_sql(threshold.node)} AS DOUBLE) * {float(steps)!r}), {far})"
        return None, {CANDIDATE_THRESHOLD: f"CAST(LEAST(GREATEST({scaled}, -{far}), {far}) AS BIGINT)"}

    @property
    def own_sensitivities(self) -> dict[str, str]:
        """The column of each candidate's sensitivity, if they differ."""
        varying = self.statistic.varying
        return {CANDIDATE_SENSITIVITY: f"CAST({varying} * {self.per_unit} AS HUGEINT)"} if varying else {}

    def write_one(self) -> str:
        """Return the query of the statistic alone."""
        return self.statistic.write_scores(self.rows, Select(As("0", CANDIDATE_PLACE)), ()).sql

    def write_all(
        self, source: str, columns: Sequence[str], extra: Mapping[str, str], count: int | None
    ) -> tuple[str, ...]:
        """Return the queries of the statistic for all candidates; a nested loop needs their number, ``count`` (None: unknown)."""
        candidates, shown = write_candidates(source, extra, every=True), (*columns, *extra)
        if not self.is_looped:
            return (self.statistic.write_scores(self.rows, candidates, shown).sql,)
        firsts = range(0, max(count or 1, 1), BATCH)
        return tuple(self.statistic.write_batch(self.rows, candidates, shown, first).sql for first in firsts)

    def write_sweep(
        self, source: str, columns: Sequence[str], extra: Mapping[str, str], varying: bool = False
    ) -> CandidateScores | None:
        """Return the sweep of a statistic in a one-pass shape; None for values that are no numbers or dates."""
        statistic, candidate = self.statistic, self.names.candidate
        assert candidate is not None
        types = {(ROWS, name): kind for name, kind in self.names.types.items()}
        types |= {(CANDIDATE, f.typed.node.name): f.typed.type for f in candidate.fields}
        histograms: dict[HistogramQuery, int] = {}
        shown = _Shown()
        for name in (*columns, CANDIDATE_PLACE):
            shown.own(name)
        swept = []
        for term in statistic.terms:
            counted = _counted(self.rows, term, types)
            if counted is None:
                return None
            place = histograms.setdefault(counted, len(histograms))
            publics = [_as_double(r.bound) if _meet_as_doubles(r, types) else r.bound for r in term.ranges]
            bounds = tuple((r.op, shown.column(node)) for r, node in zip(term.ranges, publics, strict=True))
            clip = shown.column(term.clip) if term.clip is not None else None
            swept.append(ScoreTerm(place, _public(term.weight, shown, types), bounds, clip, term.weight.row))
        more = dict(extra)
        if statistic.constant != "0":
            more[CANDIDATE_BASE] = f"CAST({statistic.constant} AS HUGEINT)"
        bases = tuple(f"{CANDIDATE_BASE}_{i}" for i in range(len(statistic.bases)))
        more |= {name: f"CAST({sql} AS HUGEINT)" for name, sql in zip(bases, statistic.bases, strict=True)}
        multiples = tuple(_public(weight, shown, types) for weight in statistic.multiples)
        base = CANDIDATE_BASE if CANDIDATE_BASE in more else None
        query, terms = write_candidates(source, shown | more).sql, tuple(swept)
        shared = (query, tuple(histograms), terms, base, self.per_unit, varying)
        return CandidateScores(*shared, statistic.form_of(self.per_unit), bases, multiples)


# -- the columns of a sweep ---------------------------------------------------------------------------------------------

Types = Mapping[tuple[str, str], Type]
"""Types of columns, by relation and name."""
_INTEGERS = {"INTEGER", "NULL"}
_NUMBERS = {"INTEGER", "DECIMAL", "DOUBLE", "NULL"}
_UNLIKE = ("FLOAT", "UBIGINT", "HUGEINT", "UHUGEINT")
"""Types without a 64-bit integer or double in Arrow."""
_SMALL = ("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT")
_NARROW_DIGITS = 9


class _Shown(dict[str, str]):
    """The candidates' columns that a sweep reads, SQL by name: each expression once."""

    def own(self, name: str) -> str:
        self.setdefault(name, to_sql(exp.column(name, table=CANDIDATE, quoted=True)))
        return name

    def column(self, node: exp.Expr | str) -> str:
        """Return the name of an expression's column."""
        bare = None if isinstance(node, str) else _bare(node)
        if bare is not None and bare.table == CANDIDATE:
            return self.own(bare.name)
        sql = node if isinstance(node, str) else to_sql(node)
        found = next((name for name, text in self.items() if text == sql), f"dpsql_{len(self)}")
        self[found] = sql
        return found


def _public(weight: Weight, shown: _Shown, types: Types) -> CandidateFactor:
    if weight.sql is None:
        return CandidateFactor(weight.times)
    kind = _type_of(weight.raw, types)
    plain = kind is not None and kind.kind == "INTEGER" and kind.sql not in _UNLIKE
    name = shown.column(weight.raw if plain else weight.sql)
    return CandidateFactor(weight.times, name, weight.low, weight.high)


def _counted(rows: Query, term: Term, types: Types) -> HistogramQuery | None:
    """Return the histogram of a term; None if it is not compared here."""
    if term.shape in ("several ranges", "nested loop"):
        return None
    if term.shape == "constant":
        summed = term.amount != "1"
        return HistogramQuery(write_threshold_bins(rows, term, summed=summed).sql, sums=summed)
    if (bare := term.bare) is not None:
        # DuckDB knows a tighter range for it than for the amount, which may be NULL
        value = to_sql(bare.value)
        query = write_threshold_bins(rows, term, f"GREATEST({value}, {bare.least})", value).sql
        narrow, places = (_narrow(bare.value, types), None) if bare.decimal is None else bare.decimal
        return HistogramQuery(
            query, write_compared_column(rows, term, to_sql(narrow)).sql, least=bare.least, places=places
        )
    compared = _compared(term.ranges[0].x, [r.bound for r in term.ranges], types)
    if compared is None:
        return None
    summed = term.amount != "1"
    query = write_threshold_bins(rows, term, compared.whole, term.ranges[0].value, summed).sql
    found = HistogramQuery(query, digits=compared.digits, as_doubles=compared.as_doubles, sums=summed)
    if summed or not compared.kind:
        return found
    column = write_compared_column(rows, term, compared.column or compared.whole).sql
    places = compared.digits if compared.column is not None else None
    return replace(found, column=column, doubles=compared.kind == "doubles", places=places)


@dataclass(frozen=True)
class _Compared:
    """A compared private side: ``whole`` is its SQL as an integer or a double, after scaling by ``digits`` places."""

    whole: str
    digits: int
    kind: str
    """Its certain column type: ``whole`` numbers or ``doubles``, otherwise empty."""
    column: str | None = None
    """A decimal column with equal integers, without multiplication."""
    as_doubles: bool = False
    """Whether these integers are compared with doubles."""


def _compared(side: exp.Expr, publics: Sequence[exp.Expr], types: Types) -> _Compared | None:
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
        x = to_sql(clamp_to_38_digits(side.copy())) if exact and own is None and _is_wide(side) else x
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
    """Return whether an expression is computed in signed integers of 128 bits: the engine returns at most 38 digits."""
    casts = [cast.to for cast in node.find_all(exp.Cast)]
    wide = any(kind.is_type("int128") for kind in casts)
    others = any(kind.is_type("double", "float", "decimal", "uint128") for kind in casts)
    return wide and not others and node.find(exp.Div) is None


def _meet_as_doubles(found: Range, types: Types) -> bool:
    """Return whether the engine casts decimals to doubles to compare the two sides."""
    own = _type_of(found.x, types)
    return own is not None and (
        (own.kind == "DOUBLE" and "DECIMAL" in _kinds(found.bound, types))
        or (own.kind == "DECIMAL" and _is_double(found.bound, types))
    )


def _is_double(node: exp.Expr, types: Types) -> bool:
    """Return whether a numeric expression is certainly a double: a column, or computed from one."""
    inner = node.unnest()
    if isinstance(inner, exp.Column):
        kind = _type_of(inner, types)
        return kind is not None and kind.kind == "DOUBLE" and kind.sql not in _UNLIKE
    if isinstance(inner, exp.Neg):
        return _is_double(inner.this, types)
    if isinstance(inner, exp.Add | exp.Sub | exp.Mul):
        return _is_double(inner.this, types) or _is_double(inner.expression, types)
    return False


def _as_double(node: exp.Expr) -> exp.Expr:
    return exp.Cast(this=node.copy(), to=exp.DataType.build("DOUBLE", dialect="duckdb"))


def _type_of(node: exp.Expr, types: Types) -> Type | None:
    bare = _bare(node)
    return types.get((bare.table, bare.name)) if bare is not None else None


def _kinds(node: exp.Expr, types: Types) -> set[str]:
    """Return the numeric kinds in an expression; a literal with a point is a decimal."""
    known = [types.get((c.table, c.name)) for c in node.find_all(exp.Column)]
    kinds: set[str] = {"OTHER" if t is None or t.sql in _UNLIKE else t.kind for t in known}
    for literal in node.find_all(exp.Literal):
        if not literal.is_string and not literal.is_int:
            kinds.add("DOUBLE" if "e" in literal.name.lower() else "DECIMAL")
    return kinds


def _narrow(node: exp.Expr, types: Types) -> exp.Expr:
    """Return grid integers without a cast to more bits than they need."""
    if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast) and node.to.is_type("bigint"):
        inner: exp.Expr = node.this.unnest()
        kind, small = _type_of(inner, types), isinstance(inner, exp.TryCast) and inner.to.is_type("int")
        if small or (kind is not None and kind.sql in _SMALL):
            return inner
    return node


def _bare(node: exp.Expr) -> exp.Column | None:
    inner = node.unnest()
    return inner if isinstance(inner, exp.Column) else None
