"""The budget and the ledger as relations, as text and as HTML: the analyst's view."""

from __future__ import annotations

from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any

from dpsql.ledger.accounts import BudgetState, Entry
from dpsql.numerics.rounding import short

if TYPE_CHECKING:
    from dpsql.ledger.ledger import Ledger

Rows = list[tuple[Any, ...]]
BAR = 20
"""Cells of the text bar."""
_CELL = 48


def list_entries(entries: list[Entry], accountant: str) -> tuple[tuple[str, ...], Rows]:
    """Columns and rows of ``SHOW LEDGER``: times are the session's, ``epsilon`` and ``delta`` what the accountant
    charged.
    """
    names = ("statement", "when", "analyst", "charge", "epsilon", "delta", "outcome", "text", "reason")
    rows: Rows = []
    for entry in entries:
        event = entry.charged(accountant)
        epsilon, delta = event.basic if event is not None else (0, 0)
        rows.append(
            (
                entry.statement_id,
                datetime.fromisoformat(entry.when).astimezone().isoformat(" ", "seconds"),
                name_of(entry),
                "0" if event is None else event.sentence(),
                float(epsilon),
                float(delta),
                entry.outcome,
                entry.text,
                entry.reason,
            )
        )
    return names, rows


def list_budget(state: BudgetState) -> tuple[tuple[str, ...], Rows]:
    """Columns and rows of ``SHOW BUDGET``: the whole, and the analyst's own share where there is one."""
    names = (
        "whose",
        "accountant",
        "epsilon",
        "delta",
        "spent_epsilon",
        "spent_delta",
        "left_epsilon",
        "left_delta",
        "more_at_default",
        "mechanism_delta",
        "rule_used",
    )
    shown = [state] if state.whole is None else [state.whole, state]
    rows: Rows = [
        (
            s.analyst or "whole",
            s.accountant,
            float(s.limit_epsilon),
            float(s.limit_delta),
            float(s.spent_epsilon),
            float(s.spent_delta),
            float(s.left_epsilon),
            float(s.left_delta),
            s.about,
            float(s.mechanism_delta),
            None if s.rule_used is None else float(s.rule_used),
        )
        for s in shown
    ]
    return names, rows


def write_budget_text(ledger: Ledger, last: int = 20) -> str:
    """What ``%dpsql budget`` prints: the bar, and the latest ``last`` statements."""
    state = ledger.state()
    lines = [_bar_line(s) for s in ([state] if state.whole is None else [state.whole, state])]
    if ledger.path is None:
        lines.append("this budget lasts for this process only")
    entries = ledger.entries()
    shown = (
        [(e.when_text, _charge(e, state), e.outcome, _clip(e.text)) for e in entries[-last:]] if last else []
    )
    if shown:
        head = ("when", "charge", "outcome", "cell")
        widths = [max(len(row[i]) for row in [head, *shown]) for i in range(4)]
        lines += [
            "   ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip()
            for row in [head, *shown]
        ]
    if len(entries) > len(shown):
        lines.append(f"{len(entries) - len(shown)} earlier: SHOW LEDGER")
    lines += [f"note: {notice}" for notice in ledger.notices]
    return "\n".join(lines)


_LEFT = "style='text-align: left'"
_BELOW = "style='caption-side: bottom; text-align: left'"


def write_budget_html(ledger: Ledger, last: int = 20) -> str:
    """The same rows as HTML, readable with styles off."""
    state = ledger.state()
    parts = []
    for s in [state] if state.whole is None else [state.whole, state]:
        used = float(s.share)
        parts.append(
            f"<p>{escape(_title(s))} <meter min='0' max='1' value='{used:.4f}'>{used:.0%}</meter> "
            f"{escape(_amounts(s))}</p>"
        )
    if ledger.path is None:
        parts.append("<p>This budget lasts for this process only.</p>")
    entries = ledger.entries()
    if entries[-last:]:
        head = "".join(f"<th scope='col' {_LEFT}>{h}</th>" for h in ("when", "charge", "outcome", "cell"))
        body = "".join(
            f"<tr><td>{escape(e.when_text)}</td><td {_LEFT}>{escape(_charge(e, state))}</td><td {_LEFT}>{escape(e.outcome)}</td>"
            f"<td {_LEFT}><code>{escape(_clip(e.text, 200))}</code></td></tr>"
            for e in entries[-last:]
        )
        parts.append(
            f"<table><caption {_BELOW}>{escape(state.sentence)}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>"
        )
    if len(entries) > last:
        parts.append(f"<p>{len(entries) - last} earlier: <code>SHOW LEDGER</code></p>")
    parts += [f"<p>Note: {escape(notice)}</p>" for notice in ledger.notices]
    return f"<div class='dpsql-budget'>{''.join(parts)}</div>"


def name_of(entry: Entry) -> str:
    """The analyst's name; without one the user of the operating system."""
    return entry.analyst or entry.user


def _bar_line(state: BudgetState) -> str:
    filled = round(float(state.share) * BAR)
    if state.share > 0:
        filled = max(1, filled)
    if state.left_epsilon > 0:
        filled = min(BAR - 1, filled)
    return f"{_title(state)}     {'█' * filled}{'░' * (BAR - filled)}  {_amounts(state)}"


def _title(state: BudgetState) -> str:
    whose = "budget" if state.analyst is None else f"share of {state.analyst}"
    return f"{whose} ε={short(state.limit_epsilon)}, δ={short(state.limit_delta)}"


def _amounts(state: BudgetState) -> str:
    """What was spent and what is left, in the figures that every other place says."""
    if not state.has_rule:
        amounts = f"{state.spent} spent, {state.left} left"
    else:
        amounts = f"{state.detail}; {state.sentence}"
    return ", ".join(filter(None, [amounts, state.about_text]))


def _charge(entry: Entry, state: BudgetState) -> str:
    event = entry.charged(state.accountant)
    return "0" if event is None else event.sentence()


def _clip(text: str, width: int = _CELL) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 3].rstrip() + "..."
