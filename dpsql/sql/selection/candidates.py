"""One statistic per candidate: in one pass over the data where its shape is known, else in a batched nested loop.

A statistic is a sum of terms, each a public factor of the candidate times an exact aggregate. An aggregate's condition
or argument may name the candidate's columns in one of these shapes, and then all candidates share one scan:

    equality      x = c.k                              group by x, look the candidate's key up
    one-sided     x >= c.v   (or >, <, <=)             rows fall into the bins between thresholds; running sums
    two-sided     x BETWEEN c.lo AND c.hi              the difference of two running sums
    clipped sum   SUM(LEAST(x, c.b))                   the sum below b, plus b times the count above

each together with any condition that does not name the candidate. What does not name it at all is one number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from dpsql.mechanisms.fast.candidate_scores import ORD, SCORE
from dpsql.sql.parse.dialect import to_sql
from dpsql.sql.relations.limits import split_conjuncts

Shape = Literal["constant", "equality", "one-sided", "two-sided", "clipped sum", "nested loop"]
BATCH = 64
"""Candidates per query of a nested loop."""

_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GTE: exp.LTE,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.LT: exp.GT,
    exp.EQ: exp.EQ,
}


@dataclass(frozen=True)
class Range:
    """``x op threshold``: the private side's SQL and the candidate's, with the operator's direction."""

    value: str
    op: str
    threshold: str


@dataclass(frozen=True)
class Term:
    """``factor * aggregate``: an aggregate of integers, over rows where a condition holds.

    ``amount`` is the grid integer to add ("1" counts rows); ``free`` the conditions without the candidate. ``clip`` is
    set when the amount is ``LEAST(amount, clip)``, in grid steps of the candidate. ``amount_c`` and ``condition`` are
    the whole as it stands, for a nested loop.
    """

    factor: str
    amount: str
    free: tuple[str, ...]
    equal: tuple[str, str] | None
    ranges: tuple[Range, ...]
    clip: str | None
    condition: str | None
    nested: str
    shape: Shape


def classify(condition: exp.Expr | None, candidate: str) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """The conjuncts of a condition without the candidate's columns, and those with."""
    free: list[exp.Expr] = []
    bound: list[exp.Expr] = []
    for part in split_conjuncts(condition):
        (bound if names_candidate(part, candidate) else free).append(part)
    return free, bound


def names_candidate(node: exp.Expr, candidate: str) -> bool:
    return any(column.table == candidate for column in node.find_all(exp.Column))


def only_candidate(node: exp.Expr, candidate: str) -> bool:
    return all(column.table == candidate for column in node.find_all(exp.Column))


def comparison(part: exp.Expr, candidate: str) -> tuple[exp.Expr, type[exp.Expr], exp.Expr] | None:
    """``(private side, operator, candidate's side)`` of a comparison that keeps the two apart."""
    if isinstance(part, exp.Paren):
        return comparison(part.this, candidate)
    if type(part) not in _FLIPPED:
        return None
    left, right = part.this, part.expression
    if not names_candidate(left, candidate) and only_candidate(right, candidate):
        return left, type(part), right
    if not names_candidate(right, candidate) and only_candidate(left, candidate):
        return right, _FLIPPED[type(part)], left
    return None


_OPS = {exp.GTE: ">=", exp.GT: ">", exp.LTE: "<=", exp.LT: "<"}


def shape_of(
    factor: str, amount: exp.Expr | None, clip: exp.Expr | None, condition: exp.Expr | None,
    candidate: str,
) -> Term:  # fmt: skip
    """The cheapest way to compute a term for all candidates.

    ``amount`` is the grid integer added (None counts rows), with its clip taken off where it has one.
    """
    free, bound = classify(condition, candidate)
    flat: list[exp.Expr] = []
    for part in bound:
        inner = part.this if isinstance(part, exp.Paren) else part
        if isinstance(inner, exp.Between):
            flat.append(exp.GTE(this=inner.this.copy(), expression=inner.args["low"].copy()))
            flat.append(exp.LTE(this=inner.this.copy(), expression=inner.args["high"].copy()))
        else:
            flat.append(inner)
    split = [comparison(part, candidate) for part in flat]
    text = to_sql(amount) if amount is not None else "1"
    # LEAST passes over a NULL, and would make it the clip.
    held = text if clip is None else f"CASE WHEN ({text}) IS NOT NULL THEN LEAST({text}, {to_sql(clip)}) END"
    whole = to_sql(condition) if condition is not None else None
    common = (factor, text, tuple(to_sql(part) for part in free))
    nested = (whole, held)
    if (amount is not None and names_candidate(amount, candidate)) or None in split:
        return Term(*common, None, (), None if clip is None else to_sql(clip), *nested, "nested loop")
    known = [item for item in split if item is not None]
    equal = [item for item in known if item[1] is exp.EQ]
    ranges = tuple(Range(to_sql(x), _OPS[op], to_sql(c)) for x, op, c in known if op in _OPS)
    if clip is not None:
        if known:
            return Term(*common, None, (), to_sql(clip), *nested, "nested loop")
        return Term(*common, None, (), to_sql(clip), *nested, "clipped sum")
    if not known:
        return Term(*common, None, (), None, *nested, "constant")
    if len(equal) == 1 and not ranges:
        return Term(*common, (to_sql(equal[0][0]), to_sql(equal[0][2])), (), None, *nested, "equality")
    if not equal and len(ranges) == 1:
        return Term(*common, None, ranges, None, *nested, "one-sided")
    if not equal and len(ranges) == 2 and ranges[0].value == ranges[1].value and _faces(ranges):
        return Term(*common, None, ranges, None, *nested, "two-sided")
    return Term(*common, None, (), None, *nested, "nested loop")


def _faces(ranges: tuple[Range, ...]) -> bool:
    return {r.op[0] for r in ranges} == {"<", ">"}


# -- writing ----------------------------------------------------------------------------------------------------


def statistic_sql(
    rows: str, candidates: str, columns: tuple[str, ...], alias: str, terms: list[Term], constant: str
) -> str:
    """One query: the candidates' columns, their order, and the statistic as an integer :data:`SCORE`.

    ``rows`` is a query of the bounded private rows, under whose columns the terms are written; ``candidates`` the lent
    relation; ``alias`` the name that the terms use for it.
    """
    parts = [f"rows AS ({rows})", f"{alias} AS (SELECT * FROM {candidates})"]
    for i, term in enumerate(terms):
        parts += _term_ctes(f"t{i}", term, alias)
    joins = " ".join(f"LEFT JOIN t{i} ON t{i}.{ORD} = {alias}.{ORD}" for i in range(len(terms)))
    total = " + ".join([constant, *(f"({t.factor}) * COALESCE(t{i}.v, 0)" for i, t in enumerate(terms))])
    shown = ", ".join(
        [*(f"{alias}.{c}" for c in columns), f"{alias}.{ORD}", f"CAST({total} AS HUGEINT) AS {SCORE}"]
    )
    return f"WITH {', '.join(parts)} SELECT {shown} FROM {alias} {joins} ORDER BY {alias}.{ORD}"


def nested_sql(
    rows: str,
    candidates: str,
    columns: tuple[str, ...],
    alias: str,
    terms: list[Term],
    constant: str,
    first: int,
) -> str:
    """The statistic of ``BATCH`` candidates from the ``first`` on, as a nested loop over the rows."""
    inside = f"{alias} AS (SELECT * FROM {candidates} WHERE {ORD} >= {first} AND {ORD} < {first + BATCH})"
    sums = ", ".join(
        f"SUM(CASE WHEN {_all((*t.free, *((t.condition,) if t.condition and t.shape != 'constant' else ())))} "
        f"THEN {t.nested} ELSE 0 END) AS v{i}"
        for i, t in enumerate(terms)
    )
    looped = f"SELECT {alias}.{ORD} AS o, {sums} FROM {alias} CROSS JOIN rows GROUP BY {alias}.{ORD}"
    total = " + ".join([constant, *(f"({t.factor}) * COALESCE(looped.v{i}, 0)" for i, t in enumerate(terms))])
    shown = ", ".join(
        [*(f"{alias}.{c}" for c in columns), f"{alias}.{ORD}", f"CAST({total} AS HUGEINT) AS {SCORE}"]
    )
    return (
        f"WITH rows AS ({rows}), {inside}, looped AS ({looped}) "
        f"SELECT {shown} FROM {alias} LEFT JOIN looped ON looped.o = {alias}.{ORD} ORDER BY {alias}.{ORD}"
    )


def _all(conditions: tuple[str, ...]) -> str:
    return " AND ".join(f"({c})" for c in conditions) or "TRUE"


def _term_ctes(name: str, term: Term, alias: str) -> list[str]:
    where = _all(term.free)
    if term.shape == "constant":
        one = f"SELECT COALESCE(SUM({term.amount}), 0) AS v FROM rows WHERE {where}"
        return [f"{name} AS (SELECT {alias}.{ORD}, one.v FROM {alias} CROSS JOIN ({one}) AS one)"]
    if term.equal is not None:
        x, key = term.equal
        grouped = f"SELECT {x} AS k, SUM({term.amount}) AS v FROM rows WHERE {where} GROUP BY k"
        # Two values of x may be equal to one key (integers that are one double): still one number for each candidate.
        met = (
            f"SELECT {alias}.{ORD}, SUM({name}_g.v) AS v FROM {alias} JOIN {name}_g ON {name}_g.k = {key} "
            f"GROUP BY {alias}.{ORD}"
        )
        return [f"{name}_g AS ({grouped})", f"{name} AS ({met})"]
    if term.shape == "clipped sum":
        assert term.clip is not None
        below = _running(name, term.amount, where, [term.clip], alias, term.amount)
        at = f"{name}_at"
        # The sum of what is at most b, and b for each value above it.
        value = f"{at}.upto + ({term.clip}) * ({name}_all.n - {at}.n_upto)"
        whole = f"SELECT COUNT({term.amount}) AS n FROM rows WHERE {where}"
        return [
            *below,
            f"{name}_all AS ({whole})",
            f"{name} AS (SELECT {alias}.{ORD}, {value} AS v FROM {alias} "
            f"JOIN {at} ON {at}.t = {term.clip} CROSS JOIN {name}_all)",
        ]
    thresholds = [r.threshold for r in term.ranges]
    parts = _running(name, term.ranges[0].value, where, thresholds, alias, term.amount)
    at, x = f"{name}_at", term.ranges[0].value
    parts.append(
        f"{name}_all AS (SELECT COALESCE(SUM({term.amount}), 0) AS upto FROM rows WHERE {where} AND ({x}) IS NOT NULL)"
    )
    joins, pieces = "", []
    for i, r in enumerate(term.ranges):
        joins += f" LEFT JOIN {at} AS a{i} ON a{i}.t = {r.threshold}"
        pieces.append((r.op, f"a{i}"))
    if len(pieces) == 1:
        op, a = pieces[0]
        value = {"<=": f"{a}.upto", "<": f"{a}.under", ">": f"{name}_all.upto - {a}.upto",
                 ">=": f"{name}_all.upto - {a}.under"}[op]  # fmt: skip
    else:
        upper = next((op, a) for op, a in pieces if op[0] == "<")
        lower = next((op, a) for op, a in pieces if op[0] == ">")
        high = f"{upper[1]}.upto" if upper[0] == "<=" else f"{upper[1]}.under"
        low = f"{lower[1]}.upto" if lower[0] == ">" else f"{lower[1]}.under"
        order = " AND ".join(f"({r.threshold}) IS NOT NULL" for r in term.ranges)
        first, second = (next(r.threshold for r in term.ranges if r.op[0] == o) for o in "<>")
        # An empty range holds nothing, however its ends are ordered; where the ends meet, only a closed range holds any.
        meets = "<=" if {r.op for r in term.ranges} == {"<=", ">="} else "<"
        value = f"CASE WHEN {order} AND ({second}) {meets} ({first}) THEN {high} - {low} ELSE 0 END"
    parts.append(f"{name} AS (SELECT {alias}.{ORD}, {value} AS v FROM {alias}{joins} CROSS JOIN {name}_all)")
    return parts


def _running(name: str, x: str, where: str, thresholds: list[str], alias: str, amount: str) -> list[str]:
    """CTEs up to ``{name}_at(t, upto, under, n_upto)``: sums over x <= t and x < t for each threshold t.

    Rows fall into the bin of the greatest threshold that is at most x; those equal to it are kept apart, which is what
    tells <= from <. One pass over the rows, then k bins.
    """
    union = " UNION ".join(f"SELECT {t} AS t FROM {alias} WHERE ({t}) IS NOT NULL" for t in thresholds)
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
