# ruff: noqa: E501 - statements are easier to read when each has one line
"""Answers in parts, one for each period: what is stored, what is drawn and charged, and for which questions a part is valid."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dpsql
from dpsql.engine.duckdb import DuckDBEngine
from dpsql.errors import LedgerError
from dpsql.privacy.periods import list_periods, parse_periods, say_periods
from dpsql.session.session import Session
from tests.support import inside
from tests.support.nights import CLOSED, DAILY, FIRST, POLICY, write_day

TWO_DAYS = 'data_until = "closed"\nclosed_before = "today - 2 days"'
MONTHS = ("date_trunc('day', day)", "date_trunc('month', day)")


Open = Callable[..., Session]


@pytest.fixture
def morning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Yield a function that writes further days and opens a session on the morning after the last."""
    opened: list[Session] = []
    written = 0

    def go_on(days: int, policy: str = POLICY, analyst: str | None = None) -> Session:
        nonlocal written
        for number in range(written, days):
            write_day(tmp_path, number)
        written = max(written, days)
        monkeypatch.setattr(dpsql.Policy, "today", FIRST + datetime.timedelta(days=days))
        while opened:
            opened.pop().close()
        made = dpsql.Policy.loads(policy, base=tmp_path)
        opened.append(dpsql.connect(policy=made, ledger=tmp_path / "l.ledger", analyst=analyst))
        return opened[0]

    yield go_on
    while opened:
        opened.pop().close()


def paid(session: Session) -> list[str]:
    """Return the periods that each statement was charged to."""
    entries = session.ledger()
    return [say_periods(list_periods(entry.event)) for entry in entries if entry.event is not None]


def cost(session: Session, text: str, fresh: bool = False) -> str:
    """Ask, and return the words on periods and charge."""
    return session.sql(text, fresh=fresh).cost_line.rpartition(" · ")[0].replace("ε=1000000", "ε")


def test_only_periods_without_a_part_are_drawn_and_pay(morning: Open) -> None:
    session = morning(5)
    early = f"{DAILY[: DAILY.index('GROUP')]} WHERE day < DATE '2024-02-01' GROUP BY day"
    assert cost(session, early) == "2 days new · cost ε for 2024-01-30 to 2024-01-31"
    assert cost(session, DAILY) == "2 days stored, 3 new · cost ε for 2024-02-01 to 2024-02-03"
    assert cost(session, DAILY) == "5 days stored · no charge"
    assert cost(session, early.replace("<", ">")) == "2 days stored · no charge"
    one = "SELECT WITH DP OPTIONS (periods = ('2024-01-30', '2024-02-02')) COUNT(*), day AS d FROM visits GROUP BY d"
    assert cost(session, one) == "2 days stored · no charge"
    assert [row["d"].isoformat() for row in session.sql(one).dicts()] == ["2024-01-30", "2024-02-02"]
    assert cost(session, DAILY, fresh=True) == "5 days new · cost ε for 2024-01-30 to 2024-02-03"
    said = str(session.explain("SELECT day, COUNT(*) FROM visits WHERE x < 5 GROUP BY day"))
    assert "This block is stored in parts: 5 days new." in said
    assert "Drawn are 2024-01-30 to 2024-02-03." in said
    assert "Periods that pay: 2024-01-30 to 2024-02-03" in said
    assert "5 days stored." in str(session.explain(DAILY))
    assert paid(session) == [
        "2024-01-30 to 2024-01-31",
        "2024-02-01 to 2024-02-03",
        "2024-01-30 to 2024-02-03",
    ]


QUERIES = [
    "SELECT day, COUNT(*) AS n, SUM(x) AS s FROM visits GROUP BY day",
    "SELECT day, ward, COUNT(*) AS n FROM visits WHERE x > 20 GROUP BY ALL",
    "SELECT year(day) AS y, month(day) AS m, day(day) AS d, COUNT(*) AS n FROM visits GROUP BY ALL",
    "SELECT day, COUNT(DISTINCT ward) AS n FROM visits GROUP BY day",
    "SELECT d, COUNT(*) AS n FROM (SELECT day AS d, x FROM visits WHERE ward = 'a') AS v GROUP BY d",
    "SELECT day, COUNT(*) AS n FROM visits WHERE day BETWEEN '2024-01-31' AND '2024-02-02' GROUP BY day",
]


@pytest.mark.parametrize("period", MONTHS)
@pytest.mark.parametrize("text", QUERIES)
def test_the_union_is_the_answer_of_one_drawing(
    morning: Open, tmp_path: Path, text: str, period: str
) -> None:
    policy = POLICY.replace(MONTHS[0], period)
    morning(3, policy).sql(text)
    found = morning(5, policy).sql(text).dicts()
    expected = duckdb.sql(text.replace("FROM visits", f"FROM '{tmp_path}/visits/*/*.parquet'"))
    names = expected.columns
    rows = sorted(tuple(str(row[name]) for name in names) for row in found)
    assert rows == sorted(tuple(map(str, row)) for row in expected.fetchall())
    assert list(map(str, found)) == list(map(str, morning(5, policy).sql(text, fresh=True).dicts()))


def test_what_reads_the_union_is_as_before(morning: Open) -> None:
    session = morning(4, CLOSED)
    inner = "(SELECT WITH DP day, COUNT(*) AS n, AVG(x) AS a FROM visits GROUP BY day)"
    session.sql(f"SELECT * FROM {inner} WHERE day < '2024-02-01'")
    session = morning(6, CLOSED)
    assert cost(session, inner[1:-1]) == "4 days stored, 2 new · cost ε for 2024-02-03 to 2024-02-04"
    totals = session.sql(
        f"SELECT day, SUM(n) OVER (ORDER BY day) AS t FROM {inner} ORDER BY day DESC LIMIT 2"
    )
    assert [row["t"] for row in totals.dicts()] == [120, 100]
    assert totals.cost_line.startswith("6 days stored · no charge")
    low, high = totals.intervals["t"][0]
    assert low <= 120 <= high
    kept = session.sql(
        f"SELECT w, SUM(n) AS n FROM (SELECT *, day >= '2024-02-01' AS w FROM {inner}) GROUP BY w HAVING SUM(n) > 50"
    )
    assert [row["n"] for row in kept.dicts()] == [80]


OTHERS = [
    ("COUNT(*) AS n", "COUNT(x) AS n"),
    ("FROM visits", "FROM visits WHERE x > 3"),
    ("FROM visits", "FROM visits WHERE day <> DATE '2024-01-31'"),
    ("SELECT", "SELECT WITH DP OPTIONS (epsilon = 3)"),
    ("SELECT", "SELECT WITH DP OPTIONS (max_rows_contributed = 2)"),
    ("SELECT", "SELECT WITH DP OPTIONS (noise = 'gaussian', delta = 0.01)"),
    ("GROUP BY day", "GROUP BY day, ward"),
]


@pytest.mark.parametrize(("was", "now"), OTHERS)
def test_a_part_answers_no_other_question(morning: Open, was: str, now: str) -> None:
    session = morning(3)
    session.sql(DAILY)
    assert cost(session, DAILY.replace(was, now)).startswith("3 days new")
    assert cost(session, DAILY.replace(was, now)) == "3 days stored · no charge"


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("bounds = [0, 100]", "bounds = [0, 50]"), ("max_rows = 40", "max_rows = 41"), ('values = ["a", "b"]', 'values = ["a"]'),
    ],
)  # fmt: skip
def test_a_part_is_of_one_policy(morning: Open, was: str, now: str) -> None:
    text = "SELECT day, ward, SUM(x) FROM visits GROUP BY ALL"
    morning(3).sql(text)
    assert "new" in cost(morning(3, POLICY.replace(was, now)), text)


def test_an_open_part_is_of_one_version_and_a_closed_one_of_all(morning: Open, tmp_path: Path) -> None:
    assert cost(morning(4), DAILY) == "4 days new · cost ε for 2024-01-30 to 2024-02-02"
    assert cost(morning(4), DAILY) == "4 days stored · no charge"
    assert cost(morning(5), DAILY) == "5 days new · cost ε for 2024-01-30 to 2024-02-03"
    closed = POLICY.replace('data_until = "yesterday"', TWO_DAYS)
    assert cost(morning(6, closed), DAILY) == "4 days new · cost ε for 2024-01-30 to 2024-02-02"
    assert cost(morning(8, closed), DAILY) == "4 days stored, 2 new · cost ε for 2024-02-03 to 2024-02-04"
    write_day(tmp_path, 0, rows=39)  # late rows, against the owner's word
    session = morning(8, closed)
    assert cost(session, DAILY) == "6 days stored · no charge"
    assert session.sql(DAILY).dicts()[0]["n"] == 20
    assert session.sql(DAILY, fresh=True).dicts()[0]["n"] == 39
    until = closed.replace('"closed"', '"yesterday"')
    assert cost(morning(8, until), DAILY) == "6 days stored, 2 new · cost ε for 2024-02-05 to 2024-02-06"
    assert cost(morning(9, until), DAILY) == "6 days stored, 3 new · cost ε for 2024-02-05 to 2024-02-07"


def test_a_new_day_scans_its_own_rows_alone(morning: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned: list[int] = []
    run = DuckDBEngine._run

    def count(engine: DuckDBEngine, sql: str, *given: Any) -> Iterator[pa.Table]:
        with engine._borrow(False) as con:
            told = con.execute(f"EXPLAIN (ANALYZE, FORMAT json) {sql}").fetchall()[0][1]
        scanned.append(sum(map(int, re.findall(r'"rows_scanned": *([0-9]+)', told))))
        return run(engine, sql, *given)

    morning(4, CLOSED).sql(DAILY)
    session = morning(5, CLOSED)
    monkeypatch.setattr(DuckDBEngine, "_run", count)
    assert cost(session, DAILY) == "4 days stored, 1 new · cost ε for 2024-02-03"
    of_one_day = sum(scanned)
    assert cost(session, DAILY, fresh=True).startswith("5 days new")
    assert (of_one_day, sum(scanned) - of_one_day) == (20, 100)


def test_a_month_in_part_is_another_part_than_the_month(morning: Open) -> None:
    closed = POLICY.replace('data_until = "yesterday"', TWO_DAYS).replace(*MONTHS)
    text = "SELECT date_trunc('month', day) AS m, COUNT(*) AS n FROM visits GROUP BY m"
    assert cost(morning(4, closed), text) == "1 month new · cost ε for 2024-01"
    assert cost(morning(5, closed), text) == "1 month stored, 1 new · cost ε for 2024-02"
    session = morning(6, closed)
    assert cost(session, text) == "1 month stored, 1 new · cost ε for 2024-02"
    assert [row["n"] for row in session.sql(text).dicts()] == [40, 40]


def test_a_group_of_several_periods_is_one_part_with_them(morning: Open) -> None:
    text = "SELECT month(day) AS m, COUNT(*) AS n, MEDIAN(x) AS x FROM visits GROUP BY m"
    until = text.replace("FROM visits", "FROM visits WHERE day < DATE '2024-02-01'")
    assert cost(morning(3, CLOSED), text) == "3 days new · cost ε for 2024-01-30 to 2024-02-01"
    assert cost(morning(4, CLOSED), text) == "2 days stored, 2 new · cost ε for 2024-02-01 to 2024-02-02"
    session = morning(5, CLOSED)
    assert cost(session, until) == "2 days stored · no charge"
    assert [row["n"] for row in session.sql(text).dicts()] == [40, 60]


CONDITIONS = [
    "day >= DATE '2024-01-31' AND day < DATE '2024-02-02'", "day BETWEEN '2024-01-31' AND '2024-02-01'", "day <= TIMESTAMP '2024-01-31 09:00:00'",
    "day < TIMESTAMP '2024-02-01 00:00:00'", "day IN (DATE '2024-01-31', DATE '2024-02-02')", "DATE '2024-01-31' = day", "year(day) = 2024",
    "(day < DATE '2024-01-31' OR day > DATE '2024-02-01')", "date_trunc('month', day) = DATE '2024-01-01'", "day::DATE > DATE '2024-01-31'",
]  # fmt: skip


def test_a_condition_that_every_row_of_its_days_meets_is_no_part_of_the_question(morning: Open) -> None:
    session = morning(4)
    session.sql(DAILY)
    for condition in CONDITIONS:
        text = DAILY.replace("GROUP", f"WHERE {condition} GROUP")
        assert cost(session, text).endswith("stored · no charge"), condition
    for condition in (
        "NOT day < DATE '2024-02-01'",
        "day < DATE '2024-02-01' AND x > 3",
        "x > 3 OR day < DATE '2024-02-01'",
    ):
        assert "new" in cost(session, DAILY.replace("GROUP", f"WHERE {condition} GROUP")), condition
    joined = "SELECT v.day, COUNT(w.x) FROM visits v LEFT JOIN (SELECT * FROM visits) w ON v.pid = w.pid WHERE v.day < DATE '2024-02-01' GROUP BY v.day"
    assert "new" in cost(session, joined)


def test_a_whole_answer_about_closed_days_is_of_all_versions(morning: Open, tmp_path: Path) -> None:
    closed = POLICY.replace(
        'data_until = "yesterday"', 'closed_before = 2024-02-01\ndata_until = "yesterday"'
    )
    text = "SELECT ward, COUNT(*) AS n FROM visits WHERE day < DATE '2024-02-0{}' GROUP BY ward"
    for policy, last, again in ((closed, 1, True), (closed, 2, False), (POLICY, 1, False)):
        session = morning(4, policy)
        session.sql(text.format(last), fresh=True)
        write_day(tmp_path, 3, rows=25 + last)
        assert ("stored since" in cost(morning(4, policy), text.format(last))) is again


WHOLE = [
    "SELECT COUNT(*) FROM visits",
    "SELECT ward, COUNT(*) FROM visits GROUP BY ward",
    "SELECT WITH DP OPTIONS (max_rows_contributed = AUTO) day, COUNT(*) FROM visits GROUP BY day",
    "SELECT day, SUM(x, contribution_bounds_per_row => AUTO) FROM visits GROUP BY day",
    "SELECT WITH DP OPTIONS (report_cut = TRUE) day, COUNT(*) FROM visits GROUP BY day",
    "SELECT WITH DP OPTIONS (delta = 0.1) day, note, COUNT(*) FROM visits GROUP BY day, note",
    "SELECT day, ward, COUNT(*) FROM visits GROUP BY ROLLUP (day, ward)",
    "SELECT day, COUNT(*) FROM visits WHERE x > (SELECT WITH DP AVG(x) FROM visits) GROUP BY day",
]


@pytest.mark.parametrize("text", WHOLE)
def test_what_couples_periods_is_not_stored_in_parts(morning: Open, text: str) -> None:
    session = morning(3)
    assert all(block.parts is None for block in inside.planned(session, text).blocks if block is not None)


def test_blocks_of_one_statement_draw_a_common_period_once(morning: Open) -> None:
    session = morning(4)
    late = DAILY.replace("FROM visits", "FROM visits WHERE day > '2024-01-31'").replace(
        "SELECT", "SELECT WITH DP"
    )
    text = f"SELECT a.day, a.n AS one, b.n AS two FROM ({DAILY.replace('SELECT', 'SELECT WITH DP')}) AS a JOIN ({late}) AS b USING (day)"
    result = session.sql(text)
    assert all(row["one"] == row["two"] for row in result.dicts())
    assert len(result.dicts()) == 2
    assert session.budget().spent_epsilon == 10**6


def test_gaps_are_drawn_and_none_between_them(morning: Open) -> None:
    session = morning(9)
    listed = "SELECT WITH DP OPTIONS (periods = ('2024-01-31', '2024-02-02', '2024-02-04')) day, COUNT(*) AS n FROM visits GROUP BY day"
    assert cost(session, listed) == "3 days new · cost ε for 2024-01-31, 2024-02-02 and 2024-02-04"
    assert len(session.sql(listed).dicts()) == 3
    said = "2024-01-30, 2024-02-01, 2024-02-03 and 2024-02-05 to 2024-02-07"
    assert cost(session, DAILY) == f"3 days stored, 6 new · cost ε for {said}"
    assert [row["n"] for row in session.sql(DAILY).dicts()] == [20] * 9


def test_the_share_pays_for_the_parts_that_others_paid(morning: Open) -> None:
    shares = (
        '\nanswers = "own"\n[analysts.ana]\nepsilon = 3e6\n[analysts.bob]\nepsilon = 2e6\n[tables.visits]'
    )
    policy = POLICY.replace("\n[tables.visits]", shares).replace("epsilon = 1e30", "epsilon = 5e6")
    two = DAILY.replace("FROM visits", "FROM visits WHERE day < '2024-02-01'")
    morning(4, policy, "bob").sql(two)
    ana = morning(4, policy, "ana")
    assert (
        cost(ana, DAILY)
        == "2 days stored, 2 new · cost ε for 2024-02-01 to 2024-02-02 and ε for 2024-01-30 to 2024-01-31 of ana's share"
    )
    assert cost(ana, DAILY) == "4 days stored · no charge"
    left = {one.period: (one.share_left or one.left_epsilon) for one in ana.budget().stretches}
    assert set(left.values()) == {2 * 10**6}


# -- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["statement", "release"])
def test_a_kill_at_any_line_leaves_no_part_unpaid_and_no_stored_part_is_paid_again(
    tmp_path: Path, what: str
) -> None:
    """At sampled lines; all of them take an hour: ``python -m tests.support.killed_refresh FOLDER statement 1``."""
    command = [sys.executable, "-m", "tests.support.killed_refresh", str(tmp_path), what, "90"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=Path(__file__).parents[2])
    found = json.loads(ran.stdout)
    assert found["lines"] > 1000
    assert min(found["untouched"], found["charged"], found["stored"]) > 1


def test_a_changed_part_is_refused(morning: Open) -> None:
    session = morning(3)
    session.sql(DAILY)
    answers = session.account._book.answers  # type: ignore[attr-defined]
    key, number, release = next(iter(answers.all()))
    answers.put({key: release + b" "}, number)
    with pytest.raises(LedgerError, match="does not fit the ledger's record"):
        session.sql(DAILY)


# -- neighbours -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", QUERIES)
def test_a_draw_reads_its_own_periods_alone(morning: Open, tmp_path: Path, text: str) -> None:
    """Without all pairs of other periods, and with others of theirs, the exact statistics of a draw are the same."""
    plan = inside.planned(morning(5), text)
    days = parse_periods(["2024-01-31", "2024-02-02"])
    found = []
    for rows in (20, 33):
        for number in (0, 2, 4):
            write_day(tmp_path, number, rows)
        session = morning(5)
        plan = inside.planned(session, text)
        assert plan.narrow is not None
        narrow = plan.narrow(days)
        (block,) = narrow.blocks
        assert block.periods == days
        reader = inside.reader(session)
        tables = (reader(sql.replace("$salt", "7")) for sql in block.operator.checked)
        found.append([sorted(map(repr, table.to_pylist())) for table in tables])
    assert found[0] == found[1]
