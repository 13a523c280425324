"""The owner's report: every section, in order, with the right numbers; looked at in a real browser, in both
schemes.
"""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
import subprocess
from fractions import Fraction
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from dpsql.errors import BudgetExceeded, Error, LedgerError
from dpsql.ledger.ledger import Ledger
from dpsql.policy.model import Policy
from dpsql.privacy.events import Composed, DiscreteLaplace, GroupSelection, PureDP
from dpsql.privacy.periods import date_event, parse_periods, widen_to_periods
from dpsql.report import figures as interpretation
from dpsql.report import pages
from dpsql.report.data import SECTIONS, explain_statement, list_pictures, make_report
from dpsql.report.pages import report_text, write_page, write_report
from dpsql.report.tables import BudgetPanel, list_cells, write_strip
from tests.support.ledgers import policy_of

SHARES = "[analysts.alice]\nepsilon = 0.6\n[analysts.bob]\nepsilon = 0.8\n[tables.wards]\npublic = true\n"
POLICY = policy_of(more=SHARES)
PICTURES = ("burn-down", "epsilon-delta", "trade-off", "attacker", "groups")


@pytest.fixture
def full(path: Path) -> Ledger:
    """A ledger with charges of two people, a failure, refusals, and something left open."""
    with Ledger.open(path, POLICY, "visits.duckdb", "alice") as alice:
        for i in range(3):
            event = DiscreteLaplace(Fraction(1, 10), 1000)
            alice.settle(
                alice.reserve(event, f"SELECT COUNT(*) FROM visits WHERE year = {i}"), event, None, "released"
            )
        too_much = PureDP(Fraction(1, 2))
        with pytest.raises(BudgetExceeded) as told:
            alice.reserve(too_much, "SELECT AVG(amount) FROM visits")
        alice.refuse("SELECT AVG(amount) FROM visits", told.value.message, too_much)
    with Ledger.open(path, POLICY, "visits.duckdb", "bob") as bob:
        groups = Composed((GroupSelection(Fraction(1, 10), Fraction(1, 10**7)), PureDP(Fraction(1, 10))))
        bob.settle(
            bob.reserve(groups, "SELECT city, COUNT(*) FROM visits GROUP BY city"), groups, None, "failed"
        )
        bob.refuse("SELECT * FROM visits WHERE name = '<script>alert(1)</script>'", "rows can't be released")
        bob.reserve(PureDP(Fraction(1, 20)), "SELECT MEDIAN(amount) FROM visits")
    return Ledger.open(path, POLICY, "visits.duckdb")


class Outline(HTMLParser):
    """Sections and figures of a page with the text in them, and everything that a browser would fetch or
    run.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sections: dict[str, str] = {}
        self.figures: dict[str, int] = {}
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], "every tag is closed"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)
        if tag == "section":
            self.sections[given["id"] or ""] = ""
        if tag == "figure":
            self.figures[(given["id"] or "").removeprefix("picture-")] = 0
        if tag in ("polyline", "rect", "circle") and self.figures:
            self.figures[list(self.figures)[-1]] += 1
        if tag in ("script", "link", "img", "iframe", "object", "embed", "video", "image", "use"):
            self.fetched.append(tag)
        self.fetched += [n for n, v in attributes if n.startswith("on") or n in ("src", "href")]
        self.fetched += [v for n, v in attributes if n == "style" and v and "url(" in v]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.sections and "style" not in self.open:
            self.sections[list(self.sections)[-1]] += data


def check_page(text: str) -> Outline:
    """Check what every report's page must have."""
    outline = Outline(text)
    assert tuple(outline.sections) == SECTIONS
    assert tuple(outline.figures) == PICTURES
    assert all(shapes > 0 for shapes in outline.figures.values())
    assert all(len(" ".join(told.split())) > 8 for told in outline.sections.values())
    assert outline.fetched == []
    style = re.search(r"<style>(.*?)</style>", text, re.S)
    assert style
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    assert "prefers-color-scheme: dark" in style[1]
    return outline


def test_the_page(full: Ledger) -> None:
    told = check_page(write_page(make_report(full))).sections
    assert "ε=0.45 of ε=1 left" in told["left"]
    assert "about 4 more questions at ε=0.1" in told["left"]
    assert "1 not settled, charged in full" in told["left"]
    for word in ("alice", "bob", "ε=0.3", "of", "failed", "open", "SELECT MEDIAN(amount) FROM visits"):
        assert word in told["asked"], word
    assert "rows can't be released" in told["refused"]
    assert "ε=0.3 of alice's ε=0.6 is left" in told["refused"]
    assert "SELECT AVG" not in told["asked"]
    assert "SELECT MEDIAN" not in told["refused"]
    assert "73% certainty whether all rows of any one patient_id are in the data" in told["guarantee"]
    assert "ε=1, δ=1e-06" in told["guarantee"]
    assert "accountant basic" in told["guarantee"]
    for word in ("at most 20 rows of each", "wards is public", "amount", "0 to 500", "2 values: A, B"):
        assert word in told["assumptions"], word
    assert "limit ε=1" in told["pictures"]


def test_the_check_finds_a_missing_section(full: Ledger) -> None:
    text = write_page(make_report(full))
    for name in SECTIONS:
        cut = re.sub(rf'<section id="{name}".*?</section>', "", text, count=1, flags=re.S)
        assert cut != text
        with pytest.raises(AssertionError):
            check_page(cut)
    for name in PICTURES:
        cut = re.sub(rf'<figure id="picture-{name}".*?</figure>', "", text, count=1, flags=re.S)
        assert cut != text
        with pytest.raises(AssertionError):
            check_page(cut)
    with pytest.raises(AssertionError):
        check_page(text.replace("</footer>", "<img src='https://example.org/x.png'></footer>"))


def test_statements_are_escaped(full: Ledger) -> None:
    text = write_page(make_report(full))
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_an_empty_ledger_has_a_report_too(ledger: Ledger) -> None:
    told = check_page(write_page(make_report(ledger))).sections
    assert "ε=1 of ε=1 left" in told["left"]
    assert "Nothing yet." in told["asked"]
    assert "Nothing." in told["refused"]


@pytest.mark.parametrize("epsilon", ["0.1", "1", "40", "1000000"])
@pytest.mark.parametrize("accountant", ["basic", "zcdp", "gdp"])
@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_any_budget_can_be_reported(path: Path, epsilon: str, accountant: str, delta: str) -> None:
    with Ledger.open(path, policy_of(epsilon, delta, accountant), "d") as ledger:
        for part in (Fraction(1, 10), Fraction(1, 5)):
            ledger.reserve(PureDP(Fraction(epsilon) * part), "q")
        data = make_report(ledger)
        check_page(write_page(data))
        json.dumps(data, allow_nan=False)


def test_a_budget_of_a_million_promises_nothing(path: Path) -> None:
    with Ledger.open(path, policy_of("1e6"), "d") as ledger:
        assert "protects hardly anyone" in make_report(ledger)["guarantee"]["sentence"]


def test_the_json(full: Ledger, tmp_path: Path) -> None:
    data = json.loads(write_report(full, POLICY, tmp_path / "out.json").read_text())
    assert data["left"]["epsilon"] == 0.45
    assert data["left"]["about"] == 4
    assert [e["statement"] for e in data["asked"]["statements"]] == [1, 2, 3, 5, 7]
    assert [e["statement"] for e in data["refused"]] == [4, 6]
    people = {p["who"]: (p["statements"], p["epsilon"], p["share"]) for p in data["asked"]["people"]}
    assert people == {"alice": (3, 0.3, 0.6), "bob": (2, 0.25, 0.8)}
    assert data["asked"]["statements"][0]["event"]["kind"] == "discrete_laplace"
    burn = data["pictures"]["burn_down"]
    assert [round(step["left"], 9) for step in burn["steps"]] == [1, 0.9, 0.8, 0.7, 0.5, 0.45]
    assert [(m["charges"], round(m["level"], 9)) for m in burn["refused"]] == [(3, 0.2)]
    assert [g["epsilon"] for g in data["guarantee"]["groups"]] == [1, 2, 3, 4, 5]


def test_csv_and_text(full: Ledger, tmp_path: Path) -> None:
    sheet = write_report(full, None, tmp_path / "out.csv").read_text()
    rows = list(csv.DictReader(sheet.splitlines()))
    assert len(rows) == 7
    assert rows[4]["outcome"] == "failed"
    assert float(rows[4]["epsilon"]) == 0.2
    text = write_report(full, None, tmp_path / "out.txt").read_text()
    assert text == report_text(full) or text.split("\n", 1)[1] == report_text(full).split("\n", 1)[1]
    assert "ε=0.45 of ε=1 left (about 4 more questions at ε=0.1)" in text


def test_from_the_ledger_alone(full: Ledger, path: Path, tmp_path: Path) -> None:
    """The owner needs the ledger only: it knows the policy that it was last opened with."""
    full.close()
    with Ledger.read(path) as ledger:
        told = check_page(write_report(ledger, None, tmp_path / "r.html").read_text()).sections
    assert "patient_id" in told["assumptions"]
    assert "0 to 500" in told["assumptions"]


def test_under_another_accountant(full: Ledger, tmp_path: Path) -> None:
    text = write_report(full, None, tmp_path / "r.html", accountant="gdp").read_text()
    told = check_page(text).sections
    assert "counted as gdp would have; the budget is kept by basic" in told["left"]
    assert "of the rule" in told["asked"]
    assert "accountant gdp" in told["guarantee"]
    assert "counted as gdp would have" in report_text(full, accountant="gdp")
    assert "counted as" not in report_text(full)
    with pytest.raises(LedgerError, match="no accountant"):
        write_report(full, None, tmp_path / "r.html", accountant="moments")


def test_a_file_that_cant_be_written(full: Ledger, tmp_path: Path) -> None:
    with pytest.raises(Error, match="can't be written"):
        write_report(full, None, tmp_path / "nowhere" / "r.html")


def test_one_picture_is_that_of_the_whole_report(full: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = make_report(full)["pictures"]
    monkeypatch.delattr("dpsql.report.data.make_report")
    assert list_pictures(full, "budget") == {"burn_down": pictures["burn_down"]}
    assert list_pictures(full, "tradeoff") == {"tradeoff": pictures["tradeoff"]}


def test_the_burn_down_of_many_charges_stays_small(path: Path) -> None:
    with Ledger.open(None, policy_of("10"), "d") as ledger:
        for _ in range(1000):
            ledger.reserve(PureDP(Fraction(1, 1000)), "q")
        burn = make_report(ledger)["pictures"]["burn_down"]
    assert len(burn["steps"]) <= 502
    assert burn["steps"][-1] == {"charges": 1000, "left": 9.0, "text": "q"}
    assert all(a["left"] >= b["left"] for a, b in pairwise(burn["steps"]))
    assert len(pages.draw_burn_down(burn).svg()) < 40_000


def test_no_words_of_a_picture_are_cut_off(full: Ledger) -> None:
    """Letters beyond a picture's edge would not be shown; each is at most 9.7 pixels wide, averaged over a word."""
    page = str(pages.draw_charts(make_report(full)))
    pictures = re.findall(r'<svg viewBox="0 0 (\d+) .*?</svg>', page, re.DOTALL)
    bodies = re.findall(r"<svg .*?</svg>", page, re.DOTALL)
    assert len(bodies) >= 4
    told = 0
    for width, body in zip(map(int, pictures), bodies, strict=True):
        for attributes, text in re.findall(r"<text ([^>]*)>([^<]*)</text>", body):
            given = dict(re.findall(r'([\w-]+)="([^"]*)"', attributes))
            if "transform" in given:
                continue
            wide, told = 9.7 * len(unescape(text)), told + 1
            left = (
                float(given["x"])
                - wide * {"end": 1, "middle": 0.5, "start": 0}[given.get("text-anchor", "start")]
            )
            assert left >= 0, text
            assert left + wide <= width, text
    assert told > 40


# -- the numbers behind the pictures ------------------------------------------------------------


def test_profiles_against_closed_forms() -> None:
    assert interpretation.approximate_profile(1.0, 0.0)(0.0) == pytest.approx(math.tanh(0.5))
    assert (
        interpretation.approximate_profile(1.0, 1e-6)(1.0)
        == 1e-6
        == interpretation.approximate_profile(1.0, 1e-6)(7.0)
    )
    assert interpretation.gaussian_profile(1.0)(0.0) == pytest.approx(0.38292492254802624)
    # Phi(-0.5) - e Phi(-1.5)
    assert interpretation.gaussian_profile(1.0)(1.0) == pytest.approx(0.12693673750664392)
    for mu in (0.5, 1.0, 2.0):  # mu-GDP is mu^2/2-zCDP, so the zCDP bound lies above the exact curve
        for x in (0.5, 1.0, 3.0):
            exact, bound = (
                interpretation.gaussian_profile(mu)(x),
                interpretation.concentrated_profile(mu * mu / 2)(x),
            )
            assert exact <= bound <= 40 * exact + 1e-9


def test_the_tradeoff_of_randomised_response() -> None:
    """f_{epsilon, 0}: the two lines through (0, 1) and (1, 0), which meet at 1 / (1 + e^epsilon)."""
    for alpha, beta in interpretation.compute_tradeoff(interpretation.approximate_profile(1.0, 0.0), 1.0):
        expected = max(0.0, 1 - math.e * alpha, (1 - alpha) / math.e)
        assert beta == pytest.approx(expected, abs=2e-3)
        assert beta <= expected + 1e-12


def test_groups() -> None:
    epsilon, delta = interpretation.compute_group_loss(1.0, 1e-6, 3)
    assert (epsilon, delta) == (3.0, pytest.approx(1e-6 * (math.exp(3) - 1) / (math.e - 1)))
    assert interpretation.compute_group_loss(1e6, 1e-6, 5) == (5e6, 1.0)
    assert interpretation.compute_certainty(math.log(3)) == pytest.approx(0.75)


# -- in a browser -------------------------------------------------------------------------------

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def browse(*flags: str) -> subprocess.CompletedProcess[bytes]:
    assert CHROMIUM is not None
    common = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--disable-background-networking",
    )
    return subprocess.run([CHROMIUM, *common, *flags], capture_output=True, timeout=90, check=True)


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_the_page_in_a_browser(full: Ledger, tmp_path: Path) -> None:
    """Screenshots in both schemes: paper is light or dark, every section has ink, and narrow windows don't
    overflow.
    """
    numpy = pytest.importorskip("numpy")
    image = pytest.importorskip("PIL.Image")
    target = write_report(full, None, tmp_path / "r.html")
    probe = """<script>document.title = JSON.stringify({
        wide: document.documentElement.scrollWidth <= innerWidth,
        boxes: [...document.querySelectorAll("section, figure")].map(
            e => [e.id, e.getBoundingClientRect().top, e.getBoundingClientRect().height])})</script>"""
    measured = tmp_path / "measured.html"  # the report has no script: a copy with one tells where things are
    measured.write_text(target.read_text().replace("</body>", probe + "</body>"))
    for width in (1040, 380):
        found = browse(f"--window-size={width},900", "--dump-dom", measured.as_uri()).stdout.decode()
        title = re.search(r"<title>(\{.*?\})</title>", found)
        assert title, "the page tells where its parts are"
        told = json.loads(title[1].replace("&quot;", '"'))
        assert told["wide"], f"nothing sticks out at {width} pixels"
        boxes = {name: (top, height) for name, top, height in told["boxes"]}
        assert list(boxes)[: len(SECTIONS)] == list(SECTIONS)
        assert all(height > 40 for _, height in boxes.values())
        if width == 1040:
            wide = boxes
    bottom = int(max(top + height for top, height in wide.values())) + 100
    papers = {}
    for scheme, number in (("dark", 0), ("light", 1)):
        shot = tmp_path / f"{scheme}.png"
        browse(
            f"--blink-settings=preferredColorScheme={number}",
            f"--window-size=1040,{bottom}",
            f"--screenshot={shot}",
            target.as_uri(),
        )
        pixels = numpy.asarray(image.open(shot).convert("L")).astype(int)
        papers[scheme] = int(pixels[5, 5])
        for name, (top, height) in wide.items():
            part = pixels[int(top) : int(top + height)]
            ink = (abs(part - papers[scheme]) > 60).mean()
            assert ink > 0.002, f"{name} is empty in {scheme}"
    assert papers["light"] > 230
    assert papers["dark"] < 40


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_readable_with_styles_off(full: Ledger, tmp_path: Path) -> None:
    """Without the style sheet lines are lines, not filled shapes, and the pictures keep their size."""
    numpy = pytest.importorskip("numpy")
    image = pytest.importorskip("PIL.Image")

    def ink(text: str) -> float:
        bare, shot = tmp_path / "bare.html", tmp_path / "bare.png"
        bare.write_text(text)
        browse("--window-size=1040,4200", f"--screenshot={shot}", bare.as_uri())
        return float((numpy.asarray(image.open(shot).convert("L")) < 128).mean())

    bare = re.sub(r"<style>.*?</style>", "", write_page(make_report(full)), flags=re.S)
    drawn = ink(bare)
    assert 0.002 < drawn < 0.1
    assert ink(bare.replace('fill="none"', "")) > 1.2 * drawn, "the control: lines that are filled do show"


# -- periods ----------------------------------------------------------------------------------------------------------

PERIODS = """
budget = {{ epsilon = 1, delta = 1e-6, accountant = "basic", per_period = true }}
[tables]
visits = {{ privacy_unit = "pid", privacy_period = "date_trunc('{part}', day)", data_from = 2024-01-01, \
    data_until = {until}, max_rows = 3 }}
"""
STRIPS = [
    ("month", "2025-02-28", "2024  ··▄·········\n2025  ··", 14),
    ("quarter", "2024-12-31", "2024  ▄···", 4),
    ("week", "2024-06-02", "2024  ········▄▄▄▄▄·········", 22),
    ("year", "2025-12-31", "2020s      ▄·", 2),
    ("day", "2024-12-31", f"{'·' * 29}\n2024-03  {'▄' * 31}\n", 366),
]


@pytest.mark.parametrize(("part", "until", "strip", "count"), STRIPS)
def test_the_strip_has_a_cell_for_each_period(part: str, until: str, strip: str, count: int) -> None:
    policy = Policy.loads(PERIODS.format(part=part, until=until))
    march = widen_to_periods(parse_periods(["2024-03"]), part)
    with Ledger.open(None, policy, "data") as ledger:
        ticket = ledger.reserve(date_event(PureDP(Fraction(1, 2)), march), "a statement")
        ledger.settle(ticket, ticket.event, None, "released")
        state, page, panel = ledger.state(), write_page(make_report(ledger, policy)), BudgetPanel.of(ledger)
    assert len(list_cells(state)) == page.count('class="cell"') == count
    assert strip in write_strip(state)
    assert write_strip(state).splitlines()[-1] in panel.text()
    assert f'aria-label="the spent share of each {part}&#x27;s budget"' in panel.html()
    assert len(write_strip(state).splitlines()) <= 12
    assert page.count(": 50% spent</title>") == strip.count("▄")


def test_a_release_is_no_refusal_and_no_charge(tmp_path: Path) -> None:
    policy = Policy.loads(PERIODS.format(part="month", until="2024-12-31"))
    with Ledger.open(tmp_path / "l.ledger", policy, "data") as ledger:
        ledger.publish("daily", "CREATE RELEASE daily AS SELECT 1", (b"{}", b"rows"), "")
        found = make_report(ledger, policy)
        assert (found["refused"], found["asked"]["people"], found["asked"]["days"]) == ([], [], [])
        (entry,) = found["asked"]["statements"]
        assert (entry["outcome"], entry["charge"]) == ("published", "0")
        assert "CREATE RELEASE daily" in write_page(found)
        assert "published or dropped a release" in explain_statement(ledger, 1, policy)
