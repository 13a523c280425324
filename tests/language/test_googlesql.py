"""GoogleSQL's differential privacy clause, as its users write it: names, bounds, reports, groups, refusals."""

from __future__ import annotations

import json
import re
from fractions import Fraction

import duckdb
import pytest

import dpsql
from tests.support.fixtures import both_fixture

POLICY = """
budget = { epsilon = 1e12, delta = 0.9, accountant = "basic" }
[tables]
loans = { privacy_unit = "reader", max_rows_per_group = 6 }
shelves = { public = true }
"""
DATA = """
CREATE TABLE loans AS SELECT i % 50 AS reader, ['atlas', 'novel', 'poems', 'maps'][1 + (i * 7) % 4] AS book,
    (i * 13 % 90)::BIGINT AS days FROM range(600) AS s(i);
INSERT INTO loans VALUES (1000, 'diary', 3);
CREATE TABLE shelves AS SELECT * FROM (VALUES ('atlas', 1), ('novel', 1), ('poems', 2), ('comics', 3)) AS v(book, floor);
"""
HEAD = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon={}, delta=1e-9, max_groups_contributed=4, privacy_unit_column=reader{})"
SURE = HEAD.format("1e8", "")

Both = tuple[duckdb.DuckDBPyConnection, dpsql.Session]


both = both_fixture(POLICY, DATA)


# A unit's own number in a group, held to the bounds, then what is made of those of all units.
PER_GROUP = """
    SELECT book, {outer} FROM (SELECT book, reader, {inner} AS own FROM loans GROUP BY book, reader) AS u
    WHERE book <> 'diary' GROUP BY book ORDER BY book
"""


@pytest.mark.parametrize(
    ("call", "inner", "outer"),
    [
        (
            "AVG(days, contribution_bounds_per_group => (10, 40))",
            "LEAST(GREATEST(AVG(days), 10), 40)",
            "AVG(own)",
        ),
        (
            "SUM(days, contribution_bounds_per_group => (0, 100))",
            "LEAST(GREATEST(SUM(days), 0), 100)",
            "SUM(own)",
        ),
        ("COUNT(*, contribution_bounds_per_group=>(0, 2))", "LEAST(COUNT(*), 2)", "SUM(own)"),
        ("COUNT(days, contribution_bounds_per_group=>(0, 1))", "LEAST(COUNT(days), 1)", "SUM(own)"),
    ],
)
def test_bounds_per_group_hold_a_units_own_aggregate(both: Both, call: str, inner: str, outer: str) -> None:
    con, session = both
    query = f"{SURE} book, {call} AS x FROM loans WHERE book <> 'diary' GROUP BY book ORDER BY book"
    mine, theirs = (
        session.sql(query).fetchall(),
        con.sql(PER_GROUP.format(inner=inner, outer=outer)).fetchall(),
    )
    assert [row[0] for row in mine] == [row[0] for row in theirs]
    for (_, a), (_, b) in zip(mine, theirs, strict=True):
        assert float(a) == pytest.approx(float(b), abs=1e-3)


def test_a_mean_per_group_is_the_mean_of_the_units_means() -> None:
    """One unit of many rows weighs no more than one of few: the mean of all rows is another number."""
    con = duckdb.connect()
    con.execute("CREATE TABLE loans AS SELECT 0 AS reader, 'a' AS book, 90 AS days FROM range(6)")
    con.execute("INSERT INTO loans SELECT i, 'a', 10 FROM range(1, 100) AS s(i)")
    con.execute("CREATE TABLE shelves AS SELECT 'a' AS book")
    with con, dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
        query = (
            "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1e7) AVG(days, contribution_bounds_per_{} => (0, 100)) "
            "FROM loans"
        )
        units, rows = (session.sql(query.format(per)).fetchone() or (0,) for per in ("group", "row"))
    assert units[0] == pytest.approx((90 + 99 * 10) / 100, abs=0.01)
    assert rows[0] == pytest.approx((6 * 90 + 99 * 10) / 105, abs=0.01)


@pytest.mark.parametrize(
    ("call", "plain"),
    [
        ("SUM(days, contribution_bounds_per_row => (0, 90))", "SUM(days)"),
        ("AVG(days, contribution_bounds_per_row => (0, 90))", "AVG(days)"),
        ("VAR_POP(days, contribution_bounds_per_row => (0, 90))", "VAR_POP(days)"),
        ("STDDEV_POP(days, contribution_bounds_per_row => (0, 90))", "STDDEV_POP(days)"),
        ("PERCENTILE_CONT(days, 0.5, contribution_bounds_per_row => (0, 90))", "QUANTILE_DISC(days, 0.5)"),
        ("COUNT(DISTINCT reader)", "COUNT(DISTINCT reader)"),
    ],
)
def test_bounds_per_row_hold_each_row(both: Both, call: str, plain: str) -> None:
    con, session = both
    where = "FROM loans WHERE book <> 'diary' GROUP BY book ORDER BY book"
    mine = session.sql(f"{SURE} book, {call} AS x {where}").fetchall()
    for (_, a), (_, b) in zip(mine, con.sql(f"SELECT book, {plain} {where}").fetchall(), strict=True):
        assert float(a) == pytest.approx(float(b), rel=0.02, abs=1)


@pytest.mark.parametrize("report", ["'JSON'", '"JSON"'])
@pytest.mark.parametrize(
    "call",
    [
        "COUNT(*, report_format => {})",
        "SUM(days, contribution_bounds_per_group => (0, 100), report_format => {})",
        "AVG(days, contribution_bounds_per_row => (0, 90), report_format => {})",
    ],
)
def test_json_reports(both: Both, call: str, report: str) -> None:
    result = both[1].sql(
        f"{HEAD.format('100', ', confidence=0.9')} book, {call.format(report)} AS r FROM loans GROUP BY book"
    )
    assert result.shape[0] >= 3
    for _, text in result.fetchall():
        report_of = json.loads(text)["result"]
        interval = report_of["noise_confidence_interval"]
        assert set(report_of) == {"value", "noise_confidence_interval"}
        assert interval["lower_bound"] <= report_of["value"] <= interval["upper_bound"]
        assert interval["confidence_level"] == 0.9


@pytest.mark.parametrize(
    "source",
    [
        "loans RIGHT OUTER JOIN shelves USING (book)",
        "loans RIGHT JOIN (SELECT DISTINCT book FROM shelves) AS s USING (book)",
        "(SELECT DISTINCT book FROM shelves) AS s LEFT OUTER JOIN loans USING (book)",
        "(SELECT book FROM shelves WHERE floor < 9) AS s LEFT JOIN loans USING (book)",
    ],
)
def test_public_groups_all_appear_at_no_delta(both: Both, source: str) -> None:
    head = HEAD.format("1e8", ", group_selection_strategy=PUBLIC_GROUPS")
    result = both[1].sql(f"{head} book, COUNT(reader) AS n FROM {source} GROUP BY book ORDER BY book")
    assert result.fetchall() == [("atlas", 150), ("comics", 0), ("novel", 150), ("poems", 150)]
    assert result.event.basic == (Fraction(10**8), 0)


def test_groups_that_are_not_public_can_not_be_called_so(both: Both) -> None:
    with pytest.raises(dpsql.PrivacyError, match="not public"):
        both[1].sql(
            f"{HEAD.format('1', ', group_selection_strategy=PUBLIC_GROUPS')} book, COUNT(*) FROM loans GROUP BY book"
        )


def test_few_units_are_no_group(both: Both) -> None:
    """``min_privacy_units_per_group`` comes before the private selection; the diary has one reader."""
    sure = f"{HEAD.format('1e8', ', min_privacy_units_per_group={}')} book, COUNT(DISTINCT reader) AS n FROM loans GROUP BY book"
    names = [{row[0] for row in both[1].sql(sure.format(least)).fetchall()} for least in (1, 20, 1000)]
    assert (
        names == [{"atlas", "novel", "poems", "maps"}, {"atlas", "novel", "poems", "maps"}, set()]
        or names[0] > names[1]
    )
    assert names[2] == set()


@pytest.mark.parametrize("strategy", ["LAPLACE_THRESHOLD", "OPTIMAL", "'laplace_threshold'"])
def test_strategies_of_private_groups(both: Both, strategy: str) -> None:
    query = f"{HEAD.format('1e8', f', group_selection_strategy={strategy}')} book, COUNT(*) AS n FROM loans GROUP BY book"
    found = dict(both[1].sql(query).fetchall())
    assert {"atlas", "novel", "poems", "maps"} <= set(found)
    assert found["atlas"] == 150


@pytest.mark.parametrize(
    ("epsilon", "first", "second", "fits"),
    [
        ("10", "4", "6", True),
        ("10", "6", "6", False),
        ("0.3", "0.1", "0.2", True),
        ("0.3", "0.1", "0.2000001", False),
    ],
)
def test_shares_may_not_overconsume(both: Both, epsilon: str, first: str, second: str, fits: bool) -> None:
    query = (
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon={epsilon}) COUNT(*, epsilon => {first}), "
        f"SUM(days, contribution_bounds_per_group => (0, 100), epsilon => {second}) FROM loans"
    )
    if fits:
        assert both[1].sql(query).event.basic == (Fraction(epsilon), 0)
    else:
        with pytest.raises(dpsql.BindError, match="Epsilon overconsumption"):
            both[1].sql(query)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (f"{HEAD.format('1', ', max_rows_contributed=0')} book, COUNT(*) FROM loans GROUP BY book", "at least 1"),
        (SURE.replace("=reader", "=book") + " book, COUNT(*) FROM loans GROUP BY book", "not the privacy unit"),
        (f"{HEAD.format('1', ', max_groups=3')} book, COUNT(*) FROM loans GROUP BY book", "has no max_groups"),
        (f"{HEAD.format('1', ', epsilon=2')} COUNT(*) FROM loans", "twice"),
        (f"{SURE} reader, COUNT(*) FROM loans GROUP BY reader", "can't be a group"),
        (f"{SURE} SUM(days, contribution_bounds_per_group => (9, 0)) FROM loans", "wrong way round"),
        (
            f"{SURE} SUM(days, contribution_bounds_per_group => (0, 9), contribution_bounds_per_row => (0, 9)) FROM loans",
            "one of the two|per row and per group",
        ),
        (f"{SURE} AVG(days) FROM loans", "needs bounds"),
        (f"{SURE} COUNT(*) FROM `loans", "does not end"),
        ("SELECT WITH ANONYMISATION OPTIONS(epsilon=1) COUNT(*) FROM loans", "no mode ANONYMISATION"),
    ],
)  # fmt: skip
def test_refusals(both: Both, query: str, message: str) -> None:
    with pytest.raises(dpsql.Error) as caught:
        both[1].sql(query)
    assert re.search(message, "\n".join(caught.value.lines()))


@pytest.mark.parametrize(
    "caps",
    [
        "max_rows_contributed=2",
        "max_groups_contributed=4, max_rows_contributed=2",
        "max_groups_contributed=1, max_rows_per_group=2",
    ],
)
def test_rows_contributed_in_all(both: Both, caps: str) -> None:
    """``max_rows_contributed`` bounds a unit's rows over all groups: two of each reader's twelve count."""
    query = SURE.replace("max_groups_contributed=4", caps)
    rows = both[1].sql(f"{query} book, COUNT(*) AS n FROM loans GROUP BY book").fetchall()
    assert 100 <= sum(n for _, n in rows) <= 101
