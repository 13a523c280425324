"""The owner's report as an HTML page, text, JSON or CSV.

The page has no script, fetches nothing, follows light and dark, and is readable with styles off.
"""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpsql.errors import Error
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.state_files import write_private
from dpsql.policy.model import Policy
from dpsql.report.charts import draw_charts
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


def write_page(data: Data) -> str:
    """Write the whole page of a report (see :func:`dpsql.report.data.make_report`)."""
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
    warnings = (tag("p", text, class_="warning", role="alert") for text in data["warnings"])
    return fill(
        "page.html",
        name=data["ledger"] or "a ledger in memory",
        dataset=data["dataset"],
        written=data["written"][:16].replace("T", " "),
        style=read_template("style.css"),
        warnings=join(warnings),
        sections=join(fill("section.html", id=i, title=title, inner=inner) for i, title, inner in sections),
    )


def _write_left(data: Data) -> Html:
    left = data["left"]
    unsettled = f"{left['unsettled']} not settled, charged in full" if left["unsettled"] else ""
    facts = [f"{left['charges']} statements charged", left["about_text"], left["detail"]]
    facts += [f"accountant {left['accountant']}", unsettled]
    return fill(
        "left.html",
        sentence=left["sentence"],
        bar=write_bar(left["share_spent"], "spent"),
        facts=join(tag("li", fact) for fact in facts if fact),
        notes=join(tag("p", f"Note: {notice}.", class_="note") for notice in data["notices"]),
    ) + _write_periods(left["periods"])


def _write_periods(periods: list[Data]) -> Html:
    """Return the strip of periods, a bar for each stretch with equal amounts; empty without budgets per period."""
    rows = [
        (p["period"], write_bar(p["share_spent"], "spent"), p["spent"], f"{p['left']} left") for p in periods
    ]
    return write_table("periods||spent|left", rows, "Each period has a budget of its own") if rows else Html()


def write_bar(share: float, label: str) -> Html:
    """Return a bar of the spent share of a budget; ``label`` is for screen readers."""
    percent = 100 * min(1.0, max(0.0, share))
    return fill("bar.html", percent=f"{percent:.0f}", width=f"{percent:.1f}", label=label)


def write_table(headings: str, rows: Sequence[Sequence[str]], caption: str, numbers: str = "") -> Html:
    """Return a table with a caption, which scrolls if it is too wide, also by the keyboard.

    ``headings``, and those of columns of ``numbers``, have ``|`` between them. All cells but :class:`Html` are escaped.
    """
    table = Sheet.of(headings.split("|"), rows, numbers.split("|"), caption=(caption,), caption_style=None)
    return tag("div", table.html(), class_="scroll", role="region", tabindex="0", aria_label=caption)


_GAP = Html("<br>")


def _write_asked(asked: Data, pages: Data) -> Html:
    if not asked["people"]:
        return tag("p", "Nothing yet.")
    caption = f"Statements in order{_write_range(pages)}; times of the place where this was written"
    return write_sums(asked) + _GAP + write_statements(asked["statements"], caption)


def write_sums(asked: Data) -> Html:
    """Write the sums by person, and by day and person."""
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
    return (
        write_table(f"who|{numbers}", people, f"Sums by person: {sums}", numbers)
        + _GAP
        + write_table("day|who|statements|refused|charged", days, by_day, "statements|refused|charged")
    )


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
    return Html("<br>") + write_table(headings, cells, _SIDE_BY_SIDE, "ε|δ|one more|more like the last")


def _write_figure(value: float | None) -> str:
    return "—" if value is None else f"{value:.4g}"


def write_guarantee(told: Data) -> Html:
    """Write the promise in words, the errors of an attacker, and groups."""
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
        fill("guarantee.html", sentence=told["sentence"], formal=told["formal"])
        + write_table(f"loss|{numbers}", errors, least, numbers)
        + _GAP
        + write_table(f"units|{heads}", groups, "The whole budget, for several units together", heads)
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
    if not refused:
        return tag("p", "Nothing.")
    return write_refusals(refused, REFUSALS)


REFUSALS = "Refused statements cost nothing. They are the best sign of a missing bound or a budget that is too small."


def write_refusals(refused: list[Data], caption: str) -> Html:
    """Return a table of refused statements: time, analyst, requested cost, text and reason."""
    rows = [(e["when_text"], e["who"], e["asked"] or "—", _write_statement(e)) for e in refused]
    return write_table("when|who|asked for|statement", rows, caption, "asked for")


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


def _sum_people(days: list[Data]) -> Iterator[str]:
    """Yield the sums of each person's statements and charges."""
    people: dict[str, list[float]] = {}
    for day in days:
        sums = people.setdefault(day["who"], [0, 0, 0.0])
        for place, key in enumerate(("statements", "refused", "epsilon")):
            sums[place] += day[key]
    if people:
        yield "By person, plain sums of epsilon:"
        for who, (charged, refused, epsilon) in people.items():
            yield f"  {who:<12} {charged:>8} charged {refused:>6} refused  ε={epsilon:.4g}"
        yield ""


def _write_text(data: Data) -> str:
    left, promise = data["left"], data["guarantee"]
    lines = [f"WARNING: {warning}" for warning in data["warnings"]]
    lines += [f"{data['ledger'] or 'ledger in memory'} · {data['dataset']} · {data['written'][:16]}Z", ""]
    lines += [left["sentence"] + (f" ({left['about_text']})" if left["about_text"] else ""), ""]
    lines += [f"  {p['period']}: {p['spent']} spent, {p['left']} left" for p in left["periods"]]
    lines += [*_sum_people(data["asked"]["days"])]
    if data["pages"]["of"] > 1:
        days = (
            f"  {d['day']:<10}  {d['who']:<12} {d['statements']:>8} charged {d['refused']:>6} refused  ε={d['epsilon']:.4g}"
            for d in data["asked"]["days"]
        )
        lines += ["By day (UTC) and person, plain sums of epsilon:", *days, ""]
    lines += [f"Asked{_write_range(data['pages'])}:"] + [
        f"  {e['statement']:>4}  {e['when_text']}  {e['who']:<12} {e['charge']:<16} {e['outcome']:<11} {clip_text(e['text'], 90)}"
        for e in data["asked"]["statements"]
    ]
    if data["asked"]["statements"]:
        newest = data["asked"]["statements"][-1]["statement"]
        where = f"{shlex.quote(data['ledger'])} " if data["ledger"] else ""
        lines += [f"  (why: dpsql report {where}--why {newest} explains statement {newest})"]
    lines += ["", "Added up so far:"] + [
        f"  {row['accountant']:<6} {row['spent']:<12} ε={_write_figure(row['epsilon'])} at δ={row['delta']:.4g}, "
        f"one more: ε={_write_figure(row['left_epsilon'])}"
        for row in data["accountants"]
    ]
    lines += ["", "Refused:"] + [
        f"  {e['when_text']}  {e['who']:<12} {clip_text(e['text'], 90)}\n      {e['reason']}"
        for e in data["refused"]
    ]
    lines += ["", promise["sentence"], ""]
    lines += [
        f"  {row['of']}: misses at least "
        + ", ".join(f"{beta:.4g} at {alpha:.0%} false alarms" for alpha, beta in row["type_ii"])
        for row in promise["errors"]
    ]
    lines += [""]
    lines += ["Assumptions:"] + [f"  {sentence}" for sentence in data["assumptions"]["sentences"]]
    lines += [f"Note: {notice}" for notice in data["notices"]]
    return "\n".join(lines) + "\n"
