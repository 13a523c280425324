"""The table of long tests: it names tests that exist, and leaves a short form of each kind in the default selection."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import LONG, find_long, read_long_tests

ROOT = Path(__file__).resolve().parents[1]
NAMES = read_long_tests(LONG.read_text(encoding="utf-8"))


def test_each_row_names_a_test_that_exists() -> None:
    for name in NAMES:
        path, test, *_ = f"{name}::".split("::")  # methods may be inherited
        source = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"(def|class) {test}\b" if test else "", source), name


@pytest.mark.parametrize("folder", sorted(p.name for p in (ROOT / "tests").iterdir() if p.is_dir()))
def test_each_folder_keeps_tests_in_the_default_selection(folder: str) -> None:
    """Folders of measurements alone have other marks."""
    if folder in ("benchmarks", "distributions", "support") or folder.startswith((".", "_")):
        return
    kept = [
        f"{path.relative_to(ROOT).as_posix()}::{name}"
        for path in (ROOT / "tests" / folder).rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M)
    ]
    assert any(NAMES.get(name, 1) for name in kept)


def test_short_forms_are_cases_from_the_whole_range() -> None:
    names = [f"tests/test_a.py::test_many[{i}]" for i in range(8)]
    kept = [
        not long
        for long in find_long(
            [*names, "tests/test_a.py::test_slow"], {names[0][:-3]: 4, "tests/test_a.py::test_slow": 0}
        )
    ]
    assert kept == [True, False, False, False, True, False, False, False, False]


def test_the_command_lines_of_the_pages_select_them(request: pytest.FixtureRequest) -> None:
    default = request.config.getini("addopts")[-1]
    assert default.startswith("not long and ")
    assert "pytest -m long" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert "pytest -m long" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
