"""A newcomer's first hour with a Parquet file of their own: cell by cell, and in a real JupyterLab in headless Chromium.

The second needs both: pip install jupyterlab playwright, and a Chromium on the path. DPSQL_SHOTS=folder keeps the pictures, to be
looked at. In JupyterLab a short form of it is run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from tests.support import lab, newcomer
from tests.support.newcomer import Step


def look(step: Step, text: str, failed: bool) -> None:
    """Check what stands below a step's cell."""
    assert failed == step.fails, (step.cell, text)
    for words in step.shows:
        assert words in text, (step.cell, text)
    for words in step.hides:
        assert words not in text, (step.cell, text)
    assert not step.fails or len(text.splitlines()) <= 6, text


def test_every_cell_of_the_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run without a page: the cells and what they show in a terminal, until the budget is out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    newcomer.write_rides(tmp_path)
    assert len(newcomer.HOUR) >= 30
    shell = InteractiveShell(colors="nocolor")
    try:
        for step in (*newcomer.HOUR, newcomer.SPEND, newcomer.OUT):
            done = shell.run_cell(step.cell, store_history=False)
            look(step, capsys.readouterr().out.strip("\n"), not done.success)
    finally:
        shell.run_line_magic("dpsql", "close")
        shell.run_line_magic("unload_ext", "dpsql")
        shell.history_manager.end_session()


SEEN = """i => {
    const cell = document.querySelectorAll('.jp-Notebook .jp-CodeCell')[i], area = cell.querySelector('.jp-OutputArea');
    const kinds = ['stderr', 'error'].map(kind => `[data-mime-type="application/vnd.jupyter.${kind}"]`).join();
    return [
        (area?.innerText ?? '').replaceAll('\\u00a0', ' '),
        cell.querySelector(kinds) !== null,
        area === null || area.scrollWidth <= area.clientWidth + 1,
    ];
}"""
SHOW = "i => document.querySelectorAll('.jp-Notebook .jp-CodeCell')[i].scrollIntoView({ block: 'center' })"
DONE = (
    "i => /[0-9]/.test(document.querySelectorAll('.jp-Notebook .jp-CodeCell .jp-InputPrompt')[i].textContent)"
)
CONTRAST = """() => {
    const parse = text => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
    const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
    const paper = node => {
        const seen = [];
        for (let e = node; e; e = e.parentElement) seen.unshift(parse(getComputedStyle(e).backgroundColor));
        return seen.reduce((under, top) => over(top, under), [255, 255, 255, 1]);
    };
    const light = rgb => [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => {
        const c = rgb[i] / 255; return sum + weight * (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4); }, 0);
    return [...document.querySelectorAll('.jp-OutputArea-output *')]
        .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) && !e.closest('script, style, meter'))
        .map(e => {
            const under = paper(e), ink = over(parse(getComputedStyle(e).color), under);
            const [a, b] = [light(ink), light(under)].sort((x, y) => y - x);
            return [(a + 0.05) / (b + 0.05), e.textContent.slice(0, 60)];
        });
}"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Serve the newcomer's folder in the dark theme, and open a notebook of the short form's cells."""
    pytest.importorskip("jupyterlab")
    api = pytest.importorskip("playwright.sync_api")
    home = tmp_path_factory.mktemp("short")
    newcomer.write_rides(home / "books")
    lab.write_notebook(home / "books" / "short.ipynb", [step.cell for step in newcomer.SHORT])
    with lab.serve_lab(home, "Dark") as place, lab.open_page(api, 1280, 900) as page:
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        lab.open_notebook(page, place, "short.ipynb")
        page.keyboard.press("Control+b")  # no file browser
        yield page
        assert not problems


@pytest.mark.browser
@pytest.mark.skipif(lab.CHROMIUM is None, reason="no Chromium")
@pytest.mark.timeout(400)
def test_the_short_form(page: Any, tmp_path: Path) -> None:
    shots = Path(os.environ.get("DPSQL_SHOTS", tmp_path))
    shots.mkdir(parents=True, exist_ok=True)
    for at, step in enumerate(newcomer.SHORT):
        page.click(f".jp-Notebook .jp-CodeCell .jp-InputArea-editor >> nth={at}")
        page.keyboard.press("Shift+Enter")
        page.keyboard.press("Escape")
        page.wait_for_function(DONE, arg=at, timeout=60_000)
        page.evaluate(SHOW, at)  # what is out of sight has no text
        page.wait_for_timeout(150)  # the kernel's last message is drawn
        text, failed, fits = page.evaluate(SEEN, at)
        page.screenshot(path=shots / f"hour-{at + 1:02}.png")
        assert fits, f"the output of cell {at} sticks out: {text}"
        look(step, text, failed)
    found = page.evaluate(CONTRAST)
    assert len(found) > 20
    assert not [text for contrast, text in found if contrast < 4.5]
