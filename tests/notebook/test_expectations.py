"""Expectations of people who write SQL in notebooks: ``expectations.txt`` says what is checked, and by which tests.

A row without a test says why it is decided otherwise. Its parts are the list that this project began with, what a first day and
a hundredth ask for (compared with DuckDB's, OpenDP's, Tumult's and marimo's documentation), and front ends.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = [
    re.findall(r"(?m)^(\w.*?): (.*)\n((?:    .*\n)*)", part)
    for part in Path(__file__).with_name("expectations.txt").read_text(encoding="utf-8").split("\n== ")
]


@cache
def _tests(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    ("what", "tests"), [row[1:] for part in PARTS for row in part], ids=lambda text: text[:60]
)
def test_every_expectation_has_its_test(what: str, tests: str) -> None:
    assert what
    assert tests
    for how in map(str.strip, tests.splitlines()):
        if how.startswith("decided: "):
            assert len(how) > 30, "a decision needs its reason"
            continue
        file, _, name = how.partition("::")
        assert name in _tests(file), how
        assert name.startswith("test_"), how


def test_the_table_is_whole() -> None:
    first, second, front_ends = ([number for number, *_ in part] for part in PARTS)
    assert first == [str(number) for number in range(1, 67)]
    assert second == [str(number) for number in range(1, 43)]
    assert len(front_ends) == 5
    assert sum("decided: " in tests for *_, tests in PARTS[0]) == 2
