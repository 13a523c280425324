"""A newcomer's first hour with data of their own: the cells, mistakes included, and what must be on the page after each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb

POLICY = """%%writefile policy.toml
[budget]
epsilon = 1
delta = 1e-6
default_epsilon = 0.1
default_delta = 1e-8
max_epsilon_per_query = 0.5

[tables.rides]
source = "rides.parquet"
privacy_unit = "rider_id"
max_rows_per_group = 3
max_groups = 3

[tables.rides.columns]
day = { bounds = [2026-01-01, 2026-06-30] }
dock = { values = ["harbour", "market", "museum", "station", "university"] }
minutes = { bounds = BOUNDS }
paid = { bounds = [0, 20] }
"""
WRONG, RIGHT = POLICY.replace("BOUNDS", "[60, 0]"), POLICY.replace("BOUNDS", "[0, 60]")
CONNECT = "%dpsql connect --policy policy.toml"
COUNT = "%%dpsql\nSELECT COUNT(*) AS rides FROM rides"
PER_DOCK = "%%dpsql\nSELECT dock, AVG(minutes) AS minutes FROM rides GROUP BY dock ORDER BY minutes DESC"


@dataclass(frozen=True)
class Step:
    """A cell, words that its output must show, and words that it must not."""

    cell: str
    shows: tuple[str, ...] = ()
    hides: tuple[str, ...] = ("Traceback",)
    fails: bool = False


def step(cell: str, *shows: str, hides: str = "Traceback") -> Step:
    """Return a step that succeeds."""
    return Step(cell, shows, (hides,))


def mistake(cell: str, *shows: str) -> Step:
    """Return a step that fails, in at most a few lines and with something to type."""
    return Step(cell, shows, ("Traceback", ".py", "no charge"), fails=True)


BEGIN = (
    step("%load_ext dpsql", "%dpsql policy init", "%dpsql demo"),
    step("%dpsql", "%dpsql connect", "%dpsql budget"),
    mistake(COUNT, "BindError: no session is open yet.", "%dpsql connect"),
    mistake("%dpsql connect rides.parquet", "PolicyError", "%dpsql policy init rides.parquet -o policy.toml"),
    step("%dpsql policy init rides.parquet -o policy.toml", "policy.toml", "TODO"),
    step(
        "from pathlib import Path; print(Path('policy.toml').read_text())",
        "GUESS",
        'privacy_unit = "rider_id"',
        'bounds = "TODO"',
    ),
    step("%dpsql policy check policy.toml", "Missing", "max_rows is still TODO"),
    step(WRONG, "Overwriting policy.toml"),
    mistake(CONNECT, "PolicyError", "minutes", "bounds"),
    step(RIGHT, "Overwriting policy.toml"),
    step("%dpsql policy check policy.toml", "protects each rider_id", hides="Missing"),
    step(CONNECT, "rides · ε=1 of ε=1 left"),
)
ASK = (
    mistake("%%dpsql\nSELECT * FROM rides", "PrivacyError", "^", "Hint: "),
    mistake("%%dpsql\nSELECT COUNT(*) FROM ride", "no table ride", "did you mean rides?"),
    step(COUNT, "±", "95% interval", "cost ε=0.1", "ε=0.9 of ε=1 left"),
    step(COUNT, "±", "no charge"),
    mistake("%%dpsql\nSELCT COUNT(*) FROM rides", "ParseError", "SELECT"),
    mistake("%%dpsql\nSELECT AVG(minute) FROM rides", "did you mean minutes?"),
    step(PER_DOCK, "harbour", "university", "95% interval", "cost ε=0.1"),
    mistake('%%dpsql\nSELECT COUNT(*) AS n FROM rides WHERE dock = "market"', "market", "'market'"),
    mistake("%%dpsql\nSELECT COUNT(*) AS n FROM rides WHERE dock = $dock", "$dock has no value"),
    mistake("%%dpsql\nSELECT COUNT(*) AS n FROM rides WHERE dock = '{{dock}}'", "$dock"),
    step(
        "dock = 'market'\n%dpsql SELECT COUNT(*) AS n FROM rides WHERE dock = $dock", "±", "ε=0.7 of ε=1 left"
    ),
    step("%%dpsql --explain\nSELECT MEDIAN(minutes) AS middle FROM rides", "ε=0.1", "Nothing has been spent"),
    step(
        "%%dpsql\nout << SELECT WITH DP OPTIONS (epsilon = 0.2) electric, COUNT(*) AS n FROM rides GROUP BY electric"
    ),
    step("out", "true", "false", "±", "ε=0.5 of ε=1 left"),
    step("out.df()", "True", "False"),
    step(
        "%%dpsql\nSELECT electric, ROUND(100 * n / SUM(n) OVER ()) AS percent FROM out",
        "percent",
        "no charge",
    ),
    mistake(
        "%%dpsql\nSELECT COUNT(*) AS n FROM rides; SELECT rider_id FROM rides", "PrivacyError", "rider_id"
    ),
    mistake("%%dpsql\nSELECT WITH DP OPTIONS (epsilon = 0.7) COUNT(*) AS n FROM rides WHERE electric", "0.5"),
    mistake("%%dpsql --explian\nSELECT 1", "did you mean --explain?"),
    step("%dpsql budget", "ε=0.5 of ε=1 left", "released"),
)
HOUR = (*BEGIN, *ASK)
SPEND = step(
    "%%dpsql --epsilon 0.4\nSELECT SUM(paid) AS paid FROM rides",
    "±",
    "cost ε=0.4",
    "ε=0.1 of ε=1 left",
    hides="default",
)
OUT = mistake(
    "%%dpsql --epsilon 0.3\nSELECT AVG(paid) AS mean FROM rides", "BudgetExceeded", "ε=0.1", "would fit"
)


def write_rides(folder: Path) -> None:
    """Write the newcomer's own file, ``rides.parquet``: 12,000 made-up rides of a city's bicycles."""
    folder.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as con:
        con.execute(
            f"""COPY (
                SELECT CAST(hash(i * 8) % 3000 AS INTEGER) AS rider_id,
                    DATE '2026-01-01' + CAST(hash(i * 8 + 1) % 181 AS INTEGER) AS day,
                    ['harbour', 'market', 'museum', 'station', 'university'][1 + CAST(hash(i * 8 + 2) % 5 AS INTEGER)] AS dock,
                    CAST(3 + hash(i * 8 + 3) % 45 AS INTEGER) AS minutes,
                    ROUND((hash(i * 8 + 4) % 1200) / 100, 2) AS paid, hash(i * 8 + 5) % 3 = 0 AS electric
                FROM range(12000) AS t(i)
            ) TO '{folder / "rides.parquet"}' (FORMAT parquet)"""
        )
