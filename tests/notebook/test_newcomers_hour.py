"""A newcomer's first hour with a Parquet file of their own: cell by cell, and in a real JupyterLab in headless Chromium.

The second needs both: pip install jupyterlab playwright, and a Chromium on the path. DPSQL_SHOTS=folder keeps the pictures, to be
looked at. A short form of it is run by default; ``-m stochastic`` runs the whole hour, light and dark.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from tests.support import lab, newcomer
from tests.support.newcomer import Step


def in_browser(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that looks at a page."""
    for mark in (
        pytest.mark.browser,
        pytest.mark.skipif(lab.CHROMIUM is None, reason="no Chromium"),
        pytest.mark.timeout(400),
    ):
        test = mark(test)
    return test


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


class Hour:
    """A notebook's page, and what is done and seen on it."""

    def __init__(self, page: Any, place: str, shots: Path, look: str) -> None:
        self.page, self.place, self.shots, self.look = page, place, shots, look

    def shoot(self, name: str) -> None:
        """Keep a picture of the page as it is."""
        self.page.screenshot(path=self.shots / f"hour-{name}-{self.look.lower()}.png")

    def run(self, at: int) -> tuple[str, bool]:
        """Run the cell at an index, and return the text below it and whether it is an error; nothing sticks out."""
        self.page.click(f".jp-Notebook .jp-CodeCell .jp-InputArea-editor >> nth={at}")
        self.page.keyboard.press("Shift+Enter")
        self.page.keyboard.press("Escape")
        return self.see(at)

    def see(self, at: int) -> tuple[str, bool]:
        """Wait for a cell that runs, and return the text below it and whether it is an error."""
        self.page.wait_for_function(DONE, arg=at, timeout=60_000)
        self.page.evaluate(SHOW, at)  # what is out of sight has no text
        self.page.wait_for_timeout(150)  # the kernel's last message is drawn
        text, failed, fits = self.page.evaluate(SEEN, at)
        assert fits, f"the output of cell {at} sticks out: {text}"
        return text, failed

    def walk(self, steps: Sequence[Step], name: str = "", begin: int = 0) -> None:
        """Run each step's cell from the one at ``begin`` on, and look at what is below it."""
        for at, step in enumerate(steps, begin):
            text, failed = self.run(at)
            self.shoot(f"{name}{at + 1:02}")
            look(step, text, failed)

    def open(self, name: str) -> None:
        """Open another notebook of the folder, whose kernel is its own."""
        lab.open_notebook(self.page, self.place, f"{name}.ipynb")

    def press(self, *keys: str) -> None:
        """Leave the cell's editor, and press keys of JupyterLab's command mode."""
        for key in ("Escape", *keys):
            self.page.keyboard.press(key)


def open_hour(home: Path, look: str, notebooks: dict[str, Sequence[Step]]) -> Iterator[Hour]:
    """Serve the newcomer's folder under a theme, with these notebooks, and open the first."""
    pytest.importorskip("jupyterlab")
    api = pytest.importorskip("playwright.sync_api")
    newcomer.write_rides(home / "books")
    for name, steps in notebooks.items():
        lab.write_notebook(home / "books" / f"{name}.ipynb", [step.cell for step in steps])
    shots = Path(os.environ.get("DPSQL_SHOTS", home))
    shots.mkdir(parents=True, exist_ok=True)
    with lab.serve_lab(home, look) as place, lab.open_page(api, 1280, 900) as page:
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        lab.open_notebook(page, place, f"{next(iter(notebooks))}.ipynb")
        page.keyboard.press("Control+b")  # no file browser
        yield Hour(page, place, shots, look)
        assert not problems


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hour]:
    yield from open_hour(tmp_path_factory.mktemp("short"), "Dark", {"short": newcomer.SHORT})


@in_browser
def test_the_short_form(short: Hour) -> None:
    short.walk(newcomer.SHORT)
    found = short.page.evaluate(CONTRAST)
    assert len(found) > 20
    assert not [text for contrast, text in found if contrast < 4.5]


@pytest.fixture(scope="module", params=["Light", "Dark"])
def hour(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hour]:
    home = tmp_path_factory.mktemp("hour")
    notebooks = {"hour": newcomer.HOUR, "again": newcomer.AGAIN, "other": newcomer.OTHER}
    yield from open_hour(home, request.param, notebooks)


@in_browser
@pytest.mark.stochastic
def test_the_whole_hour(hour: Hour) -> None:
    hour.page.keyboard.press("Alt+Shift+B")
    hour.walk(newcomer.HOUR)
    text, _ = hour.see(len(newcomer.HOUR) - 1)
    assert "WHERE dock = $dock" in text, "no statement is set as a formula"
    faint = [text for contrast, text in hour.page.evaluate(CONTRAST) if contrast < 4.5]
    assert not faint
    assert "ε=0.5 of ε=1 left; about 5 more questions at ε=0.1" in hour.page.inner_text(".dpsql-panel")


@in_browser
@pytest.mark.stochastic
def test_run_all_stops_at_the_first_mistake(hour: Hour) -> None:
    """Run all again after a restart of the kernel."""
    restart(hour)
    run_all(hour)
    hour.page.wait_for_timeout(1500)
    hour.shoot("run-all-stops")
    text, failed = hour.see(2)
    assert failed
    assert "no session is open yet" in text
    prompts = hour.page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt").all_text_contents()
    assert not any(any(c.isdigit() for c in prompt) for prompt in prompts[3:]), prompts


@in_browser
@pytest.mark.stochastic
def test_run_all_without_mistakes_pays_nothing_again(hour: Hour) -> None:
    hour.open("again")
    run_all(hour)
    for at, step in enumerate(newcomer.AGAIN):
        text, failed = hour.see(at)
        assert not failed, text
        assert all(words in text for words in step.shows), text
    hour.shoot("run-all-again")


@in_browser
@pytest.mark.stochastic
def test_two_sessions_share_one_budget_until_it_is_out(hour: Hour) -> None:
    hour.open("other")
    before, after = newcomer.OTHER[: newcomer.STOPPED], newcomer.OTHER[newcomer.STOPPED + 1 :]
    hour.walk(before, "other-")
    hour.page.keyboard.press("Shift+Enter")
    hour.page.wait_for_selector("text=/running for .*stopping it keeps the charge/", timeout=20_000)
    hour.shoot("running")
    hour.press("i", "i")
    text, failed = hour.see(newcomer.STOPPED)
    hour.shoot("stopped")
    assert failed
    assert "Interrupted" in text
    assert "ε=0.1 stays charged" in text
    assert "running for" not in text
    hour.walk(after, "other-", newcomer.STOPPED + 1)


@in_browser
@pytest.mark.stochastic
def test_the_other_kernel_knows(hour: Hour) -> None:
    hour.open("again")
    text, _ = hour.run(len(newcomer.AGAIN) - 1)
    assert "ε=0 of ε=1 left" in text
    text, failed = hour.run(2)
    assert not failed
    assert "no charge" in text


def restart(hour: Hour) -> None:
    """Restart the kernel by keyboard."""
    hour.press("0", "0")
    hour.page.click(".jp-Dialog .jp-mod-accept")
    hour.page.wait_for_timeout(1000)
    lab.wait_for_kernel(hour.page)


def run_all(hour: Hour) -> None:
    """Choose Run All Cells in the menu."""
    hour.page.click('.lm-MenuBar-itemLabel:text-is("Run")')
    hour.page.click('.lm-Menu-itemLabel:text-is("Run All Cells")')
