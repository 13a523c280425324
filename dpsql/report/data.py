"""The owner's report: how much is left, who asked what at what cost, what was refused, and what it all means.

The report is a plain dictionary (the JSON form); the HTML page and the text are two ways to write it down.
"""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpsql.errors import Error
from dpsql.ledger.accounts import Entry
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.private_files import write_private
from dpsql.ledger.state import BudgetState
from dpsql.ledger.store import now
from dpsql.numerics.rounding import pair, short
from dpsql.policy.model import Policy
from dpsql.policy.validate import Moment
from dpsql.privacy.events import Event
from dpsql.privacy.filters import Filter
from dpsql.privacy.spent import percent
from dpsql.report import interpretation
from dpsql.report.budget_tables import entry_rows, who
from dpsql.report.html import page

FORMAT = 1
_STEPS = 400
SECTIONS = ("left", "asked", "refused", "guarantee", "assumptions", "pictures")
"""The parts of a report, in the order in which an owner asks for them."""


def report(ledger: Ledger, policy: Policy | None = None) -> dict[str, Any]:
    """The report as plain data: numbers, texts, lists and dictionaries only.

    Args:
        ledger: an open ledger, or :meth:`Ledger.read` of one (with another accountant, if that is the
        question). policy: the policy to state the assumptions from; by default the one that the ledger was
        last opened with.

    Raises:
        LedgerError: the ledger can't be read or trusted.
    """
    policy = policy or ledger.policy
    state = ledger.state()
    whole = state.whole or state
    entries = ledger.entries()
    return {
        "format": FORMAT,
        "written": now(),
        "ledger": None if ledger.path is None else ledger.path.name,
        "dataset": ledger.dataset,
        "warnings": list(ledger.warnings),
        "notices": [notice for notice in ledger.notices if notice not in ledger.warnings],
        "left": _left(whole, entries),
        "asked": _asked(ledger, entries, whole.accountant),
        "refused": [
            _entry(e, whole.accountant) | {"reason": e.reason} for e in entries if e.outcome == "refused"
        ],
        "guarantee": _guarantee(whole, policy),
        "assumptions": _assumptions(policy),
        "pictures": _pictures(ledger, whole, entries),
    }


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
    data = report(ledger, policy)
    left, promise = data["left"], data["guarantee"]
    lines = [f"WARNING: {warning}" for warning in data["warnings"]]
    lines += [f"{data['ledger'] or 'ledger in memory'} · {data['dataset']} · {data['written'][:16]}Z", ""]
    lines += [left["sentence"] + (f" ({left['about_text']})" if left["about_text"] else ""), ""]
    lines += ["Asked:"] + [
        f"  {e['when_text']}  {e['who']:<12} {e['charge']:<16} {e['outcome']:<11} {_clip(e['text'])}"
        for e in data["asked"]["statements"]
    ]
    lines += ["", "Refused:"] + [
        f"  {e['when_text']}  {e['who']:<12} {_clip(e['text'])}\n      {e['reason']}" for e in data["refused"]
    ]
    lines += ["", promise["sentence"], ""]
    lines += ["Assumptions:"] + [f"  {sentence}" for sentence in data["assumptions"]["sentences"]]
    lines += [f"Note: {notice}" for notice in data["notices"]]
    return "\n".join(lines) + "\n"


def _written(ledger: Ledger, policy: Policy | None, suffix: str) -> str:
    if suffix in (".html", ".htm"):
        return page(report(ledger, policy))
    if suffix == ".json":
        return json.dumps(report(ledger, policy), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if suffix == ".csv":
        names, rows = entry_rows(ledger.entries(), ledger.terms.accountant)
        sheet = io.StringIO()
        csv.writer(sheet).writerows([names, *rows])
        return sheet.getvalue()
    return report_text(ledger, policy)


def _left(whole: BudgetState, entries: list[Entry]) -> dict[str, Any]:
    charged = [e for e in entries if e.event is not None]
    return {
        "sentence": whole.sentence,
        "accountant": whole.accountant,
        "detail": whole.detail,
        "epsilon": float(whole.left_epsilon),
        "delta": float(whole.left_delta),
        "limit": {"epsilon": float(whole.limit_epsilon), "delta": float(whole.limit_delta)},
        "spent": {"epsilon": float(whole.spent_epsilon), "delta": float(whole.spent_delta)},
        "share_spent": float(whole.share),
        "mechanism_delta": float(whole.mechanism_delta),
        "rule_used": None if whole.rule_used is None else float(whole.rule_used),
        "rule_text": whole.rule_text,
        "about": whole.about,
        "about_text": whole.about_text,
        "default_epsilon": None if whole.default_epsilon is None else float(whole.default_epsilon),
        "charges": len(charged),
        "unsettled": sum(e.outcome in ("unsettled", "open") for e in charged),
    }


def _asked(ledger: Ledger, entries: list[Entry], accountant: str) -> dict[str, Any]:
    charged = [e for e in entries if e.event is not None]
    rule = ledger.terms.open_filter(ledger.terms.epsilon, ledger.terms.delta)
    people: dict[str, dict[str, Any]] = {}
    for entry in charged:
        event = entry.charged(accountant)
        assert event is not None
        told = people.setdefault(who(entry), {"who": who(entry), "statements": 0, "sum": Fraction(0)})
        told["statements"] += 1
        told["sum"] += event.basic[0]
    for told in people.values():
        told["epsilon"] = float(told.pop("sum"))
        share = ledger.terms.shares.get(told["who"])
        told["share"] = None if share is None else float(share[0])
    return {
        "people": list(people.values()),
        "statements": [
            _entry(e, accountant) | {"price": _price(rule, e.charged(accountant))} for e in charged
        ],
    }


def _price(rule: Filter, event: Event | None) -> str:
    """The charge, and the part of the rule's limit that it uses: a statement that fits by either is admitted."""
    if event is None:
        return ""
    part = rule.part(event)
    return event.sentence() if part is None else f"{percent(part)} of the rule"


def _entry(entry: Entry, accountant: str) -> dict[str, Any]:
    event = entry.charged(accountant)
    charged = (Fraction(0), Fraction(0)) if event is None else event.basic
    return {
        "statement": entry.statement_id,
        "when": entry.when,
        "when_text": datetime.fromisoformat(entry.when).astimezone().strftime("%Y-%m-%d %H:%M"),
        "who": who(entry),
        "text": entry.text,
        "charge": "0" if event is None else event.sentence(),
        "epsilon": float(charged[0]),
        "delta": float(charged[1]),
        "asked": None if entry.asked is None else entry.asked.sentence(),
        "outcome": entry.outcome,
        "event": None if entry.event is None else entry.event.to_json(),
    }


def _guarantee(whole: BudgetState, policy: Policy | None) -> dict[str, Any]:
    epsilon, delta = float(whole.limit_epsilon), float(whole.limit_delta)
    units = (
        sorted({_unit_words(t.privacy_unit) for t in policy.tables.values() if not t.public})
        if policy
        else []
    )
    unit = " or ".join(units) or "all rows of any one privacy unit"
    verb = "is" if unit == "any one row" else "are"
    sure = interpretation.certainty(epsilon)
    if sure > 0.999:
        sentence = (
            f"Somebody who sees every answer, and knows all the other rows, may become all but certain "
            f"whether {unit} {verb} in the data: a budget of ε={short(whole.limit_epsilon)} promises next "
            "to nothing."
        )
    else:
        sentence = (
            f"Even somebody who sees every answer, and knows all the other rows, can't tell with more than "
            f"{interpretation.percent(sure)} certainty whether {unit} {verb} in the data, "
            "if they gave it even odds before."
        )
        if delta:
            sentence += f" Up to a probability of {short(whole.limit_delta)}, this may fail."
    return {
        "epsilon": epsilon,
        "delta": delta,
        "certainty": sure,
        "sentence": sentence,
        "formal": (
            f"All answers together, chosen one after another in any way, are "
            f"({pair(whole.limit_epsilon, whole.limit_delta)})-differentially private, when "
            f"{unit} {verb} added or removed. The sums are kept by the accountant {whole.accountant}."
            + _parts(whole)
        ),
        "groups": [
            dict(
                zip(("size", "epsilon", "delta"), (k, *interpretation.group(epsilon, delta, k)), strict=True)
            )
            for k in range(1, 6)
        ],
    }


def _parts(whole: BudgetState) -> str:
    """What delta is for, where it is for two things."""
    if not 0 < whole.mechanism_delta < whole.limit_delta:
        return ""
    rest = whole.limit_delta - whole.mechanism_delta
    return (
        f" Of δ, {short(whole.mechanism_delta)} is for mechanisms that have one of their own and {short(rest)} for the "
        "rule. A statement is admitted while the plain sum of ε or the rule has room for it."
    )


def _assumptions(policy: Policy | None) -> dict[str, Any]:
    if policy is None:
        return {"sentences": [], "tables": []}
    tables, sentences = [], []
    for table in policy.tables.values():
        if table.public:
            sentences.append(f"{table.name} is public: nothing in it is protected.")
            continue
        rows = 1 if table.row_level else table.max_rows
        limits = [
            "one row each"
            if rows == 1
            else f"at most {rows} rows of each count in a group"
            if rows
            else "any number of rows",
            _groups(table.max_groups),
        ]
        what = _unit_words(table.privacy_unit)
        sentences.append(f"{table.name} protects {what}: {', '.join(filter(None, limits))}.")
        columns = [
            {
                "name": name,
                "bounds": None
                if column.bounds is None
                else [str(b) if isinstance(b, Moment) else float(b) for b in column.bounds],
                "values": None if column.values is None else list(column.values),
            }
            for name, column in table.columns.items()
        ]
        tables.append({"name": table.name, "unit": table.privacy_unit, "max_rows": rows,
                       "max_groups": table.max_groups, "columns": columns})  # fmt: skip
    sentences.append("Declared bounds and values are public: they must not be read off the data.")
    sentences.append(
        "The promise covers what dpsql released from this ledger. It does not cover another ledger for the "
        "same people, nor somebody who can read the data themselves."
    )
    return {"sentences": sentences, "tables": tables}


def _pictures(ledger: Ledger, whole: BudgetState, entries: list[Entry]) -> dict[str, Any]:
    epsilon, delta = float(whole.limit_epsilon), float(whole.limit_delta)
    events = [e.event for e in entries if e.event is not None]
    promise = interpretation.approximate(epsilon, delta)
    spent = interpretation.spent_profile(events)
    grid = [1.5 * epsilon * i / 150 for i in range(151)]
    now_at = min(epsilon, float(whole.limit_epsilon - whole.left_epsilon))
    return {
        "burn_down": _burn_down(ledger, entries),
        "epsilon_delta": {
            "epsilon": grid,
            "promise": [promise(x) for x in grid],
            "spent": [spent(x) for x in grid] if events else [0.0] * len(grid),
        },
        "tradeoff": {
            "promise": interpretation.tradeoff(promise, epsilon),
            "spent": interpretation.tradeoff(spent, epsilon) if events else [(0.0, 1.0), (1.0, 0.0)],
        },
        "attacker": {
            "curve": [
                (x, interpretation.certainty(x))
                for x in (i * max(5.0, 1.2 * epsilon) / 120 for i in range(121))
            ],
            "promise": (epsilon, interpretation.certainty(epsilon)),
            "spent": (now_at, interpretation.certainty(now_at)),
        },
        "groups": [
            (
                k,
                k * epsilon,
                interpretation.group(epsilon, delta, k)[1],
                interpretation.certainty(k * epsilon),
            )
            for k in range(1, 6)
        ],
    }


def _burn_down(ledger: Ledger, entries: list[Entry]) -> dict[str, Any]:
    """What one more statement might have cost, after each charge; refused statements at the level they asked
    for.
    """
    rule = ledger.terms.open_filter(ledger.terms.epsilon, ledger.terms.delta)
    charges = sum(e.event is not None for e in entries)
    every = max(1, charges // _STEPS)
    spent, left, count = rule.start, rule.epsilon, 0
    steps: list[dict[str, Any]] = [{"charges": 0, "left": float(left), "text": ""}]
    refused: list[dict[str, Any]] = []
    for entry in entries:
        if entry.event is not None:
            spent, count = rule.add(spent, entry.event), count + 1
            if count % every == 0 or count == charges:
                left = rule.fits(spent)
                steps.append({"charges": count, "left": float(left), "text": _clip(entry.text)})
        elif entry.asked is not None and len(refused) < _STEPS:
            level = float(left - entry.asked.basic[0])
            refused.append({"charges": count, "level": level, "text": _clip(entry.text)})
    return {"limit": float(rule.epsilon), "charges": charges, "steps": steps, "refused": refused}


def _clip(text: str) -> str:
    return " ".join(text.split())[:90]


def _groups(count: int | None) -> str:
    return "" if count is None else "one group each" if count == 1 else f"at most {count} groups each"


def _unit_words(unit: str | None) -> str:
    if unit is None or unit.upper() == "ROW":
        return "any one row"
    return f"all rows of any one {unit.rpartition(',')[2].strip()}"
