"""Time and error beside other systems at equal guarantee, in one table: ``python tests/benchmarks/peers.py FOLDER``.

It makes an environment of Python for each system in the folder, with the newest version that installs, writes 200,000 rows of
20,000 people to a Parquet file there, and asks each system four questions three times. A system that does not install or does not
answer is listed with the reason. It takes ten minutes on two cores, and some 3 GB for the environments, which are used again.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

import dpsql
from tests.benchmarks import peer_answers

REQUIREMENTS: Mapping[str, Sequence[str]] = {
    "opendp": ("opendp[polars]",),
    "smartnoise": ("smartnoise-sql", "pyarrow"),
    "tumult": ("tmlt-analytics",),
    "pipelinedp": ("pipeline-dp", "pandas", "pyarrow"),
    "qrlew": ("pyqrlew", "duckdb", "sqlalchemy"),
    "diffprivlib": ("diffprivlib", "scikit-learn<1.6", "pandas", "pyarrow"),
}
"""What pip installs; diffprivlib 0.6.6 can't be imported with newer versions of scikit-learn."""
ROWS, PEOPLE = 200_000, 20_000
SECONDS = 240
"""The most seconds of one system; later questions have no answer."""
TRUTH = {
    "count": "SELECT NULL, COUNT(*) FROM visits",
    "mean": "SELECT NULL, AVG(amount) FROM visits",
    "sums": "SELECT c10, SUM(amount) FROM visits GROUP BY c10",
    "keys": "SELECT place, COUNT(*) FROM visits GROUP BY place",
}
"""The questions in plain SQL: all rows, an average, ten public groups and a thousand private ones."""
ASKED = {
    "count": "SELECT COUNT(*) FROM rows",
    "mean": "SELECT AVG(amount) FROM rows",
    "sums": "SELECT c10, SUM(amount) FROM sums GROUP BY c10",
    "keys": "SELECT WITH DP OPTIONS (delta = 1e-6) place, COUNT(*) FROM keys GROUP BY place",
}
POLICY = """
[budget]
epsilon = 1000
delta = 1e-3
default_epsilon = 1
{tables}
"""
TABLE = """
[tables.{name}]
source = "{path}"
privacy_unit = "{unit}"
{caps}
columns.amount.bounds = [0, 100]
columns.c10.values = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
"""
Line = Mapping[str, Any]
"""What one system answered to one question."""


def write_rows(path: Path) -> None:
    """Write the same rows on every machine: a few people have many of them, and a few places most."""
    with duckdb.connect(config={"threads": 1}) as con:
        con.execute("SELECT setseed(0.5)")
        con.execute(
            f"""COPY (SELECT range AS row_id, (pow(random(), 2) * {PEOPLE})::BIGINT AS user_id,
            (random() * 10)::BIGINT % 10 AS c10, (pow(random(), 3) * 1000)::BIGINT AS place,
            random() * random() * 100 AS amount FROM range({ROWS})) TO '{path}'"""
        )


def install(system: str, folder: Path) -> str:
    """Return the Python of a system's environment, made if it is not there; an empty text if it does not install."""
    python = folder / system / "bin" / "python"
    if not (folder / system / "ready").exists():
        made = [sys.executable, "-m", "venv", str(folder / system)]
        packages = [str(python), "-m", "pip", "install", "-q", *REQUIREMENTS[system]]
        for command in (made, packages):
            if subprocess.run(command, check=False, capture_output=True).returncode:
                return ""
        (folder / system / "ready").touch()
    return str(python)


def ask_system(python: str, system: str, path: Path) -> list[Line]:
    """Return a system's answers."""
    command = [python, peer_answers.__file__, system, str(path.resolve())]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
        cwd=path.parent,
    ) as process:
        try:
            said, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def ask_here(path: Path) -> list[Line]:
    """Return dpsql's answers, each drawn afresh."""
    caps = {
        name: f"max_rows_per_group = {peer_answers.ROWS}\nmax_groups = {most}"
        for name, most in peer_answers.GROUPS.items()
    }
    tables = "".join(
        TABLE.format(name=name, path=path, unit="user_id" if name in caps else "ROW", caps=caps.get(name, ""))
        for name in ("rows", *caps)
    )
    with dpsql.connect(policy=dpsql.Policy.loads(POLICY.format(tables=tables))) as session:
        lines = []
        for name, text in ASKED.items():
            seconds, answers = [], []
            for _ in range(peer_answers.TIMES):
                start = time.perf_counter()
                found = session.sql(text, fresh=True).fetchall()
                seconds.append(time.perf_counter() - start)
                answers.append([(row[0] if len(row) > 1 else None, row[-1]) for row in found])
            lines.append({"case": name, "seconds": seconds, "answers": answers, "failure": ""})
    return lines


def measure_error(answers: Iterable[Sequence[Sequence[Any]]], truth: Mapping[Any, float]) -> float:
    """Return the sum of all groups' errors as a part of the true total; a group that is missing is off by all of it.

    >>> round(measure_error([[(1, 90.0), (7, 3.0)]], {1: 100, 2: 20}), 3)
    0.25
    """
    parts = []
    for answer in answers:
        found = dict(map(tuple, answer))
        off = sum(abs(found.get(key, 0) - number) for key, number in truth.items())
        parts.append(off / sum(truth.values()))
    return statistics.fmean(parts)


def write_cell(line: Line | None, truth: Mapping[Any, float]) -> str:
    """Return the median time and the error of an answer for the table."""
    if line is None or not line["answers"]:
        return "none"
    error = measure_error(line["answers"], truth)
    return f"{statistics.median(line['seconds']) * 1e3:,.0f} ms, {error * 100:.2g} %"


def find_version(python: str, system: str) -> str:
    """Return the name and version of a system's package."""
    package = REQUIREMENTS[system][0].partition("[")[0]
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return f"{package} {subprocess.run([python, '-c', code], check=True, capture_output=True, text=True).stdout.strip()}"


def compare(folder: Path, systems: Iterable[str]) -> str:
    """Return the table in Markdown, with the failures below it."""
    path = folder / "visits.parquet"
    write_rows(path)
    with duckdb.connect() as con:
        con.execute(f"CREATE VIEW visits AS FROM '{path}'")
        truth = {name: dict(con.execute(text).fetchall()) for name, text in TRUTH.items()}
    lines = [f"| system | {' | '.join(TRUTH)} |", f"|{'---|' * (len(TRUTH) + 1)}"]
    failures = []
    for system in ("", *systems):
        python = sys.executable if not system else install(system, folder)
        if not python:
            failures.append(f"* {system} does not install on Python {sys.version.split()[0]}.")
            continue
        name = f"dpsql {dpsql.__version__}" if not system else find_version(python, system)
        found = {
            line["case"]: line for line in (ask_system(python, system, path) if system else ask_here(path))
        }
        lines.append(f"| {name} | {' | '.join(write_cell(found.get(case), truth[case]) for case in TRUTH)} |")
        failures += [
            f"* {name}, {case}: {line['failure']}" for case, line in found.items() if line["failure"]
        ]
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join([*lines, "", *failures])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    place = Path(sys.argv[1]).resolve()
    place.mkdir(parents=True, exist_ok=True)
    print(compare(place, sys.argv[2:] or REQUIREMENTS))
