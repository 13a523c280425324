"""The notebooks run in a real kernel, from top to bottom."""

from __future__ import annotations

import base64
import io
import os
import re
import runpy
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from matplotlib import image
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TWICE = [path for path in NOTEBOOKS if path.name < "04"]
"""The notebooks that a newcomer opens again; the others take long, and once is enough."""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder where somebody tried the demo, and then opens one notebook after another."""
    place = tmp_path_factory.mktemp("notebooks")
    demo(place)
    return place


def demo(place: Path) -> None:
    command = [sys.executable, "-m", "dpsql.cli", "demo"]
    done = subprocess.run(command, cwd=place, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "path", [*NOTEBOOKS, *reversed(TWICE)],
    ids=[path.stem for path in NOTEBOOKS] + [f"{path.stem}, once more" for path in reversed(TWICE)],
)  # fmt: skip
def test_a_notebook_runs(path: Path, folder: Path) -> None:
    """All in one folder, after the demo; and once more in another order, as on the next day."""
    run(path, folder)


def run(path: Path, place: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    stored = refusals(notebook)
    resources = {"metadata": {"path": str(place)}}
    NotebookClient(notebook, timeout=300, resources=resources).execute(env=environment())
    for cell in notebook.cells:
        expected = "raises-exception" in cell.metadata.get("tags", [])
        failed = cell.cell_type == "code" and any(o.output_type == "error" for o in cell.outputs)
        assert failed == expected, cell.source
    assert refusals(notebook) == stored, "the notebook shows sentences of before: make it again"


def refusals(notebook: nbformat.NotebookNode) -> list[str]:
    """Return what refused cells say; what is left of a budget depends on the day."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [o.evalue for o in outputs if o.output_type == "error" and o.ename != "BudgetExceeded"]


def test_what_notebooks_leave_is_ignored_by_git(folder: Path) -> None:
    """Run after the notebooks, which write where they are opened: a policy, its ledger, a report."""
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    patterns = [
        line.removeprefix("/notebooks/")
        for line in lines
        if line.startswith("/notebooks/") or "/" not in line[:-1]
    ]
    left = [f"{path.name}/" if path.is_dir() else path.name for path in folder.iterdir()]
    assert left
    assert not [name for name in left if not any(fnmatch(name, pattern) for pattern in patterns)]


def test_the_demo_runs_once_more(folder: Path) -> None:
    demo(folder)


def test_each_notebook_has_a_ledger_of_its_own() -> None:
    """So that they may be run in any order, and none spends what another needs."""
    named = re.compile(r"%dpsql (?:connect|demo)([^\\\n]*)")
    ledgers: dict[str, str] = {}
    for path in NOTEBOOKS:
        for line in named.findall("\n".join(c.source for c in nbformat.read(path, as_version=4).cells)):
            if "$address" in line:
                continue  # a server's, which has it
            ledger, policy = (re.search(rf"--{word} (\S+)", line) for word in ("ledger", "policy"))
            used = ledger[1] if ledger else f"{policy[1]}.ledger" if policy else "dpsql-demo.ledger"
            assert ledgers.setdefault(used, path.name) == path.name, used
    assert len(ledgers) == 12, ledgers


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


def pictures(path: Path) -> list[np.ndarray]:
    """The pictures of a notebook, as rows of red, green, blue and opacity between 0 and 1."""
    outputs = [o for c in nbformat.read(path, as_version=4).cells for o in c.get("outputs", [])]
    found = (o.data["image/png"] for o in outputs if "image/png" in o.get("data", {}))
    return [image.imread(io.BytesIO(base64.b64decode(text)), format="png") for text in found]


def contrast(picture: np.ndarray, page: float) -> float:
    """The least contrast of what is drawn with a page of this grey, as WCAG 2 has it."""
    drawn = picture[picture[..., 3] > 0.99][:, :3].astype(float)
    linear = np.where(drawn <= 0.04045, drawn / 12.92, ((drawn + 0.055) / 1.055) ** 2.4)
    lightness = np.append(linear @ (0.2126, 0.7152, 0.0722), ((page + 0.055) / 1.055) ** 2.4)
    high, low = np.maximum(lightness[:-1], lightness[-1]), np.minimum(lightness[:-1], lightness[-1])
    return float(((high + 0.05) / (low + 0.05)).min())


def test_plots_of_errors_are_readable_on_light_and_on_dark_pages() -> None:
    """Look for transparent grounds, and for contrast of all that is drawn with white and with near black."""
    drawn = pictures(ROOT / "notebooks" / "14_how_exact_is_it.ipynb")
    assert len(drawn) == 5
    for picture in drawn:
        assert picture[0, 0, 3] == 0
        assert contrast(picture, 1.0) > 3
        assert contrast(picture, 0.07) > 3
    white = pictures(ROOT / "notebooks" / "04_the_budget.ipynb")[0]
    assert contrast(white, 1.0) < 3, "the control: a white ground"


def test_notebooks_name_no_place_and_stay_small() -> None:
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert len(text) < 210_000, path.name
        assert "/tmp/" not in text, path.name
        assert str(ROOT) not in text, path.name
