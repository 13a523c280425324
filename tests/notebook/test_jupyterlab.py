"""A walk through a notebook in a real JupyterLab in headless Chromium, light and dark; where both are installed.

pip install jupyterlab playwright, and a Chromium on the path. DPSQL_SHOTS=folder keeps the pictures, to be looked at.
What each message and each mark says is tested without a browser: ``test_panel.py``, ``test_labextension.py``.
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

CELLS = [
    "%load_ext dpsql",
    "%dpsql demo",
    "%%dpsql\nSELECT WITH DP OPTIONS (epsilon = 0.5) plan, COUNT(*) AS n FROM visits GROUP BY plan",
    "%%dpsql\nSELECT COUNT(*) AS n\nFROM nowhere",
    "%%dpsql\nSELECT WITH DP OPTIONS (max_rows_contributed = 5) COUNT(*) FROM visits AS v WHERE v.pl",
    "%%dpsql --fresh\nselect count(*) as n from visits where age < 30",
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
def walk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """JupyterLab under one theme: an empty page, and the address of a folder with the quick start and a notebook of CELLS."""
    pytest.importorskip("jupyterlab")
    api = pytest.importorskip("playwright.sync_api")
    home = tmp_path_factory.mktemp("lab")
    lab.write_notebook(home / "books" / "walk.ipynb", CELLS)
    shutil.copy(ROOT / "notebooks" / "01_quickstart.ipynb", home / "books")
    with lab.serve_lab(home, request.param) as place, lab.open_page(api, 1400, 1600) as page:
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        yield page, place, request.param
        assert not problems


def test_the_quick_start_can_be_read_and_has_colours_in_our_cells_only(walk: Any) -> None:
    page, place, theme = walk
    page.goto(f"{place}/lab/tree/01_quickstart.ipynb", wait_until="domcontentloaded", timeout=90_000)
    page.wait_for_selector("table.dpsql", timeout=90_000)
    page.wait_for_selector(".cm-content [data-dpsql]", timeout=30_000)
    if os.environ.get("DPSQL_SHOTS"):
        page.screenshot(path=Path(os.environ["DPSQL_SHOTS"]) / f"quickstart_{theme}.png")
    seen = page.evaluate(LOOK)
    ours = [cell for cell in seen["cells"] if cell["text"].startswith("%%dpsql")]
    others = [cell for cell in seen["cells"] if cell["text"] and not cell["text"].startswith("%%dpsql")]
    assert len(ours) > 1
    assert len(others) > 1
    for cell in ours:
        marked = dict(cell["marks"])
        assert marked["SELECT"] != marked["visits"], "keywords are not names"
    assert not any(cell["marks"] for cell in others)
    assert (seen["paper"] > 230) == (theme == "Light")
    assert len(seen["ink"]) > 5
    assert all(abs(ink - seen["paper"]) > 110 for ink in seen["ink"])


def edit(page: Any, number: int) -> None:
    """Put the cursor at the end of a cell."""
    page.click(f".jp-Notebook .jp-CodeCell >> nth={number} >> .cm-content")
    page.keyboard.press("Control+End")


def test_help_while_one_writes_and_the_budget_beside_it(walk: Any) -> None:
    page, place, _ = walk
    lab.open_notebook(page, place, "walk.ipynb")
    page.keyboard.press("Alt+Shift+B")
    page.wait_for_selector(".dpsql-panel:focus", timeout=10_000)
    assert "No session of dpsql is open" in page.inner_text(".dpsql-panel")
    lab.run_cells(page, 4)

    # the line of an error is marked until the text changes, and words that would be refused are underlined
    page.wait_for_selector("[data-dpsql-error]", timeout=10_000)
    assert page.locator("[data-dpsql-error]").all_inner_texts() == ["FROM nowhere"]
    edit(page, 3)
    page.keyboard.press("Backspace")
    page.wait_for_function("!document.querySelector('[data-dpsql-error]')", timeout=5_000)
    page.wait_for_selector("[data-dpsql-problem]", timeout=20_000)
    assert "there is no table" in str(page.locator("[data-dpsql-problem]").first.get_attribute("title"))

    # Tab offers the columns of an alias, Shift-Tab says what an option is
    edit(page, 4)
    for _ in range(10):  # IPython's own first answer takes longer than JupyterLab waits
        page.keyboard.press("Tab")
        page.wait_for_timeout(1500)
        if page.locator(".jp-Completer-item").count():
            break
    offered = page.locator(".jp-Completer-item code").all_inner_texts()
    assert [text for text in offered if text.startswith("v.")] == ["v.plan", "v.plan_number"]
    page.keyboard.press("Escape")
    page.click(".jp-CodeCell >> nth=4 >> text=max_rows_contributed")
    page.keyboard.press("Shift+Tab")
    page.wait_for_selector(".jp-Tooltip", timeout=15_000)
    assert "the most rows of one privacy unit in all" in page.inner_text(".jp-Tooltip")
    page.keyboard.press("Escape")

    # a key lays out the cell
    edit(page, 5)
    page.keyboard.press("Control+Shift+f")
    text = "[...document.querySelectorAll('.jp-CodeCell .cm-content')][5].cmView.view.state.doc.toString()"
    laid = "%%dpsql --fresh\nselect count(*) as n\nfrom visits\nwhere age < 30"
    page.wait_for_function(f"{text} === {laid!r}", timeout=10_000)

    # the panel says what is left and what this cell costs, and a link of it leads to the cell that was charged
    page.wait_for_function(
        "document.querySelector('.dpsql-price').innerText.includes('Would cost ε=0.1;')", timeout=20_000
    )
    assert "ε=2.5 of ε=3 left" in page.inner_text(".dpsql-state")
    tree = page.locator(".dpsql-panel").aria_snapshot()
    assert 'meter "17% spent"' in tree
    assert 'link "SELECT WITH DP OPTIONS' in tree
    page.click(".dpsql-panel tbody a >> text=SELECT WITH DP OPTIONS")
    page.wait_for_function(
        "[...document.querySelectorAll('.jp-Notebook .jp-Cell')][2].classList.contains('jp-mod-active')",
        timeout=10_000,
    )
