"""The script that compares with other systems: its own rows, its own answers, its table. In the ordinary suite."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks import peers


def test_the_table_has_our_answers(tmp_path: Path) -> None:
    head, rule, line, *rest = peers.compare(tmp_path, []).splitlines()
    assert [cell.strip() for cell in head.strip("|").split("|")] == ["system", *peers.TRUTH]
    assert set(rule) == {"|", "-"}
    name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
    assert name.startswith("dpsql ")
    errors = [float(cell.partition(", ")[2].removesuffix(" %")) for cell in cells]
    assert errors[0] < 0.1
    assert errors[1] < 0.1
    assert 0.5 < errors[2] < 20, "of ten public groups, of which a person counts in all"
    assert 20 < errors[3] <= 100, "of private groups, of which a person counts in five"
    assert not any(rest)


def test_a_group_that_is_missing_is_an_error() -> None:
    truth = {1: 100.0, 2: 20.0}
    assert peers.measure_error([[[1, 100.0], [2, 20.0]], [[1, 100.0]]], truth) == 1 / 12
    assert peers.write_cell(None, truth) == "none"
