"""The report as one HTML page: no script, nothing fetched, light and dark, readable with styles off."""

from __future__ import annotations

import csv
import io
import json
from html import escape
from pathlib import Path
from typing import Any

from dpsql.errors import Error
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.private_files import write_private
from dpsql.policy.model import Policy
from dpsql.report.charts import draw_charts
from dpsql.report.data import clip_text, make_report
from dpsql.report.tables import list_entries

STYLE = """
:root { color-scheme: light dark; --paper: #fcfbf9; --card: #ffffff; --ink: #1c2330; --quiet: #667085;
  --line: #e5e2dc; --first: #2f5fd0; --second: #b4541a; --track: #e9e6e0; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171c; --card: #1b1f26; --ink: #e9e7e2; --quiet:
#98a1b0;
  --line: #2c323b; --first: #8fb2ff; --second: #f0a26b; --track: #2a2f38; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 3rem 1.5rem 5rem; }
header p, .quiet { color: var(--quiet); }
header p { margin: 0; font-size: .9rem; }
h1 { font-size: 1.05rem; font-weight: 600; margin: 0 0 .2rem; letter-spacing: .01em; }
h2 { font-size: 1.25rem; font-weight: 650; margin: 3.2rem 0 .8rem; }
h3 { font-size: 1rem; font-weight: 600; margin: 0 0 .2rem; }
.big { font-size: clamp(2rem, 6vw, 3.1rem); font-weight: 680; letter-spacing: -.02em; line-height: 1.1;
margin: 0 0 1rem; } .track { height: 10px; border-radius: 5px; background: var(--track); overflow: hidden; }
.track div { height: 100%; background: var(--first); border-radius: 5px; }
.facts { display: flex; flex-wrap: wrap; gap: .4rem 2.4rem; margin: 1rem 0 0; padding: 0; list-style: none; }
.facts b { font-weight: 620; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 10px; background: var(--card); }
table { border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .7rem 1rem .3rem; color: var(--quiet); }
th { text-align: left; font-weight: 600; color: var(--quiet); white-space: nowrap; }
th, td { padding: .5rem 1rem; border-top: 1px solid var(--line); vertical-align: top; }
tr:first-child th { border-top: 0; }
.number { text-align: right; white-space: nowrap; }
.plain { white-space: nowrap; }
code { font: .84rem/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; }
.reason { display: block; color: var(--quiet); margin-top: .2rem; }
.promise { font-size: 1.3rem; line-height: 1.45; max-width: 46rem; margin: 0 0 .8rem; }
.note { border-left: 3px solid var(--second); padding: .2rem 0 .2rem .9rem; margin: 1.4rem 0 0; }
.warning { border: 2px solid var(--second); border-radius: 10px; padding: .7rem 1rem; margin: 1.4rem 0;
font-weight: 620; } .gallery { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 1.2rem;
} figure { margin: 0; padding: 1rem 1.1rem .8rem; border: 1px solid var(--line); border-radius: 10px;
background: var(--card); } figure.wide { grid-column: 1 / -1; }
figcaption { color: var(--quiet); font-size: .88rem; margin-bottom: .4rem; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--ink); }
svg .tick, svg .name, svg .quiet { fill: var(--quiet); }
svg .grid { stroke: var(--line); stroke-opacity: 1; } svg .axis { stroke: var(--quiet); }
svg .rule { stroke: var(--quiet); }
svg .line.first { stroke: var(--first); } svg .line.second { stroke: var(--second); }
svg .line.quiet { stroke: var(--quiet); stroke-width: 1.2; }
svg .area.first, svg .bar.first, svg .dot.first { fill: var(--first); }
svg .area.second, svg .bar.second, svg .dot.second { fill: var(--second); }
svg .dot.hollow { fill: var(--card); stroke: var(--second); }
svg text.first { fill: var(--first); } svg text.second { fill: var(--second); }
footer { margin-top: 4rem; font-size: .85rem; color: var(--quiet); }
@media print { main { padding: 0; } figure, .scroll { break-inside: avoid; } }
"""


def write_page(data: dict[str, Any]) -> str:
    """The whole page for a report (see :func:`dpsql.report.data.report`)."""
    sections = [
        ("left", "How much is left", _left(data)),
        ("asked", "What was asked, by whom, and what it cost", _asked(data["asked"])),
        ("refused", "What was refused", _refused(data["refused"])),
        ("guarantee", "What is promised", _guarantee(data["guarantee"])),
        ("assumptions", "Under which assumptions", _assumptions(data["assumptions"])),
        ("pictures", "In pictures", draw_charts(data)),
    ]
    body = "\n".join(
        f'<section id="{name}" aria-labelledby="{name}-title">\n<h2 id="{name}-title">{title}</h2>\n'
        f"{inner}\n</section>"
        for name, title, inner in sections
    )
    warnings = "".join(f'<p class="warning" role="alert">{escape(text)}</p>\n' for text in data["warnings"])
    name = data["ledger"] or "a ledger in memory"
    written = data["written"][:16].replace("T", " ")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Privacy budget: {escape(name)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>Privacy budget of {escape(name)}</h1>"
        f"<p>data set {escape(data['dataset'])} · written {escape(written)} UTC</p>"
        f"</header>\n{warnings}{body}\n<footer>Written by dpsql from the ledger alone; no private data were read. "
        "Charges cover the noise of every answer given; an answer shown again is free.</footer>\n"
        "</main>\n</body>\n</html>\n"
    )


def _left(data: dict[str, Any]) -> str:
    left = data["left"]
    facts = [
        f"<li><b>{left['charges']}</b> statements charged</li>",
        f"<li><b>{escape(left['about_text'])}</b></li>" if left["about_text"] else "",
        f"<li>{escape(left['detail'])}</li>" if left["detail"] else "",
        f"<li>accountant <b>{escape(left['accountant'])}</b></li>",
        f"<li><b>{left['unsettled']}</b> not settled, charged in full</li>" if left["unsettled"] else "",
    ]
    share = left["share_spent"]
    notes = "".join(f'<p class="note">Note: {escape(notice)}.</p>' for notice in data["notices"])
    return (
        f'<p class="big">{escape(left["sentence"])}</p>'
        f'<div class="track" role="meter" aria-valuemin="0" aria-valuemax="100" '
        f'aria-valuenow="{share * 100:.0f}" aria-label="spent">'
        f'<div style="width: {share * 100:.1f}%"></div></div>'
        f'<ul class="facts">{"".join(facts)}</ul>{notes}'
    )


def _asked(asked: dict[str, Any]) -> str:
    if not asked["statements"]:
        return "<p>Nothing yet.</p>"
    people = "".join(
        f'<tr><td>{escape(p["who"] or "not named")}</td><td class="number">{p["statements"]}</td>'
        f'<td class="number">ε={p["epsilon"]:.4g}</td>'
        f'<td class="number">{_share(p["share"])}</td></tr>'
        for p in asked["people"]
    )
    rows = "".join(
        f'<tr><td class="plain">{escape(e["when_text"])}</td><td class="plain">{escape(e["who"])}</td>'
        f'<td class="number">{_charge(e)}</td><td class="plain">{escape(e["outcome"])}</td>'
        f"<td><code>{escape(e['text'])}</code></td></tr>"
        for e in asked["statements"]
    )
    return (
        '<div class="scroll"><table><caption>Sums by person: plain sums of epsilon</caption><tr>'
        '<th scope="col">who</th><th scope="col" class="number">statements</th>'
        f'<th scope="col" class="number">charged</th><th scope="col" class="number">of</th></tr>'
        f"{people}</table></div><br>"
        '<div class="scroll"><table><caption>Statements in order; times as where this was written</caption>'
        "<tr>"
        '<th scope="col">when</th><th scope="col">who</th><th scope="col" class="number">charge</th>'
        f'<th scope="col">outcome</th><th scope="col">statement</th></tr>{rows}</table></div>'
    )


def _charge(entry: dict[str, Any]) -> str:
    """The charge, and the same in the accountant's own currency."""
    price = (
        "" if entry["price"] == entry["charge"] else f'<span class="reason">{escape(entry["price"])}</span>'
    )
    return escape(entry["charge"]) + price


def _share(share: float | None) -> str:
    return "the whole" if share is None else f"ε={share:.4g}"


def _refused(refused: list[dict[str, Any]]) -> str:
    if not refused:
        return "<p>Nothing.</p>"
    rows = "".join(
        f'<tr><td class="plain">{escape(e["when_text"])}</td><td class="plain">{escape(e["who"])}</td>'
        f'<td class="number">{escape(e["asked"] or "—")}</td>'
        f'<td><code>{escape(e["text"])}</code><span class="reason">{escape(e["reason"])}</span></td></tr>'
        for e in refused
    )
    return (
        '<div class="scroll"><table><caption>Refused statements cost nothing. They are the best sign that a '
        "bound is missing or a budget too small.</caption>"
        '<tr><th scope="col">when</th><th scope="col">who</th>'
        '<th scope="col" class="number">asked for</th><th scope="col">statement</th></tr>'
        f"{rows}</table></div>"
    )


def _guarantee(promise: dict[str, Any]) -> str:
    sentence, formal = escape(promise["sentence"]), escape(promise["formal"])
    return f'<p class="promise">{sentence}</p><p class="quiet">{formal}</p>'


def _assumptions(assumed: dict[str, Any]) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in assumed["sentences"])
    rows = "".join(
        f'<tr><td class="plain">{escape(table["name"])}</td><td class="plain">{escape(column["name"])}</td>'
        f"<td>{escape(_declared(column))}</td></tr>"
        for table in assumed["tables"]
        for column in table["columns"]
    )
    declared = (
        '<div class="scroll"><table><caption>Declared by the owner</caption><tr><th scope="col">table</th>'
        f'<th scope="col">column</th><th scope="col">declared</th></tr>{rows}</table></div>'
    )
    return f"<ul>{items}</ul>{declared if rows else ''}"


def _declared(column: dict[str, Any]) -> str:
    told = []
    if column["bounds"] is not None:
        low, high = (end if isinstance(end, str) else f"{end:g}" for end in column["bounds"])
        told.append(f"{low} to {high}")
    if column["values"] is not None:
        shown = ", ".join(map(str, column["values"][:12]))
        told.append(f"{len(column['values'])} values: {shown}{', ...' if len(column['values']) > 12 else ''}")
    return "; ".join(told) or "nothing"


def write_report(
    ledger: Ledger, policy: Policy | None, path: str | Path, *, accountant: str | None = None
) -> Path:
    """Writes the report; the suffix says how: ``.html`` (one self-contained page), ``.json``, ``.csv``, else
    text.

    Args:
        ledger: the ledger to report on.
        policy: for the assumptions; None takes the one that the ledger holds.
        path: the file to write.
        accountant: counts the same events as this accountant would have; the whole report says so.

    Raises:
        LedgerError: the ledger can't be read or trusted.
        Error: the file can't be written.
    """
    path = Path(path)
    if accountant is None:
        text = _written(ledger, policy, path.suffix.lower())
    else:
        with ledger.under(accountant) as other:
            text = _written(other, policy or ledger.policy, path.suffix.lower())
    told = None
    try:
        write_private(path, text)
    except OSError as error:
        told = Error(f"The report {path} can't be written: {error.strerror}.", hint="give another file name.")
    if told is not None:
        raise told
    return path


def report_text(ledger: Ledger, policy: Policy | None = None, *, accountant: str | None = None) -> str:
    """The report for a terminal; with ``accountant``, as that one would have counted."""
    if accountant is not None:
        with ledger.under(accountant) as other:
            return report_text(other, policy or ledger.policy)
    data = make_report(ledger, policy)
    left, promise = data["left"], data["guarantee"]
    lines = [f"WARNING: {warning}" for warning in data["warnings"]]
    lines += [f"{data['ledger'] or 'ledger in memory'} · {data['dataset']} · {data['written'][:16]}Z", ""]
    lines += [left["sentence"] + (f" ({left['about_text']})" if left["about_text"] else ""), ""]
    lines += ["Asked:"] + [
        f"  {e['when_text']}  {e['who']:<12} {e['charge']:<16} {e['outcome']:<11} {clip_text(e['text'])}"
        for e in data["asked"]["statements"]
    ]
    lines += ["", "Refused:"] + [
        f"  {e['when_text']}  {e['who']:<12} {clip_text(e['text'])}\n      {e['reason']}"
        for e in data["refused"]
    ]
    lines += ["", promise["sentence"], ""]
    lines += ["Assumptions:"] + [f"  {sentence}" for sentence in data["assumptions"]["sentences"]]
    lines += [f"Note: {notice}" for notice in data["notices"]]
    return "\n".join(lines) + "\n"


def _written(ledger: Ledger, policy: Policy | None, suffix: str) -> str:
    if suffix in (".html", ".htm"):
        return write_page(make_report(ledger, policy))
    if suffix == ".json":
        return json.dumps(make_report(ledger, policy), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if suffix == ".csv":
        names, rows = list_entries(ledger.entries(), ledger.terms.accountant)
        sheet = io.StringIO()
        csv.writer(sheet).writerows([names, *rows])
        return sheet.getvalue()
    return report_text(ledger, policy)
