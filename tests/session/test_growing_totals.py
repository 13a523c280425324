# ruff: noqa: E501 - statements are easier to read when each has one line
"""Running totals of a growing tree: one node is drawn for each period, when it is closed, and all that it adds up pay its part."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.errors import Error
from dpsql.mechanisms.ordered_noise import GrowingTree, find_node_level
from dpsql.privacy.periods import list_periods, remove_days, say_periods
from dpsql.session.session import Session
from dpsql.session.stored_blocks import Draws
from tests.support import inside
from tests.support.nights import CLOSED, FIRST, TOTALS, write_day

Open = Callable[..., Session]
GAUSSIAN = (
    CLOSED.replace('"basic"', '"gdp"')
    .replace("1e30", "5")
    .replace("1e6", "0.5")
    .replace("delta = 0.1", "delta = 1e-6")
    .replace("max_rows = 40", "max_rows = 3")
)
BY_MU = TOTALS.replace("TREE", "TREE, mu = 0.1")


def count_rows(number: int) -> int:
    return 20 + number * 7 % 13


@pytest.fixture
def morning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Yield a function that writes further days of different sizes and opens a session on the morning after the last."""
    opened: list[Session] = []
    written = 0

    def go_on(days: int, policy: str = CLOSED) -> Session:
        nonlocal written
        for number in range(written, days):
            write_day(tmp_path, number, count_rows(number))
        written = max(written, days)
        monkeypatch.setattr(dpsql.Policy, "today", FIRST + datetime.timedelta(days=days))
        while opened:
            opened.pop().close()
        opened.append(
            dpsql.connect(policy=dpsql.Policy.loads(policy, base=tmp_path), ledger=tmp_path / "l.ledger")
        )
        return opened[0]

    yield go_on
    while opened:
        opened.pop().close()


def cost(session: Session, text: str, fresh: bool = False) -> str:
    """Ask, and return the words on periods and charge, without amounts."""
    return session.sql(text, fresh=fresh).cost_line.split(" · ")[0]


def list_paid(session: Session) -> list[str]:
    """Return the periods that each statement was charged to."""
    return [say_periods(list_periods(entry.event)) for entry in session.ledger() if entry.event is not None]


def list_draws(session: Session, text: str) -> list[Draws]:
    return inside.prepared(session, inside.planned(session, text)).asked[0].draws


def test_each_morning_draws_the_one_node_that_it_closes(morning: Open) -> None:
    for day, paid in enumerate(
        ["2024-01-30", "2024-01-30 to 2024-01-31", "2024-02-01", "2024-01-30 to 2024-02-02", "2024-02-03"], 1
    ):
        session = morning(day)
        assert cost(session, TOTALS) == (
            f"{day - 1} day{'s' * (day > 2)} stored, 1 new" if day > 1 else "1 day new"
        )
        assert list_paid(session)[-1] == paid
        assert cost(session, TOTALS) == f"{day} day{'s' * (day > 1)} stored"
        assert len(list_paid(session)) == day


SUMS = "SELECT WITH DP OPTIONS (strategy = TREE, epsilon = 1e9) day, SUM(COUNT(*)) OVER (ORDER BY day) AS n, SUM(SUM(x)) OVER (ORDER BY day) AS x, SUM(COUNT_IF(ward = 'a')) OVER (ORDER BY day) AS a FROM visits GROUP BY day"


@pytest.mark.parametrize("first", [1, 6, 11])
def test_nodes_are_the_sums_of_their_days(morning: Open, tmp_path: Path, first: int) -> None:
    """Without noise to speak of, whichever mornings ask."""
    for day in (first, 12, 13, 21):
        found = morning(day).sql(SUMS)
        rows = f"FROM '{tmp_path}/visits/*/*.parquet' WHERE day < DATE '{FIRST + datetime.timedelta(days=day)}' GROUP BY day"
        plain = "SELECT day, SUM(COUNT(*)) OVER (ORDER BY day), SUM(SUM(x)) OVER (ORDER BY day), SUM(COUNT_IF(ward = 'a')) OVER (ORDER BY day)"
        expected = duckdb.sql(f"{plain} {rows} ORDER BY day").fetchall()
        assert [tuple(row.values()) for row in found.dicts()] == expected


def test_the_exact_sums_of_a_draw_are_those_of_its_days_alone(morning: Open, tmp_path: Path) -> None:
    """Pairs of other days, more or fewer, change nothing that a draw reads; those of its own do."""
    found = []
    changed = {5}
    for rows in (20, 33):
        for number in changed:
            write_day(tmp_path, number, rows)
        session = morning(8)
        reader = inside.reader(session)
        read = {}
        for one in list_draws(session, TOTALS):
            for sql in one.block.operator.checked:
                read[one.block.periods] = sorted(map(repr, reader(sql.replace("$salt", "7")).to_pylist()))
        found.append(read)
    before, after = found
    assert len(before) == 4
    moved = {(day, day + 1) for day in (FIRST.toordinal() + number for number in changed)}
    for periods, read in before.items():
        touched = any(remove_days((pair,), periods) != (pair,) for pair in moved)
        assert (read == after[periods]) is not touched
    assert any(before[periods] == after[periods] for periods in before)


@pytest.mark.parametrize("accountant", ["gdp", "rdp", "zcdp"])
def test_a_total_of_a_closed_day_never_changes(morning: Open, accountant: str) -> None:
    policy, before = GAUSSIAN.replace("gdp", accountant), []
    for day in (1, 2, 3, 7, 8, 20):
        session = morning(day, policy)
        totals = session.sql(BY_MU.replace("mu", "rho" if accountant == "zcdp" else "mu"))
        listed = [
            (row["day"], row["t"], ends)
            for row, ends in zip(totals.dicts(), totals.intervals["t"], strict=True)
        ]
        assert listed[: len(before)] == before
        before = listed
    assert len({t for _, t, _ in before}) > 15


def test_intervals_are_those_of_the_binary_sum(morning: Open) -> None:
    session = morning(20, GAUSSIAN)
    result = session.sql(BY_MU)
    (block,) = inside.planned(session, BY_MU).blocks
    (statistic,) = block.operator.statistics  # type: ignore[attr-defined]
    tree = statistic.noise
    assert isinstance(tree, GrowingTree)
    for count, (low, high) in enumerate(result.intervals["t"], 1):
        nodes = count.bit_count()
        assert (high - low) / 2 == tree.widen(nodes * tree.vectors[0].variance, 0.95)
    mean = np.sqrt(
        2 / np.pi * tree.vectors[0].variance * np.array([n.bit_count() for n in range(1, 21)])
    ).mean()
    said = str(session.explain(BY_MU))
    assert f"Mean absolute error: t ±{mean:.4g}" in said
    assert "a step is in at most 13 of them" in said
    assert "20 days stored" in said


@pytest.mark.parametrize(("policy", "options", "note"), [
    (GAUSSIAN, "TREE, mu = 0.1", "TREE has less from 77 on"),
    (GAUSSIAN, "TREE", "TREE has less from 1,790 on"),
])  # fmt: skip
def test_a_note_says_when_even_would_err_less(morning: Open, policy: str, options: str, note: str) -> None:
    session = morning(5, policy)
    assert any(note in line for line in session.sql(TOTALS.replace("TREE", options)).notes)
    errors = {
        word: dict(e)
        for word, e in inside.planned(session, TOTALS.replace("TREE", options)).blocks[0].strategy.errors
    }  # type: ignore[union-attr]
    assert set(errors) == {"EVEN", "TREE"}
    assert all(errors["EVEN"][name] < errors["TREE"][name] for name in errors["EVEN"])
    later = morning(80, GAUSSIAN)
    assert not any("TREE has" in line for line in later.sql(BY_MU).notes)


def test_auto_keeps_parts(morning: Open) -> None:
    text = TOTALS.replace("WITH DP OPTIONS (strategy = TREE)", "WITH DP OPTIONS (mu = 0.1)")
    session = morning(12, GAUSSIAN)
    session.sql(BY_MU)
    assert cost(session, text) == "12 days new"
    assert cost(morning(13, GAUSSIAN), text) == "12 days stored, 1 new"


def test_drawn_anew_it_pays_anew(morning: Open) -> None:
    session = morning(4)
    session.sql(TOTALS)
    assert cost(session, TOTALS, fresh=True) == "4 days new"
    assert len(list_paid(session)) == 2


INNER = "(SELECT WITH DP OPTIONS (strategy = TREE) day, COUNT(*) AS n FROM visits {}GROUP BY day)"


def test_every_statement_over_the_block_reads_the_same_nodes(morning: Open) -> None:
    session = morning(6)
    session.sql(TOTALS)
    early = INNER.format("WHERE day < DATE '2024-02-02' ")
    for text, stored in (
        (
            f"SELECT day, SUM(n) OVER (ORDER BY day) AS t FROM {INNER.format('')} ORDER BY day DESC LIMIT 1",
            "6 days stored",
        ),
        (f"SELECT SUM(n) AS t FROM {early}", "3 days stored"),
        (
            f"SELECT day, SUM(n) OVER (ORDER BY day ROWS 1 PRECEDING) AS t FROM {early} ORDER BY day",
            "3 days stored",
        ),
    ):
        assert cost(session, text) == stored
    last = [sum(map(count_rows, range(n))) for n in (6, 3)]
    assert session.sql(f"SELECT SUM(n) AS t FROM {INNER.format('')}").dicts() == [{"t": last[0]}]
    assert session.sql(f"SELECT SUM(n) AS t FROM {early}").dicts() == [{"t": last[1]}]


def test_a_release_of_totals_is_refreshed(morning: Open) -> None:
    made = morning(3).sql(f"CREATE RELEASE totals AS {TOTALS}")
    session = morning(4)
    (row,) = session.sql("SHOW RELEASES").dicts()
    assert row["paid_until"] == "2024-02-01"  # though the new node is one of all four days
    again = session.sql("REFRESH RELEASE totals")
    assert again.cost_line.startswith("3 days stored, 1 new")
    assert again.dicts()[:3] == made.dicts()
    assert session.sql("SHOW RELEASES").dicts()[0]["paid_until"] == "2024-02-02"
    assert "no charge" in session.sql("REFRESH RELEASE totals").cost_line


# -- other shapes -----------------------------------------------------------------------------------------------------

OPEN = CLOSED.replace('"today"', '"today - 2 days"').replace('"closed"', '"yesterday"')
MISFITS = [
    (CLOSED, TOTALS.replace("GROUP BY day", "GROUP BY day, ward"), "it has one key", "leave strategy out"),
    (CLOSED, TOTALS.replace(" FROM visits", ", AVG(x) AS a FROM visits"), "counts and sums alone", "ask for the others apart"),
    (CLOSED, TOTALS.replace("day", "-epoch(day)"), "in their order", "leave strategy out"),
    (CLOSED, TOTALS.replace("day", "NULLIF(day, DATE '2024-01-31')"), "all days in their order", "leave strategy out"),
    (CLOSED, TOTALS.replace("GROUP", "WHERE day <> DATE '2024-01-31' GROUP"), "all days in their order", "leave strategy out"),
    (CLOSED, TOTALS.replace("GROUP", "WHERE day + 1 < DATE '2024-02-02' GROUP"), "all days in their order", "leave strategy out"),
    (CLOSED, TOTALS.replace("day", "date_trunc('month', day)"), "in their order", "leave strategy out"),
    (CLOSED, TOTALS.replace("TREE", "TREE, noise = 'gaussian', delta = 0.01"), "in full for each node", "noise = 'laplace'"),
    (OPEN, TOTALS, "closed days alone", "add the condition day < DATE '2024-02-03'."),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "text", "why", "hint"), MISFITS)
def test_what_no_tree_can_keep_is_refused_before_a_charge(
    morning: Open, policy: str, text: str, why: str, hint: str
) -> None:
    session = morning(6, policy)
    with pytest.raises(Error, match="TREE keeps running totals while days are added") as found:
        session.sql(text)
    assert why in str(found.value)
    assert hint in str(found.value.hint)
    assert not list_paid(session)


def test_the_condition_that_a_hint_adds_is_taken(morning: Open) -> None:
    session = morning(6, OPEN)
    text = TOTALS.replace("GROUP", "WHERE day < DATE '2024-02-03' GROUP")
    assert cost(session, text) == "4 days new"
    days = (datetime.datetime.now(datetime.UTC).date() - datetime.date(2024, 2, 3)).days
    assert cost(session, text.replace("DATE '2024-02-03'", f"CURRENT_DATE - {days}")) == "4 days stored"


@pytest.mark.parametrize(("policy", "more"), [
    (CLOSED, "WHERE day >= DATE '2024-01-31' "),
    (CLOSED.replace('"closed"', '"yesterday"').replace('closed_before = "today"\n', ""), ""),
])  # fmt: skip
def test_totals_of_other_days_are_drawn_as_a_whole(morning: Open, policy: str, more: str) -> None:
    session = morning(5, policy)
    line = cost(session, TOTALS.replace("GROUP", f"{more}GROUP"))
    assert "stored" not in line
    assert "new" not in line


def test_months_have_a_tree_of_fewer_levels(morning: Open) -> None:
    policy = CLOSED.replace("date_trunc('day', day)", "date_trunc('month', day)").replace(
        "max_rows = 40", "max_rows = 400"
    )
    text = "SELECT WITH DP OPTIONS (strategy = TREE) date_trunc('month', day) AS m, SUM(COUNT(*)) OVER (ORDER BY date_trunc('month', day)) AS t FROM visits WHERE day < DATE '{}' GROUP BY m"
    session = morning(35, policy)
    assert cost(session, text.format("2024-02-01")) == "1 month new"
    assert cost(session, text.format("2024-03-01")) == "1 month stored, 1 new"
    assert list_paid(session) == ["2024-01", "2024-01 to 2024-02"]
    assert [row["t"] for row in session.sql(text.format("2024-03-01")).dicts()] == [
        sum(map(count_rows, range(n))) for n in (2, 31)
    ]
    assert "at most 9 of them" in str(session.explain(text.format("2024-03-01")))
    with pytest.raises(Error, match="closed months alone") as found:
        session.sql(text.format("2024-03-02"))
    assert "day < DATE '2024-03-01'" in str(found.value.hint)


# -- crashes ----------------------------------------------------------------------------------------------------------


def test_a_kill_at_any_line_leaves_no_node_unpaid_and_no_stored_node_is_paid_again(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.killed_refresh", str(tmp_path), "tree", "90"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=Path(__file__).parents[2])
    found = json.loads(ran.stdout)
    assert found["lines"] > 1000
    assert min(found["untouched"], found["charged"], found["stored"]) > 1


def test_a_node_ends_with_each_period() -> None:
    for count in range(1, 300):
        parts, rest = [], count
        while rest:
            level = find_node_level(rest, 5)
            parts.append((rest - 2**level, rest))
            rest -= 2**level
        assert sorted(day for low, high in parts for day in range(low, high)) == list(range(count))
        assert len(parts) == (count % 16).bit_count() + count // 16
