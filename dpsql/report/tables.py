"""The one renderer of tables, as text and as HTML; and the budget and the ledger shown with it.

Every piece of HTML is filled by :func:`fill` or :func:`tag`, which escape each value that is not HTML already.
"""

from __future__ import annotations

import math
import shutil
import textwrap
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import field, replace
from datetime import datetime
from functools import cache
from html import escape
from importlib.resources import files
from itertools import zip_longest
from string import Template
from typing import TYPE_CHECKING, Any, NamedTuple

from dpsql.late_dataclass import dataclass
from dpsql.privacy.periods import find_first_day, find_place, say_periods
from dpsql.privacy.records import BudgetState, format_local_time

if TYPE_CHECKING:
    from dpsql.ledger.ledger import Ledger
    from dpsql.privacy.accountants import Accountant
    from dpsql.privacy.records import Entry

_Value = str | int | float | None
Figures = tuple[tuple[str, ...], list[tuple[_Value, ...]]]
"""Names of columns, and rows of texts, numbers, booleans and NULLs."""
Data = dict[str, Any]
"""The report's plain data: texts, numbers, lists and dictionaries."""
_CELL_WIDTH = 48
_GAP = "   "
_CAPTION = "caption-side: bottom; text-align: left; width: 0"  # it does not widen the table
_FOOTER = "position: sticky; left: 0; width: 100cqw; white-space: normal"
"""The style of a caption's text, which wraps at the width of the table's container."""
_SCROLLED = "overflow-x: auto; container-type: inline-size"
_PAGE = "max-height: 30em; overflow: auto"
"""The style of a whole table, which scrolls within a page's height."""
_LEFT = "text-align: left"
_SHORT = 40
"""The longest cell of a column that is not broken."""


NO_MATH = "mathjax_ignore"
"""An HTML class without formulas in JupyterLab, which would render two parameters of a statement as one."""


class Html(str):
    """Text that is HTML already, so that it is not escaped again."""

    __slots__ = ()

    def __add__(self, other: str) -> Html:
        return Html(str(self) + quote(other))


@cache
def read_template(name: str) -> Html:
    """Read a file of the folder ``templates``."""
    return Html((files("dpsql.report") / "templates" / name).read_text(encoding="utf-8"))


def fill(template: str, **values: object) -> Html:
    """Fill the placeholders of a template. Values that are not :class:`Html` are escaped."""
    return Html(
        Template(read_template(template)).substitute({k: quote(v) for k, v in values.items()}).strip()
    )


def tag(name: str, inner: object, **attributes: object) -> Html:
    """Return an element. In names of attributes ``_`` is ``-``, at the end nothing; None leaves the attribute out."""
    given = (
        f' {key.strip("_").replace("_", "-")}="{quote(f"{value:g}" if isinstance(value, float) else value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{''.join(given)}>{quote(inner)}</{name}>")


def quote(value: object) -> Html:
    """Escape a value, unless it is HTML already."""
    return value if isinstance(value, Html) else Html(escape(str(value)))


def join(parts: Iterable[Html]) -> Html:
    """Join pieces of HTML."""
    return Html("".join(parts))


class Display:
    """A display as text and as HTML; IPython shows one of them."""

    def text(self) -> str:
        """Return the text for a terminal."""
        raise NotImplementedError

    def html(self) -> str:
        """Return the HTML for a notebook."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the text and the HTML as plain ``str``, since marimo does not accept subclasses."""
        return {"text/plain": str(self.text()), "text/html": str(self.html())}


class SheetColumn(NamedTuple):
    """A heading and the finished text of every shown cell. ``right`` for numbers."""

    heading: str
    cells: tuple[str, ...]
    right: bool = False


@dataclass(frozen=True, repr=False)
class Sheet(Display):
    """A table of formatted cells, and lines below it.

    ``gap`` is the number of the row above which rows were omitted; None if all are shown. ``more`` makes the sheet of all rows,
    which HTML unfolds with a filter. ``sorts``: whether a heading sorts its column in HTML, if scripts run. ``caption_style``
    is the HTML style of the caption; None leaves caption and cells to the page's style sheet, by classes.
    """

    columns: tuple[SheetColumn, ...]
    caption: tuple[str, ...] = ()
    gap: int | None = None
    caption_style: str | None = _CAPTION
    more: Callable[[], Sheet] | None = field(default=None, compare=False)
    sorts: bool = False

    @classmethod
    def of(
        cls,
        headings: Sequence[str],
        rows: Iterable[Sequence[str]],
        numbers: Collection[str] = (),
        **rest: Any,
    ) -> Sheet:
        """Return a sheet of formatted rows; ``numbers`` are the headings of right-aligned columns."""
        cells = list(zip(*rows, strict=True)) or [()] * len(headings)
        return cls(
            tuple(SheetColumn(h, c, h in numbers) for h, c in zip(headings, cells, strict=True)), **rest
        )

    def text(self) -> str:
        """Return aligned text: numbers to the right, words to the left, the caption last."""
        aligned = []
        for heading, cells, right in self.columns:
            wrapped = [wrap_cell(cell) for cell in (heading, *cells)]
            width = max(measure_width(line) for lines in wrapped for line in lines)
            aligned.append([[_align(line, width, right) for line in lines] for lines in wrapped])
        shown: list[str] = []
        for place, row in enumerate(zip(*aligned, strict=True)):
            if self.gap is not None and place == self.gap + 1:
                shown.append(" …")
            empty = [" " * measure_width(lines[0]) for lines in row]
            for line in zip_longest(*row):
                parts = (part if part is not None else space for part, space in zip(line, empty, strict=True))
                shown.append((" " + _GAP.join(parts)).rstrip())
        if self.gap is not None and self.gap + 1 >= len(aligned[0] if aligned else ()):
            shown.append(" …")
        return "\n".join([*shown, *(" " + line for line in fold_lines(self.caption))])

    def html(self) -> Html:
        """Return an HTML table, readable without styles and scripts; its caption has the lines below the text table."""
        aligns = [self._align_html(column) for column in self.columns]
        sorts = self.sorts and self.gap is None and len(self) > _GLANCE
        rows = [
            tag("tr", join(tag("td", cell, **align) for cell, align in zip(row, aligns, strict=True)))
            for row in zip(*(column.cells for column in self.columns), strict=True)
        ]
        if self.gap is not None:
            rows.insert(self.gap, tag("tr", tag("td", "…", colspan=len(aligns), style=_LEFT)))
        pairs = zip(self.columns, aligns, strict=True)
        head = join(
            tag("th", column.heading, scope="col", **(_make_sorting(align) if sorts else align))
            for column, align in pairs
        )
        caption = Html(Html("<br>").join(map(quote, fold_lines(self.caption))))
        if self.caption_style is not None:
            caption = tag("div", caption, style=_FOOTER) if caption else caption
        parts = [
            tag("caption", caption, style=self.caption_style) if caption else Html(),
            tag("thead", tag("tr", head)) if head else Html(),
            tag("tbody", join(rows)),
        ]
        table = tag("table", join(parts), class_=f"dpsql {NO_MATH}")
        if self.caption_style is None:
            return table
        scripts = {"onclick": _read_script("sort.js"), "onkeydown": _PRESS} if sorts else {}
        shown = tag("div", table, class_=NO_MATH, style=_SCROLLED, **scripts)
        return shown if self.more is None else shown + self.more().unfold()

    def __len__(self) -> int:
        return len(self.columns[0].cells) if self.columns else 0

    def unfold(self) -> Html:
        """Return an element that unfolds to the table, with a filter of its rows."""
        word = Html('<input type="search" placeholder="filter" aria-label="filter the rows">')
        table = tag("div", replace(self, caption=()).html(), style=_PAGE)
        summary = tag("summary", f"all {len(self)} rows: a click on a heading sorts")
        return tag("details", summary + word + table, oninput=_read_script("filter.js"))

    def _align_html(self, column: SheetColumn) -> dict[str, str | None]:
        """Return the attributes of a column's cells."""
        if self.caption_style is None:
            return {"class_": "number" if column.right else None}
        # explicit padding, since some front ends remove it and columns would run together
        short = column.right or max(map(len, column.cells), default=0) <= _SHORT
        space = "; white-space: nowrap" if short else ""
        return {"style": f"text-align: {'right' if column.right else 'left'}; padding-right: 1em{space}"}


_GLANCE = 5
"""The most rows that need no sorting."""
_PRESS = "if (event.key == `Enter`) event.target.click()"
"""The handler by which the keyboard sorts."""


@cache
def _read_script(name: str) -> str:
    """Return a script of the folder ``templates`` on one line, as an attribute; it has no quotes that would be escaped."""
    return " ".join(read_template(name).split())


def _make_sorting(align: dict[str, str | None]) -> dict[str, str | None]:
    return {"style": f"{align['style']}; cursor: pointer", "tabindex": "0"}


CELL_WIDTH = 60
"""Terminal columns of one line of a cell; longer texts are wrapped."""


def wrap_cell(text: str) -> list[str]:
    """Return a cell as lines of at most :data:`CELL_WIDTH`, broken between words if there are any.

    >>> wrap_cell("short")
    ['short']
    """
    if len(text) <= CELL_WIDTH:
        return [text]
    return textwrap.wrap(text, CELL_WIDTH, drop_whitespace=True, break_on_hyphens=False) or [text]


def _align(text: str, width: int, right: bool) -> str:
    space = " " * (width - measure_width(text))
    return space + text if right else text + space


def measure_width(text: str) -> int:
    """Return the terminal columns of a text: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    wide = unicodedata.east_asian_width
    return sum(0 if unicodedata.combining(c) else 2 if wide(c) in "WF" else 1 for c in text)


def fold_lines(parts: Sequence[str]) -> list[str]:
    """Return a caption as few lines as the terminal allows, broken only between its parts."""
    room = max(60, min(120, shutil.get_terminal_size((110, 24)).columns - 2))
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= room:
            lines[-1] += " · " + part
        else:
            lines.append(part)
    return lines


_LEDGER_COLUMNS = "statement when analyst charge epsilon delta outcome text reason mu rho"
LEDGER_COLUMNS = tuple(_LEDGER_COLUMNS.split())
"""The columns of ``SHOW LEDGER``."""
LEDGER_TEXT = 60
"""Characters of a text or a reason in its display; the value has all of them."""


def list_entries(entries: list[Entry], accountant: Accountant) -> Figures:
    """Return columns and rows of ``SHOW LEDGER``, in the session's time zone, with the accountant's charges.

    ``mu`` under gdp and ``rho`` under zcdp are the rule's summands (mu by squares); NULL under other accountants.
    """
    rows: list[tuple[_Value, ...]] = []
    for entry in entries:
        event = entry.charged(accountant)
        epsilon, delta = event.basic if event is not None else (0, 0)
        when = datetime.fromisoformat(entry.when).astimezone().isoformat(" ", "seconds")
        charge = (entry.charge(accountant), float(epsilon), float(delta))
        said = (entry.outcome, entry.text, entry.reason)
        own = _own_costs(entry, accountant)
        rows.append((entry.statement_id or None, when, name_of(entry), *charge, *said, *own))
    return LEDGER_COLUMNS, rows


def _own_costs(entry: Entry, accountant: Accountant) -> tuple[float | None, float | None]:
    """Return the mu and the rho of a statement, if the accountant counts in them; for others' totals if it displays them."""
    event = entry.charged(accountant)
    if entry.outcome == "others" and not accountant.speaks:
        return None, None
    mu, rho = (accountant.currency == currency for currency in ("mu", "rho"))
    if event is None:
        return (0.0 if mu else None), (0.0 if rho else None)
    return (float(event.mu) if mu else None), (float(event.rho) if rho else None)


_BUDGET_COLUMNS = """
    whose accountant epsilon delta spent_epsilon spent_delta left_epsilon left_delta more_at_default mechanism_delta rule_used
    currency amount amount_spent amount_left answers lasts"""
BUDGET_COLUMNS = tuple(_BUDGET_COLUMNS.split())
"""The columns of ``SHOW BUDGET``."""


def list_budget(state: BudgetState, lasting: bool = True) -> Figures:
    """Return columns and rows of ``SHOW BUDGET``: the whole, and the analyst's own share if there is one.

    The remaining amount of a share is that of its own limit: a statement needs room in both rows.

    With a share, ``answers`` is ``shared`` if stored answers that another analyst paid for are free, or ``own`` if the
    share pays for them. ``lasts`` says whether a ledger keeps the budget, or only this process. With budgets per period the
    first column is ``period``: each stretch of periods with equal amounts has its rows.
    """
    if state.stretches:
        names, _ = list_budget(replace(state, stretches=()), lasting)
        listed = [(one.period, row) for one in state.stretches for row in list_budget(one, lasting)[1]]
        return ("period", *names), [(period, *row) for period, row in listed]
    rows: list[tuple[_Value, ...]] = []
    for s in _states(state):
        left, room = s.left_epsilon if s.share_left is None else s.share_left, s.share_own or s.own
        amounts = map(
            float, (s.limit_epsilon, s.limit_delta, s.spent_epsilon, s.spent_delta, left, s.left_delta)
        )
        rest = s.about, float(s.mechanism_delta), None if s.rule_used is None else float(s.rule_used)
        currency, own = "epsilon", (s.limit_epsilon, s.spent_epsilon, left)
        if room is not None:
            currency, own = s.currency, (room.limit, room.spent, room.left)
        answers = None if state.whole is None else state.answers
        lasts = "in the ledger" if lasting else "for this process only"
        head = (s.analyst or "whole", s.accountant)
        rows.append((*head, *amounts, *rest, currency, *map(float, own), answers, lasts))
    return BUDGET_COLUMNS, rows


class PeriodCell(NamedTuple):
    """One period in a strip: its row and its place there, the period in words, and the spent share of its budget."""

    row: str
    place: int
    period: str
    share: float


MOST_CELLS = 2000
"""The most periods of a strip, the last ones."""
_MOST_LINES = 12
"""The most lines of a strip of signs, the last ones; the report shows all."""
_SIGNS = "▁▂▃▄▅▆▇█"


def list_cells(state: BudgetState) -> list[PeriodCell]:
    """Return a cell for each period, in order."""
    found: list[PeriodCell] = []
    for one in reversed(state.stretches if state.part else ()):
        for low, high in reversed(one.days):
            day = high
            while day > low and len(found) < MOST_CELLS:
                first = max(low, find_first_day(day - 1, state.part))
                row, place = find_place(first, state.part)
                found.append(PeriodCell(row, place, say_periods(((first, day),)), float(one.share)))
                day = first
    return found[::-1]


def write_strip(state: BudgetState) -> str:
    """Return a line of signs for each row of periods: a dot if nothing is spent, a fuller sign for a larger share."""
    rows: dict[str, dict[int, str]] = {}
    for cell in list_cells(state):
        sign = _SIGNS[min(len(_SIGNS), math.ceil(cell.share * len(_SIGNS))) - 1] if cell.share > 0 else "·"
        rows.setdefault(cell.row, {})[cell.place] = sign
    lines = [
        f"{row}  {''.join(signs.get(place, ' ') for place in range(max(signs) + 1))}"
        for row, signs in rows.items()
    ]
    return "\n".join(["…", *lines[-_MOST_LINES:]] if len(lines) > _MOST_LINES else lines)


@dataclass(frozen=True)
class Charge:
    """One of the latest statements: its time, charge, outcome, text, and the notebook's ``cell`` that asked it, if known."""

    when: str
    charge: str
    outcome: str
    text: str
    cell: str = ""


@dataclass(frozen=True, repr=False)
class BudgetPanel(Display):
    """The budget as a bar, the latest of ``count`` statements in local time, and whether the budget outlasts the process."""

    state: BudgetState
    charges: tuple[Charge, ...]
    count: int
    lasting: bool = True
    notices: tuple[str, ...] = ()

    @classmethod
    def of(cls, ledger: Ledger, last: int = 20) -> BudgetPanel:
        """Return the panel of a ledger, with its ``last`` statements."""
        entries = ledger.entries(last) if last else []
        charges = [Charge(e.when, e.charge(ledger.accountant), e.outcome, e.text) for e in entries]
        return cls(ledger.state(), tuple(charges), ledger.count, ledger.lasting, ledger.notices)

    def text(self) -> str:
        """Return the bar and the table as text."""
        lines = [s.bar_line for s in _states(self.state)]
        lines += [f"  {line}" for line in write_strip(self.state).splitlines()]
        lines += _say_answers(self.state)
        if not self.lasting:
            lines.append("this budget lasts for this process only")
        if self.charges:
            lines.append(self._latest(_CELL_WIDTH).text())
        if self.count > len(self.charges):
            lines.append(f"{self.count - len(self.charges)} earlier: SHOW LEDGER")
        lines += [f"how it is counted: {s.counting}" for s in _states(self.state) if s.counting]
        return "\n".join([*lines, *(f"note: {notice}" for notice in self.notices)])

    def html(self) -> str:
        """Return the bar and the table as HTML, readable without styles."""
        parts = []
        for s in _states(self.state):
            used = float(s.share)
            said = f"{used:.0%} spent"
            meter = tag("meter", said, min=0, max=1, value=f"{used:.4f}", title=said, aria_label=said)
            parts.append(tag("p", quote(s.amounts) + Html(" ") + meter + Html(" ") + quote(s.title)))
            if s.counting:
                parts.append(tag("details", tag("summary", "how it is counted") + s.counting))
        strip = write_strip(self.state)
        if strip:
            said = f"the spent share of each {self.state.part}'s budget"
            parts.append(tag("pre", strip, title=said, aria_label=said))
        parts += [tag("p", line) for line in _say_answers(self.state)]
        if not self.lasting:
            parts.append(tag("p", "This budget lasts for this process only."))
        if self.charges:
            parts.append(self._latest(200, linked=True).html())
        if self.count > len(self.charges):
            parts.append(tag("p", f"{self.count - len(self.charges)} earlier: SHOW LEDGER"))
        parts += [tag("p", f"Note: {notice}") for notice in self.notices]
        return tag("div", join(parts), class_=f"dpsql-budget {NO_MATH}")

    def _latest(self, width: int, linked: bool = False) -> Sheet:
        """Return the table of the charges; linked texts lead to their cells in JupyterLab and nbconvert."""

        def write(charge: Charge) -> str:
            text = clip_text(charge.text, width)
            return tag("a", text, href=f"#cell-id={charge.cell}") if linked and charge.cell else text

        rows = [(format_local_time(c.when), c.charge, c.outcome, write(c)) for c in self.charges]
        return Sheet.of(("when", "charge", "outcome", "cell"), rows)


def _say_answers(state: BudgetState) -> list[str]:
    """Return the sentence about the price of stored answers, if the analyst has a share."""
    if state.whole is None:
        return []
    pays = "are free" if state.answers == "shared" else f"are debited to {state.analyst}'s share, once each"
    return [f"stored answers that another analyst paid for {pays}"]


def name_of(entry: Entry) -> str:
    """Return the analyst's name, or the user of the operating system."""
    return entry.analyst or entry.user


def clip_text(text: str, width: int) -> str:
    """Return a text on one line, of at most this width."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 3].rstrip() + "..."


def _states(state: BudgetState) -> list[BudgetState]:
    return [state] if state.whole is None else [state.whole, state]
