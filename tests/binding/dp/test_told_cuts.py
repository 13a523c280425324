"""Words on what caps and bounds leave out: under answers, by EXPLAIN and by why."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

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

REST = " are used (report_cut = TRUE estimates the rest)"


@pytest.fixture
def session() -> Iterator[Session]:
    with dpsql.connect(DATA, policy=Policy.loads(POLICY)) as opened:
        yield opened


def test_a_count_tells_that_a_cap_cut_it(session: Session) -> None:
    result = session.sql("SELECT COUNT(*) AS n, COUNT(DISTINCT plane) AS planes FROM trips")
    assert abs(result.fetchall()[0][0] - 5 * PLANES) < 50, "a quarter of the rows"
    assert result.notes[0] == "only 5 rows per plane" + REST
    assert "clamp" not in str(result), "no value is clamped"
    told = str(session.why())
    assert "rows of one plane above 5 are left out" in told
    assert "report_cut = TRUE" in told
    assert "max_rows_contributed = 10" in told


def test_people_are_counted_whole(session: Session) -> None:
    result = session.sql("SELECT COUNT(DISTINCT plane) AS planes FROM trips")
    assert abs(result.fetchall()[0][0] - PLANES) < 5
    assert not any("missing" in note for note in result.notes)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("place, COUNT(*) AS n FROM trips GROUP BY place",
         "only 5 rows in one group and 10 in all groups per plane" + REST),
        ("place, COUNT(DISTINCT plane) AS n FROM trips GROUP BY place",
         "only 2 groups per plane" + REST),
        ("SUM(late) AS n FROM trips", "one plane adds to a sum at most what 5 rows at the bounds add"),
        ("SUM(late) AS n FROM trips", "values are clamped: late to [0, 60]"),
        ("MEDIAN(late) AS n FROM trips", "only 5 rows per plane" + REST),
        ("AVG(late) AS n FROM trips", "one plane counts as at most 5 rows in all; if there are more, each weighs less"),
    ],
)  # fmt: skip
def test_each_cap_has_its_words(session: Session, text: str, note: str) -> None:
    assert any(told.startswith(note) for told in session.sql(f"SELECT {text}").notes)


def test_rows_counted_by_unit_first_lack_nothing(session: Session) -> None:
    text = "SELECT COUNT(*) AS n FROM (SELECT plane, COUNT(*) AS c FROM trips GROUP BY plane)"
    assert not any("missing" in note for note in session.sql(text).notes)
    assert "missing" not in str(session.explain(text))


def test_bounds_of_a_case_are_its_own(session: Session) -> None:
    said = str(session.explain("SELECT AVG(CASE WHEN late > 30 THEN 1 ELSE 0 END) AS s FROM trips"))
    assert "held to [0, 1] (from the expression itself)" in said
    assert "held to [0, 60] (from the policy)" in str(session.explain("SELECT AVG(late) AS s FROM trips"))
    notes = session.sql("SELECT AVG(CASE WHEN late > 30 THEN 1 ELSE 0 END) AS s FROM trips").notes
    assert not any("clamped" in note for note in notes), "it can't be anything else"
    notes = session.sql("SELECT AVG(CASE WHEN late > 30 THEN late ELSE 0 END) AS s FROM trips").notes
    assert any("clamped" in note for note in notes)


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


def test_after_an_answer_nothing_is_told_that_was_assumed(session: Session) -> None:
    text = "SELECT MEDIAN(late) AS m, COUNT(*) AS n FROM trips"
    assert session.explain(text).expected_error.keys() == {"m", "n"}
    assert session.sql(text).expected_error.keys() == {"n"}


def test_errors_that_fall_with_rows_are_told_for_several_numbers(session: Session) -> None:
    plan = session.explain(
        "SELECT WITH DP OPTIONS (epsilon = 1) AVG(late) AS m, CORR(late, late + 1) AS r FROM trips"
    )
    assert [rows for rows, _ in plan.mean_errors] == [1_000, 10_000, 100_000]
    for name in ("m", "r"):
        told = [dict(errors)[name] for _, errors in plan.mean_errors]
        assert all(few > many for few, many in pairwise(told))
    assert " of 1,000 rows, ±" in str(plan)
    plan = session.explain("SELECT WITH DP OPTIONS (epsilon = 0.01) AVG(late) AS m FROM trips")
    assert plan.errors is not None
    assert [name for name, _ in plan.errors.rows] == ["m, of 10,000 rows", "m, of 100,000 rows"], (
        "1,000 say nothing"
    )


def test_why_compares_no_error_with_itself(session: Session) -> None:
    session.sql("SELECT WITH DP OPTIONS (epsilon = 0.01) AVG(late) AS m FROM trips")
    told = str(session.why())
    assert "m, of 10,000 rows within ±" in told
    assert "±60 instead of ±60" not in told


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


def test_a_rollup_over_the_rows_of_a_public_table(session: Session) -> None:
    text = "SELECT line, COUNT(*) AS n FROM trips RIGHT JOIN lines USING (line) GROUP BY ROLLUP (line) ORDER BY line NULLS LAST"
    found = dict(session.sql(text).fetchall())
    assert found.keys() == {"L1", "L2", None}
    assert abs(found["L1"] - 5 * PLANES) < 50
    assert abs(found["L2"]) < 50
    assert abs(found[None] - 5 * PLANES) < 50


def test_hints_are_what_may_be_written(session: Session) -> None:
    for option, meant in (("max_rows", "max_rows_contributed"), ("max_groups", "max_groups_contributed")):
        with pytest.raises(BindError) as told:
            session.sql(f"SELECT WITH DP OPTIONS ({option} = 7) COUNT(*) FROM trips")
        assert told.value.hint == f"did you mean {meant}?"
    with pytest.raises(BindError) as told:
        session.sql("SELECT AVG(late > 30) FROM trips")
    assert "AVG((late > 30)::INT)" in str(told.value.hint)
    session.explain("SELECT AVG((late > 30)::INT) FROM trips")


def test_moments_of_alike_columns_are_all_told(session: Session) -> None:
    said = str(session.explain("SELECT CORR(late, late + 0) AS r FROM trips"))
    assert "r: twice a total of the values less 30" in said
    assert "r: twice a sum of squares" in said


def test_a_block_median_tells_what_it_assumes_first(session: Session) -> None:
    said = str(
        session.explain(
            "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, bounds = (-1, 1)) CORR(late, late + 1) AS r FROM trips"
        )
    )
    assert said.index("Assuming a bell of deviation") < said.index("median ±")
    assert "also holds how far results really spread" in said


def test_the_policy_is_shown_with_what_it_protects(session: Session) -> None:
    rows = session.sql("SHOW POLICY").fetchall()
    for row in (
        ("trips", "privacy_unit", "plane"),
        ("trips", "max_rows_per_group", "5"),
        ("trips", "max_groups", "2"),
    ):
        assert row in rows


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


def test_digits_beyond_all_noise_are_not_shown(session: Session) -> None:
    session.keep(
        "n",
        session.sql(
            "SELECT WITH DP OPTIONS (epsilon = 1) place, 100000 + COUNT(*) AS n FROM trips GROUP BY place"
        ),
    )
    shown = session.sql("SELECT place, SUM(n) OVER (ORDER BY place) AS running FROM n")
    (_, (_, second), _) = shown.fetchall()
    assert f"{round(second, -2):,}".replace(",", "\u00a0") in repr(shown) or f"{round(second, -2):,}".replace(
        ",", " "
    ) in repr(shown)
    assert str(second) not in repr(shown)


def test_values_too_far_from_given_bounds_are_missing_and_that_is_said(session: Session) -> None:
    far = "SELECT SUM(late * 1000.5e0, contribution_bounds_per_row => (0, 10)) AS s FROM trips"
    said = "(missing beyond ±32768)"
    assert f"values are clamped: late * 1000.5e0 to [0, 10] {said}" in session.sql(far).notes
    assert "(given per row; missing beyond ±32768)" in str(session.explain(far))
    near = "SELECT SUM(late::SMALLINT, contribution_bounds_per_row => (0, 10)) AS s FROM trips"
    assert not any("missing beyond" in note for note in session.sql(near).notes)
