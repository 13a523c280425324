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
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from sqlglot import exp

from dpsql.binding.relations.fan_out import split_conjuncts
from dpsql.binding.values.exits import clamp_to_38_digits
from dpsql.binding.values.sql_types import Type
from dpsql.language.dialect import to_sql
from dpsql.mechanisms.fast.candidate_scores import (
    CANDIDATE_BASE,
    CANDIDATE_PLACE,
    CANDIDATE_SCORE,
    CandidateFactor,
    CandidateScores,
    ScoreTerm,
)
from dpsql.mechanisms.fast.column_counts import DECIMAL_DIGITS
from dpsql.mechanisms.fast.thresholds import DOUBLE_DIGITS, HistogramQuery
from dpsql.mechanisms.selection.utility_forms import (
    Absolute,
    Extreme,
    FormNode,
    Linear,
    Multiple,
    Total,
    UtilityForm,
)

ROWS, CANDIDATE = "rows", "dpsql_c"
"""The names of private rows and candidates in the queries."""
_PLACE = f"{CANDIDATE}.{CANDIDATE_PLACE}"

_Shape = Literal[
    "constant", "equality", "one-sided", "two-sided", "clipped sum", "several ranges", "nested loop"
]
Types = Mapping[tuple[str, str], Type]
"""Types of columns, by relation and name."""
BATCH = 64
"""Candidates per query of a nested loop."""

_OPS: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.NEQ: "<>", exp.GTE: ">=", exp.GT: ">"}
_OPS |= {exp.LTE: "<=", exp.LT: "<"}
_FLIPPED = {"=": "=", "<>": "<>", ">=": "<=", ">": "<", "<=": ">=", "<": ">"}


@dataclass(frozen=True)
class Range:
    """``x op threshold``: the private side and the candidate's, with the operator's direction."""

    x: exp.Expr
    op: str
    bound: exp.Expr

    @property
    def value(self) -> str:
        """SQL of the private side."""
        return to_sql(self.x)

    @property
    def threshold(self) -> str:
        """SQL of the candidate's side."""
        return to_sql(self.bound)


@dataclass(frozen=True)
class Weight:
    """A factor as computed outside SQL: ``times`` the BIGINT ``sql``, clamped to ``[low, high]``.

    NULL is 0; without ``sql`` it is ``times``. ``raw`` is the factor's expression, ``text`` all of it in SQL; ``row``:
    one row's move.
    """

    times: int
    sql: str | None
    raw: exp.Expr
    low: int
    high: int
    row: int
    text: str


@dataclass(frozen=True)
class Bare:
    """A clipped amount before its lower bound ``least``: ``value`` in grid steps, NULL if missing."""

    value: exp.Expr
    least: int
    decimal: tuple[exp.Expr, int] | None = None
    """A column whose integers without their point are the amounts, and its decimal places."""


@dataclass(frozen=True)
class Term:
    """``factor * aggregate``: an aggregate of integers, over rows that satisfy a condition.

    ``amount`` is the grid integer to add ("1" counts rows); ``free`` the conditions without the candidate; ``ranges``
    those that compare with it, in a shape that has some. If the amount is ``LEAST(amount, clip)``, ``clip`` is in grid
    steps and ``bare`` is the unclipped amount. ``nested`` and ``condition`` are the complete expressions, for a nested
    loop.
    """

    weight: Weight
    amount: str
    free: tuple[str, ...]
    ranges: tuple[Range, ...]
    clip: exp.Expr | None
    bare: Bare | None
    condition: str | None
    nested: str
    shape: _Shape


@dataclass(frozen=True)
class CandidateStatistic:
    """A bound statistic: its terms in common steps, and its move by one row of a unit.

    ``form`` is set if it is no sum, or moves by less than its terms' total; then ``bases`` are its public numbers, and
    ``multiples`` the public factors of nonlinear parts.
    """

    terms: tuple[Term, ...]
    constant: str
    steps: Fraction
    sensitivity: int
    varying: str | None
    """SQL of the sensitivity of each candidate, if they differ."""
    monotone: bool
    shape: str
    form: UtilityForm | None = None
    bases: tuple[str, ...] = ()
    multiples: tuple[Weight, ...] = ()

    def form_of(self, rows: int) -> UtilityForm | None:
        """Return the form for ``rows`` rows per unit."""
        return None if self.form is None else replace(self.form, rows=rows)


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
    weight: Weight, amount: exp.Expr | None, clip: exp.Expr | None, bare: Bare | None, condition: exp.Expr | None,
    comparable: bool,
) -> Term:  # fmt: skip
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
    shape: _Shape = "nested loop"
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
    text = to_sql(amount) if amount is not None else "1"
    # LEAST skips a NULL, and would return the clip.
    nested = (
        text if clip is None else f"CASE WHEN ({text}) IS NOT NULL THEN LEAST({text}, {to_sql(clip)}) END"
    )
    free = tuple(to_sql(part) for part in parts if not names_candidate(part))
    whole = to_sql(condition) if condition is not None else None
    return Term(weight, text, free, ranges, clip, bare, whole, nested, shape)


# -- writing ----------------------------------------------------------------------------------------------------


def statistic_sql(rows: str, candidates: str, columns: tuple[str, ...], statistic: CandidateStatistic) -> str:
    """Return one query of the candidates' columns, their order, and the statistic as an integer :data:`SCORE`.

    ``rows``: a query of the bounded private rows, with the columns of the terms.
    """
    parts = [f"rows AS ({rows})", f"{CANDIDATE} AS (SELECT * FROM {candidates})"]
    names = [f"t{i}" for i in range(len(statistic.terms))]
    for name, term in zip(names, statistic.terms, strict=True):
        parts += _term_ctes(name, term)
    joins = " ".join(f"LEFT JOIN {name} ON {name}.{CANDIDATE_PLACE} = {_PLACE}" for name in names)
    return f"WITH {', '.join(parts)} {_scores(columns, statistic, [f'{name}.v' for name in names], joins)}"


def nested_sql(
    rows: str, candidates: str, columns: tuple[str, ...], statistic: CandidateStatistic, first: int
) -> str:
    """Return the statistic of ``BATCH`` candidates from the ``first`` on, as a nested loop over the rows."""
    batch = f"{CANDIDATE_PLACE} >= {first} AND {CANDIDATE_PLACE} < {first + BATCH}"
    inside = f"{CANDIDATE} AS (SELECT * FROM {candidates} WHERE {batch})"
    sums = ", ".join(
        f"SUM(CASE WHEN {all_of((*t.free, *((t.condition,) if t.condition and t.shape != 'constant' else ())))} "
        f"THEN {t.nested} ELSE 0 END) AS v{i}"
        for i, t in enumerate(statistic.terms)
    )
    looped = f"SELECT {_PLACE} AS o, {sums} FROM {CANDIDATE} CROSS JOIN rows GROUP BY {_PLACE}"
    values = [f"looped.v{i}" for i in range(len(statistic.terms))]
    scores = _scores(columns, statistic, values, f"LEFT JOIN looped ON looped.o = {_PLACE}")
    return f"WITH rows AS ({rows}), {inside}, looped AS ({looped}) {scores}"


def _scores(columns: tuple[str, ...], statistic: CandidateStatistic, values: list[str], joins: str) -> str:
    """Return the SELECT of the statistic, with ``values`` as its terms' aggregates over the joins."""
    terms = [
        f"({t.weight.text}) * COALESCE({value}, 0)" for t, value in zip(statistic.terms, values, strict=True)
    ]
    if statistic.form is None or statistic.form.linear:
        total = " + ".join([statistic.constant, *terms])
    else:
        total = _write_form(statistic.form.root, terms, statistic)
    shown = [*(f"{CANDIDATE}.{c}" for c in columns), _PLACE, f"CAST({total} AS HUGEINT) AS {CANDIDATE_SCORE}"]
    return f"SELECT {', '.join(shown)} FROM {CANDIDATE} {joins} ORDER BY {_PLACE}"


def _write_form(form: FormNode, terms: list[str], statistic: CandidateStatistic) -> str:
    def write(part: FormNode) -> str:
        return _write_form(part, terms, statistic)

    match form:
        case Linear():
            shown = [*(statistic.bases[i] for i in form.bases), *(terms[i] for i in form.terms)]
            return f"({' + '.join(shown)})"
        case Total(parts):
            return f"({' + '.join(map(write, parts))})"
        case Absolute(part):
            return f"ABS({write(part)})"
        case Extreme(parts, greatest):
            return f"{'GREATEST' if greatest else 'LEAST'}({', '.join(map(write, parts))})"
        case Multiple(factor, part):
            return f"({statistic.multiples[factor].text}) * {write(part)}"


def all_of(conditions: tuple[str, ...]) -> str:
    """Return the conjunction of conditions in SQL."""
    return " AND ".join(f"({c})" for c in conditions) or "TRUE"


def _term_ctes(name: str, term: Term) -> list[str]:
    where = all_of(term.free)
    if term.shape == "constant":
        one = f"SELECT COALESCE(SUM({term.amount}), 0) AS v FROM rows WHERE {where}"
        return [f"{name} AS (SELECT {_PLACE}, one.v FROM {CANDIDATE} CROSS JOIN ({one}) AS one)"]
    if term.shape in ("equality", "several ranges"):
        xs = dict.fromkeys(r.value for r in term.ranges)
        names = {x: "k" if term.shape == "equality" else f"key{i}" for i, x in enumerate(xs)}
        keys = ", ".join(f"{x} AS {alias}" for x, alias in names.items())
        grouped = f"SELECT {keys}, SUM({term.amount}) AS v FROM rows WHERE {where} GROUP BY {', '.join(names.values())}"
        met = " AND ".join(f"{name}_g.{names[r.value]} {r.op} {r.threshold}" for r in term.ranges)
        # Several values of x may equal one key (integers that are one double): GROUP BY keeps one number per candidate.
        found = (
            f"SELECT {_PLACE}, SUM({name}_g.v) AS v FROM {CANDIDATE} JOIN {name}_g ON {met} GROUP BY {_PLACE}"
        )
        return [f"{name}_g AS ({grouped})", f"{name} AS ({found})"]
    if term.shape == "clipped sum":
        assert term.clip is not None
        clip, at = to_sql(term.clip), f"{name}_at"
        below = _running(name, term.amount, where, [clip], term.amount)
        # The sum of values at most b, and b for each value above it.
        value = f"{at}.upto + ({clip}) * ({name}_all.n - {at}.n_upto)"
        whole = f"SELECT COUNT({term.amount}) AS n FROM rows WHERE {where}"
        return [
            *below,
            f"{name}_all AS ({whole})",
            f"{name} AS (SELECT {_PLACE}, {value} AS v FROM {CANDIDATE} "
            f"JOIN {at} ON {at}.t = {clip} CROSS JOIN {name}_all)",
        ]
    at, x = f"{name}_at", term.ranges[0].value
    parts = _running(name, x, where, [r.threshold for r in term.ranges], term.amount)
    present = f"{where} AND ({x}) IS NOT NULL"
    parts.append(f"{name}_all AS (SELECT COALESCE(SUM({term.amount}), 0) AS upto FROM rows WHERE {present})")
    joins = "".join(f" LEFT JOIN {at} AS a{i} ON a{i}.t = {r.threshold}" for i, r in enumerate(term.ranges))
    sums = {
        r.op[0]: (f"a{i}.{'upto' if r.op in ('<=', '>') else 'under'}", r) for i, r in enumerate(term.ranges)
    }
    if len(sums) == 2:
        (high, upper), (low, lower) = sums["<"], sums[">"]
        present = " AND ".join(f"({r.threshold}) IS NOT NULL" for r in term.ranges)
        # A range with its ends in the wrong order has no rows; one with equal ends has rows only if it is closed.
        meets = "<=" if (upper.op, lower.op) == ("<=", ">=") else "<"
        ordered = f"{present} AND ({lower.threshold}) {meets} ({upper.threshold})"
        value = f"CASE WHEN {ordered} THEN {high} - {low} ELSE 0 END"
    else:
        value = sums["<"][0] if "<" in sums else f"{name}_all.upto - {sums['>'][0]}"
    one = f"SELECT {_PLACE}, {value} AS v FROM {CANDIDATE}{joins} CROSS JOIN {name}_all"
    return [*parts, f"{name} AS ({one})"]


def _running(name: str, x: str, where: str, thresholds: list[str], amount: str) -> list[str]:
    """Return CTEs up to ``{name}_at(t, upto, under, n_upto)``: sums over x <= t and x < t for each threshold t.

    A row's bin is that of the greatest threshold that is at most x; rows equal to it are counted separately, to
    distinguish <= from <. One pass over the rows, then k bins.
    """
    union = " UNION ".join(f"SELECT {t} AS t FROM {CANDIDATE} WHERE ({t}) IS NOT NULL" for t in thresholds)
    binned = (
        f"SELECT {name}_t.t AS t, {name}_x.x = {name}_t.t AS edge, SUM({name}_x.v) AS s, SUM({name}_x.n) AS n "
        f"FROM {name}_x ASOF LEFT JOIN {name}_t ON {name}_x.x >= {name}_t.t GROUP BY {name}_t.t, edge"
    )
    sums = (
        f"SELECT {name}_t.t AS t, COALESCE(SUM(s) FILTER (WHERE edge), 0) AS own, "
        f"COALESCE(SUM(s) FILTER (WHERE NOT edge), 0) AS after, COALESCE(SUM(n) FILTER (WHERE edge), 0) AS n_own, "
        f"COALESCE(SUM(n) FILTER (WHERE NOT edge), 0) AS n_after "
        f"FROM {name}_t LEFT JOIN {name}_b ON {name}_b.t = {name}_t.t GROUP BY {name}_t.t"
    )
    before = "OVER (ORDER BY t ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    first = f"(SELECT COALESCE(SUM(s), 0) FROM {name}_b WHERE t IS NULL)"
    first_n = f"(SELECT COALESCE(SUM(n), 0) FROM {name}_b WHERE t IS NULL)"
    running = (
        f"SELECT t, {first} + COALESCE(SUM(own + after) {before}, 0) AS under, "
        f"{first} + COALESCE(SUM(own + after) {before}, 0) + own AS upto, "
        f"{first_n} + COALESCE(SUM(n_own + n_after) {before}, 0) + n_own AS n_upto FROM {name}_s"
    )
    return [
        f"{name}_t AS (SELECT DISTINCT t FROM ({union}) AS u)",
        f"{name}_x AS (SELECT {x} AS x, SUM({amount}) AS v, COUNT(*) AS n FROM rows "
        f"WHERE {where} AND ({x}) IS NOT NULL GROUP BY x)",
        f"{name}_b AS ({binned})",
        f"{name}_s AS ({sums})",
        f"{name}_at AS ({running})",
    ]


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
    items = [
        f"{sql} AS {to_sql(exp.to_identifier(name, quoted=True))}" for name, sql in (shown | more).items()
    ]
    return CandidateScores(
        f"SELECT {', '.join(items)} FROM {source} AS {CANDIDATE}",
        tuple(histograms),
        tuple(swept),
        CANDIDATE_BASE if CANDIDATE_BASE in more else None,
        per_unit,
        varying,
        statistic.form_of(per_unit),
        bases,
        multiples,
    )


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
    where = all_of(term.free)
    added = "" if term.amount == "1" else f", SUM({term.amount}) AS v"
    head, tail = f"WITH rows AS ({rows}) SELECT", f"FROM rows WHERE {where}"
    if term.shape == "constant":
        return HistogramQuery(f"{head} 0 AS x, COUNT(*) AS n{added} {tail}")
    if (bare := term.bare) is not None:
        value = to_sql(
            bare.value
        )  # DuckDB knows a tighter range for it than for the amount, which may be NULL
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
