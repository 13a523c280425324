"""Displays in a real browser, under the colours that JupyterLab and VS Code give their outputs, light and dark."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dpsql
from dpsql.demo import POLICY
from dpsql.notebook import guide, render, sessions
from dpsql.session.result import Result

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")]

# paper, ink, every other row, rule: what the two editors' themes set for outputs
THEMES = {
    "JupyterLab light": ("#ffffff", "rgba(0, 0, 0, 0.87)", "#f5f5f5", "#bdbdbd"),
    "JupyterLab dark": ("#111111", "rgba(255, 255, 255, 0.87)", "#212121", "#616161"),
    "VS Code light": ("#ffffff", "#3b3b3b", "#ffffff", "#e5e5e5"),
    "VS Code dark": ("#1f1f1f", "#cccccc", "#1f1f1f", "#2b2b2b"),
}
HOST = """
<!doctype html><meta charset="utf-8"><title></title><style>
body {{ background: {paper}; color: {ink}; font: 14px sans-serif; margin: 12px; }}
table {{ border-collapse: collapse; font-size: 12px; }}
thead {{ border-bottom: 1px solid {rule}; }}
td, th {{ padding: 0.5em; white-space: normal; max-width: none; }}
tbody tr:nth-child(even) {{ background: {stripe}; }}
</style>{outputs}<script>
const parse = text => {{ const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; }};
const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
const paper = node => {{
    const seen = [];
    for (let e = node; e; e = e.parentElement) seen.unshift(parse(getComputedStyle(e).backgroundColor));
    return seen.reduce((under, top) => over(top, under), [255, 255, 255, 1]);
}};
const light = rgb => [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => {{
    const c = rgb[i] / 255; return sum + weight * (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4); }}, 0);
const found = [];
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {{
    const node = texts.currentNode, holder = node.parentElement;
    if (!node.textContent.trim() || holder.closest("script, style, meter")) continue;
    const under = paper(holder), ink = over(parse(getComputedStyle(holder).color), under);
    const [a, b] = [light(ink), light(under)].sort((x, y) => y - x);
    const range = document.createRange(); range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    found.push([node.textContent.trim().slice(0, 40), (a + 0.05) / (b + 0.05), box.width * box.height]);
}}
document.title = JSON.stringify({{ found, wide: document.documentElement.scrollWidth <= innerWidth }});
</script>
"""


def look(theme: str, outputs: list[str], folder: Path, width: int = 1100) -> dict[str, Any]:
    """The outputs as a browser draws them: every text with its contrast and size, and whether anything sticks out."""
    assert CHROMIUM is not None
    paper, ink, stripe, rule = THEMES[theme]
    page = HOST.format(paper=paper, ink=ink, stripe=stripe, rule=rule, outputs="\n<hr>\n".join(outputs))
    place = folder / "page.html"
    place.write_text(page, encoding="utf-8")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},900")
    done = subprocess.run(
        [CHROMIUM, *flags, "--dump-dom", place.as_uri()], capture_output=True, timeout=90, check=True
    )
    title = re.search(r"<title>(\{.*?\})</title>", done.stdout.decode(), re.S)
    assert title, "the page says what it found"
    told: dict[str, Any] = json.loads(
        title[1].replace("&quot;", '"').replace("&lt;", "<").replace("&amp;", "&")
    )
    return told


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The HTML of everything that the magic shows."""
    ledger = tmp_path_factory.mktemp("browser") / "x.ledger"
    with dpsql.connect(policy=POLICY, ledger=ledger) as session:
        asked = "SELECT WITH DP OPTIONS (epsilon = 1) plan, AVG(doctor_visits) AS v, COUNT(*) AS n FROM visits GROUP BY plan"
        shown: list[Any] = [
            session.sql(asked),
            session.sql("SELECT * FROM range(100) AS t(i)"),
            session.sql("EXPLAIN " + asked),
            session.sql("SELECT ABOVE_THRESHOLD(COUNT(*), 100, epsilon => 0.1) AS enough FROM visits"),
            session.sql("SHOW LEDGER"),
            render.Panel(str(session.explain(asked))),
            session.budget_panel(),
            sessions.show_columns(session, "visits"),
            sessions.show_tables(session),
            sessions.show_report(session, ""),
            guide.show_mechanisms(),
            render.Panel(guide.USAGE.rstrip()),
        ]
        yield [item._repr_mimebundle_()["text/html"] for item in shown]


@pytest.mark.parametrize("theme", THEMES)
def test_everything_can_be_read(theme: str, outputs: list[str], tmp_path: Path) -> None:
    told = look(theme, outputs, tmp_path)
    texts = [text for text, _, _ in told["found"]]
    assert len(texts) > 150
    assert any("deductible" in text for text in texts)
    faint = [
        (text, round(contrast, 1)) for text, contrast, area in told["found"] if contrast < 4.5 or area < 4
    ]
    assert not faint, f"in {theme}"
    assert told["wide"], "nothing sticks out"


def test_the_control_what_cannot_be_read_is_found(outputs: list[str], tmp_path: Path) -> None:
    dim = (
        outputs[0]
        .replace("<td ", '<td class="x" ')
        .replace("text-align: left", "text-align: left; color: #333")
    )
    told = look("JupyterLab dark", [dim], tmp_path)
    assert any(contrast < 4.5 for _, contrast, _ in told["found"])
    assert not look("JupyterLab dark", ['<div style="width: 3000px">wide</div>'], tmp_path)["wide"]


CLICKS = """
<script>
const press = (selector, place) => document.querySelectorAll(selector)[place].click();
const read = () => [...document.querySelectorAll('details tbody tr')].filter(row => row.style.display !== 'none')
    .map(row => [...row.cells].map(cell => cell.textContent).join('|'));
const said = {};
for (const name of ['up', 'down', 'back']) { press('details thead th', PLACE); said[name] = read(); }
press('details thead th', PLACE);
const input = document.querySelector('details input');
input.value = 'WARD 1'; input.dispatchEvent(new Event('input', {bubbles: true}));
said.filtered = read();
said.heading = document.querySelectorAll('details thead th')[PLACE].ariaSort;
document.title = JSON.stringify(said);
</script>
"""


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_heading_sorts_and_a_word_filters(place: int, tmp_path: Path) -> None:
    numbers = [1000 - 7 * i * (-1) ** i for i in range(30)]
    table = pa.table({"ward": [f"ward {i}" for i in range(30)], "n": [*numbers[:29], None]})
    ends = [(float(n - 3 - i), float(n + 3 + i)) for i, n in enumerate(numbers)]
    page = Result(table, intervals={"n": ends})._repr_mimebundle_()["text/html"]
    (tmp_path / "page.html").write_text(
        f"<!doctype html><meta charset=utf-8>{page}{CLICKS.replace('PLACE', str(place))}"
    )
    assert CHROMIUM is not None
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--dump-dom")
    done = subprocess.run(
        [CHROMIUM, *flags, (tmp_path / "page.html").as_uri()], capture_output=True, text=True, timeout=60
    )
    said = json.loads(html.unescape(re.findall(r"<title>(.*?)</title>", done.stdout)[0]))
    key: Any = [
        lambda row: int(row.split("|")[0].removeprefix("ward ")),
        lambda row: int(row.split("|")[1].replace("\u202f", "").replace(" ", "").replace("NULL", "0")),
        lambda row: float(row.split("|")[2].removeprefix("± ") or "-1"),
    ][place]
    shown = [row for row in said["up"] if "NULL" not in row]
    assert shown == sorted(shown, key=key)
    assert [row for row in said["down"] if "NULL" not in row] == sorted(shown, key=key, reverse=True)
    assert place != 1 or "NULL" in said["up"][-1] + said["down"][-1]
    assert [row.split("|")[0] for row in said["back"]] == [f"ward {i}" for i in range(30)]
    assert len(said["filtered"]) == 11
    assert said["heading"] == "ascending"
