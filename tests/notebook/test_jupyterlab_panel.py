"""The budget's panel in a real JupyterLab in headless Chromium, light and dark; where both are installed."""

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
    "%%dpsql\nSELECT WITH DP OPTIONS (epsilon = 0.5) plan, COUNT(*) AS n FROM visits GROUP BY plan",
    "%%dpsql\nSELECT COUNT(*) FROM visits WHERE age < 30",
    "print(1)",
]
CONTRAST = """() => {
    const rgb = text => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [[0.2126, r], [0.7152, g], [0.0722, b]].reduce((sum, [weight, c]) => {
        c /= 255; return sum + weight * (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4); }, 0);
    const panel = document.querySelector(".dpsql-panel"), paper = light(rgb(getComputedStyle(panel).backgroundColor));
    return [...panel.querySelectorAll("h2, p, th, td, a")].filter(e => e.innerText.trim()).map(e => {
        const ink = light(rgb(getComputedStyle(e).color));
        return [(Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05), e.innerText];
    });
}"""


@pytest.fixture(scope="module", params=["Light", "Dark"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A notebook of which three cells have run, with the panel open; the keyboard has done it all."""
    pytest.importorskip("jupyterlab")
    api = pytest.importorskip("playwright.sync_api")
    home = tmp_path_factory.mktemp("lab")
    lab.write_notebook(home / "books" / "panel.ipynb", CELLS)
    with lab.serve_lab(home, request.param) as place, lab.open_page(api, 1400, 900) as page:
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        lab.open_notebook(page, place, "panel.ipynb")
        page.keyboard.press("Alt+Shift+B")
        page.wait_for_selector(".dpsql-panel:focus", timeout=10_000)
        assert "No session of dpsql is open" in page.inner_text(".dpsql-panel")
        lab.run_cells(page, 3)
        page.wait_for_selector(".dpsql-panel meter", timeout=20_000)
        yield page
        assert not problems


def active(page: Any) -> int:
    """The number of the active cell."""
    return int(
        page.evaluate(
            "[...document.querySelectorAll('.jp-Notebook .jp-Cell')].findIndex(e => e.classList.contains('jp-mod-active'))"
        )
    )


def test_it_says_what_is_left_and_what_the_next_cell_costs(page: Any) -> None:
    page.wait_for_function(
        "document.querySelector('.dpsql-price').innerText.includes('Would cost ε=0.1;')", timeout=20_000
    )
    assert "ε=2.5 of ε=3 left" in page.inner_text(".dpsql-state")
    assert page.locator(".dpsql-panel tbody tr").count() == 1
    tree = page.locator(".dpsql-state details").first
    assert tree.locator("summary").inner_text().startswith("visits · private")
    tree.evaluate("element => { element.open = true; }")
    assert "0 to 65" in tree.inner_text()
    tree.evaluate("element => { element.open = false; }")


def test_the_price_follows_what_is_written_and_nothing_is_spent(page: Any) -> None:
    page.keyboard.press("Enter")
    page.keyboard.press("Control+End")
    page.keyboard.type(" AND age < ")
    page.wait_for_function("/Error: /.test(document.querySelector('.dpsql-price').innerText)", timeout=20_000)
    page.keyboard.type("40; SELECT WITH DP OPTIONS (epsilon = 0.7) AVG(age) FROM visits")
    page.wait_for_function(
        "document.querySelector('.dpsql-price').innerText.includes('would cost ε=0.8;')", timeout=20_000
    )
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowDown")
    page.wait_for_function(
        "document.querySelector('.dpsql-price').innerText.includes('asks nothing')", timeout=20_000
    )
    assert page.locator(".dpsql-panel tbody tr").count() == 1, "neither charges nor refusals"
    assert "ε=2.5 of ε=3 left" in page.inner_text(".dpsql-state")


def test_a_link_leads_to_its_cell_by_keyboard(page: Any) -> None:
    assert active(page) == 4
    page.keyboard.press("Alt+Shift+B")
    page.wait_for_selector(".dpsql-panel:focus", timeout=10_000)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText").startswith(
        "SELECT WITH DP OPTIONS (epsilon = 0.5) plan"
    )
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "one sees where the keyboard is"
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.closest('.jp-Notebook') !== null", timeout=10_000)
    assert active(page) == 2


def test_a_screen_reader_is_told(page: Any) -> None:
    tree = page.locator(".dpsql-panel").aria_snapshot()
    assert 'region "dpsql: budget, and the price of the cell"' in tree
    assert 'status "This cell"' in tree
    assert 'heading "Budget"' in tree
    assert 'meter "17% spent"' in tree
    assert 'columnheader "charge"' in tree
    assert 'cell "ε=0.5"' in tree
    assert 'link "SELECT WITH DP OPTIONS' in tree


def test_it_can_be_read(page: Any) -> None:
    found = page.evaluate(CONTRAST)
    assert len(found) > 8
    assert all(ratio >= 4.5 for ratio, _ in found), found
    assert page.evaluate("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('.dpsql-panel'))")


def test_another_kernel_is_another_budget_and_its_cells_are_found_by_their_text(page: Any) -> None:
    """Runs last: the kernel is restarted."""
    page.keyboard.press("Escape")
    page.keyboard.press("0")
    page.keyboard.press("0")
    page.click(".jp-Dialog .jp-mod-accept")
    page.wait_for_function(
        "document.querySelector('.dpsql-state').innerText.includes('No session')", timeout=30_000
    )
    lab.wait_for_kernel(page)
    lab.run_cells(page, 2)
    page.wait_for_selector(".dpsql-panel tbody a", timeout=20_000)
    page.click(".dpsql-panel tbody a")
    assert active(page) == 2
