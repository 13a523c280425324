"""The statistics of public candidates over private rows, and the queries that compute them.

One pass over the rows serves all candidates if a term's shape allows it, otherwise a batched nested loop. The candidates are a
public relation with a column of their places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Literal

from sqlglot import exp

from dpsql.language.dialect import to_sql
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_SCORE
from dpsql.mechanisms.queries import (
    CANDIDATE_PLACE,
    As,
    Join,
    Query,
    Select,
    Source,
    Subquery,
    Union,
    write_filter,
)
from dpsql.mechanisms.selection.utilities import (
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

TermShape = Literal[
    "constant", "equality", "one-sided", "two-sided", "clipped sum", "several ranges", "nested loop"
]
BATCH = 64
"""Candidates per query of a nested loop."""


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
    shape: TermShape

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions without the candidate, each in parentheses."""
        return tuple(f"({condition})" for condition in self.free)

    @property
    def each(self) -> str:
        """The amount that a row adds for a candidate, in a nested loop."""
        return f"CASE WHEN {self.condition or 'TRUE'} THEN {self.nested} ELSE 0 END"


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

    def write_scores(self, rows: Query, candidates: Query, columns: Sequence[str]) -> Select:
        """Return one query of the candidates' columns, their place, and the statistic as an integer.

        ``rows``: a query of the bounded private rows, with the columns of the terms.
        """
        named: dict[str, Query] = {ROWS: rows, CANDIDATE: candidates}
        source: Source = CANDIDATE
        names = [f"t{i}" for i in range(len(self.terms))]
        for name, term in zip(names, self.terms, strict=True):
            named |= _write_term(name, term)
            source = Join(source, name, f"{name}.{CANDIDATE_PLACE} = {_PLACE}", side="LEFT")
        return self._select(named, source, [f"{name}.v" for name in names], columns)

    def write_batch(self, rows: Query, candidates: Select, columns: Sequence[str], first: int) -> Select:
        """Return the statistic of ``BATCH`` candidates from the ``first`` on, as a nested loop over the rows."""
        batch = (f"{CANDIDATE_PLACE} >= {first}", f"{CANDIDATE_PLACE} < {first + BATCH}")
        sums = [As(f"SUM({term.each})", f"v{i}") for i, term in enumerate(self.terms)]
        looped = Select((As(_PLACE, "o"), *sums), Join(CANDIDATE, ROWS), group=_PLACE)
        named: dict[str, Query] = {ROWS: rows, CANDIDATE: replace(candidates, where=batch), "looped": looped}
        source = Join(CANDIDATE, "looped", f"looped.o = {_PLACE}", side="LEFT")
        return self._select(named, source, [f"looped.{item.name}" for item in sums], columns)

    def _select(
        self, named: Mapping[str, Query], source: Source, values: Sequence[str], columns: Sequence[str]
    ) -> Select:
        """Return the SELECT of the statistic, with ``values`` as its terms' aggregates over the source."""
        terms = [f"({t.weight.text}) * COALESCE({v}, 0)" for t, v in zip(self.terms, values, strict=True)]
        if self.form is None or self.form.linear:
            total = " + ".join([self.constant, *terms])
        else:
            total = self._write_form(self.form.root, terms)
        shown = (f"{CANDIDATE}.{c}" for c in columns)
        score = As(f"CAST({total} AS HUGEINT)", CANDIDATE_SCORE)
        return Select((*shown, _PLACE, score), source, order=_PLACE, with_=named)

    def _write_form(self, form: FormNode, terms: Sequence[str]) -> str:
        match form:
            case Linear():
                shown = [*(self.bases[i] for i in form.bases), *(terms[i] for i in form.terms)]
                return f"({' + '.join(shown)})"
            case Total(parts):
                return f"({' + '.join(self._write_form(part, terms) for part in parts)})"
            case Absolute(part):
                return f"ABS({self._write_form(part, terms)})"
            case Extreme(parts, greatest):
                shown = [self._write_form(part, terms) for part in parts]
                return f"{'GREATEST' if greatest else 'LEAST'}({', '.join(shown)})"
            case Multiple(factor, part):
                return f"({self.multiples[factor].text}) * {self._write_form(part, terms)}"


def _write_term(name: str, term: Term) -> dict[str, Query]:
    """Return the queries of a term, by name: the last one, ``name``, has its value ``v`` for each candidate's place."""
    where = term.conditions
    if term.shape == "constant":
        one = Select(As(f"COALESCE(SUM({term.amount}), 0)", "v"), ROWS, where)
        return {name: Select((_PLACE, "one.v"), Join(CANDIDATE, Subquery(one, "one")))}
    if term.shape in ("equality", "several ranges"):
        xs = dict.fromkeys(r.value for r in term.ranges)
        names = {x: "k" if term.shape == "equality" else f"key{i}" for i, x in enumerate(xs)}
        keys = (As(x, alias) for x, alias in names.items())
        total, found = As(f"SUM({term.amount})", "v"), f"{name}_g"
        grouped = Select((*keys, total), ROWS, where, tuple(names.values()))
        met = " AND ".join(f"{found}.{names[r.value]} {r.op} {r.threshold}" for r in term.ranges)
        # Several values of x may equal one key (integers that are one double): GROUP BY keeps one number per candidate.
        looked_up = Select((_PLACE, As(f"SUM({found}.v)", "v")), Join(CANDIDATE, found, met), group=_PLACE)
        return {found: grouped, name: looked_up}
    at, every = f"{name}_at", f"{name}_all"
    if term.shape == "clipped sum":
        assert term.clip is not None
        clip = to_sql(term.clip)
        # The sum of values at most b, and b for each value above it.
        value = As(f"{at}.upto + ({clip}) * ({every}.n - {at}.n_upto)", "v")
        return {
            **_write_running_sums(name, term, term.amount, [clip]),
            every: Select(As(f"COUNT({term.amount})", "n"), ROWS, where),
            name: Select((_PLACE, value), Join(Join(CANDIDATE, at, f"{at}.t = {clip}"), every)),
        }
    x = term.ranges[0].value
    source: Source = CANDIDATE
    for i, r in enumerate(term.ranges):
        source = Join(source, As(at, f"a{i}"), f"a{i}.t = {r.threshold}", side="LEFT")
    sums = {
        r.op[0]: (f"a{i}.{'upto' if r.op in ('<=', '>') else 'under'}", r) for i, r in enumerate(term.ranges)
    }
    if len(sums) == 2:
        (high, upper), (low, lower) = sums["<"], sums[">"]
        present = " AND ".join(f"({r.threshold}) IS NOT NULL" for r in term.ranges)
        # A range whose lower end exceeds the upper one has no rows; a range with equal ends has rows only if it is closed.
        meets = "<=" if (upper.op, lower.op) == ("<=", ">=") else "<"
        ordered = f"{present} AND ({lower.threshold}) {meets} ({upper.threshold})"
        value = As(f"CASE WHEN {ordered} THEN {high} - {low} ELSE 0 END", "v")
    else:
        value = As(sums["<"][0] if "<" in sums else f"{every}.upto - {sums['>'][0]}", "v")
    return {
        **_write_running_sums(name, term, x, [r.threshold for r in term.ranges]),
        every: Select(As(f"COALESCE(SUM({term.amount}), 0)", "upto"), ROWS, (*where, f"({x}) IS NOT NULL")),
        name: Select((_PLACE, value), Join(source, every)),
    }


def _write_running_sums(name: str, term: Term, x: str, thresholds: Sequence[str]) -> dict[str, Query]:
    """Return queries up to ``{name}_at(t, upto, under, n_upto)``: sums over x <= t and x < t for each threshold t.

    A row's bin is that of the greatest threshold that is at most x; rows equal to it are counted separately, to
    distinguish <= from <. One pass over the rows, then k bins.
    """
    ts, xs, bins, sums = (f"{name}_{part}" for part in "txbs")
    each = tuple(Select(As(t, "t"), CANDIDATE, f"({t}) IS NOT NULL") for t in thresholds)
    values = Select(
        (As(x, "x"), As(f"SUM({term.amount})", "v"), As("COUNT(*)", "n")),
        ROWS,
        (*term.conditions, f"({x}) IS NOT NULL"),
        "x",
    )
    edge = As(f"{xs}.x = {ts}.t", "edge")
    binned = Select(
        (As(f"{ts}.t", "t"), edge, As(f"SUM({xs}.v)", "s"), As(f"SUM({xs}.n)", "n")),
        Join(xs, ts, f"{xs}.x >= {ts}.t", side="ASOF LEFT"),
        group=(f"{ts}.t", "edge"),
    )
    sides = [
        As(f"COALESCE(SUM({what}){write_filter(side)}, 0)", prefix + after)
        for what, prefix in (("s", ""), ("n", "n_"))
        for side, after in (("edge", "own"), ("NOT edge", "after"))
    ]
    summed = Select(
        (As(f"{ts}.t", "t"), *sides), Join(ts, bins, f"{bins}.t = {ts}.t", side="LEFT"), group=f"{ts}.t"
    )
    first, first_n = (Select(f"COALESCE(SUM({what}), 0)", bins, "t IS NULL") for what in ("s", "n"))
    before = "OVER (ORDER BY t ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    under = f"({first}) + COALESCE(SUM(own + after) {before}, 0)"
    running = (
        "t",
        As(under, "under"),
        As(f"{under} + own", "upto"),
        As(f"({first_n}) + COALESCE(SUM(n_own + n_after) {before}, 0) + n_own", "n_upto"),
    )
    return {
        ts: Select("t", Subquery(Union(each, distinct=True), "u"), distinct=True),
        xs: values,
        bins: binned,
        sums: summed,
        f"{name}_at": Select(running, sums),
    }


# -- candidates and histograms ----------------------------------------------------------------------------------------


def write_threshold_bins(
    rows: Query, term: Term, x: str = "0", present: str = "", summed: bool = False
) -> Select:
    """Return the number ``n`` of a term's rows, and the sum ``v`` of its amounts if ``summed``, for each value of ``x``.

    Without ``present``, whose NULLs are left out, there is one value.
    """
    columns = (As(x, "x"), As("COUNT(*)", "n"), *([As(f"SUM({term.amount})", "v")] if summed else []))
    named = {ROWS: rows}
    if not present:
        return Select(columns, ROWS, term.conditions, with_=named)
    return Select(columns, ROWS, (*term.conditions, f"({present}) IS NOT NULL"), "x", with_=named)


def write_compared_column(rows: Query, term: Term, x: str) -> Select:
    """Return the ``x`` of each of a term's rows."""
    return Select(As(x, "x"), ROWS, term.conditions, with_={ROWS: rows})


def write_candidates(source: str, columns: Mapping[str, str], every: bool = False) -> Select:
    """Return expressions over a relation of candidates, by name; ``every``: after all of its own columns."""
    items = (As(sql, to_sql(exp.to_identifier(name, quoted=True))) for name, sql in columns.items())
    return Select(("*", *items) if every else tuple(items), As(source, CANDIDATE))


def number_candidates(given: str, once: bool) -> Select:
    """Return a query of the candidates with their places; with ``once``, a repeated candidate has its first place."""
    if not once:
        return Select(("*", As("row_number() OVER () - 1", CANDIDATE_PLACE)), Subquery(given, "given"))
    place = f"{CANDIDATE_PLACE}_given"
    own = f"* EXCLUDE ({place})"
    numbered = Select(("*", As("row_number() OVER ()", place)), Subquery(given, "given"))
    first = Select((own, As(f"MIN({place})", place)), Subquery(numbered, "numbered"), group="ALL")
    return Select(
        (own, As(f"row_number() OVER (ORDER BY {place}) - 1", CANDIDATE_PLACE)), Subquery(first, "once")
    )


def count_candidates(given: str, column: str, most: int) -> Select:
    """Return the query of the number of candidates, and of those above the one before; it counts up to ``most``."""
    limited = Select(As(column, "c"), Subquery(given, "given"), limit=most)
    pairs = Select(("c", As("lag(c) OVER ()", "b")), Subquery(limited, "given"))
    ascents = As(f"COUNT(*){write_filter('c > b')}::BIGINT", "ascents")
    return Select((As("COUNT(*)::BIGINT", "n"), ascents), Subquery(pairs, "given"))


def limit_candidates(given: str, most: int) -> Select:
    """Return the query of the first candidates."""
    return Select("*", Subquery(given, "found"), f"{CANDIDATE_PLACE} < {most}")
