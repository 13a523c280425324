"""The one renderer of tables, as text and as HTML; and the budget and the ledger shown with it.

Every piece of HTML is filled by :func:`fill` or :func:`tag`, which escape each value that is not HTML already.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from dpsql.ledger.accounts import BudgetState, Entry
from dpsql.numerics.exact_numbers import write_short

if TYPE_CHECKING:
    from dpsql.ledger.ledger import Ledger

_Value = str | int | float | None
BAR_WIDTH = 20
"""Characters of the text bar."""
_CELL_WIDTH = 48


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
    """Write an element. In names of attributes ``_`` is ``-``, at the end nothing; None leaves the attribute out."""
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


@dataclass(frozen=True)
class Table:
    """Finished cells under headings. ``numbers`` are the headings of columns that align to the right."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    numbers: tuple[str, ...] = ()

    def text(self) -> str:
        """Write aligned text, without the caption."""
        lines = [self.headings, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "   ".join(value.ljust(width) for value, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )

    def html(self, caption_side: str | None = None) -> Html:
        """Write an HTML table that is readable with styles off."""
        side = None if caption_side is None else f"caption-side: {caption_side}; text-align: left"
        head = join(self._cell("th", h, h, scope="col") for h in self.headings)
        body = join(
            tag("tr", join(self._cell("td", *pair) for pair in zip(self.headings, row, strict=True)))
            for row in self.rows
        )
        caption = tag("caption", self.caption, style=side)
        return tag("table", caption + tag("thead", tag("tr", head)) + tag("tbody", body))

    def _cell(self, name: str, heading: str, value: str, scope: str | None = None) -> Html:
        number = heading in self.numbers
        style = None if number else "text-align: left"
        return tag(name, value, class_="number" if number else None, style=style, scope=scope)


def list_entries(entries: list[Entry], accountant: str) -> tuple[tuple[str, ...], list[tuple[_Value, ...]]]:
    """Return columns and rows of ``SHOW LEDGER``, in the session's time zone, as the accountant charges."""
    names = ("statement", "when", "analyst", "charge", "epsilon", "delta", "outcome", "text", "reason")
    rows: list[tuple[_Value, ...]] = []
    for entry in entries:
        event = entry.charged(accountant)
        epsilon, delta = event.basic if event is not None else (0, 0)
        when = datetime.fromisoformat(entry.when).astimezone().isoformat(" ", "seconds")
        charge = "0" if event is None else event.sentence()
        rows.append((entry.statement_id, when, name_of(entry), charge, float(epsilon), float(delta),
                     entry.outcome, entry.text, entry.reason))  # fmt: skip
    return names, rows


def list_budget(state: BudgetState) -> tuple[tuple[str, ...], list[tuple[_Value, ...]]]:
    """Return columns and rows of ``SHOW BUDGET``: the whole, and the analyst's own share where there is one."""
    names = ("whose", "accountant", "epsilon", "delta", "spent_epsilon", "spent_delta", "left_epsilon", "left_delta",
             "more_at_default", "mechanism_delta", "rule_used")  # fmt: skip
    rows: list[tuple[_Value, ...]] = []
    for s in _states(state):
        amounts = (
            s.limit_epsilon,
            s.limit_delta,
            s.spent_epsilon,
            s.spent_delta,
            s.left_epsilon,
            s.left_delta,
        )
        used = None if s.rule_used is None else float(s.rule_used)
        whose = s.analyst or "whole"
        rows.append((whose, s.accountant, *map(float, amounts), s.about, float(s.mechanism_delta), used))
    return names, rows


def write_budget_text(ledger: Ledger, last: int = 20) -> str:
    """Write what ``%dpsql budget`` prints: the bar, and the latest ``last`` statements."""
    state, entries = ledger.state(), ledger.entries()
    lines = [_bar_line(s) for s in _states(state)]
    if ledger.path is None:
        lines.append("this budget lasts for this process only")
    table = _latest(entries, last, state, _CELL_WIDTH)
    if table.rows:
        lines.append(table.text())
    if len(entries) > len(table.rows):
        lines.append(f"{len(entries) - len(table.rows)} earlier: SHOW LEDGER")
    return "\n".join([*lines, *(f"note: {notice}" for notice in ledger.notices)])


def write_budget_html(ledger: Ledger, last: int = 20) -> str:
    """Write the same as HTML, readable with styles off."""
    state, entries = ledger.state(), ledger.entries()
    parts = []
    for s in _states(state):
        used = float(s.share)
        meter = tag("meter", f"{used:.0%}", min=0, max=1, value=f"{used:.4f}")
        parts.append(tag("p", quote(_title(s)) + Html(" ") + meter + Html(" ") + quote(_amounts(s))))
    if ledger.path is None:
        parts.append(tag("p", "This budget lasts for this process only."))
    table = _latest(entries, last, state, 200)
    if table.rows:
        parts.append(table.html(caption_side="bottom"))
    if len(entries) > len(table.rows):
        parts.append(tag("p", f"{len(entries) - len(table.rows)} earlier: SHOW LEDGER"))
    parts += [tag("p", f"Note: {notice}") for notice in ledger.notices]
    return tag("div", join(parts), class_="dpsql-budget")


def name_of(entry: Entry) -> str:
    """Return the analyst's name; without one the user of the operating system."""
    return entry.analyst or entry.user


def clip_text(text: str, width: int) -> str:
    """Write a text on one line, of at most this width."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 3].rstrip() + "..."


def _latest(entries: list[Entry], last: int, state: BudgetState, width: int) -> Table:
    rows = []
    for entry in entries[-last:] if last else []:
        event = entry.charged(state.accountant)
        charge = "0" if event is None else event.sentence()
        rows.append((entry.when_text, charge, entry.outcome, clip_text(entry.text, width)))
    return Table(("when", "charge", "outcome", "cell"), tuple(rows), state.sentence)


def _states(state: BudgetState) -> list[BudgetState]:
    return [state] if state.whole is None else [state.whole, state]


def _bar_line(state: BudgetState) -> str:
    filled = round(float(state.share) * BAR_WIDTH)
    if state.share > 0:
        filled = max(1, filled)
    if state.left_epsilon > 0:
        filled = min(BAR_WIDTH - 1, filled)
    return f"{_title(state)}     {'█' * filled}{'░' * (BAR_WIDTH - filled)}  {_amounts(state)}"


def _title(state: BudgetState) -> str:
    whose = "budget" if state.analyst is None else f"share of {state.analyst}"
    return f"{whose} ε={write_short(state.limit_epsilon)}, δ={write_short(state.limit_delta)}"


def _amounts(state: BudgetState) -> str:
    """Say what was spent and what is left, in the figures of every other place."""
    amounts = (
        f"{state.detail}; {state.sentence}" if state.has_rule else f"{state.spent} spent, {state.left} left"
    )
    return ", ".join(filter(None, [amounts, state.about_text]))
