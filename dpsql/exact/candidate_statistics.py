"""The statistics of public candidates over private rows, and the queries that compute them.

One pass over the rows serves all candidates if a term's shape allows it, otherwise a batched nested loop. The candidates are a
public relation with a column of their places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Literal

from sqlglot import exp

from dpsql.language.dialect import to_sql
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_SCORE
from dpsql.mechanisms.queries import CANDIDATE_PLACE
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


# -- candidates and histograms ----------------------------------------------------------------------------------------


def write_threshold_bins(rows: str, term: Term, x: str = "0", present: str = "", summed: bool = True) -> str:
    """Return the number ``n`` of a term's rows, and the sum ``v`` of its amounts if ``summed``, for each value of ``x``.

    Without ``present``, whose NULLs are left out, there is one value.
    """
    added = f", SUM({term.amount}) AS v" if summed and term.amount != "1" else ""
    text = f"WITH rows AS ({rows}) SELECT {x} AS x, COUNT(*) AS n{added} FROM rows WHERE {all_of(term.free)}"
    return f"{text} AND ({present}) IS NOT NULL GROUP BY x" if present else text


def write_compared_column(rows: str, term: Term, x: str) -> str:
    """Return the ``x`` of each of a term's rows."""
    return f"WITH rows AS ({rows}) SELECT {x} AS x FROM rows WHERE {all_of(term.free)}"


def write_candidates(source: str, columns: Mapping[str, str]) -> str:
    """Return expressions over a relation of candidates, by name."""
    items = [f"{sql} AS {to_sql(exp.to_identifier(name, quoted=True))}" for name, sql in columns.items()]
    return f"SELECT {', '.join(items)} FROM {source} AS {CANDIDATE}"


def extend_candidates(source: str, columns: Mapping[str, str]) -> str:
    """Return a relation of candidates with further columns."""
    more = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    return f"(SELECT *, {more} FROM {source} AS {CANDIDATE})" if columns else source


def number_candidates(given: str, once: bool) -> str:
    """Return a query of the candidates with their places; with ``once``, a repeated candidate has its first place."""
    if not once:
        return f"SELECT *, row_number() OVER () - 1 AS {CANDIDATE_PLACE} FROM ({given}) AS given"
    place = f"{CANDIDATE_PLACE}_given"
    numbered = f"SELECT *, row_number() OVER () AS {place} FROM ({given}) AS given"
    first = f"SELECT * EXCLUDE ({place}), MIN({place}) AS {place} FROM ({numbered}) AS numbered GROUP BY ALL"
    return f"SELECT * EXCLUDE ({place}), row_number() OVER (ORDER BY {place}) - 1 AS {CANDIDATE_PLACE} FROM ({first}) AS once"


def count_candidates(given: str, column: str, most: int) -> str:
    """Return the query of the number of candidates, and of those above the one before; it counts up to ``most``."""
    limited = f"SELECT {column} AS c FROM ({given}) AS given LIMIT {most}"
    pairs = f"SELECT c, lag(c) OVER () AS b FROM ({limited}) AS given"
    return f"SELECT COUNT(*)::BIGINT AS n, COUNT(*) FILTER (WHERE c > b)::BIGINT AS ascents FROM ({pairs}) AS given"


def limit_candidates(given: str, most: int) -> str:
    """Return the query of the first candidates."""
    return f"SELECT * FROM ({given}) AS found WHERE {CANDIDATE_PLACE} < {most}"
