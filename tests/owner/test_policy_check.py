"""The counts of ``dpsql policy check --data`` for the owner, compared with the same counts in Python."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.owner.policy_check import check_policy

POLICY = """
[budget]
epsilon = 1
delta = 1e-6
[tables.trips]
source = "trips.parquet"
privacy_unit = "tail"
max_rows = {rows}
max_groups = {groups}
[tables.trips.columns]
fare = {{ bounds = [0, 9.5] }}
day = {{ bounds = [2025-01-01, 2025-01-31] }}
city = {{ values = ["A", "B", "it's"] }}
gate = {{ values = [1, 2] }}
"""


@pytest.fixture
def trips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    monkeypatch.chdir(tmp_path)
    with duckdb.connect() as con:
        made = con.sql(
            "SELECT CASE WHEN i % 10 = 0 THEN NULL ELSE 't' || floor(sqrt(i)) END AS tail, "
            "CASE WHEN i % 7 = 0 THEN NULL ELSE (i % 25) / 2.0 - 1 END AS fare, "
            "TIMESTAMP '2024-12-30 12:00:00' + INTERVAL (i % 40) DAY AS day, "
            "CASE i % 5 WHEN 0 THEN 'A' WHEN 1 THEN 'B' WHEN 2 THEN 'it''s' WHEN 3 THEN 'a' ELSE NULL END AS city, "
            "i % 3 AS gate FROM range(400) AS t(i)"
        )
        made.write_parquet("trips.parquet")
        return made.fetchall()


@pytest.mark.parametrize(("rows", "groups"), [(5, 1), (5, 2), (1, 2), (100, 3)])
def test_counts_are_exact(trips: list[tuple[object, ...]], rows: int, groups: int) -> None:
    Path("p.toml").write_text(POLICY.format(rows=rows, groups=groups))
    said = check_policy("p.toml", rows=True).counted
    assert "trips: 40 of 400 rows (10%) have no tail: they are in no answer" in said
    of_units = Counter(row[0] for row in trips if row[0] is not None)
    above = [n for n in of_units.values() if n > rows]
    left_out = sum(n - rows for n in above)
    (line,) = [text for text in said if "more than max_rows" in text]
    assert line.startswith(
        f"trips: {len(above)} of {len(of_units)} units have more than max_rows = {rows} rows; without groups"
    )
    assert f" {left_out} of 360 rows " in line
    cells = Counter((row[0], row[3]) for row in trips if row[0] is not None and row[3] in ("A", "B", "it's"))
    kept: Counter[object] = Counter()
    many: Counter[object] = Counter()
    for (unit, _), n in cells.items():
        kept[unit] += n
        many[unit] += 1
    lost = sum(cells.values()) - sum(min(n, rows) for n in kept.values())
    (line,) = [text for text in said if text.startswith("trips by city")]
    assert (
        f"{sum(n > groups for n in many.values())} of {len(many)} units are in more than max_groups = {groups}"
        in line
    )
    assert f" {lost} of {sum(cells.values())} rows " in line
    assert f"noise of about ±{3 * rows} at ε=1" in line


def test_values_that_do_not_fit_are_told_apart_from_nulls(trips: list[tuple[object, ...]]) -> None:
    Path("p.toml").write_text(POLICY.format(rows=5, groups=2))
    said = check_policy("p.toml", rows=True).counted
    fares = [float(str(row[1])) for row in trips if row[1] is not None]
    wrong = sum(not 0 <= fare <= 9.5 for fare in fares)
    assert any(
        t.startswith(f"trips.fare: {wrong} of {len(fares)} values ") and "outside of 0 to 9.5" in t
        for t in said
    )
    days = sum(not "2025-01-01" <= str(row[2]) <= "2025-01-31 00:00:00" for row in trips)
    assert any(text.startswith(f"trips.day: {days} of 400 values ") for text in said)
    assert any(
        text.startswith("trips.city: 80 of 320 values (25%) are not among the declared") for text in said
    )
    gates = sum(row[4] == 0 for row in trips)
    assert any(text.startswith(f"trips.gate: {gates} of 400 values ") for text in said)
    others = next(text for text in said if "other caps" in text)
    assert "above 1, with noise of about ±3 at ε=1" in others


def test_rows_are_counted_along_a_path(trips: list[tuple[object, ...]]) -> None:
    """Both halves of each cap are shown where a path leads to the unit: rows that are lost, and noise that is added."""
    duckdb.sql(
        "SELECT DISTINCT tail, 'o' || CAST(hash(tail) % 5 AS VARCHAR) AS owner FROM 'trips.parquet'"
    ).write_parquet("planes.parquet")
    owners = dict(duckdb.sql("SELECT tail, owner FROM 'planes.parquet' WHERE tail IS NOT NULL").fetchall())
    Path("p.toml").write_text(
        '[budget]\nepsilon = 1\n[tables.planes]\nsource = "planes.parquet"\nprivacy_unit = "owner"\nmax_rows = 9\n'
        '[tables.trips]\nsource = "trips.parquet"\nprivacy_unit = "tail -> planes.tail, owner"\nmax_rows = 7\n'
    )
    of_units = Counter(owners[row[0]] for row in trips if row[0] is not None)
    lost = sum(max(0, n - 7) for n in of_units.values())
    (line,) = [
        text
        for text in check_policy("p.toml", rows=True).counted
        if text.startswith("trips: ") and "max_rows = 7" in text
    ]
    assert f" {lost} of 360 rows " in line
    assert "noise of about ±21 at ε=1" in line


def test_a_policy_that_fits_is_told_nothing(trips: list[tuple[object, ...]]) -> None:
    text = POLICY.format(rows=1000, groups=3).partition("[tables.trips.columns]")[0]
    Path("p.toml").write_text(text)
    (line,) = [text for text in check_policy("p.toml", rows=True).counted if "more than max_rows" in text]
    assert line.startswith("trips: 0 of 19 units")
    assert check_policy("p.toml").counted == []


def test_what_the_ledger_refuses_is_said_before_anybody_asks(trips: list[tuple[object, ...]]) -> None:
    text = POLICY.format(rows=5, groups=2)
    Path("p.toml").write_text(text)
    with dpsql.connect(policy="p.toml"):
        pass
    assert not [line for line in check_policy("p.toml").advice if "ledger" in line]
    Path("p.toml").write_text(text.replace("epsilon = 1", "epsilon = 3"))
    (line,) = [line for line in check_policy("p.toml").advice if "ledger" in line]
    assert "the budget was \u03b5=1 and is now \u03b5=3" in line
    assert "dpsql ledger adopt --policy p.toml;" in line


@pytest.mark.parametrize(
    ("budget", "share", "told"),
    [
        ("epsilon = 1", "epsilon = 0.6", True),
        ("epsilon = 1", "epsilon = 0.5", False),
        ("mu = 1", "mu = 0.7", False),
        ("mu = 1", "mu = 0.8", True),
    ],
)
def test_shares_beyond_the_whole_are_told(
    trips: list[tuple[object, ...]], budget: str, share: str, told: bool
) -> None:
    shares = "".join(f"[analysts.{name}]\n{share}\n" for name in ("ana", "ben"))
    Path("p.toml").write_text(
        POLICY.format(rows=5, groups=2).replace("epsilon = 1\n", f"{budget}\n") + shares
    )
    assert any("add up to more than the whole" in line for line in check_policy("p.toml").advice) == told


def test_a_budget_per_period_is_said_with_tables_that_all_periods_pay_for(
    trips: list[tuple[object, ...]],
) -> None:
    text = POLICY.format(rows=5, groups=2).replace("epsilon = 1\n", "epsilon = 1\nper_period = true\n")
    dated = """privacy_unit = "tail"
privacy_period = "date_trunc('month', day)"
data_from = 2025-01-01
data_until = "yesterday\""""
    whole = '[tables.whole]\nsource = "trips.parquet"\nprivacy_unit = "tail"\nmax_rows = 5\n'
    Path("p.toml").write_text(text.replace('privacy_unit = "tail"', dated) + whole)
    found = check_policy("p.toml")
    assert found.declared[0].endswith(", for each period")
    assert any(line.endswith("; data from 2025-01-01 to yesterday") for line in found.declared)
    assert [line for line in found.advice if "charged to all periods" in line] == [
        "whole: without privacy_period every statement that reads it is charged to all periods, also later ones."
    ]
    assert not found.missing
    Path("p.toml").write_text(text.replace('privacy_unit = "tail"', dated.replace("day)", "city)")))
    assert check_policy("p.toml").missing == [
        "trips: a budget per period needs a DATE or a TIMESTAMP, and city is VARCHAR."
    ]


def test_columns_that_the_policy_does_not_name(trips: list[tuple[object, ...]]) -> None:
    text = POLICY.format(rows=5, groups=2)
    Path("p.toml").write_text(text.replace('city = { values = ["A", "B", "it\'s"] }', ""))
    assert "  not in the policy, but open to statements: city" in check_policy("p.toml").declared
    Path("t.csv").write_text("tail,fare,late\na,1,2\n")
    typed = (
        '[tables.trips.columns]\ntail = { type = "VARCHAR" }\nfare = { type = "DOUBLE", bounds = [0, 9] }\n'
    )
    Path("p.toml").write_text(
        text.partition("[tables.trips.columns]")[0].replace("trips.parquet", "t.csv") + typed
    )
    assert any(
        line.startswith("trips: late: in t.csv but not in the policy")
        for line in check_policy("p.toml").advice
    )


LINES = 'unit = { type = "BIGINT" }\nx = { type = "BIGINT" }\n'


@pytest.mark.parametrize(
    ("name", "line", "said"),
    [
        ("a.jsonl", "unit,x", "none of the {} a.jsonl is a JSON object"),
        ("a.jsonl", "[1, 2]", "a.jsonl looks like one array"),
        ("a.jsonl", "\x00\xff\x01", "none of the {} a.jsonl is a JSON object"),
        ("a.jsonl", '{{"x": {0}}}', "v.unit is in the policy but not in a.jsonl. There is x."),
        (
            "a.jsonl.gz",
            '{{"x": {0}}}',
            "none of the first 100 records of a.jsonl.gz has unit, the privacy unit's column.",
        ),
        ("a.jsonl", "", "a.jsonl is empty."),
    ],
)
@pytest.mark.parametrize("rows", [False, True])
def test_json_without_a_unit_is_said_and_opens(
    tmp_path: Path, name: str, line: str, said: str, rows: bool
) -> None:
    data = "".join(f"{line.format(i)}\n" for i in range(50) if line).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    head = f"[budget]\nepsilon = 1e9\ndefault_epsilon = 1e6\n[tables.v]\nsource = '{name}'\nprivacy_unit = 'unit'\nmax_rows = 2\n"
    (tmp_path / "p.toml").write_text(f"{head}[tables.v.columns]\n{LINES}")
    found = check_policy(tmp_path / "p.toml", rows=rows)
    assert any(
        said.format("rows of" if rows else "first 10,000 rows of") in text for text in found.missing
    ), found
    assert not any("There is json" in text for text in found.missing)
    assert "Nothing is missing" not in str(found)
    if rows and line:
        assert any("(100%) have no unit: they are in no answer" in text for text in found.counted)
    with dpsql.connect(policy=tmp_path / "p.toml") as session:
        assert session.sql("SELECT COUNT(*) FROM v").fetchone() == (0,)
