"""Words on what caps and bounds leave out: under answers, by EXPLAIN and by why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dpsql
from dpsql import BindError, Policy, PrivacyError, Session
from tests.support.policies import budget, table, write_policy

POLICY = write_policy(
    budget(100000, 1e-4, 100, 1e-6, accountant=None),
    trips=table(
        "plane",
        5,
        2,
        plane={"type": "VARCHAR"},
        place={"type": "VARCHAR", "values": ["A", "B", "C"]},
        air={"type": "VARCHAR"},
        line={"type": "VARCHAR"},
        late={"type": "BIGINT", "bounds": [0, 60]},
    ),
    lines=table(None, None, None, {"public": True}, line={"type": "VARCHAR"}),
)
PLANES, TRIPS = 200, 20
_N = PLANES * TRIPS
DATA = {
    "trips": {
        "plane": [f"p{n % PLANES}" for n in range(_N)] + [None] * 100,
        "place": ["A", "B", "C", "A"] * (_N // 4 + 25),
        "air": ["x"] * (_N + 100),
        "line": ["L1"] * (_N + 100),
        "late": [n % 60 for n in range(_N + 100)],
    },
    "lines": {"line": ["L1", "L2"]},
}


@pytest.fixture
def session() -> Iterator[Session]:
    with dpsql.connect(DATA, policy=Policy.loads(POLICY)) as opened:
        yield opened


def test_rows_without_a_unit_are_told_of_and_not_sold(session: Session) -> None:
    for text in ("SELECT COUNT(*) FROM trips", "SELECT place, COUNT(*) FROM trips GROUP BY place"):
        assert "rows whose plane is NULL count nowhere" in str(session.explain(text))
    before = session.budget()
    for where in ("plane IS NULL", "late > 3 AND (plane IS NULL)"):
        with pytest.raises(PrivacyError, match="rows whose plane is NULL count nowhere"):
            session.sql(f"SELECT COUNT(*) FROM trips WHERE {where}")
    assert session.budget() == before
    session.explain("SELECT COUNT(*) FROM trips WHERE plane IS NULL OR late > 3")
    session.explain("SELECT COUNT(*) FROM trips WHERE plane IS NOT NULL")
    joined = "trips AS a LEFT JOIN trips AS b ON a.plane = b.plane AND b.late > 50"
    session.explain(f"SELECT COUNT(DISTINCT a.plane) FROM {joined} WHERE b.plane IS NULL")


def test_private_groups_under_a_cap_on_rows(session: Session) -> None:
    text = "SELECT WITH DP OPTIONS (epsilon = 100, max_rows_contributed = 50) air, COUNT(*) AS n FROM trips GROUP BY air"
    assert "one plane counts in at most 2 of them" in str(session.explain(text)), (
        "the policy's cap stays in force"
    )
    alone = Policy.loads(POLICY.replace("max_rows_per_group = 5\nmax_groups = 2\n", "max_rows = 50\n"))
    warning = "rivate groups are chosen as if one plane were in 50 of them"
    with dpsql.connect(DATA, policy=alone) as opened:
        assert warning in str(opened.explain(text))
        assert any(warning in note and "max_groups_contributed" in note for note in opened.sql(text).notes)
        fewer = text.replace("= 50", "= 50, max_groups_contributed = 2")
        assert warning not in str(opened.explain(fewer))


def test_a_share_for_the_choice_of_groups_beside_rollup(session: Session) -> None:
    options = "epsilon = 4, group_selection_epsilon = {}"
    text = f"SELECT WITH DP OPTIONS ({options}) {{}} AS k, COUNT(*) AS n FROM trips GROUP BY ROLLUP ({{}})"
    said = str(session.explain(text.format(1, "air", "air")))
    assert "ε=0.5, δ=" in said, "a quarter of the set's half"
    assert "Would cost ε=4, " in said
    with pytest.raises(BindError, match=r"chosen with ε=4 of ε=4"):
        session.explain(text.format(4, "air", "air"))
    with pytest.raises(BindError, match="are public"):
        session.explain(text.format(1, "place", "place"))


def test_the_hint_of_a_difference_is_what_works(session: Session) -> None:
    text = "SELECT WITH DP OPTIONS (epsilon = 1, confidence = {}) place, AVG(late) AS late FROM trips GROUP BY place"
    session.keep("q", session.sql(text.format(0.95)))
    both = "FROM {0} AS a, {0} AS b WHERE a.place = 'A' AND b.place = 'B'"
    (note,) = session.sql(f"SELECT a.late - b.late AS diff {both.format('q')}").notes
    assert "confidence = 0.975" in note
    low, high = "INTERVAL_LOW(a.late) - INTERVAL_HIGH(b.late)", "INTERVAL_HIGH(a.late) - INTERVAL_LOW(b.late)"
    assert f"{low} and {high}" in note
    again = session.sql(text.format(0.975))
    assert again.loss == "no charge"
    session.keep("q2", again)
    found = f"SELECT a.late - b.late AS diff, {low} AS low, {high} AS high {both.format('q2')}"
    ((diff, least, most),) = session.sql(found).fetchall()
    assert least < diff < most
    ends = dict(zip(again["place"], again.intervals["late"], strict=True))
    assert ends["A"] is not None
    assert ends["B"] is not None
    assert (least, most) == pytest.approx((ends["A"][0] - ends["B"][1], ends["A"][1] - ends["B"][0]))
