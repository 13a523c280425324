"""Files of figures: what is written, and the script that compares two of them. In the ordinary suite."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks import compare
from tests.support.benchmarks import FILE, Benchmarks, Figure, divide_pairs


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two runs: one figure got better, one worse, one a little worse and misses its target; one is gone and one is new."""
    runs = (
        [("W1 rows", 2.0, 2.6), ("groups", 1.0, 1.5), ("blocks", 4.4, 4.5), ("gone", 1.0, None)],
        [("W1 rows", 1.0, 2.6), ("groups", 1.3, 1.5), ("blocks", 4.6, 4.5), ("new", 7.0, 6.0)],
    )
    for number, figures in enumerate(runs):
        monkeypatch.setenv(FILE, str(tmp_path / "build" / f"{number}.json"))
        for name, ratio, target in figures:
            Benchmarks().note(Figure(name, ratio, target))
    return tmp_path / "build" / "0.json", tmp_path / "build" / "1.json"


def test_two_runs_are_compared(files: tuple[Path, Path]) -> None:
    done = subprocess.run(
        [sys.executable, compare.__file__, *map(str, files)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    head, _, *lines = (line.split() for line in done.stdout.splitlines())
    assert head == ["name", "before", "after", "after/before", "target"]
    assert lines == [
        ["W1", "rows", "2", "1", "0.5", "2.6"],
        ["groups", "1", "1.3", "1.3", "1.5", "worse"],
        ["blocks", "4.4", "4.6", "1.05", "4.5", "missed"],
        ["gone", "1"],
        ["new", "7", "6", "missed"],
    ]


def test_nothing_is_worse_than_itself(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main(str(files[1]), str(files[1])) == 0
    assert "worse" not in capsys.readouterr().out


def test_a_record_says_what_it_was_measured_by(files: tuple[Path, Path]) -> None:
    record = json.loads(files[0].read_text().splitlines()[0])
    assert [*record] == [
        "name", "ratio", "target", "seconds", "plain", "unit", "rows", "threads", "python", "duckdb", "dpsql", "when",
    ]  # fmt: skip
    assert all(record[name] for name in ("threads", "python", "duckdb", "dpsql", "when"))


def test_other_lines_of_the_file_are_passed_over(tmp_path: Path) -> None:
    """Of the same file are records of growth and of memory, which have no ratio."""
    path = tmp_path / "mixed.json"
    path.write_text('{"name": "memory", "peak": 7}\n\n{"name": "a", "ratio": 3}\n{"name": "a", "ratio": 2}\n')
    assert [*compare.read_figures(path).values()] == [{"name": "a", "ratio": 2}]


def test_figures_of_one_name_are_told_apart_by_their_size(tmp_path: Path) -> None:
    path = tmp_path / "growth.json"
    sizes = ((10, 1, 5.0), (10, 2, 4.0), (20, 2, 3.0), (10, 2, 4.5))
    path.write_text(
        "\n".join(json.dumps({"name": "a", "ratio": x, "rows": n, "threads": t}) for n, t, x in sizes)
    )
    found = {name: record["ratio"] for name, record in compare.read_figures(path).items()}
    assert found == {"a, 10 rows, 1 threads": 5, "a, 10 rows, 2 threads": 4.5, "a, 20 rows, 2 threads": 3}


def test_the_table_has_targets_raw_figures_and_other_systems() -> None:
    made = Benchmarks()
    ratio = made.compare(
        "W2 by user", lambda: sum(range(2000)), lambda: sum(range(2000)), target=1.3, rows=10
    )
    assert made.figures[0].ratio == ratio > 0
    head, _, line = str(made).splitlines()
    assert head.split()[:6] == ["case", "figure", "target", "ours", "plain", "rows"]
    assert head.split()[6:] == ["SmartNoise", "OpenDP", "Qrlew"]
    assert line.endswith("10.3        14      9.4")
    assert "1.3" in line


def test_a_ratio_is_the_median_of_pairs() -> None:
    """The machine was slow during one pair: both sides were."""
    assert divide_pairs([2, 20, 4, 2, 3], [1, 10, 2, 2, 1]) == 2


@pytest.mark.parametrize(("ratio", "missed"), [(2.0, False), (2.1, True)])
def test_a_missed_target_is_marked(ratio: float, missed: bool) -> None:
    made = Benchmarks([Figure("a", ratio, 2.0)])
    assert ("missed" in str(made)) == missed
