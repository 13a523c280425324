"""Take the documentation's screenshots, light and dark, into build/shots, which is not committed.

pip install '.[notebook]' playwright, and a Chromium on the path
python notebooks/make_shots.py

`{shot} NAME` in a page of the documentation shows NAME-light.png and NAME-dark.png.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHOTS = ROOT / "build" / "shots"
sys.path[:0] = [str(ROOT), str(ROOT / "notebooks" / "docs")]

SMALL, WIDE = {"width": 900, "height": 560}, {"width": 1280, "height": 760}
CELLS = [
    "%load_ext dpsql",
    "%dpsql connect --policy policy.toml",
    "%%dpsql\nSELECT WITH DP OPTIONS (epsilon = 1, max_groups_contributed = 2)\n"
    "    ward, COUNT(*) AS visits, AVG(minutes) AS minutes\n"
    "FROM visits GROUP BY ward ORDER BY visits DESC",
    "%%dpsql\nSELECT * FROM visits",
    "%%dpsql\nSELECT WITH DP OPTIONS (epsilon = 0.5) date_trunc('month', day) AS month, COUNT(DISTINCT patient_id) AS patients\n"
    "FROM visits WHERE ward = 'eyes' GROUP BY month",
    "%%dpsql\nSELECT WITH DP OPTIONS (epsilon = 0.2) med",
]


def shoot_lab(api: Any, look: str) -> None:
    """Take screenshots of JupyterLab: a cell with its answer, a refusal, the panel, and completion."""
    from example import write

    from tests.support import lab

    with TemporaryDirectory() as place:
        home = Path(place)
        lab.write_notebook(home / "books" / "visits.ipynb", CELLS)
        write(home / "books")
        with lab.serve_lab(home, look.capitalize()) as address, lab.open_page(api, **WIDE) as page:
            lab.open_notebook(page, address, "visits.ipynb")
            page.keyboard.press("Control+b")  # no file browser
            page.keyboard.press("Alt+Shift+B")
            lab.run_cells(page, 4)
            page.wait_for_function(
                "/would cost/i.test(document.querySelector('.dpsql-price').innerText)", timeout=20_000
            )
            page.wait_for_timeout(500)
            page.screenshot(path=SHOTS / f"panel-{look}.png")
            page.keyboard.press("Alt+Shift+B")
            page.evaluate("document.querySelector('.jp-SideBar.jp-mod-right li.lm-mod-current')?.click()")
            cells = page.locator(".jp-Notebook .jp-CodeCell")
            cells.nth(2).screenshot(path=SHOTS / f"cell-{look}.png")
            cells.nth(3).screenshot(path=SHOTS / f"refused-{look}.png")
            cells.nth(5).locator(".jp-InputArea-editor").click()
            page.keyboard.press("Control+End")
            page.keyboard.press("Tab")
            page.wait_for_selector(".jp-Completer:visible", timeout=20_000)
            page.wait_for_timeout(300)
            page.screenshot(path=SHOTS / f"completion-{look}.png")


def shoot_report(api: Any, look: str) -> None:
    """Take the owner's report as a page."""
    from example import write

    import dpsql
    from tests.support import lab

    with TemporaryDirectory() as place:
        folder = Path(place)
        write(folder)
        with dpsql.connect(policy=folder / "policy.toml") as session:
            for n, cell in enumerate(CELLS[2:5]):
                try:
                    session.sql(cell.partition("\n")[2])
                except dpsql.PrivacyError:
                    assert n == 1
        command = [
            sys.executable,
            "-m",
            "dpsql.cli",
            "report",
            "--policy",
            "policy.toml",
            "-o",
            "report.html",
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
        with lab.open_page(api, **SMALL) as page:
            page.emulate_media(color_scheme=look)
            page.goto((folder / "report.html").as_uri())
            page.screenshot(path=SHOTS / f"report-{look}.png")


def main() -> None:
    from playwright import sync_api

    SHOTS.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as state:
        os.environ["DPSQL_STATE"] = state  # the register of ledgers stays out of the home folder
        shooters: tuple[Callable[[Any, str], None], ...] = (shoot_lab, shoot_report)
        for shoot in shooters:
            for look in ("light", "dark"):
                shoot(sync_api, look)
    print(*sorted(path.name for path in SHOTS.glob("*.png")), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
