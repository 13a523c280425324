"""The documentation: its examples run, its links lead somewhere, and the site builds without a network."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

import dpsql

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "notebooks" / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if "{code-cell}" in page.read_text(encoding="utf-8"))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_CELL = re.compile(r"^```\{code-cell\} ipython3\n((?::[^\n]*\n)*)\n?(.*?)\n?```$", re.M | re.S)

site: dict[str, Any] = runpy.run_path(str(ROOT / "notebooks" / "make_site.py"))


def environment(folder: Path) -> dict[str, str]:
    """Return what a kernel needs to run a page: this package, the module that writes the example, the command line."""
    path = os.pathsep.join(filter(None, (str(ROOT), str(DOCS), os.environ.get("PYTHONPATH"))))
    commands = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PYTHONPATH": path, "PATH": commands, "DPSQL_STATE": str(folder / ".state")}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelManager]:
    """One kernel for all pages; each begins with an empty namespace, in a folder of its own."""
    folder = tmp_path_factory.mktemp("kernel")
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env=environment(folder), cwd=str(folder))
    yield manager
    manager.shutdown_kernel(now=True)


def cells(page: Path) -> list[Any]:
    """The cells of a page; a command of the shell that fails is an error."""
    found = []
    for options, source in _CELL.findall(page.read_text(encoding="utf-8")):
        tags = {"tags": ["raises-exception"]} if "raises-exception" in options else {}
        found.append(new_code_cell(source, metadata=tags))
        if re.search(r"^! ", source, re.M):
            found.append(new_code_cell("assert _exit_code == 0"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(DOCS).as_posix() for page in PAGES])
def test_the_examples_of_a_page_run(page: Path, kernel: KernelManager, tmp_path: Path) -> None:
    begin = new_code_cell(f"%reset -f\n%matplotlib inline\nimport os\nos.chdir({str(tmp_path)!r})")
    notebook = new_notebook(cells=[begin, *cells(page)])
    client = NotebookClient(notebook, km=kernel, timeout=120)
    try:
        client.execute()
    finally:
        client.kc.stop_channels()
        client.kc.context.term()
    nbformat.validate(notebook)
    for cell in notebook.cells:
        failed = [output.ename for output in cell.outputs if output.output_type == "error"]
        if "raises-exception" in cell.metadata.get("tags", []):
            assert failed, cell.source
            assert set(failed) <= {"PrivacyError", "BudgetExceeded", "BindError", "ParseError"}


def test_every_page_has_examples_that_are_told_from_others() -> None:
    """A fence with a typing error would be shown as text and never be run."""
    assert len(PAGES) >= 13
    for page in PAGES:
        assert page.read_text(encoding="utf-8").count("{code-cell}") == len(
            _CELL.findall(page.read_text(encoding="utf-8"))
        )


def test_the_statements_of_the_cheat_sheet_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that are whole, over the example of the pages."""
    example = runpy.run_path(str(DOCS / "example.py"))
    example["write"](tmp_path)
    large = example["POLICY"].replace("epsilon = 8", "epsilon = 100")
    large = large.replace("1e-6", "1e-4\ndefault_delta = 1e-8")
    policy = dpsql.Policy.loads(large)
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "how_do_i.md").read_text(encoding="utf-8")
    asked = [
        sql for sql in re.findall(r"`((?:SELECT|WITH|SHOW|DECLARE|CLOSE) [^`]*)`", text) if "..." not in sql
    ]
    assert len(asked) > 12
    with dpsql.connect(policy=policy) as session:
        for sql in asked:
            assert session.sql(sql).shape[1] >= 1, sql


def test_no_page_is_longer_than_300_lines_except_the_reference() -> None:
    root = DOCS.parents[1]
    pages = [root / "README.md", *DOCS.rglob("*.md"), *(root / "notebooks" / "sources").glob("*.md")]
    lengths = {page.name: len(page.read_text(encoding="utf-8").splitlines()) for page in pages}
    assert len(lengths) > 40
    assert not {name: lines for name, lines in lengths.items() if lines > 300}


def test_every_page_is_in_the_navigation() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = {
        line for tree in re.findall(r"```\{toctree\}\n(.*?)```", index, re.S) for line in tree.split("\n")
    }
    for path in site["list_sources"]():
        page = site["find_page"](path)
        if page.endswith(".md") and page != "index.md":
            assert page.removesuffix(".md") in listed, page
        elif page.endswith(".ipynb"):
            assert "stories/*" in listed


def test_links_lead_somewhere_in_the_site_and_in_the_repository(tmp_path: Path) -> None:
    site["assemble"](tmp_path)
    pages = [*tmp_path.rglob("*.md")]
    links = [
        (page, target)
        for page in pages
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text("utf-8"))
    ]
    assert len(links) > 30
    for page, target in links:
        assert (page.parent / target).exists(), (page.name, target)
    with pytest.raises(SystemExit, match="does not exist"):
        site["move_links"]("[so](gone.md)", "notebooks/docs/index.md")
    assert (
        site["move_links"]("[a](../../dpsql/cli) [b](glossary.md#x)", "notebooks/docs/index.md")
        == "a [b](glossary.md#x)"
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site without the outputs of its examples, which have a test of their own."""
    for module in ("sphinx", "furo", "myst_nb"):
        pytest.importorskip(module)
    place: Path = site["build"](tmp_path_factory.mktemp("site"), static=True)
    return place


def test_the_site_builds_without_a_warning_and_needs_no_network(built: Path) -> None:
    pages = [*built.rglob("*.html")]
    assert len(pages) > 40
    assert (built / "searchindex.js").exists()
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?:https?:)?//", text), page.name


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_the_site_can_be_read_light_and_dark_and_searched(built: Path) -> None:
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for look in ("light", "dark"):
            page = browser.new_page(color_scheme=look)
            page.goto((built / "howto" / "best_price.html").as_uri())
            paper, ink = (
                page.evaluate(f"getComputedStyle(document.body).{what}.match(/[\\d.]+/g).map(Number)[1]")
                for what in ("backgroundColor", "color")
            )
            assert (paper > 200) == (look == "light")
            assert abs(paper - ink) > 120
            assert page.locator(".highlight-dpsql .k").count() > 3, "statements are coloured as ours"
            page.fill("input[name=q]", "permute-and-flip")
            page.press("input[name=q]", "Enter")
            page.wait_for_selector("ul.search li a", timeout=15_000)
            assert "Errata of the textbooks" in page.inner_text("ul.search")
            page.close()
        browser.close()
