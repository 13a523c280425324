# ruff: noqa: E501 - statements are easier to read when each has one line
"""A simulated year: rows are appended every night, and the same statements are asked every morning.

Each pair of a person and a day loses no more than the budget, by a fold of the log that shares no code with the ledger's; no
statement is refused; each day pays for one drawing of each statement. Without a budget per period the same mornings end soon.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.errors import BudgetExceeded
from dpsql.privacy.events import Event, compose_events
from dpsql.privacy.filters import ACCOUNTANTS
from dpsql.session.session import Session

POLICY = """
[budget]
epsilon = 1
delta = 1e-5
accountant = "{}"
default_epsilon = 0.07
per_period = true
[tables.visits]
privacy_unit = "pid"
privacy_period = "date_trunc('day', day)"
data_from = 2024-01-01
data_until = "closed"
closed_before = "today"
max_rows = 3
max_rows_per_group = 2
columns.ward.values = ["a", "b"]
columns.x.bounds = [0, 100]
"""
DATED = (
    "per_period = true\n",
    "data_from = 2024-01-01\n",
    'data_until = "closed"\n',
    'closed_before = "today"\n',
)
FIRST = datetime.date(2024, 1, 1)
MONTH = "WHERE day >= DATE '{before}' AND day < DATE '{month}'"
STATEMENTS = [
    "SELECT day, COUNT(*) AS n FROM visits GROUP BY day ORDER BY day",
    "SELECT day, ward, COUNT(*) AS n FROM visits GROUP BY ALL",
    "SELECT day, SUM(x) AS s FROM visits GROUP BY day",
    "SELECT day, AVG(x) AS a FROM visits WHERE ward = 'a' GROUP BY day",
    "SELECT year(day) AS y, month(day) AS m, day(day) AS d, COUNT(DISTINCT pid) AS n FROM visits GROUP BY ALL",
    "SELECT date_trunc('week', day) AS w, SUM(n) AS n FROM (SELECT WITH DP day, COUNT(*) AS n FROM visits WHERE x > 50 GROUP BY day) GROUP BY w",
    "SELECT day, SUM(n) OVER (ORDER BY day) AS t FROM (SELECT WITH DP day, COUNT(*) AS n FROM visits GROUP BY day) ORDER BY day DESC LIMIT 1",
    "SELECT day, COUNT(*) AS n FROM visits GROUP BY day HAVING COUNT(*) > 10",
    "SELECT day, COUNT(*) AS n FROM visits WHERE day >= DATE '{week}' GROUP BY day",
    "SELECT date_trunc('month', day) AS m, MEDIAN(x) AS x FROM visits WHERE day < DATE '{month}' GROUP BY m",
    f"SELECT WITH DP OPTIONS (delta = 1e-6) x % 5 AS k, COUNT(*) AS n FROM visits {MONTH} GROUP BY k",
    f"SELECT ward, STDDEV(x) AS s FROM visits {MONTH} GROUP BY ward",
]  # fmt: skip
DRAWN = 9
"""Statements that pay for each day: three are answered from another's parts."""


def append(con: duckdb.DuckDBPyConnection, night: int) -> None:
    day = FIRST + datetime.timedelta(days=night)
    row = f"(i * 31 + {night}) % 400 AS pid, DATE '{day}' AS day, ['a', 'b'][1 + i % 2] AS ward, (i * 7 + {night}) % 100 AS x"
    con.execute(f"INSERT INTO visits SELECT {row} FROM range(60) AS r(i)")


def start(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE visits(pid BIGINT, day DATE, ward VARCHAR, x BIGINT)")


def mornings(con: duckdb.DuckDBPyConnection, nights: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Append each night's rows, and yield on the morning after."""
    for night in range(nights):
        append(con, night)
        monkeypatch.setattr(dpsql.Policy, "today", FIRST + datetime.timedelta(days=night + 1))
        yield night + 1


def list_statements(morning: int, statements: list[str]) -> list[str]:
    """Return the statements of a morning, with the first days of the last week and month; those of months from the second on."""
    today = FIRST + datetime.timedelta(days=morning)
    month = today.replace(day=1)
    before = (month - datetime.timedelta(days=1)).replace(day=1)
    asked = statements if month > FIRST else [text for text in statements if "month}" not in text]
    return [
        text.format(month=month, before=before, week=today - datetime.timedelta(days=7)) for text in asked
    ]


def project(body: Mapping[str, Any], day: int) -> Iterator[Event]:
    """Yield the parts of an event that a unit of a day may lose, from its JSON."""
    if body["kind"] == "dated":
        inside = any(low <= day < high for low, high in body["periods"])
        yield from project(body["event"], day) if inside else ()
    elif body["kind"] == "composed":
        for part in body["events"]:
            yield from project(part, day)
    else:
        yield Event.from_json(body)


def fold(session: Session, nights: int) -> dict[int, list[list[Event]]]:
    """Return what each day lost, statement by statement."""
    days = {FIRST.toordinal() + night: [] for night in range(nights)}
    for entry in session.ledger():
        assert entry.outcome == "released"
        body: Any = entry.event.to_json()
        for day, lost in days.items():
            if parts := [*project(body, day)]:
                lost.append(parts)
    return days


def simulate(
    nights: int, accountant: str, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> dict[int, list[list[Event]]]:
    """Ask every morning, check each day's loss against the budget, and return it."""
    with duckdb.connect() as con:
        start(con)
        opened: Session | None = None
        for morning in mornings(con, nights, monkeypatch):
            opened = opened or dpsql.connect(con, policy=dpsql.Policy.loads(POLICY.format(accountant)))
            for text in list_statements(morning, statements):
                opened.sql(text)
        held, found = opened.account.accountant, fold(opened, nights)
        for events in found.values():
            spent = held.start
            for parts in events:
                event = compose_events(parts)
                assert held.admits(spent, event)
                spent = held.add(spent, event)
        stretches = opened.budget().stretches
        opened.close()
    for state in stretches:
        lost = found[state.days[0][0]]
        assert state.spent_epsilon == sum(compose_events(parts).basic[0] for parts in lost)
    return found


def test_a_month_of_mornings(monkeypatch: pytest.MonkeyPatch) -> None:
    found = simulate(8, "basic", STATEMENTS[:1], monkeypatch)
    assert [len(lost) for lost in found.values()] == [1] * 8


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_a_year_of_mornings(accountant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some months under the first accountant and two under the others; DPSQL_NIGHTS=366 makes a year of each."""
    nights = int(os.environ.get("DPSQL_NIGHTS", "70" if accountant == next(iter(ACCOUNTANTS)) else "35"))
    found = simulate(nights, accountant, STATEMENTS, monkeypatch)
    last_month = (FIRST + datetime.timedelta(days=nights)).replace(day=1).toordinal()
    for day, lost in found.items():  # the statements of whole months come a month later
        assert len(lost) == (DRAWN if day < last_month else DRAWN - 3)


def test_without_a_budget_per_period_the_mornings_end(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = POLICY.format("basic")
    for line in DATED:
        policy = policy.replace(line, "")
    grouped = STATEMENTS[0].replace("SELECT", "SELECT WITH DP OPTIONS (delta = 1e-7)")
    with duckdb.connect() as con:
        start(con)
        with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as session:
            asked = 0
            with pytest.raises(BudgetExceeded):
                for _ in mornings(con, 30, monkeypatch):
                    session.sql(grouped, fresh=True)
                    asked += 1
    assert asked == 14


TREE = "SELECT WITH DP OPTIONS (strategy = TREE, mu = 0.1) day, SUM(COUNT(*)) OVER (ORDER BY day) AS t FROM visits GROUP BY day"


@pytest.mark.parametrize(("accountant", "nights"), [("gdp", 20), ("gdp", 130), ("rdp", 130)])
def test_a_growing_tree_pays_for_one_drawing_of_each_day(
    accountant: str, nights: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A morning draws one node, of the days that it closes: in each, all nodes together lose no more than the statement may."""
    found = simulate(nights, accountant, [TREE], monkeypatch)
    nodes = [(count - (count & -count), count) for count in range(1, nights + 1)]
    slack = 1 + Fraction(1, 10**8)  # losses are rounded up
    for number, lost in enumerate(found.values()):
        assert len(lost) == sum(low <= number < high for low, high in nodes) <= 8
        event = compose_events(part for parts in lost for part in parts)
        assert event.mu**2 <= Fraction(len(lost), 13) * Fraction("0.01") * slack
        for order in map(Fraction, (2, 16, 64)):
            assert event.renyi(order) <= order * Fraction(len(lost), 13) * Fraction("0.005") * slack
    first = next(iter(found.values()))  # in one node of each level so far
    assert len(first) == nights.bit_length()
    lost = compose_events(part for parts in first for part in parts)
    assert lost.mu**2 * slack >= Fraction(len(first), 13) * Fraction("0.01")
