"""HISTOGRAM and the statistics of two columns, in SQL: DuckDB's answers where epsilon hides nothing, and their price."""

from __future__ import annotations

from fractions import Fraction

import duckdb
import pytest

import dpsql
from dpsql.mechanisms.aggregation import Together
from dpsql.mechanisms.base import SALT
from dpsql.mechanisms.histograms import Histogram
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.privacy.events import DiscreteLaplace, PureDP
from tests.support import inside
from tests.support.fixtures import both_fixture

POLICY = """
budget = { epsilon = 1e9, accountant = "basic", default_epsilon = 1e7 }
[tables]
t = { privacy_unit = "u", max_rows_per_group = 5, max_groups = 2, columns = { x = { bounds = [0, 10] }, \
    y = { bounds = [-5, 25] }, g = { values = ["a", "b"] } } }
r = { privacy_unit = "ROW", columns = { x = { bounds = [0, 10] }, g = { values = ["a", "b"] } } }
"""
TABLE = """
CREATE TABLE t AS SELECT i % 200 AS u, (i * 7919 % 1000) / 100.0::DOUBLE AS x,
    ((i * 7919 % 1000) / 50.0 + (i * 31 % 50) / 10.0)::DOUBLE AS y, CASE WHEN i % 3 = 0 THEN 'a' ELSE 'b' END AS g,
    i % 2 = 0 AS f, i % 20 AS n, DATE '2020-01-01' + (i % 30)::INTEGER AS d FROM range(1000) AS s(i);
CREATE TABLE r AS FROM t;
"""


both = both_fixture(POLICY, TABLE)


Both = tuple[duckdb.DuckDBPyConnection, dpsql.Session]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT HISTOGRAM(g) FROM t",
        "SELECT HISTOGRAM(f) FROM t WHERE x > 5",
        "SELECT HISTOGRAM(n, [5, 10]) FROM t",
        "SELECT HISTOGRAM(x, [1.5, 5]) FROM r",
        "SELECT HISTOGRAM(d, [DATE '2020-01-10', DATE '2020-01-20']) FROM t",
        "SELECT HISTOGRAM_EXACT(g, ['b']) FROM t",
        "SELECT HISTOGRAM_EXACT(n, [3, 4]) FILTER (WHERE f) FROM t",
        "SELECT f, HISTOGRAM(g) AS h FROM t GROUP BY f ORDER BY f",
        "SELECT HISTOGRAM(g)['a'] AS a, COUNT(*) AS n FROM t",
        "SELECT HISTOGRAM(n, [5, 6, 10])[6] AS a, (HISTOGRAM(n, [5, 6, 10]))[10] AS b FROM t",
        "SELECT h[5] AS a, h['10'] AS b FROM (SELECT HISTOGRAM(n, [5, 6, 10]) AS h FROM t)",
        "SELECT HISTOGRAM(x, [1.5, 5])[1.5] AS a, HISTOGRAM(x, [1.5, 5])[5] AS b FROM r",
        "SELECT f, HISTOGRAM(g) AS h FROM t GROUP BY ROLLUP (f) ORDER BY f NULLS LAST",
        "SELECT MODE(g), MODE(f) FILTER (WHERE n <> 2), MODE(LEAST(GREATEST(n, 3), 9)) FROM t",
        "SELECT g, MODE(f) AS m, SUM(DISTINCT n % 5) FILTER (WHERE f) AS s FROM t WHERE n <> 3 GROUP BY g ORDER BY g",
    ],
)
def test_histograms_equal_duckdbs(both: Both, query: str) -> None:
    con, session = both
    assert session.sql(query).fetchall() == con.sql(query).fetchall()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT COVAR_POP(y, x), COVAR_SAMP(y, x), CORR(y, x) FROM t",
        "SELECT REGR_SLOPE(y, x), REGR_INTERCEPT(y, x), REGR_R2(y, x) FROM t",
        "SELECT g, CORR(y, x) FILTER (WHERE f) AS c FROM t GROUP BY g ORDER BY g",
        "SELECT CORR(x, LEAST(GREATEST(n, 0), 19)) FROM r",
        "SELECT CORR(x, n, contribution_bounds_per_row => (0, 20)) FROM r",
        "SELECT 2 * CORR(y, x) + 1 AS c FROM t",
    ],
)
def test_two_columns_equal_duckdbs(both: Both, query: str) -> None:
    con, session = both
    mine = session.sql(query).fetchall()
    theirs = con.sql(query.replace(", contribution_bounds_per_row => (0, 20)", "")).fetchall()
    for a, b in zip(mine, theirs, strict=True):
        for left, right in zip(a, b, strict=True):
            assert left == (right if isinstance(right, str) else pytest.approx(right, rel=1e-3))


def test_rows_without_one_of_the_two_are_left_out(both: Both) -> None:
    con, session = both
    query = "SELECT COVAR_POP(y, CASE WHEN f THEN x END) FROM t"
    assert session.sql(query).fetchone() == pytest.approx(con.sql(query).fetchall()[0], rel=1e-3)


def test_every_bin_is_there_whatever_the_data(both: Both) -> None:
    result = both[1].sql("SELECT g, HISTOGRAM(n, [100, 200]) AS h FROM t WHERE x < 0 GROUP BY g ORDER BY g")
    assert result.fetchall() == [("a", {100: 0, 200: 0, 2**63 - 1: 0}), ("b", {100: 0, 200: 0, 2**63 - 1: 0})]
    assert result.df()["h"][0] == {100: 0, 200: 0, 2**63 - 1: 0} or dict(result.df()["h"][0])


def test_prices(both: Both) -> None:
    session = both[1]
    one = session.sql("SELECT WITH DP OPTIONS (epsilon = 2) HISTOGRAM(g) FROM r")
    assert one.event == DiscreteLaplace(Fraction(2), 1, 1)
    many = session.sql("SELECT WITH DP OPTIONS (epsilon = 2) HISTOGRAM(g) FROM t")
    assert many.event == PureDP(Fraction(2))
    moments = session.sql("SELECT WITH DP OPTIONS (epsilon = 2) CORR(y, x) FROM t")
    assert moments.event.basic == (2, 0)
    said = session.explain("SELECT WITH DP OPTIONS (epsilon = 2) CORR(y, x), HISTOGRAM(g) FROM t")
    text = "\n".join(said.sentences)
    assert "6 noisy moments" in text
    assert "each of 2 bins" in text
    assert "scale 5 (ε=1)" in text


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT HISTOGRAM(n) FROM t", "needs public values"),
        ("SELECT HISTOGRAM(g, ['a']) FROM t", "needs a number"),
        ("SELECT HISTOGRAM(x, [n]) FROM t", "literal"),
        ("SELECT HISTOGRAM(x, [5, 1]) FROM t", "ascending"),
        ("SELECT HISTOGRAM(x, 5) FROM t", "list"),
        ("SELECT HISTOGRAM(DISTINCT g) FROM t", "takes a column"),
        ("SELECT HISTOGRAM(g, report_format => 'JSON') FROM t", "epsilon only"),
        ("SELECT HISTOGRAM(g)['A'] FROM t", "has no bin 'A'"),
        ("SELECT (HISTOGRAM(g))[1] FROM t", "has no bin 1"),
        ("SELECT HISTOGRAM(n, [5, 10])[4] FROM t", "has no bin 4"),
        ("SELECT CORR(y, n) FROM t", "needs bounds for n"),
        ("SELECT CORR(y, g) FROM t", "needs a number, and g"),
        ("SELECT CORR(y) FROM t", "missing"),
        ("SELECT CORR(DISTINCT y, x) FROM t", "DISTINCT"),
        ("SELECT COVAR_POP(y, x, contribution_bounds_per_group => (0, 1)) FROM t", "per row only"),
    ],
)
def test_refusals(both: Both, query: str, message: str) -> None:
    with pytest.raises(dpsql.Error, match=message):
        both[1].sql(query)


def bins(con: duckdb.DuckDBPyConnection, part: Histogram) -> dict[tuple[object, ...], int]:
    found = con.sql(part.query.replace(SALT, "77")).fetchall()
    return {tuple(row[:-1]): row[-1] for row in found}


@pytest.mark.parametrize("keys", ["", "f"])
def test_one_unit_moves_the_bins_by_its_rows(keys: str) -> None:
    """A unit of 40 rows, in every bin and group, against all the others."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t AS SELECT i % 4 AS u, 1.0 AS x, 1.0 AS y, 'a' AS g, i % 3 = 0 AS f, i % 20 AS n "
        "FROM range(160) AS s(i)"
    )
    con.execute("CREATE TABLE r AS FROM t")
    with con, dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
        text = f"SELECT {keys + ', ' if keys else ''}HISTOGRAM(n, [3, 7, 11]) FROM t{' GROUP BY f' if keys else ''}"
        operator = inside.bind(session, text).blocks[0].operator
        assert isinstance(operator, Together)
        part = operator.parts[0]
        assert isinstance(part, Histogram)
        assert isinstance(part.noise, LaplaceNoise)
        before = bins(con, part)
        con.execute("DELETE FROM t WHERE u = 1")
        after = bins(con, part)
    moved = sum(abs(before.get(key, 0) - after.get(key, 0)) for key in before.keys() | after.keys())
    assert 0 < moved <= part.noise.sensitivity * part.noise.groups == 5 * (2 if keys else 1)
