"""Work that a unit of 100,000 rows can make the engine do in random statements is bounded: time and memory."""

from __future__ import annotations

import os

import pytest

from dpsql.binding.relations import fan_out, unit_rows
from dpsql.engine import sandbox
from tests.support.one_unit import Composer, Cost, Scales


def compose(seed: int) -> tuple[str, str]:
    return Composer(seed).statement(1 + seed % 3)


def weigh(scales: Scales, seeds: range, enough: float) -> tuple[list[Cost], list[Cost]]:
    """The answered compositions, by what the unit cost in time and in memory, the worst first."""
    costs = []
    for seed in seeds:
        text, plain = compose(seed)
        if scales.answered(text):
            costs.append(scales.cost(text, plain, enough))
    by_time = sorted(costs, key=lambda cost: -cost.milliseconds)
    return by_time, sorted(costs, key=lambda cost: -cost.mebibytes)


@pytest.fixture(scope="module")
def scales() -> Scales:
    return Scales()


def test_some_compositions_take_little_time_and_memory(scales: Scales) -> None:
    """The processor's time is compared, so that other work does not count, with room for a slow machine."""
    slow, large = weigh(scales, range(1000, 1010), 300)
    assert len(slow) > 4
    assert slow[0].milliseconds <= 300, slow[0]
    assert large[0].mebibytes <= 64, large[0]


# What the random compositions found, each with the bound that was missing.
FOUND = {
    "a unit's rows times public rows": "SELECT WITH DP COUNT(*) AS n FROM visits AS r1, range(10000) AS r2(i)",
    "rows that a fan-out made are sorted": "SELECT WITH DP s, MEDIAN(x, contribution_bounds_per_row => (0, 10)) AS n FROM "
    "(SELECT patient_id, r2.i AS x, s FROM visits AS r1, hundred AS r2) AS r3 GROUP BY s",
    "lists": "SELECT WITH DP COUNT(*) AS n FROM visits AS r1, UNNEST(li) AS r2(y)",
    "one unit's key is far from others": "SELECT WITH DP d, COUNT(*) AS n FROM (SELECT r1.patient_id, r1.d FROM visits AS r1 "
    "JOIN notes AS r2 USING (patient_id) JOIN visits AS r3 USING (patient_id)) AS r4 GROUP BY d",
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found(scales: Scales, name: str) -> None:
    cost = scales.cost(FOUND[name], "SELECT WITH DP d, COUNT(*) FROM visits GROUP BY d", 300)
    assert cost.milliseconds <= 300
    assert cost.mebibytes <= 64


def test_without_the_bounds_they_cost_more(scales: Scales, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the test above would fail."""
    monkeypatch.setattr(fan_out, "DEFAULT_MAX_UNIT_ROWS", 10**12)
    monkeypatch.setattr(unit_rows, "_UNCUT_ROWS", 1)
    text = FOUND["a unit's rows times public rows"].replace("COUNT(*)", "COUNT_IF(r1.x >= 0)")
    text = text.replace("10000", "4000")
    assert scales.cost(text, "SELECT WITH DP d, COUNT(*) FROM visits GROUP BY d", 1e9).milliseconds > 300
    monkeypatch.setitem(sandbox.SETTINGS, "perfect_ht_threshold", "22")
    wide = Scales()
    cost = wide.cost(
        FOUND["one unit's key is far from others"], "SELECT WITH DP d, COUNT(*) FROM visits GROUP BY d", 1e9
    )
    assert cost.mebibytes > 64


@pytest.mark.stochastic
@pytest.mark.timeout(3600)
def test_many_compositions_take_little_time_and_memory(scales: Scales) -> None:
    """Beyond what the unit's rows cost in the same statement over a table's own rows: 100 ms and 64 MiB at most.

    A window that sorts a unit's own rows, none of which meets another, takes some 2 microseconds for each: 300 ms.
    """
    slow, large = weigh(scales, range(int(os.environ.get("DPSQL_COMPOSITIONS", "500"))), 100)
    print(f"\n{len(slow)} answered")
    for cost in [*slow[:8], *large[:4]]:
        print(f"{cost.milliseconds:8.0f} ms {cost.mebibytes:5} MiB  {cost.text}")
    assert len(slow) >= 300
    assert [cost for cost in slow if cost.milliseconds > (300 if " OVER (" in cost.text else 100)] == []
    assert large[0].mebibytes <= 64
