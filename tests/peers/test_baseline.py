"""Statements of each suite that are answered and refused: what is refused tomorrow and is answered today shows here."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest

import dpsql
from tests.support import peers

# suite: answered, refused, and of both those that an open defect makes fail (key xfail)
BASELINE = {
    "chorus": (34, 4, 0),
    "clean_rooms": (49, 8, 0),
    "clickbench": (100, 11, 0),
    "googlesql": (239, 55, 0),
    "h2o": (18, 2, 0),
    "imdb": (39, 4, 0),
    "libraries": (100, 14, 0),
    "mimic": (50, 3, 0),
    "qrlew": (85, 14, 0),
    "smartnoise": (111, 18, 0),
    "ssb": (34, 3, 0),
    "stackoverflow": (33, 5, 0),
    "taxi": (36, 2, 0),
    "tpcds": (106, 2, 0),
}


def counted() -> dict[str, tuple[int, int, int]]:
    verdicts: dict[str, Counter[str]] = {}
    for case in peers.cases():
        verdicts.setdefault(case.suite, Counter()).update([case.verdict.partition(":")[0]])
        verdicts[case.suite]["open"] += "xfail" in case.keys
    return {suite: (c["answered"], c["refused"], c["open"]) for suite, c in verdicts.items()}


def test_the_baseline() -> None:
    found = counted()
    assert found == BASELINE
    assert sum(answered + refused for answered, refused, _ in found.values()) >= 1100


def test_every_verdict_is_one_of_two() -> None:
    for case in peers.cases():
        assert case.verdict == peers.ANSWERED or case.verdict.partition(":")[0] == "refused", str(case)


@pytest.mark.parametrize(
    ("plain", "fault"),
    [
        ("SELECT COUNT(*) + 1 FROM films", "no row"),
        ("SELECT COUNT(*) FROM films UNION ALL SELECT 7", "no row"),
        ("SELECT COUNT(*) FROM films WHERE FALSE GROUP BY year", "rows too many"),
        ("SELECT no FROM films", "DuckDB refuses"),
        ("SELECT COUNT(*) FROM films", None),
    ],
)
def test_the_comparison_sees_what_is_wrong(plain: str, fault: str | None) -> None:
    policy = dpsql.Policy.loads(peers.BUDGET + "[tables.films]\nprivacy_unit = 'ROW'\n")
    case = peers.Case(peers.HERE / "x.sql", 0, {"plain": plain}, "SELECT COUNT(*) FROM films", peers.ANSWERED)
    with duckdb.connect() as con:
        con.execute("CREATE TABLE films AS SELECT i % 7 AS year FROM range(50) AS r(i)")
        with dpsql.connect(con, policy=policy) as session:
            came = peers.judge(case, session, con)
    assert came.fault is None if fault is None else fault in str(came.fault), came


def test_order_and_counts_of_empty_groups_are_compared() -> None:
    ordered = peers.Case(peers.HERE / "x.sql", 0, {}, "", peers.ANSWERED)
    assert peers.differs([(1,), (2,)], [(2,), (1,)], ordered, ordered=True)
    assert not peers.differs([(1,), (2,)], [(2,), (1,)], ordered, ordered=False)
    assert peers.differs([(1.01,)], [(1.0,)], ordered, ordered=False)
    assert peers.differs([(1.0001,)], [(1,)], ordered, ordered=False), "a count is exact"
    extra = peers.Case(peers.HERE / "x.sql", 0, {"extra": "1"}, "", peers.ANSWERED)
    assert not peers.differs([("a", 2), ("b", 0)], [("a", 2)], extra, ordered=True)
    assert peers.differs([("a", 2), ("b", 1)], [("a", 2)], extra, ordered=True), "an empty group has no rows"
