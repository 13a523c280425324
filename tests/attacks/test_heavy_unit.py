"""One unit with far more rows than count: what it really moves is what the noise was made for, no less and no more."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.binding.plan import Plan
from dpsql.language.statements import parse
from dpsql.mechanisms.aggregation import Together
from dpsql.mechanisms.auto_bounds import AutoBounded
from dpsql.mechanisms.base import SALT, bind_parameters
from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_SCORE, CANDIDATE_SENSITIVITY
from dpsql.mechanisms.inverse_sensitivity import InverseSensitivity
from dpsql.mechanisms.quantiles import Quantiles
from dpsql.noise.entropy import Entropy
from tests.support import inside
from tests.support.fixtures import con_fixture

ROWS, GROUPS = 3, 2
POLICY = f"""
budget = {{ epsilon = 1e9, delta = 0.5, accountant = "zcdp", default_epsilon = 1 }}
[tables]
t = {{ privacy_unit = "u", max_rows_per_group = {ROWS}, max_groups = {GROUPS}, columns = {{ \
    x = {{ bounds = [0, 10] }}, g = {{ values = ["a", "b", "c", "d"] }} }} }}
c = {{ public = true }}
"""
HEAVY = 7
TABLES = """
CREATE TABLE t (u INTEGER, g VARCHAR, x INTEGER);
INSERT INTO t VALUES (1, 'a', 2), (2, 'b', 5), (3, 'c', 1);
CREATE TABLE c AS FROM (VALUES (1), (4)) AS v(p);
"""
con = con_fixture(TABLES, scope="function")


def both(con: duckdb.DuckDBPyConnection, session: dpsql.Session, text: str, query: str) -> tuple[Any, Any]:
    """Return what an exact query gives without the heavy unit, and with it."""
    plan = planned(session, text)
    read = inside.reader(session, inside.lend(session, plan))
    without = read(query.replace(SALT, "7")).to_pylist()
    con.execute(
        f"INSERT INTO t SELECT {HEAVY}, g, 10 FROM range(9), (VALUES ('a'), ('b'), ('c'), ('d')) AS v(g)"
    )
    return without, read(query.replace(SALT, "7")).to_pylist()


def planned(session: dpsql.Session, text: str) -> Plan:
    (statement,) = parse(text)
    return inside.bind(session, statement)


PARTS = [
    "SELECT {} MEDIAN(x) FROM t {}",
    "SELECT {} MIN(x) FROM t {}",
    "SELECT {} QUANTILE_DISC(x, 0.9) FROM t {}",
    "SELECT WITH STABLE {} IQR(x) FROM t {}",
    "SELECT WITH STABLE {} TRIMMED_MEAN(x, 0.1) FROM t {}",
    "SELECT {} SUM(x, contribution_bounds_per_row => AUTO) FROM t {}",
    "SELECT {} AVG(x, contribution_bounds_per_row => AUTO) FROM t {}",
    "SELECT {} STDDEV_POP(x, contribution_bounds_per_row => AUTO) FROM t {}",
]


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("text", PARTS)
def test_rows_that_are_kept(
    con: duckdb.DuckDBPyConnection, session: dpsql.Session, text: str, grouped: bool
) -> None:
    text = text.format("g," if grouped else "", "GROUP BY g" if grouped else "")
    operator = planned(session, text).blocks[0].operator
    assert isinstance(operator, Together)
    (part,) = operator.parts
    assert isinstance(part, Quantiles | InverseSensitivity | AutoBounded)
    count = "n" if isinstance(part, AutoBounded) else "count"

    def rows(found: list[dict[str, Any]]) -> dict[Any, int]:
        out: dict[Any, int] = {}
        for row in found:
            key = row[part.keys[0]] if part.keys else None
            out[key] = out.get(key, 0) + (row[count] or 0)
        return out

    without, with_it = map(rows, both(con, session, text, part.query))
    moved = [n for key in with_it if (n := with_it[key] - without.get(key, 0))]
    assert moved == [part.rows] * part.groups == [ROWS] * (GROUPS if grouped else 1)


TEN = "COUNT(*) FILTER (WHERE x >= p)"
CHOICES = [
    (f"ABOVE_THRESHOLD({TEN}, 2) OVER c", ROWS),
    (f"ABOVE_THRESHOLD(p * {TEN}, 2) OVER c", 4 * ROWS),
    ("ABOVE_THRESHOLD(COUNT(*), 2)", ROWS),
    ("ABOVE_THRESHOLD(SUM(x) FILTER (WHERE x >= p OR g || '' = 'z'), 2) OVER c", 10 * ROWS),
    (f"EXPMECH({TEN}, answer => TRUE) OVER c", ROWS),
    (f"EXPMECH(p * {TEN}, answer => TRUE) OVER c", 4 * ROWS),
    ("EXPMECH(p * COUNT(*) FILTER (WHERE x >= p OR g || '' = 'z')) OVER c", 4 * ROWS),
]


@pytest.mark.parametrize(("call", "most"), CHOICES)
def test_statistics_of_a_choice(
    con: duckdb.DuckDBPyConnection, session: dpsql.Session, call: str, most: int
) -> None:
    text = f"SELECT {call} FROM t"
    operator: Any = planned(session, text).blocks[0].operator
    sensitivity = operator.noise.sensitivity if hasattr(operator, "noise") else operator.sensitivity
    without, with_it = both(con, session, text, operator.batches[0])
    moved = [int(b[CANDIDATE_SCORE]) - int(a[CANDIDATE_SCORE]) for a, b in zip(without, with_it, strict=True)]
    assert max(moved) == most == sensitivity
    if CANDIDATE_SENSITIVITY in with_it[0]:  # each candidate's own
        assert [int(row[CANDIDATE_SENSITIVITY]) for row in with_it] == moved == [ROWS, 4 * ROWS]
        read = inside.reader(session, inside.lend(session, planned(session, text)))
        scored = operator.sweep and operator.sweep.take(bind_parameters(read, {"salt": 7}), Entropy())
        assert not scored or scored.sensitivities.tolist() == moved


def test_a_question_to_a_declared_threshold(con: duckdb.DuckDBPyConnection, session: dpsql.Session) -> None:
    session.sql("DECLARE alarm ABOVE_THRESHOLD 5")
    text = "SELECT WITH alarm 2 * COUNT(*) - 1 FROM t"
    operator: Any = planned(session, text).blocks[0].operator
    (without,), (with_it,) = both(con, session, text, operator.batches[0])
    assert int(with_it[CANDIDATE_SCORE]) - int(without[CANDIDATE_SCORE]) == 2 * ROWS == operator.sensitivity
    declared = inside.declared(session)["alarm"]
    assert declared.epsilon1 + declared.epsilon2 == 1


@pytest.mark.parametrize("more", ["", ", answer => TRUE", ", answer => TRUE, {many} => 2", ", {many} => 2"])
@pytest.mark.parametrize("name", ["ABOVE_THRESHOLD", "EXPMECH"])
def test_all_that_is_asked_for_comes_out_of_one_epsilon(session: dpsql.Session, name: str, more: str) -> None:
    above = name == "ABOVE_THRESHOLD"
    more = more.format(many="max_hits" if above else "top")
    for last in (
        ["", ", refresh => TRUE", ", gap => TRUE"] if above else ["", ", method => 'permute_and_flip'"]
    ):
        call = f"{name}({TEN}{', 2' if above else ''}, epsilon => 0.3{more}{last}) OVER c"
        event = planned(session, f"SELECT {call} FROM t").event
        assert event.basic == (Fraction(3, 10), 0)
        assert event.pure == Fraction(3, 10)
