"""Help while one writes, in a real JupyterLab in headless Chromium: Tab, Shift-Tab, and the marked line of an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import lab

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(lab.CHROMIUM is None, reason="no Chromium"),
    pytest.mark.timeout(240),
]

CELLS = [
    "%load_ext dpsql",
    "%dpsql demo",
    "%%dpsql\nSELECT COUNT(*) AS n\nFROM nowhere",
    "%%dpsql\nSELECT WITH DP OPTIONS (max_rows_contributed = 5) COUNT(*) FROM visits AS v WHERE v.pl",
    "print(1",
    "%%dpsql --fresh\nselect count(*) as n from visits where age < 30",
]


@pytest.fixture(scope="module", params=["Light", "Dark"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A notebook of which three cells have run, the third one with an error."""
    pytest.importorskip("jupyterlab")
    api = pytest.importorskip("playwright.sync_api")
    home = tmp_path_factory.mktemp("lab")
    lab.write_notebook(home / "books" / "help.ipynb", CELLS)
    with lab.serve_lab(home, request.param) as place, lab.open_page(api, 1400, 900) as page:
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        lab.open_notebook(page, place, "help.ipynb")
        lab.run_cells(page, 3)
        yield page
        assert not problems


def edit(page: Any, number: int, keys: str) -> None:
    """Put the cursor into a cell and press keys."""
    page.click(f".jp-Notebook .jp-CodeCell >> nth={number} >> .cm-content")
    page.keyboard.press("Control+End")
    for key in keys.split():
        page.keyboard.press(key)


def test_the_line_of_an_error_is_marked_until_the_text_changes(page: Any) -> None:
    page.wait_for_selector("[data-dpsql-error]", timeout=10_000)
    assert page.locator("[data-dpsql-error]").all_inner_texts() == ["FROM nowhere"]
    paper = "getComputedStyle(document.querySelector('[data-dpsql-error]')).backgroundColor"
    assert page.evaluate(paper) not in ("rgba(0, 0, 0, 0)", "transparent")
    edit(page, 2, "Backspace")
    page.wait_for_function("!document.querySelector('[data-dpsql-error]')", timeout=5_000)


def test_tab_offers_the_columns_of_an_alias(page: Any) -> None:
    edit(page, 3, "")
    for _ in range(10):  # IPython's own first answer takes longer than JupyterLab waits
        page.keyboard.press("Tab")
        page.wait_for_timeout(1500)
        if page.locator(".jp-Completer-item").count():
            break
    offered = page.locator(".jp-Completer-item code").all_inner_texts()
    assert [text for text in offered if text.startswith("v.")] == ["v.plan", "v.plan_number"]
    page.keyboard.press("Escape")


def test_shift_tab_says_what_an_option_is(page: Any) -> None:
    page.click(".jp-CodeCell >> nth=3 >> text=max_rows_contributed")
    page.keyboard.press("Shift+Tab")
    page.wait_for_selector(".jp-Tooltip", timeout=15_000)
    assert "the most rows of one privacy unit in all" in page.inner_text(".jp-Tooltip")
    page.keyboard.press("Escape")


def test_the_words_that_would_be_refused_are_underlined_while_one_writes(page: Any) -> None:
    edit(page, 2, "")
    page.wait_for_function(
        "document.querySelector('[data-dpsql-problem]')?.innerText.startsWith('nowhere'.slice(0, 6))"
    )
    marked = page.locator("[data-dpsql-problem]").first
    assert "there is no table" in str(marked.get_attribute("title"))
    assert "wavy" in marked.evaluate("e => getComputedStyle(e).textDecorationStyle")
    page.keyboard.press("Control+Shift+ArrowLeft")
    page.keyboard.type("visits")
    page.wait_for_function("!document.querySelector('[data-dpsql-problem][title*=nowher]')", timeout=10_000)


def test_a_key_lays_out_the_cell_and_undo_takes_it_back(page: Any) -> None:
    text = (
        "() => [...document.querySelectorAll('.jp-CodeCell .cm-content')][5].cmView.view.state.doc.toString()"
    )
    before = page.evaluate(text)
    edit(page, 5, "")
    page.keyboard.press("Control+Shift+f")
    page.wait_for_function(f"({text})() !== {before!r}", timeout=10_000)
    assert page.evaluate(text) == "%%dpsql --fresh\nselect count(*) as n\nfrom visits\nwhere age < 30"
    page.keyboard.type("0")
    assert page.evaluate(text).endswith("age < 300"), "the cursor stays at its word"
    page.keyboard.press("Backspace")
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    assert page.evaluate(text) == before


def test_a_python_cells_error_marks_nothing(page: Any) -> None:
    edit(page, 4, "Shift+Enter")
    page.wait_for_selector(".jp-CodeCell >> nth=4 >> text=SyntaxError", timeout=15_000)
    assert page.locator("[data-dpsql-error]").count() == 0
