"""The queries for one statistic per candidate: one pass over the data for known shapes, otherwise a batched nested loop.

A statistic has terms, each a public factor of the candidate times an exact aggregate. All candidates share one scan if
an aggregate's condition or argument names the candidate's columns in one of these shapes:

    equality      x = c.k                              group by x, look the candidate's key up
    one-sided     x >= c.v   (or >, <, <=)             bins between thresholds; running sums
    two-sided     x BETWEEN c.lo AND c.hi              the difference of two running sums
    clipped sum   SUM(LEAST(x, c.b))                   the sum below b, plus b times the count above
    several       x <= c.a AND y > c.b                 group by x and y, look candidates up among these

each combined with any condition independent of the candidate. An independent aggregate is one number.

A sweep computes equal scores outside SQL, from histograms of the private rows and the candidates. It is used only for
types that numpy compares as the engine does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.binding.relations.fan_out import split_conjuncts
from dpsql.binding.values.exits import clamp_to_38_digits
from dpsql.binding.values.sql_types import Type
from dpsql.exact.candidate_statistics import (
    CANDIDATE,
    Bare,
    CandidateStatistic,
    Range,
    Term,
    TermShape,
    Weight,
    write_candidates,
    write_compared_column,
    write_threshold_bins,
)
from dpsql.language.dialect import to_sql
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.fast.candidate_scores import (
    CANDIDATE_BASE,
    CANDIDATE_PLACE,
    CandidateFactor,
    CandidateScores,
    ScoreTerm,
)
from dpsql.mechanisms.fast.column_counts import DECIMAL_DIGITS
from dpsql.mechanisms.fast.thresholds import DOUBLE_DIGITS, HistogramQuery

Types = Mapping[tuple[str, str], Type]
"""Types of columns, by relation and name."""
_OPS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GTE: ">=",
    exp.GT: ">",
    exp.LTE: "<=",
    exp.LT: "<",
}
_FLIPPED = {"=": "=", "<>": "<>", ">=": "<=", ">": "<", "<=": ">=", "<": ">"}


def names_candidate(node: exp.Expr) -> bool:
    """Return whether an expression names a column of the candidate."""
    return any(column.table == CANDIDATE for column in node.find_all(exp.Column))


def only_candidate(node: exp.Expr) -> bool:
    """Return whether an expression names only the candidate's columns."""
    return all(column.table == CANDIDATE for column in node.find_all(exp.Column))


def compare_sides(part: exp.Expr) -> tuple[exp.Expr, str, exp.Expr] | None:
    """Return the private side of a comparison, its operator and the public side: the candidate's, or a literal."""
    op = _OPS.get(type(part))
    if op is None:
        return None
    left, right = part.this, part.expression
    if not names_candidate(left) and only_candidate(right):
        return left, op, right
    return (right, _FLIPPED[op], left) if not names_candidate(right) and only_candidate(left) else None


def flatten_conditions(conditions: Iterable[exp.Expr]) -> Iterable[exp.Expr]:
    """Yield conditions without parentheses, and BETWEEN as two comparisons."""
    for condition in conditions:
        inner = condition.unnest()
        if isinstance(inner, exp.Between):
            yield exp.GTE(this=inner.this.copy(), expression=inner.args["low"].copy())
            yield exp.LTE(this=inner.this.copy(), expression=inner.args["high"].copy())
        else:
            yield inner


def shape_of(
    weight: Weight,
    amount: exp.Expr | None,
    clip: exp.Expr | None,
    bare: Bare | None,
    condition: exp.Expr | None,
    comparable: bool,
) -> Term:
    """Return the cheapest way to compute a term for all candidates.

    Args:
        amount: the grid integer that is added, without its clip; None counts rows.
        comparable: whether thresholds may be looked up in the condition.
    """
    parts = split_conjuncts(condition)
    flat = list(flatten_conditions(filter(names_candidate, parts)))
    found = [compare_sides(part) if names_candidate(part) else None for part in flat]
    ranges = tuple(Range(*sides) for sides in found if sides is not None and sides[1] != "<>")
    ops = [r.op for r in ranges]
    faces = len({r.value for r in ranges}) == 1 and {op[0] for op in ops} == {"<", ">"}
    shape: TermShape = "nested loop"
    if not (amount is not None and names_candidate(amount)) and len(ranges) == len(flat):
        if not ranges:
            shape = "constant" if clip is None else "clipped sum"
        elif clip is None and ops == ["="]:
            shape = "equality"
        elif clip is None and comparable and "=" not in ops and len(ranges) == 1:
            shape = "one-sided"
        elif clip is None and comparable and len(ranges) == 2 and faces:
            shape = "two-sided"
        elif clip is None and comparable:
            shape = "several ranges"
    if shape in ("constant", "clipped sum", "nested loop"):
        ranges = ()
    nested = text = to_sql(amount) if amount is not None else "1"
    if clip is not None:  # LEAST skips a NULL, and would return the clip
        nested = f"CASE WHEN ({text}) IS NOT NULL THEN LEAST({text}, {to_sql(clip)}) END"
    free = tuple(to_sql(part) for part in parts if not names_candidate(part))
    whole = to_sql(condition) if condition is not None else None
    return Term(weight, text, free, ranges, clip, bare, whole, nested, shape)


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


def sweep_of(
    rows: str,
    source: str,
    columns: Sequence[str],
    statistic: CandidateStatistic,
    types: Types,
    per_unit: int,
    extra: Mapping[str, str],
    varying: bool,
) -> CandidateScores | None:
    """Return the sweep of a statistic in a one-pass shape; None for values that are no numbers or dates."""
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
    base, form = CANDIDATE_BASE if CANDIDATE_BASE in more else None, statistic.form_of(per_unit)
    query, terms = write_candidates(source, shown | more), tuple(swept)
    return CandidateScores(query, tuple(histograms), terms, base, per_unit, varying, form, bases, multiples)


def _public(weight: Weight, shown: _Shown, types: Types) -> CandidateFactor:
    if weight.sql is None:
        return CandidateFactor(weight.times)
    kind = _type_of(weight.raw, types)
    plain = kind is not None and kind.kind == "INTEGER" and kind.sql not in _UNLIKE
    name = shown.column(weight.raw if plain else weight.sql)
    return CandidateFactor(weight.times, name, weight.low, weight.high)


def _counted(rows: str, term: Term, types: Types) -> HistogramQuery | None:
    """Return the histogram of a term; None if it is not compared here."""
    if term.shape in ("several ranges", "nested loop"):
        return None
    if term.shape == "constant":
        return HistogramQuery(write_threshold_bins(rows, term))
    if (bare := term.bare) is not None:
        # DuckDB knows a tighter range for it than for the amount, which may be NULL
        value = to_sql(bare.value)
        query = write_threshold_bins(rows, term, f"GREATEST({value}, {bare.least})", value, summed=False)
        narrow, places = (_narrow(bare.value, types), None) if bare.decimal is None else bare.decimal
        return HistogramQuery(
            query, write_compared_column(rows, term, to_sql(narrow)), least=bare.least, places=places
        )
    compared = _compared(term.ranges[0].x, [r.bound for r in term.ranges], types)
    if compared is None:
        return None
    query = write_threshold_bins(rows, term, compared.whole, term.ranges[0].value)
    found = HistogramQuery(query, digits=compared.digits, as_doubles=compared.as_doubles)
    if term.amount != "1" or not compared.kind:
        return found
    column = write_compared_column(rows, term, compared.column or compared.whole)
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
    """Return the type of an expression that is only a column."""
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
