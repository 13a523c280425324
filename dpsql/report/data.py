"""The owner's report as plain data: what is left, who asked what at what cost, what it means.

The page and the text are two ways to write it down. The figures are floats on purpose, for people to look at: a
charge is decided by the filters, in exact fractions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from fractions import Fraction
from statistics import NormalDist
from typing import Any

from dpsql.ledger.accounts import BudgetState
from dpsql.ledger.entries import Entry
from dpsql.ledger.ledger import Ledger
from dpsql.ledger.store import format_now
from dpsql.numerics.exact_numbers import write_pair, write_short
from dpsql.policy.model import Column, Policy, Table
from dpsql.policy.validate import DateBound
from dpsql.privacy.accountants import Accountant, format_percent
from dpsql.privacy.events import Event
from dpsql.privacy.tradeoff import from_profile
from dpsql.report.sums import LedgerSums, sum_days
from dpsql.report.tables import name_of

_Profile = Callable[[float], float]
"""Delta as a function of epsilon: smaller is more private."""

_NORMAL = NormalDist()
_ORDERS = tuple(1 + 10 ** (k / 16 - 3) for k in range(112))


def approximate_profile(epsilon: float, delta: float) -> _Profile:
    """Return the profile that (epsilon, delta) alone promises.

    It is randomised response, and with probability delta everything.
    """

    def profile(x: float) -> float:
        inside = max(0.0, -math.expm1(min(0.0, x - epsilon))) / (1 + math.exp(-epsilon))
        return min(1.0, delta + (1 - delta) * inside)

    return profile


def concentrated_profile(rho: float, delta: float = 0.0) -> _Profile:
    """Return the profile of rho-zCDP (Canonne, Kamath and Steinke 2020, Prop. 12), plus a delta."""

    def profile(x: float) -> float:
        if rho == 0:
            return delta
        least = min(
            (a - 1) * (a * rho - x) + a * math.log1p(-1 / a) - math.log(a - 1)
            for a in (*_ORDERS, max(1.0001, (x + rho) / (2 * rho)))
        )
        return min(1.0, delta + math.exp(min(0.0, least)))

    return profile


def gaussian_profile(mu: float) -> _Profile:
    """Return the profile of mu-GDP (Dong, Roth and Su 2022, Cor. 1)."""

    def profile(x: float) -> float:
        if mu == 0:
            return 0.0
        second = _NORMAL.cdf(-x / mu - mu / 2)
        return max(
            0.0, _NORMAL.cdf(-x / mu + mu / 2) - (math.exp(x + math.log(second)) if second > 0 else 0.0)
        )

    return profile


def spent_profile(events: Iterable[Event]) -> _Profile:
    """Return the best of the sums over what was charged: pure, zCDP, Gaussian."""
    charged = Counter(events)
    epsilon = float(sum((n * e.basic[0] for e, n in charged.items()), Fraction(0)))
    both = float(sum((n * e.basic[1] for e, n in charged.items()), Fraction(0)))
    profiles = [approximate_profile(epsilon, min(1.0, both))]
    delta = float(sum(n * e.delta for e, n in charged.items()))
    profiles.append(concentrated_profile(float(sum(n * e.rho for e, n in charged.items())), min(1.0, delta)))
    if delta == 0:
        profiles.append(gaussian_profile(math.sqrt(sum(n * e.mu**2 for e, n in charged.items()))))
    return lambda x: min(profile(x) for profile in profiles)


def compute_tradeoff(profile: _Profile, epsilon: float, points: int = 101) -> list[tuple[float, float]]:
    """Compute the least type II error for each type I error: the upper hull of the profile's supporting lines."""
    span = min(max(4 * epsilon, 4.0), 60.0)
    curve = from_profile(profile, (span * (i / 120) ** 2 for i in range(121)))
    return [(i / (points - 1), min(1.0, curve(i / (points - 1)))) for i in range(points)]


def compute_certainty(epsilon: float) -> float:
    """Compute the highest certainty about one bit of one unit, after even odds: e^ε / (1 + e^ε).

    >>> f"{compute_certainty(0):.0%} {compute_certainty(1):.0%}"
    '50% 73%'
    """
    return 1 / (1 + math.exp(-epsilon))


def certainty_text(share: float) -> str:
    """Format a certainty as people write it; never rounded up to 100%.

    >>> certainty_text(0.731), certainty_text(0.9526), certainty_text(0.99999)
    ('73%', '95.3%', 'over 99.9%')
    """
    if share > 0.999:
        return "over 99.9%"
    return f"{share:.1%}" if share > 0.95 else f"{share:.0%}"


def compute_group_loss(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """Compute the loss of ``size`` units together: k·ε and δ·(e^{kε} - 1)/(e^ε - 1), at most 1.

    >>> compute_group_loss(1.0, 0.0, 3)
    (3.0, 0.0)
    """
    if delta == 0 or size == 1:
        return size * epsilon, delta
    if epsilon == 0:
        return 0.0, min(1.0, size * delta)
    ratio = math.log(-math.expm1(-size * epsilon)) - math.log(-math.expm1(-epsilon))
    return size * epsilon, math.exp(min(0.0, math.log(delta) + (size - 1) * epsilon + ratio))


FORMAT = 1
_DAYS = 400
"""Rows of the sums by day and person."""
SECTIONS = ("left", "asked", "refused", "guarantee", "assumptions", "pictures")
"""The parts of a report, in the order in which an owner asks for them."""


def make_report(ledger: Ledger, policy: Policy | None = None, *, page: int = 1) -> dict[str, Any]:
    """Return the report as plain data: numbers, texts, lists and dictionaries only.

    Args:
        ledger: an open ledger, or :meth:`Ledger.read` of one (with another accountant, if that is the
        question). policy: the policy to state the assumptions from; by default the one that the ledger was
        last opened with.
        page: which statements are told one by one: 1, the newest. All sums are of all statements.

    Raises:
        LedgerError: the ledger can't be read or trusted.
    """
    policy = policy or ledger.policy
    state = ledger.state()
    whole = state.whole or state
    sums = LedgerSums(ledger, page)
    entries = sums.entries
    return {
        "format": FORMAT,
        "written": format_now(),
        "ledger": None if ledger.path is None else ledger.path.name,
        "dataset": ledger.dataset,
        "warnings": list(ledger.warnings),
        "notices": [notice for notice in ledger.notices if notice not in ledger.warnings],
        "left": _left(whole, sums),
        "pages": {
            "page": sums.page,
            "of": sums.pages,
            "first": sums.first,
            "last": sums.last,
            "count": sums.count,
        },
        "asked": _asked(ledger, sums, whole.accountant),
        "refused": [
            _entry(e, whole.accountant) | {"reason": e.reason} for e in entries if e.outcome == "refused"
        ],
        "guarantee": _guarantee(whole, policy),
        "assumptions": _assumptions(policy),
        "pictures": _pictures(whole, sums),
    }


def _left(whole: BudgetState, sums: LedgerSums) -> dict[str, Any]:
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
        "charges": sums.charges,
        "unsettled": sums.unsettled,
    }


def _asked(ledger: Ledger, sums: LedgerSums, accountant: str) -> dict[str, Any]:
    rule = ledger.terms.open_filter(ledger.terms.epsilon, ledger.terms.delta)
    shares = ledger.terms.shares
    return {
        "people": [
            {"who": who, "statements": tally.statements, "epsilon": float(tally.epsilon),
             "share": float(shares[who][0]) if who in shares else None}
            for who, tally in sums.people.items() if tally.statements
        ],
        "days": [
            {"day": day, "who": who, "statements": tally.statements, "refused": tally.refused,
             "epsilon": float(tally.epsilon), "delta": float(tally.delta)}
            for day, who, tally in sum_days(sums.days, _DAYS)
        ],
        "statements": [
            _entry(e, accountant) | {"price": _price(rule, e.charged(accountant))}
            for e in sums.entries if e.event is not None
        ],
    }  # fmt: skip


def _price(rule: Accountant, event: Event | None) -> str:
    """Return the charge, or the part of the rule's limit that it uses."""
    if event is None:
        return ""
    part = rule.used_by(event)
    return event.sentence() if part is None else f"{format_percent(part)} of the rule"


def _entry(entry: Entry, accountant: str) -> dict[str, Any]:
    event = entry.charged(accountant)
    charged = (Fraction(0), Fraction(0)) if event is None else event.basic
    return {
        "statement": entry.statement_id,
        "when": entry.when,
        "when_text": datetime.fromisoformat(entry.when).astimezone().strftime("%Y-%m-%d %H:%M"),
        "who": name_of(entry),
        "text": entry.text,
        "charge": entry.charge(accountant),
        "epsilon": float(charged[0]),
        "delta": float(charged[1]),
        "asked": None if entry.asked is None else entry.asked.sentence(),
        "outcome": entry.outcome,
        "event": None if entry.event is None else entry.event.to_json(),
    }


def _guarantee(whole: BudgetState, policy: Policy | None) -> dict[str, Any]:
    epsilon, delta = float(whole.limit_epsilon), float(whole.limit_delta)
    units = sorted({t.unit_words for t in policy.tables.values() if not t.public}) if policy else []
    unit = " or ".join(units) or "all rows of any one privacy unit"
    verb = "is" if unit == "any one row" else "are"
    sure = compute_certainty(epsilon)
    if sure > 0.999:
        sentence = (
            f"Somebody who sees every answer, and knows all the other rows, may become all but certain "
            f"whether {unit} {verb} in the data: a budget of ε={write_short(whole.limit_epsilon)} promises next "
            "to nothing."
        )
    else:
        sentence = (
            f"Even somebody who sees every answer, and knows all the other rows, can't tell with more than "
            f"{certainty_text(sure)} certainty whether {unit} {verb} in the data, "
            "if they gave it even odds before."
        )
        if delta:
            sentence += f" Up to a probability of {write_short(whole.limit_delta)}, this may fail."
    return {
        "epsilon": epsilon,
        "delta": delta,
        "certainty": sure,
        "sentence": sentence,
        "formal": (
            f"All answers together, chosen one after another in any way, are "
            f"({write_pair(whole.limit_epsilon, whole.limit_delta)})-differentially private, when "
            f"{unit} {verb} added or removed. The sums are kept by the accountant {whole.accountant}."
            + _parts(whole)
        ),
        "groups": [
            dict(zip(("size", "epsilon", "delta"), (k, *compute_group_loss(epsilon, delta, k)), strict=True))
            for k in range(1, 6)
        ],
    }


def _parts(whole: BudgetState) -> str:
    """Say what delta is for, where it is for two things."""
    if not 0 < whole.mechanism_delta < whole.limit_delta:
        return ""
    rest = whole.limit_delta - whole.mechanism_delta
    return (
        f" Of δ, {write_short(whole.mechanism_delta)} is for mechanisms that have one of their own and {write_short(rest)} for "
        "the rule. A statement is admitted while the plain sum of ε or the rule has room for it."
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
        limits = filter(None, (_rows(rows), _groups(table.max_groups)))
        sentences.append(f"{table.name} protects {table.unit_words}: {', '.join(limits)}.")
        columns = [
            {
                "name": name,
                "bounds": _bounds(column),
                "values": None if column.values is None else list(column.values),
            }
            for name, column in table.columns.items()
        ]
        tables.append({"name": table.name, "unit": _unit_text(table), "max_rows": rows,
                       "max_groups": table.max_groups, "columns": columns})  # fmt: skip
    sentences.append("Declared bounds and values are public: they must not be read off the data.")
    sentences.append(
        "The promise covers what dpsql released from this ledger. It does not cover another ledger for the "
        "same people, nor somebody who can read the data themselves."
    )
    return {"sentences": sentences, "tables": tables}


def _pictures(whole: BudgetState, sums: LedgerSums) -> dict[str, Any]:
    epsilon, delta = float(whole.limit_epsilon), float(whole.limit_delta)
    events = sums.events
    promise = approximate_profile(epsilon, delta)
    spent = spent_profile(events)
    grid = [1.5 * epsilon * i / 150 for i in range(151)]
    now_at = min(epsilon, float(whole.limit_epsilon - whole.left_epsilon))
    return {
        "burn_down": sums.burn_down,
        "epsilon_delta": {
            "epsilon": grid,
            "promise": [promise(x) for x in grid],
            "spent": [spent(x) for x in grid] if events else [0.0] * len(grid),
        },
        "tradeoff": {
            "promise": compute_tradeoff(promise, epsilon),
            "spent": compute_tradeoff(spent, epsilon) if events else [(0.0, 1.0), (1.0, 0.0)],
        },
        "attacker": {
            "curve": [
                (x, compute_certainty(x)) for x in (i * max(5.0, 1.2 * epsilon) / 120 for i in range(121))
            ],
            "promise": (epsilon, compute_certainty(epsilon)),
            "spent": (now_at, compute_certainty(now_at)),
        },
        "groups": [
            (k, k * epsilon, compute_group_loss(epsilon, delta, k)[1], compute_certainty(k * epsilon))
            for k in range(1, 6)
        ],
    }


def _bounds(column: Column) -> list[str | float] | None:
    ends = column.bounds
    return None if ends is None else [str(end) if isinstance(end, DateBound) else float(end) for end in ends]


def _rows(count: int | None) -> str:
    if count is None:
        return "any number of rows"
    return "one row each" if count == 1 else f"at most {count} rows of each count in a group"


def _groups(count: int | None) -> str:
    return "" if count is None else "one group each" if count == 1 else f"at most {count} groups each"


def _unit_text(table: Table) -> str | None:
    """Return the column or path that decides whose row it is, with what parts it."""
    period = "" if table.period is None else f" {table.period.words}"
    return None if table.unit_text is None else f"{table.unit_text}{period}"
