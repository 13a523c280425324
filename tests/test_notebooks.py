"""The notebooks run in a real kernel, from top to bottom."""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, resources=resources).execute(env=environment)
    for cell in notebook.cells:
        expected = "raises-exception" in cell.metadata.get("tags", [])
        failed = cell.cell_type == "code" and any(o.output_type == "error" for o in cell.outputs)
        assert failed == expected, cell.source


def test_the_quick_start_is_the_demo() -> None:
    made: Any = runpy.run_path(str(ROOT / "notebooks" / "make_quickstart.py"))["notebook"]()
    stored = nbformat.read(ROOT / "notebooks" / "01_quickstart.ipynb", as_version=4)
    told = [(c.cell_type, c.source, c.metadata.get("tags", [])) for c in stored.cells]
    assert told == [(c.cell_type, c.source, c.metadata.get("tags", [])) for c in made.cells]


SOURCES = sorted((ROOT / "notebooks" / "sources").glob("*.md"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_is_its_source(source: Path) -> None:
    made: Any = runpy.run_path(str(ROOT / "notebooks" / "make_more.py"))["notebook"](source)
    stored = nbformat.read(ROOT / "notebooks" / f"{source.stem}.ipynb", as_version=4)
    assert [(c.cell_type, c.source) for c in stored.cells] == [(c.cell_type, c.source) for c in made.cells]
    assert any(o.output_type == "display_data" for c in stored.cells for o in c.get("outputs", [])), (
        "pictures"
    )


def test_notebooks_name_no_place_and_stay_small() -> None:
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert len(text) < 200_000 and "/tmp/" not in text and str(ROOT) not in text, path.name
