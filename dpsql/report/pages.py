"""The owner's report as an HTML page, text, JSON or CSV.

The page has no script, fetches nothing, follows light and dark, and is readable with styles off.

Its pictures are inline SVG. Shapes carry plain attributes (stroke, dashes), so a picture can be read where styles are off;
classes let the page colour them.
"""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

from dpsql.errors import Error
from dpsql.late_dataclass import dataclass
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.state_files import write_private
from dpsql.policy.model import Policy
from dpsql.report.data import make_report
from dpsql.report.figures import certainty_text
from dpsql.report.tables import (
    LEDGER_COLUMNS,
    Data,
    Html,
    Sheet,
    clip_text,
    fill,
    join,
    list_entries,
    read_template,
    tag,
)


def write_sections(data: Data) -> Html:
    """Write the sections of a report (see :func:`dpsql.report.data.make_report`)."""
    sections = (
        ("left", "The remaining budget", _write_left(data)),
        (
            "asked",
            "Statements and their costs",
            _write_asked(data["asked"], data["pages"]) + write_accountants(data["accountants"]),
        ),
        ("refused", "Refusals", _write_refused(data["refused"])),
        ("guarantee", "The guarantee", write_guarantee(data["guarantee"])),
        ("assumptions", "Assumptions", write_assumptions(data["assumptions"])),
        ("pictures", "Pictures", draw_charts(data)),
    )
    return join(fill("section.html", id=i, title=title, inner=inner) for i, title, inner in sections)


def write_page(data: Data) -> str:
    """Write the whole page of a report."""
    warnings = (tag("p", text, class_="warning", role="alert") for text in data["warnings"])
    return fill(
        "page.html",
        name=data["ledger"] or "a ledger in memory",
        dataset=data["dataset"],
        written=data["written"][:16].replace("T", " "),
        style=read_template("style.css"),
        warnings=join(warnings),
        sections=write_sections(data),
    )


def _write_left(data: Data) -> Html:
    left = data["left"]
    unsettled = f"{left['unsettled']} not settled, charged in full" if left["unsettled"] else ""
    facts = [f"{left['charges']} statements charged", left["about_text"], left["detail"]]
    facts += [f"accountant {left['accountant']}", unsettled]
    return (
        fill(
            "left.html",
            sentence=left["sentence"],
            bar=write_bar(left["share_spent"], "spent"),
            facts=join(tag("li", fact) for fact in facts if fact),
            notes=join(tag("p", f"Note: {notice}.", class_="note") for notice in data["notices"]),
        )
        + _draw_strip(left["cells"])
        + _write_periods(left["periods"])
    )


_GAP = Html("<br>")
_CELL = 22
"""The side of a period in the strip."""


def _draw_strip(cells: list[Data]) -> Html:
    """Return the picture of the periods, a cell for each, filled from below by the spent share; empty without any."""
    if not cells:
        return Html()
    rows = list(dict.fromkeys(cell["row"] for cell in cells))
    drawn = [tag("text", row, x=0, y=_CELL * place + 16, class_="name") for place, row in enumerate(rows)]
    for cell in cells:
        x, y = 70 + _CELL * cell["place"], _CELL * rows.index(cell["row"])
        said = tag("title", f"{cell['period']}: {cell['share']:.0%} spent")
        full = (_CELL - 3) * min(1.0, cell["share"])
        square = tag("rect", Html(), x=x, y=y, width=_CELL - 3, height=_CELL - 3, class_="cell")
        level = tag(
            "rect", Html(), x=x, y=y + _CELL - 3 - full, width=_CELL - 3, height=full, class_="bar first"
        )
        drawn.append(tag("g", said + square + level))
    width, height = 70 + _CELL * (1 + max(cell["place"] for cell in cells)), _CELL * len(rows)
    title = "The spent share of each period's budget"
    picture = tag(
        "svg", join(drawn), viewBox=f"0 0 {width} {height}", width=width, role="img", aria_label=title
    )
    return tag("figure", tag("figcaption", title) + tag("div", picture, class_="strip")) + _GAP


def _write_periods(periods: list[Data]) -> Html:
    """Return a bar for each stretch of periods with equal amounts; empty without budgets per period."""
    rows = [
        (p["period"], write_bar(p["share_spent"], "spent"), p["spent"], f"{p['left']} left") for p in periods
    ]
    return write_table("periods||spent|left", rows, "Each period has a budget of its own") if rows else Html()


def write_bar(share: float, label: str) -> Html:
    """Return a bar of the spent share of a budget; ``label`` is for screen readers."""
    percent = 100 * min(1.0, max(0.0, share))
    return fill("bar.html", percent=f"{percent:.0f}", width=f"{percent:.1f}", label=label)


def write_table(headings: str, rows: Sequence[Sequence[str]], caption: str, numbers: str = "") -> Html:
    """Return a table with a caption as HTML, as :func:`_make_table`; all cells but :class:`Html` are escaped."""
    return _show_table(_make_table(headings, rows, caption, numbers))


def _make_table(headings: str, rows: Sequence[Sequence[str]], caption: str, numbers: str = "") -> Sheet:
    """Return a table; its headings, and those of columns of numbers, have ``|`` between them."""
    return Sheet.of(headings.split("|"), rows, numbers.split("|"), caption=(caption,), caption_style=None)


def _show_table(table: Sheet) -> Html:
    """Return a table as HTML that scrolls if it is too wide, also by the keyboard."""
    return tag("div", table.html(), class_="scroll", role="region", tabindex="0", aria_label=table.caption[0])


def _write_asked(asked: Data, pages: Data) -> Html:
    if not asked["people"] and not asked["statements"]:
        return tag("p", "Nothing yet.")
    caption = f"Statements in order{_write_range(pages)}; times of the place where this was written"
    return write_sums(asked) + _GAP + write_statements(asked["statements"], caption)


def write_sums(asked: Data) -> Html:
    """Write the sums by person, and by day and person."""
    return Html(_GAP.join(map(_show_table, _list_sums(asked))))


def _list_sums(asked: Data) -> list[Sheet]:
    """Return the tables of the sums by person, and by day and person."""
    days = [
        (d["day"], d["who"] or "not named", str(d["statements"]), str(d["refused"]), f"ε={d['epsilon']:.4g}")
        for d in asked["days"]
    ]
    debits, people = any(p["debited"] for p in asked["people"]), []
    for p in asked["people"]:
        debited = [f"ε={p['debited']:.4g}"] if debits else []
        share = "the whole" if p["share"] is None else f"ε={p['share']:.4g}"
        people.append(
            (p["who"] or "not named", str(p["statements"]), f"ε={p['epsilon']:.4g}", *debited, share)
        )
    numbers = f"statements|charged|{'share alone|' if debits else ''}of"
    sums = "plain sums of epsilon"
    by_day = f"Sums by day (UTC) and person: {sums}"
    return [
        _make_table(f"who|{numbers}", people, f"Sums by person: {sums}", numbers),
        _make_table("day|who|statements|refused|charged", days, by_day, "statements|refused|charged"),
    ]


def write_statements(entries: list[Data], caption: str) -> Html:
    """Return a table of charged statements: time, analyst, charge, outcome, text."""
    rows = [(e["when_text"], e["who"], _write_charge(e), e["outcome"], _write_statement(e)) for e in entries]
    return write_table("when|who|charge|outcome|statement", rows, caption, "charge")


_TEXT_WIDTH = 600
"""Characters of a statement on a page; the CSV has all of them."""


def _write_range(pages: Data) -> str:
    """Return the range of statements on a page; empty if all are on it."""
    if pages["of"] == 1:
        return ""
    more = (
        f"; the others are on the pages to {pages['of']}: dpsql report --page 2" if pages["page"] == 1 else ""
    )
    return f", {pages['first']} to {pages['last']} of {pages['count']} (page {pages['page']} of {pages['of']}){more}"


_SIDE_BY_SIDE = (
    "The charges so far under other accountants: the ε at the budget's δ, the largest ε of one more pure statement, and the "
    "number of further statements like the last one. pld is for a list that was declared as a whole."
)


def write_accountants(rows: list[Data]) -> Html:
    """Write the accountants side by side."""
    return _GAP + _show_table(_compare_accountants(rows))


def _compare_accountants(rows: list[Data]) -> Sheet:
    cells = [
        (
            row["accountant"] + (" (this session)" if row["session"] else ""),
            row["spent"],
            _write_figure(row["epsilon"]),
            f"{row['delta']:.4g}",
            "yes" if row["within"] else "no",
            _write_figure(row["left_epsilon"]),
            "—" if row["more_like_last"] is None else str(row["more_like_last"]),
        )
        for row in rows
    ]
    headings = "adds up|so far|ε|δ|within the budget|one more|more like the last"
    return _make_table(headings, cells, _SIDE_BY_SIDE, "ε|δ|one more|more like the last")


def _write_figure(value: float | None) -> str:
    return "—" if value is None else f"{value:.4g}"


def write_guarantee(told: Data) -> Html:
    """Write the promise in words, the errors of an attacker, and groups."""
    errors, groups = map(_show_table, _bound_attackers(told))
    return fill("guarantee.html", sentence=told["sentence"], formal=told["formal"]) + errors + _GAP + groups


def _bound_attackers(told: Data) -> tuple[Sheet, Sheet]:
    """Return the tables of an attacker's errors, and of the guarantee for groups."""
    errors = [(row["of"], *(f"{beta:.4g}" for _, beta in row["type_ii"])) for row in told["errors"]]
    alphas = [f"α = {alpha:.0%}" for alpha, _ in told["errors"][0]["type_ii"]]
    own = next((name for name in ("mu", "rho") if told["groups"][0][name] is not None), None)
    sign = {"mu": "μ", "rho": "ρ", None: ""}[own]
    groups = [
        (
            str(group["size"]),
            *([f"{group[own]:.4g}"] if own else []),
            _write_figure(group["epsilon"]),
            _write_figure(group["delta"]),
            certainty_text(group["certainty"]),
            *(f"{group[f'type_ii_at_{at}']:.4g}" for at in (1, 5, 10)),
        )
        for group in told["groups"]
    ]
    numbers, heads = "|".join(alphas), "|".join([sign] * bool(own) + ["ε", "δ", "certainty", *alphas])
    least = "The least type II error (misses) of any test whose type I error is α"
    return (
        _make_table(f"loss|{numbers}", errors, least, numbers),
        _make_table(f"units|{heads}", groups, "The whole budget, for several units together", heads),
    )


def _write_charge(entry: Data) -> Html:
    """Return the charge, and its price in the accountant's own currency."""
    price = "" if entry["price"] == entry["charge"] else entry["price"]
    return tag("span", entry["charge"]) + (tag("span", price, class_="reason") if price else Html())


def _write_why(entry: Data) -> Html:
    """Return the explanation of a charge, folded."""
    if not entry["why"]:
        return Html()
    return tag("details", tag("summary", "why") + tag("ul", join(tag("li", told) for told in entry["why"])))


def _write_refused(refused: list[Data]) -> Html:
    """Return a table of refused statements: time, analyst, requested cost, text and reason."""
    if not refused:
        return tag("p", "Nothing.")
    rows = [(e["when_text"], e["who"], e["asked"] or "—", _write_statement(e)) for e in refused]
    return write_table("when|who|asked for|statement", rows, _REFUSALS, "asked for")


_REFUSALS = "Refused statements cost nothing. They are the best sign of a missing bound or a budget that is too small."


def _write_statement(entry: Data) -> Html:
    """Return a statement with its reason and the explanation of its charge."""
    text = tag("code", clip_text(entry["text"], _TEXT_WIDTH))
    reason = entry["reason"] and tag("span", clip_text(entry["reason"], _TEXT_WIDTH), class_="reason")
    return text + (reason or Html()) + _write_why(entry)


def write_assumptions(assumed: Data) -> Html:
    """Write the owner's declarations, table by table."""
    items = join(tag("li", sentence) for sentence in assumed["sentences"])
    rows = [
        (table["name"], column["name"], _write_declared(column))
        for table in assumed["tables"]
        for column in table["columns"]
    ]
    return tag("ul", items) + (
        write_table("table|column|declared", rows, "Declared by the owner") if rows else Html()
    )


def _write_declared(column: Data) -> str:
    told = []
    if column["bounds"] is not None:
        low, high = (end if isinstance(end, str) else f"{end:g}" for end in column["bounds"])
        told.append(f"{low} to {high}")
    if column["values"] is not None:
        shown = ", ".join(map(str, column["values"][:12]))
        told.append(f"{len(column['values'])} values: {shown}{', ...' if len(column['values']) > 12 else ''}")
    return "; ".join(told) or "nothing"


def write_report(
    ledger: Ledger, policy: Policy | None, path: str | Path, *, accountant: str | None = None, page: int = 1
) -> Path:
    """Write the report to a file in the format of its suffix: ``.html``, ``.json``, ``.csv``, else text.

    Args:
        ledger: the ledger to report on.
        policy: the policy with the assumptions; by default the one in the ledger.
        path: the file to write.
        accountant: the accountant that counts the events; by default the ledger's.
        page: the page of single statements: 1 has the newest. Sums, and the CSV, are of all.

    Raises:
        LedgerError: the ledger can't be read or trusted.
        Error: the file can't be written.
    """
    path = Path(path)
    text = _write_as(path.suffix.lower(), ledger, policy, accountant, page)
    try:
        write_private(path, text)
    except OSError as error:
        what = f"The report {path} can't be written: {error.strerror}."
        raise Error(what, hint="give another file name.") from None
    return path


def report_text(
    ledger: Ledger, policy: Policy | None = None, *, accountant: str | None = None, page: int = 1
) -> str:
    """Return the report for a terminal; ``accountant`` counts the events instead of the ledger's."""
    return _write_as(".txt", ledger, policy, accountant, page)


def _write_as(suffix: str, ledger: Ledger, policy: Policy | None, accountant: str | None, page: int) -> str:
    if accountant is not None:
        with ledger.under(accountant) as other:
            return _write_as(suffix, other, policy or ledger.policy, None, page)
    if suffix == ".csv":
        sheet = io.StringIO()
        csv.writer(sheet).writerow(LEDGER_COLUMNS)
        for entry in ledger.walk():
            csv.writer(sheet).writerows(list_entries([entry], ledger.accountant)[1])
        return sheet.getvalue()
    data = make_report(ledger, policy, page=page)
    if suffix in (".html", ".htm"):
        return write_page(data) + "\n"
    if suffix == ".json":
        return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return _write_text(data)


def _write_text(data: Data) -> str:
    left, promise = data["left"], data["guarantee"]
    lines = [f"WARNING: {warning}" for warning in data["warnings"]]
    lines += [f"{data['ledger'] or 'ledger in memory'} · {data['dataset']} · {data['written'][:16]}Z", ""]
    lines += [left["sentence"] + (f" ({left['about_text']})" if left["about_text"] else ""), ""]
    lines += [f"  {p['period']}: {p['spent']} spent, {p['left']} left" for p in left["periods"]]
    for sums in _list_sums(data["asked"]):
        lines += [sums.text(), ""] if len(sums) else []
    lines += [f"Asked{_write_range(data['pages'])}:"] + [
        f"  {e['statement']:>4}  {e['when_text']}  {e['who']:<12} {e['charge']:<16} {e['outcome']:<11} {clip_text(e['text'], 90)}"
        for e in data["asked"]["statements"]
    ]
    if data["asked"]["statements"]:
        newest = data["asked"]["statements"][-1]["statement"]
        where = f"{shlex.quote(data['ledger'])} " if data["ledger"] else ""
        lines += [f"  (why: dpsql report {where}--why {newest} explains statement {newest})"]
    lines += ["", "Added up so far:", _compare_accountants(data["accountants"]).text()]
    lines += ["", "Refused:"] + [
        f"  {e['when_text']}  {e['who']:<12} {clip_text(e['text'], 90)}\n      {e['reason']}"
        for e in data["refused"]
    ]
    lines += ["", promise["sentence"], ""]
    for table in _bound_attackers(promise):
        lines += [table.text(), ""]
    lines += ["Assumptions:"] + [f"  {sentence}" for sentence in data["assumptions"]["sentences"]]
    lines += [f"Note: {notice}" for notice in data["notices"]]
    return "\n".join(lines) + "\n"


Point = tuple[float, float]

_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 26, 18, 48


@dataclass(frozen=True)
class Scale:
    """A range of values, its ticks, and its label. ``ticks`` are (value, label)."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    @classmethod
    def linear(cls, label: str, low: float, high: float, unit: str = "") -> Scale:
        """Return an axis with about five ticks at round numbers; ``unit`` ``"%"`` shows fractions as percent."""
        high = high if high > low else low + 1
        step = _round_step((high - low) / 5)
        first = math.ceil(low / step - 1e-9)
        values = [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]
        return cls(label, low, high, tuple((v, f"{v:.0%}" if unit == "%" else f"{v:.6g}") for v in values))

    @classmethod
    def counts(cls, label: str, high: int) -> Scale:
        """Return an axis from 0 to ``high``, with ticks at whole numbers only."""
        step = max(1, round(_round_step(high / 6)))
        return cls(label, 0, high, tuple((float(v), str(v)) for v in range(0, high + 1, step)))

    @classmethod
    def powers(cls, label: str, low: float, high: float) -> Scale:
        """Return a logarithmic axis with ticks at powers of ten."""
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        every = max(1, (last - first) // 4)
        ticks = tuple((10.0**k, "1" if k == 0 else f"10{_raised(k)}") for k in range(last, first - 1, -every))
        return cls(label, 10.0**first, 10.0**last, ticks, log=True)

    def place(self, value: float) -> float:
        """Place a value on the axis, from 0 to 1 (held to the ends)."""
        if self.log:
            value = max(value, self.low)
            at = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            at = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, at))


@dataclass
class Picture:
    """One chart. ``title`` and ``text`` are read out by screen readers, and shown where pictures are off."""

    title: str
    text: str
    x: Scale
    y: Scale
    width: int = 470
    height: int = 300
    shapes: list[Html] = field(default_factory=list)

    def at(self, x: float, y: float) -> Point:
        """Return a point of the data in pixels of the view box."""
        return (
            round(_LEFT + self.x.place(x) * (self.width - _LEFT - _RIGHT), 1),
            round(self.height - _BOTTOM - self.y.place(y) * (self.height - _TOP - _BOTTOM), 1),
        )

    def line(self, points: Sequence[Point], kind: str = "first", dash: str | None = None) -> None:
        """Draw a line through the points; ``kind`` is the class that colours it."""
        pen = {
            "stroke": "currentColor",
            "stroke_width": 2,
            "stroke_dasharray": dash,
            "stroke_linejoin": "round",
        }
        self._add("polyline", f"line {kind}", fill="none", points=self._path(points), **pen)

    def area(self, points: Sequence[Point], kind: str = "first") -> None:
        """Draw the area between the points and the x axis."""
        base = self.y.low
        ring = [(points[0][0], base), *points, (points[-1][0], base)]
        self._add("polygon", f"area {kind}", fill="currentColor", fill_opacity=0.08, points=self._path(ring))

    def bar(self, x: float, y: float, width: float, kind: str = "first") -> None:
        """Draw a bar from the x axis, ``width`` in units of x."""
        left, top = self.at(x - width / 2, y)
        right, bottom = self.at(x + width / 2, self.y.low)
        box = {"x": left, "y": top, "width": right - left, "height": max(0.5, bottom - top), "rx": 3}
        self._add("rect", f"bar {kind}", fill="currentColor", fill_opacity=0.25, **box)

    def dot(self, x: float, y: float, kind: str = "first", hollow: bool = False, title: str = "") -> None:
        """Draw a mark; hollow for refused statements. Browsers show ``title`` as a tooltip."""
        px, py = self.at(x, y)
        inner = tag("title", title) if title else ""
        pen: dict[str, object] = {"fill": "currentColor"}
        if hollow:
            kind, pen = f"{kind} hollow", {"fill": "none", "stroke": "currentColor", "stroke_width": 1.5}
        self._add("circle", f"dot {kind}", inner, cx=px, cy=py, r=4, **pen)

    def label(
        self,
        x: float,
        y: float,
        text: str,
        *,
        kind: str = "",
        anchor: str = "start",
        dx: float = 6,
        dy: float = -6,
    ) -> None:
        """Write text next to a point."""
        px, py = self.at(x, y)
        self._write(f"label {kind}", px + dx, py + dy, text, anchor)

    def key(self, entries: Sequence[tuple[str, str, str | None]], right: float, top: float) -> None:
        """Write names of lines (label, kind, dash) one below the other, their right end at a point of the data."""
        px, py = self.at(right, top)
        for i, (text, kind, dash) in enumerate(entries):
            y = py + 18 * i
            self._segment(f"line {kind}", px - 26, px, y, y, stroke_width=2, stroke_dasharray=dash)
            self._write(f"label {kind}", px - 34, y + 4, text, "end")

    def upright(self, x: float, text: str, kind: str = "quiet") -> None:
        """Draw a vertical line through the whole picture, labelled at its top."""
        (px, bottom), (_, top) = self.at(x, self.y.low), self.at(x, self.y.high)
        dx, anchor = (-6, "end") if self.x.place(x) > 0.7 else (6, "start")
        self._segment(f"rule {kind}", px, px, top, bottom, stroke_dasharray="3 4")
        self._write(f"label {kind}", px + dx, top + 11, text, anchor)

    def svg(self) -> Html:
        """Return the picture as an ``<svg>`` element."""
        drawn, self.shapes = self.shapes, []
        self._draw_grid()
        drawn, self.shapes = [*self.shapes, *drawn], drawn
        head = {"width": self.width, "height": self.height, "title": self.title, "text": self.text}
        return fill("chart.svg", **head, shapes=join(drawn))

    def _draw_grid(self) -> None:
        (x0, y0), (x1, y1) = self.at(self.x.low, self.y.low), self.at(self.x.high, self.y.high)
        for value, name in self.y.ticks:
            _, py = self.at(self.x.low, value)
            self._segment("grid", x0, x1, py, py, stroke_opacity=0.15)
            self._write("tick", x0 - 9, py + 4, name, "end")
        for value, name in self.x.ticks:
            self._write("tick", self.at(value, self.y.low)[0], y0 + 19, name, "middle")
        self._segment("axis", x0, x1, y0, y0)
        self._write("name", x1, self.height - 8, self.x.label, "end")
        self._write("name", -y1, 13, self.y.label, "end", transform="rotate(-90)")

    def _path(self, points: Sequence[Point]) -> str:
        return " ".join(f"{px:g},{py:g}" for px, py in (self.at(*point) for point in points))

    def _segment(self, kind: str, x1: float, x2: float, y1: float, y2: float, **more: object) -> None:
        self._add("line", kind, stroke="currentColor", x1=x1, x2=x2, y1=y1, y2=y2, **more)

    def _write(self, kind: str, x: float, y: float, text: str, anchor: str, **more: object) -> None:
        self._add("text", kind, text, fill="currentColor", x=x, y=y, text_anchor=anchor, **more)

    def _add(self, name: str, kind: str, inner: object = "", **attributes: object) -> None:
        self.shapes.append(tag(name, inner, class_=kind, **attributes))


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return float(min((s * power for s in (1, 2, 2.5, 5, 10)), key=lambda step: abs(step - rough)))


def _raised(power: int) -> str:
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


_FLOOR = 1e-12
_LINES = [("whole budget", "second", "7 4"), ("spent so far", "first", None)]


def draw_charts(data: Data) -> Html:
    """Draw all figures as HTML, each with a caption that says in words what it shows."""
    drawn = data["pictures"]
    figures = (
        _figure("burn-down", draw_burn_down(drawn["burn_down"]), "wide"),
        _figure("epsilon-delta", draw_privacy_profile(drawn["epsilon_delta"], data["left"])),
        _figure("trade-off", draw_tradeoff(drawn["tradeoff"])),
        _figure("attacker", draw_certainty(drawn["attacker"])),
        _figure("groups", draw_groups(drawn["groups"], drawn["attacker"]["symbol"])),
    )
    return tag("div", join(figures), class_="gallery")


def draw_burn_down(data: Data) -> Picture:
    """Draw epsilon left after each charge."""
    steps, limit, charges = data["steps"], data["limit"], max(1, data["charges"])
    sign = data["symbol"]
    lowest = max(-limit / 4, min([0.0, *(mark["level"] for mark in data["refused"])]))
    picture = Picture(
        "Budget left after each charge",
        f"The largest {sign} that one more statement could have had. Each step is a charge, each hollow mark a "
        "refused statement at the level it asked for.",
        Scale.counts("charges", charges),
        Scale.linear(f"{sign} left", lowest, limit * 1.08),
        width=980,
        height=320,
    )
    picture.line([(0, limit), (charges, limit)], "quiet", "3 4")
    picture.label(charges, limit, f"limit {sign}={limit:.4g}", kind="quiet", anchor="end", dx=0)
    if lowest < 0:
        picture.line([(0, 0), (charges, 0)], "quiet")
    corners: list[tuple[float, float]] = []
    for step in steps:
        corners += [(step["charges"], corners[-1][1])] if corners else []
        corners.append((step["charges"], step["left"]))
    if len(corners) > 1:
        picture.line(corners, "first")
    if len(steps) <= 60:
        for step in steps:
            picture.dot(step["charges"], step["left"], "first", title=step["text"])
    for mark in data["refused"]:
        picture.dot(mark["charges"], mark["level"], "second", hollow=True, title=f"refused: {mark['text']}")
    return picture


def draw_privacy_profile(data: Data, left: Data) -> Picture:
    """Draw delta as a function of epsilon, for the promise and for the charges."""
    limit = left["limit"]
    text = (
        "How likely (δ, logarithmic) the loss of one unit may exceed each ε: for the whole budget, and "
        "for the charges so far. Lower is more private."
    )
    x, y = Scale.linear("ε", 0, data["epsilon"][-1]), Scale.powers("δ", _FLOOR, 1)
    picture = Picture("Privacy profile", text, x, y)
    for name, kind in (("promise", "second"), ("spent", "first")):
        points = [(e, max(d, _FLOOR)) for e, d in zip(data["epsilon"], data[name], strict=True)]
        end = next((i for i, (_, d) in enumerate(points) if d <= _FLOOR), len(points) - 1)
        if end == 0:
            continue
        picture.line(points[: end + 1], kind, None if kind == "first" else "7 4")
    picture.key(_LINES, data["epsilon"][-1], 10**-1.5)
    picture.upright(limit["epsilon"], f"ε={limit['epsilon']:.4g}")
    return picture


def draw_tradeoff(data: Data) -> Picture:
    """Draw the trade-off between the two errors of an attacker who tests for one unit."""
    text = (
        "An attacker who tests whether one unit is in the data: the share of false alarms against the least "
        "share of misses. The diagonal is guessing, perfect privacy; the corner at 0 would be certainty."
    )
    picture = Picture(
        "Trade-off",
        text,
        Scale.linear("false alarms", 0, 1, "%"),
        Scale.linear("misses, at least", 0, 1, "%"),
    )
    picture.line([(0, 1), (1, 0)], "quiet", "3 4")
    for name, kind in (("promise", "second"), ("spent", "first")):
        picture.line([(float(a), float(b)) for a, b in data[name]], kind, None if kind == "first" else "7 4")
    entries = [("guessing", "quiet", "3 4"), *reversed(_LINES)]
    if "by_rule" in data:
        picture.line([(float(a), float(b)) for a, b in data["by_rule"]], "quiet", "1 3")
        entries.append(("all of the rule", "quiet", "1 3"))
    picture.key(entries, 1, 0.95)
    return picture


def draw_certainty(data: Data) -> Picture:
    """Draw the highest certainty about one unit, as a function of epsilon."""
    (limit, most), (spent, sure) = data["promise"], data["spent"]
    text = (
        f"The highest certainty about one unit that the answers allow to somebody who gave even odds before: "
        f"{certainty_text(sure)} by now, {certainty_text(most)} when the budget is used up."
        + (
            ""
            if data["symbol"] == "ε"
            else " It is how often the best test is right: single answers may say more."
        )
    )
    curve = [(float(x), float(y)) for x, y in data["curve"]]
    picture = Picture(
        "Attacker's certainty",
        text,
        Scale.linear(data["symbol"], 0, curve[-1][0]),
        Scale.linear("certainty", 0.5, 1, "%"),
    )
    picture.area(curve)
    picture.line(curve, "first")
    picture.dot(limit, most, "second")
    picture.label(limit, most, f"whole budget {certainty_text(most)}", kind="second", dx=10, dy=16)
    if spent:
        picture.dot(spent, sure, "first")
        if abs(spent - limit) > 0.02 * curve[-1][0]:
            picture.label(spent, sure, f"by now {certainty_text(sure)}", kind="first", dx=10, dy=16)
    return picture


def draw_groups(data: list[tuple[int, float, float, float]], sign: str = "ε") -> Picture:
    """Draw the certainty about one to five units together."""
    times = "k² times" if sign == "ρ" else "k times"
    together = "such as a family, or one person's months if a unit is one month"
    text = (
        f"The certainty about several units that belong together ({together}): k units have {times} the {sign}."
        + (
            f" The chance of failure grows too: δ={data[0][2]:.2g} for one, δ={data[-1][2]:.2g} for five."
            if data[0][2]
            else ""
        )
    )
    x = Scale("units together", 0.4, 5.6, tuple((float(k), str(k)) for k, *_ in data))
    picture = Picture("Group privacy", text, x, Scale.linear("certainty", 0.5, 1.0, "%"))
    for k, epsilon, _, sure in data:
        picture.bar(k, sure, 0.62)
        told = certainty_text(sure).replace("over ", ">")
        picture.label(k, sure, told, anchor="middle", dx=0, dy=18 if sure > 0.93 else -8)
        picture.label(k, 0.5, f"{sign}={epsilon:.3g}", kind="quiet", anchor="middle", dx=0, dy=-9)
    return picture


def _figure(name: str, picture: Picture, kind: str = "narrow") -> Html:
    return fill("figure.html", id=name, kind=kind, title=picture.title, text=picture.text, svg=picture.svg())
