"""The queries of a sweep: histograms of the private rows, and the candidates beside them (mechanisms/sweep.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from dpsql.mechanisms.sweep import BASE, Sweep, Swept
from dpsql.sql.candidates import ORD, Term
from dpsql.sql.dialect import expression_of
from dpsql.sql.statistic import Bare, Statistic
from dpsql.sql.types import Type

NUMBERS = {"INTEGER", "DOUBLE", "NULL"}
_UNLIKE = ("FLOAT", "UBIGINT", "HUGEINT", "UHUGEINT")
"""Types that Arrow has no integer or double of 64 bits for."""


def sweep_of(
    rows: str, source: str, columns: Sequence[str], alias: str, statistic: Statistic,
    types: Mapping[tuple[str, str], Type],
) -> Sweep | None:  # fmt: skip
    """The sweep of a statistic in a one-pass shape, or None where values are not compared as numbers or dates.

    ``types`` says the type of each column that the terms name, by relation and name.
    """
    histograms: dict[str, int] = {}
    shown = [
        *(f"{alias}.{c}" for c in columns),
        f"{alias}.{ORD}",
        f"CAST({statistic.constant} AS HUGEINT) AS {BASE}",
    ]
    swept = []
    for i, (term, bare) in enumerate(zip(statistic.terms, statistic.bare, strict=True)):
        if term.shape == "nested loop" or not _compared(term, types):
            return None
        query = _histogram(rows, term, bare)
        place = histograms.setdefault(query, len(histograms))
        shown.append(f"{term.factor} AS f{i}")
        ends = (
            [("=", term.equal[1])] if term.equal is not None else [(r.op, r.threshold) for r in term.ranges]
        )
        shown += [f"{threshold} AS b{i}_{j}" for j, (_, threshold) in enumerate(ends)]
        if term.clip is not None:
            shown.append(f"{term.clip} AS c{i}")
        bounds = tuple((op, f"b{i}_{j}") for j, (op, _) in enumerate(ends))
        swept.append(Swept(place, f"f{i}", bounds, f"c{i}" if term.clip is not None else None))
    candidates = f"SELECT {', '.join(shown)} FROM {source} AS {alias}"
    return Sweep(candidates, tuple(histograms), tuple(swept))


def _histogram(rows: str, term: Term, bare: Bare | None) -> str:
    where = " AND ".join(f"({c})" for c in term.free) or "TRUE"
    head = f"WITH rows AS ({rows}) SELECT"
    added = "" if term.amount == "1" else f", SUM({term.amount}) AS v"
    if term.shape == "constant":
        return f"{head} 0 AS x, COUNT(*) AS n{added} FROM rows WHERE {where}"
    if bare is not None:  # DuckDB knows more of the range of this than of the amount, which passes NULL on
        x = f"GREATEST({bare.value}, {bare.low})"
        return f"{head} {x} AS x, COUNT(*) AS n FROM rows WHERE {where} AND ({bare.value}) IS NOT NULL GROUP BY 1"
    else:
        x = term.equal[0] if term.equal is not None else term.ranges[0].value
    return f"{head} {x} AS x, COUNT(*) AS n{added} FROM rows WHERE {where} AND ({x}) IS NOT NULL GROUP BY 1"


def _compared(term: Term, types: Mapping[tuple[str, str], Type]) -> bool:
    """Whether both sides of every comparison are integers or doubles, or all are dates."""
    sides = [r.value for r in term.ranges] + [r.threshold for r in term.ranges] + [*(term.equal or ())]
    if not sides:
        return True
    known = []
    for side in sides:
        node = expression_of(side)
        known += [types.get((c.table, c.name)) for c in node.find_all(exp.Column)]
        if any(not literal.is_string and not literal.is_int for literal in node.find_all(exp.Literal)):
            return False  # a decimal: compared as one
    kinds = {"OTHER" if t is None or t.sql in _UNLIKE else t.kind for t in known}
    return kinds <= NUMBERS or kinds == {"DATE"}
