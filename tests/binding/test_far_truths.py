"""Every mechanism and every combiner on a truth that is far from 0, so that noise alone never passes for an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from tests.support.fixtures import con_fixture

POLICY = """
budget = { epsilon = 1e9, delta = 1e-2, accountant = "basic", max_epsilon_per_query = 1e4, default_epsilon = 50, \
    default_delta = 1e-6 }
[tables]
t = { privacy_unit = "id", max_rows = 1, max_groups = 1, columns = { x = { bounds = [0, 1000] }, \
    y = { bounds = [0, 1000] }, g = { values = ["a", "b"] } } }
points = { public = true }
"""
TABLES = """
CREATE TABLE t AS SELECT i AS id, 600 + 100 * least(greatest(i % 4, 1), 3) - 100 AS x,
    2 * (600 + 100 * least(greatest(i % 4, 1), 3)) - 1000 AS y, CASE WHEN i % 10 < 8 THEN 'red' ELSE 'blue' END AS c,
    CASE WHEN i % 5 = 0 THEN 'b' ELSE 'a' END AS g, ['p', 'q'] AS l FROM range(20000) AS r(i);
UPDATE t SET x = 600 WHERE id % 4 = 1; UPDATE t SET x = 800 WHERE id % 4 = 3;
UPDATE t SET x = 700 WHERE id % 4 IN (0, 2); UPDATE t SET y = x - 100;
CREATE TABLE points AS SELECT i * 50 AS v FROM range(1, 20) AS r(i);
"""
# 20,000 units: x near 700 (a quarter at 600, half at 700, a quarter at 800), c mostly 'red', g mostly 'a'.
con = con_fixture(TABLES)


NUMBERS = [
    "COUNT(*)", "COUNT(c)", "COUNT(DISTINCT id)", "SUM(x)", "AVG(x)", "MEDIAN(x)", "QUANTILE(x, 0.9)", "MAX(x)", "MIN(x)",
    "VAR_POP(x)", "STDDEV(x)", "COVAR_POP(x, y)", "CORR(x, y)", "REGR_SLOPE(y, x)", "COUNT_IF(x > 650)",
]  # fmt: skip
PLAIN = {"QUANTILE(x, 0.9)": "QUANTILE_DISC(x, 0.9)"}


@pytest.mark.parametrize("call", NUMBERS)
@pytest.mark.parametrize("group", ["", " GROUP BY g"])
def test_aggregates(session: dpsql.Session, con: duckdb.DuckDBPyConnection, call: str, group: str) -> None:
    ours = session.sql(f"SELECT {call} AS n{', g' if group else ''} FROM t{group}").fetchall()
    theirs = con.execute(
        f"SELECT {PLAIN.get(call, call)} AS n{', g' if group else ''} FROM t{group}"
    ).fetchall()
    for mine, other in zip(
        sorted(ours, key=lambda r: str(r[1:])), sorted(theirs, key=lambda r: str(r[1:])), strict=True
    ):
        assert abs(float(other[0])) > 0.5
        assert mine[0] == pytest.approx(float(other[0]), rel=0.15)


def test_private_groups(session: dpsql.Session) -> None:
    found = dict(session.sql("SELECT c, COUNT(*) FROM t GROUP BY c").fetchall())
    assert found["red"] == pytest.approx(16000, rel=0.01)
    assert found["blue"] == pytest.approx(4000, rel=0.05)


@pytest.mark.parametrize("method", ["exponential", "permute_and_flip", "noisy_max"])
def test_choices(session: dpsql.Session, method: str) -> None:
    """Half of the rows are at 700, a quarter at 600 and at 800."""
    text = (
        "WITH candidates(v) AS (SELECT v FROM points) "
        f"SELECT EXPMECH(COUNT(*) FILTER (WHERE x = v), method => '{method}') OVER candidates FROM t"
    )
    assert session.sql(text).fetchall()[0][0] == 700


def test_thresholds(session: dpsql.Session) -> None:
    text = (
        "WITH candidates(v) AS (SELECT v FROM points ORDER BY v) "
        "SELECT ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE x <= v), 10000) OVER candidates FROM t"
    )
    assert session.sql(text).fetchall()[0][0] == 700
    session.sql("DECLARE far ABOVE_THRESHOLD 10000 OPTIONS (epsilon = 20, max_hits = 1)")
    assert session.sql("SELECT WITH far COUNT(*) FROM t WHERE x > 750").fetchall() == [(False,)]
    assert session.sql("SELECT WITH far COUNT(*) FROM t WHERE x > 650").fetchall() == [(True,)]


@pytest.mark.parametrize(
    ("call", "low", "high"),
    [
        ("MODE(c)", "red", "red"),
        ("QUANTILE_DISC(x, 0.5)", 700, 700),
        ("MEDIAN(x)", 700, 700),
        ("ARG_MAX(g, COUNT(*))", "a", "a"),
    ],
)
def test_ptr(session: dpsql.Session, call: str, low: Any, high: Any) -> None:
    ((found,),) = session.sql(f"SELECT WITH PTR {call} AS v FROM t").fetchall()
    assert low <= found <= high


@pytest.mark.parametrize("combine", ["mean", "median", "trimmed_mean", "winsorized_mean", None])
def test_numeric_combiners(session: dpsql.Session, combine: str | None) -> None:
    said = f", combine = '{combine}'" if combine else ""
    ((found,),) = session.sql(
        f"SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1000){said}) AVG(x) AS v FROM t"
    ).fetchall()
    assert found == pytest.approx(700, abs=15)


@pytest.mark.parametrize("combine", ["noisy_mode", "stable_mode"])
def test_votes_for_one(session: dpsql.Session, combine: str) -> None:
    text = f"SELECT WITH SUBSAMPLE OPTIONS (combine = '{combine}') MODE(c) AS v FROM t"
    assert session.sql(text).fetchall() == [("red",)]


@pytest.mark.parametrize("expression", ["MODE(c)", "[MODE(c)]", "FIRST(c ORDER BY c DESC)", "MAX(c)"])
def test_votes_count_a_text_as_a_list_of_one(session: dpsql.Session, expression: str) -> None:
    options = "combine = 'noisy_votes', candidates = ('red', 'blue', 'green'), blocks = 64"
    rows = session.sql(f"SELECT WITH SUBSAMPLE OPTIONS ({options}) {expression} AS v FROM t").fetchall()
    votes = dict(rows)
    assert votes["red"] == pytest.approx(64, abs=5)
    assert abs(votes["blue"]) < 5
    assert abs(votes["green"]) < 5
    best = session.sql(
        f"SELECT WITH SUBSAMPLE OPTIONS ({options}, top = 1) {expression} AS v FROM t"
    ).fetchall()
    assert best == [("red",)]


def _fit(x: np.ndarray, y: np.ndarray) -> Any:
    """Intercept and slope of y over x: -100 and 1."""
    slope, intercept = np.polyfit(x.astype(float), y.astype(float), 1)
    return np.array([intercept / 100, slope])


@pytest.mark.parametrize("combine", ["mean", "median", "trimmed_mean", "winsorized_mean", None])
@pytest.mark.parametrize("returns", ["DOUBLE", "DOUBLE[]", float, list[float]])
def test_vectors_are_combined_coordinate_by_coordinate(
    session: dpsql.Session, combine: str | None, returns: Any
) -> None:
    session.register("fit", _fit, returns=returns, length=2)
    said = f", combine = '{combine}'" if combine else ""
    found = session.sql(f"SELECT WITH SUBSAMPLE OPTIONS (bounds = (-3, 3){said}) fit(x, y) AS b FROM t")
    ((vector,),) = found.fetchall()
    assert vector == pytest.approx([-1, 1], abs=0.1)
    slope = session.sql(
        f"SELECT b[2] FROM (SELECT WITH SUBSAMPLE OPTIONS (bounds = (-3, 3){said}) fit(x, y) AS b FROM t)"
    )
    assert slope.fetchall()[0][0] == pytest.approx(1, abs=0.1)
    assert found.loss == "ε=50"
    if combine in ("mean", "trimmed_mean", "winsorized_mean"):
        assert any("b, at 95% each: [" in note for note in found.notes)


def test_declared_scalars_are_combined(session: dpsql.Session) -> None:
    session.register("middle", lambda x: np.float32(x.mean()), returns="DOUBLE")
    text = "SELECT WITH SUBSAMPLE OPTIONS (bounds = (0, 1000)) middle(x) AS v FROM t"
    assert session.sql(text).fetchall()[0][0] == pytest.approx(700, abs=5)
    session.register("usual", lambda c: max(set(c), key=list(c).count), returns=str)
    for options in ("", "OPTIONS (combine = 'stable_mode')", "OPTIONS (candidates = ('red', 'blue'))"):
        assert session.sql(f"SELECT WITH SUBSAMPLE {options} usual(c) AS v FROM t").fetchall() == [("red",)]
    session.register("names", lambda c: sorted(set(c)), returns=list[str])
    options = "combine = 'noisy_votes', candidates = ('red', 'blue', 'x'), blocks = 64"
    text = f"SELECT WITH SUBSAMPLE OPTIONS ({options}) names(c) AS v FROM t"
    votes = dict(session.sql(text).fetchall())
    assert votes["red"] == pytest.approx(64, abs=8)
    assert votes["blue"] == pytest.approx(64, abs=8)
    session.register("places", lambda x: int(x.mean() // 100), returns=int)
    text = "SELECT WITH SUBSAMPLE OPTIONS (combine = 'noisy_mode', candidates = (5, 6, 7, 8)) places(x) AS v FROM t"
    assert session.sql(text).fetchall()[0][0] in (6, 7)


@pytest.mark.parametrize(
    ("returns", "length", "options", "message"),
    [
        ("VARCHAR", None, "combine = 'mean', bounds = (0, 1)", "mean needs numbers"),
        ("VARCHAR[]", None, "combine = 'median', bounds = (0, 1)", "median needs numbers"),
        ("VARCHAR", 3, "combine = 'median', bounds = (0, 1)", "median needs numbers"),
        ("BOOLEAN", None, "combine = 'winsorized_mean', bounds = (0, 1)", "winsorized_mean needs numbers"),
        ("DOUBLE[]", None, "combine = 'mean', bounds = (0, 1)", "how long"),
        ("DOUBLE", None, "combine = 'noisy_votes', candidates = ('a', 'b')", "noisy_votes are for"),
        ("DOUBLE[]", 3, "combine = 'noisy_votes', candidates = ('a', 'b')", "noisy_votes are for"),
        ("DOUBLE", None, "combine = 'noisy_mode', candidates = ('a', 'b')", "not all candidates"),
        ("BIGINT", None, "combine = 'noisy_mode', candidates = (1, 2.5)", "not all candidates"),
        ("DOUBLE", None, "combine = 'mean'", "needs the range"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_before_the_charge(
    session: dpsql.Session, returns: str, length: int | None, options: str, message: str
) -> None:
    def never(x: Any) -> Any:
        raise AssertionError("it is not run")

    session.register("never", never, returns=returns, length=length)
    with pytest.raises(dpsql.Error, match=message) as caught:
        session.sql(f"SELECT WITH SUBSAMPLE OPTIONS ({options}) never(x) AS v FROM t")
    assert caught.value.span is not None
    assert not [entry for entry in session.ledger() if entry.event is not None and entry.outcome != "refused"]


@pytest.mark.parametrize(
    ("returns", "length"),
    [
        ("BLOB", None),
        ("STRUCT(a INTEGER)", None),
        (dict, None),
        (list, None),
        ("DOUBLE", 0),
        ("DOUBLE", 1.5),
        (None, 3),
        ("", None),
    ],
)
def test_types_that_a_result_cannot_have(session: dpsql.Session, returns: Any, length: Any) -> None:
    with pytest.raises(dpsql.BindError):
        session.register("f", len, returns=returns, length=length)


@pytest.mark.parametrize(
    "make",
    [lambda x: [1.0], lambda x: "1", lambda x: [1.0, "2"], lambda x: None,
     lambda x: [1.0, 2.0, 3.0], lambda x: 1 / 0, lambda x: [[1.0, 2.0]]],
)  # fmt: skip
def test_results_that_do_not_fit_are_no_results(session: dpsql.Session, make: Callable[[Any], Any]) -> None:
    """They count as the middle of the bounds, and nobody hears of it."""
    session.register("f", make, returns="DOUBLE", length=2)
    found = session.sql(
        "SELECT WITH SUBSAMPLE OPTIONS (bounds = (10, 20), combine = 'mean') f(x) AS v FROM t"
    )
    assert found.fetchall()[0][0] == pytest.approx([15, 15], abs=0.5)


def test_an_undeclared_number_is_said_to_be_one(session: dpsql.Session) -> None:
    session.register("f", lambda x: [1.0])
    text = "SELECT WITH SUBSAMPLE OPTIONS (bounds = (10, 20)) f(x) AS v FROM t"
    assert any("f returns is not declared" in note for note in session.sql(text).notes)
    session.register("f", lambda x: 12.0, returns=float)
    assert not any("not declared" in note for note in session.sql(text).notes)
