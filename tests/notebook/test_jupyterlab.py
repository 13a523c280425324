"""The quick start in a real JupyterLab in headless Chromium, light and dark; where both are installed.

pip install jupyterlab playwright, and a Chromium on the path. DPSQL_SHOTS=folder keeps the pictures, to be looked at.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import lab

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(lab.CHROMIUM is None, reason="no Chromium"),
    pytest.mark.timeout(240),
]

LOOK = """() => {
    const light = text => { const [r, g, b] = text.match(/[\\d.]+/g).map(Number); return 0.3 * r + 0.6 * g + 0.1 * b; };
    const cells = [...document.querySelectorAll(".jp-CodeCell")].map(cell => ({
        text: cell.querySelector(".cm-content")?.innerText || "",
        marks: [...cell.querySelectorAll(".cm-content [data-dpsql]")].map(e => [e.innerText, getComputedStyle(e).color]),
    }));
    const paper = getComputedStyle(document.querySelector(".jp-Notebook")).backgroundColor;
    const ink = [...document.querySelectorAll("table.dpsql td, table.dpsql caption")].map(e => light(getComputedStyle(e).color));
    return { cells, paper: light(paper), ink };
}"""


@pytest.fixture(scope="module", params=["Light", "Dark"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The quick start as JupyterLab shows it, under one theme."""
    pytest.importorskip("jupyterlab")
    api = pytest.importorskip("playwright.sync_api")
    home = tmp_path_factory.mktemp("lab")
    (home / "books").mkdir()
    shutil.copy(ROOT / "notebooks" / "01_quickstart.ipynb", home / "books")
    with lab.serve_lab(home, request.param) as place, lab.open_page(api, 1200, 1600) as page:
        page.goto(f"{place}/lab/tree/01_quickstart.ipynb", wait_until="domcontentloaded", timeout=90_000)
        page.wait_for_selector("table.dpsql", timeout=90_000)
        page.wait_for_selector(".cm-content [data-dpsql]", timeout=30_000)
        if os.environ.get("DPSQL_SHOTS"):
            page.screenshot(path=Path(os.environ["DPSQL_SHOTS"]) / f"quickstart_{request.param}.png")
        yield {**page.evaluate(LOOK), "theme": request.param}


def test_the_colours_are_there_and_only_in_our_cells(seen: Any) -> None:
    ours = [cell for cell in seen["cells"] if cell["text"].startswith("%%dpsql")]
    others = [cell for cell in seen["cells"] if cell["text"] and not cell["text"].startswith("%%dpsql")]
    assert len(ours) > 1
    assert len(others) > 1
    for cell in ours:
        marked = dict(cell["marks"])
        assert "SELECT" in marked, "keywords are not names"
        assert marked["SELECT"] != marked["visits"], "keywords are not names"
    assert not any(cell["marks"] for cell in others)


def test_tables_can_be_read(seen: Any) -> None:
    assert (seen["paper"] > 230) == (seen["theme"] == "Light")
    assert len(seen["ink"]) > 5
    assert all(abs(ink - seen["paper"]) > 110 for ink in seen["ink"])
