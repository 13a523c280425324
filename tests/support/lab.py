"""A real JupyterLab in headless Chromium, with the shipped extension; for tests and for the screenshots of the documentation."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
BUILT = ROOT / "notebooks" / "labextension" / "built"


@contextmanager
def serve_lab(home: Path, theme: str) -> Iterator[str]:
    """Run JupyterLab on ``home / "books"`` under a theme, ``Light`` or ``Dark``, and yield its address."""
    settings = home / "config" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "themes.jupyterlab-settings").write_text(json.dumps({"theme": f"JupyterLab {theme}"}))
    quiet = {"checkForUpdates": False, "fetchNews": "false"}
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(quiet))
    shutil.copytree(BUILT, home / "data" / "labextensions" / "dpsql-labextension")
    (home / "books").mkdir(exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = [
        "--no-browser", "--allow-root", f"--port={port}", "--ServerApp.token=", "--ServerApp.password=",
        f"--ServerApp.root_dir={home / 'books'}",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "DPSQL_STATE": str(home / "state"),
    }
    with (home / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *flags], env=environment, stdout=log, stderr=log
        )
    place = f"http://127.0.0.1:{port}"
    try:
        for _ in range(120):
            try:
                urllib.request.urlopen(f"{place}/api", timeout=2)
                break
            except OSError:
                time.sleep(0.5)
        yield place
    finally:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:  # it waits for a kernel
            server.kill()
            server.wait()


@contextmanager
def open_page(api: Any, width: int, height: int) -> Iterator[Any]:
    """Open an empty page of a headless Chromium; ``api`` is playwright's."""
    with api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": width, "height": height})
        browser.close()


def open_notebook(page: Any, place: str, name: str) -> None:
    """Open a notebook of the folder, and wait until its kernel is ready."""
    page.goto(f"{place}/lab/tree/{name}?reset", wait_until="domcontentloaded", timeout=90_000)
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=90_000)
    wait_for_kernel(page)


def wait_for_kernel(page: Any) -> None:
    """Wait until the status bar says that the kernel is idle."""
    page.wait_for_function(
        "/\\| Idle/.test(document.querySelector('#jp-main-statusbar')?.innerText)", timeout=60_000
    )
    page.wait_for_timeout(500)


def run_cells(page: Any, count: int) -> None:
    """Run so many cells from the first one on, each to its end."""
    page.click(".jp-Notebook .jp-CodeCell .jp-InputArea-editor >> nth=0")
    page.keyboard.press("Escape")
    for i in range(count):
        page.keyboard.press("Shift+Enter")
        done = f"/[0-9]/.test(document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')[{i}].innerText)"
        page.wait_for_function(done)


def write_notebook(path: Path, cells: list[str]) -> None:
    """Write a notebook of cells that have not run."""
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(
        new_notebook(cells=[new_code_cell(c) for c in cells], metadata={"kernelspec": kernel}), path
    )
