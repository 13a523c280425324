"""The odd cases of a private choice through a session, and the whole way from SQL to an exact loss on tiny tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_SCORE, CANDIDATE_SENSITIVITY, CANDIDATE_THRESHOLD
from dpsql.mechanisms.selection.above_threshold import AboveThreshold
from dpsql.mechanisms.selection.exponential import ExponentialChoice
from dpsql.mechanisms.selection.utilities import SCORE_SENSITIVITY, compute_generalised_scores
from dpsql.numerics.exact_numbers import to_integers
from tests.support import inside
from tests.support.selection_laws import em, laplace, pf
from tests.support.svt_law import paths, probability, refreshed

POLICY = """
budget = { epsilon = 1e9, delta = 0.5, accountant = "basic", default_epsilon = 1e5 }
[tables]
t = { privacy_unit = "ROW", columns = { x = { bounds = [0, 3] }, w = { bounds = [-2, 2] } } }
c = { public = true }
none = { public = true }
"""
ROWS = [(None, None), (0, -2), (1, 1), (2, 2), (2, 2), (3, -1)]


@pytest.fixture
def session() -> Iterator[dpsql.Session]:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (x INTEGER, w INTEGER)")
        con.executemany("INSERT INTO t VALUES (?, ?)", ROWS)
        con.execute("CREATE TABLE none (k INTEGER)")
        values = "(0, 1.5::DOUBLE), (2, 'nan'::DOUBLE), (NULL, 'inf'::DOUBLE), (2, NULL), (3, -2.0)"
        con.execute(f"CREATE TABLE c AS FROM (VALUES {values}) AS v(k, g)")
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
            session.con = con  # type: ignore[attr-defined]
            yield session


def spent(session: dpsql.Session) -> float:
    return float(session.sql("SHOW BUDGET").dicts()[0]["spent_epsilon"])


EQUAL = "COUNT(*) FILTER (WHERE x = k)"
ODD: list[tuple[str, list[dict[str, Any]]]] = [
    # ties: both are as good, either may win; of two winners, both
    (f"SELECT k, EXPMECH({EQUAL}, top => 2) OVER c FROM t", [{"k": 2}, {"k": 2}]),
    # NULL keys meet nothing
    (f"SELECT k, EXPMECH({EQUAL}, top => 5, answer => TRUE) OVER c FROM t ORDER BY k, answer",
     [{"k": 0, "answer": 1}, {"k": 2, "answer": 2}, {"k": 2, "answer": 2}, {"k": 3, "answer": 1}, {"k": None, "answer": 0}]),
    ("SELECT k, ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE x IS NOT DISTINCT FROM k), 0.5, max_hits => 9, answer => TRUE) "
     "OVER c FROM t",
     [{"k": 0, "answer": 1}, {"k": 2, "answer": 2}, {"k": None, "answer": 1}, {"k": 2, "answer": 2}, {"k": 3, "answer": 1}]),
    # one candidate always wins, and may be above or not
    (f"WITH one(k) AS (VALUES (7)) SELECT k, EXPMECH({EQUAL}, answer => TRUE) OVER one FROM t", [{"k": 7, "answer": 0}]),
    (f"WITH one(k) AS (VALUES (2)) SELECT k, ABOVE_THRESHOLD({EQUAL}, 1.5) OVER one FROM t", [{"k": 2}]),
    (f"WITH one(k) AS (VALUES (7)) SELECT k, ABOVE_THRESHOLD({EQUAL}, 1.5) OVER one FROM t", []),
    # a candidate that is NULL, NaN or infinite as a factor counts for nothing
    ("SELECT g, EXPMECH(g * COUNT(*), answer => TRUE) OVER c FROM t", [{"g": 1.5, "answer": 9.0}]),
    ("SELECT k, EXPMECH(-g * COUNT(*), answer => TRUE) OVER c FROM t", [{"k": 3, "answer": 12.0}]),
    # and as a bound of a sum it clips nothing
    ("WITH b(v) AS (VALUES (CAST('inf' AS DOUBLE)), ('nan'), (NULL), (1e300)) "
     "SELECT ABOVE_THRESHOLD(SUM(LEAST(x, v)), 7.5, max_hits => 4) OVER b FROM t", 4),
    ("WITH b(v) AS (VALUES (-1), (1)) SELECT v, EXPMECH(-SUM(LEAST(x, v)), answer => TRUE) OVER b FROM t",
     [{"v": -1, "answer": 5}]),
    # thresholds: one for each candidate, on fine grids, never for one without
    ("SELECT k, ABOVE_THRESHOLD(g * COUNT(*), g * 5, max_hits => 9) OVER c FROM t", [{"k": 0}]),
    ("SELECT k, ABOVE_THRESHOLD(COUNT(*), g, max_hits => 9) OVER c FROM t", [{"k": 0}, {"k": 3}]),
    ("SELECT k, ABOVE_THRESHOLD(SUM(w) / 4, 0.4 + 0.1 * k, max_hits => 9) OVER c FROM t", [{"k": 0}]),
    # duplicates are asked each, in their order
    (f"SELECT k, ABOVE_THRESHOLD({EQUAL}, 1.5, max_hits => 9) OVER c FROM t", [{"k": 2}, {"k": 2}]),
    # nothing in the table
    ("SELECT k, EXPMECH(COUNT(*), answer => TRUE, top => 5) OVER c FROM t WHERE x > 3 ORDER BY k LIMIT 1",
     [{"k": 0, "answer": 0}]),
    ("SELECT k, ABOVE_THRESHOLD(SUM(w), 0.5) OVER c FROM t WHERE x > 3", []),
    # without candidates
    ("SELECT ABOVE_THRESHOLD(COUNT(*), 5.5) AS a FROM t", [{"a": True}]),
    ("SELECT ABOVE_THRESHOLD(COUNT(*), 6.5) AS a FROM t", [{"a": False}]),
    ("SELECT ABOVE_THRESHOLD(SUM(w), 1.5) AS a FROM t WHERE x IS NULL", [{"a": False}]),
    ("SELECT ABOVE_THRESHOLD(SUM(w) - 2 * COUNT(*), -10.5) AS a FROM t", [{"a": True}]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), ODD, ids=lambda v: str(v)[:60])
def test_odd_cases(session: dpsql.Session, text: str, wanted: Any) -> None:
    # an answer on a fine grid keeps a little noise
    found = [
        {name: round(v, 2) if isinstance(v, float) else v for name, v in row.items()}
        for row in session.sql(text).dicts()
    ]
    assert len(found) == wanted if isinstance(wanted, int) else found == wanted


REFUSED = [
    ("SELECT EXPMECH(COUNT(*)) OVER t FROM t", "private"),
    ("WITH p AS (SELECT x FROM t) SELECT EXPMECH(COUNT(*)) OVER p FROM t", "private"),
    ("WITH p AS (SELECT k FROM c WHERE k IN (SELECT x FROM t)) SELECT EXPMECH(COUNT(*)) OVER p FROM t", None),
    ("SELECT EXPMECH(COUNT(*)) OVER none FROM t", "no candidates"),
    ("SELECT ABOVE_THRESHOLD(COUNT(*), 3) OVER none FROM t", "no candidates"),
    ("SELECT EXPMECH(COUNT(*)) FROM t", "among candidates"),
    ("SELECT EXPMECH(COUNT(*), top => 6) OVER c FROM t", "only 5"),
    ("SELECT EXPMECH(COUNT(*), top => 0) OVER c FROM t", None),
    ("SELECT EXPMECH(COUNT(*), method => 'laplace') OVER c FROM t", None),
    ("SELECT EXPMECH(x) OVER c FROM t", None),
    ("SELECT EXPMECH(k) OVER c FROM t", "does not read private rows"),
    ("SELECT EXPMECH(COUNT(*) * COUNT(*)) OVER c FROM t", "sensitivity"),
    ("SELECT ABOVE_THRESHOLD(COUNT(*)) OVER c FROM t", "takes 2 arguments"),
    ("SELECT ABOVE_THRESHOLD(COUNT(*), x) OVER c FROM t", "public"),
    ("SELECT ABOVE_THRESHOLD(COUNT(*), COUNT(*)) OVER c FROM t", None),
    ("SELECT ABOVE_THRESHOLD(COUNT(*), (SELECT MAX(x) FROM t)) OVER c FROM t", None),
    ("SELECT ABOVE_THRESHOLD(COUNT(*), 3, answer => TRUE) FROM t", "TRUE or FALSE"),
    ("SELECT ABOVE_THRESHOLD(COUNT(*), 3, max_hits => 0) OVER c FROM t", None),
    ("SELECT ABOVE_THRESHOLD(COUNT(*), 3, epsilon = 1) OVER c FROM t", None),
    ("SELECT k, x, ABOVE_THRESHOLD(COUNT(*), 3) OVER c FROM t", "not a column of the candidates"),
    ("SELECT COUNT(*), ABOVE_THRESHOLD(COUNT(*), 3) OVER c FROM t", "releases nothing else"),
    ("SELECT k, ABOVE_THRESHOLD(COUNT(*), 3) OVER c FROM t GROUP BY k", "GROUP"),
]


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_refused_before_it_is_charged(session: dpsql.Session, text: str, said: str | None) -> None:
    with pytest.raises(dpsql.Error, match=said):
        session.sql(text)
    assert spent(session) == 0


@pytest.mark.parametrize("monotone", [True, False])
def test_explain_states_the_bounds_of_the_theorem(session: dpsql.Session, monotone: bool) -> None:
    """Corollary 3.12 with the numbers of this call: 2 D ln(|R| / beta) / epsilon, and half of it where one direction is known."""
    utility = EQUAL if monotone else "COUNT(*) FILTER (WHERE x = k) - COUNT(*) FILTER (WHERE x < k)"
    said = str(session.explain(f"SELECT k, EXPMECH({utility}, epsilon => 2) OVER c FROM t"))
    behind = 2 * math.log(5 / 0.05) / 2 / (2 if monotone else 1)
    assert f"probability at least 0.95 the winner is within {behind:.4g} of the best" in said
    assert ("half the noise" in said) is monotone


# -- from SQL to losses ------------------------------------------------------------------------------------------------

DOMAIN = [(0, -2), (1, 2), (2, 1), (None, None)]
CANDIDATES = "WITH v(k, lo) AS (VALUES (0, 0), (1, 2), (2, -1)) "
STATISTICS = [
    EQUAL, "COUNT(*) FILTER (WHERE x >= k)", "SUM(w)", "SUM(LEAST(x, k))", "SUM(w) FILTER (WHERE x <> k) - COUNT(*)",
    "(k - 1) * COUNT(*) FILTER (WHERE x > 0)", "-ABS(COUNT(*) FILTER (WHERE x >= k) - COUNT(*) FILTER (WHERE x < k))",
    "GREATEST(COUNT(*) FILTER (WHERE x = k), SUM(w)) - 0.5 * ABS(COUNT(*) - k)",
]  # fmt: skip
CALLS = [
    "EXPMECH({}, epsilon => 1, method => 'exponential')",
    "EXPMECH({}, epsilon => 1, method => 'permute_and_flip')",
    "EXPMECH({}, epsilon => 1, method => 'noisy_max')",
    "ABOVE_THRESHOLD({}, 1, epsilon => 1)",
    "ABOVE_THRESHOLD({}, lo, epsilon => 1, max_hits => 2)",
    "ABOVE_THRESHOLD({}, 1, epsilon => 1, max_hits => 2, refresh => TRUE)",
]


class Law:
    """The exact law of a statement's choice on any table."""

    def __init__(self, session: dpsql.Session, text: str) -> None:
        self.con: duckdb.DuckDBPyConnection = session.con  # type: ignore[attr-defined]
        block = inside.bind(session, text).blocks[-1]
        for item in block.inputs:
            self.con.execute(f"CREATE OR REPLACE TEMP TABLE {item.name} AS {item.sql}")
        assert isinstance(block.operator, AboveThreshold | ExponentialChoice)
        self.operator: AboveThreshold | ExponentialChoice = block.operator

    def __call__(self, rows: tuple[tuple[int | None, int | None], ...]) -> list[float]:
        self.con.execute("DELETE FROM t")
        if rows:
            listed = ", ".join(f"({x}, {w})" for x, w in rows).replace("None", "NULL")
            self.con.execute(f"INSERT INTO t VALUES {listed}")
        table = sorted(
            (row for sql in self.operator.batches for row in self.con.sql(sql).to_arrow_table().to_pylist()),
            key=lambda row: int(row["dpsql_ord"]),
        )
        scores = [int(row[CANDIDATE_SCORE]) for row in table]
        op = self.operator
        if isinstance(op, AboveThreshold):
            n = op.noise
            levels = [
                op.threshold if op.threshold is not None else int(row[CANDIDATE_THRESHOLD]) for row in table
            ]
            over = tuple(s - level - n.centre for s, level in zip(scores, levels, strict=True))
            a, b = (Fraction(math.exp(-r)) for r in (n.threshold_rate, n.query_rate))
            law = refreshed if n.refresh else probability
            return [float(law(a, b, over, answers)) for answers in paths(len(over), n.max_hits)]
        factor, sensitivity = 1 if op.monotone else 2, op.sensitivity
        if op.varying:
            own = to_integers([int(row[CANDIDATE_SENSITIVITY]) for row in table])
            scores = [
                int(s) for s in compute_generalised_scores(to_integers(scores), own, op._margin(len(scores)))
            ]
            factor, sensitivity = 2, SCORE_SENSITIVITY
        rate = float(op.epsilon) / factor / sensitivity
        if op.method == "noisy_max":
            return laplace(scores, 1 / rate) if not op.varying else []
        weights = [math.exp(rate * (s - max(scores))) for s in scores]
        return [float(p) for p in (em if op.method == "exponential" else pf)(weights)]  # type: ignore[arg-type]


def largest_loss(law: Law, size: int) -> float:
    known = {
        rows: law(rows)
        for n in range(size + 1)
        for rows in itertools.combinations_with_replacement(DOMAIN, n)
    }
    most = 0.0
    for rows, p in known.items():
        for i in range(len(rows)):
            q = known[rows[:i] + rows[i + 1 :]]
            most = max([most, *(abs(math.log(x / y)) for x, y in zip(p, q, strict=True))])
    return most


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.stochastic)])
@pytest.mark.parametrize("call", CALLS)
def test_no_statement_loses_more_than_its_epsilon(session: dpsql.Session, call: str, size: int) -> None:
    """Over every tiny table and every row taken out of it, whatever is chosen."""
    most = 0.0
    for statistic in STATISTICS if size > 2 else STATISTICS[len(call) % 2 :: 2]:
        law = Law(session, f"{CANDIDATES} SELECT {call.format(statistic)} OVER v FROM t")
        lost = largest_loss(law, size)
        assert lost <= 1 + 1e-9, statistic
        most = max(most, lost)
    assert most > 0.3


@pytest.mark.parametrize("call", CALLS)
def test_half_the_sensitivity_loses_more(session: dpsql.Session, call: str) -> None:
    """The control: the same statements with half of the sensitivity that was derived, or a direction that there is not."""
    law = Law(
        session, f"{CANDIDATES} SELECT {call.format('SUM(w) FILTER (WHERE x <> k) - COUNT(*)')} OVER v FROM t"
    )
    op = law.operator
    assert largest_loss(law, 3) <= 1 + 1e-9
    if isinstance(op, AboveThreshold):
        law.operator = replace(op, noise=replace(op.noise, sensitivity=1, monotone=True))
    else:
        law.operator = replace(op, sensitivity=1, monotone=True)
    assert largest_loss(law, 3) > 1
