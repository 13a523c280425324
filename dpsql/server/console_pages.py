"""The owner's page as HTML: what is left and what runs now, statements by pages, refusals, and what is promised.

Everything is filled into templates by :func:`dpsql.report.tables.fill`, which escapes it: names and texts are analysts'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from dpsql.report.charts import draw_charts
from dpsql.report.pages import (
    REFUSALS,
    write_accountants,
    write_assumptions,
    write_bar,
    write_guarantee,
    write_refusals,
    write_statements,
    write_sums,
    write_table,
)
from dpsql.report.tables import Html, clip_text, fill, join, tag
from dpsql.server.console_views import LISTED_ON_A_PAGE, AnalystView, LedgerView, StatementPage
from dpsql.server.desks import MAX_FAILURES, MAX_OVERRUNS

TABS = {"": "Now", "statements": "Statements", "refusals": "Refusals", "promise": "Promise and curves"}
"""The pages of a policy: the last part of the address, and what it is called."""
_STAGES = {
    "waits": "waits for its turn",
    "works": "before private data",
    "reads": "reads private data",
}
_AGAIN = Html('<noscript><meta http-equiv="refresh" content="10"></noscript>\n')
_SOON = Html('<meta http-equiv="refresh" content="3">\n')


def write_link(policy: str, tab: str = "", **given: object) -> str:
    """Return the address of a policy's page."""
    path = f"/policy/{quote(policy, safe='')}/{tab}"
    return f"{path}?{urlencode(given)}" if given else path


def write_frame(
    view: LedgerView, names: Sequence[str], tab: str, content: Html, told: str, again: Html | None = None
) -> Html:
    """Write a whole page.

    Args:
        view: the policy that it is about.
        names: all policies.
        tab: which of :data:`TABS`.
        content: what it holds.
        told: the sentence beside the title, which is kept up to date.
        again: for the head: when the browser shall ask again by itself.
    """
    tabs = (
        tag("li", tag("a", title, href=write_link(view.name, name), aria_current="page" if name == tab else None))
        for name, title in TABS.items()
    )  # fmt: skip
    others = (
        tag("li", tag("a", name, href=write_link(name), aria_current="true" if name == view.name else None))
        for name in names
    )
    chosen = tag("nav", tag("ul", join(others), class_="policies"), aria_label="Policies")
    return fill(
        "console.html",
        title=f"{TABS[tab]} · {view.name} · dpsql",
        heading=f"Privacy budget of {view.name}",
        policies=chosen if len(names) > 1 else Html(),
        tabs=join(tabs),
        live=write_link(view.name, "live"),
        again=_AGAIN if again is None else again,
        told=told,
        content=content,
    )


def write_section(name: str, title: str, inner: Html) -> Html:
    """Write a section with its heading."""
    return fill("section.html", id=name, title=title, inner=inner)


# -- now ------------------------------------------------------------------------------------------------------------------


def tell_now(view: LedgerView, live: dict[str, Any]) -> str:
    """Return one sentence about now, for the title's line."""
    running = sum(len(desk["calls"]) for desk in live["desks"])
    sessions = sum(desk["sessions"] for desk in live["desks"])
    return f"{view.open().state().sentence} · {running or 'nothing'} running · {sessions} session{'s' * (sessions != 1)} open"


def write_now(view: LedgerView, live: dict[str, Any], events: Sequence[dict[str, Any]]) -> Html:
    """Write what is left, what runs, who may ask, the latest statements and what happened; a part that is kept up to date."""
    state = view.open().state()
    whole = state.whole or state
    facts = [
        whole.about_text,
        whole.detail or f"{whole.spent} of {whole.limit} spent",
        f"accountant {whole.accountant}",
    ]
    notices = [tag("p", text, class_="warning", role="alert") for text in view.open().warnings]
    left = fill(
        "left.html",
        sentence=whole.sentence,
        bar=write_bar(float(whole.share), f"spent of the whole budget of {view.name}"),
        facts=join(tag("li", fact) for fact in facts if fact),
        notes=Html(),
    )
    latest = view.latest()
    sections = [
        join(notices),
        write_section("left", "How much is left", left),
        write_section("running", "What runs now", _write_running(view, live["desks"])),
        write_section("analysts", "Who may ask", _write_analysts(view, view.list_analysts(live["desks"]))),
        write_section(
            "latest",
            "What was asked last",
            write_statements(latest, "The latest statements, the newest first")
            if latest
            else tag("p", "Nothing yet."),
        ),
        write_section("events", "What happened on the server", _write_events(view.name, events)),
    ]
    return tag("div", join(sections), id="live")


def _write_running(view: LedgerView, desks: Sequence[dict[str, Any]]) -> Html:
    calls = [(desk["analyst"], call) for desk in desks for call in desk["calls"]]
    if not calls:
        return tag("p", "Nothing runs.")
    numbers = {number for _, call in calls for number in call["statements"]}
    texts = {entry["statement"]: entry for entry in view.find_statements(sorted(numbers))}
    rows = []
    for who, call in calls:
        paid = [texts[number] for number in call["statements"] if number in texts]
        stage = "was told to stop" if call["stopped"] else _STAGES.get(call["stage"], call["stage"])
        said = [tag("code", clip_text(entry["text"], 600)) for entry in paid]
        rows.append(
            (who, call["operation"], f"{call['seconds']:g} s", stage, ", ".join(entry["charge"] for entry in paid) or "—",
             Html("<br>").join(said) if said else "nothing was paid so far")
        )  # fmt: skip
    caption = "Requests that are being answered, and those that wait for their turn; a text is known once it is paid"
    return write_table("who|asks for|since|stage|charge|statement", [(*row[:5], Html(row[5])) if isinstance(row[5], Html)
                       else row for row in rows], caption, "since|charge")  # fmt: skip


def _write_analysts(view: LedgerView, analysts: Sequence[AnalystView]) -> Html:
    if not analysts:
        return tag("p", "The policy names no analyst, and nobody has asked.")
    rows = []
    for one in analysts:
        link = tag("a", one.name or "not named", href=write_link(view.name, "statements", who=one.name))
        share: Html | str = "of the whole"
        if one.share is not None:
            spent = write_bar(float(one.share.share), f"spent of the share of {one.name}")
            share = spent + tag(
                "span", f"{one.share.spent} of {one.share.limit} spent, {one.share.left} left"
            )
        counted = one.desk
        rows.append(
            (tag("span", link, class_="name"), _write_state(one), share, str(one.statements),
             tag("a", str(one.refused), href=write_link(view.name, "refusals", who=one.name)) if one.refused else "0",
             str(counted.get("sessions", 0)), f"{counted.get('failures', 0)} of {MAX_FAILURES}",
             f"{counted.get('overruns', 0)} of {MAX_OVERRUNS}")
        )  # fmt: skip
    caption = "Analysts, their shares, and what the server counts; failures after payment and overruns lead to a pause"
    heads = "who|state|share|asked|refused|sessions|failures|overruns"
    return write_table(heads, rows, caption, "asked|refused|sessions|failures|overruns")


def _write_state(one: AnalystView) -> Html:
    token = one.token
    if not one.known:
        return tag("span", "not in the policy")
    if token is None:
        return tag("span", "no token")
    if token.has_expired():
        return tag("span", f"expired {token.expires[:10]}", class_="state bad")
    if token.paused:
        return tag("span", "paused", class_="state bad") + tag("span", token.paused, class_="reason")
    return tag("span", f"may ask until {token.expires[:10]}")


def _write_events(policy: str, events: Sequence[dict[str, Any]]) -> Html:
    rows = [
        (str(line["when"])[:19].replace("T", " "), line["event"],
         ", ".join(f"{name} {value}" for name, value in line.items() if name not in ("when", "event", "policy")))
        for line in reversed(events) if line.get("policy", policy) == policy
    ]  # fmt: skip
    if not rows:
        return tag("p", "Nothing.")
    return write_table(
        "when|event|what", rows, "Pauses, refused tokens, reloads and failures, in UTC, the newest first"
    )


# -- pages of statements --------------------------------------------------------------------------------------------------


def write_list(
    view: LedgerView, tab: str, found: StatementPage, people: Sequence[str], who: str | None
) -> Html:
    """Write a page of statements, or of refusals.

    Args:
        view: the policy.
        tab: ``statements`` or ``refusals``.
        found: the page.
        people: the names that may be chosen.
        who: the one that is chosen.
    """
    chosen = {} if who is None else {"who": who}
    first = (found.page - 1) * LISTED_ON_A_PAGE + 1
    last = first + len(found.entries) - 1
    what = "refusals" if tab == "refusals" else "statements"
    whose = "" if who is None else f" of {who}"
    count = f"{first} to {last} of {found.count} {what}{whose}, the newest first" if found.entries else ""
    still = f"; {found.missing} older statements are still being looked at" if found.missing else ""
    if not found.entries:
        table = tag("p", f"Nothing{still}.")
    elif tab == "refusals":
        table = write_refusals(found.entries, f"{count}{still}. {REFUSALS}")
    else:
        table = write_statements(found.entries, count + still)
    steps = []
    for page, name, rel in ((found.page - 1, "Newer", "prev"), (found.page + 1, "Older", "next")):
        if 1 <= page <= found.pages:
            steps.append(tag("a", name, href=write_link(view.name, tab, **chosen, page=page), rel=rel))
    steps.append(tag("span", f"page {found.page} of {found.pages}", class_="quiet"))
    choices = [("everybody", None), *((name or "not named", name) for name in people)]
    names = join(
        tag("li", tag("a", shown, href=write_link(view.name, tab, **({} if name is None else {"who": name})),
                      aria_current="true" if name == who else None))
        for shown, name in choices
    )  # fmt: skip
    inner = (
        tag("nav", tag("ul", names, class_="people"), aria_label="Whose")
        + table
        + tag("nav", join(steps), class_="pages", aria_label="Pages of the list")
    )
    return write_section(
        tab, "What was refused" if tab == "refusals" else "Who asked what, and what it cost", inner
    )


# -- what is promised -----------------------------------------------------------------------------------------------------


def write_promise(view: LedgerView) -> tuple[Html, Html]:
    """Write what is promised, with curves; and what the browser shall do while that is being made."""
    data, behind = view.find_report()
    if data is None:
        said = (
            view.report_error
            or "The whole ledger is being added up. This page shows it as soon as that is done."
        )
        return tag("p", said, role="status"), _SOON
    since = f"As of {data['written_text']}" + ("; newer statements are being added." if behind else ".")
    asked = write_sums(data["asked"]) if data["asked"]["people"] else tag("p", "Nothing yet.")
    sections = [
        tag("p", since, class_="quiet"),
        write_section("guarantee", "What is promised", write_guarantee(data["guarantee"])),
        write_section("pictures", "In pictures", draw_charts(data)),
        write_section("sums", "By person and day", asked + write_accountants(data["accountants"])),
        write_section("assumptions", "Under which assumptions", write_assumptions(data["assumptions"])),
    ]
    return join(sections), Html()
