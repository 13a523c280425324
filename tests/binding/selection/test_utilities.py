"""Utilities of ABS, GREATEST and LEAST: what is derived is a bound that is reached, and scores are DuckDB's own."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.binding.modes import utility
from dpsql.lock.tree import Unproved
from dpsql.mechanisms.base import Reader, ScoresClaim
from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_SCORE
from dpsql.mechanisms.selection.above_threshold import Probe
from dpsql.mechanisms.selection.exponential import ExponentialChoice
from dpsql.mechanisms.selection.utilities import UtilityForm
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import Integers
from tests.support import inside

POLICY = """
budget = { epsilon = 1e9, delta = 0.5, accountant = "basic", default_epsilon = 1e6, default_delta = 1e-6 }
[tables]
t = { privacy_unit = "ROW", columns = { x = { bounds = [-2, 5] }, y = { bounds = [0, 3] }, w = { bounds = [-3, 2] } } }
c = { public = true }
"""
DOMAIN = [
    (-2, 0, -3, "a"),
    (1, 3, 2, "b"),
    (1, 3, -3, "a"),
    (5, 3, 2, "a"),
    (3, 1, 0, "b"),
    (None, None, None, None),
]
CANDIDATES = [(0, 1, 0, 4, 2), (1, 3, 1, 2, -1), (2, 2, 4, 1, 0)]

LEFT, RIGHT = "COUNT(*) FILTER (WHERE x < k)", "COUNT(*) FILTER (WHERE x >= k)"
BOTH = "ABS(COUNT_IF(x {0} k AND g = 'a') - COUNT_IF(x {0} k AND g = 'b'))"
IN, OUT = "COUNT(*) FILTER (WHERE x BETWEEN lo AND hi AND y > 0)", "COUNT(*) FILTER (WHERE x > hi AND y <= k)"

OTHER_ENDS = "SUM(LEAST(y, hi), contribution_bounds_per_row => (0, 1)) - SUM(LEAST(y, hi + 1))"
"""Clips of one base that are held to other ends: nothing is known of them together, so the bound is not reached."""

UTILITIES: dict[str, tuple[float, bool]] = {
    f"{LEFT} - {RIGHT}": (1, False),
    f"{LEFT} + {RIGHT}": (1, True),
    f"-ABS({LEFT} - {RIGHT})": (1, False),
    f"ABS({LEFT} + {RIGHT})": (1, False),
    f"-({BOTH.format('<')} + {BOTH.format('>=')})": (1, False),
    f"GREATEST({LEFT}, {RIGHT})": (1, True),
    f"LEAST({LEFT}, {RIGHT}, 2)": (1, True),
    f"GREATEST({LEFT}, -{RIGHT})": (1, False),
    "LEAST(SUM(y), COUNT(*))": (3, True),
    "ABS(SUM(w) - 1)": (3, False),
    "-2 * ABS(SUM(w) - k)": (6, False),
    "b * GREATEST(SUM(y), 1)": (6, False),
    "0.5 * ABS(COUNT(*) - k)": (0.5, False),
    f"{IN} + {OUT}": (1, True),
    f"-ABS({IN} - {OUT})": (1, False),
    f"{LEFT} - ABS(SUM(w) FILTER (WHERE x >= k))": (3, False),
    "ABS(SUM(LEAST(y, hi)) - SUM(LEAST(y, hi + 1)))": (1, False),
    "COUNT(*) FILTER (WHERE g = 'a') + COUNT(*) FILTER (WHERE g = 'b')": (1, True),
    f"{LEFT} - {RIGHT} + hi - 1": (1, False),
    "LEAST(COUNT(*), -b)": (1, True),
    OTHER_ENDS: (3, False),
}


@pytest.fixture(scope="module")
def session() -> Iterator[dpsql.Session]:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (x INTEGER, y INTEGER, w INTEGER, g VARCHAR)")
        con.execute("CREATE TABLE c (id INTEGER, k INTEGER, lo INTEGER, hi INTEGER, b INTEGER)")
        con.executemany("INSERT INTO c VALUES (?, ?, ?, ?, ?)", CANDIDATES)
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
            session.con = con  # type: ignore[attr-defined]
            yield session


def fill(session: dpsql.Session, rows: tuple[Any, ...]) -> None:
    con: duckdb.DuckDBPyConnection = session.con  # type: ignore[attr-defined]
    con.execute("DELETE FROM t")
    if rows:
        con.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)


def bound(session: dpsql.Session, given: str) -> ExponentialChoice:
    """The operator of a utility, whose texts the second lock has proved."""
    con: duckdb.DuckDBPyConnection = session.con  # type: ignore[attr-defined]
    block = inside.planned(session, f"SELECT id, EXPMECH({given}) OVER c FROM t").blocks[-1]
    for item in block.inputs:
        con.execute(f"CREATE OR REPLACE TEMP TABLE {item.name} AS {item.sql}")
    assert isinstance(block.operator, ExponentialChoice)
    return block.operator


def scores(session: dpsql.Session, operator: ExponentialChoice) -> list[int]:
    con: duckdb.DuckDBPyConnection = session.con  # type: ignore[attr-defined]
    tables = [con.sql(text).to_arrow_table() for text in operator.batches]
    return [int(row[CANDIDATE_SCORE]) for table in tables for row in table.to_pylist()]


def movements(session: dpsql.Session, operator: ExponentialChoice, domain: list[Any], size: int) -> set[int]:
    """Return the moves of all scores by one row more, over every table of at most so many rows."""
    known = {}
    for n in range(size + 1):
        for rows in itertools.combinations_with_replacement(domain, n):
            fill(session, rows)
            known[rows] = scores(session, operator)
    return {
        one - other
        for rows, found in known.items()
        for i in range(len(rows))
        for one, other in zip(found, known[rows[:i] + rows[i + 1 :]], strict=True)
    }


def faults(operator: ExponentialChoice, moved: set[int]) -> list[str]:
    """List the faults of what was derived; a bound that is not reached is no fault."""
    found = []
    if max(map(abs, moved)) > operator.sensitivity:
        found.append("moves further")
    if operator.monotone and min(moved) < 0 < max(moved):
        found.append("moves both ways")
    return found


MORE_ROWS = ("LEAST(SUM(y), COUNT(*))", f"GREATEST({LEFT}, -{RIGHT})")
"""Utilities whose bound is reached by tables of more than two rows only."""


@pytest.mark.parametrize("given", UTILITIES)
def test_the_derived_sensitivity_is_reached_and_never_passed(session: dpsql.Session, given: str) -> None:
    operator, (expected, monotone) = bound(session, given), UTILITIES[given]
    assert (operator.sensitivity / operator.steps, operator.monotone) == (expected, monotone)
    moved = movements(session, operator, DOMAIN[1:4], 2)
    assert faults(operator, moved) == []
    if given not in (*MORE_ROWS, OTHER_ENDS):
        assert max(map(abs, moved)) == operator.sensitivity


@pytest.mark.stochastic
@pytest.mark.parametrize("given", UTILITIES)
def test_the_same_over_every_table_of_four_rows(session: dpsql.Session, given: str) -> None:
    operator = bound(session, given)
    moved = movements(session, operator, DOMAIN, 4)
    assert faults(operator, moved) == []
    assert given == OTHER_ENDS or max(map(abs, moved)) == operator.sensitivity


@pytest.mark.parametrize(
    ("doctored", "given"),
    [
        ("half", f"-ABS({LEFT} - 2 * {RIGHT})"),
        ("half", "LEAST(SUM(y), SUM(y) + 1)"),
        ("monotone", f"-ABS({LEFT} - {RIGHT})"),
        ("monotone", f"{LEFT} - {RIGHT}"),
        ("apart", f"ABS({LEFT}) + COUNT(*) FILTER (WHERE x <= k)"),
    ],
)
def test_the_check_notices(
    session: dpsql.Session, doctored: str, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: half of what is derived, ABS that is taken for monotone, statistics that do have rows in common."""
    operator = bound(session, given)
    moved = movements(session, operator, DOMAIN[1:4], 2)
    assert faults(operator, moved) == []
    if doctored == "half":
        operator = replace(operator, sensitivity=operator.sensitivity // 2)
    elif doctored == "monotone":
        operator = replace(operator, monotone=True)
    else:
        monkeypatch.setattr(utility, "find_apart", lambda *given: ((0, 1),))
        wrong = inside.bind(session, f"SELECT id, EXPMECH({given}) OVER c FROM t").blocks[-1].operator
        assert isinstance(wrong, ExponentialChoice)
        assert wrong.sensitivity < operator.sensitivity
        operator = wrong
    assert faults(operator, moved)


# -- the second lock --------------------------------------------------------------------------------------------------

LIES = {
    "half the sensitivity": lambda claim: replace(claim, most=claim.most // 2),
    "twice the rows": lambda claim: replace(claim, rows=2 * claim.rows),
    "one way": lambda claim: replace(claim, monotone=True),
    "a statistic less": lambda claim: replace(claim, moves=claim.moves[:-1]),
    "statistics that move less": lambda claim: replace(claim, moves=((0, 0),) * len(claim.moves)),
    "statistics with common rows": lambda claim: replace(claim, apart=((0, 1),), most=claim.most - 1),
}


@pytest.mark.parametrize("lie", LIES)
def test_the_second_lock_derives_it_again(
    session: dpsql.Session, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = "ABS(COUNT(*) FILTER (WHERE x <= k)) + COUNT(*) FILTER (WHERE x >= k)"
    plan = inside.bind(session, f"SELECT id, EXPMECH({given}) OVER c FROM t")
    inside.check(session, plan)
    honest = UtilityForm.claim

    def lying(self: UtilityForm, plain: ScoresClaim) -> ScoresClaim:
        made: ScoresClaim = LIES[lie](honest(self, plain))
        return made

    monkeypatch.setattr(UtilityForm, "claim", lying)
    with pytest.raises(Unproved):
        inside.check(session, plan)


@pytest.mark.parametrize("own", ["GREATEST(", "ABS("])
def test_sensitivities_of_the_candidates_own_are_proved(session: dpsql.Session, own: str) -> None:
    given = f"b * ABS({LEFT} - {RIGHT}) - k * GREATEST(SUM(y), 2, COUNT(*))"
    operator = bound(session, given)
    assert operator.varying
    text = (
        operator.batches[0]
        .replace(f"LEAST({own}", "LEAST(LEAST(", 1)
        .replace(f"LEAST(GREATEST({own}", "LEAST(GREATEST(0 * ABS(", 1)
    )
    assert text != operator.batches[0]
    plan = inside.bind(session, f"SELECT id, EXPMECH({given}) OVER c FROM t")
    block = plan.blocks[-1]
    wrong = replace(
        plan, blocks=(*plan.blocks[:-1], replace(block, operator=replace(operator, batches=(text,))))
    )
    with pytest.raises(Unproved):
        inside.check(session, wrong)


# -- equal to DuckDB, in one pass -------------------------------------------------------------------------------------


def plain(con: duckdb.DuckDBPyConnection, given: str, candidate: tuple[int, ...]) -> float:
    """The utility in plain SQL, with one candidate's values pasted in."""
    given = given.replace(OTHER_ENDS, "SUM(LEAST(y, hi, 1)) - SUM(LEAST(y, hi + 1))")
    values = dict(zip(("k", "lo", "hi", "b"), candidate[1:], strict=True))
    text = re.sub(r"\b(k|lo|hi|b)\b(?!')", lambda m: f"({values[m[1]]})", given)
    row = con.execute(f"SELECT {text} FROM t").fetchone()
    return float(row[0])


def test_public_numbers_that_are_missing_are_passed_over(session: dpsql.Session) -> None:
    """LEAST and GREATEST skip a NULL, also one that is negated."""
    fill(session, tuple(DOMAIN))
    for given in ("LEAST(COUNT(*), -b)", "-GREATEST(-COUNT(*), b)", "GREATEST(COUNT(*), -(-b))"):
        chosen = f"SELECT id, EXPMECH({given}, answer => TRUE, epsilon => 1e7) OVER n FROM t"
        text = f"WITH n AS (SELECT id, NULLIF(b, b) AS b FROM c) {chosen}"
        (row,) = session.sql(text, fresh=True).dicts()
        assert row["answer"] == len(DOMAIN), given


@pytest.mark.parametrize("here", [True, pytest.param(False, marks=pytest.mark.stochastic)])
@pytest.mark.parametrize("given", [*UTILITIES, f"k * LEAST({LEFT}, SUM(y)) - 0.25 * ABS({IN} - b)"])
def test_every_utility_is_duckdbs(
    session: dpsql.Session, given: str, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    con: duckdb.DuckDBPyConnection = session.con  # type: ignore[attr-defined]
    fill(session, tuple(DOMAIN[:5] * 3 + DOMAIN[1:3] * 2))
    monkeypatch.setattr(type(inside.engine(session)), "room", 1 << 20 if here else 0)
    text = f"SELECT id, EXPMECH({given}, top => 3, answer => TRUE, epsilon => 1e7) OVER c FROM t"
    got = {row["id"]: row["answer"] for row in session.sql(text, fresh=True).dicts()}
    expected = {candidate[0]: plain(con, given, candidate) for candidate in CANDIDATES}
    assert {n: round(float(value), 6) for n, value in got.items()} == pytest.approx(expected)


class Counting(Reader):
    """A reader that counts the queries over private rows."""

    def __init__(self, con: duckdb.DuckDBPyConnection, asked: list[str]) -> None:
        def execute(sql: str, lent: Mapping[str, pa.Table]) -> pa.Table:
            if '."t"' in sql:
                asked.append(sql)
            return con.sql(sql).to_arrow_table()

        super().__init__(execute)


@pytest.mark.parametrize(
    ("given", "passes"),
    [
        (f"-ABS({LEFT} - {RIGHT})", 1),
        (f"GREATEST({LEFT}, {RIGHT}, COUNT(*) FILTER (WHERE x = lo)) - ABS({LEFT} - hi)", 1),
        (f"-({BOTH.format('<')} + {BOTH.format('>=')})", 2),
        (f"-ABS({IN} - {OUT})", 1),
    ],
)
def test_one_pass_however_many_candidates(session: dpsql.Session, given: str, passes: int) -> None:
    """One query over the rows for each condition that does not name the candidate; one in all where SQL finds them."""
    con: duckdb.DuckDBPyConnection = session.con  # type: ignore[attr-defined]
    fill(session, tuple(DOMAIN))
    for many in (3, 500):
        con.execute(f"INSERT INTO c SELECT i, i % 5, i % 3, i % 7, i % 4 - 1 FROM range(3, {many}) AS r(i)")
        operator, asked, seen = bound(session, given), list[str](), list[Integers]()
        for found in operator._read_scores(Counting(con, asked), Entropy()):
            seen.append(found.scores)
        con.execute("DELETE FROM c WHERE id > 2")
        assert sum(map(len, seen)) == many
        assert len(asked) == passes


def test_a_declared_threshold_takes_them_too(session: dpsql.Session) -> None:
    fill(session, tuple(DOMAIN[:5] * 4))
    session.run("DECLARE balance ABOVE_THRESHOLD 3 OPTIONS (epsilon = 1e6, max_hits = 2)")
    given = "ABS(COUNT(*) FILTER (WHERE x < 2) - COUNT(*) FILTER (WHERE x >= 2))"
    operator = inside.planned(session, f"SELECT WITH balance {given} FROM t").blocks[-1].operator
    assert isinstance(operator, Probe)
    assert operator.sensitivity == 1
    assert session.sql(f"SELECT WITH balance {given} FROM t").fetchone() == (True,)
    assert session.sql(f"SELECT WITH balance {given} - 3 FROM t").fetchone() == (False,)
    session.run("CLOSE balance")


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (f"{LEFT} * {RIGHT}", "product.*take the lesser of the two, their sum or their distance"),
        (f"ABS({LEFT}) / COUNT(*)", "quotient.*the distance of one from that many times the other"),
        ("GREATEST(COUNT(DISTINCT x), 1)", r"not known per candidate.*COUNT\(\*\)"),
        ("SQRT(COUNT(*))", "can't be derived.*ABS, GREATEST or LEAST"),
    ],
)
def test_forms_without_a_sensitivity_are_refused_with_a_way_out(
    session: dpsql.Session, given: str, hint: str
) -> None:
    for call in (f"EXPMECH({given}) OVER c", f"ABOVE_THRESHOLD({given}, 1) OVER c"):
        with pytest.raises(dpsql.PrivacyError, match=f"(?s){hint}"):
            session.sql(f"SELECT {call} FROM t")
