"""The terms of a ledger: the granted budget, the privacy units, the data set, the shares.

A ledger stores the terms that its owner granted. A session may run under *tighter* terms: a smaller budget, a smaller
share, fewer tables, other bounds. Bounds are part of each event, not of the promise. Only the owner may grant more or
change the subject of the promise, which the log records: ``Ledger.adopt``, or ``dpsql ledger adopt``.

| in the policy | a session may | only the owner, by adopting |
|---|---|---|
| budget epsilon, delta | lower | raise |
| accountant, the share of delta for mechanisms | | change |
| private tables | leave out | add, change their privacy unit, make public |
| public tables, bounds, values, row limits, defaults | change | |
| the budget's currency: epsilon, mu or rho | | change |
| an analyst's share | lower, give to a new name | raise, remove |
| the data set | | change |
| one budget for all periods, or one per period | one for all | one per period |
| the first day of the data (`data_from`), with a budget per period | later | earlier |
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping
from dataclasses import field, replace
from fractions import Fraction
from typing import Any

from dpsql.late_dataclass import dataclass
from dpsql.ledger.log_file import damaged_error
from dpsql.numerics.exact_numbers import parse_amount, write_short
from dpsql.policy.model import USUAL_DELTA, Analyst, Budget, Policy, Table, fold
from dpsql.privacy.accountants import Accountant
from dpsql.privacy.amounts import SYMBOLS, Amount
from dpsql.privacy.codec import read_record, write_record
from dpsql.privacy.filters import ACCOUNTANTS, MECHANISM_SHARE, open_filter, open_own_filter

Share = tuple[Fraction, Fraction]
"""Epsilon and delta of one analyst."""

OLDER_SHARE = Fraction(1, 10)
"""The share of delta for mechanisms before an owner could choose it."""


@dataclass(frozen=True)
class Terms:
    """The part of a policy that the promise rests on, and the whole policy as text for the owner's report."""

    dataset: str
    accountant: str
    epsilon: Fraction
    delta: Fraction
    units: Mapping[str, str]
    public: tuple[str, ...]
    shares: Mapping[str, Share]
    policy: str
    delta_share: Fraction | None = None
    """The part of delta for mechanisms with a delta of their own; None in a ledger older than this choice."""
    own: Amount | None = None
    """The budget, if it was granted in mu or rho; epsilon is then its equivalent at :attr:`at_delta`."""
    own_shares: Mapping[str, Fraction] = field(default_factory=dict)
    """The analysts' shares in that currency."""
    per_period: bool = False
    """Whether each period has this budget of its own."""
    starts: Mapping[str, str] = field(default_factory=dict)
    """The first days of the tables with such periods."""

    @classmethod
    def of(cls, policy: Policy, dataset: str) -> Terms:
        """Return the terms of a policy for a data set."""
        budget, own = policy.budget, policy.budget.own
        tables = {fold(name): table for name, table in policy.tables.items()}
        return cls(
            dataset=dataset,
            accountant=budget.accountant,
            epsilon=budget.epsilon,
            delta=budget.delta,
            units={n: _unit(t) for n, t in sorted(tables.items()) if not t.public},
            public=tuple(sorted(name for name, table in tables.items() if table.public)),
            shares={n: _find_share(a, budget) for n, a in sorted(policy.analysts.items())},
            policy=policy.dumps(),
            delta_share=budget.mechanism_delta_share,
            own=own,
            own_shares={}
            if own is None
            else {n: a.amounts[own.currency] for n, a in sorted(policy.analysts.items())},
            per_period=budget.per_period,
            starts={n: str(t.data_from) for n, t in sorted(tables.items()) if t.data_from is not None},
        )

    @property
    def mechanism_share(self) -> Fraction:
        """The share in force: a tenth in ledgers older than the choice, as they were opened with."""
        return OLDER_SHARE if self.delta_share is None else self.delta_share

    def open_filter(self, whose: str | None = None) -> Accountant:
        """Open the filter of the whole or of a share; an accountant of another currency reads the budget's (epsilon, delta)."""
        epsilon, delta = (self.epsilon, self.delta) if whose is None else self.shares[whose]
        own = self.own
        if own is None:
            return open_filter(self.accountant, epsilon, delta, self.mechanism_share)
        amount = own.amount if whose is None else self.own_shares[whose]
        return _open_own(self.accountant, own.currency, amount, (epsilon, delta), self.mechanism_share)

    def counted_by(self, accountant: str) -> Terms:
        """Return these terms under another accountant."""
        return replace(self, accountant=accountant)

    @property
    def at_delta(self) -> Fraction:
        """The delta at which amounts in mu or rho are shown as an epsilon."""
        return self.delta or USUAL_DELTA

    def limits(self) -> tuple[object, ...]:
        """Return everything that a filter is solved from; terms with equal limits add up alike."""
        share = self.mechanism_share if self._splits else None
        own = (self.own, dict(self.own_shares))
        return self.accountant, self.epsilon, self.delta, share, dict(self.shares), own

    def to_json(self) -> dict[str, object]:
        body = write_record(self)
        del body["delta_share"], body["own"], body["own_shares"]
        if not self.per_period:
            del body["per_period"], body["starts"]
        body |= {} if self.delta_share is None else {"mechanism_delta_share": str(self.delta_share)}
        return body | ({} if self.own is None else {"own": self.own_to_json()})

    def own_to_json(self) -> dict[str, object]:
        """Return the budget in its own currency, and the shares; ValueError if it is in epsilon."""
        own = self.own
        if own is None:
            raise ValueError("a budget in epsilon")
        shares = {name: str(share) for name, share in self.own_shares.items()}
        return {"currency": own.currency, "amount": str(own.amount), "shares": shares}

    @classmethod
    def from_json(cls, body: Mapping[str, object]) -> Terms:
        """Read the terms that :meth:`to_json` wrote; LedgerError if something is missing, negative or not a number."""
        try:
            share = body.get("mechanism_delta_share")
            terms = read_record(cls, {**body, "delta_share": share, "own": None, "own_shares": {}})
            amounts = (terms.epsilon, terms.delta, *itertools.chain(*terms.shares.values()))
            if min(amounts) < 0 or not 0 <= terms.mechanism_share < 1:
                raise ValueError("out of range")
            return replace(terms, **_read_own(body.get("own")))
        except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
            raise damaged_error("the terms it was opened for can't be read") from None

    def grants(self, asked: Terms, *, adopting: bool = False) -> list[str]:
        """List the changes in ``asked`` that exceed these granted terms; empty if a session may run under ``asked``.

        A ledger older than the choice of a share of delta keeps a tenth under a policy that does not choose a share either. Once
        the owner adopts a policy, the policy's share holds.
        """
        wants = []
        if asked.dataset != self.dataset:
            wants.append(f"it belongs to other data: {self._compare_sources(asked)}")
        if asked.accountant != self.accountant:
            wants.append(f"the accountant was {self.accountant} and is now {asked.accountant}")
        left_alone = self.delta_share is None and asked.mechanism_share == MECHANISM_SHARE and not adopting
        if asked.mechanism_share != self.mechanism_share and self._splits and not left_alone:
            shares = [write_short(terms.mechanism_share) for terms in (self, asked)]
            wants.append("the share of delta for mechanisms was {} and is now {}".format(*shares))
        whole, other = self._whole(asked), asked._whole(self)[0]
        if whole[0] != other:
            wants.append(f"the budget was in {whole[0]} and is now in {other}")
        for sign, was, now in (whole, ("δ", self.delta, asked.delta)):
            if now > was:
                wants.append(f"the budget was {sign}={write_short(was)} and is now {sign}={write_short(now)}")
        if asked.per_period and not self.per_period:
            wants.append("the budget was one for all periods, and each period now has its own")
        wants += [
            f"data_from of {name} was {self.starts[name]} and is now {start}"
            for name, start in asked.starts.items()
            if start < self.starts.get(name, start)
        ]
        for name, unit in asked.units.items():
            if name not in self.units:
                wants.append(f"the private table {name} was added")
            elif self.units[name] != unit:
                wants.append(f"the privacy unit of {name} was {self.units[name]} and is now {unit}")
        wants += [
            f"the table {name} was private and is now public" for name in asked.public if name in self.units
        ]
        for name, (epsilon, delta) in self.shares.items():
            if name not in asked.shares:
                wants.append(f"the share of {name} was removed")
                continue
            most, now = self.own_shares.get(name, epsilon), asked.own_shares.get(name, asked.shares[name][0])
            if now > most or asked.shares[name][1] > delta:
                wants.append(f"the share of {name} was raised")
        return wants

    def redates(self, later: Terms) -> bool:
        """Return whether rows may belong to other periods under later terms, so that earlier charges count in each."""
        changed = any(self.units.get(name, unit) != unit for name, unit in later.units.items())
        return changed or not later.units.keys().isdisjoint(self.public)

    def _compare_sources(self, asked: Terms) -> str:
        """Describe the tables whose files differ from those in the ledger's policy."""
        was, now = _read_sources(self.policy), _read_sources(asked.policy)
        told = [
            f"{name} was in {was[name]} and is now in {now[name]}"
            for name in now
            if was.get(name, now[name]) != now[name]
        ]
        told += [f"{name} was added, in {now[name]}" for name in now if name not in was]
        told += [f"{name}, in {was[name]}, was left out" for name in was if name not in now]
        return ", ".join(told) or "files of the same names in another place, or another database"

    def list_weaker(self, asked: Terms) -> list[str]:
        """List, in sentences, the changes by which ``asked`` protects less, or protects another unit, than these terms."""
        told = [
            f"{name} is public from now on: its rows may be shown as they are, whatever the budget says."
            for name in asked.public
            if name in self.units
        ]
        for name, now in asked.units.items():
            was = self.units.get(name, now)
            if was == now:
                continue
            if was == "ROW":
                told.append(
                    f"earlier answers about {name} protect single rows only; about one {now} they may reveal many times "
                    "as much as the budget says."
                )
            else:
                whose = "single rows alone" if now == "ROW" else f"one {now}"
                told.append(
                    f"{name} no longer protects each {was}. From now on the budget bounds the loss of {whose}, and no "
                    f"longer the loss of one {was}."
                )
        return told

    def _whole(self, asked: Terms) -> tuple[str, Fraction, Fraction]:
        """Return the sign of the budget's currency, the budget, and the budget that ``asked`` wants."""
        if self.own is None:
            return "ε", self.epsilon, asked.epsilon
        wanted = asked.own or self.own
        return SYMBOLS[self.own.currency], self.own.amount, wanted.amount

    @property
    def _splits(self) -> bool:
        accountant = ACCOUNTANTS.get(self.accountant)  # unknown: from a later version
        return accountant is not None and accountant.has_rule and self.delta > 0

    def under(self, granted: Terms) -> Terms:
        """Return these terms as a session runs under them, in a ledger with the ``granted`` ones."""
        return replace(self, delta_share=None) if granted.delta_share is None and granted._splits else self

    def adopting(self, asked: Terms) -> Terms:
        """Return the terms after the owner adopted ``asked``; tables that were ever private stay recorded as private."""
        kept = {name: unit for name, unit in self.units.items() if name not in asked.public}
        starts = {**self.starts, **asked.starts}
        return Terms(**{**asked.__dict__, "units": {**kept, **asked.units}, "starts": starts})


def open_own_filters(
    accountant: str,
    epsilon: Fraction,
    delta: Fraction,
    share: Fraction,
    shares: Mapping[str, Any],
    own: Mapping[str, Any],
) -> tuple[tuple[str | None, Accountant], ...]:
    """Open the filters of a budget in mu or rho, from :meth:`Terms.own_to_json`: the whole's, then the shares'."""
    currency = own["currency"]
    amounts: dict[str | None, tuple[Fraction, Share]] = {None: (Fraction(own["amount"]), (epsilon, delta))}
    for name, (e, d) in shares.items():
        amounts[name] = Fraction(own["shares"][name]), (Fraction(e), Fraction(d))
    return tuple((n, _open_own(accountant, currency, a, pair, share)) for n, (a, pair) in amounts.items())


def _open_own(accountant: str, currency: str, amount: Fraction, pair: Share, share: Fraction) -> Accountant:
    if ACCOUNTANTS[accountant].currency == currency:
        return open_own_filter(currency, amount, *pair)
    return open_filter(accountant, pair[0], pair[1] or USUAL_DELTA, share)


def _find_share(analyst: Analyst, budget: Budget) -> Share:
    """Return the epsilon and delta of an analyst's share; for mu or rho, the equivalent pair."""
    delta = budget.delta if analyst.delta is None else analyst.delta
    if analyst.mu is not None or analyst.rho is not None:
        own = (
            Amount.of_mu(analyst.mu) if analyst.mu is not None else Amount("rho", analyst.rho or Fraction(0))
        )
        return own.bound_epsilon(delta or USUAL_DELTA), delta
    return analyst.epsilon or Fraction(0), delta


def _read_own(body: Any) -> dict[str, Any]:
    """Read the budget in mu or rho, and the shares; empty for a budget in epsilon."""
    if body is None:
        return {}
    currency, amount = body["currency"], parse_amount(body["amount"])
    if currency not in ("mu", "rho") or amount <= 0:
        raise ValueError(currency)
    own = Amount.of_mu(amount) if currency == "mu" else Amount(currency, amount)
    return {"own": own, "own_shares": {n: parse_amount(share) for n, share in body["shares"].items()}}


def _read_sources(policy: str) -> dict[str, str]:
    """Return the sources of a policy's tables by name; empty if the text is not a policy."""
    try:
        tables = tomllib.loads(policy).get("tables", {})
    except tomllib.TOMLDecodeError:
        return {}
    return {name: str(table["source"]) for name, table in tables.items() if "source" in table}


def _unit(table: Table) -> str:
    """Return the first privacy unit and its period. Further ways to the unit promise nothing."""
    unit = "ROW" if table.unit_text is None else " ".join(table.unit_text.split())
    return unit if table.period is None else f"{unit} with {table.period}"
