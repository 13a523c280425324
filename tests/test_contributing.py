"""CONTRIBUTING.md: short, its map as the folders' docstrings have it, and its paths and commits as the repository has them."""

from __future__ import annotations

import re
import tomllib
import warnings
from pathlib import Path

import pytest

from notebooks.make_map import update_page
from tests.support.own_process import run_python

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CHANGES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_page_is_short():
    assert len(PAGE.encode()) <= 7000


def test_the_map_does_not_drift():
    assert update_page(PAGE) == PAGE, "run python notebooks/make_map.py"


def test_the_map_shows_a_changed_docstring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "dpsql" / "new"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text('"""The ``new`` folder.\n\nMore.\n"""\n')
    monkeypatch.setattr("notebooks.make_map.ROOT", tmp_path)
    assert "| `new/` | The `new` folder |" in update_page(PAGE)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+(?:\.\w+|/))`", PAGE))))
def test_paths_exist(path: str):
    assert any((place / path).exists() for place in (ROOT, ROOT / "dpsql")), path


@pytest.mark.parametrize(
    "release", re.split(r"^## ", CHANGES, flags=re.M)[1:], ids=lambda text: text.split("\n")[0]
)
def test_a_release_is_a_short_list_of_lines(release: str):
    title, *lines = release.strip().splitlines()
    assert re.fullmatch(r"\[(Unreleased|\d+\.\d+\.\d+(rc\d+)?)\]", title)
    assert sum(line.startswith("* ") for line in lines) <= 40
    assert not [line for line in lines if line.startswith("  ")], "an entry is one line"
    heads = [line.removeprefix("### ") for line in lines if line.startswith("### ")]
    assert heads == ["Privacy", "Added", "Changed", "Fixed"]


def test_continuous_integration_installs_every_lower_bound():
    made = run_python(str(ROOT / ".ci" / "bounds"), check=True)
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert {one.split(",")[0].replace(">=", "==") for one in asked} <= {*made.stdout.split()}
    assert (
        ".ci/bounds >bounds.txt && .venv/bin/pip install -q -c bounds.txt"
        in (ROOT / ".ci" / "run").read_text()
    )


@pytest.mark.parametrize("kind", [DeprecationWarning, PendingDeprecationWarning, FutureWarning])
def test_warnings_of_upcoming_versions_are_errors(kind: type[Warning]):
    with pytest.raises(kind):
        warnings.warn_explicit("this will go", kind, "dpsql/engine/duckdb.py", 1, "dpsql.engine.duckdb")
