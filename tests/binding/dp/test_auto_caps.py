"""Caps that a statement finds: answers near the truth where the policy has none, ceilings where it has, and what is paid."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.base import ClaimedText, Operator, Read, Release, list_claims
from dpsql.mechanisms.contribution_caps import CapSearch
from dpsql.noise.entropy import Entropy
from tests.support import inside
from tests.support.fixtures import con_fixture, session_fixture
from tests.support.goodness import REFUSED, fixed, p_value

POLICY = """
budget = { epsilon = 1e12, delta = 1e-2, accountant = "basic", default_delta = 1e-6 }
[tables]
t = { privacy_unit = "u", columns = { k = { values = ["a", "b", "c", "d"] }, x = { bounds = [0, 100] } } }
held = { source = "t", privacy_unit = "u", max_rows_per_group = 3, max_groups = 2, columns = { \
    k = { values = ["a", "b", "c", "d"] } } }
r = { source = "t", privacy_unit = "ROW" }
keys = { public = true }
"""
ROWS, GROUPS = "max_rows_contributed = AUTO", "max_groups_contributed = AUTO"
SURE = "epsilon = 1e6"
"""So large that nothing is lost, and noise is small."""
# Unit i has as many rows as i % 50 + 1; every 1000th unit has 400 more.
TABLES = """
CREATE TABLE t AS SELECT i AS u, ['a', 'b', 'c', 'd', 'other'][(i + j) % 5 + 1] AS k, j % 7 + i % 3 AS p,
    (i * 7 + j * 3) % 100 AS x FROM range(2000) r(i), range(1, 451) s(j)
    WHERE j <= i % 50 + 1 + CASE WHEN i % 1000 = 7 THEN 400 ELSE 0 END;
CREATE TABLE keys AS SELECT unnest(range(9)) AS p;
"""
con = con_fixture(TABLES)
session = session_fixture(POLICY)


def plain(text: str) -> str:
    """The same statement, as DuckDB reads it."""
    return text.replace("contribution_bounds_per_row => AUTO", "").replace(", )", ")")


@pytest.mark.parametrize(
    "asked",
    [
        "SELECT {} COUNT(*) FROM t",
        "SELECT {} COUNT(*), SUM(x), AVG(x), COUNT(DISTINCT u) FROM t",
        "SELECT {} k, COUNT(*), SUM(x), COUNT(DISTINCT u) FROM t GROUP BY k",
        "SELECT {} k, AVG(x), COUNT(*) FILTER (WHERE x > 50) FROM t GROUP BY k",
        "SELECT {} p, COUNT(*), COUNT(DISTINCT u) FROM t GROUP BY p",
        "SELECT {} k, COUNT(*) FROM t WHERE k IN ('a', 'b', 'c', 'd') GROUP BY ROLLUP (k)",
        "SELECT {} keys.p, COUNT(t.u) FROM t RIGHT JOIN keys ON t.p = keys.p GROUP BY keys.p",
        "SELECT {} k, MEDIAN(x), COUNT(DISTINCT x) FROM t GROUP BY k",
        "SELECT {} k, SUM(x, contribution_bounds_per_row => AUTO) FROM t GROUP BY k",
    ],
)
@pytest.mark.parametrize("caps", [f"{ROWS}, {GROUPS}", ROWS, GROUPS])
def test_at_a_huge_epsilon_nothing_is_lost(
    con: duckdb.DuckDBPyConnection, session: dpsql.Session, asked: str, caps: str
) -> None:
    """Every unit has its rows in the answer: what one with 450 rows adds is there too."""
    ours = session.sql(
        asked.format(f"WITH DP OPTIONS ({SURE}, delta = 1e-6, noise = LAPLACE, {caps})")
    ).fetchall()
    where = " WHERE k <> 'other'" if "t GROUP BY" in asked and "BY p" not in asked else ""
    base = asked.format("")
    if "JOIN" not in asked:
        base = base.replace(" FROM t", f" FROM (FROM t{where}) AS t")
    theirs = con.sql(plain(base)).fetchall()
    assert len(ours) == len(theirs)
    by_key = str if "ROLLUP" in asked else repr
    for mine, its in zip(sorted(ours, key=by_key), sorted(theirs, key=by_key), strict=True):
        for one, other in zip(mine, its, strict=True):
            text = isinstance(one, str | bool | None)
            assert one == (other if text else pytest.approx(other, rel=1e-3, abs=0.5)), (mine, its)


@pytest.mark.parametrize(
    "more", ["", ", max_rows_contributed = 900", ", max_groups_contributed = 9", f", {GROUPS}"]
)
@pytest.mark.parametrize(
    "asked", ["SELECT {} k, COUNT(*), SUM(x) FROM t GROUP BY k", "SELECT {} p, COUNT(*) FROM t GROUP BY p"]
)
def test_rows_in_one_group_are_found(
    con: duckdb.DuckDBPyConnection, session: dpsql.Session, asked: str, more: str
) -> None:
    """Nothing is lost at a huge epsilon; the cap that is found holds the largest unit, and is named."""
    text = asked.format(
        f"WITH DP OPTIONS ({SURE}, delta = 1e-6, noise = LAPLACE, max_rows_per_group = AUTO{more})"
    )
    found = session.sql(text)
    truth = {row[0]: row[1:] for row in con.sql(asked.format("")).fetchall()}
    for key, *numbers in found.fetchall():
        assert numbers == pytest.approx(list(truth[key]), rel=1e-3)
    (largest,) = con.sql(
        f"SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM t GROUP BY u, {asked[10]})"
    ).fetchall()[0]
    (note,) = (note for note in found.notes if note.startswith("max_rows_per_group"))
    assert largest <= int(note.split()[2]) <= 8 * largest


def test_the_policy_s_rows_in_one_group_are_the_most_that_are_found(session: dpsql.Session) -> None:
    text = f"SELECT WITH DP OPTIONS ({SURE}, max_rows_per_group = AUTO) k, COUNT(*) FROM held GROUP BY k"
    assert any(
        "max_rows_per_group = 3 was found privately, the largest" in note for note in session.sql(text).notes
    )
    (search,) = (block.operator for block in inside.bind(session, text).blocks)
    assert isinstance(search, CapSearch)
    assert search.option == "max_rows_per_group"


def test_groups_are_found_first_and_rows_in_what_they_leave(session: dpsql.Session) -> None:
    text = (
        f"SELECT WITH DP OPTIONS ({SURE}, {ROWS}, {GROUPS}) k, COUNT(*), COUNT(DISTINCT u) FROM t GROUP BY k"
    )
    (outer,) = (block.operator for block in inside.bind(session, text).blocks)
    assert isinstance(outer, CapSearch)
    assert outer.option == "max_groups_contributed"
    assert outer.caps == (1, 2, 4)
    for cap, inner in zip(outer.caps, outer.choices, strict=True):
        assert isinstance(inner, CapSearch)
        assert (f"LAG(u, {cap})".lower() in inner.query.lower()) == (cap > 0)
    notes = session.sql(text).notes
    assert (
        notes[0]
        == "max_groups_contributed = 4 was found privately, the largest that was tried: if a unit has more groups, 4 count"
    )
    cap, found, _ = notes[1].partition(" was found privately")
    assert found
    # The first that nothing lies beyond, or one of the next three, of which the last is rare: beyond it with a chance of RUNAWAY.
    assert cap.removeprefix("max_rows_contributed = ") in ("512", "1024", "2048", "4096")


def test_the_policys_caps_are_ceilings(session: dpsql.Session) -> None:
    for asked, tops in (
        (f"SELECT WITH DP OPTIONS ({SURE}, {ROWS}) COUNT(*) FROM held", (3,)),
        (f"SELECT WITH DP OPTIONS ({SURE}, {ROWS}) k, COUNT(*) FROM held GROUP BY k", (12,)),
        (f"SELECT WITH DP OPTIONS ({SURE}, {GROUPS}) k, COUNT(*) FROM held GROUP BY k", (2,)),
        (f"SELECT WITH DP OPTIONS ({SURE}, {ROWS}, {GROUPS}) k, COUNT(DISTINCT u), COUNT(*) FROM held GROUP BY k", (2, 6)),
    ):  # fmt: skip
        found = []
        (operator,) = (block.operator for block in inside.bind(session, asked).blocks)
        while isinstance(operator, CapSearch):
            found.append(operator.caps[-1])
            operator = operator.most
        assert tuple(found) == tops, asked
        given = "only 3 rows in one group per u are used (report_cut = TRUE estimates the rest)"
        notes = [note for note in session.sql(asked).notes if note != given]
        assert len(notes) == len(tops)
        assert all("the largest that the policy allows" in note for note in notes)


def test_public_groups_share_the_rows_that_ceilings_leave(session: dpsql.Session) -> None:
    """With both caps to be found, no whole group is cut: 6 rows count of units with dozens in four groups, and it is said."""
    asked = f"SELECT WITH DP OPTIONS ({SURE}, {ROWS}, {GROUPS}) k, COUNT(*) FROM held GROUP BY k"
    (search,) = (block.operator for block in inside.bind(session, asked).blocks)
    assert isinstance(search, CapSearch)
    assert search.caps[-1] == 6
    assert all("lag(" not in choice.query for choice in search.choices if isinstance(choice, Aggregation))
    result = session.sql(asked)
    units = range(2000)
    kept = sum(min(6, sum(1 for j in range(1, 52) if j <= i % 50 + 1 and (i + j) % 5 < 4)) for i in units)
    assert sum(n for _, n in result.fetchall()) == pytest.approx(kept, rel=0.01)
    assert "the policy allows (3 rows in each of 2 groups)" in result.notes[0]
    assert "anything more is cut, at any epsilon" in str(session.explain(asked))


def test_nothing_found_means_one_row_and_a_note(session: dpsql.Session) -> None:
    text = f"SELECT WITH DP OPTIONS (epsilon = 1, {ROWS}) COUNT(*) FROM t WHERE u < 0"
    capped = [session.sql(text, fresh=True).notes[0] for _ in range(20)]
    one = "max_rows_contributed = 1: no larger cap was found to be worth its noise; a larger epsilon may find one"
    assert Counter(capped)[one] >= 1  # in 0.577 of all runs, so never in twenty with a chance of 4e-8
    (search,) = (block.operator for block in inside.bind(session, text).blocks)
    assert isinstance(search, CapSearch)
    ladder, entropy = search.ladder(1), fixed("a cap of nothing")
    more = np.array([ladder.climb(ladder.measure([], []), entropy) > 0 for _ in range(1000)]).astype(np.int64)
    # Both noises have rate 1/8 here, and 4/3 rows are tolerated: the first question is passed over with exp(-1/6) / 2.
    law = [1 - math.exp(-1 / 6) / 2, math.exp(-1 / 6) / 2]
    assert p_value(more, lambda i: law[i] if i < 2 else 0.0, signed=False) > REFUSED
    assert p_value(more, lambda i: 0.5 if i < 2 else 0.0, signed=False) < 0.01, "the control"


def spent(session: dpsql.Session) -> Fraction:
    return sum((entry.event.basic[0] for entry in session.ledger() if entry.event is not None), Fraction(0))


def test_what_is_paid_is_what_was_asked(session: dpsql.Session) -> None:
    for text in (
        f"SELECT WITH DP OPTIONS (epsilon = 1, {ROWS}) COUNT(*), SUM(x) FROM t",
        f"SELECT WITH DP OPTIONS (epsilon = 1, {ROWS}, {GROUPS}) k, COUNT(*), COUNT(DISTINCT u) FROM t GROUP BY k",
        f"SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, {ROWS}) p, COUNT(*), COUNT(DISTINCT u) FROM t GROUP BY p",
        f"SELECT WITH DP OPTIONS (epsilon = 1, {GROUPS}) k, COUNT(DISTINCT u) FROM t GROUP BY k",
        f"SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, {GROUPS}) p FROM t GROUP BY p",
        f"SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6, {ROWS}) k, p, COUNT(*) FROM t GROUP BY CUBE (k, p)",
    ):
        before = spent(session)
        result = session.sql(text)
        assert spent(session) - before == 1, text
        again = session.sql(text)
        assert again.fetchall() == result.fetchall()
        assert spent(session) - before == 1, "a stored answer is free"


def test_the_choice_is_proved_where_it_is_taken(session: dpsql.Session) -> None:
    """Texts of caps between the ends are claimed by their own operators, with the noise that they have."""
    text = f"SELECT WITH DP OPTIONS (epsilon = 1, {ROWS}) k, COUNT(*) FROM t GROUP BY k"
    plan = inside.bind(session, text)
    (search,) = (block.operator for block in plan.blocks)
    assert isinstance(search, CapSearch)
    inside.check(session, plan)
    claimed = {claimed.text for claimed in list_claims(search)}
    assert not any(choice.queries[0] in claimed for choice in search.between)
    gate = inside.gate(session)
    for choice, less in zip(search.between[1:], search.between, strict=False):
        gate.prove(choice, {})
        mine, its = (next(iter(list_claims(operator))) for operator in (choice, less))
        with pytest.raises(dpsql.PrivacyError):  # a cap with the noise of a lower one
            gate.prove(OneText(ClaimedText(mine.text, its.claim)), {})


class OneText(Operator):
    """An operator that claims one text, and nothing else."""

    event = None  # type: ignore[assignment]

    def __init__(self, claimed: ClaimedText) -> None:
        self.claimed = claimed

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.claimed.text,)

    def claims(self) -> Iterator[ClaimedText]:
        yield self.claimed

    def release(self, read: Read, entropy: Entropy) -> Release:
        raise AssertionError

    def sentences(self, confidence: float) -> tuple[str, ...]:
        return ()


def test_rows_that_are_units_have_nothing_to_find(session: dpsql.Session) -> None:
    rows = session.sql(f"SELECT WITH DP OPTIONS ({SURE}, {ROWS}, {GROUPS}) COUNT(*) FROM r").fetchone()
    assert rows == session.sql(f"SELECT WITH DP OPTIONS ({SURE}) COUNT(*) FROM r").fetchone()


def test_rows_outside_of_the_public_groups_use_nothing_up(
    session: dpsql.Session, con: duckdb.DuckDBPyConnection
) -> None:
    """A unit's rows in groups that are not shown neither raise the cap nor count against it."""
    text = f"SELECT WITH DP OPTIONS ({SURE}, max_rows_contributed = 1) k, COUNT(*) FROM t WHERE u < 50 GROUP BY k"
    ((units,),) = con.sql("SELECT COUNT(DISTINCT u) FROM t WHERE u < 50 AND k <> 'other'").fetchall()
    assert sum(n for _, n in session.sql(text).fetchall()) == units
